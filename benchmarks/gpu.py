"""The performance bars of the CUDA target on one GPU, measured here and now, beside what was asked.

    python -m benchmarks.gpu [--rounds 15] [--proofs DIR] [--only gpu-gemm gpu-launch] [--json gpu.json]

Runs the GPU suites of ``tilewright bench`` and prints one line per case, then the bars: geometric
means of ratios, or times, and whether they are met. It never fails: a number is a number.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import run_suite
from benchmarks.suites import SUITES, Settings, gpu
from tilewright.tools.measure import MeasuredRow, environment

NAMES = [name for name in SUITES if name.startswith("gpu-")]


@dataclass(frozen=True)
class Bar:
    """What is asked of the cases of a suite: a mean (or the least) of ratios, or a time."""

    suite: str
    what: str
    cases: Callable[[str], bool]
    peer: str
    """Contender to compare with; "" for a time in the case's unit, to be at most `bound`."""
    bound: float
    least: bool = False
    """The smallest ratio instead of the geometric mean."""


def _starts(*heads: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(heads)


RAGGED = tuple(f"bf16 NT {m}x{n}x{k}" for m, n, k in gpu.RAGGED[:-1])
BARS = (
    Bar("gpu-gemm", "bf16 NT, each, to the proof", _starts("bf16 NT"), "proof", 0.99, True),
    Bar("gpu-gemm", "bf16 NT", _starts("bf16 NT"), "cuBLAS", 1.0),
    Bar("gpu-gemm", "f16 and bf16, each", _starts("bf16", "f16"), "cuBLAS", 0.98, True),
    Bar("gpu-gemm", "f16 and bf16", _starts("bf16", "f16"), "cuBLAS", 1.0),
    Bar("gpu-gemm", "tf32, i8, f8e4m3 NT, each", _starts("tf32 NT", "i8 NT", "f8e4m3 NT"), "cuBLAS", 0.95, True),
    Bar("gpu-ragged", "ragged and skinny", _starts(*RAGGED), "cuBLAS", 0.95),
    Bar("gpu-ragged", "ragged and skinny, each", _starts(*RAGGED), "cuBLAS", 0.8, True),
    Bar("gpu-ragged", "rows that TMA cannot address", _starts("bf16 NT 4096x4096x1015"), "cuBLAS", 0.6),
    Bar("gpu-epilogues", "fused, each", _starts(""), "torch.compile", 1.0, True),
    Bar("gpu-attention", "d 128 full, each", lambda n: "x128" in n and "causal" not in n, "cuDNN", 1.03, True),
    Bar("gpu-attention", "d 64 and causal", lambda n: "x64" in n or "causal" in n, "cuDNN", 0.95),
    Bar("gpu-back-to-back", "(65536, 64, 4096, 64), (16384, 128, 4096, 128), each",
        lambda n: "4096" in n, "two cuBLAS calls", 1.5, True),
    Bar("gpu-back-to-back", "(65536, 64, 64, 64)", lambda n: "4096" not in n, "two cuBLAS calls", 1.3),
    Bar("gpu-launch", "us per launch", _starts("launch"), "", 5.0),
    Bar("gpu-compile", "ms cold", _starts("first launch"), "", 600.0),
    Bar("gpu-compile", "ms from disk", _starts("the same"), "", 50.0),
)  # fmt: skip


def value(bar: Bar, rows: Sequence[MeasuredRow]) -> float | None:
    """The bar's number; None when nothing that it concerns was measured."""
    found: list[float] = []
    for row in rows:
        if not bar.cases(row.case.name):
            continue
        if math.isnan(row.results[0].seconds):
            found.append(math.nan)
            continue
        if not bar.peer:
            found.append(row.results[0].rate)
        found += [r.ratio for r in row.results if r.name == bar.peer]
    if not found:
        return None
    if any(map(math.isnan, found)):
        return math.nan
    if bar.least or not bar.peer:
        return min(found)
    return math.exp(sum(map(math.log, found)) / len(found))


def line(row: MeasuredRow) -> str:
    """One case: every contender's median, and how many times as fast we are."""
    if math.isnan(row.results[0].seconds):
        return row.case.name
    parts = [
        f"{r.name} {r.rate:.4g}" + (f" ({r.ratio:.3f}x)" if i else "")
        for i, r in enumerate(row.results)
    ]
    return f"{row.case.name}: {', '.join(parts)} {row.case.unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    with_bars = [name for name in NAMES if any(bar.suite == name for bar in BARS)]
    parser.add_argument("--only", nargs="+", choices=NAMES, default=with_bars)
    parser.add_argument("--sizes", nargs="+", type=int, default=[])
    parser.add_argument("--dtype", nargs="+", default=[])
    parser.add_argument("--proofs", type=Path)
    parser.add_argument("--json")
    args = parser.parse_args()
    gpu.PROOFS = args.proofs
    settings = Settings(tuple(args.sizes), tuple(args.dtype), target="cuda", rounds=args.rounds)
    rows: dict[str, Sequence[MeasuredRow]] = {}
    for name in args.only:
        print(f"{name}: {SUITES[name][1]}", flush=True)
        rows[name] = run_suite(name, settings)
        for row in rows[name]:
            print(f"  {line(row)}", flush=True)
    for bar in BARS:
        number = value(bar, rows.get(bar.suite, ()))
        if number is None:
            continue
        met = number >= bar.bound if bar.peer else number <= bar.bound
        sign = ">=" if bar.peer else "<="
        verdict = "met" if met else "NOT MET"
        print(
            f"{bar.suite}: {bar.what}: {number:.3f} {bar.peer} (bar {sign} {bar.bound}) {verdict}"
        )
    if args.json:
        content = {
            "environment": environment(),
            "rows": {name: [r.as_json() for r in found] for name, found in rows.items()},
        }
        Path(args.json).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
