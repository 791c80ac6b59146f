"""The CPU beside oneDNN, MKL and torch.compile: products of every form, fused products, rows beside a copy.

Everything that a launch does is timed, packing included. What is wrong is refused before it is timed. On one thread
the clock is that of the process, so that others on the machine take none of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.suites import Settings
from benchmarks.suites.data import LIMITS, check_close, random, tensor, torch_or_none, zeros
from benchmarks.suites.layers import Shape, drawn
from tilewright import ops
from tilewright.ops.matmul import gelu
from tilewright.tools.measure import Case, Contender, MeasuredRow
from tilewright.tools.measure import measure as measured

RAGGED = (
    (1016, 1016, 1016, "nn"), (2047, 2047, 2047, "nn"), (4095, 4095, 4095, "nn"),
    (1, 4096, 4096, "nn"), (8, 4096, 4096, "nn"), (16, 4096, 4096, "nn"), (128, 4096, 4096, "nn"),
    (1, 4096, 4096, "nt"), (8, 4096, 4096, "nt"), (128, 4096, 4096, "nt"),
    (4096, 17, 4096, "nn"), (333, 64, 5000, "nn"),
    (1024, 1024, 1024, "nt"), (1024, 1024, 1024, "tn"), (4096, 4096, 64, "nn"),
)  # fmt: skip
"""M, N, K and which operands are transposed views."""

MOST = 2.0**36
"""Operations a thread, of the shapes that are drawn."""


def measure(case: Case, settings: Settings) -> MeasuredRow:
    clock = time.process_time if case.threads == 1 else time.perf_counter
    return measured(case, rounds=settings.rounds, clock=clock)


def operand(shape: tuple[int, int], dtype: str, transposed: bool) -> Any:
    return random(shape[::-1], dtype).T if transposed else random(shape, dtype)


def _view(torch: Any, x: Any) -> Any:
    """A torch tensor of a matrix, however its rows lie."""
    return tensor(torch, x) if x.flags.c_contiguous else tensor(torch, x.T).T


def _product(
    settings: Settings, m: int, n: int, k: int, form: str, dtype: str, threads: int
) -> MeasuredRow:
    a = operand((m, k), dtype, form[0] == "t")
    b = operand((k, n), dtype, form[1] == "t")
    c = zeros((m, n), np.int32 if dtype == "i8" else a.dtype)
    options: dict[str, Any] = {"target": settings.target, "num_threads": threads}

    def ours() -> None:
        ops.matmul(a, b, out=c, **options)

    contenders = [Contender("tilewright", ours)]
    torch = torch_or_none(settings.against, threads)
    if torch is not None:
        ta, tb, tc = _view(torch, a), _view(torch, b), tensor(torch, zeros(c.shape, c.dtype))
        mm = torch._int_mm if dtype == "i8" else torch.mm
        contenders.append(Contender("torch", lambda: mm(ta, tb, out=tc)))
    elif dtype != "i8":
        wa, wb = a.astype(np.float32), b.astype(np.float32)
        contenders.append(Contender("numpy f32", lambda: wa @ wb))
    ours()
    rows = slice(0, min(m, 64))
    expected = a[rows].astype(np.float64) @ b.astype(np.float64)
    check_close(c[rows], expected, LIMITS.get(dtype, 1e-9), "gemm")
    facts = {"m": m, "n": n, "k": k, "form": form, "dtype": dtype}
    name = f"gemm {dtype} {m}x{n}x{k} {form}"
    case = Case(name, contenders, 2e-9 * m * n * k, "GFLOP/s", threads, facts)
    return measure(case, settings)


def cpu_gemm(settings: Settings) -> Iterator[MeasuredRow]:
    """Squares of every type that the machine multiplies fast."""
    for dtype in settings.dtypes or ("bf16", "f16", "i8", "f32"):
        for size in settings.sizes or ((256,) if dtype == "f32" else ()) + (1024, 2048, 4096):
            for threads in settings.threads:
                yield _product(settings, size, size, size, "nn", dtype, threads)


def cpu_ragged(settings: Settings) -> Iterator[MeasuredRow]:
    """Extents that divide nothing, products with one short side, operands that are transposed views; squares of the
    sizes that are asked for."""
    products = [(n, n, n, form) for n in settings.sizes or () for form in ("nn", "nt", "tn")]
    for dtype in settings.dtypes or ("bf16", "f32"):
        for m, n, k, form in products or RAGGED:
            for threads in settings.threads:
                yield _product(settings, m, n, k, form, dtype, threads)


def shapes(settings: Settings, threads: int) -> list[Shape]:
    """Drawn products of at most `MOST` operations a thread; squares of the sizes that are asked for."""
    dtypes = settings.dtypes or ("bf16", "i8", "f32")
    if settings.sizes:
        return [Shape(n, n, n, "NN", dtype) for n in settings.sizes for dtype in dtypes]
    return sorted(drawn(settings.count, settings.seed, dtypes, MOST * threads))


def cpu_shapes(settings: Settings) -> Iterator[MeasuredRow]:
    """`ops.matmul` on products as language models have them."""
    for threads in settings.threads:
        for s in shapes(settings, threads):
            yield _product(settings, s.m, s.n, s.k, s.layout.lower(), s.dtype, threads)


def _compiled(torch: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def cpu_fused(settings: Settings) -> Iterator[MeasuredRow]:
    """gelu(x w + b), 4096 x K x 4096, beside torch.compile."""
    for dtype in settings.dtypes or ("bf16",):
        for k in settings.sizes or (256, 1024):
            x, w, bias = (random(s, dtype) for s in ((4096, k), (k, 4096), (4096,)))
            w = (w.astype(np.float32) / k**0.5).astype(w.dtype)
            y = zeros((4096, 4096), x.dtype)
            for threads in settings.threads:
                options: dict[str, Any] = {"target": settings.target, "num_threads": threads}

                def ours(
                    x: Any = x, w: Any = w, b: Any = bias, y: Any = y, o: Any = options
                ) -> None:
                    ops.matmul(x, w, bias=b, activation="gelu", out=y, **o)

                contenders = [Contender("tilewright", ours)]
                torch = torch_or_none(settings.against, threads)
                ours()
                if torch is not None:
                    given = [tensor(torch, v) for v in (x, w, bias)]
                    gelu = torch.nn.functional.gelu
                    fused = _compiled(torch, lambda x, w, b, gelu=gelu: gelu(x @ w + b))
                    expected = fused(*given).double().numpy()
                    check_close(y.astype(np.float64), expected, LIMITS[dtype], "fused")
                    contenders.append(
                        Contender("torch.compile", lambda f=fused, given=given: f(*given))
                    )
                name = f"gelu(x w + b) {dtype} 4096x{k}x4096"
                case = Case(name, contenders, 2e-9 * 4096**2 * k, "GFLOP/s", threads, {"k": k})
                yield measure(case, settings)


@tw.kernel
def two_products(X, W, V, Y, BM: tw.constexpr = 256, D: tw.constexpr = 256):  # pyright: ignore
    """Y = gelu(X W) V, the intermediate in the workgroup's memory; W and V: [D, D]."""
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, D)))
    t = tw.tile_mma(x, tw.load_tile(tw.init_tile(W, [0, 0], (D, D))))
    t = gelu(t).to(V.dtype)
    y = tw.tile_mma(t, tw.load_tile(tw.init_tile(V, [0, 0], (D, D))))
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, 0], (BM, D)))


