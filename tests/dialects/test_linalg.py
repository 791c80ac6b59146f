# ruff: noqa: E501
"""Named ops of linalg read as the generic ops that mlir-opt makes of them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from xdsl.dialects.linalg.ops import GenericOp
from xdsl.ir import Operation
from xdsl.ir.affine import AffineMap

from tests.draws import fresh_seed
from tests.passes.linalg.programs import OPT, opt
from tilewright.diagnostics import TilewrightError
from tilewright.dialects.text import parse_module, print_module
from tilewright.dialects.upstream import linalg_names as names
from tilewright.dialects.upstream.linalg import ElementwiseKindAttr

INTEGERS = (
    *("add", "sub", "mul", "div", "div_unsigned", "max", "min", "max_unsigned", "min_unsigned"),
    "select",
)
"""Functions of whole numbers; mlir-opt 22.1.8 crashes on `elementwise` with one operand of them."""
NEWER = (
    "matmul_transpose_a",
    "matmul_transpose_b",
    "batch_matmul_transpose_a",
    "batch_matmul_transpose_b",
)
"""What older texts have: today's say it by maps."""


def _text(name: str, maps: Sequence[AffineMap], attributes: str, kinds: Sequence[str]) -> str:
    """A function that has the op on memrefs whose extents are what loops of random lengths reach."""
    draw = random.Random(fresh_seed())
    loops = [draw.randint(2, 5) for _ in range(maps[0].num_dims)]
    types: list[str] = []
    for number, (map_, kind) in enumerate(zip(maps, kinds, strict=True), 1):
        extents = [at + 1 for at in map_.eval([n - 1 for n in loops], [])]
        shape = "".join(f"{n}x" for n in extents)
        zero_point = not shape and number < len(maps)
        types.append(kind if zero_point else f"memref<{shape}{kind}>")
    arguments = ", ".join(f"%a{n}: {t}" for n, t in enumerate(types))
    ins = ", ".join(f"%a{n}" for n in range(len(types) - 1))
    return (
        f"func.func @{name}({arguments}) {{\n  linalg.{name} {attributes} ins({ins} : {', '.join(types[:-1])}) "
        f"outs(%a{len(types) - 1} : {types[-1]})\n  return\n}}"
    )


def every_name() -> dict[str, str]:
    """A text for each name, by name and element type."""
    found: dict[str, str] = {}
    for name in names.CONTRACTIONS:
        if name not in NEWER:
            maps = names.contraction(name).maps
            if len(maps) == 3:
                found[name] = _text(name, maps, "", ["f16", "f16", "f32"])
            found[f"{name} of integers"] = _text(
                name, maps, "", ["i8", "i8", *["i32"] * (len(maps) - 2)]
            )
    for name in names.WINDOWS:
        quantised = name.endswith("_q")
        if not name.endswith("_unsigned") and not quantised:
            found[name] = _window(name, ["f32"] * 3)
        found[f"{name} of integers"] = _window(
            name, ["i8", "i8", *["i32"] * (3 if quantised else 1)]
        )
    for kind in ElementwiseKindAttr.WORDS:
        name = kind.removesuffix("_signed")
        maps = names.elementwise(name, 2).maps
        said = f"kind=#linalg.elementwise_kind<{kind}>"
        own = ["i32"] * (name in INTEGERS) + ["f32"] * (not name.endswith("_unsigned"))
        for dtype in own:
            kinds = [dtype] * len(maps)
            kinds[0] = "i1" if name == "select" else dtype
            found[f"elementwise {kind} of {dtype}"] = _text("elementwise", maps, said, kinds)
    for name, inputs in names.ELEMENTWISE.items():
        maps = names.elementwise(name, 2).maps
        kinds = ["i1", "f32", "f32", "f32"] if name == "select" else ["f32"] * (inputs + 1)
        if name != "div_unsigned":
            found[name] = _text(name, maps, "", kinds)
        if name in ("add", "sub", "mul", "div", "div_unsigned", "max", "min"):
            found[f"{name} of integers"] = _text(name, maps, "", ["i32"] * (inputs + 1))
    return found


def _window(name: str, kinds: Sequence[str]) -> str:
    if not re.search(r"_[a-z]+$", name):  # conv_1d, whose windows have no steps
        return _text(name, names.windows(name, [1] * 3, [1] * 3).maps, "", kinds)
    rank = (
        int(number[1])
        if (number := re.search(r"_(\d)d", name))
        else len(set("dhw") & set(name.split("_")[1]))
    )
    said = f"{{strides = dense<2> : tensor<{rank}xi64>, dilations = dense<3> : tensor<{rank}xi64>}}"
    return _text(name, names.windows(name, [2] * rank, [3] * rank).maps, said, kinds)


def structure(op: Operation) -> str:
    """What a generic op says, apart from names of values: its printed text, values numbered."""
    text = print_module(op)
    seen: dict[str, str] = {}
    text = re.sub(r"%\w+(#\d+)?", lambda m: seen.setdefault(m[0], f"%{len(seen)}"), text)
    return re.sub(r"fastmath<none>", "", text)


