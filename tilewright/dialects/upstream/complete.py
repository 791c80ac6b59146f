"""Tools with which the files of this package complete stock xDSL dialects in place.

A stock op class stays the class that everyone names (`xdsl.dialects.gpu.BlockIdOp`): it gains its
custom format, a wider constraint or an attribute. So a completed op works in any context, that of
stock `xdsl-opt` included. Each change is what a change of xDSL itself would be, in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xdsl.ir import Attribute, Dialect, Operation
from xdsl.irdl import AttrConstraint, IRDLOperation, OpDef, OptPropertyDef, ParsePropInAttrDict
from xdsl.irdl.declarative_assembly_format import CustomDirective
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import MemoryEffect

from tilewright.dialects import formats

OpClass = type[IRDLOperation]
Parse = Callable[[Any, Parser], Operation]
Print = Callable[[Any, Printer], None]


def definition(op: OpClass) -> OpDef:
    return op.get_irdl_definition()


def set_format(
    assembly_format: str, *ops: OpClass, using: Sequence[type[CustomDirective]] = ()
) -> None:
    """Give ops a declarative assembly format, as their definition could have stated it."""
    for op in ops:
        definition(op).custom_directives |= {directive.__name__: directive for directive in using}
        formats.set_format(op, assembly_format)


def set_custom(op: OpClass, parse: Parse, print: Print) -> None:
    """Give an op a hand-written format: `parse(cls, parser)` and `print(self, printer)`."""
    op.parse = classmethod(parse)  # pyright: ignore[reportAttributeAccessIssue]
    op.print = print  # pyright: ignore[reportAttributeAccessIssue]


def set_operand(op: OpClass, name: str, constraint: AttrConstraint | type[Attribute]) -> None:
    """Replace the constraint of an operand."""
    _replace(definition(op).operands, name, constraint)


def set_result(op: OpClass, name: str, constraint: AttrConstraint | type[Attribute]) -> None:
    """Replace the constraint of a result."""
    _replace(definition(op).results, name, constraint)


def _replace(held: list[tuple[str, Any]], name: str, constraint: Any) -> None:
    index = [field for field, _ in held].index(name)
    kind = type(held[index][1])
    held[index] = (name, kind(constraint))


def add_optional_property(
    op: OpClass, name: str, constraint: AttrConstraint, unsaid: Attribute | None = None
) -> None:
    """Let an op hold one more optional property, readable as the attribute of that name; `unsaid` is not printed."""
    definition(op).properties[name] = OptPropertyDef(constraint, unsaid)
    definition(op).accessor_names[name] = (name, "property")

    def get(self: IRDLOperation) -> Any:
        return self.properties.get(name)

    setattr(op, name, property(get))


def add_listed_property(op: OpClass, name: str, constraint: AttrConstraint) -> None:
    """One that the text has in its dictionary, `{alignment = 16 : i64}`."""
    add_optional_property(op, name, constraint)
    options = definition(op).options
    if not any(isinstance(option, ParsePropInAttrDict) for option in options):
        options.append(ParsePropInAttrDict())
    set_format(definition(op).assembly_format or op.assembly_format, op)  # pyright: ignore


def set_verifier(op: OpClass, verify: Callable[[Any], None] | None = None) -> None:
    """Replace an op's own rules; the constraints of its definition still hold."""
    op_def = definition(op)

    def verify_(self: IRDLOperation) -> None:
        op_def.verify(self)
        if verify is not None:
            verify(self)

    op.verify_ = verify_


def add_verifier(op: OpClass, verify: Callable[[Any], None]) -> None:
    """Add a rule to those that an op has."""
    stock = op.verify_

    def verify_(self: IRDLOperation) -> None:
        stock(self)
        verify(self)

    op.verify_ = verify_


def add_effect(effect: MemoryEffect, *ops: OpClass) -> None:
    """Let ops say what they do to memory."""
    for op in ops:
        op.traits.add_trait(effect)


def set_constructor(op: OpClass, init: Callable[..., None]) -> None:
    """Replace `__init__`, where the stock one builds ops that its own verifier then refuses."""
    op.__init__ = init


def add_ops(dialect: Dialect, ops: Iterable[type[Operation]]) -> None:
    """Add the ops that a dialect lacks. One that a newer xDSL brings itself is left to it."""
    known = {op.name for op in dialect.operations}
    missing = [op for op in ops if op.name not in known]
    dialect._operations.extend(missing)  # pyright: ignore[reportPrivateUsage]


def replace_ops(dialect: Dialect, ops: Sequence[type[Operation]]) -> None:
    """In place of the dialect's ops of the same names, where these lack operands."""
    names = {op.name for op in ops}
    kept = [op for op in dialect.operations if op.name not in names]
    dialect._operations[:] = [*kept, *ops]  # pyright: ignore[reportPrivateUsage]


def add_attributes(dialect: Dialect, attributes: Iterable[type[Attribute]]) -> None:
    """Add the attributes and types that a dialect lacks."""
    known = {attribute.name for attribute in dialect.attributes}
    missing = [attribute for attribute in attributes if attribute.name not in known]
    dialect._attributes.extend(missing)  # pyright: ignore[reportPrivateUsage]
