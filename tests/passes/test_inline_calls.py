"""Calls of functions in kernels' texts: the same results as in the executor, which calls them; what is no call."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.texts import parse_module
from tilewright import reference
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import print_module
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.kernel import kernel_of
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text

TILE = "vector<16x64xf32>"
TEXT = f"""
gpu.module @m {{
  func.func private @twice(%x: {TILE}) -> ({TILE}, index) {{
    %y = arith.addf %x, %x : {TILE}
    func.return %y, %c1 : {TILE}, index
  }}
  func.func private @four(%x: {TILE}) -> {TILE} {{
    %y, %n = func.call @twice(%x) : ({TILE}) -> ({TILE}, index)
    %z, %o = func.call @twice(%y) : ({TILE}) -> ({TILE}, index)
    func.return %z : {TILE}
  }}
  func.func private @four_there(%x: {TILE}) -> {TILE} {{
    %c = arith.constant dense<4.0> : {TILE}
    %z = arith.mulf %x, %c : {TILE}
    func.return %z : {TILE}
  }}
  gpu.func @k(%a: memref<64x64xf32>, %b: memref<64x64xf32>) kernel attributes {{tilewright.level = "workgroup"}} {{
    %i = gpu.block_id x
    %m = arith.muli %i, %c16 : index
    %t = xetile.init_tile %a[%m, %c0] : memref<64x64xf32> -> !xetile.tile<16x64xf32>
    %v = xetile.load_tile %t : !xetile.tile<16x64xf32> -> {TILE}
    %w = func.call @four(%v) : ({TILE}) -> {TILE}
    %y, %step = func.call @twice(%w) : ({TILE}) -> ({TILE}, index)
    %n = arith.subi %step, %step : index
    %o = xetile.init_tile %b[%m, %n] : memref<64x64xf32> -> !xetile.tile<16x64xf32>
    xetile.store_tile %y, %o : {TILE}, !xetile.tile<16x64xf32>
    gpu.return
  }}
}}
"""
CHOICE = f"func.func private @four(%x: {TILE}) -> {TILE}"


def implemented(names):
    return TEXT.replace(CHOICE, f"{CHOICE} attributes {{tilewright.implementations = {{{names}}}}}")


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_calls_in_a_kernel_do_what_they_do_in_the_executor(target):
    a, b = fresh_rng().standard_normal((64, 64), np.float32), np.zeros((64, 64), np.float32)
    built = build_text(parse_module(TEXT), CompileOptions(target=target))
    built.launch((4, 1, 1), [describe(x, "x") for x in (a, b)])
    np.testing.assert_array_equal(b, 8 * a)


@pytest.mark.parametrize("target", ["sm_90a", "xe-pvc"])
def test_gpus_take_kernels_with_calls(target):
    assert build_text(parse_module(TEXT), CompileOptions(target=target)).asm["llvm"]


def test_what_is_inlined_means_the_same_and_is_gone():
    module = parse_module(TEXT)
    a = fresh_rng().standard_normal((64, 64), np.float32)
    assert inline_calls(kernel_of(module))
    text = print_module(module)
    assert "func.call" not in text and "@twice" not in text and "@four(" not in text
    b = np.zeros_like(a)
    reference.run(parse_module(text), (4, 1, 1), [a, b])
    np.testing.assert_array_equal(b, 8 * a)
    assert not inline_calls(kernel_of(module))


@pytest.mark.parametrize(
    ("names", "runs", "taken"),
    [
        ("cuda = @four_there", {"cuda"}, True),
        ("cuda = @four_there", {"xe"}, False),
        ('cuda = @four, "sm_90a" = @four_there', {"cuda", "sm_90a"}, True),
        ('cpu = @four, "cpu-avx512f" = @four_there', {"cpu", "cpu-avx512f"}, True),
        ('cpu = @four_there, "cpu-avx512f" = @four', {"cpu"}, True),
    ],
)
def test_the_most_special_implementation_stands_for_the_function(names, runs, taken):
    module = parse_module(implemented(names))
    inline_calls(kernel_of(module), runs.__contains__)
    assert ("arith.mulf" in print_module(module)) == taken


AGAIN = f"%z, %o = func.call @twice(%y) : ({TILE}) -> ({TILE}, index)"
RECURSIVE = TEXT.replace(AGAIN, f"%z = func.call @four(%y) : ({TILE}) -> {TILE}")
CALLING = f"""func.func private @four_there(%x: {TILE}) -> {TILE} {{
    %z = func.call @four(%x) : ({TILE}) -> {TILE}
    func.return %z : {TILE}
  }}
  func.func private @other"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (RECURSIVE, "calls more than 16 deep"),
        (implemented("cpu = @none"), "the implementation @none of @four is not defined"),
        (implemented("cpu = @twice"), "the implementation of four is"),
        (implemented("cpu = 3"), "tilewright.implementations is"),
        (
            implemented("cpu = @four_there").replace("func.func private @four_there", CALLING),
            "the implementation of four holds func.call",
        ),
    ],
)
def test_what_cannot_be_inlined_is_refused_at_its_place(text, message):
    with pytest.raises(TilewrightError, match=message) as found:
        build_text(parse_module(text, "calls.mlir"), CompileOptions(target="cpu"))
    assert found.value.location.file == "calls.mlir" and found.value.location.line > 1
