"""Arrays whose packed forms outlive the launches that make them.

A target that packs an operand before its workgroups start (docs/cpu-target.md) does so in every launch, because nobody
says that the array is the same as before. `tw.prepack` says so: the first launch that packs the array keeps its panels,
and those that follow read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

from tilewright import forks
from tilewright.frozen import record


class Memory(Protocol):
    """Bytes that a form takes."""

    address: int
    size: int


@record
class Form:
    """One way in which an array is packed."""

    memory: Memory
    filled: bool = False


class Prepacked:
    """An array that does not change while this lives, and its packed forms. Launches are given the array itself."""

    def __init__(self, array: Any):
        self.array = array
        self._forms: dict[Any, Form] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that the packed forms take, beside the array's own: 0 until a launch packs it."""
        return sum(form.memory.size for form in self._forms.values())

    def update(self) -> None:
        """To be called when elements of the array have changed: the next launch packs them again."""
        with _lock:  # new forms: a launch that runs meanwhile has not seen the change
            self._forms = {key: Form(form.memory) for key, form in self._forms.items()}

    def form(self, key: Any, size: int, allocate: Callable[[int], Memory]) -> Form:
        """The form of a key, of `size` bytes."""
        with _lock:
            found = self._forms.get((key, size))
            if found is None:
                found = self._forms[key, size] = Form(allocate(size))
            return found

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.array.shape))
        return f"<prepacked {shape}, {len(self._forms)} forms of {self.nbytes} bytes>"


def keep(array: Any, pointer: int, shape: Sequence[int], strides: Sequence[int]) -> Prepacked:
    """Keeps the packed forms of an array, which lies there, as long as the result lives."""
    key = _key(pointer, shape, strides)
    with _lock:
        found = ARRAYS.get(key)
        if found is None:
            found = ARRAYS[key] = Prepacked(array)
        return found


def array_of(pointer: int, shape: Sequence[int], strides: Sequence[int]) -> Prepacked | None:
    """The array that has these very elements, in whatever order a view names them."""
    return ARRAYS.get(_key(pointer, shape, strides))


def _key(pointer: int, shape: Sequence[int], strides: Sequence[int]) -> Any:
    steps = sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1)
    return pointer, *steps


ARRAYS: WeakValueDictionary[Any, Prepacked] = WeakValueDictionary()
"""What is kept, by address, strides and extents."""
_lock = forks.lock()
