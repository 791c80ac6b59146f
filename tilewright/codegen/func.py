"""func ops: functions, calls and returns; every value passes as the registers of its type.

Several results return as a struct of registers. An external function takes memrefs as MLIR's C
functions do. `mach.kernel` on a function gives it the target's kernel convention; `mach.once` has it
compiled fast, not to be fast; those that are `mach.common` under one name other modules are likely to have, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.codegen.cf import print_region
from tilewright.codegen.memrefs import external_arguments, external_types
from tilewright.codegen.printer import Arg, Printer, attribute, prints, symbol, unsupported
from tilewright.dialects.mach import KERNEL
from tilewright.dialects.upstream.pointer import LLVMPointerType


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
    if "mach.tensor_map" in attrs.data:
        # 128 bytes by value that stay in the parameter space: the copy engine reads them there. No
        # grid_constant would mean a copy on the stack, which it cannot read.
        return ' byval([128 x i8]) align 64 "nvvm.grid_constant"'
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
    if "\0" in name or name.startswith("llvm."):
        raise unsupported(op, f"@{name} is no name for a function: LLVM has it for itself")
    body = op.regions[0]
    results = _result_type([t for r in type.outputs for t in p.registers(r)])
    kernel = KERNEL in op.attributes
    convention = p.target.kernel_convention if kernel else p.target.function_convention
    if body.first_block is None:
        p.declare(name, results, [t for a in type.inputs for t in external_types(p, a)])
        return
    p.begin()
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
    print_region(p, body)
    private = attribute(op, "sym_visibility")
    linkage = "internal" if isinstance(private, StringAttr) and private.data == "private" else ""
    head = " ".join(x for x in ("define", linkage, convention, results) if x)
    metadata = "".join(
        f" !{key.removeprefix('spirv.')} {p.metadata_node(_int_node(value))}"
        for key, value in op.attributes.items()
        if key in ("spirv.reqd_work_group_size", "spirv.intel_reqd_sub_group_size")
    )
    words = _nvvm_attributes(op) + " optnone noinline" * ("mach.once" in op.attributes)
    signature = f"{head} {symbol(name)}({', '.join(parameters)}) #0{words}{metadata} {{"
    text = "\n".join([signature, "entry:", *p.entry, *p.lines, "}\n"])
    p.functions.append(text)
    if isinstance(group := op.attributes.get("mach.common"), StringAttr):
        types = ", ".join(parameter.rpartition(" ")[0] for parameter in parameters)
        p.common.setdefault(group.data, {})[text] = (
            f"declare{head.removeprefix('define')} {symbol(name)}({types})"
        )


def _int_node(attr: Attribute) -> str:
    values: Sequence[int]
    if isinstance(attr, IntegerAttr):
        values = [attr.value.data]
    else:
        assert isinstance(attr, DenseArrayBase)
        values = [int(v) for v in attr.get_values()]
    return f"!{{{', '.join(f'i32 {v}' for v in values)}}}"


def _text(text: str) -> str:
    """Inside of quotes in LLVM's text."""
    return symbol(f" {text}")[3:-1]


def _nvvm_attributes(op: Operation) -> str:
    """`nvvm.*` string attributes of a kernel: "nvvm.reqntid" = "384,1,1" and the like."""
    return "".join(
        f' "{_text(key)}"="{_text(value.data)}"'
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
    p.set_results(op, regs)


def _flat(p: Printer, values: Sequence[SSAValue]) -> list[Arg]:
    return [a for v in values for a in zip(p.registers(v.type), p.get(v), strict=True)]


@prints("func.call")
def print_direct_call(p: Printer, op: Operation) -> None:
    """A function of this module takes registers; an external one memrefs as in C."""
    name = _symbol(attribute(op, "callee"))
    if name in p.externals:
        arguments = [a for v in op.operands for a in external_arguments(p, v)]
    else:
        arguments = _flat(p, list(op.operands))
    print_call(p, op, symbol(name), arguments)


@prints("mach.call")
def print_runtime_call(p: Printer, op: Operation) -> None:
    name = _symbol(attribute(op, "callee"))
    arguments = _flat(p, list(op.operands))
    result = _result_type([t for r in op.results for t in p.registers(r.type)])
    p.declare(name, result, [t for t, _ in arguments])
    print_call(p, op, symbol(name), arguments)


@prints("mach.call_indirect")
def print_indirect_call(p: Printer, op: Operation) -> None:
    print_call(p, op, p.one(op.operands[0]), _flat(p, list(op.operands[1:])))
