"""What the rules of XeGPU's ops share: shapes in messages, cache hints, ownership attributes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IntegerAttr, IntegerType, MemRefType
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.cache_hints import LEVELS
from tilewright.dialects.strict import narrower
from tilewright.dialects.xegpu import distribution
from tilewright.dialects.xegpu.attrs import CacheHintAttr, MemorySpace
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership, SgMapAttr, SliceAttr
from tilewright.dialects.xegpu.types import TensorDescType

if TYPE_CHECKING:
    from tilewright.dialects.xegpu import block, scatter

READ_HINTS = frozenset({"cached", "uncached", "streaming", "read_invalidate"})
WRITE_HINTS = frozenset({"cached", "uncached", "write_back", "write_through"})
RFC_WRITE_HINTS = WRITE_HINTS | {"streaming"}


def source_space(source: MemRefType) -> MemorySpace:
    """Where a memref lives."""
    space = source.memory_space
    if isinstance(space, IntegerAttr):
        return MemorySpace.SLM if space.value.data == 3 else MemorySpace.GLOBAL
    shared = "slm" in str(space) or "workgroup" in str(space)
    return MemorySpace.SLM if shared else MemorySpace.GLOBAL


def check_base(source: Attribute, tdesc: TensorDescType | None = None, row: str = "") -> None:
    """A base is a memref, of its descriptor's memory and elements, or an address; `row`: it has at most one dimension,
    and what it is called."""
    if not isinstance(source, MemRefType):
        if not (isinstance(source, IntegerType) and source.width.data in (32, 64)):
            raise VerifyException(
                f"source must be a memref or a 32- or 64-bit address, got {source}"
            )
        return
    if tdesc is not None and (space := source_space(source)) is not tdesc.space:
        raise VerifyException(
            f"Memory space mismatch. Source: {space.value}, TensorDesc: {tdesc.space.value}"
        )
    if tdesc is not None and source.element_type != tdesc.element_type:
        raise VerifyException(
            "TensorDesc should have the same element type with the source if it is a memref, got "
            f"{tdesc.element_type} and {source.element_type}."
        )
    if row and len(source.get_shape()) > 1:
        raise VerifyException(f"operand #0 must be {row}, got {source}")


def check_scattered(tdesc: TensorDescType, scattered: bool) -> None:
    if tdesc.scattered != scattered:
        raise VerifyException(f"Expects a {'' if scattered else 'non-'}scattered TensorDesc.")


def brackets(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


def check_hints(
    op: block.BlockAccess | scatter.ScatterAccess, allowed: frozenset[str], rfc: frozenset[str]
) -> None:
    for name in LEVELS:
        value = getattr(op, name)
        if isinstance(value, CacheHintAttr) and value.kind not in allowed:
            message = f"invalid {name}: #xegpu.cache_hint<{value.kind}>"
            if value.kind not in rfc:
                raise VerifyException(message)
            narrower(op, message)


def check_ownership(op: Operation, name: str, attribute: Attribute | None) -> Ownership | None:
    if attribute is None:
        return None
    if not isinstance(attribute, (LayoutAttr, SliceAttr, SgMapAttr)):
        raise VerifyException(
            f"expected a layout, a slice or an sg_map for {name}, got {attribute}"
        )
    root = attribute.flatten()[0] if isinstance(attribute, SliceAttr) else attribute
    for level in ("sg", "lane"):
        grid, data = f"{level}_layout", f"{level}_data"
        if isinstance(root, LayoutAttr) and (root.field(grid) is None) != (
            root.field(data) is None
        ):
            narrower(op, f"{grid} and {data} must be used together")
    return attribute


def check_sg_map(
    op: block.BlockAccess | scatter.ScatterAccess, what: str, given: tuple[int, ...], whole: bool
) -> bool:
    """Whether an sg_map makes the op one of lanes, whose value is what a lane owns: `[units, packed]`.

    The RFC shows that value only; in a row, and the whole block of a subgroup, are read too.
    """
    tdesc, sg_map = op.tdesc, op.ownership
    if tdesc is None or not isinstance(sg_map, SgMapAttr):
        return False
    shape = tdesc.get_shape()
    blocks = shape if tdesc.array_length == 1 else (tdesc.array_length, *shape)
    owned = distribution.fragment_shape(sg_map, blocks)
    shown = owned[1:] if tdesc.scattered and len(shape) == 1 else owned
    words = (
        f"{what} shape {brackets(given)} is not consistent with distributed vector shape "
        f"{brackets(shown)} for tensor descriptor {tdesc}"
    )
    if not whole and given not in (owned, (prod(owned),)):
        raise VerifyException(words)
    if given != shown:
        narrower(op, words)
    return True
