"""Small vector idioms that passes write in front of an op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from xdsl.dialects import arith, scf, vector
from xdsl.dialects.builtin import IndexType, IntegerType, VectorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.diagnostics import TilewrightError, unsupported
from tilewright.dialects.folding import Folding, Kind, Made, below
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import terminator
from tilewright.dialects.numerals import number_attr
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.vector import ShapeCastOp, StepOp, TransposeOp
from tilewright.dialects.xetile.assembly import Index


def with_shape(type: Attribute, shape: Sequence[int]) -> VectorType:
    return VectorType(element_of(type), list(shape))


def place(kind: VectorType, n: int) -> list[int]:
    """The indices of a vector's component, counted row by row."""
    return [int(i) for i in np.unravel_index(n, kind.get_shape())]


class Inserter:
    """Inserts ops before an op, at its place in the source; while a side of a branch is made, before its end."""

    op: Operation

    def insert(self, new: Operation) -> Operation:
        new.location = self.op.location
        Rewriter.insert_op(new, InsertPoint.before(self.op))
        return new

    def add(self, new: Operation) -> SSAValue:
        """Inserts an op with one result; gives the result."""
        return self.insert(new).results[0]

    def refuse(self, why: str, hint: str | None = None) -> TilewrightError:
        """An error at the op: `<op>: <why>`."""
        return unsupported(self.op, f"{self.op.name}: {why}", hint=hint)

    def component(self, value: SSAValue, n: int) -> SSAValue:
        """One component of a vector, counted row by row, or the scalar itself."""
        kind = value.type
        if not isinstance(kind, VectorType):
            return value
        return self.add(vector.ExtractOp(value, place(kind, n), kind.element_type))

    def of_one_lane(self, value: SSAValue) -> SSAValue:
        """A lane's own number: that of a vector of one element, or the scalar itself."""
        kind = value.type
        if not isinstance(kind, VectorType):
            return value
        if kind.element_count() != 1:
            raise self.refuse(f"a lane has one address, not {kind}")
        return self.add(vector.ExtractOp(value, [0] * kind.get_num_dims(), kind.element_type))

    def choose(
        self, condition: SSAValue, types: Sequence[Attribute], *sides: Callable[[], Made]
    ) -> Sequence[SSAValue]:
        """A branch: what the first side inserts is done where a condition holds, what the second does, elsewhere. Its
        results, of these types, which the sides give."""
        ends = [scf.YieldOp() for _ in sides]
        blocks = [Block([end]) for end in ends]
        branch = self.insert(scf.IfOp(condition, types, Region(blocks[0]), Region(blocks[1:])))
        outer = self.op
        for end, side in zip(ends, sides, strict=True):
            end.location, self.op = outer.location, end
            end.operands = side() or ()
        self.op = outer
        return branch.results


