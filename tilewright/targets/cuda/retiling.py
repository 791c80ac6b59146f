"""Launches of a plain loop of products by tiles that the machine does not like: other programs are taken, whose tiles
are those that the planner would have chosen (`tile_sizes`).

    64 x 64 of 4096 x 4096          4096 programs        each operand is read 64 times
    128 x 256                       512 programs         16 and 32 times

What places tiles by a program's number places others as well (`passes/merge_programs.py`), whatever the numbers are
that a kernel computes of it (`passes/program_numbers.py`). A launch asks where what it takes is far from what the
products alone take; what is found lies on disk, as its code does. Tiles that were chosen by the planner or a search
stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, Any

from tilewright import cache, forks
from tilewright.arguments import ArrayArg, Grid
from tilewright.diagnostics import TilewrightError
from tilewright.frozen import frozen
from tilewright.targets.cuda import driver
from tilewright.targets.cuda.fitting import calibrated, measured
from tilewright.targets.cuda.work_split import WORTH, LoopWork, WorkSplit

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.passes.merge_programs import Merge
    from tilewright.passes.program_numbers import ProgramNumbers
    from tilewright.targets.cuda.tile_sizes import TilingCandidate

GAIN = 0.1
"""What part of the time it must save: what a user chose may have been measured."""
PROBE = (128, 64)
"""Rows and columns of the tile by which the loop is measured: legal ones."""
LEAST_CLOCKS = 8000
"""Of the best tiling, where what the user's takes is not known: less is not worth a compilation."""

MOST_KEPT = 512
"""Launches of a kernel for which it is known."""

Retiled = tuple[WorkSplit, Grid]
"""Other programs, and how many there are along each axis."""


def retiled(module: ModuleOp, split: WorkSplit) -> ModuleOp:
    """The kernel with the numbers of its programs that a split says, and asked for the programs that it says."""
    from tilewright.passes.kernel import kernel_of
    from tilewright.passes.merge_programs import ask
    from tilewright.passes.program_numbers import ProgramNumbers

    if split.numbers:
        module = ProgramNumbers(kernel_of(module)).applied(split.numbers)
    if split.merged:
        ask(kernel_of(module), [Fraction(by, of) for by, of in split.merged])
    return module


class Retiling:
    """Other programs for launches of the kernel that was made from the text `source`."""

    def __init__(self, source: str, machine: str):
        self._source, self._machine = source, machine
        self._found: dict[str, Retiled | None] = {}
        self._lock = forks.lock()

    def choice(
        self, grid: Grid, args: Sequence[Any], multiprocessors: int, alone: float = inf
    ) -> Retiled | None:
        """For a launch of so many clocks as it stands; None where no others are faster."""
        with self._lock:
            shapes = [(a.shape, a.strides) if isinstance(a, ArrayArg) else () for a in args]
            read = [args[i] for i in self.arguments]
            key = repr((grid, shapes, read, multiprocessors))
            if key not in self._found:
                if len(self._found) >= MOST_KEPT:
                    self._found.clear()
                self._found[key] = self._kept(key, grid, args, multiprocessors, alone)
            return self._found[key]

    def _names(self, *about: str) -> tuple[str, ...]:
        from tilewright.targets.base import CompileOptions
        from tilewright.targets.cuda.target import TARGET

        fingerprint = TARGET.fingerprint(CompileOptions("cuda", self._machine))
        return fingerprint, self._source, *about

    def _kept(self, key: str, grid: Grid, args: Sequence[Any], *machine: Any) -> Retiled | None:
        def make() -> dict[str, bytes]:
            try:
                found = self._choice(grid, args, *machine)
            except TilewrightError:
                found = None
            return {"programs": json.dumps(found).encode()}

        device = driver.named(self._machine)
        names = self._names("other programs", device, repr(calibrated(device)), key)
        found: Any = json.loads(cache.kept(names, make)["programs"])
        if found is None:
            return None
        numbers, merged, parts, steps, (x, y, z) = found
        own = tuple(map(tuple, numbers)), tuple((by, of) for by, of in merged)
        return WorkSplit(1, parts, steps, False, *own), (x, y, z)

    @cached_property
    def arguments(self) -> Sequence[int]:
        """The numbers among the kernel's arguments that say which programs there are, and how long the loop is."""

        def make() -> dict[str, bytes]:
            from xdsl.dialects import scf

            kernel = self._numbers.kernel
            ends = [op.ub for op in kernel.walk() if isinstance(op, scf.ForOp)]
            ends = [v.index for v in ends if v in kernel.body.block.args]
            return {"arguments": json.dumps(sorted({*self._numbers.arguments, *ends})).encode()}

        return json.loads(cache.kept(self._names("numbers"), make)["arguments"])

    @cached_property
    def _numbers(self) -> ProgramNumbers:
        # Here, not above: a launch whose code lies on disk does without the compiler.
        from tilewright.dialects.text import parse_module
        from tilewright.passes.kernel import kernel_of
        from tilewright.passes.program_numbers import ProgramNumbers

        return ProgramNumbers(kernel_of(parse_module(self._source)))

    def _choice(
        self, grid: Grid, args: Sequence[Any], multiprocessors: int, alone: float
    ) -> tuple[Any, ...] | None:
        """What `_kept` reads; None where no others are faster."""
        numbers, grid = self._numbers.choice(grid, args) or ((), grid)
        module = self._numbers.applied(numbers) if numbers else self._numbers.module.clone()
        loop = _Loop.of(module, self._machine)
        launch = _Launch(grid, args, multiprocessors)
        if loop is None:
            return None
        for best in loop.tilings(launch):
            if alone - best.clocks < max(WORTH, GAIN * alone) or best.clocks < LEAST_CLOCKS:
                return None
            if (merged := loop.merged(best.values, launch)) is not None:
                pairs = [(f.numerator, f.denominator) for f in merged]
                others = loop.programs(merged, launch)
                return numbers, pairs, best.split.parts, best.values["steps"], others
        return None


