"""Values on demand: the register that holds some elements of a tile-shaped value at some position.

A tile-shaped value need not exist anywhere. `Evaluator.at(value, Place(row, col, axis, lanes))` emits the ops that give
`lanes` elements of it, from `[row, col]` on along `axis`, into the block being built: a load reads them, an elementwise
op asks for its operands at the same place, a transpose asks with the axes swapped, a broadcast asks at the row or
column that is repeated. A value that was written to a buffer is read from there. What to keep in buffers, and in which
loops to ask, is decided by the callers (fused groups, packing); the meaning of every op is decided here, once.

Within one straight-line region a value is emitted once per place (`scope` opens such a region).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from math import prod
from typing import Any

from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import IntegerType, VectorType, bf16, f32, i1, i32
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from tilewright.codegen.builder import Builder, Idx, index, lane_type, vec
from tilewright.codegen.tiles import ScatteredTile, Tile, element_of, itemsize, rows_cols
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import is_elementwise, retyped
from tilewright.frozen import frozen, record
from tilewright.passes.fold_identities import splat
from tilewright.rules import Rules
from tilewright.targets.cpu.memory import Buffer, Registers

NEAR_BYTES = 16 << 10
"""Of the nearest cache, for what is fetched ahead."""


@frozen
class Position:
    """`lanes` elements from `[row, col]` on, along `axis` (0 down a column, 1 along a row).

    `inside`: every element is known to lie inside every base matrix that is read, so no load needs a mask. `pairs`:
    first those with an even number, then the others, where the order is all the same, as in a sum: bf16 is widened so
    by one operation, where it lies. `there`: the row lies inside of them, whatever becomes of its elements.
    """

    row: Idx
    col: Idx
    axis: int = 1
    lanes: int = 1
    inside: bool = False
    pairs: bool = False
    there: bool = False

    def lane(self, b: Builder, i: int) -> Position:
        """One element of it."""
        if self.axis == 1:
            return replace(self, col=b.plus(self.col, i), lanes=1)
        return replace(self, row=b.plus(self.row, i), lanes=1)


@frozen
class Own:
    """A thread's sums for an array, and whether it has any."""

    pointer: SSAValue
    there: SSAValue


@frozen
class TurnedBlock:
    """Places that are asked for together (see `turned`): `lanes` elements from `along` on, of each of some lines."""

    lines: Sequence[Idx]
    along: Idx
    lanes: int
    inside: bool


@record
class Values:
    """What is known of the values of a function: buffers, tiles and scalars by SSA value of the kernel."""

    buffers: dict[SSAValue, Buffer] = field(default_factory=dict[SSAValue, Buffer])
    registers: dict[SSAValue, Registers] = field(default_factory=dict[SSAValue, Registers])
    """Of values that loops carry so (see `carried_registers`); asked for at places that are known now."""
    tiles: dict[SSAValue, Tile | ScatteredTile] = field(default_factory=dict)
    scalars: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    aliases: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Values that are another value by another name (region arguments, results of inlined regions)."""
    spare: SSAValue | None = None
    """64 bytes that may be read and written freely."""
    sums: Mapping[SSAValue, Own] = field(default_factory=dict[SSAValue, Own])
    """Of arrays that threads add to in memory of their own (see `private_sums`)."""
    following: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """For tiles that are loaded those that reads of them fetch."""

    def tile(self, value: SSAValue) -> Tile | ScatteredTile:
        """A tile, by whatever name."""
        return self.tiles[self.real(value)]

    def follow(self, value: SSAValue) -> None:
        """Tells a tile of the one that its reads fetch, where both are known by now."""
        tile, following = (self.tiles.get(v) for v in (value, self.following.get(value, value)))
        if tile is not following and isinstance(tile, Tile) and isinstance(following, Tile):
            self.tiles[value] = replace(tile, next=following)

    def real(self, value: SSAValue) -> SSAValue:
        while (other := self.aliases.get(value)) is not None:
            value = other
        return value


Rule = Callable[["Evaluator", Any, Position, int], SSAValue]
evaluates: Rules[Rule] = Rules()
"""How elements of an op's value are made."""


