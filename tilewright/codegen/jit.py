"""LLVM IR text -> object code -> callable addresses, in this process or for another machine, through llvmlite.

No LLVM pass pipeline runs: the printed code is what is compiled (`notes/cpu.md` section 4: passes
cost twice the compile time and gain nothing). Objects are position-independent bytes that a cache
can keep; loading one takes about a millisecond and needs neither the text nor the IR.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cache
from itertools import count
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from tilewright import cache as disk
from tilewright import forks
from tilewright.codegen.support import support_address
from tilewright.codegen.target import LLVMTarget
from tilewright.diagnostics import CompileError

_lock = forks.lock()
"""Target machines are shared, and not safe to enter from two threads."""


def _hold_llvm() -> None:
    """Before a fork: wait until no thread is inside of LLVM.

    llvmlite takes a lock of its own around every call of LLVM, also where the garbage collector frees a module. A
    child that copies it while another thread holds it would wait for ever, on state of LLVM that is half done.
    """
    _llvmlite_lock().__enter__()


def _free_llvm() -> None:
    """After a fork, in both processes: this thread took the lock, and lets it go."""
    _llvmlite_lock().__exit__()


def _llvmlite_lock() -> Any:
    return getattr(llvm.ffi.lib, "_lock", nullcontext())


os.register_at_fork(before=_hold_llvm, after_in_parent=_free_llvm, after_in_child=_free_llvm)


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@cache
def _target_machine(triple: str, cpu: str, features: str) -> Any:
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


LIBRARY = re.compile(
    "mem(cpy|move|set|cmp)|bcmp|aligned_alloc|free"
    "|(exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sqrt|cbrt|sin|cos|sincos|tan|asin|acos|atan|atan2|sinh|cosh|tanh"
    "|erf|erfc|fma|fmod|remainder|fmin|fmax|fabs|copysign|floor|ceil|trunc|round|roundeven|rint|nearbyint|ldexp"
    "|lround|llround|lrint|llrint)f?"
    "|__(add|sub|mul|div|mod|udiv|umod|fix|fixuns|float|floatun|trunc|extend|pow|eq|ne|lt|le|gt|ge|unord)"
    "[bhsdxtf]*[dtsh]?[fi]?[0-9]?|__(ash[lr]|lshr|clz|ctz|popcount|parity)[sdt]i[0-9]"
)
"""Functions of the C library, of its mathematics and of compilers' run time that LLVM makes calls of."""

_numbers = count()
"""Of the libraries that were linked: their names are used once."""


def _process_address(name: str) -> int | None:
    """Where the dynamic linker of this process, or LLVM, has `name`."""
    address = llvm.address_of_symbol(name)
    if address is not None:
        return address
    try:
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    except AttributeError:
        return None


def toolchain_version() -> str:
    """Version of the code generator, for cache keys."""
    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"


_NARROW_STORE = re.compile(
    r"^.*call void @llvm\.masked\.store\.v\d+i(?:8|16|32)\.p0\((<\d+ x i\d+> %[^,]+),.*$", re.M
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
    """LLVM module of `text`, verified; CompileError with LLVM's message (a bug of the emitter)."""
    _initialize()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"the emitter printed LLVM IR that LLVM refuses: {error}") from error
    return module


def compile_object(text: str, target: LLVMTarget, *, optimize: bool = False) -> bytes:
    """Object code (ELF) of LLVM IR text, for the target of a CPU.

    `optimize` runs LLVM's passes first: for code that is compiled as its author wrote it, scalar loop by loop.
    """
    with _lock:
        machine = _target_machine(target.triple, target.cpu, target.feature_string())
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
        return machine.emit_object(module)


def compile_assembly(text: str, target: LLVMTarget) -> str:
    """Assembly of LLVM IR text, for the target of a CPU."""
    with _lock:
        machine = _target_machine(target.triple, target.cpu, target.feature_string())
        return machine.emit_assembly(parse(_truncated_first(text, target)))


