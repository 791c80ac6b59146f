"""vector-reductions: reductions over any dimensions become those of tiles, and the cpu target has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright.dialects.text import parse_module
from tilewright.passes.vector_reductions import reductions_of_tiles
from tilewright.targets.base import CompileOptions
from tilewright.tools.check import check_stages, stages_of_target
from tilewright.tools.check_inputs import Inputs
from tilewright.tools.cli import main

KEPT = {(0,): (8, 2), (1,): (4, 2), (2,): (4, 8), (0, 2): (8,), (1, 2): (4,), (0, 1, 2): ()}
KINDS = ("add", "maxsi", "xor", "mul")


def program(kind: str, dims: tuple[int, ...]) -> str:
    kept = "".join(f"{n}x" for n in KEPT[dims])
    acc = f"vector<{kept}i32>" if kept else "i32"
    start = "arith.constant " + ("dense<3> : " if kept else "3 : ") + acc
    spread = f"vector.broadcast %s : {acc} to vector<3x{kept or '2x'}i32>"
    columns = "%c0, " * (len(KEPT[dims]) or 1)
    return f"""gpu.module @m {{ gpu.func @k(%a: memref<4x8x2xi32>, %b: memref<3x{kept or "2x"}i32>) kernel {{
  %c0 = arith.constant 0 : index
  %p = arith.constant 0 : i32
  %v = vector.transfer_read %a[%c0, %c0, %c0], %p : memref<4x8x2xi32>, vector<4x8x2xi32>
  %acc = {start}
  %s = vector.multi_reduction <{kind}>, %v, %acc {[*dims]} : vector<4x8x2xi32> to {acc}
  %w = {spread}
  vector.transfer_write %w, %b[{columns}%c0] : vector<3x{kept or "2x"}i32>, memref<3x{kept or "2x"}i32>
  gpu.return }} }}"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", KEPT)
def test_every_stage_reduces(kind: str, dims: tuple[int, ...]) -> None:
    text = program(kind, dims)
    a = fresh_rng().integers(-4, 5, (4, 8, 2)).astype(np.int32)
    b = np.full((3, *(KEPT[dims] or (2,))), 99, np.int32)
    stages = stages_of_target(parse_module(text), CompileOptions(target="cpu"))
    assert any(stage.name.endswith("cpu") for stage in stages)
    difference = check_stages(stages, Inputs((1, 1, 1), (a, b)))
    assert difference is None, str(difference)
    module = parse_module(text)
    reductions_of_tiles(module)
    names = {op.name for op in module.walk()}
    assert "xetile.reduction" in names and "vector.multi_reduction" not in names


@pytest.mark.parametrize("flags", ["", " fastmath<fast>"])
def test_a_largest_number_that_is_found_in_blocks(flags: str, tmp_path: Path, capfd) -> None:
    """Blocks begin with what changes nothing: no NaN where flags say that there is none."""
    path = tmp_path / "reduce.mlir"
    path.write_text(f"""func.func @main() {{
      %x = arith.constant dense<-4.0> : tensor<3x4097xf32>
      %i = arith.constant dense<-7.0> : tensor<3xf32>
      %r = linalg.reduce ins(%x : tensor<3x4097xf32>) outs(%i : tensor<3xf32>) dimensions = [1]
        (%a: f32, %b: f32) {{
          %m = arith.maxnumf %a, %b{flags} : f32
          linalg.yield %m : f32
        }}
      %c = arith.constant 1 : index
      %p = tensor.extract %r[%c] : tensor<3xf32>
      vector.print %p : f32
      return
    }}""")
    assert main(["run", str(path)]) == 0
    assert capfd.readouterr().out == "-4\n"
