"""single-elements: what is loaded to be taken apart is loaded element by element.

    %v = xetile.load_tile %t : tile<1x4xi32>              %t2 = xetile.init_tile %pages[%i, %j + 2] : tile<1x1xi32>
    %p = vector.extract_strided_slice %v [0, 2]    ->     %p = xetile.load_tile %t2 : vector<1x1xi32>

All threads load such an element, and so does a single one that copies: the number of a page is known where its tile is
named. A vector would lie with some threads, and others ask them for its elements.

Requires: XeTile at workgroup level. Guarantees: the same results. Vectors that are used as a whole, too, or taken into
more than `MOST` parts stay as they are.
"""

from __future__ import annotations

from typing import Final

from xdsl.dialects import gpu, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, NoneAttr
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.movement import static_position
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp
from tilewright.passes.emit import Before

MOST: Final = 8


def single_elements(function: gpu.FuncOp) -> None:
    """Loads the elements of such vectors one by one."""
    for op in [op for op in function.walk() if isinstance(op, xetile.LoadTileOp)]:
        users = [use.operation for value in op.values for use in value.uses]
        places = [_element(user) for user in users]
        if 0 < len(users) <= MOST and None not in places and _is_plain(op):
            for user, place in zip(users, places, strict=True):
                assert place is not None
                _load(op, user, place)
            Rewriter.erase_op(op)


def _element(user: Operation) -> tuple[int, int] | None:
    """The row and column of the only element that an op takes of a vector."""
    if isinstance(user, ExtractStridedSliceOp) and set(user.result.type.get_shape()) == {1}:
        row, column = (*user.offsets, 0, 0)[:2]
        return row, column
    if isinstance(user, vector.ExtractOp) and len(at := static_position(user)) == 2:
        row, column = at
        return None if DYNAMIC_INDEX in at else (row, column)
    return None


def _is_plain(op: xetile.LoadTileOp) -> bool:
    """Is it the load of one tile, more than an element, of a row-major matrix?"""
    origin, kind = op.tile.owner, op.tile.type
    made = isinstance(origin, xetile.InitTileOp) and origin.offset_vector is None
    one = len(op.values) == 1 and op.permutation is None
    return made and one and kind.encoding == NoneAttr() and set(kind.get_shape()) != {1}


def _load(op: xetile.LoadTileOp, user: Operation, place: tuple[int, int]) -> None:
    origin, at = op.tile.owner, Before(op)
    assert isinstance(origin, xetile.InitTileOp)
    offsets = list(origin.mixed_offsets)
    for dim, by in zip((-1, -2), reversed(place), strict=True):
        if by:
            offsets[dim] = at.plus(offsets[dim], by)
    tile = at.add(
        xetile.InitTileOp(
            origin.source,
            xetile.TileType([1, 1], origin.tile_type.element_type),
            offsets,
            sizes=origin.mixed_sizes,
            strides=origin.mixed_strides,
        )
    )
    element = at.add(xetile.LoadTileOp(tile, op.padding, op.hints))
    if isinstance(user, vector.ExtractOp):
        element = at.add(vector.ExtractOp(element, [0, 0], user.result.type))
    Before(user).replace(element)
