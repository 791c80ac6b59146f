# ruff: noqa: E501
"""vector-to-xetile and xetile-to-vector: the same results, on every executor and by mlir-runner."""

from __future__ import annotations

import numpy as np
import pytest

from tests.arrays import error
from tests.passes.linalg.programs import OPT, Array, drawn, opt, peer, program, run_on
from tests.peer.mlir_opt import needs_mlir_runner
from tilewright import reference
from tilewright.diagnostics import TilewrightError, UnsupportedError
from tilewright.dialects.text import parse_module, print_module
from tilewright.dialects.xetile import TileType
from tilewright.passes.strided_memrefs import strided_memrefs
from tilewright.passes.vector_to_xetile import vector_to_xetile
from tilewright.passes.xetile_to_vector import xetile_to_vector

RUN_VECTORS = (
    "builtin.module(func.func(convert-vector-to-scf,lower-vector-multi-reduction),expand-strided-metadata,lower-affine,"
    "convert-scf-to-cf,convert-vector-to-llvm,expand-strided-metadata,lower-affine,convert-math-to-llvm,"
    "convert-arith-to-llvm,convert-ub-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)"
)

# The RFC's cases: a tile's order is that of its matrix. -------------------------------------------------------------

ROWS, COLUMNS = "memref<1024x1024xf16>", "memref<1024x1024xf16, affine_map<(d0, d1) -> (d1, d0)>>"
TILE = "!xetile.tile<64x32xf16{}>"
ORDER = ", #xetile.tile_attr<order = [{}]>"
RIGHT = [(ROWS, ORDER.format("1, 0")), (ROWS, ""), (COLUMNS, ORDER.format("0, 1"))]
WRONG = [(COLUMNS, ORDER.format("1, 0")), (COLUMNS, ""), (ROWS, ORDER.format("0, 1"))]


def init(memref: str, order: str) -> str:
    return f"func.func @f(%a: {memref}) {{\n  %t = xetile.init_tile %a[0, 0] : {memref} -> {TILE.format(order)}\n  return\n}}"


@pytest.mark.parametrize(("memref", "order"), RIGHT)
def test_correct_orders(memref: str, order: str):
    """The three that the RFC calls correct are read, and are what a transfer of such a memref becomes."""
    parse_module(init(memref, order))
    module = parse_module(
        f"""func.func @f(%a: {memref}, %o: memref<64x32xf16>) {{
  %c0 = arith.constant 0 : index
  %pad = arith.constant 0.0 : f16
  %v = vector.transfer_read %a[%c0, %c0], %pad {{in_bounds = [true, true]}} : {memref}, vector<64x32xf16>
  vector.transfer_write %v, %o[%c0, %c0] {{in_bounds = [true, true]}} : vector<64x32xf16>, memref<64x32xf16>
  return
}}"""
    )
    function = next(iter(module.body.block.ops))
    strided_memrefs(function)
    vector_to_xetile(function)  # pyright: ignore[reportArgumentType]
    module.verify()
    (load,) = (op for op in module.walk() if op.name == "xetile.load_tile")
    wanted = parse_module(init(memref, order))
    (tile,) = (op for op in wanted.walk() if op.name == "xetile.init_tile")
    found = load.operands[0].type
    assert isinstance(found, TileType) and isinstance(tile.results[0].type, TileType)
    assert found.order == tile.results[0].type.order and found.get_shape() == (64, 32)


@pytest.mark.parametrize(("memref", "order"), WRONG)
def test_incorrect_orders(memref: str, order: str):
    with pytest.raises(TilewrightError, match=r"expected to have a (row|column)-major layout"):
        parse_module(init(memref, order)).verify()


# Programs, in vector and as tiles. ------------------------------------------------------------------------------------

MAPS = {
    "nn": ("(m, k)", "(k, n)", "(m, n)"),
    "nt": ("(m, k)", "(n, k)", "(m, n)"),
    "tn": ("(k, m)", "(k, n)", "(m, n)"),
    "turned": ("(m, k)", "(k, n)", "(n, m)"),
}


