"""The memory that a worker and the subgroups that it runs share: one block of 8-byte words, at fixed offsets.

What a kernel reads (ids, extents, arguments) comes first; the scheduler's own words (`fibers`) follow, then the
kernel's arguments: an array is its address, extents and strides (in elements), a scalar one word.
"""

from __future__ import annotations

from typing import Final

SUBGROUPS: Final = 0
WORKGROUP: Final = 8
GRID: Final = 32
BLOCK: Final = 56
SHARED: Final = 80
"""Address of the workgroup's shared memory."""
SCHEDULER: Final = 96
"""Stack pointer of the scheduler while a subgroup runs."""
CURRENT: Final = 104
GENERATION: Final = 112
"""Of gpu.barrier: how often all subgroups have met."""
ARRIVED: Final = 120
"""Subgroups that wait at gpu.barrier."""
FAILURE: Final = 128
FAILURE_SITE: Final = 136
FIBERS: Final = 144
"""Address of one record per subgroup (`FIBER_*`)."""
NAMED: Final = 152
"""Address of one record per named barrier (`NAMED_*`), 256 of them; 0 where the kernel has none."""
PASSED: Final = 160
"""Address of [subgroup][barrier]: the generation that a subgroup waits for next, plus 1; 0 before its first."""
KERNEL: Final = 168
STACKS: Final = 176
"""Address of the lowest stack; the next ones follow STACK_SIZE bytes apart."""
STACK_SIZE: Final = 184
COUNTER: Final = 192
"""Address of the number of the next workgroup, shared by all workers."""
WORKGROUPS: Final = 200
SHARED_SIZE: Final = 208
PROGRESS: Final = 216
"""Not 0 where a subgroup got further in this round."""
ARGUMENTS: Final = 256

FIBER_BYTES: Final = 64
"""Of a record, whose first word is the stack pointer while the subgroup waits."""
FIBER_STATUS: Final = 8
FIBER_SITE: Final = 16
FIBER_BARRIER: Final = 24
READY, AT_BARRIER, AT_NAMED, DONE = 0, 1, 2, 3

NAMED_BYTES: Final = 24
NAMED_PARTICIPANTS: Final = 0
NAMED_ARRIVED: Final = 8
NAMED_GENERATION: Final = 16
BARRIERS: Final = 256

NOT_UNIFORM, NOT_ALL_LANES, ASSERTION, BY_ZERO = 1, 2, 3, 4
"""What a subgroup can find wrong with its lanes while it runs (codes of `tw_emu_fail`)."""
DEADLOCK, MISUSE = 100, 101
"""Failures that the scheduler itself finds."""
