"""linalg: every named op is read as the `linalg.generic` that it stands for.

    linalg.batch_matmul ins(%a, %b : ..) outs(%c : ..)
        ->   linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, ..],
                             iterator_types = ["parallel", ..]} ins(%a, %b : ..) outs(%c : ..) {..}

One form is left for the executor and for passes, which decide by the maps and the body alone; it is what is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from xdsl.dialects import arith, linalg, math, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    IntegerType,
    ShapedType,
    StringAttr,
    TensorType,
)
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, YieldOp
from xdsl.ir import Attribute, Block, Dialect, Operation, ParametrizedAttribute, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.irdl import IRDLOperation, irdl_attr_definition, param_def
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer

from tilewright.dialects.directives import parse_names
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream import linalg_composed as composed
from tilewright.dialects.upstream import linalg_names as names
from tilewright.dialects.upstream.arith import cast_to
from tilewright.dialects.upstream.complete import add_attributes, add_ops, set_custom
from tilewright.dialects.upstream.linalg_names import NamedOp

Element = Callable[..., Operation]
_FLOAT: dict[str, Element] = {
    "abs": math.AbsFOp,
    "add": arith.AddfOp,
    "ceil": math.CeilOp,
    "div": arith.DivfOp,
    "erf": math.ErfOp,
    "exp": math.ExpOp,
    "floor": math.FloorOp,
    "log": math.LogOp,
    "max": arith.MaximumfOp,
    "min": arith.MinimumfOp,
    "mul": arith.MulfOp,
    "negf": arith.NegfOp,
    "powf": math.PowFOp,
    "round": math.RoundOp,
    "rsqrt": math.RsqrtOp,
    "select": arith.SelectOp,
    "sqrt": math.SqrtOp,
    "sub": arith.SubfOp,
    "tanh": math.TanhOp,
}
_INTEGER: dict[str, Element] = {
    "abs": math.AbsIOp,
    "add": arith.AddiOp,
    "div": arith.DivSIOp,
    "div_unsigned": arith.DivUIOp,
    "max": arith.MaxSIOp,
    "max_unsigned": arith.MaxUIOp,
    "min": arith.MinSIOp,
    "min_unsigned": arith.MinUIOp,
    "mul": arith.MuliOp,
    "select": arith.SelectOp,
    "sub": arith.SubiOp,
}
_TRUTH: dict[str, Element] = {
    "add": arith.OrIOp,
    "max": arith.OrIOp,
    "mul": arith.AndIOp,
    "select": arith.SelectOp,
}
"""What MLIR takes sums and products of truth values for."""


class _Word(ParametrizedAttribute):
    """`#linalg.elementwise_kind<add>`: one word."""

    word: StringAttr = param_def()

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> list[Attribute]:
        with parser.in_angle_brackets():
            return [StringAttr(parser.parse_identifier())]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.word.data)


@irdl_attr_definition
class ElementwiseKindAttr(_Word):
    name = "linalg.elementwise_kind"


@irdl_attr_definition
class TypeFnAttr(_Word):
    name = "linalg.type_fn"


_CLAUSES = ("ins", "outs", "indexing_maps", "kind", "cast")
"""What may stand before the end of the operands."""


class _Reader:
    """The text of one op: its clauses by name, its operands, and what its results are."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.found: dict[str, Attribute] = {}
        self.ins: Sequence[SSAValue] = ()
        self.outs: Sequence[SSAValue] = ()

    def clauses(self, *more: str) -> None:
        """`{attributes}`, `name = attribute`, ins and outs, in any order."""
        parser = self.parser
        while True:
            words = ("attrs", *more) if self.outs else (*_CLAUSES, "attrs", *more)
            word = next((w for w in words if parser.parse_optional_keyword(w) is not None), None)
            if word is None:
                if self.outs or not (attributes := parser.parse_optional_attr_dict()):
                    return self._complete()
                self.found.update(attributes)
            elif word in ("ins", "outs"):
                setattr(self, word, self._operands())
            else:
                parser.parse_punctuation("=")
                value = parser.parse_attribute()
                self.found.update(value.data if word == "attrs" else {word: value})  # pyright: ignore

    def _complete(self) -> None:
        if not self.outs:
            self.parser.raise_error("a structured op needs outs(%value, .. : type, ..)")

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
            return made

        return make

    def body(self) -> Region:
        """`(%x: f32, %y: f32) { .. }`."""
        parser = self.parser
        arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
        return parser.parse_region(arguments)

    def results(self) -> Sequence[Attribute]:
        """The types behind the arrow; without one those of the tensors that are written."""
        parser = self.parser
        if parser.parse_optional_punctuation("->") is None:
            return [v.type for v in self.outs if isinstance(v.type, TensorType)]
        types = parser.parse_optional_comma_separated_list(
            parser.Delimiter.PAREN, parser.parse_type
        )
        return [parser.parse_type()] if types is None else types

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
            case DenseIntOrFPElementsAttr() as dense:
                return [int(cast(int, n)) for n in dense.get_values()]
            case ArrayAttr() as array:
                return [n.value.data for n in array if isinstance(n, IntegerAttr)]
            case _:
                return ()

    def generic(self, maps: Sequence[AffineMap], reductions: Any, body: Region) -> Operation:
        """The op in its one form."""
        results = self.results()
        written = [v.type for v in self.outs if isinstance(v.type, TensorType)]
        if list(results) != written:
            self.parser.raise_error(f"expected results of the types written, {written}")
        kinds = ["reduction" if d in reductions else "parallel" for d in range(maps[-1].num_dims)]
        return GenericOp(
            self.ins, self.outs, body, ArrayAttr(map(AffineMapAttr, maps)),
            ArrayAttr(IteratorTypeAttr(IteratorType(kind)) for kind in kinds), results,
        )  # fmt: skip


