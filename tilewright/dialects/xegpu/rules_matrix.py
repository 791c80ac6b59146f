"""Rules of shared matrices and of barriers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.strict import narrower
from tilewright.dialects.upstream.arith import element as element_of
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu import distribution
from tilewright.dialects.xegpu.attrs import MemorySpace
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership, SliceAttr
from tilewright.dialects.xegpu.rules import source_space
from tilewright.dialects.xegpu.types import MemDescType

if TYPE_CHECKING:
    from tilewright.dialects.xegpu import matrix, sync

from tilewright.dialects.movement import shape_of_type
from tilewright.dialects.xegpu.rules import brackets, check_ownership


def verify_create_mem_desc(op: matrix.CreateMemDescOp) -> None:
    source, desc = op.source.type, op.desc
    if not isinstance(source, MemRefType):
        raise VerifyException(f"source must be a memref, got {source}")
    if source_space(source) is not MemorySpace.SLM or DYNAMIC_INDEX in source.get_shape():
        raise VerifyException(
            f"operand #0 must reside in share memory and be statically shaped, got {source}"
        )
    if len(source.get_shape()) != 1:
        narrower(op, "operand #0 must reside in share memory and statically 1d shaped memref")
    have = prod(source.get_shape()) * element_bits(source.element_type)
    want = prod(desc.get_shape()) * element_bits(desc.element_type)
    if have != want:
        raise VerifyException(
            f"failed to verify that source and mem_desc have same size in bits: {have} and {want}"
        )


def verify_subview(op: matrix.MemDescSubviewOp) -> None:
    whole, part = op.desc, op.part.type
    _one_offset_each(op, whole.get_shape())
    if part.element_type != whole.element_type:
        raise VerifyException(f"a part has its matrix' element type, got {part} of {whole}")
    if len(part.get_shape()) != len(whole.get_shape()) or any(
        n > m for n, m in zip(part.get_shape(), whole.get_shape(), strict=True)
    ):
        raise VerifyException(f"a part is no larger than its matrix, got {part} of {whole}")
    if (part.stride, part.block) != (whole.stride, whole.block):
        raise VerifyException(
            f"a part has its matrix' strides {brackets(whole.stride)} and blocks, got {part} of {whole}"
        )
    for offset, size in zip(op.mixed_offsets, whole.block or (), strict=False):
        if isinstance(offset, int) and offset % size:
            raise VerifyException(
                f"a part begins where a block of {size} does, got offset {offset}"
            )


def _one_offset_each(op: matrix.MatrixPlace, shape: tuple[int, ...]) -> None:
    if len(op.mixed_offsets) != len(shape):
        raise VerifyException(
            f"expected one offset per dimension of the mem_desc, got {len(op.mixed_offsets)} for "
            f"rank {len(shape)}"
        )


def verify_matrix_access(op: matrix.LoadMatrixOp | matrix.StoreMatrixOp) -> None:
    desc: MemDescType = op.desc
    value: Attribute = op.value.type
    shape = desc.get_shape()
    _one_offset_each(op, shape)
    if element_of(value) != desc.element_type:
        raise VerifyException(
            f"failed to verify that all of {{mem_desc, res}} have same element type: {value}, {desc}"
        )
    layout = check_ownership(op, "layout", op.layout)
    given = shape_of_type(value)
    if op.subgroup_block_io:
        _verify_block_io(op, desc, given, layout)
    if len(given) < 2:
        if prod(given) > prod(shape):
            raise VerifyException("data shape must not exceed mem_desc shape.")
        return
    if len(given) != len(shape):
        raise VerifyException(
            f"data and mem_desc must have the same rank, got {brackets(given)} and {brackets(shape)}"
        )
    if any(have > extent for have, extent in zip(given, shape, strict=True)):
        raise VerifyException(
            f"data shape must not exceed mem_desc shape: {brackets(given)}, {brackets(shape)}."
        )
    if isinstance(layout, (LayoutAttr, SliceAttr)):
        fault = distribution.fault(layout, given)
        if fault is not None:
            raise VerifyException(f"data shape is not distributable with the layout: {fault}")


def _verify_block_io(
    op: matrix.MatrixAccess, desc: MemDescType, given: tuple[int, ...], layout: Ownership | None
) -> None:
    """One block message moves consecutive elements, distributed to consecutive lanes."""
    block, stride = desc.block, desc.stride
    if not given:
        narrower(op, "subgroup_block_io is only allowed when the value is a vector")
    if len(given) == 1 and stride[-1] != 1:
        narrower(op, "mem_desc should be row major when subgroup_block_io is set.")
    if block is None and len(given) == 2 and given[0] > 1 and given[1] != desc.get_shape()[1]:
        raise VerifyException(
            "With subgroup_block_io, accessed data must be contiguous and coalesced: rows of "
            f"{given[1]} elements in a matrix with rows of {desc.get_shape()[1]}"
        )
    lanes = layout.field("lane_layout") if isinstance(layout, LayoutAttr) else None
    if (stride[-1] != 1 and stride[0] != 1) or any(
        count > 1 and step > 1 for count, step in zip(lanes or (), stride, strict=False)
    ):
        raise VerifyException(
            "With subgroup_block_io, the distributed dimensions must be contiguous: strides are "
            f"{brackets(stride)}"
        )
    if not isinstance(layout, LayoutAttr):
        return
    if any(size > 1 for size in (layout.field("lane_data") or ())[:-1]):
        raise VerifyException(
            f"With subgroup_block_io, accessed data must be contiguous and coalesced, got {layout}"
        )
    if block is None or lanes is None or len(lanes) != len(block) or block == tuple(lanes):
        return
    words = (
        "With subgroup_block_io, the block shape must match the lane layout: "
        f"{brackets(block)} and {brackets(lanes)}"
    )
    if any(size % count for size, count in zip(block, lanes, strict=True)):
        raise VerifyException(words)
    narrower(op, words)


def verify_alloc_nbarrier(op: sync.AllocNbarrierOp) -> None:
    if (op.total is None) == (op.nbarrier_num is None):
        raise VerifyException("expected the number of barriers, as a constant or as an operand")
    if op.count is not None and op.count < 1:
        raise VerifyException(f"the number of named barriers is positive, got {op.count}")
