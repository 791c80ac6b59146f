"""linalg: every named op is read as the `linalg.generic` that it stands for.

    linalg.batch_matmul ins(%a, %b : ..) outs(%c : ..)
        ->   linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, ..],
                             iterator_types = ["parallel", ..]} ins(%a, %b : ..) outs(%c : ..) {..}

One form is left for the executor and for passes, which decide by the maps and the body alone; it is what is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from xdsl.dialects import linalg, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    IntegerAttr,
    ShapedType,
    TensorType,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.irdl import IRDLOperation, irdl_attr_definition
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import Word
from tilewright.dialects.directives import parse_names, parse_result_types
from tilewright.dialects.nesting import terminator
from tilewright.dialects.upstream import linalg_composed as composed
from tilewright.dialects.upstream import linalg_names as names
from tilewright.dialects.upstream.complete import (
    add_attributes,
    add_ops,
    add_verifier,
    set_custom,
    set_verifier,
)
from tilewright.dialects.upstream.linalg_bodies import named_body
from tilewright.dialects.upstream.linalg_names import NamedOp


@irdl_attr_definition
class ElementwiseKindAttr(Word):
    name = "linalg.elementwise_kind"
    WORDS = sorted((names.KINDS.keys() - {"copy", "max", "min"}) | {"max_signed", "min_signed"})


@irdl_attr_definition
class TypeFnAttr(Word):
    name = "linalg.type_fn"
    WORDS = ("cast_signed", "cast_unsigned")


_CLAUSES = ("ins", "outs", "indexing_maps", "kind", "cast")
"""What may stand before the end of the operands."""


class _Reader:
    """The text of one op: its clauses by name, its operands, and what its results are."""

    def __init__(self, parser: Parser | None = None) -> None:
        self._parser = parser
        self.found: dict[str, Attribute] = {}
        self.ins: Sequence[SSAValue] = ()
        self.outs: Sequence[SSAValue] = ()

    @property
    def parser(self) -> Parser:
        """What there is none of for an op in its generic form."""
        assert self._parser is not None
        return self._parser

    def clauses(self, *more: str) -> None:
        """`{attributes}`, `name = attribute`, ins and outs, in any order."""
        parser = self.parser
        while True:
            words = ("attrs", *more) if self.outs else (*_CLAUSES, "attrs", *more)
            word = next((w for w in words if parser.parse_optional_keyword(w) is not None), None)
            if word is None:
                # A dictionary, or the name of one: `linalg.generic #trait ins(..)`.
                attributes = None if self.outs else parser.parse_optional_attribute()
                if not isinstance(attributes, DictionaryAttr):
                    return self._complete()
                self.found.update(attributes.data)
            elif word in ("ins", "outs"):
                setattr(self, word, self._operands())
            else:
                parser.parse_punctuation("=")
                value = parser.parse_attribute()
                self.found.update(value.data if word == "attrs" else {word: value})  # pyright: ignore

    def _complete(self) -> None:
        if not self.outs:
            raise VerifyException("a structured op needs outs(%value, .. : type, ..)")

    def _operands(self) -> Sequence[SSAValue]:
        parser, at = self.parser, self.parser.pos
        with parser.in_parens():
            values = parse_names(parser)
            parser.parse_punctuation(":")
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        return parser.resolve_operands(values, types, at)

    def payload(self) -> Callable[..., Operation] | None:
        """`{ math.exp }`: the op that is the body, where the text has that in short."""
        parser = self.parser
        if parser.parse_optional_punctuation("{") is None:
            return None
        kind = parser._get_op_by_name(parser.parse_identifier())  # pyright: ignore[reportPrivateUsage]
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation("}")
        known = cast(type[IRDLOperation], kind).get_irdl_definition().properties

        def make(*operands: SSAValue, type: Attribute) -> Operation:
            made = kind.create(
                operands=operands,
                result_types=[type],
                properties={n: a for n, a in attributes.items() if n in known},
            )
            for name, each in known.items():
                default = getattr(each, "default_value", None)
                if default is not None:
                    made.properties.setdefault(name, default)
            made.verify(verify_nested_ops=False)
            return made

        return make

    def body(
        self,
        make: Callable[..., Operation] | None,
        reads: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
    ) -> Region:
        """`(%x: f32, %y: f32) { .. }`, or what a `payload` makes of those elements that it `reads`."""
        if make is None:
            parser = self.parser
            one = parser.parse_argument
            return parser.parse_region(
                parser.parse_comma_separated_list(parser.Delimiter.PAREN, one)
            )
        block = Block(arg_types=self.elements)
        made = make(*reads(block.args), type=self.elements[-1])
        block.add_ops([made, YieldOp(*made.results)])
        return Region(block)

    def results(self) -> Sequence[Attribute]:
        """The types behind the arrow; without one those of the tensors that are written."""
        written = [v.type for v in self.outs if isinstance(v.type, TensorType)]
        return parse_result_types(self.parser) or written

    @property
    def operands(self) -> list[SSAValue]:
        return [*self.ins, *self.outs]

    @property
    def elements(self) -> list[Attribute]:
        return [_element(v.type) for v in self.operands]

    def rank(self, value: SSAValue) -> int:
        return value.type.get_num_dims() if isinstance(value.type, ShapedType) else 0

    def maps(self) -> Sequence[AffineMap]:
        """The maps that the text gives; none where it gives none."""
        given = self.found.get("indexing_maps")
        return [m.data for m in cast(ArrayAttr[AffineMapAttr], given)] if given else ()

    def numbers(self, name: str) -> Sequence[int]:
        """A list of whole numbers, as an array or as dense elements."""
        match self.found.get(name):
            case (DenseIntOrFPElementsAttr() | DenseArrayBase()) as dense:
                return [int(n) for n in cast(Any, dense).get_values()]
            case ArrayAttr() as array:
                return [n.value.data for n in array if isinstance(n, IntegerAttr)]
            case _:
                return ()

    def generic(
        self, maps: Sequence[AffineMap], reductions: Any, body: Region, results: Sequence[Attribute]
    ) -> Operation:
        """The op in its one form."""
        written = [v.type for v in self.outs if isinstance(v.type, TensorType)]
        if list(results) != written:
            raise VerifyException(f"expected results of the types written, ({_list(written)})")
        kinds = ["reduction" if d in reductions else "parallel" for d in range(maps[-1].num_dims)]
        return GenericOp(
            self.ins, self.outs, body, ArrayAttr(map(AffineMapAttr, maps)),
            ArrayAttr(IteratorTypeAttr(IteratorType(kind)) for kind in kinds), results,
        )  # fmt: skip


def _element(type: Attribute) -> Attribute:
    return cast(Any, type).get_element_type() if isinstance(type, ShapedType) else type


def _accesses(name: str, reader: _Reader) -> NamedOp:
    """How a named op accesses its operands, and what it does with their elements."""
    rank, given = reader.rank(reader.outs[0]), reader.maps()
    same = AffineMap.identity(rank)
    if name in ("broadcast", "transpose"):
        op = NamedOp([_moved(name, rank, reader), same], frozenset(), "first", None)
    elif name == "fill":
        op = NamedOp([AffineMap(rank, 0, ()), same], frozenset(), "first", None)
    elif name == "map":
        op = NamedOp([same] * len(reader.operands), frozenset())
    elif name == "reduce":
        op = _reduced(reader)
    elif name in names.KINDS:
        op = names.elementwise(name, rank, given)
    elif name in names.CONTRACTIONS or name == "contract":
        op = names.contraction(name, given)
    elif name in names.WINDOWS:
        slides = reader.rank(reader.ins[1]) if name.startswith("pooling") else 3
        steps = [reader.numbers(n) or [1] * slides for n in ("strides", "dilations")]
        op = names.windows(name, *steps)
    else:
        raise VerifyException(f"{name} is not known")
    if len(op.maps) != len(reader.operands):
        what = "indexing_maps for" if given else "operands, not"
        raise VerifyException(f"expected {len(op.maps)} {what} {len(reader.operands)}")
    return op


def _moved(name: str, rank: int, reader: _Reader) -> AffineMap:
    """linalg.broadcast adds dimensions; linalg.transpose has those of the input in another order."""
    numbers = reader.numbers(_NUMBERS[name])
    at = [d for d in range(rank) if d not in numbers]
    if name == "transpose":  # dimension d of the result is dimension numbers[d] of the input
        if sorted(numbers) != [*range(rank)]:
            raise VerifyException(f"permutation {list(numbers)} is not valid for rank {rank}")
        at = sorted(range(rank), key=lambda d: numbers[d])
    return AffineMap(rank, 0, tuple(map(AffineDimExpr, at)))


def _reduced(reader: _Reader) -> NamedOp:
    rank, away = reader.rank(reader.ins[0]), reader.numbers("dimensions")
    if not set(away).issubset(range(rank)):
        raise VerifyException(f"expected dimensions from 0 to {rank - 1}, got {[*away]}")
    kept = AffineMap(rank, 0, tuple(AffineDimExpr(d) for d in range(rank) if d not in away))
    maps = [*[AffineMap.identity(rank)] * len(reader.ins), *[kept] * len(reader.outs)]
    return NamedOp(maps, frozenset(away))


def _named(name: str) -> Callable[[Any, Parser], Operation]:
    """The parser of a named op whose body is a table's."""

    def parse(_: Any, parser: Parser) -> Operation:
        reader, at = _Reader(parser), name
        reader.clauses(*filter(None, [_NUMBERS.get(name)]))
        kind = reader.found.get("kind")
        if at == "elementwise" and isinstance(kind, Word):
            at = kind.word.data.removesuffix("_signed")
        op, fn = _accesses(at, reader), reader.found.get("cast")
        unsigned = at.endswith("_unsigned") or (
            isinstance(fn, Word) and fn.word.data == "cast_unsigned"
        )
        body = named_body(reader.elements, op, unsigned)
        return reader.generic(op.maps, op.reductions, body, reader.results())

    return parse


