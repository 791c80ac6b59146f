"""subgroups-together: the program of a workgroup does each op for its subgroups, one after the other.

    %s = gpu.subgroup_id                                     %r0 = arith.muli 0, %c8      %r1 = arith.muli 1, %c8
    %r = arith.muli %s, %c8                            ->    xegpu.store_matrix %x0, %m[%r0, 0]
    xegpu.store_matrix %x, %m[%r, 0]                         xegpu.store_matrix %x1, %m[%r1, 0]
    gpu.barrier                                              gpu.barrier
    %y = xegpu.load_matrix %m[%c0, 0]                        %y = xegpu.load_matrix %m[%c0, 0]

Requires: a kernel at subgroup level whose subgroups meet together, at barriers that all come to, or share memory.
Guarantees: the kernel is at workgroup level and computes the same on the same grid; what does not differ between
subgroups is done once. Code grows with the number of subgroups: this is for targets that run whole workgroups alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects import gpu
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.traits import is_side_effect_free

from tilewright.diagnostics import unsupported
from tilewright.dialects.effects import written
from tilewright.passes.kernel import LEVEL, SUBGROUPS, subgroups_of
from tilewright.passes.new_body import NewBody
from tilewright.passes.program_order import program_order
from tilewright.passes.subgroup_to_workgroup import refuse_lanes
from tilewright.passes.thread_ids import thread_ids_to_subgroup_ids
from tilewright.passes.uniformity import UNIFORM, Uniformity, tests

ONCE = ("gpu.barrier", "memref.alloc", "memref.alloca", "memref.dealloc")


def subgroups_together(kernel: gpu.FuncOp) -> None:
    """Makes the program of subgroups that of their workgroup, in place."""
    for op in kernel.walk():
        refuse_lanes(op)
    program_order(kernel)
    thread_ids_to_subgroup_ids(kernel)
    _Together(kernel).kernel(kernel)
    kernel.attributes[LEVEL] = StringAttr("workgroup")
    kernel.attributes.pop(SUBGROUPS, None)


class _Together(NewBody):
    def __init__(self, kernel: gpu.FuncOp):
        super().__init__()
        self.count = subgroups_of(kernel)
        self.kinds = Uniformity(1, subgroups=True)
        self.many: dict[SSAValue, list[SSAValue]] = {}

    def differs(self, values: Iterable[SSAValue]) -> bool:
        return any(self.kinds[value] is not UNIFORM for value in values)

    def parts(self, value: SSAValue, place: SSAValue) -> list[SSAValue]:
        return self.all(value) if self.differs([place]) else [self.same(value)]

    def hold(self, place: SSAValue, parts: Sequence[SSAValue]) -> None:
        if self.differs([place]):
            self.many[place] = [*parts]
        else:
            super().hold(place, parts)

    def all(self, value: SSAValue) -> list[SSAValue]:
        """A value as each subgroup has it."""
        return self.many.get(value) or [self.same(value)] * self.count

    def step(self, op: Operation) -> None:
        if self.differs(tests(op)):
            self.op = op
            self.each(op)
        else:
            super().step(op)

    def scalar(self, value: SSAValue) -> SSAValue:
        if self.differs([value]):
            raise self.refuse("differs between subgroups that share memory or meet")
        return self.same(value)

    def convert(self, op: Operation) -> None:
        if isinstance(op, gpu.SubgroupIdOp):
            self.many[op.results[0]] = [self.index(n) for n in range(self.count)]
        elif isinstance(op, gpu.NumSubgroupsOp):
            self.env[op.results[0]] = self.index(self.count)
        elif op.name in ONCE or (
            not self.differs((*op.operands, *op.results))
            and (is_side_effect_free(op) or not any(True for _ in written(op)))
        ):
            self.keep(op)
        else:
            self.each(op)

    def each(self, op: Operation) -> None:
        """The op for every subgroup, with all that it holds."""
        for inner in op.walk():
            if inner.name == "gpu.barrier":
                raise unsupported(inner, "gpu.barrier where not all subgroups of a workgroup come")
        made: list[Operation] = []
        for n in range(self.count):
            known = {v: values[n] for v, values in self.many.items()}
            new = op.clone({**self.env, **known})
            for inner in list(new.walk()):
                if isinstance(inner, gpu.SubgroupIdOp):
                    inner.results[0].replace_all_uses_with(self.index(n))
            made.append(self.put(new))
        for before, *after in zip(op.results, *(new.results for new in made), strict=True):
            self.many[before] = after
