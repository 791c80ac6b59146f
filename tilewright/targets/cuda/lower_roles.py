"""Rules for roles: warps branch to their part of the program, with registers and barriers of their own.

The last thing before the branch is a meeting of all threads, after which initialised mbarriers are seen by all.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects import stage
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.distribute import Distributor, Team, rule
from tilewright.targets.cuda.lower_multi_buffers import announce_barriers
from tilewright.targets.cuda.lower_tma_stores import finish_stores
from tilewright.targets.cuda.lowered import Programs
from tilewright.targets.cuda.narrow import Narrow
from tilewright.targets.cuda.ownership import Ownership, plan_ownership
from tilewright.uarch.nvidia import LANES, REGISTER_FILE


class RoleDistributor(Distributor):
    """The threads of one role: numbered from 0, seeing what was made before the roles."""

    def __init__(self, outer: Distributor, ownership: Ownership, team: Team):
        super().__init__(outer.b, ownership, outer.machine, outer.shared, team)
        self._env = outer._env  # pyright: ignore[reportPrivateUsage]
        self._scopes = outer._scopes  # pyright: ignore[reportPrivateUsage]
        self._shared_base = outer._shared_base  # pyright: ignore[reportPrivateUsage]


@rule("stage.roles")
def roles(d: Distributor, op: stage.RolesOp) -> None:
    announce_barriers(d)
    first = 0
    n, mine = Narrow(d.b), st.warpgroup(d)
    for number, role in enumerate(op.roles):
        warps = role.warps
        low = n.compare(mine, "sge", first // st.WARPGROUP)
        high = n.compare(mine, "slt", (first + warps) // st.WARPGROUP)
        condition = high if first == 0 else low
        if 0 < number < len(op.roles) - 1:
            condition = d.b.value(arith.AndIOp(low, high))
        with d.b.when(condition), d.scope():
            _role(d, role, Team(warps, first, number + 1))
        first += warps
    st.facts(d).barriers = max(st.facts(d).barriers, len(op.roles) + 1)


def _role(d: Distributor, role: stage.RoleOp, team: Team) -> None:
    body = role.body.block
    ownership = plan_ownership(body, team.warps, d.machine)
    inner = RoleDistributor(d, ownership, team)
    total = sum(r.warps for r in _siblings(role)) * LANES
    if role.registers is not None:
        wanted = role.registers
        way = "inc" if wanted > REGISTER_FILE // total // 8 * 8 else "dec"
        st.instr(inner, f"setmaxnreg.{way}", registers=wanted)
        name = role.role_name
        st.facts(d).registers[name] = wanted * LANES * team.warps
    if copies_only(body):
        with st.elected(inner):
            st.facts(d).single = True
            inner.lower_block(body)
            st.facts(d).single = False
    else:
        begin_ping_pong(inner, body)
        inner.lower_block(body)
        finish_stores(inner)


def _siblings(role: stage.RoleOp) -> tuple[stage.RoleOp, ...]:
    parent = role.parent_op()
    assert isinstance(parent, stage.RolesOp)
    return parent.roles


_OF_ALL = stage.CopyWaitOp | stage.ProductIssueOp | stage.CopyStoreOp | stage.GatherIssueOp


def copies_only(block: Block) -> bool:
    """Can one thread run all of a role?"""
    return not any(isinstance(op, _OF_ALL) for op in block.walk())


@rule("stage.worker")
def worker(d: Distributor, op: Operation) -> None:
    """Workgroups are launched along x."""
    b = d.b
    st.facts(d).persistent = True
    number = b.value(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X)))
    count = b.value(gpu.GridDimOp(gpu.DimensionAttr(gpu.DimensionEnum.X)))
    b.nonnegative |= {number, count}
    for result, value in zip(op.results, (number, count), strict=True):
        d.set_scalar(result, b.idx(value))


@rule("stage.programs")
def programs(d: Distributor, op: stage.ProgramsOp) -> None:
    d.set_scalar(op.result, st.parameter(d, Programs(op.axis), IndexType()))


FIRST_PING_PONG = 4
"""Named barriers of ping-pong, one for each warpgroup, from here on."""


def _ping_pong(d: Distributor, ahead: int) -> tuple[SSAValue, SSAValue]:
    """The barrier of the warpgroup `ahead` of this one in the circle, and the threads that meet there."""
    n = Narrow(d.b)
    groups = d.team.warps // st.WARPGROUP
    at = n.plus(st.warpgroup(d), ahead)
    if not isinstance(at, int):
        last = n.compare(at, "sge", groups)
        first = n.value(n.plus(at, -groups))
        at = d.b.value(arith.SelectOp(last, first, at))
    st.facts(d).barriers = max(st.facts(d).barriers, FIRST_PING_PONG + groups)
    return n.value(n.plus(at, FIRST_PING_PONG)), n.value(2 * 128)


@rule("stage.ping_pong.acquire")
def ping_pong_acquire(d: Distributor, op: Operation) -> None:
    st.instr(d, "bar.sync", *_ping_pong(d, 0))


@rule("stage.ping_pong.release")
def ping_pong_release(d: Distributor, op: Operation) -> None:
    st.instr(d, "bar.arrive", *_ping_pong(d, 1))


@rule("stage.sched_barrier")
def sched_barrier(d: Distributor, op: Operation) -> None:
    st.instr(d, "sched.barrier")


def begin_ping_pong(d: Distributor, body: Block) -> None:
    """The last warpgroup releases the first."""
    if any(isinstance(op, stage.PingPongAcquireOp) for op in body.walk()):
        groups = d.team.warps // st.WARPGROUP
        n, mine = Narrow(d.b), st.warpgroup(d)
        with d.b.when(n.compare(mine, "eq", groups - 1)):
            st.instr(d, "bar.arrive", *_ping_pong(d, 1))
