"""ELF64 object files: their symbols, and code for x86-64 placed in memory, without LLVM, whose library takes longer to
load than a kernel from the disk cache takes to run.

LLVM's objects of position-independent code need few kinds of relocations. An object with anything else is
:class:`Unplaceable`: LLVM's own linker loads it (`jit.link`).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from tilewright.diagnostics import CompileError

X86_64: Final = 62
"""The machine's number in an object."""
_CONTENT: Final = {1, 7, 8, 0x70000001}
"""Types of sections that are placed: PROGBITS, NOTE, NOBITS (zeros), unwinding tables (which nobody reads)."""
_NOBITS, _SYMTAB, _RELA = 8, 2, 4
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_PROTECTIONS: Final = (
    (_ALLOC | _EXECUTE, mmap.PROT_READ | mmap.PROT_EXEC),
    (_ALLOC, mmap.PROT_READ),
    (_ALLOC | _WRITE, mmap.PROT_READ | mmap.PROT_WRITE),
)
_MERGED: Final = 0x30
"""Flags that a linker may heed: constants that are equal may be merged."""
_BRANCH: Final = b"\xff\x25\x02\0\0\0\0\0"
"""`jmp *2(%rip)`, two bytes of nothing; an address of 8 bytes follows. It is also a symbol's entry in the GOT."""


class Unplaceable(Exception):
    """An object that needs more of a linker than `Image` does."""


class Section(NamedTuple):
    """What counts of a section header; see `_parsed` for places in lists."""

    type: int
    flags: int
    offset: int
    """From the start of all objects."""
    size: int
    link: int
    info: int
    align: int


class Symbol(NamedTuple):
    """An entry of the symbol table."""

    name: str
    shared: bool
    """Global or weak: it counts outside of the object."""
    section: int
    """0: it is defined elsewhere."""
    value: int


def _headers(data: bytes, start: int) -> tuple[bytes, int]:
    """The table of sections of the object that begins at `start`, and where it ends: with that table, as LLVM's do."""
    if data[start : start + 4] != b"\x7fELF" or data[start + 4] != 2:
        raise ValueError("not a 64-bit ELF object")
    (table,) = struct.unpack_from("<Q", data, start + 0x28)
    size, count, _ = struct.unpack_from("<HHH", data, start + 0x3A)
    end = start + table + count * size
    return data[start + table : end], end


def objects(data: bytes) -> Iterator[bytes]:
    """The objects that follow one another in `data`."""
    start = 0
    while start < len(data):
        end = _headers(data, start)[1]
        yield data[start:end]
        start = end


@lru_cache(maxsize=1)
def _parsed(data: bytes) -> tuple[list[Section], list[Symbol]]:
    """Of what is being loaded, the sections and symbols of all objects. Symbols and relocations name sections by their
    place in that list; of relocations, `link` is the place of their object's first symbol."""
    sections: list[Section] = []
    symbols: list[Symbol] = []
    start = 0
    while start < len(data):
        table, end = _headers(data, start)
        base, first = len(sections), len(symbols)
        for _, kind, flags, _, offset, size, link, info, align, _ in struct.iter_unpack(
            "<IIQQQQIIQQ", table
        ):
            if kind == _RELA:
                link, info = first, base + info
            sections.append(Section(kind, flags, start + offset, size, link, info, align))
        for section in sections[base:]:
            if section.type == _SYMTAB:
                symbols += _symbols(data, section, sections[base + section.link].offset, base)
        start = end
    return sections, symbols


def _symbols(data: bytes, section: Section, strings: int, base: int) -> Iterator[Symbol]:
    table = data[section.offset : section.offset + section.size]
    for name, info, _, index, value, _ in struct.iter_unpack("<IBBHQQ", table):
        at = strings + name
        text = data[at : data.index(b"\0", at)].decode()
        yield Symbol(text, info >> 4 in (1, 2), index and base + index, value)


def undefined_symbols(data: bytes) -> list[str]:
    """Names that loading the objects must find elsewhere."""
    return sorted({*_names(data, False)} - {*_names(data, True)})


def defined_symbols(data: bytes) -> list[str]:
    """Names of the functions and data that the objects give."""
    return sorted({*_names(data, True)})


