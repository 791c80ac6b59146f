"""Every entry of the instruction table: its numpy meaning against its emission, executed on random operands."""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest

from tests.codegen.harness import Function, amx_is_allowed, host_features, module
from tilewright.codegen import emit_module, x86
from tilewright.codegen.instructions import Instruction, all_instructions, find
from tilewright.codegen.jit import compile_assembly
from tilewright.codegen.target import for_cpu
from tilewright.diagnostics import UnsupportedError
from tilewright.uarch.arm import AARCH64

EVERYTHING = {
    "x86": x86("amx", frozenset({"amx-fp16"})),
    "aarch64": for_cpu(AARCH64, "sve2"),
}
CPUS = [entry for family in EVERYTHING for entry in all_instructions(family)]
DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
}
AREA = 4096


def vector(text: str) -> tuple[int, np.dtype]:
    found = re.fullmatch(r"vector<(\d+)x(\w+)>", text)
    assert found, text
    return int(found.group(1)), np.dtype(DTYPES[found.group(2)])


def operand(text: str, rng: np.random.Generator) -> np.ndarray:
    """A random value as bytes."""
    if text == "!mach.amx":
        return rng.integers(0, 256, (16, 64), dtype=np.uint8)
    n, dtype = vector(text)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    return (rng.normal(size=n) * np.exp2(rng.integers(-3, 4, n))).astype(dtype)


def small_floats(entry: Instruction, rng: np.random.Generator) -> np.ndarray:
    """An AMX operand whose bytes are ordinary numbers of the type that the entry multiplies."""
    dtype = {"tdpbf16ps": ml_dtypes.bfloat16, "tdpfp16ps": np.float16}.get(
        entry.name.split(".")[-1]
    )
    if dtype is None:
        return rng.integers(0, 256, (16, 64), dtype=np.uint8)
    return rng.normal(size=(16, 32)).astype(dtype).view(np.uint8)


def program(entry: Instruction) -> str:
    """Loads the operands from %in, runs the entry, stores its results to %out. AMX tiles go through tile loads."""
    lines, names = [], []
    for i, t in enumerate(entry.operands):
        lines.append(f"%o{i} = arith.constant {i * AREA} : index")
        lines.append(f"%p{i} = mach.ptr_add %in, %o{i} : !llvm.ptr")
        if t == "!llvm.ptr":
            names.append("%memory")
        elif t == "index":
            names.append("%stride")
        elif t == "!mach.amx":
            lines.append(
                f'%x{i} = mach.instr "x86.amx.tileload"(%p{i}, %c64) : (!llvm.ptr, index) -> !mach.amx'
            )
            names.append(f"%x{i}")
        else:
            lines.append(f"%x{i} = mach.load %p{i} : !llvm.ptr -> {t}")
            names.append(f"%x{i}")
    results = ", ".join(f"%r{i}" for i in range(len(entry.results)))
    types = f"({', '.join(entry.operands)}) -> ({', '.join(entry.results)})"
    lines.append(
        f'{results + " = " if results else ""}mach.instr "{entry.name}"({", ".join(names)}) : {types}'
    )
    for i, t in enumerate(entry.results):
        if t == "!mach.amx":
            lines.append(
                f'mach.instr "x86.amx.tilestore"(%r{i}, %out, %c64) : (!mach.amx, !llvm.ptr, index) -> ()'
            )
        else:
            lines.append(f"mach.store %r{i}, %out : {t}, !llvm.ptr")
    body = "\n      ".join(lines)
    return f"""
    func.func @k(%in : !llvm.ptr, %out : !llvm.ptr, %memory : !llvm.ptr, %stride : index) {{
      {body}
      func.return
    }}"""


@pytest.mark.parametrize("entry", CPUS, ids=lambda e: e.name)
def test_emission_is_one_straight_line(entry: Instruction) -> None:
    """It prints and compiles for a machine that has everything, without branch or library call."""
    target = EVERYTHING[entry.name.split(".")[0]]
    llvm = emit_module(module(program(entry)), target)
    assert "br " not in llvm
    asm = compile_assembly(llvm, target)
    assert not re.search(r"\t(call|bl)\w*\t", asm)
    assert entry.doc, "says what it computes"


