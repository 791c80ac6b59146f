"""Fragments: what one lane holds of a subgroup's vector, as registers that are picked when they are needed.

A `Fragment` names each of its registers as (a vector of the lane program, an element of it). Slices, casts,
transposes and broadcasts that leave every element in its lane only pick other registers, and make no op. An op
that needs a whole vector gets it from `Fragments.vector`: the register's own vector, a contiguous slice of it,
or vector.shuffle. Elements that change lanes go through `Fragments.gather`: one gpu.shuffle for all registers
that move alike, and selects where lanes take different registers. `tilewright.layout.plan` says who moves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    BytesAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FixedBitwidthType,
    IndexType,
    IntegerAttr,
    IntegerType,
    VectorType,
    i32,
    i64,
)
from xdsl.ir import Attribute, SSAValue

from tilewright import layout as ly
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.gpu.lanes import ShuffleOp
from tilewright.passes.xegpu.rebuild import Rebuild

Register = tuple[SSAValue, int]
Ints = NDArray[np.intp]
Coords = tuple[Ints, ...]
Through = Callable[[Coords], Coords]


@dataclass(frozen=True)
class Fragment:
    """Registers in the order of `layout`; every root is a 1-D vector, or a scalar (element 0)."""

    layout: ly.Layout
    element: Attribute
    registers: tuple[Register, ...]


@dataclass(frozen=True)
class Free:
    """A vector of one number: a constant, or a scalar of the lane program."""

    element: Attribute
    data: BytesAttr | None
    """A constant's element, as DenseIntOrFPElementsAttr stores a splat."""
    scalar: SSAValue | None


Held = Fragment | Free


def element_of(value: SSAValue) -> Attribute:
    return value.type.element_type if isinstance(value.type, VectorType) else value.type


