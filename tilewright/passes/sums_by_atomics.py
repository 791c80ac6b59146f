"""Sums by atomics that nobody reads back before the launch is over: they may be added up elsewhere first.

Found are sums, or what else atomics combine in any order, whose results nobody uses, in arrays of one dimension that
the kernel touches in no other way, where it multiplies no tiles. Targets have memory that is nearer to who adds (shared
memory of a workgroup, a thread's own), and add it to the array at the end: the same sums, in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.fused import ContractOp
from tilewright.dialects.movement import shape_of
from tilewright.passes.carried import operands_of, reached
from tilewright.passes.integers import dimension_of
from tilewright.passes.memory_objects import (
    is_array_argument,
    is_memref,
    is_pure,
    may_alias,
    may_read,
    may_write,
    memory_root,
)


def sums_by_atomics(
    function: gpu.FuncOp, kinds: Collection[str], elements: Collection[Attribute], few: int
) -> dict[SSAValue, list[xetile.AtomicRmwOp]]:
    """The atomics of these kinds, one for each array, and types that may go to memory of their own first, by the array
    that they name.

    `few`: elements that a program loads for each that it adds, from which on the array is not what it waits for.
    """
    ops = list(function.walk())
    if any(isinstance(op, xetile.TileMmaOp | ContractOp) for op in ops):
        return {}
    found: dict[SSAValue, list[xetile.AtomicRmwOp]] = {}
    others: list[SSAValue] = []
    for op in ops:
        if isinstance(op, xetile.AtomicRmwOp) and (source := _source(op)) is not None:
            found.setdefault(source, []).append(op)
        elif may_read(op) or may_write(op):
            for value in op.operands:
                init = value.owner
                if isinstance(init, xetile.InitTileOp):
                    others.append(memory_root(init.source))
                elif is_memref(value) or isinstance(value.type, xetile.TileType):
                    others.append(memory_root(value))
    roots = {source: memory_root(source) for source in found}
    fitting = {
        source: ops
        for source, ops in found.items()
        if all(op.kind == ops[0].kind in kinds for op in ops)
        and ops[0].tile_type.element_type in elements
    }
    loads = [op for op in ops if isinstance(op, xetile.LoadTileOp | xetile.LoadGatherOp)]
    loaded = sum(prod(shape_of(value)) for op in loads for value in op.results)
    added = sum(prod(shape_of(op.value)) for each in fitting.values() for op in each)
    if loaded >= few * added:
        return {}
    return {
        source: ops
        for source, ops in fitting.items()
        if not any(
            may_alias(roots[source], other)
            for other in (*others, *(r for s, r in roots.items() if s is not source))
        )
    }


def _source(op: xetile.AtomicRmwOp) -> SSAValue | None:
    """The one-dimensional array that an atomic adds to; None where it does something else."""
    init = op.tile.owner
    if op.result.first_use is not None or op.tile_type.memory_space:
        return None
    if not isinstance(init, xetile.InitTileOp):
        return None
    source = init.source
    if not isinstance(source.type, MemRefType) or source.type.get_num_dims() != 1:
        return None
    (extent,) = source.type.get_shape()
    for size in init.mixed_sizes:
        if size != extent if isinstance(size, int) else dimension_of(size) != (source, 0):
            return None
    if not is_array_argument(memory_root(source)) or maker(source) is None:
        return None
    return source


def maker(source: SSAValue) -> Sequence[Operation] | None:
    """The ops that make a view of an argument from what every program has alike, in order; None where others do."""
    owners = {value.owner for value in reached([source], operands_of)}
    made = [op for op in owners if isinstance(op, Operation)]
    if any(not is_pure(op) or op.regions or isinstance(op, gpu.BlockIdOp) for op in made):
        return None
    (kernel, *others) = {b.parent_op() for b in owners if not isinstance(b, Operation)}
    if not isinstance(kernel, gpu.FuncOp) or others:
        return None  # of a loop's values
    return [op for op in kernel.walk() if op in owners]
