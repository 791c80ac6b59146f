"""What a machine's model of products is told: the products of a program, as they lie in the arrays of a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from tilewright.frozen import frozen


@frozen
class Side:
    """One side of a product in one program."""

    tile: int
    """Rows of A, or columns of B, of a tile."""
    whole: int
    """Those of the array."""
    loaded: bool
    """Is it loaded from an array, seen through ops on each element?"""
    along_k: bool
    """Do elements that follow one another along k lie together there?"""
    read: int = 0
    """How often the launch reads all of the array; 0 if once for each tile of the other side."""
    elements: int = 0
    """Of the array, as many as each of the products that read it packs of it; 0 if they are `whole` times k."""

    @cached_property
    def extent(self) -> int:
        """Of a tile, what is in the array."""
        return min(self.tile, self.whole)

    @cached_property
    def tiles(self) -> int:
        """Tiles that cover the array: so many programs read the other side again."""
        return -(-self.whole // self.tile)

    @cached_property
    def mean(self) -> int:
        """Of these, what is in the array, on average: the last may be short."""
        return -(-self.whole // max(1, self.tiles))


@frozen
class PlacedProduct:
    """A product of a kernel for the shapes of a launch."""

    types: tuple[str, str, str]
    """Names of the element types of A, B and C."""
    a: Side
    b: Side
    k: int
    """Of all steps that are added up."""
    times: float
    """How often a program does that, on average."""
    in_loop: bool = False
    """Does a loop repeat it?"""

    def reads(self, side: Side) -> int:
        """How often the launch reads all of a side."""
        return side.read or (self.b if side is self.a else self.a).tiles

    def elements(self, side: Side) -> int:
        """Of the array that a side lies in."""
        return side.elements or self.k * side.whole


@frozen
class Order:
    """In which order sums are added up, as far as it depends on tiles."""

    forms: tuple[int | None, ...] = ()
    """Of each product."""
    idle: bool = False
    """Would tiles of this order be too few for many threads?"""


class ProductModel(Protocol):
    """A target's own account of what products take with loading their sides; other work is that of :class:`Work`."""

    def causes(self, products: Sequence[PlacedProduct], programs: int) -> Mapping[str, float]:
        """Seconds of a launch of so many programs, each with these products, by cause."""
        ...

    def order(self, products: Sequence[PlacedProduct], programs: int) -> Order:
        """In which order such a launch adds up its sums."""
        ...

    def alone(self) -> ProductModel:
        """What they take on one thread, whose order of sums all threads keep to."""
        ...
