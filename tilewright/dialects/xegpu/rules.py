"""What each XeGPU op demands beyond its types. Messages have the sense of the public implementation's.

These rules hold on every machine; limits of a machine are the business of `xegpu-check-legal`. An op
stands at any level, so a shape rule accepts what is right at one of them: the whole descriptor
(workgroup, subgroup), or one lane's fragment of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    BFloat16Type,
    Float32Type,
    IndexType,
    IntegerType,
    MemRefType,
    VectorType,
)
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.strict import narrower
from tilewright.dialects.xegpu import distribution
from tilewright.dialects.xegpu.attrs import CHUNK_SIZES, CacheHintAttr, MemorySpace
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership, SgMapAttr, SliceAttr
from tilewright.dialects.xegpu.types import MemDescType, TensorDescType, element_bits

if TYPE_CHECKING:
    from tilewright.dialects.xegpu import block, compute, matrix, scatter, sync

READ_HINTS = frozenset({"cached", "uncached", "streaming", "read_invalidate"})
WRITE_HINTS = frozenset({"cached", "uncached", "write_back", "write_through"})
RFC_WRITE_HINTS = WRITE_HINTS | {"streaming"}


def _brackets(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


def _vector_shape(type: Attribute) -> tuple[int, ...]:
    """() for a scalar."""
    return type.get_shape() if isinstance(type, VectorType) else ()


def _element(type: Attribute) -> Attribute:
    return type.element_type if isinstance(type, (VectorType, MemRefType)) else type


def _check_hints(
    op: block.BlockAccess | scatter.ScatterAccess, allowed: frozenset[str], rfc: frozenset[str]
) -> None:
    for name in ("l1_hint", "l2_hint", "l3_hint"):
        value = getattr(op, name)
        if isinstance(value, CacheHintAttr) and value.kind not in allowed:
            message = f"invalid {name}: #xegpu.cache_hint<{value.kind}>"
            if value.kind not in rfc:
                raise VerifyException(message)
            narrower(op, message)


def _check_ownership(name: str, attribute: Attribute | None) -> Ownership | None:
    if attribute is None:
        return None
    if not isinstance(attribute, (LayoutAttr, SliceAttr, SgMapAttr)):
        raise VerifyException(
            f"expected a layout, a slice or an sg_map for {name}, got {attribute}"
        )
    return attribute


# --- Descriptors -----------------------------------------------------------------------------


def verify_create_nd_tdesc(op: block.CreateNdDescOp) -> None:
    source, tdesc = op.source.type, op.tdesc
    if tdesc.scattered:
        raise VerifyException("Expects a non-scattered TensorDesc.")
    rank = len(tdesc.get_shape())
    shape, strides = op.mixed_shape, op.mixed_strides
    if isinstance(source, MemRefType):
        _verify_memref_source(op, source, tdesc)
        base_rank = len(source.get_shape())
    elif isinstance(source, IntegerType) and source.width.data in (32, 64):
        if rank > 1 and not (shape and strides):
            raise VerifyException("expecting strides and shape to be present for integer source.")
        base_rank = len(shape) or max(rank, len(op.mixed_offsets))
    else:
        raise VerifyException(f"source must be a memref or a 32- or 64-bit address, got {source}")
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
    if op.const_offsets is not None and len(offsets) not in (base_rank, 0):
        # Generation C puts an n-D descriptor's n offsets on the op; here one per base dimension.
        raise VerifyException(
            f"expected one offset per dimension of the source, got {len(offsets)} for rank {base_rank}"
        )
    if tdesc.space is MemorySpace.SLM and rank > 1:
        narrower(op, "SLM is only supported for 1D block tensor")


def _verify_memref_source(
    op: block.CreateNdDescOp, source: MemRefType[Attribute], tdesc: TensorDescType
) -> None:
    from tilewright.dialects.xegpu.block import source_space

    space = source_space(source)
    if space is not tdesc.space:
        raise VerifyException(
            f"Memory space mismatch. Source: {space.value}, TensorDesc: {tdesc.space.value}"
        )
    if source.element_type != tdesc.element_type:
        raise VerifyException(
            "TensorDesc should have the same element type with the source if it is a memref, got "
            f"{tdesc.element_type} and {source.element_type}."
        )
    if DYNAMIC_INDEX in source.get_shape() and not op.mixed_shape:
        narrower(op, "expecting strides and shape to be present for a memref of dynamic shape.")


def verify_update_nd_offset(op: block.UpdateNdOffsetOp) -> None:
    tdesc = op.tdesc
    if tdesc.scattered:
        raise VerifyException("Expects a non-scattered TensorDesc.")
    if op.result.type != tdesc:
        raise VerifyException(f"the result has the operand's type, not {op.result.type}")
    count = len(op.mixed_offsets)
    if count < len(tdesc.get_shape()):
        raise VerifyException(
            f"Invalid number of offsets: {count} for a TensorDesc of rank {len(tdesc.get_shape())}."
        )


def verify_create_tdesc(op: scatter.CreateDescOp) -> None:
    from tilewright.dialects.xegpu.block import source_space

    tdesc, source = op.tdesc, op.source.type
    if not tdesc.scattered:
        raise VerifyException("Expects a scattered TensorDesc.")
    if isinstance(source, MemRefType):
        if source_space(source) is not tdesc.space:
            raise VerifyException(
                f"Memory space mismatch. Source: {source_space(source).value}, "
                f"TensorDesc: {tdesc.space.value}"
            )
        if source.element_type != tdesc.element_type:
            raise VerifyException("TensorDesc should have the same element type with the source.")
        if len(source.get_shape()) > 1:
            raise VerifyException(f"operand #0 must be 0D or 1D memref, got {source}")
    elif not (isinstance(source, IntegerType) and source.width.data in (32, 64)):
        raise VerifyException(f"source must be a memref or a 32- or 64-bit address, got {source}")
    _verify_offsets(op.offsets.type)
    lanes = tdesc.get_shape()[:-1] if tdesc.chunk_size > 1 else tdesc.get_shape()
    given = _vector_shape(op.offsets.type)
    if given != lanes:
        raise VerifyException(
            f"Expecting one offset per lane: offsets are {_brackets(given)}, lanes {_brackets(lanes)}."
        )


def verify_update_offset(op: scatter.UpdateOffsetOp) -> None:
    tdesc = op.tdesc
    if not tdesc.scattered:
        raise VerifyException("Expects a scattered TensorDesc.")
    if op.result.type != tdesc:
        raise VerifyException(f"the result has the operand's type, not {op.result.type}")
    _verify_offsets(op.offsets.type)
    lanes = tdesc.get_shape()[:-1] if tdesc.chunk_size > 1 else tdesc.get_shape()
    if _vector_shape(op.offsets.type) != lanes:
        raise VerifyException(
            f"Expecting one offset per lane: {op.offsets.type} for {_brackets(lanes)} lanes."
        )


def _verify_offsets(type: Attribute) -> None:
    element = _element(type)
    wide = isinstance(element, IntegerType) and element.width.data in (16, 32, 64)
    if not wide and not isinstance(element, IndexType):
        raise VerifyException(f"offsets must be of index or integer type, got {type}")


# --- Blocks --------------------------------------------------------------------------------


def _verify_block(op: block.BlockAccess) -> None:
    tdesc = op.tdesc
    if tdesc.scattered:
        raise VerifyException("Expects a non-scattered TensorDesc.")
    offsets = op.mixed_offsets
    if offsets is not None and len(offsets) < len(tdesc.get_shape()):
        raise VerifyException(
            f"Mismatched ranks between offsets and tensor descriptor: {len(offsets)} and "
            f"{len(tdesc.get_shape())}"
        )
    _check_ownership("layout", op.layout)


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
    _check_hints(op, READ_HINTS, READ_HINTS)
    if op.locality is not None and not 0 <= op.locality <= 3:
        raise VerifyException(f"locality is 0, 1, 2 or 3, got {op.locality}")
    _verify_layout_distributes(op)


def verify_load_nd(op: block.LoadNdOp) -> None:
    _verify_block(op)
    _check_hints(op, READ_HINTS, READ_HINTS)
    tdesc, value = op.tdesc, op.value.type
    if _element(value) != tdesc.element_type:
        raise VerifyException(
            f"value and TensorDesc must have the same element type, got {value} and {tdesc}"
        )
    shape = tdesc.get_shape()
    _verify_permutation(op, shape)
    if op.packed is not None:
        if op.transposes:
            raise VerifyException("packed and transpose cannot be combined")
        if not _packs(shape, tdesc.element_type):
            narrower(op, "Invalid Packed Attr. It is ignored (available for 2D TensorDesc only).")
    given = _vector_shape(value)
    full = full_load_shape(op)
    if given in load_shapes(full, tdesc.array_length):
        _verify_layout_distributes(op)
        return
    # In text without `packed` on it, a 3-D result of a 2-D block is the packed one.
    if op.packed is None and _packs(shape, tdesc.element_type) and not op.transposes:
        packed = packed_shape(shape, tdesc.element_type)
        if given in load_shapes(packed, tdesc.array_length):
            narrower(op, f"Result shape {_brackets(given)} needs the attribute packed")
            return
    _verify_fragment(op, given, "Result")


def _verify_permutation(op: block.LoadNdOp, shape: tuple[int, ...]) -> None:
    permutation = op.permutation
    if permutation is not None and sorted(permutation) != list(range(len(shape))):
        raise VerifyException(
            f"Invalid transpose attr {_brackets(permutation)} for a TensorDesc of rank {len(shape)}"
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
    if op.packed is not None and not op.transposes:
        return packed_shape(shape, tdesc.element_type)
    permutation = op.permutation
    if permutation is None or not op.transposes:
        return shape
    width = None if op.transpose_bit_width is None else op.transpose_bit_width.value.data
    if width is None or len(shape) != 2:
        return tuple(shape[d] for d in permutation)
    bits = element_bits(tdesc.element_type)
    if width < bits or width % bits or shape[1] % (width // bits):
        raise VerifyException(
            f"transpose_bit_width {width} is not a multiple of {bits} bits that divides rows of "
            f"{shape[1]} elements"
        )
    unit = width // bits
    return (shape[1] // unit, shape[0] * unit)


def load_shapes(block: tuple[int, ...], array_length: int) -> tuple[tuple[int, ...], ...]:
    """Accepted shapes of a load of `array_length` blocks: [n, ..], or stacked in the first dimension."""
    if array_length == 1:
        return (block,)
    return ((array_length, *block), (array_length * block[0], *block[1:]))


def _verify_fragment(op: block.BlockAccess, given: tuple[int, ...], what: str) -> None:
    """A shape that is not the descriptor's must be what one lane holds of it."""
    tdesc = op.tdesc
    shape = tdesc.get_shape()
    sg_map = op.ownership if isinstance(op.ownership, SgMapAttr) else None
    if sg_map is not None:
        blocks = shape if tdesc.array_length == 1 else (tdesc.array_length, *shape)
        units, packed = distribution.fragment_shape(sg_map, blocks)
        if given in ((units, packed), (units * packed,)):
            return
        raise VerifyException(
            f"{what} shape {_brackets(given)} is not consistent with tensor descriptor {tdesc}: "
            f"one work item owns {_brackets((units, packed))}"
        )
    total = prod(shape) * tdesc.array_length
    if len(given) != 1:
        raise VerifyException(
            f"{what} shape {_brackets(given)} is not consistent with tensor descriptor {tdesc}"
        )
    if total % given[0]:
        raise VerifyException(
            f"{what} shape {_brackets(given)} is not a valid distribution for tensor descriptor {tdesc}"
        )
    if op.ownership is not None and op.ownership.is_workgroup():
        raise VerifyException(
            f"{what} shape {_brackets(given)}: TensorDesc doesn't need LayoutAttr for SIMT code"
        )


