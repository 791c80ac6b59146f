"""x86: feature levels, micro-kernels with their packed panels, caches.

A *micro-kernel* multiplies a panel of A (mr rows) by a panel of B (nr columns) over k and keeps the mr x nr
accumulators in registers. Its panels are memory layouts in normal form: the packer writes them, the
micro-kernel reads them from end to end. Which level a machine has is found at run time by
targets/cpu; here stands what each level can do. Rates are measured ones (docs/performance).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from tilewright.layout import Layout, LayoutError
from tilewright.uarch import fragments as fr
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

ITEMSIZE: Final = table(
    {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i16": 2, "i32": 4, "i64": 8}
)


@dataclass(frozen=True)
class MicroKernel:
    """mr x nr accumulators of ``types[2]`` fed by one instruction that takes ``group`` k at once.

    ``features`` are LLVM's names. ``rows`` and ``columns`` are what one instruction covers of the
    mr x nr (a tile of 16 x 16 for AMX, one row of a vector otherwise). Panels hold elements of
    types[0] and types[1]; narrower inputs are widened while packing.
    """

    name: str
    features: frozenset[str]
    types: tuple[str, str, str]
    mr: int
    nr: int
    rows: int
    columns: int
    group: int
    flops_per_cycle: float
    source: str
    k_step: int = 1
    """k per trip of the loop, a multiple of the group: one tile's worth for AMX."""
    panels: int = 1
    """Panels of B that are multiplied at once: mr x (panels * nr) accumulators."""

    @property
    def accumulators(self) -> int:
        """Registers (tiles or vectors) that hold the accumulators."""
        return (self.mr // self.rows) * (self.nr // self.columns) * self.panels

    @property
    def lanes_a(self) -> int:
        """Rows of one panel of A: those of a tile, or all mr."""
        return self.rows if self.rows > 1 else self.mr

    @property
    def lanes_b(self) -> int:
        """Columns of one panel of B: those of a tile, or all nr."""
        return self.columns if self.rows > 1 else self.nr

    @property
    def group_a(self) -> int:
        """Consecutive k of one row of A that stand together: a tile's row of 64 bytes, or a group."""
        return self.k_step if self.rows > 1 else self.group

    def a_panel(self, rows: int, k: int) -> Layout:
        """Packed A [rows, k]: panels one after the other, in each ``group_a`` k of every row by turns."""
        self._check("A", rows, self.lanes_a, k)
        group, lanes = self.group_a, self.lanes_a
        return fr.panel(
            (rows, k),
            [(group, 1, 1), (lanes, 0, 1), (k // group, 1, group), (rows // lanes, 0, lanes)],
        )

    def b_panel(self, k: int, columns: int) -> Layout:
        """Packed B [k, columns]: panels one after the other, in each ``group`` k of every column by turns.

        Groups of two or four k are the VNNI arrangement.
        """
        self._check("B", columns, self.lanes_b, k)
        group, lanes = self.group, self.lanes_b
        return fr.panel(
            (k, columns),
            [(group, 0, 1), (lanes, 1, 1), (k // group, 0, group), (columns // lanes, 1, lanes)],
        )

    def _check(self, what: str, extent: int, panel: int, k: int) -> None:
        step = max(self.k_step, self.group)
        if extent % panel or k % step:
            raise LayoutError(
                f"{what} of {extent} x k={k} does not fill panels of {panel} x {step} of {self.name}: "
                f"pad it while packing"
            )


@dataclass(frozen=True)
class Level:
    """FMA micro-kernel of a feature level: ``mr`` rows of ``panels`` times ``nv`` vectors, ``kc`` of k per block.

    The accumulators, one row of B and a broadcast of A fit the vector registers. Accumulators are enough
    to hide an FMA's latency (4 cycles, two of them issued in each: 8 is the least and leaves nothing for
    a load that comes late), and loads are fewer than FMAs. What of B one block of k multiplies, ``panels`` of depth
    ``kc``, fits the first cache; a panel is one or more vectors wide and divides the tiles that people
    write, which three vectors do not. ``kc`` is a multiple of 64: packing moves that many bytes of k at once.
    """

    vector_bytes: int
    mr: int
    nv: int
    kc: int
    panels: int = 1


LEVELS: Final = table(
    {
        "generic": Level(16, mr=4, nv=2, kc=256),
        "avx2": Level(32, mr=4, nv=1, kc=256, panels=3),
        "avx512": Level(64, mr=8, nv=1, kc=128, panels=3),
    }
)


def level_of(features: Collection[str]) -> Level:
    """The level that a machine with these features (LLVM's names) works at."""
    names = (("avx512f", "avx512"), ("avx2", "avx2"))
    return LEVELS[next((name for feature, name in names if feature in features), "generic")]


@dataclass(frozen=True)
class Caches:
    """Sizes in bytes that blocking is computed from; found at run time, these are the defaults.

    ``usable_l2`` is the share of the second level that a block may take: a guest sees less than the
    size that CPUID reports (1.1 of 2 MB measured).
    """

    l1d: int = 32 << 10
    l2: int = 1 << 20
    usable_l2: float = 0.55
    line: int = 64
    page: int = 4096

    @property
    def block_bytes(self) -> int:
        """What one core may keep in its second level."""
        return int(self.l2 * self.usable_l2)


_AMX: Final = "measured on Granite Rapids: 2x2 tiles, at most 8 live; a product takes 16 cycles"
_FMA: Final = "measured on Granite Rapids"


def _amx(name: str, feature: str, a: str, b: str, c: str) -> MicroKernel:
    k = 64 // ITEMSIZE[a]
    features = frozenset({"amx-tile", feature})
    rate = 2 * 16 * 16 * k / 16
    return MicroKernel(name, features, (a, b, c), 32, 32, 16, 16, k // 16, rate, _AMX, k)


def _vector(
    name: str,
    features: Collection[str],
    types: tuple[str, str, str],
    group: int,
    rate: float,
) -> MicroKernel:
    level = level_of(features)
    lanes = level.vector_bytes // ITEMSIZE[types[2]]
    nr = level.nv * lanes
    return MicroKernel(
        name, frozenset(features), types, level.mr, nr, 1, lanes, group, rate, _FMA, group,
        level.panels,
    )  # fmt: skip


_F32: Final = ("f32", "f32", "f32")
_F64: Final = ("f64", "f64", "f64")
_I16: Final = ("i16", "i16", "i32")

MICRO_KERNELS: Final = (
    _amx("tdpbf16ps", "amx-bf16", "bf16", "bf16", "f32"),
    _amx("tdpfp16ps", "amx-fp16", "f16", "f16", "f32"),
    _amx("tdpbssd", "amx-int8", "i8", "i8", "i32"),
    _amx("tdpbsud", "amx-int8", "i8", "u8", "i32"),
    _amx("tdpbusd", "amx-int8", "u8", "i8", "i32"),
    _amx("tdpbuud", "amx-int8", "u8", "u8", "i32"),
    _vector("fma.zmm", {"avx512f"}, _F32, 1, 64),
    _vector("fma.zmm", {"avx512f"}, _F64, 1, 32),
    _vector("vpdpbusd.zmm", {"avx512f", "avx512vnni"}, ("u8", "i8", "i32"), 4, 256),
    # Bytes of any signs, widened to 16 bits while packing.
    _vector("vpdpwssd.zmm", {"avx512f", "avx512vnni"}, _I16, 2, 128),
    _vector("vpmaddwd.zmm", {"avx512f", "avx512bw"}, _I16, 2, 64),
    # Half the rate of f32 FMA on the core measured, twice on others: see CORE_RATES.
    _vector("vdpbf16ps.zmm", {"avx512f", "avx512bf16"}, ("bf16", "bf16", "f32"), 2, 32),
    _vector("fma.ymm", {"avx2", "fma"}, _F32, 1, 32),
    _vector("fma.ymm", {"avx2", "fma"}, _F64, 1, 16),
    _vector("vpdpbusd.ymm", {"avx2", "avxvnni"}, ("u8", "i8", "i32"), 4, 128),
    _vector("vpmaddwd.ymm", {"avx2"}, _I16, 2, 32),
    _vector("generic.xmm", (), _F32, 1, 8),
    _vector("generic.xmm", (), _F64, 1, 4),
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
    }
)
"""Flops per cycle of cores (LLVM's names) by micro-kernel and type of A, where they are not those of MICRO_KERNELS."""


def rate(kernel: MicroKernel, core: str = "") -> float:
    """Flops per cycle of a micro-kernel's instruction on a core; of the core that was measured for others."""
    known = CORE_RATES.get(core)
    found = known.get((kernel.name, kernel.types[0])) if known is not None else None
    return kernel.flops_per_cycle if found is None else found


def micro_kernels(
    features: Collection[str], a: str, b: str, accumulator: str, core: str = ""
) -> list[MicroKernel]:
    """Micro-kernels of exactly these types that a machine with ``features`` can run, fastest first."""
    have = set(features)
    able = [m for m in MICRO_KERNELS if m.types == (a, b, accumulator) and m.features <= have]
    return sorted(able, key=lambda m: -rate(m, core))


def dots_of_bf16_pay(features: Collection[str], core: str) -> bool:
    """Whether vectors multiply bf16 faster as pairs than widened to f32."""
    pairs = micro_kernels(set(features) - {"amx-tile"}, "bf16", "bf16", "f32", core)
    wide = micro_kernels(features, *_F32, core)
    return bool(pairs) and rate(pairs[0], core) > rate(wide[0], core)


def _tile_fragments(k: int, pack: int, m: int, n: int) -> MatrixFragments:
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
    limits=table(
        {
            "tiles": Limit("kernel", "Intel SDM, AMX", most=8, unit="live AMX tiles"),
            "tile_rows": Limit("AMX tile", "Intel SDM, AMX", least=1, most=16, unit="rows"),
            "tile_bytes": Limit(
                "row of an AMX tile", "Intel SDM, AMX", least=4, most=64, multiple=4, unit="bytes"
            ),
            "vector_bytes": Limit(
                "vector register", "Intel SDM", values=(16, 32, 64), unit="bytes"
            ),
            "tile_elements": Limit(
                "size", "a core's pass over them takes a second", most=1 << 28, unit="elements"
            ),
            "workgroup_bytes": Limit(
                "memory of a workgroup",
                "each thread keeps a workgroup's memory",
                most=1 << 30,
                unit="bytes",
            ),
        }
    ),
    source="Intel SDM",
    rates=GENERIC,
)
