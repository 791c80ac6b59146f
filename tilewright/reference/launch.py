"""Running a module: finding the entry, binding arguments, one batch of workgroups after another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects import func, gpu
from xdsl.dialects.builtin import (
    DenseArrayBase,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    VectorType,
    i64,
)
from xdsl.ir import Attribute, Operation

from tilewright.arguments import full_grid
from tilewright.diagnostics import LaunchError, error_at
from tilewright.dialects.stage.programs import cluster_size
from tilewright.dialects.upstream.gpu.lanes import LANES
from tilewright.dialects.upstream.pointer import LLVMPointerType
from tilewright.frozen import field, record
from tilewright.passes.kernel import (
    BLOCK,
    LEVEL,
    SUBGROUPS,
    level_of,
    programs_of_launch,
    subgroups_of,
)
from tilewright.passes.kernel_outlining import outline_launches
from tilewright.passes.level import (
    lanes_of_launch,
    state_launch,
    subgroups_of_launch,
    threads_of_launch,
)
from tilewright.passes.linalg.bufferize import bufferize
from tilewright.passes.other_integers import other_integers
from tilewright.passes.ranked_arguments import ranked_arguments
from tilewright.printed import Lines
from tilewright.reference.agents import agents_of
from tilewright.reference.batch import Batch
from tilewright.reference.engine import Schedule
from tilewright.reference.lanes import width_of
from tilewright.reference.machine import Executor
from tilewright.reference.memory import AllocationMap
from tilewright.reference.mlir_runner import Runner, RunnerFunction
from tilewright.reference.numerics import numpy_type, round_to, shape_of
from tilewright.reference.pointers import TensorMapValue, is_of_threads
from tilewright.reference.program import Program, lay_out
from tilewright.reference.report import Report
from tilewright.reference.shadow import Shadow
from tilewright.reference.site import Site
from tilewright.reference.values import Index, MemRefValue, scalar

BATCH_BYTES = 1 << 29
"""Values of a batch together stay below this; grids that need more run in several batches."""


def run(
    module: ModuleOp,
    grid: Sequence[int] | int = (1, 1, 1),
    args: Sequence[Any] = (),
    *,
    kernel: str | None = None,
    check: bool = False,
    seed: int | None = None,
    subgroups: int | None = None,
    schedule: Schedule = "late",
) -> Report:
    """Runs a kernel, or a host-like function, as the meaning of its ops says.

    `args` are numpy arrays and numbers in the order of the kernel's arguments; arrays are used in place, whatever
    their strides, and written to; a pointer takes an array too, a tensor map a `pointers.TensorMapValue`. `grid` counts
    workgroups along x, y, z and is (1, 1, 1) for a `func.func`. `kernel` names the function where a module has
    several. `subgroups` overrides the kernel's attribute `tilewright.subgroups`. With `check` the run goes on after
    an error and the report holds all findings; without it an error raises `CheckError`.
    `seed` is for ops that draw random numbers. `schedule` says when asynchronous work of the stage
    dialect is done (`tilewright.reference.engine`).

    Raises `LaunchError` when the arguments do not fit, `UnsupportedError` for an op without
    meaning, `CheckError` where the program is undefined and that cannot be passed over.
    """
    bufferize(module)
    other_integers(module)
    outline_launches(module)
    ranked_arguments(module)
    function = find_entry(module, kernel)
    if isinstance(function, gpu.FuncOp):
        state_launch(function)
    program = lay_out(function)
    memory = AllocationMap()
    context = RunContext(
        memory,
        Report(),
        Shadow(memory),
        np.random.default_rng(seed),
        check,
        seed=seed,
        schedule=schedule,
    )
    bound, write_back = bind_arguments(function, program, args, memory, context.maps)
    block = _block(function, subgroups)
    workgroups = programs_of_launch(function, full_grid(grid))
    try:
        results = context.launch(program, workgroups, block, bound)
    finally:
        context.lines.finish()
    context.report.workgroups = int(np.prod(workgroups))
    context.report.moved_bytes, context.report.touched_bytes = context.shadow.traffic()
    context.report.results = [r[0] if isinstance(r, np.ndarray) else r for r in results]
    for original, copy in write_back:
        original[...] = copy
    return context.report


@record
class RunContext:
    """What all launches of a run share."""

    memory: AllocationMap
    report: Report
    shadow: Shadow
    rng: np.random.Generator
    checking: bool
    globals: dict[str, Index] = field(default_factory=dict[str, Index])
    """The addresses of memref.global buffers that were asked for."""
    seed: int | None = None
    schedule: Schedule = "late"
    lines: Lines = field(default_factory=Lines)
    """What has been printed by tw.print."""
    grid: tuple[int, int, int] = (1, 1, 1)
    """The grid that was asked for; clusters of workgroups may round it up."""
    maps: list[TensorMapValue] = field(default_factory=list[TensorMapValue])
    """The tensor maps that were passed, each of which a pointer names by its number."""

    @cached_property
    def library(self) -> dict[str, RunnerFunction]:
        """What host code may call without defining it."""
        return Runner(seed=self.seed).functions()

    def launch(
        self,
        program: Program,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
    ) -> list[Any]:
        """Runs all workgroups of a grid, one batch after another; row values of the results."""
        self.grid = grid
        cluster = cluster_size(program.function)
        grid = (-(-grid[0] // cluster) * cluster, *grid[1:])
        workgroups = prod(grid)
        results: list[Any] = []
        threads = is_of_threads(program.function)
        lanes = 1 if threads else width_of(program.function)
        agents = agents_of(program.function, prod(block))
        team = (-(-prod(block) // lanes) + agents) * cluster
        self.shadow.order_all(team)
        size = batch_size(program, prod(block), team if self.checking else 0)
        size = -(-size // cluster) * cluster
        for first in range(0, workgroups, size):
            last = min(first + size, workgroups)
            batch = Batch.of_workgroups(grid, first, last, block, lanes, agents, threads)
            machine = Executor(program, batch, self)
            results = machine.run(arguments)
            self.shadow.clocks.forget(first // cluster, last // cluster)
        self.shadow.order_all()
        return results


def launch(
    site: Site,
    function: Operation,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: Sequence[Any],
) -> None:
    """A kernel launched by host code that runs at `site`."""
    context = site.machine.context
    threads_of_launch(block, site.op)
    level = level_of(function)
    function.attributes.setdefault(LEVEL, StringAttr(level))
    if level == "lane":
        function.attributes[LANES] = IntegerAttr(lanes_of_launch(function, prod(block)), i64)
    if level == "workgroup":
        block = (1, 1, 1)
    elif SUBGROUPS in function.attributes:
        # A kernel that was distributed says how many run, whatever the host's text launches.
        block = (instances_of(function), 1, 1)
    elif level == "subgroup":
        count = subgroups_of_launch(function, level, prod(block))
        function.attributes[BLOCK] = DenseArrayBase.from_list(i64, list(block))
        if count != prod(block):  # one thread per lane: the program is that of their subgroups
            block = (count, 1, 1)
    context.launch(lay_out(function), grid, block, arguments)


def find_entry(module: ModuleOp, name: str | None = None) -> Operation:
    """The function to run: by name, else `main`, else the only kernel, else the only function."""
    kernels = [op for op in module.walk() if isinstance(op, gpu.FuncOp)]
    functions = [op for op in module.walk() if isinstance(op, func.FuncOp) and op.body.blocks]
    everything = [*kernels, *functions]
    if name is not None:
        found = [op for op in everything if _name(op) == name]
        if not found:
            known = ", ".join(_name(op) for op in everything) or "none"
            words = f"there is no function called {name!r}; there are: {known}"
            raise error_at(module, words, kind=LaunchError)
        return found[0]
    mains = [op for op in functions if _name(op) == "main" and not op.body.blocks[0].args]
    for candidates in (mains, kernels, functions):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(_name(op) for op in candidates)
            words = f"the module has several functions: {names}"
            raise error_at(candidates[1], words, hint="name one of them", kind=LaunchError)
    raise error_at(module, "the module has no function to run", kind=LaunchError)


def _name(op: Operation) -> str:
    name = op.properties.get("sym_name") or op.attributes.get("sym_name")
    return name.data if isinstance(name, StringAttr) else ""


def instances_of(function: Operation, subgroups: int | None = None) -> int:
    """Instances per workgroup: 1 at workgroup level, its subgroups or all their lanes below.

    `subgroups` overrides the kernel's attribute `tilewright.subgroups`.
    """
    level = function.attributes.get(LEVEL)
    if subgroups is None:
        below = isinstance(level, StringAttr) and level.data != "workgroup"
        subgroups = subgroups_of(function) if below else 1
    return subgroups * width_of(function)


def _block(function: Operation, subgroups: int | None) -> tuple[int, int, int]:
    """How the instances of a workgroup are arranged; a lane's program that names its launch's threads has those."""
    count = instances_of(function, subgroups)
    stated, level = function.attributes.get(BLOCK), function.attributes.get(LEVEL)
    if isinstance(stated, DenseArrayBase) and level == StringAttr("lane"):
        x, y, z = (int(extent) for extent in stated.get_values())
        # The last subgroup may have lanes that no thread of the launch stands for.
        if count - width_of(function) < x * y * z <= count:
            return x, y, z
    return count, 1, 1


def batch_size(program: Program, subgroups: int, team: int) -> int:
    """Workgroups per batch, so that all values of a batch fit `BATCH_BYTES`; and what parties know of their team."""
    total = 1
    for op in program.function.walk():
        for result in op.results:
            if isinstance(result.type, VectorType):
                total += int(np.prod(shape_of(result.type))) * 8
    return max(1, min(65536, BATCH_BYTES // max(total * subgroups, 4 * team**2)))


def bind_arguments(
    function: Operation,
    program: Program,
    args: Sequence[Any],
    memory: AllocationMap,
    maps: list[TensorMapValue],
) -> tuple[list[Any], list[tuple[Any, Any]]]:
    """Row values of the arguments, and arrays that must be copied back after the run."""
    name = _name(function)
    if len(args) != len(program.arguments):
        raise error_at(
            function,
            f"@{name} takes {len(program.arguments)} arguments, {len(args)} given",
            kind=LaunchError,
        )
    bound: list[Any] = []
    write_back: list[tuple[Any, Any]] = []
    for position, (argument, given) in enumerate(zip(program.arguments, args, strict=True)):
        what = f"argument {position} of @{name}"
        if isinstance(argument.type, MemRefType):
            memref = cast(MemRefType[Attribute], argument.type)
            array = _array(given, memref, what)
            if any(stride % array.itemsize for stride in array.strides):
                original, array = array, array.copy()
                if original.flags.writeable:
                    write_back.append((original, array))
                else:
                    array.flags.writeable = False
            memory.add_array(array, what)
            bound.append(memref_of(array))
        elif isinstance(given, TensorMapValue):
            memory.add_array(given.array, what)
            bound.append(scalar(len(maps)))
            maps.append(given)
        elif isinstance(argument.type, LLVMPointerType) and isinstance(given, np.ndarray):
            array = cast(np.ndarray[Any, Any], given)
            memory.add_array(array, what)
            bound.append(scalar(array.__array_interface__["data"][0]))
        else:
            bound.append(_number(given, argument.type, what))
    return bound, write_back


def _array(given: Any, type: MemRefType[Attribute], what: str) -> Any:
    if not isinstance(given, np.ndarray):
        raise LaunchError(f"{what} is an array of type {type}, got {given!r}")
    array = cast(np.ndarray[Any, Any], given)
    wanted = numpy_type(type)
    if array.dtype != wanted and not _same_bits(array.dtype, wanted):
        raise LaunchError(f"{what} has elements {wanted}, got an array of {array.dtype}")
    shape = type.get_shape()
    fits = len(shape) == array.ndim and all(
        extent in (-1, actual) or extent < 0
        for extent, actual in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise LaunchError(f"{what} has type {type}, got an array of shape {array.shape}")
    return array


def _same_bits(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Signless integers take unsigned arrays, and bool takes bytes."""
    return given.kind in "iub" and wanted.kind in "iub" and given.itemsize == wanted.itemsize


def memref_of(array: np.ndarray[Any, Any]) -> MemRefValue:
    """The memref that stands for an array (its strides are multiples of the item size)."""
    return MemRefValue(
        scalar(array.__array_interface__["data"][0]),
        scalar(0),
        tuple(scalar(extent) for extent in array.shape),
        tuple(scalar(stride // array.itemsize) for stride in array.strides),
    )


def _number(given: Any, type: Attribute, what: str) -> Any:
    dtype = numpy_type(type)
    value = np.asarray(given)
    if value.shape != shape_of(type) or (value.dtype.kind in "OUS"):
        raise LaunchError(f"{what} is a {type}, got {given!r}")
    if dtype.kind in "iu" and value.dtype.kind not in "iub":
        raise LaunchError(f"{what} is a {type}, got {given!r}")
    with np.errstate(all="ignore"):
        return round_to(value[None], type)
