"""scalar-memory: a number that a workgroup reads or writes is a vector of one element.

    %x = memref.load %m[%i, %j]        ->   %v = vector.load %m[%i, %j] : .., vector<1xf32> ; %x = vector.extract %v[0]
    memref.store %x, %m[%i, %j]        ->   %w = vector.broadcast %x ; vector.store %w, %m[%i, %j]
    memref.atomic_rmw addi %x, %m[%i]  ->   %t = xetile.init_tile %m[%i] ; xetile.atomic_rmw addi %w, %t

and those, by vector-to-xetile, tiles: their order among the accesses of tiles is kept, and where threads share the
work of a program, one writes and all wait for it.
Requires: a workgroup's program. Guarantees: the same results; none of these ops is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import gpu, memref, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.upstream.combining import ATOMIC_KINDS
from tilewright.passes.emit import Before
from tilewright.passes.strided_memrefs import strided_memrefs
from tilewright.passes.vector_elements import flattened, matrix_of
from tilewright.passes.vector_to_xetile import vector_to_xetile

SCALAR = memref.LoadOp | memref.StoreOp | memref.AtomicRMWOp


def scalar_memory(kernel: gpu.FuncOp) -> None:
    """Makes a number in memory a tile of one element."""
    found = [op for op in kernel.walk() if isinstance(op, SCALAR)]
    for op in found:
        at = Before(op)
        array, indices = op.memref, list(op.indices)
        if not indices:
            array, indices = flattened(at, array, matrix_of(at, array)), [at.index(0)]
        match op:
            case memref.LoadOp():
                read = at.add(vector.LoadOp(array, indices, VectorType(op.res.type, [1])))
                at.replace(at.add(vector.ExtractOp(read, [0], op.res.type)))
            case memref.StoreOp():
                one = at.add(vector.BroadcastOp(op.value, VectorType(op.value.type, [1])))
                at.insert(vector.StoreOp(one, array, indices))
                at.replace()
            case memref.AtomicRMWOp():
                one = at.add(vector.BroadcastOp(op.value, VectorType(op.value.type, [1, 1])))
                place = _place(at, array, indices)
                old = at.add(xetile.AtomicRmwOp(ATOMIC_KINDS[op.kind.value.data], one, place))
                at.replace(at.add(vector.ExtractOp(old, [0, 0], op.result.type)))
    if found:
        strided_memrefs(kernel)
        vector_to_xetile(kernel)


def _place(at: Before, array: SSAValue, indices: Sequence[SSAValue]) -> SSAValue:
    sizes, strides = matrix_of(at, array)
    tile = xetile.TileType([1, 1], array.type.element_type)  # pyright: ignore
    return at.add(xetile.InitTileOp(array, tile, indices, sizes=sizes, strides=strides))
