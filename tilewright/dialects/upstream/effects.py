"""Effects of stock ops that do not say theirs: ids, ends of blocks, ops with regions, barriers, stores."""

from __future__ import annotations

from xdsl.dialects import cf, func, gpu, memref, scf, vector
from xdsl.traits import (
    MemoryAllocEffect,
    MemoryFreeEffect,
    MemoryReadEffect,
    MemoryWriteEffect,
    NoMemoryEffect,
    Pure,
    RecursiveMemoryEffect,
)

from tilewright.dialects.effects import ORDER, PEOPLE, Acts, Writes
from tilewright.dialects.upstream.complete import add_effect

_IDS = (
    gpu.BlockIdOp,
    gpu.BlockDimOp,
    gpu.GridDimOp,
    gpu.ThreadIdOp,
    gpu.GlobalIdOp,
    gpu.LaneIdOp,
    gpu.SubgroupIdOp,
    gpu.NumSubgroupsOp,
    gpu.SubgroupSizeOp,
)
_ENDS = (
    func.ReturnOp,
    gpu.ReturnOp,
    gpu.TerminatorOp,
    gpu.YieldOp,
    cf.BranchOp,
    cf.ConditionalBranchOp,
    memref.AllocaScopeReturnOp,
)


def complete() -> None:
    add_effect(Pure(), *_IDS)
    add_effect(NoMemoryEffect(), *_ENDS)
    add_effect(RecursiveMemoryEffect(), scf.ExecuteRegionOp, memref.AllocaScopeOp, gpu.LaunchOp)
    add_effect(Acts(ORDER), gpu.BarrierOp, gpu.WaitOp, gpu.AllReduceOp, gpu.SetDefaultDeviceOp)
    add_effect(Acts(ORDER), gpu.HostRegisterOp, gpu.HostUnregisterOp)
    add_effect(Acts(PEOPLE), cf.AssertOp, vector.PrintOp)
    add_effect(MemoryAllocEffect(), gpu.AllocOp)
    add_effect(MemoryFreeEffect(), gpu.DeallocOp)
    add_effect(Writes("memref"), memref.StoreOp, memref.AtomicRMWOp)
    add_effect(Writes("destination"), memref.CopyOp)
    add_effect(Writes("dst"), gpu.MemcpyOp)
    add_effect(Writes("base"), vector.StoreOp, vector.MaskedStoreOp)
    add_effect(Writes("source"), vector.TransferWriteOp)
    add_effect(MemoryReadEffect(), vector.LoadOp, vector.MaskedLoadOp, vector.TransferReadOp)
    add_effect(MemoryReadEffect(), gpu.LaunchFuncOp, gpu.MemcpyOp)
    add_effect(MemoryWriteEffect(), gpu.LaunchFuncOp)
