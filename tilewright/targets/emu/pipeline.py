"""From a kernel to the program of its subgroups: the one pass, and what its launch must know."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from tilewright.targets.emu import (  # filling the table of handlers
    atomics,
    blocks,
    control,
    exchange,
    matrix,
    memory,
    products,
    scattered,
    sync,
    vector_memory,
    vectors,
)
from tilewright.targets.emu.lowering import Lowering

__all__ = ["Lowered", "lower_kernel"]
_ = (
    atomics,
    blocks,
    control,
    exchange,
    matrix,
    memory,
    products,
    scattered,
    sync,
    vector_memory,
    vectors,
)


@dataclass(frozen=True)
class Lowered:
    """A lowered kernel: its module, the ops that name themselves at run time, and sizes in bytes."""

    module: ModuleOp
    sites: list[Operation]
    context: int
    shared: int
    private: int
    named: bool


def lower_kernel(
    kernel: gpu.FuncOp, lanes: int, threads: int, block: tuple[int, int, int]
) -> Lowered:
    """`kernel`, launched with `block` threads, as the program of a subgroup of `lanes` lanes (1 at subgroup level).

    `threads` of the launch are a subgroup.
    """
    low = Lowering(kernel, lanes, threads, block)
    module = low.run()
    return Lowered(
        module, low.sites, low.context.size, low.shared.bytes, low.private_bytes, low.uses_named
    )
