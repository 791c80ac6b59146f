"""tile_mma: operands through shared memory, ldmatrix, mma.sync; or multiply-add element by element.

The simple path, right for every product: what the operands' fragments hold is written to shared memory
in the order in which they hold it, all threads meet, and each warp reads the fragments that its
instructions want. An operand that is already held as its fragment wants it (the result of another
product of the same rows) stays in registers. Stages in flight are `stage` passes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial, reduce
from math import gcd

import numpy as np
from xdsl.dialects import arith, math, scf, vector
from xdsl.dialects.builtin import AnyFloat, Float64Type, FloatTF32Type, VectorType, f16, f32, i32
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import element_of, itemsize
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.arith import cast_to, with_element
from tilewright.frozen import frozen, record
from tilewright.layout import Axis, Layout, LayoutError, Swizzle
from tilewright.layout.memory import strided
from tilewright.targets.cuda.access import splat_mask
from tilewright.targets.cuda.blocked import run_along
from tilewright.targets.cuda.distribute import Distributor, Fragment, rule
from tilewright.targets.cuda.exchange import (
    addresses,
    conversion,
    extent_bytes,
    free_place,
    load_fragment,
    load_matrix,
    matrices,
    pointers_of,
    store_fragment,
)
from tilewright.targets.cuda.products import ProductPlan, dtype_of
from tilewright.targets.cuda.sync import MemoryRange
from tilewright.uarch.nvidia import LANES

ROW_BYTES = 16


@record
class StagedOperand:
    """An operand in shared memory; the offset of one that the compiler did not put there just now is
    any index."""

    offset: Idx
    memory: Layout
    element: Attribute
    slots: MemoryRange | None = None
    """Of the multi-buffer that it lies in."""

    @property
    def range(self) -> MemoryRange:
        """Its bytes, from an offset that is a number on."""
        assert isinstance(self.offset, int)
        return MemoryRange(
            self.offset, self.offset + extent_bytes(self.memory, itemsize(self.element))
        )


@rule("xetile.tile_mma")
def tile_mma(d: Distributor, op: xt.TileMmaOp) -> None:
    plan = d.ownership.products[op]
    if plan.instruction is None:
        by_elements(d, op, plan)
        return
    assert plan.a is not None and plan.b is not None
    wanted = (plan.a, plan.b)
    held: dict[int, Fragment] = {}
    staged: list[StagedOperand | None] = []
    for side, (value, want) in enumerate(zip((op.a, op.b), wanted, strict=True)):
        if value in d.in_shared:
            staged.append(d.in_shared[value])
            continue
        held[side] = fragment = _prepared(d, value, want)
        # What is held by the right lanes needs no memory.
        inside = conversion(fragment.layout, want)[1] is not None
        staged.append(None if inside else stage(d, fragment, op))
    accumulator = (
        d.fragment_of(op.c, plan.c).value
        if op.c is not None
        else d.b.constant(d.fragment_type(op.result.type, plan.c), 0)
    )
    found = [
        place or words(d, d.convert(held[side], wanted[side]).value, plan)
        for side, place in enumerate(staged)
    ]
    # Memory is read while the product is made: what makes all threads meet stands before.
    places = [place for place in staged if place is not None]
    d.hazards.read(d, *(p.slots for p in places if p.slots is not None), lasts=False)
    d.hazards.read(d, *(p.range for p in places if p.slots is None and isinstance(p.offset, int)))
    parts = [
        read_operand(d, each, want, plan) if isinstance(each, StagedOperand) else each
        for each, want in zip(found, wanted, strict=True)
    ]
    total = multiply(d, plan, parts[0], parts[1], accumulator)
    for side, place in enumerate(staged):
        if side in held and place is not None:
            assert isinstance(place.offset, int)
            d.shared.release(place.offset)
    d.set_fragment(op.result, total, plan.c)


HELD = 32
"""Words of an operand that a thread holds through a loop."""


def hold_operands(d: Distributor, loop: scf.ForOp) -> None:
    """What products of a loop read in every iteration, and no iteration makes, is brought to the threads once."""
    for op in loop.walk():
        if (
            not isinstance(op, xt.TileMmaOp)
            or (plan := d.ownership.products[op]).instruction is None
        ):
            continue
        for value, want in ((op.a, plan.a), (op.b, plan.b)):
            assigned = d.assigned(value)
            outside = not loop.is_ancestor(value.owner)
            if want is None or assigned is None or not outside or value in d.in_shared:
                continue
            size = itemsize(element_of(value.type))
            if want.registers * size <= 4 * HELD and conversion(assigned, want)[1] is None:
                d.fragment_of(value, want)


def _prepared(d: Distributor, value: SSAValue, want: Layout) -> Fragment:
    """An operand in the element type that the instruction takes, in registers."""
    near = d.assigned(value) is None or d.is_at_hand(value, want)
    fragment = d.fragment_of(value, want if near else None)
    element = fragment.element
    if element.name.startswith("f8"):
        wide = VectorType(f16, [fragment.layout.registers])
        return Fragment(d.b.value(arith.ExtFOp(fragment.value, wide)), fragment.layout)
    return fragment


def stage(d: Distributor, fragment: Fragment, op: Operation) -> StagedOperand:
    """Write an operand to shared memory; it may be read after the next `hazards.read`."""
    size = itemsize(fragment.element)
    memory = operand_memory(fragment.layout, size)
    need = extent_bytes(memory, size)
    offset = free_place(d, need, "an operand of a product", op)
    d.hazards.write(d, MemoryRange(offset, offset + need))
    store_fragment(d, fragment, memory, offset)
    return StagedOperand(offset, memory, fragment.element)


@lru_cache(maxsize=512)
def operand_memory(layout: Layout, size: int) -> Layout:
    """Contiguous along the dimension that a lane holds runs of; rows swizzled in chunks of 16 bytes,
    or padded by 16 bytes where they are no power of two."""
    fast, _ = run_along(layout)
    other = 1 - fast
    row = layout.shape[fast] * size
    steps = [0, 0]
    steps[fast], steps[other] = 1, layout.shape[fast]
    for width in (128, 64, 32):
        if row % width == 0 and row & (row - 1) == 0 and (row == width or width == 128):
            # Rows longer than the swizzle's span XOR the chunk with the row all the same.
            shift = max(3, (row // 16).bit_length() - 1) if row >= 128 else 3
            base = (16 // size).bit_length() - 1
            bits = (width // 16).bit_length() - 1
            memory = strided(layout.shape, steps, Swizzle(bits, base, shift))
            try:
                addresses(layout, memory, size)
            except LayoutError:
                continue
            return memory
    pad = max(1, ROW_BYTES // size)
    steps[other] = -(-layout.shape[fast] // pad) * pad + pad
    return strided(layout.shape, steps)


@record
class OperandWords:
    """An operand's fragment as the words that instructions take, in parts that are read when they are first needed.

    So a product holds what one step of k takes, not whole operands.
    """

    parts: list[SSAValue | Callable[[], SSAValue]]
    each: int
    """Words of one part."""

    def part(self, at: int) -> SSAValue:
        found = self.parts[at]
        if not isinstance(found, SSAValue):
            found = self.parts[at] = found()
        return found

    def take(self, d: Distributor, first: int, count: int) -> SSAValue:
        """Some consecutive words."""
        at, inside = divmod(first, self.each)
        if inside + count <= self.each:
            return d.pick(self.part(at), range(inside, inside + count))
        last = (first + count - 1) // self.each
        whole = d.concatenate([self.part(i) for i in range(at, last + 1)])
        return d.pick(whole, range(inside, inside + count))


def words(d: Distributor, value: SSAValue, plan: ProductPlan) -> OperandWords:
    """A fragment as the 32-bit words that instructions take (f64 stays)."""
    assert isinstance(value.type, VectorType)
    (count,) = value.type.get_shape()
    if isinstance(value.type.element_type, Float64Type):
        return OperandWords([value], count)
    count //= plan.pack
    return OperandWords([d.b.value(vector.BitcastOp(value, VectorType(i32, [count])))], count)


# Reading fragments ------------------------------------------------------------------------------


def read_operand(
    d: Distributor, staged: StagedOperand, want: Layout, plan: ProductPlan
) -> OperandWords:
    """The fragment of one operand as words: by ldmatrix where its rows lie so, else by plain loads."""
    size = itemsize(staged.element)
    found = matrices(want, staged.memory, size, d.team.warps) if plan.pack * size == 4 else None
    if found is None:
        return words(d, load_fragment(d, want, staged.memory, staged.offset, staged.element), plan)
    pointers = pointers_of(d, found.at, staged.offset)
    return OperandWords([partial(load_matrix, d, found, p) for p in pointers], found.count)


FEW_SUMS = 2
"""Accumulators of a warp whose instructions would wait for one another: as many as one takes turns."""

# Multiplying ------------------------------------------------------------------------------------


def multiply(
    d: Distributor, plan: ProductPlan, a: OperandWords, b: OperandWords, c: SSAValue
) -> SSAValue:
    """All instructions of one product: k outermost, so that accumulators rest between two uses. Where these are few,
    they are summed in two parts, every other step of k in each, and no instruction waits for the one before."""
    assert plan.instruction is not None and plan.a is not None and plan.b is not None
    element = c.type.element_type  # pyright: ignore
    wm, wn = plan.grid
    m, n = plan.c.shape
    k = plan.a.shape[1]
    tiles_m, tiles_n, tiles_k = m // (plan.rows * wm), n // (plan.columns * wn), k // plan.k
    rows = max(8, plan.rows)
    na = rows * plan.k // LANES // plan.pack
    nb = 8 * plan.k // LANES // plan.pack
    nc = rows * 8 // LANES
    parts = [d.pick(c, range(i * nc, (i + 1) * nc)) for i in range(tiles_m * tiles_n)]
    type = VectorType(element, [nc])
    sums = [parts]
    if len(parts) <= FEW_SUMS and tiles_k >= 4:
        sums.append([d.b.constant(type, 0)] * len(parts))
    for step in range(tiles_k):
        parts = sums[step % len(sums)]
        left = [a.take(d, (i * tiles_k + step) * na, na) for i in range(tiles_m)]
        right = [b.take(d, (j * tiles_k + step) * nb, nb) for j in range(tiles_n)]
        for i in range(tiles_m):
            # Back and forth along n: the last B is the next first.
            for j in range(tiles_n) if i % 2 == 0 else reversed(range(tiles_n)):
                at = i * tiles_n + j
                op = mach.InstrOp(
                    plan.instruction,
                    [left[i], right[j], parts[at]],
                    [type],
                )
                parts[at] = d.b.value(op)
    add = arith.AddfOp if isinstance(element, AnyFloat) else arith.AddiOp
    found = zip(*sums, strict=True)
    return d.concatenate([reduce(lambda x, y: d.b.value(add(x, y)), each) for each in found])


# Element by element -----------------------------------------------------------------------------


MOST_STAGED = 64 << 10
"""Bytes of both operands that stand in shared memory at once; longer products go in steps of k."""


@frozen
class OperandRows:
    """An operand's part in shared memory: elements of row r from `offset + r * step` on."""

    offset: int
    step: int
    element: Attribute


