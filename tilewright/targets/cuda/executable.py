"""A compiled CUDA kernel: code per device, and launches whose arguments are packed once.

The first launch on arrays of new shapes makes a `_Call`: what of the parameters does not change
between launches (extents, strides, the launched grid). For every set of addresses, scalars and grid
it keeps the finished parameter block, tensor maps included, so that a launch seen before is one
dictionary look-up and one driver call. The driver copies parameters while it enqueues: several
threads share a block, and CUDA graphs capture launches as they are.
"""

from __future__ import annotations

import ctypes as C
import json
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.arguments import Argument, ArrayArg, Grid
from tilewright.diagnostics import LaunchError, UnsupportedError
from tilewright.targets.base import PreparedLaunch
from tilewright.targets.cuda import driver, streams
from tilewright.targets.cuda.enqueue import native_launch
from tilewright.targets.cuda.fitting import measured
from tilewright.targets.cuda.inspect import texts
from tilewright.targets.cuda.lowered import (
    Extent,
    LaunchPlan,
    Pointer,
    Programs,
    Scalar,
    Slot,
    Stride,
    TensorMapOf,
)
from tilewright.targets.cuda.reach import unreachable
from tilewright.targets.cuda.retiling import Retiling
from tilewright.targets.cuda.work_split import UNSPLIT, WorkSplit, choose, may_gain
from tilewright.targets.host import scalar_word
from tilewright.targets.stages import StageTexts
from tilewright.uarch.nvidia import COMMON_LIMITS

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.reference import Report
    from tilewright.reference.engine import Schedule

_MAX_BLOCKS = 512
"""Parameter blocks kept per kernel and look of arguments; with more, they are made anew."""

_MAX_STREAMS = 64

_GRID_LIMITS = [COMMON_LIMITS[name].most or 0 for name in ("grid_x", "grid_yz", "grid_yz")]


def fits(capability: tuple[int, int], machine: str) -> bool:
    """Does code for `machine` run there? sm_90a's only on 9.0, sm_80's from 8.0 on."""
    return capability == (9, 0) if machine == "sm_90a" else capability >= (8, 0)


