"""Functions of f32 to few bits, read from tables: for AVX-512, whose permutations read 32 entries by one instruction.

    x is clamped to where f is not constant; i = the integer nearest to x / step; f(x) = (c[i] + b[i] x + a[i] x^2)^4

The integer comes from adding ROUNDER, and an entry is found by its number's last five bits, so that none is subtracted.
A function that is multiplied on the way in costs nothing: coefficients and limits take the factor up.

The power is what makes one step serve all of a function that falls steeply: of its fourth root parabolas have few bits'
relative error where of the function itself they would have none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.codegen.functions.exponential import ROUNDER, clamp
from tilewright.codegen.lane_ops import Lanes, float_text

ENTRIES = 32
"""Of a table: two registers of f32."""
ROOTS = 2
"""Square roots that are taken of the function: results are squared as often."""
SAMPLES = 16
"""Of an entry: what its polynomial is fitted to, Chebyshev's points."""

INSIDE = 0.499
"""Of a step, from its middle: what is clamped there does not round to the entry beyond, which is the one of zeros."""


class Table(NamedTuple):
    """A function that is constant below `low` and zero from the last entry on, which ends at `high`."""

    step: float
    low: float
    high: float
    coefficients: npt.NDArray[np.float64]
    """[degree + 1, ENTRIES], from the constant up; of the integer i at i modulo ENTRIES."""


@lru_cache
def table(f: Callable[[float], float], below: float, end: float, last: int, degree: int) -> Table:
    """Of f >= 0, which falls from `below` to what counts as zero at `end`. The integer `last` is that of the zeros."""
    step = end / (last - 0.5)
    first = last - ENTRIES + 1
    low = (first - INSIDE) * step
    around = np.cos(np.pi * (np.arange(SAMPLES) + 0.5) / SAMPLES) / 2
    found = np.zeros((degree + 1, ENTRIES))
    for i in range(first, last):
        values = np.array([f((i + u) * step) for u in around.tolist()]) ** 0.5**ROOTS
        at, weights = around, 1 / values
        if i == first:  # goes over into the constant
            at, values = np.append(at, -INSIDE), np.append(values, below**0.5**ROOTS)
            weights = np.append(weights, 1e4)
        local = np.polynomial.Polynomial(
            np.polynomial.polynomial.polyfit(at, values, degree, w=weights)
        )
        found[:, i % ENTRIES] = local(np.polynomial.Polynomial([-i, 1 / step])).coef
    return Table(step, low, last * step, found)


def reads_tables(o: Lanes) -> bool:
    """Are these whole registers of a machine that permutes 32 entries?"""
    return o.count in (16, 32) and o.p.target.has("avx512f")


def look_up(o: Lanes, x: str, t: Table, factor: float) -> str:
    """The table's function of `factor` x, f32; NaN stays NaN."""
    s = "float"
    if o.count == ENTRIES:
        half = Lanes(o.p, 16)
        return o.joined(half.f32, *(look_up(half, v, t, factor) for v in o.halves(o.f32, x)))
    low, high = sorted((t.low / factor, t.high / factor))
    x = clamp(o, s, x, low, high)
    nearest = o.fma(s, x, o.const(s, factor / t.step), o.const(s, ROUNDER[s]))
    index = o.bitcast(o.f32, nearest, o.i32)

    def entry(power: int) -> str:
        row = [float_text(c, s) for c in (t.coefficients[power] * factor**power).tolist()]
        halves = ("<" + ", ".join(f"{s} {c}" for c in part) + ">" for part in (row[:16], row[16:]))
        a, b = halves
        args = [(o.f32, a), (o.i32, index), (o.f32, b)]
        return o.p.call(o.f32, "llvm.x86.avx512.vpermi2var.ps.512", args)

    degree = len(t.coefficients) - 1
    value = entry(degree)
    for power in reversed(range(degree)):
        value = o.fma(s, value, x, entry(power))
    for _ in range(ROOTS):
        value = o.op("fmul", o.f32, value, value)
    return value
