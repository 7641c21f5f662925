"""Ships rolled segments of a store to an archive before retention takes them, and verifies archives.

The order for each segment: its records are checked, it is written, read back, named in the manifest, and only then may
readers count it (`rmq/progress` of the archive) and retention delete it (`rmq/archived` of the store). The next job continues
a killed one: it writes again whatever the manifest does not name.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from io import FileIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rmq import __version__
from rmq.errors import BadBytes, InvalidArgument, StoreError
from rmq.log import reader
from rmq.log.files import ownfiles
from rmq.log.files.disk import ReadOnlyDisk, RealDisk
from rmq.log.files.epochs import EpochHistory
from rmq.log.files.ownfiles import Progress, Vote
from rmq.log.files.segment import file_name, walk_epochs
from rmq.log.files.snapshot import Snapshot, Snapshots
from rmq.log.reader import SegmentFile, named
from rmq.log.records.record import store_timestamp
from rmq.ops import manifest as manifests
from rmq.ops.manifest import Kept, Manifest, Stored, checksum
from rmq.ops.places import BLOCK_BYTES, UNFINISHED, ArchiveStorage, Folder, Remote

Tell = Callable[[str], None]
_LOOKS = 5  # to read snapshots while the broker takes a new one
_NOBODY = "0" * 16  # store id of an archive, which no node may have


class Shipped(NamedTuple):
    """The result of a job: the archive as it is now, how many segments are new, committed bytes that are not rolled yet."""

    manifest: Manifest
    segments: int
    left_bytes: int


def ship(store: Path, place: Folder | Remote, tell: Tell = lambda line: None) -> Shipped:
    """Ships new segments. Raises InvalidArgument (no store of rmq), StoreError (other log, a gap), BadBytes (damage), OSError."""
    if isinstance(place, Folder) and Path(place.name).resolve().is_relative_to(store.resolve()):
        raise InvalidArgument(f"{place.name} lies in the store: the archive would be lost with it; give another disk")
    with place.alone():
        vote, committed, history = _facts(store)
        known = manifests.load(place) or Manifest(vote.group, 0)
        files = [file for file in reader.read_segments(str(store)) if file.base < committed]
        rolled = [file for file in files if file.base + file.size <= committed]
        size = max((file.size for file in files), default=0)
        try:
            known = _same_log(known, vote.group, size or known.segment_bytes, history, place)
            new = _new(known, rolled, place)
        except StoreError:
            _tell_retention(store, 0)  # retention waits until an operator has acted
            raise
        _remove_leftovers(place)
        for file in new:
            known = _ship(file, history, known._replace(epoch=vote.epoch, rmq=__version__), place)
            tell(f"{file_name(file.base)}: {file.size} bytes")
        known = _ship_snapshots(store, known, history, place)
        if known.segments:
            _publish(known, place)
        _tell_retention(store, known.end)
    return Shipped(known, len(new), max(0, committed - known.end))


def verify(place: ArchiveStorage, tell: Tell = lambda line: None) -> list[str]:
    """Errors of an archive, found by reading every byte of it. Raises StoreError if there is no archive, OSError."""
    found = need(place)
    wrong = []
    for one, two in zip(found.segments, found.segments[1:], strict=False):
        if one.end != two.base:
            wrong.append(f"the log stops at {one.end} and goes on at {two.base}")
    sums = {each.path: each.sha256 for each in found.segments} | {each.path: each.sha256 for each in found.snapshots}
    there = {f"{folder}/{name}" for folder in ("commitlog", "rmq") for name in place.sizes(folder)}
    for path, expected in sums.items():
        if path not in there:
            wrong.append(f"{path} is missing")
        elif checksum(place.blocks(path)) != expected:
            wrong.append(f"{path} is damaged: another SHA-256 than when it was written")
        else:
            tell(f"{path}: right")
    return wrong


def need(place: ArchiveStorage) -> Manifest:
    """The manifest. Raises StoreError if there is none."""
    found = manifests.load(place)
    if found is None:
        about = f"no {manifests.FILE}, which comes with the first full file of a log"
        raise StoreError(f"{place.name} is no archive (yet): it has {about}")
    return found


# --- what to ship --------------------------------------------------------------------------------------------


def _facts(store: Path) -> tuple[Vote, int, EpochHistory]:
    """The store's identity, and its committed end, which is read before its files."""
    vote = ownfiles.load_vote(ReadOnlyDisk(), str(store / "rmq")) if (store / "rmq").is_dir() else None
    if vote is None or vote.store_id == _NOBODY:
        raise InvalidArgument(f"{store} is no store of rmq that a node has opened: only those are archived")
    return vote, reader.committed_end(str(store)) or 0, reader.read_epochs(str(store))


