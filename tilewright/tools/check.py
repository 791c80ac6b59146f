"""Run a kernel stage by stage on random inputs, and name the first pass that changed a result.

The program as it was written runs in the reference executor's checking mode first: races, reads of
uninitialised memory and undefined accesses are errors. Then every pass of the target runs, and the
program that it left is executed too; at the end the compiled code. Of the last stage, a thread's program for the
machine, checking mode finds races and reads of what has not arrived too. Results are compared with those
of the program as written: floats by relative Frobenius norm, integers exactly; NaN stands where NaN
stood, and what was not written stays as it was.

A whole program runs in checking mode, too; then each kernel that it launches is checked on what it is launched with.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from tilewright import dtypes, reference
from tilewright.arguments import ArrayArg
from tilewright.diagnostics import CheckError, Note, TilewrightError, UnsupportedError
from tilewright.frozen import frozen
from tilewright.passes.array_arguments import array_arguments
from tilewright.passes.kernel import kernel_of, level_of
from tilewright.passes.ranked_arguments import ranked_arguments
from tilewright.reference.engine import Schedule
from tilewright.reference.report import check_error
from tilewright.runtime.arrays import describe
from tilewright.runtime.program.host import enter_program
from tilewright.runtime.program.kernels import ways
from tilewright.targets.base import CompileOptions, Interpretable, get_target, with_options
from tilewright.targets.entry import build_text, first_forms, state_levels
from tilewright.tools.check_inputs import Inputs, grid_of, make_args, poisoned, specs_of
from tilewright.tools.check_kernels import (
    ITERATIONS,
    as_tiles,
    is_executable,
    is_host,
    kernel_in,
    outlined,
    separate,
    shortened,
)
from tilewright.tools.check_launches import check_launches
from tilewright.tools.check_results import changed
from tilewright.tools.compile import FILE, add_code_arguments, add_kernel_arguments, changes_of
from tilewright.tools.console import err, out, render_error
from tilewright.tools.exits import DONE, INPUT_ERROR, UsageError, add_options, count
from tilewright.tools.launches import ask
from tilewright.tools.limited import add_trusted, limited, refuse_internal
from tilewright.tools.rounding import Rounding, roundings_of, step_of
from tilewright.tools.sources import (
    CommandSource,
    find_kernel,
    kernel_alone,
    parse_argument,
    parse_constexprs,
    parse_grid,
    parse_source,
)

EPILOG = """\
examples:
  tilewright check kernel.mlir                       sizes are chosen from the kernel's tiles
  tilewright check examples/01_gemm.py:gemm --args 'bf16[300,90]' 'bf16[90,260]' 'f32[300,260]'
  tilewright check kernel.mlir --target xe-pvc       every level down to lanes, no GPU needed
  tilewright check program.mlir --target sm_90a      each kernel that a program launches, on its arrays
  tilewright check FILE.py:KERNEL --args 'f32[70,65]' 'f32[70,65]' --grid 2,2 --seed 7
