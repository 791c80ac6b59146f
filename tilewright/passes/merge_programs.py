"""merge-programs: one program does what several of the grid did, side by side along x, y or both.

    kernel {tilewright.merge = array<i64: 4, 1, 1>}       kernel {tilewright.merged = array<i64: 4, 1, 1>}
    %x = gpu.block_id x                                   %b = gpu.block_id x   %x = arith.muli %b, %c4
    %m = arith.muli %x, %c64                              %m = arith.muli %x, %c64
    %t = xetile.init_tile %A[%m, 0] : 64x32         ->    %t = xetile.init_tile %A[%m, 0] : 256x32
    %d = xetile.tile_mma .. : 64x128                      %d = xetile.tile_mma .. : 256x128

The user's tile is not the machine's tile: what splits a workgroup (`split_workgroups`), read backwards. Programs that
follow one another along an axis of the grid have tiles that follow one another: together these are one tile, which may
be cut elsewhere, too (`array<i64: 24, 1, 1, 17, 1, 1>`: 17 programs of 192 rows do what 24 of 136 did).

Requires: workgroup level; along the axis the same as a split does, and that the kernel's number there does nothing but
place tiles and count elements (`arange`), those of each program behind those of the one before. Guarantees: the same
results, from as many times fewer programs, rounded up: a launch has to see to it that what the last of them does beyond
its grid lies outside of the arrays (`Merge.covers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import IndexType, IntegerType, VectorType
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import IsTerminator, is_side_effect_free

from tilewright.diagnostics import unsupported
from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import ELEMENTS
from tilewright.dialects.upstream.arith import resized
from tilewright.dialects.xetile.maps import without_maps
from tilewright.frozen import frozen
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.axes import shape_of
from tilewright.passes.emit import Before, Behind
from tilewright.passes.kernel import MERGED, factors_attr, factors_of, merged_of, programs_of
from tilewright.passes.split_workgroups import SplitChoice, choices, falls_apart, inside, maps_of
from tilewright.passes.unit_rows import unit_rows

MERGE = "tilewright.merge"
"""Attribute of a kernel: how many programs of the grid are to be merged, along x, y and z."""


@frozen
class Stored:
    """A dimension of an array that programs in a row along an axis of the grid store to: from number g on at `start` +
    g * `step` or behind."""

    argument: int
    dimension: int
    start: int
    step: int


@frozen
class Merge:
    """An axis of the grid along which programs can be merged."""

    axis: int
    choice: SplitChoice
    stores: tuple[Stored, ...] | None
    """Where the programs store; None where that is not known for all of them, or they are told how many they are."""

    def programs(
        self, programs: int, factor: int | Fraction, shapes: Sequence[Sequence[int]]
    ) -> int:
        """How many programs do what so many of the launch do, that many together: none that stores beyond arrays."""
        whole = -(-programs // factor)
        ends = [
            -((s.start - shapes[s.argument][s.dimension]) // (s.step * factor))
            for s in self.stores or ()
        ]
        return min(whole, max(1, *ends)) if ends else whole

    def covers(
        self, programs: int, factor: int | Fraction, shapes: Sequence[Sequence[int]]
    ) -> bool:
        """Does what programs beyond so many would store, so many together, lie outside of arrays of these shapes?"""
        if programs % factor == 0:
            return True
        return self.stores is not None and all(
            s.start + s.step * programs >= shapes[s.argument][s.dimension] for s in self.stores
        )


def merge_programs(kernel: gpu.FuncOp) -> None:
    """Merges as many programs of the grid into one as the kernel asks for."""
    asked = factors_of(kernel, MERGE)
    kernel.attributes.pop(MERGE, None)
    if asked is None:
        return
    known = {each.axis: each for each in merges(kernel)}
    for axis, factor in enumerate(asked):
        if factor == 1:
            continue
        if axis not in known:
            raise unsupported(kernel, f"programs along {'xyz'[axis]} cannot be merged")
        merge(kernel, known[axis], factor)


def ask(kernel: gpu.FuncOp, factors: Sequence[int | Fraction]) -> None:
    """Leaves it to the pass to merge so many programs along x, y and z."""
    kernel.attributes[MERGE] = factors_attr(factors)


def merges(kernel: gpu.FuncOp) -> list[Merge]:
    """The axes of the grid along which programs can be merged; no two of them lengthen the same dimension."""
    if programs_of(kernel) > 1:
        return []
    analysis, found = AccessAnalysis(kernel), dict[int, SplitChoice]()

    def fits(choice: SplitChoice, axis: int) -> bool:
        return _is_along(analysis, axis, choice) and _places_only(kernel, analysis, axis, choice)

    axes = sorted(analysis.used_axes)
    for axis in axes:
        rows = unit_rows(kernel, analysis, axis)
        if (
            rows is not None
            and falls_apart(kernel, analysis, rows.choice)
            and fits(rows.choice, axis)
        ):
            rows.repeat()
            found[axis] = rows.choice
            break
    possible = choices(kernel)
    for axis in axes:
        fitting = (c for c in possible if axis not in found and fits(c, axis))
        if (choice := next(fitting, None)) is not None:
            found[axis] = choice
    return [Merge(axis, choice, _stores(analysis, axis)) for axis, choice in found.items()]


def merge(kernel: gpu.FuncOp, along: Merge, factor: int | Fraction) -> None:
    """Merges so many programs along an axis. What is known of the other axes stays true."""
    longer_extents(along.choice, factor)  # refuses what is no whole number
    if isinstance(factor, Fraction) and factor.denominator > 1:
        _move(kernel, along.axis, factor)
    for op in list(kernel.walk()):
        if isinstance(op, xt.ConvertLayoutOp):  # maps are left out
            Rewriter.replace_op(op, [], [op.source])
        elif factor.denominator > 1:
            continue
        elif isinstance(op, gpu.BlockIdOp | gpu.GridDimOp) and _axis(op) == along.axis:
            at = Behind(op)
            at.instead(op.result, arith.MuliOp(op.result, at.index(int(factor))))
    for value, shape in longer_extents(along.choice, factor).items():
        for table, name, _ in list(maps_of(value)):
            del table[name]
        if isinstance(value.type, xt.TileType):
            value._type = without_maps(value.type, shape)  # pyright: ignore[reportPrivateUsage]
            continue
        assert isinstance(value.type, VectorType)
        longer = VectorType(value.type.element_type, shape)
        value._type = longer  # pyright: ignore[reportPrivateUsage]
        if isinstance(op := value.owner, arith.ConstantOp):
            op.properties["value"] = resized(op, longer)
    factors = [n * factor if axis == along.axis else n for axis, n in enumerate(merged_of(kernel))]
    kernel.attributes[MERGED] = factors_attr(factors)


def longer_extents(choice: SplitChoice, factor: int | Fraction) -> dict[SSAValue, list[int]]:
    """Shapes of the values of a choice with so many times its extents."""
    found = dict[SSAValue, list[int]]()
    for value, dims in inside(choice).items():
        shape = [n * factor if d in dims else n for d, n in enumerate(shape_of(value) or ())]
        if any(n.denominator > 1 for n in shape):
            raise unsupported(value.owner, f"{factor} times {shape_of(value)} are no whole extents")  # pyright: ignore
        found[value] = list(map(int, shape))
    return found


def _move(kernel: gpu.FuncOp, axis: int, factor: Fraction) -> None:
    """Tiles and positions of the program of a number are where so many times that number would have them."""
    analysis, moved = AccessAnalysis(kernel), list[tuple[Operation, int, int]]()
    symbol = analysis.program_id(axis)
    for op in kernel.walk():
        if isinstance(op, gpu.GridDimOp) and _axis(op) == axis:
            raise unsupported(
                op,
                f"programs along {'xyz'[axis]}, who are told their number, cannot be merged by {factor}",
            )
        for i, value in enumerate(op.operands if isinstance(op, _PLACED) else ()):
            if not isinstance(value.type, IndexType | IntegerType):
                continue
            if not (e := analysis.expr(value)).depends_on(symbol):
                continue
            step = None if (by := e.step(symbol)) is None else by.constant
            if step is None or (step * factor).denominator > 1:
                raise unsupported(op, f"programs along {'xyz'[axis]} cannot be merged by {factor}")
            moved.append((op, i, int(step * (factor - 1))))
    at = Before(kernel.body.block.first_op)  # pyright: ignore
    number = at.add(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum("xyz"[axis]))))
    for op, i, step in moved:
        at, old = Before(op), op.operands[i]
        by = at.add(arith.MuliOp(number, at.index(step)))
        by = by if by.type == old.type else at.add(arith.IndexCastOp(by, old.type))
        op.operands[i] = at.add(arith.AddiOp(old, by))


_PLACED = (xt.InitTileOp, vector.BroadcastOp)
"""What takes a program's number, or what is made of it, and makes no number of it."""


