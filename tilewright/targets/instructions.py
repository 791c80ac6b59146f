"""The table of instructions, whose entries are the meaning of `mach.instr` and `mach.each` in the executor."""

from __future__ import annotations

from tilewright.codegen.instructions import find
from tilewright.codegen.instructions.table import check_each
from tilewright.codegen.printer import unsupported
from tilewright.dialects.mach import EachOp
from tilewright.reference.registry import INSTRUCTIONS, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array

INSTRUCTIONS.append(find)


@meaning("mach.each")
def each(site: Site, op: EachOp, *operands: Array) -> Array:
    """One element after the other, whatever machine has the instruction."""
    entry = find(op.instruction)
    if entry is None:
        raise unsupported(op, f"there is no instruction '{op.instruction}' in the table")
    check_each(op, entry)
    (result,) = entry.meaning(*operands)
    return result
