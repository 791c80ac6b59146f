"""Draws the pictures of ownership in docs/img/*.svg from tilewright.layout and from what the compiler makes.

    python docs/make_pictures.py          writes the pictures
    python docs/make_pictures.py --check  exits with 1 when one is not up to date

No picture holds a number that the compiler does not compute: each is drawn from the map or the machine
table that its caption names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from runpy import run_path
from typing import Any, NamedTuple

from generated import DOCS, main
from xdsl.dialects.builtin import ModuleOp

from tilewright import layout as ly
from tilewright import uarch
from tilewright.dialects.text import parse_module
from tilewright.dialects.xegpu.distribution import distribution
from tilewright.layout import derive, plan
from tilewright.passes.xegpu.pipeline import lower
from tilewright.passes.xegpu.to_xetile import xegpu_to_xetile
from tilewright.tools import ownership as draw
from tilewright.tools.drawing import Picture, stack
from tilewright.uarch import fragments as fr
from tilewright.uarch.sm90 import smem_tile
from tilewright.uarch.x86 import X86_64

IMAGES = DOCS / "img"


def rounds() -> Picture:
    """One block each, several rounds, and sharing by wrapping."""
    one = ly.wg_map([4, 4], [32, 32])
    return stack(
        [
            draw.subgroups(one.over([128, 128]), "one block each: [4, 4] x [32, 32]", side=230),
            draw.subgroups(
                ly.wg_map([2, 2], [32, 32]).over([128, 128]),
                "in rounds: [2, 2] x [32, 32]",
                side=230,
            ),
            draw.subgroups(one.over([128, 32]), "shared: [4, 4] x [32, 32]", side=230),
        ],
        across=True,
    )


def order() -> Picture:
    """The same grid of subgroups, numbered along rows and along columns."""
    return stack(
        [
            draw.subgroups(
                ly.layout([4, 4], [16, 16], order=o).over([64, 64]), f"order = {[*o]}", side=190
            )
            for o in ((1, 0), (0, 1))
        ],
        across=True,
    )


def product() -> Picture:
    """Who owns A, B and C of a product under the map of its result."""
    c = ly.wg_map([8, 4], [32, 64])
    a, b = derive.mma_operands(c, 32)
    above = draw.subgroups(b.over([32, 256]), "B, derived", side=260)
    left = draw.subgroups(a.over([256, 32]), "A, derived", side=260)
    # A beside the rows and B above the columns of C that they make.
    sheet = Picture(title="who owns A, B and C")
    sheet.place(above, left.width, 0)
    sheet.place(left, 0, above.height + 8)
    sheet.place(
        draw.subgroups(c.over([256, 256]), "C: [8, 4] x [32, 64]", side=260),
        left.width,
        above.height + 8,
    )
    return sheet


GEMM = DOCS.parent / "examples/rfc/xegpu_1_1_gemm_prefetch.mlir"


@cache
def levels() -> dict[str, ModuleOp]:
    """The GEMM of docs/tile-to-instruction.md behind every pass."""
    module = parse_module(GEMM.read_text(encoding="utf-8"), GEMM.name)
    xegpu_to_xetile(module)
    found: dict[str, ModuleOp] = {}
    lower(module, observe=lambda name, m: found.update({name: m.clone()}))
    return found


def ops_of(stage: str, name: str) -> list[Any]:
    """The ops of one kind behind a pass, in program order."""
    return [op for op in levels()[stage].walk() if op.name == name]


def prefetch() -> Picture:
    """Who prefetches what of A and B: the tiles of a later step, distributed to all subgroups."""
    pictures: list[Picture] = []
    for op, name in zip(ops_of("xegpu-insert-barriers", "xegpu.prefetch_nd"), "AB", strict=True):
        tile = op.tensor_desc.type
        owned = distribution(tile.ownership).over(tile.get_shape())
        pictures.append(draw.subgroups(owned, f"{name}, prefetched", side=260))
    return stack(pictures, across=True)


def inst_fragments() -> Picture:
    """What one subgroup holds, cut into instructions; thick lines go around what one message moves."""
    held = [op.value.type.get_shape() for op in ops_of("xegpu-slm-layout", "xegpu.load_nd")]
    held += [op.result.type.get_shape() for op in ops_of("xegpu-slm-layout", "xegpu.dpas")]
    loads = [op.tensor_desc.type for op in ops_of("xegpu-blocking", "xegpu.load_nd")]
    store = ops_of("xegpu-blocking", "xegpu.store_nd")[0].tensor_desc.type
    product = ops_of("xegpu-blocking", "xegpu.dpas")[0]
    blocks = [v.type.get_shape() for v in (*product.operands[:2], product.result)]
    pictures: list[Picture] = []
    for name, shape, block, moved in zip(
        "ABC", held, blocks, (loads[0], loads[-1], store), strict=True
    ):
        rows, columns = moved.get_shape()
        message = (rows, columns * moved.array_length)
        side = 5 * max(shape)
        pictures.append(draw.instructions(shape, block, name, message=message, side=side))
    return stack(pictures, across=True)


def dpas() -> Picture:
    """Fragments of PVC's DPAS for bfloat16."""
    f = uarch.machine("xe-pvc").instruction("bf16", "bf16", "f32").fragments()
    assert f.a is not None and f.b is not None
    return stack(
        [
            stack(
                [draw.fragments(f.a, "A, 16 lanes", cell=23), draw.fragments(f.c, "C", cell=23)], 8
            ),
            draw.fragments(f.b, "B, rows in pairs (VNNI)", cell=23),
        ],
        across=True,
    )


