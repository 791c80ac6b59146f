"""vector.gather and vector.scatter as XeGPU's scattered ops, which every level has.

%v = vector.gather %m[%i, %j] [%o], %k, %p : memref<8x64xf32>, vector<16xindex>, ..
->
%f = memref.reinterpret_cast %m to offset: [0], sizes: [512], strides: [1] : memref<8x64xf32> to memref<512xf32, ..>
%x = xegpu.load %f[%o + (64 * %i + %j)], %k : memref<512xf32, ..>, vector<16xindex>, vector<16xi1> -> vector<16xf32>
%v = arith.select %k, %x, %p
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.vector import GatherOp, ScatterOp
from tilewright.passes.emit import Before
from tilewright.passes.vector_elements import indexed


def gathers_as_loads(root: Operation) -> None:
    """Rewrites the ops of everything inside of an op, in place."""
    for op in list(root.walk()):
        if not isinstance(op, GatherOp | ScatterOp) or not isinstance(op.base.type, MemRefType):
            continue
        at = Before(op)
        base, offsets = indexed(at, op.base, op.offsets, op.indices)
        if isinstance(op, GatherOp):
            loaded = at.add(xegpu.LoadGatherOp(base, op.mask, op.result.type, offsets=offsets))
            at.replace(at.add(arith.SelectOp(op.mask, loaded, op.pass_thru)))
        else:
            at.insert(xegpu.StoreScatterOp(op.valueToStore, base, op.mask, offsets=offsets))
            Rewriter.erase_op(op)
