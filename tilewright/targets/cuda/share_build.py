"""A kernel compiled once more, for launches of which several workgroups compute each program; kept on disk."""

from __future__ import annotations

import hashlib

from tilewright import cache
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.executable import CudaExecutable
from tilewright.targets.cuda.lowered import TensorMapOf
from tilewright.targets.cuda.sharing import Share
from tilewright.targets.cuda.target import TARGET, load_shared


def build_shared(image: bytes, source: str, machine: str, share: Share) -> CudaExecutable | None:
    """What `TARGET.build_shared` makes of the kernel whose code is `image`, made from the text `source`.

    None where that is no cluster of asynchronous workgroups (their sums have no room, say): it would be slower.
    """
    options = CompileOptions("cuda", machine)
    facts = f"{cache.compiler_fingerprint()}|{TARGET.fingerprint(options)}|{share.tiles}|{share.parts}|{share.steps}|"
    key = hashlib.sha256(facts.encode() + image).hexdigest()
    disk = cache.current()
    stored = disk.get(key) if disk is not None else None
    if stored is not None:
        return load_shared(stored, options, share)
    try:
        made = TARGET.build_shared(parse_module(source), options, share)
    except UnsupportedError:
        return None
    if made.plan.cluster[0] != share.parts or not any(
        isinstance(slot, TensorMapOf) for slot in made.plan.slots
    ):
        return None
    if disk is not None:
        disk.put(key, made.artifacts())
    return made
