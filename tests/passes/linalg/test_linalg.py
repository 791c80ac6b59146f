"""linalg-to-xetile: programs have the results of their meaning, on every executor, and mlir-runner's."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import gpu

from tests.arrays import error
from tests.passes.linalg.cases import CASES as PRODUCTS
from tests.passes.linalg.cases import windows
from tests.passes.linalg.programs import Array, drawn, opt, peer, program, run_on
from tests.passes.linalg.tensors import TENSORS
from tests.peer.mlir_opt import needs_mlir_runner
from tilewright.diagnostics import CompileError, UnsupportedError
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.linalg.to_xetile import linalg_to_xetile
from tilewright.runtime.program import run_program
from tilewright.runtime.program.isolate import compiled
from tilewright.runtime.program.kernels import facts_of
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.entry import build_text, host_to_tiles
from tilewright.tools.cli import main

CASES = {**PRODUCTS, **TENSORS}
XE = ("matmul_bf16", "batch_matmul", "epilogue", "softmax", "columns", "transpose")


def agrees(name: str, found: Array, wanted: Array) -> None:
    assert error(found.reshape(wanted.shape), wanted) <= CASES[name].bound


@pytest.mark.parametrize("name", CASES)
def test_meaning(name: str, capfd: pytest.CaptureFixture[str]):
    text, wanted = CASES[name].draw()
    (found,), _ = run_on(text, None, capfd)
    agrees(name, found, wanted)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_tile_programs(name: str, target: str, capfd: pytest.CaptureFixture[str]):
    text, wanted = CASES[name].draw()
    agrees(name, run_on(text, target, capfd)[0][0], wanted)


@pytest.mark.parametrize("target", ["cpu", "xe-pvc", "sm_90a"])
def test_nothing_is_undefined_beyond_edges(target: str, capfd: pytest.CaptureFixture[str]):
    """Where operands are 0 no division, shift or conversion has a result; tiles reach there, programs do not."""
    text, wanted = CASES["undefined_beyond_edges"].draw()
    module = parse_module(text)
    host_to_tiles(module, target)
    assert any(op.name == "gpu.func" for op in module.walk())
    agrees("undefined_beyond_edges", run_on(module, None, capfd)[0][0], wanted)


@pytest.mark.parametrize("name", CASES)
def test_gpus_compile(name: str):
    """Every kernel has PTX, and some are made programs of lanes for Xe: no device is needed."""
    module = parse_module(CASES[name].draw()[0])
    linalg_to_xetile(module)
    for kernel in [op for op in module.body.block.ops if op.name == "gpu.module"]:
        text = print_module(kernel)
        made = build_text(parse_module(text), CompileOptions(target="sm_90a"))
        assert ".entry" in made.asm["ptx"]
        if name in XE:
            lanes = build_text(parse_module(text), CompileOptions(target="xe-pvc"))
            assert "xegpu-lane" in lanes.ir


@pytest.mark.parametrize("name", CASES)
def test_what_is_computed_together(name: str):
    module = parse_module(CASES[name].draw()[0])
    linalg_to_xetile(module)
    module.verify()
    kernels = [op for op in module.walk() if op.name == "gpu.func"]
    assert len(kernels) == CASES[name].kernels
    assert not any(op.name.startswith(("linalg.", "tensor.")) for op in module.walk())


@pytest.mark.parametrize(
    "name", ["matmul", "heads", "conv_hwcf", "conv_steps", "mmt4d", "chain", "matmul_i8"]
)
def test_products_are_products(name: str):
    """Contractions of element types that matrix units have are tile_mma, convolutions among them."""
    module = parse_module(CASES[name].draw()[0])
    linalg_to_xetile(module)
    products = [op for op in module.walk() if op.name == "xetile.tile_mma"]
    assert len(products) == CASES[name].kernels


@needs_mlir_runner
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.peer])
def test_peer(name: str):
    """mlir-runner has the results that are expected of us, of the same text."""
    text, wanted = CASES[name].draw()
    agrees(name, peer(text)[0], wanted)


FUSED = "builtin.module(one-shot-bufferize{bufferize-function-boundaries})"
MADE = {
    "generalize": ["--linalg-generalize-named-ops"],
    "fuse": ["--linalg-generalize-named-ops", "--linalg-fuse-elementwise-ops"],
    "bufferize": ["--pass-pipeline", FUSED],
    "generic_form": ["--linalg-generalize-named-ops", "--mlir-print-op-generic"],
}
"""Passes of mlir-opt whose output is run as it is."""


@needs_mlir_runner
@pytest.mark.parametrize("name", ["tensors", "parts_in_a_loop", "pad"])
@pytest.mark.parametrize("passes", MADE)
def test_output_of_mlir_opt(passes: str, name: str, capfd: pytest.CaptureFixture[str]):
    text, wanted = CASES[name].draw()
    agrees(name, run_on(opt(text, *MADE[passes]), "cpu", capfd)[0][0], wanted)


TILED = """
module attributes {{transform.with_named_sequence}} {{
{text}
transform.named_sequence @__transform_main(%root: !transform.any_op) {{
  %op = transform.structured.match ops{{["linalg.matmul"]}} in %root : (!transform.any_op) -> !transform.any_op
  %tiled, %loops:2 = transform.structured.tile_using_for %op tile_sizes [8, 16] : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
  transform.yield
}}
}}
"""  # noqa: E501


@needs_mlir_runner
def test_tiled_by_mlir_opt(capfd: pytest.CaptureFixture[str]):
    """Loops of the host around products of parts, which mlir-opt made of one."""
    text, wanted = CASES["matmul"].draw()
    found = opt(
        TILED.format(text=text),
        "--transform-interpreter",
        "--test-transform-dialect-erase-schedule",
    )
    assert "scf.for" in found
    agrees("matmul", run_on(found, "cpu", capfd)[0][0], wanted)


@needs_mlir_runner
def test_what_is_printed_is_read_by_mlir_opt():
    texts = [
        print_module(parse_module(case.draw()[0]))
        for name, case in CASES.items()
        if name != "unpack_ragged"  # an older text's name
    ]
    opt("// -----\n".join(texts), "--split-input-file")


def test_windows():
    """The oracle of the convolutions, against a sum written out."""
    x = drawn("float64", 1, 7, 8, 2)
    found = windows(x, 2, 3, 2, 2)
    assert found.shape == (1, 3, 2, 2, 3, 2)
    assert found[0, 1, 1, 1, 2, 1] == x[0, 1 * 2 + 1 * 2, 1 * 2 + 2 * 2, 1]


REFUSED = {
    "mod": (
        "affine_map<(i) -> (i)>, affine_map<(i) -> (i mod 4)>",
        "linalg.yield %a : f32",
        "not linear in the loops",
    ),
    "gather in place": (
        "affine_map<(i) -> (i)>, affine_map<(i) -> (i)>",
        "%k = linalg.index 0 : index\n %v = memref.load %o[%k] : memref<8xf32>\n linalg.yield %v : f32",
        "memory that the op writes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    maps, body, message = REFUSED[name]
    text = program(
        f"""%o = memref.alloc() : memref<8xf32>
  linalg.generic {{indexing_maps = [{maps}], iterator_types = ["parallel"]}}
      ins(%x : memref<8xf32>) outs(%o : memref<8xf32>) {{
  ^bb0(%a: f32, %b: f32):
    {body}
  }}""",
        {"x": drawn("float32", 8)},
        {"o": "memref<8xf32>"},
    )
    with pytest.raises(UnsupportedError, match=message) as raised:
        linalg_to_xetile(parse_module(text))
    assert raised.value.location is not None and raised.value.hint


def test_in_place_at_other_places():
    text = program(
        "linalg.transpose ins(%x : memref<8x8xf32>) outs(%x : memref<8x8xf32>) permutation = [1, 0]",
        {"x": drawn("float32", 8, 8)},
        {"x": "memref<8x8xf32>"},
    )
    with pytest.raises(UnsupportedError, match="may overlap"):
        linalg_to_xetile(parse_module(text))


def _in_parts(offset: int, at: str) -> str:
    """Rows `offset` to `offset + 9` of x are what becomes of its first nine; the sizes are known when it runs."""
    part = "memref<?x24xf32, strided<[24, 1], offset: ?>>"
    body = f"""%n = arith.constant 9 : index
  %o = arith.constant {offset} : index
  %at = {at}
  %p = memref.subview %x[0, 0] [%n, 24] [1, 1] : memref<20x24xf32> to {part}
  %q = memref.subview %x[%at, 0] [%n, 24] [1, 1] : memref<20x24xf32> to {part}
  linalg.exp ins(%p : {part}) outs(%q : {part})
  linalg.add ins(%q, %q : {part}, {part}) outs(%p : {part})"""
    return body


SUM = "arith.addi %n, %o : index"


def test_parts_of_one_array(capfd: pytest.CaptureFixture[str]):
    x = drawn("float32", 20, 24)
    text = program(_in_parts(2, SUM), {"x": x}, {"x": "memref<20x24xf32>"})
    wanted = x.astype(np.float64)
    wanted[11:20] = np.exp(wanted[:9])
    wanted[:9] = 2 * wanted[11:20]
    for target in (None, "reference", "cpu"):
        (found,), _ = run_on(text, target, capfd)
        assert error(found, wanted) < 2e-5


def test_parts_that_meet_are_refused():
    text = program(
        _in_parts(1, "arith.subi %n, %o : index"),
        {"x": drawn("float32", 20, 24)},
        {"x": "memref<20x24xf32>"},
    )
    with pytest.raises(UnsupportedError, match="may overlap"):
        linalg_to_xetile(parse_module(text))


def test_overlapping_arguments_are_refused(capfd: pytest.CaptureFixture[str]):
    """Two arguments of a function are not the same array where one is written."""
    text = """
