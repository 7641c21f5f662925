"""Clients' reports about themselves: written as JSON for RocketMQ's tools, and read leniently. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson

from rmq.errors import BadBytes, Refusal
from rmq.model import MessageQueue
from rmq.net.commands.reports import Handled, HeldQueue, RunningInfo, TopicRates
from rmq.net.remoting.bodies import by_queue, subscription_json
from rmq.net.remoting.fields import java_name
from rmq.net.remoting.javajson import loads
from rmq.net.remoting.lenient import Json, get, text_map
from rmq.net.remoting.requestbodies import read_subscription

T = TypeVar("T")

_RATE_NAMES: Final = ("pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS", "consumeFailedMsgs")
_QUEUE_NAMES: Final = tuple(java_name(HeldQueue, field) for field in HeldQueue._fields)


def write_running(info: RunningInfo) -> bytes:
    queues: list[tuple[MessageQueue, Json]] = [
        (queue, dict(zip(_QUEUE_NAMES, held, strict=True))) for queue, held in sorted(info.queues.items())
    ]
    rest = {
        "jstack": info.stacks or None,
        "properties": info.properties,
        "statusTable": {topic: dict(zip(_RATE_NAMES, rates, strict=True)) for topic, rates in info.rates.items()},
        "subscriptionSet": [subscription_json(one) for one in info.subscriptions],
        "userConsumerInfo": {},
    }
    return by_queue(b'{"mqPopTable":{},"mqTable":', queues, b"," + orjson.dumps(rest)[1:])


def read_running(report: bytes) -> RunningInfo:
    """Raises BadBytes."""

    def read(source: Any) -> RunningInfo:
        return RunningInfo(
            text_map(source, "properties"),
            [read_subscription(one) for one in get(source, "subscriptionSet", [])],
            {_queue(key): _values(HeldQueue(), _QUEUE_NAMES, one) for key, one in get(source, "mqTable", {}).items()},
            {topic: _values(TopicRates(), _RATE_NAMES, one) for topic, one in get(source, "statusTable", {}).items()},
            get(source, "jstack", ""),
        )

    return _read(report, read)


def write_handled(handled: Handled) -> bytes:
    return orjson.dumps({java_name(Handled, name): value for name, value in handled._asdict().items()})


def read_handled(report: bytes) -> Handled:
    """Raises BadBytes."""
    names = [java_name(Handled, name) for name in Handled._fields]
    return _read(report, lambda source: _values(Handled(""), names, source))


def write_held_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """[GetConsumerStatusBody]"""
    return by_queue(b'{"consumerTable":{},"messageQueueTable":', sorted(offsets.items()), b"}")


def read_held_offsets(report: bytes) -> dict[MessageQueue, int]:
    """Raises BadBytes."""

    def read(source: Any) -> dict[MessageQueue, int]:
        table = get(source, "messageQueueTable", {})
        return {_queue(key): get({key: offset}, key, 0) for key, offset in table.items()}

    return _read(report, read)


def _read(report: bytes, read: Callable[[Any], T]) -> T:
    try:
        return read(loads(report))
    except Refusal as refusal:
        raise BadBytes(f"a client's report: {refusal.remark}") from None


def _values(default: T, names: Sequence[str], source: Any) -> T:
    """The default, with the values that the source has."""
    assert isinstance(default, tuple)
    return type(default)(*(get(source, name, value) for name, value in zip(names, default, strict=True)))


def _queue(key: str) -> MessageQueue:
    source = loads(key.encode())
    return MessageQueue(get(source, "topic", ""), get(source, "brokerName", ""), get(source, "queueId", 0))
