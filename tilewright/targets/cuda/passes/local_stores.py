"""local-stores: right operands that the program computes are written to multi-buffers in shared memory, where
warpgroups read them.

    %x = stage.copy.wait %buffer[%c]                     %x = stage.copy.wait %buffer[%c]
    %b = f(%x)                                         %b = f(%x)
    %d = xetile.tile_mma %a, %b, %acc           ->     stage.local_store %slots[%p], %b
                                                       %s = stage.copy.wait %slots[%p]
                                                       %d = xetile.tile_mma %a, %s, %acc
                                                       stage.copy.release %slots[%p]
                                                       %n = stage.advance %p     (carried by every loop around)

Requires: multi-buffers formed. Guarantees: the same results.

Takes part: a product that a warpgroup instruction can do but for its B: what is computed (dequantised weights, a state
that a loop carries, a mask), what the copy engine cannot address, and lines across k of types that are not of 16 bits.
It is written where its block first needs it, and stays until that block's last product of
it: so a value from outside of a loop is written once. Two slots in a loop: the next is written while a product reads
the one before.

Elements of 4 bytes whose left operands threads hold are written deinterleaved along k: four lanes of a product then
hold every other element of k of the left operand, which lie in different banks of shared memory where lines run
along m (neighbouring lines do not, by the swizzle), and side by side where they run along k.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from xdsl.dialects import gpu, scf
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Block, Operation, OpResult, SSAValue

from tilewright import dtypes
from tilewright.dialects import stage, xetile
from tilewright.dialects.movement import shape_of
from tilewright.dialects.nesting import enclosing, ops_around
from tilewright.dialects.stage.multi_buffers import buffer_type
from tilewright.passes.carried import earlier, later
from tilewright.passes.emit import Before, Behind
from tilewright.passes.loops import Update, carry
from tilewright.targets.cuda.passes.async_mma import readable, staged
from tilewright.targets.cuda.passes.tf32_rounding import loaded
from tilewright.targets.cuda.passes.wgmma_legality import (
    sources,
    through_transposes,
    unsuited,
    warpgroups,
)
from tilewright.uarch.base import Machine


@dataclass(eq=False)
class OperandStore:
    """One value that products take from the right, and where its block first and last needs it."""

    value: SSAValue
    part: stage.PartAttr
    first: Operation
    last: Operation
    products: list[xetile.TileMmaOp] = field(default_factory=list[xetile.TileMmaOp])

    @property
    def slots(self) -> int:
        return 2 if enclosing(self.block, scf.ForOp) is not None else 1

    @property
    def block(self) -> Block:
        block = self.first.parent
        assert block is not None
        return block


def store_operands(function: gpu.FuncOp, machine: Machine) -> int:
    """Stores computed right operands to multi-buffers, too. Returns how many values are written."""
    found = list(_operand_stores(function, machine))
    top = function.body.block
    for store in found:
        buffer, state = new_buffer(top, store.slots, [store.part], "stores")
        update: Update = partial(_write, store, buffer)
        carry(state, {store.first: update}, top)
    return len(found)


def stored_operand_bytes(
    function: gpu.FuncOp, machine: Machine, copied: Collection[Operation]
) -> int:
    """Shared memory that `store_operands` will take, where these loads go through multi-buffers."""
    found = _operand_stores(function, machine, copied)
    return sum(stage.MultiBufferType(p.slots, [p.part]).slot_bytes * p.slots for p in found)


def must_store(op: xetile.TileMmaOp) -> bool:
    """Can no instruction read the product's B as the copy engine would bring it?

    It is computed, or its lines run across k, which only 16-bit types may.
    """
    source = through_transposes(op.b)
    assert isinstance(source.type, VectorType)
    if dtypes.from_mlir(source.type.element_type).itemsize == 2:
        return loaded(source) is None and not isinstance(source.owner, stage.CopyWaitOp)
    if (load := loaded(source)) is not None:
        return load.tile_type.order != _along_k(op)
    if isinstance(source.owner, stage.CopyWaitOp):
        parts = buffer_type(source.owner.buffer).parts.data
        part = parts[list[SSAValue](source.owner.values).index(source)]
        return part.row_major != (_along_k(op) == (1, 0))
    return True


def is_stored(op: xetile.TileMmaOp, machine: Machine) -> bool:
    """Can a warpgroup do a product whose B threads write?"""
    return unsuited(op, machine) is None and can_store(op)


def can_store(op: xetile.TileMmaOp) -> bool:
    """Can the product's B be written to a multi-buffer?"""
    return _part(op) is not None and reachable(op)


