"""A graph as an SVG: levels of memory as columns, Tasks as nested boxes, edges with their access maps and bytes.

svg = draw(graph)          # what a notebook shows for a graph: TiledGraph._repr_svg_
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import prod

from tilewright.frozen import field, frozen, record
from tilewright.graph.affine import Affine
from tilewright.graph.nodes import GLOBAL, Buffer, Operation, Task, TiledEdge, TiledGraph
from tilewright.graph.text import print_access, print_alias, print_operation

LINE = 20
PAD = 12
CHARACTER = 6.7
"""Width of a character at the size of the font, in pixels."""
COLOURS = {GLOBAL: "#e3ecfb", "shared": "#e5f4e3", "register": "#fdf0d5"}
EDGES = {"load": "#5b7db8", "store": "#b8743c"}
MAPPED = {"block": "#b8c7e8", "sequential": "#cfe3cb", "group": "#eadfc0", "each": "#dddddd"}


@record
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

    def text(self, x: float, y: float, text: str, style: str = "", more: str = "") -> float:
        """Text, and more of it in grey; gives where it ends."""
        end = x + (len(text) + (len(more) + 2 if more else 0)) * CHARACTER
        self.width = max(self.width, end)
        at = x + (len(text) + 2) * CHARACTER
        grey = f'<tspan x="{at:.1f}" fill="#6a7280" font-weight="normal">{escape(more)}</tspan>'
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(text)}{grey if more else ""}</text>'
        )
        return end

    def line(self, x: float, y: float, to: float, down: float, title: str) -> None:
        middle = (x + to) / 2
        direction = "load" if x < to else "store"
        self.parts.append(
            f'<path d="M{x:.1f} {y:.1f} C{middle:.1f} {y:.1f} {middle:.1f} {down:.1f} {to:.1f} {down:.1f}" '
            f'fill="none" stroke="{EDGES[direction]}" marker-end="url(#{direction})"><title>{escape(title)}'
            "</title></path>"
        )


@frozen
class _End:
    """Where an edge meets an Operation."""

    edge: TiledEdge
    told: str
    x: float
    y: float


def draw(graph: TiledGraph) -> str:
    """The picture, as the text of an SVG file: every Buffer stands beside the first Operation that touches it."""
    canvas = _Canvas()
    kept = [b for b in graph.buffers.values() if b.level == GLOBAL]
    left = max((len(_label(b)) for b in kept), default=8) * CHARACTER + 2 * PAD
    canvas.text(PAD, LINE, f"{graph.name}: global memory", ' font-weight="bold"')
    ends: list[_End] = []
    down = LINE + PAD
    for task in graph.tasks:
        down = _task(canvas, graph, task, left + 10 * PAD, down, ends) + PAD
    first: dict[str, float] = {}
    for end in ends:
        first.setdefault(end.edge.access.buffer, end.y)
    places: dict[str, float] = {}
    y = LINE + PAD
    for buffer in sorted(kept, key=lambda b: first.get(b.name, 0)):
        y = max(y, first.get(buffer.name, 0) - LINE / 2 - 4)
        canvas.box(PAD, y, left, LINE + 8, COLOURS[GLOBAL], buffer.role)
        canvas.text(2 * PAD, y + LINE, _label(buffer))
        places[buffer.name] = y + LINE / 2 + 4
        y += LINE + 16
    for end in ends:
        place = places[end.edge.access.buffer]
        if end.edge.direction == "load":
            canvas.line(PAD + left, place, end.x, end.y, end.told)
        else:
            canvas.line(end.x, end.y, PAD + left, place, end.told)
    height = max(y, down) + PAD
    width = canvas.width + 2 * PAD
    body = "\n".join(canvas.parts)
    arrows = "".join(_ARROW.format(direction=d, colour=c) for d, c in EDGES.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="ui-monospace, monospace" font-size="11">'
        f"<defs>{arrows}</defs>\n{body}\n</svg>\n"
    )


_ARROW = (
    '<marker id="{direction}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
    'orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
)


def _task(
    canvas: _Canvas, graph: TiledGraph, task: Task, x: float, y: float, ends: list[_End]
) -> float:
    """Draws a Task with its children, and notes the ends of its edges; gives the bottom."""
    at = len(canvas.parts)
    axes = ", ".join(
        f"{a.name}: {a.mapping} {a.extent}" + (f" by {a.step}" if a.step > 1 else "")
        for a in task.axes
    )
    right = canvas.text(x + PAD, y + LINE, task.name, ' font-weight="bold"', axes) + PAD
    bottom = y + LINE + PAD
    for node in task.nodes:
        if isinstance(node, Task):
            before, canvas.width = canvas.width, 0.0
            bottom = _task(canvas, graph, node, x + 2 * PAD, bottom, ends) + PAD / 2
            right, canvas.width = max(right, canvas.width + PAD), max(before, canvas.width)
            continue
        level = graph.buffers[node.store.access.buffer].level
        edges = list(_global_edges(graph, node))
        moved = ", ".join(f"{e.direction} {size}" for e, _, size in edges if size)
        label = print_operation(graph, node)
        end = canvas.text(x + 2 * PAD, bottom + LINE - 3, label, "", moved)
        text = canvas.parts.pop()
        canvas.box(
            x + PAD, bottom, end + PAD - x - PAD, LINE + 4, COLOURS.get(level, "#eeeeee"), f"to {level}"
        )  # fmt: skip
        canvas.parts.append(text)
        ends += [_End(e, told, x + PAD, bottom + LINE / 2 + 2) for e, told, _ in edges]
        right = max(right, end + 2 * PAD)
        bottom += LINE + 10
    frame = _Canvas()
    kind = task.axes[0].mapping if task.axes else "each"
    frame.box(x, y, right - x, bottom - y, MAPPED[kind], f"Task {task.name}")
    canvas.parts[at:at] = [
        frame.parts[0].replace("/>", ">").replace('stroke="', 'fill-opacity="0.45" stroke="')
    ]
    canvas.width = max(canvas.width, right)
    return bottom


def _global_edges(graph: TiledGraph, operation: Operation) -> Iterator[tuple[TiledEdge, str, str]]:
    """The edges to global memory, with what is told of them and their bytes, as far as these are numbers."""
    for each in operation.edges:
        buffer = graph.buffers[each.access.buffer]
        if buffer.level == GLOBAL:
            size = _bytes(buffer, each.access.shape)
            told = f"{each.direction} {print_access(graph, each.access)}"
            yield each, f"{told}: {size}" if size else told, size


def _bytes(buffer: Buffer, shape: tuple[Affine, ...]) -> str:
    numbers = [e.number for e in shape]
    if not shape or any(n is None for n in numbers):
        return ""
    return f"{prod(n for n in numbers if n is not None) * buffer.dtype.itemsize} bytes"


def _label(buffer: Buffer) -> str:
    label = f"{buffer.name}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]"
    return f"{label} of {print_alias(buffer)}" if buffer.alias_of is not None else label
