"""Programs that print: one thread says what the workgroup has, through the driver's vprintf."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.acceptance.prints import arguments, expected, prints
from tests.targets.cuda.threads import ThreadsTarget
from tilewright import knobs
from tilewright.targets.cuda.inspect import assemble, find_tool


def test_lines(
    threads: ThreadsTarget, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    args = arguments(rng)
    capfd.readouterr()
    printing = prints.options(target="cuda", fastmath=False)
    printing[2](*args)
    assert capfd.readouterr().out.splitlines() == expected(args)
    with knobs.override(print_lines=2, cache=False):
        limited = prints.options(target="cuda", fastmath=False, num_stages=2)
        limited[5](*args)
    lines = capfd.readouterr().out.splitlines()
    # Programs run beside each other: when the third says that it prints nothing is not told.
    others = "... the other programs print nothing (TILEWRIGHT_PRINT_LINES is 2)"
    lines.remove(others)
    assert lines == expected(args)


@pytest.mark.parametrize("machine", ["sm_80", "sm_90a"])
def test_the_assembler_takes_it(machine: str) -> None:
    if find_tool("ptxas") is None:
        pytest.skip("no ptxas: pip install nvidia-cuda-nvcc")
    types = [tw.spec((4, 8), tw.f32), tw.spec((1, 4), tw.u8)]
    ptx = prints.compile(*types, 7, target=machine).asm["ptx"]
    assert ".extern .func  (.param .b32 func_retval0) vprintf" in ptx
    assert assemble(ptx, machine).spill_store_bytes == 0