def _map(_: Any, parser: Parser) -> Operation:
    """An op, or a body of its own, on elements."""
    reader = _Reader(parser)
    make = reader.payload()
    reader.clauses()
    body, count = reader.body(make, lambda args: args[:-1]), len(reader.ins)
    if len(body.block.args) == count:
        body.block.insert_arg(reader.elements[-1], count)
    return reader.generic(_accesses("map", reader).maps, (), body, reader.results())


def _reduce(_: Any, parser: Parser) -> Operation:
    """`dimensions` of the inputs combined, by an op or by a body of its own."""
    reader = _Reader(parser)
    make = reader.payload()
    reader.clauses("dimensions")
    at = len(reader.ins)  # as MLIR has it, what was there comes first
    body = reader.body(make, lambda args: [*args[at:], *args[:at]])
    op = _accesses("reduce", reader)
    return reader.generic(op.maps, op.reductions, body, reader.results())


def _create(name: str) -> Callable[..., Operation]:
    """What makes a named op of its generic form, which has the body."""

    def create(
        _: Any, *, operands: Sequence[SSAValue], result_types: Sequence[Attribute],
        properties: Mapping[str, Attribute], attributes: Mapping[str, Attribute],
        regions: Sequence[Region], **_rest: Any,
    ) -> Operation:  # fmt: skip
        reader = _Reader()
        reader.found = {**attributes, **properties}
        inputs = next(iter(reader.numbers("operandSegmentSizes")), len(operands) - 1)
        if name == "reduce":
            inputs = len(operands) // 2
        reader.ins, reader.outs = operands[:inputs], operands[inputs:]
        if not reader.outs or len(regions) != 1:
            raise VerifyException("expected inputs, outputs and a body")
        at = "map" if name == "elementwise" else name
        op = _accesses(at, reader)
        return reader.generic(reader.maps() or op.maps, op.reductions, regions[0], result_types)

    return create


