# ruff: noqa: E501
"""Matrices that a subgroup's lanes hold together: what numpy says, for every shape that lanes share evenly."""

from __future__ import annotations

import numpy as np
import pytest

from tests.draws import fresh_rng
from tests.passes.linalg.programs import program, run_on
from tests.peer.mlir_opt import mlir_opt, needs_mlir_opt
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module
from tilewright.targets.base import CompileOptions
from tilewright.targets.entry import build_text

KERNEL = """module attributes {{gpu.container_module}} {{
{host}
gpu.module @m {{
  gpu.func @k(%a: memref<{a}>, %b: memref<{b}>, %c: memref<{c}>, %n: index) kernel {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %two = arith.constant 2 : {sum}
    %x = gpu.subgroup_mma_load_matrix %a[%c0, %c0] {{leadDimension = {lead_a} : index{turned_a}}} : memref<{a}> -> !gpu.mma_matrix<{A}, "AOp">
    %y = gpu.subgroup_mma_load_matrix %b[%c0, %c0] {{leadDimension = {lead_b} : index{turned_b}}} : memref<{b}> -> !gpu.mma_matrix<{B}, "BOp">
    %z = gpu.subgroup_mma_load_matrix %c[%c0, %c1] {{leadDimension = {lead_c} : index}} : memref<{c}> -> !gpu.mma_matrix<{C}, "COp">
    %t = gpu.subgroup_mma_constant_matrix %two : !gpu.mma_matrix<{C}, "COp">
    %s = scf.for %i = %c0 to %n step %c1 iter_args(%r = %z) -> (!gpu.mma_matrix<{C}, "COp">) {{
      %d = gpu.subgroup_mma_compute %x, %y, %r : !gpu.mma_matrix<{A}, "AOp">, !gpu.mma_matrix<{B}, "BOp"> -> !gpu.mma_matrix<{C}, "COp">
      scf.yield %d : !gpu.mma_matrix<{C}, "COp">
    }}
    %e = gpu.subgroup_mma_elementwise {sub} %s, %t : (!gpu.mma_matrix<{C}, "COp">, !gpu.mma_matrix<{C}, "COp">) -> !gpu.mma_matrix<{C}, "COp">
    %f = gpu.subgroup_mma_elementwise {neg} %e : (!gpu.mma_matrix<{C}, "COp">) -> !gpu.mma_matrix<{C}, "COp">
    gpu.subgroup_mma_store_matrix %f, %c[%c0, %c1] {{leadDimension = {lead_c} : index}} : !gpu.mma_matrix<{C}, "COp">, memref<{c}>
    gpu.return
  }}
}}
}}"""
SHAPES = [
    (16, 16, 16, "f16", "f32", ""),
    (16, 16, 16, "f16", "f16", "ab"),
    (32, 8, 16, "si8", "i32", "b"),
    (8, 32, 16, "ui8", "i32", "a"),
    (16, 16, 8, "f32", "f32", "a"),
    (8, 8, 4, "f64", "f64", "b"),
    (32, 6, 16, "f16", "f32", ""),
]
NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "i32": np.int32}


def text_of(m: int, n: int, k: int, kind: str, total: str, turned: str, host: str) -> str:
    """A kernel that becomes 2 - (c + times a b), c one column to the right."""
    held = kind.removeprefix("s").removeprefix("u")
    a, b = ((k, m) if "a" in turned else (m, k)), ((n, k) if "b" in turned else (k, n))
    sub, neg = ("subi", "negates") if total == "i32" else ("subf", "negatef")
    return KERNEL.format(
        host=host, a=f"{a[0]}x{a[1]}x{held}", b=f"{b[0]}x{b[1]}x{held}", c=f"{m}x{n + 3}x{total}",
        A=f"{m}x{k}x{kind}", B=f"{k}x{n}x{kind}", C=f"{m}x{n}x{total}", sum=total if total[0] == "f" else "i32",
        lead_a=a[1], lead_b=b[1], lead_c=n + 3, sub=sub, neg=neg,
        turned_a=", transpose" if "a" in turned else "", turned_b=", transpose" if "b" in turned else "",
    ).replace("constant 2 : f", "constant 2.0 : f")  # fmt: skip


