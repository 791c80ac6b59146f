"""merge-slices: products of pieces become products of what the pieces were cut from.

Programs for one subgroup cut what they load to the shapes of an instruction, multiply piece by piece, and carry one
accumulator per piece:

    %r:4 = scf.for .. iter_args(%c00 = %z, %c01 = %z, %c10 = %z, %c11 = %z) {
      %a = load_tile : vector<16x32xf16>            %b = load_tile : vector<32x32xf16>
      %a00 = extract_strided_slice %a [0, 0]        %b00 = extract_strided_slice %b [0, 0]       ...
      %d00 = tile_mma %a00, %b00, %c00 : 8x16       %e00 = tile_mma %a01, %b10, %d00             ...
  ->
    %r = scf.for .. iter_args(%c = %Z) {
      %a = load_tile : vector<16x32xf16>            %b = load_tile : vector<32x32xf16>
      %e = tile_mma %a, %b, %c : vector<16x32xf32> ...
    %r00 = extract_strided_slice %r [0, 0] ...

Requires: XeTile of one subgroup or workgroup. Guarantees: the same values, sums in another order; rearranged values of
any rank that other ops use are loads, or slices and transposes of 2-D values, wherever they can be.

Chains of products on one accumulator that share their left operands stand in one row, those that share their right
operands in one column; a full grid of rows and columns is one product. `Joiner` gives the whole of a grid of pieces:
one load of the memory that they cover together, one slice, one constant, or the op that made each of them, on wholes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    MemRefType,
    VectorType,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp, ShapeCastOp, TransposeOp
from tilewright.dialects.xetile import TileAttr, TileType
from tilewright.dtypes import from_mlir
from tilewright.passes.access import Access, AccessAnalysis, same_matrix
from tilewright.passes.affine import Expr
from tilewright.passes.cleanup import eliminate_common, eliminate_dead
from tilewright.passes.materialise import Materialiser, NoValue
from tilewright.passes.origins import ROOT, Origins, Places, itemsize

Grid = Sequence[Sequence[SSAValue]]
"""Pieces of one value, row after row; equal shapes."""


def merge_slices(kernel: gpu.FuncOp) -> None:
    """Rewrite `kernel` in place."""
    eliminate_common(kernel.body.block, [])
    while _merge_one(kernel):
        eliminate_dead(kernel.body.block)
    _flatten(kernel)
    eliminate_dead(kernel.body.block)


# Joining --------------------------------------------------------------------------------------------------------


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
        places = np.block([[_flat(self.origins.of(piece)) for piece in row] for row in grid])
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
        if not isinstance(first, Operation) or not _is_elementwise(first) or first.regions:
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


def _flat(places: Places) -> Places:
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


def _is_elementwise(op: Operation) -> bool:
    return type(op).__module__.startswith(
        ("xdsl.dialects.arith", "xdsl.dialects.math")
    ) and not isinstance(op, arith.ConstantOp)


# Products -------------------------------------------------------------------------------------------------------


@dataclass
class Chain:
    """Products that add to one accumulator, first to last."""

    products: list[xt.TileMmaOp]

    @property
    def first(self) -> xt.TileMmaOp:
        return self.products[0]

    @property
    def last(self) -> xt.TileMmaOp:
        return self.products[-1]

    @property
    def kind(self) -> tuple[object, ...]:
        types = [(str(m.a.type), str(m.b.type)) for m in self.products]
        return (len(types), *sorted(types), str(self.last.result.type), self.carried is None)

    @property
    def carried(self) -> int | None:
        """The position among a loop's carried values, if the sum is carried by an scf.for."""
        block = self.first.parent
        c = self.first.c
        loop = block.parent_op() if block is not None else None
        if (
            not isinstance(loop, scf.ForOp)
            or not isinstance(c, BlockArgument)
            or c.block is not block
        ):
            return None
        assert block is not None and block.last_op is not None
        i = c.index - 1
        if not _once(c) or not _once(self.last.result):
            return None
        return i if block.last_op.operands[i] is self.last.result else None


def _once(value: SSAValue) -> bool:
    return value.first_use is not None and value.has_one_use()


def _chains(block: Block) -> list[Chain]:
    chains: dict[SSAValue, Chain] = {}
    for op in block.ops:
        if not isinstance(op, xt.TileMmaOp):
            continue
        before = chains.pop(op.c, None) if op.c is not None and _once(op.c) else None
        chain = before or Chain([])
        chain.products.append(op)
        chains[op.result] = chain
    return list(chains.values())


def _merge_one(kernel: gpu.FuncOp) -> bool:
    """Merge one grid of products; False when there is none."""
    origins, analysis = Origins(), AccessAnalysis(kernel)
    for op in kernel.walk():
        for block in (b for region in op.regions for b in region.blocks):
            groups: dict[tuple[object, ...], list[Chain]] = {}
            for chain in _chains(block):
                groups.setdefault(chain.kind, []).append(chain)
            for chains in groups.values():
                for grid in _grids(chains, origins, analysis):
                    if _merge(grid, origins, analysis):
                        return True
    return False


