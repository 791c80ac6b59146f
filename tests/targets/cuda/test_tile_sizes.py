"""Tile sizes that a kernel leaves to the planner (`targets/cuda/tile_sizes.py`), without a GPU."""

# Kernels are not typed Python.
# pyright: reportMissingParameterType=false
from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import tilewright as tw
from tilewright import knobs
from tilewright.diagnostics import UnsupportedError
from tilewright.lang.choosing import Chooser
from tilewright.ops.attention import attention_kernel
from tilewright.ops.matmul import matmul_kernel
from tilewright.passes import planner
from tilewright.targets.base import get_target
from tilewright.targets.cuda import tile_sizes
from tilewright.targets.cuda.work_split import UNSPLIT, choose

pytestmark = pytest.mark.usefixtures("h200")


@tw.kernel
def renamed(
    Y, X, W, ALONG: tw.constexpr = tw.auto, DEEP: tw.constexpr = tw.auto, DOWN: tw.constexpr = tw.auto
):  # fmt: skip
    """max(X W, 0) with a grid of columns first, other names and another order."""
    n, m = tw.program_id(0) * ALONG, tw.program_id(1) * DOWN
    acc = tw.zeros((DOWN, ALONG), tw.f32)
    for k in range(0, W.shape[0], DEEP):
        x = tw.load_tile(tw.init_tile(X, [m, k], (DOWN, DEEP)))
        w = tw.load_tile(tw.init_tile(W, [k, n], (DEEP, ALONG)))
        acc = tw.tile_mma(x, w, acc)
    tw.store_tile(tw.maximum(acc, 0.0).to(Y.dtype), tw.init_tile(Y, [m, n], (DOWN, ALONG)))


