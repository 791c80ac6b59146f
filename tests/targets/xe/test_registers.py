"""The register estimate, the two modes, and the order that needs fewer registers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tests.texts import parse_module
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.observer import ignore
from tilewright.passes.kernel import kernel_of
from tilewright.targets.stages import StageTexts
from tilewright.targets.xe import offline, target
from tilewright.targets.xe.fold import fold
from tilewright.targets.xe.guard_loops import guard_loops
from tilewright.targets.xe.registers import Pressure, liveness_of, pressure, risk
from tilewright.targets.xe.schedule import schedule_for_pressure
from tilewright.targets.xe.split_accumulators import split_accumulators
from tilewright.targets.xe.split_assembled import split_assembled
from tilewright.targets.xe.split_loads import split_loads
from tilewright.targets.xe.widen_branch_results import widen_branch_results
from tilewright.tools.cli import main
from tilewright.uarch import machine
from tilewright.uarch.xe import XeMachine


def pvc() -> XeMachine:
    found = machine("xe-pvc")
    assert isinstance(found, XeMachine)
    return found


def kernel(text: str) -> gpu.FuncOp:
    return kernel_of(parse_module(text, "kernel.mlir"))


def test_the_product_of_the_appendix() -> None:
    """C 32 x 64 in f32 is 128 registers, A 32 x 32 in f16 32, B 32 x 64 in f16 64, and scalars."""
    found = pressure(kernel(kernels.gemm()), pvc())
    assert 224 <= found.registers <= 226
    assert dict(found.largest)["vector<8xf32>"] == 128


def test_slices_are_their_fragment_and_constants_are_nothing() -> None:
    text = (
        kernels.head("%a: memref<64x64xf16>, %out: memref<64x64xf16>")
        + """
    %t = xegpu.create_nd_tdesc %a : memref<64x64xf16> -> !xegpu.tensor_desc<32x16xf16>
    %o = xegpu.create_nd_tdesc %out : memref<64x64xf16> -> !xegpu.tensor_desc<8x16xf16>
    %zero = arith.constant dense<0.0> : vector<32xf16>
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<32x16xf16> -> vector<32xf16>
    %x = vector.extract_strided_slice %v {offsets = [0], sizes = [8], strides = [1]} : vector<32xf16> to vector<8xf16>
    %y = vector.extract_strided_slice %v {offsets = [8], sizes = [8], strides = [1]} : vector<32xf16> to vector<8xf16>
    xegpu.store_nd %x, %o[0, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>
    xegpu.store_nd %y, %o[8, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>"""
        + kernels.FOOT
    )
    # 32 elements of 2 bytes in 16 lanes.
    assert pressure(kernel(text), pvc()).registers == 16


@pytest.mark.parametrize(
    "change, mode",
    [
        (lambda text: text, 128),
        (
            lambda text: text.replace(
                "tilewright.lanes", "tilewright.grf = 256 : i64, tilewright.lanes"
            ),
            256,
        ),
    ],
    ids=["what fits", "asked for"],
)
def test_modes(change: Callable[[str], str], mode: int) -> None:
    assert build(change(kernels.gemm(rows=16, columns=32))).meta["registers"] == mode


def test_a_mode_that_is_too_small() -> None:
    text = kernels.gemm().replace(
        "tilewright.lanes", "tilewright.grf = 128 : i64, tilewright.lanes"
    )
    with pytest.raises(UnsupportedError, match="xe-pvc has 128: it would spill"):
        build(text, disable={"xe-spill"})


@pytest.mark.parametrize(
    "found, natural, why",
    [
        (Pressure(225, None, ()), 241, None),
        (Pressure(225, None, ()), 300, "225 registers of data in 256"),
        (Pressure(100, None, ()), 300, None),
        (Pressure(164, None, (), kept=192), 190, "about 192 of addresses of single elements"),
        (Pressure(164, None, (), kept=20), 190, None),
        (Pressure(145, None, (), exchanged=192), 145, "192 that lanes exchange"),
        (Pressure(193, None, (), exchanged=128), 193, None),
        (
            Pressure(250, None, ()),
            250,
            "would need 266 and has 256: about 640 bytes per thread spill",
        ),
    ],
    ids=[
        *("in its order", "in another order", "with room", "single elements", "a few of them"),
        *("exchanges", "a few of those", "too many"),
    ],
)
def test_what_may_spill(found: Pressure, natural: int, why: str | None) -> None:
    said = risk(found, 256, natural, 64)
    assert (said is None) == (why is None) and (why or "") in (said or "")


@pytest.mark.parametrize("held, spilled", [(200, 0), (200, 384), (257, 384)])
def test_the_offline_compiler_is_asked(
    held: int, spilled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the estimate is unsure of, the compiler's answer replaces; without one the doubt stays."""
    meta = {"name": "k", "machine": "xe-pvc", "registers": 256, "pressure": held}
    made = target.XeExecutable(
        StageTexts("", ignore),
        {},
        {**meta, "remarks": ["registers: who knows", "other"]},
        ModuleOp([]).clone,
    )
    monkeypatch.setattr(made, "spirv", lambda table: b"")
    binary = offline.Binary("pvc", "", "", spilled, spilled, b"")
    monkeypatch.setattr(target, "compile_offline", lambda *_, **__: binary)
    monkeypatch.setattr(target, "missing", lambda: ["ocloc"])
    made.advise()
    assert made.remarks == ["registers: who knows", "other"]
    monkeypatch.setattr(target, "missing", list)
    made.advise()
    if held > 256:
        assert made.remarks == ["registers: who knows", "other"]
    else:
        assert made.remarks[0] == "other" and ("it spilled 384" in str(made.remarks)) == bool(
            spilled
        )


def test_compile_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever stage the command prints."""
    file = tmp_path / "gemm.mlir"
    file.write_text(kernels.gemm(rows=16, columns=32))
    monkeypatch.setattr(target.XeExecutable, "advise", lambda self: self.remarks.append("asked"))
    # What is printed is made of what was compiled: nothing is lowered once more.
    monkeypatch.delattr(StageTexts, "_texts")
    command = ["compile", str(file), "--target", "xe-pvc", "--emit", "llvm"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 0
    assert "remark: asked" in capsys.readouterr().err


def before_and_after(
    module: ModuleOp,
    change: Callable[[], object],
    grid: tuple[int, int, int],
    args: list[Any],
    result: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel writes to one of its arguments, poisoned first, as it stands and after a change to it."""

    def outcome() -> np.ndarray:
        module.verify()
        result.fill(np.nan)
        reference.run(module, grid, args)
        return result.copy()

    before = outcome()
    change()
    return before, outcome()


def test_order_by_demand(rng: np.random.Generator) -> None:
    """The same results, and less alive at a time: B's second half is loaded after its first was used."""
    text = kernels.gemm(64, 128, 64, sg=(1, 2), rows=32, columns=64)
    module = parse_module(text, "kernel.mlir")
    most = pressure(kernel_of(module), pvc()).registers
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, 64), (64, 128)))
    c = np.empty((64, 128), np.float32)
    before, after = before_and_after(
        module,
        lambda: schedule_for_pressure(kernel_of(module), liveness_of(kernel_of(module), 16)),
        (2, 1, 1),
        [a, b, c],
        c,
    )
    np.testing.assert_array_equal(after, before)
    assert pressure(kernel_of(module), pvc()).registers <= most


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_run_once(steps: int, rng: np.random.Generator) -> None:
    """A loop of unknown length becomes one that surely runs; none, one and two steps give the same as before."""
    text = kernels.gemm(32, 64, 64, sg=(1, 1), prefetch=False)
    text = text.replace("%C: memref<32x64xf32>)", "%C: memref<32x64xf32>, %end: index)")
    text = text.replace("    %end = arith.constant 64 : index\n", "")
    module = parse_module(text, "kernel.mlir")
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((32, 64), (64, 64)))
    c = np.empty((32, 64), np.float32)
    before, after = before_and_after(
        module, lambda: guard_loops(kernel_of(module)), (1, 1, 1), [a, b, c, 32 * steps], c
    )
    np.testing.assert_array_equal(after, before)
    loop = next(op for op in kernel_of(module).walk() if op.name == "scf.for")
    assert "mach.nonempty" in loop.attributes


