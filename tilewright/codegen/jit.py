"""LLVM IR text -> object code, for this process or another machine, through llvmlite.

No LLVM pass pipeline runs: the printed code is what is compiled (`notes/cpu.md` section 4: passes
cost twice the compile time and gain nothing). Objects are position-independent bytes that a cache
can keep; `loading` makes addresses of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from ctypes import string_at
from functools import cache
from itertools import count
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tilewright import forks
from tilewright.codegen.elf import defined_symbols
from tilewright.codegen.target import TEXTS_AT_ONCE, LLVMTarget
from tilewright.diagnostics import CompileError

_lock = forks.lock()
"""The linker is shared, and not safe to enter from two threads."""
_lanes = [forks.lock() for _ in range(min(len(os.sched_getaffinity(0)), TEXTS_AT_ONCE))]
"""One for each code generator of a target: so many texts become code at a time."""


def _hold_llvm() -> None:
    """Before a fork: wait until no thread is inside of LLVM.

    llvmlite takes a lock of its own around calls of LLVM, also where the garbage collector frees a module. A child
    that copies it while another thread holds it would wait for ever, on state of LLVM that is half done.
    """
    for lane in _lanes:
        lane.acquire()
    _llvmlite_lock().__enter__()


def _free_llvm() -> None:
    """After a fork, in the parent: this thread took the locks, and lets them go."""
    _llvmlite_lock().__exit__()
    for lane in _lanes:
        lane.release()


def _free_in_child() -> None:
    """In the child only llvmlite's: `forks` has made the others anew."""
    _llvmlite_lock().__exit__()


def _llvmlite_lock() -> Any:
    return getattr(llvm.ffi.lib, "_lock", nullcontext())


os.register_at_fork(before=_hold_llvm, after_in_parent=_free_llvm, after_in_child=_free_in_child)


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@contextmanager
def target_machine(target: LLVMTarget) -> Generator[Any]:
    """A code generator of LLVM's for the target of a CPU, which no other thread is in."""
    number = next((i for i, lane in enumerate(_lanes) if lane.acquire(blocking=False)), None)
    if number is None:
        number = 0
        _lanes[0].acquire()
    try:
        yield _target_machine(number, target.triple, target.cpu, target.feature_string())
    finally:
        _lanes[number].release()


@cache
def _target_machine(lane: int, triple: str, cpu: str, features: str) -> Any:
    _initialize()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small", jit=True
    )


@cache
def _linker(triple: str) -> Any:
    _initialize()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        reloc="pic", codemodel="small", jit=True
    )
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)


_numbers = count()
"""Of the libraries that were linked: their names are used once."""


def toolchain_version() -> str:
    """Version of the code generator, for cache keys."""
    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


_NARROW_STORE = re.compile(
    r"call void @llvm\.masked\.store\.v\d+i(?:8|16|32)\.p0\((<\d+ x i\d+> %[^,]+),.*$", re.M
)


def _truncated_first(text: str, target: LLVMTarget) -> str:
    """Values of masked stores get a second user, which emits nothing.

    LLVM 22 makes one store of a truncation and a masked store of AVX-512; where the mask turns out to have one element,
    it writes that element in the width it had before it was truncated, over what is behind it. It does so only where
    the truncated value has no other user.
    """
    if not target.has("avx512f") or _NARROW_STORE.search(text) is None:
        return text
    used = _NARROW_STORE.sub(r"\g<0>\n  call void (...) @llvm.fake.use(\1)", text)
    return f"{used}\ndeclare void @llvm.fake.use(...)\n"


def parse(text: str) -> Any:
    """LLVM module of `text`, verified, in a context of its own, so that no other thread's work meets it; CompileError
    with LLVM's message (a bug of the emitter)."""
    _initialize()
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"the emitter printed LLVM IR that LLVM refuses: {error}") from error
    return module


def compile_object(text: str, target: LLVMTarget, *, optimize: bool = False) -> bytes:
    """Object code (ELF) of LLVM IR text, for the target of a CPU.

    `optimize` runs LLVM's passes first: for code that is compiled as its author wrote it, scalar loop by loop.
    """
    with target_machine(target) as machine:
        module = parse(text if optimize else _truncated_first(text, target))
        if optimize:
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = options.slp_vectorization = True
            options.loop_unrolling = True
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
            # Where LLVM inlines, such users go.
            optimized = str(module)
            safe = _truncated_first(optimized, target)
            module = module if safe is optimized else parse(safe)
        return _emitted(machine, module, True)


def _emitted(machine: Any, module: Any, is_object: bool) -> bytes:
    """The code of a module. llvmlite lets one thread at a time into LLVM; where a module has a context of its own, and
    its thread a code generator, LLVM needs no lock, and this is where compiling takes its time."""
    lib = llvm.ffi.lib
    locked = lib.LLVMPY_TargetMachineEmitToMemory
    with llvm.ffi.OutputString() as error:
        found = getattr(locked, "_cfn", locked)(machine, module, int(is_object), error)
        if not found:
            raise CompileError(f"LLVM makes no code of the emitter's: {error}")
    try:
        return string_at(lib.LLVMPY_GetBufferStart(found), lib.LLVMPY_GetBufferSize(found))
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(found)


def compile_assembly(text: str, target: LLVMTarget) -> str:
    """Assembly of LLVM IR text, for the target of a CPU."""
    with target_machine(target) as machine:
        return _emitted(machine, parse(_truncated_first(text, target)), False).decode()


def link(
    data: bytes, target: LLVMTarget, addresses: Mapping[str, int]
) -> tuple[Any, dict[str, int]]:
    """Object code in executable memory, by LLVM's linker: what keeps it there, and the addresses of its symbols.

    JITLink gives all sections of an object one range of addresses. (MCJIT mapped each by itself and hoped that they
    would be neighbours. In a process with little room between its mappings, as beside a CUDA driver, code and its
    constants came to lie more than 2 GiB apart, where a relative address of 32 bits wraps round, and kernels read
    elsewhere.)
    """
    library = llvm.JITLibraryBuilder().add_object_img(data)
    for name, address in addresses.items():
        library.import_symbol(name, address)
    names = defined_symbols(data)
    for name in names:
        library.export_symbol(name)
    try:
        with _lock:
            code = library.link(_linker(target.triple), f"object{next(_numbers)}")
    except RuntimeError as error:
        raise CompileError(f"the object cannot be loaded: {error}") from error
    return code, {name: code[name] for name in names}


def exported(name: str) -> int | None:
    """Where LLVM has a function that this process does not export."""
    return llvm.address_of_symbol(name)
