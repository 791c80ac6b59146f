"""contraction: products, and loops that sum products, become `stage.contract`, one range of k each.

    %r:3 = scf.for %i = %c0 to %K step %c32 iter_args(%t = %a, %u = %b, %acc = %z) {
      %x = xetile.load_tile %t          %y = xetile.load_tile %u
      %d = xetile.tile_mma %x, %y, %acc
      %t1 = xetile.update_tile_offset %t, [0, 32]      %u1 = ... [32, 0]
      scf.yield %t1, %u1, %d }
  ->
    %r = stage.contract %c0 to %len step %c32 init(%z) {
    ^bb0(%k : index):
      %t = xetile.init_tile %A[%m, %k]     %x = xetile.load_tile %t
      %u = xetile.init_tile %B[%k, %n]     %y = xetile.load_tile %u
      stage.yield %x, %y }

Requires: XeTile at workgroup level.
Guarantees: no tile_mma is left; the same sums in another order.

A loop is such a sum when every tile-shaped value that it carries is only added to by a tile_mma, and the operands are
loads that advance by exactly their own extent of k per iteration, seen through elementwise ops, casts and transposes
(access analysis decides, so it does not matter how the program moves its tiles). It may be an scf.for or an scf.while.
A contract that continues another over the following range of the same operands is joined with it, so that peeled
iterations and split loops give the same code. A tile_mma elsewhere is a contract of one step; loads of its operands
move into it unless something is written in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, gpu, math, scf, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    UnrealizedConversionCastOp,
    VectorType,
)
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint
from xdsl.traits import is_side_effect_free

from tilewright.dialects import xetile as xt
from tilewright.dialects.stage import ContractOp, YieldOp
from tilewright.passes.access import Access, AccessAnalysis
from tilewright.passes.affine import Expr
from tilewright.passes.induction import Loop
from tilewright.passes.materialise import Materialiser, NoValue

index = IndexType()


@dataclass
class Slice:
    """The ops that compute an operand from loads, in order, and the loads among them."""

    ops: list[Operation]
    loads: list[Access]


class Contraction:
    """Rewrites one kernel."""

    def __init__(self, function: gpu.FuncOp, remarks: list[str]):
        self.function = function
        self.remarks = remarks
        self.analysis = AccessAnalysis(function)
        self.order = {op: i for i, op in enumerate(function.walk())}

    def run(self) -> None:
        for op in list(self.function.walk()):
            if isinstance(op, scf.ForOp | scf.WhileOp) and op.parent is not None:
                self.loop(op)
        for op in list(self.function.walk()):
            if isinstance(op, xt.TileMmaOp) and op.parent is not None:
                self.single(op)
        join_contracts(self.function)

    # Loops ----------------------------------------------------------------------------------------------------

    def loop(self, op: scf.ForOp | scf.WhileOp) -> None:
        carried = _carried(op)
        if carried is None:
            return
        block, args, inits, yields, results = carried
        products: list[tuple[int, xt.TileMmaOp]] = []
        for i, arg in enumerate(args):
            if not isinstance(arg.type, VectorType):
                if not results[i].first_use:
                    continue
                return
            mma = _only_added(arg, yields[i])
            if mma is None:
                return
            products.append((i, mma))
        if not products or any(not _harmless(inner, block) for inner in block.ops):
            return
        loop = self.analysis.loop(op)
        if loop.trips is None:
            return
        sizes = {mma.a.type.get_shape()[1] for _, mma in products}  # pyright: ignore
        if len(sizes) != 1:
            return
        (k,) = sizes
        slices: list[tuple[Slice, Slice]] = []
        for _, mma in products:
            pair = [self.slice(v, block, loop, k, axis) for v, axis in ((mma.a, 1), (mma.b, 0))]
            if pair[0] is None or pair[1] is None:
                return
            slices.append((pair[0], pair[1]))
        try:
            contract = self.build(
                op, [m for _, m in products], slices, loop, loop.trips * k, k, [inits[i] for i, _ in products]
            )
        except NoValue:
            return
        for (i, _), value in zip(products, contract.values, strict=True):
            results[i].replace_all_uses_with(value)
        op.detach()
        op.erase()

    def slice(self, value: SSAValue, block: Block, loop: Loop | None, k: int, k_axis: int) -> Slice | None:
        """The slice of an operand if it consists of loads that move with the loop; `k_axis` is the operand's own."""
        ops: dict[Operation, None] = {}
        loads: dict[Operation, Access] = {}

        def visit(v: SSAValue, axis: int) -> bool:
            if not isinstance(v.type, VectorType):
                return self.invariant(v, block)
            if not isinstance(v, OpResult):
                return False
            op = v.op
            if isinstance(op, arith.ConstantOp):
                known = isinstance(op.value, DenseIntOrFPElementsAttr) and op.value.is_splat()
                ops[op] = None
                return known
            if isinstance(op, xt.LoadTileOp):
                if op.permutation is not None or len(op.values) > 1:
                    return False
                access = self.analysis._by_op.get(op)  # pyright: ignore
                if access is None or access.scattered or not self.moves(access, loop, k, axis):
                    return False
                if not self.unwritten(access, block, loop is not None):
                    return False
                ops[op] = None
                loads[op] = access
                return True
            if op in ops:
                return True
            if isinstance(op, xt.TransposeOp):
                axis = 1 - axis if op.permutation == (1, 0) else axis
            elif isinstance(op, xt.BroadcastOp):
                if op.broadcast_size is not None:
                    return False
            elif not _positionwise(op):
                return False
            if not all(visit(operand, axis) for operand in op.operands):
                return False
            ops[op] = None
            return True

        if not visit(value, k_axis) or not loads:
            return None
        ordered = sorted(ops, key=lambda op: self.order[op])
        return Slice(ordered, list(loads.values()))

    def invariant(self, value: SSAValue, block: Block) -> bool:
        """Is a scalar made outside of the block?"""
        owner = value.owner
        inside = owner if isinstance(owner, Operation) else owner.parent_op()
        while inside is not None:
            if inside.parent is block:
                return False
            inside = inside.parent_op()
        return not (isinstance(owner, Block) and owner is block)

    def moves(self, access: Access, loop: Loop | None, k: int, axis: int) -> bool:
        """Does the load advance by its own extent of k per iteration, and by nothing else?"""
        if loop is None:
            return True
        steps = access.step(loop)
        extent = access.tile_type.get_shape()[axis]
        wanted = k if extent == k and k != 1 else None
        for d, step in enumerate(steps):
            if step is None:
                return False
            mine = d == len(steps) - 2 + axis
            if mine and extent == 1 and k != 1:
                if step.constant != 0:
                    return False
            elif mine:
                if step.constant != (wanted if wanted is not None else k):
                    return False
            elif step.constant != 0:
                return False
        return True

    def unwritten(self, access: Access, block: Block, in_loop: bool) -> bool:
        """Does no op of the block write what is loaded? (Before a product: between the load and it.)"""
        return self.analysis.read_only(access.root) or (
            access.op.parent is block
            and not any(
                self.analysis.may_alias(w.root, access.root)
                for w in self.analysis.accesses
                if w.writes and _inside(w.op, block)
            )
        )

    # Building -------------------------------------------------------------------------------------------------

    def build(
        self,
        place: Operation,
        products: list[xt.TileMmaOp],
        slices: list[tuple[Slice, Slice]],
        loop: Loop | None,
        length: Expr,
        step: int,
        inits: list[SSAValue],
    ) -> ContractOp:
        """The contract before `place`; NoValue if its tiles cannot be computed there (nothing is left behind)."""
        outside = Materialiser(InsertPoint.before(place))
        body = Block(arg_types=[index])
        k = body.args[0]
        copies: dict[SSAValue, SSAValue] = {}
        outputs: list[SSAValue] = []
        for pair, mma in zip(slices, products, strict=True):
            for part, operand in ((pair[0], mma.a), (pair[1], mma.b)):
                for op in part.ops:
                    if op.results[0] in copies:
                        continue
                    if isinstance(op, xt.LoadTileOp):
                        access = next(a for a in part.loads if a.op is op)
                        self.copy_load(access, op, body, k, loop, step, outside, copies)
                        continue
                    new = op.clone(copies)
                    body.add_op(new)
                    for old, result in zip(op.results, new.results, strict=True):
                        copies[old] = result
                outputs.append(copies[operand])
        body.add_op(YieldOp(outputs))
        lo, hi = outside.constant(0), outside.ssa(length)
        contract = ContractOp(lo, hi, outside.constant(step), inits, Region(body))
        contract.location = products[0].location  # pyright: ignore
        assert place.parent is not None
        place.parent.insert_op_before(contract, place)
        return contract

    def copy_load(
        self,
        access: Access,
        op: xt.LoadTileOp,
        body: Block,
        k: SSAValue,
        loop: Loop | None,
        step: int,
        outside: Materialiser,
        copies: dict[SSAValue, SSAValue],
    ) -> None:
        """A load in the contract: the tile where it is at the first iteration, moved by k."""
        origin = access.origin
        for v in (*origin.sizes, *origin.strides, origin.source):
            if not outside.available(v):
                raise NoValue("sizes of the tile")
        offsets: list[SSAValue | int] = []
        for offset in access.offsets:
            moving = loop is not None and offset.step(loop.counter) != Expr.of(0)
            start = offset.without(loop.counter) if loop is not None else offset
            value = outside.value(start)
            if moving:
                if value == 0:
                    value = k
                else:
                    add = arith.AddiOp(k, outside.constant(value) if isinstance(value, int) else value)
                    body.add_op(add)
                    value = add.result
            offsets.append(value)
        rank = len(origin.mixed_offsets)
        offsets = offsets[len(offsets) - rank :]
        tile = xt.InitTileOp(
            origin.source,
            access.tile_type,
            offsets=offsets,
            sizes=origin.mixed_sizes,
            strides=origin.mixed_strides,
        )
        body.add_op(tile)
        load = op.clone({op.tile: tile.result})
        body.add_op(load)
        for old, new in zip(op.results, load.results, strict=True):
            copies[old] = new

    # Products outside of such loops ---------------------------------------------------------------------------

    def single(self, mma: xt.TileMmaOp) -> None:
        block = mma.parent
        assert block is not None
        k = mma.a.type.get_shape()[1]  # pyright: ignore
        init = mma.c
        if init is None:
            init = zero_before(mma)
        slices: list[Slice] = []
        for value, axis in ((mma.a, 1), (mma.b, 0)):
            found = self.slice(value, block, None, k, axis)
            if found is not None and not self.reachable(found, mma):
                found = None
            slices.append(found if found is not None else Slice([], []))
        body = Block(arg_types=[index])
        copies: dict[SSAValue, SSAValue] = {}
        outside = Materialiser(InsertPoint.before(mma))
        for part, axis in zip(slices, (1, 0), strict=True):
            for op in part.ops:
                if op.results[0] in copies:
                    continue
                if isinstance(op, xt.LoadTileOp):
                    access = self.analysis.of(op)
                    self.copy_single(access, op, body, axis, part, outside, copies)
                    continue
                new = op.clone(copies)
                body.add_op(new)
                for old, result in zip(op.results, new.results, strict=True):
                    copies[old] = result
        outputs = [copies.get(v, v) for v in (mma.a, mma.b)]
        body.add_op(YieldOp(outputs))
        contract = ContractOp(
            outside.constant(0), outside.constant(k), outside.constant(k), [init], Region(body)
        )
        contract.location = mma.location  # pyright: ignore
        block.insert_op_before(contract, mma)
        mma.result.replace_all_uses_with(contract.values[0])
        mma.detach()
        mma.erase()

    def reachable(self, part: Slice, mma: Operation) -> bool:
        """Can every tile of the slice be named at the product?"""
        probe = Materialiser(InsertPoint.before(mma))
        return all(probe.available(v) for a in part.loads for v in (a.op.operands[0],)) and all(
            a.op.parent is mma.parent or self.analysis.read_only(a.root) for a in part.loads
        )

    def copy_single(
        self,
        access: Access,
        op: xt.LoadTileOp,
        body: Block,
        axis: int,
        part: Slice,
        outside: Materialiser,
        copies: dict[SSAValue, SSAValue],
    ) -> None:
        """A load of a one-step contract: its tile named by offsets where they are known, so that contracts can join."""
        origin = access.origin
        try:
            if not all(outside.available(v) for v in (*origin.sizes, *origin.strides, origin.source)):
                raise NoValue("sizes of the tile")
            offsets = [outside.value(e) for e in access.offsets]
            offsets = offsets[len(offsets) - len(origin.mixed_offsets) :]
            tile = xt.InitTileOp(
                origin.source, access.tile_type, offsets=offsets, sizes=origin.mixed_sizes, strides=origin.mixed_strides
            )
            body.add_op(tile)
            load = op.clone({op.tile: tile.result})
        except NoValue:
            load = op.clone()
        body.add_op(load)
        for old, new in zip(op.results, load.results, strict=True):
            copies[old] = new


