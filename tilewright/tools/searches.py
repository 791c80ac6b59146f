"""A search of a kernel's constexprs as the command line asks for it: candidates, random data, the grid."""

from __future__ import annotations

import argparse
import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.diagnostics import TilewrightError, ToolMissing
from tilewright.frozen import frozen
from tilewright.lang.annotations import auto
from tilewright.lang.choosing import Chooser
from tilewright.runtime.contest import Candidate
from tilewright.runtime.search import Progress, text_of
from tilewright.targets.base import CompileOptions, get_target, with_options
from tilewright.tools.exits import UsageError
from tilewright.tools.launches import LaunchRequest, ask, grid_for, inputs_of, shortfall
from tilewright.tools.sources import (
    CommandSource,
    find_kernel,
    known_constexprs,
    parse_argument,
    parse_constexprs,
    parse_value,
)

BUDGET = 10.0


@frozen
class SearchRequest:
    """What `tilewright tune` asks of a kernel."""

    kernel: Any
    given: Sequence[Any]
    """Its arguments: numbers, and arrays without memory."""
    fixed: Mapping[str, Any]
    tries: Mapping[str, Sequence[Any]]
    """Values to search by constexpr; the planner's choices where there are none."""
    grid: str | None
    options: CompileOptions

    @classmethod
    def of(cls, source: CommandSource, args: argparse.Namespace) -> SearchRequest:
        """Of the arguments of the command line."""
        kernel = find_kernel(source).options(target=args.target)
        tries = parse_choices(args.tries)
        known_constexprs(tries, kernel)
        given = [parse_argument(text) for text in args.args]
        options = with_options(CompileOptions(), kernel.launcher.overrides)
        found = cls(kernel, given, parse_constexprs(args.set, kernel), tries, args.grid, options)
        if not found.searched and (args.roofline or not args.explain):
            raise UsageError("--try names the constexprs to search: --try BM=64,128")
        return found

    @property
    def values(self) -> list[Any]:
        """One per parameter."""
        tried = {**self.fixed, **dict.fromkeys(self.tries, auto)}
        return self.kernel.launcher.bind(tuple(self.given), tried)

    @property
    def searched(self) -> list[str]:
        pairs = zip(self.kernel.parameters, self.values, strict=True)
        return [p.name for p, value in pairs if value is auto]

    @property
    def chooser(self) -> Chooser:
        return self.kernel.variant_for(self.values).chooser

    def budget(self, given: float | None) -> float:
        """Seconds."""
        if given is not None:
            return given
        return self.kernel.search.budget if self.kernel.search is not None else BUDGET

    def candidates(self) -> list[Candidate]:
        """What is searched, the first of which all others are measured beside."""
        if self.tries:
            combined = itertools.product(*self.tries.values())
            configs = [dict(zip(self.tries, each, strict=True)) for each in combined]
        else:
            configs = list(self.kernel.search.configs if self.kernel.search is not None else ())
        values = self.values
        configs = [completed(self.kernel, values, config) for config in configs]
        left_open = {p.name for p in self.kernel.parameters if p.default is auto}
        planned = left_open.issuperset(self.searched)
        return self.chooser.candidates(values, configs, planned=planned)

    def asked(self, constexprs: Mapping[str, Any]) -> LaunchRequest:
        """A launch with these constexprs."""
        chosen = {**self.fixed, **{name: constexprs[name] for name in self.searched}}
        return ask(self.kernel, self.given, chosen, self.options)

    def search(
        self, candidates: Sequence[Candidate], budget: float, seed: int | None, progress: Progress
    ) -> tuple[list[Candidate], bool]:
        """`Chooser.searched` on random data."""
        check_runs(self.options)
        first = first_of(self.asked, candidates)
        inputs = inputs_of(first, self.grid, secrets.randbelow(2**31) if seed is None else seed)
        if self.grid is not None:
            check_grid(self.grid, self.asked, candidates, inputs.args)
        data = dict(zip(first.names, inputs.args, strict=True))

        def grid(**constexprs: Any) -> tuple[int, int, int]:
            return grid_for(self.asked(constexprs), self.grid, inputs.args)

        pairs = zip(self.kernel.parameters, self.values, strict=True)
        filled = [data.get(p.name, value) for p, value in pairs]
        return self.chooser.searched(filled, grid, candidates, budget, progress)


def check_runs(options: CompileOptions) -> None:
    """ToolMissing where nothing can be measured here."""
    if (missing := get_target(options.target).missing()) is not None:
        raise ToolMissing(
            f"target {options.target!r} cannot run here, so nothing of it can be measured: {missing}",
            hint="--explain prints the planner's choices without a device",
        )


def completed(kernel: Any, values: Sequence[Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate with what it leaves open chosen by the planner."""
    parameters = kernel.parameters
    given = [config.get(p.name, v) for p, v in zip(parameters, values, strict=True)]
    _, full = kernel.resolve(given)
    triples = zip(parameters, values, full, strict=True)
    return {p.name: chosen for p, value, chosen in triples if value is auto}


def first_of(
    asked: Callable[[Mapping[str, Any]], LaunchRequest], candidates: Sequence[Candidate]
) -> LaunchRequest:
    """The first candidate that is legal; the last one's error where none is."""
    refused: TilewrightError | None = None
    for candidate in candidates:
        try:
            return asked(candidate.constexprs)
        except TilewrightError as error:
            refused = error
    raise refused or UsageError("there is nothing to try")


def check_grid(
    grid: str,
    asked: Callable[[Mapping[str, Any]], LaunchRequest],
    candidates: Sequence[Candidate],
    args: Sequence[Any],
) -> None:
    """UsageError where a grid that was given covers a part of the arrays only."""
    for candidate in candidates:
        try:
            here = asked(candidate.constexprs)
        except TilewrightError:
            continue
        if (part := shortfall(here, grid_for(here, grid, args), args)) is not None:
            raise UsageError(
                f"{text_of(candidate.constexprs)}: {part}",
                hint="leave --grid out, or write it with constexprs: 'cdiv(2048, BM), 4'",
            )


def parse_choices(texts: Sequence[str]) -> dict[str, list[Any]]:
    """``BM=64,128 BN=32`` as lists of values."""
    choices: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier() or not values:
            raise UsageError(f"--try {text!r} is not of the form NAME=VALUE,VALUE")
        choices[name] = [parse_value(value, name) for value in values.split(",")]
    return choices
