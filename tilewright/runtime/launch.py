"""From a call ``kernel[grid](a, b, c)`` to the target, in microseconds once the kernel is ready.

Three dictionaries lie between a call and a compiler, each keyed by less than the one before:

1. what can be read off the arguments cheaply (dtype, shape, strides, low bits of the address):
   shapes seen before end here;
2. the signature (:mod:`tilewright.runtime.key`): the facts that the code depends on;
3. the disk cache, keyed by the kernel's source text and everything that went into its code.

What cannot be launched is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright import cache, forks, frames, knobs
from tilewright.arguments import HOST, NOWHERE, ArrayArg, Grid, contiguous_strides, full_grid
from tilewright.diagnostics import LaunchError, ToolMissing, UnsupportedError
from tilewright.frozen import record
from tilewright.runtime.arrays import is_cut, likeness, unwritable
from tilewright.runtime.binding import MISSING, Binder, BoundCall, Parameter, constexpr_likeness
from tilewright.runtime.compiled import CompiledKernel, Program, compile_program, uncollected
from tilewright.runtime.grids import Constexprs, extents
from tilewright.runtime.guards import NONE, TENSORS, Seen, exact_key, guard, key_of, seen, words_of
from tilewright.runtime.key import ScalarType, overlapping_arguments, scalar_type, signature_of
from tilewright.runtime.sharing import Lattice, lattice, meet
from tilewright.targets.base import (
    Bindable,
    CompileOptions,
    Preparable,
    PreparedLaunch,
    get_target,
    with_options,
)

__all__ = ["MISSING", "Launcher", "Parameter", "full_grid", "is_contiguous"]

_MANY = 32
"""Launches over again after which they are made of native code, which takes some milliseconds once."""
_MAX_SHAPES = 4096
"""Shapes that one kernel remembers; a program with more of them starts over."""


@record
class LaunchPlan:
    """What becomes of launches that look alike: a prepared launch, or the reason for refusing.

    Neither, where the executable cannot prepare: such launches describe their arguments each time.
    """

    prepared: PreparedLaunch | None
    refusal: str | None = None
    hint: str | None = None


@record
class _Looks:
    """All launches whose arguments look alike (:func:`likeness`)."""

    arrays: list[tuple[int, int, int, Lattice]]
    """Position, first and past-the-last byte counted from the address, and places of elements, of every array."""
    plans: dict[frozenset[int], LaunchPlan]
    """By the positions of the arrays that overlap others: that alone is not in the looks."""
    constexprs: Constexprs
    """Those of the launch, with what was chosen for it."""


class Launcher:
    """Launches one program under one set of options; safe to use from several threads.

    Before the dictionaries of this module's head comes a fourth, for targets whose prepared launches
    can be bound to addresses (:class:`tilewright.targets.base.Bindable`): launches on arrays that
    lie where others of their shape have lain are one look-up.
    """

    def __init__(self, program: Program, options: Mapping[str, Any] | None = None):
        self.program = program
        self.overrides = dict(options or {})
        with_options(CompileOptions(), self.overrides)
        self.binder = Binder(program.name, program.parameters)
        self._constexpr = tuple(
            (p.name if p.constexpr else "", p.default) for p in program.parameters
        )
        self._seen: dict[Any, _Looks] = {}
        self._kernels: dict[Any, CompiledKernel] = {}
        self._bound: dict[Any, Callable[[], None]] = {}
        """Launches bound to addresses: by grid and everything else that they depend on (:func:`exact_key`)."""
        self._computed: dict[Any, Constexprs] = {}
        """What a function is given that computes the grid, by the same of the launch."""
        self._guarded: dict[Any, Seen] = {}
        """The same for native code: by grid and the words of the arguments."""
        self._named: dict[Any, Callable[..., bool | None]] = {}
        self._bound_under: list[object] = [None, None, object()]
        """The knobs under which the launches of ``_bound`` were bound, what gave them, and :meth:`epoch`."""
        self._hits = 0
        self._often = False
        self._watch: list[Callable[[], bool]] = [_always]
        """Whether the program is what it was when the kernels of this launcher were compiled."""

    def epoch(self) -> object:
        """One object as long as the program does not change; forgets what was compiled when it has."""
        if not self._watch[0]():
            self._watch[0] = _always
            self._bound_under[:] = None, None, object()
            for known in (self._bound, self._computed, self._guarded, self._seen, self._kernels):
                known.clear()
        return self._bound_under[2]

    def again(self, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] = NONE) -> bool:
        """Repeats a launch with these very addresses, shapes and numbers; False where there is none."""
        return self._again(grid, exact_key(args, kwargs))

    def _again(self, grid: Any, exact: Any) -> bool:
        """The same, by the key of what it depends on besides the grid."""
        under = self._bound_under[0]
        if exact is None or under is None or knobs.current() is not under or not self._watch[0]():
            return False
        if callable(grid):
            constexprs = self._computed.get(exact)
            if constexprs is None:
                return False
            grid = full_grid(extents(grid, constexprs, self.program.name))
        elif type(grid) is not int and type(grid) is not tuple:
            return False
        run = self._bound.get((grid, exact))
        if run is None:
            return False
        run()
        self._hits += 1
        return True

    def known_as(
        self, name: Any, operands: tuple[Any, ...], grid: Any, args: tuple[Any, ...]
    ) -> None:
        """Lets ``named(name, operands)`` repeat what ``again(grid, args)`` does, so that an operation need not find the
        grid and the arguments anew. ``args`` are views of ``operands``, and ``name`` (a tuple) is no grid."""
        run = self._bound.get((grid, exact_key(args)))
        if run is not None and (exact := exact_key(operands)) is not None:
            self._bound[name, exact] = run
            self._guard(name, operands, run)

    def named(self, name: Any, operands: tuple[Any, ...]) -> bool:
        """Repeats what is known as ``name`` of ``operands``; False where there is nothing."""
        found = self._named.get(name)
        if found is not None:
            return found(*operands) is not False

        def again(*operands: Any) -> bool:
            return self.again(name, operands)

        done = again(*operands)
        if done and self.repeats:
            self._named[name] = self.repeater(name, again) or again
        return done

    @property
    def repeats(self) -> bool:
        """Have there been so many launches over again that native code is worth its making?"""
        return self._hits >= _MANY

    def repeater(
        self, grid: Any, otherwise: Callable[..., bool | None]
    ) -> Callable[..., Any] | None:
        """Launches on a grid that are tried by :meth:`again` first, in native code; None without any."""
        from tilewright.runtime.repeat import repeater

        if not self._often:
            self._often = True
            self._bound.clear()  # they are bound anew, as native code
            self._guarded.clear()
        under, watch = self._bound_under, self._watch
        return repeater(otherwise, self._guarded, knobs.OVERRIDE, under, grid, watch, TENSORS)

    def _bind(
        self, grid: Any, exact: Any, full: Grid, known: _Looks, plan: PreparedLaunch, run_time: Any
    ) -> Callable[[], None] | None:
        """Remember a launch that has just happened for :meth:`again`; what repeats it."""
        fixed = type(grid) is int or type(grid) is tuple
        if exact is None or not (fixed or callable(grid)) or not hasattr(plan, "bind"):
            return None
        assert isinstance(plan, Bindable)
        settings = knobs.current()
        if self._bound_under[0] is not settings or len(self._bound) >= _MAX_SHAPES:
            self._bound.clear()
            self._computed.clear()
            self._guarded.clear()
            self._bound_under[:] = settings, knobs.OVERRIDE.get(), object()
        if not fixed:
            self._computed[exact] = known.constexprs
        run = plan.bind(full, run_time, self._often)
        self._bound[grid if fixed else full, exact] = run
        return run

    def _guard(self, grid: Any, args: tuple[Any, ...], run: Callable[[], None]) -> None:
        """Lets native code find a launch that is bound."""
        if not self._often or (told := words_of(args, TENSORS[0])) is None:
            return
        tensors = [x for x in args if type(x) in TENSORS[0]]
        check = guard(tensors) if tensors else None
        if check is not None or not tensors:
            self._guarded[grid, key_of(told[0])] = seen(check, run, self._bound_under[2], *told)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """One value per parameter; LaunchError names what is missing or too much."""
        return self.binder.values(args, kwargs)

    def describe(
        self, values: Sequence[Any]
    ) -> tuple[list[ArrayArg | ScalarType], dict[str, Any], CompileOptions]:
        """What one value per parameter is: run-time arguments, constexprs, options of the launch."""
        bound = self.binder.bind(values)
        return bound.types, bound.constexprs, self.chosen(bound.arrays)[0]

    def launch(self, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Runs the program once for every point of ``grid`` (an int, 1 to 3 ints, or a function of constexprs)."""
        computed = callable(grid)
        exact = exact_key(args, kwargs)
        if self._again(grid, exact):
            return None
        self.epoch()
        full: Any = grid if computed else full_grid(grid)
        values = self.binder.values(args, kwargs)
        read = self._read(values)
        if read is None:
            return self._launch_new(full, values, None)
        key, run_time, pointers = read
        known = self._seen.get(key)
        if known is None:
            return self._launch_new(full, values, key)
        if computed:
            full = full_grid(extents(grid, known.constexprs, self.program.name))
        plan = _placed(known, run_time, pointers)
        if plan is None or (plan.prepared is None and plan.refusal is None):
            return self._launch_new(full, values, key)
        if 0 in full:
            return None
        if plan.prepared is None:
            raise _refused(plan)
        plan.prepared(full, run_time)
        run = self._bind(grid, exact, full, known, plan.prepared, run_time)
        if run is not None and not kwargs and not computed:
            self._guard(grid, args, run)

    def _read(self, values: Sequence[Any]) -> tuple[Any, list[Any], list[int]] | None:
        """What is read off arguments: the key of their looks, what is given at run time, and the arrays' addresses.
        None where they have to be described."""
        settings = knobs.current()
        key: list[Any] = [settings.target, settings.num_threads, settings.cpu]
        run_time: list[Any] = []
        pointers: list[int] = []
        for value, (constexpr, default) in zip(values, self._constexpr, strict=True):
            if constexpr:
                same = value is default  # whatever it is: what is left open has no likeness
                key.append(MISSING if same else constexpr_likeness(value, constexpr))
                continue
            if value is None:
                key.append(None)
                continue
            run_time.append(value)
            looks = likeness(value)
            if looks is not None:
                key.append(looks[0])
                pointers.append(looks[1])
            elif (scalar := scalar_type(value)) is not None:
                key.append(scalar)
                if type(value) is int and not -(1 << 63) <= value < 1 << 63:
                    return None
            else:
                return None
        return tuple(key), run_time, pointers

    def prepared(self, args: tuple[Any, ...]) -> PreparedLaunch | None:
        """What launches on arrays at other addresses that look like these (:func:`likeness`), where none that is
        written overlaps another unless it does so here; None before a launch on such arrays, or where a target has
        none. It holds under these knobs, while `epoch` gives the same."""
        read = self._read(self.binder.values(args, NONE))
        known = None if read is None else self._seen.get(read[0])
        plan = None if known is None or read is None else _placed(known, *read[1:])
        return None if plan is None else plan.prepared

    def _launch_new(self, grid: Any, values: Sequence[Any], key: Any) -> None:
        """A launch of arguments not seen before; remembers what it found out under ``key``."""
        with uncollected():
            watch = self.program.watch()
            program, found = self.program.resolve(values, grid)
            chosen = any(a is not b for a, b in zip(values, found, strict=True))
            launcher = self if program is self.program else program.launcher
            if launcher is not self and self._watch[0] is _always:
                self._watch[0] = watch
            launcher._launch_resolved(grid, found, key, self, chosen)

    def _launch_resolved(
        self, grid: Any, values: Sequence[Any], key: Any, asked: Launcher, chosen: bool
    ) -> None:
        """With a value for every parameter, some of them `chosen`; ``asked`` is the launcher that remembers it."""
        bound = self.binder.bind(values)
        for name, arg in zip(self.binder.run_time_names, bound.types, strict=True):
            if isinstance(arg, ArrayArg) and arg.device == NOWHERE:
                raise LaunchError(
                    f"{name} has a shape but no memory", hint="use kernel.compile(...) for it"
                )
            if isinstance(arg, ArrayArg) and is_cut(arg.owner):
                frames.warn(
                    f"{name} of kernel {self.program.name} requires a gradient, which ends here: a launch"
                    " records none. Pass x.detach(), launch under torch.no_grad(), or make it the forward of"
                    " a torch.autograd.Function (the functions of tilewright.torch have gradients)"
                )
        constexprs = Constexprs(bound.constexprs)
        if callable(grid):
            grid = full_grid(extents(grid, constexprs, self.program.name))
        options = self.options_for(bound.arrays)
        if chosen:
            options = get_target(options.target).of_chosen(options)
        if 0 in grid:
            return
        kernel = self.kernel_for(bound, options)
        plan = self.plan(kernel, bound)
        if key is not None:
            asked._remember(key, bound, plan, constexprs)
        if plan.refusal is not None:
            raise _refused(plan)
        if plan.prepared is None:
            kernel.executable.launch(grid, bound.args)
        else:
            plan.prepared(grid, [a.pointer if isinstance(a, ArrayArg) else a for a in bound.args])

    def plan(self, kernel: CompiledKernel, bound: BoundCall) -> LaunchPlan:
        """Checks what the types of the arguments do not say."""
        for i, (name, arg) in enumerate(zip(self.binder.run_time_names, bound.types, strict=True)):
            if not isinstance(arg, ArrayArg):
                continue
            if i in kernel.stored and (why := unwritable(arg)):
                what = f"kernel {kernel.name} stores to {name}, which is {why}"
                return LaunchPlan(None, what, f"pass a writeable array: {name}.copy()")
            if i in kernel.contiguous and not is_contiguous(arg):
                what = (
                    f"kernel {kernel.name} indexes {name} as one flat array, but its strides "
                    f"{arg.strides} are not those of a row-major array of shape {arg.shape}"
                )
                if i in kernel.stored:  # of a copy, what the kernel writes would be lost
                    return LaunchPlan(
                        None, what, f"allocate {name} contiguous: numpy.empty(shape, dtype)"
                    )
                return LaunchPlan(None, what, f"pass numpy.ascontiguousarray({name})")
        executable = kernel.executable
        prepared = executable.prepare(bound.args) if isinstance(executable, Preparable) else None
        return LaunchPlan(prepared)

    def _remember(
        self, key: Any, bound: BoundCall, plan: LaunchPlan, constexprs: Constexprs
    ) -> None:
        looks = self._seen.get(key)
        if looks is None:
            arrays: list[tuple[int, int, int, Lattice]] = []
            for i, arg in enumerate(bound.types):
                if isinstance(arg, ArrayArg):
                    low, high = arg.byte_range()
                    arrays.append((i, low - arg.pointer, high - arg.pointer, lattice(arg)))
            if len(self._seen) >= _MAX_SHAPES:
                self._seen.clear()
            looks = self._seen[key] = _Looks(arrays, {}, constexprs)
        looks.plans[frozenset(overlapping_arguments(bound.types))] = plan

    def compile(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> CompiledKernel:
        """The kernel compiled for arguments like these (arrays or ``ArraySpec``), not run."""
        bound = self.binder.bind(self.binder.values(args, kwargs))
        chosen, device = self.chosen(bound.arrays)
        if device is not None and get_target(chosen.target).on_host != (device == HOST):
            # Where these arrays lie says nothing of where those of a launch will.
            bound.types[:] = [
                replace(t, pointer=0, device=NOWHERE) if isinstance(t, ArrayArg) else t
                for t in bound.types
            ]
        return self.kernel_for(bound, chosen)

    def kernel_for(self, bound: BoundCall, options: CompileOptions) -> CompiledKernel:
        """The kernel for these arguments: compiled when no signature like theirs was before."""
        self.epoch()
        target = get_target(options.target)
        signature = signature_of(bound.types, alignment=target.alignment, row=target.row)
        constexprs = bound.constexprs
        likes = tuple(constexpr_likeness(value, name) for name, value in constexprs.items())
        key = (signature, likes, options, knobs.current().cpu)
        found = self._kernels.get(key)
        if found is None:
            with _compiling:
                found = self._kernels.get(key)
                if found is None:
                    watch = self._watch[0] = self.program.watch()
                    found = compile_program(
                        self.program, signature, constexprs, options, cache.current()
                    )
                    if self._watch[0] is watch:  # else it has changed meanwhile
                        self._kernels[key] = found
        return found

    def options_for(self, arrays: Sequence[ArrayArg]) -> CompileOptions:
        """The options of a launch on ``arrays``, which the target has to reach."""
        options, device = self.chosen(arrays)
        target = get_target(options.target)
        if device is None or target.on_host == (device == HOST):
            return options
        if (missing := target.missing()) is not None:
            raise ToolMissing(
                f"target {options.target!r} cannot run here: {missing}",
                hint="kernel.compile(..., target=...) needs no device; a launch without a target"
                " runs where its arrays are",
            )
        there = "x.to('cuda') of a torch tensor" if device == HOST else "x.cpu()"
        raise UnsupportedError(
            f"target {options.target!r} cannot reach arrays on {device}",
            hint=f"move them ({there}), or leave the target out: it follows the arrays",
        )

    def chosen(self, arrays: Sequence[ArrayArg]) -> tuple[CompileOptions, str | None]:
        """The kernel's own options, then the knobs, then those of the arrays; and the arrays' device."""
        settings = knobs.current()
        chosen = dict(self.overrides)
        devices = sorted({a.device for a in arrays if a.device != NOWHERE})
        if len(devices) > 1:
            raise LaunchError(
                f"the arrays of one launch live on {' and '.join(devices)}",
                hint="move them to one device",
            )
        device = devices[0] if devices else None
        chosen.setdefault("target", settings.target or (device or HOST).partition(":")[0])
        chosen.setdefault("num_threads", settings.num_threads)
        return with_options(CompileOptions(), chosen), device


def _placed(known: _Looks, run_time: list[Any], pointers: list[int]) -> LaunchPlan | None:
    """The plan for arrays that overlap as these do; puts addresses in place of arrays."""
    spans: list[tuple[int, int, int, Lattice, int]] = []
    overlapping: set[int] = set()
    for (position, low, high, places), pointer in zip(known.arrays, pointers, strict=True):
        run_time[position] = pointer
        low += pointer
        high += pointer
        for other, other_low, other_high, others, first in spans:
            if low < other_high and other_low < high and meet(places, others, pointer - first):
                overlapping |= {position, other}
        if low < high:
            spans.append((position, low, high, places, pointer))
    return known.plans.get(frozenset(overlapping))


def _always() -> bool:
    return True


def _refused(plan: LaunchPlan) -> LaunchError:
    return LaunchError(plan.refusal or "", hint=plan.hint)


def is_contiguous(arg: ArrayArg) -> bool:
    """Whether the elements lie in C order without gaps."""
    return all(
        extent == 1 or stride == dense
        for extent, stride, dense in zip(
            arg.shape, arg.strides, contiguous_strides(arg.shape), strict=True
        )
    )


_compiling = forks.lock()
"""Held while a kernel is compiled: two threads that need the same kernel compile it once."""
