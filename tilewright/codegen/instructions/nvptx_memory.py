"""NVIDIA: matrices between shared memory and fragments (ldmatrix, stmatrix), asynchronous copies of
each thread's own (cp.async), prefetches and packed reductions.

Words are i32 with narrow elements packed low half first. Whose address names which row is
`uarch.fragments.ldmatrix_rows`; what a lane gets is `uarch.fragments.ldmatrix`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.codegen.instructions.nvptx_common import (
    GLOBAL,
    LLVM_SHARED,
    SHARED,
    SM80,
    SM90,
    emission,
    group,
    timed,
    unpack,
)
from tilewright.codegen.instructions.table import Emission, Immediates, Meaning, declare
from tilewright.codegen.printer import Printer


def _words(matrices: Any, transposed: bool) -> Any:
    """[count, 8, 8] of 16 bits -> the word of each lane per matrix, [32, count]."""
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    lanes = np.ascontiguousarray(matrices).reshape(-1, 32, 2)
    return np.ascontiguousarray(lanes.transpose(1, 0, 2)).view(np.uint32)[..., 0].view(np.int32)


def _load(count: int, transposed: bool) -> Meaning:
    def ldmatrix(pointer: Any) -> Sequence[Any]:
        """Row r of matrix i is the 16 bytes at lane 8 i + r's address; lane l gets elements 2 l and
        2 l + 1 of every matrix (`trans`: of its transpose), row-major.
        """
        rows = np.stack([np.asarray(pointer[i][:16]) for i in range(8 * count)])
        words = _words(rows.view(np.uint16).reshape(count, 8, 8), transposed)
        return [words if count > 1 else words.reshape(32, 1)]

    return ldmatrix


def _store(count: int, transposed: bool) -> Meaning:
    def stmatrix(words: Any, pointer: Any) -> Sequence[Any]:
        """The inverse of ldmatrix: row r of matrix i goes to lane 8 i + r's address."""
        data = np.ascontiguousarray(words).reshape(32, count).view(np.uint16)
        matrices = data.reshape(32, count, 2).transpose(1, 0, 2).reshape(count, 8, 8)
        if transposed:
            matrices = matrices.transpose(0, 2, 1)
        rows = np.ascontiguousarray(matrices).reshape(8 * count, 8).view(np.uint8)
        for i in range(8 * count):
            pointer[i][:16] = rows[i]
        return []

    return stmatrix


def _emit_load(count: int, suffix: str) -> Emission:
    struct = "i32" if count == 1 else "{ " + ", ".join(["i32"] * count) + " }"

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{suffix}.b16.p3"
        value = p.call(struct, name, [(LLVM_SHARED, regs[0])])
        return [value] if count == 1 else unpack(p, struct, value, count)

    return emit


def _emit_store(count: int, suffix: str) -> Emission:
    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        name = f"llvm.nvvm.stmatrix.sync.aligned.m8n8.x{count}{suffix}.b16.p3"
        p.call("void", name, [(LLVM_SHARED, regs[count]), *(("i32", r) for r in regs[:count])])
        return []

    return emit


for _count in (1, 2, 4):
    for _suffix in ("", ".trans"):
        _type, _on = f"vector<{_count}xi32>", bool(_suffix)
        declare(
            f"nvptx.ldmatrix.x{_count}{_suffix}",
            (SHARED,),
            (_type,),
            SM80,
            _load(_count, _on),
            _emit_load(_count, _suffix),
            effect="read",
            scope="warp",
        )
        declare(
            f"nvptx.stmatrix.x{_count}{_suffix}",
            (_type, SHARED),
            (),
            SM90,
            _store(_count, _on),
            _emit_store(_count, _suffix),
            effect="write",
            scope="warp",
        )


# cp.async -----------------------------------------------------------------------------------------


def _copy(size: int) -> Meaning:
    def cp_async(to: Any, source: Any, count: int) -> Sequence[Any]:
        """The first `count` bytes at `source` go to shared memory, zeros after them; once waited
        for.
        """
        to[:size] = 0
        to[:count] = source[:count]
        return []

    cp_async.__doc__ = f"{size} bytes: " + (cp_async.__doc__ or "")
    return cp_async


for _size in (4, 8, 16):
    # Through L1 for what is smaller than its 16-byte path past it.
    _path = "cg" if _size == 16 else "ca"
    _types = (SHARED, GLOBAL, "i32")
    _made = emission(f"cp.async.{_path}.shared.global.{_size}.s", _types)
    declare(
        f"nvptx.cp.async.{_size}", _types, (), SM80, _copy(_size), _made, effect="write", timed=True
    )

_doc = "This thread's copies since the last commit become one group."
timed("cp.async.commit_group", (), _doc, "cp.async.commit.group")
timed(
    "cp.async.wait_group",
    (),
    "All but this thread's last `n` groups are complete, as far as this thread sees.",
    "cp.async.wait.group",
    extra=(("i32", "<n>"),),
    immediates={"n": 0},
)
_doc = "All copies of this thread are complete."
timed("cp.async.wait_all", (), _doc, "cp.async.wait.all")
_doc = "The barrier gets one arrival when this thread's copies so far are complete; it was counted."
_call = "cp.async.mbarrier.arrive.noinc.shared"
timed("cp.async.mbarrier.arrive", (SHARED,), _doc, _call)

# Prefetches ---------------------------------------------------------------------------------------

# Written out: LLVM has the intrinsics for sm_90 and later only, PTX the instructions for every machine.
for _level in ("L1", "L2"):
    timed(
        f"prefetch.global.{_level}",
        (GLOBAL,),
        f"The line at the address is brought to {_level}; nothing where there is no memory.",
        f"prefetch.global.{_level} [$0];",
        effect="read",
    )

# Atomic additions of neighbours -------------------------------------------------------------------


def _add_neighbours(element: str) -> Meaning:
    def red(pointer: Any, *words: Any) -> Sequence[Any]:
        """Elements at `pointer` grow by those of the words, each atomically."""
        import ml_dtypes

        kinds: dict[str, Any] = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}
        kind, size = kinds.get(element, np.float32), 4 * len(words)
        if element == "f32":
            new = np.array(words, np.float32)
        else:
            new = np.array(words, np.int64).astype(np.uint32).view(kind)
        old = np.ascontiguousarray(pointer[:size]).view(kind)
        pointer[:size] = (old + new).astype(kind).view(np.uint8)
        return []

    return red


_PTX81 = SM90 | {"ptx81"}
for _summand, _count, _needs in (
    *(("f16x2", 1, SM80), ("f16x2", 2, _PTX81), ("f16x2", 4, _PTX81)),
    *(("bf16x2", 1, SM90), ("bf16x2", 2, _PTX81), ("bf16x2", 4, _PTX81)),
    *(("f32", 2, _PTX81), ("f32", 4, _PTX81)),
):
    _operands = group(1, _count) if _count > 1 else "$1"
    _noftz = ".noftz" if _summand != "f32" else ""
    _suffix = f"{f'v{_count}.' if _count > 1 else ''}{_summand}"
    _types = (GLOBAL, *["f32" if _summand == "f32" else "i32"] * _count)
    _text = f"red.relaxed.gpu.global.add{_noftz}.{_suffix} [$0], {_operands};"
    declare(
        f"nvptx.red.add.{_suffix}",
        _types,
        (),
        _needs,
        _add_neighbours(_summand),
        emission(_text, _types, memory=True),
        effect="write",
    )
