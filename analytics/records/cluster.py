"""Reads topics from running brokers: which queues they have, where these begin and end, and their records. No Spark.

Asks leaders only, since they know what is committed. Reading changes nothing at a broker, so failed requests are repeated for a
while.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from analytics.records.bodies import apart
from analytics.stores.options import Wanted, nearest
from analytics.stores.segments import MAYBE
from analytics.stores.walk import Block, layout, sums_are_right
from rmq.client import Client
from rmq.client.admin.calls import search_offset, topic_list
from rmq.client.admin.lookups import TOOLS_GROUP, at
from rmq.client.consumer.offsets import BrokerOffsets
from rmq.client.shared.environment import credentials_of, tls_of
from rmq.clock import latest_ms
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, InvalidArgument, Refusal, RmqError, StoreError, Unknown
from rmq.log.records.record import MIN_RECORD_BYTES
from rmq.model import PERM_READ, ConsumerData, MessageQueue
from rmq.net.commands import PULL_SUBSCRIPTION, GetTopicStats, Heartbeat, Pull, PullAnswer, TopicStats, UnregisterClient
from rmq.net.commands.progress import GetQueueEntries, QueueEntries
from rmq.scram import Credentials

_log = logging.getLogger("rmq.spark")
_T = TypeVar("_T")
PATIENCE_S = 30.0  # an election takes less time
_PAUSE_S = 0.2
_NO_TOPIC = frozenset({ResponseCode.TOPIC_NOT_EXIST})  # it existed a moment ago
_PULL_COUNT = 1024  # a broker may give fewer, by its settings
_BLOCK_BYTES = 4 << 20
_size_and_place = Struct(">i24xq").unpack_from


class Span(NamedTuple):
    """Messages [start, stop) of a queue."""

    queue: MessageQueue
    start: int
    stop: int


class Cluster:
    """A client on an event loop in a thread of its own, for callers without a loop. Use it with `with`."""

    def __init__(self, nameservers: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rmq client", daemon=True)
        self._thread.start()
        try:
            self._client = self._wait(_opened(nameservers))
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def run(self, work: Callable[[Client], Coroutine[Any, Any, _T]]) -> _T:
        """Runs `work` with the client and returns its result. Raises what `work` raises."""
        return self._wait(work(self._client))

    def close(self) -> None:
        try:
            self._wait(self._client.close())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _opened(nameservers: str) -> Client:
    """Opens a client, with TLS and the user from the process's environment. Raises InvalidArgument."""
    who = credentials_of(os.environ) or Credentials("", "")
    client = Client(nameservers, tls=tls_of(os.environ), user=who.name, password=who.secret)
    client.start()
    return client


# --- queues -----------------------------------------------------------------------------------------------------------


async def ends(client: Client, wanted: Wanted, least: Mapping[MessageQueue, int]) -> dict[MessageQueue, Span]:
    """Which messages each wanted queue has. If a queue ends before `least`, its leader is new, and it is asked again for a while.

    Raises InvalidArgument (no such topic), Unreachable (a group has no leader for too long), StoreError (the queue still ends
    before `least`).
    """
    deadline = client.session.clock.monotonic() + PATIENCE_S
    topics = await _topics(client, wanted, {queue.topic for queue in least}, deadline)
    while True:
        asked = (insist(client, partial(_ends, topic=topic, wanted=wanted), passing=_NO_TOPIC) for topic in topics)
        answers = await asyncio.gather(*asked)
        found = {span.queue: span for spans in answers for span in spans}
        short = [span for queue, span in found.items() if span.stop < least.get(queue, 0)]
        if not (short and wanted.fail_on_loss):
            return {queue: span for queue, span in found.items() if span not in short}
        if client.session.clock.monotonic() > deadline:
            queue, _, stop = short[0]
            raise StoreError(
                f"{_named(queue)} ends at message {stop}, and {least[queue]} was reached before: the topic was made again, or "
                "messages were lost; give a new checkpointLocation, or failOnDataLoss=false to wait until it reaches so far"
            )
        await client.session.clock.sleep(_PAUSE_S)


