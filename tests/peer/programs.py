"""Random XeGPU programs of workgroups, subgroups and instructions in the words that MLIR's own passes know.

Every value has a layout, as those passes want it: `sg_layout` and `sg_data` for a workgroup, `inst_data` for the
instructions of a subgroup; none where values have the size of an instruction, for which MLIR finds the lanes itself.
Values are [rows, columns], or their rows and columns, or one row from the start. Not drawn is the transpose of a value
in rounds along both dimensions, whose parts MLIR 22.1.8 leaves where they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from tests.peer.values import (
    BINARY,
    BY_CONSTANT,
    CASTS,
    COMPARE,
    DTYPES,
    NEUTRAL,
    SUMS,
    UNARY,
    Layout,
    Program,
    Shape,
    Steps,
    Value,
    attributes,
    typed,
    written,
)

ROOM = 16
"""Elements that arrays are wider and higher than a tile."""

TO_LANES = "workgroup to lanes"
LEVELS = ("workgroup", "workgroup in instructions", "subgroup", "instruction", TO_LANES)
"""What is left to do: subgroups; subgroups and instructions; instructions; lanes; all of it."""


class Drawing(Steps):
    """A program that grows by drawn steps, with one of the LEVELS left."""

    def __init__(self, draw: st.DrawFn, level: str):
        super().__init__(draw)
        self.level = level
        workgroup = level.startswith("workgroup")
        self.flat = draw(st.integers(0, 7)) == 0
        sizes = (1, 2, 4, 8) if self.flat else (1, 2, 4)
        self.grid = tuple(self.pick(sizes) for _ in range(2 - self.flat)) if workgroup else None
        self.lanes = level in ("instruction", TO_LANES)
        self.rounds = (1, 1, 2) if draw(st.integers(0, 3)) == 0 else (1,)
        self.blocked = level in ("workgroup in instructions", "subgroup", TO_LANES)
        self.values: list[Value] = []
        self.arrays: list[tuple[str, Shape, str]] = []
        self.outputs: list[tuple[str, Shape, str]] = []
        self.numbers: list[str] = []

    def layout(self, shape: Shape) -> Layout:
        """One block each, or some rounds of blocks; instructions that divide a block."""
        if self.grid is None:
            return Layout(None, shape, self.inst(shape) if self.blocked else None)
        rounds = [
            self.pick([r for r in self.rounds if n % (g * r) == 0])
            for n, g in zip(shape, self.grid, strict=True)
        ]
        data = tuple(n // (g * r) for n, g, r in zip(shape, self.grid, rounds, strict=True))
        inst = self.inst(data) if self.blocked else None
        return Layout(self.grid, data, inst, len(shape) == 2 and self.draw(st.booleans()))

    def inst(self, data: Shape) -> Shape:
        """Instructions of one element or row MLIR 22 cannot put together again, and lanes have 8x16 elements."""
        if self.level == TO_LANES:
            most = (8, 16)[-len(data) :]
            return tuple(math.gcd(n, m) for n, m in zip(data, most, strict=True))
        return tuple(self.pick([d for d in (2, 4, 8, 16) if n % d == 0]) for n in data)

    def shape(self) -> Shape:
        if self.level == "instruction":
            return (16,) if self.flat else (8, 16)
        if self.flat:
            return ((self.grid or (1,))[0] * self.pick((16, 32, 64)),)
        rows, columns = self.grid or (1, 1)
        return rows * self.pick((4, 8, 16, 24, 32)), columns * self.pick((16, 32, 48))

    def add(self, op: str, shape: Shape, dtype: str, layout: Layout, whole: Shape = ()) -> Value:
        """An op that says who owns its result: LAYOUT is where the text says so, TYPE the result's type."""
        value = Value(self.fresh(), shape, dtype, layout, whole)
        stated = attributes(layout.says("layout_result_0"))
        self.line(f"{value.name} = {op.replace('LAYOUT', stated).replace('TYPE', value.type)}")
        self.values.append(value)
        return value

    def aside(self, op: str, shape: Shape, dtype: str, layout: Layout) -> Value:
        """An op whose result only the step has that adds it."""
        self.add(op, shape, dtype, layout)
        return self.values.pop()

    def each(self, op: str, *operands: Value) -> Value:
        """An op on elements of values that are owned alike."""
        a, names = operands[0], ", ".join(value.name for value in operands)
        return self.aside(f"{op} {names} LAYOUT : TYPE", a.shape, a.dtype, a.layout)

    def keep(self, value: Value, like: Value) -> None:
        self.values.append(replace(value, whole=like.whole))

    def splat(self, number: int, shape: Shape, dtype: str, layout: Layout) -> Value:
        shown = f"{number}.0" if dtype in ("f32", "f16", "bf16") else f"{number}"
        return self.aside(f"arith.constant LAYOUT dense<{shown}> : TYPE", shape, dtype, layout)

    @property
    def full(self) -> list[Value]:
        """Values that are no rows of others."""
        return [v for v in self.values if v.layout.without is None]

    # Memory.
    def array(self, shape: Shape, dtype: str, output: bool = False) -> tuple[str, str]:
        arrays = self.outputs if output else self.arrays
        name = f"%{'o' if output else 'a'}{len(arrays)}"
        arrays.append((name, shape, dtype))
        return name, typed(shape, dtype, "memref")

    def tile(
        self, shape: Shape, dtype: str, layout: Layout, output: bool = False
    ) -> tuple[str, str]:
        """A descriptor of an array of its own, and its type."""
        name, array = self.array(tuple(n + ROOM for n in shape), dtype, output)
        descriptor = self.fresh("t")
        type = typed(shape, dtype, "!xegpu.tensor_desc")
        if layout.text:
            type = f"{type[:-1]}, {layout.text}>"
        self.line(f"{descriptor} = xegpu.create_nd_tdesc {name} : {array} -> {type}")
        return descriptor, type

    def offsets(self, shape: Shape) -> str:
        starts = [self.draw(st.integers(0, ROOM)) for _ in shape[:-1]]
        return f"{[*starts, self.pick((0, 4, 8, 16))]}"

    def load(self, shape: Shape, dtype: str, layout: Layout) -> Value:
        descriptor, type = self.tile(shape, dtype, layout)
        at = f"{self.offsets(shape)} {attributes(layout.says('layout'), own=True)}"
        # Of fewer than 16 bits MLIR 22 gives a prefetch of one instruction lanes that do not divide it.
        if not self.lanes and self.draw(st.booleans()):
            self.line(f"xegpu.prefetch_nd {descriptor}{at} : {type}")
        op = f"xegpu.load_nd {descriptor}{at} : {type} -> TYPE"
        return self.add(op, shape, dtype, layout)

    def store(self, value: Value) -> None:
        if value.layout.without is not None:
            value = self.spread(value)
        if self.draw(st.integers(0, 15 if self.level == TO_LANES else 3)) == 0:
            self.scatter(value)
            return
        descriptor, type = self.tile(value.shape, value.dtype, value.layout, output=True)
        at = f"{self.offsets(value.shape)} {attributes(value.layout.says('layout'), own=True)}"
        self.line(f"xegpu.store_nd {value.name}, {descriptor}{at} : {value.type}, {type}")

    # Elements by their places.
    def spread(self, row: Value) -> Value:
        """A row or a column as often as all has it."""
        dim, layout = row.layout.without, replace(row.layout, without=None)
        assert dim is not None
        whole = row.whole
        if dim == 1:
            thin = (row.shape[0], 1)
            text = f"vector.shape_cast {row.name} LAYOUT : {row.type} to TYPE"
            row = self.aside(text, thin, row.dtype, layout.thin(1))
        text = f"vector.broadcast {row.name} LAYOUT : {row.type} to TYPE"
        return self.aside(text, whole, row.dtype, layout)

    def countable(self, shape: Shape, layout: Layout, dim: int) -> bool:
        """Whether MLIR 22 knows the places: of rounds it counts the first, of rows those of one column of subgroups."""
        column = len(shape) == 2 and dim == 0 and (self.grid or (1, 1))[1] > 1
        return max(layout.rounds(shape)) == 1 and not column

    def row(self) -> None:
        """Where the elements of a row or a column are."""
        a, dim = self.pick(self.full), self.pick((0, 1))
        if len(a.shape) == 2 and self.countable(a.shape, a.layout, dim):
            layout = replace(a.layout, without=1 - dim)
            steps = self.aside("vector.step LAYOUT : TYPE", (a.shape[dim],), "index", layout)
            text = f"arith.index_cast {steps.name} LAYOUT : {steps.type} to TYPE"
            self.add(text, steps.shape, "i32", layout, a.shape)

    def counted(self, shape: Shape, layout: Layout, dim: int) -> Value:
        """The place of each element along a dimension."""
        if len(shape) == 1:
            return self.aside("vector.step LAYOUT : TYPE", shape, "index", layout)
        row = replace(layout, without=1 - dim)
        steps = self.aside("vector.step LAYOUT : TYPE", (shape[dim],), "index", row)
        return self.spread(replace(steps, whole=shape))

    def places(self, shape: Shape, layout: Layout) -> tuple[Value, int]:
        """An offset of its own for each element, and how many there may be: counted, or in any order."""
        if self.draw(st.booleans()) or not all(
            self.countable(shape, layout, dim) for dim in range(len(shape))
        ):
            return self.read_places(shape, layout, "places")
        columns = self.counted(shape, layout, len(shape) - 1)
        if len(shape) == 1:
            return columns, shape[0]
        pitch = shape[1] + self.pick((0, 3))
        scale = self.splat(pitch, shape, "index", layout)
        rows = self.each("arith.muli", self.counted(shape, layout, 0), scale)
        return self.each("arith.addi", rows, columns), shape[0] * pitch

    def read_places(self, shape: Shape, layout: Layout, kind: str) -> tuple[Value, int]:
        numbers = self.load(shape, kind, layout)
        self.values.pop()
        text = f"arith.index_cast {numbers.name} LAYOUT : {numbers.type} to TYPE"
        return self.aside(text, shape, "index", layout), math.prod(n + ROOM for n in shape)

    def mask(self, a: Value) -> Value:
        """All elements, or those of which a value is so.

        MLIR 22.1.8 makes one constant of all rounds, and forgets the rounds behind the first of ops that take it.
        """
        if max(a.layout.rounds(a.shape)) == 1 and self.draw(st.booleans()):
            return self.aside("arith.constant LAYOUT dense<true> : TYPE", a.shape, "i1", a.layout)
        return self.compared(a, self.splat(0, a.shape, a.dtype, a.layout))

    def gather(self) -> None:
        a = self.pick(self.full)
        again = self.draw(st.booleans())
        read = self.read_places(a.shape, a.layout, "repeated places") if again else None
        places, count = read or self.places(a.shape, a.layout)
        mask = self.mask(a)
        name, array = self.array((count,), a.dtype)
        stated = attributes(a.layout.says("layout"), own=True)
        types = f"{array}, {places.type}, {mask.type}"
        text = f"xegpu.load {name}[{places.name}], {mask.name} {stated} : {types} -> TYPE"
        b = self.aside(text, a.shape, a.dtype, a.layout)
        # What is not loaded is anything.
        self.chosen(mask, b, a)

    def scatter(self, value: Value) -> None:
        places, count = self.places(value.shape, value.layout)
        mask = self.mask(value)
        name, array = self.array((count,), value.dtype, output=True)
        stated = attributes(value.layout.says("layout"), own=True)
        types = f"{value.type}, {array}, {places.type}, {mask.type}"
        self.line(
            f"xegpu.store {value.name}, {name}[{places.name}], {mask.name} {stated} : {types}"
        )

    def matrices(self) -> None:
        """Through shared local memory, to other owners."""
        a = self.pick(self.full)
        if self.flat or self.lanes:
            return
        size = a.shape[0] * a.shape[1] * np.dtype(DTYPES[a.dtype]).itemsize
        memory, matrix = self.fresh("m"), typed(a.shape, a.dtype, "!xegpu.mem_desc")
        self.line(f"{memory}_bytes = memref.alloca() : memref<{size}xi8, 3>")
        self.line(
            f"{memory} = xegpu.create_mem_desc {memory}_bytes : memref<{size}xi8, 3> -> {matrix}"
        )
        to = self.layout(a.shape)
        stated = [attributes(each.says("layout"), own=True) for each in (a.layout, to)]
        self.line(f"xegpu.store_matrix {a.name}, {memory}[0, 0] {stated[0]} : {a.type}, {matrix}")
        self.line("gpu.barrier")
        self.add(
            f"xegpu.load_matrix {memory}[0, 0] {stated[1]} : {matrix} -> TYPE", a.shape, a.dtype, to
        )

    # Arithmetic.
    def other(self, value: Value) -> Value:
        """Another value of the same shape, type and owners: one that there is, or a load, or a constant."""
        key = (value.shape, value.dtype, value.layout)
        same = [v for v in self.values if (v.shape, v.dtype, v.layout) == key]
        if len(same) > 1 and self.draw(st.booleans()):
            return self.pick(same)
        if value.layout.without is None and self.draw(st.booleans()):
            return self.load(*key)
        return self.splat(self.pick((2, 3)), *key)

    def binary(self) -> None:
        a = self.pick(self.values)
        self.keep(self.each(self.pick(BINARY[a.family]), a, self.other(a)), a)

    def by_constant(self) -> None:
        if whole := [v for v in self.values if v.family == "int"]:
            a = self.pick(whole)
            number = self.splat(self.pick((2, 3)), a.shape, a.dtype, a.layout)
            self.keep(self.each(self.pick(BY_CONSTANT), a, number), a)

    def unary(self) -> None:
        a = self.pick(self.values)
        self.keep(self.each(self.pick(UNARY[a.family]), a), a)

    def cast(self) -> None:
        a = self.pick(self.values)
        op, to = self.pick(CASTS[a.dtype])
        self.add(f"arith.{op} {a.name} LAYOUT : {a.type} to TYPE", a.shape, to, a.layout, a.whole)

    def compared(self, a: Value, b: Value) -> Value:
        op, kinds = COMPARE[a.family]
        text = f"arith.{op} {self.pick(kinds)}, {a.name}, {b.name} LAYOUT : {a.type}"
        return self.aside(text, a.shape, "i1", a.layout)

    def chosen(self, mask: Value, a: Value, b: Value) -> None:
        text = f"arith.select {mask.name}, {a.name}, {b.name} LAYOUT : {mask.type}, TYPE"
        self.add(text, a.shape, a.dtype, a.layout, a.whole)

    def select(self) -> None:
        a = self.pick(self.values)
        b = replace(self.other(a), whole=a.whole)
        self.chosen(self.compared(a, b), b, a)

    # What moves elements.
    def transpose(self) -> None:
        a = self.pick(self.full)
        if self.flat or self.level == "instruction" or min(a.layout.rounds(a.shape)) > 1:
            return
        text = f"vector.transpose {a.name}, [1, 0] LAYOUT : {a.type} to TYPE"
        self.add(text, (a.shape[1], a.shape[0]), a.dtype, a.layout.turned())

    def convert(self) -> None:
        """To other instructions of the same subgroups, or to other subgroups, which MLIR 22 refuses."""
        a = self.pick(self.full)
        if self.grid is None or not (self.blocked or self.draw(st.integers(0, 3)) == 0):
            return
        other = self.draw(st.integers(0, 3)) == 0 or not self.blocked
        to = self.layout(a.shape) if other else replace(a.layout, inst=self.inst(a.layout.data))
        stated = attributes(a.layout.says("input_layout"), to.says("target_layout"), own=True)
        self.add(f"xegpu.convert_layout {a.name} {stated} : TYPE", a.shape, a.dtype, to)

    def reduce(self) -> None:
        """Along a dimension; along one that no subgroup has whole, which MLIR 22 refuses, now and then."""
        across = self.draw(st.integers(0, 7)) == 0
        whole = [
            (v, d)
            for v in self.full
            for d in range(len(v.shape))
            if v.dtype in SUMS and (across or v.layout.data[d] == v.shape[d]) and len(v.shape) == 2
        ]
        if not whole:
            return
        a, dim = self.pick(whole)
        kind, layout = self.pick(SUMS[a.dtype]), replace(a.layout, without=dim)
        kept = (a.shape[1 - dim],)
        start = self.splat(NEUTRAL[kind], kept, a.dtype, layout)
        text = f"vector.multi_reduction <{kind}>, {a.name}, {start.name} LAYOUT [{dim}] : {a.type} to TYPE"
        self.add(text, kept, a.dtype, layout, a.shape)

    def broadcast(self) -> None:
        if rows := [v for v in self.values if v.layout.without is not None]:
            self.values.append(self.spread(self.pick(rows)))

    def product(self) -> None:
        """A and B whole along k; f32 or i32 sums."""
        if self.flat:
            return
        rows, columns = self.grid or (1, 1)
        dtype = self.pick(("f16", "bf16", "i8"))
        step = 32 if dtype == "i8" else 16
        m, n, k = rows * 8, columns * 16, step
        if self.level != "instruction":
            m, n, k = m * self.pick((1, 2)), n * self.pick((1, 2)), k * self.pick((1, 2))
        inst = ((8, step), (step, 16), (8, 16)) if self.blocked else (None, None, None)
        sizes = ((m // rows, k), (k, n // columns), (m // rows, n // columns))
        order = self.grid is not None and self.draw(st.booleans())
        owners = [
            Layout(self.grid, data, tile, order) for data, tile in zip(sizes, inst, strict=True)
        ]
        a = self.load((m, k), dtype, owners[0])
        b = self.load((k, n), dtype, owners[1])
        sums = "i32" if dtype == "i8" else "f32"
        c = self.load((m, n), sums, owners[2])
        names = ("layout_a", "layout_b", "layout_cd")
        stated = attributes(*(o.says(name) for o, name in zip(owners, names, strict=True)))
        types = f"{a.type}, {b.type}, {c.type} -> TYPE"
        text = f"xegpu.dpas {a.name}, {b.name}, {c.name} {stated} : {types}"
        self.add(text, (m, n), sums, owners[2])

    # Control flow.
    def number(self, options: Sequence[int]) -> str:
        """A number that the text says, or one of 0 to 3 that the caller gives."""
        if self.draw(st.booleans()):
            if not self.numbers:
                self.numbers.append("%n0")
            return self.pick(self.numbers)
        name = self.fresh("c")
        self.line(f"{name} = arith.constant {self.pick(options)} : index")
        return name

    def step(self) -> None:
        self.pick(LANE_STEPS if self.level == TO_LANES else STEPS)(self)

    def inside(self, *steps: Callable[[Drawing], None]) -> list[Value]:
        """Steps within a region, and the values there were before: those of the region end with it."""
        before = [*self.values]
        self.depth += 1
        for step in steps:
            step(self)
        return before

    def leave(self, before: list[Value], result: Value, a: Value) -> None:
        self.line(f"scf.yield {result.name} : {a.type}")
        self.depth -= 1
        self.values[:] = before

    def last_like(self, a: Value) -> Value:
        """The newest value of a region that can be its result."""
        key = (a.shape, a.dtype, a.layout)
        return [v for v in self.values if (v.shape, v.dtype, v.layout) == key][-1]

    def loop(self) -> None:
        """Sums of tiles that march along the columns of an array, or of one tile again and again."""
        a = self.pick(self.full)
        descriptor, type = self.tile(a.shape, a.dtype, a.layout)
        number, end = len(self.lines), self.number((0, 1, 3))
        zero, one, four = (self.fresh(name) for name in ("zero", "one", "four"))
        for name, value in ((zero, 0), (one, 1), (four, 4)):
            self.line(f"{name} = arith.constant {value} : index")
        result = f"%v{number}_loop"
        head = f"{result} = scf.for %i{number} = {zero} to {end} step {one} iter_args(%acc{number} = {a.name})"
        self.line(f"{head} -> {a.type} {{")
        before = self.inside()
        # MLIR 22.1.8 takes a loop's counter for its first value where it makes lanes of a load's subgroup.
        column = "4" if self.level == "instruction" else f"%col{number}"
        self.line(f"%col{number} = arith.muli %i{number}, {four} : index")
        at = ", ".join([*("0" for _ in a.shape[1:]), column])
        stated = attributes(a.layout.says("layout"), own=True)
        text = f"xegpu.load_nd {descriptor}[{at}] {stated} : {type} -> TYPE"
        x = self.add(text, a.shape, a.dtype, a.layout)
        self.values.append(replace(a, name=f"%acc{number}"))
        if self.draw(st.booleans()):
            self.step()
        add = "arith.addf" if a.family == "float" else "arith.addi"
        self.leave(before, self.each(add, self.last_like(replace(a, name="")), x), a)
        self.line("}")
        self.values.append(replace(a, name=result))

    def branch(self) -> None:
        """One value or another, by a number of the caller's; MLIR 22 hardly ever makes lanes of it."""
        if self.lanes and self.draw(st.integers(0, 3)):
            return
        a, number = self.pick(self.full), self.number((0, 2))
        condition, result, two = self.fresh("p"), f"%v{len(self.lines)}_if", self.fresh("two")
        self.line(f"{two} = arith.constant 2 : index")
        self.line(f"{condition} = arith.cmpi slt, {number}, {two} : index")
        self.line(f"{result} = scf.if {condition} -> ({a.type}) {{")
        for last in (False, True):
            before = self.inside(Drawing.step)
            self.leave(before, self.last_like(a), a)
            self.line("}" if last else "} else {")
        self.values.append(replace(a, name=result))


STEPS: tuple[Callable[[Drawing], None], ...] = (
    Drawing.binary,
    Drawing.by_constant,
    Drawing.unary,
    Drawing.cast,
    Drawing.select,
    Drawing.row,
    Drawing.gather,
    Drawing.matrices,
    Drawing.transpose,
    Drawing.convert,
    Drawing.reduce,
    Drawing.broadcast,
    Drawing.product,
    Drawing.loop,
    Drawing.branch,
)
SELDOM = (Drawing.row, Drawing.gather, Drawing.transpose, Drawing.reduce)
LANE_STEPS = [step for step in STEPS for _ in range(1 if step in SELDOM else 4)]
"""To lanes: MLIR's passes finish hardly any program with one of SELDOM there, or with a scatter."""


@st.composite
def programs(draw: st.DrawFn, level: str, steps: int = 5) -> Program:
    """A program at one of the LEVELS, of one to sixteen subgroups or of one."""
    drawing = Drawing(draw, level)
    shape = drawing.shape()
    drawing.load(shape, drawing.pick(DTYPES), drawing.layout(shape))
    for _ in range(draw(st.integers(1, steps))):
        drawing.step()
    drawing.store(drawing.values[-1])
    if draw(st.booleans()):
        drawing.store(drawing.pick(drawing.values))
    lists = drawing.arrays, drawing.outputs, drawing.numbers
    return written(drawing.lines, drawing.grid, *lists)
