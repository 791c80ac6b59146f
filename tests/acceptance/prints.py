"""A program that prints, and what it prints, whatever runs it."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw


@tw.kernel
def prints(X, N, n):
    p = tw.program_id(0)
    x = tw.load_tile(tw.init_tile(X, [p * 2, 0], (2, 4)))
    b = tw.load_tile(tw.init_tile(N, [0, 0], (1, 4)))
    print("program", p, f"{{n}} = {n}, 100 %, {tw.max(x, None).item()}", x > 1, b, 2.5)
    if p == 1:
        whole = tw.load_tile(tw.init_tile(X, [0, 0], (16, 32)), padding=-1)
        tw.device_print(whole.to(tw.f16) / 3, x)


def arguments(rng: np.random.Generator) -> list[Any]:
    x = rng.standard_normal((4, 8)).astype(np.float32)
    x[0, :2] = np.inf, -0.0
    return [x, rng.integers(0, 256, (1, 4)).astype(np.uint8), int(rng.integers(-99, 99))]


def brackets(x: Any) -> str:
    """numpy's nested lists, with numbers as C's %g."""
    if np.ndim(x):
        return f"[{' '.join(map(brackets, x))}]"
    return str(x) if isinstance(x, (bool, np.bool_, np.integer)) else f"{float(x):g}"


def expected(args: list[Any]) -> list[str]:
    x, b, n = args
    lines: list[str] = []
    for p in range(2):
        part = x[2 * p : 2 * p + 2, :4]
        said = f"program {p} {{n}} = {n}, 100 %, {float(part.max()):g}"
        lines.append(f"[workgroup ({p}, 0, 0)] {said} {brackets(part > 1)} {brackets(b)} 2.5")
    whole = np.full((16, 32), -1, np.float32)
    whole[:4, :8] = x
    third = (whole.astype(np.float16) / np.float16(3)).astype(np.float32)
    ends = [0, 1, 2, -3, -2, -1]

    def row(r: int) -> str:
        first, last = (
            " ".join(brackets(third[r, c]) for c in half) for half in (ends[:3], ends[3:])
        )
        return f"[{first} ... {last}]"

    rows = " ".join(map(row, ends[:3])), " ".join(map(row, ends[3:]))
    lines.append(f"[workgroup (1, 0, 0)] 16x32 [{rows[0]} ... {rows[1]}] {brackets(x[2:4, :4])}")
    return lines