class CudaExecutable:
    """See `tilewright.targets.base.Executable`; also Preparable and Storable."""

    def __init__(
        self,
        image: bytes,
        plan: LaunchPlan,
        machine: str,
        remarks: Sequence[str],
        ir: StageTexts,
        llvm: str,
    ):
        """`image`: PTX, made from `llvm`."""
        self.ir = ir
        self.remarks = list(remarks)
        self.plan = plan
        self.machine = machine
        self._image = image
        self._llvm = llvm
        self._functions: dict[int, driver.CudaFunction] = {}
        self._guard = threading.Lock()
        self._by_threads: CudaExecutable | None = None
        self._split_builds: dict[WorkSplit, CudaExecutable] = {}
        self.retiling = Retiling(ir.source, machine)
        self.asm: Mapping[str, str] = texts(
            llvm, image.decode(), machine, plan.threads, plan.shared_bytes
        )
        """`llvm`, `ptx`, and by tools where they are installed `sass` and `resources`."""

    def artifacts(self) -> Mapping[str, bytes]:
        facts = {"plan": self.plan.to_json(), "machine": self.machine, "remarks": self.remarks}
        return {
            "ptx": self._image,
            "plan": json.dumps(facts).encode(),
            "texts": json.dumps({"source": self.ir.source, "llvm": self._llvm}).encode(),
        }

    @staticmethod
    def from_artifacts(artifacts: Mapping[str, bytes], ir: StageTexts, llvm: str) -> CudaExecutable:
        """What `artifacts` gave; ValueError or KeyError for anything else."""
        facts = json.loads(artifacts["plan"])
        try:
            plan = LaunchPlan.from_json(facts["plan"])
        except TypeError as error:
            raise ValueError(str(error)) from None
        return CudaExecutable(artifacts["ptx"], plan, facts["machine"], facts["remarks"], ir, llvm)

    # Code -----------------------------------------------------------------------------------------

    def function(self, ordinal: int) -> driver.CudaFunction:
        """The kernel loaded on a device, assembled by the driver on first use there.

        UnsupportedError where the device is of another architecture; DriverError with the
        assembler's log where it refuses the code.
        """
        found = self._functions.get(ordinal)
        if found is None:
            with self._guard:
                found = self._functions.get(ordinal)
                if found is None:
                    device = driver.device(ordinal)
                    if not fits(device.capability, self.machine):
                        major, minor = device.capability
                        raise UnsupportedError(
                            f"this code is for {self.machine}, and cuda:{ordinal} ({device.name}) has"
                            f" compute capability {major}.{minor}",
                            hint="leave the machine out: it follows the device",
                        )
                    with device.current():
                        found = driver.load_function(
                            self._image, self.plan.entry, self.plan.shared_bytes
                        )
                    if found.local_bytes:
                        self.remarks.append(
                            f"{found.local_bytes} bytes per thread lie in local memory: registers"
                            " were spilled"
                        )
                    self._functions[ordinal] = found
        return found

    # Launch ---------------------------------------------------------------------------------------

    def launch(self, grid: Grid, args: Sequence[Argument]) -> None:
        self.prepare(args)(grid, [a.pointer if isinstance(a, ArrayArg) else a for a in args])

    def prepare(self, args: Sequence[Argument]) -> PreparedLaunch:
        reason = unreachable(self.plan, args)
        return _Call(self if reason is None else self.by_threads(reason), args)

    def interpret(
        self, module: ModuleOp, grid: Grid, args: Sequence[Argument], schedule: Schedule, seed: int
    ) -> Report:
        """See `tilewright.targets.base.Interpretable`. UnsupportedError where threads would load and store instead."""
        from tilewright.targets.cuda.interpret import interpret

        if (reason := unreachable(self.plan, args)) is not None:
            raise UnsupportedError(f"a launch would use the code without the copy engine: {reason}")
        return interpret(module, self.plan, grid, args, check=True, schedule=schedule, seed=seed)

    def by_threads(self, reason: str) -> CudaExecutable:
        """The same kernel without the copy engine, made on first use, for arrays that it cannot address."""
        if self._by_threads is None:
            from tilewright.dialects.text import parse_module
            from tilewright.targets.base import CompileOptions
            from tilewright.targets.cuda.target import TARGET

            options = CompileOptions("cuda", self.machine, disable=frozenset({"multi-buffering"}))
            self._by_threads = TARGET.build(parse_module(self.ir.source), options)
            self.remarks.append(f"threads load and store what the copy engine would: {reason}")
        return self._by_threads

    def foresee(self, grid: Grid, args: Sequence[Argument]) -> None:
        """See `tilewright.targets.base.Foreseeing`. It asks no driver, if that was asked for the device before."""
        if self.plan.splits:
            multiprocessors = driver.device(_ordinal(args)).multiprocessors
            split, _ = work_split_of(self, grid, args, args, multiprocessors)
            if split != UNSPLIT:
                self.shared(split)

    def shared(self, split: WorkSplit) -> CudaExecutable:
        """The same kernel with several workgroups for each program, made or fetched from disk on first use.

        This one where that cannot be.
        """
        found = self._split_builds.get(split)
        if found is None:
            from tilewright.targets.cuda.target import build_split

            made = build_split(self.ir.source, self.machine, split)
            found = self._split_builds[split] = made or self
            told = (
                f"{split.tiles} times as many tiles, clusters of {split.parts} for the loop of each"
            )
            told = "loops ask for what several iterations read" if split.ahead else told
            if split.merged:
                told = " x ".join(f"{by}/{of}" for by, of in split.merged)
                told = f"one program for {told} of these, in clusters of {split.parts}"
            room = "" if made else ", were there room for them"
            which = "of tiles that suit the machine less" if split.merged else "of few programs"
            self.remarks.append(f"launches {which}: {told}{room}")
        return found


FEW = 2
"""Programs of `THREADS` or more for each multiprocessor up to which a launch has few; smaller ones count by threads."""
THREADS = 128


def work_split_of(
    executable: CudaExecutable,
    grid: Grid,
    args: Sequence[Any],
    values: Sequence[Any],
    multiprocessors: int,
) -> tuple[WorkSplit, Grid]:
    """How many workgroups should compute each program of a launch on `grid` with the arrays of `args`, and the grid of
    these programs, where they are others.

    `values`: numbers at the places of those that are none."""
    plan = executable.plan
    programs = grid[0] * grid[1] * grid[2] * plan.split
    given = [a if isinstance(a, ArrayArg) else v for a, v in zip(args, values, strict=True)]
    if plan.work is None:
        found = executable.retiling.choice(grid, given, multiprocessors) if plan.merges else None
        large = programs * min(1, plan.threads / THREADS)
        return found or (WorkSplit(ahead=plan.short and large <= FEW * multiprocessors), grid)
    work = measured(plan.work, executable.machine)
    if work.dimension < 0:
        end = int(values[work.argument])
    else:
        end = args[work.argument].shape[work.dimension]
    shapes = [a.shape if isinstance(a, ArrayArg) else () for a in args]
    split = choose(work, programs, end, shapes, multiprocessors)
    each = programs, end, work.sides(shapes), multiprocessors
    if plan.merges and (cost := may_gain(work, split, *each)) is not None:
        return executable.retiling.choice(grid, given, multiprocessors, cost) or (split, grid)
    return split, grid


