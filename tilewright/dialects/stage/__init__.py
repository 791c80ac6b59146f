"""The `stage` dialect: workgroup-level values with storage and order made explicit (cpu, cuda).

A kernel at this level is still the program of one workgroup over whole tiles; what is new is where values live and
when asynchronous work is done. `strips` holds the ops of the cpu target; `rings`, `products` and `roles` those of
cuda: copies into rings of shared-memory buffers, products that run beside the program, and parts of the program that
different warps run at the same time; `clusters` those of workgroups that compute one program together.
"""

from xdsl.ir import Dialect

from tilewright.dialects.stage.clusters import ClusterSumOp, RankOp
from tilewright.dialects.stage.products import (
    PendingType,
    ProductIssueOp,
    ProductStartOp,
    ProductWaitOp,
)
from tilewright.dialects.stage.programs import CLUSTER, ProgramsOp, WorkerOp, cluster_size
from tilewright.dialects.stage.puts import PutOp
from tilewright.dialects.stage.rings import (
    AdvanceOp,
    CopyIssueOp,
    CopyReleaseOp,
    CopyWaitOp,
    CursorOp,
    CursorType,
    PartAttr,
    ReadOp,
    ReadPartOp,
    RingOp,
    RingType,
    StoreOp,
)
from tilewright.dialects.stage.roles import PassTurnOp, RoleOp, RolesOp, TakeTurnOp
from tilewright.dialects.stage.strips import (
    ContractOp,
    PackOp,
    PanelOp,
    PanelsType,
    StripOp,
    YieldOp,
)

STAGE = Dialect(
    "stage",
    [
        *(YieldOp, StripOp, ContractOp, PackOp, PanelOp),
        *(RingOp, CursorOp, AdvanceOp, CopyIssueOp, CopyWaitOp, CopyReleaseOp, ReadOp),
        *(
            ReadPartOp,
            StoreOp,
            ProductIssueOp,
            ProductStartOp,
            ProductWaitOp,
            RolesOp,
            RoleOp,
            WorkerOp,
            ProgramsOp,
            TakeTurnOp,
            PassTurnOp,
            RankOp,
            PutOp,
            ClusterSumOp,
        ),
    ],
    [PanelsType, PartAttr, RingType, CursorType, PendingType],
)

__all__ = [
    "CLUSTER",
    "STAGE",
    "AdvanceOp",
    "ClusterSumOp",
    "ContractOp",
    "CopyIssueOp",
    "CopyReleaseOp",
    "CopyWaitOp",
    "CursorOp",
    "CursorType",
    "PackOp",
    "PanelOp",
    "PanelsType",
    "PartAttr",
    "PassTurnOp",
    "PendingType",
    "ProductIssueOp",
    "ProductStartOp",
    "ProductWaitOp",
    "ProgramsOp",
    "PutOp",
    "RankOp",
    "ReadOp",
    "ReadPartOp",
    "RingOp",
    "RingType",
    "RoleOp",
    "RolesOp",
    "StoreOp",
    "StripOp",
    "TakeTurnOp",
    "WorkerOp",
    "YieldOp",
    "cluster_size",
]