async def _topics(client: Client, wanted: Wanted, before: set[str], deadline_s: float) -> list[str]:
    """The wanted topics that exist. A topic that was there `before` is waited for: its brokers may be restarting."""
    while True:
        known = await insist(client, topic_list)
        missing = [] if wanted.allow_missing else sorted((wanted.topics or frozenset()) - set(known))
        if not before.issuperset(missing) or not missing or client.session.clock.monotonic() > deadline_s:
            break
        await client.session.clock.sleep(_PAUSE_S)
    if missing:
        names = ", ".join(map(repr, missing)) + nearest(missing[0], tuple(known))
        raise InvalidArgument(f"no broker has a topic {names} (allowMissingTopics=true takes it as empty)")
    return [topic for topic in known if wanted.has_topic(topic)]


async def _ends(client: Client, topic: str, wanted: Wanted) -> list[Span]:
    route = await client.session.routes.get(topic)
    readable = {data.broker_name: data.read_queue_nums for data in route.queues if data.perm & PERM_READ}
    timeout_s = client.session.settings.request_timeout_s
    ask = client.session.leaders.request
    answers = await asyncio.gather(*(ask(broker, GetTopicStats(topic), timeout_s) for broker in sorted(readable)))
    found = []
    for broker, answer in zip(sorted(readable), answers, strict=True):
        assert isinstance(answer, TopicStats)
        for row in answer.queues:
            queue = row.queue._replace(broker_name=broker)
            if queue.queue_id < readable[broker] and _has_queue(wanted, queue):
                found.append(Span(queue, row.min_offset, row.max_offset))
    return found


def _has_queue(wanted: Wanted, queue: MessageQueue) -> bool:
    assigned = wanted.assigned is None or queue.queue_id in wanted.assigned.get(queue.topic, ())
    return assigned and (wanted.queues is None or queue.queue_id in wanted.queues)


async def chosen(client: Client, wanted: Wanted, spans: Iterable[Span], slack_ms: int = 0) -> list[Span]:
    """The spans cut down to the wanted queue offsets and times, with `slack_ms` more at both ends.

    Raises InvalidArgument for messages that are not there yet, StoreError for those that are gone.
    """
    return list(await asyncio.gather(*(_chosen(client, wanted, span, slack_ms) for span in spans)))


async def _chosen(client: Client, wanted: Wanted, span: Span, slack_ms: int) -> Span:
    if span.start >= span.stop:
        return span
    start, stop = span.start, min(span.stop, wanted.ends.get(span.queue.topic, {}).get(span.queue.queue_id, span.stop))
    search = partial(search_offset, queue=span.queue)
    if wanted.from_ms:
        start = max(start, await insist(client, partial(search, timestamp_ms=wanted.from_ms - slack_ms)))
    if wanted.to_ms < 1 << 62:
        behind = await insist(client, partial(search, timestamp_ms=wanted.to_ms + slack_ms))
        if behind < stop and not await _is_ahead(client, span.queue, behind):
            stop = behind
    return Span(span.queue, max(start, _first_queue_offset(wanted, span)), stop)


async def _is_ahead(client: Client, queue: MessageQueue, queue_offset: int) -> bool:
    """Whether that message is of a clock that was ahead, or cannot be read: those of the time asked for may stand behind it."""
    try:
        message = await insist(client, partial(at, queue=queue, offset=queue_offset))
    except RmqError:
        return True
    return message.store_timestamp > latest_ms(client.session.clock)


def _first_queue_offset(wanted: Wanted, span: Span) -> int:
    queue_offset = wanted.starts.get(span.queue.topic, {}).get(span.queue.queue_id)
    if queue_offset is not None and queue_offset > span.stop:
        raise InvalidArgument(
            f"startingOffsets: {_named(span.queue)} has no message {queue_offset} yet, the next one is {span.stop}"
        )
    if queue_offset is not None and queue_offset < span.start and wanted.fail_on_loss:
        raise StoreError(f"startingOffsets: {_lost(span.queue, queue_offset, span.start)}")
    return queue_offset or 0


