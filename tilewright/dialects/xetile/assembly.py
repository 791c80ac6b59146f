"""Reading and printing what the XeTile ops share.

One canonical spelling is printed; the RFCs' spellings are read where the types make them
unambiguous: bare `tile<...>` types, `float` element types, `into` / `to` / `=>` for `->`, type lists
in parentheses, maps without a name in the attribute dictionary, operand ranges `%o:2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    I64,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    UnitAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, SSAValue, SSAValues
from xdsl.irdl import IRDLOperation, opt_prop_def, prop_def, var_operand_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import ints, parse_shape
from tilewright.dialects.directives import say, typed
from tilewright.dialects.fields import Field, Op, OpT, Set
from tilewright.dialects.xetile.types import RFC_ELEMENTS, TileType
from tilewright.frozen import field, record

Index = int | SSAValue
"""An offset, size or stride: a constant or an `index` value."""


# --- Types -----------------------------------------------------------------------------------


def parse_type(parser: Parser) -> Attribute:
    """A type, or the RFCs' bare `tile<...>` and `vector<...xfloat>`."""
    if parser.parse_optional_keyword("tile") is not None:
        return TileType.new(TileType.parse_parameters(parser))
    start = parser.pos
    if parser.parse_optional_keyword("vector") is not None:
        with parser.in_angle_brackets():
            shape, element = parse_shape(parser, RFC_ELEMENTS)
        if DYNAMIC_INDEX in ints(shape):
            parser.raise_error("vectors have static shapes", start, parser.pos)
        return VectorType(element, shape)
    return parser.parse_type()


def parse_types(parser: Parser, one: Callable[[Parser], Attribute] = parse_type) -> list[Attribute]:
    """`T, T, ...`, with or without parentheses."""
    paren = parser.parse_optional_punctuation("(") is not None
    if paren and parser.parse_optional_punctuation(")") is not None:
        return []
    types = parser.parse_comma_separated_list(parser.Delimiter.NONE, lambda: one(parser))
    if paren:
        parser.parse_punctuation(")")
    return types


def parse_optional_arrow(parser: Parser) -> bool:
    """`->`, or the RFCs' `into`, `to`, `=>`."""
    if parser.parse_optional_punctuation("->") is not None:
        return True
    if parser.parse_optional_keyword_in(("into", "to")) is not None:
        return True
    if parser.parse_optional_punctuation("=") is not None:
        parser.parse_punctuation(">", " after '='")
        return True
    return False


def parse_arrow(parser: Parser) -> None:
    if not parse_optional_arrow(parser):
        parser.raise_error("expected '->' before the result type")


def parse_signature(parser: Parser) -> tuple[Attribute, Attribute]:
    """`: T -> R`."""
    parser.parse_punctuation(":")
    source = parse_type(parser)
    parse_arrow(parser)
    return source, parse_type(parser)


# --- Index lists -----------------------------------------------------------------------------


@record
class IndexList:
    """A parsed `[8, %x, %o:2]`: constants, with the dynamic marker where an operand stands."""

    static: list[int] = field(default_factory=list[int])
    dynamic: list[UnresolvedOperand] = field(default_factory=list[UnresolvedOperand])

    def resolve(self, parser: Parser) -> list[SSAValue]:
        return [parser.resolve_operand(operand, IndexType()) for operand in self.dynamic]

    def attribute(self) -> DenseArrayBase[I64]:
        return DenseArrayBase.from_list(i64, self.static)

    def add(self, operand: UnresolvedOperand, count: int = 1) -> None:
        for index in range(operand.index, operand.index + count):
            self.static.append(DYNAMIC_INDEX)
            self.dynamic.append(UnresolvedOperand(operand.span, index))


def parse_index(parser: Parser, indices: IndexList) -> None:
    """One element: a constant, `%x`, or the RFC's range `%x:2` of a value with several results.

    In a list without brackets a colon may also begin the operand types: no type begins with a digit.
    """
    operand = parser.parse_optional_unresolved_operand()
    if operand is None:
        indices.static.append(_index_constant(parser))
        return
    count = 1
    text = parser.lexer.input.content
    if text[parser.pos : parser.pos + 1] == ":" and text[parser.pos + 1 : parser.pos + 2].isdigit():
        parser.parse_punctuation(":")
        start = parser.pos
        count = parser.parse_integer(allow_boolean=False)
        if not 1 <= count <= 16:
            parser.raise_error(f"a range of {count} values", start, parser.pos)
    indices.add(operand, count)


