"""scalar-memory: a number that a workgroup reads or writes is a vector of one element.

    %x = memref.load %m[%i, %j]        ->   %v = vector.load %m[%i, %j] : .., vector<1xf32> ; %x = vector.extract %v[0]
    memref.store %x, %m[%i, %j]        ->   %w = vector.broadcast %x ; vector.store %w, %m[%i, %j]
    memref.atomic_rmw addi %x, %m[%i]  ->   %t = xetile.init_tile %m[%i] ; xetile.atomic_rmw addi %w, %t

and those, by vector-to-xetile, tiles: their order among the accesses of tiles is kept, and where threads share the
work of a program, one writes and all wait for it.
Requires: a workgroup's program. Guarantees: the same results; none of these ops is left.
"""

from __future__ import annotations

from xdsl.dialects import gpu, memref, vector
from xdsl.dialects.builtin import VectorType
from xdsl.ir import SSAValue

from tilewright.dialects import xetile
from tilewright.dialects.upstream.combining import ATOMIC_KINDS
from tilewright.passes.emit import Before
from tilewright.passes.strided_memrefs import strided_memrefs
from tilewright.passes.vector_elements import matrix_of
from tilewright.passes.vector_to_xetile import vector_to_xetile

SCALAR = memref.LoadOp | memref.StoreOp | memref.AtomicRMWOp


def scalar_memory(kernel: gpu.FuncOp, *, atomics: bool = False) -> None:
    """Makes a number in memory a tile of one element. With `atomics`, only those of atomics whose result is used."""
    found = [op for op in kernel.walk() if isinstance(op, SCALAR)]
    if atomics:
        found = [op for op in found if isinstance(op, memref.AtomicRMWOp) and op.result.first_use]
    for op in found:
        at = Before(op)
        match op:
            case memref.LoadOp():
                read = at.add(vector.LoadOp(op.memref, op.indices, VectorType(op.res.type, [1])))
                at.replace(at.add(vector.ExtractOp(read, [0], op.res.type)))
            case memref.StoreOp():
                one = at.add(vector.BroadcastOp(op.value, VectorType(op.value.type, [1])))
                at.insert(vector.StoreOp(one, op.memref, op.indices))
                at.replace()
            case memref.AtomicRMWOp():
                one = at.add(vector.BroadcastOp(op.value, VectorType(op.value.type, [1, 1])))
                place = _place(at, op)
                old = at.add(xetile.AtomicRmwOp(ATOMIC_KINDS[op.kind.value.data], one, place))
                at.replace(at.add(vector.ExtractOp(old, [0, 0], op.result.type)))
    if found:
        strided_memrefs(kernel)
        vector_to_xetile(kernel)


def _place(at: Before, op: memref.AtomicRMWOp) -> SSAValue:
    sizes, strides = matrix_of(at, op.memref)
    tile = xetile.TileType([1, 1], op.value.type)
    return at.add(xetile.InitTileOp(op.memref, tile, op.indices, sizes=sizes, strides=strides))
