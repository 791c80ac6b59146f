"""A callee table, and printing a lowered module with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from importlib import import_module

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, SymbolRefAttr, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright.codegen import emit_module, spirv
from tilewright.codegen.components import ComponentSource
from tilewright.codegen.lanes import builtin_name
from tilewright.codegen.printer import Arg, Printer, attribute, prints, unsupported
from tilewright.codegen.registers import LANES, RegisterLayout, llvm_vector
from tilewright.codegen.remote import generate_spirv
from tilewright.codegen.target import Handler, LLVMTarget
from tilewright.dialects.movement import memref_type
from tilewright.dialects.nesting import ops_around
from tilewright.dialects.upstream.gpu.memory import is_shared
from tilewright.frozen import frozen
from tilewright.targets.xe import soft
from tilewright.targets.xe.forms import Block2D, Form, is_soft, parse

Callee = Callable[[Printer, Operation, str, Form, list[Arg]], str]
"""Prints what a neutral callee stands for: (printer, op, callee, form, arguments) -> its result ("" for none)."""


@frozen
class Table:
    """One meaning of the neutral callees."""

    name: str
    callee: Callee
    extensions: tuple[str, ...] = ()
    """SPIR-V extensions that its modules may use; they declare those that they do use."""
    version: str = ""
    """SPIR-V version, where a consumer needs an old one."""
    finish: Callable[[bytes], bytes] = field(default=lambda data: data)
    """Last change of the SPIR-V words."""
    values: str = LANES.name
    """How it cuts fragments into registers (`codegen.registers`)."""
    text: Callable[[str], str] = field(default=lambda text: text)
    """Last change of the LLVM text."""


def neutral(p: Printer, op: Operation, callee: str, form: Form, args: list[Arg]) -> str:
    """The callee as it is, declared."""
    types = [t for r in op.results for t in LANES.registers(r.type)]
    return p.call(types[0] if types else "void", callee, args)


def define(p: Printer, callee: str, body: Callable[[], str], apart: bool) -> None:
    """Put a function of `soft` into the module, once; `apart` keeps it a function of its own."""
    if callee in p.defined:
        return
    p.defined.add(callee)
    # A driver inlines a block's few instructions; a CPU's runtime would inline products for minutes.
    p.functions.append(body().replace("ATTRIBUTE", "noinline" if apart else "alwaysinline"))
    for name, text in soft.declarations().items():
        p.declarations.setdefault(name, text)


def define_block(p: Printer, callee: str, form: Block2D, lanes: int, apart: bool) -> None:
    define(p, callee, lambda: soft.block(callee, form, lanes), apart)


def lanes_of(op: Operation) -> int:
    """Lanes of the kernel that an op stands in."""
    for scope in (op, *ops_around(op)):
        size = scope.attributes.get("spirv.intel_reqd_sub_group_size")
        if isinstance(size, IntegerAttr):
            return size.value.data
    return 16


def _print_call(table: Table, p: Printer, op: Operation) -> None:
    symbol = attribute(op, "callee")
    assert isinstance(symbol, SymbolRefAttr)
    name = symbol.string_value()
    form = parse(name)
    if form is None:
        prints.by_name["mach.call"](p, op)
        return
    args = [pair for v in op.operands for pair in _whole(p, v)]
    if is_soft(name) and isinstance(form, Block2D) and table.name != "neutral":
        define_block(p, name, form, lanes_of(op), table.name == "emu")
        result = neutral(p, op, name, form, args)
    else:
        result = table.callee(p, op, name, form, args)
    if op.results:
        held, layout = LANES.layout(op.results[0].type), p.layout(op.results[0].type)
        p.set(op.results[0], _cut_anew(p, held, layout, [result]))


def _whole(p: Printer, value: SSAValue) -> list[Arg]:
    """An operand's registers as callees take them: a fragment as a vector, however the table cuts it."""
    if not isinstance(value.type, VectorType):
        return list(zip(p.registers(value.type), p.get(value), strict=True))
    layout = LANES.layout(value.type)
    return list(
        zip(layout.types, _cut_anew(p, p.layout(value.type), layout, p.get(value)), strict=True)
    )


def _cut_anew(
    p: Printer, held: RegisterLayout, layout: RegisterLayout, registers: Sequence[str]
) -> list[str]:
    if held.counts == layout.counts:
        return list(registers)
    source = ComponentSource(p, held.element.llvm)
    return source.assemble(source.add(held, tuple(registers)), layout.counts)


def _print_shared(p: Printer, op: Operation) -> None:
    """Shared memory is a variable of the workgroup; other allocations are as everywhere."""
    kind = memref_type(op.results[0])
    if not is_shared(kind):
        if op.name == "memref.alloc":
            raise unsupported(op, "a kernel has no heap", "allocate in memory space 3")
        prints.by_name[op.name](p, op)
        return
    layout = p.rep.memref(kind)
    size = layout.element_bytes
    for n in layout.sizes:
        size *= n
    name = f"slm{len(p.globals)}"
    p.globals.append(f"@{name} = internal addrspace(3) global [{size} x i8] undef, align 64")
    p.set(op.results[0], [f"@{name}"])


def target_of(table: Table) -> LLVMTarget:
    """The emitter's target that prints through a table."""
    base = spirv(table.version)
    return replace(
        base,
        values=table.values,
        handlers={
            **base.handlers,
            **(bf16_handlers() if "SPV_INTEL_bfloat16_conversion" in table.extensions else {}),
            "mach.call": lambda p, op: _print_call(table, p, op),
            "memref.alloc": _print_shared,
            "memref.alloca": _print_shared,
            "memref.dealloc": lambda p, op: None,
        },
    )


def table(name: str) -> Table:
    """The table called `neutral`, `intel`, `igc` or `emu`."""
    if name == "neutral":
        return Table("neutral", neutral)
    found = import_module(f"tilewright.targets.xe.tables.{name}").TABLE
    assert isinstance(found, Table)
    return found


def emit(module: ModuleOp, name: str) -> str:
    """LLVM IR text of a lowered module."""
    chosen = table(name)
    return chosen.text(emit_module(module, target_of(chosen)))


def emit_spirv(text: str, name: str) -> bytes:
    """SPIR-V of the text that `emit` gave for the same table."""
    chosen = table(name)
    return chosen.finish(generate_spirv(text, target_of(chosen), chosen.extensions))


def bf16_handlers() -> dict[str, Handler]:
    """Conversions between f32 and bf16 as the machine's instruction (SPV_INTEL_bfloat16_conversion)."""

    def narrow(p: Printer, op: Operation) -> None:
        _convert(p, op, "f32", "bf16", "__spirv_ConvertFToBF16INTEL", "i16")

    def widen(p: Printer, op: Operation) -> None:
        _convert(p, op, "bf16", "f32", "__spirv_ConvertBF16ToFINTEL", "float")

    return {"arith.truncf": narrow, "arith.extf": widen}


def _convert(p: Printer, op: Operation, src: str, dst: str, builtin: str, result: str) -> None:
    """A call per register for this pair of types; the emitter's arithmetic for others."""
    (value,) = op.operands
    layout, target = p.layout(value.type), p.layout(op.results[0].type)
    if (layout.element.name, target.element.name) != (src, dst):
        prints.by_name[op.name](p, op)
        return
    made: list[str] = []
    for reg, count, type in zip(p.get(value), layout.counts, layout.types, strict=True):
        name = builtin_name(builtin, type)
        made.append(p.call(llvm_vector(count, result), name, [(type, reg)]))
    p.set(op.results[0], made)
