"""Conversions between f32 and bf16, which lies in 16-bit integers: drivers have an instruction of their own."""

from __future__ import annotations

from xdsl.ir import Operation

from tilewright.codegen.printer import (
    Printer,
    prints,
)
from tilewright.codegen.registers import llvm_vector
from tilewright.codegen.target import Handler


def bf16_handlers() -> dict[str, Handler]:
    """Conversions between f32 and bf16 as the machine's instruction (SPV_INTEL_bfloat16_conversion)."""

    def narrow(p: Printer, op: Operation) -> None:
        _convert(p, op, "f32", "bf16", "__spirv_ConvertFToBF16INTEL", "f", "i16")

    def widen(p: Printer, op: Operation) -> None:
        _convert(p, op, "bf16", "f32", "__spirv_ConvertBF16ToFINTEL", "s", "float")

    return {"arith.truncf": narrow, "arith.extf": widen}


def _convert(
    p: Printer, op: Operation, src: str, dst: str, builtin: str, code: str, result: str
) -> None:
    """A call per register for this pair of types; the emitter's arithmetic for others."""
    (value,) = op.operands
    layout, target = p.layout(value.type), p.layout(op.results[0].type)
    if (layout.element.name, target.element.name) != (src, dst):
        prints.by_name[op.name](p, op)
        return
    made: list[str] = []
    for reg, count, type in zip(p.get(value), layout.counts, layout.types, strict=True):
        suffix = code if count == 1 else f"Dv{count}_{code}"
        name = f"_Z{len(builtin)}{builtin}{suffix}"
        made.append(p.call(llvm_vector(count, result), name, [(type, reg)]))
    p.set(op.results[0], made)
