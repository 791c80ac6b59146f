"""x86 AMX: tiles of 16 rows by 64 bytes, with LLVM's automatic tile configuration and register
allocation.

LLVM writes one tile configuration for the function from the shapes of all its instructions. At most
8 tiles live at a time: LLVM does not reorder loads to lower the pressure, so emit them in the order
that keeps it (`notes/cpu.md` 4). Immediates `rows`, `bytes` (of a row) and `inner` (bytes of K)
default to whole tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.codegen.instructions.table import Emission, Immediates, Meaning, declare
from tilewright.codegen.printer import Printer

ROWS, BYTES = 16, 64


def _zero(rows: int = ROWS, bytes: int = BYTES) -> Sequence[Any]:
    """A tile of zeros."""
    return [np.zeros((ROWS, BYTES), np.uint8)]


def _load(pointer: Any, stride: int, rows: int = ROWS, bytes: int = BYTES) -> Sequence[Any]:
    """Row r is the `bytes` bytes at pointer + r * stride; what lies beyond rows and bytes is zero."""
    tile = np.zeros((ROWS, BYTES), np.uint8)
    for r in range(rows):
        tile[r, :bytes] = pointer[r * stride : r * stride + bytes]
    return [tile]


def _store(
    tile: Any, pointer: Any, stride: int, rows: int = ROWS, bytes: int = BYTES
) -> Sequence[Any]:
    """Row r goes to the `bytes` bytes at pointer + r * stride."""
    for r in range(rows):
        pointer[r * stride : r * stride + bytes] = tile[r, :bytes]
    return []


def _dot(a_type: Any, b_type: Any, c_type: Any, wide: Any) -> Meaning:
    per = 4 // np.dtype(a_type).itemsize

    def dot(
        c: Any, a: Any, b: Any, rows: int = ROWS, bytes: int = BYTES, inner: int = BYTES
    ) -> Sequence[Any]:
        """C[m, n] + sum over k of A[m, k] B[k, n]; B's rows hold groups of 4 bytes of K per n."""
        depth = inner // 4
        left = a.view(a_type)[:rows, : depth * per].astype(wide)
        right = b.view(b_type).reshape(ROWS, BYTES // 4, per)[:depth].astype(wide)
        right = right.transpose(0, 2, 1).reshape(depth * per, BYTES // 4)
        out = c.view(c_type).copy()
        columns = bytes // 4
        total = out[:rows, :columns].astype(wide) + left @ right[:, :columns]
        if wide is np.int64:
            total = total.astype(np.uint64).astype(np.uint32).view(np.int32)
        out[:rows, :columns] = total.astype(c_type)
        return [out.view(np.uint8)]

    return dot


def _emit(name: str, result: str, *types: str, first: int = 0) -> Emission:
    """LLVM's intrinsic on the immediates, as they are listed, and operands from the `first` on, then those before."""

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        shape = [("i16", str(n)) for n in immediates.values()]
        given = zip(types, (*regs[first:], *regs[:first]), strict=True)
        value = p.call(result, f"llvm.x86.{name}.internal", [*shape, *given])
        return [value] if value else []

    return emit


_SHAPE = {"rows": ROWS, "bytes": BYTES}
_TILE, _AMX = "!mach.amx", "x86_amx"
_BASE = frozenset({"amx-tile"})

declare("x86.amx.tilezero", (), (_TILE,), _BASE, _zero, _emit("tilezero", _AMX), _SHAPE)
for _name, _llvm in (("tileload", "tileloadd64"), ("tileloadt1", "tileloaddt164")):
    # tileloadt1 is the same load, with the hint that the lines will not be read again from L1.
    declare(
        f"x86.amx.{_name}",
        ("!llvm.ptr", "index"),
        (_TILE,),
        _BASE,
        _load,
        _emit(_llvm, _AMX, "ptr", "i64"),
        _SHAPE,
        effect="read",
    )
declare(
    "x86.amx.tilestore",
    (_TILE, "!llvm.ptr", "index"),
    (),
    _BASE,
    _store,
    _emit("tilestored64", "void", "ptr", "i64", _AMX, first=1),
    _SHAPE,
    effect="write",
)

_DOTS: tuple[tuple[str, str, Any, Any, Any, Any], ...] = (
    ("tdpbf16ps", "amx-bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32, np.float64),
    ("tdpfp16ps", "amx-fp16", np.float16, np.float16, np.float32, np.float64),
    ("tdpbssd", "amx-int8", np.int8, np.int8, np.int32, np.int64),
    ("tdpbsud", "amx-int8", np.int8, np.uint8, np.int32, np.int64),
    ("tdpbusd", "amx-int8", np.uint8, np.int8, np.int32, np.int64),
    ("tdpbuud", "amx-int8", np.uint8, np.uint8, np.int32, np.int64),
)
for _name, _feature, _a, _b, _c, _wide in _DOTS:
    declare(
        f"x86.amx.{_name}",
        (_TILE, _TILE, _TILE),
        (_TILE,),
        _BASE | {_feature},
        _dot(_a, _b, _c, _wide),
        _emit(_name, _AMX, _AMX, _AMX, _AMX),
        {**_SHAPE, "inner": BYTES},
        exact=_wide is np.int64,
    )
