"""Tilewright: a tile compiler in Python.

A kernel is written once over workgroup tiles and runs on CPUs, NVIDIA GPUs and Intel Xe GPUs:

    import numpy as np, tilewright as tw

    @tw.kernel
    def double(X, Y, N: tw.constexpr = 64):
        i = tw.program_id(0) * N
        x = tw.load_tile(tw.init_tile(X, [i], (1, N)))
        tw.store_tile(x * 2, tw.init_tile(Y, [i], (1, N)))

    double[tw.cdiv(len(x), 64)](x, y)

Everything is loaded when first used, so that importing the package is cheap.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tilewright.diagnostics import (
    CheckError,
    CompileError,
    LaunchError,
    TilewrightError,
    UnsupportedError,
    VerifyError,
)
from tilewright.dtypes import (
    DType,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    index,
    tf32,
    u8,
    u16,
    u32,
    u64,
)
from tilewright.lang.annotations import auto, constexpr
from tilewright.lang.kernel import Kernel, kernel

if TYPE_CHECKING:
    from tilewright.arguments import ArraySpec as spec
    from tilewright.lang.autotune import autotune
    from tilewright.lang.compute import broadcast, convert_layout, tile_mma, transpose
    from tilewright.lang.creation import arange, full, zeros
    from tilewright.lang.elementwise import (
        abs,
        acos,
        asin,
        atan,
        ceil,
        cos,
        cosh,
        erf,
        exp,
        exp2,
        expm1,
        floor,
        fma,
        log,
        log1p,
        log2,
        log10,
        maximum,
        minimum,
        round,
        rsqrt,
        sigmoid,
        sin,
        sinh,
        sqrt,
        tan,
        tanh,
        trunc,
        where,
    )
    from tilewright.lang.host import cdiv
    from tilewright.lang.maps import sg_map, wg_map
    from tilewright.lang.memory import (
        atomic_rmw,
        load_gather,
        load_tile,
        prefetch_tile,
        store_scatter,
        store_tile,
    )
    from tilewright.lang.parts import concat, deinterleave, interleave, reshape, roll
    from tilewright.lang.program import (
        barrier,
        device_assert,
        device_print,
        named_barrier,
        num_programs,
        num_subgroups,
        program_id,
        static_assert,
        static_range,
        subgroup_id,
    )
    from tilewright.lang.reductions import (
        all,
        any,
        argmax,
        argmin,
        max,
        min,
        prod,
        reduction,
        sum,
    )
    from tilewright.lang.scans import associative_scan, cumprod, cumsum
    from tilewright.lang.tiles import alloc_slm, init_tile, update_tile_offset
    from tilewright.lang.values import Array, Tile, Value
    from tilewright.lang.views import view
    from tilewright.runtime.arrays import prepack

__version__ = "0.2.0"

_NAMES = {
    "arguments": "spec",
    "lang.autotune": "autotune",
    "lang.compute": "broadcast convert_layout tile_mma transpose",
    "lang.creation": "arange full zeros",
    "lang.elementwise": "abs acos asin atan ceil cos cosh erf exp exp2 expm1 floor fma log log10 log1p log2 "
    "maximum minimum round rsqrt sigmoid sin sinh sqrt tan tanh trunc where",
    "lang.host": "cdiv",
    "lang.maps": "sg_map wg_map",
    "lang.memory": "atomic_rmw load_gather load_tile prefetch_tile store_scatter store_tile",
    "lang.parts": "concat deinterleave interleave reshape roll",
    "lang.program": "barrier device_assert device_print named_barrier num_programs num_subgroups "
    "program_id static_assert static_range subgroup_id",
    "lang.reductions": "all any argmax argmin max min prod reduction sum",
    "lang.scans": "associative_scan cumprod cumsum",
    "lang.tiles": "alloc_slm init_tile update_tile_offset",
    "lang.values": "Array Tile Value",
    "lang.views": "view",
    "runtime.arrays": "prepack",
}
_LAZY = {name: f"tilewright.{at}" for at, names in _NAMES.items() for name in names.split()}
"""Public names that are imported from their module when first asked for."""

_RENAMED = {"spec": "ArraySpec"}

_PARTS = ("graph", "ops")
"""Parts of the package with a face of their own."""


if not TYPE_CHECKING:  # with it in sight, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        module = _LAZY.get(name)
        if module is None:
            # `from tilewright import cache` asks here first: there is nothing to be meant instead.
            if find_spec(f"tilewright.{name}") is not None:
                return importlib.import_module(f"tilewright.{name}")
            from tilewright.lang.elsewhere import meant

            hint = meant(name, __all__)
            words = f"module 'tilewright' has no attribute {name!r}"
            raise AttributeError(f"{words}; {hint}" if hint else words)
        found = getattr(importlib.import_module(module), _RENAMED.get(name, name))
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted([*__all__, *_PARTS])


__all__ = [
    "Array",
    "CheckError",
    "CompileError",
    "DType",
    "Kernel",
    "LaunchError",
    "Tile",
    "TilewrightError",
    "UnsupportedError",
    "Value",
    "VerifyError",
    "__version__",
    "abs",
    "acos",
    "all",
    "alloc_slm",
    "any",
    "arange",
    "argmax",
    "argmin",
    "asin",
    "associative_scan",
    "atan",
    "atomic_rmw",
    "auto",
    "autotune",
    "barrier",
    "bf16",
    "broadcast",
    "cdiv",
    "ceil",
    "concat",
    "constexpr",
    "convert_layout",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "deinterleave",
    "device_assert",
    "device_print",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "f64",
    "floor",
    "fma",
    "full",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "index",
    "init_tile",
    "interleave",
    "kernel",
    "load_gather",
    "load_tile",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "maximum",
    "min",
    "minimum",
    "named_barrier",
    "num_programs",
    "num_subgroups",
    "prefetch_tile",
    "prepack",
    "prod",
    "program_id",
    "reduction",
    "reshape",
    "roll",
    "round",
    "rsqrt",
    "sg_map",
    "sigmoid",
    "sin",
    "sinh",
    "spec",
    "sqrt",
    "static_assert",
    "static_range",
    "store_scatter",
    "store_tile",
    "subgroup_id",
    "sum",
    "tan",
    "tanh",
    "tf32",
    "tile_mma",
    "transpose",
    "trunc",
    "u8",
    "u16",
    "u32",
    "u64",
    "update_tile_offset",
    "view",
    "wg_map",
    "where",
    "zeros",
]
