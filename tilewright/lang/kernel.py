"""The kernel object: what ``@tw.kernel`` makes of a function, and how it is launched and compiled."""

from __future__ import annotations

import functools
import inspect
import linecache
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from tilewright.diagnostics import CompileError, LaunchError, Location, TilewrightError
from tilewright.lang.annotations import auto, constexpr, said
from tilewright.lang.choosing import Chooser
from tilewright.lang.kernel_type import KernelFunction, Level

if TYPE_CHECKING:
    from tilewright.lang.autotune import Autotune
    from tilewright.lang.build import Built
    from tilewright.runtime.binding import Parameter
    from tilewright.runtime.compiled import CompiledKernel, Program
    from tilewright.runtime.key import Signature
    from tilewright.runtime.launch import Launcher
    from tilewright.targets.base import CompileOptions

Grid: TypeAlias = Any
"""An int, a tuple of 1 to 3 ints, or a function from the constexprs to one of these."""


_MAX_GRIDS = 256
"""Grids for which a kernel keeps native launches."""


class Kernel(KernelFunction):
    """A tile kernel. ``kernel[grid](*args)`` runs it once for every point of the grid.

    The grid is an int or a tuple of up to three, or a function that computes it from constexprs,
    which it takes by name or all in one: ``kernel[lambda BM: tw.cdiv(M, BM)](A, B)``,
    ``kernel[lambda c: tw.cdiv(M, c.BM)](A, B)``. Arguments are numpy arrays, torch
    tensors, anything that speaks DLPack, and numbers; constexprs may be given as keywords. A call
    that does not fit the kernel raises LaunchError, a kernel that is not legal CompileError, and
    nothing has been run then.
    """

    def __init__(
        self,
        function: FunctionType,
        *,
        level: Level = "workgroup",
        subgroups: int | None = None,
        options: Mapping[str, Any] | None = None,
        none: frozenset[str] = frozenset(),
        search: Autotune | None = None,
    ):
        super().__init__(function, level, subgroups)
        functools.update_wrapper(self, function)
        self._options = dict(options or {})
        self._none = none
        """Run-time parameters that are None: those are of compile time."""
        self.search = search
        """What `@tw.autotune` says, if anything."""
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise CompileError(
                    f"kernel {function.__name__} has the parameter *{parameter.name}",
                    location=definition(function),
                    rule="a kernel has a fixed number of parameters",
                    hint="name each parameter",
                )
        self._with_options: dict[Any, Kernel] = {}
        self._with_none: dict[frozenset[str], Kernel] = {}
        self.chooser = Chooser(self)
        self._repeaters: dict[Any, Callable[..., None]] = {}
        self._spare: dict[Any, tuple[Built, Callable[[], bool]]] = {}
        """What was built for a choice, and is as it was: the next to build the very same takes it."""

    # What a launcher asks of a front end (tilewright.runtime.launch.Program).

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter: name, whether it is a constexpr, default, dtype."""
        from tilewright.dtypes import DType
        from tilewright.runtime.binding import MISSING, Parameter

        scope = self.function.__globals__
        searched = self.search.names if self.search is not None else ()

        def default(p: inspect.Parameter) -> Any:
            if p.name in searched:
                return auto
            return MISSING if p.default is p.empty else p.default

        def parameter(p: inspect.Parameter) -> Parameter:
            what: Any = said(p.annotation, scope)
            dtype = what if isinstance(what, DType) else None
            return Parameter(p.name, what is constexpr or p.name in self._none, default(p), dtype)

        return tuple(map(parameter, self._signature.parameters.values()))

    def build(
        self, signature: Signature, constexprs: Mapping[str, Any], options: CompileOptions
    ) -> Built:
        """The kernel IR for arguments of these types and these constexprs."""
        from tilewright.lang.build import build

        found = self._spare.pop(_build_key(signature, constexprs, options), None)
        if found is not None and found[1]():
            return found[0]
        left = [name for name, value in constexprs.items() if value is auto]
        if left:
            raise LaunchError(
                f"{', '.join(left)} of kernel {self.name} is left to the planner (tw.auto), which"
                " chooses when it sees the arguments",
                hint="launch or compile the kernel itself",
            )
        return build(
            self.function,
            signature,
            constexprs,
            level=self.level,
            subgroups=self.subgroups,
            fastmath=options.fastmath,
        )

    def spare(
        self,
        built: Built,
        signature: Signature,
        constexprs: Mapping[str, Any],
        options: CompileOptions,
        unchanged: Callable[[], bool],
    ) -> None:
        """Takes back what :meth:`build` made of these, which nobody has changed or keeps, for the next that asks for
        it. `unchanged`: a :meth:`watch` from before."""
        self._spare = {_build_key(signature, constexprs, options): (built, unchanged)}

    def fingerprint(self) -> str | None:
        """Digest of everything that :meth:`build` reads; None when there is none."""
        from tilewright.cache import digest
        from tilewright.runtime.references import references

        source = references(self.function).fingerprint
        return None if source is None else digest(source, self.level, str(self.subgroups))

    @property
    def source(self) -> str | None:
        """Digest of its source wherever that lies: copies of a program share results. None where there is none."""
        from tilewright.cache import digest
        from tilewright.runtime.references import references

        content = references(self.function).content
        return None if content is None else digest(content, self.level, str(self.subgroups))

    def watch(self) -> Callable[[], bool]:
        """A check, made now, that tells at any later time whether :meth:`build` would read what it reads now."""
        from tilewright.runtime.references import references

        return references(self.function).unchanged

    # Launching and compiling.

    @functools.cached_property
    def launcher(self) -> Launcher:
        """Binds, checks, compiles and caches; one per kernel and set of options."""
        from tilewright.runtime.launch import Launcher

        return Launcher(cast("Program", self), self._options)

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        """The kernel, ready to be called with its arguments, on ``grid``."""

        # A launch seen before costs microseconds: what can be looked up before it is.
        if type(grid) in (int, tuple):
            try:
                return self._repeaters[grid]
            except (KeyError, TypeError):
                pass
        launcher = self.launcher
        if callable(grid):
            return functools.partial(self._launch, grid)
        once = threading.Lock()  # a second one would free the first while other threads are in it

        def launch(*args: Any, **kwargs: Any) -> None:
            self._launch(grid, *args, **kwargs)
            if launcher.repeats and once.acquire(blocking=False):
                native = self._repeater(grid, functools.partial(self._launch, grid))
                if native is not None:  # who holds this launch calls native code from now on
                    ready.__setstate__((native, (), {}, {"before": launch}))

        ready: Any = functools.partial(launch)
        return ready

    def _launch(self, grid: Grid, /, *args: Any, **kwargs: Any) -> None:
        try:
            self.launcher.launch(grid, args, kwargs)
        except TilewrightError as error:
            raise error.bare() from error.__cause__

    def _repeater(self, grid: Grid, otherwise: Callable[..., None]) -> Callable[..., None] | None:
        """The launches on a grid in native code, kept for the next `kernel[grid]`."""
        found = self.launcher.repeater(grid, otherwise)
        if found is not None:
            if len(self._repeaters) >= _MAX_GRIDS:
                self._repeaters.clear()
            self._repeaters[grid] = found
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inside of a kernel a call inlines this kernel's body; elsewhere a grid is missing."""
        raise LaunchError(
            f"kernel {self.name} is called without a grid",
            rule="a launch states how many programs run",
            hint=f"{self.name}[grid](...): the grid is an int or a tuple of up to three",
        )

    def compile(self, *args: Any, **kwargs: Any) -> CompiledKernel:
        """Compiles for arguments like these, without running; no device is needed.

        Arrays may be given as such or as ``tw.spec(shape, dtype)``. Keywords are parameters of the
        kernel and options (see :meth:`options`). The result has ``.ir`` and ``.asm`` (the text of
        every stage by name) and ``.remarks``, and can be launched: ``k[grid](...)`` with the
        run-time arguments.
        """
        from tilewright.runtime.compiled import uncollected

        names = self._signature.parameters
        options = {k: v for k, v in kwargs.items() if k not in names}
        given = {k: v for k, v in kwargs.items() if k in names}
        try:
            chosen = self.options(**options) if options else self
            with uncollected():  # the choice of what is left open too, as at a launch
                kernel, values = chosen.resolve(chosen.launcher.bind(args, given))
                return kernel.launcher.compile(tuple(values), {})
        except TilewrightError as error:
            raise error.bare() from error.__cause__

    def options(self, **changes: Any) -> Kernel:
        """The same kernel with settings of its own.

        ``target``: "cpu", "reference", "cuda", "xe-pvc", ...; ``num_threads``, ``num_stages``;
        ``fastmath=False`` for strict arithmetic; ``maps="strict"`` refuses what a target cannot
        realise of the ownership maps; ``disable`` names passes to leave out.
        """
        if "disable" in changes:
            from tilewright.targets.base import pass_names

            changes["disable"] = pass_names(changes["disable"])
        key = None
        try:  # so that what it has compiled is found again
            return self._with_options[key := frozenset(changes.items())]
        except (KeyError, TypeError):
            pass  # new, or a value that is no option's
        from tilewright.runtime.launch import Launcher

        merged = {**self._options, **changes}
        kernel = self._like(options=merged)
        # Refuses options that do not exist, at once.
        kernel.launcher = Launcher(cast("Program", kernel), merged)
        if key is not None:
            self._with_options[key] = kernel
        return kernel

    def __reduce__(self) -> str:
        """Pickled by its name, as a function is: another process finds the kernel in its module."""
        return self.function.__qualname__

    def __repr__(self) -> str:
        return f"<tilewright kernel {self.name}{self._signature}>"

    # Arguments that are more than values: None and tw.auto.

    def resolve(self, values: Sequence[Any], grid: Any = None) -> tuple[Kernel, list[Any]]:
        """For one value per parameter: the variant of the kernel for them, and values with nothing left open.

        A run-time parameter that is None is one of compile time: that variant of the kernel is
        compiled without it. Constexprs that are tw.auto get their values; on a grid they may be searched.
        """
        kernel = self.variant_for(values)
        open_ = any(value is auto for value in values)
        return kernel, kernel.chooser.filled(values, grid) if open_ else list(values)

    def variant_for(self, values: Sequence[Any]) -> Kernel:
        """The kernel without the parameters that are None."""
        missing = frozenset(
            p.name
            for p, value in zip(self.parameters, values, strict=True)
            if value is None and not p.constexpr
        )
        return self if missing <= self._none else self._variant(missing)

    def _variant(self, none: frozenset[str]) -> Kernel:
        found = self._with_none.get(none)
        if found is None:
            found = self._with_none[none] = self._like(none=none)
        return found

    def searched(self, search: Autotune) -> Kernel:
        """The same kernel, whose constexprs are searched (`tw.autotune`)."""
        return self._like(search=search)

    def _like(self, **changes: Any) -> Kernel:
        same: dict[str, Any] = {"options": self._options, "none": self._none, "search": self.search}
        return Kernel(self.function, level=self.level, subgroups=self.subgroups, **same | changes)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """What the planner would choose for arguments like these (arrays or ``ArraySpec``), as text: the cheapest
        choices with their estimated time and its largest causes, and what a search measured; no device is needed.

        `kwargs`: constexprs, and `target`. A kernel that leaves nothing to the planner gets a line that says so,
        and one that tells how its programs are merged, where they are.
        LaunchError for arguments that do not fit, UnsupportedError where no choice makes a legal kernel.
        """
        target = kwargs.pop("target", None)
        chosen = self.options(target=target) if target is not None else self
        try:
            values = chosen.launcher.bind(args, kwargs)
            return str(chosen.variant_for(values).chooser.explained(values))
        except TilewrightError as error:
            raise error.bare() from error.__cause__


