"""What pointers of a thread's program hold, by address space, and where in memory that is.

Pointers to arrays are addresses. One to shared memory (`!llvm.ptr<3>`) counts bytes in the window of its workgroup, as
on a machine, where an address has to go into the few bits of a descriptor; one to shared memory of any workgroup of
the cluster (`!llvm.ptr<7>`) has that workgroup's rank above them. A tensor map is named by its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation

from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects.stage.programs import cluster_size
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.frozen import frozen
from tilewright.reference.numerics import numpy_type
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index

SHARED, CLUSTER = 3, 7
START = 1024
"""Where shared memory begins in its window: no pointer to it is null."""
RANK = 32
"""The bit of a pointer into a cluster from which on the workgroup's rank stands, plus one."""
OWN_RANK = 24
"""The bit of a pointer to a workgroup's own memory from which on its rank in its cluster stands, as in hardware."""

SHARED_BYTES = "mach.shared_bytes"
"""Attribute of a kernel: the shared memory that its launch asks for."""


@frozen
class TensorMapValue:
    """An array as the copy engine sees it: innermost dimension first, in boxes, swizzled in shared memory."""

    array: Array
    """With its dimensions in that order, unless `given_sides` says what they are; strides count bytes."""
    box: tuple[int, ...]
    swizzle: int
    """The span of the swizzle in bytes, 0 for none."""
    element: str
    """The MLIR name of the element type: tf32 is rounded to where it is loaded."""
    given_sides: tuple[tuple[int, int], ...] = ()
    """Extent and stride of each dimension of the map, where they are not the array's."""

    @property
    def sides(self) -> Sequence[tuple[int, int]]:
        """Extent and stride of each dimension."""
        return self.given_sides or tuple(zip(self.array.shape, self.array.strides, strict=True))


def is_of_threads(function: Operation) -> bool:
    """Whether a function is one thread's program for a machine."""
    return mach.KERNEL in function.attributes


def space_of(type: Attribute) -> int:
    """The address space of a pointer's type, 0 for the generic one."""
    space = type.addr_space if isinstance(type, LLVMPointerType) else None
    return int(getattr(space, "data", 0)) if space is not None else 0


def addresses(site: Site, type: Attribute, pointer: Index) -> Index:
    """The bytes of memory that pointers of a type name, a row for every instance or one for all."""
    space = space_of(type)
    if space == SHARED:
        return windows(site)[site.batch.slots[site.instances]] + inside_window(pointer)
    if space == CLUSTER:
        size = cluster_size(site.machine.program.function)
        slots = site.batch.slots[site.instances]
        there = slots - slots % size + (pointer >> RANK) - 1
        return windows(site)[there] + inside_window(pointer)
    return pointer


def own_base(site: Site) -> Index:
    """The pointer to the first byte of each instance's workgroup's shared memory."""
    size = cluster_size(site.machine.program.function)
    return START + (site.batch.slots[site.instances] % size << OWN_RANK)


def inside_window(pointer: Index) -> Index:
    """Which byte of a workgroup's window a pointer names, without the rank."""
    return pointer & (1 << OWN_RANK) - 1


def windows(site: Site) -> Index:
    """The address of every workgroup's window: its shared memory lies `START` bytes further on."""
    machine = site.machine
    if "window" not in machine.shared:
        function = machine.program.function
        size = function.attributes.get(SHARED_BYTES)
        if not isinstance(size, IntegerAttr):
            raise unsupported(
                site.op, f"the function does not say how much shared memory it has ({SHARED_BYTES})"
            )
        count = int(machine.batch.slots.max(initial=-1)) + 1
        machine.shared["window"] = machine.memory.allocate(
            count, size.value.data, _granule(function), shared=True, name="shared memory"
        )
    return machine.shared["window"] - START


def _granule(function: Operation) -> int:
    """The smallest element that a function's threads touch in shared memory; instructions touch words."""
    least = 4
    for op in function.walk():
        if isinstance(op, _ACCESSES) and space_of(op.pointer.type) in (SHARED, CLUSTER):
            data = op.results[0] if op.results else op.operands[0]
            least = min(least, storage(data.type).itemsize)
    return least


_ACCESSES = (
    *(mach.LoadOp, mach.StoreOp, mach.GatherOp, mach.ScatterOp),
    *(mach.MaskedLoadOp, mach.MaskedStoreOp),
)


def storage(type: Attribute) -> np.dtype[Any]:
    """The numpy type of an element in memory: pointers are words."""
    return np.dtype(np.int64) if isinstance(type, LLVMPointerType) else numpy_type(type)
