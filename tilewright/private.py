"""Folders and files that nobody else can have written: what lies in them is run as this user.

A folder is made for its user alone, whatever the umask. One that belongs to somebody else, or that others may write
to, is not used, nor is such a file: :class:`ForeignError` says why. The system's administrator is trusted.
"""

from __future__ import annotations

import contextlib
import os
import stat


class ForeignError(OSError):
    """A folder or file that others may have written."""


def check(path: str, found: os.stat_result) -> None:
    """Raises ForeignError where what `found` describes may hold what another user wrote."""
    if found.st_uid not in (0, os.geteuid()):
        raise ForeignError(0, f"{path} belongs to another user ({found.st_uid})")
    if found.st_mode & 0o022:
        mode = stat.S_IMODE(found.st_mode)
        raise ForeignError(0, f"others may write to {path} (mode {mode:o}); chmod go-w helps")


def make_folders(path: str, root: str) -> None:
    """Makes `root` and the folders in it on the way to `path`, where they are missing; checks them."""
    os.makedirs(os.path.dirname(root), exist_ok=True)
    for folder in _on_the_way(path, root):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        check(folder, os.stat(folder))


def _on_the_way(path: str, root: str) -> list[str]:
    """`root` and the folders between it and a file in it."""
    found, at = [root], path.find("/", len(root) + 1)
    while at >= 0:
        found.append(path[:at])
        at = path.find("/", at + 1)
    return found


def read(path: str, root: str) -> bytes:
    """The content of a file in `root`. OSError where there is none; a pipe or a folder in its place is none."""
    for folder in _on_the_way(path, root):
        check(folder, os.stat(folder))
    handle = os.open(
        path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    )  # does not wait for a pipe's writer
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError(0, f"{path} is no file")
        check(path, found)
        parts: list[bytes] = []
        while part := os.read(handle, found.st_size + 1):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(handle)


def remove(path: str) -> None:
    """Takes away whatever is in the place of a file, if that is possible."""
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            import shutil

            shutil.rmtree(path)
        else:
            os.unlink(path)
