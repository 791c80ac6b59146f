"""workgroup-memory: memory that a workgroup's program makes for itself is shared memory of the workgroup.

    %m = memref.alloca() : memref<8x16xf32>                %m = memref.alloca() : memref<8x16xf32, 3>
    %t = xetile.init_tile %m[%i, 0]                   ->   %t = xetile.init_tile %m[%i, 0]
        : .. -> !xetile.tile<1x16xf32>                         : .. -> !xetile.tile<1x16xf32, .. memory_space = 3>

so that each of its subgroups reaches all of it; views and tiles of it say so, too.
Requires: a workgroup's program without reads and writes of vectors (vector-to-xetile). Guarantees: the same results; no
allocation in another memory. Raises UnsupportedError where a branch or loop makes it one with an array of the launch.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IntegerAttr, MemRefType, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.gpu.memory import SHARED_MEMORY, memory_space_number
from tilewright.dialects.xetile import TileAttr, TileType
from tilewright.passes.carried import LOOPS_AND_BRANCHES, carried_together

_ENDS = (scf.YieldOp, scf.ConditionOp)
_SHARED = IntegerAttr(SHARED_MEMORY, i64)


def workgroup_memory(kernel: gpu.FuncOp) -> None:
    """Puts memory that a workgroup's program makes into the memory that its subgroups share."""
    made = [op for op in kernel.walk() if isinstance(op, memref.AllocOp | memref.AllocaOp)]
    found: list[SSAValue] = [op.memref for op in made if _shared(op.memref.type) is not None]
    if not found:
        return
    while found:
        value = found.pop()
        if (kind := _shared(value.type)) is not None:
            for use in Rewriter.replace_value_with_new_type(value, kind).uses:
                found += _taken_on(use.operation, use.index)
    for op in kernel.walk():
        meetings = [op.operands[1:]] if isinstance(op, arith.SelectOp) else carried_together(op)
        if any(len({v.type for v in names}) > 1 for names in meetings):
            raise unsupported(
                op,
                f"{op.name} gives memory of the workgroup or an array of the launch",
                hint="read both, and choose what was read",
            )


def _taken_on(user: Operation, place: int) -> Sequence[SSAValue]:
    """The values that a user of memory makes of it, or hands it on as."""
    scope = user.parent_op() if isinstance(user, _ENDS) else user
    if not isinstance(scope, LOOPS_AND_BRANCHES):
        return user.results
    value = user.operands[place]
    groups = [names for names in carried_together(scope) if value in names]
    return [v for names in groups for v in names if isinstance(v.owner, Block) or v.owner is scope]


def _shared(kind: Attribute) -> Attribute | None:
    """The type of the same in shared memory; None where it is there, or no memory."""
    if isinstance(kind, MemRefType) and memory_space_number(kind) != SHARED_MEMORY:
        return MemRefType(kind.element_type, kind.shape, kind.layout, _SHARED)
    if isinstance(kind, TileType) and kind.memory_space != SHARED_MEMORY:
        said = kind.tile_attr or TileAttr()
        form = (said.sg_map, said.wg_map, said.order, said.array_length, _SHARED, said.scattered)
        return TileType(kind.get_shape(), kind.element_type, TileAttr.new(form))
    return None
