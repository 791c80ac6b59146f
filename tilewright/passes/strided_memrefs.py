"""strided-memrefs: memrefs whose layout is an affine map get the strides that it says.

    memref<64x32xf16, affine_map<(i, j) -> (j, i)>>     ->     memref<64x32xf16, strided<[1, 64]>>

Requires nothing. Guarantees: the same memory, and one form of layout for the passes that follow. A map that is no
strided form stays.
"""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    FunctionType,
    MemRefType,
    StridedLayoutAttr,
)
from xdsl.ir import Attribute, Operation

from tilewright.dialects.nesting import values_made
from tilewright.dialects.upstream.strided import strided_form


def strided_memrefs(root: Operation) -> None:
    """Rewrites all types in an op, in place."""
    for op in root.walk():
        for value in values_made(op):
            if (new := strided(value.type)) != value.type:
                value._type = new  # pyright: ignore[reportPrivateUsage]
        for attributes in (op.properties, op.attributes):
            for name, attribute in list(attributes.items()):
                if (new := strided(attribute)) != attribute:
                    attributes[name] = new


def strided(type: Attribute) -> Attribute:
    """A type with the strides of its affine map; the type itself where it has none."""
    if isinstance(type, FunctionType):
        ins, outs = ([strided(t) for t in types.data] for types in (type.inputs, type.outputs))
        return FunctionType.from_lists(ins, outs)
    if not isinstance(type, MemRefType) or not isinstance(type.layout, AffineMapAttr):
        return type
    memref = cast(MemRefType[Attribute], type)
    try:
        numbers, start = strided_form(memref)
    except TypeError:
        return type
    strides, offset = (
        [None if n == DYNAMIC_INDEX else n for n in each] for each in (numbers, [start])
    )
    layout = StridedLayoutAttr(strides, offset[0])
    return MemRefType(memref.element_type, memref.get_shape(), layout, memref.memory_space)
