"""vector ops on memrefs: load, store, masked and indexed access, transfer_read and transfer_write.

A transfer takes one access per row: plain where the row is known to lie inside and contiguous,
masked where it may end early, gathered where its stride is not 1. Rows outside in an outer
dimension get an empty mask; no branch is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    MemRefType,
)
from xdsl.ir import Operation
from xdsl.ir.affine import AffineDimExpr

from tilewright.codegen.components import ComponentSource
from tilewright.codegen.descriptor import Descriptor, address, linear, product, read, total
from tilewright.codegen.lane_ops import Lanes, splat
from tilewright.codegen.masked import (
    first_lanes,
    gather,
    masked_load_rows,
    masked_store_rows,
    scatter,
    splat_register,
)
from tilewright.codegen.memory import load_value, store_value
from tilewright.codegen.printer import Printer, attribute, prints, unsupported
from tilewright.codegen.registers import Element, RegisterLayout, llvm_vector

# Dense access -------------------------------------------------------------------------------------


def _rows(layout: RegisterLayout) -> list[tuple[int, ...]]:
    """Index of every row (innermost dimension) of a vector."""
    return [tuple(int(i) for i in index) for index in np.ndindex(*layout.shape[:-1])]


def _row_layout(p: Printer, layout: RegisterLayout) -> RegisterLayout:
    return p.rep.layout_of(layout.element, layout.shape[-1:])


@prints("vector.load")
def print_load(p: Printer, op: Operation) -> None:
    """Rows of an n-D vector follow the memref's strides; the innermost dimension is contiguous."""
    source, *indices = op.operands
    d = read(p, source)
    layout = p.layout(op.results[0].type)
    if not layout.shape:
        layout = p.rep.layout_of(layout.element, (1,))
    at = [p.one(i) for i in indices]
    out = ComponentSource(p, layout.element.llvm)
    row = _row_layout(p, layout)
    numbers = [
        out.add(row, tuple(load_value(p, row, where, d.layout.pointer, row.element.stored_bytes)))
        for where in _row_addresses(p, d, at, layout)
    ]
    p.set(op.results[0], out.assemble(np.concatenate(numbers), layout.counts))


@prints("vector.store")
def print_store(p: Printer, op: Operation) -> None:
    value, target, *indices = op.operands
    d = read(p, target)
    layout = p.layout(value.type)
    if not layout.shape:
        layout = p.rep.layout_of(layout.element, (1,))
    at = [p.one(i) for i in indices]
    row = _row_layout(p, layout)
    source = ComponentSource(p, layout.element.llvm)
    numbers = source.add(layout, p.get(value)).reshape(-1, layout.shape[-1])
    for part, where in zip(numbers, _row_addresses(p, d, at, layout), strict=True):
        regs = tuple(source.assemble(part, row.counts))
        store_value(p, row, regs, where, d.layout.pointer, row.element.stored_bytes)


def _row_addresses(
    p: Printer, d: Descriptor, at: Sequence[str], layout: RegisterLayout
) -> list[str]:
    lead = len(at) - len(layout.shape)
    found: list[str] = []
    for index in _rows(layout):
        moved = list(at)
        for dim, i in enumerate(index):
            moved[lead + dim] = total(p, moved[lead + dim], str(i))
        found.append(address(p, d, moved))
    return found


# Masked and indexed -------------------------------------------------------------------------------


@prints("vector.maskedload")
def print_maskedload(p: Printer, op: Operation) -> None:
    source, *indices, mask, passthru = op.operands
    d = read(p, source)
    layout = p.layout(op.results[0].type)
    where = address(p, d, [p.one(i) for i in indices])
    align = layout.element.stored_bytes
    masks, held = p.get(mask), p.get(passthru)
    regs = masked_load_rows(p, layout, where, d.layout.pointer, masks, held, align)
    p.set(op.results[0], regs)


