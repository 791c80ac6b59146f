"""xegpu-wg-to-sg-distribute, block ops: descriptors, load_nd, store_nd, prefetch_nd, shared matrices.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`. A descriptor keeps its base and gets the shape of a
piece; where a piece starts is added to the offsets of the memory op, so that all pieces share one
descriptor. What several subgroups own alike is stored by the first of them.
"""

from __future__ import annotations

from xdsl.ir import Block, Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.xegpu import BlockTensorDescAttr, TensorDescType
from tilewright.layout import Distribution
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.cooperative import cooperative
from tilewright.passes.xegpu.split import moved
from tilewright.passes.xegpu.wg_to_sg import Distributor, rule


@rule("xegpu.create_nd_tdesc")
def create_nd_tdesc(to: Distributor, op: xegpu.CreateNdDescOp) -> None:
    """Made when the first memory op asks for it, since ops may share it under different layouts."""
    if op.has_offsets:
        raise to.refuse("with offsets: xegpu-modernize puts them on the memory ops")
    d = own.from_attribute(op.tdesc.ownership)
    if op.result.first_use is None and d is not None:
        descriptor(to, op.result, to.part(d, op.tdesc.get_shape()), d)


def descriptor(
    to: Distributor, value: SSAValue, part: tuple[int, ...], d: Distribution | None
) -> SSAValue:
    """The subgroup's descriptor of pieces of a shape, right where the workgroup's was made."""
    op = value.owner
    if not isinstance(op, xegpu.CreateNdDescOp):
        raise to.refuse("takes a descriptor that is not made by create_nd_tdesc in the kernel")
    left = None if d is None else own.remainder(d)
    text = None if left is None else own.attribute(left)
    key = (value, part, text)
    known = to.descriptors
    if key not in known or not _visible(known[key], to.out):
        old = op.tdesc
        encoding = old.encoding if isinstance(old.encoding, BlockTensorDescAttr) else None
        kind = TensorDescType(part, old.element_type, encoding, text)
        operands = [to.offset(v) for v in (*op.mixed_shape, *op.mixed_strides)]
        rank = len(op.mixed_shape)
        new = xegpu.CreateNdDescOp(
            to.same(op.source), kind, shape=operands[:rank] or None, strides=operands[rank:] or None
        )
        new.result.name_hint = op.result.name_hint
        new.location = op.location
        _place(to, new)
        known[key] = new.result
    return known[key]


def _place(to: Distributor, new: Operation) -> None:
    """As far out as its operands allow: behind the last of them."""
    owners = [v.owner for v in new.operands]
    inner = [o for o in owners if isinstance(o, Operation)]
    blocks = [o.parent_block() if isinstance(o, Operation) else o for o in owners]
    deepest = max((b for b in blocks if b is not None), key=_depth)
    mine = [o for o in inner if o.parent_block() is deepest]
    if not mine:
        to.ids.insert_first(deepest, new)
        return
    last = mine[0]
    for other in mine[1:]:
        if last.is_before_in_block(other):
            last = other
    deepest.insert_op_after(new, last)
    to.ids.moved(last, new)


def _depth(block: Block) -> int:
    depth, op = 0, block.parent_op()
    while op is not None:
        depth, op = depth + 1, op.parent_op()
    return depth


def _visible(value: SSAValue, block: Block) -> bool:
    owner = value.owner
    home = owner.parent_block() if isinstance(owner, Operation) else owner
    here: Block | None = block
    while here is not None:
        if here is home:
            return True
        parent = here.parent_op()
        here = parent.parent_block() if parent is not None else None
    return False


def _checked(to: Distributor, op: xegpu.LoadNdOp | xegpu.StoreNdOp | xegpu.PrefetchNdOp) -> None:
    if op.mixed_offsets is None:
        raise to.refuse("without offsets: xegpu-modernize puts them on the memory ops")


@rule("xegpu.load_nd")
def load_nd(to: Distributor, op: xegpu.LoadNdOp) -> None:
    _checked(to, op)
    if op.packed is not None or op.transposes or op.tdesc.array_length > 1:
        raise to.refuse(
            "in a packed, transposed or array form at workgroup level: the lowering chooses it itself"
        )
    d, shape = to.cut_of(op.value), own.shape_of(op.value)
    tdesc = descriptor(to, op.tensor_desc, to.part(d, shape), d)
    to.give(op.value, d, [new.results[0] for new in moved(to, op, tdesc, d, shape)])


@rule("xegpu.store_nd")
def store_nd(to: Distributor, op: xegpu.StoreNdOp) -> None:
    _checked(to, op)
    d, shape = to.stored_cut(op), own.shape_of(op.value)
    pieces = to.pieces(op.value, d, "the stored value")
    tdesc = descriptor(to, op.tensor_desc, to.part(d, shape), d)
    with to.when(to.first_owner(d, shape)):
        moved(to, op, tdesc, d, shape, pieces)


@rule("xegpu.prefetch_nd")
def prefetch_nd(to: Distributor, op: xegpu.PrefetchNdOp) -> None:
    """All subgroups fetch a part each, also of what several of them own."""
    _checked(to, op)
    shape = op.tdesc.get_shape()
    stated = own.from_attribute(op.ownership)
    d = cooperative(shape, op.tdesc.element_type, to.subgroups, stated)
    tdesc = descriptor(to, op.tensor_desc, to.part(d, shape), d)
    with to.when(to.first_owner(d, shape)):
        moved(to, op, tdesc, d, shape)
