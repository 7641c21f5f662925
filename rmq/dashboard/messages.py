"""Messages: found by topic and time, key or id; one message in detail, with what each group did with it; consumed once more."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response
from starlette.routing import BaseRoute

from rmq.client import Client, MessageQueue, ReceivedMessage
from rmq.client.admin import again, calls, lookups, members, one, tracks
from rmq.client.admin.lookups import FOREVER_MS, Hits
from rmq.dashboard.addresses import link
from rmq.dashboard.bounded import ask, ask_all
from rmq.dashboard.formats import field_time, to_ms
from rmq.dashboard.looks import broker_groups
from rmq.dashboard.members import held_by
from rmq.dashboard.page import Page, Visit
from rmq.errors import InvalidArgument, Refusal, RmqError
from rmq.model import DLQ_PREFIX, PERM_READ, RETRY_PREFIX

PER_PAGE = 32
_UNKNOWN = "-"  # where to go on in a queue whose broker was silent: with its newest messages


class Listed(NamedTuple):
    """One page of a topic's messages, the newest first. `older`: where the next page begins, "" if nothing is left."""

    messages: list[ReceivedMessage]
    older: str
    silent: dict[str, str]


class MessagePages:
    def __init__(self, client: Client, page: Page) -> None:
        self._client = client
        self.routes: list[BaseRoute] = [
            page.view("/messages", self.messages),
            page.view("/message", self.message),
            page.action("/message/again", self.again),
        ]

    async def messages(self, visit: Visit) -> Response:
        """`word`: a key or an id. Without one, the newest messages of the topic, or of the given time."""
        topic, word = visit.text("topic"), visit.text("word")
        begin_ms, end_ms = to_ms(visit.text("from")), to_ms(visit.text("until"))
        found, why = Listed([], "", {}), ""
        try:
            if word:
                hits = await self._found(visit, topic, word, begin_ms, end_ms)
                found = found._replace(messages=hits.messages[::-1])
                why = "" if hits.complete else "A broker does not answer, refuses, or still builds its index: there may be more."
                if len(found.messages) == 1 and hits.complete:
                    return visit.go(place(found.messages[0]))
            elif topic:
                found = await listed(visit, self._client, topic, begin_ms, end_ms)
        except (RmqError, TimeoutError) as error:
            why = str(error) or "Nobody answered in time."
        return visit.show(
            "messages.html",
            topic=topic,
            word=word,
            begin=field_time(begin_ms),
            end=field_time(end_ms),
            found=found,
            why=why,
            place=place,
            asked=bool(topic or word),
        )

    async def message(self, visit: Visit) -> Response:
        topic, broker = visit.needed("topic"), visit.needed("broker")
        queue = MessageQueue(topic, broker, visit.number("queue"))
        message = await ask(lookups.at(self._client, queue, visit.number("offset", most=2**63 - 1)))
        found: Sequence[tracks.Track] = []
        why = ""
        try:
            seconds = visit.left_s()
            found = await ask(tracks.tracks(self._client, message, seconds * 0.7), seconds)
        except (RmqError, TimeoutError) as error:
            why = str(error) or "Nobody answered in time."
        own = _own_group(topic)
        groups = [track.group for track in found] or own
        connected = await self._connected(groups, broker, visit.left_s(0.5))
        asked = {(group, client): address for group, (address, clients) in connected.items() for client in clients}
        holders = await held_by(self._client, asked, queue, visit.left_s())
        clients = {group: clients for group, (_, clients) in connected.items()}
        return visit.show("message.html", message=message, tracks=found, why=why, members=clients, holders=holders, own=own)

    async def _connected(self, groups: Sequence[str], broker: str, seconds: float) -> dict[str, tuple[str, list[str]]]:
        """By group: the broker's address, and the group's members that are connected there."""
        address = self._client.session.routes.reader(broker)
        answers, _ = await ask_all({group: one.connection(self._client, group, address) for group in groups}, seconds)
        members_of = {group: part.connections if (part := answers.get(group)) else [] for group in groups}
        return {group: (address, sorted({each.client_id for each in found})) for group, found in members_of.items()}

    async def again(self, visit: Visit) -> Response:
        """Any member of the group consumes it again, or the chosen member does so now."""
        group, member = visit.needed("group"), visit.text("member")
        queue = MessageQueue(visit.needed("topic"), visit.needed("broker"), visit.number("queue"))
        message = await ask(lookups.at(self._client, queue, visit.number("offset", most=2**63 - 1)))
        if member:
            outcome = await members.consume_at(self._client, group, member, message)
            kind = "good" if outcome.consume_result in ("CR_SUCCESS", "CR_COMMIT") else "bad"
            return visit.go(place(message), f"{member} {_said(outcome)}", kind)
        await again.consume_again(self._client, group, message)
        return visit.go(place(message), f"A member of {group} gets it once more.")

    async def _found(self, visit: Visit, topic: str, word: str, begin_ms: int | None, end_ms: int | None) -> Hits:
        """Looks for an offset id (it holds the place in the log and needs no topic), then for a unique id, then for a key."""
        try:
            address = lookups.parse_offset_id(word).address
        except InvalidArgument:
            address = ""
        if address and address in {at for group in await broker_groups(self._client) for at in group.addresses.values()}:
            return Hits([await self._by_place(word)], True)
        if not topic:
            raise InvalidArgument("say the topic, too: only an id with the place in the log (offset id) names its broker")
        until = FOREVER_MS if end_ms is None else end_ms

        async def found(unique: bool) -> Hits:
            patience_s = visit.left_s(0.8)
            try:
                return await lookups.by_key(
                    self._client, topic, word, unique=unique, begin_ms=begin_ms or 0, end_ms=until, patience_s=patience_s
                )
            except Refusal as refusal:
                if refusal.code != lookups.INCOMPLETE:
                    raise
                return Hits([], False)

        by_id, by_key = await ask(asyncio.gather(found(True), found(False)), visit.left_s())
        return by_id if by_id.messages else by_key

    async def _by_place(self, word: str) -> ReceivedMessage:
        """The message with that offset id, with its broker's name, by which it is found again."""
        found = await ask(lookups.by_offset_id(self._client, word))
        address = lookups.parse_offset_id(word).address
        names = [group.name for group in await broker_groups(self._client) if address in group.addresses.values()]
        return ReceivedMessage(found.stored, found.queue._replace(broker_name=names[0])) if names else found


