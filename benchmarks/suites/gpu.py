"""The GPU beside cuBLAS, cuDNN, torch.compile and Triton: products, epilogues, attention, launches.

A case whose program the compiler refuses, or whose result is wrong, is reported as such and not
timed. `PROOFS` may name a folder with the project's hand-scheduled kernels, which then run beside.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tilewright as tw
from benchmarks.suites import Settings, gpu_kernels
from benchmarks.suites.gpu_timing import captured, gpu_torch, measure_gpu
from tilewright import ops
from tilewright.diagnostics import TilewrightError
from tilewright.tools.measure import Case, Contender, Measured, MeasuredRow

PROOFS: Path | None = None

NAMES = {"bf16": "bfloat16", "f16": "float16", "tf32": "float32", "f32": "float32"}
LIMITS = {"bf16": 8e-3, "f16": 2e-3, "tf32": 2e-3, "i8": 0.0, "f8e4m3": 8e-3}

RAGGED = (
    (16384, 64, 4096), (64, 16384, 4096), (128, 128, 16384), (8192, 8192, 64),
    (4096, 4095, 4096), (4095, 4096, 4096), (3000, 5000, 1024), (1, 8192, 8192), (4096, 4096, 1015),
)  # fmt: skip


def failed(name: str, why: str) -> MeasuredRow:
    """The row of a case that was not timed."""
    case = Case(f"{name}: {why}", [], 1, "us")
    return MeasuredRow(
        case, [Measured("tilewright", math.nan, math.nan, math.nan, math.nan, math.nan)]
    )


def checked(
    name: str,
    settings: Settings,
    ours: Callable[[], Any],
    peers: list[Contender],
    work: float,
    unit: str,
    error: Callable[[], float],
    limit: float,
) -> MeasuredRow:
    """The measured case, or the reason why there is none."""
    try:
        ours()
        gpu_torch().cuda.synchronize()
    except TilewrightError as problem:
        return failed(name, str(problem).splitlines()[0])
    off = error()
    if not off <= limit:
        return failed(name, f"wrong by {off:.2e}")
    case = Case(name, [Contender("tilewright", ours), *peers], work, unit)
    return measure_gpu(case, rounds=settings.rounds)


def distance(torch: Any, got: Any, wanted: Any) -> float:
    """Relative Frobenius norm of the difference."""
    norm = wanted.double().norm().item()
    return float((got.double() - wanted.double()).norm().item() / max(norm, 1e-30))


def operands(torch: Any, dtype: str, layout: str, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """A [M, K] and B [K, N] as views whose memory is N (row-major) or T (transposed), and C."""
    shapes = ((m, k) if layout[0] == "N" else (k, m), (k, n) if layout[1] == "N" else (n, k))
    if dtype == "i8":
        a, b = (torch.randint(-128, 128, s, dtype=torch.int8, device="cuda") for s in shapes)
        c = torch.empty(m, n, dtype=torch.int32, device="cuda")
    elif dtype == "f8e4m3":
        a, b = (torch.randn(s, device="cuda").to(torch.float8_e4m3fn) for s in shapes)
        c = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    else:
        kind = getattr(torch, NAMES[dtype])
        a, b = (torch.randn(s, device="cuda", dtype=kind) for s in shapes)
        c = torch.full((m, n), float("nan"), device="cuda", dtype=kind)
    return (a if layout[0] == "N" else a.T), (b if layout[1] == "N" else b.T), c


def library(torch: Any, dtype: str, a: Any, b: Any, out: Any) -> Callable[[], Any]:
    """cuBLAS through torch."""
    if dtype == "i8":
        return lambda: torch._int_mm(a, b)
    if dtype == "f8e4m3":
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
    return lambda: torch.mm(a, b, out=out)


def product_row(
    settings: Settings, dtype: str, layout: str, m: int, n: int, k: int, proof: bool = False
) -> MeasuredRow:
    """One product beside cuBLAS, both in CUDA graphs: what a launch costs Python is no part of it."""
    torch = gpu_torch()
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    a, b, c = operands(torch, dtype, layout, m, n, k)
    name = f"{dtype} {layout} {m}x{n}x{k}"
    options: dict[str, Any] = {"ACC": tw.i32} if dtype == "i8" else {}
    kernel = gpu_kernels.product
    if dtype == "tf32":
        kernel = gpu_kernels.product_tf32
    launch = kernel[lambda BM, BN: (tw.cdiv(m, BM), tw.cdiv(n, BN))]
    options |= dict.fromkeys(("BM", "BN", "BK"), tw.auto)

    def ours() -> None:
        launch(a, b, c, **options)

    def error() -> float:
        rows = slice(0, min(m, 192))
        wide = torch.float64
        return distance(torch, c[rows], a[rows].to(wide) @ b.to(wide))

    peer = library(torch, dtype, a, b, torch.empty_like(c))
    try:
        peer()
    except RuntimeError as problem:
        return failed(name, f"cuBLAS: {str(problem).splitlines()[0][:80]}")
    try:
        run = captured(torch, ours)
    except TilewrightError as problem:
        return failed(name, str(problem).splitlines()[0])
    peers = [Contender("cuBLAS", captured(torch, peer))]
    if proof and PROOFS is not None and dtype in ("bf16",) and layout == "NT":
        from benchmarks.suites.gpu_proofs import gemm_proof

        peers.append(Contender("proof", gemm_proof(PROOFS, a, b.T, torch.empty_like(c))))
    return checked(name, settings, run, peers, 2e-12 * m * n * k, "TFLOP/s", error, LIMITS[dtype])


def gpu_gemm(settings: Settings) -> Iterator[MeasuredRow]:
    """Square products: bf16 NT with the proofs, f16 and bf16 in every layout, other types."""
    sizes = settings.sizes or (2048, 4096, 8192)
    wanted = settings.dtypes or ("bf16", "f16", "tf32", "i8", "f8e4m3")
    for size in sizes:
        for dtype in wanted:
            if dtype in ("bf16", "f16"):
                for layout in ("NT", "NN", "TN"):
                    yield product_row(settings, dtype, layout, size, size, size, proof=True)
            elif size == 4096 or len(sizes) == 1:
                for layout in ("NT", "NN", "TN") if dtype == "tf32" else ("NT",):
                    yield product_row(settings, dtype, layout, size, size, size)


def gpu_ragged(settings: Settings) -> Iterator[MeasuredRow]:
    """Ragged and skinny products, bf16 NT."""
    for m, n, k in RAGGED:
        yield product_row(settings, "bf16", "NT", m, n, k)


def _compiled(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, mode="max-autotune-no-cudagraphs", fullgraph=True)


def gpu_epilogues(settings: Settings) -> Iterator[MeasuredRow]:
    """Fused products beside eager torch and torch.compile max-autotune."""
    torch = gpu_torch()
    for size in settings.sizes or (4096,):
        yield from _epilogues(torch, settings, size)


def _epilogues(torch: Any, settings: Settings, n: int) -> Iterator[MeasuredRow]:
    a, b, c = operands(torch, "bf16", "NT", n, n, n)
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    sums = torch.zeros(n, 1, device="cuda", dtype=torch.float32)
    grid = (tw.cdiv(n, 128), tw.cdiv(n, 256))
    flops = 2e-12 * n**3
    part = slice(0, 192)

    def gelu(x: Any, y: Any, z: Any) -> Any:
        return torch.nn.functional.gelu(x @ y + z, approximate="tanh")

    def reference() -> Any:
        wide = a[part].double() @ b.double() + bias.double()
        return wide

    def peers(function: Callable[..., Any], *args: Any) -> list[Contender]:
        fast = _compiled(torch, function)
        return [
            Contender("torch.compile", lambda: fast(*args)),
            Contender("eager", lambda: function(*args)),
        ]

    yield checked(
        f"bias + gelu bf16 {n}^3", settings,
        lambda: gpu_kernels.product_bias_gelu[grid](a, b, bias, c), peers(gelu, a, b, bias),
        flops, "TFLOP/s",
        lambda: distance(torch, c[part], torch.nn.functional.gelu(reference(), approximate="tanh")),
        8e-3,
    )  # fmt: skip

    def row_sum(x: Any, y: Any, z: Any) -> Any:
        out = x @ y + z
        return out, out.sum(1, dtype=torch.float32)

    def ours_row_sum() -> None:
        sums.zero_()
        gpu_kernels.product_bias_row_sum[grid](a, b, bias, c, sums)

    yield checked(
        f"bias + row sum bf16 {n}^3", settings, ours_row_sum, peers(row_sum, a, b, bias),
        flops, "TFLOP/s", lambda: distance(torch, sums[part, 0], reference().sum(1)), 8e-3,
    )  # fmt: skip
    q = torch.randint(-128, 128, (n, n), dtype=torch.int8, device="cuda")
    scale = torch.rand(n, 1, device="cuda", dtype=torch.float16) / 64
    h = torch.randn(n, n, device="cuda", dtype=torch.float16).T
    d = torch.empty(n, n, device="cuda", dtype=torch.float16)

    def dequantised(x: Any, s: Any, y: Any) -> Any:
        return (x.to(torch.float16) * s) @ y

    yield checked(
        f"dequantised i8 A, f16 {n}^3", settings,
        lambda: gpu_kernels.product_dequantised[grid](q, scale, h, d),
        peers(dequantised, q, scale, h), flops, "TFLOP/s",
        lambda: distance(torch, d[part], (q[part].double() * scale[part].double()) @ h.double()),
        4e-3,
    )  # fmt: skip


def torch_attention(
    torch: Any, backend: str, q: Any, k: Any, v: Any, causal: bool
) -> Callable[[], Any]:
    """scaled_dot_product_attention by one of torch's `SDPBackend`."""
    from torch.nn.attention import SDPBackend, sdpa_kernel  # pyright: ignore

    def run() -> Any:
        with sdpa_kernel(getattr(SDPBackend, backend)):
            return torch.nn.functional.scaled_dot_product_attention(
                q[None], k[None], v[None], is_causal=causal
            )

    return run


