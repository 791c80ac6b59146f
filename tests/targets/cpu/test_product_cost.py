"""What products are estimated to take on a CPU: by shapes, threads and how operands lie."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.suites.layers import product
from tests.passes.test_planner import Request
from tilewright.targets.base import CompileOptions, get_target
from tilewright.targets.cpu.machine import CpuMachine, machine
from tilewright.targets.cpu.product_cost import PanelCosts
from tilewright.targets.cpu.product_tiles import product_tile
from tilewright.uarch.cpu import PANEL_RATES
from tilewright.uarch.products import PlacedProduct, Side


def seconds(shape, tile, types=("f32",) * 3, along_k=(True, False), threads=1, level="amx"):
    m, n, k = shape
    a = Side(tile[0], m, True, along_k[0])
    b = Side(tile[1], n, True, along_k[1])
    costs = PanelCosts(machine(level), threads, PANEL_RATES)
    return sum(costs.causes([PlacedProduct(types, a, b, k, 1)], a.tiles * b.tiles).values())


def test_twice_the_work_takes_about_twice_as_long():
    once, twice = (seconds((1024, n, 1024), (128, 128)) for n in (1024, 2048))
    assert 1.8 < twice / once < 2.2
    assert 1.8 < seconds((1024, 1024, 2048), (128, 128)) / once < 2.2


@pytest.mark.parametrize("shape", [(256, 128, 0), (256, 0, 64), (0, 128, 64), (0, 0, 0)])
@pytest.mark.parametrize("types", [("f32",) * 3, ("bf16", "bf16", "f32")])
@pytest.mark.parametrize("rows", [4, 128])
def test_empty_products_take_their_programs_alone(shape, types, rows):
    assert 0 <= seconds(shape, (rows, 64), types, threads=2) < 1e-4


def test_a_launch_of_empty_products_chooses_how_programs_merge():
    a, b, c = (np.full(s, 7, np.float32) for s in ((300, 0), (0, 200), (300, 200)))
    product.options(target="cpu", num_threads=2)[3, 4](a, b, c, BM=128, BN=64, BK=32)
    assert not c.any()


def test_threads_share_programs_and_idle_where_there_are_too_few():
    alone, shared = (seconds((2048, 2048, 2048), (128, 128), threads=t) for t in (1, 16))
    assert 8 < alone / shared < 16
    few, many = (seconds((128, 128, 4096), (t, t), threads=16) for t in (128, 32))
    assert many < few / 2


@pytest.mark.parametrize("types", [("f32",) * 3, ("bf16", "bf16", "f32")])
def test_rows_that_are_packed_by_their_reader_stay_in_its_cache(types):
    """Rows beside a wide matrix that is read once: a block of all its columns would leave the second cache, and so
    would two of vectors, of which the next one is fetched. Those of tiles are less deep."""
    costs = PanelCosts(machine("amx"), 1, PANEL_RATES)
    most = 24 if types[0] == "f32" else 16
    shape = (1, most, 4608 if types[0] == "f32" else 4096, 4096)
    rows, columns = product_tile(costs, shape, types, (True, False), 1e-10)
    assert rows == most and (columns <= 512 if types[0] == "f32" else 256 <= columns <= 2048)


@pytest.mark.parametrize("level", ["avx2", "avx512", "amx"])
def test_sums_are_added_up_in_one_order_on_any_number_of_threads(level, rng):
    """Tiles of few rows or columns are multiplied where the other operand lies, in another order of k."""
    tiles = set()
    for _ in range(20):
        m, n = (int(2 ** rng.uniform(0, 7)) for _ in "mn")
        forms = []
        for threads in (1, 2, 7, 16):
            costs = PanelCosts(machine(level), threads, PANEL_RATES)
            tile = product_tile(costs, (1, m, n, 3000), BF16, (True, True), 1e-10)
            a, b = (Side(t, x, True, True) for t, x in zip(tile, (m, n), strict=True))
            forms.append(costs.order([PlacedProduct(BF16, a, b, 3000, 1)], a.tiles * b.tiles).forms)
            tiles.add((m, n, tile))
        assert len({*map(tuple, forms)}) == 1, (m, n)
    assert len(tiles) > 20


@pytest.mark.parametrize("shape", [(16, 1536, 7168), (24, 2048, 8192), (20, 2560, 10240)])
def test_the_next_block_of_vectors_is_fetched_beside_512_columns(shape):
    """Measured on four cores at once, 576 columns take 1.14 to 1.40 of the time of 512, and 1536 columns as long; 64
    take 0.90 to 0.98 of it."""
    narrow, most, more, wide = (seconds(shape, (32, n)) for n in (64, 512, 576, 1536))
    assert 0.85 * most < narrow < 1.05 * most
    assert 1.1 * most < more < 1.1 * wide


def test_rows_that_share_sets_of_the_second_cache_are_not_fetched_in_time():
    """Measured on four cores at once, 16x8192x2048 takes 1.19 and 1.22 times as long by 512 columns as by 1024, rows of
    16 KB 0.98 of it; by as many as the first cache holds beside A, 64, they take 0.89 of the time of 96."""
    far, near = (seconds((24, n, 2048), (24, 512)) / n for n in (8192, 4096 + 1024))
    assert far > 1.1 * near
    assert seconds((16, 1600, 7168), (32, 64)) < seconds((16, 1600, 7168), (32, 96))


BF16, F16 = ("bf16", "bf16", "f32"), ("f16", "f16", "f32")


def test_rows_are_read_twice_beside_one_tile_somewhat_slower_than_once_beside_two():
    """Of one thread, which has them in its second cache the second time: there they lie as far apart."""
    i8 = ("i8", "i8", "i32")
    twice, once = (seconds((31, 4608, 3584), (m, 128), i8, (True, True)) for m in (16, 32))
    assert 1.1 < twice / once < 1.4


def test_rows_of_an_array_are_read_once_beside_up_to_four_tiles():
    """Of B, which lies along k, beside 64 rows of A; programs of 32 rows read it twice, in part from a cache."""
    once, twice = (seconds((64, 4096, 4096), (m, 512), BF16, (True, True)) for m in (64, 32))
    assert once < 0.9 * twice


def test_narrow_strips_of_rows_beside_a_few_rows_cost_little_more_than_wide_ones():
    narrow, wide = (seconds((7, 1536, 7168), (8, n)) for n in (64, 512))
    assert wide < narrow < 1.5 * wide


def test_a_copy_that_the_last_cache_does_not_hold_is_read_from_memory():
    """B, which is packed once for many rows of A: 16 MB and 64 MB of it."""
    near, far = (
        seconds((512, n, 4096), (64, 512), BF16, (True, True), 2) / n for n in (2048, 8192)
    )
    assert far > 1.2 * near


@pytest.mark.parametrize("rows, slower", [(4096, True), (128, False)])
def test_a_large_array_is_packed_no_faster_than_memory_gives_it(rows, slower):
    """A, 32 MB of it and 1 MB, packed once for eight programs."""
    side = Side(512, 4096, True, False)
    product = [PlacedProduct(BF16, Side(128, rows, True, True), side, 4096, 1)]
    far, near = (
        PanelCosts(machine("amx"), 1, replace(PANEL_RATES, stream=x)).causes(product, 256)["copies"]
        for x in (1.52e10, 4.96e10)
    )
    assert (far > 1.005 * near) == slower


@pytest.mark.parametrize("threads", [1, 2])
def test_large_rows_of_a_are_read_once_or_twice_rather_than_packed_for_all(threads):
    """Measured: tiles of 2048 and 4096 columns take a tenth less time on one thread than those of 1024, on two 3 to 8 %
    less: 32 MB of panels go to memory and come back for every program."""
    costs = PanelCosts(machine("amx"), threads, PANEL_RATES)
    assert product_tile(costs, (1, 4096, 4096, 4096), BF16, (True, False), 1e-10)[1] >= 2048


@pytest.mark.parametrize("k, late", [(1024, True), (256, False)])
def test_panels_that_few_rows_use_come_late_from_beyond_the_second_cache(k, late):
    """Of B, while the panels before them are used: with each use a part of them is fetched."""
    i8 = ("i8", "i8", "i32")

    def slower(rows: int) -> float:
        a, b = Side(rows, 1024, True, True), Side(1024, 1024, True, False)
        costs = (
            PanelCosts(machine("amx"), 1, replace(PANEL_RATES, far_panels=x)) for x in (1e9, 1e12)
        )
        far, near = (c.causes([PlacedProduct(i8, a, b, k, 1)], a.tiles)["copies"] for c in costs)
        return far - near

    assert (slower(128) > 1.1 * 2 * slower(256)) == late


def test_rows_that_lie_apart_come_slower_beside_more_tiles():
    """Beyond what these take to be multiplied: of four tiles, two lines in six are theirs, of two, two in four."""
    costs = PanelCosts(machine("amx"), 1, replace(PANEL_RATES, stream=1e12, memory=1e12))

    def copies(m: int) -> float:
        a, b = Side(m, m, True, True), Side(512, 8192, True, True)
        return costs.causes([PlacedProduct(BF16, a, b, 4096, 1)], 16)["copies"]

    assert copies(64) > 1.3 * copies(32) > 1.3 * 1.2 * copies(16)


@pytest.mark.parametrize("times", [1, 7])
def test_rows_beside_more_columns_than_tiles_take_at_once_are_read_for_each_turn_of_these(times):
    """A's, which 16 threads read where they lie beside up to 128 columns: 64 of these are one turn of four tiles, 96
    two of three tiles, 128 two of four, the second from the second cache. Where a loop repeats the product, blocks of k
    are short: 96 are three of two tiles, 128 four, and the next turn is no faster."""
    fast = {"stream": 1e12, "memory": 1e12, "pack_groups": 1e15, "panels": 1e15}
    costs = PanelCosts(machine("amx"), 16, replace(PANEL_RATES, **fast))

    def copies(n: int) -> float:
        """Of one program."""
        a, b = Side(256, 1024, True, True), Side(n, 16 * n, True, True)
        return costs.causes([PlacedProduct(BF16, a, b, 4096, times)], 64)["copies"]

    once, more, most = (copies(n) for n in (64, 96, 128))
    if times == 1:  # of the rate beside four tiles, that beside three is 1.2 times as much
        assert 0.8 < more / once < 0.9 and most == pytest.approx(once, rel=0.1)
    else:  # that beside two is 1.5 times as much
        assert 1.9 < more / once < 2.3
        assert 1.25 < most / more < 1.4


def test_rows_beside_few_columns_are_read_as_fast_as_they_are_copied():
    """By one thread, beside up to 128 columns rather than as panels that it copies for 160: 4096x128x4096 in bf16 took
    4.9 ms so, and 7.4."""
    found = product_tile(
        PanelCosts(machine("amx"), 1, PANEL_RATES), (1, 4096, 112, 4096), BF16, (True, False), 1e-10
    )
    assert found[1] == 128


@pytest.mark.parametrize("types, tiles", [(("i16", "i16", "i32"), False), (BF16, True)])
def test_sums_beyond_the_second_cache_come_sooner_beside_tiles(types, tiles):
    """These fetch the next block of C meanwhile; a tile of C that the cache holds takes as long either way."""
    rates = replace(PANEL_RATES, far_tile_sums=1e3 * PANEL_RATES.far_tile_sums)

    def sums(tile: int, rates=PANEL_RATES) -> float:
        side = Side(tile, 2048, True, True)
        product = PlacedProduct(types, side, replace(side, along_k=False), 2048, 1)
        return PanelCosts(machine("amx"), 1, rates).causes([product], side.tiles**2)["sums"]

    assert sums(2048) > 1.2 * sums(256)
    assert (sums(2048, rates) < sums(2048)) == tiles
    assert sums(128, rates) == sums(128)


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_panels_of_deep_blocks_come_from_the_second_cache_for_each_panel_of_rows(threads):
    """Up to 64 columns have blocks of k too deep for the first cache, which rows that were copied do not need. Measured
    on two threads: bf16 199x2560x2048 by 256x64 takes 1.26 times as long as by 256x256, 204x2048x2048 1.14 times; on
    16 int8 304x8192x8192 by 304x64 takes 1.23 times as long as by 304x128, bf16 624x4608x3584 1.21 times."""

    def read(rows: int, n: int, k: int = 2048) -> float:
        """Bytes of a program that come as fast as panels that the same core has packed."""
        a, b = Side(rows, 2 * rows, True, True), Side(n, 64 * n, True, True)
        rates = (replace(PANEL_RATES, panels=x, uneven=0.0) for x in (1e9, 1e10))
        costs = (PanelCosts(machine("amx"), threads, each) for each in rates)
        slow, fast = (c.causes([PlacedProduct(BF16, a, b, k, 1)], 128)["copies"] for c in costs)
        return (slow - fast) / (1e-9 - 1e-10) * threads / 128

    columns = 2 * 2048 * 64  # bytes, for 16 rows each
    assert read(512, 64) - read(256, 64) > 15.9 * columns
    assert read(512, 256) - read(256, 256) < 5 * columns  # of blocks that the first cache holds
    assert read(512, 64, 256) - read(256, 64, 256) < columns


def test_rows_that_do_not_run_along_k_are_turned_round():
    turned, lying = (seconds((512, 64, 512), (64, 64), BF16, (x, False)) for x in (False, True))
    assert turned > 1.2 * lying


def test_many_rows_that_share_sets_of_a_cache_come_late():
    """Rows of A that lie a power of two apart beside a few columns, in pairs of k; a few rows are fetched in time."""
    few, many, apart = (
        seconds((4096, 32, k), (m, 32), ("i16", "i16", "i32")) / k
        for m, k in ((32, 16384), (1024, 16384), (1024, 16000))
    )
    assert many > 1.2 * few and many > 1.1 * apart


def test_many_rows_of_single_k_come_once():
    """Beside all columns of a tile, wherever they lie, as long as the second cache has a block of k of these."""
    near, apart, wide = (
        seconds((2048, 8192, k), (2048, n)) / k for k, n in ((2000, 256), (2048, 256), (2048, 8192))
    )
    assert apart < 1.02 * near < 1.02 * 0.95 * wide


def test_rows_of_b_that_few_rows_of_a_need_are_not_copied():
    """Unless they lie where they share sets of a cache, or are columns, or come from memory."""
    here, apart, turned, far = (
        seconds((64, n, k), (64, 512), along_k=(True, t)) / n / k
        for n, k, t in (
            (2000, 1024, False),
            (2047, 1024, False),
            (2000, 1024, True),
            (9040, 1024, False),
        )
    )
    assert here < 0.98 * min(apart, turned, far)


def test_strips_of_a_few_columns_read_whole_lines_of_rows_that_lie_apart():
    """B across k, each element once: 16 columns of f32 are a line of every row, 48 of bf16 two of them."""
    line, wide = (seconds((10, 4096, 8192), (16, n), threads=16) for n in (16, 64))
    assert line > wide
    part, whole = (seconds((16, 1536, 7168), (16, n), BF16) / n for n in (48, 64))
    assert part > 1.2 * whole


def test_parts_of_rows_that_are_an_odd_number_of_lines_cost_half_a_line_more():
    """Three lines of each row of B; measured on one thread 1.1 to 1.25 of what two and four take. (Two are more parts,
    which on other hosts cost as much.)"""
    two, three, four = (seconds((16, 5120, 5120), (24, n)) for n in (32, 48, 64))
    assert three > 1.05 * four
    assert three > 0.99 * two


def test_rows_of_b_that_share_sets_are_read_twice_rather_than_copied():
    """Measured on one thread of two hosts, 16 rows at a time take 0.75 to 0.79 of the time of all 32 beside rows of
    16 KB; beside others that is 1.0 to 1.3."""
    for n, k in ((4096, 14336), (4096, 4096)):
        assert seconds((32, n, k), (16, n)) < min(seconds((32, n, k), (r, 512)) for r in (32, 128))
    assert seconds((32, 4608, 4096), (16, 4608)) > seconds((32, 4608, 4096), (32, 512))


def test_rows_that_the_program_before_read_come_from_the_second_cache():
    """16 rows by 8 programs, and 32 by twice as many, of which each second one finds B there."""
    types = ("i8", "i8", "i32")
    once, again = (seconds((m, 2048, 2048), (16, 256), types, (True, True)) for m in (16, 32))
    assert 1.5 < again / once < 1.75


@pytest.mark.parametrize("rows, cause", [(16, "copies"), (8, "products")])
def test_what_is_fetched_beyond_parts_of_rows_other_threads_read(rows, cause):
    """Narrow strips of B cost one or two threads more than wide ones; of many they follow one another at once, whether
    16 rows' are packed or those of 8 multiplied where they lie."""

    def narrow(threads: int) -> float:
        costs = PanelCosts(machine("amx"), threads, replace(PANEL_RATES, memory=1e12, uneven=0.0))

        def taken(n: int) -> float:
            a, b = Side(rows, rows, True, True), Side(n, 8192, True, False)
            return costs.causes([PlacedProduct(BF16, a, b, 2048, 1)], b.tiles)[cause]

        return taken(64) / taken(256)

    one, two, four, many = map(narrow, (1, 2, 4, 16))
    assert 0.95 * one < two and two > 1.1 * max(four, many)