async def places(client: Client, reached: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
    """Where in its broker's log the message before each of these queue offsets stands; without those that a broker does not have,
    or does not tell. Raises Unreachable, Unknown."""
    found = await asyncio.gather(*(_place(client, queue, queue_offset) for queue, queue_offset in reached.items()))
    return {queue: place for queue, place in zip(reached, found, strict=True) if place is not None}


async def _place(client: Client, queue: MessageQueue, queue_offset: int) -> int | None:
    if not queue_offset:
        return None
    request = GetQueueEntries(queue.topic, queue.queue_id, queue_offset - 1, 1)
    timeout_s = client.session.settings.request_timeout_s
    try:
        answer = await insist(client, lambda client: client.session.leaders.request(queue.broker_name, request, timeout_s))
    except Refusal:
        return None
    assert isinstance(answer, QueueEntries)
    return answer.queue_data[0].physic_offset if answer.queue_data else None


def check_places(before: Mapping[MessageQueue, int], now: Mapping[MessageQueue, int], fail_on_loss: bool) -> None:
    """Raises StoreError where the last message that was read stands somewhere else by now: the queue is another one."""
    for queue in (queue for queue, place in before.items() if now.get(queue, place) != place):
        about = f"{_named(queue)} has other messages than those that were read: the topic was made again, or messages were lost"
        if fail_on_loss:
            raise StoreError(f"{about}; give a new checkpointLocation, or failOnDataLoss=false to go on where the stream is")
        _log.warning("%s; the stream goes on where it is", about)


async def tell_group(client: Client, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Tells the brokers how far the group has read; creates a new group as its first consumer would. Raises RmqError."""
    for topic in {queue.topic for queue in offsets}:
        await client.session.routes.get(topic)
    kept = BrokerOffsets(group, client.session, zero_if_in_memory=False)
    try:
        await kept.save(offsets, sync=True)
    except Refusal as refusal:
        if refusal.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        await asyncio.gather(*(_make_group(client, group, broker) for broker in {queue.broker_name for queue in offsets}))
        await kept.save(offsets, sync=True)


async def _make_group(client: Client, group: str, broker: str) -> None:
    """Creates the group by a heartbeat, and leaves it at once: this reader takes no queues from members."""
    ask, timeout_s = client.session.leaders.request, client.session.settings.request_timeout_s
    await ask(broker, Heartbeat(client.client_id, [], [ConsumerData(group, "CONSUME_ACTIVELY")]), timeout_s)
    await ask(broker, UnregisterClient(client.client_id, consumer_group=group), timeout_s)


# --- records ----------------------------------------------------------------------------------------------------------


def read_span(cluster: Cluster, span: Span, fail_on_loss: bool) -> Iterator[Block]:
    """The records of the span, checked. Raises StoreError (retention took some), BadBytes, Unreachable."""
    at, pieces = span.start, list[bytes]()
    while at < span.stop:
        data, at = cluster.run(partial(_pull, queue=span.queue, at=at, stop=span.stop, fail_on_loss=fail_on_loss))
        pieces.append(data)
        if at >= span.stop or sum(map(len, pieces)) >= _BLOCK_BYTES:
            yield from _blocks(b"".join(pieces), span)
            pieces = []


async def _pull(client: Client, queue: MessageQueue, at: int, stop: int, fail_on_loss: bool) -> tuple[bytes, int]:
    """Records from queue offset `at` on, and the queue offset to go on at. Raises StoreError, Unreachable."""
    await insist(client, lambda client: client.session.routes.get(queue.topic), passing=_NO_TOPIC)
    request = Pull(TOOLS_GROUP, queue.topic, queue.queue_id, at, min(_PULL_COUNT, stop - at), sys_flag=PULL_SUBSCRIPTION)
    deadline = client.session.clock.monotonic() + PATIENCE_S
    while True:
        answer = await insist(client, partial(_asked, broker=queue.broker_name, request=request), passing=_NO_TOPIC)
        if answer.next_begin_offset > at:
            if answer.status == ResponseCode.PULL_OFFSET_MOVED and fail_on_loss:
                raise StoreError(_lost(queue, at, min(answer.next_begin_offset, stop)))
            return answer.messages, answer.next_begin_offset
        if client.session.clock.monotonic() > deadline:  # a new leader may not know yet that it has the messages
            raise StoreError(f"{_named(queue)}: message {at} was there, and now the queue ends at {answer.max_offset}")
        await client.session.clock.sleep(_PAUSE_S)


async def _asked(client: Client, broker: str, request: Pull) -> PullAnswer:
    answer = await client.session.leaders.request(broker, request, client.session.settings.request_timeout_s)
    assert isinstance(answer, PullAnswer)
    return answer


def _blocks(data: bytes, span: Span) -> Iterator[Block]:
    starts, places, at = list[int](), list[int](), 0
    while at < len(data):
        size, place = _size_and_place(data, at) if at + MIN_RECORD_BYTES <= len(data) else (0, 0)
        if size < MIN_RECORD_BYTES or at + size > len(data):
            raise BadBytes(f"{_named(span.queue)}: the broker sent something that is no record; look at its disk and version")
        starts.append(at)
        places.append(place)
        at += size
    if not starts:
        return
    block, good = layout(data, np.array(starts, np.int64), np.array(places, np.int64))
    good &= block.head["queue_id"] == span.queue.queue_id
    if good.all():
        good = sums_are_right(block, np.full(len(block), MAYBE))
    if not good.all():
        bad = int(block.head["queue_offset"][int(good.argmin())])
        raise BadBytes(f"{_named(span.queue)}: message {bad} came damaged; run the job again, and look at the broker's disk")
    for some in apart(block):  # a span may begin or end within an inner batch
        if some is not None:
            inside = (some.head["queue_offset"] >= span.start) & (some.head["queue_offset"] < span.stop)
            yield some if inside.all() else some.only(inside)


# --- trying again -----------------------------------------------------------------------------------------------------


async def insist(
    client: Client, work: Callable[[Client], Awaitable[_T]], *, passing: frozenset[ResponseCode] = frozenset()
) -> _T:
    """Repeats `work` until it succeeds, for a while; it may be done twice. Raises RmqError.

    `passing`: refusals that pass here, because brokers that are just restarting are the reason.
    """
    deadline = client.session.clock.monotonic() + PATIENCE_S
    while True:
        try:
            return await work(client)
        except RmqError as error:
            code = error.code if isinstance(error, Refusal) else None
            missing = code == ResponseCode.TOPIC_NOT_EXIST
            again = not missing and (error.passing or error.retryable or isinstance(error, Unknown))
            if not (again or code in passing) or client.session.clock.monotonic() > deadline:
                raise
        await client.session.clock.sleep(_PAUSE_S)


def _named(queue: MessageQueue) -> str:
    return f"{queue.topic}, queue {queue.queue_id} at {queue.broker_name}"


def _lost(queue: MessageQueue, start: int, stop: int) -> str:
    return (
        f"messages {start} to {stop - 1} of {_named(queue)} were not read yet and are gone, retention took them: give "
        "failOnDataLoss=false to go on behind them, and keep more (fileReservedTime), or read oftener"
    )


# --- how much ---------------------------------------------------------------------------------------------------------


def packed(spans: Sequence[Span], most: int, least_tasks: int) -> list[list[Span]]:
    """The spans of each task: at most `most` messages, about the same number for each task; cuts queues where needed."""
    total = sum(span.stop - span.start for span in spans)
    size = max(1, min(most, -(-total // least_tasks))) if least_tasks else most
    found: list[list[Span]] = []
    room = 0
    for span in spans:
        while span.start < span.stop:
            if room == 0:
                found.append([])
                room = size
            stop = min(span.stop, span.start + room)
            found[-1].append(span._replace(stop=stop))
            room -= stop - span.start
            span = span._replace(start=stop)
    return found
