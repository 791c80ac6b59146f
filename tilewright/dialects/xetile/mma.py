"""tile_mma: the product of matrices."""

from __future__ import annotations

from xdsl.dialects.builtin import Float32Type, IntegerType, VectorType, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
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
        values = accumulator_last(assembly.assign_types(parser, operands, types), result_type)
        return attrs.build(cls, [values[0], values[1], values[2:]], [result_type])

    def print(self, printer: Printer) -> None:
        assembly.print_op(printer, self)


def matrix_dims(lhs: Attribute, rhs: Attribute) -> tuple[int, int, int] | None:
    """(M, N, K) of A and B at subgroup or workgroup level; None when they are lane fragments or misfit."""
    if not isinstance(lhs, VectorType) or not isinstance(rhs, VectorType):
        return None
    a, b = lhs.get_shape(), rhs.get_shape()
    if len(a) not in (2, 3) or len(b) not in (2, 3):
        return None
    m, k = (a[0], a[1]) if len(a) == 2 else (a[0], a[1] * a[2])
    rows, n = (b[0], b[1]) if len(b) == 2 else (b[0] * b[2], b[1])
    return (m, n, k) if k == rows else None


def accumulator_last(values: list[SSAValue], result: Attribute) -> list[SSAValue]:
    """A, B, C, where the early RFCs' text puts C first; recognised by shapes that fit that way only."""

    def fits(a: SSAValue, b: SSAValue, c: SSAValue) -> bool:
        shape = c.type.get_shape() if isinstance(c.type, VectorType) else None
        dims = matrix_dims(a.type, b.type)
        return dims is not None and shape == dims[:2] and c.type == result

    if len(values) != 3:
        return values
    c, a, b = values
    return [a, b, c] if fits(a, b, c) and not fits(c, a, b) else values
