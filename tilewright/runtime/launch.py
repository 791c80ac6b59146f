"""From a call ``kernel[grid](a, b, c)`` to the target, in microseconds once the kernel is ready.

Three dictionaries lie between a call and a compiler, each keyed by less than the one before:

1. what can be read off the arguments cheaply (dtype, shape, strides, low bits of the address):
   shapes seen before end here;
2. the signature (:mod:`tilewright.runtime.key`): the facts that the code depends on;
3. the disk cache, keyed by the kernel's source text and everything that went into its code.

What cannot be launched is refused before anything runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright import dtypes, knobs
from tilewright.diagnostics import LaunchError, UnsupportedError
from tilewright.runtime import cache
from tilewright.runtime.arrays import ArrayArg, describe, is_array
from tilewright.runtime.compiled import CompiledKernel, compile_program
from tilewright.runtime.key import (
    ScalarType,
    Signature,
    overlapping_arguments,
    scalar_type,
    signature_of,
    stable_text,
)
from tilewright.targets.base import Argument, CompileOptions, Grid, with_options

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

MISSING: Any = object()
"""Default of a parameter that has none."""

_MAX_SHAPES = 4096
"""Shapes that one kernel remembers; a program with more of them starts over."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    constexpr: bool = False
    default: Any = MISSING


