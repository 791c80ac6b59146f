"""What a kernel that does not fit into registers could be: the workgroup tile whose accumulators do."""

from __future__ import annotations

from math import prod

from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType

from tilewright.dialects import xegpu, xetile
from tilewright.dialects.xegpu.types import element_bits
from tilewright.passes.xegpu.layout_defaults import ACCUMULATOR
from tilewright.uarch.xe import XeMachine


def fitting_tile(kernel: gpu.FuncOp, machine: XeMachine, subgroups: int) -> str | None:
    """The workgroup tile that a product of a workgroup's kernel should have, or the subgroups that should share it,
    with the numbers; None where its accumulator is small enough. `subgroups` share it now."""
    found = max(
        (
            (prod(kind.get_shape()) * element_bits(kind.element_type) // 8, kind)
            for op in kernel.walk()
            if isinstance(op, xegpu.DpasOp | xetile.TileMmaOp)
            and isinstance(kind := op.results[0].type, VectorType)
        ),
        key=lambda each: each[0],
        default=None,
    )
    limit = machine.limits.get("subgroups_large_grf", machine.limits["subgroups"]).most
    if found is None or limit is None:
        return None
    size, kind = found
    room = int(limit) * ACCUMULATOR * machine.grf_bytes
    rows, columns = shape = list(kind.get_shape())[-2:]
    if size <= room:
        if size <= subgroups * ACCUMULATOR * machine.grf_bytes:
            return None
        each = size // int(limit) // machine.grf_bytes
        return f"{rows}x{columns} of {kind.element_type} are {each} registers for each of {int(limit)} subgroups"
    while prod(shape) * element_bits(kind.element_type) // 8 > room and max(shape) > 1:
        longest = shape.index(max(shape))
        shape[longest] //= 2
    return (
        f"{rows}x{columns} of {kind.element_type} are {size // 1024} KiB in registers; {int(limit)} subgroups with "
        f"{ACCUMULATOR} of their registers of {machine.grf_bytes} bytes hold {room // 1024} KiB: "
        f"a workgroup tile of {shape[0]}x{shape[1]} fits"
    )
