"""split-workgroups: more programs with smaller tiles; what cannot be split is left alone."""

from __future__ import annotations

from xdsl.dialects import gpu

from tests.texts import parse_module
from tilewright.dialects.text import print_module
from tilewright.passes.split_workgroups import choices, split

FACTS = "{align = 16 : i64, div = [16 : i64, 16 : i64], noalias}"


def kernel(body: str) -> gpu.FuncOp:
    text = f"""
    gpu.module @m {{
      gpu.func @k(%A: memref<?x?xf32, strided<[?, 1]>>, %B: memref<?x?xf32, strided<[?, 1]>>)
          kernel attributes {{tilewright.level = "workgroup", tilewright.args = [{FACTS}, {FACTS}]}} {{
        %h = memref.dim %A, %c0 : memref<?x?xf32, strided<[?, 1]>>
        %w = memref.dim %A, %c1 : memref<?x?xf32, strided<[?, 1]>>
        %id = gpu.block_id x
        %m = arith.muli %id, %c64 : index
        %a = xetile.init_tile %A[%m, 0], [%h, %w], [%w, 1]
          : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<64x32xf32>
        %x = xetile.load_tile %a : !xetile.tile<64x32xf32> -> vector<64x32xf32>
        {body}
        gpu.return
      }}
    }}"""
    module = parse_module(text, "k.mlir")
    return next(op for op in module.walk() if isinstance(op, gpu.FuncOp))


STORE = """
        %b = xetile.init_tile %B[%m, 0], [%h, %w], [%w, 1]
          : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<64x32xf32>
        xetile.store_tile %y, %b : vector<64x32xf32>, !xetile.tile<64x32xf32>"""

SOFTMAX = (
    """
        %s = xetile.reduction <add>, %x [1] : vector<64x32xf32> -> vector<64x1xf32>
        %t = xetile.broadcast %s [1] : vector<64x1xf32> -> vector<64x32xf32>
        %y = arith.divf %x, %t : vector<64x32xf32>"""
    + STORE
)


def extents(function: gpu.FuncOp) -> list[tuple[int, bool]]:
    """(extent, is it the rows) of every axis that can be split."""
    found = choices(function)
    return [(c.extent, any(d == 0 for _, d in c.members)) for c in found]


def test_rows_of_a_reduction_along_columns_are_apart():
    function = kernel(SOFTMAX)
    assert extents(function) == [(64, True)]
    (choice,) = choices(function)
    split(function, choice, 4)
    function.verify()
    parent = function.parent_op()
    assert parent is not None
    text = print_module(parent.parent_op(), readable=True)  # pyright: ignore
    assert "64x" not in text.split("gpu.func")[1]
    assert "vector<16x32xf32>" in text and "vector<16x1xf32>" in text
    assert text.count("arith.divui") == 1 and text.count("arith.remui") == 1


def test_elementwise_work_splits_either_way():
    function = kernel("%y = arith.addf %x, %x : vector<64x32xf32>" + STORE)
    assert sorted(extents(function)) == [(32, False), (64, True)]


def test_what_meets_or_is_stored_once_is_not_split():
    whole = """
        %r = xetile.reduction <add>, %x [0, 1] : vector<64x32xf32> -> vector<1x1xf32>
        %b = xetile.init_tile %B[%m, 0], [%h, %w], [%w, 1]
          : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<1x1xf32>
        xetile.store_tile %r, %b : vector<1x1xf32>, !xetile.tile<1x1xf32>"""
    assert extents(kernel(whole)) == []


AGAIN = """
        %at = arith.addi %m, %SHIFT : index
        %b = xetile.init_tile %A[%at, 0], [%h, %w], [%w, 1]
          : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<64x32xf32>
        xetile.store_tile %y, %b : vector<64x32xf32>, !xetile.tile<64x32xf32>"""


def test_a_part_may_store_what_it_alone_has_loaded():
    add = "%y = arith.addf %x, %x : vector<64x32xf32>"
    assert sorted(extents(kernel(add + AGAIN.replace("SHIFT", "c0")))) == [(32, False), (64, True)]
    assert extents(kernel(add + AGAIN.replace("SHIFT", "c32"))) == []
    assert extents(kernel(add + AGAIN.replace("SHIFT", "c64"))) != []  # of another workgroup


SQUARE = """
        %s = xetile.init_tile %B[%m, 0], [%h, %w], [%w, 1]
          : memref<?x?xf32, strided<[?, 1]>> -> !xetile.tile<32x32xf32>
        %v = xetile.load_tile %s : !xetile.tile<32x32xf32> -> vector<32x32xf32>
        %t = xetile.transpose %v, [1, 0] : vector<32x32xf32> -> vector<32x32xf32>
        %y = arith.addf %v, %OTHER : vector<32x32xf32>
        xetile.store_tile %y, %s : vector<32x32xf32>, !xetile.tile<32x32xf32>"""


def test_rows_that_meet_columns_are_not_apart():
    """A matrix and the same transposed: parts of both dimensions would leave out half of it."""
    assert extents(kernel(SQUARE.replace("OTHER", "t"))) == []
    assert len(extents(kernel(SQUARE.replace("OTHER", "v")))) == 2