def _names(data: bytes, defined: bool) -> list[str]:
    shared = (s for s in _parsed(data)[1] if s.shared and s.name)
    return [s.name for s in shared if (s.section != 0) == defined]


class Image:
    """Objects that follow one another, in memory: code, constants and data of all, each on pages of their own, near
    enough for relative addresses.

    Other symbols have an address of 8 bytes and a branch to it beside the code: they may lie anywhere.
    """

    def __init__(self, data: bytes, addresses: Mapping[str, int]):
        """`addresses` of the symbols that no object defines. Unplaceable where LLVM has to do it."""
        if struct.unpack_from("<H", data, 18) != (X86_64,):
            raise Unplaceable
        sections, table = _parsed(data)
        offsets: dict[int, int] = {}
        spans: list[tuple[int, int, int]] = []
        end = branches = 0
        for flags, protection in _PROTECTIONS:
            start = end
            for i, section in enumerate(sections):
                if section.flags & ~_MERGED == flags and section.type in _CONTENT:
                    end = offsets[i] = _up(end, section.align)
                    end += section.size
            if flags & _EXECUTE:
                branches = _up(end, 16)
                end = branches + 16 * len(table)
            end = _up(end, mmap.PAGESIZE)
            spans.append((start, end - start, protection))
        if any(s.flags & _ALLOC and s.size and i not in offsets for i, s in enumerate(sections)):
            raise Unplaceable  # thread-local, or to be run before
        self._memory, base = _pages(end)
        for i, at in offsets.items():
            if sections[i].type != _NOBITS:
                start = sections[i].offset
                self._memory[at : at + sections[i].size] = data[start : start + sections[i].size]

        self.addresses = {
            s.name: base + offsets[s.section] + s.value
            for s in table
            if s.shared and s.section in offsets
        }
        """Of the symbols that the objects define."""
        elsewhere = {**addresses, **self.addresses}
        where: list[int | None] = [
            base + offsets[s.section] + s.value if s.section in offsets else elsewhere.get(s.name)
            for s in table
        ]
        known = set[int]()

        def branch(symbol: int, target: int) -> int:
            at = branches + 16 * symbol
            if symbol not in known:
                known.add(symbol)
                self._memory[at : at + 16] = _BRANCH + target.to_bytes(8, "little")
            return base + at

        for section in sections:
            if section.type != _RELA or section.info not in offsets:
                continue
            relocations = data[section.offset : section.offset + section.size]
            for offset, info, addend in struct.iter_unpack("<QQq", relocations):
                at, kind = offsets[section.info] + offset, info & 0xFFFFFFFF
                symbol = section.link + (info >> 32)
                target = where[symbol]
                if target is None:
                    raise Unplaceable
                inside = table[symbol].section != 0
                if kind == 1:  # R_X86_64_64
                    self._memory[at : at + 8] = (target + addend & (1 << 64) - 1).to_bytes(
                        8, "little"
                    )
                    continue
                if kind in (9, 41, 42):  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
                    target = branch(symbol, target) + len(_BRANCH)
                elif kind == 4 and not inside:  # PLT32
                    target = branch(symbol, target)
                elif kind not in (2, 4) or not inside:  # PC32
                    raise Unplaceable
                value = target + addend - base - at
                self._memory[at : at + 4] = value.to_bytes(4, "little", signed=True)
        for start, size, protection in spans:
            if size:
                _set(base + start, size, protection)


def executable(code: bytes) -> tuple[mmap.mmap, int]:
    """Machine code that needs no linker: the memory in which it lives, as long as that is kept, and its address."""
    memory, base = _pages(len(code))
    memory[: len(code)] = code
    _set(base, len(code), mmap.PROT_READ | mmap.PROT_EXEC)
    return memory, base


def _pages(size: int) -> tuple[mmap.mmap, int]:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _set(address: int, size: int, protection: int) -> None:
    if _protect()(address, size, protection):
        raise CompileError("the system does not let this process execute code that it has made")


def _up(number: int, multiple: int) -> int:
    return -(-number // max(1, multiple)) * max(1, multiple)


@cache
def _protect() -> Callable[[int, int, int], int]:
    function: Any = ctypes.pythonapi["mprotect"]  # of the process: to open it again takes longer
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
