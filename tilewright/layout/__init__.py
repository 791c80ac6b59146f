"""The ownership algebra: which element belongs to which register, lane, subgroup or address.

The one implementation of ownership in Tilewright: verifiers, distribution passes, executor, code
generators and pictures call it. Surface syntax gives a :class:`Distribution`; bound to a tile's shape it
is a :class:`Layout`, the normal form; two of those give a plan.

>>> from tilewright import layout as ly
>>> tile = ly.wg_map(sg_layout=[2, 2], sg_data=[32, 128]).over([128, 128])
>>> print(tile)
128x128: register [128@1->d1*1 32@128->d0*1 2@4096->d0*64], subgroup [2@1->replica 2@2->d0*32]
>>> tile.owner(70, 5).subgroup, tile.replicas(ly.Axis.SUBGROUP)
(array(0), 2)
>>> wide = ly.wg_map(sg_layout=[4, 1], sg_data=[32, 128]).over([128, 128])
>>> print(ly.plan.convert(tile, wide))
slm, 2 of 4 subgroups exchange data
"""

from tilewright.layout import derive, memory, plan
from tilewright.layout.bound import BoundMap
from tilewright.layout.derive import MmaShapes
from tilewright.layout.digits import Axis, Digit, Layout, LayoutError, Owner, Swizzle, number
from tilewright.layout.memory import mem_layout, row_major, strided
from tilewright.layout.plan import ConversionPlan, Move, Reduction
from tilewright.layout.surface import (
    Distribution,
    TilePart,
    delinearize,
    layout,
    sg_map,
    slice_,
    wg_map,
)

__all__ = [
    "Axis",
    "BoundMap",
    "ConversionPlan",
    "Digit",
    "Distribution",
    "Layout",
    "LayoutError",
    "MmaShapes",
    "Move",
    "Owner",
    "Reduction",
    "Swizzle",
    "TilePart",
    "delinearize",
    "derive",
    "layout",
    "mem_layout",
    "memory",
    "number",
    "plan",
    "row_major",
    "sg_map",
    "slice_",
    "strided",
    "wg_map",
]
