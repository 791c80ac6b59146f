"""xegpu-upgrade: the older generations of XeGPU text become today's.

Requires: XeGPU at any level. Guarantees: the same values, and
- no offsets on create_nd_tdesc, no update_nd_offset: load_nd, store_nd and prefetch_nd carry offsets;
- no create_tdesc, no update_offset: scattered ops take base and offsets;
- no sg_map: `layout` on the op at subgroup level, plain 1-D fragments at lane level, but where these have other
  elements than a block message gives: there it is the op's `layout`;
- `transpose` on gathers is a vector.transpose; a 3-D A operand of dpas is 2-D; a 3-D result of load_nd
  has `packed`; 2-D block descriptors of shared memory are mem_descs;
- vector.gather and vector.scatter of a kernel are xegpu.load and xegpu.store.

    %t = xegpu.create_nd_tdesc %m[%i, 0] : ..           %t = xegpu.create_nd_tdesc %m : ..
    scf.for .. iter_args(%a = %t) {              ->     scf.for .. iter_args(%y = %c0) {
      %v = xegpu.load_nd %a : ..                          %v = xegpu.load_nd %t[%i, %y] : ..
      %b = xegpu.update_nd_offset %a, [0, 32]             %z = arith.addi %y, %c32 : index
      scf.yield %b }                                      scf.yield %z }

A descriptor of an n-D base keeps one offset per dimension of the base.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import IntegerType, MemRefType, ModuleOp, NoneAttr, VectorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import UnsupportedError, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.cache_hints import hints_of
from tilewright.dialects.movement import shape_of, vector_type
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.upstream.vector import GatherOp, ScatterOp
from tilewright.dialects.xegpu.elements import loaded, multiplied, stored
from tilewright.dialects.xegpu.layouts import Ownership, SgMapAttr
from tilewright.dialects.xegpu.rules_block import (
    full_load_shape,
    load_shapes,
    packed_shape,
    whole_shapes,
)
from tilewright.dialects.xegpu.types import MemDescType, MemorySpace, TensorDescType
from tilewright.dialects.xetile.assembly import Index
from tilewright.dialects.xetile.mma import matrix_dims
from tilewright.passes.emit import Before
from tilewright.passes.positions import Placed, PositionRewriter, add
from tilewright.passes.strided_memrefs import strided_memrefs
from tilewright.passes.vector_elements import indexed


def upgrade(module: ModuleOp) -> None:
    """Upgrades older text to today's: offsets on memory ops."""
    strided_memrefs(module)
    for owner in list(module.walk()):
        if isinstance(owner, xegpu.DpasOp):
            _upgrade_dpas(owner)
    for kernel in [f for f in module.walk() if isinstance(f, gpu.FuncOp)]:
        gathers_as_loads(kernel)
    for region in module.regions:
        PositionRewriter(Modernizer()).run(region)


OLD = (xegpu.UpdateNdOffsetOp, xegpu.CreateDescOp, xegpu.UpdateOffsetOp)


def upgrade_older(module: ModuleOp) -> None:
    """Upgrades older text of a lane: its own offset instead of a descriptor of all lanes' offsets. Text of other
    levels that comes to a later pass alone is brought to today's form, too."""
    if any(
        isinstance(op, OLD) or (isinstance(op, xegpu.CreateNdDescOp) and op.has_offsets)
        for op in module.walk()
    ):
        upgrade(module)


def _upgrade_dpas(op: xegpu.DpasOp) -> None:
    """2-D A at subgroup level; 1-D fragments at lane level instead of [units, packed]."""
    at = Before(op)
    layouts = [_today(layout) for layout in op.layouts]
    lhs, rhs, acc, result = op.lhs, op.rhs, op.acc, op.result.type
    fragments = matrix_dims(lhs.type, rhs.type) is None and len(result.get_shape()) == 2
    if fragments:
        lhs, rhs = (at.cast(v, (prod(shape_of(v)),)) for v in (lhs, rhs))
        acc = None if acc is None else at.cast(acc, (prod(shape_of(acc)),))
        layouts: list[Ownership | None] = [None, None, None]
        new_type = VectorType(result.element_type, (prod(result.get_shape()),))
    elif len(shape_of(lhs)) == 3:
        m, k, p = shape_of(lhs)
        lhs = at.cast(lhs, (m, k * p))
        new_type = result
    elif layouts != list(op.layouts):
        new_type = result
    else:
        return
    new = xegpu.DpasOp(lhs, rhs, acc, new_type, *layouts)
    if fragments and not _same(multiplied, op, new):
        new.properties |= {n: v for n, v in op.properties.items() if n.startswith("layout")}
    new.attributes |= op.attributes
    at.replace(at.cast(at.add(new), result.get_shape()))


