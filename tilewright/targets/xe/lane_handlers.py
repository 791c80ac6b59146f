"""Ops of a lane that Xe prints in its own way: exchanges between lanes of fragments of any size.

gpu.shuffle moves within segments of `width` lanes; a lane whose source lies outside keeps its own value and
`valid` is false. gpu.subgroup_reduce of a fragment reduces every component over the lanes; narrow floats add in
f32 and round once. bf16 lies in 16-bit integers; drivers convert it by an instruction of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Operation

from tilewright.codegen.convert import convert_float
from tilewright.codegen.elementwise import fast_flags
from tilewright.codegen.lane_ops import Lanes
from tilewright.codegen.lanes import builtin_name, through_words
from tilewright.codegen.printer import (
    COMMON,
    Printer,
    attribute,
    integer_attribute,
    unsupported,
)
from tilewright.codegen.reductions import F32, combiner
from tilewright.codegen.registers import Layout, llvm_vector
from tilewright.codegen.target import Handler

CONVERGENT = " convergent"
_SHUFFLE = "_Z17sub_group_shuffleij"
_XOR = "_Z21sub_group_shuffle_xorij"


def lane_handlers(base: Mapping[str, Handler]) -> dict[str, Handler]:
    """Handlers by op name."""
    return {"gpu.shuffle": _shuffle, "gpu.subgroup_reduce": _reduce}


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
        COMMON[op.name](p, op)
        return
    made: list[str] = []
    for reg, count, type in zip(p.get(value), layout.counts, layout.types, strict=True):
        suffix = code if count == 1 else f"Dv{count}_{code}"
        name = f"_Z{len(builtin)}{builtin}{suffix}"
        made.append(p.call(llvm_vector(count, result), name, [(type, reg)]))
    p.set(op.results[0], made)


def scalars(p: Printer, layout: Layout, regs: tuple[str, ...]) -> list[str]:
    """A fragment's components, one register each."""
    out: list[str] = []
    for reg, count, type in zip(regs, layout.counts, layout.types, strict=True):
        if count == 1:
            out.append(reg)
        else:
            out += [p.emit(f"extractelement {type} {reg}, i64 {i}") for i in range(count)]
    return out


def joined(p: Printer, layout: Layout, parts: list[str]) -> list[str]:
    """Registers of a fragment from its components."""
    out: list[str] = []
    at = 0
    for count, type in zip(layout.counts, layout.types, strict=True):
        value = parts[at] if count == 1 else "poison"
        if count > 1:
            for i in range(count):
                text = (
                    f"insertelement {type} {value}, {layout.element.llvm} {parts[at + i]}, i64 {i}"
                )
                value = p.emit(text)
        out.append(value)
        at += count
    return out


def _word(p: Printer, name: str, x: str, lane: str) -> str:
    return p.call("i32", name, [("i32", x), ("i32", lane)], attrs=CONVERGENT)


def _mode(op: Operation) -> str:
    found = attribute(op, "mode")
    data = getattr(found, "data", found)
    return str(getattr(data, "value", data)).lower().rsplit(".", 1)[-1]


def _shuffle(p: Printer, op: Operation) -> None:
    mode = _mode(op)
    offset, width = p.one(op.operands[1]), p.one(op.operands[2])
    layout = p.layout(op.operands[0].type)
    values = scalars(p, layout, p.get(op.operands[0]))
    if mode == "xor" and width.isdigit() and offset.isdigit() and int(offset) < int(width):
        # Both ends of a pair lie in one segment: nothing to choose.
        moved = [
            through_words(p, layout.element, x, lambda w: _word(p, _XOR, w, offset)) for x in values
        ]
        p.set(op.results[0], joined(p, layout, moved))
        p.set(op.results[1], ["true"])
        return
    lane = p.call("i32", builtin_name("get_sub_group_local_id"), [])
    inner = p.emit(f"urem i32 {lane}, {width}")
    if mode == "rotate":
        source = p.emit(f"urem i32 {p.emit(f'add i32 {inner}, {offset}')}, {width}")
    else:
        name = {"xor": "xor", "up": "sub", "down": "add", "idx": ""}.get(mode)
        if name is None:
            raise unsupported(op, f"mode '{mode}' on {p.target.name}")
        source = p.emit(f"{name} i32 {inner}, {offset}") if name else offset
    valid = p.emit(f"icmp ult i32 {source}, {width}")
    start = p.emit(f"sub i32 {lane}, {inner}")
    other = p.emit(f"add i32 {start}, {source}")
    other = p.emit(f"select i1 {valid}, i32 {other}, i32 {lane}")
    moved = [
        through_words(p, layout.element, x, lambda w: _word(p, _SHUFFLE, w, other)) for x in values
    ]
    p.set(op.results[0], joined(p, layout, moved))
    p.set(op.results[1], [valid])


def _reduce(p: Printer, op: Operation) -> None:
    """A butterfly: every lane ends with the result."""
    function = op.parent_op()
    while function is not None and function.name != "func.func":
        function = function.parent_op()
    assert function is not None
    lanes = integer_attribute(function, "spirv.intel_reqd_sub_group_size", 16)
    size = integer_attribute(op, "cluster_size", lanes)
    stride = integer_attribute(op, "cluster_stride", 1)
    layout = p.layout(op.operands[0].type)
    e = layout.element
    found = attribute(op, "op")
    data = getattr(found, "data", found)
    kind = str(getattr(data, "value", data)).lower().rsplit(".", 1)[-1]
    narrow = e.is_float and e.name not in ("f32", "f64")
    wide = F32 if narrow else e
    combine = combiner(p, op, kind, wide, fast_flags(op))
    one = Lanes(p, 1)
    results: list[str] = []
    for x in scalars(p, layout, p.get(op.operands[0])):
        value = convert_float(p, one, x, e, wide) if narrow else x
        distance, left = stride, size
        while left > 1:
            step = str(distance)
            other = through_words(p, wide, value, lambda w, s=step: _word(p, _XOR, w, s))
            value = combine(1, value, other)
            distance *= 2
            left //= 2
        results.append(convert_float(p, one, value, wide, e) if narrow else value)
    p.set(op.results[0], joined(p, layout, results))