def generics(text: str) -> dict[str, GenericOp]:
    found: dict[str, GenericOp] = {}
    for function in parse_module(text).body.block.ops:
        name = getattr(function, "sym_name", None)
        for op in function.walk():
            if isinstance(op, GenericOp) and name is not None:
                found[name.data] = op
    return found


def loops(op: GenericOp) -> str:
    """Maps and kinds of loops, which are numbered in the order in which the operands name them."""
    seen: dict[str, str] = {}
    maps = "; ".join(str(m.data).partition("->")[2] for m in op.indexing_maps)
    maps = re.sub(r"d\d+", lambda m: seen.setdefault(m[0], f"d{len(seen)}"), maps)
    kinds = [str(op.iterator_types.data[int(d[1:])].data) for d in seen]
    return f"{maps} {kinds}"


@pytest.mark.skipif(OPT is None, reason="mlir-opt is not there")
def test_as_mlir_opt_generalizes():
    texts = {name.replace(" ", "_"): text for name, text in every_name().items()}
    assert len(texts) > 90
    text = "\n".join(re.sub(r"@\w+", f"@{name}", text, count=1) for name, text in texts.items())
    ours, theirs = generics(text), generics(opt(text, "--linalg-generalize-named-ops"))
    assert ours.keys() == theirs.keys() == texts.keys()
    for name, own in ours.items():
        assert loops(own) == loops(theirs[name]), name
        made, wanted = (sorted(op.name for op in g.body.walk()) for g in (own, theirs[name]))
        assert [each for each in made if each != "arith.constant"] == wanted, name


CONCISE = """
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>
#d = affine_map<(m, n) -> (m, n)>
func.func @f(%x: tensor<4x6xf32>, %y: tensor<8x6xf32>, %z: tensor<4x8xf32>, %v: tensor<4xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = linalg.contract indexing_maps = [#a, #b, #c] ins(%x, %y : tensor<4x6xf32>, tensor<8x6xf32>) outs(%z : tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = linalg.matmul indexing_maps = [#a, #b, #c] ins(%x, %y : tensor<4x6xf32>, tensor<8x6xf32>) outs(%z : tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = linalg.elementwise kind=#linalg.elementwise_kind<max_signed> ins(%0, %1 : tensor<4x8xf32>, tensor<4x8xf32>) outs(%z : tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = linalg.map { arith.mulf } ins(%0, %2 : tensor<4x8xf32>, tensor<4x8xf32>) outs(%z : tensor<4x8xf32>)
  %4 = linalg.reduce { arith.addf } ins(%3 : tensor<4x8xf32>) outs(%v : tensor<4xf32>) dimensions = [1]
  %5 = linalg.broadcast ins(%4 : tensor<4xf32>) outs(%z : tensor<4x8xf32>) dimensions = [1]
  %6:2 = linalg.generic {indexing_maps = [#d, #d, #d], iterator_types = ["parallel", "parallel"]}
      ins(%5 : tensor<4x8xf32>) outs(%z, %z : tensor<4x8xf32>, tensor<4x8xf32>) {
  ^bb0(%a: f32, %p: f32, %q: f32):
    linalg.yield %a, %p : f32, f32
  } -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return %6#0, %6#1 : tensor<4x8xf32>, tensor<4x8xf32>
}"""


