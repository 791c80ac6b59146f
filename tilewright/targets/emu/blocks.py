"""Blocks of a matrix: descriptors, block loads and stores, of whole blocks (subgroups) and of fragments (lanes).

    %v = xegpu.load_nd %t[%y, %x] : tensor_desc<8x16xf16> -> vector<8xf16>     (one of 16 lanes)
    ->  func.call @part(base, extents, strides, y, x) -> vector<8x16xf16>
        @part: if the block lies inside: 8 loads of vector<16xf16>, else 8 masked ones; rows dealt to registers

Who owns which element is `tilewright.layout`'s; here it is a permutation of components, which costs no instruction
where a register holds a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue

from tilewright import layout as ly
from tilewright.dialects import mach, xegpu
from tilewright.dialects.xegpu import distribution
from tilewright.dialects.xegpu.compute import packing_factor
from tilewright.dialects.xegpu.rules_block import full_load_shape, whole_shapes
from tilewright.dialects.xegpu.types import element_bits
from tilewright.layout.blocks import lane_map
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import Builder, Idx, index, shape_of, signless, size_of, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import memory
from tilewright.targets.emu.places import Place

BOUNDLESS = 2**62
"""The extent of a base of which only the address is known."""


# Descriptors ----------------------------------------------------------------------------------------------------------


def element_type(low: Lowering, type: Attribute) -> Attribute:
    """The element as registers have it; whole bytes only."""
    if element_bits(type) < 8:
        raise low.refuse(f"elements of {element_bits(type)} bits")
    return signless(type)


@lowers("xegpu.create_nd_tdesc")
def create_nd_tdesc(low: Lowering, op: xegpu.CreateNdDescOp) -> None:
    size = size_of(element_type(low, op.tdesc.element_type))
    sizes, strides = (low.indices(x, "the shape") for x in (op.mixed_shape, op.mixed_strides))
    source = op.source
    if isinstance(source.type, MemRefType):
        m = memory(low, source)
        if m.lane is not None:
            raise low.refuse("a block of a lane's own memory")
        place = Place(low).plus(m.offset)
        if not place.shared:
            raise low.refuse("the place of its array differs between lanes")
        base = low.b.plus(m.base, low.b.times(place.base, size))
        sizes, strides = sizes or m.sizes, strides or m.strides
    else:
        base = low.index(source, "the base")
        sizes, strides = sizes or (BOUNDLESS,), strides or (1,)
    offsets = low.indices(op.mixed_offsets)
    offsets = (*([0] * (len(sizes) - len(offsets))), *offsets)
    low.env[op.results[0]] = v.Block(base, sizes, strides, offsets)


def moved(low: Lowering, desc: v.Block, deltas: Sequence[Idx]) -> v.Block:
    lead = len(desc.offsets) - len(deltas)
    inner = (low.b.plus(o, d) for o, d in zip(desc.offsets[lead:], deltas, strict=True))
    return v.Block(desc.base, desc.sizes, desc.strides, (*desc.offsets[:lead], *inner))


@lowers("xegpu.update_nd_offset")
def update_nd_offset(low: Lowering, op: xegpu.UpdateNdOffsetOp) -> None:
    desc = low.env[op.tensor_desc]
    assert isinstance(desc, v.Block)
    low.env[op.results[0]] = moved(low, desc, low.indices(op.mixed_offsets))


@lowers("xegpu.prefetch_nd", "xegpu.prefetch", "xegpu.compile_hint")
def prefetch(low: Lowering, op: xegpu.PrefetchNdOp) -> None:
    """Caches are not modelled."""


def _here(low: Lowering, op: xegpu.BlockAccess) -> v.Block:
    desc = low.env[op.operands[op.tdesc_operand]]
    assert isinstance(desc, v.Block)
    offsets = op.mixed_offsets
    return desc if offsets is None else moved(low, desc, low.indices(offsets))


# What of a block is whose ---------------------------------------------------------------------------------------------

Numbers = np.ndarray
"""Of each component of a value, the element of the block that it is, row-major."""


def _arranged(op: xegpu.LoadNdOp, blocks: Numbers) -> Numbers:
    """Blocks as load_nd gives them: packed, or transposed in units of the bit width."""
    shape = op.tdesc.get_shape()
    lead = blocks.shape[: blocks.ndim - len(shape)]
    base, outer = len(lead), tuple(range(len(lead)))
    result = full_load_shape(op)
    if op.packed is not None and len(result) == 3 and len(shape) == 2:
        return packed_rows(blocks, result[2])
    if not op.transposes or op.permutation is None:
        return blocks
    unit = op.together
    if unit == 1:
        return blocks.transpose(*outer, *(base + d for d in op.permutation))
    split = blocks.reshape(*lead, shape[0], shape[1] // unit, unit)
    return split.transpose(*outer, base + 1, base, base + 2).reshape(*lead, *result)


def packed_rows(blocks: Numbers, factor: int) -> Numbers:
    """[.., K, N] -> [.., K/p, N, p] (VNNI)."""
    *lead, k, n = blocks.shape
    return blocks.reshape(*lead, k // factor, factor, n).swapaxes(-1, -2)


def lane_numbers(blocks: Numbers, layout: ly.Layout) -> Numbers:
    """[registers, lanes] of a block dealt by a layout."""
    table = [np.asarray(t).reshape(-1, layout.lanes, layout.registers)[0] for t in layout.table()]
    return blocks[tuple(table)].T


def load_numbers(low: Lowering, op: xegpu.LoadNdOp, blocks: Numbers) -> Numbers:
    """[*given] of a whole block, [*given, lanes] of fragments, of the block [array_length,] rows, columns."""
    tdesc, given = op.tdesc, shape_of(op.value.type)
    if given in whole_shapes(op):  # all of it, in every lane
        return _arranged(op, blocks).reshape(given)
    if low.lanes == 1:  # the early text's packed load without `packed`
        return packed_rows(blocks, given[-1]).reshape(given)
    fragment_fits(low, op, given)
    ownership = op.ownership
    if isinstance(ownership, xegpu.SgMapAttr):
        layout = distribution.distribution(ownership).over(blocks.shape)
        return lane_numbers(blocks, layout).reshape(*given, low.lanes)
    unit, packed, bits = 0, 1, element_bits(tdesc.element_type)
    if op.packed is not None:
        packed = packing_factor(tdesc.element_type)
    elif op.transposes:
        unit = op.together
        blocks = _arranged(op, blocks)
    layout = dealt(low, blocks.shape, bits, unit, packed)
    return lane_numbers(blocks, layout).reshape(*given, low.lanes)


def fragment_fits(low: Lowering, op: xegpu.BlockAccess, given: tuple[int, ...]) -> None:
    total = prod(op.tdesc.get_shape()) * op.tdesc.array_length
    if total != prod(given) * low.lanes:
        raise low.refuse(
            f"a fragment of {prod(given)} elements of {op.tdesc} makes {total // prod(given)} lanes, "
            f"the kernel's subgroups have {low.lanes}"
        )


def dealt(
    low: Lowering, shape: Sequence[int], bits: int, unit: int = 0, packed: int = 1
) -> ly.Layout:
    """How a block of rows is dealt to the lanes."""
    try:
        lane_layout, lane_data = lane_map(shape, bits, low.lanes, unit, packed)
    except ly.LayoutError as error:
        raise low.refuse(str(error)) from None
    return ly.layout(lane_layout=lane_layout, lane_data=lane_data).over(shape)


# Rows -----------------------------------------------------------------------------------------------------------------


class Rows:
    """The rows of a block where they lie: addresses, and what of them is inside of the matrix."""

    def __init__(
        self, b: Builder, shape: tuple[int, ...], size: int, parts: Sequence[Idx], rank: int
    ):
        self.b = b
        self.size = size
        self.shape = (1,) * (rank - len(shape)) + shape
        self.base = parts[0]
        self.sizes = parts[1 : 1 + rank]
        self.strides = parts[1 + rank : 1 + 2 * rank]
        self.offsets = parts[1 + 2 * rank :]

    @property
    def width(self) -> int:
        return self.shape[-1]

    def whole(self) -> bool | SSAValue:
        """i1: is the block inside, and its rows contiguous?"""
        b = self.b
        test = b.test("eq", self.strides[-1], 1)
        for offset, extent, size in zip(self.offsets, self.shape, self.sizes, strict=True):
            test = b.both(test, b.test("sge", offset, 0))
            test = b.both(test, b.test("sle", b.plus(offset, extent), size))
        return test

    def places(self) -> list[tuple[int, ...]]:
        """Coordinates in the block of the start of each row."""
        return list(np.ndindex(*self.shape[:-1]))

    def origin(self) -> Idx:
        """The address of the block's first element."""
        b = self.b
        total: Idx = 0
        for offset, stride in zip(self.offsets, self.strides, strict=True):
            total = b.plus(total, b.times(offset, stride))
        return b.plus(self.base, b.times(total, self.size))

    def address(self, origin: Idx, at: Sequence[int]) -> Idx:
        """The address of a row."""
        b = self.b
        for place, stride in zip(at, self.strides, strict=False):
            if place:
                origin = b.plus(origin, b.times(stride, place * self.size))
        return origin

    def columns(self) -> SSAValue:
        """The mask of the elements of any row whose column is inside."""
        b, kind = self.b, vec(index, self.width)
        steps = b.dense(kind, list(range(self.width)))
        places = b.add(arith.AddiOp(b.broadcast(b.idx(self.offsets[-1]), kind), steps))
        limit = b.broadcast(b.idx(self.sizes[-1]), kind)
        above = b.add(arith.CmpiOp(places, b.zeros(kind), "sge"))
        return b.add(arith.AndIOp(above, b.add(arith.CmpiOp(places, limit, "slt"))))

    def inside(self, at: Sequence[int], columns: SSAValue) -> SSAValue:
        """The mask of a row's elements that are inside."""
        b = self.b
        row: bool | SSAValue = True
        for place, offset, size in zip(at, self.offsets, self.sizes, strict=False):
            here = b.plus(offset, place)
            row = b.both(row, b.both(b.test("sge", here, 0), b.test("slt", here, size)))
        if isinstance(row, bool) and row:
            return columns
        return b.add(arith.SelectOp(b.flag(row), columns, b.zeros(columns.type)))

    def steps(self) -> SSAValue:
        """Bytes from a row's start to each of its elements, for any stride."""
        b, kind = self.b, vec(index, self.width)
        step = b.broadcast(b.idx(b.times(self.strides[-1], self.size)), kind)
        return b.add(arith.MuliOp(b.dense(kind, list(range(self.width))), step))


