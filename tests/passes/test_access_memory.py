"""Access analysis: facts of arguments, aliasing, separation, overlap, what stays hidden."""

from __future__ import annotations

import pytest
from xdsl.dialects import gpu

from tilewright.dialects.text import parse_module
from tilewright.passes.access import AccessAnalysis
from tilewright.passes.memory_objects import may_alias, stored_arguments

from .access_ir import analyse, offsets, tile
from .test_access import FORMS, LOAD

STORE_TO = """
  %t = {load}
  %v = xetile.load_tile %t : TILE -> VALUE
  %u = {store}
  xetile.store_tile %v, %u : VALUE, TILE"""


def copy(load: str, store: str, **options: str) -> AccessAnalysis:
    return analyse(STORE_TO.format(load=load, store=store), **options)


def test_aliasing_by_facts():
    same = copy(tile("%A", "%m", 0), tile("%B", "%m", 0))
    load, store = same.accesses
    assert may_alias(load.root, store.root) and not same.read_only(load.root)
    apart = copy(tile("%A", "%m", 0), tile("%B", "%m", 0), facts="[{noalias}, {}, {}]")
    load, store = apart.accesses
    assert not may_alias(load.root, store.root) and apart.read_only(load.root)
    assert not apart.read_only(store.root)


def test_facts_of_arguments():
    facts = "[{align = 64 : i64, div = [16, 32], noalias}, {align = 4 : i64}]"
    analysis = copy(tile("%A", "%m", 0), tile("%B", "%m", 0), facts=facts)
    load, store = analysis.accesses
    assert analysis.facts(load.root) == type(analysis.facts(load.root))(64, (16, 32), True)
    assert analysis.facts(store.root).align == 4 and not analysis.facts(store.root).noalias
    assert analysis.facts(analysis.func.body.block.args[2]).div == ()


@pytest.mark.parametrize(
    ("facts", "divisors"),
    [
        ("[{div = [64, 32]}, {}, {}]", (64, 32)),
        ("[{div = [64, 16]}, {}, {}]", (64, 16)),
        ("[{}, {}, {}]", (1, 1)),
        ("", (1, 1)),
    ],
)
def test_what_divides_extents(facts: str, divisors: tuple[int, int]):
    analysis = analyse(FORMS["carried tile"], facts=facts)
    (load,) = analysis.accesses
    assert tuple(map(analysis.divisor, load.extents)) == divisors
    assert tuple(map(analysis.divisor, load.offsets)) == (64, 32)


def test_what_divides_an_offset_between_tiles():
    analysis = analyse(
        f"""
  %o = arith.addi %m, %c8 : index
  %t = {tile("%A", "%o", 0)}
  %v = {LOAD.format("%t")}""",
        facts="[{div = [64, 64]}, {}, {}]",
    )
    (load,) = analysis.accesses
    assert analysis.divisor(load.offsets[0]) == 8 and analysis.divisor(load.offsets[1]) == 0


def test_slm_and_addresses():
    analysis = analyse(
        """
  %slm = memref.alloc() : memref<64x32xf32, 3>
  %s = xetile.init_tile %slm[0, 0] : memref<64x32xf32, 3>
    -> !xetile.tile<64x32xf32, #xetile.tile_attr<memory_space = 3 : i64>>
  %v = xetile.load_tile %s : !xetile.tile<64x32xf32, #xetile.tile_attr<memory_space = 3 : i64>> -> VALUE
  %p = xetile.init_tile %address[%m, 0], [%M, %K], [%K, 1] : i64 -> TILE
  xetile.store_tile %v, %p : VALUE, TILE
  %a = xetile.init_tile %A[%m, 0], [%M, %K], [%K, 1] : MATRIX -> TILE
  %w = xetile.load_tile %a : TILE -> VALUE""",
        arguments="%address: i64",
        facts="[{noalias}, {noalias}, {noalias}]",
    )
    slm, raw, array = analysis.accesses
    assert slm.memory_space == 3 and not may_alias(slm.root, array.root)
    # What a raw address points to is not known, whatever the arrays promise of each other.
    assert may_alias(raw.root, array.root) and not analysis.read_only(array.root)


def test_foreign_writes_are_seen():
    pure = "  %q = vector.broadcast %c0 : index to vector<4xindex>\n"
    body = FORMS["init in the loop"]
    assert analyse(pure + body).read_only(analyse(body).accesses[0].root) is True
    analysis = analyse(
        "  %f = arith.constant 1.0 : f32\n  memref.store %f, %B[%c0, %c0] : MATRIX\n" + body
    )
    (load,) = analysis.accesses
    assert not analysis.read_only(load.root)
    apart = analyse(
        "  %f = arith.constant 1.0 : f32\n  memref.store %f, %B[%c0, %c0] : MATRIX\n" + body,
        facts="[{noalias}, {}, {}]",
    )
    assert apart.read_only(apart.accesses[0].root)


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("memref.store %f, %B[%c0, %c0] : MATRIX", True),
        ("%z = memref.load %C[%c0, %c0] : MATRIX", True),  # what the kernel stores
        ("%z = memref.load %A[%c0, %c0] : MATRIX", False),
        ("memref.store %f, %slm[%c0] : memref<4xf32, 3>", False),
        ("gpu.barrier", False),
    ],
)
def test_ops_that_separation_cannot_see(line: str, hidden: bool):
    analysis = analyse(
        f"""
  %slm = memref.alloc() : memref<4xf32, 3>
  %f = arith.constant 1.0 : f32
  {line}
  %t = {tile("%C", "%m", "%n")}
  %v = arith.constant dense<0.0> : VALUE
  xetile.store_tile %v, %t : VALUE, TILE""",
        facts="[{noalias}, {noalias}, {noalias}]",
    )
    assert bool(analysis.hidden()) is hidden


