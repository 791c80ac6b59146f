"""Second names of ops: text that uses them reads as the op itself.

The RFC calls gather and scatter `load_gather` and `store_scatter`, the implementation `load` and
`store`; one table of the RFC has `conv_layout`.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import Operation
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser

from tilewright.dialects.xetile.compute import ConvertLayoutOp
from tilewright.dialects.xetile.memory import LoadGatherOp, StoreScatterOp


def alias(name: str, target: type[IRDLOperation]) -> type[IRDLOperation]:
    """A class that only reads: its custom and its generic form both make a `target`."""

    def parse(_: type[IRDLOperation], parser: Parser) -> Operation:
        return target.parse(parser)

    def create(_: type[IRDLOperation], **fields: Any) -> Operation:
        return target.create(**fields)

    fields = {
        "name": name,
        "parse": classmethod(parse),
        "create": classmethod(create),
        "__doc__": f"Reads as `{target.name}`.",
        "__module__": __name__,
    }
    return type(f"{target.__name__}Alias", (target,), fields)


ALIASES = (
    alias("xetile.load_gather", LoadGatherOp),
    alias("xetile.store_scatter", StoreScatterOp),
    alias("xetile.conv_layout", ConvertLayoutOp),
)
