"""Calls: functions of the language, Python's own, and the user's helpers, which are inlined."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Mapping
from functools import partial, reduce
from numbers import Real
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, cast

from tilewright import dtypes
from tilewright.diagnostics import CompileError, TilewrightError
from tilewright.dialects import tw as tw_dialect
from tilewright.dtypes import DType
from tilewright.lang import carry, elementwise, elsewhere
from tilewright.lang.annotations import said
from tilewright.lang.arithmetic import PYTHON, binary, truth
from tilewright.lang.context import Emitter, OutsideKernelError, activate
from tilewright.lang.convert import computed, constant, to
from tilewright.lang.expressions import elements, operate
from tilewright.lang.frame import Frame, Unbound, expression
from tilewright.lang.implementations import call_apart, implementations_of
from tilewright.lang.kernel_type import KernelFunction
from tilewright.lang.program import NamedBarrier, device_print
from tilewright.lang.registry import describe_signature, is_language, signature_of
from tilewright.lang.source import source_of
from tilewright.lang.values import Array, LoopRange, Tile, Value, describe_type, is_number_member

_RUNTIME_METHODS = (Value, Tile, Array, NamedBarrier)
_RUNTIME_OBJECTS = (Value, Tile, Array, LoopRange, NamedBarrier)
_SEQUENCE_BUILTINS = (len, tuple, list, zip, enumerate, reversed, sorted)
_CHANGING = (
    "append", "extend", "insert", "remove", "pop", "popitem", "clear", "sort", "reverse", "update",
    "setdefault", "add", "discard",
)  # fmt: skip
_NUMERIC = frozenset({"builtins", "math", "numpy", "operator", "scipy", "torch", "triton"})
_VARYING = ("numpy.random", "random", "secrets", "time")
"""Modules whose functions give something else at every call."""
_PURE_BUILTINS = (*_SEQUENCE_BUILTINS[:-1], isinstance, str, type)


@expression(ast.Call)
def _call(frame: Frame, node: ast.Call) -> Any:
    function = frame.evaluate(node.func)
    positional = elements(frame, node.args)
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise frame.lacking(
                node, "a starred expression (**kwargs)", "name the arguments one by one"
            )
        named[keyword.arg] = frame.evaluate(keyword.value)
    return call(frame, node, function, positional, named)


def call(
    frame: Frame, node: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """The result of calling an object of compile time."""
    if isinstance(function, KernelFunction):
        return inline(frame, node, function.function, args, kwargs, as_launched=True)
    if is_language(function):
        return _language_call(frame, node, function, args, kwargs)
    if isinstance(function, partial):  # methods of values are
        given = (function.func, [*function.args, *args], function.keywords | kwargs)
        return call(frame, node, *given)
    special = _special_builtin(function)
    if special is not None:
        with frame.blame(node, node):
            given = _bind_builtin(function, args, kwargs)
            if function in (builtins.sum, builtins.any, builtins.all, builtins.min, builtins.max):
                of = f"{function.__name__} of"
                given = [
                    as_sequence(frame, node, of, a) if isinstance(a, LoopRange) else a
                    for a in given
                ]
            return special(frame, node, *given)
    if isinstance(function, MethodType) and isinstance(function.__self__, _RUNTIME_METHODS):
        with frame.blame(node, node):
            return _checked(function, args, kwargs)
    if isinstance(function, _RUNTIME_OBJECTS):
        raise _refused_call(frame, node, function)
    _once(frame, node, function)
    if function in _SEQUENCE_BUILTINS:
        args = [as_sequence(frame, node, f"{function.__name__} of", argument) for argument in args]
    constant = not any(map(_holds_runtime, (*args, *kwargs.values())))
    if isinstance(function, FunctionType):
        return _helper(frame, node, function, args, kwargs, constant)
    groups_values = function in _PURE_BUILTINS or hasattr(function, "_fields")
    if callable(function) and (constant or groups_values):
        with activate(None):
            return _plain(frame.python(node, lambda: function(*args, **kwargs)))
    raise _refused_call(frame, node, function)


def _language_call(
    frame: Frame,
    node: ast.Call,
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
) -> Any:
    names = [
        p.name
        for p in signature_of(function).parameters.values()
        if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    shown = tuple(names[max(0, len(args) - len(node.args)) :])  # without what a method is of
    node.parameter_names = shown  # pyright: ignore[reportAttributeAccessIssue]
    with frame.blame(node, node):
        try:
            signature_of(function).bind(*args, **kwargs)
        except TypeError as error:
            arrays = names[:1] == ["tile"] and args and isinstance(args[0], Array)
            tile = "; a tile of an array is tw.init_tile(array, offsets, shape)" if arrays else ""
            own = [
                elsewhere.KEYWORDS[k] for k in kwargs if k not in names and k in elsewhere.KEYWORDS
            ]
            raise CompileError(
                f"{function.__name__}: {error}",
                hint=f"{'; '.join(own)}{': ' if own else ''}{describe_signature(function)}{tile}",
            ) from None

        def given(
            x: Any,
        ) -> Any:  # what is called by the language is called as in the kernel: inlined
            if callable(x) and not isinstance(x, (type, *_RUNTIME_OBJECTS)):
                return lambda *values: call(frame, node, x, list(values), {})
            return x

        return function(*map(given, args), **{k: given(v) for k, v in kwargs.items()})


def _checked(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise CompileError(f"{getattr(function, '__name__', function)}: {error}") from None
    return function(*args, **kwargs)


def _bind_builtin(function: Any, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    if kwargs:
        raise CompileError(
            f"{function.__name__} takes no keyword arguments in a kernel",
            hint="its values stand in one line, with spaces between them"
            if function is print
            else f"give {', '.join(kwargs)} by position, if it is needed",
        )
    return args


DEEPEST = 32
"""Calls of one helper inside of another: halves of halves of any tile need fewer, and what has no end is told soon."""


def _helper(
    frame: Frame,
    node: ast.Call,
    function: FunctionType,
    args: list[Any],
    kwargs: dict[str, Any],
    constant: bool,
) -> Any:
    """A function of the user. On objects of compile time it simply runs, if it can."""
    if constant and function.__code__ not in frame.stack:
        try:
            with activate(None):
                return _plain(function(*args, **kwargs))
        except OutsideKernelError:
            pass  # it writes IR: inline it
        except AttributeError as error:
            if not is_number_member(error.obj, error.name or ""):
                raise frame.error(
                    node, f"{function.__name__} raised AttributeError: {error}"
                ) from None
        except TilewrightError as error:
            error.at(frame.location(node))
            raise
        except Exception as error:
            raise frame.error(
                node, f"{function.__name__} raised {type(error).__name__}: {error}"
            ) from None
    return inline(frame, node, function, args, kwargs)


def inline(
    frame: Frame,
    node: ast.Call,
    function: FunctionType,
    args: list[Any],
    kwargs: dict[str, Any],
    *,
    as_launched: bool = False,
) -> Any:
    """Compiles the body of a helper, or of another kernel, in place; `as_launched`: numbers get the dtypes that it
    declares."""
    name = function.__name__
    with frame.blame(node):
        if frame.stack.count(function.__code__) >= DEEPEST:
            raise CompileError(
                f"{name} calls itself, {DEEPEST} calls deep",
                rule="helpers are inlined, so that recursion ends where the kernel is compiled",
                hint="end it by a condition of compile time (a constexpr, an extent of a tile), or write a loop",
            )
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise CompileError(f"{name}: {error}") from None
        bound.apply_defaults()
        if as_launched:
            bound.arguments |= _as_declared(function, bound.arguments)
        source = source_of(function)

    def body(emitter: Emitter, arguments: Mapping[str, Any]) -> Any:
        caller = frame.source.mlir_location(node, frame.caller)
        inner = Frame(source, emitter, arguments, caller=caller, stack=frame.stack)
        try:
            with activate(emitter):
                return inner.run()
        except TilewrightError as error:
            frame.note_caller(error, node, name)
            raise

    try:
        if implementations_of(function):
            with frame.blame(node):
                return call_apart(function, frame.emitter, bound.arguments, body)
        return body(frame.emitter, bound.arguments)
    finally:
        frame.at(node)


def _as_declared(function: FunctionType, given: Mapping[str, Any]) -> dict[str, Value]:
    """Numbers and scalars in the dtypes that a kernel declares for them, as a launch passes them."""
    found: dict[str, Value] = {}
    for name, annotation in function.__annotations__.items():
        dtype, value = said(annotation, function.__globals__), given.get(name)
        if not isinstance(dtype, DType) or not isinstance(value, (Value, Real)):
            continue
        if isinstance(value, Value) and (value.shape or value.dtype is dtype):
            continue
        if (
            value.dtype.is_float if isinstance(value, Value) else isinstance(value, float)
        ) and not dtype.is_float:
            raise CompileError(
                f"{name} is a float, but {function.__name__} declares {name}: {dtype!r}",
                hint="a float never becomes an integer by itself: x.to(dtype), or declare another dtype",
            )
        found[name] = (
            to(value, dtype) if isinstance(value, Value) else constant(cast(Any, value), dtype)
        )
    return found


def as_sequence(frame: Frame, node: ast.AST, what: str, argument: Any) -> Any:
    """A range of compile time as Python's own, for what goes through sequences (`what` it is, before the argument)."""
    if isinstance(argument, (Value, Tile, Array)):
        raise frame.error(
            node,
            f"{what} {describe_type(argument)}",
            rule="sequences are objects of compile time",
            hint="its extents are x.shape; a part of an array is loaded as a tile",
        )
    if not isinstance(argument, LoopRange):
        return argument
    bounds = (argument.start, argument.stop, argument.step)
    if all(isinstance(bound, int) for bound in bounds):
        return range(*cast(tuple[int, int, int], bounds))
    raise frame.error(
        node,
        "a range of run time is not a sequence",
        rule="a range with run-time bounds can only be used in for ... in range(...)",
        hint="write that loop, and count or sum in a variable of your own",
    )


