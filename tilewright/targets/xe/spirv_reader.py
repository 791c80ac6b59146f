"""Reading SPIR-V: its words, what is wrong with them, and what its kernels do.

The validators that a user may have installed are older than the extensions of the product, so the module checks
itself: ids defined once and below the bound, blocks that begin and end, and for every instruction and decoration
that needs them the capability and the extension declared. (Khronos SPIR-V specification and registry.)
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tilewright.dialects.dominance import Dominators
from tilewright.frozen import field, frozen, record

MAGIC = 0x07230203

_RESULT_ONLY = {7, 11, *range(19, 39), 73, 248, 322, 327, 5609}
_NO_RESULT = {
    *range(2, 7),
    *(8, 10, 13, 14, 15, 16, 17, 39, 56, 62, 63, 64, 71, 72, 74, 75, 76, 228, 246, 247),
    *range(249, 258),
    *(224, 225, 317, 318, 319, 329, 330, 331, 332, 5576, 5578, 5632, 5633),
    *(6142, 6143, 6231, 6232, 6233, 6234, 6235),
}
_BLOCK_MESSAGES = frozenset(range(6231, 6236))
_TERMINATORS = {249, 250, 251, 252, 253, 254, 255}

OPCODES = {
    12: "OpExtInst",
    57: "OpFunctionCall",
    61: "OpLoad",
    62: "OpStore",
    79: "OpVectorShuffle",
    81: "OpCompositeExtract",
    82: "OpCompositeInsert",
    224: "OpControlBarrier",
    225: "OpMemoryBarrier",
    345: "OpGroupNonUniformShuffle",
    346: "OpGroupNonUniformShuffleXor",
    5575: "OpSubgroupBlockReadINTEL",
    5576: "OpSubgroupBlockWriteINTEL",
    5611: "OpAsmCallINTEL",
    6035: "OpAtomicFAddEXT",
    6142: "OpControlBarrierArriveINTEL",
    6143: "OpControlBarrierWaitINTEL",
    6231: "OpSubgroup2DBlockLoadINTEL",
    6232: "OpSubgroup2DBlockLoadTransformINTEL",
    6233: "OpSubgroup2DBlockLoadTransposeINTEL",
    6234: "OpSubgroup2DBlockPrefetchINTEL",
    6235: "OpSubgroup2DBlockStoreINTEL",
    6237: "OpSubgroupMatrixMultiplyAccumulateINTEL",
}
"""Names of the opcodes that reports name; others print as numbers."""

_NEEDS: dict[int, tuple[tuple[int, ...], str]] = {
    opcode: (capabilities, extension)
    for opcodes, capabilities, extension in (
        ((6231, 6234, 6235), (6228,), "SPV_INTEL_2d_block_io"),
        ((6232,), (6229,), "SPV_INTEL_2d_block_io"),
        ((6233,), (6230,), "SPV_INTEL_2d_block_io"),
        ((6237,), (6236,), "SPV_INTEL_subgroup_matrix_multiply_accumulate"),
        ((6142, 6143), (6141,), "SPV_INTEL_split_barrier"),
        ((5609, 5610, 5611), (5606,), "SPV_INTEL_inline_assembly"),
        ((6116, 6117), (6115,), "SPV_INTEL_bfloat16_conversion"),
        ((6035,), (6033, 6034, 6095), "SPV_EXT_shader_atomic_float_add"),
        ((5614, 5615), (5612, 5613, 5616), "SPV_EXT_shader_atomic_float_min_max"),
        ((5571,), (5568,), "SPV_INTEL_subgroups"),
        ((5575, 5576), (5569,), "SPV_INTEL_subgroups"),
        ((333,), (61,), ""),
        ((345, 346), (65,), ""),
    )
    for opcode in opcodes
}
"""Opcode -> (capabilities of which one must be declared, extension or "")."""

_DECORATION_NEEDS: dict[int, tuple[int, str]] = dict.fromkeys(
    (6442, 6443), (6441, "SPV_INTEL_cache_controls")
)


@frozen
class SpirvInstruction:
    """One instruction; `operands` are its words behind the first."""

    opcode: int
    operands: tuple[int, ...]

    @property
    def result(self) -> int | None:
        """The id that it defines."""
        if self.opcode in _NO_RESULT or not self.operands:
            return None
        if self.opcode in _RESULT_ONLY:
            return self.operands[0]
        return self.operands[1] if len(self.operands) > 1 else None

    @property
    def name(self) -> str:
        return OPCODES.get(self.opcode, f"Op{self.opcode}")


Naming = Callable[[SpirvInstruction], str]


@record
class SpirvFunction:
    """A function's instructions, block by block."""

    id: int
    name: str
    entry: bool
    blocks: dict[int, list[SpirvInstruction]] = field(
        default_factory=dict[int, list[SpirvInstruction]]
    )

    def counts(self, named: Naming = lambda i: i.name) -> Counter[str]:
        """Instructions by name."""
        return Counter(named(i) for block in self.blocks.values() for i in block)

    def loops(self) -> list[set[int]]:
        """Blocks of every natural loop; loops with one header are one."""
        graph = Dominators(next(iter(self.blocks)), lambda label: _goals(self.blocks[label]))
        return list(graph.loops().values())

    def loop_counts(self, named: Naming = lambda i: i.name) -> list[Counter[str]]:
        """Instructions by name in every loop, innermost (smallest) first."""
        return [
            Counter(named(i) for label in loop for i in self.blocks[label])
            for loop in sorted(self.loops(), key=len)
        ]


