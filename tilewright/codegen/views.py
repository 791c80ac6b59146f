"""memref ops that view the same memory otherwise: casts, subviews, reshapes, transposition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects import memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    MemRefType,
    UnrankedMemRefType,
)
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.descriptor import (
    from_unranked,
    linear,
    operand_groups,
    product,
    read,
    row_major,
    to_unranked,
    total,
    write,
)
from tilewright.codegen.pointers import offset_pointer
from tilewright.codegen.printer import Printer, attribute, prints
from tilewright.codegen.registers import DYNAMIC
from tilewright.dialects.upstream.memref import kept_dimensions


@prints("memref.cast", "memref.memory_space_cast")
def print_cast(p: Printer, op: Operation) -> None:
    source, result = op.operands[0], op.results[0]
    if isinstance(source.type, UnrankedMemRefType):
        from_unranked(p, source, result)
        return
    d = read(p, source)
    if isinstance(result.type, UnrankedMemRefType):
        p.set(result, to_unranked(p, d))
        return
    pointer = d.pointer
    assert isinstance(result.type, MemRefType)
    wanted = p.rep.memref(result.type).pointer
    if wanted != d.layout.pointer:
        pointer = p.emit(f"addrspacecast {d.layout.pointer} {pointer} to {wanted}")
    write(p, result, pointer, d.offset, d.sizes, d.strides)


def mixed(p: Printer, op: Operation, name: str, values: Sequence[SSAValue]) -> list[str]:
    """`static_<name>` with its dynamic entries taken from `values`."""
    static = attribute(op, f"static_{name}")
    assert isinstance(static, DenseArrayBase)
    dynamic = iter(values)
    return [
        p.one(next(dynamic)) if v < 0 and _is_dynamic(v) else str(v) for v in static.get_values()
    ]


def _is_dynamic(value: float) -> bool:
    return int(value) == -(1 << 63)


@prints("memref.subview")
def print_subview(p: Printer, op: Operation) -> None:
    (source,), offsets, sizes, strides = operand_groups(op)
    d = read(p, source)
    where = mixed(p, op, "offsets", offsets)
    extent = mixed(p, op, "sizes", sizes)
    steps = mixed(p, op, "strides", strides)
    offset = linear(p, d, where)
    moved = [product(p, a, b) for a, b in zip(d.strides, steps, strict=True)]
    assert isinstance(op, memref.SubviewOp)
    kept = kept_dimensions(op)
    write(p, op.result, d.pointer, offset, [extent[i] for i in kept], [moved[i] for i in kept])


@prints("memref.reinterpret_cast")
def print_reinterpret_cast(p: Printer, op: Operation) -> None:
    (source,), offsets, sizes, strides = operand_groups(op)
    pointer = read(p, source).pointer
    (offset,) = mixed(p, op, "offsets", offsets)
    write(
        p,
        op.results[0],
        pointer,
        offset,
        mixed(p, op, "sizes", sizes),
        mixed(p, op, "strides", strides),
    )


@prints("memref.view")
def print_view(p: Printer, op: Operation) -> None:
    source, shift, *sizes = op.operands
    d = read(p, source)
    base = offset_pointer(p, d.pointer, total(p, d.offset, p.one(shift)), d.layout.pointer)
    result = op.results[0]
    assert isinstance(result.type, MemRefType)
    dynamic = iter(sizes)
    extent = [
        p.one(next(dynamic)) if n == DYNAMIC else str(n) for n in p.rep.memref(result.type).sizes
    ]
    write(p, result, base, "0", extent, row_major(p, extent))


@prints("memref.transpose")
def print_transpose(p: Printer, op: Operation) -> None:
    d = read(p, op.operands[0])
    permutation = attribute(op, "permutation")
    order = [int(e.position) for e in permutation.data.results]  # pyright: ignore
    write(
        p,
        op.results[0],
        d.pointer,
        d.offset,
        [d.sizes[i] for i in order],
        [d.strides[i] for i in order],
    )


def _groups(op: Operation) -> list[list[int]]:
    found = attribute(op, "reassociation")
    assert isinstance(found, ArrayAttr)
    return [[i.value.data for i in group.data] for group in found.data]


@prints("memref.collapse_shape")
def print_collapse(p: Printer, op: Operation) -> None:
    """Each group of dimensions must be contiguous within itself; its innermost stride stays."""
    d = read(p, op.operands[0])
    groups = _groups(op)
    sizes = [product(p, *(d.sizes[i] for i in group)) for group in groups]
    write(p, op.results[0], d.pointer, d.offset, sizes, [d.strides[g[-1]] for g in groups])


@prints("memref.expand_shape")
def print_expand(p: Printer, op: Operation) -> None:
    """A group's sizes are the result type's; one that is open is what is left of the source's size."""
    source, *given = op.operands
    d = read(p, source)
    result = op.results[0]
    assert isinstance(result.type, MemRefType)
    layout = p.rep.memref(result.type)
    dynamic = iter(given)
    sizes: list[str] = []
    strides: list[str] = []
    for g, group in enumerate(_groups(op)):
        known = [layout.sizes[i] for i in group]
        extent = [str(n) for n in known]
        if DYNAMIC in known:
            value = next(dynamic, None)
            rest = int(np.prod([n for n in known if n != DYNAMIC], dtype=np.int64))
            text = p.one(value) if value is not None else ""
            if not text:
                text = p.emit(f"sdiv i64 {d.sizes[g]}, {rest}") if rest != 1 else d.sizes[g]
            extent[known.index(DYNAMIC)] = text
        sizes += extent
        strides += [product(p, s, d.strides[g]) for s in row_major(p, extent)]
    write(p, result, d.pointer, d.offset, sizes, strides)
