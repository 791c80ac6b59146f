"""NVIDIA's entries: each prints, LLVM selects it, ptxas (where there is one) assembles it; on a GPU its numpy meaning
holds against its emission."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.harness import module
from tests.targets.cuda.harness import Kernel, architecture, needs_gpu
from tilewright.codegen import emit_module, nvptx
from tilewright.codegen.instructions import Instruction, all_instructions, find
from tilewright.codegen.instructions.nvptx_wgmma import COMBINATIONS, legal_n
from tilewright.codegen.remote import generate_ptx
from tilewright.diagnostics import UnsupportedError
from tilewright.targets.cuda import inspect

MADE = [
    "nvptx.wgmma.m64n256k16.f32.bf16.bf16.ss",
    "nvptx.wgmma.m64n64k16.f16.f16.f16.ss",
    "nvptx.wgmma.m64n128k16.f32.bf16.bf16.rs",
    "nvptx.wgmma.m64n128k8.f32.tf32.tf32.ss",
    "nvptx.wgmma.m64n8k32.s32.s8.u8.ss",
    "nvptx.wgmma.m64n64k32.f32.e4m3.e5m2.rs",
    "nvptx.wgmma.wait.f32x64.f16x4",
]


def entries() -> list[Instruction]:
    made = [find(name) for name in MADE]
    return [*all_instructions("nvptx"), *(e for e in made if e is not None)]


def call(entry: Instruction, arguments: list[str], params: str = "") -> str:
    results = ", ".join(f"%r{i}" for i in range(len(entry.results)))
    types = f"({', '.join(entry.operands)}) -> ({', '.join(entry.results)})"
    head = f"{results} = " if results else ""
    return f'{head}mach.instr "{entry.name}"({", ".join(arguments)}){params} : {types}'


def program(entry: Instruction, name: str) -> str:
    """One kernel whose arguments are the entry's operands."""
    arguments = [f"%a{i} : {t}" for i, t in enumerate(entry.operands)]
    stores = "\n".join(
        f"mach.store %r{i}, %out : {t}, !llvm.ptr"
        for i, t in enumerate(entry.results)
        if not t.startswith("!llvm")
    )
    return f"""
    func.func @{name}({", ".join(["%out : !llvm.ptr", *arguments])})
        attributes {{mach.kernel, "nvvm.reqntid" = "128,1,1"}} {{
      {call(entry, [f"%a{i}" for i in range(len(entry.operands))])}
      {stores}
      func.return
    }}"""


def test_every_entry_says_what_it_does_and_is_one_straight_line() -> None:
    for entry in entries():
        assert entry.doc, entry.name
        text = emit_module(module(program(entry, "k")), nvptx("sm_90a", 84))
        assert " br " not in text, entry.name


