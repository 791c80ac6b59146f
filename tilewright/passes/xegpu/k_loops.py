"""k-loops, xegpu-k-loops: a deep product whose operands are loaded becomes a loop over k.

    %a = load_tile .. : 128x512                         scf.for %s = 0 to 32 iter_args(%sum = %c) {
    %b = load_tile .. : 512x128                           %a = load_tile .. : 128x16    at column %s * 16
    %d = tile_mma %a, %b, %c : 128x128           ->       %b = load_tile .. : 16x128    at row %s * 16
                                                          %d = tile_mma %a, %b, %sum
                                                          scf.yield %d }

What no matrix instruction does is one outer product after the other: their number, and the registers of A and B, do not
grow with k then. Nor do those of a subgroup whose operands would fill its registers twice. An operand that a workgroup
computes is exchanged through shared memory: at subgroup level, as XeGPU, it is loaded from there.

Requires: workgroup or subgroup level, without layouts on what makes the operands. A product is left alone where the ops
behind its operands, up to the tiles or descriptors, do more than load, transpose or change each element, where memory
may be written between a load and the product, or where it is summed in a type narrower than the sum's. Guarantees: the
same results, products added in the order of k.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from xdsl.dialects import arith, gpu, scf
from xdsl.dialects.builtin import Float32Type, Float64Type, IndexType, IntegerType, NoneAttr
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from tilewright.dialects import xegpu
from tilewright.dialects import xetile as xt
from tilewright.dialects.elementwise import retyped
from tilewright.dialects.movement import shape_of, vector_type
from tilewright.dialects.upstream.arith import element_bits
from tilewright.dialects.xegpu.types import TensorDescType
from tilewright.dialects.xetile.assembly import split_indices
from tilewright.dialects.xetile.maps import stated_maps
from tilewright.passes.axes import Axes, axes_of
from tilewright.passes.emit import Before
from tilewright.passes.kernel import level_of
from tilewright.passes.memory_objects import is_pure
from tilewright.passes.split_workgroups import SplitChoice, narrow
from tilewright.passes.tile_origin import is_read_only, root_of
from tilewright.passes.xegpu.block_messages import memory_of, never_written
from tilewright.passes.xegpu.load_late import may_change
from tilewright.passes.xegpu.sg_maps import multiplies, type_name
from tilewright.uarch.xe import XeMachine

Product = xt.TileMmaOp | xegpu.DpasOp
Load = xegpu.LoadNdOp | xegpu.LoadMatrixOp

LEAST = 4
"""Elements of k in a step below which rows are too short to load."""
REGISTERS = 256
"""Of a subgroup at most."""


def k_loops(kernel: gpu.FuncOp, machine: XeMachine) -> None:
    """Turns deep products into loops: those that no matrix instruction does, and a subgroup's own whose operands fill
    its registers twice."""
    loop_over_k(kernel, lambda product: _step(product, kernel, machine))


def _step(product: Product, kernel: gpu.FuncOp, machine: XeMachine) -> int:
    """Elements of k in a step; all of them where the product is to stay whole."""
    a, b, _ = _operands(product)
    depth = shape_of(a)[1]
    if not multiplies(machine, a, b, product.result):
        # A row of A in a step is one element for each lane.
        return gcd(depth, machine.lanes)
    rows, columns = shape_of(a)[0], shape_of(b)[1]
    across = (rows + columns) * element_bits(vector_type(a).element_type) // 8
    room = REGISTERS * machine.grf_bytes
    if level_of(kernel) != "subgroup" or depth * across < 2 * room:
        return depth
    least = machine.instruction(*map(type_name, (a, b, product.result))).k
    steps = [n for n in range(least, depth, least) if depth % n == 0]
    return max((n for n in steps if n * across <= room // 4), default=min(steps, default=depth))


def loop_over_k(kernel: gpu.FuncOp, step_of: Callable[[Product], int]) -> None:
    """Turns the products of a kernel into loops, of as many elements of k in a step as `step_of` tells."""
    kept = never_written(kernel)
    for op in [op for op in kernel.walk() if isinstance(op, Product)]:
        shapes = [shape_of(v) for v in (*_operands(op)[:2], op.result)]
        if any(len(shape) != 2 for shape in shapes) or not _is_wide(op):
            continue
        step = step_of(op)
        if step >= LEAST and (count := shapes[0][1] // step) > 1:
            behind = _Depth(op, Axes(kernel), kept)
            if behind.comes_in_parts():
                _loop(behind, count, step)


def _operands(product: Product) -> tuple[SSAValue, SSAValue, SSAValue | None]:
    """A, B and C."""
    if isinstance(product, xegpu.DpasOp):
        return product.lhs, product.rhs, product.acc
    return product.a, product.b, product.c


def _is_wide(op: Product) -> bool:
    """Is the type of the result that of the sum?"""
    element = op.result.type.element_type
    return isinstance(element, Float32Type | Float64Type) or (
        isinstance(element, IntegerType) and element.width.data >= 32
    )


class _Depth:
    """The ops that make the operands of a product, as far as k reaches: `ops`, in their order, and their dimensions.
    `kept`: arrays that nothing writes."""

    def __init__(self, product: Product, axes: Axes, kept: set[SSAValue]):
        self.product, self.axes, self.kept = product, axes, kept
        self.a, self.b, self.c = _operands(product)
        self.root = axes.tied.find((self.a, 1))
        self.ops: dict[Operation, None] = {}

    def dims(self, value: SSAValue) -> list[int]:
        return [d for d in axes_of(value) if self.axes.tied.find((value, d)) == self.root]

    def comes_in_parts(self) -> bool:
        """Whether they can come step by step; collects them."""
        if self.dims(self.a) != [1] or self.dims(self.b) != [0] or _is_owned(self.product):
            return False
        return self._visit(self.a) and self._visit(self.b)

    def _visit(self, value: SSAValue) -> bool:
        dims, maker = self.dims(value), value.owner
        if not dims:
            return True
        if len(dims) > 1 or not isinstance(maker, Operation):
            return False
        if maker in self.ops:
            return True
        # Matrices in shared memory have no axes, which are values'.
        if (value, dims[0]) in self.axes.fixed and not isinstance(maker, xegpu.LoadMatrixOp):
            return False
        if not self._may_move(maker) or not all(self._visit(v) for v in maker.operands):
            return False
        self.ops[maker] = None
        return True

    def _may_move(self, maker: Operation) -> bool:
        if _is_owned(maker):
            return False
        if isinstance(maker, xt.InitTileOp):
            return maker.offset_vector is None
        if isinstance(maker, xt.LoadTileOp):
            return is_read_only(maker.tile) or self._keeps(maker, root_of(maker.tile))
        if isinstance(maker, Load):
            root = memory_of(maker)
            return _is_plain(maker) and (root in self.kept or self._keeps(maker, root))
        return is_pure(maker) and not maker.regions and not isinstance(maker, Product)

    def _keeps(self, load: Operation, root: SSAValue | None) -> bool:
        """Whether what is loaded is there still where the product stands, in the same block."""
        each = load.next_op
        while each is not None and each is not self.product:
            if may_change(each, root):
                return False
            each = each.next_op
        return each is self.product


def _is_owned(op: Operation) -> bool:
    """Does a text say who owns the parts of its values, but by maps, which go with the values?"""
    if isinstance(op, xegpu.DpasOp):
        return any(op.layouts)
    maps = {name for _, name, _ in stated_maps(op)}
    return not maps.issuperset(op.attributes) or getattr(op, "ownership", None) is not None


def _is_plain(load: Load) -> bool:
    """Does it load rows of a matrix that a descriptor of any extent describes?"""
    if isinstance(load, xegpu.LoadMatrixOp):
        return not load.subgroup_block_io
    made = load.operands[load.tdesc_operand].owner
    return (
        not load.packed
        and load.transpose is None
        and load.tdesc.get_shape() == shape_of(load.value)
        and load.mixed_offsets is not None
        and isinstance(made, xegpu.CreateNdDescOp)
        and not made.has_offsets
    )


def _loop(depth: _Depth, count: int, step: int) -> None:
    """The product of a step, and what makes its operands, in a loop that carries the sum."""
    product = depth.product
    before, kind = Before(product), product.result.type
    first = depth.c or before.constant(kind, 0)
    zero, end, one = (before.index(n) for n in (0, count, 1))
    body = Block(arg_types=(IndexType(), kind))
    loop = before.add(scf.ForOp(zero, end, one, [first], body))
    size = arith.ConstantOp.from_int_and_width(step, IndexType())
    start = arith.MuliOp(body.args[0], size.result)
    copies: dict[SSAValue, SSAValue] = {}
    ops = [each.clone(copies) for each in depth.ops]
    new = retyped(product, [copies[depth.a], copies[depth.b], body.args[1]], [kind])
    for op in (size, start):
        op.location = product.location
    body.add_ops([size, start, *ops, new, scf.YieldOp(new.result)])
    members = [(copies[v], d) for op in depth.ops for v in op.results for d in depth.dims(v)]
    narrow(SplitChoice(tuple(members), count * step), count, start.result)
    for old, copy in zip(depth.ops, ops, strict=True):
        if isinstance(copy, Load):
            _move(copy, depth.dims(old.results[0])[0], start.result)
    before.replace(loop)
    for op in reversed(depth.ops):
        if all(r.first_use is None for r in op.results):
            Rewriter.erase_op(op)


def _move(load: Load, dim: int, start: SSAValue) -> None:
    """A load of a part of what it loaded: from `start` on, of the extents of its result."""
    at, kind = Before(load), vector_type(load.results[0])
    offsets = list(load.mixed_offsets or ())
    place = len(offsets) - 2 + dim
    offsets[place] = at.plus(offsets[place], start)
    static, dynamic = split_indices(offsets)
    source = load.operands[0]
    if isinstance(load, xegpu.LoadNdOp):
        assert isinstance(source, OpResult)
        made, encoding = source.op, load.tdesc.encoding
        encoding = None if isinstance(encoding, NoneAttr) else encoding
        desc = TensorDescType(kind.get_shape(), load.tdesc.element_type, encoding)
        smaller = retyped(made, made.operands, [desc])
        smaller.location = load.location
        Rewriter.insert_op(smaller, InsertPoint.after(made))
        source = smaller.results[0]
    new = retyped(load, [source, *dynamic], [kind])
    new.properties["const_offsets"] = static
    at.replace(at.add(new))