@dataclass
class ProductGrid:
    """chains[row][column], and the operands: left[row][k], right[k][column]."""

    chains: list[list[Chain]]
    left: list[list[SSAValue]]
    right: list[list[SSAValue]]


def _grids(chains: list[Chain], origins: Origins, analysis: AccessAnalysis) -> list[ProductGrid]:
    """Full grids among chains of one kind."""
    position = _Positions(origins, analysis)

    def label(values: Sequence[SSAValue]) -> bytes:
        return b"|".join(origins.of(v).tobytes() for v in values)

    ordered = [
        (chain, sorted(chain.products, key=lambda m: (position(m.a), position(m.b))))
        for chain in chains
    ]
    left = {id(c): [m.a for m in ms] for c, ms in ordered}
    right = {id(c): [m.b for m in ms] for c, ms in ordered}
    by_row: dict[bytes, dict[bytes, Chain]] = {}
    for chain, _ in ordered:
        row = by_row.setdefault(label(left[id(chain)]), {})
        row.setdefault(label(right[id(chain)]), chain)
    by_columns: dict[frozenset[bytes], list[dict[bytes, Chain]]] = {}
    for row in by_row.values():
        by_columns.setdefault(frozenset(row), []).append(row)
    grids: list[ProductGrid] = []
    for rows in by_columns.values():
        if len(rows) * len(rows[0]) * len(next(iter(rows[0].values())).products) < 2:
            continue
        rows.sort(key=lambda row: position(left[id(next(iter(row.values())))][0]))
        columns = sorted(rows[0], key=lambda key: position(right[id(rows[0][key])][0]))
        table = [[row[key] for key in columns] for row in rows]
        k = len(table[0][0].products)
        grids.append(
            ProductGrid(
                table,
                [left[id(row[0])] for row in table],
                [[right[id(chain)][i] for chain in table[0]] for i in range(k)],
            )
        )
    return grids


