"""The planner's choices, for kernels that it knows nothing of."""

from dataclasses import replace
from math import inf, log2

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright.ops.attention import attention_kernel
from tilewright.passes import planner
from tilewright.passes.launch_cost import Choice, Program, costed, launch_seconds
from tilewright.passes.planner import CANDIDATES, choose, descend
from tilewright.passes.work import Work, causes, together
from tilewright.runtime.key import signature_of
from tilewright.targets.base import CompileOptions, get_target
from tilewright.uarch.base import GENERIC
from tilewright.uarch.products import Order


@tw.kernel
def product(
    A, B, C, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto, BK: tw.constexpr = tw.auto,
    ACC: tw.constexpr = tw.f32,
):  # fmt: skip
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    acc = tw.zeros((BM, BN), ACC)
    for k in range(0, A.shape[1], BK):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, BK)))
        b = tw.load_tile(tw.init_tile(B, [k, n], (BK, BN)))
        acc = tw.tile_mma(a, b, acc)
    tw.store_tile(acc, tw.init_tile(C, [m, n], (BM, BN)))


@tw.kernel
def rows(X, Y, BM: tw.constexpr = tw.auto, N: tw.constexpr = 1024):
    m = tw.program_id(0) * BM
    x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, N)))
    y = tw.exp(x - tw.max(x, 1))
    tw.store_tile(y / tw.sum(y, 1), tw.init_tile(Y, [m, 0], (BM, N)))


class Request:
    """What a launch of a kernel would ask."""

    def __init__(self, kernel, *args):
        types, constexprs, _ = kernel.launcher.describe(kernel.launcher.bind(args, {}))
        self.names = tuple(n for n, v in constexprs.items() if v is tw.auto)
        self.arguments = tuple(types)
        self.built = 0
        signature = signature_of(types)

        def build(choice):
            self.built += 1
            values = {**constexprs, **choice}
            return kernel.build(signature, values, CompileOptions()).module

        self.build = build
        self.spared = []
        self.spare = lambda choice, module: self.spared.append(choice)
        self.memory = {}


def arrays(*shapes):
    return [np.zeros(shape, np.float32) for shape in shapes]


def test_large_products_get_large_tiles():
    square = choose(Request(product, *arrays((2048, 2048), (2048, 2048), (2048, 2048))))
    assert square["BM"] >= 128 and square["BN"] >= 128


def test_cores_are_kept_busy():
    small = arrays((256, 256), (256, 256), (256, 256))
    many = choose(Request(product, *small), replace(GENERIC, cores=64))
    one = choose(Request(product, *small), replace(GENERIC, cores=1))
    assert many["BM"] * many["BN"] < one["BM"] * one["BN"]


def test_tiles_do_not_cover_more_than_there_is():
    thin = choose(Request(product, *arrays((2048, 2048), (2048, 16), (2048, 16))))
    assert thin["BN"] == 16
    shallow = choose(Request(product, *arrays((2048, 32), (32, 2048), (2048, 2048))))
    assert shallow["BK"] == 32


def test_values_stay_near_the_core():
    x, y = arrays((4096, 1024), (4096, 1024))
    roomy = choose(Request(rows, x, y), replace(GENERIC, cache_bytes=1 << 24))
    tight = choose(Request(rows, x, y), replace(GENERIC, cache_bytes=1 << 17))
    assert tight["BM"] * 1024 * 4 <= 1 << 17 and tight["BM"] <= roomy["BM"]


def test_the_choice_is_the_cheapest_of_all_that_were_tried():
    request = Request(rows, *arrays((300, 1024), (300, 1024)))
    best = choose(request)
    costs = {
        size: launch_seconds(request.build({"BM": size}), request.arguments, GENERIC)
        for size in CANDIDATES
    }
    assert costs[best["BM"]] == min(costs.values())


def test_of_costs_that_are_alike_a_plain_size_is_chosen():
    shapes, sides = ((288, 1024), (288, 1024)), (48, 64, 80, 96, 144)
    found = planner.choices(Request(rows, *arrays(*shapes)), GENERIC, sides)
    costs = {c.values["BM"]: c.seconds for c in found}
    more = costs[64] / found[0].seconds - 1
    assert more > 0
    for alike, chosen in ((0.99 * more, found[0].values["BM"]), (1.01 * more, 64)):
        again = planner.choices(Request(rows, *arrays(*shapes)), GENERIC, sides, alike=alike)
        assert again[0].values["BM"] == chosen