def _call_parts(desc: v.Block) -> tuple[list[Idx], tuple[int | None, ...]]:
    """What a function for this block is given: constants are part of its name."""
    parts = [desc.base, *desc.sizes, *desc.strides, *desc.offsets]
    return parts, tuple(p if isinstance(p, int) else None for p in parts)


def _bound(known: tuple[int | None, ...], arguments: Sequence[SSAValue]) -> list[Idx]:
    rest = iter(arguments)
    return [next(rest) if n is None else n for n in known]


@lowers("xegpu.load_nd")
def load_nd(low: Lowering, op: xegpu.LoadNdOp) -> None:
    low.together()
    tdesc, desc = op.tdesc, _here(low, op)
    element = element_type(low, tdesc.element_type)
    shape, count = tdesc.get_shape(), tdesc.array_length
    wide = (*shape[:-1], shape[-1] * count)
    blocks = np.arange(prod(wide)).reshape(wide)
    if count > 1:
        blocks = np.moveaxis(blocks.reshape(*shape[:-1], count, shape[-1]), -2, 0)
    numbers = load_numbers(low, op, blocks)
    parts, known = _call_parts(desc)
    rank = len(desc.sizes)

    def make(b: Builder, arguments: list[SSAValue]) -> list[SSAValue]:
        rows = Rows(b, wide, size_of(element), _bound(known, arguments), rank)
        return [arrange(b, _load_rows(b, rows, element), numbers)]

    key = ("load", known, wide, element, rank, numbers.shape, numbers.tobytes())
    operands = [p for p in parts if not isinstance(p, int)]
    (value,) = low.b.shared(key, operands, make)
    low.set(op.value, value)