func.func @f(%a: memref<8x8xf32>, %b: memref<8x8xf32>) {
  linalg.transpose ins(%a : memref<8x8xf32>) outs(%b : memref<8x8xf32>) permutation = [1, 0]
  return
}
func.func @main() {
  %m = memref.alloc() : memref<8x8xf32>
  call @f(%m, %m) : (memref<8x8xf32>, memref<8x8xf32>) -> ()
  return
}"""

    class Left(Exception):
        pass

    told: list[BaseException] = []

    def fail(reason: BaseException) -> None:
        told.append(reason)

    run_program(parse_module(text), entry="main", fail=fail)
    assert told and isinstance(told[0], CompileError) and "overlaps another one" in str(told[0])


def test_other_columns_of_one_array(capfd: pytest.CaptureFixture[str]):
    """An op may read some columns of an array and write others, though their bytes are mixed."""
    x = drawn("float32", 12, 23)
    half = "memref<12x10xf32, strided<[23, 1], offset: {}>>"
    first, second = half.format(1), half.format(12)
    text = program(
        f"""%p = memref.subview %x[0, 1] [12, 10] [1, 1] : memref<12x23xf32> to {first}
  %q = memref.subview %x[0, 12] [12, 10] [1, 1] : memref<12x23xf32> to {second}
  call @f(%p, %q) : ({first}, {second}) -> ()""",
        {"x": x},
        {"x": "memref<12x23xf32>"},
    )
    text += f"""
