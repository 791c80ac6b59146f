"""Random kernels written in Python: every target computes what their text does as plain Python."""

from __future__ import annotations

import linecache
import re
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

import tilewright as tw
from tests.devices import TARGETS
from tests.draws import examples
from tests.fuzz import eager
from tests.fuzz.expressions import ARRAYS, GRID
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
        self.text = source.build()
        note(self.text)
        self.arrays: list[np.ndarray[Any, Any]] = []
        for name, shape in ARRAYS.values():
            low, high = dtypes.from_name(name).integers
            if rng.integers(2):
                low, high = max(low, -9), 9
            self.arrays.append(rng.integers(low, high, shape, eager.NAMES[name], endpoint=True))
        self.arrays += [np.zeros(7 * 64, np.int32), np.zeros(32, np.int32)]
        self.arrays.append(rng.integers(-5, 5, (*GRID, 6, 10), np.int32))
        for _, made in source.outs:
            tile = made.shape or (1, 1)
            shape = tuple(g * n for g, n in zip(GRID, tile, strict=True))
            self.arrays.append(np.full(shape, 77, eager.NAMES.get(made.dtype, np.int64)))
        self.numbers = (int(rng.integers(9)), int(rng.integers(-4, 9)))
        self.numbers += (np.uint8(rng.integers(9)), bool(rng.integers(2)))

    def kernel(self) -> Any:
        file = f"<drawn {hash(self.text)}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(True), file)
        names: dict[str, Any] = {"tw": tw}
        exec(compile(self.text, file, "exec"), names)
        return names["kernel"]

    def expected(self) -> list[np.ndarray[Any, Any]]:
        arrays = [a.copy() for a in self.arrays]
        for ids in np.ndindex(*GRID):
            names: dict[str, Any] = {
                "range": eager.numbers,
                "tw": eager.Language((*ids, 0), (*GRID, 1)),
            }
            exec(self.text.replace("@tw.kernel", ""), names)
            numbers = [
                eager.Val(np.array(x, t))
                for x, t in zip(self.numbers, ("i8", "i4", "u1", "?"), strict=True)
            ]
            names["kernel"](*map(eager.Array, arrays), *numbers)
        return arrays

    def check(self, target: str) -> None:
        """Launch on a target, and compare every element."""
        kernel, arrays = self.kernel(), [a.copy() for a in self.arrays]
        try:
            kernel.options(target=target)[GRID](*arrays, *self.numbers)
        except tw.CompileError as error:
            assert REFUSED.search(str(error)), str(error)
            return
        for found, right in zip(arrays, self.expected(), strict=True):
            np.testing.assert_array_equal(found, right)


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