def test_split_loads(rng: np.random.Generator) -> None:
    """A and B come by the fragment: the same results, messages of the machine, fewer registers."""
    text = kernels.gemm(64, 128, 64, sg=(1, 2), rows=32, columns=64)
    module = parse_module(text, "kernel.mlir")
    most = pressure(kernel_of(module), pvc()).registers
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, 64), (64, 128)))
    c = np.empty((64, 128), np.float32)

    def split() -> None:
        assert split_loads(kernel_of(module), pvc(), 16, 8 * 64)
        schedule_for_pressure(kernel_of(module), liveness_of(kernel_of(module), 16))

    before, after = before_and_after(module, split, (2, 1, 1), [a, b, c], c)
    np.testing.assert_array_equal(after, before)
    loads = [op for op in kernel_of(module).walk() if op.name == "xegpu.load_nd"]
    assert {str(op.results[0].type) for op in loads} == {"vector<16xf16>"}
    # C, all of A or of B, and one fragment.
    assert pressure(kernel_of(module), pvc()).registers <= 128 + 64 + 8 < most


SCALED = (
    kernels.head("%a: memref<8x16xf16>, %b: memref<16x16xf16>, %c: memref<8x16xf32>, %n: index")
    + """
    %zero = arith.constant dense<0.0> : vector<8xf32>
    %half = arith.constant dense<0.5> : vector<8xf32>
    %ta = xegpu.create_nd_tdesc %a : memref<8x16xf16> -> !xegpu.tensor_desc<8x16xf16>
    %tb = xegpu.create_nd_tdesc %b : memref<16x16xf16> -> !xegpu.tensor_desc<16x16xf16>
    %tc = xegpu.create_nd_tdesc %c : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (vector<8xf32>) {
      %x = xegpu.load_nd %ta[0, 0] : !xegpu.tensor_desc<8x16xf16> -> vector<8xf16>
      %y = xegpu.load_nd %tb[0, 0] <{packed}> : !xegpu.tensor_desc<16x16xf16> -> vector<16xf16>
      %s = arith.mulf %acc, %half : vector<8xf32>
      %d = xegpu.dpas %x, %y, %s : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
      %e = xegpu.dpas %x, %y, %d : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>
      scf.yield %e : vector<8xf32>
    }
    xegpu.store_nd %r, %tc[0, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"""
    + kernels.FOOT
)


