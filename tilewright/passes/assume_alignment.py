"""What MLIR text does not say of its arrays and every launch would: where they begin, and so whether rows are aligned.

    gpu.func @k(%x: memref<64x64xf16>)    ->    the same with tilewright.args = [{align = 64}]

Requires: kernels that are compiled without a launch. Guarantees: every array argument has the fact `align`; what was
known stays. Arrays are taken to begin at multiples of 64 bytes, as those of memref.alloc do; pitches are those of the
type, and one that the type leaves open is a multiple of the element alone, or of `pitch` bytes.
"""

from __future__ import annotations

from math import gcd

from xdsl.dialects import gpu
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FixedBitwidthType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    i64,
)
from xdsl.ir import Attribute

from tilewright.dialects.upstream.strided import strided_form
from tilewright.passes.memory_objects import ARGS

BASE = 64
"""Bytes."""


def assume_alignment(module: ModuleOp, pitch: int = 1) -> None:
    """Changes the facts of all kernels of a module."""
    for kernel in module.walk():
        if isinstance(kernel, gpu.FuncOp) and kernel.body.blocks:
            known = kernel.attributes.get(ARGS)
            facts: list[Attribute] = list(known.data) if isinstance(known, ArrayAttr) else []
            for argument in kernel.body.block.args:
                if argument.index == len(facts):
                    facts.append(DictionaryAttr({}))
                entry = facts[argument.index]
                if isinstance(entry, DictionaryAttr) and isinstance(argument.type, MemRefType):
                    align = IntegerAttr(_alignment(argument.type, pitch), i64)
                    facts[argument.index] = DictionaryAttr({"align": align, **entry.data})
            kernel.attributes[ARGS] = ArrayAttr(facts)


def _alignment(type: MemRefType, pitch: int) -> int:
    element = type.element_type
    size = element.size if isinstance(element, FixedBitwidthType) else 1
    strides, offset = strided_form(type)
    if offset and pitch < size:
        return size
    return gcd(BASE, *(s * size if s >= 0 else max(size, pitch) for s in strides if s != 1))
