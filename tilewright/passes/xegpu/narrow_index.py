"""narrow-index: arithmetic on tiles of `index` or i64 whose numbers fit 32 bits is arithmetic on i32.

    %m = arith.addi %columns, %eight : vector<8x128xindex>          // %columns: 0 to 127
    %f = xetile.reduction <minsi>, %m [1] : vector<8x128xindex> -> vector<8x1xindex>
    ->
    %c = arith.index_cast %columns : vector<8x128xindex> to vector<8x128xi32>
    %m = arith.addi %c, %eight_i32 : vector<8x128xi32>
    %f = xetile.reduction <minsi>, %m [1] : vector<8x128xi32> -> vector<8x1xi32>

A number of 64 bits fills two registers, and instructions are of 32 (DG2 has not even sums of more). What one can be
is known from `integers`. Tiles that come from elsewhere, or go where an index must be, are cast; a cast moves before
what only rearranges. Scalars stay: addresses are made of them. Only what tiles are compared with may be any number:
%n of `%columns < %n` is at most 2^31 - 1, behind all columns.

The other targets do without: they hold positions as one number and constants, which casts would hide (measured:
two products with a causal mask between them on an H200 425 -> 400 TFLOP/s, without one on 16 cores 4.1 -> 3.9).

Requires: a kernel of workgroups. Guarantees: the same results.
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import IndexType, IntegerType, VectorType, i32, i64
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import ELEMENTS, positions_at_run_time
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import constants, element, with_element
from tilewright.dialects.upstream.combining import kind_of
from tilewright.passes.carried import behind
from tilewright.passes.emit import Behind
from tilewright.passes.integers import Ranges, is_extreme
from tilewright.passes.pipeline import Pass, Unit

LEAST, MOST = -(1 << 31), (1 << 31) - 1
WIDE = (IndexType(), i64)
_ANY = ("addi", "subi", "muli", "andi", "ori", "xori", "select", "minui", "maxui")
"""Right for all numbers: sums and products because their results fit, too; order without signs because numbers below
0 are the largest as 64 bits and as 32."""
_SIGNED = ("minsi", "maxsi", "floordivsi", "divsi", "remsi", "ceildivsi")
_NATURAL = ("divui", "ceildivui", "remui")
"""Right for numbers that are not negative."""
_FIRST_UNSIGNED = 6
"""Of the predicates of arith.cmpi."""
_CASTS = ("index_cast", "extsi", "trunci")


def narrow_index(kernel: gpu.FuncOp) -> None:
    """Narrows tiles of 64-bit integers to i32 where the values fit."""
    narrow = _Narrow()
    for op in list(kernel.walk()):
        narrow.visit(op)
    for back in reversed(narrow.backs):
        if back.results[0].first_use is None:
            Rewriter.erase_op(back)


class _Narrow:
    def __init__(self) -> None:
        self.ranges = Ranges()
        self.words: dict[SSAValue, SSAValue] = {}
        """The 32 bits of values that were wide."""
        self.backs: list[Operation] = []
        """What widens results again, for users that stay as they are."""

    def fits(self, value: SSAValue, least: int = LEAST) -> bool:
        """Does a number, or does each of a tile, fit 32 bits, from `least` on?"""
        low, high = self.ranges.of(value)
        return least <= low and high <= MOST

    def visit(self, op: Operation) -> None:
        if len(op.results) != 1 or not any(isinstance(v.type, VectorType) for v in op.operands):
            return
        name = op.name.removeprefix("arith.")
        if isinstance(op, arith.CmpiOp):
            signs = op.predicate.value.data < _FIRST_UNSIGNED
            op.operands = [
                self._beside(a, b, signs)
                for a, b in zip(op.operands, op.operands[::-1], strict=True)
            ]
        elif is_extreme(op) and len(op.operands) == 2 and self.fits(op.results[0]):
            signs = kind_of(op).endswith("si")
            op.operands = [op.operands[0], self._beside(op.operands[1], op.operands[0], signs)]
        wide = [v for v in (*op.operands, *op.results) if element(v.type) in WIDE]
        least = 0 if name in _NATURAL else LEAST
        if not wide or not all(self.fits(v, least) for v in wide):
            return
        if name in _CASTS and element(op.operands[0].type) in WIDE:
            self._cast(op)
        elif name in (*_ANY, *_SIGNED, *_NATURAL, "cmpi") or is_extreme(op):
            op.operands = [self.word(v) for v in op.operands]
            if element(op.results[0].type) in WIDE:
                self._widen(op)

    def _beside(self, value: SSAValue, tile: SSAValue, signs: bool) -> SSAValue:
        """What is alike for all elements, as the nearest number of 32 bits: numbers of a tile that has none at the end
        lie on the same side of it. Without signs numbers below 0 are large."""
        low, high = self.ranges.of(tile)
        small = element(value.type) not in WIDE or self.fits(value)
        if small or not (LEAST if signs else -1) < low <= high < MOST:
            return value
        owner = value.owner
        if isinstance(owner, arith.ConstantOp) and (given := constants(value)) is not None:
            near = [min(max(x, LEAST), MOST) if signs or x >= 0 else MOST for x in given]
            made = arith.ConstantOp(number_attr(value.type, *near))
        elif isinstance(owner, vector.BroadcastOp) and not isinstance(
            owner.source.type, VectorType
        ):
            made = vector.BroadcastOp(self._near(owner.source, signs), owner.vector.type)
            made.attributes |= owner.attributes
        else:
            return value
        return Behind(owner).add(made)

    def _near(self, scalar: SSAValue, signs: bool) -> SSAValue:
        ends = [(arith.MinSIOp if signs else arith.MinUIOp, MOST)]
        if signs and self.ranges.of(scalar)[0] < LEAST:
            ends.append((arith.MaxSIOp, LEAST))  # pyright: ignore
        for nearer, end in ends:
            number = arith.ConstantOp(number_attr(scalar.type, end))
            made = nearer(scalar, number.result)
            Rewriter.insert_op((number, made), behind(scalar))
            scalar = made.result
        return scalar

    def _cast(self, op: Operation) -> None:
        """From one type that is wide to another, or to a narrow one: what is cast may be 32 bits already."""
        made, kind = self.word(op.operands[0]), element(op.results[0].type)
        if kind in WIDE:
            self.words[op.results[0]] = made
        elif kind == i32:
            op.results[0].replace_all_uses_with(made)
        elif isinstance(kind, IntegerType) and kind.width.data < 32:
            op.operands = [made]

    def _widen(self, op: Operation) -> None:
        result = op.results[0]
        kind = result.type
        word = Rewriter.replace_value_with_new_type(result, with_element(kind, i32))
        cast = arith.IndexCastOp if element(kind) == IndexType() else arith.ExtSIOp
        back = cast(word, kind)  # pyright: ignore
        Behind(op).instead(word, back)
        self.backs.append(back)
        self.words[back.results[0]] = word
        self.ranges.known[back.results[0]] = self.ranges.known[result]

    def word(self, value: SSAValue) -> SSAValue:
        """A value as 32 bits, if its numbers are wide."""
        if element(value.type) not in WIDE:
            return value
        found = self.words.get(value)
        if found is None:
            found = self.words[value] = self._made(value)
        return found

    def _made(self, value: SSAValue) -> SSAValue:
        kind = with_element(value.type, i32)
        owner = value.owner
        made: Operation
        if isinstance(owner, arith.ConstantOp):
            made = arith.ConstantOp(number_attr(kind, *(constants(value) or ())))
        elif isinstance(owner, Operation) and self._may_move(owner):
            made = retyped(owner, [self.word(v) for v in owner.operands], [kind])
        else:
            cast = arith.IndexCastOp if element(value.type) == IndexType() else arith.TruncIOp
            made = cast(value, kind)  # pyright: ignore
        made.location = owner.location if isinstance(owner, Operation) else made.location
        Rewriter.insert_op(made, behind(value))
        return made.results[0]

    def _may_move(self, op: Operation) -> bool:
        """May a cast of an op's result be a cast of its operands instead?"""
        if op.name not in ELEMENTS or len(op.results) > 1 or positions_at_run_time(op):
            return False
        return all(map(self.fits, op.operands))


NARROW_INDEX = Pass[Unit[Any]]("narrow-index", narrow_index, ("workgroup",), optional=True)
