"""collapse_shape and expand_shape of memref and tensor: groups of neighbouring dimensions, as MLIR verifies them.

    memref.collapse_shape %m [[0, 1], [2]] : memref<4x8x2xf32> into memref<32x2xf32>

Each dimension of the expanded side is in one group, in order; a group has as many elements as its dimension of the
collapsed side.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.dialects import memref, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, TensorType
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.upstream.complete import set_verifier

Shaped = MemRefType | TensorType


def _verify(groups: Any, expanded: Shaped, collapsed: Shaped) -> None:
    dims = [[int(d.value.data) for d in group] for group in groups]
    wide, small = expanded.get_shape(), collapsed.get_shape()
    # An array without dimensions has one element, and no group.
    named = [] if not small and {*wide} <= {1} else [*range(len(wide))]
    if len(dims) != len(small):
        raise VerifyException(
            f"expected collapsed rank ({len(small)}) to equal the number of reassociation maps ({len(dims)})"
        )
    # A group of no dimensions is one element.
    if [d for group in dims for d in group] != named:
        raise VerifyException(
            f"reassociation indices must be contiguous and name {len(wide)} dimensions, got {dims}"
        )
    for group, extent in zip(dims, small, strict=True):
        _verify_group([wide[d] for d in group], extent, expanded, collapsed)
    if expanded.element_type != collapsed.element_type:
        raise VerifyException(
            f"expected elements of one type, got {expanded.element_type} and {collapsed.element_type}"
        )


def _verify_group(extents: Sequence[int], extent: int, expanded: Shaped, collapsed: Shaped) -> None:
    if DYNAMIC_INDEX not in (*extents, extent) and prod(extents) != extent:
        raise VerifyException(
            f"expected {prod(extents)} elements of {list(extents)}, got {extent} in {expanded} and {collapsed}"
        )


def _verify_collapse(op: memref.CollapseShapeOp | tensor.CollapseShapeOp) -> None:
    source, result = op.src.type, op.result.type
    assert isinstance(source, Shaped) and isinstance(result, Shaped)
    _verify(op.reassociation, source, result)


def _verify_expand(op: memref.ExpandShapeOp | tensor.ExpandShapeOp) -> None:
    source, result = op.src.type, op.result.type
    assert isinstance(source, Shaped) and isinstance(result, Shaped)
    _verify(op.reassociation, result, source)
    shape = [int(n) for n in op.static_output_shape.get_values()]
    if shape != list(result.get_shape()):
        raise VerifyException(f"invalid output shape {shape} of {result}")


def complete() -> None:
    for op in (memref.CollapseShapeOp, tensor.CollapseShapeOp):
        set_verifier(op, _verify_collapse)
    for op in (memref.ExpandShapeOp, tensor.ExpandShapeOp):
        set_verifier(op, _verify_expand)