class Before(Inserter, Folding):
    """Inserts ops before an op, at its place in the source, and replaces it at last."""

    def __init__(self, op: Operation):
        self.op = op

    def replace(self, *values: SSAValue) -> None:
        """The op goes; its results are the values."""
        for old, value in zip(self.op.results, values, strict=bool(values)):
            if value.name_hint is None:
                value.name_hint = old.name_hint
            old.replace_all_uses_with(value)
        Rewriter.erase_op(self.op)

    # --- Values ------------------------------------------------------------------------------

    def index(self, value: Index) -> SSAValue:
        if isinstance(value, SSAValue):
            return value
        return self.constant(IndexType(), value)

    def combined(self, kind: Kind, x: Index, y: Index) -> Index:
        return self.add(kind(self.index(x), self.index(y)))

    def nest(
        self,
        bounds: Iterable[tuple[Index, Index, Index]],
        body: Callable[[Sequence[SSAValue], Sequence[SSAValue]], Made],
        carried: Sequence[SSAValue] = (),
    ) -> Sequence[SSAValue]:
        """Loops, each (first, end, step), one in the other: what `body(counters, carried)` inserts is done in the
        innermost, which carries on what it gives. What they carry at last."""
        outer, loops, counters = self.op, list[scf.ForOp](), list[SSAValue]()
        for low, high, step in [[self.index(n) for n in each] for each in bounds]:
            end = scf.YieldOp()
            end.location = outer.location
            block = Block([end], arg_types=[low.type, *(value.type for value in carried)])
            loops.append(scf.ForOp(low, high, step, list(carried), block))
            self.insert(loops[-1])
            counters.append(block.args[0])
            carried, self.op = block.args[1:], end
        given = body(counters, carried) or ()
        for loop in reversed(loops):
            terminator(loop.body.block).operands = given
            given = loop.results
        self.op = outer
        return given

    def also(self, mask: SSAValue | None, hit: SSAValue) -> SSAValue:
        """Where both hold; a mask that is None holds everywhere."""
        return hit if mask is None else self.add(arith.AndIOp(mask, hit))

    def compare(self, predicate: str, x: Index, y: Index) -> SSAValue:
        return self.add(arith.CmpiOp(self.index(x), self.index(y), predicate))

    def constant(self, type: Attribute, number: int | float) -> SSAValue:
        """A number of a type; of a vector's, in all elements."""
        return self.add(arith.ConstantOp(number_attr(type, number)))

    def cast(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """The value in another shape; itself where it has that shape."""
        if shape_of(value) == tuple(shape):
            return value
        return self.add(ShapeCastOp(value, with_shape(value.type, shape)))

    def transpose(self, value: SSAValue, permutation: Sequence[int] = (1, 0)) -> SSAValue:
        if list(permutation) == sorted(permutation):
            return value
        return self.add(TransposeOp(value, list(permutation)))

    def broadcast(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """A scalar, or a vector with extents 1, repeated to a shape."""
        if shape_of(value) == tuple(shape):
            return value
        return self.add(vector.BroadcastOp(value, with_shape(value.type, shape)))

    def repeated(self, value: SSAValue, dim: int, times: int) -> SSAValue:
        """Every element as so many consecutive ones: [n, ..] -> [n, 1, ..] -> [n, times, ..] -> [n * times, ..]."""
        shape = list(shape_of(value))
        apart = [*shape[: dim + 1], 1, *shape[dim + 1 :]]
        grown = [*shape[: dim + 1], times, *shape[dim + 1 :]]
        shape[dim] *= times
        return self.cast(self.broadcast(self.cast(value, apart), grown), shape)

    def spread(self, value: SSAValue, axes: Sequence[int], shape: Sequence[int]) -> SSAValue:
        """A vector whose dimensions are these of a shape, in the shape's order, repeated along the others."""
        turned = (
            self.transpose(value, [axes.index(axis) for axis in sorted(axes)]) if axes else value
        )
        wide = [n if axis in axes else 1 for axis, n in enumerate(shape)]
        return self.broadcast(self.cast(turned, wide) if axes else turned, shape)

    def iota(self, shape: Sequence[int], dim: int) -> SSAValue:
        """Indices 0, 1, .. along a dimension: extent 1 in the others."""
        extent = shape[dim]
        step = self.add(StepOp(VectorType(IndexType(), [extent])))
        return self.cast(step, [extent if d == dim else 1 for d in range(len(shape))])

    def add_index(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.add(arith.AddiOp(a, b))

    def coordinates(self, offset: Index, shape: Sequence[int], dim: int) -> SSAValue:
        """`offset + 0, 1, ..` along a dimension, repeated to a shape; along one that it lacks, `offset` alone."""
        if dim < 0:
            return self.broadcast(self.index(offset), shape)
        steps = self.broadcast(self.iota(shape, dim), shape)
        if isinstance(offset, int) and offset == 0:
            return steps
        return self.add_index(steps, self.broadcast(self.index(offset), shape))

    def where(self, predicate: str, numbers: Sequence[Index], shape: Sequence[int]) -> SSAValue:
        """Which elements of a shape have coordinates that compare so with a number in each leading dimension."""
        mask: SSAValue | None = None
        for dim, number in enumerate(numbers):
            bound = self.broadcast(self.index(number), shape)
            mask = self.also(mask, self.compare(predicate, self.coordinates(0, shape, dim), bound))
        assert mask is not None
        return mask

    def inside(
        self,
        offsets: Sequence[Index],
        extents: Sequence[Index],
        shape: Sequence[int],
        axes: Sequence[int] | None = None,
        mask: SSAValue | None = None,
    ) -> SSAValue:
        """Which elements of a box at `offsets`, of those of a mask, lie in a matrix of `extents`: a vector of i1.

        `axes`: the box's dimension of each of the matrix, -1 for none; without them the box covers the innermost ones.
        """
        for axis, offset, extent in zip(_axes(axes, offsets, shape), offsets, extents, strict=True):
            place = self.coordinates(offset, shape, axis)
            bound = self.broadcast(self.index(extent), shape)
            mask = below(self, mask, place, bound)
        assert mask is not None
        return mask

    def linear(
        self,
        offsets: Sequence[Index],
        strides: Sequence[Index],
        shape: Sequence[int],
        axes: Sequence[int] | None = None,
    ) -> SSAValue:
        """Distance in elements of each element of a box from the base of its matrix; `axes` as for `inside`."""
        total: SSAValue | None = None
        for axis, offset, stride in zip(_axes(axes, offsets, shape), offsets, strides, strict=True):
            place = self.coordinates(offset, shape, axis)
            if stride != 1:
                step = self.broadcast(self.index(stride), shape)
                place = self.add(arith.MuliOp(place, step))
            total = place if total is None else self.add_index(total, place)
        return self.coordinates(0, shape, -1) if total is None else total

    def all_true(self, shape: Sequence[int]) -> SSAValue:
        return self.constant(VectorType(IntegerType(1), list(shape)), 1)


class Behind(Before):
    """Inserts ops behind an op, one after the other, at its place in the source."""

    def __init__(self, op: Operation):
        super().__init__(op)
        self.last = op

    def insert(self, new: Operation) -> Operation:
        new.location = self.op.location
        Rewriter.insert_op(new, InsertPoint.after(self.last))
        self.last = new
        return new

    def instead(self, value: SSAValue, new: Operation) -> SSAValue:
        """Inserts an op that takes a value, whose result all others have that take it so far."""
        made = self.add(new)
        value.replace_uses_with_if(made, lambda use: use.operation is not new)
        return made


def _axes(
    axes: Sequence[int] | None, offsets: Sequence[Index], shape: Sequence[int]
) -> Sequence[int]:
    lead = len(offsets) - len(shape)
    return range(-lead, len(shape)) if axes is None else axes
