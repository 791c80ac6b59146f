"""llvm: addrspacecast."""

from __future__ import annotations

from xdsl.dialects import llvm
from xdsl.irdl import traits_def
from xdsl.traits import Pure

from tilewright.dialects.fields import Op, Operand, Result, op_definition
from tilewright.dialects.upstream.complete import add_ops


@op_definition
class AddrSpaceCastOp(Op):
    """`llvm.addrspacecast %p : !llvm.ptr<1> to !llvm.ptr<4>`."""

    name = "llvm.addrspacecast"
    arg: Operand[llvm.LLVMPointerType] = Operand(llvm.LLVMPointerType)
    res: Result[llvm.LLVMPointerType] = Result(llvm.LLVMPointerType)
    traits = traits_def(Pure())
    assembly_format = "$arg attr-dict `:` type($arg) `to` type($res)"


def complete() -> None:
    add_ops(llvm.LLVM, (AddrSpaceCastOp,))