def _own_group(topic: str) -> list[str]:
    """The group whose failed messages are in that topic, if it is such a topic."""
    return [topic.removeprefix(prefix) for prefix in (RETRY_PREFIX, DLQ_PREFIX) if topic.startswith(prefix)]


_OUTCOMES = {
    "CR_SUCCESS": "handled it",
    "CR_COMMIT": "handled it",
    "CR_LATER": "failed it, to try later",
    "CR_ROLLBACK": "failed it, and would go back",
    "CR_THROW_EXCEPTION": "raised an error",
    "CR_RETURN_NULL": "did not say whether it handled it",
}


def _said(outcome: members.Handled) -> str:
    words = _OUTCOMES.get(outcome.consume_result, f"answered {outcome.consume_result}")
    return f"{words} in {outcome.spent_time_mills} ms{f': {outcome.remark}' if outcome.remark else '.'}"


def place(message: ReceivedMessage) -> str:
    """Its page."""
    topic, broker, queue = message.queue
    return link("/message", topic=topic, broker=broker, queue=str(queue), offset=str(message.queue_offset))


async def listed(visit: Visit, client: Client, topic: str, begin_ms: int | None, end_ms: int | None) -> Listed:
    """Begins where the page before ended, if the visit has `older`. Raises Refusal (no such topic), InvalidArgument."""
    older = visit.text("older")
    route = await ask(calls.topic_route(client, topic), visit.left_s(0.6))
    queues = [
        MessageQueue(topic, data.broker_name, number)
        for data in sorted(route.queues)
        for number in range(data.read_queue_nums if data.perm & PERM_READ else 0)
    ]
    until = FOREVER_MS if end_ms is None else end_ms
    asked = {queue: lookups.span(client, queue, begin_ms or 0, until) for queue in queues}
    spans, silent = await ask_all(asked, visit.left_s(0.8), lambda queue: queue.broker_name)
    before = _ends(older, queues)
    spans |= {queue: spans[queue]._replace(end=end) for queue, end in before.items() if queue in spans}
    newest = {queue: lookups.newest(client, each, PER_PAGE) for queue, each in spans.items()}
    found, late = await ask_all(newest, visit.left_s(), lambda queue: queue.broker_name)
    merged = sorted((each for some in found.values() for each in some), key=lambda each: each.store_timestamp, reverse=True)
    shown = merged[:PER_PAGE]
    ends = {queue: min((each.queue_offset for each in shown if each.queue == queue), default=spans[queue].end) for queue in found}
    more = any(end > spans[queue].begin for queue, end in ends.items())
    left = before | {queue: span.end for queue, span in spans.items()} | ends
    rest = ".".join(str(left.get(queue, _UNKNOWN)) for queue in queues) if more and shown else ""
    return Listed(shown, rest, {queue.broker_name: why for queue, why in (silent | late).items()})


def _ends(older: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
    if not older:
        return {}
    words = older.split(".")
    if len(words) != len(queues) or not all(word == _UNKNOWN or (word.isdecimal() and len(word) < 19) for word in words):
        raise InvalidArgument("the topic has other queues by now: begin with its newest messages")
    return {queue: int(word) for queue, word in zip(queues, words, strict=True) if word != _UNKNOWN}
