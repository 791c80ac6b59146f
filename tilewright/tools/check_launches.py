"""Checking the kernels of a program on what it launches them with.

Kernels of a whole program are tested by what they are given in it: sizes, strides and numbers that no one else could
make up. Each is checked the first time it is launched with such arrays, and the program goes on with what the
reference executor makes of the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tilewright.arguments import Grid
from tilewright.passes.host.to_calls import Launch
from tilewright.runtime.program import run_program
from tilewright.runtime.program.kernels import Kernels
from tilewright.runtime.program.worker import Limits, in_worker
from tilewright.tools.check_inputs import Inputs
from tilewright.tools.check_kernels import FEW

Check = Callable[[str, ModuleOp, Inputs], None]
"""Checks a kernel: its name, a module with it alone, what it is launched with. Raises what it finds."""


class CheckedKernels(Kernels):
    """The kernels of a program, each of which is checked before it is launched with arrays of other shapes."""

    def __init__(self, *args: Any, check: Check, **words: Any) -> None:
        super().__init__(*args, **words)
        self._check = check
        self._checked: set[Any] = set()

    def launch(self, launch: Launch, grid: Grid, block: Grid, arguments: Sequence[Any]) -> None:
        if min(grid) <= 0:
            return
        kernel = self.interpreted(launch, block)
        arrays = [(a.shape, a.strides) for a in arguments if isinstance(a, np.ndarray)]
        if (key := (*launch.kernel, block, *arrays)) not in self._checked:
            self._checked.add(key)
            x, y, z = (min(n, FEW) for n in grid)
            given = Inputs((x, y, z), tuple(arguments))
            self._check(kernel.name, kernel.module, Inputs(given.grid, tuple(given.copies())))
        kernel.launch(grid, arguments)


def check_launches(module: ModuleOp, entry: str, target: str, seed: int, check: Check) -> None:
    """Runs the program `module` from its function `entry`, which takes nothing, and checks every kernel that it
    launches for a target."""
    launcher = partial(CheckedKernels, check=check)

    def run(fail: Callable[[BaseException], Any]) -> list[str]:
        return run_program(
            module, entry=entry, target=target, seed=seed, every_launch=True, fail=fail,
            launcher=launcher,
        )  # fmt: skip

    in_worker(run, Limits())  # no exception crosses the compiled code that launches
