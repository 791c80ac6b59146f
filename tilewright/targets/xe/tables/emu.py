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


_COUNTER = r"phi (?P<counter>i\d+) .*"
_NEGATION = r"f(?:neg|(?:sub|mul|div)(?=.* (?:0x\w+|-?\d[\d.e+-]*)(?:,|$)))"
_NEGATED = rf"{_NEGATION} (?:[a-z]+ )*?(?P<negated>half|bfloat|float|double) .*"
_OPAQUE = re.compile(rf"  (%[\w.]+) = (?:{_COUNTER}|{_NEGATED})")
"""What passes through a function: integers that loops carry, and floats that are or may be folded to a negation."""


def opaque(text: str) -> str:
    """Loop counters and negated floats pass through memory, in a function that is not inlined.

    Intel's CPU runtime (2025.x) takes sums of a counter and a subgroup's number for recurrences of their own, and
    starts them wrongly for some of a workgroup's subgroups: in loops with a barrier, and in loops without, whose trip
    count is known only at run time. It keeps one negated value for all subgroups where a barrier follows, also where it
    makes a negation of -0.0 - x or x * -1.0. Volatile accesses in the kernel itself would be done lane by lane, each in
    a block of its own: the runtime's compiler takes time by their square.
    """
    lines: list[str] = []
    waiting: list[tuple[str, str]] = []
    kinds: dict[str, None] = {}
    for line in text.splitlines():
        if waiting and " = phi " not in line:
            for name, kind in waiting:
                lines.append(
                    f"  {name} = call spir_func {kind} @opaque_{kind}({kind} {name}.given)"
                )
            waiting = []
        found = _OPAQUE.match(line)
        kind = found and (found["counter"] or found["negated"])
        if found is not None and kind is not None and kind != "i1":
            waiting.append((found[1], kind))
            kinds[kind] = None
            line = line.replace(found[1], f"{found[1]}.given", 1)
        lines.append(line)
    return "\n".join(lines) + "\n" + "".join(_OPAQUE_BODY.replace("KIND", kind) for kind in kinds)


_OPAQUE_BODY = """
define internal spir_func KIND @opaque_KIND(KIND %x) noinline {
entry:
  %place = alloca KIND
  store volatile KIND %x, ptr %place
  %y = load volatile KIND, ptr %place
  ret KIND %y
}
"""

TABLE = Table("emu", _callee, EXTENSIONS, values="scalars", text=opaque)
