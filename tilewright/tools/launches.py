"""A Python kernel as the command line launches it: random arrays, outputs of NaN, and the grid that covers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tilewright.diagnostics import LaunchError
from tilewright.frozen import frozen
from tilewright.lang.kernel import definition
from tilewright.runtime.key import signature_of
from tilewright.targets.base import CompileOptions
from tilewright.tools.check_inputs import Inputs, covering, make_args, poisoned
from tilewright.tools.check_kernels import kernel_in
from tilewright.tools.exits import UsageError
from tilewright.tools.sources import parse_grid


@frozen
class LaunchRequest:
    """What was asked of a kernel, told apart."""

    kernel: Any
    module: ModuleOp
    names: list[str]
    """The run-time parameters."""
    values: list[Any]
    """One for each of them: a number, or an array's shape and type."""
    constexprs: dict[str, Any]
    """With those that the planner chose."""

    def launch(self, grid: tuple[int, ...], values: Sequence[Any]) -> None:
        """Runs the kernel; LaunchError is placed at its definition."""
        try:
            self.kernel[grid](**dict(zip(self.names, values, strict=True)), **self.constexprs)
        except LaunchError as error:
            raise error.at(definition(self.kernel.function)) from None


def ask(
    kernel: Any, given: Sequence[Any], constexprs: Mapping[str, Any], options: CompileOptions
) -> LaunchRequest:
    """The kernel's module for arguments like these."""
    chosen, values = kernel.resolve(kernel.launcher.bind(tuple(given), constexprs))
    types, constexprs, _ = chosen.launcher.describe(values)
    built: Any = chosen.build(signature_of(types), constexprs, options).module
    pairs = [(p.name, v) for p, v in zip(chosen.parameters, values, strict=True) if not p.constexpr]
    return LaunchRequest(
        kernel,
        built if isinstance(built, ModuleOp) else built.module,
        [name for name, _ in pairs],
        [value for _, value in pairs],
        dict(constexprs),
    )


def inputs_of(asked: LaunchRequest, grid: str | None, seed: int) -> Inputs:
    """Random inputs, outputs of NaN, and the grid: the one that covers the arrays, or a given one that does."""
    function = kernel_in(asked.module)
    assert function is not None
    values = make_args(asked.values, seed)
    return poisoned(function, Inputs(grid_for(asked, grid, values), values))


def grid_for(asked: LaunchRequest, grid: str | None, values: Sequence[Any]) -> tuple[int, int, int]:
    """The grid that covers the arrays, or a given one."""
    if grid is not None:
        return parse_grid(grid, asked.constexprs)
    function = kernel_in(asked.module)
    assert function is not None
    needed, unknown = covering(function, values)
    if unknown:
        axes = " and ".join(map(str, unknown))
        raise UsageError(
            f"the grid of kernel {asked.kernel.name} does not follow from its tiles along axis {axes}",
            hint="--grid 4,2 sets the number of programs along each axis",
        )
    x, y, z = (needed.get(axis, 1) for axis in range(3))
    return x, y, z


def shortfall(
    asked: LaunchRequest, grid: tuple[int, int, int], values: Sequence[Any]
) -> str | None:
    """Why a grid leaves a part of the arrays out; None when it covers them, or that is unknown."""
    function = kernel_in(asked.module)
    assert function is not None
    needed, _ = covering(function, values)
    full = [needed.get(axis, 1) for axis in range(3)]
    if all(have >= want for have, want in zip(grid, full, strict=True)):
        return None
    return f"the grid {text_of(grid)} covers a part of the arrays: {text_of(full)} cover them"


def text_of(grid: Sequence[int]) -> str:
    """As ``--grid`` takes it, without axes of one program at the end."""
    axes = list(grid)
    while len(axes) > 1 and axes[-1] == 1:
        axes.pop()
    return ",".join(map(str, axes))
