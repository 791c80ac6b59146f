"""How the pipelines begin of targets that compile the program of a whole workgroup: cpu and cuda.

Requires: a module with one kernel in XeTile or XeGPU, at workgroup level, or below it where subgroups neither meet nor
share memory. Guarantees: XeTile at workgroup level, no maps that a later pass would have to follow, and the program
in the form that loops are read in: no calls, `for` where a `while` counts, no ops that change nothing, f32 where sums
of narrow floats are carried, one inverse for many divisions.

    scf.while (%k = %c0, ..)  .. arith.addi %k, %c32 ..   ->   scf.for %k = %c0 to %K step %c32 ..
    arith.divf %x, %s {fastmath<afn>}                     ->   arith.mulf %x, %r      // %r = 1 / %s, once per row
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp, VectorType

from tilewright.diagnostics import UnsupportedError, error_at
from tilewright.passes.cleanup import cleanup
from tilewright.passes.inline_calls import inline_calls
from tilewright.passes.kernel import kernel_of, leave_out_maps
from tilewright.passes.neutral import remove_neutral
from tilewright.passes.reciprocal import use_reciprocals
from tilewright.passes.views import fold_views
from tilewright.passes.while_to_for import while_to_for
from tilewright.passes.widen_accumulators import widen_accumulators
from tilewright.passes.workgroup_form import speaks_xegpu, workgroup_form
from tilewright.targets.base import CompileOptions, Observer, check_disabled


@dataclass(frozen=True)
class Begun:
    """A pipeline after its first passes."""

    kernel: gpu.FuncOp
    subgroups: int
    """So many programs along x now stand for one of the launch's."""
    run: Callable[[str, Callable[[], object]], None]
    """Runs one more pass and shows the module to the observer, under the pass's name."""

    def cleanup(self) -> None:
        """Runs the pass that most others leave work for."""
        self.run("cleanup", lambda: cleanup(self.kernel))


def begin(
    module: ModuleOp,
    options: CompileOptions,
    optional: Collection[str],
    remarks: list[str],
    stage: Observer,
    observe: Observer,
    *,
    owners: str,
    runs: Callable[[str], bool],
) -> Begun:
    """Runs the shared first passes; `stage` sees the module as it came as "xetile" or "xegpu", in the latter case
    what has become of it as "xetile".

    `optional` names the passes of the target that options.disable may leave out; `owners` says, for the remark,
    who owns elements where a map is not followed; `runs` which implementations of functions are the machine's. Raises
    UnsupportedError for any other name, CompileError for a module without exactly one kernel.
    """
    check_disabled(options, optional)
    kernel = kernel_of(module)
    for position, type in enumerate(kernel.function_type.inputs.data):
        if isinstance(type, VectorType):
            raise error_at(
                kernel,
                f"argument {position} of @{kernel.sym_name.data} is {type}: target {options.target} passes no vectors",
                hint="a kernel takes an array, and loads the vector from it",
                kind=UnsupportedError,
            )
    foreign = speaks_xegpu(kernel)
    stage("xegpu" if foreign else "xetile", module)

    def run(name: str, action: Callable[[], object]) -> None:
        action()
        observe(name, module)

    if inline_calls(kernel, runs):
        observe("inline-calls", module)
    begun = Begun(kernel, workgroup_form(module, run), run)
    if foreign:
        stage("xetile", module)
    leave_out_maps(kernel, remarks, strict=options.maps == "strict", instead=owners)
    run("widen-accumulators", lambda: widen_accumulators(kernel))
    begun.cleanup()
    run("while-to-for", lambda: while_to_for(kernel))
    run("fold-views", lambda: fold_views(kernel))
    run("neutral", lambda: remove_neutral(kernel))
    if "reciprocal" not in options.disable:
        run("reciprocal", lambda: use_reciprocals(kernel))
    return begun
