"""Delay levels and timers: stored as RocketMQ stores them, noted at every node, handed on in time by the leader.

[HookUtils, ScheduleMessageService, TimerMessageStore]. `rmq.delivery.due` knows what waits and when it is due.
"""

import asyncio
import logging
import re
from binascii import b2a_base64
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from rmq.broker.feature import Job
from rmq.broker.pending import fastdelays
from rmq.broker.pending.intake import Intercepted
from rmq.broker.pending.internalproducer import InternalProducer, handed_on
from rmq.broker.shared.state import Line, is_unknown, undoing
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.delivery.due import (
    CANCEL,
    MOST_LEVELS,
    TIMER,
    TIMER_SLOT_MS,
    Cancelling,
    DueTable,
    Source,
    level_slot,
    target_of,
    timer_out_ms,
    timer_slot,
)
from rmq.delivery.proof import DUE, Proof, proof_in
from rmq.errors import InvalidArgument, Refusal, RmqError
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.records import record
from rmq.log.records.delays import LEVELS_MS, OWN_DELAY, delay_ms
from rmq.log.records.record import Record, kept_properties
from rmq.log.units import Unit
from rmq.model import DELAY_TOPIC, REVIVE_PREFIX, TIMER_TOPIC, is_pending_topic
from rmq.net.commands import Send
from rmq.net.commands.messages import Scheduled
from rmq.routing.lives import Life
from rmq.routing.topics import TopicTable

log = logging.getLogger("rmq.delays")

TICK_S = 0.1
BITE = 200  # so many are handed on together
AT_ONCE = 200  # of them, then others have their turn: some milliseconds of the loop's time
SLOW = 5  # a message that is not usual takes as long as so many that are
MOST_BITES = 50  # at once: half a second or so
MOST_CARRIED = 400  # bites at once, of what keeps the log from being deleted: retention asks each 10 s, while the disk fills
DAMAGED_S = 10.0  # until a source that could not be read is tried again
_DELAY_S, _DELAY_MS, _DELIVER_MS = "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_TIMES = (_DELAY_S, _DELAY_MS, _DELIVER_MS)
_number = re.compile(r"[+-]?[0-9]{1,18}").fullmatch


# --- sends --------------------------------------------------------------------------------------------------------


def take_level(message: Record, queue_id: int, delays_ms: Sequence[int] = LEVELS_MS) -> Intercepted | None:
    """Interceptor of messages with a delay level; a level wins over a time. Raises Refusal."""
    if b"DELAY\x01" not in message.properties:
        return None
    said = kept_properties(message.properties)
    level = min(_level(said), len(delays_ms))
    if level <= 0:
        return None
    kept = {name: value for name, value in said.items() if name not in (*_TIMES, OWN_DELAY)}
    if tuple(delays_ms) != LEVELS_MS:
        kept[OWN_DELAY] = str(delays_ms[level - 1])
    waits = {**kept, "DELAY": str(level), "REAL_TOPIC": message.topic, "REAL_QID": str(queue_id)}
    return Intercepted(DELAY_TOPIC, level - 1, _draft(message, DELAY_TOPIC, waits))


