"""Random programs of workgroups keep their results down to subgroups and to lanes, on a machine with 2D blocks.

`TILEWRIGHT_LOWERING_EXAMPLES` says how many, with test_random_lanes.py: 32 by default, a thousand in `make nightly`.
Each is executed as it was written, as its subgroups run it (races are found) and as its lanes do; one in thirty-two
also after each single pass. A failure prints the smallest failing program, the pass that changed it, and the seed of
its data; `pytest --hypothesis-seed=N` draws the same programs again.
"""

from __future__ import annotations

import os

from hypothesis import assume, given, note
from hypothesis import strategies as st
from xdsl.dialects import gpu

from tests.draws import examples
from tests.fuzz.programs import Program
from tests.fuzz.test_programs import Case
from tests.lowering.programs import lowered, programs, reorder, run
from tilewright.diagnostics import UnsupportedError
from tilewright.passes.xegpu.from_xetile import xetile_to_xegpu
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP

EXAMPLES = int(os.environ.get("TILEWRIGHT_LOWERING_EXAMPLES", "32"))

lowering = examples(EXAMPLES // 2)

drawn = {
    "program": programs(),
    "seed": st.integers(0, 2**32 - 1),
    "orders": st.lists(st.booleans(), max_size=4),
    "blocks": st.booleans(),
}


def check(program: Program, seed: int, orders: list[bool], blocks: bool, chip: str) -> None:
    """One program on all levels. `blocks`: its text makes no promises about arrays, so that accesses are
    taken for block messages; otherwise their run-time strides make most of them a lane's own."""
    case = Case(program, seed)
    note(case.describe())
    assume(case.expected().finite)
    module = case.module.clone()
    xetile_to_xegpu(module)
    reorder(module, orders)
    # Block messages want rows in ascending order, a pitch apart.
    if blocks and all(program.arrays[a].layout == "rows" for a in program.written):
        for kernel in module.walk():
            if isinstance(kernel, gpu.FuncOp):
                kernel.attributes.pop("tilewright.args", None)
    grid, args = (*program.grid, 1), [*case.inputs, *case.outputs]
    expected, every = run(module, grid, args), seed % 32 == 31
    try:
        subgroups = lowered(module, grid, args, WORKGROUP, chip, True, every, expected)
        lowered(subgroups, grid, args, SUBGROUP, chip, False, every, expected)
    except UnsupportedError as error:
        assert "shared memory" in str(error), error


@lowering
@given(**drawn)
def test_programs_become_lanes(program: Program, seed: int, orders: list[bool], blocks: bool):
    check(program, seed, orders, blocks, "pvc")
