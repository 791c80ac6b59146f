"""Functions and control flow: func, scf and cf ops -> LLVM functions, blocks and phis.

A counted loop prints in rotated form, one block for its body and one back edge; no LLVM pass needs
to run for it:

    pre:   br (lb < ub), body, exit          (no test when the bounds are constants, or with
    `mach.nonempty`) body:  iv, carried values = phi ... ; iv' = iv + step ; br (iv' < ub), body,
    exit exit:  results = phi
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.dialects.llvm import LLVMPointerType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.codegen.memrefs import external_arguments, external_types
from tilewright.codegen.printer import Arg, Printer, Regs, attribute, prints, unsupported

# Functions ----------------------------------------------------------------------------------------


def _symbol(attr: Attribute | None) -> str:
    if isinstance(attr, StringAttr):
        return attr.data
    assert isinstance(attr, SymbolRefAttr)
    return attr.string_value()


def _result_type(types: Sequence[str]) -> str:
    if not types:
        return "void"
    return types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"


def _parameter_attributes(p: Printer, attrs: DictionaryAttr | None, type: Attribute) -> str:
    """LLVM parameter attributes from the `llvm.*` entries of an argument's dictionary."""
    if attrs is None or not isinstance(type, LLVMPointerType):
        return ""
    words: list[str] = []
    for key, value in attrs.data.items():
        if key in ("llvm.noalias", "llvm.readonly", "llvm.writeonly", "llvm.nonnull"):
            words.append(key[5:])
        elif key in ("llvm.align", "llvm.dereferenceable") and isinstance(value, IntegerAttr):
            n = value.value.data
            words.append(f"align {n}" if key == "llvm.align" else f"dereferenceable({n})")
    return "".join(f" {w}" for w in words)


@prints("func.func")
def print_function(p: Printer, op: Operation) -> None:
    name = _symbol(attribute(op, "sym_name"))
    type = attribute(op, "function_type")
    assert isinstance(type, FunctionType)
    body = op.regions[0]
    results = _result_type([t for r in type.outputs for t in p.registers(r)])
    kernel = "mach.kernel" in op.attributes
    convention = p.target.kernel_convention if kernel else p.target.function_convention
    if body.first_block is None:
        p.declare(name, results, [t for a in type.inputs for t in external_types(p, a)])
        return
    p.lines, p.entry, p.values = [], [], {}
    p.defined.add(name)
    arg_attrs = attribute(op, "arg_attrs")
    parameters: list[str] = []
    for i, arg in enumerate(body.blocks[0].args):
        attrs = arg_attrs.data[i] if isinstance(arg_attrs, ArrayAttr) else None
        words = _parameter_attributes(
            p, attrs if isinstance(attrs, DictionaryAttr) else None, arg.type
        )
        regs: list[str] = []
        for t in p.registers(arg.type):
            regs.append(p.fresh())
            parameters.append(f"{t}{words} {regs[-1]}")
        p.set(arg, regs)
    p.block = "entry"
    print_region(p, body)
    private = attribute(op, "sym_visibility")
    linkage = "internal" if isinstance(private, StringAttr) and private.data == "private" else ""
    head = " ".join(x for x in ("define", linkage, convention, results) if x)
    metadata = "".join(
        f" !{key.removeprefix('spirv.')} {p.metadata_node(_int_node(value))}"
        for key, value in op.attributes.items()
        if key in ("spirv.reqd_work_group_size", "spirv.intel_reqd_sub_group_size")
    )
    words = _nvvm_attributes(op)
    p.functions.append(f"{head} @{name}({', '.join(parameters)}) #0{words}{metadata} {{")
    p.functions.append("entry:")
    p.functions += p.entry
    p.functions += p.lines
    p.functions.append("}\n")


def _int_node(attr: Attribute) -> str:
    values: Sequence[int]
    if isinstance(attr, IntegerAttr):
        values = [attr.value.data]
    else:
        assert isinstance(attr, DenseArrayBase)
        values = [int(v) for v in attr.get_values()]
    return f"!{{{', '.join(f'i32 {v}' for v in values)}}}"


def _nvvm_attributes(op: Operation) -> str:
    """`nvvm.*` string attributes of a kernel: "nvvm.reqntid" = "384,1,1" and the like."""
    return "".join(
        f' "{key}"="{value.data}"'
        for key, value in op.attributes.items()
        if key.startswith("nvvm.") and isinstance(value, StringAttr)
    )