func.func @f(%p: {first}, %q: {second}) {{
  linalg.exp ins(%p : {first}) outs(%q : {second})
  return
}}"""
    want = x.astype(np.float64)
    want[:, 12:22] = np.exp(want[:, 1:11])
    for target in (None, "reference", "cpu"):
        (found,), _ = run_on(text, target, capfd)
        assert error(found, want) < 2e-5


def test_what_is_overwritten_is_computed_before(capfd: pytest.CaptureFixture[str]):
    """A result is not computed where it is read once its own input is something else."""
    x = drawn("float32", 20, 24)
    text = program(
        """%t = memref.alloc() : memref<20x24xf32>
  %o = memref.alloc() : memref<20x24xf32>
  linalg.exp ins(%x : memref<20x24xf32>) outs(%t : memref<20x24xf32>)
  linalg.add ins(%x, %x : memref<20x24xf32>, memref<20x24xf32>) outs(%x : memref<20x24xf32>)
  linalg.mul ins(%t, %x : memref<20x24xf32>, memref<20x24xf32>) outs(%o : memref<20x24xf32>)""",
        {"x": x},
        {"o": "memref<20x24xf32>"},
    )
    (found,), _ = run_on(text, "cpu", capfd)
    wide = x.astype(np.float64)
    assert error(found, np.exp(wide) * 2 * wide) < 2e-5


@pytest.mark.parametrize("seen", ["%b", "%v"])
def test_blocks_read_what_another_wrote(seen: str, capfd: pytest.CaptureFixture[str]):
    """A result that no op of its own block reads, itself or through a view of that block, is in memory for others."""
    x = drawn("float32", 5, 4)
    body = f"""%b = memref.alloc() : memref<5x4xf32>
  %v = memref.subview %b[0, 0] [5, 4] [1, 1] : memref<5x4xf32> to memref<5x4xf32, strided<[4, 1]>>
  %o = memref.alloc() : memref<5x4xf32>
  linalg.negf ins(%x : memref<5x4xf32>) outs(%b : memref<5x4xf32>)
  cf.br ^bb1