@prints("vector.maskedstore")
def print_maskedstore(p: Printer, op: Operation) -> None:
    target, *indices, mask, value = op.operands
    d = read(p, target)
    layout = p.layout(value.type)
    where = address(p, d, [p.one(i) for i in indices])
    align = layout.element.stored_bytes
    masked_store_rows(p, layout, p.get(value), where, d.layout.pointer, p.get(mask), align)


def _byte_offsets(p: Printer, n: int, scalar: str, reg: str, bytes: int) -> str:
    """i64 byte offsets from element offsets of any integer type."""
    o = Lanes(p, n)
    wide = reg if scalar == "i64" else o.cast("sext", o.type(scalar), reg, o.i64)
    return o.op("mul", o.i64, wide, splat(n, "i64", str(bytes)))


@prints("vector.gather")
def print_gather(p: Printer, op: Operation) -> None:
    source, *indices, offsets, mask, passthru = op.operands
    if not isinstance(source.type, MemRefType):
        raise unsupported(op, "gathers from a memref only")
    d = read(p, source)
    layout = p.layout(op.results[0].type)
    e = layout.element
    base = address(p, d, [p.one(i) for i in indices])
    scalar = p.layout(offsets.type).element.llvm
    stride = product(p, d.strides[-1], str(e.stored_bytes))
    if not stride.isdigit():
        raise unsupported(op, f"of {source.type}", "its innermost stride must be static")
    out: list[str] = []
    for n, f, m, x in zip(layout.counts, p.get(offsets), p.get(mask), p.get(passthru), strict=True):
        at = _byte_offsets(p, n, scalar, f, int(stride))
        out.append(gather(p, n, e, base, d.layout.pointer, "i64", at, m, x, e.stored_bytes))
    p.set(op.results[0], out)


@prints("vector.scatter")
def print_scatter(p: Printer, op: Operation) -> None:
    target, *indices, offsets, mask, value = op.operands
    d = read(p, target)
    layout = p.layout(value.type)
    e = layout.element
    base = address(p, d, [p.one(i) for i in indices])
    scalar = p.layout(offsets.type).element.llvm
    stride = product(p, d.strides[-1], str(e.stored_bytes))
    if not stride.isdigit():
        raise unsupported(op, f"to {target.type}", "its innermost stride must be static")
    for n, f, m, x in zip(layout.counts, p.get(offsets), p.get(mask), p.get(value), strict=True):
        at = _byte_offsets(p, n, scalar, f, int(stride))
        scatter(p, n, e, x, base, d.layout.pointer, "i64", at, m, e.stored_bytes)


# Transfers ----------------------------------------------------------------------------------------


@dataclass
class _Transfer:
    """One transfer: the memref, where it starts, which memref dimension each vector one walks."""

    d: Descriptor
    at: list[str]
    dims: list[int | None]
    """None where the vector dimension repeats one element (broadcast)."""
    inside: list[bool]
    shape: tuple[int, ...]


def _transfer(p: Printer, op: Operation, memref_at: int, shape: tuple[int, ...]) -> _Transfer:
    source = op.operands[memref_at]
    if not isinstance(source.type, MemRefType):
        raise unsupported(op, "transfers to and from memrefs only")
    d = read(p, source)
    rank = len(d.sizes)
    at = [p.one(i) for i in list(op.operands)[memref_at + 1 : memref_at + 1 + rank]]
    permutation = attribute(op, "permutation_map")
    assert isinstance(permutation, AffineMapAttr)
    dims: list[int | None] = [
        e.position if isinstance(e, AffineDimExpr) else None for e in permutation.data.results
    ]
    inside = attribute(op, "in_bounds")
    assert isinstance(inside, ArrayAttr)
    known = [isinstance(b, IntegerAttr) and bool(b.value.data) for b in inside.data]
    return _Transfer(d, at, dims, known or [False] * len(dims), shape)


def _given_mask(p: Printer, op: Operation, first: int) -> tuple[ComponentSource, np.ndarray] | None:
    """The op's mask operand, if it has one, as components."""
    sizes = attribute(op, "operandSegmentSizes")
    assert isinstance(sizes, DenseArrayBase)
    if not int(sizes.get_values()[-1]):
        return None
    mask = op.operands[-1]
    source = ComponentSource(p, "i1")
    return source, source.add(p.layout(mask.type), p.get(mask))


