"""Random maps that are legal by construction, with a shape that they distribute."""

from __future__ import annotations

from math import prod

from hypothesis import assume
from hypothesis import strategies as st

from tilewright.layout import Distribution

SMALL = st.sampled_from([1, 2, 3, 4])


@st.composite
def distributions(
    draw: st.DrawFn, ranks: tuple[int, ...] = (1, 2, 3), lanes: bool = True
) -> tuple[Distribution, tuple[int, ...]]:
    """A map with all levels and a shape: rounds, exact fits, sharing by wrapping, broadcasts."""
    rank = draw(st.sampled_from(ranks))
    fields: list[list[int]] = []
    shape: list[int] = []
    for _ in range(rank):
        unit = draw(st.sampled_from([1, 1, 2, 4]))
        lane = draw(st.sampled_from([1, 2, 4])) if lanes else 1
        block = unit * lane * draw(st.sampled_from([1, 1, 2, 3]))
        part = block * draw(st.sampled_from([1, 1, 2, 3]))
        owners, times = draw(SMALL), draw(st.sampled_from([1, 1, 2, 3]))
        if draw(st.booleans()):
            groups, extent = owners, part * owners * times
        else:
            groups, extent = owners * times, part * owners
        fields.append([groups, part, block, lane, unit])
        shape.append(extent)
    # Small enough to enumerate: what goes wrong does so in small tiles too.
    assume(prod(shape) <= 1 << 11 and prod(f[0] for f in fields) <= 64)
    columns = [tuple(f[i] for f in fields) for i in range(5)]
    order = draw(st.permutations(range(rank)))
    lane_layout, lane_data = (columns[3], columns[4]) if lanes else (None, None)
    named = Distribution(columns[0], columns[1], columns[2], lane_layout, lane_data, tuple(order))
    return named, tuple(shape)
