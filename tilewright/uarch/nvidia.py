"""NVIDIA: what sm_80 and sm_90 have in common. mma.sync as a table, memory limits.

Source: PTX ISA, "Warp Level Matrix Instructions".
"""

from __future__ import annotations

from functools import partial

from tilewright.uarch import fragments as fr
from tilewright.uarch.base import Limit, MatrixFragments, MatrixInstruction

LANES = 32
WARPGROUP = 4
"""Warps that wgmma, and roles of the registers, take together."""
WGMMA_ROWS = 64
"""Of C, by one wgmma: 16 of each warp."""
WGMMA_COLUMNS = 8
"""Of C, which a warp's threads hold whole: what they hold of wider ones is so many of these."""
LINE = 128
"""Bytes of a line of the caches, and of a row of a swizzled panel in shared memory: once around the banks."""
THREADS = 2048
"""Of a multiprocessor (CUDA programming guide, compute capability 8.0 and 9.0)."""
REGISTER_FILE = 65536
"""Registers of 32 bits of a multiprocessor (CUDA programming guide, compute capability 8.0 and 9.0)."""
PTX = "PTX ISA, matrix fragments for mma.sync"


def ptx_type(name: str) -> str:
    """PTX's name of an element type."""
    return {"i8": "s8", "i32": "s32", "f8e4m3": "e4m3", "f8e5m2": "e5m2"}.get(name, name)


def _fragments(k: int, pack: int, m: int, n: int) -> MatrixFragments:
    return MatrixFragments(fr.mma_a(m, k, pack), fr.mma_b(k, n, pack), fr.mma_c(m, n))


def mma_sync(
    types: tuple[str, str, str], k: int, pack: int, m: tuple[int, ...] = (1, 2, 4, 8, 16)
) -> MatrixInstruction:
    """mma.sync.m16n8k<k> (m8n8k4 for f64); ``pack`` elements fill a register.

    Up to 8 rows are the first half of its 16, up to 4 rows and columns stand there several times.
    """
    fragments = partial(_fragments, k, pack)
    return MatrixInstruction("mma.sync", types, m, (2, 4, 8), k, fragments, PTX, pack, pack)


_INTEGERS = ("i8", "u8")
MMA_SYNC = (
    *(mma_sync(("f16", "f16", "f32"), k, 2) for k in (16, 8)),
    *(mma_sync(("f16", "f16", "f16"), k, 2) for k in (16, 8)),
    *(mma_sync(("bf16", "bf16", "f32"), k, 2) for k in (16, 8)),
    *(mma_sync(("tf32", "tf32", "f32"), k, 1) for k in (8, 4)),
    *(mma_sync((a, b, "i32"), k, 4) for a in _INTEGERS for b in _INTEGERS for k in (32, 16)),
    mma_sync(("f64", "f64", "f64"), 4, 1, (1, 2, 4, 8)),
)
"""For each choice of types the deepest first."""

MMA_F64 = (mma_sync(("f64", "f64", "f64"), 4, 1, (16,)),)
"""That of sm_90, of which the one above does a half per clock. Its deeper ones, of k 8 and 16, take more registers for
operands and are slower in kernels (4096^3 by 128 x 128 x 32 on an H200: 2.66 ms; 2.82 and 2.74)."""

SPECIAL_FUNCTIONS = frozenset(
    (
        *("math.exp", "math.exp2", "math.expm1", "math.log", "math.log2", "math.log1p"),
        *("math.rsqrt", "math.sin", "math.cos", "math.tanh", "math.erf"),
    )
)
"""What the special function unit computes of single floats, at least in part (CUDA programming guide, arithmetic
instructions)."""

SPECIAL_LANES = 16
"""Results of that unit per clock of a multiprocessor (the same table)."""

COMMON_LIMITS = {
    "threads": Limit("workgroup", "CUDA programming guide", least=1, most=1024, unit="threads"),
    "registers": Limit("lane", "CUDA programming guide", most=255, unit="registers of 32 bits"),
    "named_barriers": Limit("named barrier", "PTX ISA, bar.sync", least=0, most=15),
    "grid_x": Limit("grid", "CUDA programming guide", least=1, most=(1 << 31) - 1, unit="in x"),
    "grid_yz": Limit("grid", "CUDA programming guide", least=1, most=65535, unit="in y or z"),
}
