"""Hashes of the code that many programs become on every target: shows that a change of passes changed no code.

    python -m tests.emitted before.json          # in the tree as it was, two minutes on two cores
    python -m tests.emitted after.json
    python -m tests.emitted --diff before.json after.json

Programs: the kernels of `tilewright check`'s test, the MLIR files of the repository, and random programs of one seed.
A refusal counts by its message. Text is the last that a target makes itself (LLVM IR; SPIR-V for Xe).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path
from typing import Any

os.environ["TILEWRIGHT_CACHE"] = "0"
ROOT = Path(__file__).parents[1]
TARGETS = ("cpu", "emu", "sm_80", "sm_90a", "xe-pvc", "xe-dg2")
RANDOM = 48
SECONDS = 40
"""Of one program on one target; a longer one counts as such."""
TOO_LONG = "too long"


def programs() -> Iterator[tuple[str, str, int]]:
    """Kind, name and number of everything that is compiled."""
    from tests.tools.test_check_kernels import KERNELS

    for file, kernels in KERNELS.items():
        yield from (("kernel", f"{file}:{name}", 0) for name in kernels)
    for path in sorted(ROOT.glob("*/**/*.mlir")):
        if ".venv" not in path.parts:
            yield "text", str(path.relative_to(ROOT)), 0
    yield from (("random", "", n) for n in range(RANDOM))


@cache
def random_programs(count: int) -> list[Any]:
    """The first programs that the strategies of tests/fuzz draw from one seed."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from tests.fuzz.programs import products
    from tests.fuzz.programs import programs as any_program

    found: list[Any] = []
    for strategy in (any_program(moves=False), products(moves=False)):
        quiet = settings(
            max_examples=count,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            deadline=None,
        )
        drawn: list[Any] = []

        @seed(7)
        @quiet
        @given(program=strategy)
        def keep(program: Any) -> None:
            drawn.append(program)  # noqa: B023

        keep()
        found += drawn[: count // 2]
    return found


def compiled(kind: str, name: str, n: int, target: str) -> Callable[[], Any]:
    from tests.tools.test_check_kernels import KERNELS
    from tilewright.targets.base import CompileOptions, get_target
    from tilewright.tools.compile import compile_source
    from tilewright.tools.sources import parse_source

    if kind == "random":
        from tests.fuzz.test_programs import Case

        case = Case(random_programs(RANDOM)[n], 0)
        return lambda: get_target(target).build(case.module, CompileOptions(target=target))
    arguments, settings = [], []
    if kind == "kernel":
        file, function = name.split(":")
        arguments, settings = KERNELS[file][function]
    source = parse_source(str(ROOT / name))
    return lambda: compile_source(source, arguments, settings, {"target": target})


def hashed(case: tuple[str, str, int, str]) -> tuple[str, str]:
    """Name and hash of the text, or the refusal."""
    from tilewright.diagnostics import TilewrightError
    from tilewright.tools.compile import stages_of

    kind, name, n, target = case
    label = f"{kind} {name or n} {target}"

    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with redirect_stderr(io.StringIO()):
            executable = compiled(kind, name, n, target)()
        stages = stages_of(executable)
        last = next(s for s in ("spirv-emu", "llvm-emu", "llvm", "mach", "xetile") if s in stages)
        text = stages[last]
        data = text if isinstance(text, bytes) else text.encode()
        return label, hashlib.sha256(data).hexdigest()[:16]
    except TilewrightError as error:
        return label, f"refused: {error.message}".replace(f"{ROOT}/", "")
    except TimeoutError:
        return label, TOO_LONG
    except Exception as error:
        return label, f"{type(error).__name__}: {str(error)[:100]}"
    finally:
        signal.alarm(0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--diff", action="store_true", help="compare two files")
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if args.diff:
        before, after = (json.loads(f.read_text()) for f in args.files)
        changed = [
            k
            for k in before
            if k in after and before[k] != after[k] and TOO_LONG not in (before[k], after[k])
        ]
        for key in changed:
            print(f"{key}: {before[key]} -> {after[key]}")
        print(f"{len(changed)} of {len(before.keys() & after.keys())} differ")
        return bool(changed)
    start = time.perf_counter()
    cases = [(*p, target) for p in programs() for target in args.targets]
    with ProcessPoolExecutor(args.workers) as pool:
        found = dict(pool.map(hashed, cases, chunksize=4))
    args.files[0].write_text(json.dumps(found, indent=1))
    print(f"{len(found)} programs and targets in {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
