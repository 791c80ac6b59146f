"""The register estimate, the two modes, and the order that needs fewer registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.dialects import gpu

from tests.targets.xe import kernels
from tests.targets.xe.conftest import build
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.passes.kernel import kernel_of
from tilewright.targets.xe.registers import pressure
from tilewright.targets.xe.run_once import run_once
from tilewright.targets.xe.schedule import order_by_demand
from tilewright.uarch import machine
from tilewright.uarch.xe import XeMachine


def pvc() -> XeMachine:
    found = machine("xe-pvc")
    assert isinstance(found, XeMachine)
    return found


def kernel(text: str) -> gpu.FuncOp:
    return kernel_of(parse_module(text, "kernel.mlir"))


def test_the_product_of_the_appendix() -> None:
    """C 32 x 64 in f32 is 128 registers, A 32 x 32 in f16 32, B 32 x 64 in f16 64, and scalars."""
    found = pressure(kernel(kernels.gemm()), pvc())
    assert 224 <= found.registers <= 226
    assert dict(found.largest)["vector<8xf32>"] == 128


def test_slices_are_their_fragment_and_constants_are_nothing() -> None:
    text = (
        kernels.head("%a: memref<64x64xf16>, %out: memref<64x64xf16>")
        + """
    %t = xegpu.create_nd_tdesc %a : memref<64x64xf16> -> !xegpu.tensor_desc<32x16xf16>
    %o = xegpu.create_nd_tdesc %out : memref<64x64xf16> -> !xegpu.tensor_desc<8x16xf16>
    %zero = arith.constant dense<0.0> : vector<32xf16>
    %v = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<32x16xf16> -> vector<32xf16>
    %x = vector.extract_strided_slice %v {offsets = [0], sizes = [8], strides = [1]} : vector<32xf16> to vector<8xf16>
    %y = vector.extract_strided_slice %v {offsets = [8], sizes = [8], strides = [1]} : vector<32xf16> to vector<8xf16>
    xegpu.store_nd %x, %o[0, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>
    xegpu.store_nd %y, %o[8, 0] : vector<8xf16>, !xegpu.tensor_desc<8x16xf16>"""
        + kernels.FOOT
    )
    # 32 elements of 2 bytes in 16 lanes.
    assert pressure(kernel(text), pvc()).registers == 16


@pytest.mark.parametrize(
    "change, mode",
    [
        (lambda text: text, 128),
        (
            lambda text: text.replace(
                "tilewright.lanes", "tilewright.grf = 256 : i64, tilewright.lanes"
            ),
            256,
        ),
    ],
    ids=["what fits", "asked for"],
)
def test_modes(change: Callable[[str], str], mode: int) -> None:
    assert build(change(kernels.gemm(rows=16, columns=32))).meta["registers"] == mode


def test_a_mode_that_is_too_small() -> None:
    text = kernels.gemm().replace(
        "tilewright.lanes", "tilewright.grf = 128 : i64, tilewright.lanes"
    )
    with pytest.raises(UnsupportedError, match="xe-pvc has 128: it would spill"):
        build(text)


def test_order_by_demand(rng: np.random.Generator) -> None:
    """The same results, and less alive at a time: B's second half is loaded after its first was used."""
    text = kernels.gemm(64, 128, 64, sg=(1, 2), rows=32, columns=64)
    module = parse_module(text, "kernel.mlir")
    before = pressure(kernel_of(module), pvc()).registers
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, 64), (64, 128)))
    outcomes: list[np.ndarray] = []
    for change in (lambda: None, lambda: order_by_demand(kernel_of(module))):
        change()
        module.verify()
        c = np.full((64, 128), np.nan, np.float32)
        reference.run(module, (2, 1, 1), [a, b, c])
        outcomes.append(c)
    np.testing.assert_array_equal(*outcomes)
    assert pressure(kernel_of(module), pvc()).registers <= before


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_run_once(steps: int, rng: np.random.Generator) -> None:
    """A loop of unknown length becomes one that surely runs; none, one and two steps give the same as before."""
    text = kernels.gemm(32, 64, 64, sg=(1, 1), prefetch=False)
    text = text.replace("%C: memref<32x64xf32>)", "%C: memref<32x64xf32>, %end: index)")
    text = text.replace("    %end = arith.constant 64 : index\n", "")
    module = parse_module(text, "kernel.mlir")
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((32, 64), (64, 64)))
    outcomes: list[np.ndarray] = []
    for change in (lambda: None, lambda: run_once(kernel_of(module))):
        change()
        module.verify()
        c = np.full((32, 64), np.nan, np.float32)
        reference.run(module, (1, 1, 1), [a, b, c, 32 * steps])
        outcomes.append(c)
    np.testing.assert_array_equal(*outcomes)
    loop = next(op for op in kernel_of(module).walk() if op.name == "scf.for")
    assert "mach.nonempty" in loop.attributes
