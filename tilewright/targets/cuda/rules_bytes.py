"""Integers of 8 bits as 16-bit floats, without the conversion unit, which is slow beside the others.

Byte x in the low bits of a float whose last bit counts 1 makes 1024 + x (f16: 0x6400 + x); a signed one is first moved
up by 128. A byte permutation makes two such floats of a pair, and a subtraction, exact because all values are small
integers, takes the rest away. bf16 has too few bits for that: it goes through f32, two values per packing.
"""

from __future__ import annotations

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import BFloat16Type, Float16Type, IntegerType, VectorType, f32, i16, i32
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects import mach
from tilewright.dialects.movement import is_vector
from tilewright.layout import Layout
from tilewright.targets.cuda.distribute import Distributor, producer
from tilewright.targets.cuda.rules_values import elementwise

HIGH = 0x64
"""The upper byte of an f16 of 1024 to 2047."""
FIRST = 1024
SPREAD = 0x4140
"""Bytes 0 and 1 of the first operand, byte 0 of the second above each."""


@producer("arith.sitofp", "arith.uitofp")
def to_float(d: Distributor, op: Operation, layout: Layout) -> SSAValue:
    """Bytes two at a time; anything else as every elementwise op."""
    (source,), (result,) = op.operands, op.results
    if not is_vector(source) or layout.registers % 2 or _bits(source.type) != 8:
        return elementwise(d, op, layout)
    assert isinstance(result.type, VectorType)
    held, element = d.fragment_of(source, layout).value, result.type.element_type
    if isinstance(element, Float16Type):
        return _through_bytes(d, held, op.name == "arith.sitofp")
    if isinstance(element, BFloat16Type):
        return _through_f32(d, held, op)
    return elementwise(d, op, layout)


def _bits(type: Attribute) -> int:
    element = type.element_type if isinstance(type, VectorType) else type
    return element.width.data if isinstance(element, IntegerType) else 0


def _through_bytes(d: Distributor, held: SSAValue, signed: bool) -> SSAValue:
    b = d.b
    assert isinstance(held.type, VectorType)
    count = held.type.get_shape()[0]
    pairs = b.value(vector.BitcastOp(held, VectorType(i16, [count // 2])))
    words = b.value(arith.ExtUIOp(pairs, VectorType(i32, [count // 2])))  # pyright: ignore
    high, spread = b.constant(i32, 0x01010101 * HIGH), b.constant(i32, SPREAD)
    made: list[SSAValue] = []
    for i in range(count // 2):
        pair = b.value(mach.InstrOp("nvptx.prmt", [b.extract(words, i), high, spread], [i32]))
        if signed:
            pair = b.value(arith.XOrIOp(pair, b.constant(i32, 0x00800080)))
        made.append(pair)
    return _less(d, _vector(d, made), count, FIRST + (128 if signed else 0))


def _less(d: Distributor, words: SSAValue, count: int, by: int) -> SSAValue:
    """The f16 that words hold, less a number."""
    b, type = d.b, VectorType(Float16Type(), [count])
    values = b.value(vector.BitcastOp(words, type))
    return b.value(arith.SubfOp(values, b.constant(type, float(by))))


def _through_f32(d: Distributor, held: SSAValue, op: Operation) -> SSAValue:
    b = d.b
    assert isinstance(held.type, VectorType)
    count = held.type.get_shape()[0]
    wide = VectorType(f32, [count])
    kind = arith.SIToFPOp if op.name == "arith.sitofp" else arith.UIToFPOp
    values = b.value(kind(held, wide))  # pyright: ignore
    made: list[SSAValue] = []
    for i in range(0, count, 2):
        pair = [b.extract(values, i + 1), b.extract(values, i)]
        made.append(b.value(mach.InstrOp("nvptx.cvt.rn.bf16x2.f32", pair, [i32])))
    words = _vector(d, made)
    return b.value(vector.BitcastOp(words, VectorType(BFloat16Type(), [count])))


def _vector(d: Distributor, words: list[SSAValue]) -> SSAValue:
    made = d.b.constant(VectorType(i32, [len(words)]), 0)
    for place, word in enumerate(words):
        made = d.b.value(vector.InsertOp(word, made, [place]))
    return made