def _goals(body: Sequence[SpirvInstruction]) -> list[int]:
    if not body:
        return []
    last = body[-1]
    if last.opcode == 249:
        return [last.operands[0]]
    if last.opcode == 250:
        return list(last.operands[1:3])
    if last.opcode == 251:
        return [last.operands[1], *last.operands[3::2]]
    return []


@record
class Module:
    """A SPIR-V module taken apart."""

    version: tuple[int, int]
    bound: int
    instructions: list[SpirvInstruction]
    capabilities: set[int]
    extensions: set[str]
    functions: list[SpirvFunction]

    def kernel(self, name: str) -> SpirvFunction:
        """The entry point called `name`."""
        return next(f for f in self.functions if f.entry and f.name == name)

    def constants(self) -> dict[int, int]:
        """Values of integer constants, by id."""
        return {i.operands[1]: i.operands[2] for i in self.instructions if i.opcode == 43}

    def naming(self) -> Naming:
        """Names with what a block message moves, `OpSubgroup2DBlockLoadINTEL 16b 32x16x2`: rows, columns, blocks."""
        constants = self.constants()

        def named(instruction: SpirvInstruction) -> str:
            if instruction.opcode not in _BLOCK_MESSAGES:
                return instruction.name
            size, columns, rows, blocks = (constants.get(i, 0) for i in instruction.operands[:4])
            return f"{instruction.name} {8 * size}b {rows}x{columns}x{blocks}"

        return named


class Malformed(ValueError):
    """The words are no SPIR-V module."""


def walk(words: Sequence[int]) -> Iterator[SpirvInstruction]:
    """The instructions of a module's words, in order."""
    at = 5
    while at < len(words):
        size = words[at] >> 16
        if size == 0 or at + size > len(words):
            raise Malformed(f"the instruction at word {at} has {size} words")
        yield SpirvInstruction(words[at] & 0xFFFF, tuple(words[at + 1 : at + size]))
        at += size


def text_of(words: Sequence[int]) -> str:
    """A literal string."""
    data = struct.pack(f"<{len(words)}I", *words)
    end = data.find(b"\0")
    return data[: end if end >= 0 else len(data)].decode(errors="replace")


def read(data: bytes) -> Module:
    """Take a module apart. Malformed where that is not possible."""
    if len(data) < 20 or len(data) % 4:
        raise Malformed(f"{len(data)} bytes are no SPIR-V module")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    if words[0] != MAGIC:
        raise Malformed(f"magic number {words[0]:#x}")
    instructions = list(walk(words))
    names: dict[int, str] = {}
    entries: dict[int, str] = {}
    capabilities: set[int] = set()
    extensions: set[str] = set()
    functions: list[SpirvFunction] = []
    current: list[SpirvInstruction] | None = None
    for i in instructions:
        match i.opcode:
            case 17:
                capabilities.add(i.operands[0])
            case 10:
                extensions.add(text_of(i.operands))
            case 5:
                names[i.operands[0]] = text_of(i.operands[1:])
            case 15:
                entries[i.operands[1]] = text_of(i.operands[2:])
            case 54:
                id = i.operands[1]
                functions.append(
                    SpirvFunction(id, entries.get(id, names.get(id, "")), id in entries)
                )
            case 248:
                if not functions:
                    raise Malformed("a block is outside of any function")
                current = functions[-1].blocks.setdefault(i.operands[0], [])
            case 56:
                current = None
            case _:
                if current is not None:
                    current.append(i)
    version = (words[1] >> 16 & 0xFF, words[1] >> 8 & 0xFF)
    return Module(version, words[3], instructions, capabilities, extensions, functions)


def faults(module: Module) -> list[str]:
    """What is wrong with a module, one sentence each; empty for a valid one."""
    found: list[str] = []
    seen: set[int] = set()
    for i in module.instructions:
        result = i.result
        if result is not None:
            if result in seen:
                found.append(f"id {result} is defined more than once")
            if not 0 < result < module.bound:
                found.append(f"id {result} is not below the bound {module.bound}")
            seen.add(result)
        needed = _NEEDS.get(i.opcode)
        if needed is not None:
            found += _missing(module, i.name, *needed)
        if i.opcode == 71 and (decoration := _DECORATION_NEEDS.get(i.operands[1])) is not None:
            found += _missing(module, "a cache policy", (decoration[0],), decoration[1])
    if not any(i.opcode == 14 for i in module.instructions):
        found.append("there is no OpMemoryModel")
    entries = [f for f in module.functions if f.entry]
    if not entries:
        found.append("there is no kernel")
    for function in entries:
        found += _block_faults(function)
    return list(dict.fromkeys(found))


def _missing(module: Module, what: str, any_of: tuple[int, ...], extension: str) -> list[str]:
    found: list[str] = []
    if not module.capabilities.intersection(any_of):
        found.append(f"{what} needs capability {' or '.join(map(str, any_of))}")
    if extension and not any(e.startswith(extension) for e in module.extensions):
        found.append(f"{what} needs the extension {extension}")
    return found


def _block_faults(function: SpirvFunction) -> list[str]:
    found: list[str] = []
    for label, body in function.blocks.items():
        ends = [n for n, i in enumerate(body) if i.opcode in _TERMINATORS]
        if ends != [len(body) - 1]:
            found.append(f"block {label} of {function.name} does not end with its only branch")
        for goal in _goals(body):
            if goal not in function.blocks:
                found.append(f"block {label} of {function.name} branches to {goal}, which is none")
    return found


INTERESTING = tuple(OPCODES.values())
