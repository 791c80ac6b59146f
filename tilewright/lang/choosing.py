"""Constexprs that a launch leaves open (``tw.auto``): what fills them, and what a reader sees of it.

The first that knows decides: what was measured on this machine (`tilewright tune`, ``@tw.autotune``), a search now
(``@tw.autotune``), the target's planner, whose choices lie on disk too. A process asks once for arguments of one kind;
after that a launch finds the choice where it finds the code (`runtime/launch.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright import forks
from tilewright.diagnostics import UnsupportedError
from tilewright.frozen import frozen
from tilewright.lang.annotations import auto

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.lang.build import Built
    from tilewright.lang.kernel import Kernel
    from tilewright.runtime.contest import Candidate
    from tilewright.runtime.search import Progress
    from tilewright.runtime.tuning import Tuned
    from tilewright.targets.base import CompileOptions

_MAX_SHAPES = 4096
"""Arguments for which a kernel keeps what was chosen."""
_MOST_LISTED = 8
"""Choices that are shown to a reader."""
_searching = forks.lock()
"""Held during a search: two would measure each other."""


@frozen
class AutoRequest:
    """What a target's planner knows when it chooses the constexprs that were left to it."""

    names: tuple[str, ...]
    """The constexprs to choose, in the order of the signature."""
    given: Mapping[str, Any]
    """The other constexprs."""
    arguments: tuple[Any, ...]
    """The run-time arguments as ``ArrayArg`` or ``ScalarType``, with their shapes."""
    build: Callable[[Mapping[str, Any]], ModuleOp]
    """The kernel IR for values of the chosen constexprs: what a choice would compile."""
    memory: dict[str, Any]
    """What the target remembers of the kernel for arguments of these types, whatever their shapes."""
    spare: Callable[[Mapping[str, Any], ModuleOp], None]
    """Hands back what `build` made last, for these values, as it was made: what is chosen compiles it."""

    def about(self, kernel: str) -> str:
        """The launch, for people: ``gemm(f32[64, 64], index, N=3)``."""
        arguments = (
            f"{a.dtype}{list(a.shape)}" if hasattr(a, "shape") else str(a) for a in self.arguments
        )
        given = (f"{name}={value}" for name, value in self.given.items())
        return f"{kernel}({', '.join((*arguments, *given))})"


@frozen
class Explanation:
    """Why a launch takes the choice that it takes; `str` says it."""

    kernel: str
    request: AutoRequest
    options: CompileOptions
    machine: str
    choices: Sequence[Any]
    """The planner's (`passes.launch_cost.Choice`), the cheapest first."""
    tuned: Tuned | None
    """What was measured, if anything was."""

    def __str__(self) -> str:
        from tilewright.targets.base import get_target

        target = get_target(self.options.target)
        if not self.request.names:
            found = target.retiled(self.request, self.options)
            said = f"{self.kernel}: no constexpr is left to the planner (tw.auto)"
            return f"{said}\n{found}" if found else said
        rates = target.rates(self.options)
        lines = [f"{self.machine}, estimated:", *map(self._line, self.choices[:_MOST_LISTED])]
        lines.append(f"rates: {rates.origin}")
        if self.tuned is not None:
            shown = [choice.values for choice in self.choices[:_MOST_LISTED]]
            others = [(v, s) for v, s in self.tuned.measured if dict(v) not in shown]
            lines += [f"{1e6 * s:9.1f} us measured  {_sizes(v)}" for v, s in others[:_MOST_LISTED]]
            if others[_MOST_LISTED:]:
                lines.append(f"{len(others) - _MOST_LISTED} more were measured")
            lines.append(f"launches take {_sizes(self.tuned.constexprs)}, the fastest measured")
        return "\n".join(lines)

    def _line(self, choice: Any) -> str:
        found = None if self.tuned is None else self.tuned.seconds_of(choice.values)
        return f"{choice}" + ("" if found is None else f"; {1e6 * found:.1f} us measured")


