"""Scalar ops of a kernel at the last stage, and what they tell: lines, a failed assertion, a division by zero."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, cf
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Builder, index
from tilewright.codegen.divisions import divide, not_zero
from tilewright.codegen.tiles import cloned
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects.elementwise import DIVISIONS
from tilewright.dialects.tw import PrintOp
from tilewright.targets.cpu.evaluate import Evaluator, Values
from tilewright.targets.cpu.storage import is_tile
from tilewright.targets.failed_programs import text_of


class ScalarOps:
    """The part of a `FunctionContext` that lowers them."""

    b: Builder
    e: Evaluator
    define: Callable[[SSAValue, SSAValue], None]
    values: Values
    argument: SSAValue
    """The launch's argument block."""
    ids: dict[str, SSAValue]
    """Of the grid, and of the program where the function is one: x, y, z."""
    ahead: bool
    """Whether ops are lowered that the program may never come to."""
    subgroups = 1
    """Programs along x that stand for one workgroup of the launch."""

    def word(self, at: int) -> SSAValue:
        """What the launch's argument block has `at` a byte: a number, not less than 0."""
        value = self.b.load(self.b.ptr(self.argument, at), index)
        self.b.nonnegative.add(value)
        return value

    def clone_scalar(self, op: Operation) -> None:
        b = self.b
        operands = [self.e.scalar(v) for v in op.operands]
        if op.name in DIVISIONS:
            x, y = operands
            results = [divide(b, op, x, y, lambda *v: cloned(b, op, v)[0])]
            self.check_division(op)
        else:
            results = cloned(b, op, operands)
        for result, value in zip(op.results, results, strict=True):
            self.define(result, value)

    def check_division(self, op: Operation) -> None:
        """A scalar division by zero fails like an assertion, where the program comes to it."""
        if "x" in self.ids and not self.ahead and len(op.operands) == 2:
            condition = not_zero(self.b, op, self.e.scalar(op.operands[1]))
            if condition is not None:
                self.check(op, condition, "integer division by zero")

    def check(self, op: Operation, condition: SSAValue, kind: str, message: str = "") -> None:
        """The program ends where `condition` is false; its launch tells of it, and where `op` stands."""
        text = text_of(op, kind, message)
        who = [self.argument, *(self.ids[axis] for axis in "xyz")]
        self.b.op(mach.AssertOp(condition, text, "tw_program_failed", who))

    def lower_cf_assert(self, op: cf.AssertOp) -> None:
        self.check(op, self.e.scalar(op.arg), "assertion failed", op.msg.data)

    def lower_tw_print(self, op: PrintOp) -> None:
        """A line of this program; elements of tiles were taken out of them where the line was written."""
        if any(is_tile(v) for v in op.values):
            raise unsupported(
                op,
                "compiled code prints scalars, not vectors",
                hint="vector.extract the elements to be printed",
            )
        b = self.b
        b.call("tw_print_launch", [b.value(mach.IntFromPtrOp(self.argument, index))])
        x, y, z = (self.ids[axis] for axis in "xyz")
        who, ids = "workgroup ({}, {}, {})", [x, y, z]
        if self.subgroups > 1:
            n = b.idx(self.subgroups)
            ids = [b.value(arith.DivSIOp(x, n)), y, z, b.value(arith.RemSIOp(x, n))]
            who += " subgroup {}"
        values = [self.e.scalar(v) for v in op.values]
        b.op(PrintOp(f"[{who}] {op.format.data}", [*ids, *values]))

    def lower_tw_breakpoint(self, op: Operation) -> None:
        raise unsupported(
            op,
            "compiled code on the cpu does not stop in a debugger",
            hint="run the kernel with kernel.options(target='reference'): there it does",
        )
