"""Who owns the elements of every vector below workgroup level: pieces and lanes, decided per class of values.

Values that an op relates element by element (operands and result of `arith.addf`, what a loop carries, the
accumulator and result of a dpas) form a *class* and are dealt alike. A class takes its ownership, a
:class:`~tilewright.layout.Layout` over one instruction-sized piece, from the first of

1. the dpas that makes or takes it: C, then B, then A, from the machine's table;
2. a layout written on an op (`layout`, `layout_result_0`) or on a descriptor; the block that stores it;
3. a class that it is computed from or into (reduction, broadcast, transpose, shape_cast, bitcast);
4. the machine's natural deal: lanes along the rows.

Nothing depends on the choice but speed: a use that wants another ownership converts. Splat constants and
broadcast scalars belong to no class, they are made wherever they are used. Linear in the number of ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from math import prod
from typing import TypeGuard, TypeVar

from xdsl.dialects import arith, gpu, vector
from xdsl.dialects.builtin import DYNAMIC_INDEX, DenseIntOrFPElementsAttr, VectorType
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.utils.disjoint_set import DisjointSet

from tilewright import layout as ly
from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.dialects import xegpu
from tilewright.dialects.elementwise import is_elementwise_on_vectors
from tilewright.dialects.movement import shape_of
from tilewright.dialects.upstream import vector as more
from tilewright.dialects.xegpu.layouts import LayoutAttr, SliceAttr
from tilewright.dialects.xegpu.types import element_bits
from tilewright.passes.budget import poll
from tilewright.passes.carried import carried_together
from tilewright.passes.xegpu.lane_layouts import (
    bind,
    broadcast_source,
    default_piece,
    joined,
    natural,
    reshaped_piece,
    with_chunk,
)
from tilewright.passes.xegpu.sg_maps import dpas_instruction
from tilewright.uarch.base import Fragments
from tilewright.uarch.xe import XeMachine

Shape = tuple[int, ...]
Change = Callable[[ly.Layout], ly.Layout]


def lanes_of(xe: XeMachine) -> int:
    """Lanes of a subgroup: as many as dpas has columns."""
    return xe.matrix[0].n[0]


def box_of_insertion(
    op: more.InsertStridedSliceOp | vector.InsertOp,
) -> tuple[list[int], Shape, int] | None:
    """The box of the destination that an insertion fills: offsets, extents, and how many of its outer dimensions
    the source lacks (their extents are 1). None where the position is known at run time only.
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


def is_vector(value: SSAValue) -> bool:
    return isinstance(value.type, VectorType)


def bits_of(value: SSAValue) -> int:
    kind = value.type.element_type if isinstance(value.type, VectorType) else value.type
    return element_bits(kind)


