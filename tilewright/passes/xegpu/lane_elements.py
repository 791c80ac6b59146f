"""xegpu-lane-elements: what no message or instruction does for the lanes of a subgroup, each does for its own elements.

    %v = xegpu.load_nd %t[%y, %x] : tensor_desc<8x16xf16> -> vector<8xf16>     of a matrix of 64 columns, 16 lanes
    ->
    %0 = xegpu.load %base[64 * %y + (%x + %lane)], (%y < 64 and %x + %lane < 64) : memref<4096xf16, ..> -> f16
    ..
    %v = vector.from_elements (arith.select %inside0, %0, 0), ..

A product gets its operands from the lanes that own them, by shuffles; a prefetch is left out.
Requires: today's XeGPU at lane level. Guarantees: the same results; none of the chosen ops is left. Who owns what, the
tables of `dialects.xegpu.elements` tell. Raises UnsupportedError where a descriptor is chosen by control flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    Float64Type,
    IndexType,
    IntegerType,
    MemRefType,
    Signedness,
    UnrealizedConversionCastOp,
    VectorType,
    f32,
    i1,
    i32,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xegpu
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.folding import below
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.arith import cast_to, element_bits
from tilewright.dialects.upstream.gpu import ShuffleOp
from tilewright.dialects.upstream.vector import FromElementsOp
from tilewright.dialects.upstream.views import moved
from tilewright.dialects.xegpu import elements
from tilewright.dialects.xegpu.attrs import CHUNK_SIZES
from tilewright.dialects.xegpu.elements import Numbers
from tilewright.dialects.xetile.assembly import Index
from tilewright.layout.bits import bit_runs, is_sum_of_bits
from tilewright.passes.emit import Before, element_of
from tilewright.passes.vector_elements import flattened
from tilewright.passes.xegpu.block_messages import base_matrix, base_of

BOUNDLESS = 2**62
"""The extent of a base of which only the address is known."""


def lane_elements(
    kernel: gpu.FuncOp, lanes: int, wanted: Callable[[Operation], bool] = lambda op: True
) -> None:
    """Rewrites the blocks and products of a kernel of so many lanes that are `wanted`, in place."""
    found = [op for op in kernel.walk() if isinstance(op, tuple(_RULES)) and wanted(op)]
    if not found:
        return
    lane = lane_of(kernel)
    for op in found:
        _RULES[type(op)](LaneNumbers(op, lane, lanes), op)


def lane_of(kernel: gpu.FuncOp | gpu.LaunchOp) -> SSAValue:
    """The number of a lane in its subgroup, at the start of a kernel."""
    lane = gpu.LaneIdOp()
    lane.location = kernel.location
    Rewriter.insert_op(lane, InsertPoint.at_start(kernel.body.blocks[0]))
    return lane.result


class LaneNumbers(Before):
    """Inserts ops before one that a subgroup's lanes do together."""

    def __init__(self, op: Operation, lane: SSAValue, lanes: int):
        super().__init__(op)
        self.lane, self.lanes = lane, lanes
        self.tests: dict[tuple[str, Index, Index], SSAValue] = {}

    def of_lane(self, table: Numbers) -> Index:
        """The number that each lane has in a table [lanes]."""
        if not is_sum_of_bits(table):
            listed = DenseIntOrFPElementsAttr.from_list(
                VectorType(IndexType(), [len(table)]), table.tolist()
            )
            known = self.add(arith.ConstantOp(listed))
            return self.add(vector.ExtractOp(known, (self.lane,), IndexType()))
        found: Index = int(table[0])
        for low, bits, step in bit_runs(table):
            part = self.divided(self.lane, 1 << low)
            part = self.rest(part, 1 << bits) if 1 << low + bits < self.lanes else part
            found = self.plus(self.times(part, step), found)
        return found

    def places(self, tables: Sequence[Numbers], offsets: Sequence[Index]) -> list[list[Index]]:
        """Of each component its place in each dimension: tables [components, lanes] of how far behind the offsets."""
        found: list[list[Index]] = [[] for _ in tables[0]]
        for table, offset in zip(tables, offsets, strict=True):
            known: dict[bytes, Index] = {}
            for n, row in enumerate(table):
                own = row - row[0]
                if (key := own.tobytes()) not in known:
                    known[key] = self.plus(offset, self.of_lane(own))
                found[n].append(self.plus(known[key], int(row[0])))
        return found

    def compare(self, predicate: str, x: Index, y: Index) -> SSAValue:
        if (known := self.tests.get((predicate, x, y))) is None:
            known = self.tests[predicate, x, y] = super().compare(predicate, x, y)
        return known

    def everywhere(self, mask: SSAValue | None) -> SSAValue:
        return self.constant(i1, 1) if mask is None else mask

    def gathered(self, scalars: Sequence[SSAValue]) -> SSAValue:
        return self.add(FromElementsOp(scalars, VectorType(scalars[0].type, [len(scalars)])))


