"""The XeTile dialect: tiles of matrices as values, and the ops of tile programs.

`spec/xetile-rfc.md` defines it; `docs/xetile.md` lists what is read and what is printed.
"""

# pyright: reportUnusedImport=false
from tilewright.dialects.fields import dialect
from tilewright.dialects.xetile.aliases import ALIASES
from tilewright.dialects.xetile.attrs import (
    CacheHint,
    CacheHintAttr,
    SgMapAttr,
    TileAttr,
    WgMapAttr,
    XeMapAttr,
)
from tilewright.dialects.xetile.compute import (
    BroadcastOp,
    ConvertLayoutOp,
    ReductionOp,
    TransposeOp,
)
from tilewright.dialects.xetile.init import InitTileOp, UpdateTileOffsetOp
from tilewright.dialects.xetile.kinds import ATOMIC_KINDS, REDUCTION_KINDS
from tilewright.dialects.xetile.memory import (
    AtomicRmwOp,
    LoadGatherOp,
    LoadTileOp,
    PrefetchTileOp,
    StoreScatterOp,
    StoreTileOp,
)
from tilewright.dialects.xetile.mma import TileMmaOp
from tilewright.dialects.xetile.types import TileType

XeTile = dialect("xetile", globals(), *ALIASES)
