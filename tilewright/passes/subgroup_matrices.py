"""subgroup-matrices: the matrices that a subgroup's lanes hold together (`gpu.subgroup_mma_*`) as numbers of each lane.

    !gpu.mma_matrix<16x16xf32, "COp">          vector<8xf32>: in lane l of 32, elements l, l + 32, ..
    gpu.subgroup_mma_load_matrix, store   ->   a load, a store of each of them
    gpu.subgroup_mma_elementwise addf          arith.addf
    gpu.subgroup_mma_compute                   gpu.shuffle of both factors, products and sums

Elements are numbered row by row. What MLIR leaves to the target, which lane has which, is the same for the three
operands here. Products are summed in f32 (f64, i32), in the order of k.

Requires: nothing.  Guarantees: no such op and no such type is left, and a kernel that had some says how many lanes its
subgroups have, 32 where nothing said it.  A matrix that the lanes cannot share evenly is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects import arith, gpu, memref, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    Float64Type,
    IntegerAttr,
    IntegerType,
    MemRefType,
    Signedness,
    VectorType,
    f32,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects.nesting import values_made
from tilewright.dialects.upstream.gpu import matrices as ops
from tilewright.dialects.upstream.gpu.lanes import LANES, ShuffleOp
from tilewright.dialects.upstream.strided import strided_form
from tilewright.dialects.upstream.vector import FromElementsOp
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.emit import Before

WARP = 32
"""Lanes that such programs are written for."""
_BINARY: dict[str, Callable[..., Operation]] = {
    "addf": arith.AddfOp,
    "subf": arith.SubfOp,
    "mulf": arith.MulfOp,
    "divf": arith.DivfOp,
    "maxf": arith.MaximumfOp,
    "minf": arith.MinimumfOp,
    "addi": arith.AddiOp,
    "subi": arith.SubiOp,
    "muli": arith.MuliOp,
    "divs": arith.DivSIOp,
    "divu": arith.DivUIOp,
}


def subgroup_matrices(module: Operation) -> None:
    """Rewrites the kernels of a module, in place."""
    for kernel in [op for op in module.walk() if isinstance(op, gpu.FuncOp | gpu.LaunchOp)]:
        found = [op for op in kernel.walk() if op.name.startswith("gpu.subgroup_mma_")]
        if found:
            stated = kernel.attributes.setdefault(LANES, IntegerAttr(WARP, i64))
            assert isinstance(stated, IntegerAttr)
            _rewrite(kernel, found, stated.value.data)


def _rewrite(kernel: Operation, found: Sequence[Operation], lanes: int) -> None:
    before = {op: [v.type for v in (*op.operands, *op.results)] for op in found}
    for value in [v for op in kernel.walk() for v in values_made(op)]:
        if isinstance(kind := value.type, ops.MMAMatrixType):
            if kind.extents[0] * kind.extents[1] % lanes:
                raise Before(found[0]).refuse(f"{lanes} lanes do not share {kind} evenly")
            value._type = _Shared(kind, lanes).fragment  # pyright: ignore[reportPrivateUsage]
    for op in found:
        _RULES[type(op)](op, _Lane(op, lanes, before[op]))


@dataclass
class _Shared:
    """A matrix, and the lanes that have it."""

    kind: ops.MMAMatrixType
    lanes: int

    @property
    def element(self) -> Attribute:
        """Of a lane's numbers: whole ones have no sign of their own."""
        kind = self.kind.element_type
        return IntegerType(kind.width.data) if isinstance(kind, IntegerType) else kind

    @property
    def fragment(self) -> VectorType:
        return VectorType(self.element, [self.count])

    @property
    def count(self) -> int:
        rows, columns = self.kind.extents
        return rows * columns // self.lanes

    def wide(self, at: Before, value: SSAValue) -> SSAValue:
        """A number, or several, of the kind in which products are summed."""
        kind, given = self.kind.element_type, value.type
        to: Any = i32 if isinstance(kind, IntegerType) else f32
        if isinstance(given, VectorType):
            to = VectorType(to, given.get_shape())
        if isinstance(kind, IntegerType):
            if kind.width.data == 32:
                return value
            unsigned = kind.signedness.data is Signedness.UNSIGNED
            return at.add((arith.ExtUIOp if unsigned else arith.ExtSIOp)(value, to))
        return (
            value
            if kind == f32 or isinstance(kind, Float64Type)
            else at.add(arith.ExtFOp(value, to))
        )


class _Lane(Before):
    """Makes what a lane does for an op; `types` are those of its operands and results as they were."""

    def __init__(self, op: Operation, lanes: int, types: Sequence[Attribute]):
        super().__init__(op)
        self.lanes = lanes
        self.types = [
            _Shared(t, lanes) if isinstance(t, ops.MMAMatrixType) else None for t in types
        ]
        self.lane = self.add(gpu.LaneIdOp())

    def matrix(self, number: int) -> _Shared:
        found = self.types[number]
        assert found is not None
        return found

    def quotient(self, x: Index, by: int) -> SSAValue:
        return self.add(arith.DivUIOp(self.index(x), self.index(by)))

    def remainder(self, x: Index, by: int) -> SSAValue:
        return self.add(arith.RemUIOp(self.index(x), self.index(by)))

    def place(self, shared: _Shared, number: int) -> tuple[SSAValue, SSAValue]:
        """Row and column of a lane's element."""
        flat, columns = self.plus(self.lane, number * self.lanes), shared.kind.extents[1]
        return self.quotient(flat, columns), self.remainder(flat, columns)


