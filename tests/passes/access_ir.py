"""Kernels as text for tests of access analysis, and how to analyse them."""

from __future__ import annotations

from xdsl.dialects import gpu

from tests.texts import parse_module
from tilewright.passes.access import Access, AccessAnalysis
from tilewright.passes.carry_offsets import carry_offsets

MATRIX = "memref<?x?xf32, strided<[?, 1]>>"
ROW = "memref<?xf32, strided<[1]>>"

PROLOGUE = """
  %x = gpu.block_id x
  %y = gpu.block_id y
  %M = memref.dim %A, %c0 : MATRIX
  %K = memref.dim %A, %c1 : MATRIX
  %m = arith.muli %x, %c64 : index
  %n = arith.muli %y, %c32 : index
"""


def tile(
    base: str, row: object, column: object, shape: str = "64x32xf32", attribute: str = ""
) -> str:
    """An init_tile of a dynamic matrix; sizes and strides are A's, which is all the same here."""
    encoding = f", {attribute}" if attribute else ""
    return (
        f"xetile.init_tile {base}[{row}, {column}], [%M, %K], [%K, 1] : MATRIX "
        f"-> !xetile.tile<{shape}{encoding}>"
    )


def analyse(body: str, *, arguments: str = "", facts: str = "") -> AccessAnalysis:
    """The analysis of a kernel with arrays A, B, C and the prologue's names.

    ``TILE`` stands for a 64x32xf32 tile's type, ``VALUE`` for its vector's.
    """
    attributes = 'tilewright.level = "workgroup"' + (
        f", tilewright.args = {facts}" if facts else ""
    )
    extra = f", {arguments}" if arguments else ""
    text = f"""
gpu.module @m {{
 gpu.func @k(%A: MATRIX, %B: MATRIX, %C: MATRIX{extra}) kernel attributes {{{attributes}}} {{
{PROLOGUE}
{body}
  gpu.return
 }}
}}"""
    text = text.replace("MATRIX", MATRIX).replace("ROW", ROW)
    text = text.replace("TILE", "!xetile.tile<64x32xf32>").replace("VALUE", "vector<64x32xf32>")
    module = parse_module(text, "kernel.mlir")
    (func,) = (op for op in module.walk() if isinstance(op, gpu.FuncOp))
    carry_offsets(func)
    return AccessAnalysis(func)


def offsets(access: Access) -> list[str]:
    return [str(e) for e in access.offsets]