class LoadedObject:
    """Object code in executable memory; addresses are valid while this object lives.

    LLVM's JITLink gives all sections of an object one range of addresses. (MCJIT mapped each by itself
    and hoped that they would be neighbours. In a process with little room between its mappings, as
    beside a CUDA driver, code and its constants came to lie more than 2 GiB apart, where a relative
    address of 32 bits wraps round, and kernels read elsewhere.)
    """

    def __init__(
        self,
        data: bytes,
        target: LLVMTarget,
        symbols: Mapping[str, int] | None = None,
        *,
        ours: bool = False,
    ):
        """`symbols`: addresses of external functions by name, beyond those of `support` and those that code
        generators call by themselves (`LIBRARY`). Code made from a program's text reaches no others: whatever
        the text calls, it is not the shell. `ours`: the code is Tilewright's own, and all that the process
        exports is there for it.

        Raises CompileError when the object needs a symbol that none of them gives.
        """
        library = llvm.JITLibraryBuilder().add_object_img(data)
        for name in undefined_symbols(data):
            if name == "_GLOBAL_OFFSET_TABLE_":  # the linker's own
                continue
            address = (symbols or {}).get(name) or support_address(name)
            if address is None and (ours or LIBRARY.fullmatch(name)):
                address = _process_address(name)
            if address is None:
                raise CompileError(
                    f"the object needs '{name}', which nothing here defines",
                    rule="code of a program reaches the functions of the runtime, and no others of this process",
                )
            library.import_symbol(name, address)
        self._names = frozenset(defined_symbols(data))
        for name in self._names:
            library.export_symbol(name)
        try:
            with _lock:
                self._code = library.link(_linker(target.triple), f"object{next(_numbers)}")
        except RuntimeError as error:
            raise CompileError(f"the object cannot be loaded: {error}") from error

    def address(self, name: str) -> int:
        """Address of a function; KeyError if the object does not define it."""
        if name not in self._names:
            raise KeyError(name)
        return self._code[name]


def load(text: str, target: LLVMTarget, symbols: Mapping[str, int] | None = None) -> LoadedObject:
    """Code of our own in memory: compiled, or from the disk cache, where it lies beside the kernels that need it."""
    store, key = disk.current(), disk.digest(text, target.key(), toolchain_version())
    found = store.get(key) if store is not None else None
    data = found["object"] if found is not None else compile_object(text, target)
    if store is not None and found is None:
        store.put(key, {"object": data})
    return LoadedObject(data, target, symbols, ours=True)


SYMBOL_TABLE = 2
"""ELF section type SHT_SYMTAB."""


def _sections(data: bytes) -> list[tuple[int, ...]]:
    """Section headers of an ELF64 file: (name, type, flags, addr, offset, size, link, ...)."""
    if data[:4] != b"\x7fELF" or data[4] != 2:
        raise ValueError("not a 64-bit ELF object")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, _ = struct.unpack_from("<HHH", data, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]


def symbols(data: bytes) -> Iterator[tuple[str, bool]]:
    """(name, defined) of every global symbol of an object file."""
    sections = _sections(data)
    for section in sections:
        if section[1] != SYMBOL_TABLE:
            continue
        offset, size, link = section[4], section[5], section[6]
        strings = sections[link][4]
        for at in range(offset, offset + size, 24):
            name, info, _, index, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if name and info >> 4 in (1, 2):
                end = data.index(b"\0", strings + name)
                yield data[strings + name : end].decode(), index != 0


def undefined_symbols(data: bytes) -> list[str]:
    """Names that loading the object must find elsewhere."""
    return sorted({name for name, defined in symbols(data) if not defined})


def defined_symbols(data: bytes) -> list[str]:
    """Names of the functions and data that the object gives."""
    return sorted({name for name, defined in symbols(data) if defined})
