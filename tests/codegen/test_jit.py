"""From text to code: objects, symbols, lifetime, and failures that must not end the process."""

import ctypes
import gc
import os
import sys
from threading import Event, Thread

import numpy as np
import pytest

from tests.codegen.harness import LEVELS, module
from tilewright.codegen import emit_module, nvptx, spirv, x86
from tilewright.codegen.elf import defined_symbols, undefined_symbols
from tilewright.codegen.jit import compile_assembly, compile_object, toolchain_version
from tilewright.codegen.loading import Ahead, LoadedObject, load, prompt
from tilewright.codegen.printer import Printer, emit_early, emit_parts
from tilewright.codegen.remote import generate_ptx, generate_spirv
from tilewright.diagnostics import CompileError

TARGET = x86("avx2")
CALLS_OUT = """
func.func @k(%x : index) -> index {
  %y = mach.call @from_outside(%x) : (index) -> index
  func.return %y : index
}"""
IN_PARTS = """
func.func @common(%x : index) -> index attributes {{mach.common = "a"}} {{
  %y = arith.muli %x, %x : index
  func.return %y : index
}}
func.func @k(%x : index) -> index {{
  %y = func.call @common(%x) : (index) -> index
  %z = arith.{op} %y, %x : index
  func.return %z : index
}}"""
PLAIN = """
func.func @k(%x : index) -> index {
  %y = arith.addi %x, %x : index
  func.return %y : index
}"""
I64 = ctypes.c_int64
CALLBACK = ctypes.CFUNCTYPE(I64, I64)


def object_of(text: str) -> bytes:
    return compile_object(emit_module(module(text), TARGET), TARGET)


def test_functions_that_modules_have_in_common_are_parts_with_the_same_text() -> None:
    made = [emit_parts(module(IN_PARTS.format(op=op)), TARGET) for op in ("addi", "subi")]
    for (text, (common, own)), wanted in zip(made, (56, 42), strict=True):
        assert common == made[0][1][0] and "@k" not in common and "declare i64 @common(i64)" in own
        for data in (
            compile_object(text, TARGET),
            compile_object(common, TARGET) + compile_object(own, TARGET),
        ):
            loaded = LoadedObject(data, TARGET)
            assert ctypes.CFUNCTYPE(I64, I64)(loaded.address("k"))(7) == wanted
    assert made[0][1][1] != made[1][1][1]
    text, parts = emit_parts(module(PLAIN), TARGET)
    assert parts == [text]


def test_functions_printed_early_are_parts_as_others_are() -> None:
    again, printer = module(IN_PARTS.format(op="addi")), Printer(TARGET)
    common = emit_early([*again.body.block.ops][:1], printer)
    text, parts = emit_parts(again, TARGET, printer)
    assert (text, parts) == emit_parts(module(IN_PARTS.format(op="addi")), TARGET)
    assert common == parts[0]
    ahead = Ahead(TARGET)
    ahead.begin(parts[0])
    assert ahead.get([parts[0]]) == [compile_object(parts[0], TARGET)]
    ahead.begin("this is no text of LLVM's")
    with pytest.raises(CompileError):
        ahead.get(["this is no text of LLVM's"])


def test_an_object_is_made_by_whoever_needs_it_where_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    text, ahead = emit_parts(module(PLAIN), TARGET)[0], Ahead(TARGET)
    monkeypatch.setattr(Thread, "start", start)
    ahead.begin(text)
    assert ahead.get([text]) == [compile_object(text, TARGET)]


def test_an_object_is_bytes_that_load_anywhere() -> None:
    data = object_of(PLAIN)
    assert isinstance(data, bytes) and data[:4] == b"\x7fELF"
    assert defined_symbols(data) == ["k"] and undefined_symbols(data) == []
    first, second = LoadedObject(data, TARGET), LoadedObject(data, TARGET)
    assert CALLBACK(first.address("k"))(21) == CALLBACK(second.address("k"))(21) == 42
    with pytest.raises(KeyError):
        first.address("nothing")


def test_the_same_text_gives_the_same_object() -> None:
    assert object_of(PLAIN) == object_of(PLAIN)


def test_symbols_come_from_the_caller() -> None:
    data = object_of(CALLS_OUT)
    assert undefined_symbols(data) == ["from_outside"]
    outside = CALLBACK(lambda x: 3 * x)
    address = ctypes.cast(outside, ctypes.c_void_p).value
    assert address is not None
    loaded = LoadedObject(data, TARGET, {"from_outside": address})
    assert CALLBACK(loaded.address("k"))(14) == 42


def test_a_missing_symbol_is_an_error_not_an_abort() -> None:
    data = object_of(CALLS_OUT.replace("from_outside", "tw_no_such_function"))
    with pytest.raises(CompileError, match="needs 'tw_no_such_function'"):
        LoadedObject(data, TARGET)


def test_code_lives_as_long_as_its_object() -> None:
    loaded = [load(emit_module(module(PLAIN), TARGET), TARGET) for _ in range(20)]
    functions = [CALLBACK(x.address("k")) for x in loaded]
    del loaded[::2]
    gc.collect()
    assert [f(1) for f in functions[1::2]] == [2] * 10


def test_bad_llvm_text_is_an_error() -> None:
    with pytest.raises(CompileError, match="LLVM refuses"):
        compile_object("define i32 @k() {\n  ret i64 0\n}\n", TARGET)


