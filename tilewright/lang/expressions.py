"""Expressions: numbers of compile time are computed, values of run time write ops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.dtypes import DType
from tilewright.lang import carry
from tilewright.lang.arithmetic import PYTHON, binary, truth, unary
from tilewright.lang.carry import Mismatch, is_part
from tilewright.lang.convert import constant_ssa, expect_dtype
from tilewright.lang.frame import Frame, expression
from tilewright.lang.program import FormatString
from tilewright.lang.values import Array, LoopRange, Tile, Value, describe_type

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_TRAPPING = tuple(
    f"arith.{name}"
    for name in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui")
)


# Leaves.


@expression(ast.Constant)
def _constant(frame: Frame, node: ast.Constant) -> Any:
    if isinstance(node.value, complex):
        raise frame.lacking(node, "a complex number", "carry its real and imaginary part")
    return node.value


@expression(ast.Name)
def _name(frame: Frame, node: ast.Name) -> Any:
    return captured(frame, node, node.id, frame.lookup(node))


def captured(frame: Frame, node: ast.AST, name: str, value: Any) -> Any:
    """An object that came from outside of the kernel, as kernels see it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        raise frame.error(
            node,
            f"{name} is a numpy array outside of the kernel",
            rule="a kernel captures constants, functions and modules",
            hint="pass the array as an argument",
        )
    return value


@expression(ast.Tuple)
def _tuple(frame: Frame, node: ast.Tuple) -> Any:
    return tuple(elements(frame, node.elts))


@expression(ast.List)
def _list(frame: Frame, node: ast.List) -> Any:
    return elements(frame, node.elts)


def elements(frame: Frame, nodes: Sequence[ast.expr]) -> list[Any]:
    """Of a display or a call: what is starred stands there element by element."""
    found: list[Any] = []
    for element in nodes:
        if not isinstance(element, ast.Starred):
            found.append(frame.evaluate(element))
            continue
        inner = frame.evaluate(element.value)
        if not carry.is_sequence(inner):
            raise frame.error(
                element,
                f"{describe_type(inner)} cannot be unpacked",
                hint="a star takes a tuple or a list apart",
            )
        found.extend(inner)
    return found


@expression(ast.JoinedStr)
def _joined_str(frame: Frame, node: ast.JoinedStr) -> Any:
    texts: list[str] = []
    values: list[Value] = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            texts.append(str(part.value).replace("{", "{{").replace("}", "}}"))
            continue
        part = cast(ast.FormattedValue, part)
        value = frame.evaluate(part.value)
        if isinstance(value, Value):
            if part.format_spec is not None or part.conversion != -1:
                raise frame.error(
                    part,
                    "values of run time are printed without a format",
                    hint=f"{{{ast.unparse(part.value)}}}; numbers are printed with six digits",
                )
            texts.append("{}")
            values.append(value)
            continue
        spec = frame.evaluate(part.format_spec) if part.format_spec is not None else ""
        text = repr(value) if part.conversion == ord("r") else format(value, spec)
        texts.append(text.replace("{", "{{").replace("}", "}}"))
    text = "".join(texts)
    if values:
        return FormatString(text, tuple(values))
    return text.replace("{{", "{").replace("}}", "}")


@expression(ast.Slice)
def _slice(frame: Frame, node: ast.Slice) -> Any:
    bounds = [None if n is None else frame.evaluate(n) for n in (node.lower, node.upper, node.step)]
    return slice(*bounds)


@expression(ast.NamedExpr)
def _named_expr(frame: Frame, node: ast.NamedExpr) -> Any:
    value = frame.evaluate(node.value)
    frame.bind(node.target.id, value, node)
    return value


# Operators.


@expression(ast.BinOp)
def _bin_op(frame: Frame, node: ast.BinOp) -> Any:
    left, right = frame.evaluate(node.left), frame.evaluate(node.right)
    return operate(frame, node, BINARY[type(node.op)], left, right)


