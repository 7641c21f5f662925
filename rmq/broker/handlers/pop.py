"""POP: hands out messages for a time, from any queue of a topic, together with those that came back [PopMessageProcessor].

The receipt of the messages in an answer is committed first. A pop that finds nothing waits for the first message.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rmq.broker.pending.ordered import OrderedPopReader
from rmq.broker.pending.popreader import FIRST, LAST, MAX_BYTES, GroupQueue, PopReader, Read, Taken, Wish
from rmq.broker.pending.popwaits import POP_BYTES, PopWaits
from rmq.broker.pending.receipts import ReceiptWriter
from rmq.broker.shared.catalog import Catalog
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.delivery import filters
from rmq.delivery.filters import Selection
from rmq.delivery.groups import PRIORITY_FACTOR
from rmq.delivery.popping import (
    MAX_INVISIBLE_MS,
    MAX_MESSAGES,
    MAX_POLL_S,
    NORMAL,
    ORDERED,
    Handle,
    Part,
    check_attempt,
    msg_offset_info,
    order_count_info,
    pop_retry_topics,
    retry_flag,
    start_offset_info,
)
from rmq.delivery.shares import Owner
from rmq.errors import Refusal, RmqError, StoreError
from rmq.log.records import record
from rmq.log.records.properties import CRC_NAME
from rmq.log.records.record import topic_field_of
from rmq.names import check_known_topic
from rmq.net.commands.pop import (
    Notification,
    NotificationAnswer,
    Peek,
    PollingInfo,
    PollingInfoAnswer,
    Pop,
    PopAnswer,
)
from rmq.net.transport.server import Call, Handler
from rmq.routing.kinds import is_by_urgency

LOOKS = 3  # so many looks may find nothing, while something seems to be there
SEARCH_S = 1.0  # so long one pop searches for the first message that it wants
NOTHING, FULL, TIMEOUT = map(int, (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT))


class CheckedPop(NamedTuple):
    """A checked pop: where it looks, and for what."""

    group: str
    topic: str
    queue_id: int
    places: list[GroupQueue]
    wanted: Selection


class PopHandler:
    def __init__(
        self,
        catalog: Catalog,
        pop_reader: PopReader,
        ordered: OrderedPopReader,
        waits: PopWaits,
        receipts: ReceiptWriter,
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._catalog = catalog
        self._pop_reader = pop_reader
        self._ordered = ordered
        self._reader = pop_reader.reader
        self._waits = waits
        self._receipts = receipts
        self._clock = clock
        self._chance = chance
        self._ascending, self._retry_percent, self._urgent_retry_percent = True, 20, 0

    def change_settings(self, settings: NodeSettings) -> None:
        self._ascending = settings.priority_ascending
        self._retry_percent, self._urgent_retry_percent = settings.retry_percent, settings.urgent_retry_percent

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {Pop: self.pop, Peek: self.peek, Notification: self.notify, PollingInfo: self.polling}

    async def pop(self, request: Pop, call: Call) -> PopAnswer:
        if not 1 <= request.max_msg_nums <= MAX_MESSAGES:
            raise _invalid(f"{request.max_msg_nums} messages: 1 to {MAX_MESSAGES} may be asked for")
        if not 0 < request.invisible_time <= MAX_INVISIBLE_MS:
            raise _invalid(f"invisible time {request.invisible_time} ms: 1 to {MAX_INVISIBLE_MS} are allowed")
        check_attempt(request.attempt_id)
        deadline = self._deadline(request.poll_time)
        if self._catalog.topic(request.topic) is None:  # it is refused before any group is made for it
            self._asked(request, request.exp_type, request.exp, request.order)
        await self._reader.reader.check(filters.selection(request.exp, request.exp_type))
        await self._catalog.ensure_group(request.consumer_group)  # clients that only pop send no heartbeat
        while True:
            asked = self._asked(request, request.exp_type, request.exp, request.order)
            if (answer := await self._looks(request, asked)) is not None:
                return answer
            status = await self._wait(request, asked, deadline, call)
            if not status and self._catalog.group(request.consumer_group) is None:
                status = TIMEOUT  # it was deleted meanwhile, perhaps since whoever popped is done; the next pop makes it anew
            if status:
                return self._nothing(asked, status)

    async def _looks(self, request: Pop, asked: CheckedPop) -> PopAnswer | None:
        """Goes on looking as long as something may be there: one look goes through 800 messages of a queue, wanted or not;
        through some 16 where they are not in memory."""
        until, idle, left = self._clock.monotonic() + SEARCH_S, 0, None
        while idle < LOOKS and self._clock.monotonic() < until:
            if (answer := await self._look(request, asked)) is not None:
                return answer
            if next(self._worth_looks(request, asked), None) is None:
                return None
            before, left = left, self._left(asked)
            idle += before in (None, left)  # the first one has nothing to compare with
        return None

    def _worth_looks(self, request: Pop | Notification, asked: CheckedPop) -> Iterator[GroupQueue]:
        """The queues in which something may be there."""
        now_ms = self._clock.wall_ms()
        for place in asked.places:
            if self._ordered.may_have(place, request.attempt_id, now_ms) if request.order else self._pop_reader.may_have(place):
                yield place

    async def _wait(self, request: Pop | Notification, asked: CheckedPop, deadline: float, call: Call) -> int:
        """Returns 0 if something may be there now, else the code to answer with."""
        if deadline <= self._clock.monotonic():
            return TIMEOUT
        place = (asked.group, asked.topic, asked.queue_id)
        topics = [asked.topic] if request.order else [asked.topic, *pop_retry_topics(asked.group, asked.topic)]
        connection, owner = call.connection, Owner(call.connection.id, call.connection.peer[0])
        woken = self._waits.hold(
            place,
            topics,
            filters.tag_codes(asked.wanted),
            deadline,
            lambda: not connection.closed,
            owner,
            call.size + POP_BYTES,
            request.order,
        )
        if woken is None:
            return FULL
        if not await woken:
            return TIMEOUT
        if call.connection.closed:  # another pop shall have it
            self._waits.freed(*place)
            return TIMEOUT
        return 0

    async def _look(self, request: Pop, asked: CheckedPop) -> PopAnswer | None:
        """Messages of the first queues that have some; None: nothing. Raises Refusal."""
        wish = Wish(
            asked.group,
            request.invisible_time,
            self._clock.wall_ms(),
            LAST if request.init_mode == LAST else FIRST,
            asked.wanted,
            self._receipts.next_queue(),
            self._catalog.topics.lives_from(asked.topic),
        )
        room, trouble = request.max_msg_nums, None
        taken: list[Taken] = []
        places = self._in_turn(asked, request.order)
        if request.order and request.attempt_id:  # whose answer may have been lost: what was in it first, and not what is new
            self._ordered.check_decided(places, request.attempt_id)
            places.sort(key=lambda place: not self._ordered.is_of(place, request.attempt_id))
        for _, topic, queue_id in places:
            if not room or sum(len(one.messages) for one in taken) >= MAX_BYTES:
                break
            try:
                found = await self._take(request, wish, topic, queue_id, room)
            except Refusal as refusal:  # one queue that cannot be read does not block the others
                trouble = refusal
                continue
            if found is not None:
                taken.append(found)
                room -= len(found.part.queue_offsets)
        if trouble is not None and not taken:
            raise trouble
        shown = await _committed(taken)
        return self._answer(request, wish, asked, shown) if shown else None

    async def _take(self, request: Pop, wish: Wish, topic: str, queue_id: int, room: int) -> Taken | None:
        try:
            if request.order:
                return await self._ordered.take(wish, request.attempt_id, topic, queue_id, room)
            return await self._pop_reader.take(wish, topic, queue_id, room)
        except (StoreError, OSError) as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"queue {queue_id} of {topic} cannot be read: {error}") from error

    def _in_turn(self, asked: CheckedPop, ordered: bool) -> list[GroupQueue]:
        """All queues, from a random one on; now and then those with returned messages first, so that neither kind starves.
        The queues of a topic made for priorities: the most urgent one first, also of returned messages [PopMessageProcessor]."""
        own = [place for place in asked.places if place[1] == asked.topic]
        back = [place for place in asked.places if place[1] != asked.topic]
        if not ordered and self._goes_by_urgency(asked):
            own, back = (own[::-1], back[::-1]) if self._ascending else (own, back)
            percent = self._urgent_retry_percent
        else:
            own, back, percent = self._rotated(own), self._rotated(back), self._retry_percent
        return back + own if not ordered and self._chance.random() * 100 < percent else own + back

    def _rotated(self, places: list[GroupQueue]) -> list[GroupQueue]:
        first = self._chance.randrange(len(places)) if len(places) > 1 else 0
        return places[first:] + places[:first]

    def _goes_by_urgency(self, asked: CheckedPop) -> bool:
        """A group may give a part of its pops to the other queues, so that those do not starve (priority.factor)."""
        topic, group = self._catalog.topic(asked.topic), self._catalog.group(asked.group)
        if topic is None or not is_by_urgency(topic):
            return False
        factor = group.attributes.get(PRIORITY_FACTOR, "") if group else ""
        return self._chance.random() * 100 < int(factor or 100)

    def _answer(self, request: Pop, wish: Wish, asked: CheckedPop, shown: Sequence[Taken]) -> PopAnswer:
        parts = [one.part for one in shown]
        revive_queue, counts = wish.revive_queue, list[str]()
        if request.order:
            revive_queue = ORDERED
            counts = [order_count_info(part, self._ordered.tries(asked.group, asked.topic, part.queue_id)) for part in parts]
        return PopAnswer(
            wish.pop_time, wish.invisible_ms, revive_queue, self._left(asked), start_offset_info(parts), msg_offset_info(parts),
            ";".join(counts),
            b"".join(one.messages if one.topic == asked.topic else self._renamed(one, asked.topic, wish) for one in shown),
        )  # fmt: skip

    def _renamed(self, taken: Taken, topic: str, wish: Wish) -> bytes:
        """Returned messages appear under the topic that was asked for, with their receipts."""
        part = taken.part
        found = []
        for stored in record.iterate(taken.messages):
            handle = Handle(
                part.start, wish.pop_time, wish.invisible_ms, wish.revive_queue, part.flag, self._receipts.broker_name,
                part.queue_id, stored.queue_offset,
            )  # fmt: skip
            properties = {**record.bytes_to_properties(stored.properties), "POP_CK": handle.text()}
            properties.pop(CRC_NAME.decode(), None)  # of the bytes as they are stored
            found.append(
                record.encode(
                    stored._replace(
                        topic=topic, magic=topic_field_of(topic)[0], properties=record.properties_to_bytes(properties)
                    )
                )
            )
        return b"".join(found)

    def _nothing(self, asked: CheckedPop, status: int) -> PopAnswer:
        return PopAnswer(self._clock.wall_ms(), 0, 0, self._left(asked), status=status)

    def _left(self, asked: CheckedPop) -> int:
        return sum(self._reader.left(*place) for place in asked.places)

    # --- looking without handing out

    async def peek(self, request: Peek, _call: Call) -> PopAnswer:
        asked = self._asked(request, "TAG", "*", False)
        room = max(1, min(request.max_msg_nums, MAX_MESSAGES))
        since = self._catalog.topics.lives_from(asked.topic)
        parts, messages = [], []
        for group, topic, queue_id in self._in_turn(asked, False):
            read = await self._reader.read(group, topic, queue_id, room, None, since)
            if read.queue_offsets:
                flag = NORMAL if topic == asked.topic else retry_flag(group, topic)
                parts.append(Part(flag, queue_id, read.start, read.queue_offsets))
                messages.append(read.messages)
                room -= len(read.queue_offsets)
            if not room:
                break
        if not parts:
            return self._nothing(asked, NOTHING)
        return PopAnswer(
            self._clock.wall_ms(),
            0,
            0,
            self._left(asked),
            start_offset_info(parts),
            msg_offset_info(parts),
            messages=b"".join(messages),
        )

    async def notify(self, request: Notification, call: Call) -> NotificationAnswer:
        deadline, seen = self._deadline(request.poll_time), dict[GroupQueue, tuple[int, Read]]()
        await self._reader.reader.check(filters.selection(request.exp, request.exp_type))
        while not await self._has_wanted(
            request, asked := self._asked(request, request.exp_type, request.exp, request.order), seen
        ):
            status = await self._wait(request, asked, deadline, call)
            if status:
                return NotificationAnswer(False, status == FULL)
        self._waits.freed(asked.group, asked.topic, asked.queue_id)  # nothing was handed out
        return NotificationAnswer(True)

    async def _has_wanted(self, request: Notification, asked: CheckedPop, seen: dict[GroupQueue, tuple[int, Read]]) -> bool:
        """Whether a pop may find something: what it wants, or more than one look goes through. `seen`: where the group was, and
        what was read from there on: that is not read again for each message that comes. Raises Refusal."""
        since = self._catalog.topics.lives_from(asked.topic)
        for place in self._worth_looks(request, asked):
            if asked.wanted is None or place[1] != asked.topic:
                return True
            start, (known, before) = self._reader.start(*place), seen.get(place, (-1, None))
            behind = before.next if before is not None and known == start and not before.queue.ended else 0
            try:
                read = await self._reader.read(*place, 1, asked.wanted, since, behind)
            except (StoreError, OSError):
                return True  # the pop says what is wrong
            if read.queue_offsets:
                return True
            seen[place] = start, read
        now = ((place, (self._reader.start(*place), self._reader.end(*place))) for place in self._worth_looks(request, asked))
        looked = {place: (start, read.next) for place, (start, read) in seen.items()}
        return any(looked.get(place) != stretch for place, stretch in now)  # something may have come, or moved, meanwhile

    def polling(self, request: PollingInfo, _call: Call) -> PollingInfoAnswer:
        self._asked(request, "TAG", "*", False)
        return PollingInfoAnswer(self._waits.count((request.consumer_group, request.topic, request.queue_id)))

    # --- checks

    def _asked(self, request: Pop | Peek | Notification | PollingInfo, kind: str, expression: str, ordered: bool) -> CheckedPop:
        """Raises Refusal."""
        group, topic, queue_id = request.consumer_group, request.topic, request.queue_id
        self._catalog.check_group(group)
        config = self._catalog.readable_topic(group, topic)
        if not -1 <= queue_id < config.read_queue_nums:
            raise _invalid(f"queue {queue_id} of {topic}: it has queues 0 to {config.read_queue_nums - 1}; -1 means any")
        wanted = filters.selection(expression, kind)
        places = [(group, topic, each) for each in (range(config.read_queue_nums) if queue_id < 0 else (queue_id,))]
        back = [] if ordered else pop_retry_topics(group, topic)
        for name in back[:1]:  # without a place where messages come back nothing is handed out
            check_known_topic(name)
            self._catalog.topics.check_room(name, ours=True)
        found = [one for one in map(self._catalog.topic, back) if one is not None]
        places += [(group, one.name, each) for one in found for each in range(one.read_queue_nums)]
        return CheckedPop(group, topic, queue_id, places, wanted)

    def _deadline(self, poll_ms: int) -> float:
        """Counted from now, not from the time that the client gives: clocks differ."""
        return self._clock.monotonic() + min(max(poll_ms, 0) / 1000, MAX_POLL_S)


async def _committed(taken: Sequence[Taken]) -> list[Taken]:
    """The messages whose receipts are committed. Raises RmqError if there are none, but some were taken."""
    shown, failed = list[Taken](), list[RmqError]()
    for one in taken:
        try:  # shielded: a queue is not free before its record is committed, even when nobody waits for the answer any more
            await asyncio.shield(one.committed)
        except RmqError as error:
            failed.append(error)
        else:
            shown.append(one)
    if failed and not shown:
        raise failed[0]
    return shown


def _invalid(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)
