"""Between which numbers an index lies, as far as the text says: `span(value)`.

Constants, extents, numbers of programs, subgroups and lanes, counters of loops between such numbers, what loops and
branches carry of them, and 64-bit arithmetic on them. Extents of arrays are at most what a target says: targets whose
machines count places by 32 bits refuse larger arrays at launch, and clamp what is not known to lie nearby.

    %k in scf.for %c0 to memref.dim        0 to EXTENT - 1
    block_id * 256                         0 to 2^39
    an argument                            None
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntegerAttr, IntegerType
from xdsl.ir import Block, SSAValue

Span = tuple[int, int]
"""Inclusive bounds."""

EXTENT = 1 << 26
_IDS = {"gpu.subgroup_id": 1 << 10, "gpu.lane_id": 64, "gpu.thread_id": 1 << 10}
_MOST = 1 << 62
"""Beyond it, sums may wrap."""


def span(
    value: SSAValue | int, extent: Callable[[SSAValue], int | None] = lambda _: EXTENT
) -> Span | None:
    """Inclusive bounds of an index or integer; None where one of them is not known.

    `extent` gives the most elements along a dimension of an array, None where it may have any number.
    """
    return _Spans(extent).of(value)


def _product(a: Span, b: Span) -> Span:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _quotient(a: Span, b: Span) -> Span | None:
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def _rest(a: Span, b: Span) -> Span | None:
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 and b[0] > 0 else None


def _and(a: Span, b: Span) -> Span | None:
    least = [each[1] for each in (a, b) if each[0] >= 0]
    return (0, min(least)) if least else None


_BINARY: dict[str, Callable[[Span, Span], Span | None]] = {
    "addi": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subi": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "muli": _product,
    "divsi": _quotient,
    "divui": _quotient,
    "floordivsi": _quotient,
    "remsi": _rest,
    "remui": _rest,
    "andi": _and,
    "minsi": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maxsi": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "select": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
}


class _Spans:
    def __init__(self, extent: Callable[[SSAValue], int | None]) -> None:
        self.extent = extent
        self.known: dict[SSAValue, Span | None] = {}

    def of(self, value: SSAValue | int) -> Span | None:
        if isinstance(value, int):
            return value, value
        if value not in self.known:
            self.known[value] = None  # of what a loop carries on from itself
            self.known[value] = self._of(value)
        return self.known[value]

    def _of(self, value: SSAValue) -> Span | None:
        found = self._argument(value) if isinstance(value.owner, Block) else self._result(value)
        width = value.type.width.data if isinstance(value.type, IntegerType) else 64
        if width < 64:
            most = 1 << (width - 1)
            inside = found is not None and -most <= found[0] and found[1] < most
            return found if inside else (-most, most - 1)
        return found if found is not None and found[0] > -_MOST and found[1] < _MOST else None

    def _argument(self, value: SSAValue) -> Span | None:
        block = value.owner
        assert isinstance(block, Block)
        loop = block.parent_op()
        if not isinstance(loop, scf.ForOp):
            return None
        number = block.args.index(value) - 1
        if number >= 0:
            return self._carried(loop, number)
        first, last = self.of(loop.lb), self.of(loop.ub)
        return None if first is None or last is None else (first[0], max(first[0], last[1] - 1))

    def _carried(self, loop: scf.ForOp, number: int) -> Span | None:
        last = loop.body.block.last_op
        assert last is not None
        return self._either(loop.iter_args[number], last.operands[number])

    def _either(self, *values: SSAValue) -> Span | None:
        found = [self.of(value) for value in values]
        known = [each for each in found if each is not None]
        return (min(a for a, _ in known), max(b for _, b in known)) if known == found else None

    def _result(self, value: SSAValue) -> Span | None:
        op = value.owner
        assert not isinstance(op, Block)
        if isinstance(op, arith.ConstantOp):
            held = op.value
            return (held.value.data, held.value.data) if isinstance(held, IntegerAttr) else None
        if isinstance(op, scf.ForOp):
            return self._carried(op, op.results.index(value))
        if isinstance(op, scf.IfOp):
            ends = [region.block.last_op for region in op.regions]
            number = op.results.index(value)
            return self._either(*(end.operands[number] for end in ends if end is not None))
        rank = (len(op.results) - 2) // 2
        if op.name == "memref.dim" or (
            op.name == "memref.extract_strided_metadata" and 2 <= op.results.index(value) < 2 + rank
        ):
            most = self.extent(op.operands[0])
            return None if most is None else (0, most)
        if op.name in ("gpu.block_id", "gpu.grid_dim"):
            return 0, (1 << 31) - 1
        if op.name in _IDS:
            return 0, _IDS[op.name] - 1
        if op.name in ("arith.index_cast", "arith.extsi") and isinstance(
            op.operands[0].type, IntegerType | IndexType
        ):
            return self.of(op.operands[0])
        dialect, _, name = op.name.partition(".")
        if dialect != "arith" or name not in _BINARY:
            return None
        a, b = (self.of(each) for each in op.operands[-2:])
        return None if a is None or b is None else _BINARY[name](a, b)
