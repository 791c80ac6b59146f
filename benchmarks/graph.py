"""Kernels from graphs beside the same by hand and beside torch: products in a row, fused layers, blocks of models.

    python -m benchmarks.graph [--device cuda|cpu] [--dtype bfloat16|float32] [--rounds 20] [--only NAME ...]
                               [--small] [--compile-peer [MODE]]

Rows that begin with "block" are modules of `suites/blocks.py` by way of `G.from_torch`.

Rows are timed in turn with their peers in one process, medians of whole launches, with as many threads; on a GPU each
side is captured in a CUDA graph. Ratios above 1 say that the graph's kernel is faster. `--compile-peer` adds
torch.compile (max-autotune by default). On a CPU the rows of (A B) C are the bar (the intermediate is larger than its
caches); the others want `--small`.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false

from __future__ import annotations

import argparse
import statistics
import time

import torch

import tilewright as tw
from benchmarks.suites import blocks, gpu_kernels
from tilewright import graph as G
from tilewright import ops

CHAINS = ((16384, 4096, 64, 64), (16384, 4096, 128, 128), (8192, 8192, 128, 128))
"""M, N, K, P of [M, K] [K, N] [N, P]: an intermediate of 64 Mi elements."""


def back_to_back(a, b, c):
    return (a @ b) @ c


def attention(q, k, v):
    return G.softmax((q @ k.swapaxes(-1, -2)) * (1 / 128**0.5)) @ v


def gated(x, gate, up):
    return G.silu(x @ gate) * (x @ up)


def norm_linear(x, weight, w):
    return G.rms_norm(x, weight) @ w


def layer_norm_linear(x, weight, bias, w, b):
    return G.layer_norm(x, weight, bias) @ w.T + b


def embedding(ids, table, w):
    return table[ids] @ w


def torch_attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def torch_norm_linear(x, weight, w):
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-6) @ w


def torch_layer_norm_linear(x, weight, bias, w, b):
    f = torch.nn.functional
    return f.linear(f.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5), w, b)


def by_hand(a, b, c):
    """The tile kernel of the GPU suite for (A B) C."""
    d = torch.empty(a.shape[0], c.shape[1], device=a.device, dtype=a.dtype)
    constants = {"K": a.shape[1], "P": c.shape[1]}

    def run():
        gpu_kernels.two_products[tw.cdiv(a.shape[0], 128)](a, b, c, d, **constants)
        return d

    return run


def cases(device, dtype, small):
    def rand(*shape):
        return torch.randn(shape, device=device, dtype=dtype) / shape[-1] ** 0.25

    f = torch.nn.functional
    scale = 8 if small else 1
    for m, n, k, p in CHAINS:
        arrays = rand(m // scale, k), rand(k, n // scale), rand(n // scale, p)
        peers = {"hand": by_hand(*arrays)}
        yield f"back_to_back {m}x{n}x{k}x{p}", back_to_back, arrays, back_to_back, peers
    q, k, v = (rand(64 // scale, 4096 // scale, 128) for _ in range(3))
    yield (
        "attention",
        attention,
        (q, k, v),
        torch_attention,
        {"ops": lambda: ops.attention(q, k, v)},
    )
    x, up, gate = rand(4096 // scale, 4096), rand(4096, 11008), rand(4096, 11008)
    yield "gated", gated, (x, gate, up), lambda x, g, u: f.silu(x @ g) * (x @ u), {}
    w = rand(4096, 4096)
    yield "norm_linear", norm_linear, (x, rand(4096), w), torch_norm_linear, {}
    arrays = (x, rand(4096), rand(4096), w, rand(4096))
    yield "layer_norm_linear", layer_norm_linear, arrays, torch_layer_norm_linear, {}
    ids = torch.randint(0, 32000, (8192 // scale,), device=device, dtype=torch.int32)
    yield "embedding", embedding, (ids, rand(32000, 4096), w), lambda i, t, w: t[i] @ w, {}


def graphs(device, dtype, small, only):
    """Name, graph, the arrays it takes, the peer, the arrays that takes, and further sides."""

    def wanted(name):
        return not only or name.startswith(tuple(only))

    if not only or any(not o.startswith("block") for o in only):
        for name, function, arrays, plain, peers in cases(device, dtype, small):
            if wanted(name):
                yield name, G.trace(function, *arrays), arrays, plain, arrays, peers
    for kind in filter(lambda k: wanted(f"block {k}"), blocks.BLOCKS):
        module, arrays = blocks.drawn(kind, device, dtype, 8 if small else 1)
        graph, weights = G.from_torch(torch.export.export(module, arrays))
        yield f"block {kind}", graph, (*arrays, *weights), module, arrays, {}


def captured(run, device):
    """A launch to time: on a GPU, a CUDA graph of it."""
    if device != "cuda":
        return run
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def seconds(run, device):
    if device != "cuda":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(5):
        run()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 5e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16", help="of torch: bfloat16, float32")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="names of rows, or their beginnings")
    parser.add_argument("--small", action="store_true", help="an eighth of the rows")
    parser.add_argument(
        "--compile-peer",
        nargs="?",
        const="max-autotune-no-cudagraphs",
        help="torch.compile too, in this mode",
    )
    options = parser.parse_args()
    device = options.device
    target = {"target": "cuda"} if device == "cuda" else {}
    dtype = getattr(torch, options.dtype)
    torch.set_grad_enabled(False)
    ratios: dict[str, list[float]] = {}
    for name, graph, arrays, plain, given, peers in graphs(
        device, dtype, options.small, options.only
    ):
        fused = graph.compile(**target)
        start = time.perf_counter()
        plan = fused.plan(**fused.sizes(*arrays))
        planned = time.perf_counter() - start
        out = fused(*arrays)
        made = time.perf_counter() - start - planned
        want = plain(*given)
        error = ((out.double() - want.double()).norm() / want.double().norm()).item()
        sides = {"graph": lambda: fused(*arrays, out=out), "torch": lambda: plain(*given), **peers}  # noqa: B023
        if options.compile_peer:
            best = torch.compile(plain, mode=options.compile_peer)
            try:
                best(*given)
                sides["torch.compile"] = lambda: best(*given)  # noqa: B023
            except Exception as error:
                print(f"{name}: torch.compile: {str(error).splitlines()[0]}")
        for run in sides.values():
            run()
        sides = {side: captured(run, device) for side, run in sides.items()}
        times = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side, run in sides.items():
                times[side].append(seconds(run, device))
        median = {side: statistics.median(t) for side, t in times.items()}
        for side in list(sides)[1:]:
            ratios.setdefault(side, []).append(median[side] / median["graph"])
        compared = ", ".join(f"{r[-1]:.2f} of {s}" for s, r in ratios.items() if s in median)
        print(
            f"{name}: {median['graph'] * 1e6:.0f} us in {len(plan.kernels)} kernels (estimated "
            f"{plan.schedule.seconds * 1e6:.0f}), {compared}; off by {error:.1e}; planned in {planned:.1f} s, "
            f"compiled in {made:.1f} s",
            flush=True,
        )
    for side, each in ratios.items():
        print(
            f"{side}: geometric mean {statistics.geometric_mean(each):.2f}, worst {min(each):.2f}"
        )


if __name__ == "__main__":
    main()
