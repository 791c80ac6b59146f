"""Values that products fill later: which product fills which rows, until somebody waits for it.

Registers of a product that runs beside its warpgroup have all bits set, and are *in flight*: the value holds the
product's number beside them. Control flow hands numbers on with values; an op that only rearranges elements names
registers, and its result is in flight too. Any other op that reads them is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from tilewright.dialects.movement import ELEMENTS
from tilewright.reference.batch import WARPGROUP
from tilewright.reference.values import Array, Index

if TYPE_CHECKING:
    from tilewright.reference.machine import Group
    from tilewright.reference.site import Site

REARRANGES = {*ELEMENTS, "mach.join"}


@dataclass(eq=False)
class PendingProduct:
    """What will fill registers of one warpgroup."""

    group: int
    """The number of the group that it is of."""
    compute: Callable[[], Array]
    """Gives the rows of its threads."""
    result: Array | None = None

    def finish(self) -> None:
        """Computes it, once."""
        if self.result is None:
            self.result = self.compute()

    def rows(self) -> Array:
        """Its result."""
        self.finish()
        assert self.result is not None
        return self.result


class Products:
    """The products of a batch, by number."""

    def __init__(self, count: int):
        self.count = count
        self.all: list[PendingProduct] = []
        self.flying: dict[SSAValue, Index] = {}
        """By value that products may fill: the number of the product, for every instance; -1 for none."""
        self.committed: dict[int, int] = defaultdict(int)
        """By a warpgroup's first instance: groups that it has closed."""
        self.waited: dict[int, int] = defaultdict(int)
        """By the same: groups that it has waited for."""
        self.fenced: set[int] = set()
        """Those whose registers are ordered before their next products."""
        self.queues: dict[int, list[PendingProduct]] = defaultdict(list[PendingProduct])

    def add(self, leader: int, product: PendingProduct) -> int:
        """The number of a new product."""
        self.queues[leader].append(product)
        self.all.append(product)
        return len(self.all) - 1

    def of(self, value: SSAValue, index: Index) -> Index | None:
        """The numbers of the products that will fill rows of a value; None where there are none."""
        found = self.flying.get(value)
        if found is None:
            return None
        mine = found[index]
        return mine if (mine >= 0).any() else None

    def enter(self, value: SSAValue, index: Index, flight: Index | None) -> None:
        """Rows of a value are given: by products, or by nothing that takes time."""
        if flight is not None or value in self.flying:
            known = self.flying.setdefault(value, np.full(self.count, -1, np.int64))
            known[index] = -1 if flight is None else flight

    @staticmethod
    def told(site: Site) -> None:
        """Reports an op that reads what is in flight."""
        words = f"{site.op.name} reads the sums of a product without waiting for it"
        site.report("error", "in flight", words)

    def rearranged(self, group: Group, op: Operation, run: Callable[..., Any]) -> Index | None:
        """The products of the result of an op that only rearranges; None where nothing of it is in flight.

        Reports any other op that reads what is.
        """
        flights = [self.of(value, group.index) for value in op.operands]
        if all(flight is None for flight in flights):
            return None
        if op.name not in REARRANGES or len(op.results) != 1:
            self.told(group.site)
            return None
        operands = [
            np.broadcast_to(v, (group.index.size, *v.shape[1:]))
            for v in map(group.get, op.operands)
        ]
        result = np.full(group.index.size, -1, np.int64)
        for first in range(0, group.index.size, WARPGROUP):
            mine = slice(first, first + WARPGROUP)
            parts: list[PendingProduct | Array] = [
                rows[mine] if flight is None or flight[first] < 0 else self.all[int(flight[first])]
                for rows, flight in zip(operands, flights, strict=True)
            ]
            if groups := [part.group for part in parts if isinstance(part, PendingProduct)]:
                product = PendingProduct(max(groups), lambda parts=parts: run(*map(_rows, parts)))
                result[mine] = self.add(int(group.index[first]), product)
        return result


def _rows(part: PendingProduct | Array) -> Array:
    return part.rows() if isinstance(part, PendingProduct) else part
