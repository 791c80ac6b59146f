"""tile_mma: the product of matrices."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import Float32Type, IntegerType, VectorType, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure

from tilewright.dialects.directives import parse_names
from tilewright.dialects.fields import Op, Operand, OptOperand, OptProp, Result, op_definition
from tilewright.dialects.movement import vector_type
from tilewright.dialects.xetile import assembly, vector_rules
from tilewright.dialects.xetile.attrs import WgMapAttr


@op_definition
class TileMmaOp(Op):
    """Matrix product of vectors, `[m, k] x [k, n] (+ [m, n]) -> [m, n]` (RFC: tile_mma).

    ```mlir
    %d = xetile.tile_mma %a, %b, %c {wg_map_c = #c}
      : vector<64x32xf16>, vector<32x128xf16>, vector<64x128xf32> -> vector<64x128xf32>
    ```
    Accumulates in the result's element type. The early RFC's order `%c, %a, %b` is read where
    shapes and types tell it apart.
    """

    name = "xetile.tile_mma"

    a: Operand[VectorType] = Operand(VectorType)
    b: Operand[VectorType] = Operand(VectorType)
    c: OptOperand[VectorType] = OptOperand(VectorType)
    result: Result[VectorType] = Result(VectorType)
    wg_map_a: OptProp[WgMapAttr] = OptProp(WgMapAttr)
    wg_map_b: OptProp[WgMapAttr] = OptProp(WgMapAttr)
    wg_map_c: OptProp[WgMapAttr] = OptProp(WgMapAttr)

    traits = traits_def(Pure())

    def __init__(
        self,
        a: SSAValue | Operation,
        b: SSAValue | Operation,
        c: SSAValue | Operation | None = None,
        result_type: VectorType | None = None,
        wg_map_a: WgMapAttr | None = None,
        wg_map_b: WgMapAttr | None = None,
        wg_map_c: WgMapAttr | None = None,
    ):
        a, b = SSAValue.get(a), SSAValue.get(b)
        if result_type is None and c is not None:
            result_type = vector_type(SSAValue.get(c))
        if result_type is None:
            integers = isinstance(vector_type(a).element_type, IntegerType)
            element = i32 if integers else Float32Type()
            shape = (vector_type(a).get_shape()[0], vector_type(b).get_shape()[-1])
            result_type = VectorType(element, shape)
        super().__init__(a, b, c, result_type, wg_map_a, wg_map_b, wg_map_c)

    CHECK = vector_rules.verify_tile_mma

    @classmethod
    def parse(cls, parser: Parser) -> TileMmaOp:
        operands = parse_names(parser)
        attrs = assembly.parse_attr_dict(parser)
        names = ("wg_map_a", "wg_map_b", "wg_map_c")
        # RFC: one nameless map is the result's, two or three are the operands' in order.
        attrs.name_bare(parser, names[2:] if len(attrs.bare) == 1 else names)
        parser.parse_punctuation(":")
        start = parser.pos
        types = assembly.parse_types(parser)
        assembly.parse_arrow(parser)
        result_type = assembly.parse_type(parser)
        if not 2 <= len(operands) <= 3:
            parser.raise_error("expected the operands A, B and optionally C", start)
        values = _resolve_mma(parser, operands, types, result_type)
        properties = {name: attrs.named.pop(name) for name in names if name in attrs.named}
        return cls.build(
            operands=[values[0], values[1], values[2:]],
            properties=properties,
            attributes=attrs.named,
            result_types=[result_type],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        assembly.print_op(printer, self)


def _is_product(types: Sequence[Attribute], result: Attribute) -> bool:
    """Whether types are A, B (, C) of a product that gives the result."""
    if not all(isinstance(t, VectorType) and t.get_num_dims() == 2 for t in (*types, result)):
        return False
    shapes = [t.get_shape() for t in types if isinstance(t, VectorType)]
    a, b = types[:2]
    assert isinstance(a, VectorType) and isinstance(b, VectorType)
    assert isinstance(result, VectorType)
    return (
        shapes[0][1] == shapes[1][0]
        and a.element_type == b.element_type
        and result.get_shape() == (shapes[0][0], shapes[1][1])
        and (len(types) == 2 or types[2] == result)
    )


def _resolve_mma(
    parser: Parser,
    operands: Sequence[UnresolvedOperand],
    types: Sequence[Attribute],
    result: Attribute,
) -> list[SSAValue]:
    """Operands as A, B, C, whichever order of the two RFCs the text has."""
    values = assembly.assign_types(parser, operands, types)
    if len(values) < 3 or _is_product([value.type for value in values], result):
        return values
    rotated = [values[1], values[2], values[0]]
    return rotated if _is_product([value.type for value in rotated], result) else values
