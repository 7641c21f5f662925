"""Popped messages that nobody acknowledged come back, to the retry topic of group and topic [PopReviveService].

The message put back names its receipt and its queue offset (`rmq.delivery.proof`): once it is committed, that message of the
receipt is done, at every node. So a failover neither loses nor repeats one.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice

from rmq.broker.feature import Job
from rmq.broker.pending.internalproducer import InternalProducer, handed_on
from rmq.broker.pending.receipts import ReceiptWriter
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.state import undoing
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.popping import pop_retry_topic
from rmq.delivery.proof import POP, Proof
from rmq.delivery.receipts import Receipt, ReceiptKey, ReceiptTable
from rmq.delivery.retry import counted
from rmq.errors import InvalidArgument, Refusal, StoreError, no_topic
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records.innerbatch import message_at
from rmq.log.records.record import Record
from rmq.log.records.tombstones import is_tombstone
from rmq.model import TopicConfig

log = logging.getLogger("rmq.revive")

EVERY_S = 1.0
AT_ONCE = 8  # receipts, of 32 messages at most each: then others have their turn
WORK_S = 2.0  # of one run: a node that stops waits for it; the next run does the rest
MOST_BEHIND_MS = 60_000  # nobody waits longer for acknowledgements in the timer
SOON_MS = 60_000  # receipts that end within that time need not be ended early, when their segment is to be deleted


class ReviveService:
    """Hands on messages that were not acknowledged. `waits_from_ms()`: when the first message in the timer is due. `separate`:
    each into the queue of the number that it had (useSeparateRetryQueue), not all into the first."""

    def __init__(
        self,
        table: ReceiptTable,
        catalog: Catalog,
        queues: ConsumeQueues,
        internal_producer: InternalProducer,
        writer: ReceiptWriter,
        waits_from_ms: Callable[[], int | None],
        clock: Clock,
    ) -> None:
        self._table = table
        self._topics, self._groups = catalog.topics, catalog.groups
        self._create = catalog.create
        self._queues = queues
        self._internal_producer = internal_producer
        self._writer = writer
        self._waits_from_ms = waits_from_ms
        self._clock = clock
        self._carrying = -math.inf, -math.inf  # since when receipts keep segments, and when that was looked at last (monotonic s)
        self.separate = False

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (Job(EVERY_S, "revive", self.revive),)

    async def revive(self) -> None:
        """Handles receipts that are due now. Raises Refusal, StoreError: the rest comes the next time.

        RocketMQ's acknowledgements come out of the timer a slot after their receipt [PopReviveService.consumeReviveMessage].
        """
        now_ms, first_ms = self._clock.wall_ms(), self._waits_from_ms()
        out_ms = now_ms if first_ms is None else max(first_ms - 1, now_ms - MOST_BEHIND_MS)
        await self._hand_on_all(self._table.due(now_ms, out_ms))

    async def carry_forward(self, below: int) -> None:
        """A receipt that keeps a segment from being deleted ends early, unless it ends soon by itself."""
        now_ms, now_s = self._clock.wall_ms(), self._clock.monotonic()
        pinning = self._table.pinning(below)
        since_s, looked_s = self._carrying
        if not pinning or now_s - looked_s > SOON_MS / 1000:  # that was for other segments
            since_s = now_s
        self._carrying = since_s, now_s
        if now_s - since_s < 2 * SOON_MS / 1000:  # else somebody keeps them by renewing their time
            pinning = [pair for pair in pinning if pair[1].due_ms > now_ms + SOON_MS]
        await self._hand_on_all(pinning)

    async def _hand_on_all(self, receipts: Iterable[tuple[ReceiptKey, Receipt]]) -> None:
        """A receipt that cannot be read does not hold up the others; those for which there is no time are not looked at. Raises
        Refusal, StoreError."""
        trouble: StoreError | OSError | None = None
        left, until = iter(receipts), self._clock.monotonic() + WORK_S
        while some := list(islice(left, AT_ONCE)):
            try:
                await _all(self._hand_on(key, receipt) for key, receipt in some)
            except (StoreError, OSError) as error:
                trouble = error
            if self._clock.monotonic() > until:
                break
        if trouble is not None:
            raise trouble

    async def _hand_on(self, key: ReceiptKey, receipt: Receipt) -> None:
        """Hands on the receipt's messages that are not done. Raises Refusal, StoreError.

        The deletion of its topic or group removes the receipt (`rmq.broker.tables.tables`); while that is on its way this does
        nothing.
        """
        retry = pop_retry_topic(key.group, key.topic)
        if self._groups.is_leaving(key.group):
            return
        if self._topics.is_leaving(key.topic) or self._topics.is_leaving(retry):
            return
        try:
            await self._bring_back(key, receipt, retry)
        except Refusal as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST and not self._topics.is_leaving(retry):
                raise

    async def _bring_back(self, key: ReceiptKey, receipt: Receipt, retry: str) -> None:
        """Raises Refusal (TOPIC_NOT_EXIST: the life of the receipt's topic, of its group or of `retry` is over), StoreError."""
        leadership = self._table.leadership
        staged = self._table.stage(key, receipt.left())
        try:
            life = self._queues.get(key.topic, key.queue_id)
            gone, found = await self._find(life, staged)
            if self._topics.get(key.topic) is None or life.ended:  # meanwhile
                raise no_topic(key.topic, " any more")
            self._check_group(key, retry)
            if found:
                await self._make(retry, key.topic)
                self._check_group(key, retry)
        except BaseException:
            self._table.unstage(key, staged)
            raise
        if self._table.leadership != leadership:  # lost, perhaps won again: others may have handed these on meanwhile
            return
        puts = [self._put(retry, key, receipt, queue_offset, source, life) for queue_offset, source in found]
        if gone:
            about = "messages %s of %s/%d, popped by %s, are gone: they do not come back"
            log.warning(about, gone, key.topic, key.queue_id, key.group)
            puts.append(self._end(key, receipt, gone))
        await _all(puts)

    def _check_group(self, key: ReceiptKey, retry: str) -> None:
        """Raises Refusal (TOPIC_NOT_EXIST) if the group was deleted meanwhile, and the receipt with it, or is being deleted."""
        if self._groups.is_leaving(key.group) or self._table.get(key) is None:
            raise no_topic(retry, ": its group is no more")

    async def _make(self, retry: str, topic: str) -> None:
        """The retry topic, with as many queues as the topic has if each has its own."""
        known, of = self._topics.get(retry), self._topics.get(topic)
        count = of.write_queue_nums if of is not None and self.separate else 1
        if known is None:
            await self._create(TopicConfig(retry, count, count))
        elif known.write_queue_nums < count:
            await self._create(known._replace(read_queue_nums=count, write_queue_nums=count))

    async def _find(self, queue: ConsumeQueue, queue_offsets: Sequence[int]) -> tuple[list[int], list[tuple[int, Record]]]:
        """Queue offsets of messages that are gone (deleted, or lost and repaired), and the others, each with its queue offset."""
        low, high = queue.min, queue.max
        places = {}
        for queue_offset in queue_offsets:
            spans = queue.find(queue_offset, 1, 0, None).spans if low <= queue_offset < high else ()
            if spans:
                places[queue_offset] = spans[0][0]
        read = await self._internal_producer.read(list(places.values()))
        stored = [(at, message_at(one, at)) for at, one in zip(places, read, strict=True)]
        found = [pair for pair in stored if not is_tombstone(pair[1])]
        there = {queue_offset for queue_offset, _ in found}
        return [queue_offset for queue_offset in queue_offsets if queue_offset not in there], found

    async def _put(
        self, topic: str, key: ReceiptKey, receipt: Receipt, queue_offset: int, source: Record, life: ConsumeQueue
    ) -> None:
        """One message, committed. Raises Refusal: not stored, or (SYSTEM_ERROR) nobody knows."""
        again = source._replace(reconsume_times=counted(source.reconsume_times))
        properties = {"ORIGIN_GROUP": key.group}
        if b"1ST_POP_TIME\x01" not in source.properties:
            properties["1ST_POP_TIME"] = str(key.pop_time)
        proof: Proof | None = Proof(POP, receipt.place, queue_offset)
        try:
            draft = handed_on(again, topic, proof, properties=properties.items(), without=(b"POP_CK",))
        except InvalidArgument:  # its own properties leave no room for the proof: a record of ours says where it comes from
            draft, proof = handed_on(again, topic, None, without=(b"POP_CK",)), None
        with undoing(lambda: self._table.unstage(key, (queue_offset,))):
            await self._internal_producer.send(topic, self._queue_id(topic, source), draft, state=True, life=life)
        if proof is None:
            await self._end(key, receipt, [queue_offset])

    def _queue_id(self, topic: str, source: Record) -> int:
        config = self._topics.get(topic)
        fits = self.separate and config is not None and source.queue_id < config.write_queue_nums
        return source.queue_id if fits else 0

    async def _end(self, key: ReceiptKey, receipt: Receipt, queue_offsets: Sequence[int]) -> None:
        with undoing(lambda: self._table.unstage(key, queue_offsets)):
            await self._writer.write(receipt.revive[0], [self._writer.ack_draft(key, queue_offsets)])


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Waits until all are done or have failed, then raises the first failure."""
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