def _operand_stores(
    function: gpu.FuncOp, machine: Machine, copied: Collection[Operation] = ()
) -> Iterator[OperandStore]:
    found: dict[SSAValue, OperandStore] = {}
    groups = warpgroups(function)
    for op in list(function.walk()):
        if not isinstance(op, xetile.TileMmaOp) or unsuited(op, machine, groups) is not None:
            continue
        source = through_transposes(op.b)
        there = isinstance(source.owner, stage.CopyWaitOp) or loaded(source) in copied
        part = _part(op)
        gathered = isinstance(source.owner, xetile.LoadGatherOp) and source.owner in copied
        if gathered or (there and not must_store(op)) or part is None or not reachable(op):
            continue
        assigned = source.owner if isinstance(source.owner, Block) else source.owner.parent
        assert assigned is not None
        here = assigned.find_ancestor_op_in_block(op)
        assert here is not None
        store = found.get(source)
        if store is None:
            store = found[source] = OperandStore(source, part, here, here)
        elif store.part != part:
            continue
        store.first, store.last = earlier(store.first, here), later(store.last, here)
        store.products.append(op)
    for store in found.values():
        if store.part.itemsize == 4 and all(_is_held(op.a) for op in store.products):
            store.part = store.part.replaced(deinterleaved=True)
        yield store


def _is_held(a: SSAValue) -> bool:
    """Do threads hold a left operand, because the instruction cannot read it as it lies?"""
    return staged(a) is None or readable(a, 1) is None


def reachable(op: Operation) -> bool:
    """Do only loops with a counter and branches stand around an op? A pipeline state is carried through those."""
    around = takewhile(lambda each: not isinstance(each, gpu.FuncOp), ops_around(op))
    return all(isinstance(each, scf.ForOp | scf.IfOp) for each in around)


def _along_k(op: xetile.TileMmaOp) -> tuple[int, int]:
    """The order in which the lines of B, as it was before transposes, run along k."""
    turned = sum(1 for _ in _transposes(op.b)) % 2 == 1
    return (1, 0) if turned else (0, 1)


def _part(op: xetile.TileMmaOp) -> stage.PartAttr | None:
    """How B lies in a slot: its lines run as those of the memory that it comes from, along k where they must."""
    source = through_transposes(op.b)
    assert isinstance(source.type, VectorType)
    shape, element = source.type.get_shape(), source.type.element_type
    itemsize = dtypes.from_mlir(element).itemsize
    orders = [_along_k(op)] if itemsize != 2 else [_order(source), (1, 0), (0, 1)]
    for order in orders:
        lines, line = shape if order == (1, 0) else shape[::-1]
        for width in (128, 64, 32):
            if line * itemsize % width == 0 and lines % 8 == 0:
                return stage.PartAttr(shape, element, order, width)
    return None


def _transposes(value: SSAValue) -> Iterator[Operation]:
    source = through_transposes(value)
    while value is not source:
        assert isinstance(value, OpResult)
        yield value.op
        value = value.op.operands[0]


def _order(value: SSAValue) -> tuple[int, int]:
    """The order of the memory that a value is computed from, element by element; row-major where there is none."""
    for owner in sources(value):
        if isinstance(owner, stage.CopyWaitOp):
            parts = owner.buffer.type.parts.data  # pyright: ignore
            return next(
                (
                    (1, 0) if p.row_major else (0, 1)
                    for p in parts
                    if p.get_shape() == shape_of(value)
                ),
                (1, 0),
            )
        if isinstance(owner, xetile.LoadTileOp) and owner.tile_type.get_shape() == shape_of(value):
            return owner.tile_type.order
    return (1, 0)


def _write(store: OperandStore, buffer: stage.MultiBufferOp, here: SSAValue) -> SSAValue:
    """Writes the value at pipeline state `here`, and gives it to its products from there; the pipeline state after
    it.
    """
    at, wait = Before(store.first), stage.CopyWaitOp(buffer.result, here)
    at.insert(stage.LocalStoreOp(buffer.result, here, store.value))
    at.insert(wait)
    wait.values[0].name_hint = store.value.name_hint
    for op in store.products:
        value: SSAValue = wait.values[0]
        for each in reversed(list(_transposes(op.b))):
            value = Before(op).add(each.clone({each.operands[0]: value}))
        op.operands[1] = value
    return hand_back(buffer, here, store.last)


def new_buffer(
    top: Block, slots: int, parts: Sequence[stage.PartAttr], name: str
) -> tuple[stage.MultiBufferOp, SSAValue]:
    """A multi-buffer and its first pipeline state, at the start of a function."""
    assert top.first_op is not None
    at, buffer = Before(top.first_op), stage.MultiBufferOp(stage.MultiBufferType(slots, parts))
    at.insert(buffer)
    state = at.add(stage.PipelineStateOp(slots))
    buffer.result.name_hint, state.name_hint = name, "state"
    return buffer, state


def hand_back(buffer: stage.MultiBufferOp, here: SSAValue, last: Operation) -> SSAValue:
    """Gives the slot of a pipeline state back behind an op; the state after it."""
    at = Behind(last)
    at.insert(stage.CopyReleaseOp(buffer.result, here))
    return at.add(stage.AdvanceOp(here))
