"""`check` runs a kernel many times, and shows what it prints once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.tools.cli import main


def test_what_a_kernel_prints_is_printed_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k.mlir"
    path.write_text("""gpu.module @m {
      gpu.func @k(%a: memref<16xi32>) kernel attributes {tilewright.level = "workgroup"} {
        %c0 = arith.constant 0 : index
        %n = arith.constant 5678 : i32
        vector.print %n : i32
        memref.store %n, %a[%c0] : memref<16xi32>
        gpu.return
      } }""")
    assert main(["check", str(path)]) == 0
    printed = capfd.readouterr().out
    assert printed.count("5678") == 1 and "stages agree" in printed
