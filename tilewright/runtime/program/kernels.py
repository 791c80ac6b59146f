"""The kernels of a program: each is compiled once per launch shape, at the level that its text has.

Text goes to the target as it is; what a target takes of an Intel GPU alone is emulated where that is missing. What no
compiled path takes runs on the reference executor, with a remark.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import gpu
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp

from tilewright.arguments import ArrayArg, Grid, full_grid
from tilewright.diagnostics import TilewrightError, UnsupportedError, error_at, unsupported
from tilewright.dtypes import index
from tilewright.frozen import frozen
from tilewright.passes.host.to_calls import Launch
from tilewright.passes.memory_objects import ARGS, stored_arguments
from tilewright.reference.mlir_runner import Runner
from tilewright.runtime.arrays import describe, unwritable
from tilewright.runtime.key import ScalarType, signature_of
from tilewright.targets.base import Executable, Target, get_target

Say = Callable[[str], Any]
_REPEATS = 1
"""How often a launch runs whose results nothing reads, besides those whose results something does."""
Facts = tuple[DictionaryAttr, ...]
"""Of each kernel argument, what a launch from Python promises of it, too (`ArrayType.facts`)."""


@frozen
class _Ready:
    """A compiled kernel, and the target whose memory it reaches."""

    executable: Executable
    target: Target

    def launch(self, grid: Grid, arguments: Sequence[Any]) -> None:
        values = [describe(a) if hasattr(a, "shape") else a for a in arguments]
        with self.target.mirrored([v for v in values if isinstance(v, ArrayArg)]) as there:
            arrays = iter(there)
            placed = [next(arrays) if isinstance(v, ArrayArg) else v for v in values]
            self.executable.launch(grid, placed)


@frozen
class Interpreted:
    """A kernel that the reference executor runs."""

    module: ModuleOp
    name: str
    subgroups: int

    def launch(self, grid: Grid, arguments: Sequence[Any]) -> None:
        from tilewright import reference

        reference.run(
            self.module, grid, list(arguments), kernel=self.name, subgroups=self.subgroups
        )


class Kernels:
    """Launches the kernels of `module`; see `run_program` for the parameters."""

    def __init__(
        self, module: ModuleOp, *, level: str, target: str, say: Say, clock: Runner | None = None
    ) -> None:
        self._modules = {
            op.sym_name.data: op for op in module.body.block.ops if isinstance(op, gpu.ModuleOp)
        }
        self._level = level
        self._target = target
        self._say = say
        self._ready: dict[tuple[Any, ...], _Ready | Interpreted] = {}
        self._clock = clock
        self._unread: dict[tuple[Any, ...], list[float]] = {}
        """Of launches whose results nothing reads, by kernel and grid: the seconds of each that ran."""
        self._skipped: Counter[str] = Counter()

    def launch(self, launch: Launch, grid: Grid, block: Grid, arguments: Sequence[Any]) -> None:
        """Run one launch: `grid` workgroups of `block` threads, arguments as numpy arrays and numbers."""
        if min(grid) <= 0:
            return
        full_grid(grid)  # refuses what no machine counts
        facts = facts_of(arguments, get_target(self._target))
        folded = _folded(arguments)
        key = (*launch.kernel, block, facts, *folded)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = self._prepare(launch, block, facts, folded)
        if not launch.unread or self._clock is None:
            ready.launch(grid, arguments)
            return
        ran = self._unread.setdefault((*key, grid), [])
        if len(ran) < _REPEATS:
            start = time.perf_counter()
            ready.launch(grid, arguments)
            ran.append(time.perf_counter() - start)
        else:
            self._clock.elapsed += min(ran)
            self._skipped[launch.kernel[1]] += 1

    def close(self) -> None:
        """Tell what was left out."""
        for name, count in self._skipped.items():
            self._say(
                f"@{name}: {count} repeated launches whose results nothing reads were not run, but counted by "
                "the clock at the time of one (--every-launch runs them)"
            )

    def _prepare(
        self, launch: Launch, block: Grid, facts: Facts, folded: Mapping[int, str]
    ) -> _Ready | Interpreted:
        # Here, not above: a program without kernels starts without the compiler for them.
        from tilewright.runtime.program.isolate import compiled

        kernel, level, subgroups = self._form(launch, block)
        _refuse_overlap(kernel, facts, launch)
        name = kernel.sym_name.data
        because = ""
        for target in ways(self._target, level):
            try:
                _refuse_prints(kernel)
                _refuse_folded(kernel, folded)
                executable = compiled(kernel, level, subgroups, block, facts, target)
                self._say(f"@{name}: {level} level, compiled for {target}{because}")
                return _Ready(executable, get_target(target))
            except UnsupportedError as error:
                because = f", because {error.message}"
            except TilewrightError:
                raise
            except Exception as error:
                # The executor's answer is right, whatever went wrong in a pass, but the fault is reported.
                if os.environ.get("TILEWRIGHT_TRACEBACK"):
                    raise
                because = (
                    f", because of an internal error in the compiler ({type(error).__name__}: "
                    f"{error}); TILEWRIGHT_TRACEBACK=1 shows where"
                )
        if because:
            self._say(f"@{name}: {level} level, on the reference executor{because}")
        return self.interpreted(launch, block)

    def _form(self, launch: Launch, block: Grid) -> tuple[gpu.FuncOp, str, int]:
        """The kernel of a launch, whose program its text is, and how many subgroups run it."""
        from tilewright.passes.kernel import level_of
        from tilewright.passes.level import subgroups_of_launch, threads_of_launch

        kernel = self._find(launch)
        level = level_of(kernel) if self._level == "auto" else self._level
        threads = threads_of_launch(block, launch.location)
        return kernel, level, subgroups_of_launch(kernel, level, threads)

    def interpreted(self, launch: Launch, block: Grid) -> Interpreted:
        """The kernel of a launch as the reference executor runs it."""
        from tilewright.runtime.program.isolate import alone

        kernel, level, subgroups = self._form(launch, block)
        module = alone(kernel, level, subgroups, block)
        count = subgroups if level != "workgroup" else 1
        return Interpreted(module, kernel.sym_name.data, count)

    def _find(self, launch: Launch) -> gpu.FuncOp:
        outer, inner = launch.kernel
        module = self._modules.get(outer)
        for op in module.body.block.ops if module is not None else ():
            if isinstance(op, gpu.FuncOp) and op.sym_name.data == inner:
                return op
        raise error_at(launch.location, f"the program has no kernel @{outer}::@{inner}")


def _refuse_overlap(kernel: gpu.FuncOp, facts: Facts, launch: Launch) -> None:
    """A kernel made of a function's loops assumes that arrays do not overlap: its iterations run in any order."""
    assumed = kernel.attributes.get(ARGS)
    if not isinstance(assumed, ArrayAttr):
        return
    for n, (fact, each) in enumerate(zip(facts, assumed.data, strict=False)):
        promised = isinstance(each, DictionaryAttr) and "noalias" in each.data
        if promised and "noalias" not in fact.data:
            raise error_at(
                launch.location,
                f"argument {n} of @{kernel.sym_name.data} overlaps another one, and its loops run in any order",
                hint="pass arrays that do not overlap, or run the program as it is written: --target reference",
            )


