"""What the ops say that read and write vectors in memory: which array, where, which elements, under which mask.

vector.transfer_read %m[%i, %j], %pad, %k {permutation_map = (i, j) -> (j), in_bounds = [true]}
array %m, indices %i and %j, dims (1), inside (true), mask %k, held %pad
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects import vector
from xdsl.dialects.builtin import IntegerAttr, VectorType
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineDimExpr

from tilewright.frozen import frozen

LOADS = ("vector.load", "vector.maskedload", "vector.gather", "vector.transfer_read")
STORES = ("vector.store", "vector.maskedstore", "vector.scatter", "vector.transfer_write")


@frozen
class VectorAccess:
    """One access."""

    array: SSAValue
    indices: Sequence[SSAValue]
    value: SSAValue
    """What is read or written."""
    dims: tuple[int | None, ...]
    """The dimension of the array that each of the vector's walks along; None: it repeats one element."""
    inside: tuple[bool, ...]
    """Is the vector known to end inside of it?"""
    mask: SSAValue | None = None
    held: SSAValue | None = None
    """What is written, or what is read where the mask is off or outside of the array."""
    offsets: SSAValue | None = None
    """Of each element along the last dimension."""


def access_of(op: Any) -> VectorAccess:
    """The access of one of `LOADS` and `STORES`."""
    if isinstance(op, vector.TransferReadOp | vector.TransferWriteOp):
        results = op.permutation_map.data.results
        dims = tuple(e.position if isinstance(e, AffineDimExpr) else None for e in results)
        flags = op.properties.get("in_bounds") or [None] * len(dims)  # pyright: ignore
        inside = tuple(isinstance(f, IntegerAttr) and bool(f.value.data) for f in flags)  # pyright: ignore
        held = op.padding if isinstance(op, vector.TransferReadOp) else op.vector
        value = op.result if isinstance(op, vector.TransferReadOp) else op.vector
        return VectorAccess(op.source, op.indices, value, dims, inside, op.mask, held)
    array, *rest = op.operands
    mask = held = offsets = None
    if op.name == "vector.store":
        held, array, *rest = op.operands
    elif op.name != "vector.load":
        *rest, mask, held = rest
    if op.name in ("vector.gather", "vector.scatter"):
        *rest, offsets = rest
    value = op.results[0] if op.results else held
    assert value is not None and isinstance(value.type, VectorType)
    rank, own = len(rest), value.type.get_num_dims()
    dims = tuple(range(rank - own, rank)) if offsets is None else ()
    return VectorAccess(array, rest, value, dims, (True,) * len(dims), mask, held, offsets)