def join_contracts(function: gpu.FuncOp) -> None:
    """Join contracts that continue one another (see the module's docstring)."""


def zero_before(op: xt.TileMmaOp) -> SSAValue:
    """A zero of the type of the op's result."""
    type = op.result.type
    assert isinstance(type, VectorType)
    element = type.element_type
    value = FloatAttr(0.0, element) if isinstance(element, AnyFloat) else IntegerAttr(0, element)  # pyright: ignore
    constant = arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(type, [value.value.data]), type)  # pyright: ignore
    assert op.parent is not None
    op.parent.insert_op_before(constant, op)
    return constant.result


def _carried(op: scf.ForOp | scf.WhileOp):  # noqa: ANN202
    """(block of the body, carried arguments, initial values, yielded values, results), or None for another shape."""
    if isinstance(op, scf.ForOp):
        block = op.body.block
        last = block.last_op
        assert last is not None
        return block, list(block.args[1:]), list(op.iter_args), list(last.operands), list(op.results)
    before, after = op.before_region.block, op.after_region.block
    condition, last = before.last_op, after.last_op
    if not isinstance(condition, scf.ConditionOp) or last is None:
        return None
    # The loop passes on exactly what it carries.
    if list(condition.operands[1:]) != list(before.args):
        return None
    if any(not is_side_effect_free(o) for o in before.ops if o is not condition):
        return None
    if any(isinstance(a.type, VectorType) and len(list(a.uses)) != 1 for a in before.args):
        return None
    return after, list(after.args), list(op.arguments), list(last.operands), list(op.results)


