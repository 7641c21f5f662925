"""Quotas at a port. What a connection sends is counted by burst, and refused with a time to wait. What it receives is counted
with the answer, and its next request has to wait (`rmq.access.quotas`). Who asks for a topic or group that may not be there yet
is noted, because it counts as theirs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from rmq.access.owners import GROUP, TOPIC
from rmq.access.quotas import Allowances, Cost, Quota
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.names import MAX_STORED_TOPIC_LENGTH
from rmq.net.codec.frames import Received
from rmq.net.commands import DraftedSend, Heartbeat, Pull, Send, UpdateGroup, UpdateGroups, UpdateTopic, UpdateTopics
from rmq.net.commands.lites import PopLite
from rmq.net.commands.pop import Pop
from rmq.net.commands.replies import SendReply
from rmq.net.commands.retries import SendBack
from rmq.net.transport.connection import Call, Connection, Screen

_SENDS: Final = (Send, DraftedSend, SendReply)
_READS: Final = (Pull, Pop, PopLite)
_FIRST_REST_S: Final = 0.05
_MOST_REST_S: Final = 1.0  # heartbeats come on the same connection
_MAKES: Final[dict[type[Any], tuple[str, Callable[[Any], Iterable[str]]]]] = {  # what a request may make, besides a send
    UpdateTopic: (TOPIC, lambda request: [request.topic]),
    UpdateTopics: (TOPIC, lambda request: [topic.name for topic in request.topics]),
    UpdateGroup: (GROUP, lambda request: [request.config.name]),
    UpdateGroups: (GROUP, lambda request: [group.name for group in request.groups]),
    Heartbeat: (GROUP, lambda request: [consumer.group for consumer in request.consumers]),
    Pop: (GROUP, lambda request: [request.consumer_group]),
    SendBack: (GROUP, lambda request: [request.group]),
}


class Metering:
    """`screen` is called after the guard, for each burst that a connection read. `refused`: requests that were over a quota.
    `asks(kind, name, subjects)`: hears who asks for what may not be there yet."""

    def __init__(
        self, quotas: Mapping[str, Quota], guard: Screen | None, asks: Callable[[str, str, tuple[str, ...]], None], clock: Clock
    ) -> None:
        self.quotas = quotas
        self._guard = guard
        self._asks = asks
        self._clock = clock
        self._allowances = Allowances(quotas)
        self._connected: dict[int, tuple[str, ...]] = {}  # connection id -> the connection's user
        self._count: Counter[str] = Counter()
        self.refused = 0

    def screen(self, connection: Connection, received: list[Received]) -> list[Received]:
        """The burst, with a refusal in place of each request that is over a quota."""
        if self._guard is not None:
            received = self._guard.screen(connection, received)
        costs: dict[tuple[str, str, bool], list[int]] = {}  # user and topic -> positions in the burst
        for at, (thing, _, _, context, size) in enumerate(received):
            kind = type(thing)
            if size and (kind in _SENDS or kind in _READS):  # a kept request has no size: it was counted when it came
                user = _user(connection, context)
                topic: str = thing.topic[:MAX_STORED_TOPIC_LENGTH]  # type: ignore[union-attr]  # what is counted is kept
                costs.setdefault((user, topic, kind in _READS), []).append(at)
            elif size and kind is Refusal:  # it costs as much as a send, so who asks for what he may not do has to wait, too
                costs.setdefault((_user(connection, context), "", False), []).append(at)
            if kind in _MAKES:
                what, names = _MAKES[kind]
                makers = self._subjects(connection, _user(connection, context))
                for name in names(thing):
                    self._asks(what, name[:MAX_STORED_TOPIC_LENGTH], makers)
        now = self._clock.monotonic()
        for (user, topic, reads), places in costs.items():
            makers = self._subjects(connection, user)
            subjects = (*makers, f"Topic:{topic}") if topic else makers
            if topic and not reads:
                self._asks(TOPIC, topic, makers)
            about = self._too_many(connection, makers)
            wait_s = 1.0 if about else self._allowances.wait_s(subjects, reads, now)
            if wait_s:
                about = about or f"the quota of {_names(subjects, self._allowances)} is used up"
                self._refuse(connection, received, places, about, wait_s)
            elif not reads:
                size = sum(received[at][4] for at in places)
                self._allowances.spend(subjects, False, Cost(sum(_messages(received[at][0]) for at in places), size), now)
        return received

    def handed_out(self, call: Call, topic: str, count: int, size: int) -> None:
        """An answer with messages goes out."""
        subjects = (*self._subjects(call.connection, _user(call.connection, call.context)), f"Topic:{topic}")
        self._allowances.spend(subjects, True, Cost(count, size), self._clock.monotonic())

    def closed(self, connection: Connection) -> None:
        for subject in self._connected.pop(connection.id, ()):
            self._count[subject] -= 1
            if not self._count[subject]:
                del self._count[subject]

    def _subjects(self, connection: Connection, user: str) -> tuple[str, ...]:
        """Everybody may give himself a client id. So each user has an allowance of its own for it, and no address has one."""
        client, host = connection.client_id, connection.client[0]
        found = [f"User:{user}"] if user else []
        found += [f"Client:{client} {user}"] if client else []
        return (*found, f"Client:{host}")

    def _too_many(self, connection: Connection, subjects: tuple[str, ...]) -> str:
        """Counts a connection that was not counted yet; says why if it is one too many."""
        if connection.id in self._connected:
            return ""
        for subject in subjects:
            quota = self._allowances.quota_of(subject)
            if quota is not None and quota.connections and self._count[subject] >= quota.connections:
                return f"{subject.strip()} has {quota.connections} connections already, which is its quota"
        self._connected[connection.id] = subjects
        self._count.update(subjects)
        return ""

    def _refuse(self, connection: Connection, received: list[Received], places: list[int], about: str, wait_s: float) -> None:
        """Who comes again before its time is not read from for a while, for twice as long each time: refusing costs, too."""
        self.refused += len(places)
        now, standing = self._clock.monotonic(), connection.standing
        if standing.asked_to_wait <= now:
            standing.too_early = 0
        elif not connection.is_forwarded:
            rest_s = min(max(wait_s, _FIRST_REST_S * 2**standing.too_early), _MOST_REST_S)
            connection.rest(rest_s)
            standing.too_early = min(standing.too_early + 1, 10)
            wait_s = max(wait_s, 2 * rest_s)  # what it sent meanwhile is read at half of that time, and is too early again
        standing.asked_to_wait = now + wait_s
        wait_ms = int(wait_s * 1000) + 1
        refusal = Refusal(ResponseCode.FLOW_CONTROL, f"{about}: try again in {wait_ms} ms", wait_ms=wait_ms)
        for at in places:
            _, *rest = received[at]
            received[at] = (refusal, *rest)  # type: ignore[assignment]


def _user(connection: Connection, context: object) -> str:
    who: Any = connection.standing.login if context is None else getattr(context, "who", None)
    return "" if who is None or who.node else str(who.user)


def _names(subjects: tuple[str, ...], allowances: Allowances) -> str:
    return " or ".join(subject.strip() for subject in subjects if allowances.quota_of(subject) is not None)


def _messages(request: Any) -> int:
    """How many a send brings: each record begins with its size."""
    if not getattr(request, "batch", False):
        return 1
    records, at, count = request.records, 0, 0
    while at + 4 <= len(records):
        at += max(int.from_bytes(records[at : at + 4], "big"), 1)
        count += 1
    return count
