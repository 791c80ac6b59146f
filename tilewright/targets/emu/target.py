"""The emu target: kernels of lanes or subgroups, compiled, one fibre per subgroup (`lowering`, `fibers`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from xdsl.dialects import gpu
from xdsl.dialects.builtin import ModuleOp, StringAttr

from tilewright.arguments import Argument, ArrayArg, Grid
from tilewright.codegen import emit_module
from tilewright.codegen.jit import compile_object, toolchain_version
from tilewright.codegen.loading import LoadedObject
from tilewright.codegen.native import native
from tilewright.diagnostics import CheckError, CompileError, Location, location_of, unsupported
from tilewright.knobs import thread_count
from tilewright.observer import Observer, ignore
from tilewright.targets.base import CompileOptions, Target
from tilewright.targets.emu.fibers import SYMBOLS, scheduler
from tilewright.targets.emu.report import describe_failure, first_stuck
from tilewright.targets.emu.worker import EmuLauncher, EmuWorker
from tilewright.targets.host import HostExecutable, loaded, scalar_word
from tilewright.targets.host_arguments import argument_kinds
from tilewright.targets.stages import StageTexts, source_of

if TYPE_CHECKING:
    from tilewright.targets.emu.lowering import Lowering


class EmuExecutable(HostExecutable):
    """A kernel in this process's memory."""

    _ready: tuple[EmuLauncher, LoadedObject] | None = None

    def _prepare(self) -> EmuLauncher:
        with self._guard:
            if self._ready is None:
                runtime = scheduler(native())
                symbols = {name: runtime.address(name) for name in SYMBOLS}
                loaded = LoadedObject(self._data, native(), symbols)
                sizes = ("subgroups", "context", "shared", "private", "named")
                make = partial(EmuWorker, *(self._meta[name] for name in sizes))
                run, kernel = runtime.address("tw_emu_run"), loaded.address("tw_subgroup")
                self._ready = (EmuLauncher(run, kernel, make), loaded)
        return self._ready[0]

    def launch(self, grid: Grid, args: Sequence[Argument]) -> None:
        words: list[int] = []
        for (kind, _), arg in zip(self._meta["arguments"], args, strict=True):
            if isinstance(arg, ArrayArg):
                words += [arg.pointer, *arg.shape, *arg.strides]
            else:
                words.append(scalar_word(kind, arg))
        block = self._meta["block"]
        launcher = self._prepare()
        failure = launcher.launch(grid, tuple(block), words, thread_count())
        if failure is not None:
            sites = self._meta["sites"]
            message = describe_failure(failure, sites, grid)
            at = first_stuck(failure)
            site = sites[at] if at < len(sites) else None
            where = None if site is None or site[1] is None else Location(*site[1])
            raise CheckError(message, location=where)


class EmuTarget(Target):
    """See `tilewright.targets.base.Target`."""

    name = "emu"
    takes_branches = True

    def build(
        self, module: ModuleOp, options: CompileOptions, observe: Observer = ignore
    ) -> EmuExecutable:
        source = source_of(module)
        kernel = next(op for op in module.walk() if isinstance(op, gpu.FuncOp))
        lowered = _lower(module, observe=observe, off=options.disable)
        text = emit_module(lowered.module, native())
        try:
            data = compile_object(text, native())
        except CompileError as error:  # a bug of ours; the executor may still run the kernel
            raise unsupported(kernel, error.message) from error
        types = list(kernel.function_type.inputs)
        meta = {
            "arguments": argument_kinds(types),
            "subgroups": lowered.subgroups,
            "block": list(lowered.launch_block),
            "context": lowered.context_bytes,
            "shared": lowered.shared_bytes,
            "private": lowered.private_bytes,
            "named": lowered.uses_named,
            "sites": [_place(op) for op in lowered.sites],
        }
        return EmuExecutable(data, meta, StageTexts(source, _lower), native(), text)

    def fingerprint(self, options: CompileOptions) -> str:
        return native().key()

    def describe(self, options: CompileOptions) -> str:
        """What runs the lanes here, for people."""
        return f"on the CPU, {native()}; {toolchain_version()}"

    def load(self, artifacts: Mapping[str, bytes], options: CompileOptions) -> EmuExecutable:
        data, meta, source = loaded(artifacts)
        return EmuExecutable(data, meta, StageTexts(source, _lower), native())


def _lower(
    module: ModuleOp,
    stage: Observer = ignore,
    observe: Observer = ignore,
    off: frozenset[str] = frozenset(),
) -> Lowering:
    """The program of one subgroup."""
    # Imported here: they bring the XeGPU dialect, for which other targets have no use.
    from tilewright.targets.emu.pipeline import run_pipeline

    return run_pipeline(module, stage, observe, off)


def _place(op: Any) -> list[Any]:
    """Name and location of an op, as JSON keeps them."""
    where = location_of(op)
    place = (
        None if where is None else [where.file, where.line, where.col, where.end_col, where.text]
    )
    message = op.properties.get("msg")
    return [op.name, place, message.data if isinstance(message, StringAttr) else ""]


TARGET = EmuTarget()
