"""mach atomics: read-modify-write, compare-exchange, atomic loads and stores, fences."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, SSAValue

from tilewright.codegen.pointers import pointer_type
from tilewright.codegen.printer import Printer, prints
from tilewright.codegen.registers import llvm_vector
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


def _word(p: Printer, type: Attribute) -> tuple[str, str, int]:
    """The type of a value's register, of the word that is exchanged, and the bytes of that."""
    layout = p.layout(type)
    e = layout.element
    if not isinstance(type, VectorType):
        return e.llvm, e.llvm, e.stored_bytes
    size = layout.size * e.stored_bytes
    return llvm_vector(layout.size, e.llvm), f"i{8 * size}", size


def _as(p: Printer, value: str, type: str, other: str) -> str:
    return value if type == other else p.emit(f"bitcast {type} {value} to {other}")


@prints("mach.cmpxchg")
def print_cmpxchg(p: Printer, op: mach.CmpxchgOp) -> None:
    register, word, size = _word(p, op.expected.type)
    failure = _FAILURE.get(op.ordering, op.ordering)
    old, new = (f"{word} {_as(p, p.one(v), register, word)}" for v in (op.expected, op.desired))
    pair = p.emit(
        f"cmpxchg {_place(p, op.pointer)}, {old}, {new} {_ordering(p, op)} {failure}, align {size}"
    )
    struct = f"{{ {word}, i1 }}"
    p.set(op.results[0], [_as(p, p.emit(f"extractvalue {struct} {pair}, 0"), word, register)])
    p.set(op.results[1], [p.emit(f"extractvalue {struct} {pair}, 1")])


@prints("mach.atomic_load")
def print_atomic_load(p: Printer, op: mach.AtomicLoadOp) -> None:
    register, word, size = _word(p, op.result.type)
    text = f"load atomic {word}, {_place(p, op.pointer)} {_ordering(p, op)}, align {size}"
    p.set(op.result, [_as(p, p.emit(text), word, register)])


@prints("mach.atomic_store")
def print_atomic_store(p: Printer, op: mach.AtomicStoreOp) -> None:
    e = p.layout(op.value.type).element
    text = f"store atomic {e.llvm} {p.one(op.value)}, {_place(p, op.pointer)} {_ordering(p, op)}"
    p.line(f"{text}, align {e.stored_bytes}")


@prints("mach.fence")
def print_fence(p: Printer, op: mach.FenceOp) -> None:
    p.line(f"fence {_ordering(p, op)}")
