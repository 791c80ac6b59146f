"""Who owns the results and operands of an op, said on the op itself, whatever its dialect.

%w = arith.addf %v, %v {layout_result_0 = #xegpu.layout<lane_layout = [1, 16], lane_data = [1, 1]>} : vector<8x16xf32>
%w = arith.addf %v, %v {map = #xetile.wg_map<sg_layout = [2, 2], sg_data = [4, 8]>} : vector<8x16xf32>
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType, VectorType
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from tilewright.dialects.strict import narrower

if TYPE_CHECKING:
    from tilewright.dialects.xegpu.layouts import Ownership
    from tilewright.dialects.xetile.attrs import WgMapAttr

_STATED = re.compile(r"layout_(result|operand)_(\d+)")
"""Attributes of ops of any dialect that say who owns a result or an operand."""
_OWNERSHIPS = ("xegpu.layout", "xegpu.slice", "xegpu.sg_map")


def verify_stated_layouts(operation: Operation) -> None:
    """The layouts and maps that an op of any dialect has for its results and operands distribute these.

    One of lanes alone may be left from a level above, where the value was the subgroup's: passes of MLIR leave them.

    Raises:
        VerifyException: for others; under `strictness(strict=True)` for these too.
    """
    from tilewright.dialects.xetile.distribution import verify_map
    from tilewright.dialects.xetile.maps import stated_maps

    for table, name, value in stated_maps(operation):
        verify_map(_shape(value.type) or (), cast("WgMapAttr", table[name]), what=name)
    for name, attribute in operation.attributes.items():
        found = _STATED.fullmatch(name)
        if found is None:
            continue
        values = operation.results if found[1] == "result" else operation.operands
        if int(found[2]) >= len(values):
            raise VerifyException(f"has the attribute '{name}', and {len(values)} {found[1]}s")
        if attribute.name not in _OWNERSHIPS:
            raise VerifyException(f"attribute '{name}' is a layout of XeGPU, not {attribute}")
        if (shape := _shape(values[int(found[2])].type)) is not None:
            from tilewright.dialects.xegpu.distribution import fault, subgroups
            from tilewright.dialects.xegpu.rules import check_ownership

            owners = cast("Ownership", check_ownership(operation, name, attribute))
            if (why := fault(owners, shape)) is not None:
                message = f"cannot distribute {list(shape)} as attribute '{name}' says: {why}"
                if subgroups(owners) is not None:
                    raise VerifyException(message)
                narrower(operation, message)


def _shape(type: Attribute) -> Sequence[int] | None:
    """The extents of what can be dealt out; None of what has none, an array or a descriptor."""
    if isinstance(type, VectorType):
        return type.get_shape()
    return () if isinstance(type, AnyFloat | IntegerType | IndexType) else None
