"""Arm: dot products of vectors of 128 bits (NEON), and of 256 bits of SVE's registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.codegen.instructions.table import Emission, Immediates, declare
from tilewright.codegen.printer import Printer


def _dots(a: Any, b: Any, dtype: Any, group: int) -> Any:
    products = a.astype(dtype) * b.astype(dtype)
    return products.reshape(-1, group).sum(axis=1, dtype=dtype)


def _sdot(c: Any, a: Any, b: Any) -> Sequence[Any]:
    """c[i] + sum over j < 4 of signed a[4i+j] times signed b[4i+j]; wraps to 32 bits."""
    return [c + _dots(a.view(np.int8), b.view(np.int8), np.int32, 4)]


def _udot(c: Any, a: Any, b: Any) -> Sequence[Any]:
    """c[i] + sum over j < 4 of unsigned a[4i+j] times unsigned b[4i+j]; wraps to 32 bits."""
    return [c + _dots(a.view(np.uint8), b.view(np.uint8), np.int32, 4)]


def _usdot(c: Any, a: Any, b: Any) -> Sequence[Any]:
    """c[i] + sum over j < 4 of unsigned a[4i+j] times signed b[4i+j]; wraps to 32 bits."""
    return [c + _dots(a.view(np.uint8).astype(np.int32), b.view(np.int8), np.int32, 4)]


def _bfdot(c: Any, a: Any, b: Any) -> Sequence[Any]:
    """c[i] + a[2i] b[2i] + a[2i+1] b[2i+1] in f32; denormals count as zero."""
    a, b = (x.view(ml_dtypes.bfloat16) for x in (a, b))
    return [(c + _dots(a, b, np.float64, 2)).astype(np.float32)]


def _emission(name: str, n: int, sums: str, factors: str, per: int) -> Emission:
    """A call on vectors of n sums; SVE's take vectors of any length, of which they are the beginning."""

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        types = [f"<{n} x {sums}>", *[f"<{n * per} x {factors}>"] * 2]
        regs = [regs[0], *(_as(p, n * per, factors, r) for r in regs[1:])]
        if n == 4:
            call = f"llvm.aarch64.neon.{name}.{_mangle(types[0])}.{_mangle(types[1])}"
            return [p.call(types[0], call, [*zip(types, regs, strict=True)])]
        wide = [f"<vscale x 4 x {sums}>", *[f"<vscale x {4 * per} x {factors}>"] * 2]
        placed = [_widened(p, w, t, r) for w, t, r in zip(wide, types, regs, strict=True)]
        # SVE's of bf16 have one type, which their names do not say.
        call = f"llvm.aarch64.sve.{name}" + f".{_mangle(wide[0])}" * (factors == "i8")
        result = p.call(wide[0], call, [*zip(wide, placed, strict=True)])
        return [_narrowed(p, wide[0], types[0], result)]

    return emit


def _as(p: Printer, n: int, factors: str, register: str) -> str:
    """Registers hold bf16 as integers."""
    return (
        register if factors == "i8" else p.emit(f"bitcast <{n} x i16> {register} to <{n} x bfloat>")
    )


_SCALARS = {"float": "f32", "bfloat": "bf16"}
"""What MLIR and names of intrinsics call LLVM's types, where they differ."""


def _mangle(type: str) -> str:
    """A vector's type in the names of intrinsics."""
    words = type.strip("<>").split(" x ")
    scalar = _SCALARS.get(words[-1], words[-1])
    return f"nxv{words[1]}{scalar}" if words[0] == "vscale" else f"v{words[0]}{scalar}"


def _widened(p: Printer, wide: str, type: str, register: str) -> str:
    name = f"llvm.vector.insert.{_mangle(wide)}.{_mangle(type)}"
    return p.call(wide, name, [(wide, "poison"), (type, register), ("i64", "0")])


def _narrowed(p: Printer, wide: str, type: str, register: str) -> str:
    name = f"llvm.vector.extract.{_mangle(type)}.{_mangle(wide)}"
    return p.call(type, name, [(wide, register), ("i64", "0")])


for _n, _vectors in ((4, "neon"), (8, "sve2")):
    for _name, _feature, _meaning, _sums, _factors, _per in (
        ("sdot", "dotprod", _sdot, "i32", "i8", 4),
        ("udot", "dotprod", _udot, "i32", "i8", 4),
        ("usdot", "i8mm", _usdot, "i32", "i8", 4),
        ("bfdot", "bf16", _bfdot, "float", "bfloat", 2),
    ):
        _c = f"vector<{_n}x{_SCALARS.get(_sums, _sums)}>"
        _x = f"vector<{_n * _per}x{_SCALARS.get(_factors, _factors)}>"
        declare(
            f"aarch64.{_name}.{32 * _n}",
            (_c, _x, _x),
            (_c,),
            frozenset({_feature, _vectors}),
            _meaning,
            _emission(_name, _n, _sums, _factors, _per),
            exact=_factors == "i8",
        )
