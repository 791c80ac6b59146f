"""Random matrix products through the passes for sm_90a: the executor's three schedules agree with plain numpy.

No GPU is needed: the program is executed on whole tiles, with its roles, rings and queues, where work
that nobody waited for is NaN, or a slot that is filled too soon overwrites what is still read.
"""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tests.fuzz.programs import Program, products
from tests.fuzz.test_programs import drawn, fuzz
from tilewright import uarch
from tilewright.reference import run
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.pipeline import run_pipeline

EXAMPLES = int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "60")) // 6
SCHEDULES = ("late", "early", "random")


@settings(parent=fuzz, max_examples=EXAMPLES)
@given(program=products(), seed=st.integers(0, 2**32 - 1))
def test_products_under_every_schedule(program: Program, seed: int) -> None:
    case, expected = drawn(program, seed)

    def observe(name: str, module: ModuleOp) -> None:
        if name not in ("rings", "roles"):
            return
        for schedule in SCHEDULES:
            outputs = [a.copy() for a in case.outputs]
            arrays = [*case.inputs, *outputs]
            run(module, (*program.grid, 1), arrays, schedule=schedule, seed=seed)  # pyright: ignore
            case.compare(expected, outputs, f"after {name}, {schedule}")

    options = CompileOptions(target="cuda", machine="sm_90a")
    run_pipeline(case.module.clone(), uarch.machine("sm_90a"), options, [], {}, observe)
