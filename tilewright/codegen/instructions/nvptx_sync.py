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
    CLUSTER_SHARED,
    SHARED,
    SM90,
    SM90A,
    emission,
    timed,
)
from tilewright.codegen.instructions.table import Immediates, declare
from tilewright.codegen.printer import Printer

# Named barriers of a workgroup: 0 is the one of gpu.barrier, 1 to 15 are free. Counts are threads,
# multiples of 32; all threads of a warp execute it together.
for _row in (
    (
        "sync",
        "Barrier `id`: waits until `count` threads have arrived; orders their memory accesses.",
    ),
    ("arrive", "Barrier `id`: arrives without waiting."),
):
    _call = f"barrier.cta.{_row[0]}.aligned.count"
    timed(f"bar.{_row[0]}", ("i32", "i32"), _row[1], _call, scope="workgroup")
_doc = "The 32 lanes meet; their memory accesses before are seen by all after it."
timed("warp.sync", (), _doc, "bar.warp.sync", extra=(("i32", "-1"),), scope="warp")

# mbarriers ----------------------------------------------------------------------------------------

_CTA = "scope.cta.space.cta"
for _row in (
    (
        "init",
        (SHARED, "i32"),
        "The barrier begins phase 0 and expects so many arrivals in each phase.",
    ),
    ("inval", (SHARED,), "The eight bytes are ordinary memory again."),
):
    timed(f"mbarrier.{_row[0]}", *_row[1:], f"mbarrier.{_row[0]}.shared")
for _name, _state, _call, _doc in (
    ("arrive", "i64", f"arrive.{_CTA}",
     "So many arrivals; releases this thread's memory accesses to those who wait."),
    ("arrive.expect_tx", "i64", f"arrive.expect.tx.{_CTA}",
     "One arrival; the phase also waits for so many bytes of asynchronous copies."),
    ("expect_tx", "", f"expect.tx.{_CTA}",
     "The phase also waits for so many bytes of asynchronous copies; no arrival."),
    ("arrive.remote", "", "arrive.scope.cta.space.cluster",
     "So many arrivals at a barrier of any workgroup of the cluster."),
):  # fmt: skip
    _where = CLUSTER_SHARED if _call.endswith("cluster") else SHARED
    timed(f"mbarrier.{_name}", (_where, "i32"), _doc, f"mbarrier.{_call}", SM90, state=_state)


def _mapa(pointer: Any, rank: Any) -> Sequence[Any]:
    """The same shared-memory address in workgroup `rank` of the cluster."""
    return [pointer]


declare(
    "nvptx.mapa",
    (SHARED, "i32"),
    (CLUSTER_SHARED,),
    SM90,
    _mapa,
    emission("mapa.shared.cluster", (SHARED, "i32"), CLUSTER_SHARED),
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
    emission(f"mbarrier.try.wait.parity.{_CTA}", (SHARED, "i32"), "i1"),
    effect="write",
    timed=True,
)


# The labels stand in a PTX scope of their own, so that each copy of the statement has its own.
_wait = (
    "{ .reg .pred p; wait: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
    "@p bra done; bra wait; done: }"
)
_doc = "Waits until the phase with this parity is complete; its memory accesses are seen after it."
timed("mbarrier.wait.parity", (SHARED, "i32"), _doc, _wait, SM90, memory=True)

# Fences -------------------------------------------------------------------------------------------

for _name, _call, _doc in (
    ("proxy.async", "proxy.async.shared_cta",
     "Shared-memory accesses of this thread before it are seen by asynchronous copies after it."),
    ("proxy.async.global", "proxy.async.global",
     "Global-memory accesses of this thread before it are seen by asynchronous copies after it."),
    ("mbarrier_init", "mbarrier_init.release.cluster",
     "Initialised mbarriers are seen by the cluster and the copy engine."),
):  # fmt: skip
    timed(f"fence.{_name}", (), _doc, f"fence.{_call}", SM90)

# Clusters -----------------------------------------------------------------------------------------

for _name, _doc in (
    ("arrive", "Arrives at the cluster's barrier; releases this thread's memory accesses."),
    ("arrive.relaxed", "Arrives at the cluster's barrier; orders no memory."),
    ("wait", "Waits until every thread of the cluster has arrived."),
):
    for _call in (f"cluster.{_name}", f"cluster.{_name}.aligned"):
        timed(_call, (), _doc, f"barrier.{_call}", SM90, scope="cluster")

# Registers, election, dependent launches ----------------------------------------------------------

_doc = "Every thread of the warpgroup may use `registers` registers from here (24 to 256, by 8)."
for _way in ("inc", "dec"):
    timed(
        f"setmaxnreg.{_way}",
        (),
        _doc,
        f"setmaxnreg.{_way}.sync.aligned.u32",
        SM90A,
        extra=(("i32", "<registers>"),),
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
for _name, _operands, _doc, _call, *_needs in (
    ("griddepcontrol.wait", (), "Waits until the grids that this one depends on are complete.",
     "griddepcontrol.wait", SM90),
    ("griddepcontrol.launch_dependents", (), "Grids that depend on this one may begin to launch.",
     "griddepcontrol.launch.dependents", SM90),
    ("nanosleep", ("i32",), "About so many nanoseconds pass.", "nanosleep.u32 $0;"),
    ("trap", (), "The launch fails.", "trap;"),
):  # fmt: skip
    timed(_name, _operands, _doc, _call, *_needs)
