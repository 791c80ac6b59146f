"""Reading and printing what the XeGPU ops share.

Printed: today's upstream text (offsets on the memory op, properties in `<{..}>`). Read besides: the
generation before it (offsets on create_nd_tdesc, hints in `{..}`, `mode = vc`, a_layout / srcMap) and
the RFC's (`tensor_desc<..>`, `L1 = cached`, `into`, ranges `%o:2`, types in another order), wherever the
types leave one reading only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import ClassVar, TypeVar

from xdsl.dialects.builtin import DenseArrayBase, IndexType, IntegerAttr, VectorType, i32, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.str_enum import StrEnum

from tilewright.dialects.attribute_fields import ints, parse_int_array, parse_shape
from tilewright.dialects.fields import Op, OpT
from tilewright.dialects.xegpu.attrs import (
    CacheHint,
    CacheHintAttr,
    FenceOpFlush,
    FenceOpFlushAttr,
    FenceScope,
    FenceScopeAttr,
    MemorySpace,
    MemorySpaceAttr,
    parse_int,
)
from tilewright.dialects.xegpu.layouts import LayoutAttr, SgMapAttr, SliceAttr
from tilewright.dialects.xegpu.types import RFC_ELEMENTS, MemDescType, NbarrierType, TensorDescType
from tilewright.dialects.xetile import assembly as xetile
from tilewright.dialects.xetile.assembly import (
    AttrDict,
    IndexList,
    parse_optional_arrow,
    parse_rest_of_list,
)
from tilewright.frozen import field, record

# --- Types -----------------------------------------------------------------------------------

_BARE_TYPES: dict[str, type[TensorDescType] | type[MemDescType] | type[NbarrierType]] = {
    "tensor_desc": TensorDescType,
    "mem_desc": MemDescType,
    "matrix_desc": MemDescType,
    "nbarrier": NbarrierType,
}


def parse_type(parser: Parser) -> Attribute:
    """A type, or the RFC's bare `tensor_desc<..>`, `nbarrier`, `uint64`, `vector<..xfloat>`."""
    word = parser.parse_optional_keyword_in({*_BARE_TYPES, *RFC_ELEMENTS, "vector", "Vector"})
    if word is None:
        return parser.parse_type()
    if word in _BARE_TYPES:
        cls = _BARE_TYPES[word]
        return cls.new(cls.parse_parameters(parser))
    if word in RFC_ELEMENTS:
        return RFC_ELEMENTS[word]
    start = parser.pos
    with parser.in_angle_brackets():
        shape, element = parse_shape(parser, RFC_ELEMENTS)
    if any(dim < 1 for dim in ints(shape)):
        parser.raise_error("vectors have static, positive shapes", start, parser.pos)
    return VectorType(element, shape)


def parse_types(parser: Parser) -> list[Attribute]:
    """`T, T, ...`, with or without parentheses; one pair of parentheses may enclose them all."""
    return xetile.parse_types(parser, parse_type)


# --- Attribute dictionaries --------------------------------------------------------------------

_HINT_NAMES = {f"{prefix}{n}{suffix}" for prefix in "Ll" for n in "123" for suffix in ("", "_hint")}

_OTHER_NAMES = {
    "a_layout": "layout_a",
    "b_layout": "layout_b",
    "c_layout": "layout_cd",
    "cd_layout": "layout_cd",
    "layout_c": "layout_cd",
    "srcMap": "input_layout",
    "resMap": "target_layout",
    "source_layout": "input_layout",
    "result_layout": "target_layout",
    "scope": "fence_scope",
    "subgroupBlockIO": "subgroup_block_io",
}


def _canonical_name(name: str) -> str:
    if name in _HINT_NAMES:
        return f"l{name[1]}_hint"
    return _OTHER_NAMES.get(name, name)


def _hint(parser: Parser) -> Attribute:
    attribute = parser.parse_optional_attribute()
    if attribute is not None:
        return attribute
    return CacheHintAttr(parser.parse_str_enum(CacheHint))


def _permutation(parser: Parser) -> Attribute:
    """`[1, 0]`, `array<i64: 1, 0>` or `[1 : i64, 0 : i64]`, one representation for all."""
    return DenseArrayBase.from_list(i64, list(ints(parse_int_array(parser))))


