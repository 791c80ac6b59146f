"""The reference executor as a target: any kernel runs there, slowly, as its ops mean it.

Nothing is lowered. What another target computes for a kernel is compared with what this one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.arguments import Argument, ArrayArg, Grid, numpy_view
from tilewright.diagnostics import UnsupportedError
from tilewright.observer import Observer, ignore
from tilewright.targets.base import CompileOptions, Target

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


class ReferenceExecutable:
    """A kernel as its IR."""

    asm: Mapping[str, str] = {}
    remarks: Sequence[str] = ()

    def __init__(self, module: ModuleOp):
        self.module = module

    @property
    def ir(self) -> Mapping[str, str]:
        """The one stage there is, as text."""
        from tilewright.dialects.text import print_module

        return {"xetile": print_module(self.module)}

    def launch(self, grid: Grid, args: Sequence[Argument]) -> None:
        from tilewright import reference

        values = [numpy_view(arg) if isinstance(arg, ArrayArg) else arg for arg in args]
        reference.run(self.module, grid, values)


class ReferenceTarget(Target):
    """Builds nothing, stores nothing."""

    name = "reference"
    compiles = False
    takes_branches = True

    def build(
        self, module: ModuleOp, options: CompileOptions, observe: Observer = ignore
    ) -> ReferenceExecutable:
        from tilewright.passes.pipeline import check_switches

        check_switches(options.disable, {}, self.name)
        return ReferenceExecutable(module)

    def fingerprint(self, options: CompileOptions) -> str:
        return "reference"

    def describe(self, options: CompileOptions) -> str:
        """What runs it, for people."""
        from numpy import __version__

        return f"numpy {__version__}"

    def load(self, artifacts: Mapping[str, bytes], options: CompileOptions) -> ReferenceExecutable:
        raise UnsupportedError("the reference executor keeps nothing on disk")


TARGET = ReferenceTarget()
