"""What the processor of this process says of itself: the key of what LLVM makes of it.

LLVM's library takes tens of milliseconds to load. A kernel of the disk cache needs it only for the names of the
machine's features and core, so these lie in the cache too (`native`), under the words that they are made of.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

from tilewright.codegen.loading import load
from tilewright.codegen.target import LLVMTarget

TEXT: Final = """\
target triple = "x86_64-unknown-linux-gnu"
define void @tw_cpuid(i32 %leaf, i32 %part, ptr %to) {
  %words = call { i32, i32, i32, i32 } asm "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}"(i32 %leaf, i32 %part)
  store { i32, i32, i32, i32 } %words, ptr %to
  ret void
}
define void @tw_xgetbv(ptr %to) {
  %words = call { i32, i32 } asm "xgetbv", "={ax},={dx},{cx}"(i32 0)
  store { i32, i32 } %words, ptr %to
  ret void
}
"""
_EXTENDED: Final = 0x80000000
_LEAVES: Final = (
    *((1, 0), (7, 0), (7, 1), (0xD, 1), (0x14, 0), (0x19, 0), (0x1E, 1), (0x24, 0)),
    *((_EXTENDED + 1, 0), (_EXTENDED + 8, 0)),
)
"""Leaves of CPUID and their parts that LLVM reads."""


def identity(machine: str, target: LLVMTarget) -> str:
    """Equal where LLVM's names of a processor and of its features are. `target`: what every such machine executes."""
    if machine not in ("x86_64", "AMD64"):
        return Path("/proc/cpuinfo").read_text()  # which LLVM reads, too
    code = load(TEXT, target)
    word, pointer = ctypes.c_uint32, ctypes.c_void_p
    cpuid: Any = ctypes.CFUNCTYPE(None, word, word, pointer)(code.address("tw_cpuid"))
    to = (word * 4)()

    def words(leaf: int, part: int = 0) -> list[int]:
        cpuid(leaf, part, ctypes.addressof(to))
        return list(to)

    basic, *maker = words(0)
    extended = words(_EXTENDED)[0]
    found = {
        leaf: words(*leaf)
        for leaf in _LEAVES
        if leaf[0] <= (basic if leaf[0] < _EXTENDED else extended)
    }
    found[1, 0][1] = 0  # the number of the core that executes this
    if found[1, 0][2] >> 27 & 1:  # OSXSAVE: which registers the operating system keeps
        ctypes.CFUNCTYPE(None, pointer)(code.address("tw_xgetbv"))(ctypes.addressof(to))
        maker += to[:2]
    return repr((basic, maker, extended, found))