def _once(frame: Frame, node: ast.AST, function: Any) -> None:
    """Refuses what would happen once, while compiling, where every program is meant to do it."""
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if isinstance(owner, (list, dict, set, bytearray)) and name in _CHANGING:
        raise frame.error(
            node,
            f"{name} changes a {type(owner).__name__}",
            rule="a kernel changes names, never objects: it is compiled once, for all programs",
            hint="xs = xs + (x,) makes a longer tuple; arrays are written with tw.store_tile",
        )
    module = str(getattr(function, "__module__", None) or type(owner).__module__)
    if module.startswith(_VARYING):
        raise frame.error(
            node,
            f"{module}.{name} is called in a kernel",
            rule="it would run once, while compiling, and leave the same number in every program",
            hint="call it before the launch and pass the result as an argument",
        )


def _plain(value: Any) -> Any:
    """Results of Python in the form that kernels handle: iterators become tuples."""
    if isinstance(value, (zip, enumerate, reversed)):
        return tuple(value)
    return value


def _refused_call(frame: Frame, node: ast.Call, function: Any) -> CompileError:
    if isinstance(function, DType):
        return frame.error(node, f"{function!r} is no function", hint=f"x.to({function!r})")
    if not callable(function):
        hint = "an element of it is x[i]" if carry.is_sequence(function) else None
        if isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id):
            hint = f"the kernel's {node.func.id} hides Python's: give it another name"
        return frame.error(node, f"{describe_type(function)} cannot be called", hint=hint)
    module = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__name__", repr(function))
    own = elsewhere.counterpart(name) if str(module).split(".")[0] in _NUMERIC else None
    return frame.error(
        node,
        f"{module}.{name} is called with a value of run time",
        rule="functions of Python and its libraries compute at compile time",
        hint=own or "use the functions of the tile language, tw.*",
    )


