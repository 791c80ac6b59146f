"""The runtime library that MLIR test programs call: printing, comparing, filling, reference GEMMs.

A program declares such a function (`func.func private @printMemrefF32(memref<*xf32>)`) and calls it on its
results.  Each is declared here once, as a Python function on numpy arrays with the kinds of its arguments; the
reference executor calls it with its arrays, compiled host code through `exported()`, which wraps it for the C
convention of `llvm.emit_c_interface` (an unranked memref is its rank and the address of its descriptor).

The printed text is what the real libraries print, digit for digit: floats as C++ streams show them (`%g`, six
digits).  Source: MLIR's runner utils and IMEX's runner utils, by their observable behaviour.
"""

from __future__ import annotations

import ctypes as C
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import func
from xdsl.dialects.builtin import IndexType, IntegerType, MemRefType, UnrankedMemRefType
from xdsl.ir import Attribute

from tilewright import dtypes
from tilewright.arguments import array_of_memref, offset_of
from tilewright.diagnostics import did_you_mean, error_at, unsupported
from tilewright.frozen import frozen
from tilewright.printed import PUNCTUATION

Array = NDArray[Any]

PUBLIC: Final[Mapping[str, np.dtype[Any]]] = {
    name.upper(): dtypes.from_name(name).numpy
    for name in ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8")
}
"""Element types that the public libraries print, by the suffix of the function names."""

ELEMENT: Final[Mapping[str, np.dtype[Any]]] = {
    **PUBLIC,
    **{name.upper(): dtypes.from_name(name).numpy for name in ("i1", "f8e4m3", "f8e5m2")},
}
"""Those of all functions."""

_WHOLE: Final = 1000
"""Elements of the largest result that is printed whole."""

OWN: Final = "tw_"
"""Prefix of functions that no public library has: what `runtime.program.entry` calls."""


@frozen
class RunnerFunction:
    """One function of the library.

    `arguments`: an element type of `ELEMENT` for an unranked memref of it, or "f32", "f64", "i1", "i64".  `result`:
    "f64", "i64", "i1", "".
    """

    name: str
    arguments: tuple[str, ...]
    call: Callable[..., Any]
    result: str = ""


