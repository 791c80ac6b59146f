"""Expressions of access analysis as ops: the way back from `Expr` to SSA values.

Symbols become gpu ids, memref dimensions and strides, kernel arguments; a loop's counter is
`(iv - lower) / step` of its scf.for. What has no SSA form at the place asked for (the counter of an scf.while, a value
that does not dominate) raises `NoValue`, and the caller leaves the program as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from xdsl.dialects import arith, gpu, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xetile
from tilewright.dialects.folding import Folding, Idx
from tilewright.dialects.folding import Kind as FoldingKind
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.induction import AXES

index = IndexType()


class NoValue(Exception):
    """The expression cannot be computed at this place."""


class Materialiser(Folding):
    """Inserts the ops that compute expressions before `point`, each symbol once."""

    def __init__(self, point: InsertPoint):
        self.point = point
        self._symbols: dict[Symbol, SSAValue] = {}
        self._constants: dict[int, SSAValue] = {}

    def insert(self, op: Operation) -> SSAValue:
        Rewriter.insert_op(op, self.point)
        return op.results[0]

    def combined(self, kind: FoldingKind, x: Idx, y: Idx) -> Idx:
        x, y = (self.constant(n) if isinstance(n, int) else n for n in (x, y))
        return self.insert(kind(x, y))

    def constant(self, value: int) -> SSAValue:
        if value not in self._constants:
            op = arith.ConstantOp(IntegerAttr(value, index))
            self._constants[value] = self.insert(op)
        return self._constants[value]

    def value(self, expr: Expr) -> SSAValue | int:
        """The expression's value; a Python int where it is known."""
        total: Idx = 0
        for monomial, factor in expr.terms.items():
            if monomial:
                product = reduce(self.times, map(self.symbol, monomial))
                total = self.plus(total, self.times(product, factor))
        return self.plus(total, expr.offset)

    def ssa(self, expr: Expr) -> SSAValue:
        value = self.value(expr)
        return self.constant(value) if isinstance(value, int) else value

    def tile(self, origin: xetile.InitTileOp, offsets: Sequence[Expr]) -> SSAValue:
        """A tile like that of `origin`, elsewhere."""
        tile = xetile.InitTileOp(
            origin.source,
            origin.tile_type,
            [self.value(e) for e in offsets[-len(origin.mixed_offsets) :]],
            sizes=origin.mixed_sizes,
            strides=origin.mixed_strides,
        )
        self.insert(tile)
        tile.result.name_hint = origin.result.name_hint
        return tile.result

    def symbol(self, symbol: Symbol) -> SSAValue:
        if symbol not in self._symbols:
            self._symbols[symbol] = self._emit(symbol)
        return self._symbols[symbol]

    def _emit(self, symbol: Symbol) -> SSAValue:
        match symbol.kind:
            case Kind.PROGRAM_ID:
                return self.insert(gpu.BlockIdOp(_dimension(symbol.key)))
            case Kind.GRID_DIM:
                return self.insert(gpu.GridDimOp(_dimension(symbol.key)))
            case Kind.EXTENT:
                base, dim = symbol.key  # pyright: ignore
                return self.insert(memref.DimOp(base, self.constant(dim)))
            case Kind.COUNTER:
                return self._counter(symbol)
            case Kind.VALUE:
                value = symbol.key
                if not isinstance(value, SSAValue) or not self.available(value):
                    raise NoValue(symbol.name)
                if value.type == index:
                    return value
                return self.insert(arith.IndexCastOp(value, index))
            case Kind.APPLY:
                return self._apply(symbol)
            case _:
                raise NoValue(symbol.name)

    def _counter(self, symbol: Symbol) -> SSAValue:
        op, dim = symbol.key  # pyright: ignore
        if not isinstance(op, scf.ForOp) or dim != 0:
            raise NoValue(symbol.name)
        iv = op.body.block.args[0]
        if not self.available(iv):
            raise NoValue(symbol.name)
        from_zero = self.insert(arith.SubiOp(iv, op.lb))
        return self.insert(arith.DivUIOp(from_zero, op.step))

    def _apply(self, symbol: Symbol) -> SSAValue:
        operator = str(symbol.key[0])  # pyright: ignore
        args = [self.ssa(a) for a in symbol.args]
        classes = {
            "floordiv": arith.FloorDivSIOp,
            "ceildiv": arith.CeilDivSIOp,
            "min": arith.MinSIOp,
            "max": arith.MaxSIOp,
        }
        if operator in classes:
            left, right = args
            return self.insert(classes[operator](left, right))
        if operator == "mod" and symbol.lower == 0:
            value, divisor = args
            quotient = self.insert(arith.FloorDivSIOp(value, divisor))
            return self.insert(arith.SubiOp(value, self.insert(arith.MuliOp(quotient, divisor))))
        raise NoValue(symbol.name)

    def available(self, value: SSAValue) -> bool:
        """Does the value dominate the place of insertion? (structured control flow only)"""
        made, here, before = value.owner, self.point.block, self.point.insert_before
        home = made if isinstance(made, Block) else made.parent
        if here is not home:
            parent = here.parent_op()
            before = (
                None if home is None or parent is None else home.find_ancestor_op_in_block(parent)
            )
            if before is None:
                return False
        return isinstance(made, Block) or before is None or made.is_before_in_block(before)


def _dimension(axis: object) -> gpu.DimensionAttr:
    return gpu.DimensionAttr(gpu.DimensionEnum(AXES[int(axis)]))  # pyright: ignore
