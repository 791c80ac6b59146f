"""expand-ops: what other ops say as well becomes those.

    %n = math.isnan %x : f32                 ->      %n = arith.cmpf uno, %x, %x : f32
    %r = math.clampf %x to [%a, %b] : f32    ->      %m = arith.maximumf %x, %a ; %r = arith.minimumf %m, %b

Guarantees: the same results, no load that transposes, and none of the ops of `EXPANSIONS`, but for atomics whose region
is none of MLIR's kinds and regions of several blocks. Memory of a thread that they would read becomes values
(`mem2reg`). Targets know the others only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, gpu, math, memref, scf, vector
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    VectorType,
    i32,
)
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.rewriter import Rewriter

from tilewright import dtypes
from tilewright.diagnostics import unsupported
from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.prefixes import Prefixes
from tilewright.dialects.upstream import gpu as more_gpu
from tilewright.dialects.upstream import math as more_math
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import with_element
from tilewright.dialects.upstream.combining import (
    ATOMIC_KINDS,
    KINDS_OF_ATOMICS,
    combining,
    kind_of,
    neutral,
)
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.dialects.upstream.memref import ReshapeOp
from tilewright.dialects.upstream.vector.masking import MaskOp
from tilewright.dialects.xetile.assembly import split_indices
from tilewright.passes.branches_to_loops import branches_to_loops
from tilewright.passes.emit import Before, element_of, with_shape
from tilewright.passes.expand_erfc import erfc
from tilewright.passes.expand_maps import (
    affine_map,
    delinearize_index,
    execute_region,
    index_switch,
    linearize_index,
)
from tilewright.passes.expand_powers import float_power, integer_power
from tilewright.passes.expand_products import product_without_scales
from tilewright.passes.mem2reg import mem2reg
from tilewright.passes.pipeline import Pass, Unit
from tilewright.passes.vector_contractions import masked

Rule = Callable[[Any, Before], None]


def expand_ops(module: Operation) -> bool:
    """Expands ops into simpler ones. Returns whether a module or kernel had some."""
    for op in list(module.walk(region_first=True)):
        if isinstance(op, scf.ExecuteRegionOp):
            branches_to_loops(op)  # first, for what loops hold is made anew
    found = [op for op in module.walk() if op.name in EXPANSIONS]
    loads = [op for op in module.walk() if isinstance(op, xetile.LoadTileOp) and op.permutation]
    found.sort(key=lambda op: op.name in _BOXES)  # whose bounds ops that are masked ask for
    for op in found:
        EXPANSIONS[op.name](op, Before(op))
    for op in loads:  # as the tile lies, then transposed
        at = Before(op)
        values = at.insert(xetile.LoadTileOp(op.tile, op.padding, op.hints)).results
        turned = op.permutation == (1, 0)  # and not as it lies: [0, 1]
        at.replace(*(at.add(xetile.TransposeOp(v)) if turned else v for v in values))
    return mem2reg(module) or bool(found or loads)


# --- Classes of floats ---------------------------------------------------------------------------


def _isnan(op: more_math.IsNaNOp, at: Before) -> None:
    at.replace(at.add(arith.CmpfOp(op.operand, op.operand, "uno")))


def _against_infinity(predicate: str) -> Rule:
    def expand(op: Any, at: Before) -> None:
        size = at.add(math.AbsFOp(op.operand))
        infinity = at.constant(op.operand.type, float("inf"))
        at.replace(at.add(arith.CmpfOp(size, infinity, predicate)))

    return expand


def _isnormal(op: more_math.IsNormalOp, at: Before) -> None:
    kind = op.operand.type
    least = 2.0 ** (2 - 2 ** (dtypes.from_mlir(element_of(kind)).exponent_bits - 1))
    size = at.add(math.AbsFOp(op.operand))
    finite = at.add(arith.CmpfOp(size, at.constant(kind, float("inf")), "olt"))
    large = at.add(arith.CmpfOp(size, at.constant(kind, least), "oge"))
    at.replace(at.add(arith.AndIOp(finite, large)))


def _sincos(op: more_math.SincosOp, at: Before) -> None:
    at.replace(at.add(math.SinOp(op.operand)), at.add(math.CosOp(op.operand)))


def _clampf(op: more_math.ClampFOp, at: Before) -> None:
    above = at.add(arith.MaximumfOp(op.value, op.min))
    at.replace(at.add(arith.MinimumfOp(above, op.max)))


# --- Vectors ---------------------------------------------------------------------------------------


def _inserted(at: Before, elements: Sequence[SSAValue], kind: VectorType) -> SSAValue:
    """The first everywhere, then each of the others at its place."""
    made = at.add(vector.BroadcastOp(elements[0], kind))
    for place, element in zip(np.ndindex(*kind.get_shape()), elements, strict=True):
        if element is not elements[0]:
            made = at.add(vector.InsertOp(element, made, place))
    return made


def _from_elements(op: more.FromElementsOp, at: Before) -> None:
    at.replace(_inserted(at, op.elements, op.result.type))


def _to_elements(op: more.ToElementsOp, at: Before) -> None:
    places, kind = np.ndindex(shape_of(op.source)), element_of(op.source.type)
    at.replace(*(at.add(vector.ExtractOp(op.source, place, kind)) for place in places))


def _outerproduct(op: more.OuterProductOp, at: Before) -> None:
    shape = shape_of(op.result)
    rows = at.broadcast(at.cast(op.lhs, [shape[0], *[1] * (len(shape) - 1)]), shape)
    columns = at.broadcast(op.rhs, shape)
    product = at.add(combining("mul", rows, columns))
    at.replace(product if op.acc is None else at.add(combining(op.kind, product, op.acc)))


def _box(op: Any, at: Before) -> None:
    """The mask of a leading box is where all coordinates are below its bounds."""
    bounds = op.sizes if isinstance(op, more.ConstantMaskOp) else op.operands
    at.replace(at.where("slt", bounds, shape_of(op.results[0])))


_BOXES = {"vector.create_mask": _box, "vector.constant_mask": _box}


def _scan(op: more.ScanOp, at: Before) -> None:
    shape, dim = shape_of(op.source), op.dim
    last = len(shape) - 1
    order = [*(d for d in range(len(shape)) if d != dim), dim]
    source = at.transpose(op.source, order)
    row = [shape[d] if d != dim else 1 for d in order]
    scan = _Scan(at, op.kind)
    if not op.is_inclusive:
        scan.initial = at.cast(op.initial_value, row)
    made = scan.inclusive(source) if op.is_inclusive else scan.exclusive(source)
    end = [0] * last + [shape[dim] - 1]
    total = at.add(more.ExtractStridedSliceOp(made, end, row))
    made = at.transpose(made, [order.index(d) for d in range(len(shape))])
    at.replace(made, at.cast(total, shape_of(op.accumulated_value)))


class _Scan(Prefixes[SSAValue]):
    """Along the last dimension."""

    def __init__(self, at: Before, kind: str, initial: SSAValue | None = None):
        self.at = at
        self.kind = kind
        self.initial = initial

    def extent(self, x: SSAValue) -> int:
        return shape_of(x)[-1]

    def halves(self, x: SSAValue) -> tuple[SSAValue, SSAValue]:
        even, odd = self.at.insert(more.DeinterleaveOp(x)).results
        return even, odd

    def joined(self, even: SSAValue, odd: SSAValue) -> SSAValue:
        return self.at.add(more.InterleaveOp(even, odd))

    def resized(self, x: SSAValue, extent: int, offset: int) -> SSAValue:
        place, shape = [0] * (len(shape_of(x)) - 1) + [offset], [*shape_of(x)[:-1], extent]
        if extent < self.extent(x):
            return self.at.add(more.ExtractStridedSliceOp(x, place, shape))
        room = self.at.constant(with_shape(x.type, shape), 0)
        return self.at.add(more.InsertStridedSliceOp(x, room, place))

    def combined(self, before: SSAValue, x: SSAValue) -> SSAValue:
        return self.at.add(combining(self.kind, before, x))

    def start(self, x: SSAValue) -> SSAValue:
        if self.initial is None:
            return self.at.constant(x.type, neutral(self.kind, element_of(x.type)))
        return self.initial


def _dense(op: Any, at: Before) -> None:
    """A gather or scatter at the numbers of elements before each that the mask takes."""
    *offsets, mask, held = op.operands[1:]
    kind = with_element(held.type, IndexType())
    ones = at.add(arith.SelectOp(mask, at.constant(kind, 1), at.constant(kind, 0)))
    places = _Scan(at, "add").exclusive(ones)
    gathers = more.GatherOp if op.results else more.ScatterOp
    made = gathers(op.base, offsets, places, mask, held)
    at.insert(made)
    at.replace(*made.results)


def _mask(op: MaskOp, at: Before) -> None:
    """The mask becomes an operand, or what it leaves out something that changes nothing."""
    inner, mask = op.masked, op.mask
    if inner is None:
        made = [*op.yielded.arguments]
        if op.passthru is not None:
            made = [at.add(arith.SelectOp(mask, made[0], op.passthru))]
        at.replace(*made) if made else Rewriter.erase_op(op)
        return
    inner.detach()
    if isinstance(inner, more.ContractionOp):
        made = masked(inner, mask, at)
        op.yielded.operands = ()
        inner.erase()
        at.replace(made)
        return
    _MASKS[type(inner)](inner, mask, at)
    at.insert(inner)
    other = op.passthru
    if isinstance(inner, vector.TransferReadOp) and other is not None:
        mask = at.spread(mask, _walked(inner), shape_of(other))
    made = [*inner.results]
    if isinstance(inner, more.OuterProductOp):
        other = inner.acc or at.constant(inner.result.type, 0)
    if other is not None:
        made = [at.add(arith.SelectOp(mask, made[0], other))]
    op.yielded.operands = ()
    at.replace(*made) if made else Rewriter.erase_op(op)
    if isinstance(inner, vector.TransferReadOp | vector.TransferWriteOp):
        _transfer(inner, Before(inner))


def _transfer(op: vector.TransferReadOp | vector.TransferWriteOp, at: Before) -> None:
    """Under a mask, which has the order of the memref's dimensions, a transfer has that order too."""
    map_ = op.permutation_map.data
    walked = _walked(op)
    if op.mask is None or walked == list(range(len(map_.results))):
        return
    op.properties["permutation_map"] = AffineMapAttr(
        AffineMap(map_.num_dims, 0, tuple(map_.results[axis] for axis in walked))
    )
    if isinstance(flags := op.properties.get("in_bounds"), ArrayAttr):
        op.properties["in_bounds"] = ArrayAttr([flags.data[axis] for axis in walked])
    if isinstance(op, vector.TransferWriteOp):
        op.operands[0] = at.transpose(op.vector, walked)
        return
    shape = shape_of(op.result)
    kind = with_shape(op.result.type, [shape[axis] for axis in walked])
    made = vector.TransferReadOp.create(
        operands=op.operands, properties=op.properties, result_types=[kind]
    )
    at.replace(at.spread(at.add(made), walked, shape))


