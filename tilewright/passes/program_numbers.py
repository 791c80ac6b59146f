"""Numbers that a kernel makes of a program's number become numbers of the program, along axes of their own.

    %x = gpu.block_id x                                   (a grid of 8 x 10 programs instead of 80)
    %m = arith.floordivsi %x, %c8                         %m = gpu.block_id y
    %n = arith.subi %x, (%m * 8)                    ->    %n = gpu.block_id x
    %t = xetile.init_tile %A[%m * 64, %n * 32]            %t = xetile.init_tile %A[%m * 64, %n * 32]

Which numbers these are, and that they are, is found out by computing them for all programs of a launch: whatever their
formula (rows of tiles, groups of rows, diagonals), they are the numbers of a grid if each combination occurs once. What
is known of programs side by side is true again then: which tiles they share, and that they can be merged.

Requires: workgroup level; programs that tell nobody who they are (no assertions, nothing printed), no branches
between blocks. Guarantees: the same programs, in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import IndexType, IntegerType, ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.arguments import Argument, ArrayArg, Grid
from tilewright.dialects.effects import PEOPLE, Acts
from tilewright.passes.affine import Expr, Kind, Symbol
from tilewright.passes.cleanup import eliminate_dead, is_pure
from tilewright.passes.emit import Before
from tilewright.passes.induction import AXES, Scalars
from tilewright.passes.kernel import kernel_of

MOST = 1 << 20
"""Programs of a launch whose numbers are computed."""
CUTS = 8
"""Sets of numbers that are looked at."""

Choice = tuple[tuple[int, ...], ...]
"""By axis of the grid: (), where its extent is 1 and it is left out; (0,), where it stays; the number of a cut, from 1
on, and the places in it of numbers along the new axes, the one that changes most often first."""

_OPERATORS: Mapping[str, Any] = {
    "floordiv": np.floor_divide,
    "ceildiv": lambda a, b: -np.floor_divide(-a, b),  # pyright: ignore
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
}


class _NoNumber(Exception):
    """An expression has no value: it divides by zero, or a number is not told."""


class ProgramNumbers:
    """What a kernel makes of its programs' numbers. `cuts`, by axis: sets of two or three expressions through which all
    goes that depends on the program's number there, those next to what uses them first."""

    def __init__(self, kernel: gpu.FuncOp):
        self.kernel, self._scalars = kernel, Scalars()
        self._known: dict[tuple[Symbol, int], bool] = {}
        self._inside: dict[SSAValue, Expr] = {}
        """Values that can be computed before the launch, and depend on the program."""
        self.cuts: dict[int, list[tuple[Expr, ...]]] = {}
        ops = list(kernel.walk())
        told = any(each.on is PEOPLE for op in ops for each in op.get_traits_of_type(Acts))
        if told or any(len(region.blocks) > 1 for op in ops for region in op.regions):
            return
        for axis in range(3):
            if found := list(self._cuts(ops, axis)):
                self.cuts[axis] = found[:CUTS]

    @property
    def arguments(self) -> list[int]:
        """The numbers among the kernel's arguments that the cuts depend on."""
        every = [e for cuts in self.cuts.values() for cut in cuts for e in cut]
        atoms = {s for e in every for s in e.atoms if s.kind is Kind.VALUE}
        return sorted(_argument(s).index for s in atoms)

    def _cuts(self, ops: Sequence[Operation], axis: int) -> Iterator[tuple[Expr, ...]]:
        number = self._scalars.program_ids[axis]
        mine, ends, order = dict[SSAValue, Expr](), list[SSAValue](), dict[SSAValue, int]()
        for op in ops:
            used = [v for v in op.operands if v in mine]
            if isinstance(op, gpu.BlockIdOp) or (used and len(op.results) == 1 and is_pure(op)):
                e = self._expr(op.results[0])
                if e is not None and e.depends_on(number) and self._is_known(e, axis):
                    order[op.results[0]] = len(order)
                    mine[op.results[0]] = e
                    continue
            ends += used

        def before(value: SSAValue) -> list[SSAValue]:
            owner = value.owner
            return [v for v in owner.operands if v in mine] if isinstance(owner, Operation) else []

        def source(value: SSAValue) -> SSAValue:
            """What a value is a multiple of, or lies behind; the first of those that are equal."""
            while isinstance(value.owner, _SHIFTS) and len(used := before(value)) == 1:
                value = used[0]
            return first.get(mine[value], value)

        self._inside |= mine
        first: dict[Expr, SSAValue] = {}
        for value, e in mine.items():
            if any(s is not number and s.depends_on(number) for s in e.symbols):
                first.setdefault(e, value)
        cut = {source(v) for v in ends}
        while made := [v for v in cut if before(v)]:
            if 2 <= len(cut) <= 3 and all(mine[v] in first for v in cut):
                yield tuple(mine[v] for v in sorted(cut, key=lambda v: order[v]))
            last = max(made, key=lambda v: order[v])
            cut = cut - {last} | {source(v) for v in before(last)}

    def _expr(self, value: SSAValue) -> Expr | None:
        return (
            self._scalars.expr(value) if isinstance(value.type, IndexType | IntegerType) else None
        )

    def _is_known(self, e: Expr, axis: int) -> bool:
        """Can an expression be computed before a launch, for all programs along one axis?"""
        return all(self._is_known_symbol(s, axis) for s in e.symbols)

    def _is_known_symbol(self, s: Symbol, axis: int) -> bool:
        known = self._known.get((s, axis))
        if known is None:
            known = self._known[s, axis] = (
                s.kind is Kind.GRID_DIM
                or (s.kind is Kind.PROGRAM_ID and s.key == axis)
                or (s.kind in (Kind.EXTENT, Kind.STRIDE, Kind.VALUE) and self._is_argument(s))
                or (
                    s.kind is Kind.APPLY
                    and isinstance(s.key, tuple)
                    and s.key[0] in _OPERATORS
                    and all(self._is_known(a, axis) for a in s.args)
                )
            )
        return known

    def _is_argument(self, symbol: Symbol) -> bool:
        value = _argument(symbol)
        return isinstance(value, BlockArgument) and value.block is self.kernel.body.block

    def choice(self, grid: Grid, args: Sequence[Argument]) -> tuple[Choice, Grid] | None:
        """For a launch: which numbers take each other's combinations once, and their grid. None where none do."""
        chosen, extents = list[tuple[int, ...]](), list[int]()
        for axis, programs in enumerate(grid):
            found = self._along(axis, grid, args) if 1 < programs <= MOST else None
            if found is not None:
                chosen.append(found[0])
                extents += found[1]
            else:
                chosen.append((0,) if programs > 1 else ())
                extents += [programs] if programs > 1 else []
        if len(extents) > 3 or not any(len(each) > 1 for each in chosen):
            return None
        x, y, z = (*extents, 1, 1, 1)[:3]
        return tuple(chosen), (x, y, z)

    def _along(
        self, axis: int, grid: Grid, args: Sequence[Argument]
    ) -> tuple[tuple[int, ...], list[int]] | None:
        programs, known = grid[axis], dict[Symbol, Any]()

        def of(symbol: Symbol) -> Any:
            match symbol.kind:
                case Kind.PROGRAM_ID:
                    return np.arange(programs)
                case Kind.GRID_DIM:
                    return grid[symbol.key]  # pyright: ignore
                case Kind.VALUE:
                    number = args[_argument(symbol).index]
                    if not isinstance(number, int):
                        raise _NoNumber
                    return number
                case Kind.EXTENT | Kind.STRIDE:
                    array = args[_argument(symbol).index]
                    assert isinstance(array, ArrayArg)
                    table = array.shape if symbol.kind is Kind.EXTENT else array.strides
                    return table[symbol.key[1]]  # pyright: ignore
                case _:
                    name, (a, b) = symbol.key[0], map(computed, symbol.args)  # pyright: ignore
                    if name not in ("min", "max") and not np.all(b):
                        raise _NoNumber
                    return _OPERATORS[name](a, b)  # pyright: ignore

        def computed(e: Expr) -> Any:
            for s in e.symbols:
                if s not in known:
                    known[s] = of(s)
            return sum(k * prod(known[s] for s in m) for m, k in e.terms.items())

        for i, cut in enumerate(self.cuts.get(axis, ()), 1):
            try:
                numbers = [np.broadcast_to(computed(e), programs) for e in cut]
            except _NoNumber:
                continue
            extents = [int(n.max()) + 1 for n in numbers]
            if any(n.min() for n in numbers) or prod(extents) != programs:
                continue
            if np.bincount(np.ravel_multi_index(numbers, extents)).max() > 1:  # pyright: ignore
                continue
            changes = [np.count_nonzero(np.diff(n)) for n in numbers]
            places = sorted(range(len(cut)), key=lambda place: -changes[place])
            return (i, *places), [extents[place] for place in places]
        return None

    @property
    def module(self) -> ModuleOp:
        """The kernel's."""
        module = self.kernel.get_toplevel_object()
        assert isinstance(module, ModuleOp)
        return module

    def applied(self, choice: Choice) -> ModuleOp:
        """A copy of the kernel's module, which reads these numbers along axes of a grid."""
        copies = dict[SSAValue, SSAValue]()
        module = self.module.clone(copies)
        inside = {copies[value]: e for value, e in self._inside.items()}
        block = kernel_of(module).body.block
        at = Before(block.first_op)  # pyright: ignore
        old = [op for op in block.walk() if isinstance(op, gpu.BlockIdOp | gpu.GridDimOp)]
        axes = iter(AXES)
        for axis, (which, *places) in enumerate((each or (-1,)) for each in choice):
            mine = [op for op in old if AXES.index(op.dimension.data) == axis]
            names = [next(axes) for _ in (places or (which,)) if which >= 0]
            dims = [gpu.DimensionAttr(gpu.DimensionEnum(name)) for name in names]
            ids = [at.add(gpu.BlockIdOp(dim)) for dim in dims]
            if places:
                cut = self.cuts[axis][which - 1]
                numbers = dict(zip((cut[place] for place in places), ids, strict=True))
                for value, e in inside.items():
                    if (number := numbers.get(e)) is not None:
                        same = value.type == number.type
                        new = number if same else at.add(arith.IndexCastOp(number, value.type))
                        value.replace_all_uses_with(new)
            for op in mine:
                if isinstance(op, gpu.GridDimOp):
                    extent = 1
                    for dim in dims:
                        extent = at.times(extent, at.add(gpu.GridDimOp(dim)))
                    op.result.replace_all_uses_with(at.index(extent))
                elif not places:
                    op.result.replace_all_uses_with(ids[0] if ids else at.index(0))
        eliminate_dead(block)
        return module


_SHIFTS = (arith.AddiOp, arith.SubiOp, arith.MuliOp, arith.IndexCastOp)


def _argument(symbol: Symbol) -> Any:
    """What a symbol is, or an extent or stride of: of those that are known before a launch, the kernel's argument."""
    return symbol.key[0] if isinstance(symbol.key, tuple) else symbol.key  # pyright: ignore