def _only_added(arg: SSAValue, yielded: SSAValue) -> xt.TileMmaOp | None:
    """The tile_mma that adds to a carried value, if nothing else reads either."""
    uses = list(arg.uses)
    if len(uses) != 1 or not isinstance(uses[0].operation, xt.TileMmaOp):
        return None
    mma = uses[0].operation
    if mma.c is not arg or mma.a is arg or mma.b is arg or mma.result is not yielded:
        return None
    return mma if len(list(mma.result.uses)) == 1 else None


def _harmless(op: Operation, block: Block) -> bool:
    """Ops that may stand in the body of a sum: prefetches, loads, and what has no side effect."""
    if op.regions:
        return False
    if isinstance(op, xt.LoadTileOp | xt.PrefetchTileOp | scf.YieldOp | xt.TileMmaOp):
        return True
    return is_side_effect_free(op)


def _positionwise(op: Operation) -> bool:
    """Does element [i, j] of the result depend on elements [i, j] of the operands only?"""
    if isinstance(op, UnrealizedConversionCastOp | xt.ConvertLayoutOp):
        return True
    if isinstance(op, vector.BroadcastOp):
        return not isinstance(op.operands[0].type, VectorType)
    module = type(op).__module__
    if op.name.startswith(("arith.", "math.")) and module and op.name != "arith.constant":
        return len(op.results) == 1
    return False


def _inside(op: Operation, block: Block) -> bool:
    current: Operation | None = op
    while current is not None:
        if current.parent is block:
            return True
        current = current.parent_op()
    return False


__all__ = ["BlockArgument", "Contraction", "math"]
