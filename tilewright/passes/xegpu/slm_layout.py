"""xegpu-slm-layout{target=pvc|bmg|dg2}: shared matrices lie so that a lane's registers lie side by side.

Requires: today's XeGPU at subgroup level. Guarantees: the same results; every matrix in shared memory that is only
accessed by load_matrix and store_matrix, whose values give a lane one column (dpas operands and accumulators), is
stored in blocks, column by column:

    %m = create_mem_desc %slm : memref<256x128xf16, 3> -> mem_desc<256x128xf16>
    ->
    %m = create_mem_desc %slm : .. -> mem_desc<256x128xf16, #mem_layout<stride = [1, 256], block = [8, 16]>>

A lane's 8 elements of a dpas operand are then 16 bytes in a row, neighbours lanes' fragments follow (no bank conflict),
and two or four rows of B lie together as VNNI asks for: one access instead of eight, and no packing.

A matrix on its way to a transposition is stored by lanes that own columns and loaded by lanes that own rows. It lies in
panels of as many columns as there are lanes, row by row: the rows of a panel follow each other, so that a 1-D block
message of the subgroup moves several, and a lane's part of a row is one access:

    %m = create_mem_desc %slm : .. -> mem_desc<256x32xf16, #mem_layout<stride = [32, 1], block = [256, 16]>>

Matrices with a layout of their own, of other uses, or with offsets that are not known to be multiples of the block
stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import NoneAttr
from xdsl.ir import Operation

from tilewright import layout as ly
from tilewright.dialects import xegpu
from tilewright.dialects.movement import is_vector, shape_of
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.gpu.memory import is_shared
from tilewright.dialects.xegpu.types import MemDescType
from tilewright.layout.memory import run_along
from tilewright.passes.emit import Before
from tilewright.passes.integers import is_multiple
from tilewright.passes.xegpu.ownership import OwnershipAnalysis
from tilewright.uarch.xe import XeMachine

ACCESS_BITS = 256
"""What one lane moves at once."""


def lay_out(kernel: gpu.FuncOp, xe: XeMachine) -> None:
    """Lays out shared matrices so that a lane's elements are contiguous."""
    shared = [
        op for op in kernel.walk() if isinstance(op, memref.AllocOp) and is_shared(op.memref.type)
    ]
    if not shared:
        return
    owners = OwnershipAnalysis(kernel, xe, whole=False)
    for alloc in shared:
        descs = [use.operation for use in alloc.memref.uses]
        accesses = _accesses(descs)
        if not accesses:
            continue
        height, width = accesses[0].desc.get_shape()
        stride, block = [1, height], _block(accesses, owners)
        if block is None:
            stride, block = [width, 1], _panel(accesses, owners)
        if block is None:
            continue
        for desc in descs:
            assert isinstance(desc, xegpu.CreateMemDescOp)
            old = desc.desc
            layout = xegpu.MemLayoutAttr(stride=stride, block=block)
            kind = MemDescType(old.get_shape(), old.element_type, layout)
            new = xegpu.CreateMemDescOp(desc.source, kind)
            at = Before(desc)
            at.replace(at.add(new))


def _accesses(descs: Sequence[Operation]) -> list[xegpu.LoadMatrixOp | xegpu.StoreMatrixOp]:
    """All accesses of a memory; none where it is used in another way, or seen in several shapes."""
    found: list[xegpu.LoadMatrixOp | xegpu.StoreMatrixOp] = []
    kinds: set[MemDescType] = set()
    for desc in descs:
        if not isinstance(desc, xegpu.CreateMemDescOp) or len(desc.desc.get_shape()) != 2:
            return []
        if not isinstance(desc.desc.mem_layout, NoneAttr):
            return []
        kinds.add(desc.desc)
        for use in desc.mem_desc.uses:
            op = use.operation
            if not isinstance(op, (xegpu.LoadMatrixOp, xegpu.StoreMatrixOp)):
                return []
            if not is_vector(op.value) or len(shape_of(op.value)) != 2:
                return []
            found.append(op)
    return found if len(kinds) == 1 else []


def _block(
    accesses: Sequence[xegpu.LoadMatrixOp | xegpu.StoreMatrixOp], owners: OwnershipAnalysis
) -> tuple[int, int] | None:
    """Rows and columns of the blocks in which every access' lanes find runs; None where there are none."""
    lanes = owners.lanes
    desc = accesses[0].desc
    height, width = desc.get_shape()
    most = ACCESS_BITS // element_bits(desc.element_type)
    runs = [min(most, column_run(owners.layout(access.value), lanes)) for access in accesses]
    if min(runs) < 2 or width % lanes:
        return None
    rows = max(runs)
    for access, run in zip(accesses, runs, strict=True):
        down, across = access.mixed_offsets
        if not is_multiple(down, run) or not is_multiple(across, lanes):
            return None
    if height % rows:
        return None
    return rows, lanes


def _panel(
    accesses: Sequence[xegpu.LoadMatrixOp | xegpu.StoreMatrixOp], owners: OwnershipAnalysis
) -> tuple[int, int] | None:
    """Rows and columns of the panels which some accesses take by rows of the subgroup and the others by rows of a
    lane; None where an access does neither, or all do the same."""
    lanes = owners.lanes
    height, width = accesses[0].desc.get_shape()
    bits = element_bits(accesses[0].desc.element_type)
    ways: set[str] = set()
    for access in accesses:
        layout = owners.layout(access.value)
        down, across = access.mixed_offsets
        run = column_run(layout, lanes)
        if run >= 2 and message_rows(owners.xe, access, run) >= 2:
            if not is_multiple(down, 2) or not is_multiple(across, lanes):
                return None
            ways.add("subgroup")
        elif is_multiple(across, lanes) and run_along(layout, -1) * bits >= 32:
            ways.add("lane")
        else:
            return None
    return (height, lanes) if len(ways) == 2 and width % lanes == 0 else None


def is_panel(desc: MemDescType, lanes: int) -> bool:
    """Does a matrix lie in panels of `lanes` columns, row by row?"""
    return desc.stride[-1] == 1 and desc.block == (desc.get_shape()[0], lanes)


def message_rows(xe: XeMachine, access: xegpu.MatrixAccess, most: int) -> int:
    """Rows of a panel that one 1-D block message of the machine moves, at most `most`; 0 where it has none."""
    bits = element_bits(access.desc.element_type)
    form = xe.row_form("load" if isinstance(access, xegpu.LoadMatrixOp) else "store", bits)
    if form is None:
        return 0
    row = xe.lanes * bits // 8
    fits = [n for n in form.counts if n <= most and n * row % form.shared_align == 0]
    return max(fits, default=0)


def column_run(layout: ly.Layout, lanes: int) -> int:
    """Registers that hold consecutive rows, where every lane has one column at a time; 1 where not."""
    if layout.rank != 2 or layout.lanes != lanes:
        return 1
    row, column = layout.lane_starts
    if row.any() or (column != np.arange(lanes)).any() or (layout.register_steps[1] % lanes).any():
        return 1
    return run_along(layout, 0)
