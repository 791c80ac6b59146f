"""The `wg_map` of any value, wherever the text put it.

The RFC attaches maps to ops, the implementation gives them names: `wg_map_a`, `wg_map_result`, and
discardable attributes `map`, `map1` (source) and `map2` (result) on ops of other dialects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from xdsl.dialects.builtin import NoneAttr
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.xetile.attrs import SgMapAttr, TileAttr, WgMapAttr
from tilewright.dialects.xetile.distribution import distribution
from tilewright.dialects.xetile.mma import TileMmaOp
from tilewright.dialects.xetile.types import TileType

_RESULT = ("wg_map", "map2", "map")
_SOURCE = ("wg_map_source", "map1")


def stated_maps(op: Operation) -> Iterator[tuple[dict[str, Attribute], str, SSAValue]]:
    """Where an op states maps of vectors: its table of properties or attributes, the name there, and the vector."""
    if isinstance(op, TileMmaOp):
        of = {"wg_map_a": op.a, "wg_map_b": op.b, "wg_map_c": op.result}
    elif op.results:
        of = dict.fromkeys((*_RESULT, "wg_map_result"), op.results[0])
        of |= dict.fromkeys(_SOURCE, op.operands[0]) if op.operands else {}
    else:
        of = {}
    for table in (op.properties, op.attributes):
        for name, value in of.items():
            if isinstance(table.get(name), WgMapAttr):
                yield table, name, value


def split_map(
    map: WgMapAttr, shape: Sequence[int], dims: Sequence[int], factor: int
) -> WgMapAttr | None:
    """The map of one part of a value that is cut into `factor` equal parts along dimensions: all its subgroups own
    some of it, in fewer rounds or smaller blocks. None where no map distributes the part.

        <sg_layout = [2, 2], sg_data = [32, 128]> of 128x128: rows, by 2 -> [32, 128] of 64x128, by 4 -> [16, 128]
    """
    grid, data = list(ints(map.sg_layout)), list(ints(map.sg_data))
    inst = list(ints(map.inst_data)) if not isinstance(map.inst_data, NoneAttr) else None
    part = list(shape)
    if len(part) != 2:
        return None
    for dim in dims:
        rounds = max(1, shape[dim] // (grid[dim] * data[dim]))
        if shape[dim] % factor:
            return None
        part[dim] //= factor
        data[dim] //= gcd(data[dim], factor // gcd(factor, rounds))
        if inst is not None:
            inst[dim] = gcd(inst[dim], data[dim])
    size = map.broadcast_size
    found = WgMapAttr(grid, data, inst, None if isinstance(size, NoneAttr) else size.value.data)
    described = distribution(found)
    return None if described is None or described.fault(part) is not None else found


def split_tile(tile: TileType, dims: Sequence[int], factor: int) -> TileType | None:
    """The type of one part of a tile that is cut as `split_map` cuts a value; None where its maps distribute no
    part.
    """
    shape = tile.get_shape()
    part = [n // factor if dim in dims else n for dim, n in enumerate(shape)]
    wg, sg = tile.wg_map, tile.sg_map
    new = None if wg is None else split_map(wg, shape, dims, factor)
    described = distribution(new, sg)
    if (wg is not None and new is None) or (described is not None and described.fault(part)):
        return None
    return TileType(part, tile.element_type, _with_maps(tile.tile_attr, sg, new))


def without_maps(tile: TileType, shape: Sequence[int]) -> TileType:
    """A tile of another shape of which the type does not say who owns what."""
    return TileType(shape, tile.element_type, _with_maps(tile.tile_attr, None, None))


def _with_maps(
    attr: TileAttr | None, sg: SgMapAttr | None, wg: WgMapAttr | None
) -> TileAttr | None:
    if attr is None:
        return None
    kept = (attr.order, attr.array_length, attr.memory_space, attr.scattered)
    return TileAttr.new((sg or NoneAttr(), wg or NoneAttr(), *kept))
