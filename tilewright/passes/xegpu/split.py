"""Programs whose vectors are split into fragments: what the distribution over subgroups and blocking share.

A *cut* says which fragments a value falls into: a `Distribution` (those of one subgroup), or the shape of an
instruction's fragment. An op that does the same to every element is done fragment by fragment (`fragmentwise`); where
fragments of memory begin is added to the offsets of the op that moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from operator import sub
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IndexType, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import numbered, shape_of, vector_type
from tilewright.dialects.numerals import dense, number_attr
from tilewright.dialects.upstream.vector import (
    InsertStridedSliceOp,
    ShapeCastOp,
    StepOp,
    TransposeOp,
)
from tilewright.dialects.xetile.assembly import Index, split_indices
from tilewright.passes.emit import with_shape
from tilewright.passes.memory_objects import is_pure
from tilewright.passes.new_body import NewBody, without_layouts
from tilewright.rules import Rules

Cut = TypeVar("Cut")
Shape = tuple[int, ...]
Box = tuple[Shape, Shape]

rule: Rules[Callable[[Split[Any], Any], None]] = Rules()
"""Rules of both passes."""


class Split(NewBody, Generic[Cut]):
    """A program under construction whose vectors are fragments. `env` has what is one value."""

    def cut_of(self, value: SSAValue) -> Cut:
        """The fragments in which a vector of the old program is held."""
        raise NotImplementedError

    def fragments(self, value: SSAValue, cut: Cut, what: str = "an operand") -> list[SSAValue]:
        """A vector's fragments, cut so; `what` names it where it cannot be."""
        raise NotImplementedError

    def give(self, value: SSAValue, cut: Cut, fragments: Sequence[SSAValue]) -> None:
        """A vector of the old program is these fragments."""
        raise NotImplementedError

    def typed(self, value: SSAValue, cut: Cut) -> VectorType:
        """The type of one fragment of a vector."""
        raise NotImplementedError

    def starts(self, cut: Cut, shape: Sequence[int]) -> Sequence[Sequence[Index]]:
        """Where each fragment of a vector of a shape begins."""
        raise NotImplementedError

    def boxes(self, cut: Cut, shape: Sequence[int]) -> Sequence[Box]:
        """The fragments of the first of those who own a vector: where each begins, and its extents."""
        raise NotImplementedError

    def source(self, op: Operation, cut: Cut) -> Callable[[Shape, Shape], SSAValue]:
        """What gives boxes of the operand of an op that only rearranges, whose result is cut so."""
        raise NotImplementedError

    def mark(self, new: Operation, cut: Cut) -> Operation:
        """Writes what the text says of a fragment's lanes on an op that makes or takes it."""
        return new

    def moving(self, new: Operation, cut: Cut) -> Operation:
        """The same on one that only rearranges, where its result's lanes do not follow from its operand's."""
        return new

    def first_owner(self, cut: Cut, shape: Sequence[int]) -> SSAValue | None:
        """A condition that holds for one of those that have the same fragments; None where none share."""
        return None

    def scatter_cuts(self, op: xegpu.ScatterAccess) -> tuple[Cut, Cut]:
        """How the value of a scattered access is cut, and how its offsets and mask."""
        raise NotImplementedError

    def stored_cut(self, op: xegpu.StoreNdOp | xegpu.StoreMatrixOp) -> Cut:
        """How a value is cut that a store takes."""
        return self.cut_of(op.value)

    def alone(self, op: Operation) -> None:
        """An op on scalars with an effect, which is done once."""
        self.keep(op)

    def parts(self, value: SSAValue, place: SSAValue) -> list[SSAValue]:
        if not isinstance(value.type, VectorType):
            return super().parts(value, place)
        return self.fragments(value, self.cut_of(place), "a carried value")

    def hold(self, place: SSAValue, parts: Sequence[SSAValue]) -> None:
        if isinstance(place.type, VectorType):
            self.give(place, self.cut_of(place), parts)
        else:
            super().hold(place, parts)

    def offset(self, value: Index) -> Index:
        """An offset of the old program in the new one."""
        return self.same(value) if isinstance(value, SSAValue) else value

    def places(
        self, offsets: Sequence[Index], cut: Cut, shape: Sequence[int]
    ) -> Iterable[list[Index]]:
        """Offsets of every fragment: the op's, and where the fragment begins in the last dimensions."""
        base = [self.offset(o) for o in offsets]
        return (self.shifted(base, start) for start in self.starts(cut, shape))

    def assembled(
        self,
        start: Sequence[int],
        size: Sequence[int],
        parts: Sequence[tuple[Sequence[int], SSAValue]],
    ) -> SSAValue:
        """A box of a value, put together from those of its parts that it meets: where each begins, its vector."""
        met: list[tuple[SSAValue, Sequence[int], tuple[int, ...], tuple[int, ...]]] = []
        for begin, part in parts:
            ends = zip(begin, shape_of(part), start, size, strict=True)
            low = tuple(map(max, begin, start))
            high = tuple(min(b + n, s + m) for b, n, s, m in ends)
            if all(a < b for a, b in zip(low, high, strict=True)):
                met.append((part, begin, low, high))
        if sum(prod(map(sub, high, low)) for _, _, low, high in met) != prod(size):
            raise self.refuse("takes elements that others own")
        kind = with_shape(met[0][0].type, size)
        total = None if len(met) == 1 else self.constant(number_attr(kind, 0))
        for part, begin, low, high in met:
            inside = [a - b for a, b in zip(low, begin, strict=True)]
            box = self.slice(part, inside, [b - a for a, b in zip(low, high, strict=True)])
            if total is None:
                return box
            place = [a - b for a, b in zip(low, start, strict=True)]
            total = self.add(InsertStridedSliceOp(box, total, place))
        assert total is not None
        return total


