"""Which products a warpgroup can do: types, shapes, where operands lie. Shared by the passes that prepare them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import gcd, prod

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright import dtypes
from tilewright.dialects import stage, xetile
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.nesting import enclosing
from tilewright.dialects.stage.products import vector_of
from tilewright.dialects.stage.types import SWIZZLES
from tilewright.dialects.upstream.vector import InterleaveOp, TransposeOp
from tilewright.passes.carried import operands_of, reached
from tilewright.uarch.base import Machine, MatrixInstruction
from tilewright.uarch.nvidia import LANES, LINE, WARPGROUP, WGMMA_ROWS

BUFFERS = 2
"""Panels of a warpgroup: one is written while the copy engine takes the other."""
MOST_ACCUMULATORS = {1: 192, 2: 192, 3: 96}
"""Registers of a thread that accumulators of one product may take, by warpgroups that compute."""


TRANSPOSES = xetile.TransposeOp | TransposeOp


def untransposed(value: SSAValue) -> tuple[SSAValue, bool]:
    """What a value is a view of, and whether a transposed one."""
    transposed = False
    while isinstance(value, OpResult) and isinstance(value.op, TRANSPOSES):
        value, transposed = value.op.operands[0], not transposed
    return value, transposed


def through_transposes(value: SSAValue) -> SSAValue:
    """What a value is a view of, transposed or not."""
    return untransposed(value)[0]


def users(value: SSAValue, also: Operation | None = None) -> list[Operation]:
    """The ops that use a value, transposed or not, or what the op `also` makes of it: these two themselves are none."""
    found: list[Operation] = []
    for use in value.uses:
        user = use.operation
        views = isinstance(user, TRANSPOSES) or user is also
        found += users(user.results[0], also) if views else [user]
    return found


def elementwise_operands(value: SSAValue) -> Sequence[SSAValue]:
    """The operands of the op that makes a value, where that is elementwise; nothing for any other."""
    op = value.owner
    return op.operands if isinstance(op, Operation) and is_elementwise_on_vectors(op) else ()


def sources(value: SSAValue, moved: bool = False) -> list[Operation]:
    """The ops that a value comes from element by element: its own, and those behind elementwise ops; with `moved` also
    behind those that move whole tiles: transposes, and two that alternate."""

    def behind(value: SSAValue) -> Sequence[SSAValue]:
        moves = moved and isinstance(value.owner, TRANSPOSES | InterleaveOp)
        return operands_of(value) if moves else elementwise_operands(value)

    owners = dict.fromkeys(each.owner for each in reached([value], behind))
    return [op for op in owners if isinstance(op, Operation)]


def instruction_for(
    machine: Machine, a: VectorType, b: VectorType, c: VectorType
) -> MatrixInstruction | None:
    """The warpgroup instruction for these types; None if there is none."""
    wanted = tuple(dtypes.from_mlir(t.element_type).name for t in (a, b, c))
    return next((i for i in machine.matrix if i.subgroups > 1 and i.types == wanted), None)


def clocks(machine: Machine, product: stage.ProductIssueOp) -> float:
    """Clocks that a product keeps the matrix unit of a multiprocessor; 0 where they are not known."""
    types = (product.a.type, product.b.type, vector_of(product.result.type))
    found = instruction_for(machine, *types)
    if found is None or found.flops_per_cycle is None:
        return 0
    return 2 * prod(product.sizes) / found.flops_per_cycle


def warpgroups(function: gpu.FuncOp) -> int:
    """Warpgroups that share the rows of every product."""
    return warpgroups_of([m for op in function.walk() if (m := _rows(op)) is not None])


def warpgroups_of(rows: Sequence[int]) -> int:
    """Warpgroups that share products of so many rows: two where all are multiples of 128, three where of 192."""
    tiles, rest = divmod(gcd(*rows), WGMMA_ROWS)
    if rest or not tiles:
        return 1
    return 2 if tiles % 2 == 0 else 3 if tiles % 3 == 0 else 1


def panel_line(row: int) -> int | None:
    """Bytes of a panel's lines for rows of so many bytes; None where no swizzle fits them."""
    return next((n for n in reversed(SWIZZLES) if n and row % n == 0), None)


@cache
def panel_of(columns: int, itemsize: int, transpose: bool) -> tuple[int, int] | None:
    """Lines, and bytes of a line, of the panels through which warpgroups store sums of so many columns; None where
    they cannot. Transposed, columns are lines, and a warpgroup's 64 rows one line, or two of 32 bits each."""
    if itemsize not in (2, 4):
        return None
    if transpose:
        lines = [n for n in range(8, LINE // itemsize + 1, 8) if columns % n == 0]
        return (lines[-1], WGMMA_ROWS * itemsize) if lines else None
    line = panel_line(columns * itemsize)
    return None if line is None else (WGMMA_ROWS, line)


def _rows(op: Operation) -> int | None:
    if isinstance(op, stage.ProductIssueOp):
        return op.sizes[0]
    if isinstance(op, xetile.TileMmaOp) and isinstance(op.result.type, VectorType):
        return op.result.type.get_shape()[0]
    return None


def unsuited(op: xetile.TileMmaOp, machine: Machine, groups: int = 0) -> str | None:
    """Why no warpgroup instruction can do a product, wherever its operands lie; None if one can. `groups`: the
    kernel's warpgroups, where they are known."""
    a, b, c = op.a.type, op.b.type, op.result.type
    found = instruction_for(machine, a, b, c)
    if found is None:
        return f"no instruction multiplies {a.element_type} to {c.element_type}"
    (m, k), n = a.get_shape(), b.get_shape()[1]
    if m % found.m[0] or k % found.k:
        return f"{m}x{k} is not cut into {found.m[0]}x{found.k}"
    if n not in found.n and n % found.n[-1]:
        return f"n = {n} is no size of the instruction"
    if not groups:
        function = enclosing(op, gpu.FuncOp)
        groups = warpgroups(function) if function is not None else 1
    threads = groups * WARPGROUP * LANES
    held = m * n // threads
    if held > MOST_ACCUMULATORS[groups]:
        return f"{m}x{n} is {held} accumulators of each of {threads} threads"
    return None


def shares_memory(function: gpu.FuncOp) -> bool:
    """Does a program leave something in shared memory, or meet in barriers? Then the next may not follow it at once."""
    return any(
        isinstance(op, memref.AllocOp | memref.AllocaOp | gpu.BarrierOp) for op in function.walk()
    )
