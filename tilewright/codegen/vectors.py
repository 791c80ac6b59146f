"""vector ops that move components: broadcast, extract, insert, shuffle, transpose, slices, masks.

Each is one numpy expression on component numbers: the op's own meaning applied to an array of
indices (see `components`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX, VectorType
from xdsl.ir import Operation

from tilewright.codegen.components import ComponentSource, shuffle, source_of
from tilewright.codegen.constants import constant_registers
from tilewright.codegen.elementwise import float_elementwise
from tilewright.codegen.masked import splat_register
from tilewright.codegen.printer import Printer, Regs, prints, unsupported
from tilewright.codegen.registers import RegisterLayout, llvm_vector
from tilewright.dialects.movement import (
    ELEMENTS,
    integers,
    moved,
    positions,
    positions_at_run_time,
    static_position,
)

# Whole-vector rearrangements ----------------------------------------------------------------------


@prints(*ELEMENTS)
def print_movement(p: Printer, op: Operation) -> None:
    """Each result's components, by the op's own meaning."""
    source, numbers = source_of(p, *op.operands)
    for result, made in zip(op.results, moved(op, *numbers), strict=True):
        p.set(result, source.assemble(made, p.layout(result.type).counts))


@prints("vector.broadcast")
def print_broadcast(p: Printer, op: Operation) -> None:
    (value,) = op.operands
    if isinstance(value.type, VectorType):
        print_movement(p, op)
        return
    layout = p.layout(op.results[0].type)
    reg = p.one(value)
    made: dict[int, str] = {}
    for n in layout.counts:
        if n not in made:
            made[n] = splat_register(p, n, layout.element.llvm, reg)
    p.set(op.results[0], [made[n] for n in layout.counts])


@prints("vector.shape_cast")
def print_shape_cast(p: Printer, op: Operation) -> None:
    (value,) = op.operands
    if p.layout(value.type).counts == p.layout(op.results[0].type).counts:
        p.set(op.results[0], p.get(value))
    else:
        print_movement(p, op)


@prints("vector.transpose")
def print_transpose(p: Printer, op: Operation) -> None:
    layout = p.layout(op.operands[0].type)
    if integers(op, "permutation") == [1, 0] and p.rep.widths is None:
        rows, columns = layout.shape
        if rows == columns and rows > 1 and rows & (rows - 1) == 0 and len(layout.counts) == rows:
            scalar = layout.element.llvm
            p.set(op.results[0], transpose_square(p, scalar, list(p.get(op.operands[0]))))
            return
    print_movement(p, op)


def transpose_square(p: Printer, scalar: str, rows: list[str]) -> list[str]:
    """Transpose n registers of n components (n a power of two) in log2(n) rounds of n two-source
    shuffles.

    Round with distance d exchanges, in every pair of rows d apart, the off-diagonal d x d blocks.
    """
    n = len(rows)
    d = 1
    while d < n:
        low = [k if not k & d else n + k - d for k in range(n)]
        high = [k + d if not k & d else n + k for k in range(n)]
        out = list(rows)
        for r in range(n):
            if not r & d:
                a, b = rows[r], rows[r + d]
                out[r] = shuffle(p, scalar, n, a, b, low)
                out[r + d] = shuffle(p, scalar, n, a, b, high)
        rows = out
        d *= 2
    return rows


@prints("mach.join")
def print_join(p: Printer, op: Operation) -> None:
    if p.rep.widths == (1,):
        p.set(op.results[0], [r for v in op.operands for r in p.get(v)])
        return
    source, numbers = source_of(p, *op.operands)
    layout = p.layout(op.results[0].type)
    p.set(op.results[0], source.assemble(np.concatenate(numbers), layout.counts))


# Single components and rows -----------------------------------------------------------------------


@prints("vector.extract", "vector.insert")
def print_at_position(p: Printer, op: Operation) -> None:
    """At a position known at run time: by the number of the component of a register; among several registers, which
    have no address, by a chain of selects."""
    dynamic = positions_at_run_time(op)
    if not dynamic:
        print_movement(p, op)
        return
    *parts, whole = op.operands[: len(op.operands) - len(dynamic)]
    position, names = static_position(op), [p.one(v) for v in dynamic]
    layout, result = p.layout(whole.type), p.layout(op.results[0].type)
    if len(position) == len(layout.shape) and len(layout.counts) == 1 and layout.counts[0] > 1:
        index, register = _flat_index(p, layout.shape, position, names), p.one(whole)
        new = "".join(f", {layout.element.llvm} {p.one(part)}" for part in parts)
        verb = "insertelement" if parts else "extractelement"
        p.set(op.results[0], [p.emit(f"{verb} {layout.types[0]} {register}{new}, i64 {index}")])
        return
    source, numbers = source_of(p, *parts, whole)
    kept = [*p.get(whole)] if parts else None
    value = kept
    for index in positions(layout.shape, position):
        known = [n for n, q in zip(index, position, strict=True) if q == DYNAMIC_INDEX]
        (made,) = moved(op, *numbers, *map(np.asarray, known))
        found = source.assemble(made, result.counts)
        if value is None:
            value = found
            continue
        test = _match(p, index, position, names)
        same = kept or value
        value = [
            old if new == before else p.emit(f"select i1 {test}, {t} {new}, {t} {old}")
            for t, new, old, before in zip(result.types, found, value, same, strict=True)
        ]
    assert value is not None
    p.set(op.results[0], value)


def _flat_index(
    p: Printer, shape: Sequence[int], position: Sequence[int], dynamic: Sequence[str]
) -> str:
    """Row-major number of a component, some of whose indices are registers."""
    runtime = iter(dynamic)
    total, text = 0, ""
    for d, q in enumerate(position):
        stride = int(np.prod(shape[d + 1 :], dtype=np.int64))
        if q != DYNAMIC_INDEX:
            total += q * stride
            continue
        term = next(runtime)
        if stride != 1:
            term = p.emit(f"mul i64 {term}, {stride}")
        text = term if not text else p.emit(f"add i64 {text}, {term}")
    if not text:
        return str(total)
    return p.emit(f"add i64 {text}, {total}") if total else text


def _match(p: Printer, index: tuple[int, ...], position: Sequence[int], dynamic: list[str]) -> str:
    """i1: are the dynamic entries of `position` those of `index`?"""
    runtime = iter(dynamic)
    test = ""
    for i, q in zip(index, position, strict=True):
        if q == DYNAMIC_INDEX:
            here = p.emit(f"icmp eq i64 {next(runtime)}, {i}")
            test = here if not test else p.emit(f"and i1 {test}, {here}")
    return test


# Made from nothing --------------------------------------------------------------------------------


@prints("vector.step")
def print_step(p: Printer, op: Operation) -> None:
    layout = p.layout(op.results[0].type)
    p.set(op.results[0], constant_registers(list(range(layout.size)), layout))


@prints("vector.fma")
def print_vector_fma(p: Printer, op: Operation) -> None:
    float_elementwise(p, op, lambda o, s, x: o.fma(s, *x), native_half=False)


@prints("vector.bitcast")
def print_vector_bitcast(p: Printer, op: Operation) -> None:
    """Bits of the innermost dimension as another width: register for register, or in groups of registers."""
    (value,) = op.operands
    src, dst = p.layout(value.type), p.layout(op.results[0].type)
    regs = p.get(value)
    if len(src.counts) == len(dst.counts):
        p.set(
            op.results[0],
            [
                r if a == b else p.emit(f"bitcast {a} {r} to {b}")
                for a, b, r in zip(src.types, dst.types, regs, strict=True)
            ],
        )
        return
    if p.rep.widths != (1,):
        p.set(op.results[0], _regrouped(p, op, src, dst, regs))
        return
    narrow, wide = src.element, dst.element
    out: list[str] = []
    if len(src.counts) > len(dst.counts):
        each = len(src.counts) // len(dst.counts)
        for at in range(0, len(regs), each):
            out.append(p.pack(regs[at : at + each], narrow.llvm, wide.llvm))
    else:
        each = len(dst.counts) // len(src.counts)
        for r in regs:
            out += p.split(r, narrow.llvm, wide.llvm, each)
    p.set(op.results[0], out)


def _regrouped(
    p: Printer, op: Operation, src: RegisterLayout, dst: RegisterLayout, regs: Regs
) -> list[str]:
    """Bits as another width where registers of both have the most components that there are."""
    widens = src.element.bits < dst.element.bits
    few, many = (src, dst) if widens else (dst, src)
    factor = src.size // dst.size if widens else dst.size // src.size
    if any(count % factor for count in few.counts):
        types = f"{op.operands[0].type} and {op.results[0].type}"
        raise unsupported(op, f"between {types} crosses registers")
    counts = [count // factor for count in few.counts]
    types = [llvm_vector(count, many.element.llvm) for count in counts]
    source = ComponentSource(p, many.element.llvm)
    if widens:
        for a, b, r, n in zip(src.types, types, regs, counts, strict=True):
            source.add(p.rep.layout_of(dst.element, (n,)), (p.emit(f"bitcast {a} {r} to {b}"),))
        return source.assemble(np.arange(dst.size), dst.counts)
    source.add(src, regs)
    parts = source.assemble(np.arange(src.size), counts)
    return [
        p.emit(f"bitcast {a} {r} to {b}") for a, b, r in zip(types, dst.types, parts, strict=True)
    ]