def fragmentwise(
    d: Split[Cut], op: Operation, cuts: Sequence[Cut | None], cut: Cut
) -> list[list[SSAValue]]:
    """An op fragment by fragment, its operands cut as `cuts` say (None: one value), its results as `cut`: their
    fragments.
    """
    columns = [
        [d.same(v)] if c is None else d.fragments(v, c, f"operand {n}")
        for n, (v, c) in enumerate(zip(op.operands, cuts, strict=True))
    ]
    count = max(len(column) for column in columns)
    pure = is_pure(op)
    made: dict[tuple[SSAValue, ...], Operation] = {}
    results: list[list[SSAValue]] = [[] for _ in op.results]
    for n in range(count):
        row = tuple(column[n] if len(column) > 1 else column[0] for column in columns)
        new = made.get(row) if pure else None
        if new is None:
            new = type(op).create(
                operands=row,
                result_types=[d.typed(r, cut) for r in op.results],
                properties={k: v for k, v in op.properties.items() if k != "layout"},
                attributes=without_layouts(op),
            )
            made[row] = d.put(d.mark(new, cut))
        for result, value in zip(results, new.results, strict=True):
            result.append(value)
    return results


def rearranged(d: Split[Cut], op: Operation, cut: Cut) -> None:
    """A fragment of the result is made of a box of the only operand, by the op itself where it turns or repeats it."""
    (source,), (result,) = op.operands, op.results
    numbers, shape = numbered(op)[0], shape_of(source)
    box_of = d.source(op, cut)
    made: list[SSAValue] = []
    for start, size in d.boxes(cut, shape_of(result)):
        mine = numbers[tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))]
        places = np.unravel_index(mine, shape)
        low = tuple(int(p.min()) for p in places)
        extents = tuple(int(p.max()) + 1 - n for p, n in zip(places, low, strict=True))
        if isinstance(op, ShapeCastOp) and not _is_box(mine, shape, low, extents):
            raise d.refuse("distributes the elements of a fragment to several fragments")
        value = box_of(low, extents)
        kind = with_shape(value.type, size)
        if isinstance(op, TransposeOp):
            value = d.add(d.moving(TransposeOp(value, op.permutation), cut))
        elif extents != size:
            again = vector.BroadcastOp if isinstance(op, vector.BroadcastOp) else ShapeCastOp
            value = d.once((again, value, kind), d.moving(again(value, kind), cut))
        made.append(value)
    d.give(result, cut, made)


def _is_box(numbers: NDArray[Any], shape: Shape, low: Shape, extents: Shape) -> bool:
    """Are the elements those of a box, in row-major order?"""
    inside = np.indices(extents).reshape(len(shape), -1) + np.array(low).reshape(-1, 1)
    return np.array_equal(numbers.reshape(-1), np.ravel_multi_index(tuple(inside), shape))


def local(d: Split[Cut], op: Operation, *cuts: Cut | None) -> None:
    """A pure op fragment by fragment, its operands cut as `cuts` say, its results alike."""
    cut = d.cut_of(op.results[0])
    for result, fragments in zip(op.results, fragmentwise(d, op, cuts, cut), strict=True):
        d.give(result, cut, fragments)


@rule("elementwise")
def elementwise(d: Split[Any], op: Operation) -> None:
    cut = d.cut_of(op.results[0])
    local(d, op, *(cut if isinstance(v.type, VectorType) else None for v in op.operands))


