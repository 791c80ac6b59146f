"""Random programs of workgroups keep their results down to lanes, with and without 2D blocks.

As test_random.py, through all passes: what the xe targets compile. The programs' arrays have run-time extents
and strides, so that most accesses are a lane's own; their rows are also given as blocks would need them.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from xdsl.dialects import gpu

from tests.fuzz.programs import Program
from tests.fuzz.test_programs import Case
from tests.lowering.programs import lowered, programs, reorder
from tests.lowering.test_random import EXAMPLES, lowering
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects import make_context
from tilewright.passes.xegpu.from_xetile import XeTileToXeGPU
from tilewright.passes.xegpu.pipeline import SUBGROUP, WORKGROUP

lanes = settings(lowering, max_examples=max(1, EXAMPLES // 4))
"""Lanes take several times as long as subgroups to execute."""


@pytest.mark.parametrize("chip", ["pvc", "dg2"])
@lanes
@given(
    program=programs(),
    seed=st.integers(0, 2**32 - 1),
    orders=st.lists(st.booleans(), max_size=4),
    blocks=st.booleans(),
)
def test_workgroups_become_lanes(
    chip: str, program: Program, seed: int, orders: list[bool], blocks: bool
):
    case = Case(program, seed)
    note(case.describe())
    assume(case.expected().finite)
    module = case.module.clone()
    XeTileToXeGPU().apply(make_context(), module)
    reorder(module, orders)
    if blocks:
        # Without promises about the arrays the text is taken at its word: block messages.
        for kernel in module.walk():
            if isinstance(kernel, gpu.FuncOp):
                kernel.attributes.pop("tilewright.args", None)
    try:
        lowered(
            module,
            (*program.grid, 1),
            [*case.inputs, *case.outputs],
            (*WORKGROUP, *SUBGROUP),
            chip,
        )
    except UnsupportedError as error:
        assert "shared memory" in str(error), error
