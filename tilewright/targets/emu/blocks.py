"""What XeGPU's ops read and write: blocks, matrices in shared memory, and elements at an address of each lane.

    %v = xegpu.load_nd %t[%y, %x] : tensor_desc<8x16xf16> -> vector<8xf16>     (one of 16 lanes)
    ->  func.call @part(base, extents, strides, y, x) -> vector<8x16xf16>
        @part: if the block lies inside: 8 loads of vector<16xf16>, else 8 masked ones; rows distributed to registers

Which element of a whole block (of a subgroup) or of a fragment (of a lane) each component is, `dialects.xegpu.elements`
knows; here it is a permutation, which costs no instruction where a register holds a row.

The address of a matrix' element is `layout.mem_layout`'s: a sum over the digits of its coordinates (a blocked matrix's
address is no linear function of them).

At lane level a gather, scatter or atomic has a lane's own offset; at subgroup level offsets and mask are vectors over
the lanes. Both are lists of addresses here; elements outside of a memref's extent and lanes that the mask leaves out do
not happen: loads give all bits set for them, atomics 0. Scattered descriptors are offsets of the ops already
(`xegpu-upgrade`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects.builtin import MemRefType, i1
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
from tilewright.targets.emu.builder import (
    EmuBuilder,
    Idx,
    element_bytes,
    element_of,
    index,
    signless,
    vec,
)
from tilewright.targets.emu.lowering import Lowering, lowers
from tilewright.targets.emu.memory import atomic, memory, shared_start

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


# Matrices in shared memory --------------------------------------------------------------------------------------------


@lowers("xegpu.create_mem_desc")
def create_mem_desc(low: Lowering, op: xegpu.CreateMemDescOp) -> None:
    low.env[op.results[0]] = v.MatrixBase(shared_start(low, op.source))


def _matrix_access(
    low: Lowering,
    op: xegpu.MatrixAccess,
    given: tuple[int, ...],
    value: SSAValue | None,
    element: Attribute,
) -> list[SSAValue]:
    """Load, or store `value`: a function of the module for the matrix' type and the accessed shape."""
    b, desc = low.b, op.desc
    matrix = low.env[op.operands[op.tdesc_operand]]
    assert isinstance(matrix, v.MatrixBase)
    places = elements.matrix_places(op, given, low.lanes)
    shape = places[0].shape or (1,)
    offsets: list[SSAValue] = []
    for number in op.mixed_offsets:
        found = v.Uniform(b.idx(number)) if isinstance(number, int) else low.plain(number)
        wide = low.lanes > 1 and not isinstance(found, v.Uniform)
        offsets.append(low.wide_of(found) if wide else low.uniform(found))
    masked = low.mask is not None and low.lanes > 1
    operands: list[Idx] = [matrix.base, *offsets]
    operands += [low.mask] if low.mask is not None and masked else []
    operands += [] if value is None else [b.shape(value, *shape)]

    def make(b: EmuBuilder, arguments: list[Any]) -> list[SSAValue]:
        base, *rest = arguments
        steps = (b.dense(vec(index, *shape), place.reshape(-1).tolist()) for place in places)
        total = elements.matrix_address(b, desc, [*map(b.plus, steps, rest)])
        addresses = b.broadcast(b.times(total, element_bytes(element)), vec(index, *shape))
        flags = vec(i1, *shape)
        mask = b.broadcast(rest[len(places)], flags) if masked else b.constant(flags, 1)
        if value is not None:
            b.scatter(rest[-1], base, addresses, mask)
            return []
        return [b.gather(base, addresses, mask, b.zeros(vec(element, *shape)))]

    return b.shared(("matrix", value is None, desc, element, masked, *places), operands, make)


@lowers("xegpu.load_matrix")
def load_matrix(low: Lowering, op: xegpu.LoadMatrixOp) -> None:
    given = shape_of_type(op.value.type)
    element = element_type(low, element_of(op.value.type))
    (found,) = _matrix_access(low, op, given, None, element)
    wanted = given if low.lanes == 1 else (*given, low.lanes)
    low.set(op.value, low.b.shape(found, *wanted) if wanted else low.b.extract(found, 0))


