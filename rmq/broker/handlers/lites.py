"""Lite topics: clients say which they want, and pop messages of any of them [LiteSubscriptionCtlProcessor,
PopLiteMessageProcessor].

In each lite topic a pop is an ordered pop of its light queue (`pending/ordered.py`). One record holds what one answer hands out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from rmq.broker.pending.lites import SLICE, WAITING, LiteEvents
from rmq.broker.pending.ordered import Begun
from rmq.broker.pending.popreader import FIRST, MAX_BYTES, Taken, Wish
from rmq.broker.pending.popwaits import POP_BYTES
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.delivery.groups import LiteRules
from rmq.delivery.lites import MOST_OF_ONE, ClientKey, LiteClient
from rmq.delivery.offsets import OffsetKey
from rmq.delivery.popping import MAX_INVISIBLE_MS, MAX_MESSAGES, MAX_POLL_S, ORDERED, check_attempt
from rmq.delivery.shares import Owner
from rmq.errors import Refusal, StoreError
from rmq.names import check_client_id, lite_family, lite_parts, lite_queue
from rmq.net.commands.lites import (
    ACTIONS,
    COMPLETE_ADD,
    COMPLETE_REMOVE,
    PARTIAL_ADD,
    PARTIAL_REMOVE,
    DeclareLites,
    LiteChange,
    LitePopAnswer,
    LiteTaken,
    PopLite,
)
from rmq.net.transport.server import Call, Connection, Handler

FEW = 50  # changes that are made before others are served
FULL, TIMEOUT = int(ResponseCode.POLLING_FULL), int(ResponseCode.POLLING_TIMEOUT)
MoveAll = Callable[[Mapping[OffsetKey, int]], Awaitable[None]]


class LiteHandlers:
    """`move_all` sets groups to other places. Only a leader fills `lites`."""

    def __init__(self, lites: LiteEvents, move_all: MoveAll, settings: NodeSettings) -> None:
        self._lites = lites
        self._ordered, self._reader = lites.ordered, lites.ordered.reader
        self._subscriptions = lites.subscriptions
        self._move_all = move_all
        self._clock = lites.clock
        self._most = settings.max_lite_subscriptions
        self._turns = WeakValueDictionary[ClientKey, asyncio.Lock]()  # of clients whose changes are made now

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {DeclareLites: self.declare, PopLite: self.pop}

    def change_settings(self, settings: NodeSettings) -> None:
        self._most = settings.max_lite_subscriptions

    # --- who wants what

    async def declare(self, request: DeclareLites, call: Call) -> None:
        """Each change for itself, up to the first that is refused. Those of one client come one after the other: what is added
        while its whole set is looked through is not in that. Raises Refusal."""
        if not request.changes:
            raise _illegal("no change is in it: name what your client wants (subscriptionSet)")
        for number, change in enumerate(request.changes):
            if number % FEW == FEW - 1:
                await asyncio.sleep(0)
            if change.client_id.strip() and change.group.strip() and change.topic.strip():
                async with self._turns.setdefault(ClientKey(change.group, change.client_id), asyncio.Lock()):
                    await self._change(change, call.connection)

    async def _change(self, change: LiteChange, owner: Connection) -> None:
        action, client_id, group, topic, names, *_ = change
        if action not in ACTIONS:
            raise _illegal(f"action {action[:40]!r}: {', '.join(ACTIONS)} are known")
        check_client_id(client_id)
        if action == COMPLETE_REMOVE:
            if (known := self._subscriptions.get(group, client_id)) is not None:
                self._lites.leave(known)
            return
        rules = self._rules(group, topic, gives_up=action == PARTIAL_REMOVE)
        if len(names) > self._most or (action != PARTIAL_REMOVE and 0 <= rules.quota < len(set(names))):
            raise self._too_many(len(names), rules)
        queues: dict[str, None] = {}
        for number, name in enumerate(names):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            queues[lite_queue(topic, name)] = None
        if action in (COMPLETE_ADD, PARTIAL_ADD):
            self._check_room(ClientKey(group, client_id), queues, rules, complete=action == COMPLETE_ADD)
            if rules.wildcard and action == PARTIAL_ADD:
                raise _illegal(f"group {group} wants all lite topics (lite.sub.wildcard): none can be added")
            known = self._subscriptions.get(group, client_id)
            had = {*known.queues} if known else set[str]()
            client = self._subscriptions.join(ClientKey(group, client_id), topic, rules.wildcard, rules.events)
            client.owner, client.heard_s = owner, self._clock.monotonic()
            if rules.wildcard:
                client.events.missed = client.events.missed or client is not known
            else:
                add = self._add_all(client, queues, rules) if action == COMPLETE_ADD else self._add(client, queues, rules, change)
                try:
                    await add
                except Refusal as refusal:
                    if refusal.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED:  # others took the room meanwhile
                        for queue in queues.keys() - had:
                            self._subscriptions.remove(client, queue)
                    raise
                client.whole = client.whole or action == COMPLETE_ADD
            self._lites.wake(client)
        elif (known := self._subscriptions.get(group, client_id)) is not None:
            known.heard_s = self._clock.monotonic()
            given_up = [queue for queue in queues if self._subscriptions.remove(known, queue)]
            if rules.reset_removed:
                places = [OffsetKey(group, queue, 0) for queue in given_up]
                await self._move({place: 0 for place in places if self._reader.end(*place)})  # else nothing begins anew

    async def _add_all(self, client: LiteClient, queues: Mapping[str, None], rules: LiteRules) -> None:
        """This is the whole set. What another client of an exclusive group has stays that one's, and this client hears of it: it
        may not know yet that it lost it."""
        for queue in [queue for queue in client.queues if queue not in queues]:
            self._subscriptions.remove(client, queue)
        for number, queue in enumerate(queues):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if rules.exclusive and any(one is not client for one in self._subscriptions.who(queue, client.key.group)):
                _tell_taken(client, queue)
            else:
                self._want(client, queue, rules)

    async def _add(self, client: LiteClient, queues: Mapping[str, None], rules: LiteRules, change: LiteChange) -> None:
        moved: dict[OffsetKey, int] = {}
        for number, queue in enumerate(queues):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            place = OffsetKey(client.key.group, queue, 0)
            for other in [
                one for one in self._subscriptions.who(queue, client.key.group) if rules.exclusive and one is not client
            ]:
                self._subscriptions.remove(other, queue)
                _tell_taken(other, queue)
                if rules.reset_taken:
                    moved[place] = 0
            if (target := self._target(place, change)) is not None:
                moved[place] = target
            self._want(client, queue, rules)
        await self._move({place: offset for place, offset in moved.items() if offset != self._reader.reached(*place)})

    async def _move(self, places: Mapping[OffsetKey, int]) -> None:
        there = {place: offset for place, offset in places.items() if not self._reader.is_leaving(place.topic)}
        if there:
            await self._move_all(there)

    def _want(self, client: LiteClient, queue: str, rules: LiteRules) -> None:
        """Raises Refusal where others took the room since that was looked at."""
        if self._subscriptions.clients.get(client.key) is not client:
            return  # it left meanwhile
        if queue not in client.queues and self._subscriptions.size >= self._most:
            raise self._too_many(len(client.queues) + 1, rules)
        if self._subscriptions.add(client, queue) and self._reader.has_more(client.key.group, queue, 0):
            client.events.note(queue)

    def _target(self, place: OffsetKey, change: LiteChange) -> int | None:
        """Where the group is to begin [OffsetOption]; None: where it is. RocketMQ takes no time either."""
        kind, value, reader = change.offset_type, change.offset_value, self._reader
        if kind == "POLICY" and value in (1, 2):
            return 0 if value == 1 else reader.end(*place)
        if kind == "OFFSET":
            return max(value, 0)
        if kind == "TAIL_N" and reader.has_offset(*place):
            return max(reader.reached(*place) - max(value, 0), 0)
        return None

    def _check_room(self, key: ClientKey, queues: Mapping[str, None], rules: LiteRules, complete: bool) -> None:
        """Raises Refusal LITE_SUBSCRIPTION_QUOTA_EXCEEDED."""
        known = self._subscriptions.clients.get(key)
        had = known.queues if known else {}
        new = sum(queue not in had for queue in queues)
        after = len(queues) if complete else len(had) + new
        if 0 <= rules.quota < after or ((new or known is None) and self._subscriptions.size + new + (known is None) > self._most):
            raise self._too_many(after, rules)
        crowded = next((queue for queue in queues if queue not in had and self._subscriptions.is_crowded(queue)), "")
        if crowded or (known is None and rules.wildcard and self._subscriptions.wants_all_of(rules.topic) >= MOST_OF_ONE):
            about = f"{MOST_OF_ONE} clients want {crowded or 'all lite topics of ' + rules.topic} already: no more can hear of it"
            raise Refusal(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, about)

    def _too_many(self, count: int, rules: LiteRules) -> Refusal:
        about = f"{count} lite topics for one client: its group allows {rules.quota} (lite.sub.client.quota, -1: any number)"
        if not 0 <= rules.quota < count:
            about = f"this broker keeps {self._most} subscriptions to lite topics in all (maxLiteSubscriptionCount): raise that"
        return Refusal(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, about)

    def _rules(self, group: str, topic: str, gives_up: bool) -> LiteRules:
        """A group that is switched off may give up what it wants. Raises Refusal."""
        config = self._lites.catalog.group(group)
        if config is None or not (config.consume_enable or gives_up):
            raise _illegal(f"consumer group {group} is not allowed to consume: it does not exist, or is switched off")
        return self._lites.bound(group, topic)

    # --- pops

    async def pop(self, request: PopLite, call: Call) -> LitePopAnswer:
        if not 1 <= request.max_msg_num <= MAX_MESSAGES:
            raise _invalid(f"{request.max_msg_num} messages: 1 to {MAX_MESSAGES} may be asked for")
        if not 0 < request.invisible_time <= MAX_INVISIBLE_MS:
            raise _invalid(f"invisible time {request.invisible_time} ms: 1 to {MAX_INVISIBLE_MS} are allowed")
        check_attempt(request.attempt_id)
        deadline = self._clock.monotonic() + min(max(request.poll_time, 0) / 1000, MAX_POLL_S)
        check_client_id(request.client_id)
        while True:
            client = self._client_of(request)
            if client is not None and (answer := await self._look(request, client)) is not None:
                return answer
            if status := await self._wait(request, deadline, call):
                return LitePopAnswer(self._clock.wall_ms(), request.invisible_time, ORDERED, status=status)

    def _client_of(self, request: PopLite) -> LiteClient | None:
        """None: nothing is known of it yet. To one that has declared its set, and not here, a part of it is nothing. Raises
        Refusal."""
        group, topic = request.consumer_group, request.topic
        self._lites.catalog.readable_topic(group, topic)
        self._lites.bound(group, topic)
        self._lites.catalog.check_group(group)
        client = self._subscriptions.get(group, request.client_id)
        if client is None or client.topic != topic or (request.declared and not client.whole):
            if request.declared:
                about = f"this node does not know which lite topics client {request.client_id} wants: declare them again"
                raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, about)
            return None
        client.heard_s, client.accessed_ms = self._clock.monotonic(), self._clock.wall_ms()
        return client

    async def _wait(self, request: PopLite, deadline: float, call: Call) -> int:
        """Returns 0 if something may be there now, else the code to answer with."""
        if deadline <= self._clock.monotonic():
            return TIMEOUT
        place = (request.consumer_group, request.client_id, WAITING)
        connection, owner = call.connection, Owner(call.connection.id, call.connection.peer[0])
        woken = self._lites.waits.hold(place, (), None, deadline, lambda: not connection.closed, owner, call.size + POP_BYTES)
        if woken is None:
            return FULL
        if not await woken:
            return TIMEOUT
        if connection.closed:  # others of the group shall have it
            for other in self._subscriptions.of_group(request.consumer_group):
                if self._lites.wake(other):
                    break
            return TIMEOUT
        return 0

    async def _look(self, request: PopLite, client: LiteClient) -> LitePopAnswer | None:
        """Messages of the lite topics that may have something; None: none has. Raises Refusal."""
        now_ms = self._clock.wall_ms()
        wish = Wish(request.consumer_group, request.invisible_time, now_ms, FIRST, None, ORDERED)
        begun: list[Begun] = []
        try:
            await self._begin(request, client, wish, begun)
            shown = await self._ordered.finish(begun, wish, request.attempt_id)
        except BaseException:
            self._ordered.give_up(begun)
            for one in begun:  # not handed out
                self._lites.heard(one.place[1], one.place[0])
            raise
        if not shown:
            return None
        client.consumed_ms = now_ms
        counts = [count for one in shown for count in self._counts(wish.group, one)]
        messages = b"".join(one.messages for one in shown)
        return LitePopAnswer(now_ms, request.invisible_time, ORDERED, ";".join(counts), messages)

    async def _begin(self, request: PopLite, client: LiteClient, wish: Wish, begun: list[Begun]) -> None:
        """Fills `begun`. A lite topic that is refused now does not block the others. Raises Refusal if there are none."""
        room, size, seen, trouble = request.max_msg_num, 0, set[str](), None
        if request.attempt_id:  # whose answer may have been lost
            given, family = self._ordered.given_to(wish.group, request.attempt_id), lite_family(client.topic)
            self._ordered.check_decided(given, request.attempt_id)
            client.events.put_first(queue for _, queue, _ in given if queue.startswith(family))
        while room > 0 and size < MAX_BYTES and (queue := await self._lites.next_of(client)) is not None:
            if queue in seen:
                client.events.note(queue)
                break
            seen.add(queue)
            if not client.wants(queue):
                continue
            place = (wish.group, queue, 0)
            try:
                one = await self._ordered.begin(wish, request.attempt_id, queue, 0, room)
            except (Refusal, StoreError, OSError) as error:
                why = f"{queue} cannot be read: {error}"
                trouble = error if isinstance(error, Refusal) else Refusal(ResponseCode.SYSTEM_ERROR, why)
                self._lites.openings.put(wish.group, queue, wish.pop_time + 1000)  # it is tried again
                continue
            if one is not None:
                begun.append(one)
                room -= len(one.read.queue_offsets)
                size += len(one.read.messages)
            else:
                self._lites.closed(place, wish.pop_time)
        if trouble is not None and not begun:
            raise trouble

    def _counts(self, group: str, taken: Taken) -> list[str]:
        """[transformOrderCountInfo]"""
        tries = self._ordered.tries(group, taken.topic, 0)
        return [f"0 qo0%{each} {tries[each]}" if tries.get(each) else "0" for each in taken.part.queue_offsets]


def _tell_taken(client: LiteClient, queue: str) -> None:
    """[NotifyUnsubscribeLite]"""
    if isinstance(client.owner, Connection):
        client.owner.push(LiteTaken(lite_parts(queue)[1], *client.key))


def _invalid(about: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, about)


def _illegal(about: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, about)