def _today(layout: Ownership | None) -> Ownership | None:
    return layout.to_layout() if isinstance(layout, SgMapAttr) else layout


class Modernizer:
    """What XeGPU's ops are to the splitting into base and position."""

    def is_moving(self, type: Attribute) -> bool:
        return isinstance(type, TensorDescType)

    def root(self, op: Operation) -> Placed | None:
        if isinstance(op, xegpu.CreateDescOp):
            if op.tdesc.space is MemorySpace.SLM and not isinstance(op.source.type, MemRefType):
                raise unsupported(
                    op,
                    "today's text has no scattered access to shared memory by integer address; make "
                    "the base a memref in memory space 3",
                )
            return Placed(op.source, [op.offsets])
        if not isinstance(op, xegpu.CreateNdDescOp):
            return None
        offsets = op.mixed_offsets or [0] * len(op.tdesc.get_shape())
        if op.tdesc.space is MemorySpace.SLM and len(op.tdesc.get_shape()) > 1:
            return Placed(_shared_matrix(op), offsets)
        if "const_offsets" not in op.properties and op.tdesc.sg_map is None:
            return Placed(op.result, offsets)
        encoding = None if isinstance(op.tdesc.encoding, NoneAttr) else op.tdesc.encoding
        layout = None if op.tdesc.sg_map is not None else op.tdesc.ownership
        type = TensorDescType(op.tdesc.get_shape(), op.tdesc.element_type, encoding, layout)
        new = xegpu.CreateNdDescOp(
            op.source,
            type,
            shape=op.mixed_shape if "const_shape" in op.properties else None,
            strides=op.mixed_strides if "const_strides" in op.properties else None,
        )
        new.attributes |= op.attributes
        new.result.name_hint = op.result.name_hint
        return Placed(Before(op).add(new), offsets)

    def movable(self, created: Placed) -> int:
        return len(created.parts)

    def moved(self, op: Operation, operand: Placed) -> list[Index] | None:
        match op:
            case xegpu.UpdateNdOffsetOp():
                return op.mixed_offsets
            case xegpu.UpdateOffsetOp():
                return [op.offsets]
            case _:
                return None

    def access(self, op: Operation, placed: dict[int, Placed]) -> None:
        at = next(iter(placed.values()))
        match op:
            case xegpu.LoadNdOp():
                _load_nd(op, at)
            case xegpu.StoreNdOp():
                _store_nd(op, at)
            case xegpu.PrefetchNdOp():
                _prefetch_nd(op, at)
            case xegpu.ScatterAccess():
                _scattered(op, at)
            case _:
                raise unsupported(
                    op, f"{op.name} takes a descriptor, which only XeGPU's ops and scf's can follow"
                )


# --- Blocks --------------------------------------------------------------------------------


def _shared_matrix(op: xegpu.CreateNdDescOp) -> SSAValue:
    """The whole shared memref as a mem_desc."""
    source = op.source.type
    if not isinstance(source, MemRefType) or not isinstance(source.layout, NoneAttr):
        raise unsupported(
            op, f"a 2-D block of shared memory needs a memref of identity layout, got {source}"
        )
    return Before(op).add(
        xegpu.CreateMemDescOp(op.source, MemDescType(source.get_shape(), source.element_type))
    )


def _position(op: xegpu.BlockAccess, placed: Placed) -> list[Index]:
    own = op.mixed_offsets or []
    parts = placed.parts
    own = [*([0] * (len(parts) - len(own))), *own]
    parts = [*([0] * (len(own) - len(parts))), *parts]
    return [add(a, b, op) for a, b in zip(parts, own, strict=True)]


