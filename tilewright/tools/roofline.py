"""What a machine allows at most by operations per byte, and where a kernel stands: a picture with logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from tilewright.frozen import frozen
from tilewright.tools.drawing import INK, RULE, SOFT, Line, Picture, Rect, Text

LEFT, TOP, WIDTH, HEIGHT, BELOW = 70, 72, 520, 320, 46
COLORS = ("#2563eb", "#059669", "#b45309")


@frozen
class Roof:
    """A rate that nothing exceeds: of operations, or of bytes."""

    name: str
    rate: float
    """Per second, of the whole machine."""


@frozen
class Point:
    """A launch."""

    name: str
    intensity: float
    """Operations per byte of its arrays."""
    rate: float
    """Operations per second."""


def roofline(
    title: str, about: str, flops: Sequence[Roof], bytes: Sequence[Roof], points: Sequence[Point]
) -> Picture:
    """The picture, in 1e9 per second: each slope is a memory's bytes, each level a unit's operations."""
    flops, bytes = ([Roof(r.name, r.rate / 1e9) for r in roofs] for roofs in (flops, bytes))
    points = [Point(p.name, p.intensity, p.rate / 1e9) for p in points]
    low_x, high_x = _powers(
        [p.intensity for p in points] + [f.rate / b.rate for f in flops for b in bytes]
    )
    top = max(f.rate for f in flops)
    low_y, high_y = _powers(
        [p.rate for p in points] + [top, min(b.rate for b in bytes) * 2.0**low_x]
    )
    picture = Picture(LEFT + WIDTH + 30, TOP + HEIGHT + BELOW, title=title)

    def x(value: float) -> float:
        return LEFT + WIDTH * (log2(value) - low_x) / (high_x - low_x)

    def y(value: float) -> float:
        return TOP + HEIGHT * (1 - (log2(value) - low_y) / (high_y - low_y))

    picture.add(Text(10, 20, title, 13, bold=True), Text(10, 38, about, 11, color=SOFT))
    for power in range(low_x, high_x + 1, max(1, (high_x - low_x) // 8)):
        at = x(2.0**power)
        picture.add(Line(at, TOP, at, TOP + HEIGHT))
        picture.add(Text(at, TOP + HEIGHT + 16, _number(2.0**power), 10, "middle", SOFT))
    for power in range(low_y, high_y + 1, max(1, (high_y - low_y) // 8)):
        at = y(2.0**power)
        picture.add(Line(LEFT, at, LEFT + WIDTH, at))
        picture.add(Text(LEFT - 6, at + 4, _number(2.0**power), 10, "end", SOFT))
    picture.add(Text(LEFT + WIDTH / 2, TOP + HEIGHT + 36, "operations per byte", 11, "middle"))
    picture.add(Text(LEFT - 6, TOP - 8, "GFLOP/s", 11, "end"))
    for level in flops:
        start = max(2.0**low_x, level.rate / max(b.rate for b in bytes))
        picture.add(Line(x(start), y(level.rate), LEFT + WIDTH, y(level.rate), INK, 1.6))
        picture.add(Text(x(start) + 4, y(level.rate) - 5, level.name, 10))
    slowest = min(b.rate for b in bytes)
    for slope in bytes:
        start = max(2.0**low_x, 2.0**low_y / slope.rate)
        end = min(2.0**high_x, top / slope.rate)
        picture.add(Line(x(start), y(start * slope.rate), x(end), y(end * slope.rate), INK, 1.6))
        apart = 16 if slope.rate == slowest else -24
        picture.add(Text(x(start) + 8, y(start * slope.rate) + apart, slope.name, 10))
    for point, color in zip(points, COLORS * len(points), strict=False):
        at, height = x(point.intensity), y(point.rate)
        tip = f"{point.name}: {point.rate:.1f} GFLOP/s at {point.intensity:.2f} per byte"
        picture.add(Rect(at - 4, height - 4, 8, 8, color, tip=tip))
        picture.add(Text(at + 8, height + 4, point.name, 10, color=color))
    picture.add(Line(LEFT, TOP + HEIGHT, LEFT + WIDTH, TOP + HEIGHT, RULE, 1.5))
    return picture


def _powers(values: Sequence[float]) -> tuple[int, int]:
    """Exponents of two around some numbers."""
    found = [log2(value) for value in values if value > 0]
    return int(min(found) // 1) - 1, -int(-max(found) // 1) + 1


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1 else f"1/{1 / value:.0f}"
