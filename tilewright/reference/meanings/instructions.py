"""Meaning of `mach.instr`: by the instruction's name, or by its entry in the table of instructions.

What an entry's meaning says of one thread is done thread by thread, what it says of a warp on the rows of 32 threads.
What takes time, or a barrier, is said by a meaning or a control of its own (`mbarriers.py`, `copies.py`, `wgmma.py`),
registered by the instruction's name or the beginning of it: `nvptx.tma.load` for all its shapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Attribute, Operation

from tilewright.diagnostics import CheckError, error_at, unsupported
from tilewright.dialects.mach import InstrOp
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.reference import access, numerics, registry
from tilewright.reference.batch import WARP
from tilewright.reference.lanes import Collective
from tilewright.reference.meanings.mach import check_alignment
from tilewright.reference.pointers import addresses
from tilewright.reference.program import SegmentBuilder
from tilewright.reference.registry import CONTROLS, MEANINGS, control, meaning
from tilewright.reference.site import Site
from tilewright.reference.values import Array, Index

ROW = 16
"""Bytes of a row of ldmatrix and stmatrix."""


@control("mach.instr")
def instr(builder: SegmentBuilder, op: InstrOp) -> None:
    name = op.instruction
    words = name.split(".")
    for count in range(len(words), 1, -1):
        known = ".".join(words[:count])
        if known in CONTROLS:
            CONTROLS[known](builder, op)
            return
        if (found := MEANINGS.get(known)) is not None:
            builder.step(lambda group: group.execute(op, found))
            return
    entry = entry_of(op)
    if entry.timed or entry.scope not in ("thread", "warp"):
        raise unsupported(op, f"the reference executor does not know the instruction {name}")
    run = _by_warp if entry.scope == "warp" else _by_thread
    builder.step(lambda group: group.execute(op, lambda *given: run(entry, *given)))


def entry_of(op: InstrOp) -> Any:
    """The entry of an instruction in the table. UnsupportedError where there is none."""
    for find in registry.INSTRUCTIONS:
        if (entry := find(op.instruction)) is not None:
            return entry
    name = op.instruction
    raise unsupported(op, f"there is no instruction '{name}' in the table")


def _results(op: InstrOp, found: list[Array]) -> Any:
    return tuple(found) if len(found) != 1 else found[0]


def _by_thread(entry: Any, site: Site, op: InstrOp, *operands: Array) -> Any:
    if entry.elementwise:
        return _results(op, [np.asarray(r) for r in entry.meaning(*operands, **op.immediates())])
    if any(isinstance(v.type, LLVMPointerType) for v in op.operands):
        raise unsupported(op, f"the reference executor does not know the instruction {entry.name}")
    rows = max((x.shape[0] for x in operands), default=1)
    given = zip(*(np.broadcast_to(x, (rows, *x.shape[1:])) for x in operands), strict=True)
    found = [entry.meaning(*row, **op.immediates()) for row in given]
    parts = [np.array([row[i] for row in found]) for i in range(len(op.results))]
    return _results(op, [_typed(r.type, part) for r, part in zip(op.results, parts, strict=True)])


def _typed(type: Attribute, value: Array) -> Array:
    """Rows as numbers of a type; integers may have been given as unsigned ones."""
    kind = numerics.numpy_type(type)
    if kind.kind == "i" and value.dtype.kind in "iu":
        return value.astype(f"u{kind.itemsize}").view(kind)
    return value.astype(kind)


def _by_warp(entry: Any, site: Site, op: InstrOp, *operands: Array) -> Any:
    """The rows of every warp, one warp after the other."""
    warps = Collective(site, WARP)
    reads, writes = entry.effect == "read", entry.effect == "write"
    given: list[Any] = []
    place: Any = None
    for value, rows in zip(op.operands, operands, strict=True):
        if not isinstance(value.type, LLVMPointerType):
            given.append(warps.split(rows))
            continue
        place = _rows_of_matrices(site, op, value.type, rows)
        held = np.zeros((site.count, ROW // 4), np.int32)
        if reads:
            held = access.gather(site, place[0], place[1], held.dtype, held)
        given.append(np.array(warps.split(np.ascontiguousarray(held).view(np.uint8))))
    found: list[list[Array]] = [[] for _ in op.results]
    for warp in range(warps.count):
        for part, made in zip(
            found, entry.meaning(*(g[warp] for g in given), **op.immediates()), strict=True
        ):
            part.append(np.asarray(made))
    if writes and place is not None:
        data = np.ascontiguousarray(warps.join(given[-1])).view(np.int32)
        access.scatter(site, place[0], place[1], data)
    return _results(
        op, [_typed(r.type, np.concatenate(p)) for r, p in zip(op.results, found, strict=True)]
    )


def _rows_of_matrices(site: Site, op: InstrOp, type: Attribute, pointer: Index) -> Any:
    """The words of each lane's row, and which lanes' rows an instruction of so many matrices touches."""
    vector = next(v.type for v in (*op.results, *op.operands) if isinstance(v.type, VectorType))
    rows = 8 * vector.get_shape()[0]
    pointer = np.broadcast_to(pointer, (site.count,))
    used = np.broadcast_to((site.subgroup % WARP < rows)[:, None], (site.count, ROW // 4))
    check_alignment(site, pointer, used[:, 0], ROW)
    return addresses(site, type, pointer)[:, None] + 4 * np.arange(ROW // 4), used


@meaning(
    *(f"nvptx.{name}" for name in ("prefetch", "setmaxnreg", "griddepcontrol", "nanosleep")),
    *("nvptx.sched.barrier", "nvptx.tma.prefetch", "nvptx.tma.prefetch_map"),
)
def hint(site: Site, op: Operation, *operands: Any) -> None:
    """Changes how fast something is, and nothing else."""


@meaning("nvptx.trap")
def trap(site: Site, op: Operation) -> None:
    """The launch fails; who comes here goes no further, and neither does anybody else."""
    who = site.machine.name_of_instance(int(site.instances[0]))
    raise error_at(op, f"{who} reached a trap", kind=CheckError)


@meaning("nvptx.red.add")
def red_add(site: Site, op: InstrOp, pointer: Index, *words: Array) -> None:
    """Neighbours grow, each atomically: halves of words, or words of f32."""
    import ml_dtypes

    kinds: dict[str, Any] = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16, "f32": np.float32}
    kind = np.dtype(kinds[op.instruction.rsplit(".", 1)[1]])
    rows = np.stack([np.broadcast_to(word, (site.count,)) for word in words], 1)
    added = np.ascontiguousarray(rows).view(kind).reshape(site.count, -1)
    first = np.broadcast_to(addresses(site, op.operands[0].type, pointer), (site.count,))
    check_alignment(site, first, np.ones(site.count, bool), 4 * len(words))
    address = first[:, None] + kind.itemsize * np.arange(added.shape[1])
    wanted = np.ones(address.shape, bool)
    access.atomic(site, address, wanted, added, lambda a, b: (a + b).astype(kind), added)
