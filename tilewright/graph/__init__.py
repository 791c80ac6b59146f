"""TiledGraph: a dataflow graph over a memory hierarchy.

graph = tw.graph.trace(fn, tw.graph.array(["M", 64], tw.f16), ...)    # an expression over arrays
print(graph)                                                         # readable text, saved and loaded
"""

from tilewright.graph.affine import Affine, affine
from tilewright.graph.builder import Builder
from tilewright.graph.check_macro import check_macro_kernel
from tilewright.graph.compiled import CompiledGraph
from tilewright.graph.explain import Explanation
from tilewright.graph.functions import (
    erf,
    gelu,
    indices,
    layer_norm,
    matmul,
    relu,
    rms_norm,
    rsqrt,
    scatter_add,
    sigmoid,
    silu,
    softmax,
    take,
    windows,
)
from tilewright.graph.macro import implementation, macro_kernel
from tilewright.graph.micro import micro_op
from tilewright.graph.mlir import parse_mlir
from tilewright.graph.nodes import (
    Access,
    Axis,
    Buffer,
    Gather,
    Index,
    Operation,
    Slice,
    Task,
    TiledEdge,
    TiledGraph,
    TiledNode,
)
from tilewright.graph.scan import scan
from tilewright.graph.text import load, parse_graph
from tilewright.graph.torch_program import from_torch
from tilewright.graph.trace import ArrayType, array, trace
from tilewright.graph.validate import skipped_levels, validate

__all__ = [
    "Access",
    "Affine",
    "ArrayType",
    "Axis",
    "Buffer",
    "Builder",
    "CompiledGraph",
    "Explanation",
    "Gather",
    "Index",
    "Operation",
    "Slice",
    "Task",
    "TiledEdge",
    "TiledGraph",
    "TiledNode",
    "affine",
    "array",
    "check_macro_kernel",
    "erf",
    "from_torch",
    "gelu",
    "implementation",
    "indices",
    "layer_norm",
    "load",
    "macro_kernel",
    "matmul",
    "micro_op",
    "parse_graph",
    "parse_mlir",
    "relu",
    "rms_norm",
    "rsqrt",
    "scan",
    "scatter_add",
    "sigmoid",
    "silu",
    "skipped_levels",
    "softmax",
    "take",
    "trace",
    "validate",
    "windows",
]