^bb1:
  memref.copy {seen}, %o : memref<5x4xf32{", strided<[4, 1]>" if seen == "%v" else ""}> to memref<5x4xf32>"""
    text = program(body, {"x": x}, {"o": "memref<5x4xf32>"})
    assert error(run_on(text, "cpu", capfd)[0][0], -x) < 2e-5


def test_memory_that_something_else_takes(capfd: pytest.CaptureFixture[str]):
    """A product that two ops read is in memory; an op that reads it there is computed before others use that memory."""
    a, b = drawn("float32", 20, 12), drawn("float32", 12, 24)
    text = program(
        """%t = memref.alloc() : memref<20x24xf32>
  %u = memref.alloc() : memref<20x24xf32>
  %w = memref.alloc() : memref<20x24xf32>
  %o = memref.alloc() : memref<20x24xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%t : memref<20x24xf32>)
  linalg.matmul ins(%a, %b : memref<20x12xf32>, memref<12x24xf32>) outs(%t : memref<20x24xf32>)
  linalg.map { math.tanh } ins(%t : memref<20x24xf32>) outs(%u : memref<20x24xf32>)
  linalg.add ins(%t, %t : memref<20x24xf32>, memref<20x24xf32>) outs(%w : memref<20x24xf32>)
  linalg.fill ins(%zero : f32) outs(%t : memref<20x24xf32>)
  linalg.mul ins(%u, %w : memref<20x24xf32>, memref<20x24xf32>) outs(%o : memref<20x24xf32>)""",
        {"a": a, "b": b},
        {"o": "memref<20x24xf32>", "t": "memref<20x24xf32>"},
    )
    (found, zero), _ = run_on(text, "cpu", capfd)
    wide = a.astype(np.float64) @ b
    assert error(found, np.tanh(wide) * 2 * wide) < 2e-5
    assert not zero.any()


MATMUL = """
func.func @f(%a: memref<{s}xbf16, {layout}>, %b: memref<{s}xbf16>, %c: memref<{s}xf32>) {{
  %z = arith.constant 0.0 : f32
  linalg.fill ins(%z : f32) outs(%c : memref<{s}xf32>)
  linalg.matmul ins(%a, %b : memref<{s}xbf16, {layout}>, memref<{s}xbf16>) outs(%c : memref<{s}xf32>)
  return
}}"""


@pytest.mark.parametrize("shape", ["512x512", "?x?"])
def test_arrays_of_a_launch_decide_how_they_are_copied(shape: str):
    """Like launches from Python, those of a program tell the code where arrays lie: TMA copies rows of 16 bytes."""

    def copies(pitch: int) -> int:
        layout = f"strided<[{'?' if '?' in shape else pitch}, 1]>"
        module = parse_module(MATMUL.format(s=shape, layout=layout))
        host_to_tiles(module, "sm_90a")
        (kernel,) = (op for op in module.walk() if isinstance(op, gpu.FuncOp))
        a = np.zeros((512, pitch), ml_dtypes.bfloat16)[:, :512]
        b, c = np.zeros((512, 512), a.dtype), np.zeros((512, 512), np.float32)
        facts = facts_of([a, b, c], get_target("sm_90a"))
        code = compiled(kernel, "workgroup", 1, (1, 1, 1), facts, "sm_90a").asm["ptx"]
        assert "wgmma.mma_async" in code
        return code.count("cp.async.bulk.tensor")

    assert 2 < copies(515) < copies(520)


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "xe-pvc"])
def test_a_function_of_one_kernel_is_compiled_and_checked(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """`compile` and `check` take structured ops as `run` does."""
    path = tmp_path / "f.mlir"
    path.write_text(MATMUL.format(s="32x32", layout="strided<[32, 1]>"))
    assert main(["compile", str(path), "--target", target, "-o", str(tmp_path / "code")]) == 0
    assert (tmp_path / "code").stat().st_size > 100
    assert main(["check", str(path), "--target", target]) == 0
    assert "stages agree" in capsys.readouterr().out
