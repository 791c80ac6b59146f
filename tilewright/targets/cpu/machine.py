"""Which x86 this is, and the sizes that follow from it: vector width, micro-kernel shapes, cache blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from tilewright import knobs
from tilewright.codegen.native import amx_allowed, host_core, host_features, host_level
from tilewright.codegen.target import X86_LEVELS, LLVMTarget, x86
from tilewright.diagnostics import UnsupportedError
from tilewright.uarch.x86 import dots_of_bf16_pay, level_of

__all__ = [
    "FEW_READS",
    "X86Machine",
    "amx_allowed",
    "chosen",
    "few_reads",
    "host_core",
    "host_features",
    "host_level",
    "machine",
]


@dataclass(frozen=True)
class X86Machine:
    """Parameters of code generation for one x86 level."""

    target: LLVMTarget
    vector_bytes: int
    """Width of a vector register."""
    mr: int
    """Rows of the FMA micro-kernel: mr * nv * panels accumulators fit the registers beside one B row."""
    nv: int
    """Vectors per row of a panel of B."""
    kc: int
    """Elements of k per block: a panel of B of that depth fits half of the first cache."""
    amx: bool = False
    panels: int = 1
    """Panels of B that the FMA micro-kernel multiplies at once."""
    bf16_dots: bool = False
    """The core's dot product of bf16 pairs is faster than f32 FMA on widened factors."""

    def nr(self, size: int) -> int:
        """Columns of a panel of B for accumulators of `size` bytes."""
        return self.nv * self.vector_bytes // size

    def __str__(self) -> str:
        """The instructions that products use, as a person calls them: "AVX-512 with VNNI"."""
        vectors = {64: "AVX-512", 32: "AVX2"}.get(self.vector_bytes, "SSE2")
        extras = [("VNNI", self.has("avx512vnni") or self.has("avxvnni"))]
        extras += [("bf16 dot products", self.bf16_dots)]
        kinds = (("bf16", "amx-bf16"), ("f16", "amx-fp16"), ("i8", "amx-int8"))
        tiles = [name for name, feature in kinds if self.amx and self.has(feature)]
        extras += [(f"AMX for {', '.join(tiles)}", bool(tiles))]
        named = [name for name, on in extras if on]
        return f"{vectors} with {' and '.join(named)}" if named else vectors

    def key(self) -> str:
        """Everything that generated code depends on."""
        return self.target.key() + ("|bf16 dots" if self.bf16_dots else "")

    @property
    def row_unit(self) -> int:
        """Rows of buffers come in multiples of this, so that micro-kernels may write whole blocks."""
        return 32 if self.amx else self.mr

    @property
    def accumulators(self) -> int:
        """Vector registers that sums may take, beside what they are computed from."""
        return 24 if self.vector_bytes == 64 else 12

    def thin(self, *, tiles: bool) -> tuple[int, int]:
        """Rows of A and columns of B up to which the other operand is multiplied where it lies (see `thin`), instead of
        by `tiles` or by vectors from panels."""
        return THIN_OF_TILES if tiles else (self.mr, THIN_COLUMNS)

    def has(self, feature: str) -> bool:
        return self.target.has(feature)


THIN_OF_TILES: Final = (8, 8)
"""Up to there multiply-add on registers keeps up with memory."""
THIN_COLUMNS: Final = 24
TIERS: Final = {"generic": "x86-64", "avx2": "avx2", "avx512": "vnni", "amx": "amx"}
"""Tiers that a user may choose among, and the highest level of each."""
EXTRAS: Final = {
    "generic": frozenset[str](),
    "avx2": frozenset({"f16c", "avxvnni"}),
    "avx512": frozenset({"f16c", "avxvnni", "avx512fp16", "avx512bf16"}),
    "amx": frozenset({"f16c", "avxvnni", "avx512fp16", "avx512bf16", "amx-fp16"}),
}
"""What code of a tier uses beyond its level where the machine has it."""


def chosen(level: str | None) -> X86Machine:
    """The machine of a kernel's options: of a level, or the one at hand up to the tier of `TILEWRIGHT_CPU`."""
    return machine(level, knobs.current().cpu if level is None else None)


@cache
def machine(level: str | None = None, tier: str | None = None) -> X86Machine:
    """The machine of a level (`x86-64`, `avx2`, `avx512`, `vnni`, `amx`); None is the one at hand, up to a tier.

    Raises UnsupportedError where the machine at hand has not what the tier is named for.
    """
    extra, core = frozenset[str](), ""
    if level in (None, "native"):
        core, name = host_core(), host_level()
        if tier is not None:
            order = list(X86_LEVELS)
            if order.index(name) < order.index("x86-64" if tier == "generic" else tier):
                raise UnsupportedError(
                    f"TILEWRIGHT_CPU={tier}: this machine executes {name} at most",
                    hint="leave it out for all that the machine has",
                )
            name = min(name, TIERS[tier], key=order.index)
        extra = EXTRAS["amx" if tier is None else tier] & host_features()
        if name != "amx":
            extra -= {"amx-fp16"}
    else:
        assert level is not None
        name = level
    target = x86(name, extra)
    shape = level_of(target.features)
    amx = target.has("amx-tile")
    dots = dots_of_bf16_pay(target.features, core)
    return X86Machine(
        target, shape.vector_bytes, shape.mr, shape.nv, shape.kc, amx, shape.panels, dots
    )


FEW_READS: Final = (2, 8)
"""Least and most of :func:`few_reads`."""


def few_reads(threads: int) -> int:
    """Reads of an operand by a launch on so many threads up to which each of them packs what it reads.

    A copy in memory costs more than packing twice. Lines that another core has written cost more than reading what all
    share: on 16 cores with caches of their own, packing 8 times is 1.1 to 1.5 times as fast as packing once.
    """
    least, most = FEW_READS
    return max(least, min(threads, most))
