"""xegpu-place-barriers: program order of a workgroup's memory, kept by barriers between its subgroups.

Requires: workgroup-level XeGPU with layouts (`xegpu-exchange-through-slm` done). Guarantees: after
distribution, every access of a subgroup sees what the workgroup's program order says. A fence and a
gpu.barrier stand directly in front of an access that another subgroup's earlier access may conflict with
(in front of the loop, where the earlier access is outside of it), and nowhere else: where the elements are
provably different, or each subgroup touches only what it alone touched before, there is none.

At workgroup level memory is in program order whether or not the text has a gpu.barrier, so that barriers of
the text are only redone: a program with and without them gives the same code.

    xegpu.store_matrix %a, %m[0, 0] <{layout = #l}>          xegpu.store_matrix %a, %m[0, 0] <{layout = #l}>
    %b = xegpu.load_matrix %m[0, 0] <{layout = #k}>   ->     xegpu.fence memory_kind = slm, fence_scope = workgroup
                                                             gpu.barrier
                                                             %b = xegpu.load_matrix %m[0, 0] <{layout = #k}>
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import MemRefType, ModuleOp, VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xegpu
from tilewright.layout import Distribution
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.memory_objects import may_read, may_write, memory_root, memory_space
from tilewright.passes.regions import difference
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.wg_to_sg import workgroup_kernels

FAR = 4
"""From so many iterations on, an earlier access counts as one of any earlier iteration."""


@dataclass(frozen=True)
class XeGPUPlaceBarriers(ModulePass):
    """See the module's docstring."""

    name = "xegpu-place-barriers"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for kernel in workgroup_kernels(op):
            place_barriers(kernel)


def place_barriers(kernel: gpu.FuncOp) -> None:
    for op in list(kernel.walk()):
        if isinstance(op, gpu.BarrierOp) or (
            isinstance(op, xegpu.FenceOp) and op.fence_scope.data.value == "workgroup"
        ):
            Rewriter.erase_op(op)
    _Placer(kernel).block(kernel.body.block, [])


@dataclass(frozen=True)
class Touch:
    """One access. `offsets` and `shape` are those of its box; None where the place is not known."""

    op: Operation
    root: SSAValue | None
    base: object
    """What offsets count in: equal where two accesses count alike."""
    writes: bool
    atomic: bool
    offsets: tuple[Expr, ...] | None
    shape: tuple[int, ...]
    layout: Distribution | None

    @property
    def space(self) -> int:
        return (memory_space(self.root) or 0) if self.root is not None else 0


@dataclass(frozen=True)
class Pending:
    """An access since the last barrier; per loop around it how many iterations ago, None: unknown."""

    touch: Touch
    ago: tuple[tuple[Symbol, int | None], ...] = ()


