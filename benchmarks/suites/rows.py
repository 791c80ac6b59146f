"""Operations along rows, bound by memory: beside their peer and beside a plain copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.suites import Settings
from benchmarks.suites.data import LIMITS, check_close, random, tensor, torch_or_none, zeros
from tilewright import ops
from tilewright.tools.measure import Case, Contender, MeasuredRow, measure


def softmax(settings: Settings) -> Iterator[MeasuredRow]:
    """exp(x - max) / sum over rows."""

    def theirs(torch: Any, x: Any, w: Any, y: Any) -> Any:
        return torch.softmax(x, -1, out=y)

    def ours(x: Any, w: Any, **options: Any) -> None:
        ops.softmax(x, **options)

    def plain(x: Any, w: Any) -> Any:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    return _rows("softmax", settings, ours, theirs, plain)


def rms_norm(settings: Settings) -> Iterator[MeasuredRow]:
    """x * rsqrt(mean(x^2)) * w over rows."""

    def theirs(torch: Any, x: Any, w: Any, y: Any) -> Any:
        return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, 1e-6)

    def plain(x: Any, w: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w

    return _rows("rms_norm", settings, ops.rms_norm, theirs, plain)


def layer_norm(settings: Settings) -> Iterator[MeasuredRow]:
    """(x - mean) * rsqrt(var) * w over rows."""

    def theirs(torch: Any, x: Any, w: Any, y: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, None, 1e-5)

    def plain(x: Any, w: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w

    return _rows("layer_norm", settings, ops.layer_norm, theirs, plain)


def _rows(
    name: str,
    settings: Settings,
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    plain: Callable[..., Any],
) -> Iterator[MeasuredRow]:
    """Square inputs; bandwidth counts one read and one write of the matrix, as a copy does.

    `theirs` is torch's, `plain` the same in numpy on f32.
    """
    for size in settings.sizes or (4096,):
        for dtype in settings.dtypes or ("f32",):
            x, w = random((size, size), dtype), random((size,), dtype)
            y, z = zeros(x.shape, x.dtype), zeros(x.shape, x.dtype)
            for threads in settings.threads:
                options = {"target": settings.target, "num_threads": threads, "out": y}
                run = Contender(
                    "tilewright", lambda x=x, w=w, options=options: ours(x, w, **options)
                )
                contenders = [run]
                torch = torch_or_none(settings.against, threads)
                if torch is not None:
                    tx, tw, tz = (tensor(torch, a) for a in (x, w, z))
                    contenders += [
                        Contender(
                            "torch",
                            lambda torch=torch, tx=tx, tw=tw, tz=tz: theirs(torch, tx, tw, tz),
                        ),
                        Contender("copy", lambda tx=tx, tz=tz: tz.copy_(tx)),
                    ]
                    expected = theirs(torch, tx, tw, tz).double().numpy()
                else:
                    wx, ww = x.astype(np.float32), w.astype(np.float32)
                    contenders += [
                        Contender("numpy f32", lambda wx=wx, ww=ww: plain(wx, ww)),
                        Contender("copy", lambda x=x, z=z: np.copyto(z, x)),
                    ]
                    expected = plain(wx, ww)
                run.run()
                check_close(y.astype(np.float64), expected, LIMITS[dtype], name)
                facts = {"size": size, "dtype": dtype}
                case = Case(
                    f"{name} {dtype} {size}", contenders, 2e-9 * x.nbytes, "GB/s", threads, facts
                )
                yield measure(case, rounds=settings.rounds)
