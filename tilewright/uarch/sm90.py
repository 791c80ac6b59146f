"""NVIDIA Hopper (sm_90a): wgmma, TMA, clusters, besides all that sm_80 has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from tilewright.layout import Layout, LayoutError, Swizzle
from tilewright.layout.memory import panels
from tilewright.uarch import fragments as fr
from tilewright.uarch.base import (
    Limit,
    Machine,
    MatrixFragments,
    MatrixInstruction,
    MemoryLevel,
    by_name,
    gpu_rates,
    table,
)
from tilewright.uarch.nvidia import (
    COMMON_LIMITS,
    LANES,
    MMA_F64,
    MMA_SYNC,
    REGISTER_FILE,
    THREADS,
    WARPGROUP,
)

SMEM: Final = 227 << 10

MULTIPROCESSORS: Final = 132

CLUSTERS: Final[Mapping[int, int]] = MappingProxyType(
    {2: 66, 3: 39, 4: 30, 5: 22, 6: 17, 7: 15, 8: 15}
)
"""Clusters of so many workgroups that run at the same time, each with a multiprocessor of its own, of which there are
`MULTIPROCESSORS`: clusters do not cross the groups of these that the chip is made of (H200,
cuOccupancyMaxActiveClusters). Eight is the size that all machines of this kind can start."""

_RATES: Final = {
    "hertz": (1.755e9, 1.755e9),
    "issue": (1.201, 1.161),
    "port": (178.5, 154.5),
    "latency": (1844, 1524),
    "copy": (1450, 1921),
    "outside": (25.1, 20.4),
    "flood": (962.5, 830.5),
    "cache": (10890, 5330),
    "far": (3803, 1e6),
    "memory": (2675, 1682),
    "resident": (45e6, 45e6),
    "start": (4557, 2608),
    "turn": (27.1, 50.58),
    "program": (987.2, 1932),
    "panel": (161.6, 264),
    "compute": (0.03, 0.03),
    "engine": (0.03482, 0.02923),
    "threads": (0.2464, 0.2171),
    "meet": (1030, 1850),
    "exchange": (0.2333, 0.4512),
}
"""What a loop of products is made of, on an H200 and an H100."""

PRODUCT_RATES: Final[Mapping[str, float]] = table(
    {name: h200 for name, (h200, _) in _RATES.items()}
)
"""How fast a loop of products runs on an H200: fitted to 3,373 launches on 100 shapes, plain and in batches, measured
in turn (2026-11-30), from the rates that 2,184 launches on 91 shapes had given. On shapes that a fit did not see,
the tiling chosen by it runs at 0.973 of the best one's speed (three-fold; by the rates before at 0.967).

Clocks per second, of a chip that is not hot. Clocks of a product, per clock that its instruction takes. Bytes per
clock: through a multiprocessor's port of shared memory (copies in, operands out). Clocks from a copy's start to its
data, and bytes per clock of one that comes. Bytes per clock that copy engines make zeros of because they lie
outside of an array: one multiprocessor's, all. Bytes per clock: out of L2 to all multiprocessors; from one of its
halves to the other; out of memory. Bytes that L2 holds from launch to launch. Clocks: of a launch, of one
warpgroup's turn from a slot of its multi-buffer to the next, of a program besides its loop, of a panel that a
warpgroup hands to the copy engine, of an element stored by it or by threads, of the meetings of a cluster that adds
up its sums, and of an element of these. Of an element of a left operand that threads compute: as weights of 8 and 4
bits and scaled rows took it at 4096 cubed (2026-11-29)."""

H100_PRODUCT_RATES: Final[Mapping[str, float]] = table(
    {name: h100 for name, (_, h100) in _RATES.items()}
)
"""The same of an H100 with HBM3, fitted to 4,603 launches on 153 shapes as language models have them, NT and NN, in
bf16, f16 and f8 (2026-11-26): on shapes that a fit did not see, the tiling chosen by it runs at 0.971 of the best one's
speed (two-fold; without what lies outside of arrays at 0.970): `benchmarks/product_rates.py`. What L2 gives stands for
what crosses between its halves too; what the H200's program takes less since its panels count was taken off."""


def product_rates(device: str) -> Mapping[str, float]:
    """The rates of a device by its name; the H200's where none were measured."""
    return H100_PRODUCT_RATES if "H100" in device else PRODUCT_RATES


KERNEL_RATES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "product_flops": 5.8e12,
        "elementwise_bytes": 7.4e11,
        "memory_bytes": 5.88e10,
        "op_seconds": 4.27e-9,
        "program_seconds": 7.75e-7,
        "launch_seconds": 2.88e-6,
        "wait_seconds": 0.0,
        "cache_bytes": 4 * REGISTER_FILE,
    }
)
BY_WARPGROUPS: Final[Mapping[int, float]] = MappingProxyType({1: 1.2, 2: 1.0, 3: 0.95})
"""`Rates` of kernels whose products warpgroups do, with arithmetic between them, and how many times as long the same
takes with so many warpgroups: the rates fitted to 437 launches of 23 shapes of attention, the ratios to 83 of 8 since
two warpgroups interleave products and functions; the tiling chosen by them runs at 0.993 of the best one's speed, at
worst 0.967 (H200, 2026-11-30). Loads come from L2, for the programs of a head share them. Values lie in registers, be
there one warpgroup or three."""

