"""Micro-kernels: C[mr x nr] += A[mr x k] B[k x nr], the innermost loop of a contraction.

One generator per family of instructions. The operands come with compile-time strides, so both packed panels and plain
row-major buffers serve; C is a row-major buffer that stays in cache, and is read and written once per block of k.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, IntegerType, VectorType, f32
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import itemsize, plain, rows_cols
from tilewright.dialects import mach
from tilewright.targets.cpu.amx import (
    AMX_ROWS,
    TILE_BYTES,
    TILE_ROWS,
    amx_instruction,
    emit_amx,
    parts_of,
)
from tilewright.targets.cpu.dots import (
    add_dot,
    dot_family_of,
    first_sums,
    is_unsigned,
    spread_group,
)
from tilewright.targets.cpu.family import Family, Fetch, FetchWhere, PanelOperand
from tilewright.targets.cpu.machine import CpuMachine
from tilewright.targets.cpu.memory import Block, Buffer
from tilewright.targets.cpu.panels import PanelFormat

AMX_STEPS = 16
"""Steps of tiles per block of k: a panel of B of that depth stays in the first cache."""
UNROLL = 2
"""Steps of k per iteration, where that is faster: one cache line of a packed A of four-byte elements."""
ADDRESSES = 10
"""Rows of A, and panels of B, whose addresses an iteration of so many steps keeps in registers."""


def family_of(
    m: CpuMachine, a: VectorType, b: VectorType, c: Attribute, swapped: bool = False
) -> Family:
    """The family for tiles A and B (unsigned integers as `ui8` and the like) and the element type of C; `swapped`:
    for A^T and B^T, which are given the other way round."""
    amx = amx_instruction(m, a, b, c)
    if amx is not None:
        group = TILE_BYTES // itemsize(a.element_type)
        mr, nr = (
            TILE_ROWS if rows_cols(x)[axis ^ swapped] <= TILE_ROWS else AMX_ROWS
            for axis, x in enumerate((a, b))
        )
        left, right = (
            PanelFormat(lanes, k, plain(x.element_type), parts=parts_of(m, x.element_type, k))
            for lanes, x, k in ((mr, a, group), (nr, b, group // TILE_ROWS))
        )
        return Family(amx, c, mr, nr, left, right, AMX_STEPS * group // left.parts)
    return vector_family_of(m, a, b, c)


def vector_family_of(m: CpuMachine, a: VectorType, b: VectorType, c: Attribute) -> Family:
    """The family of vector instructions."""
    dots = dot_family_of(m, a, b, c)
    if dots is not None:
        return dots
    if isinstance(c, AnyFloat):
        element = c if itemsize(c) == 8 else f32
        nr = m.nr(itemsize(element))
        left, right = PanelFormat(m.mr, 1, element), PanelFormat(nr, 1, element)
        return Family("fma", element, m.mr, nr, left, right, m.kc, m.panels)
    assert isinstance(c, IntegerType)
    nr = m.nr(itemsize(c))
    left = PanelFormat(m.mr, 1, c, is_unsigned(a.element_type))
    right = PanelFormat(nr, 1, c, is_unsigned(b.element_type))
    return Family("mul", c, m.mr, nr, left, right, m.kc, m.panels)


def panel_start(
    b: Builder, m: CpuMachine, family: Family, bb: Sequence[PanelOperand], depth: Idx
) -> Sequence[SSAValue] | None:
    """What the sums of a row start from, computed once for panels of B (see `first_sums`)."""
    if not family.a.biased:
        return None
    return [x for one in bb for x in first_sums(b, family, one, depth, m.vector_bytes // 4)]


def emit_micro(
    b: Builder,
    m: CpuMachine,
    family: Family,
    a: PanelOperand,
    bb: Sequence[PanelOperand],
    c: Buffer,
    row: Idx,
    col: Idx,
    depth: Idx,
    first: SSAValue | None,
    start: Sequence[SSAValue] | None = None,
    fetches: Sequence[Fetch | FetchWhere] = (),
) -> None:
    """C[row.., col..] += A B over `depth` k (a multiple of the family's group); `=` instead of `+=` where `first`.

    `bb`: at most `family.panels` neighbouring panels of B. `start`: what the sums of a row start from (see
    `panel_start`); None for zero.
    """
    if family.tiles:
        emit_amx(b, family, a, bb[0], c, row, col, depth, first, fetches)
        return
    lanes = m.vector_bytes // itemsize(family.accumulator)
    per_panel = family.nr // lanes
    nv = len(bb) * per_panel
    type = VectorType(family.accumulator, [lanes])  # pyright: ignore
    zero = b.constant(type, 0)
    rows = [b.times(r, a.x_bytes) for r in range(family.mr)]
    groups = b.div(depth, family.group)
    target = c.address(b, row, col)
    size = itemsize(c.element)
    pitch = b.times(c.ld, size)
    known = True if first is not None and b.known_bool(first) else None
    block = Block(c, row, col, family.mr, nv, type)
    beyond = block.beyond(b)
    if beyond is not None:
        added = beyond if first is None else b.both(beyond, b.negated(first))
        assert added is not None
        with b.when(added):
            block.copy(b, back=False)
        target = b.value(arith.SelectOp(beyond, block.spare, target))
        pitch = b.select(beyond, nv * m.vector_bytes, pitch)

    def place(r: int, v: int) -> SSAValue:
        return b.ptr(b.ptr(target, b.times(pitch, r)), v * lanes * size)

    def fetch_sums(row: Idx) -> None:
        if not known:
            for line in range(0, len(bb) * family.nr * size, 64):
                b.prefetch(b.ptr(b.ptr(target, b.times(pitch, row)), line), write=True)

    # Beside all columns, what comes next is fetched part by part: all of it at once would keep B waiting.
    in_parts = family.in_place and a.next_bytes is None
    if not in_parts:
        for r in range(family.mr):
            fetch_sums(r)

    # Rows of A where their array has them, beside rows of B, or many panels: the addresses of all are too many for the
    # registers. So rows come one by one, each for several k, if registers hold what B has of these.
    in_rows = not isinstance(bb[0].k_bytes, int)
    many = len(rows) + len(bb) > ADDRESSES or in_rows
    # Dot products of panels take as long one step at a time, and two fifths of the code.
    one = family.group > 1 and not in_rows
    held = (family.mr + UNROLL) * nv < m.vectors.registers
    apart = many and not isinstance(a.x_bytes, int)
    unroll = UNROLL if (held if apart else not one) else 1

    # What stands beside a part of a panel is multiplied, too, if it can be read, and dropped.
    last, whole = bb[-1], [None] * nv
    masks: list[SSAValue | None] = [*whole]
    if last.lanes is not None:
        left = (b.minus(last.lanes, v * lanes) for v in range(per_panel))
        masks[-per_panel:] = (b.mask_first(x, lanes, moves=True) for x in left)

    def steps(
        start: Idx,
        end: Idx,
        count: int,
        carry: Sequence[SSAValue],
        masks: Sequence[SSAValue | None] = whole,
    ) -> Sequence[SSAValue]:
        with b.loop(start, end, count, carry) as loop:
            pa = b.ptr(a.pointer, b.times(loop.iv, a.k_bytes))
            pbs = [b.ptr(one.pointer, b.times(loop.iv, one.k_bytes)) for one in bb]
            if count != unroll:
                pass
            elif a.next_bytes is not None:
                k_bytes = a.k_bytes
                packed = isinstance(k_bytes, int)
                for line in range(0, count * k_bytes, 64) if packed else range(count):
                    ahead = line if packed else b.times(k_bytes, line)
                    b.prefetch(b.ptr(pa, b.plus(a.next_bytes, ahead)))
            elif a.below_bytes != 0:
                # Rows in their array: a line of one of them, by turns, of the block that comes next.
                turn = b.div(loop.iv, UNROLL)
                row = b.times(b.rem(turn, family.mr), a.x_bytes)
                line = b.plus(a.below_bytes, b.times(b.div(turn, family.mr), 64))
                b.prefetch(b.ptr(b.ptr(a.pointer, row), line))
            accumulators = list(loop.carried)
            for at in range(0, count, each := count if apart else 1):
                steps = range(at, at + each)
                for u in steps:
                    for fetch in () if in_parts else fetches:
                        fetch.issue(b, b.plus(loop.iv, u))
                places = [
                    [
                        b.ptr(pb, b.plus(b.times(u, one.k_bytes), v * m.vector_bytes))
                        for pb, one in zip(pbs, bb, strict=True)
                        for v in range(per_panel)
                    ]
                    for u in steps
                ]
                ones = [
                    [b.ptr(b.ptr(pa, row), b.times(u, a.k_bytes)) for u in steps] for row in rows
                ]
                accumulators = _step(b, family, ones, places, masks, lanes, accumulators)
            loop.out = accumulators
        return loop.results

    even = groups if last.lanes is None else b.max(b.min(groups, last.whole), 0)
    even = b.times(b.div(even, unroll), unroll)
    sums: Sequence[SSAValue] = [*(start or [zero] * nv)] * family.mr
    if in_parts:
        each = b.round_up(b.ceildiv(even, family.mr), unroll)
        with b.loop(0, family.mr, 1, sums) as part:
            fetch_sums(part.iv)
            for fetch in fetches:
                fetch.issue(b, part.iv)
            begin = b.times(part.iv, each)
            part.out = steps(begin, b.min(b.plus(begin, each), even), unroll, part.carried)
        sums = part.results
    elif even != 0:
        sums = steps(0, even, unroll, sums)
    if even is not groups and (not isinstance(groups, int) or groups != even):
        sums = steps(even, groups, 1, sums, masks)
    sums = [
        x if mask is None else b.value(arith.SelectOp(mask, x, zero))
        for x, mask in zip(sums, masks * family.mr, strict=True)
    ]
    cells = [(r, v, sums[r * nv + v]) for r in range(family.mr) for v in range(nv)]

    def write() -> None:
        for r, v, value in cells:
            b.store(value, place(r, v))

    def update() -> None:
        for r, v, value in cells:
            pointer = place(r, v)
            b.store(_add(b, value, b.load(pointer, type)), pointer)

    if first is None:
        update()
    else:
        b.choose(first, write, update)
    if beyond is not None:
        with b.when(beyond):
            block.copy(b, back=True)


def known_bytes(x: Idx) -> int:
    """A distance in panels, which is known where panels follow one another."""
    assert isinstance(x, int)
    return x


def _step(
    b: Builder,
    family: Family,
    pas: Sequence[Sequence[SSAValue]],
    pbs: Sequence[Sequence[SSAValue]],
    masks: Sequence[SSAValue | None],
    lanes: int,
    acc: Sequence[SSAValue],
) -> list[SSAValue]:
    """Some groups of k: a row of B for each, at `pbs`, in registers, zero where a vector's mask is; groups of each row
    of A, at `pas`, broadcast from memory."""
    out, nv = list(acc), len(pbs[0])
    factors = VectorType(family.b.element, [lanes * family.group])  # pyright: ignore
    known = [
        [
            b.load(pb, factors) if mask is None
            else b.value(mach.MaskedLoadOp(pb, mask, b.constant(factors, 0)))
            for pb, mask in zip(row, masks, strict=True)
        ]
        for row in pbs
    ]  # fmt: skip
    for r, groups in enumerate(pas):
        for pa, row in zip(groups, known, strict=True):
            one = spread_group(b, pa, factors, family.group)
            for v, other in enumerate(row):
                at = r * nv + v
                if family.group > 1:
                    out[at] = add_dot(b, family, out[at], one, other)
                elif family.name == "fma":
                    out[at] = b.value(math.FmaOp(one, other, out[at]))
                else:
                    out[at] = b.value(arith.AddiOp(out[at], b.value(arith.MuliOp(one, other))))
    return out


def _add(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    element = x.type.element_type  # pyright: ignore
    return b.value(arith.AddfOp(x, y) if isinstance(element, AnyFloat) else arith.AddiOp(x, y))
