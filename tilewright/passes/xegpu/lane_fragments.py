"""Fragments: what one lane holds of a subgroup's vector, as registers that are picked when they are needed.

A `LaneFragment` names each of its registers as (a vector of the lane program, an element of it). Slices, casts,
transposes and broadcasts that leave every element in its lane only pick other registers, and make no op. An op
that needs a whole vector gets it from `LaneFragments.vector`: the register's own vector, a contiguous slice of it,
or vector.shuffle. Elements that change lanes go through `LaneFragments.gather`: one gpu.shuffle for all registers
that move alike, and selects where lanes take different registers. `tilewright.layout.plan` says who moves.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, VectorType, i64
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright import layout as ly
from tilewright.dialects.upstream.gpu.lanes import ShuffleOp
from tilewright.passes.xegpu.lazy_registers import (
    Free,
    Held,
    LaneFragment,
    LazyRegisters,
    Register,
    element_of,
)

Ints = NDArray[np.intp]
Coords = tuple[Ints, ...]
Through = Callable[[Coords], Coords]


class LaneFragments(LazyRegisters):
    """A kernel under construction at lane level, with the moves of registers between lanes."""

    def __init__(self) -> None:
        super().__init__()
        self._moves: dict[Hashable, tuple[list[int] | None, Ints, Ints]] = {}
        """Plans by (source, target, what): registers in order where none changes its lane."""

    def vector(self, held: Held, layout: ly.Layout) -> SSAValue:
        """The value as one vector of the lane program, in the registers of `layout`."""
        if isinstance(held, Free):
            return self.splat(held, layout.registers)
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
        key = (source.layout, target, what)
        found = self._moves.get(key) if what is not None else None
        if found is None:
            plan = ly.plan.gather(source.layout, target, through)
            stays = plan.kind <= ly.Move.REGISTERS and plan.permutation is not None
            order = [int(r) for r in plan.register[0, 0]] if stays else None
            found = self._moves[key] = (order, plan.lane[0], plan.register[0])
        order, lane, register = found
        if order is not None:
            return LaneFragment(target, source.element, tuple(source.registers[r] for r in order))
        bits = exchanged_bits(lane, register, source.layout.registers)
        if bits is not None:
            return self.exchange(source, target, bits)
        return self.gather([source], target, np.zeros_like(lane), lane, register)

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

    def gather(
        self,
        sources: Sequence[LaneFragment],
        target: ly.Layout,
        which: Ints,
        lane: Ints,
        register: Ints,
    ) -> LaneFragment:
        """Registers from other places: arrays [lanes, registers] of source, its lane and its register."""
        own = np.arange(self.lanes)[:, None]
        stays = ((which == which[0]) & (register == register[0]) & (lane == own)).all(axis=0)
        firsts = zip(stays.tolist(), which[0].tolist(), register[0].tolist(), strict=True)
        result: list[Register | None] = [
            sources[w].registers[r] if same else None for same, w, r in firsts
        ]
        moved: dict[tuple[Any, ...], list[int]] = {}
        for t in np.flatnonzero(~stays).tolist():
            w, l, r = which[:, t], lane[:, t], register[:, t]
            order: dict[tuple[int, int], int] = {}
            pattern = tuple(
                order.setdefault((int(a), int(b)), len(order)) for a, b in zip(w, r, strict=True)
            )
            moved.setdefault((tuple(int(x) for x in l), pattern), []).append(t)
        for (from_lanes, pattern), targets in moved.items():
            value = self._exchange(sources, which, register, from_lanes, pattern, targets)
            for n, t in enumerate(targets):
                result[t] = (value, n)
        return LaneFragment(target, sources[0].element, tuple(r for r in result if r is not None))

    def _exchange(
        self,
        sources: Sequence[LaneFragment],
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
        kind = element_of(value)
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


__all__ = [
    "Coords",
    "Free",
    "Held",
    "LaneFragment",
    "LaneFragments",
    "Register",
    "Through",
    "element_of",
]