def _layout(op: xegpu.BlockAccess, whole: bool) -> Ownership | None:
    """The layout to write on the op: that of an sg_map at subgroup level; fragments have none."""
    layout = op.layout
    if layout is None and op.tdesc.sg_map is not None:
        layout = op.tdesc.sg_map
    if isinstance(layout, SgMapAttr):
        return layout.to_layout() if whole else None
    return layout  # pyright: ignore[reportReturnType]


def _load_nd(op: xegpu.LoadNdOp, placed: Placed) -> None:
    at = Before(op)
    result = op.value.type
    offsets = _position(op, placed)
    shape = result.get_shape()
    if isinstance(placed.root.type, MemDescType):
        value = at.add(xegpu.LoadMatrixOp(placed.root, result, offsets, layout=_layout(op, True)))
        at.replace(value)
        return
    tdesc = op.tdesc
    whole = shape in whole_shapes(op)
    if whole and op.transposes and op.together > 1:
        shape = load_shapes(full_load_shape(op), tdesc.array_length)[0]
    packed, bits = op.packed, op.transpose_bit_width
    if not whole and shape in load_shapes(
        packed_shape(tdesc.get_shape(), tdesc.element_type), tdesc.array_length
    ):
        whole = packed = True
    sg_map = op.ownership
    if isinstance(sg_map, SgMapAttr) and not whole:
        data = ints(sg_map.wi_data)
        packed = packed or (data[0] > 1 and not op.transposes)
        if op.transposes and data[1] > 1:
            bits = data[1] * element_bits(tdesc.element_type)
        shape = (prod(shape),)
    new = xegpu.LoadNdOp(
        placed.root,
        VectorType(result.element_type, shape),
        offsets,
        packed=packed,
        transpose=op.transpose,
        transpose_bit_width=bits,
        layout=_layout(op, whole),
        hints=hints_of(op),
    )
    new.attributes |= op.attributes
    if not whole:
        _with_map(op, new, loaded)
    at.replace(at.cast(at.add(new), result.get_shape()))


def keeps_map(op: Operation) -> bool:
    """Whether a lane's op says by an sg_map which elements it has: others than a message or instruction gives."""
    return any(isinstance(each, SgMapAttr) for each in op.properties.values())


def _same(places: Callable[[Any, int], Any], old: Any, new: Any) -> bool:
    """Whether lanes own the same by a new op without maps, if it is any of a message or instruction."""
    owned = places(old, 1)
    try:
        given = places(new, 1)
    except UnsupportedError:
        return False
    return all((a.reshape(-1) == b.reshape(-1)).all() for a, b in zip(owned, given, strict=True))


def _with_map(old: Any, new: Any, places: Callable[[Any, int], Any]) -> None:
    """A lane's fragment that has others by its sg_map than by what a block message distributes keeps the map."""
    if not _same(lambda op, lanes: [places(op, lanes)], old, new):
        for name in ("packed", "transpose", "transpose_bit_width"):
            new.properties.pop(name, None)
        new.properties["layout"] = old.ownership


def _store_nd(op: xegpu.StoreNdOp, placed: Placed) -> None:
    at = Before(op)
    offsets = _position(op, placed)
    shape = shape_of(op.value)
    whole = shape == op.tdesc.get_shape()
    value = op.value
    if isinstance(placed.root.type, MemDescType):
        new: Operation = xegpu.StoreMatrixOp(value, placed.root, offsets, layout=_layout(op, True))
    else:
        if not whole:
            value = at.cast(value, (prod(shape),))
        new = xegpu.StoreNdOp(
            value, placed.root, offsets, layout=_layout(op, whole), hints=hints_of(op)
        )
        if not whole:
            _with_map(op, new, stored)
    new.attributes |= op.attributes
    at.insert(new)
    at.replace()


def _prefetch_nd(op: xegpu.PrefetchNdOp, placed: Placed) -> None:
    if not isinstance(placed.root.type, MemDescType):  # shared memory has no cache
        place, layout = _position(op, placed), _layout(op, False)
        new = xegpu.PrefetchNdOp(placed.root, place, op.locality, layout=layout, hints=hints_of(op))
        new.attributes |= op.attributes
        Before(op).insert(new)
    Rewriter.erase_op(op)


