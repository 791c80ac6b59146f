"""What `build` fills: the bodies of loops, and the registers and Operations in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tilewright.dtypes import DType
from tilewright.frozen import field, record
from tilewright.graph.affine import affine
from tilewright.graph.costs import Tiling
from tilewright.graph.nodes import (
    REGISTER,
    Buffer,
    Combine,
    Operation,
    Task,
    TiledEdge,
    TiledGraph,
    unused,
)
from tilewright.graph.operations import operation as entry_of

Shape: TypeAlias = tuple[str | None, str | None]
"""The tiled axes of a value's rows and columns; None where it has one row, or one column."""


@record
class Scope:
    """The body of a loop, or of the kernel, while it is being filled."""

    task: Task
    loops: tuple[str, ...]
    parent: Scope | None
    goals: frozenset[str]
    """Statements that the body needs."""
    values: dict[Any, str] = field(default_factory=dict[Any, str])
    running: set[str] = field(default_factory=set[str])
    """Reductions that have a value of this iteration here, and another after the loop."""

    def find(self, key: Any, home: Scope) -> str | None:
        """The value under a key, here or in a scope around it, as far as ``home``."""
        at: Scope | None = self
        while at is not None:
            if key in at.values:
                return at.values[key]
            at = at.parent if at is not home else None
        return None


@record
class Registers:
    """Makes registers for values, and the Operations that fill them."""

    graph: TiledGraph
    tiling: Tiling

    def new(self, base: str, shape: Shape, dtype: DType) -> str:
        """A new register for a value; it is called after what it holds."""
        name = unused(base, self.graph.buffers, self.tiling.mapping)
        extents = tuple(affine(1 if a is None else self.tiling.step[a]) for a in shape)
        self.graph.add(Buffer(name, REGISTER, extents, dtype, along=shape))
        return name

    def emit(
        self,
        scope: Scope,
        op: str,
        operands: Sequence[Any],
        into: str,
        combine: Combine | None = None,
        **attributes: Any,
    ) -> None:
        """An Operation at the end of a scope's body; names of registers stand for loads of all of them."""
        assert entry_of(op) is not None, op
        loads = [
            TiledEdge("load", self.graph.buffers[o].whole) if isinstance(o, str) else o
            for o in operands
        ]
        edge = TiledEdge("store", self.graph.buffers[into].whole, combine)
        scope.task.nodes.append(Operation(op, tuple(loads), edge, tuple(attributes.items())))