def _axis(op: gpu.BlockIdOp | gpu.GridDimOp) -> int:
    return "xyz".index(op.dimension.data)


def _places_only(
    kernel: gpu.FuncOp, analysis: AccessAnalysis, axis: int, choice: SplitChoice
) -> bool:
    """Does a program's number along an axis go into nothing but offsets of tiles and positions?

    Elements of a vector on the way to a position are c * (number along the choice) + s * (number of the program) + what
    all have; where s is c times as much as a program has, they follow one another through all programs: a position.
    """
    symbol, dims = analysis.program_id(axis), inside(choice)
    scalars, slopes = set[SSAValue](), dict[SSAValue, tuple[int, int]]()

    def extent(value: SSAValue) -> int:
        """Elements along the choice."""
        return next(((shape_of(value) or ())[d] for d in dims.get(value, ())), 1)

    def slope(op: Operation) -> tuple[int, int] | None:
        """Of what an op makes of vectors on the way; None where it is not known."""
        (a, s), (b, t) = (slopes.get(v, (0, 0)) for v in (*op.operands, *op.operands)[:2])
        if isinstance(op, arith.AddiOp):
            return a + b, s + t
        if isinstance(op, arith.SubiOp):
            return a - b, s - t
        moved = op.name in ELEMENTS and len(op.operands) == 1
        longer = moved and a and extent(op.operands[0]) != extent(op.results[0])
        casts = isinstance(op, arith.IndexCastOp | arith.TruncIOp)
        return (a, s) if casts or (moved and not longer) else None

    for op in kernel.walk():
        new: tuple[int, int] | None = (0, 0)
        if isinstance(op, gpu.BlockIdOp) and _axis(op) == axis:
            scalars.add(op.result)
        elif op.name == "vector.step":
            new = (1 if op.results[0] in dims else 0), 0
        elif not slopes.keys().isdisjoint(op.operands):
            new = slope(op)
        elif isinstance(op, vector.BroadcastOp) and op.source in scalars:
            step = analysis.expr(op.source).step(symbol)
            new = None if step is None or step.constant is None else (0, step.constant)
        elif isinstance(op, xt.InitTileOp):
            if not scalars.intersection(op.operands) <= set(op.mixed_offsets):
                return False
        elif not scalars.isdisjoint(op.operands):
            pure = is_side_effect_free(op) and not op.has_trait(IsTerminator)
            if op.regions or not pure or any(map(shape_of, op.results)):
                return False
            scalars.update(op.results)
        if new is None:
            return False
        for value in op.results if any(new) else ():
            if new[0] * extent(value) != new[1]:
                slopes[value] = new
    return True


