"""xegpu-blocking{target=pvc|bmg|dg2}: every op becomes ops of the machine's size.

Requires: XeGPU at subgroup level; older text is modernized first. `inst_data` and lanes on ops are wishes; what
the text leaves open is chosen from the machine table.
Guarantees: the same results. A dpas is one instruction; block loads are the largest messages that consist of
whole pieces (height, array_length), stores and prefetches too; arithmetic is on pieces; loops carry pieces (1:N).
Loads have the lane layout that their users want (`lane_data = [2, 1]`: rows packed for B). No `inst_data` is left.

    %a = load_nd %t[%m, %k] : tensor_desc<32x32xf16> -> vector<32x32xf16>
    %b = load_nd %u[%k, %n] : tensor_desc<32x64xf16> -> vector<32x64xf16>
    %d = dpas %a, %b, %c : vector<32x32xf16>, vector<32x64xf16>, vector<32x64xf32> -> vector<32x64xf32>
->
    %a = load_nd %t2[%m, %k] : tensor_desc<32x16xf16, array_length = 2> -> vector<2x32x16xf16>
    %b0 = load_nd %u2[%k, %n], %b1 = load_nd %u2[%k, %n + 32] : tensor_desc<32x16xf16, array_length = 2> -> ..
    %a00 = slices of %a, %b0, %b1
    %d00 = dpas %a00, %b00, %c00 : vector<8x16xf16>, vector<16x16xf16>, vector<8x16xf32> -> vector<8x16xf32>
    ... 32 of them

Slices between loads and dpas pick registers; distribution to lanes makes nothing of them.
What 2D block messages cannot reach keeps `tilewright.scattered` and is cut into pieces only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    Float32Type,
    Float64Type,
    FloatTF32Type,
    IndexType,
    IntegerType,
    Signedness,
    UnrealizedConversionCastOp,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.upstream import vector as more
from tilewright.passes.xegpu.blocking_shapes import BlockedShapes
from tilewright.passes.xegpu.fragments import Free, dense, element_of
from tilewright.passes.xegpu.lane_layouts import lane_attribute
from tilewright.passes.xegpu.lane_values import COMBINE
from tilewright.passes.xegpu.ownership import (
    OwnershipAnalysis,
    dpas_fragments,
    has_instruction,
    right_layout,
    shape_of,
)
from tilewright.passes.xegpu.pieces import Shape, grid_of, starts, zeros
from tilewright.passes.xegpu.plain_forms import plain_forms
from tilewright.passes.xegpu.rebuild import floats_or_ints
from tilewright.passes.xegpu.sg_maps import dpas_instruction
from tilewright.passes.xegpu.sink_loads import sink_scattered_loads
from tilewright.uarch.xe import XeMachine

MOST_STEPS = 8192
"""Outer products that one product becomes at most: each is 16 bytes of code or more, 128 KB in all."""


def block(kernel: gpu.FuncOp, xe: XeMachine) -> None:
    """Rewrites a kernel of subgroup level to instruction-sized ops, in place."""
    if any(isinstance(a.type, VectorType) for a in kernel.body.blocks[0].args):
        raise error_at(
            kernel,
            "a kernel that is cut into instructions takes no vectors",
            hint="load them from memory",
            kind=UnsupportedError,
        )
    plain_forms(kernel, xe)
    _Block(kernel, xe).kernel(kernel)
    sink_scattered_loads(kernel.body.block)


class _Block(BlockedShapes):
    def __init__(self, kernel: gpu.FuncOp, xe: XeMachine):
        super().__init__()
        self.owners = OwnershipAnalysis(kernel, xe, whole=False)

    # --- Frame -----------------------------------------------------------------------------------

    def part_types(self, like: SSAValue) -> list[Attribute]:
        piece = self.owners.piece(like)
        count = int(np.prod(grid_of(shape_of(like), piece)))
        return [self.typed(like, piece)] * count

    def parts(self, value: SSAValue, like: SSAValue) -> list[SSAValue]:
        return self.cut(value, self.owners.piece(like))

    def bind(self, value: SSAValue, parts: Sequence[SSAValue]) -> None:
        self.hold(value, self.owners.piece(value), parts)

    def convert(self, op: Operation) -> None:
        handler = _HANDLERS.get(type(op))
        vectors = any(isinstance(v.type, VectorType) for v in (*op.operands, *op.results))
        if handler is not None and (vectors or handler in _SCALAR):
            handler(self, op)
        elif is_elementwise_on_vectors(op):
            self.elementwise(op)
        elif vectors:
            self.unblocked(op)
        else:
            self.keep(op)

    # --- Arithmetic --------------------------------------------------------------------------------

    def elementwise(self, op: Operation) -> None:
        piece = self.owners.piece(op.results[0])
        columns = [
            self.cut(v, piece) if isinstance(v.type, VectorType) else None for v in op.operands
        ]
        count = int(np.prod(grid_of(shape_of(op.results[0]), piece)))
        types = [self.typed(r, piece) for r in op.results]
        attributes = self.piece_attributes(op)
        made: list[list[SSAValue]] = [[] for _ in op.results]
        for n in range(count):
            operands = [
                self.env[v] if column is None else column[n]
                for v, column in zip(op.operands, columns, strict=True)
            ]
            new = self.put(
                type(op).create(
                    operands=operands,
                    result_types=types,
                    properties=dict(op.properties),
                    attributes=dict(attributes),
                )
            )
            for place, result in zip(made, new.results, strict=True):
                place.append(result)
        for old, values in zip(op.results, made, strict=True):
            self.hold(old, piece, values)

    def piece_attributes(self, op: Operation) -> dict[str, Attribute]:
        """An op's discardable attributes; written layouts become those of a piece's lanes."""
        kept = {k: v for k, v in op.attributes.items() if not k.startswith("layout_")}
        if "layout_result_0" in op.attributes:
            layout = lane_attribute(self.owners.layout(op.results[0]))
            if layout is not None:
                kept["layout_result_0"] = layout
        return kept

    def constant_op(self, op: arith.ConstantOp) -> None:
        value = op.value
        assert isinstance(value, DenseIntOrFPElementsAttr)
        element, shape = element_of(op.result), shape_of(op.result)
        if value.is_splat():
            self.grids[op.result] = Free(element, value.data, None)
            return
        piece = self.owners.piece(op.result)
        numbers = np.array(value.get_values(), dtype=object).reshape(shape)
        kind = self.typed(op.result, piece)
        pieces = [
            self.constant(dense(kind, list(numbers[box(start, piece)].reshape(-1))))
            for start in starts(shape, piece)
        ]
        self.hold(op.result, piece, pieces)

    def step_op(self, op: more.StepOp) -> None:
        piece = self.owners.piece(op.result)
        kind = self.typed(op.result, piece)
        first = self.once(("step", kind), more.StepOp(kind))
        pieces = [
            first
            if start == (0,)
            else self.binary(arith.AddiOp, first, self.constant(dense(kind, [start[0]])))
            for start in starts(shape_of(op.result), piece)
        ]
        self.hold(op.result, piece, pieces)

    def create_mask(self, op: vector.CreateMaskOp) -> None:
        result = op.mask_vector
        piece = self.owners.piece(result)
        bounds = [self.env[v] for v in op.operands]
        pieces = [
            self.add(
                vector.CreateMaskOp.create(
                    operands=[
                        self.index(self.plus(b, -s)) for b, s in zip(bounds, start, strict=True)
                    ],
                    result_types=[self.typed(result, piece)],
                )
            )
            for start in starts(shape_of(result), piece)
        ]
        self.hold(result, piece, pieces)

    def constant_mask(self, op: more.ConstantMaskOp) -> None:
        piece = self.owners.piece(op.result)
        pieces: list[SSAValue] = []
        for start in starts(shape_of(op.result), piece):
            sizes = [min(max(n - s, 0), p) for n, s, p in zip(op.sizes, start, piece, strict=True)]
            pieces.append(self.add(more.ConstantMaskOp(sizes, self.typed(op.result, piece))))
        self.hold(op.result, piece, pieces)

    def dpas(self, op: xegpu.DpasOp) -> None:
        xe = self.owners.xe
        dims = op.dims()
        assert dims is not None
        if not has_instruction(xe, op):
            self.product(op, dims)
            return
        fragments = dpas_fragments(xe, op)
        assert fragments.a is not None and fragments.b is not None
        m, k = fragments.a.shape
        n = fragments.c.shape[1]
        a = self.cut(op.lhs, (m, k))
        b = self.cut(op.rhs, right_layout(fragments.b, op.rhs).shape)
        rows, columns, depth = dims[0] // m, dims[1] // n, dims[2] // k
        sums: list[SSAValue | None] = (
            [None] * (rows * columns) if op.acc is None else [*self.cut(op.acc, (m, n))]
        )
        kind = self.typed(op.result, (m, n))
        for step, i, j in product(range(depth), range(rows), range(columns)):
            acc = sums[i * columns + j]
            operands = [a[i * depth + step], b[step * columns + j]]
            if acc is not None:
                operands.append(acc)
            new = xegpu.DpasOp.create(operands=operands, result_types=[kind])
            sums[i * columns + j] = self.add(new)
        self.hold(op.result, (m, n), [s for s in sums if s is not None])

    def product(self, op: xegpu.DpasOp, dims: tuple[int, int, int]) -> None:
        """A product that no dpas does: outer products of columns of A and rows of B, one after the other."""
        if len(shape_of(op.lhs)) != 2 or len(shape_of(op.rhs)) != 2:
            raise self.refuse("packed operands of a product that no dpas does")
        result = element_of(op.result)
        wide = _sum_type(result)
        sums = isinstance(result, AnyFloat) or wide == result
        if (
            wide is None
            or not sums
            or any(_sum_type(element_of(v)) is None for v in (op.lhs, op.rhs))
        ):
            dpas_instruction(self.owners.xe, op)
            raise self.refuse(f"a product of {element_of(op.lhs)} by {element_of(op.rhs)}")
        piece = self.owners.piece(op.result)
        steps = math.prod(grid_of(shape_of(op.result), piece)) * dims[2]
        if steps > MOST_STEPS:
            raise error_at(
                op,
                f"no dpas does a product of {' x '.join(map(str, dims))}, and it would be {steps} outer "
                f"products, more than {MOST_STEPS}",
                hint="extents that the machine's dpas divides, more subgroups, or a smaller tile",
                kind=UnsupportedError,
            )
        kind = self.typed(op.result, piece)
        wide_kind = VectorType(wide, list(piece))
        made: list[SSAValue] = []
        for start in starts(shape_of(op.result), piece):
            if op.acc is None:
                total = self.constant(zeros(wide_kind))
            else:
                total = self.widened(self.box(op.acc, start, piece), wide)
            for k in range(dims[2]):
                a = self.widened(self.box(op.lhs, (start[0], k), (piece[0], 1)), wide)
                b = self.widened(self.box(op.rhs, (k, start[1]), (1, piece[1])), wide)
                a, b = (
                    v
                    if v.type == wide_kind
                    else self.once(("broadcast", v, wide_kind), vector.BroadcastOp(v, wide_kind))
                    for v in (a, b)
                )
                if isinstance(wide, AnyFloat):
                    fma = vector.FMAOp.create(operands=[a, b, total], result_types=[wide_kind])
                    total = self.add(fma)
                else:
                    total = self.binary(arith.AddiOp, self.binary(arith.MuliOp, a, b), total)
            if wide != result:
                total = self.add(arith.TruncFOp.create(operands=[total], result_types=[kind]))
            made.append(total)
        self.hold(op.result, piece, made)

    def widened(self, value: SSAValue, element: Attribute) -> SSAValue:
        """A value in the type in which sums are made."""
        assert isinstance(value.type, VectorType)
        given = value.type.element_type
        if given == element:
            return value
        cast = arith.ExtFOp if isinstance(element, AnyFloat) else arith.ExtSIOp
        if isinstance(given, IntegerType) and given.signedness.data == Signedness.UNSIGNED:
            cast, plain = (
                arith.ExtUIOp,
                VectorType(IntegerType(given.width), value.type.get_shape()),
            )
            value = self.once(("plain", value), UnrealizedConversionCastOp.get([value], [plain]))
        kind = VectorType(element, value.type.get_shape())  # pyright: ignore
        op = cast.create(operands=[value], result_types=[kind])
        return self.once(("wide", value, element), op)

    # --- Reductions ----------------------------------------------------------------------------------

    def multi_reduction(self, op: more.MultiReductionOp) -> None:
        piece = self.owners.piece(op.source)
        shape = shape_of(op.source)
        kept = [d for d in range(len(shape)) if d not in op.dims]
        groups: dict[Shape, SSAValue] = {}
        for start, value in zip(starts(shape, piece), self.cut(op.source, piece), strict=True):
            key = tuple(start[d] for d in kept)
            groups[key] = self.combine(op.kind, groups[key], value) if key in groups else value
        if not isinstance(op.dest.type, VectorType) or not kept:
            (total,) = groups.values()
            acc = self.env[op.acc]
            self.env[op.dest] = self.add(more.MultiReductionOp(op.kind, total, acc, op.dims))
            return
        part = tuple(piece[d] for d in kept)
        made: list[SSAValue] = []
        for key, total in groups.items():
            acc = self.box(op.acc, key, part)
            made.append(self.add(more.MultiReductionOp(op.kind, total, acc, op.dims)))
        self.hold(op.dest, part, made)

    def reduction(self, op: vector.ReductionOp) -> None:
        kind = op.properties["kind"].data.value  # pyright: ignore
        piece = self.owners.piece(op.vector)
        first, *rest = self.cut(op.vector, piece)
        for value in rest:
            first = self.combine(kind, first, value)
        operands = [first] if op.acc is None else [first, self.env[op.acc]]
        new = vector.ReductionOp.create(
            operands=operands, properties=dict(op.properties), result_types=[op.dest.type]
        )
        self.env[op.dest] = self.add(new)

    def combine(self, kind: str, a: SSAValue, b: SSAValue) -> SSAValue:
        found = COMBINE.get((kind, floats_or_ints(element_of(a))))
        if found is None:
            raise self.refuse(f"a reduction <{kind}> of {element_of(a)}")
        return self.binary(found, a, b)

    def older(self, op: Operation) -> None:
        raise self.refuse("a descriptor of the older text", "run xegpu-modernize first")


def _sum_type(element: Attribute) -> Attribute | None:
    """The type in which products of this type are summed; None where that is not known."""
    match element:
        case Float64Type():
            return element
        case _ if isinstance(element, AnyFloat) and not isinstance(element, FloatTF32Type):
            return Float32Type()
        case IntegerType() if element.signedness.data is not Signedness.SIGNED:
            return IntegerType(max(32, element.width.data))
        case _:
            return None


def box(start: Shape, size: Shape) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(start, size, strict=True))


_HANDLERS: dict[type[Operation], Callable[[Any, Any], None]] = {
    arith.ConstantOp: _Block.constant_op,
    more.StepOp: _Block.step_op,
    vector.CreateMaskOp: _Block.create_mask,
    more.ConstantMaskOp: _Block.constant_mask,
    more.MultiReductionOp: _Block.multi_reduction,
    vector.ReductionOp: _Block.reduction,
    vector.BroadcastOp: _Block.broadcast,
    more.TransposeOp: _Block.transpose,
    more.ShapeCastOp: _Block.shape_cast,
    vector.BitcastOp: _Block.bitcast,
    more.ExtractStridedSliceOp: _Block.extract_strided_slice,
    vector.ExtractOp: _Block.extract,
    more.InsertStridedSliceOp: _Block.insert_strided_slice,
    vector.InsertOp: _Block.insert,
    xegpu.ConvertLayoutOp: _Block.convert_layout,
    xegpu.DpasOp: _Block.dpas,
    xegpu.CreateNdDescOp: _Block.create_nd_tdesc,
    xegpu.LoadNdOp: _Block.load_nd,
    xegpu.StoreNdOp: _Block.store_nd,
    xegpu.PrefetchNdOp: _Block.prefetch_nd,
    xegpu.LoadGatherOp: _Block.load_gather,
    xegpu.StoreScatterOp: _Block.store_scatter,
    xegpu.AtomicRMWOp: _Block.atomic_rmw,
    xegpu.PrefetchOp: _Block.prefetch,
    xegpu.LoadMatrixOp: _Block.load_matrix,
    xegpu.StoreMatrixOp: _Block.store_matrix,
    xegpu.UpdateNdOffsetOp: _Block.older,
    xegpu.CreateDescOp: _Block.older,
    xegpu.UpdateOffsetOp: _Block.older,
}

_SCALAR = (_Block.create_nd_tdesc, _Block.prefetch_nd, _Block.older)
"""Handlers of ops that have no vector among operands and results."""

__all__ = ["IndexType", "block"]
