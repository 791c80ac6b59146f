"""Names of values as mlir-opt gives them: `%0`, `%c8`, `%block_id_x`, `%arg0`, `%2:3`."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr, i1
from xdsl.ir import Attribute, Operation, Region, SSAValue

from tilewright.frozen import field, record

# Ops whose results MLIR names after what they are. Several results: one name each.
RESULT_NAMES: dict[str, tuple[str, ...]] = {
    "memref.alloc": ("alloc",),
    "memref.alloca": ("alloca",),
    "memref.cast": ("cast",),
    "memref.dim": ("dim",),
    "memref.expand_shape": ("expand_shape",),
    "memref.collapse_shape": ("collapse_shape",),
    "memref.extract_aligned_pointer_as_index": ("intptr",),
    "memref.extract_strided_metadata": ("base_buffer", "offset", "sizes", "strides"),
    "memref.memory_space_cast": ("memspacecast",),
    "memref.reinterpret_cast": ("reinterpret_cast",),
    "memref.subview": ("subview",),
    "memref.transpose": ("transpose",),
    "memref.view": ("view",),
    "gpu.alloc": ("memref", "asyncToken"),
    "gpu.lane_id": ("lane_id",),
    "gpu.subgroup_id": ("subgroup_id",),
    "gpu.num_subgroups": ("num_subgroups",),
    "gpu.subgroup_size": ("subgroup_size",),
    "gpu.shuffle": ("shuffleResult", "valid"),
}
DIMENSION_OPS = frozenset(
    {"gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.thread_id", "gpu.global_id"}
)


def _constant_name(value: Attribute) -> str:
    """`c8`, `c8_i32`, `true`, `cst`."""
    if not isinstance(value, IntegerAttr):
        return "cst"
    number, kind = value.value.data, value.type
    if kind == i1:
        return "true" if number else "false"
    text = f"c{number}"
    return text if isinstance(kind, IndexType) else f"{text}_{kind}"


def result_groups(op: Operation) -> list[tuple[str | None, int]]:
    """Names that MLIR gives to an op's results, each with the number of results that it covers."""
    count = len(op.results)
    if not count:
        return []
    if isinstance(op, arith.ConstantOp):
        return [(_constant_name(op.value), 1)]
    if op.name == "index.constant":
        value = op.properties["value"]
        assert isinstance(value, IntegerAttr)
        return [(f"idx{value.value.data}", 1)]
    if op.name in DIMENSION_OPS:
        dimension: Any = op.properties["dimension"]
        return [(f"{op.name.removeprefix('gpu.')}_{dimension.data}", 1)]
    names = RESULT_NAMES.get(op.name)
    if names is None:
        return [(None, count)]
    if op.name == "memref.extract_strided_metadata":
        rank = (count - 2) // 2
        sizes = [1, 1, rank, rank]
        return [group for group in zip(names, sizes, strict=True) if group[1]]
    return [(name, 1) for name in names[:count]]


@record
class Names:
    """Names the values of an op as MLIR's printer does.

    All values of a region are named before those of the regions inside of it; siblings start from
    the same numbers. With `keep`, a value that has a name of its own keeps it.
    """

    keep: bool = False
    values: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    results: dict[Operation, str] = field(default_factory=dict[Operation, str])
    """What stands left of an op's `=`."""

    def of_region(self, region: Region, number: int, argument: int, used: frozenset[str]) -> None:
        taken: set[str] = set(used)
        conflict = 0

        def unique(name: str) -> str:
            nonlocal conflict
            candidate = name
            while candidate in taken:
                candidate = f"{name}_{conflict}"
                conflict += 1
            taken.add(candidate)
            return candidate

        for index, block in enumerate(region.blocks):
            for value in block.args:
                if self.keep and value.name_hint:
                    self.values[value] = unique(value.name_hint)
                elif index == 0:
                    self.values[value] = unique(f"arg{argument}")
                    argument += 1
                else:
                    self.values[value] = str(number)
                    number += 1
            for op in block.ops:
                texts: list[str] = []
                start = 0
                for name, count in self._groups(op):
                    if name is None:
                        name, number = str(number), number + 1
                    else:
                        name = unique(name)
                    group = op.results[start : start + count]
                    for position, value in enumerate(group):
                        self.values[value] = name if count == 1 else f"{name}#{position}"
                    texts.append(f"%{name}" if count == 1 else f"%{name}:{count}")
                    start += count
                if texts:
                    self.results[op] = ", ".join(texts)
        inner = frozenset(taken)
        for block in region.blocks:
            for op in block.ops:
                for nested in op.regions:
                    self.of_region(nested, number, argument, inner)

    def _groups(self, op: Operation) -> list[tuple[str | None, int]]:
        """Results by name: neighbours that share a hint together, else as MLIR groups them."""
        hints = [result.name_hint for result in op.results] if self.keep else []
        if not any(hints):
            return result_groups(op)
        return [(hint, len(list(run))) for hint, run in groupby(hints)]