# Blocks ---------------------------------------------------------------------------------------------------------------


def _addresses(
    at: LaneNumbers, op: xegpu.BlockAccess, numbers: Numbers, shape: Sequence[int]
) -> tuple[SSAValue, Index, list[Index], list[SSAValue | None]]:
    """A base, the distance of neighbours in a row of its matrix, and of each component of a fragment the offset from
    the base and whether it is inside (None: it is)."""
    made = base_of(at, op)
    base, (sizes, strides) = made.source, base_matrix(at, made)
    if isinstance(base.type, MemRefType):
        base = flattened(at, base, (sizes, strides))
    sizes, strides = sizes or [BOUNDLESS], strides or [1]
    given = op.mixed_offsets or []
    offsets: list[Index] = [*[0] * (len(sizes) - len(given)), *given]
    outer = [np.zeros_like(numbers)] * (len(sizes) - len(shape))
    places = at.places([*outer, *np.unravel_index(numbers, shape)], offsets)
    masks: list[SSAValue | None] = []
    for place in places:
        mask: SSAValue | None = None
        for x, size in zip(place, sizes, strict=True) if op.tdesc.boundary_check else ():
            mask = mask if size == BOUNDLESS else below(at, mask, x, size)
        masks.append(mask)
    distances = [moved(0, place, strides, at) for place in places]
    return base, strides[-1], distances, masks


def _of_lanes(at: LaneNumbers, op: xegpu.LoadNdOp | xegpu.StoreNdOp, numbers: Numbers) -> Numbers:
    """[components, lanes]; each lane has all of a whole block."""
    if elements.is_whole(op):
        numbers = np.repeat(numbers[..., None], at.lanes, axis=-1)
    return numbers.reshape(-1, at.lanes)


def _load(at: LaneNumbers, op: xegpu.LoadNdOp) -> None:
    shape, element = shape_of(op.value), op.tdesc.element_type
    numbers = _of_lanes(at, op, elements.loaded(op, at.lanes))
    base, step, distances, masks = _addresses(at, op, numbers, elements.wide_shape(op.tdesc))
    found: list[SSAValue] = []
    while (n := len(found)) < len(distances):
        mask, run = masks[n], _run(op, numbers[n:], masks[n:]) if step == 1 else 1
        load = xegpu.LoadGatherOp(
            base,
            at.everywhere(mask),
            VectorType(element, [run]) if run > 1 else element,
            offsets=at.index(distances[n]),
            chunk_size=run if run > 1 else None,
            hints=hints_of(op),
        )
        value = at.add(load)
        if mask is not None:  # 0 outside
            nothing = at.constant(element, 0)
            value = at.add(arith.SelectOp(mask, value, nothing))
        found += [at.component(value, k) for k in range(run)] if run > 1 else [value]
    at.replace(at.cast(at.gathered(found), shape))


def _run(op: xegpu.LoadNdOp, numbers: Numbers, masks: Sequence[SSAValue | None]) -> int:
    """How many of the first components lie in a row of memory in every lane, as far as that is known."""
    width = elements.wide_shape(op.tdesc)[-1]
    run = 1
    while (
        run < len(numbers)
        and masks[run - 1] is None
        and masks[run] is None
        and (numbers[run] == numbers[0] + run).all()
        and (numbers[run] % width).all()
    ):
        run += 1
    return max(n for n in CHUNK_SIZES if n <= run)


def _store(at: LaneNumbers, op: xegpu.StoreNdOp) -> None:
    shape = shape_of(op.value)
    numbers = _of_lanes(at, op, elements.stored(op, at.lanes))
    base, _, distances, masks = _addresses(at, op, numbers, op.tdesc.get_shape())
    flat = at.cast(op.value, [prod(shape)])
    for n, (distance, mask) in enumerate(zip(distances, masks, strict=True)):
        on = at.everywhere(mask)
        value, to = at.component(flat, n), at.index(distance)
        at.insert(xegpu.StoreScatterOp(value, base, on, offsets=to, hints=hints_of(op)))
    at.replace()