class Program(Protocol):
    """What a front end gives the launcher."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    def build(
        self, signature: Signature, constexprs: Mapping[str, Any], options: CompileOptions
    ) -> ModuleOp:
        """The module with one kernel, whose arguments are those of ``signature``, in order."""
        ...

    def fingerprint(self) -> str | None:
        """Digest of the source that :meth:`build` reads; None when there is none."""
        ...


@dataclass(slots=True)
class _Plan:
    """A ready launch for arguments of known shapes."""

    kernel: CompiledKernel
    launch: Callable[[Grid, Sequence[Argument]], None]
    readonly_stored: str | None


@dataclass(slots=True)
class _Shapes:
    """All that is known about launches whose arguments look alike."""

    args: list[ArrayArg | ScalarType]
    """One per run-time parameter; the arrays have the addresses of the first such launch."""
    ranges: list[tuple[int, int, int]]
    """Position among the run-time parameters, first and past-the-last byte from the pointer."""
    plans: dict[frozenset[int] | set[int], _Plan]


class Launcher:
    """Launches one program under one set of options; thread-safe."""

    def __init__(self, program: Program, options: Mapping[str, Any] | None = None):
        self.program = program
        self.overrides = dict(options or {})
        with_options(CompileOptions(), self.overrides)
        self._parameters = program.parameters
        self._constexpr = tuple(p.constexpr for p in self._parameters)
        self._seen: dict[Any, _Shapes] = {}
        self._kernels: dict[Any, CompiledKernel] = {}

    def with_options(self, changes: Mapping[str, Any]) -> Launcher:
        """A launcher of the same program with some options changed."""
        return Launcher(self.program, {**self.overrides, **changes})

    # --- launching -------------------------------------------------------------------------

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Runs the program once for every point of ``grid`` (an int or 1 to 3 ints)."""
        values = self.bind(args, kwargs)
        settings = knobs.current()
        key: list[Any] = [settings.target, settings.num_threads]
        arrays: list[tuple[Any, int]] = []
        for value, constexpr in zip(values, self._constexpr, strict=True):
            kind = type(value)
            if constexpr:
                key.append(_constexpr_key(kind, value))
            elif kind is np.ndarray:
                pointer: int = value.__array_interface__["data"][0]
                arrays.append((value, pointer))
                key.append(
                    (value.dtype, value.shape, value.strides, pointer & 63, value.flags.writeable)
                )
            elif (scalar := scalar_type(value)) is not None:
                key.append(scalar)
            else:
                return self._launch_slowly(grid, values)
        shapes = self._seen.get(tuple(key))
        if shapes is None:
            return self._launch_slowly(grid, values, tuple(key))
        full = full_grid(grid)
        overlap: set[int] = set()
        ready: list[Any] = []
        spans: list[tuple[int, int, int]] = []
        following = iter(arrays)
        for position, known in enumerate(shapes.args):
            if isinstance(known, ScalarType):
                ready.append(None)
                continue
            owner, pointer = next(following)
            ready.append(
                ArrayArg(
                    pointer,
                    known.shape,
                    known.strides,
                    known.dtype,
                    known.device,
                    known.readonly,
                    owner,
                )
            )
            _, low, high = shapes.ranges[len(spans)]
            spans.append((pointer + low, pointer + high, position))
        for i, (low, high, position) in enumerate(spans):
            for other_low, other_high, other in spans[:i]:
                if low < other_high and other_low < high and low < high and other_low < other_high:
                    overlap |= {position, other}
        plan = shapes.plans.get(frozenset(overlap))
        if plan is None:
            return self._launch_slowly(grid, values, tuple(key))
        if 0 in full:
            return None
        if plan.readonly_stored is not None:
            raise _readonly_error(plan.readonly_stored, self.program.name)
        run_time = [
            v for v, constexpr in zip(values, self._constexpr, strict=True) if not constexpr
        ]
        launch_args = [r if r is not None else v for r, v in zip(ready, run_time, strict=True)]
        plan.launch(full, launch_args)
        return None

    def _launch_slowly(self, grid: Any, values: Sequence[Any], key: Any = None) -> None:
        """A launch of arguments not seen before; remembers them under ``key``."""
        full = full_grid(grid)
        args, types, constexprs = self._describe(values)
        described = [t for t in types if isinstance(t, ArrayArg)]
        for arg, name in zip(types, self._run_time_names(), strict=True):
            if isinstance(arg, ArrayArg) and arg.device == "spec":
                raise LaunchError(
                    f"{name} has a shape but no memory", hint="use kernel.compile(...) for it"
                )
        options = self._options(described)
        if 0 in full:
            return
        kernel = self._kernel(signature_of(types), constexprs, options)
        names = self._run_time_names()
        readonly = next(
            (
                names[i]
                for i in sorted(kernel.stored)
                if isinstance(arg := types[i], ArrayArg) and arg.readonly
            ),
            None,
        )
        plan = _Plan(kernel, kernel.executable.launch, readonly)
        if key is not None:
            self._remember(key, types, plan)
        if readonly is not None:
            raise _readonly_error(readonly, self.program.name)
        plan.launch(full, args)

    def _remember(self, key: Any, types: list[ArrayArg | ScalarType], plan: _Plan) -> None:
        shapes = self._seen.get(key)
        if shapes is None:
            ranges: list[tuple[int, int, int]] = []
            for i, arg in enumerate(types):
                if isinstance(arg, ArrayArg):
                    low, high = arg.byte_range()
                    ranges.append((i, low - arg.pointer, high - arg.pointer))
            if len(self._seen) >= _MAX_SHAPES:
                self._seen.clear()
            unowned = [replace(t, owner=None) if isinstance(t, ArrayArg) else t for t in types]
            shapes = self._seen[key] = _Shapes(unowned, ranges, {})
        shapes.plans[frozenset(overlapping_arguments(types))] = plan

    # --- compiling -------------------------------------------------------------------------

    def compile(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], **options: Any
    ) -> CompiledKernel:
        """The kernel compiled for arguments like these (arrays or ``ArraySpec``), not run."""
        launcher = self.with_options(options) if options else self
        _, types, constexprs = launcher._describe(launcher.bind(args, kwargs))
        described = [t for t in types if isinstance(t, ArrayArg)]
        return launcher._kernel(signature_of(types), constexprs, launcher._options(described))

    def describe(
        self, values: Sequence[Any]
    ) -> tuple[list[ArrayArg | ScalarType], dict[str, Any], CompileOptions]:
        """What bound values are: types of the run-time ones, constexprs, options of their launch."""
        _, types, constexprs = self._describe(values)
        arrays = [t for t in types if isinstance(t, ArrayArg)]
        return types, constexprs, self._options(arrays)

    def _kernel(
        self, signature: Signature, constexprs: Mapping[str, Any], options: CompileOptions
    ) -> CompiledKernel:
        texts = tuple((n, type(v), stable_text(v) or v) for n, v in constexprs.items())
        key = (signature, texts, options)
        found = self._kernels.get(key)
        if found is None:
            with _compiling:
                found = self._kernels.get(key)
                if found is None:
                    found = compile_program(
                        self.program, signature, constexprs, options, cache.current()
                    )
                    self._kernels[key] = found
        return found

    def _options(self, arrays: Sequence[ArrayArg]) -> CompileOptions:
        """The options of a launch on ``arrays``: the kernel's own, then the knobs, then theirs."""
        settings = knobs.current()
        chosen = dict(self.overrides)
        devices = sorted({a.device for a in arrays if a.device != "spec"})
        if len(devices) > 1:
            raise LaunchError(
                f"the arrays of one launch live on {' and '.join(devices)}",
                hint="move them to one device",
            )
        device = devices[0] if devices else "cpu"
        chosen.setdefault("target", settings.target or device.partition(":")[0])
        chosen.setdefault("num_threads", settings.num_threads)
        options = with_options(CompileOptions(), chosen)
        on_host = options.target.partition("-")[0] in ("cpu", "reference")
        if devices and on_host != (device == "cpu"):
            raise UnsupportedError(
                f"target {options.target!r} cannot reach arrays on {device}",
                hint="leave the target out: it follows the arrays",
            )
        return options

    # --- arguments -------------------------------------------------------------------------

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """One value per parameter, as Python binds a call; LaunchError names what is wrong."""
        parameters = self._parameters
        if len(args) == len(parameters) and not kwargs:
            return args
        if len(args) > len(parameters):
            raise self._arity_error(
                f"takes {len(parameters)} arguments, but {len(args)} were given"
            )
        values: list[Any] = list(args)
        left = dict(kwargs)
        for i, parameter in enumerate(parameters):
            given = left.pop(parameter.name, MISSING)
            if i < len(args):
                if given is not MISSING:
                    raise self._arity_error(f"got two values for argument {parameter.name!r}")
                continue
            value = given if given is not MISSING else parameter.default
            if value is MISSING:
                raise self._arity_error(f"misses argument {parameter.name!r}")
            values.append(value)
        if left:
            raise self._arity_error(f"has no argument {next(iter(left))!r}")
        return tuple(values)

    def _arity_error(self, what: str) -> LaunchError:
        names = ", ".join(
            p.name + ("" if p.default is MISSING else f"={p.default!r}") for p in self._parameters
        )
        return LaunchError(
            f"kernel {self.program.name} {what}", hint=f"its arguments are ({names})"
        )

    def _run_time_names(self) -> list[str]:
        return [p.name for p in self._parameters if not p.constexpr]

    def _describe(
        self, values: Sequence[Any]
    ) -> tuple[list[Argument], list[ArrayArg | ScalarType], dict[str, Any]]:
        """Run-time arguments, what each is, and the constexprs by name."""
        args: list[Argument] = []
        types: list[ArrayArg | ScalarType] = []
        constexprs: dict[str, Any] = {}
        for parameter, value in zip(self._parameters, values, strict=True):
            if parameter.constexpr:
                if is_array(value):
                    raise LaunchError(
                        f"{parameter.name} is a constexpr, and was given an array",
                        hint="arrays are run-time arguments: take the annotation away",
                    )
                constexprs[parameter.name] = value
                continue
            scalar = scalar_type(value)
            if scalar is not None:
                types.append(scalar)
                args.append(_checked_scalar(value, scalar, parameter.name))
            elif isinstance(value, dtypes.DType):
                raise LaunchError(
                    f"{parameter.name} was given a dtype, which is no run-time value",
                    hint=f"annotate it: {parameter.name}: tw.constexpr",
                )
            else:
                arg = describe(value, parameter.name)
                types.append(arg)
                args.append(arg)
        return args, types, constexprs


