"""Lite topics of gRPC clients: which each one wants. The brokers keep that in memory only, so the door says it again to one that
leads anew [LiteSubscriptionActivity]."""

import logging
from collections.abc import Callable
from typing import Any

from rmq.client import Client
from rmq.client.consumer.lites import pop_lites, tell_brokers
from rmq.client.shared.tasks import TaskSet
from rmq.errors import RmqError
from rmq.grpc.messages import consumer_group, topic_of
from rmq.grpc.schema import v2
from rmq.grpc.statuses import Code, Wrong
from rmq.net.commands.lites import (
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

_log = logging.getLogger("rmq.grpc")
_ACTIONS = {
    v2.LiteSubscriptionAction.PARTIAL_ADD: PARTIAL_ADD,
    v2.LiteSubscriptionAction.PARTIAL_REMOVE: PARTIAL_REMOVE,
    v2.LiteSubscriptionAction.COMPLETE_ADD: COMPLETE_ADD,
    v2.LiteSubscriptionAction.COMPLETE_REMOVE: COMPLETE_REMOVE,
}
_BEGINNINGS = {"policy": "POLICY", "offset": "OFFSET", "tail_n": "TAIL_N"}
TELL_S = 3.0  # for a broker
MOST_LITES = 100_000  # in one request
Who = tuple[str, str, str]  # client, group, topic


class Lites:
    """Of all clients of this door."""

    def __init__(self, client: Client) -> None:
        self._session = client.session
        self._wanted: dict[Who, set[str]] = {}
        self._whole: set[Who] = set()  # those that said all they want here; others came from another proxy, and soon do
        self._untold: dict[Who, set[str]] = {}  # brokers that could not be told of the last change
        self._tasks = TaskSet()

    async def close(self) -> None:
        await self._tasks.close()

    def forget(self, client_id: str) -> None:
        """It has gone. The brokers forget it by themselves."""
        for who in [who for who in self._wanted if who[0] == client_id]:
            self._forget(who)

    def _forget(self, who: Who) -> None:
        self._wanted.pop(who, None)
        self._whole.discard(who)
        self._untold.pop(who, None)

    async def change(self, client_id: str, request: Any, is_open: Callable[[str], bool], timeout_s: float) -> None:
        """`is_open`: whether a client's stream is, also when the brokers have answered; else nobody would `forget` it. Raises
        Wrong, RmqError."""
        if (count := len(request.lite_topic_set)) > MOST_LITES:
            raise Wrong(Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, f"{count} lite topics: name {MOST_LITES} at most")
        group, topic, lites = consumer_group(request.group), topic_of(request.topic), [*request.lite_topic_set]
        action = _ACTIONS.get(request.action)
        if action is None:
            raise Wrong(Code.BAD_REQUEST, f"action {request.action} is none of a subscription to lite topics")
        kind = request.offset_option.WhichOneof("offset_type") if request.HasField("offset_option") else None
        if kind is not None and kind not in _BEGINNINGS:
            raise Wrong(Code.NOT_IMPLEMENTED, f"a lite topic cannot be begun by {kind}: give a policy, an offset or tail_n")
        beginning = (_BEGINNINGS[kind], getattr(request.offset_option, kind)) if kind else ("", 0)
        change = LiteChange(action, client_id, group, topic, lites, request.version, *beginning)
        who = client_id, group, topic
        is_new, was_whole = who not in self._wanted, who in self._whole
        had, named = self._wanted.get(who, set()), set(lites)
        adds = action in (COMPLETE_ADD, PARTIAL_ADD)
        more = named - had if adds else set[str]()
        fewer = had - named if action == COMPLETE_ADD else had & named if action == PARTIAL_REMOVE else set[str]()
        if action == COMPLETE_ADD:
            self._whole.add(who)
        self._want(who, more, fewer)  # before: a broker may have to be told of the whole set meanwhile
        clock = self._session.clock
        deadline = clock.monotonic() + timeout_s

        async def tell(broker_name: str) -> None:
            await self._tell(broker_name, change, deadline - clock.monotonic())

        try:
            untold = await tell_brokers(self._session, topic, tell, timeout_s)
        except BaseException:
            self._want(who, fewer, more)
            if not was_whole:
                self._whole.discard(who)
            if not is_open(client_id) or (is_new and not self._wanted[who]):
                self._forget(who)
            elif not is_new and action != COMPLETE_REMOVE:  # some may have taken it
                self._tasks.start(self._declare_again(who), f"lite topics of {client_id} as before")
            raise
        if action == COMPLETE_REMOVE or not is_open(client_id):
            self._forget(who)
            return
        if adds:
            self._wanted.setdefault(who, named)  # where its stream ended and began anew meanwhile
        if untold:
            self._untold.setdefault(who, set()).update(untold)

    async def _declare_again(self, who: Who) -> None:
        try:
            untold = await tell_brokers(self._session, who[2], lambda broker_name: self._declare(broker_name, who), TELL_S)
        except RmqError as error:
            _log.info("lite topics of %s are not declared for now: %s", who[0], error)
            return
        if untold and who in self._wanted:
            self._untold.setdefault(who, set()).update(untold)

    def _want(self, who: Who, more: set[str], fewer: set[str]) -> None:
        lites = self._wanted.setdefault(who, set())
        lites |= more
        lites -= fewer

    def taken(self, told: LiteTaken) -> None:
        """Another client has it now: a broker that hears of the whole set is not told that this one wants it."""
        for (client_id, group, _), lites in self._wanted.items():
            if (client_id, group) == (told.client_id, told.consumer_group):
                lites.discard(told.lite_topic)

    async def pop(self, broker_name: str, request: PopLite, timeout_s: float) -> LitePopAnswer:
        """A broker that could not be told of a change hears of the whole set first. Raises RmqError."""
        who = request.client_id, request.consumer_group, request.topic

        if broker_name in (untold := self._untold.get(who, set())):
            untold.discard(broker_name)  # before: another change may fail meanwhile
            try:
                await self._declare(broker_name, who)
            except BaseException:
                untold.add(broker_name)
                raise
        asked = request._replace(declared=who in self._wanted)  # who has said nothing so far waits
        return await pop_lites(self._session, broker_name, asked, timeout_s, lambda: self._declare(broker_name, who, True))

    async def _declare(self, broker_name: str, who: Who, is_new: bool = False) -> None:
        """What it wants, if anything; again if that was changed meanwhile: the change may have come to the broker first.
        `is_new`: to that broker, which must be told of a whole set."""
        told = None
        while (wanted := self._wanted.get(who)) is not None and told != sorted(wanted):
            told, action = sorted(wanted), COMPLETE_ADD if is_new or who in self._whole else PARTIAL_ADD
            await self._tell(broker_name, LiteChange(action, *who, told), TELL_S)

    async def _tell(self, broker_name: str, change: LiteChange, timeout_s: float) -> None:
        await self._session.leaders.request(broker_name, DeclareLites([change]), timeout_s)