def product(form: str) -> tuple[str, Array]:
    """C += A B in blocks of 16 x 24 x 8, all extents ragged; A, B and C as the form has them."""
    m, n, k = 40, 50, 30
    wide = {"m": (m, 16), "n": (n, 24), "k": (k, 8)}
    names = [[letter for letter in each if letter in wide] for each in MAPS[form]]
    shapes = ["x".join(str(wide[d][0]) for d in each) + "xf32" for each in names]
    blocks = ["x".join(str(wide[d][1]) for d in each) + "xf32" for each in names]
    at = [", ".join(f"%{d}" for d in each) for each in names]
    maps = ", ".join(f"affine_map<(m, n, k) -> {each}>" for each in MAPS[form])
    reads = "\n".join(
        f"  %v{x} = vector.transfer_read %{x}[{at[i]}], %zero : memref<{shapes[i]}>, vector<{blocks[i]}>"
        for i, x in enumerate("abc")
    )
    function = f"""
func.func @f(%a: memref<{shapes[0]}>, %b: memref<{shapes[1]}>, %c: memref<{shapes[2]}>) {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  {" ".join(f"%s{d} = arith.constant {step} : index %e{d} = arith.constant {end} : index" for d, (end, step) in wide.items())}
  scf.for %m = %c0 to %em step %sm {{ scf.for %n = %c0 to %en step %sn {{ scf.for %k = %c0 to %ek step %sk {{
{reads}
  %d = vector.contract {{indexing_maps = [{maps}], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>}}
    %va, %vb, %vc : vector<{blocks[0]}>, vector<{blocks[1]}> into vector<{blocks[2]}>
  vector.transfer_write %d, %c[{at[2]}] : vector<{blocks[2]}>, memref<{shapes[2]}>
  }} }} }}
  return
}}"""
    arrays = {
        x: drawn("float32", *(wide[d][0] for d in each))
        for x, each in zip("abc", names, strict=True)
    }
    a, b, c = (arrays[x].astype(np.float64) for x in "abc")
    spec = ",".join("".join(each) for each in names[:2]) + "->" + "".join(names[2])
    types = ", ".join(f"memref<{s}>" for s in shapes)
    text = program(f"call @f(%a, %b, %c) : ({types}) -> ()", arrays, {"c": f"memref<{shapes[2]}>"})
    return text + function, c + np.einsum(spec, a, b)


@pytest.mark.parametrize("form", MAPS)
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_products(form: str, target: str, capfd: pytest.CaptureFixture[str]):
    """`run` makes tile_mma of them: the outer loops are the grid of a kernel."""
    text, wanted = product(form)
    (found,), said = run_on(text, target, capfd)
    assert error(found, wanted) < 2e-5
    assert said == (["@f_kernel: workgroup level, compiled for cpu"] if target == "cpu" else [])


@pytest.mark.parametrize("form", MAPS)
def test_vectors_have_the_same_meaning(form: str, capfd: pytest.CaptureFixture[str]):
    """The text as it is, and back from tiles, by the reference executor."""
    text, wanted = product(form)
    for back in (False, True):
        module = parse_module(text)
        if back:
            (function,) = (
                f
                for f in module.body.block.ops
                if getattr(f, "sym_name", None) and f.sym_name.data == "f"
            )  # pyright: ignore
            vector_to_xetile(function)  # pyright: ignore[reportArgumentType]
            assert any(op.name == "xetile.tile_mma" for op in function.walk())
            xetile_to_vector(function)  # pyright: ignore[reportArgumentType]
            assert not any(op.name.startswith("xetile.") for op in module.walk())
        (found,), _ = run_on(module, None, capfd)
        assert error(found, wanted) < 2e-5


@needs_mlir_runner
@pytest.mark.parametrize("form", MAPS)
def test_peer_runs_what_comes_back(form: str):
    text, wanted = product(form)
    assert error(peer(text, RUN_VECTORS)[0], wanted) < 2e-5
    module = parse_module(text)
    for function in [op for op in module.body.block.ops if op.name == "func.func"]:
        if any(op.name == "vector.contract" for op in function.walk()):
            vector_to_xetile(function)  # pyright: ignore[reportArgumentType]
            xetile_to_vector(function)  # pyright: ignore[reportArgumentType]
    assert error(peer(print_module(module), RUN_VECTORS)[0], wanted) < 2e-5