class _Placer:
    def __init__(self, kernel: gpu.FuncOp):
        self.analysis = AccessAnalysis(kernel)
        self.touches: dict[Operation, Touch | None] = {}
        self.changed = False

    # --- Walking ---------------------------------------------------------------------------------

    def block(self, block: Block, pending: list[Pending]) -> list[Pending]:
        """Places barriers in a block; what is pending at its end."""
        for op in list(block.ops):
            match op:
                case scf.ForOp() | scf.WhileOp():
                    pending = self.loop(op, pending)
                case scf.IfOp():
                    ends: list[Pending] = []
                    for region in (op.true_region, op.false_region):
                        ends += self.block(region.block, pending) if region.blocks else pending
                    pending = _distinct(ends)
                case gpu.BarrierOp():
                    pending = []
                case _:
                    pending = self.access(op, pending)
        return pending

    def access(self, op: Operation, pending: list[Pending]) -> list[Pending]:
        touch = self.touch(op)
        if touch is None:
            return pending
        against = [p for p in pending if self.conflict(p, touch)]
        if against:
            self.barrier(op, [touch, *(p.touch for p in against)])
            pending = []
        return [*pending, Pending(touch)]

    def loop(self, op: scf.ForOp | scf.WhileOp, pending: list[Pending]) -> list[Pending]:
        blocks = [b for region in op.regions for b in region.blocks]
        inside = [t for b in blocks for x in b.walk() if (t := self.touch(x)) is not None]
        against = [(p, t) for p in pending for t in inside if self.conflict(p, t, within=op)]
        if against:
            self.barrier(op, [x for p, t in against for x in (p.touch, t)])
            pending = []
        counter = self.analysis.loop(op).counter
        carried: list[Pending] = []
        while True:
            ends = carried
            for block in blocks:
                ends = self.block(block, ends)
            again = _distinct(_earlier(p, counter) for p in ends)
            if set(again) <= set(carried):
                break
            carried = _distinct([*carried, *again])
        left = [_ended(p, counter) for p in ends]
        return _distinct([*pending, *left])

    def barrier(self, op: Operation, touches: Iterable[Touch]) -> None:
        spaces = sorted({"slm" if t.space == 3 else "global" for t in touches if t.writes})
        point = InsertPoint.before(op)
        new: list[Operation] = [xegpu.FenceOp(space, "workgroup") for space in spaces]
        new.append(gpu.BarrierOp())
        for each in new:
            each.location = op.location
            Rewriter.insert_op(each, point)

    # --- Conflicts ---------------------------------------------------------------------------------

    def conflict(self, p: Pending, x: Touch, within: Operation | None = None) -> bool:
        """Whether another subgroup's earlier access p may touch what x touches, one of them writing."""
        y = p.touch
        if not (x.writes or y.writes) or (x.atomic and y.atomic):
            return False
        known = x.root is not None and y.root is not None
        if known and not self.analysis.may_alias(x.root, y.root):  # pyright: ignore
            return False
        if x.offsets is None or y.offsets is None or x.base != y.base:
            return True
        if len(x.offsets) != len(y.offsets):
            return True
        ago = dict(p.ago)
        free = {s for s, n in ago.items() if n is None}
        if within is not None:
            free |= {
                self.analysis.loop(loop).counter
                for loop in within.walk()
                if isinstance(loop, (scf.ForOp, scf.WhileOp))
            }
        back = {s: Expr.symbol(s) - n for s, n in ago.items() if n}
        same = True
        for a, b, m, n in zip(y.offsets, x.offsets, y.shape, x.shape, strict=True):
            then = self.earlier(a, back) if back else a
            if then is None:
                same = False
                continue
            a = then
            if self.apart(a, b, m, n, free):
                return False
            same = same and a == b and m == n and not any(a.depends_on(s) for s in free)
        if not same or x.layout is None or y.layout is None:
            return True
        shape = _value_shape(x.op)
        if shape != _value_shape(y.op) or not own.same_owners(x.layout, y.layout, shape):
            return True
        # Of several owners of an element only one stores it.
        return own.replicas(x.layout, shape) > 1 and not (x.writes and y.writes)

    def earlier(self, e: Expr, back: Mapping[Symbol, Expr]) -> Expr | None:
        """An expression with loop counters as they were, inside of remainders and the like too; None where
        it holds a value that is not known as a function of them."""
        result = Expr.of(0)
        for monomial, factor in e.terms.items():
            term = Expr.of(factor)
            for symbol in monomial:
                then = self.earlier_symbol(symbol, back)
                if then is None:
                    return None
                term = term * then
            result = result + term
        return result

    def earlier_symbol(self, symbol: Symbol, back: Mapping[Symbol, Expr]) -> Expr | None:
        if symbol in back:
            return back[symbol]
        if not any(symbol.depends_on(counter) for counter in back):
            return Expr.symbol(symbol)
        if symbol.kind is not Kind.APPLY or not isinstance(symbol.key, tuple):
            return None
        arguments = [self.earlier(argument, back) for argument in symbol.args]
        known = [a for a in arguments if a is not None]
        if len(known) != len(arguments):
            return None
        table, operator = self.analysis.scalars.symbols, str(symbol.key[0])
        match operator:
            case "mod":
                return table.mod(*known)
            case "floordiv":
                return table.floordiv(*known)
            case _:
                return table.apply(operator, *known)

    def apart(self, a: Expr, b: Expr, m: int, n: int, free: set[Symbol]) -> bool:
        """Whether [a, a + m) and [b, b + n) have nothing in common; `free` symbols differ in both."""
        common = {s for e in (a, b) for s in e.atoms | e.symbols} - free
        low, high = difference(a, b, common)
        if (low is not None and low >= n) or (high is not None and high <= -m):
            return True
        if any(e.depends_on(s) for e in (a, b) for s in free):
            return False
        return _apart_in_ring(a, b, m, n)

    # --- Accesses ----------------------------------------------------------------------------------

    def touch(self, op: Operation) -> Touch | None:
        if op not in self.touches:
            self.touches[op] = self._touch(op)
        return self.touches[op]

    def _touch(self, op: Operation) -> Touch | None:
        match op:
            case xegpu.LoadNdOp() | xegpu.StoreNdOp():
                desc = op.operands[op.tdesc_operand].owner
                source = desc.source if isinstance(desc, xegpu.CreateNdDescOp) else None
                counts = tuple(desc.mixed_strides) if isinstance(desc, xegpu.CreateNdDescOp) else ()
                return self._block(
                    op, source, op.mixed_offsets, op.tdesc.get_shape(), op.ownership, counts
                )
            case xegpu.LoadMatrixOp() | xegpu.StoreMatrixOp():
                desc = op.mem_desc.owner
                source = desc.source if isinstance(desc, xegpu.CreateMemDescOp) else None
                value = op.results[0] if op.results else op.operands[0]
                counts = (op.mem_desc.type,)
                return self._block(
                    op, source, op.mixed_offsets, own.shape_of(value), op.layout, counts
                )
            case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
                memory = op.operands[1] if isinstance(op, xegpu.StoreScatterOp) else op.operands[0]
                return Touch(
                    op,
                    _root(memory),
                    None,
                    not isinstance(op, xegpu.LoadGatherOp),
                    isinstance(op, xegpu.AtomicRMWOp),
                    None,
                    (),
                    None,
                )
            case xegpu.PrefetchNdOp() | xegpu.PrefetchOp() | xegpu.FenceOp():
                return None
            case _:
                if op.regions or not (may_write(op) or may_read(op)) or op.name.startswith("gpu."):
                    return None
                named = [v for v in op.operands if isinstance(v.type, MemRefType)]
                root = memory_root(named[0]) if len(named) == 1 else None
                return Touch(op, root, None, may_write(op), False, None, (), None)

    def _block(
        self,
        op: Operation,
        source: SSAValue | None,
        offsets: Sequence[SSAValue | int] | None,
        shape: Sequence[int],
        layout: object,
        counts: tuple[object, ...],
    ) -> Touch:
        root = None if source is None else _root(source)
        writes = isinstance(op, (xegpu.StoreNdOp, xegpu.StoreMatrixOp))
        d = own.from_attribute(layout)  # pyright: ignore[reportArgumentType]
        if d is None and op.results:
            d = own.layout_of(op.results[0])
        if offsets is None or source is None:
            return Touch(op, root, None, writes, False, None, (), d)
        exprs = tuple(self.analysis.expr(o) for o in offsets)
        whole = (*[1] * (len(offsets) - len(shape)), *shape)
        base = (_view(source), *counts)
        return Touch(op, root, base, writes, False, exprs, whole, d)