class Runner:
    """The state behind the functions: where text goes, the random stream, and what the comparisons said.

    `strict` makes comparisons report what the weak ones pass over: NaN, different shapes, nothing to compare.
    """

    def __init__(self, *, seed: int | None = None, strict: bool = False) -> None:
        self._seed = seed
        self.strict = strict
        self.failures: list[str] = []
        """Why each comparison that printed FALSE did so."""
        self.write: Callable[[str], Any] = sys.stdout.write
        self._arguments: dict[int, bytes] = {}
        """Digests of what the arrays that the entry takes held at first."""

    @cached_property
    def _random(self) -> np.random.Generator:
        """The random stream, for programs that draw: importing numpy.random takes 14 ms."""
        return np.random.default_rng(self._seed)

    def fill_argument(self, number: int, a: Array) -> None:
        """Random numbers in [-1, 1), whole ones in [-8, 8) for integers."""
        if a.dtype.kind in "iub":
            a[...] = self._random.integers(-8, 8, a.shape)
        else:
            a[...] = _cast(self._random.uniform(-1, 1, a.shape).astype(np.float32), a.dtype)
        self._arguments[number] = _digest(a)

    def print_argument(self, number: int, a: Array) -> None:
        """An array that the entry took, if it wrote to it."""
        if _digest(a) != self._arguments[number]:
            self._print_array(f"argument {number}", a)

    def print_result(self, number: int, a: Array) -> None:
        """What the entry returned."""
        self._print_array(f"result {number}", a)

    def _print_array(self, name: str, a: Array) -> None:
        if a.ndim == 0:
            self.write(f"{name}: {a.dtype.name} {_number(a.item())}\n")
            return
        self.write(f"{name}: {summary(a)}\n")
        if 0 < a.size <= _WHOLE:
            self.write("".join(_nested(a, a.ndim)) + "\n")

    def print_shape(self, a: Array, kind: str = "Unranked Memref", end: str = "\n") -> None:
        offset = offset_of(a)
        address = a.__array_interface__["data"][0] - offset * a.itemsize
        strides = [stride // a.itemsize for stride in a.strides]
        self.write(
            f"{kind} base@ = {address:#x} rank = {a.ndim} offset = {offset} "
            f"sizes = [{_list(a.shape)}] strides = [{_list(strides)}]{end}"
        )

    def print_memref(self, a: Array, kind: str = "Unranked Memref") -> None:
        self.print_shape(a, kind, " data = \n")
        data = "".join(_nested(a, a.ndim))
        self.write(f"{data}\n" if a.ndim else f"[{data}]\n")

    def print_number(self, value: float) -> None:
        self.write(_number(value))

    def print_unsigned(self, value: int) -> None:
        self.write(str(value & 0xFFFF_FFFF_FFFF_FFFF))

    def print_rate(self, flops: float) -> None:
        sys.stderr.write(f"{flops / 1e9:f} GFLOPS\n")

    def print_all_close(self, got: Array, expected: Array) -> None:
        """|got - expected| <= 1e-4 + 1e-3 |expected| in f32, over the elements that both have."""
        left, right = _pair(got, expected)
        self._verdict(_far(left, right), left, right, got, expected)

    def all_close(self, got: Array, expected: Array) -> bool:
        """The verdict of `print_all_close`, not printed."""
        left, right = _pair(got, expected)
        return not _far(left, right).any()

    def print_all_equal(self, got: Array, expected: Array) -> None:
        left, right = got.ravel(), expected.ravel()
        count = min(left.size, right.size)
        self._verdict(left[:count] != right[:count], left, right, got, expected)

    def _verdict(self, far: Array, left: Array, right: Array, got: Array, expected: Array) -> None:
        reason = ""
        if far.any():
            at = int(np.argmax(far))
            reason = f"element {at}: {left[at]} is not close to {right[at]}"
        elif self.strict and got.size != expected.size:
            reason = f"shapes {got.shape} and {expected.shape} differ in size"
        elif self.strict and got.size == 0:
            reason = "there is nothing to compare"
        elif self.strict and bool(np.isnan(left).any() or np.isnan(right).any()):
            at = int(np.argmax(np.isnan(left) | np.isnan(right)))
            reason = f"element {at}: {left[at]} against {right[at]}"
        if reason:
            self.failures.append(reason)
        self.write(f"[ALLCLOSE: {'FALSE' if reason else 'TRUE'}]\n")

    def print_max_error(self, got: Array, expected: Array) -> None:
        """The largest errors, in f64; NaN is none. Where nothing differs, the place is 0 and its values inf."""
        left, right = (x.astype(np.float64) for x in _pair(got, expected))
        with np.errstate(all="ignore"):
            absolute = np.abs(left - right)
            relative = absolute / np.fmax(np.abs(left), np.abs(right))
        for kind, values in (("absolute", absolute), ("relative", relative)):
            known = np.nan_to_num(values, nan=0.0, posinf=np.inf)
            at, largest, i, j = 0, 0.0, np.inf, np.inf
            if known.any():
                at = int(np.argmax(known))
                largest, i, j = known[at], left[at], right[at]
            self.write(f"Max {kind} error {largest:g} at idx={at} (i={i:g}, j={j:g})\n")

    def fill(self, a: Array, value: float) -> None:
        a[...] = _cast(np.float32(value), a.dtype)

    def fill_random(self, a: Array, lower: float, upper: float, whole: bool) -> None:
        values = self._random.uniform(lower, upper, a.shape).astype(np.float32)
        a[...] = _cast(np.trunc(values) if whole else values, a.dtype)

    def gemm(self, a: Array, b: Array, c: Array) -> None:
        """C += A B in f32."""
        if self._multiplies(a, b, c):
            c += a.astype(np.float32) @ b.astype(np.float32)

    def gemm_rounded(self, a: Array, b: Array, c: Array) -> None:
        """C += A B in f32, the sum rounded to f16."""
        if self._multiplies(a, b, c):
            c[...] = (c + a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)

    def _multiplies(self, a: Array, b: Array, c: Array) -> bool:
        """Whether these are dense matrices that fit; what the real library prints where they are not."""
        named = list(zip("ABC", (a, b, c), strict=True))
        if any(x.ndim != 2 for x in (a, b, c)):
            ranks = ", ".join(f"{name} rank: {x.ndim}" for name, x in named)
            self.write(f"Expecting 2D memrefs, got {ranks}\n")
        elif (a.shape[1], a.shape[0], b.shape[1]) != (b.shape[0], *c.shape):
            sizes = ", ".join(f"{name}: [{x.shape[0]}, {x.shape[1]}]" for name, x in named)
            self.write(f"Incompatible matrix dimensions: {sizes}\n")
        elif any(x.strides != (x.shape[1] * x.itemsize, x.itemsize) for x in (a, b, c)):
            self.write(
                "Expecting A strides to be [M, 1], B strides to be [K, 1], C strides to be [M, 1]\n"
            )
        else:
            return True
        return False

    elapsed: float = 0.0
    """Seconds that the clock is ahead: those of launches that were counted and not run."""

    def clock(self) -> float:
        return time.perf_counter() + self.elapsed

    def nanoseconds(self) -> int:
        return int(self.clock() * 1e9)

    def functions(self) -> dict[str, RunnerFunction]:
        """Every function of the library, by the name that programs declare."""
        table = [
            *(
                RunnerFunction(f"printMemref{how}{name}", (t,), call)
                for name, t in (*zip(PUBLIC, PUBLIC, strict=True), ("Ind", "I64"))
                for how, call in (
                    ("", self.print_memref),
                    ("Shape", self.print_shape),
                    *((f"{rank}d", partial(self.print_memref, kind="Memref")) for rank in range(5)),
                )
            ),
            *(
                RunnerFunction(f"print{name}", takes, call)
                for name, takes, call in (
                    ("I64", ("i64",), self.print_number),
                    ("U64", ("i64",), self.print_unsigned),
                    ("F32", ("f32",), self.print_number),
                    ("F64", ("f64",), self.print_number),
                    ("Flops", ("f64",), self.print_rate),
                    *(
                        (n.capitalize(), (), partial(self.write, text))
                        for n, text in PUNCTUATION.items()
                    ),
                )
            ),
            RunnerFunction("nanoTime", (), self.nanoseconds, "i64"),
            *(
                RunnerFunction(f"{name}{t}", (t, *more), call, *gives)
                for t in ("F32", "F16", "BF16")
                for name, more, call, *gives in (
                    ("printAllclose", ("F32",), self.print_all_close),
                    ("allclose", ("F32",), self.all_close, "i1"),
                    ("printMaxError", (t,), self.print_max_error),
                    ("fillResource1D", ("f32",), self.fill),
                    ("fillResource1DRandom", ("f32", "f32", "i1"), self.fill_random),
                )
            ),
            RunnerFunction("printAllcloseI32", ("I32", "I32"), self.print_all_equal),
            RunnerFunction("gemmF16F16F32", ("F16", "F16", "F32"), self.gemm),
            RunnerFunction("gemmBF16BF16F32", ("BF16", "BF16", "F32"), self.gemm),
            RunnerFunction("gemmF16F16F16", ("F16", "F16", "F32"), self.gemm_rounded),
            RunnerFunction("rtclock", (), self.clock, "f64"),
            *(
                RunnerFunction(f"{OWN}{what}_{t}", ("i64", t), call)
                for t in ELEMENT
                for what, call in (
                    ("fill", self.fill_argument),
                    ("argument", self.print_argument),
                    ("result", self.print_result),
                )
            ),
        ]
        return {function.name: function for function in table}


_SCALARS: Final = {name: dtypes.from_name(name).mlir for name in ("f32", "f64", "i1", "i64")}


def suffix_of(element: Attribute) -> str | None:
    """The suffix of the functions on arrays of that element type; None where there are none."""
    return next((suffix for suffix in ELEMENT if _is(element, suffix)), None)


def called_function(op: func.CallOp, library: Mapping[str, RunnerFunction]) -> RunnerFunction:
    """The function of the library that a call means.

    A function reads memory by the element type in its name: a program that passes another one would have it
    print garbage, or write beyond the array.  A ranked memref counts as an unranked one.

    Raises:
        UnsupportedError: there is none of that name.
        CompileError: its arguments or results have other types than those passed, at the call.
    """
    name = op.callee.string_value()
    function = library.get(name)
    if function is None:
        raise unsupported(
            op,
            f"@{name} is declared, not defined, and the runner's library has no such function",
            hint=did_you_mean(name, [n for n in library if not n.startswith(OWN)], 3)
            or "it has printMemrefF32, printAllcloseF32, fillResource1DF32, printI64, rtclock and their like "
            "(docs/running-mlir.md); what is defined in C has no place here",
        )
    takes = [_SCALARS.get(kind, kind) for kind in function.arguments]
    gives = [_SCALARS[function.result]] if function.result else []
    given = list(op.operand_types)
    if (
        len(given) != len(takes)
        or not all(map(_fits, given, takes))
        or list(op.result_types) != gives
    ):
        listed = ", ".join(str(t) if isinstance(t, Attribute) else _unranked(t) for t in takes)
        results = ", ".join(map(str, gives))
        raise error_at(
            op,
            f"@{name} of the runner's library is ({listed}) -> ({results}), but the program has it as "
            f"({', '.join(map(str, given))}) -> ({', '.join(map(str, op.result_types))})",
            rule="a function of the library reads memory by the element type in its name",
        )
    return function


def _fits(given: Attribute, wanted: Attribute | str) -> bool:
    if isinstance(wanted, Attribute):
        return given == wanted
    if not isinstance(given, MemRefType | UnrankedMemRefType):
        return False
    return _is(given.element_type, wanted)


def _is(element: Attribute, suffix: str) -> bool:
    """Is a type that of a suffix? Integers may have signs; an index is one of 64 bits."""
    wanted = _type(suffix)
    if isinstance(wanted, IntegerType) and isinstance(element, IntegerType | IndexType):
        return wanted.width.data == (64 if isinstance(element, IndexType) else element.width.data)
    return element == wanted


def _type(suffix: str) -> Attribute:
    return dtypes.from_name(suffix.lower()).mlir


def _unranked(element: str) -> str:
    return f"memref<*x{_type(element)}>"


def exported(function: RunnerFunction, fail: Callable[[BaseException], Any] | None = None) -> Any:
    """A C function pointer for compiled code: unranked memrefs as (i64 rank, ptr descriptor), scalars by value.

    The caller keeps the returned object alive as long as code may call it.  `fail` is called with an exception,
    which cannot be raised through native code.
    """
    scalars: Mapping[str, Any] = {
        "f32": C.c_float,
        "f64": C.c_double,
        "i1": C.c_bool,
        "i64": C.c_int64,
    }
    given = ([scalars[a]] if a in scalars else [C.c_int64, C.c_void_p] for a in function.arguments)

    def wrapper(*raw: Any) -> Any:
        values = iter(raw)
        try:
            return function.call(*[_argument(kind, values) for kind in function.arguments])
        except BaseException as error:
            if fail is None:
                raise
            return fail(error)

    return C.CFUNCTYPE(scalars.get(function.result), *chain.from_iterable(given))(wrapper)


def _argument(kind: str, values: Iterator[Any]) -> Any:
    if kind not in ELEMENT:
        return next(values)
    return array_of_memref(next(values), next(values), ELEMENT[kind])


def summary(array: Array) -> str:
    """Shape, dtype and a few numbers that tell two contents apart."""
    wide = array.astype(np.float64)
    shape = "x".join(map(str, array.shape))
    if array.size == 0:
        return f"{array.dtype.name}[{shape}], empty"
    return (
        f"{array.dtype.name}[{shape}], mean {wide.mean():.6g}, norm {np.linalg.norm(wide):.6g}, "
        f"min {wide.min():.6g}, max {wide.max():.6g}"
    )


def _pair(got: Array, expected: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Both as f32, the elements that both have."""
    left, right = (a.ravel().astype(np.float32) for a in (got, expected))
    count = min(left.size, right.size)
    return left[:count], right[:count]


def _far(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(left - right) > np.float32(1e-4) + np.float32(1e-3) * np.abs(right)


def _cast(values: Any, dtype: np.dtype[Any]) -> Array:
    return np.asarray(values).astype(dtype)


def _digest(a: Array) -> bytes:
    """Of the bytes of all elements, in order."""
    return hashlib.sha256(np.ascontiguousarray(a).view(np.uint8).data).digest()


def _list(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values)


def _nested(a: Array, rank: int) -> Iterator[str]:
    """The data of a memref as nested brackets; rows after the first are indented by their depth."""
    if a.ndim == 0:
        yield _number(a.item())
        return
    gap = " " * (rank - a.ndim + 1)
    if a.ndim == 1:
        yield "[" + f", {gap}".join(_numbers(a)) + "]"
        return
    yield "["
    for i, row in enumerate(a):
        if i:
            yield f", \n{gap}"
        yield from _nested(row, rank)
    yield "]"


def _numbers(a: Array) -> list[str]:
    return [_number(x) for x in (a.astype(np.float64) if a.dtype.kind not in "iub" else a).tolist()]


def _number(x: Any) -> str:
    return str(int(x)) if isinstance(x, int) else f"{x:g}"