def _ordinal(args: Sequence[Argument]) -> int:
    """The device on which the arrays are; 0 for a kernel without arrays."""
    for arg in args:
        if isinstance(arg, ArrayArg) and arg.device.startswith("cuda"):
            return int(arg.device.partition(":")[2] or 0)
    return 0


class _Call:
    """Launches of one kernel on arrays of the same shapes, strides and device."""

    def __init__(self, executable: CudaExecutable, args: Sequence[Argument]):
        self.executable = executable
        self.plan = executable.plan
        self.device = driver.device(_ordinal(args))
        self.function = executable.function(self.device.ordinal)
        self.workgroups = self.plan.persistent * self.device.multiprocessors
        if self.plan.persistent > 1:
            with self.device.current():
                fits = driver.resident(self.function, self.plan.threads, self.plan.shared_bytes)
            self.workgroups = min(self.plan.persistent, fits) * self.device.multiprocessors
        # What an array was is all that is needed of it: its memory need not live on.
        self.args = [replace(a, owner=None) if isinstance(a, ArrayArg) else None for a in args]
        self._blocks: dict[Any, Callable[[], None]] = {}
        self._work_splits: dict[Any, tuple[WorkSplit, Grid]] = {}
        self._split_builds: dict[WorkSplit, _Call] = {}
        self._floats = tuple(
            s.argument for s in self.plan.slots if isinstance(s, Scalar) and s.kind not in "q?"
        )

    def __call__(self, grid: Grid, values: Sequence[int | float | bool]) -> None:
        """Enqueue on the device's current stream. DriverError also tells of faults of earlier work."""
        if self._floats:
            # 0.0 and -0.0 are equal, and NaN is not: floats are told apart by their bits.
            bits = struct.pack(f"<{len(self._floats)}d", *(values[i] for i in self._floats))
            key: Any = (bits, grid, *values)
        else:
            key = (grid, *values)
        run = self._blocks.get(key)
        if run is None:
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks.clear()
            run = self._blocks[key] = self.bind(grid, values)
        run()

    def bind(
        self, grid: Grid, values: Sequence[int | float | bool], often: bool = False
    ) -> Callable[[], None]:
        """The launch with these values: everything is in its place but the stream.

        `often`: as a function of native code, where there can be one.
        """
        plan, device = self.plan, self.device
        if plan.splits:
            best, numbered = self.shared(grid, values)
            if best is not self:
                return best.bind(numbered, values, often)
        kept: list[Any] = []
        addresses: list[int] = []
        grid = (grid[0] * plan.split, grid[1], grid[2])  # what a program has become
        with device.current():
            for slot in plan.slots:
                data = self._parameter(slot, grid, values)
                kept.append(data)
                addresses.append(
                    data.address if isinstance(data, driver.TensorMap) else C.addressof(data)
                )
        block = (C.c_void_p * max(1, len(addresses)))(*addresses)
        kept.append(block)
        parameters = C.c_void_p(C.addressof(block))
        launched = launch_grid(plan, grid, self.workgroups)
        function, extra = C.c_void_p(self.function.handle), None
        enqueue = driver.launcher()
        stream_of, ordinal = streams.finder(), device.ordinal
        by_stream: dict[int, Any] = {}

        def on_stream(stream: int, kept: Any = kept) -> Any:
            config = driver.LaunchConfig(
                *launched, plan.threads, 1, 1, plan.shared_bytes, stream, None, 0
            )
            if len(by_stream) >= _MAX_STREAMS:
                by_stream.clear()
            found = by_stream[stream] = C.byref(config)
            return found

        def run() -> None:
            stream = stream_of(ordinal)
            config = by_stream.get(stream) or on_stream(stream)
            code = enqueue(config, function, parameters, extra)
            if code:
                if code in driver.NO_CONTEXT:
                    device.make_current()  # a thread that had none
                    code = enqueue(config, function, parameters, extra)
                if code:
                    raise driver.error("cuLaunchKernelEx", code)

        def run_there() -> None:
            with device.current():
                run()

        plain = run if driver.device_count() == 1 else run_there
        if not often:
            return plain
        config = driver.LaunchConfig(*launched, plan.threads, 1, 1, plan.shared_bytes, 0, None, 0)
        handle, at = self.function.handle, C.addressof(block)
        return native_launch(stream_of, device, handle, at, config, plain) or plain

    def shared(self, grid: Grid, values: Sequence[int | float | bool]) -> tuple[_Call, Grid]:
        """Launches of the code for as many workgroups as should compute each program, and the grid of these."""
        work, read = self.plan.work, list[int]()
        if work is not None and work.dimension < 0:
            read.append(work.argument)
        if self.plan.merges and any(a is None for a in self.args):
            read += self.executable.retiling.arguments
        key = grid, *(values[i] for i in read)
        found = self._work_splits.get(key)
        if found is None:
            device = self.device
            found = work_split_of(self.executable, grid, self.args, values, device.multiprocessors)
            if len(self._work_splits) >= _MAX_BLOCKS:
                self._work_splits.clear()
            self._work_splits[key] = found
        split, numbered = found
        best = self._split_builds.get(split)
        if best is None:
            code = self.executable if split == UNSPLIT else self.executable.shared(split)
            given: Any = self.args
            stays = code is self.executable or unreachable(code.plan, given) is not None
            best = self._split_builds[split] = self if stays else _Call(code, given)
        return best, grid if best is self else numbered

    def _parameter(self, slot: Slot, grid: Grid, values: Sequence[int | float | bool]) -> Any:
        """ctypes memory of one parameter, or its tensor map."""
        match slot:
            case Pointer(argument):
                return C.c_uint64(int(values[argument]))
            case Extent(argument, dimension, bits):
                return _integer(self._array(argument).shape[dimension], bits)
            case Stride(argument, dimension, bits):
                return _integer(self._array(argument).strides[dimension], bits)
            case Programs(axis, bits):
                return _integer(grid[axis], bits)
            case Scalar(argument, kind):
                return C.c_int64(scalar_word(kind, values[argument]))
            case TensorMapOf():
                return self._tensor_map(slot, int(values[slot.argument]))

    def _array(self, argument: int) -> ArrayArg:
        array = self.args[argument]
        assert array is not None, "the slot is an array's"
        return array

    def _tensor_map(self, slot: TensorMapOf, pointer: int) -> driver.TensorMap:
        array = self._array(slot.argument)
        size = array.dtype.itemsize
        sides = slot.sides(array.shape, [stride * size for stride in array.strides])
        extents, strides = zip(*sides, strict=True)
        box = slot.box_of(lambda argument, dim: self._array(argument).shape[dim])
        return driver.tensor_map(pointer, slot.element, extents, strides[1:], box, slot.swizzle)


