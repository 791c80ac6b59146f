"""What was measured on a machine, kept on disk: results of searches (`tuning`) and rates (`calibration`).

A record is an entry of the cache's folder (`cache.py`) whose bytes are JSON. Unlike a kernel it cannot be made again
at once, so none is deleted for lack of room, and a damaged one is reported. It says which machine it was measured on;
its key has that in it, so that another machine's is never found. A file of records (:func:`export`) is one such entry.

    {"kind": "tuning", "machine": "sapphirerapids ..; 8 threads", "about": "gemm(f32[..], ..)", "content": {..}}
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilewright import cache
from tilewright.diagnostics import TilewrightError
from tilewright.frozen import frozen

_NAME = "record.json"


@frozen
class Record:
    """One measurement."""

    kind: str
    """`tuning` or `calibration`."""
    machine: str
    """Where it was measured (`Target.identity`)."""
    about: str
    """What was measured, for people."""
    content: Mapping[str, Any]
    """JSON."""


def find(key: str) -> Record | None:
    """The record under a key; None where there is none that can be read, or the cache is switched off."""
    store = cache.records()
    found = store.get(key) if store is not None else None
    return _read(found.get(_NAME)) if found is not None else None


def keep(key: str, record: Record) -> bool:
    """Writes a record, in the place of an older one; False where the cache is switched off."""
    store = cache.records()
    if store is not None:
        store.put(key, {_NAME: _written(record)})
    return store is not None


def every() -> Iterator[tuple[str, Record]]:
    """All records with their keys, in no order."""
    store = cache.records()
    for key in store.keys() if store is not None else ():
        if (record := find(key)) is not None:
            yield key, record


def export(path: Path) -> int:
    """Writes all records to a file; how many there are."""
    found = {key: _written(record) for key, record in sorted(every(), key=lambda item: item[0])}
    path.write_bytes(cache.pack(found))
    return len(found)


def load(path: Path, machines: Collection[str]) -> tuple[int, int]:
    """Takes the records of a file that were measured on one of these machines; how many, and how many were not.

    Records of other machines are ignored with a warning. TilewrightError for a file that is not whole, OSError where
    there is none.
    """
    entries = cache.unpack(path.read_bytes())
    if entries is None:
        raise TilewrightError(f"{path} is damaged, or no file of records: nothing of it is used")
    found = {k: r for k, data in entries.items() if (r := _read(data)) is not None and _is_key(k)}
    mine = {key: record for key, record in found.items() if record.machine in machines}
    others = sorted({r.machine for r in found.values()} - set(machines))
    if others:
        _warn(
            f"{path}: {len(found) - len(mine)} of {len(found)} records are ignored, as they were measured on other"
            f" machines: {', '.join(others)}"
        )
    if not all(keep(key, record) for key, record in mine.items()):
        raise TilewrightError("records are kept in the cache, which is switched off")
    return len(mine), len(entries) - len(mine)


def _is_key(text: str) -> bool:
    """Is it a digest? A name of a file in a file that somebody else wrote may be anything."""
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def _written(record: Record) -> bytes:
    return json.dumps(asdict(record), sort_keys=True).encode()


def _read(data: bytes | None) -> Record | None:
    try:
        fields = json.loads(data or b"")
        kind, machine, about = (str(fields[k]) for k in ("kind", "machine", "about"))
        return Record(kind, machine, about, dict(fields["content"]))
    except (ValueError, KeyError, TypeError):
        return None


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
