"""The cpu target: kernels compiled through the pipeline, loaded into this process, launched on the thread pool."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from tilewright import forks
from tilewright.arguments import Argument, ArrayArg, Grid
from tilewright.codegen.loading import LoadedObject
from tilewright.codegen.native import host_core
from tilewright.diagnostics import UnsupportedError
from tilewright.knobs import thread_count
from tilewright.observer import Observer, ignore
from tilewright.prepacked import ARRAYS, Prepacked, array_of
from tilewright.printed import OPEN, Lines
from tilewright.targets.base import CompileOptions, Executable, PreparedLaunch, Target, get_target
from tilewright.targets.cpu import workspace
from tilewright.targets.cpu.division import Division, tasks_of
from tilewright.targets.cpu.machine import CpuMachine, chosen, few_reads
from tilewright.targets.cpu.merging import ALONE, Merging, is_much, may_pay
from tilewright.targets.cpu.numbering import Numbering
from tilewright.targets.cpu.pool import Pool, make_functions, pool
from tilewright.targets.failed_programs import failure
from tilewright.targets.host import HostExecutable, loaded, scalar_word
from tilewright.targets.stages import StageTexts, source_of
from tilewright.uarch.calibration import with_calibration
from tilewright.uarch.cpu import ROW_RATES

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.dtypes import DType
    from tilewright.passes.launch_cost import Choice
    from tilewright.passes.planner import Request
    from tilewright.targets.cpu.product_cost import PanelCosts
    from tilewright.uarch import Rates

_Planned = tuple[Pool, int, int, int, int, int, int, list[tuple[int, Prepacked, Any]]]
"""The pool, the address of `tw_run`, bytes of scratch memory of a thread and of all, of all that a launch takes, of
counters, at which of these bytes they are, and arrays whose panels are kept."""

_MAX_GRIDS = 512
"""Grids of which a kernel's launches on arrays of some shapes remember the code."""