def _texts(constexprs: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Constexprs as a part of a key."""
    return tuple(sorted((name, repr(value)) for name, value in constexprs.items()))


def _sizes(constexprs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in constexprs.items())


class Chooser:
    """Fills what launches of one kernel leave open."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self._chosen: dict[Any, Mapping[str, Any]] = {}
        self._planned: dict[Any, dict[str, Any]] = {}
        self._chosen_in: object = None
        self._found: dict[str, Tuned] = {}
        """What this process searched, whether or not it lies on disk."""

    def filled(self, values: Sequence[Any], grid: Any = None) -> list[Any]:
        """One value per parameter, with a choice for every one that is tw.auto.

        `grid`: of a launch, which may search; None where there is none.
        """
        if self._chosen_in is not (now := self.kernel.launcher.epoch()):
            self._chosen.clear()
            self._planned.clear()
            self._chosen_in = now
        chosen = self._choice(values, grid if self.kernel.search is not None else None)
        return [
            chosen[p.name] if value is auto else value
            for p, value in zip(self.kernel.parameters, values, strict=True)
        ]

    def _choice(self, values: Sequence[Any], grid: Any) -> Mapping[str, Any]:
        from tilewright.arguments import ArrayArg

        request, types, options = self.request(values)
        shapes = tuple(
            (t.dtype, t.shape, t.strides) if isinstance(t, ArrayArg) else t for t in types
        )
        # Where arrays lie is of no concern.
        key = options, shapes, _texts(request.given), repr(self._also(values)), grid is not None
        if (chosen := self._chosen.get(key)) is None:
            if len(self._chosen) >= _MAX_SHAPES:
                self._chosen.clear()
            chosen = self._chosen[key] = self._asked(request, options, values, grid)
        return chosen

    def _asked(
        self, request: AutoRequest, options: CompileOptions, values: Sequence[Any], grid: Any
    ) -> Mapping[str, Any]:
        key = self._key(request, options, values)
        tuned = self._tuned(key, request.names)
        if tuned is None and grid is not None and self._runs(request, options, values, grid):
            with _searching:  # others who wait find what it found
                tuned = self._tuned(key, request.names) or self._tune(values, grid)
        if tuned is not None:
            return {name: tuned.constexprs[name] for name in request.names}
        return self._unmeasured(request, options)

    def _runs(
        self, request: AutoRequest, options: CompileOptions, values: Sequence[Any], grid: Any
    ) -> bool:
        """Would a launch run anything here? One that would not is not searched: it is for the launcher to say why."""
        from tilewright.arguments import NOWHERE, full_grid
        from tilewright.runtime.grids import Constexprs, extents
        from tilewright.targets.base import get_target

        if get_target(options.target).missing() is not None:
            return False
        if any(getattr(a, "device", None) == NOWHERE for a in request.arguments):
            return False
        if callable(grid):
            chosen = self._unmeasured(request, options)
            grid = extents(grid, Constexprs({**request.given, **chosen}), self.kernel.name)
        return 0 not in full_grid(grid)

    def _unmeasured(self, request: AutoRequest, options: CompileOptions) -> Mapping[str, Any]:
        """The planner's choice; the first of the kernel's configs, where it has some that no planner knows of."""
        from tilewright.runtime.tuning import planned

        try:
            return planned(self.kernel.source, request, options)
        except UnsupportedError:
            if self.kernel.search is None or not self.kernel.search.configs:
                raise
            return self.kernel.search.configs[0]

    def _key(
        self, request: AutoRequest, options: CompileOptions, values: Sequence[Any]
    ) -> str | None:
        """What a search's result for such a launch is kept under."""
        from tilewright.runtime.tuning import tuning_key

        source = self.kernel.source
        if source is None:
            return None
        return tuning_key(source, request.given, request.arguments, options, self._also(values))

    def _also(self, values: Sequence[Any]) -> list[Any] | None:
        """Extents and numbers of the parameters that `@tw.autotune` names as its key."""
        search = self.kernel.search
        if search is None or search.key is None:
            return None
        pairs = zip(self.kernel.parameters, values, strict=True)
        named = [(p.name, v) for p, v in pairs if p.name in search.key]
        return [(name, tuple(v.shape) if hasattr(v, "shape") else v) for name, v in named]

    def _tuned(self, key: str | None, names: Sequence[str]) -> Tuned | None:
        """What a search found, if that says all that is asked."""
        from tilewright.runtime.tuning import find

        found = None if key is None else self._found.get(key) or find(key)
        return found if found is not None and set(names) <= set(found.constexprs) else None

    def _tune(self, values: Sequence[Any], grid: Any) -> Tuned | None:
        """What `@tw.autotune` asks for; None where there was nothing to compare."""
        from tilewright.runtime.search import bar, result

        search = self.kernel.search
        assert search is not None
        candidates = self.candidates(values, search.configs, planned=True)
        with bar(f"tuning {self.kernel.name}") as progress:
            measured, _ = self.searched(values, grid, candidates, search.budget, progress)
        return result(measured, least=1)

    def candidates(
        self, values: Sequence[Any], configs: Sequence[Mapping[str, Any]], planned: bool
    ) -> list[Candidate]:
        """What a search of a launch's open constexprs tries: `configs`, or the planner's choices; beside the planner's
        first choice where they are `planned`."""
        from tilewright.runtime.search import candidates_of

        request, _, options = self.request(values)
        return candidates_of(request, options, configs, planned)

    def searched(
        self,
        values: Sequence[Any],
        grid: Any,
        candidates: Sequence[Candidate],
        budget: float,
        progress: Progress,
    ) -> tuple[list[Candidate], bool]:
        """The candidates with their times, the best first, and whether the result is kept on disk. See `search`."""
        from tilewright.runtime.search import Job, result, search
        from tilewright.runtime.tuning import save

        request, _, options = self.request(values)
        key = self._key(request, options, values)
        measured = search(Job(self.kernel.launcher, values, grid), candidates, budget, progress)
        tuned = result(measured)
        if tuned is None or key is None:
            return measured, False
        self._found[key] = tuned
        return measured, save(key, tuned, request.about(self.kernel.name), options)

    def request(self, values: Sequence[Any]) -> tuple[AutoRequest, list[Any], CompileOptions]:
        """What is asked of a planner, the types of the arguments, and the options."""
        from tilewright.runtime.key import signature_of

        types, constexprs, options = self.kernel.launcher.describe(values)
        names = tuple(name for name, value in constexprs.items() if value is auto)
        given = {name: value for name, value in constexprs.items() if value is not auto}
        signature = signature_of(types)
        last: list[tuple[Built, Callable[[], bool]]] = []

        def build(trial: Mapping[str, Any]) -> ModuleOp:
            watch = self.kernel.watch()
            last[:] = [(self.kernel.build(signature, {**given, **trial}, options), watch)]
            return last[0][0].module

        def spare(trial: Mapping[str, Any], module: ModuleOp) -> None:
            for built, unchanged in last:
                if built.module is module:
                    self.kernel.spare(built, signature, {**given, **trial}, options, unchanged)
            last.clear()

        key = options, signature, _texts(given)
        memory = self._planned.setdefault(key, {})
        return AutoRequest(names, given, tuple(types), build, memory, spare), types, options

    def explained(self, values: Sequence[Any]) -> Explanation:
        """What there is to say of the choice for such a launch."""
        from tilewright.targets.base import get_target

        request, _, options = self.request(values)
        if not request.names:
            return Explanation(self.kernel.name, request, options, "", [], None)
        target = get_target(options.target)
        head = f"{self.kernel.name} for {target.describe(options)}"
        choices = target.choices(request, options)
        tuned = self._tuned(self._key(request, options, values), request.names)
        return Explanation(self.kernel.name, request, options, head, choices, tuned)
