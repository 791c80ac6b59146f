"""Differential fuzzing: random programs on the reference executor, plain numpy and every target.

A failure prints the smallest failing program as MLIR text, its arrays, and the seed of its data;
`pytest --hypothesis-seed=N` draws the same programs again. `TILEWRIGHT_FUZZ_EXAMPLES` says how many
programs are drawn, in parts that `pytest -n` spreads over processes.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from tests.devices import TARGETS, arguments
from tests.draws import examples
from tests.fuzz.build import build
from tests.fuzz.moves import MOVES
from tests.fuzz.plain import Outcome, copies, evaluate, make_array, make_arrays
from tests.fuzz.programs import FLOATS, Program, products, programs
from tilewright import reference
from tilewright.dialects.movement import ELEMENTS
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.expand_ops import expand_ops
from tilewright.runtime.arrays import describe
from tilewright.runtime.key import ArrayType, signature_of
from tilewright.targets.base import CompileOptions, get_target

EXAMPLES = int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "40"))
PARTS = max(1, EXAMPLES // 36)
EPSILON = {"f32": 2.0**-20, "f16": 2.0**-9, "bf16": 2.0**-6}
"""Room for the order of sums, in f32, and for one rounding that went the other way."""

fuzz = examples(-(-EXAMPLES // PARTS))


class Case:
    """A program with data: inputs, poisoned outputs, IR, and what must come out."""

    def __init__(self, program: Program, seed: int):
        self.program = program
        rng = np.random.default_rng(seed)
        self.inputs = make_arrays(program.arrays, rng)
        self.outputs = [make_array(spec, rng) for spec in program.outputs]
        for output in self.outputs:
            output.view(np.uint8)[...] = 0xFF
        self.arrays = [*self.inputs, *self.outputs]
        types = signature_of([describe(a) for a in self.arrays])
        self.signature = [t for t in types if isinstance(t, ArrayType)]
        self.module = build(program, self.signature)
        expand_ops(self.module)
        self.seed = seed

    def describe(self) -> str:
        """Everything that a failure should show."""
        lines = [f"data of seed {self.seed}, grid {self.program.grid}, arguments:"]
        for array in self.arrays:
            lines.append(f"  {array.dtype}{list(array.shape)}, strides {array.strides}")
        return "\n".join([*lines, print_module(self.module)])

    def expected(self) -> Outcome:
        return evaluate(self.program, self.inputs, self.outputs)

    def launch(self, target: str, threads: int | None = None) -> list[np.ndarray[Any, Any]]:
        """The arguments after a launch on a target."""
        arrays = copies(self.arrays)
        args = [describe(a) for a in arrays]
        options = CompileOptions(target=target, num_threads=threads)
        executable = get_target(target).build(self.module.clone(), options)
        with arguments(target, args) as there:
            executable.launch((*self.program.grid, 1), there)
        return arrays

    def compare(self, right: Outcome, found: list[np.ndarray[Any, Any]], who: str) -> None:
        low = [EPSILON[s.result.dtype] for s in self.program.steps if s.result.dtype in FLOATS]
        low += [EPSILON[a.dtype] for a in self.program.arrays if a.dtype in FLOATS]
        inputs, written = len(self.inputs), self.program.written
        for position, (expected, actual) in enumerate(zip(right.arrays, found, strict=True)):
            label = f"{who}: argument {position}"
            if position < inputs and position not in written:
                before, after = (x.copy().view(np.uint8) for x in (expected, actual))
                assert np.array_equal(before, after), f"{label}: an input changed"
                continue
            if expected.dtype.kind in "iu":
                assert np.array_equal(expected, actual), label
                continue
            # What was masked off is still poison.
            kept = np.isnan(expected) & np.isnan(actual)
            a, b = (np.where(kept, 0, x.astype(np.float64)) for x in (expected, actual))
            error = float(np.linalg.norm(a - b))
            room = max(low) * (float(np.linalg.norm(a)) + right.scale * np.sqrt(a.size))
            assert error <= room, f"{label}: error {error:.3g}, room {room:.3g}"


def drawn(program: Program, seed: int) -> tuple[Case, Outcome]:
    """A case whose numbers stay finite, noted for the report of a failure."""
    case = Case(program, seed)
    note(case.describe())
    expected = case.expected()
    assume(expected.finite)
    return case, expected


@fuzz
@given(program=programs(), seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS)
def test_targets_agree_with_plain_numpy(target: str, part: int, program: Program, seed: int):
    case, expected = drawn(program, seed)
    case.compare(expected, case.launch(target), target)


@examples(-(-EXAMPLES // PARTS // 4))
@given(program=products(), seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS)
def test_products_of_whole_tiles(target: str, part: int, program: Program, seed: int):
    case, expected = drawn(program, seed)
    case.compare(expected, case.launch(target), target)


@examples(-(-EXAMPLES // PARTS // 8))
@given(program=st.one_of(programs(), products()), seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("part", range(PARTS))
def test_the_number_of_threads_changes_no_bit(part: int, program: Program, seed: int):
    case, _ = drawn(program, seed)
    one, four = ([x.tobytes() for x in case.launch("cpu", threads)] for threads in (1, 4))
    assert one == four


@fuzz
@given(program=programs(), seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("part", range(PARTS))
def test_programs_survive_text_and_checking_mode(part: int, program: Program, seed: int):
    """The printed text is the same program, and checking mode finds nothing undefined in it."""
    case, expected = drawn(program, seed)
    module = parse_module(print_module(case.module))
    assert case.module.is_structurally_equivalent(module)
    arrays = copies(case.arrays)
    report = reference.run(module, (*program.grid, 1), arrays, check=True)
    assert report.ok, str(report)
    case.compare(expected, arrays, "checking mode")


def test_programs_draw_every_op_that_rearranges():
    drawn = {*MOVES, "xetile.transpose", "xetile.broadcast", "xetile.convert_layout"}
    assert {*ELEMENTS, "vector.bitcast"} <= drawn
