"""The block of memory that a launch hands to every task: the kernel's arguments, the grid, and where its memory is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute


@dataclass
class ArgumentBlock:
    """Byte offsets in the block that a launch hands to every task."""

    arguments: list[int] = field(default_factory=list[int])
    """Of each kernel argument: an array is address, extents, strides (in elements); a scalar one slot of 8 bytes."""
    grid: int = 0
    scratch: int = 0
    """Address of the threads' scratch memory, then its bytes per thread."""
    workspace: int = 0
    """Address of the launch's memory for packed arrays."""
    pool: int = 0
    needed: int = 0
    """Out: bytes of workspace, written by `tw_plan`."""
    size: int = 0


def argument_block(types: Sequence[Attribute]) -> ArgumentBlock:
    block = ArgumentBlock()
    at = 0
    for type in types:
        block.arguments.append(at)
        at += 8 * (1 + 2 * len(type.get_shape())) if isinstance(type, MemRefType) else 8
    block.grid, at = at, at + 24
    block.scratch, at = at, at + 16
    block.workspace, at = at, at + 8
    block.pool, at = at, at + 8
    block.needed, at = at, at + 8
    block.size = at
    return block
