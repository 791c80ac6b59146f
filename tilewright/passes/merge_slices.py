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

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import (
    VectorType,
)
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.vector import ExtractStridedSliceOp, ShapeCastOp, TransposeOp
from tilewright.passes.access import Access, AccessAnalysis, same_matrix
from tilewright.passes.cleanup import eliminate_common, eliminate_dead
from tilewright.passes.joined_pieces import Joiner
from tilewright.passes.origins import ROOT, Origins, itemsize


def merge_slices(kernel: gpu.FuncOp) -> None:
    """Rewrite `kernel` in place."""
    eliminate_common(kernel.body.block, [])
    while _merge_one(kernel):
        eliminate_dead(kernel.body.block)
    _flatten(kernel)
    eliminate_dead(kernel.body.block)


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
