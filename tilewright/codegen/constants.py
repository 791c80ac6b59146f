"""Constants: MLIR attributes as LLVM operand texts. A constant prints nothing by itself."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import Operation

from tilewright.codegen.lane_ops import float_text, splat
from tilewright.codegen.printer import Printer, attribute, prints, unsupported
from tilewright.codegen.registers import Element, RegisterLayout


def narrow_float_bits(value: float, name: str) -> int:
    """Bits of `value` in a float type that lives in an integer register."""
    import ml_dtypes

    types = {
        "bf16": ml_dtypes.bfloat16,
        "f16": np.float16,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn,
        "f8E5M2": ml_dtypes.float8_e5m2,
        "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    }
    with np.errstate(over="ignore"):
        narrow = np.array(value, dtype=np.float64).astype(types[name])
    return int(narrow.view(np.uint16 if narrow.itemsize == 2 else np.uint8))


def constant_text(value: float, element: Element) -> str:
    """LLVM text of one component."""
    if element.is_float:
        if element.llvm.startswith("i"):
            return str(narrow_float_bits(value, element.name))
        if element.name == "tf32":
            bits = int(np.array(value, dtype=np.float32).view(np.uint32))
            kept = (bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000
            if not np.isnan(value):
                value = float(np.array(kept, dtype=np.uint32).view(np.float32))
        return float_text(value, element.llvm)
    if element.llvm == "i1":
        return "true" if value else "false"
    return str(int(value))


def constant_texts(values: Sequence[float], element: Element) -> list[str]:
    """LLVM texts of components; equal ones are made once."""
    texts: dict[tuple[float, float], str] = {}
    out: list[str] = []
    for v in values:
        key = (v, copysign(1.0, v))  # 0.0 == -0.0
        if (text := texts.get(key)) is None:
            text = texts[key] = constant_text(v, element)
        out.append(text)
    return out


def constant_registers(values: list[float] | list[int], layout: RegisterLayout) -> list[str]:
    """Operands of a constant; `values` has one entry per component, or one for all."""
    element = layout.element
    if len(values) == 1:
        text = constant_text(values[0], element)
        return [splat(n, element.llvm, text) for n in layout.counts]
    texts = constant_texts(values, element)
    out: list[str] = []
    at = 0
    for n in layout.counts:
        part = texts[at : at + n]
        at += n
        if n == 1:
            out.append(part[0])
        elif part.count(part[0]) == n:
            out.append(splat(n, element.llvm, part[0]))
        else:
            out.append(f"<{', '.join(f'{element.llvm} {t}' for t in part)}>")
    return out


@prints("arith.constant", "index.constant", "llvm.mlir.constant")
def print_constant(p: Printer, op: Operation) -> None:
    value = attribute(op, "value")
    layout = p.layout(op.results[0].type)
    if isinstance(value, IntegerAttr | FloatAttr):
        p.set(op.results[0], constant_registers([value.value.data], layout))
    elif isinstance(value, DenseIntOrFPElementsAttr):
        # A part of a splat may hold the bytes of the whole.
        values = list(value.get_values())[: max(1, layout.size)]
        p.set(op.results[0], constant_registers(values, layout))  # pyright: ignore[reportArgumentType]
    else:
        raise unsupported(op, f"constant {value} is not a number or dense elements")


@prints("index.bool.constant")
def print_bool_constant(p: Printer, op: Operation) -> None:
    value = attribute(op, "value")
    on = isinstance(value, IntegerAttr) and bool(value.value.data)
    p.set(op.results[0], ["true" if on else "false"])


@prints("ub.poison", "llvm.mlir.undef")
def print_poison(p: Printer, op: Operation) -> None:
    p.set(op.results[0], ["poison"] * len(p.registers(op.results[0].type)))


@prints("llvm.mlir.zero")
def print_zero(p: Printer, op: Operation) -> None:
    types = p.registers(op.results[0].type)
    p.set(op.results[0], ["null" if t.startswith("ptr") else "zeroinitializer" for t in types])


@prints("index.sizeof")
def print_sizeof(p: Printer, op: Operation) -> None:
    """Bits of an index."""
    p.set(op.results[0], ["64"])
