"""Printing as mlir-opt prints: names of values, default dialects, memory spaces, floats.

`MlirPrinter` differs from the stock printer in what FileCheck tests look at. With `renumber`, values
get the names that MLIR gives them (`%0`, `%c8`, `%arg0`); without it those that were written with a
name keep it. Long attributes that occur more than once can be printed as aliases (`#map`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any

from xdsl.dialects import arith, builtin, func
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    ArrayAttr,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    FloatTF32Type,
    IndexType,
    IntegerAttr,
    MemRefType,
    NoneAttr,
    UnrankedMemRefType,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineExpr,
    AffineMap,
)
from xdsl.printer import Printer

# --- Names of values --------------------------------------------------------------------------------

# Ops whose results MLIR names after what they are. Several results: one name each.
RESULT_NAMES: dict[str, tuple[str, ...]] = {
    "memref.alloc": ("alloc",),
    "memref.alloca": ("alloca",),
    "memref.cast": ("cast",),
    "memref.dim": ("dim",),
    "memref.expand_shape": ("expand_shape",),
    "memref.collapse_shape": ("collapse_shape",),
    "memref.extract_aligned_pointer_as_index": ("intptr",),
    "memref.extract_strided_metadata": ("base_buffer", "offset", "sizes", "strides"),
    "memref.memory_space_cast": ("memspacecast",),
    "memref.reinterpret_cast": ("reinterpret_cast",),
    "memref.subview": ("subview",),
    "memref.transpose": ("transpose",),
    "memref.view": ("view",),
    "gpu.alloc": ("memref", "asyncToken"),
    "gpu.lane_id": ("lane_id",),
    "gpu.subgroup_id": ("subgroup_id",),
    "gpu.num_subgroups": ("num_subgroups",),
    "gpu.subgroup_size": ("subgroup_size",),
    "gpu.shuffle": ("shuffleResult", "valid"),
}
DIMENSION_OPS = frozenset(
    {"gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.thread_id", "gpu.global_id"}
)


def _constant_name(value: Attribute) -> str:
    """`c8`, `c8_i32`, `true`, `cst`."""
    if not isinstance(value, IntegerAttr):
        return "cst"
    number, kind = value.value.data, value.type
    if kind == i1:
        return "true" if number else "false"
    text = f"c{number}"
    return text if isinstance(kind, IndexType) else f"{text}_{kind}"


def result_groups(op: Operation) -> list[tuple[str | None, int]]:
    """Names that MLIR gives to an op's results, each with the number of results that it covers."""
    count = len(op.results)
    if not count:
        return []
    if isinstance(op, arith.ConstantOp):
        return [(_constant_name(op.value), 1)]
    if op.name == "index.constant":
        value = op.properties["value"]
        assert isinstance(value, IntegerAttr)
        return [(f"idx{value.value.data}", 1)]
    if op.name in DIMENSION_OPS:
        dimension: Any = op.properties["dimension"]
        return [(f"{op.name.removeprefix('gpu.')}_{dimension.data}", 1)]
    names = RESULT_NAMES.get(op.name)
    if names is None:
        return [(None, count)]
    if op.name == "memref.extract_strided_metadata":
        rank = (count - 2) // 2
        sizes = [1, 1, rank, rank]
        return [group for group in zip(names, sizes, strict=True) if group[1]]
    return [(name, 1) for name in names[:count]]


@dataclass
class Names:
    """Names the values of an op as MLIR's printer does.

    All values of a region are named before those of the regions inside of it; siblings start from
    the same numbers. With `keep`, a value that has a name of its own keeps it.
    """

    keep: bool = False
    values: dict[SSAValue, str] = field(default_factory=dict[SSAValue, str])
    results: dict[Operation, str] = field(default_factory=dict[Operation, str])
    """What stands left of an op's `=`."""

    def of_region(self, region: Region, number: int, argument: int, used: frozenset[str]) -> None:
        taken: set[str] = set(used)
        conflict = 0

        def unique(name: str) -> str:
            nonlocal conflict
            candidate = name
            while candidate in taken:
                candidate = f"{name}_{conflict}"
                conflict += 1
            taken.add(candidate)
            return candidate

        for index, block in enumerate(region.blocks):
            for value in block.args:
                if self.keep and value.name_hint:
                    self.values[value] = unique(value.name_hint)
                elif index == 0:
                    self.values[value] = unique(f"arg{argument}")
                    argument += 1
                else:
                    self.values[value] = str(number)
                    number += 1
            for op in block.ops:
                texts: list[str] = []
                start = 0
                for name, count in self._groups(op):
                    if name is None:
                        name, number = str(number), number + 1
                    else:
                        name = unique(name)
                    group = op.results[start : start + count]
                    for position, value in enumerate(group):
                        self.values[value] = name if count == 1 else f"{name}#{position}"
                    texts.append(f"%{name}" if count == 1 else f"%{name}:{count}")
                    start += count
                if texts:
                    self.results[op] = ", ".join(texts)
        inner = frozenset(taken)
        for block in region.blocks:
            for op in block.ops:
                for nested in op.regions:
                    self.of_region(nested, number, argument, inner)

    def _groups(self, op: Operation) -> list[tuple[str | None, int]]:
        """Results by name: neighbours that share a hint together, else as MLIR groups them."""
        hints = [result.name_hint for result in op.results] if self.keep else []
        if not any(hints):
            return result_groups(op)
        return [(hint, len(list(run))) for hint, run in groupby(hints)]


