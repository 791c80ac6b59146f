"""A whole MLIR program on the CPU: host functions compiled by the emitter, kernels by a target.

The host code is rewritten by `host-to-calls` and compiled as it stands; where it launched a kernel it now calls
back into `Kernels`, which compiles each kernel once per launch shape, and where it called the runner's library it
calls the functions of `mlir_runner`.
"""

from __future__ import annotations

import ctypes as C
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import (
    AnyFloat,
    FixedBitwidthType,
    Float32Type,
    Float64Type,
    IndexType,
    MemRefType,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
)
from xdsl.ir import Attribute
from xdsl.rewriter import Rewriter

from tilewright.arguments import array_of_memref
from tilewright.codegen import emit_module
from tilewright.codegen.jit import compile_object
from tilewright.codegen.loading import LoadedObject
from tilewright.codegen.native import native
from tilewright.codegen.support import guarded_callbacks
from tilewright.diagnostics import UnsupportedError
from tilewright.dtypes import from_mlir
from tilewright.passes.expand_ops import expand_ops
from tilewright.passes.host.checks import UNDEFINED, Check, host_checks
from tilewright.passes.host.memory import HostMemory
from tilewright.passes.host.parallel import share_loops
from tilewright.passes.host.to_calls import HOST, POISON, Launch, host_to_calls
from tilewright.passes.host.unread_launches import mark_unread_launches
from tilewright.passes.host.unroll_and_jam import unroll_and_jam
from tilewright.passes.kernel_outlining import outline_launches
from tilewright.passes.launch_facts import constant_arguments
from tilewright.passes.linalg import is_structured
from tilewright.passes.other_integers import other_integers
from tilewright.passes.ranked_arguments import ranked_arguments
from tilewright.reference.mlir_runner import Runner, called_function, exported
from tilewright.runtime.program.entry import call_entry, choose_entry
from tilewright.runtime.program.heap import Heap
from tilewright.runtime.program.kernels import Kernels
from tilewright.runtime.program.loop_threads import Sharing, can_pass
from tilewright.targets.entry import check_argument, first_forms, host_to_tiles

Fail = Callable[[BaseException], Any]
"""What a callback does with an exception: native code cannot be unwound, so it must not return."""


PROGRAM = "program."
"""Prefix of the functions of the text, in LLVM's."""
_ALLOCATE, _RELEASE = "tw_allocate", "tw_release"


class _NoHostCode(Exception):
    """Host functions have an op that has no code; the text says which."""


class HostProgram:
    """A compiled program; the parameters are those of `run_program`; `entry` takes and gives nothing."""

    def __init__(
        self,
        module: ModuleOp,
        kernels: Kernels,
        runner: Runner,
        fail: Fail,
        *,
        entry: str,
        zeroed: bool = True,
        every_launch: bool = False,
    ) -> None:
        table = runner.functions()
        self._symbols: dict[str, int] = {}
        self._keep: list[Any] = []
        host = _host_functions(module)
        expand_ops(host)
        if not every_launch:
            mark_unread_launches(host)
        launches = host_to_calls(host, lambda call: called_function(call, table))
        self._entry = _apart(host, entry)
        for function in table.values():
            self._export(HOST + function.name, exported(function, fail))
        self._export(POISON, _poison_callback(fail, 0 if zeroed else 255))
        for launch in launches:
            self._export(launch.symbol, _launch_callback(launch, kernels, fail))
        target = native()
        sharing = Sharing(target.representation, lambda name: self._object.address(name))
        memory = HostMemory(host)
        passable = partial(can_pass, representation=target.representation)
        for loop in share_loops(host, memory, passable):
            self._export(loop.call, sharing.callback(loop, lambda run: _guarded(run, fail)))
        for function in host.body.block.ops:
            unroll_and_jam(function, memory)
        checks = host_checks(host)
        self._export(UNDEFINED, _undefined_callback(checks, fail))
        for name, callback in guarded_callbacks(lambda run: _guarded(run, fail)).items():
            self._export(name, callback)
        try:
            text = emit_module(host, target)
        except UnsupportedError as error:
            raise _NoHostCode(error.message) from error
        # Under names of its own: LLVM would take out an allocation that nothing reads, and with it a wild store.
        text = text.replace("@aligned_alloc(", f"@{_ALLOCATE}(")
        self.llvm = text.replace("@free(", f"@{_RELEASE}(")
        """LLVM IR text of the host functions."""
        heap = Heap()
        self._export(_ALLOCATE, _allocate_callback(heap, fail))
        self._export(_RELEASE, C.CFUNCTYPE(None, C.c_void_p)(_guarded(heap.release, fail)))
        self._object = LoadedObject(
            compile_object(self.llvm, target, optimize=True), target, self._symbols
        )

    def _export(self, name: str, callback: Any) -> None:
        self._keep.append(callback)
        self._symbols[name] = C.cast(callback, C.c_void_p).value or 0

    def run(self) -> None:
        """Call the entry function."""
        C.CFUNCTYPE(None)(self._object.address(self._entry))()