def verify_store_nd(op: block.StoreNdOp) -> None:
    _verify_block(op)
    _check_hints(op, WRITE_HINTS, RFC_WRITE_HINTS)
    tdesc, value = op.tdesc, op.value.type
    if _element(value) != tdesc.element_type:
        raise VerifyException(
            f"value and TensorDesc must have the same element type, got {value} and {tdesc}"
        )
    if tdesc.array_length > 1:
        raise VerifyException("array length is not supported by store_nd.")
    given = _vector_shape(value)
    if given == tdesc.get_shape():
        _verify_layout_distributes(op)
        return
    _verify_fragment(op, given, "Value")


# --- Scattered -------------------------------------------------------------------------------


def _verify_scatter(op: scatter.ScatterAccess) -> None:
    source, offsets = op.source_operand.type, op.offsets_operand
    _check_ownership("layout", op.layout)
    if isinstance(source, TensorDescType):
        if not source.scattered:
            raise VerifyException("Expects a scattered TensorDesc.")
        if offsets is not None:
            raise VerifyException("offsets belong to a base; a TensorDesc has its own")
        return
    if isinstance(source, MemRefType):
        if len(source.get_shape()) > 1:
            raise VerifyException(f"operand #0 must be 1D memref of integer or float, got {source}")
    elif not (isinstance(source, IntegerType) and source.width.data in (32, 64)):
        raise VerifyException(f"source must be a memref or a 32- or 64-bit address, got {source}")
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
    if element is not None and _element(value) != element:
        raise VerifyException(
            f"Value should have the same element type as MemRef or TensorDesc, got {value}, {element}."
        )
    lanes, chunk = op.lanes, op.chunk
    given = _vector_shape(value)
    if _element(mask) != IntegerType(1):
        raise VerifyException(f"expected a mask of i1, got {mask}")
    if not isinstance(value, VectorType):
        if chunk != 1:
            raise VerifyException(f"Expecting chunk size == 1 for scalar result, got {chunk}.")
        scalar_mask = prod(_vector_shape(mask)) == 1
        if not scalar_mask or (op.tdesc is None and op.lane_count != 1):
            raise VerifyException("Expecting scalar mask and offsets.")
        return
    expected = lanes if chunk == 1 else (*lanes, chunk)
    if transposed and chunk > 1:
        expected = (chunk, *lanes)
    if given == expected:
        if _vector_shape(mask) == lanes:
            return
        if not isinstance(mask, VectorType) and lanes:
            raise VerifyException("Expecting a vector type mask.")
        raise VerifyException(
            f"Mask should match value except the chunk size dim: {mask} and {value}."
        )
    _verify_scatter_fragment(op, given, mask, transposed)


