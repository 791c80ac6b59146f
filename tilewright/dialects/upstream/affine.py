"""affine: numbers of several digits, `affine.max`, prefetches, the text of `affine.if`; divisors are positive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from xdsl.dialects import affine
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    AffineSetAttr,
    BoolAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    i32,
    i64,
)
from xdsl.dialects.utils.dynamic_index_list import (
    DynamicIndexList,
    parse_dynamic_index_list_without_types,
    print_dynamic_index_list,
)
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr
from xdsl.irdl import AttrSizedOperandSegments, IRDLOperation, traits_def
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.parser.affine_parser import AffineParser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import parse_listed, parse_result_types, results, say
from tilewright.dialects.effects import CACHES, Acts
from tilewright.dialects.fields import (
    Flag,
    Ints,
    Op,
    Operand,
    Operands,
    Prop,
    Result,
    Results,
    op_definition,
)
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.complete import add_ops, add_verifier, set_custom
from tilewright.dialects.upstream.memref import PREFETCH_WORDS, PREFETCHED, verify_locality

T = TypeVar("T")
_DIVISIONS = (AffineBinaryOpKind.FloorDiv, AffineBinaryOpKind.CeilDiv, AffineBinaryOpKind.Mod)


def _verify_map(op: Any) -> None:
    found = op.properties.get("map")
    for result in found.data.results if isinstance(found, AffineMapAttr) else ():
        for expr in result.dfs():
            if isinstance(expr, AffineBinaryOpExpr) and expr.kind in _DIVISIONS:
                by = expr.rhs
                if isinstance(by, AffineConstantExpr) and by.value < 1:
                    raise VerifyException(f"divides by {by.value} in {expr}: a divisor is positive")


# --- Numbers of several digits, the last of least weight --------------------------------------------


@irdl_custom_directive
class Basis(DynamicIndexList):
    """`(4, %n)`."""

    dynamic_position: VariadicOperandVariable
    static_position: AttributeVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        dynamic, static = parse_dynamic_index_list_without_types(
            parser, DYNAMIC_INDEX, delimiter=parser.Delimiter.PAREN
        )
        self.dynamic_position.set(state, dynamic)
        self.static_position.set(state, DenseArrayBase.from_list(i64, static))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        dynamic, static = self.dynamic_position.get(op), self.static_position.get(op)
        assert isinstance(static, DenseArrayBase)
        print_dynamic_index_list(
            printer, DYNAMIC_INDEX, dynamic, static.get_values(), delimiter=Parser.Delimiter.PAREN
        )


def extents(op: DelinearizeIndexOp | LinearizeIndexOp, dynamic: Sequence[T]) -> list[T | int]:
    """Of all digits but the first, which needs none; where the basis has an operand, what stands for it."""
    values = iter(dynamic)
    every = [next(values) if n == DYNAMIC_INDEX else n for n in op.static_basis]
    return every[len(every) - len(op.multi_index) + 1 :]


def _verify_basis(op: DelinearizeIndexOp | LinearizeIndexOp) -> None:
    static, digits = op.static_basis, len(op.multi_index)
    if static.count(DYNAMIC_INDEX) != len(op.dynamic_basis):
        raise VerifyException("mismatch between dynamic and static basis")
    if not digits or digits - len(static) not in (0, 1):
        raise VerifyException(
            f"expected a basis of {digits} extents or one fewer, got {len(static)}"
        )
    for n in static:
        if n != DYNAMIC_INDEX and n < 1:
            raise VerifyException(f"no basis element may be statically non-positive, got {n}")


@op_definition
class DelinearizeIndexOp(Op):
    """`%i:3 = affine.delinearize_index %n into (2, 4, 8) : index, index, index`: n = (i#0 * 4 + i#1) * 8 + i#2."""

    name = "affine.delinearize_index"

    linear_index: Operand[IndexType] = Operand(IndexType)
    dynamic_basis: Operands[IndexType] = Operands(IndexType)
    static_basis: Ints = Ints()
    multi_index: Results[IndexType] = Results(IndexType)
    traits = traits_def(Pure())
    custom_directives = (Basis,)
    assembly_format = (
        "$linear_index `into` custom<Basis>($dynamic_basis, $static_basis) "
        "attr-dict `:` type($multi_index)"
    )

    CHECK = _verify_basis


@op_definition
class LinearizeIndexOp(Op):
    """`%n = affine.linearize_index [%i, %j, %k] by (2, 4, 8) : index`: (i * 4 + j) * 8 + k.

    `disjoint` promises that each digit is less than its extent.
    """

    name = "affine.linearize_index"

    multi_index: Operands[IndexType] = Operands(IndexType)
    dynamic_basis: Operands[IndexType] = Operands(IndexType)
    static_basis: Ints = Ints()
    linear_index: Result[IndexType] = Result(IndexType)
    disjoint: Flag = Flag()
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    custom_directives = (Basis,)
    assembly_format = (
        "(`disjoint` $disjoint^)? `[` $multi_index `]` `by` custom<Basis>($dynamic_basis, $static_basis) "
        "attr-dict `:` type($linear_index)"
    )

    @classmethod
    def create(cls, *, properties: Mapping[str, Attribute] = {}, **rest: Any) -> LinearizeIndexOp:
        """MLIR's generic form says `disjoint = false`, too."""
        said = {
            name: held for name, held in properties.items() if held != BoolAttr.from_bool(False)
        }
        return super().create(properties=said, **rest)

    CHECK = _verify_basis


@op_definition
class MaxOp(Op):
    """`%r = affine.max affine_map<(d0) -> (d0, 8 - d0)>(%i)`: the largest; otherwise as affine.min."""

    name = "affine.max"

    arguments: Operands[IndexType] = Operands(IndexType)
    map: Prop[AffineMapAttr] = Prop(AffineMapAttr)
    result: Result[IndexType] = Result(IndexType)
    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> MaxOp:
        least = affine.MinOp.parse(parser)
        given = list(least.arguments)
        least.erase()
        return cls(given, least.map, IndexType())

    def print(self, printer: Printer) -> None:
        affine.MinOp.print(cast(affine.MinOp, self), printer)

    def verify_(self) -> None:
        affine.MinOp.verify_(cast(affine.MinOp, self))


# --- Memory -------------------------------------------------------------------------------------------


@irdl_custom_directive
class Subscripts(CustomDirective):
    """`[%i * 2, symbol(%n)]`: a map, and what it is given."""

    map: AttributeVariable
    indices: VariadicOperandVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        text = AffineParser(parser._parser_state)  # pyright: ignore[reportPrivateUsage]
        found, spans = text.parse_affine_map_of_ssa_ids()
        self.map.set(state, AffineMapAttr(found))
        self.indices.set(state, [UnresolvedOperand(span, 0) for span in spans])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        found = self.map.get(op)
        assert isinstance(found, AffineMapAttr)
        affine._print_affine_map_of_ssa_ids(printer, found.data, self.indices.get(op))  # pyright: ignore[reportPrivateUsage]
        state.print_whitespace(printer)


@op_definition
class PrefetchOp(Op):
    """`affine.prefetch %m[%i * 2, 3], read, locality<3>, data : memref<400x400xi32>`: memref.prefetch by a map."""

    name = "affine.prefetch"
    memref: Operand[MemRefType] = Operand(MemRefType)
    indices: Operands[IndexType] = Operands(IndexType)
    map: Prop[AffineMapAttr] = Prop(AffineMapAttr)
    isWrite: Prop[IntegerAttr] = Prop(IntegerAttr)
    localityHint: Prop[IntegerAttr] = Prop(IntegerAttr.constr(i32))
    isDataCache: Prop[IntegerAttr] = Prop(IntegerAttr)
    traits = traits_def(Acts(CACHES))
    assembly_format = f"$memref `` custom<Subscripts>($map, $indices) {PREFETCHED}"
    custom_directives = (Subscripts, *PREFETCH_WORDS)

    def verify_(self) -> None:
        verify_locality(self.localityHint)
        verify_subscripts(self.memref, self.map, self.indices)


def verify_subscripts(memory: SSAValue, map_: AffineMapAttr, given: Sequence[SSAValue]) -> None:
    assert isinstance(memory.type, MemRefType)
    rank = memory.type.get_num_dims()
    if len(map_.data.results) != rank:
        raise VerifyException(f"expected {rank} subscripts")
    if len(given) != map_.data.num_dims + map_.data.num_symbols:
        raise VerifyException("expected a value for each dimension and symbol of the map")


def _verify_vector(op: affine.VectorLoadOp | affine.VectorStoreOp) -> None:
    assert op.map is not None
    verify_subscripts(op.memref, op.map, op.indices)
    moved = op.result if isinstance(op, affine.VectorLoadOp) else op.value
    if not vector_type(moved).get_shape():
        raise VerifyException("expected a vector of one dimension or more")


# --- Conditions ---------------------------------------------------------------------------------------


def _parse_if(cls: type[affine.IfOp], parser: Parser) -> affine.IfOp:
    """`affine.if #set(%i)[%n] -> (f32) {..} else {..}`."""
    at = parser.pos
    condition = parser.parse_attribute()
    if not isinstance(condition, AffineSetAttr):
        parser.raise_error(
            "an affine set is expected here: affine_set<(d0) : (d0 >= 0)>", at, parser.pos
        )

    def index() -> SSAValue:
        return parser.parse_operand(IndexType())

    places = parse_listed(parser, index)
    symbols = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, index)
    types = parse_result_types(parser)
    then, otherwise = parser.parse_region(), Region()
    if parser.parse_optional_keyword("else"):
        otherwise = parser.parse_region()
    for block in (*then.blocks, *otherwise.blocks):
        if block.last_op is None or not block.last_op.has_trait(IsTerminator):
            block.add_op(affine.YieldOp.get())
    return cls.build(
        operands=[[*places, *(symbols or ())]],
        result_types=[types],
        properties={"condition": condition},
        attributes=parser.parse_optional_attr_dict(),
        regions=[then, otherwise],
    )


