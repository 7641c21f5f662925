"""Several store directories read by one job: which of them are copies of one log, and from which each file is read. No Spark.

Copies (a leader's and its followers' logs, a store and its archive) have the first records of some files in common, or an entry
of their epoch histories. A record counts once: every file is read from the copy that has most of it, so another copy supplies
what one has lost or does not have yet.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analytics.stores.files import Directory, Remote
from analytics.stores.look import broker_name, group_name
from analytics.stores.options import Wanted
from analytics.stores.plan import check_starts, check_topics, tasks
from analytics.stores.rare import Places
from analytics.stores.segments import Held, Log, Part, look_at, parts_of
from analytics.stores.walk import Block, walk
from rmq.errors import InvalidArgument, StoreError
from rmq.log.files.epochs import ROCKETMQ_EPOCH


class Copy(NamedTuple):
    """A store directory, and the log in it."""

    store: Directory
    log: Log

    @property
    def reach(self) -> int:
        """The latest offset where its log may end."""
        end = self.log.files[-1].end if self.log.files else 0
        return end if self.log.committed is None else self.log.committed

    @property
    def heads(self) -> dict[int, bytes]:
        return {file.segment.base: file.head for file in self.log.files if file.head}


class Planned(NamedTuple):
    """What one task reads: parts of one broker's log."""

    broker: str
    parts: list[Part | Places]


def plan_all(stores: Sequence[Directory], wanted: Wanted) -> list[Planned]:
    """The tasks of a job over these stores, log by log. [] if there is nothing to read.

    Raises InvalidArgument (no store; topics that no store knows; options for one log, given with several logs), BadBytes (files
    are missing), StoreError (also if copies of one log differ).
    """
    check_topics(stores, wanted)
    logs = by_log(stores)
    if len(logs) > 1 and (wanted.starts or wanted.ends or wanted.broker):
        said = "brokerName" if wanted.broker else "startingOffsets" if wanted.starts else "endingOffsets"
        names = " and ".join(str(copies[0].store) for copies in logs[:2])
        raise InvalidArgument(f'the option "{said}" is of one broker, and {names} are of different ones: give one path')
    return [planned for copies in logs for planned in _plan(copies, wanted)]


def log_of(stores: Sequence[Directory]) -> Log:
    """The log of stores that are copies of it. Raises InvalidArgument (no store), StoreError."""
    return union(sorted((Copy(store, look_at(store)) for store in stores), key=lambda copy: -copy.reach))


def by_log(stores: Sequence[Directory]) -> list[list[Copy]]:
    """The stores as copies, grouped by log. Raises InvalidArgument (no store), StoreError."""
    return families([Copy(store, look_at(store)) for store in stores])


def name_of(stores: Sequence[Directory]) -> str:
    """The name of the broker whose log these are copies of: a store tells it if an archive does not. Raises StoreError."""
    return next(filter(None, map(group_name, stores)), "") or broker_name(stores[0])


def families(copies: Sequence[Copy]) -> list[list[Copy]]:
    """The copies grouped by log, the longest first."""
    found: list[list[Copy]] = []
    for copy in copies:
        same = [family for family in found if any(_are_copies(copy, other) for other in family)]
        found = [family for family in found if family not in same]
        found.append([*(each for family in same for each in family), copy])
    return [sorted(family, key=lambda copy: -copy.reach) for family in found]


def union(copies: Sequence[Copy]) -> Log:
    """One log made of all copies (longest first). Raises StoreError if they differ."""
    if len(copies) == 1:
        return copies[0].log
    held: dict[int, list[tuple[Copy, Held]]] = {}
    for copy in copies:
        for file in copy.log.files:
            held.setdefault(file.segment.base, []).append((copy, file))
    files = [_longest(base, held[base]) for base in sorted(held)]
    committed = max((copy.log.committed for copy in copies if copy.log.committed is not None), default=None)
    if files and committed is not None:
        last = files[-1]
        if last.stop > committed:  # an archive does not say how far it reaches
            if _end_of(last) > committed:
                committed = None
            else:
                files[-1] = last._replace(stop=committed)
    return Log(files, committed, next((copy.log.epochs for copy in copies if copy.log.epochs), ()))


def _plan(copies: Sequence[Copy], wanted: Wanted) -> Iterator[Planned]:
    check_starts([copy.store for copy in copies], wanted)
    if wanted.topics == frozenset():
        return
    broker = wanted.broker or name_of([copy.store for copy in copies])
    parts = parts_of(union(copies), wanted.from_ms, wanted.to_ms)
    yield from (Planned(broker, task) for task in tasks_of([copy.store for copy in copies], wanted, parts))


def tasks_of(stores: Sequence[Directory], wanted: Wanted, parts: Sequence[Part]) -> Iterator[list[Part | Places]]:
    """Tasks for these parts of a log; the stores are copies of it. Raises BadBytes, StoreError."""
    left = list(parts)
    for store in stores:  # each store has its own consume queues
        folder = store / "commitlog"
        inside = f"{folder.address if isinstance(folder, Remote) else folder}/"
        here = [part for part in left if part.path.startswith(inside) or not part.path or store == stores[-1]]
        left = [part for part in left if part not in here]
        yield from tasks(store, wanted, here) if here else ()


def _are_copies(one: Copy, two: Copy) -> bool:
    heads, others = one.heads, two.heads
    common = heads.keys() & others.keys()
    if common:
        return any(heads[base] == others[base] for base in common)
    return bool(
        {entry for entry in one.log.epochs if entry.epoch != ROCKETMQ_EPOCH}
        & {entry for entry in two.log.epochs if entry.epoch != ROCKETMQ_EPOCH}
    )


def _longest(base: int, held: Sequence[tuple[Copy, Held]]) -> Held:
    heads = {file.head: copy.store for copy, file in held if file.head}
    if len(heads) > 1:
        names = " and ".join(str(store) for store in heads.values())
        raise StoreError(
            f"{names} hold one log, but differ in the file at {base}: one is damaged or not a copy any more; give the other alone"
        )
    if len(held) == 1:
        return held[0][1]
    ends = [(file.stop, file) for copy, file in held if not _may_end_in(copy, file)]  # one that was cut has less
    most = max((end for end, _ in ends), default=0)
    ends += [(_end_of(file), file) for copy, file in held if _may_end_in(copy, file) and file.end > most]
    return max(ends, key=lambda each: each[0])[1]


def _may_end_in(copy: Copy, file: Held) -> bool:
    return copy.log.committed is None and file is copy.log.files[-1]


def _end_of(file: Held) -> int:
    """Where the file's records end. Reads the records if no note says it."""
    if file.stop < file.end:
        return file.stop
    end = file.segment.base
    for found in walk(Part(file.segment.path, end, file.end, end, file.end, None, False, file.trust)):
        end = int(found.head["physical_offset"][-1] + found.head["size"][-1]) if isinstance(found, Block) else found.end
    return end
