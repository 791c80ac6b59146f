"""GEMM and attention beside their peers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.suites import Settings
from benchmarks.suites.data import LIMITS, check_close, random, tensor, torch_or_none, zeros
from tilewright import ops
from tilewright.tools.measure import Case, Contender, MeasuredRow, measure


@tw.kernel
def square_gemm(  # pyright: ignore
    A: Any, B: Any, C: Any, BM: tw.constexpr = 256, BN: tw.constexpr = 256, BK: tw.constexpr = 32
):
    """The kernel as a user writes it first, with no tuning."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), tw.f32)
    for _ in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def gemm(settings: Settings) -> Iterator[MeasuredRow]:
    """C = A B of every size and dtype on every number of threads."""
    for size in settings.sizes or (2048,):
        for dtype in settings.dtypes or ("bf16", "f32"):
            a, b = random((size, size), dtype), random((size, size), dtype)
            c = zeros(a.shape, a.dtype)
            grid = (tw.cdiv(size, 256), tw.cdiv(size, 256))
            for threads in settings.threads:
                launch = square_gemm.options(target=settings.target, num_threads=threads)[grid]
                torch = torch_or_none(settings.against, threads)
                if torch is not None:
                    ta, tb, tc = (
                        tensor(torch, a),
                        tensor(torch, b),
                        tensor(torch, zeros(a.shape, a.dtype)),
                    )
                    peer = Contender(
                        "torch", lambda torch=torch, ta=ta, tb=tb, tc=tc: torch.mm(ta, tb, out=tc)
                    )
                else:
                    wa, wb = a.astype(np.float32), b.astype(np.float32)
                    peer = Contender("numpy f32", lambda wa=wa, wb=wb: wa @ wb)
                launch(a, b, c)
                check_close(
                    c[:64].astype(np.float64),
                    a[:64].astype(np.float64) @ b.astype(np.float64),
                    LIMITS[dtype],
                    "gemm",
                )
                ours = Contender("tilewright", lambda launch=launch, a=a, b=b, c=c: launch(a, b, c))
                yield measure(
                    Case(
                        f"gemm {dtype} {size}", [ours, peer], 2e-9 * size**3, "GFLOP/s", threads,
                        {"size": size, "dtype": dtype},
                    ),
                    rounds=settings.rounds,
                )  # fmt: skip


def attention(settings: Settings) -> Iterator[MeasuredRow]:
    """ops.attention, 16 heads, d = 64, plain and causal."""
    heads, d = 16, 64
    for length in settings.sizes or (4096,):
        for dtype in settings.dtypes or ("bf16",):
            q, k, v = (random((heads, length, d), dtype) for _ in range(3))
            out = zeros(q.shape, q.dtype)
            for threads in settings.threads:
                for causal in (False, True):
                    yield _attention(settings, (q, k, v, out), dtype, threads, causal)


def cpu_attention(settings: Settings) -> Iterator[MeasuredRow]:
    """The same of two-byte floats, at every length and head dimension of the bars."""
    for dtype in settings.dtypes or ("bf16", "f16"):
        for d in (64, 128):
            for length in settings.sizes or (512, 1024, 2048, 4096):
                q, k, v = (random((16, length, d), dtype) for _ in range(3))
                arrays = q, k, v, zeros(q.shape, q.dtype)
                for threads in settings.threads:
                    for causal in (False, True):
                        yield _attention(settings, arrays, dtype, threads, causal)


def _attention(
    settings: Settings, arrays: Any, dtype: str, threads: int, causal: bool
) -> MeasuredRow:
    q, k, v, out = arrays
    heads, length, d = q.shape
    options: dict[str, Any] = {"target": settings.target, "num_threads": threads}

    def ours() -> None:
        ops.attention(q, k, v, causal=causal, out=out, **options)

    contenders = [Contender("tilewright", ours)]
    ours()
    torch = torch_or_none(settings.against, threads)
    if torch is not None:
        tq, tk, tv = (tensor(torch, x).unsqueeze(0) for x in (q, k, v))

        def theirs() -> Any:
            return torch.nn.functional.scaled_dot_product_attention(tq, tk, tv, is_causal=causal)

        contenders.append(Contender("torch", theirs))
        expected = theirs()[0].double()
    else:
        wq, wk, wv = (x.astype(np.float32) for x in (q, k, v))
        contenders.append(Contender("numpy f32", lambda: _plain_attention(wq, wk, wv, causal)))
        expected = _plain_attention(wq, wk, wv, causal)
    check_close(out.astype(np.float64), expected, LIMITS[dtype], "attention")
    # Of the two products half the work is masked when causal.
    flops = 4 * heads * length**2 * d * (0.5 if causal else 1)
    name = f"attention {dtype} {heads}x{length}x{d}{' causal' if causal else ''}"
    facts = {"size": length, "dtype": dtype, "causal": causal}
    case = Case(name, contenders, 1e-9 * flops, "GFLOP/s", threads, facts)
    return measure(case, rounds=settings.rounds)


def _plain_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """softmax(q k^T / sqrt(d)) v of each head, in numpy."""
    out = zeros(q.shape, q.dtype)
    for head in range(len(q)):
        scores = q[head] @ k[head].T / np.float32(np.sqrt(q.shape[-1]))
        if causal:
            scores[np.triu_indices(len(scores), 1)] = -np.inf
        e = np.exp(scores - scores.max(-1, keepdims=True))
        out[head] = (e / e.sum(-1, keepdims=True)) @ v[head]
    return out
