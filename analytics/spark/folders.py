"""Directories of temporary files that end with their process: `flock` holds each, and whoever makes the next one removes those of
processes that were killed."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LOCK = ".lock"


def made_and_locked(prefix: str, temp: Path | None) -> tuple[Path, int]:
    """A new directory below `temp` (None: the system's own) and the handle that holds its lock. Raises OSError."""
    _remove_stale(prefix, Path(temp or tempfile.gettempdir()))
    while True:  # one that begins at the same time takes it for stale before it is locked: then another
        made = Path(tempfile.mkdtemp(prefix=prefix, dir=temp))
        handle = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if try_lock(handle) and os.fstat(handle).st_nlink:
            return made, handle
        os.close(handle)


def _remove_stale(prefix: str, temp: Path) -> None:
    """Removes directories of processes that have ended."""
    for old in temp.glob(f"{prefix}*"):
        try:
            handle = os.open(old / _LOCK, os.O_RDWR)
        except OSError:
            continue  # not ours to remove, or just being made
        if try_lock(handle):
            shutil.rmtree(old, ignore_errors=True)
        os.close(handle)


def try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
