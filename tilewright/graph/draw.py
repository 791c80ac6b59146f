"""A graph as an SVG: levels of memory as columns, Tasks as nested boxes, edges with their access maps and bytes.

svg = draw(graph)          # what a notebook shows for a graph: TiledGraph._repr_svg_
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from math import prod

from tilewright.graph.affine import Affine
from tilewright.graph.nodes import GLOBAL, Buffer, Operation, Task, TiledEdge, TiledGraph
from tilewright.graph.text import print_access, print_operand

LINE = 20
PAD = 12
CHARACTER = 6.7
"""Width of a character at the size of the font, in pixels."""
COLOURS = {GLOBAL: "#e3ecfb", "shared": "#e5f4e3", "register": "#fdf0d5"}
MAPPED = {"block": "#b8c7e8", "sequential": "#cfe3cb", "group": "#eadfc0", "each": "#dddddd"}


@dataclass
class _Canvas:
    parts: list[str] = field(default_factory=list[str])
    width: float = 0.0

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, title: str = ""
    ) -> None:
        self.width = max(self.width, x + width)
        note = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5" '
            f'fill="{fill}" stroke="#8a93a5">{note}</rect>'
        )

    def text(self, x: float, y: float, text: str, style: str = "") -> None:
        self.width = max(self.width, x + len(text) * CHARACTER)
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(text)}</text>')

    def line(self, x: float, y: float, to: float, down: float, title: str) -> None:
        middle = (x + to) / 2
        self.parts.append(
            f'<path d="M{x:.1f} {y:.1f} C{middle:.1f} {y:.1f} {middle:.1f} {down:.1f} {to:.1f} {down:.1f}" '
            f'fill="none" stroke="#5b7db8" marker-end="url(#arrow)"><title>{escape(title)}</title></path>'
        )


def draw(graph: TiledGraph) -> str:
    """The picture, as the text of an SVG file."""
    canvas = _Canvas()
    names = [b for b in graph.buffers.values() if b.level == GLOBAL]
    left = max((len(_label(b)) for b in names), default=8) * CHARACTER + 2 * PAD
    places: dict[str, float] = {}
    canvas.text(PAD, LINE, f"{graph.name}: global memory", ' font-weight="bold"')
    y = LINE + PAD
    for buffer in names:
        canvas.box(PAD, y, left, LINE + 8, COLOURS[GLOBAL], buffer.role)
        canvas.text(2 * PAD, y + LINE, _label(buffer))
        places[buffer.name] = y + LINE / 2 + 4
        y += LINE + 16
    down = LINE + PAD
    for task in graph.tasks:
        down = _task(canvas, graph, task, left + 10 * PAD, down, places, PAD + left) + PAD
    height = max(y, down) + PAD
    width = canvas.width + 2 * PAD
    body = "\n".join(canvas.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="ui-monospace, monospace" font-size="11">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#5b7db8"/></marker></defs>\n'
        f"{body}\n</svg>\n"
    )


def _task(
    canvas: _Canvas,
    graph: TiledGraph,
    task: Task,
    x: float,
    y: float,
    places: dict[str, float],
    edge: float,
) -> float:
    """Draws a Task with its children; gives the bottom."""
    at = len(canvas.parts)
    axes = ", ".join(
        f"{a.name}: {a.mapping} {a.extent}" + (f" by {a.step}" if a.step > 1 else "")
        for a in task.axes
    )
    head = f"{task.name}   {axes}"
    canvas.text(x + PAD, y + LINE, head, ' font-weight="bold"')
    right = x + len(head) * CHARACTER + 2 * PAD
    bottom = y + LINE + PAD
    for node in task.nodes:
        if isinstance(node, Task):
            before, canvas.width = canvas.width, 0.0
            bottom = _task(canvas, graph, node, x + 2 * PAD, bottom, places, edge) + PAD / 2
            right, canvas.width = max(right, canvas.width + PAD), max(before, canvas.width)
            continue
        label = _operation(graph, node)
        level = graph.buffers[node.store.access.buffer].level
        wide = len(label) * CHARACTER + 2 * PAD
        canvas.box(x + PAD, bottom, wide, LINE + 4, COLOURS.get(level, "#eeeeee"), f"to {level}")
        canvas.text(x + 2 * PAD, bottom + LINE - 3, label)
        middle = bottom + LINE / 2 + 2
        for each, told in _global_edges(graph, node):
            place = places[each.access.buffer]
            if each.direction == "load":
                canvas.line(edge, place, x + PAD, middle, told)
            else:
                canvas.line(x + PAD, middle, edge, place, told)
        right = max(right, x + PAD + wide + PAD)
        bottom += LINE + 10
    frame = _Canvas()
    kind = task.axes[0].mapping if task.axes else "each"
    frame.box(x, y, right - x, bottom - y, MAPPED[kind], f"Task {task.name}")
    canvas.parts[at:at] = [
        frame.parts[0].replace("/>", ">").replace('stroke="', 'fill-opacity="0.45" stroke="')
    ]
    canvas.width = max(canvas.width, right)
    return bottom


def _operation(graph: TiledGraph, operation: Operation) -> str:
    parts = ", ".join(print_operand(graph, o) for o in operation.operands)
    sign = "=" if operation.store.combine is None else f"{operation.store.combine}="
    return f"{print_access(graph, operation.store.access)} {sign} {operation.op}({parts})"


def _global_edges(graph: TiledGraph, operation: Operation) -> Iterator[tuple[TiledEdge, str]]:
    for each in operation.edges:
        buffer = graph.buffers[each.access.buffer]
        if buffer.level == GLOBAL:
            size = _bytes(buffer, each.access.shape)
            yield each, f"{each.direction} {print_access(graph, each.access)}{size}"


def _bytes(buffer: Buffer, shape: tuple[Affine, ...]) -> str:
    numbers = [e.number for e in shape]
    if any(n is None for n in numbers):
        return ""
    return f": {prod(n for n in numbers if n is not None) * buffer.dtype.itemsize} bytes"


def _label(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
