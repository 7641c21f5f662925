"""Makes a store directory from an archive. A node that starts on it serves all that was archived.

Everything is made in `DIR/restoring`; segments that a killed job left there are used again if their checksums are right. The
store is then opened there once, as a node opens it: this makes its queues and begins an epoch of its own, which is lossy because
bytes that were not archived are gone. Then it is renamed to `DIR/restored`, and its parts move up into DIR, `rmq` first, so that
a node that starts in between refuses it. When `DIR/restored` is gone all is done.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from rmq.clock import Clock
from rmq.errors import BadBytes, StoreError
from rmq.log.files import ownfiles
from rmq.log.files.disk import RealDisk
from rmq.log.files.ownfiles import Progress, Vote
from rmq.log.reader import named
from rmq.log.records.record import host_bytes
from rmq.log.store import Store, StoreSettings
from rmq.ops.archive import need
from rmq.ops.manifest import Manifest, checksum
from rmq.ops.places import ArchiveStorage, Folder, sync_folder

Tell = Callable[[str], None]


class Member(NamedTuple):
    """The node that will run on the restored store: its id in the group, and where other nodes reach it."""

    node_id: str = "n0"
    host: str = "127.0.0.1"
    port: int = 10911


def restore(place: ArchiveStorage, directory: Path, member: Member, clock: Clock, tell: Tell = lambda line: None) -> Manifest:
    """Restores the archive. Raises StoreError (the directory is in use, the archive has no tables yet), BadBytes (it is damaged),
    OSError."""
    manifest = need(place)
    working, done = directory / "restoring", directory / "restored"
    directory.mkdir(parents=True, exist_ok=True)
    with Folder(directory).alone():
        if not done.exists():
            _check(directory, manifest, place)
            _fetch(place, manifest, working, tell)
            with named(working):
                _begin(manifest, working, member, clock.wall_ms())
            working.rename(done)
            sync_folder(directory)
        _move_up(done, directory)
    (directory / ".lock").unlink()
    return manifest


def how_to_start(manifest: Manifest, directory: Path) -> str:
    return (
        f"start a node with brokerName={manifest.group}, mappedFileSizeCommitLog={manifest.segment_bytes}, "
        f"storePathRootDir={directory}"
    )


def _check(directory: Path, manifest: Manifest, place: ArchiveStorage) -> None:
    others = {entry.name for entry in directory.iterdir()} - {".lock", "restoring", "lost+found"}
    if {"rmq", "commitlog"} <= others:  # killed behind the last move, it could not say so
        raise StoreError(
            f"{directory} holds a store already. If `rmq restore` made it, that is done: {how_to_start(manifest, directory)}. "
            "Otherwise give a new directory"
        )
    if others:
        raise StoreError(f"{directory} is not empty ({min(others)}): give a new directory")
    if not manifest.restorable:
        raise StoreError(
            f"{place.name} begins at {manifest.start} and holds no snapshot of the tables that its log reaches yet: "
            "run `rmq archive` again when the log has grown by a segment; Spark can read it as it is"
        )


def _fetch(place: ArchiveStorage, manifest: Manifest, working: Path, tell: Tell) -> None:
    if working.exists():
        for entry in working.iterdir():  # everything but segments is made again
            if entry.is_dir() and entry.name != "commitlog":
                shutil.rmtree(entry)
            elif entry.is_file():
                entry.unlink()
    local = Folder(working)
    there = local.sizes("commitlog")
    for name in there.keys() - {os.path.basename(each.path) for each in manifest.segments}:
        local.remove(f"commitlog/{name}")
    sums = {each.path: each.sha256 for each in manifest.segments}
    if manifest.usable:
        sums[manifest.usable.path] = manifest.usable.sha256
    for path, expected in sums.items():
        if os.path.basename(path) not in there or checksum(local.blocks(path)) != expected:
            local.write(path, _checked(place, path, expected))
            tell(path)


def _checked(place: ArchiveStorage, path: str, expected: str) -> Iterator[bytes]:
    """The blocks. Raises BadBytes at their end if the checksum is wrong: then the written file does not count."""
    found = sha256()
    for block in place.blocks(path):
        found.update(block)
        yield block
    if found.hexdigest() != expected:
        raise BadBytes(f"{place.name}/{path} is damaged (wrong checksum): `rmq archive --verify` tells what else is")


def _begin(manifest: Manifest, working: Path, member: Member, now_ms: int) -> None:
    """Writes the store's own files, then opens it for the first time. Raises StoreError."""
    disk, own = RealDisk(), str(working / "rmq")
    (working / "rmq").mkdir(exist_ok=True)
    end = manifest.segments[-1].records_end  # a log never ends with filler
    ownfiles.save_epochs(disk, own, manifest.epochs, end)
    ownfiles.save_progress(disk, own, Progress(end, end, 0, manifest.last_ms))
    ownfiles.save_vote(
        disk, own, Vote(disk.random_bytes(8).hex(), member.node_id, manifest.group, manifest.epoch, "-", 0, proven=False)
    )
    host = host_bytes(member.host, member.port)
    settings = StoreSettings(host, manifest.segment_bytes, group=manifest.group, node_id=member.node_id)
    store = Store.open(disk, str(working), settings)
    try:
        if store.read_only:
            raise StoreError(f"{store.log.damages}: the archive was made of a damaged log")
        store.open_epoch(now_ms)
    except BaseException:
        store.abandon()
        raise
    store.close()


def _move_up(done: Path, directory: Path) -> None:
    last = ("rmq", "consumequeue", "commitlog")
    names = sorted((entry.name for entry in done.iterdir()), key=lambda name: (last.index(name) if name in last else 1, name))
    for name in names:
        os.rename(done / name, directory / name)
    sync_folder(directory)
    done.rmdir()
