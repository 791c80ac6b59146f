"""Printing as mlir-opt prints: names of values, default dialects, memory spaces, floats.

`MlirPrinter` differs from the stock printer in what FileCheck tests look at. With `renumber`, values
get the names that MLIR gives them (`%0`, `%c8`, `%arg0`); without it those that were written with a
name keep it. Long attributes that occur more than once can be printed as aliases (`#map`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
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


@dataclass(eq=False, repr=False)
class AliasFinder(Printer):
    """Notes which attributes a text would show, in order of their first appearance."""

    wanted: Mapping[str, str] = field(default_factory=dict[str, str])
    counts: dict[Attribute, int] = field(default_factory=dict[Attribute, int], init=False)

    def print_attribute(self, attribute: Attribute) -> None:
        if attribute.name in self.wanted:
            self.counts[attribute] = self.counts.get(attribute, 0) + 1
        super().print_attribute(attribute)

    def named(self, minimum: int) -> dict[Attribute, str]:
        """Aliases of what appears at least so often: `map`, `map1`, `map2`."""
        numbers: dict[str, int] = {}
        found: dict[Attribute, str] = {}
        for attribute, count in self.counts.items():
            if count >= minimum:
                stem = self.wanted[attribute.name]
                number = numbers.get(stem, 0)
                numbers[stem] = number + 1
                found[attribute] = f"{stem}{number}" if number else stem
        return found


# Ops inside of which a dialect's name may be left out, and the ops that are printed without it.
DEFAULT_DIALECTS = {"builtin.module": "builtin", "func.func": "func"}
SHORT_OPS = frozenset({"builtin.module", "func.return", "func.call"})


@dataclass(eq=False, repr=False)
class MlirPrinter(Printer):
    """Prints as mlir-opt does; see the module."""

    renumber: bool = False
    aliases: Mapping[Attribute, str] = field(default_factory=dict[Attribute, str])
    names: Names = field(default_factory=Names, init=False)
    dialects: list[str] = field(default_factory=lambda: ["builtin"], init=False)

    def print_top(self, op: Operation) -> None:
        """A whole op: values are named before anything is printed."""
        self.names = Names(keep=not self.renumber)
        for region in op.regions:
            self.names.of_region(region, 0, 0, frozenset())
        self.print_op(op)

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
        if self.aliases and (name := self.aliases.get(attribute)) is not None:
            self.print_string(f"#{name}")
            return
        if isinstance(attribute, (MemRefType, UnrankedMemRefType)):
            self._print_memref(attribute)
            return
        if isinstance(attribute, AffineMapAttr):
            self.print_string(f"affine_map<{affine_map_text(attribute.data)}>")
            return
        if isinstance(attribute, ArrayAttr):
            with self.in_square_brackets():
                self.print_list(attribute.data, self._print_array_element)
            return
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
