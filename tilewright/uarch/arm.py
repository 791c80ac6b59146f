"""Arm of 64 bits (AArch64): its levels of features, micro-kernels and limits. What the tables consist of: `cpu`.

Rates are per cycle of a Neoverse V1 with two vectors of 128 bits in its pipelines at once, by its optimization guide;
nobody has measured code of ours there.
"""

from __future__ import annotations

from typing import Final

from tilewright.uarch.base import GENERIC, Machine, MemoryLevel, by_name, table
from tilewright.uarch.cpu import (
    Architecture,
    Caches,
    Level,
    MicroKernel,
    Tier,
    Vectors,
    limits,
    vector_kernel,
)

NEON: Final = Vectors("NEON", 16, 32, mr=8, nv=2)
SVE_256: Final = Vectors("SVE2 of 256 bits", 32, 32, mr=8, nv=2, attributes=" vscale_range(2,16)")
"""Vectors of a fixed length in registers of at least that length (``vscale`` counts 128 bits)."""

_F32: Final = ("f32", "f32", "f32")
_F64: Final = ("f64", "f64", "f64")
_HWCAP, _HWCAP2 = 16, 26
_GUIDE: Final = "Arm Neoverse V1 Software Optimization Guide"
_MANUAL: Final = "Arm Architecture Reference Manual"


def _on(vectors: Vectors, *required: str) -> tuple[MicroKernel, ...]:
    """Micro-kernels on vectors of a width: each instruction has twice the rate on registers of twice the length."""
    bits, times = 8 * vectors.vector_bytes, vectors.vector_bytes // 16

    def made(
        name: str, types: tuple[str, str, str], group: int, rate: float, feature: str, title: str
    ) -> MicroKernel:
        entry = f"aarch64.{name}.{bits}" if group > 1 else ""
        features = {*required, feature}
        return vector_kernel(
            vectors, f"{name}.{bits}", features, types, group, rate * times, _GUIDE, entry, title
        )

    return (
        made("fmla", _F32, 1, 16, "neon", ""),
        made("fmla", _F64, 1, 8, "neon", ""),
        made("sdot", ("i8", "i8", "i32"), 4, 64, "dotprod", "dot products of bytes"),
        made("udot", ("u8", "u8", "i32"), 4, 64, "dotprod", "dot products of bytes"),
        made("usdot", ("u8", "i8", "i32"), 4, 64, "i8mm", "dot products of bytes"),
        made("bfdot", ("bf16", "bf16", "f32"), 2, 32, "bf16", "bf16 dot products"),
    )


ARM64: Final = Machine(
    name="aarch64",
    kind="cpu",
    subgroup_sizes=(1,),
    matrix=(),
    memories=by_name(
        MemoryLevel("l1d", Caches.l1d, "core", "the least of current cores"),
        MemoryLevel("l2", Caches.l2, "core", "Neoverse N1, V1 and V2"),
    ),
    limits=limits(_MANUAL, (16, 32)),
    source=_MANUAL,
    rates=GENERIC,
)

AARCH64: Final = Architecture(
    name="aarch64",
    machine=ARM64,
    triple="aarch64-unknown-linux-gnu",
    hosts=("aarch64", "arm64"),
    levels=table(
        {
            "armv8": Level(("neon", "fp-armv8"), "generic", NEON),
            "neon": Level(
                ("lse", "rdm", "crc", "fullfp16", "dotprod"), "neoverse-n1", NEON, ("i8mm", "bf16")
            ),
            "sve2": Level(("sve", "sve2", "i8mm", "bf16"), "neoverse-v1", SVE_256),
        }
    ),
    tiers=table(
        {
            "generic": Tier("armv8", "armv8"),
            "neon": Tier("armv8", "neon"),
            "sve2": Tier("sve2", "sve2"),
        }
    ),
    abilities=table(
        {
            "library": "",
            "f16 conversion": "",
            "f16 arithmetic": "fullfp16",
            "fused": "",
            "maxima": "",
            "exchange": "",
        }
    ),
    micro_kernels=(*_on(NEON), *_on(SVE_256, "sve2")),
    conversions=frozenset(),
    pause="@llvm.aarch64.hint(i32 1)",
    syscalls=table({"futex": 98, "gettid": 178}),
    clock=("@llvm.readsteadycounter()", 1 << 21),
    # prctl(PR_SVE_GET_VL): bytes of a register. Where it has no more than NEON's, NEON does as well.
    leave=table({"sve2": ((167, 51), 32, 1 << 20)}),
    auxiliary=table(
        {
            "fp-armv8": (_HWCAP, 0),
            "neon": (_HWCAP, 1),
            "crc": (_HWCAP, 7),
            "lse": (_HWCAP, 8),
            "fullfp16": (_HWCAP, 10),
            "rdm": (_HWCAP, 12),
            "dotprod": (_HWCAP, 20),
            "sve": (_HWCAP, 22),
            "sve2": (_HWCAP2, 1),
            "i8mm": (_HWCAP2, 13),
            "bf16": (_HWCAP2, 14),
        }
    ),
)