def _same_log(known: Manifest, group: str, size: int, history: EpochHistory, place: ArchiveStorage) -> Manifest:
    """Raises StoreError if the archive is of another group or log."""
    advice = "give each log an archive of its own"
    if known.group != group:
        raise StoreError(f"{place.name} is the archive of the group {known.group}, this store is of {group}: {advice}")
    if known.segments and known.segment_bytes != size:
        raise StoreError(f"{place.name} has segments of {known.segment_bytes} bytes, this store of {size}: {advice}")
    from_ = max((some[0].start for some in (known.epochs, history) if some), default=0)
    here, there = ({entry[:3] for entry in some if from_ <= entry.start < known.end} for some in (history, known.epochs))
    if here != there:
        raise StoreError(f"{place.name} holds another log of the group {group} (other epochs below {known.end}): {advice}")
    return known._replace(segment_bytes=size)


def _new(known: Manifest, rolled: list[SegmentFile], place: ArchiveStorage) -> list[SegmentFile]:
    new = [file for file in rolled if file.base >= known.end]
    expected = known.end if known.segments else (new[0].base if new else 0)
    for file in new:
        if file.base != expected:
            raise StoreError(
                f"bytes {expected} to {file.base} of the log are not in {place.name} and not here any more: "
                "archive from another node of the group, or begin another archive"
            )
        expected = file.base + file.size
    return new


def _remove_leftovers(place: ArchiveStorage) -> None:
    for folder in ("commitlog", "rmq", ""):
        for name in place.sizes(folder):
            if name.endswith(UNFINISHED):
                place.remove(f"{folder}/{name}" if folder else name)


def _tell_retention(store: Path, end: int) -> None:
    with named(store / "rmq" / "archived"):
        ownfiles.save_archived(RealDisk(), str(store / "rmq"), end)


# --- shipping ---------------------------------------------------------------------------------------------------------


def _ship(file: SegmentFile, history: EpochHistory, known: Manifest, place: ArchiveStorage) -> Manifest:
    records_end, first_ms, last_ms = _checked(file)
    stored = Stored(file.base, file.size, records_end, checksum(_blocks(file.path)), first_ms, last_ms)
    _write(place, stored.path, _blocks(file.path), stored.sha256)
    below = tuple(entry for entry in history if entry.start < stored.end)
    kept_epochs = tuple(entry for entry in known.epochs if not below or entry.start < below[0].start)
    known = known._replace(segments=(*known.segments, stored), epochs=(*kept_epochs, *below))
    manifests.save(place, known)
    _publish(known, place)
    return known


def _write(place: ArchiveStorage, path: str, blocks: Iterable[bytes], expected: str) -> None:
    """Raises StoreError if the file reads back differently."""
    place.write(path, blocks)
    if checksum(place.blocks(path)) != expected:
        raise StoreError(f"{place.name}/{path} reads otherwise than it was written: check the disk, then run the job again")


