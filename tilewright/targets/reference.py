"""The reference executor as a target: any kernel runs there, slowly, as its ops mean it.

Nothing is lowered. What another target computes for a kernel is compared with what this one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilewright.diagnostics import UnsupportedError
from tilewright.passes.observer import Observer, ignore
from tilewright.runtime.arrays import ArrayArg, numpy_view
from tilewright.targets.base import Argument, CompileOptions, Grid

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.uarch import Rates


class ReferenceExecutable:
    """A kernel as its IR."""

    asm: Mapping[str, str] = {}
    remarks: Sequence[str] = ()

    def __init__(self, module: ModuleOp):
        self.module = module

    @cached_property
    def ir(self) -> Mapping[str, str]:
        """The one stage there is, as text."""
        from tilewright.dialects.text import print_module

        return {"xetile": print_module(self.module)}

    def launch(self, grid: Grid, args: Sequence[Argument]) -> None:
        from tilewright import reference

        values = [numpy_view(arg) if isinstance(arg, ArrayArg) else arg for arg in args]
        reference.run(self.module, grid, values)


class ReferenceTarget:
    """Builds nothing, stores nothing."""

    name = "reference"
    takes_branches = True
    """Blocks that branch to each other run as they stand."""

    def build(
        self, module: ModuleOp, options: CompileOptions, observe: Observer = ignore
    ) -> ReferenceExecutable:
        from tilewright.passes.pipeline import check_switches

        check_switches(options.disable, {}, self.name)
        return ReferenceExecutable(module)

    def resolve_auto(self, request: Any, options: CompileOptions) -> Mapping[str, Any]:
        """Values for the constexprs that a launch leaves to the planner."""
        from tilewright.passes.planner import choose

        return choose(request, self.rates(options))

    def rates(self, options: CompileOptions) -> Rates:
        """Of a machine of no name: what runs here is a meaning, no machine."""
        from tilewright.uarch.base import GENERIC

        return GENERIC

    def fingerprint(self, options: CompileOptions) -> str:
        return "reference"

    def describe(self, options: CompileOptions) -> str:
        """What runs it, for people."""
        from numpy import __version__

        return f"numpy {__version__}"

    def load(self, artifacts: Mapping[str, bytes], options: CompileOptions) -> ReferenceExecutable:
        raise UnsupportedError("the reference executor keeps nothing on disk")


TARGET = ReferenceTarget()