"""

NUDGES, STEP = 4, 2.0**-7
"""How often inputs are changed by a step, to see what results are made up of, and the least step: of values that a
program rounds, a smaller one would move few, and those by far more than itself."""
Runner = Callable[[tuple[int, int, int], Sequence[Any]], Any]


@frozen
class Stage:
    """A program that should compute what the first stage computes. `run` writes to its arguments."""

    name: str
    run: Runner

    def silent(self, inputs: Inputs, args: Sequence[Any]) -> None:
        """Runs it; what the kernel prints, checking mode has printed."""
        with redirect_stdout(StringIO()):
            self.run(inputs.grid, args)


class NotRun(Exception):
    """A stage that this machine has no way to run; says why."""


@frozen
class Difference:
    """The first stage whose result is another one, and where."""

    stage: str
    before: str
    """The last stage that was right."""
    argument: int
    message: str

    def __str__(self) -> str:
        return (
            f"{self.stage} changed the result: argument {self.argument} {self.message} "
            f"(after {self.before} it was right)"
        )


def check_stages(
    stages: Sequence[Stage],
    inputs: Inputs,
    done: Callable[[Stage], None] | None = None,
    roundings: Sequence[Rounding] = (),
) -> Difference | None:
    """Runs every stage on the same inputs; the first that gives other results, None if all agree.

    The first stage is taken as right. `done` is called with every stage that agreed. `roundings`: how far right runs
    are apart at each argument; where none is given, floats may be computed in their own type.
    """
    expected: list[Any] | None = None
    terms: list[Any] | None = None
    before = ""
    for stage in stages:
        args = inputs.copies()
        try:
            stage.silent(inputs, args)
        except NotRun as error:
            out().print(f"  not run: {stage.name}: {error}")
            continue
        except CheckError as error:
            right = f"; {before} was right" if before else ""
            raise error.with_note(Note(f"in {stage.name}{right}")) from None
        if expected is None:
            expected = args
        for position, (start, right, given) in enumerate(
            zip(inputs.args, expected, args, strict=True)
        ):
            if not isinstance(right, np.ndarray):
                continue
            rounding = roundings[position] if roundings else None
            if message := changed(start, right, given, rounding):
                if terms is None:
                    terms = _terms(stages[0], inputs, expected)
                if message := changed(start, right, given, rounding, terms[position]):
                    return Difference(stage.name, before, position, message)
        before = stage.name
        if done is not None:
            done(stage)
    return None


def _terms(stage: Stage, inputs: Inputs, expected: Sequence[Any]) -> list[Any]:
    """How large what makes up each element of each argument's result is, by how much it follows steps of the inputs.

    What is left of a sum that cancels says nothing of how far two orders of it may be apart.
    """
    floats = [a.dtype for a in inputs.args if isinstance(a, np.ndarray)]
    step = max([STEP, *(step_of(d) for d in map(dtypes.from_numpy, floats) if d.is_float)])
    found: list[Any] = [np.zeros(np.shape(e)) for e in expected]
    rng = np.random.default_rng(0)
    for _ in range(NUDGES):
        args = inputs.copies()
        for a in args:
            if isinstance(a, np.ndarray) and dtypes.from_numpy(a.dtype).is_float:
                a[...] = (a * (1 + step * rng.choice([-1.0, 1.0], a.shape))).astype(a.dtype)
        try:
            stage.silent(inputs, args)
        except CheckError:  # floats that are places: these are out of bounds
            continue
        for total, right, other in zip(found, expected, args, strict=True):
            if isinstance(right, np.ndarray) and dtypes.from_numpy(right.dtype).is_float:
                moved = (other.astype(np.float64) - right.astype(np.float64)) / step
                np.add(total, moved**2 / NUDGES, out=total, where=np.isfinite(moved))
    return [np.sqrt(total) for total in found]


def stages_of_target(
    module: ModuleOp, options: CompileOptions, schedules: int = 0, seed: int = 0
) -> list[Stage]:
    """The program as written, after every pass of the target that changed it, and as code.

    `schedules`: how often the last stage runs once more, in another order each time, drawn from `seed`.
    """
    stages = [Stage("the program as written", _interpreter(module.clone()))]
    seen = str(module)

    lane: ModuleOp | None = None
    last: tuple[str, ModuleOp] | None = None

    def observe(name: str, changed: ModuleOp) -> None:
        nonlocal seen, lane, last
        if kernel_in(changed) is None:
            last = name, changed
        elif (text := str(changed)) != seen and is_executable(changed):
            seen = text
            lane = changed.clone()
            stages.append(Stage(f"pass {name}", _interpreter(lane)))

    target = get_target(options.target)
    executable = build_text(module.clone(), options, observe)
    if lane is not None and target.emulator is not None and _level(lane) != "workgroup":
        emulated = build_text(lane.clone(), with_options(options, {"target": target.emulator}))
        stages.append(Stage("the lanes' program, compiled for this CPU", _launcher(emulated)))
    if last is not None and isinstance(executable, Interpretable):
        name = f"pass {last[0]}"
        stages.append(Stage(name, _threads(executable, last[1], "late", seed)))
        for n in range(schedules):
            run = _threads(executable, last[1], "random", seed + n)
            stages.append(Stage(f"{name}, schedule {n + 1}", run))
    if target.compiles:
        missing, name = target.missing(), f"code generation for {options.target}"
        run = _not_run(missing) if missing else _launcher(executable, target.mirrored)
        stages.append(Stage(name, run))
    return stages


def _level(module: ModuleOp) -> str:
    kernel = kernel_in(module)
    assert kernel is not None
    return level_of(kernel)


def _not_run(reason: str) -> Runner:
    def run(grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        raise NotRun(reason)

    return run


def _interpreter(module: ModuleOp) -> Runner:
    return lambda grid, args: reference.run(module, grid, args)


_UNSPECIFIED = ("conversion", "division", "shift")
"""What gives any number: threads do it to elements that nobody reads, beyond the edge of an array."""


def _threads(executable: Interpretable, module: ModuleOp, schedule: Schedule, seed: int) -> Runner:
    """The last stage in checking mode: what is undefined there is the compiler's mistake."""

    def run(grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        given = [describe(a) if isinstance(a, np.ndarray) else a for a in args]
        try:
            report = executable.interpret(module, grid, given, schedule, seed)
        except UnsupportedError as error:
            raise NotRun(error.message) from error
        if found := [e for e in report.errors if e.kind not in _UNSPECIFIED]:
            raise check_error(found)

    return run


def _launcher(
    executable: Any, there: Callable[[list[ArrayArg]], AbstractContextManager[Any]] = nullcontext
) -> Runner:
    """Launches on arrays of the host; `there` brings them to where the kernel runs, and back."""

    def run(grid: tuple[int, int, int], args: Sequence[Any]) -> None:
        described = [describe(a) for a in args if isinstance(a, np.ndarray)]
        with there(described) as moved:
            arrays = iter(moved)
            given = [next(arrays) if isinstance(a, np.ndarray) else a for a in args]
            try:
                executable.launch(grid, given)
            except UnsupportedError as error:
                raise NotRun(error.message) from error

    return run


# The command.


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help=FILE)
    add_kernel_arguments(parser)
    rows = {
        "--grid X,Y,Z": "workgroups; default: what covers the arrays",
        "--all": f"long loops too: not only {ITERATIONS} iterations",
    }
    add_options(parser, rows)
    parser.add_argument(
        "--target", default="cpu", help="whose passes run: cpu (default), reference, xe-pvc, .."
    )
    parser.add_argument(
        "--schedules", type=count, default=0, metavar="N",
        help="run the last stage N times more: copies, products and warps in another order each time",
    )  # fmt: skip
    parser.add_argument("--seed", type=count, help="of the random inputs; printed when not given")
    add_code_arguments(parser)
    add_trusted(parser)


