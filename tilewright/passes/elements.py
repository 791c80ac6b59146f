"""elements: vectors of scalars are inserts of elements, scalars of vectors extracts.

    %v = vector.from_elements %a, %b : vector<2xf32>      ->      %v = vector.insert %b, (%a everywhere) [1]
    %e:2 = vector.to_elements %v : vector<2xf32>          ->      %e#0 = vector.extract %v[0], ..

Guarantees: the same results, and none of the two ops. Owners of elements are then asked for in one way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects import gpu, vector
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.vector import FromElementsOp, ToElementsOp
from tilewright.passes.pipeline import Pass, Unit


def insert_and_extract(kernel: gpu.FuncOp) -> None:
    """Rewrites one kernel."""
    for op in list(kernel.walk()):
        if isinstance(op, FromElementsOp):
            _inserts(op)
        elif isinstance(op, ToElementsOp):
            _extracts(op)


def _before(op: Operation, new: Operation) -> SSAValue:
    new.location = op.location
    Rewriter.insert_op(new, InsertPoint.before(op))
    return new.results[0]


def _inserts(op: FromElementsOp) -> None:
    """The first everywhere, then each of the others at its place."""
    first = op.elements[0]
    made = _before(op, vector.BroadcastOp(first, op.result.type))  # pyright: ignore
    for place, element in zip(np.ndindex(shape_of(op.result)), op.elements, strict=True):
        if element is not first:
            made = _before(op, vector.InsertOp(element, made, place))
    op.result.replace_all_uses_with(made)
    Rewriter.erase_op(op)


def _extracts(op: ToElementsOp) -> None:
    for place, element in zip(np.ndindex(shape_of(op.source)), op.elements, strict=True):
        if element.first_use is not None:
            found = _before(op, vector.ExtractOp(op.source, place, element.type))
            element.replace_all_uses_with(found)
    Rewriter.erase_op(op)


ELEMENTS = Pass[Unit[Any]](
    "elements",
    "vectors of scalars are inserts of elements, scalars of vectors extracts",
    lambda u: insert_and_extract(u.kernel),
)
