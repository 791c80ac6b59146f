"""gpu: custom formats of all its ops, and the ops that stock xDSL lacks.

Stock xDSL defines the gpu ops without any custom format. They get MLIR's here: ids and sizes,
device memory, launches, functions. New ops: shuffle, subgroup_reduce, printf, memset,
dynamic_shared_memory; new attribute: address_space.
"""

# pyright: reportUnusedImport=false
from tilewright.dialects.upstream.gpu import (
    functions,
    ids,
    lanes,
    launch,
    mapping,
    matrices,
    memory,
)
from tilewright.dialects.upstream.gpu.lanes import (
    PrintfOp,
    RotateOp,
    ShuffleOp,
    SubgroupBroadcastOp,
    SubgroupReduceOp,
)
from tilewright.dialects.upstream.gpu.memory import (
    SHARED_MEMORY,
    AddressSpace,
    AddressSpaceAttr,
    DynamicSharedMemoryOp,
    MemsetOp,
    memory_space_number,
)


def complete() -> None:
    for part in (ids, memory, launch, functions, lanes, mapping, matrices):
        part.complete()
