"""Fragments: what one lane holds of a subgroup's vector, as registers that are picked when they are needed.

A `LaneFragment` names each of its registers as (a vector of the lane program, an element of it). Slices, casts,
transposes and broadcasts that leave every element in its lane only pick other registers, and make no op. An op
that needs a whole vector gets it from `LaneFragments.vector`: the register's own vector, a contiguous slice of it,
or vector.shuffle. Elements that change lanes go through `LaneFragments.gather`: one gpu.shuffle for all registers
that move alike, and selects where lanes take different registers. `tilewright.layout.plan` says who moves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, VectorType, i64
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.gpu.lanes import ShuffleOp
from tilewright.frozen import frozen
from tilewright.passes.xegpu.lazy_registers import Free, Held, LaneFragment, LazyRegisters, Register

Ints = NDArray[np.intp]
Coords = tuple[Ints, ...]
Through = Callable[[Coords], Coords]


Shuffle = tuple[str, tuple[int, ...]]
"""A mode of gpu.shuffle, and its offset in each lane."""
Place = tuple[int, int]
"""A source, and a register of it."""


@frozen
class Moves:
    """From where the registers of a fragment come."""

    bits: list[int] | None
    """The source bit of every bit of (register, lane), where a move permutes these."""
    kept: list[Place | None]
    """What stays in its lane; None for registers that are exchanged."""
    exchanges: list[tuple[list[int], list[tuple[NDArray[np.bool_], list[Place], Shuffle | None]]]]
    """Registers that move alike: which, and in which lanes they come from where, by which shuffle."""


class LaneFragments(LazyRegisters):
    """A kernel under construction at lane level, with the moves of registers between lanes."""

    def __init__(self) -> None:
        super().__init__()
        self._moves: dict[Hashable, Moves] = {}

    def vector(self, held: Held, layout: ly.Layout) -> SSAValue:
        """The value as one vector of the lane program, in the registers of `layout`."""
        if isinstance(held, Free):
            return held.splat(self, [layout.registers])
        return self.pick(self.converted(held, layout).registers)

    # --- Moves between lanes -------------------------------------------------------------------------

    def converted(self, fragment: LaneFragment, layout: ly.Layout) -> LaneFragment:
        """The same elements, owned as `layout` says (`convert_layout`)."""
        if fragment.layout == layout:
            return fragment
        return self.move(fragment, layout, lambda c: c, ("convert",))

    def move(
        self, source: LaneFragment, target: ly.Layout, through: Through, what: Hashable = None
    ) -> LaneFragment:
        """The fragment whose element at coordinates c is the source's at `through(c)`.

        `what` names the map `through`, so that its plan is made once for all fragments.
        """

        def plan() -> Moves:
            found = ly.plan.gather(source.layout, target, through)
            lane, register = found.lane[0], found.register[0]
            bits = exchanged_bits(lane, register, source.layout.registers)
            return moves_of(np.zeros_like(lane), lane, register, bits)

        return self.gather([source], target, plan, what)

    def gather(
        self,
        sources: Sequence[LaneFragment],
        target: ly.Layout,
        plan: Callable[[], Moves],
        what: Hashable,
    ) -> LaneFragment:
        """Registers of some fragments. `plan` is asked once for all that are owned so and do the same, `what`."""
        key = (*(source.layout for source in sources), target, what)
        moves = self._moves.get(key) if what is not None else None
        if moves is None:
            moves = self._moves[key] = plan()
        if moves.bits is not None:
            return self.exchange(sources[0], target, moves.bits)
        result: list[Register | None] = [
            None if at is None else sources[at[0]].registers[at[1]] for at in moves.kept
        ]
        for targets, parts in moves.exchanges:
            total: SSAValue | None = None
            for lanes, places, how in parts:
                value = self.pick([sources[w].registers[r] for w, r in places])
                if how is not None:
                    value = self.shuffle(value, how[0], self.table(how[1]))
                if total is not None:
                    value = self.add(arith.SelectOp(self.chosen(lanes), value, total))
                total = value
            assert total is not None
            for n, t in enumerate(targets):
                result[t] = (total, n)
        return LaneFragment(target, sources[0].element, tuple(r for r in result if r is not None))

    def exchange(
        self, source: LaneFragment, target: ly.Layout, bits: Sequence[int]
    ) -> LaneFragment:
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
        return LaneFragment(target, source.element, tuple(order))

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

    def shuffled(self, value: SSAValue, from_lanes: Sequence[int]) -> SSAValue:
        """`value` of the lanes `from_lanes`."""
        how = shuffle_of(tuple(from_lanes), (True,) * self.lanes)
        return value if how is None else self.shuffle(value, how[0], self.table(how[1]))

    def shuffle(self, value: SSAValue, mode: str, offset: SSAValue) -> SSAValue:
        kind = element_of(value.type)
        if isinstance(kind, IndexType):
            # gpu.shuffle takes integers and floats.
            words = self.once(("words", value), self._cast(value, i64))
            moved = self.shuffle(words, mode, offset)
            return self.once(("indices", moved), self._cast(moved, kind))
        key = (mode, value, offset)
        return self.once(key, ShuffleOp(value, offset, self.number(self.lanes), mode))

    def _cast(self, value: SSAValue, element: Attribute) -> Operation:
        kind = value.type
        shaped = VectorType(element, kind.get_shape()) if isinstance(kind, VectorType) else element
        return arith.IndexCastOp(value, shaped)


def moves_of(which: Ints, lane: Ints, register: Ints, bits: list[int] | None = None) -> Moves:
    """Of arrays [lanes, registers] that say which source each comes from, of which lane and register there."""
    if bits is not None:
        return Moves(bits, [], [])
    own = np.arange(len(lane))[:, None]
    stays = ((which == which[0]) & (register == register[0]) & (lane == own)).all(axis=0)
    firsts = zip(stays.tolist(), which[0].tolist(), register[0].tolist(), strict=True)
    kept = [(w, r) if same else None for same, w, r in firsts]
    moved: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for t in np.flatnonzero(~stays).tolist():
        order: dict[Place, int] = {}
        places = zip(which[:, t].tolist(), register[:, t].tolist(), strict=True)
        pattern = tuple(order.setdefault(place, len(order)) for place in places)
        moved.setdefault((tuple(lane[:, t].tolist()), pattern), []).append(t)
    exchanges: list[Any] = []
    for (from_lanes, pattern), targets in moved.items():
        parts: list[Any] = []
        for ordinal in range(max(pattern) + 1):
            lanes = np.array(pattern) == ordinal
            first = pattern.index(ordinal)
            places = [(int(which[first, t]), int(register[first, t])) for t in targets]
            parts.append((lanes, places, shuffle_of(from_lanes, tuple(lanes.tolist()))))
        exchanges.append((targets, parts))
    return Moves(None, kept, exchanges)


@lru_cache(4096)
def shuffle_of(from_lanes: tuple[int, ...], where: tuple[bool, ...]) -> Shuffle | None:
    """What gives the lanes `where` a value of the lanes `from_lanes`; None where each has its own."""
    moved = [(lane, source) for lane, source in enumerate(from_lanes) if where[lane]]
    masks = {lane ^ source for lane, source in moved}
    if masks == {0}:
        return None
    if len(masks) == 1:
        return "xor", (*masks,) * len(from_lanes)
    sources = {source for _, source in moved}
    return "idx", (*sources,) * len(from_lanes) if len(sources) == 1 else from_lanes


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
