"""Checking mode: what is undefined is found, and named with its line.

    python examples/07_find_a_race.py

Every program of this kernel adds to the same element without an atomic. It may well give the right
sum today. `check=True` runs it in the reference executor, which watches every access.
"""

import numpy as np

import tilewright as tw
from tilewright import reference


@tw.kernel
def racy_sum(X, S):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * 16, 0], (16, 64)))
    total = tw.init_tile(S, [0, 0], (1, 1))
    tw.store_tile(tw.load_tile(total) + tw.sum(tw.sum(x, 1), 0), total)


@tw.kernel
def atomic_sum(X, S):
    x = tw.load_tile(tw.init_tile(X, [tw.program_id(0) * 16, 0], (16, 64)))
    tw.atomic_rmw("addf", tw.sum(tw.sum(x, 1), 0), tw.init_tile(S, [0, 0], (1, 1)))


def findings(kernel, x, s):
    module = kernel.compile(x, s, target="reference").executable.module
    return reference.run(module, 4, [x, s], check=True).errors


def main():
    x, s = np.ones((64, 64), np.float32), np.zeros((1, 1), np.float32)
    races = findings(racy_sum, x, s)
    print(races[0])
    assert races and "racy_sum" not in str(findings(atomic_sum, x, s))

    s[:] = 0
    atomic_sum[4](x, s)
    print(f"with an atomic: nothing found, and the sum is {s[0, 0]:.0f}")
    assert s[0, 0] == 64 * 64 and not findings(atomic_sum, x, s)


if __name__ == "__main__":
    main()
