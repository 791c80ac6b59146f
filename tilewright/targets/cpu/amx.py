"""Products by AMX: up to four tiles of C, per step of 64 bytes of k. 32 x 32 takes two tiles of A and two of B, one
of them where that side of a program's tile has no more rows or columns, so that panels begin where programs do. 16 x 64
takes one of A and four of B, and so reads an A that comes from memory once, few rows at a time (see `roles`).

Per step (and per part of its elements, see `panels.halves`) each load of A is followed by its products, the first one's
by loads of B in between: seven tiles live at most, in the order that LLVM keeps (it does not reorder tile loads to
lower the pressure). A streams from the second cache with the hint that it is not read again, so that the panel of B
stays in the first. C is a row-major buffer that is read and written once per block of k.

The first panel of B may be multiplied by rows of A that are still in their array: each tile of them is then stored as
it is, for the panels of B that follow. The products go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product as product_of
from typing import Final

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    IntegerType,
    Signedness,
    VectorType,
)
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import itemsize
from tilewright.dialects import mach
from tilewright.targets.cpu.family import Family, Fetch, FetchWhere, PanelOperand
from tilewright.targets.cpu.machine import CpuMachine
from tilewright.targets.cpu.memory import Buffer

TILE_ROWS: Final = 16
TILE_BYTES: Final = 64
"""A tile: 16 rows of 64 bytes."""
AMX_ROWS: Final = 2 * TILE_ROWS
"""Rows and columns of C per micro-kernel, but for the wide one."""


def amx_instruction(m: CpuMachine, a: VectorType, b: VectorType, c: Attribute) -> str | None:
    """The tile product for these operands, or None where AMX has none."""
    if not m.amx:
        return None
    match a.element_type, b.element_type, c:
        case BFloat16Type(), BFloat16Type(), Float32Type():
            return "tdpbf16ps" if m.has("amx-bf16") else None
        case Float16Type(), Float16Type(), Float32Type():
            if m.has("amx-fp16"):
                return "tdpfp16ps"
            # An f16 is the sum of two bf16: four exact products, and still faster than FMA.
            return "tdpbf16ps" if m.has("amx-bf16") else None
        case IntegerType(), IntegerType(), IntegerType():
            widths = (a.element_type.width.data, b.element_type.width.data, c.width.data)
            if widths != (8, 8, 32) or not m.has("amx-int8"):
                return None
            return f"tdpb{_sign(a.element_type)}{_sign(b.element_type)}d"
        case _:
            return None


def parts_of(m: CpuMachine, element: Attribute, group: int) -> int:
    """bf16 that stand for an element in panels of tiles: two for an f16 that the machine has no product of."""
    split = isinstance(element, Float16Type) and group > 1 and not m.has("amx-fp16")
    return 2 if split else 1


def _sign(type: IntegerType) -> str:
    return "u" if type.signedness.data == Signedness.UNSIGNED else "s"


Turn = tuple[Callable[[Idx], PanelOperand] | None, Idx, Idx]
"""Panels of A: where to find them, the first, and where they end."""


def halved(b: Builder, family: Family, rows: Idx, turn: Turn) -> list[tuple[Family, Turn]]:
    """A turn of so many rows, by micro-kernels: of half as many rows where its last panel has no more."""
    half = replace(family, mr=family.mr // 2)
    last = b.div(b.plus(rows, half.mr - 1), family.mr)
    whole = isinstance(rows, int) and last == b.ceildiv(rows, family.mr)
    if whole or family.mr % 2 or (family.tiles and family.mr != AMX_ROWS):
        return [(family, turn)]
    find, begin, end = turn
    return [(family, (find, begin, b.min(end, last))), (half, (find, b.max(begin, last), end))]


def emit_amx(
    b: Builder,
    family: Family,
    a: PanelOperand,
    bb: PanelOperand,
    c: Buffer,
    row: Idx,
    col: Idx,
    depth: Idx,
    first: SSAValue | None,
    fetches: Sequence[Fetch | FetchWhere] = (),
) -> None:
    """C[row.., col..] += A B over `depth` k; `=` instead of `+=` where `first` (None: known to be false)."""
    target = c.address(b, row, col)
    pitch = b.idx(b.times(c.ld, itemsize(c.element)))
    places = [
        b.ptr(b.ptr(target, b.times(pitch, r * TILE_ROWS)), v * TILE_BYTES)
        for r in range(family.mr // TILE_ROWS)
        for v in range(family.nr // TILE_ROWS)
    ]

    def zeros() -> Sequence[SSAValue]:
        return [_tile(b, "x86.amx.tilezero") for _ in places]

    def stored() -> Sequence[SSAValue]:
        return [_tile(b, "x86.amx.tileload", place, pitch) for place in places]

    start = stored() if first is None else b.choose(first, zeros, stored)
    sums = _steps(b, family, a, bb, depth, start, fetches)
    for place, tile in zip(places, sums, strict=True):
        b.op(mach.InstrOp("x86.amx.tilestore", [tile, place, pitch], []))


def _tile(b: Builder, name: str, *operands: SSAValue) -> SSAValue:
    return b.value(mach.InstrOp(name, list(operands), [mach.AmxType()]))


def _steps(
    b: Builder,
    family: Family,
    a: PanelOperand,
    bb: PanelOperand,
    depth: Idx,
    start: Sequence[SSAValue],
    fetches: Sequence[Fetch | FetchWhere],
) -> Sequence[SSAValue]:
    """The accumulators after `depth` k."""
    pitch_a = b.idx(a.x_bytes)
    pitch_b = b.idx(bb.k_bytes)
    product = f"x86.amx.{family.name}"
    # A row that starts within a line needs the next line in the next step again, from the first cache.
    load_a = "x86.amx.tileloadt1" if isinstance(a.x_bytes, int) else "x86.amx.tileload"
    height, width = family.mr // TILE_ROWS, family.nr // TILE_ROWS
    with b.loop(0, b.div(depth, family.group), 1, start) as loop:
        at_a = b.ptr(a.pointer, b.times(loop.iv, a.k_bytes))
        at_b = b.ptr(bb.pointer, b.times(loop.iv, b.times(bb.k_bytes, TILE_ROWS)))
        sums = list(loop.carried)
        for part_b in range(family.b.parts):
            right: list[SSAValue] = []
            for r, part_a in product_of(range(height), range(family.a.parts)):
                start_a = b.ptr(at_a, part_a * family.a.part_bytes)
                rows = b.ptr(start_a, b.times(r * TILE_ROWS, a.x_bytes))
                left = _tile(b, load_a, rows, pitch_a)
                if a.copy is not None:
                    at = b.plus(b.times(loop.iv, family.a.lanes // TILE_ROWS), r)
                    panel = b.ptr(a.copy, b.times(at, TILE_ROWS * TILE_BYTES))
                    b.op(mach.InstrOp("x86.amx.tilestore", [left, panel, b.idx(TILE_BYTES)], []))
                for v in range(width):
                    if v == len(right):
                        place = b.ptr(at_b, part_b * family.b.part_bytes + v * TILE_BYTES)
                        right.append(_tile(b, "x86.amx.tileload", place, pitch_b))
                    at = width * r + v
                    sums[at] = _tile(b, product, sums[at], left, right[v])
        for fetch in fetches:
            fetch.issue(b, loop.iv)
        loop.out = sums
    return loop.results
