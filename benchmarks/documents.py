"""The programs that the RFCs print, at 512 and at the printed 4096, on every target: what becomes of each.

    python -m benchmarks.documents [--sizes 512 4096] [--targets reference cpu sm_90a xe-pvc xe-bmg xe-dg2]

The reference executor runs the small size only, unless `--slow` (minutes each). `cpu` compiles, runs and gives the
relative Frobenius error against float64; the others compile, `sm_90a` to PTX, Xe to SPIR-V: in how many passes, and the
bytes that the offline compiler spills, where it is installed (`as pvc`: it does not know bmg). Prints the table of
docs/rfc.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.diagnostics import TilewrightError
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text
from tilewright.tools.console import out

SIZES = (512, 4096)
TARGETS = ("reference", "cpu", "sm_90a", "xe-pvc", "xe-bmg", "xe-dg2")
CLOSE = 1e-5
RUN = Path(__file__).parents[1] / "examples" / "rfc" / "run.py"


def programs() -> Any:
    """examples/rfc/run.py, which has the programs' arrays and loads them at any size."""
    spec = importlib.util.spec_from_file_location("rfc_run", RUN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def state(rfc: Any, name: str, size: int, target: str, seed: int = 0) -> str:
    """What becomes of a program, in a few words."""
    try:
        if target in ("reference", "cpu"):
            error = rfc.error_of(name, size, seed, target=target)
            return f"{'right' if error < CLOSE else 'WRONG'}, {error:.0e}"
        built: Any = build_text(rfc.load(name, size), CompileOptions(target=target))
    except TilewrightError as error:
        return f"refused: {error.message}"
    passes = (re.search(r"in (\d+) passes", remark) for remark in built.remarks)
    words = [f"{found[1]} passes" for found in passes if found is not None]
    if target.startswith("xe"):
        words.append(spilled(built))
    return ", ".join(["compiles", *words])


def spilled(built: Any) -> str:
    """The bytes that the offline compiler keeps in memory for want of registers, and as what it compiled where it does
    not know the machine; the registers counted where there is no such compiler, or it does not finish."""
    try:
        binary = built.isa()
    except TilewrightError:
        return f"{built.meta['pressure']} of {built.meta['registers']} registers, spills unknown"
    known = built.meta["machine"] == f"xe-{binary.device}"
    return f"{binary.spilled} B spilled" + ("" if known else f" as {binary.device}")


def table(sizes: Sequence[int], targets: Sequence[str], slow: bool = False) -> str:
    """A row for each program and size."""
    rfc = programs()
    rows = [f"| program | size | {' | '.join(targets)} |", f"|---|---|{'---|' * len(targets)}"]
    for name in rfc.PROGRAMS:
        for size in sizes:
            left = {"reference"} if size > min(SIZES) and not slow else set[str]()
            cells = ["" if t in left else state(rfc, name, size, t) for t in targets]
            rows.append(f"| `{name}` | {size} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="multiples of 512")
    parser.add_argument("--targets", nargs="+", default=TARGETS, choices=TARGETS)
    parser.add_argument("--slow", action="store_true", help="large sizes on the reference, too")
    options = parser.parse_args()
    out().print(table(options.sizes, options.targets, options.slow), markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
