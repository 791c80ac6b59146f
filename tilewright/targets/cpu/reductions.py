"""Reductions: accumulators in registers along rows, and loops of their own down columns and over runs.

Combination is in any order (DESIGN section 3), so several accumulators hide the latency of one, and lanes fold at the
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import AnyFloat, VectorType, bf16, f16, f32, i1, i16
from xdsl.dialects.utils import FastMathFlag
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.builder import Builder, lane_type
from tilewright.codegen.tiles import element_of, itemsize, rows_cols
from tilewright.diagnostics import unsupported
from tilewright.dialects import xetile as xt
from tilewright.dialects.upstream.combining import combining, neutral
from tilewright.targets.cpu.evaluate import Position

if TYPE_CHECKING:
    from tilewright.targets.cpu.fused import FusedEmitter

GATHERED, FETCHED = 16, 8
"""Registers of sums of gathered rows, so that all lines of a row are read together; rows that are fetched ahead."""
CONTRACT = arith.FastMathFlagsAttr([FastMathFlag.ALLOW_CONTRACT])


def combined(b: Builder, kind: str, x: SSAValue, y: SSAValue) -> SSAValue:
    """One step of a reduction. A product that may be contracted becomes part of its sum, as in a multiply-add."""
    op = combining(kind, x, y)
    if isinstance(op, arith.AddfOp):
        op.properties["fastmath"] = CONTRACT
    return b.value(op)


class Accumulator:
    """A reduction in registers. A mask beside plain compare-and-select of maximumf and minimumf tells where no NaN was:
    AVX-512 compares and keeps it by one instruction.

    `paired`: values take two registers each; one comparison of the two then finds NaN in either, and the mask has half
    the lanes.
    """

    def __init__(self, b: Builder, kind: str, start: SSAValue, paired: bool = False):
        self.b = b
        self.kind = kind
        self.paired = paired
        element = element_of(start.type)
        self.plain = (
            kind
            if not isinstance(element, AnyFloat)
            else {"maximumf": "ogt", "minimumf": "olt"}.get(kind, kind)
        )
        self.values = [start]
        if self.plain != kind:
            lanes = start.type.get_shape()[0] if isinstance(start.type, VectorType) else 1
            self.values.append(b.constant(lane_type(i1, lanes // 2 if paired else lanes), 1))

    def copy(self) -> Accumulator:
        new = copy(self)
        new.values = list(self.values)
        return new

    def take(self, values: list[SSAValue]) -> None:
        """Become the next values of a list."""
        n = len(self.values)
        self.values, values[:n] = values[:n], []

    def add(self, value: SSAValue) -> None:
        b = self.b
        if self.plain == self.kind:
            self.values[0] = combined(b, self.kind, self.values[0], value)
            return
        low, high = value, value
        if self.paired:
            lanes = value.type.get_shape()[0]  # pyright: ignore
            low, high = (b.shuffle(value, value, range(i, i + lanes // 2)) for i in (0, lanes // 2))
        ordered = b.value(arith.CmpfOp(low, high, "ord"))
        self.values[1] = b.value(arith.AndIOp(self.values[1], ordered))
        self._select(value)

    def _select(self, value: SSAValue) -> None:
        b = self.b
        better = b.value(arith.CmpfOp(self.values[0], value, self.plain))
        self.values[0] = b.value(arith.SelectOp(better, self.values[0], value))

    def join(self, other: Accumulator) -> None:
        b = self.b
        if self.plain == self.kind:
            self.values[0] = combined(b, self.kind, self.values[0], other.values[0])
            return
        self.values[1] = b.value(arith.AndIOp(self.values[1], other.values[1]))
        self._select(other.values[0])

    def folded(self) -> SSAValue:
        """All that was added, as one element."""
        b, value = self.b, self.values[0]
        if self.plain == self.kind:
            return fold(b, self.kind, value)
        found = fold(b, self.kind, value, numbers=True)
        return b.value(
            arith.SelectOp(
                fold(b, "and", self.values[1]), found, b.constant(found.type, float("nan"))
            )
        )


class NarrowExtreme(Accumulator):
    """The maximum or minimum as f32, NaN included, of floats of 16 bits as their bits: nothing is widened for it.

    As signed numbers those without a sign are in order, as unsigned ones those with a sign in the reverse one, and NaNs
    are above the infinities. So the largest of both and the smallest unsigned one tell everything.
    """

    KINDS = "maxsi", "maxui", "minui"

    def __init__(self, b: Builder, kind: str, start: SSAValue, paired: bool = False):
        self.b, self.kind, self.paired, self.plain = b, kind, paired, kind
        self.element = element_of(start.type)
        lanes = start.type.get_shape()[0] if isinstance(start.type, VectorType) else 1
        self.values = [b.constant(lane_type(i16, lanes), neutral(k, i16)) for k in self.KINDS]

    def add(self, value: SSAValue) -> None:
        bits = self.b.value(arith.BitcastOp(value, self.values[0].type))
        self._combine([bits] * 3)

    def join(self, other: Accumulator) -> None:
        self._combine(other.values)

    def _combine(self, others: Sequence[SSAValue]) -> None:
        pairs = zip(self.KINDS, self.values, others, strict=True)
        self.values = [self.b.combine(kind, x, y) for kind, x, y in pairs]

    def folded(self) -> SSAValue:
        """In each lane the result as a signed number in the order of the floats, in which NaNs of one sign win as they
        are; then that of all."""
        b, (signed, largest, smallest) = self.b, self.values
        most = self.kind == "maximumf"

        def where(kind: str, x: SSAValue, limit: int, yes: SSAValue, no: SSAValue) -> SSAValue:
            on = b.value(arith.CmpiOp(x, b.constant(x.type, limit), kind))
            return b.value(arith.SelectOp(on, yes, no))

        def ordered(x: SSAValue) -> SSAValue:
            sign = b.value(arith.ShRSIOp(x, b.constant(x.type, 15)))
            turned = b.value(arith.AndIOp(sign, b.constant(x.type, 0x7FFF)))
            return b.value(arith.XOrIOp(x, turned))

        # Of what has no sign the largest, else of what has one, which as unsigned numbers are the largest.
        kept = (signed, smallest, signed) if most else (largest, largest, smallest)
        key = ordered(where("slt", kept[0], 0, *kept[1:]))
        infinity = 0x7F80 if self.element == bf16 else 0x7C00
        nan = b.constant(key.type, 0x7FFF if most else -0x8000)
        other = ("ugt", largest, infinity - 0x8000) if most else ("sgt", signed, infinity)
        key = where(*other, nan, key)
        bits = ordered(fold(b, "maxsi" if most else "minsi", key))
        return b.value(arith.ExtFOp(b.value(arith.BitcastOp(bits, self.element)), f32))


def narrow_extreme(op: xt.ReductionOp) -> SSAValue | None:
    """The floats of 16 bits whose widened maximum or minimum an op gives, if it does."""
    widened = op.source.owner
    if op.kind not in ("maximumf", "minimumf") or not isinstance(widened, arith.ExtFOp):
        return None
    if widened.parent is not op.parent:
        return None
    element = element_of(widened.input.type)
    return widened.input if element in (bf16, f16) and element_of(op.source.type) == f32 else None


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


def emit_reductions(s: FusedEmitter, ops: Sequence[Operation]) -> None:
    """Reductions down columns, of both dimensions, or of runs: one accumulator register per result element or vector.

    Loops over the results; for each, over the elements that it combines.
    """
    groups: dict[tuple[tuple[int, int], tuple[int, ...], int | None], list[xt.ReductionOp]] = {}
    for op in ops:
        assert isinstance(op, xt.ReductionOp)
        groups.setdefault((rows_cols(op.source.type), op.dims, op.reduction_size), []).append(op)
    for (shape, dims, size), group in groups.items():
        for op in group:
            if any(d not in (0, 1) for d in dims) or len(op.source.type.get_shape()) != 2:  # pyright: ignore
                raise unsupported(
                    op, "reductions of more than two dimensions are not supported by the cpu target"
                )
        run = [(size or shape[d]) if d in dims else 1 for d in (0, 1)]
        width = s.vector_bytes // max(4, max(itemsize(element_of(op.source.type)) for op in group))
        reduce = _reduce_runs if run[1] > 1 else _reduce_down
        reduce(s, group, shape, run, width)


def _first(b: Builder, ops: list[xt.ReductionOp], lanes: int) -> list[SSAValue]:
    """What accumulators begin with."""
    elements = [element_of(op.source.type) for op in ops]
    each = zip(elements, ops, strict=True)
    return [b.constant(lane_type(x, lanes), neutral(op.kind, x)) for x, op in each]


def _reduce_down(
    s: FusedEmitter, ops: list[xt.ReductionOp], shape: tuple[int, int], run: list[int], width: int
) -> None:
    """Each result row combines `run[0]` source rows, vector by vector; without masks where all vectors of a row lie
    inside of what is read."""
    b, e, (rows, cols), (run_rows, _) = s.b, s.e, shape, run
    buffers = [s.buffer_of(op.result) for op in ops]
    lanes = min(width, power_of_two(cols))
    unroll, gathers = 1, s.gathers([op.source for op in ops])
    most = (GATHERED if gathers else 4) // len(ops)
    while unroll < most and cols % (lanes * unroll * 2) == 0:
        unroll *= 2
    with (
        b.loop(0, rows // run_rows, nonempty=True) as outer,
        b.loop(0, cols, lanes * unroll, nonempty=True) as across,
        e.scope(),
    ):
        starts = [b.plus(across.iv, u * lanes) for u in range(unroll)]
        initial = [value for value in _first(b, ops, lanes) for _ in range(unroll)]
        top, bottom = (b.times(b.plus(outer.iv, n), run_rows) for n in (0, 1))
        with b.loop(top, bottom, 1, initial, nonempty=True) as down, e.scope():
            begin, end = s.inside_of([op.source for op in ops], down.iv, cols)
            inside = b.both(
                b.cmp("sge", across.iv, begin),
                b.cmp("sle", b.plus(across.iv, lanes * unroll), end),
            )
            whole = e.whole
            later = b.min(b.plus(down.iv, FETCHED), rows - 1)
            for tile in gathers if run_rows > FETCHED else ():
                s.fetch_run(tile, later, across.iv, lanes * unroll)

            def vectors(inside: bool) -> list[SSAValue]:
                e.whole = whole if inside else set()
                out: list[SSAValue] = []
                with e.scope():
                    for i, op in enumerate(ops):
                        for u, start in enumerate(starts):
                            value = e.at(op.source, Position(down.iv, start, 1, lanes, inside))
                            out.append(combined(b, op.kind, down.carried[i * unroll + u], value))
                return out

            assert inside is not None
            down.out = b.choose(inside, lambda: vectors(True), lambda: vectors(False))
            e.ends, e.runs, e.whole = set(), {}, set()
        for i, buffer in enumerate(buffers):
            for u, start in enumerate(starts):
                b.store(down.results[i * unroll + u], buffer.address(b, outer.iv, start))


def _reduce_runs(
    s: FusedEmitter, ops: list[xt.ReductionOp], shape: tuple[int, int], run: list[int], width: int
) -> None:
    """Each result combines a `run[0]` x `run[1]` block of the source."""
    b, e, lanes = s.b, s.e, 1
    rows, cols = (extent // n for extent, n in zip(shape, run, strict=True))
    buffers = [s.buffer_of(op.result) for op in ops]
    while lanes < width and run[1] % (lanes * 2) == 0:
        lanes *= 2
    initial = _first(b, ops, lanes)
    with b.loop(0, rows, nonempty=True) as i, b.loop(0, cols, nonempty=True) as j, e.scope():
        top, left = b.times(i.iv, run[0]), b.times(j.iv, run[1])
        with b.loop(top, b.plus(top, run[0]), 1, initial, nonempty=True) as r:
            with (
                b.loop(left, b.plus(left, run[1]), lanes, r.carried, nonempty=True) as c,
                e.scope(),
            ):
                c.out = [
                    combined(b, op.kind, acc, e.at(op.source, Position(r.iv, c.iv, 1, lanes)))
                    for op, acc in zip(ops, c.carried, strict=True)
                ]
            r.out = c.results
        for op, buffer, acc in zip(ops, buffers, r.results, strict=True):
            b.store(fold(b, op.kind, acc), buffer.address(b, i.iv, j.iv))


def fold(b: Builder, kind: str, register: SSAValue, *, numbers: bool = False) -> SSAValue:
    """All lanes of a register combined into one element; `numbers`: whatever that gives where one is NaN."""
    if not isinstance(register.type, VectorType):
        return register
    properties: dict[str, Attribute] = {"kind": CombiningKindAttr(CombiningKindFlag(kind))}
    if numbers:
        properties["fastmath"] = arith.FastMathFlagsAttr([FastMathFlag.NO_NANS])
    op = vector.ReductionOp.create(
        operands=[register], result_types=[register.type.element_type], properties=properties
    )
    return b.value(op)


def across(b: Builder, vectors: Sequence[SSAValue]) -> SSAValue:
    """A vector of the sums of all lanes of each of some vectors, a power of two of them.

    Each step adds the halves of the parts that two vectors consist of, and puts the two beside one another.
    """
    current = list(vectors)
    lanes: int = current[0].type.get_shape()[0]  # pyright: ignore
    part = lanes
    while len(current) > 1 or part > 1:
        half = part // 2
        low, high = ([i for i in range(2 * lanes) if i % part // half == h] for h in (0, 1))
        if len(current) > 1:
            current = [
                b.value(arith.AddfOp(b.shuffle(x, y, low), b.shuffle(x, y, high)))
                for x, y in zip(current[::2], current[1::2], strict=True)
            ]
        else:
            (x,) = current
            low, high = ([i for i in low if i < lanes], [i for i in high if i < lanes])
            current = [b.value(arith.AddfOp(b.shuffle(x, x, low), b.shuffle(x, x, high)))]
            lanes //= 2
        part = half
    return current[0] if lanes > 1 else b.extract(current[0], 0)
