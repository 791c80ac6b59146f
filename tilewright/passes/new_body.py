"""A kernel's body built anew beside the old one, op by op in order: what every pass that changes levels does.

Ops are appended directly and verified once, at the end, by whoever runs the pass: time is linear in the new ops,
and nothing of the old body changes before the new one is whole. Every new op stands where the op that it comes
from stood in the source text, so that a later error points there.
"""

from __future__ import annotations

from xdsl.dialects import func, gpu
from xdsl.ir import Block, Operation, SSAValue

from tilewright.diagnostics import TilewrightError, UnsupportedError, error_at
from tilewright.passes.budget import poll


class NewBody:
    """The new body under construction. A subclass says what arguments become, and ops."""

    def __init__(self) -> None:
        self.out: Block = Block()
        """Where ops are appended now."""
        self.op: Operation | None = None
        """The op of the old body that is being converted."""

    def bind_argument(self, old: SSAValue, new: SSAValue) -> None:
        """Is told every argument of the kernel, and what it is now."""
        raise NotImplementedError

    def begin(self) -> None:
        """Is called when `out` is the new body, still empty, and every argument is bound."""

    def block(self, old: Block) -> None:
        """Converts the ops of a block of the old body, in order."""
        raise NotImplementedError

    def kernel(self, kernel: gpu.FuncOp | func.FuncOp) -> None:
        """Replaces the body of `kernel`. Raises UnsupportedError where it has several blocks."""
        if len(kernel.body.blocks) != 1:
            raise error_at(kernel, "branches between blocks of a kernel", kind=UnsupportedError)
        old = kernel.body.block
        new = Block(arg_types=[a.type for a in old.args])
        self.out = new
        for before, after in zip(old.args, new.args, strict=True):
            after.name_hint = before.name_hint
            self.bind_argument(before, after)
        self.begin()
        self.block(old)
        kernel.body.detach_block(old)
        kernel.body.add_block(new)
        old.drop_all_references()

    def put(self, new: Operation) -> Operation:
        """Appends an op."""
        assert self.op is not None
        poll()
        new.location = self.op.location
        self.out.add_op(new)
        return new

    def add(self, new: Operation) -> SSAValue:
        """Appends an op with one result; gives the result."""
        return self.put(new).results[0]

    def refuse(self, why: str, hint: str | None = None) -> TilewrightError:
        """An error at the op that is being converted: `<op>: <why>`."""
        assert self.op is not None
        return error_at(self.op, f"{self.op.name}: {why}", hint=hint, kind=UnsupportedError)
