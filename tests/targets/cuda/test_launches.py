"""Launches as users write them, on a GPU: over and over, on streams, in graphs, from threads, on several devices."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

import threading
from typing import Any

import pytest

import tilewright as tw
from benchmarks.suites.gpu_kernels import product
from tests.targets.cuda.harness import needs_gpu
from tilewright.targets.cuda import driver

pytestmark = needs_gpu
needs_two = pytest.mark.skipif(
    not driver.available() or driver.device_count() < 2, reason="this machine has one NVIDIA GPU"
)


@tw.kernel
def scaled_sum(X, Y, Z, B: tw.constexpr = 16):
    """Z = 2 X + Y."""
    m = tw.program_id(0) * B
    x = tw.load_tile(tw.init_tile(X, [m, 0], (B, B)))
    y = tw.load_tile(tw.init_tile(Y, [m, 0], (B, B)))
    tw.store_tile(x * 2.0 + y, tw.init_tile(Z, [m, 0], (B, B)))


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def tensors(torch: Any, device: str = "cuda") -> tuple[Any, Any, Any]:
    x, y = (torch.randn(32, 16, device=device) for _ in range(2))
    return x, y, torch.full((32, 16), float("nan"), device=device)


def test_a_hundred_times_and_then_otherwise(torch: Any) -> None:
    """Native code takes over in the middle; other tensors, shapes, types and keywords still arrive."""
    x, y, z = tensors(torch)
    run = scaled_sum[2]
    for i in range(100):
        x.fill_(float(i))
        run(x, y, z)
        if i % 20 == 0:
            torch.testing.assert_close(z, 2 * i + y)
    torch.testing.assert_close(z, 2 * x + y)
    assert "tw_repeat" in repr(scaled_sum[2]), "the next one is native from the start"
    others = tensors(torch)
    scaled_sum[2](*others)
    torch.testing.assert_close(others[2], 2 * others[0] + others[1])
    scaled_sum[2](x, y, Z=z)
    half = [t.half() for t in (x, y, z)]
    scaled_sum[2](*half)
    torch.testing.assert_close(half[2], 2 * half[0] + half[1])
    across = [t.T.contiguous().T for t in tensors(torch)]
    scaled_sum[2](*across)
    torch.testing.assert_close(across[2], 2 * across[0] + across[1])
    with pytest.raises(tw.LaunchError, match="misses argument"):
        scaled_sum[2](x, y)


def test_memory_that_comes_again_as_another_tensor(torch: Any) -> None:
    """The same addresses in another shape are another launch."""
    x, y, z = tensors(torch)
    for _ in range(50):
        scaled_sum[1](x[:16], y[:16], z[:16])
    flat = [t.view(16, 32)[:, :16] for t in (x, y, z)]
    z.fill_(0.0)
    scaled_sum[1](*flat)
    torch.testing.assert_close(flat[2], 2 * flat[0] + flat[1])
    assert (z.view(16, 32)[:, 16:] == 0).all()


def test_streams_and_graphs_of_native_launches(torch: Any) -> None:
    x, y, z = tensors(torch)
    run = scaled_sum[2]
    for _ in range(50):
        run(x, y, z)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        x.fill_(5.0)
        run(x, y, z)
    side.synchronize()
    torch.testing.assert_close(z, 10 + y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x, y, z)
    x.fill_(1.0)
    graph.replay()
    torch.testing.assert_close(z, 2 + y)


def test_threads_share_a_launch(torch: Any) -> None:
    x, y, z = tensors(torch)
    run = scaled_sum[2]
    for _ in range(50):
        run(x, y, z)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            mine = tensors(torch)
            for _ in range(100):
                run(x, y, z)
                run(*mine)
            torch.testing.assert_close(mine[2], 2 * mine[0] + mine[1])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
    torch.testing.assert_close(z, 2 * x + y)


@needs_two
def test_each_device_of_a_process(torch: Any) -> None:
    """Tensors decide; the current device is what it was. Products have maps of memory on every device."""
    count = torch.cuda.device_count()
    for turn in range(50):
        for d in range(count):
            device = f"cuda:{d}"
            if turn == 0:
                a, b = (torch.randn(256, 256, device=device).half() for _ in range(2))
                c = torch.full((256, 256), float("nan"), device=device).half()
                product[2, 1](a, b, c)
                torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
                # Bound to a stream of that device.
                with torch.cuda.device(d):
                    side = torch.cuda.Stream()
                    with torch.cuda.stream(side):
                        torch.cuda._sleep(20_000_000)
                        a.zero_()
                        product[2, 1](a, b, c)
                    side.synchronize()
                assert (c == 0).all()
            x, y, z = tensors(torch, device)
            scaled_sum[2](x, y, z)
            torch.testing.assert_close(z, 2 * x + y)
            assert torch.cuda.current_device() == 0
    kept = [tensors(torch, f"cuda:{d}") for d in range(count)]
    for _ in range(100):
        for x, y, z in kept:
            scaled_sum[2](x, y, z)
    for d, (x, y, z) in enumerate(kept):
        torch.testing.assert_close(z, 2 * x + y)
        with torch.cuda.device(d):
            scaled_sum[2](x, y, z)
    assert torch.cuda.current_device() == 0
    with pytest.raises(tw.LaunchError, match="live on cuda:0 and cuda:1"):
        scaled_sum[2](kept[0][0], kept[1][1], kept[0][2])
