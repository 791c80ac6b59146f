"""Families of dot products: instructions that add the products of two or four consecutive k to each accumulator.

    dot2      i16 pairs   vpmaddwd + add, or vpdpwssd where LLVM finds it    8- and 16-bit factors, widened
    dot4      i8 quads    vpdpbusd                                           8-bit factors of any signs
    bf16dot2  bf16 pairs  vdpbf16ps                                          where the core does it faster than f32 FMA

vpdpbusd multiplies unsigned by signed bytes. Factors of the same sign are made to differ by packing A with its top bit
flipped (`biased`): A is then stored as A + bias with bias = 128 (signed) or -128 (unsigned), and since

    sum (A + bias) B = sum A B + bias * sum B

the accumulators of a column start from -bias * sum B, which the same instruction gives with ones for A: once per panel
of B, in a loop of its own. Sums wrap modulo 2^32, and so does this identity.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import BFloat16Type, Float32Type, IntegerType, VectorType, bf16, f32, i32
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.dialects import mach
from tilewright.targets.cpu.family import Family, PanelOperand
from tilewright.targets.cpu.machine import X86Machine
from tilewright.targets.cpu.memory import itemsize
from tilewright.targets.cpu.panels import PanelFormat

i8, i16 = IntegerType(8), IntegerType(16)


def dot_family_of(m: X86Machine, a: VectorType, b: VectorType, c: Attribute) -> Family | None:
    """The family for tiles A and B and the element type of C; None where no dot product serves them."""
    x, y = a.element_type, b.element_type
    nr = m.nr(4)
    if isinstance(c, Float32Type):
        pairs = isinstance(x, BFloat16Type) and isinstance(y, BFloat16Type)
        if not (m.bf16_dots and pairs):
            return None
        left, right = PanelFormat(m.mr, 2, bf16), PanelFormat(nr, 2, bf16)
        return Family("bf16dot2", f32, m.mr, nr, left, right, m.kc, m.panels)
    if not (isinstance(c, IntegerType) and c.width.data == 32):
        return None
    unsigned = is_unsigned(x), is_unsigned(y)
    if itemsize(x) == itemsize(y) == 1 and _multiplies_bytes(m):
        left = PanelFormat(m.mr, 4, i8, unsigned[0], biased=unsigned[0] == unsigned[1])
        return Family(
            "dot4", i32, m.mr, nr, left, PanelFormat(nr, 4, i8, unsigned[1]), m.kc, m.panels
        )
    if _fits_i16(x) and _fits_i16(y) and m.vector_bytes >= 32:
        left = PanelFormat(m.mr, 2, i16, unsigned[0])
        return Family(
            "dot2", i32, m.mr, nr, left, PanelFormat(nr, 2, i16, unsigned[1]), m.kc, m.panels
        )
    return None


def is_unsigned(type: Attribute) -> bool:
    from xdsl.dialects.builtin import Signedness

    return isinstance(type, IntegerType) and type.signedness.data == Signedness.UNSIGNED


def _multiplies_bytes(m: X86Machine) -> bool:
    if m.vector_bytes == 64:
        return m.has("avx512vnni")
    return m.vector_bytes == 32 and m.has("avxvnni")


def _fits_i16(type: Attribute) -> bool:
    return itemsize(type) == 1 or (itemsize(type) == 2 and not is_unsigned(type))


def dot_step(
    b: Builder,
    family: Family,
    pas: Sequence[SSAValue],
    pbs: Sequence[SSAValue],
    lanes: int,
    acc: Sequence[SSAValue],
) -> list[SSAValue]:
    """One group of k: a row of B, at `pbs`, in registers; groups of A, at `pas`, broadcast from memory."""
    out, nv = list(acc), len(pbs)
    factors = VectorType(family.a.element, [lanes * family.group])  # pyright: ignore
    rows = [b.load(pb, factors) for pb in pbs]
    for r, pa in enumerate(pas):
        group = b.splat(b.load(pa, i32), lanes)
        spread = b.value(vector.BitcastOp(group, factors))
        for v in range(nv):
            at = r * nv + v
            out[at] = _add_dot(b, family, lanes, out[at], spread, rows[v])
    return out


def _add_dot(
    b: Builder, family: Family, lanes: int, c: SSAValue, x: SSAValue, y: SSAValue
) -> SSAValue:
    """c + x y; x stands for an A as it is stored."""
    bits = lanes * 32
    if family.name == "bf16dot2":
        return b.value(mach.InstrOp(f"x86.vdpbf16ps.{bits}", [c, x, y], [c.type]))
    if family.name == "dot4":
        unsigned = (y, x) if family.b.unsigned else (x, y)
        return b.value(mach.InstrOp(f"x86.vpdpbusd.{bits}", [c, *unsigned], [c.type]))
    # LLVM fuses the product and the addition where the machine has VNNI.
    dots = b.value(mach.InstrOp(f"x86.vpmaddwd.{bits}", [x, y], [c.type]))
    return b.value(arith.AddiOp(c, dots))


def first_sums(
    b: Builder, family: Family, bb: PanelOperand, depth: Idx, lanes: int
) -> list[SSAValue]:
    """What the accumulators of a row start from, for `depth` k of a panel of B: minus what the bias of A will add.

    Once per panel of B, for all panels of A.
    """
    nv = family.nr // lanes
    factors = VectorType(family.b.element, [lanes * family.group])  # pyright: ignore
    zero = b.constant(VectorType(i32, [lanes]), 0)
    ones = b.constant(factors, 1)
    with b.loop(0, b.div(depth, family.group), 1, [zero] * nv) as loop:
        row = b.ptr(bb.pointer, b.times(loop.iv, bb.k_bytes))
        loop.out = [
            _add_dot(b, family, lanes, sums, ones, b.load(b.ptr(row, v * lanes * 4), factors))
            for v, sums in enumerate(loop.carried)
        ]
    minus_bias = b.constant(zero.type, 128 if family.a.unsigned else -128)
    return [b.value(arith.MuliOp(sums, minus_bias)) for sums in loop.results]
