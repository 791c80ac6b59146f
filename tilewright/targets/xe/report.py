"""What a kernel's machine code holds: a table per kernel, counted from iga64's text.

Block messages are distinguished by their descriptor: bits 0..5 of an LSC descriptor name the operation (3 load block2d,
7 store block2d), bits 9..11 the data size, bit 7 VNNI, bit 15 transpose; shapes are the payload's and stand in the
SPIR-V. A loop's part is what stands between its label and the jump back to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tilewright.frozen import field, record
from tilewright.targets.xe import spirv_reader
from tilewright.targets.xe.offline import Binary

_OPCODE = re.compile(
    r"^(?:\((?:W|~?f\d+\.\d+|W&[^)]*)[^)]*\)\s+)*(?:\([^)]*\)\s+)?([a-z][\w.()|&]*)"
)
_DESCRIPTOR = re.compile(r"0x([0-9A-Fa-f]{8})")
_SIZES = {0: 8, 1: 16, 2: 32, 3: 64, 4: 8, 5: 16}
_LOAD2D, _STORE2D = 3, 7
_PLAIN = {0: "load", 1: "load", 2: "load", 4: "store", 6: "store"}
_CONTROL = ("jmpi", "while", "if", "else", "endif", "goto", "join", "brd", "brc", "break", "ret")


@record
class Code:
    """Counts of one stretch of machine code."""

    dpas: int = 0
    messages: Counter[str] = field(default_factory=Counter[str])
    alu: int = 0
    moves: int = 0
    """mov of whole registers: 8 or more channels."""
    control: int = 0
    sync: int = 0

    def rows(self) -> list[tuple[str, int]]:
        named = [("dpas", self.dpas), *sorted(self.messages.items())]
        return [
            *named,
            ("moves of 8 and more channels", self.moves),
            ("other arithmetic", self.alu),
            ("branches", self.control),
            ("synchronisation", self.sync),
        ]


def message_of(opcode: str, line: str) -> str:
    """What a send does, in words."""
    numbers = [int(x, 16) for x in _DESCRIPTOR.findall(line)]
    if ".gtwy" in opcode:
        return "end of thread" if "{EOT" in line or "EOT" in line else "barrier signal"
    if not numbers:
        return f"other {opcode}"
    descriptor = numbers[-1]
    operation = descriptor & 0x3F
    where = opcode.split(".")[1] if "." in opcode else "ugm"
    if where == "ugm" and operation in (_LOAD2D, _STORE2D):
        bits = _SIZES.get(descriptor >> 9 & 7, 0)
        if operation == _STORE2D:
            return f"block store d{bits}"
        if re.search(r"\bnull\b\s+r", line) or "rd:0" in line:
            return f"block prefetch d{bits}"
        how = " vnni" if descriptor >> 7 & 1 else " transposed" if descriptor >> 15 & 1 else ""
        return f"block load d{bits}{how}"
    if operation == 0x1F:
        return f"fence {where}"
    if 8 <= operation <= 30:
        return f"atomic {where}"
    return f"{_PLAIN.get(operation, 'message')} {where}"


def count(asm: str) -> Code:
    """Counts of machine code."""
    code = Code()
    for line in asm.splitlines():
        text = line.strip()
        if not text or text.startswith("//") or text.endswith(":"):
            continue
        found = _OPCODE.match(text)
        if found is None:
            continue
        opcode = found.group(1)
        if opcode == "illegal":
            continue
        if opcode.startswith("dpas"):
            code.dpas += 1
        elif opcode.startswith("send"):
            code.messages[message_of(opcode, text)] += 1
        elif opcode.startswith("sync"):
            code.sync += 1
        elif opcode.split(".")[0] in _CONTROL:
            code.control += 1
        elif opcode.startswith("mov") and re.search(r"\((8|16|32)\|", text) and "(W)" not in text:
            code.moves += 1
        else:
            code.alu += 1
    return code


def loops(asm: str) -> list[Code]:
    """Counts between every label and the last jump back to it, longest stretch of dpas first."""
    lines = asm.splitlines()
    labels = {line.strip()[:-1]: i for i, line in enumerate(lines) if re.match(r"^L\d+:", line)}
    found: dict[int, int] = {}
    for i, line in enumerate(lines):
        if "jmpi" in line or "goto" in line or "while" in line:
            for goal in re.findall(r"\bL\d+\b", line):
                if labels.get(goal, len(lines)) <= i:
                    found[labels[goal]] = i
    codes = [count("\n".join(lines[a : b + 1])) for a, b in found.items()]
    return sorted(codes, key=lambda c: -c.dpas)


def isa_table(binary: Binary, product: bytes, meta: Mapping[str, Any]) -> str:
    """The report of one kernel, as text."""
    code = count(binary.asm)
    lines = [
        f"{meta['name']} for {meta['machine']}, compiled offline for {binary.device}",
        f"  {meta['subgroups']} subgroups of {meta['lanes']} lanes, {meta['registers']} registers per thread "
        f"(estimate {meta['pressure']})",
        f"  registers {binary.number('grf_count')}, SIMD {binary.number('simd_size')}, shared memory "
        f"{binary.number('slm_size')} bytes, barriers {binary.number('barrier_count')}, "
        f"spilled {binary.spilled} bytes, scratch {binary.scratch} bytes",
        "",
        f"  {'machine code':<32}{'kernel':>8}{'loop':>8}",
    ]
    inner = (loops(binary.asm) or [Code()])[0]
    inside = dict(inner.rows())
    for name, number in code.rows():
        lines.append(f"  {name:<32}{number:>8}{inside.get(name, 0):>8}")
    module = spirv_reader.read(product)
    kernel, named = module.kernel(meta["name"]), module.naming()
    in_loops = kernel.loop_counts(named)
    lines += ["", f"  {'product SPIR-V':<50}{'kernel':>8}{'loop':>8}"]
    counts = kernel.counts(named)
    best = max(
        in_loops, key=lambda c: c["OpSubgroupMatrixMultiplyAccumulateINTEL"], default=Counter()
    )
    for name in spirv_reader.INTERESTING:
        for shaped in sorted(n for n in counts if n.split(" ")[0] == name):
            lines.append(f"  {shaped:<50}{counts[shaped]:>8}{best[shaped]:>8}")
    return "\n".join(lines) + "\n"