def attention_distance(
    torch: Any, q: Any, k: Any, v: Any, out: Any, causal: bool, rows: slice = slice(None)
) -> float:
    """How far the first head's rows of attention are from float64's."""
    s = q[0, rows].double() @ k[0].double().T / q.shape[-1] ** 0.5
    if causal:
        unseen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).triu(1)
        s = s.masked_fill(unseen[rows], -math.inf)
    return distance(torch, out[0, rows], torch.softmax(s, -1) @ v[0].double())


def gpu_attention(settings: Settings) -> Iterator[MeasuredRow]:
    """ops.attention bf16 beside cuDNN: d 128 full at 4k and 16k, d 64, causal."""
    torch = gpu_torch()
    cases = [(64, 4096, 128, False), (16, 16384, 128, False), (64, 4096, 128, True),
             (64, 4096, 64, False), (64, 4096, 64, True)]  # fmt: skip
    for heads, length, d, causal in cases:
        if settings.sizes and length not in settings.sizes:
            continue
        q, k, v = (
            torch.randn(heads, length, d, device="cuda", dtype=torch.bfloat16) for _ in range(3)
        )
        out = torch.full_like(q, float("nan"))

        def ours(q: Any = q, k: Any = k, v: Any = v, out: Any = out, causal: bool = causal) -> Any:
            ops.attention(q, k, v, causal=causal, out=out)

        error = partial(attention_distance, torch, q, k, v, out, causal)
        theirs = torch_attention(torch, "CUDNN_ATTENTION", q, k, v, causal)
        peers = [Contender("cuDNN", captured(torch, theirs))]
        if PROOFS is not None and d == 128 and not causal:
            from benchmarks.suites.gpu_proofs import attention_proof

            peers.append(Contender("proof", attention_proof(PROOFS, q, k, v, torch.empty_like(q))))
        flops = 4 * heads * length**2 * d * (0.5 if causal else 1)
        name = f"attention bf16 {heads}x{length}x{d}{' causal' if causal else ''}"
        yield checked(name, settings, ours, peers, 1e-12 * flops, "TFLOP/s", error, 8e-3)


