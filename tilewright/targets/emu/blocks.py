"""Blocks of a matrix: descriptors, block loads and stores, of whole blocks (subgroups) and of fragments (lanes).

    %v = xegpu.load_nd %t[%y, %x] : tensor_desc<8x16xf16> -> vector<8xf16>     (one of 16 lanes)
    ->  func.call @part(base, extents, strides, y, x) -> vector<8x16xf16>
        @part: if the block lies inside: 8 loads of vector<16xf16>, else 8 masked ones; rows distributed to registers

Which element each component is, `dialects.xegpu.elements` knows; here it is a permutation, which costs no instruction
where a register holds a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.folding import Made
from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.views import moved
from tilewright.dialects.xegpu import elements
from tilewright.dialects.xegpu.elements import Numbers
from tilewright.passes.xegpu.lane_elements import BOUNDLESS
from tilewright.targets.emu import values as v
from tilewright.targets.emu.builder import EmuBuilder, Idx, element_bytes, signless, vec
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import memory, shared_start

# Descriptors ----------------------------------------------------------------------------------------------------------


def element_type(low: Lowering, type: Attribute) -> Attribute:
    """The element as registers have it; whole bytes only."""
    if element_bits(type) < 8:
        raise low.refuse(f"elements of {element_bits(type)} bits")
    return signless(type)


@lowers("xegpu.create_nd_tdesc")
def create_nd_tdesc(low: Lowering, op: xegpu.CreateNdDescOp) -> None:
    element_type(low, op.tdesc.element_type)
    sizes, strides = (low.indices(x, "the shape") for x in (op.mixed_shape, op.mixed_strides))
    source = op.source
    if isinstance(source.type, MemRefType):
        m = memory(low, source)
        base = shared_start(low, source)
        sizes, strides = sizes or m.sizes, strides or m.strides
    else:
        base = low.index(source, "the base")
        sizes, strides = sizes or (BOUNDLESS,), strides or (1,)
    low.env[op.results[0]] = v.BlockDesc(base, sizes, strides)


def _here(low: Lowering, op: xegpu.BlockAccess) -> list[Idx]:
    """The base, sizes and strides of an access' descriptor, and its offsets, which count the innermost dimensions."""
    desc = low.env[op.operands[op.tdesc_operand]]
    assert isinstance(desc, v.BlockDesc)
    offsets = low.indices(op.mixed_offsets or [])
    outer = [0] * (len(desc.sizes) - len(offsets))
    return [desc.base, *desc.sizes, *desc.strides, *outer, *offsets]


# Rows -----------------------------------------------------------------------------------------------------------------


