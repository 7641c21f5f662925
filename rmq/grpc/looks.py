"""What the door looks up in the cluster: what topics take, and how groups consume. Kept for a while."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from rmq.client import Client
from rmq.client.admin import calls
from rmq.client.shared.tasks import within
from rmq.codes import ResponseCode
from rmq.delivery import backoff
from rmq.errors import Refusal, RmqError
from rmq.grpc.schema import v2
from rmq.grpc.statuses import Code, Wrong
from rmq.log.records.delays import LEVELS_MS
from rmq.model import MESSAGE_TYPE, GroupConfig

T = TypeVar("T")
_log = logging.getLogger("rmq.grpc")
_KEPT_S = 30.0
_MOMENT_S = 1.0
_MOST = 10_000
_EVERY = (v2.MessageType.NORMAL, v2.MessageType.FIFO, v2.MessageType.DELAY, v2.MessageType.TRANSACTION)
_NAMES = {number: name for name, number in vars(v2.MessageType).items()}
_NO_GROUP = GroupConfig("")
_UNKNOWN = ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class Looks:
    """All raise RmqError where no broker can be asked, and nothing is known from before."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[tuple[str, str], tuple[float, object]] = {}

    async def types(self, topic: str) -> tuple[int, ...]:
        """Kinds of messages that a topic takes: what it was made for, or all that need nothing special."""

        async def ask() -> tuple[int, ...]:
            config = await self._told(topic, partial(calls.topic_config, self._client, topic))
            named = config.attributes.get(MESSAGE_TYPE, "")
            return (getattr(v2.MessageType, named),) if named not in ("", "MIXED", "UNSPECIFIED") else _EVERY

        return await self._once(("topic", topic), ask)

    async def check_kind(self, topic: str, kind: int) -> None:
        """Of a message that is sent there. While no broker tells what the topic takes, as where its leader is elected, none is
        refused: the send waits for that. Raises Wrong [DefaultTopicMessageTypeValidator]."""
        clock = self._client.session.clock
        until, _ = self._kept.get(("topic", topic), (0.0, None))
        told = self.types(topic)
        try:
            types = await (told if clock.monotonic() < until else within(clock, _MOMENT_S, told))
        except (RmqError, TimeoutError):
            return
        if types not in (_EVERY, (kind,)):
            about = f"topic {topic} takes messages of type {_NAMES[types[0]]}, and this one is {_NAMES[kind]}"
            raise Wrong(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, about)

    async def group(self, name: str, topic: str) -> GroupConfig:
        """The settings of a group that reads this topic, or those that every group has until somebody makes it."""

        async def ask() -> GroupConfig:
            try:
                return await self._told(topic, partial(calls.group_config, self._client, name))
            except Refusal as refusal:
                if refusal.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise  # else a group that reads in order would not, where the proxy may not look
                return _NO_GROUP

        return await self._once(("group", name), ask)

    async def _told(self, topic: str, ask: Callable[[str, float | None], Awaitable[T]]) -> T:
        """`ask(address, timeout_s)`: one of its broker groups. One that stands still is waited for a moment only where there is
        another one, and one that does not know what it is asked for decides nothing there. Raises RmqError."""
        routes = self._client.session.routes
        brokers = [data.broker_name for data in (await routes.get(topic)).queues]
        *others, last = list(filter(routes.knows, brokers)) or [min(brokers, default="")]
        for name in others:
            try:
                return await self._told_by(name, ask, _MOMENT_S)
            except RmqError as error:
                if not (error.may_pass or (isinstance(error, Refusal) and error.code in _UNKNOWN)):
                    raise
        return await self._told_by(last, ask, None)

    async def _told_by(self, broker_name: str, ask: Callable[[str, float | None], Awaitable[T]], timeout_s: float | None) -> T:
        """The leader of that group, or while none answers one that follows: such settings change seldom. Raises RmqError."""
        routes = self._client.session.routes
        followers = routes.followers(broker_name).values()
        try:
            return await ask(routes.leader(broker_name), _MOMENT_S if followers else timeout_s)
        except RmqError as error:
            if not error.may_pass:
                raise
            for address in followers:
                try:
                    return await ask(address, _MOMENT_S)
                except RmqError as other:
                    _log.info("%s does not tell what its leader would, either: %s", address, other)
            raise

    async def _once(self, key: tuple[str, str], ask: Callable[[], Awaitable[T]]) -> T:
        now = self._client.session.clock.monotonic()
        until, found = self._kept.get(key, (0.0, None))
        if now >= until:
            try:
                found = await ask()
            except RmqError as error:
                if found is None or not error.may_pass:
                    raise
                return found  # type: ignore[return-value]  # as it was: brokers are away
            if len(self._kept) >= _MOST:
                self._kept.clear()
            self._kept[key] = now + _KEPT_S, found
        return found  # type: ignore[return-value]


def tell_backoff(config: GroupConfig, told: Any) -> None:
    """Into a RetryPolicy: how long a failed message waits before each try but the first. A list is told from its beginning on
    [GrpcClientSettingsManager], of which brokers leave out two. One without a time would end Java's client."""
    kind, times_ms = backoff.times_of(config.retry_policy) if config.retry_policy else (backoff.CUSTOMIZED, LEVELS_MS)
    if kind == backoff.EXPONENTIAL:
        first_ms, most_ms, told.exponential_backoff.multiplier = times_ms
        told.exponential_backoff.initial.FromMilliseconds(first_ms)
        told.exponential_backoff.max.FromMilliseconds(most_ms)
        return
    del told.customized_backoff.next[:]
    for time_ms in times_ms:
        told.customized_backoff.next.add().FromMilliseconds(max(1, time_ms))
