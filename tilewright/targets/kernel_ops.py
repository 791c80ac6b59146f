"""What a workgroup's program does alike in all who run it: arrays and their views, tiles as values, ends of regions.

    %n = memref.dim %a, %c0                        (the number that the launch gave)
    %t = xetile.init_tile %a[%i, %j]               (a `Tile`: no op; the offsets are not checked for what is known
                                                    not to be negative)

Rules for the contexts of cpu and cuda (`KernelValues`), which have rules of their own for what threads do apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import Any

from xdsl.dialects import gpu, memref
from xdsl.dialects.builtin import IndexType, IntegerType
from xdsl.ir import Operation, SSAValue

from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import (
    Matrix,
    ScatteredTile,
    Tile,
    init_tile,
    itemsize,
    matrix_of_memref,
    metadata_of,
    plain,
    view_of,
)
from tilewright.diagnostics import unsupported
from tilewright.dialects import mach
from tilewright.dialects.movement import memref_type
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.views import VIEWS
from tilewright.dialects.xetile import InitTileOp
from tilewright.passes.integers import Ranges
from tilewright.rules import Rules


class KernelValues:
    """A function under construction, and what the values of the kernel are in it."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        self.ranges = Ranges()
        """Of the kernel's integers."""

    def scalar(self, value: SSAValue) -> SSAValue:
        """A scalar of the kernel in the new function."""
        raise NotImplementedError

    def set_scalar(self, value: SSAValue, new: SSAValue) -> None:
        raise NotImplementedError

    def matrix(self, value: SSAValue) -> Matrix | None:
        """The array behind a memref; None for an integer address."""
        raise NotImplementedError

    def set_matrix(self, value: SSAValue, matrix: Matrix) -> None:
        raise NotImplementedError

    def set_tile(self, value: SSAValue, tile: Tile | ScatteredTile) -> None:
        raise NotImplementedError

    def pointer(self, address: SSAValue) -> SSAValue:
        """An integer address as a pointer to global memory."""
        raise NotImplementedError

    def allocate(self, op: Operation, size: int) -> SSAValue:
        """The address of so many bytes that the workgroup's program has for itself."""
        raise NotImplementedError

    def grid_number(self, name: str, axis: str) -> SSAValue:
        """This program's id (`gpu.block_id`) or the number of programs (`gpu.grid_dim`) along x, y, z."""
        raise NotImplementedError

    def idx(self, value: SSAValue | int) -> Idx:
        """An index of the kernel: a number where it is a constant."""
        return value if isinstance(value, int) else folded(self.scalar(value))

    def define(self, value: SSAValue, new: SSAValue) -> None:
        """A scalar of the kernel is this one, of which the builder learns whether it can be negative."""
        if isinstance(value.type, IndexType | IntegerType):
            low, _ = self.ranges.bounds(value)
            if low is not None and low >= 0:
                self.b.nonnegative.add(new)
        self.set_scalar(value, new)

    def array(self, op: Operation, value: SSAValue) -> Matrix:
        """The array behind a memref that an op takes."""
        found = self.matrix(value)
        if found is None:
            raise unsupported(op, f"{op.name}: the origin of this array is not known")
        return found


rule: Rules[Callable[[KernelValues, Any], None]] = Rules()


@rule("gpu.block_id", "gpu.grid_dim")
def ids(d: KernelValues, op: gpu.BlockIdOp | gpu.GridDimOp) -> None:
    d.set_scalar(op.result, d.grid_number(op.name, str(op.dimension.data)))


@rule("gpu.return", "func.return", "scf.yield", "scf.condition")
@rule("memref.dealloc", "memref.assume_alignment")
def nothing(d: KernelValues, op: Operation) -> None:
    """Ends of regions are built by what contains them."""


@rule("memref.dim")
def dim(d: KernelValues, op: memref.DimOp) -> None:
    at = d.idx(op.index)
    if not isinstance(at, int):
        raise unsupported(op, "memref.dim needs a constant dimension")
    d.set_scalar(op.result, d.b.idx(d.array(op, op.source).sizes[at]))


@rule("memref.extract_strided_metadata")
def metadata(d: KernelValues, op: Operation) -> None:
    base, values = metadata_of(d.b, d.array(op, op.operands[0]))
    d.set_matrix(op.results[0], base)
    for result, value in zip(op.results[1:], values, strict=True):
        d.set_scalar(result, d.b.idx(value))


@rule(*VIEWS)
def view(d: KernelValues, op: Operation) -> None:
    """The same memory with another offset, sizes and strides."""
    source, *given = op.operands
    array, numbers = d.array(op, source), [d.idx(v) for v in given]
    d.set_matrix(op.results[0], view_of(d.b, op, array, numbers))


@rule("memref.extract_aligned_pointer_as_index")
def address(d: KernelValues, op: Operation) -> None:
    pointer = d.array(op, op.operands[0]).base(d.b)
    d.set_scalar(op.results[0], d.b.value(mach.IntFromPtrOp(pointer)))


@rule("memref.alloc", "memref.alloca")
def alloc(d: KernelValues, op: Operation) -> None:
    """Memory shared by the workgroup: it lives to the end of the kernel."""
    (result,) = op.results
    type = memref_type(result)
    shape = type.get_shape()
    if any(n < 0 for n in shape):
        raise unsupported(op, "memory shared by the workgroup has a static shape")
    pointer = d.allocate(op, reduce(mul, shape, itemsize(plain(type.element_type))))
    d.set_matrix(result, matrix_of_memref(d.b, pointer, type, [], []))


@rule("xetile.init_tile")
def make_tile(d: KernelValues, op: InitTileOp) -> None:
    source = d.matrix(op.source)
    known = {v: d.scalar(v) for v in (*op.offsets, *op.sizes, *op.strides)}
    d.set_tile(op.result, init_tile(d.b, op, source or d.pointer(d.scalar(op.source)), known))