def _holds_runtime(value: Any) -> bool:
    return any(isinstance(part, _RUNTIME_OBJECTS) for part in carry.parts(value))


# --- Python's own functions that mean something special in a kernel ------------------------


def _range(frame: Frame, node: ast.Call, *bounds: Any) -> LoopRange:
    if not 1 <= len(bounds) <= 3:
        raise CompileError(f"range takes 1 to 3 arguments, not {len(bounds)}")
    for bound, argument in zip(bounds, node.args, strict=True):
        is_int = isinstance(bound, int) and not isinstance(bound, bool)
        is_scalar = isinstance(bound, Value) and bound.is_scalar and bound.dtype.is_integer
        if not (is_int or is_scalar):
            floats = isinstance(bound, float) or (isinstance(bound, Value) and bound.is_scalar)
            hint = "a // b divides integers and rounds down, tw.cdiv(a, b) up" if floats else None
            if isinstance(bound, (Array, Value)) and not floats:
                hint = "its extents are x.shape: range(x.shape[0])"
            raise frame.error(
                argument, f"range takes integers, not {describe_type(bound)}", hint=hint
            )
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if isinstance(step, int) and step == 0:
        raise frame.error(node.args[2], "the step of a range is 0")
    return LoopRange(start, stop, step)


def _extremum(symbol: str) -> Callable[..., Any]:
    function = elementwise.maximum if symbol == "max" else elementwise.minimum
    plain = builtins.max if symbol == "max" else builtins.min

    def call(frame: Frame, node: ast.Call, *args: Any) -> Any:
        if not any(map(_holds_runtime, args)):
            return frame.python(node, lambda: plain(*args))
        items = list(args[0]) if len(args) == 1 and carry.is_sequence(args[0]) else list(args)
        for item in items:
            if (isinstance(item, Value) and item.shape) or not isinstance(item, (Value, Real)):
                raise CompileError(
                    f"{symbol} of {describe_type(item)}",
                    hint=f"tw.{symbol}imum(a, b) is elementwise, tw.{symbol}(x, axis) reduces",
                )
        result = items[0]
        for item in items[1:]:
            result = function(result, item)
        return result

    return call


