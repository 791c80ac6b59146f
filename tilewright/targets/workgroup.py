"""How the pipelines begin of targets that compile the program of a whole workgroup: cpu and cuda.

Requires: a module with one kernel in XeTile or XeGPU, at workgroup level, or below it where subgroups neither meet nor
share memory. Guarantees: XeTile at workgroup level, no maps that a later pass would have to follow, and the program
in the form that loops are read in: no calls, `for` where a `while` counts, no ops that change nothing, f32 where sums
of narrow floats are carried, one inverse for many divisions, numbers in memory as tiles, and tiles of one array each.

    scf.while (%k = %c0, ..)  .. arith.addi %k, %c32 ..   ->   scf.for %k = %c0 to %K step %c32 ..
    arith.divf %x, %s {fastmath<afn>}                     ->   arith.mulf %x, %r      // %r = 1 / %s, once per row
"""

from __future__ import annotations

from typing import Any

from tilewright.observer import Observer
from tilewright.passes.carry_offsets import CARRY_OFFSETS
from tilewright.passes.fold_identities import fold_identities
from tilewright.passes.inline_calls import INLINE_CALLS
from tilewright.passes.kernel import leave_out_maps, level_of
from tilewright.passes.load_rematerialization import rematerialize_loads
from tilewright.passes.pipeline import CLEANUP, Pass, Unit, run
from tilewright.passes.reciprocal import use_reciprocals
from tilewright.passes.scalar_memory import scalar_memory
from tilewright.passes.views import FOLD_VIEWS
from tilewright.passes.while_to_for import while_to_for
from tilewright.passes.widen_accumulators import widen_accumulators
from tilewright.passes.workgroup_form import (
    OTHER_FORMS,
    OWN_FORM,
    is_workgroup_xetile,
    speaks_xegpu,
)
from tilewright.targets.base import CompileOptions

LOOPS = (
    Pass[Unit[Any]]("widen-accumulators", widen_accumulators, ("workgroup",)),
    CLEANUP,
    Pass[Unit[Any]]("while-to-for", while_to_for),
    FOLD_VIEWS,
    Pass[Unit[Any]]("fold-identities", fold_identities),
    Pass[Unit[Any]]("reciprocal", use_reciprocals, optional=True),
    Pass[Unit[Any]]("scalar-memory", scalar_memory, ("workgroup",)),
    Pass[Unit[Any]]("rematerialize-loads", rematerialize_loads, ("workgroup",), optional=True),
)
BEGIN = (INLINE_CALLS, *OWN_FORM, CARRY_OFFSETS, *OTHER_FORMS, *LOOPS)
"""The passes with which the lists of these targets begin."""


def begin(
    unit: Unit[Any], options: CompileOptions, stage: Observer, observe: Observer, *, owners: str
) -> None:
    """Does the shared first passes; `stage` sees the module as it came as "xetile" or "xegpu", in the latter case
    what has become of it as "xetile".

    `owners` says, for the remark, who owns elements where a map is not followed. Raises CompileError for a module
    without exactly one kernel.
    """
    kernel = unit.kernel
    foreign = speaks_xegpu(kernel)
    stage("xegpu" if foreign else "xetile", unit.module)
    run((INLINE_CALLS, *OWN_FORM), unit, observe)
    if level_of(kernel) == "lane":
        return
    run((CARRY_OFFSETS,), unit, observe)
    if not is_workgroup_xetile(kernel):
        run(OTHER_FORMS, unit, observe)
    if foreign:
        stage("xetile", unit.module)
    leave_out_maps(kernel, unit.remarks, strict=options.maps == "strict", instead=owners)
    run(LOOPS, unit, observe)
