"""What programs add to a small array by atomics is added up by each thread in memory of its own, and then to the array.
So is what else atomics combine: the largest, the smallest, products, bits.

    tw_plan         of each array: how many elements a thread has of its own; 0 where too many for what is added
    tw_sums_begin   a task for each thread: zeros, or what else changes nothing
    tw_workgroup    if a thread has elements of its own { own[at] += value } else { atomic_rmw add value, H[at] }
    tw_sums_end     a task for some elements: H[i] += own of thread 0 + own of thread 1 + ..., by an atomic, for
                    launches of others may add to it

Which arrays these may be, `passes.sums_by_atomics` says. A thread's sums lie behind its scratch memory. Sums of
integers are the same; of floats they are added up in another order, which atomics leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import gcd, prod
from typing import TYPE_CHECKING

from xdsl.dialects import arith, func, gpu
from xdsl.dialects.builtin import (
    AnyFloat,
    IntegerType,
    VectorType,
    bf16,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.atomic_loops import exchange_vector
from tilewright.codegen.builder import Builder, Idx, lane_type
from tilewright.codegen.tiles import ScatteredTile, Tile, itemsize, plain, rows_cols
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.combining import ATOMIC_KINDS, neutral, reduction_of
from tilewright.frozen import frozen
from tilewright.passes.axes import shape_of
from tilewright.passes.sums_by_atomics import sums_by_atomics
from tilewright.targets.cpu.evaluate import Evaluator, Own, Position
from tilewright.targets.cpu.fused_plan import Root
from tilewright.targets.cpu.packing import task_function
from tilewright.targets.cpu.positions import row_of, run_at

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter
    from tilewright.targets.cpu.lower import FunctionContext

    Build = Callable[[tuple[func.FuncOp, Builder], Sequence[Operation]], FunctionContext]

ELEMENTS = (f32, f64, f16, bf16, i32, i64, i16, i8)
FEW = 64
"""Elements that a program loads in the time of an atomic."""
KINDS = frozenset(ATOMIC_KINDS) - {"assign"}
LARGE = 2
"""Elements that all threads have may be one for so many that are added: each is cleared, and added by an atomic."""
MOST_BYTES = 16 << 20
"""Of a thread's elements of an array: more wait for memory as atomics do, and launches have little of it."""
STEP = 1024
"""Elements of a task that adds them to the array."""
PAGE = 4096
PLACE = 8
"""Bytes of where an element is."""


@frozen
class Sums:
    """An array that a kernel adds to, and the atomics that do."""

    source: SSAValue
    ops: Sequence[xt.AtomicRmwOp]

    @property
    def element(self) -> Attribute:
        return plain(self.ops[0].tile_type.element_type)

    @property
    def nothing(self) -> int | float:
        """What changes nothing."""
        return neutral(reduction_of(self.ops[0].kind), self.element)


def sums_of(kernel: gpu.FuncOp) -> list[Sums]:
    """The arrays whose sums threads may have."""
    return [
        Sums(source, ops) for source, ops in sums_by_atomics(kernel, KINDS, ELEMENTS, FEW).items()
    ]


def inits_of(sums: Sequence[Sums]) -> list[Operation]:
    """What reads all that functions must know to tell where the arrays are."""
    owners = [op.tile.owner for each in sums for op in each.ops]
    return [op for op in owners if isinstance(op, Operation)]


