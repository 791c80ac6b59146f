"""What objects of a kernel have: attributes, methods, elements by index."""

from __future__ import annotations

import ast
from types import ModuleType
from typing import Any

from tilewright import dtypes
from tilewright.diagnostics import CompileError, did_you_mean
from tilewright.dtypes import DType
from tilewright.lang import elsewhere
from tilewright.lang import scans as _scans  # noqa: F401  # pyright: ignore[reportUnusedImport]  (with it the language is whole)
from tilewright.lang.convert import as_value, constant
from tilewright.lang.elements import element as element_of
from tilewright.lang.expressions import captured
from tilewright.lang.frame import Frame, expression
from tilewright.lang.kernel_type import KernelFunction
from tilewright.lang.parts import indexed
from tilewright.lang.registry import is_method
from tilewright.lang.values import (
    VALUE_MEMBERS,
    Array,
    Tile,
    Value,
    describe_type,
    is_number_member,
)

_MEMBERS: dict[type, tuple[str, ...]] = {
    Value: VALUE_MEMBERS,
    Tile: ("dtype", "shape"),
    Array: ("dtype", "shape", "ndim", "strides"),
}


@expression(ast.Attribute)
def _attribute(frame: Frame, node: ast.Attribute) -> Any:
    owner = frame.evaluate(node.value)
    name = node.attr
    with frame.blame(node):
        if is_number_member(owner, name):
            wide = isinstance(owner, float) and name == "to"
            owner = constant(owner, dtypes.f64) if wide else as_value(owner)
        members = _MEMBERS.get(type(owner))
        method = isinstance(owner, Value) and is_method(name)
        if members is not None and name not in members and not method:
            raise CompileError(
                f"{describe_type(owner)} has no attribute {name}",
                hint=_attribute_hint(owner, name, members),
            )
        try:
            return captured(frame, node, name, getattr(owner, name))
        except AttributeError:
            known = members or dir(owner)
            hint = _attribute_hint(owner, name, known)
            what = getattr(owner, "__name__", None) or describe_type(owner)
            raise CompileError(f"{what} has no attribute {name}", hint=hint) from None


def _attribute_hint(owner: Any, name: str, known: Any) -> str | None:
    if isinstance(owner, ModuleType) and owner.__name__ == "tilewright":
        return elsewhere.meant(name, known)
    own = type(owner) in _MEMBERS or isinstance(owner, DType)
    if own and (answer := elsewhere.METHODS.get(name)):
        return elsewhere.sentence(answer)
    if isinstance(owner, Value) and (answer := elsewhere.counterpart(name)):
        return answer
    listed = f"it has {', '.join(known)}" if type(owner) in _MEMBERS else None
    return did_you_mean(name, known, cutoff=0.75) or listed


@expression(ast.Subscript)
def _subscript(frame: Frame, node: ast.Subscript) -> Any:
    owner = frame.evaluate(node.value)
    if isinstance(owner, Array):
        with frame.blame(node):
            return element_of(owner, frame.evaluate(node.slice))
    if isinstance(owner, Value):
        with frame.blame(node):
            vector = indexed(owner, frame.evaluate(node.slice))
        if vector is not None:
            return vector
    if isinstance(owner, (Value, Tile)):
        hint = {
            Value: "values are indexed by numbers of compile time: load smaller tiles, or reduce to one, which is"
            " x.item(); x[:, None] is a vector as a column, x[None, :] as a row, x[:, :32] columns, x[0] a row",
            Tile: "a tile is moved with tw.update_tile_offset",
        }[type(owner)]
        raise frame.error(node, f"{describe_type(owner)} has no subscripts", hint=hint)
    if isinstance(owner, KernelFunction):
        raise frame.error(
            node,
            f"the kernel {owner.function.__name__} is launched in a kernel",
            rule="launches are the host's; a program calls a kernel as it does a function, which is inlined",
            hint=f"{owner.function.__name__}(...)",
        )
    index = frame.evaluate(node.slice)
    if isinstance(index, Value):
        raise frame.error(
            node.slice,
            f"an index of {describe_type(owner)} is known only at run time",
            rule="tuples are objects of compile time",
            hint="loop with tw.static_range, whose variable is a compile-time number",
        )
    return frame.python(node, lambda: owner[index])
