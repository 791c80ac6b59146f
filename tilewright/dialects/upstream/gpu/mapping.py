"""gpu: what the iterations of an `scf.forall` are meant for.

    scf.forall (%i, %j) in (4, 8) {..} {mapping = [#gpu.block<y>, #gpu.block<x>]}

A wish of who wrote the loop; here the passes deal out loops in any order, whatever it says.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.ir import Attribute
from xdsl.irdl import irdl_attr_definition

from tilewright.dialects.attribute_fields import Word
from tilewright.dialects.upstream.complete import add_attributes

_DIMENSIONS = ("x", "y", "z", *(f"linear_dim_{n}" for n in range(10)))
"""Of the grid, and digits of a number that counts all of it."""


def _mapping(of: str) -> type[Attribute]:
    fields = {
        "name": f"gpu.{of}",
        "WORDS": _DIMENSIONS,
        "__doc__": f"`#gpu.{of}<x>`.",
        "__module__": __name__,
    }
    return irdl_attr_definition(type(f"{of.capitalize()}MappingAttr", (Word,), fields))


def complete() -> None:
    add_attributes(gpu.GPU, map(_mapping, ("block", "warpgroup", "warp", "thread", "lane")))
