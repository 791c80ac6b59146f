"""What each pass of the CUDA target is worth: kernels with all passes beside the same without one of them.

A case is a row of contenders that are timed in turn: `tilewright`, then `without X` for every pass X that
`options(disable=...)` knows on that path. The ratio says how many times as fast the pass makes the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tilewright as tw
from benchmarks.suites import Settings, gpu_kernels
from benchmarks.suites.gpu import distance, failed, operands
from benchmarks.suites.gpu_timing import gpu_torch, measure_gpu
from tilewright import ops
from tilewright.diagnostics import TilewrightError
from tilewright.passes.pipeline import switches_of
from tilewright.targets.cuda.pipeline import ASYNCHRONOUS
from tilewright.tools.measure import Case, Contender, MeasuredRow

PASSES = tuple(switches_of(ASYNCHRONOUS))
"""What can be left out where copies and products run beside the program."""

LIMIT = 8e-3
"""Relative error of bf16 results."""


@dataclass(frozen=True)
class Subject:
    """A kernel to leave passes out of. `run` takes options of the kernel and fills the result."""

    name: str
    run: Callable[[dict[str, Any]], Any]
    error: Callable[[], float]
    work: float
    """TFLOP of one run."""
    passes: tuple[str, ...] = PASSES
    target: str = "cuda"


def product(torch: Any, size: int, target: str, passes: tuple[str, ...]) -> Subject:
    """bf16 C = A B of square matrices, B stored by columns (NT)."""
    a, b, c = operands(torch, "bf16", "NT", size, size, size)
    grid = tw.cdiv(size, 128), tw.cdiv(size, 256)
    return Subject(
        f"bf16 NT {size}^3, {target}",
        lambda options: gpu_kernels.product.options(**options)[grid](a, b, c),
        lambda: distance(torch, c[:192], a[:192].double() @ b.double()),
        2e-12 * size**3,
        passes,
        target,
    )


def attention(torch: Any, length: int, causal: bool) -> Subject:
    """`ops.attention` in bf16, 64 heads of dimension 128."""
    q, k, v = (torch.randn(64, length, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty_like(q)

    def error() -> float:
        s = q[0].double() @ k[0].double().T / 128**0.5
        if causal:
            s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), float("-inf"))
        return distance(torch, out[0], torch.softmax(s, -1) @ v[0].double())

    return Subject(
        f"attention bf16 64x{length}x128{' causal' if causal else ''}",
        lambda options: ops.attention(q, k, v, causal=causal, out=out, **options),
        error,
        2e-12 * 64 * length**2 * 128 * (1 if causal else 2),
    )


def gpu_passes(settings: Settings) -> Iterator[MeasuredRow]:
    """Products on both paths and attention, a contender for every pass that is left out."""
    torch = gpu_torch()
    for size in settings.sizes or (4096,):
        for make in (
            lambda n=size: product(torch, n, "cuda", PASSES),
            lambda n=size: product(torch, n, "sm_80", ("cp-async",)),
            lambda n=size: attention(torch, n, False),
            lambda n=size: attention(torch, n, True),
        ):
            yield from without_each(torch, make(), settings)


def without_each(torch: Any, subject: Subject, settings: Settings) -> Iterator[MeasuredRow]:
    """The row of a subject, behind rows that say which contenders are not timed and why."""
    contenders: list[Contender] = []
    for name in ("", *subject.passes):
        options: dict[str, Any] = {"target": subject.target}
        if name:
            options["disable"] = (name,)
        told = f"without {name}" if name else "tilewright"

        def run(options: dict[str, Any] = options) -> Any:
            return subject.run(options)

        try:
            run()
            torch.cuda.synchronize()
        except TilewrightError as problem:
            yield failed(f"{subject.name} {told}", problem.message)
            continue
        if (off := subject.error()) <= LIMIT:
            contenders.append(Contender(told, run))
        else:
            yield failed(f"{subject.name} {told}", f"wrong by {off:.2e}")
    if len(contenders) > 1 and contenders[0].name == "tilewright":
        case = Case(subject.name, contenders, subject.work, "TFLOP/s")
        yield measure_gpu(case, rounds=settings.rounds)
