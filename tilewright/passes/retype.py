"""The types of ops, and others in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute, Operation, ParametrizedAttribute

Change = Callable[[Attribute], Attribute | None]
"""Another attribute for one, or None where only those in it may have one."""


def types_of(op: Operation) -> Iterator[Attribute]:
    """Those of the values that an op takes, gives and defines, and of a function or a global."""
    yield from op.operand_types
    yield from op.result_types
    yield from (a.type for r in op.regions for b in r.blocks for a in b.args)
    if (kind := op.properties.get("function_type", op.properties.get("type"))) is not None:
        yield from (*kind.inputs, *kind.outputs) if hasattr(kind, "inputs") else (kind,)  # pyright: ignore


def retype(ops: Sequence[Operation], change: Change) -> None:
    """Changes all values and attributes that the ops define, in place."""
    for op in ops:
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            value._type = changed(value.type, change)  # pyright: ignore[reportPrivateUsage]
        for table in (op.properties, op.attributes):
            table.update({name: changed(each, change) for name, each in table.items()})


def changed(attribute: Attribute, change: Change) -> Attribute:
    """The attribute with others in it; itself where nothing changes."""
    if (other := change(attribute)) is not None:
        return other
    match attribute:
        case ArrayAttr():
            return ArrayAttr([changed(each, change) for each in attribute])
        case DictionaryAttr():
            data = attribute.data.items()
            return DictionaryAttr({name: changed(each, change) for name, each in data})
        case ParametrizedAttribute():
            old = attribute.parameters
            new = [changed(each, change) for each in old]
            same = all(a is b for a, b in zip(old, new, strict=True))
            return attribute if same else type(attribute).new(new)
        case _:
            return attribute
