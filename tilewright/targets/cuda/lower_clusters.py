"""Rules for clusters: workgroups that add up what each has, through one another's shared memory.

Every thread writes its registers to its own workgroup's shared memory, register by register and thread after thread, so
that banks do not conflict; those of rank 0's columns first, then those of rank 1's. They meet. A thread of rank r reads
what the threads of its number have of rank r's columns, in all workgroups, and adds it up in the order of the ranks: no
operand of the sum is read twice, and nothing is brought back. Ranks that have no columns read what they have
themselves, which costs the cluster nothing. Before another sum they meet once more: what others still read must not be
written.

The cluster's barrier counts threads that have not ended. Those of a role that copies come to the barrier at the
kernel's end while the others come to the first one here: that is the same phase, and with it they are done.
"""

from __future__ import annotations

from functools import reduce

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import dtypes
from tilewright.dialects import mach, stage
from tilewright.dialects.nesting import enclosing
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.distribute import Distributor, pointer_in, rule
from tilewright.targets.cuda.narrow import Narrow, Word
from tilewright.targets.cuda.rules_moves import same_elements

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
    held = d.fragment_of(op.value)
    element, shape = dtypes.from_mlir(op.result.type.element_type), op.result.type.get_shape()
    if element.itemsize != 4:
        raise d.error(op, f"elements of {element.name} are not shared by workgroups")
    assert isinstance(held.value.type, VectorType)
    ranks = held.layout.shape[-1] // shape[-1]
    origin = [0] * (len(shape) - 1)
    made = held.layout.boxed([0] * len(shape), shape)
    if st.facts(d).summed:
        meet(d)  # the room of the sum before may be this one's
    st.facts(d).summed = True
    width = next(w for w in (4, 2, 1) if made.registers % w == 0)
    step = 4 * width * d.team.threads
    kind = VectorType(held.value.type.element_type, [width])
    start = _room(d, op, 4 * held.layout.registers * d.team.threads)
    mine = n.plus(n.plus(st.shared_address(d), start), n.times(n.of(d.thread), 4 * width))
    for r in range(ranks):
        own = same_elements(held.layout, made, [*origin, r * shape[-1]])
        for i in range(0, made.registers, width):
            at = n.pointer(n.plus(mine, (r * made.registers + i) // width * step))
            b.store(d.pick(held.value, own[i : i + width]), at, align=4 * width)
    meet(d)
    here, last = n.value(st.rank(d)), n.value(ranks - 1)
    column = b.value(arith.MinUIOp(here, last))
    first = n.plus(mine, n.times(column, made.registers // width * step))
    brings = [n.value(other) for other in range(size)]
    if ranks < size:
        reads = b.value(arith.CmpiOp(here, last, "ule"))
        brings = [b.value(arith.SelectOp(reads, other, here)) for other in brings]
    add = arith.AddfOp if element.is_float else arith.AddiOp
    sums: list[SSAValue] = []
    for i in range(0, made.registers, width):
        at = n.pointer(n.plus(first, i // width * step))
        brought = [b.load(_there(d, at, other), kind, align=4 * width) for other in brings]
        sums.append(reduce(lambda x, y: b.value(add(x, y)), brought))
    d.set_fragment(op.result, d.concatenate(sums), made)


def _room(d: Distributor, op: Operation, need: int) -> int:
    """Offset of shared memory for the sums: a multi-buffer's, where its last slot was read, else fresh."""
    for buffer, place in () if enclosing(op, scf.ForOp) else st.facts(d).places.items():
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
            return isinstance(op, stage.CopyIssueOp | stage.GatherIssueOp)
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
