"""`@tw.autotune`, and the choices that lie on disk: searched once, right all the while, found by the next process."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest

import tilewright as tw
from tests.draws import fresh_rng
from tilewright import knobs, records
from tilewright.lang.kernel import Kernel
from tilewright.runtime import search, tuning
from tilewright.targets.base import get_target


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with knobs.override(cache_dir=tmp_path / "cache", target="cpu"):
        yield tmp_path / "cache"


CONFIGS = [{"BM": 16, "BN": 32}, {"BM": 64, "BN": 64}]


@tw.kernel
def added(X, Y, BM: tw.constexpr = tw.auto, BN: tw.constexpr = tw.auto):
    m, n = tw.program_id(0) * BM, tw.program_id(1) * BN
    y = tw.init_tile(Y, [m, n], (BM, BN))
    tw.store_tile(tw.load_tile(y) + tw.load_tile(tw.init_tile(X, [m, n], (BM, BN))), y)


@tw.kernel
def rounded(X, Y, HOW: tw.constexpr):
    x = tw.load_tile(tw.init_tile(X, [0, 0], (16, 16)))
    tw.static_assert(HOW in ("down", "left"), "that way")
    tw.store_tile(tw.floor(x), tw.init_tile(Y, [0, 0], (16, 16)))


def arrays(rows: int = 200, columns: int = 100):
    rng = fresh_rng()
    return [rng.standard_normal((rows, columns), np.float32) for _ in range(2)]


def launch(kernel, x, y, **given):
    """One launch, and what it must have done: once, whatever the search tried on the arrays before."""
    before = y.copy()
    kernel[lambda c: (tw.cdiv(x.shape[0], c.BM), tw.cdiv(x.shape[1], c.BN))](x, y, **given)
    np.testing.assert_allclose(y, before + x, rtol=1e-6)


def again(kernel: Kernel) -> Kernel:
    """The same kernel as another process would have it."""
    return kernel._like()


@pytest.fixture
def searches(monkeypatch):
    """The searches that are made."""
    made: list[list[dict[str, int]]] = []
    plain = search.search

    def watched(job, candidates, budget, progress):
        measured = plain(job, candidates, budget, progress)
        made.append([dict(c.constexprs) for c in measured if c.seconds])
        return measured

    monkeypatch.setattr(search, "search", watched)
    monkeypatch.setattr(search, "ROUNDS", search.LEAST_ROUNDS)  # who wins is of no concern
    monkeypatch.setattr(search, "MOST", 5)
    return made


def test_a_kernel_is_searched_at_its_first_launch_and_nevermore(searches):
    kernel = tw.autotune((config for config in CONFIGS), budget=30)(added)
    x, y = arrays()
    for _ in range(3):
        launch(kernel, x, y)
    assert len(searches) == 1 and all(config in searches[0] for config in CONFIGS)
    assert len(searches[0]) == 3, "the planner's first choice is measured beside them"
    launch(again(kernel), x, y)
    launch(again(kernel), *arrays(210, 108))  # of the same kind: extents to a power of two
    assert len(searches) == 1
    launch(again(kernel), *arrays(20, 108))
    assert len(searches) == 2


def test_the_winner_is_what_is_launched(searches):
    kernel = tw.autotune(CONFIGS, budget=30)(added)
    x, y = arrays()
    launch(kernel, x, y)
    best = searches[0][0]
    text = kernel.compile(x, y).ir["xetile"]
    assert f"tile<{best['BM']}x{best['BN']}xf32>" in text
    sized = kernel.compile(x, y, BM=8, BN=128).ir["xetile"]
    assert "tile<8x128xf32>" in sized, "constexprs that are given are not searched"


def test_a_key_says_which_launches_share_a_result(searches):
    kernel = tw.autotune(CONFIGS, key=["X"], budget=30)(added)
    for shape in ((200, 100), (200, 100), (210, 100)):
        launch(again(kernel), *arrays(*shape))
    assert len(searches) == 2


def test_compilation_does_not_search(searches):
    kernel = tw.autotune(CONFIGS, budget=30)(added)
    spec = tw.spec((200, 100), tw.f32)
    kernel.compile(spec, spec)
    assert not searches
    launch(kernel, *arrays())
    assert len(searches) == 1


def test_a_launch_that_runs_nothing_is_not_searched(searches):
    kernel = tw.autotune(CONFIGS, budget=30)(added)
    spec = tw.spec((200, 100), tw.f32)
    with pytest.raises(tw.LaunchError, match="no memory"):
        kernel[1](spec, spec)
    empty = np.empty((0, 64), np.float32)
    launch(kernel, empty, empty.copy())
    assert not searches


def test_constexprs_that_are_no_sizes(searches):
    """The planner knows nothing of types and names: the configs are all there is, and the one that runs is taken."""
    x, y = arrays(16, 16)
    tw.autotune([{"HOW": "up"}, {"HOW": "down"}, {"HOW": "away"}], budget=30)(rounded)[1](x, y)
    np.testing.assert_array_equal(y, np.floor(x))
    assert searches == [[{"HOW": "down"}]]


def test_a_process_that_may_have_no_children_searches_alone(tmp_path):
    context = multiprocessing.get_context("fork")
    x, y = arrays()

    def child() -> None:
        launch(tw.autotune(CONFIGS, budget=30)(added), x, y)
        os._exit(7)

    process = context.Process(target=child, daemon=True)
    process.start()
    process.join(120)
    assert process.exitcode == 7


def test_the_planners_choices_are_searched_where_there_are_no_configs(searches):
    launch(tw.autotune(budget=30)(added), *arrays())
    assert len(searches) == 1 and len(searches[0]) > 2


def test_candidates_that_are_wrong_or_refused_do_not_win(searches):
    @tw.autotune([{"BM": 16}, {"BM": 32}, {"BM": -1}, {"BM": 64}], budget=30)
    @tw.kernel
    def twisted(X, Y, BM: tw.constexpr):
        m = tw.program_id(0) * BM
        x = tw.load_tile(tw.init_tile(X, [m, 0], (BM, 16)))
        tw.store_tile(x * (3 if BM == 64 else 2), tw.init_tile(Y, [m, 0], (BM, 16)))

    x, y = arrays(256, 16)
    expected = twisted.compile(x, y).ir["xetile"]  # the others are held against the planner's
    right = 3 if "tile<64x16xf32>" in expected else 2
    twisted[lambda BM: tw.cdiv(256, BM)](x, y)
    np.testing.assert_allclose(y, right * x, rtol=1e-6)
    assert {"BM": -1} not in searches[0] and ({"BM": 64} in searches[0]) == (right == 3)


def test_a_result_says_what_was_measured(searches):
    kernel = tw.autotune(CONFIGS, budget=30)(added)
    launch(kernel, *arrays())
    ((key, record),) = records.every()
    found = tuning.find(key)
    assert found is not None and record.kind == "tuning" and "added(f32[200, 100]" in record.about
    assert record.machine == get_target("cpu").identity(knobs_options())
    assert found.planned is not None and found.seconds == found.seconds_of(found.constexprs) > 0
    assert len(found.measured) == 3


def knobs_options():
    from tilewright.targets.base import CompileOptions

    return CompileOptions(num_threads=knobs.current().num_threads)


def test_a_copy_of_the_program_elsewhere_finds_the_result(tmp_path):
    """A result belongs to the source, not to the file that it lies in."""
    text = (
        "import tilewright as tw\n{}def half(x):\n    return x * 0.5\n\n@tw.kernel\n"
        "def k(X, BM: tw.constexpr = tw.auto):\n    t = tw.init_tile(X, [0, 0], (BM, 16))\n"
        "    tw.store_tile(half(tw.load_tile(t)), t)\n"
    )
    sources = []
    for name, more in (("one", ""), ("two", "\n\n"), ("three", "F = 3\n")):
        file = tmp_path / f"{name}.py"
        file.write_text(text.format(more))
        scope = {"__name__": name}
        exec(compile(file.read_text(), str(file), "exec"), scope)
        sources.append((scope["k"].source, scope["k"].fingerprint()))
    assert len({source for source, _ in sources}) == 1
    assert len({fingerprint for _, fingerprint in sources}) == 3


def test_the_planner_is_asked_once_for_all_processes(monkeypatch):
    target, asked = get_target("cpu"), []
    plain = type(target).choices
    monkeypatch.setattr(
        type(target), "choices", lambda *args: asked.append(args) or plain(*args), raising=False
    )
    x, y = arrays(40, 64)
    for _ in range(3):
        launch(again(added), x, y)
    assert len(asked) == 1
    launch(again(added), *arrays(41, 64))
    assert len(asked) == 2, "the extents are in the key"
    launch(again(added).options(num_threads=1), x, y)
    assert len(asked) == 3, "so are the threads"
    with knobs.override(cache=False):
        launch(again(added), x, y)
    assert len(asked) == 4


@pytest.mark.parametrize("configs, key, words", [
    ([{"BX": 3}], None, "a config names 'BX'"),
    ([{"BM": 3}, {"BN": 3}], None, "do not give the same constexprs"),
    ([{}], None, "do not give the same constexprs"),
    ([{"BM": 3}], ["Z"], "key names 'Z'"),
    (3, None, "configs=3, key=None"),
    ([3], None, "configs is a list of dicts"),
    ({"BM": 3}, None, "configs is a list of dicts"),
    ([{"BM": 3}], "X", "key='X'"),
])  # fmt: skip
def test_configs_that_do_not_fit(configs, key, words):
    with pytest.raises(tw.CompileError, match=words):
        tw.autotune(configs, key)(added)


def test_what_cannot_be_searched():
    with pytest.raises(tw.CompileError, match="decorates a kernel"):
        tw.autotune()(lambda x: x)

    @tw.kernel
    def closed(X, BM: tw.constexpr = 16):
        tw.store_tile(tw.zeros((BM, 16), tw.f32), tw.init_tile(X, [0, 0], (BM, 16)))

    with pytest.raises(tw.CompileError, match="no constexpr of kernel closed is left open"):
        tw.autotune()(closed)
    with pytest.raises(tw.CompileError, match="0 seconds"):
        tw.autotune([{"BM": 16}], budget=0)(closed)
    with pytest.raises(tw.CompileError, match="'long' seconds"):
        tw.autotune([{"BM": 16}], budget="long")(closed)  # pyright: ignore


def test_a_search_walks_to_the_fastest_and_launches_take_it(monkeypatch):
    """Times by the sizes alone: the fastest lies where the planner would not begin."""

    x, y = arrays(64, 64)
    kernel = again(added)
    values = kernel.launcher.bind((x, y), {})
    chooser = kernel.variant_for(values).chooser
    every = chooser.candidates(values, [], planned=True)
    first = every[0].constexprs
    goal = next(c.constexprs for c in every if c.constexprs["BM"] == 16 and c.constexprs != first)

    def seconds(trial, candidate, calls):
        return 1e-3 * (1 + sum(abs(candidate.constexprs[n] - goal[n]) for n in goal) / 100)

    monkeypatch.setattr(search._Trial, "seconds", seconds)
    tuned = tw.autotune(budget=600)(kernel)
    monkeypatch.setattr(search, "BATCH", 4)
    monkeypatch.setattr(search, "PROMISING", 1.0)
    launch(tuned, x, y)
    ((key, _),) = records.every()
    found = tuning.find(key)
    assert found is not None and found.constexprs == goal
    text = again(added).compile(x, y).ir["xetile"]
    assert f"tile<{goal['BM']}x{goal['BN']}xf32>" in text


def test_what_was_kept_in_another_form_is_told_of(searches):
    launch(tw.autotune(CONFIGS, budget=30)(added), *arrays())
    ((key, record),) = records.every()
    records.keep(key, records.Record(record.kind, record.machine, record.about, {"seconds": "x"}))
    with pytest.warns(RuntimeWarning, match=r"added\(.* is damaged and not used"):
        assert tuning.find(key) is None


def test_a_search_goes_on_where_all_of_the_first_batch_but_one_are_refused(searches, monkeypatch):
    monkeypatch.setattr(search, "BATCH", 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    configs = [{"HOW": how} for how in ("up", "down", "away", "left", "aside")]
    x, y = arrays(16, 16)
    tw.autotune(configs, budget=30)(rounded)[1](x, y)
    np.testing.assert_array_equal(y, np.floor(x))
    assert sorted(each["HOW"] for each in searches[0]) == ["down", "left"]