def run_program(
    module: ModuleOp,
    *,
    entry: str | None = None,
    args: Sequence[Any] = (),
    level: str = "auto",
    target: str = "cpu",
    seed: int | None = None,
    strict: bool = False,
    zeroed: bool = True,
    every_launch: bool = False,
    fail: Fail | None = None,
    say: Callable[[str], Any] = lambda text: None,
    launcher: Callable[..., Kernels] = Kernels,
) -> list[str]:
    """Run the program `module` and return why comparisons of its own said FALSE (empty when none did).

    `seed`: of the runner's random numbers.  `strict`: its comparisons report NaN, different shapes and nothing to
    compare, which they pass over otherwise.
    `entry`: see `choose_entry`.  `args`: what it is called with, see `call_entry`.  `level`: of kernels that do not
    say theirs ("auto" infers it).  `target`: which target compiles kernels.  `say` gets one sentence per kernel: at
    which level and how it runs.  `fail` is called with an exception inside of a launch and must not return; without
    it the process prints the diagnostic and ends with exit code 1.
    `zeroed`: fresh device memory is zero (as drivers leave it), else poison.
    `launcher`: what launches kernels.
    `every_launch`: repetitions of a launch whose results nothing reads run too; without it the clock counts them
    at the time of the last one that ran.
    """
    called = enter_program(module, entry, args, say)
    host_to_tiles(module, target, say)
    outline_launches(module)
    constant_arguments(module)
    ranked_arguments(module)
    if any(op.name == "xetile.init_tile" for op in module.walk()):
        # Functions of the host that work on tiles, as the RFCs write programs, become kernels and their launches.
        from tilewright.passes.outer_loops_to_grid import outer_loops_to_grid

        outer_loops_to_grid(module)
    runner = Runner(seed=seed, strict=strict)
    kernels = launcher(module, level=level, target=target, say=say, clock=runner)
    try:
        program = HostProgram(
            module, kernels, runner, fail or _leave,
            entry=called, zeroed=zeroed, every_launch=every_launch,
        )  # fmt: skip
    except _NoHostCode as error:
        # Nothing has run yet.
        from tilewright import reference

        say(f"host code on the reference executor, because {error}")
        reference.run(module, kernel=called, seed=seed)
    else:
        program.run()
    kernels.close()
    sys.stdout.flush()
    return runner.failures


def enter_program(
    module: ModuleOp,
    entry: str | None = None,
    args: Sequence[Any] = (),
    say: Callable[[str], Any] = lambda text: None,
) -> str:
    """The function without arguments that a program begins with, where its tensors are arrays; see `run_program`."""
    first_forms(module)
    if is_structured(module):
        from tilewright.passes.linalg.bufferize import bufferize

        bufferize(module)
    called = call_entry(module, choose_entry(module, entry), args, say)
    other_integers(module, arguments=True)
    return called