def _verify_scatter_fragment(
    op: scatter.ScatterAccess, given: tuple[int, ...], mask: Attribute, transposed: bool
) -> None:
    """One lane's part: `[chunk]`, `[1]`, or `[units, packed]` under an sg_map."""
    chunk, lanes = op.chunk, op.lanes
    sg_map = op.ownership if isinstance(op.ownership, SgMapAttr) else None
    tdesc = op.tdesc
    if sg_map is not None and tdesc is not None:
        units, packed = distribution.fragment_shape(sg_map, tdesc.get_shape())
        if given in ((units, packed), (units * packed,)):
            return
        raise VerifyException(
            f"Result shape {_brackets(given)} is neither a valid distribution for SIMT nor consistent "
            f"with the tensor descriptor for SIMD: one work item owns {_brackets((units, packed))}"
        )
    mask_lanes = _vector_shape(mask)
    if tdesc is not None:
        if len(given) == 1 and given[0] == chunk:
            return
        raise VerifyException(
            f"Value shape {_brackets(given)} is not a valid distribution for tensor descriptor {tdesc}"
        )
    if prod(lanes) == 1 and prod(mask_lanes) == 1 and given in ((chunk,), (1, chunk)):
        return
    if chunk > 1 and (not given or (given[0] if transposed else given[-1]) != chunk):
        raise VerifyException(
            f"value elements must match chunk size {chunk}, got {_brackets(given)}"
        )
    raise VerifyException(
        f"Mask should match value except the chunk size dim: value {_brackets(given)}, offsets "
        f"{_brackets(lanes)}, mask {_brackets(mask_lanes)}, chunk size {chunk}."
    )


