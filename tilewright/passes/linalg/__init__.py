"""From linalg on tensors or memrefs to tile programs: buffers, then what is computed together, then tiles."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, TensorType, UnrankedTensorType
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.nesting import values_made


def is_structured(module: ModuleOp) -> bool:
    """Whether a module has ops of linalg, or tensors."""
    dialects = ("linalg.", "tensor.", "bufferization.")
    return any(
        op.name.startswith(dialects) or any(map(is_tensor, _values(op))) for op in module.walk()
    )


def _values(op: Operation) -> list[SSAValue]:
    return [*op.operands, *values_made(op)]


def has_tensors(op: Operation) -> bool:
    """Whether an op is given a tensor, or gives one; what its regions have does not count."""
    return any(map(is_tensor, (*op.operands, *op.results)))


def is_tensor(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType | UnrankedTensorType)
