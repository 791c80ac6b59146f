"""Passes are data: what is in a target's list can be done alone, by `opt`, and left out by name where it says so."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import reference, uarch
from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.layout import LayoutError
from tilewright.passes.pipeline import CLEANUP, Pass, Pipeline
from tilewright.passes.workgroup_form import OTHER_FORMS
from tilewright.targets.base import CompileOptions, get_target, pipelines
from tilewright.targets.cpu.pipeline import PIPELINE as CPU
from tilewright.targets.cuda import pipeline as cuda
from tilewright.targets.emu.pipeline import PIPELINE as EMU
from tilewright.targets.xe.pipeline import PIPELINE as XE
from tilewright.tools.check_results import difference
from tilewright.tools.pipelines import available_passes, make_pipeline

ALL = pipelines()


@tw.kernel
def gemm(A, S, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 128, BK: tw.constexpr = 64):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    scale = tw.load_tile(tw.init_tile(S, [m, 0], (BM, 1)))
    row = tw.max(acc * scale, axis=1)
    rest = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n < C.shape[1] - 3
    tw.store_tile(tw.where(rest, acc / row, 0.5).to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def text_of(*shapes: tuple[int, ...], **tiles: int) -> str:
    specs = [tw.spec(s, tw.f16 if n != 1 else tw.f32) for n, s in enumerate(shapes)]
    return gemm.compile(*specs, target="reference", **tiles).ir["xetile"]


TEXT = text_of((128, 128), (128, 1), (128, 128), (128, 128), BN=64)


def test_a_pass_without_docstrings_tells_its_name():
    """python -OO keeps none."""
    assert Pass[Any]("carry-offsets", lambda kernel: None).story == "carry offsets"


def test_lists_are_whole():
    """A name is one pass, whose file does one thing, in all lists; every pass tells a story."""
    found: dict[str, str] = {}
    for pipeline in ALL:
        for each in (*pipeline.passes, *pipeline.more):
            assert each.story and each.name == each.name.lower(), each
            kind = "whole" if each.whole else "kernel"
            assert found.setdefault(each.name, kind) == kind, each.name
    assert {p.target for p in ALL} == {"cpu", "cuda", "emu", "xe"}
    known = available_passes()
    assert set(found) <= set(known)


def one_by_one(names: list[str], text: str, chip: str = "") -> str:
    """The text after passes that were each done alone, on text that was read anew."""
    for name in names:
        module = parse_module(text, name)
        spec = f"{name}{{target={chip}}}" if chip and "target" in options_of(name) else name
        (each,) = make_pipeline(spec).passes
        each.apply(None, module)  # pyright: ignore
        verify_module(module)
        text = print_module(module)
    return text


def options_of(name: str) -> list[str]:
    return list(vars(available_passes()[name]()).get("__dataclass_fields__", {}))


def canonical(text: str) -> str:
    return print_module(parse_module(text))


def test_cpu_passes_alone_make_the_code_of_the_pipeline():
    # Parts of functions have arguments of their own, which are named as the text that is read names others.
    names = [p.name for p in CPU.passes if p not in OTHER_FORMS and p.name != "split-functions"]
    whole: dict[str, str] = {}
    get_target("cpu").build(
        parse_module(TEXT),
        CompileOptions("cpu", "avx2"),
        lambda name, module: whole.update({name: print_module(module)}),
    )
    found = one_by_one(names, TEXT, "cpu-avx2")
    assert placeless(found) == placeless(canonical(whole["cpu-to-mach"]))
    assert "tw_workgroup" in found


def placeless(text: str) -> str:
    """Without the places in the words of assertions: a pass alone sees those of the text before it."""
    return re.sub(r"by zero\\0A[^\"]*\"", 'by zero"', text)


@pytest.mark.parametrize("chip", ["sm_90a", "sm_80"])
def test_cuda_passes_alone_make_the_code_of_the_pipeline(chip: str):
    begin = [p for p in cuda.COMMON if p not in OTHER_FORMS]
    way = (*cuda.PLACED, *cuda.ASYNCHRONOUS) if chip == "sm_90a" else cuda.SYNCHRONOUS[2:]
    names = [p.name for p in (*begin, *way, cuda.TO_MACH)]
    # What this pipeline has no use for: shares, which a launch asks for.
    names = [n for n in names if n != "split-k"]
    made: list[str] = []
    lowered = cuda.run_pipeline(
        parse_module(TEXT),
        uarch.machine(chip),
        CompileOptions(chip),
        [],
        observe=lambda name, module: made.append(name),
    )
    found = one_by_one(names, TEXT, chip)
    assert set(made) <= set(names) and ("warp-specialization" in made) == (chip == "sm_90a")
    assert found == canonical(print_module(lowered.module))


@pytest.mark.parametrize("pipeline", ALL, ids=lambda p: p.target)
def test_every_pass_takes_any_kernel_alone(pipeline: Pipeline[Any]):
    """A kernel of another level is left as it is, or refused with words; no pass fails on it."""
    lane = """gpu.module @m { gpu.func @f(%a: memref<16xf32>) kernel attributes {tilewright.level = "lane"} {
      %t = gpu.thread_id x  %v = memref.load %a[%t] : memref<16xf32>
      memref.store %v, %a[%t] : memref<16xf32>  gpu.return } }"""
    tile = """func.func @f(%a: memref<64x64xf32>) {
      %t = xegpu.create_nd_tdesc %a : memref<64x64xf32> -> !xegpu.tensor_desc<16x16xf32>
      %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<16x16xf32> -> vector<16x16xf32>
      xegpu.store_nd %v, %t[0, 16] : vector<16x16xf32>, !xegpu.tensor_desc<16x16xf32>
      return }"""
    plain = "func.func @f(%a: i32) -> i32 { %b = arith.addi %a, %a : i32  return %b : i32 }"
    for text in (lane, tile, plain, TEXT):
        for each in (*pipeline.passes, *pipeline.more):
            module = parse_module(text)
            try:
                pipeline.alone(each, module)
            except (TilewrightError, LayoutError) as error:
                assert isinstance(error, TilewrightError), (each.name, error)
                continue
            verify_module(module)


def test_cleanup_takes_functions():
    module = parse_module("""func.func @f(%a: i32) -> i32 {
      %b = arith.addi %a, %a : i32  %c = arith.addi %a, %a : i32
      %d = arith.muli %b, %c : i32  return %d : i32 }""")
    XE.alone(CLEANUP, module)
    assert print_module(module).count("arith.addi") == 1


@pytest.mark.parametrize("target", ["reference", "cpu", "emu", "sm_90a", "sm_80", "xe-pvc"])
def test_an_unknown_name_is_refused_by_every_target(target: str):
    options = CompileOptions(target, disable=frozenset({"nonsense"}))
    with pytest.raises(UnsupportedError, match="has no pass 'nonsense' to disable"):
        get_target(target).build(parse_module(TEXT), options)


@pytest.mark.parametrize("name", [*XE.switches, "all"])
def test_results_are_right_without_a_pass_of_xe(name: str):
    off = frozenset(XE.switches if name == "all" else {name})
    rng = fresh_rng()
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((20, 48), (48, 70)))
    s, c = rng.random((20, 1), np.float32) + 0.5, np.full((20, 70), np.nan, np.float16)
    text = text_of(*(x.shape for x in (a, s, b, c)), BM=16, BN=64, BK=32)
    ran: list[str] = []
    last: list[Any] = []

    def observe(done: str, module: Any) -> None:
        ran.append(done)
        if done == "xe-register-mode" or done in ("xe-guard-loops", "xe-version-stores"):
            last[:] = [module.clone()]

    executable = get_target("xe-pvc").build(
        parse_module(text), CompileOptions("xe-pvc", disable=off), observe
    )
    assert not off & set(ran) and executable.asm["llvm"]
    wanted, given = c.copy(), c.copy()
    reference.run(parse_module(text), (2, 2, 1), [a, s, b, wanted])
    reference.run(last[0], (2, 2, 1), [a, s, b, given])
    message = difference(wanted, given)
    assert message is None, message


def test_emu_has_nothing_to_leave_out():
    assert not EMU.switches
