# ruff: noqa: E501
"""The program of one subgroup of a GEMM with cooperative prefetch (XeGPU RFC, appendix 1.1), for any types and tiles."""

from __future__ import annotations

from dataclasses import dataclass

T = "!xegpu.tensor_desc"


@dataclass(frozen=True)
class Gemm:
    """C[m, n] = A[m, k] B[k, n]; a subgroup owns rows x columns, 2 x 2 subgroups a workgroup."""

    chip: str
    element: str
    accumulator: str
    rows: int
    columns: int
    depth: int
    transposed: bool = False
    steps: int = 3

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Of A, B as it lies in memory, C: two workgroups along m."""
        m, n, k = 4 * self.rows, 2 * self.columns, self.steps * self.depth
        return (m, k), (n, k) if self.transposed else (k, n), (m, n)

    def text(self) -> str:
        (m, k), b, (_, n) = self.shapes
        e, c, r, w, d = self.element, self.accumulator, self.rows, self.columns, self.depth
        matrix_b = f"memref<{b[0]}x{b[1]}x{e}>"
        tile_b = f"{w}x{d}x{e}" if self.transposed else f"{d}x{w}x{e}"
        at_b = "%n, %k" if self.transposed else "%k, %n"
        turn = (
            f"%vb = vector.transpose %lb, [1, 0] : vector<{tile_b}> to vector<{d}x{w}x{e}>"
            if self.transposed
            else ""
        )
        loaded = "lb" if self.transposed else "vb"
        zero = "0" if c == "i32" else "0.0"
        # Each of the four subgroups fetches a quarter of the rows of the workgroup's next tiles.
        pa, pb = 2 * r // 4, (2 * w if self.transposed else d) // 4
        wide = (
            d
            if self.transposed
            else min(2 * w, 64 // (32 if e == "tf32" else int(e.strip("bfiu"))) * 8)
        )
        return f"""gpu.module @k {{
  gpu.func @gemm(%a: memref<{m}x{k}x{e}>, %b: {matrix_b}, %c: memref<{m}x{n}x{c}>) kernel attributes {{tilewright.level = "subgroup", tilewright.subgroups = 4 : i64}} {{
    %c0 = arith.constant 0 : index
    %c2 = arith.constant 2 : index
    %end = arith.constant {k} : index
    %step = arith.constant {d} : index
    %cr = arith.constant {r} : index
    %cw = arith.constant {w} : index
    %c2r = arith.constant {2 * r} : index
    %pa = arith.constant {pa} : index
    %pb = arith.constant {pb} : index
    %bx = gpu.block_id x
    %s = gpu.subgroup_id : index
    %sm = arith.divui %s, %c2 : index
    %sn = arith.remui %s, %c2 : index
    %m0 = arith.muli %bx, %c2r : index
    %m1 = arith.muli %sm, %cr : index
    %m = arith.addi %m0, %m1 : index
    %n = arith.muli %sn, %cw : index
    %fa = arith.muli %s, %pa : index
    %fm = arith.addi %m0, %fa : index
    %fb = arith.muli %s, %pb : index
    %ta = xegpu.create_nd_tdesc %a : memref<{m}x{k}x{e}> -> {T}<{r}x{d}x{e}>
    %tb = xegpu.create_nd_tdesc %b : {matrix_b} -> {T}<{tile_b}>
    %tc = xegpu.create_nd_tdesc %c : memref<{m}x{n}x{c}> -> {T}<{r}x{w}x{c}>
    %pta = xegpu.create_nd_tdesc %a : memref<{m}x{k}x{e}> -> {T}<{pa}x{d}x{e}>
    %ptb = xegpu.create_nd_tdesc %b : {matrix_b} -> {T}<{pb}x{wide}x{e}>
    %z = arith.constant dense<{zero}> : vector<{r}x{w}x{c}>
    %r = scf.for %k = %c0 to %end step %step iter_args(%acc = %z) -> (vector<{r}x{w}x{c}>) {{
      %va = xegpu.load_nd %ta[%m, %k] : {T}<{r}x{d}x{e}> -> vector<{r}x{d}x{e}>
      %{loaded} = xegpu.load_nd %tb[{at_b}] : {T}<{tile_b}> -> vector<{tile_b}>
      {turn}
      xegpu.prefetch_nd %pta[%fm, %k] : {T}<{pa}x{d}x{e}>
      xegpu.prefetch_nd %ptb[{"%fb, %k" if self.transposed else "%k, %fb"}] : {T}<{pb}x{wide}x{e}>
      %sum = xegpu.dpas %va, %vb, %acc : vector<{r}x{d}x{e}>, vector<{d}x{w}x{e}>, vector<{r}x{w}x{c}> -> vector<{r}x{w}x{c}>
      scf.yield %sum : vector<{r}x{w}x{c}>
    }}
    xegpu.store_nd %r, %tc[%m, %n] : vector<{r}x{w}x{c}>, {T}<{r}x{w}x{c}>
    gpu.return
  }}
}}"""
