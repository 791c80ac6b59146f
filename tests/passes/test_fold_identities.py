"""neutral: what changes nothing goes, what only looks like it stays."""

from __future__ import annotations

import pytest

from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes.fold_identities import fold_identities

PROGRAM = """
gpu.module @m {{
  gpu.func @f(%p: memref<?x{vector}>) kernel {{
    %c0 = arith.constant 0 : index
    %x = memref.load %p[%c0] : memref<?x{vector}>
    {constant}
    %y = {op} : {vector}
    memref.store %y, %p[%c0] : memref<?x{vector}>
    gpu.return
  }}
}}
"""


def removed(op, constant, vector):
    dense = f"%k = arith.constant dense<{constant}> : {vector}"
    scalar = vector.split("x")[-1].rstrip(">")
    spread = (
        f"%s = arith.constant {constant}{'' if scalar == 'i1' else ' : ' + scalar}\n"
        f"    %k = vector.broadcast %s : {scalar} to {vector}"
    )
    results = []
    for how in (dense, spread):
        module = parse_module(PROGRAM.format(vector=vector, constant=how, op=op))
        fold_identities(module)
        verify_module(module)
        results.append(op.split()[0] not in str(module))
    assert results[0] == results[1]
    return results[0]


F, I, B = "vector<4x8xf32>", "vector<4x8xi32>", "vector<4x8xi1>"


@pytest.mark.parametrize("op, constant, vector", [
    ("arith.mulf %x, %k", "1.0", F), ("arith.mulf %k, %x", "1.0", F), ("arith.divf %x, %k", "1.0", F),
    ("arith.subf %x, %k", "0.0", F), ("arith.addf %x, %k", "-0.0", F), ("arith.addf %k, %x", "-0.0", F),
    ("arith.addi %x, %k", "0", I), ("arith.addi %k, %x", "0", I), ("arith.subi %x, %k", "0", I),
    ("arith.muli %k, %x", "1", I), ("arith.divsi %x, %k", "1", I), ("arith.ori %x, %k", "0", I),
    ("arith.xori %k, %x", "0", I), ("arith.andi %x, %k", "-1", I), ("arith.shli %x, %k", "0", I),
    ("arith.andi %x, %k", "true", B),
])  # fmt: skip
def test_neutral(op, constant, vector):
    assert removed(op, constant, vector)


@pytest.mark.parametrize("op, constant, vector", [
    ("arith.addf %x, %k", "0.0", F),  # makes 0 of -0
    ("arith.subf %x, %k", "-0.0", F), ("arith.subf %k, %x", "0.0", F), ("arith.divf %k, %x", "1.0", F),
    ("arith.mulf %x, %k", "-1.0", F), ("arith.mulf %x, %k", "0x7FC00000", F),
    ("arith.subi %k, %x", "0", I), ("arith.andi %x, %k", "1", I), ("arith.shli %k, %x", "0", I),
    ("arith.muli %x, %k", "0", I), ("arith.ori %x, %k", "true", B),
])  # fmt: skip
def test_not_neutral(op, constant, vector):
    assert not removed(op, constant, vector)
