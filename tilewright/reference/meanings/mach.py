"""Meaning of the mach dialect's plain ops: pointers, memory, lane masks, atomics, registers put together.

Instructions of a machine are in `instructions.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.dialects import mach
from tilewright.reference import access, numerics
from tilewright.reference.meanings import reductions
from tilewright.reference.pointers import addresses, own_base, storage
from tilewright.reference.registry import meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index, spread

# Pointers -----------------------------------------------------------------------------------------


@meaning("mach.shared_base")
def shared_base(site: Site, op: Operation) -> Index:
    return own_base(site)


@meaning("mach.ptr_add")
def ptr_add(site: Site, op: Operation, pointer: Index, offset: Index) -> Index:
    return pointer + offset


@meaning("mach.ptr_from_int")
def ptr_from_int(site: Site, op: Operation, value: Array) -> Index:
    return value.astype(np.int64)


@meaning("mach.int_from_ptr")
def int_from_ptr(site: Site, op: Operation, pointer: Index) -> Array:
    return pointer.astype(numerics.numpy_type(op.results[0].type))


@meaning("mach.alloca")
def alloca(site: Site, op: mach.AllocaOp) -> Index:
    """Every instance has its own, which is the same whenever it comes by."""
    known = site.machine.shared
    if op not in known:
        name, count = f"the memory of {op.name}", site.batch.count
        known[op] = site.memory.allocate(count, op.bytes, 1, shared=True, name=name)
    return known[op][site.instances]


# Memory -------------------------------------------------------------------------------------------


def _elements(site: Site, pointer: SSAValue, rows: Index, size: int, count: int = 1) -> Index:
    """The addresses of so many elements from a pointer on: (rows, count)."""
    first = addresses(site, pointer.type, rows)
    return first[:, None] + size * np.arange(count)


def check_alignment(site: Site, rows: Index, wanted: Array, bytes: int) -> None:
    """Reports pointers that are no multiples of so many bytes."""
    wrong = wanted & (rows % bytes != 0)
    if wrong.any():
        address = int(np.broadcast_to(rows, wrong.shape)[wrong][0])
        site.report(
            "error",
            "misaligned",
            f"{site.op.name} of address {address:#x}, which is no multiple of {bytes} bytes",
        )


def _aligned(site: Site, op: Any, rows: Index, mask: Array) -> None:
    """Of the threads that have an element under a mask (rows, count)."""
    if op.alignment is not None:
        check_alignment(site, rows, np.asarray(mask.any(axis=1)), op.alignment)


def _load(site: Site, type: Attribute, address: Index, wanted: Array, otherwise: Array) -> Array:
    """Elements (rows, count) of a type; a bool is a byte."""
    dtype = storage(type)
    used = site.taken(site.op.results[0])
    if used is not None:
        used = used.reshape(used.shape[0], -1)
    if dtype.kind != "b":
        return access.gather(site, address, wanted, dtype, otherwise, used)
    bits = otherwise.view(np.uint8)
    return access.gather(site, address, wanted, np.dtype(np.uint8), bits, used) != 0


def _store(site: Site, address: Index, wanted: Array, value: Array) -> None:
    access.scatter(
        site, address, wanted, value.view(np.uint8) if value.dtype.kind == "b" else value
    )


@meaning("mach.load")
def load(site: Site, op: mach.LoadOp, pointer: Index) -> Array:
    type = op.result.type
    shape, dtype = numerics.shape_of(type), storage(type)
    address = _elements(site, op.pointer, pointer, dtype.itemsize, int(np.prod(shape, dtype=int)))
    wanted = np.ones(address.shape, bool)
    _aligned(site, op, pointer, wanted)
    rows = _load(site, type, address, wanted, np.zeros(address.shape, dtype))
    return rows.reshape(rows.shape[0], *shape)


@meaning("mach.store")
def store(site: Site, op: mach.StoreOp, value: Array, pointer: Index) -> None:
    flat = value.reshape(value.shape[0], -1)
    address = _elements(site, op.pointer, pointer, flat.itemsize, flat.shape[1])
    address, flat = np.broadcast_arrays(address, flat)
    wanted = np.ones(address.shape, bool)
    _aligned(site, op, pointer, wanted)
    _store(site, address, wanted, flat)


@meaning("mach.masked_load")
def masked_load(
    site: Site, op: mach.MaskedLoadOp, pointer: Index, mask: Array, passthru: Array
) -> Array:
    address = _elements(site, op.pointer, pointer, passthru.itemsize, mask.shape[1])
    _aligned(site, op, pointer, mask)
    return _load(site, op.result.type, *np.broadcast_arrays(address, mask, passthru))


@meaning("mach.masked_store")
def masked_store(
    site: Site, op: mach.MaskedStoreOp, value: Array, pointer: Index, mask: Array
) -> None:
    address = _elements(site, op.pointer, pointer, value.itemsize, mask.shape[1])
    _aligned(site, op, pointer, mask)
    _store(site, *np.broadcast_arrays(address, mask, value))


@meaning("mach.gather")
def gather(
    site: Site, op: mach.GatherOp, pointer: Index, offsets: Index, mask: Array, passthru: Array
) -> Array:
    address = _elements(site, op.pointer, pointer, 1) + np.where(mask, offsets, 0)
    return _load(site, op.result.type, *np.broadcast_arrays(address, mask, passthru))


@meaning("mach.scatter")
def scatter(
    site: Site, op: mach.ScatterOp, value: Array, pointer: Index, offsets: Index, mask: Array
) -> None:
    address = _elements(site, op.pointer, pointer, 1) + np.where(mask, offsets, 0)
    _store(site, *np.broadcast_arrays(address, mask, value))


@meaning("mach.prefetch", "mach.fence", "memref.prefetch", "xetile.prefetch_tile")
def prefetch(site: Site, op: Operation, *operands: Any) -> None:
    """Moves data between caches, or orders accesses, which take effect in order here."""


@meaning("mach.mask_first")
def mask_first(site: Site, op: mach.MaskFirstOp, count: Index) -> Array:
    return np.arange(op.result.type.get_shape()[0]) < count[:, None]


@meaning("mach.join")
def join(site: Site, op: Operation, *parts: Array) -> Array:
    rows = max(part.shape[0] for part in parts)
    return np.concatenate([np.broadcast_to(p, (rows, *p.shape[1:])) for p in parts], axis=1)


# Atomics ------------------------------------------------------------------------------------------


def _atomic(site: Site, pointer: SSAValue, rows: Index, value: Array, combine: Any) -> Array:
    """One after the other for every instance; the values from before."""
    address = spread(addresses(site, pointer.type, rows), site.count)
    wanted = np.ones(site.count, bool)
    return access.atomic(site, address, wanted, value, combine, np.zeros((), value.dtype))


@meaning("mach.atomic_rmw")
def atomic_rmw(site: Site, op: mach.AtomicRmwOp, value: Array, pointer: Index) -> Array:
    combine = reductions.atomic(op.kind, op.value.type)
    return _atomic(site, op.pointer, pointer, value, combine)


@meaning("mach.cmpxchg")
def cmpxchg(
    site: Site, op: mach.CmpxchgOp, pointer: Index, expected: Array, desired: Array
) -> tuple[Array, Array]:
    shape = (site.count, prod(numerics.shape_of(op.expected.type)))
    expected, new = (np.broadcast_to(v, shape) for v in (_flat(expected), _flat(desired)))
    place = _elements(site, op.pointer, pointer, new.itemsize, shape[1])
    place = np.broadcast_to(place, shape)
    old, won = np.empty(shape, new.dtype), np.empty(site.count, bool)
    bits = f"u{new.itemsize}"
    for row in range(site.count):
        only = np.arange(site.count)[:, None] == row
        wanted = np.broadcast_to(only, shape)

        def swapped(now: Array, to: Array, row: int = row) -> Array:
            same = now.view(bits) == expected[row].view(bits)
            return to if same.all() else now

        old[row] = access.atomic(site, place, wanted, new, swapped, new[:1])[row]
        won[row] = (old[row].view(bits) == expected[row].view(bits)).all()
    return old.reshape(-1, *numerics.shape_of(op.expected.type)), won


def _flat(value: Array) -> Array:
    """Rows of elements, of numbers too."""
    return value.reshape(value.shape[0], -1)


@meaning("mach.atomic_load")
def atomic_load(site: Site, op: mach.AtomicLoadOp, pointer: Index) -> Array:
    shape, dtype = numerics.shape_of(op.result.type), storage(op.result.type)
    place = _elements(site, op.pointer, pointer, dtype.itemsize, prod(shape))
    wanted, zero = np.ones(place.shape, bool), np.zeros(1, dtype)
    found = access.atomic(site, place, wanted, zero, lambda old, _: old, zero)
    return found.reshape(-1, *shape)


@meaning("mach.atomic_store")
def atomic_store(site: Site, op: mach.AtomicStoreOp, value: Array, pointer: Index) -> None:
    _atomic(site, op.pointer, pointer, value, lambda _, new: new)