def _row_mask(
    p: Printer,
    t: _Transfer,
    index: tuple[int, ...],
    counts: Sequence[int],
    given: tuple[ComponentSource, np.ndarray] | None,
) -> list[str] | None:
    """Mask registers of the row `index`, or None where every lane is on."""
    *outer, inner = t.dims
    test = ""
    for i, dim, known in zip(index, outer, t.inside, strict=False):
        if dim is None or known:
            continue
        here = p.emit(f"icmp slt i64 {total(p, t.at[dim], str(i))}, {t.d.sizes[dim]}")
        test = here if not test else p.emit(f"and i1 {test}, {here}")
    lanes: list[str] | None = None
    if inner is not None and not t.inside[-1]:
        left = p.emit(f"sub i64 {t.d.sizes[inner]}, {t.at[inner]}")
        lanes, at = [], 0
        for n in counts:
            lanes.append(first_lanes(p, n, at, t.shape[-1], left))
            at += n
    if given is not None:
        source, numbers = given
        chosen = source.assemble(numbers[index], counts)
        lanes = chosen if lanes is None else _both(p, counts, lanes, chosen)
    if test:
        everywhere = [splat_register(p, n, "i1", test) for n in counts]
        lanes = everywhere if lanes is None else _both(p, counts, lanes, everywhere)
    return lanes


def _both(p: Printer, counts: Sequence[int], a: list[str], b: list[str]) -> list[str]:
    return [
        p.emit(f"and {llvm_vector(n, 'i1')} {x}, {y}") for n, x, y in zip(counts, a, b, strict=True)
    ]


def _row_start(p: Printer, t: _Transfer, index: tuple[int, ...]) -> str:
    """Address of a row's first element."""
    moved = list(t.at)
    for i, dim in zip(index, t.dims[:-1], strict=True):
        if dim is not None:
            moved[dim] = total(p, moved[dim], str(i))
    bytes = product(p, linear(p, t.d, moved), str(t.d.element.stored_bytes))
    return p.emit(f"getelementptr i8, {t.d.layout.pointer} {t.d.pointer}, i64 {bytes}")


def _lane_offsets(p: Printer, n: int, first: int, stride: str) -> str:
    """i64 byte offsets of lanes first .. first + n - 1, `stride` bytes apart."""
    if n == 1:
        return product(p, stride, str(first))
    if stride.isdigit():
        return f"<{', '.join(f'i64 {(first + i) * int(stride)}' for i in range(n))}>"
    t = llvm_vector(n, "i64")
    lanes = f"<{', '.join(f'i64 {first + i}' for i in range(n))}>"
    return p.emit(f"mul {t} {lanes}, {splat_register(p, n, 'i64', stride)}")


def _read_row(
    p: Printer,
    t: _Transfer,
    row: RegisterLayout,
    start: str,
    mask: list[str] | None,
    padding: str,
) -> list[str]:
    e, llvm = row.element, t.d.layout.pointer
    inner = t.dims[-1]
    if inner is None or t.d.strides[inner] == "1" or t.shape[-1] == 1:
        single = p.rep.layout_of(e, (1,)) if inner is None else row
        if mask is None:
            values = load_value(p, single, start, llvm, e.stored_bytes)
        else:
            # Repeated is one element, read where the row has a lane at all.
            masks = mask if inner is not None else [_any_lane(p, row, mask)]
            pads = [splat_register(p, n, e.llvm, padding) for n in single.counts]
            values = masked_load_rows(p, single, start, llvm, masks, pads, e.stored_bytes)
        if inner is not None:
            return values
        repeated = [splat_register(p, n, e.llvm, values[0]) for n in row.counts]
        if mask is None:
            return repeated
        return [
            p.emit(
                f"select {llvm_vector(n, 'i1')} {m}, {llvm_vector(n, e.llvm)} {x}, "
                f"{llvm_vector(n, e.llvm)} {splat_register(p, n, e.llvm, padding)}"
            )
            for n, m, x in zip(row.counts, mask, repeated, strict=True)
        ]
    stride = product(p, t.d.strides[inner], str(e.stored_bytes))
    values, at = [], 0
    for i, n in enumerate(row.counts):
        m = mask[i] if mask is not None else splat(n, "i1", "true")
        pad = splat_register(p, n, e.llvm, padding)
        offsets = _lane_offsets(p, n, at, stride)
        values.append(gather(p, n, e, start, llvm, "i64", offsets, m, pad, e.stored_bytes))
        at += n
    return values


