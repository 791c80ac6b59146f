"""Launches of many programs with small tiles: the kernel is compiled once more, so that one program does what several
of the grid did (`passes/merge_programs.py`).

How many is chosen for the arrays and the threads at hand: by the model of products (`product_cost`), for a kernel
without them by what rows of tiles cost (`row_cost`). A launch asks once for each grid and shapes; what is chosen, and
the code for it, lie on disk. No bit of a result changes but those of sums along rows, which rows that overlap add up in
another order; products whose sums would be stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

from tilewright import cache, forks
from tilewright.arguments import Argument, ArrayArg, Grid
from tilewright.diagnostics import TilewrightError
from tilewright.frozen import frozen
from tilewright.targets.base import CompileOptions, Target
from tilewright.uarch.base import GENERIC

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.passes.launch_cost import Program
    from tilewright.passes.merge_programs import Merge
    from tilewright.passes.program_numbers import Choice, ProgramNumbers
    from tilewright.targets.base import Executable
    from tilewright.targets.cpu.product_cost import PanelCosts
    from tilewright.targets.cpu.row_cost import RowCosts
    from tilewright.uarch.products import PlacedProduct

FACTORS = (1, 2, 4, 8, 16)
"""Programs along an axis that are tried together."""
MORE_FACTORS = (*FACTORS, 32, 64)
"""Of a kernel without products."""
LARGE = 1 << 17
"""Elements of a tile that gains nothing from being larger."""
MANY = 1 << 16
"""Elements of a result from which on another compilation may be worth it; of rows, which take less, 16 times as
many."""
GAIN = 0.05
"""What part of the time it must save: the cost is no better known."""
NEAR_BYTES = 16 << 10
"""Values that wait in memory stay in the first cache up to this size."""

ALONE: Grid = (1, 1, 1)
_CHOICE = "merge.json"


def is_much(tile: int, grid: Grid, rows: bool) -> bool:
    """Do programs that store so many elements store enough together for another compilation to be worth it?"""
    programs = prod(grid)
    return programs > 1 and programs * tile >= (16 if rows else 1) * MANY


def may_pay(tile: int, grid: Grid, threads: int, rows: bool = False) -> bool:
    """Can merging be worth a thought, for programs whose largest product has so many elements, or what they store where
    they have none (`rows`)?"""
    # Of rows, tiles of an eighth of the largest lose little.
    small = tile <= LARGE // (8 if rows else 2)
    many = prod(grid) >= (4 * threads if rows else threads + 1)
    return small and many and is_much(tile, grid, rows)


def shapes_of(args: Sequence[Argument]) -> list[tuple[Sequence[int], ...]]:
    """Extents and strides of arrays; of a number, nothing."""
    return [(a.shape, a.strides) if isinstance(a, ArrayArg) else () for a in args]


def _best(told: Mapping[Grid, float]) -> Grid:
    best = min(told, key=lambda factors: told[factors])
    return best if told[best] < (1 - GAIN) * told[ALONE] else ALONE


@frozen
class _Known:
    """A kernel: its work, the axes along which its programs can be merged, and what its rows cost, where it has no
    products."""

    program: Program
    merges: Mapping[int, Merge]
    rows: RowCosts | None
    tile: tuple[int, bool]
    """See `largest_tile`."""


def largest_tile(module: ModuleOp) -> tuple[int, bool]:
    """Elements of the largest product's tile; where there are no products, of the largest that is stored, and True."""
    from tilewright.dialects.xetile import StoreScatterOp, StoreTileOp, TileMmaOp
    from tilewright.passes.axes import shape_of

    ops = list(module.walk())
    products = [op.result for op in ops if isinstance(op, TileMmaOp)]
    stored = [op.value for op in ops if isinstance(op, StoreTileOp | StoreScatterOp)]
    return max((prod(shape_of(v) or ()) for v in products or stored), default=0), not products