Word = TypeVar("Word", bound=StrEnum)


def _enum_word(
    enum: type[Word], attribute: Callable[[Word], Attribute]
) -> Callable[[Parser], Attribute]:
    """`gpu`, `"gpu"` or the attribute itself."""

    def parse(parser: Parser) -> Attribute:
        start = parser.pos
        text = parser.parse_optional_str_literal()
        if text is None:
            value = parser.parse_optional_attribute()
            if value is not None:
                return value
            text = parser.parse_identifier()
        try:
            return attribute(enum("slm" if text == "shared" else text))
        except ValueError:
            known = ", ".join(enum)
            parser.raise_error(f"'{text}' is not one of {known}", start, parser.pos)

    return parse


_READERS: dict[str, Callable[[Parser], Attribute]] = {
    "l1_hint": _hint,
    "l2_hint": _hint,
    "l3_hint": _hint,
    "transpose": _permutation,
    "transpose_bit_width": lambda parser: IntegerAttr(parse_int(parser).value, i32),
    "chunk_size": parse_int,
    "offset_align_byte": parse_int,
    "memory_kind": _enum_word(MemorySpace, MemorySpaceAttr),
    "fence_scope": _enum_word(FenceScope, FenceScopeAttr),
    "fence_op_flush": _enum_word(FenceOpFlush, FenceOpFlushAttr),
}


def parse_attr_dict(parser: Parser, into: AttrDict | None = None) -> AttrDict:
    """`{name = attr, flag, #layout}` and `<{..}>`, any number of times."""
    return xetile.parse_attr_dict(parser, into, parse_entry)


def parse_entry(parser: Parser, result: AttrDict) -> None:
    name = xetile.parse_entry(parser, result, (LayoutAttr, SliceAttr, SgMapAttr), _canonical_name)
    if name is None:
        return
    if name == "mode":  # the RFC's and the first implementation's `mode = vc`: levels carry it now
        if parser.parse_optional_attribute() is None:
            parser.parse_identifier()
        return
    reader = _READERS.get(name)
    result.named[name] = parser.parse_attribute() if reader is None else reader(parser)


def print_attr_dict(printer: Printer, attributes: Mapping[str, Attribute]) -> None:
    """`{a = .., b}` in alphabetical order, as MLIR keeps dictionaries; nothing when empty."""
    if attributes:
        printer.print_string(" ")
        printer.print_attr_dict(dict(sorted(attributes.items())))


def _shown(op: IRDLOperation, hidden: Iterable[str]) -> dict[str, Attribute]:
    drop = {*hidden, "operandSegmentSizes"}
    return {k: v for k, v in op.properties.items() if k not in drop}


def print_merged(printer: Printer, op: IRDLOperation, hidden: Iterable[str] = ()) -> None:
    """Properties and discardable attributes in one `{..}`."""
    print_attr_dict(printer, {**_shown(op, hidden), **op.attributes})


def print_properties(printer: Printer, op: IRDLOperation, hidden: Iterable[str] = ()) -> None:
    """Properties in `<{..}>`, then discardable attributes in `{..}`."""
    if shown := _shown(op, hidden):
        printer.print_string(" ")
        with printer.in_angle_brackets():
            printer.print_attr_dict(dict(sorted(shown.items())))
    print_attr_dict(printer, op.attributes)


print_op = partial(xetile.print_op, attributes=print_properties)
print_rest = partial(xetile.print_rest, attributes=print_properties)


# --- Operands ----------------------------------------------------------------------------------


@record
class OpText:
    """What stands between an op's name and its end, before it is given a meaning.

    `%a[%x, 0], %b {..} : T, U -> R`: operands in order, the index list behind the operand with number
    `indexed` (None if there is none), attributes, operand types and result types.
    """

    operands: list[UnresolvedOperand] = field(default_factory=list[UnresolvedOperand])
    indices: IndexList | None = None
    indexed: int | None = None
    attrs: AttrDict = field(default_factory=AttrDict)
    types: list[Attribute] = field(default_factory=list[Attribute])
    results: list[Attribute] = field(default_factory=list[Attribute])

    def resolve(self, parser: Parser) -> list[SSAValue]:
        """The operands, each with its type; the list of types may be in another order."""
        return xetile.assign_types(parser, self.operands, self.types)


