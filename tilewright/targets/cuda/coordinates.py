"""Coordinates of boxes as the copy engine counts them: i32, without wrapping into an array.

Extents are below `MOST_EXTENT` = 2^30 (`reach.py`). Of an index from -2^31 to 2^32 - `BOX` the lower 32 bits are
right: from 2^31 on they are negative, so outside as well. What is not known to be one of them is clamped behind what
makes it, so in front of the loops that do not change it; of a sum with what lies nearby, the other part:

    m + k, k a counter up to an extent        max(-FAR, min(m, FAR)) + k

`FAR` plus or minus anything nearby is outside of every array, and one of the indices above.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.dialects import arith
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.codegen.builder import Builder, Idx
from tilewright.dialects import xetile
from tilewright.passes.carried import behind
from tilewright.passes.integers import Span, lies_in, with_term_in
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.distribute import Distributor
from tilewright.targets.cuda.lowered import END, LACKING, OPEN, WRAP
from tilewright.targets.cuda.narrow import Narrow, Word
from tilewright.targets.cuda.passes.multi_buffering import ended_dimensions
from tilewright.targets.cuda.reach import MOST_EXTENT

BOX = 1 << 24
"""More than the elements along a dimension of a tile: they are in shared memory."""
KNOWN: Span = -(1 << 31), (1 << 32) - BOX
NEAR: Span = -(1 << 28), MOST_EXTENT + BOX
FAR = MOST_EXTENT + (1 << 28)


def coordinates(
    d: Distributor, op: xetile.InitTileOp, dims: list[int], line: Word, element: Word
) -> list[SSAValue]:
    """Coordinates of a box in dimensions of a tensor map, i32; `line` and `element` are the box's place in the tile."""
    n = Narrow(d.b)
    ended = ended_dimensions(op)
    ended = [dim for dim in ended if dim != dims[1] or END in dims]
    found: list[SSAValue] = []
    for position, dim in enumerate(dims):
        if dim in (LACKING, WRAP):
            found.append(n.value(0 if dim == LACKING else OPEN))
            continue
        if dim == END:
            found.append(n.value(n.of(_clamped(d, op.mixed_sizes[dims[1]]))))
            continue
        end = n.of(_clamped(d, op.mixed_sizes[dim])) if dim in ended else None
        at = n.of(_clamped(d, op.mixed_offsets[dim]))
        if position < 2:
            at = n.plus(at, (element, line)[position])
        if end is not None:
            at = n.plus(n.minus(at, end), OPEN) if position == 1 else _inside(n, at, end)
        found.append(n.value(at))
    return found


def _inside(n: Narrow, at: Word, end: Word) -> Word:
    """A place, or one outside of every array if it is behind an end."""
    inside = n.compare(at, "slt", end)
    return n.b.value(arith.SelectOp(inside, n.value(at), n.value(FAR)))


def _clamped(d: Distributor, offset: SSAValue | int) -> Idx:
    """An index of the kernel, or one whose lower 32 bits lie outside of every array if it does."""
    at = d.idx(offset)
    if isinstance(at, int) or isinstance(offset, int):
        return max(-FAR, min(at, FAR)) if isinstance(at, int) else at
    known = st.facts(d).clamped
    if at not in known:
        known[at] = (
            at if lies_in(st.facts(d).ranges.span(offset), KNOWN) else _in_front(d, offset, at)
        )
    return known[at]


def _in_front(d: Distributor, far: SSAValue, at: SSAValue) -> SSAValue:
    """Instead of `at`, which is `far` in the new function: clamped, or a sum with what is."""
    ranges = st.facts(d).ranges
    near: list[SSAValue] = []
    total = 0, 0
    while found := with_term_in(far, (NEAR[0] - total[0], NEAR[1] - total[1]), ranges.span):
        far, term, (low, high) = found
        total = total[0] + low, total[1] + high
        near.append(term)
    b, base = d.b, d.idx(far)
    least, most = ranges.span(far) or (-(1 << 63), 1 << 63)
    with _behind(b, base):
        made = base if most <= FAR else b.min(base, FAR)
        made = made if least >= -FAR else b.max(made, -FAR)
    if near:
        with _behind(b, at):
            for term in near:
                made = b.plus(made, d.idx(term))
    return b.idx(made)


@contextmanager
def _behind(b: Builder, value: Idx) -> Generator[None]:
    """Ops made inside stand right behind what makes a value."""
    new = Block()
    with b.inside(new):
        yield
    Rewriter.inline_block(new, behind(b.idx(value), constants=True))
