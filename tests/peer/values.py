"""Values of XeGPU programs and who owns them, in the words that MLIR's own passes know; and the arrays of a program."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

Shape = tuple[int, ...]
FLOATS = ("f32", "f16", "bf16")
DTYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i32": np.int32,
    "i8": np.int8,
}


BINARY = {
    "float": "arith.addf arith.subf arith.mulf arith.maximumf arith.minimumf arith.maxnumf math.copysign",
    "int": "arith.addi arith.subi arith.muli arith.maxsi arith.minsi arith.minui arith.xori arith.andi arith.ori",
}
UNARY = {
    "float": "math.absf arith.negf math.floor math.ceil math.trunc math.roundeven",
    "int": "math.absi math.ctpop",
}
"""Exact ones: a result differs where an element is another one, and nowhere else."""
BY_CONSTANT = "arith.divsi arith.remsi arith.divui arith.remui arith.shli arith.shrsi arith.shrui"
COMPARE = {"float": ("cmpf", "olt oge une ord ult"), "int": ("cmpi", "slt eq uge ne ult")}
CASTS = {
    "f16": (("extf", "f32"), ("bitcast", "bf16")),
    "bf16": (("extf", "f32"), ("bitcast", "f16")),
    "f32": (("truncf", "f16"), ("truncf", "bf16"), ("bitcast", "i32")),
    "i8": (("extsi", "i32"), ("extui", "i32"), ("sitofp", "f32"), ("uitofp", "f16")),
    "i32": (("trunci", "i8"), ("sitofp", "f32")),
}
SUMS = {"f32": "add maximumf minnumf", "i32": "add maxsi minui xor or"}
NEUTRAL = {"add": 0, "maximumf": -9, "minnumf": 9, "maxsi": -9, "minui": 9, "xor": 0, "or": 0}


class Steps:
    """What draws the lines of a program one after the other."""

    def __init__(self, draw: st.DrawFn):
        self.draw = draw
        self.lines: list[str] = []
        self.depth = 1

    def pick(self, options: Any) -> Any:
        return self.draw(
            st.sampled_from(options.split() if isinstance(options, str) else [*options])
        )

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self, name: str = "v") -> str:
        return f"%{name}{len(self.lines)}"


@dataclass(frozen=True)
class Layout:
    """Who owns a value: a grid of subgroups, the block of each, its instructions; None and None: it is one."""

    grid: Shape | None
    data: Shape
    inst: Shape | None
    columns_first: bool = False
    """Whether ids of subgroups count down the columns."""
    without: int | None = None
    """The dimension that the value lacks: it is a row or a column of all that this owns."""

    @property
    def text(self) -> str:
        parts: list[str] = []
        if self.grid is not None:
            parts += [f"sg_layout = {[*self.grid]}", f"sg_data = {[*self.data]}"]
        if self.inst is not None:
            parts.append(f"inst_data = {[*self.inst]}")
        if self.grid is not None and len(self.data) == 2:
            parts.append(f"order = {[0, 1] if self.columns_first else [1, 0]}")
        text = f"#xegpu.layout<{', '.join(parts)}>" if parts else ""
        if text and self.without is not None:
            return f"#xegpu.slice<{text}, dims = [{self.without}]>"
        return text

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

    def thin(self, dim: int) -> Layout:
        """Of a value that has one element along a dimension, which every subgroup has."""

        def one(sizes: Shape | None) -> Shape | None:
            return None if sizes is None else (*sizes[:dim], 1, *sizes[dim + 1 :])

        data = one(self.data)
        assert data is not None
        return replace(self, data=data, inst=one(self.inst))

    def rounds(self, shape: Shape) -> list[int]:
        grid = self.grid or (1,) * len(shape)
        return [n // (g * d) for n, g, d in zip(shape, grid, self.data, strict=True)]


def attributes(*entries: str, own: bool = False) -> str:
    """A dictionary of what is said; `own`: of the op's own attributes."""
    said = ", ".join(entry for entry in entries if entry)
    return "" if not said else f"<{{{said}}}>" if own else f"{{{said}}}"


PLACES = ("places", "repeated places")
"""Offsets in an array, of i32: each once, in any order; or some of them again and again."""


def typed(shape: Shape, dtype: str, kind: str = "vector") -> str:
    dtype = "i32" if dtype in PLACES else dtype
    return f"{kind}<{'x'.join(map(str, (*shape, dtype)))}>"


@dataclass(frozen=True)
class Value:
    name: str
    shape: Shape
    dtype: str
    layout: Layout
    whole: Shape = ()
    """The shape that it is a row or a column of."""

    @property
    def type(self) -> str:
        return typed(self.shape, self.dtype)

    @property
    def family(self) -> str:
        return "float" if self.dtype in FLOATS else "int"


@dataclass
class Program:
    """XeGPU text with its arguments: what it reads, what it writes, and how many numbers behind them."""

    text: str
    inputs: list[tuple[Shape, str]]
    outputs: list[tuple[Shape, str]]
    numbers: int = field(default=0)

    def arguments(self, seed: int) -> list[Any]:
        """Small whole numbers, of which sums are exact in every type; outputs are poisoned."""
        rng = np.random.default_rng(seed)
        arrays: list[Any] = []
        for shape, kind in self.inputs:
            if kind in PLACES:
                some = rng.permutation(int(np.prod(shape))).astype(np.int32).reshape(shape)
                arrays.append(some if kind == "places" else some // 2)
            else:
                arrays.append(rng.integers(-3, 4, shape).astype(DTYPES[kind]))
        for shape, kind in self.outputs:
            arrays.append(np.empty(shape, DTYPES[kind]))
            arrays[-1].view(np.uint8)[...] = 0xFF
        return [*arrays, *(int(n) for n in rng.integers(0, 4, self.numbers))]


Arrays = list[tuple[str, Shape, str]]


def written(
    lines: list[str], grid: Shape | None, inputs: Arrays, outputs: Arrays, numbers: list[str]
) -> Program:
    """The program of lines, of a grid of subgroups or of one."""
    arrays = [f"{name}: {typed(shape, kind, 'memref')}" for name, shape, kind in inputs + outputs]
    arguments = ", ".join([*arrays, *(f"{name}: index" for name in numbers)])
    body, level = "\n".join(lines), "subgroup" if grid is None else "workgroup"
    stated = f'{{tilewright.level = "{level}", tilewright.subgroups = {math.prod(grid or ())}}}'
    text = (
        f"gpu.module @m {{\ngpu.func @k({arguments}) kernel attributes {stated} {{\n"
        f"{body}\n  gpu.return\n}}\n}}\n"
    )
    kinds = ([(shape, kind) for _, shape, kind in each] for each in (inputs, outputs))
    return Program(text, *kinds, len(numbers))
