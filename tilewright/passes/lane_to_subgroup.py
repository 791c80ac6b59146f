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

from math import gcd
from typing import Any

import numpy as np
from xdsl.dialects import arith, gpu, scf, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerAttr,
    StringAttr,
    VectorType,
    i1,
)
from xdsl.ir import Block, Operation, Region, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import constant
from tilewright.passes.kernel import LEVEL
from tilewright.passes.lane_blocks import Blocks, Lanes, Ramp, Uniform, Value

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

    def block(self, old: Block) -> None:
        for op in old.ops:
            self.op = op
            self.convert(op)

    # Building -------------------------------------------------------------------------------------------------

    def convert(self, op: Operation) -> None:
        match op:
            case gpu.ThreadIdOp():
                self.thread_id(op)
            case gpu.LaneIdOp():
                zero = self.add(arith.ConstantOp(IntegerAttr(0, index)))
                self.env[op.result] = Ramp(zero, 1 << 30, np.arange(self.lanes))
            case gpu.GlobalIdOp():
                raise self.refuse("counts threads over workgroups")
            case gpu.SubgroupSizeOp():
                value = self.add(arith.ConstantOp(IntegerAttr(self.lanes, index)))
                self.env[op.results[0]] = Uniform(value)
            case arith.ConstantOp() if isinstance(op.result.type, VectorType):
                self.constant(op)
            case xegpu.LoadNdOp():
                self.load_nd(op)
            case xegpu.StoreNdOp():
                self.store_nd(op)
            case xegpu.DpasOp():
                self.dpas(op)
            case scf.ForOp():
                self.loop(op)
            case scf.IfOp():
                self.branch(op)
            case scf.YieldOp():
                raise AssertionError("yields are built with their op")
            case _ if self.ramp(op):
                pass
            case _ if all(isinstance(self.env[v], Uniform) for v in op.operands) and not any(
                isinstance(v.type, VectorType) for v in (*op.operands, *op.results)
            ):
                self.keep(op)
            case _ if is_elementwise(op):
                self.elementwise(op)
            case _:
                self.rearrange(op)

    def keep(self, op: Operation) -> None:
        """An op that does the same for all lanes."""
        if op.regions or op.name in ("gpu.shuffle", "gpu.subgroup_reduce", "gpu.all_reduce"):
            raise self.refuse("at lane level has no form for the subgroup")
        if op.name in ("memref.store", "memref.atomic_rmw", "xegpu.atomic_rmw"):
            raise self.refuse("every lane would do it")
        new = op.clone({v: self.uniform(v) for v in op.operands})
        self.put(new)
        for before, after in zip(op.results, new.results, strict=True):
            after.name_hint = before.name_hint
            self.env[before] = Uniform(after)

    def thread_id(self, op: gpu.ThreadIdOp) -> None:
        base = self.add(op.clone())
        along = str(op.dimension.data) == "x"
        self.env[op.result] = (
            Ramp(base, self.lanes, np.arange(self.lanes)) if along else Uniform(base)
        )

    def constant(self, op: arith.ConstantOp) -> None:
        value, kind = op.value, op.result.type
        if isinstance(value, DenseIntOrFPElementsAttr) and value.is_splat():
            wide = self.widened(kind)
            data = DenseIntOrFPElementsAttr(wide, value.data)  # pyright: ignore[reportArgumentType]
            self.env[op.result] = Lanes(self.add(arith.ConstantOp(data)))
        else:
            self.env[op.result] = Uniform(self.add(op.clone()))

    def ramp(self, op: Operation) -> bool:
        """Index arithmetic on what grows with the lane; False where it is no ramp."""
        values = [self.env[v] for v in op.operands]
        if not any(isinstance(v, Ramp) for v in values) or len(op.results) != 1:
            return False
        name = op.name.partition(".")[2].removesuffix("i")
        if name in ("index_cast", "index_castu", "castu", "casts") and op.results[0].type == index:
            self.env[op.results[0]] = values[0]
            return True
        if len(values) != 2:
            return False
        x, y = values
        if name in ("add", "mul") and isinstance(y, Ramp):
            x, y = y, x
        if not isinstance(x, Ramp) or not isinstance(y, Uniform):
            return False
        number = constant(y.value)
        if name in ("add", "sub"):
            unit = gcd(x.unit, number) if number is not None else 1
            kind = arith.AddiOp if name == "add" else arith.SubiOp
            made = Ramp(self.add(kind(x.base, y.value)), unit, x.steps)
        elif number is None or number <= 0:
            return False
        elif name == "mul" or name == "shl":
            factor = number if name == "mul" else 1 << number
            value = self.add(arith.ConstantOp(IntegerAttr(factor, index)))
            made = Ramp(self.add(arith.MuliOp(x.base, value)), x.unit * factor, x.steps * factor)
        else:
            found = self.divide(x, name, number)
            if found is None:
                return False
            made = found
        self.env[op.results[0]] = made
        return True

    def divide(self, x: Ramp, name: str, number: int) -> Value | None:
        """Quotient or remainder, where all steps stay within one multiple of the divisor's factor of the base."""
        if name in ("shru", "shrs"):
            name, number = "divu", 1 << number
        if name == "and" and (number & (number + 1)) == 0:
            name, number = "remu", number + 1
        quotient = name in ("divu", "divs", "floordivs")
        if not quotient and name not in ("remu", "rems"):
            return None
        common = gcd(x.unit, number)
        if (x.steps < 0).any() or (x.steps >= common).any():
            return None
        value = self.add(arith.ConstantOp(IntegerAttr(number, index)))
        if quotient:
            return Uniform(self.add(arith.DivUIOp(x.base, value)))
        return Ramp(self.add(arith.RemUIOp(x.base, value)), common, x.steps)

    def elementwise(self, op: Operation) -> None:
        if not op.operands:
            self.keep(op)
            return
        select = isinstance(op, arith.SelectOp) and not isinstance(op.cond.type, VectorType)
        operands: list[SSAValue] = []
        for i, v in enumerate(op.operands):
            if select and i == 0 and isinstance(self.env[v], Uniform):
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
            self.env[before] = Lanes(after)

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
        self.env[op.results[0]] = Lanes(made)

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

    def loop(self, op: scf.ForOp) -> None:
        bounds = [self.uniform(v, "a bound") for v in (op.lb, op.ub, op.step)]
        varies = self.carried(op)
        inits = [
            self.wide(v) if wide else self.uniform(v)
            for v, wide in zip(op.iter_args, varies, strict=True)
        ]
        outer, body = (
            self.out,
            Block(arg_types=[op.body.block.args[0].type, *(v.type for v in inits)]),
        )
        old = op.body.block
        self.env[old.args[0]] = Uniform(body.args[0])
        for before, after, wide in zip(old.args[1:], body.args[1:], varies, strict=True):
            self.env[before] = Lanes(after) if wide else Uniform(after)
        self.out = body
        self.region(old, varies)
        self.out, self.op = outer, op
        low, high, step = bounds
        new = scf.ForOp(low, high, step, inits, body)
        new.attributes.update(op.attributes)
        self.put(new)
        for before, after, wide in zip(op.results, new.results, varies, strict=True):
            self.env[before] = Lanes(after) if wide else Uniform(after)

    def carried(self, op: scf.ForOp) -> list[bool]:
        """Which carried values differ between lanes: vectors, and scalars that start so."""
        return [
            isinstance(v.type, VectorType) or not isinstance(self.env[v], Uniform)
            for v in op.iter_args
        ]

    def region(self, old: Block, varies: list[bool]) -> None:
        """The ops of a region, and its yield."""
        for inner in old.ops:
            self.op = inner
            if isinstance(inner, scf.YieldOp):
                values = [
                    self.wide(v) if wide else self.uniform(v, "a carried value")
                    for v, wide in zip(inner.operands, varies, strict=True)
                ]
                self.put(scf.YieldOp(*values))
            else:
                self.convert(inner)

    def branch(self, op: scf.IfOp) -> None:
        condition = self.uniform(op.cond, "the condition")
        varies = [isinstance(r.type, VectorType) for r in op.results]
        types = [
            self.widened(r.type) if wide else r.type
            for r, wide in zip(op.results, varies, strict=True)
        ]
        outer, regions = self.out, []
        for region in (op.true_region, op.false_region):
            if not region.blocks:
                regions.append(Region())
                continue
            self.out = Block()
            self.region(region.block, varies)
            regions.append(Region(self.out))
        self.out, self.op = outer, op
        new = scf.IfOp(condition, types, regions[0], regions[1])
        self.put(new)
        for before, after, wide in zip(op.results, new.results, varies, strict=True):
            self.env[before] = Lanes(after) if wide else Uniform(after)
