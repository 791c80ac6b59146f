"""`tilewright show`: which maps it finds, and what the pictures say about them."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tilewright import layout as ly
from tilewright.dialects.text import parse_module
from tilewright.tools import ownership, show
from tilewright.tools.cli import main
from tilewright.tools.drawing import Picture, Rect, Text, color, width_of

KERNEL = """
#a = #xetile.wg_map<sg_layout = [2, 2], sg_data = [32, 32]>
#r = #xetile.wg_map<sg_layout = [4, 1], sg_data = [16, 32]>
#t = #xetile.tile_attr<wg_map = #a, sg_map = <wi_layout = [1, 16], wi_data = [1, 1]>>
func.func @k(%A: memref<64x32xf32>) {
  %0 = xetile.init_tile %A[0, 0] : memref<64x32xf32> -> !xetile.tile<64x32xf32, #t>
  %1 = xetile.load_tile %0 : !xetile.tile<64x32xf32, #t> -> vector<64x32xf32>
  %2 = xetile.convert_layout %1 {wg_map_result = #r, wg_map_source = #a} : vector<64x32xf32>
  return
}
"""
LAYOUTS = """
#l = #xegpu.layout<sg_layout = [2, 2], sg_data = [16, 32], lane_layout = [1, 16], lane_data = [1, 1]>
func.func @k(%A: memref<64x64xf16>) {
  %0 = xegpu.create_nd_tdesc %A : memref<64x64xf16> -> !xegpu.tensor_desc<32x64xf16, #l>
  return
}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.mlir"
    path.write_text(KERNEL)
    return path


def texts(picture: Picture) -> list[str]:
    return [s.text for s in picture.shapes if isinstance(s, Text)]


def test_every_map_is_found_once():
    found = show.collect(parse_module(KERNEL, "kernel.mlir"))
    grids = [(owned.map.sg_layout, owned.map.sg_data, owned.map.lane_layout) for owned in found]
    assert grids == [
        ((2, 2), (32, 32), (1, 16)),
        ((4, 1), (16, 32), None),
        ((2, 2), (32, 32), None),
    ]
    assert found[0].places == ["xetile.init_tile, line 6"]
    assert "each part shared by 2" in found[0].summary


def test_layouts_of_xegpu_are_found():
    (owned,) = show.collect(parse_module(LAYOUTS, "kernel.mlir"))
    assert owned.shape == (32, 64)
    assert (
        owned.summary
        == "32x64: 4 subgroups with a part of 16x32 each; 16 lanes with 32 elements each"
    )


def test_list(kernel: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["show", str(kernel)]) == 0
    out = capsys.readouterr().out
    assert "wg_map<sg_layout = [4, 1], sg_data = [16, 32]>" in out and "line 8" in out


def test_page_is_self_contained(kernel: Path, tmp_path: Path):
    out = tmp_path / "out.html"
    assert main(["show", str(kernel), "-o", str(out)]) == 0
    text = out.read_text()
    assert text.count("<svg") == 3
    assert not re.search(r"""(src|href)=|url\(|@import""", text)


def test_svg_is_xml(kernel: Path, tmp_path: Path):
    out = tmp_path / "out.svg"
    assert main(["show", str(kernel), "-o", str(out)]) == 0
    root = ET.fromstring(out.read_text())
    assert root.tag.endswith("svg") and len(root) > 50


def test_png(kernel: Path, tmp_path: Path):
    out = tmp_path / "out.png"
    code = main(["show", str(kernel), "-o", str(out)])
    if importlib.util.find_spec("matplotlib") is None:
        assert code == 3 and not out.exists()
    else:
        assert code == 0 and out.read_bytes().startswith(b"\x89PNG")


def test_other_suffixes_are_refused(kernel: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["show", str(kernel), "-o", "out.gif"]) == 2
    assert "show writes .html, .svg or .png" in capsys.readouterr().err


def test_nothing_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "plain.mlir"
    path.write_text("func.func @k() {\n  return\n}\n")
    assert main(["show", str(path), "-o", str(tmp_path / "x.svg")]) == 1
    assert "has no map to draw" in capsys.readouterr().err
    assert main(["show", str(path)]) == 0


def test_blocks_name_their_owners_and_share_colours():
    """The [128, 128] table of the RFC: two colours, alternating; both owners on each block."""
    picture = ownership.subgroups(ly.wg_map([2, 2], [32, 128]).over([128, 128]))
    blocks = [s for s in picture.shapes if isinstance(s, Rect) and s.tip]
    assert [b.tip.partition(": ")[2] for b in blocks] == ["subgroups 0, 1", "subgroups 2, 3"] * 2
    assert blocks[0].fill == blocks[2].fill != blocks[1].fill == blocks[3].fill
    assert texts(picture).count("0, 1") == 2


def test_distinct_owners_have_distinct_colours():
    picture = ownership.subgroups(ly.wg_map([8, 4], [32, 64]).over([256, 256]))
    fills = [s.fill for s in picture.shapes if isinstance(s, Rect) and s.tip]
    assert len(fills) == len(set(fills)) == 32
    assert len({color(i, j, 8, 4) for i in range(8) for j in range(4)}) == 32


def test_cells_say_lane_and_register():
    picture = ownership.fragments(ly.sg_map([1, 4], [2, 1]).over([2, 4]))
    seen = texts(picture)
    assert seen.count("r0") == 4 and seen.count("r1") == 4
    cells = [s for s in picture.shapes if isinstance(s, Rect) and s.width == s.height]
    assert len(cells) == 8 and len({cell.fill for cell in cells}) == 4


def test_a_tile_too_large_for_cells_is_refused():
    with pytest.raises(ValueError, match="256x256 cells are too many"):
        ownership.fragments(ly.sg_map([1, 16], [1, 1]).over([256, 256]))


def test_too_many_blocks_are_counted_instead():
    picture = ownership.subgroups(ly.wg_map([8, 8], [1, 1]).over([512, 512]))
    assert "512x512 blocks are too many to draw" in texts(picture)


def test_many_planes_are_cut():
    picture = ownership.subgroups(ly.layout([1, 2, 2], [1, 8, 8]).over([12, 16, 16]))
    assert "8 of 12 planes drawn" in texts(picture)


def test_shapes_of_every_rank_can_be_drawn():
    line = ownership.subgroups(ly.layout([4], [8]).over([32]), "a row")
    cube = ownership.subgroups(ly.layout([2, 2, 2], [1, 8, 8]).over([2, 16, 16]), "a cube")
    assert sum(isinstance(s, Rect) and bool(s.tip) for s in line.shapes) == 4
    assert sum(isinstance(s, Rect) and bool(s.tip) for s in cube.shapes) == 8
    for picture in (line, cube):
        ends = [s.x + width_of(s.text, s.size) for s in picture.shapes if isinstance(s, Text)]
        assert max(ends) <= picture.width


def test_owners_at_every_level_of_xe(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Subgroups of the workgroup, instructions of a subgroup, lanes of an instruction."""
    path = Path(__file__).parents[2] / "examples/rfc/xegpu_1_1_gemm_prefetch.mlir"
    assert main(["show", str(path), "--stages", "--target", "xe-pvc"]) == 0
    text = capsys.readouterr().out
    for level in ("xegpu, of subgroups", "xegpu-sg, of a subgroup's", "xegpu-inst, of an instr"):
        assert level in text
    assert "inst_data = [8, 16], lane_layout = [1, 16]" in text
    page = tmp_path / "gemm.html"
    assert main(["show", str(path), "--stages", "--target", "xe-pvc", "-o", str(page)]) == 0
    assert page.read_text().count("<svg") > 8
