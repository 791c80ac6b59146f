"""Rules: functions by the names of the ops that they convert or print, one table for each pass or target that has them.

rule: Rules[Callable[[Lanes, Any], None]] = Rules("tilewright.passes.xegpu.lane_values", ..)

@rule("vector.step")
def step(d: Lanes, op: StepOp) -> None: ...

found = rule.of(op.name)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

Rule = TypeVar("Rule", bound=Callable[..., Any])
Function = TypeVar("Function", bound=Callable[..., Any])


class Rules(Generic[Rule]):
    """A table of functions (state, op); the table itself is the decorator that fills it."""

    def __init__(self, *modules: str, shared: Rules[Any] | None = None) -> None:
        self._by_name: dict[str, Rule] = {}
        self._shared = shared
        """The table that is asked for what this one has no rule for."""
        self._modules = modules
        """The files of the rules, imported when one is first asked for: they import the table."""

    def __call__(self, *names: str) -> Callable[[Function], Function]:
        """Decorator: the function converts the ops called `names`."""

        def register(function: Function) -> Function:
            self._by_name.update(dict.fromkeys(names, function))  # pyright: ignore[reportArgumentType, reportCallIssue]
            return function

        return register

    @property
    def by_name(self) -> Mapping[str, Rule]:
        """The rules of this table alone."""
        for module in self._modules:
            import_module(module)
        self._modules = ()
        return self._by_name

    def of(self, name: str) -> Rule | None:
        """The rule of the ops called so; None where there is none."""
        found = self.by_name.get(name)
        return self._shared.of(name) if found is None and self._shared is not None else found
