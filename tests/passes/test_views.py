"""fold-views: which tiles of parts become tiles of arrays (`tests/acceptance/test_parts.py`: the elements stay)."""

from __future__ import annotations

import pytest

from tests.texts import parse_module
from tilewright.dialects.text import print_module
from tilewright.passes.carry_offsets import carry_offsets
from tilewright.passes.kernel import kernel_of
from tilewright.passes.views import fold_views

PROGRAM = """
gpu.module @m {{
  gpu.func @k(%A: memref<?x?xf32, strided<[?, 1]>>, %r: index, %n: index) kernel {{
    %base, %offset, %sizes:2, %strides:2 = memref.extract_strided_metadata %A : memref<?x?xf32, strided<[?, 1]>>
        -> memref<f32>, index, index, index, index, index
    %p = gpu.block_id x
    %i = arith.muli %p, %c8 : index
    %w = memref.subview %A[%r, 4] [%n, %sizes#1] [1, 1]
        : memref<?x?xf32, strided<[?, 1]>> to memref<?x?xf32, strided<[?, 1], offset: ?>>
    {body}
    gpu.return
  }}
}}
"""
TYPE = "memref<?x?xf32, strided<[?, 1], offset: ?>> -> !xetile.tile<8x16xf32>"
MOVED = """%v = memref.subview %w[%r, %r] [%n, %n] [1, 1]
        : memref<?x?xf32, strided<[?, 1], offset: ?>> to memref<?x?xf32, strided<[?, 1], offset: ?>>"""


def folded(body: str) -> str:
    module = parse_module(PROGRAM.format(body=body), "kernel.mlir")
    carry_offsets(kernel_of(module))
    fold_views(kernel_of(module))
    module.verify()
    return print_module(module)


def loaded(at: str, base: str = "%w", more: str = "") -> str:
    return f"""%t = xetile.init_tile {base}[{at}], [%n, %n], [%strides#0, 1] : {TYPE}
    %x = xetile.load_tile %t : !xetile.tile<8x16xf32> -> vector<8x16xf32>
    {more}"""


@pytest.mark.parametrize("at", ["0, 0", "%i, 16", "%i, %i"])
def test_a_part_that_tiles_begin_in(at: str) -> None:
    text = folded(loaded(at))
    assert "subview" not in text and "xetile.init_tile %A[" in text


def test_a_part_of_a_part() -> None:
    assert "subview" not in folded(MOVED + "\n" + loaded("%i, 0", "%v"))


@pytest.mark.parametrize("at", ["-1, 0", "0, %r"])
def test_a_part_that_a_tile_may_begin_before_stays(at: str) -> None:
    """%r is any number: a tile at -1 of the part must not read the array's element there."""
    assert folded(loaded(at)).count("memref.subview") == 1


def test_a_tile_that_moves_back_counts() -> None:
    back = """%u = xetile.update_tile_offset %t, [-8, 0] : !xetile.tile<8x16xf32>
    %y = xetile.load_tile %u : !xetile.tile<8x16xf32> -> vector<8x16xf32>"""
    assert "memref.subview" in folded(loaded("0, 0", more=back))
    assert "memref.subview" not in folded(loaded("8, 0", more=back))


def test_a_part_that_is_used_otherwise_stays() -> None:
    use = f"{loaded('0, 0')}\n    %y = memref.load %w[%c0, %c1] : memref<?x?xf32, strided<[?, 1], offset: ?>>"
    assert "memref.subview" in folded(use)


ARENA = """gpu.module @m { gpu.func @k(%a: memref<8x16xf32>, %o: memref<8x16xf32>) kernel {
  %m = memref.alloc() {alignment = 1024 : i64} : memref<1024xi8, 3>
  %at = arith.constant AT : index
  %x = memref.view %m[%c0][] : memref<1024xi8, 3> to memref<8x16xf32, 3>
  %y = memref.view %m[%at][] : memref<1024xi8, 3> to memref<16x8xf32, 3>
  %one = arith.constant 1.0 : f32
  memref.store %one, %x[%c0, %c0] : memref<8x16xf32, 3>
  memref.store %one, %y[%c0, %c0] : memref<16x8xf32, 3>
  memref.dealloc %m : memref<1024xi8, 3>
  gpu.return } }"""


@pytest.mark.parametrize(("at", "apart"), [(512, True), (256, False)])
def test_views_of_bytes_are_arrays_where_they_lie_apart(at: int, apart: bool) -> None:
    module = parse_module(ARENA.replace("AT", str(at)))
    carry_offsets(kernel_of(module))
    fold_views(kernel_of(module))
    module.verify()
    text = print_module(module)
    assert ("memref.view" not in text) is apart and "dealloc" not in text
    assert text.count("memref.alloc()") == 1 + apart
    assert ("{alignment = 512 : i64} : memref<16x8xf32, 3>" in text) is apart
