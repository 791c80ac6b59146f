"""xegpu-positions-as-masks: an element or row at a position is selected by comparing indices.

    %r = vector.extract %a[%i] : vector<32xf32> from vector<16x32xf32>
    %x = vector.insert %s, %a[3, 5] : f32 into vector<16x32xf32>
    ->
    %m = arith.cmpi eq, (0, 1, .. down the rows), %i : vector<16x32xindex>
    %k = arith.select %m, %a, -inf
    %r = vector.multi_reduction <maximumf>, %k, -inf [0]
    %n = arith.cmpi eq, .., 3   %o = arith.cmpi eq, .., 5   %p = arith.andi %n, %o
    %x = arith.select %p, (%s everywhere), %a

Owners are known at compile time, so a position that is not cannot choose one of them; and an element that is put in
alone would have an owner of its own.

Requires: a workgroup's program. Guarantees: the same results, bit by bit but for NaNs' payloads; no vector.extract or
vector.insert of a position that is known only at run time, no vector.insert of a single element; no
vector.from_elements and vector.to_elements, which are inserts and extracts (expand-ops).
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, AnyFloat, VectorType
from xdsl.ir import SSAValue

from tilewright.dialects.movement import positions_at_run_time, shape_of, static_position
from tilewright.dialects.upstream.combining import neutral
from tilewright.dialects.upstream.vector import FromElementsOp, MultiReductionOp, ToElementsOp
from tilewright.passes.emit import Before, element_of, with_shape
from tilewright.passes.expand_ops import EXPANSIONS


def positions_as_masks(kernel: gpu.FuncOp) -> None:
    """Reads an element at a run-time position by comparing indices."""
    for op in list(kernel.walk()):
        if isinstance(op, FromElementsOp | ToElementsOp):
            EXPANSIONS[op.name](op, Before(op))
    for op in list(kernel.walk()):
        if isinstance(op, vector.ExtractOp) and op.dynamic_position:
            _extract(op)
        elif isinstance(op, vector.InsertOp) and (op.dynamic_position or not shape_of(op.source)):
            _insert(op)


def _mask(at: Before, op: Any, shape: tuple[int, ...]) -> SSAValue:
    """The elements of a value of `shape` that lie at an op's position."""
    given = iter(positions_at_run_time(op))
    position = [next(given) if n == DYNAMIC_INDEX else n for n in static_position(op)]
    return at.where("eq", position, shape)


def _extract(op: vector.ExtractOp) -> None:
    at, kind, shape = Before(op), op.vector.type, shape_of(op.vector)
    assert isinstance(kind, VectorType)
    combining = "maximumf" if isinstance(kind.element_type, AnyFloat) else "or"
    nothing = neutral(combining, kind.element_type)
    rest = at.constant(kind, nothing)
    kept = at.add(arith.SelectOp(_mask(at, op, shape), op.vector, rest))
    dims = range(len(static_position(op)))
    if isinstance(op.result.type, VectorType):
        start = at.constant(op.result.type, nothing)
    else:
        one = at.constant(with_shape(kind, [1]), nothing)
        start = at.add(vector.ExtractOp(one, [0], element_of(kind)))
    at.replace(at.add(MultiReductionOp(combining, kept, start, dims)))


def _insert(op: vector.InsertOp) -> None:
    at, shape = Before(op), shape_of(op.dest)
    part = at.broadcast(op.source, shape)
    at.replace(at.add(arith.SelectOp(_mask(at, op, shape), part, op.dest)))
