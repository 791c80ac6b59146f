"""One op on vectors: loads its operands from arrays, runs it, stores its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.reference.kernels import run
from tilewright import dtypes

Array = np.ndarray[Any, Any]


def type_name(dtype: dtypes.DType) -> str:
    return {"f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2", "u8": "ui8"}.get(dtype.name, dtype.name)


def evaluate(
    text: str, operands: Sequence[Array], result: str, shape: tuple[int, ...], **options: Any
) -> Array:
    """`text` computes %r of type vector<shape x result> from %0, %1, ...; i1 results come as i8."""
    arguments: list[str] = []
    lines: list[str] = []
    for number, operand in enumerate(operands):
        element = type_name(dtypes.from_numpy(operand.dtype))
        dims = "x".join(map(str, operand.shape))
        zeros = ", ".join(["%c0"] * operand.ndim)
        arguments.append(f"%a{number}: memref<{dims}x{element}>")
        lines.append(
            f"%{number} = vector.load %a{number}[{zeros}] : memref<{dims}x{element}>, "
            f"vector<{dims}x{element}>"
        )
    dims = "x".join(map(str, shape))
    stored = "i8" if result == "i1" else result
    lines.append(text)
    value = "%r"
    if result == "i1":
        lines.append(f"%wide = arith.extui %r : vector<{dims}xi1> to vector<{dims}xi8>")
        value = "%wide"
    zeros = ", ".join(["%c0"] * len(shape))
    arguments.append(f"%out: memref<{dims}x{stored}>")
    lines.append(
        f"vector.store {value}, %out[{zeros}] : memref<{dims}x{stored}>, vector<{dims}x{stored}>"
    )
    known = {type_name(d): d for d in dtypes.ALL}
    out = np.zeros(shape, known[stored].numpy)
    run(", ".join(arguments), "\n".join(lines), [*operands, out], **options)
    return out
