"""Constexprs that a launch leaves open (``tw.auto``): what fills them, and what a reader is told of it.

The first that knows decides: what `tilewright tune` measured, else the target's planner. A process asks once for
arguments of one kind; after that a launch finds the choice where it finds the code (`runtime/launch.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.lang.annotations import auto

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.lang.kernel import Kernel
    from tilewright.targets.base import CompileOptions

_MAX_SHAPES = 4096
"""Arguments for which a kernel keeps what was chosen."""


@dataclass(frozen=True)
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


class Chooser:
    """Fills what launches of one kernel leave open."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self._chosen: dict[Any, Mapping[str, Any]] = {}
        self._planned: dict[Any, dict[str, Any]] = {}
        self._chosen_in: object = None

    def filled(self, values: Sequence[Any]) -> list[Any]:
        """One value per parameter, with a choice for every one that is tw.auto."""
        if self._chosen_in is not (now := self.kernel.launcher.epoch()):
            self._chosen.clear()
            self._planned.clear()
            self._chosen_in = now
        chosen = self._choice(values)
        return [
            chosen[p.name] if value is auto else value
            for p, value in zip(self.kernel.parameters, values, strict=True)
        ]

    def _choice(self, values: Sequence[Any]) -> Mapping[str, Any]:
        from tilewright.arguments import ArrayArg

        request, types, options = self.request(values)
        shapes = tuple(
            (t.dtype, t.shape, t.strides) if isinstance(t, ArrayArg) else t for t in types
        )
        given = tuple(sorted((k, repr(v)) for k, v in request.given.items()))
        key = options, shapes, given  # where arrays lie is of no concern
        if (chosen := self._chosen.get(key)) is None:
            if len(self._chosen) >= _MAX_SHAPES:
                self._chosen.clear()
            chosen = self._chosen[key] = self._asked(request, types, options)
        return chosen

    def _asked(
        self, request: AutoRequest, types: list[Any], options: CompileOptions
    ) -> Mapping[str, Any]:
        from tilewright.runtime.tuning import known
        from tilewright.targets.base import get_target

        tuned = known(self.kernel.fingerprint(), types, options)
        if all(name in tuned for name in request.names):
            return {name: tuned[name] for name in request.names}
        return dict(get_target(options.target).resolve_auto(request, options))

    def request(self, values: Sequence[Any]) -> tuple[AutoRequest, list[Any], CompileOptions]:
        """What is asked of a planner, the types of the arguments, and the options."""
        from tilewright.runtime.key import signature_of

        types, constexprs, options = self.kernel.launcher.describe(values)
        names = tuple(name for name, value in constexprs.items() if value is auto)
        given = {name: value for name, value in constexprs.items() if value is not auto}
        signature = signature_of(types)

        def build(trial: Mapping[str, Any]) -> ModuleOp:
            return self.kernel.build(signature, {**given, **trial}, options).module

        key = (options, signature, tuple(sorted((k, repr(v)) for k, v in given.items())))
        memory = self._planned.setdefault(key, {})
        return AutoRequest(names, given, tuple(types), build, memory), types, options

    def explain(self, values: Sequence[Any]) -> str:
        """The planner's choices for such a launch, as text."""
        from tilewright.targets.base import get_target

        name = self.kernel.name
        request, _, options = self.request(values)
        if not request.names:
            return f"{name}: no constexpr is left to the planner (tw.auto)"
        target = get_target(options.target)
        found = target.choices(request, options)
        head = f"{name} for {target.describe(options)}, estimated:"
        return "\n".join([head, *map(str, found[:8])])
