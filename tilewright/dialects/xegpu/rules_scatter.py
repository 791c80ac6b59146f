"""Rules of scattered descriptors, gathers, scatters, prefetches and atomics."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, VectorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.attribute_fields import ints
from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.strict import narrower
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.xegpu.attrs import CHUNK_SIZES
from tilewright.dialects.xegpu.layouts import LayoutAttr, SgMapAttr
from tilewright.dialects.xegpu.rules import (
    READ_HINTS,
    RFC_WRITE_HINTS,
    WRITE_HINTS,
    brackets,
    check_base,
    check_hints,
    check_ownership,
    check_scattered,
    check_sg_map,
)
from tilewright.dialects.xegpu.types import TensorDescType

if TYPE_CHECKING:
    from tilewright.dialects.xegpu import atomic, descriptors, scatter


def verify_create_tdesc(op: descriptors.CreateDescOp) -> None:
    check_scattered(op.tdesc, True)
    check_base(op.source.type, op.tdesc, "0D or 1D memref")
    _verify_offsets(op.offsets.type, op.tdesc)
    _verify_lanes(op)


def _verify_lanes(op: descriptors.CreateDescOp) -> None:
    """A lane owns the chunk of one address, side by side."""
    owners = check_ownership(op, "layout", op.tdesc.ownership)
    unit = None
    if isinstance(owners, SgMapAttr):
        unit = ints(owners.wi_data)[-len(op.tdesc.get_shape()) :]
    elif isinstance(owners, LayoutAttr):
        unit = owners.field("lane_data")
    if unit is None or unit[0] == 1:
        return
    if len(unit) == 1:
        narrower(op, "work item data mapping must match the number of contiguous elements")
    else:
        narrower(op, "cannot map over non-contiguous scattered row elements")


def verify_update_offset(op: descriptors.UpdateOffsetOp) -> None:
    check_scattered(op.tdesc, True)
    _verify_offsets(op.offsets.type, op.tdesc)


def _verify_offsets(type: Attribute, tdesc: TensorDescType | None = None) -> None:
    """Offsets, one for each lane of a descriptor."""
    element = element_of(type)
    wide = isinstance(element, IntegerType) and element.width.data in (16, 32, 64)
    if not wide and not isinstance(element, IndexType):
        raise VerifyException(f"offsets must be of index or integer type, got {type}")
    if tdesc is not None and (given := shape_of_type(type)) != tdesc.lanes:
        here = f"offsets are {brackets(given)}, lanes {brackets(tdesc.lanes)}"
        raise VerifyException(f"Expecting one offset per lane: {here}.")


def _verify_scatter(op: scatter.ScatterAccess) -> None:
    source, offsets = op.source_operand.type, op.offsets_operand
    check_ownership(op, "layout", op.layout)
    if isinstance(source, TensorDescType):
        check_scattered(source, True)
        if offsets is not None:
            raise VerifyException("offsets belong to a base; a TensorDesc has its own")
        return
    check_base(source, row="1D memref of integer or float")
    if offsets is None:
        raise VerifyException("Expecting offsets for a base that is not a TensorDesc.")
    _verify_offsets(offsets.type)
    if op.chunk not in CHUNK_SIZES:
        raise VerifyException(f"invalid chunk size {op.chunk}")


def _verify_value_and_mask(
    op: scatter.ScatterAccess, value: Attribute, mask: Attribute, transposed: bool
) -> None:
    """Rules on shapes; the RFC's `transpose` exchanges lanes and chunk in the value."""
    source = op.source_operand.type
    element = source.element_type if isinstance(source, (TensorDescType, MemRefType)) else None
    if element is not None and element_of(value) != element:
        raise VerifyException(
            f"Value should have the same element type as MemRef or TensorDesc, got {value}, {element}."
        )
    lanes, chunk = op.lanes, op.chunk
    given = shape_of_type(value)
    if element_of(mask) != IntegerType(1):
        raise VerifyException(f"expected a mask of i1, got {mask}")
    if not isinstance(value, VectorType):
        if chunk != 1:
            raise VerifyException(f"Expecting chunk size == 1 for scalar result, got {chunk}.")
        scalar_mask = prod(shape_of_type(mask)) == 1
        if not scalar_mask or (op.tdesc is None and op.lane_count != 1):
            raise VerifyException("Expecting scalar mask and offsets.")
        return
    expected = lanes if chunk == 1 else (*lanes, chunk)
    if transposed and chunk > 1:
        expected = (chunk, *lanes)
    what = "Result" if op.results else "Value"
    if given == expected:
        if shape_of_type(mask) == lanes:
            check_sg_map(op, what, given, whole=True)
            return
        if not isinstance(mask, VectorType) and lanes:
            raise VerifyException("Expecting a vector type mask.")
        raise VerifyException(
            f"Mask should match value except the chunk size dim: {mask} and {value}."
        )
    if not check_sg_map(op, what, given, whole=False):
        _verify_scatter_fragment(op, given, mask, transposed)


