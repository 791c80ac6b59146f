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

from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, gpu, scf, vector
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerAttr,
    StringAttr,
    VectorType,
    i1,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.xegpu.compute import packing_factor
from tilewright.dialects.xegpu.types import element_bits
from tilewright.layout.blocks import lane_map
from tilewright.layout.digits import LayoutError
from tilewright.passes.level import LEVEL

index = IndexType()


@dataclass(frozen=True)
class Uniform:
    """A value that all lanes agree on."""

    value: SSAValue


@dataclass(frozen=True)
class Lanes:
    """A vector with the lanes as its last dimension."""

    value: SSAValue


@dataclass(frozen=True)
class Ramp:
    """Lane i has `base + steps[i]`; `base` is a multiple of `unit`."""

    base: SSAValue
    unit: int
    steps: NDArray[np.int64]


Value = Uniform | Lanes | Ramp


def lane_to_subgroup(kernel: gpu.FuncOp, lanes: int, block: tuple[int, int, int]) -> None:
    """Rewrite `kernel` in place, a launch of `block` threads, `lanes` of them a subgroup."""
    if block[0] % lanes:
        raise error_at(
            kernel,
            f"{block[0]} threads along x are not whole subgroups of {lanes} lanes",
            kind=UnsupportedError,
        )
    if len(kernel.body.blocks) != 1:
        raise error_at(kernel, "branches between blocks at lane level", kind=UnsupportedError)
    _Vectorise(lanes).kernel(kernel)
    kernel.attributes[LEVEL] = StringAttr("subgroup")


