"""xegpu-bools-as-bytes: arrays of i1 are arrays of bytes, which is what memory holds.

    %v = xegpu.load_nd %t[0, 0] : tensor_desc<8x32xi1> -> vector<8x32xi1>
    ->
    %b = xegpu.load_nd %t[0, 0] : tensor_desc<8x32xi8> -> vector<8x32xi8>  ;  %v = arith.cmpi ne, %b, 0

A message moves words, of which an i1 is no part.

Requires: XeGPU with offsets on memory ops (xegpu-upgrade), of any level. Guarantees: the same results; no memref,
tensor_desc or mem_desc of i1. A byte that is not 0 is true; stored are 0 and 1.
"""

from __future__ import annotations

from xdsl.dialects import arith, gpu
from xdsl.dialects.builtin import MemRefType, VectorType, i1, i8
from xdsl.ir import Attribute, Operation
from xdsl.rewriter import Rewriter

from tilewright.dialects.nesting import values_made
from tilewright.dialects.xegpu.scatter import is_mask
from tilewright.dialects.xegpu.types import MemDescType, TensorDescType
from tilewright.passes.emit import Before, Behind

_LOADS = ("xegpu.load_nd", "xegpu.load", "xegpu.load_matrix", "memref.load")
_STORES = ("xegpu.store_nd", "xegpu.store", "xegpu.store_matrix", "memref.store")


def store_booleans_as_bytes(kernel: gpu.FuncOp) -> None:
    """Stores arrays of i1 as bytes."""
    for op in list(kernel.walk()):
        memory = [v.type for v in (*op.operands, *op.results) if _in_memory(v.type) is not None]
        if op.name in _LOADS and memory and is_mask(op.results[0].type):
            _read_bytes(op)
        elif op.name in _STORES and memory and is_mask(op.operands[0].type):
            kind = _bytes(op.operands[0].type)
            byte = arith.ExtUIOp.create(operands=[op.operands[0]], result_types=[kind])
            Before(op).insert(byte)
            op.operands[0] = byte.results[0]
    for op in list(kernel.walk()):
        for value in values_made(op):
            wanted = _in_memory(value.type)
            if wanted is not None:
                Rewriter.replace_value_with_new_type(value, wanted)
    kernel.properties["function_type"] = kernel.function_type.from_lists(
        [a.type for a in kernel.body.block.args], list(kernel.function_type.outputs)
    )


def _in_memory(kind: Attribute) -> Attribute | None:
    """The type with bytes for booleans; None where it holds none."""
    if not isinstance(kind, MemRefType | TensorDescType | MemDescType) or kind.element_type != i1:
        return None
    if isinstance(kind, MemRefType):
        return MemRefType(i8, kind.shape, kind.layout, kind.memory_space)
    rest = [p if p != i1 else i8 for p in kind.parameters]
    return type(kind).new(rest)


def _bytes(kind: Attribute) -> Attribute:
    return VectorType(i8, kind.shape) if isinstance(kind, VectorType) else i8


def _read_bytes(op: Operation) -> None:
    given = op.results[0].type
    kind = _bytes(given)
    byte = Rewriter.replace_value_with_new_type(op.results[0], kind)
    none = Before(op).constant(kind, 0)
    Behind(op).instead(byte, arith.CmpiOp(byte, none, "ne"))