def mma_sync() -> Picture:
    """Fragments of mma.sync.m16n8k16, which are those of one warp of wgmma."""
    f = uarch.machine("sm_80").instruction("bf16", "bf16", "f32").fragments()
    assert f.a is not None and f.b is not None
    parts = (("A, 32 lanes", f.a), ("B", f.b), ("C", f.c))
    return stack([draw.fragments(x, name, cell=23) for name, x in parts], 4, across=True)


def transpose() -> Picture:
    """What subgroups send each other for a transpose, under two maps (XeTile RFC, appendix 2.3)."""
    target = ly.wg_map([8, 4], [32, 64]).over([32, 256])
    pictures: list[Picture] = []
    for grid in ([4, 8], [32, 1]):
        source = ly.wg_map(grid, [64, 32]).over([256, 32])
        title = f"loaded with sg_layout = {grid}"
        pictures.append(draw.traffic(plan.convert(source.permuted((1, 0)), target), title, cell=9))
    return stack(pictures, across=True)


def swizzle() -> Picture:
    """Eight rows of 128 bytes, plain and with the 128-byte swizzle."""
    plain, swizzled = ly.row_major([8, 64]), smem_tile(8, 64, 2)
    return stack(
        [
            draw.addresses(plain, "row-major: a column is one bank group", chunk=8, cell=32),
            draw.addresses(swizzled, "128-byte swizzle: a column is all of them", chunk=8, cell=32),
        ],
        across=True,
    )


def panel() -> Picture:
    """The start of a packed B panel for AMX."""
    (kernel,) = X86_64.able({"amx-tile", "amx-bf16"}, "bf16", "bf16", "f32")
    packed = fr.b_panel(kernel, 32, 32)
    title = "B packed for AMX bf16: element addresses"
    return draw.addresses(packed, title, itemsize=2, cell=32, rows=6, columns=18)


class Drawn(NamedTuple):
    """A picture that something draws of itself."""

    text: str

    def svg(self) -> str:
        return self.text


def _example(name: str) -> Any:
    path = DOCS.parent / "examples" / "graph" / f"{name}.py"
    return run_path(str(path))["graph"]()


def graph_recurrent() -> Drawn:
    """A stack of recurrent cells: a scan, as traced."""
    return Drawn(_example("recurrent")._repr_svg_())


def graph_linear_attention() -> Drawn:
    """Linear attention over chunks: a scan, as traced."""
    return Drawn(_example("linear_attention")._repr_svg_())


PICTURES: dict[str, Callable[[], Picture | Drawn]] = {
    p.__name__: p
    for p in (
        rounds, order, product, prefetch, inst_fragments, dpas, mma_sync, transpose, swizzle, panel,
        graph_recurrent, graph_linear_attention,
    )
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main({IMAGES / f"{name}.svg": picture().svg() for name, picture in PICTURES.items()}))