class _Positions:
    """A key that sorts values by where in memory, or in which value, they start."""

    def __init__(self, origins: Origins, analysis: AccessAnalysis):
        self.origins, self.analysis = origins, analysis
        self._first: list[Access] = []

    def __call__(self, value: SSAValue) -> tuple[int, int, int]:
        place = int(self.origins.of(value).flat[0])
        root = self.origins.roots[place // ROOT]
        byte = place % ROOT
        op = root.owner
        access = self.analysis.find(op) if isinstance(op, xt.LoadTileOp) else None
        if access is None or access.scattered:
            return (-1 - place // ROOT, byte, 0)
        row, col = divmod(byte, access.shape[1] * itemsize(root))
        for i, first in enumerate(self._first):
            if not same_matrix(access, first):
                continue
            dr = (access.offsets[-2] - first.offsets[-2]).constant
            dc = (access.offsets[-1] - first.offsets[-1]).constant
            if dr is not None and dc is not None:
                return (i, row + dr, col + dc * itemsize(root))
        self._first.append(access)
        return (len(self._first) - 1, row, col)


def _merge(grid: ProductGrid, origins: Origins, analysis: AccessAnalysis) -> bool:
    chains = [chain for row in grid.chains for chain in row]
    block = chains[0].first.parent
    assert block is not None
    loop = block.parent_op() if chains[0].carried is not None else None
    place = _place(chains)
    if place is None:
        return False
    joiner = Joiner(origins, analysis, place)
    a, b = joiner.join(grid.left), joiner.join(grid.right)
    outside = Joiner(origins, analysis, loop if loop is not None else place)
    starts = None
    if a is not None and b is not None:
        starts = _starts(grid, loop, outside)
    if a is None or b is None or starts is None:
        joiner.undo()
        outside.undo()
        return False
    shape = [a.type.get_shape()[0], b.type.get_shape()[1]]  # pyright: ignore
    kind = VectorType(chains[0].last.result.type.element_type, shape)  # pyright: ignore
    if loop is None:
        product = joiner.add(xt.TileMmaOp(a, b, starts[0] if starts else None, result_type=kind))
        _cut(grid, product, place, lambda chain: chain.last.result)
        for chain in chains:
            _erase(chain)
        return True
    assert isinstance(loop, scf.ForOp)
    _rebuild(grid, loop, joiner, (a, b, starts[0]), kind)
    return True


def _place(chains: list[Chain]) -> Operation | None:
    """The last product, if nothing before it uses a sum; None otherwise."""
    last = chains[0].last
    for chain in chains:
        if last.is_before_in_block(chain.last):
            last = chain.last
    block = last.parent
    members = {m for chain in chains for m in chain.products}
    for chain in chains:
        for use in chain.last.result.uses:
            user: Operation | None = use.operation
            while user is not None and user.parent is not block:
                user = user.parent_op()
            if user is None or (user not in members and not last.is_before_in_block(user)):
                return None
    return last


def _starts(grid: ProductGrid, loop: Operation | None, joiner: Joiner) -> list[SSAValue] | None:
    """The whole of the accumulators' first values: empty for none, None where there is no whole."""
    firsts = [[chain.first.c for chain in row] for row in grid.chains]
    if isinstance(loop, scf.ForOp):
        firsts = [[loop.iter_args[chain.carried or 0] for chain in row] for row in grid.chains]
    given = [c for row in firsts for c in row if c is not None]
    if not given:
        return []
    if len(given) != sum(map(len, firsts)):
        return None
    whole = joiner.join(firsts)  # pyright: ignore
    return None if whole is None else [whole]


def _cut(
    grid: ProductGrid, whole: SSAValue, place: Operation, old: Callable[[Chain], SSAValue]
) -> None:
    """Each chain's result is a piece of the whole, cut after `place`'s block has it."""
    rows, cols = grid.chains[0][0].last.result.type.get_shape()  # pyright: ignore
    for i, row in enumerate(grid.chains):
        for j, chain in enumerate(row):
            piece = ExtractStridedSliceOp(whole, [i * rows, j * cols], [rows, cols])
            piece.location = place.location  # pyright: ignore
            Rewriter.insert_op(piece, InsertPoint.before(place))
            old(chain).replace_all_uses_with(piece.result)


def _erase(chain: Chain) -> None:
    for product in reversed(chain.products):
        product.detach()
        product.erase()


def _rebuild(
    grid: ProductGrid,
    loop: scf.ForOp,
    joiner: Joiner,
    operands: tuple[SSAValue, SSAValue, SSAValue],
    kind: VectorType,
) -> None:
    """The loop with one accumulator in place of the grid's."""
    chains = [chain for row in grid.chains for chain in row]
    gone = {chain.carried for chain in chains}
    kept = [i for i in range(len(loop.iter_args)) if i not in gone]
    old = loop.body.block
    terminator = old.last_op
    assert terminator is not None
    new = Block(arg_types=[old.args[0].type, *(old.args[i + 1].type for i in kept), kind])
    product = joiner.add(xt.TileMmaOp(operands[0], operands[1], new.args[-1], result_type=kind))
    yields = [*(terminator.operands[i] for i in kept), product]
    positions = {id(chain): chain.carried for chain in chains}
    Rewriter.insert_op(scf.YieldOp(*yields), InsertPoint.before(terminator))
    terminator.detach()
    terminator.erase()
    for chain in chains:
        _erase(chain)
    old.args[0].replace_all_uses_with(new.args[0])
    for at, i in enumerate(kept):
        old.args[i + 1].replace_all_uses_with(new.args[at + 1])
    for op in list(old.ops):
        op.detach()
        new.add_op(op)
    made = scf.ForOp(
        loop.lb, loop.ub, loop.step, [*(loop.iter_args[i] for i in kept), operands[2]], new
    )
    made.attributes.update(loop.attributes)
    made.location = loop.location  # pyright: ignore
    Rewriter.insert_op(made, InsertPoint.before(loop))
    for at, i in enumerate(kept):
        loop.results[i].replace_all_uses_with(made.results[at])
    _cut(grid, made.results[-1], loop, lambda chain: loop.results[positions[id(chain)] or 0])
    loop.detach()
    loop.erase()


# Rearranged values ----------------------------------------------------------------------------------------------


def _flatten(kernel: gpu.FuncOp) -> None:
    """What ops that compute or store use is a load, or a slice or transpose of something 2-D."""
    origins, analysis = Origins(), AccessAnalysis(kernel)
    for op in list(kernel.walk()):
        if _only_moves(op):
            continue
        for i, operand in enumerate(op.operands):
            if not isinstance(operand.type, VectorType) or len(operand.type.get_shape()) < 1:
                continue
            if not origins.is_rearranged(operand) or _is_simple(operand):
                continue
            joiner = Joiner(origins, analysis, op)
            whole = joiner.join([[operand]])
            if whole is None:
                joiner.undo()
                continue
            if whole.type != operand.type:
                whole = joiner.add(ShapeCastOp(whole, operand.type))
            op.operands[i] = whole


def _only_moves(op: Operation) -> bool:
    return op.name.startswith("vector.") or op.name in ("xetile.transpose", "xetile.convert_layout")


def _is_simple(value: SSAValue) -> bool:
    """A value that targets take as it stands."""
    op = value.owner
    if isinstance(op, Block):
        return True
    shapes = [v.type.get_shape() for v in (value, *op.operands) if isinstance(v.type, VectorType)]
    if any(len(shape) > 2 for shape in shapes):
        return False
    inner = op.operands[0].owner if op.operands else None
    return isinstance(op, TransposeOp | ShapeCastOp | xt.TransposeOp) and not (
        isinstance(inner, Operation) and _only_moves(inner)
    )
