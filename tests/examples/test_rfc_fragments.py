"""Each fragment of the RFCs' texts, run by the reference executor, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.dialects.text import parse_module, print_module
from tilewright.passes.xegpu.from_xetile import xetile_to_xegpu
from tilewright.passes.xegpu.modernize import modernize

RFC = Path(__file__).parents[2] / "examples/rfc"
Arrays = list[Any]
Case = tuple[Arrays, Callable[[Arrays], list[tuple[Any, Any]]]]

BF16 = ml_dtypes.bfloat16


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return fresh_rng().standard_normal(shape).astype(dtype)


def nothing(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def wide(a: Any) -> Any:
    return a.astype(np.float64)


def packed(b: Any) -> Any:
    """[K, N] -> [K/2, N, 2]."""
    k, n = b.shape
    return b.reshape(k // 2, 2, n).transpose(0, 2, 1)


def padded(a: Any) -> Any:
    whole = np.full((16, 16), 3.0, np.float32)
    whole[:8, :8] = a[12:20, 16:24]
    return whole


def runs(a: Any) -> Any:
    return wide(a).reshape(8, 8, 32).sum(axis=1)


def gathered(a: Any) -> Any:
    return np.where(np.arange(64) < 40, a[np.arange(64) * 5 % 1024], -1)


def added(before: Any) -> Any:
    after = before.copy()
    after[60:64, 8:24] += 0.5
    return after


def transposed_product() -> Case:
    a, bt, c = numbers(64, 32, dtype=np.float16), numbers(64, 32, dtype=np.float16), nothing(64, 64)
    return [a, bt, c], lambda _: [(c, wide(a) @ wide(bt).T)]


def ordered_product() -> Case:
    (a, bt, c), check = transposed_product()
    return [a, bt.T, c], check


def copy(x: int, y: int) -> Case:
    a, o = numbers(128, 128, dtype=BF16), nothing(128, 128, dtype=BF16)
    return [a, o, x, y], lambda _: [(o[x : x + 8, y : y + 16], a[x : x + 8, y : y + 16])]


def xetile() -> dict[str, Case]:
    dyn, dyn_out = numbers(40, 60, dtype=BF16), nothing(128, 128, dtype=BF16)
    adr, adr_out = numbers(64, 128), nothing(64, 128)
    pad, pad_out = numbers(20, 24), nothing(64, 64)
    upd, upd_out = numbers(64, 64), nothing(64, 64)
    a, b, c = numbers(64, 32, dtype=BF16), numbers(32, 128, dtype=BF16), nothing(64, 128)
    atomic = numbers(64, 64)
    gat, gat_out = numbers(1024), nothing(1024)
    red, red_out = numbers(64, 32), nothing(64, 64)
    bro, bro_out = numbers(64, 32), nothing(64, 64)
    maps, maps_out = numbers(128, 128, dtype=np.float16), nothing(128, 128, dtype=np.float16)
    return {
        "static_shape": copy(24, 40),
        "dynamic_shape": ([dyn, dyn_out, 40, 60], lambda _: [(dyn_out[:8, :16], dyn[4:12, 8:24])]),
        "address": ([adr, adr_out], lambda _: [(adr_out[:8, :16], adr[3:11, 5:21])]),
        "order": ordered_product(),
        "transposed": transposed_product(),
        "padding": ([pad, pad_out], lambda _: [(pad_out[:16, :16], padded(pad))]),
        "update": ([upd, upd_out, 7, 9], lambda _: [(upd_out[:16, :32], upd[7:23, 9:41])]),
        "mma": ([a, b, c], lambda _: [(c, 2 * (wide(a) @ wide(b)))]),
        "atomic": ([atomic.copy()], lambda args: [(args[0], added(atomic))]),
        "gather": ([gat, gat_out], lambda _: [(gat_out[:64], gathered(gat))]),
        "reduction": (
            [red, red_out],
            lambda _: [(red_out[:, 0], wide(red).sum(axis=1)), (red_out[:8, 32:], runs(red))],
        ),
        "broadcast": (
            [bro, bro_out],
            lambda _: [
                (bro_out[:, :32], np.broadcast_to(bro[0], (64, 32))),
                (bro_out[:, 32:], np.repeat(bro[8:10], 32, axis=0)),
            ],
        ),
        "maps": ([maps, maps_out], lambda _: [(maps_out, maps.T)]),
    }


def scattered() -> Case:
    base = fresh_rng().integers(-99, 99, 512).astype(np.int16)
    sums, out = numbers(16), np.zeros(512, np.int16)
    before = sums.copy()

    def check(_: Arrays) -> list[tuple[Any, Any]]:
        expected = np.zeros(512, np.int16)
        lanes = np.arange(8)
        expected[lanes * 8] = base[lanes * 8 + 8 + 3]
        counts = np.bincount(np.arange(16) % 3, minlength=16)
        return [(out, expected), (sums, wide(before) + 0.25 * counts)]

    return [base, sums, out], check


def layouts() -> Case:
    a, sums, deep, turned = numbers(256, 128), nothing(256), nothing(8, 128), nothing(128, 256)
    return [a, sums, deep, turned], lambda _: [
        (sums, wide(a).sum(axis=1)),
        (deep, wide(a).reshape(8, 32, 128).sum(axis=1)),
        (turned, wide(a).T + wide(a).sum(axis=1)),
    ]


def product(times: int) -> Case:
    a, b, c = numbers(8, 16, dtype=BF16), numbers(16, 16, dtype=BF16), nothing(8, 16)
    return [a, b, c], lambda _: [(c, times * (wide(a) @ wide(b)))]


def xegpu() -> dict[str, Case]:
    adr, adr_out = numbers(64, 128, dtype=BF16), nothing(64, 128, dtype=BF16)
    deep, row, deep_out = numbers(2, 3, 16, 32), numbers(1024), nothing(64, 64)
    start = row.copy()
    a, b = numbers(16, 8), numbers(32, 16, dtype=np.float16)
    at, pack = nothing(8, 16), nothing(16, 16, 2, dtype=np.float16)
    turned = nothing(8, 32, 2, dtype=np.float16)
    chunks, chunks_out = numbers(64), nothing(64)
    return {
        "address": (
            [adr, adr_out, 10, 30],
            lambda _: [
                (adr_out[:8, :16], adr[10:18, 30:46]),
                (adr_out[8:16, :16], adr[10:18, 46:62]),
            ],
        ),
        "ranks": (
            [deep, row, deep_out],
            lambda _: [(deep_out[:8, :16], deep[1, 2, 4:12, 8:24]), (row[:16], start[100:116])],
        ),
        "forms": (
            [a, b, at, pack, turned],
            lambda _: [(at, a.T), (pack, packed(b)), (turned, packed(b.T))],
        ),
        "dpas": product(3),
        "scattered": scattered(),
        "layouts": layouts(),
        "sg_map_2d": product(1),
        "sg_map_chunks": (
            [chunks, chunks_out],
            # Lane l read 4 elements in a row; a 1-D block store deals element i * 16 + l to lane l.
            lambda _: [(chunks_out.reshape(4, 16), chunks.reshape(16, 4).T)],
        ),
    }


def compare(pairs: list[tuple[Any, Any]], what: str) -> None:
    for found, expected in pairs:
        error = np.linalg.norm(wide(found) - wide(np.asarray(expected)))
        scale = np.linalg.norm(wide(np.asarray(expected)))
        assert scale > 0 and error / scale < 1e-6, f"{what}: {error / scale}"


@pytest.mark.parametrize("name", xetile())
def test_fragments_of_the_xetile_rfc(name: str):
    text = (RFC / "xetile_fragments.mlir").read_text()
    module = parse_module(text, "xetile_fragments.mlir")
    args, check = xetile()[name]
    reference.run(module, (1, 1, 1), args, kernel=name)
    compare(check(args), "as written")
    args, check = xetile()[name]
    xetile_to_xegpu(module)
    assert "xetile." not in print_module(module)
    reference.run(module, (1, 1, 1), args, kernel=name)
    compare(check(args), "as XeGPU")


@pytest.mark.parametrize("name", xegpu())
def test_fragments_of_the_xegpu_rfc(name: str):
    text = (RFC / "xegpu_fragments.mlir").read_text()
    module = parse_module(text, "xegpu_fragments.mlir")
    for what in ("as written", "in today's text"):
        args, check = xegpu()[name]
        reference.run(module, (1, 1, 1), args, kernel=name)
        compare(check(args), what)
        modernize(module)


def test_every_fragment_has_its_case():
    for file, cases in (("xetile_fragments.mlir", xetile()), ("xegpu_fragments.mlir", xegpu())):
        module = parse_module((RFC / file).read_text(), file)
        names = {
            {**op.properties, **op.attributes}["sym_name"].data
            for op in module.walk()
            if op.name in ("func.func", "gpu.func")
        }
        assert names == set(cases)
