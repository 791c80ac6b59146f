"""Thin products of small tiles that lie wholly inside their array, of few rows by B: no loop along k, no mask.

A loop over pages of keys and values multiplies a tile of known sizes in every turn. What the general form (`thin`)
does for each block of it, the ends of its loops and what is copied to and from C, takes as long as its products. Here

    inner   blocks of x, each against some rows of A; all k of a block unrolled:
              SUMS sums in registers, added up across together
    outer   blocks of columns as wide as registers hold sums of; k in one loop, some at a time:
              C is written once

Each row of B is read from its start to its end wherever that leaves the sums in registers, as caches fetch it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from tilewright.codegen.builder import Idx
from tilewright.codegen.tiles import itemsize
from tilewright.targets.cpu.family import PanelOperand
from tilewright.targets.cpu.machine import runs_of
from tilewright.targets.cpu.reductions import across

if TYPE_CHECKING:
    from tilewright.targets.cpu.thin import ThinProduct

BYTES = 1 << 17
"""Of a tile at most: longer ones amortise what loops cost."""
STEPS = 16
"""Vectors of k at most (inner), which all are unrolled."""
PRODUCTS = 64
"""Products of vectors at a time (inner), all unrolled, and half as many (outer): more take long to compile."""
WIDE = 8
"""Vectors of a row at a time (outer) at most."""
BLOCK = 4
"""Rows of A at a time (inner) at most: sums of as many rows of B fill a vector."""
ONE_BY_ONE = 2
"""Rows of A (inner) up to which rows of B are read one after the other; beside more, each vector of A is loaded once
for several of B."""


def sizes_fit(p: ThinProduct, length: int) -> bool:
    """Are the sizes of a product of so many k, all one block, such as are meant here?"""
    cols = p.c.shape[1]
    if length * cols * itemsize(p.tile.element) > BYTES:
        return False
    if p.family.name == "outer":
        return cols % p.lanes == 0 and length % p.per == 0
    long = p.per * p.lanes
    return length % long == 0 and length <= STEPS * long and cols % 2 == 0


def whole(p: ThinProduct, a: PanelOperand, length: int, zero: bool) -> None:
    """C (+)= A B of all k and columns, where B's tile lies inside its array; `zero`: C holds nothing yet."""
    rows, cols = p.c.shape
    if p.family.name == "outer":
        most = max(1, min(WIDE, p.m.accumulators // rows))
        for at, vectors, times in runs_of(cols // p.lanes, most):
            step, start = vectors * p.lanes, at * p.lanes
            with p.b.loop(start, start + times * step, step) as x:
                _columns(p, a, x.iv, vectors, length, zero)
        return
    parts = parts_of(rows, min(BLOCK, p.lanes))
    few = parts[0][1]
    block = p.lanes // few
    steps = length // (p.per * p.lanes)
    while cols % block or (block > 1 and block * few * steps > PRODUCTS):
        block //= 2
    with p.b.loop(0, cols, block) as x:
        for part in parts:
            with p.e.scope():
                _sums(p, a, part, (x.iv, block), length, zero)


def _sums(
    p: ThinProduct,
    a: PanelOperand,
    rows: tuple[int, int],
    xs: tuple[Idx, int],
    length: int,
    zero: bool,
) -> None:
    """C[rows, xs] (inner); both (start, count)."""
    b, (row, few), (x, count), long = p.b, rows, xs, p.per * p.lanes
    steps = range(length // long)
    order = [(i, t) for i in range(count) for t in steps]
    if few > ONE_BY_ONE:
        order = [(i, t) for t in steps for i in range(count)]
    fixed: dict[tuple[int, int], SSAValue] = {}
    sums: dict[tuple[int, int], SSAValue] = {}
    for i, t in order:
        place = p.place(b.plus(x, i), t * long, True, True)
        begins = t * p.per % p.line == 0
        vector = p.read(place, row > 0 or not begins)
        if row == 0 and begins:
            p.fetch(place, b.times(p.pitch, count), count * length * itemsize(p.tile.element))
        for j in range(few):
            if (j, t) not in fixed:
                at = b.ptr(a.pointer, b.times(row + j, a.x_bytes))
                fixed[j, t] = b.load(b.ptr(at, b.times(t, a.k_bytes)), p.factors)
            sums[j, i] = p.add(sums.get((j, i)), fixed[j, t], vector)
    total = across(b, [sums[j, i] for j in range(few) for i in range(count)])
    for j in range(few):
        part = total
        if few > 1:
            part = b.shuffle(total, total, range(j * count, (j + 1) * count))
        target = p.c.address(b, row + j, x)
        if not zero:
            part = b.value(arith.AddfOp(b.load(target, part.type), part))
        b.store(part, target)


def _columns(
    p: ThinProduct, a: PanelOperand, x: Idx, vectors: int, length: int, zero: bool
) -> None:
    """C[all rows, so many vectors from x on] (outer)."""
    b, rows = p.b, range(p.c.shape[0])
    places = p.places(rows, x, vectors)
    nothing = b.constant(p.type, 0)
    sums = [nothing if zero else b.load(place, p.type) for place in places]
    unrolled, groups = 1, length // p.per
    while unrolled * 2 * len(places) <= PRODUCTS // 2 and groups % (unrolled * 2) == 0:
        unrolled *= 2
    with b.loop(0, groups, unrolled, sums) as loop, p.e.scope():
        out = list(loop.carried)
        for u in range(unrolled):
            found, lines = p.vectors(x, b.times(b.plus(loop.iv, u), p.per), vectors, True)
            for line in lines:
                p.fetch(line, b.times(p.pitch, unrolled * p.per), BYTES)
            group = b.ptr(b.ptr(a.pointer, b.times(loop.iv, a.k_bytes)), b.times(u, a.k_bytes))
            out = p.added(out, group, a.x_bytes, rows, found)
        loop.out = out
    for place, value in zip(places, loop.results, strict=True):
        b.store(value, place)


def parts_of(count: int, most: int) -> list[tuple[int, int]]:
    """Parts of 0 to `count`, (start, length) each, whose lengths are powers of two up to `most`."""
    runs = runs_of(count, most)
    return [(at + i * length, length) for at, length, times in runs for i in range(times)]
