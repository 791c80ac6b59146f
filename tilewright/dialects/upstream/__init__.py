"""What stock xDSL 0.74 lacks of MLIR's upstream dialects, one file per dialect.

`complete()` adds missing ops to the stock dialects and gives stock op classes their custom formats,
in place, so that they work in every context. Importing `tilewright.dialects` does it, and so does
loading the plug-in of stock `xdsl-opt`.
"""

from functools import cache

from tilewright.dialects.upstream import (
    affine,
    affine_expressions,
    affine_parallel,
    arith,
    builtin,
    construction,
    effects,
    flow,
    func,
    gpu,
    math,
    memref,
    reshapes,
    scf,
    scopes,
    shortcuts,
    subview,
    transfers,
    vector,
)


@cache
def complete() -> None:
    """Completes the stock dialects, once per process."""
    for part in (
        construction,
        builtin,
        func,
        arith,
        math,
        gpu,
        memref,
        scopes,
        subview,
        reshapes,
        scf,
        vector,
        flow,
        affine,
        affine_expressions,
        affine_parallel,
        transfers,
        effects,
        shortcuts,
    ):
        part.complete()


__all__ = ["complete"]
