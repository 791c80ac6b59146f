"""NVIDIA mma.sync: one warp multiplies fragments held in registers (PTX ISA, "mma").

Names say the shape and the types of D, A, B and C: `nvptx.mma.m16n8k16.f32.bf16.bf16.f32`.
Operands are (A, B, C): A and B as 32-bit words (narrow elements packed low half first), C and D as
f32, i32 or f64, or as words of two f16. Who holds which element is `uarch.fragments.mma_a`, `mma_b`
and `mma_c`. `m8` is an instruction of 16 rows of which the last 8 are not held (of f64, one that has 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import dtypes
from tilewright.codegen.instructions.nvptx_common import SM80, SM90, group, ptx
from tilewright.codegen.instructions.table import Emission, Immediates, declare
from tilewright.codegen.printer import Printer
from tilewright.uarch.nvidia import MMA_F64, MMA_SYNC, ptx_type

NUMPY: dict[str, Any] = {
    ptx_type(name): dtypes.from_name(name).numpy
    for name in ("f16", "bf16", "tf32", "f64", "f8e4m3", "f8e5m2", "i8", "u8", "f32", "i32")
}
"""numpy's type of PTX's element types."""


def elements(words: Any, kind: str) -> Any:
    """[lanes, words] -> [lanes, elements] of a fragment's packed words, widened to multiply."""
    data = np.ascontiguousarray(words)
    if kind == "tf32":
        # The machine reads the upper 19 bits.
        bits = data.view(np.uint32) & np.uint32(0xFFFFE000)
        return bits.view(np.float32).astype(np.float64)
    wide = np.int64 if kind in ("s8", "u8") else np.float64
    return data.view(NUMPY[kind]).astype(wide)


def place_a(lanes: Any, m: int, k: int, pack: int) -> Any:
    """A [m, k] from what each of 32 lanes holds, [32, m * k / 32]: quads own rows, 8 apart."""
    out = np.zeros((m, k), lanes.dtype)
    lane, (word, part) = np.arange(32)[:, None], np.divmod(np.arange(lanes.shape[1]), pack)
    column = (lane % 4) * pack + part + 4 * pack * (word // (m // 8))
    out[lane // 4 + 8 * (word % (m // 8)), column] = lanes
    return out


def place_b(lanes: Any, k: int, n: int, pack: int) -> Any:
    """B [k, n]: lane l owns column l // 4."""
    return place_a(lanes, n, k, pack).T


def c_indices(m: int) -> tuple[Any, Any]:
    """(rows, columns) [32, m / 4] of C [m, 8]: two columns, then the row eight below."""
    lane = np.arange(32)[:, None]
    i = np.arange(2 * (m // 8))[None, :]
    return lane // 4 + 8 * (i // 2), (lane % 4) * 2 + i % 2


def _accumulator(values: Any, c: Any) -> Any:
    """Sums as the accumulator's type; i32 wraps."""
    if np.dtype(c.dtype).kind == "i":
        return values.astype(np.uint64).astype(np.uint32).view(np.int32)
    return values.astype(c.dtype)


def _meaning(m: int, k: int, a_kind: str, b_kind: str, d_kind: str) -> Any:
    pack = 1 if a_kind == "f64" else 4 // np.dtype(NUMPY[a_kind]).itemsize

    def mma(a: Any, b: Any, c: Any) -> Sequence[Any]:
        """D[m, n] = C[m, n] + sum over k of A[m, k] B[k, n]; the order of the sum is free."""
        left = place_a(elements(a, a_kind), m, k, pack)
        right = place_b(elements(b, b_kind), k, 8, pack)
        rows, columns = c_indices(m)
        held = np.ascontiguousarray(c)
        start = held.view(np.float16) if d_kind == "f16" else held
        wide = np.int64 if d_kind == "s32" else np.float64
        sums = start.astype(wide) + (left @ right)[rows, columns]
        return [_accumulator(sums, start).view(held.dtype)]

    return mma


def _emit(text: str, d: str, counts: tuple[int, int, int], half: bool) -> Emission:
    na, nb, nc = counts
    a, b, c, sums = group(nc, na), group(nc + na, nb), group(0, nc), group(0, nc)
    below: list[str] = []
    if half:
        # Rows of D depend on the same rows of A and C alone, so those below may be anything: every other word of A,
        # the last ones of C. Zeros would be moved there before each instruction.
        below = [f"below{i}" for i in range(nc)]
        a = "{" + ", ".join(f"${nc + i}, any" for i in range(na)) + "}"
        sums = "{" + ", ".join([*(f"${i}" for i in range(nc)), *below]) + "}"
        c = "{" + ", ".join([*(f"${i}" for i in range(nc)), *["any"] * nc]) + "}"
    body = f"{text} {sums}, {a}, {b}, {c};"
    if half:
        body = f"{{ .reg .b32 any, {', '.join(below)}; {body} }}"

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        word = "double" if d == "double" else "i32"
        args = [(word, r) for r in regs[: na + nb]] + [(d, r) for r in regs[na + nb :]]
        return ptx(p, body, [d] * nc, args, tied=nc)

    return emit


_LLVM = {"f32": "float", "s32": "i32", "f16": "i32", "f64": "double"}
_MLIR = {"f32": "f32", "s32": "i32", "f16": "i32", "f64": "f64"}


def _declare(
    shape: tuple[int, int, int], d: str, a: str, b: str, requires: frozenset[str] = SM80
) -> None:
    m, n, k = shape
    size = 64 if a == "f64" else 32
    bits = 8 * np.dtype(NUMPY[a]).itemsize
    na, nb = m * k * bits // (32 * size), n * k * bits // (32 * size)
    nc = m * n // 32 // (2 if d == "f16" else 1)
    word = "f64" if a == "f64" else "i32"
    saturate = ""  # i32 wraps
    half = m < 16 and a != "f64"
    name = f"mma.sync.aligned.m{16 if half else m}n{n}k{k}.row.col{saturate}.{d}.{a}.{b}.{d}"
    accumulator = f"vector<{nc}x{_MLIR[d]}>"
    declare(
        f"nvptx.mma.m{m}n{n}k{k}.{d}.{a}.{b}.{d}",
        (f"vector<{na}x{word}>", f"vector<{nb}x{word}>", accumulator),
        (accumulator,),
        requires,
        _meaning(m, k, a, b, d),
        _emit(name, _LLVM[d], (na, nb, nc), half),
        exact=d == "s32",
        scope="warp",
    )


for _each in MMA_SYNC + MMA_F64:
    _x, _y, _sums = map(ptx_type, _each.types)
    for _rows in _each.m:
        if _rows >= 8:
            _declare((_rows, 8, _each.k), _sums, _x, _y, SM90 if _each in MMA_F64 else SM80)
for _a in ("e4m3", "e5m2"):
    for _b in ("e4m3", "e5m2"):
        _declare((16, 8, 32), "f32", _a, _b, frozenset({"sm_89", "ptx84"}))
