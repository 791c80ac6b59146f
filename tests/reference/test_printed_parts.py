"""A part of a memref is printed with the base and the offset that MLIR's library says."""

from __future__ import annotations

import ctypes as C

import numpy as np

from tilewright.arguments import array_of_memref
from tilewright.reference.mlir_runner import Runner


def test_a_part_of_a_memref_says_where_it_begins() -> None:
    whole, runner, text = np.arange(22, dtype=np.float32), Runner(), list[str]()
    runner.write = text.append
    at = whole.ctypes.data
    words = (C.c_int64 * 7)(at, at, 7, 2, 3, 10, 2)  # allocated, aligned, offset, sizes, strides
    runner.print_memref(array_of_memref(2, C.addressof(words), whole.dtype))
    head, *rows = "".join(text).split("\n")
    assert head.startswith(f"Unranked Memref base@ = {at:#x} rank = 2 offset = 7 sizes = [2, 3] ")
    assert rows == ["[[7,   9,   11], ", " [17,   19,   21]]", ""]
