"""What assembly formats are made of besides what xDSL knows: words, maps, tokens of asynchronous ops; and what
hand-written ones read and print in one call.

assembly_format = "custom<Mode>($mode) $value attr-dict `:` type($value)"
custom_directives = (word("Mode", ("up", "down")),)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeAlias, TypeVar

from xdsl.dialects.builtin import AffineMapAttr, IntegerAttr, StringAttr
from xdsl.dialects.gpu import AsyncTokenType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    VariadicOperandVariable,
    irdl_custom_directive,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

T = TypeVar("T")
Part: TypeAlias = "str | SSAValue | Attribute | Iterable[Part | tuple[Part, ...]]"


def say(printer: Printer, *parts: Part) -> None:
    """Prints parts one after the other: a text as it is, a value by its name, an attribute as such, and commas between
    the elements of anything else, which may be several parts each (a tuple)."""
    for part in parts:
        if isinstance(part, str):
            printer.print_string(part)
        elif isinstance(part, SSAValue):
            printer.print_operand(part)
        elif isinstance(part, Attribute):
            printer.print_attribute(part)
        else:
            printer.print_list(part, lambda e: say(printer, *(e if type(e) is tuple else (e,))))


def results(types: Sequence[Attribute]) -> tuple[Part, ...]:
    """` -> T` or ` -> (T, U)`; nothing where there is no type."""
    return (" -> (", types, ")") if len(types) > 1 else (" -> ", *types) if types else ()


def typed(values: Iterable[SSAValue]) -> Part:
    """`T, U, ..`: the types of values."""
    return [value.type for value in values]


def assigned(arguments: Iterable[SSAValue], values: Iterable[SSAValue]) -> Part:
    """`%x = %a, ..`."""
    return [(a, " = ", value) for a, value in zip(arguments, values, strict=True)]


def parse_result_types(parser: Parser) -> list[Attribute]:
    """`-> T` or `-> (T, U)`; nothing when there is no arrow."""
    if parser.parse_optional_punctuation("->") is None:
        return []
    types = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return [parser.parse_type()] if types is None else list(types)


def parse_listed(parser: Parser, one: Callable[[], T]) -> list[T]:
    """`(x, y, ..)`."""
    return parser.parse_comma_separated_list(parser.Delimiter.PAREN, one)


def parse_names(parser: Parser) -> list[UnresolvedOperand]:
    """`%a, %b, ..`: at least one operand."""
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)


def parse_type_list(parser: Parser) -> list[Attribute]:
    """`T, U, ..`: at least one type."""
    return parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)


class _Spelled(CustomDirective):
    """An attribute as `READ` reads it (None where it does not stand) and `SAY` says it."""

    attribute: AttributeVariable
    READ: ClassVar[Callable[[Parser], Attribute | None]]
    SAY: ClassVar[Callable[[Attribute], str]]

    def parse(self, parser: Parser, state: ParsingState) -> None:
        found = type(self).READ(parser)
        if found is not None:
            self.attribute.set(state, found)

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if (held := self.attribute.get(op)) is not None:
            state.print_whitespace(printer)
            printer.print_string(type(self).SAY(held))

    def is_present(self, op: IRDLOperation) -> bool:
        return self.attribute.is_present(op)

    def is_anchorable(self) -> bool:
        return True

    def is_optional_like(self) -> bool:
        return True


def spelled(
    name: str, read: Callable[[Parser], Attribute | None], say: Callable[..., str]
) -> type[CustomDirective]:
    """The directive `custom<name>` of an attribute with a text of its own."""
    fields = {
        "READ": staticmethod(read),
        "SAY": staticmethod(say),
        "__annotations__": {"attribute": AttributeVariable},
    }
    return irdl_custom_directive(type(name, (_Spelled,), fields))


def numbered_word(
    name: str, words: tuple[str, ...], what: str, kind: int = 64
) -> type[CustomDirective]:
    """One of some words, held as its number among them; `what` names one of them in a message."""

    def read(parser: Parser) -> Attribute:
        pos = parser.pos
        word = parser.parse_identifier_or_str_literal(f" naming the {what}")
        if word not in words:
            known = ", ".join(words)
            parser.raise_error(f"unknown {what} '{word}', expected one of {known}", pos, parser.pos)
        return IntegerAttr(words.index(word), kind)

    def say(held: IntegerAttr) -> str:
        number = held.value.data % 2**kind
        return words[number] if number < len(words) else str(held.value.data)

    return spelled(name, read, say)


def word(name: str, words: Sequence[str]) -> type[CustomDirective]:
    """One of some words, held as a string."""
    return spelled(
        name, lambda parser: StringAttr(parser.parse_keyword_in(words)), lambda held: held.data
    )


Map = spelled(
    "Map", lambda parser: AffineMapAttr(parser.parse_affine_map()), lambda held: str(held.data)
)


@irdl_custom_directive
class Async(CustomDirective):
    """`async [%t, %u]`: is a token made, and which ones are waited for?"""

    token: TypeDirective
    dependencies: VariadicOperandVariable

    def parse(self, parser: Parser, state: ParsingState) -> None:
        made = parser.parse_optional_keyword("async") is not None
        self.token.set(state, [AsyncTokenType()] if made else [])
        waited = parser.parse_optional_comma_separated_list(
            parser.Delimiter.SQUARE, parser.parse_unresolved_operand
        )
        self.dependencies.set(state, waited or [])

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        if self.token.is_present(op):
            state.print_whitespace(printer)
            printer.print_string("async")
        if waited := self.dependencies.get(op):
            state.print_whitespace(printer)
            with printer.in_square_brackets():
                printer.print_list(waited, printer.print_operand)
