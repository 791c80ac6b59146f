"""Which arrays of a kernel may share bytes, and which it only reads."""

from __future__ import annotations

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from tilewright.dialects import xetile as xt
from tilewright.passes.memory_objects import (
    is_allocation,
    is_array_argument,
    is_moved,
    may_write,
    memory_root,
)

WIDEST = 16
"""Bytes of the widest access, to which allocations are aligned."""


def facts_of(argument: SSAValue) -> DictionaryAttr | None:
    """The `tilewright.args` entry of a kernel's argument."""
    if not isinstance(argument, BlockArgument):
        return None
    function = argument.block.parent_op()
    if not isinstance(function, gpu.FuncOp):
        return None
    entries = function.attributes.get("tilewright.args")
    if not isinstance(entries, ArrayAttr) or argument.index >= len(entries.data):
        return None
    entry = entries.data[argument.index]
    return entry if isinstance(entry, DictionaryAttr) else None


def alignment_of(argument: SSAValue, default: int) -> int:
    """Bytes that divide an array's address and its strides but the unit one."""
    facts = facts_of(argument)
    found = facts.data.get("align") if facts is not None else None
    return found.value.data if isinstance(found, IntegerAttr) else default


def tile_alignment(tile: SSAValue, default: int) -> int:
    """Bytes that divide the address of a tile's matrix and its strides but the unit one."""
    from tilewright.targets.cuda.ownership import origin_of

    origin = origin_of(tile)
    if origin is None:
        return 1
    if is_moved(origin.source):
        return default
    root = memory_root(origin.source)
    return WIDEST if is_allocation(root) else alignment_of(root, default)


def divisors_of(argument: SSAValue, rank: int) -> list[int]:
    """What is known to divide each extent."""
    facts = facts_of(argument)
    found = facts.data.get("div") if facts is not None else None
    if isinstance(found, ArrayAttr):
        return [x.value.data if isinstance(x, IntegerAttr) else 1 for x in found.data]
    return [1] * rank


def may_alias(a: object, b: object) -> bool:
    """Whether two memory roots may share bytes. `object` stands for an SSA value or the unknown."""
    if a is b:
        return True
    if not isinstance(a, SSAValue) or not isinstance(b, SSAValue):
        return True
    if is_allocation(a) or is_allocation(b):
        return False
    if is_array_argument(a) and is_array_argument(b):
        return not any(_noalias(x) for x in (a, b))
    return True


def _noalias(argument: SSAValue) -> bool:
    facts = facts_of(argument)
    return facts is not None and "noalias" in facts.data


def root_of(tile: SSAValue) -> SSAValue | None:
    """The root of the memory that a tile lies in; None if it is not known."""
    from tilewright.targets.cuda.ownership import origin_of

    origin = origin_of(tile)
    return memory_root(origin.source) if origin is not None else None


def written_roots(region: Operation) -> list[SSAValue | None]:
    """Roots of what the ops inside an op may write (None: anything)."""
    found: list[SSAValue | None] = []
    for op in region.walk():
        if isinstance(op, xt.StoreTileOp | xt.StoreScatterOp | xt.AtomicRmwOp):
            found.append(root_of(op.tile))
        elif op.name.startswith(("memref.", "vector.", "func.")) and may_write(op):
            found.append(None)
    return found


def is_read_only(tile: SSAValue) -> bool:
    """Does nothing in the kernel write what a tile lies in?"""
    root = root_of(tile)
    if root is None or not is_array_argument(root):
        return False
    kernel = root.owner.parent_op()  # pyright: ignore
    assert isinstance(kernel, Operation)
    return not any(w is None or may_alias(w, root) for w in written_roots(kernel))
