"""What the values of a subgroup's program are made of while it is lowered.

A number or vector is one SSA value; what lanes hold differently has the lanes as a last dimension.  Descriptors
have no register of their own: they are the indices that they consist of, which the ops that use them read.

    memref<8x16xf32>           base, offset, sizes, strides
    tensor_desc                base, sizes, strides
    mem_desc, nbarrier         base; number, participants
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdsl.ir import Attribute, SSAValue

from tilewright.frozen import frozen
from tilewright.targets.emu.builder import Idx, element_bytes, index, vec

if TYPE_CHECKING:
    from tilewright.targets.emu.lowering import Lowering


@frozen
class Uniform:
    """A number or vector that all lanes have."""

    value: SSAValue


@frozen
class Growing:
    """Lane i has `base + steps[i]`."""

    base: Idx
    steps: tuple[int, ...]
    type: Attribute


@frozen
class Varying:
    """A vector whose last dimension counts the lanes."""

    value: SSAValue


Plain = Uniform | Growing | Varying


@frozen
class Address:
    """`base + steps[lane] + vector[lane]`: bytes or elements, what all lanes have apart from the rest."""

    low: Lowering
    base: Idx = 0
    steps: tuple[int, ...] | None = None
    vector: Idx = 0
    """What lanes have of their own, 0 where there is none."""

    @staticmethod
    def of(low: Lowering, value: Number) -> Address:
        match value:
            case Address():
                return value
            case Uniform():
                return Address(low, low.as_index(value))
            case Growing():
                return Address(low, value.base, value.steps)
            case Varying():
                return Address(low, 0, None, low.b.cast(value.value, index))
            case _:
                return Address(low, value)

    @property
    def shared(self) -> bool:
        """Do all lanes have the same?"""
        return self.steps is None and isinstance(self.vector, int)

    def apart(self) -> Address:
        """As if lanes had their own."""
        return Address(self.low, self.base, None, self.offsets()) if self.shared else self

    def plus(self, value: Number, factor: Idx = 1) -> Address:
        """With `value * factor` added."""
        low, b, more = self.low, self.low.b, Address.of(self.low, value)
        steps, wide = self.steps, more.vector
        if more.steps is not None and isinstance(factor, int):
            pairs = zip(steps or (0,) * low.lanes, more.steps, strict=True)
            steps = tuple(mine + s * factor for mine, s in pairs)
            steps = steps if any(steps) else None
        elif more.steps is not None:
            wide = b.plus(wide, b.dense(vec(index, low.lanes), more.steps))
        base = b.plus(self.base, b.times(more.base, factor))
        return Address(low, base, steps, b.plus(self.vector, b.times(wide, factor)))

    def offsets(self) -> SSAValue:
        """What each lane adds to the base."""
        b, kind = self.low.b, vec(index, self.low.lanes)
        steps = 0 if self.steps is None else b.dense(kind, self.steps)
        return b.broadcast(b.plus(steps, self.vector), kind)

    def plain(self) -> Plain:
        """As the value of an index."""
        b = self.low.b
        if not isinstance(self.vector, int):
            return Varying(b.idx(b.plus(self.base, self.offsets())))
        if self.steps is None:
            return Uniform(b.idx(self.base))
        return Growing(self.base, self.steps, index)


Number = Plain | Address | Idx


@frozen
class MemRef:
    """A memref: the byte address of its aligned pointer, then elements."""

    base: Address
    offset: Address
    sizes: tuple[Idx, ...]
    strides: tuple[Idx, ...]
    element: Attribute

    @property
    def start(self) -> Address:
        """The byte address of the first element."""
        return self.base.plus(self.offset, element_bytes(self.element))


@frozen
class BlockDesc:
    """A block descriptor; `base` is a byte address, one entry per dimension of its matrix."""

    base: Idx
    sizes: tuple[Idx, ...]
    strides: tuple[Idx, ...]


@frozen
class MatrixBase:
    """A matrix in shared memory: its byte address."""

    base: Idx


@frozen
class Barrier:
    """A named barrier: its number, and how many subgroups take part."""

    number: Idx
    participants: Idx


Value = Plain | MemRef | BlockDesc | MatrixBase | Barrier