def _index_constant(parser: Parser) -> int:
    start = parser.pos
    value = parser.parse_integer(allow_boolean=False)
    if not -(2**63) < value < 2**63:
        parser.raise_error(f"{value} does not fit an index", start, parser.pos)
    return value


def parse_rest_of_list(parser: Parser) -> IndexList:
    """An index list behind a `[` that is already read."""
    indices = IndexList()
    if parser.parse_optional_punctuation("]") is None:
        parser.parse_comma_separated_list(
            parser.Delimiter.NONE, lambda: parse_index(parser, indices)
        )
        parser.parse_punctuation("]", " closing the offsets")
    return indices


def parse_index_list(parser: Parser) -> IndexList:
    """`[8, %x]`."""
    parser.parse_punctuation("[", " opening a list of indices")
    return parse_rest_of_list(parser)


def parse_optional_index_list(parser: Parser) -> IndexList | None:
    """`[8, %x]` if it comes next."""
    opened = parser.parse_optional_punctuation("[") is not None
    return parse_rest_of_list(parser) if opened else None


def print_index_list(printer: Printer, indices: Iterable[Index]) -> None:
    say(printer, "[", [v if isinstance(v, SSAValue) else str(v) for v in indices], "]")


def split_indices(values: Iterable[Index]) -> tuple[DenseArrayBase[I64], list[SSAValue]]:
    """Constants and operands of a mixed list, in the form in which ops hold them."""
    static: list[int] = []
    dynamic: list[SSAValue] = []
    for value in values:
        if isinstance(value, SSAValue):
            static.append(DYNAMIC_INDEX)
            dynamic.append(value)
        else:
            static.append(int(value))
    return DenseArrayBase.from_list(i64, static), dynamic


class _Mixed(Field[SSAValues[SSAValue], Set]):
    """Operands of type index; the numbers among what is given are in the property `static`."""

    DEFINE = staticmethod(var_operand_def)
    STATIC: ClassVar[Callable[..., Any]]
    NONE: ClassVar[Sequence[Index] | None] = None

    def __init__(self, static: str):
        super().__init__(IndexType, default=self.NONE)
        self.static = static

    def declared(self, name: str) -> dict[str, Any]:
        return super().declared(name) | {self.static: self.STATIC(DenseArrayBase.constr(i64))}

    def given(self, name: str, value: Sequence[Index] | None) -> dict[str, Any]:
        static, dynamic = split_indices(value or ())
        return {name: dynamic, self.static: None if value is None else static}


class Indices(_Mixed[Sequence[Index]]):
    STATIC = staticmethod(prop_def)
    NONE = ()


class OptIndices(_Mixed[Sequence[Index] | None]):
    """The property is not there where nothing is given."""

    STATIC = staticmethod(opt_prop_def)


class Indexed:
    """What an op with such fields has besides."""

    @classmethod
    @cache
    def lists(cls: Any) -> dict[str, str]:
        """The names of those fields, each with that of its property."""
        return {n: f.static for n, f in cls.__fields__.items() if isinstance(f, _Mixed)}

    def _list(self: Any, name: str) -> tuple[DenseArrayBase[I64] | None, SSAValues[SSAValue]]:
        static: Any = self.properties.get(self.lists()[name])
        return static, getattr(self, name)

    def mixed(self, name: str) -> list[Index]:
        """Numbers and values of a field, in order."""
        static, values = self._list(name)
        return list(values) if static is None else merge_indices(static, values)

    @property
    def mixed_offsets(self) -> list[Index]:
        """Offsets in elements: see the op."""
        return self.mixed("offsets")

    def print_list(self, printer: Printer, name: str, before: str = "") -> None:
        """`[8, %x]` of a field, behind what stands `before` it; nothing where the property is not there."""
        static, values = self._list(name)
        if static is not None:
            say(printer, before)
            print_index_list(printer, merge_indices(static, values))

    def verify_(self) -> None:
        for name in self.lists():
            static, values = self._list(name)
            if static is not None:
                verify_indices(name, static, values)
        Op.verify_(cast(Op, self))


