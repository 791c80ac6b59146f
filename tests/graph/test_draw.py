"""Pictures: well-formed SVG with a box for every Task and Operation, and an edge for every access to global memory."""

from __future__ import annotations

import html
import itertools
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graph as G
from tilewright.graph.nodes import Task
from tilewright.graph.text import print_access, print_operand
from tilewright.tools.cli import main

from .test_examples import NAMES, example
from .test_text import SCHEDULED

SVG = "{http://www.w3.org/2000/svg}"


def titles(root, tag):
    return [t.text for each in root.iter(SVG + tag) for t in each.findall(SVG + "title")]


def test_a_scheduled_graph_is_drawn_with_its_levels(tmp_path):
    graph = G.parse_graph(SCHEDULED)
    graph.show(str(tmp_path / "g.svg"))
    root = ET.parse(tmp_path / "g.svg").getroot()
    boxes = titles(root, "rect")
    assert "load 16384 bytes" in "".join(root.itertext())
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


def tasks_of(nodes):
    for node in nodes:
        if isinstance(node, Task):
            yield node
            yield from tasks_of(node.nodes)


def labels(graph):
    """What must be readable in a picture: Buffers, Operations with their operands, and the edges to global memory."""
    for b in graph.buffers.values():
        if b.level == "global":
            yield f"{b.name}: {b.dtype}[{', '.join(map(str, b.shape))}]"
    for operation in graph.operations():
        yield from (print_operand(graph, o) for o in operation.operands)
        for edge in operation.edges:
            text = print_access(graph, edge.access)
            kept = graph.buffers[edge.access.buffer].level == "global"
            yield f"{edge.direction} {text}" if kept else text


@pytest.mark.parametrize("name", NAMES)
def test_every_node_level_and_edge_of_an_example_is_drawn_apart(name):
    """Boxes are nested or apart: of two that meet one holds the other whole."""
    graph = example(name).graph()
    root = ET.fromstring(graph._repr_svg_())
    written = "\n".join(root.itertext())
    assert [label for label in labels(graph) if label not in written] == []
    drawn = titles(root, "rect")
    tasks = [t.name for t in tasks_of(graph.tasks)]
    assert sorted(t[5:] for t in drawn if t.startswith("Task ")) == sorted(tasks)
    levels = {graph.buffers[o.store.access.buffer].level for o in graph.operations()}
    assert {f"to {level}" for level in levels} <= set(drawn)
    boxes = [[float(r.attrib[k]) for k in ("x", "y", "width", "height")] for r in root.iter(SVG + "rect")]  # fmt: skip
    spans = [(x, y, x + width, y + height) for x, y, width, height in boxes]
    for a, b in itertools.combinations(spans, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart or holds(a, b) or holds(b, a), (a, b)
    page = (0.0, 0.0, float(root.attrib["width"]), float(root.attrib["height"]))
    assert all(holds(page, span) for span in spans)


def holds(outer, inner):
    return (
        outer[0] <= inner[0]
        and outer[1] <= inner[1]
        and inner[2] <= outer[2]
        and inner[3] <= outer[3]
    )


MEASURE = """
<script>
const boxes = [...document.querySelectorAll("svg rect")].map(r => r.getBBox());
const texts = [...document.querySelectorAll("svg text")].map(t => [t.textContent, t.getBBox()]);
const holds = (a, b) => a.x <= b.x && a.y <= b.y && b.x + b.width <= a.x + a.width && b.y + b.height <= a.y + a.height;
const apart = (a, b) =>
  a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
const faults = [];
for (const [n, [text, box]] of texts.entries()) {
  if (n && !boxes.some(r => holds(r, box))) faults.push("outside: " + text);
  for (const r of boxes) if (!apart(r, box) && !holds(r, box)) faults.push("cut: " + text);
  for (const [other, b] of texts.slice(n + 1)) if (!apart(box, b)) faults.push(text + " over " + other);
}
document.body.insertAdjacentHTML("beforeend", "<p id=faults>" + texts.length + " texts: " + faults.join("; ") + "</p>");
</script>
"""
"""What only a browser knows: how wide text is in its font. No text leaves its box or lies on another one."""


@pytest.mark.parametrize("name", ["two", "recurrent"])
def test_a_browser_shows_a_graph(name, tmp_path):
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip("there is no Chromium")
    graph = G.parse_graph(SCHEDULED) if name == "two" else example(name).graph()
    graph.save(str(tmp_path / "saved.tgraph"))
    page = tmp_path / "page.html"
    assert main(["show", str(tmp_path / "saved.tgraph"), "-o", str(page)]) == 0
    page.write_text(page.read_text() + MEASURE)
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(tmp_path))
    shown = html.unescape(made.stdout)
    assert made.returncode == 0 and "<rect" in shown and "</html>" in shown
    assert all(label in shown for label in labels(graph))
    assert re.findall(r"<p id=.faults.>(\d+) texts: (.*)</p>", shown) == [
        (str(graph._repr_svg_().count("<text")), "")
    ]


def test_another_shape_of_a_buffer_says_whose_it_is():
    graph = G.trace(lambda x: np.tanh(x.reshape(6, 4)) * 2, G.array([4, 6]))
    told = "".join(ET.fromstring(graph._repr_svg_()).itertext())
    assert "f32[6, 4] of x" in told