def gpu_back_to_back(settings: Settings) -> Iterator[MeasuredRow]:
    """(A B) C fused beside two cuBLAS calls, both as CUDA graphs."""
    torch = gpu_torch()
    for m, k, n, p in ((65536, 64, 4096, 64), (16384, 128, 4096, 128), (65536, 64, 64, 64)):
        a, b, c, d = (
            torch.randn(s, device="cuda", dtype=torch.bfloat16)
            for s in ((m, k), (k, n), (n, p), (m, p))
        )
        grid, bn = tw.cdiv(m, 128), min(128, n)
        name = f"(A B) C bf16 {(m, k, n, p)}"

        def fused(
            a: Any = a, b: Any = b, c: Any = c, d: Any = d, grid: int = grid, bn: int = bn
        ) -> None:
            sizes = {"K": a.shape[1], "P": c.shape[1], "BN": bn}
            gpu_kernels.two_products[grid](a, b, c, d, **sizes)

        def error(a: Any = a, b: Any = b, c: Any = c, d: Any = d) -> float:
            part = slice(0, 256)
            return distance(torch, d[part], a[part].double() @ b.double() @ c.double())

        try:
            fused()
            run: Callable[[], Any] = captured(torch, fused)
        except TilewrightError as problem:
            yield failed(name, str(problem).splitlines()[0])
            continue
        twice = captured(torch, lambda a=a, b=b, c=c: (a @ b) @ c)
        flops = 2e-12 * m * n * (k + p)
        yield checked(
            name, settings, run, [Contender("two cuBLAS calls", twice)], flops, "TFLOP/s", error, 1e-2
        )  # fmt: skip


