"""Ops that only rearrange: every register of a result is a copy of one of an operand, of the same thread or another.

What comes from where is said by `dialects.movement`. Where there is a layout of the operands (or, failing that, of the
result) with which every element stays with its thread, registers are renamed and no code is made. Else the operands go
through shared memory, in one of three ways:

- they lie there as they are, and each thread reads what its registers copy (slices, rows, reshapes);
- they lie there as the result does: written where their elements go, over one another, and read in the result's
  layout (insertions);
- where addresses follow no rule in the thread's number (shuffles), each is chosen from a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import layout as ly
from tilewright.codegen.builder import Idx, index
from tilewright.codegen.tiles import itemsize
from tilewright.dialects.movement import (
    ELEMENTS,
    is_vector,
    numbered,
    operand_layout,
    positions_at_run_time,
    result_layout,
    static_position,
)
from tilewright.dialects.upstream.vector import InsertStridedSliceOp
from tilewright.layout import Layout, LayoutError
from tilewright.layout.digits import row_strides
from tilewright.layout.memory import row_major
from tilewright.targets.cuda.distribute import Distributor, Fragment, producer, rule
from tilewright.targets.cuda.exchange import (
    VECTOR_BYTES,
    Addresses,
    accesses,
    exchanged,
    load_at,
    store_at,
    store_fragment,
)
from tilewright.targets.cuda.ownership import is_even, part_layout, shape_of
from tilewright.targets.cuda.rules_values import linear_index, offset_index, table
from tilewright.targets.cuda.sync import MemoryRange

Make = Callable[[Layout, Layout], SSAValue]
"""(layout of the operands, layout of the result), which keep elements in place -> the result."""


@producer(*ELEMENTS)
def rearrange(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """A result in `layout`."""
    number = d.result_number
    if isinstance(op, InsertStridedSliceOp):
        if (part := _even(part_layout, op, layout)) is not None:
            return put_part(d, op, layout, part)
    elif all(is_vector(v) for v in op.operands):

        def make(held: Layout, made: Layout) -> SSAValue:
            parts = [d.fragment_of(v, held).value for v in op.operands]
            return d.pick(d.concatenate(parts), registers(op, made, held, number))

        return in_place(d, op, layout, make) or _Exchange(d, op, number).result(layout)
    if op.name == "vector.broadcast":
        type = d.fragment_type(op.results[0].type, layout)
        return d.b.value(vector.BroadcastOp(d.scalar(op.operands[0]), type))
    if op.name == "vector.insert" and not is_vector(op.operands[0]):
        return insert_element(d, op, layout)
    return _Exchange(d, op, number).result(layout)


@producer("vector.bitcast")
def bitcast(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Bits of the innermost dimension as another width."""

    def make(held: Layout, made: Layout) -> SSAValue:
        natural = result_layout(op, held)
        type = d.fragment_type(op.results[0].type, natural)
        value = d.b.value(vector.BitcastOp(d.fragment_of(op.operands[0], held).value, type))
        return d.pick(value, same_elements(natural, made))

    made = in_place(d, op, layout, make)
    assert made is not None, "some layout keeps the bits of any element together"
    return made


def in_place(d: Distributor, op: Operation, layout: Layout, make: Make) -> SSAValue | None:
    """The result in `layout`, if elements can be moved before or after the op only; else None."""
    if (held := _even(operand_layout, op, layout)) is not None:
        return make(held, layout)
    held = d.fragment_of(op.operands[0]).layout
    if (made := _even(result_layout, op, held)) is None:
        return None
    return d.convert(Fragment(make(held, made), made), layout).value


def _even(change: Callable[[Any, Layout], Layout], op: Operation, layout: Layout) -> Layout | None:
    """What an op makes of a layout, if that is one that threads can have."""
    try:
        made = change(op, layout)
    except LayoutError:
        return None
    return made if is_even(made) else None


