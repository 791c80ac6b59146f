"""Integers of 8 bits, or of some bits of them, as floats, without the conversion unit, which is slow beside the others.

An integer x in the low bits of a float whose last bit counts 1 makes 2^p + x (f16: 0x6400 + x, bf16: 0x4300 + x, f32:
0x4b000000 + x), where a number with a sign is first moved up by half of its range. A byte permutation makes such floats
of bytes, and a subtraction, exact because all values are small integers, takes the rest away. bf16 has seven such bits:
of a whole byte the highest bit makes a float of its own, and the two differ by the number.

    (q << 4 >> 4), q >> 4 : i8    are bits 0 to 3 and 4 to 7 of q: a mask, or a shift and one, takes four at a time

Numbers that alternate (`vector.interleave`) are converted before they do.
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    IntegerType,
    VectorType,
    i32,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects import mach
from tilewright.dialects.movement import is_vector, operand_layout
from tilewright.dialects.upstream.vector import InterleaveOp
from tilewright.frozen import frozen
from tilewright.layout import Layout
from tilewright.passes.fold_identities import splat
from tilewright.targets.cuda.distribute import Distributor, producer
from tilewright.targets.cuda.passes.wgmma_legality import TRANSPOSES
from tilewright.targets.cuda.rules_index import float_of
from tilewright.targets.cuda.rules_moves import in_place, registers
from tilewright.targets.cuda.rules_values import elementwise

BYTE = 8
EACH = 0x01010101
"""A byte that is 1, four times."""
HALVES = (0x4140, 0x4342)
"""Two bytes of the first operand with byte 0 of the second above each: the lower two, the upper two."""
WORDS = (0x7440, 0x7441, 0x7442, 0x7443)
"""One byte of the first operand below the upper three of the second."""


@frozen
class BitField:
    """Bits of a byte that are an integer: `width` of them from bit `low` on."""

    source: SSAValue
    low: int
    width: int
    signed: bool

    def before(self) -> BitField | None:
        """The same number as bits of what its bytes are shifted or masked from; None where they are not."""
        op = self.source.owner
        if not isinstance(op, arith.ShLIOp | arith.ShRSIOp | arith.ShRUIOp | arith.AndIOp):
            return None
        by = splat(op.operands[1])
        if not isinstance(by, int):
            return None
        inner = replace(self, source=op.operands[0])
        if isinstance(op, arith.AndIOp):
            kept = by >> self.low & (1 << self.width) - 1
            width = kept.bit_length()
            if kept + 1 != 1 << width or not width:
                return None
            return replace(inner, width=width, signed=self.signed and width == self.width)
        if not 0 <= by < BYTE:
            return None
        if isinstance(op, arith.ShLIOp):
            return replace(inner, low=self.low - by) if by <= self.low else None
        low = self.low + by
        if low + self.width <= BYTE:
            return replace(inner, low=low)
        arithmetic = isinstance(op, arith.ShRSIOp)
        if low >= BYTE or (arithmetic and not self.signed):
            return None
        return replace(inner, low=low, width=BYTE - low, signed=arithmetic)


@producer("arith.sitofp", "arith.uitofp")
def to_float(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Bytes several at a time; anything else by itself (`float_of`)."""
    (source,), (result,) = op.operands, op.results
    if not is_vector(source) or _bits(source.type) != BYTE:
        return float_of(d, op, layout)
    assert isinstance(result.type, VectorType)
    element, signed = result.type.element_type, op.name == "arith.sitofp"
    if not isinstance(element, BFloat16Type | Float16Type | Float32Type):
        return elementwise(d, op, layout)
    return _converted(d, source, layout, element, signed) or elementwise(d, op, layout)


def _bits(type: Attribute) -> int:
    element = type.element_type if isinstance(type, VectorType) else type
    return element.width.data if isinstance(element, IntegerType) else 0


