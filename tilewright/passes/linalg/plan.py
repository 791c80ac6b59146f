"""How the loops of a structured op are shared out: rows and columns of tiles, the grid, loops within a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.frozen import field, record
from tilewright.passes.linalg.accesses import Linear, ProgramLoop, Size
from tilewright.passes.linalg.elements import Bound
from tilewright.passes.linalg.fusion import Node
from tilewright.passes.linalg.loops import dims_of, loops_of, speeds

ROW = 4096
"""Elements up to which a row that is reduced, or read again, is one tile."""
BLOCK = 256
"""Columns of a tile of what is reduced along other loops."""
HELD = 1024
"""Elements of a tile with short rows."""
UNKNOWN = 512
"""What is taken for an extent that no type says."""


@record
class LoopPlan:
    """How the loops of an op are shared out: tiles, the grid, loops within a program."""

    node: Node
    loops: list[ProgramLoop | None]
    """Of the op; None for its reductions."""
    rows: ProgramLoop | None = None
    columns: ProgramLoop | None = None
    inner: set[ProgramLoop] = field(default_factory=set[ProgramLoop])
    """Tiled loops that a program goes through itself: what it computed for a row serves all of it."""
    multiplies: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return ("BM", "BN", "BK") if self.multiplies else ("BM", "BN")

    @property
    def bound(self) -> Bound:
        return tuple(None if loop is None else Linear(((loop, 1),)) for loop in self.loops)

    @property
    def single(self) -> list[ProgramLoop]:
        """Loops of the grid of which a program does one iteration."""
        return [
            loop
            for loop in self.loops
            if loop is not None and loop not in (self.rows, self.columns)
        ]

    def stats(self) -> Iterator[Node]:
        """What is reduced for this op along rows or columns of its own."""
        for node in self.node.around()[:-1]:
            if node.reductions and not self.multiplies:
                yield node


def plan(node: Node) -> LoopPlan:
    """Rows and columns: those of the product that is computed, else what is closest in memory, and the largest."""
    extents = loops_of(node)
    loops = [None if d in node.reductions else ProgramLoop(n) for d, n in enumerate(extents)]
    found = LoopPlan(node, loops)
    parallel = [d for d, loop in enumerate(loops) if loop is not None]
    rank = speeds(node, len(extents))

    def largest(among: Sequence[int]) -> int | None:
        known = [d for d in among if extents[d] != 1] or list(among)
        return max(known, key=lambda d: (number(extents[d]), rank[d]), default=None)

    for each in node.around():
        sides = _sides(node, each)
        if sides is None:
            continue
        # The columns of a tile are what is closest in the result's memory.
        for a, b in (sides, sides[::-1]):
            columns = max(b, key=lambda d: rank[d])
            if columns == max((*a, *b), key=lambda d: rank[d]):
                rows = largest(sorted(a))
                found.rows, found.columns = _loop(loops, rows), loops[columns]
                found.multiplies = True
                return found
    every = [d for d in range(len(extents)) if extents[d] != 1]
    fast = max(every, key=lambda d: rank[d], default=None)
    if fast is not None and loops[fast] is not None:
        found.columns = loops[fast]
    rest = [d for d in parallel if loops[d] is not found.columns and extents[d] != 1]
    turned = [d for d in rest if rank[d] >= 1]  # contiguous in another operand
    found.rows = _loop(loops, largest(turned) if turned else largest(rest))
    for each in found.stats():
        where = _read_at(node, each)
        for loop in (found.rows, found.columns):
            if loop is not None and loops.index(loop) not in where:
                found.inner.add(loop)
    return found


def _loop(loops: Sequence[ProgramLoop | None], d: int | None) -> ProgramLoop | None:
    return None if d is None else loops[d]


def number(extent: Size) -> int:
    return extent if isinstance(extent, int) else UNKNOWN


def _read_at(root: Node, node: Node) -> set[int]:
    """The loops of `root` that the result of an op depends on, where it is computed for that."""
    if node is root:
        return set(range(node.maps[0].num_dims)) - set(node.reductions)
    found: set[int] = set()
    for reader in node.readers:
        outer = _read_at(root, reader)
        for n, source in enumerate(reader.sources):
            if source.producer is node:
                own = {d for r in reader.maps[n].results for d in r.used_dims()}
                found |= own & outer if reader is root else _through(root, reader, own)
    return found


def _through(root: Node, reader: Node, dims: set[int]) -> set[int]:
    """Loops of an inlined op as loops of the root: by the place of its results' dimensions where it is read."""
    found: set[int] = set()
    for outer in reader.readers:
        for n, source in enumerate(outer.sources):
            if source.producer is not reader:
                continue
            written = reader.maps[reader.inputs + source.result].results
            at = outer.maps[n].results
            own = {
                d
                for w, r in zip(written, at, strict=True)
                if w.used_dims() & dims
                for d in r.used_dims()
            }
            found |= own - set(outer.reductions) if outer is root else _through(root, outer, own)
    return found


def _sides(root: Node, node: Node) -> tuple[set[int], set[int]] | None:
    """Of a sum of products that is computed for `root`: its loops that only the one and only the other factor has."""
    if node.body.factors is None or not node.reductions:
        return None
    first, second = (dims_of(node, v) for v in node.body.factors)
    away = set(node.reductions)
    if not first & second & away:
        return None
    pair = first - second - away, second - first - away
    if node is not root:
        pair = _through(root, node, pair[0]), _through(root, node, pair[1])
    return pair if pair[0] and pair[1] else None


def row_sizes(found: LoopPlan) -> dict[str, int] | None:
    """The tile of a reduction that is no product: whole rows up to `ROW`, and few enough of them for registers. None
    where there is no reduction."""
    node, columns = found.node, found.columns
    along = [number(loops_of(each)[d]) for each in (node, *found.stats()) for d in each.reductions]
    if found.multiplies or (not along and (found.rows or columns)):
        return None
    longest, free = max(along, default=1), columns is None or columns in found.inner
    width = longest if columns is None else number(columns.extent)
    wide = _covering(min(width, ROW if free else BLOCK))
    height = 1 if found.rows is None else number(found.rows.extent)
    most = max(4, HELD // wide)
    if found.rows is None and not free:
        height, most = longest, 64  # the reduction is along rows
    return {"BM": _covering(min(height, most)), "BN": wide}


def _covering(extent: int) -> int:
    """The power of two that covers an extent, of tiles whose rows instructions like."""
    return 1 if extent <= 1 else max(4, 1 << (extent - 1).bit_length())
