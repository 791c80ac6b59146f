"""Printing as mlir-opt prints: names of values, default dialects, memory spaces, floats.

`MlirPrinter` differs from the stock printer in what FileCheck tests look at. With `renumber`, values
get the names that MLIR gives them (`%0`, `%c8`, `%arg0`); without it those that were written with a
name keep it. Long attributes that occur more than once can be printed as aliases (`#map`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import StringIO

from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    LocationAttr,
    MemRefType,
    NoneAttr,
    UnrankedMemRefType,
    f64,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.printer import Printer

from tilewright.dialects.naming import Names
from tilewright.dialects.numerals import affine_map_text, float_text

# Attributes that are printed as aliases: MLIR's own choice, and what makes our programs readable.
MLIR_ALIASES: dict[str, str] = {"affine_map": "map", "affine_set": "set"}
READABLE_ALIASES: dict[str, str] = {
    **MLIR_ALIASES,
    "xetile.tile_attr": "tile_attr",
    "xetile.wg_map": "wg_map",
    "xegpu.layout": "layout",
    "xegpu.slice": "slice",
}
_MARK = re.compile(r"\0(\d+)\0")


# Ops inside of which a dialect's name may be left out, and the ops that are printed without it.
DEFAULT_DIALECTS = {"builtin.module": "builtin", "func.func": "func"}
SHORT_OPS = frozenset({"builtin.module", "func.return", "func.call"})


@dataclass(eq=False, repr=False)
class MlirPrinter(Printer):
    """Prints as mlir-opt does; see the module."""

    renumber: bool = False
    wanted: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kinds of attributes that may be printed as aliases, and what these are called."""
    names: Names = field(default_factory=Names, init=False)
    dialects: list[str] = field(default_factory=lambda: ["builtin"], init=False)
    _texts: dict[int, tuple[Attribute, str]] = field(
        default_factory=dict[int, tuple[Attribute, str]], init=False
    )
    """By identity: an attribute is printed once and said again from here, as many ops have the same one."""
    _marked: dict[Attribute, int] = field(default_factory=dict[Attribute, int], init=False)
    """Attributes that are wanted, numbered in order of their first appearance. `\0n\0` stands for the n-th until all is
    printed: only then is known which ones have an alias."""
    _shown: list[str] = field(default_factory=list[str], init=False)
    """Their texts."""

    def top(self, op: Operation, minimum: int) -> str:
        """The text of a whole op behind the aliases of all attributes that it shows at least so often."""
        self.names = Names(keep=not self.renumber)
        for region in op.regions:
            self.names.of_region(region, 0, 0, frozenset())
        body = self._captured(lambda: self.print_op(op))
        texts, counts = self._shown, [0] * len(self._shown)
        appear = [body]
        while appear:
            for mark in _MARK.findall(appear.pop()):
                counts[int(mark)] += 1
                appear.append(texts[int(mark)])
        numbers = Counter[str]()
        aliases: dict[int, str] = {}
        for attribute, n in self._marked.items():
            if counts[n] >= minimum:
                stem = self.wanted[attribute.name]
                aliases[n] = f"#{stem}{numbers[stem] or ''}"
                numbers[stem] += 1

        def said(text: str, known: Mapping[int, str]) -> str:
            return _MARK.sub(
                lambda mark: known.get(n := int(mark[1])) or said(texts[n], known), text
            )

        return "".join(f"{name} = {said(texts[n], {})}\n" for n, name in aliases.items()) + said(
            body, aliases
        )

    def _captured(self, show: Callable[[], None]) -> str:
        """What is printed by `show`."""
        outer, self.stream = self.stream, StringIO()
        try:
            show()
            return self.stream.getvalue()
        finally:
            self.stream = outer

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        """Most strings are no end of a line; nothing of ours asks for the column."""
        if "\n" in text or self.stream is None:
            super().print_string(text, indent=indent)
        else:
            self.stream.write(text)

    def print_ssa_value(self, value: SSAValue) -> str:
        name = self.names.values.get(value)
        if name is None:
            return super().print_ssa_value(value)
        self.print_string(f"%{name}")
        return name

    def _print_results(self, op: Operation) -> None:
        text = self.names.results.get(op)
        if text is None:
            super()._print_results(op)
            return
        self.print_string(f"{text} = ")

    def print_op(self, op: Operation) -> None:
        """Leaves out the name of the dialect that the surrounding op makes the default."""
        dialect, _, mnemonic = op.name.partition(".")
        default = self.dialects[-1]
        self.dialects.append(DEFAULT_DIALECTS.get(op.name, ""))
        try:
            if op.name in SHORT_OPS and default == dialect and not self.print_generic_format:
                self._print_short(op, mnemonic)
            else:
                super().print_op(op)
        finally:
            self.dialects.pop()

    def print_op_with_default_format(self, op: Operation) -> None:
        """Of ops that have no properties in MLIR, attributes in their place; operands tell their groups."""
        if not getattr(op, "GENERIC_AS_ATTRIBUTES", False):
            return super().print_op_with_default_format(op)
        held = op.properties
        op.properties = {name: held[name] for name in held if name != "operandSegmentSizes"}
        self.print_properties_as_attributes = True
        try:
            super().print_op_with_default_format(op)
        finally:
            op.properties, self.print_properties_as_attributes = held, False

    def _print_short(self, op: Operation, mnemonic: str) -> None:
        self._print_results(op)
        self.print_string(mnemonic)
        self.enter_scope()
        op.print(self)
        self.exit_scope()
        if self.print_debuginfo:
            self.print_string(" ")
            self.print_attribute(op.location)

    def print_float(self, value: float, type: AnyFloat) -> None:
        self.print_string(float_text(value, type))

    def print_attribute(self, attribute: Attribute) -> None:
        known = self._texts.get(id(attribute))
        if known is None:
            if isinstance(attribute, LocationAttr):  # its text is another inside of a location
                return self._show(attribute)
            known = self._texts[id(attribute)] = attribute, self._text(attribute)
        self.print_string(known[1])

    def _text(self, attribute: Attribute) -> str:
        if attribute.name not in self.wanted:
            return self._captured(lambda: self._show(attribute))
        number = self._marked.setdefault(attribute, len(self._shown))
        if number == len(self._shown):
            self._shown.append("")  # it appears before what is shown in it
            self._shown[number] = self._captured(lambda: self._show(attribute))
        return f"\0{number}\0"

    def _show(self, attribute: Attribute) -> None:
        if isinstance(attribute, (MemRefType, UnrankedMemRefType)):
            self._print_memref(attribute)
        elif isinstance(attribute, AffineMapAttr):
            self.print_string(f"affine_map<{affine_map_text(attribute.data)}>")
        elif isinstance(attribute, ArrayAttr):
            with self.in_square_brackets():
                self.print_list(attribute.data, self._print_array_element)
        else:
            super().print_attribute(attribute)

    def _print_array_element(self, attribute: Attribute) -> None:
        """Inside of an array MLIR leaves out the types i64 and f64."""
        if isinstance(attribute, IntegerAttr) and attribute.type == i64:
            self.print_string(str(attribute.value.data))
        elif isinstance(attribute, FloatAttr) and attribute.type == f64:
            self.print_float(attribute.value.data, f64)
        else:
            self.print_attribute(attribute)

    def _print_memref(self, kind: MemRefType | UnrankedMemRefType) -> None:
        """MLIR leaves out an identity layout, the memory space 0 and an i64 space's type."""
        self.print_string("memref<")
        if isinstance(kind, UnrankedMemRefType):
            self.print_string("*x")
        elif kind.shape.data:
            self.print_dimension_list(kind.get_shape())
            self.print_string("x")
        self.print_attribute(kind.element_type)
        if isinstance(kind, MemRefType) and not isinstance(kind.layout, NoneAttr):
            self.print_string(", ")
            self.print_attribute(kind.layout)
        space = kind.memory_space
        if isinstance(space, IntegerAttr) and space.type == i64:
            if space.value.data:
                self.print_string(f", {space.value.data}")
        elif not isinstance(space, NoneAttr):
            self.print_string(", ")
            self.print_attribute(space)
        self.print_string(">")
