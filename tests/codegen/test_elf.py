"""Objects placed in memory by ourselves and by LLVM's linker: the same results."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import knobs
from tilewright.codegen import native
from tilewright.codegen.cpuid import CPUID, XGETBV, identity
from tilewright.codegen.elf import (
    X86_64,
    Image,
    Unplaceable,
    defined_symbols,
    executable,
    objects,
    undefined_symbols,
)
from tilewright.codegen.jit import compile_object, link
from tilewright.codegen.loading import LoadedObject
from tilewright.codegen.target import for_cpu, x86
from tilewright.uarch.arm import AARCH64

TARGET = x86("x86-64")
TEXT = """
@calls = internal global i64 0
@start = internal global i64 {start}
@table = internal constant [2 x ptr] [ptr @double, ptr @square]
@shared = global i64 7
declare i64 @outside(i64)
declare i64 @elsewhere(i64)
define internal i64 @double(i64 %x) {{
  %y = shl i64 %x, 1
  ret i64 %y
}}
define internal i64 @square(i64 %x) {{
  %y = mul i64 %x, %x
  ret i64 %y
}}
define ptr @address() {{
  ret ptr @elsewhere
}}
define double @scaled(double %x) {{
  %y = fmul double %x, {factor}
  ret double %y
}}
define i64 @k(i64 %n, i64 %x) {{
  %calls = load i64, ptr @calls
  %more = add i64 %calls, 1
  store i64 %more, ptr @calls
  %start = load i64, ptr @start
  %shared = load i64, ptr @shared
  %at = getelementptr [2 x ptr], ptr @table, i64 0, i64 %n
  %f = load ptr, ptr %at
  %a = call i64 %f(i64 %x)
  %b = call i64 @outside(i64 %a)
  %c = add i64 %b, %start
  %d = add i64 %c, %shared
  %e = add i64 %d, %more
  ret i64 %e
}}
"""
WORD = ctypes.c_int64
OUTSIDE = ctypes.CFUNCTYPE(WORD, WORD)(lambda x: 3 * x)


def by_image(data: bytes, symbols: dict[str, int]) -> tuple[object, dict[str, int]]:
    image = Image(data, symbols)
    return image, image.addresses


def by_llvm(data: bytes, symbols: dict[str, int]) -> tuple[object, dict[str, int]]:
    return link(data, TARGET, symbols)


@pytest.mark.parametrize("way", [by_image, by_llvm])
def test_code_reaches_its_data_and_what_is_far_away(
    way: Callable[..., tuple[object, dict[str, int]]], rng: np.random.Generator
) -> None:
    start, factor, x = (int(n) for n in rng.integers(2, 1 << 20, 3))
    data = compile_object(TEXT.format(start=start, factor=float(factor)), TARGET)
    far = ctypes.cast(OUTSIDE, ctypes.c_void_p).value or 0
    kept, addresses = way(data, {"outside": far, "elsewhere": 1 << 46})
    assert {"k", "address", "scaled", "shared"} <= addresses.keys()
    k: Any = ctypes.CFUNCTYPE(WORD, WORD, WORD)(addresses["k"])
    for call, (n, wanted) in enumerate([(0, 2 * x), (1, x * x), (0, 2 * x)], start=1):
        assert k(n, x) == 3 * wanted + start + 7 + call
    assert ctypes.CFUNCTYPE(ctypes.c_void_p)(addresses["address"])() == 1 << 46
    number = ctypes.c_double
    assert ctypes.CFUNCTYPE(number, number)(addresses["scaled"])(0.5) == factor / 2
    WORD.from_address(addresses["shared"]).value = 0
    assert k(0, 1) == 3 * 2 + start + 4
    del kept


CALLED = """
@count = global i64 {start}
define i64 @called(i64 %x) {{
  %n = load i64, ptr @count
  %y = add i64 %n, %x
  store i64 %y, ptr @count
  ret i64 %y
}}
"""
CALLING = """
@count = external global i64
declare i64 @called(i64)
define i64 @f(i64 %x) {
  %y = call i64 @called(i64 %x)
  %z = load i64, ptr @count
  %s = add i64 %y, %z
  ret i64 %s
}
"""


@pytest.mark.parametrize("machine", [X86_64, X86_64 + 1], ids=["image", "LLVM"])
def test_objects_that_follow_one_another_reach_what_others_define(
    machine: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.codegen.elf.X86_64", machine)
    start, x = (int(n) for n in rng.integers(2, 1 << 20, 2))
    parts = [compile_object(t, TARGET) for t in (CALLED.format(start=start), CALLING)]
    data = b"".join(parts)
    assert [*objects(data)] == parts
    assert defined_symbols(data) == ["called", "count", "f"] and not undefined_symbols(parts[0])
    assert undefined_symbols(parts[1]) == ["called", "count"] and not undefined_symbols(data)
    loaded = LoadedObject(data, TARGET)
    f = ctypes.CFUNCTYPE(WORD, WORD)(loaded.address("f"))
    assert f(x) == 2 * (start + x) and f(1) == 2 * (start + x + 1)
    assert WORD.from_address(loaded.address("count")).value == start + x + 1


def test_what_it_cannot_place_is_left_to_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    arm = for_cpu(AARCH64, next(iter(AARCH64.levels)))
    text = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n"
    with pytest.raises(Unplaceable):
        Image(compile_object(f'target triple = "{arm.triple}"\n{text}', arm), {})
    with pytest.raises(Unplaceable):
        Image(compile_object("@x = thread_local global i64 1\n" + text, TARGET), {})
    with pytest.raises(Unplaceable):  # a symbol without an address
        Image(compile_object("@x = external global i64\n@y = global ptr @x\n" + text, TARGET), {})
    monkeypatch.setattr("tilewright.codegen.elf.X86_64", X86_64 + 1)
    loaded = LoadedObject(compile_object(text, TARGET), TARGET)
    assert ctypes.CFUNCTYPE(WORD, WORD)(loaded.address("f"))(41) == 42


def test_the_names_of_the_processor_lie_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """They are LLVM's with and without one, and those of another processor are not used."""
    told = native._told.__wrapped__  # pyright: ignore
    with knobs.override(cache=False):
        wanted = told()
    with knobs.override(cache=True, cache_dir=tmp_path):
        assert told() == wanted
        monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "another")
        assert told() == wanted
        monkeypatch.setattr(native, "identity", lambda *_: "a different processor")
        assert told() == ["another", wanted[1]]