def parse_operands(parser: Parser, text: OpText) -> None:
    """`%a[%x, 0], %b`: operands, one of which may have an index list behind it."""

    def one() -> None:
        text.operands.append(parser.parse_unresolved_operand())
        if parser.parse_optional_punctuation("[") is None:
            return
        if text.indices is not None:
            parser.raise_error("offsets are given twice")
        text.indices = parse_rest_of_list(parser)
        text.indexed = len(text.operands) - 1

    one()
    # The RFC's table ends `prefetch_nd $tdesc,` and puts no comma before some operands.
    while parser.parse_optional_punctuation(",") is not None:
        one()


def parse_op(parser: Parser, results: bool) -> OpText:
    """The common shape `operands attr-dict : types (-> type)?`; attributes may also come last."""
    text = OpText()
    parse_attr_dict(parser, text.attrs)
    parse_operands(parser, text)
    parse_attr_dict(parser, text.attrs)
    parse_types_of(parser, text, results)
    return text


def parse_types_of(parser: Parser, text: OpText, results: bool) -> None:
    """`: types (-> type)?`; attributes may also come last."""
    parser.parse_punctuation(":", " before the operand types")
    text.types = parse_types(parser)
    if results and parse_optional_arrow(parser):
        text.results = [parse_type(parser)]
    parse_attr_dict(parser, text.attrs)


class PlainOp(Op):
    """An op whose text is its operands, attributes and types: `%a, %b {..} : T, U -> R`."""

    EXPECTS: ClassVar[str]
    """What its operands are, in a message."""

    @classmethod
    def parse(cls, parser: Parser) -> Operation:
        text = parse_op(parser, results=True)
        result = one_result(parser, text)
        no_bare(parser, text)
        values = text.resolve(parser)
        if len(values) != len(cls.get_irdl_definition().operands) or text.indices is not None:
            parser.raise_error(f"expected {cls.EXPECTS}")
        return text.attrs.build(cls, values, [result])

    def print(self, printer: Printer) -> None:
        print_op(printer, self)


def build_access(
    cls: type[OpT], parser: Parser, text: OpText, kind: type[TensorDescType] | type[MemDescType]
) -> OpT:
    """An op on a descriptor of a kind and the offsets behind it, which may have a value before them.

    The RFC writes value and descriptor in both orders.
    """
    definition = cls.get_irdl_definition()
    count = len(definition.operands) - 1
    results = [one_result(parser, text)] if definition.results else []
    drop_index_types(text, len(text.types) - count)
    values = text.resolve(parser)
    at = next((n for n, v in enumerate(values) if isinstance(v.type, kind)), None)
    name = kind.name.removeprefix("xegpu.")
    if at is None or len(values) != count:
        parser.raise_error(f"expected {'a value and ' * (count - 1)}a {name}")
    if text.indexed not in (None, at):
        parser.raise_error(f"the offsets must follow the {name}")
    if len(text.attrs.bare) > 1:
        parser.raise_error(f"{len(text.attrs.bare)} attributes without a name, expected one layout")
    for layout in text.attrs.bare:
        text.attrs.named.setdefault("layout", layout)
    static, offsets = dict[str, Attribute](), list[SSAValue]()
    if text.indices is not None:
        static["const_offsets"] = text.indices.attribute()
        offsets = text.indices.resolve(parser)
    others = [v for n, v in enumerate(values) if n != at]
    return text.attrs.build(cls, [*others, values[at], offsets], results, static)


def one_result(parser: Parser, text: OpText) -> Attribute:
    if len(text.results) != 1:
        parser.raise_error("expected '->' and the result type")
    return text.results[0]


def no_bare(parser: Parser, text: OpText) -> None:
    if text.attrs.bare:
        parser.raise_error(f"unexpected attribute without a name: {text.attrs.bare[0]}")


def drop_index_types(text: OpText, count: int) -> None:
    """Remove up to `count` trailing `index` types: the RFC writes those of offsets out."""
    for _ in range(count):
        if text.types and isinstance(text.types[-1], IndexType):
            text.types.pop()
