"""xegpu-blocking{target=pvc|bmg|dg2}: every op becomes ops of the machine's size.

Requires: XeGPU at subgroup level; older text is modernized first. `inst_data` and lanes on ops are wishes; what
the text leaves open is chosen from the machine table.
Guarantees: the same results. A dpas is one instruction; block loads are the largest messages that consist of
whole fragments (height, array_length), stores and prefetches too; arithmetic is on fragments; loops carry fragments
(1:N). Loads have the lane layout that their users want (`lane_data = [2, 1]`: rows packed for B). No `inst_data` is
left.

    %a = load_nd %t[%m, %k] : tensor_desc<32x32xf16> -> vector<32x32xf16>
    %b = load_nd %u[%k, %n] : tensor_desc<32x64xf16> -> vector<32x64xf16>
    %d = dpas %a, %b, %c : vector<32x32xf16>, vector<32x64xf16>, vector<32x64xf32> -> vector<32x64xf32>
->
    %a = load_nd %t2[%m, %k] : tensor_desc<32x16xf16, array_length = 2> -> vector<2x32x16xf16>
    %b0 = load_nd %u2[%k, %n], %b1 = load_nd %u2[%k, %n + 32] : tensor_desc<32x16xf16, array_length = 2> -> ..
    %a00 = slices of %a, %b0, %b1
    %d00 = dpas %a00, %b00, %c00 : vector<8x16xf16>, vector<16x16xf16>, vector<8x16xf32> -> vector<8x16xf32>
    ... 32 of them

Slices between loads and dpas pick registers; distribution to lanes makes nothing of them.
What 2D block messages cannot reach keeps `tilewright.scattered` and is cut into fragments only.
"""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint

from tilewright.dialects import xegpu
from tilewright.dialects.nesting import move
from tilewright.passes import memory_objects
from tilewright.passes.kernel import add_remarks
from tilewright.passes.new_body import refuse_vectors
from tilewright.passes.xegpu.block_messages import SCATTERED
from tilewright.passes.xegpu.inst_fragments import Fragments
from tilewright.passes.xegpu.legalize import legalize
from tilewright.uarch.xe import XeMachine


def block(kernel: gpu.FuncOp, xe: XeMachine) -> None:
    """Rewrites a kernel of subgroup level to instruction-sized ops, in place."""
    refuse_vectors(kernel)
    legalize(kernel, xe)
    rewriting = Fragments(kernel, xe)
    rewriting.kernel(kernel)
    add_remarks(kernel, rewriting.remarks)
    for block in kernel.walk_blocks():
        sink_scattered_loads(block)


def sink_scattered_loads(block: Block) -> None:
    """Moves the loads of a block. Linear in the ops of the block.

    A block message is asked for early, so that it arrives in time; many single loads fill registers instead. A load
    that lanes do element by element moves down to the first op that uses it, past ops that do not write memory.
    """
    order = {op: n for n, op in enumerate(block.ops)}
    # The number of the last op before each that may write or order memory.
    walls: list[int] = []
    last = -1
    for n, op in enumerate(block.ops):
        walls.append(last)
        if op.regions or memory_objects.may_write(op) or memory_objects.orders(op):
            last = n
    # Where an op stands after its move: in front of an op that stays, as that many'th from the back.
    place: dict[Operation, tuple[int, int]] = {op: (n, 0) for op, n in order.items()}
    ops = list(block.ops)
    moves: list[Operation] = []
    for op in reversed(ops):
        if not _sinks(op):
            continue
        users = [
            user
            for result in op.results
            for use in result.uses
            if (user := block.find_ancestor_op_in_block(use.operation))
        ]
        if not users:
            continue
        first = min(users, key=lambda user: place[user])
        anchor, depth = place[first]
        if walls[anchor] < order[op]:
            place[op] = anchor, depth - len(moves) - 1
            moves.append(op)
    for op in sorted(moves, key=lambda each: place[each]):
        move([op], InsertPoint.before(ops[place[op][0]]))


_PARTS = ("vector.extract_strided_slice", "vector.extract", "vector.shape_cast", "vector.transpose")


def _sinks(op: Operation) -> bool:
    """A load of single elements or rows, or a part of one, which costs nothing."""
    if op.name in _PARTS:
        owner = op.operands[0].owner
        return len(op.operands) == 1 and isinstance(owner, Operation) and _sinks(owner)
    return isinstance(op, xegpu.LoadNdOp) and SCATTERED in op.attributes
