"""row-fusion: tile-shaped ops that may run in one pass over rows become one `stage.fused`.

    %x = xetile.load_tile %t                       %y = stage.fused {
    %m = xetile.reduction <maximumf>, %x [1]         %x = xetile.load_tile %t
    %b = xetile.broadcast %m [1]               ->    ... exp(x - max) ...
    %d = arith.subf %x, %b                           stage.yield %e
    %e = math.exp %d                               }
    %r = stage.contract ... %e ...                 %r = stage.contract ... %y ...

Requires: no tile_mma (they are contracts).
Guarantees: every op that makes or stores a tile-shaped value and is not cheap to repeat stands in a fused group; in a
fused group, an element depends on its own row only; memory is read and written in an order that the program allows.

Each op joins the earliest fused group that has its number of rows, comes after what it needs, and lets memory accesses
keep their places among those that may touch the same elements. *Rematerialized* ops are cheap to repeat and belong to
their users: constants, repetitions, sums of index vectors, transposes, one row of masks or of conversions that few rows
need, and loads, which move down to their users unless something may be written in between. Reductions down columns and
atomics form fused groups of their own.

A fused group reads an element just before it is needed, so a write shares a fused group with a load of what it
overwrites only *in place*: both name the same tile, and nothing in the fused group reads that load at other elements
than it computes. A load that its own store overlaps in any other way is done before, into memory:

    %x = xetile.load_tile %t                       %y = stage.fused {
    %y = xetile.transpose %x [1, 0]        ->        %x = xetile.load_tile %t
    xetile.store_tile %y, %t                         stage.yield %x }
                                                   stage.fused {
                                                     xetile.store_tile (transpose of %y), %t }
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from xdsl.dialects import gpu, scf, vector
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import is_side_effect_free

from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import ContractOp, FusedOp, PackOp, YieldOp
from tilewright.frozen import field, record
from tilewright.passes.access import Access, AccessAnalysis, same_tile
from tilewright.passes.memory_objects import may_read, may_write
from tilewright.passes.row_fusion_kinds import (
    COUNTING,
    FREE,
    LOADS,
    MOVERS,
    WRITES,
    counts,
    is_local_reduction,
    is_mover,
    is_tile,
    moves,
    reduction_inputs,
    rows_of,
    shared_row,
)


@record
class Item:
    """A fused group being collected (`rows` > 0), or an op that stays what it is."""

    rows: int
    kind: str
    ops: list[Operation] = field(default_factory=list[Operation])
    moved: set[Operation] = field(default_factory=set[Operation])
    """Loads of which the fused group reads other elements than those that it computes."""


def fuse_rows(function: gpu.FuncOp, *, fuse: bool = True) -> None:
    """Rewrite every block of a kernel; without `fuse` every op is a fused group of its own."""
    analysis = AccessAnalysis(function)
    for block in list(_blocks(function.body.block)):
        RowFusion(block, analysis, fuse).run()


def _blocks(block: Block) -> Iterator[Block]:
    yield block
    for op in block.ops:
        if isinstance(op, scf.ForOp | scf.IfOp | scf.WhileOp):
            for region in op.regions:
                for inner in region.blocks:
                    yield from _blocks(inner)


class RowFusion:
    """Forms the fused groups of one block."""

    def __init__(self, block: Block, analysis: AccessAnalysis, fuse: bool = True):
        self.fuse = fuse
        self.block = block
        self.analysis = analysis
        loops = analysis.enclosing(block.first_op) if block.first_op else ()
        self.common = (*analysis.program_ids, *(loop.counter for loop in loops))
        """What has one value for all ops of the block while it runs once."""
        self.items: list[Item] = []
        self.position: dict[SSAValue, int] = {}
        """Item that makes a value; -1 before all of them. Values from outside of the block are absent."""
        self.repeats: set[Operation] = set()
        self.number: dict[Operation, int] = {}
        self.after: dict[int, list[Operation]] = {}
        self.placed: list[tuple[int, Operation]] = []
        """(item, memory op), writes and reads that have a place."""
        self.reduction_inputs: set[Operation] = set()
        self.rearranged: set[SSAValue] = set()
        """Values that stand on an op of a fused group that rearranges the elements of rows."""

    def run(self) -> None:
        ops = list(self.block.ops)
        last = ops.pop() if ops and _is_terminator(ops[-1]) else None
        if not any(is_tile(v) for op in ops for v in (*op.results, *op.operands)):
            return
        for i, op in enumerate(ops):
            self.number[op] = i
        self.reduction_inputs = reduction_inputs(self.block, ops)
        for op in ops:
            self.place(op)
        if last is not None:
            for v in last.operands:
                self.settle(v)
        self.rebuild(last)

    # What an op is --------------------------------------------------------------------------------------------

    def may_float(self, op: Operation) -> bool:
        if isinstance(op, xt.InitTileOp):
            return op.offset_vector is not None
        if not op.results or not is_tile(op.results[0]):
            return False
        repeats = (*FREE, vector.BroadcastOp, xt.BroadcastOp, xt.TransposeOp)
        names = ("vector.step", *MOVERS)
        if isinstance(op, repeats) or op.name in names or op in self.reduction_inputs:
            return True
        if (shared := shared_row(op)) is not None:
            return not shared and all(self.repeated(v) for v in op.operands)
        if isinstance(op, COUNTING):
            return counts(op)
        if isinstance(op, xt.LoadTileOp):
            return all(use.operation.parent is self.block for r in op.results for use in r.uses)
        return False

    # Positions ------------------------------------------------------------------------------------------------

    def repeated(self, value: SSAValue) -> bool:
        return isinstance(value, OpResult) and value.op in self.repeats

    def earliest(self, value: SSAValue, local: bool) -> int:
        """First item at which a value may be used; `local`: by the same row."""
        if self.repeated(value):
            assert isinstance(value, OpResult)
            local = local and not is_mover(value.op)
            return max((self.earliest(v, local) for v in value.op.operands), default=0)
        at = self.position.get(value, -1)
        if at < 0:
            return 0
        item = self.items[at]
        inside = local and item.rows > 0 and item.kind == "rows" and is_tile(value)
        return at if inside else at + 1

    def is_rearranged(self, value: SSAValue) -> bool:
        if value in self.rearranged or not self.repeated(value):
            return value in self.rearranged
        assert isinstance(value, OpResult)
        return any(map(self.is_rearranged, value.op.operands))

    def loads_under(
        self, values: Sequence[SSAValue], moved: bool = False
    ) -> Iterator[tuple[Operation, bool]]:
        """Rematerialized loads that values are computed from, and whether at other elements."""
        for value in values:
            if not self.repeated(value):
                continue
            assert isinstance(value, OpResult)
            op = value.op
            if isinstance(op, LOADS):
                yield op, moved or len(op.results) > 1 or isinstance(op, xt.LoadGatherOp)
            yield from self.loads_under(op.operands, moved or moves(op))

    # Memory ---------------------------------------------------------------------------------------------------

    def conflict(self, a: Operation, b: Operation) -> bool:
        """May two memory ops, one of them a write, touch the same element?"""
        x, y = self.access(a), self.access(b)
        if x is None or y is None:
            return True
        return self.analysis.may_overlap(x, y, common=self.common)

    def access(self, op: Operation) -> Access | None:
        return self.analysis.find(op)

    def same_tile(self, a: Operation, b: Operation) -> bool:
        """Do two block accesses address the same tile, element by element?"""
        x, y = self.access(a), self.access(b)
        return x is not None and y is not None and same_tile(x, y)

    def in_place(self, load: Operation, write: Operation, moved: bool) -> bool:
        """May a fused group read a load at the elements that it computes while it writes?"""
        return not self.conflict(load, write) or (not moved and self.same_tile(load, write))

    def load_span(self, load: Operation, moved: bool, first: int = 0) -> tuple[int, float]:
        """The first item, from `first`, and the last in which a rematerialized load may be evaluated."""
        mine, last = self.number[load], inf
        for item, other in self.placed:
            before = self.number.get(other, -1) < mine
            outside = item < first if before else item > last
            if outside or not may_write(other) or not self.conflict(load, other):
                continue
            if before:
                first = item + 1
            else:
                inside = load in self.items[item].ops and self.in_place(load, other, moved)
                last = min(last, item if inside else item - 1)
        return first, last

    def first_place(self, op: Operation, first: int) -> int:
        """The first item, from `first`, into which a memory op may be put, before all later items."""
        for item, other in self.placed:
            if (
                item < first
                or not (may_write(op) or may_write(other))
                or not self.conflict(op, other)
            ):
                continue
            inside = not may_write(other) and self.in_place(
                other, op, other in self.items[item].moved
            )
            first = max(first, item if inside else item + 1)
        return first

    # Placing --------------------------------------------------------------------------------------------------

    def place(self, op: Operation) -> None:
        tiles = any(is_tile(v) for v in (*op.results, *op.operands))
        silent = not op.results and not isinstance(op, WRITES)
        structural = bool(op.regions) or isinstance(op, ContractOp | PackOp) or not tiles or silent
        if not tiles and is_side_effect_free(op) and not op.regions:
            self.scalar(op)
        elif not op.regions and isinstance(op, xt.InitTileOp):
            self.repeats.add(op)
        elif structural or (
            op.results and not is_tile(op.results[0]) and not isinstance(op, WRITES)
        ):
            self.alone(op)
        elif self.may_float(op):
            self.repeats.add(op)
        else:
            self.join(op)

    def scalar(self, op: Operation) -> None:
        at = max((self.position.get(v, -1) for v in op.operands), default=-1)
        for r in op.results:
            self.position[r] = at
        self.after.setdefault(at, []).append(op)

    def alone(self, op: Operation) -> None:
        """An op that stays in program order with everything before it."""
        for inner in op.walk():
            for v in inner.operands:
                self.settle(v)
        for inner in op.walk():
            if may_write(inner):
                self.pin_loads(inner, self.number[op])
        self.items.append(Item(0, "op", [op]))
        at = len(self.items) - 1
        for r in op.results:
            self.position[r] = at
        for inner in op.walk():
            if self.access(inner) is not None or may_write(inner) or may_read(inner):
                self.placed.append((at, inner))
                self.number.setdefault(inner, self.number[op])

    def settle(self, value: SSAValue) -> None:
        """A value is needed outside of fused groups: loads under it must have a place."""
        for load, _ in list(self.loads_under([value])):
            self.pin(load)

    def pin(self, load: Operation) -> None:
        if load not in self.repeats:
            return
        self.repeats.discard(load)
        for at, item in enumerate(self.items):
            if load in item.ops:
                if (item.rows, item.kind) != self.group_of(load):
                    # Read through a transpose or a repetition: the load's rows are not the fused group's.
                    self.insert(at, Item(*self.group_of(load), [load]))
                    self.placed.append((at, load))
                for r in load.results:
                    self.position[r] = at
                return
        self.join(load)

    def insert(self, at: int, item: Item) -> None:
        """Put an item before item `at`, whose number and all later ones grow."""
        self.items.insert(at, item)
        self.placed = [(i + (i >= at), op) for i, op in self.placed]
        self.position = {v: i + (i >= at) for v, i in self.position.items()}
        self.after = {i + (i >= at): ops for i, ops in self.after.items()}

    def pin_loads(self, write: Operation, number: int) -> None:
        """Loads before a write that is about to be placed, still to be used after it, are done now."""
        for load in [op for op in self.repeats if isinstance(op, LOADS)]:
            if self.number[load] < number:
                later = any(self.number.get(user, -1) > number for user in self.final_users(load))
                if later and self.conflict(load, write):
                    self.pin(load)

    def final_users(self, op: Operation) -> Iterator[Operation]:
        """Users of an op, through rematerialized ops."""
        for r in op.results:
            for use in r.uses:
                user = self.block.find_ancestor_op_in_block(use.operation)
                if user is None:
                    continue
                if user in self.repeats or user in self.reduction_inputs:
                    yield from self.final_users(user)
                else:
                    yield user

    def group_of(self, op: Operation) -> tuple[int, str]:
        """Rows and kind of the fused group that an op belongs to."""
        if isinstance(op, xt.AtomicRmwOp):
            return rows_of(op.value.type), "atomic"
        if isinstance(op, xt.ReductionOp) and not is_local_reduction(op):
            return rows_of(op.source.type), "down"
        values = op.results if is_mover(op) else (*op.results, *op.operands)
        return max(rows_of(v.type) for v in values if is_tile(v)), "rows"

    def join(self, op: Operation) -> None:
        rows, kind = self.group_of(op)
        if may_write(op):
            self.pin_loads(op, self.number[op])
            for load, moved in list(self.loads_under(op.operands)):
                if not self.in_place(load, op, moved):
                    self.pin(load)
        # What is rearranged twice waits in memory in between: it would be computed for each way that leads there, and
        # ways double with every step of a Fourier transform, a sort or a running sum.
        again = any(map(self.is_rearranged, op.operands))
        if again or moves(op):
            self.rearranged.update(op.results)
        local = kind == "rows" and not is_mover(op) and not (again and moves(op))
        first = max((self.earliest(v, local) for v in op.operands), default=0)
        loads = list(self.loads_under(op.operands, moves(op)))
        at = -1
        if kind != "atomic" and self.fuse:
            start = self.first_place(op, first) if isinstance(op, WRITES + LOADS) else first
            end = len(self.items) - 1
            for load, moved in loads:
                start, last = self.load_span(load, moved, start)
                end = int(min(end, last))
            fits = (
                i
                for i in range(start, end + 1)
                if self.items[i].rows == rows and self.items[i].kind == kind
            )
            at = next(fits, -1)
        if at < 0:
            for load, moved in loads:
                if self.load_span(load, moved, len(self.items))[1] < len(self.items):
                    self.pin(load)
            # What later rows share comes before those that are made already: they need not wait for it in memory.
            spans = (self.load_span(load, moved, first) for load, moved in loads)
            ahead = shared_row(op) and all(low <= first <= high for low, high in spans)
            at = first if ahead else len(self.items)
            self.insert(at, Item(rows, kind))
        self.adopt(loads, at)
        self.items[at].ops.append(op)
        for r in op.results:
            self.position[r] = at
        if isinstance(op, WRITES + LOADS):
            self.placed.append((at, op))

    def adopt(self, loads: Iterable[tuple[Operation, bool]], at: int) -> None:
        """Note the rematerialized loads that a fused group now evaluates."""
        item = self.items[at]
        for load, moved in loads:
            if load not in item.ops:
                item.ops.append(load)
                self.placed.append((at, load))
            if moved:
                item.moved.add(load)

    # Building -------------------------------------------------------------------------------------------------

    def rebuild(self, last: Operation | None) -> None:
        """Put the block together anew, with one fused group per item."""
        free = [op for op in self.number if op in self.repeats and not isinstance(op, LOADS)]
        for op in list(self.block.ops):
            op.detach()
        # Rematerialized ops that no load stands under stay outside of fused groups, after what they are made of.
        order: list[Operation] = []
        for op in free:
            at = max((self.last_position(v) for v in op.operands), default=-1)
            self.after.setdefault(at, []).append(op)
        for at in range(-1, len(self.items)):
            if at >= 0:
                item = self.items[at]
                if item.rows == 0:
                    order.append(item.ops[0])
                else:
                    order.append(self.build_group(item, at))
            order += sorted(self.after.get(at, []), key=lambda o: self.number[o])
        for op in order:
            self.block.add_op(op)
        if last is not None:
            self.block.add_op(last)
        self.close(order)

    def last_position(self, value: SSAValue) -> int:
        if self.repeated(value):
            assert isinstance(value, OpResult)
            return max((self.last_position(v) for v in value.op.operands), default=-1)
        return self.position.get(value, -1)

    def build_group(self, item: Item, at: int) -> FusedOp:
        """A fused group without results; `close` adds them when all uses are known."""
        body = Block()
        members = [
            op
            for op in item.ops
            if op not in self.repeats and all(self.position.get(r, at) == at for r in op.results)
        ]
        copies: dict[SSAValue, SSAValue] = {}
        for op in members:
            for i, v in enumerate(op.operands):
                copy = self.copy_repeats(v, body, copies)
                if copy is not v:
                    op.operands[i] = copy
            body.add_op(op)
        return FusedOp(Region(body), [])

    def copy_repeats(
        self, value: SSAValue, body: Block, copies: dict[SSAValue, SSAValue]
    ) -> SSAValue:
        """The value inside a fused group: rematerialized ops over loads are repeated there."""
        if value in copies:
            return copies[value]
        if not self.repeated(value) or not self.depends(value):
            return value
        assert isinstance(value, OpResult)
        mapping = {v: self.copy_repeats(v, body, copies) for v in value.op.operands}
        new = value.op.clone({k: v for k, v in mapping.items() if k is not v})
        body.add_op(new)
        for old, result in zip(value.op.results, new.results, strict=True):
            copies[old] = result
        return copies[value]

    def depends(self, value: SSAValue) -> bool:
        """Does a rematerialized value come from a load or from a value that has a place?"""
        assert isinstance(value, OpResult)
        if isinstance(value.op, LOADS):
            return True
        return any(
            self.depends(v) if self.repeated(v) else is_tile(v) and self.position.get(v, -1) >= 0
            for v in value.op.operands
        )

    def close(self, order: list[Operation]) -> None:
        """Drop rematerialized ops that nobody needs any more, and give fused groups their results."""
        for op in reversed(list(self.repeats)):
            if op.parent is None and all(r.first_use is None for r in op.results):
                op.erase()
        for op in sorted(self.repeats, key=lambda o: -self.number[o]):
            # Users come after what they use, so one pass from the end sees every op without users.
            if op.parent is self.block and all(r.first_use is None for r in op.results):
                Rewriter.erase_op(op)
                self.repeats.discard(op)
        for op in order:
            if not isinstance(op, FusedOp):
                continue
            body = op.body.block
            out: list[SSAValue] = []
            for inner in body.ops:
                for r in inner.results:
                    if is_tile(r) and any(not body.is_ancestor(use.operation) for use in r.uses):
                        out.append(r)
            new = FusedOp(Region(Block()), [v.type for v in out])
            for value, result in zip(out, new.values, strict=True):
                value.replace_uses_with_if(result, lambda u: not body.is_ancestor(u.operation))  # noqa: B023
            body.add_op(YieldOp(out))
            region = op.body
            new.body.detach_block(new.body.block)
            for block in list(region.blocks):
                region.detach_block(block)
                new.body.add_block(block)
            parent = op.parent
            assert parent is not None
            parent.insert_op_before(new, op)
            Rewriter.erase_op(op)


def _is_terminator(op: Operation) -> bool:
    return isinstance(op, scf.YieldOp | scf.ConditionOp | gpu.ReturnOp | YieldOp)
