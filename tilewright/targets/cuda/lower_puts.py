"""Rules for slots that threads fill: operands of products that the program computes (`passes/puts`)."""

from __future__ import annotations

from xdsl.dialects.builtin import i32
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import stage
from tilewright.layout import Layout, LayoutError
from tilewright.targets.cuda import staged as st
from tilewright.targets.cuda.distribute import Distributor, rule
from tilewright.targets.cuda.exchange import addresses, store_fragment
from tilewright.targets.cuda.lower_rings import memory_of
from tilewright.targets.cuda.narrow import Narrow
from tilewright.targets.cuda.ownership import default_layout


@rule("stage.put")
def put(d: Distributor, op: Operation) -> None:
    """Every thread writes its part, for the matrix unit to see; one of each warp says so."""
    assert isinstance(op, stage.PutOp)
    place = st.place_of(d, op.ring)
    slot = st.slot_of(d, op.cursor)
    fragment = d.fragment_of(op.value, _layout(d, op.value, place.type.parts.data[0]))
    parity = st.parity_of(d, op.cursor, flipped=True)
    st.instr(d, "mbarrier.wait.parity", st.empty(d, place, slot), parity)
    part = st.Staged(place, 0, slot)
    store_fragment(d, fragment, memory_of(part.attr), Narrow(d.b).index(part.offset(d)))
    st.instr(d, "fence.proxy.async")
    st.instr(d, "warp.sync")
    with d.b.when(d.b.cmp("eq", d.lane, 0)):
        st.instr(d, "mbarrier.arrive", st.full(d, place, slot), d.b.constant(i32, 1))


def _layout(d: Distributor, value: SSAValue, part: stage.PartAttr) -> Layout:
    """The layout that a value is kept in, or one whose vectors lie along the slot's lines."""
    size = part.itemsize
    home = d.home(value)
    if home is not None:
        try:
            addresses(home, memory_of(part), size)
        except LayoutError:
            pass
        else:
            return home
    fast = 1 if part.row_major else 0
    return default_layout(part.get_shape(), fast, size, d.team.warps)
