"""vector: multi_reduction, contract."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, StringAttr, VectorType
from xdsl.dialects.utils import EnumAttribute
from xdsl.dialects.vector import CombiningKindAttr, CombiningKindFlag
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineExpr
from xdsl.irdl import irdl_attr_definition, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.attribute_fields import Angled
from tilewright.dialects.directives import parse_names, parse_type_list, say, typed
from tilewright.dialects.fields import Follows, Ints, Op, Operand, Property, Str, op_definition
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.arith import element
from tilewright.dialects.upstream.combining import COMBINING
from tilewright.dialects.upstream.vector.rules import check_kind

_ONE_TYPE = "accumulator and {} must have the same type"


@op_definition
class MultiReductionOp(Op):
    """`vector.multi_reduction <add>, %v, %acc [1] : vector<4x8xf32> to vector<4xf32>`.

    Reduces the given dimensions away, starting from the accumulator.
    """

    name = "vector.multi_reduction"
    kind: Str = Str(*COMBINING)
    source: Operand[VectorType] = Operand(VectorType)
    acc: Operand = Operand()
    dims: Ints = Ints(name="reduction_dims")
    dest = Follows("acc", message=_ONE_TYPE.format("destination"))
    traits = traits_def(Pure())
    assembly_format = (
        "$kind `,` $source `,` $acc attr-dict $reduction_dims `:` type($source) `to` type($dest)"
    )

    def verify_(self) -> None:
        source = vector_type(self.source)
        shape = source.get_shape()
        check_kind(self.kind, source.element_type)
        if any(not 0 <= dim < len(shape) for dim in self.dims):
            raise VerifyException("reduction dimension out of range")
        kept = [extent for dim, extent in enumerate(shape) if dim not in self.dims]
        expected = VectorType(source.element_type, kept) if kept else source.element_type
        zero_rank = VectorType(source.element_type, [])
        if self.dest.type != expected and not (not kept and self.dest.type == zero_rank):
            raise VerifyException(
                f"destination type {self.dest.type} is incompatible with source type {source}"
            )


IteratorKind = StrEnum("IteratorKind", "PARALLEL REDUCTION")


@irdl_attr_definition
class IteratorTypeAttr(Angled, EnumAttribute[IteratorKind]):
    """`#vector.iterator_type<parallel>`: what an iterator of a contraction is, in the generic form."""

    name = "vector.iterator_type"


@op_definition
class ContractionOp(Op):
    """`vector.contract {indexing_maps = [..], iterator_types = [..], kind = #vector.kind<add>} %a, %b, %c
    : A, B into C`: a contraction in the sense of einsum, added to %c.
    """

    name = "vector.contract"
    lhs: Operand[VectorType] = Operand(VectorType)
    rhs: Operand[VectorType] = Operand(VectorType)
    acc: Operand = Operand()
    indexing_maps: Property[ArrayAttr[AffineMapAttr], Iterable[AffineMapAttr]] = Property(
        ArrayAttr[AffineMapAttr], ArrayAttr
    )
    iterator_types: Property[ArrayAttr[IteratorTypeAttr], Iterable[str]] = Property(
        ArrayAttr[IteratorTypeAttr],
        lambda words: ArrayAttr(IteratorTypeAttr(IteratorKind(word)) for word in words),
    )
    kind: Str = Str(*COMBINING, default="add", implicit=True)
    result = Follows("acc", message=_ONE_TYPE.format("result"))
    traits = traits_def(Pure())

    @property
    def iterations(self) -> list[int]:
        """How far each iterator goes; none goes nowhere."""
        extents: dict[AffineExpr, int] = {}
        for map, value in zip(self.indexing_maps, self.operands, strict=True):
            if isinstance(value.type, VectorType):
                extents |= zip(map.data.results, value.type.get_shape(), strict=True)
        return [extents.get(AffineExpr.dimension(d), 1) for d in range(len(self.iterator_types))]

    def verify_(self) -> None:
        if len(self.indexing_maps) != 3:
            raise VerifyException("expected an indexing map for each vector operand")
        extents: dict[AffineExpr, int] = {}
        for position, map in enumerate(self.indexing_maps):
            if map.data.num_dims != len(self.iterator_types):
                raise VerifyException(
                    f"expected indexing map {position} to have {len(self.iterator_types)} inputs"
                )
            kind = self.operands[position].type
            shape = kind.get_shape() if isinstance(kind, VectorType) else ()
            if len(map.data.results) != len(shape):
                raise VerifyException(
                    f"expected indexing map {position} to have {len(shape)} outputs"
                )
            for expression, extent in zip(map.data.results, shape, strict=True):
                if extents.setdefault(expression, extent) != extent:
                    raise VerifyException(
                        f"operands differ in the extent of {expression}: {extents[expression]} and {extent}"
                    )
        check_kind(self.kind, element(self.acc.type))

    @classmethod
    def parse(cls, parser: Parser) -> ContractionOp:
        entries = parser.parse_optional_attr_dict()
        pos = parser.pos
        operands = parse_names(parser)
        parser.parse_punctuation(":")
        types = parse_type_list(parser)
        parser.parse_keyword("into")
        result = parser.parse_type()
        if len(operands) != 3 or len(types) != 2:
            parser.raise_error("expected two vectors and an accumulator", pos)
        properties: dict[str, Attribute] = {
            name: entries.pop(name)
            for name in ("indexing_maps", "iterator_types", "kind")
            if name in entries
        }
        for name in ("indexing_maps", "iterator_types"):
            if name not in properties:
                parser.raise_error(f"expected the attribute '{name}'", pos)
        stated = properties["iterator_types"]
        listed = stated.data if isinstance(stated, ArrayAttr) else [stated]
        words = [word.data for word in listed if isinstance(word, StringAttr)]
        if len(words) < len(listed) or not {*words} <= {*IteratorKind}:
            parser.raise_error('iterator_types is a list of "parallel" and "reduction"', pos)
        properties["iterator_types"] = ArrayAttr(IteratorTypeAttr(IteratorKind(w)) for w in words)
        properties.setdefault("kind", CombiningKindAttr(CombiningKindFlag.ADD))
        return cls.create(
            operands=parser.resolve_operands(operands, [*types, result], pos),
            properties=properties,
            attributes=entries,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        say(printer, " ")
        words = ArrayAttr(StringAttr(kind.kind) for kind in self.iterator_types)
        printer.print_attr_dict(self.properties | {"iterator_types": words} | self.attributes)
        types = typed(self.operands[:2])
        say(printer, " ", self.operands, " : ", types, " into ", self.result.type)
