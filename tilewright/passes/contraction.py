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

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp, YieldOp
from tilewright.dialects.upstream.arith import is_splat
from tilewright.frozen import record
from tilewright.passes.access import Access, AccessAnalysis
from tilewright.passes.affine import Expr
from tilewright.passes.carried import LOOPS
from tilewright.passes.emit import Before
from tilewright.passes.induction import Loop
from tilewright.passes.materialise import Materialiser, NoValue
from tilewright.passes.memory_objects import may_alias
from tilewright.passes.sums import carried, harmless, only_added, positionwise

index = IndexType()


@record
class Slice:
    """The ops that compute an operand from loads, in order, and the loads among them."""

    ops: list[Operation]
    loads: list[Access]
    axes: list[int]
    """The dimension of each load (0 rows, 1 columns) that is k."""


@record
class ContractionPlan:
    """A contract before it is built: slices of its operands (None: a value from outside), where loads start, and
    which dimension of each moves with k."""

    products: list[xt.TileMmaOp]
    slices: list[tuple[Slice | None, Slice | None]]
    starts: dict[Operation, tuple[Expr, ...]]
    moving: dict[Operation, int | None]
    length: Expr
    step: int
    inits: list[SSAValue]


class Contraction:
    """Rewrites one kernel."""

    def __init__(self, function: gpu.FuncOp, remarks: list[str], *, loops: bool = True):
        self.loops = loops
        self.function = function
        self.remarks = remarks
        self.analysis = AccessAnalysis(function)
        self.plans: dict[ContractOp, ContractionPlan] = {}
        self.replaced: list[xt.TileMmaOp] = []
        """Products that plans still refer to."""
        self.order = {op: i for i, op in enumerate(function.walk())}

    def run(self) -> None:
        for op in list(self.function.walk()) if self.loops else ():
            if isinstance(op, LOOPS) and op.parent is not None:
                self.loop(op)
        for op in list(self.function.walk()):
            if isinstance(op, xt.TileMmaOp) and op.parent is not None:
                self.single(op)
        if self.loops:
            self.join()
        for mma in self.replaced:
            mma.erase()

    # Loops ----------------------------------------------------------------------------------------------------

    def loop(self, op: scf.ForOp | scf.WhileOp) -> None:
        shape = carried(op)
        if shape is None:
            return
        block, args, inits, yields, results = shape
        products: list[tuple[int, xt.TileMmaOp]] = []
        for i, arg in enumerate(args):
            if not isinstance(arg.type, VectorType):
                if not results[i].first_use:
                    continue
                return
            mma = only_added(arg, yields[i])
            if mma is None:
                return
            products.append((i, mma))
        if not products or any(not harmless(inner, block) for inner in block.ops):
            return
        loop = self.analysis.loop(op)
        if loop.trips is None:
            return
        sizes = {mma.a.type.get_shape()[1] for _, mma in products}  # pyright: ignore
        if len(sizes) != 1:
            return
        (k,) = sizes
        if k == 1:
            return  # in a contract, extent 1 along k means: the same for every k
        slices: list[tuple[Slice | None, Slice | None]] = []
        for _, mma in products:
            pair = [self.slice(v, block, loop, k, axis) for v, axis in ((mma.a, 1), (mma.b, 0))]
            if pair[0] is None or pair[1] is None:
                return
            slices.append((pair[0], pair[1]))
        try:
            mmas, starts = [m for _, m in products], [inits[i] for i, _ in products]
            contract = self.build(op, self.plan(mmas, slices, loop, loop.trips * k, k, starts))
        except NoValue:
            return
        for (i, _), value in zip(products, contract.values, strict=True):
            results[i].replace_all_uses_with(value)
        Rewriter.erase_op(op)

    def slice(
        self, value: SSAValue, block: Block, loop: Loop | None, k: int, k_axis: int
    ) -> Slice | None:
        """The slice of an operand if it consists of loads that move with the loop; `k_axis` is the operand's own."""
        ops: dict[Operation, None] = {}
        loads: dict[Operation, tuple[Access, int]] = {}

        def visit(v: SSAValue, axis: int) -> bool:
            if not isinstance(v.type, VectorType):
                return self.invariant(v, block)
            if not isinstance(v, OpResult):
                return False
            op = v.op
            if isinstance(op, arith.ConstantOp):
                ops[op] = None
                return is_splat(op)
            if isinstance(op, xt.LoadTileOp):
                if op.permutation is not None or len(op.values) > 1:
                    return False
                access = self.analysis.find(op)
                if access is None or access.scattered or not self.moves(access, loop, k, axis):
                    return False
                if not self.unwritten(access, block, loop is not None):
                    return False
                ops[op] = None
                loads[op] = access, axis
                return True
            if op in ops:
                return True
            if isinstance(op, xt.TransposeOp):
                axis = 1 - axis if op.permutation == (1, 0) else axis
            elif isinstance(op, xt.BroadcastOp):
                if op.broadcast_size is not None:
                    return False
            elif not positionwise(op):
                return False
            if not all(visit(operand, axis) for operand in op.operands):
                return False
            ops[op] = None
            return True

        if not visit(value, k_axis) or not loads:
            return None
        ordered = sorted(ops, key=lambda op: self.order[op])
        return Slice(ordered, [a for a, _ in loads.values()], [axis for _, axis in loads.values()])

    def invariant(self, value: SSAValue, block: Block) -> bool:
        """Is a scalar made outside of the block?"""
        return not block.is_ancestor(value.owner)

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
                may_alias(w.root, access.root)
                for w in self.analysis.accesses
                if w.writes and block.is_ancestor(w.op)
            )
        )

    # Building -------------------------------------------------------------------------------------------------

    def plan(
        self,
        products: list[xt.TileMmaOp],
        slices: list[tuple[Slice | None, Slice | None]],
        loop: Loop | None,
        length: Expr,
        step: int,
        inits: list[SSAValue],
    ) -> ContractionPlan:
        starts: dict[Operation, tuple[Expr, ...]] = {}
        moving: dict[Operation, int | None] = {}
        for (a, b), _ in zip(slices, products, strict=True):
            for part in (a, b):
                for access, axis in (
                    zip(part.loads, part.axes, strict=True) if part is not None else ()
                ):
                    offsets = access.offsets
                    if loop is not None:
                        offsets = tuple(x.without(loop.counter) for x in offsets)
                    starts[access.op] = offsets
                    shape = access.tile_type.get_shape()
                    moving[access.op] = len(offsets) - 2 + axis if shape[axis] == step else None
        return ContractionPlan(products, slices, starts, moving, length, step, inits)

    def build(self, place: Operation, plan: ContractionPlan) -> ContractOp:
        """The contract, inserted before `place`; NoValue if its tiles cannot be computed there."""
        outside = Materialiser(InsertPoint.before(place))
        body = Block(arg_types=[index])
        copies: dict[SSAValue, SSAValue] = {}
        outputs: list[SSAValue] = []
        for pair, mma in zip(plan.slices, plan.products, strict=True):
            for part, operand in ((pair[0], mma.a), (pair[1], mma.b)):
                if part is None:
                    outputs.append(operand)
                    continue
                for op in part.ops:
                    if op.results[0] in copies:
                        continue
                    if isinstance(op, xt.LoadTileOp):
                        access = next(a for a in part.loads if a.op is op)
                        new = self.copy_load(access, op, body, plan, outside)
                    else:
                        new = op.clone(copies)
                    body.add_op(new)
                    for old, result in zip(op.results, new.results, strict=True):
                        copies[old] = result
                outputs.append(copies[operand])
        body.add_op(YieldOp(outputs))
        lo, hi, step = outside.constant(0), outside.ssa(plan.length), outside.constant(plan.step)
        contract = ContractOp(lo, hi, step, plan.inits, Region(body))
        contract.location = plan.products[0].location  # pyright: ignore
        Rewriter.insert_op(contract, InsertPoint.before(place))
        self.plans[contract] = plan
        return contract

    def copy_load(
        self,
        access: Access,
        op: xt.LoadTileOp,
        body: Block,
        plan: ContractionPlan,
        outside: Materialiser,
    ) -> Operation:
        """A load in the contract: of the tile where it is at the first iteration, moved by k."""
        origin = access.origin
        for v in (*origin.sizes, *origin.strides, origin.source):
            if not outside.available(v):
                raise NoValue("sizes of the tile")
        offsets: list[SSAValue | int] = []
        for d, start in enumerate(plan.starts[op]):
            value = outside.value(start)
            if plan.moving[op] == d:
                if value == 0:
                    value = body.args[0]
                else:
                    base = outside.constant(value) if isinstance(value, int) else value
                    add = arith.AddiOp(body.args[0], base)
                    body.add_op(add)
                    value = add.result
            offsets.append(value)
        tile = xt.InitTileOp(
            origin.source,
            access.tile_type,
            offsets=offsets[len(offsets) - len(origin.mixed_offsets) :],
            sizes=origin.mixed_sizes,
            strides=origin.mixed_strides,
        )
        body.add_op(tile)
        return op.clone({op.tile: tile.result})

    # Products outside of such loops ---------------------------------------------------------------------------

    def single(self, mma: xt.TileMmaOp) -> None:
        block = mma.parent
        assert block is not None
        k = mma.a.type.get_shape()[1]  # pyright: ignore
        init = mma.c if mma.c is not None else zero_before(mma)
        found = [self.slice(v, block, None, k, axis) for v, axis in ((mma.a, 1), (mma.b, 0))]
        contract = None
        for pair in ((found[0], found[1]), (None, found[1]), (found[0], None), (None, None)):
            if any(p is not None and not self.movable(p, mma) for p in pair):
                continue
            try:
                contract = self.build(mma, self.plan([mma], [pair], None, Expr.of(k), k, [init]))
            except NoValue:
                continue
            break
        assert contract is not None
        mma.result.replace_all_uses_with(contract.values[0])
        for other, plan in self.plans.items():
            if other is not contract:
                plan.inits = [contract.values[0] if v is mma.result else v for v in plan.inits]
        mma.detach()
        self.replaced.append(mma)

    def movable(self, part: Slice, mma: Operation) -> bool:
        """May the loads of a slice be done at the product?"""
        return all(a.op.parent is mma.parent or self.analysis.read_only(a.root) for a in part.loads)

    # Joining --------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Join contracts that continue one another."""
        changed = True
        while changed:
            changed = False
            for second in list(self.plans):
                first = self.before(second)
                if first is not None and self.join_pair(first, second):
                    changed = True
                    break

    def before(self, second: ContractOp) -> ContractOp | None:
        """The contract whose results are exactly the initial values of `second`, and of nothing else."""
        owners = {v.owner for v in second.inits}
        if len(owners) != 1:
            return None
        (first,) = owners
        if (
            not isinstance(first, ContractOp)
            or first.parent is not second.parent
            or first not in self.plans
        ):
            return None
        if list(first.values) != list(second.inits) or any(
            len(list(v.uses)) != 1 for v in first.values
        ):
            return None
        return first

    def join_pair(self, first: ContractOp, second: ContractOp) -> bool:
        one, two = self.plans[first], self.plans[second]
        if one.step != two.step or one.step == 1 or len(one.slices) != len(two.slices):
            return False
        for (a1, b1), (a2, b2) in zip(one.slices, two.slices, strict=True):
            for x, y in ((a1, a2), (b1, b2)):
                if x is None or y is None or not self.continues(x, one, y, two):
                    return False
        joined = ContractionPlan(
            one.products,
            one.slices,
            one.starts,
            one.moving,
            one.length + two.length,
            one.step,
            list(first.inits),
        )
        try:
            contract = self.build(second, joined)
        except NoValue:
            return False
        for old, new in zip(second.values, contract.values, strict=True):
            old.replace_all_uses_with(new)
        for op in (second, first):
            del self.plans[op]
            Rewriter.erase_op(op)
        return True

    def continues(self, x: Slice, one: ContractionPlan, y: Slice, two: ContractionPlan) -> bool:
        """Do the loads of y start where those of x end, with the same ops on them?"""
        if len(x.ops) != len(y.ops) or x.axes != y.axes:
            return False
        numbers_x: dict[SSAValue, int] = {r: i for i, op in enumerate(x.ops) for r in op.results}
        numbers_y: dict[SSAValue, int] = {r: i for i, op in enumerate(y.ops) for r in op.results}
        for p, q in zip(x.ops, y.ops, strict=True):
            if (
                type(p) is not type(q)
                or p.properties != q.properties
                or p.result_types != q.result_types
            ):
                return False
            if isinstance(p, xt.LoadTileOp):
                s, t = self.analysis.of(p), self.analysis.of(q)
                if (
                    s.base is not t.base
                    or s.tile_type != t.tile_type
                    or one.moving[p] != two.moving[q]
                ):
                    return False
                if not self.analysis.read_only(s.root):
                    return False
                for d, (start, next_start) in enumerate(
                    zip(one.starts[p], two.starts[q], strict=True)
                ):
                    shift = one.length if d == one.moving[p] else Expr.of(0)
                    if next_start != start + shift:
                        return False
                continue
            for v, w in zip(p.operands, q.operands, strict=True):
                if numbers_x.get(v, -1) != numbers_y.get(w, -1) or (
                    v not in numbers_x and v is not w
                ):
                    return False
        return True


def zero_before(op: xt.TileMmaOp) -> SSAValue:
    """A zero of the type of the op's result."""
    return Before(op).constant(op.result.type, 0)
