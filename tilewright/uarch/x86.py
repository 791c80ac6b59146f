"""x86: its levels of features, micro-kernels and limits. What the tables consist of stands in `cpu`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tilewright.uarch.base import (
    GENERIC,
    Limit,
    Machine,
    MatrixFragments,
    MatrixInstruction,
    MemoryLevel,
    by_name,
    table,
)
from tilewright.uarch.cpu import (
    ITEMSIZE,
    Architecture,
    Caches,
    Level,
    MicroKernel,
    PanelRates,
    Tier,
    Vectors,
    limits,
    vector_kernel,
)

SSE: Final = Vectors("SSE2", 16, 16, mr=4, nv=2, attributes=' "prefer-vector-width"="128"')
AVX2: Final = Vectors(
    "AVX2", 32, 16, mr=4, nv=1, panels=3, attributes=' "prefer-vector-width"="256"'
)
AVX512: Final = Vectors(
    "AVX-512", 64, 32, mr=8, nv=1, kc=128, panels=3, attributes=' "prefer-vector-width"="512"'
)

_AMX: Final = "measured on Granite Rapids: 2x2 tiles, at most 8 live; a product takes 16 cycles"
_FMA: Final = "measured on Granite Rapids"


def _amx(name: str, feature: str, a: str, b: str, c: str) -> MicroKernel:
    k = 64 // ITEMSIZE[a]
    features = frozenset({"amx-tile", feature})
    rate = 2 * 16 * 16 * k / 16
    return MicroKernel(name, features, (a, b, c), 32, 32, 16, 16, k // 16, rate, _AMX, k)


def _on(vectors: Vectors, suffix: str, *required: str) -> Callable[..., MicroKernel]:
    """Micro-kernels on vectors: instruction, types, group of k, flops per cycle, further features."""

    def made(
        name: str, types: tuple[str, str, str], group: int, rate: float, *more: str
    ) -> MicroKernel:
        # LLVM fuses the product and the addition where the machine has VNNI.
        entry = {"vpdpwssd": "vpmaddwd"}.get(name, name) if group > 1 else ""
        entry = f"x86.{entry}.{8 * vectors.vector_bytes}" if entry else ""
        title = {"vpd": "VNNI", "vdp": "bf16 dot products"}.get(name[:3], "")
        features = {*required, *more}
        return vector_kernel(
            vectors, f"{name}.{suffix}", features, types, group, rate, _FMA, entry, title
        )

    return made


_zmm = _on(AVX512, "zmm", "avx512f")
_ymm = _on(AVX2, "ymm", "avx2")
_xmm = _on(SSE, "xmm")
_F32: Final = ("f32", "f32", "f32")
_F64: Final = ("f64", "f64", "f64")
_I16: Final = ("i16", "i16", "i32")
_BYTES: Final = ("u8", "i8", "i32")

MICRO_KERNELS: Final = (
    _amx("tdpbf16ps", "amx-bf16", "bf16", "bf16", "f32"),
    _amx("tdpfp16ps", "amx-fp16", "f16", "f16", "f32"),
    _amx("tdpbssd", "amx-int8", "i8", "i8", "i32"),
    _amx("tdpbsud", "amx-int8", "i8", "u8", "i32"),
    _amx("tdpbusd", "amx-int8", "u8", "i8", "i32"),
    _amx("tdpbuud", "amx-int8", "u8", "u8", "i32"),
    _zmm("fma", _F32, 1, 64),
    _zmm("fma", _F64, 1, 32),
    _zmm("vpdpbusd", _BYTES, 4, 256, "avx512vnni"),
    # Bytes of any signs, widened to 16 bits while packing.
    _zmm("vpdpwssd", _I16, 2, 128, "avx512vnni"),
    _zmm("vpmaddwd", _I16, 2, 64, "avx512bw"),
    # Half the rate of f32 FMA on the core measured, twice on others: see CORE_RATES.
    _zmm("vdpbf16ps", ("bf16", "bf16", "f32"), 2, 32, "avx512bf16"),
    _ymm("fma", _F32, 1, 32, "fma"),
    _ymm("fma", _F64, 1, 16, "fma"),
    _ymm("vpdpbusd", _BYTES, 4, 128, "avxvnni"),
    _ymm("vpmaddwd", _I16, 2, 32),
    _xmm("generic", _F32, 1, 8),
    _xmm("generic", _F64, 1, 4),
)


CORE_RATES: Final = table(
    {
        # One 512-bit instruction per cycle, whichever: measured, 10 chains each, 3.69 GHz.
        "znver4": table(
            {
                ("fma.zmm", "f32"): 32,
                ("fma.zmm", "f64"): 16,
                ("vpdpbusd.zmm", "u8"): 128,
                ("vpdpwssd.zmm", "i16"): 64,
                ("vdpbf16ps.zmm", "bf16"): 64,
                ("fma.ymm", "f32"): 32,
                ("fma.ymm", "f64"): 16,
            }
        ),
        # Two 512-bit instructions per cycle: the others as MICRO_KERNELS says. Measured, 12 chains each, 4.17 GHz.
        "znver5": table({("vdpbf16ps.zmm", "bf16"): 128}),
    }
)


_ZEN5: Final = PanelRates(
    hertz=4e9, tiles=0.35, inner=0.72, stream=4.3e10, memory=2.6e11, in_place=2.4e10, late=0.43, in_tiles=3.7e10,
    pack_lines=2.55e10, pack_runs=3.4e10, pack_groups=1.4e10, pack_short_runs=4.9e10, pack_rows=9.4e10,
    pack_columns=2.15e10, run=65.0, panels=1.6e11, far_panels=5.9e10, far_copies=1.14e11, sums=1.1e11, far_sums=2.7e10,
    far_tile_sums=2.4e10, row=2.1e-8, row_of_a=6e-9, program=3.2e-7, thread=1.3e-6, shared_writes=1.8e10,
    meeting=1.6e-5, uneven=0.2, long_runs=0.7,
)  # fmt: skip
"""Fitted to 100 drawn products, bf16, f16, f32 and i8, by up to 23 tilings each on one thread (2026-11-29), from those
of others twice as fast. By either half of them the other's choices run at 0.948 and 0.941 of the best, before at 0.899
and 0.916. What several threads share was not measured there.
`inner`, `in_place` and `row_of_a` were set with 31 f32 products of few columns in view, 408 tilings (2026-11-30): what
is chosen runs at 0.976 of the best, the worst at 0.91."""
CORE_PANELS: Final = table({"znver5": _ZEN5})


def _tile_fragments(k: int, pack: int, m: int, n: int) -> MatrixFragments:
    from tilewright.uarch import fragments as fr

    return MatrixFragments(fr.amx_a(m, k), fr.amx_b(k, n, pack), fr.rows_c(m, n))


def _tile_instruction(kernel: MicroKernel) -> MatrixInstruction:
    k, pack = kernel.k_step, kernel.group
    rows, columns = tuple(range(1, 17)), tuple(range(1, 17))
    return MatrixInstruction(
        kernel.name, kernel.types, rows, columns, k, partial(_tile_fragments, k, pack),
        "Intel SDM, AMX", pack, pack, 1, kernel.flops_per_cycle,
    )  # fmt: skip


X86: Final = Machine(
    name="x86-64",
    kind="cpu",
    subgroup_sizes=(1,),
    matrix=tuple(_tile_instruction(m) for m in MICRO_KERNELS if "amx-tile" in m.features),
    memories=by_name(
        MemoryLevel("l1d", Caches.l1d, "core", "the least of current x86 servers"),
        MemoryLevel("l2", Caches.l2, "core", "Skylake-SP; 2 MB on Sapphire Rapids and later"),
    ),
    limits=limits(
        "Intel SDM",
        (16, 32, 64),
        tiles=Limit("kernel", "Intel SDM, AMX", most=8, unit="live AMX tiles"),
        tile_rows=Limit("AMX tile", "Intel SDM, AMX", least=1, most=16, unit="rows"),
        tile_bytes=Limit(
            "row of an AMX tile", "Intel SDM, AMX", least=4, most=64, multiple=4, unit="bytes"
        ),
    ),
    source="Intel SDM",
    rates=GENERIC,
)

X86_64: Final = Architecture(
    name="x86",
    machine=X86,
    triple="x86_64-unknown-linux-gnu",
    hosts=("x86_64", "AMD64"),
    levels=table(
        {
            "x86-64": Level((), "x86-64", SSE),
            "avx2": Level(
                (
                    *("avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "popcnt", "sse4.2"),
                    *("movbe", "cx16"),
                ),
                "haswell",
                AVX2,
                ("f16c", "avxvnni"),
            ),
            "avx512": Level(
                ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"),
                "skylake-avx512",
                AVX512,
                ("avx512fp16", "avx512bf16"),
            ),
            "vnni": Level(("avx512vnni", "avx512vbmi", "avx512vbmi2"), "icelake-server", AVX512),
            "amx": Level(
                ("amx-tile", "amx-bf16", "amx-int8", "avx512bf16"),
                "sapphirerapids",
                AVX512,
                ("amx-fp16",),
                plain="vnni",
            ),
        }
    ),
    tiers=table(
        {
            "generic": Tier("x86-64", "x86-64"),
            "avx2": Tier("avx2", "avx2"),
            "avx512": Tier("avx512", "vnni"),
            "amx": Tier("amx", "amx"),
        }
    ),
    abilities=table(
        {
            "library": "",
            "f16 conversion": "f16c",
            "f16 arithmetic": "avx512fp16",
            "fused": "fma",
            "exchange": "cx16",
        }
    ),
    micro_kernels=MICRO_KERNELS,
    conversions=frozenset({"f16c", "avx512bf16"}),
    pause="@llvm.x86.sse2.pause()",
    syscalls=table({"futex": 202, "gettid": 186}),
    clock=("@llvm.readcyclecounter()", 1 << 27),
    core_rates=CORE_RATES,
    core_panels=CORE_PANELS,
    # arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
    leave=table({"amx-tile": ((158, 0x1023, 18), 0, 0)}),
)
