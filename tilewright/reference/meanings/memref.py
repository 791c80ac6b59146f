"""Meaning of the memref dialect: addresses, sizes and strides, one row per instance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from xdsl.dialects import memref
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    DenseIntOrFPElementsAttr,
    MemRefType,
    SymbolRefAttr,
    VectorType,
)
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import error_at, unsupported
from tilewright.dialects.movement import memref_type
from tilewright.dialects.nesting import ops_around
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.dialects.upstream.gpu.memory import is_shared
from tilewright.dialects.upstream.memref import ReshapeOp
from tilewright.dialects.upstream.strided import strided_form
from tilewright.dialects.upstream.views import VIEWS, View, row_major, viewed
from tilewright.dialects.xetile.kinds import ATOMIC_KINDS
from tilewright.reference import access, numerics
from tilewright.reference.meanings import reductions
from tilewright.reference.meanings.arith import constant_rows
from tilewright.reference.registry import MEANINGS, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, MemRefValue, scalar, spread


def static_strides(op: Operation, type: MemRefType[Attribute]) -> list[int | None]:
    """Strides in elements; None where the type leaves them open."""
    try:
        strides, _ = strided_form(type)
    except TypeError as error:
        raise unsupported(op, str(error)) from None
    return [None if s == DYNAMIC_INDEX else s for s in strides]


# Buffers.


@meaning("memref.alloc", "memref.alloca", "gpu.alloc", "gpu.dynamic_shared_memory")
def alloc(site: Site, op: Operation, *operands: Any) -> Any:
    type = memref_type(op.results[0])
    dynamic = iter([value for value in operands if isinstance(value, np.ndarray)])
    sizes = [next(dynamic) if e < 0 else scalar(e) for e in type.get_shape()]
    if any((size < 0).any() for size in sizes):
        least = min(int(size.min()) for size in sizes)
        site.report("error", "alloc", f"{op.name} of an extent of {least}")
        sizes = [np.maximum(size, 0) for size in sizes]
    strides = static_strides(op, type)
    dense = row_major(sizes, _Rows())
    whole = [m if s is None else scalar(s) for s, m in zip(strides, dense, strict=True)]
    reach = scalar(1)
    for extent, stride in zip(sizes, whole, strict=True):
        reach = reach + np.maximum(extent - 1, 0) * stride
    empty = any((extent == 0).any() for extent in sizes)
    itemsize = numerics.numpy_type(type).itemsize
    size = 0 if empty else int(reach.max()) * itemsize
    if prod(n for n in type.get_shape() if n > 0) * itemsize > 1 << 47:
        raise error_at(op, f"{op.name} of more bytes than there are addresses")
    name = f"the buffer of {op.name}"
    if is_shared(type):
        base = site.allocate_shared(size, itemsize, name)
    else:
        base = site.memory.allocate(site.count, size, itemsize, shared=False, name=name)
    value = MemRefValue(base, scalar(0), tuple(sizes), tuple(whole))
    return (value, None) if len(op.results) == 2 else value


@meaning("memref.dealloc", "gpu.dealloc")
def dealloc(site: Site, op: Operation, *operands: Any) -> None:
    buffer = next(value for value in operands if isinstance(value, MemRefValue))
    for address in np.unique(buffer.base).tolist():
        if not site.memory.release(address):
            site.report("error", "dealloc", f"{op.name} of memory that is not allocated")


@meaning("memref.get_global")
def get_global(site: Site, op: memref.GetGlobalOp) -> MemRefValue:
    """Globals exist once per run; uninitialised ones are poisoned."""
    type = memref_type(op.memref)
    symbol: SymbolRefAttr = op.name_
    name = symbol.root_reference.data
    known = site.machine.context.globals
    if name not in known:
        definition = _find_global(op, name)
        dtype = numerics.numpy_type(type)
        count = int(np.prod(type.get_shape(), dtype=np.int64))
        initial = definition.initial_value
        base = site.memory.allocate(
            1, count * dtype.itemsize, dtype.itemsize, shared=False, name=f"@{name}"
        )
        if isinstance(initial, DenseIntOrFPElementsAttr) and count:
            whole = VectorType(type.element_type, [count])
            rows = constant_rows(op, initial, whole).reshape(-1)
            addresses = base + dtype.itemsize * np.arange(count)
            access.scatter(
                site, addresses[None], np.ones((1, count), bool), np.broadcast_to(rows, (1, count))
            )
        known[name] = base
    return contiguous(op, known[name], type)


def _find_global(op: Operation, name: str) -> memref.GlobalOp:
    for scope in ops_around(op):
        for inner in scope.walk():
            if isinstance(inner, memref.GlobalOp) and inner.sym_name.data == name:
                return inner
    raise error_at(op, f"there is no global called @{name}")


def contiguous(op: Operation, base: Index, type: MemRefType[Attribute]) -> MemRefValue:
    strides = [1 if s is None else s for s in static_strides(op, type)]
    sizes = tuple(scalar(extent) for extent in type.get_shape())
    return MemRefValue(base, scalar(0), sizes, tuple(map(scalar, strides)))


# Views.


@meaning("memref.dim")
def dim(site: Site, op: Operation, source: MemRefValue, index: Index) -> Index:
    if index.shape[0] == 1:
        return source.sizes[int(index[0])]
    sizes = np.stack(np.broadcast_arrays(*source.sizes, np.zeros(site.count, np.int64))[:-1])
    return sizes[index, np.arange(site.count)]


@meaning("memref.rank")
def rank(site: Site, op: Operation, source: MemRefValue) -> Index:
    return scalar(len(source.sizes))


@meaning("memref.assume_alignment")
def assume_alignment(site: Site, op: Operation, source: MemRefValue) -> MemRefValue:
    return source


@meaning("memref.extract_strided_metadata")
def extract_strided_metadata(site: Site, op: Operation, source: MemRefValue) -> tuple[Any, ...]:
    base = MemRefValue(source.base, scalar(0), (), ())
    return (base, source.offset, *source.sizes, *source.strides)


@meaning("memref.extract_aligned_pointer_as_index")
def extract_pointer(site: Site, op: Operation, source: MemRefValue) -> Index:
    return source.base


class _Rows:
    """Numbers as rows of instances."""

    def literal(self, n: int, /) -> Index:
        return scalar(n)

    def plus(self, x: Index, y: Index, /) -> Index:
        return x + y

    def times(self, x: Index, y: Index, /) -> Index:
        return x * y


@meaning("memref.reshape")
def reshape(site: Site, op: ReshapeOp, source: MemRefValue, shape: MemRefValue) -> MemRefValue:
    """Its extents are those of the type, or stand in memory."""
    dtype = numerics.numpy_type(memref_type(op.shape).element_type)
    sizes: list[Index] = []
    for dim, extent in enumerate(memref_type(op.result).get_shape()):
        address, inside = element_address(site, shape, [scalar(dim)], dtype.itemsize)
        undefined_outside(site, inside)
        stored = access.gather(site, address, inside, dtype, np.zeros((), dtype)).astype(np.int64)
        if extent >= 0 and (stored != extent).any():
            site.report(
                "error", "shape", f"{op.name} to {extent} elements, but memory holds others"
            )
        sizes.append(stored if extent < 0 else scalar(extent))
    if (
        reduce(np.multiply, sizes, scalar(1)) != reduce(np.multiply, source.sizes, scalar(1))
    ).any():
        site.report("error", "shape", f"{op.name} to another number of elements")
    return MemRefValue(source.base, source.offset, tuple(sizes), tuple(row_major(sizes, _Rows())))


@meaning(*VIEWS)
def view(site: Site, op: Operation, source: MemRefValue, *given: Index) -> MemRefValue:
    new = viewed(op, View(source.offset, source.sizes, source.strides), given, _Rows())
    base = source.base if new.bytes is None else source.base + new.bytes
    return MemRefValue(base, new.offset, tuple(new.sizes), tuple(new.strides))


# Elements.


def element_address(
    site: Site, source: MemRefValue, places: Sequence[Array], itemsize: int
) -> tuple[Index, Array]:
    """Addresses of elements and whether they lie inside; places broadcast against each other."""
    extra = max((place.ndim for place in places), default=1) - 1

    def rows(value: Index) -> Index:
        return value.reshape(value.shape[0], *[1] * extra)

    address = rows(source.base + itemsize * source.offset)
    inside = np.ones([1] * (extra + 1), bool)
    for place, size, stride in zip(places, source.sizes, source.strides, strict=True):
        address = address + itemsize * rows(stride) * place
        inside = inside & (place >= 0) & (place < rows(size))
    shape = np.broadcast_shapes(address.shape, inside.shape)
    return np.broadcast_to(address, shape), np.broadcast_to(inside, shape)


def undefined_outside(site: Site, inside: Array, wanted: Array | None = None) -> None:
    """Reports accesses outside a memref, which are undefined for upstream ops."""
    outside = ~inside if wanted is None else ~inside & wanted
    if outside.any():
        site.report("error", "out of bounds", f"{site.op.name} accesses outside its memref")


@meaning("memref.load")
def load(site: Site, op: memref.LoadOp, source: MemRefValue, *indices: Index) -> Array:
    dtype = numerics.numpy_type(op.res.type)
    address, inside = element_address(site, source, indices, dtype.itemsize)
    undefined_outside(site, inside)
    return access.gather(site, address, inside, dtype, np.zeros((), dtype))


@meaning("memref.store")
def store(site: Site, op: Operation, value: Array, target: MemRefValue, *indices: Index) -> None:
    address, inside = element_address(site, target, indices, value.itemsize)
    undefined_outside(site, inside)
    access.scatter(site, address, inside, value)


@meaning("memref.atomic_rmw")
def atomic_rmw(
    site: Site, op: memref.AtomicRMWOp, value: Array, target: MemRefValue, *indices: Index
) -> Array:
    address, inside = element_address(site, target, indices, value.itemsize)
    undefined_outside(site, inside)
    every = spread(address, site.count)
    kind = ATOMIC_KINDS[op.kind.value.data]
    combine = reductions.atomic(kind, op.result.type)
    return access.atomic(site, every, inside, value, combine, np.zeros((), value.dtype))


@meaning("memref.generic_atomic_rmw")
def generic_atomic_rmw(
    site: Site, op: GenericAtomicRMWOp, target: MemRefValue, *indices: Index
) -> Array:
    """Instance after instance: each finds what the ones before left."""
    dtype = numerics.numpy_type(op.result.type)
    address, inside = element_address(site, target, indices, dtype.itemsize)
    undefined_outside(site, inside)
    every, inside = spread(address, site.count), spread(inside, site.count)
    nothing = np.zeros((), dtype)
    result = np.zeros(site.count, dtype)
    for row in range(site.count):

        def combine(old: Array, _: Array, row: int = row) -> Array:
            return _body(site, op, old, row)

        mine = inside & (np.arange(site.count) == row)
        result += access.atomic(site, every, mine, nothing, combine, nothing)
    return result


def _body(site: Site, op: GenericAtomicRMWOp, old: Array, row: int) -> Array:
    """What the region makes of an element, for one of the instances."""
    values: dict[SSAValue, Any] = {op.now: old}

    def value(operand: SSAValue) -> Any:
        if operand not in values:
            rows = site.group.get(operand)
            values[operand] = rows if rows.shape[0] == 1 else rows[row : row + 1]
        return values[operand]

    for inner in list(op.atomic_body.block.ops)[:-1]:
        made = MEANINGS[inner.name](site, inner, *(value(v) for v in inner.operands))
        values.update(zip(inner.results, made if len(inner.results) > 1 else (made,), strict=True))
    return value(op.new)


@meaning("memref.copy", "gpu.memcpy")
def copy(site: Site, op: Operation, *operands: Any) -> Any:
    """Copies all elements, through a temporary."""
    buffers = [value for value in operands if isinstance(value, MemRefValue)]
    source, target = buffers if op.name == "memref.copy" else buffers[::-1]
    operand = next(o for o in op.operands if isinstance(o.type, MemRefType))
    dtype = numerics.numpy_type(memref_type(operand))
    # Of the largest instance: the others' boxes end where their arrays do.
    shape = tuple(max(0, int(size.max())) for size in source.sizes)
    zeros = tuple(scalar(0) for _ in shape)

    def boxes(ref: MemRefValue) -> access.Boxes:
        base = ref.base + dtype.itemsize * ref.offset
        return access.Boxes(base, ref.sizes, ref.strides, zeros, shape)

    if any((a != b).any() for a, b in zip(source.sizes, target.sizes, strict=True)):
        site.report("error", "copy", f"{op.name} copies between shapes that differ")
    elif all(shape):
        access.store_boxes(site, boxes(target), access.load_boxes(site, boxes(source), dtype, 0))
    return None
