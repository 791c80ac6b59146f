# ruff: noqa: E501
"""Convolutions by Winograd's algorithm: each of its ops gives what mlir-opt's decomposition of it gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.linalg.programs import drawn, printed, program, run_on
from tests.peer.mlir_opt import TO_LLVM, mlir_opt, mlir_runner, needs_mlir_runner
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module

SIZES = {"F_2_3": (2, 3), "F_4_3": (4, 3), "F_2_5": (2, 5)}
DECOMPOSE = "".join(
    f"""
  %{what} = transform.structured.match ops{{["linalg.winograd_{what}_transform"]}} in %all : (!transform.any_op) -> !transform.any_op
  %{what}2 = transform.structured.decompose_winograd_op %{what} : (!transform.any_op) -> !transform.any_op"""
    for what in ("filter", "input", "output")
)


def shape(*extents: int, kind: str = "tensor") -> str:
    return f"{kind}<{''.join(f'{n}x' for n in extents)}f32>"


def body(fmr: str, rows: int, columns: int) -> tuple[str, dict[str, tuple[int, ...]]]:
    """The three ops and the product between them; `rows` and `columns` say along what filters have several elements."""
    (m, r), tiles = SIZES[fmr], (2, 3)
    filters = [r if several else 1 for several in (rows, columns)]
    step = [m if several else 1 for several in (rows, columns)]
    wide = [a + b - 1 for a, b in zip(filters, step, strict=True)]
    plain = [t * s for t, s in zip(tiles, step, strict=True)]
    image = [n + k - 1 for n, k in zip(plain, filters, strict=True)]
    x, k, y = (2, *image, 3), (4, *filters, 3), (2, *plain, 4)
    u, v, p = (*wide, 3, 4), (*wide, *tiles, 2, 3), (*wide, *tiles, 2, 4)
    t = (wide[0] * wide[1], 2 * tiles[0] * tiles[1])
    text = f"""%tx = bufferization.to_tensor %x restrict : {shape(*x, kind="memref")} to {shape(*x)}
  %tk = bufferization.to_tensor %k restrict : {shape(*k, kind="memref")} to {shape(*k)}
  %ty = bufferization.to_tensor %y restrict : {shape(*y, kind="memref")} to {shape(*y)}
  %ue = tensor.empty() : {shape(*u)}
  %u = linalg.winograd_filter_transform fmr({fmr}) ins(%tk : {shape(*k)}) outs(%ue : {shape(*u)}) -> {shape(*u)}
  %ve = tensor.empty() : {shape(*v)}
  %v = linalg.winograd_input_transform fmr({fmr}) ins(%tx : {shape(*x)}) outs(%ve : {shape(*v)}) -> {shape(*v)}
  %uc = tensor.collapse_shape %u [[0, 1], [2], [3]] : {shape(*u)} into {shape(t[0], 3, 4)}
  %vc = tensor.collapse_shape %v [[0, 1], [2, 3, 4], [5]] : {shape(*v)} into {shape(*t, 3)}
  %zero = arith.constant dense<0.0> : {shape(*t, 4)}
  %pc = linalg.batch_matmul ins(%vc, %uc : {shape(*t, 3)}, {shape(t[0], 3, 4)}) outs(%zero : {shape(*t, 4)}) -> {shape(*t, 4)}
  %p = tensor.expand_shape %pc [[0, 1], [2, 3, 4], [5]] output_shape {list(p)} : {shape(*t, 4)} into {shape(*p)}
  %r = linalg.winograd_output_transform fmr({fmr}) ins(%p : {shape(*p)}) outs(%ty : {shape(*y)}) -> {shape(*y)}"""
    for name, extents in (("u", u), ("v", v), ("r", y)):
        text += f"\n  %o{name} = bufferization.to_buffer %{name} : {shape(*extents)} to {shape(*extents, kind='memref')}"
    return text, {"x": x, "k": k, "y": y, "ou": u, "ov": v, "or": y}


@needs_mlir_runner
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (0, 1), (1, 0)])
@pytest.mark.parametrize("fmr", SIZES)
def test_each_op(fmr: str, rows: int, columns: int, capfd: pytest.CaptureFixture[str]):
    lines, shapes = body(fmr, rows, columns)
    inputs = {name: drawn("float32", *shapes[name]) for name in "xky"}
    results = {
        name: shape(*extents, kind="memref") for name, extents in shapes.items() if name[0] == "o"
    }
    text = program(lines, inputs, results)
    schedule = f"transform.named_sequence @__transform_main(%all: !transform.any_op) {{{DECOMPOSE}\n  transform.yield\n}}"
    whole = f"module attributes {{transform.with_named_sequence}} {{\n{text}\n{schedule}\n}}"
    made = mlir_opt(whole, pipeline="transform-interpreter")
    kept = made[: made.index("transform.named_sequence")] + "}"
    wanted = printed(
        mlir_runner(
            mlir_opt(
                kept, pipeline=f"one-shot-bufferize{{bufferize-function-boundaries}},{TO_LLVM}"
            )
        )
    )
    for target in ("reference", "cpu"):
        for found, other in zip(run_on(text, target, capfd)[0], wanted, strict=True):
            np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fmr(F_2_3)", "fmr(F_4_3)", "expected 1 or 6 elements along dimension 0, got 4"),
        (
            "fmr(F_2_3)",
            "fmr(F_3_3)",
            "unknown tiles and filter 'F_3_3', expected one of F_2_3, F_4_3, F_2_5",
        ),
        ("3x3x3xf32>", "3x1x3xf32>", "a filter of one element has one, others 4"),
        (
            "tensor<4x4x3x4xf32>",
            "tensor<4x4x4x4xf32>",
            "expected the shape that the source's makes",
        ),
    ],
)
def test_refused(old: str, new: str, said: str):
    text = """func.func @f(%x: tensor<4x3x3x3xf32>, %y: tensor<4x4x3x4xf32>) -> tensor<4x4x3x4xf32> {
  %r = linalg.winograd_filter_transform fmr(F_2_3) ins(%x : tensor<4x3x3x3xf32>) outs(%y : tensor<4x4x3x4xf32>) -> tensor<4x4x3x4xf32>
  return %r : tensor<4x4x3x4xf32>
}"""
    parse_module(text)
    with pytest.raises(TilewrightError, match=said.replace("(", "[(]")):
        parse_module(text.replace(old, new))