def _load_rows(b: Builder, rows: Rows, element: Attribute) -> SSAValue:
    """[rows, width] of a block; 0 outside."""
    kind, origin = vec(element, rows.width), rows.origin()

    def plain() -> list[SSAValue]:
        return [b.load(kind, rows.address(origin, at)) for at in rows.places()]

    def careful() -> list[SSAValue]:
        steps, zero = None if _is_one(rows.strides[-1]) else rows.steps(), b.zeros(kind)
        columns = rows.columns()
        found: list[SSAValue] = []
        for at in rows.places():
            address, mask = rows.address(origin, at), rows.inside(at, columns)
            if steps is None:
                found.append(b.add(mach.MaskedLoadOp(b.pointer(address), mask, zero)))
            else:
                found.append(b.gather(address, steps, mask, zero))
        return found

    many = b.when(rows.whole(), plain, careful)
    return b.stack(many)


def _is_one(stride: Idx) -> bool:
    return isinstance(stride, int) and stride == 1


def arrange(b: Builder, value: SSAValue, numbers: Numbers) -> SSAValue:
    """The value whose components are those of `value`, row-major, of the given numbers."""
    flat = shape_of(value.type)
    if numbers.size == prod(flat) and (numbers.reshape(-1) == np.arange(numbers.size)).all():
        return b.shape(value, *numbers.shape)
    # Whole rows move as they are; otherwise component by component.
    width = numbers.shape[-1]
    rows = numbers.reshape(-1, width)
    starts = rows[:, 0]
    if (
        flat[-1] == width
        and (starts % width == 0).all()
        and (rows == starts[:, None] + np.arange(width)).all()
    ):
        source = b.shape(value, prod(flat) // width, width)
        return b.shape(b.shuffle(source, source, (starts // width).tolist()), *numbers.shape)
    source = b.shape(value, prod(flat))
    return b.shape(b.shuffle(source, source, numbers.reshape(-1).tolist()), *numbers.shape)


@lowers("xegpu.store_nd")
def store_nd(low: Lowering, op: xegpu.StoreNdOp) -> None:
    low.together()
    tdesc, desc = op.tdesc, _here(low, op)
    element_type(low, tdesc.element_type)
    shape, given = tdesc.get_shape(), shape_of(op.value.type)
    value = low.wide(op.value)
    numbers = np.arange(prod(shape)).reshape(shape)
    if low.lanes > 1:
        fragment_fits(low, op, given)
        if isinstance(op.ownership, xegpu.SgMapAttr):
            layout = distribution.distribution(op.ownership).over(shape)
        else:
            layout = dealt(low, shape, element_bits(tdesc.element_type))
        numbers = inverse(lane_numbers(numbers, layout), shape)
    parts, known = _call_parts(desc)
    rank = len(desc.sizes)

    def make(b: Builder, arguments: list[SSAValue]) -> list[SSAValue]:
        data, *rest = arguments
        rows = Rows(b, shape, size_of(signless(tdesc.element_type)), _bound(known, rest), rank)
        _store_rows(b, rows, arrange(b, data, numbers))
        return []

    key = ("store", known, shape, value.type, rank, numbers.tobytes())
    low.b.shared(key, [value, *(p for p in parts if not isinstance(p, int))], make)


def inverse(numbers: Numbers, shape: Sequence[int]) -> Numbers:
    """Where in a value with components `numbers` each element of the block is."""
    flat = np.zeros(prod(shape), np.int64)
    flat[numbers.reshape(-1)] = np.arange(numbers.size)
    return flat.reshape(tuple(shape))


def _store_rows(b: Builder, rows: Rows, data: SSAValue) -> None:
    flat = b.shape(data, len(rows.places()), rows.width)
    values = [b.extract(flat, i) for i in range(len(rows.places()))]
    origin = rows.origin()

    def plain() -> list[SSAValue]:
        for at, value in zip(rows.places(), values, strict=True):
            b.store(value, rows.address(origin, at))
        return []

    def careful() -> list[SSAValue]:
        steps, columns = None if _is_one(rows.strides[-1]) else rows.steps(), rows.columns()
        for at, value in zip(rows.places(), values, strict=True):
            address, mask = rows.address(origin, at), rows.inside(at, columns)
            if steps is None:
                b.put(mach.MaskedStoreOp(value, b.pointer(address), mask))
            else:
                b.scatter(value, address, steps, mask)
        return []

    b.when(rows.whole(), plain, careful)
