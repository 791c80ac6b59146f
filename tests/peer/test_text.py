"""Text of XeGPU, vector, gpu and scf that Tilewright prints, at every stage, is accepted by MLIR's own mlir-opt 22.

Where it is not, Tilewright says more than MLIR can: the reasons are listed here, and any other fails.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tests.fuzz.programs import Program
from tests.fuzz.test_programs import Case
from tests.lowering.programs import programs
from tests.movement import CASES, kernel
from tests.peer.mlir_opt import Refused, mlir_opt, needs_mlir_opt
from tests.peer.test_programs import peer
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import print_module
from tilewright.passes.xegpu.pipeline import PIPELINE, SUBGROUP, WORKGROUP

WIDER = (
    # The RFC lets several subgroups own one element.
    r"cannot distribute \[.*\] using #xegpu.layout<sg_layout",
    "invalid (target|input) layout, data cannot be evenly distributed",
    # Who owned a value before is found by propagation.
    "op xegpu.convert_layout: expected key entry for input_layout",
    # Rows of a block message are a lane's columns where panels lie column by column.
    "mem_desc should be row major when subgroup_block_io is set",
    # Places are converted as other values are.
    r"'xegpu.convert_layout' op operand #0 must be vector of .* but got 'vector<\S*index>'",
    # A mem_desc has two dimensions or more, which accesses of any rank reach.
    "mem_desc must be 2D",
)
OWN_FORM = re.compile(r"xegpu\.atomic_rmw \w+ %[\w#]+\[")
"""MLIR's atomics have offsets in a descriptor of theirs; ours stand on the op, as those of its loads."""


def accepted(module: ModuleOp, stage: str) -> None:
    text = print_module(module)
    if OWN_FORM.search(text) is not None:
        return
    try:
        mlir_opt(text)
    except Refused as error:
        assert any(re.search(known, str(error)) for known in WIDER), f"{stage}: {error}\n{text}"


def stages(module: ModuleOp, chip: str) -> None:
    """Holds what each pass leaves, from XeGPU on, against mlir-opt."""
    tiles = True
    for each in (*WORKGROUP, *SUBGROUP):
        try:
            PIPELINE.alone(each, module, chip)
        except UnsupportedError:
            return
        tiles = tiles and each.name != "xetile-to-xegpu"
        if not tiles and each.name != "cleanup":
            accepted(module, each.name)


@needs_mlir_opt
@peer
@given(program=programs(), seed=st.integers(0, 2**32 - 1), chip=st.sampled_from(("pvc", "dg2")))
def test_random_programs(program: Program, seed: int, chip: str):
    case = Case(program, seed)
    note(case.describe())
    stages(case.module.clone(), chip)


@needs_mlir_opt
@pytest.mark.parametrize("name", CASES)
def test_ops_that_rearrange(name: str):
    stages(kernel(name), "pvc")