def execute(args: argparse.Namespace) -> int:
    source = parse_source(args.file, of_modules=True)
    if source.is_python:
        return check(source, args)
    return limited(lambda: check(source, args))


def check(source: CommandSource, args: argparse.Namespace) -> int:
    """Checks what a file holds, all of it."""
    seed = args.seed if args.seed is not None else secrets.randbelow(2**31)
    options = with_options(CompileOptions(), changes_of(args))
    module, specs = load(source, args.args, args.set, options)
    if not source.is_python:
        refuse_internal(module, args.trusted)
    units = separate(module)
    if len(units) == 1:
        return _check(args, source, module, specs, seed, options)
    status = DONE
    for name, unit in units:
        out().print(f"{name}:")
        try:
            status = _check(args, source, unit, specs, seed, options) or status
        except TilewrightError as error:
            render_error(str(error))
            status = INPUT_ERROR
    return status


def _check(
    args: argparse.Namespace,
    source: CommandSource,
    module: ModuleOp,
    specs: list[Any] | None,
    seed: int,
    options: CompileOptions,
) -> int:
    """One kernel, or a program that runs by itself."""
    if source.kernel is not None and not source.is_python:
        module = kernel_alone(source, module, options.target)
    first_forms(module)
    if is_host(module):
        return _check_program(args, module, specs, seed, options)
    ranked_arguments(module)
    array_arguments(module)
    module, few = outlined(module)
    state_levels(module)
    kernel = as_tiles(module)
    if kernel is None:
        return _check_program(args, module, specs, seed, options)
    values = make_args(specs if specs is not None else specs_of(kernel), seed)
    if args.grid:
        grid = parse_grid(args.grid, parse_constexprs(args.set))
    else:
        grid = few or grid_of(kernel, values)
    inputs = poisoned(kernel, Inputs(grid, values))
    out().print(f"seed {seed}, {inputs}")
    return _check_kernel(args, module, inputs, seed, options)


