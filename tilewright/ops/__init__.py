"""Ready-made kernels, written in the tile language alone: no target has a door for them.

Each takes numpy arrays, torch tensors or anything else that a kernel takes, and returns a new array of the
same kind (or fills `out`).  A kernel of this package copied into a user's file compiles to the same code.
"""

from tilewright.ops.attention import attention
from tilewright.ops.matmul import matmul
from tilewright.ops.norm import layer_norm, rms_norm
from tilewright.ops.softmax import softmax

__all__ = ["attention", "layer_norm", "matmul", "rms_norm", "softmax"]
