"""What it takes to get from one ownership to another: nothing, registers, a shuffle, or shared memory.

Every data movement is one question: for each place (subgroup, lane, register) of the target, from which
place of the source does its element come? :class:`ConversionPlan` answers with the explicit permutation. Where the
source has replicas the nearest is taken: replica digits of the source are free, so they follow the
target's own subgroup and lane, which leaves every element where it is whenever that is possible.
Reductions have a plan of their own (:func:`reduce`), since they combine instead of moving.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.frozen import frozen
from tilewright.layout.digits import Axis, Digit, Index, Layout, LayoutError, split_at

Coords = tuple[Index, ...]
Through = Callable[[Coords], Coords]


class Move(IntEnum):
    """What a plan needs, each kind including the ones before it."""

    NOTHING = 0
    REGISTERS = 1
    SHUFFLE = 2
    SLM = 3

    def __str__(self) -> str:
        return {0: "nothing", 1: "registers", 2: "shuffle", 3: "slm"}[self.value]


@dataclass(frozen=True, eq=False)
class ConversionPlan:
    """Where each place of ``target`` gets its element from; arrays [subgroups, lanes, registers]."""

    source: Layout
    target: Layout
    subgroup: Index
    lane: Index
    register: Index

    @cached_property
    def kind(self) -> Move:
        """How elements travel at worst: not at all, between registers, lanes, or subgroups."""
        if self.exchanging_subgroups:
            return Move.SLM
        if np.any(self.lane != np.arange(self.target.lanes)[:, None]):
            return Move.SHUFFLE
        same = self.source.registers == self.target.registers
        if same and not np.any(self.register != np.arange(self.target.registers)):
            return Move.NOTHING
        return Move.REGISTERS

    @cached_property
    def crossing(self) -> NDArray[np.bool_]:
        """Places [subgroups, lanes, registers] whose element comes from another subgroup."""
        return self.subgroup != np.arange(self.target.subgroups)[:, None, None]

    @cached_property
    def exchanging_subgroups(self) -> int:
        """How many subgroups get an element from another one."""
        return int(self.crossing.any(axis=(1, 2)).sum())

    @cached_property
    def permutation(self) -> Index | None:
        """Source register of each target register where it is the same for all lanes, else None."""
        first = self.register[:1, :1]
        return first[0, 0] if not np.any(self.register != first) else None

    def __str__(self) -> str:
        n = self.exchanging_subgroups
        text = f", {n} of {self.target.subgroups} subgroups exchange data" if n else ""
        return f"{self.kind}{text}"


def gather(source: Layout, target: Layout, through: Through) -> ConversionPlan:
    """The plan of an op whose result element at coordinates c is the source's at ``through(c)``."""
    for axis in (Axis.SUBGROUP, Axis.LANE):
        have, want = source.extent(axis), target.extent(axis)
        if have != want:
            raise LayoutError(f"the source is owned by {have} {axis}s, the target by {want}")
    coords = through(target.table())
    own = source.owner(*coords)
    s = np.arange(target.subgroups)[:, None, None]
    l = np.arange(target.lanes)[:, None]
    subgroup = own.subgroup + source.replica_part(Axis.SUBGROUP, s)
    lane = own.lane + source.replica_part(Axis.LANE, l)
    return ConversionPlan(source, target, subgroup, lane, own.register)


def convert(source: Layout, target: Layout) -> ConversionPlan:
    """`convert_layout`: same tile, other owners."""
    _same_shape(source.shape, target.shape)
    return gather(source, target, lambda c: c)


@frozen
class Reduction:
    """How a reduction along one dimension combines what the owners hold, from the inside out.

    First each lane folds groups of its own registers; then lanes that differ in the ``lane`` digits
    combine (a butterfly: partner = lane XOR weight, weight*2, .. for sizes that are powers of two);
    then subgroups that differ in the ``subgroup`` digits, through shared memory. Afterwards every
    participant holds the result, whose ownership is ``result``.
    """

    source: Layout
    result: Layout
    fold: Index
    """Result register of each source register, [registers]: the ones with equal number combine."""
    lane: tuple[Digit, ...]
    subgroup: tuple[Digit, ...]

    @property
    def kind(self) -> Move:
        """How partial results travel at worst: within a lane, between lanes, or subgroups."""
        if self.subgroup:
            return Move.SLM
        if self.lane:
            return Move.SHUFFLE
        return Move.REGISTERS if self.result.registers < self.source.registers else Move.NOTHING

    def butterfly(self) -> list[int]:
        """XOR masks of the lane steps, in order. LayoutError where a size is no power of two."""
        masks: list[int] = []
        for d in self.lane:
            if d.size & (d.size - 1) or d.weight & (d.weight - 1):
                raise LayoutError(f"{d.size} lanes {d.weight} apart do not form a butterfly")
            masks += [d.weight << i for i in range(d.size.bit_length() - 1)]
        return masks

    def partners(self, axis: Axis) -> Index:
        """Indices of an axis that combine with index 0, itself included, ascending."""
        found = np.zeros(1, np.intp)
        for d in self.lane if axis is Axis.LANE else self.subgroup:
            found = (found[:, None] + np.arange(d.size) * d.weight).ravel()
        return np.sort(found)


def reduce(source: Layout, dim: int, size: int | None = None) -> Reduction:
    """Plan of a reduction of runs of ``size`` elements (default all) along ``dim``; rank is kept."""
    run = source.shape[dim] if size is None else size
    result = source.contracted(dim, run)
    coords = source.register_steps
    reduced = tuple(c // run if d == dim else c for d, c in enumerate(coords))
    inner = [split_at(d, run)[0] for d in source.digits if d.dim == dim]
    parts = [d for d in inner if d is not None]
    return Reduction(
        source,
        result,
        result.index(Axis.REGISTER, reduced),
        tuple(d for d in parts if d.axis is Axis.LANE),
        tuple(d for d in parts if d.axis is Axis.SUBGROUP),
    )


def _same_shape(first: Sequence[int], second: Sequence[int]) -> None:
    if tuple(first) != tuple(second):
        raise LayoutError(f"shapes {[*first]} and {[*second]} differ")