@pytest.mark.parametrize("entry", all_instructions("x86"), ids=lambda e: e.name)
def test_meaning_is_what_the_machine_does(entry: Instruction, rng: np.random.Generator) -> None:
    host = x86("x86-64", host_features())
    if missing := entry.missing(host):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    if "amx" in entry.name and not amx_is_allowed():
        pytest.skip("the kernel does not let this process use AMX")
    values: list[object] = []
    area = np.zeros(max(1, len(entry.operands)) * AREA, np.uint8)
    memory = rng.integers(0, 256, 4 * AREA, dtype=np.uint8)
    stride = 96
    for i, t in enumerate(entry.operands):
        if t == "!llvm.ptr":
            values.append(memory.copy())
        elif t == "index":
            values.append(stride)
        else:
            x = small_floats(entry, rng) if t == "!mach.amx" and i else operand(t, rng)
            if t == "!mach.amx" and i == 0 and entry.results:
                x = rng.normal(size=(16, 16)).astype(np.float32).view(np.uint8)
                x = x if not entry.exact else rng.integers(0, 256, (16, 64), dtype=np.uint8)
            area[i * AREA : i * AREA + x.nbytes] = x.reshape(-1).view(np.uint8)
            values.append(x)
    wanted = entry.meaning(*values, **entry.immediates)
    out = np.zeros(AREA, np.uint8)
    target = x86("amx" if "amx" in entry.name else "x86-64", host_features())
    Function(program(entry), target=target)(area, out, memory, stride)
    for t, value in zip(entry.results, wanted, strict=True):
        got = out[: value.nbytes].view(value.dtype).reshape(value.shape)
        if entry.exact:
            np.testing.assert_array_equal(got, value)
        else:
            kind = np.float32 if t == "!mach.amx" else value.dtype
            a, b = got.view(kind).astype(np.float64), value.view(kind).astype(np.float64)
            assert np.linalg.norm(a - b) <= 2.0**-12 * np.linalg.norm(b)
    for t, value in zip(entry.operands, values, strict=True):
        if t == "!llvm.ptr":
            np.testing.assert_array_equal(memory, value, "memory after it")


