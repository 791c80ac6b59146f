"""load_matrix and store_matrix of a lane: shared local memory, addressed as the matrix' memory layout says.

    %v = xegpu.load_matrix %m[%r, %c] : !xegpu.mem_desc<32x64xf16>, index, index -> vector<8xf16>
    ->
    %v = mach.load (slm + 2 * (64 * %r + %c)) : !llvm.ptr<3> -> vector<8xf16>

A fragment lies in a row from the lane's own position; with `subgroup_block_io` it is a column, one row per
component, of lane l at column + l. Components at consecutive addresses move together. Rows of a panel that is as
wide as the subgroup (xegpu-slm-layout) follow each other: they are one 1-D block message, from the address of lane 0:

    xegpu.store_matrix %v, %m[%r, %c] {subgroup_block_io} : vector<8xf16>, !xegpu.mem_desc<256x32xf16, ..panels of 16>
    ->
    mach.call @xe_row_store_slm_16b_x8 (slm + 2 * (4096 * (%c / 16) + 16 * %r), %v)
"""

from __future__ import annotations

import numpy as np
from xdsl.dialects import gpu, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import mach, xegpu
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.xegpu.elements import matrix_address
from tilewright.frozen import frozen
from tilewright.passes.integers import is_multiple
from tilewright.passes.xegpu.slm_layout import is_panel, message_rows
from tilewright.targets.xe.building import Index, LaneBuilder, bits_of, count_of, element_of, words
from tilewright.targets.xe.context import Context
from tilewright.targets.xe.forms import RowMessage


@frozen
class SharedMatrix:
    """A shared matrix: the pointer to its first element."""

    base: SSAValue


@frozen
class _RowAccess:
    """A 1-D block message and the address of its first word."""

    form: RowMessage
    start: SSAValue


def create(b: LaneBuilder, op: xegpu.CreateMemDescOp) -> SharedMatrix:
    return SharedMatrix(b.base(op.source))


def _places(b: LaneBuilder, op: xegpu.MatrixAccess, kind: Attribute) -> tuple[list[Index], bool]:
    """Offsets in elements of a fragment's components, and whether they are consecutive."""
    at: list[Index] = list(op.mixed_offsets)
    count = count_of(kind)
    if isinstance(kind, VectorType) and kind.get_num_dims() > 1:
        if op.subgroup_block_io:
            raise b.refuse(f"a lane's part of block I/O is a scalar or one column, not {kind}")
        lead = len(at) - kind.get_num_dims()
        return [
            matrix_address(b, op.desc, [*at[:lead], *map(b.plus, at[lead:], place)])
            for place in np.ndindex(kind.get_shape())
        ], False
    if op.subgroup_block_io:
        lane = b.add(gpu.LaneIdOp())
        column = b.plus(at[-1], lane)
        if _runs_down(op, count):
            return [matrix_address(b, op.desc, [*at[:-1], column])], True
        return [
            matrix_address(b, op.desc, [*at[:-2], b.plus(at[-2], i), column]) for i in range(count)
        ], count == 1
    desc = op.desc
    row = desc.block[-1] if desc.block else desc.get_shape()[-1]
    start = folded(at[-1])
    fits = desc.block is None or (isinstance(start, int) and start % row + count <= row)
    if desc.stride[-1] == 1 and fits:
        return [matrix_address(b, op.desc, at)], True
    return [
        matrix_address(b, op.desc, [*at[:-1], b.plus(at[-1], i)]) for i in range(count)
    ], count == 1


def _runs_down(op: xegpu.MatrixAccess, count: int) -> bool:
    """Do `count` rows of a column lie side by side: in one block that is stored column by column?"""
    desc = op.desc
    height = desc.block[-2] if desc.block else desc.get_shape()[-2]
    return desc.stride[-2] == 1 and height % count == 0 and is_multiple(op.mixed_offsets[-2], count)


def _alignment(op: xegpu.MatrixAccess, count: int, size: int) -> int:
    """Bytes that divide the address of `count` components in a row."""
    desc = op.desc
    dim = -2 if op.subgroup_block_io else -1
    others = [s for n, s in enumerate(desc.stride) if n != len(desc.stride) + dim]
    inner = (*others, *((desc.block[dim],) if desc.block else ()))
    whole = count & (count - 1) == 0 and all(n % count == 0 for n in inner)
    known = whole and is_multiple(op.mixed_offsets[dim], count)
    return min(16, size * count) if known else size


def _row(
    b: LaneBuilder, op: xegpu.LoadMatrixOp | xegpu.StoreMatrixOp, matrix: SharedMatrix, s: Context
) -> _RowAccess | None:
    """The block message that moves all components, and its address; None where there is none."""
    kind = op.value.type
    if not op.subgroup_block_io or not isinstance(kind, VectorType) or op.desc.block is None:
        return None
    count, bits = kind.element_count(), bits_of(kind.element_type)
    down, across = op.mixed_offsets
    if s.lanes != s.machine.lanes or not is_panel(op.desc, s.lanes):
        return None
    if not is_multiple(across, s.lanes) or message_rows(s.machine, op, count) != count:
        return None
    if not is_multiple(down, count):
        return None
    form = RowMessage("load" if isinstance(op, xegpu.LoadMatrixOp) else "store", bits, count, True)
    at = b.times(matrix_address(b, op.desc, [down, across]), bits // 8)
    return _RowAccess(form, b.address(matrix.base, at))


def load(b: LaneBuilder, op: xegpu.LoadMatrixOp, matrix: SharedMatrix, s: Context) -> SSAValue:
    kind = op.value.type
    if (row := _row(b, op, matrix, s)) is not None:
        form = row.form
        loaded = b.call(form.name, [row.start], [words(form.count, form.bits)]).results[0]
        return loaded if loaded.type == kind else b.add(vector.BitcastOp(loaded, kind))
    element = element_of(kind)
    size = bits_of(element) // 8
    offsets, together = _places(b, op, kind)
    pointers = [b.address(matrix.base, b.times(o, size)) for o in offsets]
    if together:
        aligned = _alignment(op, count_of(kind), size)
        return b.add(mach.LoadOp(pointers[0], kind, alignment=aligned))
    return b.gathered([b.add(mach.LoadOp(p, element, alignment=size)) for p in pointers], kind)


def store(b: LaneBuilder, op: xegpu.StoreMatrixOp, matrix: SharedMatrix, s: Context) -> None:
    kind = op.value.type
    if (row := _row(b, op, matrix, s)) is not None:
        value = b.as_words(op.value, row.form.count, row.form.bits)
        b.call(row.form.name, [row.start, value])
        return
    size = bits_of(element_of(kind)) // 8
    offsets, together = _places(b, op, kind)
    pointers = [b.address(matrix.base, b.times(o, size)) for o in offsets]
    if together:
        aligned = _alignment(op, count_of(kind), size)
        b.insert(mach.StoreOp(op.value, pointers[0], alignment=aligned))
        return
    for i, pointer in enumerate(pointers):
        b.insert(mach.StoreOp(b.component(op.value, i), pointer, alignment=size))
