"""Two counts of the same program, which must agree: what the last IR stage asks for, and what its
LLVM text does.

`expected` walks the IR, `printed` reads the text. Equal counts say that the emitter added no loop,
no barrier, no memory access and no machine instruction of its own, and dropped none (DESIGN section
2).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from xdsl.dialects.builtin import (
    MemRefType,
    ModuleOp,
    UnrankedMemRefType,
)
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.instructions import find
from tilewright.codegen.memory import packets
from tilewright.codegen.printer import Printer
from tilewright.codegen.target import LLVMTarget
from tilewright.dialects.mach import InstrOp

_PATTERNS = {
    "load": r"= load (?!atomic)",
    "store": r"^  store (?!atomic)",
    "atomic": r"= (atomicrmw|cmpxchg|load atomic)|^  (store atomic|fence)",
    "masked load": r"@llvm\.masked\.load",
    "masked store": r"@llvm\.masked\.store",
    "gather": r"@llvm\.masked\.gather",
    "scatter": r"@llvm\.masked\.scatter",
    "prefetch": r"@llvm\.prefetch",
    "barrier": r"@llvm\.nvvm\.barrier\.cta|@_Z22__spirv_ControlBarrier",
}
_COMPILED = {name: re.compile(text) for name, text in _PATTERNS.items()}
_TARGET = re.compile(r"@(llvm\.(?:x86|aarch64|nvvm)\.[\w.]+)\(")
_LABEL = re.compile(r"^([\w.]+):")
_GOAL = re.compile(r"label %([\w.]+)")

_MEMORY_OPS: dict[str, tuple[str, Callable[[Operation], SSAValue]]] = {
    "mach.load": ("load", lambda op: op.results[0]),
    "mach.store": ("store", lambda op: op.operands[0]),
    "mach.masked_load": ("masked load", lambda op: op.results[0]),
    "mach.masked_store": ("masked store", lambda op: op.operands[0]),
    "mach.gather": ("gather", lambda op: op.results[0]),
    "mach.scatter": ("scatter", lambda op: op.operands[0]),
    "memref.load": ("load", lambda op: op.results[0]),
    "memref.store": ("store", lambda op: op.operands[0]),
    "llvm.load": ("load", lambda op: op.results[0]),
    "llvm.store": ("store", lambda op: op.operands[0]),
}
_ATOMICS = {
    "mach.atomic_rmw",
    "mach.cmpxchg",
    "mach.atomic_load",
    "mach.atomic_store",
    "mach.fence",
}


def expected(module: ModuleOp, target: LLVMTarget) -> Counter[str]:
    """What the emitted IR stands for: memory and machine instructions, atomics, barriers, back edges."""
    counts: Counter[str] = Counter()
    printer = Printer(target)
    emissions: dict[str, Counter[str]] = {}
    for op in module.walk():
        if (memory := _MEMORY_OPS.get(op.name)) is not None:
            kind, value = memory
            layout = printer.layout(value(op).type)
            parts = [n for _, _, n in packets(printer, layout)]
            if kind == "gather" or kind == "scatter":
                single = {"gather": "masked load", "scatter": "masked store"}[kind]
                counts[single] += parts.count(1)
                counts[kind] += len(parts) - parts.count(1)
            else:
                counts[kind] += len(parts)
        elif op.name in _ATOMICS:
            counts["atomic"] += 1
        elif op.name == "mach.prefetch":
            counts["prefetch"] += 1
        elif op.name == "gpu.barrier":
            counts["barrier"] += 1
        elif op.name in ("scf.for", "scf.while"):
            counts["back edge"] += 1
        elif op.name == "scf.parallel":
            counts["back edge"] += len(op.regions[0].block.args)
        elif op.name == "memref.cast" and isinstance(op.results[0].type, UnrankedMemRefType):
            # The one op with stores that it does not name: MLIR's descriptor, written to scratch.
            counts["store"] += 3 + 2 * len(printer.rep.memref(memref_type(op.operands[0])).sizes)
        elif op.name == "memref.cast" and isinstance(op.operands[0].type, UnrankedMemRefType):
            # And the one with loads: of what the ranked type leaves open.
            counts["load"] += len(printer.registers(op.results[0].type))
        elif isinstance(op, InstrOp):
            counts.update(_emission(op, target, emissions))
        if op.regions and len(op.regions[0].blocks) > 1:
            counts["back edge"] += _region_back_edges(op)
    return +counts


def memref_type(value: SSAValue) -> MemRefType:
    """The ranked memref type of a value."""
    assert isinstance(value.type, MemRefType)
    return value.type


def _emission(op: InstrOp, target: LLVMTarget, known: dict[str, Counter[str]]) -> Counter[str]:
    """LLVM callees in one emission of a machine instruction."""
    name = op.instruction
    if name not in known:
        entry = find(name)
        assert entry is not None, name
        scratch = Printer(target)
        registers = [
            f"%a{i}"
            for i, _ in enumerate(t for v in op.operands for t in scratch.registers(v.type))
        ]
        entry.emit(scratch, registers, {**entry.immediates, **op.immediates()})
        known[name] = Counter(_callees(scratch.lines))
    return known[name]


def _callees(lines: Iterable[str]) -> Iterable[str]:
    """Target intrinsics called, but those that other ops print as register arithmetic."""
    for line in lines:
        if " call " in line or line.lstrip().startswith("call "):
            for name in _TARGET.findall(line):
                if not _UNCOUNTED.search(name):
                    yield name


_UNCOUNTED = re.compile(
    r"read\.ptx\.sreg|shfl\.sync|barrier\.cta|approx|avx512bf16\.cvtneps|mask\.scalef|mask\.reduce|rcp14"
)
"""Register arithmetic that other ops print as well: ids, shuffles, approximations, conversions."""


def _region_back_edges(op: Operation) -> int:
    """Edges of a region with several blocks that close a cycle in a depth-first walk."""
    region = op.regions[0]
    order = list(region.blocks)
    open_blocks: set[int] = set()
    done: set[int] = set()
    found = 0
    stack: list[tuple[int, int]] = [(0, 0)]
    numbers = {block: i for i, block in enumerate(order)}
    open_blocks.add(0)
    while stack:
        at, i = stack.pop()
        last = order[at].last_op
        successors = [] if last is None else [numbers[b] for b in last.successors]
        if i == len(successors):
            open_blocks.discard(at)
            done.add(at)
            continue
        stack.append((at, i + 1))
        goal = successors[i]
        if goal in open_blocks:
            found += 1
        elif goal not in done:
            open_blocks.add(goal)
            stack.append((goal, 0))
    return found


def printed(text: str) -> Counter[str]:
    """The same, read off LLVM IR text."""
    counts: Counter[str] = Counter()
    body = [line for line in text.splitlines() if not line.startswith("declare")]
    started: set[str] = set()
    for line in body:
        if line.startswith("define"):
            started = {"entry"}
        if (label := _LABEL.match(line)) is not None:
            started.add(label.group(1))
            continue
        for name, pattern in _COMPILED.items():
            if pattern.search(line):
                counts[name] += 1
        if line.lstrip().startswith(("br ", "switch ")):
            counts["back edge"] += sum(goal in started for goal in _GOAL.findall(line))
    counts.update(name for name in _callees(body))
    return +counts
