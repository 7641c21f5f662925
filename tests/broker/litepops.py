"""Clients that want lite topics: what they declare, pop and acknowledge."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from rmq.log.records import record
from rmq.model import GroupConfig
from rmq.names import lite_parts, lite_queue
from rmq.net.commands import UpdateGroup
from rmq.net.commands.lites import COMPLETE_ADD, DeclareLites, LiteChange, LitePopAnswer, PopLite
from rmq.net.commands.pop import Ack, ChangeInvisibleTime

Ask = Callable[[Any], Awaitable[Any]]


class LitePopped(NamedTuple):
    body: bytes
    lite: str
    offset: int
    handle: str
    tries: int


def bound(group: str = "g", topic: str = "P", **attributes: str) -> UpdateGroup:
    said = {f"+lite.{name.replace('_', '.')}": value for name, value in attributes.items()}
    return UpdateGroup(GroupConfig(group, attributes={"+lite.bind.topic": topic, **said}))


def declare(*lites: str, client: str = "c", group: str = "g", topic: str = "P", **more: Any) -> DeclareLites:
    action = more.pop("action", COMPLETE_ADD)
    return DeclareLites([LiteChange(action, client, group, topic, list(lites), **more)])


def pop_lite(client: str = "c", group: str = "g", topic: str = "P", **fields: Any) -> PopLite:
    count, hidden_ms, poll_ms = fields.pop("count", 32), fields.pop("hidden_ms", 60_000), fields.pop("poll_ms", 0)
    return PopLite(client, group, topic, count, hidden_ms, poll_ms, 0, **fields)


def popped_lites(answer: LitePopAnswer) -> list[LitePopped]:
    """The messages, with their receipts as RocketMQ's proxy makes them [MQClientAPIImpl.processPopLiteResponse]."""
    assert (answer.status == 210) == (not answer.messages)
    found = []
    counts = answer.order_count_info.split(";")
    for stored, tries in zip(record.iterate(answer.messages), counts if answer.messages else [], strict=True):
        said = record.bytes_to_properties(stored.properties)
        _, lite = lite_parts(said["INNER_MULTI_DISPATCH"])
        offset = int(said["INNER_MULTI_QUEUE_OFFSET"])
        handle = f"0 {answer.pop_time} {answer.invisible_time} {answer.revive_qid} 0 broker 0 {offset}"
        found.append(LitePopped(stored.body, lite, offset, handle, int(tries.split(" ")[-1])))
    return found


async def take_lites(ask: Ask, client: str = "c", **fields: Any) -> list[LitePopped]:
    return popped_lites(await ask(pop_lite(client, **fields)))


async def bodies_of(ask: Ask, client: str = "c", **fields: Any) -> list[bytes]:
    return [one.body for one in await take_lites(ask, client, **fields)]


async def ack_lites(ask: Ask, *messages: LitePopped, group: str = "g", topic: str = "P") -> None:
    for one in messages:
        await ask(Ack(group, lite_queue(topic, one.lite), 0, one.handle, one.offset))


def hide(one: LitePopped, ms: int, group: str = "g", topic: str = "P") -> ChangeInvisibleTime:
    return ChangeInvisibleTime(group, lite_queue(topic, one.lite), 0, one.handle, one.offset, ms)