def test_every_entry_is_selected_and_assembled(tmp_path: Path) -> None:
    target = nvptx("sm_90a", 84)
    text = "\n".join(program(e, f"k{i}") for i, e in enumerate(entries()))
    ptx = generate_ptx(emit_module(module(text), target), target)
    assert ptx.count(".entry") == len(entries())
    if (ptxas := inspect.find_tool("ptxas")) is None:
        pytest.skip("no ptxas on this machine: pip install nvidia-cuda-nvcc")
    (tmp_path / "k.ptx").write_text(ptx)
    done = subprocess.run(
        [ptxas, "-arch=sm_90a", "k.ptx", "-o", "k.cubin"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_a_machine_lacks_is_refused() -> None:
    for name, needs in (
        ("nvptx.wgmma.fence", "sm_90a"),
        ("nvptx.stmatrix.x4", "sm_90"),
        ("nvptx.mma.m16n8k32.f32.e4m3.e4m3.f32", "ptx84, sm_89"),
    ):
        entry = find(name)
        assert entry is not None
        with pytest.raises(UnsupportedError, match=f"needs {needs}; nvptx/sm_80 has not"):
            emit_module(module(program(entry, "k")), nvptx("sm_80"))


def test_shapes_that_the_machine_lacks_are_no_entries() -> None:
    assert find("nvptx.wgmma.m64n260k16.f32.bf16.bf16.ss") is None
    assert find("nvptx.wgmma.m64n40k32.s32.s8.s8.ss") is None
    assert find("nvptx.wgmma.m64n64k16.f32.f16.bf16.ss") is None
    assert legal_n("f32", 40) and not legal_n("s32", 40)


# On the GPU: a kernel per entry, random values in every lane ---------------------------------------

LANES, AREA = 32, 512
_NUMPY: dict[str, Any] = {
    "i32": np.int32,
    "f32": np.float32,
    "f64": np.float64,
    "i16": np.int16,
    "i1": np.int8,
}


def runnable() -> list[Instruction]:
    """Entries whose meaning is a function of one warp's registers and memory."""
    return [e for e in all_instructions("nvptx") if not e.timed and e.scope in ("thread", "warp")]


def parts(text: str) -> tuple[int, str]:
    if text.startswith("vector<"):
        count, kind = text[7:-1].split("x")
        return int(count), kind
    return 0, text


def operand(entry: Instruction, index: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """[lanes, components] (or [lanes]) of numbers that are ordinary in the entry's element types."""
    count, kind = parts(entry.operands[index])
    shape = (LANES, count) if count else (LANES,)
    name = entry.name.split(".")
    if name[1] == "mma":
        element = name[3 + (1, 2, 0)[index]]
        packed = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn,
                  "e5m2": ml_dtypes.float8_e5m2}  # fmt: skip
        if element in packed:
            per = 4 // np.dtype(packed[element]).itemsize
            values = rng.normal(size=(LANES, count * per)).astype(packed[element])
            return values.view(np.int32)
        if element == "tf32":
            return rng.normal(size=shape).astype(np.float32).view(np.int32)
    if name[1] == "shfl" and index == 1:
        return np.full(shape, rng.integers(0, 32), np.int32)
    if name[1:3] == ["red", "add"]:
        dtype = np.float16 if "bf16" not in entry.name else ml_dtypes.bfloat16
        return rng.normal(size=(LANES, 2)).astype(dtype).view(np.int32)[:, 0]
    if (
        entry.name == "nvptx.prmt" and index == 2
    ):  # each with one digit at least that asks for a sign
        digits = rng.integers(-(1 << 31), 1 << 31, shape)
        return (digits | 8 << 4 * rng.integers(0, 4, shape)).astype(np.int32)
    if kind.startswith("f"):
        positive = any(word in entry.name for word in ("lg2", "rsqrt"))
        values = rng.normal(size=shape) * np.exp2(rng.integers(-4, 5, shape))
        return np.abs(values).astype(_NUMPY[kind]) if positive else values.astype(_NUMPY[kind])
    if kind == "i1":
        return rng.integers(0, 2, shape).astype(np.int8)
    if "f16x2.e" in entry.name:  # ordinary numbers: the bits of a NaN are the machine's own
        dtype = ml_dtypes.float8_e4m3fn if "e4m3" in entry.name else ml_dtypes.float8_e5m2
        return (10 * rng.normal(size=(LANES, 2))).astype(dtype).view(np.int16)[:, 0]
    info = np.iinfo(_NUMPY[kind])
    return rng.integers(info.min, info.max, shape, _NUMPY[kind], endpoint=True)


def lane_kernel(entry: Instruction) -> str:
    """Copies %memory to shared memory, runs the entry in every lane, stores results, copies shared memory back.

    Operand i of lane l lies at %in + i * AREA * 32 + l * AREA; pointers are 16 l bytes into the memory."""
    lines, names = [], []
    for i, t in enumerate(entry.operands):
        if t.startswith("!llvm.ptr"):
            base = "%shared" if "3" in t else "%memory"
            lines.append(f"%p{i} = mach.ptr_add {base}, %mine : {t}")
            names.append(f"%p{i}")
            continue
        lines.append(f"%o{i} = arith.constant {i * AREA * LANES} : index")
        lines.append(f"%q{i} = arith.addi %o{i}, %lane_area : index")
        lines.append(f"%a{i} = mach.ptr_add %in, %q{i} : !llvm.ptr<1>")
        loaded = f"%x{i}" if t != "i1" else f"%b{i}"
        lines.append(f"{loaded} = mach.load %a{i} : !llvm.ptr<1> -> {t if t != 'i1' else 'i8'}")
        if t == "i1":
            lines.append(f"%x{i} = arith.trunci %b{i} : i8 to i1")
        names.append(f"%x{i}")
    lines.append(call(entry, names))
    lines.append("%out_lane = mach.ptr_add %out, %lane_area : !llvm.ptr<1>")
    for i, t in enumerate(entry.results):
        lines.append(f"mach.store %r{i}, %out_lane : {t}, !llvm.ptr<1>")
    body = "\n      ".join(lines)
    return f"""
    func.func @k(%in : !llvm.ptr<1>, %out : !llvm.ptr<1>, %memory : !llvm.ptr<1>)
        attributes {{mach.kernel, "nvvm.reqntid" = "32,1,1"}} {{
      %lane = gpu.lane_id
      %area = arith.constant {AREA} : index
      %mine = arith.muli %lane, %c16 : index
      %lane_area = arith.muli %lane, %area : index
      %shared = mach.shared_base {{alignment = 128 : i64}} : !llvm.ptr<3>
      %from = mach.ptr_add %memory, %mine : !llvm.ptr<1>
      %to = mach.ptr_add %shared, %mine : !llvm.ptr<3>
      %w = mach.load %from {{alignment = 16 : i64}} : !llvm.ptr<1> -> vector<4xi32>
      mach.store %w, %to {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr<3>
      gpu.barrier
      {body}
      gpu.barrier
      %back = mach.load %to {{alignment = 16 : i64}} : !llvm.ptr<3> -> vector<4xi32>
      %later = mach.ptr_add %from, %c512 : !llvm.ptr<1>
      mach.store %back, %later {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr<1>
      func.return
    }}"""


@needs_gpu
@pytest.mark.parametrize("entry", runnable(), ids=lambda e: e.name)
def test_meaning_is_what_the_machine_does(entry: Instruction, rng: np.random.Generator) -> None:
    ptx = 84 if "ptx84" in entry.requires else 80
    target = nvptx(architecture(), ptx)
    if missing := entry.missing(target):
        pytest.skip(f"this GPU lacks {', '.join(missing)}")
    memory = np.zeros(1024, np.uint8)
    memory[:512] = rng.normal(size=256).astype(np.float16).view(np.uint8)
    if "bf16" in entry.name:
        memory[:512] = rng.normal(size=256).astype(ml_dtypes.bfloat16).view(np.uint8)
    inputs = np.zeros((max(1, len(entry.operands)), LANES, AREA), np.uint8)
    out = np.full((LANES, AREA), 0xA5, np.uint8)
    values: list[Any] = []
    mine = memory[:512].copy()
    for i, t in enumerate(entry.operands):
        if t.startswith("!llvm.ptr"):
            values.append([mine[16 * lane :] for lane in range(LANES)])
            continue
        x = operand(entry, i, rng)
        raw = x.reshape(LANES, -1).view(np.uint8)
        inputs[i, :, : raw.shape[1]] = raw
        values.append(x.astype(bool) if t == "i1" else x)
    Kernel(lane_kernel(entry), shared=512 + 128, ptx=ptx)(inputs, out, memory)
    if entry.scope == "warp":
        wanted = list(entry.meaning(*values, **entry.immediates))
    else:
        lanes = [entry.meaning(*(v[lane] for v in values)) for lane in range(LANES)]
        wanted = [np.array(column) for column in zip(*lanes, strict=True)]
    for t, value in zip(entry.results, wanted, strict=True):
        count, kind = parts(t)
        dtype = np.dtype(_NUMPY[kind])
        got = out[:, : max(1, count) * dtype.itemsize].copy().view(dtype)
        got = got if count else got[:, 0]
        expected = (
            np.asarray(value).astype(np.int64).astype(dtype)
            if kind[0] == "i" and entry.exact
            else np.asarray(value)
        )
        if entry.exact:
            np.testing.assert_array_equal(got, expected.reshape(got.shape))
        else:
            half = entry.name.split(".")[3] == "f16" and entry.name.startswith("nvptx.mma")
            if half:
                got, expected = got.view(np.float16), np.asarray(value).view(np.float16)
            a, b = got.astype(np.float64), expected.reshape(got.shape).astype(np.float64)
            assert np.linalg.norm(a - b) <= (2.0**-9 if half else 2.0**-10) * np.linalg.norm(b)
    if any(t == "!llvm.ptr<3>" for t in entry.operands):
        np.testing.assert_array_equal(memory[512:], mine, "shared memory after it")
    elif "!llvm.ptr<1>" in entry.operands:
        dtype = np.float16 if "bf16" not in entry.name else ml_dtypes.bfloat16
        np.testing.assert_array_equal(memory[:512].view(dtype), mine.view(dtype))


# Warpgroup: wgmma ----------------------------------------------------------------------------------


def wgmma_kernel(
    entry: Instruction, n_registers: int, kind: str, a_words: bool, params: str
) -> str:
    """128 threads copy 64 KiB to shared memory, multiply once, store their accumulators."""
    wait = f"nvptx.wgmma.wait.{kind}x{n_registers}"
    c = entry.operands[3]
    a = (
        """%afrag = mach.ptr_add %regs, %t16 : !llvm.ptr<1>
      %a = mach.load %afrag {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xi32>"""
        if a_words
        else "%a = arith.addi %da, %base64 : i64"
    )
    arguments = ["%a", "%b", "%one", "%c"]
    return f"""
    func.func @k(%memory : !llvm.ptr<1>, %regs : !llvm.ptr<1>, %acc : !llvm.ptr<1>, %da : i64, %db : i64)
        attributes {{mach.kernel, "nvvm.reqntid" = "128,1,1"}} {{
      %t = gpu.thread_id x
      %step = arith.constant 2048 : index
      %t16 = arith.muli %t, %c16 : index
      %shared = mach.shared_base {{alignment = 1024 : i64}} : !llvm.ptr<3>
      scf.for %i = %c0 to %c32 step %c1 {{
        %o = arith.muli %i, %step : index
        %at = arith.addi %o, %t16 : index
        %from = mach.ptr_add %memory, %at : !llvm.ptr<1>
        %to = mach.ptr_add %shared, %at : !llvm.ptr<3>
        %w = mach.load %from {{alignment = 16 : i64}} : !llvm.ptr<1> -> vector<4xi32>
        mach.store %w, %to {{alignment = 16 : i64}} : vector<4xi32>, !llvm.ptr<3>
      }}
      mach.instr "nvptx.fence.proxy.async"() : () -> ()
      gpu.barrier
      %address = mach.int_from_ptr %shared : !llvm.ptr<3> -> i64
      %c4 = arith.constant 4 : i64
      %base64 = arith.shrui %address, %c4 : i64
      {a}
      %b = arith.addi %db, %base64 : i64
      %bytes = arith.constant {4 * n_registers} : index
      %mine = arith.muli %t, %bytes : index
      %cp = mach.ptr_add %acc, %mine : !llvm.ptr<1>
      %c = mach.load %cp : !llvm.ptr<1> -> {c}
      %one = arith.constant true
      mach.instr "nvptx.wgmma.fence"() : () -> ()
      {call(entry, arguments, params)}
      mach.instr "nvptx.wgmma.commit"() : () -> ()
      %d = mach.instr "{wait}"(%r0) : ({c}) -> {c}
      mach.store %d, %cp : {c}, !llvm.ptr<1>
      func.return
    }}"""


_CASES = [
    (d, a, b, k, n, form, trans, swizzle)
    for d, a, b, k in sorted(COMBINATIONS)
    for n, form, trans, swizzle in ((64, "ss", 0, 128), (32, "rs", 0, 64), (128, "ss", 1, 128))
    if not trans or a in ("f16", "bf16")
]


def descriptor(address: int, leading: int, stride: int, swizzle: int) -> int:
    """The matrix descriptor of wgmma; address and offsets in bytes, `swizzle` 0, 32, 64 or 128 bytes."""
    code = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    fields = (address & 0x3FFFF) >> 4 | (leading & 0x3FFFF) >> 4 << 16
    return fields | (stride & 0x3FFFF) >> 4 << 32 | code << 62


@needs_gpu
@pytest.mark.parametrize("case", _CASES, ids=lambda c: ".".join(map(str, c)))
def test_wgmma(case: tuple[Any, ...], rng: np.random.Generator) -> None:
    """One product, operands K-major and (16-bit types) MN-major, with 128- and 64-byte swizzle."""
    d, a, b, k, n, form, trans, swizzle = case
    if architecture() != "sm_90a":
        pytest.skip("this GPU lacks sm_90a")
    entry = find(f"nvptx.wgmma.m64n{n}k{k}.{d}.{a}.{b}.{form}")
    assert entry is not None
    count = n // 4 if d == "f16" else n // 2
    from tilewright.codegen.instructions.nvptx_mma import NUMPY

    dtype = np.dtype(NUMPY[a])
    if dtype.kind in "iu":
        half = rng.integers(0, 256, 32768, dtype=np.uint8)
        shared = np.concatenate([half, rng.integers(0, 256, 32768, dtype=np.uint8)])
        regs = rng.integers(0, 256, (128, 16), dtype=np.uint8)
    else:
        left = rng.normal(size=32768 // dtype.itemsize).astype(dtype).view(np.uint8)
        right = (
            rng.normal(size=32768 // np.dtype(NUMPY[b]).itemsize).astype(NUMPY[b]).view(np.uint8)
        )
        shared = np.concatenate([left, right])
        regs = rng.normal(size=(128, 16 // dtype.itemsize)).astype(dtype).view(np.uint8)
    if d == "s32":
        acc = rng.integers(-1000, 1000, (128, count)).astype(np.int32)
    elif d == "f16":
        acc = rng.normal(size=(128, 2 * count)).astype(np.float16).view(np.int32)
    else:
        acc = rng.normal(size=(128, count)).astype(np.float32)
    stride = 8 * swizzle
    leading = 8192 if trans else 16
    da, db = descriptor(0, leading, stride, swizzle), descriptor(32768, leading, stride, swizzle)
    params = ""
    if trans:
        params = " {params = {trans_a = 1 : i64, trans_b = 1 : i64}}"
    immediates = {"trans_a": 1, "trans_b": 1} if trans else {}
    x = regs.view(np.int32) if form == "rs" else np.full(128, da, np.uint64)
    (wanted,) = entry.meaning(
        x, np.full(128, db, np.uint64), True, acc, shared=shared, **immediates
    )
    kind = {"f32": "f32", "f16": "f16", "s32": "s32"}[d]
    text = wgmma_kernel(entry, count, kind, form == "rs", params)
    ptx = 84 if "ptx84" in entry.requires else 80
    Kernel(text, shared=65536 + 1024, ptx=ptx)(
        shared, regs, acc, np.uint64(da), np.uint64(db), threads=128
    )
    if entry.exact:
        np.testing.assert_array_equal(acc, wanted)
    else:
        view = np.float16 if d == "f16" else np.float32
        p, q = acc.view(view).astype(np.float64), wanted.view(view).astype(np.float64)
        # The machine adds products of f8 with fewer bits than f32 has.
        assert np.linalg.norm(p - q) <= (
            2.0**-8 if d == "f16" or a[0] == "e" else 2.0**-12
        ) * np.linalg.norm(q)


def test_bytes_and_signs_that_a_selector_names() -> None:
    """PTX ISA, prmt.b32 in its default mode: by digit 0 to 7 a byte, by 8 to 15 its sign."""
    prmt = find("nvptx.prmt").meaning
    a, b = 0x8A7F_1580, -0x7F01_0101  # bytes 80 15 7F 8A, FF FE FE 80
    assert prmt(a, b, 0x3210) == [0x8A7F1580]
    assert prmt(a, b, 0x7654) == [0x80FEFEFF]
    assert prmt(a, b, 0xBA98) == [0xFF0000FF]
    assert prmt(a, b, 0x0FC1) == [0x80FFFF15]
    assert prmt(a, b, 0x7FFF3210 - (1 << 32)) == [0x8A7F1580]