def test_own_sums(rng: np.random.Generator) -> None:
    """Products that would add to a scaled value add behind; there are as many, and the sum is the same."""
    module = parse_module(SCALED, "kernel.mlir")
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((8, 16), (16, 16)))
    c = np.empty((8, 16), np.float32)
    before, after = before_and_after(
        module, lambda: split_accumulators(kernel_of(module)), (1, 1, 1), [a, b, c, 3], c
    )
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-5 * np.abs(after).max())
    products = [op for op in kernel_of(module).walk() if op.name == "xegpu.dpas"]
    assert [len(op.operands) for op in products] == [2, 3]


MASKED = (
    kernels.head("%a: memref<64xf32>, %out: memref<16xf32>, %n: index")
    + """
    %lane_f = arith.constant 7.0 : f32
    %zero = arith.constant dense<0.0> : vector<2xf32>
    %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (vector<2xf32>) {
      %far = arith.constant 1000000000 : index
      %none = arith.cmpi eq, %n, %c0 : index
      %at = arith.select %none, %far, %lane : index
      %v = xegpu.load %a[%at], %true <{chunk_size = 2 : i64}> : memref<64xf32>, index, i1 -> vector<2xf32>
      %s = arith.addf %acc, %v : vector<2xf32>
      xegpu.store %lane_f, %out[%lane], %true : f32, memref<16xf32>, index, i1
      scf.yield %s : vector<2xf32>
    }
    %x = vector.extract %r[0] : f32 from vector<2xf32>
    xegpu.store %x, %out[%lane], %true : f32, memref<16xf32>, index, i1"""
    + kernels.FOOT
)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_run_once_keeps_accesses_back(steps: int, rng: np.random.Generator) -> None:
    """A lane's own accesses in a run that should not be: masked off, wherever they would go."""
    module = parse_module(MASKED, "kernel.mlir")
    guard_loops(kernel_of(module))
    module.verify()
    loop = next(op for op in kernel_of(module).walk() if op.name == "scf.for")
    assert "mach.nonempty" in loop.attributes
    a = rng.standard_normal(64).astype(np.float32)
    out = np.full(16, np.nan, np.float32)
    reference.run(module, (1, 1, 1), [a, out, steps])
    np.testing.assert_allclose(out, steps * a[:16], rtol=1e-6)


