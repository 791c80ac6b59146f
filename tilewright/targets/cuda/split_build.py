"""A kernel compiled once more, for launches of which several workgroups compute each program; kept on disk."""

from __future__ import annotations

import hashlib

from tilewright import cache
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.executable import CudaExecutable
from tilewright.targets.cuda.lowered import TensorMapOf
from tilewright.targets.cuda.target import TARGET, load_split
from tilewright.targets.cuda.work_split import WorkSplit


def build_split(image: bytes, source: str, machine: str, split: WorkSplit) -> CudaExecutable | None:
    """What `TARGET.build_split` makes of the kernel whose code is `image`, made from the text `source`.

    None where that is no cluster of asynchronous workgroups (their sums have no room, say): it would be slower.
    """
    options = CompileOptions("cuda", machine)
    facts = f"{cache.compiler_fingerprint()}|{TARGET.fingerprint(options)}|{split.tiles}|{split.parts}|{split.steps}|"
    key = hashlib.sha256(facts.encode() + image).hexdigest()
    disk = cache.current()
    stored = disk.get(key) if disk is not None else None
    if stored is not None:
        return load_split(stored, options, split)
    try:
        made = TARGET.build_split(parse_module(source), options, split)
    except UnsupportedError:
        return None
    if made.plan.cluster[0] != split.parts or not any(
        isinstance(slot, TensorMapOf) for slot in made.plan.slots
    ):
        return None
    if disk is not None:
        disk.put(key, made.artifacts())
    return made
