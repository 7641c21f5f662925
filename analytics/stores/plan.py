"""Decides what each task of a job reads: parts of a store, packed together or cut as the options say. No Spark."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from analytics.stores.files import Directory, own_files, refuse_links
from analytics.stores.options import Wanted, nearest
from analytics.stores.rare import Places, cut, find_places
from analytics.stores.segments import Part, find_parts, refuse_holes
from analytics.stores.walk import Block, walk
from rmq.clock import SystemClock, latest_ms
from rmq.errors import InvalidArgument, StoreError
from rmq.log.files import ownfiles

SPLIT_BYTES = 128 << 20
_LEAST_BYTES = 4 << 20  # of a task, where the options leave the choice
_LAST_BYTES = 8 << 20  # in which the last record of a file is looked for first
_OPENING_BYTES = 64 << 10  # what opening a file costs, in bytes read


def plan(store: Directory, wanted: Wanted) -> list[list[Part | Places]]:
    """The parts of each task, in log order; [] if there is nothing to read.

    Raises InvalidArgument (no store; topics that it does not know), BadBytes (files are missing), StoreError.
    """
    check_names(store, wanted)
    if wanted.topics == frozenset():
        return []
    return tasks(store, wanted, find_parts(store, wanted.from_ms, wanted.to_ms))


def tasks(store: Directory, wanted: Wanted, parts: Sequence[Part]) -> list[list[Part | Places]]:
    """Packs and cuts these parts of the store. Raises BadBytes, StoreError."""
    if wanted.on_damage == "fail":
        refuse_holes(parts)
    if wanted.split_records:
        return [[piece] for part in parts for piece in _by_records(part, wanted.split_records)]
    places = find_places(store, wanted, parts)
    if places is not None:
        size = _task_bytes(sum(each.bytes for each in places), wanted.least_parts)
        return list(_packed([piece for each in places for piece in cut(each, size)], size))
    opening = 0 if wanted.least_parts else _OPENING_BYTES
    size = _task_bytes(sum(part.stop - part.start + opening for part in parts), wanted.least_parts)
    return list(_dealt(parts, size, opening))


def newest_ms(store: Directory) -> int:
    """Store time of the last record that counts, and is not of a clock that was ahead; 0 if there is none. Reads the end of the
    last file, or all of it. An earlier record may have a later time: of a leader whose clock was ahead by less."""
    for part in find_parts(store)[-1:]:
        near = max(part.start, part.stop - _LAST_BYTES if part.reach else 0)
        return _newest_ms(part._replace(start=near, midway=near > part.start)) or _newest_ms(part)
    return 0


def _newest_ms(part: Part) -> int:
    times, latest = (found.ints(found.store) for found in walk(part) if isinstance(found, Block)), latest_ms(SystemClock())
    newest = 0
    for some in times:
        if len(believed := some[some <= latest]):
            newest = int(believed[-1])
    return newest


def _task_bytes(total: int, least_parts: int) -> int:
    """The size of a task, as Spark cuts files: 128 MiB, or less so that all cores end at the same time."""
    if least_parts:
        return max(1, min(SPLIT_BYTES, total // least_parts))
    cores = os.cpu_count() or 1
    count = -(-total // (SPLIT_BYTES * cores)) * cores
    return -(-total // max(1, min(count, total // _LEAST_BYTES)))


def _dealt(parts: Sequence[Part], size: int, opening: int) -> Iterator[list[Part | Places]]:
    """Tasks of about `size`: each takes what comes next in the log, and a file is cut where a task is full."""
    task: list[Part | Places] = []
    room, enough = size, size // 8 if opening else 0  # so much is not worth a task of its own
    for part in parts:
        begin = opening
        while not part.broken and part.stop - part.start + begin > room + enough:
            cut = part.start + room - begin
            if cut >= part.start + max(enough, 1):
                task.append(part._replace(stop=cut))
                part, room, begin = part._replace(start=cut, midway=True), 0, 0
            yield task
            task, room = [], room + size  # what one task has less, the next one has more
        task.append(part)
        room -= 0 if part.broken else part.stop - part.start + begin
    if task:
        yield task


def _packed(parts: Sequence[Places], size: int) -> Iterator[list[Part | Places]]:
    task: list[Part | Places] = []
    room = size
    for part in parts:
        cost = part.bytes + _OPENING_BYTES
        if task and cost > room:
            yield task
            task, room = [], size
        task.append(part)
        room -= cost
    if task:
        yield task


def _by_records(part: Part, most: int) -> Iterator[Part]:
    """Cuts the part so that no piece has more than `most` records. Reads all of them once."""
    start, count = part.start, 0
    for found in walk(part):
        if isinstance(found, Block):
            offsets = found.head["physical_offset"][(-count) % most :: most].tolist()
            for offset in offsets:
                if offset > start:
                    yield part._replace(start=start, stop=offset)
                    start = offset
            count += len(found)
    yield part._replace(start=start)


# --- what the options name --------------------------------------------------------------------------------------------


def check_names(store: Directory, wanted: Wanted) -> None:
    """Checks that the topics and first messages that the options name exist. Raises InvalidArgument, StoreError."""
    check_topics([store], wanted)
    check_starts([store], wanted)


def check_topics(stores: Sequence[Directory], wanted: Wanted) -> None:
    """Checks that each named topic is in one of the stores, if these can tell. Raises InvalidArgument, StoreError."""
    every = [_known_topics(store) for store in stores]
    known = set().union(*every) if all(every) else set()
    missing = sorted(wanted.topics - known) if wanted.topics and known else []
    if missing and not wanted.allow_missing:
        names = ", ".join(map(repr, missing)) + nearest(missing[0], tuple(known))
        have = "the store has" if len(stores) == 1 else "the stores have"
        raise InvalidArgument(
            f"{have} no topic {names} (allowMissingTopics=true, of commands --allow-missing, takes it as empty)"
        )


def _known_topics(store: Directory) -> set[str]:
    """Topics that have a queue or settings; none in an archive of segments, which cannot tell."""
    queues, settings = store / "consumequeue", store / "config" / "topics.json"
    refuse_links(queues, store / "config", settings)
    found = {entry.name for entry in queues.iterdir()} if queues.is_dir() else set()
    with suppress(OSError, ValueError, KeyError, TypeError):  # RocketMQ's export: it may be missing, or just be written
        found |= set(json.loads(settings.read_bytes())["topicConfigTable"])
    return found | {row.topic for row in _rows(store)}


def _rows(store: Directory) -> list[ownfiles.QueueRow]:
    own = own_files(store)
    return (ownfiles.load_queues(*own) or []) if own else []


def check_starts(stores: Sequence[Directory], wanted: Wanted) -> None:
    """Checks that the messages to begin at are still in one of these copies. Raises StoreError."""
    said = [{(row.topic, row.queue_id): row.min for row in _rows(store)} for store in stores]
    if not wanted.starts or not wanted.fail_on_loss or not all(said):
        return
    for topic, queue, start in ((topic, queue, start) for topic, of in wanted.starts.items() for queue, start in of.items()):
        first = min((rows[topic, queue] for rows in said if (topic, queue) in rows), default=0)
        if start < first:
            raise StoreError(
                f"message {start} of {topic}, queue {queue} is gone, the first one left is {first}: "
                "begin there, or give failOnDataLoss=false"
            )
