# ruff: noqa: E501
"""What lanes tell each other, and scattered memory: shuffles, reductions, gathers, atomics."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.emu.agree import agree, lane_kernel, subgroup_kernel
from tests.targets.emu.test_blocks import NUMPY, array

ID = """
  %lane = gpu.lane_id
  %sg = gpu.subgroup_id
  %i = arith.index_cast %lane : index to i32
  %all = arith.constant true
"""


@pytest.mark.parametrize("mode", ["xor", "up", "down", "idx", "rotate"])
@pytest.mark.parametrize(("width", "lanes"), [(16, 16), (4, 16), (8, 8)])
@pytest.mark.parametrize("element", ["f32", "f16", "i64"])
def test_shuffles(rng, mode, width, lanes, element):
    """By a constant, by what a lane says; values and whether they came."""
    body = (
        ID
        + f"""
  %w = arith.constant {width} : i32
  %three = arith.constant 3 : i32
  %x = memref.load %a[%lane] : memref<{lanes}x{element}>
  %k = memref.load %by[%lane] : memref<{lanes}xi32>
  %p, %pv = gpu.shuffle {mode} %x, %three, %w : {element}
  %q, %qv = gpu.shuffle {mode} %x, %k, %w : {element}
  %pi = arith.extui %pv : i1 to i32
  %qi = arith.extui %qv : i1 to i32
  memref.store %p, %o[%c0, %lane] : memref<2x{lanes}x{element}>
  memref.store %q, %o[%c1, %lane] : memref<2x{lanes}x{element}>
  memref.store %pi, %v[%c0, %lane] : memref<2x{lanes}xi32>
  memref.store %qi, %v[%c1, %lane] : memref<2x{lanes}xi32>"""
    )
    args = f"%a: memref<{lanes}x{element}>, %by: memref<{lanes}xi32>, %o: memref<2x{lanes}x{element}>, %v: memref<2x{lanes}xi32>"
    dtype = np.dtype(NUMPY.get(element, np.int64))
    by = rng.integers(0, width, lanes).astype(np.int32)
    a = (100 * rng.standard_normal(lanes)).astype(dtype)
    arrays = [a, by, np.zeros((2, lanes), dtype), np.full((2, lanes), -1, np.int32)]
    agree(lane_kernel(args, body, lanes=lanes), arrays)


@pytest.mark.parametrize(("size", "stride"), [(4, 1), (4, 2), (2, 8), (16, 1)])
def test_clusters_of_lanes(rng, size, stride):
    body = (
        ID
        + f"""
  %x = memref.load %a[%lane] : memref<16xf32>
  %r = gpu.subgroup_reduce add %x cluster(size = {size}, stride = {stride}) : (f32) -> f32
  memref.store %r, %o[%lane] : memref<16xf32>"""
    )
    args = "%a: memref<16xf32>, %o: memref<16xf32>"
    # Whole numbers, whose sums do not depend on their order.
    whole = rng.integers(-99, 100, 16).astype(np.float32)
    a, o = agree(lane_kernel(args, body), [whole, array(rng, "f32", 16)])
    together = a.astype(np.float64).reshape(-1, size, stride).sum(axis=1, keepdims=True)
    expected = np.broadcast_to(together, (16 // size // stride, size, stride)).reshape(16)
    np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-5)


KINDS = {
    "f32": ("add", "mul", "minimumf", "maxnumf"),
    "f16": ("add", "maximumf"),
    "i32": ("add", "minsi", "maxui", "and", "or", "xor"),
}


@pytest.mark.parametrize(("element", "kind"), [(e, k) for e, ks in KINDS.items() for k in ks])
def test_reductions_over_the_subgroup(rng, element, kind):
    body = (
        ID
        + f"""
  %x = memref.load %a[%sg, %lane] : memref<2x16x{element}>
  %r = gpu.subgroup_reduce {kind} %x : ({element}) -> {element}
  memref.store %r, %o[%sg, %lane] : memref<2x16x{element}>"""
    )
    args = f"%a: memref<2x16x{element}>, %o: memref<2x16x{element}>"
    arrays = [array(rng, element, 2, 16), array(rng, element, 2, 16)]
    agree(lane_kernel(args, body, subgroups=2), arrays, limit=1e-3 if element == "f16" else 1e-5)


def test_shuffles_and_reductions_of_fragments(rng):
    """A row sum as the lowering makes it: a butterfly of shuffles on a lane's vector."""
    steps = "\n".join(
        f"  %o{k} = arith.constant {k} : i32\n"
        f"  %s{k}, %v{k} = gpu.shuffle xor %x{k}, %o{k}, %w : vector<8xf32>\n"
        f"  %x{2 * k} = arith.addf %x{k}, %s{k} : vector<8xf32>"
        for k in (1, 2, 4, 8)
    )
    body = (
        ID
        + f"""
  %w = arith.constant 16 : i32
  %t = xegpu.create_nd_tdesc %a : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  %x1 = xegpu.load_nd %t[0, 0] : !xegpu.tensor_desc<8x16xf32> -> vector<8xf32>
{steps}
  %m = gpu.subgroup_reduce maximumf %x1 : (vector<8xf32>) -> vector<8xf32>
  %r = arith.addf %x16, %m : vector<8xf32>
  %to = xegpu.create_nd_tdesc %o : memref<8x16xf32> -> !xegpu.tensor_desc<8x16xf32>
  xegpu.store_nd %r, %to[0, 0] : vector<8xf32>, !xegpu.tensor_desc<8x16xf32>"""
    )
    args = "%a: memref<8x16xf32>, %o: memref<8x16xf32>"
    agree(lane_kernel(args, body), [array(rng, "f32", 8, 16), array(rng, "f32", 8, 16)], limit=1e-5)


