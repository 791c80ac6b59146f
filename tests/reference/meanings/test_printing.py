"""gpu.printf and vector.print of kernels: who prints, in which order, in which format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference.kernels import module_of, run
from tilewright import reference
from tilewright.diagnostics import CheckError, UnsupportedError
from tilewright.reference.meanings.printing import _wrapped  # pyright: ignore[reportPrivateUsage]

LANE = 'tilewright.level = "lane", tilewright.subgroups = 1 : i64'


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("conversion", "type_", "value", "text"),
    [
        ("%d", "i32", -7, "-7"),
        ("%lld", "i64", -(1 << 40), str(-(1 << 40))),
        ("%u", "i32", -1, "4294967295"),
        ("%hhu", "i32", 300, "44"),
        ("%hhd", "i32", 200, "-56"),
        ("%x", "i8", -2, "fe"),
        ("%#06x", "i32", 26, "0x001a"),
        ("%#o", "i32", 8, "010"),
        ("%#x", "i32", 0, "0"),
        ("%p", "i64", 4096, "0x1000"),
        ("%c", "i8", 65, "A"),
        ("%+5d", "i16", 3, "   +3"),
        ("%d", "i1", True, "1"),
        ("%-8.3f", "f32", 1.5, "1.500   "),
        ("%e", "f64", 12345.0, "1.234500e+04"),
        ("%g", "f16", 0.25, "0.25"),
        ("%g", "f32", float("nan"), "nan"),
    ],
)
def test_conversions_are_those_of_c(
    capsys: pytest.CaptureFixture[str], conversion: str, type_: str, value: Any, text: str
):
    run(f"%x: {type_}", f'gpu.printf "[{conversion}] 100%%\\0A", %x : {type_}', [value])
    assert printed(capsys) == [f"[{text}] 100%"]


def test_wrapped_numbers_have_the_bits_of_their_type():
    from xdsl.dialects.builtin import IndexType, i8

    assert _wrapped(-1, i8, None, False) == 255
    assert _wrapped(-1, IndexType(), "ll", False) == (1 << 64) - 1


def test_every_lane_prints_and_lines_do_not_mix(capsys: pytest.CaptureFixture[str]):
    body = """
  %l = gpu.lane_id
  %b = gpu.block_id x
  %few = arith.cmpi ult, %l, %c3 : index
  gpu.printf "same\\0A"
  scf.if %few {
    gpu.printf "block %d, ", %b : index
    gpu.printf "lane %d\\0Aend", %l : index
  }
"""
    reference.run(module_of("", body, LANE), (2,), [])
    lines = printed(capsys)
    assert lines[:32] == ["same"] * 32
    assert lines[32:38] == [f"block {b}, lane {lane}" for b in range(2) for lane in range(3)]
    assert lines[38:] == ["end" * 6]


def test_a_lane_program_has_the_threads_of_its_launch(capsys: pytest.CaptureFixture[str]):
    body = """
  %x = gpu.thread_id x
  %y = gpu.thread_id y
  gpu.printf "%d %d\\0A", %x, %y : index, index
"""
    threads = ", tilewright.block = array<i64: 3, 2, 1>"
    reference.run(module_of("", body, LANE + threads), (1,), [])
    assert printed(capsys) == [f"{x} {y}" for y in range(2) for x in range(3)]


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        ("vector<3xf32>", np.array([1, 2.5, -3], np.float32), "( 1, 2.5, -3 )"),
        ("vector<2xi32>", np.array([1, -2], np.int32), "( 1, -2 )"),
    ],
)
def test_vector_print(capsys: pytest.CaptureFixture[str], type_: str, value: Any, text: str):
    memref = type_.replace("vector", "memref")
    body = f"""
  %v = vector.load %a[%c0] : {memref}, {type_}
  vector.print str "v = "
  vector.print %v : {type_}
  vector.print %c0 : index punctuation <comma>
  vector.print punctuation <newline>
"""
    run(f"%a: {memref}", body, [value], (2,))
    assert printed(capsys) == [f"v = {text}"] * 2 + ["0, "] * 2


@pytest.mark.parametrize(
    ("ops", "error", "why"),
    [
        ('gpu.printf "%d %d", %i : i32', CheckError, "more values than the 1 given"),
        ('gpu.printf "%f", %i : i32', CheckError, "not for a value of type i32"),
        ('gpu.printf "%s", %i : i32', UnsupportedError, "'%s' cannot be printed"),
        ('gpu.printf "50%"', UnsupportedError, "'%' cannot be printed"),
    ],
)
def test_formats_that_do_not_fit_are_refused(ops: str, error: type[Exception], why: str):
    with pytest.raises(error, match=why):
        run("%i: i32", ops, [3])