# Products -------------------------------------------------------------------------------------------------------------


class _Fragment:
    """An operand in the type that its products are computed in, of which a lane asks others for components."""

    def __init__(self, at: LaneNumbers, value: SSAValue):
        self.at, self.lanes, self.value = at, at.lanes, value
        self.sources: dict[bytes, SSAValue] = {}
        self.found: dict[bytes, SSAValue] = {}

    def get(self, numbers: Numbers) -> SSAValue:
        """What each lane asks for: tables [lanes] of components, which count with the lanes last."""
        at, (component, lane), key = self.at, np.divmod(numbers, self.lanes), numbers.tobytes()
        if key not in self.found:
            first, *others = sorted(set(component.tolist()))
            self.found[key] = self._from(first, lane)
            for number in others:
                here, before = self._from(number, lane), self.found[key]
                hit = at.compare("eq", at.of_lane(component), number)
                self.found[key] = at.add(arith.SelectOp(hit, here, before))
        return self.found[key]

    def _from(self, component: int, lane: Numbers) -> SSAValue:
        """One component of the lanes that a table says."""
        at, key = self.at, lane.tobytes()
        if key not in self.sources:
            self.sources[key] = self.value
            if (lane != np.arange(self.lanes)).any():
                source = at.add(arith.IndexCastOp(at.index(at.of_lane(lane)), i32))
                width = at.constant(i32, self.lanes)
                self.sources[key] = at.add(ShuffleOp(self.value, source, width, "idx"))
        return at.component(self.sources[key], component)


def product(at: LaneNumbers, operands: Sequence[SSAValue], numbers: Sequence[Numbers]) -> SSAValue:
    """C[m, n] += A[m, k] * B[k, n] for k in order; a lane computes the elements of C that it owns.

    `operands`: a lane's A, B and C, vectors of one dimension and one element type; `numbers`: [m, k], [k, n], [m, n],
    which component, as `_Fragment.get` counts, each element is.
    """
    of_a, of_b, of_c = numbers
    a, b, total = _Fragment(at, operands[0]), _Fragment(at, operands[1]), operands[2]
    m, n = np.divmod(elements.inverse(of_c, (*shape_of(total), at.lanes)), of_c.shape[1])
    whole = isinstance(element_of(total.type), IntegerType)
    times, plus = (arith.MuliOp, arith.AddiOp) if whole else (arith.MulfOp, arith.AddfOp)
    for k in range(of_a.shape[1]):
        left = at.gathered([a.get(of_a[row, k]) for row in m])
        right = at.gathered([b.get(of_b[k, column]) for column in n])
        total = at.add(plus(total, at.add(times(left, right))))
    return total


def _dpas(at: LaneNumbers, op: xegpu.DpasOp) -> None:
    shape, element = shape_of(op.result), element_of(op.result.type)
    to: Attribute = i32
    if isinstance(element, AnyFloat):
        to = element if isinstance(element, Float64Type) else f32
    kind = VectorType(to, [prod(shape)])
    given = (op.lhs, op.rhs, op.acc or at.constant(kind, 0))
    wide = [widened(at.add, at.cast(v, [prod(shape_of(v))]), to) for v in given]
    total = product(at, wide, elements.multiplied(op, at.lanes))
    if element != to:
        total = at.add(cast_to(total, VectorType(element, kind.get_shape())))
    at.replace(at.cast(total, shape))


def widened(add: Callable[[Operation], SSAValue], value: SSAValue, to: Attribute) -> SSAValue:
    """A value in the type in which sums are made."""
    element, shape = element_of(value.type), shape_of(value)
    if element == to:
        return value
    wide: Any = VectorType(to, shape)
    sign = element.signedness.data if isinstance(element, IntegerType) else Signedness.SIGNLESS
    if sign is not Signedness.SIGNLESS:
        plain = VectorType(IntegerType(element_bits(element)), shape)
        value = add(UnrealizedConversionCastOp.get([value], [plain]))
        if plain == wide:
            return value
    return add(cast_to(value, wide, unsigned=sign is Signedness.UNSIGNED))


_RULES: dict[type[Operation], Callable[[LaneNumbers, Any], None]] = {
    xegpu.LoadNdOp: _load,
    xegpu.StoreNdOp: _store,
    xegpu.PrefetchNdOp: lambda at, op: at.replace(),
    xegpu.DpasOp: _dpas,
}
