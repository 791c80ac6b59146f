"""Fills the common table of the printer: importing this module imports every module that prints ops."""

from tilewright.codegen import arith, math, memory, reductions, structure, vectors
from tilewright.codegen.instructions import table

__all__ = ["arith", "math", "memory", "reductions", "structure", "table", "vectors"]