ASSEMBLED = (
    kernels.head("%a: memref<64xf16>, %out: memref<16xf16>, %flag: i1")
    + """
    %zero = arith.constant dense<0> : vector<8xi16>
    %w = scf.if %flag -> (vector<4xi16>) {
      %x = xegpu.load %a[%lane], %true <{chunk_size = 4 : i64}> : memref<64xf16>, index, i1 -> vector<4xf16>
      %y = vector.bitcast %x : vector<4xf16> to vector<4xi16>
      scf.yield %y : vector<4xi16>
    } else {
      %c = arith.constant dense<[1, 2, 3, 4]> : vector<4xi16>
      scf.yield %c : vector<4xi16>
    }
    INSERTS
    %f = vector.bitcast %v7 : vector<8xi16> to vector<8xf16>
    %s = vector.extract_strided_slice %f {offsets = [2], sizes = [2], strides = [1]} : vector<8xf16> to vector<2xf16>
    %t = vector.shuffle %f, %f [7, 4] : vector<8xf16>, vector<8xf16>
    %u = arith.addf %s, %t : vector<2xf16>
    %r = vector.extract %u[1] : f16 from vector<2xf16>
    xegpu.store %r, %out[%lane], %true : f16, memref<16xf16>, index, i1"""
    + kernels.FOOT
).replace(
    "INSERTS",
    "\n    ".join(
        f"%e{i} = vector.extract %w[{i % 4}] : i16 from vector<4xi16>\n"
        f"    %v{i} = vector.insert %e{i}, {f'%v{i - 1}' if i else '%zero'} [{i}] : i16 into vector<8xi16>"
        for i in range(8)
    ),
)


@pytest.mark.parametrize("flag", [0, 1])
def test_words_and_cuts(flag: int, rng: np.random.Generator) -> None:
    """Halves leave a branch as words, and slices of what is put together wait for their own parts only."""
    module = parse_module(ASSEMBLED, "kernel.mlir")
    a = rng.standard_normal(64).astype(np.float16)
    out = np.empty(16, np.float16)

    def change() -> None:
        assert widen_branch_results(kernel_of(module)) and split_assembled(kernel_of(module))

    before, after = before_and_after(module, change, (1, 1, 1), [a, out, flag], out)
    np.testing.assert_array_equal(before.view(np.uint16), after.view(np.uint16))
    assert "scf.if" in str(module) and "-> (vector<2xi32>)" in str(module)
    assert not any(op.name == "vector.shuffle" for op in module.walk())


