"""The callees as plain LLVM with shuffles: what a CPU's OpenCL runtime executes (`soft`).

Prefetches do nothing. Named barriers are refused: nothing says that a CPU's subgroups make progress on their own.
"""

from __future__ import annotations

import re

from xdsl.ir import Operation

from tilewright.codegen.printer import Arg, Printer, unsupported
from tilewright.targets.xe import soft
from tilewright.targets.xe.forms import Block2D, Dpas, Fence, Form, Hints, Lsc, RowMessage
from tilewright.targets.xe.tables.base import Table, define, define_block, lanes_of, neutral
from tilewright.targets.xe.tables.intel import fence, lsc

EXTENSIONS = (
    "SPV_EXT_shader_atomic_float_add",
    "SPV_EXT_shader_atomic_float_min_max",
    "SPV_EXT_shader_atomic_float16_add",
)


def _callee(p: Printer, op: Operation, callee: str, form: Form, args: list[Arg]) -> str:
    match form:
        case Block2D(kind="prefetch") | Lsc(kind="prefetch"):
            return ""
        case Block2D():
            define_block(p, callee, form, lanes_of(op), True)
            return neutral(p, op, callee, form, args)
        case RowMessage():
            define(p, callee, lambda: soft.row(callee, form, lanes_of(op)), True)
            return neutral(p, op, callee, form, args)
        case Dpas():
            define(p, callee, lambda: soft.dpas(callee, form), True)
            return neutral(p, op, callee, form, args)
        case Lsc():
            return lsc(p, op, Lsc(form.kind, form.bits, form.count, Hints()), args)
        case Fence():
            return fence(p, Fence(form.memory, form.scope, "none"))
        case _:
            raise unsupported(
                op,
                "a named barrier is not executed by a CPU's OpenCL runtime",
                "run the kernel on the reference executor, which has them",
            )


_PHI = re.compile(r"  (%[\w.]+) = phi (i\d+) (.*)")


def opaque_counters(text: str) -> str:
    """Loop counters pass through memory.

    Intel's CPU runtime (2025.x) takes sums of a counter and a subgroup's number for recurrences of their own, and
    starts them wrongly for some of a workgroup's subgroups: in loops with a barrier, and in loops without, whose trip
    count is known only at run time.
    """
    lines: list[str] = []
    waiting: list[tuple[str, str]] = []
    slots: list[str] = []
    entry = -1
    for line in text.splitlines():
        if line.startswith("define "):
            entry, slots = -1, []
        phi = _PHI.match(line)
        if waiting and phi is None and " = phi " not in line:
            for name, kind in waiting:
                lines.append(f"  store volatile {kind} {name}.counted, ptr {name}.slot")
                lines.append(f"  {name} = load volatile {kind}, ptr {name}.slot")
            waiting = []
        if phi is not None and phi[2] != "i1":
            waiting.append((phi[1], phi[2]))
            slots.append(f"  {phi[1]}.slot = alloca {phi[2]}")
            line = f"  {phi[1]}.counted = phi {phi[2]} {phi[3]}"
        if line == "}" and slots:
            lines[entry:entry] = slots
        lines.append(line)
        if line == "entry:":
            entry = len(lines)
    return "\n".join(lines) + "\n"


TABLE = Table("emu", _callee, EXTENSIONS, text=opaque_counters)
