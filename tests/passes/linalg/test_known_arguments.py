"""Arrays of unknown strides, as one-shot-bufferize has them: those of the calls, or any."""

from __future__ import annotations

import numpy as np
import pytest

from tests.arrays import error
from tests.passes.linalg.programs import drawn, program, run_on
from tilewright.dialects.text import parse_module
from tilewright.passes.linalg.to_xetile import linalg_to_xetile

OPEN = "strided<[?, ?], offset: ?>"
PART = f"memref<4x19xf32, {OPEN}>"
FUNCTION = f"""
func.func @f(%a: memref<12x19xf32, {OPEN}>, %b: memref<19x7xf32, {OPEN}>, %o: memref<12x7xf32, {OPEN}>) {{
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  scf.for %i = %c0 to %c12 step %c4 {{
    %p = memref.subview %a[%i, 0] [4, 19] [1, 1] : memref<12x19xf32, {OPEN}> to {PART}
    %q = memref.subview %o[%i, 0] [4, 7] [1, 1] : memref<12x7xf32, {OPEN}> to memref<4x7xf32, {OPEN}>
    linalg.matmul ins(%p, %b : {PART}, memref<19x7xf32, {OPEN}>) outs(%q : memref<4x7xf32, {OPEN}>)
  }}
  return
}}
"""
ONE = [("a", "memref<12x19xf32>", "o", "memref<12x7xf32>")]
TWO = [
    *ONE,
    (
        "t",
        "memref<12x19xf32, strided<[1, 12]>>",
        "r",
        "memref<12x7xf32, strided<[14, 2], offset: 1>>",
    ),
]


def drawn_program(calls: list[tuple[str, str, str, str]]) -> tuple[str, list[np.ndarray]]:
    """Calls of FUNCTION on arrays of those types, and the results; all of them are multiplied by b."""
    inputs = {
        "a": drawn("float32", 12, 19),
        "b": drawn("float32", 19, 7),
        "x": drawn("float32", 19, 12),
    }
    body = [
        "%zero = arith.constant 0.0 : f32",
        "%o = memref.alloc() : memref<12x7xf32>",
        "%wide = memref.alloc() : memref<12x14xf32>",
        "linalg.fill ins(%zero : f32) outs(%o : memref<12x7xf32>)",
        "linalg.fill ins(%zero : f32) outs(%wide : memref<12x14xf32>)",
        f"%bc = memref.cast %b : memref<19x7xf32> to memref<19x7xf32, {OPEN}>",
        "%t = memref.reinterpret_cast %x to offset: [0], sizes: [12, 19], strides: [1, 12] "
        ": memref<19x12xf32> to memref<12x19xf32, strided<[1, 12]>>",
        "%r = memref.subview %wide[0, 1] [12, 7] [1, 2] "
        ": memref<12x14xf32> to memref<12x7xf32, strided<[14, 2], offset: 1>>",
    ]
    for a, of, o, to in calls:
        body += [
            f"%{a}c = memref.cast %{a} : {of} to memref<12x19xf32, {OPEN}>",
            f"%{o}c = memref.cast %{o} : {to} to memref<12x7xf32, {OPEN}>",
            f"call @f(%{a}c, %bc, %{o}c) : (memref<12x19xf32, {OPEN}>, memref<19x7xf32, {OPEN}>, "
            f"memref<12x7xf32, {OPEN}>) -> ()",
        ]
    text = program(
        "\n  ".join(body), inputs, {"o": "memref<12x7xf32>", "wide": "memref<12x14xf32>"}
    )
    a, b, x = (array.astype(np.float64) for array in inputs.values())
    wide = np.zeros((12, 14))
    if len(calls) > 1:
        wide[:, 1::2] = x.T @ b
    return text + FUNCTION, [a @ b, wide]


@pytest.mark.parametrize("calls", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_values(
    calls: list[tuple[str, str, str, str]], target: str, capfd: pytest.CaptureFixture[str]
):
    text, wanted = drawn_program(calls)
    found, _ = run_on(text, target, capfd)
    assert len(found) == 2 and all(error(f, w) < 1e-5 for f, w in zip(found, wanted, strict=True))


def test_what_all_calls_know_is_known():
    """Blocks of rows, then; one layout differs between two calls, and those elements have addresses of their own."""
    for calls, gathers in ((ONE, 0), (TWO, 2)):
        module = parse_module(drawn_program(calls)[0])
        linalg_to_xetile(module)
        names = [op.name for op in module.walk()]
        assert names.count("xetile.load") == gathers and "xetile.tile_mma" in names


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_function_of_several_blocks(target: str, capfd: pytest.CaptureFixture[str]):
    """As bufferization leaves what a condition chose."""
    text, wanted = drawn_program(ONE)
    start = "%c0 = arith.constant 0 : index\n"
    branch = (
        start
        + "  %all = arith.cmpi sge, %c0, %c0 : index\n  cf.cond_br %all, ^some, ^none\n^some:\n"
    )
    head, function = text.split("func.func @f(")
    function = function.replace(start, branch, 1).replace(
        "  return", "  cf.br ^none\n^none:\n  return", 1
    )
    found, _ = run_on(f"{head}func.func @f({function}", target, capfd)
    assert error(found[0], wanted[0]) < 1e-5
