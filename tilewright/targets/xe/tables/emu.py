"""The callees as plain LLVM with shuffles: what a CPU's OpenCL runtime executes (`soft`).

Prefetches do nothing. Named barriers are refused: nothing says that a CPU's subgroups make progress on their own.
"""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.codegen.printer import Arg, Printer, unsupported
from tilewright.targets.xe import soft
from tilewright.targets.xe.forms import Block2D, Dpas, Fence, Form, Hints, Lsc, Row
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
        case Row():
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


TABLE = Table("emu", _callee, EXTENSIONS)