def _check_program(
    args: argparse.Namespace,
    module: ModuleOp,
    specs: Sequence[Any] | None,
    seed: int,
    options: CompileOptions,
) -> int:
    """What a program does, and each kernel that it launches, on what it is given there."""
    entry = enter_program(module, None, specs or ())
    with redirect_stdout(StringIO()):  # it is run once more
        report = reference.run(module.clone(), kernel=entry, check=True, seed=seed)
    if status := _report(report):
        return status

    def check_one(name: str, kernel: ModuleOp, inputs: Inputs) -> None:
        out().print(f"{name}: {inputs}")
        refused: list[str] = []
        for target in ways(options.target, level_of(kernel_of(kernel))):
            try:
                status = _check_kernel(
                    args, kernel.clone(), inputs, seed, replace(options, target=target)
                )
            except UnsupportedError as error:
                refused.append(f"  not compiled for {target}: {error.message}")
                continue
            if status:
                raise CheckError(f"@{name} does what is undefined on what it is launched with")
            return
        out().print("\n".join(refused))

    check_launches(module, entry, options.target, seed, check_one)
    return DONE


def _check_kernel(
    args: argparse.Namespace, module: ModuleOp, inputs: Inputs, seed: int, options: CompileOptions
) -> int:
    """A kernel on its inputs, stage by stage."""
    whole, grid = module, inputs.grid
    module, cut = (module, 0) if args.all else shortened(module)
    report = reference.run(module, grid, inputs.copies(), check=True)
    if cut and not report.ok:
        # The loop that was cut may have filled what the rest reads.
        module, cut = whole, 0
        report = reference.run(module, grid, inputs.copies(), check=True)
    if cut:
        out().print(f"the first {ITERATIONS} iterations of {cut} long loops; --all runs every one")
    if status := _report(report):
        return status
    stages = stages_of_target(module, options, args.schedules, seed)
    found = check_stages(
        stages,
        inputs,
        lambda stage: out().print(f"  right: {stage.name}"),
        roundings_of(module, ITERATIONS),
    )
    if found is not None:
        raise CheckError(str(found), hint=f"--seed {seed} gives the same inputs again")
    out().print(f"{len(stages)} stages agree")
    return DONE


def load(
    source: CommandSource, arguments: list[str], settings: list[str], options: CompileOptions
) -> tuple[ModuleOp, list[Any] | None]:
    """The kernel's module, and what its arguments are (None: to be chosen from its types)."""
    if not source.is_python:
        from tilewright.dialects.text import parse_module

        warnings: list[str] = []
        module = parse_module(source.read(), source.name, warnings=warnings)
        for warning in warnings:
            err().print(warning)
        return module, [parse_argument(text) for text in arguments] or None
    kernel = find_kernel(source)
    if not arguments:
        raise UsageError(
            f"what are the arguments of {kernel.name}? give them, for example: --args 'f32[70,65]' 'f32[70,65]'"
        )
    given = [parse_argument(text) for text in arguments]
    asked = ask(kernel, given, parse_constexprs(settings, kernel), options)
    return asked.module, asked.values


def _report(report: reference.Report) -> int:
    """Prints what checking mode found, what is merely worth knowing in one line; the exit code."""
    for finding in report.errors:
        err().print(str(finding))
    if count := len(report.warnings):
        places = [str(f.location) for f in report.warnings if f.location is not None]
        more = ", .." if len(places) > 4 else ""
        err().print(
            f"remark: {count} tile{'s' * (count > 1)} reach{'es' * (count == 1)} past the edge of an array"
            f" ({', '.join(places[:4])}{more}): loads give the padding there, stores are dropped"
        )
    return DONE if report.ok else INPUT_ERROR