def is_free(value: SSAValue) -> bool:
    """A vector of one number, made wherever it is used: a splat constant or a broadcast scalar."""
    if not isinstance(value, OpResult):
        return False
    op = value.op
    if isinstance(op, arith.ConstantOp):
        return isinstance(op.value, DenseIntOrFPElementsAttr) and op.value.is_splat()
    return isinstance(op, vector.BroadcastOp) and prod(shape_of(op.source)) == 1


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
def dpas_fragments(xe: XeMachine, op: xegpu.DpasOp) -> Fragments:
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
    """Decides the piece and its lanes for every vector of a function.

    With `whole` every value is one piece (instruction level), otherwise pieces divide values.
    """

    def __init__(self, function: gpu.FuncOp, xe: XeMachine, *, whole: bool):
        self.xe, self.lanes, self.whole = xe, lanes_of(xe), whole
        ops = list(function.walk())
        values: list[SSAValue] = [v for op in ops for v in op.results]
        values += [a for op in ops for r in op.regions for block in r.blocks for a in block.args]
        self.classes = DisjointSet(values)
        self._decided: dict[SSAValue, ly.Layout] = {}
        self._edges: dict[SSAValue, list[tuple[SSAValue, Change]]] = {}
        self._natural: dict[tuple[Shape, int], ly.Layout] = {}
        self._packed: set[SSAValue] = set()
        for op in ops:
            self._unite(op)
        for op in ops:
            self._relate(op)
        anchors = (self._dpas_c, self._dpas_b, self._dpas_a, self._written, self._stored)
        for each in (*anchors, self._chunked):
            self._spread([root for op in ops for root in each(op)])
        self._settle(ops)

    # --- Answers -----------------------------------------------------------------------------

    def layout(self, value: SSAValue) -> ly.Layout:
        """Ownership over one piece of the value; `.shape` is the piece."""
        root = self.classes.find(value)
        found = self._decided.get(root)
        if found is None:
            bits = bits_of(root)
            shape = shape_of(root)
            piece = shape if self.whole else default_piece(shape, bits, self.lanes)
            found = self.natural(piece, bits)
            self._decided[root] = found
            self._spread([root])
        return found

    def piece(self, value: SSAValue) -> Shape:
        return self.layout(value).shape

    def natural(self, shape: Shape, bits: int) -> ly.Layout:
        if (shape, bits) not in self._natural:
            self._natural[shape, bits] = natural(shape, bits, self.lanes)
        return self._natural[shape, bits]

    def is_right_operand(self, value: SSAValue) -> bool:
        """Does a dpas take it (or a slice of it) as B? Then its rows are packed to 32 bits."""
        return self.classes.find(value) in self._packed

    # --- Classes -----------------------------------------------------------------------------

    def _be_one(self, values: Iterable[SSAValue]) -> None:
        """Vectors of one shape are of one class, that of the first."""
        first: SSAValue | None = None
        for value in values:
            if not is_vector(value) or is_free(value):
                continue
            if first is None:
                first = value
            elif shape_of(first) == shape_of(value):
                self.classes.union_left(first, value)

    def _unite(self, op: Operation) -> None:
        unite = self._be_one
        if is_elementwise_on_vectors(op):
            unite((*op.results, *op.operands))
            return
        match op:
            case xegpu.DpasOp() if op.acc is not None:
                unite((op.result, op.acc))
            case more.MultiReductionOp():
                unite((op.dest, op.acc))
            case more.InsertStridedSliceOp():
                unite((op.results[0], op.operands[1]))
            case vector.InsertOp():
                unite((op.result, op.dest))
            case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
                values = (*op.results, *op.operands)
                if op.chunk > 1:
                    unite(v for v in (op.mask, op.offsets_operand) if v is not None)
                else:
                    unite(values)
            case _:
                for group in carried_together(op):
                    unite(group)

    def _relate(self, op: Operation) -> None:
        poll()
        match op:
            case more.MultiReductionOp() if is_vector(op.dest):
                dims = op.dims
                self._edge(op.source, op.dest, lambda l: l.sliced(*dims))
            case vector.BroadcastOp() if is_vector(op.source) and not is_free(op.vector):
                shape = shape_of(op.source)
                self._edge(op.vector, op.source, lambda l: broadcast_source(l, shape))
            case more.TransposeOp():
                p = op.permutation
                inverse = [p.index(d) for d in range(len(p))]
                self._edge(op.vector, op.result, lambda l: l.permuted(p))
                self._edge(op.result, op.vector, lambda l: l.permuted(inverse))
            case more.ShapeCastOp():
                a, b = shape_of(op.source), shape_of(op.result)
                self._edge(op.source, op.result, lambda l: reshaped_piece(l, a, b))
                self._edge(op.result, op.source, lambda l: reshaped_piece(l, b, a))
            case vector.BitcastOp():
                self._relate_bitcast(op)
            case more.ExtractStridedSliceOp():
                sizes = shape_of(op.result)
                if self.whole:
                    self._edge(op.source, op.result, lambda l: l.cropped(sizes))
                else:
                    self._edge(op.source, op.result, lambda l: l)
                    self._edge(op.result, op.source, lambda l: l)
            case vector.ExtractOp() if is_vector(op.result):
                n = len(op.static_position)
                sizes = (*[1] * n, *shape_of(op.result))
                dims = tuple(range(n))
                self._edge(op.vector, op.result, lambda l: l.cropped(sizes).dropped(*dims))
            case xegpu.LoadGatherOp() | xegpu.StoreScatterOp() | xegpu.AtomicRMWOp():
                offsets = op.offsets_operand
                if op.chunk > 1 and offsets is not None:
                    last = len(shape_of(offsets))
                    self._edge(op.value, offsets, lambda l: l.sliced(last))
                    chunk = op.chunk
                    self._edge(offsets, op.value, lambda l: with_chunk(l, chunk))
            case _:
                pass

    def _relate_bitcast(self, op: vector.BitcastOp) -> None:
        wide, narrow = bits_of(op.source), bits_of(op.result)
        last = len(shape_of(op.source)) - 1
        if wide >= narrow:
            factor = wide // narrow
            self._edge(op.source, op.result, lambda l: l.expanded(last, factor))
            self._edge(op.result, op.source, lambda l: joined(l, last, factor))
        else:
            factor = narrow // wide
            self._edge(op.source, op.result, lambda l: joined(l, last, factor))
            self._edge(op.result, op.source, lambda l: l.expanded(last, factor))

    def _edge(self, source: SSAValue, target: SSAValue, change: Change) -> None:
        if is_free(source) or is_free(target):
            return
        a, b = self.classes.find(source), self.classes.find(target)
        self._edges.setdefault(a, []).append((b, change))

    # --- Anchors -----------------------------------------------------------------------------

    def _set(self, value: SSAValue | None, layout: ly.Layout | None) -> list[SSAValue]:
        """Decides the class of a value unless that is done or the layout does not fit."""
        if value is None or layout is None or not is_vector(value) or is_free(value):
            return []
        root = self.classes.find(value)
        if root in self._decided or not self._fits(layout, shape_of(value)):
            return []
        self._decided[root] = layout
        return [root]

    def _fits(self, layout: ly.Layout, shape: Shape) -> bool:
        if layout.rank != len(shape) or layout.lanes != self.lanes:
            return False
        if self.whole:
            return layout.shape == shape
        return all(extent % size == 0 for extent, size in zip(shape, layout.shape, strict=True))

    def _spread(self, roots: list[SSAValue]) -> None:
        """Carries decisions along the edges, breadth first."""
        queue = list(roots)
        for root in queue:
            layout = self._decided[root]
            for other, change in self._edges.get(root, ()):
                if other in self._decided:
                    continue
                try:
                    derived = change(layout)
                except (ly.LayoutError, IndexError):
                    continue
                queue += self._set(other, derived)

    def _is_dpas(self, op: Operation) -> TypeGuard[xegpu.DpasOp]:
        return isinstance(op, xegpu.DpasOp) and has_instruction(self.xe, op)

    def _dpas_c(self, op: Operation) -> list[SSAValue]:
        return self._set(op.result, self._fragments(op).c) if self._is_dpas(op) else []

    def _dpas_b(self, op: Operation) -> list[SSAValue]:
        if not self._is_dpas(op):
            return []
        self._packed.add(self.classes.find(op.rhs))
        b = self._fragments(op).b
        return self._set(op.rhs, None if b is None else right_layout(b, op.rhs))

    def _dpas_a(self, op: Operation) -> list[SSAValue]:
        return self._set(op.lhs, self._fragments(op).a) if self._is_dpas(op) else []

    def _fragments(self, op: xegpu.DpasOp) -> Fragments:
        if len(shape_of(op.lhs)) != 2:
            raise error_at(
                op,
                "xegpu.dpas: A is packed",
                hint="run xegpu-modernize first",
                kind=UnsupportedError,
            )
        return dpas_fragments(self.xe, op)

    def _written(self, op: Operation) -> list[SSAValue]:
        """Layouts that the text has."""
        found: list[SSAValue] = []
        for n, result in enumerate(op.results):
            found += self._set(result, self._bound(op.attributes.get(f"layout_result_{n}"), result))
        match op:
            case xegpu.LoadNdOp():
                found += self._set(op.value, self._bound(op.ownership, op.value))
            case xegpu.StoreNdOp():
                found += self._set(op.value, self._bound(op.ownership, op.value))
            case xegpu.LoadMatrixOp() | xegpu.StoreMatrixOp():
                found += self._set(op.value, self._bound(op.ownership, op.value))
            case xegpu.ConvertLayoutOp():
                found += self._set(op.source, self._bound(op.input_layout, op.source))
                found += self._set(op.result, self._bound(op.target_layout, op.result))
            case xegpu.LoadGatherOp() | xegpu.StoreScatterOp():
                found += self._set(op.value, self._bound(op.layout, op.value))
            case _:
                pass
        return found

    def _chunked(self, op: Operation) -> list[SSAValue]:
        """A lane of a gather owns whole chunks."""
        if not isinstance(op, (xegpu.LoadGatherOp, xegpu.StoreScatterOp)) or op.chunk == 1:
            return []
        offsets = op.offsets_operand
        if offsets is None or not is_vector(offsets):
            return []
        shape, bits = shape_of(offsets), bits_of(offsets)
        piece = shape if self.whole else default_piece(shape, bits, self.lanes)
        value = with_chunk(self.natural(piece, bits), op.chunk)
        return self._set(op.value, value) + self._set(offsets, self.natural(piece, bits))

    def _settle(self, ops: Sequence[Operation]) -> None:
        """Natural deals for what is left, large values first: the small ones are made from or into them."""
        values = [v for op in ops for v in op.results if is_vector(v) and not is_free(v)]
        for value in sorted(values, key=lambda v: -prod(shape_of(v))):
            self.layout(value)

    def _stored(self, op: Operation) -> list[SSAValue]:
        """Block stores deal rows in one way only, while loads can also transpose."""
        if not isinstance(op, xegpu.StoreNdOp):
            return []
        bits, shape = bits_of(op.value), shape_of(op.value)
        piece = shape if self.whole else default_piece(shape, bits, self.lanes)
        return self._set(op.value, self.natural(piece, bits))

    def _bound(self, attribute: Attribute | None, value: SSAValue) -> ly.Layout | None:
        """A written layout over a piece of the value; None where it says nothing about lanes."""
        if not isinstance(attribute, (LayoutAttr, SliceAttr)) or not is_vector(value):
            return None
        return bind(attribute, shape_of(value), bits_of(value), self.lanes, whole=self.whole)
