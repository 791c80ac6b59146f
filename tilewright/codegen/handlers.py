"""Fills the common table of the printer: importing this module imports every module that prints ops."""

from tilewright.codegen import (
    affine,
    arith,
    cf,
    func,
    math,
    memory,
    memrefs,
    printing,
    reductions,
    scf,
    transfers,
    vectors,
)
from tilewright.codegen.instructions import table

__all__ = [
    "affine",
    "arith",
    "cf",
    "func",
    "math",
    "memory",
    "memrefs",
    "printing",
    "reductions",
    "scf",
    "table",
    "transfers",
    "vectors",
]
