"""Subgroup to lane: parts of matrices in shared memory.

Part of :mod:`tilewright.passes.xegpu.subgroup_distribute`. Registers that lie side by side in memory are one access: a
run along a row, or, where the matrix lies column by column (xegpu-slm-layout), a run down the lane's column.
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import (
    VectorType,
)
from xdsl.ir import SSAValue

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.xegpu.types import element_bits
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.integers import is_multiple
from tilewright.passes.xegpu.fragments import Fragment, Register, element_of
from tilewright.passes.xegpu.lane_scatter import LaneScatter
from tilewright.passes.xegpu.slm_layout import (
    ACCESS_BITS,
    column_run,
    is_panel,
    message_rows,
    row_run,
)


class LaneMatrix(LaneScatter):
    """Handlers of load_matrix and store_matrix."""

    # --- Shared matrices ---------------------------------------------------------------------------------

    def matrix_places(
        self, op: xegpu.MatrixAccess, layout: ly.Layout
    ) -> tuple[list[list[Index]], int]:
        """Offsets of each register's element in its matrix, and how many registers are one access."""
        desc = op.desc
        given = op.mixed_offsets
        offsets: list[Index] = [self.env[v] if isinstance(v, SSAValue) else v for v in given]
        lead = len(offsets) - layout.rank
        lane = layout.at(lane=np.arange(self.lanes))
        register = layout.at(register=np.arange(layout.registers))
        firsts: list[Index] = [
            offset
            if n < lead
            else self.plus(offset, self.index_table([int(x) for x in lane[n - lead]]))
            for n, offset in enumerate(offsets)
        ]
        places = [
            [
                first if n < lead else self.plus(first, int(register[n - lead][r]))
                for n, first in enumerate(firsts)
            ]
            for r in range(layout.registers)
        ]
        bits = element_bits(desc.element_type)
        block = desc.block
        size = min(row_run(layout), ACCESS_BITS // bits) if desc.stride[-1] == 1 else 1
        while size > 1:
            rows = all(s % size == 0 for s in desc.stride[:-1])
            if is_multiple(given[-1], size) and rows and not (block and block[-1] % size):
                break
            size //= 2
        return places, size

    def column_places(
        self, op: xegpu.MatrixAccess, layout: ly.Layout
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
        run = column_run(layout, self.lanes)
        if desc.stride[0] == 1:
            most = ACCESS_BITS // element_bits(desc.element_type)
            size = min(run, block[0] & -block[0], most)
        elif is_panel(desc, self.lanes) and is_multiple(given[1], self.lanes):
            size = message_rows(self.owners.xe, op, run)
        else:
            return None
        while size > 1 and not is_multiple(given[0], size):
            size //= 2
        if size < 2:
            return None
        offsets: list[Index] = [self.env[v] if isinstance(v, SSAValue) else v for v in given]
        rows, columns = layout.at(register=np.arange(layout.registers))
        places = [
            [self.plus(offsets[0], int(row)), self.plus(offsets[1], int(column))]
            for row, column in zip(rows, columns, strict=True)
        ]
        return places, size

    def load_matrix(self, op: xegpu.LoadMatrixOp) -> None:
        if not isinstance(op.value.type, VectorType):
            self.keep(op)
            return
        layout, element = self.owners.layout(op.value), element_of(op.value)
        down = self.column_places(op, layout)
        places, size = down or self.matrix_places(op, layout)
        matrix = self.env[op.mem_desc]
        kind = VectorType(element, [size]) if size > 1 else element  # pyright: ignore
        registers: list[Register] = []
        for first in range(0, layout.registers, size):
            made = self.add(
                xegpu.LoadMatrixOp(matrix, places[first], kind, subgroup_block_io=down is not None)
            )
            registers += [(made, n) for n in range(size)]
        self.give(op.value, Fragment(layout, element, tuple(registers)))

    def store_matrix(self, op: xegpu.StoreMatrixOp) -> None:
        if not isinstance(op.value.type, VectorType):
            self.alone(op)
            return
        value = self.owned(op.value, self.owners.layout(op.value))
        layout = value.layout
        down = self.column_places(op, layout)
        places, size = down or self.matrix_places(op, layout)
        matrix = self.env[op.mem_desc]
        # Lanes that hold the same element write the same number to the same place.
        for first in range(0, layout.registers, size):
            registers = value.registers[first : first + size]
            part = self.pick(registers) if size > 1 else self.scalar_of(registers[0])
            self.put(
                xegpu.StoreMatrixOp(part, matrix, places[first], subgroup_block_io=down is not None)
            )
