"""Launches along one axis of the grid whose programs compute where they are (`i // n`, `i % n`, groups of rows): the
kernel is compiled once more, for a grid of these numbers (`passes/program_numbers.py`), and merged as any other.

A launch asks once for each grid, shapes and numbers that decide it; what is found, and the code for it, lie on disk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilewright import cache, forks
from tilewright.arguments import Argument, Grid
from tilewright.targets.base import CompileOptions, Target
from tilewright.targets.cpu.merging import Merging, shapes_of

if TYPE_CHECKING:
    from tilewright.passes.program_numbers import Choice, ProgramNumbers

_FOUND = "numbers.json"


class Numbering:
    """Numbers of the programs of one kernel, whose text is `source`. `arguments`: the numbers among the kernel's
    arguments that decide which these are."""

    def __init__(
        self, source: str, target: Target, options: CompileOptions, arguments: Sequence[int]
    ):
        self._source, self._target, self._options = source, target, options
        self.arguments = tuple(arguments)
        self._found: dict[str, tuple[Choice, Grid] | None] = {}
        self._mergings: dict[Choice, Merging] = {}
        self._lock = forks.lock()

    def merging(self, grid: Grid, args: Sequence[Argument]) -> tuple[Merging, Grid] | None:
        """The kernel with other numbers of its programs, and the grid of these; None where it has no others."""
        with self._lock:
            key = repr((grid, shapes_of(args), [args[i] for i in self.arguments]))
            if key not in self._found:
                self._found[key] = self._kept(key, grid, args)
            if (found := self._found[key]) is None:
                return None
            choice, numbered = found
            if choice not in self._mergings:
                source = self._source, self._target, self._options
                own = choice, lambda: self._numbers
                self._mergings[choice] = Merging(*source, numbered=own)
            return self._mergings[choice], numbered

    def _kept(self, key: str, grid: Grid, args: Sequence[Argument]) -> tuple[Choice, Grid] | None:
        def make() -> dict[str, bytes]:
            return {_FOUND: json.dumps(self._numbers.choice(grid, args)).encode()}

        fingerprint = self._target.fingerprint(self._options)
        names = fingerprint, self._options.code_key, self._source, "numbers", key
        found: Any = json.loads(cache.kept(names, make)[_FOUND])
        if found is None:
            return None
        choice, (x, y, z) = found
        return tuple(map(tuple, choice)), (x, y, z)

    @cached_property
    def _numbers(self) -> ProgramNumbers:
        # Here, not above: a launch whose code lies on disk does without the compiler.
        from tilewright.dialects.text import parse_module
        from tilewright.passes.kernel import kernel_of
        from tilewright.passes.program_numbers import ProgramNumbers

        return ProgramNumbers(kernel_of(parse_module(self._source)))
