"""subgroup-matrices: the matrices that a subgroup's lanes hold together (`gpu.subgroup_mma_*`) as numbers of each lane.

    !gpu.mma_matrix<16x16xf32, "COp">          vector<8xf32>: in lane l of 32, elements l, l + 32, ..
    gpu.subgroup_mma_load_matrix, store   ->   a load, a store of each of them
    gpu.subgroup_mma_elementwise addf          arith.addf
    gpu.subgroup_mma_compute                   gpu.shuffle of both factors, products and sums (`xegpu.lane_elements`)

Elements are numbered row by row. What MLIR leaves to the target, which lane has which, is the same for the three
operands here. Products are summed in f32 (f64, i32), in the order of k.

Requires: nothing.  Guarantees: no such op and no such type is left, and a kernel that had some says how many lanes its
subgroups have, 32 where nothing said it.  A matrix that the lanes cannot share evenly is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
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
from tilewright.dialects.upstream.arith import cast_to
from tilewright.dialects.upstream.gpu import matrices as ops
from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.dialects.upstream.strided import strided_form
from tilewright.passes.emit import Before
from tilewright.passes.xegpu.lane_elements import LaneNumbers, lane_of, product

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


def _rewrite(kernel: gpu.FuncOp | gpu.LaunchOp, found: Sequence[Operation], lanes: int) -> None:
    before = {op: [v.type for v in (*op.operands, *op.results)] for op in found}
    for value in [v for op in kernel.walk() for v in values_made(op)]:
        if isinstance(kind := value.type, ops.MMAMatrixType):
            if prod(kind.extents) % lanes:
                raise Before(found[0]).refuse(f"{lanes} lanes do not share {kind} evenly")
            value._type = _fragment(kind, lanes)  # pyright: ignore[reportPrivateUsage]
    lane = lane_of(kernel)
    for op in found:
        _RULES[type(op)](op, LaneNumbers(op, lane, lanes), before[op])


def _fragment(kind: ops.MMAMatrixType, lanes: int) -> VectorType:
    """A lane's numbers of a matrix: whole ones have no sign of their own."""
    element = kind.element_type
    held = IntegerType(element.width.data) if isinstance(element, IntegerType) else element
    return VectorType(held, [prod(kind.extents) // lanes])


def _addresses(
    op: Any, at: LaneNumbers, memory: SSAValue, matrix: ops.MMAMatrixType
) -> list[list[SSAValue]]:
    """Subscripts of each of a lane's elements."""
    kind, lead = memory.type, op.leadDimension.value.data
    assert isinstance(kind, MemRefType)
    strides, _ = strided_form(kind)
    if len(strides) > 1 and strides[-2] not in (lead, DYNAMIC_INDEX, None):
        raise at.refuse(
            f"rows {lead} elements apart of an array whose rows are {strides[-2]} apart"
        )
    numbers = np.arange(prod(matrix.extents)).reshape(-1, at.lanes)
    row, column = np.divmod(numbers, matrix.extents[1])
    if op.transpose:
        row, column = column, row
    *outer, last = op.indices
    if outer:
        places = at.places([row, column], [outer[-1], last])
    else:
        places = at.places([row * lead + column], [last])
    return [[*outer[:-1], *map(at.index, place)] for place in places]


def _load(op: ops.LoadOp, at: LaneNumbers, kinds: Sequence[Any]) -> None:
    places = _addresses(op, at, op.source, kinds[-1])
    at.replace(at.gathered([at.add(memref.LoadOp.get(op.source, place)) for place in places]))


def _store(op: ops.StoreOp, at: LaneNumbers, kinds: Sequence[Any]) -> None:
    for number, place in enumerate(_addresses(op, at, op.target, kinds[0])):
        at.insert(memref.StoreOp.get(at.component(op.source, number), op.target, place))
    at.replace()


def _constant(op: ops.ConstantOp, at: LaneNumbers, kinds: Sequence[Any]) -> None:
    at.replace(at.add(vector.BroadcastOp(op.value, _fragment(kinds[-1], at.lanes))))


def _elementwise(op: ops.ElementwiseOp, at: LaneNumbers, kinds: Sequence[Any]) -> None:
    kind, (first, *rest) = op.opType.kind.data, op.args
    match kind:
        case "negatef":
            made = arith.NegfOp(first)
        case "negates":
            made = arith.SubiOp(at.constant(first.type, 0), first)
        case "extf":
            made = arith.ExtFOp(first, _fragment(kinds[-1], at.lanes))
        case _:
            made = _BINARY[kind](first, *rest)
    at.replace(at.add(made))


def _compute(op: ops.ComputeOp, at: LaneNumbers, kinds: Sequence[Any]) -> None:
    """Each of a lane's results: for every k, the two factors come from the lanes that have them."""
    element = kinds[2].element_type
    to: Attribute = i32
    if not isinstance(element, IntegerType):
        to = element if isinstance(element, Float64Type) else f32

    def wide(value: SSAValue, kind: ops.MMAMatrixType) -> SSAValue:
        held, given = kind.element_type, _fragment(kind, at.lanes)
        if given.element_type == to:
            return value
        unsigned = isinstance(held, IntegerType) and held.signedness.data is Signedness.UNSIGNED
        return at.add(cast_to(value, VectorType(to, given.get_shape()), unsigned=unsigned))

    numbers = [np.arange(prod(kind.extents)).reshape(kind.extents) for kind in kinds[:3]]
    a, b, c = (wide(value, kind) for value, kind in zip(op.operands, kinds, strict=False))
    total = product(at, (a, b, c), numbers)
    kind = _fragment(kinds[2], at.lanes)
    at.replace(total if total.type == kind else at.add(cast_to(total, kind)))


_RULES: dict[type[Operation], Callable[[Any, LaneNumbers, Sequence[Any]], None]] = {
    ops.LoadOp: _load,
    ops.StoreOp: _store,
    ops.ConstantOp: _constant,
    ops.ElementwiseOp: _elementwise,
    ops.ComputeOp: _compute,
}
