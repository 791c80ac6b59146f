"""xe-order-by-demand: an order of the program in which less lives at the same time.

    load a0, a1, b0, b1; c0 += a0 b0; c0 += a1 b1          load a0, b0; c0 += a0 b0; load a1, b1; c0 += a1 b1
    x = a * s; y = b * s; p = exp x; q = exp y             x = a * s; p = exp x; y = b * s; q = exp y

Requires: a lane program. Guarantees: the same results. Within a stretch without barriers, loops or writes that others
read (`moves`), loads, parts of fragments and what only grows stand right before their first user. Of the other ops that
could come next come those that free registers, then those that the next store waits for (a compiler moves what only a
masked store reads into its branch, and holds the operands up to there: an epilogue goes piece by piece up to its
stores), of these the one after which the fewest registers live, among equals the one that goes on with the newest
value. Loads hide less latency so: it runs only where registers would not suffice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from time import process_time

from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.targets.xe.building import bits_of, element_of
from tilewright.targets.xe.liveness import VIEWS, Liveness
from tilewright.targets.xe.moves import READS, Moves, stores

_PARTS = (
    "vector.extract_strided_slice",
    "vector.insert_strided_slice",
    "vector.extract",
    "vector.insert",
    "vector.shape_cast",
    "vector.bitcast",
    "vector.broadcast",
    "vector.shuffle",
)


BUDGET = 20.0
"""Seconds of processor time that orders may take in one compilation."""


def order_by_demand(kernel: gpu.FuncOp, lanes: int, until: float = inf) -> None:
    """Reorders a kernel for subgroups of `lanes` lanes (see the module).

    UnsupportedError where the process has used `until` seconds of processor time before it is done.
    """
    liveness, moves = Liveness(kernel.body.blocks[0], lanes), Moves(kernel)
    for block in list(_blocks(kernel)):
        positions = {op: i for i, op in enumerate(block.ops)}
        for stretch in list(_stretches(block, moves)):
            _Stretch(stretch, positions, liveness, until).reorder()


def _blocks(op: Operation) -> Iterator[Block]:
    for region in op.regions:
        for block in region.blocks:
            yield block
            for inner in block.ops:
                yield from _blocks(inner)


def _reads(op: Operation) -> list[SSAValue]:
    """What an op reads, in its regions too."""
    if not op.regions:
        return list(op.operands)
    return list(dict.fromkeys(v for each in op.walk() for v in each.operands))


def _stretches(block: Block, moves: Moves) -> Iterator[list[Operation]]:
    """Runs of ops that may change places."""
    run: list[Operation] = []
    for op in list(block.ops):
        if moves.may(op):
            run.append(op)
            continue
        if len(run) > 2:
            yield run
        run = []


def _waits(op: Operation) -> bool:
    """Does the op stand right before its first user: a load, a part of a fragment, what grows or keeps its size?"""
    if op.name in READS or op.name in _PARTS or (op.regions and op.results):
        return True
    if not op.results:
        return False
    if not any(isinstance(r.type, VectorType) for r in op.results):
        return True
    if op.name in ("arith.extf", "arith.truncf", "arith.bitcast") and len(op.operands) == 1:
        sizes = [bits_of(element_of(v.type)) for v in (op.operands[0], op.results[0])]
        return sizes[1] >= sizes[0]
    return False


@dataclass
class _Candidate:
    """What it does to the registers if an op comes next, with all that it waits for."""

    roots: frozenset[SSAValue]
    """Values that they make or read."""
    cost: tuple[int, int]
    """Bytes that live afterwards more than before; bytes that live in between."""


class _Stretch:
    """One run of ops of a block, and the order in which they shall come."""

    def __init__(
        self,
        ops: Sequence[Operation],
        positions: dict[Operation, int],
        liveness: Liveness,
        until: float,
    ):
        self.ops, self.positions, self.liveness, self.until = ops, positions, liveness, until
        self.members = set(ops)
        self.order: list[Operation] = []
        self.done: set[Operation] = set()
        self.made_at: dict[SSAValue, int] = {}
        self.readers: dict[SSAValue, set[Operation]] = {}
        reads = {op: _reads(op) for op in ops}
        self.reads = {op: self._large(values) for op, values in reads.items()}
        self.makes = {op: self._large(op.results) & set(op.results) for op in ops}
        for op in ops:
            for root in self.reads[op]:
                self.readers.setdefault(root, set()).add(op)
        block, last = ops[0].parent, positions[ops[-1]]
        assert block is not None
        self.kept = {
            root for root in self.readers if _is_needed_after(root, block, last, positions)
        }
        # What else an op reads of the stretch that does not wait, and what waits for it.
        self.before: dict[Operation, set[Operation]] = {}
        self.waiting: dict[Operation, list[Operation]] = {}
        last_store: Operation | None = None
        for op in ops:
            anchors: set[Operation] = set()
            if stores(op):
                if last_store is not None:
                    anchors.add(last_store)
                last_store = op
            waiting: dict[Operation, None] = {}
            for value in reads[op]:
                owner = value.owner
                if not isinstance(owner, Operation) or owner not in self.members:
                    continue
                if not _waits(owner):
                    anchors.add(owner)
                    continue
                anchors |= self.before[owner]
                waiting.update(dict.fromkeys(self.waiting[owner]))
                waiting[owner] = None
            self.before[op] = anchors
            self.waiting[op] = list(waiting)
        # Ops that do not wait and are to come: what a load may have to live for.
        self.consumers: dict[Operation, set[Operation]] = {}
        for op in ops:
            if not _waits(op):
                for each in self.waiting[op]:
                    self.consumers.setdefault(each, set()).add(op)
        self.ready: dict[Operation, _Candidate] = {}
        self.concerned: dict[SSAValue, dict[Operation, None]] = {}
        """Of a value, the ready ops whose costs it takes part in."""
        self.goal = self._goals()
        # Of what an op waits for, that which others read too, or which reads what others made.
        self.heavy = {op: self._shared([*self.waiting[op], op]) for op in ops if not _waits(op)}
        # What lives within the others only.
        self.passing = {
            op: {v for each in set(self.waiting[op]) - set(group) for v in self.makes[each]}
            for op, group in self.heavy.items()
        }

    def _large(self, values: Sequence[SSAValue]) -> set[SSAValue]:
        """Those that take a part of a register per lane; masks and numbers are not worth an order."""
        least = 2 * self.liveness.lanes
        return {v for v in self.liveness.sized(values) if self.liveness.size(v) >= least}

    def _shared(self, group: Sequence[Operation]) -> list[Operation]:
        inside = set(group)
        made = {value for op in group for value in self.makes[op]}
        return [
            op
            for op in group
            if not self.reads[op] <= made
            or any(not self.readers.get(v, set()) <= inside for v in self.makes[op])
            or op is group[-1]
        ]

    def candidate(self, op: Operation) -> _Candidate:
        group = [each for each in self.heavy[op] if each not in self.done]
        made = {value for each in group for value in self.makes[each]}
        read = {v for each in group for v in self.reads[each] if v not in self.passing[op]}
        inside = set(group)
        ends = {value for value in read if value not in self.kept and self.readers[value] <= inside}
        new, gone = self.liveness.total(made), self.liveness.total(ends)
        # What is loaded too early for another reader fills registers until that one can come.
        held = sum(
            self.liveness.total(self.makes[each] - ends)
            for each in group
            if each is not op and not self._all_ready(each)
        )
        return _Candidate(frozenset(made | read), (new - gone + held, new))

    def rank(self, op: Operation) -> tuple[int, ...]:
        """What frees registers; what the next store needs; then by registers; among equals what goes on with the
        newest value, then the order of the program."""
        cost = self.ready[op].cost
        goal = -1 if cost[0] < 0 else self.goal.get(op, len(self.ops))
        return goal, *cost, -self._newest(op), self.positions[op]

    def _goals(self) -> dict[Operation, int]:
        """Of every op that a store needs, the number of the first such store."""
        goal: dict[Operation, int] = {}
        for n, op in reversed(list(enumerate(self.ops))):
            mine = min(n if stores(op) else len(self.ops), goal.get(op, len(self.ops)))
            if mine == len(self.ops):
                continue
            goal[op] = mine
            for each in (*self.before.get(op, ()), *self.waiting.get(op, ())):
                goal[each] = min(mine, goal.get(each, mine))
        return goal

    def _newest(self, op: Operation) -> int:
        """When the newest value that an op reads was made. A product waits for the one that made its accumulator: it
        is not to follow it."""
        if op.name == "xegpu.dpas":
            return -1
        return max((self.made_at.get(root, -1) for root in self.reads[op]), default=-1)

    def _all_ready(self, op: Operation) -> bool:
        return all(each in self.ready for each in self.consumers[op] if each not in self.done)

    def take(self, group: Sequence[Operation]) -> None:
        for op in group:
            self.done.add(op)
            self.order.append(op)
            self.made_at.update(dict.fromkeys(self.makes[op], len(self.order)))
            for value in self.reads[op]:
                self.readers[value].discard(op)

    def _refresh(self, roots: Collection[SSAValue]) -> None:
        """Counts again what is ready and concerned with some values."""
        for op in {op: None for root in roots for op in self.concerned.get(root, ())}:
            self._count(op)

    def _count(self, op: Operation) -> None:
        now = self.candidate(op)
        before = self.ready.get(op)
        for root in now.roots - before.roots if before else now.roots:
            self.concerned.setdefault(root, {})[op] = None
        for root in before.roots - now.roots if before else ():
            del self.concerned[root][op]
        self.ready[op] = now

    def _leave(self, op: Operation) -> _Candidate:
        chosen = self.ready.pop(op)
        for root in chosen.roots:
            del self.concerned[root][op]
        return chosen

    def _enter(self, ops: Sequence[Operation]) -> None:
        """Ops that nothing holds back any more."""
        for op in ops:
            self._count(op)
        self._refresh({root for op in ops for root in self.ready[op].roots})

    def reorder(self) -> None:
        block, after = self.ops[0].parent, self.ops[-1].next_op
        assert block is not None and after is not None, "a block ends with a terminator"
        anchors = [op for op in self.ops if not _waits(op)]
        missing = {op: len(self.before[op]) for op in anchors}
        users: dict[Operation, list[Operation]] = {op: [] for op in anchors}
        for op in anchors:
            for each in self.before[op]:
                users[each].append(op)
        self._enter([op for op in anchors if not missing[op]])
        while self.ready:
            if process_time() > self.until:
                raise error_at(
                    self.ops[0],
                    f"an order in which registers might suffice was looked for for {BUDGET:.0f} s: {len(self.ops)} "
                    "operations of a subgroup stand between two barriers or loops here",
                    hint="a smaller tile along the dimension that no loop goes through gives a subgroup fewer",
                    kind=UnsupportedError,
                )
            best = min(self.ready, key=self.rank)
            chosen = self._leave(best)
            self.take([op for op in (*self.waiting[best], best) if op not in self.done])
            self._refresh(chosen.roots)
            entering: list[Operation] = []
            for user in users[best]:
                missing[user] -= 1
                if not missing[user]:
                    entering.append(user)
            self._enter(entering)
        self.take([op for op in self.ops if op not in self.done])
        for op in self.ops:
            op.detach()
        block.insert_ops_before(self.order, after)


def _is_needed_after(
    value: SSAValue, block: Block, last: int, positions: dict[Operation, int]
) -> bool:
    """Does a value live on behind the op number `last` of a block: read later, or outside of the loop's body?"""
    owner = value.owner
    home = owner if isinstance(owner, Block) else owner.parent
    if home is not block:
        return True
    queue = [value]
    while queue:
        for use in queue.pop().uses:
            op: Operation | None = use.operation
            while op is not None and op.parent is not block:
                op = op.parent_op()
            if op is None or positions[op] > last:
                return True
            if use.operation.name in VIEWS:
                queue.extend(use.operation.results)
    return False