@pytest.mark.parametrize("element", ["f32", "f16", "i8", "i32"])
@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("form", ["address", "memref", "descriptor", "descriptor of all lanes"])
def test_scattered_accesses_of_lanes(rng, element, chunk, form):
    """Masked, out of order, partly outside of the array; the lanes that load nothing store nothing."""
    n = 16 * chunk
    value = f"vector<{chunk}x{element}>" if chunk > 1 else element
    size = f" <{{chunk_size = {chunk} : i64}}>" if chunk > 1 and not form.startswith("desc") else ""
    attr = f"#xegpu.scatter_tdesc_attr<chunk_size = {chunk} : i64>"
    lines = [
        ID,
        """
  %off = memref.load %by[%lane] : memref<16xindex>
  %m = memref.load %mask[%lane] : memref<16xi1>
""",
    ]
    if form == "descriptor of all lanes":
        shape = f"16x{chunk}" if chunk > 1 else "16"
        t = f"!xegpu.tensor_desc<{shape}x{element}, {attr}>"
        value = f"vector<{chunk}x{element}>"
        lines.append(f"""
  %offs = vector.load %by[%c0] : memref<16xindex>, vector<16xindex>
  %ms = vector.load %mask[%c0] : memref<16xi1>, vector<16xi1>
  %t = xegpu.create_tdesc %a, %offs : memref<{n}x{element}>, vector<16xindex> -> {t}
  %u = xegpu.create_tdesc %o, %offs : memref<{n}x{element}>, vector<16xindex> -> {t}
  %v = xegpu.load %t, %ms : {t}, vector<16xi1> -> {value}
  xegpu.store %v, %u, %ms : {value}, {t}, vector<16xi1>""")
    elif form == "descriptor":
        shape = f"1x{chunk}" if chunk > 1 else "1"
        t = f"!xegpu.tensor_desc<{shape}x{element}, {attr}>"
        value = f"vector<{chunk}x{element}>"
        lines.append(f"""
  %offs = vector.broadcast %off : index to vector<1xindex>
  %ms = vector.broadcast %m : i1 to vector<1xi1>
  %d = arith.constant dense<0> : vector<1xindex>
  %t0 = xegpu.create_tdesc %a, %offs : memref<{n}x{element}>, vector<1xindex> -> {t}
  %t = xegpu.update_offset %t0, %d : {t}, vector<1xindex>
  %u = xegpu.create_tdesc %o, %offs : memref<{n}x{element}>, vector<1xindex> -> {t}
  %v = xegpu.load %t, %ms : {t}, vector<1xi1> -> {value}
  xegpu.store %v, %u, %ms : {value}, {t}, vector<1xi1>""")
    else:
        kind = f"memref<{n}x{element}>"
        sources = ("%a", "%o")
        if form == "address":
            for name in "ao":
                lines.append(f"""
  %p{name} = memref.extract_aligned_pointer_as_index %{name} : {kind} -> index
  %q{name} = arith.index_cast %p{name} : index to i64
""")
            kind, sources = "i64", ("%qa", "%qo")
        lines.append(f"""
  %v = xegpu.load {sources[0]}[%off], %m{size} : {kind}, index, i1 -> {value}
  xegpu.store %v, {sources[1]}[%off], %m{size} : {value}, {kind}, index, i1""")
    by = chunk * rng.permutation(16)
    mask = rng.random(16) < 0.7
    if form != "address":
        by[3] = n + 5  # outside: the array's extent is known
    arrays = [array(rng, element, n), by, mask, array(rng, element, n)]
    args = f"%a: memref<{n}x{element}>, %by: memref<16xindex>, %mask: memref<16xi1>, %o: memref<{n}x{element}>"
    agree(lane_kernel(args, "".join(lines)), arrays)


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_scattered_accesses_of_subgroups(rng, chunk, turned):
    if turned and chunk == 1:
        pytest.skip("nothing to turn")
    shape = ("2x16" if turned else "16x2") if chunk > 1 else "16"
    words = [f"chunk_size = {chunk} : i64"] if chunk > 1 else []
    words += ["transpose"] if turned else []
    how = f" <{{{', '.join(words)}}}>" if words else ""
    body = (
        ID
        + f"""
  %offs = vector.load %by[%c0] : memref<16xindex>, vector<16xindex>
  %ms = vector.load %mask[%c0] : memref<16xi1>, vector<16xi1>
  %v = xegpu.load %a[%offs], %ms{how} : memref<32xf32>, vector<16xindex>, vector<16xi1> -> vector<{shape}xf32>
  %w = arith.addf %v, %v : vector<{shape}xf32>
  xegpu.store %w, %o[%offs], %ms{how} : vector<{shape}xf32>, memref<32xf32>, vector<16xindex>, vector<16xi1>"""
    )
    args = "%a: memref<32xf32>, %by: memref<16xindex>, %mask: memref<16xi1>, %o: memref<32xf32>"
    arrays = [
        array(rng, "f32", 32),
        chunk * rng.permutation(16),
        rng.random(16) < 0.7,
        array(rng, "f32", 32),
    ]
    agree(subgroup_kernel(args, body), arrays)


