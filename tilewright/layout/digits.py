"""The normal form of ownership: which element of a tile each register, lane, subgroup or address holds.

A hardware place is named by an index on each of some axes: a register of a lane of a subgroup, or an
address of a memory. Every index is written in a mixed radix; a *digit* of it moves by a fixed stride
along one dimension of the tile, or moves nothing (a replica). So

    coordinate[dim] = sum over digits of that dim of  ((index[axis] // weight) % size) * stride

which is all that the RFCs' maps, DPAS, mma.sync, wgmma, AMX and packed panels need. Memory may apply
an XOR swizzle to its address besides.

Invariants of every :class:`Layout`: the digits of a dimension form a mixed radix of its extent (every
element is owned, and by digits that do not overlap); the digits of an axis do not overlap and, but for
memory, leave no gap; adjacent digits that continue each other are merged and digits of size 1 dropped,
so that two layouts are the same function exactly when their digits are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilewright.frozen import frozen

Index = NDArray[np.intp]
Shape = tuple[int, ...]


class LayoutError(ValueError):
    """A map that does not fit its tile; the text names the dimension and the numbers."""


class Axis(IntEnum):
    """What an index counts. ``REGISTER`` counts elements that one lane holds, ``MEMORY`` elements."""

    REGISTER = 0
    LANE = 1
    SUBGROUP = 2
    MEMORY = 3

    def __str__(self) -> str:
        return self.name.lower()


class Digit(NamedTuple):
    """One digit of an axis' index: ``(index // weight) % size`` moves by ``stride`` along ``dim``.

    ``dim`` is None for a replica: indices that differ only there hold the same element.
    """

    axis: Axis
    weight: int
    size: int
    dim: int | None
    stride: int

    def split(self, inner: int) -> tuple[Digit, Digit]:
        """Itself as two digits, the faster one of size ``inner`` (a divisor of ``size``)."""
        fast = self._replace(size=inner)
        slow = self._replace(
            weight=self.weight * inner, size=self.size // inner, stride=self.stride * inner
        )
        return fast, slow

    def __str__(self) -> str:
        move = "replica" if self.dim is None else f"d{self.dim}*{self.stride}"
        return f"{self.size}@{self.weight}->{move}"


class Owner(NamedTuple):
    """Where elements live: integer arrays of one shape. Of replicas, the one with index 0."""

    subgroup: Index
    lane: Index
    register: Index


@frozen
class Swizzle:
    """XOR of an address: bits ``[base, base + bits)`` are XORed with the ``bits`` at ``base + shift``.

    Addresses count elements. The 128-byte swizzle of shared memory XORs the 16-byte chunk (3 bits)
    with the row of 128 bytes (3 bits above): for elements of ``b`` bytes ``Swizzle(3, log2(16/b), 3)``.
    """

    bits: int
    base: int
    shift: int

    @classmethod
    def of_bytes(cls, width: int, itemsize: int) -> Swizzle:
        """The 32-, 64- or 128-byte swizzle of 16-byte chunks, for elements of ``itemsize`` bytes."""
        if width not in (32, 64, 128):
            raise LayoutError(f"a swizzle spans 32, 64 or 128 bytes, not {width}")
        if itemsize not in (1, 2, 4, 8, 16):
            raise LayoutError(f"a swizzle needs elements of 1 to 16 bytes, not {itemsize}")
        return cls((width // 32).bit_length(), (16 // itemsize).bit_length() - 1, 3)

    def __call__(self, address: ArrayLike) -> Index:
        """Swizzled address; applying it twice gives the address back."""
        a = np.asarray(address, dtype=np.intp)
        field = ((1 << self.bits) - 1) << self.base
        return a ^ ((a >> self.shift) & field)


@frozen
class Layout:
    """Ownership of a tile of static ``shape`` in normal form. Build with :meth:`of`."""

    shape: Shape
    digits: tuple[Digit, ...]
    swizzle: Swizzle | None = None

    @classmethod
    def of(
        cls, shape: Sequence[int], digits: Iterable[Digit], swizzle: Swizzle | None = None
    ) -> Layout:
        """The normal form of ``digits`` (in any order). Raises LayoutError where they do not fit."""
        layout = cls(tuple(shape), _canonical(digits), swizzle)
        layout._check()
        return layout

    # What it is.
    @property
    def rank(self) -> int:
        """The number of dimensions of the tile."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements of the tile."""
        return prod(self.shape)

    def on(self, axis: Axis) -> tuple[Digit, ...]:
        """The digits of one axis, fastest first."""
        return tuple(d for d in self.digits if d.axis is axis)

    def along(self, dim: int) -> tuple[Digit, ...]:
        """The digits that move along one dimension, smallest stride first."""
        return tuple(sorted((d for d in self.digits if d.dim == dim), key=lambda d: d.stride))

    def extent(self, axis: Axis) -> int:
        """Number of indices of an axis; for memory one more than the largest address."""
        digits = self.on(axis)
        if axis is Axis.MEMORY:
            return 1 + sum((d.size - 1) * d.weight for d in digits)
        return prod(d.size for d in digits)

    @cached_property
    def subgroups(self) -> int:
        return self.extent(Axis.SUBGROUP)

    @cached_property
    def lanes(self) -> int:
        return self.extent(Axis.LANE)

    @cached_property
    def registers(self) -> int:
        """Elements that each lane holds (each subgroup, where no lanes are told apart)."""
        return self.extent(Axis.REGISTER)

    def replicas(self, axis: Axis) -> int:
        """How many indices of an axis hold the same element."""
        return prod(d.size for d in self.on(axis) if d.dim is None)

    # Where things are: vectorised over integer arrays.
    def at(
        self,
        subgroup: ArrayLike = 0,
        lane: ArrayLike = 0,
        register: ArrayLike = 0,
        address: ArrayLike = 0,
    ) -> tuple[Index, ...]:
        """Tile coordinates, one array per dimension, of places given by broadcastable indices."""
        index = [np.asarray(i, dtype=np.intp) for i in (register, lane, subgroup, address)]
        if self.swizzle is not None:
            index[Axis.MEMORY] = self.swizzle(index[Axis.MEMORY])
        shape = np.broadcast_shapes(*(i.shape for i in index))
        coords = tuple(np.zeros(shape, np.intp) for _ in self.shape)
        for d in self.digits:
            if d.dim is not None:
                coords[d.dim][...] += (index[d.axis] // d.weight) % d.size * d.stride
        return coords

    @cached_property
    def lane_starts(self) -> tuple[Index, ...]:
        """Tile coordinates of each lane's register 0, one array [lanes] per dimension."""
        return self.at(lane=np.arange(self.lanes))

    @cached_property
    def register_steps(self) -> tuple[Index, ...]:
        """What each register adds to the coordinates of register 0, one array [registers] per dimension."""
        return self.at(register=np.arange(self.registers))

    def coords(self, subgroup: int) -> tuple[Index, ...]:
        """Index arrays [lanes, registers] of what one subgroup holds: ``tile[layout.coords(s)]``."""
        return self.at(subgroup, np.arange(self.lanes)[:, None], np.arange(self.registers))

    def fragment(self, subgroup: int, lane: int) -> Index:
        """Coordinates [registers, rank] of what one lane holds, in register order."""
        return np.stack(self.at(subgroup, lane, np.arange(self.registers)), axis=-1)

    def table(self) -> tuple[Index, ...]:
        """Coordinates of everything: one array [subgroups, lanes, registers] per dimension."""
        s, l, r = (np.arange(n) for n in (self.subgroups, self.lanes, self.registers))
        return self.at(s[:, None, None], l[:, None], r)

    def index(self, axis: Axis, coords: Sequence[ArrayLike]) -> Index:
        """The index of an axis that holds the given coordinates (replica digits 0)."""
        if len(coords) != self.rank:
            raise LayoutError(f"{len(coords)} coordinates for a tile of rank {self.rank}")
        at = [np.asarray(c, dtype=np.intp) for c in coords]
        result = np.zeros(np.broadcast_shapes(*(c.shape for c in at)), np.intp)
        for d in self.on(axis):
            if d.dim is not None:
                result += (at[d.dim] // d.stride) % d.size * d.weight
        if axis is Axis.MEMORY and self.swizzle is not None:
            return self.swizzle(result)
        return result

    def owner(self, *coords: ArrayLike) -> Owner:
        """(subgroup, lane, register) of the elements at ``coords``, one array per dimension."""
        axes = (Axis.SUBGROUP, Axis.LANE, Axis.REGISTER)
        return Owner(*(self.index(axis, coords) for axis in axes))

    def address(self, *coords: ArrayLike) -> Index:
        """Memory address, in elements, of the elements at ``coords``, after the swizzle."""
        return self.index(Axis.MEMORY, coords)

    def replica_part(self, axis: Axis, index: ArrayLike) -> Index:
        """``index`` with all digits but those of replicas set to 0."""
        i = np.asarray(index, dtype=np.intp)
        result = np.zeros_like(i)
        for d in self.on(axis):
            if d.dim is None:
                result += (i // d.weight) % d.size * d.weight
        return result

    # Changes of shape.
    def permuted(self, permutation: Sequence[int]) -> Layout:
        """The layout of the transposed tile, nothing moved: result dim i is dim ``permutation[i]``."""
        if sorted(permutation) != list(range(self.rank)):
            raise LayoutError(f"{[*permutation]} is no permutation of {self.rank} dimensions")
        return self._of_dims(permutation)

    def _of_dims(self, dims: Sequence[int]) -> Layout:
        """With these dimensions, in this order; those left out have extent 1."""
        place = {old: new for new, old in enumerate(dims)}
        digits = [d if d.dim is None else d._replace(dim=place[d.dim]) for d in self.digits]
        return Layout.of([self.shape[d] for d in dims], digits, self.swizzle)

    def contracted(self, dim: int, size: int | None = None) -> Layout:
        """Runs of ``size`` elements along ``dim`` (all of it by default) become one element.

        This is the layout of a reduction's result, every owner of a part holding it, and equally of
        the input of the broadcast that gives this layout. Registers that held the run collapse into
        one; lanes and subgroups that did become replicas.
        """
        run = self.shape[dim] if size is None else size
        if run < 1 or self.shape[dim] % run:
            raise LayoutError(
                f"runs of {run} do not divide the {self.shape[dim]} elements of dimension {dim}"
            )
        kept: list[Digit] = []
        for d in self.digits:
            if d.dim != dim:
                kept.append(d)
                continue
            inner, outer = split_at(d, run)
            if inner is not None and d.axis is not Axis.REGISTER:
                kept.append(inner._replace(dim=None, stride=0))
            if outer is not None:
                kept.append(outer._replace(stride=outer.stride // run))
        shape = list(self.shape)
        shape[dim] //= run
        return Layout.of(shape, _close_gaps(kept))

    def expanded(self, dim: int, size: int) -> Layout:
        """Every element becomes ``size`` consecutive ones along ``dim``, held by the same lane.

        The layout of a bitcast to narrower elements.
        """
        registers: list[tuple[int, int | None, int]] = [(size, dim, 1)]
        digits: list[Digit] = []
        for d in self.digits:
            stride = d.stride * size if d.dim == dim else d.stride
            if d.axis is Axis.REGISTER:
                registers.append((d.size, d.dim, stride))
            else:
                digits.append(d._replace(stride=stride))
        shape = list(self.shape)
        shape[dim] *= size
        return Layout.of(shape, digits + number(Axis.REGISTER, registers), self.swizzle)

    def dropped(self, *dims: int) -> Layout:
        """Without dimensions of extent 1."""
        for dim in dims:
            if self.shape[dim] != 1:
                raise LayoutError(f"dimension {dim} of extent {self.shape[dim]} cannot be dropped")
        return self._of_dims([d for d in range(self.rank) if d not in dims])

    def is_whole(self, dim: int) -> bool:
        """Whether every owner holds all of a dimension."""
        return all(d.axis is Axis.REGISTER for d in self.along(dim))

    def joined(self, dim: int, size: int) -> Layout:
        """Runs of ``size`` elements along ``dim``, which one owner has, become one element."""
        if any(d.axis is not Axis.REGISTER and d.stride < size for d in self.along(dim)):
            raise LayoutError("neighbours have different owners")
        return self.contracted(dim, size)

    def boxed(self, offsets: Sequence[int], sizes: Sequence[int]) -> Layout:
        """Ownership of a box, whose elements must lie at the same lanes and subgroups as if it began at 0; of the
        part of it that this layout is of, where it is smaller."""
        for dim, offset in enumerate(offsets):
            others = (d for d in self.along(dim) if d.axis is not Axis.REGISTER)
            if offset % max((d.stride * d.size for d in others), default=1):
                raise LayoutError(
                    f"offset {offset} in dimension {dim} moves elements to other owners"
                )
        return self.cropped([min(n, m) for n, m in zip(sizes, self.shape, strict=True)])

    def cropped(self, sizes: Sequence[int]) -> Layout:
        """Ownership of a box of ``sizes`` that begins at multiples of them. LayoutError where others than registers
        tell boxes apart."""
        registers: list[tuple[int, int | None, int]] = []
        digits: list[Digit] = []
        for digit in self.digits:
            inner: Digit | None = digit
            if digit.dim is not None:
                inner, outer = split_at(digit, sizes[digit.dim])
                if outer is not None and digit.axis is not Axis.REGISTER:
                    raise LayoutError("the slice has a part of the lanes only")
            if inner is None:
                continue
            if inner.axis is Axis.REGISTER:
                registers.append((inner.size, inner.dim, inner.stride))
            else:
                digits.append(inner)
        return Layout.of(sizes, digits + number(Axis.REGISTER, registers))

    def sliced(self, *dims: int) -> Layout:
        """Ownership of a reduced tile (XeGPU RFC, `slice`): ``dims`` contracted and dropped."""
        result = self
        for dim in dims:
            result = result.contracted(dim)
        return result.dropped(*dims)

    def reshaped(self, shape: Sequence[int]) -> Layout:
        """The layout of ``vector.shape_cast``'s result (row-major order kept), nothing moved."""
        if prod(shape) != self.size:
            raise LayoutError(f"{self.size} elements do not fill {[*shape]}")
        old, new = row_strides(self.shape), row_strides(shape)
        digits: list[Digit] = []
        for d in self.digits:
            if d.dim is None:
                digits.append(d)
                continue
            linear = d.stride * old[d.dim]
            rest: Digit | None = d._replace(stride=linear)
            for dim in reversed(range(len(shape))):
                if rest is None or shape[dim] == 1 or rest.stride >= new[dim] * shape[dim]:
                    continue
                block, rest = split_at(rest, new[dim] * shape[dim])
                if block is None or block.stride % new[dim]:
                    raise LayoutError(
                        f"steps of {linear} elements straddle dimension {dim} of {[*shape]}"
                    )
                digits.append(block._replace(dim=dim, stride=block.stride // new[dim]))
        return Layout.of(shape, digits, self.swizzle)

    def only(self, *axes: Axis) -> Layout:
        """The digits of other axes moved onto the register axis, above its own (so that none is lost).

        ``layout.only(Axis.SUBGROUP)`` forgets lanes: what a whole subgroup holds.
        """
        weight = self.registers
        digits: list[Digit] = []
        for d in self.digits:
            if d.axis in axes or d.axis is Axis.REGISTER:
                digits.append(d)
            elif d.dim is not None:
                digits.append(d._replace(axis=Axis.REGISTER, weight=weight))
                weight *= d.size
        return Layout.of(self.shape, digits, self.swizzle)

    def swizzled(self, swizzle: Swizzle | None) -> Layout:
        """The same elements in memory, moved by another ``swizzle``; None for none."""
        return replace(self, swizzle=swizzle)

    def __str__(self) -> str:
        axes = [a for a in Axis if self.on(a)]
        text = ", ".join(f"{a} [{' '.join(map(str, self.on(a)))}]" for a in axes)
        extra = f", {self.swizzle}" if self.swizzle else ""
        return f"{'x'.join(map(str, self.shape))}: {text or 'one element'}{extra}"

    def _check(self) -> None:
        for dim, extent in enumerate(self.shape):
            reach = 1
            for d in self.along(dim):
                if d.stride != reach:
                    raise LayoutError(
                        f"dimension {dim} of {[*self.shape]}: a digit moves by {d.stride} elements "
                        f"where the digits below it cover {reach}"
                    )
                reach *= d.size
            if reach != extent:
                raise LayoutError(
                    f"dimension {dim} of {[*self.shape]}: {reach} of {extent} elements are owned"
                )
        for axis in Axis:
            reach = 1
            for d in self.on(axis):
                if d.weight != reach and (axis is not Axis.MEMORY or d.weight < reach):
                    raise LayoutError(
                        f"{axis} digit of weight {d.weight} follows digits that cover {reach}"
                    )
                reach = d.weight * d.size


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of a shape, in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def split_at(digit: Digit, boundary: int) -> tuple[Digit | None, Digit | None]:
    """A digit's parts that move below and at or above ``boundary`` elements; None for no part."""
    if digit.stride >= boundary:
        if digit.stride % boundary:
            raise LayoutError(f"a step of {digit.stride} elements is no multiple of {boundary}")
        return None, digit
    if digit.stride * digit.size <= boundary:
        return digit, None
    if boundary % digit.stride or digit.size % (boundary // digit.stride):
        raise LayoutError(
            f"{digit.size} steps of {digit.stride} elements do not split at {boundary}"
        )
    return digit.split(boundary // digit.stride)


def number(axis: Axis, digits: Iterable[tuple[int, int | None, int]]) -> list[Digit]:
    """The ``digits`` of one axis from (size, dim, stride) triples, fastest first, without gaps."""
    result: list[Digit] = []
    weight = 1
    for size, dim, stride in digits:
        result.append(Digit(axis, weight, size, dim, stride))
        weight *= size
    return result


def _close_gaps(digits: Iterable[Digit]) -> list[Digit]:
    """Registers renumbered without the gaps that removed digits left; other axes as they are."""
    registers = sorted((d for d in digits if d.axis is Axis.REGISTER), key=lambda d: d.weight)
    others = [d for d in digits if d.axis is not Axis.REGISTER]
    return number(Axis.REGISTER, ((d.size, d.dim, d.stride) for d in registers)) + others


def _canonical(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    merged: list[Digit] = []
    for d in sorted((d for d in digits if d.size != 1), key=lambda d: (d.axis, d.weight)):
        if d.size < 1 or d.weight < 1 or (d.dim is not None and d.stride < 1):
            raise LayoutError(f"digit {d} must have positive size, weight and stride")
        last = merged[-1] if merged else None
        continues = (
            last is not None
            and (last.axis, last.dim) == (d.axis, d.dim)
            and d.weight == last.weight * last.size
            and (d.dim is None or d.stride == last.stride * last.size)
        )
        if last is not None and continues:
            merged[-1] = last._replace(size=last.size * d.size)
        else:
            merged.append(d)
    return tuple(merged)
