"""x86: dot products, packing conversions, approximations. AMX has its own file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.codegen.instructions import amx as amx
from tilewright.codegen.instructions.table import Immediates, declare
from tilewright.codegen.printer import Printer


def _intrinsic(name: str, result: str, *operands: str, extra: tuple[tuple[str, str], ...] = ()):
    """An emission that calls one LLVM intrinsic on operands of these types, `vector<16xf32>`."""
    types = [_llvm(type) for type in (*operands, result)]

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        args = [*zip(types[:-1], regs, strict=True), *extra]
        return [p.call(types[-1], f"llvm.x86.{name}", args)]

    return emit


def _llvm(type: str) -> str:
    return f"<{type[7:-1].replace('x', ' x ').replace('f32', 'float')}>"


def _bf16(x: Any) -> Any:
    return x.view(ml_dtypes.bfloat16).astype(np.float32)


# Integer dot products -----------------------------------------------------------------------------


def _dpbusd(c: Any, a: Any, b: Any) -> Sequence[Any]:
    """c[i] + sum over j < 4 of unsigned a[4i+j] times signed b[4i+j]; wraps to 32 bits."""
    products = a.view(np.uint8).astype(np.int32) * b.view(np.int8).astype(np.int32)
    return [c + products.reshape(-1, 4).sum(axis=1, dtype=np.int32)]


def _maddwd(a: Any, b: Any) -> Sequence[Any]:
    """a[2i] b[2i] + a[2i+1] b[2i+1], signed 16-bit factors, 32-bit sums that wrap."""
    with np.errstate(over="ignore"):
        products = a.astype(np.int32) * b.astype(np.int32)
        return [products[0::2] + products[1::2]]


def _maddubsw(a: Any, b: Any) -> Sequence[Any]:
    """Unsigned a times signed b, neighbours added, saturated to 16 bits."""
    products = a.view(np.uint8).astype(np.int32) * b.view(np.int8).astype(np.int32)
    return [np.clip(products[0::2] + products[1::2], -(1 << 15), (1 << 15) - 1).astype(np.int16)]


for _bits, _feature in ((512, "avx512vnni"), (256, "avx512vnni|avxvnni")):
    _c, _x = f"vector<{_bits // 32}xi32>", f"vector<{_bits // 8}xi8>"
    declare(
        f"x86.vpdpbusd.{_bits}",
        (_c, _x, _x),
        (_c,),
        frozenset({_feature}),
        _dpbusd,
        _intrinsic(f"avx512.vpdpbusd.{_bits}", _c, _c, _x, _x),
    )

for _kind, _meaning, _part, _bits, _name, _feature in (
    ("wd", _maddwd, 16, 512, "avx512.pmaddw.d.512", "avx512bw"),
    ("wd", _maddwd, 16, 256, "avx2.pmadd.wd", "avx2"),
    ("ubsw", _maddubsw, 8, 512, "avx512.pmaddubs.w.512", "avx512bw"),
    ("ubsw", _maddubsw, 8, 256, "avx2.pmadd.ub.sw", "avx2"),
):
    _x, _c = f"vector<{_bits // _part}xi{_part}>", f"vector<{_bits // _part // 2}xi{2 * _part}>"
    declare(
        f"x86.vpmadd{_kind}.{_bits}",
        (_x, _x),
        (_c,),
        frozenset({_feature}),
        _meaning,
        _intrinsic(_name, _c, _x, _x),
    )


# bf16 ---------------------------------------------------------------------------------------------


def _dpbf16(c: Any, a: Any, b: Any) -> Sequence[Any]:
    """c[i] + a[2i] b[2i] + a[2i+1] b[2i+1] in f32; denormals count as zero."""
    products = _bf16(a).astype(np.float64) * _bf16(b).astype(np.float64)
    return [(c + products.reshape(-1, 2).sum(axis=1)).astype(np.float32)]


def _cvtne2(high: Any, low: Any) -> Sequence[Any]:
    """bf16 of `low` in the lower half of the result, of `high` in the upper; denormals become zero."""
    return [np.concatenate([low, high]).astype(ml_dtypes.bfloat16)]


def _emit_dpbf16(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
    a, b = (p.emit(f"bitcast <32 x i16> {r} to <32 x bfloat>") for r in regs[1:])
    args = [("<16 x float>", regs[0]), ("<32 x bfloat>", a), ("<32 x bfloat>", b)]
    return [p.call("<16 x float>", "llvm.x86.avx512bf16.dpbf16ps.512", args)]


def _emit_cvtne2(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
    args = [("<16 x float>", r) for r in regs]
    packed = p.call("<32 x bfloat>", "llvm.x86.avx512bf16.cvtne2ps2bf16.512", args)
    return [p.emit(f"bitcast <32 x bfloat> {packed} to <32 x i16>")]


declare(
    "x86.vdpbf16ps.512",
    ("vector<16xf32>", "vector<32xbf16>", "vector<32xbf16>"),
    ("vector<16xf32>",),
    frozenset({"avx512bf16"}),
    _dpbf16,
    _emit_dpbf16,
    exact=False,
)
declare(
    "x86.vcvtne2ps2bf16.512",
    ("vector<16xf32>", "vector<16xf32>"),
    ("vector<32xbf16>",),
    frozenset({"avx512bf16"}),
    _cvtne2,
    _emit_cvtne2,
)


# Approximations -----------------------------------------------------------------------------------


def _reciprocal(x: Any) -> Sequence[Any]:
    """1 / x with a relative error below 2^-14."""
    with np.errstate(divide="ignore"):
        return [np.float32(1) / x]


def _reciprocal_root(x: Any) -> Sequence[Any]:
    """1 / sqrt(x) with a relative error below 2^-14; x positive."""
    return [np.float32(1) / np.sqrt(np.abs(x))]


def _emit_rsqrt14(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
    x = p.call("<16 x float>", "llvm.fabs.v16f32", [("<16 x float>", regs[0])])
    args = [("<16 x float>", x), ("<16 x float>", "zeroinitializer"), ("i16", "-1")]
    return [p.call("<16 x float>", "llvm.x86.avx512.rsqrt14.ps.512", args)]


_x, _rest = "vector<16xf32>", (("<16 x float>", "zeroinitializer"), ("i16", "-1"))
for _name, _meaning, _emit in (
    ("vrcp14ps", _reciprocal, _intrinsic("avx512.rcp14.ps.512", _x, _x, extra=_rest)),
    ("vrsqrt14ps", _reciprocal_root, _emit_rsqrt14),
):
    declare(
        f"x86.{_name}.512",
        (_x,),
        (_x,),
        frozenset({"avx512f"}),
        _meaning,
        _emit,
        exact=False,
        elementwise=True,
    )


# Threads ------------------------------------------------------------------------------------------


def _pause() -> Sequence[Any]:
    """Nothing, for some cycles: a hint inside a spinning loop."""
    return []


def _emit_pause(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
    p.call("void", "llvm.x86.sse2.pause", [])
    return []


declare("x86.pause", (), (), frozenset(), _pause, _emit_pause)