def verify_load_gather(op: scatter.LoadGatherOp) -> None:
    _verify_scatter(op)
    _check_hints(op, READ_HINTS, READ_HINTS)
    _verify_value_and_mask(op, op.value.type, op.mask.type, op.transpose is not None)


def verify_store_scatter(op: scatter.StoreScatterOp) -> None:
    _verify_scatter(op)
    _check_hints(op, WRITE_HINTS, RFC_WRITE_HINTS)
    _verify_value_and_mask(op, op.value.type, op.mask.type, op.transpose is not None)


def verify_prefetch(op: scatter.PrefetchOp) -> None:
    _verify_scatter(op)
    _check_hints(op, READ_HINTS, READ_HINTS)
    align, source = op.offset_align_byte, op.source.type
    if isinstance(source, IntegerType) and align is None:
        raise VerifyException("offset_align_byte is required with integer source.")
    if not isinstance(source, IntegerType) and align is not None:
        raise VerifyException("offset_align_byte is only allowed with integer source.")
    if align is not None and align.value.data < 1:
        raise VerifyException(f"offset_align_byte is positive, got {align.value.data}")


def verify_atomic_rmw(op: scatter.AtomicRMWOp) -> None:
    from tilewright.dialects.xetile.kinds import FLOAT_ATOMICS, INTEGER_ATOMICS, accepts

    _verify_scatter(op)
    if op.result.type != op.value.type:
        raise VerifyException(
            "failed to verify that all of {tensorDesc, value, result} have same shape: "
            f"{op.value.type} and {op.result.type}"
        )
    if not accepts(FLOAT_ATOMICS, INTEGER_ATOMICS, op.kind, _element(op.value.type)):
        raise VerifyException(f"atomic {op.kind} is not defined on {_element(op.value.type)}")
    if op.tdesc is not None and op.tdesc.sg_map is None and op.tdesc.chunk_size > 1:
        given = _vector_shape(op.value.type)
        if given != op.tdesc.get_shape():
            raise VerifyException(
                "failed to verify that all of {tensorDesc, value, result} have same shape: "
                f"{op.tdesc} and {op.value.type}"
            )
    _verify_value_and_mask(op, op.value.type, op.mask.type, transposed=False)