class TimerInterceptor:
    """Interceptor of messages that are to come at a time of their own, at most `max_delay_s` ahead [timerMaxDelaySec]."""

    def __init__(self, clock: Clock, broker_name: str, max_delay_s: int) -> None:
        self._clock = clock
        self._broker_name = broker_name
        self.max_delay_s = max_delay_s

    def usual(self, request: Send, known: Scheduled | None) -> tuple[fastdelays.Timed, str] | None:
        """What `take` makes of a usual record that was sent so, and its handle. `known`: the codec drafted it as it waits."""
        now_ms, most_ms = self._clock.wall_ms(), self.max_delay_s * 1000
        if known is None:
            found = fastdelays.timed(request.records, request.topic, request.queue_id, now_ms, most_ms)
        else:
            found = fastdelays.scheduled(request.records, known, now_ms, most_ms)
        return found and (found, recall_handle(request.topic, self._broker_name, found.out_ms, found.unique_id))

    def take(self, message: Record, queue_id: int) -> Intercepted | None:
        """A time that has passed does not count: the message goes straight to its queue. Raises Refusal."""
        if b"TIMER_DEL" not in message.properties:
            return None
        said = kept_properties(message.properties)
        if not any(name in said for name in _TIMES) or _level(said) > 0:
            return None
        now_ms = self._clock.wall_ms()
        deliver_ms = _deliver_ms(said, now_ms)
        if deliver_ms <= now_ms:
            if "TIMER_DEL_UNIQKEY" in said:
                raise _illegal("a message that cancels another needs the other's time, and that has passed")
            return None
        if deliver_ms - now_ms > self.max_delay_s * 1000:
            raise _illegal(f"a delay of {(deliver_ms - now_ms) // 1000} s: at most {self.max_delay_s} (timerMaxDelaySec)")
        out_ms = timer_out_ms(deliver_ms)
        waits = {**said, "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": message.topic, "REAL_QID": str(queue_id)}
        handle = recall_handle(message.topic, self._broker_name, out_ms, said.get("UNIQ_KEY", ""))
        return Intercepted(TIMER_TOPIC, 0, _draft(message, TIMER_TOPIC, waits), handle)


def recall_handle(topic: str, broker_name: str, out_ms: int, unique_key: str) -> str:
    """The handle that recalls a timer; "" if it has no key. It names a time that becomes `out_ms` again [RecallMessageHandle]."""
    if not unique_key:
        return ""
    text = f"v1 {topic} {broker_name} {out_ms + 1} {unique_key}".encode()
    return b2a_base64(text, newline=False).translate(_URL_SAFE).decode()


def _level(said: Mapping[str, str]) -> int:
    text = said.get("DELAY", "0").strip()
    if not _number(text):
        raise _illegal(f"DELAY {text!r}: a delay level, a whole number from 1 on")
    return int(text)


def _deliver_ms(said: Mapping[str, str], now_ms: int) -> int:
    for name, unit_ms, base_ms in ((_DELAY_S, 1000, now_ms), (_DELAY_MS, 1, now_ms), (_DELIVER_MS, 1, 0)):
        if name in said:
            if not _number(said[name]):
                raise _illegal(f"{name} {said[name]!r}: a whole number")
            return base_ms + int(said[name]) * unit_ms
    raise AssertionError("there is one")