def test_cost_follows_the_shapes():
    request = Request(product, *arrays((64, 512), (512, 64), (64, 64)))
    module = request.build({"BM": 64, "BN": 64, "BK": 32})
    short = Request(product, *arrays((64, 64), (64, 64), (64, 64))).arguments
    rates = replace(GENERIC, launch_seconds=0.0)
    ratio = launch_seconds(module, request.arguments, rates) / launch_seconds(module, short, rates)
    assert 6 < ratio < 8


def test_few_kernels_are_built():
    """One, and the choice: all others are resized."""
    request = Request(product, *arrays((512, 512), (512, 512), (512, 512)))
    assert request.spared == [choose(request)], "nobody builds that again"
    assert request.built == 2
    other = Request(product, *arrays((96, 512), (512, 2048), (96, 2048)))
    other.memory = request.memory
    choose(other)
    assert request.built == 2 and other.built <= 1


def test_what_costs_nothing_is_let_be():
    asked = []

    def cost(choice):
        asked.append(choice)
        return float(abs(choice[0] - 7))

    ways = [range(12), range(100, 140)]
    assert descend((0, 120), ways, cost) == ((7, 120), 0.0)
    assert {second for _, second in asked} == {100, 120, 139}
    assert descend((0, 120), ways, lambda choice: inf if choice[1] != 130 else 1.0)[1] == 1.0


def test_values_beyond_two_that_cost_much_more_are_not_tried_where_they_are_in_order():
    asked = []

    def cost(choice):
        asked.append(choice[0])
        return 1.0 + abs(choice[0] - 7) if choice[0] != 40 else 0.5

    assert descend((8,), [range(41)], cost) == ((40,), 0.5)
    assert set(asked) == set(range(41))
    asked.clear()
    assert descend((8,), [range(41)], cost, ordered=True) == ((7,), 1.0)
    assert set(asked) == {0, *range(5, 11)}  # 0: does it matter at all?


@tw.kernel
def wide(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    """An extent that is a sum of two sizes, and a constant that looks like one."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BM + 3 * BN)))
    y = x + tw.sum(tw.load_tile(tw.init_tile(X, [m, 0], (BM, 176))), 1)
    tw.store_tile(tw.exp(y), tw.init_tile(Y, [m, n], (BM, BM + 3 * BN)))


def test_a_descent_begins_at_the_cheapest_of_sizes_of_each_name(monkeypatch):
    """Few rows of many columns cost least; tiles of as many rows as columns are a hollow of their own."""

    def told(values, *_):
        x, y = (log2(values[name]) for name in ("BM", "BN"))
        hollows = 2 + abs(x - 6) + abs(y - 6), 1 + 4 * max(abs(x - 4), abs(y - 8))
        return Choice(values, min(hollows), 1)

    monkeypatch.setattr(planner, "costed", told)
    assert choose(Request(wide, *arrays((300, 1024), (300, 1024)))) == {"BM": 16, "BN": 256}


def no_neighbour_is_cheaper(request: Request) -> None:
    """What is chosen costs no more than what differs from it in one size, were every kernel built."""
    best = choose(request)
    costs = {
        (m, n): launch_seconds(request.build({"BM": m, "BN": n}), request.arguments, GENERIC)
        for m in CANDIDATES
        for n in CANDIDATES
    }
    at = best["BM"], best["BN"]
    beside = [c for c in costs if (c[0] == at[0]) != (c[1] == at[1])]
    assert all(costs[at] <= costs[c] / 0.999 for c in beside)


def test_what_a_kernel_was_taken_for_is_told_by_builds_where_it_is_another():
    """The first, the choice; then the first again, one with all sizes others, with each of them, and the choice."""
    request = Request(wide, *arrays((300, 1000), (300, 1000)))
    no_neighbour_is_cheaper(request)
    assert request.built <= len(CANDIDATES) ** 2 + 9


@tw.kernel
def folded(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    """Its longest tile is no affine function of its sizes."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    numbers = tw.arange(0, BM * BN, axis=1, shape=(1, BM * BN)).to(tw.f32)
    tw.store_tile(x + tw.sum(tw.exp(numbers), 1), tw.init_tile(Y, [m, n], (BM, BN)))


def test_a_kernel_that_cannot_be_resized_is_built():
    """What is chosen is what would be, were every kernel built."""
    request = Request(folded, *arrays((300, 1000), (300, 1000)))
    no_neighbour_is_cheaper(request)
    assert request.built > len(CANDIDATES) ** 2 + 3


@tw.kernel
def grouped(X, W, ENDS, GROUP, ROW, Y, BM: tw.constexpr = 16, BN: tw.constexpr = 64):
    """Blocks of rows, each of one group: an index says which, and which rows."""
    b, n = tw.program_id(0), tw.program_id(1) * BN
    e, m = GROUP[b], ROW[b]
    x, y = tw.view(X, [0, 0], [ENDS[e + 1], None]), tw.view(Y, [0, 0], [ENDS[e + 1], None])
    w = tw.load_tile(tw.init_tile(W, [e, 0, n], (64, BN)))
    product = tw.tile_mma(tw.load_tile(tw.init_tile(x, [m, 0], (BM, 64))), w)
    tw.store_tile(product, tw.init_tile(y, [m, n], (BM, BN)))


@tw.kernel
def split(A, B, C, PART: tw.constexpr = 512, B_: tw.constexpr = 64):
    m, n, first = tw.program_id(0) * B_, tw.program_id(1) * B_, tw.program_id(2) * PART
    acc = tw.zeros((B_, B_), tw.f32)
    for k in range(first, min(first + PART, A.shape[1]), B_):
        a = tw.load_tile(tw.init_tile(A, [m, k], (B_, B_)))
        acc = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (B_, B_))), acc)
    tw.atomic_rmw("add", acc, tw.init_tile(C, [m, n], (B_, B_)))


