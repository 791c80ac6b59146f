"""Subgroup to lane: parts of matrices in shared memory.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. Registers that lie side by side in memory are one access: a
run along a row, or, where the matrix lies column by column (xegpu-slm-layout), a run down the lane's column.
"""

from __future__ import annotations

from xdsl.dialects.builtin import VectorType

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xetile.assembly import Index
from tilewright.layout.memory import run_along
from tilewright.passes.integers import is_multiple
from tilewright.passes.xegpu.lane_scatter import alone
from tilewright.passes.xegpu.lanes import LaneProgram, rule
from tilewright.passes.xegpu.lazy_registers import LaneFragment, Register
from tilewright.passes.xegpu.slm_layout import ACCESS_BITS, column_run, is_panel, message_rows

# --- Shared matrices ---------------------------------------------------------------------------------


def matrix_places(
    d: LaneProgram, op: xegpu.MatrixAccess, layout: ly.Layout
) -> tuple[list[list[Index]], int]:
    """Offsets of each register's element in its matrix, and how many registers are one access."""
    desc = op.desc
    given = op.mixed_offsets
    offsets = d.numbers(given)
    lead = len(offsets) - layout.rank
    lane = layout.lane_starts
    firsts: list[Index] = [
        offset if n < lead else d.plus(offset, d.index_table([int(x) for x in lane[n - lead]]))
        for n, offset in enumerate(offsets)
    ]
    places = [
        d.shifted(firsts, list(map(int, steps)))
        for steps in zip(*layout.register_steps, strict=True)
    ]
    bits = element_bits(desc.element_type)
    block = desc.block
    size = min(run_along(layout, -1), ACCESS_BITS // bits) if desc.stride[-1] == 1 else 1
    while size > 1:
        rows = all(s % size == 0 for s in desc.stride[:-1])
        if is_multiple(given[-1], size) and rows and not (block and block[-1] % size):
            break
        size //= 2
    return places, size


def column_places(
    d: LaneProgram, op: xegpu.MatrixAccess, layout: ly.Layout
) -> tuple[list[list[Index]], int] | None:
    """Offsets of runs down the lanes' columns and their length, where the matrix lies so; else None.

    Column by column they are a lane's own, in panels as wide as the subgroup they are rows of a block message.
    The offsets are those of lane 0: the access is one of the subgroup's (`subgroup_block_io`).
    """
    desc = op.desc
    block = desc.block
    if layout.rank != 2 or len(desc.get_shape()) != 2 or block is None:
        return None
    given = op.mixed_offsets
    run = column_run(layout, d.lanes)
    if desc.stride[0] == 1:
        most = ACCESS_BITS // element_bits(desc.element_type)
        size = min(run, block[0] & -block[0], most)
    elif is_panel(desc, d.lanes) and is_multiple(given[1], d.lanes):
        size = message_rows(d.owners.xe, op, run)
    else:
        return None
    while size > 1 and not is_multiple(given[0], size):
        size //= 2
    if size < 2:
        return None
    offsets = d.numbers(given)
    rows, columns = layout.register_steps
    places = [
        [d.plus(offsets[0], int(row)), d.plus(offsets[1], int(column))]
        for row, column in zip(rows, columns, strict=True)
    ]
    return places, size


@rule("xegpu.load_matrix")
def load_matrix(d: LaneProgram, op: xegpu.LoadMatrixOp) -> None:
    if not isinstance(op.value.type, VectorType):
        d.keep(op)
        return
    layout, element = d.owners.layout(op.value), element_of(op.value.type)
    down = column_places(d, op, layout)
    places, size = down or matrix_places(d, op, layout)
    matrix = d.env[op.mem_desc]
    kind = VectorType(element, [size]) if size > 1 else element  # pyright: ignore
    registers: list[Register] = []
    for first in range(0, layout.registers, size):
        made = d.add(
            xegpu.LoadMatrixOp(matrix, kind, places[first], subgroup_block_io=down is not None)
        )
        registers += [(made, n) for n in range(size)]
    d.give(op.value, LaneFragment(layout, element, tuple(registers)))


@rule("xegpu.store_matrix")
def store_matrix(d: LaneProgram, op: xegpu.StoreMatrixOp) -> None:
    if not isinstance(op.value.type, VectorType):
        alone(d, op)
        return
    value = d.owned(op.value, d.owners.layout(op.value))
    layout = value.layout
    down = column_places(d, op, layout)
    places, size = down or matrix_places(d, op, layout)
    matrix = d.env[op.mem_desc]
    # Lanes that hold the same element write the same number to the same place.
    for first in range(0, layout.registers, size):
        registers = value.registers[first : first + size]
        part = d.together(registers)
        d.put(xegpu.StoreMatrixOp(part, matrix, places[first], subgroup_block_io=down is not None))