def merge_indices(static: DenseArrayBase[I64], dynamic: Sequence[SSAValue]) -> list[Index]:
    """The mixed list again: ints and values in order."""
    values = iter(dynamic)
    return [next(values) if v == DYNAMIC_INDEX else int(v) for v in static.get_values()]


def verify_indices(name: str, static: DenseArrayBase[I64], dynamic: Sequence[SSAValue]) -> None:
    marked = list(static.get_values()).count(DYNAMIC_INDEX)
    if marked != len(dynamic):
        raise VerifyException(f"{name} have {marked} dynamic positions but {len(dynamic)} operands")


# --- Attribute dictionaries --------------------------------------------------------------------


@record
class AttrDict:
    """A parsed attribute dictionary: `named` entries, and `bare` attributes without a name."""

    named: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    bare: list[Attribute] = field(default_factory=list[Attribute])

    def split(self, op: type[IRDLOperation]) -> tuple[dict[str, Attribute], dict[str, Attribute]]:
        """Properties of `op`, and what is discardable."""
        inherent = op.get_irdl_definition().properties
        properties = {k: v for k, v in self.named.items() if k in inherent}
        return properties, {k: v for k, v in self.named.items() if k not in inherent}

    def build(
        self,
        op: type[OpT],
        operands: Sequence[SSAValue | Sequence[SSAValue]],
        results: Sequence[Attribute | Sequence[Attribute]] = (),
        properties: Mapping[str, Attribute] | None = None,
    ) -> OpT:
        """The op; `properties` are those that its text says outside of the dictionary."""
        own, attributes = self.split(op)
        own.update(properties or {})
        return op.build(
            operands=operands, properties=own, attributes=attributes, result_types=results
        )

    def name_bare(self, parser: Parser, names: Sequence[str]) -> None:
        """Give the nameless attributes (RFC: `{#map}`) the given names, in order."""
        if len(self.bare) > len(names):
            parser.raise_error(
                f"{len(self.bare)} attributes without a name, expected at most {len(names)}"
            )
        for name, attribute in zip(names, self.bare, strict=False):
            if name in self.named:
                parser.raise_error(f"attribute '{name}' is given twice")
            self.named[name] = attribute
        self.bare = []


def parse_attr_dict(
    parser: Parser,
    into: AttrDict | None = None,
    entry: Callable[[Parser, AttrDict], None] | None = None,
) -> AttrDict:
    """`{name = attr, flag, #bare}` any number of times; `<{...}>` is read as well.

    `entry` reads one entry into the dictionary, where a dialect has spellings of its own.
    """
    read = entry or _parse_plain_entry
    result = into or AttrDict()
    while True:
        angle = parser.parse_optional_punctuation("<") is not None
        if angle:
            parser.parse_punctuation("{", " opening the properties")
        elif parser.parse_optional_punctuation("{") is None:
            return result
        while parser.parse_optional_punctuation("}") is None:
            read(parser, result)
            parser.parse_optional_punctuation(",")
        if angle:
            parser.parse_punctuation(">", " closing the properties")


def parse_attr_dict_before_kind(parser: Parser) -> AttrDict:
    """`{#source #result}` before a `<kind>`, which must not be taken for `<{properties}>`."""
    result = AttrDict()
    if parser.parse_optional_punctuation("{") is not None:
        while parser.parse_optional_punctuation("}") is None:
            _parse_plain_entry(parser, result)
            parser.parse_optional_punctuation(",")
    return result


