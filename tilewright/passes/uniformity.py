"""Which values of a program are the same in all lanes of a subgroup, or in all of its subgroups too.

| kind | a value of this kind |
|---|---|
| UNIFORM | is the same in all lanes |
| Ramp | a number: what the first lane has, which is a multiple of `unit`, plus a constant of each lane |
| VARYING | anything |

Forward, to a fixed point over loops and branches between blocks.  What is defined under a condition that differs
between lanes may be uniform there, but what leaves such a region (results of the op) is VARYING: lanes took it on
different ways.  At subgroup level there is one lane, and everything is UNIFORM but what differs between subgroups.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import gcd

from xdsl.dialects import cf, memref, scf
from xdsl.dialects.builtin import IndexType, IntegerType, VectorType
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from tilewright.dialects.effects import written
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.gpu import ShuffleOp
from tilewright.dialects.upstream.gpu.memory import is_shared
from tilewright.frozen import frozen
from tilewright.passes.carried import LOOPS_AND_BRANCHES, given_by
from tilewright.passes.integers import Divisors, Solver, is_natural


class Same(Enum):
    UNIFORM = 0
    VARYING = 1


UNIFORM, VARYING = Same.UNIFORM, Same.VARYING


@frozen
class Ramp:
    """`base + steps[lane]`; `base` is a multiple of `unit`."""

    steps: tuple[int, ...]
    unit: int


Kind = Same | Ramp

COLLECTIVE_RESULTS = (
    "xegpu.load_nd",
    "xegpu.dpas",
    "xegpu.dpas_mx",
    "xegpu.load_matrix",
    "xegpu.load",
    "xegpu.atomic_rmw",
    "memref.atomic_rmw",
    "memref.generic_atomic_rmw",
    "gpu.shuffle",
    "memref.alloca",
)
"""Ops whose results differ between lanes whatever their operands are."""
SHARED_RESULTS = ("xegpu.create_nd_tdesc", "xegpu.create_mem_desc", "xegpu.init_nbarrier")
"""Ops that a subgroup does once: its lanes agree on the operands."""
OF_SUBGROUPS = ("gpu.subgroup_id", "gpu.lane_id", "gpu.subgroup_reduce")
"""Ops whose results differ between subgroups; each of these finds what another has left, too, where ops write."""


class Uniformity(Solver[Kind]):
    """Kinds of values; ask with `[value]`."""

    def __init__(self, lanes: int, *, subgroups: bool = False):
        """Of what lanes agree on; of what all `subgroups` do."""
        super().__init__(UNIFORM)
        self.lanes, self.subgroups = lanes, subgroups
        self._divisors = Divisors()

    def __getitem__(self, value: SSAValue) -> Kind:
        return self.of(value) if self.lanes > 1 or self.subgroups else UNIFORM

    def parts(self, op: Operation) -> bool:
        """May some take the regions of an op, or another time round, and others not?"""
        known = isinstance(op, LOOPS_AND_BRANCHES)
        return not known or any(self[test] is not UNIFORM for test in tests(op))

    def joined(self, a: Kind, b: Kind) -> Kind:
        if isinstance(a, Ramp) and isinstance(b, Ramp) and a.steps == b.steps:
            return Ramp(a.steps, gcd(a.unit, b.unit))
        return a if a == b else VARYING

    def sources(self, value: SSAValue) -> Sequence[SSAValue]:
        if isinstance(value, OpResult) and not value.op.regions:
            return value.op.operands
        return (*tests(_maker(value)), *_given(value))

    def fact(self, value: SSAValue) -> Kind | None:
        if isinstance(value, OpResult) and not value.op.regions:
            kinds = [self.known.get(x) for x in value.op.operands]
            return None if None in kinds else self._result(value.op, value, kinds)  # pyright: ignore
        # Lanes take regions alike where they agree on all tests, which may stand in the regions.
        if any(self.known.get(test, UNIFORM) is not UNIFORM for test in tests(_maker(value))):
            return VARYING
        if values := _given(value):
            return self.join_all(values)
        return VARYING if isinstance(value, OpResult) else UNIFORM

    # One op ---------------------------------------------------------------------------------------------------

    def _result(self, op: Operation, result: SSAValue, kinds: list[Kind]) -> Kind:
        name = op.name
        if self.subgroups and (name in OF_SUBGROUPS or (any(written(op)) and not _allocates(op))):
            return VARYING
        if name == "gpu.lane_id":
            return Ramp(tuple(range(self.lanes)), 1 << 40)
        if name == "gpu.subgroup_reduce":
            return VARYING if op.properties.get("cluster_size") is not None else UNIFORM
        if name == "gpu.all_reduce":
            return UNIFORM
        if isinstance(op, ShuffleOp) and self._is_of_one_lane(op, kinds):
            return UNIFORM
        if self.lanes > 1 and (name in COLLECTIVE_RESULTS or _is_own(op)):
            return VARYING
        if name in SHARED_RESULTS and not self.subgroups:
            return UNIFORM
        if all(k is UNIFORM for k in kinds):
            return UNIFORM
        if len(op.results) == 1 and (ramp := self._ramp(op, kinds)) is not None:
            return ramp
        return VARYING

    def _is_of_one_lane(self, op: ShuffleOp, kinds: list[Kind]) -> bool:
        """Do all lanes get what one of them has?"""
        width = constant(op.width)
        whole = width is not None and width >= self.lanes
        return whole and str(op.mode) == "idx" and kinds[1] is UNIFORM and not self.subgroups

    def _ramp(self, op: Operation, kinds: list[Kind]) -> Kind | None:
        """Integer arithmetic on what grows with the lane; None where it is no ramp."""
        if not isinstance(op.results[0].type, IndexType | IntegerType):
            return None
        name = op.name.partition(".")[2].removesuffix("i")
        first = kinds[0]
        if name in ("index_cast", "index_castu", "castu", "casts", "extu", "exts", "trunc"):
            bits = getattr(getattr(op.results[0].type, "width", None), "data", 64)
            return first if isinstance(first, Ramp) and bits >= 32 else None
        if len(kinds) != 2 or isinstance(op.results[0].type, VectorType):
            return None
        x, y = kinds
        _, other = op.operands
        if isinstance(y, Ramp) and name in ("add", "mul"):
            x, y, other = y, x, op.operands[0]
        number = constant(other)
        if not isinstance(x, Ramp):
            return None
        if isinstance(y, Ramp):
            steps = tuple(a + b for a, b in zip(x.steps, y.steps, strict=True))
            return Ramp(steps, gcd(x.unit, y.unit)) if name == "add" else None
        if y is not UNIFORM:
            return None
        if name in ("add", "sub"):
            return Ramp(x.steps, gcd(x.unit, self._divisors.of(other)))
        if number is None or number <= 0:
            return None
        if name in ("mul", "shl"):
            factor = number if name == "mul" else 1 << min(number, 32)
            return Ramp(tuple(s * factor for s in x.steps), x.unit * factor)
        # Of a negative base, what rounds to zero or has no sign parts elsewhere than at the divisor's multiples.
        if name in ("divu", "remu", "divs", "rems", "shru") and not is_natural(op.operands[0]):
            return None
        return divided(x, name, number)


def _maker(value: SSAValue) -> Operation | None:
    """The op whose result a value is, or an argument of whose regions."""
    return value.owner.parent_op() if isinstance(value.owner, Block) else value.owner


def tests(op: Operation | None) -> Sequence[SSAValue]:
    """What decides, lane by lane, whether and how often the regions of an scf op run."""
    match op:
        case scf.ForOp():
            return op.lb, op.ub, op.step
        case scf.WhileOp():
            condition = op.before_region.block.last_op
            assert isinstance(condition, scf.ConditionOp)
            return (condition.condition,)
        case scf.IfOp():
            return (op.cond,)
        case _:
            return ()


def _given(value: SSAValue) -> Sequence[SSAValue]:
    """The values that control flow makes a value of, branches between blocks too."""
    if not isinstance(value, BlockArgument) or (region := value.block.parent) is None:
        return given_by(value)
    ways = [way for block in region.blocks for way in successors(block.last_op)]
    into = [values[value.index] for block, values in ways if block is value.block]
    return into or given_by(value)


def successors(op: Operation | None) -> list[tuple[Block, Sequence[SSAValue]]]:
    """Where a branch between blocks goes, with what."""
    match op:
        case cf.BranchOp():
            return [(op.successor, op.arguments)]
        case cf.ConditionalBranchOp():
            return [(op.then_block, op.then_arguments), (op.else_block, op.else_arguments)]
        case cf.SwitchOp():
            cases = zip(op.case_blocks, op.case_operand, strict=True)
            return [(op.default_block, op.default_operands), *cases]
        case _:
            return []


def divided(x: Ramp, name: str, number: int) -> Kind | None:
    """Quotient or remainder, where no lane's step leaves the multiple of the divisor that the base is in."""
    if name in ("shru", "shrs"):
        name, number = "divu", 1 << min(number, 62)
    if name == "and" and (number & (number + 1)) == 0:
        name, number = "remu", number + 1
    quotient = name in ("divu", "divs", "floordivs")
    if not quotient and name not in ("remu", "rems"):
        return None
    common = gcd(x.unit, number)
    if min(x.steps) < 0 or max(x.steps) >= common:
        return None
    return UNIFORM if quotient else Ramp(x.steps, common)


def _allocates(op: Operation) -> bool:
    return isinstance(op, memref.AllocOp | memref.AllocaOp)


def _is_own(op: Operation) -> bool:
    """Does an op allocate memory that each lane has for itself?"""
    return isinstance(op, memref.AllocOp) and not is_shared(op.memref.type)
