"""Who wins a contest, by times that are given here: no clock is read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.draws import fresh_rng
from tilewright.runtime import contest, search
from tilewright.runtime.contest import Candidate, Contest
from tilewright.runtime.search import Steps, next_batch

ROUNDS, LEAST = 50, 5


def run(
    true: list[float], noise: Callable[[], float], end: float = float("inf")
) -> tuple[list[Candidate], Candidate, list[int]]:
    """Candidates, the winner, and who was sampled: a sample takes a second of the clock."""
    candidates = [Candidate({"BM": i}) for i in range(len(true))]
    asked: list[int] = []

    def sample(candidate: Candidate, calls: int) -> float:
        asked.append(candidate.constexprs["BM"])
        return true[asked[-1]] * noise()

    made = Contest(candidates[0], sample, end, 0.005, lambda: float(len(asked)))
    made.heat(candidates[1:])
    return candidates, made.final(ROUNDS, LEAST, 1e9, lambda: None), asked


def test_the_first_stays_where_all_are_alike():
    rng = fresh_rng()
    for _ in range(5):
        candidates, winner, _ = run([1e-3] * 20, lambda: 1 + 0.03 * abs(rng.standard_normal()))
        assert winner is candidates[0]


def test_a_faster_one_wins_on_a_machine_that_slows_down():
    """Each time is longer than the one before: what is measured last looks the slowest."""
    speed = iter(range(1, 10**6))
    rng = fresh_rng()
    candidates, winner, _ = run(
        [1e-3, 1.01e-3, 0.95e-3, 0.97e-3],
        lambda: (1 + next(speed) / 100) * (1 + 0.01 * abs(rng.standard_normal())),
    )
    assert winner is candidates[2]
    assert 0.93 < winner.median / candidates[0].median < 0.97


def test_a_slower_one_never_wins_however_lucky_its_heat():
    times = iter([1.0] * 4 + [0.1] * 4)  # the first rounds of the second candidate
    candidates, winner, _ = run([1e-3, 1.002e-3], lambda: next(times, 1.0))
    assert winner is candidates[0]


def test_those_that_were_lucky_in_a_heat_do_not_keep_the_fastest_out():
    """Ten look twice as fast as they are, in their heat."""
    true = [1.0, 0.9, *[1.0] * 10]
    lucky = iter([1.0] * (2 + 2 * 2) + [0.5] * 20)
    _, winner, _ = run(true, lambda: next(lucky, 1.0))
    assert winner.constexprs["BM"] == 1


@pytest.mark.parametrize("every, more", [(3, True), (50, False)])
def test_what_noise_hides_gets_more_rounds(every, more):
    """One in three of its times is long: of 50 rounds that is more than chance would need."""
    first, other = (Candidate({"BM": i}) for i in range(2))
    turn = iter(range(1, 10**6))

    def sample(candidate: Candidate, calls: int) -> float:
        return 1.0 if candidate is first else 1.05 if next(turn) % every == 0 else 0.95

    made = Contest(first, sample, float("inf"), 0.005)
    made.heat([other])
    assert made.final(ROUNDS, LEAST, 1e9, lambda: None) is other
    assert (len(other.ratios) > ROUNDS) == more


def test_what_saves_less_than_is_asked_for_does_not_win():
    candidates, winner, _ = run([1.0, 1 - 0.9 * contest.GAIN], lambda: 1.0)
    assert winner is candidates[0]
    candidates, winner, _ = run([1.0, 1 - 1.1 * contest.GAIN], lambda: 1.0)
    assert winner is candidates[1]


def test_slow_ones_are_asked_once_and_few_to_the_end():
    true = [1.0, 10.0, *(1 + i / 100 for i in range(30))]
    candidates, _, asked = run(true, lambda: 1.0)
    assert asked.count(1) == 2, "a launch after others, and one more"
    finalists = [c for c in candidates[1:] if len(c.ratios) == ROUNDS]
    assert [c.constexprs["BM"] for c in finalists] == [2, 3, 4, 5]
    assert all(c.seconds for c in candidates)


def test_the_final_ends_when_the_time_is_up():
    candidates, winner, asked = run([1.0, 0.5], lambda: 1.0, end=0.0)
    assert len(candidates[1].ratios) == LEAST and winner is candidates[1], asked


def steps_of(candidates: list[Candidate]) -> Steps:
    return Steps([c.constexprs for c in candidates])


def test_neighbours_of_the_fastest_and_the_cheapest_are_tried_next():
    sizes = (16, 32, 48, 64, 96, 128)
    every = [
        Candidate({"BM": m, "BN": n}, estimate=1.0 if m == n == 128 else 1.5 if m == 16 else 3.0)
        for m in sizes
        for n in sizes
    ]
    steps, best = steps_of(every), every[8]
    assert best.constexprs == {"BM": 32, "BN": 48}
    rest = [c for c in every if c is not best]
    batch = [tuple(c.constexprs.values()) for c in next_batch(rest, steps, [best], 16)]
    near = {(16, 48), (48, 48), (64, 48), (32, 32), (32, 64), (32, 96), (16, 64), (48, 32)}
    assert set(batch[:8]) <= near | {(64, 32), (16, 96), (64, 64)}, "half are neighbours"
    assert (128, 128) in batch and all(m in (16, 128) or (m, n) in near for m, n in batch[8:])
    assert not next_batch([Candidate({"BM": 128, "BN": 16}, estimate=3.0)], steps, [every[-1]], 8)
    told = [Candidate({"BM": 128, "BN": 16})]
    assert next_batch(told, steps, [every[-1]], 8) == told, "what has no estimate promises"


def test_one_step_is_near_and_so_are_two_that_cancel():
    steps = Steps(
        [{"BM": m, "BN": n, "T": "x"} for m in (16, 32, 48, 64) for n in (16, 32, 48, 64)]
    )
    here = {"BM": 32, "BN": 32, "T": "x"}
    assert steps.near(here, here | {"BM": 64}) and steps.near(here, here | {"BM": 48})
    assert steps.near(here, here | {"BM": 64, "BN": 16})
    assert not steps.near(here, here) and not steps.near(here, here | {"BM": 64, "BN": 64})
    assert not steps.near(here, here | {"T": "y"})
    assert not steps.near(here | {"BM": 16}, here | {"BM": 64})
    assert search.BATCH >= 4