def grid(kernel, *args):
    request = Request(kernel, *args)
    return Program.of(request.build({}), GENERIC).grid(request.arguments)


def test_programs_are_counted_along_views_and_along_what_is_only_read():
    index = [np.zeros(n, np.int32) for n in (9, 70, 70)]
    x, w, y = arrays((1024, 64), (8, 64, 500), (1024, 500))
    assert grid(grouped, x, w, *index, y) == (64, 8, 1)
    assert grid(split, *arrays((128, 4000), (4000, 200), (128, 200))) == (2, 4, 8)


class Silent:
    """A model that remembers what it is asked, and says nothing."""

    def causes(self, products, programs):
        self.times = [each.times for each in products]
        return {}

    def order(self, products, programs):
        return Order()

    def alone(self):
        return self


def test_arrays_are_read_as_often_as_loops_about_their_products_turn():
    """Keys and values by each block of rows, rows by each block of keys, of all heads."""
    q, k, v, o = arrays(*4 * [(3, 512, 64)])
    request = Request(attention_kernel, q, k, v, o, 0.25, False, False, 64, 128, 64)
    program = Program.of(request.build({}), GENERIC, Silent())
    scores, sums, *masked = program.placed(request.arguments)
    assert [scores.reads(side) for side in (scores.a, scores.b)] == [8, 4]
    assert sums.reads(sums.b) == 4 and not sums.a.loaded
    assert {each.elements(each.b) for each in (scores, sums)} == {3 * 512 * 64}
    assert scores.times == sums.times == 8 and [each.times for each in masked] == [0, 0]
    # Where both loops turn, both read the arrays: 7 blocks, and the last one by itself.
    short = [np.zeros((3, n, 64), np.float32) for n in (512, 500, 500, 512)]
    ragged = Request(attention_kernel, *short, 0.25, False, False, 64, 128, 64)
    first, second, *others = program.placed(ragged.arguments)
    assert [each.times for each in (first, second, *others)] == [7, 7, 1, 1]
    assert {each.reads(each.b) for each in (first, second, *others)} == {5}


def test_products_of_loops_that_run_longer_in_some_programs_turn_as_often_as_they_do_on_average():
    q, k, v, o = arrays(*4 * [(3, 512, 64)])
    request = Request(attention_kernel, q, k, v, o, 0.25, True, False, 64, 128, 64)
    model = Silent()
    costed({}, Program.of(request.build({}), GENERIC, model), request.arguments)
    assert model.times == [3, 3, 2, 2]  # 0, 2, 4 and 6 blocks of keys before a program's own two


