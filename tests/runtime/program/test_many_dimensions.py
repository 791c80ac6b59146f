"""Random chains of vector ops of one to four dimensions: compiled, they give what the executor gives."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tests.runtime.program.fragments import launch

Shape = tuple[int, ...]


def vec(shape: Shape, element: str = "f32") -> str:
    return f"vector<{'x'.join(map(str, shape))}x{element}>"


def factors(n: int, rank: int, r: random.Random) -> Shape:
    out: list[int] = []
    for _ in range(rank - 1):
        out.append(r.choice([d for d in (1, 2, 4, 8) if n % d == 0]))
        n //= out[-1]
    out.append(n)
    r.shuffle(out)
    return tuple(out)


def one_op(kind: str, w: str, v: str, s: Shape, r: random.Random) -> tuple[str, Shape] | None:
    """One op on `v` of shape `s`, and its result's shape."""
    some = r.randrange(1, len(s)) if len(s) > 1 else 0
    at = [r.randrange(s[i]) for i in range(some)]
    match kind:
        case "transpose":
            order = r.sample(range(len(s)), len(s))
            t = tuple(s[i] for i in order)
            return f"{w} = vector.transpose {v}, {order} : {vec(s)} to {vec(t)}", t
        case "cast":
            t = factors(math.prod(s), r.choice((1, 2, 3, 4)), r)
            return f"{w} = vector.shape_cast {v} : {vec(s)} to {vec(t)}", t
        case "broadcast":
            t = tuple(n if n > 1 or r.random() < 0.5 else r.choice((2, 4)) for n in s)
            t = tuple(r.choice((1, 2, 4)) for _ in range(r.randrange(max(1, 5 - len(s))))) + t
            if math.prod(t) <= 2048:
                return f"{w} = vector.broadcast {v} : {vec(s)} to {vec(t)}", t
        case "reduce" if some:
            dims = sorted(r.sample(range(len(s)), some))
            t = tuple(n for i, n in enumerate(s) if i not in dims)
            acc = f"{w}a = arith.constant dense<0.5> : {vec(t)}\n"
            op = f"vector.multi_reduction <{r.choice(('add', 'maximumf'))}>, {v}, {w}a {dims}"
            return f"{acc}{w} = {op} : {vec(s)} to {vec(t)}", t
        case "extract" if some:
            return f"{w} = vector.extract {v}{at} : {vec(s[some:])} from {vec(s)}", s[some:]
        case "insert" if some:
            part = vec(s[some:])
            taken = f"{w}e = vector.extract {v}{[0] * some} : {part} from {vec(s)}\n"
            return f"{taken}{w} = vector.insert {w}e, {v} {at} : {part} into {vec(s)}", s
        case _:
            pass
    return None


def program(seed: int) -> str:
    r = random.Random(seed)
    n = r.choice((64, 128, 256, 512))
    s = factors(n, r.choice((1, 2, 3, 4)), r)
    lines = [
        f"%st = vector.step : {vec((n,), 'index')}",
        f"%of = vector.shape_cast %st : {vec((n,), 'index')} to {vec(s, 'index')}",
        f"%m = arith.constant dense<true> : {vec(s, 'i1')}",
        f"%v0 = xegpu.load %A[%of], %m : memref<512xf32>, {vec(s, 'index')}, {vec(s, 'i1')} -> "
        + vec(s),
    ]
    v = "%v0"
    for i in range(r.randrange(2, 7)):
        kind = r.choice(("transpose", "cast", "broadcast", "reduce", "extract", "insert"))
        made = one_op(kind, f"%v{i + 1}", v, s, r)
        if made is not None:
            text, s = made
            v = f"%v{i + 1}"
            lines.append(text)
    n = math.prod(s)
    layout = f"#xegpu.layout<sg_layout = {[1] * len(s)}, sg_data = {list(s)}>"
    lines += [
        f"%os = vector.step : {vec((n,), 'index')}",
        f"%oc = vector.shape_cast %os : {vec((n,), 'index')} to {vec(s, 'index')}",
        f"%mm = arith.constant dense<true> : {vec(s, 'i1')}",
        f"xegpu.store {v}, %C[%oc], %mm {{layout = {layout}}} : {vec(s)}, memref<2048xf32>, "
        f"{vec(s, 'index')}, {vec(s, 'i1')}",
    ]
    body = "\n".join(lines)
    return (
        "module attributes {gpu.container_module} {\ngpu.module @k {\n"
        "gpu.func @f(%A: memref<512xf32>, %C: memref<2048xf32>) kernel {\n"
        f"{body}\ngpu.return\n}}\n}}\n}}"
    )


@pytest.mark.parametrize("seed", range(16))
def test_chains_of_vector_ops(seed: int, rng: np.random.Generator):
    text = program(seed)
    a = rng.standard_normal(512).astype(np.float32)
    results: dict[str, np.ndarray] = {}
    for target in ("cpu", "reference"):
        results[target] = np.full(2048, 7, np.float32)
        launch(text, (1, 1, 1), (16, 1, 1), [a.copy(), results[target]], target)
    np.testing.assert_allclose(results["cpu"], results["reference"], rtol=1e-4, atol=1e-4)
