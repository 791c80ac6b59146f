"""What the files of this package share."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    VectorType,
)
from xdsl.ir import SSAValue


def vector_of(value: SSAValue) -> VectorType:
    assert isinstance(value.type, VectorType)
    return value.type
