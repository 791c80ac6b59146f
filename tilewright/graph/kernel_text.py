"""A kernel of a graph as text in the tile language, what is passed to it, and its grid."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

from tilewright.dtypes import DType
from tilewright.frozen import field, frozen, record
from tilewright.graph.macro import BODIES
from tilewright.graph.structure import unnamed
from tilewright.lang.kernel import Kernel
from tilewright.runtime.source import define

KERNELS = 1024
"""Texts whose kernels are kept, for all graphs together."""


@frozen
class View:
    """A parameter: a Buffer with its dimensions in this order; None is a new one of extent 1."""

    buffer: str
    order: tuple[int | None, ...]


@record
class KernelText:
    """A kernel as text, what is passed to it, and its grid."""

    name: str
    source: str
    views: dict[str, View]
    """By the names of parameters, in their order."""
    grid: tuple[int, ...]
    constants: dict[str, int]
    multiplied: frozenset[tuple[DType, DType]]
    """Types of the operands of products."""
    tiled: dict[str, tuple[int, int] | None]
    """Constants that may have any value, where there are products: the dimension of the grid that counts such tiles,
    and the extent that they cover; None where a loop does."""

    def kernel(self) -> Kernel:
        """The kernel that the text defines; texts that are equal but for names give one, with the first one's names."""
        macros = tuple((n, body) for n, body in BODIES.items() if n in self._words)
        return _kernel(_Like(unnamed(self.source), self.name, self.source), macros)

    @cached_property
    def _words(self) -> set[str]:
        return set(re.findall(r"\w+", self.source))

    def counted(self, constants: Any) -> tuple[int, ...]:
        """The grid where constants have other values, which are attributes."""
        grid = list(self.grid)
        for name, counts in self.tiled.items():
            if counts is not None:
                grid[counts[0]] = -(-counts[1] // getattr(constants, name))
        return tuple(grid)


@frozen
class _Like:
    """A text that is known by what it says."""

    meaning: str
    name: str = field(compare=False)
    source: str = field(compare=False)


@lru_cache(KERNELS)
def _kernel(text: _Like, macros: tuple[tuple[str, Any], ...]) -> Kernel:
    import tilewright as tw

    name, source = text.name, text.source
    file = f"<tilewright graph {name} {sha256(source.encode()).hexdigest()[:12]}>"
    # Text of our own making, from a validated graph: names are identifiers, everything else is printed by this file.
    return define(name, source, file, {"tw": tw, "__name__": "tilewright_graph", **dict(macros)})
