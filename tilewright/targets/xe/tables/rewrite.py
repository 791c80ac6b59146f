"""Changing SPIR-V words: what LLVM's backend cannot be asked for becomes a call of an undefined function, and the
call becomes the instruction.

A rewriting sees every import by name; it may take one, whose declaration then goes, and gives what each call of
it turns into.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from tilewright.frozen import field, record
from tilewright.targets.xe.spirv_reader import text_of, walk

Instruction = tuple[int, list[int]]

CAPABILITY, EXTENSION, NAME, DECORATE = 17, 10, 5, 71
_FUNCTION, _END, _CALL = 54, 56, 57
_LINKAGE, _IMPORT = 41, 1


def literal(text: str) -> list[int]:
    """A string as words."""
    data = text.encode()
    data += b"\0" * (4 - len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


@record
class SpirvModule:
    """A module's header and instructions."""

    header: list[int]
    body: list[Instruction]

    @staticmethod
    def of(data: bytes) -> SpirvModule:
        words = struct.unpack(f"<{len(data) // 4}I", data)
        return SpirvModule(list(words[:5]), [(i.opcode, list(i.operands)) for i in walk(words)])

    def data(self) -> bytes:
        out = list(self.header)
        for opcode, operands in self.body:
            out += [((len(operands) + 1) << 16) | opcode, *operands]
        return struct.pack(f"<{len(out)}I", *out)

    def fresh(self) -> int:
        """An id that nothing has."""
        self.header[3] += 1
        return self.header[3] - 1

    def imports(self) -> dict[int, str]:
        """Undefined functions: id -> name."""
        return {
            a[0]: text_of(a[2:-1])
            for opcode, a in self.body
            if opcode == DECORATE and a[1] == _LINKAGE and a[-1] == _IMPORT
        }

    def require(self, capability: int, extension: str) -> None:
        """Declare a capability and the extension that it comes from, once."""
        first = next(i for i, (opcode, _) in enumerate(self.body) if opcode != CAPABILITY)
        if (EXTENSION, literal(extension)) not in self.body:
            self.body.insert(first, (EXTENSION, literal(extension)))
        if (CAPABILITY, [capability]) not in self.body:
            self.body.insert(first, (CAPABILITY, [capability]))

    def insert(self, before: Callable[[int], bool], added: list[Instruction]) -> None:
        """Put instructions in front of the first one whose opcode is asked for."""
        at = next(i for i, (opcode, _) in enumerate(self.body) if before(opcode))
        self.body[at:at] = added


@record
class Taken:
    """Functions that were taken out: id -> (result type, function type), and their calls' results."""

    types: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    calls: dict[int, list[int]] = field(default_factory=dict[int, list[int]])


def take(
    words: SpirvModule, functions: Sequence[int], replaced: Callable[[int, list[int]], Instruction]
) -> Taken:
    """Remove the declarations of `functions`; a call becomes `replaced(function, its operands)`."""
    wanted = set(functions)
    taken = Taken()
    body: list[Instruction] = []
    skipping = False
    for opcode, a in words.body:
        if opcode == _FUNCTION and a[1] in wanted:
            taken.types[a[1]] = (a[0], a[3])
            skipping = True
        if skipping:
            skipping = opcode != _END
        elif opcode == _CALL and a[2] in wanted:
            taken.calls.setdefault(a[2], []).append(a[1])
            body.append(replaced(a[2], a))
        elif opcode not in (NAME, DECORATE) or a[0] not in wanted:
            body.append((opcode, a))
    words.body = body
    return taken


def is_type(opcode: int) -> bool:
    """Does the section of types and constants begin here?"""
    return 19 <= opcode <= 39 or opcode in (1, 59) or 41 <= opcode <= 52


def is_function(opcode: int) -> bool:
    return opcode == _FUNCTION
