"""Who runs: the instances of a batch, and where each stands in the launch."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.frozen import frozen
from tilewright.reference.values import Index

WARP, WARPGROUP = 32, 128
"""Threads that do collective instructions together."""


@frozen
class Batch:
    """Who the instances are. All arrays have one entry per instance."""

    grid: tuple[int, int, int]
    workgroup: Index
    """Linear number of the workgroup in the grid, x fastest."""
    subgroup: Index
    """Number of the subgroup in its workgroup; 0 at workgroup level."""
    subgroups: int
    """Subgroups per workgroup; 1 at workgroup level."""
    block: tuple[int, int, int] = (1, 1, 1)
    """How launch threads (subgroups) are arranged along x, y, z."""
    lanes: int = 1
    """Instances that run in program order together: the lanes of a subgroup at lane level."""
    agents: int = 0
    """Parties of a workgroup besides its instances: what runs beside threads, in numbers behind theirs."""
    threads: bool = False
    """Whether instances are threads of a machine's program: each a party, whatever warp it is of."""

    @property
    def count(self) -> int:
        return self.workgroup.shape[0]

    @cached_property
    def parties(self) -> Index:
        """Who is ordered by the program alone, per instance: a number that is unique in the launch.

        An instance is a party of its own, except that the lanes of a subgroup are one.
        """
        return self.workgroup * self.parties_per_workgroup + self.subgroup // self.lanes

    @property
    def kind(self) -> str:
        """What an instance is called, where it is not a whole workgroup."""
        return "thread" if self.threads else "subgroup"

    @property
    def programs(self) -> int:
        """Parties of a workgroup that are instances."""
        return -(-self.subgroups // self.lanes)

    @property
    def parties_per_workgroup(self) -> int:
        return self.programs + self.agents

    def is_agent(self, parties: Index) -> NDArray[np.bool_]:
        """Which parties are work that runs beside the program's instances."""
        return parties % self.parties_per_workgroup >= self.programs

    @cached_property
    def slots(self) -> Index:
        """The workgroup's position in this batch."""
        return self.workgroup - (self.workgroup[0] if self.count else 0)

    def block_id(self, axis: int) -> Index:
        x, y, _ = self.grid
        return (self.workgroup % x, self.workgroup // x % y, self.workgroup // (x * y))[axis]

    @staticmethod
    def of_workgroups(
        grid: tuple[int, int, int],
        first: int,
        last: int,
        block: tuple[int, int, int],
        lanes: int = 1,
        agents: int = 0,
        threads: bool = False,
    ) -> Batch:
        """Workgroups `first` .. `last` (exclusive) with all their subgroups, lanes or threads."""
        subgroups = block[0] * block[1] * block[2]
        numbers = np.arange(first, last, dtype=np.int64)
        return Batch(
            grid,
            np.repeat(numbers, subgroups),
            np.tile(np.arange(subgroups, dtype=np.int64), last - first),
            subgroups,
            block,
            lanes,
            agents,
            threads,
        )
