"""Rules of block descriptors and of load_nd, store_nd, prefetch_nd.

An op stands at any level, so a shape rule accepts what is right at one of them: the whole
descriptor (workgroup, subgroup), or one lane's fragment of it. Limits of a machine are the business
of `xegpu-check-legal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.strict import narrower
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu import distribution
from tilewright.dialects.xegpu.attrs import MemorySpace
from tilewright.dialects.xegpu.layouts import LayoutAttr, SliceAttr
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
    from tilewright.dialects.xegpu import block, descriptors


def verify_create_nd_tdesc(op: descriptors.CreateNdDescOp) -> None:
    source, tdesc = op.source.type, op.tdesc
    check_scattered(tdesc, False)
    check_base(source, tdesc)
    rank = len(tdesc.get_shape())
    shape, strides = op.mixed_shape, op.mixed_strides
    if isinstance(source, MemRefType):
        if DYNAMIC_INDEX in source.get_shape() and not shape:
            narrower(op, "expecting strides and shape to be present for a memref of dynamic shape.")
        base_rank = len(source.get_shape())
    else:
        if rank > 1 and not (shape and strides):
            raise VerifyException("expecting strides and shape to be present for integer source.")
        base_rank = len(shape) or max(rank, len(op.mixed_offsets))
    if bool(shape) != bool(strides):
        raise VerifyException("expecting strides and shape to be given together.")
    lengths = {len(values) for values in (shape, strides) if values} | {base_rank}
    if len(lengths) > 1:
        raise VerifyException(
            "Expecting the rank of shape, strides, and source (if source is a memref) should match "
            f"with each other, got {len(shape)}, {len(strides)} and {base_rank}."
        )
    if rank > base_rank:
        raise VerifyException(
            "Expecting the TensorDesc rank is not greater than the ranks of shape, strides or the "
            f"memref source: {rank} > {base_rank}."
        )
    offsets = op.mixed_offsets
    if "const_offsets" in op.properties and len(offsets) not in (base_rank, 0):
        # Generation C puts an n-D descriptor's n offsets on the op; here one per base dimension.
        raise VerifyException(
            f"expected one offset per dimension of the source, got {len(offsets)} for rank {base_rank}"
        )
    owners = check_ownership(op, "layout", tdesc.ownership)
    if owners is not None and distribution.is_shared(owners, tdesc.get_shape()):
        narrower(op, f"cannot distribute {brackets(tdesc.get_shape())} using {owners}")
    if tdesc.space is MemorySpace.SLM and rank > 1:
        narrower(op, "SLM is only supported for 1D block tensor")


def verify_update_nd_offset(op: descriptors.UpdateNdOffsetOp) -> None:
    tdesc = op.tdesc
    check_scattered(tdesc, False)
    count = len(op.mixed_offsets)
    if count < len(tdesc.get_shape()):
        raise VerifyException(
            f"Invalid number of offsets: {count} for a TensorDesc of rank {len(tdesc.get_shape())}."
        )


def _verify_block(op: block.BlockAccess) -> None:
    tdesc = op.tdesc
    check_scattered(tdesc, False)
    offsets, rank = op.mixed_offsets, len(tdesc.get_shape())
    if offsets is not None and len(offsets) != rank:
        words = f"Mismatched ranks between offsets and tensor descriptor: {len(offsets)} and {rank}"
        if len(offsets) < rank:
            raise VerifyException(words)
        narrower(op, words)
    if rank > 2:
        narrower(op, "Expects a 1D or 2D TensorDesc.")
    check_ownership(op, "layout", op.layout)


def _verify_layout_distributes(op: block.BlockAccess) -> None:
    layout = op.layout
    if isinstance(layout, (LayoutAttr, SliceAttr)):
        shape = op.tdesc.get_shape()
        fault = distribution.fault(layout, shape)
        if fault is not None:
            raise VerifyException(
                f"TensorDesc shape is not distributable with the layout {layout}: {fault}"
            )


def verify_prefetch_nd(op: block.PrefetchNdOp) -> None:
    _verify_block(op)
    check_hints(op, READ_HINTS, READ_HINTS)
    if op.locality is not None and not 0 <= op.locality <= 3:
        raise VerifyException(f"locality is 0, 1, 2 or 3, got {op.locality}")
    _verify_layout_distributes(op)


def _verify_element(value: Attribute, tdesc: TensorDescType) -> None:
    if element_of(value) != tdesc.element_type:
        raise VerifyException(
            f"value and TensorDesc must have the same element type, got {value} and {tdesc}"
        )


def verify_load_nd(op: block.LoadNdOp) -> None:
    _verify_block(op)
    check_hints(op, READ_HINTS, READ_HINTS)
    tdesc, value = op.tdesc, op.value.type
    _verify_element(value, tdesc)
    shape = tdesc.get_shape()
    _verify_permutation(op, shape)
    if op.packed:
        if op.transposes:
            raise VerifyException("packed and transpose cannot be combined")
        if not _packs(shape, tdesc.element_type):
            narrower(op, "Invalid Packed Attr. It is ignored (available for 2D TensorDesc only).")
    given = shape_of_type(value)
    whole = given in whole_shapes(op)
    if check_sg_map(op, "Result", given, whole):
        return
    if whole:
        _verify_layout_distributes(op)
        return
    # In text without `packed` on it, a 3-D result of a 2-D block is the packed one.
    if not op.packed and _packs(shape, tdesc.element_type) and not op.transposes:
        packed = packed_shape(shape, tdesc.element_type)
        if given in load_shapes(packed, tdesc.array_length):
            narrower(op, f"Result shape {brackets(given)} needs the attribute packed")
            return
    _verify_fragment(op, given, "Result")


def _verify_permutation(op: block.LoadNdOp, shape: tuple[int, ...]) -> None:
    permutation = op.transpose
    if permutation is not None and sorted(permutation) != list(range(len(shape))):
        raise VerifyException(
            f"Invalid transpose attr {brackets(permutation)} for a TensorDesc of rank {len(shape)}"
        )


def _packs(shape: Sequence[int], element: Attribute) -> bool:
    """Can rows of this block be packed to 32 bits?"""
    factor = max(1, 32 // element_bits(element))
    return len(shape) == 2 and factor > 1 and shape[0] % factor == 0


def packed_shape(shape: Sequence[int], element: Attribute) -> tuple[int, ...]:
    """`[K, N]` -> `[K/p, N, p]` (VNNI); unchanged where packing means nothing."""
    if not _packs(shape, element):
        return tuple(shape)
    factor = 32 // element_bits(element)
    return (shape[0] // factor, shape[1], factor)


def full_load_shape(op: block.LoadNdOp) -> tuple[int, ...]:
    """The shape of one block as load_nd gives it: packed, or transposed in units of the bit width."""
    tdesc = op.tdesc
    shape = tdesc.get_shape()
    if op.packed and not op.transposes:
        return packed_shape(shape, tdesc.element_type)
    permutation = op.transpose
    if permutation is None or not op.transposes:
        return shape
    if op.transpose_bit_width is None or len(shape) != 2:
        return tuple(shape[d] for d in permutation)
    width, bits = op.transpose_bit_width, element_bits(tdesc.element_type)
    if width < bits or width % bits or shape[1] % op.together:
        raise VerifyException(
            f"transpose_bit_width {width} is not a multiple of {bits} bits that divides rows of "
            f"{shape[1]} elements"
        )
    return (shape[1] // op.together, shape[0] * op.together)


def whole_shapes(op: block.LoadNdOp) -> tuple[tuple[int, ...], ...]:
    """Every shape that a load may give its whole descriptor in: elements that a transpose keeps together side by
    side, or, as B's operand has them, innermost. The numbers are the same in row-major order."""
    blocks = [full_load_shape(op)]
    if op.transposes and op.together > 1:
        rows, columns = blocks[0]
        blocks.append((rows, columns // op.together, op.together))
    return tuple(shape for each in blocks for shape in load_shapes(each, op.tdesc.array_length))


def load_shapes(block: tuple[int, ...], array_length: int) -> tuple[tuple[int, ...], ...]:
    """Accepted shapes of a load of `array_length` blocks: [n, ..], or stacked in the first dimension."""
    if array_length == 1:
        return (block,)
    return ((array_length, *block), (array_length * block[0], *block[1:]))


def _verify_fragment(op: block.BlockAccess, given: tuple[int, ...], what: str) -> None:
    """A shape that is not the descriptor's must be what one lane holds of it."""
    tdesc = op.tdesc
    total = prod(tdesc.get_shape()) * tdesc.array_length
    if len(given) != 1:
        raise VerifyException(
            f"{what} shape {brackets(given)} is not consistent with tensor descriptor {tdesc}"
        )
    if total % given[0]:
        raise VerifyException(
            f"{what} shape {brackets(given)} is not a valid distribution for tensor descriptor {tdesc}"
        )
    if given[0] == total:  # a tile in a row: no machine has one lane
        narrower(
            op, f"{what} shape {brackets(given)} is not consistent with tensor descriptor {tdesc}"
        )
    words = f"{what} shape {brackets(given)}: TensorDesc doesn't need LayoutAttr for SIMT code"
    if op.ownership is not None and op.ownership.is_workgroup():
        raise VerifyException(words)
    if tdesc.ownership is not None:
        narrower(op, words)


def verify_store_nd(op: block.StoreNdOp) -> None:
    _verify_block(op)
    check_hints(op, WRITE_HINTS, RFC_WRITE_HINTS)
    tdesc, value = op.tdesc, op.value.type
    _verify_element(value, tdesc)
    if tdesc.array_length > 1:
        raise VerifyException("array length is not supported by store_nd.")
    given = shape_of_type(value)
    whole = given == tdesc.get_shape()
    if check_sg_map(op, "Value", given, whole):
        return
    if whole:
        _verify_layout_distributes(op)
        return
    _verify_fragment(op, given, "Value")
