"""NVIDIA wgmma: a warpgroup (128 threads) multiplies A [64, K] from shared memory or registers by
B [K, N] from shared memory into its accumulator fragment (PTX ISA, "wgmma").

Shapes times types are about a thousand, so the entries are made when they are asked for:

    nvptx.wgmma.m64n<N>k<K>.<D>.<A>.<B>.ss    (descriptor A: i64, descriptor B: i64,
                                               scale: i1, accumulator) -> accumulator
    nvptx.wgmma.m64n<N>k<K>.<D>.<A>.<B>.rs    (fragment A: words, descriptor B, scale, accumulator)
    nvptx.wgmma.wait.<D>x<registers>...       wait_group `n`; the accumulators pass through it

`scale` false ignores the accumulator that comes in. Immediates `trans_a` (ss only) and `trans_b`:
1 where the operand lies MN-major in shared memory (16-bit types only). D is f32, f16 (words of two)
or s32. The accumulator is defined after a `wait` that names it; in between nothing may touch it.
`fence` stands before the first wgmma that reads registers or memory written before; `commit` closes
a group.

A descriptor is address >> 4 in bits 0-13, leading byte offset >> 4 in 16-29, stride byte offset
>> 4 in 32-45, base offset in 49-51, and in 62-63 the swizzle (0 none, 1 128 bytes, 2 64, 3 32).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.codegen.instructions.nvptx_common import SM90A, group, ptx, timed
from tilewright.codegen.instructions.nvptx_mma import NUMPY, c_indices, elements, place_a
from tilewright.codegen.instructions.table import (
    Emission,
    Immediates,
    Instruction,
    Meaning,
    make_by,
)
from tilewright.codegen.printer import Printer

_SPAN = {0: 16, 1: 128, 2: 64, 3: 32}
"""Swizzle code of a descriptor -> its span in bytes."""

COMBINATIONS = frozenset(
    [("f32", "f16", "f16", 16), ("f16", "f16", "f16", 16), ("f32", "bf16", "bf16", 16)]
    + [("f32", "tf32", "tf32", 8)]
    + [(d, a, b, 32) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
    + [("s32", a, b, 32) for a in ("s8", "u8") for b in ("s8", "u8")]
)
"""(D, A, B, K) of every legal type combination."""


def matrix_bytes(value: int, rows: int, k: int, kind: str, transposed: bool) -> Any:
    """The addresses in shared memory of the bytes of the operand that a descriptor names: of [rows, k] (K-major) or,
    `transposed`, of [k, rows] (MN-major).

    Core matrices are 8 rows of 16 bytes. K-major: chunk c of row r of row group g stands at
    g * stride + r * span + c * 16 inside one swizzle span, chunks beyond it `leading` bytes on.
    The 16-byte chunk index is XORed with address bits 7 and up, as TMA writes it.
    """
    value = int(value) & (1 << 64) - 1
    address, leading = (value & 0x3FFF) << 4, (value >> 16 & 0x3FFF) << 4
    stride, code = (value >> 32 & 0x3FFF) << 4, value >> 62
    span = _SPAN[code]
    itemsize = np.dtype(NUMPY[kind]).itemsize
    major, minor = (k, rows) if transposed else (rows, k)
    group8, r = np.divmod(np.arange(major)[:, None], 8)
    panel, inner = np.divmod(np.arange(minor * itemsize)[None, :], span)
    at = address + group8 * stride + r * span + panel * leading + inner
    return at ^ ((at >> 7) & (span // 16 - 1)) << 4


def read_matrix(shared: Any, value: int, rows: int, k: int, kind: str, transposed: bool) -> Any:
    """The operand that a descriptor names in shared memory, as [rows, k]."""
    out = np.ascontiguousarray(shared[matrix_bytes(value, rows, k, kind, transposed)])
    matrix = out.view(NUMPY[kind])
    return matrix.T if transposed else matrix


def _meaning(n: int, k: int, d: str, a: str, b: str, registers: bool) -> Meaning:
    wide = np.int64 if d == "s32" else np.float64

    def numbers(matrix: Any, kind: str) -> Any:
        if kind == "tf32":
            return elements(np.ascontiguousarray(matrix).view(np.uint32), kind)
        return matrix.astype(wide)

    def wgmma(
        left: Any,
        right: Any,
        scale: Any,
        c: Any,
        trans_a: int = 0,
        trans_b: int = 0,
        *,
        shared: Any,
    ) -> Sequence[Any]:
        """D[64, N] = (scale ? C : 0) + A[64, K] B[K, N], B lying as [N, K] unless `trans_b`; the
        order of the sum is free. Complete at the wait.
        """
        if registers:
            pack = 4 // np.dtype(NUMPY[a]).itemsize
            held = elements(left, a).reshape(4, 32, -1)
            x = np.concatenate([place_a(held[w], 16, k, pack) for w in range(4)])
        else:
            x = numbers(read_matrix(shared, left[0], 64, k, a, bool(trans_a)), a)
        y = numbers(read_matrix(shared, right[0], n, k, b, bool(trans_b)), b)
        product = x @ y.T
        held_c = np.ascontiguousarray(c)
        start = held_c.view(np.float16) if d == "f16" else held_c
        rows, columns = c_indices(16)
        out = np.zeros(start.shape, wide)
        for w in range(4):
            for j in range(n // 8):
                part = product[16 * w + rows, 8 * j + columns]
                out[32 * w : 32 * w + 32, 4 * j : 4 * j + 4] = part
        if np.any(scale):
            out = out + start.astype(wide)
        if d == "s32":
            out = out.astype(np.uint64).astype(np.uint32).view(np.int32)
        return [out.astype(start.dtype).view(held_c.dtype)]

    return wgmma


def _bytes_read(n: int, k: int, a: str, b: str, registers: bool) -> Meaning:
    def read(left: Any, right: Any, *_: Any, trans_a: int = 0, trans_b: int = 0) -> Sequence[Any]:
        """The bytes of B, and of A where it lies in shared memory."""
        found = [matrix_bytes(right[0], n, k, b, bool(trans_b))]
        return found if registers else [*found, matrix_bytes(left[0], 64, k, a, bool(trans_a))]

    return read


_LLVM = {"f32": "float", "f16": "i32", "s32": "i32"}


def _emit(n: int, k: int, d: str, a: str, b: str, registers: bool) -> Emission:
    count = n // 4 if d == "f16" else n // 2
    a_count = 4 if registers else 1
    integer, transposes = d == "s32", a in ("f16", "bf16")

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        left, right, scale = regs[:a_count], regs[a_count], regs[a_count + 1]
        args = [("i32" if registers else "i64", r) for r in left] + [("i64", right)]
        # A known flag is part of the text, and sums that do not count are no one's: else LLVM, which does not know what
        # they are for, would clear registers for them in every turn of a loop.
        known = {"true": "1", "false": "0"}.get(scale)
        flag = known or f"${count + a_count + 1}"
        if known is None:
            args.append(("i32", p.emit(f"zext i1 {scale} to i32")))
        args += [(_LLVM[d], "poison" if known == "0" else r) for r in regs[a_count + 2 :]]
        x = group(count, 4) if registers else f"${count}"
        tail = "p"
        if not integer:
            tail += ", 1, 1"
        if transposes:
            if not registers:
                tail += f", {immediates['trans_a']}"
            tail += f", {immediates['trans_b']}"
        body = (
            f"{{ .reg .pred p; setp.ne.b32 p, {flag}, 0; "
            f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b} "
            f"{group(0, count)}, {x}, ${count + a_count}, {tail}; }}"
        )
        return ptx(p, body, [_LLVM[d]] * count, args, tied=count, effect=True)

    return emit


_NAME = re.compile(r"nvptx\.wgmma\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)\.(ss|rs)")
_WAIT = re.compile(r"nvptx\.wgmma\.wait((?:\.(?:f32|f16|s32)x\d+)+)")
_MLIR = {"f32": "f32", "f16": "i32", "s32": "i32"}


def legal_n(d: str, n: int) -> bool:
    """Is N one of the machine's? Multiples of 8 to 256; for integers of 16 from 32 on."""
    return 8 <= n <= 256 and n % 8 == 0 and (d != "s32" or n in (8, 24) or n % 16 == 0)


