"""The whole of a grid of pieces: one load of the memory that they cover together, one slice, one constant, or the op
that made each of them, on wholes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    MemRefType,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp, ShapeCastOp
from tilewright.dialects.xetile import TileAttr, TileType
from tilewright.dtypes import from_mlir
from tilewright.passes.access import Access, AccessAnalysis, same_matrix
from tilewright.passes.affine import Expr
from tilewright.passes.materialise import Materialiser, NoValue
from tilewright.passes.origins import ROOT, Origins, Places, itemsize

Grid = Sequence[Sequence[SSAValue]]
"""Pieces of one value, row after row; equal shapes."""


class Joiner:
    """Wholes of pieces, built before `place`."""

    def __init__(self, origins: Origins, analysis: AccessAnalysis, place: Operation):
        self.origins = origins
        self.analysis = analysis
        self.place = place
        self.new: list[Operation] = []

    def add(self, op: Operation) -> SSAValue:
        op.location = self.place.location
        Rewriter.insert_op(op, InsertPoint.before(self.place))
        self.new.append(op)
        return op.results[0]

    def undo(self) -> None:
        """Removes what was built."""
        for op in reversed(self.new):
            op.detach()
            op.erase()
        self.new.clear()

    def join(self, grid: Grid) -> SSAValue | None:
        """The value that the pieces make up, or None."""
        pieces = [piece for row in grid for piece in row]
        places = np.block([[flat(self.origins.of(piece)) for piece in row] for row in grid])
        first = pieces[0].type
        assert isinstance(first, VectorType)
        kind = VectorType(first.element_type, list(places.shape))
        root = self.origins.root(places)
        if root is not None and (whole := self._slice(root, places, kind)) is not None:
            return whole
        roots = [self.origins.roots[n] for n in np.unique(places // ROOT)]
        return (
            self._constant(roots, kind)
            or self._load(roots, places, kind)
            or self._elementwise(grid, kind)
        )

    def _constant(self, roots: Sequence[SSAValue], kind: VectorType) -> SSAValue | None:
        values = {_splat(root) for root in roots}
        if len(values) != 1 or None in values:
            return None
        owner = roots[0].owner
        assert isinstance(owner, arith.ConstantOp)
        assert isinstance(owner.value, DenseIntOrFPElementsAttr)
        if owner.value.type.get_element_type() != kind.element_type:
            return None
        data = DenseIntOrFPElementsAttr(kind, owner.value.data)  # pyright: ignore[reportArgumentType]
        return self.add(arith.ConstantOp(data))

    def _slice(self, root: SSAValue, places: Places, kind: VectorType) -> SSAValue | None:
        """A window of one value that is there anyway, not loaded."""
        if isinstance(root.owner, xt.LoadTileOp) or root.type.element_type != kind.element_type:  # pyright: ignore
            return None
        shape = root.type.get_shape()  # pyright: ignore
        size, cols = itemsize(root), shape[-1]
        number = places % ROOT // size
        window = _window(number // cols, number % cols, 1)
        if window is None:
            return None
        row, col, flipped = window
        rows = 1
        for n in shape[:-1]:
            rows *= n
        flat: SSAValue = root
        if len(shape) != 2:
            flat = self.add(ShapeCastOp(root, VectorType(kind.element_type, [rows, cols])))
        sizes = [*reversed(places.shape)] if flipped else [*places.shape]
        if [rows, cols] != sizes:
            flat = self.add(ExtractStridedSliceOp(flat, [row, col], sizes))
        return self.add(xt.TransposeOp(flat)) if flipped else flat

    def _load(self, roots: Sequence[SSAValue], places: Places, kind: VectorType) -> SSAValue | None:
        """One load of the memory that all elements come from."""
        found: list[Access] = []
        for root in roots:
            op = root.owner
            access = self.analysis.find(op) if isinstance(op, xt.LoadTileOp) else None
            if access is None or access.scattered or not self._same_at(access):
                return None
            assert isinstance(op, xt.LoadTileOp)
            if op.permutation is not None or len(op.values) > 1 or op.padding_value:
                return None
            found.append(access)
        first = found[0]
        numbers = {int(n): i for i, n in enumerate(np.unique(places // ROOT))}
        wide = itemsize(roots[0])
        which = np.vectorize(numbers.__getitem__)(places // ROOT)
        byte = places % ROOT
        row_bytes = first.shape[1] * wide
        shifts: list[tuple[int, int]] = []
        for access, root in zip(found, roots, strict=True):
            if not same_matrix(access, first) or itemsize(root) != wide:
                return None
            if access.shape[1] != first.shape[1]:
                return None
            shift = [(x - y).constant for x, y in zip(access.offsets, first.offsets, strict=True)]
            if None in shift or any(shift[:-2]):
                return None
            shifts.append((shift[-2] or 0, (shift[-1] or 0) * wide))
        moved = np.array(shifts)
        size = from_mlir(kind.element_type).itemsize
        window = _window(
            moved[which, 0] + byte // row_bytes, moved[which, 1] + byte % row_bytes, size
        )
        if window is None or window[1] % size:
            return None
        row, col, flipped = window
        offsets = [*first.offsets[:-2], first.offsets[-2] + row]
        offsets.append(_scaled(first.offsets[-1], wide, size) + col // size)
        shape = [*reversed(places.shape)] if flipped else [*places.shape]
        try:
            tile = self._tile(first, offsets, shape, kind.element_type, wide, size)
        except NoValue:
            return None
        if tile is None:
            return None
        loaded = self.add(xt.LoadTileOp(tile))
        return self.add(xt.TransposeOp(loaded)) if flipped else loaded

    def _same_at(self, access: Access) -> bool:
        """May the load be done at the place where wholes are built?"""
        if self.analysis.read_only(access.root):
            return True
        op, place = access.op, self.place
        if op.parent is not place.parent or not op.is_before_in_block(place):
            return False
        writes = [a.op for a in self.analysis.accesses if a.writes]
        between = op.next_op
        while between is not None and between is not place:
            if any(between is w or between.is_ancestor(w) for w in writes):
                return False
            between = between.next_op
        return True

    def _tile(
        self,
        access: Access,
        offsets: Sequence[Expr],
        shape: list[int],
        element: Attribute,
        wide: int,
        size: int,
    ) -> SSAValue | None:
        build = Materialiser(InsertPoint.before(self.place))
        origin = access.origin
        source, sizes, strides = origin.source, origin.mixed_sizes, origin.mixed_strides
        if wide != size:
            view = self._as(element, access, wide // size)
            if view is None:
                return None
            source, sizes, strides = view
        was = origin.tile_type
        attribute = TileAttr(order=was.order, memory_space=was.memory_space or None)
        kind = TileType(shape, element, None if was.tile_attr is None else attribute)
        for value in (*sizes, *strides, source):
            if isinstance(value, SSAValue) and not build.available(value):
                return None
        values = [build.value(offset) for offset in offsets]
        rank = len(origin.mixed_offsets)
        init = xt.InitTileOp(
            source, kind, offsets=values[len(values) - rank :], sizes=sizes, strides=strides
        )
        return self.add(init)

    def _as(self, element: Attribute, access: Access, ratio: int):
        """The base matrix with narrower elements, where an array of them is known to lie there."""
        array = access.root
        if not isinstance(array.type, MemRefType) or array.type.element_type != element:
            return None
        extents = [e.constant for e in access.extents]
        steps = [s.constant for s in access.strides]
        if None in extents or None in steps or steps[-1] != 1:
            return None
        extents = [*extents[:-1], extents[-1] * ratio]  # pyright: ignore
        steps = [*(s * ratio for s in steps[:-1]), 1]  # pyright: ignore
        shape, strides = array.type.get_shape(), array.type.get_strides()
        if list(shape) != extents or list(strides or ()) != steps:
            return None
        return array, (), ()

    def _elementwise(self, grid: Grid, kind: VectorType) -> SSAValue | None:
        """The op that made each of the pieces, on the wholes of its operands."""
        ops = [[piece.owner for piece in row] for row in grid]
        first = ops[0][0]
        if not isinstance(first, Operation) or not is_elementwise(first):
            return None
        for op in (op for row in ops for op in row):
            if type(op) is not type(first) or op.properties != first.properties:  # pyright: ignore
                return None
        operands: list[SSAValue] = []
        for i, operand in enumerate(first.operands):
            parts = [[op.operands[i] for op in row] for row in ops]  # pyright: ignore
            if not isinstance(operand.type, VectorType):
                if any(part is not operand for row in parts for part in row):
                    return None
                operands.append(operand)
                continue
            whole = self.join(parts)
            if whole is None:
                return None
            operands.append(whole)
        return self.add(
            type(first).create(
                operands=operands,
                result_types=[kind],
                properties=dict(first.properties),
                attributes=dict(first.attributes),
            )
        )


def flat(places: Places) -> Places:
    """As rows: leading dimensions fold, one dimension is one row."""
    return places.reshape(-1, places.shape[-1])


def _window(rows: Places, cols: Places, step: int) -> tuple[int, int, bool] | None:
    """(first row, first column, transposed) if the places are a box of adjacent ones, `step` apart along a row."""
    i, j = np.indices(rows.shape)
    row, col = int(rows[0, 0]), int(cols[0, 0])
    if (rows == row + i).all() and (cols == col + j * step).all():
        return row, col, False
    if (rows == row + j).all() and (cols == col + i * step).all():
        return row, col, True
    return None


def _scaled(offset: Expr, wide: int, size: int) -> Expr:
    return offset * (wide // size) if wide != size else offset


def _splat(value: SSAValue) -> object:
    op = value.owner
    if not isinstance(op, arith.ConstantOp) or not isinstance(op.value, DenseIntOrFPElementsAttr):
        return None
    return str(op.value.get_values()[0]) if op.value.is_splat() else None
