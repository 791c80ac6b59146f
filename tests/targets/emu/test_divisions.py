"""Integer divisions of scalars in compiled subgroup programs: an error of the launch, never a signal."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.targets.emu.agree import agree, lane_kernel
from tilewright.diagnostics import CheckError


@tw.kernel(level="subgroup", subgroups=2)
def divided(X, a, b):
    i = tw.subgroup_id() * 2
    tw.store_tile(a // b, tw.init_tile(X, [i], (1, 1)))
    tw.store_tile(a % b, tw.init_tile(X, [i + 1], (1, 1)))


divided_emu = divided.options(target="emu")


@pytest.mark.parametrize("a, b", [(7, 2), (-7, 2), (7, -2), (5, -1), (-(1 << 63), -1)])
def test_quotients_and_remainders(a, b):
    x = np.full(4, 99, np.int64)
    divided_emu[1](x, a, b)
    quotient = a // b if a // b < 1 << 63 else a
    assert x.tolist() == [quotient, a % b] * 2


def test_by_zero():
    with pytest.raises(CheckError, match=r"integer division by zero in workgroup \(0, 0, 0\)") as e:
        divided_emu[1](np.zeros(4, np.int64), 5, 0)
    assert e.value.location is not None
    assert e.value.location.line == divided.function.__code__.co_firstlineno + 3


@pytest.mark.parametrize("n", [3, -3])
def test_of_what_grows_with_the_lane(n: int):
    """From a multiple of the divisor on, which may be negative: some quotients are the same in all lanes, some not."""
    names = (
        "divsi",
        "remsi",
        "divui",
        "remui",
        "floordivsi",
        "ceildivsi",
        "shrsi",
        "shrui",
        "andi",
    )
    body = """
  %lane = gpu.lane_id"""
    for type in ("i64", "i32"):
        constants = "".join(f"\n  %{type}c{k} = arith.constant {k} : {type}" for k in (4, 15, 16))
        body += f"""{constants}
  %{type}l = arith.index_cast %lane : index to {type}
  %{type}n = arith.muli %n{type}, %{type}c16 : {type}
  %{type}x = arith.addi %{type}n, %{type}l : {type}"""
        for i, name in enumerate(names):
            by = "c4" if name.startswith("shr") else "c15" if name == "andi" else "c16"
            wide = f"%{type}v{i}"
            body += f"""
  %{type}i{i} = arith.constant {i} : index
  {wide} = arith.{name} %{type}x, %{type}{by} : {type}
  memref.store {wide}, %{type}[%lane, %{type}i{i}] : memref<16x9x{type}>"""
    args = "%ni64: i64, %ni32: i32, %i64: memref<16x9xi64>, %i32: memref<16x9xi32>"
    outs = [np.full((16, 9), 99, np.int64), np.full((16, 9), 99, np.int32)]
    agree(lane_kernel(args, body), [np.int64(n), np.int32(n), *outs])
