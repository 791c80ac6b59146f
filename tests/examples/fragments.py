"""Each fragment of the RFCs' texts: its arrays and what it must give, and what becomes of it on every target."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import ModuleOp

from tests.draws import fresh_rng
from tilewright import reference
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text

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
    deep, deep_out = numbers(2, 3, 32, 64), nothing(64, 64)
    turned, turned_out = numbers(32, 64, dtype=np.float16), nothing(64, 64, dtype=np.float16)
    loc, loc_out = numbers(64, 64), nothing(64, 64)
    at, at_out = numbers(1024), nothing(64, 64)
    wide_a, wide_b = numbers(256, 32, dtype=BF16), numbers(32, 256, dtype=BF16)
    wide_c, wide_d = numbers(256, 256), nothing(256, 256)
    rows, rows_out = numbers(256, 128), nothing(256, 1)
    parts, parts_out = numbers(256, 128), nothing(8, 128)
    one, one_out = numbers(256, 1), nothing(256, 256)
    flip, flip_out = numbers(512, 128), nothing(128, 512)
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
        "ranks": (
            [deep, deep_out, 1, 2],
            lambda _: [(deep_out[:16, :32], deep[1, 2, 8:24, 16:48])],
        ),
        # Columns of the 64 x 32 matrix lie one after the other.
        "affine_order": (
            [turned.T, turned_out],
            lambda _: [(turned_out[:16, :32], turned.T[8:24])],
        ),
        "locality": ([loc, loc_out], lambda _: [(loc_out[:16, :32], loc[:16, :32])]),
        "gather_2d": ([at, at_out], lambda _: [(at_out[:4, :32], at[:384:3].reshape(4, 32))]),
        "mma_map": (
            [wide_a, wide_b, wide_c, wide_d],
            lambda _: [(wide_d, wide(wide_a) @ wide(wide_b) + wide_c)],
        ),
        "reduction_map": ([rows, rows_out], lambda _: [(rows_out[:, 0], wide(rows).sum(axis=1))]),
        "reduction_size": (
            [parts, parts_out],
            lambda _: [(parts_out, np.exp(wide(parts)).reshape(8, 32, 128).sum(axis=1))],
        ),
        "broadcast_map": (
            [one, one_out],
            lambda _: [(one_out, np.broadcast_to(one, (256, 256)))],
        ),
        "transpose_map": ([flip, flip_out], lambda _: [(flip_out, flip.T)]),
        "convert_layout": same(256),
        "convert_layout_result": same(256),
        "rounds": rows_of_a_matrix(),
        "rounds_and_lanes": rows_of_a_matrix(),
    }


def same(size: int) -> Case:
    a, o = numbers(size, size), nothing(size, size)
    return [a, o], lambda _: [(o, a)]


def rows_of_a_matrix() -> Case:
    a, o = numbers(1024, 1024, dtype=np.float16), nothing(1024, 1024, dtype=np.float16)
    return [a, o, 40], lambda _: [(o[40:168, :128], a[40:168, :128])]


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
    a, sums, deep, turned = numbers(256, 128), nothing(256, 1), nothing(8, 128), nothing(128, 256)
    return [a, sums, deep, turned], lambda _: [
        (sums[:, 0], wide(a).sum(axis=1)),
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
    at, pack = nothing(8, 16), nothing(16, 32, dtype=np.float16)
    turned = nothing(8, 64, dtype=np.float16)
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
            lambda _: [
                (at, a.T),
                (pack, packed(b).reshape(16, 32)),
                (turned, packed(b.T).reshape(8, 64)),
            ],
        ),
        "dpas": product(3),
        "scattered": scattered(),
        "layouts": layouts(),
        "sg_map_2d": product(1),
        "sg_map_chunks": (
            [chunks, chunks_out],
            # Lane l read 4 elements in a row; a 1-D block store distributes element i * 16 + l to lane l.
            lambda _: [(chunks_out.reshape(4, 16), chunks.reshape(16, 4).T)],
        ),
    }


def compare(pairs: list[tuple[Any, Any]], what: str) -> None:
    for found, expected in pairs:
        error = np.linalg.norm(wide(found) - wide(np.asarray(expected)))
        scale = np.linalg.norm(wide(np.asarray(expected)))
        assert scale > 0 and error / scale < 1e-6, f"{what}: {error / scale}"


FILES: dict[str, Callable[[], dict[str, Case]]] = {
    "xetile_fragments.mlir": xetile,
    "xegpu_fragments.mlir": xegpu,
}
TARGETS = ("reference", "cpu", "sm_90a", "xe-pvc", "xe-bmg", "xe-dg2")


def functions(module: ModuleOp) -> dict[str, func.FuncOp | gpu.FuncOp]:
    """The fragments of a file by name, in its order."""
    found = [op for op in module.walk() if isinstance(op, (func.FuncOp, gpu.FuncOp))]
    return {op.sym_name.data: op for op in found}


@cache
def text_of(file: str) -> str:
    return (RFC / file).read_text()


def shows(file: str, name: str) -> str:
    """What a fragment shows: the comment above it."""
    above = text_of(file).partition(f"func @{name}(")[0]
    comment = [line.strip() for line in above.splitlines()]
    last = max(n for n, line in enumerate(comment) if line.startswith("// "))
    first = last
    while comment[first - 1].startswith("// "):
        first -= 1
    return " ".join(line.removeprefix("// ") for line in comment[first : last + 1])


def alone(file: str, name: str) -> ModuleOp:
    """A module of one fragment."""
    module = parse_module(text_of(file), file)
    for other, op in functions(module).items():
        if other != name:
            op.detach()
            op.erase()
    for op in list(module.walk()):
        if isinstance(op, gpu.ModuleOp) and not list(op.body.block.ops):
            op.detach()
            op.erase()
    return module


def state(file: str, name: str, target: str) -> str:
    """What becomes of a fragment: `runs` and gives what it must, `compiles`, in how many passes, or why not."""
    args, check = FILES[file]()[name]
    module = alone(file, name)
    try:
        if target == "reference":
            reference.run(module, (1, 1, 1), args, kernel=name)
        else:
            built = build_text(module, CompileOptions(target=target))
            if target != "cpu":
                passes = (re.search(r"in (\d+) passes", remark) for remark in built.remarks)
                count = next((found[1] for found in passes if found is not None), None)
                return "compiles" if count is None else f"compiles, in {count} passes"
            built.launch((1, 1, 1), [describe(a) if hasattr(a, "shape") else a for a in args])
    except UnsupportedError as error:
        return f"no: {error.message}"
    compare(check(args), f"{name} on {target}")
    return "runs"
