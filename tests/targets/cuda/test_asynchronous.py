"""The passes for sm_90a: every program right after each pass computes the same, under all schedules."""

# pyright: reportMissingParameterType=false, reportUnknownParameterType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tilewright as tw
from tests.arrays import error
from tests.draws import fresh_rng
from tests.targets.cuda.threads import run_threads
from tilewright import uarch
from tilewright.dialects.text import parse_module
from tilewright.ops.attention import attention_kernel
from tilewright.reference import run
from tilewright.reference.numerics import round_tf32
from tilewright.runtime.arrays import describe
from tilewright.targets.base import CompileOptions
from tilewright.targets.cuda.inspect import assemble, find_tool
from tilewright.targets.cuda.lowered import TensorMapOf
from tilewright.targets.cuda.pipeline import run_pipeline
from tilewright.targets.cuda.target import TARGET
from tilewright.targets.stages import printed_into

bf16 = ml_dtypes.bfloat16
Array = Any


@tw.kernel
def gemm(A, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 128, BK: tw.constexpr = 64):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    a = tw.init_tile(A, [m, 0], (BM, BK))
    b = tw.init_tile(B, [0, n], (BK, BN))
    acc = tw.zeros((BM, BN), tw.f32)
    for _ in range(0, A.shape[1], BK):
        acc = tw.tile_mma(tw.load_tile(a), tw.load_tile(b), acc)
        a = tw.update_tile_offset(a, [0, BK])
        b = tw.update_tile_offset(b, [BK, 0])
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def two_sums(A, B, D, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """C = relu(A B) + A D, and A is also read by the epilogue's row sums."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.zeros((BM, BN), tw.f32)
    y = tw.zeros((BM, BN), tw.f32)
    rows = tw.zeros((BM, 1), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        x = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), x)
        y = tw.tile_mma(a, tw.load_tile(tw.init_tile(D, [k, n], (BK, BN))), y)
        rows = rows + tw.sum(a.to(tw.f32), 1)
    tw.store_tile((tw.maximum(x, 0.0) + y + rows).to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def text_of(kernel: Any, args: tuple[Any, ...], **constants: Any) -> str:
    return kernel.compile(*args, target="reference", **constants).ir["xetile"]


def check_passes(
    text: str, grid: tuple[int, ...], fresh: Callable[[], tuple[list[Any], Array, Array]],
    disable: frozenset[str] = frozenset(), after: tuple[str, ...] = (), limit: float = 1e-2,
) -> tuple[list[str], Any]:  # fmt: skip
    """Runs the pipeline; executes the module after every pass, or after those named. The passes, and the result.

    After a pass under a schedule drawn for it, at the end under all.
    """
    names: list[str] = []
    schedules = ("late", "early", "random")
    draw = fresh_rng()

    def execute(name: str, module: ModuleOp, schedule: str) -> None:
        args, out, wanted = fresh()
        run(module, grid, args, schedule=schedule, seed=3)  # pyright: ignore
        assert error(out, wanted) < limit, (name, schedule)

    def observe(name: str, module: ModuleOp) -> None:
        names.append(name)
        if name in (
            "widen-accumulators",
            "cleanup",
            "while-to-for",
            "fold-views",
            "fold-identities",
            "reciprocal",
            "cuda-to-mach",
        ):
            return
        module.verify()
        if after and name not in after:
            return
        execute(name, module, str(draw.choice(schedules)))

    options = CompileOptions(target="cuda", machine="sm_90a", disable=disable)
    ir: dict[str, str] = {}
    remarks: list[str] = []
    machine = uarch.machine("sm_90a")
    lowered = run_pipeline(parse_module(text), machine, options, remarks, printed_into(ir), observe)
    for schedule in schedules:
        execute("stage", parse_module(ir["stage"]), schedule)
    return names, (lowered, ir, remarks)


@pytest.mark.parametrize("layout", ["NT", "NN", "TN"])
def test_gemm_after_every_pass(layout: str) -> None:
    m, n, k = 136, 200, 320

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        a = r.standard_normal((k, m) if layout[0] == "T" else (m, k)).astype(bf16)
        b = r.standard_normal((n, k) if layout[1] == "T" else (k, n)).astype(bf16)
        a, b = a.T if layout[0] == "T" else a, b.T if layout[1] == "T" else b
        c = np.full((m, n), np.nan, bf16)
        return [a, b, c], c, a.astype(np.float64) @ b.astype(np.float64)

    names, (lowered, ir, remarks) = check_passes(text_of(gemm, tuple(fresh()[0])), (3, 2, 1), fresh)
    order = [
        "rematerialize-tiles",
        "persistent",
        "multi-buffering",
        "async-mma",
        "deferred-wait",
        "tma-stores",
        "warp-specialization",
    ]
    assert [n for n in names if n in order] == order
    assert not remarks
    assert "stage.copy.issue" in ir["stage"] and lowered.persistent == 1
    assert len({s.argument for s in lowered.slots if isinstance(s, TensorMapOf)}) == 3


@tw.kernel
def gemm_tf32(A, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 32):
    """C = A B^T, of f32 arrays rounded to tf32; B is turned after it was loaded."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK))).to(tw.tf32)
        b = tw.transpose(tw.load_tile(tw.init_tile(B, [n, k], (BN, BK)))).to(tw.tf32)
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


def test_the_copy_engine_rounds_to_tf32() -> None:
    m, n, k = 72, 64, 96

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        a, b = (r.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k)))
        c = np.full((m, n), np.nan, np.float32)
        wanted = round_tf32(a).astype(np.float64) @ round_tf32(b).T.astype(np.float64)
        return [a, b, c], c, wanted

    after = ("tf32-rounding", "multi-buffering", "async-mma", "warp-specialization")
    text = text_of(gemm_tf32, tuple(fresh()[0]))
    names, (lowered, ir, remarks) = check_passes(text, (2, 1, 1), fresh, after=after, limit=1e-6)
    assert "tf32-rounding" in names and not remarks
    assert "stage.mma.issue" in ir["stage"] and "truncf" not in ir["stage"]
    kinds = [s.element for s in lowered.slots if isinstance(s, TensorMapOf) and not s.rest]
    assert sorted(kinds) == ["f32", "tf32", "tf32"]


