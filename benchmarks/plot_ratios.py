"""Draws every case of samples that were measured beside a peer, so that the worst is seen as well as the mean.

    python -m benchmarks.plot_ratios "layers, 1 thread=shapes-1.json" "H200: products=h200.json" -o docs/img/ratios.svg

The files are what ``--json`` of `benchmarks.bars`, `benchmarks.shapes` and `benchmarks.attention` wrote. A line of dots
a file: to the right of 1, Tilewright is faster than the fastest of its peers. Needs matplotlib
(pip install 'tilewright[vis]').
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from statistics import geometric_mean
from typing import Any

COLORS = {"bf16": "C0", "f16": "C1", "f32": "C2", "i8": "C3", "f8e4m3": "C4"}
OTHER = "C7"


def cases(path: str) -> list[tuple[str, float]]:
    """Names and ratios to the fastest peer."""
    found: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    if isinstance(found, dict):  # of benchmarks.bars
        return [(row["case"], min(r["ratio"] for r in row["results"][1:])) for row in found["rows"]]
    return [(row["name"], next(iter(row["ratios"].values()))) for row in found if "ratios" in row]


def color(name: str) -> str:
    dtype = re.search(r"\b(bf16|f16|f32|i8|f8e4m3)\b", name)
    return COLORS[dtype[0]] if dtype else OTHER


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("samples", nargs="+", metavar="LABEL=FILE")
    parser.add_argument("-o", "--output", default="docs/img/ratios.svg")
    args = parser.parse_args()
    samples = [(label, cases(path)) for label, _, path in (s.rpartition("=") for s in args.samples)]
    figure, axis = pyplot.subplots(figsize=(8.8, 0.8 + 0.32 * len(samples)))
    for y, (label, found) in enumerate(samples):
        ratios = [ratio for _, ratio in found]
        # A little above and below the line, in turn, so that cases that are alike are seen beside one another.
        heights = [y + 0.11 * (i % 5 - 2) for i in range(len(found))]
        axis.scatter(ratios, heights, 9, [color(name) for name, _ in found], linewidths=0)
        mean = geometric_mean(ratios)
        axis.plot([mean, mean], [y - 0.36, y + 0.36], color="black", linewidth=1.2)
        print(
            f"{label}: {len(found)} cases, mean {mean:.3f}, worst {min(found, key=lambda c: c[1])}"
        )
    axis.axvline(1, color="0.6", linewidth=0.8, zorder=0)
    axis.set(xscale="log", xlabel="times the speed of the fastest peer; |: geometric mean")
    ticks = (0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 5, 10, 20)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_yticks(range(len(samples)), [label for label, _ in samples])
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
    used = {color(name) for _, found in samples for name, _ in found}
    named = COLORS | {"other": OTHER}
    handles = [
        axis.scatter([], [], 9, [shade], label=name)
        for name, shade in named.items()
        if shade in used
    ]
    axis.legend(handles=handles, frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(args.output)
    print(args.output)


if __name__ == "__main__":
    main()
