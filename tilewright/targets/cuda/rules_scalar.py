"""Scalars, ids, arrays, tiles as values, barriers, assertions: what every thread does alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from xdsl.dialects import cf, gpu, memref
from xdsl.dialects.builtin import IndexType, MemRefType, VectorType
from xdsl.ir import Operation, SSAValue

from tilewright import knobs
from tilewright.codegen.atomic_loops import exchange
from tilewright.codegen.builder import Builder, Idx
from tilewright.codegen.tiles import (
    Matrix,
    ScatteredTile,
    cloned,
    init_tile,
    itemsize,
    mark_nonnegative,
    matrix_of_memref,
    metadata_of,
    plain,
    view_of,
)
from tilewright.codegen.vector_memory import element_at
from tilewright.dialects import mach
from tilewright.dialects import xetile as xt
from tilewright.dialects.movement import is_vector, memref_type
from tilewright.dialects.nesting import enclosing, used_from_above
from tilewright.dialects.tw import PrintOp
from tilewright.dialects.upstream.arith import folded
from tilewright.dialects.upstream.generic_atomic import GenericAtomicRMWOp
from tilewright.dialects.upstream.views import VIEWS
from tilewright.passes.memory_objects import memory_root, memory_space
from tilewright.targets.cuda.distribute import GLOBAL, Distributor, pointer_in, rule
from tilewright.targets.cuda.exchange import exchanged
from tilewright.targets.cuda.sync import MemoryRange

_FOLDED: dict[str, Callable[[Builder], Callable[[Idx, Idx], Idx] | None]] = {
    "arith.addi": lambda b: b.plus,
    "arith.subi": lambda b: b.minus,
    "arith.muli": lambda b: b.times,
}
"""Index arithmetic that folds what it can."""


@rule("scalar")
def clone_scalar(d: Distributor, op: Operation) -> None:
    """An op on scalars, as it is."""
    b, values = d.b, (*op.operands, *op.results)
    if op.regions or any(
        is_vector(v) or isinstance(v.type, MemRefType | xt.TileType) for v in values
    ):
        raise d.error(op, f"{op.name} is not supported by the cuda target")
    operands = [d.scalar(v) for v in op.operands]
    fold = _FOLDED.get(op.name, lambda b: None)(b)
    if fold is not None and isinstance(op.results[0].type, IndexType):
        d.set_scalar(op.results[0], b.idx(fold(folded(operands[0]), folded(operands[1]))))
        return
    results = cloned(b, op, operands)
    mark_nonnegative(b, op, operands, results)
    for old, value in zip(op.results, results, strict=True):
        d.set_scalar(old, value)


@rule("gpu.block_id", "gpu.grid_dim")
def ids(d: Distributor, op: gpu.BlockIdOp | gpu.GridDimOp) -> None:
    d.set_scalar(op.result, d.program(op.name, str(op.dimension.data)))


@rule("gpu.barrier")
def barrier(d: Distributor, op: Operation) -> None:
    d.barrier()


@rule(
    "gpu.return",
    "func.return",
    "scf.yield",
    "scf.condition",
    "memref.dealloc",
    "memref.assume_alignment",
)
def nothing(d: Distributor, op: Operation) -> None:
    """Terminators are printed by what contains them."""


@rule("memref.dim")
def dim(d: Distributor, op: memref.DimOp) -> None:
    at = d.idx(op.index)
    matrix = d.matrix(op.source)
    if not isinstance(at, int) or matrix is None:
        raise d.error(op, "memref.dim needs a constant dimension of an array argument")
    d.set_scalar(op.result, d.b.idx(matrix.sizes[at]))


@rule("memref.extract_strided_metadata")
def metadata(d: Distributor, op: Operation) -> None:
    base, values = metadata_of(d.b, _array(d, op, op.operands[0]))
    d.set_matrix(op.results[0], base)
    for result, value in zip(op.results[1:], values, strict=True):
        d.set_scalar(result, d.b.idx(value))


@rule(*VIEWS)
def view(d: Distributor, op: Operation) -> None:
    """The same memory with another offset, sizes and strides."""
    source, *given = op.operands
    d.set_matrix(op.results[0], view_of(d.b, op, _array(d, op, source), [d.idx(v) for v in given]))


@rule("memref.extract_aligned_pointer_as_index")
def address(d: Distributor, op: Operation) -> None:
    pointer = _array(d, op, op.operands[0]).base(d.b)
    d.set_scalar(op.results[0], d.b.value(mach.IntFromPtrOp(pointer)))


@rule("memref.alloc", "memref.alloca")
def allocate(d: Distributor, op: Operation) -> None:
    """Memory shared by the workgroup: it lives to the end of the kernel."""
    (result,) = op.results
    type = memref_type(result)
    shape = type.get_shape()
    if any(n < 0 for n in shape):
        raise d.error(op, "memory shared by the workgroup has a static shape")
    count = itemsize(plain(type.element_type))
    for n in shape:
        count *= n
    if memory_space(result) not in (0, 3, None):
        raise d.error(op, f"there is no memory space {memory_space(result)} on {d.machine.name}")
    offset = d.shared.allocate(count, "an array of the workgroup", op=op)
    d.hazards.reuse(d, MemoryRange(offset, offset + count))
    pointer = d.shared_pointer(offset)
    d.set_matrix(result, matrix_of_memref(d.b, pointer, type, [], []))


@rule("memref.generic_atomic_rmw")
def atomic(d: Distributor, op: GenericAtomicRMWOp) -> None:
    """The first thread does it; what it found reaches all, where it is used."""
    b, array, kind = d.b, _array(d, op, op.memref), plain(op.result.type)
    pointer = element_at(b, array, itemsize(kind), [d.idx(i) for i in op.indices])
    taken = {v: d.scalar(v) for v in used_from_above(op.atomic_body)}
    d.hazards.write(d, MemoryRange(root=memory_root(op.memref)))

    def store(offset: int) -> None:
        with b.when(b.cmp("eq", d.thread, 0)):
            old = exchange(b, op, pointer, taken)
            b.store(old, d.shared_pointer(offset))

    def load(offset: int) -> SSAValue:
        return b.load(d.shared_pointer(offset), kind)

    d.set_scalar(op.result, exchanged(d, itemsize(kind), "what an atomic found", store, load))


def _array(d: Distributor, op: Operation, value: SSAValue) -> Matrix:
    found = d.matrix(value)
    if found is None:
        raise d.error(op, f"{op.name}: the cuda target cannot find the origin of this array")
    return found


# Tiles as values --------------------------------------------------------------------------------


@rule("xetile.init_tile")
def make_tile(d: Distributor, op: xt.InitTileOp) -> None:
    source: Matrix | SSAValue | None = d.matrix(op.source)
    if source is None:
        source = d.b.value(mach.PtrFromIntOp(d.scalar(op.source), pointer_in(GLOBAL)))
    known = {v: d.scalar(v) for v in (*op.offsets, *op.sizes, *op.strides)}
    d.set_tile(op.result, init_tile(d.b, op, source, known))


@rule("xetile.update_tile_offset")
def move_tile(d: Distributor, op: xt.UpdateTileOffsetOp) -> None:
    tile = d.tile(op.tile)
    if isinstance(tile, ScatteredTile):
        assert op.offset_vector is not None
        d.set_tile(op.result, replace(tile, offsets=(*tile.offsets, op.offset_vector)))
        return
    rows, cols = (x if isinstance(x, int) else d.idx(x) for x in op.mixed_offsets)
    d.set_tile(op.result, tile.moved(d.b, rows, cols))


# Diagnostics ------------------------------------------------------------------------------------


@rule("cf.assert")
def check(d: Distributor, op: cf.AssertOp) -> None:
    d.fail_unless(d.scalar(op.arg), op)


@rule("tw.print")
def print_line(d: Distributor, op: PrintOp) -> None:
    """Thread 0 prints for its workgroup; a launch prints the lines of so many programs as a knob says."""
    if any(isinstance(v.type, VectorType) for v in op.values):
        raise d.error(
            op, "compiled code prints scalars, not vectors", "vector.extract what is to be printed"
        )
    b, limit = d.b, knobs.current().print_lines
    x, y, z = (d.program("gpu.block_id", axis) for axis in "xyz")
    columns, rows = (d.program("gpu.grid_dim", axis) for axis in "xy")
    number = b.plus(b.times(b.plus(b.times(z, rows), y), columns), x)
    first = b.cmp("eq", d.thread, 0)
    shown = b.both(first, b.cmp("slt", number, limit))
    assert shown is not None
    values = [d.scalar(v) for v in op.values]
    with b.when(shown):
        b.op(PrintOp(f"[workgroup ({{}}, {{}}, {{}})] {op.format.data}", [x, y, z, *values]))
    function = enclosing(op, gpu.FuncOp)
    assert function is not None
    if next(o for o in function.walk() if isinstance(o, PrintOp)) is op:
        beyond = b.both(first, b.cmp("eq", number, limit))
        assert beyond is not None
        with b.when(beyond):
            name = knobs.variable("print_lines")
            b.op(PrintOp(f"... the other programs print nothing ({name} is {limit})", []))


@rule("tw.breakpoint", "gpu.printf", "vector.print")
def refuse(d: Distributor, op: Operation) -> None:
    raise d.error(
        op,
        f"{op.name} has no form in compiled code on a GPU",
        hint="tw.print has; or run the kernel with --target reference, kernel.options(target='reference')",
    )