def _is_along(analysis: AccessAnalysis, axis: int, choice: SplitChoice) -> bool:
    """Do the tiles of programs in a row follow one another along a choice's dimensions, and are no others these?"""
    symbol, members = analysis.program_id(axis), inside(choice)
    for access in analysis.accesses:
        if any(e.depends_on(symbol) for e in (*access.extents, *access.strides)):
            return False
        if access.scattered:  # its places are positions, if they are not the same for all programs
            continue
        sizes, lead = (
            access.tile_type.get_shape(),
            len(access.offsets) - len(access.tile_type.get_shape()),
        )
        moving = {d - lead for d, e in enumerate(access.offsets) if e.depends_on(symbol)}
        if moving != members.get(access.tile, set()):
            return False
        for d in moving:
            step = access.offsets[d + lead].step(symbol)
            if step is None or step.constant != sizes[d] or access.tile_type.array_length > 1:
                return False
    return True


def _stores(analysis: AccessAnalysis, axis: int) -> tuple[Stored, ...] | None:
    symbol, found = analysis.program_id(axis), list[Stored]()
    if any(isinstance(op, gpu.GridDimOp) and _axis(op) == axis for op in analysis.func.walk()):
        return None
    for access in analysis.accesses:
        if access.scattered:  # nothing keeps it inside of the array
            return None
        if not access.writes:
            continue
        at, rank = access.base, len(access.origin.mixed_offsets)
        for d, offset in enumerate(access.offsets):
            if not offset.depends_on(symbol):
                continue
            step, (start, _) = offset.coefficient(symbol).constant, offset.without(symbol).range()
            if not isinstance(at, BlockArgument) or step is None or start is None:
                return None
            found.append(Stored(at.index, d - len(access.offsets) + rank, start, step))
    return tuple(found)