# --- Scattered -------------------------------------------------------------------------------


def _scattered(op: xegpu.ScatterAccess, placed: Placed) -> None:
    """The op with base and offsets; that of a lane has its own of the offsets and of the mask."""
    at, tdesc, offsets = Before(op), op.tdesc, placed.parts[0]
    assert tdesc is not None and isinstance(offsets, SSAValue)
    layout = None if isinstance(op.ownership, SgMapAttr) else op.ownership
    if isinstance(op, xegpu.PrefetchOp):
        by_address = isinstance(placed.root.type, IntegerType)
        align = element_bits(tdesc.element_type) // 8 if by_address else None
        at.insert(
            xegpu.PrefetchOp(placed.root, align, offsets=offsets, layout=layout, hints=hints_of(op))
        )
        at.replace()
        return
    assert isinstance(op, xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp)
    given, chunk, mask = vector_type(op.value), op.chunk if op.chunk > 1 else None, op.mask
    shape = (*op.lanes, chunk) if chunk else op.lanes
    if given.get_shape() not in (shape, tuple(reversed(shape))):
        lane, shape = at.add(gpu.LaneIdOp()), (op.chunk,)
        offsets, mask = _one_lane(at, offsets, lane), _one_lane(at, mask, lane)
    turned = "transpose" in op.properties and len(shape) == 2
    kind, root, hints = VectorType(given.element_type, shape), placed.root, hints_of(op)
    if isinstance(op, xegpu.LoadGatherOp):
        new = xegpu.LoadGatherOp(
            root, mask, kind, chunk, offsets=offsets, layout=layout, hints=hints
        )
        value = at.add(new)
        at.replace(at.cast(at.transpose(value) if turned else value, given.get_shape()))
        return
    value = at.cast(at.transpose(op.value) if turned else op.value, shape)
    if isinstance(op, xegpu.StoreScatterOp):
        at.insert(
            xegpu.StoreScatterOp(
                value, root, mask, chunk, offsets=offsets, layout=layout, hints=hints
            )
        )
        at.replace()
        return
    new = xegpu.AtomicRMWOp(op.kind, root, mask, value, chunk, offsets=offsets, layout=layout)
    at.replace(at.cast(at.add(new), given.get_shape()))


def _one_lane(at: Before, values: SSAValue, lane: SSAValue) -> SSAValue:
    shape = shape_of(values)
    if not shape:
        return values
    element = vector_type(values)
    flat = at.cast(values, (prod(shape),))
    position: list[SSAValue | int] = [0] if prod(shape) == 1 else [lane]
    return at.add(vector.ExtractOp(flat, position, element.element_type))


def gathers_as_loads(root: Operation) -> None:
    """vector.gather and vector.scatter as XeGPU's scattered ops, which every level has, of everything inside of an op.

    %v = vector.gather %m[%i, %j] [%o], %k, %p : memref<8x64xf32>, vector<16xindex>, ..
    ->
    %f = memref.reinterpret_cast %m to offset: [0], sizes: [512], strides: [1] : memref<8x64xf32> to ..
    %x = xegpu.load %f[%o + (64 * %i + %j)], %k : memref<512xf32, ..>, vector<16xindex>, vector<16xi1> -> ..
    %v = arith.select %k, %x, %p
    """
    for op in list(root.walk()):
        if not isinstance(op, GatherOp | ScatterOp) or not isinstance(op.base.type, MemRefType):
            continue
        at = Before(op)
        base, offsets = indexed(at, op.base, op.offsets, op.indices)
        if isinstance(op, GatherOp):
            loaded = at.add(xegpu.LoadGatherOp(base, op.mask, op.result.type, offsets=offsets))
            at.replace(at.add(arith.SelectOp(op.mask, loaded, op.pass_thru)))
        else:
            at.insert(xegpu.StoreScatterOp(op.valueToStore, base, op.mask, offsets=offsets))
            Rewriter.erase_op(op)
