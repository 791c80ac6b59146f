"""Layouts over the threads of a workgroup: blocks distributed so that accesses of memory coalesce, which the target
chooses itself; and what threads hold of any layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd, prod

import numpy as np

from tilewright.dialects.stage.types import DEINTERLEAVED
from tilewright.layout import Axis, Layout, number
from tilewright.uarch.nvidia import LANES

Triple = tuple[int, int | None, int]


def power_of_two_in(n: int) -> int:
    """The largest power of two that divides n."""
    return n & -n


@lru_cache(maxsize=4096)
def blocked(
    shape: tuple[int, ...],
    fast: int,
    vector: int,
    warps: int,
    lanes_fast: int = LANES,
    across: int = 1,
    warps_fast: bool = False,
    parts: int = 1,
) -> Layout:
    """A tile distributed in vectors of `vector` elements along dimension `fast`, `across` of them along the next.

    Lanes go along `fast` first (at most `lanes_fast` of them), warps along the other dimensions, first
    the outermost (`warps_fast`: before them along `fast`); what is left over of either holds replicas. Register
    order: the vectors, then `fast`, then the rest. Only powers of two of an extent are distributed (and the odd
    factor of the number of warps), so extents may be any. Each thread holds alike of each of `parts` along `fast`,
    which divide it.
    """
    left = list(shape)
    left[fast] //= parts
    step = [1] * len(shape)
    others = [d for d in reversed(range(len(shape))) if d != fast]

    def take(dim: int, most: int, odd: int = 1) -> tuple[Triple, int]:
        n = min(power_of_two_in(left[dim]), most) if odd == 1 else gcd(left[dim], odd)
        triple = (n, dim, step[dim])
        left[dim] //= n
        step[dim] *= n
        return triple, n

    registers: list[Triple] = [take(fast, power_of_two_in(vector))[0]]
    registers += [take(dim, power_of_two_in(across))[0] for dim in others[:1]]
    lane: list[Triple] = []
    free = LANES
    for dim, most in ((fast, lanes_fast), *((d, LANES) for d in others), (fast, LANES)):
        triple, n = take(dim, min(free, most))
        lane.append(triple)
        free //= n
    lane.append((free, None, 0))
    warp: list[Triple] = []
    free = power_of_two_in(warps)
    along = (fast, *reversed(others)) if warps_fast else (*reversed(others), fast)
    for dim in along:
        triple, n = take(dim, free)
        warp.append(triple)
        free //= n
    warp.append((free, None, 0))
    # An odd number of them comes last, so that places stay linear in the bits of a thread's number.
    free = warps // power_of_two_in(warps)
    for dim in along if free > 1 else ():
        triple, n = take(dim, free, free)
        warp.append(triple)
        free //= n
    warp.append((free, None, 0))
    registers += [(left[d], d, step[d]) for d in (fast, *others)]
    registers.append((parts, fast, shape[fast] // parts))
    return of(shape, registers, lane, warp)


def deinterleaved(places: Layout, dim: int) -> Layout:
    """A layout of elements that stand in other places: in every `DEINTERLEAVED` along `dim` the even ones come first.

    `places`: the layout of the places.
    """
    before, (n, *after) = places.shape[:dim], places.shape[dim:]
    halves = places.reshaped((*before, n // DEINTERLEAVED, 2, DEINTERLEAVED // 2, *after))
    order = list(range(halves.rank))
    order[dim + 1], order[dim + 2] = order[dim + 2], order[dim + 1]
    return halves.permuted(order).reshaped(places.shape)


def run_along(layout: Layout) -> tuple[int, int]:
    """(dimension, elements) of the run that consecutive registers hold along one dimension."""
    for digit in layout.on(Axis.REGISTER):
        if digit.weight == 1 and digit.stride == 1 and digit.dim is not None:
            return digit.dim, digit.size & -digit.size
    return layout.rank - 1, 1


def facing(layout: Layout, dim: int) -> Layout:
    """The same threads' layout with registers along `dim` first, where neighbours there are in registers at all."""
    own = sorted(layout.on(Axis.REGISTER), key=lambda d: (d.dim, d.stride) != (dim, 1))
    registers, lane, warp = (
        [(d.size, d.dim, d.stride) for d in digits]
        for digits in (own, layout.on(Axis.LANE), layout.on(Axis.SUBGROUP))
    )
    return of(layout.shape, registers, lane, warp)


def of(
    shape: Sequence[int],
    registers: Sequence[Triple],
    lane: Sequence[Triple],
    warp: Sequence[Triple],
) -> Layout:
    """A layout from (size, dim, stride) triples per axis, fastest first."""
    return Layout.of(
        shape,
        number(Axis.REGISTER, registers) + number(Axis.LANE, lane) + number(Axis.SUBGROUP, warp),
    )


def tiled(
    fragment: Layout,
    shape: tuple[int, int],
    fast: int,
    along: tuple[tuple[int, int | None], ...],
    warps: int,
) -> Layout:
    """A tile of fragments, which a lane holds one after the other, dimension `fast` first.

    `along` distributes it to warps, neighbours first: so many of them along a dimension (None: they hold replicas);
    what is left over of `warps` holds replicas.
    """
    share = {dim: count for count, dim in along if dim is not None}
    order = (fast, 1 - fast)
    blocks = [
        (shape[d] // (fragment.shape[d] * share.get(d, 1)), d, fragment.shape[d]) for d in order
    ]
    distributed = [(n, d, 0 if d is None else shape[d] // n) for n, d in along]
    distributed.append((warps // prod(n for n, _ in along), None, 0))
    own = [
        [(d.size, d.dim, d.stride) for d in fragment.on(axis)]
        for axis in (Axis.REGISTER, Axis.LANE)
    ]
    return of(shape, [*own[0], *blocks], own[1], distributed)


@lru_cache(maxsize=4096)
def thread_coordinates(layout: Layout, warps: int) -> list[tuple[int, ...]]:
    """Per dimension the coordinate of register 0 of every thread of the team."""
    threads = np.arange(LANES * warps)
    coords = layout.at(threads // LANES, threads % LANES, 0)
    return [tuple(int(x) for x in c) for c in coords]


def replica_bits(layout: Layout) -> list[int]:
    """Bits of a thread's number that change nothing of what it holds."""
    bits: list[int] = []
    for axis, first in ((Axis.LANE, 1), (Axis.SUBGROUP, LANES)):
        for digit in layout.on(axis):
            if digit.dim is None:
                step = digit.weight * first
                while step < digit.weight * digit.size * first:
                    bits.append(step)
                    step *= 2
    return bits