def test_two_products_and_a_tile_that_is_also_read() -> None:
    m, n, k = 128, 72, 192

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        a, b, d = (r.standard_normal(s).astype(bf16) for s in ((m, k), (k, n), (k, n)))
        c = np.full((m, n), np.nan, np.float32)
        x, y, z = (v.astype(np.float64) for v in (a, b, d))
        return [a, b, d, c], c, np.maximum(x @ y, 0) + x @ z + x.sum(1, keepdims=True)

    names, (_, ir, _) = check_passes(text_of(two_sums, tuple(fresh()[0])), (2, 2, 1), fresh)
    assert "warp-specialization" in names
    assert "stage.read" in ir["stage"]


@tw.kernel
def one_sum(A, B, D, E, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):
    """C = A B + D E, in one accumulator."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
        d = tw.load_tile(tw.init_tile(D, [m, k], (BM, BK)))
        acc = tw.tile_mma(d, tw.load_tile(tw.init_tile(E, [k, n], (BK, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def test_products_that_add_to_one_sum_are_waited_for_once() -> None:
    """An iteration's products run while the next iteration begins: none waits for another."""
    m, n, k = 128, 72, 192

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        a, d = (r.standard_normal((m, k)).astype(bf16) for _ in range(2))
        b, e = (r.standard_normal((k, n)).astype(bf16) for _ in range(2))
        c = np.full((m, n), np.nan, np.float32)
        w, x, y, z = (v.astype(np.float64) for v in (a, b, d, e))
        return [a, b, d, e, c], c, w @ x + y @ z

    text = text_of(one_sum, tuple(fresh()[0]))
    names, (_, ir, _) = check_passes(
        text, (2, 2, 1), fresh, after=("async-mma", "deferred-wait", "warp-specialization")
    )
    assert "deferred-wait" in names
    compute = ir["stage"].split('stage.role "compute"')[1]
    assert compute.count("stage.mma.issue") == 2
    assert compute.count("stage.mma.wait") == 2 and "stage.mma.wait {pending = 2 : i64}" in compute


