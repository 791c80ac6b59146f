"""Straight-line LLVM arithmetic on one register of n components: what conversions and math
functions are written in.

A `Lanes` remembers the component count, so that an expansion reads like the formula and serves a
scalar, a vector of a CPU and a lane vector alike. Every method appends one LLVM instruction; none
touches memory or makes a block.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tilewright.codegen.printer import Printer
from tilewright.codegen.registers import llvm_vector


class FloatText(str):
    """LLVM text of a float constant, or of one in every component."""

    value: float
    """As rounded to its type."""


def _valued(text: str, value: float) -> FloatText:
    found = FloatText(text)
    found.value = value
    return found


def float_text(value: float, llvm: str) -> FloatText:
    """LLVM constant of a float of type `float`, `double` or `half`; float is rounded to nearest."""
    if llvm == "half":
        bits = struct.pack("<e", value)
        text = f"0xH{struct.unpack('<H', bits)[0]:04X}"
        return _valued(text, struct.unpack("<e", bits)[0])
    if llvm == "float":
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return _valued(f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}", value)


def splat(count: int, llvm: str, text: str) -> str:
    """A constant in every component."""
    if count == 1:
        return text
    spread = f"splat ({llvm} {text})"
    return _valued(spread, text.value) if isinstance(text, FloatText) else spread


_MANGLED = {"float": "f32", "double": "f64", "half": "f16"}


def mangle(count: int, llvm: str) -> str:
    """The suffix of an intrinsic overloaded on this type."""
    scalar = _MANGLED.get(llvm, llvm)
    return scalar if count == 1 else f"v{count}{scalar}"


class Lanes:
    """Arithmetic on registers of `count` components, floats with fast-math `flags`."""

    def __init__(self, p: Printer, count: int, flags: str = ""):
        self.p = p
        self.count = count
        self.flags = flags
        self._head = f" {flags}" if flags else ""
        self.f32 = llvm_vector(count, "float")
        self.f64 = llvm_vector(count, "double")
        self.f16 = llvm_vector(count, "half")
        self.i1 = llvm_vector(count, "i1")
        self.i8 = llvm_vector(count, "i8")
        self.i16 = llvm_vector(count, "i16")
        self.i32 = llvm_vector(count, "i32")
        self.i64 = llvm_vector(count, "i64")

    def type(self, scalar: str) -> str:
        """The register type with components of type `scalar`."""
        return llvm_vector(self.count, scalar)

    def const(self, scalar: str, value: float) -> str:
        """A constant of scalar type `scalar` in every lane."""
        text = float_text(value, scalar) if scalar in _MANGLED else str(int(value))
        return splat(self.count, scalar, text)

    def c32(self, value: int) -> str:
        return splat(self.count, "i32", str(value))

    def cf(self, value: float) -> str:
        return splat(self.count, "float", float_text(value, "float"))

    # Any type

    def op(self, name: str, type: str, a: str, b: str) -> str:
        return self.p.emit(f"{name} {type} {a}, {b}")

    def bitcast(self, from_type: str, a: str, to_type: str) -> str:
        return a if from_type == to_type else self.p.emit(f"bitcast {from_type} {a} to {to_type}")

    def cast(self, name: str, from_type: str, a: str, to_type: str) -> str:
        return self.p.emit(f"{name} {from_type} {a} to {to_type}")

    def select(self, mask: str, type: str, a: str, b: str) -> str:
        return self.p.emit(f"select {self.i1} {mask}, {type} {a}, {type} {b}")

    def icmp(self, predicate: str, type: str, a: str, b: str) -> str:
        return self.p.emit(f"icmp {predicate} {type} {a}, {b}")

    def fcmp(self, predicate: str, type: str, a: str, b: str) -> str:
        return self.p.emit(f"fcmp {predicate} {type} {a}, {b}")

    def halves(self, type: str, a: str) -> tuple[str, str]:
        """The first and the second half of a register's components."""
        half = self.count // 2
        return self.shuffled(type, a, range(half)), self.shuffled(type, a, range(half, self.count))

    def joined(self, half_type: str, a: str, b: str) -> str:
        """Two halves as one register."""
        return self.shuffled(half_type, a, range(self.count), b)

    def shuffled(self, type: str, a: str, indices: Sequence[int], b: str = "poison") -> str:
        """The components of a, then b, with these numbers."""
        mask = ", ".join(f"i32 {i}" for i in indices)
        return self.p.emit(f"shufflevector {type} {a}, {type} {b}, <{len(indices)} x i32> <{mask}>")

    # f32

    def fop(self, name: str, type: str, a: str, b: str) -> str:
        return self.p.emit(f"{name}{self._head} {type} {a}, {b}")

    def intrinsic(self, name: str, scalar: str, *args: str) -> str:
        """Overloaded intrinsic `llvm.<name>` of operands and result of the same type."""
        type = self.type(scalar)
        return self.p.call(
            type,
            f"llvm.{name}.{mangle(self.count, scalar)}",
            [(type, a) for a in args],
            flags=self.flags if scalar in _MANGLED else "",
        )

    def fmuladd(self, scalar: str, a: str, b: str, c: str) -> str:
        """a * b + c: one FMA where the machine has it, two roundings elsewhere."""
        return self.intrinsic("fmuladd", scalar, a, b, c)

    def fma(self, scalar: str, a: str, b: str, c: str) -> str:
        """a * b + c with one rounding, always."""
        return self.intrinsic("fma", scalar, a, b, c)

    def fuses(self) -> bool:
        """Does fmuladd round once on this target?"""
        return self.p.target.has("fused")

    def horner(self, scalar: str, x: str, coefficients: Sequence[float]) -> str:
        """Polynomial, coefficients from the highest power down."""
        value = self.const(scalar, coefficients[0])
        for c in coefficients[1:]:
            value = self.fmuladd(scalar, value, x, self.const(scalar, c))
        return value

    def odd(self, scalar: str, x: str, z: str, coefficients: Sequence[float]) -> str:
        """x + x z p(z), where `z` is x squared."""
        product = self.op("fmul", self.type(scalar), z, x)
        return self.fmuladd(scalar, product, self.horner(scalar, z, coefficients), x)
