"""The XeGPU dialect: Xe's block, scatter, matrix and barrier instructions, at every level.

`spec/xegpu-rfc.md` defines it. Three generations of its text are read, today's is printed;
`docs/xegpu.md` has the table.
"""

# pyright: reportUnusedImport=false
from tilewright.dialects.fields import dialect
from tilewright.dialects.xegpu.atomic import AtomicRMWOp
from tilewright.dialects.xegpu.attrs import (
    BlockTensorDescAttr,
    CacheHint,
    CacheHintAttr,
    FenceOpFlush,
    FenceOpFlushAttr,
    FenceScope,
    FenceScopeAttr,
    MemLayoutAttr,
    MemorySpace,
    MemorySpaceAttr,
    RangeAttr,
    ScatterTensorDescAttr,
)
from tilewright.dialects.xegpu.block import BlockAccess, LoadNdOp, PrefetchNdOp, StoreNdOp
from tilewright.dialects.xegpu.compute import (
    ConvertLayoutOp,
    DpasMxOp,
    DpasOp,
    ExtfOp,
    FloatConversion,
    LaneShuffleOp,
    TruncfOp,
)
from tilewright.dialects.xegpu.descriptors import (
    CreateDescOp,
    CreateNdDescOp,
    UpdateNdOffsetOp,
    UpdateOffsetOp,
)
from tilewright.dialects.xegpu.layouts import LayoutAttr, SgMapAttr, SliceAttr
from tilewright.dialects.xegpu.matrix import (
    CreateMemDescOp,
    LoadMatrixOp,
    MatrixAccess,
    MemDescSubviewOp,
    StoreMatrixOp,
)
from tilewright.dialects.xegpu.scatter import (
    LoadGatherOp,
    PrefetchOp,
    ScatterAccess,
    StoreScatterOp,
)
from tilewright.dialects.xegpu.sync import (
    AllocNbarrierOp,
    CompileHintOp,
    FenceOp,
    InitNbarrierOp,
    NbarrierArriveOp,
    NbarrierWaitOp,
)
from tilewright.dialects.xegpu.types import MemDescType, NbarrierType, TensorDescType

XeGPU = dialect("xegpu", globals())
