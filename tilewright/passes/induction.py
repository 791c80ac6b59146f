"""Scalars of a kernel as expressions over program ids, loop counters, extents and arguments.

Every loop gets a counter 0, 1, 2, ...; an induction variable is ``lower + step * counter``, and so is
any carried value that the body moves by an amount that the loop does not change, whether the loop is an
scf.for, an scf.while or an scf.parallel.

Integers narrower than 64 bits wrap in MLIR, so arithmetic on them becomes an unknown (but canonical)
symbol unless the op promises `nsw` or `nuw`; offsets of type index do not wrap (DESIGN §3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.dialects import affine, gpu, memref, scf
from xdsl.dialects.arith import CmpiOp
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType, MemRefType
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tilewright.dialects.nesting import ops_around, terminator
from tilewright.dialects.xetile.assembly import merge_indices
from tilewright.passes.affine import Expr, Kind, Symbol, Symbols
from tilewright.passes.carried import LOOPS
from tilewright.passes.memory_objects import is_pure

AXES = ("x", "y", "z")


@dataclass(frozen=True, eq=False)
class Loop:
    """One dimension of a loop op. ``trips`` is its number of iterations, None when unknown.

    ``lower`` and ``step`` describe the induction variable ``lower + step * counter`` (0 and 1 for
    scf.while, which has none).
    """

    op: Operation
    counter: Symbol
    lower: Expr
    step: Expr
    trips: Expr | None

    def __str__(self) -> str:
        return f"{self.op.name} {self.counter.name} < {self.trips if self.trips else '?'}"


_LARGEST_PRODUCT = 256
"""Of the sizes of two factors whose product is multiplied out: the square of a square of a sum would have no end."""


class Scalars:
    """Expressions of the scalars of one kernel."""

    def __init__(self) -> None:
        self.symbols = Symbols()
        self.program_ids = tuple(
            self.symbols.get(Kind.PROGRAM_ID, axis, f"pid{axis}", lower=0) for axis in range(3)
        )
        # Changes each time that a block runs which branches may repeat, in no loop that has a counter.
        self.time = self.symbols.get(Kind.COUNTER, "time", "time", lower=0)
        self._loops: dict[tuple[Operation, int], Loop] = {}
        self._memo: dict[SSAValue, Expr] = {}
        self._atoms: dict[SSAValue, frozenset[Symbol]] = {}

    # Loops.
    def enclosing(self, op: Operation | None) -> tuple[Loop, ...]:
        """The loops around an op, outermost first."""
        found: list[Loop] = []
        while op is not None and (parent := op.parent_op()) is not None:
            if isinstance(parent, scf.ParallelOp):
                found += reversed([self.loop(parent, d) for d in range(len(parent.lowerBound))])
            elif isinstance(parent, LOOPS):
                found.append(self.loop(parent))
            op = parent
        return tuple(reversed(found))

    def loop(self, op: Operation, dim: int = 0) -> Loop:
        """The loop of an scf.for or scf.while, or one dimension of an scf.parallel."""
        if (op, dim) not in self._loops:
            self._loops[op, dim] = self._new_loop(op, dim)
            if isinstance(op, scf.WhileOp):
                known = self._loops[op, dim]
                trips = self._while_trips(op, known.counter)
                self._loops[op, dim] = Loop(op, known.counter, known.lower, known.step, trips)
        return self._loops[op, dim]

    def _new_loop(self, op: Operation, dim: int) -> Loop:
        index = len(self._loops)
        match op:
            case scf.ForOp():
                lower, upper, step = (self.expr(v) for v in (op.lb, op.ub, op.step))
            case scf.ParallelOp():
                bounds = (op.lowerBound[dim], op.upperBound[dim], op.step[dim])
                lower, upper, step = (self.expr(v) for v in bounds)
            case _:
                counter = self._counter(op, dim, index, None)
                return Loop(op, counter, Expr.of(0), Expr.of(1), None)
        s = self.symbols
        trips = s.maximum(s.ceildiv(upper - lower, step), Expr.of(0))
        return Loop(op, self._counter(op, dim, index, trips), lower, step, trips)

    def _counter(self, op: Operation, dim: int, index: int, trips: Expr | None) -> Symbol:
        count = None if trips is None else trips.range()[1]
        upper = None if count is None else max(count - 1, 0)
        key = (op, dim)
        return self.symbols.get(Kind.COUNTER, key, f"n{index}", lower=0, upper=upper)

    def _while_trips(self, op: scf.WhileOp, counter: Symbol) -> Expr | None:
        """Trips of ``while e + d*n < bound`` with a known d > 0."""
        condition = terminator(op.before_region.block)
        test = condition.operands[0].owner
        if not isinstance(test, CmpiOp):
            return None
        predicate = test.predicate.value.data
        left, right = self.expr(test.lhs), self.expr(test.rhs)
        if predicate in (4, 5, 8, 9):  # sgt, sge, ugt, uge
            left, right = right, left
        elif predicate not in (2, 3, 6, 7):  # slt, sle, ult, ule
            return None
        if predicate in (3, 5, 7, 9):
            right = right + 1
        distance = right - left
        per_trip = distance.step(counter)
        if per_trip is None or (d := per_trip.constant) is None or d >= 0:
            return None
        first = distance.without(counter)
        s = self.symbols
        return s.maximum(s.ceildiv(first, Expr.of(-d)), Expr.of(0))

    # Values.
    def expr(self, value: SSAValue | int) -> Expr:
        """A scalar as an expression."""
        if isinstance(value, int):
            return Expr.of(value)
        if value not in self._memo:
            result = self._evaluate(value)
            self._memo.setdefault(value, result)
        return self._memo[value]

    def unknown(self, value: SSAValue) -> Expr:
        """A symbol for a value of unknown origin: varies with every program id and loop around it."""
        owner = value.owner
        inside = owner.parent_op() if isinstance(owner, Block) else owner
        loops = self.enclosing(inside)
        if isinstance(owner, Block) and isinstance(inside, LOOPS):
            loops += (self.loop(inside),)
        time = (self.time,) if _is_unstructured(inside) else ()
        atoms = (*self.program_ids, *time, *(loop.counter for loop in loops))
        return self._value_symbol(value, atoms)

    def _value_symbol(self, value: SSAValue, atoms: Iterable[Symbol]) -> Expr:
        name = f"%{value.name_hint or 'v'}"
        lower, upper = (0, 1) if value.type == IntegerType(1) else (None, None)
        symbol = self.symbols.get(Kind.VALUE, value, name, lower=lower, upper=upper, atoms=atoms)
        return Expr.symbol(symbol)

    def extent(self, base: SSAValue, dim: int) -> Expr:
        """Extent of a memref in elements."""
        base = same_view(base)
        assert isinstance(base.type, MemRefType)
        known = base.type.get_shape()[dim]
        if known >= 0:
            return Expr.of(known)
        if isinstance(base, OpResult) and isinstance(base.op, memref.ReinterpretCastOp):
            return self.expr(merge_indices(base.op.static_sizes, base.op.sizes)[dim])
        if isinstance(base, OpResult) and isinstance(base.op, memref.AllocOp):
            place = sum(1 for n in base.type.get_shape()[:dim] if n < 0)
            return self.expr(base.op.dynamic_sizes[place])
        name = f"dim(%{base.name_hint or 'arg'}, {dim})"
        return Expr.symbol(self.symbols.get(Kind.EXTENT, (base, dim), name, lower=0))

    def stride(self, base: SSAValue, dim: int) -> Expr:
        """Stride of a memref in elements."""
        base = same_view(base)
        assert isinstance(base.type, MemRefType)
        strides = base.type.get_strides()
        known = strides[dim] if strides is not None else None
        if known is not None and known != -1 and known > -(2**63):
            return Expr.of(known)
        name = f"stride(%{base.name_hint or 'arg'}, {dim})"
        return Expr.symbol(self.symbols.get(Kind.STRIDE, (base, dim), name))

    def grid_dim(self, axis: int) -> Symbol:
        return self.symbols.get(Kind.GRID_DIM, axis, f"grid{axis}", lower=1)

    # Evaluation.
    def _evaluate(self, value: SSAValue) -> Expr:
        if isinstance(value, BlockArgument):
            return self._argument(value)
        assert isinstance(value, OpResult)
        op = value.op
        match op:
            case scf.ForOp():
                return self._final(op, op.body.block.args[value.index + 1], value)
            case scf.WhileOp():
                condition = terminator(op.before_region.block)
                return self._final(op, condition.operands[value.index + 1], value)
            case scf.IfOp():
                return self._branches(op, value)
            case _:
                return self._scalar(value, op)

    def _argument(self, value: BlockArgument) -> Expr:
        op = value.block.parent_op()
        match op:
            case scf.ForOp():
                if value.index == 0:
                    return self._induction(self.loop(op))
                yielded = terminator(op.body.block).operands[value.index - 1]
                init = op.iter_args[value.index - 1]
                return self._carried(self.loop(op).counter, value, init, yielded)
            case scf.WhileOp() if value.block is op.before_region.block:
                yielded = terminator(op.after_region.block).operands[value.index]
                counter = self._while_counter(op)
                return self._carried(counter, value, op.arguments[value.index], yielded)
            case scf.WhileOp():
                condition = terminator(op.before_region.block)
                return self.expr(condition.operands[value.index + 1])
            case scf.ParallelOp():
                return self._induction(self.loop(op, value.index))
            case gpu.FuncOp() if value.block is op.body.blocks.first:
                return self._value_symbol(value, ())
            case _:
                return self.unknown(value)

    def _while_counter(self, op: scf.WhileOp) -> Symbol:
        if (op, 0) in self._loops:
            return self._loops[op, 0].counter
        return self.loop(op).counter

    def _induction(self, loop: Loop) -> Expr:
        return loop.lower + loop.step * Expr.symbol(loop.counter)

    def _carried(
        self, counter: Symbol, value: BlockArgument, init: SSAValue, yielded: SSAValue
    ) -> Expr:
        """Closed form of a carried value: init + delta * n, or a delayed copy of such a value."""
        if value in self._memo:
            # Finding the trip count of an scf.while has already evaluated it.
            return self._memo[value]
        around = [loop.counter for loop in self.enclosing(value.block.parent_op())]
        guess = self.symbols.get(
            Kind.VALUE, ("carried", value), "carried", atoms=(counter, *around, *self.program_ids)
        )
        before = len(self._memo), len(self._atoms)
        self._memo[value] = Expr.symbol(guess)
        following = self.expr(yielded)
        self._forget(guess, before)
        start, n = self.expr(init), Expr.symbol(counter)
        delta = following - Expr.symbol(guess)
        if not delta.depends_on(guess) and not delta.depends_on(counter):
            return start + delta * n
        if not following.depends_on(guess) and following.step(counter) is not None:
            previous = following.substitute({counter: n - 1})
            if previous.substitute({counter: Expr.of(0)}) == start:
                return previous
        return self._value_symbol(value, (start.atoms | following.atoms | {counter}) - {guess})

    def _forget(self, guess: Symbol, before: tuple[int, int]) -> None:
        """Drop what was computed from a provisional symbol (the memos keep insertion order)."""
        for key in list(self._memo)[before[0] :]:
            if self._memo[key].depends_on(guess):
                del self._memo[key]
        for value in list(self._atoms)[before[1] :]:
            if guess in self._atoms[value]:
                del self._atoms[value]
        for place, loop in list(self._loops.items()):
            parts = (loop.lower, loop.step, loop.trips or Expr.of(0))
            if any(e.depends_on(guess) for e in parts):
                del self._loops[place]

    def _final(self, op: Operation, carried: SSAValue, value: OpResult) -> Expr:
        """A carried value after the loop: its closed form at n = trips."""
        loop = self.loop(op)
        inside = self.expr(carried)
        if not inside.depends_on(loop.counter):
            return inside
        if loop.trips is not None and inside.step(loop.counter) is not None:
            return inside.substitute({loop.counter: loop.trips})
        if loop.trips is None:
            return self.unknown(value)
        # What decides on the number of trips decides on what is left at their end.
        return self._value_symbol(value, (inside.atoms - {loop.counter}) | loop.trips.atoms)

    def _branches(self, op: scf.IfOp, value: OpResult) -> Expr:
        if not op.false_region.blocks:
            return self.unknown(value)
        regions = (op.true_region, op.false_region)
        a, b = (self.expr(terminator(r.block).operands[value.index]) for r in regions)
        return self._select(self.expr(op.cond), a, b)

    def _select(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        return a if a == b else self.symbols.apply("select", condition, a, b)

    def _scalar(self, value: OpResult, op: Operation) -> Expr:
        name = _plain(op.name)
        s = self.symbols
        if name == "constant":
            attr = op.properties.get("value")
            known = isinstance(attr, IntegerAttr)
            return Expr.of(attr.value.data) if known else self.unknown(value)
        if name in ("index_cast", "index_castui", "casts", "castu", "extsi"):
            return self.expr(op.operands[0])
        if name == "extui" and (inner := self.expr(op.operands[0])).is_nonnegative:
            return inner
        match op:
            case gpu.BlockIdOp():
                return Expr.symbol(self.program_ids[AXES.index(op.dimension.data)])
            case gpu.GridDimOp():
                return Expr.symbol(self.grid_dim(AXES.index(op.dimension.data)))
            case memref.DimOp():
                dim = self.expr(op.index).constant
                kind = op.source.type
                rank = kind.get_num_dims() if isinstance(kind, MemRefType) else 0
                if dim is None or not 0 <= dim < rank:
                    return self.unknown(value)
                return self.extent(op.source, dim)
            case memref.ExtractStridedMetaDataOp():
                return self._metadata(op, value)
            case affine.ApplyOp():
                operands = [self.expr(v) for v in op.mapOperands]
                split = op.map.data.num_dims
                return s.affine(op.map.data.results[0], operands[:split], operands[split:])
            case _ if op.name.startswith("gpu."):
                return self._local_id(op, value)
            case _:
                pass
        scalar = all(_is_integer(v) for v in op.operands)
        if not (scalar and op.operands and is_pure(op)):
            return self._derived(value, op)
        args = [self.expr(v) for v in op.operands]
        if name == "select":
            return self._select(*args)
        if len(args) == 2 and _exact(op, value):
            result = self._binary(name, *args)
            if result is not None:
                return result
        suffix = f".{op.predicate.value.data}" if isinstance(op, CmpiOp) else ""
        low, high = (0, 1) if value.type == IntegerType(1) else (None, None)
        return s.apply(name + suffix, *args, lower=low, upper=high)

    def _binary(self, name: str, a: Expr, b: Expr) -> Expr | None:
        """The meaning of an op on integers that do not wrap; None when there is none here."""
        s = self.symbols
        both = a.is_nonnegative and b.is_nonnegative
        match name:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul" if a.size * b.size <= _LARGEST_PRODUCT:
                return a * b
            case "shl" if (k := b.constant) is not None and 0 <= k < 63:
                return a * (1 << k)
            case "shrs" if (k := b.constant) is not None and 0 <= k < 63:
                return s.floordiv(a, Expr.of(1 << k))
            case "shru" if both and (k := b.constant) is not None and k < 63:
                return s.floordiv(a, Expr.of(1 << k))
            case "floordivs":
                return s.floordiv(a, b)
            case "ceildivs" | "ceildivu" if b.is_nonnegative and (both or name == "ceildivs"):
                return s.ceildiv(a, b)
            case "divs" | "divu" if both:
                return s.floordiv(a, b)
            case "rems" | "remu" if both:
                return s.mod(a, b)
            case "mins":
                return s.minimum(a, b)
            case "maxs":
                return s.maximum(a, b)
            case "minu" if both:
                return s.minimum(a, b)
            case "maxu" if both:
                return s.maximum(a, b)
            case _:
                return None

    def _metadata(self, op: memref.ExtractStridedMetaDataOp, value: OpResult) -> Expr:
        for dim, size in enumerate(op.sizes):
            if size is value:
                return self.extent(op.source, dim)
        for dim, stride in enumerate(op.strides):
            if stride is value:
                return self.stride(op.source, dim)
        return self.unknown(value)

    def _local_id(self, op: Operation, value: OpResult) -> Expr:
        """gpu.subgroup_id and the like: the same for all workgroups, no loop changes them."""
        dimension = getattr(op, "dimension", None)
        name = op.name.removeprefix("gpu.") + (f" {dimension.data}" if dimension else "")
        if op.regions or op.operands:
            return self.unknown(value)
        return Expr.symbol(self.symbols.get(Kind.LOCAL_ID, name, name, lower=0))

    def _derived(self, value: OpResult, op: Operation) -> Expr:
        """An unknown result of a pure op varies with what its operands vary with."""
        return self._value_symbol(value, self.atoms(value))

    def atoms(self, value: SSAValue) -> frozenset[Symbol]:
        """What a value of any type depends on, as :attr:`Expr.atoms` says of scalars."""
        if _is_integer(value) and value in self._memo:
            return self._memo[value].atoms
        found = self._atoms.get(value)
        if found is None:
            found = self._atoms[value] = self._all_atoms(value)
        return found

    def _all_atoms(self, value: SSAValue) -> frozenset[Symbol]:
        op = value.owner
        if isinstance(op, Operation) and not op.regions and is_pure(op):
            found = frozenset[Symbol]()
            for operand in op.operands:
                scalar = _is_integer(operand)
                found |= self.expr(operand).atoms if scalar else self.atoms(operand)
            return found
        return self.unknown(value).atoms


def _is_unstructured(op: Operation | None) -> bool:
    """Whether an op stands among blocks that branch to one another."""
    regions = () if op is None else (each.parent_region() for each in (op, *ops_around(op)))
    return any(region is not None and len(region.blocks) > 1 for region in regions)


def same_view(base: SSAValue) -> SSAValue:
    """A memref through casts that change its type only."""
    while isinstance(base, OpResult) and isinstance(
        base.op, (memref.CastOp, memref.MemorySpaceCastOp)
    ):
        base = base.op.source
    return base


def _plain(name: str) -> str:
    """One name for arith.addi and index.add, arith.divsi and index.divs, ..."""
    dialect, _, mnemonic = name.partition(".")
    if dialect == "arith" and mnemonic.endswith("i") and mnemonic not in ("andi", "ori", "xori"):
        return {"extsi": "extsi", "extui": "extui"}.get(mnemonic, mnemonic.removesuffix("i"))
    return mnemonic


def _is_integer(value: SSAValue) -> bool:
    return isinstance(value.type, (IntegerType, IndexType))


def _exact(op: Operation, value: SSAValue) -> bool:
    """Whether integer arithmetic of an op cannot wrap: 64 bits, index, or promised by a flag."""
    if isinstance(value.type, IntegerType) and value.type.width.data < 64:
        flags = op.properties.get("overflowFlags")
        return flags is not None and ("nsw" in str(flags) or "nuw" in str(flags))
    return True
