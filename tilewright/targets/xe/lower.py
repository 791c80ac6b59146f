"""xe-lane-to-mach: a lane's XeGPU program -> ops of the emitter with neutral callees `@xe_*`.

    gpu.func @k(%a: memref<4096x4096xf16>, ..) kernel {        func.func @k(%a: memref<4096x4096xf16>, ..)
      %t = xegpu.create_nd_tdesc %a : ..                           attributes {mach.kernel, ..} {
      %v = xegpu.load_nd %t[%m, %k] : .. -> vector<64xf16>       mach.call @xe_load2d_16b_32x16x2(..)
      %s = vector.extract_strided_slice %v ..                    %s = mach.load %p : .. -> vector<8xi16>
      %d = xegpu.dpas %s, ..                                     %d = mach.call @xe_dpas_f16_f16_f32_8x16x16(..)

Requires: one gpu.func at lane level, values fragments of one dimension or scalars, descriptors made outside of
control flow that would choose between them. Guarantees: no xegpu op is left; one message per block op unless a
remark says otherwise; nothing is loaded, stored or multiplied that the lane program does not ask for. Raises
UnsupportedError for what the machine lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

import numpy as np
from xdsl.dialects import cf, func, gpu, memref, vector
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    UnitAttr,
    VectorType,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from tilewright.diagnostics import remark_at, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.mach import KERNEL
from tilewright.dialects.movement import numbered
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.frozen import record
from tilewright.passes.cleanup import eliminate_dead
from tilewright.passes.kernel import LEVEL, REMARKS, integer, subgroups_of
from tilewright.passes.own_memory import shared_bytes
from tilewright.targets.xe import barriers, matrices, scattered
from tilewright.targets.xe.assertions import DIVISION, Assertions
from tilewright.targets.xe.blocks import load_nd, prefetch_nd, store_nd
from tilewright.targets.xe.building import LANES_MOST, LaneBuilder, bits_of, count_of, element_of
from tilewright.targets.xe.context import Context
from tilewright.targets.xe.products import dpas
from tilewright.targets.xe.surfaces import BlockSurface, surface_of
from tilewright.uarch.xe import XeMachine

Remark = Callable[[Operation, str], None]


SMALLEST_READ = 16
"""Bytes of a lane's shortest read of private memory; shorter parts are taken out of a register."""


@record
class LoweredLane:
    """A module of the emitter, and what a launch must know of its kernel."""

    module: ModuleOp
    name: str
    lanes: int
    subgroups: int
    arguments: list[Attribute]
    """Of the kernel as it was written."""
    assertions: list[str]
    """Where there are some, the kernel has one more argument (`assertions`)."""
    slm_bytes: int
    named_barriers: int
    remarks: list[str] = field(default_factory=list[str])


def lower(kernel: gpu.FuncOp, machine: XeMachine) -> LoweredLane:
    """The kernel, which is consumed, as a module of the emitter."""
    level = kernel.attributes.get(LEVEL)
    if not isinstance(level, StringAttr) or level.data != "lane":
        raise unsupported(kernel, "the kernel is not at lane level")
    lanes = integer(kernel, LANES, machine.lanes)
    subgroups = subgroups_of(kernel)
    machine.require("the kernel", "subgroups", subgroups)
    body = kernel.body.blocks[0]
    # What the passes above left in the text, then what is said here.
    earlier = kernel.attributes.get(REMARKS)
    parts = earlier.data if isinstance(earlier, ArrayAttr) else ()
    remarks = [part.data for part in parts if isinstance(part, StringAttr)]
    seen: set[str] = set(remarks)

    def remark(op: Operation, text: str) -> None:
        full = remark_at(op, text)
        if full not in seen:
            seen.add(full)
            remarks.append(full)

    arguments: list[Attribute] = [a.type for a in body.args]
    lowering = _Lowering(LaneBuilder(body), machine, lanes, subgroups, remark)
    lowering.region(kernel)
    lowering.b.settle_reads()
    slm = lowering.slm
    if slm and (fault := machine.fault("the kernel", "slm", slm)) is not None:
        shared = [op for op in kernel.walk() if isinstance(op, memref.AllocOp)]
        hint = "smaller shared tiles, fewer slots of a multi-buffer, or maps with less to exchange"
        raise unsupported((shared or [kernel])[-1], fault, hint=hint)
    name = kernel.sym_name.data
    region = kernel.detach_region(kernel.body)
    function = func.FuncOp(name, ([a.type for a in body.args], []), region)
    function.attributes[KERNEL] = UnitAttr()
    function.attributes["spirv.intel_reqd_sub_group_size"] = IntegerAttr(lanes, i32)
    function.attributes["spirv.reqd_work_group_size"] = DenseArrayBase.from_list(
        i32, [subgroups * lanes, 1, 1]
    )
    function.location = kernel.location
    eliminate_dead(body)
    return LoweredLane(
        ModuleOp([function]),
        name,
        lanes,
        subgroups,
        arguments,
        list(lowering.assertions.words),
        slm,
        max((barriers.highest(n, kernel) for n in lowering.named.values()), default=0),
        remarks,
    )