def _verify_scatter_fragment(
    op: scatter.ScatterAccess, given: tuple[int, ...], mask: Attribute, transposed: bool
) -> None:
    """One lane's part: `[chunk]` or `[1]`."""
    chunk, lanes, tdesc = op.chunk, op.lanes, op.tdesc
    mask_lanes = shape_of_type(mask)
    if tdesc is not None:
        if len(given) == 1 and given[0] == chunk:
            return
        raise VerifyException(
            f"Value shape {brackets(given)} is not a valid distribution for tensor descriptor {tdesc}"
        )
    if prod(lanes) == 1 and prod(mask_lanes) == 1 and given in ((chunk,), (1, chunk)):
        return
    if chunk > 1 and (not given or (given[0] if transposed else given[-1]) != chunk):
        raise VerifyException(
            f"value elements must match chunk size {chunk}, got {brackets(given)}"
        )
    raise VerifyException(
        f"Mask should match value except the chunk size dim: value {brackets(given)}, offsets "
        f"{brackets(lanes)}, mask {brackets(mask_lanes)}, chunk size {chunk}."
    )


def verify_load_gather(op: scatter.LoadGatherOp) -> None:
    _verify_scatter(op)
    check_hints(op, READ_HINTS, READ_HINTS)
    _verify_value_and_mask(op, op.value.type, op.mask.type, op.transpose)


def verify_store_scatter(op: scatter.StoreScatterOp) -> None:
    _verify_scatter(op)
    check_hints(op, WRITE_HINTS, RFC_WRITE_HINTS)
    _verify_value_and_mask(op, op.value.type, op.mask.type, op.transpose)


def verify_prefetch(op: scatter.PrefetchOp) -> None:
    _verify_scatter(op)
    check_hints(op, READ_HINTS, READ_HINTS)
    align, source = op.offset_align_byte, op.source.type
    if isinstance(source, IntegerType) and align is None:
        raise VerifyException("offset_align_byte is required with integer source.")
    if not isinstance(source, IntegerType) and align is not None:
        raise VerifyException("offset_align_byte is only allowed with integer source.")
    if align is not None and align < 1:
        raise VerifyException(f"offset_align_byte is positive, got {align}")


def verify_atomic_rmw(op: atomic.AtomicRMWOp) -> None:
    from tilewright.dialects.xetile.kinds import FLOAT_ATOMICS, INTEGER_ATOMICS, accepts

    _verify_scatter(op)
    if op.result.type != op.value.type:
        raise VerifyException(
            "failed to verify that all of {tensorDesc, value, result} have same shape: "
            f"{op.value.type} and {op.result.type}"
        )
    if not accepts(FLOAT_ATOMICS, INTEGER_ATOMICS, op.kind, element_of(op.value.type)):
        raise VerifyException(f"atomic {op.kind} is not defined on {element_of(op.value.type)}")
    if op.tdesc is not None and op.tdesc.sg_map is None and op.tdesc.chunk_size > 1:
        given = shape_of_type(op.value.type)
        if given != op.tdesc.get_shape():
            raise VerifyException(
                "failed to verify that all of {tensorDesc, value, result} have same shape: "
                f"{op.tdesc} and {op.value.type}"
            )
    _verify_value_and_mask(op, op.value.type, op.mask.type, transposed=False)
