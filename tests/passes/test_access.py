"""Access analysis: offsets in every form that a loop can have, and the regions that accesses cover."""

from __future__ import annotations

import pytest

from tests.draws import fresh_rng
from tilewright.passes.access import AccessKind

from .access_ir import analyse, offsets, tile

LOAD = "xetile.load_tile {} : TILE -> VALUE"

# One and the same sequence of loads, written in the ways that users write it.
FORMS = {
    "carried tile": f"""
  %t0 = {tile("%A", "%m", 0)}
  %r = scf.for %k = %c0 to %K step %c32 iter_args(%t = %t0) -> (TILE) {{
    %v = {LOAD.format("%t")}
    %u = xetile.update_tile_offset %t, [0, %c32] : TILE
    scf.yield %u : TILE
  }}""",
    "init in the loop": f"""
  scf.for %k = %c0 to %K step %c32 {{
    %t = {tile("%A", "%m", "%k")}
    %v = {LOAD.format("%t")}
  }}""",
    "counted by one": f"""
  %trips = arith.ceildivui %K, %c32 : index
  scf.for %i = %c0 to %trips step %c1 {{
    %k = arith.muli %i, %c32 : index
    %t = {tile("%A", "%m", "%k")}
    %v = {LOAD.format("%t")}
  }}""",
    "carried offset": f"""
  %r = scf.for %i = %c0 to %K step %c32 iter_args(%k = %c0) -> (index) {{
    %t = {tile("%A", "%m", "%k")}
    %v = {LOAD.format("%t")}
    %next = arith.addi %k, %c32 : index
    scf.yield %next : index
  }}""",
    "affine map": f"""
  %trips = affine.apply affine_map<()[s0] -> (s0 ceildiv 32)> ()[%K]
  scf.for %i = %c0 to %trips step %c1 {{
    %k = affine.apply affine_map<(d0) -> (d0 * 32)> (%i)
    %t = {tile("%A", "%m", "%k")}
    %v = {LOAD.format("%t")}
  }}""",
    "while": f"""
  %r = scf.while (%k = %c0) : (index) -> index {{
    %more = arith.cmpi slt, %k, %K : index
    scf.condition(%more) %k : index
  }} do {{
  ^bb0(%k: index):
    %t = {tile("%A", "%m", "%k")}
    %v = {LOAD.format("%t")}
    %next = arith.addi %k, %c32 : index
    scf.yield %next : index
  }}""",
    "while with a carried tile": f"""
  %t0 = {tile("%A", "%m", 0)}
  %r:2 = scf.while (%k = %c0, %t = %t0) : (index, TILE) -> (index, TILE) {{
    %more = arith.cmpi ugt, %K, %k : index
    scf.condition(%more) %k, %t : index, TILE
  }} do {{
  ^bb0(%k: index, %t: TILE):
    %v = {LOAD.format("%t")}
    %u = xetile.update_tile_offset %t, [0, 32] : TILE
    %next = arith.addi %k, %c32 : index
    scf.yield %next, %u : index, TILE
  }}""",
    "one tile ahead": f"""
  %t0 = {tile("%A", "%m", 0)}
  %t1 = xetile.update_tile_offset %t0, [0, 32] : TILE
  %r:2 = scf.for %k = %c0 to %K step %c32 iter_args(%t = %t0, %ahead = %t1) -> (TILE, TILE) {{
    %v = {LOAD.format("%t")}
    %u = xetile.update_tile_offset %ahead, [0, 32] : TILE
    scf.yield %ahead, %u : TILE, TILE
  }}""",
    "moved in both branches": f"""
  %t0 = {tile("%A", "%m", 0)}
  %flag = arith.cmpi eq, %x, %y : index
  %r = scf.for %k = %c0 to %K step %c32 iter_args(%t = %t0) -> (TILE) {{
    %v = {LOAD.format("%t")}
    %u = scf.if %flag -> (TILE) {{
      %a = xetile.update_tile_offset %t, [0, 32] : TILE
      scf.yield %a : TILE
    }} else {{
      %b = xetile.update_tile_offset %t, [0, 16] : TILE
      %c = xetile.update_tile_offset %b, [0, 16] : TILE
      scf.yield %c : TILE
    }}
    scf.yield %u : TILE
  }}""",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_loop_gives_the_same_offsets(form: str):
    analysis = analyse(FORMS[form])
    (load,) = analysis.accesses
    (loop,) = load.loops
    n = loop.counter.name
    assert load.kind is AccessKind.LOAD
    assert offsets(load) == ["64*pid0", f"32*{n}"]
    assert [str(e) for e in load.step(loop)] == ["0", "32"]
    assert str(loop.trips) == "floordiv(dim(%A, 1) + 31, 32)"
    assert load.axes == {0} and not load.depends_on(analysis.program_id(1))


def test_extents_and_strides_are_those_of_init_tile():
    (load,) = analyse(FORMS["init in the loop"]).accesses
    assert [str(e) for e in load.extents] == ["dim(%A, 0)", "dim(%A, 1)"]
    assert [str(e) for e in load.strides] == ["dim(%A, 1)", "1"]


def test_nested_loops_and_what_stays():
    analysis = analyse(f"""
  scf.for %i = %c0 to %M step %c64 {{
    scf.for %j = %c0 to %K step %c32 {{
      %t = {tile("%A", "%i", 0)}
      %v = {LOAD.format("%t")}
      %u = {tile("%B", "%i", "%j")}
      %w = {LOAD.format("%u")}
    }}
  }}""")
    a, b = analysis.accesses
    outer, inner = a.loops
    assert [l for l in (outer, inner) if not a.depends_on(l)] == [inner]
    assert all(map(b.depends_on, b.loops))
    assert offsets(b) == [f"64*{outer.counter}", f"32*{inner.counter}"]
    assert not a.axes and not b.axes


def test_results_after_a_loop_have_moved_by_its_trips():
    analysis = analyse(f"""
  %t0 = {tile("%A", "%m", 8)}
  %r = scf.for %k = %c8 to %c64 step %c8 iter_args(%t = %t0) -> (TILE) {{
    %u = xetile.update_tile_offset %t, [0, 32] : TILE
    scf.yield %u : TILE
  }}
  %v = {LOAD.format("%r")}""")
    (load,) = analysis.accesses
    assert offsets(load) == ["64*pid0", str(8 + 7 * 32)] and load.loops == ()


def test_grouped_raster_by_division():
    """Row-major order of program ids folded into one: x // 8 and x % 8."""
    analysis = analyse(f"""
  %p = arith.divui %x, %c8 : index
  %q = arith.remui %x, %c8 : index
  %i = arith.muli %p, %c64 : index
  %j = arith.muli %q, %c32 : index
  %t = {tile("%C", "%i", "%j")}
  %v = arith.constant dense<0.0> : VALUE
  xetile.store_tile %v, %t : VALUE, TILE""")
    (store,) = analysis.accesses
    assert offsets(store) == ["64*floordiv(pid0, 8)", "32*mod(pid0, 8)"]
    # Neither coordinate alone tells workgroups apart; the two together do.
    assert analysis.separated_by(store) == {analysis.program_id(0)}


@pytest.mark.parametrize(
    ("row", "column", "separated"),
    [
        ("%m", "%n", {0, 1}),
        ("%m", "0", {0}),
        ("%x", "%n", {1}),  # tiles of neighbours overlap in 63 of 64 rows
        ("0", "0", set()),
    ],
)
def test_stores_of_different_workgroups(row: str, column: str, separated: set[int]):
    analysis = analyse(f"""
  %t = {tile("%C", row, column)}
  %v = arith.constant dense<0.0> : VALUE
  xetile.store_tile %v, %t : VALUE, TILE""")
    (store,) = analysis.accesses
    assert analysis.separated_by(store) == {analysis.program_id(a) for a in separated}


@pytest.mark.parametrize(
    ("trips", "separated"),
    [
        (8, {"pid0", "n0"}),
        # Row 512 is trip 8 of workgroup 0 and trip 0 of workgroup 1: neither tells them apart.
        (9, set()),
    ],
)
def test_mixed_radix_in_one_dimension(trips: int, separated: set[str]):
    analysis = analyse(f"""
  %big = arith.constant 512 : index
  %last = arith.constant {trips} : index
  %base = arith.muli %x, %big : index
  scf.for %i = %c0 to %last step %c1 {{
    %o = arith.muli %i, %c64 : index
    %row = arith.addi %base, %o : index
    %t = {tile("%C", "%row", 0)}
    %v = {LOAD.format("%t")}
  }}""")
    (load,) = analysis.accesses
    assert {s.name for s in analysis.separated_by(load)} == separated


def test_an_overlap_between_neighbours_does_not_spoil_what_is_above():
    """Rows 512*pid0 + n for 8 trips: iterations overlap, workgroups do not."""
    analysis = analyse(f"""
  %big = arith.constant 512 : index
  %base = arith.muli %x, %big : index
  scf.for %i = %c0 to %c8 step %c1 {{
    %row = arith.addi %base, %i : index
    %t = {tile("%C", "%row", 0)}
    %v = {LOAD.format("%t")}
  }}""")
    (load,) = analysis.accesses
    assert analysis.separated_by(load) == {analysis.program_id(0)}


def test_one_dimension_settles_what_another_leaves_open():
    """Rows 64*pid0, columns 32*pid1 + 32*n: with rows apart, columns still collide across pid1."""
    analysis = analyse(f"""
  scf.for %k = %c0 to %K step %c32 {{
    %c = arith.addi %n, %k : index
    %t = {tile("%C", "%m", "%c")}
    %v = {LOAD.format("%t")}
    %d = arith.addi %m, %k : index
    %u = {tile("%C", "%m", "%d")}
    %w = {LOAD.format("%u")}
  }}""")
    both, diagonal = analysis.accesses
    assert analysis.separated_by(both) == {analysis.program_id(0)}
    # Columns 64*pid0 + 32*n: of equal pid0, which the rows settle, n tells the columns apart.
    assert analysis.separated_by(diagonal) == {analysis.program_id(0), diagonal.loops[0].counter}


def test_unknown_values_depend_on_everything_around():
    analysis = analyse(
        f"""
  scf.for %k = %c0 to %K step %c32 {{
    %o = memref.load %I[%k] : memref<?xindex, strided<[1]>>
    %t = {tile("%A", "%o", "%k")}
    %v = {LOAD.format("%t")}
  }}""",
        arguments="%I: memref<?xindex, strided<[1]>>",
    )
    (load,) = analysis.accesses
    assert load.axes == {0, 1, 2} and load.depends_on(load.loops[0])
    assert load.step(load.loops[0])[0] is None and str(load.step(load.loops[0])[1]) == "32"


def test_scalar_arguments_are_fixed_symbols():
    analysis = analyse(
        f"""
  %o = arith.addi %start, %m : index
  %t = {tile("%A", "%o", 0)}
  %v = {LOAD.format("%t")}""",
        arguments="%start: index",
    )
    (load,) = analysis.accesses
    assert offsets(load) == ["64*pid0 + %start", "0"] and load.axes == {0}


def test_narrow_arithmetic_may_wrap():
    body = f"""
  %w = arith.muli %s, %s {{FLAGS}} : i32
  %o = arith.index_cast %w : i32 to index
  %t = {tile("%A", "%o", 0)}
  %v = {LOAD.format("%t")}"""
    wraps = analyse(body.replace("{FLAGS}", ""), arguments="%s: i32").accesses[0]
    exact = analyse(body.replace("{FLAGS}", "overflow<nsw>"), arguments="%s: i32").accesses[0]
    assert offsets(wraps)[0] == "mul(%s, %s)" and offsets(exact)[0] == "%s*%s"


def test_batch_dimensions_and_rows():
    analysis = analyse(
        """
  %z = gpu.block_id z
  %N = memref.dim %D, %c0 : memref<?x?x?xf32, strided<[?, ?, 1]>>
  %t = xetile.init_tile %D[%z, %m, 0], [%N, %M, %K], [%K, %K, 1]
    : memref<?x?x?xf32, strided<[?, ?, 1]>> -> TILE
  %u = xetile.update_tile_offset %t, [%c8, 16] : TILE
  %v = xetile.load_tile %u : TILE -> VALUE
  %r = xetile.init_tile %R[%n], [%K], [1] : ROW -> !xetile.tile<1x32xf32>
  %s = xetile.update_tile_offset %r, [0, 32] : !xetile.tile<1x32xf32>
  %w = xetile.load_tile %s : !xetile.tile<1x32xf32> -> vector<1x32xf32>""",
        arguments="%D: memref<?x?x?xf32, strided<[?, ?, 1]>>, %R: ROW",
    )
    batch, row = analysis.accesses
    assert offsets(batch) == ["pid2", "64*pid0 + 8", "16"] and batch.box_shape == (1, 64, 32)
    assert offsets(row) == ["0", "32*pid1 + 32"] and str(row.extents[0]) == "1"
    assert analysis.separated_by(batch) == {analysis.program_id(0), analysis.program_id(2)}


def test_static_memrefs_carry_their_sizes():
    analysis = analyse(
        """
  %t = xetile.init_tile %S[%m, 0] : memref<256x32xf32> -> TILE
  %v = xetile.load_tile %t : TILE -> VALUE
  %q = arith.minui %x, %c1 : index
  %o = arith.muli %q, %c64 : index
  %u = xetile.init_tile %S[%o, 0] : memref<256x32xf32> -> TILE
  %w = xetile.load_tile %u : TILE -> VALUE""",
        arguments="%S: memref<256x32xf32>",
    )
    free, bounded = analysis.accesses
    assert [e.constant for e in free.extents] == [256, 32]
    assert [e.constant for e in free.strides] == [32, 1]
    # pid0 has no bound of its own; min(pid0, 1) has.
    assert [each.offsets[0].range() for each in (free, bounded)] == [(0, None), (0, 64)]


def test_scattered_accesses_know_what_they_depend_on():
    analysis = analyse(
        """
  %step = vector.step : vector<32xindex>
  %b = vector.broadcast %n : index to vector<32xindex>
  %idx = arith.addi %step, %b : vector<32xindex>
  %t = xetile.init_tile %R, %idx : ROW, vector<32xindex>
    -> !xetile.tile<32xf32, #xetile.tile_attr<scattered = true>>
  %mask = arith.constant dense<true> : vector<32xi1>
  %v = xetile.load %t, %mask : !xetile.tile<32xf32, #xetile.tile_attr<scattered = true>>, vector<32xi1>
    -> vector<32xf32>""",
        arguments="%R: ROW",
    )
    (gather,) = analysis.accesses
    assert gather.scattered and gather.axes == {1} and gather.offsets == ()
    assert analysis.separated_by(gather) == frozenset()


@pytest.mark.parametrize("form", FORMS)
def test_offsets_are_those_of_an_execution(form: str):
    """Evaluate the expressions for numbers and compare with running the loop by hand."""
    analysis = analyse(FORMS[form])
    (load,) = analysis.accesses
    loop = load.loops[0]
    rng = fresh_rng()
    pid, k = int(rng.integers(0, 9)), int(rng.integers(1, 400))
    print(f"pid0 = {pid}, K = {k}")
    ran = [(64 * pid, at) for at in range(0, k, 32)]

    def number(expr, n: int) -> int:
        """An expression whose symbols are the loop's, program id 0 and the extent K."""
        total = 0
        for monomial, factor in expr.terms.items():
            for symbol in monomial:
                if symbol is loop.counter:
                    factor *= n
                elif symbol is analysis.program_id(0):
                    factor *= pid
                elif symbol.name.startswith("floordiv"):
                    factor *= number(symbol.args[0], n) // number(symbol.args[1], n)
                else:
                    assert symbol.name == "dim(%A, 1)"
                    factor *= k
            total += factor
        return total

    assert loop.trips is not None
    trips = number(loop.trips, 0)
    assert [tuple(number(e, n) for e in load.offsets) for n in range(trips)] == ran


@pytest.mark.parametrize("loop", ["for", "while"])
def test_what_a_loop_leaves_depends_on_how_often_it_ran(loop: str):
    """Of two tiles the one that a loop of %y trips leaves: none of them knows %y, their choice does."""
    head = f"%t0 = {tile('%A', '%m', 0)}\n%t1 = {tile('%A', '%m', '%c8')}\n"
    loops = {
        "for": """
  %r = scf.for %k = %c0 to %y step %c1 iter_args(%t = %t0) -> (TILE) {
    scf.yield %t1 : TILE
  }
  %v = LOAD %r : TILE -> VALUE""",
        "while": """
  %r:2 = scf.while (%k = %c0, %t = %t0) : (index, TILE) -> (index, TILE) {
    %more = arith.cmpi ult, %k, %y : index
    scf.condition(%more) %k, %t : index, TILE
  } do {
  ^bb0(%k: index, %t: TILE):
    %next = arith.addi %k, %c1 : index
    scf.yield %next, %t1 : index, TILE
  }
  %v = LOAD %r#1 : TILE -> VALUE""",
    }
    analysis = analyse(head + loops[loop].replace("LOAD", "xetile.load_tile"))
    (access,) = analysis.accesses
    assert access.depends_on(analysis.program_id(0)) and access.depends_on(analysis.program_id(1))
