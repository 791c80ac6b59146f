"""Fills the common table of the printer: importing this module imports every module that prints
ops.
"""

from tilewright.codegen import (
    arith,
    math,
    memory,
    memrefs,
    reductions,
    structure,
    transfers,
    vectors,
)
from tilewright.codegen.instructions import table

__all__ = [
    "arith",
    "math",
    "memory",
    "memrefs",
    "reductions",
    "structure",
    "table",
    "transfers",
    "vectors",
]
