"""llvm: addrspacecast."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects import llvm
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from tilewright.dialects.upstream.complete import add_ops


@irdl_op_definition
class AddrSpaceCastOp(IRDLOperation):
    """`llvm.addrspacecast %p : !llvm.ptr<1> to !llvm.ptr<4>`."""

    name = "llvm.addrspacecast"

    arg = operand_def(llvm.LLVMPointerType)
    res = result_def(llvm.LLVMPointerType)

    traits = traits_def(Pure())
    assembly_format: ClassVar = "$arg attr-dict `:` type($arg) `to` type($res)"

    def __init__(self, value: SSAValue | Operation, result_type: Attribute):
        super().__init__(operands=[value], result_types=[result_type])


def complete() -> None:
    add_ops(llvm.LLVM, (AddrSpaceCastOp,))