def parse_entry(
    parser: Parser,
    result: AttrDict,
    bare: tuple[type[Attribute], ...] = (Attribute,),
    name_of: Callable[[str], str] = str,
) -> str | None:
    """One entry: a bare attribute, or a name, given back where `=` and its attribute follow."""
    start = parser.pos
    word = parser.parse_optional_identifier_or_str_literal()
    if word is None:
        attribute = parser.parse_optional_attribute()
        if not isinstance(attribute, bare):
            parser.raise_error("expected an attribute name, or '}'", start, start + 1)
        result.bare.append(attribute)
        return None
    name = name_of(word)
    if name in result.named:
        parser.raise_error(f"attribute '{word}' is given twice", start, parser.pos)
    if parser.parse_optional_punctuation("=") is not None:
        return name
    result.named[name] = UnitAttr()
    return None


def _parse_plain_entry(parser: Parser, result: AttrDict) -> None:
    if (name := parse_entry(parser, result)) is not None:
        result.named[name] = parser.parse_attribute()


def parse_locality(parser: Parser, attrs: AttrDict) -> None:
    """`locality<2>` if it comes next."""
    if parser.parse_optional_keyword("locality") is None:
        return
    start = parser.pos
    with parser.in_angle_brackets():
        level = parser.parse_integer(allow_boolean=False)
    if "locality" in attrs.named:
        parser.raise_error("locality is given twice", start, parser.pos)
    attrs.named["locality"] = IntegerAttr(level, i64)


def print_attr_dict(printer: Printer, op: IRDLOperation, hidden: Iterable[str] = ()) -> None:
    """Properties in the order of their definition, then discardable attributes, in one dictionary.

    `hidden` are properties that stand elsewhere in the op's text.
    """
    elsewhere = {*hidden, "operandSegmentSizes"}
    names = [name for name in op.get_irdl_definition().properties if name not in elsewhere]
    shown = {name: op.properties[name] for name in names if name in op.properties}
    shown.update(op.attributes)
    if shown:
        say(printer, " ")
        printer.print_attr_dict(shown)


PrintAttributes = Callable[[Printer, IRDLOperation, Iterable[str]], None]
"""Prints an op's properties, but for the hidden ones, and attributes."""


def print_op(
    printer: Printer,
    op: IRDLOperation,
    hidden: Iterable[str] = (),
    *,
    attributes: PrintAttributes = print_attr_dict,
    results: bool = True,
) -> None:
    """` %a, %b {attributes} : T, U -> R`, or without the results."""
    say(printer, " ", op.operands)
    print_rest(printer, op, hidden, attributes=attributes, results=results)


def print_rest(
    printer: Printer,
    op: IRDLOperation,
    hidden: Iterable[str] = (),
    types: Iterable[Attribute] | None = None,
    *,
    attributes: PrintAttributes = print_attr_dict,
    results: bool = True,
) -> None:
    """` {attributes} : T, U -> R`, what stands behind the operands; the types are those of all if none are given."""
    attributes(printer, op, hidden)
    say(printer, " : ", typed(op.operands) if types is None else [*types])
    if op.results and results:
        say(printer, " -> ", typed(op.results))


# --- Operands whose order the RFCs vary ----------------------------------------------------------


def known_type(parser: Parser, operand: UnresolvedOperand) -> Attribute | None:
    """The type of an operand that is already defined, None for a forward reference."""
    values = parser.ssa_values.get(operand.operand_name)
    if values is None or operand.index >= len(values):
        return None
    return values[operand.index].type


def assign_types(
    parser: Parser, operands: Sequence[UnresolvedOperand], types: Sequence[Attribute]
) -> list[SSAValue]:
    """Resolve operands against a type list that may be written in another order.

    Types go to the operands in order if that fits what is known of them, else each operand whose
    type is known takes an equal type of the list and the rest is distributed in order.
    """
    if len(operands) != len(types):
        parser.raise_error(f"expected {len(operands)} operand types but had {len(types)}")
    known = [known_type(parser, operand) for operand in operands]
    pairs = zip(known, types, strict=True)
    if all(have is None or have == written for have, written in pairs):
        assigned = list(types)
    else:
        left, assigned = list(types), list[Attribute | None]()
        for have in known:
            assigned.append(have if have in left else None)
            if have in left:
                left.remove(have)
        assigned = [left.pop(0) if have is None else have for have in assigned]
    return [parser.resolve_operand(o, t) for o, t in zip(operands, assigned, strict=True)]
