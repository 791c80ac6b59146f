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

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xegpu
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.xegpu.pending import Order, Pending
from tilewright.passes.xegpu.touches import Touch, Touches
from tilewright.passes.xegpu.wg_to_sg import workgroup_kernels


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
    _Placer(kernel).block(kernel.body.block, Pending())


class _Placer:
    def __init__(self, kernel: gpu.FuncOp):
        self.analysis = AccessAnalysis(kernel)
        self.touches = Touches(self.analysis)
        self.order = Order(self.analysis)

    def block(self, block: Block, pending: Pending) -> Pending:
        """Places barriers in a block; what is pending at its end. Takes `pending` over."""
        for op in list(block.ops):
            match op:
                case scf.ForOp() | scf.WhileOp():
                    pending = self.loop(op, pending)
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
        touch = self.touches.of(op)
        if touch is None:
            return pending
        against = self.order.conflicts(pending, touch)
        if against:
            self.barrier(op, [touch, *against])
            pending = Pending()
        pending.add(touch)
        return pending

    def loop(self, op: scf.ForOp | scf.WhileOp, pending: Pending) -> Pending:
        blocks = [b for region in op.regions for b in region.blocks]
        free = frozenset(
            self.analysis.loop(loop).counter
            for loop in op.walk()
            if isinstance(loop, (scf.ForOp, scf.WhileOp))
        )
        against: list[Touch] = []
        if pending.groups:
            for inner in op.walk():
                if inner is not op and (touch := self.touches.of(inner)) is not None:
                    found = self.order.conflicts(pending, touch, free)
                    against += [touch, *found] if found else []
        if against:
            self.barrier(op, against)
            pending = Pending()
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

    def barrier(self, op: Operation, touches: Iterable[Touch]) -> None:
        spaces = sorted({"slm" if t.space == 3 else "global" for t in touches if t.writes})
        point = InsertPoint.before(op)
        new: list[Operation] = [xegpu.FenceOp(space, "workgroup") for space in spaces]
        new.append(gpu.BarrierOp())
        for each in new:
            each.location = op.location
            Rewriter.insert_op(each, point)
