"""Every command that reads text refuses a value whose definition does not dominate its use."""

from __future__ import annotations

import pytest

HEAD = (
    "func.func @main(%t: i1) attributes {llvm.emit_c_interface} {\n"
    "  %c = arith.constant 1 : index\n"
)
BLOCKS = HEAD + (
    "  memref.copy %m, %m : memref<4xf32> to memref<4xf32>\n  cf.br ^done\n"
    "^done:\n  %m = memref.alloc() : memref<4xf32>\n  return\n}\n"
)
REGION = HEAD + (
    "  %r = scf.for %i = %c to %c step %c iter_args(%a = %c) -> (index) {\n"
    "    %q = arith.addi %r, %c : index\n    scf.yield %q : index\n  }\n  return\n}\n"
)


@pytest.mark.parametrize("text", [BLOCKS, REGION], ids=["blocks", "region"])
@pytest.mark.parametrize("command", [
    "opt", "run", "run --target reference", "run --target emu", "run --check", "check", "show",
    "compile --target cpu --emit llvm", "compile --target xe-pvc --emit llvm",
])  # fmt: skip
def test_it_is_refused_at_the_use(command, text, tilewright, tmp_path):
    path = tmp_path / "uses.mlir"
    path.write_text(text)
    name, *flags = command.split()
    done = tilewright(name, path, *flags)
    assert done.code == 1 and "does not dominate this use" in done.err
    assert "uses.mlir:" in done.err and "operand is defined here" in done.err