@frozen
class _Loop:
    """A kernel's loop of products as it runs with the tile `PROBE`, and what its rows and columns are: those of
    programs along an axis of the grid, or the same for all."""

    work: LoopWork
    sides: tuple[Merge | None, Merge | None]
    tile: tuple[int, int]
    """Rows and columns of the user's."""

    @classmethod
    def of(cls, module: ModuleOp, machine: str) -> _Loop | None:
        """None where programs cannot have other tiles."""
        from tilewright import uarch
        from tilewright.dialects.xetile import TileMmaOp
        from tilewright.passes.axes import shape_of
        from tilewright.passes.carry_offsets import carry_offsets
        from tilewright.passes.kernel import kernel_of
        from tilewright.passes.merge_programs import ask, merges
        from tilewright.targets.base import CompileOptions
        from tilewright.targets.cuda.pipeline import product_work

        copy = module.clone()
        carry_offsets(kernel_of(module))
        ops = kernel_of(module).walk()
        made = next((op.result for op in ops if isinstance(op, TileMmaOp)), None)
        if made is None:
            return None
        known = merges(kernel_of(module))
        sides = [next((m for m in known if (made, d) in m.choice.members), None) for d in (0, 1)]
        tile = shape_of(made) or (0, 0)
        factors, probe = [Fraction(1)] * 3, list(tile)
        for d, side in enumerate(sides):
            if side is not None:
                factors[side.axis], probe[d] = Fraction(PROBE[d], tile[d]), PROBE[d]
        if max(factors) == min(factors) == 1 and probe != [*PROBE]:
            return None
        ask(kernel_of(copy), factors)
        options = CompileOptions("cuda", machine)
        work = product_work(copy, uarch.machine(machine), options, coarse=True)
        if work is None:
            return None
        for way in (1, -1):  # the right operand may be the one that threads compute
            (m, n), (rows, columns) = tile[::way], sides[::way]
            axes = zip((rows, columns), (work.row_axis, work.column_axis), strict=True)
            same = [work.rows, work.columns] == probe[::way]
            if same and all(side is None or side.axis == axis for side, axis in axes):
                return cls(measured(work, machine), (rows, columns), (m, n))
        return None

    def tilings(self, launch: _Launch) -> Sequence[TilingCandidate]:
        """Of a launch, the cheapest first."""
        from tilewright.targets.cuda.tile_sizes import costed, sides_of, tiled

        work, (m, n) = self.work, self.work.sides(launch.shapes)
        length = launch.args[work.argument]
        if work.dimension >= 0:
            length = launch.shapes[work.argument][work.dimension]
        length -= work.start
        if m is None or n is None or length <= 0:
            return []
        along = [
            -(-extent // own) if side is None else launch.grid[side.axis]
            for extent, own, side in zip((m, n), self.tile, self.sides, strict=True)
        ]
        batch, rest = divmod(prod(launch.grid), prod(along))
        if rest:
            return []
        even = work.steps and length % (2 * work.step) == 0
        ways = [
            (own,) if side is None else sides_of(extent)
            for extent, own, side in zip((m, n), self.tile, self.sides, strict=True)
        ]
        found: list[TilingCandidate] = []
        for rows, columns, steps in product(*ways, (1, 2) if even else (1,)):
            other = tiled(work, rows, columns, steps * work.step, (m, n))
            if other is not None:
                values = {"rows": rows, "columns": columns, "steps": steps}
                found.append(
                    costed(values, other, batch, length, launch.shapes, launch.multiprocessors)
                )
        return sorted(found, key=lambda candidate: candidate.clocks)

    def merged(self, values: Mapping[str, int], launch: _Launch) -> Sequence[Fraction] | None:
        """By axis of the grid, programs of the launch for each of another tile; None where that cannot be."""
        from tilewright.passes.merge_programs import longer_extents

        factors = [Fraction(1)] * 3
        for name, own, side in zip(("rows", "columns"), self.tile, self.sides, strict=True):
            if side is None:
                continue
            factor = factors[side.axis] = Fraction(values[name], own)
            told = side.stores is None and factor.denominator > 1  # who is told how many there are
            if told or not side.covers(launch.grid[side.axis], factor, launch.shapes):
                return None
            try:
                longer_extents(side.choice, factor)
            except TilewrightError:
                return None
        return factors

    def programs(self, merged: Sequence[Fraction], launch: _Launch) -> Grid:
        """The programs of a launch that are left: none beyond arrays."""
        found = list(launch.grid)
        for side in self.sides:
            if side is not None:
                axis = side.axis
                found[axis] = side.programs(found[axis], merged[axis], launch.shapes)
        return found[0], found[1], found[2]


@frozen
class _Launch:
    grid: Grid
    args: Sequence[Any]
    multiprocessors: int

    @property
    def shapes(self) -> list[Sequence[int]]:
        return [a.shape if isinstance(a, ArrayArg) else () for a in self.args]