def _make(name: str) -> Instruction | None:
    if (found := _WAIT.fullmatch(name)) is not None:
        return _make_wait(name, [t.split("x") for t in found[1][1:].split(".")])
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    n, k, d, a, b = int(found[1]), int(found[2]), found[3], found[4], found[5]
    if (d, a, b, k) not in COMBINATIONS or not legal_n(d, n):
        return None
    registers = found[6] == "rs"
    accumulator = f"vector<{n // 4 if d == 'f16' else n // 2}x{_MLIR[d]}>"
    transposes = ("trans_b",) if registers else ("trans_a", "trans_b")
    return Instruction(
        name,
        ("vector<4xi32>" if registers else "i64", "i64", "i1", accumulator),
        (accumulator,),
        # Operands of unlike signs came later.
        SM90A | {"ptx84"} if d == "s32" and a != b else SM90A,
        _meaning(n, k, d, a, b, registers),
        _emit(n, k, d, a, b, registers),
        dict.fromkeys(transposes if a in ("f16", "bf16") else (), 0),
        effect="read",
        exact=d == "s32",
        scope="warpgroup",
        timed=True,
        shared=_bytes_read(n, k, a, b, registers),
    )


def _make_wait(name: str, parts: list[list[str]]) -> Instruction:
    types = tuple(f"vector<{count}x{_MLIR[kind]}>" for kind, count in parts)
    flat = [_LLVM[kind] for kind, count in parts for _ in range(int(count))]

    def wait(*accumulators: Any, n: int = 0) -> Sequence[Any]:
        """All but the last `n` committed groups are complete; gives the accumulators unchanged."""
        return list(accumulators)

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        text = f"wgmma.wait_group.sync.aligned {immediates['n']};"
        args = list(zip(flat, regs, strict=True))
        return ptx(p, text, flat, args, tied=len(flat), effect=True, memory=True)

    return Instruction(
        name, types, types, SM90A, wait, emit, {"n": 0}, "write", scope="warpgroup", timed=True
    )


make_by(_make)

# PTX has no instruction for it. pmevent, which counts an event of the performance monitor, costs a slot of issue, and
# ptxas moves nothing across it.
timed("sched.barrier", (), "What stands before stays before.", "pmevent 1;", SM90A)

for _name, _doc, *_extra in (
    ("fence", "Registers and shared memory written before are seen by the wgmma that follow."),
    ("commit", "The wgmma since the last commit become one group that `wait` counts."),
    ("wait", "All but the last `n` committed groups are complete; no accumulator is named.", ("i64", "<n>")),
):  # fmt: skip
    timed(
        f"wgmma.{_name}",
        (),
        _doc,
        f"wgmma.{_name}{'' if _name == 'fence' else '_group'}.sync.aligned",
        SM90A,
        extra=_extra,
        immediates={"n": 0} if _extra else {},
        scope="warpgroup",
    )
