"""Random workgroup programs for the lowering to Xe: those of tests/fuzz, with maps that distribute to subgroups.

All maps of a program distribute to one number of subgroups; extents are such that tiles divide in rounds, wrap,
or are shared. `lowered(..)` runs passes and compares what is left with the program as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from tests.fuzz.plain import copies
from tests.fuzz.programs import (
    BINARY,
    DTYPES,
    Program,
    Shape,
    _Drawing,  # pyright: ignore[reportPrivateUsage]
    family,
)
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.dialects.xegpu import LayoutAttr, SliceAttr
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.passes.expand_ops import EXPAND_OPS
from tilewright.passes.pipeline import Pass
from tilewright.passes.xegpu.pipeline import PIPELINE, WORKGROUP
from tilewright.tools.check_results import difference

SIZES = (1, 2, 4, 8, 8, 16, 16, 32, 32, 64, 3, 12, 24)
LARGE = 1024
"""Elements of a tile: 64 registers where one subgroup has them all, several instructions of every kind."""
ROUNDS = 4
"""Rounds along a dimension: pieces of a few elements each are all alike, and take the longest."""
SUBGROUPS = (1, 2, 4, 4, 8)


class _Lowering(_Drawing):
    def __init__(self, draw: st.DrawFn):
        super().__init__(draw, in_place=draw(st.booleans()))
        self.subgroups = self.pick(SUBGROUPS)

    def shape(self) -> Shape:
        rows = self.pick(SIZES)
        return rows, self.pick(n for n in SIZES if n * rows <= LARGE)

    def map(self, shape: Shape) -> tuple[Shape, Shape]:
        """A grid of all subgroups; blocks that make rounds, one round, or less than one."""
        ways = [d for d in range(1, self.subgroups + 1) if self.subgroups % d == 0]
        down = self.pick(ways)
        grid = down, self.subgroups // down

        def block(extent: int, groups: int) -> int:
            legal = [
                d
                for d in range(1, extent + 1)
                if extent % d == 0
                and (extent % (d * groups) == 0 or (d * groups) % extent == 0)
                and extent <= ROUNDS * d * groups
            ]
            return self.pick(legal)

        return grid, (block(shape[0], grid[0]), block(shape[1], grid[1]))

    def step(self) -> None:
        """Besides the steps of any program: a value goes through shared memory, owned by others after."""
        if self.draw(st.integers(0, 5)):
            super().step()
            return
        source = self.draw(st.integers(0, len(self.steps) - 1))
        value = self.steps[source].result
        extra: dict[str, Any] = {
            "map": self.map(value.shape),
            "shared": self.map(value.shape),
            "barrier": self.draw(st.booleans()),
        }
        if self.draw(st.booleans()):
            self.add("layout", (source,), value, **extra)
            return
        # Again and again, in a loop: what is stored next waits for what is still read.
        other = self.operand(value)
        op = self.pick(BINARY[family(value.dtype)][:2])
        self.add("repeat", (source, other), value, times=self.pick((0, 1, 3)), op=op, **extra)


@st.composite
def programs(draw: st.DrawFn, steps: int = 7) -> Program:
    """A program of a workgroup of one to eight subgroups."""
    drawing = _Lowering(draw)
    drawing.load(drawing.shape(), drawing.pick(DTYPES))
    for _ in range(draw(st.integers(0, steps))):
        drawing.step()
    last = len(drawing.steps) - 1
    stores = sorted({last, draw(st.integers(0, last))})
    ways: list[str] = []
    for position in stores:
        integer = drawing.steps[position].result.dtype == "i32"
        ways.append(drawing.pick(("tile", "tile", "scatter", *(["add"] if integer else []))))
    grid = (1, 1) if drawing.in_place else (2, draw(st.integers(1, 2)))
    return Program(grid, drawing.arrays, drawing.steps, stores, ways)


def reorder(module: ModuleOp, orders: Sequence[bool]) -> None:
    """Lets the layouts of a module linearise ids column-major here and there."""
    flips = iter(orders)
    known: dict[Attribute, Attribute] = {}

    def changed(attribute: Attribute) -> Attribute:
        match attribute:
            case LayoutAttr():
                if attribute not in known:
                    flip = attribute.field("order") is None and next(flips, False)
                    rank = attribute.rank
                    known[attribute] = attribute.replace(order=range(rank)) if flip else attribute
                return known[attribute]
            case SliceAttr():
                parent = changed(attribute.parent)
                assert isinstance(parent, (LayoutAttr, SliceAttr))
                return SliceAttr(parent, attribute.get_dims())
            case TensorDescType() if attribute.ownership is not None:
                layout = changed(attribute.ownership)
                return TensorDescType(
                    attribute.get_shape(),
                    attribute.element_type,
                    None if not hasattr(attribute.encoding, "length") else attribute.encoding,
                    layout,  # pyright: ignore
                )
            case _:
                return attribute

    for op in module.walk():
        for table in (op.attributes, op.properties):
            for name, value in table.items():
                table[name] = changed(value)
        for result in op.results:
            if (new := changed(result.type)) != result.type:
                result._type = new  # pyright: ignore


LINES = 300
"""Texts of fewer lines are read again, where every stage is executed."""

Grid = tuple[int, int, int]


def run(
    module: ModuleOp,
    grid: Grid,
    args: Sequence[Any],
    check: bool = False,
    seed: int = 0,
    kernel: str | None = None,
) -> list[Any]:
    """The arguments after a run; errors of checking mode fail."""
    arrays = iter(copies([a for a in args if isinstance(a, np.ndarray)]))
    given = [next(arrays) if isinstance(a, np.ndarray) else a for a in args]
    report = reference.run(module, grid, given, check=check, seed=seed, kernel=kernel)
    errors = [f for f in report.findings if f.severity == "error"]
    assert not errors, str(errors[0])
    return given


def wrong(expected: Sequence[Any], found: Sequence[Any]) -> str | None:
    """How the first argument that differs does."""
    for position, (right, given) in enumerate(zip(expected, found, strict=True)):
        if isinstance(right, np.ndarray) and (message := difference(right, given)):
            return f"argument {position} {message}"
    return None


def lowered(
    module: ModuleOp,
    grid: Grid,
    args: Sequence[Any],
    entries: Sequence[Pass[Any]] = WORKGROUP,
    chip: str = "pvc",
    check: bool = True,
    every: bool = False,
    expected: Sequence[Any] | None = None,
) -> ModuleOp:
    """The module after the passes; the first of them that changes a result fails by its name.

    Only the last text is executed, unless it is wrong: then, and with `every`, all of them are. `expected`
    are the results, where they are known.
    """
    right = run(module, grid, args) if expected is None else expected
    PIPELINE.alone(EXPAND_OPS, module, chip)
    if not every:
        final = module.clone()
        for entry in entries:
            PIPELINE.alone(entry, final, chip)
        verify_module(final)
        try:
            message = wrong(right, run(final, grid, args, check))
        except Exception as error:
            message = str(error)
        if message is None:
            return final
    stages = module.clone()
    before = print_module(stages)
    for entry in entries:
        PIPELINE.alone(entry, stages, chip)
        if (text := print_module(stages)) == before:
            continue
        before = text
        verify_module(stages)
        # Reading takes longer than all else, so that long texts are executed as they are.
        read_back = parse_module(text, entry.name) if text.count("\n") < LINES else stages
        try:
            here = wrong(right, run(read_back, grid, args, check))
        except Exception as error:
            here = str(error)
        assert here is None, f"{entry.name}: {here}\n{text}"
    assert every, f"only the whole differs\n{before}"
    return stages


def ops(module: ModuleOp, name: str) -> list[Operation]:
    """The ops of a name."""
    return [op for op in module.walk() if op.name == name]
