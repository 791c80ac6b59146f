"""The kernel cache on disk: whole entries or none, bounded, shared by processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright import cache, knobs
from tilewright.cache import SUFFIX, KernelCache, current, digest, pack, unpack


@pytest.fixture
def store(tmp_path):
    return KernelCache(tmp_path / "cache", 1 << 20)


def entry(store, key) -> Path:
    return store.directory / key[:2] / (key + SUFFIX)


KEY = digest("a kernel")
ARTIFACTS = {"object": bytes(range(256)), "texts": b"{}", "empty": b""}


def test_round_trip(store):
    assert store.get(KEY) is None
    store.put(KEY, ARTIFACTS)
    assert store.get(KEY) == ARTIFACTS
    assert KernelCache(store.directory, 1 << 20).get(KEY) == ARTIFACTS
    stats = store.stats()
    assert (stats.hits, stats.misses, stats.entries) == (1, 1, 1) and stats.bytes > 256


def test_every_damage_is_seen(store):
    """Cut anywhere, or with any byte changed, an entry counts as absent and is deleted."""
    whole = pack(ARTIFACTS)
    damaged = [whole[:n] for n in range(len(whole))]
    damaged += [whole[:i] + bytes([whole[i] ^ 0x40]) + whole[i + 1 :] for i in range(len(whole))]
    damaged += [whole + b"x", b"", b"\0" * 1000]
    assert unpack(whole) == ARTIFACTS
    assert all(unpack(d) is None for d in damaged)
    store.put(KEY, ARTIFACTS)
    entry(store, KEY).write_bytes(damaged[40])
    assert store.get(KEY) is None and not entry(store, KEY).exists()
    assert store.stats().corrupt == 1
    store.put(KEY, ARTIFACTS)
    assert store.get(KEY) == ARTIFACTS


def test_least_recently_used_go_first(tmp_path):
    store = KernelCache(tmp_path, 1 << 20)
    store.put(KEY, {"object": bytes(1000)})
    size = store.stats().bytes
    store.clear()
    store = KernelCache(tmp_path, 5 * size)
    keys = [digest(str(i)) for i in range(6)]
    for i, key in enumerate(keys[:5]):
        store.put(key, {"object": bytes(1000)})
        os.utime(entry(store, key), (1000 + i, 1000 + i))
    assert store.get(keys[0]) is not None  # used: now the newest
    store.put(keys[5], {"object": bytes(1000)})
    left = [store.get(k) is not None for k in keys]
    assert left == [True, False, False, True, True, True]
    assert store.stats().bytes <= 5 * size


def test_a_write_looks_at_its_own_folder_while_that_has_its_share(tmp_path, monkeypatch):
    """Of many entries no others are looked at; once they outgrow the bound, they are."""
    store = KernelCache(tmp_path, 1 << 20)
    store.put(KEY, {"object": bytes(1000)})
    size, seen, list_of = store.stats().bytes, [], cache._entries
    monkeypatch.setattr(cache, "_entries", lambda folder: seen.append(folder) or list_of(folder))
    store = KernelCache(tmp_path, 2 * cache.FOLDERS * size)
    for i in range(cache.FOLDERS):
        store.put(f"{i:02x}{'0' * 62}", {"object": bytes(1000)})
    assert len(seen) == cache.FOLDERS
    bound = 100 * size
    store = KernelCache(tmp_path, bound)
    store.put(f"00{'1' * 62}", {"object": bytes(1000)})
    assert 80 * size < store.stats().bytes <= bound * 9 // 10
    for i in range(cache.FOLDERS):
        store.put(f"{i:02x}{'2' * 62}", {"object": bytes(1000)})
        assert store.stats().bytes <= bound + size


def test_leftovers_of_killed_writers_are_swept(store):
    store.put(KEY, ARTIFACTS)
    fresh, stale = (entry(store, KEY).with_name(n) for n in ("new-a", "new-b"))
    fresh.write_bytes(b"half")
    stale.write_bytes(b"half")
    os.utime(stale, (time.time() - 7200,) * 2)
    assert store.stats().entries == 1
    assert fresh.exists() and not stale.exists()


def test_a_directory_that_cannot_be_made_warns_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = KernelCache(tmp_path / "file", 1 << 20)
    with pytest.warns(RuntimeWarning, match="TILEWRIGHT_CACHE_DIR"):
        store.put(KEY, ARTIFACTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(KEY, ARTIFACTS)
    assert store.get(KEY) is None


@pytest.mark.parametrize("umask", [0, 0o002, 0o077])
def test_what_the_cache_makes_is_the_users_alone(tmp_path, umask):
    store = KernelCache(tmp_path / "some" / "where" / "cache", 1 << 20)
    before = os.umask(umask)
    try:
        store.put(KEY, ARTIFACTS)
    finally:
        os.umask(before)
    place = entry(store, KEY)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (place, place.parent, store.directory)]
    assert modes == [0o600, 0o700, 0o700]
    assert store.get(KEY) == ARTIFACTS


FOREIGN = {
    "entry for all": lambda e: e.chmod(0o666),
    "entry for a group": lambda e: e.chmod(0o660),
    "folder for all": lambda e: e.parent.chmod(0o777),
    "cache for a group": lambda e: e.parent.parent.chmod(0o770),
    "entry of another": lambda e: os.chown(e, 12345, -1),
    "folder of another": lambda e: os.chown(e.parent, 12345, -1),
    "cache of another": lambda e: os.chown(e.parent.parent, 12345, -1),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_others_may_have_written_is_not_used(store, name):
    """It is code: one warning, and the kernel is compiled. An entry is replaced, a folder stays as it is."""
    if "another" in name and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    store.put(KEY, ARTIFACTS)
    FOREIGN[name](entry(store, KEY))
    with pytest.warns(RuntimeWarning, match="is not used .*(others may write|another user)"):
        assert store.get(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get(KEY) is None
        store.put(KEY, {"object": b"new"})
        wanted = {"object": b"new"} if name.startswith("entry") else None
        assert store.get(KEY) == wanted


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda p: os.symlink("/nowhere", p)])
def test_what_is_no_file_in_the_place_of_an_entry(store, make):
    """It is read without waiting, and replaced."""
    store.put(KEY, ARTIFACTS)
    entry(store, KEY).unlink()
    make(entry(store, KEY))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get(KEY) is None
        store.put(KEY, ARTIFACTS)
        assert store.get(KEY) == ARTIFACTS


def test_knobs_choose_the_cache(tmp_path):
    with knobs.override(cache_dir=tmp_path, cache_size=77):
        store = current()
        assert store is not None and (store.directory, store.limit) == (tmp_path, 77)
    with knobs.override(cache=False):
        assert current() is None


WRITER = """
import sys
from pathlib import Path
from tilewright.cache import KernelCache
store = KernelCache(Path(sys.argv[1]), 1 << 20)
wrong = 0
for i in range(200):
    key = f"{i % 5:064x}"
    found = store.get(key)
    if found is not None and found != {"object": key.encode() * 50}:
        wrong += 1
    store.put(key, {"object": key.encode() * 50})
