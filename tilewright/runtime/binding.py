"""From the values of a call to a kernel's parameters: arity, scalars, arrays, constexprs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import dtypes
from tilewright.diagnostics import LaunchError
from tilewright.runtime.arrays import ArrayArg, describe, is_array
from tilewright.runtime.key import ScalarType, scalar_type, stable_text
from tilewright.targets.base import Argument

MISSING: Any = object()
"""Default of a parameter that has none."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    constexpr: bool = False
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class Bound:
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

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """One value per parameter, as Python binds a call; LaunchError names what is wrong."""
        parameters = self.parameters
        if len(args) == len(parameters) and not kwargs:
            return args
        if len(args) > len(parameters):
            raise self._error(f"takes {len(parameters)} arguments, but {len(args)} were given")
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
        if left:
            raise self._error(f"has no argument {next(iter(left))!r}")
        return tuple(values)

    def bind(self, values: Sequence[Any]) -> Bound:
        """Describes one value per parameter; LaunchError names the one that no kernel takes."""
        bound = Bound([], [], {})
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.constexpr:
                bound.constexprs[parameter.name] = _checked_constexpr(value, parameter.name)
                continue
            scalar = scalar_type(value)
            arg = describe_argument(value, parameter.name) if scalar is None else None
            bound.types.append(arg if arg is not None else scalar)  # pyright: ignore[reportArgumentType]
            bound.args.append(arg if arg is not None else _checked_scalar(value, parameter.name))
        return bound

    def _error(self, what: str) -> LaunchError:
        names = ", ".join(
            p.name + ("" if p.default is MISSING else f"={p.default!r}") for p in self.parameters
        )
        return LaunchError(f"kernel {self.kernel} {what}", hint=f"its arguments are ({names})")


def describe_argument(value: Any, name: str) -> ArrayArg:
    """Like :func:`tilewright.runtime.arrays.describe`, with a word for dtypes out of place."""
    if isinstance(value, dtypes.DType):
        raise LaunchError(
            f"{name} was given a dtype, which is no run-time value",
            hint=f"annotate it: {name}: tw.constexpr",
        )
    return describe(value, name)


def constexpr_likeness(value: Any) -> Any:
    """A key that keeps apart what compiles differently: 1, 1.0 and True; 0.0 and -0.0."""
    kind = type(value)
    if kind is int or kind is bool or kind is str or kind is dtypes.DType:
        return kind, value
    text = stable_text(value)
    if text is not None:
        return text
    try:
        hash(value)
    except TypeError:
        raise LaunchError(
            f"a constexpr of type {kind.__name__} cannot be told apart from others",
            hint="constexprs are numbers, strings, dtypes, tuples of them, or hashable objects",
        ) from None
    return kind, value


def _checked_constexpr(value: Any, name: str) -> Any:
    if is_array(value):
        raise LaunchError(
            f"{name} is a constexpr, and was given an array",
            hint="arrays are run-time arguments: take the annotation away",
        )
    return value


def _checked_scalar(value: Any, name: str) -> Any:
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        raise LaunchError(f"{name} = {value} does not fit 64 bits")
    return value
