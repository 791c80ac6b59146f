"""Scalars, ids, arrays, tiles as values, barriers, assertions: what every thread does alike."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import cf, gpu
from xdsl.dialects.builtin import IndexType, MemRefType, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import knobs
from tilewright.codegen.atomic_loops import exchange
from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import cloned, itemsize, plain
from tilewright.codegen.vector_memory import element_at
from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import is_vector
from tilewright.dialects.nesting import enclosing, used_from_above
from tilewright.dialects.tw import PrintOp
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.passes.memory_objects import memory_root
from tilewright.targets.cuda.distribute import Distributor, rule
from tilewright.targets.cuda.exchange import exchanged
from tilewright.targets.cuda.sync import MemoryRange

_FOLDED: dict[str, Callable[[Builder], Callable[[Idx, Idx], Idx] | None]] = {
    "arith.addi": lambda b: b.plus,
    "arith.subi": lambda b: b.minus,
    "arith.muli": lambda b: b.times,
}
"""Index arithmetic that folds what it can."""


@rule("scalar")
def clone_scalar(d: Distributor, op: Operation) -> None:
    """An op on scalars, as it is."""
    b, values = d.b, (*op.operands, *op.results)
    if op.regions or any(
        is_vector(v) or isinstance(v.type, MemRefType | xt.TileType) for v in values
    ):
        raise d.error(op, f"{op.name} is not supported by the cuda target")
    operands = [d.scalar(v) for v in op.operands]
    fold = _FOLDED.get(op.name, lambda b: None)(b)
    if fold is not None and isinstance(op.results[0].type, IndexType):
        d.define(op.results[0], b.idx(fold(folded(operands[0]), folded(operands[1]))))
        return
    results = cloned(b, op, operands)
    for old, value in zip(op.results, results, strict=True):
        d.define(old, value)


@rule("gpu.barrier")
def barrier(d: Distributor, op: Operation) -> None:
    d.barrier()


@rule("memref.generic_atomic_rmw")
def atomic(d: Distributor, op: GenericAtomicRMWOp) -> None:
    """The first thread does it; what it found reaches all, where it is used."""
    b, array, kind = d.b, d.array(op, op.memref), plain(op.result.type)
    pointer = element_at(b, array, itemsize(kind), [d.idx(i) for i in op.indices])
    taken = {v: d.scalar(v) for v in used_from_above(op.atomic_body)}
    d.hazards.write(d, MemoryRange(root=memory_root(op.memref)))

    def store(offset: int) -> None:
        with b.when(b.cmp("eq", d.thread, 0)):
            old = exchange(b, op, pointer, taken)
            b.store(old, d.shared_pointer(offset))

    def load(offset: int) -> SSAValue:
        return b.load(d.shared_pointer(offset), kind)

    d.set_scalar(op.result, exchanged(d, itemsize(kind), "what an atomic found", store, load))


# Diagnostics ------------------------------------------------------------------------------------


@rule("cf.assert")
def check(d: Distributor, op: cf.AssertOp) -> None:
    d.fail_unless(d.scalar(op.arg), op)


@rule("tw.print")
def print_line(d: Distributor, op: PrintOp) -> None:
    """Thread 0 prints for its workgroup; a launch prints the lines of so many programs as a knob says."""
    if any(isinstance(v.type, VectorType) for v in op.values):
        raise d.error(
            op, "compiled code prints scalars, not vectors", "vector.extract what is to be printed"
        )
    b, limit = d.b, knobs.current().print_lines
    x, y, z = (d.grid_number("gpu.block_id", axis) for axis in "xyz")
    columns, rows = (d.grid_number("gpu.grid_dim", axis) for axis in "xy")
    number = b.plus(b.times(b.plus(b.times(z, rows), y), columns), x)
    first = b.cmp("eq", d.thread, 0)
    shown = b.both(first, b.cmp("slt", number, limit))
    assert shown is not None
    values = [d.scalar(v) for v in op.values]
    with b.when(shown):
        b.op(PrintOp(f"[workgroup ({{}}, {{}}, {{}})] {op.format.data}", [x, y, z, *values]))
    function = enclosing(op, gpu.FuncOp)
    assert function is not None
    if next(o for o in function.walk() if isinstance(o, PrintOp)) is op:
        beyond = b.both(first, b.cmp("eq", number, limit))
        assert beyond is not None
        with b.when(beyond):
            name = knobs.variable("print_lines")
            b.op(PrintOp(f"... the other programs print nothing ({name} is {limit})", []))


@rule("tw.breakpoint", "gpu.printf", "vector.print")
def refuse(d: Distributor, op: Operation) -> None:
    raise d.error(
        op,
        f"{op.name} has no form in compiled code on a GPU",
        hint="tw.print has; or run the kernel with --target reference, kernel.options(target='reference')",
    )