def _root(memory: SSAValue) -> SSAValue | None:
    return memory_root(memory) if isinstance(memory.type, MemRefType) else None


def _view(source: SSAValue) -> SSAValue:
    """The value whose coordinates offsets count in."""
    while isinstance(source, OpResult) and source.op.name == "memref.cast":
        source = source.op.operands[0]
    return source


def _value_shape(op: Operation) -> tuple[int, ...]:
    value = op.results[0] if op.results else op.operands[0]
    return own.shape_of(value) if isinstance(value.type, VectorType) else ()


def _apart_in_ring(a: Expr, b: Expr, m: int, n: int) -> bool:
    """Slots of a ring, (x mod r) and (y mod r): apart when x - y is known and no multiple of r near."""
    rings = {c for e in (a, b) if (c := _ring(e)) is not None}
    if len(rings) != 1:
        return False
    (ring,) = rings
    x, y = _inside(a, ring), _inside(b, ring)
    distance = None if x is None or y is None else (x - y).constant
    if distance is None:
        return False
    # a - b is `rest` or `rest - ring`.
    rest = distance % ring
    return rest >= n and ring - rest >= m


def _ring(e: Expr) -> int | None:
    """r, where an expression is something modulo r."""
    symbol = e.as_symbol()
    if symbol is None or symbol.kind is not Kind.APPLY:
        return None
    is_mod = isinstance(symbol.key, tuple) and symbol.key[0] == "mod"
    size = symbol.args[1].constant if is_mod else None
    return size if size is not None and size > 0 else None


def _inside(e: Expr, ring: int) -> Expr | None:
    """x, where e = x mod ring."""
    symbol = e.as_symbol()
    if symbol is not None and _ring(e) == ring:
        return symbol.args[0]
    low, high = e.range()
    return e if low is not None and high is not None and low >= 0 and high < ring else None


def _earlier(p: Pending, counter: Symbol) -> Pending:
    """As the next iteration sees it."""
    ago = dict(p.ago)
    passed = ago.get(counter, 0)
    ago[counter] = None if passed is None or passed + 1 >= FAR else passed + 1
    return replace(p, ago=tuple(sorted(ago.items(), key=lambda item: item[0].serial)))


def _ended(p: Pending, counter: Symbol) -> Pending:
    """As the code behind the loop sees it."""
    ago = dict(p.ago) | {counter: None}
    return replace(p, ago=tuple(sorted(ago.items(), key=lambda item: item[0].serial)))


def _distinct(pending: Iterable[Pending]) -> list[Pending]:
    return list(dict.fromkeys(pending))
