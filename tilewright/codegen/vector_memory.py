"""Vectors in memory: what reads and writes them on memrefs becomes accesses by address, one for each row.

    %v = vector.transfer_read %m[%i, %j], %pad : memref<?x64xf32>, vector<2x16xf32>
    ->
    %on = mach.mask_first (64 - %j)                              of a row, what lies in front of its end
    %v0 = mach.masked_load (%m + 4 * (64 * %i + %j)), (%on and %i < %n), %pad
    %v1 = mach.masked_load (%m + 4 * (64 * (%i + 1) + %j)), (%on and %i + 1 < %n), %pad
    %v = the rows %v0, %v1

A row is plain where it is known to lie inside and is contiguous, masked where it may end early, gathered where its
stride is not 1. Rows outside in an outer dimension get an empty mask. A row of one element is accessed in a branch, as
machines without masks can do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, memref, vector
from xdsl.dialects.builtin import IntAttr, MemRefType, VectorType, i1
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx, index, replace
from tilewright.codegen.target import LLVMTarget
from tilewright.codegen.tiles import Matrix, plain
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects.movement import shape_of_type, vector_type
from tilewright.dialects.upstream.arith import element_bytes, folded
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.dialects.upstream.strided import Metadata
from tilewright.dialects.upstream.vector.access import LOADS, access_of
from tilewright.dialects.upstream.views import moved

Index = tuple[int, ...]


def array_of(b: Builder, op: Operation, array: SSAValue, target: LLVMTarget) -> Matrix:
    """A memref that `op` accesses, as numbers: constants as far as its type says."""
    kind = array.type
    if not isinstance(kind, MemRefType):
        raise unsupported(op, f"{op.name} of a memref only")
    try:
        found = Metadata(array, b.op)
    except TypeError as error:
        raise unsupported(op, str(error)) from error
    start = b.value(memref.ExtractAlignedPointerAsIndexOp.get(array))
    offset = b.times(found.offset, element_bytes(kind.element_type))
    space = LLVMPointerType(IntAttr(target.representation.address_space(kind)))
    pointer = b.ptr(b.value(mach.PtrFromIntOp(start, space)), offset)
    return Matrix(pointer, plain(kind.element_type), tuple(found.sizes), tuple(found.strides))


def element_at(
    b: Builder, array: Matrix, size: int, at: Sequence[Idx], inside: bool = True
) -> SSAValue:
    """The address of an element of `size` bytes, which lies `inside` of the array or where nothing is accessed."""
    place = b.times(moved(0, at, array.strides, b), size)
    if inside:
        return b.ptr(array.pointer, place)
    start, kind = b.value(mach.IntFromPtrOp(array.pointer)), array.pointer.type
    assert isinstance(kind, LLVMPointerType)
    return b.value(mach.PtrFromIntOp(b.idx(b.plus(start, place)), kind))


class VectorRows:
    """The vector that an op reads or writes, as rows along its last dimension."""

    def __init__(self, b: Builder, op: Operation, target: LLVMTarget):
        self.b, access = b, access_of(op)
        self.access, self.array = access, array_of(b, op, access.array, target)
        kind = vector_type(access.value)
        self.type = kind
        whole = not kind.get_shape()
        self.shape = kind.get_shape() or (1,)
        self.dims = (None,) if whole else access.dims
        self.inside = (True,) if whole else access.inside
        self.indices = [folded(i) for i in access.indices]
        self.row = VectorType(kind.element_type, self.shape[-1:])
        self.size = element_bytes(kind.element_type)

    def load(self) -> SSAValue:
        """What is read."""
        b = self.b
        if self.access.offsets is not None:
            place = self._indexed()
            return b.value(mach.GatherOp(*place, self._held((), self.type)))
        rows = [self._read(at) for at in np.ndindex(*self.shape[:-1])]
        return b.shape(b.stack(rows), *self.type.get_shape())

    def store(self) -> None:
        """Write what the op holds."""
        if self.access.offsets is not None:
            assert self.access.held is not None
            self.b.op(mach.ScatterOp(self.access.held, *self._indexed()))
            return
        for at in np.ndindex(*self.shape[:-1]):
            self._write(at)

    def _indexed(self) -> tuple[SSAValue, SSAValue, SSAValue]:
        """Pointer, offsets in bytes and mask of elements at numbers along the last dimension."""
        b, offsets, mask = self.b, self.access.offsets, self.access.mask
        assert offsets is not None and mask is not None
        kind = VectorType(index, shape_of_type(offsets.type))
        if offsets.type != kind:
            offsets = b.value(arith.IndexCastOp(offsets, kind))
        step = b.times(self.array.strides[-1], self.size)
        offsets = b.value(arith.MuliOp(offsets, self._wide(step, kind)))
        return element_at(b, self.array, self.size, self.indices), offsets, mask

    # Rows ---------------------------------------------------------------------------------------

    def _read(self, at: Index) -> SSAValue:
        b, row, mask, pointer = self.b, self.row, self._mask(at), self._pointer(at)
        if self.dims[-1] is None:
            return self._repeated(pointer, mask, at)
        if self._is_contiguous():
            if mask is None:
                return b.load(pointer, row)
            held = self._held(at, row)
            if row.get_shape() == (1,):
                on = b.extract(mask, 0)
                return b.choose(on, lambda: [b.load(pointer, row)], lambda: [held])[0]
            return b.value(mach.MaskedLoadOp(pointer, mask, held))
        mask = b.constant(self._bits(), 1) if mask is None else mask
        return b.value(mach.GatherOp(pointer, self._steps(), mask, self._held(at, row)))

    def _repeated(self, pointer: SSAValue, mask: SSAValue | None, at: Index) -> SSAValue:
        """One element for all of a row, read where the row has any at all."""
        b, row = self.b, self.row
        if mask is None:
            return self._wide(b.load(pointer, row.element_type), row)
        held = self._held(at, row)
        first, other = (b.shuffle(x, x, [0]) for x in (mask, held))
        one = b.extract(b.value(mach.MaskedLoadOp(pointer, first, other)), 0)
        return b.value(arith.SelectOp(mask, self._wide(one, row), held))

    def _write(self, at: Index) -> None:
        b, row, mask, pointer = self.b, self._held(at, self.row), self._mask(at), self._pointer(at)
        if self.dims[-1] is not None and not self._is_contiguous():
            mask = b.constant(self._bits(), 1) if mask is None else mask
            b.op(mach.ScatterOp(row, pointer, self._steps(), mask))
        elif mask is None:
            b.store(row, pointer)
        elif self.row.get_shape() == (1,):
            with b.when(b.extract(mask, 0)):
                b.store(row, pointer)
        else:
            b.op(mach.MaskedStoreOp(row, pointer, mask))

    def _is_contiguous(self) -> bool:
        inner = self.dims[-1]
        return inner is None or self.array.strides[inner] == 1 or self.row.get_shape() == (1,)

    def _pointer(self, at: Index) -> SSAValue:
        """Where a row begins."""
        place = list(self.indices)
        for n, dim in zip(at, self.dims, strict=False):
            if dim is not None:
                place[dim] = self.b.plus(place[dim], n)
        return element_at(self.b, self.array, self.size, place, all(self.inside))

    def _steps(self) -> SSAValue:
        """Bytes from the start of a row to each of its elements."""
        b, inner, (width,) = self.b, self.dims[-1], self.row.get_shape()
        assert inner is not None
        step, kind = b.times(self.array.strides[inner], self.size), VectorType(index, [width])
        if isinstance(step, int):
            return b.dense(kind, [step * n for n in range(width)])
        return b.value(arith.MuliOp(b.iota(width), self._wide(step, kind)))

    def _mask(self, at: Index) -> SSAValue | None:
        """Which elements of a row are accessed; None: all."""
        b, sizes = self.b, self.array.sizes
        *outer, inner = zip(self.dims, self.inside, strict=True)
        here: SSAValue | None = None
        for n, (dim, known) in zip(at, outer, strict=True):
            if dim is not None and not known:
                here = b.both(here, b.cmp("slt", b.plus(self.indices[dim], n), sizes[dim]))
        dim, known = inner
        lanes = None if self.access.mask is None else self._part(self.access.mask, at)
        if dim is not None and not known:
            left = b.mask_first(b.minus(sizes[dim], self.indices[dim]), self.row.get_shape()[0])
            lanes = b.both(lanes, None if left is None else self._wide(left, self._bits()))
        return lanes if here is None else b.both(lanes, self._wide(here, self._bits()))

    def _held(self, at: Index, kind: VectorType[Any]) -> SSAValue:
        """A row of what is held, or as many of one number."""
        held = self.access.held
        if held is None:
            return self.b.constant(kind, 0)
        return self._part(held, at) if isinstance(held.type, VectorType) else self._wide(held, kind)

    def _part(self, value: SSAValue, at: Index) -> SSAValue:
        if not shape_of_type(value.type):
            return self.b.shape(value, 1)
        return self.b.extract(value, *at) if at else value

    def _bits(self) -> VectorType[Any]:
        return VectorType(i1, self.row.get_shape())

    def _wide(self, x: Idx, kind: VectorType[Any]) -> SSAValue:
        """A number as often as a vector has elements."""
        if isinstance(x, int):
            return self.b.constant(kind, x)
        return x if x.type == kind else self.b.value(vector.BroadcastOp(x, kind))


def expand_vector_memory(op: Operation, target: LLVMTarget) -> None:
    """Rewrites in place what reads or writes a vector in memory."""
    if op.name in LOADS:
        replace(op, lambda b: [VectorRows(b, op, target).load()])
    else:
        replace(op, lambda b: VectorRows(b, op, target).store() or ())
