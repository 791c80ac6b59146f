"""From a Python function and the types of its arguments to kernel IR.

The result is ``module { gpu.module @NAME { gpu.func @NAME(args) kernel { ... gpu.return } } }`` with
the execution level in ``tilewright.level`` and what is known about the arguments in
``tilewright.args``; it verifies, whatever the kernel.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from tilewright.dialects import formats as _formats  # noqa: F401  # pyright: ignore[reportUnusedImport]  (before xDSL's dialects)
from tilewright.frozen import frozen

# isort: split
from xdsl.dialects import gpu
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Block, Operation, Region

from tilewright import knobs
from tilewright.diagnostics import CompileError, TilewrightError, location_of
from tilewright.dialects.kernel_attributes import ARGS, LEVEL, SUBGROUPS
from tilewright.lang import calls as _calls  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers its rules)
from tilewright.lang import members as _members  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers its rules)
from tilewright.lang import statements as _statements  # noqa: F401  # pyright: ignore[reportUnusedImport]  (registers its rules)
from tilewright.lang.context import Emitter, activate, suggest_name
from tilewright.lang.frame import Frame
from tilewright.lang.source import KernelSource, source_of
from tilewright.lang.values import Array, Value, describe_type
from tilewright.runtime.key import ArrayType, Signature, mlir_facts

EXPANDED = {"math.ipowi", "vector.scan"}
"""Ops of the language that `expand-ops` has rules for. To import that pass takes 10 ms: kernels without them do not."""


@frozen
class Built:
    """A kernel's module, and what a launch must check beyond the types of its arguments."""

    module: ModuleOp
    contiguous: tuple[int, ...]
    """Positions of array arguments that are used flattened, so that they must be contiguous."""

    @property
    def expands(self) -> bool:
        """Has it ops that targets compile as simpler ones (`expand-ops`)?"""
        return any(op.name in EXPANDED for op in self.module.walk())


def build(
    function: FunctionType,
    signature: Signature,
    constexprs: Mapping[str, Any],
    *,
    level: str = "workgroup",
    subgroups: int | None = None,
    fastmath: bool = True,
) -> Built:
    """The kernel IR of ``function``, and what a launch has to check.

    ``signature`` has one entry per run-time parameter, in order; ``constexprs`` gives the values of
    all other parameters. Raises CompileError, placed in the kernel's source.
    """
    source = source_of(function)
    names = [n for n in inspect.signature(function).parameters if n not in constexprs]
    if len(names) != len(signature):
        raise CompileError(
            f"{source.name} has {len(names)} run-time parameters, but {len(signature)} types are"
            " given"
        )
    block = Block(arg_types=[arg.mlir() for arg in signature])
    emitter = Emitter(block, fastmath=fastmath, level=level)
    arguments = dict(constexprs)
    for name, kind, ssa in zip(names, signature, block.args, strict=True):
        suggest_name(ssa, name)
        ssa.location = source.mlir_location(source.node, None)
        if isinstance(kind, ArrayType):
            arguments[name] = Array(ssa, kind.dtype, name)
        else:
            # A Python float is an f32 that takes the dtype of what it meets.
            weak = kind.dtype.name == "f32"
            arguments[name] = Value(ssa, kind.dtype, (), weak=weak)
    with activate(emitter):
        frame = Frame(source, emitter, arguments)
        try:
            result = frame.run()
        except (TilewrightError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise _internal(error, emitter) from (error if knobs.current().traceback else None)
        if result is not None:
            raise frame.error(
                _return_of(source),
                f"the kernel returns {describe_type(result)}",
                rule="a kernel returns nothing: its results are what it stores",
                hint="store it: tw.store_tile(value, tw.init_tile(array, offsets, shape))",
            )
        frame.at(source.node)
        emitter.emit(gpu.ReturnOp([]))
    if not any(_is_seen(op) for op in block.walk()):
        warnings.warn_explicit(
            f"kernel {source.name} stores nothing, so that running it changes nothing; tw.store_tile(value, "
            "tw.init_tile(array, offsets, shape)) keeps a result",
            UserWarning,
            source.file,
            source.node.lineno,
        )
    symbol = re.sub(r"[^A-Za-z0-9_]", "_", source.name)
    func = gpu.FuncOp(symbol, ([arg.type for arg in block.args], []), Region(block), kernel=True)
    func.location = source.mlir_location(source.node, None)
    func.attributes[LEVEL] = StringAttr(level)
    if subgroups is not None:
        func.attributes[SUBGROUPS] = IntegerAttr(subgroups, i64)
    func.attributes[ARGS] = mlir_facts(signature)
    device = gpu.ModuleOp(StringAttr(symbol), Region(Block([*emitter.functions, func])))  # pyright: ignore[reportArgumentType]
    module = ModuleOp([device])
    flat = tuple(i for i, name in enumerate(names) if name in emitter.contiguous)
    return Built(module, flat)


def _is_seen(op: Operation) -> bool:
    """Does an op do what is seen from outside of the kernel: store, print, stop?"""
    word = op.name.partition(".")[2]
    return word.startswith(("store", "atomic", "print", "assert", "breakpoint"))


def _internal(error: Exception, emitter: Emitter) -> CompileError:
    """A mistake of the compiler itself, placed at what it was compiling."""
    return CompileError(
        f"the compiler failed here: {type(error).__name__}: {error}",
        location=location_of(emitter.location),
        hint="this is a bug in Tilewright, please report it; TILEWRIGHT_TRACEBACK=1 shows where",
    )


def _return_of(source: KernelSource) -> Any:
    import ast

    returns = [n for n in ast.walk(source.node) if isinstance(n, ast.Return) and n.value]
    return returns[0] if returns else source.node