def registers(op: Operation, layout: Layout, held: Layout, result: int = 0) -> list[int]:
    """The register that each of a result's in `layout` copies, of operands in `held` that keep elements in place; those
    of the first operand come first."""
    coords = layout.register_steps
    operand, number = np.divmod(numbered(op)[result][coords], held.size)
    at = np.unravel_index(number, held.shape) if held.shape else ()  # one element is everywhere
    found = held.index(ly.Axis.REGISTER, at)
    return [int(r) for r in operand * held.registers + found]


def put_part(d: Distributor, op: InsertStridedSliceOp, layout: Layout, part: Layout) -> SSAValue:
    """A result in `layout`, whose part, held in `part`, each thread has where it has the result's."""
    held = [d.fragment_of(v, of).value for v, of in ((op.source, part), (op.dest, layout))]
    places = [x - offset for x, offset in zip(layout.register_steps, op.offsets, strict=True)]
    inside = np.all([(x >= 0) & (x < n) for x, n in zip(places, part.shape, strict=True)], axis=0)
    own = part.index(ly.Axis.REGISTER, [np.where(inside, x, 0) for x in places])
    other = part.registers + np.arange(len(inside))
    return d.pick(d.concatenate(held), [int(r) for r in np.where(inside, own, other)])


def same_elements(have: Layout, want: Layout, at: Sequence[int] = (0, 0)) -> list[int]:
    """The registers of `have` in the order of `want`, whose lanes and warps hold the same; `at`: where of `have` the
    first element of `want` is."""
    coords = [x + start for x, start in zip(want.register_steps, at, strict=False)]
    return [int(r) for r in have.index(ly.Axis.REGISTER, coords)]


