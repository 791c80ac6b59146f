"""What the rules of XeGPU's ops share: shapes in messages, cache hints, ownership attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import (
    MemRefType,
    VectorType,
)
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.cache_hints import LEVELS
from tilewright.dialects.strict import narrower
from tilewright.dialects.xegpu.attrs import CacheHintAttr
from tilewright.dialects.xegpu.layouts import LayoutAttr, Ownership, SgMapAttr, SliceAttr

if TYPE_CHECKING:
    from tilewright.dialects.xegpu import block, scatter

READ_HINTS = frozenset({"cached", "uncached", "streaming", "read_invalidate"})
WRITE_HINTS = frozenset({"cached", "uncached", "write_back", "write_through"})
RFC_WRITE_HINTS = WRITE_HINTS | {"streaming"}


def brackets(shape: Sequence[int]) -> str:
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


def vector_shape(type: Attribute) -> tuple[int, ...]:
    """() for a scalar."""
    return type.get_shape() if isinstance(type, VectorType) else ()


def element_of(type: Attribute) -> Attribute:
    return type.element_type if isinstance(type, (VectorType, MemRefType)) else type


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


def check_ownership(name: str, attribute: Attribute | None) -> Ownership | None:
    if attribute is None:
        return None
    if not isinstance(attribute, (LayoutAttr, SliceAttr, SgMapAttr)):
        raise VerifyException(
            f"expected a layout, a slice or an sg_map for {name}, got {attribute}"
        )
    return attribute