@lowers("xegpu.store_matrix")
def store_matrix(low: Lowering, op: xegpu.StoreMatrixOp) -> None:
    element = element_type(low, element_of(op.value.type))
    _matrix_access(low, op, shape_of_type(op.value.type), low.wide(op.value), element)


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


# One address for each lane --------------------------------------------------------------------------------------------


def _scattered_access(low: Lowering, op: Any) -> tuple[SSAValue, SSAValue]:
    """Addresses in bytes, and which of them are meant: of all components of the op's value, one after the other."""
    b, source, chunk, given = low.b, op.source_operand, op.chunk, shape_of_type(op.value.type)
    size, extent, stride = element_bytes(element_type(low, element_of(op.value.type))), None, 1
    if isinstance(source.type, MemRefType):
        m, base = memory(low, source), shared_start(low, source)
        extent, stride = (part[0] if part else 1 for part in (m.sizes, m.strides))
    else:
        base = low.index(source, "the base")
    indices, wanted = low.wide(op.offsets), low.wide(op.mask)
    # Components of a lane follow one another in a subgroup's values without `transpose`.
    inner = low.lanes == 1 and op.properties.get("transpose") is None
    count = max(1, prod(op.lanes)) if low.lanes == 1 else low.lanes
    if low.lanes > 1:
        indices, wanted = (_own(low, x) for x in (indices, wanted))
        wanted = low.mask_and(wanted)
    shape = (count, chunk) if inner else (chunk, count)
    if prod(shape) != prod(given) * low.lanes:
        raise low.refuse("a value that is not of the access's shape")
    lane, part = (x.reshape(-1) for x in np.indices(shape)[:: 1 if inner else -1])

    def repeated(wide: SSAValue) -> SSAValue:
        """For each component: what is alone, of its lane, or its own of one for each, lane by lane."""
        total = prod(shape_of_type(wide.type))
        apart = low.lanes == 1 and total == count * chunk
        return arrange(
            b, b.shape(wide, total), lane * chunk + part if apart else lane * (total > 1)
        )

    wanted = repeated(wanted)
    within = b.dense(vec(index, part.size), part.tolist())
    places = b.plus(repeated(b.cast(indices, index)), within)
    if extent is not None:
        wanted = b.all_of([wanted, b.within(places, extent)])
    return b.idx(b.plus(b.times(places, b.times(stride, size)), base)), wanted


def _own(low: Lowering, wide: SSAValue) -> SSAValue:
    """[lanes]: a lane's only element."""
    if (count := prod(shape_of_type(wide.type)) // low.lanes) != 1:
        raise low.refuse(f"{count} offsets of one lane")
    return low.b.shape(wide, low.lanes)


@lowers("xegpu.load")
def load(low: Lowering, op: xegpu.LoadGatherOp) -> None:
    addresses, mask = _scattered_access(low, op)
    element = element_type(low, element_of(op.value.type))
    nothing = low.b.ones(vec(element, *shape_of_type(addresses.type)))
    _give(low, op.value, low.b.gather(0, addresses, mask, nothing))


@lowers("xegpu.store")
def store(low: Lowering, op: xegpu.StoreScatterOp) -> None:
    addresses, mask = _scattered_access(low, op)
    value = low.b.shape(low.wide(op.value), *shape_of_type(addresses.type))
    low.b.scatter(value, 0, addresses, mask)


@lowers("xegpu.atomic_rmw")
def atomic_rmw(low: Lowering, op: xegpu.AtomicRMWOp) -> None:
    addresses, mask = _scattered_access(low, op)
    value = low.b.shape(low.wide(op.value), *shape_of_type(addresses.type))
    _give(low, op.results[0], atomic(low, str(op.kind), addresses, value, mask))


def _give(low: Lowering, result: SSAValue, found: SSAValue) -> None:
    whole = (*shape_of_type(result.type), *([low.lanes] if low.lanes > 1 else []))
    low.set(result, low.b.shape(found, *whole) if whole else low.b.extract(found, 0))
