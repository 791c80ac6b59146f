"""Launches of many programs with small tiles: the kernel is compiled once more, so that one program does what several
of the grid did (`passes/merge_programs.py`).

How many is chosen by the model of products (`product_cost`) for the arrays and the threads at hand. A launch asks once
for each grid and shapes; what is chosen, and the code for it, lie on disk. No bit of a result changes: products whose
sums would be added up in another order stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

from tilewright import cache, forks
from tilewright.arguments import Argument, ArrayArg, Grid
from tilewright.diagnostics import TilewrightError
from tilewright.targets.base import CompileOptions, Target
from tilewright.uarch.base import GENERIC

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.passes.launch_cost import Program
    from tilewright.passes.merge_programs import Merge
    from tilewright.targets.base import Executable
    from tilewright.targets.cpu.product_cost import PanelCosts
    from tilewright.uarch.products import PlacedProduct

FACTORS = (1, 2, 4, 8, 16)
"""Programs along an axis that are tried together."""
LARGE = 1 << 17
"""Elements of a product's tile that gains nothing from being larger."""
MANY = 1 << 16
"""Elements of a result from which on another compilation may be worth it."""
GAIN = 0.05
"""What part of the time it must save: the cost is no better known."""

ALONE: Grid = (1, 1, 1)
_CHOICE = "merge.json"


def may_pay(tile: int, grid: Grid, threads: int) -> bool:
    """Can merging be worth a thought, for programs whose largest product has so many elements?"""
    programs = grid[0] * grid[1] * grid[2]
    return 0 < tile <= LARGE // 2 and programs > threads and programs * tile >= MANY


def _best(told: Mapping[Grid, float]) -> Grid:
    best = min(told, key=lambda factors: told[factors])
    return best if told[best] < (1 - GAIN) * told[ALONE] else ALONE


class Merging:
    """How the programs of one kernel, whose text is `source`, are merged."""

    def __init__(self, source: str, target: Target, options: CompileOptions):
        self._source, self._target, self._options = source, target, options
        self._chosen: dict[Any, Grid] = {}
        self._made: dict[Grid, Executable | None] = {}
        self._program: tuple[Program, Mapping[int, Merge]] | None = None
        self._lock = forks.lock()

    def executable(
        self, grid: Grid, args: Sequence[Argument], costs: PanelCosts
    ) -> Executable | None:
        """The code for a launch like this one; None where programs stay as they are."""
        shapes = [(a.shape, a.strides) if isinstance(a, ArrayArg) else () for a in args]
        with self._lock:
            key = repr((grid, shapes, costs.threads))
            if key not in self._chosen:
                self._chosen[key] = self._kept(key, grid, args, costs)
            factors = self._chosen[key]
            if factors not in self._made:
                self._made[factors] = None if factors == ALONE else self._code(factors)
            return self._made[factors]

    def _names(self, *parts: str) -> tuple[str, ...]:
        """Of what is kept on disk."""
        fingerprint = self._target.fingerprint(self._options)
        return fingerprint, self._options.code_key, self._source, *parts

    def _kept(self, about: str, grid: Grid, args: Sequence[Argument], costs: PanelCosts) -> Grid:
        def make() -> dict[str, bytes]:
            try:
                found = self._choice(grid, args, costs)
            except TilewrightError:
                found = ALONE
            return {_CHOICE: json.dumps(found).encode()}

        stored = cache.kept(self._names("merge", about, repr(costs.rates)), make)
        x, y, z = map(int, json.loads(stored[_CHOICE]))
        return x, y, z

    def _choice(self, grid: Grid, args: Sequence[Argument], costs: PanelCosts) -> Grid:
        """How many programs to merge along each axis."""
        return _best(self._estimates(grid, args, costs))

    def explained(self, args: Sequence[Argument], costs: PanelCosts) -> str:
        """What becomes of the programs of a launch that covers the arrays, for people; "" where they stay."""
        self._program = self._program or self._read(costs)
        program, _ = self._program
        grid = program.grid(args)
        tile = max((m * n for _, (m, n, _) in program.products), default=0)
        if not may_pay(tile, grid, costs.threads):
            return ""
        told = self._estimates(grid, args, costs)
        best = _best(told)
        if best == ALONE:
            return ""
        (gx, gy, gz), (x, y, z) = grid, best
        now, before = (f"{1e6 * told[each]:.1f} us" for each in (best, ALONE))
        return f"of {gx} x {gy} x {gz} programs {x} x {y} x {z} are merged into one: {now}, {before} as they are"

    def _estimates(
        self, grid: Grid, args: Sequence[Argument], costs: PanelCosts
    ) -> dict[Grid, float]:
        """Seconds that products take, by how many programs are merged along each axis."""
        shapes = [a.shape if isinstance(a, ArrayArg) else () for a in args]
        self._program = self._program or self._read(costs)
        program, known = self._program
        alone = program.placed(args)
        sides = [((p.op.a, 0), (p.op.b, 1)) for p, _ in program.products]

        def merged(factors: Grid) -> list[PlacedProduct]:
            """The products of a program that stands for so many."""
            found: list[PlacedProduct] = []
            for placed, along in zip(alone, sides, strict=True):
                a, b = (
                    replace(
                        side,
                        tile=side.tile
                        * prod(factors[x] for x in known if axis in known[x].choice.members),
                    )
                    for side, axis in zip((placed.a, placed.b), along, strict=True)
                )
                found.append(replace(placed, a=a, b=b))
            return found

        def seconds(factors: Grid) -> float:
            products = merged(factors)
            if costs.forms(products) != forms:
                return inf
            programs = prod(-(-n // each) for n, each in zip(grid, factors, strict=True))
            return sum(costs.causes(products, programs).values())

        forms = costs.forms(alone)
        ways = [
            [
                f
                for f in FACTORS
                if f == 1 or (f < 2 * n and x in known and known[x].covers(n, f, shapes))
            ]
            for x, n in enumerate(grid)
        ]
        return {(x, y, z): seconds((x, y, z)) for x in ways[0] for y in ways[1] for z in ways[2]}

    def _read(self, costs: PanelCosts) -> tuple[Program, Mapping[int, Merge]]:
        """What a program of the kernel does, and the axes along which they can be merged."""
        from tilewright.passes.kernel import kernel_of
        from tilewright.passes.launch_cost import Program
        from tilewright.passes.merge_programs import merges

        module = self._module()
        found = {each.axis: each for each in merges(kernel_of(module))}
        return Program.of(module, GENERIC, costs), found

    def _module(self) -> ModuleOp:
        from tilewright.dialects.text import parse_module

        return parse_module(self._source)

    def _code(self, factors: Grid) -> Executable | None:
        """The kernel with its programs merged; None where that cannot be."""
        from tilewright.passes.kernel import kernel_of
        from tilewright.passes.merge_programs import ask

        def make() -> dict[str, bytes]:
            module = self._module()
            ask(kernel_of(module), factors)
            return self._target.build(module, self._options).artifacts()  # pyright: ignore

        try:
            stored = cache.kept(self._names("merged", repr(factors)), make)
            return self._target.load(stored, self._options)
        except TilewrightError:
            return None