def insert_element(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """The one register of all that is at the position becomes the scalar."""
    source, whole = op.operands[:2]
    held = d.fragment_of(whole, layout).value
    b, numbers = d.b, offset_index(d, *linear_index(d, layout))
    at = b.value(vector.BroadcastOp(b.idx(_position(d, op)[0]), numbers.type))  # pyright: ignore
    here = b.value(arith.CmpiOp(numbers, at, "eq"))
    new = b.value(vector.BroadcastOp(d.scalar(source), held.type))  # pyright: ignore
    return b.value(arith.SelectOp(here, new, held))


@rule("vector.extract")
def extract_element(d: Distributor, op: Operation) -> None:
    """One element becomes a scalar of every thread."""
    fragment = d.fragment_of(op.operands[0])
    if fragment.layout.size == 1:
        d.set_scalar(op.results[0], d.b.extract(fragment.value, 0))
        return
    size = itemsize(fragment.element)
    memory = row_major(fragment.layout.shape)

    def load(offset: int) -> SSAValue:
        at = d.b.plus(d.b.times(_position(d, op)[0], size), offset)
        return d.b.load(d.shared_pointer(at), fragment.element)

    value = exchanged(
        d,
        fragment.layout.size * size,
        "a tile of which one element is read",
        lambda offset: store_fragment(d, fragment, memory, offset),
        load,
    )
    d.set_scalar(op.results[0], value)


def _position(d: Distributor, op: Operation, *, fixed: bool = True) -> tuple[Idx, int]:
    """The number of the element at an op's position, and a divisor of it; without `fixed` of the part that is
    known only at run time."""
    if "static_position" not in op.properties:
        return 0, 0
    whole = next(v for v in reversed(op.operands) if is_vector(v))
    given = iter(positions_at_run_time(op))
    number: Idx = 0
    divisor = 0
    for at, step in zip(static_position(op), row_strides(shape_of(whole)), strict=False):
        if at == DYNAMIC_INDEX:
            number = d.b.plus(number, d.b.times(d.idx(next(given)), step))
            divisor = gcd(divisor, step)
        elif fixed:
            number = d.b.plus(number, at * step)
    return number, divisor


# Through shared memory ----------------------------------------------------------------------------


class _Exchange:
    """An op's tiles on their way through shared memory."""

    def __init__(self, d: Distributor, op: Operation, result: int):
        self.d, self.op = d, op
        self.what = f"{op.name}, which moves elements between threads,"
        self.fragments = [d.fragment_of(v) for v in op.operands if is_vector(v)]
        self.element = self.fragments[0].element
        self.size = itemsize(self.element)
        self.numbers = numbered(op)[result]
        """Of the element that each of the result copies."""
        self.moving, self.divisor = _position(d, op, fixed=False)
        """By how many elements a position known at run time moves the box that is read or written; what divides it."""
        sizes = [f.layout.size for f in self.fragments]
        self.firsts = np.cumsum([0, *sizes])

    def result(self, layout: Layout) -> SSAValue:
        """What the threads hold of the result in `layout`."""
        step = max(1, VECTOR_BYTES // self.size)
        starts = np.cumsum([0, *(-(-f.layout.size // step) * step for f in self.fragments)])
        which = np.searchsorted(self.firsts, self.numbers, side="right") - 1
        places = self.numbers + (starts - self.firsts)[which]

        def store(offset: int) -> None:
            for fragment, start in zip(self.fragments, starts.tolist(), strict=False):
                memory = row_major(fragment.layout.shape)
                store_fragment(self.d, fragment, memory, offset + start * self.size)

        def load(offset: int) -> SSAValue:
            if at is None:
                return self.chosen(places, layout, offset)
            return load_at(self.d, at, self.moved(offset), self.element)

        at = None
        if len(self.fragments) == 1 or not positions_at_run_time(self.op):
            at = self.addresses(places, layout)
        if at is None and (written := self.written_over(layout)) is not None:
            return written
        return exchanged(self.d, int(starts[-1]) * self.size, self.what, store, load)

    def moved(self, offset: int) -> Idx:
        return self.d.b.plus(self.d.b.times(self.moving, self.size), offset)

    def addresses(self, places: np.ndarray, layout: Layout) -> Addresses | None:
        """Where threads find a tile in `layout` whose elements lie at `places`; None where no rule says it."""
        table = places[layout.table()].reshape(-1, layout.registers)
        return accesses(table, self.size, self.divisor)

    def written_over(self, layout: Layout) -> SSAValue | None:
        """Operands stored where their elements go, first those that others are written over; None where no rule in
        the thread's number says where that is."""
        d, flat = self.d, self.numbers.reshape(-1)
        whole = np.arange(flat.size)
        stores: list[tuple[Fragment, Addresses, bool]] = []
        for first, fragment in zip(self.firsts, self.fragments, strict=False):
            landing = np.full(fragment.layout.size, -1)
            (mine,) = np.nonzero((flat >= first) & (flat < first + landing.size))
            landing[flat[mine] - first] = mine
            missing = int(np.sum(landing < 0))
            if len(mine) > landing.size - missing:
                return None  # one element goes to several places
            if missing and (landing.size != flat.size or np.any(flat[mine] - first != mine)):
                return None  # one goes nowhere that is not written over where it would be
            landing = whole if missing else landing
            at = self.addresses(landing.reshape(fragment.layout.shape), fragment.layout)
            if at is None:
                return None
            stores.append((fragment, at, missing > 0))
        found = self.addresses(whole.reshape(self.numbers.shape), layout)
        if found is None:
            return None
        need = flat.size * self.size

        def store(offset: int) -> None:
            for fragment, at, below in sorted(stores, key=lambda s: not s[2]):
                store_at(d, at, fragment, offset if below else self.moved(offset))
                if below:
                    d.hazards.write(d, MemoryRange(offset, offset + need))

        return exchanged(
            d, need, self.what, store, lambda offset: load_at(d, found, offset, self.element)
        )

    def chosen(self, places: np.ndarray, layout: Layout, offset: int) -> SSAValue:
        """Each register's address taken from a table of constants."""
        d, b = self.d, self.d.b
        type = VectorType(index, [layout.registers])
        numbers = table(d, self.op, layout, type, places.reshape(-1).tolist())
        one = VectorType(self.element, [1])  # pyright: ignore[reportArgumentType]
        parts: list[SSAValue] = []
        for r in range(layout.registers):
            at = b.plus(b.times(b.extract(numbers, r), self.size), offset)
            parts.append(b.load(d.shared_pointer(at), one))
        return d.concatenate(parts)
