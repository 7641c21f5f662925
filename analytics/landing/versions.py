"""A directory that goes from one complete version to the next, so that exports and tables land exactly once. No Spark.

    OUT/current -> versions/00000007      what readers read; a link
    OUT/versions/00000007/_manifest.json  how far the log is in it
    OUT/versions/00000007/...             files; one that stays from version to version is one file with several names

A job fills the folder of the next version, makes it durable, and renames a new link over `current`: files and manifest change
together. A killed job leaves a folder that `current` does not name; the next job removes it. The version before the current
one stays for those who are reading it.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmq.errors import StoreError

MANIFEST = "_manifest.json"  # Spark, pandas and DuckDB skip names that begin with it
LINK, FOLDER = "current", "versions"
_VERSION = re.compile("[0-9]{8,}", re.ASCII)


class Draft:
    """The next version while it is made. `old`: the current version and its manifest (None, {} if there is none yet)."""

    def __init__(self, out: Path, old: Path | None) -> None:
        self.old = old
        self.manifest: dict[str, Any] = manifest_of(old) if old else {}
        self.version = int(old.name) + 1 if old else 1
        self.folder = out / FOLDER / f"{self.version:08d}"
        self.staging = self.folder / "_new"  # for Spark to write to; gone at the end
        self.prefix = f"v{self.version:08d}-"  # of the names of files that this version adds
        self._out = out
        self.folder.mkdir()

    def keep(self, under: str = "") -> None:
        """Takes over all files of the old version below that folder."""
        for file in sorted((self.old / under).rglob("*")) if self.old else []:
            target = self.folder / file.relative_to(self.old or file)
            if file.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif file.name != MANIFEST:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)

    def add(self, written: Path, under: str = "") -> list[Path]:
        """Moves the Parquet files that Spark wrote below `aside` into the version, with their folders. Returns the new paths."""
        added = []
        for file in sorted(file for file in written.rglob("*.parquet") if file.is_file()):  # a table may be called so, too
            inside = file.relative_to(written)
            target = self.folder / under / inside.with_name(f"{self.prefix}{inside.name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
            added.append(target)
        return added

    def commit(self, manifest: Mapping[str, Any]) -> None:
        """Makes this the current version. Raises OSError."""
        shutil.rmtree(self.staging, ignore_errors=True)
        (self.folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _make_durable(self.folder)
        _sync(self._out / FOLDER)
        link = self._out / f"{LINK}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(Path(FOLDER) / self.folder.name)
        link.replace(self._out / LINK)
        _sync(self._out)
        _tidy(self._out, self.folder)


@contextmanager
def next_version(out: Path) -> Iterator[Draft]:
    """A draft, for one job at a time; removes what killed jobs left. Only `commit` changes `out`. Raises StoreError, OSError."""
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    with open(out / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"another job is writing to {out}: try again when it has ended") from None
        old = current(out)
        _tidy(out, old)
        draft = Draft(out, old)
        try:
            yield draft
        finally:
            if current(out) != draft.folder:
                shutil.rmtree(draft.folder)


def current(out: Path) -> Path | None:
    """The folder of the current version; None before the first. Raises StoreError."""
    link = out / LINK
    if not link.is_symlink():
        if link.exists():
            raise StoreError(f"{link} is no link of ours: give another --out")
        return None
    folder = out / os.readlink(link)
    if folder.parent != out / FOLDER or not folder.is_dir():
        raise StoreError(f"{link} leads to {folder}, which is not there: restore it from a copy, or give another --out")
    return folder


def manifest_of(folder: Path) -> dict[str, Any]:
    """Raises StoreError."""
    try:
        found: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder / MANIFEST} cannot be read: {error}; restore it from a copy, or give another --out") from error
    return found


def _tidy(out: Path, kept: Path | None) -> None:
    """Leaves `kept` and the version before it; a later one was left by a killed job. What is not named so is not ours."""
    names = sorted(entry.name for entry in (out / FOLDER).iterdir() if _VERSION.fullmatch(entry.name))
    older = [name for name in names if kept and name < kept.name]
    for name in names:
        if not kept or name not in (kept.name, *older[-1:]):
            shutil.rmtree(out / FOLDER / name)


def _make_durable(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() or path.stat().st_nlink == 1:  # others became durable with the version that added them
            _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