def test_a_store_to_one_array_or_another_writes_both():
    analysis = analyse("""
  %flag = arith.cmpi eq, %x, %y : index
  %a = xetile.init_tile %A[0, 0], [%M, %K], [%K, 1] : MATRIX -> TILE
  %b = xetile.init_tile %B[0, 0], [%M, %K], [%K, 1] : MATRIX -> TILE
  %t = arith.select %flag, %a, %b : TILE
  %v = arith.constant dense<0.0> : VALUE
  xetile.store_tile %v, %t : VALUE, TILE""")
    assert not analysis.hidden()
    assert [each.root for each in analysis.accesses] == [*analysis.func.body.block.args[:2]]


def test_views_share_their_root():
    analysis = analyse(
        """
  %flat = memref.reinterpret_cast %A to offset: [0], sizes: [%K], strides: [1]
    : MATRIX to memref<?xf32, strided<[1]>>
  %t = xetile.init_tile %flat[%n], [%K], [1] : ROW -> !xetile.tile<1x32xf32>
  %v = xetile.load_tile %t : !xetile.tile<1x32xf32> -> vector<1x32xf32>"""
    )
    (load,) = analysis.accesses
    assert load.root is analysis.func.body.block.args[0] and load.base is not load.root


@pytest.mark.parametrize(
    ("shift", "overlap"), [((0, 32), False), ((64, 0), False), ((0, 31), True), ((-63, -31), True)]
)
def test_overlap_within_a_workgroup(shift: tuple[int, int], overlap: bool):
    rows, columns = (f"arith.constant {s} : index" for s in shift)
    analysis = analyse(
        f"""
  %dr = {rows}
  %dc = {columns}
  %r = arith.addi %m, %dr : index
  %c = arith.addi %n, %dc : index
"""
        + STORE_TO.format(load=tile("%C", "%m", "%n"), store=tile("%C", "%r", "%c"))
    )
    load, store = analysis.accesses
    assert analysis.may_overlap(load, store, common=analysis.program_ids) is overlap
    # Of any two workgroups, or of one matrix seen with other strides, nothing is known.
    assert analysis.may_overlap(load, store)


@pytest.mark.parametrize(("rows", "overlap"), [(24, False), (25, True)])
def test_tiles_end_with_their_parts(rows: int, overlap: bool):
    """A tile of 64 rows of a part of the array that has fewer touches no row of the next part."""
    analysis = analyse(f"""
  %end = arith.constant {rows} : index
  %next = arith.constant 24 : index
  %t = xetile.init_tile %C[0, %n], [%end, %K], [%K, 1] : MATRIX -> TILE
  %v = xetile.load_tile %t : TILE -> VALUE
  %u = {tile("%C", "%next", "%n")}
  xetile.store_tile %v, %u : VALUE, TILE""")
    load, store = analysis.accesses
    assert analysis.may_overlap(load, store) is overlap
    assert analysis.may_overlap(store, load) is overlap


def test_overlap_of_iterations():
    analysis = analyse(f"""
  scf.for %k = %c0 to %K step %c32 {{
    %t = {tile("%C", "%m", "%k")}
    %v = {LOAD.format("%t")}
    xetile.store_tile %v, %t : VALUE, TILE
    %k1 = arith.addi %k, %c32 : index
    %u = {tile("%C", "%m", "%k1")}
    xetile.prefetch_tile %u : TILE
  }}""")
    load, store, prefetch = analysis.accesses
    loop = load.loops[0]
    now = [*analysis.program_ids, loop.counter]
    assert analysis.may_overlap(load, store, common=now)
    assert not analysis.may_overlap(store, prefetch, common=now)
    assert analysis.may_overlap(store, prefetch, common=analysis.program_ids)
    assert loop.counter in analysis.separated_by(store)


def test_a_tile_of_one_matrix_or_another_is_loaded_of_each():
    analysis = analyse(f"""
  %flag = arith.cmpi eq, %x, %y : index
  %a = {tile("%A", 0, 0)}
  %b = {tile("%B", 0, 0)}
  %t = arith.select %flag, %a, %b : TILE
  %v = {LOAD.format("%t")}""")
    assert [load.root for load in analysis.accesses] == [*analysis.func.body.block.args[:2]]


def test_a_selected_position_depends_on_the_condition():
    analysis = analyse(f"""
  %flag = arith.cmpi eq, %y, %c0 : index
  %a = {tile("%A", 0, 0)}
  %b = {tile("%A", "%m", 0)}
  %t = arith.select %flag, %a, %b : TILE
  %v = {LOAD.format("%t")}""")
    (load,) = analysis.accesses
    assert load.axes == {0, 1} and offsets(load)[1] == "0"


def test_what_is_stored_to_a_selected_array_is_stored_to_either():
    (kernel,) = [op for op in parse_module(SELECTED).walk() if isinstance(op, gpu.FuncOp)]
    assert stored_arguments(kernel) == {0, 1}


SELECTED = """gpu.module @m {
gpu.func @k(%a: memref<8xf32>, %b: memref<8xf32>, %c: memref<8xf32>, %first: i1) kernel {
  %0 = arith.constant 0 : index
  %x = memref.load %c[%0] : memref<8xf32>
  %m = arith.select %first, %a, %b : memref<8xf32>
  memref.store %x, %m[%0] : memref<8xf32>
  gpu.return
}}"""
