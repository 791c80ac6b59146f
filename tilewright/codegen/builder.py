"""A small builder of last-stage IR: index arithmetic that folds, loops and branches as `with` blocks, byte addressing.

An index is a Python int (known now) or an SSA value of type index; every arithmetic helper folds what it can, so code
that is written once for run-time sizes becomes straight-line for static ones. Constants stand once, at the top of the
function. `nonnegative` remembers which values cannot be below zero, which saves one side of a bounds check.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache
from typing import Any

from xdsl.dialects import arith, func, scf, vector
from xdsl.dialects.builtin import (
    DenseArrayBase,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    UnitAttr,
    VectorType,
    i1,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.codegen.made_constants import Constants, index
from tilewright.dialects import mach
from tilewright.dialects.folding import Idx, Kind, Made
from tilewright.dialects.movement import shape_of_type, vector_type
from tilewright.dialects.upstream.arith import constant
from tilewright.dialects.upstream.combining import combining
from tilewright.dialects.upstream.vector import ShapeCastOp
from tilewright.frozen import record

_SHARED = (arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.DivSIOp)
"""What stands once in a block for every target: more would live longer in registers of a GPU."""


@record
class OpenLoop:
    """An open loop: its induction variable, what it carries in and out, and, once closed, its results."""

    iv: Idx
    carried: tuple[SSAValue, ...]
    out: Sequence[SSAValue]
    results: tuple[SSAValue, ...] = ()


@cache
def vec(element: Attribute, *shape: int) -> VectorType[Any]:
    """The vector type; made once, as xDSL verifies every type that it makes."""
    return VectorType(element, list(shape))


@lru_cache(1024)
def _mask(rows: tuple[int, ...]) -> DenseArrayBase[Any]:
    return DenseArrayBase.from_list(i64, rows)


def lane_type(element: Attribute, lanes: int) -> Attribute:
    """The register type of `lanes` elements: the scalar itself for one lane."""
    return element if lanes == 1 else vec(element, lanes)


class Builder(Constants):
    """Appends ops to `block`; `entry` is the function's first block, where constants go."""

    def __init__(self, entry: Block):
        super().__init__(entry)
        self.block = entry
        self.location: Any = None
        """Of the ops that come, where it is known."""
        self.nonnegative: set[SSAValue] = set()
        self._combined: dict[tuple[Any, ...], SSAValue] = {}
        self._open, self._loops = [entry], list[int]()
        """The blocks around what is built, outermost first, and which of them are bodies of loops."""
        self.hoists = False
        """Do numbers and addresses stand around the loops that make none of their operands, each once?"""
        self.prefetches = True

    def op(self, op: Operation) -> Operation:
        if self.location is not None:
            op.location = self.location
        self.block.add_op(op)
        return op

    def value(self, op: Operation) -> SSAValue:
        """Append `op`; its first result."""
        return self.op(op).results[0]

    # Index arithmetic -----------------------------------------------------------------------------------------

    def is_nonnegative(self, x: Idx) -> bool:
        return x >= 0 if isinstance(x, int) else x in self.nonnegative

    def mark(self, x: SSAValue, *sources: Idx) -> SSAValue:
        """`x` is not negative if none of `sources` can be."""
        if all(self.is_nonnegative(s) for s in sources):
            self.nonnegative.add(x)
        return x

    def combined(self, kind: Kind, x: Idx, y: Idx) -> Idx:
        made = self._once(kind, x, y)
        return made if kind is arith.SubiOp else self.mark(made, x, y)

    def _once(self, kind: Callable[..., Operation], x: Idx, y: Idx, *more: Any) -> SSAValue:
        """Equal numbers of a block are one value: what is not written need not be found to be equal."""
        if not self.hoists and kind not in _SHARED:
            return self.value(kind(self.idx(x), self.idx(y), *more))
        moves = self.hoists and kind is not arith.DivSIOp  # which a zero ends
        return self._shared(
            (kind, x, y, *more), lambda: kind(self.idx(x), self.idx(y), *more), (x, y), moves
        )

    def _shared(
        self, key: Any, make: Callable[[], Operation], operands: Sequence[Idx], moves: bool
    ) -> SSAValue:
        """What an op makes of its operands, once in a block; where it `moves`, around loops that make none of them."""
        block = self.block
        if self._loops and moves:
            depth = max(map(self._depth, operands))
            block = next((self._open[n - 1] for n in self._loops if n > depth), block)
        made = self._combined.get((block, key))
        if made is None:
            with nullcontext() if block is self.block else self._appending(block):
                made = self._combined[block, key] = self.value(make())
        return made

    def _depth(self, x: Idx) -> int:
        """Which of the open blocks makes a value; past all of them where none does."""
        if isinstance(x, int):
            return 0
        made = x.owner
        block = made if isinstance(made, Block) else made.parent
        opened = self._open
        for n in range(len(opened) - 1, -1, -1):
            if opened[n] is block:
                return n
        return len(opened)

    def apart(self, x: Idx) -> tuple[Idx, int]:
        """A number as another and what is added to it that is known now."""
        total = 0
        while not isinstance(x, int) and isinstance(x.owner, arith.AddiOp | arith.SubiOp):
            known = constant(x.owner.rhs)
            if known is None:
                return x, total
            total += int(known) if isinstance(x.owner, arith.AddiOp) else -int(known)
            x = x.owner.lhs
        return (0, total + x) if isinstance(x, int) else (x, total)

    def min(self, x: Idx, y: Idx) -> Idx:
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        if x is y:
            return x
        return self.mark(self._once(arith.MinSIOp, x, y), x, y)

    def max(self, x: Idx, y: Idx) -> Idx:
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        if x is y or (x == 0 and self.is_nonnegative(y)):
            return y
        if y == 0 and self.is_nonnegative(x):
            return x
        result = self._once(arith.MaxSIOp, x, y)
        if self.is_nonnegative(x) or self.is_nonnegative(y):
            self.nonnegative.add(result)
        return result

    def div(self, x: Idx, y: int) -> Idx:
        """Floor of x / y for y > 0; x must not be negative at run time unless y is a power of two."""
        if isinstance(x, int):
            return x // y
        if y == 1:
            return x
        if y & (y - 1) == 0:
            shift = self.constant(x.type, y.bit_length() - 1)
            return self.mark(self._once(arith.ShRSIOp, x, shift), x)
        return self.mark(self.value(arith.DivSIOp(x, self.constant(x.type, y))), x)

    def ceildiv(self, x: Idx, y: int) -> Idx:
        return self.div(self.plus(x, y - 1), y)

    def rem(self, x: Idx, y: int) -> Idx:
        if isinstance(x, int):
            return x % y
        if y == 1:
            return 0
        if y & (y - 1) == 0:
            result = self._once(arith.AndIOp, x, self.constant(x.type, y - 1))
        else:
            result = self.value(arith.RemSIOp(x, self.constant(x.type, y)))
        self.nonnegative.add(result)
        return result

    def round_up(self, x: Idx, y: int) -> Idx:
        return self.times(self.ceildiv(x, y), y)

    def cmp(self, predicate: str, x: Idx, y: Idx) -> SSAValue:
        """i1 of a signed comparison: eq ne slt sle sgt sge."""
        if isinstance(x, int) and isinstance(y, int):
            known = {
                "eq": x == y,
                "ne": x != y,
                "slt": x < y,
                "sle": x <= y,
                "sgt": x > y,
                "sge": x >= y,
            }
            return self.constant(i1, int(known[predicate]))
        extreme = {"sge": arith.MaxSIOp, "sle": arith.MinSIOp}.get(predicate)
        made = y.owner if isinstance(x, int) and isinstance(y, SSAValue) else None
        if extreme and isinstance(made, extreme):  # no less than both is no less than each
            each = [(v, constant(v)) for v in made.operands]
            parts = (self.cmp(predicate, x, v if n is None else int(n)) for v, n in each)
            return self.both(*parts) or self.constant(i1, 1)
        return self._once(arith.CmpiOp, x, y, predicate)

    def select(self, condition: SSAValue, x: Idx, y: Idx, *, once: bool = False) -> Idx:
        """`x` where the condition holds; `once`: equal choices are one value, as sums are."""
        if x is y or (isinstance(x, int) and x == y):
            return x
        known = self.known_bool(condition)
        if known is not None:
            return x if known else y
        operands = condition, self.idx(x), self.idx(y)
        if not (once and self.hoists):
            return self.mark(self.value(arith.SelectOp(*operands)), x, y)
        made = self._shared(operands, lambda: arith.SelectOp(*operands), operands, True)
        return self.mark(made, x, y)

    def known_bool(self, x: SSAValue) -> bool | None:
        """The value of an i1 that is a constant."""
        found = constant(x)
        return None if found is None else bool(found)

    def both(self, x: SSAValue | None, y: SSAValue | None) -> SSAValue | None:
        """Conjunction of two conditions or masks; None is true."""
        if x is None or y is None:
            return y if x is None else x
        if self.known_bool(x) is True:
            return y
        if self.known_bool(y) is True:
            return x
        return self._once(arith.AndIOp, x, y)

    def either(self, x: SSAValue, y: SSAValue) -> SSAValue:
        """Disjunction of two conditions."""
        known = self.known_bool(x), self.known_bool(y)
        if True in known or None not in known:
            return self.constant(i1, int(True in known))
        if False in known:
            return y if known[0] is False else x
        return self.value(arith.OrIOp(x, y))

    def negated(self, x: SSAValue) -> SSAValue:
        """The opposite of a condition or mask."""
        known = self.known_bool(x)
        if known is not None:
            return self.constant(i1, int(not known))
        return self._once(arith.XOrIOp, x, self.constant(x.type, 1))

    # Control flow ---------------------------------------------------------------------------------------------

    @contextmanager
    def inside(self, block: Block, loop: bool = False) -> Generator[None]:
        """What is built in the meantime stands in a block; is that the body of a loop?"""
        if loop:
            self._loops.append(len(self._open))
        self._open.append(block)
        try:
            with self._appending(block):
                yield
        finally:
            self._open.pop()
            if loop:
                self._loops.pop()

    @contextmanager
    def _appending(self, block: Block) -> Generator[None]:
        outer, self.block = self.block, block
        try:
            yield
        finally:
            self.block = outer

    @contextmanager
    def loop(
        self,
        lo: Idx,
        hi: Idx,
        step: Idx = 1,
        carry: Sequence[SSAValue] = (),
        *,
        nonempty: bool = False,
    ) -> Generator[OpenLoop]:
        """`for iv in range(lo, hi, step)`. Set `loop.out` to the values carried on; results after the block. What is
        known to run once stands for itself."""
        numbers = isinstance(lo, int) and isinstance(hi, int) and isinstance(step, int)
        if numbers and lo < hi <= lo + step:  # pyright: ignore
            loop = OpenLoop(lo, tuple(carry), tuple(carry))
            yield loop
            loop.results = tuple(loop.out)
            return
        body = Block(arg_types=[index, *(v.type for v in carry)])
        op = scf.ForOp(self.idx(lo), self.idx(hi), self.idx(step), list(carry), Region(body))
        loop = OpenLoop(self.mark(body.args[0], lo), tuple(body.args[1:]), tuple(body.args[1:]))
        with self.inside(body, loop=True):
            yield loop
            self.op(scf.YieldOp(*loop.out))
        if nonempty:
            op.attributes["mach.nonempty"] = UnitAttr()
        self.op(op)
        loop.results = tuple(op.results)

    @contextmanager
    def when(self, condition: SSAValue) -> Generator[None]:
        """`if condition:` without results."""
        if self.known_bool(condition) is True:
            yield
            return
        then = Block()
        with self.inside(then):
            yield
            self.op(scf.YieldOp())
        self.op(scf.IfOp(condition, [], Region(then), Region(Block([scf.YieldOp()]))))

    def choose(
        self, condition: SSAValue, then: Callable[[], Made], other: Callable[[], Made]
    ) -> list[SSAValue]:
        """The results of the side that the condition says: values of the same types; one side where it is known now."""
        known = self.known_bool(condition)
        if known is not None:
            return list((then if known else other)() or ())
        blocks, made = (Block(), Block()), tuple[SSAValue, ...]()
        for block, make in zip(blocks, (then, other), strict=True):
            with self.inside(block):
                made = (*(make() or ()),)
                self.op(scf.YieldOp(*made))
        types = [v.type for v in made]
        op = self.op(scf.IfOp(condition, types, Region(blocks[0]), Region(blocks[1])))
        return list(op.results)

    # Vectors --------------------------------------------------------------------------------------------------

    def splat(self, x: SSAValue, lanes: int) -> SSAValue:
        if lanes == 1:
            return x
        owner = x.owner
        if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr | FloatAttr):
            return self.constant(vec(x.type, lanes), owner.value.value.data)
        if not self.hoists:
            return self.value(vector.BroadcastOp(x, vec(x.type, lanes)))
        key = vector.BroadcastOp, x, lanes
        return self._shared(key, lambda: vector.BroadcastOp(x, vec(x.type, lanes)), [x], True)

    def combine(self, kind: str, x: SSAValue, y: SSAValue) -> SSAValue:
        """One step of a reduction of a `vector.kind`."""
        return self.value(combining(kind, x, y))

    def shuffle(self, a: SSAValue, b: SSAValue, mask: Sequence[int]) -> SSAValue:
        """Rows (elements of the first dimension) of `a` and then `b`, by number."""
        kind = vector_type(a)
        count, *row = kind.get_shape()
        if list(mask) == list(range(count)):
            return a
        result = vec(kind.element_type, len(mask), *row)
        return self.value(vector.ShuffleOp(a, b, _mask(tuple(mask)), result_type=result))

    def extract(self, x: SSAValue, *at: int) -> SSAValue:
        """A component, or a part of the inner dimensions; a scalar itself."""
        kind = x.type
        if not isinstance(kind, VectorType):
            return x
        rest = kind.get_shape()[len(at) :]
        type = VectorType(kind.element_type, rest) if rest else kind.element_type
        return self.value(vector.ExtractOp(x, at, type))

    def iota(self, lanes: int, type: Attribute = index) -> SSAValue:
        return self.dense(VectorType(type, [lanes]), range(lanes))  # pyright: ignore

    def mask_first(self, count: Idx, lanes: int, moves: bool = False) -> SSAValue | None:
        """Lanes below `count`; None when that is all of them for certain. `moves`: around loops that do not make it."""
        if isinstance(count, int) and count >= lanes:
            return None
        if lanes == 1:
            return self.cmp("sgt", count, 0)
        if isinstance(count, int):
            return self.dense(VectorType(i1, [lanes]), [int(i < count) for i in range(lanes)])
        key = mach.MaskFirstOp, count, lanes
        return self._shared(key, lambda: mach.MaskFirstOp(count, lanes), [count], moves)

    def mask_before(self, at: Idx, end: Idx, lanes: int, span: int) -> SSAValue | None:
        """Lanes i with `at + i < end`, for `0 <= at < span`, as `mask_first`. A loop over `at` only compares: places
        are the same for every `end`, and each `end` is in all lanes before. It pays where places are shared."""
        widths = (8, 16, 32) if lanes > 32 else (16, 32) if lanes > 16 else (32,)
        bits = next((n for n in widths if span + lanes < 1 << (n - 1)), 0)
        if lanes == 1 or isinstance(at, int) or not self.hoists or not bits:
            return self.mask_first(self.minus(end, at), lanes, self.hoists)
        kind = IntegerType(bits)
        bounded = self.min(self.max(end, 0), (1 << (bits - 1)) - 1)
        ends, first = (self._everywhere(x, kind, lanes) for x in (bounded, at))
        operands = first, self.iota(lanes, kind)
        places = self._once(arith.AddiOp, *operands)
        return self._once(arith.CmpiOp, places, ends, "slt")

    def _everywhere(self, x: Idx, kind: IntegerType, lanes: int) -> SSAValue:
        """An index in all lanes, as integers of a width that holds it."""
        if isinstance(x, int):
            return self.constant(vec(kind, lanes), x)
        key = arith.IndexCastOp, x, kind
        cast = self._shared(key, lambda: arith.IndexCastOp(x, kind), [x], True)
        return self.splat(cast, lanes)

    def shape(self, value: SSAValue, *shape: int) -> SSAValue:
        """The same components in another shape; a scalar as a vector of one."""
        if not isinstance(value.type, VectorType):
            return self.value(vector.BroadcastOp(value, vec(value.type, *shape)))
        if value.type.get_shape() == shape:
            return value
        return self.value(ShapeCastOp(value, vec(value.type.element_type, *shape)))

    def stack(self, rows: Sequence[SSAValue]) -> SSAValue:
        """Vectors of one shape, one after the other along a new first dimension."""
        parts = [self.shape(row, 1, *shape_of_type(row.type)) for row in rows]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            joined = [self.join(a, b) for a, b in pairs]
            parts = joined if len(parts) % 2 == 0 else [*joined, parts[-1]]
        return parts[0]

    def join(self, a: SSAValue, b: SSAValue) -> SSAValue:
        """The rows of `a` and then those of `b`."""
        return self.shuffle(a, b, range(shape_of_type(a.type)[0] + shape_of_type(b.type)[0]))

    # Memory ---------------------------------------------------------------------------------------------------

    def ptr(self, base: SSAValue, offset: Idx) -> SSAValue:
        """The address `offset` bytes after `base`."""
        if isinstance(offset, int) and offset == 0:
            return base
        return self._once(mach.PtrAddOp, base, offset)

    def load(self, pointer: SSAValue, type: Attribute, align: int | None = None) -> SSAValue:
        return self.value(mach.LoadOp(pointer, type, alignment=align))

    def store(self, value: SSAValue, pointer: SSAValue, align: int | None = None) -> None:
        self.op(mach.StoreOp(value, pointer, alignment=align))

    def prefetch(self, pointer: SSAValue, *, locality: int = 3, write: bool = False) -> None:
        """Fetch a line ahead of its use, unless prefetches are switched off."""
        if self.prefetches:
            self.op(mach.PrefetchOp(pointer, locality=locality, write=write))

    def call(
        self, name: str, args: Sequence[SSAValue], results: Sequence[Attribute] = ()
    ) -> Operation:
        return self.op(mach.CallOp(name, args, results))


def function(
    name: str,
    arguments: Sequence[Attribute],
    *,
    results: Sequence[Attribute] = (),
    once: bool = False,
    common: str | None = None,
) -> tuple[func.FuncOp, Builder]:
    """An empty function and a builder at its start. `once` in a launch or task: it is compiled fast, not to be fast;
    `common`: once, with others under that name, for all modules in which they are the same."""
    block = Block(arg_types=arguments)
    op = func.FuncOp(name, (list(arguments), list(results)), Region(block))
    if once:
        op.attributes["mach.once"] = UnitAttr()
    if common is not None:
        op.attributes["mach.common"] = StringAttr(common)
    return op, Builder(block)


def replace(op: Operation, make: Callable[[Builder], Sequence[SSAValue]]) -> list[SSAValue]:
    """What `make` builds stands in the place of an op: a value for each of its results."""
    block = Block()
    values = list(make(Builder(block)))
    for new in block.walk():
        new.location = op.location
    Rewriter.inline_block(block, InsertPoint.before(op))
    Rewriter.replace_op(op, [], values)
    return values