VECTORIZED = """
module attributes {{transform.with_named_sequence}} {{
{text}
transform.named_sequence @__transform_main(%root: !transform.any_op) {{
  %op = transform.structured.match ops{{["linalg.matmul"]}} in %root : (!transform.any_op) -> !transform.any_op
  %tiled, %loops:3 = transform.structured.tile_using_for %op tile_sizes [32, 16, 8]
    : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
  %f = transform.structured.match ops{{["func.func"]}} in %root : (!transform.any_op) -> !transform.any_op
  %g = transform.structured.vectorize_children_and_apply_patterns %f : (!transform.any_op) -> !transform.any_op
  transform.yield
}}
}}
"""


@needs_mlir_runner
def test_vectorized_by_mlir_opt(capfd: pytest.CaptureFixture[str]):
    """linalg that mlir-opt tiled and vectorized: subviews, transfers and contractions become tiles."""
    arrays = {
        "a": drawn("float32", 64, 32),
        "b": drawn("float32", 32, 48),
        "c": drawn("float32", 64, 48),
    }
    kinds = [f"memref<{s}xf32>" for s in ("64x32", "32x48", "64x48")]
    call = f"call @f(%a, %b, %c) : ({', '.join(kinds)}) -> ()"
    text = program(call, arrays, {"c": kinds[2]})
    text += f"""
func.func @f(%a: {kinds[0]}, %b: {kinds[1]}, %c: {kinds[2]}) {{
  linalg.matmul ins(%a, %b : {kinds[0]}, {kinds[1]}) outs(%c : {kinds[2]})
  return
}}"""
    made = opt(
        VECTORIZED.format(text=text),
        "--transform-interpreter",
        "--test-transform-dialect-erase-schedule",
        "--canonicalize",
    )
    assert "vector.contract" in made and "memref.subview" in made
    (found,), said = run_on(made, "cpu", capfd)
    a, b, c = (arrays[x].astype(np.float64) for x in "abc")
    assert error(found, a @ b + c) < 2e-5
    assert any("@f_kernel: workgroup level, compiled for cpu" in line for line in said)


TRANSFERS = {
    "transposed": (
        "vector<8x12xf32>",
        "affine_map<(i, j) -> (j, i)>",
        lambda x: np.pad(x, 9)[12:24, 13:21].T,
    ),
    "row": ("vector<12xf32>", "affine_map<(i, j) -> (j)>", lambda x: np.pad(x, 9)[12, 13:25]),
    "column": ("vector<8xf32>", "affine_map<(i, j) -> (i)>", lambda x: np.pad(x, 9)[12:20, 13]),
    "repeated": (
        "vector<6x12xf32>",
        "affine_map<(i, j) -> (0, j)>",
        lambda x: np.tile(np.pad(x, 9)[12, 13:25], (6, 1)),
    ),
}


@pytest.mark.parametrize("name", TRANSFERS)
@pytest.mark.parametrize("tiles", [False, True])
def test_transfers(name: str, tiles: bool):
    """Permutations and repetitions, from [3, 4] of a matrix that ends before the vector does."""
    kind, map_, meaning = TRANSFERS[name]
    shape = kind.removeprefix("vector<").removesuffix("xf32>")
    module = parse_module(
        f"""func.func @f(%x: memref<10x14xf32>, %o: memref<{shape}xf32>) {{
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %pad = arith.constant 0.0 : f32
  %v = vector.transfer_read %x[%c3, %c4], %pad {{permutation_map = {map_}}} : memref<10x14xf32>, {kind}
  vector.transfer_write %v, %o[{", ".join(["%c0"] * (shape.count("x") + 1))}] : {kind}, memref<{shape}xf32>
  return
}}"""
    )
    (function,) = module.body.block.ops
    if tiles:
        vector_to_xetile(function)  # pyright: ignore[reportArgumentType]
        assert not any("transfer" in op.name for op in module.walk())
        module.verify()
    x = drawn("float32", 10, 14)
    found = np.full([int(n) for n in shape.split("x")], np.nan, np.float32)
    reference.run(module, args=[x, found])
    np.testing.assert_array_equal(found, meaning(x))


