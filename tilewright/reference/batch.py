"""Who runs: the instances of a batch, and where each stands in the launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.reference.values import Index


@dataclass(frozen=True)
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

    @property
    def count(self) -> int:
        return self.workgroup.shape[0]

    @property
    def parties(self) -> Index:
        """Who is ordered by the program alone, per instance: a number that is unique in the launch.

        An instance is a party of its own, except that the lanes of a subgroup are one.
        """
        return self.workgroup * self.parties_per_workgroup + self.subgroup // self.lanes

    @property
    def parties_per_workgroup(self) -> int:
        return -(-self.subgroups // self.lanes)

    @property
    def slots(self) -> Index:
        """The workgroup's position in this batch."""
        return self.workgroup - (self.workgroup[0] if self.count else 0)

    def block_id(self, axis: int) -> Index:
        x, y, _ = self.grid
        return (
            self.workgroup % x,
            self.workgroup // x % y,
            self.workgroup // (x * y),
        )[axis]

    @staticmethod
    def of_workgroups(
        grid: tuple[int, int, int],
        first: int,
        last: int,
        block: tuple[int, int, int],
        lanes: int = 1,
    ) -> Batch:
        """Workgroups `first` .. `last` (exclusive) with all their subgroups, or all their lanes."""
        subgroups = block[0] * block[1] * block[2]
        numbers = np.arange(first, last, dtype=np.int64)
        return Batch(
            grid,
            np.repeat(numbers, subgroups),
            np.tile(np.arange(subgroups, dtype=np.int64), last - first),
            subgroups,
            block,
            lanes,
        )