def _element(type: Attribute) -> Attribute:
    return cast(Any, type).get_element_type() if isinstance(type, ShapedType) else type


def _named_body(reader: _Reader, op: NamedOp, unsigned: bool) -> Region:
    """The body of a named op: a function of the inputs in the result's type, combined with what was there."""
    elements, parser = reader.elements, reader.parser
    block, type = Block(arg_types=elements), elements[-1]
    casts = op.function not in ("select", "first")
    values = [
        _cast(block, a, type, unsigned) if casts else a for a in block.args[: len(reader.ins)]
    ]
    if op.function == "mul" and len(values) == 4:  # and the zero points of both
        pairs = (values[::2], values[1::2])
        values = [v for p in pairs if (v := _apply(block, "sub", p, type)) is not None]
    if (result := _apply(block, op.function, values, type)) is None:
        parser.raise_error(f"there is no {op.function} of {type}")
    result = _cast(block, result, type, unsigned)
    if op.reduction is not None:
        combined = _apply(block, op.reduction, [block.args[-1], result], type)
        if combined is None:
            parser.raise_error(f"there is no {op.reduction} of {type}")
        result = combined
    block.add_op(YieldOp(result))
    return Region(block)


def _apply(
    block: Block, function: str, values: Sequence[SSAValue], type: Attribute
) -> SSAValue | None:
    whole = isinstance(type, IntegerType)
    if function == "first":
        return values[0]
    if function == "square":
        function, values = "mul", [*values, *values]
    elif function == "reciprocal" and not whole:
        one = arith.ConstantOp(number_attr(type, 1))
        block.add_op(one)
        function, values = "div", [one.result, *values]
    table = _TRUTH if type == IntegerType(1) else _INTEGER if whole else _FLOAT
    if function not in table:
        return None
    made = table[function](*values)
    block.add_op(made)
    return made.results[0]


def _cast(block: Block, value: SSAValue, type: Attribute, unsigned: bool) -> SSAValue:
    """A value in another element type, as named ops cast their operands."""
    if value.type == type:
        return value
    made = cast_to(value, type, unsigned=unsigned)
    block.add_op(made)
    return made.results[0]


def _from_table(name: str) -> Callable[[Any, Parser], Operation]:
    def parse(_: Any, parser: Parser) -> Operation:
        reader = _Reader(parser)
        reader.clauses()
        shape, given, at = reader.rank(reader.outs[0]), reader.maps(), name
        if at == "elementwise":
            kind = reader.found.get("kind")
            at = kind.word.data.removesuffix("_signed") if isinstance(kind, _Word) else at
        if at in names.ELEMENTWISE or at in ("max_unsigned", "min_unsigned"):
            op = names.elementwise(at, shape, given)
        elif at in names.CONTRACTIONS or at == "contract":
            op = names.contraction(at, given)
        elif at in names.WINDOWS:
            slides = reader.rank(reader.ins[1]) if at.startswith("pooling") else 3
            op = names.windows(
                at, reader.numbers("strides") or [1] * slides,
                reader.numbers("dilations") or [1] * slides,
            )  # fmt: skip
        else:
            parser.raise_error(f"linalg.{name} of {at} is not known")
        if len(op.maps) != len(reader.operands):
            parser.raise_error(f"linalg.{name} takes {len(op.maps)} operands")
        fn = reader.found.get("cast")
        unsigned = at.endswith("_unsigned") or (
            isinstance(fn, _Word) and fn.word.data == "cast_unsigned"
        )
        return reader.generic(op.maps, op.reductions, _named_body(reader, op, unsigned))

    return parse


