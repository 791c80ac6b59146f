"""Which memory an op touches: objects that memrefs are views of, and ops that may write them.

Also which arguments a kernel may write: a read-only array is refused where it would store, before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from xdsl.dialects import arith, gpu, memref
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    NoneAttr,
    UnitAttr,
)
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue
from xdsl.traits import (
    MemoryEffect,
    MemoryEffectKind,
    NoMemoryEffect,
    get_effects,
    is_side_effect_free,
)

from tilewright.dialects.effects import CACHES, ORDER, memory_effects, own_effects, written
from tilewright.dialects.kernel_attributes import ARGS
from tilewright.dialects.upstream.gpu.memory import memory_space_number
from tilewright.dialects.upstream.memref import TransposeOp
from tilewright.frozen import frozen
from tilewright.passes.carried import given_by, origins, reached

_VIEWS = (
    memref.CastOp,
    memref.MemorySpaceCastOp,
    memref.ReinterpretCastOp,
    memref.SubviewOp,
    memref.ViewOp,
    memref.ExpandShapeOp,
    memref.CollapseShapeOp,
    memref.ExtractStridedMetaDataOp,
)
_ADDRESS_CASTS = ("arith.index_cast", "arith.index_castui", "index.castu", "index.casts")
_ALLOCATIONS = (memref.AllocOp, memref.AllocaOp)


def memory_root(value: SSAValue) -> SSAValue:
    """What a memref is a view of: a kernel argument, an allocation, an address, or a value that hides
    its origin (a carried or selected memref), which may be a view of anything."""
    while (array := viewed(value)) is not None:
        value = array
    return value


def memory_roots(value: SSAValue) -> list[SSAValue]:
    """What a memref may be a view of, whatever loops, branches and selections choose: the `memory_root` of each."""
    return origins([value], points_into)


def points_into(value: SSAValue) -> tuple[SSAValue, ...]:
    """The memrefs that a memref, or an address in an integer, is a view of, or one of; nothing for a root."""
    array = viewed(value)
    return chosen_from(value) if array is None else (array,)


def viewed(value: SSAValue) -> SSAValue | None:
    """The memref that another is a view of, or whose address an integer is; None where there is none."""
    if isinstance(value, OpResult) and isinstance(value.op, _VIEWS):
        return value.op.operands[0]
    return _addressed(value)


def chosen_from(value: SSAValue) -> tuple[SSAValue, ...]:
    """The values one of which a loop, a branch or a selection gives; nothing for any other."""
    if isinstance(value.owner, arith.SelectOp):
        return value.owner.lhs, value.owner.rhs
    return given_by(value)


def _addressed(value: SSAValue) -> SSAValue | None:
    """The memref whose address an integer is, without arithmetic on it."""
    while isinstance(value, OpResult) and value.op.name in _ADDRESS_CASTS:
        value = value.op.operands[0]
    if isinstance(value, OpResult) and isinstance(value.op, memref.ExtractAlignedPointerAsIndexOp):
        return value.op.operands[0]
    return None


def is_allocation(root: SSAValue) -> bool:
    return isinstance(root, OpResult) and isinstance(root.op, _ALLOCATIONS)


def is_array_argument(root: SSAValue) -> bool:
    """Whether a root is a memref argument of the kernel."""
    if not isinstance(root, BlockArgument) or not isinstance(root.type, MemRefType):
        return False
    func = root.block.parent_op()
    return isinstance(func, gpu.FuncOp) and root.block is func.body.blocks.first


def is_memref(value: SSAValue) -> bool:
    return isinstance(value.type, MemRefType)


def memory_space(root: SSAValue) -> int | None:
    """Memory space of a memref (0 global, 3 shared local); None for a raw address."""
    return memory_space_number(root.type) if isinstance(root.type, MemRefType) else None


@frozen
class ArgFacts:
    """What specialisation promises of an array argument (`tilewright.args`, see the cache key).

    ``align``: power-of-two alignment in bytes of base and non-unit strides. ``div``: per dimension a
    power of two that divides the extent. ``noalias``: overlaps no other argument, and its rows not one another.
    """

    align: int = 1
    div: tuple[int, ...] = ()
    noalias: bool = False


def promised(source: SSAValue) -> DictionaryAttr | None:
    """The kernel's `tilewright.args` entry of an argument, or of a transpose of one with extents in its order.

    None for other values and for text without facts.
    """
    if isinstance(source, OpResult) and isinstance(source.op, TransposeOp):
        entry = promised(source.op.in_)
        div = None if entry is None else entry.data.get("div")
        if entry is None or not isinstance(div, ArrayAttr):
            return entry
        turned = ArrayAttr(div.data[d] for d in source.op.permutation)
        return DictionaryAttr({**entry.data, "div": turned})
    if not isinstance(source, BlockArgument):
        return None
    kernel = source.owner.parent_op()
    facts = kernel.attributes.get(ARGS) if isinstance(kernel, gpu.FuncOp) else None
    if not isinstance(facts, ArrayAttr) or source.index >= len(facts.data):
        return None
    entry = facts.data[source.index]
    return entry if isinstance(entry, DictionaryAttr) else None


def arg_facts(source: SSAValue, align: int = 1) -> ArgFacts:
    """What is promised of an array; of text that promises no alignment, `align` is taken for granted."""
    entry = promised(source)
    if entry is None:
        return ArgFacts(align, noalias=_says_noalias(source))
    known, div = entry.data.get("align"), entry.data.get("div")
    given = div.data if isinstance(div, ArrayAttr) else ()
    if isinstance(div, DenseArrayBase):
        numbers = tuple(int(x) for x in div.get_values())
    else:
        numbers = tuple(x.value.data if isinstance(x, IntegerAttr) else 1 for x in given)
    return ArgFacts(
        known.value.data if isinstance(known, IntegerAttr) else align,
        numbers,
        isinstance(entry.data.get("noalias"), UnitAttr) or _says_noalias(source),
    )


def _says_noalias(source: SSAValue) -> bool:
    """Whether text says of an argument that it overlaps no other one: `%a: memref<8xf32> {llvm.noalias}`."""
    if not isinstance(source, BlockArgument):
        return False
    kernel = source.owner.parent_op()
    arg_attrs = kernel.attributes.get("arg_attrs") if isinstance(kernel, gpu.FuncOp) else None
    own = arg_attrs.data[source.index] if isinstance(arg_attrs, ArrayAttr) else None
    return isinstance(own, DictionaryAttr) and "llvm.noalias" in own.data


def may_alias(a: object, b: object) -> bool:
    """Whether two roots may share memory: by space, allocation and the `noalias` facts. What is no value is unknown."""
    if a is b or not isinstance(a, SSAValue) or not isinstance(b, SSAValue):
        return True
    spaces = memory_space(a), memory_space(b)
    if None not in spaces and spaces[0] != spaces[1]:
        return False
    if not all(is_allocation(r) or is_array_argument(r) for r in (a, b)):
        return True
    if is_allocation(a) or is_allocation(b):
        return False
    return not (arg_facts(a).noalias or arg_facts(b).noalias)


def may_overlap_itself(root: SSAValue) -> bool:
    """Whether rows of an array may share memory: strides that a launch gives, unless it promises (`noalias`)."""
    plain = isinstance(root.type, MemRefType) and isinstance(root.type.layout, NoneAttr)
    return not (plain or is_allocation(root) or arg_facts(root).noalias)


def is_pure(op: Operation) -> bool:
    """Whether the results depend on nothing but the operands, and nothing else happens."""
    return _have_no_effects(type(op)) or is_side_effect_free(op)


@cache
def _have_no_effects(kind: type[Operation]) -> bool:
    """Whether the traits of a class say so of all its ops."""
    said = kind.get_traits_of_type(MemoryEffect)
    return bool(said) and all(isinstance(each, NoMemoryEffect) for each in said)


def is_quiet(op: Operation) -> bool:
    """Whether nobody sees when, or how often, an op runs: it is pure, or a prefetch."""
    if _have_no_effects(type(op)):
        return True
    effects = get_effects(op)
    return effects is not None and all(each.resource == CACHES for each in effects)


def may_write(op: Operation) -> bool:
    """Whether an op may write memory (its regions not counted)."""
    effects = memory_effects(op)
    return effects is None or MemoryEffectKind.WRITE in effects


def orders(op: Operation) -> bool:
    """Whether an op orders what others do before it and after it (its regions not counted): a barrier, a wait."""
    return any(each.resource == ORDER for each in own_effects(op) or ())


def may_read(op: Operation) -> bool:
    """Whether an op may read memory that others write (its regions not counted)."""
    effects = memory_effects(op)
    return effects is None or MemoryEffectKind.READ in effects


def named_roots(op: Operation) -> list[SSAValue] | None:
    """Roots of the memrefs that an op names; None if it may touch any memory."""
    named = [memory_root(v) for v in op.operands if is_memref(v)]
    return named if named and not op.name.startswith("func.") else None


def stored_arguments(kernel: gpu.FuncOp) -> frozenset[int]:
    """Positions of the arguments that some op may write through: an upper bound."""
    entry = kernel.body.blocks.first
    values = reached((v for op in kernel.walk() for v in written(op)), _sources)
    arguments = (v for v in values if isinstance(v, BlockArgument) and v.block is entry)
    return frozenset(v.index for v in arguments)


def _sources(value: SSAValue) -> Sequence[SSAValue]:
    """What an address may be made from: of a loop or branch, all that it got, or that its regions give.

    A tile or descriptor points where its first operand points (init_tile, casts, update_tile_offset); an address in
    an integer may come from any operand.
    """
    if found := points_into(value):
        return found
    op = value.owner.parent_op() if isinstance(value.owner, Block) else value.owner
    if op is None or isinstance(op, gpu.FuncOp):
        return ()
    if op.regions:
        ends = (block.last_op for region in op.regions for block in region.blocks)
        given = (v for each in (op, *ends) if each is not None for v in each.operands)
        return [v for v in given if v.type == value.type]
    return op.operands if isinstance(value.type, IndexType | IntegerType) else op.operands[:1]
