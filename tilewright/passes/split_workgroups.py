"""split-workgroups: one workgroup with large tiles becomes several with parts of them.

    %x = gpu.block_id x                                 %b = gpu.block_id x
    %m = arith.muli %x, %c256                           %x = arith.divui %b, 2   %s = arith.remui %b, 2
    %t = xetile.init_tile %A[%m, 0] : 256x32     ->     %m = arith.muli %x, %c256
    %d = xetile.tile_mma .. : 256x256                   %o = %m + %s * 128
                                                        %t = xetile.init_tile %A[%o, 0] : 128x32
                                                        %d = xetile.tile_mma .. : 128x256

The user's tile is not the machine's tile. Dimensions of values that ops tie together (rows of A, C and
of everything computed from C) are one axis of the program; an axis whose elements never meet is split
evenly. Its parts are programs of their own, next to one another along x (`split`), or one program computes
them one after the other (`in_passes`), in a loop around its text:

                                                        scf.for %s = 0 to 2 {
                                                          %o = %m + %s * 128
                                                          ..

An array of shared memory that a workgroup makes is cut with the tiles of it (`shares`): tiles that fill it, or lie in
it side by side, keep their number and have parts of its extent, so that parts never meet in it. What is not cut is
made anew by each part.

    %s = memref.alloc() : 256x128, shared                   %s = memref.alloc() : 128x128, shared
    %t = init_tile %s[0, %slot] : 256x32             ->     %t = init_tile %s[0, %slot] : 128x32

Requires: workgroup level. An axis can be split when no op combines or moves elements along it (a
reduction, a reshape, an extracted element), every store and atomic of arrays of the launch covers it, and nothing that
one part stores there is loaded or stored by another. Guarantees: the same results,
from `split` with `factor` times as many programs along x; no axis is split further than asked for; maps
distribute parts to the subgroups that had the whole, and are left out where none does (`is_distributed` asks).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects import arith, gpu, scf, vector
from xdsl.dialects.builtin import IndexType, MemRefType, VectorType
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xetile as xt
from tilewright.dialects.nesting import move
from tilewright.dialects.upstream.arith import resized
from tilewright.dialects.upstream.gpu.memory import SHARED_MEMORY
from tilewright.dialects.xetile.maps import split_map, split_tile, stated_maps, without_maps
from tilewright.frozen import frozen
from tilewright.passes.access import Access, AccessAnalysis, AccessKind, add_up, same_tile
from tilewright.passes.axes import Axes, Axis, extents_of, shape_of
from tilewright.passes.emit import Before, Behind


@frozen
class SplitChoice:
    """An axis of the program that can be split: its members, and its least extent, of which the others are multiples
    (the rows that a reduction adds up in runs)."""

    members: tuple[Axis, ...]
    extent: int


def choices(kernel: gpu.FuncOp, shares: bool = False, ranked: bool = False) -> list[SplitChoice]:
    """The axes along which the kernel's workgroup can be split; `shares`: of one that has shared memory, too; `ranked`:
    behind a cluster's sums, among its workgroups. (Rows and columns may be counted by one vector: each use is given one
    of its own, which ties them no more.)"""
    for op in list(kernel.walk()):
        if op.name == "vector.step" and op.parent is not None:
            for use in list(op.results[0].uses)[1:]:
                use.operation.operands[use.index] = Behind(op).add(op.clone())
    axes = Axes(kernel, ranked)
    if not axes.is_private or not (axes.is_alone or (shares and not _meets_by_name(kernel))):
        return []
    analysis = AccessAnalysis(kernel)
    if (stored := _Stored.of(analysis)) is None:
        return []
    whole = axes.roots(axes.fixed | axes.combined)
    found: list[SplitChoice] = []
    for root, members in axes.members().items():
        if root in whole:
            continue
        extents = extents_of(members)
        if any(extent % min(extents) for extent in extents):
            continue
        choice = SplitChoice(tuple(members), min(extents))
        dims = inside(choice)
        if any(len(of) > 1 for of in dims.values()):  # a part's rows meet the others' columns
            continue
        if not stored.falls_apart(dims) or not _keep_their_number(axes.shared, dims, analysis):
            continue
        found.append(choice)
    return found


def falls_apart(kernel: gpu.FuncOp, analysis: AccessAnalysis, choice: SplitChoice) -> bool:
    """Is all that parts along a choice, which have no element of another's, store and load again theirs?"""
    axes, stored = Axes(kernel), _Stored.of(analysis)
    return (
        axes.is_private
        and axes.is_alone
        and stored is not None
        and stored.falls_apart(inside(choice))
    )


