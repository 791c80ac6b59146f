"""xegpu-insert-barriers: program order of a workgroup's memory, kept by barriers between its subgroups.

Requires: workgroup-level XeGPU with layouts (`xegpu-exchange-through-slm` done). Guarantees: after
distribution, every access of a subgroup sees what the workgroup's program order says. A fence and a
gpu.barrier stand directly in front of an access that another subgroup's earlier access may conflict with
(in front of the loop, where the earlier access is outside of it), and nowhere else: where the elements are
provably different, or each subgroup touches only what it alone touched before, there is none.

A branch that a run of the subgroups takes (`sg_id_range`) is a scope: what it touches waits for the others in front of
it; what waits inside waits for the run alone, at a named barrier of so many subgroups.

At workgroup level memory is in program order whether or not the text has a gpu.barrier, so that barriers of
the text are only redone: a program with and without them gives the same code.

    xegpu.store_matrix %a, %m[0, 0] <{layout = #l}>          xegpu.store_matrix %a, %m[0, 0] <{layout = #l}>
    %b = xegpu.load_matrix %m[0, 0] <{layout = #k}>   ->     xegpu.fence memory_kind = slm, fence_scope = workgroup
                                                             gpu.barrier
                                                             %b = xegpu.load_matrix %m[0, 0] <{layout = #k}>
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import IntegerAttr, i8
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xegpu
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.affine import Symbol
from tilewright.passes.carried import LOOPS
from tilewright.passes.emit import Before
from tilewright.passes.level import range_of, region_of_run, run_around
from tilewright.passes.xegpu.memory_dependences import Order, Pending
from tilewright.passes.xegpu.memory_footprints import Footprint, Footprints


def insert_barriers(kernel: gpu.FuncOp) -> None:
    """Inserts barriers that keep memory accesses in program order."""
    for op in list(kernel.walk()):
        if isinstance(op, gpu.BarrierOp) or (
            isinstance(op, xegpu.FenceOp) and op.fence_scope.data.value == "workgroup"
        ):
            Rewriter.erase_op(op)
    _Placer(kernel).block(kernel.body.block, Pending())


class _Placer:
    def __init__(self, kernel: gpu.FuncOp):
        self.analysis = AccessAnalysis(kernel)
        self.footprints = Footprints(self.analysis)
        self.order = Order(self.analysis)
        self.barriers = _NamedBarriers(kernel)
        self.run: xegpu.RangeAttr | None = None
        """The subgroups that do the ops that are looked at; None: all."""

    def block(self, block: Block, pending: Pending) -> Pending:
        """Places barriers in a block; what is pending at its end. Takes `pending` over."""
        for op in list(block.ops):
            match op:
                case scf.ForOp() | scf.WhileOp():
                    pending = self.loop(op, pending)
                case scf.IfOp() if (run := range_of(op)) is not None:
                    pending = self.scope(op, run, pending)
                case scf.IfOp():
                    ends = Pending()
                    for region in (op.true_region, op.false_region):
                        start = pending.with_(Pending())
                        end = self.block(region.block, start) if region.blocks else start
                        ends = ends.with_(end)
                    pending = ends
                case gpu.BarrierOp():
                    pending = Pending()
                case _:
                    pending = self.access(op, pending)
        return pending

    def access(self, op: Operation, pending: Pending) -> Pending:
        footprint = self.footprints.of(op)
        if footprint is None:
            return pending
        against = self.order.conflicts(pending, footprint)
        if against:
            self.barrier(op, [footprint, *against])
            pending = Pending()
        pending.add(footprint)
        return pending

    def in_front(self, op: Operation, pending: Pending, free: frozenset[Symbol]) -> Pending:
        """A barrier in front of an op, if what is inside of it has to wait for what is pending; what still is."""
        against: list[Footprint] = []
        for inner in op.walk() if pending.groups else ():
            if inner is op or (footprint := self.footprints.of(inner)) is None:
                continue
            if run_around(inner) != self.run:
                footprint = replace(
                    footprint, layout=None
                )  # its subgroups are counted from another one
            found = self.order.conflicts(pending, footprint, free)
            against += [footprint, *found] if found else []
        if not against:
            return pending
        self.barrier(op, against)
        return Pending()

    def counters(self, op: Operation) -> frozenset[Symbol]:
        """Of all loops in an op, itself included."""
        return frozenset(self.analysis.loop(x).counter for x in op.walk() if isinstance(x, LOOPS))

    def scope(self, op: scf.IfOp, run: xegpu.RangeAttr, pending: Pending) -> Pending:
        pending = self.in_front(op, pending, self.counters(op))
        outer, self.run = self.run, run
        self.block(region_of_run(op).block, Pending())
        self.run = outer
        # Where the run's subgroups waited for one another, the others did not.
        inside = Pending()
        for footprint in (self.footprints.of(inner) for inner in op.walk()):
            if footprint is not None:
                inside.add(replace(footprint, layout=None))
        for counter in self.counters(op):
            inside = inside.ended(counter)
        return pending.with_(inside)

    def loop(self, op: scf.ForOp | scf.WhileOp, pending: Pending) -> Pending:
        blocks = [b for region in op.regions for b in region.blocks]
        pending = self.in_front(op, pending, self.counters(op))
        counter = self.analysis.loop(op).counter
        carried = Pending()
        while True:
            ends = carried.with_(Pending())
            for block in blocks:
                ends = self.block(block, ends)
            again = ends.earlier(counter)
            if carried.holds(again):
                break
            carried = carried.with_(again)
        return pending.with_(ends.ended(counter))

    def barrier(self, op: Operation, footprints: Iterable[Footprint]) -> None:
        spaces = sorted({"slm" if t.space == 3 else "global" for t in footprints if t.writes})
        at = Before(op)
        new: list[Operation] = [xegpu.FenceOp(space, "workgroup") for space in spaces]
        new += [gpu.BarrierOp()] if self.run is None else self.barriers.of(self.run)
        for each in new:
            at.insert(each)


class _NamedBarriers:
    """Named barriers for runs of subgroups: one number per run, behind those that the text sets aside."""

    def __init__(self, kernel: gpu.FuncOp):
        self.kernel = kernel
        self.numbers: dict[xegpu.RangeAttr, int] = {}

    def of(self, run: xegpu.RangeAttr) -> list[Operation]:
        """The subgroups of a run wait for one another."""
        number = arith.ConstantOp(IntegerAttr(self._number(run), i8))
        count = arith.ConstantOp(IntegerAttr(run.bounds[1] - run.bounds[0], i8))
        barrier = xegpu.InitNbarrierOp(number.result, count.result)
        meet = (xegpu.NbarrierArriveOp(barrier.result), xegpu.NbarrierWaitOp(barrier.result))
        return [number, count, barrier, *meet]

    def _number(self, run: xegpu.RangeAttr) -> int:
        if run not in self.numbers:
            allocations = [op for op in self.kernel.walk() if isinstance(op, xegpu.AllocNbarrierOp)]
            # Number 0 is the workgroup's own barrier.
            self.numbers[run] = max((op.count or 0 for op in allocations), default=1)
            for op in allocations:
                Rewriter.erase_op(op)
            alloc = xegpu.AllocNbarrierOp(self.numbers[run] + 1)
            alloc.location = self.kernel.location
            Rewriter.insert_op(alloc, InsertPoint.at_start(self.kernel.body.block))
        return self.numbers[run]
