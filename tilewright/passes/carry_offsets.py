"""carry-offsets: what loops and branches carry of a tile is its offsets.

    scf.for .. iter_args(%t = %tile) -> !xetile.tile<16xf32, ..> {      scf.for .. iter_args(%o = %offsets) -> .. {
      %v = xetile.load %t                                                 %t = xetile.init_tile %a, %o
      %u = xetile.update_tile_offset %t, %by                        ->    %v = xetile.load %t
      scf.yield %u }                                                      %p = arith.addi %o, %by
                                                                          scf.yield %p }

A tile that a loop, a branch or a selection chose of several arrays is accessed in a branch of its own, once for each
array (`positions`); so is an array that was chosen itself (`chosen-arrays`).

Requires: a program of a workgroup or a subgroup. Guarantees: the same results; every tile is made by an init_tile: no
op moves one, no loop and no branch gives one. Raises UnsupportedError where an array is made inside of the loop or
branch that chooses it, and for tiles that anything but scf.for, scf.while, scf.if and arith.select gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, unsupported
from tilewright.dialects import xetile
from tilewright.dialects.nesting import values_made
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.chosen_arrays import chosen_arrays
from tilewright.passes.emit import Before
from tilewright.passes.induction import same_view
from tilewright.passes.pipeline import Pass, Unit
from tilewright.passes.positions import Placed, PositionRewriter


def carry_offsets(program: Operation) -> None:
    """Lets loops carry the offsets of tiles, makes tiles where they are accessed, and chooses arrays there."""
    for kernel in [op for op in program.walk() if isinstance(op, gpu.FuncOp)]:
        chosen_arrays(kernel)
    if not all(isinstance(tile.owner, xetile.InitTileOp) for tile in _tiles(program)):
        for region in program.regions:
            PositionRewriter(_Tiles()).run(region)


def with_offsets(kernel: gpu.FuncOp) -> gpu.FuncOp | None:
    """A copy whose tiles are all made where they are accessed; None where it is not known where tiles go: who compiles
    the kernel says more."""
    copy = kernel.clone()
    try:
        carry_offsets(copy)
    except UnsupportedError:
        return None
    return copy


class _Tiles:
    """What XeTile's ops are to the splitting of tiles into an array and offsets, sizes and strides where they are
    stated."""

    def is_moving(self, type: Attribute) -> bool:
        return isinstance(type, xetile.TileType)

    def root(self, op: Operation) -> Placed | None:
        if not isinstance(op, xetile.InitTileOp):
            return None
        offsets: list[Index] = [op.offset_vector] if op.offset_vector else [*op.mixed_offsets]
        return Placed(same_view(op.source), [*offsets, *op.mixed_sizes, *op.mixed_strides])

    def movable(self, created: Placed) -> int:
        return _rank(created)

    def moved(self, op: Operation, operand: Placed) -> list[Index] | None:
        if not isinstance(op, xetile.UpdateTileOffsetOp):
            return None
        if op.offset_vector is not None:
            return [op.offset_vector]
        rank = _rank(operand)
        return [*distances(op, rank), *[0] * (len(operand.parts) - rank)]

    def access(self, op: Operation, placed: dict[int, Placed]) -> None:
        """The tile is made again, where it is not that of an init_tile."""
        for place, at in placed.items():
            tile, rank = op.operands[place], _rank(at)
            kind, parts = tile.type, at.parts
            if isinstance(tile.owner, xetile.InitTileOp):
                continue
            assert isinstance(kind, xetile.TileType)
            if kind.scattered:
                (offsets,) = parts
                assert isinstance(offsets, SSAValue)
                new = xetile.InitTileOp(at.root, kind, offset_vector=offsets)
            else:
                sizes, strides = parts[rank : 2 * rank], parts[2 * rank :]
                new = xetile.InitTileOp(at.root, kind, parts[:rank], sizes=sizes, strides=strides)
            op.operands[place] = Before(op).add(new)


def distances(op: xetile.UpdateTileOffsetOp, rank: int) -> list[Index]:
    """How far a tile of an array of some dimensions moves in the last two; UnsupportedError where it leaves its row."""
    *rows, columns = op.mixed_offsets
    if rank == 1 and rows != [0]:
        raise unsupported(
            op,
            "a tile of an array of one dimension is moved down",
            hint="it has one row: move the tile by [0, n]",
        )
    return [*rows[: rank - 1], columns]


def _rank(placed: Placed) -> int:
    """How many of a tile's parts are offsets: one for each dimension of its array; of an address, for which sizes and
    strides are stated, a third."""
    root = placed.root.type
    return (root.get_num_dims() if isinstance(root, MemRefType) else len(placed.parts) // 3) or 1


def _tiles(program: Operation) -> Iterator[SSAValue]:
    """The tiles of a program."""
    for op in program.walk():
        for value in values_made(op):
            if isinstance(value.type, xetile.TileType):
                yield value


CARRY_OFFSETS = Pass[Unit[Any]]("carry-offsets", carry_offsets, ("workgroup", "subgroup"))