def _checked(file: SegmentFile) -> tuple[int, int, int]:
    """Checks all records: the end of the last one, and store times of the first and last. Raises BadBytes, StoreError."""
    records_end = first = last = 0
    with named(Path(file.path)), _opened(file.path) as opened:

        def read(offset: int, size: int) -> bytes:
            return os.pread(opened.fileno(), size, offset - file.base)

        end = file.base + file.size
        for place in walk_epochs(read, end, file.base, end, file.epochs):
            last = store_timestamp(place.buf, place.at)
            first = first or last
            records_end = place.offset + place.size
    if not last:
        raise BadBytes(f"{file.path} holds no record: run `rmq store verify`")
    return records_end, first, last


def _blocks(path: str) -> Iterator[bytes]:
    with named(Path(path)), _opened(path) as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _opened(path: str) -> FileIO:
    try:
        return FileIO(path)
    except FileNotFoundError:
        raise StoreError(f"{path} is gone: retention took it before it was archived (see the setting keep_unarchived)") from None


def _publish(known: Manifest, place: ArchiveStorage) -> None:
    """Writes the files that readers of stores use; again if a job was killed before that."""
    with TemporaryDirectory() as temporary, named(Path(temporary)):
        disk = RealDisk()
        ownfiles.save_vote(disk, temporary, Vote(_NOBODY, "archive", known.group, known.epoch, "-", 0, False))
        ownfiles.save_epochs(disk, temporary, known.epochs, known.end)
        ownfiles.save_progress(disk, temporary, Progress(known.end, known.end, 0, known.last_ms))
        for name in ("vote", "epochs", "progress"):  # the last file makes the bytes count
            new = (Path(temporary) / name).read_bytes()
            if name not in place.sizes("rmq") or b"".join(place.blocks(f"rmq/{name}")) != new:
                place.write(f"rmq/{name}", [new])


# --- the tables -------------------------------------------------------------------------------------------------------


def _ship_snapshots(store: Path, known: Manifest, history: EpochHistory, place: ArchiveStorage) -> Manifest:
    """Keeps the newest snapshot that the archived log reaches, and the oldest that it will reach; removes others."""
    found = {kept.s0: kept for kept in known.snapshots if not _is_of_another_log(kept, history)}
    for snapshot in _snapshots(store):
        waits = any(kept.s1 > known.end for kept in found.values())
        if snapshot.s0 in found or snapshot.s0 < known.start or not known.segments or (waits and snapshot.s1 > known.end):
            continue
        try:
            data = Path(snapshot.path).read_bytes()
        except FileNotFoundError:
            continue  # the broker took a newer one meanwhile, and both were read
        kept = Kept(snapshot.s0, snapshot.s1, sha256(data).hexdigest(), max((entry.epoch for entry in history), default=0))
        _write(place, kept.path, [data], kept.sha256)
        found[kept.s0] = kept
    usable = max((kept for kept in found.values() if kept.s1 <= known.end), default=None)
    new = known._replace(snapshots=tuple(kept for kept in sorted(found.values()) if kept == usable or kept.s1 > known.end))
    if new != known:
        manifests.save(place, new)
    names = {os.path.basename(kept.path) for kept in new.snapshots}
    for name in place.sizes("rmq"):
        if name.startswith("snapshot-") and name not in names:
            place.remove(f"rmq/{name}")
    return new


def _snapshots(store: Path) -> list[Snapshot]:
    """The complete snapshots, oldest first. Raises StoreError."""
    for _ in range(_LOOKS):
        try:
            return Snapshots(ReadOnlyDisk(), str(store / "rmq")).kept
        except FileNotFoundError:
            continue  # the broker took a newer one meanwhile
    raise StoreError(f"the snapshots in {store} cannot be read: run the job again")


def _is_of_another_log(kept: Kept, history: EpochHistory) -> bool:
    """Whether bytes that the snapshot was taken of were lost, and the log has others there now."""
    return any(entry.epoch > kept.epoch and entry.start < kept.s1 for entry in history)
