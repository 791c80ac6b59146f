"""Pictures: well-formed SVG with a box for every Task and Operation, and an edge for every access to global memory."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import tilewright as tw
from tilewright import graph as G

from .test_text import SCHEDULED

SVG = "{http://www.w3.org/2000/svg}"


def titles(root, tag):
    return [t.text for each in root.iter(SVG + tag) for t in each.findall(SVG + "title")]


def test_a_scheduled_graph_is_drawn_with_its_levels(tmp_path):
    graph = G.parse_graph(SCHEDULED)
    graph.show(str(tmp_path / "g.svg"))
    root = ET.parse(tmp_path / "g.svg").getroot()
    boxes = titles(root, "rect")
    assert {"Task kernel", "Task over_n", "input", "output", "to register", "to global"} <= set(
        boxes
    )
    edges = titles(root, "path")
    assert edges == [
        "load A[m:m + 128, 0:64]: 16384 bytes",
        "load B[0:64, n:n + 128]: 16384 bytes",
        "load C[n:n + 128, 0:32]: 8192 bytes",
        "store D[m:m + 128, 0:32]: 8192 bytes",
    ]
    inside = list(root.iter(SVG + "rect"))
    width = float(root.attrib["width"])
    assert all(float(r.attrib["x"]) + float(r.attrib["width"]) <= width for r in inside)


def test_a_traced_graph_is_drawn_in_a_notebook():
    graph = G.trace(
        lambda x, w: G.softmax(x @ w), G.array(["M", 8], tw.f16), G.array([8, 9], tw.f16)
    )
    root = ET.fromstring(graph._repr_svg_())
    assert sum(t.startswith("Task ") for t in titles(root, "rect")) == len(graph.tasks)


def test_the_command_line_shows_a_saved_graph(tmp_path, capsys):
    from tilewright.tools.cli import main

    path = tmp_path / "two.tgraph"
    G.parse_graph(SCHEDULED).save(str(path))
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out == SCHEDULED
    for name in ("two.svg", "two.html"):
        assert main(["show", str(path), "-o", str(tmp_path / name)]) == 0
        assert "Task over_n" in (tmp_path / name).read_text()
    assert main(["show", str(path), "-o", str(tmp_path / "two.png")]) == 2
    path.write_text(SCHEDULED.replace("mma(a, B", "mma(a, E"))
    assert main(["show", str(path)]) == 1
    assert "no Buffer is called E" in capsys.readouterr().err
