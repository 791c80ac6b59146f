"""Compiled kernels on disk: content-addressed, checksummed, bounded, shared by all processes.

An entry is one file whose name is the digest of all that its content depends on but the compiler's own files. It
names those that were loaded when it was made, and counts as absent where one of them has changed since. It is written
beside its place and renamed into it: readers see the whole entry or none, and two processes that compile the same
kernel at once both succeed. The file carries a BLAKE2b of its payload; an entry that does not match is deleted and
counts as absent. Nothing in it is executed while it is read: the payload is named byte strings, no pickles. The code
in it is executed later: an entry, or a cache, that somebody else may have written is not used (`private.py`).

    tilewright-kernel-2\\n | 32 bytes BLAKE2b | 8 bytes length of index | index (JSON) | blobs

When the entries outgrow the bound, those that were used the longest ago are deleted. Entries of another suffix in the
same folders have no bound and name no files: what a machine measured (`records.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from tilewright import knobs, private
from tilewright.frozen import record

try:  # hashlib loads the library of OpenSSL, which takes a tenth of a process that launches from disk
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

MAGIC = b"tilewright-kernel-2\n"
SUFFIX = ".kernel"
RECORDS = ".record"
_SOURCES = "sources"
"""The blob of an entry that tells which files of the compiler made it."""
_ROOT = os.path.join(os.path.dirname(__file__), "")
_DIGEST = 32
_STALE_SECONDS = 3600.0
FOLDERS = 256
"""Over which entries are spread, by the first two hexadecimal digits of their keys."""


@record
class CacheStats:
    """What this process did with the cache, and what is on disk."""

    hits: int = 0
    misses: int = 0
    corrupt: int = 0
    entries: int = 0
    bytes: int = 0


class KernelCache:
    """The entries of one suffix in one directory. Safe under concurrent processes and threads.

    ``limit``: bytes that they may have together; None: none is deleted for it, and a damaged one is reported.
    """

    def __init__(self, directory: Path, limit: int | None, suffix: str = SUFFIX):
        self.directory = directory
        self._root = str(directory)
        self.limit = limit
        self.suffix = suffix
        self._counts = CacheStats()
        self._warned = False
        self._room = 0
        """Bytes that this process may write before it looks at the bound again."""

    def get(self, key: str) -> dict[str, bytes] | None:
        """The artifacts stored under ``key``, or None when there are none that are whole."""
        path = self._path(key)
        try:
            data = private.read(path, self._root)
        except private.ForeignError as error:
            self._counts.misses += 1
            self._warn("is not used", error)
            return None
        except IsADirectoryError:
            data = b""
        except OSError:
            self._counts.misses += 1
            return None
        artifacts = unpack(data)
        if artifacts is None:
            self._counts.misses += 1
            if self.limit is None:
                warnings.warn(f"{path} is damaged and not used", RuntimeWarning, stacklevel=2)
            self.discard(key)
            return None
        if self.limit is not None and not _is_unchanged(artifacts.pop(_SOURCES, b"")):
            self._counts.misses += 1
            return None
        self._counts.hits += 1
        with contextlib.suppress(OSError):
            os.utime(path)
        return artifacts

    def put(self, key: str, artifacts: Mapping[str, bytes]) -> None:
        """Stores ``artifacts``; a directory that cannot be written gives one warning, no error."""
        import tempfile  # late, as other modules here: who only reads the cache does not wait for it

        path = self._path(key)
        sources = {} if self.limit is None else {_SOURCES: _loaded()}
        data = pack({**artifacts, **sources})
        try:
            private.make_folders(path, self._root)
            handle, name = tempfile.mkstemp(prefix="new-", dir=os.path.dirname(path))
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError as error:
            foreign = isinstance(error, private.ForeignError)
            self._warn("is not used" if foreign else "cannot be written", error)
            return
        if self.limit is not None:
            self._room -= len(data)
            if self._room < 0:
                self._evict(self.limit, key[:2])

    def discard(self, key: str) -> None:
        """Deletes an entry that is damaged, or that its target could not load."""
        self._counts.corrupt += 1
        private.remove(self._path(key))

    def keys(self) -> list[str]:
        """The keys of all entries."""
        return [os.path.basename(path).removesuffix(self.suffix) for path, _, _ in self._files()]

    def clear(self) -> None:
        """Deletes every entry."""
        for path, _, _ in self._files():
            with contextlib.suppress(OSError):
                os.unlink(path)

    def stats(self) -> CacheStats:
        """The counts of this process with the entries and bytes that are on disk now."""
        files = list(self._files())
        self._counts.entries = len(files)
        self._counts.bytes = sum(size for _, size, _ in files)
        return self._counts

    def _path(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key}{self.suffix}"

    def _files(self, only: str = "") -> Iterator[tuple[str, int, float]]:
        """Path, size and time of last use of every entry, or of one folder's; drops leftovers of killed writers."""
        now = time.time()
        names = [only] if only else [f.name for f in _entries(self._root) if len(f.name) == 2]
        for name in names:
            for entry in _entries(f"{self._root}/{name}"):
                try:
                    stat = entry.stat()
                    if entry.name.endswith(self.suffix):
                        yield entry.path, stat.st_size, stat.st_mtime
                    elif entry.name.startswith("new-") and now - stat.st_mtime > _STALE_SECONDS:
                        os.unlink(entry.path)
                except OSError:
                    continue

    def _evict(self, limit: int, folder: str) -> None:
        """Deletes the least recently used entries until nine tenths of the bound are left, if all have more than that.

        Keys are digests, so all folders hold about as much: while this one has no more than its share, the others
        are not looked at. Other processes write too: of the room that is left, one takes an eighth unseen.
        """
        if sum(size for _, size, _ in self._files(folder)) <= limit // FOLDERS:
            return
        files = list(self._files())
        total = sum(size for _, size, _ in files)
        if total > limit:
            for path, size, _ in sorted(files, key=lambda file: file[2]):
                if total <= limit * 9 // 10:
                    break
                with contextlib.suppress(OSError):
                    os.unlink(path)
                    total -= size
        self._room = (limit - total) // 8

    def _warn(self, what: str, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the kernel cache {self.directory} {what} ({error.strerror}); kernels "
                f"are compiled again in every process. Set {knobs.variable('cache_dir')} to a "
                f"directory of your own, or {knobs.variable('cache')}=0",
                RuntimeWarning,
                stacklevel=2,
            )


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What lies in a folder; nothing where there is none."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def pack(artifacts: Mapping[str, bytes]) -> bytes:
    """The bytes of an entry."""
    index = json.dumps([[name, len(blob)] for name, blob in artifacts.items()]).encode()
    payload = b"".join([len(index).to_bytes(8, "little"), index, *artifacts.values()])
    return MAGIC + blake2b(payload, digest_size=_DIGEST).digest() + payload


