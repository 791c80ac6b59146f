"""What the processor of this process says of itself: the key of what LLVM makes of it.

LLVM's library takes tens of milliseconds to load. A kernel of the disk cache needs it only for the names of the
machine's features and core, so these lie in the cache too (`native`), under the words that they are made of.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Final

from tilewright.codegen.elf import executable

CPUID: Final = bytes.fromhex(
    "53 89f8 89f1 4989d0 0fa2"  # push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx; cpuid
    "418900 41895804 41894808 4189500c 5b c3"  # mov [r8], eax; .. ebx; .. ecx; .. edx; pop rbx; ret
)
"""`void (i32 leaf, i32 part, ptr to)`. Neither LLVM nor a file of the cache need be asked for it."""
XGETBV: Final = bytes.fromhex(
    "31c9 4989d0 0f01d0 418900 41895004 c3"  # xor ecx, ecx; mov r8, rdx; xgetbv; mov [r8], eax; mov [r8 + 4], edx; ret
)
"""`void (i32, i32, ptr to)`: with two that it does not read it has the same type, which takes a while to make."""
_APART: Final = 64
_EXTENDED: Final = 0x80000000
_LEAVES: Final = (
    *((1, 0), (7, 0), (7, 1), (0xD, 1), (0x14, 0), (0x19, 0), (0x1E, 1), (0x24, 0)),
    *((_EXTENDED + 1, 0), (_EXTENDED + 8, 0)),
)
"""Leaves of CPUID and their parts that LLVM reads."""


def identity(machine: str) -> str:
    """Equal where LLVM's names of a processor and of its features are."""
    if machine not in ("x86_64", "AMD64"):
        return Path("/proc/cpuinfo").read_text()  # which LLVM reads, too
    word, pointer = ctypes.c_uint32, ctypes.c_void_p
    memory, address = executable(CPUID.ljust(_APART) + XGETBV)
    function: Any = ctypes.CFUNCTYPE(None, word, word, pointer)
    cpuid = function(address)
    to = (word * 4)()
    at = ctypes.addressof(to)

    def words(leaf: int, part: int = 0) -> list[int]:
        cpuid(leaf, part, at)
        return to[:]

    basic, *maker = words(0)
    extended = words(_EXTENDED)[0]
    found = {
        leaf: words(*leaf)
        for leaf in _LEAVES
        if leaf[0] <= (basic if leaf[0] < _EXTENDED else extended)
    }
    found[1, 0][1] = 0  # the number of the core that executes this
    if found[1, 0][2] >> 27 & 1:  # OSXSAVE: which registers the operating system keeps
        function(address + _APART)(0, 0, at)
        maker += to[:2]
    del memory  # until here the code lives
    return repr((basic, maker, extended, found))
