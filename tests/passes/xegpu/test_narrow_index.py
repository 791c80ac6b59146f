"""narrow-index: arithmetic on tiles is of 32 bits where the numbers fit, and only there."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tilewright import reference
from tilewright.dialects.text import parse_module, verify_module
from tilewright.passes.kernel import kernel_of
from tilewright.passes.xegpu.narrow_index import narrow_index

COUNT = 8
EXAMPLES = int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "40"))
ENDS = (-1 << 63, -(1 << 31) - 1, -1 << 31, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1)
NUMBERS = (*range(-3, 9), 255, *ENDS)
SUMS = ("addi", "subi", "muli", "andi", "ori", "xori", "minsi", "maxsi", "minui", "maxui")
QUOTIENTS = ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui")
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
EXTREMES = ("minsi", "maxsi", "minui", "maxui")
TILE = f"vector<{COUNT}xindex>"


def program(lines: list[str], results: int) -> ModuleOp:
    """A kernel whose lines compute %v0, %v1, .. of the columns' numbers and of %s, any number; results are stored."""
    wide = f"vector<{COUNT}xi64>"
    stores = [
        f"%i{n} = arith.constant {n} : index\n%w{n} = arith.index_cast %v{n} : {TILE} to {wide}\n"
        f"vector.store %w{n}, %out[%i{n}, %c0] : memref<?x{COUNT}xi64>, {wide}"
        for n in range(results)
    ]
    body = "\n".join([*lines, *stores])
    return parse_module(f"""
gpu.module @m {{ gpu.func @f(%out: memref<?x{COUNT}xi64>, %s: index) kernel
    attributes {{tilewright.level = "workgroup"}} {{
  %c0 = arith.constant 0 : index
  %v0 = vector.step : {TILE}
  {body}
  gpu.return }} }}
""")


def run(module: ModuleOp, results: int, number: int) -> np.ndarray:
    out = np.full((results, COUNT), 0x55, np.int64)
    reference.run(module, 1, [out, number])
    return out


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[str], int]:
    """Lines, and how many tiles they make besides the columns' numbers."""
    lines: list[str] = []
    made = 1

    def some() -> str:
        return f"%v{draw(st.integers(0, made - 1))}"

    for _ in range(draw(st.integers(2, 12))):
        n, at = f"%v{made}", len(lines)
        kind = draw(
            st.sampled_from(("constant", "any", "sum", "quotient", "choice", "extreme", "move"))
        )
        number = draw(st.sampled_from(NUMBERS))
        if kind == "constant":
            lines.append(f"{n} = arith.constant dense<{number}> : {TILE}")
        elif kind == "any":
            lines.append(f"{n} = vector.broadcast %s : index to {TILE}")
        elif kind == "sum":
            lines.append(f"{n} = arith.{draw(st.sampled_from(SUMS))} {some()}, {some()} : {TILE}")
        elif kind == "quotient":
            by = draw(st.sampled_from((2, 3, 255, -5, (1 << 40))))
            lines.append(f"%d{at} = arith.constant dense<{by}> : {TILE}")
            lines.append(
                f"{n} = arith.{draw(st.sampled_from(QUOTIENTS))} {some()}, %d{at} : {TILE}"
            )
        elif kind == "choice":
            test = f"arith.cmpi {draw(st.sampled_from(PREDICATES))}, {some()}, {some()}"
            lines.append(f"%m{at} = {test} : {TILE}")
            lines.append(
                f"{n} = arith.select %m{at}, {some()}, {some()} : vector<{COUNT}xi1>, {TILE}"
            )
        elif kind == "extreme":
            lines.append(f"%a{at} = vector.shape_cast {some()} : {TILE} to vector<{COUNT}x1xindex>")
            kind = draw(st.sampled_from(EXTREMES))
            lines.append(
                f"{n} = vector.multi_reduction <{kind}>, %a{at}, {some()} [1] : vector<{COUNT}x1xindex> to {TILE}"
            )
        else:
            part = f"vector<{COUNT // 2}xindex>"
            slice = "{offsets = [2], sizes = [4], strides = [1]}"
            lines.append(
                f"%p{at} = vector.extract_strided_slice {some()} {slice} : {TILE} to {part}"
            )
            lines.append(
                f"{n} = vector.insert_strided_slice %p{at}, {some()} {{offsets = [1], strides = [1]}}"
                f" : {part} into {TILE}"
            )
        made += 1
    return lines, made


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(drawn=programs(), number=st.sampled_from(NUMBERS))
def test_results_stay(drawn: tuple[list[str], int], number: int) -> None:
    module = program(*drawn)
    before = run(module, drawn[1], number)
    narrow_index(kernel_of(module))
    verify_module(module)
    assert np.array_equal(before, run(module, drawn[1], number)), str(module)


@pytest.mark.parametrize(
    ("line", "narrow"),
    [
        ("%v1 = arith.addi %v0, %v0", True),
        ("%k = arith.constant dense<2147483640> : !t  %v1 = arith.addi %v0, %k", True),
        ("%k = arith.constant dense<2147483641> : !t  %v1 = arith.addi %v0, %k", False),
        ("%k = arith.constant dense<-9> : !t  %v1 = arith.subi %k, %v0", True),
        ("%k = arith.constant dense<-9> : !t  %v1 = arith.divui %k, %v0", False),
        ("%k = vector.broadcast %s : index to !t  %v1 = arith.addi %v0, %k", False),
        ("%k = vector.broadcast %s : index to !t  %m = arith.cmpi ult, %v0, %k", True),
        ("%k = vector.broadcast %s : index to !t  %m = arith.cmpi slt, %k, %v0", True),
    ],
)  # fmt: skip
def test_what_fits_is_narrow(line: str, narrow: bool) -> None:
    lines = [f"{each} : {TILE}" for each in line.replace(" : !t ", f" : {TILE}\n").split("\n")]
    lines = [
        each.replace("!t", TILE).replace(f"{TILE} : {TILE}", TILE)
        for each in "\n".join(lines).split("\n")
    ]
    module = program(["\n".join(lines)], 1)
    narrow_index(kernel_of(module))
    last = [op for op in module.walk() if op.name.split(".")[-1] in line.split("arith.")[-1]][-1]
    assert str(last.operands[0].type) == f"vector<{COUNT}x{'i32' if narrow else 'index'}>"
