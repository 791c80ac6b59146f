"""There is one type of pointers, whether xDSL's dialect of it is imported before ours, later or never."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
text = '''
func.func @f(%p: !llvm.ptr<3>, %i: i64) -> (!llvm.ptr, !llvm.ptr<1>) {
  %q = llvm.inttoptr %i : i64 to !llvm.ptr
  %a = llvm.addrspacecast %p : !llvm.ptr<3> to !llvm.ptr<1>
  %z = llvm.mlir.zero : !llvm.ptr
  return %z, %a : !llvm.ptr, !llvm.ptr<1>
}
'''
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.dialects import mach
from tilewright.dialects.text import parse_module, print_module
module = parse_module(text)
module.verify()
function, = module.body.block.ops
types = [function.body.block.args[0].type, *(r.type for op in function.body.block.ops for r in op.results)]
assert {type(each) for each in types} == {LLVMPointerType, type(mach.ptr)} and mach.ptr in types
for generic in (False, True):
    printed = print_module(module, generic=generic)
    assert print_module(parse_module(printed), generic=generic) == printed
import xdsl.dialects.llvm
assert xdsl.dialects.llvm.LLVMPointerType is LLVMPointerType
"""

KERNEL = """
import sys
import ml_dtypes
import numpy as np
import tilewright as tw

@tw.kernel
def product(A, B, C):
    a = tw.load_tile(tw.init_tile(A, [0, 0], (32, 32)))
    b = tw.load_tile(tw.init_tile(B, [0, 0], (32, 32)))
    tw.store_tile(tw.tile_mma(a, b), tw.init_tile(C, [0, 0], (32, 32)))

bf16, f32 = np.zeros((32, 32), ml_dtypes.bfloat16), np.zeros((32, 32), np.float32)
assert "ptr" in product.compile(bf16, bf16, f32, target="cpu").asm["llvm"]
assert "xdsl.dialects.llvm" not in sys.modules
"""


@pytest.mark.parametrize("first", ["", "import xdsl.dialects.llvm\n"], ids=["later", "before"])
def test_the_dialect_and_kernels_share_the_type(first: str) -> None:
    subprocess.run([sys.executable, "-c", first + PROGRAM], check=True)


def test_kernels_do_without_the_dialect(tmp_path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    subprocess.run([sys.executable, str(file)], check=True)