def _draft(message: Record, topic: str, properties: Mapping[str, str]) -> bytes:
    """Keeps the proof of another kind that the message may have."""
    return record.draft(
        topic,
        message.body,
        record.properties_to_bytes(properties),
        flag=message.flag,
        sys_flag=message.sys_flag & ~record.SYS_STORE_V6,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def _illegal(about: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, about)


# --- every node -------------------------------------------------------------------------------------------------------


class DelayNotes:
    """A `kinds.Kind`: committed records of both topics, and what was handed on."""

    def __init__(self, table: DueTable) -> None:
        self._table = table
        self.alive_from = table.alive_from

    def holds(self, topic: str) -> bool:
        return topic in (DELAY_TOPIC, TIMER_TOPIC)

    def note(self, stored: Record) -> None:
        source, cancels = source_of(stored)
        if cancels:
            self._table.cancel(source, cancels)
        else:
            self._table.note(source)

    def done(self, proof: Proof, stored: Record) -> None:
        self._table.done(proof.detail, proof.source)


def source_of(stored: Record, delays_ms: Sequence[int] = LEVELS_MS) -> tuple[Source, str]:
    """When a stored record is due, and which timer it cancels (""): none). One that was carried forward keeps its time.
    `delays_ms`: of levels, in records that do not say theirs."""
    said = kept_properties(stored.properties)
    proof = proof_in(stored.properties)
    carried_ms = proof.detail if proof is not None and proof.kind == DUE else 0
    if stored.topic == DELAY_TOPIC:
        level = min(max(_whole(said.get("DELAY")), 1), MOST_LEVELS)
        waits_ms = delay_ms(said, delays_ms) or delays_ms[0]
        return Source(carried_ms or level_slot(stored.store_timestamp, waits_ms), stored.physical_offset, level), ""
    due_ms = carried_ms or timer_slot(_whole(said.get("TIMER_OUT_MS")))
    if "TIMER_DEL_UNIQKEY" in said:
        return Source(due_ms, stored.physical_offset, CANCEL), target_of(said.get("REAL_TOPIC"), said["TIMER_DEL_UNIQKEY"])
    return Source(due_ms, stored.physical_offset, TIMER), ""


def _whole(text: str | None) -> int:
    return int(text) if text and _number(text) else 0


# --- the leader -------------------------------------------------------------------------------------------------------


class DelayService:
    """Hands on what is due. `commit` writes state lines."""

    def __init__(
        self,
        table: DueTable,
        cancelling: Cancelling,
        internal_producer: InternalProducer,
        commit: Callable[[list[Line]], Awaitable[None]],
        topics: TopicTable,
        clock: Clock,
    ) -> None:
        self._table = table
        self._cancelling = cancelling
        self._internal_producer = internal_producer
        self._commit = commit
        self._topics = topics
        self._clock = clock
        self._units = internal_producer.turn_units(self._note, _all_arrived)
        self._later: list[tuple[int, Source]] = []  # leadership, and what a deletion or recall on its way may end
        self._unread: list[tuple[int, Source]] = []  # likewise
        self._unread_until = 0.0
        self.jobs = (Job(TICK_S, "delays", self.hand_on),)

    async def hand_on(self) -> None:
        """Hands on what is due, bite by bite; the rest next time, so that a node that stops need not wait, or by the next leader.
        Raises Refusal."""
        if self._unread and self._clock.monotonic() >= self._unread_until:
            unread, self._unread = self._unread, []
            self._give_back_of(unread)
        leadership = self._table.leadership
        try:
            for _ in range(MOST_BITES):
                bite = self._table.due(self._clock.wall_ms(), BITE)
                if not bite:
                    break
                await self._put(bite, self._message_of, usual=True)
                if self._table.leadership != leadership:
                    break
        finally:
            self._end_round()

    async def carry_forward(self, below: int) -> None:
        """What is due soon is handed on instead; the rest comes next time. Raises Refusal."""
        try:
            await self._carry(below)
        finally:
            self._end_round()

    def _end_round(self) -> None:
        later, self._later = self._later, []
        self._give_back_of(later)

    def _give_back_of(self, held: Sequence[tuple[int, Source]]) -> None:
        """A later leadership may be writing the end of what was held in an earlier one."""
        self._give_back([source for leadership, source in held if leadership == self._table.leadership])

    async def _carry(self, below: int) -> None:
        """A slot, that is a second, often has one message only: those of many slots go together."""
        left, bite = MOST_CARRIED, list[Source]()
        for slots, found in enumerate(self._table.below(below, BITE), 1):
            soon_ms = self._clock.wall_ms() + TIMER_SLOT_MS
            bite += [source for source in found if source.due_ms > soon_ms]
            if len(bite) >= BITE:
                await self._copy(bite[:BITE])
                bite, left = bite[BITE:], left - 1
                if not left:
                    return
            elif slots % BITE == 0:
                await asyncio.sleep(0)
        await self._copy(bite)

    async def _copy(self, bite: Sequence[Source]) -> None:
        if pending := [source for source in bite if self._table.hold(source)]:
            await self._put(pending, _copy_of)

    async def _put(self, bite: Sequence[Source], made: "Maker", usual: bool = False) -> None:
        """Puts what is `made` of each, drops what nothing is made of, and what was for a life of its topic that is over; returns
        once all of it is committed. `usual`: those that are take the fast way."""
        leadership = self._table.leadership
        waiting = deque(await self._read(bite))
        way, dropped = _Way(self._table), list[Source]()
        try:
            # Once leadership was lost, and perhaps won again, others may have handed these on meanwhile.
            while waiting and self._table.leadership == leadership:
                self._put_some(waiting, made, usual, way, dropped)
                if waiting:
                    await asyncio.sleep(0)
        except RmqError:
            self._give_back([*dropped, *(source for source, _ in waiting)])
            raise
        finally:
            await way.end()
            if self._table.leadership == leadership:
                await self._drop(way.unnamed)
        if self._table.leadership == leadership:
            await self._drop(dropped)

    def _put_some(
        self, waiting: deque[tuple[Source, bytes]], made: "Maker", usual: bool, way: "_Way", dropped: list[Source]
    ) -> None:
        """Takes the first ones away; others have their turn then. Raises RmqError: the first that is left still waits."""
        queues: dict[tuple[str, int], tuple[ConsumeQueue, int] | None] = {}
        work = 0
        while waiting and work < AT_ONCE:
            source, stored = waiting[0]
            if usual and self._put_usual(source, stored, way, queues):
                work += 1
            else:
                work += SLOW
                if not self._put_one(source, record.decode(stored), made, way):
                    dropped.append(source)
            waiting.popleft()

    def _put_usual(
        self, source: Source, stored: bytes, way: "_Way", queues: dict[tuple[str, int], tuple[ConsumeQueue, int] | None]
    ) -> bool:
        """False: `_put_one` looks at it. `queues`: those that were looked at in this turn."""
        found = fastdelays.handed_on(stored, source, self._clock.wall_ms())
        if found is None:
            return False
        if source.level == TIMER and (self._table.has_cancelled(source.due_ms) or source.due_ms in self._cancelling.targets):
            return False
        topic, queue_id, draft, code = found
        if (topic, queue_id) not in queues:
            queues[topic, queue_id] = None if is_pending_topic(topic) else self._internal_producer.present_queue(topic, queue_id)
        present = queues[topic, queue_id]
        if present is None or source.offset < present[1]:
            return False
        if self._units.add(present[0], draft, code, (source, way), None) is None:
            return False
        way.left += 1
        return True

    def _note(self, put: Sequence[tuple[Source, "_Way"]], _unit: Unit) -> None:
        """As `DelayNotes.done` for each."""
        for due_ms, some in groupby([source for source, _ in put], itemgetter(0)):
            self._table.done_all(due_ms, [source.offset for source in some])

    def _put_one(self, source: Source, stored: Record, made: "Maker", way: "_Way") -> bool:
        """False if it is to be dropped. Raises RmqError: it still waits."""
        said = kept_properties(stored.properties)
        topic = said.get("REAL_TOPIC", "")
        if source.level == TIMER and target_of(topic, said.get("UNIQ_KEY")) in self._cancelling.targets.get(source.due_ms, ()):
            self._later.append((self._table.leadership, source))
            return True
        life = self._internal_producer.life(topic, source.offset)
        put = made(source, stored, said) if life in (Life.GOES_ON, Life.NEVER) else None
        if put is not None:
            arrived = way.arrived if put.names_source else way.unnamed_arrived
            unit = self._internal_producer.put(*put[:3], (arrived, (source,)), state=made is _copy_of)
            self._units.close(unit.queue)
            way.left += 1
        elif life is Life.ENDING:
            self._later.append((self._table.leadership, source))
        else:
            if life is Life.OVER and source.level != CANCEL:
                about = "the message that waited at %d of the log is not delivered: topic %s was deleted behind it"
                log.warning(about, source.offset, topic)
            return False
        return True

    def _message_of(self, source: Source, stored: Record, said: Mapping[str, str]) -> "Put | None":
        """None for a message that cancels another or is cancelled, or cannot be delivered any more."""
        topic = said.get("REAL_TOPIC", "")
        if source.level == CANCEL or (
            source.level == TIMER and self._table.is_cancelled(source, target_of(topic, said.get("UNIQ_KEY")))
        ):
            return None
        more = (
            {}
            if source.level
            else {
                "TIMER_ENQUEUE_MS": str(stored.store_timestamp // TIMER_SLOT_MS * TIMER_SLOT_MS),
                "TIMER_DEQUEUE_MS": str(self._clock.wall_ms()),
            }
        )
        try:
            config = self._topics.get(topic)
            pending = is_pending_topic(topic) and not topic.startswith(
                REVIVE_PREFIX
            )  # where RocketMQ's receipts go after a while
            if config is None or pending:
                raise InvalidArgument(f"there is no topic {topic!r} any more")
            queue_id = self._internal_producer.queue_in(config, _whole(said.get("REAL_QID")))
            return _put_of(source, stored, topic, queue_id, more, without=(b"REAL_TOPIC", b"REAL_QID"))
        except InvalidArgument as error:
            log.warning("the message that waited at %d of the log is not delivered: %s", source.offset, error)
            return None

    async def _read(self, sources: Sequence[Source]) -> list[tuple[Source, bytes]]:
        """Leaves out records that cannot be read: one damaged record does not hold up the others."""
        leadership = self._table.leadership
        read = self._internal_producer.read_bytes
        try:
            return list(zip(sources, await read([source.offset for source in sources]), strict=True))
        except RmqError as error:
            log.error("a message that waits cannot be read, it is tried again every %d s: %s", DAMAGED_S, error)
        found: list[tuple[Source, bytes]] = []
        for source in sources:
            try:
                found += zip([source], await read([source.offset]), strict=True)
            except RmqError:
                self._unread.append((leadership, source))
                self._unread_until = self._clock.monotonic() + DAMAGED_S
        return found

    async def _drop(self, sources: Sequence[Source]) -> None:
        """Marks them as done, though nothing was handed on. Raises Refusal."""
        if not sources:
            return
        with undoing(lambda: self._give_back(sources)):
            await self._commit([("due", list(source), None) for source in sources])

    def _give_back(self, sources: Sequence[Source]) -> None:
        for source in sources:
            self._table.not_stored(source)


class Put(NamedTuple):
    """`names_source`: the record says of which one it is the end; else that is written behind it."""

    topic: str
    queue_id: int
    draft: bytes
    names_source: bool


Maker = Callable[[Source, Record, Mapping[str, str]], Put | None]


def _put_of(
    source: Source, stored: Record, topic: str, queue_id: int, more: Mapping[str, str], without: Iterable[bytes] = ()
) -> Put:
    """With `more` properties. Where RocketMQ left no room for ours, it has none, nor those named `without`. Raises
    InvalidArgument."""
    proof = Proof(DUE, source.offset, source.due_ms)
    try:
        return Put(topic, queue_id, handed_on(stored, topic, proof, properties=more.items()), True)
    except InvalidArgument:
        return Put(topic, queue_id, handed_on(stored, topic, None, without=without), False)


def _copy_of(source: Source, stored: Record, said: Mapping[str, str]) -> Put:
    """The same message, appended again at the end of its topic's queue, due at the same time."""
    rolled = {} if stored.topic == DELAY_TOPIC else {"TIMER_ROLL_TIMES": str(_whole(said.get("TIMER_ROLL_TIMES")) + 1)}
    return _put_of(source, stored, stored.topic, stored.queue_id, rolled)


class _Way:
    """Records that are on their way to being committed."""

    def __init__(self, table: DueTable) -> None:
        self.left = 1
        self.unnamed: list[Source] = []  # whose records are committed, and do not name them
        self._table = table
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def arrived(self, sources: Sequence[Source], _unit: Unit, error: RmqError | None, _late: int) -> None:
        if error is not None and not is_unknown(error):
            for source in sources:
                self._table.not_stored(source)
        self._fewer(len(sources))

    def unnamed_arrived(self, sources: Sequence[Source], unit: Unit, error: RmqError | None, late: int) -> None:
        if error is None:
            self.unnamed += sources
        self.arrived(sources, unit, error, late)

    async def end(self) -> None:
        """Returns when all are committed."""
        self._fewer(1)
        await self._over

    def _fewer(self, count: int) -> None:
        self.left -= count
        if not self.left:
            self._over.set_result(None)


def _all_arrived(put: Sequence[tuple[Source, _Way]], unit: Unit, error: RmqError | None, late: int) -> None:
    for way, some in groupby(put, itemgetter(1)):
        way.arrived([source for source, _ in some], unit, error, late)
