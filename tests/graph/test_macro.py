"""Macro kernels with implementations for machines: which one runs where, what is compared, what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import graph as G
from tilewright.diagnostics import CheckError, CompileError, UnsupportedError
from tilewright.graph.macro import BODIES
from tilewright.graph.operations import OPERATIONS


@pytest.fixture(autouse=True)
def names():
    """Macro kernels that a test registers are gone after it."""
    before = set(BODIES)
    yield
    for name in set(BODIES) - before:
        del BODIES[name], OPERATIONS[name]


def gated():
    """A macro kernel whose implementation for NVIDIA is one instruction for each element, for Intel a formula."""

    @G.macro_kernel(meaning=lambda x, y: np.tanh(x) * y, flops=12)
    def gate(x, y):
        return tw.tanh(x) * y

    @G.implementation(gate, "cuda")
    def _(x, y):
        return f"""
          func.func @gate(%x: {x}, %y: {y}) -> {x} {{
            %t = mach.each "nvptx.tanh.approx.f32"(%x) : ({x}) -> {x}
            %z = arith.mulf %t, %y : {x}
            func.return %z : {x}
          }}"""

    @G.implementation(gate, "xe")
    def _(x, y):
        return formula(x, "1.0")

    return gate


def formula(x, one):
    """tanh x = 1 - 2 / (exp(2 x) + 1), as text, for 1 as given."""
    return f"""
      func.func @formula(%x: {x}, %y: {x}) -> {x} {{
        %one = arith.constant dense<{one}> : {x}
        %two = arith.constant dense<2.0> : {x}
        %xx = arith.mulf %x, %two : {x}
        %e = math.exp %xx : {x}
        %e1 = arith.addf %e, %one : {x}
        %q = arith.divf %two, %e1 : {x}
        %t = arith.subf %one, %q : {x}
        %z = arith.mulf %t, %y : {x}
        func.return %z : {x}
      }}"""


def applied(op="gate"):
    g = G.Builder("applied", "M")
    parts = (g.input("x", tw.f32, ["M", 64]), g.input("y", tw.f32, ["M", 64]))
    x, y, z = (part.tiles(16, 64) for part in (*parts, g.output("z", tw.f32, ["M", 64])))
    for x_row, y_row, z_row in g.block(x, y, z):
        for x_tile, y_tile, z_tile in g.sequential(x_row, y_row, z_row):
            g.store_r2g(g.apply(op, g.load_g2r(x_tile), g.load_g2r(y_tile)), z_tile)
    return g.graph()


def instructions(ptx):
    """Hyperbolic tangents of a tile, over all threads."""
    threads = re.search(r"\.(?:max|req)ntid (\d+)", ptx)
    assert threads is not None
    return ptx.count("tanh.approx.f32") * int(threads[1])


def test_every_target_takes_what_is_its_own():
    gated()
    graph = applied()
    (cuda,) = graph.compile().ahead("sm_90a", M=50)
    (xe,) = graph.compile().ahead("xe-pvc", M=50)
    (cpu,) = graph.compile().ahead("cpu", M=50)
    assert instructions(cuda.asm["ptx"]) == 16 * 64
    assert "math.exp" in xe.ir["xegpu-lane"] and "math.tanh" not in xe.ir["xegpu-lane"]
    assert "math.tanh" in cpu.ir["stage"] and "mach.each" not in cpu.ir["stage"]
    assert "func.call @gate" in cuda.ir["xetile"]


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_the_body_is_the_meaning_elsewhere(target):
    gated()
    rng = fresh_rng()
    x, y = (rng.standard_normal((50, 64), np.float32) for _ in range(2))
    made = applied().compile(target=target)(x, y)
    np.testing.assert_allclose(made, np.tanh(x) * y, atol=1e-6)


def test_the_most_special_implementation_is_taken():
    gate = gated()
    assert "tanh.approx" in compiled_ptx()
    G.implementation(gate, "sm_90a")(lambda x, y: formula(x, "1.0"))
    assert "tanh.approx" not in compiled_ptx()  # and the kernel noticed that there is another one
    G.implementation(gate, "sm_90a")(lambda x, y: None)
    assert "tanh.approx" in compiled_ptx()


def compiled_ptx():
    (kernel,) = applied().compile().ahead("sm_90a", M=50)
    return kernel.asm["ptx"]


def test_an_implementation_with_instructions_of_the_cpu_runs():
    @G.macro_kernel(meaning=lambda x, y: y / x)
    def gate(x, y):
        return y / x

    @G.implementation(gate, "cpu-avx512f")
    def _(x, y):
        return f"""
          func.func @f(%x: {x}, %y: {y}) -> {x} {{
            %r = mach.each "x86.vrcp14ps.512"(%x) : ({x}) -> {x}
            %z = arith.mulf %r, %y : {x}
            func.return %z : {x}
          }}"""

    G.check_macro_kernel(gate, G.array([16, 50]), G.array([16, 50]))
    rng = fresh_rng()
    x, y = rng.uniform(1, 2, (50, 64)).astype("f4"), rng.standard_normal((50, 64), np.float32)
    np.testing.assert_allclose(applied().compile()(x, y), y / x, rtol=2e-4, atol=1e-6)


def test_micro_ops_call_what_has_implementations_and_have_their_own():
    gated()

    @G.micro_op
    def both(m, x, y):
        return m.gate(m.gate(x, y), y)

    G.implementation(both, "xe-pvc")(lambda x, y: formula(x, "1.0"))
    graph = applied("both")
    (cuda,) = graph.compile().ahead("sm_90a", M=50)
    assert instructions(cuda.asm["ptx"]) == 2 * 16 * 64
    rng = fresh_rng()
    x, y = (rng.standard_normal((20, 64), np.float32) for _ in range(2))
    np.testing.assert_allclose(graph.compile()(x, y), np.tanh(np.tanh(x) * y) * y, atol=1e-6)
    with pytest.raises(CheckError, match=r"the implementation of both for xe-pvc gives"):
        G.check_macro_kernel(both, G.array([16, 64]), G.array([16, 64]))


def test_a_product_is_implemented_by_tile_mma():
    @G.macro_kernel(meaning=lambda a, b, p: p + a.astype("f4") @ b.astype("f4"))
    def step(a, b, p):
        return tw.tile_mma(a, b, p)

    @G.implementation(step, "sm_90a")
    def _(a, b, p):
        return f"""
          func.func @step(%a: {a}, %b: {b}, %p: {p}) -> {p} {{
            %d = xetile.tile_mma %a, %b, %p : {a}, {b}, {p} -> {p}
            func.return %d : {p}
          }}"""

    G.check_macro_kernel(
        step, G.array([32, 16], tw.f16), G.array([16, 64], tw.f16), G.array([32, 64])
    )


def test_wrong_bodies_and_implementations_are_found_with_their_place():
    gate = gated()
    types = (G.array([16, 64]), G.array([16, 64]))
    G.check_macro_kernel(gate, *types)
    G.implementation(gate, "xe")(lambda x, y: formula(x, "1.5"))
    with pytest.raises(CheckError, match=r"the implementation of gate for xe gives .* at") as found:
        G.check_macro_kernel(gate, *types)
    assert found.value.location.file == "<implementation of gate for xe>"
    assert "func.func @formula" in str(found.value)

    @G.macro_kernel(meaning=lambda x, y: x + y)
    def other(x, y):
        return x - y

    with pytest.raises(CheckError, match="the body of other gives") as found:
        G.check_macro_kernel(other, *types)
    assert found.value.location.file == __file__
    integers = (G.array([4, 16], tw.i32), G.array([4, 16], tw.i32))
    with pytest.raises(CheckError, match="the body of other gives"):
        G.check_macro_kernel(other, *integers)


LOOP = """
func.func @f(%x: {x}, %y: {x}) -> {x} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %z = scf.for %i = %c0 to %c1 step %c1 iter_args(%a = %x) -> ({x}) {{
    scf.yield %a : {x}
  }}
  func.return %z : {x}
}}"""
REFUSED = [
    (LOOP, "the implementation of gate holds scf.for"),
    ("func.func @f(%x: {x}) -> {x} {{ func.return %x : {x} }}", "and gate is (vector<16x64xf32>, "),
    ("func.func private @f(%x: {x}, %y: {x}) -> {x}", "has no body of one block"),
    ("func.func @f(%x: {x}, %y: {x}) -> {x} {{ func.return %q : {x} }}", "%q is used but not defined"),
    ("", "the text holds nothing"),
    ("func.func @f(%x: {x}", "expected"),
    (
        "func.func @f(%x: {x}, %y: {x}) -> {x} {{\n"
        "  %m = memref.alloca() : memref<4xf32>\n  func.return %x : {x}\n}}",
        "the implementation of gate holds memref.alloca",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_what_is_no_implementation_is_refused_at_its_place(text, message):
    gate = gated()
    G.implementation(gate, "xe")(lambda x, y: text.format(x=x))
    with pytest.raises(tw.TilewrightError) as found:
        applied().compile().ahead("xe-pvc", M=50)
    assert message in str(found.value)
    assert found.value.location.file == "<implementation of gate for xe>"


def test_instructions_of_another_machine_are_refused():
    gate = gated()
    text = """
      func.func @f(%x: {x}, %y: {x}) -> {x} {{
        %z = mach.each "{name}"(%x) : ({x}) -> {x}
        func.return %z : {x}
      }}"""
    for target, name, message in (
        ("xe-pvc", "nvptx.tanh.approx.f32", "no instruction of Intel GPUs is named"),
        ("sm_90a", "x86.vrcp14ps.512", "'x86.vrcp14ps.512' needs avx512f"),
        ("sm_90a", "nvptx.tanh", "there is no instruction 'nvptx.tanh' in the table"),
        ("sm_90a", "nvptx.prmt", "'nvptx.prmt' is not done element by element"),
    ):
        G.implementation(gate, target)(lambda x, y, name=name: text.format(x=x, name=name))
        with pytest.raises(UnsupportedError) as found:
            applied().compile().ahead(target, M=50)
        assert message in str(found.value)
        assert found.value.location.file == f"<implementation of gate for {target}>"


def test_what_is_registered_wrongly_is_refused():
    gate = gated()
    with pytest.raises(UnsupportedError, match="no target is called 'cudo'"):
        G.implementation(gate, "cudo")
    with pytest.raises(CompileError, match="plain is no macro kernel"):

        def plain(x):
            return x

        G.implementation(plain, "cuda")
    G.implementation(gate, "cuda")(lambda x: "")
    with pytest.raises(CompileError, match="the implementation of gate for cuda raised TypeError"):
        applied().compile().ahead("sm_90a", M=50)
