"""Expressions: numbers of compile time are computed, values of run time write ops."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import numpy as np
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import i1
from xdsl.ir import Block, Region, SSAValue

from tilewright import dtypes
from tilewright.diagnostics import CompileError
from tilewright.lang import carry, elsewhere
from tilewright.lang.arithmetic import PYTHON, binary, truth, unary
from tilewright.lang.calls import Calls
from tilewright.lang.carry import Mismatch, is_part, meet_leaf
from tilewright.lang.convert import constant_ssa
from tilewright.lang.program import FormatString
from tilewright.lang.values import Array, Tile, Value, describe_type

_BINARY: dict[type[ast.operator], str] = {
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
_MEMBERS: dict[type, tuple[str, ...]] = {
    Value: ("dtype", "shape", "ndim", "to", "item"),
    Tile: ("dtype", "shape"),
    Array: ("dtype", "shape", "ndim", "strides"),
}
_TRAPPING = tuple(
    f"arith.{name}"
    for name in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui")
)


class Expressions(Calls):
    """Evaluates expression nodes."""

    def evaluate(self, node: ast.expr) -> Any:
        """What an expression stands for: a value of run time, or any object of compile time."""
        handler: Callable[[Any], Any] | None = getattr(self, f"_{type(node).__name__}", None)
        if handler is None:
            raise self.refuse(node)
        return handler(node)

    # Leaves.

    def _Constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, complex):
            raise self.error(node, "kernels have no complex numbers")
        return node.value

    def _Name(self, node: ast.Name) -> Any:
        return self._captured(node, node.id, self.lookup(node))

    def _captured(self, node: ast.AST, name: str, value: Any) -> Any:
        """An object that came from outside of the kernel, as kernels see it."""
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            raise self.error(
                node,
                f"{name} is a numpy array outside of the kernel",
                rule="a kernel captures constants, functions and modules",
                hint="pass the array as an argument",
            )
        return value

    def _Tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._elements(node))

    def _List(self, node: ast.List) -> Any:
        return self._elements(node)

    def _elements(self, node: ast.Tuple | ast.List) -> list[Any]:
        found: list[Any] = []
        for element in node.elts:
            if not isinstance(element, ast.Starred):
                found.append(self.evaluate(element))
                continue
            inner = self.evaluate(element.value)
            if not carry.is_sequence(inner):
                raise self.error(element, f"{describe_type(inner)} cannot be unpacked")
            found.extend(inner)
        return found

    def _JoinedStr(self, node: ast.JoinedStr) -> Any:
        texts: list[str] = []
        values: list[Value] = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                texts.append(str(part.value).replace("{", "{{").replace("}", "}}"))
                continue
            part = cast(ast.FormattedValue, part)
            value = self.evaluate(part.value)
            if isinstance(value, Value):
                if part.format_spec is not None or part.conversion != -1:
                    raise self.error(part, "values of run time are printed without a format")
                texts.append("{}")
                values.append(value)
                continue
            spec = self.evaluate(part.format_spec) if part.format_spec is not None else ""
            text = repr(value) if part.conversion == ord("r") else format(value, spec)
            texts.append(text.replace("{", "{{").replace("}", "}}"))
        text = "".join(texts)
        if values:
            return FormatString(text, tuple(values))
        return text.replace("{{", "{").replace("}}", "}")

    def _Attribute(self, node: ast.Attribute) -> Any:
        owner = self.evaluate(node.value)
        name = node.attr
        with self.blame(node):
            members = _MEMBERS.get(type(owner))
            if members is not None and name not in members:
                raise CompileError(
                    f"{describe_type(owner)} has no attribute {name}",
                    hint=self._attribute_hint(owner, name, members),
                )
            try:
                return self._captured(node, name, getattr(owner, name))
            except AttributeError:
                known = members or dir(owner)
                hint = self._attribute_hint(owner, name, known)
                what = getattr(owner, "__name__", None) or describe_type(owner)
                raise CompileError(f"{what} has no attribute {name}", hint=hint) from None

    def _attribute_hint(self, owner: Any, name: str, known: Any) -> str | None:
        if isinstance(owner, ModuleType) and owner.__name__ == "tilewright":
            return elsewhere.meant(name, known)
        if type(owner) in _MEMBERS and (answer := elsewhere.METHODS.get(name)):
            return elsewhere.said(answer)
        close = difflib.get_close_matches(name, known, 1, 0.75)
        if close:
            return f"did you mean {close[0]}?"
        if isinstance(owner, Value) and (own := elsewhere.counterpart(name)):
            return own
        if type(owner) in _MEMBERS:
            return f"it has {', '.join(known)}"
        return None

    def _Subscript(self, node: ast.Subscript) -> Any:
        owner = self.evaluate(node.value)
        if isinstance(owner, (Array, Value, Tile)):
            hint = {
                Array: "load a part: tw.load_tile(tw.init_tile(array, offsets, shape))",
                Value: "values have no elements by index: load smaller tiles, or reduce the value",
                Tile: "a tile is moved with tw.update_tile_offset",
            }[type(owner)]
            raise self.error(node, f"{describe_type(owner)} has no subscripts", hint=hint)
        index = self.evaluate(node.slice)
        if isinstance(index, Value):
            raise self.error(
                node.slice,
                f"an index of {describe_type(owner)} is known at run time only",
                rule="tuples are objects of compile time",
                hint="loop with tw.static_range, whose variable is a number of compile time",
            )
        return self.python(node, lambda: owner[index])

    def _Slice(self, node: ast.Slice) -> Any:
        bounds = [None if n is None else self.evaluate(n) for n in _slice_parts(node)]
        return slice(*bounds)

    def _NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.evaluate(node.value)
        self.bind(node.target.id, value, node)
        return value

    # Operators.

    def _BinOp(self, node: ast.BinOp) -> Any:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        return self.operate(node, _BINARY[type(node.op)], left, right)

    def operate(self, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
        """``left symbol right``, on numbers now or on values at run time."""
        run_time = (Value, Tile, Array, FormatString)
        if not isinstance(left, run_time) and not isinstance(right, run_time):
            return self.python(node, lambda: PYTHON[symbol](left, right))
        with self.blame(node):
            if symbol == "@":
                raise CompileError(
                    "the operator @ is not defined on values",
                    hint="tw.tile_mma(a, b, acc) multiplies matrices and accumulates",
                )
            return binary(symbol, cast(Any, left), cast(Any, right))

    def python(self, node: ast.AST, compute: Callable[[], Any]) -> Any:
        """The result of ordinary Python; its exceptions become errors at ``node``."""
        self.at(node)
        try:
            return compute()
        except CompileError as error:
            error.at(self.location(node))
            raise
        except Exception as error:
            raise self.error(node, f"{type(error).__name__}: {error}") from None

    def _UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            self.decidable(node.operand, operand)
            if not isinstance(operand, Value):
                return self.python(node, lambda: not operand)
            with self.blame(node):
                return unary("~", truth(operand, "the operand of not"))
        symbol = _UNARY[type(node.op)]
        if isinstance(operand, Value):
            with self.blame(node):
                return operand if symbol == "+" else unary(symbol, operand)
        if isinstance(operand, (Tile, Array)):
            raise self.error(node, f"{symbol} is not defined on {describe_type(operand)}")
        table: dict[str, Callable[[Any], Any]] = {
            "-": lambda x: -x,
            "+": lambda x: +x,
            "~": lambda x: ~x,
        }
        return self.python(node, lambda: table[symbol](operand))

    def _Compare(self, node: ast.Compare) -> Any:
        left = self.evaluate(node.left)
        result: Any = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node)
            outcome = self._compare(node, op, left, right)
            if isinstance(outcome, Value) and outcome.shape and len(node.ops) > 1:
                raise self.error(
                    node,
                    "a chained comparison of tiles",
                    hint="combine the masks: (a < b) & (b < c)",
                )
            result = outcome if result is True else self._both(node, result, outcome)
            if result is False:
                return False
            left = right
        return result

    def _both(self, node: ast.AST, a: Any, b: Any) -> Any:
        if isinstance(b, Value):
            return self.operate(node, "&", a, b)
        return a if b else False

    def _compare(self, node: ast.Compare, op: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = left is right
            return same if isinstance(op, ast.Is) else not same
        if isinstance(op, (ast.In, ast.NotIn)):
            if isinstance(left, Value) or isinstance(right, Value):
                raise self.error(node, "in and not in are decided at compile time")
            return self.python(node, lambda: (left in right) == isinstance(op, ast.In))
        symbol = _COMPARE[type(op)]
        if symbol in ("==", "!=") and not (is_part(left) and is_part(right)):
            # Strings, dtypes, None, tuples: objects of compile time.
            if isinstance(left, (Tile, Array)) or isinstance(right, (Tile, Array)):
                return self.operate(node, symbol, left, right)
            if isinstance(left, Value) or isinstance(right, Value):
                return symbol == "!="
            return self.python(node, lambda: PYTHON[symbol](left, right))
        return self.operate(node, symbol, left, right)

    # Decisions inside of expressions.

    def decidable(self, node: ast.expr, condition: Any) -> None:
        """Refuses what is neither true nor false: tiles and arrays."""
        if isinstance(condition, (Tile, Array)):
            raise self.error(
                node,
                f"{describe_type(condition)} is neither true nor false",
                hint="compare with None to see whether an argument was given: x is not None",
            )

    def _BoolOp(self, node: ast.BoolOp) -> Any:
        wants = isinstance(node.op, ast.And)
        result = self.evaluate(node.values[0])
        self.decidable(node.values[0], result)
        for i, operand in enumerate(node.values[1:]):
            if not isinstance(result, Value):
                if bool(result) is not wants:
                    return result
                result = self.evaluate(operand)
                self.decidable(operand, result)
                continue
            with self.blame(node.values[i]):
                if result.shape:
                    word = "and" if wants else "or"
                    raise CompileError(
                        f"{word} on {describe_type(result)}",
                        rule="and, or and not decide once, for scalars",
                        hint=f"combine masks elementwise with {'&' if wants else '|'}",
                    )
                left = truth(result)
            result = self.short_circuit(node, left, operand, wants)
        return result

    def short_circuit(self, node: ast.expr, left: Value, operand: ast.expr, wants: bool) -> Any:
        """The right side is evaluated only when the left does not decide, if that can matter."""
        block = Block()
        with self.emitter.inside(block):
            right = self.evaluate(operand)
            self.decidable(operand, right)
            with self.blame(operand):
                found = truth(right) if isinstance(right, Value) else None
        if found is None:
            _splice(self.emitter.block, block)
            if bool(right) is wants:
                return left
            return right if isinstance(right, bool) else bool(right)
        self.at(node)
        if _harmless(block):
            _splice(self.emitter.block, block)
            return self.operate(node, "&" if wants else "|", left, found)
        with self.emitter.inside(block):
            self.emitter.emit(scf.YieldOp(found.ssa))
        other = Block()
        with self.emitter.inside(other):
            self.emitter.emit(scf.YieldOp(constant_ssa(not wants, dtypes.i1)))
        branches = (block, other) if wants else (other, block)
        op = scf.IfOp(left.ssa, [i1], Region(branches[0]), Region(branches[1]))
        return Value(self.emitter.result(op), dtypes.i1, ())

    def _IfExp(self, node: ast.IfExp) -> Any:
        condition = self.evaluate(node.test)
        self.decidable(node.test, condition)
        if not isinstance(condition, Value):
            return self.evaluate(node.body if condition else node.orelse)
        with self.blame(node.test):
            decided = truth(condition)
        blocks = (Block(), Block())
        values: list[Any] = []
        for block, branch in zip(blocks, (node.body, node.orelse), strict=True):
            with self.emitter.inside(block):
                values.append(self.evaluate(branch))
        a, b = values
        with self.blame(node):
            return self._choose(decided, blocks, a, b)

    def _choose(self, condition: Value, blocks: tuple[Block, Block], a: Any, b: Any) -> Any:
        if not carry.shapes_agree(a, b):
            raise _no_choice(a, b)
        pairs = list(zip(carry.parts(a), carry.parts(b), strict=True))
        try:
            leaves = [None if carry.same_object(x, y) else meet_leaf(x, y) for x, y in pairs]
        except Mismatch as mismatch:
            raise _no_choice(*str(mismatch).split(" and ", 1)) from None
        yields: list[list[SSAValue]] = []
        for side, block in enumerate(blocks):
            with self.emitter.inside(block):
                yields.append(
                    [
                        carry.ssa_as(pair[side], leaf)
                        for pair, leaf in zip(pairs, leaves, strict=True)
                        if leaf is not None
                    ]
                )
        kept = [leaf for leaf in leaves if leaf is not None]
        scalars = all(not leaf.shape and not leaf.is_tile for leaf in kept)
        if scalars and all(map(_harmless, blocks)):
            for block in blocks:
                _splice(self.emitter.block, block)
            results = [
                self.emitter.result(arith.SelectOp(condition.ssa, x, y))
                for x, y in zip(*yields, strict=True)
            ]
        else:
            for block, operands in zip(blocks, yields, strict=True):
                with self.emitter.inside(block):
                    self.emitter.emit(scf.YieldOp(*operands))
            regions = [Region(block) for block in blocks]
            op = scf.IfOp(condition.ssa, [leaf.type for leaf in kept], regions[0], regions[1])
            results = list(self.emitter.emit(op).results)
        found = iter(results)
        chosen = [
            x if leaf is None else leaf.wrap(next(found))
            for (x, _), leaf in zip(pairs, leaves, strict=True)
        ]
        return carry.rebuild(a, iter(chosen))


def _no_choice(a: Any, b: Any) -> CompileError:
    names = [x if isinstance(x, str) else describe_type(x) for x in (a, b)]
    return CompileError(
        f"the two choices differ: {names[0]} and {names[1]}",
        rule="what is chosen at run time has one type",
        hint="convert one of them, e.g. x.to(tw.f32)",
    )


def _slice_parts(node: ast.Slice) -> tuple[ast.expr | None, ...]:
    return node.lower, node.upper, node.step


def _harmless(block: Block) -> bool:
    """Whether evaluating ops that are not asked for changes nothing and costs next to nothing."""
    return len(list(block.ops)) <= 8 and all(
        op.name.startswith("arith.") and op.name not in _TRAPPING and not op.regions
        for op in block.ops
    )


def _splice(into: Block, block: Block) -> None:
    """Moves all ops of a block to the end of another."""
    for op in list(block.ops):
        op.detach()
        into.add_op(op)
