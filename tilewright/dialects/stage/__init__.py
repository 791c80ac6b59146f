"""The `stage` dialect: workgroup-level values with storage and order made explicit (cpu, cuda).

A kernel at this level is still the program of one workgroup over whole tiles; what is new is where values live and
when asynchronous work is done. The ops of the cpu target, which loads no others, stand in `dialects/fused`;
`multi_buffers`, `products` and `roles` hold those of cuda: copies into multi-buffers in shared memory, products that
run beside the program, and parts of the program that different warps run at the same time; `clusters` those of
workgroups that compute one program together.
"""

# pyright: reportUnusedImport=false
from tilewright.dialects.fields import dialect
from tilewright.dialects.fused import (
    ContractOp,
    FusedOp,
    PackOp,
    PanelOp,
    PanelsType,
    YieldOp,
)
from tilewright.dialects.stage.multi_buffers import (
    AdvanceOp,
    CopyIssueOp,
    CopyReleaseOp,
    CopyStoreOp,
    CopyWaitOp,
    DeallocOp,
    GatherIssueOp,
    LocalStoreOp,
    MultiBufferOp,
    PipelineStateOp,
    ReadOp,
    ReadPartOp,
)
from tilewright.dialects.stage.products import (
    PendingType,
    ProductIssueOp,
    ProductStartOp,
    ProductWaitOp,
)
from tilewright.dialects.stage.programs import (
    CLUSTER,
    ClusterSumOp,
    ProgramsOp,
    RankOp,
    WorkerOp,
    cluster_size,
)
from tilewright.dialects.stage.roles import (
    PingPongAcquireOp,
    PingPongReleaseOp,
    RoleOp,
    RolesOp,
    SchedBarrierOp,
)
from tilewright.dialects.stage.types import MultiBufferType, PartAttr, PipelineStateType

STAGE = dialect("stage", globals())