@pytest.mark.skipif(OPT is None, reason="mlir-opt is not there")
def test_concise_forms():
    own = [structure(op) for op in parse_module(CONCISE).walk() if isinstance(op, GenericOp)]
    made = parse_module(opt(CONCISE, "--linalg-generalize-named-ops"))
    theirs = [structure(op) for op in made.walk() if isinstance(op, GenericOp)]
    assert own == theirs and len(own) == 7
    opt(print_module(parse_module(CONCISE)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "linalg.matmul ins(%a : memref<4x4xf32>) outs(%a : memref<4x4xf32>)",
            "'linalg.matmul' op expected 3 operands",
        ),
        (
            "linalg.matmul ins(%a, %v : memref<4x4xf32>, memref<5xf32>) outs(%a : memref<4x4xf32>)",
            "'linalg.matmul' op expected operand #1",
        ),
        (
            "linalg.transpose ins(%a : memref<4x4xf32>) outs(%a : memref<4x4xf32>) permutation = [0, 2]",
            "'linalg.transpose' op permutation",
        ),
        (
            "linalg.reduce {arith.addf} ins(%a : memref<4x4xf32>) outs(%v : memref<5xf32>) dimensions = [0]",
            "'linalg.reduce' op inferred",
        ),
        (
            "linalg.reduce {arith.addf} ins(%a : memref<4x4xf32>) outs(%v : memref<5xf32>) dimensions = [2]",
            "'linalg.reduce' op expected dim",
        ),
        (
            "linalg.map {arith.addf} ins(%a : memref<4x4xf32>) outs(%a : memref<4x4xf32>)",
            "'linalg.map' op expected 2 operands",
        ),
        (
            "linalg.pooling_ncw_sum {strides = dense<1> : tensor<2xi64>, dilations = dense<> : tensor<0xi64>} ins(%c, %v : memref<1x2x9xf32>, memref<5xf32>) outs(%c : memref<1x2x9xf32>)",
            "'linalg.pooling_ncw_sum' op inferred",
        ),
        (
            "linalg.conv_2d_nhwc_hwcf {strides = dense<1> : tensor<1xi64>} ins(%c, %v : memref<1x2x9xf32>, memref<5xf32>) outs(%c : memref<1x2x9xf32>)",
            "expected 2 strides, got 1",
        ),
        (
            "linalg.softmax dimension(2) ins(%a : memref<4x4xf32>) outs(%a : memref<4x4xf32>)",
            "'linalg.softmax' op expected a dimension",
        ),
        (
            "linalg.pack %a inner_dims_pos = [1] inner_tiles = [3] into %p : memref<4x4xf32> -> memref<4x2x3xf32>",
            "'linalg.pack' op expected a padding_value",
        ),
        (
            "linalg.unpack %p inner_dims_pos = [1] inner_tiles = [4] into %a : memref<4x2x3xf32> -> memref<4x4xf32>",
            "'linalg.unpack' op expected tiles",
        ),
        (
            'linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} '
            "outs(%v : memref<5xf32>) {^bb0(%x: f32): %y = arith.extf %x : f32 to f64 linalg.yield %y : f64}",
            r"expected the body to yield \(f32\), got \(f64\)",
        ),
        ("linalg.negf ins(%i : memref<4x4xi32>) outs(%i : memref<4x4xi32>)", "no negf of i32"),
        ("linalg.elementwise ins(%a : memref<4x4xf32>) outs(%a : memref<4x4xf32>)", "is not known"),
        ("linalg.add ins(%a, %a : memref<4x4xf32>, memref<4x4xf32>)", "needs outs"),
        (
            "linalg.generic {iterator_types = []} outs(%a : memref<4x4xf32>) {^bb0(%y: f32):}",
            "indexing_map",
        ),
    ],
)
def test_mistakes(text: str, message: str):
    """What is told names the op as it is written, where it is written."""
    head = "%a: memref<4x4xf32>, %i: memref<4x4xi32>, %v: memref<5xf32>, %c: memref<1x2x9xf32>, %p: memref<4x2x3xf32>"
    with pytest.raises(TilewrightError, match=message) as raised:
        parse_module(f"func.func @f({head}) {{\n {text}\n return\n}}")
    where = raised.value.location
    assert where is not None and (where.line, where.col) == (2, 2)
    assert raised.value.message.startswith(f"'{text.split()[0]}' op ")


GENERIC_FORMS = """
func.func @f(%a: tensor<4x5xf32>, %b: tensor<5x7xf32>, %c: tensor<4x7xf32>, %d: tensor<7x4xf32>, %e: tensor<4xf32>) -> tensor<4x7xf32> {
  %z = arith.constant 0.0 : f32
  %0 = linalg.fill ins(%z : f32) outs(%c : tensor<4x7xf32>) -> tensor<4x7xf32>
  %r = linalg.matmul ins(%a, %b : tensor<4x5xf32>, tensor<5x7xf32>) outs(%0 : tensor<4x7xf32>) -> tensor<4x7xf32>
  %t = linalg.transpose ins(%r : tensor<4x7xf32>) outs(%d : tensor<7x4xf32>) permutation = [1, 0]
  %u = linalg.reduce {arith.addf} ins(%t : tensor<7x4xf32>) outs(%e : tensor<4xf32>) dimensions = [0]
  %v = linalg.broadcast ins(%u : tensor<4xf32>) outs(%c : tensor<4x7xf32>) dimensions = [1]
  %w = linalg.map {arith.addf} ins(%r, %v : tensor<4x7xf32>, tensor<4x7xf32>) outs(%c : tensor<4x7xf32>)
  %x = linalg.elementwise kind=#linalg.elementwise_kind<exp> ins(%w : tensor<4x7xf32>) outs(%c : tensor<4x7xf32>) -> tensor<4x7xf32>
  return %x : tensor<4x7xf32>
}"""


@pytest.mark.skipif(OPT is None, reason="mlir-opt is not there")
def test_generic_forms_of_named_ops():
    """`"linalg.matmul"(..) <{..}> ({..})`, as mlir-opt prints with --mlir-print-op-generic."""
    made = opt(GENERIC_FORMS, "--mlir-print-op-generic")
    assert '"linalg.matmul"(' in made
    own, theirs = (
        [loops(op) for op in parse_module(text).walk() if isinstance(op, GenericOp)]
        for text in (GENERIC_FORMS, made)
    )
    assert own == theirs and len(own) == 7


def test_kinds_that_are_none():
    with pytest.raises(TilewrightError, match="expected one of 'abs', 'add'"):
        parse_module("#a = #linalg.elementwise_kind<first>")


def test_arrays_of_one_element_lose_all_dimensions():
    text = """func.func @f(%a: memref<1x{0}xf32>) {{
  %c = memref.collapse_shape %a [] : memref<1x{0}xf32> into memref<f32>
  return
}}"""
    parse_module(text.format(1))
    with pytest.raises(TilewrightError, match="must be contiguous and name 2 dimensions"):
        parse_module(text.format(2))