def _walked(op: vector.TransferReadOp | vector.TransferWriteOp) -> list[int]:
    """The vector's dimensions that walk along the memref's, in the order of these."""
    results = enumerate(op.permutation_map.data.results)
    found = [(r.position, axis) for axis, r in results if isinstance(r, AffineDimExpr)]
    return [axis for _, axis in sorted(found)]


def _mask_transfer(op: Any, mask: SSAValue, at: Before) -> None:
    both = at.also(op.mask, mask)
    if op.mask is None:
        op.operands = (*op.operands, both)
        *sizes, _ = op.properties["operandSegmentSizes"].get_values()
        op.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [*sizes, 1])
    else:
        op.operands = (*op.operands[:-1], both)


def _mask_gather(op: Any, mask: SSAValue, at: Before) -> None:
    op.operands[-2] = at.also(op.mask, mask)


def _mask_reduction(op: Any, mask: SSAValue, at: Before) -> None:
    source = op.operands[0]
    nothing = at.constant(source.type, neutral(kind_of(op), element_of(source.type)))
    op.operands[0] = at.add(arith.SelectOp(mask, source, nothing))


_MASKS: dict[type[Operation], Callable[[Any, SSAValue, Before], None]] = {
    vector.TransferReadOp: _mask_transfer,
    vector.TransferWriteOp: _mask_transfer,
    vector.ReductionOp: _mask_reduction,
    more.MultiReductionOp: _mask_reduction,
    more.GatherOp: _mask_gather,
    more.OuterProductOp: lambda op, mask, at: None,
}


