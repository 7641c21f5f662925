"""The ports of the features: the broker's identity, and its log, to read and to write."""

import asyncio
import os
import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from rmq.broker.replication.appender import Appender
from rmq.broker.shared.coldreads import ColdReads
from rmq.broker.shared.lights import LightQueues
from rmq.broker.shared.sifting import SIFTED_BYTES, sifted
from rmq.broker.shared.state import StateWriter
from rmq.broker.shared.stats import BrokerStats
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.delivery import filters
from rmq.delivery.filters import Selection
from rmq.delivery.sql import compile_sql
from rmq.errors import Refusal, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.index import query
from rmq.log.queues.consumequeue import MAX_SCANNED, ConsumeQueue, MatchingEntries
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.store import Store
from rmq.net.transport.server import Call
from rmq.requests import Action

# Of the memory: what is nearer to the log's end counts as "in memory" [accessMessageInMemoryMaxRatio].
IN_MEMORY_RATIO: Final = 0.4
FIRST_LOOK: Final = 64  # messages that SQL92 looks at first, at least
_new = tuple.__new__  # a NamedTuple in half the time
CheckTopic = Callable[[Call, str, Action, str], None]
"""`Guard.check_topic`; where nobody has to log in, it permits everything."""


class Identity(NamedTuple):
    """`host`: as records name this broker (`record.host_bytes`). `address`: "host:port", as clients are told."""

    cluster: str
    broker: str
    host: bytes
    address: str


class Reading(NamedTuple):
    """Messages back to back, and where they stand. `cold`: a disk was waited for."""

    found: MatchingEntries
    messages: bytes
    cold: bool = False


class ReadLimits(NamedTuple):
    """`max_messages`, `max_bytes`: of one answer from memory [maxTransferCountOnMessageInMemory,
    maxTransferBytesOnMessageInMemory]. `by_sql`: SQL92 filters are served. Without `long_polling` a pull that finds nothing waits
    at most `short_polling_s`.
    """

    max_messages: int
    max_bytes: int
    by_sql: bool
    long_polling: bool
    short_polling_s: float