class CpuExecutable(HostExecutable):
    """A kernel in this process's memory. Launches from several threads take their own memory and turns in the pool."""

    def __init__(
        self,
        data: bytes,
        meta: Mapping[str, Any],
        ir: StageTexts,
        m: CpuMachine,
        options: CompileOptions,
        module: ModuleOp | None = None,
        llvm: str = "",
    ):
        """`module`: what `ir.source` is the text of, where it is at hand, to be changed."""
        super().__init__(data, meta, ir, m.target, llvm)
        self._machine = m
        self._threads = options.num_threads
        self._merged: Grid = tuple(meta["merged"])  # pyright: ignore
        self._merging = self._numbering = None
        if self._merged == ALONE and "merge-programs" not in options.disable:
            self._merging = Merging(
                ir.source, TARGET, options, meta["scratch_bytes"], module=module
            )
            if meta["numbered"] is not None:
                self._numbering = Numbering(ir.source, TARGET, options, meta["numbered"])
        self._kinds: list[tuple[str, int]] = [(k, r) for k, r in meta["arguments"]]
        self._at: dict[str, int] = meta["words"]
        """See `ArgumentBlock.words`."""
        self._scratch = meta["scratch_bytes"]
        self._packs: list[tuple[int, int, int, str]] = meta["packs"]
        self._sums = meta["sums"]
        self._subgroups = meta["subgroups"]
        self._prints = meta.get("prints", False)
        division = meta.get("division")
        self._division = None if division is None else Division(**division)
        self._ready: tuple[Pool, Any, int, LoadedObject] | None = None

    # Launch ---------------------------------------------------------------------------------------------------

    def _prepare(self) -> tuple[Pool, Any, int, LoadedObject]:
        threads = self._threads or thread_count()
        found = pool(threads)
        ready = self._ready
        if ready is not None and ready[0] is found:
            return ready
        self._machine.refuse_elsewhere()
        with self._guard:
            # Another thread may have loaded it: whoever launches holds addresses in that code.
            ready = self._ready
            symbols = {
                "tw_pool_launch": found.launch_address,
                "tw_pool_wait": found.wait_address,
                "tw_program_failed": (ctypes.cast(_program_failed, ctypes.c_void_p).value or 0),
            }
            loaded = (
                ready[3]
                if ready is not None
                else LoadedObject(self._data, self._machine.target, symbols)
            )
            prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
            self._ready = (
                found,
                prototype(loaded.address("tw_plan")),
                loaded.address("tw_run"),
                loaded,
            )
        return self._ready

    def launch(self, grid: Grid, args: Sequence[Argument]) -> None:
        self.prepare(args)(grid, [a.pointer if isinstance(a, ArrayArg) else a for a in args])

    def prepare(self, args: Sequence[Argument]) -> PreparedLaunch:
        return _Launches(self, args)

    def launches(self, args: Sequence[Argument]) -> _Prepared:
        """Launches of this code on arrays of these shapes."""
        words: list[int] = [0] * self._at["size"]
        slots: list[tuple[int, str]] = []
        at = 0
        for (kind, rank), arg in zip(self._kinds, args, strict=True):
            slots.append((at, kind))
            if kind == "array":
                words[at + 1 : at + 1 + rank] = arg.shape  # pyright: ignore
                words[at + 1 + rank : at + 1 + 2 * rank] = arg.strides  # pyright: ignore
                at += 2 * rank
            at += 1
        if self._division is not None:
            parts, blocks = self._division.parts(args)
            for name, value in (("parts", parts), ("blocks", blocks), ("tasks", 1)):
                words[self._at[name]] = value
        return _Prepared(self, slots, words)

    def planned(self, words: ctypes.Array[ctypes.c_int64]) -> _Planned:
        """What a launch whose arguments and grid stand in a block of words takes; all words but addresses of memory."""
        found, plan, run, _ = self._prepare()
        at = self._at
        words[at["pool"]] = found.address
        words[at["few_reads"]] = few_reads(found.threads)
        words[at["threads"]] = found.threads
        kept = self._kept(words) if ARRAYS else []
        if self._packs or self._sums:
            plan(ctypes.addressof(words))
        scratch = self._scratch + words[at["own"]]
        size = scratch * found.threads
        total = size + words[at["needed"]]
        counters = sums = 0
        if (parts := words[at["parts"]]) > 1:
            grid = at["grid"]
            programs = prod(words[grid : grid + 3])
            uneven = self._machine.panel_rates.uneven
            tasks = words[at["tasks"]] = tasks_of(parts, programs, found.threads, uneven)
            if tasks > 1:
                assert self._division is not None
                counters, sums = 8 * programs, -(-total // 64) * 64
                total = sums + counters + 64 + self._division.sums * parts * programs
        return found, run, scratch, size, total, counters, sums, kept

    def run(self, words: ctypes.Array[ctypes.c_int64], planned: _Planned | None = None) -> None:
        """A launch whose arguments and grid stand in its block of words, which nobody else uses meanwhile; `planned`:
        what it takes, where the words are ready for it."""
        planned = planned or self.planned(words)
        found, run, scratch, size, total, counters, sums, kept = planned
        address, at = ctypes.addressof(words), self._at
        forms = [(word, w.form(key, words[word], workspace.MemoryBlock)) for word, w, key in kept]
        for word, form in forms:
            words[word + 1 : word + 3] = form.memory.address, form.filled
        block = workspace.acquire(total)
        lines = OPEN.setdefault(address, Lines()) if self._prints else None
        try:
            word = at["scratch"]
            words[word : word + 3] = block.address, scratch, block.address + size
            if counters:
                words[at["sums"]] = block.address + sums
                ctypes.memset(block.address + sums, 0, counters)
            found.run(run, address)
            for _, form in forms:
                form.filled = True
        finally:
            workspace.release(block)
            if lines is not None:
                OPEN.pop(address).finish()
            failed = _failures.pop(address, None) if _failures else None
        if failed is not None:
            raise failure(*failed, self._subgroups)

    def repeated(self, words: ctypes.Array[ctypes.c_int64]) -> Callable[[], None]:
        """The launch with these words, any number of times: each has a block of its own."""
        copy = type(words).from_buffer_copy
        ready: tuple[ctypes.Array[ctypes.c_int64], _Planned] | None = None

        def launch() -> None:
            nonlocal ready
            if ARRAYS and self._packs:  # panels may be there now
                self.run(copy(words))
                return
            if ready is None or ready[1][0] is not self._prepare()[0]:
                mine = copy(words)
                ready = mine, self.planned(mine)
            mine, planned = ready
            self.run(copy(mine), planned)

        return launch

    def _kept(self, words: ctypes.Array[ctypes.c_int64]) -> list[tuple[int, Prepacked, Any]]:
        """Of arrays whose panels are kept: the words of the pack (`PACK_WORDS`), and what it makes. Tells `tw_plan`."""
        found: list[tuple[int, Prepacked, Any]] = []
        for word, at, rank, what in self._packs:
            layout = words[at + 1 : at + 1 + 2 * rank]
            array = array_of(words[at], layout[:rank], layout[rank:])
            if array is not None:
                words[word + 1] = 1
                found.append((word, array, (self._machine.key(), what, *layout)))
        return found

    def grid_words(self, grid: Grid) -> tuple[int, Grid]:
        """Where the grid stands in a block of words, and what stands there."""
        x, y, z = (-(-n // each) for n, each in zip(grid, self._merged, strict=True))
        return self._at["grid"], (x * self._subgroups, y, z)

    def merged(self, grid: Grid, args: Sequence[Argument]) -> tuple[CpuExecutable, Grid]:
        """The code that a launch like this one runs, and on which grid: where that pays, one whose programs have
        other numbers, or do what several of the grid do."""
        threads = self._threads or thread_count()
        tile, rows = self._meta["tile"]
        merging, own, code = self._merging, grid, None
        if self._numbering is not None and is_much(tile, grid, rows):
            merging, grid = self._numbering.merging(grid, args) or (merging, grid)
        if merging is not None and may_pay(tile, grid, threads, rows):
            from tilewright.targets.cpu.product_cost import PanelCosts

            costs = PanelCosts(self._machine, threads, self._machine.panel_rates)
            code = merging.executable(grid, args, costs)
        if code is None and merging is not None and merging is not self._merging:
            code = merging.unmerged()
        return (code, grid) if isinstance(code, CpuExecutable) else (self, own)

    @property
    def deciding(self) -> Sequence[int]:
        """The numbers among the arguments that launches may run other code for."""
        return () if self._numbering is None else self._numbering.arguments

    def foresee(self, grid: Grid, args: Sequence[Argument]) -> None:
        """See `tilewright.targets.base.Foreseeing`."""
        self.merged(grid, args)


class _Launches:
    """Launches on arrays of the same shapes. See `tilewright.targets.base.PreparedLaunch`; also Bindable."""

    def __init__(self, executable: CpuExecutable, args: Sequence[Argument]):
        self._executable = executable
        # What an array was is all that is needed of it: its memory need not live on.
        self._args = [replace(a, owner=None) if isinstance(a, ArrayArg) else a for a in args]
        self._deciding = executable.deciding
        self._by_grid: dict[tuple[int | float, ...], tuple[_Prepared, Grid]] = {}

    def _on(self, grid: Grid, values: Sequence[int | float | bool]) -> tuple[_Prepared, Grid]:
        """Launches like this one, and their grid."""
        key = (*grid, *(values[i] for i in self._deciding)) if self._deciding else grid
        found = self._by_grid.get(key)
        if found is None:
            if len(self._by_grid) >= _MAX_GRIDS:
                self._by_grid.clear()
            args = list(self._args)
            for i in self._deciding:
                args[i] = values[i]
            code, numbered = self._executable.merged(grid, args)
            found = self._by_grid[key] = code.launches(args), numbered
        return found

    def __call__(self, grid: Grid, values: Sequence[int | float | bool]) -> None:
        prepared, grid = self._on(grid, values)
        prepared(grid, values)

    def bind(
        self, grid: Grid, values: Sequence[int | float | bool], often: bool = False
    ) -> Callable[[], None]:
        """The launch with these values, for several threads at once."""
        prepared, grid = self._on(grid, values)
        return prepared.bind(grid, values)


class _Prepared:
    """A launch of one code but for its addresses, numbers and grid."""

    def __init__(
        self, executable: CpuExecutable, slots: Sequence[tuple[int, str]], words: Sequence[int]
    ):
        self._executable = executable
        self._slots = slots
        self._type = ctypes.c_int64 * len(words)
        self._template = self._type(*words)

    def _filled(
        self, grid: Grid, values: Sequence[int | float | bool]
    ) -> ctypes.Array[ctypes.c_int64]:
        words = self._type.from_buffer_copy(self._template)
        for (at, kind), value in zip(self._slots, values, strict=True):
            words[at] = value if kind == "array" else scalar_word(kind, value)  # pyright: ignore
        at, grid = self._executable.grid_words(grid)
        words[at : at + 3] = grid
        return words

    def __call__(self, grid: Grid, values: Sequence[int | float | bool]) -> None:
        self._executable.run(self._filled(grid, values))

    def bind(self, grid: Grid, values: Sequence[int | float | bool]) -> Callable[[], None]:
        """The launch with these values: each run has a block of its own."""
        return self._executable.repeated(self._filled(grid, values))


_failures: dict[int, tuple[tuple[int, int, int], str]] = {}
"""By the address of a launch's argument block: the first program (z, y, x) that failed, and what it says."""
_failing = forks.lock()


@ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)
def _program_failed(text: bytes, launch: int, x: int, y: int, z: int) -> None:
    """Called by a program whose assertion failed, which then returns; its launch raises the error."""
    found = ((z, y, x), text.decode(errors="replace"))
    with _failing:
        _failures[launch] = min(found, _failures.get(launch, found))


LANES = "emu"
"""The target that compiles what is below workgroup level."""


class CpuTarget(Target):
    """See `tilewright.targets.base.Target`."""

    name = "cpu"

    def build(
        self, module: ModuleOp, options: CompileOptions, observe: Observer = ignore
    ) -> Executable:
        """A subgroup's program becomes a workgroup's, where subgroups share nothing, each op has such a form, and
        products are not blocked in registers already. Other programs of subgroups, and of lanes, are the emulator's.
        """
        # Here, not above: a kernel that lies on disk is loaded and launched without the compiler.
        from tilewright.passes.kernel import kernel_of, level_of
        from tilewright.passes.workgroup_form import blocked_products

        level = level_of(kernel_of(module))
        if level == "workgroup":
            return self._build(module, options, observe)
        chosen(options.machine).refuse_elsewhere()
        if level == "subgroup" and not blocked_products(module):
            with suppress(UnsupportedError):
                return self._build(module.clone(), options, observe)
        return get_target(LANES).build(module, options, observe)

    def _build(self, module: ModuleOp, options: CompileOptions, observe: Observer) -> CpuExecutable:
        from tilewright.targets.cpu.build import build

        m, source, kept = chosen(options.machine), source_of(module), module.clone()
        data, meta, text = build(module, m, options, observe)
        return CpuExecutable(data, meta, _stages(source, options, m), m, options, kept, text)

    def begin(self) -> None:
        make_functions()

    def rates(self, options: CompileOptions) -> Rates:
        """What a launch is costed by on this machine."""
        m = chosen(options.machine)
        per_core = 8e11 if m.amx else 2e9 * m.vector_bytes
        cores = options.num_threads or thread_count()
        plain = replace(ROW_RATES, cores=cores)
        found = replace(
            m.architecture.machine.rates, cores=cores, product_flops=per_core, plain=plain
        )
        return with_calibration(found, self.identity(options))

    def choices(
        self, request: Request, options: CompileOptions, every: bool = False
    ) -> Sequence[Choice]:
        """Products cost what `product_cost` says, other work what the rates do."""
        from tilewright.passes.planner import choices
        from tilewright.targets.cpu.product_tiles import SIDES, STARTS

        model = self._products(options)
        return choices(request, self.rates(options), SIDES, model=model, every=every, sizes=STARTS)

    def retiled(self, request: Request, options: CompileOptions) -> str:
        from tilewright.dialects.text import print_module
        from tilewright.passes.kernel import kernel_of
        from tilewright.passes.launch_cost import Program
        from tilewright.passes.program_numbers import ProgramNumbers
        from tilewright.uarch.base import GENERIC

        if "merge-programs" in options.disable:
            return ""
        module, args = request.build({}), request.arguments
        numbers = ProgramNumbers(kernel_of(module))
        found = numbers.choice(Program.of(module, GENERIC).grid(args), args)
        numbered = None if found is None else (found[0], lambda: numbers)
        merging = Merging(print_module(module), self, options, numbered=numbered)
        return merging.explained(args, self._products(options))

    def product_tile(
        self,
        shape: tuple[int, int, int, int],
        types: tuple[DType, DType, DType],
        along_k: tuple[bool, bool],
        options: CompileOptions,
    ) -> tuple[int, int]:
        from tilewright.targets.cpu.product_kernel import result_bytes
        from tilewright.targets.cpu.product_tiles import product_tile

        a, b, c = (each.name for each in types)
        stored = result_bytes((a, b, c)) / self.rates(options).memory_bytes
        return product_tile(self._products(options), shape, (a, b, c), along_k, stored)

    def _products(self, options: CompileOptions) -> PanelCosts:
        from tilewright.targets.cpu.product_cost import PanelCosts

        m = chosen(options.machine)
        return PanelCosts(m, options.num_threads or thread_count(), m.panel_rates)

    def fingerprint(self, options: CompileOptions) -> str:
        return chosen(options.machine).key()

    def identity(self, options: CompileOptions) -> str:
        """Core, instructions and threads."""
        m, threads = chosen(options.machine), options.num_threads or thread_count()
        return f"{host_core()} with {m}; {threads} threads"

    def describe(self, options: CompileOptions) -> str:
        """What this machine has, for people."""
        from tilewright.codegen.jit import toolchain_version

        threads = options.num_threads or thread_count()
        return f"{chosen(options.machine)}; threads: {threads}; {toolchain_version()}"

    def load(self, artifacts: Mapping[str, bytes], options: CompileOptions) -> Executable:
        data, meta, source = loaded(artifacts)
        if "machine" not in meta:
            return get_target(LANES).load(artifacts, options)
        m = chosen(meta["machine"])
        return CpuExecutable(data, meta, _stages(source, options, m), m, options)


def _stages(source: str, options: CompileOptions, m: CpuMachine) -> StageTexts:
    def lower(module: ModuleOp, stage: Observer) -> Any:
        from tilewright.targets.cpu.pipeline import run_pipeline

        return run_pipeline(module, m, options, [], stage)

    return StageTexts(source, lower)


TARGET = CpuTarget()