@tw.kernel
def gated(A, B, D, C, MASKED: tw.constexpr = False, BM: tw.constexpr = 64, BN: tw.constexpr = 64):
    """Two products of one operand."""
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x, y = tw.zeros((BM, BN), tw.f32), tw.zeros((BM, BN), tw.f32)
    for k in range(0, A.shape[1], 64):
        a = tw.load_tile(tw.init_tile(A, [m, k], (BM, 64)))
        x = tw.tile_mma(a, tw.load_tile(tw.init_tile(B, [k, n], (64, BN))), x)
        y = tw.tile_mma(a, tw.load_tile(tw.init_tile(D, [k, n], (64, BN))), y)
    if MASKED:
        column = tw.arange(0, BN, axis=1, shape=(BM, BN)) + n
        x = tw.where((column < C.shape[1] - 3) & (column > 2), x, 0.0)
    tw.store_tile(tw.exp(x) * y, tw.init_tile(C, [m, n], (BM, BN)))


def test_what_products_share_is_loaded_by_them_and_masks_are_computed_by_the_way():
    shapes = arrays((256, 512), (512, 256), (512, 256), (256, 256))

    def told(masked):
        request = Request(gated, *shapes, masked, 64, 64)
        program = Program.of(request.build({}), GENERIC, Silent())
        return costed({}, program, request.arguments).causes

    rounds = 16 / GENERIC.cores
    stored = rounds * 64 * 64 * 4 / GENERIC.memory_bytes
    assert told(False)["memory"] == told(True)["memory"] == pytest.approx(stored)
    assert 1 < told(True)["values"] / told(False)["values"] < 1.6  # a selection beside exp and *


@tw.kernel
def centred(X, W, Y, R: tw.constexpr = 8, BN: tw.constexpr = 128):
    """Rows that are read twice, beside weights that all programs read."""
    m = tw.program_id(0) * R
    total = tw.zeros((R, 1), tw.f32)
    for n in range(0, X.shape[1], BN):
        total += tw.sum(tw.load_tile(tw.init_tile(X, [m, n], (R, BN))), 1)
    for n in range(0, X.shape[1], BN):
        x = tw.load_tile(tw.init_tile(X, [m, n], (R, BN))) - total / X.shape[1]
        w = tw.load_tile(tw.init_tile(W, [n], (1, BN)))
        tw.store_tile(x * w, tw.init_tile(Y, [m, n], (R, BN)))


@tw.kernel
def halves(X, Y, R: tw.constexpr = 8, H: tw.constexpr = 512):
    m = tw.program_id(0) * R
    left = tw.load_tile(tw.init_tile(X, [m, 0], (R, H)))
    right = tw.load_tile(tw.init_tile(X, [m, H], (R, H)))
    tw.store_tile(left * right, tw.init_tile(Y, [m, 0], (R, H)))


@pytest.mark.parametrize(
    ("kernel", "kept", "memory", "shared"),
    [  # in KiB of one of eight programs, each of 8 rows of 4 KiB
        (centred, 0, 32 + 32 + 32 + 4, 0),
        (centred, 8 * 64, 32 + 32 + 4 / 8, 32 + 4 * 7 / 8),
        (centred, 4 * 64, 32 + 16 + 32 + 4 / 8, 16 + 4 * 7 / 8),
        (centred, 2, 32 + 32 * (1 - 1 / 256) + 32 + 4, 32 / 256),
        (halves, 1 << 20, 32 + 16, 0),
    ],
)
def test_what_is_loaded_again_comes_from_the_cache_of_all_cores(kernel, kept, memory, shared):
    shapes = [(64, 1024), (1024,), (64, 1024)] if kernel is centred else [(64, 1024), (64, 512)]
    request, rates = Request(kernel, *arrays(*shapes)), replace(GENERIC, kept_bytes=kept << 10)
    found = costed({}, Program.of(request.build({}), rates), request.arguments).causes
    assert found["memory"] * rates.memory_bytes == pytest.approx(memory * 1024)
    assert found.get("shared cache", 0) * rates.shared_bytes == pytest.approx(shared * 1024)