def _folded(arguments: Sequence[Any]) -> dict[int, str]:
    """The arrays in which several elements are one in memory, and how."""
    arrays = (
        (n, a) for n, a in enumerate(arguments) if isinstance(a, np.ndarray) and 0 in a.strides
    )
    return {n: why for n, array in arrays if (why := unwritable(describe(array)))}


def _refuse_folded(kernel: gpu.FuncOp, folded: Mapping[int, str]) -> None:
    """Compiled code writes elements in any order: which of those that are one comes last is the executor's to say."""
    for n in stored_arguments(kernel) & folded.keys():
        raise unsupported(
            kernel, f"argument {n} of @{kernel.sym_name.data} is written, and is {folded[n]}"
        )


def _refuse_prints(kernel: gpu.FuncOp) -> None:
    """Compiled workgroups run at once and their lanes together: lines would mix, or come once for many lanes."""
    for op in kernel.walk():
        if op.name in ("gpu.printf", "vector.print"):
            raise unsupported(
                op,
                f"{op.name} of a kernel prints in order only where one instance runs after the other",
            )


def ways(target: str, level: str) -> tuple[str, ...]:
    """The targets to try in turn."""
    found = get_target(target)
    if not found.compiles:
        return ()
    if level == "workgroup" or found.emulator is None:
        return (target,)
    return target, found.emulator


def facts_of(arguments: Sequence[Any], target: Target) -> Facts:
    """What the code of a launch may know of its arrays, of whatever origin: where they lie, and who shares memory."""
    arrays = [
        describe(np.atleast_1d(a)) if isinstance(a, np.ndarray) else ScalarType(index)
        for a in arguments
    ]
    known = signature_of(arrays, alignment=target.alignment, row=target.row)
    return tuple(each.facts() for each in known)
