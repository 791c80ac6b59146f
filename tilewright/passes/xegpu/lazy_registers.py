"""Registers of a lane as vectors: one vector of the registers that an op needs, in its order.

The vector itself, a slice of it, or a shuffle of two where that is enough; halves and bytes of many vectors are
inserted into words (`LazyRegisters.pick`). Constants of lanes are made here too.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from tilewright.dialects.numerals import dense
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.frozen import frozen
from tilewright.layout.bits import bit_runs, is_sum_of_bits
from tilewright.passes.new_body import NewBody

Register = tuple[SSAValue, int]


@frozen
class LaneFragment:
    """Registers in the order of `layout`; every root is a 1-D vector, or a scalar (element 0)."""

    layout: ly.Layout
    element: Attribute
    registers: tuple[Register, ...]


@frozen
class Free:
    """A vector of one number: a constant, or a scalar of the lane program."""

    element: Attribute
    data: BytesAttr | None
    """A constant's element, as DenseIntOrFPElementsAttr stores a splat."""
    scalar: SSAValue | None

    def splat(self, d: NewBody, shape: Sequence[int]) -> SSAValue:
        """As a vector."""
        kind = VectorType(self.element, list(shape))  # pyright: ignore[reportArgumentType]
        if self.data is not None:
            return d.constant(DenseIntOrFPElementsAttr(kind, self.data))  # pyright: ignore
        assert self.scalar is not None
        return d.once(("splat", self.scalar, kind), vector.BroadcastOp(self.scalar, kind))


Held = LaneFragment | Free


class LazyRegisters(NewBody):
    """A kernel under construction at lane level: its constants, and vectors of picked registers."""

    lanes: int

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
        numbers = tuple(int(v) for v in values)
        return self.once(("table", numbers), lambda: self._table(numbers))

    def _table(self, values: tuple[int, ...]) -> SSAValue:
        first = values[0]
        if not is_sum_of_bits(values):
            return self._selects(values)
        total: SSAValue | None = None if first == 0 else self.number(first)
        for low, bits, step in bit_runs(values):
            field = self.lane()
            if low:
                field = self.binary(arith.ShRUIOp, field, self.number(low))
            if 1 << low + bits < len(values):
                field = self.binary(arith.AndIOp, field, self.number((1 << bits) - 1))
            if step != 1:
                field = self.binary(arith.MuliOp, field, self.number(step))
            total = field if total is None else self.binary(arith.AddiOp, total, field)
        return self.number(first) if total is None else total

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
        return self.once(key, lambda: self.add(arith.IndexCastOp(self.table(values), IndexType())))

    def chosen(self, lanes: NDArray[np.bool_]) -> SSAValue:
        """An i1: is this lane one of these?"""
        for predicate, found in (("eq", np.flatnonzero(lanes)), ("ne", np.flatnonzero(~lanes))):
            if len(found) == 1:
                return self.compare(predicate, self.lane(), self.number(int(found[0])))
        return self.compare("ne", self.table([int(x) for x in lanes]), self.number(0))

    # --- Vectors -----------------------------------------------------------------------------------

    def fragment(self, layout: ly.Layout, value: SSAValue) -> LaneFragment:
        """A fragment that is the whole of a vector."""
        registers = tuple((value, n) for n in range(layout.registers))
        return LaneFragment(layout, element_of(value.type), registers)

    def pick(self, registers: Sequence[Register]) -> SSAValue:
        """One vector of the given registers; the vector itself, or a slice of it, where they are that."""
        registers = tuple(registers)
        root, start = registers[0]
        count = len(registers)
        run = all(r is root and n == start + i for i, (r, n) in enumerate(registers))
        if run and isinstance(root.type, VectorType):
            return self.slice(root, [start], [count])
        return self.once(("pick", registers), lambda: self._pick(registers))

    def _pick(self, registers: tuple[Register, ...]) -> SSAValue:
        element = element_of(registers[0][0].type)
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
        element = element_of(registers[0][0].type)
        bits = _narrow_bits(element)
        roots = len({root for root, _ in registers})
        if bits is None or roots < 2:
            return None
        per = 32 // bits
        words = _whole_words(registers, per)
        if words is None and roots < 3:
            return None
        if words is None:
            plain = IntegerType(bits)
            return self.seen_as(
                self._inserted([(self.seen_as(r, plain), n) for r, n in registers]), element
            )
        return self.seen_as(
            self.pick([(self.seen_as(r, i32), n // per) for r, n in words]), element
        )

    def _inserted(self, registers: Sequence[Register]) -> SSAValue:
        kind = VectorType(element_of(registers[0][0].type), [len(registers)])  # pyright: ignore
        value = self.constant(dense(kind, [0]))
        for n, register in enumerate(registers):
            value = self.add(vector.InsertOp(self.scalar_of(register), value, (n,)))
        return value

    def seen_as(self, value: SSAValue, element: Attribute) -> SSAValue:
        """A vector's bits as elements of another type; a scalar's as of one of as many bits."""
        kind = value.type
        if element_of(value.type) == element:
            return value
        made = value.owner
        if isinstance(made, vector.BitcastOp) and element_of(made.source.type) == element:
            return made.source
        if not isinstance(kind, VectorType):
            return self.once(("bits", value, element), arith.BitcastOp(value, element))
        old = bits_of_element(kind.element_type)
        count = kind.get_shape()[0] * old // bits_of_element(element)
        made = VectorType(element, [count])  # pyright: ignore[reportArgumentType]
        return self.once(("bits", value, made), vector.BitcastOp(value, made))

    def _shuffle(self, a: SSAValue, b: SSAValue, mask: list[int]) -> SSAValue:
        if a is b and mask == list(range(size_of(a))):
            return a
        kind = VectorType(element_of(a.type), [len(mask)])  # pyright: ignore[reportArgumentType]
        rows = DenseArrayBase.from_list(i64, mask)
        return self.add(vector.ShuffleOp(a, b, rows, result_type=kind))

    def scalar_of(self, register: Register) -> SSAValue:
        """One register as a scalar."""
        root, n = register
        if not isinstance(root.type, VectorType):
            return root
        return self.once(("scalar", root, n), vector.ExtractOp(root, [n], root.type.element_type))

    def together(self, registers: Sequence[Register]) -> SSAValue:
        """Registers as a vector; one alone as a scalar."""
        return self.pick(registers) if len(registers) > 1 else self.scalar_of(registers[0])


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
