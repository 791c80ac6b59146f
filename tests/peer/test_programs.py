"""Random XeGPU programs through MLIR's own passes and ours: both results are the program's.

The passes are `xegpu-wg-to-sg-distribute`, `xegpu-blocking`, `xegpu-propagate-layout` and `xegpu-subgroup-distribute`
of mlir-opt 22; the reference executor runs what they leave, and what our passes make of it down to lanes. MLIR accepts
every program's text, and may refuse to lower it for a reason that is listed here.
`TILEWRIGHT_PEER_EXAMPLES` says how many programs of workgroups and subgroups there are, and a quarter as many single
instructions besides: 16 by default, 300 in `make rest` and `make nightly`; `pytest -rP` shows how many were compared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp, StringAttr

from tests.draws import examples
from tests.lowering.programs import run, wrong
from tests.peer.mlir_opt import Refused, mlir_opt, needs_mlir_opt
from tests.peer.programs import programs
from tests.peer.values import Program
from tilewright.dialects.text import parse_module, print_module, verify_module
from tilewright.passes.kernel import LEVEL, kernel_of
from tilewright.passes.pipeline import Pass
from tilewright.passes.xegpu.pipeline import (
    BLOCKING,
    PIPELINE,
    SUBGROUP,
    WG_TO_SG,
    distribute_to_lanes,
    propagate_layout,
)

EXAMPLES = int(os.environ.get("TILEWRIGHT_PEER_EXAMPLES", "16"))
TO_SUBGROUPS, TO_INSTRUCTIONS = "xegpu-wg-to-sg-distribute", "xegpu-blocking"
TO_LANES = ("xegpu-propagate-layout{layout-kind=lane}", "xegpu-subgroup-distribute")
OURS_TO_LANES = (propagate_layout("lane"), distribute_to_lanes())
PASSES: dict[str, tuple[Sequence[str], Sequence[Pass[Any]], str]] = {
    "workgroup": ((TO_SUBGROUPS,), (WG_TO_SG,), "subgroup"),
    "workgroup in instructions": (
        (TO_SUBGROUPS, TO_INSTRUCTIONS),
        (WG_TO_SG, BLOCKING),
        "subgroup",
    ),
    "subgroup": ((TO_INSTRUCTIONS,), (BLOCKING,), "subgroup"),
    "instruction": (TO_LANES, OURS_TO_LANES, "lane"),
    "workgroup to lanes": (
        (TO_SUBGROUPS, TO_INSTRUCTIONS, *TO_LANES),
        (WG_TO_SG, BLOCKING, *OURS_TO_LANES),
        "lane",
    ),
}
"""By what a program has left to do: MLIR's passes, ours, and the level behind them."""

REFUSALS = (
    "failed to legalize",  # ops on values in several rounds
    # In a loop in a loop; and of constants that it folds before (x - x), which keep the workgroup's shape.
    r"'(arith|math)\.\w+' op requires the same (type|shape) for all operands and results",
    r"'arith\.cmpi' op failed to verify that result type has i1 element type and same shape as operands",
    r"'arith\.select' op failed to verify that all of {true_value, false_value, result} have same type",
    "Could not find layout attribute for operand",
    "Failed to update operation with the layout",
    "'scf.for' op .* have different type",  # of a loop in a loop
    "'scf.for' op different number of inits and region iter_args",  # of one that begins with another's result
    "'xegpu.store_nd' op Value shape",  # of constants that it folds before, which have no layout then
)
"""What mlir-opt 22.1.8 says of programs that its passes do not finish."""

peer = examples(-(-EXAMPLES // (len(PASSES) - 1)))


def parsed(text: str, level: str = "") -> ModuleOp:
    module = parse_module(text)
    verify_module(module)
    if level:
        kernel_of(module).attributes[LEVEL] = StringAttr(level)
    return module


def lowered(module: ModuleOp, passes: Sequence[Pass[Any]]) -> ModuleOp:
    after = module.clone()
    for each in passes:
        PIPELINE.alone(each, after)
    verify_module(after)
    return after


def unfinished(text: str) -> bool:
    """Whether MLIR's passes left a part as it was, or attributes that MLIR itself does not read."""
    if "gpu.warp_execute_on_lane_0" in text:
        return True
    try:
        mlir_opt(text)
    except Refused as error:
        assert str(error) == "expected sg_layout/lane_layout being used with order"
        return True
    return False


def check(program: Program, seed: int, level: str) -> bool:
    """Both ways of a program; whether MLIR's passes finish it."""
    theirs, ours, below = PASSES[level]
    note(f"data of seed {seed}\n{program.text}")
    module, args, grid = parsed(program.text), program.arguments(seed), (1, 1, 1)
    expected = run(module, grid, args)
    mine = lowered(module, ours)
    assert wrong(expected, run(mine, grid, args)) is None, f"ours\n{print_module(mine)}"
    try:
        text = mlir_opt(print_module(module), *theirs)
    except Refused as error:
        mlir_opt(print_module(module))  # its passes refuse it, not its verifier
        assert any(re.match(known, str(error)) for known in REFUSALS), error
        return False
    if unfinished(text):
        return False
    peer_made = parsed(text, below)
    assert wrong(expected, run(peer_made, grid, args)) is None, f"MLIR's\n{text}"
    if below == "subgroup":
        lanes = lowered(peer_made, SUBGROUP)
        assert wrong(expected, run(lanes, grid, args)) is None, (
            f"MLIR's, and ours\n{print_module(lanes)}"
        )
    return True


@needs_mlir_opt
@pytest.mark.parametrize("level", PASSES)
def test_results_agree(level: str):
    finished: list[bool] = []

    @peer
    @given(program=programs(level), seed=st.integers(0, 2**32 - 1))
    def each(program: Program, seed: int) -> None:
        finished.append(check(program, seed, level))

    each()
    print(f"{level}: {len(finished)} programs, of which MLIR's passes finish {sum(finished)}")
    assert len(finished) >= peer.max_examples
    # Else hardly anything is compared any more.
    assert len(finished) < 20 or sum(finished) > len(finished) // 5
