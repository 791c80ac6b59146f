"""Where one program does the work of a workgroup's subgroups, memory is in its order, and nobody waits for another.

    %b = xegpu.init_nbarrier %id, %n
    xegpu.fence memory_kind = slm, ..        ->
    xegpu.nbarrier_arrive %b
    xegpu.nbarrier_wait %b                   ->    gpu.barrier    (a subgroup's text; nothing in a workgroup's)

Requires: all subgroups that come to a named barrier's text are those that it expects. A number that is not known is
taken for that: with fewer, some of them would come twice. A subgroup's text keeps a wait as a barrier: subgroups whose
control flow differs may not come to it.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.arith import constant
from tilewright.passes.kernel import level_of

_ORDER = (
    *("xegpu.nbarrier_arrive", "xegpu.nbarrier_wait", "xegpu.alloc_nbarrier"),
    *("xegpu.fence", "xegpu.compile_hint"),
)
"""By name: a kernel without them is compiled without their dialect."""


def program_order(kernel: gpu.FuncOp) -> None:
    """Removes what only tells subgroups of one another. UnsupportedError where some of a workgroup's subgroups meet, or
    a named barrier is one of several."""
    meets = level_of(kernel) == "subgroup"
    for op in list(kernel.walk(reverse=True)):  # a barrier behind what uses it
        if op.name == "xegpu.init_nbarrier":
            from tilewright.passes.level import subgroups_at

            expected, there = constant(op.operands[1]), subgroups_at(op)
            if None not in (expected, there) and (expected or 0) & 0xFF != there:
                raise unsupported(
                    op, f"the barrier expects {expected} subgroups, and {there} do this op"
                )
            if op.results[0].first_use is not None:
                raise unsupported(
                    op, f"{op.name}: which barrier is waited for is chosen as the program runs"
                )
        elif op.name not in _ORDER:
            continue
        elif op.name == "xegpu.nbarrier_wait" and meets:
            Rewriter.insert_op(gpu.BarrierOp(), InsertPoint.before(op))
        Rewriter.erase_op(op)