KERNEL = """
func.func @f(%x: memref<30x40xf32>, %y: memref<40x24xf32, strided<[1, 40]>>, %o: memref<30x24xf32>, %s: memref<2x24xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c40 = arith.constant 40 : index
  %zero = arith.constant dense<0.0> : vector<32x24xf32>
  %a = xetile.init_tile %x[0, 0] : memref<30x40xf32> -> !xetile.tile<32x8xf32>
  %b = xetile.init_tile %y[0, 0] : memref<40x24xf32, strided<[1, 40]>>
    -> !xetile.tile<8x24xf32, #xetile.tile_attr<order = [0, 1]>>
  %r:3 = scf.for %k = %c0 to %c40 step %c8 iter_args(%ta = %a, %tb = %b, %sum = %zero)
      -> (!xetile.tile<32x8xf32>, !xetile.tile<8x24xf32, #xetile.tile_attr<order = [0, 1]>>, vector<32x24xf32>) {
    %va = xetile.load_tile %ta {padding = 0.0 : f32} : !xetile.tile<32x8xf32> -> vector<32x8xf32>
    %vb = xetile.load_tile %tb : !xetile.tile<8x24xf32, #xetile.tile_attr<order = [0, 1]>> -> vector<8x24xf32>
    xetile.prefetch_tile %ta : !xetile.tile<32x8xf32>
    %next = xetile.tile_mma %va, %vb, %sum : vector<32x8xf32>, vector<8x24xf32>, vector<32x24xf32> -> vector<32x24xf32>
    %na = xetile.update_tile_offset %ta, [0, 8] : !xetile.tile<32x8xf32>
    %nb = xetile.update_tile_offset %tb, [8, 0] : !xetile.tile<8x24xf32, #xetile.tile_attr<order = [0, 1]>>
    scf.yield %na, %nb, %next : !xetile.tile<32x8xf32>, !xetile.tile<8x24xf32, #xetile.tile_attr<order = [0, 1]>>, vector<32x24xf32>
  }
  %top = xetile.reduction <maximumf>, %r#2 [1] : vector<32x24xf32> -> vector<32x1xf32>
  %tops = xetile.broadcast %top [1] : vector<32x1xf32> -> vector<32x24xf32>
  %d = arith.subf %r#2, %tops : vector<32x24xf32>
  %ot = xetile.init_tile %o[0, 0] : memref<30x24xf32> -> !xetile.tile<32x24xf32>
  xetile.store_tile %d, %ot : vector<32x24xf32>, !xetile.tile<32x24xf32>
  %part = xetile.reduction <add>, %r#2 [0] {reduction_size = 16 : i64} : vector<32x24xf32> -> vector<2x24xf32>
  %turned = xetile.transpose %part, [1, 0] : vector<2x24xf32> -> vector<24x2xf32>
  %back = xetile.transpose %turned, [1, 0] : vector<24x2xf32> -> vector<2x24xf32>
  %st = xetile.init_tile %s[0, 0] : memref<2x24xf32> -> !xetile.tile<2x24xf32>
  xetile.store_tile %back, %st : vector<2x24xf32>, !xetile.tile<2x24xf32>
  return
}"""


@pytest.mark.parametrize("vectors", [False, True])
def test_tiles_as_vectors(vectors: bool):
    """Tiles that loops carry, both orders, padding, reductions whole and in part."""
    module = parse_module(KERNEL)
    (function,) = module.body.block.ops
    if vectors:
        xetile_to_vector(function)  # pyright: ignore[reportArgumentType]
        module.verify()
        assert not any(op.name.startswith("xetile.") for op in module.walk())
        assert any(op.name == "vector.contract" for op in module.walk())
        if OPT is not None:
            opt(print_module(module))
    x, y = drawn("float32", 30, 40), drawn("float32", 24, 40).T
    o, s = np.full((30, 24), np.nan, np.float32), np.full((2, 24), np.nan, np.float32)
    reference.run(module, args=[x, y, o, s])
    wide = x.astype(np.float64) @ y
    assert error(o, wide - wide.max(1, keepdims=True)) < 2e-5
    assert error(s, np.stack([wide[:16].sum(0), wide[16:].sum(0)])) < 2e-5


