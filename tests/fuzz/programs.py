"""Random legal tile programs: what they are, and a hypothesis strategy that draws them.

A program is a list of steps over a growing list of values (2-D vectors), so that it shrinks well:
`build.py` makes kernel IR of it and `plain.py` computes it workgroup by workgroup with plain numpy.
Offsets, extents and strides are drawn so that tiles hang over every edge of their arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias

from hypothesis import strategies as st

Shape: TypeAlias = tuple[int, int]
FLOATS = ("f32", "f16", "bf16")
INTEGERS = ("i32", "i16", "i8")
DTYPES = (*FLOATS, *INTEGERS)
BINARY = {
    "float": ("addf", "subf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf"),
    "int": ("addi", "subi", "muli", "minsi", "maxsi", "minui", "xori", "andi"),
}
REDUCTIONS = {
    "float": ("add", "maximumf", "minnumf"),
    "int": ("add", "minsi", "maxui", "xor", "and"),
}
WRITES = ("store", "put", "shift")
KINDS = (
    *("binary", "binary", "unary", "splat", "gather", "cast", "transpose", "reduce", "broadcast"),
    *("select", "mma", "dot", "if", "repeat", "layout"),
)
SIZES = (1, 2, 3, 4, 7, 8, 16, 17, 24, 32)


def family(dtype: str) -> Literal["float", "int"]:
    return "float" if dtype in FLOATS else "int"


@dataclass(frozen=True)
class Value:
    """The type of a value: a vector of two dimensions."""

    shape: Shape
    dtype: str


@dataclass(frozen=True)
class ArrayOf:
    """An argument. `layout` is rows, columns (the unit stride first), gaps (no unit stride), reversed
    (rows in descending order), dense (row after row without gaps), or even rows or columns: a pitch of whole
    vectors, as a copy engine needs it.

    With `owner` it has no memory of its own: it lies in that argument's, dense, from element `start` on."""

    shape: Shape
    dtype: str
    layout: str
    owner: int | None = None
    start: int = 0


@dataclass(frozen=True)
class Place:
    """An offset along one dimension: `factor * program_id(axis) + start`."""

    axis: int
    factor: int
    start: int

    def at(self, ids: tuple[int, int]) -> int:
        return self.factor * ids[self.axis] + self.start


@dataclass(frozen=True)
class Scatter:
    """Offsets into a flattened array: `(rows * i + columns * j + programs * linear id + start) mod
    modulus` for element [i, j]; elements of columns from `limit` on are masked off."""

    rows: int
    columns: int
    programs: int
    start: int
    modulus: int
    limit: int