class Merging:
    """How the programs of one kernel, whose text is `source`, are merged. `waiting`: bytes of its values that wait in
    memory, where it has been compiled. `numbered`: which numbers its programs take for theirs, of those that the kernel
    has (`program_numbers`)."""

    def __init__(
        self,
        source: str,
        target: Target,
        options: CompileOptions,
        waiting: int | None = None,
        numbered: tuple[Choice, Callable[[], ProgramNumbers]] | None = None,
        module: ModuleOp | None = None,
    ):
        self._source, self._target, self._options = source, target, options
        self._fresh = module
        """What `source` is the text of, until somebody changes it: to parse it takes as long as many passes."""
        self._numbered = numbered
        self._waiting = waiting
        self._artifacts: dict[Grid, Mapping[str, bytes]] = {}
        self._chosen: dict[Any, Grid] = {}
        self._made: dict[Grid, Executable | None] = {}
        self._program: _Known | None = None
        self._lock = forks.lock()

    def executable(
        self, grid: Grid, args: Sequence[Argument], costs: PanelCosts
    ) -> Executable | None:
        """The code for a launch like this one; None where programs stay as they are."""
        with self._lock:
            key = repr((grid, shapes_of(args), costs.threads))
            if key not in self._chosen:
                self._chosen[key] = self._kept(key, grid, args, costs)
            factors = self._chosen[key]
            return None if factors == ALONE else self._made_of(factors)

    def unmerged(self) -> Executable | None:
        """The code that merges no programs; None where it cannot be."""
        with self._lock:
            return self._made_of(ALONE)

    def _made_of(self, factors: Grid) -> Executable | None:
        if factors not in self._made:
            self._made[factors] = self._code(factors)
        return self._made[factors]

    def _names(self, *parts: str) -> tuple[str, ...]:
        """Of what is kept on disk."""
        fingerprint = self._target.fingerprint(self._options)
        numbers = repr(self._numbered and self._numbered[0])
        return fingerprint, self._options.code_key, self._source, numbers, *parts

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
        best = _best(self._estimates(grid, args, costs))
        return ALONE if self._swells(best) else best

    def explained(self, args: Sequence[Argument], costs: PanelCosts) -> str:
        """What becomes of the programs of a launch that covers the arrays, for people; "" where they stay."""
        self._program = self._program or self._read(costs)
        grid = self._program.program.grid(args)
        tile, rows = self._program.tile
        if not may_pay(tile, grid, costs.threads, rows):
            return ""
        told = self._estimates(grid, args, costs)
        best = _best(told)
        if best == ALONE or self._swells(best):
            return ""
        (gx, gy, gz), (x, y, z) = grid, best
        now, before = (f"{1e6 * told[each]:.1f} us" for each in (best, ALONE))
        return f"of {gx} x {gy} x {gz} programs {x} x {y} x {z} are merged into one: {now}, {before} as they are"

    def _estimates(
        self, grid: Grid, args: Sequence[Argument], costs: PanelCosts
    ) -> dict[Grid, float]:
        """Seconds that products or rows take, by how many programs are merged along each axis."""
        shapes = [a.shape if isinstance(a, ArrayArg) else () for a in args]
        self._program = self._program or self._read(costs)
        program, known, rows = self._program.program, self._program.merges, self._program.rows
        alone = program.placed(args)
        mmas = [product.of.op for product in program.structure.products]
        sides = [((mma.a, 0), (mma.b, 1)) for mma in mmas]

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
            if rows is not None:
                return rows.seconds(grid, factors, costs.threads, LARGE)
            products = merged(factors)
            programs = prod(-(-n // each) for n, each in zip(grid, factors, strict=True))
            if costs.order(products, programs).forms != forms:
                return inf
            return sum(costs.causes(products, programs).values())

        forms = costs.order(alone, prod(grid)).forms
        ways = [
            [
                f
                for f in (FACTORS if rows is None else MORE_FACTORS)
                if f == 1 or (f < 2 * n and x in known and known[x].covers(n, f, shapes))
            ]
            for x, n in enumerate(grid)
        ]
        return {(x, y, z): seconds((x, y, z)) for x in ways[0] for y in ways[1] for z in ways[2]}

    def _read(self, costs: PanelCosts) -> _Known:
        from tilewright.passes.carry_offsets import carry_offsets
        from tilewright.passes.kernel import kernel_of
        from tilewright.passes.launch_cost import Program
        from tilewright.passes.merge_programs import merges
        from tilewright.targets.cpu.row_cost import RowCosts

        module = self._module()
        tile, kernel = largest_tile(module), kernel_of(module)
        carry_offsets(kernel)
        found = {each.axis: each for each in merges(kernel)}
        rows = RowCosts(kernel, found) if tile[1] else None
        return _Known(Program.of(module, GENERIC, costs), found, rows, tile)

    def _module(self) -> ModuleOp:
        from tilewright.dialects.text import parse_module

        if self._numbered is None:
            module, self._fresh = self._fresh, None
            return module or parse_module(self._source)
        choice, numbers = self._numbered
        return numbers().applied(choice)

    def _swells(self, factors: Grid) -> bool:
        """Do values of rows that wait in memory leave the first cache where programs are merged?"""
        assert self._program is not None
        if self._program.rows is None or factors == ALONE:
            return False
        bytes = self._waits(factors)
        if bytes <= NEAR_BYTES:
            return False
        if self._waiting is None:
            self._waiting = self._waits(ALONE)
        return bytes > 2 * self._waiting

    def _waits(self, factors: Grid) -> int:
        return json.loads(self._compiled(factors)["meta"])["scratch_bytes"]

    def _code(self, factors: Grid) -> Executable | None:
        """The kernel with its programs merged; None where that cannot be."""
        try:
            return self._target.load(self._compiled(factors), self._options)
        except TilewrightError:
            return None

    def _compiled(self, factors: Grid) -> Mapping[str, bytes]:
        def make() -> dict[str, bytes]:
            # Here, not above: a launch whose code lies on disk does without the compiler.
            from tilewright.passes.kernel import kernel_of
            from tilewright.passes.merge_programs import ask

            module = self._module()
            ask(kernel_of(module), factors)
            return self._target.build(module, self._options).artifacts()  # pyright: ignore

        if factors not in self._artifacts:
            names = self._names("merged", repr(factors))
            self._artifacts[factors] = cache.kept(names, make)
        return self._artifacts[factors]