@rule("vector.step")
def step(d: Split[Any], op: StepOp) -> None:
    """Each fragment counts from its own start."""
    (result,) = op.results
    cut = d.cut_of(result)
    kind = d.typed(result, cut)
    base = d.once(("step", kind), d.mark(StepOp(kind), cut))
    made: list[SSAValue] = []
    for (start,) in d.starts(cut, shape_of(result)):
        made.append(raised(d, base, start, cut))
    d.give(result, cut, made)


def raised(d: Split[Cut], base: SSAValue, by: Index, cut: Cut) -> SSAValue:
    """A fragment whose integers are greater by a number than those of `base`."""
    kind = vector_type(base)
    if by == 0:
        return base
    if isinstance(by, int):
        wide = d.constant(dense(kind, [by]))
    else:
        is_index = isinstance(kind.element_type, IndexType)
        number = by if is_index else d.add(arith.IndexCastOp(by, kind.element_type))
        wide = d.add(d.mark(vector.BroadcastOp(number, kind), cut))
    return d.add(d.mark(arith.AddiOp(base, wide), cut))


WRITES = (xegpu.StoreScatterOp, xegpu.AtomicRMWOp)


def vector_of_offsets(
    d: NewBody, op: xegpu.ScatterAccess, alone: Callable[[Operation], None]
) -> SSAValue | None:
    """The offsets of a scattered access; None for one on scalars, which is built: `alone` where it writes."""
    offsets = op.offsets_operand
    if op.tdesc is not None or offsets is None:
        raise d.refuse("a scattered descriptor of the older text", "run xegpu-upgrade first")
    if isinstance(offsets.type, VectorType):
        if "transpose" in op.properties and op.chunk > 1:
            raise d.refuse("transpose on a gather", "run xegpu-upgrade first")
        return offsets
    if isinstance(op, WRITES):
        alone(op)
    else:
        d.keep(op)
    return None


@rule("xegpu.load", "xegpu.store", "xegpu.atomic_rmw", "xegpu.prefetch")
def scattered(
    d: Split[Any],
    op: xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp | xegpu.PrefetchOp,
) -> None:
    """Fragments of the offsets with those of the mask and the value; what several own is written by one of them."""
    offsets = vector_of_offsets(d, op, d.alone)
    if offsets is None:
        return
    cut, lanes = d.scatter_cuts(op)
    shared = (offsets, getattr(op, "mask", None))
    cuts = [
        None if not isinstance(v.type, VectorType) else lanes if v in shared else cut
        for v in op.operands
    ]

    def access() -> list[SSAValue]:
        found = fragmentwise(d, op, cuts, cut)
        return found[0] if found else []

    owner = d.first_owner(cut, shape_of(op.value)) if isinstance(op, WRITES) else None
    if not op.results or (owner is not None and op.results[0].first_use is None):
        with d.when(owner):
            access()
        return
    (result,) = op.results

    def nothing() -> list[SSAValue]:
        return [d.constant(number_attr(d.typed(result, cut), 0))] * len(
            d.starts(cut, shape_of(result))
        )

    # Old values are right for the one that did it; it hands them on through shared memory.
    d.give(result, cut, access() if owner is None else d.choose(owner, access, nothing))


def moved(
    d: Split[Cut],
    op: xegpu.BlockAccess | xegpu.MatrixAccess,
    base: SSAValue,
    cut: Cut,
    shape: Sequence[int],
    values: Sequence[SSAValue] = (),
) -> list[Operation]:
    """A memory op for each fragment of a shape: `base` is the descriptor or matrix, `values` the fragments to store."""
    found: list[Operation] = []
    for n, place in enumerate(d.places(op.mixed_offsets or [], cut, shape)):
        static, dynamic = split_indices(place)
        new = type(op).create(
            operands=[*values[n : n + 1], base, *dynamic],
            result_types=[d.typed(r, cut) for r in op.results],
            properties={k: v for k, v in op.properties.items() if k != "layout"}
            | {"const_offsets": static},
        )
        found.append(d.put(d.mark(new, cut)))
    return found


@rule("xegpu.load_matrix")
def load_matrix(d: Split[Any], op: xegpu.LoadMatrixOp) -> None:
    if not isinstance(op.value.type, VectorType):
        d.keep(op)
        return
    cut = d.cut_of(op.value)
    made = moved(d, op, d.same(op.mem_desc), cut, shape_of(op.value))
    d.give(op.value, cut, [new.results[0] for new in made])


@rule("xegpu.store_matrix")
def store_matrix(d: Split[Any], op: xegpu.StoreMatrixOp) -> None:
    if not isinstance(op.value.type, VectorType):
        d.alone(op)
        return
    cut, shape = d.stored_cut(op), shape_of(op.value)
    fragments = d.fragments(op.value, cut, "the stored value")
    with d.when(d.first_owner(cut, shape)):
        moved(d, op, d.same(op.mem_desc), cut, shape, fragments)
