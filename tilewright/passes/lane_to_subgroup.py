"""lane-to-subgroup: the program of one lane becomes that of its subgroup, lanes as a last dimension of every vector.

    // one of 16 lanes                                       // the subgroup
    %a = xegpu.load_nd %t[%m, %k]                            %x = xegpu.load_nd %t[%m, %k]
       : tensor_desc<8x16xf16> -> vector<8xf16>        ->       : tensor_desc<8x16xf16> -> vector<8x16xf16>
    %b = arith.addf %a, %a : vector<8xf16>                   %b = arith.addf %x, %x : vector<8x16xf16>

| a lane's value | becomes |
|---|---|
| a scalar that all lanes agree on | itself |
| thread id or lane id, plus and times constants | the first lane's, and what each lane adds to it |
| any other scalar; vector<SxT> | vector<16xT>; vector<Sx16xT> |
| fragment of a block (load, store, dpas) | the block, dealt out by casts of shape and transposes (`layout.blocks`) |

Requires: a kernel at lane level, verified; x threads of a workgroup a multiple of the lanes. Guarantees: the kernel
is at subgroup level and computes the same. Raises UnsupportedError, with nothing changed, for control flow and
addresses that differ between lanes, and for ops that move data between lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerAttr,
    StringAttr,
    VectorType,
    i1,
)
from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import constant
from tilewright.passes.kernel import LEVEL
from tilewright.passes.lane_blocks import Blocks, Ramp

index = IndexType()


def lane_to_subgroup(kernel: gpu.FuncOp, lanes: int, block: tuple[int, int, int]) -> None:
    """Rewrite `kernel` in place, a launch of `block` threads, `lanes` of them a subgroup."""
    if block[0] % lanes:
        raise error_at(
            kernel,
            f"{block[0]} threads along x are not whole subgroups of {lanes} lanes",
            kind=UnsupportedError,
        )
    _Vectorise(lanes).kernel(kernel)
    kernel.attributes[LEVEL] = StringAttr("subgroup")


class _Vectorise(Blocks):
    """Builds the subgroup's program, op by op in order."""

    # Building -------------------------------------------------------------------------------------------------

    def convert(self, op: Operation) -> None:
        match op:
            case gpu.ThreadIdOp():
                self.thread_id(op)
            case gpu.LaneIdOp():
                zero = self.add(arith.ConstantOp(IntegerAttr(0, index)))
                self.held[op.result] = Ramp(zero, 1 << 30, np.arange(self.lanes))
            case gpu.GlobalIdOp():
                raise self.refuse("counts threads over workgroups")
            case gpu.SubgroupSizeOp():
                number = arith.ConstantOp(IntegerAttr(self.lanes, index))
                self.env[op.results[0]] = self.add(number)
            case arith.ConstantOp() if isinstance(op.result.type, VectorType):
                self.constant_op(op)
            case xegpu.LoadNdOp():
                self.load_nd(op)
            case xegpu.StoreNdOp():
                self.store_nd(op)
            case xegpu.DpasOp():
                self.dpas(op)
            case _ if self.ramp(op):
                pass
            case _ if all(v in self.env for v in op.operands) and not any(
                isinstance(v.type, VectorType) for v in (*op.operands, *op.results)
            ):
                self.keep(op)
            case _ if is_elementwise(op):
                self.elementwise(op)
            case _:
                self.rearrange(op)

    def keep(self, op: Operation) -> Operation:
        """An op that does the same for all lanes."""
        if op.name in ("gpu.shuffle", "gpu.subgroup_reduce", "gpu.all_reduce"):
            raise self.refuse("at lane level has no form for the subgroup")
        if op.name in ("memref.store", "memref.atomic_rmw", "xegpu.atomic_rmw"):
            raise self.refuse("every lane would do it")
        return super().keep(op)

    def thread_id(self, op: gpu.ThreadIdOp) -> None:
        base = self.add(op.clone())
        along = str(op.dimension.data) == "x"
        if along:
            self.held[op.result] = Ramp(base, self.lanes, np.arange(self.lanes))
        else:
            self.env[op.result] = base

    def constant_op(self, op: arith.ConstantOp) -> None:
        value, kind = op.value, op.result.type
        if isinstance(value, DenseIntOrFPElementsAttr) and value.is_splat():
            wide = self.widened(kind)
            data = DenseIntOrFPElementsAttr(wide, value.data)  # pyright: ignore[reportArgumentType]
            self.held[op.result] = self.add(arith.ConstantOp(data))
        else:
            self.env[op.result] = self.add(op.clone())

    def ramp(self, op: Operation) -> bool:
        """Index arithmetic on what grows with the lane; False where it is no ramp."""
        values = [self.held.get(v) for v in op.operands]
        if not any(isinstance(v, Ramp) for v in values) or len(op.results) != 1:
            return False
        name = op.name.partition(".")[2].removesuffix("i")
        ramp = values[0]
        casts = ("index_cast", "index_castu", "castu", "casts")
        if name in casts and isinstance(ramp, Ramp) and op.results[0].type == index:
            self.held[op.results[0]] = ramp
            return True
        if len(values) != 2:
            return False
        first, second = op.operands
        if name in ("add", "mul") and isinstance(values[1], Ramp):
            first, second = second, first
        x, y = self.held.get(first), self.env.get(second)
        if not isinstance(x, Ramp) or y is None:
            return False
        number = constant(y)
        if name in ("add", "sub"):
            unit = gcd(x.unit, number) if number is not None else 1
            kind = arith.AddiOp if name == "add" else arith.SubiOp
            made = Ramp(self.add(kind(x.base, y)), unit, x.steps)
        elif number is None or number <= 0:
            return False
        elif name == "mul" or name == "shl":
            factor = number if name == "mul" else 1 << number
            value = self.add(arith.ConstantOp(IntegerAttr(factor, index)))
            made = Ramp(self.add(arith.MuliOp(x.base, value)), x.unit * factor, x.steps * factor)
        else:
            return self.divide(op.results[0], x, name, number)
        self.held[op.results[0]] = made
        return True

    def divide(self, result: SSAValue, x: Ramp, name: str, number: int) -> bool:
        """Quotient or remainder, where all steps stay within one multiple of the divisor's factor of the base."""
        if name in ("shru", "shrs"):
            name, number = "divu", 1 << number
        if name == "and" and (number & (number + 1)) == 0:
            name, number = "remu", number + 1
        quotient = name in ("divu", "divs", "floordivs")
        if not quotient and name not in ("remu", "rems"):
            return False
        common = gcd(x.unit, number)
        if (x.steps < 0).any() or (x.steps >= common).any():
            return False
        value = self.add(arith.ConstantOp(IntegerAttr(number, index)))
        if quotient:
            self.env[result] = self.add(arith.DivUIOp(x.base, value))
        else:
            self.held[result] = Ramp(self.add(arith.RemUIOp(x.base, value)), common, x.steps)
        return True

    def elementwise(self, op: Operation) -> None:
        if not op.operands:
            self.keep(op)
            return
        select = isinstance(op, arith.SelectOp) and not isinstance(op.cond.type, VectorType)
        operands: list[SSAValue] = []
        for i, v in enumerate(op.operands):
            if select and i == 0 and v in self.env:
                operands.append(self.uniform(v))
                continue
            wide = self.wide(v)
            if select and i == 0:
                shape = self.widened(op.results[0].type).get_shape()
                wide = self.add(vector.BroadcastOp(wide, VectorType(i1, shape)))
            operands.append(wide)
        new = type(op).create(
            operands=operands,
            result_types=[self.widened(r.type) for r in op.results],
            properties=dict(op.properties),
            attributes=dict(op.attributes),
        )
        self.put(new)
        for before, after in zip(op.results, new.results, strict=True):
            self.held[before] = after

    def rearrange(self, op: Operation) -> None:
        """Vector ops: what they do, with one more dimension at the end."""
        made: SSAValue
        match op:
            case more.ShapeCastOp():
                kind = self.widened(op.results[0].type)
                made = self.add(more.ShapeCastOp(self.wide(op.operands[0]), kind))
            case more.TransposeOp():
                order = [*op.permutation, len(list(op.permutation))]
                made = self.add(more.TransposeOp(self.wide(op.vector), order))
            case vector.ExtractOp() if not op.dynamic_position:
                at = list(op.static_position.get_values())
                made = self.add(
                    vector.ExtractOp(self.wide(op.vector), at, self.widened(op.result.type))
                )
            case vector.InsertOp() if not op.dynamic_position:
                at = list(op.static_position.get_values())
                source, dest = self.wide(op.source), self.wide(op.dest)
                made = self.add(vector.InsertOp(source, dest, at))
            case more.ExtractStridedSliceOp():
                source = self.wide(op.source)
                rank = len(source.type.get_shape()) - len(op.offsets)  # pyright: ignore
                tail = list(source.type.get_shape()[-rank:])  # pyright: ignore
                made = self.add(
                    more.ExtractStridedSliceOp(
                        source,
                        [*op.offsets, *[0] * rank],
                        [*op.sizes, *tail],
                        [*op.strides, *[1] * rank],
                    )
                )
            case more.InsertStridedSliceOp():
                made = self.add(
                    more.InsertStridedSliceOp(
                        self.wide(op.source),
                        self.wide(op.dest),
                        [*op.offsets, 0],
                        [*op.strides, 1],
                    )
                )
            case vector.BroadcastOp():
                made = self.add(
                    vector.BroadcastOp(self.wide(op.operands[0]), self.widened(op.results[0].type))
                )
            case vector.BitcastOp():
                made = self.bitcast(op)
            case vector.ReductionOp() | more.MultiReductionOp():
                made = self.reduction(op)
            case _:
                raise self.refuse("at lane level has no form for the subgroup")
        self.held[op.results[0]] = made

    def bitcast(self, op: vector.BitcastOp) -> SSAValue:
        """Within a lane: the lanes step aside."""
        value = self.wide(op.operands[0])
        rank = len(value.type.get_shape())  # pyright: ignore
        lead = list(range(rank - 2))
        value = self.add(more.TransposeOp(value, [*lead, rank - 1, rank - 2]))
        result = op.results[0].type
        assert isinstance(result, VectorType)
        shape = result.get_shape()
        kind = VectorType(result.element_type, [*shape[:-1], self.lanes, shape[-1]])
        value = self.add(vector.BitcastOp(value, kind))
        return self.add(more.TransposeOp(value, [*lead, rank - 1, rank - 2]))

    def reduction(self, op: Any) -> SSAValue:
        if isinstance(op, more.MultiReductionOp):
            source, acc, dims, kind = op.source, op.acc, list(op.dims), op.kind
            start = self.wide(acc)
        else:
            source, dims = op.operands[0], [0]
            kind = op.properties["kind"].data
            if len(op.operands) < 2:
                raise self.refuse("without a start value at lane level")
            start = self.wide(op.operands[1])
        return self.add(more.MultiReductionOp(str(kind), self.wide(source), start, dims))

    # Control flow ---------------------------------------------------------------------------------------------

    def scalar(self, value: SSAValue) -> SSAValue:
        return self.uniform(value, "a bound or condition")

    def parts(self, value: SSAValue, place: SSAValue) -> list[SSAValue]:
        """Vectors differ between lanes, and scalars that a loop begins with so."""
        starts = isinstance(place, BlockArgument) and place not in self.env
        if isinstance(place.type, VectorType) or place in self.held:
            return [self.wide(value)]
        if starts and value not in self.env:
            return [self.wide(value)]
        return [self.uniform(value, "a carried value")]

    def hold(self, place: SSAValue, parts: Sequence[SSAValue]) -> None:
        if parts[0].type == place.type:
            self.env[place] = parts[0]
        else:
            self.held[place] = parts[0]