print(wrong)
"""


def test_processes_that_write_the_same_entries_at_once(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [writer.communicate(timeout=120)[0].strip() for writer in writers]
    assert outputs == ["0"] * 4
    store = KernelCache(tmp_path, 1 << 20)
    assert store.stats().entries == 5
    assert all(store.get(f"{i:064x}") for i in range(5))


def test_an_entry_is_absent_once_a_file_that_made_it_has_changed(tmp_path, monkeypatch, store):
    """Of the compiler's files those that were loaded count, as they were when the process saw them first."""
    monkeypatch.setattr(cache, "_ROOT", f"{tmp_path}/")
    inner, other = tmp_path / "pass.py", tmp_path / "other.py"
    inner.write_text("x = 1\n")
    other.write_text("x = 1\n")
    monkeypatch.setitem(sys.modules, "tilewright.some_pass", SimpleNamespace(__file__=str(inner)))

    def found(change=lambda: None):
        """What a process finds that starts after a change."""
        change()
        cache._seen.clear()
        return store.get(KEY)

    for change in (
        lambda: inner.write_text("x = 12\n"),
        lambda: os.utime(inner, (1000, 1000)),
        lambda: inner.rename(inner.with_name("gone.py")),
    ):
        store.put(KEY, ARTIFACTS)
        assert found() == ARTIFACTS == found(lambda: other.write_text("x = 2\n"))
        assert found(change) is None
        assert store.stats().corrupt == 0
        store.put(KEY, {"object": b"new"})
        assert found() == {"object": b"new"}
    # Edited while the process runs: what is loaded of it is older, and so is what it makes.
    inner.write_text("x = 3\n")
    cache._seen.clear()
    cache.compiler_fingerprint.__wrapped__()
    inner.write_text("x = 34\n")
    store.put(KEY, ARTIFACTS)
    assert found() is None
    measured = KernelCache(tmp_path / "measured", None, cache.RECORDS)
    measured.put(KEY, ARTIFACTS)
    os.utime(inner, (2000, 2000))
    cache._seen.clear()
    assert measured.get(KEY) == ARTIFACTS


def test_compilers_at_two_places_share_no_entries(monkeypatch):
    fingerprint = cache.compiler_fingerprint.__wrapped__
    here = fingerprint()
    monkeypatch.setattr(cache, "_ROOT", "/elsewhere/")
    assert fingerprint() != here
