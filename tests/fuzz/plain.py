"""What a random program computes, one workgroup after another, in plain numpy.

Written without the reference executor, so that the two can be held against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.moves import MOVES
from tests.fuzz.programs import FLOATS, ArrayOf, Place, Program, Scatter, Step

NUMPY: dict[str, Any] = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
}


def make_array(spec: ArrayOf, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Random content in the layout that was asked for."""
    rows, columns = spec.shape
    dtype = NUMPY[spec.dtype]
    space = {
        "rows": (rows, columns + 2),
        "columns": (columns, rows + 2),
        "gaps": (2 * rows, 3 * columns),
        "reversed": (rows, columns),
        "dense": (rows, columns),
        "even rows": (rows, -(-columns // 16) * 16),
        "even columns": (columns, -(-rows // 16) * 16),
    }[spec.layout]
    if spec.dtype in FLOATS:
        whole = rng.standard_normal(space).astype(dtype)
    else:
        whole = rng.integers(-100, 100, space).astype(dtype)
    return {
        "rows": lambda: whole[:, :columns],
        "columns": lambda: whole[:, :rows].T,
        "gaps": lambda: whole[::2, ::3],
        "reversed": lambda: whole[::-1],
        "dense": lambda: whole,
        "even rows": lambda: whole[:, :columns],
        "even columns": lambda: whole[:, :rows].T,
    }[spec.layout]()


def make_arrays(specs: Sequence[ArrayOf], rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """One array each; those with an owner lie in its memory."""
    found: list[np.ndarray[Any, Any]] = []
    for spec in specs:
        if spec.owner is None:
            found.append(make_array(spec, rng))
            continue
        size = spec.shape[0] * spec.shape[1]
        flat = found[spec.owner].reshape(-1)
        found.append(flat[spec.start : spec.start + size].reshape(spec.shape))
    return found


def copies(arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Copies that overlap one another as the arrays do, strides and all."""
    homes: dict[int, np.ndarray[Any, Any]] = {}
    found: list[np.ndarray[Any, Any]] = []
    for array in arrays:
        home = array
        while isinstance(home.base, np.ndarray):
            home = home.base
        if id(home) not in homes:
            homes[id(home)] = home.copy(order="K")
        offset = array.__array_interface__["data"][0] - home.__array_interface__["data"][0]
        memory = homes[id(home)].reshape(-1).view(np.uint8)
        found.append(np.ndarray(array.shape, array.dtype, memory, offset, array.strides))
    return found


@dataclass
class Outcome:
    """What must be in the arguments, inputs first, and how large numbers became on the way."""

    arrays: list[np.ndarray[Any, Any]]
    scale: float
    finite: bool


def evaluate(
    program: Program, inputs: list[np.ndarray[Any, Any]], outputs: list[np.ndarray[Any, Any]]
) -> Outcome:
    """Runs the program on copies of the arguments."""
    arrays = copies([*inputs, *outputs])
    inputs, results = arrays[: len(inputs)], arrays[len(inputs) :]
    scale, finite = 1.0, True
    with np.errstate(all="ignore"):
        for x in range(program.grid[0]):
            for y in range(program.grid[1]):
                values: list[np.ndarray[Any, Any]] = []
                for step in program.steps:
                    value = _step(step, values, inputs, program, (x, y)).astype(
                        NUMPY[step.result.dtype]
                    )
                    assert value.shape == step.result.shape, step
                    values.append(value)
                    if step.result.dtype in FLOATS:
                        wide = value.astype(np.float64)
                        finite &= bool(np.isfinite(wide).all())
                        scale = max(scale, float(np.abs(wide).max(initial=0)))
                for output, (position, result) in enumerate(
                    zip(program.stores, results, strict=True)
                ):
                    if program.way(output) == "tile":
                        m, n = values[position].shape
                        _store(result, values[position], x * m, y * n)
                    else:
                        linear = x * program.grid[1] + y
                        added = program.way(output) == "add"
                        _scatter(program.scatter(output), result, values[position], linear, added)
    return Outcome(arrays, scale, finite)


def _store(
    target: np.ndarray[Any, Any], value: np.ndarray[Any, Any], row: int, column: int
) -> None:
    for i, j in np.ndindex(value.shape):
        if 0 <= row + i < target.shape[0] and 0 <= column + j < target.shape[1]:
            target[row + i, column + j] = value[i, j]


def _scatter(
    at: Scatter,
    target: np.ndarray[Any, Any],
    value: np.ndarray[Any, Any],
    linear: int,
    added: bool = False,
) -> None:
    flat = target.reshape(-1)
    for i, j in np.ndindex(value.shape):
        if j < at.limit:
            place = _offset(at, i, j, linear)
            flat[place] = value[i, j] + (flat[place] if added else 0)


def _offset(at: Scatter, i: int, j: int, linear: int) -> int:
    return (at.rows * i + at.columns * j + at.programs * linear + at.start) % at.modulus


def _load(
    array: np.ndarray[Any, Any], row: int, column: int, shape: tuple[int, int], padding: Any
) -> np.ndarray[Any, Any]:
    tile = np.full(shape, padding, array.dtype)
    for i in range(shape[0]):
        for j in range(shape[1]):
            if 0 <= row + i < array.shape[0] and 0 <= column + j < array.shape[1]:
                tile[i, j] = array[row + i, column + j]
    return tile


def _wide(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return value.astype(np.float32) if value.dtype.kind not in "iu" else value


def _floats(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return value.astype(np.float32)


def _binary(op: str, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    a, b = _wide(a), _wide(b)
    unsigned = f"u{a.dtype.itemsize}"
    functions: dict[str, Any] = {
        "addf": np.add,
        "addi": np.add,
        "subf": np.subtract,
        "subi": np.subtract,
        "mulf": np.multiply,
        "muli": np.multiply,
        "maximumf": np.maximum,
        "minimumf": np.minimum,
        "maxnumf": np.fmax,
        "minnumf": np.fmin,
        "minsi": np.minimum,
        "maxsi": np.maximum,
        "minui": lambda p, q: np.minimum(p.view(unsigned), q.view(unsigned)).view(p.dtype),
        "xori": np.bitwise_xor,
        "andi": np.bitwise_and,
    }
    return functions[op](a, b)


def _reduce(op: str, value: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    if op == "add" and value.dtype.kind not in "iu":
        return value.astype(np.float64).sum(axis=axis)
    if op == "maxui":
        unsigned = value.view(f"u{value.dtype.itemsize}")
        return np.maximum.reduce(unsigned, axis=axis).view(value.dtype)
    functions: dict[str, Any] = {
        "add": np.add,
        "maximumf": np.maximum,
        "minnumf": np.fmin,
        "minsi": np.minimum,
        "xor": np.bitwise_xor,
        "and": np.bitwise_and,
    }
    return functions[op].reduce(
        _wide(value), axis=axis, **({"dtype": value.dtype} if op == "add" else {})
    )


def _product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if a.dtype.kind in "iu":
        return (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    return a.astype(np.float64) @ b.astype(np.float64)


def _step(
    step: Step,
    values: list[np.ndarray[Any, Any]],
    inputs: list[np.ndarray[Any, Any]],
    program: Program,
    ids: tuple[int, int],
) -> np.ndarray[Any, Any]:
    args = [values[i] for i in step.args]
    extra = step.extra
    if step.kind == "load":
        row, column = (place.at(ids) for place in extra["at"])
        return _load(inputs[extra["array"]], row, column, step.result.shape, extra["padding"])
    if step.kind == "gather":
        at, flat = extra["at"], inputs[extra["array"]].reshape(-1)
        linear = ids[0] * program.grid[1] + ids[1]
        found = np.full(step.result.shape, extra["padding"], flat.dtype)
        for i, j in np.ndindex(found.shape):
            if j < at.limit:
                found[i, j] = flat[_offset(at, i, j, linear)]
        return found
    if step.kind == "store":
        row, column = (place.at(ids) for place in extra["at"])
        _store(inputs[extra["to"]], args[0], row, column)
        return args[0]
    if step.kind == "put":
        _scatter(extra["at"], inputs[extra["to"]], args[0], 0)
        return args[0]
    if step.kind == "shift":
        array, at, by = extra["from"]
        for i in range(extra["times"]):
            row, column = (place.at(ids) + i * d for place, d in zip(at, by, strict=True))
            moved = _load(inputs[array], row, column, step.result.shape, 0)
            if extra["op"] is not None:
                moved = _binary(extra["op"], moved, args[0]).astype(moved.dtype)
            there = zip(extra["at"], extra["by"], strict=True)
            row, column = (place.at(ids) + i * d for place, d in there)
            _store(inputs[extra["to"]], moved, row, column)
        return args[0]
    if step.kind == "binary":
        return _binary(extra["op"], *args)
    if step.kind == "unary":
        function = {"negf": np.negative, "absf": np.abs, "tanh": np.tanh, "floor": np.floor}
        wide = args[0].astype(np.float64)
        return function[extra["op"]](wide)
    if step.kind == "splat":
        return np.full(step.result.shape, extra["number"])
    if step.kind == "cast":
        return _wide(args[0])
    if step.kind == "transpose":
        return args[0].T
    if step.kind == "reduce":
        dim, size = extra["dim"], extra["size"] or args[0].shape[extra["dim"]]
        shape = list(args[0].shape)
        shape[dim : dim + 1] = [shape[dim] // size, size]
        return _reduce(extra["op"], args[0].reshape(shape), dim + 1)
    if step.kind == "broadcast":
        times = step.result.shape[extra["dim"]] // args[0].shape[extra["dim"]]
        return np.repeat(args[0], times, axis=extra["dim"])
    if step.kind == "select":
        return np.where(_wide(args[0]) < _wide(args[1]), args[0], args[1])
    if step.kind == "move":
        return MOVES[extra["op"]].plain(step, ids, *args)
    if step.kind == "mma":
        total = _product(args[0], args[1])
        return total + args[2] if len(args) == 3 else total
    if step.kind == "dot":
        return _dot(step, inputs, ids)
    if step.kind == "if":
        return args[ids[extra["axis"]] % 2]
    if step.kind == "repeat":
        total = args[0]
        for _ in range(extra["times"]):
            total = _binary(extra["op"], total, args[1]).astype(args[0].dtype)
        return total
    assert step.kind == "layout"
    return args[0]


def _dot(
    step: Step, inputs: list[np.ndarray[Any, Any]], ids: tuple[int, int]
) -> np.ndarray[Any, Any]:
    extra, (m, n) = step.extra, step.result.shape
    at: tuple[Place, Place] = extra["at"]
    row, column = at[0].at(ids), at[1].at(ids)
    steps = -(-extra["depth"] // extra["k"])
    a = _load(inputs[extra["a"]], row, 0, (m, steps * extra["k"]), 0)
    before = {"negf": np.negative, "absf": np.abs, "cast": _floats, None: lambda x: x}
    a = before[extra.get("before")](a)
    factors = [extra["b"], *([extra["also"]] if extra.get("also") is not None else [])]
    loaded = [_load(inputs[b], 0, column, (steps * extra["k"], n), 0) for b in factors]
    return sum(_product(a, b) for b in loaded)  # pyright: ignore