def _build_key(
    signature: Signature, constexprs: Mapping[str, Any], options: CompileOptions
) -> tuple[Any, ...]:
    """What a kernel's IR depends on beside its source."""
    from tilewright.runtime.binding import constexpr_likeness

    likes = tuple((name, constexpr_likeness(v, name)) for name, v in constexprs.items())
    return signature, frozenset(likes), options.fastmath


@overload
def kernel(function: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(
    *, level: Level = "workgroup", subgroups: int | None = None
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    level: Level = "workgroup",
    subgroups: int | None = None,
) -> Any:
    """Makes a kernel of a function.

    ``level="workgroup"``, the default, is the program of a whole workgroup on whole tiles;
    ``level="subgroup"`` with ``subgroups=n`` is that of one of n subgroups. The function is compiled
    when it is first launched with arguments of new types.
    """
    if level not in ("workgroup", "subgroup"):
        raise CompileError(f"level is 'workgroup' or 'subgroup', not {level!r}")
    if (level == "subgroup") != (subgroups is not None):
        raise CompileError(
            "subgroups=n requires level='subgroup'",
            rule="a kernel at subgroup level must state the subgroups of a workgroup",
        )
    if subgroups is not None and (not isinstance(subgroups, int) or subgroups < 1):
        raise CompileError(f"subgroups is a positive integer, not {subgroups!r}")

    def decorate(plain: Any) -> Kernel:
        if not isinstance(plain, FunctionType):
            raise CompileError(
                f"@tw.kernel decorates a Python function, not {plain!r}",
                hint="put @tw.kernel directly above the def",
            )
        return Kernel(plain, level=level, subgroups=subgroups)

    return decorate if function is None else decorate(function)


def definition(function: FunctionType) -> Location:
    """Where a function is defined: its `def`, below the decorators."""
    code = function.__code__
    first = code.co_firstlineno
    for number in range(first, first + 20):
        line = linecache.getline(code.co_filename, number)
        if line.lstrip().startswith("def "):
            column = len(line) - len(line.lstrip()) + 1
            return Location(code.co_filename, number, column, len(line.rstrip()) + 1)
    return Location(code.co_filename, first, 1)
