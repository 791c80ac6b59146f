"""xegpu-subgroup-distribute{target=pvc|bmg|dg2 reduction=tree|hardware}: what a subgroup does becomes what a lane does.

Requires: today's XeGPU (xegpu-modernize) at subgroup level whose dpas and block ops are instructions of the machine
(xegpu-blocking). Layouts on ops are wishes; where there are none the machine's fragments and natural deals are taken.
Guarantees: the same results. Every vector is one lane's fragment, 1-D, without layouts; dpas, block loads, stores and
prefetches are one instruction each; scalars are uniform; `tilewright.level = "lane"`, `tilewright.lanes` is set.

    %a = load_nd %t[%m, %k] : tensor_desc<32x16xf16, array_length = 2> -> vector<2x32x16xf16>
    %b = vector.extract %a[1] : vector<32x16xf16> from vector<2x32x16xf16>
    %c = vector.extract_strided_slice %b {offsets = [8, 0], sizes = [8, 16], ..} : .. to vector<8x16xf16>
    %d = dpas %c, %w, %acc : vector<8x16xf16>, vector<16x16xf16>, vector<8x16xf32> -> vector<8x16xf32>
->
    %a = load_nd %t[%m, %k] : tensor_desc<32x16xf16, array_length = 2> -> vector<64xf16>
    %c = vector.extract_strided_slice %a {offsets = [40], sizes = [8], strides = [1]} : .. to vector<8xf16>
    %d = dpas %c, %w, %acc : vector<8xf16>, vector<16xf16>, vector<8xf32> -> vector<8xf32>

Slices of a load are parts of its registers and cost nothing. A block load whose users want another deal than any
form of the message gives, reductions over lanes, and conversions become gpu.shuffle (all registers that move alike in
one), with selects where lanes take different registers; `reduction=hardware` uses gpu.subgroup_reduce.
Stock ops without a lane form are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import IntegerAttr, StringAttr, VectorType, i64
from xdsl.ir import Attribute, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.upstream import vector as more
from tilewright.passes.kernel import LEVEL
from tilewright.passes.xegpu.fragments import Fragment, Held, element_of
from tilewright.passes.xegpu.lane_matrix import LaneMatrix
from tilewright.passes.xegpu.lane_rows import add_remarks
from tilewright.passes.xegpu.ownership import (
    OwnershipAnalysis,
    lanes_of,
)
from tilewright.uarch.xe import XeMachine


def subgroup_distribute(kernel: gpu.FuncOp, xe: XeMachine, *, hardware: bool = False) -> None:
    """Rewrites a kernel of subgroup level to lane level, in place."""
    if any(isinstance(a.type, VectorType) for a in kernel.body.blocks[0].args):
        raise error_at(
            kernel,
            "a kernel that is dealt out to lanes takes no vectors: nothing says which lane owns what of them",
            hint="load them from memory, or from another op that has a layout",
            kind=UnsupportedError,
        )
    rewriting = _Distribute(kernel, xe, hardware)
    rewriting.kernel(kernel)
    add_remarks(kernel.attributes, rewriting.remarks)
    kernel.attributes[LEVEL] = StringAttr("lane")
    kernel.attributes["tilewright.lanes"] = IntegerAttr(lanes_of(xe), i64)


class _Distribute(LaneMatrix):
    def __init__(self, kernel: gpu.FuncOp, xe: XeMachine, hardware: bool):
        super().__init__()
        self.lanes = lanes_of(xe)
        self.owners = OwnershipAnalysis(kernel, xe, whole=True)
        self.held: dict[SSAValue, Held] = {}
        self.hardware_reductions = hardware
        self.remarks: list[str] = []

    def part_types(self, like: SSAValue) -> list[Attribute]:
        count = self.owners.layout(like).registers
        return [VectorType(element_of(like), [count])]  # pyright: ignore

    def parts(self, value: SSAValue, like: SSAValue) -> list[SSAValue]:
        return [self.vector(self.held[value], self.owners.layout(like))]

    def bind(self, value: SSAValue, parts: Sequence[SSAValue]) -> None:
        parts[0].name_hint = value.name_hint
        self.held[value] = self.fragment(self.owners.layout(value), parts[0])

    def convert(self, op: Operation) -> None:
        handler = _HANDLERS.get(type(op))
        if handler is not None and (handler is not _constant or _has_vectors(op)):
            handler(self, op)
        elif is_elementwise_on_vectors(op):
            self.elementwise(op)
        elif _has_vectors(op):
            raise self.refuse("has no form at lane level")
        elif op.name in _ONCE:
            self.alone(op)
        else:
            self.keep(op)

    def thread_id(self, op: gpu.ThreadIdOp) -> None:
        """At subgroup level a thread is a subgroup; those of a workgroup are numbered along x."""
        if str(op.dimension.data) != "x":
            raise self.refuse("subgroups are numbered along x", "use gpu.subgroup_id")
        new = gpu.SubgroupIdOp()
        self.env[op.result] = self.add(new)

    def block_dim(self, op: gpu.BlockDimOp) -> None:
        if str(op.dimension.data) != "x":
            raise self.refuse("subgroups are numbered along x", "use gpu.num_subgroups")
        self.env[op.result] = self.add(gpu.NumSubgroupsOp())

    def older(self, op: Operation) -> None:
        raise self.refuse("a descriptor of the older text", "run xegpu-modernize first")


def _constant(self: _Distribute, op: Operation) -> None:
    assert isinstance(op, arith.ConstantOp)
    self.constant_op(op)


def _has_vectors(op: Operation) -> bool:
    return any(isinstance(v.type, VectorType) for v in (*op.operands, *op.results))


_ONCE = ("memref.store", "memref.atomic_rmw", "gpu.printf", "tw.print")
"""Scalar ops whose effect must happen once for the subgroup."""

_HANDLERS: dict[type[Operation], Callable[[Any, Any], None]] = {
    arith.ConstantOp: _constant,
    more.StepOp: LaneMatrix.step_op,
    vector.CreateMaskOp: LaneMatrix.mask_op,
    more.ConstantMaskOp: LaneMatrix.mask_op,
    more.MultiReductionOp: LaneMatrix.multi_reduction,
    vector.ReductionOp: LaneMatrix.reduction,
    vector.BroadcastOp: LaneMatrix.broadcast,
    more.TransposeOp: LaneMatrix.transpose,
    more.ShapeCastOp: LaneMatrix.shape_cast,
    vector.BitcastOp: LaneMatrix.bitcast,
    more.ExtractStridedSliceOp: LaneMatrix.extract_strided_slice,
    vector.ExtractOp: LaneMatrix.extract,
    more.InsertStridedSliceOp: LaneMatrix.insert_strided_slice,
    vector.InsertOp: LaneMatrix.insert,
    vector.ShuffleOp: LaneMatrix.shuffle_op,
    more.InterleaveOp: LaneMatrix.interleave,
    more.DeinterleaveOp: LaneMatrix.deinterleave,
    xegpu.ConvertLayoutOp: LaneMatrix.convert_layout,
    xegpu.DpasOp: LaneMatrix.dpas,
    xegpu.CreateNdDescOp: LaneMatrix.create_nd_tdesc,
    xegpu.LoadNdOp: LaneMatrix.load_nd,
    xegpu.StoreNdOp: LaneMatrix.store_nd,
    xegpu.PrefetchNdOp: LaneMatrix.prefetch_nd,
    xegpu.LoadGatherOp: LaneMatrix.load_gather,
    xegpu.StoreScatterOp: LaneMatrix.store_scatter,
    xegpu.AtomicRMWOp: LaneMatrix.atomic_rmw,
    xegpu.PrefetchOp: LaneMatrix.prefetch,
    xegpu.LoadMatrixOp: LaneMatrix.load_matrix,
    xegpu.StoreMatrixOp: LaneMatrix.store_matrix,
    xegpu.UpdateNdOffsetOp: _Distribute.older,
    xegpu.CreateDescOp: _Distribute.older,
    xegpu.UpdateOffsetOp: _Distribute.older,
    gpu.ThreadIdOp: _Distribute.thread_id,
    gpu.BlockDimOp: _Distribute.block_dim,
}

__all__ = ["Fragment", "subgroup_distribute"]
