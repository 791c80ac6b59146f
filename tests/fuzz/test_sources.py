"""Random kernels written in Python: every target computes what their text does as plain Python."""

from __future__ import annotations

import linecache
import re
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, reject
from hypothesis import strategies as st

import tilewright as tw
from tests.devices import TARGETS
from tests.draws import examples
from tests.fuzz import eager
from tests.fuzz.expressions import ARRAYS, FLOATS, GRID
from tests.fuzz.sources import Source
from tests.fuzz.test_programs import EXAMPLES, PARTS
from tilewright import dtypes
from tilewright.dialects.text import parse_module

REFUSED = re.compile("is no value of")
"""Numbers of compile time that a draw gave a type which lacks them."""


class Drawn:
    """A kernel, its arguments, and what they must be afterwards."""

    def __init__(self, seed: int):
        rng, source = np.random.default_rng(seed), Source(Random(seed))
        source.subgroups = int(rng.integers(3)) if rng.integers(3) == 0 else 0
        self.text, self.subgroups = source.build(), source.subgroups
        note(self.text)
        self.arrays: list[np.ndarray[Any, Any]] = []
        for name, shape in ARRAYS.values():
            if name in FLOATS:
                self.arrays.append(rng.uniform(-3, 3, shape).astype(eager.NAMES[name]))
                continue
            low, high = dtypes.from_name(name).integers
            if rng.integers(2):
                low, high = max(low, -9), 9
            self.arrays.append(rng.integers(low, high, shape, eager.NAMES[name], endpoint=True))
        rows = GRID[0] * max(1, self.subgroups)
        for t in (np.int32, np.float32):
            self.arrays += [np.zeros(rows * 3 * 64 + 64, t), np.zeros(32, t)]
            self.arrays.append(rng.integers(-5, 5, (rows, GRID[1], 6, 10)).astype(t))
        for _, made in source.outs:
            tile = made.shape or (1, 1)
            shape = (rows * tile[0], GRID[1] * tile[1])
            self.arrays.append(np.full(shape, 77, eager.NAMES.get(made.dtype, np.int64)))
        self.numbers = (int(rng.integers(9)), int(rng.integers(-4, 9)))
        self.numbers += (
            np.uint8(rng.integers(9)),
            bool(rng.integers(2)),
            float(rng.integers(-9, 9)) / 4,
        )

    def kernel(self) -> Any:
        file = f"<drawn {hash(self.text)}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        names: dict[str, Any] = {"tw": tw}
        exec(compile(self.text, file, "exec"), names)
        return names["kernel"]

    def expected(self) -> list[eager.Array]:
        arrays = [eager.Array(a.copy()) for a in self.arrays]
        for *ids, subgroup in np.ndindex(*GRID, max(1, self.subgroups)):
            names: dict[str, Any] = {
                "range": eager.numbers,
                "min": eager.extreme(np.minimum),
                "max": eager.extreme(np.maximum),
                "tw": eager.Language((*ids, 0), (*GRID, 1), subgroup),
            }
            exec(re.sub("@tw.kernel.*", "", self.text), names)
            kinds = (np.int64, np.int32, np.uint8, np.bool_, np.float32)
            numbers = [
                eager.constant(x, np.dtype(t)) for x, t in zip(self.numbers, kinds, strict=True)
            ]
            names["kernel"](*arrays, *numbers)
        return arrays

    def check(self, target: str) -> None:
        """Launch on a target, and compare every element as closely as its error allows."""
        kernel, arrays = self.kernel(), [a.copy() for a in self.arrays]
        try:
            expected = self.expected()
        except eager.Unsure:
            reject()
        try:
            kernel.options(target=target)[GRID](*arrays, *self.numbers)
        except tw.CompileError as error:
            assert REFUSED.search(str(error)), str(error)
            return
        for found, right in zip(arrays, expected, strict=True):
            known = np.isfinite(right.e)
            if right.real is None:
                np.testing.assert_array_equal(found[known], right.a[known])
                continue
            with np.errstate(all="ignore"):
                far = known & ~(np.abs(found.astype(np.float64) - right.a) <= right.e)
            assert not far.any(), (found[far], right.a[far], right.e[far])


@examples(-(-EXAMPLES // PARTS // 4))
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.filterwarnings("ignore:kernel kernel stores nothing")
def test_targets_compute_what_plain_python_does(target: str, part: int, seed: int):
    Drawn(seed).check(target)


@examples(-(-EXAMPLES // PARTS // 4))
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.filterwarnings("ignore:kernel kernel stores nothing")
def test_the_text_of_kernels_is_read(part: int, seed: int):
    drawn = Drawn(seed)
    try:
        text = (
            drawn.kernel().compile(*drawn.arrays, *drawn.numbers, target="reference").ir["xetile"]
        )
    except tw.CompileError as error:
        assert REFUSED.search(str(error)), str(error)
        return
    parse_module(text).verify()
