"""What `xegpu-wg-to-sg-distribute` needs of a text that comes to it alone: layouts everywhere, exchanges in memory.

Text with layouts on its anchors only (memory ops, products, convert_layout) and with convert_layout and
reductions across subgroups is what others' passes of that name take. In the pipeline nothing is left to do here.

    %v = xegpu.load_nd %t[0, 0] <{layout = #l}> : ..  -> vector<64x64xf32>
    %w = math.exp %v : vector<64x64xf32>                                      ->  .. {layout_result_0 = #l}
    %x = xegpu.convert_layout %w <{input_layout = #l, target_layout = #m}>    ->  store_matrix, barrier, load_matrix
"""

from __future__ import annotations

from xdsl.dialects import gpu, memref, vector
from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.exchange_slm import exchange_through_slm
from tilewright.passes.xegpu.layout_relations import is_vector
from tilewright.passes.xegpu.place_barriers import place_barriers
from tilewright.passes.xegpu.propagate_subgroup import propagate_subgroup
from tilewright.uarch.xe import XeMachine


def complete(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Fills in what is missing, in place; barriers are placed anew only where an exchange was put in."""
    if not all(_is_owned(value) for op in kernel.walk() for value in _vectors(op)):
        propagate_subgroup(kernel, machine)
    crossing = (xegpu.ConvertLayoutOp, MultiReductionOp, vector.ReductionOp)
    if not any(isinstance(op, crossing) for op in kernel.walk()):
        return
    before = _allocations(kernel)
    exchange_through_slm(kernel, machine)
    if _allocations(kernel) != before:
        place_barriers(kernel)


def _vectors(op: Operation) -> list[SSAValue]:
    arguments = [a for region in op.regions for block in region.blocks for a in block.args]
    return [v for v in (*op.results, *arguments) if is_vector(v)]


def _is_owned(value: SSAValue) -> bool:
    return (d := own.layout_of(value)) is not None and d.sg_layout is not None


def _allocations(kernel: gpu.FuncOp) -> int:
    return sum(isinstance(op, memref.AllocOp) for op in kernel.walk())