# --- dpas ------------------------------------------------------------------------------------


def verify_dpas(op: compute.DpasOp) -> None:
    a, b, d = (_vector_shape(v.type) for v in (op.lhs, op.rhs, op.result))
    if op.acc is not None and op.acc.type != op.result.type:
        raise VerifyException(
            f"Accumulator type must match result type, got {op.acc.type} and {op.result.type}."
        )
    for name in ("layout_a", "layout_b", "layout_cd"):
        _check_ownership(name, getattr(op, name))
    _verify_dpas_elements(op)
    if len(a) == len(b) == len(d) == 1:
        return  # lane fragments: their length tells nothing without the machine
    if any(isinstance(layout, SgMapAttr) for layout in op.layouts) and d[-1] == 1:
        return  # the RFC's [units, packed] fragments
    if _is_fragment_triple(a, b, d):
        return
    if len(a) == 3:
        narrower(op, "A operand must be a 2D vector.")
    elif len(a) != 2:
        raise VerifyException("A operand must be a 2D vector.")
    if len(b) not in (2, 3):
        raise VerifyException("B operand must be a 2D or 3D vector.")
    if len(d) != 2:
        raise VerifyException("Result must be a 2D vector.")
    _verify_matrix_dims(a, b, d)
    for name, shape, label in (
        ("layout_a", a, "A"),
        ("layout_b", b, "B"),
        ("layout_cd", d, "Result"),
    ):
        layout = getattr(op, name)
        if isinstance(layout, (LayoutAttr, SliceAttr)) and len(shape) == 2:
            fault = distribution.fault(layout, shape)
            if fault is not None:
                raise VerifyException(
                    f"{label} shape is not distributable with the layout: {fault}"
                )


def _is_fragment_triple(a: tuple[int, ...], b: tuple[int, ...], d: tuple[int, ...]) -> bool:
    """The RFC's `[units, packed]` fragments, e.g. 8x1 by 8x2 to 8x1: C has one element per unit.

    A real product of this form would have N = 1 and B of one column, which a packed fragment has not.
    """
    if not len(a) == len(b) == len(d) == 2 or d[1] != 1:
        return False
    return not (a[1] == b[0] and b[1] == 1 and a[0] == d[0])


def _verify_matrix_dims(a: tuple[int, ...], b: tuple[int, ...], d: tuple[int, ...]) -> None:
    k_a = a[1] if len(a) == 2 else a[1] * a[2]
    k_b = b[0] if len(b) == 2 else b[0] * b[2]
    for dim, name_a, x, name_b, y in (
        ("K", "A", k_a, "B", k_b),
        ("M", "A", a[0], "Result", d[0]),
        ("N", "B", b[1], "Result", d[1]),
    ):
        if x != y:
            raise VerifyException(
                f"{dim}-dimension mismatch: {name_a} has {dim}={x} but {name_b} has {dim}={y}."
            )


