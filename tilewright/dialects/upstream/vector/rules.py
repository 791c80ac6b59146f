"""vector: rules of the stock ops that stock xDSL leaves open, as MLIR's verifiers have them.

What `extract` and `insert` name exists and has the shape that they say, `broadcast` stretches only extents of 1, and a
reduction's kind belongs to its elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import vector
from xdsl.dialects.builtin import AnyFloat, VectorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.complete import add_verifier
from tilewright.dialects.upstream.vector.access import STORES, access_of

DYNAMIC = -(2**63)

_ANY = ("add", "mul")
_FLOATS = (*_ANY, "minnumf", "maxnumf", "minimumf", "maximumf")
_INTEGERS = (*_ANY, "minui", "minsi", "maxui", "maxsi", "and", "or", "xor")


def check_kind(kind: str, element: Attribute) -> None:
    """VerifyException where a reduction of this kind has no meaning for such elements."""
    if kind not in (_FLOATS if isinstance(element, AnyFloat) else _INTEGERS):
        raise VerifyException(f"unsupported reduction type '{element}' for kind '{kind}'")


def _check_positions(
    positions: Sequence[int], whole: VectorType, part: Attribute, names: tuple[str, str]
) -> None:
    shape = whole.get_shape()
    for axis, (position, extent) in enumerate(zip(positions, shape, strict=False)):
        if position != DYNAMIC and not 0 <= position < extent:
            raise VerifyException(
                f"position {position} of dimension {axis} is out of range: {names[0]} has {extent} there"
            )
    rest = shape[len(positions) :]
    if isinstance(part, VectorType) and part.get_shape() != rest:
        expected = VectorType(whole.element_type, rest)
        raise VerifyException(
            f"{names[1]} of {names[0]} {whole} at {len(positions)} positions is {expected}, not {part}"
        )


def _verify_extract(op: vector.ExtractOp) -> None:
    positions = [int(p) for p in op.static_position.get_values()]
    _check_positions(positions, vector_type(op.vector), op.result.type, ("the source", "a part"))


def _verify_insert(op: vector.InsertOp) -> None:
    positions = [int(p) for p in op.static_position.get_values()]
    names = ("the destination", "a part")
    _check_positions(positions, vector_type(op.dest), op.source.type, names)


def _verify_broadcast(op: vector.BroadcastOp) -> None:
    source = op.source.type
    if not isinstance(source, VectorType):
        return
    given, made = source.get_shape(), vector_type(op.vector).get_shape()
    if len(given) > len(made):
        raise VerifyException(
            f"source rank higher than destination rank ({len(given)} vs. {len(made)})"
        )
    for small, large in zip(reversed(given), reversed(made), strict=False):
        if small not in (1, large):
            raise VerifyException(f"dimension mismatch ({small} vs. {large})")


def _verify_reduction(op: vector.ReductionOp) -> None:
    kind = vector_type(op.vector)
    if kind.get_num_dims() > 1:
        raise VerifyException(f"unsupported reduction rank: {kind.get_num_dims()}")
    check_kind(op.kind.data.value, kind.element_type)


def _verify_rank(op: vector.LoadOp | vector.StoreOp) -> None:
    """A vector lies along the last dimensions of its array."""
    access = access_of(op)
    rank, own = len(access.indices), vector_type(access.value).get_num_dims()
    if own > rank:
        role = "source" if op.name in STORES else "destination"
        raise VerifyException(
            f"{role} memref has lower rank than the vector: {own} dimensions along {rank}"
        )


def _verify_masked(op: vector.MaskedLoadOp | vector.MaskedStoreOp) -> None:
    shape = vector_type(op.mask).get_shape()
    for value in (
        (op.value_to_store,) if isinstance(op, vector.MaskedStoreOp) else (op.pass_thru, op.result)
    ):
        if vector_type(value).get_shape() != shape:
            raise VerifyException(f"expected the mask's shape {shape}, got {value.type}")


def complete() -> None:
    add_verifier(vector.LoadOp, _verify_rank)
    add_verifier(vector.StoreOp, _verify_rank)
    add_verifier(vector.MaskedLoadOp, _verify_masked)
    add_verifier(vector.MaskedStoreOp, _verify_masked)
    add_verifier(vector.ExtractOp, _verify_extract)
    add_verifier(vector.InsertOp, _verify_insert)
    add_verifier(vector.BroadcastOp, _verify_broadcast)
    add_verifier(vector.ReductionOp, _verify_reduction)
