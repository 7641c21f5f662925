"""Compacted topics: before the oldest segments go, the newest message of each key in them is appended again
(docs/decisions/compacted-topics-carry-forward.md).

A segment may go when each key of its messages has a newer message in the durable log, or was deleted by its last one there. Every
node finds that out for itself, from its queues and its log; the leader appends what is missing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rmq.broker.pending.internalproducer import InternalProducer, handed_on
from rmq.broker.replication.appender import Appender
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.state import resolving
from rmq.clock import Clock
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.records.peek import properties_of
from rmq.log.records.properties import LIGHT_NAMES, is_tombstone, keys_in
from rmq.routing.kinds import is_compacted
from rmq.routing.topics import TopicTable

RUN_S: Final = 5.0
MOST_BYTES: Final = 64 * 1024 * 1024  # of keys that are looked after at once; the others have their turn behind them
KEY_BYTES: Final = 200  # a key takes so many beside its own
READ_AT_ONCE: Final = 500  # messages
READ_BYTES: Final = 4 * 1024 * 1024  # of them
COPIED_AT_ONCE: Final = 200
COMMIT_S, LOOK_S = 5.0, 0.05  # how long what is on its way is waited for, and how often that is looked at
_LIGHT = (LIGHT_NAMES.encode(),)  # light queues have it already
QueueKey = tuple[ConsumeQueue, bytes]
"""A key in a queue: all KEYS of a message, as they are stored."""


@dataclass(slots=True)
class _Sweep:
    """How far the log was looked through. Offsets are of the log, but for those by queue.

    `cleared`: up to there every key has a newer message; `wanted`: up to there it is asked for. `below`: what is looked at now, 0
    for nothing; `begins`: where in each queue messages below that go on. `newest`: messages that may be the newest of their key;
    `at`: how far each queue was read to find newer ones.
    """

    cleared: int = 0
    wanted: int = 0
    below: int = 0
    begins: dict[ConsumeQueue, int] = field(default_factory=dict)
    at: dict[ConsumeQueue, int] = field(default_factory=dict)
    newest: dict[QueueKey, int] = field(default_factory=dict)


class Compaction:
    """`leadership()`: the epoch that this node leads, if it does. `carried`: messages that this process appended again."""

    def __init__(
        self,
        topics: TopicTable,
        reader: Reader,
        internal_producer: InternalProducer,
        appender: Appender,
        leadership: Callable[[], int | None],
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._reader = reader
        self._internal_producer = internal_producer
        self._appender = appender
        self._leadership = leadership
        self._clock = clock
        self._sweep = _Sweep()
        self.carried = 0

    def reset(self) -> None:
        """The log is another one."""
        self._sweep = _Sweep()

    def alive_from(self) -> int | None:
        """The offset of the log up to which every key has a newer message; None: there is no compacted topic."""
        return self._sweep.cleared if any(map(is_compacted, self._topics.all())) else None

    def want(self, below: int) -> None:
        """What is below that offset of the log is to go."""
        self._sweep.wanted = max(self._sweep.wanted, below)

    async def work(self) -> None:
        """Goes on until everything below the wanted offset may go, or what was appended again has to become durable first. Raises
        StoreError, Refusal."""
        copied = False
        while (sweep := self._sweep).below or sweep.cleared < sweep.wanted:
            if not sweep.newest and not await self._gather(sweep):
                continue
            await self._drop_old(sweep, self._reader.log.durable_end)
            if not sweep.newest:
                continue
            epoch = self._leadership()
            if copied or epoch is None:
                return
            await self._copy(sweep, epoch)
            copied = True

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _gather(self, sweep: _Sweep) -> bool:
        """The next keys of messages below the offset, as many as may be looked after at once. False: there are no more."""
        sweep.below = sweep.below or sweep.wanted
        sweep.at.clear()
        room, newest = MOST_BYTES, sweep.newest
        for queue in self._queues():
            end = await asyncio.to_thread(queue.first_at_or_behind, sweep.below)
            at = max(sweep.begins.get(queue, 0), queue.min)
            while at < end and room > 0 and not queue.ended:
                at, found = await self._read(queue, at, end)
                for offset, key, goes in found:
                    known = newest.pop((queue, key), None) is not None
                    room += (known - (not goes)) * (KEY_BYTES + len(key))
                    if not goes:
                        newest[queue, key] = offset
                sweep.begins[queue] = sweep.at[queue] = at
        if not newest:
            sweep.cleared, sweep.below = max(sweep.cleared, sweep.below), 0
            sweep.begins.clear()
        return bool(newest)

    def _queues(self) -> list[ConsumeQueue]:
        topics = [config.name for config in self._topics.all() if is_compacted(config)]
        return [queue for topic in topics for queue in self._reader.queues.of_topic(topic)]

    async def _read(self, queue: ConsumeQueue, at: int, end: int) -> tuple[int, list[tuple[int, bytes, bool]]]:
        """Of some messages [at, end) the offset in the log, the key, and whether the key goes with it; the queue offset behind
        them."""
        found = await asyncio.to_thread(queue.find, at, min(end - at, READ_AT_ONCE), READ_BYTES, None)
        offsets = [offset for offset, _ in found.spans]
        stored = await self._internal_producer.read_bytes(offsets)
        said = [properties_of(data) for data in stored]
        return found.next_offset, [(offset, keys_in(one), is_tombstone(one)) for offset, one in zip(offsets, said, strict=True)]

    async def _drop_old(self, sweep: _Sweep, below: int) -> None:
        """Forgets each key of which a newer message lies below that offset of the log."""
        newest, at = sweep.newest, sweep.at
        for queue in {queue for queue, _ in newest}:
            while at[queue] < queue.max and newest and not queue.ended:
                after, found = await self._read(queue, at[queue], queue.max)
                for offset, key, _ in found:
                    if offset < below and newest.get((queue, key), offset) < offset:
                        del newest[queue, key]
                if found and found[-1][0] >= below:
                    break
                at[queue] = after
            if queue.ended:
                for gone in [each for each in newest if each[0] is queue]:
                    del newest[gone]

    # --- appending again ----------------------------------------------------------------------------------------------

    async def _copy(self, sweep: _Sweep, epoch: int) -> None:
        """Appends again what has no newer message, none on its way either. Whether it was stored is seen when it is read. Raises
        Refusal, StoreError."""
        appended = {queue: queue.next for queue, _ in sweep.newest}
        self._appender.watch(appended)
        try:
            newer = await self._newer(sweep.at, appended)
            if newer is None:
                return
            left = [(key, offset) for key, offset in sweep.newest.items() if key not in newer]
            for at in range(0, len(left), COPIED_AT_ONCE):
                await self._append(left[at : at + COPIED_AT_ONCE], newer, epoch)
        finally:
            self._appender.watch(())

    async def _newer(self, read: Mapping[ConsumeQueue, int], appended: Mapping[ConsumeQueue, int]) -> set[QueueKey] | None:
        """Keys of messages that were appended from where queues were read to. None: they take too long to be committed."""
        newer, give_up = set[QueueKey](), self._clock.monotonic() + COMMIT_S
        while any(queue.max < end for queue, end in appended.items() if not queue.ended):
            if self._clock.monotonic() >= give_up:
                return None
            await self._clock.sleep(LOOK_S)
            self._note_what_came(appended, newer)
        for queue, end in appended.items():
            at = read[queue]
            while at < end and not queue.ended:
                at, found = await self._read(queue, at, end)
                newer.update((queue, key) for _, key, _ in found)
        return newer

    def _note_what_came(self, queues: Iterable[ConsumeQueue], newer: set[QueueKey]) -> None:
        for queue in queues:
            for unit in self._appender.came(queue):
                newer.update((queue, keys_in(one.properties)) for one in record.iterate(unit.records))

    async def _append(self, some: Sequence[tuple[QueueKey, int]], newer: set[QueueKey], epoch: int) -> None:
        """Returns when they are committed. No copy comes behind a newer message of its key: from the look at what came to the
        proposals nobody else has a turn, and what another leader appended in between is not looked at."""
        stored = await self._internal_producer.read([offset for _, offset in some])
        if self._leadership() != epoch:
            return
        self._note_what_came({queue for (queue, _), _ in some}, newer)
        wanted = [(key[0], one) for (key, _), one in zip(some, stored, strict=True) if key not in newer and not key[0].ended]
        with self._appender.making_room():
            puts = [self._put(queue, message) for queue, message in wanted]
        await asyncio.gather(*puts)

    def _put(self, queue: ConsumeQueue, message: record.Record) -> "asyncio.Future[None]":
        """Proposes it at once; `InternalProducer.send` would in a task of its own, when others have had their turn."""
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        draft = handed_on(message, queue.topic, None, without=_LIGHT)
        self._internal_producer.put(queue.topic, queue.queue_id, draft, resolving(arrived), state=True, life=queue)
        self.carried += 1
        return arrived