_PTX: Final = "PTX ISA, wgmma.mma_async"


def _fragments(k: int, pack: int, m: int, n: int) -> MatrixFragments:
    del m
    return MatrixFragments(fr.wgmma_a(k, pack), None, fr.wgmma_c(n))


def _wgmma(types: tuple[str, str, str], n: tuple[int, ...], k: int, pack: int) -> MatrixInstruction:
    return MatrixInstruction(
        "wgmma",
        types,
        (64,),
        n,
        k,
        partial(_fragments, k, pack),
        _PTX,
        pack,
        pack,
        WARPGROUP,
        flops_per_cycle=2 * 64 * 256 * k / 128,
    )


_EIGHTS: Final = tuple(range(8, 257, 8))
_INTEGER: Final = (8, 16, 24, *range(32, 257, 16))
_F8: Final = ("f8e4m3", "f8e5m2")

WGMMA: Final = (
    _wgmma(("f16", "f16", "f32"), _EIGHTS, 16, 2),
    _wgmma(("f16", "f16", "f16"), _EIGHTS, 16, 2),
    _wgmma(("bf16", "bf16", "f32"), _EIGHTS, 16, 2),
    _wgmma(("tf32", "tf32", "f32"), _EIGHTS, 8, 1),
    *(_wgmma((a, b, "f32"), _EIGHTS, 32, 4) for a in _F8 for b in _F8),
    *(_wgmma((a, b, "i32"), _INTEGER, 32, 4) for a in ("i8", "u8") for b in ("i8", "u8")),
)

SM90: Final = Machine(
    name="sm_90a",
    kind="cuda",
    subgroup_sizes=(LANES,),
    # wgmma first: instruction() takes the first that matches.
    matrix=WGMMA + MMA_F64 + MMA_SYNC,
    memories=by_name(
        MemoryLevel("smem", SMEM, "workgroup", "CUDA programming guide, compute capability 9.0", 128),
        MemoryLevel("registers", 4 * REGISTER_FILE, "core", "CUDA programming guide"),
        MemoryLevel("l2", 50 << 20, "device", "H100 and H200 data sheets", 128),
    ),
    limits=table(
        COMMON_LIMITS
        | {
            "smem": Limit("shared memory", "compute capability 9.0", most=SMEM, unit="bytes"),
            "cp_async_bytes": Limit("cp.async", "PTX ISA", values=(4, 8, 16), unit="bytes"),
            "cluster": Limit("cluster", "portable size", least=1, most=8, unit="workgroups"),
            "setmaxnreg": Limit("setmaxnreg", "PTX ISA", least=24, most=256, multiple=8),
            "tma_rank": Limit("TMA tensor", "cuTensorMapEncodeTiled", least=1, most=5,
                              unit="dimensions"),
            "tma_box": Limit("TMA box", "cuTensorMapEncodeTiled", least=1, most=256,
                             unit="elements per dimension"),
            "tma_inner_bytes": Limit("inner dimension of a TMA box", "SWIZZLE_128B", most=128,
                                     multiple=16, unit="bytes"),
            "tma_stride": Limit("TMA stride", "cuTensorMapEncodeTiled", least=16,
                                most=(1 << 40) - 16, multiple=16, unit="bytes"),
            "tma_base": Limit("TMA base address", "cuTensorMapEncodeTiled", multiple=16,
                              unit="bytes"),
            "tma_extent": Limit("TMA extent", "cuTensorMapEncodeTiled", least=1, most=1 << 32,
                                unit="elements"),
            "tma_coordinate": Limit("TMA coordinate", "PTX ISA, 32-bit signed", least=-(1 << 31),
                                    most=(1 << 31) - 1),
        }
    ),
    source="CUDA programming guide, PTX ISA",
    # H100 and H200 data sheets: 989 TFLOP/s of bf16, less a fifth; 3.4 to 4.8 TB/s.
    rates=replace(
        gpu_rates(132, 3e12, 3e10, 6e10, SMEM, parts=8, wait_seconds=7.5e-7,
                  origin="data sheets; loops of products fitted on an H200, 2026-11-23"),
        threads=THREADS, registers=REGISTER_FILE, product_rows=64, product_run=128,
    ),
)  # fmt: skip


def smem_tile(rows: int, columns: int, itemsize: int, width: int = 128) -> Layout:
    """Shared-memory tile [rows, columns] as TMA writes and wgmma reads it, swizzled by ``width`` bytes.

    Panels of ``width`` bytes of columns stand one after the other, each row-major with a pitch of
    ``width`` bytes, its 16-byte chunks XORed with the row modulo width / 16. Addresses count elements.
    """
    panel = width // itemsize
    if columns % panel:
        raise LayoutError(
            f"{columns} columns are no multiple of the {panel} of a {width}-byte panel"
        )
    plain = panels((rows, columns), [(panel, 1, 1), (rows, 0, 1), (columns // panel, 1, panel)])
    return plain.swizzled(Swizzle.of_bytes(width, itemsize))
