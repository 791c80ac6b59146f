"""NVIDIA: what orders threads and copies: named barriers, mbarriers, fences, clusters, register
budgets.

An mbarrier is eight bytes of shared memory: a phase, arrivals still expected in it, bytes still
expected. The phase completes when both are zero; `parity` names a phase by its lowest bit. Arrivals
at another workgroup's mbarrier of the same cluster go through `mapa`'s address and keep scope cta:
release at cluster scope would put a device-wide memory barrier into the loop (`notes/hopper.md` 2.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.codegen.instructions.nvptx_common import (
    SM80,
    SM90,
    SM90A,
    intrinsic,
    ptx,
    statement,
    timed,
)
from tilewright.codegen.instructions.nvptx_memory import LLVM_SHARED, SHARED
from tilewright.codegen.instructions.table import (
    Immediates,
    declare,
)
from tilewright.codegen.printer import Printer

CLUSTER_SHARED, LLVM_CLUSTER = "!llvm.ptr<7>", "ptr addrspace(7)"

# Named barriers of a workgroup: 0 is the one of gpu.barrier, 1 to 15 are free. Counts are threads,
# multiples of 32; all threads of a warp execute it together.
timed(
    "bar.sync",
    ("i32", "i32"),
    "Barrier `id`: waits until `count` threads have arrived; orders their memory accesses.",
    intrinsic("barrier.cta.sync.aligned.count", "void", "i32", "i32"),
    scope="workgroup",
)
timed(
    "bar.arrive",
    ("i32", "i32"),
    "Barrier `id`: arrives without waiting.",
    intrinsic("barrier.cta.arrive.aligned.count", "void", "i32", "i32"),
    scope="workgroup",
)


def _emit_warp_sync(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
    p.call("void", "llvm.nvvm.bar.warp.sync", [("i32", "-1")])
    return []


timed(
    "warp.sync",
    (),
    "The 32 lanes meet; their memory accesses before are seen by all after it.",
    _emit_warp_sync,
    scope="warp",
)

# mbarriers ----------------------------------------------------------------------------------------

_CTA = "scope.cta.space.cta"
timed(
    "mbarrier.init",
    (SHARED, "i32"),
    "The barrier begins phase 0 and expects so many arrivals in each phase.",
    intrinsic("mbarrier.init.shared", "void", LLVM_SHARED, "i32"),
)
timed(
    "mbarrier.inval",
    (SHARED,),
    "The eight bytes are ordinary memory again.",
    intrinsic("mbarrier.inval.shared", "void", LLVM_SHARED),
)


def _discard(name: str, *types: str) -> Any:
    """An intrinsic whose result (a state word) nobody needs."""

    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        p.call("i64", f"llvm.nvvm.{name}", [*zip(types, regs, strict=True)])
        return []

    return emit


timed(
    "mbarrier.arrive",
    (SHARED, "i32"),
    "So many arrivals; releases this thread's memory accesses to those who wait.",
    _discard(f"mbarrier.arrive.{_CTA}", LLVM_SHARED, "i32"),
    SM90,
)
timed(
    "mbarrier.arrive.expect_tx",
    (SHARED, "i32"),
    "One arrival; the phase also waits for so many bytes of asynchronous copies.",
    _discard(f"mbarrier.arrive.expect.tx.{_CTA}", LLVM_SHARED, "i32"),
    SM90,
)
timed(
    "mbarrier.expect_tx",
    (SHARED, "i32"),
    "The phase also waits for so many bytes of asynchronous copies; no arrival.",
    intrinsic(f"mbarrier.expect.tx.{_CTA}", "void", LLVM_SHARED, "i32"),
    SM90,
)
timed(
    "mbarrier.arrive.remote",
    (CLUSTER_SHARED, "i32"),
    "So many arrivals at a barrier of any workgroup of the cluster.",
    intrinsic("mbarrier.arrive.scope.cta.space.cluster", "void", LLVM_CLUSTER, "i32"),
    SM90,
)


def _mapa(pointer: Any, rank: Any) -> Sequence[Any]:
    """The same shared-memory address in workgroup `rank` of the cluster."""
    return [pointer]


declare(
    "nvptx.mapa",
    (SHARED, "i32"),
    (CLUSTER_SHARED,),
    SM90,
    _mapa,
    intrinsic("mapa.shared.cluster", LLVM_CLUSTER, LLVM_SHARED, "i32"),
    scope="cluster",
    timed=True,
)


def _try_wait(pointer: Any, parity: int) -> Sequence[Any]:
    """Whether the phase with this parity is complete (True: it is, and its accesses are seen)."""
    return [True]


declare(
    "nvptx.mbarrier.try_wait.parity",
    (SHARED, "i32"),
    ("i1",),
    SM90,
    _try_wait,
    intrinsic(f"mbarrier.try.wait.parity.{_CTA}", "i1", LLVM_SHARED, "i32"),
    effect="write",
    timed=True,
)


def _emit_wait(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
    # The labels stand in a PTX scope of their own, so that each copy of the statement has its own.
    text = (
        "{ .reg .pred p; wait: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
        "@p bra done; bra wait; done: }"
    )
    return ptx(p, text, [], [(LLVM_SHARED, regs[0]), ("i32", regs[1])], memory=True)


timed(
    "mbarrier.wait.parity",
    (SHARED, "i32"),
    "Waits until the phase with this parity is complete; its memory accesses are seen after it.",
    _emit_wait,
    SM90,
)

# Fences -------------------------------------------------------------------------------------------

timed(
    "fence.proxy.async",
    (),
    "Shared-memory accesses of this thread before it are seen by asynchronous copies after it.",
    intrinsic("fence.proxy.async.shared_cta", "void"),
    SM90,
)
timed(
    "fence.proxy.async.global",
    (),
    "Global-memory accesses of this thread before it are seen by asynchronous copies after it.",
    intrinsic("fence.proxy.async.global", "void"),
    SM90,
)
timed(
    "fence.mbarrier_init",
    (),
    "Initialised mbarriers are seen by the cluster and the copy engine.",
    intrinsic("fence.mbarrier_init.release.cluster", "void"),
    SM90,
)

# Clusters -----------------------------------------------------------------------------------------

for _suffix, _doc in (
    ("", "Arrives at the cluster's barrier; releases this thread's memory accesses."),
    (".relaxed", "Arrives at the cluster's barrier; orders no memory."),
):
    for _aligned in ("", ".aligned"):
        timed(
            f"cluster.arrive{_suffix}{_aligned}",
            (),
            _doc,
            intrinsic(f"barrier.cluster.arrive{_suffix}{_aligned}", "void"),
            SM90,
            scope="cluster",
        )
for _aligned in ("", ".aligned"):
    timed(
        f"cluster.wait{_aligned}",
        (),
        "Waits until every thread of the cluster has arrived.",
        intrinsic(f"barrier.cluster.wait{_aligned}", "void"),
        SM90,
        scope="cluster",
    )

# Registers, election, dependent launches ----------------------------------------------------------

for _way in ("inc", "dec"):

    def _emit_setmaxnreg(
        p: Printer, regs: Sequence[str], immediates: Immediates, way: str = _way
    ) -> Sequence[str]:
        name = f"llvm.nvvm.setmaxnreg.{way}.sync.aligned.u32"
        p.call("void", name, [("i32", str(immediates["registers"]))])
        return []

    timed(
        f"setmaxnreg.{_way}",
        (),
        "Every thread of the warpgroup may use `registers` registers from here (24 to 256, by 8).",
        _emit_setmaxnreg,
        SM90A,
        immediates={"registers": 40},
        scope="warpgroup",
    )


def _elect() -> Sequence[Any]:
    """True in one lane of the warp."""
    return [np.arange(32) == 0]


def _emit_elect(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
    value = p.call("{ i32, i1 }", "llvm.nvvm.elect.sync", [("i32", "-1")])
    return [p.emit(f"extractvalue {{ i32, i1 }} {value}, 1")]


declare("nvptx.elect.sync", (), ("i1",), SM90, _elect, _emit_elect, scope="warp")
timed(
    "griddepcontrol.wait",
    (),
    "Waits until the grids that this one depends on are complete.",
    intrinsic("griddepcontrol.wait", "void"),
    SM90,
)
timed(
    "griddepcontrol.launch_dependents",
    (),
    "Grids that depend on this one may begin to launch.",
    intrinsic("griddepcontrol.launch.dependents", "void"),
    SM90,
)
timed(
    "nanosleep",
    ("i32",),
    "About so many nanoseconds pass.",
    statement("nanosleep.u32 $0;", "i32", effect=True),
    SM80,
)
timed("trap", (), "The launch fails.", statement("trap;", effect=True), SM80)