def plan_sums(c: FunctionContext, sums: Sequence[Sums]) -> None:
    """Of `tw_plan`: how many elements each thread has of each array, and where."""
    b, own = c.b, 0
    programs = b.times(b.times(c.grid(0), c.grid(1)), c.grid(2))
    threads = c.word(c.layout.threads)
    for i, each in enumerate(sums):
        added = sum(prod(shape_of(op.value) or ()) for op in each.ops)
        c.need(each.source)
        (count,) = c.matrices[each.source].sizes
        pays = b.cmp("sle", b.times(b.times(threads, count), LARGE), b.times(programs, added))
        few = b.cmp("sle", count, MOST_BYTES // itemsize(each.element))
        count = b.select(b.value(arith.AndIOp(pays, few)), count, 0)
        for name, value in (("count", count), ("at", own)):
            b.store(b.idx(value), b.ptr(c.argument, c.layout.of_sums(i, name)))
        own = b.plus(own, b.round_up(b.times(count, itemsize(each.element)), PAGE))
    b.store(b.idx(own), b.ptr(c.argument, c.layout.own))


def _place(c: FunctionContext, i: int, thread: Idx) -> SSAValue:
    """The address of a thread's sums of the i-th array."""
    b, block = c.b, c.layout
    base = b.load(b.ptr(c.argument, block.scratch), mach.ptr)
    end = b.times(b.plus(thread, 1), c.word(block.scratch + 8))
    first = b.minus(end, c.word(block.own))
    return b.ptr(base, b.plus(first, c.word(block.of_sums(i, "at"))))


def own_sums(c: FunctionContext, sums: Sequence[Sums]) -> Mapping[SSAValue, Own]:
    """Of a workgroup: its thread's sums, by the array."""
    found: dict[SSAValue, Own] = {}
    for i, each in enumerate(sums):
        there = c.b.cmp("ne", c.word(c.layout.of_sums(i, "count")), 0)
        found[each.source] = Own(_place(c, i, c.thread), there)
    return found


def add_to_own(
    s: FusedEmitter, op: xt.AtomicRmwOp, tile: Tile | ScatteredTile, own: Own, vector_bytes: int
) -> None:
    """What an atomic adds, to a thread's own sums: vectors at a time, whose places may be the same element."""
    b, e = s.b, s.e
    shape = rows, cols = rows_cols(op.value.type)
    if cols == 1 and isinstance(tile, ScatteredTile):
        _scattered_to_own(e, op, tile, own, Position(0, 0, 0, _lanes(rows, vector_bytes)), rows)
        return
    with b.loop(0, rows, nonempty=True) as i, e.scope():
        if row_of(e, tile, i.iv, shape) is not None:
            s.columns([Root(op, op.value, 0, kind="store")], i.iv, cols, [])
            return
        assert isinstance(tile, ScatteredTile)
        place = Position(i.iv, 0, 1, _lanes(cols, vector_bytes))
        _scattered_to_own(e, op, tile, own, place, cols)


def add_vector(e: Evaluator, op: xt.AtomicRmwOp, place: Position, mask: SSAValue | None) -> None:
    """A vector of a row that is a run of memory, to a thread's own sums."""
    tile, b = e.values.tile(op.tile), e.b
    if isinstance(tile, ScatteredTile):
        run = run_at(e, op, place)
        assert run is not None
        mine, here, on = run
    else:
        mine, here, on = tile, place, None if op.mask is None else e.at(op.mask, place)
    assert tile.base is not None
    mine = replace(mine, pointer=e.values.sums[tile.base].pointer, strides=(0, 1))
    total = b.combine(reduction_of(op.kind), e.load(mine, here, 0), e.at(op.value, place))
    e.store(total, mine, here, b.both(on, mask))


def _lanes(length: int, vector_bytes: int) -> int:
    """Places that are computed at once, where so many elements lie behind one another."""
    return gcd(length, vector_bytes // PLACE)


def _scattered_to_own(
    e: Evaluator, op: xt.AtomicRmwOp, tile: ScatteredTile, own: Own, first: Position, length: int
) -> None:
    """Elements along a row or a column: some places at once, which may be the same element."""
    b, lanes = e.b, first.lanes
    with b.loop(0, length, lanes, nonempty=True) as loop, e.scope():
        place = replace(first, **{"col" if first.axis else "row": loop.iv})
        offsets, on = e.scattered(tile, op.mask, place)
        value = e.at(op.value, place)
        assert e.values.spare is not None
        here, nowhere = (b.value(mach.IntFromPtrOp(p)) for p in (own.pointer, e.values.spare))
        away = b.splat(b.value(arith.SubiOp(nowhere, here)), lanes)
        offsets = b.value(arith.SelectOp(on, offsets, away))
        for lane in range(lanes):
            at, more = (b.extract(v, lane) if lanes > 1 else v for v in (offsets, value))
            pointer = b.ptr(own.pointer, at)
            b.store(b.combine(reduction_of(op.kind), b.load(pointer, tile.element), more), pointer)


def sums_functions(build: Build, sums: Sequence[Sums], vector_bytes: int) -> list[func.FuncOp]:
    """The task functions `tw_sums_begin` and `tw_sums_end`."""
    begin = build(task_function("tw_sums_begin"), [])
    end = build(task_function("tw_sums_end"), inits_of(sums))
    for i, each in enumerate(sums):
        _clear(begin, i, each, vector_bytes)
        _hand_on(end, i, each)
    for c in (begin, end):
        c.b.op(func.ReturnOp())
    return [begin.op, end.op]


def _clear(c: FunctionContext, i: int, sums: Sums, vector_bytes: int) -> None:
    """Nothing is added yet to a thread's sums of the i-th array."""
    b, size = c.b, itemsize(sums.element)
    lanes, first = vector_bytes // size, _place(c, i, b.entry.args[1])
    type = VectorType(sums.element, [lanes])  # pyright: ignore
    nothing = b.constant(type, sums.nothing)
    with b.loop(0, c.word(c.layout.of_sums(i, "count")), lanes) as j:
        b.store(nothing, b.ptr(first, b.times(j.iv, size)))


def _hand_on(c: FunctionContext, i: int, sums: Sums) -> None:
    """Adds some elements of all threads' sums of the i-th array to it, by words where its elements are a run."""
    b, element, op = c.b, sums.element, sums.ops[0]
    size = itemsize(element)
    c.need(sums.source)
    matrix, own = c.matrices[sums.source], _place(c, i, 0)
    count = c.word(c.layout.of_sums(i, "count"))
    shift = b.rem(b.idx(b.value(mach.IntFromPtrOp(matrix.pointer))), c.m.word)
    lanes = c.m.word // size
    first = b.times(b.entry.args[1], STEP)

    def by_words() -> None:
        start = b.minus(first, b.div(shift, size))
        with b.loop(start, b.min(b.plus(start, STEP), count), lanes) as j:
            at = b.times(j.iv, size)
            total = _total(c, sums, b.ptr(own, at), [b.minus(0, j.iv), b.minus(count, j.iv)], lanes)
            exchange_vector(b, op.kind, total, b.ptr(matrix.pointer, at), _differs(b, sums, total))

    def one_by_one() -> None:
        with b.loop(first, b.min(b.plus(first, STEP), count)) as j:
            total = _total(c, sums, b.ptr(own, b.times(j.iv, size)), (), 1)
            with b.when(_differs(b, sums, total)):
                at = b.ptr(matrix.pointer, b.times(b.times(j.iv, matrix.strides[0]), size))
                b.op(mach.AtomicRmwOp(op.kind, total, at))

    if lanes == 1:
        one_by_one()
        return
    run = b.both(b.cmp("eq", matrix.strides[0], 1), b.cmp("eq", b.rem(shift, size), 0))
    assert run is not None
    b.choose(run, by_words, one_by_one)


def _total(
    c: FunctionContext, sums: Sums, own: SSAValue, ends: Sequence[Idx], lanes: int
) -> SSAValue:
    """What all threads have of some elements, of those from one number on and before another, where `ends` has two."""
    b, nothing = c.b, c.b.constant(lane_type(sums.element, lanes), sums.nothing)
    below, inside = (b.mask_first(end, lanes) for end in ends) if ends else (None, None)
    with b.loop(0, c.word(c.layout.threads), carry=[nothing]) as t:
        at = b.ptr(own, b.times(t.iv, c.word(c.layout.scratch + 8)))
        if below is None or inside is None:
            found = b.load(at, nothing.type)
        else:
            ones = b.constant(below.type, 1)
            on = b.both(inside, b.value(arith.XOrIOp(below, ones)))
            assert on is not None
            found = b.value(mach.MaskedLoadOp(at, on, nothing))
        t.out = [b.combine(reduction_of(sums.ops[0].kind), t.carried[0], found)]
    return t.results[0]


def _differs(b: Builder, sums: Sums, total: SSAValue) -> SSAValue:
    """Whether anything was added, by its bits."""
    x, y = total, b.constant(total.type, sums.nothing)
    if isinstance(sums.element, AnyFloat):
        lanes = total.type.get_shape()[0] if isinstance(total.type, VectorType) else 1
        bits = lane_type(IntegerType(8 * itemsize(sums.element)), lanes)
        x, y = (b.value(arith.BitcastOp(v, bits)) for v in (x, y))
    return b.value(arith.CmpiOp(x, y, "ne"))


def _launch(c: FunctionContext, name: str, tasks: Idx) -> None:
    b = c.b
    pool = b.load(b.ptr(c.argument, c.layout.pool), mach.ptr)
    b.call("tw_pool_launch", [pool, b.value(mach.AddressOfOp(name)), c.argument, b.idx(tasks)])


def begin_sums(c: FunctionContext) -> None:
    """Of `tw_run`, before the workgroups."""
    own = c.b.cmp("ne", c.word(c.layout.own), 0)
    _launch(c, "tw_sums_begin", c.b.select(own, c.word(c.layout.threads), 0))


def end_sums(c: FunctionContext, sums: int) -> None:
    """Of `tw_run`, behind the workgroups."""
    counts = [c.word(c.layout.of_sums(i, "count")) for i in range(sums)]
    # The first element may lie anywhere in a word, where tasks begin.
    _launch(c, "tw_sums_end", c.b.ceildiv(c.b.plus(reduce(c.b.max, counts), c.m.word), STEP))
