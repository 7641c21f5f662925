"""The manifest of an archive, `archive.json`. A segment counts once the manifest names it.

An archive has the shape of a store, so that every reader of stores can read it:

    archive.json         the manifest
    commitlog/<offset>   whole segments, as the broker wrote them
    rmq/progress         how far the archive reaches, rmq/epochs who wrote which bytes
    rmq/snapshot-<S0>    tables (topics, groups, offsets ...) as they were at a place of the log
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from rmq.errors import BadBytes, StoreError
from rmq.log.files.epochs import EpochEntry, EpochHistory
from rmq.log.files.segment import file_name
from rmq.ops.places import ArchiveStorage

FILE, FORMAT = "archive.json", 1


class Stored(NamedTuple):
    """One segment. Times are those of its first and last record. `records_end`: the end of its last record, before filler."""

    base: int
    bytes: int
    records_end: int
    sha256: str
    first_ms: int
    last_ms: int

    @property
    def end(self) -> int:
        return self.base + self.bytes

    @property
    def path(self) -> str:
        return f"commitlog/{file_name(self.base)}"


class Kept(NamedTuple):
    """One snapshot of the tables: usable for a log that reaches `s1`. `epoch`: the newest of the log when it was taken."""

    s0: int
    s1: int
    sha256: str
    epoch: int

    @property
    def path(self) -> str:
        return f"rmq/snapshot-{self.s0:020d}"


class Manifest(NamedTuple):
    """`group`: RocketMQ's brokerName. `epoch`: the newest that the store knew when it was archived. `epochs`: the history of the
    archived log. `rmq`: the version that wrote the manifest."""

    group: str
    segment_bytes: int
    epoch: int = 0
    epochs: EpochHistory = ()
    segments: tuple[Stored, ...] = ()
    snapshots: tuple[Kept, ...] = ()
    rmq: str = ""

    @property
    def start(self) -> int:
        return self.segments[0].base if self.segments else 0

    @property
    def end(self) -> int:
        return self.segments[-1].end if self.segments else 0

    @property
    def last_ms(self) -> int:
        return self.segments[-1].last_ms if self.segments else 0

    @property
    def usable(self) -> Kept | None:
        """The newest snapshot that the archived log reaches."""
        return max((kept for kept in self.snapshots if self.start <= kept.s0 and kept.s1 <= self.end), default=None)

    @property
    def restorable(self) -> bool:
        """Whether the tables can be rebuilt, from the log's beginning or from a snapshot."""
        return bool(self.segments) and (self.start == 0 or self.usable is not None)


def load(place: ArchiveStorage) -> Manifest | None:
    """The manifest; None if there is no archive. Raises StoreError, BadBytes, OSError."""
    if FILE not in place.sizes(""):
        return None
    data = b"".join(place.blocks(FILE))
    try:
        found: dict[str, Any] = json.loads(data)
        if found.pop("format") != FORMAT:
            raise StoreError(f"{place.name}/{FILE} was written by a newer version of rmq: read it with that")
        if found.pop("sha256") != _sum(found):
            raise BadBytes(f"{place.name}/{FILE} is damaged (wrong checksum): restore it from a copy")
        return _from_json(found)
    except (ValueError, KeyError, TypeError) as error:
        raise BadBytes(f"{place.name}/{FILE} is no manifest of `rmq archive`, or damaged: {error!r}") from error


def save(place: ArchiveStorage, manifest: Manifest) -> None:
    """Raises OSError."""
    said = _to_json(manifest)
    place.write(FILE, [json.dumps({"format": FORMAT, **said, "sha256": _sum(said)}, indent=1).encode()])


def checksum(blocks: Iterable[bytes]) -> str:
    """SHA-256, as hex digits."""
    found = sha256()
    for block in blocks:
        found.update(block)
    return found.hexdigest()


def _to_json(manifest: Manifest) -> dict[str, Any]:
    def as_dicts(rows: Sequence[Any]) -> list[dict[str, Any]]:
        return [row._asdict() for row in rows]

    said = manifest._asdict() | {"segments": as_dicts(manifest.segments), "snapshots": as_dicts(manifest.snapshots)}
    return said | {"rows": as_dicts(said.pop("epochs"))}


def _from_json(found: dict[str, Any]) -> Manifest:
    rows, segments, snapshots = (found.pop(name) for name in ("rows", "segments", "snapshots"))
    return Manifest(
        **found,
        epochs=tuple(EpochEntry(**row) for row in rows),
        segments=tuple(Stored(**row) for row in segments),
        snapshots=tuple(Kept(**row) for row in snapshots),
    )


def _sum(said: dict[str, Any]) -> str:
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