# --- Floats -------------------------------------------------------------------------------------------


def six_digits(value: float) -> str:
    """A finite float with six significant digits, as LLVM's APFloat prints it.

    It first divides the exact decimal significand by powers of ten, dropping digits, and only then
    rounds: f16 0.1 is `9.997550e-02`, although its value is 0.0999755859375.
    """
    if value == 0:
        return "-0.000000e+00" if math.copysign(1, value) < 0 else "0.000000e+00"
    exact = Fraction(abs(value))
    exponent = -(exact.denominator.bit_length() - 1)
    significand = exact.numerator * 5**-exponent
    precision = 6
    required = (precision * 196 + 58) // 59
    bits = significand.bit_length()
    if bits > required:
        removable = (bits - required) * 59 // 196
        significand //= 10**removable
        exponent += removable
    digits = str(significand).rstrip("0")
    exponent += len(str(significand)) - len(digits)
    if len(digits) > precision:
        dropped = len(digits) - precision
        rounded = int(digits[:precision]) + (digits[precision] >= "5")
        exponent += dropped
        text = str(rounded)
        digits = text.rstrip("0")
        exponent += len(text) - len(digits)
    scientific = exponent + len(digits) - 1
    sign = "-" if value < 0 else ""
    digits = digits.ljust(precision + 1, "0")
    return f"{sign}{digits[0]}.{digits[1:]}e{'-' if scientific < 0 else '+'}{abs(scientific):02d}"


# Digits that APFloat prints of each type when six do not do.
_FULL_DIGITS = (
    (Float32Type, 9),
    (Float64Type, 17),
    (Float16Type, 5),
    (FloatTF32Type, 5),
    (BFloat16Type, 4),
)


def float_text(value: float, kind: AnyFloat) -> str:
    """A float literal of a type: six digits if they read back as the same number."""
    if math.isnan(value) or math.isinf(value):
        return f"0x{kind.pack((value,))[::-1].hex().upper()}"
    text = six_digits(value)
    if _reads_as(text, value, kind):
        return text
    digits = next((n for cls, n in _FULL_DIGITS if isinstance(kind, cls)), None)
    text = repr(value) if digits is None else f"{value:.{digits}g}"
    if "." in text and _reads_as(text, value, kind):
        return text
    return f"0x{kind.pack((value,))[::-1].hex().upper()}"


def _reads_as(text: str, value: float, kind: AnyFloat) -> bool:
    try:
        return kind.unpack(kind.pack((float(text),)), 1)[0] == value
    except OverflowError:
        return False


# --- The printer ----------------------------------------------------------------------------------------

# --- Affine maps ----------------------------------------------------------------------------------------


def affine_text(expr: AffineExpr, tight: bool = False) -> str:
    """An affine expression with the parentheses that it needs; `tight` inside of a product."""
    if not isinstance(expr, AffineBinaryOpExpr):
        return str(expr)
    if expr.kind is not AffineBinaryOpKind.Add:
        if expr.kind is AffineBinaryOpKind.Mul and expr.rhs == AffineConstantExpr(-1):
            return f"-{affine_text(expr.lhs, True)}"
        left, right = affine_text(expr.lhs, True), affine_text(expr.rhs, True)
        text = f"{left} {expr.kind.get_token()} {right}"
    else:
        text = f"{affine_text(expr.lhs)} {_signed(expr.rhs)}"
    return f"({text})" if tight else text


def _signed(term: AffineExpr) -> str:
    """The right side of a sum: `+ d1`, `- d1`, `- d1 * 2`, `- 3`."""
    if isinstance(term, AffineConstantExpr) and term.value < 0:
        return f"- {-term.value}"
    if isinstance(term, AffineBinaryOpExpr) and term.kind is AffineBinaryOpKind.Mul:
        factor = term.rhs
        if isinstance(factor, AffineConstantExpr) and factor.value < 0:
            times = "" if factor.value == -1 else f" * {-factor.value}"
            return f"- {affine_text(term.lhs, True)}{times}"
    return f"+ {affine_text(term)}"


def affine_map_text(map: AffineMap) -> str:
    """`(d0, d1)[s0] -> (d0 + s0, d1 * 2)`."""
    dims = ", ".join(f"d{i}" for i in range(map.num_dims))
    symbols = ", ".join(f"s{i}" for i in range(map.num_symbols))
    results = ", ".join(affine_text(expr) for expr in map.results)
    return f"({dims}){f'[{symbols}]' if symbols else ''} -> ({results})"


# --- Aliases ----------------------------------------------------------------------------------------

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


DEFAULT_DIALECTS = {"builtin.module": "builtin", "func.func": "func"}


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
        short = not self.print_generic_format and self.dialects[-1] == dialect
        # Only ops whose parser finds them again by the same rule.
        short = short and op.name in _SHORT_OPS and Operation.print is not type(op).print
        self.dialects.append(DEFAULT_DIALECTS.get(op.name, ""))
        try:
            if short and not self.diagnostic.op_messages:
                self._print_short(op, mnemonic)
            else:
                super().print_op(op)
        finally:
            self.dialects.pop()

    def _print_short(self, op: Operation, mnemonic: str) -> None:
        self._print_results(op)
        self.print_string(mnemonic)
        isolated = isinstance(op, (builtin.ModuleOp, func.FuncOp))
        if isolated:
            self.enter_scope()
        op.print(self)
        if isolated:
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


_SHORT_OPS = frozenset({"builtin.module", "func.return", "func.call"})