def test_the_target_decides_the_instructions() -> None:
    text = """
    func.func @k(%p : !llvm.ptr) {
      %x = mach.load %p : !llvm.ptr -> vector<16xf32>
      %y = vector.fma %x, %x, %x : vector<16xf32>
      mach.store %y, %p : vector<16xf32>, !llvm.ptr
      func.return
    }"""
    asm = {
        level: compile_assembly(emit_module(module(text), x86(level)), x86(level))
        for level in ("avx2", "avx512")
    }
    assert "zmm" in asm["avx512"] and "zmm" not in asm["avx2"] and "ymm" in asm["avx2"]


def test_toolchain_version_names_llvm() -> None:
    assert "LLVM" in toolchain_version() and "llvmlite" in toolchain_version()


# The helper process ---------------------------------------------------------------------------------

KERNEL = """
func.func @k(%p : !llvm.ptr<1>, %x : f32) attributes {mach.kernel} {
  mach.store %x, %p : f32, !llvm.ptr<1>
  func.return
}"""
UNSELECTABLE = """target triple = "nvptx64-nvidia-cuda"
declare float @llvm.tanh.f32(float)
define ptx_kernel void @k(ptr %p, float %x) {
  %y = call float @llvm.tanh.f32(float %x)
  store float %y, ptr %p
  ret void
}
"""


def test_an_llvm_abort_is_an_error_and_the_helper_lives_on() -> None:
    with pytest.raises(CompileError, match="LLVM ERROR: Cannot select"):
        generate_ptx(UNSELECTABLE, nvptx())
    assert "st.global" in generate_ptx(emit_module(module(KERNEL), nvptx()), nvptx())


def test_text_that_llvm_cannot_parse_is_an_error() -> None:
    with pytest.raises(CompileError, match="LLVM cannot generate code"):
        generate_ptx("nonsense", nvptx())


def test_every_spirv_emission_is_the_first_of_its_process() -> None:
    text = emit_module(module(KERNEL), spirv())
    outputs = {generate_spirv(text, spirv()) for _ in range(5)}
    assert len(outputs) == 1


def test_a_time_limit() -> None:
    text = emit_module(module(KERNEL), nvptx())
    with pytest.raises(CompileError, match="longer than 0"):
        generate_ptx(text, nvptx(), limit=0.0)


def test_a_forked_process_has_its_own_helper() -> None:
    text = emit_module(module(KERNEL), nvptx())
    wanted = generate_ptx(text, nvptx())
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if generate_ptx(text, nvptx()) == wanted else 2
        finally:
            os._exit(code)
    os.close(read)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert generate_ptx(text, nvptx()) == wanted


def test_arrays_survive(rng: np.random.Generator) -> None:
    """A loaded function works on arrays made later, at any address."""
    text = """
    func.func @k(%p : !llvm.ptr, %n : index) {
      %two = arith.constant 2.0 : f64
      scf.for %i = %c0 to %n step %c8 {
        %a = mach.ptr_add %p, %i : !llvm.ptr
        %x = mach.load %a : !llvm.ptr -> f64
        %y = arith.mulf %x, %two : f64
        mach.store %y, %a : f64, !llvm.ptr
      }
      func.return
    }"""
    loaded = load(emit_module(module(text), TARGET), TARGET)
    f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, I64)(loaded.address("k"))
    for _ in range(5):
        x = rng.normal(size=int(rng.integers(1, 100000)))
        wanted = 2 * x
        f(x.ctypes.data, x.nbytes)
        np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize(("wide", "narrow"), [("i32", "i16"), ("i32", "i8"), ("i64", "i32")])
def test_one_element_of_a_truncated_vector_is_stored_alone(
    level: str, optimize: bool, wide: str, narrow: str
) -> None:
    """LLVM 22 stores it in the width that it had before, with AVX-512."""
    target, dtype = x86(level), np.dtype(f"int{narrow[1:]}")
    mask = ", ".join(f"i1 {int(n == 2)}" for n in range(8))
    text = f"""
declare void @llvm.masked.store.v8{narrow}.p0(<8 x {narrow}>, ptr, <8 x i1>)
define internal void @store(ptr %to, <8 x {wide}> %v) {{
  %t = trunc <8 x {wide}> %v to <8 x {narrow}>
  call void @llvm.masked.store.v8{narrow}.p0(<8 x {narrow}> %t, ptr align 1 %to, <8 x i1> <{mask}>)
  ret void
}}
define void @k(ptr %from, ptr %to) #0 {{
  %v = load <8 x {wide}>, ptr %from, align 1
  call void @store(ptr %to, <8 x {wide}> %v)
  ret void
}}
attributes #0 = {{ "target-cpu"="{target.cpu}" "target-features"="{target.feature_string()}" }}
"""
    made = LoadedObject(compile_object(text, target, optimize=optimize), target)
    source, found = np.arange(5, 13, dtype=f"int{wide[1:]}"), np.full(8, 99, dtype)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(made.address("k"))(
        source.ctypes.data, found.ctypes.data
    )
    assert found.tolist() == [99, 99, 7, 99, 99, 99, 99, 99]


def test_threads_take_turns_often_only_while_something_compiles():
    before = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError), prompt():
        with prompt():
            assert sys.getswitchinterval() < before
        assert sys.getswitchinterval() < before
        _ = 1 // 0
    assert sys.getswitchinterval() == before


def test_a_forked_process_compiles_nothing_yet():
    before, compiles, end = sys.getswitchinterval(), Event(), Event()

    def compile_something() -> None:
        with prompt():
            compiles.set()
            end.wait()

    thread = Thread(target=compile_something)
    thread.start()
    compiles.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(int(sys.getswitchinterval() != before))
    _, status = os.waitpid(pid, 0)
    end.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0 and sys.getswitchinterval() == before
