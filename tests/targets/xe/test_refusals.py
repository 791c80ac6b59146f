"""What the target refuses, and what it says: the op, the number, the limit."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tests.texts import parse_module
from tilewright.diagnostics import CompileError, ToolMissing, UnsupportedError
from tilewright.observer import ignore
from tilewright.passes import budget
from tilewright.passes.kernel import kernel_of
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.entry import enter
from tilewright.targets.xe import offline, pipeline
from tilewright.targets.xe.registers import TooManyRegisters, choose_mode, pressure, refuse_whole
from tilewright.uarch import machine
from tilewright.uarch.xe import XeMachine, xe_machine

CASES = {
    "registers": (
        kernels.gemm(rows=64),
        "xe-pvc",
        r"a subgroup would need \d+ registers here \(256 of vector<8xf32>",
    ),
    "registers of 64 subgroups": (
        kernels.gemm(sg=(16, 4)),
        "xe-pvc",
        r"has 128 with 64 subgroups in a workgroup: it would spill",
    ),
    "subgroups": (
        kernels.gemm(sg=(32, 4), rows=8),
        "xe-pvc",
        "workgroup of 128 subgroups is not possible on xe-pvc",
    ),
    "lanes": (
        kernels.gemm(lanes=64),
        "xe-pvc",
        "subgroups of 64 lanes are not possible on xe-pvc: they have 16 or 32",
    ),
    "prints": (
        kernels.head("%a: memref<64xf16>") + "vector.print %true : i1" + kernels.FOOT,
        "xe-pvc",
        r"vector\.print: programs on Intel GPUs do not print",
    ),
    "column major": (
        kernels.head("%a: memref<64x64xf16, strided<[1, 64]>>")
        + """
    %t = xegpu.create_nd_tdesc %a : memref<64x64xf16, strided<[1, 64]>> -> !xegpu.tensor_desc<8x16xf16>
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf16> -> vector<8xf16>
    xegpu.store_nd %v, %t[0, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>"""
        + kernels.FOOT,
        "xe-pvc",
        "rows of the base matrix are not contiguous: its innermost stride is 64",
    ),
    "barrier of the workgroup": (
        kernels.head("%a: memref<64xf16>")
        + """
    %id = arith.constant 0 : i8
    %n = arith.constant 8 : i8
    %b = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier"""
        + kernels.FOOT,
        "xe-pvc",
        "barrier 0 is the workgroup's own",
    ),
    "named barrier": (
        kernels.head("%a: memref<64xf16>, %id: i8", lanes=8)
        + """
    %n = arith.constant 8 : i8
    %b = xegpu.init_nbarrier %id, %n : i8, i8 -> !xegpu.nbarrier"""
        + kernels.FOOT,
        "xe-dg2",
        "xe-dg2 has no named barrier 1: it is at most 0",
    ),
    "type": (
        kernels.product("tf32", "tf32", "f32", 8, 8, lanes=8).replace("8xtf32", "8xtf32"),
        "xe-dg2",
        "xe-dg2 has no matrix instruction for tf32 x tf32 -> f32",
    ),
    "rows of a product": (
        kernels.product("f16", "f16", "f32", 16, 16),
        "xe-pvc",
        "are no f16 x f16 product of xe-pvc: M is 1, 2, 4, 8, K 16",
    ),
    "shared memory": (
        kernels.head("%a: memref<64xf16>")
        + """
    %slm = memref.alloca() : memref<131080xi8, 3>"""
        + kernels.FOOT,
        "xe-pvc",
        "shared local memory of 131136 bytes is not possible on xe-pvc",
    ),
}


@pytest.mark.parametrize("off, last", [((), "retile"), (("retile",), "own-memory")])
def test_shared_memory_of_the_program_is_refused_before_it_is_lowered(
    off: tuple[str, ...], last: str
) -> None:
    """Elements of the arrays are read alone, so that no pass can have a part of them."""
    text = (Path(__file__).parents[3] / "examples/rfc/xetile_2_4_cooperative_slm.mlir").read_text()
    made = "%slm_b = memref.alloc() : memref<128x256xf16, 3>"
    loads = f"""{made}
      %a_0 = memref.load %slm_a[%c0, %c0] : memref<256x128xf16, 3>
      %b_0 = memref.load %slm_b[%c0, %c0] : memref<128x256xf16, 3>"""
    text = text.replace(made, loads)
    done: list[str] = []
    with pytest.raises(UnsupportedError, match=r"131072 bytes .* at most 65536 bytes") as caught:
        module = parse_module(text, "kernel.mlir")
        enter(module, "xe-dg2")
        pipeline.run(module, xe_machine("dg2"), ignore, lambda n, _: done.append(n), frozenset(off))
    assert "the program allocates them itself (65536 + 65536)" in str(caught.value.hint)
    assert done[-1] == last


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str) -> None:
    text, target, message = CASES[name]
    with pytest.raises(UnsupportedError, match=message) as caught:
        build(text, target, {"xe-spill"})
    assert caught.value.location is not None or name in ("subgroups", "shared memory")


def test_one_kernel() -> None:
    module = parse_module("gpu.module @m {\n}", "empty.mlir")
    with pytest.raises(CompileError, match="this one has none"):
        get_target("xe").build(module, CompileOptions(target="xe"))


def test_machines() -> None:
    assert get_target("xe").fingerprint(CompileOptions(target="xe-bmg")).startswith("xe-bmg|")
    with pytest.raises(UnsupportedError, match="there is no machine table 'xe-adl'"):
        get_target("xe").fingerprint(CompileOptions(target="xe-adl"))


def test_missing_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline.shutil, "which", lambda tool: None)
    found = build(kernels.product("f16", "f16", "f32", 8, 16))
    with pytest.raises(ToolMissing, match="ocloc and iga64 are not installed") as caught:
        found.asm["asm"]
    assert caught.value.hint == offline.HINT


def test_reloaded_from_disk() -> None:
    """What the cache keeps is enough to make everything again."""
    target, options = get_target("xe"), CompileOptions(target="xe-pvc")
    first = build(kernels.product("f16", "f16", "f32", 8, 16))
    again = target.load(first.artifacts(), options)  # pyright: ignore
    assert again.asm["spirv"] == first.asm["spirv"]  # pyright: ignore
    assert again.ir == first.ir


WIDE = """
gpu.module @m { gpu.func @k(%a: memref<128x512xf32>, %c: memref<128x256xf32>) kernel
    attributes {tilewright.level = "subgroup"} {
  %z = arith.constant dense<0.0> : vector<128x256xf32>
  %t = xegpu.create_nd_tdesc %a : memref<128x512xf32> -> !xegpu.tensor_desc<128x256xf32>
  %u = xegpu.create_nd_tdesc %c : memref<128x256xf32> -> !xegpu.tensor_desc<128x256xf32>
  %r = scf.for %k = %c0 to %c512 step %c256 iter_args(%sum = %z) -> (vector<128x256xf32>) {
    %x = xegpu.load_nd %t[0, %k] : !xegpu.tensor_desc<128x256xf32> -> vector<128x256xf32>
    %s = arith.addf %x, %sum : vector<128x256xf32>
    scf.yield %s : vector<128x256xf32>
  }
  xegpu.store_nd %r, %u[0, 0] : vector<128x256xf32>, !xegpu.tensor_desc<128x256xf32>
  gpu.return } }
"""


@pytest.mark.parametrize(
    ("shape", "registers"), [("128x256", 2048), ("32x128", 256), ("31x128", 248)]
)
def test_what_a_loop_carries_is_refused_before_it_is_cut(shape: str, registers: int) -> None:
    """Also where it would fit alone: addresses and moves need 16 registers of the 256 besides."""
    with pytest.raises(
        UnsupportedError, match=rf"carry {registers} registers .* in one vector<{shape}xf32>"
    ) as caught:
        build(WIDE.replace("<128x256xf32>", f"<{shape}xf32>"), disable={"xe-spill"})
    assert caught.value.location is not None and caught.value.location.line == 7


def rows(count: int, length: int, read: str) -> str:
    """Rows are summed up; then `%x`, what was summed up, or `%b`, the sums, less the sums."""
    return f"""
!tile = vector<{count}x{length}xf32>
!desc = !xegpu.tensor_desc<{count}x{length}xf32>
gpu.module @m {{ gpu.func @k(%a: memref<8x8192xf32>, %c: memref<8x8192xf32>) kernel
    attributes {{tilewright.level = "subgroup"}} {{
  %t = xegpu.create_nd_tdesc %a : memref<8x8192xf32> -> !desc
  %u = xegpu.create_nd_tdesc %c : memref<8x8192xf32> -> !desc
  %z = arith.constant dense<0.0> : vector<{count}xf32>
  %x = xegpu.load_nd %t[0, 0] : !desc -> !tile
  %r = vector.multi_reduction <add>, %x, %z [1] : !tile to vector<{count}xf32>
  %s = vector.shape_cast %r : vector<{count}xf32> to vector<{count}x1xf32>
  %b = vector.broadcast %s : vector<{count}x1xf32> to !tile
  %y = arith.subf {read}, %b : !tile
  xegpu.store_nd %y, %u[0, 0] : !tile, !desc
  gpu.return }} }}
"""


def test_a_row_that_is_read_again_is_refused_before_it_is_cut() -> None:
    with pytest.raises(
        UnsupportedError, match=r"hold 512 registers of values that are reduced here"
    ) as caught:
        build(rows(1, 8192, "%x"), disable={"xe-spill"})
    assert caught.value.location is not None and caught.value.location.line == 10
    assert "x (vector<1x8192xf32>, line 9) 512: 2048 bytes of a lane" in str(caught.value.hint)


def copy(element: str, says: str = "", out: str = "%c") -> str:
    """1024 x 128 of f32, stored as another type."""
    made = {"f32": "arith.negf %x :", "f16": "arith.truncf %x : vector<1024x128xf32> to"}[element]
    arrays = f"%a: memref<1024x128xf32> {says}, %c: memref<1024x128x{element}> {says}"
    return f"""
gpu.module @m {{ gpu.func @k({arrays}) kernel attributes {{tilewright.level = "subgroup"}} {{
  %t = xegpu.create_nd_tdesc %a : memref<1024x128xf32> -> !xegpu.tensor_desc<1024x128xf32>
  %u = xegpu.create_nd_tdesc {out} : memref<1024x128x{element}> -> !xegpu.tensor_desc<1024x128x{element}>
  %x = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<1024x128xf32> -> vector<1024x128xf32>
  %y = {made} vector<1024x128x{element}>
  xegpu.store_nd %y, %u[0, 0] : vector<1024x128x{element}>, !xegpu.tensor_desc<1024x128x{element}>
  gpu.return }} }}
"""


def test_a_copy_that_scratch_memory_does_not_hold_is_refused_before_it_is_cut() -> None:
    """Where parts of what is loaded could be stored first, or the narrower result fits, nothing is proven."""
    xe, done = machine("xe-pvc"), list[str]()
    assert isinstance(xe, XeMachine)
    with pytest.raises(UnsupportedError, match="hold 8192 registers of what is loaded") as caught:
        module = parse_module(copy("f32"), "kernel.mlir")
        pipeline.run(module, xe, observe=lambda name, _: done.append(name))
    assert "is at most 262144 bytes" in str(caught.value.rule)
    assert done and "xegpu-blocking" not in done
    for text in (copy("f32", "{llvm.noalias}"), copy("f32", out="%a"), copy("f16")):
        refuse_whole(kernel_of(parse_module(text, "kernel.mlir")), xe)


def rearranged(made: str, most: int) -> str:
    """Two loaded blocks, what is made of them, and the first rows of that stored where they may have been loaded."""
    return f"""
gpu.module @m {{ gpu.func @k(%a: memref<512x128xf32>, %b: memref<512x128xf32>, %o: memref<{most}x128xf32>) kernel {{
  %s = xegpu.create_nd_tdesc %a : memref<512x128xf32> -> !xegpu.tensor_desc<512x128xf32>
  %t = xegpu.create_nd_tdesc %b : memref<512x128xf32> -> !xegpu.tensor_desc<512x128xf32>
  %u = xegpu.create_nd_tdesc %o : memref<{most}x128xf32> -> !xegpu.tensor_desc<{most}x128xf32>
  %x = xegpu.load_nd %s[0, 0] : !xegpu.tensor_desc<512x128xf32> -> vector<512x128xf32>
  %y = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<512x128xf32> -> vector<512x128xf32>
  {made}
  xegpu.store_nd %z, %u[0, 0] : vector<{most}x128xf32>, !xegpu.tensor_desc<{most}x128xf32>
  gpu.return }} }}
"""


@pytest.mark.parametrize(
    ("made", "most", "held"),
    [
        ("%w = vector.interleave %x, %y : vector<512x128xf32> -> vector<512x256xf32>\n"
         "  %z = vector.shape_cast %w : vector<512x256xf32> to vector<1024x128xf32>", 1024, 8192),
        ("%n = arith.negf %x : vector<512x128xf32>\n"
         f"  %z = vector.shuffle %x, %n {list(range(1023, -1, -1))} : vector<512x128xf32>, vector<512x128xf32>",
         1024, 4096),  # both halves are made of one block
        (f"%z = vector.shuffle %x, %y {[0] * 512 + list(range(512, 1024))} : vector<512x128xf32>, vector<512x128xf32>",
         1024, None),
        ("%z = vector.extract_strided_slice %x {offsets = [0], sizes = [8], strides = [1]} "
         ": vector<512x128xf32> to vector<8x128xf32>", 8, None),
        ("%w = arith.addf %x, %y : vector<512x128xf32>\n  %z = math.exp %w : vector<512x128xf32>",
         512, 4096 + 512),  # one in eight is lost where it is held
    ],
    ids=["two", "one", "repeated", "few", "sums"],
)  # fmt: skip
def test_what_is_rearranged_is_loaded_whole_where_each_element_is_stored(
    made: str, most: int, held: int | None
) -> None:
    xe = machine("xe-pvc")
    assert isinstance(xe, XeMachine)
    small = replace(xe.limits["scratch"], most=64)
    kernel = kernel_of(parse_module(rearranged(made, most), "kernel.mlir"))
    with (
        nullcontext()
        if held is None
        else pytest.raises(UnsupportedError, match=f"hold {held} registers of what is loaded")
    ):
        refuse_whole(kernel, replace(xe, limits={**xe.limits, "scratch": small}))


def test_what_registers_do_not_hold_spills_and_is_told() -> None:
    """64 registers of rows more than a thread has; a compiler that is told of them spills no less."""
    built = build(rows(1, 4096 + 1024, "%x"))
    (said,) = (each for each in built.remarks if each.startswith("registers: "))
    found = re.search(r"about (\d+) bytes per thread spill to memory", said)
    assert found is not None and int(found[1]) >= 64 * 64


def test_scratch_memory_is_not_endless() -> None:
    xe = machine("xe-pvc")
    assert isinstance(xe, XeMachine)
    small = replace(xe.limits["scratch"], most=64)
    small_xe = replace(xe, limits={**xe.limits, "scratch": small})
    kernel = kernel_of(parse_module(kernels.gemm(rows=64), "kernel.mlir"))
    found = pressure(kernel, xe)
    assert choose_mode(kernel, xe, found, spills=True) == 256
    with pytest.raises(TooManyRegisters, match="it would spill") as caught:
        choose_mode(kernel, small_xe, found, spills=True)
    assert "is not possible on xe-pvc: it is at most 64" in str(caught.value.rule)


@pytest.mark.parametrize("text", [rows(1, 8192, "%b"), rows(8, 1024, "%x")])
def test_a_row_that_need_not_be_held(text: str) -> None:
    """What is not read again, and rows of which one after the other fits, prove nothing."""
    xe = machine("xe-pvc")
    assert isinstance(xe, XeMachine)
    refuse_whole(kernel_of(parse_module(text, "kernel.mlir")), xe)


def test_attempts_end_where_subgroups_get_more_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise TooManyRegisters("too many")

    monkeypatch.setattr(pipeline, "choose_mode", refused)
    monkeypatch.setattr(pipeline, "GROWS", 0)
    with pytest.raises(TooManyRegisters, match="too many") as caught:
        unrolled.compile(tw.spec((16, 512), tw.f32), tw.spec((16, 64), tw.f32), target="xe-pvc")
    assert "up to 4 subgroups were tried for this one" in str(caught.value.hint)


def test_attempts_end_where_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was lowered already compiles, and spills."""
    specs = tw.spec((16, 512), tw.f32), tw.spec((16, 64), tw.f32)
    text = unrolled.compile(*specs, target="xe-dg2").ir.source
    counted: set[object] = set()
    real = pipeline.pressure_of

    def refused(*given: object) -> int:
        if given[-1] is True:
            return 256
        raise TooManyRegisters("too many")

    monkeypatch.setattr(pipeline, "choose_mode", refused)
    monkeypatch.setattr(pipeline, "pressure_of", lambda *a: counted.add(a[0]) or real(*a))
    for seconds, several in ((60.0, True), (0.0, False)):
        counted.clear()
        monkeypatch.setattr(pipeline, "ATTEMPTS", seconds)
        assert build(text, "xe-dg2").spirv()
        assert (len(counted) > 1) == several


@tw.kernel
def unrolled(X, Y):  # pyright: ignore
    total = tw.zeros((16, 64), tw.f32)
    for n in tw.static_range(8):
        total = total + tw.exp(tw.load_tile(tw.init_tile(X, [0, 64 * n], (16, 64))))
    tw.store_tile(total, tw.init_tile(Y, [0, 0], (16, 64)))


@pytest.mark.parametrize(
    "slow", ["xegpu-propagate-layout", "xegpu-blocking", "xe-fold", "xe-register-pressure"]
)
def test_a_compilation_has_a_budget(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time runs out where a pass asks for it, in its loops; the refusal names the pass and what makes the program
    large."""
    clock, polls = 0.0, 0

    def asked(self: budget.TimeBudget) -> None:
        nonlocal clock, polls
        polls += slow in self.running
        if polls > 1:
            clock = 1e3
            raise budget.OutOfTime

    monkeypatch.setattr(budget, "thread_time", lambda: clock)
    monkeypatch.setattr(budget.TimeBudget, "check", asked)
    with pytest.raises(
        UnsupportedError, match=f"stopped after 20 s, 1000 of them in {slow}: "
    ) as caught:
        unrolled.compile(tw.spec((16, 512), tw.f32), tw.spec((16, 64), tw.f32), target="xe-pvc")
    assert (
        caught.value.location is not None
        and "total = total + " in caught.value.location.source_line
    )
    assert "8 times in the kernel" in str(caught.value.hint)
    assert "this one is 16x64 of f32" in str(caught.value.hint)


@pytest.mark.parametrize("target", ["emu", "xe-pvc"])
def test_an_array_of_index_has_no_descriptor(target: str):
    """Where its tiles become XeGPU's; NVIDIA GPUs, and CPUs whose subgroups are workgroups, read it as it is."""
    text = """
gpu.module @m {
  gpu.func @k(%a: memref<8x16xindex>) kernel {
    %t = xetile.init_tile %a[0, 0] : memref<8x16xindex> -> !xetile.tile<8x16xindex>
    %v = xetile.load_tile %t : !xetile.tile<8x16xindex> -> vector<8x16xindex>
    xetile.store_tile %v, %t : vector<8x16xindex>, !xetile.tile<8x16xindex>
    gpu.return
  }
}
"""
    options = CompileOptions(target=target)
    with pytest.raises(UnsupportedError, match="an array of index has no descriptor") as caught:
        get_target(target).build(parse_module(text, "k.mlir"), options)
    assert caught.value.location is not None and caught.value.location.line == 4
