"""Which symbols does an object file need, and which does it give?"""

from __future__ import annotations

import struct
from collections.abc import Iterator

SYMBOL_TABLE = 2
"""ELF section type SHT_SYMTAB."""


def _sections(data: bytes) -> list[tuple[int, ...]]:
    """Section headers of an ELF64 file: (name, type, flags, addr, offset, size, link, ...)."""
    if data[:4] != b"\x7fELF" or data[4] != 2:
        raise ValueError("not a 64-bit ELF object")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, _ = struct.unpack_from("<HHH", data, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]


def symbols(data: bytes) -> Iterator[tuple[str, bool]]:
    """(name, defined) of every global symbol of an object file."""
    sections = _sections(data)
    for section in sections:
        if section[1] != SYMBOL_TABLE:
            continue
        offset, size, link = section[4], section[5], section[6]
        strings = sections[link][4]
        for at in range(offset, offset + size, 24):
            name, info, _, index, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if name and info >> 4 in (1, 2):
                end = data.index(b"\0", strings + name)
                yield data[strings + name : end].decode(), index != 0


def undefined_symbols(data: bytes) -> list[str]:
    """Names that loading the object must find elsewhere."""
    return sorted({name for name, defined in symbols(data) if not defined})


def defined_symbols(data: bytes) -> list[str]:
    """Names of the functions and data that the object gives."""
    return sorted({name for name, defined in symbols(data) if defined})
