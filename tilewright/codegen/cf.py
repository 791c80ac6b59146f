"""cf ops: a region of several blocks -> LLVM blocks and phis.

Blocks print in an order in which definitions come before their uses, whatever order they have in
the IR. Phis are printed first and filled when all edges into their block are known.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import cf
from xdsl.dialects.builtin import FunctionType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.codegen.pointers import string_constant
from tilewright.codegen.printer import Printer, Regs, prints
from tilewright.dialects import mach
from tilewright.dialects.dominance import following, reachable


class Phis:
    """Phis of one block for a list of values: made first, filled as the incoming edges are known."""

    def __init__(self, p: Printer, types: Sequence[Attribute]):
        self.p = p
        self.types = [t for type in types for t in p.registers(type)]
        self.slots = [(p.reserve(), p.fresh()) for _ in self.types]
        self.edges: list[tuple[str, list[str]]] = []
        self.values: list[Regs] = []
        at = 0
        for type in types:
            n = len(p.registers(type))
            self.values.append(tuple(name for _, name in self.slots[at : at + n]))
            at += n

    def edge(self, label: str, values: Sequence[Regs]) -> None:
        self.edges.append((label, [r for regs in values for r in regs]))

    def close(self) -> None:
        for i, (at, name) in enumerate(self.slots):
            pairs = ", ".join(f"[ {regs[i]}, %{label} ]" for label, regs in self.edges)
            self.p.fill(at, f"{name} = phi {self.types[i]} {pairs}")


def print_region(p: Printer, region: Region) -> None:
    """Print a region: a single block in place, several so that uses follow definitions."""
    blocks = list(region.blocks)
    if len(blocks) == 1:
        p.op(p.block_body(blocks[0]))
        return
    print_cfg(p, blocks)


class Cfg:
    """Labels and phis of the blocks of one region being printed."""

    def __init__(self) -> None:
        self.labels: dict[Block, str] = {}
        self.edges: dict[Block, list[tuple[str, list[Regs]]]] = {}
        self.through: list[tuple[str, str]] = []


def print_cfg(p: Printer, blocks: Sequence[Block]) -> None:
    cfg = Cfg()
    order = reachable(blocks[0], following)
    for block in order:
        cfg.labels[block] = p.label("bb")
        cfg.edges[block] = []
    p.regions.append(cfg)
    slots: list[tuple[Block, list[tuple[int, str, str]]]] = []
    for block in order:
        if block is not blocks[0]:
            p.start(cfg.labels[block])
            mine: list[tuple[int, str, str]] = []
            for arg in block.args:
                regs: list[str] = []
                for t in p.registers(arg.type):
                    name = p.fresh()
                    mine.append((p.reserve(), name, t))
                    regs.append(name)
                p.set(arg, regs)
            slots.append((block, mine))
        p.op(p.block_body(block))
    for block, mine in slots:
        incoming = [
            (label, [r for regs in values for r in regs]) for label, values in cfg.edges[block]
        ]
        for i, (at, name, t) in enumerate(mine):
            pairs = ", ".join(f"[ {regs[i]}, %{label} ]" for label, regs in incoming)
            p.fill(at, f"{name} = phi {t} {pairs}")
    p.regions.pop()


def _edge(p: Printer, target: Block, arguments: Sequence[SSAValue]) -> str:
    """Record a branch from the current block to `target`; the label to branch to.

    A second edge to the same block goes through a block of its own, which `_close` prints: a phi
    knows its incoming values by block.
    """
    cfg = p.regions[-1]
    values = [p.get(v) for v in arguments]
    if not any(label == p.block for label, _ in cfg.edges[target]):
        cfg.edges[target].append((p.block, values))
        return cfg.labels[target]
    through = p.label("edge")
    cfg.edges[target].append((through, values))
    cfg.through.append((through, cfg.labels[target]))
    return through


def _close(p: Printer, text: str) -> None:
    """End the current block with a branch, then print the blocks that its edges go through."""
    p.line(text)
    through, p.regions[-1].through = p.regions[-1].through, []
    for label, goal in through:
        p.start(label)
        p.line(f"br label %{goal}")


@prints("cf.br")
def print_branch(p: Printer, op: Operation) -> None:
    _close(p, f"br label %{_edge(p, op.successors[0], list(op.operands))}")


@prints("cf.cond_br")
def print_conditional_branch(p: Printer, op: cf.ConditionalBranchOp) -> None:
    then = _edge(p, op.then_block, op.then_arguments)
    other = _edge(p, op.else_block, op.else_arguments)
    _close(p, f"br i1 {p.one(op.cond)}, label %{then}, label %{other}")


@prints("cf.switch")
def print_switch(p: Printer, op: cf.SwitchOp) -> None:
    (t,) = p.registers(op.flag.type)
    default = _edge(p, op.default_block, op.default_operands)
    values = () if op.case_values is None else op.case_values.get_values()
    pairs = zip(values, op.case_blocks, op.case_operand, strict=True)
    cases = [f"{t} {value}, label %{_edge(p, to, given)}" for value, to, given in pairs]
    _close(p, f"switch {t} {p.one(op.flag)}, label %{default} [ {' '.join(cases)} ]")


@prints("cf.assert")
def print_assert(p: Printer, op: cf.AssertOp) -> None:
    """A failed assertion calls the runtime, which reports the message; if that returns, so does
    the function, with zeros: native code cannot be unwound further."""
    _print_check(p, op, "tw_assert_failed", op.msg.data)


@prints("mach.assert")
def print_check(p: Printer, op: mach.AssertOp) -> None:
    _print_check(p, op, op.callee, op.message)


def _print_check(p: Printer, op: Operation, callee: str, message: str) -> None:
    condition, *others = op.operands
    text = string_constant(p, message)
    arguments = [pair for v in others for pair in zip(p.registers(v.type), p.get(v), strict=True)]
    fail, on = p.label("assert"), p.label("on")
    p.line(f"br i1 {p.one(condition)}, label %{on}, label %{fail}")
    p.start(fail)
    p.call("void", callee, [("ptr", text), *arguments])
    p.line(_return_of_zeros(p, op))
    p.start(on)


def _return_of_zeros(p: Printer, op: Operation) -> str:
    function = op
    while function.name != "func.func" and (parent := function.parent_op()) is not None:
        function = parent
    type = function.properties.get("function_type")
    if not isinstance(type, FunctionType):
        return "unreachable"
    registers = [t for result in type.outputs for t in p.registers(result)]
    if not registers:
        return "ret void"
    if len(registers) == 1:
        return f"ret {registers[0]} zeroinitializer"
    return f"ret {{ {', '.join(registers)} }} zeroinitializer"


@prints("ub.unreachable", "llvm.unreachable")
def print_unreachable(p: Printer, op: Operation) -> None:
    p.line("unreachable")