class Evaluator:
    """Emits elements of values through a builder."""

    def __init__(self, b: Builder, values: Values):
        self.b = b
        self.values = values
        self._memo: list[dict[tuple[SSAValue, Position], SSAValue]] = [{}]
        self.ends: set[Idx] = set()
        """Numbers of columns that no place that is `inside` reaches."""
        self.there: SSAValue | None = None
        """Whether a row lies inside of all matrices that its level reads and writes."""
        self.masks_share = False
        """Do several tiles have their masks at one place?"""
        self.block: TurnedBlock | None = None
        self.runs: dict[Operation, bool] = {}
        """Gathers, scatters and atomics of runs of memory in which places that are `inside` lie; are their masks asked
        there?"""
        self.repeated: dict[SSAValue, bool] = {}
        """What `same_along_row` found."""
        self.whole: set[SSAValue] = set()
        """Loads of tiles that lie inside of their arrays wherever they are asked for, in what is being emitted."""

    @contextmanager
    def scope(self) -> Generator[None]:
        """What is emitted inside is not reused outside."""
        self._memo.append({})
        try:
            yield
        finally:
            self._memo.pop()

    def forget(self) -> None:
        """Memory has changed: emit everything anew from here on."""
        self._memo[-1].clear()

    def same_along_row(self, value: SSAValue) -> bool:
        """Is every row of the value one element, repeated: a broadcast column, or what such values give together?"""
        found, waiting = self.repeated, [value]
        while waiting:
            value = waiting[-1]
            op = value.owner
            if value not in found and isinstance(op, Operation) and is_elementwise(op):
                inputs = [
                    self.values.real(v) for v in op.operands if isinstance(v.type, VectorType)
                ]
                wide = bool(inputs) and rows_cols(value.type)[1] > 1
                if wide and (unknown := [v for v in inputs if v not in found]):
                    waiting += unknown
                    continue
                found[value] = wide and all(found[v] for v in inputs)
            elif value not in found:
                broadcasts = isinstance(op, vector.BroadcastOp | xt.BroadcastOp)
                broadcasts = broadcasts and getattr(op, "broadcast_size", None) is None
                narrow = broadcasts and rows_cols(op.operands[0].type)[1] == 1  # pyright: ignore
                found[value] = narrow or isinstance(splat(value), int | float)
            waiting.pop()
        return found[value]

    def remember(self, value: SSAValue, place: Position, register: SSAValue) -> None:
        self._memo[-1][(value, place)] = register

    def at(self, value: SSAValue, place: Position) -> SSAValue:
        """The register with the elements of `value` at `place`."""
        value = self.values.real(value)
        if not isinstance(value.type, VectorType):
            return self.b.splat(self.scalar(value), place.lanes)
        rows, cols = rows_cols(value.type)
        if rows == 1 and place.row != 0 and place.axis == 1:
            place = replace(place, row=0)
        if cols == 1 and place.col != 0 and place.axis == 0:
            place = replace(place, col=0)
        if place.axis == 1 and self.same_along_row(value):
            place = replace(place, col=0, inside=False, pairs=False, there=False)
        key = (value, place)
        for memo in reversed(self._memo):
            found = memo.get(key)
            if found is not None:
                return found
        result = self._emit(value, place)
        self._memo[-1][key] = result
        return result

    def scalar(self, value: SSAValue) -> SSAValue:
        """A scalar of the kernel as it stands in the function being built."""
        value = self.values.real(value)
        found = self.values.scalars.get(value)
        if found is None:
            raise AssertionError(f"scalar {value} was not lowered before its use")
        return found

    def in_order(self, value: SSAValue, place: Position) -> SSAValue:
        """The register in the order of memory, where others stand in pairs."""
        register, lanes = self.at(value, place), place.lanes
        if not place.pairs or self.same_along_row(value):
            return register
        return self.b.shuffle(
            register, register, [i // 2 + i % 2 * (lanes // 2) for i in range(lanes)]
        )

    def in_pairs(self, value: SSAValue, place: Position) -> SSAValue | None:
        """A value in the order of pairs, put into it; None where what it is computed from stands so."""
        op, b = value.owner, self.b
        assert isinstance(op, Operation)
        kept = value in self.values.buffers or value in self.values.registers
        if not kept and is_elementwise(op) and evaluates.of(op.name) is None:
            types = [element_of(v.type) for v in (*op.operands, *op.results)]
            if not isinstance(op, arith.ExtFOp) or types != [bf16, f32]:
                return None
            source = self.at(op.input, replace(place, pairs=False))
            words = vec(i32, place.lanes // 2)
            word = b.value(vector.BitcastOp(source, words))
            low = b.value(arith.ShLIOp(word, b.constant(words, 16)))
            high = b.value(arith.AndIOp(word, b.constant(words, -1 << 16)))
            wide = vec(f32, place.lanes // 2)
            low, high = (b.value(arith.BitcastOp(each, wide)) for each in (low, high))
            return b.shuffle(low, high, range(place.lanes))
        found = self.at(value, replace(place, pairs=False))
        return b.shuffle(found, found, [*range(0, place.lanes, 2), *range(1, place.lanes, 2)])

    def _emit(self, value: SSAValue, place: Position) -> SSAValue:
        if place.pairs and (found := self.in_pairs(value, place)) is not None:
            return found
        buffer = self.values.buffers.get(value)
        if buffer is not None:
            return self.read(buffer, place)
        registers = self.values.registers.get(value)
        if registers is not None:
            part = None
            if place.axis == 1 or place.lanes == 1:
                part = registers.at(self.b, place.row, place.col, place.lanes)
            kind = element_of(value.type)
            return part or self.by_lane(place, kind, lambda p: self._emit(value, p))
        if not isinstance(value, OpResult):
            raise AssertionError(f"{value.type} has no buffer")
        op = value.op
        rule = evaluates.of(op.name)
        if rule is not None:
            return rule(self, op, place, value.index)
        if is_elementwise(op):
            self._feed(op, place)
            return self.elementwise(op, place, value.index)
        raise unsupported(op, f"{op.name} on tiles is not supported by the cpu target")

    def _feed(self, op: Operation, place: Position) -> None:
        """Emits the elementwise ops below `op`, deepest first: a long chain must not nest as many calls."""
        waiting: list[tuple[Operation, bool]] = [(op, False)]
        while waiting:
            at, fed = waiting.pop()
            if fed:
                self.at(at.results[0], place)
                continue
            if at is not op:
                waiting.append((at, True))
            for operand in at.operands:
                value = self.values.real(operand)
                if (
                    isinstance(value, OpResult)
                    and isinstance(value.type, VectorType)
                    and value not in self.values.buffers
                    and is_elementwise(value.op)
                    and evaluates.of(value.op.name) is None
                    and not any((value, place) in memo for memo in self._memo)
                ):
                    waiting.append((value.op, False))

    def read(self, buffer: Buffer, place: Position) -> SSAValue:
        """Elements of a buffer; rows are contiguous, columns are gathered."""
        b = self.b
        pointer = buffer.address(b, place.row, place.col)
        type = lane_type(buffer.element, place.lanes)
        if place.axis == 1 or place.lanes == 1 or buffer.ld == 1:
            return b.load(pointer, type)
        return self.gather(pointer, buffer.element, buffer.ld, place.lanes, None, 0)

    def gather(
        self,
        pointer: SSAValue,
        element: Attribute,
        stride: Idx,
        lanes: int,
        mask: SSAValue | None,
        padding: int | float,
    ) -> SSAValue:
        """`lanes` elements, `stride` elements apart."""
        b = self.b
        steps = b.iota(lanes)
        size = b.splat(b.idx(b.times(stride, itemsize(element))), lanes)
        offsets = b.value(arith.MuliOp(steps, size))
        if mask is None:
            mask = b.constant(VectorType(i1, [lanes]), 1)
        passthru = b.constant(VectorType(element, [lanes]), padding)  # pyright: ignore
        return b.value(mach.GatherOp(pointer, offsets, mask, passthru))

    def elementwise(self, op: Operation, place: Position, result: int) -> SSAValue:
        """The op itself on the registers of its operands."""
        operands = [
            self.at(v, place) if isinstance(v.type, VectorType) else self.scalar(v)
            for v in op.operands
        ]
        return self.clone(op, operands, place.lanes, result)

    def clone(
        self, op: Operation, operands: Sequence[SSAValue], lanes: int, result: int = 0
    ) -> SSAValue:
        types = [lane_type(element_of(r.type), lanes) for r in op.results]
        return self.b.op(retyped(op, operands, types)).results[result]

    def by_lane(
        self, place: Position, element: Attribute, one: Callable[[Position], SSAValue]
    ) -> SSAValue:
        """A register put together from single elements: right for anything, fast for nothing."""
        if place.lanes == 1:
            return one(place)
        parts = [one(place.lane(self.b, i)) for i in range(place.lanes)]
        result = self.b.constant(VectorType(element, [place.lanes]), 0)  # pyright: ignore
        for i, part in enumerate(parts):
            result = self.b.value(vector.InsertOp(part, result, [i]))
        return result

    # Bounds ---------------------------------------------------------------------------------------------------

    def lanes_inside(self, tile: Tile, place: Position) -> SSAValue | None:
        """Mask (a bool for one lane) of the elements of `place` that lie inside the base matrix; None is all."""
        b, at = self.b, (place.row, place.col)
        along, across = place.axis, 1 - place.axis
        on = b.constant(i1, 1)
        if not place.there:
            on = b.cmp("slt", at[across], tile.limit(b, across))
        if not place.there and not b.is_nonnegative(b.plus(tile.offsets[across], at[across])):
            on = b.both(on, b.cmp("sge", at[across], b.minus(0, tile.offsets[across])))
            assert on is not None
        known = b.known_bool(on)
        if known is False:
            return b.constant(lane_type(i1, place.lanes), 0)
        # What tiles that end alike share comes first; whether a row is there, all of its places share.

        def before(end: Idx) -> SSAValue | None:
            if self.masks_share:
                return b.mask_before(at[along], end, place.lanes, tile.shape[along])
            return b.mask_first(b.minus(end, at[along]), place.lanes)

        mask = before(tile.limit(b, along))
        if not b.is_nonnegative(b.plus(tile.offsets[along], at[along])):
            below = before(b.minus(0, tile.offsets[along]))
            if below is None:
                return b.constant(lane_type(i1, place.lanes), 0)
            mask = b.both(mask, b.negated(below))
        return mask if known else b.both(mask, b.splat(on, place.lanes))

    def address(self, tile: Tile, place: Position) -> SSAValue:
        """The tile's start, which loops keep, from there on what they go through, and what is known now at the end:
        places beside one another are told from one address."""
        b = self.b
        steps = [b.times(stride, itemsize(tile.element)) for stride in tile.strides]
        address, further = tile.pointer, 0
        for numbers in (tile.offsets, (place.row, place.col)):
            for number, step in zip(numbers, steps, strict=True):
                if isinstance(step, int):
                    number, known = b.apart(number)
                    further += known * step
                address = b.ptr(address, b.times(number, step))
        return b.ptr(address, further)

    def load(
        self, tile: Tile, place: Position, padding: int | float, on: SSAValue | None = None
    ) -> SSAValue:
        """Elements of a base matrix; outside of it, and where `on` says no, the padding."""
        b = self.b
        mask = b.both(None if place.inside else self.lanes_inside(tile, place), on)
        pointer = self.address(tile, place)
        type = lane_type(tile.element, place.lanes)
        stride = tile.strides[place.axis]
        if tile.next is not None and place.lanes > 1 and stride == 1:
            near = itemsize(tile.element) * prod(tile.shape) <= NEAR_BYTES
            b.prefetch(self.address(tile.next, place), locality=3 if near else 2)
        if place.lanes == 1:
            if mask is None:
                return b.load(pointer, type)
            assert self.values.spare is not None
            known = b.known_bool(mask)
            if known is False:
                return b.constant(type, padding)
            safe = b.value(arith.SelectOp(mask, pointer, self.values.spare))
            return b.value(arith.SelectOp(mask, b.load(safe, type), b.constant(type, padding)))
        if stride != 1:
            return self.gather(pointer, tile.element, stride, place.lanes, mask, padding)
        if mask is None:
            return b.load(pointer, type)
        return b.value(mach.MaskedLoadOp(pointer, mask, b.constant(type, padding)))

    def store(self, value: SSAValue, tile: Tile, place: Position, mask: SSAValue | None) -> None:
        """Store a register; elements outside the base matrix, or masked off, are dropped."""
        b = self.b
        if not place.inside:
            mask = b.both(self.lanes_inside(tile, place), mask)
        pointer = self.address(tile, place)
        stride = tile.strides[place.axis]
        if place.lanes == 1:
            if mask is None:
                b.store(value, pointer)
            else:
                with b.when(mask):
                    b.store(value, pointer)
        elif stride != 1:
            size = b.splat(b.idx(b.times(stride, itemsize(tile.element))), place.lanes)
            offsets = b.value(arith.MuliOp(b.iota(place.lanes), size))
            if mask is None:
                mask = b.constant(VectorType(i1, [place.lanes]), 1)
            b.op(mach.ScatterOp(value, pointer, offsets, mask))
        elif mask is None:
            b.store(value, pointer)
        else:
            b.op(mach.MaskedStoreOp(value, pointer, mask))

    def scattered(
        self, tile: ScatteredTile, mask: SSAValue | None, place: Position
    ) -> tuple[SSAValue, SSAValue]:
        """(byte offsets, lanes on) of the elements of a scattered tile at a place."""
        b = self.b
        offsets = self.at(tile.offsets, place)
        if isinstance(element_of(tile.offsets.type), IntegerType):
            offsets = b.value(arith.IndexCastOp(offsets, lane_type(index, place.lanes)))
        zero = b.constant(offsets.type, 0)
        limit = b.splat(b.idx(tile.count), place.lanes)
        on = b.both(
            b.value(arith.CmpiOp(offsets, zero, "sge")),
            b.value(arith.CmpiOp(offsets, limit, "slt")),
        )
        if mask is not None:
            on = b.both(on, self.at(mask, place))
        assert on is not None
        size = b.constant(offsets.type, itemsize(tile.element))
        return b.value(arith.MuliOp(offsets, size)), on
