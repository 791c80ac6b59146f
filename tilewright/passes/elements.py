"""elements: vectors of scalars are inserts of elements, scalars of vectors extracts.

    %v = vector.from_elements %a, %b : vector<2xf32>      ->      %v = vector.insert %b, (%a everywhere) [1]
    %e:2 = vector.to_elements %v : vector<2xf32>          ->      %e#0 = vector.extract %v[0], ..

Guarantees: the same results, and none of the two ops. Owners of elements are then asked for in one way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects import gpu, vector

from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream.vector import FromElementsOp, ToElementsOp
from tilewright.passes.emit import Before
from tilewright.passes.pipeline import Pass, Unit


def insert_and_extract(kernel: gpu.FuncOp) -> None:
    """Turns `vector.from_elements` into inserts and `vector.to_elements` into extracts."""
    for op in list(kernel.walk()):
        if isinstance(op, FromElementsOp):
            _inserts(op)
        elif isinstance(op, ToElementsOp):
            _extracts(op)


def _inserts(op: FromElementsOp) -> None:
    """The first everywhere, then each of the others at its place."""
    at, first, shape = Before(op), op.elements[0], shape_of(op.result)
    made = at.add(vector.BroadcastOp(first, op.result.type))  # pyright: ignore
    for place, element in zip(np.ndindex(shape), op.elements, strict=True):
        if element is not first:
            made = at.add(vector.InsertOp(element, made, place))
    at.replace(made)


def _extracts(op: ToElementsOp) -> None:
    at = Before(op)
    places = np.ndindex(shape_of(op.source))
    kinds = [v.type for v in op.elements]
    found = [
        at.add(vector.ExtractOp(op.source, p, kind)) for p, kind in zip(places, kinds, strict=True)
    ]
    at.replace(*found)


ELEMENTS = Pass[Unit[Any]]("elements", insert_and_extract)
