"""gpu.thread_id of a subgroup's program: the first thread of the subgroup, on every target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright import reference
from tilewright.dialects.text import parse_module
from tilewright.tools.cli import main

TEXT = """
module attributes {{gpu.container_module}} {{
  gpu.module @m {{ gpu.func @k(%o: memref<2x3x4x16xf32>) kernel {attributes} {{
    %x = gpu.thread_id x
    %y = gpu.thread_id y
    %z = gpu.thread_id z
    %n = gpu.block_dim x
    %rows = arith.muli %y, %n : index
    %row = arith.addi %rows, %x : index
    %number = arith.index_cast %row : index to i32
    %float = arith.sitofp %number : i32 to f32
    %v = vector.broadcast %float : f32 to vector<1x16xf32>
    %t = xetile.init_tile %o[%z, %y, %x, 0] : memref<2x3x4x16xf32> -> !xetile.tile<1x16xf32>
    xetile.store_tile %v, %t : vector<1x16xf32>, !xetile.tile<1x16xf32>
    gpu.return
  }} }}
  {host}
}}
"""
KNOWN = TEXT.format(attributes="attributes {known_block_size = array<i32: 4, 3, 2>}", host="")
LAUNCHED = TEXT.format(
    attributes="",
    host="""func.func @main(%o: memref<2x3x4x16xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c4, %c3, %c2)
        args(%o : memref<2x3x4x16xf32>)
    return
  }""",
)


@pytest.mark.parametrize("text", [KNOWN, LAUNCHED], ids=["known", "launched"])
def test_threads_are_counted_along_their_axes(text: str) -> None:
    out = np.full((2, 3, 4, 16), np.nan, np.float32)
    reference.run(parse_module(text, "ids.mlir"), args=[out], kernel="k")
    rows = np.arange(12, dtype=np.float32).reshape(1, 3, 4, 1)
    np.testing.assert_array_equal(out, np.broadcast_to(rows, out.shape))


@pytest.mark.parametrize("target", ["cpu", "emu", "sm_80", "xe-pvc", "xe-dg2"])
@pytest.mark.parametrize("text", [KNOWN, LAUNCHED], ids=["known", "launched"])
def test_targets_agree(text: str, target: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "ids.mlir"
    path.write_text(text)
    assert main(["check", str(path), "--target", target]) == 0
    assert "stages agree" in capsys.readouterr().out


def test_without_a_launch_subgroups_lie_along_x(tmp_path: Path, capsys) -> None:
    path = tmp_path / "ids.mlir"
    path.write_text(TEXT.format(attributes="", host=""))
    assert main(["check", str(path), "--target", "xe-pvc"]) == 0
    assert "stages agree" in capsys.readouterr().out
