# ruff: noqa: E501
"""Random programs of arith, math, vector, memref, scf, affine and linalg, which MLIR lowers to LLVM and runs.

Floats hold whole numbers that every order of sums gives exactly, and no zero has a sign; integers wrap around. So
results are compared bit by bit. Nothing is undefined: indices lie within, divisors are positive, shifts are short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.peer.values import Shape, Steps, typed

EXACT = {"f32": 1 << 24, "f16": 1 << 11, "bf16": 1 << 8}
"""Whole numbers up to here are exact."""
KEPT = 16
"""What memory and loops hold of floats at most."""
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
MEMORY = (*EXACT, *BITS)
EXTENTS = (1, 2, 3, 4, 5, 8)
LARGEST = 256

BINARY = {
    True: "addf subf mulf maximumf minimumf maxnumf minnumf",
    False: "addi subi muli maxsi minsi maxui minui xori andi ori",
}
DIVISIONS = "divsi remsi divui remui ceildivsi ceildivui floordivsi"
SHIFTS = "shli shrsi shrui"
COMPARE = {
    True: ("cmpf", "oeq ogt oge olt ole one ord ueq ugt uge ult ule une uno"),
    False: ("cmpi", "eq ne slt sle sgt sge ult ule ugt uge"),
}
UNARY = {True: "absf floor ceil trunc round roundeven", False: "absi ctpop ctlz cttz"}
SUMS = {
    True: "add maximumf minimumf maxnumf minnumf",
    False: "add mul minsi maxsi minui maxui and or xor",
}


@dataclass(frozen=True)
class Value:
    name: str
    shape: Shape
    dtype: str
    bound: int = 0
    """Of a float: its largest magnitude."""

    @property
    def type(self) -> str:
        return typed(self.shape, self.dtype) if self.shape else self.dtype

    @property
    def real(self) -> bool:
        return self.dtype in EXACT


@dataclass(frozen=True)
class Memory:
    name: str
    shape: Shape
    dtype: str
    strides: Shape
    offset: int
    root: str
    open: bool = False
    """Whether its type leaves open what of its form it can."""

    @property
    def dense(self) -> bool:
        return self.strides == dense(self.shape)

    @property
    def type(self) -> str:
        plain = typed(self.shape, self.dtype, "memref")
        if self.open:
            plain = f"memref<{'?x' * len(self.shape)}{self.dtype}>"
        if self.dense and not self.offset:
            return plain
        if self.open:
            strides = [str(s) if s == 1 else "?" for s in self.strides]
            return f"{plain[:-1]}, strided<[{', '.join(strides)}], offset: ?>>"
        offset = f", offset: {self.offset}" if self.offset else ""
        return f"{plain[:-1]}, strided<{[*self.strides]}{offset}>>"


def dense(shape: Shape) -> Shape:
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


class Drawing(Steps):
    """A function that grows by drawn steps, on arrays that are its arguments."""

    def __init__(self, draw: st.DrawFn, form: str):
        super().__init__(draw)
        self.structured = form == "linalg"
        self.vectors_only = form == "kernel" and self.chance(4)
        self.values: list[Value] = []
        self.memory: list[Memory] = []
        for number in range(draw(st.integers(2, 4))):
            shape = self.shape(1, 3)
            self.memory.append(
                Memory(f"%a{number}", shape, self.pick(MEMORY), dense(shape), 0, f"%a{number}")
            )
        self.arguments = [*self.memory]

    # Drawing and writing.
    def chance(self, of: int) -> bool:
        return self.draw(st.integers(1, of)) == 1

    def shape(self, least: int, most: int) -> Shape:
        shape = tuple(self.pick(EXTENTS) for _ in range(self.draw(st.integers(least, most))))
        while math.prod(shape) > LARGEST:
            shape = shape[1:]
        return shape

    def emit(self, text: str, shape: Shape, dtype: str, bound: int = 0) -> Value:
        """A value that only the step has that writes it; TYPE is its type."""
        value = Value(self.fresh(), shape, dtype, bound)
        self.line(f"{value.name} = {text.replace('TYPE', value.type)}")
        return value

    def add(self, text: str, shape: Shape, dtype: str, bound: int = 0) -> Value:
        value = self.plain(self.emit(text, shape, dtype, bound))
        self.values.append(value)
        return value

    def like(self, text: str, a: Value, bound: int | None = None) -> Value:
        return self.emit(text, a.shape, a.dtype, a.bound if bound is None else bound)

    def plain(self, a: Value) -> Value:
        """Exact, and without a sign of zero."""
        if not a.real:
            return a
        a = self.within(a, EXACT[a.dtype] // 4)
        return self.like(f"arith.addf {a.name}, {self.splat(0, a).name} : TYPE", a)

    def splat(self, number: int, a: Value) -> Value:
        shown = f"{number}.0" if a.real else f"{number}"
        if a.dtype == "i1":
            shown = "true" if number else "false"
        if a.shape:
            return self.like(f"arith.constant dense<{shown}> : TYPE", a, abs(number))
        text = f"arith.constant {shown}" + ("" if a.dtype == "i1" else " : TYPE")
        return self.like(text, a, abs(number))

    def within(self, a: Value, bound: int) -> Value:
        """Floats no further from zero than `bound`."""
        if not a.real or a.bound <= bound:
            return a
        for op, number in (("minimumf", KEPT), ("maximumf", -KEPT)):
            a = self.like(f"arith.{op} {a.name}, {self.splat(number, a).name} : TYPE", a, KEPT)
        return a

    # Values to work on.
    def value(self, where: Callable[[Value], bool] = lambda v: True) -> Value | None:
        found = [v for v in self.values if where(v)]
        return self.pick(found) if found else None

    def number(self, where: Callable[[Value], bool] = lambda v: True) -> Value:
        """One to compute with: no mask and no index."""
        found = self.value(lambda v: v.dtype in MEMORY and where(v))
        return found or self.load()

    def other(self, a: Value) -> Value:
        """Another of the same type: one that there is, or a constant."""
        same = [v for v in self.values if v.type == a.type]
        return (
            self.pick(same) if same and not self.chance(4) else self.splat(self.pick((1, 2, 3)), a)
        )

    def made(self, shape: Shape, dtype: str) -> Value:
        """Of a given type, from what there is: a cast of what has the shape, a repetition of a number."""
        found = self.value(lambda v: (v.shape, v.dtype) == (shape, dtype))
        if found is not None:
            return found
        one = self.element(self.of(dtype))
        if not shape:
            return one
        return self.emit(f"vector.broadcast {one.name} : {dtype} to TYPE", shape, dtype, KEPT)

    def element(self, m: Memory) -> Value:
        if not self.vectors_only:
            return self.emit(f"memref.load {m.name}[{self.at(m)}] : {m.type}", (), m.dtype, KEPT)
        one = self.read(m, (1,), [len(m.shape) - 1])
        return self.emit(
            f"vector.extract {one.name}[0] : {m.dtype} from {one.type}", (), m.dtype, KEPT
        )

    def of(self, dtype: str) -> Memory:
        found = [m for m in self.memory if m.dtype == dtype]
        if found and not self.chance(3):
            return self.pick(found)
        shape = self.shape(1, 2)
        name = self.fresh("m")
        m = Memory(name, shape, dtype, dense(shape), 0, name)
        self.line(f"{name} = memref.alloca() : {m.type}")
        index = [self.index(0).name for _ in shape]
        zero = Value("", (), dtype)
        if dtype == "i1" or not shape:
            return m
        whole = self.splat(3, replace(zero, shape=shape))
        self.line(
            f"vector.transfer_write {whole.name}, {name}[{', '.join(index)}] : {whole.type}, {m.type}"
        )
        self.memory.append(m)
        return m

    def index(self, number: int) -> Value:
        return self.emit(f"arith.constant {number} : index", (), "index")

    def below(self, extent: int) -> Value:
        """An index from 0 to below an extent."""
        known = self.value(lambda v: v.dtype == "index" and not v.shape)
        if known is None or self.chance(3):
            return self.index(self.draw(st.integers(0, extent - 1)))
        most = self.index(extent)
        return self.emit(f"arith.remui {known.name}, {most.name} : index", (), "index")

    def at(self, m: Memory) -> str:
        return ", ".join(self.below(n).name for n in m.shape)

    # arith and math.
    def binary(self) -> None:
        a = self.number()
        b, op = self.other(a), self.pick(BINARY[a.real])
        if op == "mulf":
            most = math.isqrt(EXACT[a.dtype])
            a, b = self.within(a, most), self.within(b, most)
        bound = {"addf": a.bound + b.bound, "subf": a.bound + b.bound, "mulf": a.bound * b.bound}
        self.add(
            f"arith.{op} {a.name}, {b.name} : TYPE",
            a.shape,
            a.dtype,
            bound.get(op, max(a.bound, b.bound)),
        )

    def integers(self) -> None:
        a = self.number(lambda v: not v.real)
        if a.real:
            return
        # MLIR 22 makes LLVM's of those of one dimension only.
        wide = len(a.shape) < 2
        kind, b = self.pick("division shift wide" if wide else "division shift"), self.other(a)
        if kind == "wide":
            op, low = self.pick("addui mulsi mului"), self.fresh()
            second = typed(a.shape, "i1") if a.shape else "i1"
            types = f"{a.type}, {second}" if op == "addui" else a.type
            self.line(f"{low}:2 = arith.{op}_extended {a.name}, {b.name} : {types}")
            self.values.append(replace(a, name=f"{low}#0"))
            self.values.append(
                replace(a, name=f"{low}#1", dtype="i1" if op == "addui" else a.dtype)
            )
            return
        b = self.like(f"arith.andi {b.name}, {self.splat(7, a).name} : TYPE", a)
        if kind == "division":
            b = self.like(f"arith.ori {b.name}, {self.splat(1, a).name} : TYPE", a)
        op = self.pick(DIVISIONS if kind == "division" else SHIFTS)
        self.add(f"arith.{op} {a.name}, {b.name} : TYPE", a.shape, a.dtype)

    def unary(self) -> None:
        a = self.number()
        op = self.pick(UNARY[a.real] + (" negf fma copysign" if a.real else ""))
        if op == "absi" and len(a.shape) > 1:
            op = "ctpop"
        if op == "negf":
            self.add(f"arith.negf {a.name} : TYPE", a.shape, a.dtype, a.bound)
        elif op == "copysign":
            b = self.other(a)
            self.add(f"math.copysign {a.name}, {b.name} : TYPE", a.shape, a.dtype, a.bound)
        elif op == "fma":
            a, b, c = (self.within(v, 8) for v in (a, self.other(a), self.other(a)))
            name = self.pick("math.fma vector.fma") if a.shape else "math.fma"
            self.add(
                f"{name} {a.name}, {b.name}, {c.name} : TYPE", a.shape, a.dtype, 8 * KEPT + 320
            )
        else:
            self.add(f"math.{op} {a.name} : TYPE", a.shape, a.dtype, a.bound)

    def cast(self) -> None:
        a = self.number()
        to = self.pick([t for t in MEMORY if t != a.dtype])
        bound = 0
        if a.real and to in EXACT:
            wide = (a.dtype in ("f16", "bf16")) and to == "f32"
            if not wide and a.dtype != "f32":
                return
            a, op = self.within(a, EXACT[to]), "extf" if wide else "truncf"
            bound = a.bound
        elif a.real:
            if self.chance(3) and (same := {"f32": "i32"}.get(a.dtype, "i16")):
                self.add(f"arith.bitcast {a.name} : {a.type} to TYPE", a.shape, same)
                return
            unsigned = self.chance(3)
            a = self.within(a, 100)
            if unsigned:
                a = self.like(f"math.absf {a.name} : TYPE", a)
            op = "fptoui" if unsigned else "fptosi"
        elif to in EXACT:
            op, bound = self.pick("sitofp uitofp"), 15
            a = self.like(f"arith.andi {a.name}, {self.splat(15, a).name} : TYPE", a)
        elif BITS[to] < BITS[a.dtype]:
            op = "trunci"
        else:
            op = self.pick("extsi extui")
        self.add(f"arith.{op} {a.name} : {a.type} to TYPE", a.shape, to, bound)

    def indices(self) -> None:
        """Numbers as indices, and back."""
        a = self.value(lambda v: v.dtype == "index")
        if a is not None and self.chance(2):
            op, to = self.pick("index_cast index_castui"), self.pick("i32 i64 i8")
            self.add(f"arith.{op} {a.name} : {a.type} to TYPE", a.shape, to)
            return
        a = self.number(lambda v: not v.real)
        if not a.real:
            op = self.pick("index_cast index_castui")
            self.add(f"arith.{op} {a.name} : {a.type} to TYPE", a.shape, "index")

    def select(self) -> None:
        a = self.number()
        b, mask = self.other(a), self.mask(a.shape)
        text = f"arith.select {mask.name}, {a.name}, {b.name} : {mask.type}, TYPE"
        self.add(text, a.shape, a.dtype, max(a.bound, b.bound))

    def mask(self, shape: Shape) -> Value:
        """One that there is, of a comparison, or a box."""
        known = self.value(lambda v: v.dtype == "i1" and v.shape == shape)
        if known is not None and self.chance(2):
            return known
        if shape and self.chance(2):
            if self.chance(2):
                sizes = [self.draw(st.integers(0, n)) for n in shape]
                sizes = sizes if all(sizes) else [0] * len(sizes)
                return self.emit(f"vector.constant_mask {sizes} : TYPE", shape, "i1")
            sizes = ", ".join(self.below(n + 2).name for n in shape)
            return self.emit(f"vector.create_mask {sizes} : TYPE", shape, "i1")
        a = self.number(lambda v: v.shape == shape)
        if a.shape != shape:
            a = self.made(shape, self.pick(MEMORY))
        op, kinds = COMPARE[a.real]
        b = self.other(a)
        return self.emit(
            f"arith.{op} {self.pick(kinds)}, {a.name}, {b.name} : {a.type}", shape, "i1"
        )

    # Memory.
    def view(self) -> None:
        m = self.pick([m for m in self.memory if not m.open])
        rank, name = len(m.shape), self.fresh("m")
        kind = self.pick("subview transpose collapse expand reinterpret open")
        if kind == "subview":
            at = [self.draw(st.integers(0, n - 1)) for n in m.shape]
            by = [self.pick((1, 1, 2)) for _ in m.shape]
            sizes = [
                self.draw(st.integers(1, (n - o + s - 1) // s))
                for n, o, s in zip(m.shape, at, by, strict=True)
            ]
            new = replace(
                m,
                name=name,
                shape=tuple(sizes),
                strides=tuple(s * b for s, b in zip(m.strides, by, strict=True)),
                offset=m.offset + sum(o * s for o, s in zip(at, m.strides, strict=True)),
            )
            text = f"memref.subview {m.name}{at} {sizes} {by} : {m.type} to {self.strided(new)}"
        elif kind == "transpose" and rank > 1:
            order = self.draw(st.permutations(range(rank)))
            new = replace(
                m,
                name=name,
                shape=tuple(m.shape[d] for d in order),
                strides=tuple(m.strides[d] for d in order),
            )
            dims = ", ".join(f"d{d}" for d in range(rank))
            to = ", ".join(f"d{d}" for d in order)
            text = f"memref.transpose {m.name} ({dims}) -> ({to}) : {m.type} to {self.strided(new)}"
        elif kind == "collapse" and rank > 1 and m.dense and not m.offset:
            first = self.draw(st.integers(0, rank - 2))
            shape = (*m.shape[:first], m.shape[first] * m.shape[first + 1], *m.shape[first + 2 :])
            new = replace(m, name=name, shape=shape, strides=dense(shape))
            groups = (
                [[d] for d in range(first)]
                + [[first, first + 1]]
                + [[d] for d in range(first + 2, rank)]
            )
            text = f"memref.collapse_shape {m.name} {groups} : {m.type} into {new.type}"
        elif kind == "expand" and rank < 3 and m.dense and not m.offset:
            d = self.draw(st.integers(0, rank - 1))
            part = self.pick([n for n in range(1, m.shape[d] + 1) if m.shape[d] % n == 0])
            shape = (*m.shape[:d], m.shape[d] // part, part, *m.shape[d + 1 :])
            new = replace(m, name=name, shape=shape, strides=dense(shape))
            groups = [[e] for e in range(d)] + [[d, d + 1]] + [[e + 1] for e in range(d + 1, rank)]
            text = f"memref.expand_shape {m.name} {groups} output_shape {[*shape]} : {m.type} into {new.type}"
        elif kind == "reinterpret" and m.dense and not m.offset:
            count = math.prod(m.shape)
            columns = self.draw(st.integers(1, count))
            step = columns + self.pick((0, 1, 3))
            rows = self.draw(st.integers(1, (count - columns) // step + 1))
            offset = self.draw(st.integers(0, count - columns - (rows - 1) * step))
            new = Memory(name, (rows, columns), m.dtype, (step, 1), offset, m.root)
            text = f"memref.reinterpret_cast {m.name} to offset: [{offset}], sizes: [{rows}, {columns}], strides: [{step}, 1] : {m.type} to {self.strided(new)}"
        elif kind == "open":
            new = replace(m, name=name, open=True)
            text = f"memref.cast {m.name} : {m.type} to {new.type}"
        else:
            return
        self.line(f"{name} = {text}")
        if kind in ("subview", "transpose", "reinterpret") and self.strided(new) != new.type:
            plain = replace(new, name=f"{name}_c")
            self.line(f"{plain.name} = memref.cast {name} : {self.strided(new)} to {new.type}")
            new = plain
        self.memory.append(new)

    def strided(self, m: Memory) -> str:
        """The type as views infer it, which say their strides always."""
        offset = f", offset: {m.offset}" if m.offset else ""
        return f"{typed(m.shape, m.dtype, 'memref')[:-1]}, strided<{[*m.strides]}{offset}>>"

    def load(self) -> Value:
        m = self.pick(self.memory)
        if self.chance(3):
            self.values.append(one := self.element(m))
            return one
        return self.transfer(m)

    def transfer(self, m: Memory) -> Value:
        """A block of it, beyond its end too; its dimensions in another order, some of them repeated."""
        rank = len(m.shape)
        kept = [d for d in range(rank) if d == rank - 1 or not self.chance(3)]
        order: list[int | None] = [*self.draw(st.permutations(kept))] if self.chance(3) else [*kept]
        if len(order) < 3 and self.chance(5):
            order.insert(self.draw(st.integers(0, len(order) - 1)), None)
        shape = tuple(self.pick((1, 2, 4, 5, 8)) for _ in order)
        while math.prod(shape) > LARGEST:
            shape = (1, *shape[1:]) if shape[0] > 1 else (1, 1, *shape[2:])
        return self.read(m, shape, order)

    def map(self, m: Memory, order: Sequence[int | None]) -> str:
        dims = ", ".join(f"d{d}" for d in range(len(m.shape)))
        to = ", ".join("0" if d is None else f"d{d}" for d in order)
        return f"affine_map<({dims}) -> ({to})>"

    def is_masked(self, m: Memory, order: Sequence[int | None]) -> bool:
        """Whether mlir-opt can mask a transfer: with dimensions left out between permuted ones, it takes rows of the
        mask in the vector's order."""
        kept = [d for d in order if d is not None]
        return len(kept) == len(order) and (
            kept == sorted(kept) or min(kept) == len(m.shape) - len(kept)
        )

    def read(self, m: Memory, shape: Shape, order: Sequence[int | None]) -> Value:
        at = self.at(m)
        pad = self.splat(self.pick((0, 5)), Value("", (), m.dtype))
        mask, types = "", m.type
        if self.chance(4) and self.is_masked(m, order):
            masked = [n for _, n in sorted(zip(order, shape, strict=True))]  # pyright: ignore
            box = self.mask(tuple(masked))
            mask = f", {box.name}"
        stated = f"{{in_bounds = {[d is None for d in order]}, permutation_map = {self.map(m, order)}}}".replace(
            "True", "true"
        ).replace("False", "false")
        text = f"vector.transfer_read {m.name}[{at}], {pad.name}{mask} {stated} : {types}, TYPE"
        if not mask and order == [*range(len(m.shape))] and self.chance(4):
            box = self.mask(shape)
            text = f"vector.mask {box.name} {{ {text} }} : {box.type} -> TYPE"
        return self.add(text, shape, m.dtype, KEPT)

    def store(self) -> None:
        m = self.pick(self.memory)
        a = self.value(lambda v: v.dtype == m.dtype and len(v.shape) <= len(m.shape))
        if a is None:
            return
        a, at = self.within(a, KEPT), self.at(m)
        if not a.shape and not self.vectors_only:
            self.line(f"memref.store {a.name}, {m.name}[{at}] : {m.type}")
            return
        if not a.shape:
            a = self.emit(f"vector.broadcast {a.name} : {a.type} to TYPE", (1,), a.dtype)
        dims = range(len(m.shape))
        order = (
            self.draw(st.permutations(dims))[: len(a.shape)]
            if self.chance(3)
            else [*dims][-len(a.shape) :]
        )
        mask = ""
        if self.chance(4) and self.is_masked(m, order):
            box = self.mask(tuple(n for _, n in sorted(zip(order, a.shape, strict=True))))
            mask = f", {box.name}"
        text = f"vector.transfer_write {a.name}, {m.name}[{at}]{mask} {{permutation_map = {self.map(m, order)}}}"
        self.line(f"{text} : {a.type}, {m.type}")