def operate(frame: Frame, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    """``left symbol right``, on numbers now or on values at run time."""
    run_time = (Value, Tile, Array, FormatString)
    if not isinstance(left, run_time) and not isinstance(right, run_time):
        return frame.python(node, lambda: PYTHON[symbol](left, right))
    with frame.blame(node):
        if symbol == "@":
            raise CompileError(
                "the operator @ is not defined on values",
                hint="tw.tile_mma(a, b, acc) multiplies matrices and accumulates",
            )
        return binary(symbol, cast(Any, left), cast(Any, right))


@expression(ast.UnaryOp)
def _unary_op(frame: Frame, node: ast.UnaryOp) -> Any:
    operand = frame.evaluate(node.operand)
    if isinstance(node.op, ast.Not):
        decidable(frame, node.operand, operand)
        if not isinstance(operand, Value):
            return frame.python(node, lambda: not operand)
        with frame.blame(node):
            return unary("~", truth(operand, "the operand of not"))
    symbol = _UNARY[type(node.op)]
    if isinstance(operand, Value):
        with frame.blame(node):
            return operand if symbol == "+" else unary(symbol, operand)
    if isinstance(operand, (Tile, Array)):
        raise frame.error(node, f"{symbol} is not defined on {describe_type(operand)}")
    table: dict[str, Callable[[Any], Any]] = {
        "-": lambda x: -x,
        "+": lambda x: +x,
        "~": lambda x: ~x,
    }
    return frame.python(node, lambda: table[symbol](operand))


@expression(ast.Compare)
def _compare(frame: Frame, node: ast.Compare) -> Any:
    left = frame.evaluate(node.left)
    result: Any = True
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = frame.evaluate(right_node)
        outcome = _compare_two(frame, node, op, left, right)
        if isinstance(outcome, Value) and outcome.shape and len(node.ops) > 1:
            raise frame.error(
                node, "a chained comparison of tiles", hint="combine the masks: (a < b) & (b < c)"
            )
        result = outcome if result is True else _both(frame, node, result, outcome)
        if result is False:
            return False
        left = right
    return result


def _both(frame: Frame, node: ast.AST, a: Any, b: Any) -> Any:
    if isinstance(b, Value):
        return operate(frame, node, "&", a, b)
    return a if b else False


def _compare_two(frame: Frame, node: ast.Compare, op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, (ast.Is, ast.IsNot)):
        same = left is right
        return same if isinstance(op, ast.Is) else not same
    if isinstance(op, (ast.In, ast.NotIn)):
        found = _is_among(frame, node, left, right)
        if isinstance(op, ast.In):
            return found
        return unary("~", found) if isinstance(found, Value) else not found
    symbol = _COMPARE[type(op)]
    if symbol in ("==", "!=") and not (is_part(left) and is_part(right)):
        # Strings, dtypes, None, tuples: objects of compile time.
        if isinstance(left, (Tile, Array)) or isinstance(right, (Tile, Array)):
            return operate(frame, node, symbol, left, right)
        if isinstance(left, Value) or isinstance(right, Value):
            return symbol == "!="
        both = [isinstance(x, DType) for x in (left, right)]
        if any(both) and not all(both) and left is not None and right is not None:
            with frame.blame(node):
                expect_dtype(right if both[0] else left, "a dtype is compared with")
        return frame.python(node, lambda: PYTHON[symbol](left, right))
    return operate(frame, node, symbol, left, right)


def _is_among(frame: Frame, node: ast.Compare, left: Any, right: Any) -> Any:
    """Whether one of a tuple's elements is equal: at run time where a scalar is one of run time."""
    if isinstance(right, LoopRange):
        return _is_within(frame, node, left, right)
    elements = cast(Sequence[Any], right) if isinstance(right, (tuple, list)) else ()
    if not any(isinstance(x, (Value, Tile, Array)) for x in (left, right, *elements)):
        return frame.python(node, lambda: left in right)
    if not elements or not all(
        is_part(x) and not getattr(x, "shape", ()) for x in (left, *elements)
    ):
        raise frame.error(
            node,
            f"{describe_type(left)} in {describe_type(right)}",
            rule="what is looked for is a scalar, and so are the elements of a tuple of compile time",
            hint="tw.any(x == n).item() tells whether an element of a tile is n",
        )
    same = [_compare_two(frame, node, ast.Eq(), left, x) for x in elements]
    if True in [s for s in same if not isinstance(s, Value)]:
        return True
    found = [s for s in same if isinstance(s, Value)]
    return reduce(lambda a, b: operate(frame, node, "|", a, b), found)


def _is_within(frame: Frame, node: ast.Compare, left: Any, right: LoopRange) -> Any:
    """Whether an integer is one of a range's, whose bounds may be of run time."""
    start, stop, step = right.start, right.stop, right.step
    integer = isinstance(left, int) or (
        isinstance(left, Value) and left.is_scalar and not left.dtype.is_float
    )
    if not integer or isinstance(step, Value):
        raise frame.error(
            node,
            f"{describe_type(left)} in a range" + " whose step is of run time" * integer,
            rule="what is looked for in a range is an integer scalar, and its step is a number of compile time",
            hint="compare with the bounds: (low <= x) & (x < high)",
        )
    ends = (">=", "<") if step > 0 else ("<=", ">")
    tests = [operate(frame, node, e, left, b) for e, b in zip(ends, (start, stop), strict=True)]
    if abs(step) > 1:
        # Not their distance, which may be beyond the dtype: % is never negative.
        places = [operate(frame, node, "%", x, abs(step)) for x in (left, start)]
        tests.append(operate(frame, node, "==", *places))
    return reduce(lambda a, b: operate(frame, node, "&", a, b), tests)


# Decisions inside of expressions.


def decidable(frame: Frame, node: ast.expr, condition: Any) -> None:
    """Refuses what is neither true nor false: tiles and arrays."""
    if isinstance(condition, (Tile, Array)):
        raise frame.error(
            node,
            f"{describe_type(condition)} is neither true nor false",
            hint="compare with None to see whether an argument was given: x is not None",
        )


@expression(ast.BoolOp)
def _bool_op(frame: Frame, node: ast.BoolOp) -> Any:
    wants = isinstance(node.op, ast.And)
    result = frame.evaluate(node.values[0])
    decidable(frame, node.values[0], result)
    for i, operand in enumerate(node.values[1:]):
        if not isinstance(result, Value):
            if bool(result) is not wants:
                return result
            result = frame.evaluate(operand)
            decidable(frame, operand, result)
            continue
        with frame.blame(node.values[i]):
            if result.shape:
                word = "and" if wants else "or"
                raise CompileError(
                    f"{word} on {describe_type(result)}",
                    rule="and, or and not decide once, for scalars",
                    hint=f"combine masks elementwise with {'&' if wants else '|'}",
                )
            left = truth(result)
        result = short_circuit(frame, node, left, operand, wants)
    return result


def short_circuit(frame: Frame, node: ast.expr, left: Value, operand: ast.expr, wants: bool) -> Any:
    """The right side is evaluated only when the left does not decide, if that can matter."""
    block = Block()
    with frame.emitter.inside(block):
        right = frame.evaluate(operand)
        decidable(frame, operand, right)
        with frame.blame(operand):
            found = truth(right) if isinstance(right, Value) else None
    if found is None:
        Rewriter.inline_block(block, InsertPoint.at_end(frame.emitter.block))
        if bool(right) is wants:
            return left
        return right if isinstance(right, bool) else bool(right)
    frame.at(node)
    if _harmless(block):
        Rewriter.inline_block(block, InsertPoint.at_end(frame.emitter.block))
        return operate(frame, node, "&" if wants else "|", left, found)
    other = Block()
    with frame.emitter.inside(other):
        decided = constant_ssa(not wants, dtypes.i1)
    sides = ((block, found.ssa), (other, decided))
    blocks, given = zip(*(sides if wants else sides[::-1]), strict=True)
    return Value(frame.emitter.branch(left.ssa, blocks, [[x] for x in given])[0], dtypes.i1, ())


@expression(ast.IfExp)
def _if_exp(frame: Frame, node: ast.IfExp) -> Any:
    condition = frame.evaluate(node.test)
    decidable(frame, node.test, condition)
    if not isinstance(condition, Value):
        return frame.evaluate(node.body if condition else node.orelse)
    with frame.blame(node.test):
        decided = truth(condition)
    blocks = (Block(), Block())
    values: list[Any] = []
    for block, branch in zip(blocks, (node.body, node.orelse), strict=True):
        with frame.emitter.inside(block):
            values.append(frame.evaluate(branch))
    a, b = values
    with frame.blame(node):
        return _choose(frame, decided, blocks, a, b)


def _choose(frame: Frame, condition: Value, blocks: tuple[Block, Block], a: Any, b: Any) -> Any:
    try:
        leaves = carry.met(a, b)
    except Mismatch as mismatch:
        raise CompileError(
            f"the two choices differ: {mismatch}",
            rule="what is chosen at run time has one type",
            hint="convert one of them, e.g. x.to(tw.f32)",
        ) from None
    yields: list[list[SSAValue]] = []
    for block, side in zip(blocks, (a, b), strict=True):
        with frame.emitter.inside(block):
            yields.append(carry.handed(side, leaves))
    scalars = all(leaf is None or not (leaf.shape or leaf.is_tile) for leaf in leaves)
    if scalars and all(map(_harmless, blocks)):
        for block in blocks:
            Rewriter.inline_block(block, InsertPoint.at_end(frame.emitter.block))
        results = [
            frame.emitter.result(arith.SelectOp(condition.ssa, x, y))
            for x, y in zip(*yields, strict=True)
        ]
    else:
        results = frame.emitter.branch(condition.ssa, blocks, yields)
    return carry.taken(a, leaves, iter(results))


def _harmless(block: Block) -> bool:
    """Whether evaluating ops that are not asked for changes nothing and costs next to nothing."""
    return len(list(block.ops)) <= 8 and all(
        op.name.startswith("arith.") and op.name not in _TRAPPING and not op.regions
        for op in block.ops
    )
