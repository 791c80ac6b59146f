"""vector ops that move components: broadcast, extract, insert, shuffle, transpose, slices, masks.

Each is one numpy expression on component numbers: the op's own meaning applied to an array of
indices (see `components`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import DYNAMIC_INDEX, VectorType
from xdsl.ir import Operation

from tilewright.codegen.components import (
    Numbers,
    Source,
    shuffle,
    source_of,
)
from tilewright.codegen.constants import constant_registers
from tilewright.codegen.elementwise import float_elementwise
from tilewright.codegen.masked import first_lanes, splat_register
from tilewright.codegen.printer import Printer, prints, unsupported
from tilewright.codegen.registers import Layout
from tilewright.dialects.movement import ELEMENTS, integers, moved, positions, static_position

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


@prints("vector.extract")
def print_extract(p: Printer, op: Operation) -> None:
    vector, *dynamic = op.operands
    if not dynamic:
        print_movement(p, op)
        return
    position = static_position(op)
    source, (a,) = source_of(p, vector)
    layout = p.layout(vector.type)
    if len(position) != len(layout.shape) or len(layout.counts) != 1 or layout.counts[0] == 1:
        candidates = positions(layout.shape, position)
        _select_row(p, op, source, a, candidates, [p.one(v) for v in dynamic])
        return
    index = _flat_index(p, layout.shape, position, [p.one(v) for v in dynamic])
    p.set(
        op.results[0],
        [p.emit(f"extractelement {layout.types[0]} {p.one(vector)}, i64 {index}")],
    )


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


def _select_row(
    p: Printer,
    op: Operation,
    source: Source,
    a: Numbers,
    candidates: list[tuple[int, ...]],
    dynamic: list[str],
) -> None:
    """A row chosen at run time among registers: a chain of selects (registers have no address)."""
    position = static_position(op)
    layout = p.layout(op.results[0].type)
    value = source.assemble(np.asarray(a[candidates[0]]), layout.counts)
    for index in candidates[1:]:
        test = _match(p, index, position, dynamic)
        other = source.assemble(np.asarray(a[index]), layout.counts)
        value = [
            p.emit(f"select i1 {test}, {t} {x}, {t} {y}")
            for t, x, y in zip(layout.types, other, value, strict=True)
        ]
    p.set(op.results[0], value)


@prints("vector.insert")
def print_insert(p: Printer, op: Operation) -> None:
    part, whole, *dynamic = op.operands
    if not dynamic:
        print_movement(p, op)
        return
    position = static_position(op)
    layout = p.layout(whole.type)
    names = [p.one(v) for v in dynamic]
    scalar = layout.element.llvm
    if len(position) == len(layout.shape) and len(layout.counts) == 1 and layout.counts[0] > 1:
        index = _flat_index(p, layout.shape, position, names)
        p.set(
            op.results[0],
            [
                p.emit(
                    f"insertelement {layout.types[0]} {p.one(whole)}, {scalar} {p.one(part)}, i64 {index}"
                )
            ],
        )
        return
    value = p.get(whole)
    for index in positions(layout.shape, position):
        source = Source(p, scalar)
        x, a = source.add(p.layout(part.type), p.get(part)), source.add(layout, value)
        a = a.copy()
        a[index] = x
        test = _match(p, index, position, names)
        put = source.assemble(a, layout.counts)
        value = tuple(
            old if old == new else p.emit(f"select i1 {test}, {t} {new}, {t} {old}")
            for t, new, old in zip(layout.types, put, value, strict=True)
        )
    p.set(op.results[0], value)


# Made from nothing --------------------------------------------------------------------------------


@prints("vector.step")
def print_step(p: Printer, op: Operation) -> None:
    layout = p.layout(op.results[0].type)
    p.set(op.results[0], constant_registers(list(range(layout.size)), layout))


@prints("vector.constant_mask")
def print_constant_mask(p: Printer, op: Operation) -> None:
    layout = p.layout(op.results[0].type)
    mask = np.zeros(layout.shape, dtype=np.int64)
    mask[tuple(slice(0, n) for n in integers(op, "mask_dim_sizes"))] = 1
    p.set(op.results[0], constant_registers([int(x) for x in mask.reshape(-1)], layout))


@prints("vector.create_mask")
def print_create_mask(p: Printer, op: Operation) -> None:
    """On where every index is below its bound: lanes of a row, and one test per outer index."""
    layout = p.layout(op.results[0].type)
    p.set(op.results[0], box_mask(p, layout, [p.one(v) for v in op.operands]))


def box_mask(p: Printer, layout: Layout, bounds: Sequence[str]) -> list[str]:
    """Mask of the components whose index lies below `bounds` (i64 registers) in every dimension."""
    *outer, inner = layout.shape
    row = p.rep.layout_of(layout.element, (inner,))
    lanes: list[str] = []
    at = 0
    for n in row.counts:
        lanes.append(first_lanes(p, n, at, inner, bounds[-1]))
        at += n
    source = Source(p, "i1")
    rows: list[Numbers] = []
    tests: dict[tuple[int, int], str] = {}
    for index in np.ndindex(*outer):
        test = ""
        for d, i in enumerate(index):
            if (d, i) not in tests:
                tests[d, i] = p.emit(f"icmp sgt i64 {bounds[d]}, {i}")
            test = tests[d, i] if not test else p.emit(f"and i1 {test}, {tests[d, i]}")
        regs = lanes
        if test:
            regs = [
                p.emit(f"select i1 {test}, {t} {m}, {t} zeroinitializer")
                if n > 1
                else p.emit(f"and i1 {test}, {m}")
                for n, t, m in zip(row.counts, row.types, lanes, strict=True)
            ]
        rows.append(source.add(row, tuple(regs)))
    return source.assemble(np.concatenate(rows), layout.counts)


@prints("vector.fma")
def print_vector_fma(p: Printer, op: Operation) -> None:
    float_elementwise(p, op, lambda o, s, x: o.fma(s, *x), native_half=False)


@prints("vector.bitcast")
def print_vector_bitcast(p: Printer, op: Operation) -> None:
    """Bits of the innermost dimension as another width: register for register, or, where every
    component has a register of its own, in groups of them.
    """
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
        raise unsupported(op, f"between {value.type} and {op.results[0].type} crosses registers")
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