def _converted(
    d: Distributor, source: SSAValue, layout: Layout, element: Attribute, signed: bool
) -> SSAValue | None:
    """Bytes as floats of a type, in a layout; None where threads hold an odd one."""
    if isinstance(op := source.owner, InterleaveOp):

        def alternate(held: Layout, made: Layout) -> SSAValue:
            parts = [_converted(d, v, held, element, signed) for v in op.operands]
            known = [part for part in parts if part is not None]
            return d.pick(d.concatenate(known), registers(op, made, held))

        held = d.assigned(op.operands[0])
        if held is not None and held.registers % 2 == 0 and layout.registers % 4 == 0:
            made = in_place(d, op, layout, alternate)
            if made is not None:
                return made
    if isinstance(op, TRANSPOSES):
        held = operand_layout(op, layout)
        made = _converted(d, op.operands[0], held, element, signed)
        return made and d.pick(made, registers(op, layout, held))
    if layout.registers % 2:
        return None
    field = BitField(source, 0, BYTE, signed)
    while (before := field.before()) is not None:
        field = before
    words = _words(d, d.fragment_of(field.source, layout).value)
    made = _floats(d, words, field, element)
    whole = d.b.value(vector.BitcastOp(made, VectorType(element, [4 * len(words)])))  # pyright: ignore
    return d.pick(whole, range(layout.registers))


def _words(d: Distributor, held: SSAValue) -> list[SSAValue]:
    """Bytes, four to a word; the last word may be half full."""
    assert isinstance(held.type, VectorType)
    (count,) = held.type.get_shape()
    if count % 4:
        held = d.b.shuffle(held, held, [*range(count), count - 2, count - 1])
        count += 2
    words = d.b.value(vector.BitcastOp(held, VectorType(i32, [count // 4])))
    return [d.b.extract(words, i) for i in range(count // 4)]


def _floats(d: Distributor, words: list[SSAValue], field: BitField, element: Attribute) -> SSAValue:
    """The numbers as a vector of words that hold floats."""
    b = d.b
    wide = isinstance(element, Float32Type)
    above, first, exact = (
        (0x4B000000, 1 << 23, 23)
        if wide
        else (0x64, 1 << 10, 10)
        if isinstance(element, Float16Type)
        else (0x43, 1 << 7, 7)
    )
    high = b.constant(i32, above)
    spread = [b.constant(i32, which) for which in (WORDS if wide else HALVES)]
    whole = field.width == BYTE
    split = whole and exact < BYTE
    sign = 1 << field.width - 1
    made: list[SSAValue] = []
    for word in words:
        if field.low:
            word = b.value(arith.ShRUIOp(word, b.constant(i32, field.low)))
        if not whole:
            word = b.value(arith.AndIOp(word, b.constant(i32, ((1 << field.width) - 1) * EACH)))
        if field.signed != split:
            word = b.value(arith.XOrIOp(word, b.constant(i32, sign * EACH)))
        made += [b.value(mach.InstrOp("nvptx.prmt", [word, high, s], [i32])) for s in spread]
    values = _vector(d, made)
    if split:
        # 128 + low bits, less 128 or 256 by the highest one; that was turned over where there is no sign.
        return _split(d, values, element, not field.signed)
    return _less(d, values, element, first + (sign if field.signed else 0))


def _split(d: Distributor, values: SSAValue, element: Attribute, offset: bool) -> SSAValue:
    b = d.b
    assert isinstance(values.type, VectorType)
    low, highest = (
        b.value(arith.AndIOp(values, b.constant(values.type, mask)))
        for mask in (0xFF7FFF7F - (1 << 32), 0xFF80FF80 - (1 << 32))
    )
    pairs = VectorType(element, [2 * values.type.get_shape()[0]])  # pyright: ignore
    x, y = (b.value(vector.BitcastOp(v, pairs)) for v in (low, highest))
    made = b.value(arith.SubfOp(x, y))
    return b.value(arith.AddfOp(made, b.constant(pairs, 128.0))) if offset else made


def _less(d: Distributor, words: SSAValue, element: Attribute, by: int) -> SSAValue:
    """The floats that words hold, less a number."""
    b = d.b
    assert isinstance(words.type, VectorType)
    count = words.type.get_shape()[0] * (1 if isinstance(element, Float32Type) else 2)
    type = VectorType(element, [count])  # pyright: ignore
    return b.value(
        arith.SubfOp(b.value(vector.BitcastOp(words, type)), b.constant(type, float(by)))
    )


def _vector(d: Distributor, words: list[SSAValue]) -> SSAValue:
    made = d.b.constant(VectorType(i32, [len(words)]), 0)
    for place, word in enumerate(words):
        made = d.b.value(vector.InsertOp(word, made, [place]))
    return made