def cpu_two_products(settings: Settings) -> Iterator[MeasuredRow]:
    """gelu(x w) v, 32768 x 256 x 256 x 256, beside torch.compile."""
    m, d = 32768, 256
    for dtype in settings.dtypes or ("bf16",):
        x, w, v = (random(s, dtype) for s in ((m, d), (d, d), (d, d)))
        w, v = ((t.astype(np.float32) / d**0.5).astype(t.dtype) for t in (w, v))
        y = zeros(x.shape, x.dtype)
        for threads in settings.threads:
            run = two_products.options(target=settings.target, num_threads=threads)[tw.cdiv(m, 256)]
            contenders = [
                Contender("tilewright", lambda run=run, x=x, w=w, v=v, y=y: run(x, w, v, y))
            ]
            torch = torch_or_none(settings.against, threads)
            if torch is not None:
                given = [tensor(torch, t) for t in (x, w, v)]
                gelu = torch.nn.functional.gelu
                fused = _compiled(torch, lambda x, w, v, gelu=gelu: gelu(x @ w) @ v)
                run(x, w, v, y)
                expected = fused(*given).double().numpy()
                check_close(y.astype(np.float64), expected, LIMITS[dtype], "two products")
                contenders.append(
                    Contender("torch.compile", lambda f=fused, given=given: f(*given))
                )
            name = f"gelu(x w) v {dtype} {m}x{d}x{d}x{d}"
            yield measure(Case(name, contenders, 4e-9 * m * d * d, "GFLOP/s", threads), settings)


@tw.kernel
def chain(X, Y, BM: tw.constexpr, BN: tw.constexpr):  # pyright: ignore
    """Five elementwise ops."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))).to(tw.f32)
    y = tw.maximum(tw.minimum((x * 1.5 + 0.5) * x, 8.0), -8.0)
    tw.store_tile(y.to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


def cpu_rows(settings: Settings) -> Iterator[MeasuredRow]:
    """Row programs and a chain of elementwise ops, beside a copy of the same bytes."""
    size = 4096

    def of_chain(x: Any, w: Any, *, out: Any, **options: Any) -> None:
        chain.options(**options)[size // 4, 1](x, out, BM=4, BN=size)

    def of_softmax(x: Any, w: Any, **options: Any) -> None:
        ops.softmax(x, **options)

    programs = {
        "softmax": of_softmax, "layer_norm": ops.layer_norm, "rms_norm": ops.rms_norm,
        "chain of 5": of_chain,
    }  # fmt: skip
    for name, program in programs.items():
        for dtype in settings.dtypes or ("f32", "bf16", "f16"):
            x, w = random((size, size), dtype), random((size,), dtype)
            y, z = zeros(x.shape, x.dtype), zeros(x.shape, x.dtype)
            for threads in settings.threads:
                options = {"target": settings.target, "num_threads": threads, "out": y}
                run = Contender(
                    "tilewright",
                    lambda p=program, x=x, w=w, options=options: p(x, w, **options),
                )
                torch = torch_or_none(settings.against, threads)
                if torch is not None:
                    tx, tz = tensor(torch, x), tensor(torch, z)
                    copy = Contender("copy", lambda tx=tx, tz=tz: tz.copy_(tx))
                else:
                    copy = Contender("copy", lambda x=x, z=z: np.copyto(z, x))
                case = Case(f"{name} {dtype} {size}", [run, copy], 2e-9 * x.nbytes, "GB/s", threads)
                yield measure(case, settings)
