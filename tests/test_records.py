"""Measurements on disk: never lost for room, damage and other machines told of, shared as files and by processes."""

from __future__ import annotations

import multiprocessing
import warnings

import pytest

from tilewright import cache, knobs, records
from tilewright.diagnostics import TilewrightError
from tilewright.records import Record

HERE = "this machine; 4 threads"
KEYS = [cache.digest("record", str(i)) for i in range(3)]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with knobs.override(cache_dir=tmp_path / "cache", cache_size=1):
        yield tmp_path / "cache"


def record(value: float, machine: str = HERE) -> Record:
    return Record("tuning", machine, "gemm(f32[64, 64])", {"seconds": value, "tile": {"BM": 64}})


def path_of(folder, key: str):
    return folder / key[:2] / (key + cache.RECORDS)


def test_a_record_is_found_again_and_replaced():
    assert records.find(KEYS[0]) is None
    assert records.keep(KEYS[0], record(1.0)) and records.find(KEYS[0]) == record(1.0)
    assert records.keep(KEYS[0], record(2.0)) and records.find(KEYS[0]) == record(2.0)
    assert dict(records.every()) == {KEYS[0]: record(2.0)}


def test_no_record_goes_for_lack_of_room():
    """The cache has room for one byte: kernels go, records stay."""
    store = cache.current()
    assert store is not None
    records.keep(KEYS[0], record(1.0))
    for key in KEYS:
        store.put(key, {"object": bytes(100)})
    assert all(store.get(key) is None for key in KEYS)
    assert records.find(KEYS[0]) == record(1.0)


def test_a_damaged_record_is_told_of(folder):
    records.keep(KEYS[0], record(1.0))
    path = path_of(folder, KEYS[0])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert records.find(KEYS[0]) is None
    records.keep(KEYS[0], record(1.0))
    assert records.find(KEYS[0]) == record(1.0)


def test_a_record_without_its_fields_is_none():
    store = cache.records()
    assert store is not None
    for content in (b"", b"[]", b"{}", b'{"kind": "tuning"}', b"\xff", b'{"content": 3}'):
        store.put(KEYS[0], {"record.json": content})
        assert records.find(KEYS[0]) is None


def test_records_travel_as_a_file(tmp_path):
    for i, key in enumerate(KEYS[:2]):
        records.keep(key, record(float(i)))
    assert records.export(tmp_path / "shared") == 2
    with knobs.override(cache_dir=tmp_path / "other"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert records.load(tmp_path / "shared", {HERE, "another"}) == (2, 0)
        assert records.find(KEYS[1]) == record(1.0)


def test_those_of_other_machines_are_ignored_and_told_of(tmp_path):
    records.keep(KEYS[0], record(1.0))
    records.keep(KEYS[1], record(2.0, "a faster one"))
    records.export(tmp_path / "shared")
    with knobs.override(cache_dir=tmp_path / "other"):
        with pytest.warns(RuntimeWarning, match="1 of 2 records .* a faster one"):
            assert records.load(tmp_path / "shared", {HERE}) == (1, 1)
        assert records.find(KEYS[0]) == record(1.0) and records.find(KEYS[1]) is None


def test_a_file_that_is_not_whole_is_refused(tmp_path):
    records.keep(KEYS[0], record(1.0))
    file = tmp_path / "shared"
    records.export(file)
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:40], b"", b"nothing", whole.replace(b"gemm", b"gelu")):
        file.write_bytes(damaged)
        with (
            knobs.override(cache_dir=tmp_path / "other"),
            pytest.raises(TilewrightError, match="damaged"),
        ):
            records.load(file, {HERE})
        with knobs.override(cache_dir=tmp_path / "other"):
            assert not list(records.every())
    with pytest.raises(OSError):
        records.load(tmp_path / "missing", {HERE})


def test_a_key_that_is_a_path_is_not_taken(tmp_path):
    records.keep(KEYS[0], record(1.0))
    data = (cache.records() or pytest.fail()).get(KEYS[0]) or {}
    (tmp_path / "shared").write_bytes(cache.pack({"../../escaped": data["record.json"]}))
    assert records.load(tmp_path / "shared", {HERE}) == (0, 1)
    assert not list(tmp_path.rglob("escaped*"))


def test_a_cache_that_is_off_keeps_nothing(tmp_path):
    records.keep(KEYS[0], record(1.0))
    records.export(tmp_path / "shared")
    with knobs.override(cache=False):
        assert not records.keep(KEYS[0], record(1.0)) and records.find(KEYS[0]) is None
        with pytest.raises(TilewrightError, match="switched off"):
            records.load(tmp_path / "shared", {HERE})


def _write_and_read(folder, start: int) -> None:
    with knobs.override(cache_dir=folder), warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(100):
            records.keep(KEYS[i % 3], record(float(start + i)))
            found = records.find(KEYS[(i + 1) % 3])
            assert found is None or found.machine == HERE


def test_processes_that_write_the_same_records_at_once(folder):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write_and_read, args=(folder, 1000 * i)) for i in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert len(dict(records.every())) == 3
