"""Attributes of fields by name, and of one word: their text, from what is declared of them.

class WgMapAttr(FieldsAttr):
    name = "xetile.wg_map"
    sg_layout: ArrayAttr[IntAttr]
    broadcast_size: IntegerAttr | NoneAttr
    READERS: ClassVar = {"sg_layout": parse_int_array, "broadcast_size": parse_int}
    NEEDED: ClassVar = ("sg_layout",)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    ContainerType,
    IntAttr,
    IntegerAttr,
    NoneAttr,
    ShapedType,
    StringAttr,
    i64,
)
from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.directives import say

FieldParser = Callable[[AttrParser], Attribute]


@overload
def int_array(values: Iterable[int]) -> ArrayAttr[IntAttr]: ...
@overload
def int_array(values: None) -> NoneAttr: ...
@overload
def int_array(values: Iterable[int] | None) -> ArrayAttr[IntAttr] | NoneAttr: ...
def int_array(values: Iterable[int] | None) -> ArrayAttr[IntAttr] | NoneAttr:
    return NoneAttr() if values is None else ArrayAttr(IntAttr(int(value)) for value in values)


def integer(value: int | None) -> IntegerAttr | NoneAttr:
    return NoneAttr() if value is None else IntegerAttr(value, i64)


def truth(value: bool | None) -> BoolAttr | NoneAttr:
    return NoneAttr() if value is None else BoolAttr.from_bool(value)


def ints(array: ArrayAttr[IntAttr]) -> tuple[int, ...]:
    """The Python integers of an array attribute."""
    return tuple(element.data for element in array)


class Shaped(ParametrizedAttribute, TypeAttribute, ShapedType, ContainerType[Attribute]):
    """A type of static extents, `shape`, and elements, `element_type`."""

    if TYPE_CHECKING:
        shape: ArrayAttr[IntAttr]
        element_type: Attribute

    def get_num_dims(self) -> int:
        return len(self.shape)

    def get_shape(self) -> tuple[int, ...]:
        return ints(self.shape)

    def get_element_type(self) -> Attribute:
        return self.element_type

    def print_parameters(self, printer: Printer) -> None:
        """`<8x16xf16, ..>`: behind the elements what else there is."""
        with printer.in_angle_brackets():
            printer.print_dimension_list(self.get_shape())
            rest = (p for p in self.parameters[1:] if not isinstance(p, NoneAttr))
            say(printer, "x" if len(self.shape) else "", rest)


def parse_shape(
    parser: AttrParser, words: Mapping[str, Attribute]
) -> tuple[ArrayAttr[IntAttr], Attribute]:
    """`32x64xf16`: extents, and elements, which may also be one of some words."""
    dims = parser.parse_dimension_list()
    if dims:
        parser.parse_shape_delimiter()
    word = parser.parse_optional_keyword_in(words)
    return int_array(dims), parser.parse_type() if word is None else words[word]


def parse_int_array(parser: AttrParser) -> ArrayAttr[IntAttr]:
    """`[1, 2]`, an `array<i64: 1, 2>`, or a typed list `[1 : i64, 2 : i64]`."""
    if parser.parse_optional_keyword("array") is not None:
        with parser.in_angle_brackets():
            parser.parse_type()
            values: list[int] = []
            if parser.parse_optional_punctuation(":") is not None:
                values = parser.parse_comma_separated_list(
                    parser.Delimiter.NONE, lambda: parser.parse_integer(allow_boolean=False)
                )
        return int_array(values)

    def element() -> int:
        value = parser.parse_integer(allow_boolean=False)
        _skip_type(parser)
        return value

    return int_array(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, element))


def parse_bool(parser: AttrParser) -> BoolAttr:
    value = BoolAttr.from_bool(parser.parse_boolean())
    _skip_type(parser)
    return value


def _skip_type(parser: AttrParser) -> None:
    if parser.parse_optional_punctuation(":") is not None:
        parser.parse_type()


def nested(cls: type[ParametrizedAttribute]) -> FieldParser:
    """An attribute in another: bare `<...>`, with its name, or an alias of one."""

    def parse(parser: AttrParser) -> Attribute:
        start = parser.pos
        attribute = parser.parse_optional_attribute()
        if attribute is None:
            return cls.new(cls.parse_parameters(parser))
        if not isinstance(attribute, cls):
            parser.raise_error(f"expected a #{cls.name}, got {attribute}", start, parser.pos)
        return attribute

    return parse


def checked(
    parser: AttrParser, cls: type[ParametrizedAttribute], params: list[Attribute], start: int
) -> list[Attribute]:
    """Parameters of an attribute whose text began at `start`; what its verifier refuses is an error in that text."""
    try:
        return list(cls.new(params).parameters)
    except VerifyException as error:
        parser.raise_error(str(error), start, parser.pos)


class FieldsAttr(ParametrizedAttribute):
    """`<name = value, ...>`: read with the names in any order, each at most once; printed in that of `READERS`.

    A field that is absent is a `NoneAttr`; those that are `NEEDED` are not.
    """

    READERS: ClassVar[Mapping[str, FieldParser]]
    ALIASES: ClassVar[Mapping[str, str]] = {}
    NEEDED: ClassVar[tuple[str, ...]] = ()
    UNTYPED: ClassVar[tuple[str, ...]] = ()
    """Integers that print without their type."""

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        begin, what = parser.pos, cls.name.partition(".")[2]
        fields: dict[str, Attribute] = {}

        def entry() -> None:
            start = parser.pos
            word = parser.parse_identifier(f" naming a field of {what}")
            name = cls.ALIASES.get(word, word)
            if name not in cls.READERS:
                known = ", ".join(cls.READERS)
                parser.raise_error(
                    f"unknown field '{word}' of {what}, expected one of {known}", start, parser.pos
                )
            if name in fields:
                parser.raise_error(f"field '{word}' of {what} is given twice", start, parser.pos)
            parser.parse_punctuation("=", f" after '{word}'")
            fields[name] = cls.READERS[name](parser)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry, f" in {what}")
        for name in cls.NEEDED:
            if name not in fields:
                parser.raise_error(f"{what} needs the field '{name}'")
        return checked(parser, cls, [fields.get(name, NoneAttr()) for name in cls.READERS], begin)

    def print_parameters(self, printer: Printer) -> None:
        fields = [(name, getattr(self, name)) for name in self.READERS]

        def one(field: tuple[str, Any]) -> None:
            name, value = field
            printer.print_string(f"{name} = ")
            if isinstance(value, FieldsAttr):
                value.print_parameters(printer)
            elif isinstance(value, EnumAttribute):
                printer.print_string(value.data.value)
            elif isinstance(value, ArrayAttr):
                printer.print_string(str([*ints(value)]))
            elif name in self.UNTYPED:
                printer.print_string(str(value.value.data))
            else:
                printer.print_attribute(value)

        with printer.in_angle_brackets():
            printer.print_list([f for f in fields if not isinstance(f[1], NoneAttr)], one)


class Angled:
    """What an `EnumAttribute` prints and reads before its class, `<word>`; made of a member or its word."""

    enum_type: ClassVar[type[StrEnum]]

    def __init__(self, data: StrEnum | str):
        super().__init__(self.enum_type(data))  # pyright: ignore[reportCallIssue]

    @property
    def kind(self) -> str:
        """The word."""
        data: Any = self.data  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return data.value

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.kind)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Any:
        with parser.in_angle_brackets():
            return parser.parse_str_enum(cls.enum_type)


class Spaced(Angled):
    """An attribute of one word that MLIR prints as `#xegpu<fence_scope workgroup>`, and that is read in angles too."""

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(self.kind)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Any:
        angled = parser.parse_optional_punctuation("<") is not None
        word = parser.parse_str_enum(cls.enum_type)
        if angled:
            parser.parse_punctuation(">")
        return word


class Word(ParametrizedAttribute):
    """`#linalg.elementwise_kind<add>`: one word, of `WORDS` where these are given."""

    word: StringAttr = param_def()
    WORDS: ClassVar[Sequence[str]] = ()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            if cls.WORDS:
                return [StringAttr(parser.parse_keyword_in(cls.WORDS))]
            return [StringAttr(parser.parse_identifier())]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.word.data)
