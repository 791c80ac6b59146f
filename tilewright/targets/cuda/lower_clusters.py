"""Rules for clusters: workgroups that add up what each has, through one another's shared memory.

Every thread writes its registers to its own workgroup's shared memory, register by register and thread after thread, so
that banks do not conflict. The workgroup of rank r adds part r of all workgroups' registers, in the order of the ranks,
and writes the sums in place of its own part r, which nobody else reads; rank 0 then collects the parts. So each
workgroup reads 1 / size of every other's registers, and rank 0 once again as much as it has itself. Before another sum
they meet once more: what rank 0 still collects must not be written.

The cluster's barrier counts threads that have not ended. Those of a role that copies come to the barrier at the
kernel's end while the others come to the first one here: that is the same phase, and with it they are done.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import dtypes
from tilewright.dialects import mach, stage
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.distribute import Distributor, pointer_in, rule
from tilewright.targets.cuda.narrow import Narrow, Word
from tilewright.targets.cuda.work_split import part_of

CLUSTER_SHARED = 7
"""The address space of shared memory of any workgroup of the cluster."""


@rule("stage.rank")
def rank(d: Distributor, op: Operation) -> None:
    n = Narrow(d.b)
    d.set_scalar(op.results[0], d.b.idx(n.index(st.rank(d))))


@rule("stage.cluster.sum")
def cluster_sum(d: Distributor, op: Operation) -> None:
    assert isinstance(op, stage.ClusterSumOp) and isinstance(op.result.type, VectorType)
    b, n, size = d.b, Narrow(d.b), st.facts(d).cluster
    layout = d.assigned(op.result)
    assert layout is not None
    value = d.fragment_of(op.value, layout).value
    element = dtypes.from_mlir(op.result.type.element_type)
    if element.itemsize != 4:
        raise d.error(op, f"elements of {element.name} are not shared by workgroups")
    assert isinstance(value.type, VectorType)
    if st.facts(d).summed:
        meet(d)  # rank 0 has collected the sum before, whose room may be this one's
    st.facts(d).summed = True
    part, width = part_of(layout.registers, size)
    step = 4 * width * d.team.threads
    kind = VectorType(value.type.element_type, [width])
    start = _room(d, op, 4 * part * size * d.team.threads)
    thread = n.of(d.thread)
    mine = n.plus(n.plus(st.shared_address(d), start), n.times(thread, 4 * width))
    nothing = b.constant(kind, 0)
    for i in range(0, part * size, width):
        held = d.pick(value, range(i, i + width)) if i < layout.registers else nothing
        b.store(held, n.pointer(n.plus(mine, i // width * step)), align=4 * width)
    meet(d)
    here = st.rank(d)
    first = n.plus(mine, n.times(here, part // width * step))
    for i in range(0, part, width):
        at = n.pointer(n.plus(first, i // width * step))
        total: SSAValue | None = None
        for other in range(size):
            brought = b.load(_there(d, at, other), kind, align=4 * width)
            if total is None:
                total = brought
            elif element.is_float:
                total = b.value(arith.AddfOp(total, brought))
            else:
                total = b.value(arith.AddiOp(total, brought))
        assert total is not None
        b.store(total, at, align=4 * width)
    meet(d)
    parts: list[SSAValue] = []
    collects = n.equal(n.value(here), 0)
    for i in range(0, layout.registers, width):
        # The other ranks read what they have themselves, which costs the cluster nothing.
        owner = b.value(arith.SelectOp(collects, n.value(i // part), n.value(here)))
        at = n.pointer(n.plus(mine, i // width * step))
        parts.append(b.load(_there(d, at, owner), kind, align=4 * width))
    d.set_fragment(op.result, d.concatenate(parts), layout)


def _room(d: Distributor, op: Operation, need: int) -> int:
    """Offset of shared memory for the sums: a multi-buffer's, where its last slot was read, else fresh."""
    here, again = op.parent_op(), False
    while here is not None:
        again, here = again or isinstance(here, scf.ForOp), here.parent_op()
    for buffer, place in () if again else st.facts(d).places.items():
        after = all(_before(use.operation, op) for use in buffer.uses)
        if after and place.count * place.type.slot_bytes >= need:
            d.barrier()  # all of this team have read it
            return place.slots
    return d.shared.allocate(need, "sums of a cluster", op=op)


def _before(op: Operation, mark: Operation) -> bool:
    """Does an op, or what stands around it, come before `mark` in its block, or in a role that copies for it?"""
    here: Operation | None = op
    while here is not None and here.parent is not mark.parent:
        if isinstance(here, stage.RoleOp):
            return isinstance(op, stage.CopyIssueOp)
        here = here.parent_op()
    return here is not None and here.is_before_in_block(mark)


def _there(d: Distributor, pointer: SSAValue, workgroup: Word) -> SSAValue:
    """An address of this workgroup's shared memory in another workgroup of the cluster."""
    which = Narrow(d.b).value(workgroup)
    made = mach.InstrOp("nvptx.mapa", [pointer, which], [pointer_in(CLUSTER_SHARED)])
    return d.b.value(made)


def meet(d: Distributor) -> None:
    """All threads of the cluster that have not ended; memory written before is seen after."""
    st.instr(d, "cluster.arrive")
    st.instr(d, "cluster.wait")
