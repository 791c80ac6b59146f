"""The products of a kernel for the arrays of a launch: how large, how deep, and how often each side is read.

    C[128, 256] += A[128, 32] B[32, 256], 700 x 1000 x 4096:   k = 4096, A is read by 4 programs, B by 6

What a target's model of them (`uarch.products.ProductModel`) is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from xdsl.dialects.builtin import VectorType
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from tilewright.dialects import xetile
from tilewright.frozen import frozen
from tilewright.passes.tile_origin import tile_origin


@frozen
class Factor:
    """One side of a product as the IR has it."""

    array: SSAValue | None
    """What it is loaded from, seen through ops on each element; None where it is computed otherwise."""
    axis: int
    """The dimension of the array, from its end (-1 or -2), along which the result's rows (columns) run."""
    made_by: tuple[Operation, ...]
    """The load and the ops on it, the last first."""


@frozen
class TileProduct:
    """A `tile_mma` and its sides."""

    op: xetile.TileMmaOp
    a: Factor
    b: Factor

    @property
    def sides(self) -> tuple[Factor, Factor]:
        return self.a, self.b

    @property
    def is_summed(self) -> bool:
        """Is it added to what a loop carries?"""
        return isinstance(self.op.c, BlockArgument)


def products_of(kernel: Operation) -> Iterator[TileProduct]:
    """All of a kernel."""
    for op in kernel.walk():
        if isinstance(op, xetile.TileMmaOp):
            yield TileProduct(op, _factor(op.a, 0), _factor(op.b, 1))


def made_for_products(products: Sequence[TileProduct]) -> Set[Operation]:
    """The products, and the ops that make what they alone multiply."""
    ops = dict.fromkeys(op for p in products for f in p.sides for op in f.made_by)
    found: set[Operation] = {product.op for product in products}
    while new := {
        op
        for op in ops.keys() - found
        if all(use.operation in found for value in op.results for use in value.uses)
    }:
        found |= new
    return found


def _factor(value: SSAValue, side: int) -> Factor:
    transposed, made_by = False, list[Operation]()
    while isinstance(value, OpResult):
        op = value.op
        made_by.append(op)
        if isinstance(op, xetile.LoadTileOp):
            origin = tile_origin(op.tile)
            if origin is None:
                break
            return Factor(origin.source, -1 if side ^ transposed else -2, tuple(made_by))
        tiles = [v for v in op.operands if isinstance(v.type, VectorType)]
        if isinstance(op, xetile.TransposeOp):
            transposed = not transposed
        elif len(tiles) != 1 or tiles[0].type.get_shape() != value.type.get_shape():  # pyright: ignore
            break
        value = tiles[0]
    return Factor(None, -1 if side else -2, ())
