"""Random programs of workgroups keep their results on a machine without 2D blocks: see test_random.py."""

from __future__ import annotations

from hypothesis import given

from tests.fuzz.programs import Program
from tests.lowering.test_random import check, drawn, lowering


@lowering
@given(**drawn)
def test_programs_become_lanes(program: Program, seed: int, orders: list[bool], blocks: bool):
    check(program, seed, orders, blocks, "dg2")
