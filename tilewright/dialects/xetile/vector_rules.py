"""What the ops on vectors demand beyond the types of their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.dialects.builtin import AnyFloat, Float8E4M3FNType, Float8E5M2Type, IntegerType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.movement import vector_type
from tilewright.dialects.xetile import kinds
from tilewright.dialects.xetile.distribution import verify_map
from tilewright.dialects.xetile.rules import extents, verify_distributed_evenly

if TYPE_CHECKING:
    from tilewright.dialects.xetile import compute, mma


def verify_tile_mma(op: mma.TileMmaOp) -> None:
    a, b, result = vector_type(op.a), vector_type(op.b), vector_type(op.result)
    if a.get_num_dims() != b.get_num_dims():
        raise VerifyException("A and B inputs must have the same rank.")
    if not are_multiplied(a.element_type, b.element_type):
        raise VerifyException("A and B inputs must have the same type.")
    if op.c is not None and vector_type(op.c).element_type != result.element_type:
        raise VerifyException("C and output vector must have the same type.")
    if a.get_num_dims() != 2 or result.get_num_dims() != 2:
        raise VerifyException(
            f"expected 2-D vectors, got {extents(a.get_shape())} and {extents(result.get_shape())}"
        )
    (m, k), (k2, n) = a.get_shape(), b.get_shape()
    if k != k2 or result.get_shape() != (m, n):
        raise VerifyException(
            "incompatible A, B and output sizes for 2D tile mma op. 2D tile mma should have the "
            "shape (m x k) x (k x n) = (m x n). Here it is "
            f"({m} x {k}) x ({k2} x {n}) = ({extents(result.get_shape())})."
        )
    if op.c is not None and vector_type(op.c).get_shape() != result.get_shape():
        raise VerifyException("input C must have the same shape as output.")
    _verify_accumulator(a.element_type, result.element_type)
    for name, value in (("wg_map_a", a), ("wg_map_b", b), ("wg_map_c", result)):
        verify_map(value.get_shape(), getattr(op, name), what=name)


def are_multiplied(a: Attribute, b: Attribute) -> bool:
    """Whether a product takes elements `a` beside `b`: of one type, or what matrix instructions mix.

    Those are bytes with and without signs, and the 8-bit floats of both kinds.
    """
    if isinstance(a, IntegerType) and isinstance(b, IntegerType):
        return a == b or a.width.data == b.width.data == 8
    return a == b or all(isinstance(t, Float8E4M3FNType | Float8E5M2Type) for t in (a, b))


def _verify_accumulator(operand: Attribute, result: Attribute) -> None:
    """Floats accumulate in floats, integers in integers that hold them."""
    if isinstance(operand, AnyFloat):
        legal = isinstance(result, AnyFloat)
    else:
        legal = isinstance(operand, IntegerType) and isinstance(result, IntegerType)
        legal = legal and result.width.data >= operand.width.data  # pyright: ignore
    if not legal:
        raise VerifyException(f"cannot accumulate products of {operand} in {result}")


def verify_transpose(op: compute.TransposeOp) -> None:
    source, result = vector_type(op.value), vector_type(op.result)
    shape, permutation = source.get_shape(), op.permutation
    if any(not 0 <= dim < len(shape) for dim in permutation):
        raise VerifyException("permutation index out of bounds")
    permuted = tuple(shape[dim] for dim in permutation)
    if sorted(permutation) != list(range(len(shape))) or permuted != result.get_shape():
        raise VerifyException("Incorrect transpose permutation")
    _verify_elements(op)


def _verify_elements(op: compute.TransposeOp | compute.ReductionOp | compute.BroadcastOp) -> None:
    source, result = vector_type(op.operands[0]), vector_type(op.result)
    if source.element_type != result.element_type:
        raise VerifyException("source and result must have the same element type")
    verify_map(result.get_shape(), op.wg_map)
    verify_map(source.get_shape(), op.wg_map_source, what="wg_map_source")


def _extents(
    op: compute.ReductionOp | compute.BroadcastOp, what: str, done: str
) -> list[tuple[int, int]]:
    """The extents of source and result along the op's dimensions; along others they are the same."""
    source, result = vector_type(op.source).get_shape(), vector_type(op.result).get_shape()
    rank, dims = len(source), op.dims
    if len(result) != rank:
        raise VerifyException("source and result must have the same rank")
    if not dims or any(not 0 <= dim < rank for dim in dims) or len(set(dims)) != len(dims):
        raise VerifyException(f"{what} dimensions {[*dims]} don't fit a vector of rank {rank}")
    for dim, (extent, made) in enumerate(zip(source, result, strict=True)):
        if dim not in dims and made != extent:
            raise VerifyException(
                f"dimension {dim} is not {done}: result has {made}, source {extent}"
            )
    return [(source[dim], result[dim]) for dim in sorted(dims)]


def verify_reduction(op: compute.ReductionOp) -> None:
    source, size = vector_type(op.source), op.reduction_size
    if size is not None:
        if len(op.dims) != 1:
            raise VerifyException(
                "when reduction size is specified, only a single reduction dimension is allowed."
            )
        if source.get_num_dims() != 2:
            raise VerifyException("when reduction size is specified, source must be a 2D vector.")
        if size < 1:
            raise VerifyException(f"reduction size must be positive, got {size}")
    for extent, expected in _extents(op, "reduction", "reduced"):
        if size is not None:
            if extent % size or expected != extent // size:
                raise VerifyException(
                    "reduction size does not match the expected size of the result dimension "
                    "after reduction."
                )
        elif expected != 1:
            raise VerifyException("reduction dimension of result must have size 1")
    _verify_elements(op)
    if not kinds.accepts(
        kinds.FLOAT_REDUCTIONS, kinds.INTEGER_REDUCTIONS, op.kind, source.element_type
    ):
        raise VerifyException(
            f"reduction {op.kind} is not defined on elements of type {source.element_type}"
        )


def verify_broadcast(op: compute.BroadcastOp) -> None:
    size = op.broadcast_size
    extents = _extents(op, "broadcast", "broadcast")
    if size is not None and size < 1:
        raise VerifyException(f"broadcast size must be positive, got {size}")
    if size is not None and len(op.dims) != 1:
        raise VerifyException(
            "when broadcast size is specified, only a single broadcast dimension is allowed."
        )
    for extent, expected in extents:
        if size is not None:
            if extent * size != expected:
                raise VerifyException(
                    f"broadcast size {size} times {extent} elements of the source is not the "
                    f"{expected} of the result"
                )
        elif extent != 1:
            raise VerifyException("broadcast dimension of source must have size 1")
    _verify_elements(op)


def verify_convert_layout(op: compute.ConvertLayoutOp) -> None:
    shape = vector_type(op.source).get_shape()
    if op.source.type != op.result.type:
        raise VerifyException("source and result must have the same type")
    verify_map(shape, op.wg_map_result, what="wg_map_result")
    verify_map(shape, op.wg_map_source, what="wg_map_source")
    verify_distributed_evenly(op, shape, op.wg_map_source)
