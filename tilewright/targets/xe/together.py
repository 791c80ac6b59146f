"""What lanes do together is asserted to be done by all of them: the GPU takes from one that is elsewhere what it finds.

    scf.if %on {                           %all = subgroup_reduce min, %on
      %s = gpu.shuffle %v, ..      ->      scf.if %on {
    }                                        cf.assert %all
                                             %s = gpu.shuffle %v, ..

Requires: lane level. Whether all lanes come to an op is asked where the branch or the loop begins that they may take
differently, and only where conditions are not known to be the same for all. Guarantees: the same results where all are
there. Raises UnsupportedError for exchanges in loops whose start, step or condition may differ between lanes.
"""

from __future__ import annotations

from xdsl.dialects import arith, cf, gpu, scf
from xdsl.dialects.builtin import IndexType, StringAttr, i32, i64
from xdsl.ir import Block, Operation, SSAValue

from tilewright.diagnostics import unsupported
from tilewright.dialects.upstream.gpu.lanes import SubgroupReduceOp
from tilewright.passes.emit import Before
from tilewright.passes.uniformity import UNIFORM, Uniformity, tests
from tilewright.targets.xe.assertions import KIND

TOGETHER = ("gpu.shuffle", "gpu.subgroup_reduce", "xegpu.load_nd", "xegpu.store_nd", "xegpu.dpas")
HINT = "move it out of the branch, or make the condition the same for the subgroup"


def assert_together(kernel: gpu.FuncOp, lanes: int) -> None:
    """Has each op that a subgroup's lanes do together assert that all of them are there."""
    if any(op.name in TOGETHER for op in kernel.walk()):
        _Together(Uniformity(lanes)).block(kernel.body.blocks[0], None)


class _Together:
    def __init__(self, kinds: Uniformity):
        self.kinds = kinds

    def block(self, block: Block, here: SSAValue | None) -> None:
        """`here`: the condition that all lanes do a block's ops; None where they do."""
        for op in list(block.ops):
            if here is not None and op.name in TOGETHER:
                text = (
                    f"{op.name} is done by all lanes of a subgroup, but not all of them are here,"
                )
                assertion = cf.AssertOp(here, HINT)
                assertion.attributes[KIND] = StringAttr(text)
                Before(op).insert(assertion)
            if any(inner.name in TOGETHER for region in op.regions for inner in region.walk()):
                self.inside(op, here)

    def inside(self, op: Operation, here: SSAValue | None) -> None:
        at = Before(op)
        same = all(self.kinds[test] is UNIFORM for test in tests(op))
        if same:
            for region in op.regions:
                for block in region.blocks:
                    self.block(block, here)
        elif isinstance(op, scf.IfOp):
            for region, kind, holds in (
                (op.true_region, "minui", "ne"),
                (op.false_region, "maxui", "eq"),
            ):
                if region.blocks:
                    all_of = at.add(SubgroupReduceOp(kind, at.add(arith.ExtUIOp(op.cond, i32))))
                    everybody = at.add(arith.CmpiOp(all_of, at.constant(i32, 0), holds))
                    self.block(region.block, at.also(here, everybody))
        elif isinstance(op, scf.ForOp) and all(self.kinds[v] is UNIFORM for v in (op.lb, op.step)):
            least = at.add(SubgroupReduceOp("minsi", _number(at, op.ub)))
            first = op.body.block.first_op
            assert first is not None
            inner = Before(first)
            counter = _number(inner, op.body.block.args[0])
            everybody = inner.add(arith.CmpiOp(counter, least, "slt"))
            self.block(op.body.block, inner.also(here, everybody))
        else:
            found = next(inner for inner in op.walk() if inner.name in TOGETHER)
            why = f"{found.name} is done by all lanes of a subgroup, in a loop that lanes may enter or leave apart"
            raise unsupported(found, why, hint=HINT)


def _number(at: Before, value: SSAValue) -> SSAValue:
    """An index or integer as one that lanes reduce."""
    return at.add(arith.IndexCastOp(value, i64)) if isinstance(value.type, IndexType) else value