@dataclass(frozen=True)
class Step:
    """One step; `args` are positions in the list of values, `extra` what else it needs."""

    kind: str
    args: tuple[int, ...]
    result: Value
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass
class Program:
    """Inputs first, then one output array per stored value.

    A value is stored as a tile, scattered (each program to elements of its own, columns first), or added to
    an array that all programs share. Elements that are masked off keep what they held.

    Steps may write inputs too (`store`, `put`, `shift`): in place, or over what other steps read. Such a program
    is one workgroup, whose memory ops take effect in program order.
    """

    grid: tuple[int, int]
    arrays: list[ArrayOf]
    steps: list[Step]
    stores: list[int]
    """Positions of the values that are stored, each to its own array."""
    ways: list[str] = field(default_factory=list[str])
    """How each of them is stored: `tile` (the default), `scatter` or `add`."""
    layout: str = "rows"
    """Of the arrays that take tiles."""

    @property
    def written(self) -> frozenset[int]:
        """Inputs that steps write, by this name or that of another that shares its memory."""
        found = {s.extra["to"] for s in self.steps if s.kind in WRITES}
        homes = {self.home(a) for a in found}
        return frozenset(a for a in range(len(self.arrays)) if self.home(a) in homes)

    def home(self, array: int) -> int:
        """The argument in whose memory one lies."""
        owner = self.arrays[array].owner
        return array if owner is None else owner

    def way(self, output: int) -> str:
        return self.ways[output] if output < len(self.ways) else "tile"

    def scatter(self, output: int) -> Scatter:
        """Where a value goes that is scattered or added."""
        m, n = self.steps[self.stores[output]].result.shape
        gx, gy = self.grid
        limit = n - n // 4
        if self.way(output) == "scatter":
            return Scatter(1, m, m * n, 0, gx * gy * m * n, limit)
        return Scatter(n, 1, 0, 0, m * n, limit)

    @property
    def outputs(self) -> list[ArrayOf]:
        """One array per store; of tiles, the last ones are cut."""
        found: list[ArrayOf] = []
        for output, position in enumerate(self.stores):
            value = self.steps[position].result
            if self.way(output) != "tile":
                elements = self.scatter(output).modulus
                n = value.shape[1]
                found.append(ArrayOf((elements // n, n), value.dtype, "dense"))
                continue
            rows, columns = (
                g * n - (n // 3 if g * n > 1 else 0)
                for g, n in zip(self.grid, value.shape, strict=True)
            )
            found.append(ArrayOf((rows, columns), value.dtype, self.layout))
        return found


def places(extent: int, tile: int) -> st.SearchStrategy[Place]:
    """Offsets from a little before the array to a little past it."""
    return st.builds(
        Place,
        axis=st.integers(0, 1),
        factor=st.sampled_from([0, tile, tile - 1, -tile]),
        start=st.integers(-tile, extent),
    )


class _Drawing:
    """A program while it is drawn."""

    def __init__(self, draw: st.DrawFn, in_place: bool = False, moves: bool = True):
        self.draw = draw
        self.moves = moves
        """Are ops that rearrange elements (`tests.fuzz.moves`) among the steps?"""
        self.arrays: list[ArrayOf] = []
        self.steps: list[Step] = []
        self.in_place = in_place
        """Arrays are used again: read, written, and overlapped by others."""

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def shape(self) -> Shape:
        return self.pick(SIZES), self.pick(SIZES)

    def add(self, kind: str, args: tuple[int, ...], result: Value, **extra: Any) -> int:
        self.steps.append(Step(kind, args, result, extra))
        return len(self.steps) - 1

    def array(self, shape: Shape, dtype: str) -> int:
        if self.in_place and (owners := self.owners(dtype)) and self.draw(st.booleans()):
            owner = self.pick(owners)
            room = prod(self.arrays[owner].shape)
            columns = min(shape[1], room)
            rows = min(shape[0], room // columns)
            start = self.draw(st.integers(0, room - rows * columns))
            self.arrays.append(ArrayOf((rows, columns), dtype, "dense", owner, start))
        else:
            layouts = ("rows", "columns", "gaps", "reversed", *(["dense"] * 2 * self.in_place))
            self.arrays.append(ArrayOf(shape, dtype, self.pick(layouts)))
        return len(self.arrays) - 1

    def owners(self, dtype: str, elements: int = 1) -> list[int]:
        """Dense arrays of a type, with memory of their own for so many elements."""
        return [
            i
            for i, a in enumerate(self.arrays)
            if a == ArrayOf(a.shape, dtype, "dense") and prod(a.shape) >= elements
        ]

    def place(self, shape: Shape, dtype: str) -> tuple[int, tuple[Place, ...]]:
        """An array and a place in it for a tile: where one was before, near it, or in an array of its own."""
        known = [s for s in self.steps if s.kind in ("load", "store") and s.result.dtype == dtype]
        if self.in_place and known and self.draw(st.integers(0, 3)):
            other = self.pick(known)
            array = other.extra["array"]
            if other.result.shape == shape and self.draw(st.booleans()):
                return array, other.extra["at"]
            extents = self.arrays[array].shape
        else:
            extents = tuple(self.draw(st.integers(1, 2 * n + 3)) for n in shape)
            array = self.array((extents[0], extents[1]), dtype)
        return array, tuple(self.draw(places(e, n)) for e, n in zip(extents, shape, strict=True))

    def write(self) -> None:
        """A step that writes an input."""
        source = self.draw(st.integers(0, len(self.steps) - 1))
        value = self.steps[source].result
        kind = self.pick(WRITES)
        if kind == "put":
            m, n = value.shape
            homes = self.owners(value.dtype, m * n)
            if not homes:
                self.arrays.append(ArrayOf((m + 1, n), value.dtype, "dense"))
                homes = [len(self.arrays) - 1]
            array = self.pick(homes)
            size = prod(self.arrays[array].shape)
            rows, columns = self.pick(((n, 1), (1, m), (size - n, size - 1)))
            start = self.draw(st.integers(0, size - 1))
            at = Scatter(rows, columns, 0, start, size, self.pick((n, n, n // 2)))
            self.add("put", (source,), value, to=array, at=at)
            return
        array, at = self.place(value.shape, value.dtype)
        if kind == "store":
            self.add("store", (source,), value, array=array, to=array, at=at)
            return
        to, there = self.place(value.shape, value.dtype)
        steps = [self.draw(st.integers(-2, 2)) for _ in range(4)]
        times, op = self.pick((0, 1, 2, 3)), self.pick((None, *BINARY[family(value.dtype)][:2]))
        extra = {"from": (array, at, steps[:2]), "to": to, "at": there, "by": steps[2:]}
        self.add("shift", (source,), value, times=times, op=op, **extra)

    def load(self, shape: Shape, dtype: str) -> int:
        array, at = self.place(shape, dtype)
        padding = self.pick((0, 0, 0, 1, 3))
        map_ = self.map(shape) if self.draw(st.booleans()) else None
        return self.add(
            "load", (), Value(shape, dtype), array=array, at=at, padding=padding, map=map_
        )

    def gather(self, shape: Shape, dtype: str) -> int:
        rows, columns = self.draw(st.integers(1, 9)), self.draw(st.integers(1, 20))
        self.arrays.append(ArrayOf((rows, columns), dtype, "dense"))
        factor = st.integers(0, 2 * columns)
        at = Scatter(
            self.draw(factor),
            self.draw(st.sampled_from([1, 1, 2, columns])),
            self.draw(factor),
            self.draw(factor),
            rows * columns,
            self.draw(st.sampled_from([shape[1], shape[1], shape[1] // 2, 0])),
        )
        array, padding = len(self.arrays) - 1, self.pick((0, 0, 2))
        return self.add("gather", (), Value(shape, dtype), array=array, at=at, padding=padding)

    def map(self, shape: Shape) -> tuple[Shape, Shape]:
        """sg_layout and sg_data that divide a shape."""

        def divisor(n: int) -> int:
            return self.pick(d for d in range(1, n + 1) if n % d == 0)

        data = divisor(shape[0]), divisor(shape[1])
        layout = divisor(shape[0] // data[0]), divisor(shape[1] // data[1])
        return layout, data

    def like(self, position: int) -> int:
        """A value of the same type as another: an earlier one, or a new load."""
        value = self.steps[position].result
        same = [i for i, step in enumerate(self.steps) if step.result == value]
        return self.pick([*same, -1]) if len(same) > 1 else -1

    def operand(self, value: Value) -> int:
        known = [i for i, step in enumerate(self.steps) if step.result == value]
        choice = self.pick([*known, -1])
        return choice if choice >= 0 else self.load(value.shape, value.dtype)

    def step(self) -> None:
        """One more step on a value that exists."""
        if self.in_place and not self.draw(st.integers(0, 2)):
            self.write()
            return
        source = self.draw(st.integers(0, len(self.steps) - 1))
        value = self.steps[source].result
        (m, n), dtype = value.shape, value.dtype
        kind = self.pick((*KINDS, *["move"] * 3) if self.moves else KINDS)
        if kind == "binary":
            other = self.operand(value)
            self.add("binary", (source, other), value, op=self.pick(BINARY[family(dtype)]))
        elif kind == "unary" and dtype in FLOATS:
            self.add("unary", (source,), value, op=self.pick(("negf", "absf", "tanh", "floor")))
        elif kind == "splat":
            self.add("splat", (), value, number=self.pick((-2, -1, 0, 1, 3)))
        elif kind == "gather":
            self.gather(value.shape, dtype)
        elif kind == "cast":
            others = {"f32": ("f16", "bf16"), "f16": ("f32",), "bf16": ("f32",)}
            others |= {"i32": ("i16", "i8", "f32"), "i16": ("i32", "i8"), "i8": ("i32", "i16")}
            self.add("cast", (source,), Value(value.shape, self.pick(others[dtype])))
        elif kind == "transpose":
            self.add("transpose", (source,), Value((n, m), dtype))
        elif kind == "reduce":
            dim = self.draw(st.integers(0, 1))
            extent = value.shape[dim]
            sizes = [None, *(d for d in range(1, extent + 1) if extent % d == 0)]
            size = self.pick(sizes)
            shape = list(value.shape)
            shape[dim] = 1 if size is None else extent // size
            self.add(
                "reduce",
                (source,),
                Value((shape[0], shape[1]), dtype),
                op=self.pick(REDUCTIONS[family(dtype)]),
                dim=dim,
                size=size,
            )
        elif kind == "broadcast":
            dim = self.draw(st.integers(0, 1))
            times = self.pick((1, 2, 3, 8))
            shape = list(value.shape)
            size = None if shape[dim] == 1 and self.draw(st.booleans()) else times
            shape[dim] *= times
            if max(shape) <= 64:
                self.add(
                    "broadcast", (source,), Value((shape[0], shape[1]), dtype), dim=dim, size=size
                )
        elif kind == "select":
            self.add("select", (source, self.operand(value)), value)
        elif kind == "mma" and dtype in (*FLOATS, "i8"):
            self.mma(source)
        elif kind == "dot":
            self.dot(dtype)
        elif kind == "if":
            self.add("if", (source, self.operand(value)), value, axis=self.draw(st.integers(0, 1)))
        elif kind == "repeat":
            self.add(
                "repeat",
                (source, self.operand(value)),
                value,
                times=self.draw(st.integers(0, 3)),
                op=self.pick(BINARY[family(dtype)][:2]),
            )
        elif kind == "layout":
            self.add("layout", (source,), value, map=self.map(value.shape))
        elif kind == "move":
            from tests.fuzz.moves import MOVES

            MOVES[self.pick(MOVES)].draw(self, source)

    def move(self, op: str, args: tuple[int, ...], result: Value, **extra: Any) -> None:
        """A step of `tests.fuzz.moves`."""
        self.add("move", args, result, op=op, **extra)

    def mma(self, a: int) -> None:
        value = self.steps[a].result
        (m, k), n = value.shape, self.pick(SIZES)
        b = self.operand(Value((k, n), value.dtype))
        result = Value((m, n), "i32" if value.dtype == "i8" else "f32")
        c = (self.operand(result),) if self.draw(st.booleans()) else ()
        self.add("mma", (a, b, *c), result)

    def dot(self, dtype: str) -> None:
        """A reduction loop over tiles of two arrays, as matrix programs have it."""
        dtype = dtype if dtype in (*FLOATS, "i8") else "f32"
        (m, n), k = self.shape(), self.pick(SIZES)
        depth = self.draw(st.integers(0, 3 * k + 1))
        rows, columns = self.draw(st.integers(1, 2 * m + 1)), self.draw(st.integers(1, 2 * n + 1))
        a = self.array((rows, max(depth, 1)), dtype)
        b = self.array((max(depth, 1), columns), dtype)
        self.add(
            "dot",
            (),
            Value((m, n), "i32" if dtype == "i8" else "f32"),
            a=a,
            b=b,
            k=k,
            depth=depth,
            style=self.pick(("update", "init")),
            at=(self.draw(places(rows, m)), self.draw(places(columns, n))),
        )

    def product(self, m: int, n: int, dtype: str) -> None:
        """A reduction loop over tiles as large as matrix units like them, mostly of whole rows.

        Its left operand may be computed from what was loaded; one loop may sum up two products.
        """
        k = self.pick((16, 32, 64))

        def extent(least: int) -> int:
            number = self.draw(st.integers(1, 24))
            return number if self.pick((0, 0, 0, 1)) else 16 * (least // 16 + number - 1)

        depth, rows, columns = extent(16), extent(m), extent(n)
        layouts = ("even rows", "even rows", "even columns", "even columns", "rows", "gaps")
        a, b = len(self.arrays), len(self.arrays) + 1
        changes = ("negf", "absf", "cast") if dtype in ("f16", "bf16") else ()
        before = self.pick((None, None, None, *changes))
        left = "i8" if before == "cast" else dtype
        self.arrays.append(ArrayOf((rows, depth), left, self.pick(layouts)))
        self.arrays.append(ArrayOf((depth, columns), dtype, self.pick(layouts)))
        also = None
        if self.pick((0, 0, 1)):
            also = len(self.arrays)
            self.arrays.append(ArrayOf((depth, columns), dtype, self.pick(layouts)))
        result = Value((m, n), "i32" if dtype == "i8" else "f32")
        starts = [Place(axis, tile, self.pick((0, 0, 3))) for axis, tile in ((0, m), (1, n))]
        style = self.pick(("update", "init"))
        extra = {"a": a, "b": b, "also": also, "before": before, "at": tuple(starts)}
        self.add("dot", (), result, k=k, depth=depth, style=style, **extra)


@st.composite
def products(draw: st.DrawFn, steps: int = 4, moves: bool = True) -> Program:
    """One or two matrix products of large tiles, and up to `steps` steps on what came out."""
    drawing = _Drawing(draw, moves=moves)
    m, n = drawing.pick((64, 128)), drawing.pick((16, 32, 64, 128))
    dtype = drawing.pick(("f16", "bf16", "bf16", "i8", "f32"))
    for _ in range(drawing.pick((1, 1, 2))):
        drawing.product(m, n, dtype)
    for _ in range(draw(st.integers(0, steps))):
        drawing.step()
    last = len(drawing.steps) - 1
    stores = sorted({last, draw(st.integers(0, last))})
    grid = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    layout = drawing.pick(("even rows", "even rows", "rows"))
    return Program(grid, drawing.arrays, drawing.steps, stores, layout=layout)


@st.composite
def programs(
    draw: st.DrawFn, steps: int = 7, in_place: bool | None = None, moves: bool = True
) -> Program:
    """A program of at least one load and up to `steps` more steps, which stores one or two values.

    `in_place`: whether steps write inputs; drawn where it is not given.
    """
    written = in_place or (in_place is None and draw(st.booleans()))
    drawing = _Drawing(draw, in_place=written, moves=moves)
    drawing.load(drawing.shape(), drawing.pick(DTYPES))
    for _ in range(draw(st.integers(0, steps))):
        drawing.step()
    last = len(drawing.steps) - 1
    stores = sorted({last, draw(st.integers(0, last))})
    grid = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if drawing.in_place:
        grid = 1, 1
    ways: list[str] = []
    for position in stores:
        integer = drawing.steps[position].result.dtype == "i32"
        ways.append(drawing.pick(("tile", "tile", "scatter", *(["add"] if integer else []))))
    return Program(grid, drawing.arrays, drawing.steps, stores, ways)
