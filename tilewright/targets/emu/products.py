"""dpas: products of a subgroup, on whole tiles or on the fragments of its lanes.

Operands are brought into rows (a permutation, free for the usual fragments) and widened; then
`C[m, :] += A[m, k] * B[k, :]` for k in order, in blocks of at most 8 rows and 32 columns of C in registers; the
elements of A are read from memory as broadcasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.arith import FastMathFlagsAttr
from xdsl.dialects.builtin import (
    AnyFloat,
    Float4E2M1FNType,
    Float64Type,
    IntegerType,
    Signedness,
    f16,
    f32,
    i16,
    i32,
)
from xdsl.dialects.utils import FastMathFlag
from xdsl.ir import Attribute, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.upstream.arith import cast_to, element_bits
from tilewright.dialects.xegpu import elements
from tilewright.dialects.xegpu.elements import Numbers
from tilewright.targets.emu.blocks import arrange
from tilewright.targets.emu.builder import (
    EmuBuilder,
    Idx,
    element_bytes,
    element_of,
    vec,
    with_element,
)
from tilewright.targets.emu.lowering import Lowering, lowers

CONTRACT = FastMathFlagsAttr([FastMathFlag.ALLOW_CONTRACT])


@lowers("xegpu.dpas")
def dpas(low: Lowering, op: xegpu.DpasOp) -> None:
    low.together()
    a, b = low.wide(op.lhs), low.wide(op.rhs)
    c = None if op.acc is None else low.wide(op.acc)
    of_a, of_b, of_c = elements.multiplied(op, low.lanes)
    signs = tuple(_signed(x.type) for x in (op.lhs, op.rhs))
    low.set(op.result, product(low, (a, of_a), (b, of_b), (c, of_c), result_of(low, op), signs))


@lowers("arith.extf")
def extf(low: Lowering, op: arith.ExtFOp) -> None:
    """4-bit floats are kept in bytes, and go through f32."""
    element = element_of(op.input.type)
    if not isinstance(element, Float4E2M1FNType):
        low.elementwise(op)
        return
    wide = as_f32(low.b, low.wide(op.input), element)
    low.set(op.result, converted(low.b, wide, element_of(op.result.type)))


def as_f32(b: EmuBuilder, value: SSAValue, element: Attribute) -> SSAValue:
    """Small floats, whatever bits they are kept in, as f32; exact."""
    if not isinstance(element, Float4E2M1FNType):
        return converted(b, value, f32)
    # Sign, two bits of exponent (bias 1) and one of mantissa lie in f16 where its own do, of which the bias is 14 more.
    bits = b.value(arith.ExtUIOp(value, with_element(value.type, i16)))  # pyright: ignore
    parts = [
        arith.ShLIOp(
            b.value(arith.AndIOp(bits, b.constant(bits.type, mask))), b.constant(bits.type, up)
        )
        for mask, up in ((7, 9), (8, 12))
    ]
    sign, rest = map(b.value, parts)
    wide = converted(b, b.bitcast(b.value(arith.OrIOp(sign, rest)), f16), f32)
    return b.value(arith.MulfOp(wide, b.constant(wide.type, 2.0**14)))


def result_of(low: Lowering, op: Any) -> Attribute:
    return low.widened(op.result.type) if low.lanes > 1 else op.result.type


def _signed(type: Attribute) -> bool:
    element = element_of(type)
    return not (isinstance(element, IntegerType) and element.signedness.data is Signedness.UNSIGNED)


Operand = tuple[SSAValue, Numbers]


def product(
    low: Lowering,
    a: Operand,
    b: Operand,
    c: tuple[SSAValue | None, Numbers],
    result: Attribute,
    signs: tuple[bool, ...],
) -> SSAValue:
    """A * B + C of values whose elements are at the given numbers; a value of type `result`."""
    (_, of_a), (_, of_b), (cv, of_c) = a, b, c
    to = compute_type(element_of(result))
    places = [_rows(low, *x, to, sign) for x, sign in zip((a, b), signs, strict=True)]
    extents = of_a.shape[0], of_b.shape[1], of_a.shape[1]

    def make(build: EmuBuilder, arguments: list[Any]) -> list[SSAValue]:
        left, right = arguments[:2]
        start = arrange(build, arguments[2], of_c) if cv is not None else None
        total = multiply(build, left, right, start, extents, element_of(result))
        back = elements.inverse(of_c, shape_of_type(result))
        return [arrange(build, total, back)]

    return low.b.shared(
        ("dpas", extents, result, of_c), [*places, *([] if cv is None else [cv])], make
    )[0]


def _rows(low: Lowering, value: SSAValue, numbers: Numbers, to: Attribute, sign: bool) -> SSAValue:
    """The address of an operand's rows in memory, widened: written once in a block, for all products that read it."""
    key = (low.b.block, value, numbers.shape, numbers.tobytes(), to, sign)
    found = low.operands.get(key)
    if found is None:
        found = low.operands[key] = low.b.scratch(numbers.size * element_bytes(to))

        def make(build: EmuBuilder, arguments: list[Any]) -> list[SSAValue]:
            rows = converted(build, arrange(build, arguments[0], numbers), to, sign)
            build.write(rows, arguments[1], 64)
            return []

        low.b.shared(("rows", numbers, to, sign), [value, found], make)
    return found


