"""Matrices in shared memory: load_matrix and store_matrix of blocks, of runs, and of the lanes' columns.

The address of an element is `layout.mem_layout`'s: known numbers where the offsets are, else a sum over the digits of
the coordinates (a blocked matrix's address is no linear function of them).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects import mach, xegpu
from tilewright.dialects.xegpu import distribution
from tilewright.targets.emu import values as v
from tilewright.targets.emu.blocks import Numbers, element_type
from tilewright.targets.emu.builder import element_of, index, shape_of, size_of, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import memory
from tilewright.targets.emu.places import Place


@lowers("xegpu.create_mem_desc")
def create_mem_desc(low: Lowering, op: xegpu.CreateMemDescOp) -> None:
    m = memory(low, op.source)
    place = Place(low).plus(m.offset)
    if not place.shared or m.lane is not None:
        raise low.refuse("memory that differs between lanes")
    base = low.b.plus(m.base, low.b.times(place.base, size_of(m.element)))
    low.env[op.results[0]] = v.Matrix(base)


def _places(low: Lowering, op: xegpu.MatrixAccess, given: tuple[int, ...]) -> list[Numbers]:
    """Coordinates in the accessed block of each element [*given] or [*given, lanes], one array per dimension.

    A vector of the matrix' rank is a block. A shorter one is a lane's: with subgroup_block_io the lanes own one
    column each of the block's rows, otherwise its elements lie in a row from the lane's own offset.
    """
    rank, lanes = len(op.desc.get_shape()), low.lanes
    owned = op.ownership
    shape = given if low.lanes == 1 else (*given, lanes)
    if len(given) == rank:
        grids = np.meshgrid(*(np.arange(n) for n in given), indexing="ij")
        if low.lanes > 1:
            if isinstance(owned, xegpu.SgMapAttr):
                raise low.refuse("fragments of a matrix by sg_map")
            grids = [np.broadcast_to(g[..., None], shape) for g in grids]
        return [np.ascontiguousarray(g) for g in grids]
    run = np.arange(prod(given)).reshape(given)
    if low.lanes > 1:
        run = np.broadcast_to(run[..., None], shape)
    zero = np.zeros(shape, np.int64)
    if op.subgroup_block_io is None:
        return [*([zero] * (rank - 1)), run]
    lane = np.broadcast_to(np.arange(lanes), shape)
    return [*([zero] * (rank - 2)), run, lane]


def _addresses(
    low: Lowering, op: xegpu.MatrixAccess, given: tuple[int, ...]
) -> tuple[SSAValue, tuple[int, ...]]:
    """Byte addresses [*shape] of the elements that the value has."""
    b = low.b
    desc = op.desc
    matrix = low.env[op.operands[op.desc_operand]]
    assert isinstance(matrix, v.Matrix)
    size = size_of(element_type(low, desc.element_type))
    places = _places(low, op, given)
    shape = places[0].shape or (1,)
    kind = vec(index, *shape)
    coordinates: list[SSAValue | Numbers] = []
    for number, place in zip(op.mixed_offsets, places, strict=True):
        place = place.reshape(shape)
        if isinstance(number, int):
            coordinates.append(place + number)
            continue
        found = low.plain(number)
        wide = low.wide_of(found) if low.lanes > 1 else low.uniform(number)
        wide = b.broadcast(wide, kind)
        coordinates.append(b.add(arith.AddiOp(wide, b.dense(kind, place.reshape(-1).tolist()))))
    total = _memory_address(low, distribution.memory(desc), coordinates, kind)
    many = b.add(arith.MuliOp(total, b.constant(kind, size))) if size > 1 else total
    return b.add(arith.AddiOp(many, b.broadcast(b.idx(matrix.base), kind))), shape


def _memory_address(
    low: Lowering,
    layout: ly.Layout,
    coordinates: Sequence[SSAValue | Numbers],
    kind: VectorType,
) -> SSAValue:
    """Element address: the sum of the layout's memory digits."""
    b = low.b
    if all(isinstance(c, np.ndarray) for c in coordinates):
        known = np.asarray(layout.address(*coordinates)).reshape(-1)  # pyright: ignore
        return b.dense(kind, known.tolist())
    total: SSAValue | None = None
    extents = layout.shape
    for digit in layout.digits:
        if digit.axis is not ly.Axis.MEMORY or digit.dim is None:
            continue
        given = coordinates[digit.dim]
        part = b.dense(kind, given.reshape(-1).tolist()) if isinstance(given, np.ndarray) else given
        if digit.stride > 1:
            part = b.add(arith.DivUIOp(part, b.constant(kind, digit.stride)))
        if digit.stride * digit.size < extents[digit.dim]:
            part = b.add(arith.RemUIOp(part, b.constant(kind, digit.size)))
        if digit.weight > 1:
            part = b.add(arith.MuliOp(part, b.constant(kind, digit.weight)))
        total = part if total is None else b.add(arith.AddiOp(total, part))
    return b.zeros(kind) if total is None else total


def _mask(low: Lowering, shape: tuple[int, ...]) -> SSAValue:
    from xdsl.dialects.builtin import i1

    kind = vec(i1, *shape)
    if low.mask is not None and low.lanes > 1:
        return low.b.broadcast(low.mask, kind)
    return low.b.constant(kind, 1)


@lowers("xegpu.load_matrix")
def load_matrix(low: Lowering, op: xegpu.LoadMatrixOp) -> None:
    b = low.b
    given = shape_of(op.value.type)
    element = element_type(low, element_of(op.value.type))
    addresses, shape = _addresses(low, op, given)
    zero = b.zeros(vec(element, *shape))
    found = b.add(mach.GatherOp(b.pointer(0), addresses, _mask(low, shape), zero))
    wanted = given if low.lanes == 1 else (*given, low.lanes)
    low.set(op.value, b.shape(found, *wanted) if wanted else b.extract(found, 0))


@lowers("xegpu.store_matrix")
def store_matrix(low: Lowering, op: xegpu.StoreMatrixOp) -> None:
    b = low.b
    addresses, shape = _addresses(low, op, shape_of(op.value.type))
    value = b.shape(low.wide(op.value), *shape)
    b.put(mach.ScatterOp(value, b.pointer(0), addresses, _mask(low, shape)))


@lowers("xegpu.convert_layout")
def convert_layout(low: Lowering, op: xegpu.ConvertLayoutOp) -> None:
    """The value is unchanged; at lane level it moves where the maps differ (RFC)."""
    value = low.env[op.source]
    low.env[op.result] = value
    if low.lanes == 1 or not isinstance(value, v.Varying):
        return
    source, target = op.input_layout, op.target_layout
    if source is None or target is None or source == target:
        return
    raise low.refuse("between lanes: the whole value's shape is not known from a fragment")


@lowers("xegpu.truncf")
def truncf(low: Lowering, op: Operation) -> None:
    from tilewright.targets.emu.products import narrow

    value = low.wide(op.operands[0])
    element = element_type(low, element_of(op.results[0].type))
    low.set(op.results[0], narrow(low.b, value, element))
