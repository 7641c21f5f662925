"""What a store directory says about itself before any message is read: whose it is, how far it reaches, and at what time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from analytics.stores.files import Directory, Remote, entries, open_file, own_files
from rmq.clock import SystemClock, latest_ms
from rmq.errors import StoreError
from rmq.log.files import ownfiles
from rmq.log.reader import SegmentFile
from rmq.log.records.crc import crc32
from rmq.log.records.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, SYS_BORN_V6, host_text, store_timestamp

_ERRANDS = 16
_GRACE_MS = 60_000  # by which the clocks of a group's nodes may differ


class Extent(NamedTuple):
    """`broker`: the group's name, or the address in the records. `log_start`: offset of the oldest byte that is left. `first_ms`:
    store time of the record there, or of the first one that begins a file and is not of a clock that was ahead (None: there is
    none). `known_ms`: all messages stored before this time are committed here, as the store notes it (0: it does not). `heads`:
    checksum of the first record of each file, by its offset; copies of a log have them in common.
    """

    broker: str
    log_start: int
    first_ms: int | None
    known_ms: int
    heads: dict[int, str]


def extent(store: Directory) -> Extent:
    """The extent of the store's log. Raises StoreError if its files cannot be read."""
    segments = listed(store)
    heads = list(zip(segments, first_records(store, segments), strict=True))
    head, latest = next((head for _, head in heads if head), None), latest_ms(SystemClock())
    return Extent(
        broker=broker_name(store, head),
        log_start=segments[0].base if segments else 0,
        first_ms=next((begun for _, each in heads if each and (begun := store_timestamp(each, 0)) <= latest), None),
        known_ms=_known_ms(store),
        heads={segment.base: checksum(head) for segment, head in heads if head},
    )


def broker_name(store: Directory, head: bytes | None = None) -> str:
    """The name of the store's group; if the store does not say it, the address in its records.

    `head`: the fixed part of the oldest record, if it is known. Raises StoreError if a file of the store is damaged.
    """
    group = group_name(store)
    if group:
        return group
    head = head or next(filter(None, map(first_record, listed(store))), None)
    return host_text(store_host(head)) if head else "unknown"


def group_name(store: Directory) -> str:
    """The name of the store's group; "" if the store does not say it. Raises StoreError if a file of it is damaged."""
    own = own_files(store)
    vote = ownfiles.load_vote(*own) if own else None
    return vote.group if vote else ""


def listed(store: Directory) -> list[SegmentFile]:
    """The files of its log, oldest first, without empty ones. Raises StoreError."""
    directory = store / "commitlog"
    try:
        found = entries(directory)
    except OSError as error:
        raise StoreError(f"{directory} cannot be read: {error}; run the job as the broker's user, or on a copy") from error
    return [
        SegmentFile(one.path, int(one.name), one.size)
        for one in found
        if len(one.name) == 20 and one.name.isdecimal() and one.size
    ]


def first_records(store: Directory, segments: Sequence[SegmentFile]) -> list[bytes | None]:
    """The first record of each file; reads several at once if each read goes over the network."""
    if isinstance(store, Remote):
        with ThreadPoolExecutor(_ERRANDS) as pool:
            return list(pool.map(first_record, segments))
    return list(map(first_record, segments))


def first_record(segment: SegmentFile) -> bytes | None:
    """The fixed part of a segment's first record; None if there is no record, or retention took the file."""
    try:
        opened = open_file(segment.path)
    except FileNotFoundError:
        return None
    try:
        head = opened.read(MIN_RECORD_BYTES + 24, 0)
    finally:
        opened.close()
    if len(head) < MIN_RECORD_BYTES or int.from_bytes(head[4:8], "big", signed=True) not in (MAGIC_V1, MAGIC_V2):
        return None
    return head if int.from_bytes(head[28:36], "big") == segment.base else None


def checksum(head: bytes) -> str:
    """Of the first record of a file, by which a log is known again."""
    return f"{crc32(head):08x}"


def store_host(head: bytes) -> bytes:
    """The store host of the record that begins with `head`."""
    at = 76 if head[39] & SYS_BORN_V6 else 64
    return head[at : at + (20 if head[39] & 0x20 else 8)]


def _known_ms(store: Directory) -> int:
    own = own_files(store)
    progress = ownfiles.load_progress(*own) if own else None
    if progress is None:
        return 0
    said = progress.settled_ms - _GRACE_MS, progress.stored_ms if progress.hw == progress.log else 0
    return max((known_ms for known_ms in said if known_ms <= latest_ms(SystemClock())), default=0)