def _fill(_: Any, parser: Parser) -> Operation:
    reader = _Reader(parser)
    reader.clauses()
    rank = reader.rank(reader.outs[0])
    op = NamedOp([AffineMap(rank, 0, ()), AffineMap.identity(rank)], frozenset(), "first", None)
    return reader.generic(op.maps, (), _named_body(reader, op, False))


def _map(_: Any, parser: Parser) -> Operation:
    """An op, or a body of its own, on elements."""
    reader = _Reader(parser)
    make = reader.payload()
    reader.clauses()
    if make is None:
        body = reader.body()
        if len(body.block.args) == len(reader.ins):
            body.block.insert_arg(reader.elements[-1], len(reader.ins))
    else:
        block = Block(arg_types=reader.elements)
        made = make(*block.args[:-1], type=reader.elements[-1])
        block.add_ops([made, YieldOp(*made.results)])
        body = Region(block)
    same = AffineMap.identity(reader.rank(reader.outs[0]))
    return reader.generic([same] * len(reader.operands), (), body)


def _reduce(_: Any, parser: Parser) -> Operation:
    """`dimensions` of the inputs combined, by an op or by a body of its own."""
    reader = _Reader(parser)
    make = reader.payload()
    reader.clauses("dimensions")
    if make is None:
        body = reader.body()
    else:
        block = Block(arg_types=reader.elements)
        at = len(reader.ins)  # as MLIR has it, what was there comes first
        made = make(*block.args[at:], *block.args[:at], type=reader.elements[-1])
        block.add_ops([made, YieldOp(*made.results)])
        body = Region(block)
    rank, away = reader.rank(reader.ins[0]), reader.numbers("dimensions")
    kept = AffineMap(rank, 0, tuple(AffineDimExpr(d) for d in range(rank) if d not in away))
    maps = [*[AffineMap.identity(rank)] * len(reader.ins), *[kept] * len(reader.outs)]
    return reader.generic(maps, away, body)


def _moved(word: str) -> Callable[[Any, Parser], Operation]:
    """linalg.broadcast adds dimensions; linalg.transpose has those of the input in another order."""

    def parse(_: Any, parser: Parser) -> Operation:
        reader = _Reader(parser)
        reader.clauses(word)
        numbers, rank = reader.numbers(word), reader.rank(reader.outs[0])
        at = [d for d in range(rank) if d not in numbers]
        if word == "permutation":  # dimension d of the result is dimension numbers[d] of the input
            if sorted(numbers) != [*range(rank)]:
                parser.raise_error(f"permutation {list(numbers)} is not valid for rank {rank}")
            at = sorted(range(rank), key=lambda d: numbers[d])
        source = AffineMap(rank, 0, tuple(map(AffineDimExpr, at)))
        op = NamedOp([source, AffineMap.identity(rank)], frozenset(), "first", None)
        return reader.generic(op.maps, (), _named_body(reader, op, False))

    return parse


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
        parser.raise_error("linalg.generic needs an indexing_map for each operand")
    if len(kinds) != maps[0].num_dims or not {"parallel", "reduction"}.issuperset(kinds):
        parser.raise_error(
            "linalg.generic needs iterator_types: parallel or reduction of each loop"
        )
    reductions = [d for d, kind in enumerate(kinds) if kind == "reduction"]
    return reader.generic(maps, reductions, body)


_TABLE = (*names.CONTRACTIONS, *names.ELEMENTWISE, *names.WINDOWS, "contract", "elementwise")
_PARSERS: dict[str, Callable[[Any, Parser], Operation]] = {
    **{name: _from_table(name) for name in _TABLE},
    "broadcast": _moved("dimensions"),
    "fill": _fill,
    "generic": _generic,
    "map": _map,
    "reduce": _reduce,
    "transpose": _moved("permutation"),
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
    return tensor.Tensor


def complete() -> Dialect:
    """The stock dialect, whose named ops read as generic ones."""
    stock = {op.name.removeprefix("linalg."): op for op in linalg.Linalg.operations}
    missing = {name: _reads_only(name) for name in _PARSERS if name not in stock}
    for name, parse in _PARSERS.items():
        kind = cast(type[IRDLOperation], stock.get(name) or missing[name])
        set_custom(kind, parse, kind.print)
    add_ops(linalg.Linalg, [*missing.values(), *composed.LINALG])
    add_attributes(linalg.Linalg, [ElementwiseKindAttr, TypeFnAttr])
    return linalg.Linalg