def _print_if(self: affine.IfOp, printer: Printer) -> None:
    dims = self.condition.data.num_dims
    say(printer, " ", self.condition, "(", self.args[:dims], ")")
    if self.args[dims:]:
        say(printer, "[", self.args[dims:], "]")
    say(printer, *results(self.res.types))
    for region, before in ((self.then_region, " "), (self.else_region, " else ")):
        if region.blocks:
            say(printer, before)
            printer.print_region(region, print_block_terminators=bool(self.res))
    printer.print_op_attributes(self.attributes)


def _verify_if(op: affine.IfOp) -> None:
    known = op.condition.data
    if len(op.args) != known.num_dims + known.num_symbols:
        raise VerifyException(
            f"the set has {known.num_dims} dimensions and {known.num_symbols} symbols, for {len(op.args)} values"
        )
    if op.res and not op.else_region.blocks:
        raise VerifyException("gives results, so it needs an else region")
    for region in (op.then_region, op.else_region):
        last = region.block.last_op if region.blocks else None
        if region.blocks and not (
            isinstance(last, affine.YieldOp) and last.operand_types == op.result_types
        ):
            raise VerifyException(f"each region ends with an affine.yield of {op.result_types}")


def complete() -> None:
    set_custom(affine.IfOp, _parse_if, _print_if)
    add_verifier(affine.IfOp, _verify_if)
    add_ops(affine.Affine, (DelinearizeIndexOp, LinearizeIndexOp, MaxOp, PrefetchOp))
    for op in (affine.VectorLoadOp, affine.VectorStoreOp):
        add_verifier(op, _verify_vector)
    for op in (affine.ApplyOp, affine.MinOp, MaxOp, affine.LoadOp, affine.StoreOp, PrefetchOp):
        add_verifier(op, _verify_map)
