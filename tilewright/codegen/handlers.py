"""Fills the common table of the printer: importing this module imports every module that prints ops."""

from tilewright.codegen import arith, memory, structure, vectors

__all__ = ["arith", "memory", "structure", "vectors"]
