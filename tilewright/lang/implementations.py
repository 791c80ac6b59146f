"""Helpers with implementations for machines: functions of their own in the IR, which kernels call.

A helper is inlined by the front end. One for which `implement` knows how a machine does it becomes a func.func, whose
body is the helper's and whose attribute names what stands for it (`dialects.implementations`); each target takes what
is its own (`passes.inline_calls`).
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from textwrap import dedent
from types import FunctionType
from typing import Any, TypeAlias

from xdsl.dialects import func
from xdsl.dialects.builtin import DictionaryAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Attribute, Region

from tilewright.diagnostics import CompileError, Location, TilewrightError
from tilewright.dialects.implementations import IMPLEMENTATIONS, check_implementation
from tilewright.dialects.text import parse_module
from tilewright.dtypes import DType
from tilewright.frozen import frozen
from tilewright.lang import carry
from tilewright.lang.context import Emitter, activate
from tilewright.lang.values import Value, describe_type
from tilewright.runtime.references import ALSO

Maker: TypeAlias = Callable[..., "str | None"]
"""Gives the text of an implementation for operands of these types; None where there is none for them."""


@frozen
class MacroOperand:
    """An operand as an implementation sees it; its text is the MLIR type, ``vector<16x64xf32>``."""

    dtype: DType
    shape: tuple[int, ...]
    """() for a scalar."""
    text: str

    def __str__(self) -> str:
        return self.text


def implementable(function: FunctionType) -> None:
    """A helper may be given implementations from now on, and kernels that call it notice that."""
    function.__dict__.setdefault(ALSO, {})


def implement(function: FunctionType, target: str, maker: Maker) -> None:
    """From now on `maker` gives the implementations of a helper for a target, machine or feature."""
    function.__dict__[ALSO] = {**implementations_of(function), target: maker}


def implementations_of(function: FunctionType) -> Mapping[str, Maker]:
    """What gives the implementations of a helper, by target, machine or feature."""
    return function.__dict__.get(ALSO, {})


Inline: TypeAlias = Callable[[Emitter, Mapping[str, Any]], Any]
"""Writes the body of a helper with an emitter, for arguments by name; gives what it returns."""


def call_apart(
    function: FunctionType, emitter: Emitter, arguments: Mapping[str, Any], inline: Inline
) -> Any:
    """The results of calling a helper that has implementations.

    Raises CompileError for arguments that are no values and no numbers, and for an implementation that is none, at its
    place.
    """
    name = function.__name__
    for parameter, argument in arguments.items():
        if not isinstance(argument, (Value, bool, int, float, str, DType)):
            raise CompileError(
                f"{name} has implementations for machines, and {parameter} is {describe_type(argument)}",
                rule="such a function takes values of tiles, and numbers",
                hint="load the tile first",
            )
    leaves = {n: carry.leaf_of(a) for n, a in arguments.items() if isinstance(a, Value)}
    key = (function, *(leaves.get(n, (type(a), a)) for n, a in arguments.items()))
    if key not in emitter.called:
        emitter.called[key] = _made(function, emitter, arguments, leaves, inline)
    own, result = emitter.called[key]
    operands = [carry.ssa_as(arguments[n], leaf) for n, leaf in leaves.items()]
    call = emitter.emit(func.CallOp(own.sym_name.data, operands, own.function_type.outputs.data))
    parts: list[Any] = list(carry.parts(result))
    kinds = map(carry.leaf_of, parts)
    return carry.rebuild(result, (k.wrap(r) for k, r in zip(kinds, call.res, strict=True)))


def _made(
    function: FunctionType,
    emitter: Emitter,
    arguments: Mapping[str, Any],
    leaves: Mapping[str, carry.Leaf],
    inline: Inline,
) -> tuple[func.FuncOp, Any]:
    """The function in the IR, and its result as the helper returned it."""
    block = emitter.new_block([leaf.type for leaf in leaves.values()])
    inner = emitter.of_function(block)
    given = {n: leaf.wrap(ssa) for (n, leaf), ssa in zip(leaves.items(), block.args, strict=True)}
    result = inline(inner, {**arguments, **given})
    results: list[Any] = list(carry.parts(result))
    if not results or not all(isinstance(r, Value) for r in results):
        raise CompileError(
            f"{function.__name__} returns {describe_type(result)}",
            rule="a function with implementations for machines must return tile values",
        )
    kinds = [carry.leaf_of(r) for r in results]
    with activate(inner):
        inner.emit(func.ReturnOp(*map(carry.ssa_as, results, kinds)))
    name = _unused(function.__name__, emitter)
    types = (list(block.arg_types), [kind.type for kind in kinds])
    own = func.FuncOp(name, types, Region(block), visibility="private")
    own.location = emitter.location
    emitter.functions.append(own)
    found: dict[str, Attribute] = {}
    operands = [
        MacroOperand(leaf.dtype, leaf.shape, str(leaf.type)) if (leaf := leaves.get(n)) else a
        for n, a in arguments.items()
    ]
    for target, maker in implementations_of(function).items():
        text = _text(function.__name__, target, maker, operands)
        if text is None:
            continue
        made = _parsed(f"<implementation of {function.__name__} for {target}>", text)
        symbol = _unused(f"{name}_{target.replace('-', '_')}", emitter)
        made.properties |= {"sym_name": StringAttr(symbol), "sym_visibility": StringAttr("private")}
        check_implementation(made, own)
        emitter.functions.append(made)
        found[target] = SymbolRefAttr(symbol)
    if found:
        own.attributes[IMPLEMENTATIONS] = DictionaryAttr(found)
    return own, result


def _unused(base: str, emitter: Emitter) -> str:
    taken = {each.sym_name.data for each in emitter.functions}
    return next(n for n in (base, *(f"{base}_{i}" for i in range(1, 999))) if n not in taken)


def _text(name: str, target: str, maker: Maker, operands: list[Any]) -> str | None:
    try:
        text = maker(*operands)
    except TilewrightError:
        raise
    except Exception as error:
        raise CompileError(
            f"the implementation of {name} for {target} raised {type(error).__name__}: {error}",
            rule="it is called with the operands' types, and returns text or None",
        ) from None
    return None if text is None else dedent(text)


def _parsed(file: str, text: str) -> func.FuncOp:
    """The one function of a text, which messages show as if it stood in a file."""
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = parse_module(text, file)
    ops = list(module.body.block.ops)
    if len(ops) != 1 or not isinstance(ops[0], func.FuncOp):
        raise CompileError(
            f"the text holds {', '.join(op.name for op in ops) or 'nothing'}",
            location=Location(file, 1, 1),
            rule="an implementation is one func.func",
        )
    ops[0].detach()
    return ops[0]
