"""A compiled kernel, and where it comes from: the disk cache, or front end and target."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.arguments import BLOCK_ROW, DEVICE_ALIGNMENT, ArrayArg
from tilewright.cache import KernelCache, compiler_fingerprint, digest
from tilewright.diagnostics import LaunchError
from tilewright.frozen import guarded
from tilewright.runtime.arrays import describe, unwritable
from tilewright.runtime.binding import Parameter
from tilewright.runtime.key import (
    ArgType,
    ArrayType,
    Signature,
    constexpr_key,
    scalar_type,
    signature_of,
)
from tilewright.runtime.recursion import deeply
from tilewright.targets.base import CompileOptions, Executable, Storable, Target, get_target

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.runtime.launch import Launcher

_METADATA = "tilewright.json"


class Built(Protocol):
    """A kernel's module, and what a launch must check beyond the types of its arguments."""

    @property
    def module(self) -> ModuleOp:
        """One gpu.module with one kernel; whoever compiles it may change it."""
        ...

    @property
    def contiguous(self) -> Sequence[int]:
        """Positions of the arrays that are indexed flat, so that they must have no gaps."""
        ...

    @property
    def expands(self) -> bool:
        """Has it ops that targets compile as simpler ones (`expand-ops`)?"""
        ...


class Program(Protocol):
    """What a front end gives the launcher: a kernel before it is compiled for anything."""

    @property
    def name(self) -> str:
        """What messages call the kernel."""
        ...

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters in order, those of compile time among them."""
        ...

    def build(
        self, signature: Signature, constexprs: Mapping[str, Any], options: CompileOptions
    ) -> Built:
        """The module with one kernel, whose arguments are those of ``signature``, in order."""
        ...

    @property
    def launcher(self) -> Launcher:
        """What launches it."""
        ...

    def resolve(self, values: Sequence[Any], grid: Any) -> tuple[Program, Sequence[Any]]:
        """For one value per parameter, as a launch on a grid gave them: the variant of the program for such a call,
        which may be itself, and its values, with nothing left open."""
        ...

    def fingerprint(self) -> str | None:
        """Digest of the source that :meth:`build` reads; None when there is none."""
        ...

    def watch(self) -> Callable[[], bool]:
        """A check, made now, that tells at any later time whether :meth:`build` would read what it reads now."""
        ...


@guarded
class CompiledKernel:
    """Code for one signature on one target.

    ``k.ir["xetile"]``, ``k.asm["llvm"]`` are the texts of its stages; ``k[grid](a, b, c)`` launches
    it with run-time arguments for which its facts hold.
    """

    name: str
    signature: Signature
    options: CompileOptions
    executable: Executable
    stored: frozenset[int]
    """Positions of the run-time arguments that the kernel may write."""
    contiguous: frozenset[int]
    """Positions of the arrays that the kernel indexes flat."""
    from_cache: bool = False
    """Whether it was loaded from disk."""

    def __repr__(self) -> str:
        types = (
            f"{t.dtype}[{', '.join('1' if one else '?' for one in t.ones)}]"
            if isinstance(t, ArrayType)
            else str(t.dtype)
            for t in self.signature
        )
        return f"<compiled kernel {self.name}({', '.join(types)}) for {self.options.target}>"

    @property
    def ir(self) -> Mapping[str, str]:
        """Text of every stage, by name."""
        return self.executable.ir

    @property
    def asm(self) -> Mapping[str, str]:
        """Target text by name: llvm, asm, ptx, spirv."""
        return self.executable.asm

    @property
    def remarks(self) -> Sequence[str]:
        """What the compiler replaced, fell back to, or could not use."""
        return self.executable.remarks

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        from tilewright.arguments import full_grid
        from tilewright.runtime.launch import is_contiguous

        full = full_grid(grid)

        def launch(*args: Any) -> None:
            if len(args) != len(self.signature):
                raise LaunchError(
                    f"compiled kernel {self.name} takes {len(self.signature)} run-time arguments, "
                    f"but {len(args)} were given"
                )
            types = [scalar_type(a) or describe(a, f"argument {i}") for i, a in enumerate(args)]
            now = signature_of(types, alignment=DEVICE_ALIGNMENT, row=BLOCK_ROW)
            for i, (given, compiled) in enumerate(zip(now, self.signature, strict=True)):
                if not holds(compiled, given):
                    raise LaunchError(
                        f"argument {i} of compiled kernel {self.name} is {given}, "
                        f"but the code is for {compiled}",
                        hint="launch the kernel itself: it compiles for its arguments",
                    )
                arg = types[i]
                if i in self.stored and isinstance(arg, ArrayArg) and (why := unwritable(arg)):
                    raise LaunchError(
                        f"compiled kernel {self.name} stores to argument {i}, which is {why}"
                    )
                if (
                    i in self.contiguous
                    and isinstance(arg := types[i], ArrayArg)
                    and not is_contiguous(arg)
                ):
                    raise LaunchError(
                        f"compiled kernel {self.name} indexes argument {i} flat, and it has gaps"
                    )
            if 0 not in full:
                ready = [
                    t if isinstance(t, ArrayArg) else a for t, a in zip(types, args, strict=True)
                ]
                self.executable.launch(full, ready)

        return launch


def holds(compiled: ArgType, given: ArgType) -> bool:
    """Whether code for ``compiled`` is right for an argument of type ``given``."""
    if not isinstance(compiled, ArrayType) or not isinstance(given, ArrayType):
        return compiled == given
    return (
        (compiled.dtype, compiled.rank, compiled.unit) == (given.dtype, given.rank, given.unit)
        and all(b or not a for a, b in zip(compiled.ones, given.ones, strict=True))
        and given.align % compiled.align == 0
        and all(b % a == 0 for a, b in zip(compiled.div, given.div, strict=True))
        and (given.noalias or not compiled.noalias)
        and given.row >= compiled.row
    )


def compile_program(
    program: Program,
    signature: Signature,
    constexprs: Mapping[str, Any],
    options: CompileOptions,
    store: KernelCache | None,
) -> CompiledKernel:
    """The kernel from ``store`` when it is there, else compiled and, where possible, stored."""
    target = get_target(options.target)
    key = None
    if store is not None:
        source, values = program.fingerprint(), constexpr_key(constexprs)
        if source is not None and values is not None:
            types, made = "; ".join(map(str, signature)), target.fingerprint(options)
            parts = compiler_fingerprint(), source, types, values, options.code_key, made
            key = digest(*parts)
    if store is not None and key is not None:
        found = store.get(key)
        if found is not None:
            kernel = _load(found, program, signature, options, target)
            if kernel is not None:
                return kernel
            store.discard(key)
    with uncollected():
        target.begin()
        executable, stored, contiguous = deeply(
            lambda: _compile(program, signature, constexprs, options, target)
        )
    if store is not None and key is not None and isinstance(executable, Storable):
        metadata = json.dumps({"stored": sorted(stored), "contiguous": sorted(contiguous)})
        store.put(key, {_METADATA: metadata.encode(), **executable.artifacts()})
    return CompiledKernel(program.name, signature, options, executable, stored, contiguous)


@contextmanager
def uncollected() -> Generator[None]:
    """What a compilation makes is used to its end: searching all of it for cycles again and again takes a seventh of
    its time, and what the first launch of a process imports stays for good. That counts as old from then on, unseen
    (:func:`gc.freeze` and back), where the user has frozen nothing (for Python 3.12 immortal objects count too: there
    it stays young); what later ones leave is found by whoever comes next."""
    enabled = gc.isenabled()
    if enabled:  # else the thread that switched it off may switch it on again just before this line
        gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not _imported and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            _imported[:] = (True,)
            gc.enable()


_imported: list[bool] = []
"""Something, once the first launch is over."""


def _compile(
    program: Program,
    signature: Signature,
    constexprs: Mapping[str, Any],
    options: CompileOptions,
    target: Target,
) -> tuple[Executable, frozenset[int], frozenset[int]]:
    """The executable, which arguments it stores to, and which it reads flat."""
    built = program.build(signature, constexprs, options)
    # Behind what imports our dialects, which say how xDSL's classes are made.
    from xdsl.dialects import gpu

    from tilewright.passes.memory_objects import stored_arguments

    if target.compiles and built.expands:
        from tilewright.passes.expand_ops import expand_ops  # late: few kernels wait for it

        expand_ops(built.module)
    functions = (op for op in built.module.walk() if isinstance(op, gpu.FuncOp))
    function = next((op for op in functions if op.kernel is not None), None)
    stored = stored_arguments(function) if function is not None else frozenset[int]()
    executable = target.build(built.module, options)
    return executable, stored, frozenset(built.contiguous)


def _load(
    artifacts: dict[str, bytes],
    program: Program,
    signature: Signature,
    options: CompileOptions,
    target: Target,
) -> CompiledKernel | None:
    """The stored kernel; None when the target cannot load what is stored."""
    try:
        metadata = json.loads(artifacts.pop(_METADATA))
        stored, contiguous = (frozenset[int](metadata[k]) for k in ("stored", "contiguous"))
        executable = target.load(artifacts, options)
    except (KeyError, ValueError):
        return None
    name = program.name
    return CompiledKernel(name, signature, options, executable, stored, contiguous, from_cache=True)
