"""Ops on vectors: dpas, dpas_mx, convert_layout, truncf, extf and lane_shuffle."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import AnyFloat, IntegerType, VectorType
from xdsl.ir import Attribute
from xdsl.irdl import AttrSizedOperandSegments, traits_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.dialects.directives import say, typed
from tilewright.dialects.fields import (
    Flag,
    Follows,
    Inferred,
    Op,
    Operand,
    OptOperand,
    OptProp,
    Result,
    op_definition,
)
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu import assembly
from tilewright.dialects.xegpu import rules_compute as rules
from tilewright.dialects.xegpu.block import ownership_of
from tilewright.dialects.xegpu.layouts import Ownership
from tilewright.dialects.xetile.assembly import AttrDict, parse_arrow
from tilewright.dialects.xetile.mma import accumulator_last, matrix_dims


@op_definition
class DpasOp(Op):
    """Matrix multiply-accumulate `A[M,K] * B[K,N] + C[M,N]` (RFC: dpas).

    ```mlir
    %d = xegpu.dpas %a, %b, %c {layout_a = #a, layout_b = #b, layout_cd = #c}
      : vector<8x16xf16>, vector<16x16xf16>, vector<8x16xf32> -> vector<8x16xf32>
    ```
    B may be packed, `[K/p, N, p]` (VNNI), and then A too, `[M, K/p, p]`. Without C the sum starts at 0.
    At lane level the operands are fragments: 1-D, or `[units, packed]` under sg_maps.
    """

    name = "xegpu.dpas"

    lhs: Operand[VectorType] = Operand(VectorType)
    rhs: Operand[VectorType] = Operand(VectorType)
    acc: OptOperand[VectorType] = OptOperand(VectorType)
    result: Result[VectorType] = Result(VectorType)
    layout_a: OptProp[Attribute] = OptProp()
    layout_b: OptProp[Attribute] = OptProp()
    layout_cd: OptProp[Attribute] = OptProp()

    traits = traits_def(Pure())

    @property
    def layouts(self) -> tuple[Ownership | None, Ownership | None, Ownership | None]:
        return (
            ownership_of(self.layout_a),
            ownership_of(self.layout_b),
            ownership_of(self.layout_cd),
        )

    def dims(self) -> tuple[int, int, int] | None:
        """(M, N, K); None for lane fragments, whose shape does not tell."""
        return matrix_dims(self.lhs.type, self.rhs.type)

    CHECK = rules.verify_dpas

    @classmethod
    def parse(cls, parser: Parser) -> DpasOp:
        text = assembly.parse_op(parser, results=True)
        result = assembly.one_result(parser, text)
        if text.indices is not None or len(text.operands) not in (2, 3):
            parser.raise_error("expected two or three operands")
        values = accumulator_last(text.resolve(parser), result)
        _name_layouts(parser, text.attrs)
        return text.attrs.build(cls, [values[0], values[1], values[2:]], [result])

    def print(self, printer: Printer) -> None:
        assembly.print_op(printer, self, attributes=assembly.print_merged)


def _name_layouts(parser: Parser, attrs: AttrDict) -> None:
    """The RFC's nameless layouts: `{#c}` for the result, `{#a #b #c}` for all three."""
    names = {0: (), 1: ("layout_cd",), 3: ("layout_a", "layout_b", "layout_cd")}
    if len(attrs.bare) not in names:
        parser.raise_error(f"{len(attrs.bare)} layouts without a name, expected one or three")
    for name, layout in zip(names[len(attrs.bare)], attrs.bare, strict=True):
        if name in attrs.named:
            parser.raise_error(f"attribute '{name}' is given twice")
        attrs.named[name] = layout


