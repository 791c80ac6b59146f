"""Integer divisions of scalars in compiled subgroup programs: an error of the launch, never a signal."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
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
