"""Random data that every contender of a case shares, and the peers that exist here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.runtime.arrays import aligned
from tilewright.tools.exits import MissingTool, UsageError


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Zeros that start with a cache line, as torch's own tensors do and numpy's arrays may not: oneDNN's products of
    bf16 take twice the time where they do not."""
    found = aligned(shape, dtype)
    found.fill(0)
    return found


def random(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Fresh normal numbers, or all of i8 alike, at the start of a cache line."""
    try:
        element = dtypes.from_name(dtype)
    except KeyError as error:
        raise UsageError(str(error.args[0])) from None
    found = zeros(shape, element.numpy)
    rng = np.random.default_rng()
    found[...] = (
        rng.integers(-128, 128, shape, np.int8)
        if dtype == "i8"
        else rng.standard_normal(shape, np.float32)
    )
    return found


def torch_or_none(against: str, threads: int) -> Any:
    """The torch module on that many threads when it is the peer; None for numpy."""
    if against == "numpy":
        return None
    if against != "torch":
        raise UsageError(f"the peers are torch and numpy, not {against!r}")
    try:
        torch: Any = import_module("torch")
    except ImportError:
        raise MissingTool(
            "torch is not installed", "pip install torch, or --against numpy"
        ) from None
    torch.set_num_threads(threads)
    return torch


def tensor(torch: Any, array: np.ndarray[Any, Any]) -> Any:
    """A torch tensor on the memory of a numpy array."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def check_close(ours: Any, theirs: Any, limit: float, what: str) -> None:
    """Refuses to time a wrong result: relative Frobenius norm of the difference."""
    a, b = (np.asarray(x, np.float64) for x in (ours, theirs))
    difference = float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), 1e-30)
    if not difference < limit:
        raise AssertionError(f"{what}: the contenders differ by {difference:.2e}")


LIMITS = {"f64": 1e-12, "f32": 1e-4, "f16": 1e-2, "bf16": 2e-2}
"""How far two right results may be apart, generously: wrong ones are off by about 1."""
