"""Every function of the language with every kind of wrong operand: a diagnostic with a place, or a program.

What is checked is that nothing else comes out: no exception of Python, no "the compiler failed here".
"""

from __future__ import annotations

import itertools
import os
import random

import numpy as np
import pytest

import tilewright as tw
from tests.lang.reference import written
from tilewright import knobs

PLACES = """
tw.where(x > 0, {}, x) | tw.where({}, x, x) | tw.maximum(x, {}) | tw.fma(x, {}, x) | x + {} | {} - x | tw.exp({})
tw.sum({}, 0) | tw.sum(x, {}) | tw.transpose({}) | tw.tile_mma(x, {}) | tw.tile_mma(x, x, {}) | tw.broadcast({}, 0, 4)
tw.broadcast(x, {}, 4) | tw.broadcast(x, 0, {}) | tw.reduction({}, x, 0) | tw.full((4, 4), {}, tw.f32)
tw.full({}, 1, tw.f32) | tw.full((4, 4), 1, {}) | tw.arange({}, 4, axis=0, shape=(4, 4)) | x.to({})
tw.arange(0, 4, axis={}, shape=(4, 4)) | tw.load_tile({}) | tw.init_tile({}, [0, 0], (4, 4))
tw.init_tile(X, {}, (4, 4)) | tw.init_tile(X, [0, {}], (4, 4)) | tw.init_tile(X, [0, 0], {})
tw.load_tile(t, padding={}) | tw.load_tile(t, l1_hint={}) | tw.init_tile(X, [0, 0], (4, 4), order={})
tw.init_tile(X, [0, 0], (4, 4), memory_space={}) | tw.update_tile_offset(t, {}) | tw.atomic_rmw({}, x, t)
tw.atomic_rmw("add", {}, t) | tw.store_tile({}, t) | tw.store_tile(x, {}) | tw.prefetch_tile(t, locality={})
tw.convert_layout(x, {}) | tw.alloc_slm({}, tw.f32) | tw.alloc_slm((4, 4), {}) | tw.load_gather(tw.init_tile(X, {}))
tw.load_gather(tw.init_tile(X, tw.arange(0, 4, axis=0, shape=(4, 4))), {}) | tw.wg_map({}, [1, 1]) | x if {} else x
tw.cdiv({}, 4) | tw.zeros((4, 4), tw.f32, wg_map={}) | -{} | ~{} | not {} | {} < x | x[{}] | min({}, 3) | abs({})
len({}) | int({}) | float({}) | x.shape[{}] | x ** {} | x // {} | x % {} | x << {} | x & {} | tw.program_id({})
tw.device_assert({}) | tw.static_assert({}) | tw.device_print({}) | range({}) | ({})(x) | ({}).shape
tw.static_range({})
"""
OPERANDS = (
    "None", "'s'", "X", "t", "[1, 2]", "(1, 2)", "tw.f32", "tw", "1.5", "-1", "10**40", "10**400", "1e39", "True", "x",
    "float('nan')", "(x, x)", "tw.wg_map([1, 1], [4, 4])", "range(3)", "tw.program_id(0)", "tw.zeros", "...", "b''",
)  # fmt: skip
ALL = [
    place.strip().replace("{}", operand)
    for place, operand in itertools.product(PLACES.strip().replace("\n", "|").split("|"), OPERANDS)
]
HEAD = """t = tw.init_tile(X, [0, 0], (4, 4))
x = tw.load_tile(t)
y = """
COUNT = min(len(ALL), int(os.environ.get("TILEWRIGHT_TEST_MUTATIONS", "400")))
"""How many are tried, chosen at random; all of them take ten seconds."""


@pytest.mark.filterwarnings("ignore")
def test_wrong_operands_are_diagnosed() -> None:
    seed = random.randrange(1 << 31)
    print(f"seed {seed}")
    array = np.ones((8, 8), np.float32)
    refused, wrong = 0, []
    with knobs.override(cache=False):
        for expression in random.Random(seed).sample(ALL, COUNT):
            kernel = written("X", HEAD + expression)
            try:
                kernel.compile(array, target="reference")
            except tw.TilewrightError as error:
                refused += 1
                if "compiler failed" in error.message or error.location is None:
                    wrong.append(f"{expression}: {error.message}")
            except Exception as error:
                wrong.append(f"{expression}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
    assert refused > COUNT // 2
