"""Who owns the elements of every vector below workgroup level: fragments and lanes, decided per class of values.

Values that an op relates element by element (operands and result of `arith.addf`, what a loop carries, the
accumulator and result of a dpas) form a *class* and are distributed alike. A class takes its ownership, a
:class:`~tilewright.layout.Layout` over one instruction-sized fragment, from the first of

1. the dpas that makes or takes it: C, then B, then A, from the machine's table;
2. a layout written on an op (`layout`, `layout_result_0`) or on a descriptor; the block that stores it;
3. a class that it is computed from or into (reduction, broadcast, transpose, shape_cast, bitcast);
4. the machine's natural distribution: lanes along the rows.

Nothing depends on the choice but speed: a use that wants another ownership converts. Splat constants and
broadcast scalars belong to no class, they are made wherever they are used. Linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from math import prod
from typing import TypeGuard, TypeVar

from xdsl.dialects import gpu, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, VectorType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from tilewright import layout as ly
from tilewright.diagnostics import UnsupportedError, unsupported
from tilewright.dialects import xegpu
from tilewright.dialects.movement import is_vector, shape_of
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.upstream.arith import element_bits, is_splat
from tilewright.dialects.xegpu.layouts import LayoutAttr, SliceAttr
from tilewright.passes.ownership import Planner, Relation, rearranged, reduced, values_of
from tilewright.passes.xegpu.lane_layouts import bind, default_fragment, natural, with_chunk
from tilewright.passes.xegpu.sg_maps import dpas_instruction
from tilewright.uarch.base import MatrixFragments
from tilewright.uarch.xe import XeMachine

Shape = tuple[int, ...]


def box_of_insertion(
    op: more.InsertStridedSliceOp | vector.InsertOp,
) -> tuple[list[int], Shape, int] | None:
    """The box of the destination that an insertion fills: offsets, extents, and how many of its outer dimensions
    the source lacks (their extents are 1). None where the position is known only at run time.
    """
    full, part = shape_of(op.dest), shape_of(op.source)
    if isinstance(op, more.InsertStridedSliceOp):
        lead = len(full) - len(part)
        return list(op.offsets), (*[1] * lead, *part), lead
    position = [int(n) for n in op.static_position.get_values()]
    if DYNAMIC_INDEX in position:
        return None
    lead = len(position)
    return [*position, *[0] * (len(full) - lead)], (*[1] * lead, *full[lead:]), lead


def bits_of(value: SSAValue) -> int:
    kind = value.type.element_type if isinstance(value.type, VectorType) else value.type
    return element_bits(kind)


def is_free(value: SSAValue) -> bool:
    """A vector of one number, made wherever it is used: a splat constant or a broadcast scalar."""
    if not isinstance(value, OpResult):
        return False
    op = value.op
    return is_splat(op) or (isinstance(op, vector.BroadcastOp) and prod(shape_of(op.source)) == 1)


_T = TypeVar("_T")


def _once_per_types(
    find: Callable[[XeMachine, xegpu.DpasOp], _T],
) -> Callable[[XeMachine, xegpu.DpasOp], _T]:
    """Products alike on the same machine have the same answer, and a kernel has few kinds of them."""
    found: dict[tuple[object, ...], _T] = {}

    @wraps(find)
    def look(xe: XeMachine, op: xegpu.DpasOp) -> _T:
        key = (xe.name, op.lhs.type, op.rhs.type, op.result.type, _rows_asked(op))
        if key not in found:
            found[key] = find(xe, op)
        return found[key]

    return look


@_once_per_types
def has_instruction(xe: XeMachine, op: xegpu.DpasOp) -> bool:
    """Is a product made of instructions of the machine: are its types, N and K theirs?"""
    try:
        instruction = dpas_instruction(xe, op)
    except UnsupportedError:
        return False
    dims = op.dims()
    return dims is not None and dims[1] % instruction.n[0] == 0 and dims[2] % instruction.k == 0


@_once_per_types
def dpas_fragments(xe: XeMachine, op: xegpu.DpasOp) -> MatrixFragments:
    """Ownership of A, B and C of the instruction whose rows the text asks for, else of the largest that divides M."""
    instruction = dpas_instruction(xe, op)
    rows = shape_of(op.result)[0]
    legal = [n for n in instruction.m if rows % n == 0]
    asked = _rows_asked(op)
    return instruction.fragments(asked if asked in legal else max(legal, default=1))


def _rows_asked(op: xegpu.DpasOp) -> int | None:
    """M of the instruction that `inst_data` names, of C or else of A; None where it names none."""
    a, _, c = op.layouts
    for layout in (c, a):
        if isinstance(layout, LayoutAttr) and (data := layout.field("inst_data")) is not None:
            return data[0]
    return None


def right_layout(b: ly.Layout, value: SSAValue) -> ly.Layout:
    """The fragment of B [k, n] over a value that may be packed, [k/p, n, p]."""
    shape = shape_of(value)
    if len(shape) == 2:
        return b
    k, n = b.shape
    return b.reshaped((k // shape[2], shape[2], n)).permuted((0, 2, 1))


class OwnershipAnalysis:
    """Decides the fragment and its lanes for every vector of a function.

    With `whole` every value is one fragment (instruction level), otherwise fragments divide values.
    """

    def __init__(self, function: gpu.FuncOp, xe: XeMachine, *, whole: bool):
        self.xe, self.lanes, self.whole = xe, xe.lanes, whole
        ops, values = list(function.walk()), list(values_of(function))
        self._owned = {v for v in values if is_vector(v) and not is_free(v)}
        self.plan = Planner[ly.Layout](
            values,
            owned=self._owned.__contains__,
            fits=lambda v, layout: self._fits(layout, shape_of(v)),
        )
        self._natural: dict[tuple[Shape, int], ly.Layout] = {}
        self._packed: set[SSAValue] = set()
        for op in ops:
            self._link(op)
        products = [op for op in ops if self._is_dpas(op)]
        others = [op for op in ops if op.attributes or op.name.startswith("xegpu.")]
        for each in (self._dpas_c, self._dpas_b, self._dpas_a):
            for op in products:
                each(op)
            self.plan.follow()
        for each in (self._written, self._stored, self._chunked):
            for op in others:
                each(op)
            self.plan.follow()
        self._settle(ops)

    # --- Answers -----------------------------------------------------------------------------

    def layout(self, value: SSAValue) -> ly.Layout:
        """Ownership over one fragment of the value; `.shape` is the fragment."""
        root = self.plan.find(value)
        if root not in self.plan.layouts:
            self.plan.assign(root, self._usual(root))
            self.plan.follow()
        return self.plan.layouts[root]

    def _usual(self, value: SSAValue) -> ly.Layout:
        """The natural distribution of a value, or of the fragment of it that no instruction asks for."""
        shape, bits = shape_of(value), bits_of(value)
        fragment = shape if self.whole else default_fragment(shape, bits, self.lanes)
        return self.natural(fragment, bits)

    def fragment(self, value: SSAValue) -> Shape:
        return self.layout(value).shape

    def natural(self, shape: Shape, bits: int) -> ly.Layout:
        if (shape, bits) not in self._natural:
            self._natural[shape, bits] = natural(shape, bits, self.lanes)
        return self._natural[shape, bits]

    def is_right_operand(self, value: SSAValue) -> bool:
        """Does a dpas take it (or a slice of it) as B? Then its rows are packed to 32 bits."""
        return self.plan.find(value) in self._packed

    # --- Classes -----------------------------------------------------------------------------

    def _link(self, op: Operation) -> None:
        plan = self.plan
        plan.tie_alike(op)
        match op:
            case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
                offsets, chunk = op.offsets_operand, op.chunk
                if chunk == 1:
                    plan.tie((*op.results, *op.operands))
                elif offsets is not None:
                    plan.tie((op.mask, offsets))
                    last = len(shape_of(offsets))
                    narrow, wide = (lambda l: l.sliced(last)), (lambda l: with_chunk(l, chunk))
                    plan.relate(Relation(op, op.value, offsets, narrow, wide))
            case more.ExtractStridedSliceOp() if not self.whole:
                plan.relate(Relation(op, op.source, op.result, lambda l: l, lambda l: l))
            case vector.BitcastOp():
                plan.relate(*(each.both_ways() for each in rearranged(op)))
            case _:
                plan.relate(*rearranged(op), *reduced(op))

    # --- Anchors -----------------------------------------------------------------------------

    def _set(self, value: SSAValue | None, layout: ly.Layout | None) -> None:
        """Decides the class of a value unless that is done or the layout does not fit."""
        if value is not None and layout is not None and value in self._owned:
            self.plan.assign(value, layout)

    def _fits(self, layout: ly.Layout, shape: Shape) -> bool:
        if layout.rank != len(shape) or layout.lanes != self.lanes:
            return False
        if self.whole:
            return layout.shape == shape
        return all(extent % size == 0 for extent, size in zip(shape, layout.shape, strict=True))

    def _is_dpas(self, op: Operation) -> TypeGuard[xegpu.DpasOp]:
        return isinstance(op, xegpu.DpasOp) and has_instruction(self.xe, op)

    def _dpas_c(self, op: xegpu.DpasOp) -> None:
        self._set(op.result, self._fragments(op).c)

    def _dpas_b(self, op: xegpu.DpasOp) -> None:
        self._packed.add(self.plan.find(op.rhs))
        b = self._fragments(op).b
        self._set(op.rhs, None if b is None else right_layout(b, op.rhs))

    def _dpas_a(self, op: xegpu.DpasOp) -> None:
        self._set(op.lhs, self._fragments(op).a)

    def _fragments(self, op: xegpu.DpasOp) -> MatrixFragments:
        if len(shape_of(op.lhs)) != 2:
            raise unsupported(op, "xegpu.dpas: A is packed", hint="run xegpu-upgrade first")
        return dpas_fragments(self.xe, op)

    def _written(self, op: Operation) -> None:
        """Layouts that the text has."""
        for n, result in enumerate(op.results):
            self._set(result, self._bound(op.attributes.get(f"layout_result_{n}"), result))
        match op:
            case xegpu.LoadNdOp():
                self._set(op.value, self._bound(op.ownership, op.value))
            case xegpu.StoreNdOp():
                self._set(op.value, self._bound(op.ownership, op.value))
            case xegpu.LoadMatrixOp() | xegpu.StoreMatrixOp():
                self._set(op.value, self._bound(op.ownership, op.value))
            case xegpu.ConvertLayoutOp():
                self._set(op.source, self._bound(op.input_layout, op.source))
                self._set(op.result, self._bound(op.target_layout, op.result))
            case xegpu.LoadGatherOp() | xegpu.StoreScatterOp():
                self._set(op.value, self._bound(op.layout, op.value))
            case _:
                pass

    def _chunked(self, op: Operation) -> None:
        """A lane of a gather owns whole chunks."""
        if not isinstance(op, (xegpu.LoadGatherOp, xegpu.StoreScatterOp)) or op.chunk == 1:
            return
        offsets = op.offsets_operand
        if offsets is not None and is_vector(offsets):
            usual = self._usual(offsets)
            self._set(op.value, with_chunk(usual, op.chunk))
            self._set(offsets, usual)

    def _settle(self, ops: Sequence[Operation]) -> None:
        """Natural distributions for what is left, large values first: the small ones are made from or into them."""
        values = [v for op in ops for v in op.results if v in self._owned]
        for value in sorted(values, key=lambda v: -prod(shape_of(v))):
            self.layout(value)

    def _stored(self, op: Operation) -> None:
        """Block stores distribute rows in one way only, while loads can also transpose."""
        if isinstance(op, xegpu.StoreNdOp):
            self._set(op.value, self._usual(op.value))

    def _bound(self, attribute: Attribute | None, value: SSAValue) -> ly.Layout | None:
        """A written layout over a fragment of the value; None where it says nothing about lanes."""
        if not isinstance(attribute, (LayoutAttr, SliceAttr)) or not is_vector(value):
            return None
        return bind(attribute, shape_of(value), bits_of(value), self.lanes, whole=self.whole)