# --- Memory ----------------------------------------------------------------------------------------


def _reshape(op: ReshapeOp, at: Before) -> None:
    result = op.result.type
    if not isinstance(result, MemRefType):
        raise unsupported(op, "memref.reshape to an unknown rank")
    sizes: list[SSAValue | int] = [*result.get_shape()]
    for dim, extent in enumerate(result.get_shape()):
        if extent < 0:
            size = at.add(memref.LoadOp.get(op.shape, [at.index(dim)]))
            is_index = isinstance(size.type, IndexType)
            sizes[dim] = size if is_index else at.add(arith.IndexCastOp(size, IndexType()))
    strides: list[SSAValue | int] = [1] * len(sizes)
    for dim in range(len(sizes) - 1, 0, -1):
        strides[dim - 1] = at.times(strides[dim], sizes[dim])
    at.replace(
        at.add(memref.ReinterpretCastOp.from_dynamic(op.source, [0], sizes, strides, result))
    )


def _generic_atomic(op: GenericAtomicRMWOp, at: Before) -> None:
    """One op of one of MLIR's kinds, on a value that the element has no part in; others are loops in the end."""
    body = list(op.atomic_body.block.ops)[:-1]
    outside = [inner for inner in body if isinstance(inner, arith.ConstantOp)]
    rest = [inner for inner in body if inner not in outside]
    if rest and op.new is rest[0].results[0] and len(rest) == 1:
        kind = KINDS_OF_ATOMICS.get(type(rest[0]))
        others = [v for v in rest[0].operands if v is not op.now]
        if kind is None or len(rest[0].operands) != 2 or len(others) != 1:
            return
        value = others[0]
    elif not rest and op.new is not op.now:
        kind, value = "assign", op.new
    else:
        return
    for inner in outside:
        inner.detach()
        at.insert(inner)
    number = IntegerAttr(ATOMIC_KINDS.index(kind), 64)
    at.replace(
        at.add(
            memref.AtomicRMWOp.create(
                operands=[value, op.memref, *op.indices],
                properties={"kind": number},
                result_types=[op.result.type],
            )
        )
    )