class BlockRows:
    """The rows of a block where they lie: addresses, and what of them is inside of the matrix."""

    def __init__(self, b: EmuBuilder, shape: tuple[int, ...], size: int, parts: Sequence[Idx]):
        self.b = b
        self.size = size
        self.base, *rest = parts
        rank = len(rest) // 3
        self.shape = (1,) * (rank - len(shape)) + shape
        self.sizes, self.strides, self.offsets = (
            rest[:rank],
            rest[rank : 2 * rank],
            rest[2 * rank :],
        )

    @property
    def width(self) -> int:
        return self.shape[-1]

    def whole(self) -> SSAValue:
        """i1: is the block inside, and its rows contiguous?"""
        b = self.b
        tests = [b.cmp("eq", self.strides[-1], 1)]
        for offset, extent, size in zip(self.offsets, self.shape, self.sizes, strict=True):
            tests += [b.cmp("sge", offset, 0), b.cmp("sle", b.plus(offset, extent), size)]
        return b.all_of(tests)

    def places(self) -> list[tuple[int, ...]]:
        """Coordinates in the block of the start of each row."""
        return list(np.ndindex(*self.shape[:-1]))

    def address(self, start: Idx, at: Sequence[Idx]) -> Idx:
        """The address of the element at coordinates from the one at `start`; those left out are 0."""
        bytes = (self.b.times(place, self.size) for place in at)
        return moved(start, self.strides, bytes, self.b)

    def columns(self) -> SSAValue:
        """The mask of the elements of any row whose column is inside."""
        b = self.b
        return b.within(b.plus(b.iota(self.width), self.offsets[-1]), self.sizes[-1])

    def inside(self, at: Sequence[int], columns: SSAValue) -> SSAValue:
        """The mask of a row's elements that are inside."""
        b = self.b
        rows = zip(at, self.offsets, self.sizes, strict=False)
        row = b.all_of([b.within(b.plus(offset, n), size) for n, offset, size in rows])
        return b.all_of([columns, row])

    def steps(self) -> SSAValue:
        """Bytes from a row's start to each of its elements, for any stride."""
        b = self.b
        return b.idx(b.times(b.iota(self.width), b.times(self.strides[-1], self.size)))

    def each(self, access: Callable[[int, Idx, Any, Any], Made]) -> list[SSAValue]:
        """What `access(number, address, mask, steps)` gives of each row: without a mask where all is inside; with
        steps (see there) only where they are not known to be 1."""
        b, origin = self.b, self.address(self.base, self.offsets)

        def rows(columns: SSAValue | None) -> list[SSAValue]:
            steps = None if columns is None or self.strides[-1] == 1 else self.steps()
            made: list[SSAValue] = []
            for n, at in enumerate(self.places()):
                mask = None if columns is None else self.inside(at, columns)
                made += access(n, self.address(origin, at), mask, steps) or ()
            return made

        return b.choose(self.whole(), lambda: rows(None), lambda: rows(self.columns()))

    def load(self, element: Attribute) -> SSAValue:
        """[rows, width]; 0 outside."""
        b, kind = self.b, vec(element, self.width)

        def row(n: int, address: Idx, mask: SSAValue, steps: SSAValue | None) -> Made:
            if steps is None:
                return [b.read(kind, address, None, mask)]
            return [b.gather(address, steps, mask, b.zeros(kind))]

        return b.stack(self.each(row))

    def store(self, data: SSAValue) -> None:
        b, flat = self.b, self.b.shape(data, len(self.places()), self.width)

        def row(n: int, address: Idx, mask: SSAValue, steps: SSAValue | None) -> None:
            if steps is None:
                b.write(b.extract(flat, n), address, None, mask)
            else:
                b.scatter(b.extract(flat, n), address, steps, mask)

        self.each(row)


@lowers("xegpu.load_nd")
def load_nd(low: Lowering, op: xegpu.LoadNdOp) -> None:
    low.together()
    element = element_type(low, op.tdesc.element_type)
    wide, numbers = elements.wide_shape(op.tdesc), elements.loaded(op, low.lanes)

    def make(b: EmuBuilder, parts: list[Idx]) -> list[SSAValue]:
        return [
            arrange(b, BlockRows(b, wide, element_bytes(element), parts).load(element), numbers)
        ]

    (value,) = low.b.shared(("load", wide, element, numbers), _here(low, op), make)
    low.set(op.value, value)


@lowers("xegpu.store_nd")
def store_nd(low: Lowering, op: xegpu.StoreNdOp) -> None:
    low.together()
    shape, element = op.tdesc.get_shape(), element_type(low, op.tdesc.element_type)
    numbers = elements.inverse(elements.stored(op, low.lanes), shape)

    def make(b: EmuBuilder, arguments: list[Any]) -> list[SSAValue]:
        data, *parts = arguments
        BlockRows(b, shape, element_bytes(element), parts).store(arrange(b, data, numbers))
        return []

    low.b.shared(("store", shape, numbers), [low.wide(op.value), *_here(low, op)], make)


def arrange(b: EmuBuilder, value: SSAValue, numbers: Numbers) -> SSAValue:
    """The value whose components are those of `value`, row-major, of the given numbers."""
    # Whole rows move as they are, which large tiles are compiled faster by; otherwise component by component.
    *_, width = shape_of_type(value.type)
    first, every = numbers.reshape(-1)[::width], np.arange(width)
    rows = np.add.outer(first, every).reshape(-1)[: numbers.size]
    if (first % width).any() or (numbers.reshape(-1) != rows).any():
        width, first = 1, numbers.reshape(-1)
    source = b.shape(
        value, prod(shape_of_type(value.type)) // width, *([width] if width > 1 else [])
    )
    return b.shape(b.shuffle(source, source, (first // width).tolist()), *numbers.shape)