def test_amx_meaning_by_hand(rng: np.random.Generator) -> None:
    """C[m, n] += sum over k of A[m, k] B[k, n], with B's rows holding groups of four along K: by plain loops."""
    entry = find("x86.amx.tdpbusd")
    assert entry is not None
    c = rng.integers(-1000, 1000, (16, 16)).astype(np.int32)
    a = rng.integers(0, 256, (16, 64), dtype=np.uint8)
    b = rng.integers(-128, 128, (16, 64)).astype(np.int8)
    wanted = c.copy()
    for m, n, k in itertools.product(range(16), range(16), range(64)):
        wanted[m, n] += int(a[m, k]) * int(b[k // 4, 4 * n + k % 4])
    (got,) = entry.meaning(c.view(np.uint8), a, b.view(np.uint8))
    np.testing.assert_array_equal(got.view(np.int32), wanted)


def test_partial_tiles_by_immediates(rng: np.random.Generator) -> None:
    load = find("x86.amx.tileload")
    assert load is not None
    memory = rng.integers(0, 256, 2048, dtype=np.uint8)
    (tile,) = load.meaning(memory, 100, rows=3, bytes=20)
    np.testing.assert_array_equal(tile[2, :20], memory[200:220])
    assert not tile[3:].any() and not tile[:, 20:].any()
    text = program(load).replace(
        '"x86.amx.tileload"(%memory, %stride)',
        '"x86.amx.tileload"(%memory, %stride) {params = {rows = 3 : i64, bytes = 20 : i64}}',
    )
    assert "(i16 3, i16 20, ptr" in emit_module(module(text), EVERYTHING["x86"])


@pytest.mark.parametrize(
    "entry", [e for e in all_instructions("x86") if e.elementwise], ids=lambda e: e.name
)
@pytest.mark.parametrize("n", [1, 16, 20, 48])
def test_an_elementwise_entry_is_done_to_vectors_of_any_length(
    entry: Instruction, n: int, rng: np.random.Generator
) -> None:
    kind = f"vector<{n}xf32>"
    text = f"""
    func.func @k(%in : !llvm.ptr, %out : !llvm.ptr) {{
      %x = mach.load %in : !llvm.ptr -> {kind}
      %y = mach.each "{entry.name}"(%x) : ({kind}) -> {kind}
      mach.store %y, %out : {kind}, !llvm.ptr
      func.return
    }}"""
    llvm = emit_module(module(text), EVERYTHING["x86"])
    assert len(re.findall(r"= call <16 x float> @llvm.x86", llvm)) == -(-n // 16)
    host = x86("x86-64", host_features())
    if entry.missing(host):
        return
    x, got = (rng.uniform(1, 2, n).astype(np.float32), np.zeros(n + 1, np.float32))
    Function(text, target=host)(x, got)
    np.testing.assert_allclose(got[:n], entry.meaning(x)[0], rtol=2.0**-12)
    assert got[n] == 0


REFUSED = [
    ('mach.instr "x86.nonsense"() : () -> ()', "there is no instruction 'x86.nonsense'"),
    (
        '%t = mach.instr "x86.amx.tilezero"() : () -> !mach.amx',
        "needs amx-tile; x86/avx512 has not",
    ),
    ('mach.instr "x86.pause"() {params = {n = 3 : i64}} : () -> ()', "has no immediate 'n'"),
    ('mach.instr "x86.pause"(%n) : (index) -> ()', "has 1 operands, the instruction 0"),
    (
        '%r = mach.instr "x86.vrcp14ps.512"(%v) : (vector<8xf32>) -> vector<16xf32>',
        "operand 0 is vector<8xf32>, the instruction has vector<16xf32>",
    ),
    (
        '%r = mach.each "x86.nonsense"(%v) : (vector<8xf32>) -> vector<8xf32>',
        "there is no instruction 'x86.nonsense'",
    ),
    (
        '%r = mach.each "x86.pause"(%v) : (vector<8xf32>) -> vector<8xf32>',
        "'x86.pause' is not done element by element",
    ),
    (
        '%r = mach.each "x86.vrcp14ps.512"(%n) : (index) -> index',
        "'x86.vrcp14ps.512' takes and gives elements of f32, f32",
    ),
]


@pytest.mark.parametrize("line, message", REFUSED)
def test_refused(line: str, message: str) -> None:
    text = f"func.func @k(%n : index, %v : vector<8xf32>) {{\n  {line}\n  func.return\n}}"
    with pytest.raises(UnsupportedError) as caught:
        emit_module(module(text), x86("avx512"))
    assert message in str(caught.value) and "test.mlir:2:" in str(caught.value)


def test_amx_loop_keeps_its_tiles_in_registers() -> None:
    """2 x 2 accumulators over K: one configuration, no tile spilled, in LLVM's own assembly."""
    tile, load = "!mach.amx", "(!llvm.ptr, index) -> !mach.amx"
    dot = "(!mach.amx, !mach.amx, !mach.amx) -> !mach.amx"
    zeros = "\n".join(f'%z{i} = mach.instr "x86.amx.tilezero"() : () -> {tile}' for i in range(4))
    stores = "\n".join(
        f'mach.instr "x86.amx.tilestore"(%r#{i}, %c, %s) : (!mach.amx, !llvm.ptr, index) -> ()'
        for i in range(4)
    )
    text = f"""
    func.func @k(%a : !llvm.ptr, %b : !llvm.ptr, %c : !llvm.ptr, %n : index) {{
      %s = arith.constant 64 : index
      %size = arith.constant 1024 : index
      {zeros}
      %r:4 = scf.for %i = %c0 to %n step %c1 iter_args(%x0 = %z0, %x1 = %z1, %x2 = %z2, %x3 = %z3)
          -> ({tile}, {tile}, {tile}, {tile}) {{
        %o = arith.muli %i, %size : index
        %pa = mach.ptr_add %a, %o : !llvm.ptr
        %pb = mach.ptr_add %b, %o : !llvm.ptr
        %qa = mach.ptr_add %pa, %size : !llvm.ptr
        %qb = mach.ptr_add %pb, %size : !llvm.ptr
        %b0 = mach.instr "x86.amx.tileload"(%pb, %s) : {load}
        %b1 = mach.instr "x86.amx.tileload"(%qb, %s) : {load}
        %a0 = mach.instr "x86.amx.tileloadt1"(%pa, %s) : {load}
        %y0 = mach.instr "x86.amx.tdpbf16ps"(%x0, %a0, %b0) : {dot}
        %y1 = mach.instr "x86.amx.tdpbf16ps"(%x1, %a0, %b1) : {dot}
        %a1 = mach.instr "x86.amx.tileloadt1"(%qa, %s) : {load}
        %y2 = mach.instr "x86.amx.tdpbf16ps"(%x2, %a1, %b0) : {dot}
        %y3 = mach.instr "x86.amx.tdpbf16ps"(%x3, %a1, %b1) : {dot}
        scf.yield %y0, %y1, %y2, %y3 : {tile}, {tile}, {tile}, {tile}
      }}
      {stores}
      func.return
    }}"""
    asm = compile_assembly(emit_module(module(text), EVERYTHING["x86"]), EVERYTHING["x86"])
    counts = {
        name: len(re.findall(rf"\t{name}\t", asm))
        for name in ("ldtilecfg", "tilestored", "tdpbf16ps", "tileloadd", "tileloaddt1")
    }
    assert counts == {
        "ldtilecfg": 1,
        "tilestored": 4,
        "tdpbf16ps": 4,
        "tileloadd": 2,
        "tileloaddt1": 2,
    }
