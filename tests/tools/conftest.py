"""Runs the command line in this process, with a cache of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tilewright import knobs
from tilewright.tools.cli import main


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def tilewright(capfdbinary, tmp_path) -> Iterator[Callable[..., Done]]:
    """``tilewright("opt", path)`` runs a command; no command may show a traceback."""

    def run(*argv: object) -> Done:
        capfdbinary.readouterr()
        try:
            code = main([str(a) for a in argv])
        except SystemExit as leave:  # argparse's own exits
            code = leave.code if isinstance(leave.code, int) else 2
        out, err = capfdbinary.readouterr()
        assert b"Traceback" not in out + err
        return Done(code, out.decode(errors="replace"), err.decode(errors="replace"))

    with knobs.override(cache_dir=tmp_path / "cache"):
        yield run


KERNELS = """
import numpy as np
import tilewright as tw

@tw.kernel
def scaled(X, Y, s, BM: tw.constexpr = 16, BN: tw.constexpr = 32):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.store_tile(x * s, tw.init_tile(Y, [m, n], (BM, BN)))

@tw.kernel
def broken(X):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (16, 16)))
    tw.store_tile(tw.tile_mma(x, tw.zeros((8, 16), tw.f32)), tw.init_tile(X, [0, 0], (16, 16)))
"""


@pytest.fixture
def kernels(tmp_path):
    """A Python file with two kernels, one of which is not legal."""
    path = tmp_path / "some_kernels.py"
    path.write_text(KERNELS)
    return path


XETILE = """\
gpu.module @copy {
  gpu.func @copy(%x: memref<32x32xf32>, %y: memref<32x32xf32>) kernel attributes {tilewright.level = "workgroup"} {
    %a = xetile.init_tile %x[0, 0] : memref<32x32xf32> -> !xetile.tile<32x32xf32>
    %v = xetile.load_tile %a : !xetile.tile<32x32xf32> -> vector<32x32xf32>
    %b = xetile.init_tile %y[0, 0] : memref<32x32xf32> -> !xetile.tile<32x32xf32>
    xetile.store_tile %v, %b : vector<32x32xf32>, !xetile.tile<32x32xf32>
    gpu.return
  }
}
"""


@pytest.fixture
def xetile(tmp_path):
    path = tmp_path / "copy.mlir"
    path.write_text(XETILE)
    return path
