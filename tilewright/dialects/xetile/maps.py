"""The `wg_map` of any value, wherever the text put it.

The RFC attaches maps to ops, the implementation gives them names: `wg_map_a`, `wg_map_result`, and
discardable attributes `map`, `map1` (source) and `map2` (result) on ops of other dialects.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from tilewright.dialects.xetile.attrs import WgMapAttr
from tilewright.dialects.xetile.compute import ConvertLayoutOp
from tilewright.dialects.xetile.mma import TileMmaOp
from tilewright.dialects.xetile.types import TileType

_RESULT = ("wg_map", "map2", "map")
_SOURCE = ("wg_map_source", "map1")


def _first(op: Operation, names: tuple[str, ...]) -> WgMapAttr | None:
    def candidates() -> Iterator[Attribute | None]:
        for name in names:
            yield op.properties.get(name)
            yield op.attributes.get(name)

    return next((found for found in candidates() if isinstance(found, WgMapAttr)), None)


def result_map(op: Operation) -> WgMapAttr | None:
    """The map that an op states for its result: its own, or that of the tile it loads."""
    if isinstance(op, TileMmaOp):
        return op.wg_map_c
    if isinstance(op, ConvertLayoutOp):
        return op.wg_map_result
    stated = _first(op, _RESULT)
    if stated is None and op.results and isinstance(op.results[0].type, VectorType):
        tiles = [value.type for value in op.operands if isinstance(value.type, TileType)]
        return tiles[0].wg_map if tiles else None
    return stated


def operand_map(op: Operation, index: int) -> WgMapAttr | None:
    """The map that an op states for an operand, without a look at what made it."""
    if isinstance(op, TileMmaOp):
        return (op.wg_map_a, op.wg_map_b, op.wg_map_c)[index]
    return _first(op, _SOURCE) if index == 0 else None


def value_map(value: SSAValue) -> WgMapAttr | None:
    """The map of a value: a tile's own, or what the op that made a vector states for it."""
    if isinstance(value.type, TileType):
        return value.type.wg_map
    return result_map(value.op) if isinstance(value, OpResult) else None
