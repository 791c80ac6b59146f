"""Random programs of workgroups keep their results down to subgroups and to lanes.

A failure prints the smallest failing program, the pass that changed it, and the seed of its data;
`pytest --hypothesis-seed=N` draws the same programs again. `TILEWRIGHT_LOWERING_EXAMPLES` says how
many are drawn.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st

from tests.fuzz.programs import Program
from tests.fuzz.test_programs import Case
from tests.lowering.programs import lowered, programs, reorder
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import make_context
from tilewright.passes.xegpu.from_xetile import XeTileToXeGPU
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP

EXAMPLES = int(os.environ.get("TILEWRIGHT_LOWERING_EXAMPLES", "60"))

lowering = settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def check(program: Program, seed: int, orders: list[bool], chip: str, whole: bool) -> None:
    case = Case(program, seed)
    note(case.describe())
    assume(case.expected().finite)
    module = case.module.clone()
    XeTileToXeGPU().apply(make_context(), module)
    reorder(module, orders)
    entries = (*WORKGROUP, *SUBGROUP) if whole else WORKGROUP
    try:
        # Checking mode finds races of subgroups; lanes are only compared.
        lowered(
            module,
            (*program.grid, 1),
            [*case.inputs, *case.outputs],
            entries,
            chip=chip,
            check=not whole,
        )
    except UnsupportedError as error:
        assert "shared memory" in str(error), error


drawn = {
    "program": programs(),
    "seed": st.integers(0, 2**32 - 1),
    "orders": st.lists(st.booleans(), max_size=4),
}


@lowering
@given(**drawn)
def test_workgroups_become_subgroups(program: Program, seed: int, orders: list[bool]):
    check(program, seed, orders, "pvc", whole=False)


@lowering
@given(**drawn, chip=st.sampled_from(["pvc", "pvc", "dg2"]))
def test_workgroups_become_lanes(program: Program, seed: int, orders: list[bool], chip: str):
    check(program, seed, orders, chip, whole=True)
