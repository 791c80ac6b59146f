"""What lives at each point of a lane program, and how many bytes of a subgroup's registers it takes.

A fragment of n components of b bits takes n * b * lanes / 8 bytes; each component at least a register while arithmetic
is done with it. Slices of a fragment are the same registers
(`root`). A value on which all lanes agree takes its own bytes only, whatever it is broadcast to; a mask is bits of
flags; index arithmetic of a lane nothing (it is done again where it is needed). An op writes over an operand that it
is the last to read: a product over its accumulator, arithmetic over any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, MemRefType, VectorType, i1
from xdsl.ir import Attribute, Block, Operation, SSAValue

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
            for region in op.regions:
                for inner in region.blocks:
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

    def sized(self, values: Iterable[SSAValue]) -> set[SSAValue]:
        """The values whose registers some values are, without those that take none."""
        return {root for v in values if self.size(root := self.root(v))}

    def _note(self, op: Operation, live: set[SSAValue], total: int) -> None:
        if total >= self.best:  # the first of several such points: blocks are walked backwards
            self.best, self.where, self.live = total, op, frozenset(live)

    def scan(self, block: Block, after: set[SSAValue]) -> set[SSAValue]:
        """What is live before a block, given what is live behind it; values that take no registers are left out."""
        live = self.sized(after)
        total = self.total(live)
        for op in reversed(list(block.ops)):
            poll()
            results = self.sized(op.results)
            total += self.total(results - live)
            live |= results
            self._note(op, live, total)
            gone = {r for r in op.results if r in live}
            total -= self.total(gone)
            live -= gone
            for region in op.regions:
                for inner in region.blocks:
                    free = self._inside(inner, live)
                    total += self.total(free - live)
                    live |= free
            operands = self.sized(op.operands)
            written = op.name == "xegpu.dpas" and self._begins(op, live)
            total += self.total(operands - live)
            live |= operands
            # A product reads A and B while it writes: only its accumulator can be the result.
            self._note(op, live, total + (self.total(results - live) if written else 0))
        live.difference_update(block.args)
        return live

    def _begins(self, op: Operation, live: set[SSAValue]) -> bool:
        """Does a product need new registers: no accumulator, a constant, or one that lives on?"""
        if len(op.operands) < 3:
            return True
        acc = self.root(op.operands[2])
        return isinstance(acc.owner, arith.ConstantOp) or acc in live or self.size(acc) == 0

    def _inside(self, block: Block, after: set[SSAValue]) -> set[SSAValue]:
        """A loop's body or a branch: what it uses of outside lives as long as it does."""
        inside = set(_blocks(block))
        free = {
            root
            for each in inside
            for op in each.ops
            for root in self.sized(op.operands)
            if _home(root) not in inside
        }
        self.scan(block, after | free)
        return free


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


def _blocks(block: Block) -> Iterator[Block]:
    """A block and those inside of it."""
    yield block
    for op in block.ops:
        for region in op.regions:
            for inner in region.blocks:
                yield from _blocks(inner)


def _home(value: SSAValue) -> Block | None:
    return value.owner if isinstance(value.owner, Block) else value.owner.parent