@frozen
class _Stored:
    """What a workgroup stores to arrays of the launch."""

    tiles: set[SSAValue]
    together: list[tuple[Access, Access]]
    """Loads and stores of one tile."""

    @classmethod
    def of(cls, analysis: AccessAnalysis) -> _Stored | None:
        """None where nothing is stored, or parts of the workgroup may meet in it."""
        written = [a for a in analysis.accesses if a.writes and a.memory_space != SHARED_MEMORY]
        together = _loaded_and_stored(analysis, written)
        if not written or together is None:
            return None
        return cls({access.tile for access in written}, together)

    def falls_apart(self, dims: Mapping[SSAValue, set[int]]) -> bool:
        """Is all that is stored cut along these dimensions, and what is loaded there in the same way?"""
        return dims.keys() >= self.tiles and all(
            dims.get(a.tile) == dims.get(b.tile) for a, b in self.together
        )


def _meets_by_name(kernel: gpu.FuncOp) -> bool:
    """Are there named barriers? They are made once, for all that a kernel does."""
    return any(op.name.startswith("xegpu.") and "nbarrier" in op.name for op in kernel.walk())


def _keep_their_number(
    shared: Sequence[xt.InitTileOp], dims: Mapping[SSAValue, set[int]], analysis: AccessAnalysis
) -> bool:
    """Whether tiles of shared memory that are cut lie side by side in their array, all of one extent."""
    known: dict[tuple[SSAValue, int], int] = {}
    for op in shared:
        shape, offsets = shape_of(op.result) or (), op.mixed_offsets
        for dim in dims.get(op.result, ()):
            place = dim - len(shape)
            if analysis.divisor(analysis.expr(offsets[place])) % shape[dim]:
                return False
            if known.setdefault((op.source, place), shape[dim]) != shape[dim]:
                return False
    return True


def _loaded_and_stored(
    analysis: AccessAnalysis, written: Sequence[Access]
) -> list[tuple[Access, Access]] | None:
    """Pairs of a load and a store of one tile, which each part has to do for itself. None where parts may meet in
    memory in any other way: what is stored then depends on their order."""
    if analysis.hidden():
        return None
    found: list[tuple[Access, Access]] = []
    for n, a in enumerate(written):
        moving = [loop.counter for loop in a.loops if a.depends_on(loop)]
        if not (add_up(a, a) or analysis.separated_by(a).issuperset(moving)):
            return None
        loads = [b for b in analysis.accesses if b.kind is AccessKind.LOAD]
        for b in (*written[:n], *loads):
            if not analysis.may_overlap(a, b, common=analysis.program_ids) or add_up(a, b):
                continue
            if not same_tile(a, b):
                return None
            if not b.writes:
                found.append((a, b))
    return found


def is_distributed(choice: SplitChoice, factor: int) -> bool:
    """Whether the parts of a split can be owned by the subgroups that the program's maps name."""
    if choice.extent % factor:
        return False
    for value, dims in inside(choice).items():
        if isinstance(value.type, xt.TileType) and split_tile(value.type, [*dims], factor) is None:
            return False
        shape = shape_of(value) or ()
        if any(split_map(map, shape, [*dims], factor) is None for _, _, map in maps_of(value)):
            return False
    return True


def split(kernel: gpu.FuncOp, choice: SplitChoice, factor: int) -> None:
    """Splits the workgroup along one axis into `factor` programs."""
    body = kernel.body.block
    part = choice.extent // factor
    assert body.first_op is not None
    at = Before(body.first_op)
    number = at.insert(gpu.BlockIdOp(gpu.DimensionAttr(gpu.DimensionEnum.X)))
    count = at.index(factor)
    whole = at.add(arith.DivUIOp(number, count))
    sub = at.add(arith.RemUIOp(number, count))
    start = at.add(arith.MuliOp(sub, at.index(part)))
    for op in list(kernel.walk()):
        if op is number:
            continue
        if isinstance(op, gpu.BlockIdOp) and op.dimension.data is gpu.DimensionEnum.X:
            Rewriter.replace_op(op, [], [whole])
        elif isinstance(op, gpu.GridDimOp) and op.dimension.data is gpu.DimensionEnum.X:
            Behind(op).instead(op.result, arith.DivUIOp(op.result, count))
    narrow(choice, factor, start)