@prints("func.return")
def print_return(p: Printer, op: Operation) -> None:
    regs = [(t, r) for v in op.operands for t, r in zip(p.registers(v.type), p.get(v), strict=True)]
    if not regs:
        p.line("ret void")
    elif len(regs) == 1:
        p.line(f"ret {regs[0][0]} {regs[0][1]}")
    else:
        struct = _result_type([t for t, _ in regs])
        value = "poison"
        for i, (t, r) in enumerate(regs):
            value = p.emit(f"insertvalue {struct} {value}, {t} {r}, {i}")
        p.line(f"ret {struct} {value}")


def print_call(p: Printer, op: Operation, callee: str, arguments: Sequence[Arg]) -> None:
    """Call of `callee` (a symbol or a register); results set."""
    args = ", ".join(f"{t} {r}" for t, r in arguments)
    types = [t for r in op.results for t in p.registers(r.type)]
    convention = p.target.function_convention
    text = (
        " ".join(x for x in ("call", convention, _result_type(types)) if x) + f" {callee}({args})"
    )
    if not types:
        p.line(text)
        return
    value = p.emit(text)
    regs = (
        [value]
        if len(types) == 1
        else [p.emit(f"extractvalue {_result_type(types)} {value}, {i}") for i in range(len(types))]
    )
    at = 0
    for r in op.results:
        n = len(p.registers(r.type))
        p.set(r, regs[at : at + n])
        at += n


def _flat(p: Printer, values: Sequence[SSAValue]) -> list[Arg]:
    return [a for v in values for a in zip(p.registers(v.type), p.get(v), strict=True)]


@prints("func.call")
def print_direct_call(p: Printer, op: Operation) -> None:
    """A function of this module takes registers; an external one takes memrefs as MLIR's C
    functions do.
    """
    name = _symbol(attribute(op, "callee"))
    if name in p.externals:
        arguments = [a for v in op.operands for a in external_arguments(p, v)]
    else:
        arguments = _flat(p, list(op.operands))
    print_call(p, op, f"@{name}", arguments)


@prints("mach.call")
def print_runtime_call(p: Printer, op: Operation) -> None:
    name = _symbol(attribute(op, "callee"))
    arguments = _flat(p, list(op.operands))
    result = _result_type([t for r in op.results for t in p.registers(r.type)])
    p.declare(name, result, [t for t, _ in arguments])
    print_call(p, op, f"@{name}", arguments)


@prints("mach.call_indirect")
def print_indirect_call(p: Printer, op: Operation) -> None:
    print_call(p, op, p.one(op.operands[0]), _flat(p, list(op.operands[1:])))


# Regions and branches -----------------------------------------------------------------------------


def print_region(p: Printer, region: Region) -> None:
    """Print a region with its terminators; a single block in place, several in an order where uses
    follow definitions.
    """
    blocks = list(region.blocks)
    if len(blocks) == 1:
        p.op(p.block_body(blocks[0]))
        return
    print_cfg(p, blocks)


def _reverse_postorder(entry: Block) -> list[Block]:
    """Blocks reachable from `entry`, each after its dominators. Iterative: host programs may have
    long chains.
    """
    order: list[Block] = []
    seen = {entry}
    stack: list[tuple[Block, int]] = [(entry, 0)]
    while stack:
        block, i = stack.pop()
        last = block.last_op
        successors = list(last.successors) if last is not None else []
        if i < len(successors):
            stack.append((block, i + 1))
            if successors[i] not in seen:
                seen.add(successors[i])
                stack.append((successors[i], 0))
        else:
            order.append(block)
    return order[::-1]


class Cfg:
    """Labels and phis of the blocks of one region being printed."""

    def __init__(self) -> None:
        self.labels: dict[Block, str] = {}
        self.edges: dict[Block, list[tuple[str, list[Regs]]]] = {}
        self.through: list[tuple[str, str]] = []


def print_cfg(p: Printer, blocks: Sequence[Block]) -> None:
    cfg = Cfg()
    order = _reverse_postorder(blocks[0])
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
def print_conditional_branch(p: Printer, op: Operation) -> None:
    sizes = attribute(op, "operandSegmentSizes")
    assert isinstance(sizes, DenseArrayBase)
    _, n, _ = (int(x) for x in sizes.get_values())
    operands = list(op.operands)
    then = _edge(p, op.successors[0], operands[1 : 1 + n])
    other = _edge(p, op.successors[1], operands[1 + n :])
    _close(p, f"br i1 {p.one(operands[0])}, label %{then}, label %{other}")


