"""Steps of random programs that rearrange elements: each op's drawing, its IR, and what it computes in plain numpy.

Values have two dimensions; where an op's operand or result has another rank, shape casts stand around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects import arith, vector
from xdsl.dialects.builtin import DenseArrayBase, VectorType, i1, i64
from xdsl.ir import SSAValue

from tests.fuzz.programs import Step, Value
from tilewright.dialects.upstream import vector as more

Array = np.ndarray[Any, Any]
WIDTHS = {"i8": 1, "i16": 2, "i32": 4}
MOST = 64
"""Of rows or columns."""


@dataclass(frozen=True)
class Move:
    """One op. `draw(drawing, source)` adds a step where it fits the source; `build(kernel, step, *args)` makes its IR;
    `plain(step, ids, *args)` its result."""

    draw: Callable[[Any, int], None]
    build: Callable[..., SSAValue]
    plain: Callable[..., Array]


def below(d: Any, extent: int) -> int:
    return d.pick(range(extent))


def part_of(d: Any, value: Value) -> tuple[tuple[int, int], tuple[int, int]]:
    """Offsets and sizes of a box in a value."""
    sizes = tuple(1 + below(d, n) for n in value.shape)
    offsets = tuple(below(d, n - s + 1) for n, s in zip(value.shape, sizes, strict=True))
    return offsets, sizes  # type: ignore[return-value]


def shaped(value: SSAValue, *shape: int) -> SSAValue:
    """A value in another shape."""
    assert isinstance(value.type, VectorType)
    return more.ShapeCastOp(value, VectorType(value.type.element_type, shape)).result


def element(value: SSAValue) -> Any:
    assert isinstance(value.type, VectorType)
    return value.type.element_type


# Slices -------------------------------------------------------------------------------------------


def draw_slice(d: Any, source: int) -> None:
    value = d.steps[source].result
    offsets, sizes = part_of(d, value)
    d.move("vector.extract_strided_slice", (source,), Value(sizes, value.dtype), at=offsets)


def build_slice(k: Any, step: Step, a: SSAValue) -> SSAValue:
    return more.ExtractStridedSliceOp(a, step.extra["at"], step.result.shape).result


def plain_slice(step: Step, ids: Any, a: Array) -> Array:
    (r, c), (m, n) = step.extra["at"], step.result.shape
    return a[r : r + m, c : c + n]


def draw_insertion(d: Any, source: int) -> None:
    value = d.steps[source].result
    offsets, sizes = part_of(d, value)
    part = d.operand(Value(sizes, value.dtype))
    d.move("vector.insert_strided_slice", (part, source), value, at=offsets)


def build_insertion(k: Any, step: Step, part: SSAValue, whole: SSAValue) -> SSAValue:
    return more.InsertStridedSliceOp(part, whole, step.extra["at"]).result


def plain_insertion(step: Step, ids: Any, part: Array, whole: Array) -> Array:
    made, (r, c) = whole.copy(), step.extra["at"]
    made[r : r + part.shape[0], c : c + part.shape[1]] = part
    return made


# Rows ---------------------------------------------------------------------------------------------


def row_of(k: Any, step: Step, rows: int) -> Any:
    """A row's number: written, or this program's id along x."""
    if step.extra["row"] is not None:
        return step.extra["row"]
    return arith.RemUIOp(k.ids[0], k.index(rows)).result


def number_of_row(step: Step, ids: Any, rows: int) -> int:
    return ids[0] % rows if step.extra["row"] is None else step.extra["row"]


def draw_row(d: Any, source: int) -> None:
    value = d.steps[source].result
    (m, n), row = value.shape, d.pick((None, 0))
    row = row if row is None else below(d, m)
    d.move("vector.extract", (source,), Value((1, n), value.dtype), row=row)


def build_row(k: Any, step: Step, a: SSAValue) -> SSAValue:
    (m, n) = a.type.get_shape()  # type: ignore[attr-defined]
    row = vector.ExtractOp(a, [row_of(k, step, m)], VectorType(element(a), [n])).result
    return shaped(row, 1, n)


def plain_row(step: Step, ids: Any, a: Array) -> Array:
    return a[number_of_row(step, ids, len(a))][None]


def draw_new_row(d: Any, source: int) -> None:
    value = d.steps[source].result
    (m, n), row = value.shape, d.pick((None, 0))
    row = row if row is None else below(d, m)
    d.move("vector.insert", (d.operand(Value((1, n), value.dtype)), source), value, row=row)


def build_new_row(k: Any, step: Step, part: SSAValue, whole: SSAValue) -> SSAValue:
    (m, n) = step.result.shape
    return vector.InsertOp(shaped(part, n), whole, [row_of(k, step, m)]).result


def plain_new_row(step: Step, ids: Any, part: Array, whole: Array) -> Array:
    made = whole.copy()
    made[number_of_row(step, ids, len(whole))] = part[0]
    return made


def draw_repeated(d: Any, source: int) -> None:
    value = d.steps[source].result
    if value.shape[0] == 1:
        rows = d.pick((2, 3, 8, 16))
        d.move("vector.broadcast", (source,), Value((rows, value.shape[1]), value.dtype))


def build_repeated(k: Any, step: Step, a: SSAValue) -> SSAValue:
    line = shaped(a, step.result.shape[1])
    return vector.BroadcastOp(line, VectorType(element(a), step.result.shape)).vector


def plain_repeated(step: Step, ids: Any, a: Array) -> Array:
    return np.repeat(a, step.result.shape[0], axis=0)


# Whole values -------------------------------------------------------------------------------------


def draw_transposed(d: Any, source: int) -> None:
    value = d.steps[source].result
    d.move("vector.transpose", (source,), Value(value.shape[::-1], value.dtype))


def build_transposed(k: Any, step: Step, a: SSAValue) -> SSAValue:
    return more.TransposeOp(a, [1, 0]).result


def plain_transposed(step: Step, ids: Any, a: Array) -> Array:
    return a.T


def draw_reshaped(d: Any, source: int) -> None:
    value = d.steps[source].result
    size = value.shape[0] * value.shape[1]
    rows = [m for m in range(1, MOST + 1) if size % m == 0 and size // m <= MOST]
    if rows:
        m = d.pick(rows)
        d.move("vector.shape_cast", (source,), Value((m, size // m), value.dtype))


def build_reshaped(k: Any, step: Step, a: SSAValue) -> SSAValue:
    return shaped(a, *step.result.shape)


def plain_reshaped(step: Step, ids: Any, a: Array) -> Array:
    return a.reshape(step.result.shape)


def draw_interleaved(d: Any, source: int) -> None:
    value = d.steps[source].result
    m, n = value.shape
    if 2 * n <= MOST:
        other = d.operand(value)
        d.move("vector.interleave", (source, other), Value((m, 2 * n), value.dtype))


def build_interleaved(k: Any, step: Step, a: SSAValue, b: SSAValue) -> SSAValue:
    return more.InterleaveOp(a, b).result


def plain_interleaved(step: Step, ids: Any, a: Array, b: Array) -> Array:
    made = np.empty(step.result.shape, a.dtype)
    made[:, ::2], made[:, 1::2] = a, b
    return made


def draw_every_other(d: Any, source: int) -> None:
    value = d.steps[source].result
    m, n = value.shape
    if n % 2 == 0:
        d.move("vector.deinterleave", (source,), Value((m, n // 2), value.dtype), odd=below(d, 2))


def build_every_other(k: Any, step: Step, a: SSAValue) -> SSAValue:
    return more.DeinterleaveOp(a).results[step.extra["odd"]]


def plain_every_other(step: Step, ids: Any, a: Array) -> Array:
    return a[:, step.extra["odd"] :: 2]


def draw_shuffled(d: Any, source: int) -> None:
    value = d.steps[source].result
    m, n = value.shape
    if m == 1:
        mask = d.pick((range(n - 1, -1, -1), range(0, 2 * n, 2), None))
        mask = mask or [below(d, 2 * n) for _ in range(d.pick((1, n, 2 * n)))]
        result = Value((1, len(mask)), value.dtype)
        d.move("vector.shuffle", (source, d.operand(value)), result, mask=[*mask])


def build_shuffled(k: Any, step: Step, a: SSAValue, b: SSAValue) -> SSAValue:
    lines = [shaped(v, v.type.get_shape()[1]) for v in (a, b)]  # type: ignore[attr-defined]
    mask = DenseArrayBase.from_list(i64, step.extra["mask"])
    kind = VectorType(element(a), [step.result.shape[1]])
    return shaped(vector.ShuffleOp(*lines, mask, result_type=kind).result, *step.result.shape)


def plain_shuffled(step: Step, ids: Any, a: Array, b: Array) -> Array:
    return np.concatenate([a[0], b[0]])[step.extra["mask"]][None]


def draw_elements(d: Any, source: int) -> None:
    """The elements of a small box, some of them several times."""
    value = d.steps[source].result
    sizes = min(2, value.shape[0]), min(4, value.shape[1])
    at = tuple(below(d, n - s + 1) for n, s in zip(value.shape, sizes, strict=True))
    count = sizes[0] * sizes[1]
    order = [below(d, count) for _ in range(count)]
    d.move("vector.from_elements", (source,), Value(sizes, value.dtype), at=at, order=order)


def build_elements(k: Any, step: Step, a: SSAValue) -> SSAValue:
    box = build_slice(k, step, a)
    order = step.extra["order"]
    parts = more.ToElementsOp.create(operands=[box], result_types=[element(a)] * len(order))
    given = [parts.results[n] for n in order]
    return more.FromElementsOp.create(operands=given, result_types=[box.type]).results[0]


def plain_elements(step: Step, ids: Any, a: Array) -> Array:
    return plain_slice(step, ids, a).reshape(-1)[step.extra["order"]].reshape(step.result.shape)


ELEMENTS = Move(draw_elements, build_elements, plain_elements)


def draw_bits(d: Any, source: int) -> None:
    """Integers only: bits of others may be NaNs, whose payloads programs do not keep."""
    value = d.steps[source].result
    m, n = value.shape
    others = [
        (t, n * WIDTHS[value.dtype] // w)
        for t, w in WIDTHS.items()
        if value.dtype in WIDTHS and n * WIDTHS[value.dtype] % w == 0
    ]
    others = [o for o in others if o[1] <= MOST]
    if others:
        dtype, columns = d.pick(others)
        d.move("vector.bitcast", (source,), Value((m, columns), dtype))


def build_bits(k: Any, step: Step, a: SSAValue) -> SSAValue:
    from tests.fuzz.build import vector_of

    return vector.BitcastOp(a, vector_of(step.result)).result


def plain_bits(step: Step, ids: Any, a: Array) -> Array:
    return np.ascontiguousarray(a).view(f"<{step.result.dtype[0]}{WIDTHS[step.result.dtype]}")


def draw_masked(d: Any, source: int) -> None:
    value = d.steps[source].result
    bounds = [below(d, n + 3) - 1 for n in value.shape]
    d.move("vector.create_mask", (source, d.operand(value)), value, bounds=bounds)


def build_masked(k: Any, step: Step, a: SSAValue, b: SSAValue) -> SSAValue:
    bounds = [k.index(n) for n in step.extra["bounds"]]
    bounds[0] = arith.AddiOp(bounds[0], k.ids[0]).result
    mask = vector.CreateMaskOp(bounds, VectorType(i1, step.result.shape)).results[0]
    return arith.SelectOp(mask, a, b).result


def plain_masked(step: Step, ids: Any, a: Array, b: Array) -> Array:
    rows, columns = step.extra["bounds"]
    i, j = np.indices(a.shape)
    return np.where((i < rows + ids[0]) & (j < columns), a, b)


MOVES: dict[str, Move] = {
    "vector.extract_strided_slice": Move(draw_slice, build_slice, plain_slice),
    "vector.insert_strided_slice": Move(draw_insertion, build_insertion, plain_insertion),
    "vector.extract": Move(draw_row, build_row, plain_row),
    "vector.insert": Move(draw_new_row, build_new_row, plain_new_row),
    "vector.broadcast": Move(draw_repeated, build_repeated, plain_repeated),
    "vector.transpose": Move(draw_transposed, build_transposed, plain_transposed),
    "vector.shape_cast": Move(draw_reshaped, build_reshaped, plain_reshaped),
    "vector.interleave": Move(draw_interleaved, build_interleaved, plain_interleaved),
    "vector.deinterleave": Move(draw_every_other, build_every_other, plain_every_other),
    "vector.shuffle": Move(draw_shuffled, build_shuffled, plain_shuffled),
    "vector.bitcast": Move(draw_bits, build_bits, plain_bits),
    "vector.from_elements": ELEMENTS,
    "vector.to_elements": ELEMENTS,
    "vector.create_mask": Move(draw_masked, build_masked, plain_masked),
}
