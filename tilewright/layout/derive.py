"""The maps of a product's operands, given that of its result, on surface syntax.

Those of ops that only rearrange follow from the movement table, applied to a :class:`~tilewright.layout.bound.Bound`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.frozen import frozen
from tilewright.layout.bound import map_fields, with_extent
from tilewright.layout.digits import LayoutError
from tilewright.layout.surface import Distribution


@frozen
class MmaShapes:
    """One machine instruction's shapes, for the fields below the subgroup: A is m x k, B k x n.

    ``pack_a`` elements along k of A and ``pack_b`` of B make one unit of a lane.
    """

    m: int
    n: int
    k: int
    pack_a: int = 1
    pack_b: int = 1


def mma_operands(
    c: Distribution, k: int, instruction: MmaShapes | None = None
) -> tuple[Distribution, Distribution]:
    """Maps of A [m, k] and B [k, n] for a product whose result (and C) has map ``c``.

    sg_layout is c's, sg_data c's along m and n and the operand's whole extent along k. With an
    instruction, inst_data and lane_data follow from its shapes; without one they are dropped.
    """
    if c.rank != 2 or c.sliced:
        raise LayoutError(f"the map of a matrix product has rank 2, not {c.rank}")
    bare = replace(c, inst_data=None, lane_data=None, lane_layout=None)
    a, b = (map_fields(bare, lambda f, n=n: with_extent(f, n, k), ("sg_data",)) for n in (1, 0))
    if instruction is not None:
        i = instruction
        a = replace(a, inst_data=(i.m, i.k), lane_layout=c.lane_layout)
        b = replace(b, inst_data=(i.k, i.n), lane_layout=c.lane_layout)
        if c.lane_layout is not None:
            a = replace(a, lane_data=(1, i.pack_a))
            b = replace(b, lane_data=(i.pack_b, 1))
    return a, b
