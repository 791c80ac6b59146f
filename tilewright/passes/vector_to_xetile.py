"""vector-to-xetile: transfers of vectors become tiles, products of matrices tile_mma.

    %s = memref.subview %b[%k, %j] [32, 64] [1, 1] : ..      %t = xetile.init_tile %b[%k, %j] : .. -> !xetile.tile<..>
    %v = vector.transfer_read %s[%c0, %c0], %pad : ..   ->   %v = xetile.load_tile %t : ..
    %d = vector.contract {..} %u, %v, %c : ..                %d = xetile.tile_mma %u, %v, %c : ..
    vector.transfer_write %d, %m[%i, %j] : ..                xetile.store_tile %d, ..

The tile has the layout of its memref: row-major, or column-major (`order = [0, 1]`) by its strides or its affine map.
What of a subview lies inside of it and fills it is a tile of what it is a part of; of another, the part is the matrix.
Requires: upstream dialects. Guarantees: the same results; no transfer and no contraction is left. Raises
UnsupportedError, and changes nothing, for another layout, for masks, and for contractions that are no product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects import arith, func, gpu, memref, vector
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    StringAttr,
    VectorType,
)
from xdsl.dialects.ub import PoisonOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.strided import strided_form
from tilewright.dialects.upstream.subview import static_parts
from tilewright.dialects.upstream.vector import ContractionOp
from tilewright.dialects.xetile.assembly import Index
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.emit import Before
from tilewright.passes.kernel import LEVEL

Transfer: TypeAlias = vector.TransferReadOp | vector.TransferWriteOp


def vector_to_xetile(function: gpu.FuncOp | func.FuncOp) -> None:
    """Rewrites one function or kernel, in place."""
    found = [op for op in function.walk() if isinstance(op, Transfer | ContractionOp)]
    transfers = [(op, _transfer(op)) for op in found if isinstance(op, Transfer)]
    for op in found:  # nothing is changed before all is known to have a form
        if isinstance(op, ContractionOp):
            _sides(op)
    for op, plan in transfers:
        _read(op, plan) if isinstance(op, vector.TransferReadOp) else _write(op, plan)
    for op in found:
        if isinstance(op, ContractionOp):
            _contract(op, _sides(op))
    for block in function.body.blocks:
        eliminate_dead(block)
    # A vector of any size is a workgroup's.
    function.attributes.setdefault(LEVEL, StringAttr("workgroup"))


def only_tiles(function: func.FuncOp) -> bool:
    """Whether a function of the host does nothing that a kernel cannot: it calls nothing and gives nothing back."""
    away = ("func.call", "memref.alloc", "memref.dealloc", "gpu.launch_func")
    plain = len(function.body.blocks) == 1 and not function.function_type.outputs.data
    return plain and not any(op.name in away for op in function.walk())


# What a transfer reaches. ----------------------------------------------------------------------------------------


class _Plan:
    """The tile of a transfer: its shape, and which dimensions of the vector its rows and columns are (-1: none)."""

    def __init__(self, op: Transfer) -> None:
        kind, map_ = op.source.type, op.permutation_map.data
        value = op.vector.type if isinstance(op, vector.TransferWriteOp) else op.result.type
        if not isinstance(kind, MemRefType):
            raise _refuse(op, "is of a tensor", "mlir-opt --one-shot-bufferize makes memrefs")
        if op.mask is not None:
            raise _refuse(
                op, "has a mask", "a tile ends where its matrix does: transfer without in_bounds"
            )
        assert isinstance(value, VectorType)
        rank = kind.get_num_dims()
        self.axes = [-1, -1]
        for axis, result in enumerate(map_.results):
            if isinstance(result, AffineConstantExpr):
                continue  # repeated
            place = result.position - (rank - 2) if isinstance(result, AffineDimExpr) else -1
            if place < 0:
                raise _refuse(
                    op, f"walks along dimensions of {map_}", "a tile is of the two innermost"
                )
            self.axes[place] = axis
        self.shape = [value.get_shape()[axis] if axis >= 0 else 1 for axis in self.axes]
        self.order = order_of(op, kind)


def order_of(op: Operation, kind: MemRefType[Attribute]) -> tuple[int, int]:
    """The order of a tile of a memref: (1, 0) of rows, (0, 1) of columns that are contiguous."""
    try:
        strides, _ = strided_form(kind)
    except TypeError as error:
        raise _refuse(op, f"is of {kind}: {error}", "give the memref strides") from None
    if not strides or strides[-1] == 1:
        return (1, 0)
    if len(strides) > 1 and strides[-2] == 1:
        return (0, 1)
    raise _refuse(
        op, f"is of {kind}, of whose two innermost dimensions none is contiguous",
        "a tile is row-major or column-major: copy the matrix, or transpose the other way",
    )  # fmt: skip


def _refuse(op: Operation, what: str, hint: str) -> UnsupportedError:
    rule = (
        "subview and transfer become a tile, which is row-major or column-major (RFC, appendix 1)"
    )
    error = error_at(op, f"{op.name} {what}", kind=UnsupportedError, rule=rule, hint=hint)
    assert isinstance(error, UnsupportedError)
    return error


def _transfer(op: Transfer) -> _Plan:
    plan = _Plan(op)
    if isinstance(op, vector.TransferReadOp):
        padding = op.padding.owner
        known = isinstance(padding, PoisonOp) or (
            isinstance(padding, arith.ConstantOp)
            and isinstance(padding.value, IntegerAttr | FloatAttr)
        )
        if not known:
            raise _refuse(
                op, "pads with a value that is no constant", "select where the mask says so"
            )
    elif -1 in plan.axes[-op.permutation_map.data.num_dims :] and len(shape_of(op.vector)) > 1:
        raise _refuse(op, f"repeats elements by {op.permutation_map.data}", "write them once")
    return plan


def _tile(before: Before, op: Transfer, plan: _Plan) -> SSAValue:
    source, offsets = op.source, [folded(i) for i in op.indices]
    flags = op.properties.get("in_bounds")
    inside = isinstance(flags, ArrayAttr) and all(
        isinstance(f, IntegerAttr) and bool(f.value.data) for f in flags
    )
    view = source.owner
    while isinstance(view, memref.SubviewOp) and (inside or _filled(view, offsets, plan.shape)):
        moved = _moved(before, view, offsets)
        if moved is None:
            break
        source, offsets = view.source, moved
        view = source.owner
    kind = source.type
    assert isinstance(kind, MemRefType)
    sizes: list[Index] = []
    strides: list[Index] = []
    numbers, _ = strided_form(kind)
    if DYNAMIC_INDEX in (*kind.get_shape(), *numbers):
        rank = kind.get_num_dims()
        made = memref.ExtractStridedMetaDataOp(source)
        before.insert(made)
        for d, (n, s) in enumerate(zip(kind.get_shape(), numbers, strict=True)):
            sizes.append(made.results[2 + d] if n == DYNAMIC_INDEX else n)
            strides.append(made.results[2 + rank + d] if s == DYNAMIC_INDEX else s)
    attributes = xetile.TileAttr(order=plan.order) if plan.order != (1, 0) else None
    tile = xetile.TileType(plan.shape, kind.element_type, attributes)
    return before.add(xetile.InitTileOp(source, tile, offsets, sizes=sizes, strides=strides))


def _filled(view: memref.SubviewOp, offsets: Sequence[Index], shape: Sequence[int]) -> bool:
    """Whether a tile that begins where a part does is as large as that, so that neither reaches outside."""
    sizes = view.result.type.get_shape()  # pyright: ignore
    lead = len(sizes) - len(shape)
    return all(o == 0 for o in offsets[lead:]) and list(sizes[lead:]) == list(shape)[-len(sizes) :]


def _moved(before: Before, view: memref.SubviewOp, offsets: Sequence[Index]) -> list[Index] | None:
    """Offsets in what a subview is a part of; None where they are not sums."""
    at, sizes, steps = static_parts(view)
    if any(step != 1 for step in steps):
        return None
    dynamic = iter(view.offsets)
    starts: list[Index] = [folded(next(dynamic)) if n == DYNAMIC_INDEX else n for n in at]
    dropped = len(sizes) - len(offsets)
    if dropped and (sizes[:dropped] != [1] * dropped):
        return None
    own = [*[0] * dropped, *offsets]
    return [before.plus(a, b) for a, b in zip(starts, own, strict=True)]


# What ops become. ------------------------------------------------------------------------------------------------


def _read(op: vector.TransferReadOp, plan: _Plan) -> None:
    before = Before(op)
    padding = op.padding.owner
    stated = padding.value if isinstance(padding, arith.ConstantOp) else None
    value = before.add(xetile.LoadTileOp(_tile(before, op, plan), _unless_zero(stated)))
    shape = shape_of(op.result)
    if min(plan.axes) >= 0 and plan.axes[0] > plan.axes[1]:
        value = before.add(xetile.TransposeOp(value))
    used = {a for a in plan.axes if a >= 0}
    value = before.cast(value, [n if axis in used else 1 for axis, n in enumerate(shape)])
    before.replace(before.broadcast(value, shape))


def _unless_zero(stated: Attribute | None) -> Attribute | None:
    zero = isinstance(stated, (IntegerAttr, FloatAttr)) and stated.value.data == 0
    return None if zero else stated


def _write(op: vector.TransferWriteOp, plan: _Plan) -> None:
    before = Before(op)
    value = op.vector
    if min(plan.axes) >= 0 and plan.axes[0] > plan.axes[1]:
        value = before.add(xetile.TransposeOp(value))
    value = before.cast(value, plan.shape)
    before.insert(xetile.StoreTileOp(value, _tile(before, op, plan)))
    before.replace()


def _sides(op: ContractionOp) -> tuple[tuple[SSAValue, bool], tuple[SSAValue, bool]]:
    """The operands that have the result's rows and columns, and whether each is the other way round."""
    maps = [m.data for m in op.indexing_maps]
    *sides, result = ([getattr(r, "position", -1) for r in m.results] for m in maps)
    if op.kind == "add" and maps[0].num_dims == 3 and len(set(result)) == 2 == len(result):
        rows, columns = result
        (k,) = {0, 1, 2} - set(result)
        for left, right in ((0, 1), (1, 0)):
            if sorted(sides[left]) == sorted((rows, k)) and sorted(sides[right]) == sorted(
                (k, columns)
            ):
                turned = sides[left] != [rows, k], sides[right] != [k, columns]
                return (op.operands[left], turned[0]), (op.operands[right], turned[1])
    listed = ", ".join(str(m) for m in maps)
    hint = "a contraction of another form is linalg, which linalg-to-xetile takes"
    raise _refuse(op, f"<{op.kind}> of {listed} is no product of two matrices", hint)


def _contract(op: ContractionOp, sides: Sequence[tuple[SSAValue, bool]]) -> None:
    before = Before(op)
    a, b = (before.add(xetile.TransposeOp(v)) if turned else v for v, turned in sides)
    before.replace(before.add(xetile.TileMmaOp(a, b, op.acc)))