def by_elements(d: Distributor, op: xt.TileMmaOp, plan: ProductPlan) -> None:
    """Any types and extents: both operands in shared memory, one step of k after the other."""
    b = d.b
    c_type = d.fragment_type(op.result.type, plan.c)
    element = c_type.element_type
    compute = _compute_type(element)
    m, k = op.a.type.get_shape()  # pyright: ignore
    n = op.b.type.get_shape()[1]  # pyright: ignore
    signs = [dtype_of(v.type) for v in (op.a, op.b)]
    sides = [d.fragment_of(value) for value in (op.a, op.b)]
    widths = [itemsize(f.element) for f in sides]
    depth = k
    while depth > 1 and m * depth * widths[0] + depth * n * widths[1] > MOST_STAGED:
        depth = -(-depth // 2)
    start = d.fragment_of(op.c, plan.c).value if op.c is not None else b.constant(c_type, 0)
    wide = VectorType(compute, [plan.c.registers])
    total = _extended(b, start, wide, True)
    rows, cols = plan.c.contracted(1), plan.c.contracted(0)
    coords = plan.c.register_steps
    zero = np.zeros_like(coords[0])
    pick_a = [int(r) for r in rows.index(Axis.REGISTER, (coords[0], zero))]
    pick_b = [int(r) for r in cols.index(Axis.REGISTER, (zero, coords[1]))]
    steps = [
        -(-length // 4) * 4 + max(1, 4 // width)
        for length, width in zip((depth, n), widths, strict=True)
    ]
    steps[1] = -(-n * widths[1] // ROW_BYTES) * ROW_BYTES // widths[1]
    needs = [m * steps[0] * widths[0], depth * steps[1] * widths[1]]
    offsets = [d.shared.allocate(x, "an operand of a product", op=op) for x in needs]
    places = [MemoryRange(o, o + x) for o, x in zip(offsets, needs, strict=True)]
    staged = [OperandRows(o, s, f.element) for o, s, f in zip(offsets, steps, sides, strict=True)]
    for first in range(0, k, depth):
        count = min(depth, k - first)
        for side, (fragment, place) in enumerate(zip(sides, places, strict=True)):
            d.hazards.write(d, place)
            _store_part(d, fragment, staged[side], 1 - side, first, count)
        d.hazards.read(d, *places)
        with b.loop(0, count, 1, [total], nonempty=True) as loop:
            x = _column(d, staged[0], rows, b.idx(loop.iv), 0)
            y = _column(d, staged[1], cols, b.idx(loop.iv), 1)
            x = d.pick(_extended(b, x, compute, signs[0].is_signed), pick_a)
            y = d.pick(_extended(b, y, compute, signs[1].is_signed), pick_b)
            if isinstance(compute, AnyFloat):
                loop.out = [b.value(math.FmaOp(x, y, loop.carried[0]))]
            else:
                loop.out = [b.value(arith.AddiOp(loop.carried[0], b.value(arith.MuliOp(x, y))))]
        total = loop.results[0]
    for offset in offsets:
        d.shared.release(offset)
    if compute != element:
        total = b.value(arith.TruncFOp(total, c_type))
    d.set_fragment(op.result, total, plan.c)


def _store_part(
    d: Distributor, fragment: Fragment, to: OperandRows, dim: int, first: int, count: int
) -> None:
    """The elements with `first <= coordinate[dim] < first + count`, the first at offset 0 along dim."""
    b = d.b
    layout = fragment.layout
    size = itemsize(fragment.element)
    along, run = run_along(layout)
    width = 1
    if along == 1:
        width = gcd(run, gcd(max(1, ROW_BYTES // size), to.step))
        if dim == 1:
            width = gcd(width, gcd(first or width, count))
    starts, constants = d.coordinates(layout), layout.register_steps
    table = layout.table()[dim].reshape(-1, layout.registers)
    pointer = d.shared_pointer(
        b.plus(
            b.plus(b.times(starts[0], to.step * size), b.times(starts[1], size)),
            to.offset - first * (1 if dim else to.step) * size,
        )
    )
    for r in range(0, layout.registers, width):
        inside = (table[:, r] >= first) & (table[:, r] < first + count)
        if not inside.any():
            continue
        at = int(constants[0][r]) * to.step + int(constants[1][r])
        part = d.pick(fragment.value, range(r, r + width))
        here = b.ptr(pointer, at * size)
        if inside.all():
            b.store(part, here, align=width * size)
            continue
        place = b.plus(starts[dim], int(constants[dim][r]))
        test = b.both(b.cmp("sge", place, first), b.cmp("slt", place, first + count))
        assert test is not None
        mask = splat_mask(d, test, width)
        b.op(mach.MaskedStoreOp(part, here, mask, alignment=width * size))


def _compute_type(element: Attribute) -> Attribute:
    if isinstance(element, AnyFloat):
        return element if isinstance(element, Float64Type) else f32
    return element


def _extended(b: Builder, x: SSAValue, wanted: Attribute, signed: bool) -> SSAValue:
    """A fragment in a wider element type."""
    element, have = element_of(wanted), element_of(x.type)
    if have == element:
        return x
    type = with_element(x.type, element)
    if isinstance(have, FloatTF32Type):
        return b.value(arith.BitcastOp(x, type))
    return b.value(cast_to(x, type, unsigned=not signed))


def _column(
    d: Distributor, rows: OperandRows, layout: Layout, k: SSAValue, k_is_row: int
) -> SSAValue:
    """What a thread needs of column k of A (`layout`: rows x 1), or of row k of B (1 x columns)."""
    b = d.b
    size = itemsize(rows.element)
    step, other = (rows.step, 1) if k_is_row else (1, rows.step)
    dim = 1 if k_is_row else 0
    start = d.coordinates(layout)[dim]
    constants = layout.register_steps[dim]
    pointer = d.shared_pointer(
        b.plus(b.plus(b.times(k, step * size), b.times(start, other * size)), rows.offset)
    )
    run = 1
    if k_is_row:
        along, length = run_along(layout)
        if along == 1:
            run = gcd(length, gcd(max(1, ROW_BYTES // size), rows.step))
    type = VectorType(rows.element, [run])  # pyright: ignore
    parts = [
        b.load(b.ptr(pointer, int(constants[i]) * other * size), type, align=run * size)
        for i in range(0, len(constants), run)
    ]
    return d.concatenate(parts)
