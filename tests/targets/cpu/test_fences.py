"""Products and rows on arrays and scratch memory between forbidden pages: nothing beside them is touched.

Also for AMX, emulated: its tile loads are whole whatever the tile's edge.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.acceptance import kernels
from tests.fences import Fenced, fenced
from tests.targets.cpu.amx_emulation import NEEDS_AVX512, WITH_AVX512, emulate_tiles
from tilewright import ops
from tilewright.targets.cpu import workspace
from tilewright.targets.cpu.machine import host_level

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(params=["end", "start"])
def first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Which side of the memory is fenced closely; scratch memory too."""
    start: bool = request.param == "start"
    held: list[Fenced] = []

    def acquire(size: int) -> Fenced:
        # Scratch is whole cache lines, like the blocks of the workspace.
        held.append(Fenced(-(-size // 64) * 64, start))
        return held[-1]

    monkeypatch.setattr(workspace, "acquire", acquire)
    monkeypatch.setattr(workspace, "release", lambda block: None)
    return start


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate_tiles(monkeypatch)


@pytest.fixture(params=["host", "amx"])
def machine(request: pytest.FixtureRequest) -> str:
    if request.param == "amx":
        if host_level() not in WITH_AVX512:
            pytest.skip(NEEDS_AVX512)
        request.getfixturevalue("tiles")
    return request.param


@pytest.fixture
def options(machine: str) -> dict[str, int]:
    """Options that keep the kernels of one machine from those of the other, in this process."""
    return {"num_threads": 2 if machine == "amx" else 3}


@pytest.mark.parametrize("dtype", [BF16, np.dtype("f2")], ids=str)
@pytest.mark.parametrize("shape", [(31, 257, 100), (1, 33, 7)], ids=str)
def test_products(options, machine: str, shape: tuple[int, ...], dtype, first: bool, rng) -> None:  # pyright: ignore
    if machine == "amx" and dtype != BF16:
        pytest.skip("panels of f16 are those of bf16")
    m, n, k = shape
    a, b = (fenced(rng.standard_normal(s).astype(dtype), first) for s in ((m, k), (k, n)))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    for left, right in ((a, b), (a, fenced(np.asfortranarray(b), first))):
        for depth in (16, 64):
            c = fenced(np.zeros((m, n), dtype), first)
            gemm = kernels.gemm.options(**options)
            gemm[tw.cdiv(m, 32), tw.cdiv(n, 64)](left, right, c, BM=32, BN=64, BK=depth)
            error = np.linalg.norm(c.astype(np.float64) - wanted) / np.linalg.norm(wanted)
            assert error < 1e-2


def test_rows_and_attention(options, first: bool, rng) -> None:  # pyright: ignore
    x = fenced(rng.standard_normal((7, 100)).astype("f4"), first)
    y = fenced(np.zeros_like(x), first)
    ops.softmax(x, out=y, **options)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
    q, k, v = (fenced(rng.standard_normal((2, 65, 64)).astype(BF16), first) for _ in range(3))
    o = fenced(np.zeros_like(q), first)
    ops.attention(q, k, v, causal=True, out=o, **options)
    assert np.isfinite(o.astype("f4")).all()
