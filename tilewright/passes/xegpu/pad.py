"""xegpu-pad: extents that lanes or instruction blocks do not divide are padded to extents that they do.

    %t = create_nd_tdesc %a : memref<1000x1000xf32>       %h = min(1000, %m + 13)   %w = min(1000, %n + 37)
           -> tensor_desc<13x37xf32>                      %t = create_nd_tdesc %a, shape : [%h, %w], ..
    %v = load_nd %t[%m, %n] : vector<13x37xf32>      ->          -> tensor_desc<16x48xf32>
    %s = multi_reduction <add>, exp(%v), %z [1]           %v = load_nd %t[%m, %n] : vector<16x48xf32>
                                                          %k = select (column < 37), exp(%v), 0
                                                          %s = multi_reduction <add>, %k, %z [1]

Requires: today's XeGPU at workgroup or subgroup level. Guarantees: the same results. What lies in the padding matters
to nobody: memory ends where the tile did (a block's base matrix is cut to it, scattered elements there are masked
off), and before elements are combined along a padded axis those of the padding become the neutral element. Axes along
which an op moves elements, or whose owners the text states, stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from xdsl.dialects import gpu
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation, OpResult, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.movement import vector_type
from tilewright.dialects.upstream.combining import neutral
from tilewright.dialects.upstream.vector import MultiReductionOp
from tilewright.dialects.xegpu import BlockTensorDescAttr, TensorDescType
from tilewright.dialects.xegpu.layouts import is_ownership
from tilewright.passes.axes import Axes, Axis, extents_of, shape_of
from tilewright.passes.emit import Before, element_of
from tilewright.passes.kernel import SUBGROUPS, integer, level_of
from tilewright.passes.padding import ended, kept, longer, mask_operand
from tilewright.passes.xegpu.block_messages import base_matrix, created
from tilewright.passes.xegpu.layout_defaults import LARGE_GRF_SUBGROUPS, VALUE, bytes_of
from tilewright.passes.xegpu.propagate_subgroup import instruction_of
from tilewright.uarch.xe import XeMachine

ROWS = 8
"""Rows of the tallest instruction, and of the blocks that messages move at once."""
KEEP_ZERO = (
    "arith.extf",
    "arith.truncf",
    "arith.extsi",
    "arith.extui",
    "arith.trunci",
    "vector.transpose",
    "vector.shape_cast",
)
"""Ops that give 0 for 0."""
WASTE = 4 / 3
"""An extent grows at most so many times for subgroups to share it evenly."""


def pad(kernel: gpu.FuncOp, machine: XeMachine, remarks: list[str]) -> None:
    """Pads extents that lanes or instruction blocks do not divide. Says which, in `remarks`."""
    axes = Axes(kernel)
    wanted = dict(_wanted(kernel, axes, machine))
    if not wanted:
        return
    for op in kernel.walk():
        if _says_who_owns(op) or _has_unknown_descriptor(op):
            axes.fix_all((*op.operands, *op.results))
    fixed = axes.roots(axes.fixed)
    cut: dict[SSAValue, dict[int, int]] = {}
    grown: list[str] = []
    for root, members in axes.members().items():
        unit = wanted.get(root, 1)
        extents = extents_of(members)
        extent = max(extents)
        if root in fixed or extent % unit == 0 or len(extents) > 1:
            continue
        grown.append(f"{extent} to {_up(extent, unit)}")
        for value, dim in members:
            cut.setdefault(value, {})[dim] = _up(extent, unit)
    if cut:
        _Padding(kernel, cut)
        remarks.append(f"extents are padded for lanes and instructions: {', '.join(grown)}")


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


# --- What is wanted --------------------------------------------------------------------------------------


def _wanted(kernel: gpu.FuncOp, axes: Axes, machine: XeMachine) -> Iterator[tuple[Axis, int]]:
    """For the axes of values that would not be distributed evenly: a number that should divide their extents."""
    lanes = machine.subgroup_sizes[0]
    units: dict[Axis, int] = {}

    def want(value: SSAValue, dim: int, unit: int) -> None:
        root = axes.tied.find((value, dim))
        units[root] = max(units.get(root, 1), unit)

    at_workgroup = level_of(kernel) == "workgroup"
    for value in axes.values:
        if not isinstance(value.type, VectorType):
            continue
        shape = value.type.get_shape()
        groups = _subgroups(kernel, value.type, machine) if at_workgroup else 1
        if prod(shape) <= lanes or prod(n & -n for n in shape) >= lanes * groups:
            continue
        for dim, n in enumerate(shape):
            if dim == len(shape) - 1:
                want(value, dim, _unit(n, lanes, 1))
            elif dim == len(shape) - 2:
                want(value, dim, _unit(n, ROWS, groups))
    for op in kernel.walk():
        if not isinstance(op, xegpu.DpasOp) or op.dims() is None or len(shape_of(op.rhs) or ()) > 2:
            continue
        m, n, k = shape_of(op.lhs)[0], shape_of(op.rhs)[1], shape_of(op.lhs)[1]  # pyright: ignore
        found = instruction_of(op, machine)
        depth = 1 if found is None else found.k
        if n % lanes or k % depth:
            groups = _subgroups(kernel, op.result.type, machine) if at_workgroup else 1  # pyright: ignore
            want(op.result, 0, _unit(m, ROWS, groups))
            want(op.result, 1, lanes)
            want(op.lhs, 1, depth)
    yield from units.items()


def _subgroups(kernel: gpu.FuncOp, kind: VectorType, machine: XeMachine) -> int:
    """As many subgroups as a value would have, a power of two."""
    stated = integer(kernel, SUBGROUPS, 0)
    parts = stated or -(-bytes_of(kind.get_shape(), kind) // (VALUE * machine.grf_bytes))
    return min(1 << (parts - 1).bit_length(), LARGE_GRF_SUBGROUPS)


def _unit(extent: int, least: int, groups: int) -> int:
    """What should divide an extent: `least`, for short ones the power of two that holds it, for long ones so much more
    that each of several subgroups has as many."""
    if extent <= least:
        return 1 << (extent - 1).bit_length()
    unit = least
    while unit < least * groups and _up(extent, 2 * unit) <= WASTE * extent:
        unit *= 2
    return unit


def _says_who_owns(op: Operation) -> bool:
    stated = [*op.attributes.values(), *op.properties.values()]
    types = [v.type for v in op.operands if isinstance(v.type, TensorDescType)]
    return any(map(is_ownership, stated)) or any(t.ownership is not None for t in types)


def _has_unknown_descriptor(op: Operation) -> bool:
    """Is it an access through a descriptor that is made elsewhere?"""
    if isinstance(op, (xegpu.LoadNdOp, xegpu.StoreNdOp)):
        return created(op) is None or op.mixed_offsets is None
    return False


# --- Rewriting -------------------------------------------------------------------------------------------


class _Padding:
    """Gives values their padded types, `cut` their extents by dimension, and mends the ops to which padding matters."""

    def __init__(self, kernel: gpu.FuncOp, cut: dict[SSAValue, dict[int, int]]):
        self.held: dict[SSAValue, dict[int, int]] = {}
        """Of padded values: the extents before."""
        for value, dims in cut.items():
            self.retype(value, dims)
        for op in list(kernel.walk()):
            match op:
                case xegpu.LoadNdOp() | xegpu.StoreNdOp():
                    self.block(op)
                case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
                    self.scattered(op)
                case MultiReductionOp():
                    number = neutral(op.kind, element_of(op.source.type))
                    self.mask_operand(op, 0, op.dims, number)
                case xegpu.DpasOp():
                    self.mask_operand(op, 0, (1,), 0)
                    self.mask_operand(op, 1, (0,), 0)
                case _:
                    pass

    def retype(self, value: SSAValue, dims: dict[int, int]) -> None:
        before = {dim: vector_type(value).get_shape()[dim] for dim in dims}
        self.held[longer(value, dims)] = before

    def mask_operand(self, op: Operation, number: int, dims: tuple[int, ...], by: float) -> None:
        """The padding of an operand along some dimensions is made a number."""
        value = op.operands[number]
        held = {d: n for d, n in self.held.get(value, {}).items() if d in dims}
        if not held:
            return
        if by or not self.is_zero_outside(value):
            mask_operand(op, number, held, by)

    def is_zero_outside(self, value: SSAValue) -> bool:
        """Does a padded value have zeros in its padding, because a load left them there?"""
        if not isinstance(value, OpResult):
            return False
        op = value.op
        if isinstance(op, xegpu.LoadNdOp):
            return True
        return op.name in KEEP_ZERO and self.is_zero_outside(op.operands[0])

    def block(self, op: xegpu.LoadNdOp | xegpu.StoreNdOp) -> None:
        """The base matrix ends where the tile did."""
        held = self.held.get(op.value)
        made = created(op)
        if held is None or made is None:
            return
        at, offsets = Before(op), op.mixed_offsets or []
        sizes, strides = base_matrix(at, made)
        lead = len(sizes) - len(shape_of(op.value) or ())
        offsets = [0] * (len(sizes) - len(offsets)) + offsets
        for dim, n in held.items():
            sizes[lead + dim] = ended(at, sizes[lead + dim], at.plus(offsets[lead + dim], n))
        old = op.tdesc
        encoding = BlockTensorDescAttr() if old.space is xegpu.MemorySpace.GLOBAL else old.encoding
        type = TensorDescType(shape_of(op.value) or (), old.element_type, encoding)  # pyright: ignore
        new = xegpu.CreateNdDescOp(made.source, type, shape=sizes, strides=strides)
        op.operands[op.tdesc_operand] = at.add(new)

    def scattered(self, op: xegpu.LoadGatherOp | xegpu.StoreScatterOp | xegpu.AtomicRMWOp) -> None:
        held = self.held.get(op.mask)
        if held is not None:
            at = Before(op)
            number = next(n for n, v in enumerate(op.operands) if v is op.mask)
            op.operands[number] = at.also(op.mask, kept(at, shape_of(op.mask) or (), held))