def unpack(data: bytes) -> dict[str, bytes] | None:
    """The artifacts of an entry; None when its bytes are not what was written."""
    start = len(MAGIC) + _DIGEST
    if not data.startswith(MAGIC) or len(data) < start + 8:
        return None
    payload = memoryview(data)[start:]
    if blake2b(payload, digest_size=_DIGEST).digest() != data[len(MAGIC) : start]:
        return None
    at = 8 + int.from_bytes(payload[:8], "little")
    artifacts: dict[str, bytes] = {}
    for name, size in json.loads(bytes(payload[8:at])):
        artifacts[name] = bytes(payload[at : at + size])
        at += size
    return artifacts


def digest(*parts: str | bytes) -> str:
    """A content address: hex BLAKE2b over the parts, each with its length."""
    found = blake2b(digest_size=_DIGEST)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little"))
        found.update(data)
    return found.hexdigest()


@lru_cache(maxsize=1)
def compiler_fingerprint() -> str:
    """Changes with the place of this compiler, and whenever a library under it changes.

    A library is told by its package's first file, without importing it. What it does not tell of the compiler's own
    files, entries do: to ask after all of them takes longer than a kernel from the disk takes to run.
    """
    found = [_ROOT]
    for library in ("xdsl", "llvmlite", "ml_dtypes", "numpy"):
        spec = find_spec(library)
        if spec is not None and spec.origin is not None:
            found.append(f"{spec.origin} {_version(spec.origin)}")
            if library == "llvmlite":
                # LLVM itself, which another build of the same version may bring.
                folder = os.path.join(os.path.dirname(spec.origin), "binding")
                llvm = (f.path for f in _entries(folder) if "libllvm" in f.name)
                found += [f"{path} {_version(path)}" for path in llvm]
    _see(_files())
    return digest("\n".join(sorted(found)))


def _files() -> list[str]:
    """The files of the compiler that are loaded."""
    own = [n for n in list(sys.modules) if n.startswith("tilewright") or n == "__main__"]
    places = [getattr(sys.modules.get(name), "__file__", None) or "" for name in own]
    return [place.removeprefix(_ROOT) for place in places if place.startswith(_ROOT)]


def _loaded() -> bytes:
    """The files of the compiler that are loaded, and a digest of their versions."""
    files = _files()
    return "\n".join([_versions(files), *files]).encode()


def _is_unchanged(sources: bytes) -> bool:
    """Whether files are what they were in the process whose `_loaded` this is."""
    versions, *files = sources.decode().split("\n")
    return versions == _versions(files)


_seen: dict[str, str] = {}
"""Versions of files of the compiler, as this process saw them first: what it makes is of no later edit."""


def _see(files: Sequence[str]) -> None:
    for file in files:
        if file not in _seen:
            _seen[file] = _version(_ROOT + file)


def _versions(files: Sequence[str]) -> str:
    _see(files)
    return digest("\n".join([_seen[file] for file in files]))


def kept(names: tuple[str, ...], make: Callable[[], Mapping[str, bytes]]) -> Mapping[str, bytes]:
    """What `make` gives, which depends on `names` and the compiler alone: from disk where it lies there."""
    store = current()
    if store is None:
        return make()
    key = digest(compiler_fingerprint(), *names)
    found = store.get(key)
    if found is None:
        store.put(key, found := make())
    return found


def _version(path: str) -> str:
    """Size and time; nothing where there is no such file."""
    try:
        stat = os.stat(path)
    except OSError:
        return ""
    return f"{stat.st_size} {stat.st_mtime_ns}"


_open: dict[tuple[Path, int | None, str], KernelCache] = {}


def current() -> KernelCache | None:
    """The cache that the knobs in force ask for; None when it is switched off."""
    return _in_force(knobs.current().cache_size, SUFFIX)


def records() -> KernelCache | None:
    """The entries beside its kernels that are not evicted."""
    return _in_force(None, RECORDS)


def _in_force(limit: int | None, suffix: str) -> KernelCache | None:
    settings = knobs.current()
    if not settings.cache:
        return None
    key = (settings.cache_path, limit, suffix)
    found = _open.get(key)
    if found is None:
        found = _open.setdefault(key, KernelCache(*key))
    return found
