"""Families of dot products: instructions that add the products of two or four consecutive k to each accumulator.

The machine's table names them (`MicroKernel.instruction`), with the types that they multiply. Bytes serve instructions
of 16 bits widened. Bytes of signs that no instruction multiplies are made to fit by packing A with its top bit flipped
(`biased`), as vpdpbusd, which multiplies unsigned by signed bytes, needs it for factors of the same sign: A is then
stored as A + bias with bias = 128 (signed) or -128 (unsigned), and since

    sum (A + bias) B = sum A B + bias * sum B

the accumulators of a column start from -bias * sum B, which the same instruction gives with ones for A: once per panel
of B, in a loop of its own. Sums wrap modulo 2^32, and so does this identity.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IntegerType, Signedness, VectorType, i32
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.instructions import find
from tilewright.codegen.tiles import itemsize
from tilewright.dialects import mach
from tilewright.targets.cpu.family import Family, PanelOperand
from tilewright.targets.cpu.machine import CpuMachine
from tilewright.targets.cpu.panels import PanelFormat
from tilewright.uarch.cpu import MicroKernel


def dot_family_of(m: CpuMachine, a: VectorType, b: VectorType, c: Attribute) -> Family | None:
    """The family for tiles A and B and the element type of C; None where no dot product serves them."""
    x, y = a.element_type, b.element_type
    able = [(kernel, *fit) for kernel in m.dots for fit in _fits(kernel, x, y, c)]
    if not able:
        return None
    # What multiplies most at once; of those one that takes A as it is.
    kernel, biased, swapped = min(able, key=lambda found: (-found[0].group, found[1]))
    integers = isinstance(x, IntegerType)
    element = IntegerType(int(kernel.types[0][1:])) if integers else x
    left = PanelFormat(m.mr, kernel.group, element, is_unsigned(x), biased)
    right = PanelFormat(m.nr(4), kernel.group, element, is_unsigned(y))
    return Family(
        "dot",
        i32 if integers else c,
        m.mr,
        right.lanes,
        left,
        right,
        m.kc,
        m.panels,
        kernel.instruction,
        swapped,
    )


def _fits(kernel: MicroKernel, x: Attribute, y: Attribute, c: Attribute) -> list[tuple[bool, bool]]:
    """Ways to multiply x by y with a kernel: with A biased, with the factors swapped."""
    sums = f"i{c.width.data}" if isinstance(c, IntegerType) else _name(c)  # of either sign
    if sums != kernel.types[2]:
        return []
    flipped = {"i8": "u8", "u8": "i8"}
    found: list[tuple[bool, bool]] = []
    for swapped in (False, True):
        left, right = kernel.types[1::-1] if swapped else kernel.types[:2]
        if right not in (_name(y), _widened(y)):
            continue
        if left in (_name(x), _widened(x)):
            found.append((False, swapped))
        elif left == flipped.get(_name(x)):
            found.append((True, swapped))
    return found


def _name(type: Attribute) -> str:
    """A type as tables call it."""
    if isinstance(type, IntegerType):
        return f"{'u' if is_unsigned(type) else 'i'}{type.width.data}"
    return str(type)


def _widened(type: Attribute) -> str:
    """What it may be widened to while it is packed."""
    return "i16" if _name(type) in ("i8", "u8") else ""


def is_unsigned(type: Attribute) -> bool:
    return isinstance(type, IntegerType) and type.signedness.data == Signedness.UNSIGNED


def spread_group(b: Builder, at: SSAValue, factors: VectorType, group: int) -> SSAValue:
    """The group of k of one row that lies at an address, once for each sum that `factors` are added to."""
    lanes, element = factors.get_shape()[0] // group, factors.element_type
    if group == 1:
        return b.splat(b.load(at, element), lanes)
    one = b.load(at, IntegerType(8 * group * itemsize(element)))
    return b.value(vector.BitcastOp(b.splat(one, lanes), factors))


def spread(b: Builder, ones: Sequence[SSAValue], factors: VectorType, group: int) -> SSAValue:
    """The first elements of a group, the others zero, once for each sum that `factors` are added to."""
    size, lanes = 8 * itemsize(factors.element_type), factors.get_shape()[0] // group
    word, all = IntegerType(size), IntegerType(size * group)
    found = b.constant(all, 0)
    for g, one in enumerate(ones):
        bits = b.value(arith.ExtUIOp(b.value(arith.BitcastOp(one, word)), all))
        bits = b.value(arith.ShLIOp(bits, b.constant(all, g * size))) if g else bits
        found = b.value(arith.OrIOp(found, bits)) if g else bits
    return b.value(vector.BitcastOp(b.splat(found, lanes), factors))


def add_dot(b: Builder, family: Family, c: SSAValue, x: SSAValue, y: SSAValue) -> SSAValue:
    """c + x y; x stands for an A as it is stored."""
    factors = (y, x) if family.swapped else (x, y)
    entry = find(family.instruction)
    assert entry is not None
    if len(entry.operands) == 3:
        return b.value(mach.InstrOp(entry.name, [c, *factors], [c.type]))
    return b.value(arith.AddiOp(c, b.value(mach.InstrOp(entry.name, factors, [c.type]))))


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
            add_dot(b, family, sums, ones, b.load(b.ptr(row, v * lanes * 4), factors))
            for v, sums in enumerate(loop.carried)
        ]
    minus_bias = b.constant(zero.type, 128 if family.a.unsigned else -128)
    return [b.value(arith.MuliOp(sums, minus_bias)) for sums in loop.results]