def _generic(_: Any, parser: Parser) -> Operation:
    """As stock, and with the types of several results in parentheses."""
    reader = _Reader(parser)
    reader.clauses()
    body = parser.parse_region()
    kinds = [
        getattr(kind, "data", None) for kind in cast(Any, reader.found.get("iterator_types", ()))
    ]
    maps = reader.maps()
    if not maps or len(maps) != len(reader.operands):
        raise VerifyException("expected an indexing_map for each operand")
    if len(kinds) != maps[0].num_dims or not {"parallel", "reduction"}.issuperset(kinds):
        raise VerifyException("expected iterator_types: parallel or reduction of each loop")
    reductions = [d for d, kind in enumerate(kinds) if kind == "reduction"]
    return reader.generic(maps, reductions, body, reader.results())


_NUMBERS = {"broadcast": "dimensions", "transpose": "permutation"}
"""What says which dimensions these ops move."""
_TABLE = (
    *(*names.CONTRACTIONS, *names.ELEMENTWISE, *names.WINDOWS, *_NUMBERS),
    *("contract", "elementwise", "fill"),
)
_PARSERS: dict[str, Callable[[Any, Parser], Operation]] = {
    **{name: _named(name) for name in _TABLE},
    "generic": _generic,
    "map": _map,
    "reduce": _reduce,
}


def _reads_only(name: str) -> type[IRDLOperation]:
    """The class of a name that stock xDSL lacks: its text is a generic op."""
    fields = {
        "name": f"linalg.{name}",
        "__doc__": "Reads as `linalg.generic`.",
        "__module__": __name__,
    }
    return type("NamedOp", (GenericOp,), fields)


def complete_tensor() -> Dialect:
    """The stock dialect and the ops that it lacks."""
    add_ops(tensor.Tensor, composed.TENSOR)
    set_verifier(tensor.PadOp, composed.verify_pad)
    set_verifier(tensor.ReshapeOp, composed.verify_reshape)
    add_verifier(tensor.CastOp, composed.verify_cast)
    return tensor.Tensor


def _verify_body(op: GenericOp) -> None:
    """The body has an element of each operand, and yields one of each output."""
    block, elements = op.body.block, [_element(v.type) for v in op.operands]
    given = [a.type for a in block.args]
    if given != elements:
        raise VerifyException(
            f"expected the body to take ({_list(elements)}), got ({_list(given)})"
        )
    made, wanted = terminator(block).operand_types, elements[len(op.inputs) :]
    if list(made) != wanted:
        raise VerifyException(f"expected the body to yield ({_list(wanted)}), got ({_list(made)})")


def _list(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types))


def complete() -> Dialect:
    """The stock dialect, whose named ops read as generic ones."""
    stock = {op.name.removeprefix("linalg."): op for op in linalg.Linalg.operations}
    missing = {name: _reads_only(name) for name in _PARSERS if name not in stock}
    for name, parse in _PARSERS.items():
        kind = cast(type[IRDLOperation], stock.get(name) or missing[name])
        set_custom(kind, parse, kind.print)
        if name != "generic":
            kind.create = classmethod(_create(name))  # pyright: ignore
    add_ops(linalg.Linalg, [*missing.values(), *composed.LINALG])
    add_verifier(GenericOp, _verify_body)
    add_attributes(linalg.Linalg, [ElementwiseKindAttr, TypeFnAttr])
    return linalg.Linalg
