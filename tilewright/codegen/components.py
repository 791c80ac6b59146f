"""The engine behind every op that moves components: lists of component numbers -> instructions.

An op says, as a numpy array of *component numbers*, which component of which operand each component
of its result is. `ComponentSource.assemble` finds the instructions, whatever the cut into registers: nothing
for a reshape of fragments, shufflevectors on x86.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from xdsl.ir import SSAValue

from tilewright.codegen.masked import splat_register
from tilewright.codegen.printer import Printer, Regs
from tilewright.codegen.registers import RegisterLayout, llvm_vector

Numbers = npt.NDArray[np.int64]

UNDEFINED = -1
"""A component that may hold anything."""


class ComponentSource:
    """Registers to pick components from, numbered consecutively over all operands."""

    def __init__(self, p: Printer, scalar: str):
        self.p = p
        self.scalar = scalar
        self.regs: list[str] = []
        self.counts: list[int] = []
        self.size = 0

    def add(self, layout: RegisterLayout, regs: Regs) -> Numbers:
        """Component numbers of an operand, in its shape."""
        self.regs += regs
        self.counts += layout.counts
        first = self.size
        self.size += layout.size
        return np.arange(first, self.size).reshape(layout.shape)

    def assemble(self, numbers: Numbers, counts: Sequence[int]) -> list[str]:
        """Registers of `counts` components, in row-major order of `numbers`."""
        flat = numbers.reshape(-1)
        starts = np.array([0, *accumulate(self.counts)])
        registers = np.searchsorted(starts, flat, side="right") - 1
        lanes = flat - starts[registers]
        registers = np.where(flat == UNDEFINED, UNDEFINED, registers)
        out: list[str] = []
        at = 0
        for n in counts:
            out.append(self._register(registers[at : at + n].tolist(), lanes[at : at + n].tolist()))
            at += n
        return out

    def _register(self, registers: list[int], lanes: list[int]) -> str:
        n = len(registers)
        used = [r for r in dict.fromkeys(registers) if r != UNDEFINED]
        if not used:
            return "poison"
        if len(used) == 1:
            r = used[0]
            if n == self.counts[r] and all(
                k == i or q == UNDEFINED
                for i, (q, k) in enumerate(zip(registers, lanes, strict=True))
            ):
                return self.regs[r]
        if n == 1:
            r = registers[0]
            return self.p.emit(
                f"extractelement {self._type(self.counts[r])} {self.regs[r]}, i64 {lanes[0]}"
            )
        wide = [r for r in used if self.counts[r] > 1]
        value = self._wide(wide, registers, lanes) if wide else "poison"
        t = self._type(n)
        narrow = [r for r in used if self.counts[r] == 1]
        if len(narrow) == 1 and not wide and registers.count(narrow[0]) == n:
            return splat_register(self.p, n, self.scalar, self.regs[narrow[0]])
        for i, r in enumerate(registers):
            if r != UNDEFINED and self.counts[r] == 1:
                value = self.p.emit(
                    f"insertelement {t} {value}, {self.scalar} {self.regs[r]}, i64 {i}"
                )
        return value

    def _wide(self, used: list[int], registers: list[int], lanes: list[int]) -> str:
        """Components of vector registers, others undefined: two-source shuffles, then blends."""
        n = len(registers)
        partial: list[tuple[str, set[int]]] = []
        groups: dict[int, list[int]] = {}
        for r in used:
            groups.setdefault(self.counts[r], []).append(r)
        for count, members in groups.items():
            for i in range(0, len(members), 2):
                pair = members[i : i + 2]
                base = {r: j * count for j, r in enumerate(pair)}
                mask = [
                    base[r] + k if r in base else UNDEFINED
                    for r, k in zip(registers, lanes, strict=True)
                ]
                second = self.regs[pair[1]] if len(pair) == 2 else "poison"
                value = shuffle(self.p, self.scalar, count, self.regs[pair[0]], second, mask)
                partial.append((value, {j for j, m in enumerate(mask) if m != UNDEFINED}))
        while len(partial) > 1:
            merged: list[tuple[str, set[int]]] = []
            for i in range(0, len(partial) - 1, 2):
                (a, mine), (b, others) = partial[i], partial[i + 1]
                mask = [j if j in mine else n + j if j in others else UNDEFINED for j in range(n)]
                merged.append((shuffle(self.p, self.scalar, n, a, b, mask), mine | others))
            if len(partial) % 2:
                merged.append(partial[-1])
            partial = merged
        return partial[0][0]

    def _type(self, count: int) -> str:
        return llvm_vector(count, self.scalar)


def shuffle(p: Printer, scalar: str, count: int, a: str, b: str, mask: Sequence[int]) -> str:
    """shufflevector of two registers of `count` components each."""
    t = llvm_vector(count, scalar)
    if all(m in (UNDEFINED, i) for i, m in enumerate(mask)) and len(mask) == count:
        return a
    text = ", ".join(f"i32 {'poison' if m == UNDEFINED else m}" for m in mask)
    return p.emit(f"shufflevector {t} {a}, {t} {b}, <{len(mask)} x i32> <{text}>")


def source_of(p: Printer, *operands: SSAValue) -> tuple[ComponentSource, list[Numbers]]:
    """The source made of some operands, and their component numbers."""
    source = ComponentSource(p, p.layout(operands[0].type).element.llvm)
    return source, [source.add(p.layout(v.type), p.get(v)) for v in operands]
