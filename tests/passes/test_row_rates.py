"""What launches without products are told to take, by the rows of their tiles."""

from dataclasses import replace

import pytest

import tilewright as tw
from tests.passes.test_planner import Request, arrays, product, rows
from tilewright.passes import planner
from tilewright.passes.launch_cost import Program, costed, launch_seconds
from tilewright.targets.base import CompileOptions, get_target
from tilewright.uarch.base import GENERIC


@tw.kernel
def column_sums(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    n = tw.program_id(0) * BN
    s = tw.zeros((1, BN), tw.f32)
    for m in range(0, X.shape[0], BM):
        s = s + tw.sum(tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))), 0)
    tw.store_tile(s, tw.init_tile(Y, [0, n], (1, BN)))


@tw.kernel
def doubled(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    x = tw.load_tile(tw.init_tile(X, [m, n], (BM, BN)))
    tw.store_tile(x * 2, tw.init_tile(Y, [m, n], (BM, BN)))


def test_what_is_loaded_stays_near_the_core_as_what_is_computed_does():
    request = Request(column_sums, *arrays((1310, 2007), (1, 2007)))
    rates = get_target("cpu").rates(CompileOptions("cpu", num_threads=1))
    best = planner.choices(request, rates, (1, 16, 64, 256, 2048))[0].values
    assert best["BM"] * best["BN"] * 4 <= rates.plain.cache_bytes


def test_kernels_without_products_have_rates_of_their_own():
    plain = replace(GENERIC, launch_seconds=1.0)
    rates = replace(GENERIC, plain=plain)
    for kernel, shapes, least in (
        (rows, ((64, 1024), (64, 1024)), 1.0),
        (product, ((64, 64), (64, 64), (64, 64)), 0.0),
    ):
        request = Request(kernel, *arrays(*shapes))
        module = request.build(dict.fromkeys(request.names, 64))
        assert least <= launch_seconds(module, request.arguments, rates) < least + 0.1


def test_each_row_of_a_tile_begins_anew():
    rates = replace(GENERIC, row_seconds=1.0)
    request = Request(column_sums, *arrays((100, 96), (1, 96)))

    def told(m, n):
        module = request.build({"BM": m, "BN": n})
        one, none = (launch_seconds(module, request.arguments, r) for r in (rates, GENERIC))
        return round(one - none)

    # Of a program on each of three cores: 7 turns of 16 rows, loaded and summed; one row of sums, made and stored.
    assert told(16, 32) == 7 * 32 + 2
    assert told(128, 32) == 100 + 128 + 2, "rows of a tile that its array has not are not loaded"


def test_rows_that_are_summed_are_gone_through():
    request = Request(column_sums, *arrays((64, 128), (1, 128)))

    def values(n):
        program = Program.of(request.build({"BM": 64, "BN": n}), replace(GENERIC, row_seconds=1.0))
        return costed({}, program, request.arguments).causes["values"]

    assert values(1024) == pytest.approx(8 * values(128)), "beyond the array as inside of it"
    assert values(128) >= 64 * 128 * 4 / GENERIC.elementwise_bytes


def test_rows_that_are_only_stored_end_with_their_array():
    """So the last tile may be longer than what is left of a row, as little as shorter rows gain by that."""
    request = Request(doubled, *arrays((64, 96), (64, 96)))

    def values(n):
        program = Program.of(request.build({"BM": 64, "BN": n}), replace(GENERIC, row_seconds=1.0))
        return costed({}, program, request.arguments).causes["values"]

    assert values(96) < values(128) < values(1024) < 4 * values(96)


def test_parts_of_many_rows_come_late():
    def told(streams, m, n):
        rates = replace(GENERIC, streams=streams, row_seconds=0.0)
        request = Request(column_sums, *arrays((512, 512), (1, 512)))
        causes = costed({}, Program.of(request.build({"BM": m, "BN": n}), rates), request.arguments)
        return causes.causes["memory"]

    stored = 4 * 128 / GENERIC.memory_bytes
    loaded = told(0, 64, 128) - stored
    assert told(64, 64, 128) == pytest.approx(loaded + stored)
    assert told(16, 64, 128) == pytest.approx(1.75 * loaded + stored)
    assert told(16, 64, 512) == pytest.approx(told(0, 64, 512)), "whole rows follow one another"