def test_memory_moves_no_less_than_an_access():
    """Of a long row 16 numbers of 4 bytes, of short ones all that there is."""

    def memory(width, columns):
        request = Request(centred, *arrays((64, width), (width,), (64, width)), 8, columns)
        program = Program.of(request.build({}), replace(GENERIC, access_bytes=128))
        return costed({}, program, request.arguments).causes["memory"]

    assert memory(256, 16) == pytest.approx(2 * memory(256, 64))
    assert memory(16, 16) == pytest.approx(memory(16, 64))


def test_programs_that_wait_leave_a_core_to_others_if_it_has_room_for_two():
    rates = replace(GENERIC, asynchronous=True, wait_seconds=1e-7, op_seconds=1e-6)
    work = Work(near_bytes=1e6, memory_bytes=1e6, ops=8)
    alone, two = (causes(work, 80, rates, resident=n) for n in (1, 2))
    assert alone["ops"] == 2 * two["ops"]
    found = together(alone, rates, alone=True), together(alone, rates)
    assert found[0] - found[1] == pytest.approx(
        min(alone["memory"], alone["values"] + alone["ops"]), rel=0.02
    )


def test_cores_that_take_programs_of_any_length_end_one_after_the_other():
    each, rates = Work(near_bytes=1e6), replace(GENERIC, cores=16)
    times = [causes(each, 32, rates, longest=n)["values"] for n in (1, 1.5, 2)]
    assert times[0] < times[1] < times[2] < 2 * times[0]
    alone = [causes(each, 32, replace(rates, cores=1), longest=n)["values"] for n in (1, 2)]
    assert alone[0] == alone[1]


@tw.kernel
def impossible(X, N: tw.constexpr = tw.auto):
    tw.static_assert(N == 7, "N is 7")
    tw.store_tile(0, tw.init_tile(X, [0, 0], (N, N)))


def test_no_candidate_fits():
    with pytest.raises(tw.UnsupportedError, match="no value of N") as caught:
        choose(Request(impossible, *arrays((8, 8))))
    assert "N is 7" in str(caught.value)


@tw.kernel
def constrained(X, N: tw.constexpr = tw.auto):
    tw.static_assert(N % 128 == 0)
    tw.store_tile(0, tw.init_tile(X, [0, 0], (N, N)))


def test_choices_that_do_not_compile_are_passed_over():
    assert choose(Request(constrained, *arrays((8, 8)))) == {"N": 128}


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_targets_plan(target):
    rng = fresh_rng()
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((70, 50), (50, 90)))
    c = np.full((70, 90), np.nan, np.float32)
    kernel = product.options(target=target)
    kernel[lambda c: (tw.cdiv(70, c.BM), tw.cdiv(90, c.BN))](a, b, c)
    assert np.linalg.norm(c - a @ b) / np.linalg.norm(a @ b) < 1e-6


@pytest.mark.parametrize("limit", (1 << 11, 1 << 13))
def test_tiles_that_memory_limits_get_the_better_aspect(monkeypatch, limit):
    """Each extent alone can neither grow, for memory, nor shrink, for work."""

    def tall(values, program, arguments):
        m, n, k = (values[name] for name in ("BM", "BN", "BK"))
        return Choice(values, inf if m * n > limit else 1 / (m * n) + n * 1e-6 + k * 1e-9, 1)

    monkeypatch.setattr(planner, "costed", tall)
    chosen = choose(Request(product, *arrays((2048, 2048), (2048, 2048), (2048, 2048))))
    every = [(m, n) for m in CANDIDATES for n in CANDIDATES if m * n <= limit]
    best = min(every, key=lambda t: 1 / (t[0] * t[1]) + t[1] * 1e-6)
    assert (chosen["BM"], chosen["BN"]) == best


def test_what_costs_nothing_stays_in_the_middle_and_stands_first():
    """Steps of k of a product that memory bounds cost the same, but for the last bit of a float: 16 were chosen, half
    as deep as an instruction."""
    specs = [tw.spec((4096, 4096), dtype) for dtype in (tw.i8, tw.i8, tw.i32)]
    kernel = product.options(target="xe-bmg")
    given = kernel.launcher.bind(tuple(specs), {"ACC": tw.i32})
    request, _, options = kernel.chooser.request(given)
    assert get_target("xe-bmg").choices(request, options)[0].values["BK"] == 64
