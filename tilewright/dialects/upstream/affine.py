"""affine: numbers of several digits, `affine.max`, and divisors, which are positive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from xdsl.dialects import affine
from xdsl.dialects.builtin import DYNAMIC_INDEX, AffineMapAttr, DenseArrayBase, IndexType, i64
from xdsl.dialects.utils.dynamic_index_list import (
    DynamicIndexList,
    parse_dynamic_index_list_without_types,
    print_dynamic_index_list,
)
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr
from xdsl.irdl import AttrSizedOperandSegments, IRDLOperation, traits_def
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    ParsingState,
    PrintingState,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

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
from tilewright.dialects.upstream.complete import add_ops, add_verifier

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

    def verify_(self) -> None:
        _verify_basis(self)


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

    def verify_(self) -> None:
        _verify_basis(self)


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


def complete() -> None:
    add_ops(affine.Affine, (DelinearizeIndexOp, LinearizeIndexOp, MaxOp))
    for op in (affine.ApplyOp, affine.MinOp, MaxOp, affine.LoadOp, affine.StoreOp):
        add_verifier(op, _verify_map)
