"""What tells whether the arguments of a launch look as they did: a key of all that it depends on, and the same for
native code (`repeat.py`).

Of a numpy array all that matters stands in a few words of its object. An object that is no array, and cannot change, is
told by its address. Of tensors one call tells: PyTorch's own guard, where it has one.

Reading type, shape, strides, dtype and device of a few tensors costs microseconds in Python. Dynamo
checks the same in C++ before it runs compiled code (`TensorGuards`, not a public name): where this
torch has it and it works as expected here, launches use it, else they read attribute by attribute.
"""

from __future__ import annotations

import ctypes as C
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np

from tilewright.dtypes import DType
from tilewright.runtime.arrays import data_of, tensor_types

Seen: TypeAlias = tuple[Callable[..., bool] | None, Callable[[], None], object, int, Any]
"""A launch that was bound: check of its tensors (None without any), the launch, the launcher's epoch when it was bound,
and memory that holds `number of words, word, ...` (i64): its place, and what it and the words need. Native code reads
it (`repeat.py`)."""


class NumpyArray(C.Structure):
    """PyArrayObject, as far as the layout of an array goes."""

    _fields_ = (
        ("head", C.c_char * object.__basicsize__),
        ("data", C.c_ssize_t),
        ("rank", C.c_int),
        ("shape", C.POINTER(C.c_ssize_t)),
        ("strides", C.POINTER(C.c_ssize_t)),
        ("base", C.c_void_p),
        ("dtype", C.c_ssize_t),
        ("flags", C.c_int),
    )


WRITEABLE = 0x400
"""Of the flags."""


def array_words(x: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """All of an array that a launch depends on. The dtype is told by its address: it must live on."""
    facts = x.ndim | (WRITEABLE if x.flags.writeable else 0)
    return x.ctypes.data, facts, id(x.dtype), *x.shape, *x.strides


@cache
def arrays_are_known() -> bool:
    """Do numpy's arrays look as `NumpyArray` says?"""
    array = np.empty((2, 6), np.int16)[:, ::2]
    array.flags.writeable = False
    x = NumpyArray.from_address(id(array))
    known = (x.data, x.rank | x.flags & WRITEABLE, x.dtype) == array_words(array)[:3]
    return known and (*x.shape[:2], *x.strides[:2]) == array_words(array)[3:]


def words_of(args: Sequence[Any], tensors: frozenset[Any]) -> tuple[list[int], list[Any]] | None:
    """What native code reads of arguments, and objects that must live on with it; None where it cannot. What is neither
    array nor tensor cannot change."""
    words: list[int] = []
    held: list[Any] = []
    for x in args:
        if type(x) is np.ndarray:
            if not arrays_are_known():
                return None
            words += array_words(x)
            held.append(x.dtype)
        elif type(x) in tensors:
            words.append(x.data_ptr())
        else:
            words.append(id(x))
            held.append(x)
    return words, held


NONE: Mapping[str, Any] = {}
"""No arguments by name."""

TENSORS: list[frozenset[Any]] = [frozenset()]
"""torch's tensor types, once torch is loaded."""


def _find_tensor_types() -> frozenset[Any]:
    TENSORS[0] = tensor_types()
    return TENSORS[0]


def exact_key(args: tuple[Any, ...], kwargs: Mapping[str, Any] = NONE) -> Any:
    """A key of everything that a launch on arrays and numbers depends on but its grid, addresses included.

    None for a call with anything else, or with a tensor without address or strides. An address names its
    device too (addresses are unified), and strides follow from the shape where a tensor is contiguous.
    """
    tensors = TENSORS[0] or _find_tensor_types()
    key: list[Any] = [*kwargs]
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is np.ndarray:
            key += (value.dtype, value.shape, value.strides, value.flags.writeable, data_of(value))
        elif kind in tensors:
            try:
                if value.is_neg():  # also of what is no view: in inference mode nothing is
                    return None
                dense = value.is_contiguous() or value.stride()
                key += (value.data_ptr(), value.shape, value.dtype, dense)
            except RuntimeError:  # it has no address or no strides
                return None
        elif kind is int or kind is bool:
            key += (kind, value)
        elif kind is float:
            key += (kind, value.hex())
        elif kind in _NAMES:
            key += (kind, value)
        else:
            return None
    return tuple(key)


_NAMES = frozenset({str, DType, type(None), FunctionType})
"""Types of constexprs that are equal only when they mean the same."""


def key_of(words: Sequence[int]) -> bytes:
    return struct.pack(f"{len(words)}q", *words)


def seen(
    check: Callable[..., bool] | None,
    run: Callable[[], None],
    epoch: object,
    words: Sequence[int],
    held: Sequence[Any] = (),
) -> Seen:
    memory = (C.c_int64 * (len(words) + 1))(len(words), *words)
    return check, run, epoch, C.addressof(memory), (memory, held)


@cache
def _guard_type() -> Any:
    """The class, tried on two tensors; None where there is none or it does something else."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    try:
        kind = torch._C._dynamo.guards.TensorGuards
        x, y = torch.zeros(4, 6), torch.zeros(6)
        check = _make(kind, [x, y])
        other = (
            (x.T.contiguous(), y), (x.double(), y), (x[:, ::2], y), (x.t(), y),
            (torch._neg_view(x), y), (x, y[::2]), (torch.zeros(4, 12)[:, ::2], y), (x, None),
        )  # fmt: skip
        good = check(x, y) is True and check(torch.ones(4, 6), torch.ones(6)) is True
        return kind if good and not any(check(*o) for o in other) else None
    except (AttributeError, TypeError, RuntimeError, ImportError):
        return None


def _make(kind: Any, tensors: Sequence[Any]) -> Callable[..., bool]:
    # None in these lists would let a dimension vary.
    sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
    return kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def guard(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """check(*others): are these of the types, devices, dtypes, shapes and strides of `tensors`?

    None where torch has no such check. It may say no to some that are alike.
    """
    kind = _guard_type()
    if kind is None:
        return None
    try:
        check = _make(kind, tensors)
        return check if check(*tensors) else None
    except (AttributeError, TypeError, RuntimeError):
        return None
