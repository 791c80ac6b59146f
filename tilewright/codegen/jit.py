"""LLVM IR text -> object code -> callable addresses, in this process (x86) through llvmlite.

No LLVM pass pipeline runs: the printed code is what is compiled (`notes/cpu.md` section 4: passes
cost twice the compile time and gain nothing). Objects are position-independent bytes that a cache
can keep; loading one takes about a millisecond and needs neither the text nor the IR.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tilewright.codegen.elf import undefined_symbols
from tilewright.codegen.support import support_address
from tilewright.codegen.target import LLVMTarget
from tilewright.diagnostics import CompileError

_lock = threading.RLock()
"""LLVM's MCJIT and its symbol table are not safe to enter from two threads."""


def _new_lock() -> None:
    """A forked child gets a lock of its own: the parent's may have been held."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@cache
def _target_machine(triple: str, cpu: str, features: str) -> Any:
    _initialize()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small", jit=True
    )


def _process_has(name: str) -> bool:
    """Can the dynamic linker of this process find `name`?"""
    if name == "_GLOBAL_OFFSET_TABLE_" or llvm.address_of_symbol(name) is not None:
        return True
    try:
        getattr(ctypes.CDLL(None), name)
    except AttributeError:
        return False
    return True


def toolchain_version() -> str:
    """Version of the code generator, for cache keys."""
    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


def parse(text: str) -> Any:
    """LLVM module of `text`, verified; CompileError with LLVM's message (a bug of the emitter)."""
    _initialize()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"the emitter printed LLVM IR that LLVM refuses: {error}") from error
    return module


def compile_object(text: str, target: LLVMTarget, *, optimize: bool = False) -> bytes:
    """Object code of LLVM IR text, for an x86 target.

    `optimize` runs LLVM's passes first: for code that is compiled as its author wrote it, scalar loop by loop.
    """
    with _lock:
        machine = _target_machine(target.triple, target.cpu, target.feature_string())
        module = parse(text)
        if optimize:
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = options.slp_vectorization = True
            options.loop_unrolling = True
            builder = llvm.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
        return machine.emit_object(module)


def compile_assembly(text: str, target: LLVMTarget) -> str:
    """Assembly of LLVM IR text, for an x86 target."""
    with _lock:
        machine = _target_machine(target.triple, target.cpu, target.feature_string())
        return machine.emit_assembly(parse(text))


class LoadedObject:
    """Object code in executable memory; addresses are valid while this object lives."""

    def __init__(self, data: bytes, target: LLVMTarget, symbols: Mapping[str, int] | None = None):
        """`symbols`: addresses of external functions by name, beyond those that the process
        exports.

        Raises CompileError when the object needs a symbol that neither gives.
        """
        addresses = dict(symbols or {})
        for name in undefined_symbols(data):
            if name in addresses:
                continue
            if (address := support_address(name)) is not None:
                addresses[name] = address
            elif not _process_has(name):
                raise CompileError(f"the object needs '{name}', which nothing here defines")
        _initialize()
        with _lock:
            machine = llvm.Target.from_triple(target.triple).create_target_machine(
                cpu=target.cpu,
                features=target.feature_string(),
                opt=2,
                reloc="pic",
                codemodel="small",
                jit=True,
            )
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            for name, address in addresses.items():
                llvm.add_symbol(name, address)
            self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(data))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Address of a function; KeyError if the object does not define it."""
        with _lock:
            address = self._engine.get_function_address(name)
        if not address:
            raise KeyError(name)
        return address


def load(text: str, target: LLVMTarget, symbols: Mapping[str, int] | None = None) -> LoadedObject:
    """Compile and load in one step."""
    return LoadedObject(compile_object(text, target), target, symbols)