def _verify_dpas_elements(op: compute.DpasOp) -> None:
    a, b, d = (_element(v.type) for v in (op.lhs, op.rhs, op.result))
    if isinstance(a, IntegerType) != isinstance(b, IntegerType):
        raise VerifyException(f"A and B mix integer and float elements: {a} and {b}")
    if element_bits(a) != element_bits(b):
        raise VerifyException(f"A and B elements differ in width: {a} and {b}")
    if isinstance(a, IntegerType) != isinstance(d, IntegerType):
        raise VerifyException(f"the result of {a} by {b} cannot be {d}")


def verify_dpas_mx(op: compute.DpasMxOp) -> None:
    a, b, d = (_vector_shape(v.type) for v in (op.lhs, op.rhs, op.result))
    if op.acc is not None and op.acc.type != op.result.type:
        raise VerifyException(
            f"Accumulator type must match result type, got {op.acc.type} and {op.result.type}."
        )
    if not isinstance(_element(op.result.type), (Float32Type, BFloat16Type)):
        raise VerifyException(f"Result must have elements of f32 or bf16, got {op.result.type}.")
    for name in ("layout_a", "layout_b", "layout_cd", "layout_a_scale", "layout_b_scale"):
        _check_ownership(name, getattr(op, name))
    for value in (op.lhs, op.rhs):
        element = _element(value.type)
        if not isinstance(element, AnyFloat) or element_bits(element) > 8:
            raise VerifyException(f"A and B hold 8- or 4-bit floats, got {value.type}")
    if len(a) == len(b) == len(d) == 1:
        return
    if len(a) != 2:
        raise VerifyException("A operand must be a 2D vector.")
    if len(b) not in (2, 3):
        raise VerifyException("B operand must be a 2D or 3D vector.")
    if len(d) != 2:
        raise VerifyException("Result must be a 2D vector.")
    _verify_matrix_dims(a, b, d)
    _verify_scales(op, a, (b[0] * b[2], b[1]) if len(b) == 3 else b)