def _integer(value: int, bits: int) -> Any:
    if bits == 64:
        return C.c_int64(value)
    if not -(1 << 31) <= value < 1 << 31:
        raise LaunchError(
            f"an extent or stride of {value} does not fit the 32 bits that this kernel reads"
        )
    return C.c_int32(value)


def launch_grid(plan: LaunchPlan, grid: Grid, workgroups: int) -> Grid:
    """The grid of workgroups that a launch over `grid` programs enqueues; at most `workgroups` of persistent ones, as
    many as run at the same time: more would each begin and end like them, with fewer programs for all.

    LaunchError beyond the machine's limits.
    """
    x, y, z = plan.cluster
    if plan.persistent:
        cluster = x * y * z
        programs = grid[0] * grid[1] * grid[2] * plan.shares
        most = max(1, workgroups // cluster)
        return min(most, -(-programs // cluster)) * cluster, 1, 1
    rounded = (-(-grid[0] // x) * x, -(-grid[1] // y) * y, -(-grid[2] // z) * z)
    for axis, (extent, limit) in enumerate(zip(rounded, _GRID_LIMITS, strict=True)):
        if extent > limit:
            raise LaunchError(
                f"axis {axis} of the grid is {extent}",
                rule=f"a CUDA grid has at most {limit} workgroups along axis {axis}",
                hint="put the longest axis first",
            )
    return rounded