@pytest.mark.parametrize("n, k", [(13824, 5120), (18944, 3584)])
def test_an_array_of_many_columns_is_read_once_by_16_rows_rather_than_twice_by_8(n, k):
    """Measured on 16 threads, 16 x 32 take 0.71 and 0.81 of the time: 8 rows are multiplied in the time in which they
    come, and not quite meanwhile."""
    once, twice = (
        seconds((16, n, k), tile, along_k=(True, True), threads=16) for tile in ((16, 32), (8, 96))
    )
    assert once < twice


def test_narrow_strips_of_vectors_that_many_threads_pack_are_no_slower_than_wide_ones():
    """Measured on 16 threads 0.86 of the time of strips of 64 columns."""
    few, many = (
        seconds((13, 3584, 18944), (16, 32), threads=threads)
        / seconds((13, 3584, 18944), (16, 64), threads=threads)
        for threads in (2, 16)
    )
    assert many < 1 < few


def test_operands_that_are_computed_leave_the_second_cache_by_degrees():
    """Scores of 128 rows beside 512, 1024 and 4096 keys: the same work in fewer turns."""
    costs = PanelCosts(machine("amx"), 16, PANEL_RATES)

    def copies(keys: int) -> float:
        a, b = Side(128, 128, False, True), Side(64, 64, True, False, 8, 4096 * 64)
        return costs.causes([PlacedProduct(BF16, a, b, keys, 4096 // keys)], 64)["copies"]

    near, beyond, far = map(copies, (512, 1024, 4096))
    assert 1.01 * near < beyond < 0.9 * far


@pytest.mark.parametrize("shape, columns", [((10, 10240, 2560), 160), ((16, 18944, 3584), 256)])
def test_rows_of_f32_that_one_program_multiplies_read_b_once(shape, columns):
    """By two programs of 8 rows, which read it where it lies, they took 1.2 to 1.4 times as long on 16 threads."""
    twice, once = (seconds(shape, (m, columns), threads=16) for m in (8, 16))
    assert twice > once


def test_one_thread_waits_for_no_other():
    alone, four = (PanelCosts(machine("amx"), t, replace(PANEL_RATES, meeting=1.0)) for t in (1, 4))
    side = Side(64, 1024, True, True)
    copied = [
        costs.causes([PlacedProduct(("f32",) * 3, side, side, 1024, 1)], 256)["copies"]
        for costs in (alone, four)
    ]
    assert copied[0] < 1 < copied[1]


def test_the_last_of_several_threads_ends_later_and_later_where_they_are_more():
    ends = replace(PANEL_RATES, uneven=1e6)
    side = Side(128, 256, True, True)
    product = [PlacedProduct(("f32",) * 3, side, side, 256, 1)]
    one, two, four = (
        sum(PanelCosts(machine("amx"), t, ends).causes(product, 4).values()) for t in (1, 2, 4)
    )
    assert one < 1e-2 < two < four


@pytest.mark.parametrize("shape", [(16, 4096, 11008), (16, 3584, 18944), (16, 2560, 10240)])
@pytest.mark.parametrize("columns", [512, 640, 1024])
def test_parts_of_rows_cost_few_rows_beside_them_as_much_as_a_copy(shape, columns):
    """Two programs of 8 rows, which read B where it lies, are no way round it: measured 1.2 to 1.7 times as long."""
    twice, once = (seconds(shape, (m, columns), BF16, (True, False), threads=2) for m in (8, 16))
    assert twice > 1.2 * once


def test_a_core_may_have_rates_of_its_own():
    x86 = machine("vnni").architecture
    known = CpuMachine.of(x86, "vnni", core="znver5")
    assert known.panel_rates.stream > machine("vnni").panel_rates.stream == PANEL_RATES.stream
    assert known.key() != CpuMachine.of(x86, "vnni", core="icelake-server").key()
    assert CpuMachine.of(x86, "vnni", core="icelake-server").panel_rates == PANEL_RATES


def test_a_round_of_a_few_programs_is_no_whole_round():
    """The slower of 16 cores leave it to the faster; fewer programs than cores are as slow as as many."""
    three, more, four = (seconds((n * 64, 2048, 2048), (64, 256), threads=16) for n in (6, 7, 8))
    assert three < 0.95 * more and more < 0.95 * four
    half, one = (seconds((n * 64, 512, 800), (64, 256), threads=16) for n in (4, 8))
    assert 0.85 * one < half < one


def test_small_programs_share_two_threads_better_than_one_large_one_for_each():
    large, small = (seconds((5, 8192, 2048), (8, n), threads=2) for n in (4096, 256))
    assert small < 0.93 * large


def test_what_of_a_tile_lies_outside_of_the_arrays_is_cleared_but_not_multiplied():
    small, large = (seconds((40, 512, 512), (m, 128)) for m in (72, 256))
    assert small < large < 1.1 * small
    small, large = (seconds((266, 1796, 16), (m, 256), BF16) for m in (272, 512))
    assert 1.1 * small < large


def test_tiles_and_instructions_are_those_of_the_machine():
    bf16 = ("bf16", "bf16", "f32")
    amx, vectors = (seconds((1024,) * 3, (256, 256), bf16, level=x) for x in ("amx", "avx2"))
    assert amx < vectors / 4
    i8, f16 = (
        seconds((1024,) * 3, (256, 256), t) for t in (("i8", "i8", "i32"), ("f16", "f16", "f32"))
    )
    assert i8 < amx < f16


@pytest.mark.parametrize("threads", [1, 4])
def test_a_plain_kernel_with_sizes_left_open_gets_tiles_as_good_as_those_of_ops(threads):
    a, b = np.zeros((300, 512), np.float32), np.zeros((512, 700), np.float32)
    request = Request(product, a, b, np.zeros((300, 700), np.float32))
    options = CompileOptions(target="cpu", num_threads=threads)
    chosen = get_target("cpu").choices(request, options)[0]
    tile = get_target("cpu").product_tile(
        (1, 300, 700, 512), (request.arguments[0].dtype,) * 3, (True, False), options
    )
    types, extents = ("f32",) * 3, (300, 700, 512)
    own, of_ops = (
        seconds(extents, t, types, threads=threads)
        for t in ((chosen.values["BM"], chosen.values["BN"]), tile)
    )
    assert own < 1.25 * of_ops and chosen.values["BK"] == 64


def test_every_target_may_be_asked():
    assert (
        get_target("reference").product_tile((1, 9, 9, 9), (), (True, True), CompileOptions())
        is None
    )
    costs = PanelCosts(machine("avx2"), 2, PANEL_RATES)
    assert product_tile(costs, (3, 5, 5, 7), ("f64",) * 3, (False, False), 1e-9)[0] >= 5


def test_tiles_are_as_large_as_a_share_of_the_arrays():
    """Rows beyond whole panels are not multiplied, and rows of B that memory holds are read as a whole."""
    costs, types = PanelCosts(machine("amx"), 1, PANEL_RATES), ("bf16", "bf16", "f32")
    assert product_tile(costs, (1, 112, 4096, 4096), types, (True, False), 1e-10)[0] == 112
    assert product_tile(costs, (1, 48, 3584, 18944), types, (True, False), 1e-10)[1] == 3584


def test_tiles_that_do_not_start_where_panels_do_are_packed_once_too():
    """24 rows of 48 are a panel, as 32 and the rest are: panels begin anew with tiles."""
    i8 = ("i8", "i8", "i32")
    apart, whole = (seconds((48, 6144, 4096), (m, 128), i8, (True, True)) for m in (24, 32))
    assert abs(apart - whole) < 0.05 * whole


def test_a_last_tile_of_few_rows_takes_less_unless_its_round_waits_for_whole_ones():
    ragged, whole = (seconds((m, 2048, 2048), (256, 256)) for m in (300, 512))
    assert ragged < 0.75 * whole
    ragged, whole = (seconds((m, 256, 512), (256, 256), threads=2) for m in (300, 512))
    assert 0.8 * whole < ragged  # nobody waits for a second whole one


@pytest.mark.parametrize("tile", [(256, 2048), (1024, 512)])
def test_blocks_beyond_the_second_cache_cost_more_but_not_ten_times_as_much(tile):
    near, far = (seconds((2048, 4096, 4096), t, BF16, (True, True)) for t in ((256, 512), tile))
    assert near < far < 2 * near


def test_short_rounds_of_wide_tiles_show_where_memory_is_read():
    """6144 columns in three programs of two threads take as long as in two of twice the width."""
    three, even = (seconds((32, 6144, 4096), (32, n), BF16, (True, True), 2) for n in (2048, 512))
    assert three > 1.2 * even


@pytest.mark.parametrize("shape", [(64, 7, 48, 40), (256, 9, 30, 50), (64, 40, 24, 32)])
def test_small_products_of_a_batch_have_no_more_rows_than_they_need(shape):
    """All of a tile is multiplied where both operands are read where they lie."""
    costs = PanelCosts(machine("amx"), 1, PANEL_RATES)
    rows, columns = product_tile(costs, shape, ("f32",) * 3, (True, False), 1e-10)
    assert shape[1] <= rows <= shape[1] + 7 and shape[2] <= columns <= shape[2] + 15
