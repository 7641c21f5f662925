"""Lowers epochs that somebody made up to numbers in reach, in the log and everywhere else where this store names them.

A group whose nodes believed in an epoch near the last number there is can elect nobody any more. Nothing in the log is wrong
but a few numbers in its epoch records, and those are written wide, so new ones take the same room: every record keeps its
place, and what was committed stays committed. All nodes must give the same old number the same new one (R3).

What is to be written is saved first, in `rmq/lowering`: after a crash the next run ends what this one began. Until then the store
cannot be opened (`ownfiles.check_lowered`).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rmq.errors import InvalidArgument
from rmq.log import reader
from rmq.log.files import epochs, ownfiles, smallfile
from rmq.log.files.disk import Disk
from rmq.log.files.snapshot import EPOCHS, Snapshot, Snapshots, SnapshotWriter, blocks_of
from rmq.log.records import record
from rmq.log.records.crc import crc32
from rmq.log.records.record import Record
from rmq.model import EPOCH_TOPIC

WIDE = 2**32  # from here on msgpack writes a number in 8 bytes
_UINT64 = b"\xcf"


class Epochs(NamedTuple):
    """The epochs that one store names: in its vote, and of the leaders of its log, rising."""

    node: str
    group: str
    vote: int
    of_log: tuple[int, ...]

    def out_of_reach(self, most: int) -> tuple[int, ...]:
        """The epochs from the first one on that is more than `most` ahead of the one before it."""
        known = sorted({*self.of_log, self.vote})
        for before, one in zip([0, *known], known, strict=False):
            if one - before > most:
                return tuple(each for each in known if each >= one)
        return ()


def look(disk: Disk, root: str) -> Epochs:
    """Reads the whole log. Raises InvalidArgument if it is no store of ours, StoreError."""
    vote = ownfiles.load_vote(disk, f"{root}/rmq")
    if vote is None:
        raise InvalidArgument(f"{root} is no store of rmq: there is no rmq/vote in it")
    known = ownfiles.load_epochs(disk, f"{root}/rmq")
    of_log = {entry.epoch for entry in known[0]} if known else set()
    of_log |= {entry.epoch for stored in _epoch_records(root) for entry in _entries(stored)}
    return Epochs(vote.node_id, vote.group, vote.epoch, tuple(sorted(of_log)))


def lower(disk: Disk, root: str, new: Mapping[int, int]) -> int:
    """Gives each epoch its new number; how many records of the log named one. To be called under the store's lock.

    Raises StoreError, OSError.
    """
    found = ((stored.physical_offset, _rewritten(stored, new)) for stored in _epoch_records(root))
    changed = [["record", str(at), data.hex()] for at, data in found if data is not None]
    lowered = [["epoch", str(old), str(instead)] for old, instead in new.items()]
    smallfile.save(disk, f"{root}/rmq", ownfiles.LOWERING, [*lowered, *changed])
    finish(disk, root)
    return len(changed)


def finish(disk: Disk, root: str) -> bool:
    """Completes a saved lowering; returns whether there was one. Each step may have been done before."""
    own = f"{root}/rmq"
    lines = smallfile.load(disk, own, ownfiles.LOWERING)
    if lines is None:
        return False
    new = {int(old): int(instead) for kind, old, instead in lines if kind == "epoch"}
    _write_records(disk, root, {int(at): bytes.fromhex(data) for kind, at, data in lines if kind == "record"})
    known = ownfiles.load_epochs(disk, own)
    if known is not None:
        ownfiles.save_epochs(disk, own, [entry._replace(epoch=new.get(entry.epoch, entry.epoch)) for entry in known[0]], known[1])
    for snapshot in Snapshots(disk, own).kept:
        _lower_snapshot(disk, own, snapshot, new)
    vote = ownfiles.load_vote(disk, own)
    if vote is not None:
        ownfiles.save_vote(disk, own, vote._replace(epoch=new.get(vote.epoch, vote.epoch)))
    disk.unlink(f"{own}/{ownfiles.LOWERING}")
    disk.fsync_directory(own)
    return True


def _write_records(disk: Disk, root: str, records: Mapping[int, bytes]) -> None:
    bases = sorted(int(name) for name in disk.listdir(f"{root}/commitlog") if name.isdecimal())
    for at, data in records.items():
        base = max(each for each in bases if each <= at)
        handle = disk.open(f"{root}/commitlog/{base:020d}")
        try:
            written = 0
            while written < len(data):
                written += disk.pwrite(handle, data[written:], at - base + written)
            disk.fdatasync(handle)
        finally:
            disk.close(handle)


def _epoch_records(root: str) -> Iterator[Record]:
    """The epoch records that we wrote; those in bytes of Apache RocketMQ belong to another store."""
    for segment in reader.read_segments(root):
        for stored in reader.read_records(segment):
            if stored.topic == EPOCH_TOPIC and not epochs.written_by_rocketmq(segment.epochs, stored.physical_offset):
                yield stored


def _entries(stored: Record) -> Iterator[epochs.EpochEntry]:
    found = epochs.unpack(stored.body)
    yield found.entry()
    yield from found.epochs


def _rewritten(stored: Record, new: Mapping[int, int]) -> bytes | None:
    """The record with the new epochs, None if it names none of the old ones."""
    body = stored.body
    for old, instead in new.items():
        if old >= 2**64:  # no record names it, but a vote may, which is text
            continue
        body = body.replace(_UINT64 + old.to_bytes(8, "big"), _UINT64 + instead.to_bytes(8, "big"))
    if body == stored.body:
        return None
    run = bytearray(record.encode(stored._replace(body=body, body_crc=crc32(body) & record.CRC_MASK)))
    stored_by = stored.store_timestamp.to_bytes(8, "big") + stored.store_host
    record.stamp(run, [(0, (len(run),), stored.queue_id, stored.queue_offset)], stored.physical_offset, stored_by)
    return bytes(run)


def _lower_snapshot(disk: Disk, own: str, snapshot: Snapshot, new: Mapping[int, int]) -> None:
    """Under the same name, durably, in one step."""
    writer = SnapshotWriter(disk, own)
    try:
        for section, rows in blocks_of(disk, snapshot.path):
            lowered = [[new.get(row[0], row[0]), *row[1:]] for row in rows] if section == EPOCHS else rows
            writer.add(section, lowered)
        writer.publish(snapshot.s0, snapshot.s1, snapshot.path)
    finally:
        writer.abandon()
