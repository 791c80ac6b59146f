"""A Triton kernel, in a file of its own: importing it needs Triton."""

# pyright: reportMissingParameterType=false, reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportUntypedFunctionDecorator=false

import triton
import triton.language as tl


@triton.jit
def add(x, y, z, N: tl.constexpr):
    """z = x + y of N elements in one program."""
    at = tl.arange(0, N)
    tl.store(z + at, tl.load(x + at) + tl.load(y + at))
