"""scf: `-> T` and `scf.while` without parentheses, scf.parallel's format, and scf.forall."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    IntegerType,
    i1,
    i64,
)
from xdsl.dialects.utils import parse_assignment
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    lazy_traits_def,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import (
    HasParent,
    IsTerminator,
    NoTerminator,
    Pure,
    RecursiveMemoryEffect,
    SingleBlockImplicitTerminator,
    ensure_terminator,
)
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import (
    assigned,
    parse_listed,
    parse_names,
    parse_result_types,
    parse_type_list,
    results,
    say,
    typed,
)
from tilewright.dialects.upstream.complete import add_ops, set_custom

T = TypeVar("T")
Carried = list[tuple[Parser.UnresolvedArgument, UnresolvedOperand]]


def _parse_carried(parser: Parser, word: str) -> Carried:
    """`iter_args(%x = %y, ..)`; nothing where the word is not there."""
    if parser.parse_optional_keyword(word) is None:
        return []
    return parse_listed(parser, lambda: parse_assignment(parser))


def _argument(parser: Parser) -> Parser.UnresolvedArgument:
    return parser.parse_argument(expect_type=False)


def _parse_bounds(parser: Parser, one: Callable[[], T]) -> tuple[T, T, T]:
    """`= lower to upper step step`."""
    parser.parse_punctuation("=")
    lower = one()
    parser.parse_keyword("to")
    upper = one()
    parser.parse_keyword("step")
    return lower, upper, one()


def _resolved(carried: Carried, types: Sequence[Attribute]) -> list[Parser.Argument]:
    return [a.resolve(kind) for (a, _), kind in zip(carried, types, strict=True)]


def _initial(parser: Parser, carried: Carried, types: Sequence[Attribute]) -> Sequence[SSAValue]:
    return parser.resolve_operands([value for _, value in carried], types, parser.pos)


def _terminate(op: Operation) -> None:
    for trait in op.get_traits_of_type(SingleBlockImplicitTerminator):
        ensure_terminator(op, trait)


def _parse_for(cls: Any, parser: Parser) -> Operation:
    """`scf.for %i = %a to %b step %s iter_args(%x = %y) -> T : i32 { ... } {attributes}`."""
    unsigned = parser.parse_optional_keyword("unsigned") is not None
    induction = _argument(parser)
    bounds = _parse_bounds(parser, parser.parse_unresolved_operand)
    carried = _parse_carried(parser, "iter_args")
    types = parse_result_types(parser)
    initial = _initial(parser, carried, types)
    kind: Attribute = IndexType()
    if parser.parse_optional_punctuation(":") is not None:
        kind = parser.parse_type()
    lower, upper, step = (parser.resolve_operand(bound, kind) for bound in bounds)
    body = parser.parse_region([induction.resolve(kind), *_resolved(carried, types)])
    attributes = parser.parse_optional_attr_dict()
    op = cls(lower, upper, step, initial, body)
    op.attributes |= attributes
    if not carried:
        _terminate(op)
    return _signed(op) if unsigned else op


def _signed(op: scf.ForOp) -> Operation:
    """A loop from one unsigned number to another, as one of signed numbers in the same order: the upper half of
    them first, which the sign bit makes the lower one."""
    op.verify(verify_nested_ops=False)
    kind = cast(IndexType | IntegerType, op.lb.type)
    width = 64 if isinstance(kind, IndexType) else kind.width.data
    first = arith.ConstantOp(IntegerAttr(-(2 ** (width - 1)), kind))
    ends = [arith.XOrIOp(end, first) for end in (op.lb, op.ub)]
    op.operands = [*(end.result for end in ends), *op.operands[2:]]
    inner, number = op.body.block, op.body.block.args[0]
    shown = arith.XOrIOp(number, first)
    number.replace_uses_with_if(shown.result, lambda use: use.operation is not shown)
    inner.insert_op_before(shown, cast(Operation, inner.first_op))
    whole = Region(Block([first, *ends, op, scf.YieldOp(*op.results)]))
    return scf.ExecuteRegionOp.build(regions=[whole], result_types=[op.result_types])


def _create_for(stock: Callable[..., Operation]) -> Any:
    """Of the generic form, which has the word among its properties."""

    def create(_: Any, *, properties: Mapping[str, Attribute] = {}, **given: Any) -> Operation:
        rest = {name: held for name, held in properties.items() if name != "unsignedCmp"}
        op = stock(properties=rest, **given)
        return _signed(cast(scf.ForOp, op)) if len(rest) < len(properties) else op

    return classmethod(create)


def _parse_if(cls: Any, parser: Parser) -> Operation:
    condition = parser.parse_operand(i1)
    types = parse_result_types(parser)
    then = cls.parse_region_with_yield(parser)
    otherwise = Region()
    if parser.parse_optional_keyword("else") is not None:
        otherwise = cls.parse_region_with_yield(parser)
    attributes = parser.parse_optional_attr_dict()
    return cls(condition, types, then, otherwise, attributes)


# --- scf.while -------------------------------------------------------------------------------------


def _parse_while(cls: Any, parser: Parser) -> Operation:
    """`scf.while (%x = %a) : (T) -> U { ... } do { ... }`; `scf.while : () -> ()` carries nothing."""
    carried = parser.parse_optional_comma_separated_list(
        parser.Delimiter.PAREN, lambda: parse_assignment(parser)
    )
    carried = carried or []
    parser.parse_punctuation(":")
    type_ = parser.parse_function_type()
    inputs = type_.inputs.data
    values = _initial(parser, carried, inputs)
    before = parser.parse_region(_resolved(carried, inputs))
    parser.parse_characters("do")
    after = parser.parse_region()
    attributes = parser.parse_optional_attr_dict_with_keyword()
    op = cls(values, type_.outputs.data, before, after)
    if attributes is not None:
        op.attributes |= attributes.data
    return op


def _print_while(op: scf.WhileOp, printer: Printer) -> None:
    if op.arguments:
        say(printer, " (", assigned(op.before_region.block.args, op.arguments), ")")
    say(printer, " : ")
    printer.print_operation_type(op)
    say(printer, " ")
    printer.print_region(op.before_region, print_entry_block_args=False)
    say(printer, " do ")
    printer.print_region(op.after_region)
    if op.attributes:
        printer.print_op_attributes(op.attributes, print_keyword=True)


# --- scf.parallel -----------------------------------------------------------------------------------


def _parse_parallel(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`scf.parallel (%i) = (%a) to (%b) step (%s) init (%x) -> T { ... scf.reduce ... }`."""
    arguments = parse_listed(parser, lambda: _argument(parser))
    bounds = _parse_bounds(
        parser, lambda: parse_listed(parser, lambda: parser.parse_operand(IndexType()))
    )
    initial: list[UnresolvedOperand] = []
    types: list[Attribute] = []
    if parser.parse_optional_keyword("init") is not None:
        initial = parse_listed(parser, parser.parse_unresolved_operand)
        types = parse_result_types(parser)
    values = parser.resolve_operands(initial, types, parser.pos)
    body = parser.parse_region([argument.resolve(IndexType()) for argument in arguments])
    attributes = parser.parse_optional_attr_dict()
    op = cls.build(
        operands=[*bounds, values], attributes=attributes, result_types=[types], regions=[body]
    )
    if not initial:
        _terminate(op)
    return op


