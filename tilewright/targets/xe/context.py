"""What every lowering of an xegpu operation to a lane program needs: the builder, the machine, descriptors, hints."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.frozen import record
from tilewright.passes.xegpu.check_legal import cache_policies
from tilewright.targets.xe.building import LaneBuilder
from tilewright.targets.xe.forms import Hints
from tilewright.targets.xe.surfaces import BlockSurface
from tilewright.uarch.xe import XeMachine


@record
class Context:
    """The machine, what was found out about descriptors, and what had to be said."""

    b: LaneBuilder
    machine: XeMachine
    lanes: int
    surface: Callable[[SSAValue], BlockSurface]
    remark: Callable[[Operation, str], None]


def hints_of(s: Context, op: xegpu.BlockAccess | xegpu.ScatterAccess) -> Hints:
    """The policies that the op's message names."""
    pair = cache_policies(s.machine, op)
    return Hints(*pair) if pair else Hints()
