"""Which values of a lane program are the same in all lanes of a subgroup.

| kind | a value of this kind |
|---|---|
| UNIFORM | is the same in all lanes |
| Ramp | a number: what the first lane has, which is a multiple of `unit`, plus a constant of each lane |
| VARYING | anything |

Forward, to a fixed point over loops and branches between blocks.  What is defined under a condition that differs
between lanes may be uniform there, but what leaves such a region (results of the op) is VARYING: lanes took it on
different ways.  At subgroup level there is one lane and everything is UNIFORM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from math import gcd

from xdsl.dialects import cf, gpu, scf
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, VectorType
from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.gpu import memory_space_number
from tilewright.passes.carried import given_by


class Same(Enum):
    UNIFORM = 0
    VARYING = 1


UNIFORM, VARYING = Same.UNIFORM, Same.VARYING


@dataclass(frozen=True)
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
    "xegpu.create_tdesc",
    "xegpu.update_offset",
    "xegpu.atomic_rmw",
    "memref.atomic_rmw",
    "memref.generic_atomic_rmw",
    "gpu.shuffle",
    "memref.alloca",
)
"""Ops whose results differ between lanes whatever their operands are."""
SHARED_RESULTS = (
    "xegpu.create_nd_tdesc",
    "xegpu.update_nd_offset",
    "xegpu.create_mem_desc",
    "xegpu.init_nbarrier",
)
"""Ops that a subgroup does once: its lanes agree on the operands."""


def join(a: Kind | None, b: Kind | None) -> Kind:
    """The kind of a value that comes from two places."""
    if a is None or a == b:
        assert b is not None
        return b
    if b is None:
        return a
    if isinstance(a, Ramp) and isinstance(b, Ramp) and a.steps == b.steps:
        return Ramp(a.steps, gcd(a.unit, b.unit))
    return VARYING


def analyse(kernel: gpu.FuncOp, lanes: int, block: tuple[int, int, int]) -> Uniformity:
    """The kinds of all values of `kernel`, launched with `block` threads; `lanes` 1: all UNIFORM."""
    found = Uniformity(lanes, block)
    if lanes > 1:
        found.run(kernel)
    return found


class Uniformity:
    """Kinds of values; ask with `[value]`."""

    def __init__(self, lanes: int, block: tuple[int, int, int]):
        self.lanes = lanes
        self.block = block
        self._kinds: dict[SSAValue, Kind] = {}
        self._changed = False

    def __getitem__(self, value: SSAValue) -> Kind:
        return self._kinds.get(value, UNIFORM)

    def run(self, kernel: gpu.FuncOp) -> None:
        for argument in kernel.body.blocks[0].args:
            self._kinds[argument] = UNIFORM
        self._changed = True
        while self._changed:
            self._changed = False
            for inner in kernel.body.blocks:
                self._block(inner)

    def _set(self, value: SSAValue, kind: Kind) -> None:
        old = self._kinds.get(value)
        new = join(old, kind)
        if new != old:
            self._kinds[value] = new
            self._changed = True

    def _block(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case scf.ForOp():
                    self._regions(op, (op.lb, op.ub, op.step))
                case scf.WhileOp():
                    condition = op.before_region.block.last_op
                    assert isinstance(condition, scf.ConditionOp)
                    self._regions(op, (condition.condition,))
                case scf.IfOp():
                    self._regions(op, (op.cond,))
                case cf.BranchOp() | cf.ConditionalBranchOp() | cf.SwitchOp():
                    self._branch(op)
                case _:
                    for inner in (b for region in op.regions for b in region.blocks):
                        self._block(inner)
                    for result in op.results:
                        self._set(result, VARYING if op.regions else self._result(op, result))

    def _regions(self, op: Operation, tests: Sequence[SSAValue]) -> None:
        """Lanes take regions alike where they agree on all `tests`, which may stand in the regions."""
        for block in (b for region in op.regions for b in region.blocks):
            self._meet(block.args, tests)
            self._block(block)
        self._meet(op.results, tests)

    def _meet(self, values: Sequence[SSAValue], tests: Sequence[SSAValue]) -> None:
        same = all(self[test] is UNIFORM for test in tests)
        for value in values:
            known = [self._kinds[x] for x in given_by(value) if x in self._kinds]
            self._set(
                value, reduce(join, known, known[0] if known else UNIFORM) if same else VARYING
            )

    def _branch(self, op: cf.BranchOp | cf.ConditionalBranchOp | cf.SwitchOp) -> None:
        if isinstance(op, cf.BranchOp):
            successors = [(op.successor, op.arguments)]
        elif isinstance(op, cf.SwitchOp):
            successors = [(op.default_block, op.default_operands)]
            successors += zip(op.case_blocks, op.case_operand, strict=True)
        else:
            successors = [(op.then_block, op.then_arguments), (op.else_block, op.else_arguments)]
        for block, values in successors:
            for arg, value in zip(block.args, values, strict=True):
                self._set(arg, self[value])

    # One op ---------------------------------------------------------------------------------------------------

    def _result(self, op: Operation, result: SSAValue) -> Kind:
        name = op.name
        if name in ("gpu.thread_id", "gpu.global_id"):
            return self._thread(op)
        if name == "gpu.lane_id":
            return Ramp(tuple(range(self.lanes)), 1 << 40)
        if name == "gpu.subgroup_reduce":
            return VARYING if op.properties.get("cluster_size") is not None else UNIFORM
        if name == "gpu.all_reduce":
            return UNIFORM
        if name in COLLECTIVE_RESULTS or (name == "memref.alloc" and not is_shared(result)):
            return VARYING
        if name in SHARED_RESULTS:
            return UNIFORM
        kinds = [self[v] for v in op.operands]
        if all(k is UNIFORM for k in kinds):
            return UNIFORM
        if len(op.results) == 1 and (ramp := self._ramp(op, kinds)) is not None:
            return ramp
        return VARYING

    def _thread(self, op: Operation) -> Kind:
        x, y, z = self.block
        along = str(op.properties["dimension"].data)  # pyright: ignore
        if x % self.lanes == 0 or y * z == 1:
            ramp = Ramp(tuple(range(self.lanes)), self.lanes)
            if op.name == "gpu.global_id" and x % self.lanes:
                ramp = Ramp(ramp.steps, gcd(x, self.lanes))
            return ramp if along == "x" else UNIFORM
        return VARYING

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
        number = constant(op.operands[1])
        if isinstance(y, Ramp) and name in ("add", "mul"):
            x, y = y, x
            number = constant(op.operands[0])
        if not isinstance(x, Ramp):
            return None
        if isinstance(y, Ramp):
            steps = tuple(a + b for a, b in zip(x.steps, y.steps, strict=True))
            return Ramp(steps, gcd(x.unit, y.unit)) if name == "add" else None
        if y is not UNIFORM:
            return None
        if name in ("add", "sub"):
            return Ramp(x.steps, gcd(x.unit, number) if number is not None else 1)
        if number is None or number <= 0:
            return None
        if name in ("mul", "shl"):
            factor = number if name == "mul" else 1 << min(number, 32)
            return Ramp(tuple(s * factor for s in x.steps), x.unit * factor)
        return divided(x, name, number)


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


def is_shared(value: SSAValue) -> bool:
    """Does a memref lie in memory that the workgroup shares?"""
    return isinstance(value.type, MemRefType) and memory_space_number(value.type) == SHARED


SHARED = 3