def _checked_scalar(value: Any, scalar: ScalarType, name: str) -> Any:
    if scalar.dtype is dtypes.index and not -(1 << 63) <= value < 1 << 63:
        raise LaunchError(f"{name} = {value} does not fit 64 bits")
    return value


def _constexpr_key(kind: type, value: Any) -> Any:
    """Values that compare equal but compile differently (1, 1.0, True; 0.0, -0.0) stay apart."""
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


_GRID_LIMIT = (1 << 31) - 1


def full_grid(grid: Any) -> Grid:
    """``grid`` with three axes; LaunchError for what is no grid."""
    axes = grid if type(grid) is tuple else tuple(grid) if isinstance(grid, list) else (grid,)
    if not 1 <= len(axes) <= 3:
        raise LaunchError(f"a grid has 1 to 3 axes, not {len(axes)}: {axes}")
    full: list[int] = [1, 1, 1]
    for i, extent in enumerate(axes):
        if type(extent) is not int:
            if isinstance(extent, bool) or not isinstance(extent, (int, np.integer)):
                raise LaunchError(f"axis {i} of the grid is {extent!r}, which is no integer")
            extent = int(extent)
        if not 0 <= extent <= _GRID_LIMIT:
            raise LaunchError(
                f"axis {i} of the grid is {extent}", rule=f"each axis is 0 to {_GRID_LIMIT}"
            )
        full[i] = extent
    return full[0], full[1], full[2]


def _readonly_error(name: str, kernel: str) -> LaunchError:
    return LaunchError(
        f"kernel {kernel} stores to {name}, which is a read-only array",
        hint="pass a writeable array: x.copy()",
    )


_compiling = threading.RLock()
"""Held while a kernel is compiled: two threads that need the same kernel compile it once."""


def _forget_lock() -> None:
    global _compiling
    _compiling = threading.RLock()


os.register_at_fork(after_in_child=_forget_lock)