def test_a_processor_says_the_same_at_all_times() -> None:
    assert identity("x86_64") == identity("x86_64")


@pytest.mark.parametrize(
    ("code", "instruction", "arguments"),
    [(CPUID, "cpuid", (1, 0)), (CPUID, "cpuid", (7, 1)), (XGETBV, "xgetbv", (0, 0))],
)
def test_its_instructions_give_what_llvm_makes_of_their_names(
    code: bytes, instruction: str, arguments: tuple[int, ...]
) -> None:
    names = [f"i32 %a{i}" for i in range(len(arguments))]
    reads = instruction == "cpuid"
    inputs = names if reads else ["i32 0"]
    results = ["={ax}", "={bx}", "={cx}", "={dx}"] if reads else ["={ax}", "={dx}"]
    operands = ["{ax}", "{cx}"] if reads else ["{cx}"]
    struct = f"{{ {', '.join(['i32'] * len(results))} }}"
    text = f"""
define void @k({"".join(f"{n}, " for n in names)}ptr %to) {{
  %words = call {struct} asm "{instruction}", "{",".join(results + operands)}"({", ".join(inputs)})
  store {struct} %words, ptr %to
  ret void
}}
"""
    loaded = LoadedObject(compile_object(text, TARGET), TARGET)
    memory, address = executable(code)
    found: list[list[int]] = []
    for at in (loaded.address("k"), address):
        to = (ctypes.c_uint32 * 4)(*[7] * 4)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_uint32] * len(arguments), ctypes.c_void_p)
        kind(at)(*arguments, ctypes.addressof(to))
        found.append(to[:])
    del memory
    for words in found:
        if arguments == (1, 0):
            words[1] = 0  # the number of the core
    assert found[0] == found[1]
