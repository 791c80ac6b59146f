"""Rates measured on a machine stand in the place of its table's, on that machine alone."""

from __future__ import annotations

import pytest

from tilewright import knobs, records
from tilewright.targets.base import CompileOptions, get_target
from tilewright.uarch import calibration
from tilewright.uarch.base import GENERIC


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with knobs.override(cache_dir=tmp_path):
        yield


def test_what_was_measured_stands_in_the_place_of_the_table():
    rates = {"memory_bytes": 3e9, "product_flops": 5e10, calibration.of_size(2): 7e11, "turn": 1.5}
    assert calibration.with_calibration(GENERIC, "one") == GENERIC
    assert calibration.keep("one", rates)
    found = calibration.with_calibration(GENERIC, "one")
    assert (found.memory_bytes, found.product_flops) == (3e9, 5e10)
    assert found.origin == "measured here" and found.shared_bytes == GENERIC.shared_bytes
    assert (found.flops(2), found.flops(4), found.flops(1)) == (7e11, 5e10, 2e11)
    assert calibration.calibrated("one")["turn"] == 1.5
    assert calibration.with_calibration(GENERIC, "another") == GENERIC


def test_a_newer_one_replaces_it_and_one_of_words_is_none():
    calibration.keep("one", {"memory_bytes": 3e9})
    calibration.keep("one", {"memory_bytes": 4e9})
    assert calibration.with_calibration(GENERIC, "one").memory_bytes == 4e9
    ((key, _),) = records.every()
    records.keep(key, records.Record("calibration", "one", "rates", {"memory_bytes": "much"}))
    calibration.keep("another", {})  # forgets what was read
    assert calibration.with_calibration(GENERIC, "one") == GENERIC


def test_the_planner_of_the_cpu_reads_it():
    target, options = get_target("cpu"), CompileOptions(num_threads=3)
    table = target.rates(options)
    calibration.keep(target.identity(options), {"memory_bytes": table.memory_bytes * 2})
    assert target.rates(options).memory_bytes == table.memory_bytes * 2
    assert target.rates(CompileOptions(num_threads=5)).memory_bytes == table.memory_bytes


def test_every_table_says_where_it_is_from():
    for name, words in (("xe-pvc", "data sheet"), ("xe-bmg", "data sheet"), ("xe-dg2", "data sheet"),
                        ("sm_80", "data sheet"), ("sm_90a", "fitted"), ("cpu", "assumed")):  # fmt: skip
        assert words in get_target(name).rates(CompileOptions(target=name)).origin
