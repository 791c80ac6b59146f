"""xegpu-wg-to-sg-distribute, effects: what one subgroup does for all.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`.
"""

from __future__ import annotations

from xdsl.dialects import memref
from xdsl.ir import Operation, SSAValue

from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.wg_to_sg import SubgroupDistributor, rule


@rule("memref.store")
def memref_store(to: SubgroupDistributor, op: memref.StoreOp) -> None:
    """A scalar is stored by the first subgroup."""
    to.alone(op)


@rule("tw.print", "tw.breakpoint")
def debugging(to: SubgroupDistributor, op: Operation) -> None:
    """The first subgroup says what the workgroup has; it holds vectors whole."""
    mapping: dict[SSAValue, SSAValue] = {}
    for n, value in enumerate(op.operands):
        shape = own.shape_of(value)
        if shape:
            whole = own.replicated(to.subgroups, len(shape), shape)
            (mapping[value],) = to.fragments(value, whole, f"operand {n}")
        else:
            mapping[value] = to.same(value)
    with to.when(to.first()):
        to.put(op.clone(mapping))


@rule("gpu.subgroup_id")
def subgroup_id(to: SubgroupDistributor, op: Operation) -> None:
    """Text that asks which subgroup it is has a branch for some of them; every subgroup answers for itself."""
    to.env[op.results[0]] = to.ids.linear()


@rule("memref.atomic_rmw", "scf.parallel", "scf.forall", "gpu.thread_id")
def refused(to: SubgroupDistributor, op: Operation) -> None:
    raise to.refuse("in a workgroup's program has no form for one subgroup")
