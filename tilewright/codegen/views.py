"""memref ops that view the same memory otherwise: casts, subviews, reshapes, transposition."""

from __future__ import annotations

from xdsl.dialects.builtin import MemRefType, UnrankedMemRefType
from xdsl.ir import Operation

from tilewright.codegen.descriptor import DescriptorTexts, from_unranked, read, to_unranked, write
from tilewright.codegen.pointers import offset_pointer
from tilewright.codegen.printer import Printer, prints
from tilewright.dialects.upstream.views import VIEWS, View, viewed


@prints(*VIEWS)
def print_view(p: Printer, op: Operation) -> None:
    source, *given = op.operands
    result = op.results[0]
    if isinstance(source.type, UnrankedMemRefType):
        from_unranked(p, source, result)
        return
    d = read(p, source)
    if isinstance(result.type, UnrankedMemRefType):
        p.set(result, to_unranked(p, d))
        return
    assert isinstance(result.type, MemRefType)
    numbers = [p.one(v) for v in given]
    new = viewed(op, View(d.offset, d.sizes, d.strides), numbers, DescriptorTexts(p))
    pointer, space = d.pointer, p.rep.memref(result.type).pointer
    if new.bytes is not None:
        pointer = offset_pointer(p, pointer, new.bytes, d.layout.pointer)
    if space != d.layout.pointer:
        pointer = p.emit(f"addrspacecast {d.layout.pointer} {pointer} to {space}")
    write(p, result, pointer, new.offset, new.sizes, new.strides)
