"""xegpu-wg-to-sg-distribute, block ops (descriptors, load_nd, store_nd, prefetch_nd), and effects of one for all.

Part of :mod:`tilewright.passes.xegpu.wg_to_sg`. A descriptor keeps its base and gets the shape of a
fragment; where a fragment starts is added to the offsets of the memory op, so that all fragments share one
descriptor. What several subgroups own alike is stored by the first of them.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from tilewright.dialects import xegpu
from tilewright.dialects.xegpu import BlockTensorDescAttr, TensorDescType
from tilewright.layout import Distribution
from tilewright.passes.level import among
from tilewright.passes.xegpu import layout_text as own
from tilewright.passes.xegpu.cooperative import cooperative
from tilewright.passes.xegpu.split import moved
from tilewright.passes.xegpu.wg_to_sg import SubgroupDistributor, rule


@rule("xegpu.create_nd_tdesc")
def create_nd_tdesc(to: SubgroupDistributor, op: xegpu.CreateNdDescOp) -> None:
    """One descriptor per layout that the op's users have; that of its own for one without."""
    if op.has_offsets:
        raise to.refuse("with offsets: xegpu-upgrade moves them to the memory ops")
    operands = [to.offset(v) for v in (*op.mixed_shape, *op.mixed_strides)]
    rank = len(op.mixed_shape)
    stated = own.from_attribute(op.tdesc.ownership)
    moves = (xegpu.LoadNdOp, xegpu.StoreNdOp, xegpu.PrefetchNdOp)
    users = [use.operation for use in op.result.uses]
    cuts = [_cut(to, user) for user in users if isinstance(user, moves)]
    for d in cuts or ([] if stated is None else [stated]):
        kind = _type(to, op.tdesc, d)
        if (op.result, kind) not in to.descriptors:
            new = xegpu.CreateNdDescOp(
                to.same(op.source),
                kind,
                shape=operands[:rank] or None,
                strides=operands[rank:] or None,
            )
            new.result.name_hint = op.result.name_hint
            to.descriptors[op.result, kind] = to.add(new)


def _cut(
    to: SubgroupDistributor, op: xegpu.LoadNdOp | xegpu.StoreNdOp | xegpu.PrefetchNdOp
) -> Distribution:
    """The fragments that an op moves. All subgroups fetch a part each, also of what several of them own."""
    match op:
        case xegpu.LoadNdOp():
            return to.cut_of(op.value)
        case xegpu.StoreNdOp():
            return to.stored_cut(op)
        case _:
            shape, element = op.tdesc.get_shape(), op.tdesc.element_type
            stated = own.from_attribute(op.ownership)
            return cooperative(shape, element, among(op, to.whole), stated)


def _type(to: SubgroupDistributor, old: TensorDescType, d: Distribution) -> TensorDescType:
    """The type of the descriptor of one fragment."""
    left = own.remainder(d)
    encoding = old.encoding if isinstance(old.encoding, BlockTensorDescAttr) else None
    text = None if left is None else own.attribute(left)
    return TensorDescType(to.part(d, old.get_shape()), old.element_type, encoding, text)


def _moved(
    to: SubgroupDistributor,
    op: xegpu.LoadNdOp | xegpu.StoreNdOp | xegpu.PrefetchNdOp,
    d: Distribution,
    fragments: list[SSAValue],
) -> list[SSAValue]:
    """The op on each fragment, `fragments` those that it stores: what they give."""
    if op.mixed_offsets is None:
        raise to.refuse("without offsets: xegpu-upgrade moves them to the memory ops")
    known = to.descriptors.get((op.tensor_desc, _type(to, op.tdesc, d)))
    if known is None:
        raise to.refuse("takes a descriptor that is not made by create_nd_tdesc in the kernel")
    made = moved(to, op, known, d, op.tdesc.get_shape(), fragments)
    return [result for new in made for result in new.results]


@rule("xegpu.load_nd")
def load_nd(to: SubgroupDistributor, op: xegpu.LoadNdOp) -> None:
    if op.packed or op.transposes or op.tdesc.array_length > 1:
        raise to.refuse(
            "in a packed, transposed or array form at workgroup level: the lowering chooses it itself"
        )
    d = _cut(to, op)
    to.give(op.value, d, _moved(to, op, d, []))


@rule("xegpu.store_nd", "xegpu.prefetch_nd")
def store_nd(to: SubgroupDistributor, op: xegpu.StoreNdOp | xegpu.PrefetchNdOp) -> None:
    d, fragments = _cut(to, op), list[SSAValue]()
    if isinstance(op, xegpu.StoreNdOp):
        fragments = to.fragments(op.value, d, "the stored value")
    with to.when(to.first_owner(d, op.tdesc.get_shape())):
        _moved(to, op, d, fragments)


@rule("memref.store", "memref.atomic_rmw", "memref.generic_atomic_rmw")
def memref_store(to: SubgroupDistributor, op: Operation) -> None:
    """A scalar is stored by the first subgroup."""
    to.alone(op)


@rule("tw.print", "tw.breakpoint")
def debugging(to: SubgroupDistributor, op: Operation) -> None:
    """The first subgroup says what the workgroup has; it holds vectors whole."""
    mapping: dict[SSAValue, SSAValue] = {}
    for n, value in enumerate(op.operands):
        shape = own.shape_of(value)
        if shape:
            whole = own.replicated(to.subgroups, len(shape), shape)
            (mapping[value],) = to.fragments(value, whole, f"operand {n}")
        else:
            mapping[value] = to.same(value)
    with to.when(to.first()):
        to.put(op.clone(mapping))


@rule("gpu.subgroup_id")
def subgroup_id(to: SubgroupDistributor, op: Operation) -> None:
    """Text that asks which subgroup it is has a branch for some of them; every subgroup answers for itself."""
    to.env[op.results[0]] = to.ids.linear()


@rule("scf.parallel", "scf.forall", "gpu.thread_id")
def refused(to: SubgroupDistributor, op: Operation) -> None:
    raise to.refuse("in a workgroup's program has no form for one subgroup")