@pytest.mark.parametrize("m, n, k, kind, total, turned", SHAPES)
def test_products(
    m: int, n: int, k: int, kind: str, total: str, turned: str, capfd: pytest.CaptureFixture[str]
):
    rng, held = fresh_rng(), kind.removeprefix("s").removeprefix("u")
    least = 0 if kind == "ui8" else -4
    a, b = (rng.integers(least, 5, shape) for shape in ((m, k), (k, n)))
    c = rng.integers(-4, 5, (m, n + 3)).astype(NUMPY[total])
    if kind == "ui8":
        a += 250
    inputs = {
        "a": (a.T if "a" in turned else a).astype(np.uint8 if kind == "ui8" else NUMPY[held]),
        "b": (b.T if "b" in turned else b).astype(np.uint8 if kind == "ui8" else NUMPY[held]),
        "c": c,
    }
    inputs = {x: v.view(np.int8) if v.dtype == np.uint8 else v for x, v in inputs.items()}
    types = {
        x: f"memref<{v.shape[0]}x{v.shape[1]}x{t}>"
        for (x, v), t in zip(inputs.items(), (held, held, total), strict=True)
    }
    shown, printed = "f64" if total == "f64" else "i32" if total == "i32" else "f32", "%c"
    widen: list[str] = []
    if total == "f16":
        printed = "%w"
        widen = [
            f"%w = memref.alloc() : memref<{m}x{n + 3}xf32>",
            f"%rows = arith.constant {m} : index", f"%columns = arith.constant {n + 3} : index",
            "scf.for %i = %c0 to %rows step %one {\n scf.for %j = %c0 to %columns step %one {",
            f"%v = memref.load %c[%i, %j] : {types['c']}", "%u = arith.extf %v : f16 to f32",
            f"memref.store %u, %w[%i, %j] : memref<{m}x{n + 3}xf32>", "}\n }",
        ]  # fmt: skip
    given = ", ".join(f"%{x} : {t}" for x, t in types.items())
    body = [
        "%c0 = arith.constant 0 : index", "%one = arith.constant 1 : index", "%lanes = arith.constant 32 : index",
        "%times = arith.constant 2 : index",
        f"gpu.launch_func @m::@k blocks in (%one, %one, %one) threads in (%lanes, %one, %one) args({given}, %times : index)",
        *widen,
    ]  # fmt: skip
    host = program("\n  ".join(body), inputs, {printed[1:]: f"memref<{m}x{n + 3}x{shown}>"})
    text = text_of(m, n, k, kind, total, turned, host)
    wanted = c.astype(np.float64)
    wanted[:, 1 : n + 1] = 2 - (wanted[:, 1 : n + 1] + 2 * (a @ b))
    again = print_module(parse_module(text))
    assert print_module(parse_module(again)) == again
    for target in ("reference", "cpu"):
        found, said = run_on(text, target, capfd)
        np.testing.assert_array_equal(found[0], wanted, target)
        assert not any("reference executor" in line for line in said), said


def test_nvidia():
    made = build_text(parse_module(text_of(*SHAPES[0], "")), CompileOptions(target="sm_90a"))
    assert "shfl.sync" in str(made.asm["ptx"])


@needs_mlir_opt
def test_what_convert_vector_to_gpu_writes(capfd: pytest.CaptureFixture[str]):
    maps = "affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>"
    kernel = f"""gpu.module @m {{ gpu.func @k(%a: memref<32x32xf32>, %b: memref<32x32xf32>, %c: memref<32x32xf32>) kernel {{
  %s = arith.constant dense<0.0> : vector<16x16xf32>
  %z = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %p = gpu.block_id x
  %q = gpu.block_id y
  %i = arith.muli %p, %c16 : index
  %j = arith.muli %q, %c16 : index
  %t = scf.for %k = %c0 to %c32 step %c16 iter_args(%r = %s) -> (vector<16x16xf32>) {{
    %x = vector.transfer_read %a[%i, %k], %z {{in_bounds = [true, true]}} : memref<32x32xf32>, vector<16x16xf32>
    %y = vector.transfer_read %b[%k, %j], %z {{permutation_map = affine_map<(i, j) -> (j, i)>, in_bounds = [true, true]}} : memref<32x32xf32>, vector<16x16xf32>
    %d = vector.contract {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}} %x, %y, %r : vector<16x16xf32>, vector<16x16xf32> into vector<16x16xf32>
    scf.yield %d : vector<16x16xf32>
  }}
  vector.transfer_write %t, %c[%i, %j] {{in_bounds = [true, true]}} : vector<16x16xf32>, memref<32x32xf32>
  gpu.return
}} }}"""
    rng = fresh_rng()
    a, b = (rng.integers(-4, 5, (32, 32)).astype(np.float32) for _ in range(2))
    body = """%one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %lanes = arith.constant 32 : index
  gpu.launch_func @m::@k blocks in (%two, %two, %one) threads in (%lanes, %one, %one) args(%a : memref<32x32xf32>, %b : memref<32x32xf32>, %c : memref<32x32xf32>)"""
    host = program(body, {"a": a, "b": b, "c": np.zeros_like(a)}, {"c": "memref<32x32xf32>"})
    text = mlir_opt(
        f"module attributes {{gpu.container_module}} {{ {host}\n{kernel} }}",
        pipeline="gpu.module(gpu.func(convert-vector-to-gpu))",
    )
    assert "subgroup_mma_compute" in text
    for target in ("reference", "cpu"):
        np.testing.assert_array_equal(run_on(text, target, capfd)[0][0], a @ b, target)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("16x16xf32, \"COp\"", "16x8xf32, \"COp\"", "do not satisfy matmul constraints"),
        ("leadDimension = 19", "leadDimension = 32", "32 elements apart of an array whose rows are 19 apart"),
        ('"AOp"', '"DOp"', "one of AOp, BOp or COp"),
        ('xf16, "AOp"', 'xbf16, "AOp"', "elements must be"),
        ("%f, %c[%c0, %c1]", "%f, %c[%c1]", "expected 2 subscripts"),
        ("subf %s", "pow %s", "expected"),
        ("16x16x", "2x8x", "32 lanes do not share"),
    ],
)  # fmt: skip
def test_refused(old: str, new: str, words: str):
    text = text_of(*SHAPES[0], "").replace(old, new)
    if new == "2x8x":
        text = text_of(2, 8, 8, "f16", "f32", "", "")
    with pytest.raises(TilewrightError, match=words):
        build_text(parse_module(text), CompileOptions(target="cpu"))