def compute_type(element: Attribute) -> Attribute:
    """In what a product with this accumulator is computed."""
    if isinstance(element, AnyFloat):
        return element if isinstance(element, Float64Type) else f32
    return i32 if element_bits(element) <= 32 else element


def converted(b: EmuBuilder, value: SSAValue, to: Attribute, signed: bool = True) -> SSAValue:
    """Elements as those of another type: exactly in a wider one, else rounded, or wrapped."""
    if element_of(value.type) == to:
        return value
    return b.value(cast_to(value, with_element(value.type, to), unsigned=not signed))


def multiply(
    b: EmuBuilder,
    left: Idx,
    right: Idx,
    start: SSAValue | None,
    extents: tuple[int, int, int],
    element: Attribute,
) -> SSAValue:
    """[m, n] of [m, k] times [k, n], which lie in memory, plus [m, n]."""
    to, (m, n, _) = compute_type(element), extents
    total = b.zeros(vec(to, m, n)) if start is None else converted(b, start, to)
    if (_divisor(m, ROWS), _divisor(n, WIDTHS)) == (m, n) and n > 1:
        rows = [arrange(b, total, np.arange(n) + r * n) for r in range(m)]
        total = b.stack(_block(b, left, right, rows, extents, 0, 0))
    else:
        sums = b.scratch(m * n * element_bytes(to))
        b.write(total, sums, 64)
        _blocks(b, left, right, sums, extents, to)
        total = b.read(vec(to, m, n), sums, 64)
    return converted(b, total, element)


def _fused(b: EmuBuilder, x: SSAValue, y: SSAValue, z: SSAValue) -> SSAValue:
    """x * y + z."""
    if isinstance(element_of(x.type), AnyFloat):
        return b.value(arith.AddfOp(z, b.value(arith.MulfOp(x, y, CONTRACT)), CONTRACT))
    return b.value(arith.AddiOp(z, b.value(arith.MuliOp(x, y))))


def _divisor(number: int, limits: Sequence[int]) -> int:
    return next(x for x in limits if number % x == 0)


ROWS, WIDTHS = (8, 6, 5, 4, 3, 2, 1), (32, 16, 8, 4, 2, 1)
"""Of a block of C in registers."""


def _block(
    b: EmuBuilder,
    left: Idx,
    right: Idx,
    start: Sequence[SSAValue],
    extents: tuple[int, int, int],
    m0: Idx,
    n0: Idx,
) -> list[SSAValue]:
    """The rows of C from m0 and n0 on, of which `start` are the sums so far."""
    _, n, k = extents
    kind: Any = start[0].type
    to = element_of(kind)
    size = element_bytes(to)
    a0, b0 = b.plus(left, b.times(m0, k * size)), b.plus(right, b.times(n0, size))

    with b.loop(0, k, carry=start) as loop:
        row = b.read(kind, b.plus(b0, b.times(loop.iv, n * size)))
        at = b.plus(a0, b.times(loop.iv, size))
        done: list[SSAValue] = []
        for r, total in enumerate(loop.carried):
            value = b.read(to, b.plus(at, r * k * size))
            done.append(_fused(b, value if kind == to else b.broadcast(value, kind), row, total))
        loop.out = done
    return list(loop.results)


def _blocks(
    b: EmuBuilder, left: Idx, right: Idx, sums: Idx, extents: tuple[int, int, int], to: Attribute
) -> None:
    """Loops over blocks of C in memory."""
    m, n, _ = extents
    size = element_bytes(to)
    rows, width = _divisor(m, ROWS), _divisor(n, WIDTHS)
    kind: Any = vec(to, width) if width > 1 else to

    with b.loop(0, n, width) as across, b.loop(0, m, rows) as down:
        m0, n0 = down.iv, across.iv
        corner = b.plus(b.plus(sums, b.times(n0, size)), b.times(m0, n * size))
        start = [b.read(kind, b.plus(corner, r * n * size)) for r in range(rows)]
        for r, value in enumerate(_block(b, left, right, start, extents, m0, n0)):
            b.write(value, b.plus(corner, r * n * size))
