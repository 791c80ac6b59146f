"""Plots that cost grows linearly: compile time with ops and pieces, run time with workgroups.

    python -m benchmarks.plot_linear --only ops workgroups -o docs/img/linear.svg
    python -m benchmarks.plot_linear --only lowering -o docs/img/lowering.svg

Needs matplotlib (pip install 'tilewright[vis]').
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.bench import run_suite
from benchmarks.suites import Settings

SHOWN = (
    ("ops", "elementwise ops in the kernel", "compile time, ms", 1e3),
    ("lowering", "dpas of a subgroup's loop, xe-pvc", "lowering to lanes, ms", 1e3),
    ("workgroups", "workgroups, 64 x 64 elements each", "run time, us", 1e6),
)


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--output", default="docs/img/linear.svg")
    names = [name for name, *_ in SHOWN]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SUITE")
    parser.add_argument(
        "--cpu", action="store_true", help="CPU time: on a machine that others share"
    )
    args = parser.parse_args()
    clock = time.process_time if args.cpu else time.perf_counter
    shown = [s for s in SHOWN if s[0] in args.only]
    figure, axes = pyplot.subplots(1, len(shown), figsize=(4.4 * len(shown), 3.6), squeeze=False)
    for axis, (name, x_label, y_label, unit) in zip(axes[0], shown, strict=True):
        rows = run_suite(name, Settings(rounds=args.rounds, clock=clock))
        x = np.array([row.case.facts["size"] for row in rows], float)
        y = np.array([row.results[0].seconds for row in rows]) * unit
        each, fixed = np.polyfit(x, y, 1, w=1 / y)
        axis.plot(x, y, "o", label="measured")
        axis.plot(x, each * x + fixed, "-", label=f"{fixed:.3g} + {each:.3g} x")
        axis.set(xlabel=x_label, ylabel=y_label, xscale="log", yscale="log")
        axis.legend(frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
        for count, value in zip(x, y, strict=True):
            print(f"{name} {count:.0f}: {value:.1f} (line: {each * count + fixed:.1f})")
    figure.tight_layout()
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.output)
    print(args.output)


if __name__ == "__main__":
    main()
