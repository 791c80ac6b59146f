"""What a user names on the command line: an MLIR file, standard input, or a kernel in a Python file.

Also the arguments that a kernel is compiled for, as text: ``f32[2048,2048]`` is an array,
``bf16[64,128;1,64]`` one with strides (in elements), ``index``, ``f32`` a scalar of that type, and
numbers are themselves.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import linecache
import operator
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tilewright import dtypes
from tilewright.diagnostics import CompileError, Location, Note, TilewrightError
from tilewright.frozen import frozen
from tilewright.tools.exits import UsageError

if TYPE_CHECKING:  # numpy takes as long as all else: commands that know no arrays start without it
    import numpy as np
    from xdsl.dialects.builtin import ModuleOp

    from tilewright.arguments import ArraySpec

STDIN = "<stdin>"


@frozen
class CommandSource:
    """A file's name; ``kernel`` is the part after the colon of ``FILE.py:KERNEL`` and ``FILE.mlir:KERNEL``."""

    path: str
    kernel: str | None = None

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def name(self) -> str:
        """What diagnostics call it."""
        return STDIN if self.path == "-" else self.path

    def read(self) -> str:
        """The text; CompileError when it is no UTF-8, OSError when it cannot be read."""
        data = sys.stdin.buffer.read() if self.path == "-" else Path(self.path).read_bytes()
        return decoded(data, self.name)


def decoded(data: bytes, name: str) -> str:
    """The text of a file, without the mark that some editors put at its start; CompileError when it is no UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise CompileError(
            f"this byte (0x{data[error.start]:02x}) is no UTF-8 text",
            location=Location(name, line, column),
            hint="this is MLIR's bytecode: mlir-opt prints it as text"
            if data.startswith(b"ML\xefR")
            else "a text in another encoding has to be saved as UTF-8",
        ) from None


def parse_source(text: str, *, of_modules: bool = False) -> CommandSource:
    """``FILE.mlir``, ``-``, ``FILE.py`` or ``FILE.py:KERNEL``; `of_modules`: or ``FILE.mlir:KERNEL``."""
    match = re.fullmatch(r"(.+\.py):(\w+)", text)
    if match is not None:
        return CommandSource(match[1], match[2])
    match = re.fullmatch(r"(.+?):([\w.$-]+(?:::[\w.$-]+)?)", text)
    if match and Path(file := match[1]).is_file() and not Path(text).exists():
        if of_modules:
            return CommandSource(file, match[2])
        raise UsageError(
            f"{text}: a name after the colon is that of a kernel in a Python file",
            hint=f"name the file alone: {file}; compile and check take a kernel's name",
        )
    return CommandSource(text)


def check_python(path: str) -> None:
    """OSError when a Python file cannot be read, CompileError when it is no UTF-8 and does not say what it is."""
    data = Path(path).read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:  # neither UTF-8 nor a name of something else in the first two lines
        encoding = "utf-8"
    if encoding.startswith("utf-8"):
        decoded(data, path)


def split_input(text: str) -> Iterator[tuple[int, str]]:
    """The parts between ``// -----`` lines, each with the number of lines before it."""
    lines_before = 0
    for part in re.split(r"^// -----[^\n]*\n?", text, flags=re.MULTILINE):
        yield lines_before, part
        lines_before += part.count("\n") + 1


def load_python(path: str) -> Any:
    """The module of a Python file, executed under its own name (not as ``__main__``)."""
    check_python(path)
    file = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = Location(path, error.lineno or 1, error.offset or 1)
        raise CompileError(f"this is no Python: {error.msg}", location=where) from None
    except (Exception, SystemExit) as error:
        raise python_error(error, path) from error
    finally:
        sys.path.remove(str(file.parent))
    return module


def python_error(error: BaseException, path: str) -> TilewrightError:
    """An exception that came out of the user's file, placed at the expression of the file that raised it.

    An error of ours that points elsewhere (into a kernel of `tilewright.ops`) gets a note with that place.
    """
    where = _innermost(error.__traceback__, Path(path).resolve(), path)
    if not isinstance(error, TilewrightError):
        return CompileError(f"{type(error).__name__}: {error}", location=where)
    if error.location is None:
        return error.at(where)
    ours = Path(error.location.file).resolve().is_relative_to(_PACKAGE)
    return error.with_note(Note("called here", where)) if ours and where is not None else error


