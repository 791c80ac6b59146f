"""Who owns the results and operands of an op, said on the op itself, whatever its dialect.

%w = arith.addf %v, %v {layout_result_0 = #xegpu.layout<lane_layout = [1, 16]>} : vector<8x16xf32>
"""

from __future__ import annotations

import re

from xdsl.ir import Operation

_STATED = re.compile(r"layout_(result|operand)_(\d+)")
"""Attributes of ops of any dialect that say who owns a result or an operand."""
_OWNERSHIPS = ("xegpu.layout", "xegpu.slice", "xegpu.sg_map")


def stray_layout(operation: Operation) -> str | None:
    """What is wrong with the layouts that an op of any dialect has for its results and operands."""
    for name, attribute in operation.attributes.items():
        found = _STATED.fullmatch(name)
        if found is None:
            continue
        values = operation.results if found[1] == "result" else operation.operands
        if int(found[2]) >= len(values):
            return f"has the attribute '{name}', and {len(values)} {found[1]}s"
        if attribute.name not in _OWNERSHIPS:
            return f"attribute '{name}' is a layout of XeGPU, not {attribute}"
    return None
