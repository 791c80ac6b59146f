"""Random XeGPU programs of workgroups, subgroups and instructions in the words that MLIR's own passes know.

Every value has a layout, as those passes want it: `sg_layout` and `sg_data` for a workgroup, `inst_data` for the
instructions of a subgroup; none where values have the size of an instruction, for which MLIR finds the lanes itself.
Values are [rows, columns]. Not drawn is what MLIR 22.1.8 refuses always (a row that is reduced across subgroups, a
conversion to other subgroups), and the transpose of a value in rounds along both dimensions, whose parts it leaves
where they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

Shape = tuple[int, int]
FLOATS = ("f32", "f16", "bf16")
DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
    "i8": np.int8,
}
BINARY = {
    "float": ("addf", "subf", "mulf", "maximumf", "minimumf"),
    "int": ("addi", "subi", "muli", "maxsi", "minsi", "xori", "andi"),
}
UNARY = {"float": ("math.absf", "arith.negf", "math.floor"), "int": ("math.absi",)}
"""Exact ones: a result differs where an element is another one, and nowhere else."""
ROOM = 16
"""Elements that arrays are wider and higher than a tile."""


@dataclass(frozen=True)
class Layout:
    """Who owns a value: a grid of subgroups, the block of each, its instructions; None and None: it is one."""

    grid: Shape | None
    data: Shape
    inst: Shape | None
    columns_first: bool = False
    """Whether ids of subgroups count down the columns."""

    @property
    def text(self) -> str:
        parts: list[str] = []
        if self.grid is not None:
            parts += [f"sg_layout = {[*self.grid]}", f"sg_data = {[*self.data]}"]
        if self.inst is not None:
            parts.append(f"inst_data = {[*self.inst]}")
        elif self.grid is not None:
            parts.append(f"order = {[0, 1] if self.columns_first else [1, 0]}")
        return f"#xegpu.layout<{', '.join(parts)}>" if parts else ""

    def says(self, name: str) -> str:
        """An entry of an op's attributes; nothing where there is nothing to say."""
        return f"{name} = {self.text}" if self.text else ""

    def turned(self) -> Layout:
        """That of the transposed value, of which every subgroup owns what it owned."""
        grid, data, inst = (
            None if pair is None else (pair[1], pair[0])
            for pair in (self.grid, self.data, self.inst)
        )
        assert data is not None
        return Layout(grid, data, inst, not self.columns_first)

    def rounds(self, shape: Shape) -> list[int]:
        grid = self.grid or (1, 1)
        return [n // (g * d) for n, g, d in zip(shape, grid, self.data, strict=True)]


def attributes(*entries: str, own: bool = False) -> str:
    """A dictionary of what is said; `own`: of the op's own attributes."""
    said = ", ".join(entry for entry in entries if entry)
    return "" if not said else f"<{{{said}}}>" if own else f"{{{said}}}"


@dataclass(frozen=True)
class Value:
    name: str
    shape: Shape
    dtype: str
    layout: Layout

    @property
    def type(self) -> str:
        return f"vector<{self.shape[0]}x{self.shape[1]}x{self.dtype}>"

    @property
    def family(self) -> str:
        return "float" if self.dtype in FLOATS else "int"


@dataclass
class Program:
    """XeGPU text with its arrays: first what it reads, then what it writes."""

    text: str
    inputs: list[tuple[Shape, str]]
    outputs: list[tuple[Shape, str]]

    def arguments(self, seed: int) -> list[Any]:
        """Small whole numbers, of which sums are exact in every type; outputs are poisoned."""
        rng = np.random.default_rng(seed)
        arrays = [rng.integers(-3, 4, shape).astype(DTYPES[kind]) for shape, kind in self.inputs]
        for shape, kind in self.outputs:
            arrays.append(np.empty(shape, DTYPES[kind]))
            arrays[-1].view(np.uint8)[...] = 0xFF
        return arrays


class Drawing:
    """A program that grows by drawn steps, of one of the LEVELS."""

    def __init__(self, draw: st.DrawFn, level: str):
        self.draw, self.level = draw, level
        workgroup = level.startswith("workgroup")
        self.grid = (self.pick((1, 2, 4)), self.pick((1, 2, 4))) if workgroup else None
        self.blocked = level in ("workgroup in instructions", "subgroup")
        self.lines: list[str] = []
        self.values: list[Value] = []
        self.arrays: list[tuple[str, Shape, str]] = []
        self.outputs: list[tuple[str, Shape, str]] = []
        self.indent = "  "

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from([*options]))

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def fresh(self) -> str:
        return f"%v{len(self.lines)}"

    def layout(self, shape: Shape) -> Layout:
        """One block each, or some rounds of blocks; instructions that divide a block."""
        data = shape
        if self.grid is not None:
            rounds = [
                self.pick([r for r in (1, 1, 2) if n % (g * r) == 0])
                for n, g in zip(shape, self.grid, strict=True)
            ]
            rows, columns = (n // (g * r) for n, g, r in zip(shape, self.grid, rounds, strict=True))
            data = rows, columns
        return Layout(self.grid, data, self.inst(data) if self.blocked else None)

    def inst(self, data: Shape) -> Shape:
        """Instructions of one element or row MLIR 22 cannot put together again."""
        rows, columns = (self.pick([d for d in (2, 4, 8, 16) if n % d == 0]) for n in data)
        return rows, columns

    def shape(self) -> Shape:
        if self.level == "instruction":
            return 8, 16
        rows, columns = self.grid or (1, 1)
        return rows * self.pick((8, 16, 32)), columns * self.pick((16, 32))

    def add(self, op: str, shape: Shape, dtype: str, layout: Layout) -> Value:
        """An op that says who owns its result: LAYOUT is where the text says so, TYPE the result's type."""
        value = Value(self.fresh(), shape, dtype, layout)
        stated = attributes(layout.says("layout_result_0"))
        self.line(f"{value.name} = {op.replace('LAYOUT', stated).replace('TYPE', value.type)}")
        self.values.append(value)
        return value

    # Memory.
    def tile(
        self, shape: Shape, dtype: str, layout: Layout, output: bool = False
    ) -> tuple[str, str]:
        """A descriptor of an array of its own, and its type."""
        extent = (shape[0] + ROOM, shape[1] + ROOM)
        arrays = self.outputs if output else self.arrays
        name = f"%{'o' if output else 'a'}{len(arrays)}"
        arrays.append((name, extent, dtype))
        descriptor = f"%t{len(self.lines)}"
        said = ", ".join(filter(None, (f"{shape[0]}x{shape[1]}x{dtype}", layout.text)))
        type = f"!xegpu.tensor_desc<{said}>"
        array = f"memref<{extent[0]}x{extent[1]}x{dtype}>"
        self.line(f"{descriptor} = xegpu.create_nd_tdesc {name} : {array} -> {type}")
        return descriptor, type

    def offsets(self) -> str:
        return f"[{self.draw(st.integers(0, ROOM))}, {self.pick((0, 4, 8, 16))}]"

    def load(self, shape: Shape, dtype: str, layout: Layout) -> Value:
        descriptor, type = self.tile(shape, dtype, layout)
        at = f"{self.offsets()} {attributes(layout.says('layout'), own=True)}"
        # Of fewer than 16 bits MLIR 22 gives a prefetch of one instruction lanes that do not divide it.
        if self.level != "instruction" and self.draw(st.booleans()):
            self.line(f"xegpu.prefetch_nd {descriptor}{at} : {type}")
        op = f"xegpu.load_nd {descriptor}{at} : {type} -> TYPE"
        return self.add(op, shape, dtype, layout)

    def store(self, value: Value) -> None:
        descriptor, type = self.tile(value.shape, value.dtype, value.layout, output=True)
        at = f"{self.offsets()} {attributes(value.layout.says('layout'), own=True)}"
        self.line(f"xegpu.store_nd {value.name}, {descriptor}{at} : {value.type}, {type}")

    # Arithmetic.
    def like(self, value: Value) -> Value:
        """Another value of the same shape, type and owners: one that there is, or a load, or a constant."""
        key = (value.shape, value.dtype, value.layout)
        same = [v for v in self.values if (v.shape, v.dtype, v.layout) == key]
        if len(same) > 1 and self.draw(st.booleans()):
            return self.pick(same)
        if self.draw(st.booleans()):
            return self.load(*key)
        number = "2.0" if value.family == "float" else "3"
        return self.add(f"arith.constant LAYOUT dense<{number}> : TYPE", *key)

    def binary(self) -> None:
        a = self.pick(self.values)
        b, op = self.like(a), self.pick(BINARY[a.family])
        self.add(f"arith.{op} {a.name}, {b.name} LAYOUT : TYPE", a.shape, a.dtype, a.layout)

    def unary(self) -> None:
        a = self.pick(self.values)
        op = self.pick(UNARY[a.family])
        self.add(f"{op} {a.name} LAYOUT : TYPE", a.shape, a.dtype, a.layout)

    def cast(self) -> None:
        a = self.pick(self.values)
        to = {"f16": "f32", "bf16": "f32", "f32": "f16", "i8": "i32", "i32": "i8"}[a.dtype]
        wider = a.dtype in ("f16", "bf16", "i8")
        op = {("float", True): "extf", ("float", False): "truncf", ("int", True): "extsi"}.get(
            (a.family, wider), "trunci"
        )
        self.add(f"arith.{op} {a.name} LAYOUT : {a.type} to TYPE", a.shape, to, a.layout)

    def select(self) -> None:
        a = self.pick(self.values)
        b = self.like(a)
        condition = "cmpf olt" if a.family == "float" else "cmpi slt"
        mask = self.fresh()
        stated = attributes(a.layout.says("layout_result_0"))
        self.line(f"{mask} = arith.{condition}, {a.name}, {b.name} {stated} : {a.type}")
        masks = f"vector<{a.shape[0]}x{a.shape[1]}xi1>"
        self.add(
            f"arith.select {mask}, {b.name}, {a.name} LAYOUT : {masks}, TYPE",
            a.shape,
            a.dtype,
            a.layout,
        )

    # What moves elements.
    def transpose(self) -> None:
        a = self.pick(self.values)
        shape = a.shape[1], a.shape[0]
        known = self.level in ("workgroup", "subgroup")  # layouts of the others do not say an order
        if not known or min(a.layout.rounds(a.shape)) > 1:
            return
        self.add(
            f"vector.transpose {a.name}, [1, 0] LAYOUT : {a.type} to TYPE",
            shape,
            a.dtype,
            a.layout.turned(),
        )

    def convert(self) -> None:
        """To other instructions of the same subgroups."""
        a = self.pick(self.values)
        if self.grid is None or not self.blocked:
            return
        to = replace(a.layout, inst=self.inst(a.layout.data))
        stated = attributes(a.layout.says("input_layout"), to.says("target_layout"), own=True)
        self.add(f"xegpu.convert_layout {a.name} {stated} : TYPE", a.shape, a.dtype, to)

    def reduce(self) -> None:
        """Sums along a dimension that every subgroup has whole, and their copies along it."""
        whole = [
            (v, d)
            for v in self.values
            for d in range(2)
            if v.dtype in ("f32", "i32") and v.layout.data[d] == v.shape[d]
        ]
        if not whole:
            return
        a, dim = self.pick(whole)
        kept = a.shape[1 - dim]
        said = f"layout_result_0 = #xegpu.slice<{a.layout.text}, dims = [{dim}]>"
        slice = attributes(said if a.layout.text else "")
        kind = f"vector<{kept}x{a.dtype}>"
        zero, sums = self.fresh(), f"%s{len(self.lines)}"
        nothing = "0.0" if a.family == "float" else "0"
        self.line(f"{zero} = arith.constant {slice} dense<{nothing}> : {kind}")
        self.line(
            f"{sums} = vector.multi_reduction <add>, {a.name}, {zero} {slice} [{dim}] : {a.type} to {kind}"
        )
        if dim == 0:
            self.add(f"vector.broadcast {sums} LAYOUT : {kind} to TYPE", a.shape, a.dtype, a.layout)

    def product(self) -> None:
        """A and B whole along k; f32 or i32 sums."""
        rows, columns = self.grid or (1, 1)
        dtype = self.pick(("f16", "bf16", "i8"))
        step = 32 if dtype == "i8" else 16
        m, n, k = rows * 8, columns * 16, step
        if self.level != "instruction":
            m, n, k = m * self.pick((1, 2)), n * self.pick((1, 2)), k * self.pick((1, 2))
        inst = ((8, step), (step, 16), (8, 16)) if self.blocked else (None, None, None)
        owners = [
            Layout(self.grid, data, tile)
            for data, tile in zip(
                ((m // rows, k), (k, n // columns), (m // rows, n // columns)), inst, strict=True
            )
        ]
        a = self.load((m, k), dtype, owners[0])
        b = self.load((k, n), dtype, owners[1])
        sums = "i32" if dtype == "i8" else "f32"
        c = self.load((m, n), sums, owners[2])
        names = ("layout_a", "layout_b", "layout_cd")
        stated = attributes(*(o.says(name) for o, name in zip(owners, names, strict=True)))
        self.add(
            f"xegpu.dpas {a.name}, {b.name}, {c.name} {stated} : {a.type}, {b.type}, {c.type} -> TYPE",
            (m, n),
            sums,
            owners[2],
        )

    def loop(self) -> None:
        """A sum of tiles that march along the columns of an array, or of one tile again and again."""
        a = self.pick(self.values)
        descriptor, type = self.tile(a.shape, a.dtype, a.layout)
        times, number = self.pick((0, 1, 3)), len(self.lines)
        c = {n: f"%c{number}_{n}" for n in ("zero", "step", "end")}
        for key, value in zip(c, (0, 4, 4 * times), strict=True):
            self.line(f"{c[key]} = arith.constant {value} : index")
        op = "addf" if a.family == "float" else "addi"
        result = f"%v{number}_loop"
        self.line(
            f"{result} = scf.for %i{number} = {c['zero']} to {c['end']} step {c['step']} "
            f"iter_args(%acc{number} = {a.name}) -> {a.type} {{"
        )
        stated = attributes(a.layout.says("layout_result_0"))
        # MLIR 22.1.8 takes a loop's counter for its first value where it makes lanes of a load's subgroup.
        column = 4 if self.level == "instruction" else f"%i{number}"
        at = f"[0, {column}] {attributes(a.layout.says('layout'), own=True)}"
        self.line(f"  %x{number} = xegpu.load_nd {descriptor}{at} : {type} -> {a.type}")
        self.line(f"  %y{number} = arith.{op} %acc{number}, %x{number} {stated} : {a.type}")
        self.line(f"  scf.yield %y{number} : {a.type}")
        self.line("}")
        self.values.append(Value(result, a.shape, a.dtype, a.layout))

    def program(self) -> Program:
        arguments = ", ".join(
            f"{name}: memref<{shape[0]}x{shape[1]}x{dtype}>"
            for name, shape, dtype in (*self.arrays, *self.outputs)
        )
        count = 1 if self.grid is None else self.grid[0] * self.grid[1]
        body = "\n".join(self.lines)
        level = "subgroup" if self.grid is None else "workgroup"
        stated = f'{{tilewright.level = "{level}", tilewright.subgroups = {count}}}'
        text = (
            f"gpu.module @m {{\ngpu.func @k({arguments}) kernel attributes {stated} {{\n"
            f"{body}\n  gpu.return\n}}\n}}\n"
        )
        inputs, outputs = ([(s, d) for _, s, d in arrays] for arrays in (self.arrays, self.outputs))
        return Program(text, inputs, outputs)


STEPS: tuple[Callable[[Drawing], None], ...] = (
    Drawing.binary,
    Drawing.unary,
    Drawing.cast,
    Drawing.select,
    Drawing.transpose,
    Drawing.convert,
    Drawing.reduce,
    Drawing.product,
    Drawing.loop,
)


LEVELS = ("workgroup", "workgroup in instructions", "subgroup", "instruction")
"""What is left to do: subgroups; subgroups and instructions; instructions; lanes."""


@st.composite
def programs(draw: st.DrawFn, level: str, steps: int = 5) -> Program:
    """A program at one of the LEVELS, of one to sixteen subgroups or of one."""
    drawing = Drawing(draw, level)
    shape = drawing.shape()
    drawing.load(shape, drawing.pick(DTYPES), drawing.layout(shape))
    for _ in range(draw(st.integers(1, steps))):
        drawing.pick(STEPS)(drawing)
    drawing.store(drawing.values[-1])
    if draw(st.booleans()):
        drawing.store(drawing.pick(drawing.values))
    return drawing.program()
