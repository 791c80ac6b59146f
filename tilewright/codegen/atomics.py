"""mach atomics: read-modify-write, compare-exchange, atomic loads and stores, fences."""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from tilewright.codegen.pointers import pointer_type
from tilewright.codegen.printer import Printer, prints
from tilewright.dialects import mach

_SCOPES = {
    "nvptx": {"device": "device", "workgroup": "block", "subgroup": "block"},
    "spirv": {"device": "device", "workgroup": "workgroup", "subgroup": "subgroup"},
}
_FAILURE = {"acq_rel": "acquire", "release": "monotonic"}


def _ordering(p: Printer, op: Any) -> str:
    """`syncscope("..") ordering` of an atomic op."""
    scope = _SCOPES.get(p.target.family, {}).get(op.scope)
    return f'syncscope("{scope}") {op.ordering}' if scope else op.ordering


def _place(p: Printer, pointer: SSAValue) -> str:
    return f"{pointer_type(p, pointer.type)} {p.one(pointer)}"


@prints("mach.atomic_rmw")
def print_atomic_rmw(p: Printer, op: mach.AtomicRmwOp) -> None:
    e, kind = p.layout(op.value.type).element, mach.ATOMIC_KINDS[op.kind]
    text = f"atomicrmw {kind} {_place(p, op.pointer)}, {e.llvm} {p.one(op.value)} "
    p.set(op.result, [p.emit(f"{text}{_ordering(p, op)}, align {e.stored_bytes}")])


@prints("mach.cmpxchg")
def print_cmpxchg(p: Printer, op: mach.CmpxchgOp) -> None:
    e = p.layout(op.expected.type).element
    failure = _FAILURE.get(op.ordering, op.ordering)
    old, new = (f"{e.llvm} {p.one(v)}" for v in (op.expected, op.desired))
    pair = p.emit(
        f"cmpxchg {_place(p, op.pointer)}, {old}, {new} "
        f"{_ordering(p, op)} {failure}, align {e.stored_bytes}"
    )
    struct = f"{{ {e.llvm}, i1 }}"
    p.set(op.results[0], [p.emit(f"extractvalue {struct} {pair}, 0")])
    p.set(op.results[1], [p.emit(f"extractvalue {struct} {pair}, 1")])


@prints("mach.atomic_load")
def print_atomic_load(p: Printer, op: mach.AtomicLoadOp) -> None:
    e = p.layout(op.result.type).element
    text = f"load atomic {e.llvm}, {_place(p, op.pointer)} {_ordering(p, op)}"
    p.set(op.result, [p.emit(f"{text}, align {e.stored_bytes}")])


@prints("mach.atomic_store")
def print_atomic_store(p: Printer, op: mach.AtomicStoreOp) -> None:
    e = p.layout(op.value.type).element
    text = f"store atomic {e.llvm} {p.one(op.value)}, {_place(p, op.pointer)} {_ordering(p, op)}"
    p.line(f"{text}, align {e.stored_bytes}")


@prints("mach.fence")
def print_fence(p: Printer, op: mach.FenceOp) -> None:
    p.line(f"fence {_ordering(p, op)}")
