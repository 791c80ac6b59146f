"""Pictures of ownership, drawn from the normal form: which subgroup, lane, register or address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tilewright.layout import Axis, ConversionPlan, Layout
from tilewright.tools.drawing import (
    INK,
    RULE,
    SOFT,
    Line,
    Picture,
    Rect,
    Text,
    color,
    stack,
    width_of,
)

_HEAD = 44
_MARGIN = 46
_MAX_CELLS = 1 << 13
_MAX_PLANES = 8


def subgroups(layout: Layout, title: str = "", *, side: float = 300) -> Picture:
    """The tile to scale, each block in the colour of the subgroups that own it and with their ids.

    Blocks of one colour belong to one subgroup (round-robin); a block with several ids is shared. A
    layout of rank 1 is a row; of a rank above 2 the last two dimensions are drawn, once per index of the
    others.
    """
    leading = list(np.ndindex(*layout.shape[:-2]))
    shown = leading[:_MAX_PLANES]
    side = side if len(shown) == 1 else side * 0.7
    planes = [_plane(layout, index, title if not i else "", side) for i, index in enumerate(shown)]
    rows = [stack(planes[i : i + 4], 4, across=True) for i in range(0, len(planes), 4)]
    if len(leading) > len(shown):
        note = Picture(200, 18)
        note.add(Text(_MARGIN, 12, f"{len(shown)} of {len(leading)} planes drawn", 11, color=SOFT))
        rows.append(note)
    return stack(rows, 6)


def instructions(
    shape: Sequence[int],
    block: Sequence[int],
    title: str = "",
    *,
    message: Sequence[int] | None = None,
    side: float = 300,
) -> Picture:
    """A subgroup's tile to scale, cut into the blocks of its instructions, which are numbered in row-major order.

    ``message``: extents of what one block message moves, outlined. Of a rank above 2 the last two dimensions
    are drawn.
    """
    steps = (1, *block)[-2], block[-1]
    rows, columns = (
        -(-extent // step) for extent, step in zip((1, *shape)[-2:], steps, strict=True)
    )

    def paint(row: int, column: int) -> tuple[str, str, str]:
        i, j = row // steps[0], column // steps[1]
        return color(i, j, rows, columns), str(i * columns + j), f"block {i * columns + j}"

    size = "x".join(map(str, block))
    note = f"{_size_text(shape, ())}, {rows * columns} of {size}"
    return _blocks(shape, steps, title, note, side, paint, outline=message)


def _plane(layout: Layout, leading: tuple[int, ...], title: str, side: float) -> Picture:
    steps = (_block(layout, -2), _block(layout, -1))

    def paint(row: int, column: int) -> tuple[str, str, str]:
        at = (*leading, row, column)[-layout.rank :]
        owners = _owners(layout, at)
        fill = color(*_family(layout, Axis.SUBGROUP, at))
        return fill, _ids(owners, 8), f"subgroups {_ids(owners, 99)}"

    note = _size_text(layout.shape, leading)
    return _blocks(layout.shape, steps, title, note, side, paint, name=str(layout))


def _blocks(
    shape: Sequence[int],
    steps: tuple[int, int],
    title: str,
    note: str,
    side: float,
    paint: Callable[[int, int], tuple[str, str, str]],
    *,
    name: str = "",
    outline: Sequence[int] | None = None,
) -> Picture:
    """A tile to scale in blocks of ``steps``; ``paint`` gives colour, text and tip of the block at (row, column)."""
    rows, columns = (1, *shape)[-2:]
    scale = side / max(rows, columns)
    # A flat tile is drawn thicker than it is, so that its blocks can be seen.
    thick, wide = min(side, 16 * rows / steps[0]), min(side, 24 * columns / steps[1])
    width, height = max(columns * scale, wide), max(rows * scale, thick)
    corners = [range(0, rows, steps[0]), range(0, columns, steps[1])]
    picture = Picture(title=title or name)
    picture.width, picture.height = _MARGIN + width + 40, _HEAD + height + 26
    _heading(picture, title, note)
    if len(corners[0]) * len(corners[1]) > _MAX_CELLS:
        picture.height = _HEAD + 20
        count = f"{len(corners[0])}x{len(corners[1])} blocks are too many to draw"
        picture.add(Text(_MARGIN, _HEAD + 12, count, 11, color=SOFT))
        return picture
    px, py = width / columns, height / rows
    for row in corners[0]:
        for column in corners[1]:
            fill, text, tip = paint(row, column)
            x, y = _MARGIN + column * px, _HEAD + row * py
            w, h = steps[1] * px, steps[0] * py
            last = (row + steps[0] - 1, column + steps[1] - 1)
            tip = f"rows {row}..{last[0]}, columns {column}..{last[1]}: {tip}"
            picture.add(Rect(x, y, w, h, fill, "#ffffff", 1.5, tip))
            _fit(picture, x + w / 2, y + h / 2, w, h, text)
    picture.add(Rect(_MARGIN, _HEAD, width, height, "none", INK, 1.2))
    if outline is not None:
        for row in range(0, rows, outline[-2]):
            for column in range(0, columns, outline[-1]):
                x, y = _MARGIN + column * px, _HEAD + row * py
                w, h = min(outline[-1], columns - column) * px, min(outline[-2], rows - row) * py
                picture.add(Rect(x, y, w, h, "none", INK, 3))
    _ruler(picture, corners[0], rows, py, down=True)
    _ruler(picture, corners[1], columns, px, down=False, below=_HEAD + height)
    return picture


def fragments(
    layout: Layout,
    title: str = "",
    *,
    cell: float = 30,
    subgroup: int = 0,
    rows: int | None = None,
    columns: int | None = None,
) -> Picture:
    """Cell by cell, who holds an element: the lane (large) and the register in its fragment (small).

    Only what ``subgroup`` owns is coloured. ``rows`` and ``columns`` show a corner of a large tile.
    """
    height, width = (1, *layout.shape)[-2:]
    rows, columns = min(rows or height, height), min(columns or width, width)
    held = _held(layout, subgroup)

    def paint(row: int, column: int) -> tuple[str, str, str]:
        at = (*(0,) * (layout.rank - 2), row, column)[-layout.rank :]
        places = held.get(at)
        if places is None:
            return "", "", ""
        lanes = sorted({lane for lane, _ in places})
        registers = sorted({register for _, register in places})
        fill = color(*_family(layout, Axis.LANE, at))
        return fill, _ids(lanes, 2), f"r{registers[0]}"

    picture = _cells(rows, columns, cell, paint, title, _size_text(layout.shape, ()))
    _cut(picture, rows < height, columns < width, rows * cell, columns * cell)
    return picture


def addresses(
    layout: Layout,
    title: str = "",
    *,
    itemsize: int = 2,
    cell: float = 30,
    chunk: int = 1,
    rows: int | None = None,
    columns: int | None = None,
) -> Picture:
    """Cell by cell (of ``chunk`` elements), the address in a memory; coloured by bank group of 16 bytes."""
    height, width = layout.shape[-2:]
    rows = min(rows or height, height)
    columns = min(columns or width, width) // chunk

    def paint(row: int, column: int) -> tuple[str, str, str]:
        address = int(layout.address(row, column * chunk))
        group = address * itemsize // 16 % 8
        return color(group, 0, 8, 1), str(address // chunk), ""

    unit = f", one cell = {chunk} elements" if chunk > 1 else ""
    return _cells(rows, columns, cell, paint, title, _size_text(layout.shape, ()) + unit)


def traffic(plan: ConversionPlan, title: str = "", *, cell: float = 14) -> Picture:
    """Which subgroup gets how much from whom: a row per receiver, a column per sender."""
    n = plan.target.subgroups
    amount = np.zeros((n, n), np.intp)
    receiver = np.broadcast_to(np.arange(n)[:, None, None], plan.subgroup.shape)
    np.add.at(amount, (receiver.ravel(), plan.subgroup.ravel()), 1)
    most = max(1, int(amount.max()))

    def paint(row: int, column: int) -> tuple[str, str, str]:
        share = amount[row, column] / most
        if not share:
            return "", "", ""
        own = row == column
        return color(0 if own else 1, round(3 * share), 2, 4), "", ""

    note = f"{plan}; row = receiver, column = sender"
    return _cells(
        n, n, cell, paint, title, note, tips=lambda r, c: f"{amount[r, c]} elements from {c} to {r}"
    )


def _cells(
    rows: int,
    columns: int,
    cell: float,
    paint: Callable[[int, int], tuple[str, str, str]],
    title: str,
    note: str,
    tips: Callable[[int, int], str] | None = None,
) -> Picture:
    if rows * columns > _MAX_CELLS:
        raise ValueError(f"{rows}x{columns} cells are too many to draw; show a corner of the tile")
    picture = Picture(title=title)
    picture.width, picture.height = _MARGIN + columns * cell + 40, _HEAD + rows * cell + 26
    _heading(picture, title, note)
    picture.add(Rect(_MARGIN, _HEAD, columns * cell, rows * cell, "#f3f4f6"))
    for row in range(rows):
        for column in range(columns):
            fill, large, small = paint(row, column)
            if not fill:
                continue
            x, y = _MARGIN + column * cell, _HEAD + row * cell
            tip = tips(row, column) if tips else ""
            picture.add(Rect(x, y, cell, cell, fill, "#ffffff", 1.0, tip))
            size = min(cell * 0.42, (cell - 3) / max(1, len(large)) * 1.7)
            up = 0.08 * cell if small else 0
            if large:
                picture.add(
                    Text(x + cell / 2, y + cell / 2 + size * 0.36 - up, large, size, "middle")
                )
            if small and cell >= 22:
                picture.add(Text(x + cell / 2, y + cell - 4, small, cell * 0.25, "middle", SOFT))
    picture.add(Rect(_MARGIN, _HEAD, columns * cell, rows * cell, "none", INK, 1.2))
    every = max(1, round(26 / cell)) if cell < 26 else 1
    _numbers(picture, rows, columns, cell, every)
    return picture


def _numbers(picture: Picture, rows: int, columns: int, cell: float, every: int) -> None:
    for row in range(0, rows, every):
        y = _HEAD + (row + 0.5) * cell + 3
        picture.add(Text(_MARGIN - 6, y, str(row), 9, "end", SOFT))
    for column in range(0, columns, every):
        x = _MARGIN + (column + 0.5) * cell
        picture.add(Text(x, _HEAD + rows * cell + 13, str(column), 9, "middle", SOFT))


def _heading(picture: Picture, title: str, note: str) -> None:
    wide = max(width_of(title, 13), width_of(note, 11))
    picture.width = max(picture.width, _MARGIN + wide + 8)
    picture.add(Text(_MARGIN, 17, title, 13, bold=True))
    picture.add(Text(_MARGIN, 33, note, 11, color=SOFT))


def _fit(picture: Picture, x: float, y: float, width: float, height: float, text: str) -> None:
    """Text centred in a box, as large as fits; on several lines where that is larger."""
    best: tuple[float, list[str]] = (0.0, [])
    words = text.split(" ")
    for lines in range(1, len(words) + 1):
        per_line = -(-len(words) // lines)
        rows = [" ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
        longest = max(map(len, rows))
        size = min(15.0, 0.86 * width / (longest * 0.56), 0.8 * height / (len(rows) * 1.15))
        if size > best[0] + 0.5:
            best = (size, rows)
    size, rows = best
    if size < 5:
        return
    top = y - (len(rows) - 1) * size * 0.575 + size * 0.36
    for i, row in enumerate(rows):
        picture.add(Text(x, top + i * size * 1.15, row, size, "middle"))


def _ruler(
    picture: Picture,
    marks: Iterable[int],
    extent: int,
    scale: float,
    *,
    down: bool,
    below: float = 0,
) -> None:
    """Element numbers where blocks begin, as many as can be read, and the extent at the end."""
    last = -1e9
    end = extent * scale
    for mark in (*marks, extent):
        at = mark * scale
        room = 13 if down else width_of(str(mark), 9) + 8
        if at - last < room or (mark != extent and end - at < room):
            continue
        last = at
        if down:
            y = _HEAD + at
            picture.add(Line(_MARGIN - 4, y, _MARGIN, y, SOFT))
            picture.add(Text(_MARGIN - 7, y + 3, str(mark), 9, "end", SOFT))
        else:
            x = _MARGIN + at
            picture.add(Line(x, below, x, below + 4, SOFT))
            picture.add(Text(x, below + 14, str(mark), 9, "middle", SOFT))


def _cut(picture: Picture, rows: bool, columns: bool, height: float, width: float) -> None:
    """Dots where the drawing stops before the tile does."""
    if rows:
        picture.add(Text(_MARGIN + width + 8, _HEAD + height, "...", 12, color=SOFT))
        picture.add(Line(_MARGIN, _HEAD + height, _MARGIN + width, _HEAD + height, RULE, 2))
    if columns:
        picture.add(Text(_MARGIN + width + 8, _HEAD + 12, "...", 12, color=SOFT))
        picture.add(Line(_MARGIN + width, _HEAD, _MARGIN + width, _HEAD + height, RULE, 2))


def _block(layout: Layout, dim: int) -> int:
    """Extent along a dimension (counted from the last) over which the subgroup does not change."""
    if layout.rank + dim < 0:
        return 1
    dim %= layout.rank
    strides = [d.stride for d in layout.along(dim) if d.axis is Axis.SUBGROUP]
    return min(strides, default=layout.shape[dim])


def _owners(layout: Layout, at: Sequence[int]) -> list[int]:
    """All subgroups that own an element, ascending."""
    first = int(layout.owner(*at).subgroup)
    found = np.array([first])
    for d in layout.on(Axis.SUBGROUP):
        if d.dim is None:
            found = (found[:, None] + np.arange(d.size) * d.weight).ravel()
    return sorted(found.tolist())


def _held(layout: Layout, subgroup: int) -> dict[tuple[int, ...], list[tuple[int, int]]]:
    """(lane, register) of each element that a subgroup holds."""
    held: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    coords = np.stack(layout.coords(subgroup), axis=-1)
    for lane, registers in enumerate(coords.tolist()):
        for register, at in enumerate(registers):
            held.setdefault(tuple(at), []).append((lane, register))
    return held


def _family(layout: Layout, axis: Axis, at: Sequence[int]) -> tuple[int, int, int, int]:
    """Where an owner stands among the owners: its row and column in their grid, and the grid's size."""
    last, other = layout.rank - 1, tuple(range(layout.rank - 1))
    place = {True: 0, False: 0}
    extent = {True: 1, False: 1}
    for d in sorted(layout.on(axis), key=lambda d: d.stride):
        if d.dim is None:
            continue
        inner = d.dim == last and bool(other)
        place[inner] += at[d.dim] // d.stride % d.size * extent[inner]
        extent[inner] *= d.size
    return place[False], place[True], extent[False], extent[True]


def _ids(owners: Sequence[int], most: int) -> str:
    """ "0, 1", "0..7", or "0, 8, .. 56" for long lists."""
    if len(owners) > 2 and list(owners) == list(range(owners[0], owners[-1] + 1)):
        return f"{owners[0]}..{owners[-1]}"
    if len(owners) > most:
        return f"{owners[0]}, {owners[1]}, .. {owners[-1]}"
    return ", ".join(map(str, owners))


def _size_text(shape: Sequence[int], leading: tuple[int, ...]) -> str:
    text = "x".join(map(str, shape))
    return f"{text} elements" + (f", index {[*leading]}" if leading else "")