def attention_case(
    heads: int, length: int, depth: int, causal: bool
) -> tuple[list[Any], Array, Array]:
    r = fresh_rng()
    q, k, v = (r.standard_normal((heads, length, depth)).astype(bf16) for _ in range(3))
    o = np.full_like(q, np.nan)
    s = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / 8
    if causal:
        s = np.where(np.tril(np.ones((length, length), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    wanted = p / p.sum(-1, keepdims=True) @ v.astype(np.float64)
    return [q, k, v, o, np.float32(0.125 * np.log2(np.e))], o, wanted


@pytest.mark.parametrize("causal", [False, True])
def test_products_that_feed_products(causal: bool) -> None:
    heads, length, depth = 2, 192, 64

    def fresh() -> tuple[list[Any], Array, Array]:
        return attention_case(heads, length, depth, causal)

    text = text_of(attention_kernel, tuple(fresh()[0]), CAUSAL=causal, D=depth, BM=64, BN=64)
    names, (_, ir, _) = check_passes(
        text,
        (3, heads, 1),
        fresh,
        after=("multi-buffering", "mma-pipelining", "warp-specialization"),
    )
    assert "warp-specialization" in names
    assert ir["stage"].count("stage.mma.issue") >= 4
    # The last product of an iteration runs beside the next: two issues, then the first wait.
    assert "{pending = 1 : i64}" in ir["stage"]


def test_each_pass_can_be_left_out() -> None:
    a, b, c = (np.zeros((256, 256), bf16) for _ in range(3))
    text = text_of(gemm, (a, b, c))
    for name in (
        "multi-buffering",
        "persistent",
        "deferred-wait",
        "tma-stores",
        "warp-specialization",
    ):
        options = CompileOptions(target="cuda", machine="sm_90a", disable=frozenset({name}))
        ir: dict[str, str] = {}
        run_pipeline(parse_module(text), uarch.machine("sm_90a"), options, [], printed_into(ir))
        marks = {
            "multi-buffering": "stage.mma.issue", "persistent": "stage.worker", "deferred-wait": "pending = 1",
            "tma-stores": "stage.copy.store", "warp-specialization": "stage.roles",
        }  # fmt: skip
        assert marks[name] not in ir.get("stage", "")


@tw.kernel
def scaled(A, S, B, C, BM: tw.constexpr = 128, BN: tw.constexpr = 128, BK: tw.constexpr = 64):
    """C = (A * S) B, A scaled row by row before the product: threads hold the operand."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    s = tw.load_tile(tw.init_tile(S, [m, 0], (BM, 1)))
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK))).to(tw.f16) * s
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def test_an_operand_computed_from_a_staged_tile() -> None:
    m, n, k = 136, 72, 192

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        a = r.integers(-9, 10, (m, k)).astype(np.int8)
        s, b = r.random((m, 1)).astype(np.float16), r.standard_normal((k, n)).astype(np.float16)
        c = np.full((m, n), np.nan, np.float16)
        wanted = (a * s.astype(np.float64)) @ b.astype(np.float64)
        return [a, s, b, c], c, wanted

    names, (_, ir, _) = check_passes(
        text_of(scaled, tuple(fresh()[0])),
        (2, 1, 1),
        fresh,
        after=("async-mma", "k-slicing", "warp-specialization"),
    )
    assert "warp-specialization" in names
    # Four slices of 16 along k: what is computed for one runs beside the product of the one before.
    assert ir["stage"].count("stage.read.part") == ir["stage"].count("stage.mma.issue") == 4


@tw.kernel
def blocks(First, Columns, V, B, C, BM: tw.constexpr = 64, BN: tw.constexpr = 64, BK: tw.constexpr = 64):  # fmt: skip
    """C = V B, where V has blocks side by side: those of row i from First[i] on, each of a column of blocks."""
    i, n = tw.program_id(0), tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for p in range(First[i], First[i + 1]):
        a = tw.load_tile(tw.init_tile(V, [p * BM, 0], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [Columns[p] * BK, n], (BK, BN))), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [i * BM, n], (BM, BN)))


def test_copies_of_blocks_whose_numbers_are_loaded_an_iteration_ahead() -> None:
    first = np.array([0, 3, 3, 4], np.int32)

    def fresh() -> tuple[list[Any], Array, Array]:
        r = fresh_rng()
        columns = r.permutation(4).astype(np.int32)
        v, b = (r.standard_normal((256, n)).astype(bf16) for n in (64, 72))
        c = np.full((192, 72), np.nan, bf16)
        whole = np.zeros((3, 4, 64, 64))
        for row in range(3):
            for p in range(first[row], first[row + 1]):
                whole[row, columns[p]] = v[64 * p : 64 * p + 64]
        wanted = whole.swapaxes(1, 2).reshape(192, 256) @ b.astype(np.float64)
        return [first, columns, v, b, c], c, wanted

    text = text_of(blocks, tuple(fresh()[0]))
    names, (lowered, _, _) = check_passes(text, (3, 2, 1), fresh, after=("warp-specialization",))
    assert "warp-specialization" in names
    args, out, wanted = fresh()
    run_threads(lowered, [describe(x) for x in args], (3, 2, 1))
    assert error(out, wanted) < 1e-2


def machine_code(text: str) -> Any:
    """What the assembler makes of a kernel for sm_90a; skips where there is no assembler."""
    if find_tool("ptxas") is None:
        pytest.skip("no ptxas: pip install nvidia-cuda-nvcc")
    options = CompileOptions(target="cuda", machine="sm_90a")
    executable = TARGET.build(parse_module(text), options)
    return assemble(executable.asm["ptx"], "sm_90a"), executable.asm["ptx"]


def test_machine_code_has_no_performance_breakers() -> None:
    """168 registers at entry (setmaxnreg is honoured), no spills, no serialised products."""
    a, b, c = (np.zeros((256, 256), bf16) for _ in range(3))
    q, k, v, o = (np.zeros((2, 256, 128), bf16) for _ in range(4))
    texts = [
        text_of(gemm, (a, b.T, c), BM=128, BN=256),
        text_of(attention_kernel, (q, k, v, o, np.float32(1)), D=128, BM=128, BN=128),
    ]
    for text in texts:
        code, ptx = machine_code(text)
        assert code.registers == 168
        assert code.spill_store_bytes + code.spill_load_bytes == 0
        assert "C75" not in code.log
        assert "setmaxnreg.inc" in ptx and "wgmma.mma_async" in ptx


@tw.kernel
def beside(A, B, C, OWN: tw.constexpr, BM: tw.constexpr = 128, BN: tw.constexpr = 128):
    """C = A B + OWN, the number of columns of an array of the workgroup."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    own = tw.init_tile(tw.alloc_slm((BM, OWN), tw.f32), [0, 0], (BM, OWN))
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 64):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 64)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (64, BN))), acc)
    tw.store_tile(tw.zeros((BM, OWN), tw.f32) + 1.0, own)
    rows = tw.sum(tw.load_tile(own), 1)
    tw.store_tile((acc + rows).to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def turned(A, B, C, BK: tw.constexpr, BM: tw.constexpr = 128):
    """C = A B + (A B)^T: 64 KB and a little go from thread to thread."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BM
    acc = tw.zeros((BM, BM), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (BK, BM))), acc)
    tw.store_tile((tw.transpose(acc) + acc).to(C.dtype), tw.init_tile(C, [m, n], (BM, BM)))


@pytest.mark.parametrize(
    ("kernel", "constants", "slots"),
    [
        (beside, {"OWN": 4}, 5),
        (beside, {"OWN": 64}, 5),
        (beside, {"OWN": 128}, 4),
        (beside, {"OWN": 192}, 3),
        (beside, {"OWN": 256}, 2),
        (beside, {"OWN": 384}, 0),
        (turned, {"BK": 64}, 3),
        (turned, {"BK": 128}, 1),
    ],
    ids=lambda x: "-".join(f"{k}{v}" for k, v in x.items()) if isinstance(x, dict) else None,
)
def test_multi_buffers_are_as_deep_as_the_rest_of_the_kernel_leaves_room_for(
    kernel: Any, constants: dict[str, int], slots: int
) -> None:
    """One slot more would exceed the machine; where there is no room for one, the kernel says so and runs without."""
    args = tuple(np.zeros((768, 768), bf16) for _ in range(3))
    remarks: list[str] = []
    stages: dict[str, str] = {}
    machine = uarch.machine("sm_90a")
    lowered = run_pipeline(
        parse_module(text_of(kernel, args, **constants)),
        machine,
        CompileOptions(target="cuda"),
        remarks,
        printed_into(stages),
    )
    limit, step = machine.memories["smem"].size, 2 * 128 * constants.get("BK", 64) * 2
    assert lowered.shared_bytes <= limit
    missing = [r for r in remarks if "not asynchronous" in r]
    if slots:
        assert f"!stage.pipeline_state<{slots}>" in stages["stage"] and not missing
        assert lowered.shared_bytes + step > limit
    else:
        assert "stage" not in stages
        assert "needs 196608 bytes of shared memory beside a multi-buffer" in missing[0]