def _any_lane(p: Printer, row: RegisterLayout, mask: list[str]) -> str:
    """The mask bit of a row's first lane."""
    if row.counts[0] == 1:
        return mask[0]
    return p.emit(f"extractelement {llvm_vector(row.counts[0], 'i1')} {mask[0]}, i64 0")


@prints("vector.transfer_read")
def print_transfer_read(p: Printer, op: Operation) -> None:
    layout = p.layout(op.results[0].type)
    shape = layout.shape or (1,)
    t = _transfer(p, op, 0, shape)
    if not layout.shape:
        t.dims, t.inside = [None], [True]
    rank = len(t.d.sizes)
    padding = p.one(op.operands[1 + rank])
    given = _given_mask(p, op, 2 + rank)
    row = p.rep.layout_of(layout.element, shape[-1:])
    source = ComponentSource(p, layout.element.llvm)
    numbers: list[np.ndarray] = []
    for index in np.ndindex(*shape[:-1]):
        mask = _row_mask(p, t, index, row.counts, given)
        regs = _read_row(p, t, row, _row_start(p, t, index), mask, padding)
        numbers.append(source.add(row, tuple(regs)))
    p.set(op.results[0], source.assemble(np.concatenate(numbers), layout.counts))


@prints("vector.transfer_write")
def print_transfer_write(p: Printer, op: Operation) -> None:
    value = op.operands[0]
    layout = p.layout(value.type)
    shape = layout.shape or (1,)
    t = _transfer(p, op, 1, shape)
    if not layout.shape:
        t.dims, t.inside = [len(t.d.sizes) - 1] if t.d.sizes else [None], [True]
    given = _given_mask(p, op, 2 + len(t.d.sizes))
    e, llvm = layout.element, t.d.layout.pointer
    row = p.rep.layout_of(e, shape[-1:])
    source = ComponentSource(p, e.llvm)
    numbers = source.add(layout, p.get(value)).reshape(-1, shape[-1])
    inner = t.dims[-1]
    for part, index in zip(numbers, np.ndindex(*shape[:-1]), strict=True):
        mask = _row_mask(p, t, index, row.counts, given)
        regs = source.assemble(part, row.counts)
        start = _row_start(p, t, index)
        _write_row(p, t, row, start, mask, regs, e, llvm, inner)


def _write_row(
    p: Printer,
    t: _Transfer,
    row: RegisterLayout,
    start: str,
    mask: list[str] | None,
    regs: list[str],
    e: Element,
    llvm: str,
    inner: int | None,
) -> None:
    if inner is None or t.d.strides[inner] == "1" or t.shape[-1] == 1:
        if mask is None:
            store_value(p, row, tuple(regs), start, llvm, e.stored_bytes)
            return
        masked_store_rows(p, row, regs, start, llvm, mask, e.stored_bytes)
        return
    stride = product(p, t.d.strides[inner], str(e.stored_bytes))
    at = 0
    for i, (n, x) in enumerate(zip(row.counts, regs, strict=True)):
        m = mask[i] if mask is not None else splat(n, "i1", "true")
        offsets = _lane_offsets(p, n, at, stride)
        scatter(p, n, e, x, start, llvm, "i64", offsets, m, e.stored_bytes)
        at += n