_PACKAGE = Path(__file__).resolve().parents[1]


def _innermost(at: TracebackType | None, file: Path, path: str) -> Location | None:
    """The innermost expression of `file` that was being evaluated."""
    where = None
    while at is not None:
        code = at.tb_frame.f_code
        if Path(code.co_filename).resolve() == file:
            places = list(code.co_positions())
            first, last, column, end = places[at.tb_lasti // 2]
            where = Location(path, first or at.tb_lineno, _characters(file, first, column) + 1)
            if end is not None and first == last:
                where = replace(where, end_col=_characters(file, first, end) + 1)
        at = at.tb_next
    return where


def _characters(file: Path, line: int | None, offset: int | None) -> int:
    """Python counts the columns of an expression in bytes."""
    if not line or not offset:
        return 0
    text = linecache.getline(str(file), line).encode()
    return len(text[:offset].decode(errors="replace"))


def find_kernel(source: CommandSource) -> Any:
    """The kernel that ``FILE.py:KERNEL`` names; without a name, the only kernel of the file."""
    from tilewright.lang.kernel import Kernel

    module = load_python(source.path)
    kernels = {name: v for name, v in vars(module).items() if isinstance(v, Kernel)}
    if source.kernel is None:
        if len(kernels) == 1:
            return next(iter(kernels.values()))
        if not kernels:
            raise CompileError(
                f"{source.path} has no kernel",
                rule="a kernel is a function of the file that @tw.kernel decorates",
            )
        raise UsageError(
            f"{source.path} has {len(kernels)} kernels ({', '.join(kernels)}): "
            f"name one as {source.path}:KERNEL"
        )
    if source.kernel not in kernels:
        known = ", ".join(kernels) or "none"
        raise UsageError(f"{source.path} has no kernel {source.kernel!r}; it has {known}")
    return kernels[source.kernel]


def kernel_alone(source: CommandSource, module: ModuleOp, target: str) -> ModuleOp:
    """The kernel of a module that the user names, as a module of its own: of its text, or what its structured ops and
    its loops over tiles become for a target. UsageError where no name is that of one kernel."""
    from xdsl.dialects import gpu

    from tilewright.passes.kernel import block_of, level_of, subgroups_of
    from tilewright.runtime.program.isolate import alone
    from tilewright.targets.entry import host_to_tiles, outline, state_levels

    host_to_tiles(module, target)
    outline(module)
    known: list[tuple[list[str], Any]] = []
    for kernel in state_levels(module):
        name, outer = kernel.sym_name.data, kernel.parent_op()
        assert isinstance(outer, gpu.ModuleOp)
        known.append(([name, f"{outer.sym_name.data}::{name}"], kernel))
    named = [kernel for names, kernel in known if source.kernel in names]
    if len(named) != 1:
        how = "several kernels" if named else "no kernel"
        listed = ", ".join(names[bool(named)] for names, _ in known) or "none"
        raise UsageError(f"{source.path} has {how} {source.kernel!r}; its kernels are {listed}")
    return alone(named[0], level_of(named[0]), subgroups_of(named[0]), block_of(named[0]))


_ARRAY = re.compile(r"(\w+)\[([\d,\s]*)(?:;([-\d,\s]*))?\]")


def parse_argument(text: str) -> Any:
    """One argument as text: an :class:`ArraySpec`, or a number."""
    from tilewright.arguments import ArraySpec

    text = text.strip()
    if match := _ARRAY.fullmatch(text):
        dtype = _dtype(match[1], text)
        shape = _integers(match[2])
        strides = _integers(match[3]) if match[3] is not None else None
        if not shape or (strides is not None and len(strides) != len(shape)):
            raise UsageError(f"argument {text!r}: an array has one extent per stride, at least one")
        return ArraySpec(shape, dtype, strides)
    if re.fullmatch(r"[a-z]\w*", text) and text not in ("true", "false", "inf", "nan"):
        dtype = _dtype(text, text)
        return 1 if dtype.is_index else dtype.numpy.type(1)
    return parse_value(text)


def parse_value(text: str, constexpr: str | None = None) -> Any:
    """A number, a bool, a string or a tuple of them as Python writes it; also ``tw.f32``. `constexpr`: whose it is."""
    lowered = {"true": True, "false": False}.get(text.lower())
    if lowered is not None:
        return lowered
    name = text.removeprefix("tw.")
    if any(name == d.name for d in dtypes.ALL):
        return dtypes.from_name(name)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        try:
            return float(text)
        except ValueError:
            if constexpr is None:
                what = f"argument {text!r} is neither an array like f32[64,128] nor a number"
                raise UsageError(what) from None
            raise UsageError(
                f"{constexpr}={text} is neither a number nor a dtype",
                hint=f"a string has quotes: {constexpr}='\"{text}\"'",
            ) from None


def parse_constexprs(settings: Sequence[str], kernel: Any = None) -> dict[str, Any]:
    """``BM=128 DTYPE=bf16`` as a dictionary; UsageError names what is no constexpr of ``kernel``."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{setting!r} is not of the form NAME=VALUE")
        found[name] = parse_value(value, name)
    if kernel is not None:
        known_constexprs(found, kernel)
    return found


def known_constexprs(names: Iterable[str], kernel: Any) -> None:
    """UsageError where ``kernel`` has no constexpr of one of the names."""
    known = [p.name for p in kernel.parameters if p.constexpr]
    for name in names:
        if name not in known:
            raise UsageError(
                f"kernel {kernel.name} has no constexpr {name!r}",
                hint=f"its constexprs are {', '.join(known)}" if known else "it has none",
            )


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def parse_grid(text: str, constexprs: Mapping[str, Any] | None = None) -> tuple[int, int, int]:
    """``cdiv(2048, BM), 4``: integers, constexprs, + - * // and cdiv; nothing else is evaluated.

    One to three positive numbers, else UsageError: of no program there is nothing to show.
    """

    def value(node: ast.AST) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.Name(id=name) if constexprs and isinstance(constexprs.get(name), int):
                return constexprs[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.Call(func=ast.Name(id="cdiv"), args=[a, b], keywords=[]):
                return -(-value(a) // value(b))
            case _:
                raise UsageError(
                    f"--grid {text!r}: {ast.unparse(node)!r} is no integer, constexpr, + - * // or cdiv",
                    hint="a grid has one to three axes: 4 or 4,2 or 'cdiv(2048, BM), 4'",
                )

    try:
        tree = ast.parse(text.strip(), mode="eval").body
        nodes = tree.elts if isinstance(tree, ast.Tuple) else [tree]
        grid = tuple(value(node) for node in nodes)
    except (SyntaxError, ZeroDivisionError) as error:
        raise UsageError(f"--grid {text!r}: {error.args[0]}") from None
    if not 1 <= len(grid) <= 3 or min(grid) < 1:
        raise UsageError(f"--grid {text}: one to three positive numbers, such as 4,2")
    x, y, z = (*grid, 1, 1)[:3]
    return x, y, z


def random_array(spec: ArraySpec, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Memory for ``spec`` with random content: normal floats, scales near 1, integers of the whole range."""
    import numpy as np

    from tilewright.runtime.arrays import aligned

    size = prod(spec.shape) if spec.strides is None else _span(spec)
    dtype = spec.dtype.numpy
    if spec.dtype is dtypes.f8e8m0:  # neither zero nor sign
        flat = (2.0 ** rng.integers(-6, 7, size)).astype(dtype)
    elif spec.dtype.is_float:
        flat = rng.standard_normal(size).astype(dtype)
        if spec.dtype.name == "tf32":  # held in 32 bits, of which the last 13 are 0
            flat = (flat.view(np.uint32) & np.uint32(0xFFFFE000)).view(dtype)
    elif spec.dtype.is_bool:
        flat = rng.integers(0, 2, size).astype(dtype)
    else:
        info = np.iinfo(dtype)
        flat = rng.integers(info.min, info.max, size, dtype, endpoint=True)
    memory = aligned((size,), dtype)
    memory[...] = flat
    if spec.strides is None:
        return memory.reshape(spec.shape)
    steps = [s * dtype.itemsize for s in spec.strides]
    return np.ndarray(spec.shape, dtype, buffer=memory, strides=steps)


def _span(spec: ArraySpec) -> int:
    assert spec.strides is not None
    if any(s < 0 for s in spec.strides):
        raise UsageError("strides of an argument on the command line are not negative")
    return 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))


def _dtype(name: str, text: str) -> dtypes.DType:
    try:
        return dtypes.from_name(name)
    except KeyError as error:
        raise UsageError(f"argument {text!r}: {error.args[0]}") from None


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace(" ", "").split(",") if part)