def _mem_desc_subview(op: Any, at: Before) -> None:
    """Whoever reads or writes the part does so in the whole, further on."""
    for use in list(op.part.uses):
        user = use.operation
        if user.name not in MATRIX_PLACES:
            raise unsupported(
                user,
                f"{user.name} of a part of a shared matrix: only loads, stores and parts of it are supported",
            )
        before = Before(user)
        offsets = zip(op.mixed_offsets, user.mixed_offsets, strict=True)  # pyright: ignore
        places = [before.plus(a, b) for a, b in offsets]
        static, dynamic = split_indices(places)
        user.operands = (*user.operands[: use.index], op.mem_desc, *dynamic)
        user.properties["const_offsets"] = static
    Rewriter.erase_op(op)


MATRIX_PLACES = ("xegpu.load_matrix", "xegpu.store_matrix", "xegpu.mem_desc_subview")


# --- Lanes -------------------------------------------------------------------------------------------


def _subgroup_broadcast(op: more_gpu.SubgroupBroadcastOp, at: Before) -> None:
    lane = at.constant(i32, 0) if op.lane is None else op.lane
    width = at.add(arith.IndexCastOp(at.add(gpu.SubgroupSizeOp()), i32))
    at.replace(at.add(more_gpu.ShuffleOp(op.src, lane, width, "idx")))


