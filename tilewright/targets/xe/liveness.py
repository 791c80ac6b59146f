"""What lives at each point of a lane program, and how many bytes of a subgroup's registers it takes.

A fragment of n components of b bits takes n * b * lanes / 8 bytes; each component at least a register while arithmetic
is done with it. Slices of a fragment are the same registers
(`root`). A value on which all lanes agree takes its own bytes only, whatever it is broadcast to; a mask is bits of
flags; index arithmetic of a lane nothing (it is done again where it is needed). An op writes over an operand that it
is the last to read: a product over its accumulator, arithmetic over any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, MemRefType, VectorType, i1
from xdsl.ir import Attribute, Block, Operation, SSAValue

from tilewright.dialects.nesting import blocks_in
from tilewright.passes.budget import poll
from tilewright.targets.xe.building import bits_of, count_of, element_of

VIEWS = (
    "vector.extract_strided_slice",
    "vector.extract",
    "vector.shape_cast",
    "vector.bitcast",
    "xegpu.convert_layout",
    "builtin.unrealized_conversion_cast",
)
_VARYING = (
    "gpu.lane_id",
    "gpu.thread_id",
    "gpu.global_id",
    "xegpu.load",
    "xegpu.load_matrix",
    "xegpu.load_nd",
    "xegpu.atomic_rmw",
    "xegpu.dpas",
    "gpu.shuffle",
)
_TOGETHER = (
    "xegpu.load_nd",
    "xegpu.load_matrix",
    "xegpu.dpas",
    "vector.bitcast",
    "vector.shuffle",
    "vector.insert",
    "xegpu.load",
    "scf.if",
)
"""Ops whose results lie in registers side by side; arithmetic gives each component a register of its own."""
FLAG_BYTES = 4
"""Bytes of a mask of one component: a flag that finds no flag register lies in a general one."""


class Liveness:
    """Sizes and lives of the values of one kernel's body, for subgroups of `lanes` lanes."""

    def __init__(self, body: Block, lanes: int):
        self.lanes = lanes
        self._varies: set[SSAValue] = set()
        self._roots: dict[SSAValue, SSAValue] = {}
        self._bytes: dict[SSAValue, int] = {}
        self._reads: dict[Operation, frozenset[SSAValue]] = {}
        self._makes: dict[Operation, frozenset[SSAValue]] = {}
        self._free: dict[Block, frozenset[SSAValue]] = {}
        self.body = body
        self.best = 0
        """Bytes at the fullest point that `scan` met."""
        self.where: Operation | None = None
        self.live: frozenset[SSAValue] = frozenset()
        self._prepare(body)

    def root(self, value: SSAValue) -> SSAValue:
        """The value whose registers hold this one."""
        return self._roots.get(value, value)

    def _prepare(self, block: Block) -> None:
        for op in block.ops:
            views = op.name in VIEWS and op.operands and isinstance(op.operands[0].type, VectorType)
            if views or _repeats_a_number(op):
                self._roots[op.results[0]] = self.root(op.operands[0])
            varying = op.name in _VARYING or any(v in self._varies for v in op.operands)
            for inner in blocks_in(op):
                if varying or op.name == "scf.for":
                    # What a loop carries begins alike for all lanes and need not stay so.
                    carried = inner.args[1:] if op.name == "scf.for" else inner.args
                    self._varies.update(v for v in carried if isinstance(v.type, VectorType))
                    if varying:
                        self._varies.update(inner.args)
                self._prepare(inner)
            if op.regions:
                self._varies.update(r for r in op.results if isinstance(r.type, VectorType))
            if varying:
                self._varies.update(op.results)

    def size(self, value: SSAValue) -> int:
        """Bytes of registers of a subgroup."""
        found = self._bytes.get(value)
        if found is None:
            found = self._bytes[value] = self._size(value)
        return found

    def _size(self, value: SSAValue) -> int:
        type: Attribute = value.type
        owner = value.owner
        if isinstance(owner, arith.ConstantOp) or isinstance(type, MemRefType):
            return 0
        if type.name.startswith("xegpu.") or type.name == "none":
            return 0
        element = element_of(type)
        if element == i1:
            return FLAG_BYTES * count_of(type)
        try:
            bits = bits_of(element)
        except AssertionError:
            return 8
        if value not in self._varies:
            spread = isinstance(owner, Operation) and owner.name == "vector.broadcast"
            return bits // 8 * (1 if spread else count_of(type))
        if not isinstance(type, VectorType) and _again(value):
            return 0
        if self.is_apart(value):
            # Found by compiling: short integers share a register, short floats do not.
            bits = max(bits, 16 if isinstance(element, IntegerType) else 32)
        return count_of(type) * bits * self.lanes // 8

    def is_apart(self, value: SSAValue) -> bool:
        """Has each component a register of its own: does arithmetic make the value, or a loop carry it for some?"""
        owner = value.owner
        if isinstance(owner, Operation):
            return owner.name not in _TOGETHER or not isinstance(value.type, VectorType)
        return any(use.operation.name not in ("xegpu.dpas", "scf.yield") for use in value.uses)

    def total(self, values: Collection[SSAValue]) -> int:
        return sum(self.size(v) for v in values)

    def sized(self, values: Iterable[SSAValue]) -> frozenset[SSAValue]:
        """The values whose registers some values are, without those that take none."""
        roots = self._roots
        return frozenset([root for v in values if self.size(root := roots.get(v, v))])

    def reads(self, op: Operation) -> frozenset[SSAValue]:
        """What an op itself reads."""
        found = self._reads.get(op)
        if found is None:
            found = self._reads[op] = self.sized(op.operands)
        return found

    def _made(self, op: Operation) -> frozenset[SSAValue]:
        found = self._makes.get(op)
        if found is None:
            found = self._makes[op] = self.sized(op.results)
        return found

    def count(self) -> None:
        """Scans the body as it is."""
        self.best = 0
        self.scan(self.body, frozenset())

    def _note(self, op: Operation, live: set[SSAValue], total: int) -> None:
        if total >= self.best:  # the first of several such points: blocks are walked backwards
            self.best, self.where, self.live = total, op, frozenset(live)

    def scan(self, block: Block, after: Collection[SSAValue]) -> None:
        """Notes what is live in a block, given what is behind it; values that take no registers are left out."""
        live = set(self.sized(after))
        total = self.total(live)

        def begin(values: Iterable[SSAValue]) -> int:
            return sum([self.size(v) for v in values if v not in live])

        for op in reversed(list(block.ops)):
            poll()
            results = self._made(op)
            total += begin(results)
            live |= results
            self._note(op, live, total)
            gone = [r for r in op.results if r in live]
            total -= self.total(gone)
            live.difference_update(gone)
            for inner in blocks_in(op):
                # What a body or a branch uses of outside lives as long as it does.
                free = self.free(inner)
                self.scan(inner, live | free)
                total += begin(free)
                live |= free
            operands = self.reads(op)
            written = op.name == "xegpu.dpas" and self._begins(op, live)
            total += begin(operands)
            live |= operands
            # A product reads A and B while it writes: only its accumulator can be the result.
            self._note(op, live, total + (begin(results) if written else 0))

    def _begins(self, op: Operation, live: set[SSAValue]) -> bool:
        """Does a product need new registers: no accumulator, a constant, or one that lives on?"""
        if len(op.operands) < 3:
            return True
        acc = self.root(op.operands[2])
        return isinstance(acc.owner, arith.ConstantOp) or acc in live or self.size(acc) == 0

    def free(self, block: Block) -> frozenset[SSAValue]:
        """What a loop's body or a branch uses of outside, whatever the order in it."""
        found = self._free.get(block)
        if found is None:
            used: set[SSAValue] = set()
            for op in block.ops:
                used |= self.reads(op)
                for inner in blocks_in(op):
                    used |= self.free(inner)
            found = self._free[block] = frozenset(r for r in used if _home(r) is not block)
        return found


def _repeats_a_number(op: Operation) -> bool:
    """Are all components of a result the one number of a lane? Compilers keep that once."""
    return op.name == "vector.broadcast" and not isinstance(op.operands[0].type, VectorType)


def _again(value: SSAValue) -> bool:
    """Is a lane's scalar arithmetic on numbers, which costs less to do again than to keep?"""
    owner = value.owner
    return isinstance(owner, Operation) and owner.name.partition(".")[0] in (
        "arith",
        "gpu",
        "index",
    )


def _home(value: SSAValue) -> Block | None:
    return value.owner if isinstance(value.owner, Block) else value.owner.parent