@op_definition
class DpasMxOp(Op):
    """dpas on microscaled operands: every 32 elements along K share one f8E8M0FNU scale.

    ```mlir
    %d = xegpu.dpas_mx %a, %b, %c scale_a = %sa scale_b = %sb
      : (vector<8x64xf4E2M1FN>, vector<64x16xf4E2M1FN>, vector<8x16xf32>,
         vector<8x2xf8E8M0FNU>, vector<2x16xf8E8M0FNU>) -> vector<8x16xf32>
    ```
    `scale_a` is [M, K/32], `scale_b` [K/32, N]; an absent scale is 1. C is f32 or bf16.
    """

    name = "xegpu.dpas_mx"

    lhs: Operand[VectorType] = Operand(VectorType)
    rhs: Operand[VectorType] = Operand(VectorType)
    acc: OptOperand[VectorType] = OptOperand(VectorType)
    result: Result[VectorType] = Result(VectorType)
    scale_a: OptOperand = OptOperand(default=None)
    scale_b: OptOperand = OptOperand(default=None)
    layout_a: OptProp[Attribute] = OptProp(Attribute)
    layout_b: OptProp[Attribute] = OptProp(Attribute)
    layout_cd: OptProp[Attribute] = OptProp(Attribute)
    layout_a_scale: OptProp[Attribute] = OptProp(Attribute)
    layout_b_scale: OptProp[Attribute] = OptProp(Attribute)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(Pure())

    def dims(self) -> tuple[int, int, int] | None:
        return matrix_dims(self.lhs.type, self.rhs.type)

    CHECK = rules.verify_dpas_mx

    @classmethod
    def parse(cls, parser: Parser) -> DpasMxOp:
        text = assembly.OpText()
        assembly.parse_operands(parser, text)
        scales: dict[str, UnresolvedOperand] = {}
        while (word := parser.parse_optional_keyword_in(("scale_a", "scale_b"))) is not None:
            parser.parse_punctuation("=", f" after '{word}'")
            if word in scales:
                parser.raise_error(f"{word} is given twice")
            scales[word] = parser.parse_unresolved_operand()
        if text.indices is not None or len(text.operands) not in (2, 3):
            parser.raise_error("expected A, B and optionally C")
        count = len(text.operands)
        names = [name for name in ("scale_a", "scale_b") if name in scales]
        text.operands += [scales[name] for name in names]
        assembly.parse_attr_dict(parser, text.attrs)
        parser.parse_punctuation(":", " before the operand types")
        text.types = assembly.parse_types(parser)
        parse_arrow(parser)
        result = assembly.parse_type(parser)
        values = text.resolve(parser)
        _name_layouts(parser, text.attrs)
        given = dict(zip(names, values[count:], strict=True))
        behind = [[given[name]] if name in given else [] for name in ("scale_a", "scale_b")]
        operands = [values[0], values[1], values[2:count], *behind]
        return text.attrs.build(cls, operands, [result])

    def print(self, printer: Printer) -> None:
        say(printer, " ", [self.lhs, self.rhs, *(() if self.acc is None else (self.acc,))])
        for name, value in (("scale_a", self.scale_a), ("scale_b", self.scale_b)):
            say(printer, *(() if value is None else (f" {name} = ", value)))
        assembly.print_merged(printer, self)
        say(printer, " : (", typed(self.operands), ") -> ", self.result.type)


@op_definition
class ConvertLayoutOp(Op):
    """Hands a value from one ownership to another; the value itself is unchanged (RFC: convert_layout).

    ```mlir
    %b = xegpu.convert_layout %a <{input_layout = #l, target_layout = #m}> : vector<32x64xf16>
    ```
    """

    name = "xegpu.convert_layout"

    source: Operand = Operand(Attribute)
    target_layout: OptProp[Attribute] = OptProp()
    input_layout: OptProp[Attribute] = OptProp()
    result = Inferred(Attribute, "source")

    traits = traits_def(Pure())

    CHECK = rules.verify_convert_layout

    @classmethod
    def parse(cls, parser: Parser) -> ConvertLayoutOp:
        # The RFC writes its nameless pair as {#source #result} before the operand, {#result #source}
        # behind it.
        before = assembly.parse_attr_dict(parser)
        text = assembly.parse_op(parser, results=True)
        values = text.resolve(parser)
        if len(values) != 1:
            parser.raise_error("expected one operand")
        pair = [*reversed(before.bare), *text.attrs.bare]
        if len(pair) > 2:
            parser.raise_error(f"{len(pair)} layouts without a name, expected one or two")
        for name, layout in zip(("target_layout", "input_layout"), pair, strict=False):
            text.attrs.named.setdefault(name, layout)
        text.attrs.named |= before.named
        return text.attrs.build(cls, values, text.results or [values[0].type])

    def print(self, printer: Printer) -> None:
        assembly.print_op(printer, self, results=False)


class FloatConversion(assembly.PlainOp):
    """What truncf and extf share."""

    EXPECTS: ClassVar = "one operand"
    source: Operand = Operand(Attribute)
    result: Result[Attribute] = Result(Attribute)

    traits = traits_def(Pure())

    CHECK = rules.verify_float_conversion


@op_definition
class TruncfOp(FloatConversion):
    """Converts to a narrower float, one whole register at a time (8- and 4-bit floats).

    ```mlir
    %r = xegpu.truncf %v : vector<16xf16> -> vector<16xf8E5M2>
    ```
    Rounds to nearest even as arith.truncf does.
    """

    name = "xegpu.truncf"


@op_definition
class ExtfOp(FloatConversion):
    """Converts to a wider float, one whole register at a time (8- and 4-bit floats).

    ```mlir
    %r = xegpu.extf %v : vector<16xf8E5M2> -> vector<16xf16>
    ```
    """

    name = "xegpu.extf"


@op_definition
class LaneShuffleOp(Op):
    """Hands the elements of a subgroup's lanes on, from every n-th for each of n lanes to n in a row for each.

    ```mlir
    %p = xegpu.lane_shuffle %v pack : vector<2xi16>
    %v = xegpu.lane_shuffle %p unpack : vector<2xi16>
    ```
    With k elements in each of n lanes: element j of lane i is, packed, the (i * k + j)-th of the subgroup, and
    unpacked its (j * n + i)-th. No element changes.
    """

    name = "xegpu.lane_shuffle"

    source: Operand[VectorType] = Operand(VectorType)
    pack: Flag = Flag()
    result = Follows("source", message="lane_shuffle keeps the type")

    traits = traits_def(Pure())
    assembly_format = "$source (`pack` $pack^) : (`unpack`)? attr-dict `:` type($source)"

    CHECK = rules.verify_lane_shuffle


def packing_factor(element: Attribute) -> int:
    """Elements that fill 32 bits (`vnni_factor`); 1 for elements of 32 bits and more."""
    if isinstance(element, (IntegerType, AnyFloat)):
        return max(1, 32 // element_bits(element))
    return 1