def _rotate(op: more_gpu.RotateOp, at: Before) -> None:
    width = op.width
    lane = at.add(gpu.LaneIdOp())
    further = at.add(arith.AddiOp(lane, at.index(op.offset)))
    place = at.add(arith.AndIOp(further, at.index(width - 1)))
    source = at.add(arith.IndexCastOp(place, i32))
    value = at.add(more_gpu.ShuffleOp(op.value, source, at.constant(i32, width), "idx"))
    at.replace(value, at.compare("ult", lane, width))


def _lane_shuffle(op: Any, at: Before) -> None:
    """Each element from the lane and the register that have it; which register, a lane knows only when it runs."""
    source, kind = op.source, op.source.type
    count = shape_of(source)[0]
    width = at.add(gpu.SubgroupSizeOp())
    lane, lanes = at.add(gpu.LaneIdOp()), at.add(arith.IndexCastOp(width, i32))
    registers = [at.add(vector.ExtractOp(source, [n], kind.element_type)) for n in range(count)]
    made: list[SSAValue] = []
    for n in range(count):
        step = at.index(n)
        if op.pack:
            first = at.add(arith.MuliOp(lane, at.index(count)))
            place = at.add(arith.AddiOp(first, step))
            holder = at.add(arith.RemUIOp(place, width))
            register = at.add(arith.DivUIOp(place, width))
        else:
            place = at.add(arith.AddiOp(at.add(arith.MuliOp(width, step)), lane))
            holder = at.add(arith.DivUIOp(place, at.index(count)))
            register = at.add(arith.RemUIOp(place, at.index(count)))
        whose = at.add(arith.IndexCastOp(holder, i32))
        found = [at.add(more_gpu.ShuffleOp(r, whose, lanes, "idx")) for r in registers]
        chosen = found[0]
        for number, other in enumerate(found[1:], 1):
            hit = at.compare("eq", register, number)
            chosen = at.add(arith.SelectOp(hit, other, chosen))
        made.append(chosen)
    at.replace(_inserted(at, made, kind))


def _as(conversion: Any) -> Rule:
    """The conversion of arith."""
    return lambda op, at: at.replace(at.add(conversion(op.source, op.result.type)))


EXPANSIONS: dict[str, Rule] = {
    "scf.execute_region": execute_region,
    "scf.index_switch": index_switch,
    "affine.apply": affine_map,
    "affine.min": affine_map,
    "affine.max": affine_map,
    "affine.delinearize_index": delinearize_index,
    "affine.linearize_index": linearize_index,
    "math.isnan": _isnan,
    "math.isinf": _against_infinity("oeq"),
    "math.isfinite": _against_infinity("olt"),
    "math.isnormal": _isnormal,
    "math.sincos": _sincos,
    "math.clampf": _clampf,
    "math.erfc": erfc,
    "math.fpowi": float_power,
    "math.ipowi": integer_power,
    "vector.from_elements": _from_elements,
    "vector.to_elements": _to_elements,
    "vector.outerproduct": _outerproduct,
    "vector.compressstore": _dense,
    "vector.expandload": _dense,
    "vector.scan": _scan,
    "vector.mask": _mask,
    **_BOXES,
    "vector.transfer_read": _transfer,
    "vector.transfer_write": _transfer,
    "memref.reshape": _reshape,
    "memref.generic_atomic_rmw": _generic_atomic,
    "gpu.subgroup_broadcast": _subgroup_broadcast,
    "gpu.rotate": _rotate,
    "xegpu.dpas_mx": product_without_scales,
    "xegpu.extf": _as(arith.ExtFOp),
    "xegpu.truncf": _as(arith.TruncFOp),
    "xegpu.lane_shuffle": _lane_shuffle,
    "xegpu.mem_desc_subview": _mem_desc_subview,
}
"""The expansion of each op."""

EXPAND_OPS = Pass[Unit[Any]]("expand-ops", expand_ops, given="module")
