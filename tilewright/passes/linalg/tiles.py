"""The tile program of a structured op: its loads, the bodies of all ops that it computes, its loops.

A value is a vector [rows or 1, columns or 1]: what does not change along rows or columns has one of them. Which loops
the rows and columns are is a matter of place: inside of a product's loop over k, the columns of its first factor are
steps of k. What is computed is looked up by op and access first, so that a row's maximum that several ops read is
computed once, in front of the loop over columns that does not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    IndexType,
    IntegerAttr,
    MemRefType,
    VectorType,
)
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineExpr

from tilewright.diagnostics import unsupported
from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before, with_shape
from tilewright.passes.linalg.accesses import (
    Host,
    Linear,
    ProgramLoop,
    Size,
    StridedView,
    Sum,
    extents,
    linear,
)
from tilewright.passes.linalg.blocks import gather, is_strided, load
from tilewright.passes.linalg.bodies import Combined
from tilewright.passes.linalg.elements import BodyOnTiles, Bound
from tilewright.passes.linalg.fusion import Node, OperandSource
from tilewright.passes.linalg.loops import dims_of, fastest, is_multiplied, reduced

Given = StridedView | Size | SSAValue
"""What a kernel is given: a matrix, a number that the host computes, a scalar of the host."""


_AFFINE: Mapping[AffineBinaryOpKind, type[Operation]] = {
    AffineBinaryOpKind.Add: arith.AddiOp,
    AffineBinaryOpKind.Mul: arith.MuliOp,
    AffineBinaryOpKind.FloorDiv: arith.FloorDivSIOp,
    AffineBinaryOpKind.CeilDiv: arith.CeilDivSIOp,
}


class TileWriter:
    """Writes the body of a kernel, in front of the terminator of its block."""

    def __init__(self, end: Operation, sizes: Sequence[int], step: int) -> None:
        self.at = Before(end)
        self.entry = end.parent_block()
        first = arith.ConstantOp(IntegerAttr(0, IndexType()))
        self.at.insert(first)
        self._first = Host(Before(first))
        self.sizes = sizes
        """Rows and columns of a tile."""
        self.step = step
        """Elements of a product's k at a time."""
        self.given: dict[Given, BlockArgument] = {}
        self.axes: tuple[ProgramLoop | None, ProgramLoop | None] = (None, None)
        self.extents: tuple[int, int] = (1, 1)
        """Of tiles, here."""
        self.offsets: dict[ProgramLoop, Index] = {}
        self._known: list[dict[Any, Any]] = [{}]

    # What a kernel is given.

    def argument(self, given: Given, type: Attribute) -> BlockArgument:
        assert self.entry is not None
        if given not in self.given:
            self.given[given] = self.entry.insert_arg(type, len(self.entry.args))
        return self.given[given]

    def size(self, size: Size) -> Index:
        return size if isinstance(size, int) else self.argument(size, IndexType())

    def own(self, size: Size) -> Index:
        """A number that a matrix of the kernel has."""
        return size if isinstance(size, int) else self._first.size(size)

    def settle(self) -> None:
        """Numbers that are extents of matrices are asked of these, where a launch promises more of them."""
        assert self.entry is not None
        for size in [given for given in self.given if isinstance(given, Sum)]:
            of = [v for v in self.given if isinstance(v, StridedView) and size in v.sizes]
            if of:
                here = extents(self.given[of[0]])[of[0].sizes.index(size)]
                number = self.given.pop(size)
                number.replace_all_uses_with(self._first.size(here))
                self.entry.erase_arg(number)

    # Places.

    @contextmanager
    def within(
        self, rows: ProgramLoop | None, columns: ProgramLoop | None, sizes: tuple[int, int]
    ) -> Generator[None]:
        """Tiles of other rows and columns."""
        before = self.axes, self.extents
        self.axes, self.extents = (rows, columns), sizes
        yield
        self.axes, self.extents = before

    def loop(
        self,
        loop: ProgramLoop,
        step: int,
        carried: Sequence[SSAValue],
        body: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
    ) -> Sequence[SSAValue]:
        """`body` for each `step` of a loop, from what is carried to what is; one trip is no loop."""
        if isinstance(loop.extent, int) and loop.extent <= step:
            self.offsets[loop] = 0
            return body(carried)

        def inside(counters: Sequence[SSAValue], more: Sequence[SSAValue]) -> Sequence[SSAValue]:
            (self.offsets[loop],) = counters
            self._known.append({})
            found = body(more)
            self._known.pop()
            return found

        return self.at.nest([(0, self.size(loop.extent), step)], inside, carried)

    def loops(
        self,
        loops: Sequence[ProgramLoop],
        carried: Sequence[SSAValue],
        body: Callable[[Sequence[SSAValue]], Sequence[SSAValue]],
    ) -> Sequence[SSAValue]:
        """A nest of loops, one element at a time."""
        if not loops:
            return body(carried)
        return self.loop(loops[0], 1, carried, lambda inner: self.loops(loops[1:], inner, body))

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made before, here or around; else it is made here."""
        for known in self._known:
            if key in known:
                return known[key]
        made = make()
        self._known[-1][key] = made
        return made

    def shape(self, *indices: Linear) -> tuple[int, int]:
        """The shape of what changes with some functions of loops."""
        used = {loop for index in indices for loop, _ in index.terms}
        rows, columns = (
            n if a in used else 1 for a, n in zip(self.axes, self.extents, strict=True)
        )
        return rows, columns

    # Values.

    def read(self, source: OperandSource, indices: Sequence[Linear]) -> SSAValue:
        """A tile of what an operand reads, at functions of loops."""
        node = source.producer
        if node is not None and not node.kept:
            bound: list[Linear | None] = [None] * node.maps[0].num_dims
            for expr, index in zip(
                node.maps[node.inputs + source.result].results, indices, strict=True
            ):
                bound[expr.position] = index  # pyright: ignore[reportAttributeAccessIssue]
            return self.results(node, tuple(bound))[source.result]
        if not hasattr(source.memory.type, "get_shape"):
            owner = source.memory.owner
            if isinstance(owner, arith.ConstantOp):
                return self.once(source.memory, lambda: self.at.add(owner.clone()))
            return self.argument(source.memory, source.memory.type)
        return self.once(
            (source.memory, tuple(indices)), lambda: load(self, source.memory, indices)
        )

    def results(self, node: Node, bound: Bound) -> Sequence[SSAValue]:
        """Tiles of an op's results."""
        used = {loop for index in bound if index is not None for loop, _ in index.terms}
        axes = tuple(loop if loop in used else None for loop in self.axes)
        return self.once((node, bound, axes), lambda: self._computed(node, bound))

    def _computed(self, node: Node, bound: Bound) -> Sequence[SSAValue]:
        if not node.reductions:
            values = [self.operand(node, n, bound) for n in range(len(node.sources))]
            return BodyOnTiles(self, node, bound, values).of(*node.body.yielded)
        if (factors := self._product(node, bound)) is not None:
            return [self._multiplied(node, bound, *factors)]
        return self._reduced(node, bound)

    def operand(self, node: Node, n: int, bound: Bound) -> SSAValue | None:
        """The elements that an op reads of its operand n; None where it reads none."""
        if node.body.arguments[n].first_use is None:
            return None
        source, exprs = node.sources[n], node.maps[n].results
        if source.producer is None or source.producer.kept:
            found = [linear(expr, bound) for expr in exprs]
            if isinstance(source.memory.type, MemRefType) and not is_strided(source.memory, found):
                return gather(self, source.memory, [self.value(expr, bound) for expr in exprs])
        return self.read(source, self.indices(node, n, bound))

    def value(self, expr: AffineExpr, bound: Bound) -> SSAValue:
        """The value of an affine function, linear or not, along rows and columns."""
        known = linear(expr, bound)
        if known is not None:
            return self.position(known)
        assert isinstance(expr, AffineBinaryOpExpr)
        sides = [self.value(expr.lhs, bound), self.value(expr.rhs, bound)]
        index = IndexType()
        match expr.kind:
            case AffineBinaryOpKind.Mod:
                whole = self.combined(arith.FloorDivSIOp, sides, index)
                whole = self.combined(arith.MuliOp, [whole, sides[1]], index)
                return self.combined(arith.SubiOp, [sides[0], whole], index)
            case kind:
                return self.combined(_AFFINE[kind], sides, index)

    def indices(self, node: Node, n: int, bound: Bound) -> list[Linear]:
        found = [linear(expr, bound) for expr in node.maps[n].results]
        for each in found:
            if each is None:
                raise unsupported(
                    node.op,
                    f"operand {n} is accessed by {node.maps[n]}, which is not linear in the loops",
                    hint="tile programs have no div and mod in an access: compute the operand apart",
                )
        return [each for each in found if each is not None]

    # Products.

    def _product(self, node: Node, bound: Bound) -> tuple[SSAValue, SSAValue, int] | None:
        """The factors with rows and with columns, and the reduction that is k; None where no unit multiplies so."""
        if node.body.factors is None or not is_multiplied(node):
            return None
        sides = [dims_of(node, value) for value in node.body.factors]
        both = [d for d in node.reductions if d in sides[0] and d in sides[1]]
        at = [self._axes_of(side, bound) for side in sides]
        if not both or at not in ([{0}, {1}], [{1}, {0}]):
            return None
        first, second = node.body.factors
        k = fastest(node, both)
        return (first, second, k) if at[0] == {0} else (second, first, k)

    def _axes_of(self, dims: set[int], bound: Bound) -> set[int]:
        loops = {loop for d in dims if (index := bound[d]) is not None for loop, _ in index.terms}
        return {a for a, axis in enumerate(self.axes) if axis in loops}

    def _own_loops(self, node: Node, bound: Bound) -> tuple[dict[int, ProgramLoop], Bound]:
        """Loops of a program for the node's reductions, and what binds its dimensions with these."""
        own = {d: ProgramLoop(extent) for d, extent in reduced(node).items()}
        return own, tuple(
            Linear(((own[d], 1),)) if d in own else index for d, index in enumerate(bound)
        )

    def _multiplied(
        self, node: Node, bound: Bound, left: SSAValue, right: SSAValue, k: int
    ) -> SSAValue:
        (rows, columns), (height, width) = self.axes, self.extents
        own, bound = self._own_loops(node, bound)
        result = node.op.outputs[0].type.get_element_type()  # pyright: ignore
        small = isinstance(result, Float16Type | BFloat16Type)
        kind = VectorType(Float32Type() if small else result, [height, width])
        before = self.operand(node, node.inputs, bound)
        assert before is not None
        start = self.splat(before, (height, width))
        if small:
            start = self.at.add(arith.ExtFOp(start, kind))

        def multiply(carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
            with self.within(rows, own[k], (height, self.step)):
                a = self._factor(node, bound, left, own[k], 1)
            with self.within(own[k], columns, (self.step, width)):
                b = self._factor(node, bound, right, own[k], 0)
            return [self.at.add(xetile.TileMmaOp(a, b, carried[0]))]

        outer = [own[d] for d in node.reductions if d != k]
        (total,) = self.loops(outer, [start], lambda c: self.loop(own[k], self.step, c, multiply))
        return (
            self.at.add(arith.TruncFOp(total, VectorType(result, [height, width])))
            if small
            else total
        )

    def _factor(
        self, node: Node, bound: Bound, value: SSAValue, k: ProgramLoop, axis: int
    ) -> SSAValue:
        """A tile of a factor: beyond the end of k it is 0."""
        used = node.body.inputs_of(value, node.body.arguments)
        values = [
            self.operand(node, n, bound) if a in used else None
            for n, a in enumerate(node.body.arguments)
        ]
        (made,) = BodyOnTiles(self, node, bound, values).of(value)
        made = self.splat(made, self.extents)
        loaded = isinstance(made.owner, xetile.LoadTileOp | xetile.LoadGatherOp)
        return made if loaded else self.masked(made, k, axis, 0)

    def masked(
        self, value: SSAValue, loop: ProgramLoop, axis: int, otherwise: int | float
    ) -> SSAValue:
        """A tile whose elements beyond the end of a loop along an axis are a number."""
        size = self.extents[axis]
        if isinstance(loop.extent, int) and loop.extent % size == 0:
            return value
        at, shape = self.at, shape_of(value)
        along = [n if d == axis else 1 for d, n in enumerate(shape)]
        place = at.coordinates(self.offsets[loop], along, axis)
        end = at.broadcast(at.index(self.size(loop.extent)), along)
        inside = self.splat(at.add(arith.CmpiOp(place, end, "slt")), shape)
        assert isinstance(value.type, VectorType)
        return at.add(arith.SelectOp(inside, value, at.constant(value.type, otherwise)))

    def inside(self, value: SSAValue, otherwise: int) -> SSAValue:
        """A tile whose elements beyond the ends of its rows and columns are a number."""
        for axis, loop in enumerate(self.axes):
            if (
                loop is not None
                and isinstance(value.type, VectorType)
                and shape_of(value)[axis] > 1
            ):
                value = self.masked(value, loop, axis, otherwise)
        return value

    # Other reductions.

    def _reduced(self, node: Node, bound: Bound) -> Sequence[SSAValue]:
        """Along an axis of tiles that the result does not have, in blocks, or element after element."""
        parallel = set(range(len(bound))) - set(node.reductions)
        taken = self._axes_of(parallel, bound)
        free = [a for a in (1, 0) if a not in taken]
        own, bound = self._own_loops(node, bound)
        last = len(node.sources)
        before = [self.operand(node, n, bound) for n in range(node.inputs, last)]
        if node.body.combined is None or not free:
            shape = tuple(n if a in taken else 1 for a, n in enumerate(self.extents))
            start = [self.splat(v, shape) for v in before if v is not None]

            def step(carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
                values = [self.operand(node, n, bound) for n in range(node.inputs)]
                found = BodyOnTiles(self, node, bound, [*values, *carried]).of(*node.body.yielded)
                return [self.splat(v, shape) for v in found]

            if len(start) != len(before):
                raise unsupported(
                    node.op,
                    "a result of a reduction does not depend on what was there",
                    hint="only the last iteration counts: write the op without the reduction",
                )
            return self.loops([own[d] for d in node.reductions], start, step)
        axis = free[0]
        inner = fastest(node, node.reductions)
        others = [own[d] for d in node.reductions if d != inner]
        return self._folded(
            node, bound, axis, own[inner], others, [v for v in before if v is not None]
        )

    def _folded(
        self,
        node: Node,
        bound: Bound,
        axis: int,
        inner: ProgramLoop,
        others: Sequence[ProgramLoop],
        before: Sequence[SSAValue],
    ) -> Sequence[SSAValue]:
        """A reduction along an axis: blocks are combined element by element, and their elements at last."""
        assert node.body.combined is not None
        axes = [inner if a == axis else loop for a, loop in enumerate(self.axes)]
        parts = node.body.combined
        with self.within(axes[0], axes[1], (self.extents[0], self.extents[1])):
            taken = self._axes_of(set(range(len(bound))), bound)
            shape = tuple(n if a in taken else 1 for a, n in enumerate(self.extents))
            size = self.extents[axis]
            once = isinstance(inner.extent, int) and inner.extent <= size and not others
            start = [] if once else [self._neutral(part, shape) for part in parts]

            def block(carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
                values = [self.operand(node, n, bound) for n in range(node.inputs)]
                values += [None] * len(before)
                found = BodyOnTiles(self, node, bound, values).of(*(part.value for part in parts))
                found = [
                    self._inside(part, self.splat(v, shape), inner, axis)
                    for part, v in zip(parts, found, strict=True)
                ]
                pairs = zip(parts, carried, found, strict=True) if carried else ()
                return [self.elementwise(part.op, [c, v])[0] for part, c, v in pairs] or found

            sums = self.loops(others, start, lambda c: self.loop(inner, size, c, block))
            folded = [
                self.at.add(xetile.ReductionOp(p.kind, s, [axis]))
                for p, s in zip(parts, sums, strict=True)
            ]
        return [
            self.elementwise(p.op, [b, f])[0] for p, b, f in zip(parts, before, folded, strict=True)
        ]

    def _neutral(self, part: Combined, shape: Sequence[int]) -> SSAValue:
        kind = part.value.type
        return self.at.constant(VectorType(kind, list(shape)), part.nothing)

    def _inside(self, part: Combined, value: SSAValue, loop: ProgramLoop, axis: int) -> SSAValue:
        return self.masked(value, loop, axis, part.nothing)

    # Elements.

    def splat(self, value: SSAValue, shape: Sequence[int]) -> SSAValue:
        """A scalar or a vector of a row, a column or one element, repeated to a shape."""
        if shape_of(value) == tuple(shape):
            return value
        if not isinstance(value.type, VectorType):
            return self.at.broadcast(value, shape)
        for d, (n, wanted) in enumerate(zip(shape_of(value), shape, strict=True)):
            if n != wanted:
                whole = [wanted if e == d else m for e, m in enumerate(shape_of(value))]
                value = self.at.add(xetile.BroadcastOp(value, with_shape(value.type, whole), [d]))
        return value

    def elementwise(self, op: Operation, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """The results of a scalar op on tiles."""
        kinds, given = op.result_types, (op.properties, op.attributes)
        return self._on_tiles(type(op), operands, kinds, *given)

    def combined(
        self, op: type[Operation], operands: Sequence[SSAValue], kind: Attribute
    ) -> SSAValue:
        """A kind of scalar op on tiles, with one result of a type or of vectors of it."""
        return self._on_tiles(op, operands, [kind], {}, {})[0]

    def _on_tiles(
        self,
        op: type[Operation],
        operands: Sequence[SSAValue],
        kinds: Sequence[Attribute],
        properties: Mapping[str, Attribute],
        attributes: Mapping[str, Attribute],
    ) -> Sequence[SSAValue]:
        shapes = [shape_of(v) for v in operands if isinstance(v.type, VectorType)]
        if shapes:
            shape = [max(ns) for ns in zip(*shapes, strict=True)]
            operands = [self.splat(v, shape) for v in operands]
            kinds = [VectorType(kind, shape) for kind in kinds]
        made = op.create(
            operands=list(operands),
            result_types=list(kinds),
            properties=dict(properties),
            attributes=dict(attributes),
        )
        self.at.insert(made)
        return made.results

    def position(self, index: Linear) -> SSAValue:
        """The value of a function of loops, along rows and columns."""
        at, total = self.at, None
        for loop, factor in index.terms:
            axis = self.axes.index(loop) if loop in self.axes else -1
            shape = [n if a == axis else 1 for a, n in enumerate(self.extents)]
            part = at.coordinates(self.offsets[loop], shape, axis)
            if factor != 1:
                part = at.add(arith.MuliOp(part, at.broadcast(at.index(factor), shape)))
            if total is not None:
                both = [max(ns) for ns in zip(shape_of(total), shape, strict=True)]
                part = at.add_index(self.splat(total, both), self.splat(part, both))
            total = part
        if total is None:
            return at.index(index.constant)
        if index.constant:
            total = at.add_index(total, at.broadcast(at.index(index.constant), shape_of(total)))
        return total