@prints("cf.switch")
def print_switch(p: Printer, op: Operation) -> None:
    flag, operands = op.operands[0], list(op.operands)
    sizes = attribute(op, "operandSegmentSizes")
    assert isinstance(sizes, DenseArrayBase)
    _, n, _ = (int(x) for x in sizes.get_values())
    (t,) = p.registers(flag.type)
    default = _edge(p, op.successors[0], operands[1 : 1 + n])
    values = attribute(op, "case_values")
    cases: list[str] = []
    if isinstance(values, DenseIntOrFPElementsAttr):
        segments = attribute(op, "case_operand_segments")
        assert isinstance(segments, DenseArrayBase)
        at = 1 + n
        for value, size, target in zip(
            values.get_values(), segments.get_values(), op.successors[1:], strict=True
        ):
            label = _edge(p, target, operands[at : at + int(size)])
            cases.append(f"{t} {value}, label %{label}")
            at += int(size)
    _close(p, f"switch {t} {p.one(flag)}, label %{default} [ {' '.join(cases)} ]")


@prints("cf.assert")
def print_assert(p: Printer, op: Operation) -> None:
    """A failed assertion calls the runtime, which reports the message and does not return."""
    message = attribute(op, "msg")
    assert isinstance(message, StringAttr)
    from tilewright.codegen.memory import string_constant

    text = string_constant(p, message.data)
    fail, on = p.label("assert"), p.label("on")
    p.line(f"br i1 {p.one(op.operands[0])}, label %{on}, label %{fail}")
    p.start(fail)
    p.call("void", "tw_assert_failed", [("ptr", text)])
    p.line("unreachable")
    p.start(on)


@prints("ub.unreachable", "llvm.unreachable")
def print_unreachable(p: Printer, op: Operation) -> None:
    p.line("unreachable")


# Structured control flow --------------------------------------------------------------------------


class _Phis:
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


def constant_integer(value: SSAValue) -> int | None:
    """The integer that `value` is, when an arith.constant defines it."""
    owner = value.owner
    if isinstance(owner, ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data
    return None


@prints("scf.for")
def print_for(p: Printer, op: Operation) -> None:
    lower, upper, step, *initial = op.operands
    (t,) = p.registers(lower.type)
    lb, ub, by = p.one(lower), p.one(upper), p.one(step)
    types = [v.type for v in initial]
    start = [p.get(v) for v in initial]
    less = "ult" if attribute(op, "unsignedCmp") is not None else "slt"
    low, high = constant_integer(lower), constant_integer(upper)
    runs = "mach.nonempty" in op.attributes or (
        low is not None and high is not None and low < high and less == "slt"
    )
    body, exit, before = p.label("loop"), p.label("exit"), p.block
    if runs:
        p.line(f"br label %{body}")
    else:
        test = p.emit(f"icmp {less} {t} {lb}, {ub}")
        p.line(f"br i1 {test}, label %{body}, label %{exit}")
    p.start(body)
    iv_slot, iv = p.reserve(), p.fresh()
    carried = _Phis(p, types)
    carried.edge(before, start)
    _, results = p.inline_region(op.regions[0], [(iv,), *carried.values])
    flags = "nsw " if t == "i64" and less == "slt" else ""
    following = p.emit(f"add {flags}{t} {iv}, {by}")
    again = p.emit(f"icmp {less} {t} {following}, {ub}")
    latch = p.block
    p.line(f"br i1 {again}, label %{body}, label %{exit}")
    p.fill(iv_slot, f"{iv} = phi {t} [ {lb}, %{before} ], [ {following}, %{latch} ]")
    carried.edge(latch, results)
    carried.close()
    p.start(exit)
    if not runs:
        merged = _Phis(p, types)
        merged.edge(before, start)
        merged.edge(latch, results)
        merged.close()
        results = merged.values
    for value, regs in zip(op.results, results, strict=True):
        p.set(value, regs)


@prints("scf.while")
def print_while(p: Printer, op: Operation) -> None:
    head, body, exit, before = p.label("while"), p.label("do"), p.label("exit"), p.block
    p.line(f"br label %{head}")
    p.start(head)
    arguments = list(op.operands)
    carried = _Phis(p, [v.type for v in arguments])
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
    merged = _Phis(p, [r.type for r in op.results])
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


@prints("scf.index_switch")
def print_index_switch(p: Printer, op: Operation) -> None:
    cases = attribute(op, "cases")
    assert isinstance(cases, DenseArrayBase)
    exit, default = p.label("endswitch"), p.label("default")
    labels = [p.label("case") for _ in cases.get_values()]
    arms = " ".join(
        f"i64 {v}, label %{label}" for v, label in zip(cases.get_values(), labels, strict=True)
    )
    p.line(f"switch i64 {p.one(op.operands[0])}, label %{default} [ {arms} ]")
    edges: list[tuple[str, list[Regs]]] = []
    for label, region in zip([default, *labels], op.regions, strict=True):
        p.start(label)
        _, values = p.inline_region(region, [])
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
