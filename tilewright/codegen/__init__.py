"""One emitter for every target: last-stage IR -> LLVM IR text -> machine code."""

from tilewright.codegen.printer import emit_module
from tilewright.codegen.target import LLVMTarget, nvptx, spirv, x86

__all__ = ["LLVMTarget", "emit_module", "nvptx", "spirv", "x86"]