class _Vectorise:
    """Builds the subgroup's program, op by op in order."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.env: dict[SSAValue, Value] = {}
        self.out: Block = Block()
        self.op: Operation | None = None

    def kernel(self, kernel: gpu.FuncOp) -> None:
        old = kernel.body.block
        new = Block(arg_types=[a.type for a in old.args])
        for before, after in zip(old.args, new.args, strict=True):
            after.name_hint = before.name_hint
            self.env[before] = Uniform(after)
        self.out = new
        self.block(old)
        kernel.body.detach_block(old)
        kernel.body.add_block(new)
        old.drop_all_references()

    def block(self, old: Block) -> None:
        for op in old.ops:
            self.op = op
            self.convert(op)

    # Building -------------------------------------------------------------------------------------------------

    def add(self, op: Operation) -> SSAValue:
        self.put(op)
        return op.results[0]

    def put(self, op: Operation) -> None:
        assert self.op is not None
        op.location = self.op.location
        self.out.add_op(op)

    def refuse(self, why: str) -> Exception:
        assert self.op is not None
        return error_at(self.op, f"{self.op.name}: {why}", kind=UnsupportedError)

    def widened(self, type: Attribute) -> VectorType:
        if isinstance(type, VectorType):
            return VectorType(type.element_type, [*type.get_shape(), self.lanes])
        return VectorType(type, [self.lanes])  # pyright: ignore

    def uniform(self, value: SSAValue, what: str = "an operand") -> SSAValue:
        found = self.env[value]
        if isinstance(found, Uniform):
            return found.value
        raise self.refuse(f"{what} differs between lanes")

    def wide(self, value: SSAValue) -> SSAValue:
        """The value of all lanes, with the lanes last."""
        found = self.env[value]
        match found:
            case Lanes():
                return found.value
            case Ramp():
                kind = VectorType(index, [self.lanes])
                steps = DenseIntOrFPElementsAttr.from_list(kind, [int(s) for s in found.steps])
                base = self.add(vector.BroadcastOp(found.base, kind))
                return self.add(arith.AddiOp(base, self.add(arith.ConstantOp(steps))))
            case Uniform():
                kind = self.widened(value.type)
                plain = found.value
                if isinstance(plain.type, VectorType):
                    column = VectorType(kind.element_type, [*plain.type.get_shape(), 1])
                    plain = self.add(more.ShapeCastOp(plain, column))
                made = self.add(vector.BroadcastOp(plain, kind))
                return made

    # Ops ------------------------------------------------------------------------------------------------------

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
            case _ if _is_elementwise(op):
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
        number = _constant(y.value)
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

    # Blocks ---------------------------------------------------------------------------------------------------

    def fragment(
        self, value: SSAValue, shape: tuple[int, ...], dealt: tuple[list[int], list[int]]
    ) -> SSAValue:
        """[registers, lanes] of a block."""
        split, order, _ = _deal(shape, *dealt)
        element = value.type.element_type  # pyright: ignore
        value = self.reorder(value, split, order)
        return self.cast(value, [prod(shape) // self.lanes, self.lanes], element)

    def whole(
        self, value: SSAValue, shape: tuple[int, ...], dealt: tuple[list[int], list[int]]
    ) -> SSAValue:
        """The block of [.., lanes] fragments."""
        _, order, parts = _deal(shape, *dealt)
        value = self.reorder(value, parts, [order.index(i) for i in range(len(order))])
        return self.cast(value, list(shape))

    def cast(self, value: SSAValue, shape: list[int], element: Attribute | None = None) -> SSAValue:
        kind = value.type
        assert isinstance(kind, VectorType)
        if list(kind.get_shape()) == list(shape):
            return value
        return self.add(more.ShapeCastOp(value, VectorType(kind.element_type, shape)))

    def reorder(self, value: SSAValue, shape: list[int], order: list[int]) -> SSAValue:
        """The value in a shape, its dimensions reordered; itself where only dimensions of one element move."""
        moved = [d for d in order if shape[d] != 1]
        if moved == sorted(moved):
            return value
        return self.add(more.TransposeOp(self.cast(value, shape), order))

    def dealt(
        self, shape: tuple[int, ...], bits: int, unit: int = 0, packed: int = 1
    ) -> tuple[list[int], list[int]]:
        try:
            return lane_map(shape, bits, self.lanes, unit, packed)
        except LayoutError as error:
            raise self.refuse(str(error)) from None

    def block_operands(self, op: Any) -> dict[SSAValue, SSAValue]:
        """A block access has one place for the subgroup."""
        skip = op.value if isinstance(op, xegpu.StoreNdOp) else None
        return {v: self.uniform(v, "its place") for v in op.operands if v is not skip}

    def load_nd(self, op: xegpu.LoadNdOp) -> None:
        if op.ownership is not None:
            raise self.refuse("fragments by sg_map at lane level")
        tdesc = op.tdesc
        bits = element_bits(tdesc.element_type)
        shape, count = tdesc.get_shape(), tdesc.array_length
        given = op.value.type.get_shape()  # pyright: ignore
        if prod(shape) * count != prod(given) * self.lanes:
            raise self.refuse("its value is no fragment of its block")
        # Plain: the whole block as it lies in memory, array_length blocks one after the other.
        lead = (count,) if count > 1 else ()
        plain = VectorType(tdesc.element_type, [*lead, *shape])
        new = op.clone(self.block_operands(op))
        for name in ("packed", "transpose", "transpose_bit_width"):
            new.properties.pop(name, None)
        load = type(op).create(
            operands=new.operands,
            result_types=[plain],
            properties=new.properties,
            attributes=new.attributes,
        )
        new.erase()
        block = self.add(load)
        blocks = (*lead, *shape)
        unit, packed = 0, 1
        if op.packed is not None:
            packed = packing_factor(tdesc.element_type)
        elif op.transposes and op.permutation is not None:
            width = op.transpose_bit_width
            unit = 1 if width is None else width.value.data // bits
            base = len(lead)
            outer = list(range(base))
            if unit == 1:
                block = self.add(
                    more.TransposeOp(block, [*outer, *(base + d for d in op.permutation)])
                )
                blocks = (*lead, *(shape[d] for d in op.permutation))
            else:
                block = self.cast(block, [*lead, shape[0], shape[1] // unit, unit])
                block = self.add(more.TransposeOp(block, [*outer, base + 1, base, base + 2]))
                blocks = (*lead, shape[1] // unit, shape[0] * unit)
                block = self.cast(block, list(blocks))
        value = self.fragment(block, blocks, self.dealt(blocks, bits, unit, packed))
        self.env[op.value] = Lanes(self.cast(value, [*given, self.lanes]))

    def store_nd(self, op: xegpu.StoreNdOp) -> None:
        if op.ownership is not None:
            raise self.refuse("fragments by sg_map at lane level")
        tdesc = op.tdesc
        shape = tdesc.get_shape()
        value = self.wide(op.value)
        if prod(shape) != prod(value.type.get_shape()):  # pyright: ignore
            raise self.refuse("its value is no fragment of its block")
        bits = element_bits(tdesc.element_type)
        block = self.whole(value, shape, self.dealt(shape, bits))
        self.put(op.clone({**self.block_operands(op), op.value: block}))

    def dpas(self, op: xegpu.DpasOp) -> None:
        if any(layout is not None for layout in op.layouts):
            raise self.refuse("fragments by sg_map at lane level")
        a, b = self.wide(op.lhs), self.wide(op.rhs)
        count = [prod(v.type.get_shape()) for v in (a, b)]  # pyright: ignore
        n, k, m = self.lanes, count[1] // self.lanes, prod(op.result.type.get_shape())  # pyright: ignore
        if m * k != count[0]:
            raise self.refuse("its fragments fit no product of a subgroup")
        bits = element_bits(op.lhs.type.element_type)  # pyright: ignore
        c_map = self.dealt((m, n), 32)
        a = self.whole(a, (m, k), self.dealt((m, k), bits))
        b = self.whole(b, (k, n), self.dealt((k, n), bits, packed=max(1, 32 // bits)))
        c = None if op.acc is None else self.whole(self.wide(op.acc), (m, n), c_map)
        result = op.result.type
        assert isinstance(result, VectorType)
        product = self.add(xegpu.DpasOp(a, b, c, VectorType(result.element_type, [m, n])))
        value = self.fragment(product, (m, n), c_map)
        self.env[op.result] = Lanes(self.cast(value, [*result.get_shape(), n]))

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


def _deal(
    shape: tuple[int, ...], lane_layout: list[int], lane_data: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """(the block split into units, lanes and data per dimension; the order units, data, lanes; the shape then)."""
    split: list[int] = []
    for extent, lanes, data in zip(shape, lane_layout, lane_data, strict=True):
        split += [extent // (lanes * data), lanes, data]
    rank = len(shape)
    order = [*(3 * d for d in range(rank)), *(3 * d + 2 for d in range(rank))]
    order += [3 * d + 1 for d in range(rank)]
    return split, order, [split[i] for i in order]


def _constant(value: SSAValue) -> int | None:
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data
    return None


def _is_elementwise(op: Operation) -> bool:
    return (
        type(op).__module__.startswith(("xdsl.dialects.arith", "xdsl.dialects.math"))
        or isinstance(op, vector.FMAOp)
    ) and not op.regions
