"""vector: extract_strided_slice and insert_strided_slice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, VectorType, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import parse_names, say
from tilewright.dialects.fields import (
    Follows,
    Given,
    Inferred,
    Op,
    Operand,
    Property,
    Value,
    op_definition,
)
from tilewright.dialects.movement import vector_type


@lru_cache(4096)
def _array(values: tuple[int, ...]) -> ArrayAttr[IntegerAttr]:
    return ArrayAttr(IntegerAttr(value, i64) for value in values)


class _Ints(Property[list[int], Iterable[int]]):
    """`[0 : i64, 1 : i64]`."""

    KIND = (
        ArrayAttr[IntegerAttr],
        lambda values: _array(tuple(map(int, values))),
        lambda held: [element.value.data for element in held],
    )


class _StridedSliceOp(Op):
    """What extract_ and insert_strided_slice share: integer lists in the attribute dictionary."""

    LISTS: ClassVar[tuple[str, ...]] = ()
    WORD: ClassVar[str]
    """What stands between the types of the first and the last value."""

    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        # MLIR elides the type i64 of an array's elements.
        shown = {name: str(getattr(self, name)) for name in self.LISTS}
        shown |= {name: str(attribute) for name, attribute in self.attributes.items()}
        say(printer, " ", self.operands, " {", [f"{name} = {n}" for name, n in shown.items()], "}")
        say(printer, " : ", self.operands[0].type, f" {self.WORD} ", self.results[0].type)

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        operands = parse_names(parser)
        entries = cls.entries(parser)
        for name in cls.LISTS:
            if name not in entries:
                parser.raise_error(f"expected the attribute '{name}'")
        properties = {name: entries.pop(name) for name in cls.LISTS}
        parser.parse_punctuation(":")
        types = [parser.parse_type()]
        parser.parse_keyword(cls.WORD)
        types.append(parser.parse_type())
        return cls.create(
            operands=parser.resolve_operands(operands, types[: len(operands)], parser.pos),
            properties=properties,
            attributes=entries,
            result_types=types[1:],
        )

    @classmethod
    def entries(cls, parser: Parser) -> dict[str, Attribute]:
        """The lists in a dictionary, or as newer text has them: `offsets = [0, 2], strides = [1, 1]`."""
        found: dict[str, Attribute] = {}
        for name in cls.LISTS:
            if found:
                parser.parse_punctuation(",")
            elif parser.parse_optional_keyword(name) is None:
                break
            if found:
                parser.parse_keyword(name)
            parser.parse_punctuation("=")
            found[name] = parser.parse_attribute()
        return {**found, **parser.parse_optional_attr_dict()}


def _part(given: Given) -> VectorType:
    kind = vector_type(SSAValue.get(given["source"]))
    return VectorType(
        kind.element_type, [*given["sizes"], *kind.get_shape()[len(given["sizes"]) :]]
    )


@op_definition
class ExtractStridedSliceOp(_StridedSliceOp):
    """`vector.extract_strided_slice %v {offsets = [0, 2], sizes = [2, 4], strides = [1, 1]} : ...`."""

    name = "vector.extract_strided_slice"
    LISTS: ClassVar = ("offsets", "sizes", "strides")
    WORD: ClassVar = "to"
    source: Operand[VectorType] = Operand(VectorType)
    offsets: _Ints = _Ints()
    sizes: _Ints = _Ints()
    strides: _Ints = _Ints()
    result = Inferred(VectorType, _part)

    def __init__(
        self,
        source: Value,
        offsets: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
    ):
        Op.__init__(self, source, offsets, sizes, strides or [1] * len(sizes))

    def verify_(self) -> None:
        source, result = vector_type(self.source), vector_type(self.result)
        shape = source.get_shape()
        if not len(self.offsets) == len(self.sizes) == len(self.strides):
            raise VerifyException("expected offsets, sizes, and strides attributes of same size")
        if len(self.offsets) > len(shape):
            raise VerifyException("expected offsets attribute of rank no greater than vector rank")
        lists = zip(self.offsets, self.sizes, self.strides, shape, strict=False)
        for offset, size, stride, extent in lists:
            if stride != 1:
                raise VerifyException("expected strides to be confined to [1, 2)")
            if offset < 0 or size < 1 or offset + size > extent:
                raise VerifyException(
                    f"slice [{offset}, {offset + size}) is outside the dimension of {extent}"
                )
        expected = (*self.sizes, *shape[len(self.sizes) :])
        if result != VectorType(source.element_type, expected):
            raise VerifyException(f"expected result type to be vector of shape {expected}")


@op_definition
class InsertStridedSliceOp(_StridedSliceOp):
    """`vector.insert_strided_slice %v, %into {offsets = [0, 2], strides = [1, 1]} : ... into ...`."""

    name = "vector.insert_strided_slice"
    LISTS: ClassVar = ("offsets", "strides")
    WORD: ClassVar = "into"
    source: Operand[VectorType] = Operand(VectorType)
    dest: Operand[VectorType] = Operand(VectorType)
    offsets: _Ints = _Ints()
    strides: _Ints = _Ints()
    result = Follows("dest", message="expected the result to have the type of the destination")

    def __init__(
        self,
        source: Value,
        dest: Value,
        offsets: Sequence[int],
        strides: Sequence[int] | None = None,
    ):
        rank = len(vector_type(SSAValue.get(source)).get_shape())
        Op.__init__(self, source, dest, offsets, strides or [1] * rank)

    def verify_(self) -> None:
        source, dest = vector_type(self.source), vector_type(self.dest)
        if source.element_type != dest.element_type:
            raise VerifyException("source and destination must have the same element type")
        rank = len(source.get_shape())
        if len(self.offsets) != len(dest.get_shape()):
            raise VerifyException("expected offsets of same size as destination vector rank")
        if len(self.strides) != rank:
            raise VerifyException("expected strides of same size as source vector rank")
        if rank > len(dest.get_shape()):
            raise VerifyException("expected source rank to be no greater than destination rank")
        lead = len(dest.get_shape()) - rank
        extents = (*((1,) * lead), *source.get_shape())
        for offset, extent, full in zip(self.offsets, extents, dest.get_shape(), strict=True):
            if offset < 0 or offset + extent > full:
                raise VerifyException(
                    f"slice [{offset}, {offset + extent}) is outside the dimension of {full}"
                )
        if any(stride != 1 for stride in self.strides):
            raise VerifyException("expected strides to be confined to [1, 2)")