def _print_parallel(op: scf.ParallelOp, printer: Printer) -> None:
    say(printer, " (", op.body.blocks[0].args, ")")
    for word, values in (("=", op.lowerBound), ("to", op.upperBound), ("step", op.step)):
        say(printer, f" {word} (", values, ")")
    if op.initVals:
        say(printer, " init (", op.initVals, ")", *results(op.result_types))
    say(printer, " ")
    printer.print_region(
        op.body,
        print_entry_block_args=False,
        print_empty_block=False,
        print_block_terminators=bool(op.initVals),
    )
    printer.print_op_attributes(op.attributes)


def _parse_reduce(cls: type[IRDLOperation], parser: Parser) -> Operation:
    """`scf.reduce(%x, %y : T, U) { ... }, { ... }`; without a comma, too, as xDSL prints it."""
    operands: Sequence[SSAValue] = ()
    if parser.parse_optional_punctuation("(") is not None:
        names = parse_names(parser)
        parser.parse_punctuation(":")
        types = parse_type_list(parser)
        operands = parser.resolve_operands(names, types, parser.pos)
        parser.parse_punctuation(")")
    regions: list[Region] = []
    while (region := parser.parse_optional_region()) is not None:
        regions.append(region)
        parser.parse_optional_punctuation(",")
    attributes = parser.parse_optional_attr_dict()
    return cls.create(operands=operands, regions=regions, attributes=attributes)


