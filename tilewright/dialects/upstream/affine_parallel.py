"""affine: the text and the rules of `affine.parallel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import affine
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseIntElementsAttr,
    IndexType,
    IntegerAttr,
    StringAttr,
    TensorType,
    i32,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import IRDLOperation, PropertyDef
from xdsl.irdl.constraints import BaseAttr
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.parser.affine_parser import AffineParser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.directives import parse_listed, parse_result_types, say, typed
from tilewright.dialects.upstream.affine_expressions import Values, print_results
from tilewright.dialects.upstream.combining import ATOMIC_KINDS
from tilewright.dialects.upstream.complete import definition, set_custom, set_verifier

Bounds = tuple[AffineMapAttr, DenseIntElementsAttr]
"""A map with the bounds of all loops, and how many of its results are each loop's."""


def _parse_bounds(parser: Parser, several: str) -> tuple[Sequence[SSAValue], Bounds]:
    """`(0, max(%i, symbol(%n)))`."""
    text: Any = AffineParser(parser._parser_state)  # pyright: ignore[reportPrivateUsage]
    values = Values(text)

    def one() -> AffineExpr:
        return text._parse_affine_expr(values.read)

    def bound() -> list[AffineExpr]:
        if parser.parse_optional_keyword(several) is None:
            return [one()]
        return parse_listed(parser, one)

    groups = parse_listed(parser, bound)
    map_, spans = values.map(expr for group in groups for expr in group)
    operands = [parser.resolve_operand(UnresolvedOperand(s, 0), IndexType()) for s in spans]
    counts = DenseIntElementsAttr.from_list(TensorType(i32, [len(groups)]), list(map(len, groups)))
    return operands, (AffineMapAttr(map_), counts)


def _parse(cls: type[IRDLOperation], parser: Parser) -> IRDLOperation:
    """`affine.parallel (%i, %j) = (0, 0) to (%n, min(%m, 10)) step (1, 2) reduce ("addf") -> (f32) {..}`."""
    indices = parse_listed(parser, lambda: parser.parse_argument(expect_type=False))
    parser.parse_punctuation("=")
    operands, (lower, lower_counts) = _parse_bounds(parser, "max")
    parser.parse_keyword("to")
    more, (upper, upper_counts) = _parse_bounds(parser, "min")
    steps = [1] * len(indices)
    if parser.parse_optional_keyword("step"):
        steps = parse_listed(parser, parser.parse_integer)
    kinds: list[int] = []
    types: Sequence[Attribute] = ()
    if parser.parse_optional_keyword("reduce"):
        kinds = parse_listed(parser, lambda: _kind(parser))
        types = parse_result_types(parser)
    body = parser.parse_region([index.resolve(IndexType()) for index in indices])
    last = body.block.last_op
    if last is None or not last.has_trait(IsTerminator):
        body.block.add_op(affine.YieldOp.get())
    return cls.build(
        operands=[[*operands, *more]],
        result_types=[types],
        regions=[body],
        attributes=parser.parse_optional_attr_dict(),
        properties={
            "lowerBoundsMap": lower, "lowerBoundsGroups": lower_counts,
            "upperBoundsMap": upper, "upperBoundsGroups": upper_counts,
            "steps": ArrayAttr(IntegerAttr(step, i64) for step in steps),
            "reductions": ArrayAttr(IntegerAttr(kind, i64) for kind in kinds),
        },
    )  # fmt: skip


def _kind(parser: Parser) -> int:
    at = parser.pos
    name = parser.parse_str_literal()
    if name not in ATOMIC_KINDS:
        parser.raise_error(
            f"{name!r} combines nothing; there are {', '.join(ATOMIC_KINDS)}", at, parser.pos
        )
    return ATOMIC_KINDS.index(name)


def bounds(op: affine.ParallelOp) -> list[list[tuple[AffineMap, list[SSAValue]]]]:
    """Lower bounds, then upper ones: of each loop a map of several results, and what it is given."""
    count = op.lowerBoundsMap.data.num_dims + op.lowerBoundsMap.data.num_symbols
    found: list[list[tuple[AffineMap, list[SSAValue]]]] = []
    for attribute, groups, operands in (
        (op.lowerBoundsMap, op.lowerBoundsGroups, op.map_operands[:count]),
        (op.upperBoundsMap, op.upperBoundsGroups, op.map_operands[count:]),
    ):
        map_, rest = attribute.data, list(attribute.data.results)
        found.append([])
        for n in groups.get_values():
            part, rest = tuple(rest[:n]), rest[n:]
            found[-1].append((AffineMap(map_.num_dims, map_.num_symbols, part), list(operands)))
    return found


def reductions(op: affine.ParallelOp) -> list[str]:
    """What combines each result, by its name among the atomics."""
    return [ATOMIC_KINDS[kind.value.data] for kind in op.reductions.data]  # pyright: ignore


def _print(self: affine.ParallelOp, printer: Printer) -> None:
    lower, upper = bounds(self)
    say(printer, " (", self.body.block.args, ")")
    for before, several, each in (("=", "max", lower), ("to", "min", upper)):
        say(printer, f" {before} (")
        printer.print_list(each, lambda bound, word=several: _print_bound(printer, word, *bound))
        say(printer, ")")
    steps = [step.value.data for step in self.steps]
    if set(steps) != {1}:
        say(printer, " step (", map(str, steps), ")")
    if self.res:
        kinds = [StringAttr(kind) for kind in reductions(self)]
        say(printer, " reduce (", kinds, ") -> (", typed(self.res), ")")
    say(printer, " ")
    printer.print_region(
        self.body, print_entry_block_args=False, print_block_terminators=bool(self.res)
    )
    printer.print_op_attributes(self.attributes)


def _print_bound(
    printer: Printer, several: str, map_: AffineMap, operands: Sequence[SSAValue]
) -> None:
    if len(map_.results) > 1:
        say(printer, several, "(")
    print_results(printer, map_, operands)
    if len(map_.results) > 1:
        say(printer, ")")


def _verify(op: affine.ParallelOp) -> None:
    maps, loops = (op.lowerBoundsMap.data, op.upperBoundsMap.data), len(op.body.block.args)
    groups = [list(g.get_values()) for g in (op.lowerBoundsGroups, op.upperBoundsGroups)]
    if len(op.steps) != loops or any(len(each) != loops for each in groups):
        raise VerifyException(
            f"has {loops} induction variables, which need a bound and a step each"
        )
    if any(n < 1 for each in groups for n in each):
        raise VerifyException("expected at least one bound of each loop")
    if any(sum(n) != len(map_.results) for n, map_ in zip(groups, maps, strict=True)):
        raise VerifyException("the groups of bounds are not as many as the bounds")
    if len(op.map_operands) != sum(map_.num_dims + map_.num_symbols for map_ in maps):
        raise VerifyException(f"the bounds have other inputs than {len(op.map_operands)} values")
    if any(step.value.data < 1 for step in op.steps):
        raise VerifyException("expected a step above zero of each loop")
    if len(op.reductions) != len(op.res):
        raise VerifyException("expected a reduction of each result")
    last = op.body.block.last_op
    if not isinstance(last, affine.YieldOp) or last.operand_types != op.result_types:
        raise VerifyException(f"its body ends with an affine.yield of {op.result_types}")


def complete() -> None:
    definition(affine.ParallelOp).properties["reductions"] = PropertyDef(BaseAttr(ArrayAttr))
    set_custom(affine.ParallelOp, _parse, _print)
    set_verifier(affine.ParallelOp, _verify)