def test_stores_come_early(rng: np.random.Generator) -> None:
    """A store to an array that nothing reads stands behind what it stores; facts say that arrays are apart."""
    lines = "".join(
        f"""
    %x{i} = xegpu.load_nd %t[{8 * i}, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
    %y{i} = arith.mulf %x{i}, %x{i} : vector<8xf32>"""
        for i in range(8)
    ) + "".join(
        f"\n    xegpu.store_nd %y{i}, %o[{8 * i}, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"
        for i in range(8)
    )
    text = (
        kernels.head("%a: memref<64x16xf32>, %out: memref<64x16xf32>").replace(
            "tilewright.level", "tilewright.args = [{noalias}, {noalias}], tilewright.level"
        )
        + """
    %t = xegpu.create_nd_tdesc %a : memref<64x16xf32> -> !xegpu.tensor_desc<8x16xf32>
    %o = xegpu.create_nd_tdesc %out : memref<64x16xf32> -> !xegpu.tensor_desc<8x16xf32>"""
        + lines
        + kernels.FOOT
    )
    a = rng.standard_normal((64, 16)).astype(np.float32)
    for facts, registers in ((True, 16), (False, 64)):
        module = parse_module(text if facts else text.replace("{noalias}", "{}"), "kernel.mlir")
        schedule_for_pressure(kernel_of(module), liveness_of(kernel_of(module), 16))
        module.verify()
        out = np.full((64, 16), np.nan, np.float32)
        reference.run(module, (1, 1, 1), [a, out])
        np.testing.assert_array_equal(out, a * a)
        assert (pressure(kernel_of(module), pvc()).registers <= registers) and (
            facts or pressure(kernel_of(module), pvc()).registers == 64
        )


def test_fold(rng: np.random.Generator) -> None:
    """Arithmetic on numbers that are known goes; what is stored stays the same."""
    text = (
        kernels.head("%a: memref<4x16xf32>, %out: memref<16xf32>")
        + """
    %m1 = arith.constant -1 : index
    %rows = memref.dim %a, %c0 : memref<4x16xf32>
    %last = arith.addi %rows, %m1 : index
    %wrap = arith.minui %m1, %last : index
    %none = arith.muli %lane, %c0 : index
    %at = arith.addi %lane, %none : index
    %in = arith.cmpi ult, %last, %m1 : index
    %on = arith.andi %true, %in : i1
    %base = memref.reinterpret_cast %a to offset: [0], sizes: [64], strides: [1]
        : memref<4x16xf32> to memref<64xf32>
    %start = arith.muli %wrap, %c16 : index
    %place = arith.addi %start, %at : index
    %v = xegpu.load %base[%place], %on : memref<64xf32>, index, i1 -> f32
    xegpu.store %v, %out[%lane], %on : f32, memref<16xf32>, index, i1"""
        + kernels.FOOT
    )
    module = parse_module(text, "kernel.mlir")
    assert fold(kernel_of(module))
    module.verify()
    names = [op.name for op in module.walk()]
    assert not {"arith.minui", "arith.muli", "arith.cmpi", "arith.andi"} & set(names)
    a, out = rng.standard_normal((4, 16)).astype(np.float32), np.full(16, np.nan, np.float32)
    reference.run(module, (1, 1, 1), [a, out])
    np.testing.assert_array_equal(out, a[3])


@tw.kernel
def centred(X, Y):  # pyright: ignore
    x = tw.load_tile(tw.init_tile(X, [0, 0], (2, 2048)))
    tw.store_tile(x - tw.sum(x, 1) / 2048, tw.init_tile(Y, [0, 0], (2, 2048)))


def test_subgroups_that_are_left_over_share_long_rows(rng: np.random.Generator) -> None:
    """Two rows of 128 registers for eight subgroups: four hold a row, 32 registers each, and exchange their sums."""
    x = rng.integers(-64, 64, (2, 2048)).astype(np.float32)
    y = np.full_like(x, np.nan)
    made = centred.compile(x, y, target="xe-pvc")
    lanes = parse_module(made.ir["xegpu-lane"], "lanes.mlir")
    assert pressure(kernel_of(lanes), pvc()).registers < 48
    reference.run(lanes, (1, 1, 1), [x, y])
    np.testing.assert_array_equal(y, x - x.sum(1, keepdims=True) / 2048)
