"""xe-schedule-for-pressure: an order of the program in which less lives at the same time.

    load a0, a1, b0, b1; c0 += a0 b0; c0 += a1 b1          load a0, b0; c0 += a0 b0; load a1, b1; c0 += a1 b1
    x = a * s; y = b * s; p = exp x; q = exp y             x = a * s; p = exp x; y = b * s; q = exp y

Requires: a lane program. Guarantees: the same results; an order that is no better is left as it was. Within a stretch
without barriers and loops (`moves` keeps the order of memory), loads, parts of fragments and what only grows stand
right before their first user. Of the other ops that could come next come those that free registers, then those that
the next store waits for (a compiler moves what only a masked store reads into its branch, and holds the operands up
to there: an epilogue goes fragment by fragment up to its stores), of these the one after which the fewest registers
live, among equals the one that goes on with the newest value. What lanes compute from numbers alone comes behind the
walls in front of its users. Loads hide less latency so: it runs only where registers would not suffice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from tilewright.dialects.movement import is_vector
from tilewright.dialects.nesting import move, used_from_above
from tilewright.passes.budget import poll
from tilewright.passes.memory_objects import is_pure
from tilewright.targets.xe.building import bits_of, element_of
from tilewright.targets.xe.liveness import VIEWS, Liveness
from tilewright.targets.xe.moves import READS, may_move, order_of_memory, stores

_PARTS = (
    "vector.extract_strided_slice",
    "vector.insert_strided_slice",
    "vector.extract",
    "vector.insert",
    "vector.shape_cast",
    "vector.bitcast",
    "vector.broadcast",
    "vector.shuffle",
    "gpu.shuffle",
)


Rank = tuple[int, ...]


def schedule_for_pressure(kernel: gpu.FuncOp, liveness: Liveness) -> None:
    """Reorders a kernel (see the module), and counts what lives in it anew."""
    before, given = liveness.best, {block: list(block.ops) for block in kernel.walk_blocks()}
    for block in list(kernel.walk_blocks()):
        _sink_numbers(block, liveness)
        positions = {op: i for i, op in enumerate(block.ops)}
        for stretch in list(_stretches(block)):
            _Stretch(stretch, positions, liveness).reorder()
    liveness.count()
    if liveness.best > before:
        for block, ops in given.items():
            move(ops, InsertPoint.at_end(block))
        liveness.count()


def _sink_numbers(block: Block, liveness: Liveness) -> None:
    """What lanes compute from numbers alone, as where a store writes and which lanes do, moves behind the walls in
    front of its first user, unless what it reads would fill more registers up to there."""
    walls: list[Operation] = []
    behind: dict[Operation, int] = {}
    """How many walls are in front of an op."""
    numbers: dict[SSAValue, None] = {}

    def given(value: SSAValue) -> bool:
        owner = value.owner
        return not is_vector(value) and (
            not isinstance(owner, Operation) or owner.parent is not block
        )

    for op in block.ops:
        behind[op] = len(walls)
        if not may_move(op):
            walls.append(op)
        elif is_pure(op) and all(v in numbers or given(v) for v in used_from_above(op)):
            numbers.update(dict.fromkeys(op.results))

    def first(values: Sequence[SSAValue], but: Operation | None = None) -> int:
        uses = (use.operation for value in values for use in value.uses)
        users = {block.find_ancestor_op_in_block(use) for use in uses} - {but}
        return min((behind[op] for op in users if op is not None), default=len(walls))

    for value in reversed(numbers):
        op = value.owner
        assert isinstance(op, Operation)
        to = first(op.results)
        if (
            not is_vector(value)
            or isinstance(op, arith.ConstantOp)
            or not behind[op] < to < len(walls)
        ):
            continue
        if liveness.total({v for v in used_from_above(op) if first([v], op) < to}) <= liveness.size(
            value
        ):
            move([op], InsertPoint.after(walls[to - 1]))
            behind[op] = to


def _stretches(block: Block) -> Iterator[list[Operation]]:
    """Runs of ops that may change places."""
    run: list[Operation] = []
    for op in list(block.ops):
        if may_move(op):
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


class _Stretch:
    """One run of ops of a block, and the order in which they shall come.

    An op that does not wait is an anchor; what waits comes with the first anchor that needs it, its group. What a group
    does to the registers changes when one of it has come, when of a value that it reads no reader is left but those of
    the group, and when all anchors that need one of it could come: only then it is counted again. A heap holds the
    anchors that could come by their rank; an entry that is not an anchor's rank any more is passed over.
    """

    def __init__(
        self, ops: Sequence[Operation], positions: dict[Operation, int], liveness: Liveness
    ):
        self.ops, self.positions, self.liveness = ops, positions, liveness
        self.order: list[Operation] = []
        self.done: set[Operation] = set()
        self.made_at: dict[SSAValue, int] = {}
        reads = {op: used_from_above(op) for op in ops}
        self.reads = {op: self._large(values) for op, values in reads.items()}
        self.makes = {op: self._large(op.results) & set(op.results) for op in ops}
        self.readers: dict[SSAValue, set[Operation]] = {}
        for op in ops:
            for root in self.reads[op]:
                self.readers.setdefault(root, set()).add(op)
        self.left = {root: len(readers) for root, readers in self.readers.items()}
        """Readers that are to come."""
        block, last = ops[0].parent, positions[ops[-1]]
        assert block is not None
        self.kept = {
            root for root in self.readers if _is_needed_after(root, block, last, positions)
        }
        self.needs = self._needs(reads)
        """What must come before an op: the makers of what it reads, what memory keeps it behind."""
        self.goal = self._goals()
        # Of what an op waits for, that which makes or reads values that take registers.
        waiting: dict[Operation, dict[Operation, None]] = {}
        for op in ops:
            found: dict[Operation, None] = {}
            for each in self.needs[op]:
                if _waits(each):
                    found.update(waiting[each])
                    if self.reads[each] or self.makes[each]:
                        found[each] = None
            waiting[op] = found
        self.groups = {op: [*waiting[op], op] for op in ops if not _waits(op)}
        """Of every anchor, what waits for it, and itself."""
        self.consumers: dict[Operation, list[Operation]] = {}
        """Of what waits, the anchors that need it."""
        for op, group in self.groups.items():
            for each in group[:-1]:
                self.consumers.setdefault(each, []).append(op)
        self.unready = {op: len(anchors) for op, anchors in self.consumers.items()}
        """How many of these could not come yet."""
        # Of a group, what others read too, or what reads what others made; and what lives within the rest only.
        self.heavy = {op: self._shared(group) for op, group in self.groups.items()}
        self.passing = {
            op: {v for each in set(self.groups[op]) - set(group) for v in self.makes[each]}
            for op, group in self.heavy.items()
        }
        self.rank: dict[Operation, Rank] = {}
        """Of the anchors that could come."""
        self.heap: list[tuple[Rank, int]] = []
        """Ranks, and the anchors' places among `ops`."""
        self.place = {op: n for n, op in enumerate(ops)}
        self.ends_at: dict[tuple[SSAValue, int], dict[Operation, None]] = {}
        """By a value and a number of readers to come: anchors whose groups hold so many of them."""

    def _needs(self, reads: dict[Operation, list[SSAValue]]) -> dict[Operation, list[Operation]]:
        members, needs = set(self.ops), {}
        behind = order_of_memory(self.ops)
        for op in self.ops:
            made = (v.owner for v in reads[op])
            found = dict.fromkeys(o for o in made if isinstance(o, Operation) and o in members)
            needs[op] = list(found | behind[op])
        return needs

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

    def _goals(self) -> dict[Operation, int]:
        """Of every op that a store needs, the number of the first such store."""
        goal: dict[Operation, int] = {}
        for n, op in reversed(list(enumerate(self.ops))):
            mine = min(n if stores(op) else len(self.ops), goal.get(op, len(self.ops)))
            if mine == len(self.ops):
                continue
            goal[op] = mine
            for each in self.needs[op]:
                goal[each] = min(mine, goal.get(each, mine))
        return goal

    def _cost(self, op: Operation) -> tuple[int, int]:
        """If an anchor comes next with its group: bytes that live afterwards more than before; bytes that live in
        between."""
        group = [each for each in self.heavy[op] if each not in self.done]
        made = {value for each in group for value in self.makes[each]}
        passing = self.passing[op]
        read = Counter(v for each in group for v in self.reads[each] if v not in passing)
        ends: set[SSAValue] = set()
        for value, inside in read.items():
            if value in self.kept:
                continue
            if self.left[value] == inside:
                ends.add(value)
            else:
                self.ends_at.setdefault((value, inside), {})[op] = None
        new, gone = self.liveness.total(made), self.liveness.total(ends)
        # What is loaded too early for another reader fills registers until that one can come.
        held = sum(
            self.liveness.total(self.makes[each] - ends)
            for each in group
            if each is not op and self.unready[each]
        )
        return new - gone + held, new

    def _count(self, ops: Iterable[Operation]) -> None:
        """Ranks anchors that could come: what frees registers; what the next store needs; then by registers; among
        equals what goes on with the newest value, then the order of the program."""
        for op in dict.fromkeys(ops):
            cost = self._cost(op)
            goal = -1 if cost[0] < 0 else self.goal.get(op, len(self.ops))
            rank = (goal, *cost, -self._newest(op), self.positions[op])
            if self.rank.get(op) != rank:
                self.rank[op] = rank
                heappush(self.heap, (rank, self.place[op]))

    def _newest(self, op: Operation) -> int:
        """When the newest value that an op reads was made. A product waits for the one that made its accumulator: it
        is not to follow it."""
        if op.name == "xegpu.dpas":
            return -1
        return max((self.made_at.get(root, -1) for root in self.reads[op]), default=-1)

    def _best(self) -> Operation:
        while True:
            rank, place = heappop(self.heap)
            op = self.ops[place]
            if self.rank.get(op) == rank:
                del self.rank[op]
                return op

    def _take(self, anchor: Operation) -> None:
        """Puts an anchor next, and in front of it what it waits for, as the program reads it."""
        changed: dict[Operation, None] = {}
        work = [(anchor, iter(self.needs[anchor]))]
        while work:
            op, rest = work[-1]
            before = next((each for each in rest if each not in self.done), None)
            if before is not None:
                work.append((before, iter(self.needs[before])))
                continue
            work.pop()
            self.done.add(op)
            self.order.append(op)
            changed.update(dict.fromkeys(self.consumers.get(op, ())))
            for value in self.makes[op]:
                self.made_at[value] = len(self.order)
            for value in self.reads[op]:
                self.left[value] -= 1
                changed.update(self.ends_at.pop((value, self.left[value]), {}))
        self._count(op for op in changed if op in self.rank)

    def _enter(self, anchors: Sequence[Operation]) -> None:
        """Anchors that nothing holds back any more."""
        changed = dict.fromkeys(anchors)
        for each in [each for op in anchors for each in self.groups[op][:-1]]:
            self.unready[each] -= 1
            if not self.unready[each]:
                changed.update(dict.fromkeys(op for op in self.consumers[each] if op in self.rank))
        self._count(changed)

    def reorder(self) -> None:
        block, after = self.ops[0].parent, self.ops[-1].next_op
        assert block is not None and after is not None, "a block ends with a terminator"
        missing = {op: len(self.needs[op]) for op in self.ops}
        users: dict[Operation, list[Operation]] = {}
        for op in self.ops:
            for each in self.needs[op]:
                users.setdefault(each, []).append(op)

        def freed(work: list[Operation]) -> list[Operation]:
            """The anchors among ops that miss nothing, and behind those of them that wait."""
            found: list[Operation] = []
            while work:
                op = work.pop()
                if not _waits(op):
                    found.append(op)
                    continue
                work.extend(released(op))
            return found

        def released(op: Operation) -> Iterator[Operation]:
            for user in users.get(op, ()):
                missing[user] -= 1
                if not missing[user]:
                    yield user

        self._enter(freed([op for op in self.ops if not missing[op]]))
        while self.rank:
            poll()
            best = self._best()
            self._take(best)
            self._enter(freed(list(released(best))))
        for op in self.ops:
            if op not in self.done:
                self.order.append(op)
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
            op = block.find_ancestor_op_in_block(use.operation)
            if op is None or positions[op] > last:
                return True
            if use.operation.name in VIEWS:
                queue.extend(use.operation.results)
    return False
