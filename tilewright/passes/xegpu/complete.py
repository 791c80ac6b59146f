"""What `xegpu-wg-to-sg-distribute` needs of a text that comes to it alone: layouts everywhere, exchanges in memory.

Text with layouts on its anchors only (memory ops, products, convert_layout) and with convert_layout and
reductions across subgroups is what others' passes of that name take; so are products whose operands are distributed
along k, which every subgroup of a row or column needs whole. In the pipeline nothing is left to do here.

    %v = xegpu.load_nd %t[0, 0] <{layout = #l}> : ..  -> vector<64x64xf32>
    %w = math.exp %v : vector<64x64xf32>                                      ->  .. {layout_result_0 = #l}
    %x = xegpu.convert_layout %w <{input_layout = #l, target_layout = #m}>    ->  store_matrix, barrier, load_matrix
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects import gpu, memref
from xdsl.ir import SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import is_vector
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.layout import derive
from tilewright.passes.emit import Before
from tilewright.passes.ownership import values_of
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.exchange_slm import exchange_through_slm
from tilewright.passes.xegpu.insert_barriers import insert_barriers
from tilewright.passes.xegpu.propagate_subgroup import propagate_subgroup
from tilewright.uarch.xe import XeMachine


def complete(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Fills in what is missing, in place; barriers are placed anew only where an exchange was put in."""
    if not all(_is_owned(value) for value in values_of(kernel) if is_vector(value)):
        propagate_subgroup(kernel, machine)
    for op in list(kernel.walk()):
        if isinstance(op, xegpu.DpasOp):
            _whole_along_k(op)
    crossing = (xegpu.ConvertLayoutOp, MultiReductionOp)
    if not any(isinstance(op, crossing) for op in kernel.walk()):
        return
    before = _allocations(kernel)
    exchange_through_slm(kernel, machine)
    if _allocations(kernel) != before:
        insert_barriers(kernel)


def _whole_along_k(op: xegpu.DpasOp) -> None:
    """Conversions of the operands of a product that other subgroups own parts of."""
    d = own.layout_of(op.result)
    if d is None or len(own.shape_of(op.rhs)) != 2:
        return
    d = own.completed(d, own.shape_of(op.result))
    needs = [*derive.mma_operands(d, own.shape_of(op.lhs)[1]), d]
    for n, (value, need) in enumerate(zip(op.operands, needs, strict=False)):
        have, shape = own.layout_of(value), own.shape_of(value)
        if have is None or own.same_owners(own.completed(have, shape), need, shape):
            continue
        need = replace(
            need, inst_data=have.inst_data, lane_layout=have.lane_layout, lane_data=have.lane_data
        )
        new = xegpu.ConvertLayoutOp(value, own.attribute(need), own.attribute(have))
        op.operands[n] = Before(op).add(new)


def _is_owned(value: SSAValue) -> bool:
    return (d := own.layout_of(value)) is not None and d.sg_layout is not None


def _allocations(kernel: gpu.FuncOp) -> int:
    return sum(isinstance(op, memref.AllocOp) for op in kernel.walk())
