"""What the values of a subgroup's program are made of while it is lowered.

A number or vector is one SSA value; what lanes hold differently has the lanes as a last dimension.  Descriptors
have no register of their own: they are the indices that they consist of, which the ops that use them read.

    memref<8x16xf32>           base, lane, offset, sizes, strides
    tensor_desc (block)        base, sizes, strides, offsets
    tensor_desc (scattered)    base, size, stride, and an index per lane
    mem_desc, nbarrier         base; number, participants
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Attribute, SSAValue

from tilewright.targets.emu.builder import Idx


@dataclass(frozen=True)
class Uniform:
    """A number or vector that all lanes have."""

    value: SSAValue


@dataclass(frozen=True)
class Growing:
    """Lane i has `base + steps[i]`."""

    base: Idx
    steps: tuple[int, ...]
    type: Attribute


@dataclass(frozen=True)
class Varying:
    """A vector whose last dimension counts the lanes."""

    value: SSAValue


Plain = Uniform | Growing | Varying


@dataclass(frozen=True)
class Memory:
    """A memref: the byte address of its aligned pointer, then elements."""

    base: Idx
    offset: Plain | int
    sizes: tuple[Idx, ...]
    strides: tuple[Idx, ...]
    element: Attribute
    lane: SSAValue | None = None
    """Bytes from `base` to the memory of each lane, where lanes have their own."""


@dataclass(frozen=True)
class Block:
    """A block descriptor; `base` is a byte address, one entry per dimension of its matrix."""

    base: Idx
    sizes: tuple[Idx, ...]
    strides: tuple[Idx, ...]
    offsets: tuple[Idx, ...]


@dataclass(frozen=True)
class Scattered:
    """A scattered descriptor. `indices` counts elements: Varying of one per lane, or a Uniform vector of all."""

    base: Idx
    size: Idx | None
    """Elements of the base; None where only its address is known."""
    stride: Idx
    indices: Plain


@dataclass(frozen=True)
class Matrix:
    """A matrix in shared memory: its byte address."""

    base: Idx


@dataclass(frozen=True)
class Barrier:
    """A named barrier: its number, and how many subgroups take part."""

    number: Idx
    participants: Idx


Value = Plain | Memory | Block | Scattered | Matrix | Barrier


@dataclass
class SharedMemory:
    """Shared memory of a workgroup: every allocation has its place in one block."""

    bytes: int = 0
    places: dict[Any, int] = field(default_factory=dict[Any, int])

    def place(self, key: Any, size: int) -> int:
        """Byte offset of the allocation `key`."""
        if key not in self.places:
            self.places[key] = self.bytes
            self.bytes += -(-max(size, 1) // 64) * 64
        return self.places[key]
