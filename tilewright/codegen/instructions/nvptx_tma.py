"""NVIDIA TMA: the copy engine moves boxes of arrays of rank 1 to 5 (PTX ISA, "cp.async.bulk").

    nvptx.tma.load.<rank>d[.multicast][.hint]    (shared, mbarrier, map, c0, c1, ... [, i16 mask]
                                                  [, i64 policy]); c0 is the innermost coordinate
    nvptx.tma.store.<rank>d[.hint]               (shared, map, c0, ... [, policy])
    nvptx.tma.reduce.<op>.<rank>d                (shared, map, c0, ...): global = global op box
    nvptx.tma.prefetch.<rank>d                   (map, c0, ...): the box goes to L2
    nvptx.tma.leave                              (shared, mbarrier, bytes): not copied, and undefined

A map is a kernel parameter with the argument attribute `mach.tensor_map` (128 bytes by value,
`driver.TensorMap` on the host). Elements outside the array read as zero and are not written. One
thread issues the copy of a whole box; the bytes of a load complete `mbarrier`, those of stores are
waited for by groups. `multicast`: the box goes to the same address of every workgroup in `mask` of
the cluster, and completes that workgroup's mbarrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.codegen.instructions.nvptx_common import (
    GLOBAL,
    LLVM_CLUSTER,
    LLVM_GLOBAL,
    LLVM_SHARED,
    SHARED,
    SM90,
    timed,
)
from tilewright.codegen.instructions.table import Emission, Immediates
from tilewright.codegen.printer import Printer

MAP = "!llvm.ptr"
_LOAD_DOC = "The box at the coordinates goes to shared memory (swizzled as the map says) and its bytes to the mbarrier."


def _emit_load(rank: int, multicast: bool, hint: bool) -> Emission:
    def emit(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
        to, barrier, tensor, *rest = regs
        cluster = p.emit(f"addrspacecast {LLVM_SHARED} {to} to {LLVM_CLUSTER}")
        extra = list(rest[rank:])
        mask = extra.pop(0) if multicast else "0"
        policy = extra.pop(0) if hint else "0"
        args = [(LLVM_CLUSTER, cluster), (LLVM_SHARED, barrier), ("ptr", tensor)]
        args += [("i32", c) for c in rest[:rank]]
        args += [("i16", mask), ("i64", policy)]
        args += [("i1", str(multicast).lower()), ("i1", str(hint).lower()), ("i32", "0")]
        p.call("void", f"llvm.nvvm.cp.async.bulk.tensor.g2s.tile.{rank}d", args)
        return []

    return emit


NO_POLICY: Final = (("i64", "0"), ("i1", "false"))
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")

for _rank in range(1, 6):
    _coordinates = ("i32",) * _rank
    for _multicast in (False, True):
        for _hint in (False, True):
            _more = (("i16",) if _multicast else ()) + (("i64",) if _hint else ())
            timed(
                f"tma.load.{_rank}d{'.multicast' * _multicast}{'.hint' * _hint}",
                (SHARED, SHARED, MAP, *_coordinates, *_more),
                _LOAD_DOC,
                _emit_load(_rank, _multicast, _hint),
                SM90,
            )
    for _hint in (False, True):
        timed(
            f"tma.store.{_rank}d{'.hint' * _hint}",
            (SHARED, MAP, *_coordinates, *(("i64",) if _hint else ())),
            "The box in shared memory goes to the array at the coordinates, once its group is waited for.",
            f"cp.async.bulk.tensor.s2g.tile.{_rank}d",
            SM90,
            extra=(("i1", "true"),) if _hint else NO_POLICY,
        )
    for _op in REDUCTIONS:
        timed(
            f"tma.reduce.{_op}.{_rank}d",
            (SHARED, MAP, *_coordinates),
            f"The array at the coordinates becomes `{_op}` of itself and the box, element by element, atomically.",
            f"cp.async.bulk.tensor.reduce.{_op}.tile.{_rank}d",
            SM90,
            extra=NO_POLICY,
        )
    timed(
        f"tma.prefetch.{_rank}d",
        (MAP, *_coordinates),
        "The box at the coordinates is brought to L2.",
        f"cp.async.bulk.tensor.prefetch.tile.{_rank}d",
        SM90,
        extra=NO_POLICY,
        effect="read",
    )

timed(
    "tma.leave",
    (SHARED, SHARED, "i32"),
    "So many bytes of shared memory, which no copy of the mbarrier's phase fills, are undefined: no instruction.",
    lambda p, regs, immediates: [],
    SM90,
)
timed(
    "tma.prefetch_map",
    (MAP,),
    "The tensor map itself is brought to the copy engine's cache.",
    "prefetch.tensormap [$0];",
    SM90,
    effect="read",
)


def _emit_bulk_load(p: Printer, regs: Sequence[str], immediates: Immediates) -> Sequence[str]:
    to, barrier, source, size = regs
    cluster = p.emit(f"addrspacecast {LLVM_SHARED} {to} to {LLVM_CLUSTER}")
    args = [(LLVM_CLUSTER, cluster), (LLVM_SHARED, barrier), (LLVM_GLOBAL, source)]
    args += [("i32", size), ("i16", "0"), ("i64", "0"), ("i1", "false"), ("i1", "false")]
    p.call("void", "llvm.nvvm.cp.async.bulk.global.to.shared.cluster", args)
    return []


timed(
    "bulk.load",
    (SHARED, SHARED, GLOBAL, "i32"),
    "So many bytes (a multiple of 16, both addresses too) go to shared memory and to the mbarrier.",
    _emit_bulk_load,
    SM90,
)
timed(
    "bulk.store",
    (GLOBAL, SHARED, "i32"),
    "So many bytes of shared memory (a multiple of 16) go to global memory, once waited for.",
    "cp.async.bulk.shared.cta.to.global",
    SM90,
    extra=NO_POLICY,
)
_doc = "This thread's stores and reductions since the last commit become one group."
timed("bulk.commit_group", (), _doc, "cp.async.bulk.commit.group", SM90)
for _suffix, _doc in (
    ("", "All but this thread's last `n` groups are complete: their bytes are in memory."),
    (".read", "All but this thread's last `n` groups have read their shared memory."),
):
    timed(
        f"bulk.wait_group{_suffix}",
        (),
        _doc,
        f"cp.async.bulk.wait.group{_suffix}",
        SM90,
        extra=(("i32", "<n>"),),
        immediates={"n": 0},
    )