class Reader:
    """Where messages are read. `committed()`: the committed offset. `cold`: reads that wait for the device.

    `stats`: what was handed out is counted there. `limits` may change while the node runs (`limit`).
    """

    def __init__(
        self, settings: NodeSettings, address: str, store: Store, committed: Callable[[], int], stats: BrokerStats
    ) -> None:
        self.broker_name, self.address = settings.broker_name, address
        self.log: CommitLog = store.log
        self.queues: ConsumeQueues = store.queues
        self.store_time = store.log.store_time
        self.cold = ColdReads(settings.max_transfer_disk_count, settings.max_transfer_disk_bytes)
        self.committed = committed
        self.stats = stats
        self.limits = _limits(settings)
        self._turn = asyncio.Lock()  # of those who filter by SQL92: between two of them the loop serves all others

    def limit(self, settings: NodeSettings) -> None:
        """These limits hold from now on."""
        self.cold.max_messages, self.cold.max_bytes = settings.max_transfer_disk_count, settings.max_transfer_disk_bytes
        self.limits = _limits(settings)

    def selection(self, expression: str, expression_type: str) -> Selection:
        """Raises Refusal, also for a filter that this broker does not serve."""
        if expression == "*" and expression_type == filters.TAG:
            return None
        wanted = filters.selection(expression, expression_type)
        if isinstance(wanted, str) and not self.limits.by_sql:
            about = "this broker does not filter by SQL92: set enablePropertyFilter=true, or subscribe by tags"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)
        return wanted

    def is_checked(self, wanted: Selection) -> bool:
        """Whether this filter needs no `check` before it is used."""
        return not isinstance(wanted, str)

    async def check(self, wanted: Selection) -> None:
        """Raises Refusal for an expression that is none; to find that out may take time."""
        if isinstance(wanted, str):
            async with self._turn:
                await asyncio.sleep(0)
                compile_sql(wanted)

    def read_now(self, queue: ConsumeQueue, start: int, count: int, max_bytes: int, wanted: Selection) -> Reading | None:
        """Wanted messages, as far as they can be read and looked at at once; None: by `read`. Raises StoreError, OSError."""
        if isinstance(wanted, str):
            return None
        found = queue.find_now(start, count, max_bytes, wanted)
        if found is None:
            return None
        if self.log.damages.ranges:
            found = self._before_damage(found, queue, start, max_bytes, wanted)
        messages = self.log.gather(found.spans)
        return None if messages is None else _new(Reading, (found, messages, False))

    async def read(self, group: str, queue: ConsumeQueue, start: int, count: int, max_bytes: int, wanted: Selection) -> Reading:
        """The same, where it takes time. It may examine fewer. Raises StoreError, OSError, Refusal."""
        if isinstance(wanted, str):
            return Reading(*await self._sift(group, queue, start, count, max_bytes, wanted))
        read = partial(self.find_cold, queue, start, count, wanted)
        return Reading(*await self.cold.run(group, read), cold=True)

    async def _sift(
        self, group: str, queue: ConsumeQueue, start: int, count: int, max_bytes: int, expression: str
    ) -> tuple[MatchingEntries, bytes]:
        """As `find`, with the bytes, filtered by an SQL92 expression over properties. Looks at few messages first, and then at as
        many as the rest may need: where many match, all others would be read in vain. Raises StoreError, OSError, Refusal."""
        few = max(FIRST_LOOK, 2 * count)
        first, kept = await self._look(group, queue, start, count, max_bytes, expression, min(few, MAX_SCANNED))
        got = len(first.spans)
        missing, looked = count - got, first.examined
        if missing <= got or looked < few or max_bytes <= 2 * len(kept):
            return first, kept
        most = min(MAX_SCANNED - looked, 2 * missing * looked // got if got else MAX_SCANNED)
        try:
            more, rest = await self._look(group, queue, first.next_offset, missing, max_bytes - len(kept), expression, most)
        except (StoreError, OSError):  # who asks from there is told
            return first, kept
        if kept and len(kept) + len(rest) > max_bytes:  # by one: a first match is always returned
            return first, kept
        return MatchingEntries(more.next_offset, [*first.spans, *more.spans], looked + more.examined), kept + rest

    async def _look(
        self, group: str, queue: ConsumeQueue, start: int, count: int, max_bytes: int, expression: str, most: int
    ) -> tuple[MatchingEntries, bytes]:
        """One step of `_sift`, at `most` messages."""
        async with self._turn:
            await asyncio.sleep(0)
            sql = compile_sql(expression)
            if queue.is_at_hand(start, most):
                found = self.find(queue, start, most, SIFTED_BYTES, None)
                messages = self.log.gather(found.spans)
                if messages is not None:
                    return sifted(found, messages, sql, count, max_bytes)
        found, cold = await self.cold.run(group, partial(self.find_cold, queue, start, most, None))
        async with self._turn:
            await asyncio.sleep(0)
            return sifted(found, cold, sql, count, max_bytes)

    def in_memory(self, offset: int) -> bool:
        """Whether a record there counts as in memory."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return self.log.end - offset <= memory * IN_MEMORY_RATIO

    def record_at(self, offset: int) -> bytes | None:
        """The committed record that begins there. May wait for the disk. Raises StoreError."""
        return query.record_at(self.log, offset, self.committed())

    def find(self, queue: ConsumeQueue, start: int, count: int, max_bytes: int, codes: frozenset[int] | None) -> MatchingEntries:
        """In any thread. Of a damaged log it returns only messages before the damage. Raises StoreError when there are none."""
        return self._before_damage(queue.find(start, count, max_bytes, codes), queue, start, max_bytes, codes)

    def _before_damage(
        self, found: MatchingEntries, queue: ConsumeQueue, start: int, max_bytes: int, codes: frozenset[int] | None
    ) -> MatchingEntries:
        damages = self.log.damages
        if damages.ranges and (good := damages.count_good(found.spans)) < len(found.spans):
            if not good:
                damages.check(*found.spans[0])
            return queue.find(start, good, max_bytes, codes)
        return found

    def find_cold(
        self, queue: ConsumeQueue, start: int, count: int, codes: frozenset[int] | None
    ) -> tuple[MatchingEntries, bytes]:
        """The same with the bytes, which may wait for the device: in a thread of `cold`. Less at once, as RocketMQ does, so that
        one who lags far behind does not take the disk from all others. Raises StoreError."""
        count, max_bytes = min(count, self.cold.max_messages), self.cold.max_bytes
        found = self.find(queue, start, count, max_bytes, codes)
        try:
            return found, self.log.gather_cold(found.spans)
        except StoreError:
            known = bool(self.log.damages.ranges)  # else it is the queue whose files are damaged: what comes before can be read
            found = self.find(queue, start, count if known else 1, max_bytes, codes)
            return found, self.log.gather_cold(found.spans)


def _limits(settings: NodeSettings) -> ReadLimits:
    return ReadLimits(
        settings.max_transfer_count,
        settings.max_transfer_bytes,
        settings.property_filter,
        settings.long_polling,
        settings.short_polling_ms / 1000,
    )


class Writer:
    """Appends to the log. `propose`: messages, `propose_state`: its own records (`Appender`); `commit`: state lines, done
    once they are committed and applied. `chance`: which queue. `host`: as records name this broker. `lights`: which light queues
    a message goes to."""

    def __init__(
        self,
        appender: Appender,
        queues: ConsumeQueues,
        host: bytes,
        clock: Clock,
        chance: random.Random,
        lights: LightQueues,
    ) -> None:
        self.propose = appender.propose
        self.propose_state = appender.propose_state
        self.commit = StateWriter(appender.propose_state, queues, host, clock, appender.max_unit_bytes).commit
        self.queues = queues
        self.host = host
        self.chance = chance
        self.lights = lights