REFUSED = {
    "no_strides": (
        "memref<8x8xf32, affine_map<(i, j) -> (i floordiv 2, j, i mod 2)>>",
        "%v = vector.transfer_read %x[%c0, %c0], %pad : memref<8x8xf32, affine_map<(i, j) -> (i floordiv 2, j, i mod 2)>>, vector<8x8xf32>",
        "vector.transfer_read is of",
    ),
    "narrow": (
        "memref<8x8xf32>",
        "%v = vector.transfer_read %x[%c0, %c0], %pad : memref<8x8xf32>, vector<8x8xf32>\n"
        "%u = arith.constant dense<1.0> : vector<8xf16>\n"
        "%w = vector.contract {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (k)>, affine_map<(i, k) -> (i)>],"
        ' iterator_types = ["parallel", "reduction"], kind = #vector.kind<add>} %v, %u, %u : vector<8x8xf32>, vector<8xf16> into vector<8xf16>',
        "products of f32 do not add up in f16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str):
    """With place, rule and hint; and nothing is changed."""
    memref, body, message = REFUSED[name]
    module = parse_module(
        f"func.func @f(%x: {memref}) {{\n %c0 = arith.constant 0 : index\n %pad = arith.constant 0.0 : f32\n {body}\n return\n}}"
    )
    before = print_module(module)
    with pytest.raises(UnsupportedError, match=message) as raised:
        vector_to_xetile(next(iter(module.body.block.ops)))  # pyright: ignore[reportArgumentType]
    assert raised.value.location is not None and raised.value.hint and raised.value.rule
    assert print_module(module) == before


def test_a_part_of_its_own_size_ends_where_it_does():
    """A subview that is smaller than the vector is the tile's matrix: what is behind it in memory is not read."""
    module = parse_module(
        """func.func @f(%x: memref<16x16xf32>, %o: memref<8x8xf32>) {
  %c0 = arith.constant 0 : index
  %pad = arith.constant 1.5 : f32
  %s = memref.subview %x[2, 3] [6, 5] [1, 1] : memref<16x16xf32> to memref<6x5xf32, strided<[16, 1], offset: 35>>
  %v = vector.transfer_read %s[%c0, %c0], %pad : memref<6x5xf32, strided<[16, 1], offset: 35>>, vector<8x8xf32>
  vector.transfer_write %v, %o[%c0, %c0] {in_bounds = [true, true]} : vector<8x8xf32>, memref<8x8xf32>
  return
}"""
    )
    vector_to_xetile(next(iter(module.body.block.ops)))  # pyright: ignore[reportArgumentType]
    x = drawn("float32", 16, 16)
    found = np.full((8, 8), np.nan, np.float32)
    reference.run(module, args=[x, found])
    wanted = np.full((8, 8), 1.5, np.float32)
    wanted[:6, :5] = x[2:8, 3:8]
    np.testing.assert_array_equal(found, wanted)


def test_a_mask_has_the_order_of_its_memref(capfd: pytest.CaptureFixture[str]):
    """A function with a contraction becomes a kernel; what else it has of ops is expanded there, too."""
    a, b = drawn("float32", 2, 3), drawn("float32", 3, 8)
    c = np.zeros((6, 4), np.float32)
    body = "call @f(%a, %b, %c) : (memref<2x3xf32>, memref<3x8xf32>, memref<6x4xf32>) -> ()"
    text = program(body, {"a": a, "b": b, "c": c}, {"c": "memref<6x4xf32>"})
    text += """
func.func @f(%a: memref<2x3xf32>, %b: memref<3x8xf32>, %c: memref<6x4xf32>) {
  %0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %none = arith.constant dense<0.0> : vector<2x8xf32>
  %x = vector.transfer_read %a[%0, %0], %z {in_bounds = [true, true]} : memref<2x3xf32>, vector<2x3xf32>
  %y = vector.transfer_read %b[%0, %0], %z {in_bounds = [true, true]} : memref<3x8xf32>, vector<3x8xf32>
  %w = vector.contract {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
    iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %x, %y, %none
    : vector<2x3xf32>, vector<3x8xf32> into vector<2x8xf32>
  %m = vector.constant_mask [5, 1] : vector<8x2xi1>
  vector.transfer_write %w, %c[%0, %0], %m {permutation_map = affine_map<(d0, d1) -> (d1, d0)>} : vector<2x8xf32>, memref<6x4xf32>
  return
}"""
    want = c.copy()
    want[:5, 0] = (a.astype(np.float64) @ b)[0, :5]
    for target in ("reference", "cpu"):
        (found,), _ = run_on(text, target, capfd)
        assert error(found, want) < 1e-5
