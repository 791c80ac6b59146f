"""scf ops: structured control flow -> blocks and phis.

A counted loop prints in rotated form, one block for its body and one back edge; no LLVM pass needs
to run for it:

    pre:   br (lb < ub), body, exit     (no test with constant bounds, or with `mach.nonempty`)
    body:  iv, carried values = phi ... ; iv' = iv + step ; br (iv' < ub), body, exit
    exit:  results = phi
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import scf
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.cf import Phis
from tilewright.codegen.printer import Printer, Regs, attribute, prints, unsupported
from tilewright.dialects.upstream.arith import constant
from tilewright.frozen import record


@record
class Bounds:
    """A counted loop: LLVM integer type, bounds and step as operands; does it surely run once?"""

    type: str
    lower: str
    upper: str
    step: str
    runs: bool = False
    less: str = "slt"


def counted_loop(
    p: Printer,
    bounds: Bounds,
    types: Sequence[Attribute],
    start: Sequence[Regs],
    body: Callable[[str, list[Regs]], list[Regs]],
) -> list[Regs]:
    """Print a loop: `body(counter, carried values) -> next carried values`; the values after it."""
    t, less = bounds.type, bounds.less
    label, exit, before = p.label("loop"), p.label("exit"), p.block
    head, kept = p.reserve(), dict[str, str]()
    p.loops.append((p.names, kept))
    if bounds.runs:
        p.line(f"br label %{label}")
    else:
        test = p.emit(f"icmp {less} {t} {bounds.lower}, {bounds.upper}")
        p.line(f"br i1 {test}, label %{label}, label %{exit}")
    p.start(label)
    slot, counter = p.reserve(), p.fresh()
    carried = Phis(p, types)
    carried.edge(before, start)
    results = body(counter, carried.values)
    flags = "nsw " if t == "i64" and less == "slt" else ""
    following = p.emit(f"add {flags}{t} {counter}, {bounds.step}")
    again = p.emit(f"icmp {less} {t} {following}, {bounds.upper}")
    latch = p.block
    p.loops.pop()
    p.fill(head, "\n  ".join(f"{name} = freeze ptr {x}" for x, name in kept.items()))
    p.line(f"br i1 {again}, label %{label}, label %{exit}")
    p.fill(slot, f"{counter} = phi {t} [ {bounds.lower}, %{before} ], [ {following}, %{latch} ]")
    carried.edge(latch, results)
    carried.close()
    p.start(exit)
    if bounds.runs:
        return results
    merged = Phis(p, types)
    merged.edge(before, start)
    merged.edge(latch, results)
    merged.close()
    return merged.values


def loop_bounds(
    p: Printer, op: Operation, lower: SSAValue, upper: SSAValue, step: SSAValue
) -> Bounds:
    """Bounds of a loop of `op`; it surely runs when they are constants that say so."""
    low, high = constant(lower), constant(upper)
    unsigned = attribute(op, "unsignedCmp") is not None
    runs = "mach.nonempty" in op.attributes or (
        low is not None and high is not None and low < high and not unsigned
    )
    (t,) = p.registers(lower.type)
    less = "ult" if unsigned else "slt"
    return Bounds(t, p.one(lower), p.one(upper), p.one(step), runs, less)


@prints("scf.for")
def print_for(p: Printer, op: Operation) -> None:
    lower, upper, step, *initial = op.operands

    def body(counter: str, carried: list[Regs]) -> list[Regs]:
        return p.inline_region(op.regions[0], [(counter,), *carried])[1]

    types = [v.type for v in initial]
    bounds = loop_bounds(p, op, lower, upper, step)
    results = counted_loop(p, bounds, types, [p.get(v) for v in initial], body)
    for value, regs in zip(op.results, results, strict=True):
        p.set(value, regs)


@prints("scf.parallel")
def print_parallel(p: Printer, op: scf.ParallelOp) -> None:
    """A nest of counted loops in order of the dimensions; reductions are carried through all."""
    lower, upper, step, initial = op.lowerBound, op.upperBound, op.step, op.initVals
    rank = len(lower)
    types = [v.type for v in initial]

    def nest(dim: int, counters: list[str], carried: list[Regs]) -> list[Regs]:
        if dim == rank:
            return _reduced(p, op, counters, carried)
        bounds = loop_bounds(p, op, lower[dim], upper[dim], step[dim])
        return counted_loop(
            p, bounds, types, carried, lambda i, values: nest(dim + 1, [*counters, i], values)
        )

    results = nest(0, [], [p.get(v) for v in initial])
    for value, regs in zip(op.results, results, strict=True):
        p.set(value, regs)


def _reduced(p: Printer, op: Operation, counters: list[str], carried: list[Regs]) -> list[Regs]:
    """Print one iteration; its scf.reduce combines each carried value with the iteration's."""
    terminator, values = p.inline_region(op.regions[0], [(c,) for c in counters])
    out: list[Regs] = []
    for region, so_far, value in zip(terminator.regions, carried, values, strict=True):
        _, (combined,) = p.inline_region(region, [so_far, value])
        out.append(combined)
    return out


@prints("scf.while")
def print_while(p: Printer, op: Operation) -> None:
    head, body, exit, before = p.label("while"), p.label("do"), p.label("exit"), p.block
    p.line(f"br label %{head}")
    p.start(head)
    arguments = list(op.operands)
    carried = Phis(p, [v.type for v in arguments])
    carried.edge(before, [p.get(v) for v in arguments])
    _, values = p.inline_region(op.regions[0], carried.values)
    (test,), passed = values[0], values[1:]
    p.line(f"br i1 {test}, label %{body}, label %{exit}")
    p.start(body)
    _, results = p.inline_region(op.regions[1], passed)
    carried.edge(p.block, results)
    carried.close()
    p.line(f"br label %{head}")
    p.start(exit)
    for value, regs in zip(op.results, passed, strict=True):
        p.set(value, regs)


def _merge(p: Printer, op: Operation, exit: str, edges: Sequence[tuple[str, list[Regs]]]) -> None:
    """Start `exit` and set the op's results from its incoming edges."""
    p.start(exit)
    merged = Phis(p, [r.type for r in op.results])
    for label, values in edges:
        merged.edge(label, values)
    merged.close()
    for value, regs in zip(op.results, merged.values, strict=True):
        p.set(value, regs)


@prints("scf.if")
def print_if(p: Printer, op: Operation) -> None:
    has_else = op.regions[1].first_block is not None
    then, exit = p.label("then"), p.label("endif")
    other = p.label("else") if has_else else exit
    p.line(f"br i1 {p.one(op.operands[0])}, label %{then}, label %{other}")
    p.start(then)
    edges: list[tuple[str, list[Regs]]] = []
    _, values = p.inline_region(op.regions[0], [])
    edges.append((p.block, values))
    p.line(f"br label %{exit}")
    if has_else:
        p.start(other)
        _, values = p.inline_region(op.regions[1], [])
        edges.append((p.block, values))
        p.line(f"br label %{exit}")
    _merge(p, op, exit, edges)


@prints("scf.execute_region", "memref.alloca_scope")
def print_execute_region(p: Printer, op: Operation) -> None:
    if len(op.regions[0].blocks) != 1:
        raise unsupported(op, "with several blocks is not of the last stage", "lower it to cf")
    _, values = p.inline_region(op.regions[0], [])
    for value, regs in zip(op.results, values, strict=True):
        p.set(value, regs)
