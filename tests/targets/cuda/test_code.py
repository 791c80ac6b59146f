"""The code of whole kernels, without a GPU: PTX for both machines, and nothing that breaks its speed.

What ptxas does not say aloud costs most (`notes/hopper.md` 2.4): serialised wgmma, ignored setmaxnreg, local memory,
device-wide barriers in a loop. With ptxas and nvdisasm here (pip install "tilewright[cuda-inspect]") they are found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects import scf
from xdsl.ir import Block, Operation

import tilewright as tw
from benchmarks.suites import gpu_kernels as kernels
from tests.acceptance.kernels import transpose_through_slm
from tests.targets.cuda.test_computed_operands import by_columns, of_nibbles, of_rows
from tests.targets.cuda.threads import ThreadsTarget
from tilewright.dialects.text import parse_module
from tilewright.ops.attention import attention_kernel
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda import inspect
from tilewright.tools.cli import main

N = 4096
NT = (tw.spec((N, N), tw.bf16), tw.spec((N, N), tw.bf16, (1, N)))
BF16 = tw.spec((N, N), tw.bf16)
BIAS = tw.spec((N,), tw.bf16)
HEADS = {d: tw.spec((64, N, d), tw.bf16) for d in (64, 128)}

needs_tools = pytest.mark.skipif(
    inspect.find_tool("ptxas") is None or inspect.find_tool("nvdisasm") is None,
    reason='pip install "tilewright[cuda-inspect]"',
)

PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "NT": (kernels.product, (*NT, BF16), {}),
    "NN": (kernels.product, (BF16, BF16, BF16), {}),
    "i8": (
        kernels.product,
        (tw.spec((N, N), tw.i8), tw.spec((N, N), tw.i8, (1, N)), tw.spec((N, N), tw.i32)),
        {"ACC": tw.i32, "BK": 128},
    ),
    "bias gelu": (kernels.product_bias_gelu, (*NT, BIAS, BF16), {}),
    "row sum": (
        kernels.product_bias_row_sum,
        (*NT, BIAS, BF16, tw.spec((N, 1), tw.f32)),
        {},
    ),
    "two products": (
        kernels.two_products,
        (
            tw.spec((65536, 64), tw.bf16),
            tw.spec((64, N), tw.bf16),
            tw.spec((N, 64), tw.bf16),
            tw.spec((65536, 64), tw.bf16),
        ),
        {},
    ),
    "weights of 8 bits": (
        by_columns,
        (BF16, tw.spec((N, N), tw.i8), tw.spec((N,), tw.f32), BF16),
        {"BM": 256, "BN": 128, "BK": 64},
    ),
    "weights of 4 bits": (
        of_nibbles,
        (BF16, tw.spec((N, N // 2), tw.i8), tw.spec((N, N // 64), tw.bf16), BF16),
        {"BM": 256, "BN": 128},
    ),
    "scaled rows": (
        of_rows,
        (BF16, tw.spec((N, 1), tw.f32), BIAS, BF16, BF16),
        {"BM": 128, "BN": 256},
    ),
    "attention": (attention_kernel, (*[HEADS[128]] * 4, 1.0), {"D": 128, "BM": 128, "BN": 128}),
}


@pytest.mark.parametrize("machine", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["NT", "attention"])
def test_every_machine_has_code_anywhere(name: str, machine: str) -> None:
    kernel, args, settings = PROGRAMS[name]
    compiled = kernel.compile(*args, target=machine, **settings)
    assert f".target {machine}" in compiled.asm["ptx"]
    assert ("wgmma.mma_async" in compiled.asm["ptx"]) == (machine == "sm_90a")
    assert ("mma.sync" in compiled.asm["ptx"]) == (machine == "sm_80")
    assert compiled.ir["xetile"] and compiled.asm["llvm"]


@pytest.mark.parametrize("name", ["NT", "two products", "attention"])
def test_loops_clamp_no_coordinates(name: str) -> None:
    """Where they begin, or what they count, lies nearby: only what a program adds is clamped, in front of them."""
    kernel, args, settings = PROGRAMS[name]
    module = parse_module(kernel.compile(*args, target="sm_90a", **settings).ir["mach"])
    clamps = {"arith.minsi", "arith.maxsi"}
    assert any(op.name in clamps for op in module.walk())
    copies = [op for op in module.walk() if "nvptx.tma.load" in str(op.properties)]
    ways = [way for copy in copies if (way := way_to(copy))]
    assert ways
    assert not any(op.name in clamps for way in ways for block in way for op in block.ops)


def way_to(copy: Operation) -> list[Block]:
    """The blocks around a copy up to its innermost loop's; none where it is of a tile that ends outside of what is
    stored, or no such loop is around it.
    """
    found: list[Block] = []
    op: Operation | None = copy
    while op is not None and not isinstance(op, scf.ForOp):
        region, parent = op.parent_region(), op.parent_op()
        if isinstance(parent, scf.IfOp) and region is parent.false_region:
            return []
        if (block := op.parent_block()) is not None:
            found.append(block)
        op = parent
    inner = op is not None and not any(isinstance(x, scf.ForOp) for x in op.body.walk())
    return found if inner else []


RFC = Path(__file__).parents[3] / "examples" / "rfc"


@pytest.mark.parametrize("machine", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "name", ["xetile_2_1_gemm_prefetch", "xegpu_1_2_transpose_broadcast_reduction"]
)
def test_text_has_code_for_every_machine(name: str, machine: str, tmp_path: Path) -> None:
    """The RFCs' programs as they are, prefetches and barriers and all: arrays begin as memref.alloc's do."""
    out = tmp_path / "code.ptx"
    arguments = ["compile", str(RFC / f"{name}.mlir"), "--target", machine, "--emit", "ptx"]
    assert main([*arguments, "-o", str(out)]) == 0
    code = out.read_text()
    if machine == "sm_90a":
        assert "wgmma.mma_async" in code and "cp.async.bulk.tensor" in code
    else:
        assert "mma.sync" in code


@needs_tools
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_breaks_its_speed(name: str) -> None:
    kernel, args, settings = PROGRAMS[name]
    compiled = kernel.compile(*args, target="sm_90a", **settings)
    assert inspect.breakers(compiled.asm["ptx"], "sm_90a") == []


def test_halves_of_a_word_are_numbers_where_they_stand() -> None:
    """Of two bf16 that came as one word, one instruction each makes f32: none takes the word apart before."""

    @tw.kernel
    def widened(X, Y):  # pyright: ignore[reportMissingParameterType]
        x = tw.load_tile(tw.init_tile(X, [0, 0], (8, 512)))
        tw.store_tile(x.to(tw.f32), tw.init_tile(Y, [0, 0], (8, 512)))

    args = tw.spec((8, 512), tw.bf16), tw.spec((8, 512), tw.f32)
    llvm = widened.compile(*args, target="sm_90a").asm["llvm"]
    assert llvm.count(", -65536") == 8 * 512 // 2 // 256 and "zext i16" not in llvm


def test_a_tile_of_a_slot_is_read_as_matrices() -> None:
    """Fragments of warpgroups, whose rows lie in swizzled lines: four words of a thread at a time."""
    args = BF16, tw.spec((N, 1), tw.f32), BIAS, BF16, BF16
    code = of_rows.compile(*args, target="sm_90a", BM=128, BN=256).ir["mach"]
    (loop,) = [
        op for op in parse_module(code).walk() if isinstance(op, scf.ForOp) and "wgmma" in str(op)
    ][-1:]
    text = str(loop)
    assert text.count("nvptx.ldmatrix.x4") == 4 and ": !llvm.ptr<3> -> vector<2xbf16>" not in text


def test_prefetches_have_code_before_sm_90() -> None:
    @tw.kernel
    def fetched(X, Y):  # pyright: ignore[reportMissingParameterType]
        tile = tw.init_tile(X, [0, 0], (16, 64))
        tw.prefetch_tile(tile, locality=2)
        tw.store_tile(tw.load_tile(tile), tw.init_tile(Y, [0, 0], (16, 64)))

    matrix = tw.spec((16, 64), tw.f32)
    assert "prefetch.global.L2" in fetched.compile(matrix, matrix, target="sm_80").asm["ptx"]


def test_code_does_not_depend_on_chance() -> None:
    """Where two ways are as good, the program decides, not where in memory the compiler's objects lie."""
    matrix = tw.spec((64, 64), tw.i8)
    text = transpose_through_slm.compile(matrix, matrix, target="sm_80").ir["xetile"]
    kept = [object() for _ in range(1000)]
    seen: set[str] = set()
    for i in range(8):
        del kept[:: i + 2]
        options = CompileOptions("cuda", "sm_80")
        seen.add(ThreadsTarget("sm_80").build(parse_module(text), options).ir["mach"])
    assert len(seen) == 1