def gpu_launch(settings: Settings) -> Iterator[MeasuredRow]:
    """Host time of enqueuing a ready kernel with three tensors of shapes seen before."""
    torch = gpu_torch()
    x, y, z = (torch.ones(16, 16, device="cuda") for _ in range(3))
    run = gpu_kernels.add_one_tile[1]
    contenders = [
        Contender("tilewright", lambda: run(x, y, z)),
        Contender("torch.add", lambda: torch.add(x, y, out=z)),
    ]
    from benchmarks.suites.gpu_triton import triton_add

    if (theirs := triton_add(x, y, z)) is not None:
        contenders.append(Contender("Triton", theirs))
    try:
        contenders[0].run()
    except TilewrightError as problem:
        yield failed("launch", str(problem).splitlines()[0])
        return
    yield host_row(torch, Case("launch, three tensors", contenders, 1, "us"), settings.rounds)


def host_row(torch: Any, case: Case, rounds: int) -> MeasuredRow:
    """Host seconds per call, enqueued in batches that the device's queue holds."""
    from statistics import median

    for contender in case.contenders:
        contender.run()
    times: list[list[float]] = [[] for _ in case.contenders]
    for _ in range(max(rounds, 5)):
        for i, contender in enumerate(case.contenders):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(200):
                contender.run()
            times[i].append((time.perf_counter() - start) / 200)
    results = [
        Measured(c.name, median(t), min(t), max(t), median(t) * 1e6, median(t) / median(times[0]))
        for c, t in zip(case.contenders, times, strict=True)
    ]
    return MeasuredRow(case, results)
