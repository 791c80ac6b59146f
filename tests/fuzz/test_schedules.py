"""Random programs through the cuda target's passes, without a GPU.

Products for sm_90a run on whole tiles, with their roles, rings and queues, under the executor's three
schedules: work that nobody waited for is NaN, or a slot that is filled too soon overwrites what is still
read. Their last stage, and that of small programs for sm_80, run thread by thread in checking mode.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tests.draws import examples
from tests.fuzz.plain import Outcome, copies
from tests.fuzz.programs import Program, products, programs
from tests.fuzz.test_found import FOUND
from tests.fuzz.test_programs import Case, drawn
from tests.targets.cuda.threads import ThreadsTarget, run_threads
from tilewright import uarch
from tilewright.reference import run
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.pipeline import run_pipeline

EXAMPLES = int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "30")) // 10
SCHEDULES = ("late", "early", "random")


@examples(EXAMPLES)
@given(program=products(), seed=st.integers(0, 2**32 - 1))
def test_products_under_every_schedule(program: Program, seed: int) -> None:
    check_schedules(*drawn(program, seed), seed)


@pytest.mark.parametrize("name", [n for n in FOUND if "product" in n])
def test_products_that_once_failed(name: str) -> None:
    case = Case(FOUND[name], seed=7)
    check_schedules(case, case.expected(), 7)


def check_schedules(case: Case, expected: Outcome, seed: int) -> None:
    """The program as multi-buffers are formed and as roles are, and as threads, against plain numpy."""
    program = case.program

    def observe(name: str, module: ModuleOp) -> None:
        if name not in ("multi-buffering", "warp-specialization"):
            return
        for schedule in SCHEDULES:
            arrays = copies(case.arrays)
            run(module, (*program.grid, 1), arrays, schedule=schedule, seed=seed)  # pyright: ignore
            case.compare(expected, arrays, f"after {name}, {schedule}")

    options = CompileOptions(target="cuda", machine="sm_90a")
    machine = uarch.machine("sm_90a")
    lowered = run_pipeline(case.module.clone(), machine, options, [], observe=observe)
    arrays = copies(case.arrays)
    run_threads(lowered, [describe(a) for a in arrays], (*program.grid, 1), "random", seed)
    case.compare(expected, arrays, "threads")


@examples(2 * EXAMPLES)
@given(program=programs(), seed=st.integers(0, 2**32 - 1))
def test_threads_agree_with_plain_numpy(program: Program, seed: int) -> None:
    case, expected = drawn(program, seed)
    arrays = copies(case.arrays)
    options = CompileOptions(target="cuda", machine="sm_80")
    code = ThreadsTarget("sm_80").build(case.module.clone(), options)
    code.launch((*program.grid, 1), [describe(a) for a in arrays])
    case.compare(expected, arrays, "threads")