@tw.kernel
def rounded(
    X, W, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = tw.auto
):
    """X W of f32 arrays, multiplied as tf32."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, W.shape[0], BK):
        x = tw.load_tile(tw.init_tile(X, [m, k], (BM, BK))).to(tw.tf32)
        w = tw.load_tile(tw.init_tile(W, [k, n], (BK, BN))).to(tw.tf32)
        acc = tw.tile_mma(x, w, acc)
    tw.store_tile(acc, tw.init_tile(Y, [m, n], (BM, BN)))


def test_what_threads_write_again_is_the_shorter_side() -> None:
    """tf32 with both operands across k: A goes through registers, B through shared memory twice."""
    n = 4096
    sizes = chosen(rounded, ((n, n), (1, n)), ((n, n), (n, 1)), ((n, n), (n, 1)), dtype=tw.f32)
    assert (sizes["BM"], sizes["BN"]) == (256, 128)
    along = chosen(rounded, ((n, n), (n, 1)), ((n, n), (1, n)), ((n, n), (n, 1)), dtype=tw.f32)
    assert (along["BM"], along["BN"]) == (128, 256)


@tw.kernel
def doubled(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.store_tile(x + x, tw.init_tile(Y, [m, n], (BM, BN)))


def test_kernels_without_products_are_planned_as_on_any_machine() -> None:
    side = (4096, 4096), (4096, 1)
    sizes = chosen(doubled, side, side)
    assert set(sizes.values()) <= set(planner.CANDIDATES)
    request, _, options = Chooser(doubled.options(target="cuda-sm_90a")).request(
        doubled.launcher.bind(tuple(tw.spec(s, tw.bf16, t) for s, t in (side, side)), {})
    )
    rates = get_target("cuda-sm_90a").rates(options)
    assert sizes == planner.choose(request, rates)


@pytest.mark.parametrize("length", [256, 4096])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [32, 64, 128, 256])
def test_tiles_of_attention_are_what_warpgroups_can_hold(d: int, causal: bool, length: int) -> None:
    """Two products in a loop: rows of whole warpgroups, sums and probabilities in registers."""
    kernel = attention_kernel.options(target="cuda-sm_90a")
    array = tw.spec((16, length, d), tw.bf16)
    given = {"CAUSAL": causal, "D": d, "BM": tw.auto, "BN": tw.auto}
    bound = kernel.launcher.bind((array, array, array, array, 1.0), given)
    values = dict(zip((p.name for p in kernel.parameters), kernel.resolve(bound)[1], strict=True))
    rows, keys = values["BM"], values["BN"]
    assert rows % 64 == 0 and keys % 16 == 0
    assert rows * (keys + d) <= tile_sizes.MOST_ACCUMULATORS
    if length == 4096:
        assert rows >= 128


@pytest.mark.parametrize("causal", [False, True])
def test_what_carries_no_sums_is_built_once_beside_what_is_compiled(monkeypatch, causal) -> None:
    """And read at other sizes: that it is no loop of products is seen there, too."""
    kernel = attention_kernel.options(target="cuda-sm_90a")
    array = tw.spec((16, 512, 64), tw.bf16)
    given = {"CAUSAL": causal, "D": 64, "BM": tw.auto, "BN": tw.auto}
    request, _, options = Chooser(kernel).request(
        kernel.launcher.bind((array, array, array, array, 1.0), given)
    )
    built, spared, build = [], [], request.build
    request = replace(
        request,
        build=lambda values: built.append(dict(values)) or build(values),
        spare=lambda values, module: spared.append(dict(values)),
    )
    best = get_target("cuda").choices(request, options)[0]
    assert len(built) == 2 and spared == built[1:] == [best.values]


@tw.kernel
def halves(X, W, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = 64):
    """Rows scaled by their sums: the loop carries more than the product's sums."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    total = tw.zeros((BM, 1), tw.f32)
    for k in range(0, W.shape[0], BK):
        x = tw.load_tile(tw.init_tile(X, [m, k], (BM, BK)))
        acc = tw.tile_mma(x, tw.load_tile(tw.init_tile(W, [k, n], (BK, BN))), acc)
        total = total + tw.sum(x.to(tw.f32), 1)
    tw.store_tile((acc / total).to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


def chosen(kernel: Any, *args: Any, dtype: Any = tw.bf16) -> dict[str, int]:
    specs = [tw.spec(shape, dtype, strides) for shape, strides in args]
    kernel = kernel.options(target="cuda-sm_90a")
    values = kernel.resolve(kernel.launcher.bind(tuple(specs), {}))[1]
    return {p.name: v for p, v in zip(kernel.parameters, values, strict=True) if p.constexpr}


def operands(m: int, n: int, k: int) -> list[Any]:
    return [((m, n), (n, 1)), ((m, k), (k, 1)), ((k, n), (1, k))]


def test_sizes_follow_the_shape() -> None:
    large = chosen(renamed, *operands(4096, 4096, 4096))
    assert large["DOWN"] * large["ALONG"] >= 128 * 192
    few = chosen(renamed, *operands(8, 4096, 4096))
    assert few["DOWN"] == 8 and few["ALONG"] % 64 == 0
    tall = chosen(renamed, *operands(4096, 24, 4096))
    assert tall["ALONG"] <= 32 and tall["DOWN"] % 64 == 0
    # 132 multiprocessors: tiles so small that most of them have one.
    middle = chosen(renamed, *operands(256, 4096, 4096))
    programs = -(-256 // middle["DOWN"]) * -(-4096 // middle["ALONG"])
    assert 96 <= programs <= 132


@tw.kernel
def gates(
    X, G, U, Y, BESIDE: tw.constexpr, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto,
    BK: tw.constexpr = tw.auto,
):  # fmt: skip
    """silu(X G) * (X U); where they lie BESIDE one another, G and U are halves of one array."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    gate, up = tw.zeros((BM, BN), tw.f32), tw.zeros((BM, BN), tw.f32)
    for k in range(0, X.shape[1], BK):
        x = tw.load_tile(tw.init_tile(X, [m, k], (BM, BK)))
        gate = tw.tile_mma(x, tw.load_tile(tw.init_tile(G, [k, n], (BK, BN))), gate)
        u = tw.init_tile(U, [k, n + Y.shape[1] if BESIDE else n], (BK, BN))
        up = tw.tile_mma(x, tw.load_tile(u), up)
    tw.store_tile((gate * tw.sigmoid(gate) * up).to(Y.dtype), tw.init_tile(Y, [m, n], (BM, BN)))


@pytest.mark.parametrize("beside", [False, True])
def test_loops_of_several_products_are_one_form(beside: bool) -> None:
    """The result says how many tiles there are, whatever arrays what is multiplied lies in. A step is a whole line of
    each of these arrays."""
    n, k = 14336, 4096
    right = ((k, n + n * beside), (1, k))
    operands = [((16, k), None), right, right, ((16, n), None)]
    specs = [tw.spec(shape, tw.bf16, strides) for shape, strides in operands]
    few = gates.explain(*specs, beside, target="sm_90a").splitlines()[1]
    sizes = {name: int(size) for name, size in re.findall(r"(B[MNK]) = (\d+)", few)}
    assert sizes["BM"] == 16 and sizes["BN"] % 64 == 0 and sizes["BK"] % 64 == 0 and "L2" in few
    assert f": {-(-n // sizes['BN'])} programs" in few


def test_products_that_are_shorter_than_an_instruction_have_its_rows() -> None:
    sizes = chosen(renamed, *operands(46, 16, 512))
    assert sorted((sizes["DOWN"], sizes["ALONG"])) in ([16, 64], [48, 64], [8, 64])


def test_what_is_chosen_is_what_runs() -> None:
    """Every candidate's cost is that of the loop which its kernel has: here for the ten cheapest."""
    found: list[Any] = []
    original = tile_sizes.candidates

    def noting(request: Any, form: Any, multiprocessors: int) -> Any:
        found.append(
            (request, sorted(original(request, form, multiprocessors), key=lambda c: c.clocks))
        )
        return iter(found[-1][1])

    with pytest.MonkeyPatch.context() as patch, knobs.override(cache=False):  # choices lie on disk
        patch.setattr(tile_sizes, "candidates", noting)
        sizes = chosen(renamed, *operands(40, 2048, 512))
    request, listed = found[0]
    assert sizes == dict(listed[0].values)
    from tilewright import uarch
    from tilewright.targets.base import CompileOptions

    options, machine = CompileOptions("cuda-sm_90a"), uarch.machine("sm_90a")
    for each in listed[:10]:
        work = tile_sizes._work(request, each.values, options, machine)
        assert work is not None and work.rows == each.work.rows and work.step == each.work.step


@pytest.mark.parametrize("left", [("DOWN",), ("ALONG", "DEEP"), ("DEEP", "DOWN")])
def test_what_is_given_changes_no_cost(left: tuple[str, ...]) -> None:
    """The kernel is probed with one or two constexprs open as with three: where the others are given as they would be
    chosen, the rest is chosen alike, at the same time."""
    specs = [tw.spec(shape, tw.bf16, strides) for shape, strides in operands(40, 2048, 512)]
    whole = renamed.explain(*specs, target="sm_90a").splitlines()[1]
    sizes = {name: int(size) for name, size in re.findall(r"(\w+) = (\d+)", whole)}
    given = {name: size for name, size in sizes.items() if name not in left}
    first = renamed.explain(*specs, target="sm_90a", **given).splitlines()[1]
    assert {name: int(size) for name, size in re.findall(r"(\w+) = (\d+)", first)} == {
        name: sizes[name] for name in left
    }
    assert first.split(" us")[0] == whole.split(" us")[0]


@pytest.mark.parametrize("m", [8, 4096])
def test_a_constexpr_that_is_no_size_of_the_loop_misleads_no_choice(m: int) -> None:
    """A third one looks like the step, which is given: what is chosen is nothing that was costed with another step."""

    @tw.kernel
    def shifted(
        Y, X, W, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BY: tw.constexpr = tw.auto
    ):
        a, b = tw.program_id(0) * BM, tw.program_id(1) * BN
        acc = tw.zeros((BM, BN), tw.f32)
        for k in range(0, W.shape[0], 64):
            x = tw.load_tile(tw.init_tile(X, [a, k], (BM, 64)))
            acc = tw.tile_mma(x, tw.load_tile(tw.init_tile(W, [k, b], (64, BN))), acc)
        tw.store_tile((acc + BY).to(Y.dtype), tw.init_tile(Y, [a, b], (BM, BN)))

    specs = [tw.spec(shape, tw.bf16, strides) for shape, strides in operands(m, 4096, 4096)]
    kernel = shifted.options(target="cuda-sm_90a")
    request, _, options = kernel.chooser.request(kernel.launcher.bind(tuple(specs), {}))
    target = get_target("cuda")
    first = target.choices(request, options)[0]
    sizes = first.values
    assert first.programs == -(-m // sizes["BM"]) * -(-4096 // sizes["BN"])
    costed = tile_sizes.of_form(request, options, target.machine(options), 132)
    for each in costed:
        if each.values == sizes and each.work.step != 64:
            assert first.seconds != each.clocks / each.work.rates["hertz"]


def test_kernels_of_other_forms_are_chosen_for_too() -> None:
    sizes = chosen(halves, *operands(256, 512, 256)[1:], operands(256, 512, 256)[0])
    assert sizes["BM"] >= 16 and sizes["BN"] >= 16
    wide = [((256, 512), (512, 1)), ((256, 256), (256, 1)), ((256, 512), (512, 1))]
    assert chosen(renamed, *wide, dtype=tw.f32)["DOWN"] >= 16


def test_a_kernel_that_no_size_makes_legal_is_refused() -> None:
    @tw.kernel
    def never(X, N: tw.constexpr = tw.auto):
        tw.store_tile(tw.zeros((N, 3), tw.bf16), tw.init_tile(X, [0, 0], (N, 4)))

    with pytest.raises(UnsupportedError, match="makes a legal kernel") as refused:
        chosen(never, ((64, 64), (64, 1)))
    assert "legal" not in refused.value.message  # it is the kernel's own error first


@tw.kernel
def in_doubles(
    C, A, B, M: tw.constexpr = tw.auto, N: tw.constexpr = tw.auto, K: tw.constexpr = tw.auto
):
    m, n = tw.program_id(0) * M, tw.program_id(1) * N
    acc = tw.zeros((M, N), tw.f64)
    for k in range(0, A.shape[1], K):
        a = tw.load_tile(tw.init_tile(A, [m, k], (M, K)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (K, N))), acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (M, N)))


@tw.kernel
def long_rows(Y, X, M: tw.constexpr = tw.auto, N: tw.constexpr = 4096):
    m = tw.program_id(0) * M
    x = tw.load_tile(tw.init_tile(X, [m, 0], (M, N))).to(tw.f32)
    d = x - tw.sum(x, 1) / N
    tw.store_tile(d.to(Y.dtype), tw.init_tile(Y, [m, 0], (M, N)))
    tw.atomic_rmw("add", tw.sum(d, 0).to(Y.dtype), tw.init_tile(Y, [0, 0], (1, N)))


@pytest.mark.parametrize(
    ("kernel", "shapes", "dtype"),
    [(in_doubles, [(4096, 4096)] * 3, tw.f64), (long_rows, [(16384, 4096)] * 2, tw.f16)],
    ids=["f64", "rows"],
)
def test_what_registers_do_not_hold_is_not_chosen(kernel: Any, shapes: Any, dtype: Any) -> None:
    specs = [tw.spec(shape, dtype, (shape[1], 1)) for shape in shapes]
    kernel.compile(*specs, target="cuda-sm_90a")  # refused where it needs more than there is


@tw.kernel
def swept(Y, X, M: tw.constexpr = tw.auto, N: tw.constexpr = tw.auto):
    """Rows over their sums: each turn of a loop loads what it is about."""
    m = tw.program_id(0) * M
    total = tw.zeros((M, N), tw.f32)
    for n in range(0, X.shape[1], N):
        total = total + tw.load_tile(tw.init_tile(X, [m, n], (M, N))).to(tw.f32)
    whole = tw.sum(total, 1)
    for n in range(0, X.shape[1], N):
        x = tw.load_tile(tw.init_tile(X, [m, n], (M, N))).to(tw.f32)
        tw.store_tile((x / whole).to(Y.dtype), tw.init_tile(Y, [m, n], (M, N)))


def test_loops_that_wait_for_their_loads_have_few_turns() -> None:
    """A multiprocessor with few such programs is idle for most of its time."""
    side = (8192, 4096), (4096, 1)
    sizes = chosen(swept, side, side)
    assert sizes["M"] * sizes["N"] >= 8192 and sizes["M"] <= 64
    specs = [tw.spec(shape, tw.bf16, strides) for shape, strides in (side, side)]
    narrow = swept.explain(*specs, target="sm_90a", N=64).splitlines()[1:-1]
    assert narrow and any("(waiting" in line for line in narrow)


@tw.kernel
def flat(Y, X, N: tw.constexpr = tw.auto):
    n = tw.program_id(0) * N
    tw.store_tile(tw.load_tile(tw.init_tile(X, [n], (1, N))) * 2, tw.init_tile(Y, [n], (1, N)))


def test_what_is_swept_twice_stays_in_the_cache_and_parts_of_one_row_are_long() -> None:
    """On an H200 tiles of 64 x 256 took 116 us (layer norm, 16384 x 4096), of 8 x 2048 104; parts of 256 numbers 166,
    of 2048 70 (2026-11-29)."""
    side = (16384, 4096), (4096, 1)
    sizes = chosen(swept, side, side)
    assert sizes["M"] <= 16 and sizes["N"] >= 1024
    lines = flat.explain(*2 * [tw.spec((1 << 26,), tw.bf16)], target="sm_90a").splitlines()
    assert int(re.search(r"N = (\d+)", lines[1])[1]) >= 1024  # pyright: ignore


def test_operands_leave_room_for_copies_ahead() -> None:
    """Three steps of f64 operands are in shared memory at once."""
    side = (4096, 4096), (4096, 1)
    sizes = chosen(in_doubles, side, side, side, dtype=tw.f64)
    assert 3 * 8 * sizes["K"] * (sizes["M"] + sizes["N"]) <= 227 << 10 and sizes["M"] >= 64


@pytest.mark.parametrize(
    ("heads", "length", "d", "causal", "tile"),
    [
        (8, 6912, 64, False, (128, 192)),
        (64, 2048, 64, True, (128, 128)),
        (12, 8192, 128, False, (128, 128)),
        (24, 4096, 128, True, (128, 128)),
        (10, 6016, 96, False, (128, 128)),
        (4, 8192, 256, False, (128, 64)),
    ],
)
def test_the_tiles_of_two_products_with_a_maximum_between_them(
    heads: int, length: int, d: int, causal: bool, tile: tuple[int, int]
) -> None:
    """Those that were the fastest of 4 to 10 on an H200 (2026-11-30), since two warpgroups compute functions beside
    products."""
    x = tw.spec((heads, length, d), tw.bf16)
    line = attention_kernel.explain(
        x, x, x, x, 0.1, CAUSAL=causal, FLIP=False, D=d, BM=tw.auto, BN=tw.auto, target="sm_90a"
    ).splitlines()[1]
    assert f"BM = {tile[0]}, BN = {tile[1]}:" in line


@tw.kernel
def by_blocks(A, B, scale, C, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    """No product adds to what the loop sums up."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for i in range(tw.cdiv(A.shape[1], 128)):
        a = tw.load_tile(tw.init_tile(A, [m, i * 128], (BM, 128)))
        b = tw.load_tile(tw.init_tile(B, [n, i * 128], (BN, 128)))
        s = tw.load_tile(tw.init_tile(scale, [m, i], (BM, 1)))
        acc = acc + tw.tile_mma(a, tw.transpose(b)) * s
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


def test_registers_hold_sums_beside_those_of_products() -> None:
    """192 x 160 would take 160 registers of a thread, of 160 that three warpgroups have each."""
    f8, matrix = tw.spec((4096, 4096), tw.f8e4m3), tw.spec((4096, 4096), tw.bf16)
    scale = tw.spec((4096, 32), tw.f32)
    lines = by_blocks.explain(f8, f8, scale, matrix, target="sm_90a").splitlines()[1:-1]
    sizes = [re.search(r"BM = (\d+), BN = (\d+)", line) for line in lines]
    held = [2 * int(s[1]) * int(s[2]) / (384 if int(s[1]) % 192 == 0 else 256) for s in sizes if s]
    assert held and all(
        registers <= (128 if int(s[1]) % 192 == 0 else 200)
        for s, registers in zip(sizes, held, strict=True)
        if s
    )


@tw.kernel
def widened(A, W, C, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = tw.auto):  # fmt: skip
    """W is [N, K] of i8: A of the product that is computed transposed."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        w = tw.load_tile(tw.init_tile(W, [n, k], (BN, BK))).to(A.dtype)
        acc = tw.tile_mma(a, tw.transpose(w), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("m", [4096, 16])
def test_what_is_computed_is_computed_for_many_columns(m: int) -> None:
    """And weights are counted as what is loaded of them."""
    specs = tw.spec((m, 4096), tw.bf16), tw.spec((4096, 4096), tw.i8), tw.spec((m, 4096), tw.bf16)
    first = widened.explain(*specs, target="sm_90a").splitlines()[1]
    sizes = re.search(r"BM = (\d+), BN = (\d+)", first)
    assert sizes is not None
    assert int(sizes[1]) == (256 if m == 4096 else 16) and int(sizes[2]) % 64 == 0


def test_the_choice_is_explained() -> None:
    """Each line says a time, sizes, programs, and what takes most of it: few rows wait for memory, many multiply."""
    specs = [tw.spec(shape, tw.bf16, strides) for shape, strides in operands(8, 8192, 8192)]
    head, first, *others = renamed.explain(*specs, target="sm_90a").splitlines()
    assert "sm_90a" in head and "DOWN = 8" in first and "programs" in first and others
    assert first.partition("(")[2].startswith("memory")
    specs = [tw.spec(shape, tw.bf16, strides) for shape, strides in operands(4096, 4096, 4096)]
    assert "products" in renamed.explain(*specs, target="sm_90a").splitlines()[1]
    sized = renamed.explain(*specs, ALONG=128, DOWN=128, DEEP=64)
    assert sized.splitlines()[0] == "renamed: no constexpr is left to the planner (tw.auto)"


@pytest.mark.parametrize("m, n, k", [(6, 2048, 8192), (48, 2560, 10240), (16, 1536, 7168)])
def test_clusters_that_are_counted_on_can_be_built(m, n, k) -> None:
    """Few programs: the planner has several workgroups for each in mind, and a launch compiles them."""
    specs = [tw.spec(shape, tw.bf16, strides) for shape, strides in operands(m, n, k)]
    sizes = chosen(renamed, *operands(m, n, k))
    alone = renamed.compile(*specs, target="cuda-sm_90a", **sizes).executable
    programs = -(-m // sizes["DOWN"]) * -(-n // sizes["ALONG"])
    split = choose(alone.plan.work, programs, k, [s.shape for s in specs], 132)
    assert split != UNSPLIT
    made = alone.shared(split)
    assert made is not alone and made.plan.cluster[0] == split.parts


def test_launches_of_one_kernel_differ_in_their_batch() -> None:
    """What is remembered of the kernel says nothing of how many products a launch has."""

    for batch in (2, 48):
        shapes = (batch, 64, 512), (batch, 512, 512), (batch, 64, 512)
        text = matmul_kernel.explain(
            *(tw.spec(shape, tw.bf16) for shape in shapes), None, None, BM=tw.auto, BN=tw.auto,
            BK=tw.auto, target="sm_90a",
        ).splitlines()[1]  # fmt: skip
        sizes = {name: int(size) for name, size in re.findall(r"(B[MN]) = (\d+)", text)}
        programs = batch * -(-64 // sizes["BM"]) * -(-512 // sizes["BN"])
        assert f": {programs} programs" in text


@tw.kernel
def scaled(X, G, W, C, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = tw.auto):  # fmt: skip
    """C = (X G) W^T, G a row along k: the left operand is computed."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), tw.f32)
    for k in range(0, X.shape[1], BK):
        g = tw.load_tile(tw.init_tile(G, [k], (1, BK)))
        x = tw.load_tile(tw.init_tile(X, [m, k], (BM, BK))) * g
        w = tw.load_tile(tw.init_tile(W, [n, k], (BN, BK)))
        acc = tw.tile_mma(x, tw.transpose(w), acc)
    tw.store_tile(acc.to(C.dtype), tw.init_tile(C, [m, n], (BM, BN)))


@pytest.mark.parametrize("m", [4096, 300])
def test_a_computed_left_operand_has_whole_rows_of_warpgroups(m: int) -> None:
    """Other rows would be computed transposed, where threads would store it. All tilings tried first were of that kind,
    and 128 x 192 was chosen as for a kernel of any form (H200, 4096 cubed: 273 us; 128 x 256 takes 218)."""
    rows, square = tw.spec((m, 4096), tw.bf16), tw.spec((4096, 4096), tw.bf16)
    lines = scaled.explain(rows, tw.spec((4096,), tw.bf16), square, rows, target="sm_90a")
    sizes = re.findall(r"BM = (\d+), BN = (\d+)", lines)
    assert sizes and all(int(bm) % 64 == 0 for bm, _ in sizes)
    assert m < 4096 or sizes[0] == ("128", "256")
