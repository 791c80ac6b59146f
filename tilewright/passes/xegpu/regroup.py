"""The same elements of a subgroup in pieces of other shapes: slices of registers, nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from tilewright.dialects.upstream.vector import ExtractStridedSliceOp, InsertStridedSliceOp
from tilewright.layout import Distribution, Part
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.emit import zero_of

if TYPE_CHECKING:
    from tilewright.passes.xegpu.wg_to_sg import Distributor


def regroup(
    to: Distributor,
    pieces: Sequence[SSAValue],
    have: Distribution,
    want: Distribution,
    shape: Sequence[int],
) -> list[SSAValue]:
    """The pieces that `want` asks for, cut out of and put together from those of `have`.

    Requires that both give every subgroup the same elements; then the cuts are the same for all, and
    subgroup 0 tells where they are.
    """
    sources = own.subgroup_part(have).parts(shape, 0)
    targets = own.subgroup_part(want).parts(shape, 0)
    return [_assemble(to, target, sources, pieces) for target in targets]


def _assemble(
    to: Distributor, target: Part, sources: Sequence[Part], pieces: Sequence[SSAValue]
) -> SSAValue:
    found: list[tuple[SSAValue, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
    for part, piece in zip(sources, pieces, strict=True):
        low = tuple(map(max, part.offset, target.offset))
        high = tuple(
            min(p + n, q + m)
            for p, n, q, m in zip(part.offset, part.shape, target.offset, target.shape, strict=True)
        )
        if all(a < b for a, b in zip(low, high, strict=True)):
            size = tuple(b - a for a, b in zip(low, high, strict=True))
            inside = tuple(a - p for a, p in zip(low, part.offset, strict=True))
            place = tuple(a - q for a, q in zip(low, target.offset, strict=True))
            found.append((piece, inside, place, size))
    if len(found) == 1:
        piece, inside, _, size = found[0]
        if own.shape_of(piece) == size:
            return piece
        return to.add(ExtractStridedSliceOp(piece, inside, size, [1] * len(size)))
    first = found[0][0].type
    assert isinstance(first, VectorType)
    whole = VectorType(first.element_type, list(target.shape))
    value = to.add(arith.ConstantOp(zero_of(whole)))
    for piece, inside, place, size in found:
        if own.shape_of(piece) != size:
            piece = to.add(ExtractStridedSliceOp(piece, inside, size, [1] * len(size)))
        value = to.add(InsertStridedSliceOp(piece, value, place, [1] * len(place)))
    return value