def _addresses(op: Any, at: _Lane, memory: SSAValue, shared: _Shared) -> list[list[SSAValue]]:
    """Subscripts of each of a lane's elements."""
    kind, lead = memory.type, op.leadDimension.value.data
    assert isinstance(kind, MemRefType)
    strides, _ = strided_form(kind)
    if len(strides) > 1 and strides[-2] not in (lead, DYNAMIC_INDEX, None):
        raise at.refuse(
            f"rows {lead} elements apart of an array whose rows are {strides[-2]} apart"
        )
    found: list[list[SSAValue]] = []
    for number in range(shared.count):
        row, column = at.place(shared, number)
        if op.transpose:
            row, column = column, row
        *outer, last = op.indices
        if outer:
            places = [*outer[:-1], at.plus(outer[-1], row), at.plus(last, column)]
        else:
            places = [at.plus(last, at.plus(at.times(row, lead), column))]
        found.append([at.index(place) for place in places])
    return found


def _load(op: ops.LoadOp, at: _Lane) -> None:
    shared = at.matrix(-1)
    places = _addresses(op, at, op.source, shared)
    numbers = [at.add(memref.LoadOp.get(op.source, place)) for place in places]
    at.replace(at.add(FromElementsOp(numbers, shared.fragment)))


def _store(op: ops.StoreOp, at: _Lane) -> None:
    places = _addresses(op, at, op.target, at.matrix(0))
    for number, place in enumerate(places):
        at.insert(memref.StoreOp.get(at.component(op.source, number), op.target, place))
    at.replace()


def _constant(op: ops.ConstantOp, at: _Lane) -> None:
    at.replace(at.add(vector.BroadcastOp(op.value, at.matrix(-1).fragment)))


def _elementwise(op: ops.ElementwiseOp, at: _Lane) -> None:
    kind, (first, *rest) = op.opType.kind.data, op.args
    match kind:
        case "negatef":
            made = arith.NegfOp(first)
        case "negates":
            made = arith.SubiOp(at.constant(first.type, 0), first)
        case "extf":
            made = arith.ExtFOp(first, at.matrix(-1).fragment)
        case _:
            made = _BINARY[kind](first, *rest)
    at.replace(at.add(made))


def _compute(op: ops.ComputeOp, at: _Lane) -> None:
    """Each of a lane's results: for every k, the two factors come from the lanes that have them."""
    a, b, c = (at.matrix(n) for n in range(3))
    k, width = a.kind.extents[1], at.add(arith.ConstantOp(IntegerAttr(at.lanes, 32)))
    factors = [a.wide(at, op.a), b.wide(at, op.b)]
    columns = c.kind.extents[1]
    known: dict[tuple[int, tuple[int, ...]], SSAValue] = {}

    def other(which: int, flat: SSAValue, flats: tuple[int, ...]) -> SSAValue:
        """The factor of the number `flat`, which is `flats` in the lanes in turn."""
        key = which, flats
        if key not in known:
            known[key] = exchanged(which, flat, sorted({n // at.lanes for n in flats}))
        return known[key]

    def exchanged(which: int, flat: SSAValue, registers: list[int]) -> SSAValue:
        lane = at.add(arith.IndexCastOp(at.remainder(flat, at.lanes), i32))
        register = at.quotient(flat, at.lanes)
        chosen: SSAValue | None = None
        for number in registers:
            here = at.component(factors[which], number)
            found = at.insert(ShuffleOp(here, lane, width, "idx")).results[0]
            if chosen is None:
                chosen = found
            else:
                hit = at.add(arith.CmpiOp(register, at.index(number), "eq"))
                chosen = at.add(arith.SelectOp(hit, found, chosen))
        assert chosen is not None
        return chosen

    whole = isinstance(c.kind.element_type, IntegerType)
    times, plus = (arith.MuliOp, arith.AddiOp) if whole else (arith.MulfOp, arith.AddfOp)
    sums = c.wide(at, op.c)
    made: list[SSAValue] = []
    for number in range(c.count):
        row, column = at.place(c, number)
        every = [number * at.lanes + lane for lane in range(at.lanes)]
        total = at.component(sums, number)
        for step in range(k):
            x = other(
                0,
                at.index(at.plus(at.times(row, k), step)),
                tuple(n // columns * k + step for n in every),
            )
            y = other(
                1,
                at.index(at.plus(column, step * columns)),
                tuple(step * columns + n % columns for n in every),
            )
            total = at.add(plus(total, at.add(times(x, y))))
        if total.type != c.element:
            total = at.add(arith.TruncFOp(total, c.element))
        made.append(total)
    at.replace(at.add(FromElementsOp(made, c.fragment)))


_RULES: dict[type[Operation], Callable[[Any, _Lane], None]] = {
    ops.LoadOp: _load,
    ops.StoreOp: _store,
    ops.ConstantOp: _constant,
    ops.ElementwiseOp: _elementwise,
    ops.ComputeOp: _compute,
}