def in_passes(kernel: gpu.FuncOp, choice: SplitChoice, factor: int) -> None:
    """Has the workgroup compute the `factor` parts of one axis one after the other."""
    body = kernel.body.block
    ops = list(body.ops)
    at = Before(ops.pop())
    zero, one, count, size = map(at.index, (0, 1, factor, choice.extent // factor))
    inside = Block(arg_types=(IndexType(),))
    at.insert(scf.ForOp(zero, count, one, [], inside))
    start = arith.MuliOp(inside.args[0], size)
    inside.add_op(start)
    move(ops, InsertPoint.at_end(inside))
    inside.add_op(scf.YieldOp())
    narrow(choice, factor, start.result)


def inside(choice: SplitChoice) -> dict[SSAValue, set[int]]:
    """The dimensions of each value that are members of an axis."""
    found: dict[SSAValue, set[int]] = {}
    for value, dim in choice.members:
        found.setdefault(value, set()).add(dim)
    return found


def narrow(choice: SplitChoice, factor: int, start: SSAValue) -> None:
    """The values of an axis become those of one of `factor` parts, which begins at `start`."""
    starts = {1: start}
    for value, dims in inside(choice).items():
        shape = shape_of(value) or ()
        for table, name, map in list(maps_of(value)):
            del table[name]
            if (new := split_map(map, shape, [*dims], factor)) is not None:
                table[name] = new
        times = min(shape[d] for d in dims) // choice.extent
        if times not in starts:
            assert isinstance(start.owner, Operation)
            at = Behind(start.owner)
            starts[times] = at.add(arith.MuliOp(start, at.index(times)))
        _narrow(value, dims, factor, starts[times])


def maps_of(value: SSAValue) -> Iterator[tuple[dict[str, Attribute], str, xt.WgMapAttr]]:
    """Where the program says who owns a vector (the op that makes it, and those that take it), and the map there."""
    ops = [use.operation for use in value.uses]
    for op in dict.fromkeys([value.op, *ops] if isinstance(value, OpResult) else ops):
        for table, name, of in stated_maps(op):
            map = table[name]
            if of is value and isinstance(map, xt.WgMapAttr):
                yield table, name, map


def _narrow(value: SSAValue, dims: set[int], factor: int, start: SSAValue) -> None:
    """A value's type with shorter dimensions; what makes it moves by the part's start."""
    type = value.type
    assert isinstance(type, VectorType | xt.TileType | MemRefType)
    shape = [n // factor if d in dims else n for d, n in enumerate(type.get_shape())]
    new_type: Attribute
    if isinstance(type, VectorType):
        new_type = VectorType(type.element_type, shape)
    elif isinstance(type, MemRefType):
        new_type = MemRefType(type.element_type, shape, type.layout, type.memory_space)
    else:
        new_type = split_tile(type, [*dims], factor) or without_maps(type, shape)
    op = value.op if isinstance(value, OpResult) else None
    shared = isinstance(type, xt.TileType) and type.memory_space == SHARED_MEMORY
    if isinstance(op, xt.InitTileOp) and op.offset_vector is None:
        before, offsets = Before(op), list(op.mixed_offsets)
        for at in (dim - len(shape) for dim in dims):
            number = offsets[at]
            offsets[at] = before.over(number, factor) if shared else before.plus(number, start)
        assert isinstance(new_type, xt.TileType)
        made = xt.InitTileOp(op.source, new_type, offsets, op.mixed_sizes, op.mixed_strides)
        before.replace(before.add(made))
        return
    if isinstance(op, arith.ConstantOp):
        assert isinstance(new_type, VectorType)
        op.properties["value"] = resized(op, new_type)
    new = Rewriter.replace_value_with_new_type(value, new_type)
    if op is not None and op.name == "vector.step":
        at = Behind(op)
        many = at.add(vector.BroadcastOp(start, new_type))  # pyright: ignore
        at.instead(new, arith.AddiOp(new, many))