@pytest.mark.parametrize(
    ("element", "kind"),
    [
        ("f32", "addf"),
        ("f16", "addf"),
        ("bf16", "maximumf"),
        ("i32", "addi"),
        ("i32", "maxs"),
        ("i64", "andi"),
        ("f32", "mulf"),
        ("i8", "muli"),
    ],
)
def test_atomics_meet_at_one_place(rng, element, kind):
    """Many lanes of many subgroups and workgroups; the old values are those of some order."""
    body = (
        ID
        + f"""
  %b = gpu.block_id x
  %x = memref.load %a[%lane] : memref<16x{element}>
  %off = memref.load %by[%lane] : memref<16xindex>
  %m = memref.load %mask[%lane] : memref<16xi1>
  %old = xegpu.atomic_rmw {kind} %o[%off], %m, %x : memref<4x{element}>, index, i1, {element} -> {element}"""
    )
    args = f"%a: memref<16x{element}>, %by: memref<16xindex>, %mask: memref<16xi1>, %o: memref<4x{element}>"
    dtype = np.dtype(NUMPY.get(element, np.int64))
    a = rng.integers(1, 4, 16).astype(dtype)
    o = rng.integers(1, 4, 4).astype(dtype)
    if kind in ("maximumf", "maxs", "andi"):  # so that something changes
        o[:] = -1
    if kind == "mulf":
        a[:] = 2
    arrays = [a, rng.integers(0, 4, 16), rng.random(16) < 0.8, o]
    subgroups = 1 if "mul" in kind else 2
    module = lane_kernel(args, body, subgroups=subgroups)
    agree(module, arrays, (3, 1, 1), limit=1e-2 if element == "bf16" else 1e-6)


def test_atomics_of_arrays(rng):
    body = (
        ID
        + """
  %f = memref.load %a[%lane] : memref<16xf32>
  %off = memref.load %by[%lane] : memref<16xindex>
  %k = arith.cmpi ult, %lane, %c9 : index
  scf.if %k {
    %old = memref.atomic_rmw addf %f, %o[%off] : (f32, memref<4xf32>) -> f32
  }
  %one = arith.constant 1 : i32
  %n = memref.atomic_rmw addi %one, %count[%c0] : (i32, memref<1xi32>) -> i32"""
    )
    args = "%a: memref<16xf32>, %by: memref<16xindex>, %o: memref<4xf32>, %count: memref<1xi32>"
    arrays = [
        array(rng, "f32", 16),
        rng.integers(0, 4, 16),
        array(rng, "f32", 4),
        np.zeros(1, np.int32),
    ]
    *_, count = agree(lane_kernel(args, body, subgroups=2), arrays, (2, 1, 1), limit=1e-5)
    assert count[0] == 64
