"""A client that pops: single requests, and the receipts that belong to what they gave."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from rmq.delivery.popping import parse_handle
from rmq.log.records import record
from rmq.net.commands.pop import Ack, AckedRange, BatchAck, ChangeInvisibleTime, InvisibleTimeAnswer, Pop, PopAnswer

Ask = Callable[[Any], Awaitable[Any]]
MINUTE_MS = 60_000


class Popped(NamedTuple):
    body: bytes
    topic: str  # in which it lies
    queue_id: int
    queue_offset: int
    handle: str
    tries: int
    physical_offset: int = -1


def pop(topic: str = "T", *, group: str = "g", queue_id: int = -1, count: int = 32, **fields: Any) -> Pop:
    poll_ms, hidden_ms = fields.pop("poll_ms", 0), fields.pop("hidden_ms", MINUTE_MS)
    return Pop(group, topic, queue_id, count, hidden_ms, poll_ms, 0, fields.pop("init_mode", 0), **fields)


def popped(answer: PopAnswer, request: Pop) -> list[Popped]:
    """The messages, with their receipts as RocketMQ's client makes them."""
    starts = {tuple(part.split()[:2]): part.split()[2] for part in answer.start_offset_info.split(";") if part}
    numbers = [
        (part.split()[0], part.split()[1], each)
        for part in answer.msg_offset_info.split(";")
        if part
        for each in part.split()[2].split(",")
    ]
    found = []
    for stored, (flag, queue_id, number) in zip(record.iterate(answer.messages), numbers, strict=True):
        assert int(number) == stored.queue_offset
        assert stored.topic == request.topic
        words = (
            starts[flag, queue_id],
            answer.pop_time,
            answer.invisible_time,
            answer.revive_qid,
            flag,
            "broker",
            queue_id,
            number,
        )
        text = " ".join(map(str, words))
        told = record.bytes_to_properties(stored.properties).get("POP_CK")
        if told is not None:
            assert parse_handle(told)._replace(broker_name="") == parse_handle(text)._replace(broker_name="")
        lies_in = request.topic if flag == "0" else f"%RETRY%{request.consumer_group}_{request.topic}"
        found.append(
            Popped(stored.body, lies_in, int(queue_id), int(number), text, stored.reconsume_times, stored.physical_offset)
        )
    return found


async def take(ask: Ask, request: Pop | None = None, **fields: Any) -> list[Popped]:
    request = request or pop(**fields)
    answer = await ask(request)
    assert isinstance(answer, PopAnswer)
    assert (answer.status == 210) == (not answer.messages)
    return popped(answer, request)


async def ack(ask: Ask, *messages: Popped, group: str = "g") -> None:
    await asyncio.gather(*(ask(Ack(group, one.topic, one.queue_id, one.handle, one.queue_offset)) for one in messages))


def batch_ack(answer: PopAnswer, messages: list[Popped], group: str = "g") -> BatchAck:
    """All of one answer, in one request; those of the retry topic left out."""
    bits: dict[tuple[int, int], int] = {}
    for one in messages:
        start = int(one.handle.split()[0])
        bits[one.queue_id, start] = bits.get((one.queue_id, start), 0) | 1 << one.queue_offset - start
    made = [
        AckedRange(
            group,
            messages[0].topic,
            "0",
            start,
            queue_id,
            answer.revive_qid,
            answer.pop_time,
            answer.invisible_time,
            found.to_bytes(128, "little"),
        )
        for (queue_id, start), found in bits.items()
    ]
    return BatchAck("broker", made)


async def change(ask: Ask, one: Popped, hidden_ms: int, group: str = "g") -> Popped:
    """The same message with its new receipt."""
    answer = await ask(ChangeInvisibleTime(group, one.topic, one.queue_id, one.handle, one.queue_offset, hidden_ms))
    assert isinstance(answer, InvisibleTimeAnswer)
    flag = one.handle.split()[4]
    ordered = answer.revive_qid == 999
    start = one.handle.split()[0] if ordered else one.queue_offset
    text = (
        f"{start} {answer.pop_time} {answer.invisible_time} {answer.revive_qid} {flag} broker {one.queue_id} {one.queue_offset}"
    )
    return one._replace(handle=text)


def bodies(messages: list[Popped]) -> list[bytes]:
    return [one.body for one in messages]
