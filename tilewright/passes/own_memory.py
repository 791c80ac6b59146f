"""own-memory: what a program allocates lies where a GPU has memory for the workgroup, the subgroup or the lane.

    %m = memref.alloca() : memref<8x16xf32>                %m = memref.alloca() : memref<8x16xf32, 3>
    %t = xetile.init_tile %m[%i, 0]                   ->   %t = xetile.init_tile %m[%i, 0]
        : .. -> !xetile.tile<1x16xf32>                         : .. -> !xetile.tile<1x16xf32, .. memory_space = 3>

| program of a | memory |
|---|---|
| workgroup | shared memory, so that each of its subgroups reaches all of it |
| subgroup | its part of shared memory |
| lane | that of the lane (space 5), which its loads and stores alone reach |

Views and tiles of it say so, too.
Requires: no reads and writes of vectors above a lane (vector-to-xetile). Guarantees: the same results; no
allocation in another memory. Raises UnsupportedError where a branch or loop makes it one with an array of the launch,
and for sizes that are not constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerAttr, MemRefType, NoneAttr, i8, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.gpu.memory import SHARED_MEMORY, is_shared, memory_space_number
from tilewright.dialects.xetile import TileAttr, TileType
from tilewright.passes.carried import LOOPS_AND_BRANCHES, carried_together
from tilewright.passes.emit import Before
from tilewright.passes.kernel import level_of, subgroups_of

LINE = 64
"""Bytes that the beginning of an allocation of shared memory is a multiple of."""
_ENDS = (scf.YieldOp, scf.ConditionOp)
LANE_MEMORY = 5
"""The memory space of what a lane has for itself."""


def shared_bytes(op: Operation) -> int:
    """Of a workgroup's shared memory that an op allocates; 0 of one that does not."""
    kind = op.memref.type if isinstance(op, memref.AllocOp | memref.AllocaOp) else None
    if kind is None or not is_shared(kind) or DYNAMIC_INDEX in kind.get_shape():
        return 0
    return _in_lines(kind)


def bytes_of(kind: MemRefType) -> int:
    """Of an array without gaps."""
    return max(1, prod(kind.get_shape())) * -(-element_bits(kind.element_type) // 8)


def _in_lines(kind: MemRefType) -> int:
    """Of an allocation, in whole lines."""
    return -(-bytes_of(kind) // LINE) * LINE


def own_memory(kernel: gpu.FuncOp) -> None:
    """Puts memory that a program makes for itself into shared memory, a lane's into the lane's own."""
    level = level_of(kernel)
    space = LANE_MEMORY if level == "lane" else SHARED_MEMORY
    parts = subgroups_of(kernel) if level == "subgroup" else 1
    found: list[SSAValue] = []
    made = [op for op in kernel.walk() if isinstance(op, memref.AllocOp | memref.AllocaOp)]
    for op in made:
        if (kind := _in_space(op.memref.type, space)) is not None:
            found.append(_placed(kernel, op, kind, parts))
    moved = bool(found)
    while found:
        for use in list(found.pop().uses):
            if isinstance(use.operation, memref.DeallocOp):
                Rewriter.erase_op(use.operation)
                continue
            for value in _taken_on(use.operation, use.index):
                if (kind := _in_space(value.type, space)) is not None:
                    found.append(Rewriter.replace_value_with_new_type(value, kind))
    for op in kernel.walk() if moved else ():
        meetings = [op.operands[1:]] if isinstance(op, arith.SelectOp) else carried_together(op)
        if any(len({v.type for v in names}) > 1 for names in meetings):
            raise unsupported(
                op,
                f"{op.name} gives memory of the {level} or an array of the launch",
                hint="read both, and choose what was read",
            )


def _placed(
    kernel: gpu.FuncOp, op: memref.AllocOp | memref.AllocaOp, kind: Attribute, parts: int
) -> SSAValue:
    """The memory of an allocation, of this type; one of so many `parts` of shared memory."""
    assert isinstance(kind, MemRefType)
    shape = kind.get_shape()
    if DYNAMIC_INDEX in shape:
        raise unsupported(
            op,
            f"{op.name} of {op.memref.type}: a kernel has memory of constant size only",
            hint="give it the extents that it has at most",
        )
    if parts == 1 or not isinstance(kind.layout, NoneAttr):
        return Rewriter.replace_value_with_new_type(op.memref, kind)
    size = _in_lines(kind)
    whole = MemRefType(i8, [parts * size], memory_space=kind.memory_space)
    shared, at = memref.AllocOp([], [], whole), Before(op)
    shared.location = op.location
    Rewriter.insert_op(shared, InsertPoint.at_start(kernel.body.block))
    start = at.add(arith.MuliOp(at.add(gpu.SubgroupIdOp()), at.index(size)))
    part = memref.ViewOp.create(operands=[shared.memref, start], result_types=[kind])
    value = at.add(part)
    Rewriter.replace_op(op, [], [value])
    return value


def _taken_on(user: Operation, place: int) -> Sequence[SSAValue]:
    """The values that a user of memory makes of it, or hands it on as."""
    scope = user.parent_op() if isinstance(user, _ENDS) else user
    if not isinstance(scope, LOOPS_AND_BRANCHES):
        return user.results
    value = user.operands[place]
    groups = [names for names in carried_together(scope) if value in names]
    return [v for names in groups for v in names if isinstance(v.owner, Block) or v.owner is scope]


def _in_space(kind: Attribute, space: int) -> Attribute | None:
    """The type of the same in this memory; None where it is there or shared, or no memory."""
    if isinstance(kind, MemRefType) and memory_space_number(kind) not in (space, SHARED_MEMORY):
        return MemRefType(kind.element_type, kind.shape, kind.layout, IntegerAttr(space, i64))
    if isinstance(kind, TileType) and kind.memory_space not in (space, SHARED_MEMORY):
        said, number = kind.tile_attr or TileAttr(), IntegerAttr(space, i64)
        form = (said.sg_map, said.wg_map, said.order, said.array_length, number, said.scattered)
        return TileType(kind.get_shape(), kind.element_type, TileAttr.new(form))
    return None
