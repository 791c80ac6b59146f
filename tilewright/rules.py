"""Rules: functions by the names of the ops that they convert, print or run: one table for each who has them.

rule: Rules[Callable[[Lanes, Any], None]] = Rules("tilewright.passes.xegpu.lane_values", ..)

@rule("vector.step")
def step(d: Lanes, op: StepOp) -> None: ...

found = rule.of(op.name)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from xdsl.ir import Operation

Rule = TypeVar("Rule", bound=Callable[..., Any])
Function = TypeVar("Function", bound=Callable[..., Any])


class Rules(Generic[Rule]):
    """A table of functions (state, op); the table itself is the decorator that fills it."""

    def __init__(self, *modules: str, shared: Rules[Any] | None = None, once: bool = False) -> None:
        self._by_name: dict[str, Rule] = {}
        self._shared = shared
        """The table that is asked for what this one has no rule for."""
        self._once = once
        """Has an op only one rule? Else the last one counts."""
        self._modules = modules
        """The files of the rules, imported when one is first asked for: they import the table."""

    def __call__(self, *ops: str | type[Operation]) -> Callable[[Function], Function]:
        """Decorator: the function is the rule of the ops of these names or classes."""

        def register(function: Function) -> Function:
            for op in ops:
                name = op if isinstance(op, str) else op.name
                assert not self._once or name not in self._by_name, f"{name} has two rules"
                self._by_name[name] = function  # pyright: ignore[reportArgumentType]
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
