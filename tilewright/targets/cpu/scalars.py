"""Scalar ops of a kernel at the last stage, and what ends a program: a failed assertion, a division by zero."""

from __future__ import annotations

from xdsl.dialects import arith, cf
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Builder
from tilewright.diagnostics import location_of
from tilewright.dialects import mach
from tilewright.targets.cpu import divisions
from tilewright.targets.cpu.evaluate import Evaluator, Values
from tilewright.targets.cpu.memory import as_idx, plain


class ScalarOps:
    """The part of a `FunctionContext` that lowers them."""

    b: Builder
    e: Evaluator
    values: Values
    argument: SSAValue
    """The launch's argument block."""
    ids: dict[str, SSAValue]
    """Of the grid, and of the program where the function is one: x, y, z."""
    ahead: bool
    """Whether ops are lowered that the program may never come to."""

    def clone_scalar(self, op: Operation) -> None:
        b = self.b
        operands = [self.e.scalar(v) for v in op.operands]
        if isinstance(op, arith.ConstantOp):
            value = op.value
            data = getattr(getattr(value, "value", None), "data", None)
            if data is not None:
                self.values.scalars[op.result] = b.constant(plain(op.result.type), data)
                return

        def clone(*operands: SSAValue) -> SSAValue:
            new = type(op).create(
                operands=operands,
                result_types=[plain(r.type) for r in op.results],
                properties=op.properties,
                attributes=op.attributes,
            )
            new.location = op.location  # pyright: ignore
            b.op(new)
            for old, value in zip(op.results, new.results, strict=True):
                self.values.scalars[old] = value
            return new.results[0] if new.results else operands[0]

        if op.name in divisions.SIGNED | divisions.UNSIGNED:
            x, y = operands
            self.values.scalars[op.results[0]] = divisions.divide(b, op, x, y, clone)
            self.check_division(op)
        else:
            clone(*operands)
        safe = (
            arith.AddiOp,
            arith.MuliOp,
            arith.MinSIOp,
            arith.RemUIOp,
            arith.DivUIOp,
            arith.DivSIOp,
            arith.RemSIOp,
        )
        nonnegative = [b.is_nonnegative(as_idx(v)) for v in operands]
        if (isinstance(op, safe) and all(nonnegative)) or (
            isinstance(op, arith.MaxSIOp) and any(nonnegative)
        ):
            b.nonnegative |= {self.values.scalars[r] for r in op.results}

    def check_division(self, op: Operation) -> None:
        """A scalar division by zero fails like an assertion, where the program comes to it."""
        if "x" in self.ids and not self.ahead and len(op.operands) == 2:
            condition = divisions.not_zero(self.b, op, self.e.scalar(op.operands[1]))
            if condition is not None:
                self.check(op, condition, "integer division by zero")

    def check(self, op: Operation, condition: SSAValue, kind: str, message: str = "") -> None:
        """The program ends where `condition` is false; its launch tells of it, and where `op` stands."""
        place = location_of(op)
        where = ["", "0", "0", "0"]
        if place is not None:
            where = [place.file, *map(str, (place.line, place.col, place.end_col or 0))]
        text = "\n".join([kind, *where, message])  # all that the runtime knows of the op
        who = [self.argument, *(self.ids[axis] for axis in "xyz")]
        self.b.op(mach.AssertOp(condition, text, "tw_program_failed", who))

    def lower_cf_assert(self, op: cf.AssertOp) -> None:
        self.check(op, self.e.scalar(op.arg), "assertion failed", op.msg.data)