class Fragments(Rebuild):
    """A kernel under construction at lane level, with the moves of registers between lanes."""

    lanes: int

    def __init__(self) -> None:
        super().__init__()
        self._moves: dict[Hashable, tuple[list[int] | None, Ints, Ints]] = {}
        """Plans by (source, target, what): registers in order where none changes its lane."""

    # --- Constants and lanes -----------------------------------------------------------------------

    def lane(self) -> SSAValue:
        """The number of this lane, an i32."""
        found = self.known("lane")
        if found is None:
            lane = gpu.LaneIdOp()
            cast = arith.IndexCastOp(lane, i32)
            entry = self.entry
            for op in (cast, lane):
                if entry.first_op is None:
                    entry.add_op(op)
                else:
                    entry.insert_op_before(op, entry.first_op)
            found = cast.result
            self._memos[0]["lane"] = found
        return found

    def number(self, value: int) -> SSAValue:
        return self.constant(IntegerAttr(value, i32))

    def table(self, values: Sequence[int]) -> SSAValue:
        """Each lane's entry of a list, as an i32.

        Sums of lane bits times constants, which is all that layouts need; other lists by selects.
        """
        key = ("table", tuple(int(v) for v in values))
        found = self.known(key)
        return self.remember(key, self._table(key[1])) if found is None else found

    def _table(self, values: tuple[int, ...]) -> SSAValue:
        first = values[0]
        if all(v == first for v in values):
            return self.number(first)
        bits = (len(values) - 1).bit_length()
        steps = [values[1 << k] - first for k in range(bits)]
        linear = all(
            v == first + sum(s for k, s in enumerate(steps) if i >> k & 1)
            for i, v in enumerate(values)
        )
        if not linear:
            return self._selects(values)
        total: SSAValue | None = None if first == 0 else self.number(first)
        at = 0
        while at < bits:
            size = 1
            while at + size < bits and steps[at + size] == steps[at] << size:
                size += 1
            if steps[at]:
                field = self.lane()
                if at:
                    field = self.binary(arith.ShRUIOp, field, self.number(at))
                if at + size < bits:
                    field = self.binary(arith.AndIOp, field, self.number((1 << size) - 1))
                if steps[at] != 1:
                    field = self.binary(arith.MuliOp, field, self.number(steps[at]))
                total = field if total is None else self.binary(arith.AddiOp, total, field)
            at += size
        assert total is not None
        return total

    def _selects(self, values: tuple[int, ...]) -> SSAValue:
        result = self.number(values[0])
        for lane, value in enumerate(values):
            if lane and value != values[0]:
                here = self.compare("eq", self.lane(), self.number(lane))
                result = self.add(arith.SelectOp(here, self.number(value), result))
        return result

    def index_table(self, values: Sequence[int]) -> SSAValue | int:
        """Each lane's entry as an index; a plain number where all lanes have the same."""
        if all(v == values[0] for v in values):
            return int(values[0])
        key = ("index", tuple(int(v) for v in values))
        found = self.known(key)
        if found is None:
            cast = arith.IndexCastOp(self.table(values), IndexType())
            found = self.remember(key, self.add(cast))
        return found

    def chosen(self, lanes: NDArray[np.bool_]) -> SSAValue:
        """An i1: is this lane one of these?"""
        return self.compare("ne", self.table([int(x) for x in lanes]), self.number(0))

    # --- Vectors -----------------------------------------------------------------------------------

    def vector(self, held: Held, layout: ly.Layout) -> SSAValue:
        """The value as one vector of the lane program, in the registers of `layout`."""
        if isinstance(held, Free):
            return self.splat(held, layout.registers)
        return self.pick(self.converted(held, layout).registers)

    def splat(self, held: Free, count: int) -> SSAValue:
        kind = VectorType(held.element, [count])  # pyright: ignore[reportArgumentType]
        if held.data is not None:
            return self.constant(DenseIntOrFPElementsAttr(kind, held.data))  # pyright: ignore
        assert held.scalar is not None
        return self.once(("splat", held.scalar, count), vector.BroadcastOp(held.scalar, kind))

    def fragment(self, layout: ly.Layout, value: SSAValue) -> Fragment:
        """A fragment that is the whole of a vector."""
        registers = tuple((value, n) for n in range(layout.registers))
        return Fragment(layout, element_of(value), registers)

    def pick(self, registers: Sequence[Register]) -> SSAValue:
        """One vector of the given registers; the vector itself, or a slice of it, where they are that."""
        registers = tuple(registers)
        root, start = registers[0]
        count = len(registers)
        if all(r is root and n == start + i for i, (r, n) in enumerate(registers)):
            if size_of(root) == count and isinstance(root.type, VectorType):
                return root
            if isinstance(root.type, VectorType):
                return self.slice(root, start, count)
        key = ("pick", registers)
        found = self.known(key)
        return self.remember(key, self._pick(registers)) if found is None else found

    def slice(self, root: SSAValue, start: int, count: int) -> SSAValue:
        key = ("slice", root, start, count)
        found = self.known(key)
        if found is None:
            found = self.remember(key, self.add(more.ExtractStridedSliceOp(root, [start], [count])))
        return found

    def _pick(self, registers: tuple[Register, ...]) -> SSAValue:
        element = element_of(registers[0][0])
        if (together := self._pick_many(registers)) is not None:
            return together
        if len(set(registers)) == 1:
            kind = VectorType(element, [len(registers)])  # pyright: ignore[reportArgumentType]
            return self.add(vector.BroadcastOp(self.scalar_of(registers[0]), kind))
        wanted: dict[SSAValue, list[int]] = {}
        for root, n in registers:
            entry = wanted.setdefault(root, [])
            if n not in entry:
                entry.append(n)
        # Leaves are whole vectors; each merge keeps what is needed of two, the last in order.
        parts: list[tuple[SSAValue, dict[Register, int], list[Register]]] = []
        for root, needed in wanted.items():
            leaf = root
            if not isinstance(root.type, VectorType):
                one = VectorType(element, [1])  # pyright: ignore[reportArgumentType]
                leaf = self.once(("one", root), vector.BroadcastOp(root, one))
            places = {(root, n): n for n in range(size_of(root))}
            parts.append((leaf, places, [(root, n) for n in needed]))
        if len(parts) == 1:
            leaf, places, _ = parts[0]
            return self._shuffle(leaf, leaf, [places[r] for r in registers])
        while len(parts) > 2:
            merged: list[tuple[SSAValue, dict[Register, int], list[Register]]] = []
            for (a, at_a, need_a), (b, at_b, need_b) in zip(parts[::2], parts[1::2], strict=False):
                mask = [at_a[r] for r in need_a] + [size_of(a) + at_b[r] for r in need_b]
                both = need_a + need_b
                places = {r: i for i, r in enumerate(both)}
                merged.append((self._shuffle(a, b, mask), places, both))
            if len(parts) % 2:
                merged.append(parts[-1])
            parts = merged
        (a, at_a, _), (b, at_b, _) = parts
        mask = [at_a[r] if r in at_a else size_of(a) + at_b[r] for r in registers]
        return self._shuffle(a, b, mask)

    def _pick_many(self, registers: tuple[Register, ...]) -> SSAValue | None:
        """Elements of 8 or 16 bits of several vectors, inserted one by one: words of them where all are whole ones.

        None for others. Compilers put an inserted half at its place in a word at once; halves that shuffles collect
        are copied again when they are seen as words (VNNI packing: two moves per word, not four).
        """
        element = element_of(registers[0][0])
        bits = _narrow_bits(element)
        if bits is None or len({root for root, _ in registers}) < 3:
            return None
        per = 32 // bits
        words = _whole_words(registers, per)
        if words is None:
            plain = IntegerType(bits)
            return self.seen_as(
                self._inserted([(self.seen_as(r, plain), n) for r, n in registers]), element
            )
        return self.seen_as(
            self.pick([(self.seen_as(r, i32), n // per) for r, n in words]), element
        )

    def _inserted(self, registers: Sequence[Register]) -> SSAValue:
        kind = VectorType(element_of(registers[0][0]), [len(registers)])  # pyright: ignore
        value = self.constant(dense(kind, [0]))
        for n, register in enumerate(registers):
            value = self.add(vector.InsertOp(self.scalar_of(register), value, (n,)))
        return value

    def seen_as(self, value: SSAValue, element: Attribute) -> SSAValue:
        """A vector's bits as elements of another type; a scalar's as of one of as many bits."""
        kind = value.type
        if element_of(value) == element:
            return value
        if not isinstance(kind, VectorType):
            return self.once(("bits", value, element), arith.BitcastOp(value, element))
        old = bits_of_element(kind.element_type)
        count = kind.get_shape()[0] * old // bits_of_element(element)
        made = VectorType(element, [count])  # pyright: ignore[reportArgumentType]
        return self.once(("bits", value, made), vector.BitcastOp(value, made))

    def _shuffle(self, a: SSAValue, b: SSAValue, mask: list[int]) -> SSAValue:
        if a is b and mask == list(range(size_of(a))):
            return a
        kind = VectorType(element_of(a), [len(mask)])  # pyright: ignore[reportArgumentType]
        op = vector.ShuffleOp.create(
            operands=[a, b],
            properties={"mask": DenseArrayBase.from_list(i64, mask)},
            result_types=[kind],
        )
        return self.add(op)

    def scalar_of(self, register: Register) -> SSAValue:
        """One register as a scalar."""
        root, n = register
        if not isinstance(root.type, VectorType):
            return root
        op = vector.ExtractOp.create(
            operands=[root],
            properties={"static_position": DenseArrayBase.from_list(i64, [n])},
            result_types=[root.type.element_type],
        )
        return self.once(("scalar", root, n), op)

    # --- Moves between lanes -------------------------------------------------------------------------

    def converted(self, fragment: Fragment, layout: ly.Layout) -> Fragment:
        """The same elements, owned as `layout` says (`convert_layout`)."""
        if fragment.layout == layout:
            return fragment
        return self.move(fragment, layout, lambda c: c, ("convert",))

    def move(
        self, source: Fragment, target: ly.Layout, through: Through, what: Hashable = None
    ) -> Fragment:
        """The fragment whose element at coordinates c is the source's at `through(c)`.

        `what` names the map `through`, so that its plan is made once for all pieces.
        """
        key = (source.layout, target, what)
        found = self._moves.get(key) if what is not None else None
        if found is None:
            plan = ly.plan.gather(source.layout, target, through)
            stays = plan.kind <= ly.Move.REGISTERS and plan.permutation is not None
            order = [int(r) for r in plan.register[0, 0]] if stays else None
            found = self._moves[key] = (order, plan.lane[0], plan.register[0])
        order, lane, register = found
        if order is not None:
            return Fragment(target, source.element, tuple(source.registers[r] for r in order))
        bits = exchanged_bits(lane, register, source.layout.registers)
        if bits is not None:
            return self.exchange(source, target, bits)
        return self.gather([source], target, np.zeros_like(lane), lane, register)

    def exchange(self, source: Fragment, target: ly.Layout, bits: Sequence[int]) -> Fragment:
        """A move that permutes the bits of (register, lane): register bits change place with lane bits.

        `bits[b]` is the source bit of target bit b; lane bits count from `width`. Each exchange of a lane bit
        with a register bit is one shuffle of half of the registers: what a lane does not keep, its partner gets.
        """
        width = (target.registers - 1).bit_length()
        registers = list(source.registers)
        # Which source bit stands at each bit now.
        now = list(range(len(bits)))
        leaving = [j for j in range(width) if bits.index(j) >= width]
        for j in leaving:
            wanted = bits.index(j)  # the lane bit that it should become
            free = [i for i in range(width, len(bits)) if bits.index(now[i]) < width]
            i = wanted if wanted in free else free[0]
            registers = self._swap(registers, i - width, j)
            now[i], now[j] = now[j], now[i]
        lanes = [now.index(bits[b]) for b in range(width, len(bits))]
        if lanes != list(range(width, len(bits))):
            from_lanes = [
                sum((lane >> n & 1) << (at - width) for n, at in enumerate(lanes))
                for lane in range(self.lanes)
            ]
            moved = self.shuffled(self.pick(registers), from_lanes)
            registers = [(moved, n) for n in range(len(registers))]
        places = [now.index(bits[b]) for b in range(width)]
        order = [
            registers[sum((t >> n & 1) << at for n, at in enumerate(places))]
            for t in range(target.registers)
        ]
        return Fragment(target, source.element, tuple(order))

    def _swap(self, registers: list[Register], lane_bit: int, register_bit: int) -> list[Register]:
        """Exchanges a bit of the lane with one of the register."""
        low = [n for n in range(len(registers)) if not n >> register_bit & 1]
        high = [n | 1 << register_bit for n in low]
        a = self.pick([registers[n] for n in low])
        b = self.pick([registers[n] for n in high])
        upper = self.chosen(np.arange(self.lanes) >> lane_bit & 1 == 1)
        given = self.add(arith.SelectOp(upper, a, b))
        got = self.shuffle(given, "xor", self.number(1 << lane_bit))
        new_a = self.add(arith.SelectOp(upper, got, a))
        new_b = self.add(arith.SelectOp(upper, b, got))
        result = list(registers)
        for n, (x, y) in enumerate(zip(low, high, strict=True)):
            result[x], result[y] = (new_a, n), (new_b, n)
        return result

    def gather(
        self,
        sources: Sequence[Fragment],
        target: ly.Layout,
        which: Ints,
        lane: Ints,
        register: Ints,
    ) -> Fragment:
        """Registers from other places: arrays [lanes, registers] of source, its lane and its register."""
        own = np.arange(self.lanes)
        result: list[Register | None] = []
        moved: dict[tuple[Any, ...], list[int]] = {}
        for t in range(target.registers):
            w, l, r = which[:, t], lane[:, t], register[:, t]
            if (w == w[0]).all() and (r == r[0]).all() and (l == own).all():
                result.append(sources[int(w[0])].registers[int(r[0])])
                continue
            result.append(None)
            order: dict[tuple[int, int], int] = {}
            pattern = tuple(
                order.setdefault((int(a), int(b)), len(order)) for a, b in zip(w, r, strict=True)
            )
            moved.setdefault((tuple(int(x) for x in l), pattern), []).append(t)
        for (from_lanes, pattern), targets in moved.items():
            value = self._exchange(sources, which, register, from_lanes, pattern, targets)
            for n, t in enumerate(targets):
                result[t] = (value, n)
        return Fragment(target, sources[0].element, tuple(r for r in result if r is not None))

    def _exchange(
        self,
        sources: Sequence[Fragment],
        which: Ints,
        register: Ints,
        from_lanes: tuple[int, ...],
        pattern: tuple[int, ...],
        targets: list[int],
    ) -> SSAValue:
        """The registers `targets`, which all take from lanes `from_lanes`, as one vector.

        `pattern[lane]` numbers the different source registers; where there are several, each is
        shuffled and the lanes select theirs.
        """
        ordinals = np.array(pattern)
        total: SSAValue | None = None
        for ordinal in range(int(ordinals.max()) + 1):
            lanes = ordinals == ordinal
            first = int(np.argmax(lanes))
            picked = [
                sources[int(which[first, t])].registers[int(register[first, t])] for t in targets
            ]
            value = self.shuffled(self.pick(picked), from_lanes, lanes)
            if total is None:
                total = value
            else:
                total = self.add(arith.SelectOp(self.chosen(lanes), value, total))
        assert total is not None
        return total

    def shuffled(
        self, value: SSAValue, from_lanes: Sequence[int], where: NDArray[np.bool_] | None = None
    ) -> SSAValue:
        """`value` of the lanes `from_lanes`, wanted in the lanes `where` (default all)."""
        own = np.arange(self.lanes)
        source = np.array(from_lanes)
        care = np.ones(self.lanes, bool) if where is None else where
        if (source == own)[care].all():
            return value
        masks = np.unique((source ^ own)[care])
        if len(masks) == 1:
            return self.shuffle(value, "xor", self.number(int(masks[0])))
        if len(np.unique(source[care])) == 1:
            return self.shuffle(value, "idx", self.number(int(source[care][0])))
        return self.shuffle(value, "idx", self.table(from_lanes))

    def shuffle(self, value: SSAValue, mode: str, offset: SSAValue) -> SSAValue:
        key = (mode, value, offset)
        return self.once(key, ShuffleOp(value, offset, self.number(self.lanes), mode))


def exchanged_bits(lane: Ints, register: Ints, registers: int) -> list[int] | None:
    """The source bit of every bit of (register, lane), low register bits first; None unless a move permutes
    bits and exchanges some of the lane with some of the register.

    `lane` and `register` are arrays [lanes, registers] of where each register comes from.
    """
    lanes, targets = lane.shape
    if targets != registers or registers & (registers - 1) or lanes & (lanes - 1):
        return None
    width, depth = (registers - 1).bit_length(), (lanes - 1).bit_length()
    source = register + (lane << width)
    if source[0, 0]:
        return None
    steps = [int(source[0, 1 << b]) for b in range(width)]
    steps += [int(source[1 << b, 0]) for b in range(depth)]
    if any(s & (s - 1) or not s for s in steps) or len(set(steps)) != len(steps):
        return None
    here = np.arange(registers)[None, :] + (np.arange(lanes)[:, None] << width)
    if (source != sum((here >> b & 1) * s for b, s in enumerate(steps))).any():
        return None
    bits = [s.bit_length() - 1 for s in steps]
    return bits if any(b >= width for b in bits[:width]) else None


def bits_of_element(element: Attribute) -> int:
    assert isinstance(element, FixedBitwidthType)
    return element.bitwidth


def _narrow_bits(element: Attribute) -> int | None:
    """Bits of an element of 8 or 16; None for others."""
    if not isinstance(element, (AnyFloat, IntegerType)):
        return None
    bits = bits_of_element(element)
    return bits if bits in (8, 16) else None


def _whole_words(registers: Sequence[Register], per: int) -> list[Register] | None:
    """The first element of every `per`, where they are aligned neighbours in one vector; None where not."""
    if len(registers) % per:
        return None
    words: list[Register] = []
    for first in range(0, len(registers), per):
        root, start = registers[first]
        here = [(root, start + i) for i in range(per)]
        if start % per or size_of(root) % per or list(registers[first : first + per]) != here:
            return None
        words.append((root, start))
    return words


def size_of(value: SSAValue) -> int:
    return value.type.get_shape()[0] if isinstance(value.type, VectorType) else 1


def dense(kind: VectorType, numbers: Sequence[int | float]) -> DenseIntOrFPElementsAttr:
    element = kind.element_type
    if isinstance(element, AnyFloat):
        return DenseIntOrFPElementsAttr.from_list(kind, [float(n) for n in numbers])  # pyright: ignore
    assert isinstance(element, (IntegerType, IndexType))
    return DenseIntOrFPElementsAttr.from_list(kind, [int(n) for n in numbers])  # pyright: ignore
