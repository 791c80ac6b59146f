"""Layouts that a target chooses itself: blocks dealt to threads so that accesses of memory coalesce."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd

from tilewright.layout import Axis, Layout, number

LANES = 32
Triple = tuple[int, int | None, int]


def power_of_two_in(n: int) -> int:
    """The largest power of two that divides n."""
    return n & -n


@lru_cache(maxsize=4096)
def blocked(
    shape: tuple[int, ...], fast: int, vector: int, warps: int, lanes_fast: int = LANES
) -> Layout:
    """A tile dealt out in vectors of `vector` elements along dimension `fast`.

    Lanes go along `fast` first (at most `lanes_fast` of them), warps along the other dimensions, first
    the outermost; what is left over of either holds replicas. Register order: the vector, then `fast`,
    then the rest. Only powers of two of an extent are dealt out (and the odd factor of the number of warps), so
    extents may be any.
    """
    left = list(shape)
    step = [1] * len(shape)
    others = [d for d in reversed(range(len(shape))) if d != fast]

    def take(dim: int, most: int, odd: int = 1) -> tuple[Triple, int]:
        n = min(power_of_two_in(left[dim]), most) if odd == 1 else gcd(left[dim], odd)
        triple = (n, dim, step[dim])
        left[dim] //= n
        step[dim] *= n
        return triple, n

    registers: list[Triple] = [take(fast, power_of_two_in(vector))[0]]
    lane: list[Triple] = []
    free = LANES
    for dim, most in ((fast, lanes_fast), *((d, LANES) for d in others), (fast, LANES)):
        triple, n = take(dim, min(free, most))
        lane.append(triple)
        free //= n
    lane.append((free, None, 0))
    warp: list[Triple] = []
    free = power_of_two_in(warps)
    for dim in (*reversed(others), fast):
        triple, n = take(dim, free)
        warp.append(triple)
        free //= n
    warp.append((free, None, 0))
    # An odd number of them comes last, so that places stay linear in the bits of a thread's number.
    free = warps // power_of_two_in(warps)
    for dim in (*reversed(others), fast) if free > 1 else ():
        triple, n = take(dim, free, free)
        warp.append(triple)
        free //= n
    warp.append((free, None, 0))
    registers += [(left[d], d, step[d]) for d in (fast, *others)]
    return of(shape, registers, lane, warp)


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


@lru_cache(maxsize=1024)
def product_c(m: int, n: int, grid: tuple[int, int], warps: int) -> Layout:
    """C [m, n] of mma.sync tiles of 16 x 8, whole blocks of rows and columns to a grid of warps."""
    wm, wn = grid
    return of(
        (m, n),
        [(2, 1, 1), (2, 0, 8), (n // (8 * wn), 1, 8), (m // (16 * wm), 0, 16)],
        [(4, 1, 2), (8, 0, 1)],
        [(wn, 1, n // wn), (wm, 0, m // wm), (warps // (wm * wn), None, 0)],
    )


@lru_cache(maxsize=1024)
def product_a(
    m: int,
    k: int,
    pack: int,
    grid: tuple[int, int],
    warps: int,
    rows: int = 16,
    depth: int | None = None,
) -> Layout:
    """A [m, k]: per warp tiles of 16 x `depth` (8*pack), k fastest, as mma.sync's fragments lie in registers."""
    wm, wn = grid
    kin = depth or (8 * pack if rows == 16 else 4 * pack)
    return of(
        (m, k),
        [
            (pack, 1, 1),
            (rows // 8, 0, 8),
            (kin // (4 * pack), 1, 4 * pack),
            (k // kin, 1, kin),
            (m // (rows * wm), 0, rows),
        ],
        [(4, 1, pack), (8, 0, 1)],
        [(wn, None, 0), (wm, 0, m // wm), (warps // (wm * wn), None, 0)],
    )


@lru_cache(maxsize=1024)
def product_b(k: int, n: int, pack: int, kin: int, grid: tuple[int, int], warps: int) -> Layout:
    """B [k, n]: per warp tiles of kin x 8, k fastest."""
    wm, wn = grid
    return of(
        (k, n),
        [
            (pack, 0, 1),
            (kin // (4 * pack), 0, 4 * pack),
            (k // kin, 0, kin),
            (n // (8 * wn), 1, 8),
        ],
        [(4, 0, pack), (8, 1, 1)],
        [(wn, 1, n // wn), (wm, None, 0), (warps // (wm * wn), None, 0)],
    )


@lru_cache(maxsize=1024)
def product_c8(m: int, n: int, grid: tuple[int, int], warps: int) -> Layout:
    """C [m, n] of f64's tiles of 8 x 8."""
    wm, wn = grid
    return of(
        (m, n),
        [(2, 1, 1), (n // (8 * wn), 1, 8), (m // (8 * wm), 0, 8)],
        [(4, 1, 2), (8, 0, 1)],
        [(wn, 1, n // wn), (wm, 0, m // wm), (warps // (wm * wn), None, 0)],
    )
