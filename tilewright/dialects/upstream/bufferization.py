"""Tensors and their memory: stock xDSL refuses memory that does not lie row by row."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import bufferization
from xdsl.dialects.builtin import (
    MemRefType,
    ShapedType,
    TensorType,
    UnrankedMemRefType,
    UnrankedTensorType,
)
from xdsl.ir import Dialect
from xdsl.irdl import base
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.upstream.complete import add_verifier, set_operand

_MEMORY = base(MemRefType) | base(UnrankedMemRefType)
_TENSOR = base(TensorType) | base(UnrankedTensorType)


def _verify_tensor_of(op: Any) -> None:
    """A tensor and its memory have the same extents and elements; the memory lies as it likes."""
    from_tensor = isinstance(op, bufferization.MaterializeInDestinationOp)
    tensor, memory = (op.source, op.dest) if from_tensor else (op.tensor, op.memref)
    types: list[Any] = [tensor.type, memory.type]
    held = [(t.element_type, t.get_shape() if isinstance(t, ShapedType) else None) for t in types]
    if held[0] != held[1]:
        raise VerifyException(
            f"requires the same shape and element type: {tensor.type} and {memory.type} differ"
        )


def complete() -> Dialect:
    """The stock dialect; memory of tensors may have any layout."""
    set_operand(bufferization.ToTensorOp, "memref", _MEMORY)
    set_operand(bufferization.ToBufferOp, "tensor", _TENSOR)
    set_operand(bufferization.MaterializeInDestinationOp, "source", _TENSOR)
    for op in (
        bufferization.ToTensorOp,
        bufferization.ToBufferOp,
        bufferization.MaterializeInDestinationOp,
    ):
        add_verifier(op, _verify_tensor_of)
    return bufferization.Bufferization
