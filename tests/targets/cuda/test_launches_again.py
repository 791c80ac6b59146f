"""Launches over again, in native code from the tensors to the driver, are those that Python would make."""

# Kernels are not typed Python, and fixtures give what they say.
# pyright: reportMissingParameterType=false, reportUnknownMemberType=false
from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.targets.cuda.fake_driver import Driver, host_launches
from tilewright import knobs
from tilewright.codegen.pyfunction import available
from tilewright.diagnostics import TilewrightError
from tilewright.runtime.guards import guard

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not available(), reason="not CPython on x86-64 Linux")
__all__ = ["host_launches"]


@tw.kernel
def add(X, Y, Z, B: tw.constexpr = 16):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (B, B)))
    y = tw.load_tile(tw.init_tile(Y, [0, 0], (B, B)))
    tw.store_tile((x + y).to(Z.dtype), tw.init_tile(Z, [0, 0], (B, B)))


def fresh(**options: Any) -> Any:
    """The kernel without anything that it has launched before."""
    return tw.kernel(add.function).options(target="sm_90a", **options)


def outcome(cuda: Driver, launch: Any, *args: Any) -> Any:
    """What a launch enqueued, or the reason why it did not."""
    cuda.launches.clear()
    try:
        launch(*args)
    except TilewrightError as error:
        return str(error).splitlines()[0]
    (found,) = cuda.launches
    return found


def ready(cuda: Driver, *args: Any) -> tuple[Any, Any]:
    """A kernel whose launches on a grid have become native code, and that launch."""
    kernel = fresh()
    run = kernel[2]
    for _ in range(40):
        run(*args)
    assert (
        isinstance(run, functools.partial)
        and type(run.func).__name__ == "builtin_function_or_method"
    )
    assert kernel[2] is run.func
    return kernel, run


def tensors() -> list[Any]:
    """Tensors of which many lie at the same address and are something else."""
    x = torch.randn(64, 64)
    z = torch.randn(16, 16, dtype=torch.complex64)
    return [
        x, x[:16], x[:, :16], x[:16, :16], x.t(), x[1:], x[:, 1:17], x.view(torch.int32), x[::2],
        torch.nn.Parameter(x, requires_grad=False), x.detach().requires_grad_(), torch._neg_view(x),
        z.imag, z.conj().imag, z.real, torch.randn(64, 64), torch.randn(16, 16).half(), x[:0],
        x.as_strided((64, 64), (0, 1)), torch.zeros(64, 64, dtype=torch.complex64), x.flatten(),
    ]  # fmt: skip


def test_what_is_launched_again_is_what_python_launches(
    host_launches: Driver, rng: np.random.Generator
) -> None:
    pool = tensors()
    kernel, run = ready(host_launches, pool[0], pool[-6], pool[2])
    wanted: dict[Any, Any] = {}
    for _ in range(150):
        i = tuple(int(n) for n in rng.choice(len(pool), 3))
        args = [pool[n] for n in i]
        if i not in wanted:
            with knobs.override(num_threads=1):
                wanted[i] = outcome(host_launches, fresh()[2], *args)
        for launch in (run, kernel[2]):
            for _ in range(2):
                assert outcome(host_launches, launch, *args) == wanted[i], i


def test_streams_knobs_and_threads_are_followed(host_launches: Driver) -> None:
    x, y, z = (torch.ones(16, 16) for _ in range(3))
    _, run = ready(host_launches, x, y, z)
    plain = outcome(host_launches, run, x, y, z)
    host_launches.stream = 9
    assert outcome(host_launches, run, x, y, z).stream == 9 != plain.stream
    host_launches.stream = 5
    with knobs.override(target="reference"):
        assert outcome(host_launches, run, x, y, z) == plain
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(outcome(host_launches, run, x, y, z)))
    thread.start()
    thread.join()
    assert found == [plain] == [outcome(host_launches, run, x, y, z)]


def test_shapes_that_change_in_place_are_seen(host_launches: Driver) -> None:
    x, y, z = (torch.ones(64, 64) for _ in range(3))
    _, run = ready(host_launches, x, y, z)
    before = outcome(host_launches, run, x, y, z)
    for change in (lambda: x.t_(), lambda: x.resize_(64, 32), lambda: x.unsqueeze_(0)):
        change()
        assert outcome(host_launches, run, x, y, z) == outcome(host_launches, fresh()[2], x, y, z)
    x = x.squeeze_(0).resize_(64, 64)
    assert outcome(host_launches, run, x, y, z) == before


def test_more_launches_than_slots(host_launches: Driver) -> None:
    memory = torch.zeros(3 * 700, 16, 16)
    triples = [memory[3 * i : 3 * i + 3].unbind() for i in range(700)]
    _, run = ready(host_launches, *triples[0])
    for _ in range(2):
        for triple in triples:
            addresses = {t.data_ptr() for t in triple}
            assert addresses <= set(outcome(host_launches, run, *triple).parameters)


def test_negated_views_are_refused_in_inference_mode_too(host_launches: Driver) -> None:
    with torch.inference_mode():
        z = torch.randn(16, 16, dtype=torch.complex64)
        y, out = torch.ones(16, 16), torch.ones(16, 16)
        _, run = ready(host_launches, z.imag, y, out)
        assert guard([z.imag]) is not None
        assert "sign" in outcome(host_launches, run, z.conj().imag, y, out)
        assert "sign" in outcome(host_launches, fresh()[2], z.conj().imag, y, out)
