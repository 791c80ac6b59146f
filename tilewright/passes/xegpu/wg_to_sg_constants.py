"""xegpu-wg-to-sg-distribute, constants of different numbers: each subgroup's fragment of them.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`. Where the fragments differ by a number that grows evenly from fragment
to fragment, as indices do, a fragment is the first one and that number; otherwise a subgroup picks its own.

    arith.constant dense<[0, 16, 32, 48]> : vector<4xindex>, one element each
    ->
    %b = arith.constant dense<0> : vector<1xindex>     %s = arith.muli %sg, %c16     %w = vector.broadcast %s
    %v = arith.addi %b, %w
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IndexType, IntegerType, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.numerals import dense
from tilewright.dialects.xetile.assembly import Index
from tilewright.layout import Distribution
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.split import raised
from tilewright.passes.xegpu.wg_to_sg import SubgroupDistributor

CHOICES = 64
"""The most different fragments among which a subgroup picks."""

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.object_]]


def fragments_of(to: SubgroupDistributor, op: arith.ConstantOp, d: Distribution) -> list[SSAValue]:
    """The fragments of a constant vector. Refuses one with too many that have nothing in common."""
    data = op.value
    assert isinstance(data, DenseIntOrFPElementsAttr)
    shape = own.shape_of(op.result)
    kind = to.typed(op.result, d)
    part = kind.get_shape()
    numbers: Numbers = np.empty(len(data), object)
    numbers[:] = list(data.get_values())
    blocks = _blocks(numbers.reshape(shape), part)
    steps = _steps(blocks, len(shape)) if _is_integer(kind) else None

    def constant(numbers: Numbers) -> SSAValue:
        return to.add(to.mark(arith.ConstantOp(dense(kind, list(numbers.reshape(-1)))), d))

    def moved(start: Sequence[Index], steps: Sequence[int]) -> SSAValue:
        """The first fragment, and how much more another has."""
        base = constant(blocks[(0,) * len(part)])
        total: Index = 0
        for place, step, size in zip(start, steps, part, strict=True):
            if step:
                number = place if step % size == 0 else to.divided(place, size)
                total = to.plus(total, to.times(number, step // size if step % size == 0 else step))
        return raised(to, base, total, d)

    def picked(start: Sequence[Index]) -> SSAValue:
        """The fragment that a subgroup's start says, of all that it may be."""
        grid = blocks.shape[: len(part)]
        # Fragments along dimensions that the subgroup's own start fixes are not in question.
        mine: dict[tuple[object, ...], list[int]] = {}
        choices: dict[tuple[object, ...], Numbers] = {}
        for linear, at in enumerate(np.ndindex(*grid)):
            places = zip(start, part, at, strict=True)
            if any(isinstance(s, int) and s // p != a for s, p, a in places):
                continue
            key = tuple(blocks[at].reshape(-1))
            mine.setdefault(key, []).append(linear)
            choices[key] = blocks[at]
        if (count := sum(map(len, mine.values()))) > CHOICES:
            raise to.refuse(
                f"of different numbers has {count} fragments, among which every subgroup would pick; {CHOICES} are "
                "the most",
                "load it from memory, or let every subgroup hold it whole",
            )
        number: Index = 0
        for place, size, extent in zip(start, part, grid, strict=True):
            number = to.plus(to.times(number, extent), to.divided(place, size))
        first, *keys = sorted(mine, key=lambda key: -len(mine[key]))
        chosen = constant(choices[first])
        for key in keys:
            other = constant(choices[key])
            for linear in mine[key]:
                hit = to.compare("eq", to.index(number), to.index(linear))
                new: Operation = arith.SelectOp(hit, other, chosen)
                chosen = to.add(to.mark(new, d))
        return chosen

    found: list[SSAValue] = []
    for start in to.starts(d, shape):
        if all(isinstance(s, int) for s in start):
            at = tuple(int(s) // p for s, p in zip(start, part, strict=True))  # pyright: ignore
            found.append(constant(blocks[at]))
        elif steps is not None:
            found.append(moved(start, steps))
        else:
            found.append(picked(start))
    return found


def _blocks(numbers: Numbers, part: Sequence[int]) -> Numbers:
    """[grid.., part..]"""
    split = [n for extent, p in zip(numbers.shape, part, strict=True) for n in (extent // p, p)]
    rank = len(part)
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
    return numbers.reshape(split).transpose(order)


def _is_integer(kind: VectorType) -> bool:
    element = kind.element_type
    return isinstance(element, IndexType) or (
        isinstance(element, IntegerType) and element.width.data > 1
    )


def _steps(blocks: Numbers, rank: int) -> list[int] | None:
    """By how much a fragment is more than its neighbour along each dimension; None where it is not even."""
    grid = blocks.shape[:rank]
    first = blocks[(0,) * rank]
    corner = (0,) * rank
    steps = [
        int(blocks[tuple(int(i == dim) for i in range(rank))][corner] - first[corner])
        if n > 1
        else 0
        for dim, n in enumerate(grid)
    ]
    places = np.indices(grid)
    expected = sum((s * p for s, p in zip(steps, places, strict=True)), np.zeros(grid, int))
    even = blocks - first == expected.reshape(*grid, *[1] * rank)
    return steps if bool(np.all(even)) else None
