"""What a fused group does, level by level: its roots, and which values wait in buffers for a later level."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    IndexType,
    UnrealizedConversionCastOp,
    VectorType,
    bf16,
    f32,
)
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import ScatteredTile, Tile, element_of, itemsize, rows_cols
from tilewright.diagnostics import unsupported
from tilewright.dialects import xetile as xt
from tilewright.dialects.fused import FusedOp
from tilewright.frozen import field, record
from tilewright.targets.cpu.evaluate import Evaluator, Position
from tilewright.targets.cpu.memory import Buffer
from tilewright.targets.cpu.positions import Columns, parts_of, run_of
from tilewright.targets.cpu.reductions import narrow_extreme
from tilewright.uarch.cpu import Caches

STORES = (xt.StoreTileOp, xt.StoreScatterOp)
LOADS = (xt.LoadTileOp, xt.LoadGatherOp)
CHEAP = (
    arith.ConstantOp,
    vector.BroadcastOp,
    xt.BroadcastOp,
    UnrealizedConversionCastOp,
    xt.ConvertLayoutOp,
)
CASTS = (arith.ExtFOp, arith.ExtSIOp, arith.ExtUIOp, arith.IndexCastOp)

SINGLE = (arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.SelectOp)
AGAIN = 4
"""Instructions beyond which a value waits: to write and to read it takes three, and room in the first cache."""
NEAR_BYTES = 8 << 10
"""A row up to this size waits in the first cache, of which two threads of a core have a half each."""
ROW_BLOCK_BYTES = 16 << 10
"""Kept values of a block of rows stay in the first cache, beside the rows that they are made of."""


@record
class Root:
    """Something a fused group must produce: a store, a reduction along rows, or a value to be kept in a buffer."""

    op: Operation | None
    value: SSAValue
    level: int
    buffer: Buffer | None = None
    """Of what waits for a later level: given when it is known how many of its rows must be there."""
    kind: str = ""
    """`store`, `reduce` or `keep`."""


@record
class FusedPlan:
    """What a fused group does, level by level."""

    rows: int
    levels: int = 1
    roots: list[Root] = field(default_factory=list[Root])

    def of(self, level: int, columns: bool) -> list[Root]:
        """Roots of a level: the columns, or the rest."""
        return [
            r
            for r in self.roots
            if r.level == level
            and (rows_cols(r.value.type)[1] == 1 and r.kind != "reduce") == columns
        ]

    def kept_below(self, level: int) -> set[SSAValue]:
        """What roots of a level find in buffers."""
        return {r.value for r in self.roots if r.kind == "keep" and r.level < level}


def is_row_reduction(op: Operation) -> bool:
    """A full reduction along rows, of more than one column."""
    return (
        isinstance(op, xt.ReductionOp)
        and op.reduction_size is None
        and op.dims == (1,)
        and rows_cols(op.source.type)[1] > 1
    )


def is_identity_reduction(op: Operation) -> bool:
    """A reduction of dimensions that have one element."""
    if not isinstance(op, xt.ReductionOp):
        return False
    shape = rows_cols(op.source.type)
    return all((op.reduction_size or shape[d]) == 1 for d in op.dims)


class FusedPlanner:
    """Plans one fused group. `scratch(type)` gives a buffer for a value; `destinations` are those of the results;
    `bytes_per_word`: of what atomics change at once; `operand_bytes`: of what the launch multiplies."""

    def __init__(
        self,
        e: Evaluator,
        fused: FusedOp,
        destinations: Sequence[Buffer | None],
        scratch: Callable[[Attribute], Buffer],
        bytes_per_vector: int,
        bytes_per_word: int,
        overlap: bool,
        operand_bytes: Idx = 0,
    ):
        self.e = e
        self.b: Builder = e.b
        self.fused = fused
        self.destinations = destinations
        self.scratch = scratch
        self.vector_bytes = bytes_per_vector
        self.word_bytes = bytes_per_word
        self.overlap = overlap
        self.operand_bytes = operand_bytes
        self.block = fused.body.block
        self.results: dict[SSAValue, Buffer | None] = {}
        """Results by value, with the buffers that they go to."""
        self.levels: dict[SSAValue, int] = {}
        self.kept: set[SSAValue] = set()
        self.loaded: set[SSAValue | None] = set()
        """Arrays that the fused group reads."""
        self.written: set[SSAValue | None] = set()
        """Arrays that the fused group writes."""
        self.in_place = False
        """Is a result written over a value that the fused group reads?"""
        self.ahead: list[tuple[Tile, int, bool]] = []
        """What the level being emitted prefetches."""

    def buffer_of(self, value: SSAValue) -> Buffer:
        """Where a result goes; scratch memory for what nobody outside wants."""
        return self.results.get(value) or self.scratch(value.type)

    def level(self, value: SSAValue) -> int:
        return self.levels.get(self.e.values.real(value), 0)

    def plan(self, ops: list[Operation]) -> FusedPlan:
        rows = 1
        stored: set[SSAValue] = set()
        for op in ops:
            for value in (op.operands[0],) if isinstance(op, STORES) else ():
                rows = max(rows, rows_cols(value.type)[0])
            if is_row_reduction(op):
                rows = max(rows, rows_cols(op.operands[0].type)[0])
            if isinstance(op, STORES):
                stored.add(op.operands[1])
        for value in self.results:
            rows = max(rows, rows_cols(value.type)[0])
        plan = FusedPlan(rows)
        self.loaded = {self.base_of(op.tile) for op in ops if isinstance(op, xt.LoadTileOp)}
        self.written = {self.base_of(t) for t in stored}
        for op in ops:
            level = max((self.level(v) for v in self.inputs(op)), default=0)
            if is_row_reduction(op):
                level += 1
            for result in op.results:
                self.levels[result] = level
            if isinstance(op, STORES):
                plan.roots.append(Root(op, op.operands[0], level, kind="store"))
            elif is_row_reduction(op):
                result = op.results[0]
                buffer = self.results.get(result) or self.scratch(result.type)
                self.kept.add(result)
                plan.roots.append(Root(op, self.reduced_from(op), level - 1, buffer, "reduce"))
        for value, buffer in self.results.items():
            if value in self.kept or buffer is None:
                continue
            real = self.e.values.real(value)
            existing = self.e.values.buffers.get(real)
            if existing is buffer:
                continue
            # Rows are written one by one: a buffer of fewer rows than the fused group's would be overrun.
            if rows_cols(value.type)[0] != rows:
                what = value.op.name if isinstance(value, OpResult) else "an argument"
                raise unsupported(
                    value,
                    f"{what} on tiles is not supported by the cpu target",
                    hint=f"it makes {value.type} of {rows} rows; rows of tiles stay rows here",
                )
            plan.roots.append(Root(None, value, self.level(value), buffer, "keep"))
            if isinstance(value, OpResult):
                self.kept.add(value)
        self.settle_in_place(plan)
        # Values that a later level needs again.
        for root in list(plan.roots):
            self.keep_crossing(root.value, root.level, plan, set())
            if isinstance(root.op, STORES):  # its mask, and where each element goes
                for v in self.inputs(root.op)[1:]:
                    self.keep_crossing(v, root.level, plan, set())
        plan.levels = 1 + max((r.level for r in plan.roots), default=0)
        order = {"reduce": 0, "keep": 1, "store": 2}
        plan.roots.sort(key=lambda r: (r.level, order[r.kind]))
        return plan

    def reduced_from(self, op: Operation) -> SSAValue:
        """What a reduction along rows goes through: values before they are widened, unless they wait widened anyway."""
        assert isinstance(op, xt.ReductionOp)
        narrow = narrow_extreme(op)
        if narrow is None or (self.near(op.source) and not op.source.has_one_use()):
            return op.source
        return narrow

    def settle_in_place(self, plan: FusedPlan) -> None:
        """Stores to what the fused group reads come last where roots of other widths, with loops of their own, run
        beside them: these read first, and what the store needs of its own tile is kept."""
        last = max((r.level for r in plan.roots), default=0)
        for root in plan.roots:
            if root.kind != "store" or self.base_of(root.op.operands[1]) not in self.loaded:  # pyright: ignore
                continue
            width = rows_cols(root.value.type)[1]
            others = (r for r in plan.roots if r.level == root.level)
            if any(rows_cols(r.value.type)[1] != width for r in others):
                root.level = last + 1

    def base_of(self, tile: SSAValue) -> SSAValue | None:
        """The array of a tile. Other arrays that a fused group writes do not overlap it (see
        `passes/row_fusion.py`).
        """
        return self.e.values.tile(tile).base

    def cheap(self, value: SSAValue) -> bool:
        """Is computing the value again no dearer than reading it back?"""
        return self.again(value, {}) <= AGAIN

    def again(self, value: SSAValue, known: dict[SSAValue, float]) -> float:
        """Instructions that compute a vector of a value again, its loads among them."""
        value = self.e.values.real(value)
        if value not in known:  # once, or as often as paths lead to it
            known[value] = self._again(value, known)
        return known[value]

    def _again(self, value: SSAValue, known: dict[SSAValue, float]) -> float:
        if value in self.e.values.buffers:
            return inf if self.e.values.buffers[value] in self.destinations else 1
        if not isinstance(value, OpResult) or value.op.parent is not self.block:
            return 0
        op = value.op
        if isinstance(op, xt.LoadTileOp):
            return inf if self.base_of(op.tile) in self.written else 1
        if isinstance(op, arith.ExtFOp):
            own = inf if self.near(value) else 2
        elif isinstance(op, CHEAP + CASTS) or op.name in ("vector.step", "vector.shape_cast"):
            own = 0
        elif isinstance(op, SINGLE) and rows_cols(value.type)[0] > 1 and not self.near(value):
            # Of what is chosen by position there is nothing left between edges, where a mask's own ops cost too much.
            own = 0 if isinstance(op, arith.SelectOp) else 1
        else:
            return inf
        wide = [v for v in op.operands if isinstance(v.type, VectorType)]
        if isinstance(op, SINGLE):  # of a row that is one element repeated, the element waits
            wide = [v for v in wide if not self.e.same_along_row(v)]
        return own + sum(self.again(v, known) for v in wide)

    def near(self, value: SSAValue) -> bool:
        """Does a row of a value wait in the first cache, and no other row share it?"""
        rows, cols = rows_cols(value.type)
        return rows > 1 and 1 < cols <= NEAR_BYTES // itemsize(element_of(value.type))

    def keep_crossing(
        self, value: SSAValue, level: int, plan: FusedPlan, seen: set[SSAValue]
    ) -> None:
        """Give buffers to values below `level` that a root of `level` reaches and that are dear to compute again."""
        value = self.e.values.real(value)
        if value in seen or not isinstance(value.type, VectorType):
            return
        seen.add(value)
        if (
            value in self.kept
            or not isinstance(value, OpResult)
            or value.op.parent is not self.block
        ):
            return
        column = rows_cols(value.type)[1] == 1 and plan.rows > 1
        mine = self.level(value)
        wide = any(
            rows_cols(v.type)[1] > 1 for v in value.op.operands if isinstance(v.type, VectorType)
        )
        # Below a cast of the shape there may be values of other rows than the fused group's, which it cannot keep row
        # by row. Of a row that is one element repeated, the element waits.
        fits = rows_cols(value.type)[0] == plan.rows and not self.e.same_along_row(value)
        if fits and (mine < level or (column and not wide)) and not self.cheap(value):
            is_column_use = column and mine <= level
            if mine < level or is_column_use:
                self.kept.add(value)
                plan.roots.append(Root(None, value, mine, kind="keep"))
                level = mine
        for operand in self.inputs(value.op):
            self.keep_crossing(operand, level, plan, seen)

    def inputs(self, op: Operation) -> list[SSAValue]:
        """Tile-shaped values that an op is computed from, the offsets of a scattered tile among them."""
        found: list[SSAValue] = []
        for v in op.operands:
            if isinstance(v.type, VectorType):
                found.append(v)
            elif isinstance(v.type, xt.TileType):
                tile = self.e.values.tiles.get(self.e.values.real(v))
                found += [tile.offsets] if isinstance(tile, ScatteredTile) else []
        return found

    def lanes(self, roots: Sequence[Root]) -> int:
        """Elements per step: as many as fit a register of the widest type that matters, and twice as many where what is
        loaded or stored is half as wide, so that memory is read and written by whole registers."""
        sizes, accessed = [1], [8]
        for value in self.reached(roots, places=False):
            element = element_of(value.type)
            if not isinstance(element, IndexType):
                size = itemsize(element)
                narrow_float = isinstance(element, AnyFloat) and size < 4
                sizes.append(4 if narrow_float else size)
                if (
                    narrow_float
                    and isinstance(value, OpResult)
                    and isinstance(value.op, xt.LoadTileOp)
                ):
                    accessed.append(size)
        accessed += [itemsize(element_of(r.value.type)) for r in roots if r.kind == "store"]
        widest = max(sizes)
        lanes = max(1, self.vector_bytes // max(widest, 4 if widest > 2 else widest))
        return 2 * lanes if lanes * min(accessed) < self.vector_bytes else lanes

    def pairs(self, roots: Sequence[Root]) -> bool:
        """Do roots reduce rows of bf16, or store as bf16 what several of them give, which is all that they read?"""
        reduces = all(r.kind == "reduce" and element_of(r.value.type) == f32 for r in roots)
        stores = [r.op for r in roots if isinstance(r.op, xt.StoreTileOp) and r.op.mask is None]
        narrow = len(stores) == len(roots) and all(
            r.value.type.element_type == bf16 for r in stores
        )
        if not reduces and not narrow:
            return False
        reached = [v for v in self.reached(roots) if not self.e.same_along_row(v)]
        if any(v in self.e.values.buffers and rows_cols(v.type)[1] > 1 for v in reached):
            return False
        read = [v for v in reached if isinstance(v, OpResult) and isinstance(v.op, LOADS)]
        if narrow and not all(isinstance(u.operation, arith.ExtFOp) for v in read for u in v.uses):
            return False
        return len(read) > (2 * len(roots) if narrow else 0) and all(
            element_of(v.type) == bf16 for v in read
        )

    def accessed(self, roots: list[Root], row: Idx, width: int) -> list[tuple[Tile, Idx]]:
        """The tiles that are loaded and stored along a row, and on which of their rows."""
        values = self.e.values
        tiles: list[tuple[Tile | ScatteredTile, Idx]] = []
        for value in self.reached(roots):
            if isinstance(value, OpResult) and isinstance(value.op, xt.LoadTileOp):
                if value in values.buffers or rows_cols(value.type)[1] != width:
                    continue
                at = 0 if rows_cols(value.type)[0] == 1 else row
                tiles.append((values.tile(value.op.tile), at))
        for root in roots:
            if isinstance(root.op, xt.StoreTileOp | xt.AtomicRmwOp):
                tiles.append((values.tile(root.op.tile), row))
        return [(tile, at) for tile, at in tiles if isinstance(tile, Tile)]

    def many_rows(self, roots: list[Root], row: Idx, width: int) -> bool:
        """Are more than four rows of an array read together? Then to find out once whether all are there is
        less than to know of each."""
        rows: dict[SSAValue | None, set[tuple[Idx, ...]]] = {}
        for tile, at in self.accessed(roots, row, width):
            rows.setdefault(tile.base, set()).add((at, tile.offsets[0], tile.extents[0]))
        return any(len(each) > 4 for each in rows.values())

    def gathered(
        self, roots: list[Root], row: Idx, width: int
    ) -> Iterator[tuple[Tile, Idx, Columns]]:
        """Likewise the runs of memory that are gathered, or scattered to, and between which columns they are."""
        e = self.e
        reached = [v for v in self.reached(roots) if v not in e.values.buffers]
        ops = [v.op for v in reached if isinstance(v, OpResult)]
        for op in (*ops, *(root.op for root in roots)):
            if isinstance(op, xt.LoadGatherOp | xt.StoreScatterOp | xt.AtomicRmwOp):
                tile = e.values.tile(op.tile)
                if not isinstance(tile, ScatteredTile) or rows_cols(tile.offsets.type)[1] != width:
                    continue
                shape, within = rows_cols(tile.offsets.type), Columns()
                run = run_of(e, tile, 0 if shape[0] == 1 else row, shape, within)
                if run is not None:
                    e.runs[op] = True
                    yield run, 0, within

    def main_end(self, roots: list[Root], row: Idx, width: int) -> Idx:
        """Columns from 0 on that lie inside every matrix on this row (may be negative); none where 0 does not."""
        begin, end = self.inside_all(roots, row, width)
        self.e.whole = set()
        return end if begin == 0 else self.b.select(self.b.cmp("sgt", begin, 0), 0, end)

    def inside_all(self, roots: list[Root], row: Idx, width: int) -> tuple[Idx, Idx]:
        """The columns that lie inside every matrix on this row: from which one on, and before which one. What is read
        through ops that move elements does so as a whole (`Evaluator.whole`)."""
        b, e = self.b, self.e
        begin: Idx = 0
        end: Idx = width
        e.ends, e.runs, e.whole = set(), {}, set()
        rows: dict[Idx, tuple[Idx, Idx]] = {}
        whole = ((tile, at, Columns()) for tile, at in self.accessed(roots, row, width))
        for tile, at, within in (*whole, *self.gathered(roots, row, width)):
            limit = tile.limit(b, 1)
            begin = b.max(begin, within.begin)
            end = end if within.end is None else b.min(end, within.end)
            e.ends.add(limit)
            first, last = rows.get(at, (0, tile.limit(b, 0)))
            if not b.is_nonnegative(b.plus(tile.offsets[0], at)):
                first = b.max(first, b.minus(0, tile.offsets[0]))
            rows[at] = first, b.min(last, tile.limit(b, 0))
            if not b.is_nonnegative(tile.offsets[1]):
                begin = b.max(begin, b.minus(0, tile.offsets[1]))
            end = b.min(end, limit)
        e.there = None
        for at, (first, last) in rows.items():
            ok = b.both(b.cmp("sge", at, first) if first != 0 else None, b.cmp("slt", at, last))
            assert ok is not None
            e.there = b.both(e.there, ok)
            end = b.select(ok, end, 0)
        for op in e.runs:
            assert isinstance(op, xt.LoadGatherOp | xt.StoreScatterOp | xt.AtomicRmwOp)
            parts = [] if op.mask is None else [*parts_of(e, op.mask, row)]
            e.runs[op] = any(limit is on is None for limit, on in parts)
            for limit, on in parts:
                if limit is not None:
                    e.ends.add(limit)
                    end = b.min(end, limit)
                elif on is not None:
                    end = b.select(on, end, 0)
        for value, tile in self.moved_about(roots, width):
            e.whole.add(value)
            for axis in (0, 1):
                ok = b.cmp("sge", tile.limit(b, axis), tile.shape[axis])
                if not b.is_nonnegative(tile.offsets[axis]):
                    ok = b.both(ok, b.cmp("sge", tile.offsets[axis], 0))
                assert ok is not None
                end = b.select(ok, end, 0)
        return begin, end

    def gathers(self, values: Sequence[SSAValue]) -> list[ScatteredTile]:
        """The tiles that some values are gathered from, where their rows may lie anywhere."""
        reached = self.reached([Root(None, value, 0) for value in values])
        ops = [v.op for v in reached if isinstance(v, OpResult) and v not in self.e.values.buffers]
        tiles = [self.e.values.tile(op.tile) for op in ops if isinstance(op, xt.LoadGatherOp)]
        return [
            t for t in tiles if isinstance(t, ScatteredTile) and rows_cols(t.offsets.type)[0] > 1
        ]

    def fetch_run(self, tile: ScatteredTile, row: Idx, col: Idx, count: int) -> None:
        """Fetches elements of a row that is a run of memory, if it is known to be one."""
        b, e = self.b, self.e
        run = run_of(e, tile, row, rows_cols(tile.offsets.type), Columns())
        if run is not None:
            for first in range(0, count, Caches.line // itemsize(tile.element)):
                b.prefetch(e.address(run, Position(0, b.plus(col, first))))

    def inside_of(self, values: Sequence[SSAValue], row: Idx, width: int) -> tuple[Idx, Idx]:
        """The same of what some values are computed from."""
        return self.inside_all([Root(None, value, 0) for value in values], row, width)

    def moved_about(self, roots: Sequence[Root], width: int) -> Iterator[tuple[SSAValue, Tile]]:
        """Rows that are loaded as others than they are stored in: through ops that move elements along rows."""
        e = self.e
        for value in self.reached(roots):
            if isinstance(value, OpResult) and isinstance(value.op, xt.LoadTileOp):
                columns, tile = rows_cols(value.type)[1], e.values.tile(value.op.tile)
                if value not in e.values.buffers and columns not in (1, width) and not value.index:
                    assert isinstance(tile, Tile)
                    yield value, tile

    def reached(
        self, roots: Sequence[Root], kept: Collection[SSAValue] = (), *, places: bool = True
    ) -> list[SSAValue]:
        """All tile-shaped values that the roots are computed from, up to buffers and what is `kept`; without `places`
        those that only say where elements are gathered are left out."""
        seen: dict[SSAValue, None] = {}
        stack = [r.value for r in roots]
        for r in roots:
            if r.op is not None and r.kind == "store":
                stack += self.inputs(r.op)
        while stack:
            value = self.e.values.real(stack.pop())
            if value in seen or not isinstance(value.type, VectorType):
                continue
            seen[value] = None
            if value in self.e.values.buffers or value in kept or not isinstance(value, OpResult):
                continue
            op = value.op
            gathers = isinstance(op, xt.LoadGatherOp)
            stack.extend(op.operands if gathers and not places else self.inputs(op))
        return list(seen)
