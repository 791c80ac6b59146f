"""From the values of a call to a kernel's parameters: arity, scalars, arrays, constexprs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from tilewright import dtypes
from tilewright.arguments import Argument, ArrayArg
from tilewright.diagnostics import LaunchError, did_you_mean
from tilewright.frozen import frozen
from tilewright.runtime.arrays import describe, is_array, with_article
from tilewright.runtime.key import ScalarType, scalar_type, stable_text
from tilewright.targets.base import CompileOptions

MISSING: Any = object()
"""Default of a parameter that has none."""


@frozen
class Parameter:
    """One parameter of a kernel."""

    name: str
    constexpr: bool = False
    default: Any = MISSING
    dtype: dtypes.DType | None = None
    """Of a number, whatever kind of number a call gives; None: it has that of the call's."""


@frozen
class BoundCall:
    """The values of one call, told apart."""

    args: list[Argument]
    """Run-time arguments, in order; arrays as :class:`ArrayArg`."""
    types: list[ArrayArg | ScalarType]
    """What each of them is."""
    constexprs: dict[str, Any]

    @property
    def arrays(self) -> list[ArrayArg]:
        return [t for t in self.types if isinstance(t, ArrayArg)]


class Binder:
    """Binds calls of one kernel."""

    def __init__(self, kernel: str, parameters: Sequence[Parameter]):
        self.kernel = kernel
        self.parameters = tuple(parameters)
        self.run_time_names = [p.name for p in parameters if not p.constexpr]
        self._defaults = tuple(p.default for p in parameters)
        self._typed = [
            (i, p.name, p.dtype) for i, p in enumerate(parameters) if p.dtype and not p.constexpr
        ]
        self._least = 1 + max(
            (i for i, default in enumerate(self._defaults) if default is MISSING), default=-1
        )

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """One value per parameter, as Python binds a call, numbers in the dtypes that the kernel declares; LaunchError
        names what is wrong."""
        values = self._values(args, kwargs)
        if not self._typed:
            return values
        typed = list(values)
        for i, name, dtype in self._typed:
            typed[i] = _typed(typed[i], name, dtype)
        return tuple(typed)

    def _values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        parameters = self.parameters
        if not kwargs and self._least <= len(args) <= len(parameters):
            return args + self._defaults[len(args) :]
        if len(args) > len(parameters):
            raise self._error(f"takes {len(parameters)} arguments, but {len(args)} were given")
        names = [p.name for p in parameters]
        for name in kwargs:
            if name not in names:
                raise self._error(f"has no argument {name!r}", _meant(name, names))
        values: list[Any] = list(args)
        left = dict(kwargs)
        for i, parameter in enumerate(parameters):
            given = left.pop(parameter.name, MISSING)
            if i < len(args):
                if given is not MISSING:
                    raise self._error(f"got two values for argument {parameter.name!r}")
                continue
            value = given if given is not MISSING else parameter.default
            if value is MISSING:
                raise self._error(f"misses argument {parameter.name!r}")
            values.append(value)
        return tuple(values)

    def bind(self, values: Sequence[Any]) -> BoundCall:
        """Describes one value per parameter; LaunchError names the one that no kernel takes."""
        bound = BoundCall([], [], {})
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.constexpr:
                bound.constexprs[parameter.name] = _checked_constexpr(value, parameter.name)
                continue
            scalar = scalar_type(value)
            arg = describe_argument(value, parameter.name) if scalar is None else None
            bound.types.append(arg if arg is not None else scalar)  # pyright: ignore[reportArgumentType]
            bound.args.append(arg if arg is not None else _checked_scalar(value, parameter.name))
        return bound

    def _error(self, what: str, hint: str | None = None) -> LaunchError:
        names = ", ".join(
            p.name + ("" if p.default is MISSING else f"={p.default!r}") for p in self.parameters
        )
        known = f"its arguments are ({names})"
        if hint is None and self.parameters and self.parameters[0].name in ("self", "cls"):
            hint = "a kernel in a class has no self: write @staticmethod above @tw.kernel"
        return LaunchError(
            f"kernel {self.kernel} {what}", hint=f"{hint} ({known})" if hint else known
        )


def _meant(name: str, known: Sequence[str]) -> str | None:
    """What a keyword that a kernel does not have was meant for."""
    if name in (f.name for f in fields(CompileOptions)):
        return f"it is an option: kernel.options({name}=...)[grid](...)"
    if name in ("num_warps", "num_ctas", "maxnreg"):
        return "leave it out: the planner chooses how many threads a workgroup has"
    return did_you_mean(name, known)


def describe_argument(value: Any, name: str) -> ArrayArg:
    """Like :func:`tilewright.runtime.arrays.describe`, with a word for dtypes out of place."""
    if isinstance(value, dtypes.DType):
        raise LaunchError(
            f"{name} was given a dtype, which is no run-time value",
            hint=f"annotate it: {name}: tw.constexpr",
        )
    return describe(value, name)


def constexpr_likeness(value: Any, name: str) -> Any:
    """A key that keeps apart what compiles differently: 1, 1.0 and True; 0.0 and -0.0.

    LaunchError names the constexpr whose value has no such key.
    """
    kind = type(value)
    if kind is int or kind is bool or kind is str or kind is dtypes.DType:
        return kind, value
    text = stable_text(value)
    if text is not None:
        return text
    _checked_constexpr(value, name)
    try:
        hash(value)
    except TypeError:
        raise LaunchError(
            f"constexpr {name!r} must be hashable (a number, string, dtype or tuple of these), but"
            f" was given {with_article(kind.__name__)}"
        ) from None
    return kind, value


def _checked_constexpr(value: Any, name: str) -> Any:
    if is_array(value):
        raise LaunchError(
            f"constexpr {name!r} was given an array ({type(value).__name__})",
            hint=f"give it a number, or take tw.constexpr off {name}: arrays are run-time arguments",
        )
    return value


def _typed(value: Any, name: str, dtype: dtypes.DType) -> Any:
    """A number as one of `dtype`; what is no number stays as it is."""
    given = scalar_type(value)
    if given is None or given.dtype is dtype:
        return value
    if not dtype.is_float:
        if given.dtype.is_float:
            raise LaunchError(
                f"{name} = {value} is a float, but the kernel declares {name}: {dtype!r}",
                hint="a float never becomes an integer by itself: int(x), or another dtype",
            )
        low, high = dtype.integers
        if not low <= int(value) <= high:
            raise LaunchError(
                f"{name} = {value} is no value of {dtype}, as which the kernel declares it",
                hint=f"{dtype} holds integers from {low} to {high}",
            )
    return int(value) if dtype.is_index else dtype.numpy.type(value)


def _checked_scalar(value: Any, name: str) -> Any:
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise LaunchError(f"{name} = {value} does not fit 64 bits")
    return value
