"""A kernel compiled once more, for launches of which several workgroups compute each program; kept on disk."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright import cache
from tilewright.diagnostics import UnsupportedError
from tilewright.dialects.text import parse_module
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.executable import CudaExecutable
from tilewright.targets.cuda.lowered import TensorMapOf
from tilewright.targets.cuda.target import TARGET, load_split
from tilewright.targets.cuda.work_split import WorkSplit


def build_split(source: str, machine: str, split: WorkSplit) -> CudaExecutable | None:
    """What `TARGET.build_split` makes of the kernel that was made from the text `source`.

    None where that is no cluster of asynchronous workgroups (their sums have no room, say): it would be slower.
    """
    options = CompileOptions("cuda", machine)

    def make() -> Mapping[str, bytes]:
        made = TARGET.build_split(parse_module(source), options, split)
        tensors = any(isinstance(slot, TensorMapOf) for slot in made.plan.slots)
        if made.plan.cluster[0] != split.parts or not tensors:
            raise UnsupportedError("no cluster of asynchronous workgroups")
        return made.artifacts()

    try:
        stored = cache.kept((TARGET.fingerprint(options), repr(split), source), make)
    except UnsupportedError:
        return None
    return load_split(stored, options, split)