def _folded(plain: Callable[..., Any], symbol: str) -> Callable[..., Any]:
    """Python's function of a sequence, whose elements an operator combines."""

    def call(frame: Frame, node: ast.Call, *given: Any) -> Any:
        args = list(given)
        if len(args) > 2 or not any(map(_holds_runtime, args)):
            return frame.python(node, lambda: plain(*args))
        if not carry.is_sequence(args[0]) or (len(args) > 1 and symbol != "+"):
            raise _refused_call(frame, node, plain)
        items = [*args[1:], *args[0]]
        if symbol != "+":
            items = [truth(x) if isinstance(x, Value) else bool(x) for x in items]
        return reduce(lambda a, b: binary(symbol, a, b), items)

    return call


def _abs(frame: Frame, node: ast.Call, *args: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], Value):
        return elementwise.abs(args[0])
    return frame.python(node, lambda: abs(*args))


def _operator(symbol: str) -> Callable[..., Any]:
    def call(frame: Frame, node: ast.Call, *args: Any) -> Any:
        if len(args) == 2:
            return operate(frame, node, symbol, *args)
        return frame.python(node, lambda: PYTHON[symbol](*args))

    return call


def _number(kind: type, dtype: DType) -> Callable[..., Any]:
    def call(frame: Frame, node: ast.Call, *args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Value):
            if args[0].shape:
                raise CompileError(
                    f"{kind.__name__} of {describe_type(args[0])}",
                    hint="x.to(dtype) converts elementwise",
                )
            if kind is bool:
                return truth(args[0])
            result = to(args[0], dtype)
            result.weak = kind is float
            return result
        return frame.python(node, lambda: kind(*args))

    return call


def _print(frame: Frame, node: ast.Call, *args: Any) -> None:
    device_print(*args)


def _breakpoint(frame: Frame, node: ast.Call, *args: Any) -> None:
    names: list[str] = []
    values: list[Any] = []
    for name, binding in frame.names.items():
        if isinstance(binding.value, (Value, Tile)) and not isinstance(binding.value, Unbound):
            names.append(name)
            value = binding.value
            values.append(computed(value) if isinstance(value, Value) else value.ssa)
    frame.emitter.emit(tw_dialect.BreakpointOp(names, values))


def _special_builtin(function: Any) -> Callable[..., Any] | None:
    if isinstance(function, (type, BuiltinFunctionType)):
        return _SPECIAL.get(function)
    return _SPECIAL[builtins.breakpoint] if function is builtins.breakpoint else None


_SPECIAL: dict[Any, Callable[..., Any]] = {
    builtins.range: _range,
    builtins.min: _extremum("min"),
    builtins.max: _extremum("max"),
    builtins.abs: _abs,
    builtins.sum: _folded(sum, "+"),
    builtins.any: _folded(any, "|"),
    builtins.all: _folded(all, "&"),
    builtins.int: _number(int, dtypes.index),
    builtins.float: _number(float, dtypes.f32),
    builtins.bool: _number(bool, dtypes.i1),
    builtins.print: _print,
    builtins.breakpoint: _breakpoint,
    **{function: _operator(symbol) for symbol, function in PYTHON.items()},
}
