"""mach atomics: read-modify-write, compare-exchange, atomic loads and stores, fences."""

from __future__ import annotations

from xdsl.dialects.builtin import (
    StringAttr,
)
from xdsl.ir import Operation

from tilewright.codegen.pointers import pointer_type
from tilewright.codegen.printer import Printer, attribute, prints
from tilewright.dialects.mach import ATOMIC_KINDS

_SCOPES = {
    "nvptx": {"device": "device", "workgroup": "block", "subgroup": "block"},
    "spirv": {"device": "device", "workgroup": "workgroup", "subgroup": "subgroup"},
}
_FAILURE = {"acq_rel": "acquire", "release": "monotonic"}


def _ordering(p: Printer, op: Operation) -> tuple[str, str]:
    """(syncscope text, ordering) of an atomic op."""
    ordering, scope = attribute(op, "ordering"), attribute(op, "scope")
    assert isinstance(ordering, StringAttr)
    table = _SCOPES.get(p.target.family, {})
    named = table.get(scope.data) if isinstance(scope, StringAttr) else None
    return (f'syncscope("{named}") ' if named else ""), ordering.data


@prints("mach.atomic_rmw")
def print_atomic_rmw(p: Printer, op: Operation) -> None:
    value, pointer = op.operands
    kind = attribute(op, "kind")
    assert isinstance(kind, StringAttr)
    e = p.layout(value.type).element
    scope, ordering = _ordering(p, op)
    llvm = pointer_type(p, pointer.type)
    text = f"atomicrmw {ATOMIC_KINDS[kind.data]} {llvm} {p.one(pointer)}, {e.llvm} {p.one(value)} "
    p.set(op.results[0], [p.emit(f"{text}{scope}{ordering}, align {e.stored_bytes}")])


@prints("mach.cmpxchg")
def print_cmpxchg(p: Printer, op: Operation) -> None:
    pointer, expected, desired = op.operands
    e = p.layout(expected.type).element
    scope, ordering = _ordering(p, op)
    failure = _FAILURE.get(ordering, ordering)
    llvm = pointer_type(p, pointer.type)
    pair = p.emit(
        f"cmpxchg {llvm} {p.one(pointer)}, {e.llvm} {p.one(expected)}, {e.llvm} {p.one(desired)} "
        f"{scope}{ordering} {failure}, align {e.stored_bytes}"
    )
    struct = f"{{ {e.llvm}, i1 }}"
    p.set(op.results[0], [p.emit(f"extractvalue {struct} {pair}, 0")])
    p.set(op.results[1], [p.emit(f"extractvalue {struct} {pair}, 1")])


@prints("mach.atomic_load")
def print_atomic_load(p: Printer, op: Operation) -> None:
    (pointer,) = op.operands
    e = p.layout(op.results[0].type).element
    scope, ordering = _ordering(p, op)
    llvm = pointer_type(p, pointer.type)
    text = (
        f"load atomic {e.llvm}, {llvm} {p.one(pointer)} {scope}{ordering}, align {e.stored_bytes}"
    )
    p.set(op.results[0], [p.emit(text)])


@prints("mach.atomic_store")
def print_atomic_store(p: Printer, op: Operation) -> None:
    value, pointer = op.operands
    e = p.layout(value.type).element
    scope, ordering = _ordering(p, op)
    llvm = pointer_type(p, pointer.type)
    p.line(
        f"store atomic {e.llvm} {p.one(value)}, {llvm} {p.one(pointer)} "
        f"{scope}{ordering}, align {e.stored_bytes}"
    )


@prints("mach.fence")
def print_fence(p: Printer, op: Operation) -> None:
    scope, ordering = _ordering(p, op)
    p.line(f"fence {scope}{ordering}")