def _verify_scales(op: compute.DpasMxOp, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    counts: list[int] = []
    if op.scale_a is not None and isinstance(op.scale_a.type, VectorType):
        scale = op.scale_a.type.get_shape()
        if len(scale) != 2:
            raise VerifyException("Scale A must be a 2D vector when not a scalar.")
        if scale[0] != a[0]:
            raise VerifyException(
                f"Scale A M dimension [{scale[0]}] must match A M dimension [{a[0]}]."
            )
        counts.append(scale[1])
    if op.scale_b is not None and isinstance(op.scale_b.type, VectorType):
        scale = op.scale_b.type.get_shape()
        if len(scale) != 2:
            raise VerifyException("Scale B must be a 2D vector when not a scalar.")
        if scale[1] != b[1]:
            raise VerifyException(
                f"Scale B N dimension [{scale[1]}] must match B N dimension [{b[1]}]."
            )
        counts.append(scale[0])
    if len(set(counts)) > 1:
        raise VerifyException(
            f"Scale K dimension mismatch: scale A has {counts[0]}, scale B has {counts[1]}."
        )
    for count in counts:
        if a[1] % count:
            raise VerifyException(f"{count} scales do not divide K={a[1]}.")


def verify_convert_layout(op: compute.ConvertLayoutOp) -> None:
    source = _check_ownership("input_layout", op.input_layout)
    target = _check_ownership("target_layout", op.target_layout)
    if target is None:
        raise VerifyException("expected target_layout")
    if op.source.type != op.result.type:
        raise VerifyException("convert_layout does not change the type")
    if isinstance(source, SgMapAttr) or isinstance(target, SgMapAttr):
        raise VerifyException("convert_layout takes a layout or a slice")
    if source is not None and source.is_workgroup() != target.is_workgroup():
        raise VerifyException(
            "expected input layout and target layout be WgLayout or SgLayout at the same time."
        )
    shape = _vector_shape(op.result.type)
    for name, layout in (("input", source), ("target", target)):
        if layout is None:
            continue
        fault = distribution.fault(layout, shape)
        if fault is not None:
            raise VerifyException(
                f"invalid {name} layout, data cannot be evenly distributed: {fault}."
            )


def verify_truncf(op: compute.TruncfOp) -> None:
    source, result = op.source.type, op.result.type
    if _vector_shape(source) != _vector_shape(result):
        raise VerifyException(f"truncf keeps the shape, got {source} -> {result}")
    if not (isinstance(_element(source), AnyFloat) and isinstance(_element(result), AnyFloat)):
        raise VerifyException(f"truncf takes floats, got {source} -> {result}")
    if element_bits(_element(source)) <= element_bits(_element(result)):
        raise VerifyException("input type must be wider than result type.")


# --- Shared matrices -------------------------------------------------------------------------


def verify_create_mem_desc(op: matrix.CreateMemDescOp) -> None:
    from tilewright.dialects.xegpu.block import source_space

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


def verify_load_matrix(op: matrix.LoadMatrixOp) -> None:
    _verify_matrix_access(op, op.value.type)


def verify_store_matrix(op: matrix.StoreMatrixOp) -> None:
    _verify_matrix_access(op, op.value.type)


def _verify_matrix_access(op: matrix.MatrixAccess, value: Attribute) -> None:
    desc: MemDescType = op.desc
    shape = desc.get_shape()
    if len(op.mixed_offsets) != len(shape):
        raise VerifyException(
            f"expected one offset per dimension of the mem_desc, got {len(op.mixed_offsets)} for "
            f"rank {len(shape)}"
        )
    if _element(value) != desc.element_type:
        raise VerifyException(
            f"failed to verify that all of {{mem_desc, res}} have same element type: {value}, {desc}"
        )
    layout = _check_ownership("layout", op.layout)
    given = _vector_shape(value)
    if op.subgroup_block_io is not None:
        _verify_block_io(op, desc, given, layout)
    if len(given) < 2:
        if prod(given) > prod(shape):
            raise VerifyException("data shape must not exceed mem_desc shape.")
        return
    if len(given) != len(shape):
        raise VerifyException(
            f"data and mem_desc must have the same rank, got {_brackets(given)} and {_brackets(shape)}"
        )
    if any(have > extent for have, extent in zip(given, shape, strict=True)):
        raise VerifyException(
            f"data shape must not exceed mem_desc shape: {_brackets(given)}, {_brackets(shape)}."
        )
    if isinstance(layout, (LayoutAttr, SliceAttr)):
        fault = distribution.fault(layout, given)
        if fault is not None:
            raise VerifyException(f"data shape is not distributable with the layout: {fault}")


def _verify_block_io(
    op: matrix.MatrixAccess, desc: MemDescType, given: tuple[int, ...], layout: Ownership | None
) -> None:
    """One block message moves consecutive elements, dealt to consecutive lanes."""
    block, stride = desc.block, desc.stride
    if block is None and len(given) == 2 and given[0] > 1 and given[1] != desc.get_shape()[1]:
        raise VerifyException(
            "With subgroup_block_io, accessed data must be contiguous and coalesced: rows of "
            f"{given[1]} elements in a matrix with rows of {desc.get_shape()[1]}"
        )
    if stride[-1] != 1 and stride[0] != 1:
        raise VerifyException(
            "With subgroup_block_io, the distributed dimensions must be contiguous: strides are "
            f"{_brackets(stride)}"
        )
    lanes = layout.field("lane_layout") if isinstance(layout, LayoutAttr) else None
    if block is None or lanes is None:
        return
    if len(lanes) == len(block) and any(
        size % count for size, count in zip(block, lanes, strict=True)
    ):
        raise VerifyException(
            "With subgroup_block_io, the block shape must match the lane layout: "
            f"{_brackets(block)} and {_brackets(lanes)}"
        )


# --- Barriers --------------------------------------------------------------------------------


def verify_alloc_nbarrier(op: sync.AllocNbarrierOp) -> None:
    if (op.total is None) == (op.nbarrier_num is None):
        raise VerifyException("expected the number of barriers, as a constant or as an operand")
    if op.count is not None and op.count < 1:
        raise VerifyException(f"the number of named barriers is positive, got {op.count}")


def verify_init_nbarrier(op: sync.InitNbarrierOp) -> None:
    for value in op.operands:
        if not isinstance(value.type, (IntegerType, IndexType)):
            raise VerifyException(f"expected an integer, got {value.type}")
