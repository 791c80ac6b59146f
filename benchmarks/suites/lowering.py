"""Time of the passes from a workgroup's XeGPU to lanes, against the pieces of the size of an instruction."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.suites import Settings
from tilewright.dialects.text import parse_module
from tilewright.passes.xegpu.pipeline import lower
from tilewright.tools.measure import Case, Contender, MeasuredRow, measure

PRODUCT = """
#c = #xegpu.layout<sg_layout = [2, 2], sg_data = [{part}, 64]>
gpu.module @m {{
gpu.func @product(%a: memref<4096x4096xf16>, %b: memref<4096x4096xf16>, %o: memref<4096x4096xf32>)
    kernel attributes {{tilewright.level = "workgroup"}} {{
  %c0 = arith.constant 0 : index
  %c32 = arith.constant 32 : index
  %c4096 = arith.constant 4096 : index
  %zero = arith.constant dense<0.0> : vector<{rows}x128xf32>
  %ta = xegpu.create_nd_tdesc %a : memref<4096x4096xf16> -> !xegpu.tensor_desc<{rows}x32xf16>
  %tb = xegpu.create_nd_tdesc %b : memref<4096x4096xf16> -> !xegpu.tensor_desc<32x128xf16>
  %to = xegpu.create_nd_tdesc %o : memref<4096x4096xf32> -> !xegpu.tensor_desc<{rows}x128xf32>
  %r = scf.for %k = %c0 to %c4096 step %c32 iter_args(%acc = %zero) -> (vector<{rows}x128xf32>) {{
    %x = xegpu.load_nd %ta[0, %k] : !xegpu.tensor_desc<{rows}x32xf16> -> vector<{rows}x32xf16>
    %y = xegpu.load_nd %tb[%k, 0] : !xegpu.tensor_desc<32x128xf16> -> vector<32x128xf16>
    %n = xegpu.dpas %x, %y, %acc {{layout_cd = #c}}
      : vector<{rows}x32xf16>, vector<32x128xf16>, vector<{rows}x128xf32> -> vector<{rows}x128xf32>
    scf.yield %n : vector<{rows}x128xf32>
  }}
  xegpu.store_nd %r, %to[0, 0] : vector<{rows}x128xf32>, !xegpu.tensor_desc<{rows}x128xf32>
  gpu.return
}} }}
"""


def lowering(settings: Settings) -> Iterator[MeasuredRow]:
    """A product whose subgroups have more and more dpas in the loop; all passes together."""
    for count in settings.sizes or (8, 16, 32, 64, 128, 256, 512, 1024):
        # A subgroup's 8 rows of 64 columns are 4 products of 8 x 16, for each half of k.
        text = PRODUCT.format(part=count, rows=2 * count)
        module = parse_module(text, f"{count} products")

        def run(module: object = module) -> None:
            lower(module.clone())  # pyright: ignore

        case = Case(
            f"lower {count} dpas", [Contender("tilewright", run)], count, "ms", 1, {"size": count}
        )
        yield measure(case, rounds=max(3, settings.rounds // 3), clock=settings.clock)
