"""Costs that must grow linearly: compile time with the program, run time with the grid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.suites import Settings
from tilewright import knobs
from tilewright.runtime.launch import Launcher
from tilewright.runtime.source import define
from tilewright.tools.measure import Case, Contender, MeasuredRow, measure


def ops(settings: Settings) -> Iterator[MeasuredRow]:
    """Compile time of straight-line kernels with a growing number of elementwise ops."""
    spec = tw.spec((64, 64), tw.f32)
    for count in settings.sizes or (25, 50, 100, 200, 400, 800):
        kernel = chain(count)

        def run(kernel: Any = kernel) -> None:
            with knobs.override(cache=False):
                # A launcher of its own has compiled nothing yet.
                Launcher(kernel, {"target": settings.target}).compile((spec, spec), {})

        case = Case(
            f"compile {count} ops", [Contender("tilewright", run)], count, "ms", 1, {"size": count}
        )
        yield measure(case, rounds=max(3, settings.rounds // 3), clock=settings.clock)


def workgroups(settings: Settings) -> Iterator[MeasuredRow]:
    """Run time of equal work per workgroup on growing grids; the data stays in the cache."""
    x = np.random.default_rng().standard_normal((TILES * 64, 64), np.float32)
    sums = x.reshape(TILES, 64, 64).sum(1, dtype=np.float64)
    for count in settings.sizes or (1, 4, 16, 64, 256, 1024, 4096):
        y = np.zeros((count, 64), np.float32)
        for threads in settings.threads:
            launch = sum_tile.options(target=settings.target, num_threads=threads)[count]
            run = Contender("tilewright", lambda launch=launch, y=y: launch(x, y))
            launch(x, y)
            np.testing.assert_allclose(y, sums[np.arange(count) % TILES], rtol=1e-3, atol=1e-3)
            name = f"{count} workgroups"
            case = Case(name, [run], count, "us", threads, {"size": count})
            yield measure(case, rounds=settings.rounds, clock=settings.clock)


TILES = 8
"""Tiles of the input: 128 KiB together."""


@tw.kernel
def sum_tile(X: Any, Y: Any):
    """Row i of Y is the sum of the rows of tile i (modulo their number) of X."""
    i = tw.program_id(0)
    x = tw.load_tile(tw.init_tile(X, [i % tw.cdiv(X.shape[0], 64) * 64, 0], (64, 64)))
    tw.store_tile(tw.sum(x, 0), tw.init_tile(Y, [i, 0], (1, 64)))


def chain(count: int) -> Any:
    """A kernel of ``count`` ops in a row that no compiler can fold: multiply, add, take turns."""
    lines = [
        "@tw.kernel",
        f"def chain_{count}(X, Y):",
        "    x = tw.load_tile(tw.init_tile(X, [0, 0], (16, 16)))",
        *(f"    x = x {'*+'[i % 2]} {1 + i / 1024}" for i in range(count)),
        "    tw.store_tile(x, tw.init_tile(Y, [0, 0], (16, 16)))",
    ]
    text = "\n".join(lines) + "\n"
    scope: dict[str, Any] = {"tw": tw, "__name__": __name__}
    return define(f"chain_{count}", text, f"<chain of {count} ops>", scope)