class _Lowering:
    """Rewrites the ops of a kernel in program order."""

    def __init__(
        self, b: LaneBuilder, machine: XeMachine, lanes: int, subgroups: int, remark: Remark
    ):
        self.b = b
        self.assertions = Assertions(b, subgroups)
        self.surfaces: dict[SSAValue, BlockSurface] = {}
        self.matrices: dict[SSAValue, matrices.SharedMatrix] = {}
        self.named: dict[SSAValue, barriers.NamedBarrierValue] = {}
        self.slm = 0
        self.s = Context(b, machine, lanes, self.surface, remark)

    def surface(self, value: SSAValue) -> BlockSurface:
        found = self.surfaces.get(value)
        if found is None:
            raise self.b.refuse(
                "its tensor_desc is chosen by control flow",
                "make the descriptor outside and give the op its offsets",
            )
        return found

    def region(self, op: Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                self.block(block)

    def block(self, block: Block) -> None:
        for op in list(block.ops):
            self.b.op = op
            if op.regions:
                self.region(op)
                continue
            self.convert(op)

    def become(self, op: Operation, value: SSAValue) -> None:
        """The op's result is now `value`; it keeps its name."""
        if value.name_hint is None:
            value.name_hint = op.results[0].name_hint
        if (held := self.b.private.pop(value, None)) is not None:
            self.b.private[value] = held
        Rewriter.replace_op(op, [], [value])

    def convert(self, op: Operation) -> None:
        b, s = self.b, self.s
        match op:
            case xegpu.CreateNdDescOp():
                self.surfaces[op.result] = surface_of(b, op)
            case xegpu.LoadNdOp():
                self.become(op, load_nd(s, op))
            case xegpu.StoreNdOp():
                store_nd(s, op)
            case xegpu.PrefetchNdOp():
                prefetch_nd(s, op)
            case xegpu.DpasOp():
                self.become(op, dpas(s, op))
            case xegpu.LoadGatherOp():
                self.become(op, scattered.load(s, op))
            case xegpu.StoreScatterOp():
                scattered.store(s, op)
            case xegpu.PrefetchOp():
                scattered.prefetch(s, op)
            case xegpu.AtomicRMWOp():
                self.become(op, scattered.atomic_rmw(s, op))
            case xegpu.CreateMemDescOp():
                self.matrices[op.mem_desc] = matrices.create(b, op)
            case xegpu.LoadMatrixOp():
                self.become(op, matrices.load(b, op, self.matrices[op.mem_desc], self.s))
            case xegpu.StoreMatrixOp():
                matrices.store(b, op, self.matrices[op.mem_desc], self.s)
            case xegpu.InitNbarrierOp():
                self.named[op.result] = barriers.bind(s, op)
            case xegpu.NbarrierArriveOp():
                barriers.arrive(s, self.named[op.nbarrier])
            case xegpu.NbarrierWaitOp():
                barriers.wait(s, self.named[op.nbarrier])
            case xegpu.FenceOp():
                barriers.fence(s, op)
            case xegpu.AllocNbarrierOp() | xegpu.CompileHintOp():
                pass
            case xegpu.ConvertLayoutOp():
                self.become(op, op.source)
            case gpu.ReturnOp():
                b.insert(func.ReturnOp())
            case cf.AssertOp():
                self.assertions.lower(op)
            case memref.AllocOp() | memref.AllocaOp():
                self.allocate(op)
            case vector.BitcastOp() if self.crosses(op):
                self.become(
                    op, b.in_memory(op.source, bits_of(element_of(op.source.type)), op.result.type)
                )  # pyright: ignore
            case more.ExtractStridedSliceOp() | vector.ExtractOp() | more.ShapeCastOp():
                self.part(op)
            case _ if DIVISION in op.attributes:
                self.assertions.divide(op)
                return
            case _ if op.name.startswith("xegpu."):
                raise b.refuse("has no lane form for this target")
            case _:
                return
        if not op.results:
            Rewriter.erase_op(op)

    def crosses(self, op: vector.BitcastOp) -> bool:
        """Would words of one register be components of several?"""
        before, after = op.source.type, op.result.type
        return (
            isinstance(before, VectorType)
            and isinstance(after, VectorType)
            and count_of(before) <= LANES_MOST < count_of(after)
        )

    def allocate(self, op: Operation) -> None:
        """Shared memory is counted; the emitter makes it a variable of the workgroup."""
        self.slm += shared_bytes(op)

    def part(self, op: Operation) -> None:
        """A contiguous part of a fragment in private memory is read from there, by itself."""
        source, result = op.operands[0], op.results[0]
        held = self.b.private.get(source)
        if held is None or len(op.operands) != 1:
            return
        numbers = numbered(op)[0].reshape(-1)
        start = int(numbers[0])
        if not np.array_equal(numbers, np.arange(start, start + numbers.size)):
            return
        size = bits_of(element_of(source.type)) // 8
        if count_of(result.type) * size < SMALLEST_READ and count_of(result.type) < count_of(
            source.type
        ):
            return
        if start * size % (held.word // 8) or count_of(result.type) * size % (held.word // 8):
            return
        fragment = replace(held, offset=held.offset + start * size)
        value = self.b.read_private(fragment, result.type)
        value.name_hint = result.name_hint
        result.replace_all_uses_with(value)
        self.b.private[value] = fragment
        Rewriter.erase_op(op)
