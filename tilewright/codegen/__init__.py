"""One emitter for every target: last-stage IR -> LLVM IR text -> machine code.

The emitter is imported when it is first asked for: code that is compiled already is loaded without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.codegen.target import LLVMTarget, nvptx, spirv, x86

if TYPE_CHECKING:
    from tilewright.codegen.printer import emit_module

__all__ = ["LLVMTarget", "emit_module", "nvptx", "spirv", "x86"]


def __getattr__(name: str) -> Any:
    if name != "emit_module":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tilewright.codegen.printer import emit_module

    return emit_module