def _leave(error: BaseException) -> Any:
    import os

    sys.stdout.flush()
    print(error, file=sys.stderr, flush=True)
    os._exit(1)


def _host_functions(module: ModuleOp) -> ModuleOp:
    """A copy of the module without its kernels."""
    host = module.clone()
    for op in list(host.body.block.ops):
        if op.name == "gpu.module":
            Rewriter.erase_op(op, safe_erase=False)
    return host


def _apart(host: ModuleOp, entry: str) -> str:
    """Give every function a name that neither the runtime nor LLVM uses; the entry's."""
    for op in host.walk():
        if isinstance(op, func.FuncOp):
            op.sym_name = StringAttr(PROGRAM + op.sym_name.data)
        elif isinstance(op, func.CallOp):
            op.callee = SymbolRefAttr(PROGRAM + op.callee.string_value())
    return PROGRAM + entry


def _guarded(callback: Any, fail: Fail) -> Callable[..., Any]:
    def guarded(*args: Any) -> Any:
        try:
            return callback(*args)
        except BaseException as error:
            fail(error)

    return guarded


def _poison_callback(fail: Fail, byte: int) -> Any:
    """Set every byte of fresh memory: 255 is NaN in every float type, -1 in every integer type."""

    def poison(address: int, size: int) -> None:
        C.memset(address, byte, size)

    return C.CFUNCTYPE(None, C.c_void_p, C.c_int64)(_guarded(poison, fail))


def _undefined_callback(checks: Sequence[Check], fail: Fail) -> Any:
    """What the checks of host code call: the program ends with the message of one of them."""

    def undefined(number: int, value: int) -> None:
        raise checks[number].error(value)

    return C.CFUNCTYPE(None, C.c_int64, C.c_int64)(_guarded(undefined, fail))


def _allocate_callback(heap: Heap, fail: Fail) -> Any:
    return C.CFUNCTYPE(C.c_void_p, C.c_size_t, C.c_size_t)(_guarded(heap.allocate, fail))


def _launch_callback(launch: Launch, kernels: Kernels, fail: Fail) -> Any:
    kinds: list[Any] = [C.c_int64] * 6
    for place, type_ in enumerate(launch.operands):
        check_argument(launch, type_, f"argument {place} of this launch")
        kinds += [C.c_int64, C.c_void_p] if isinstance(type_, MemRefType) else [_scalar(type_)]

    def run(*raw: Any) -> None:
        values = iter(raw)
        grid = (next(values), next(values), next(values))
        block = (next(values), next(values), next(values))
        arguments: list[Any] = []
        for type_ in launch.operands:
            if isinstance(type_, MemRefType):
                rank, address = next(values), next(values)
                arguments.append(array_of_memref(rank, address, _numpy(type_.element_type)))
            elif isinstance(type_, AnyFloat) and type_.bitwidth < 32:
                bits = np.array(next(values), np.int64).astype(f"uint{type_.bitwidth}")
                arguments.append(float(bits.view(_numpy(type_))))
            else:
                arguments.append(next(values))
        kernels.launch(launch, grid, block, arguments)

    return C.CFUNCTYPE(None, *kinds)(_guarded(run, fail))


def _numpy(element: Attribute) -> np.dtype[Any]:
    return from_mlir(element).numpy


def _scalar(type_: Attribute) -> Any:
    match type_:
        case IndexType():
            return C.c_int64
        case Float32Type():
            return C.c_float
        case Float64Type():
            return C.c_double
        case FixedBitwidthType():
            width = type_.bitwidth
            sizes = {1: C.c_bool, 8: C.c_int8, 16: C.c_int16, 32: C.c_int32, 64: C.c_int64}
            if width in sizes:
                return sizes[width]
        case _:
            pass
    raise UnsupportedError(f"a kernel argument of type {type_} in a launch from host code")
