"""Random chains of structured ops, memory used again among them: tile programs have the results of the meaning."""

from __future__ import annotations

import random

import pytest

from tests.arrays import error
from tests.draws import fresh_seed
from tests.passes.linalg.programs import drawn, program, run_on

M, V = "memref<17x17xf32>", "memref<17xf32>"
PROGRAMS = 4


def chain(draw: random.Random) -> str:
    """A program on two inputs, four matrices and three vectors; some of them are printed."""
    matrices = ["x", "y", *(f"m{i}" for i in range(4))]
    vectors = [f"v{i}" for i in range(3)]
    own = [(name, M) for name in matrices[2:]] + [(name, V) for name in vectors]
    lines = [f"%{name} = memref.alloc() : {kind}" for name, kind in own]
    lines += ["%zero = arith.constant 0.0 : f32", "%low = arith.constant -9.0 : f32"]
    lines += [f"linalg.fill ins(%low : f32) outs(%{name} : {kind})" for name, kind in own]
    for _ in range(draw.randint(5, 14)):
        along = draw.randrange(2)
        a, b, o, v = (*(draw.choice(matrices) for _ in range(3)), draw.choice(vectors))
        tanh = "linalg.map {{ math.tanh }} ins(%{0} : {1}) outs(%{0} : {1})"
        zero = "linalg.fill ins(%zero : f32) outs(%{0} : {1})"
        matched = [
            [f"linalg.map {{ math.tanh }} ins(%{a} : {M}) outs(%{o} : {M})"],
            [f"linalg.{draw.choice(('add', 'sub'))} ins(%{a}, %{b} : {M}, {M}) outs(%{o} : {M})"],
            [f"linalg.broadcast ins(%{v} : {V}) outs(%{o} : {M}) dimensions = [{along}]"],
            [
                zero.format(v, V),
                f"linalg.reduce {{ arith.addf }} ins(%{a} : {M}) outs(%{v} : {V}) dimensions = [{along}]",
                tanh.format(v, V),
            ],
            [
                f"linalg.reduce {{ arith.maximumf }} ins(%{a} : {M}) outs(%{v} : {V}) dimensions = [{along}]"
            ],
        ]
        if o not in (a, b):
            matched += [
                [f"linalg.transpose ins(%{a} : {M}) outs(%{o} : {M}) permutation = [1, 0]"],
                [
                    zero.format(o, M),
                    f"linalg.matmul ins(%{a}, %{b} : {M}, {M}) outs(%{o} : {M})",
                    tanh.format(o, M),
                ],
            ]
        lines += draw.choice(matched)
    results = dict.fromkeys(draw.sample(matrices, draw.randint(1, 3)), M) | {
        draw.choice(vectors): V
    }
    inputs = {"x": drawn("float32", 17, 17), "y": drawn("float32", 17, 17)}
    return program("\n  ".join(lines), inputs, results)


@pytest.mark.parametrize("number", range(PROGRAMS))
def test_chains(number: int, capfd: pytest.CaptureFixture[str]):
    text = chain(random.Random(fresh_seed()))
    (wanted, _), (found, _) = (run_on(text, target, capfd) for target in (None, "cpu"))
    assert len(found) == len(wanted) > 1
    for one, other in zip(found, wanted, strict=True):
        assert error(one, other) < 1e-4