def _print_reduce(op: scf.ReduceOp, printer: Printer) -> None:
    if op.args:
        say(printer, "(", op.args, " : ", typed(op.args), ")")
    if op.reductions:
        say(printer, " ")
        printer.print_list(op.reductions, printer.print_region)
    printer.print_op_attributes(op.attributes)


# --- scf.forall ---------------------------------------------------------------------------------------


@irdl_op_definition
class InParallelOp(IRDLOperation):
    """`scf.forall.in_parallel { ... }`: ends the body of a forall."""

    name = "scf.forall.in_parallel"

    region = region_def("single_block")

    traits = lazy_traits_def(lambda: (IsTerminator(), NoTerminator(), Pure(), HasParent(ForallOp)))

    def __init__(self, region: Region | None = None):
        super().__init__(regions=[region or Region(Block())])

    @classmethod
    def parse(cls, parser: Parser) -> InParallelOp:
        region = parser.parse_region()
        if not region.blocks:
            region.add_block(Block())
        op = cls(region)
        op.attributes.update(parser.parse_optional_attr_dict())
        return op

    def print(self, printer: Printer) -> None:
        say(printer, " ")
        printer.print_region(self.region, print_empty_block=False)
        printer.print_op_attributes(self.attributes)


@irdl_op_definition
class ForallOp(IRDLOperation):
    """`scf.forall (%i, %j) in (%n, 4) { ... }`: iterations in any order, or at once.

    `scf.forall (%i) = (0) to (%n) step (2)` gives bounds; `shared_outs` carries tensors.
    """

    name = "scf.forall"

    lower = var_operand_def(IndexType)
    upper = var_operand_def(IndexType)
    steps = var_operand_def(IndexType)
    outputs = var_operand_def()
    static_lower = prop_def(DenseArrayBase.constr(i64), prop_name="staticLowerBound")
    static_upper = prop_def(DenseArrayBase.constr(i64), prop_name="staticUpperBound")
    static_step = prop_def(DenseArrayBase.constr(i64), prop_name="staticStep")
    mapping = opt_prop_def(ArrayAttr)
    res = var_result_def()
    body = region_def("single_block")

    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    traits = traits_def(RecursiveMemoryEffect(), SingleBlockImplicitTerminator(InParallelOp))

    def __init__(
        self,
        lower: Sequence[SSAValue | int],
        upper: Sequence[SSAValue | int],
        steps: Sequence[SSAValue | int],
        body: Region,
        outputs: Sequence[SSAValue] = (),
        mapping: ArrayAttr | None = None,
    ):
        dynamic: list[list[SSAValue]] = []
        static: list[DenseArrayBase] = []
        for bounds in (lower, upper, steps):
            dynamic.append([value for value in bounds if isinstance(value, SSAValue)])
            numbers = [DYNAMIC_INDEX if isinstance(v, SSAValue) else v for v in bounds]
            static.append(DenseArrayBase.from_list(i64, numbers))
        super().__init__(
            operands=[*dynamic, outputs],
            properties={
                "staticLowerBound": static[0],
                "staticUpperBound": static[1],
                "staticStep": static[2],
                "mapping": mapping,
            },
            result_types=[[value.type for value in outputs]],
            regions=[body],
        )

    def mixed(self, which: str) -> list[SSAValue | int]:
        """Bounds as a mixed list; `which` is "lower", "upper" or "step"."""
        dynamic = iter({"lower": self.lower, "upper": self.upper, "step": self.steps}[which])
        static = getattr(self, f"static_{which}")
        return [next(dynamic) if v == DYNAMIC_INDEX else v for v in static.get_values()]

    def verify_(self) -> None:
        rank = len(self.static_upper)
        if not len(self.static_lower) == rank == len(self.static_step):
            raise VerifyException("expected as many lower bounds as upper bounds and steps")
        for which, operands in (("lower", self.lower), ("upper", self.upper), ("step", self.steps)):
            static = list(getattr(self, f"static_{which}").get_values())
            if static.count(DYNAMIC_INDEX) != len(operands):
                raise VerifyException(f"{which} bounds do not match their operands")
        kinds = [IndexType()] * rank + [value.type for value in self.outputs]
        if [argument.type for argument in self.body.block.args] != kinds:
            raise VerifyException(
                f"expected the body to have {rank} index arguments, then one per output"
            )

    @classmethod
    def parse(cls, parser: Parser) -> ForallOp:
        arguments = parse_listed(parser, lambda: _argument(parser))

        def bound() -> SSAValue | int:
            operand = parser.parse_optional_unresolved_operand()
            if operand is None:
                return parser.parse_integer(allow_boolean=False)
            return parser.resolve_operand(operand, IndexType())

        def bounds() -> list[SSAValue | int]:
            return parse_listed(parser, bound)

        lower: list[SSAValue | int] = [0] * len(arguments)
        steps: list[SSAValue | int] = [1] * len(arguments)
        if parser.parse_optional_keyword("in") is not None:
            upper = bounds()
        else:
            lower, upper, steps = _parse_bounds(parser, bounds)
        carried = _parse_carried(parser, "shared_outs")
        types = parse_result_types(parser)
        outputs = _initial(parser, carried, types)
        entry = [argument.resolve(IndexType()) for argument in arguments]
        body = parser.parse_region([*entry, *_resolved(carried, types)])
        attributes = parser.parse_optional_attr_dict()
        mapping = attributes.pop("mapping", None)
        op = cls(lower, upper, steps, body, outputs)
        if isinstance(mapping, ArrayAttr):
            op.properties["mapping"] = mapping
        op.attributes |= attributes
        if not isinstance(body.block.last_op, InParallelOp):
            body.block.add_op(InParallelOp())
        return op

    def print(self, printer: Printer) -> None:
        rank = len(self.static_upper)
        arguments = self.body.block.args
        say(printer, " (", arguments[:rank], ")")
        normalized = self.mixed("lower") == [0] * rank and self.mixed("step") == [1] * rank
        words = (("in", "upper"),) if normalized else _BOUND_WORDS
        for word, which in words:
            shown = [v if isinstance(v, SSAValue) else str(v) for v in self.mixed(which)]
            say(printer, f" {word} (", shown, ")")
        if self.outputs:
            outputs = assigned(arguments[rank:], self.outputs)
            say(printer, " shared_outs(", outputs, ") -> (", self.result_types, ")")
        say(printer, " ")
        last = self.body.block.last_op
        empty = isinstance(last, InParallelOp) and not last.region.block.ops
        printer.print_region(
            self.body,
            print_entry_block_args=False,
            print_empty_block=False,
            print_block_terminators=not empty,
        )
        mapping = {} if self.mapping is None else {"mapping": self.mapping}
        printer.print_op_attributes({**self.attributes, **mapping})


_BOUND_WORDS = (("=", "lower"), ("to", "upper"), ("step", "step"))


def complete() -> None:
    set_custom(scf.ForOp, _parse_for, scf.ForOp.print)
    scf.ForOp.create = _create_for(scf.ForOp.create)
    set_custom(scf.IfOp, _parse_if, scf.IfOp.print)
    set_custom(scf.WhileOp, _parse_while, _print_while)
    set_custom(scf.ParallelOp, _parse_parallel, _print_parallel)
    set_custom(scf.ReduceOp, _parse_reduce, _print_reduce)
    add_ops(scf.Scf, (ForallOp, InParallelOp))
