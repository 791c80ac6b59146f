"""The axes of a program: dimensions of values that ops tie together, at workgroup or subgroup level.

    %a = load_tile .. : 256x32                          rows of %a, %d, %e are one axis, and so are the columns
    %b = load_tile .. : 32x128                          of %b, %d and %e; columns of %a and rows of %b are
    %d = tile_mma %a, %b, %c : 256x128                  another, along which elements are combined
    %e = arith.addf %d, %d

An array of shared memory that the program makes is a value, too: its axes are those of the tiles of it, one or several
of which lie side by side along each dimension (the slots of a ring).

Requires: XeTile, or today's XeGPU. An axis is *fixed* where elements move along it, or where an op is not known: its
extent is part of the program's meaning. It is *combined* where a reduction or a product adds elements up along it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    MemRefType,
    NoneAttr,
    VectorType,
)
from xdsl.ir import Operation, SSAValue
from xdsl.utils.disjoint_set import DisjointSet

from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.movement import ELEMENTS, kept_dimensions
from tilewright.dialects.nesting import values_made
from tilewright.dialects.upstream.arith import is_splat
from tilewright.dialects.upstream.gpu.memory import is_shared
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.passes.carried import LOOPS_AND_BRANCHES, carried_together

Axis = tuple[SSAValue, int]
"""One dimension of one value."""


def shape_of(value: SSAValue) -> tuple[int, ...] | None:
    """Extents of a vector, a tile or a plain array of shared memory; None for anything else."""
    kind = value.type
    if isinstance(kind, VectorType | xt.TileType):
        return tuple(kind.get_shape())
    if isinstance(kind, MemRefType) and is_shared(kind):
        shape = tuple(kind.get_shape())
        return None if DYNAMIC_INDEX in shape or kind.layout != NoneAttr() else shape
    return None


def axes_of(value: SSAValue) -> range:
    """The dimensions of what `shape_of` knows; none of anything else."""
    return range(len(shape_of(value) or ()))


_TIED = (
    "xetile.load",
    "xetile.store",
    "xetile.store_tile",
    "xetile.atomic_rmw",
    "xetile.prefetch_tile",
    "xetile.convert_layout",
    "xegpu.convert_layout",
    "arith.constant",
    "builtin.unrealized_conversion_cast",
)
"""Ops whose operands and results share their axes, dimension by dimension, besides the elementwise ones."""


class Axes:
    """The axes of a kernel."""

    def __init__(self, kernel: gpu.FuncOp, ranked: bool = False):
        self.ranked = ranked
        """Whether the workgroups of a cluster may each take a part of its sums."""
        made = (value for op in kernel.walk() for value in values_made(op))
        self.values = [value for value in made if shape_of(value) is not None]
        self.tied = DisjointSet[Axis]([(v, d) for v in self.values for d in axes_of(v)])
        self.fixed: set[Axis] = set()
        self.combined: set[Axis] = set()
        self.is_private = True
        """Whether all that the kernel does is in its values, its arrays of shared memory and those of its arguments."""
        self.shared: list[xt.InitTileOp] = []
        """What makes tiles of shared memory."""
        self.is_alone = True
        """Whether there is no shared memory."""
        self.fix_all(kernel.body.block.args)
        for op in kernel.walk():
            self.visit(op)

    def members(self) -> dict[Axis, list[Axis]]:
        """The axes, each by one of its members; dimensions of extent 1 are of none."""
        found: dict[Axis, list[Axis]] = {}
        for value in self.values:
            for dim, n in enumerate(shape_of(value) or ()):
                if n > 1:
                    found.setdefault(self.tied.find((value, dim)), []).append((value, dim))
        return found

    def roots(self, axes: Iterable[Axis]) -> set[Axis]:
        """The members by which `members` has the axes of these dimensions."""
        return {self.tied.find(axis) for axis in axes}

    def tie_all(self, values: Iterable[SSAValue]) -> None:
        shaped = [v for v in values if shape_of(v) is not None]
        if any(isinstance(v.type, MemRefType) for v in shaped):  # which of them it is, is not known
            self.fix_all(shaped)
        for v in shaped[1:]:
            first, shape = shape_of(shaped[0]), shape_of(v)
            assert first is not None and shape is not None
            if len(first) != len(shape):
                self.fix_all((shaped[0], v))
                continue
            for dim in range(len(shape)):
                self.tied.union_left((shaped[0], dim), (v, dim))

    def fix_all(self, values: Iterable[SSAValue]) -> None:
        for v in values:
            for dim in axes_of(v):
                self.fixed.add((v, dim))

    def visit(self, op: Operation) -> None:
        values = (*op.operands, *op.results)
        if is_elementwise(op) or op.name in _TIED:
            self.tie_all(values)
            if isinstance(op, arith.ConstantOp) and not is_splat(op):
                self.fix_all([op.result])
        elif isinstance(op, xt.InitTileOp):
            if op.tile_type.memory_space != 0:
                self.in_shared_memory(op)
            if op.offset_vector is not None:
                self.tie_all((op.offset_vector, op.result))
            elif len(op.mixed_offsets) == 1:
                self.fixed.add((op.result, 0))
        elif isinstance(op, xt.LoadTileOp):
            order = op.permutation or tuple(range(2))
            for value in op.values:
                for dim, source in enumerate(order):
                    self.tied.union_left((op.tile, source), (value, dim))
                    if len(op.values) > 1:
                        self.fixed.add((value, dim))
        elif isinstance(op, xt.TileMmaOp):
            self.product(op.a, op.b, op.c, op.result)
        elif isinstance(op, xt.ReductionOp):
            for dim in axes_of(op.source):
                runs = op.reduction_size is not None and (shape_of(op.result) or ())[dim] > 1
                if dim in op.dims and not runs:
                    self.combined |= {(op.source, dim), (op.result, dim)}
                else:
                    self.tied.union_left((op.source, dim), (op.result, dim))
        elif isinstance(op, MultiReductionOp):
            self.combined |= {(op.source, dim) for dim in op.dims}
            self.tie_all((op.acc, op.dest))
            kept = [dim for dim in axes_of(op.source) if dim not in op.dims]
            for after, dim in zip(axes_of(op.dest), kept, strict=False):
                self.tied.union_left((op.source, dim), (op.dest, after))
        elif op.name.startswith("xegpu."):
            self.xegpu(op)
        elif op.name in ELEMENTS and len(values) == 2 and "sizes" not in op.properties:
            self.rearranged(op)
            if isinstance(op, xt.BroadcastOp) and op.broadcast_size is not None:
                self.fixed |= {(op.result, dim) for dim in op.dims}  # so many as it says
        elif op.name in ("vector.step", "gpu.barrier"):
            pass  # numbers move with the part; no barrier orders what nobody reads
        elif isinstance(op, LOOPS_AND_BRANCHES):
            for group in carried_together(op):
                self.tie_all(group)
        elif op.name in ("scf.yield", "scf.condition"):
            pass
        elif self.ranked and op.name in ("stage.rank", "stage.cluster.sum"):
            self.fix_all(op.operands)
        elif isinstance(op, memref.AllocOp | memref.AllocaOp) and axes_of(op.memref):
            self.is_alone = False
        elif op.name.startswith(("memref.alloc", "tw.", "stage.", "cf.")):
            self.is_private = False
            self.fix_all(values)
        else:
            self.fix_all(values)

    def in_shared_memory(self, op: xt.InitTileOp) -> None:
        """Ties a tile to the array that it is of, where tiles like it fill the array."""
        array, tile = shape_of(op.source), shape_of(op.result)
        self.shared.append(op)
        self.is_alone = False
        if array is None or tile is None:
            self.is_private = False
        elif (
            op.offset_vector is not None
            or op.mixed_sizes
            or len(tile) > len(array)
            or op.tile_type.array_length > 1
        ):
            self.fix_all((op.source, op.result))
        else:
            lead = len(array) - len(tile)
            for dim, n in enumerate(array):
                if dim < lead or n % tile[dim - lead]:
                    self.fixed.add((op.source, dim))
                else:
                    self.tied.union_left((op.source, dim), (op.result, dim - lead))

    def product(self, a: SSAValue, b: SSAValue, c: SSAValue | None, result: SSAValue) -> None:
        self.tied.union_left((a, 0), (result, 0))
        self.tied.union_left((b, 1), (result, 1))
        self.tied.union_left((a, 1), (b, 0))
        self.combined.add((a, 1))
        if c is not None:
            self.tie_all((c, result))

    def xegpu(self, op: Operation) -> None:
        # Imported here: programs that have no such op have no use for the dialect.
        from tilewright.dialects import xegpu

        values = [v for v in (*op.operands, *op.results) if shape_of(v) is not None]
        if isinstance(op, xegpu.DpasOp) and all(len(axes_of(v)) == 2 for v in values):
            self.product(op.lhs, op.rhs, op.acc, op.result)
        elif isinstance(op, (xegpu.LoadNdOp, xegpu.StoreNdOp)):
            if shape_of(op.value) != op.tdesc.get_shape() or "transpose" in op.properties:
                self.fix_all([op.value])
        elif isinstance(op, (xegpu.LoadGatherOp, xegpu.StoreScatterOp, xegpu.AtomicRMWOp)):
            # Elements that one lane has in a row, and transposed ones, stay as they are.
            if "transpose" in op.properties or "chunk_size" in op.properties:
                self.fix_all(values)
            self.tie_all(values)
        else:
            self.fix_all(values)

    def rearranged(self, op: Operation) -> None:
        """Dimensions along which elements keep their number are one; those that are mixed up with others stay whole."""
        source, result = op.operands[0], op.results[0]
        if shape_of(source) is None:
            return
        kept, mixed = kept_dimensions(op)
        for before, after in kept.items():
            self.tied.union_left((source, before), (result, after))
        for value, dims in zip((source, result), mixed, strict=True):
            for dim in dims:
                self.fixed.add((value, dim))


def smallest_factor(number: int) -> int:
    """The least divisor above 1 of a number above 1."""
    return next(f for f in range(2, number + 1) if number % f == 0)


def extents_of(members: Sequence[Axis]) -> set[int]:
    """The extents along an axis: one, but for the rows that a reduction adds up in runs."""
    return {(shape_of(v) or ())[d] for v, d in members}
