"""One seed for everything random in a run of the tests: TILEWRIGHT_TEST_SEED, else a fresh one.

A run prints its seed, and repeats with it. `.ci/run` takes the seed from the files that it tests: fresh inputs for
every change, the same for every run of one change.
"""

from __future__ import annotations

import os
import random
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import HealthCheck, Phase, settings

SEED = int(
    os.environ.setdefault("TILEWRIGHT_TEST_SEED", str(random.SystemRandom().randrange(1 << 31)))
)
"""The same in every worker: they inherit it."""

_drawn: Counter[str] = Counter()


def fresh_seed() -> int:
    """A seed in [0, 2^31) that depends on SEED, on the running test and on how many that test has asked for."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    number = _drawn[test]
    _drawn[test] += 1
    print(f"TILEWRIGHT_TEST_SEED={SEED}")
    key = [SEED, zlib.crc32(test.encode()), number]
    return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)


def drawn(cases: Sequence[tuple[str, Sequence[str]]], count: int) -> set[str]:
    """The names of `count` cases; those first that have a value of a parameter that no case before them has.

    A case is its name and the values of its parameters, in order.
    """
    order = sorted(cases, key=lambda case: zlib.crc32(f"{SEED} {case[0]}".encode()))
    seen: set[tuple[int, str]] = set()
    first: list[str] = []
    rest: list[str] = []
    for name, values in order:
        new = set(enumerate(values)) - seen
        seen |= new
        (first if new else rest).append(name)
    return {*[*first, *rest][:count]}


def fresh_rng() -> np.random.Generator:
    """A stream of random numbers that no other call in this run has."""
    return np.random.default_rng(fresh_seed())


def examples(count: int) -> settings:
    """How a test draws `count` random programs, or one: however long each takes and however large it is."""
    return settings(
        max_examples=max(1, count),
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    )
