"""Pictures made of rectangles, lines and text: as SVG by themselves, as PNG through matplotlib.

Coordinates are in pixels, y down. A picture is data; nothing here knows what it shows.
"""

from __future__ import annotations

import colorsys
import io
from collections.abc import Sequence
from dataclasses import field, replace
from importlib import import_module
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from tilewright.frozen import frozen, record

FONT = "Helvetica, Arial, sans-serif"
MONO = "Menlo, Consolas, monospace"
INK, SOFT, RULE = "#1f2430", "#6b7280", "#c9ced8"


@frozen
class Rect:
    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    stroke: str = "none"
    line: float = 1.0
    tip: str = ""
    """Shown when the pointer rests on it (SVG only)."""


@frozen
class Line:
    x1: float
    y1: float
    x2: float
    y2: float
    stroke: str = RULE
    width: float = 1.0


@frozen
class Text:
    x: float
    y: float
    """Of the baseline."""
    text: str
    size: float = 12
    anchor: str = "start"
    """start, middle or end."""
    color: str = INK
    bold: bool = False
    mono: bool = False


Shape = Rect | Line | Text


@record
class Picture:
    """Shapes in drawing order, and the size of the sheet."""

    width: float = 0
    height: float = 0
    shapes: list[Shape] = field(default_factory=list[Shape])
    title: str = ""

    def add(self, *shapes: Shape) -> None:
        self.shapes += shapes

    def place(self, other: Picture, x: float, y: float) -> None:
        """Draw another picture with its corner at (x, y), and grow to hold it."""
        self.shapes += [_moved(shape, x, y) for shape in other.shapes]
        self.width = max(self.width, x + other.width)
        self.height = max(self.height, y + other.height)

    def svg(self) -> str:
        """The picture as one SVG element, without any reference to the outside."""
        body = "\n".join(_svg(shape) for shape in self.shapes)
        w, h = _n(self.width), _n(self.height)
        title = f"<title>{escape(self.title)}</title>\n" if self.title else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" '
            f'viewBox="0 0 {w} {h}" font-family="{FONT}" role="img">\n{title}'
            f'<rect width="{w}" height="{h}" fill="#ffffff"/>\n{body}\n</svg>\n'
        )

    def png(self, scale: float = 2.0) -> bytes:
        """The picture as PNG. ImportError without matplotlib."""
        figures, lines, patches = (
            import_module(f"matplotlib.{name}") for name in ("figure", "lines", "patches")
        )
        dpi = 72 * scale
        figure: Any = figures.Figure(
            figsize=(self.width / 72, self.height / 72), dpi=dpi, facecolor="white"
        )
        axes: Any = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, self.width)
        axes.set_ylim(self.height, 0)
        axes.axis("off")
        for shape in self.shapes:
            match shape:
                case Rect():
                    corner = (shape.x, shape.y)
                    axes.add_patch(
                        patches.Rectangle(
                            corner,
                            shape.width,
                            shape.height,
                            facecolor=shape.fill,
                            edgecolor=shape.stroke,
                            linewidth=shape.line if shape.stroke != "none" else 0,
                        )
                    )
                case Line():
                    xs, ys = (shape.x1, shape.x2), (shape.y1, shape.y2)
                    axes.add_line(lines.Line2D(xs, ys, color=shape.stroke, linewidth=shape.width))
                case Text():
                    align = {"start": "left", "middle": "center", "end": "right"}[shape.anchor]
                    axes.text(
                        shape.x,
                        shape.y,
                        shape.text.replace("$", r"\$"),
                        fontsize=shape.size,
                        ha=align,
                        va="baseline",
                        color=shape.color,
                        fontweight="bold" if shape.bold else "normal",
                        family="monospace" if shape.mono else "sans-serif",
                    )
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=dpi)
        return out.getvalue()


def stack(pictures: Sequence[Picture], gap: float = 28, *, across: bool = False) -> Picture:
    """Pictures one below the other, or beside one another."""
    sheet = Picture(title=", ".join(p.title for p in pictures if p.title))
    for picture in pictures:
        if across:
            sheet.place(picture, sheet.width + (gap if sheet.shapes else 0), 0)
        else:
            sheet.place(picture, 0, sheet.height + (gap if sheet.shapes else 0))
    return sheet


def heading(text: str, size: float = 13) -> Picture:
    """A line of monospaced text on a sheet of its own."""
    picture = Picture(10 + 1.1 * width_of(text, size), size + 8, title=text)
    picture.add(Text(10, size + 2, text, size, mono=True))
    return picture


def color(i: int, j: int, rows: int, columns: int) -> str:
    """The colour of member (i, j) of a family: hue by row, depth by column (or hue by the only axis)."""
    if rows == 1:
        i, j, rows, columns = j, 0, columns, 1
    hue = (0.58 + i / max(rows, 1) * 0.92) % 1.0
    shade = 0.0 if columns == 1 else j / (columns - 1)
    red, green, blue = colorsys.hls_to_rgb(hue, 0.86 - 0.20 * shade, 0.70 - 0.15 * shade)
    return "#" + "".join(f"{round(255 * c):02x}" for c in (red, green, blue))


def width_of(text: str, size: float) -> float:
    """About how wide a text is, in pixels."""
    return len(text) * size * 0.56


def _moved(shape: Shape, x: float, y: float) -> Shape:
    match shape:
        case Line():
            return replace(
                shape, x1=shape.x1 + x, y1=shape.y1 + y, x2=shape.x2 + x, y2=shape.y2 + y
            )
        case _:
            return replace(shape, x=shape.x + x, y=shape.y + y)


def _svg(shape: Shape) -> str:
    match shape:
        case Rect():
            at = f'x="{_n(shape.x)}" y="{_n(shape.y)}" width="{_n(shape.width)}"'
            stroke = (
                ""
                if shape.stroke == "none"
                else f' stroke="{shape.stroke}" stroke-width="{shape.line}"'
            )
            rect = f'<rect {at} height="{_n(shape.height)}" fill="{shape.fill}"{stroke}'
            return f"{rect}><title>{escape(shape.tip)}</title></rect>" if shape.tip else f"{rect}/>"
        case Line():
            ends = " ".join(
                f'{name}="{_n(v)}"'
                for name, v in (
                    ("x1", shape.x1),
                    ("y1", shape.y1),
                    ("x2", shape.x2),
                    ("y2", shape.y2),
                )
            )
            return f'<line {ends} stroke="{shape.stroke}" stroke-width="{shape.width}"/>'
        case Text():
            extra = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            extra += ' font-weight="bold"' if shape.bold else ""
            extra += f" font-family={quoteattr(MONO)}" if shape.mono else ""
            return (
                f'<text x="{_n(shape.x)}" y="{_n(shape.y)}" font-size="{_n(shape.size)}" '
                f'fill="{shape.color}"{extra}>{escape(shape.text)}</text>'
            )


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
