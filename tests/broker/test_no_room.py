"""Messages that RocketMQ let wait with so many properties that ours find no room: they are delivered once, as there."""

from collections.abc import Mapping

import pytest

from rmq.broker.pending.internalproducer import InternalProducer
from rmq.log.records import record
from rmq.model import DELAY_TOPIC, TIMER_TOPIC
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import BORN, Peer, everything, send

LEVEL, LEVEL_QUEUE = {"DELAY": "5"}, 4


async def wait_there(broker: LocalBroker, topic: str, queue_id: int, said: Mapping[str, str], size: int) -> None:
    """A message for T with properties of that size, as in a directory that was taken over."""
    text = record.properties_to_bytes({**said, "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": "u", "long": ""})
    text = text[:-1] + b"x" * (size - len(text)) + text[-1:]
    draft = record.draft(topic, b"large", text, born_timestamp=1000, born_host=BORN)
    serving = broker.serving
    await InternalProducer(serving.reader, serving.tables.topics, serving.writer).send(topic, queue_id, draft)


@pytest.mark.parametrize("size", [32_700, 32_747])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("carried", [False, True])
async def test_what_leaves_no_room_is_delivered_once(
    broker: LocalBroker, connect: Connect, size: int, timed: bool, carried: bool
) -> None:
    """It was dropped, with a line in the log; and no file of the log that has one could be deleted."""
    await (await connect(broker)).send(send("T", b"usual"))
    out_ms = broker.clock.wall_ms() // 1000 * 1000 + 120_000
    place = (TIMER_TOPIC, 0, {"TIMER_OUT_MS": str(out_ms)}) if timed else (DELAY_TOPIC, LEVEL_QUEUE, LEVEL)
    await wait_there(broker, *place, size)
    table, log = broker.serving.tables.due, broker.serving.store.log
    if carried:
        end = log.end
        await broker.serving.carry_forward(end)
        assert (table.alive_from() or end) >= end
    await broker.clock.advance_until(lambda: table.alive_from() is None, timeout_s=300)
    assert await bodies(await connect(broker)) == [b"usual", b"large"]
    await broker.stop_broker()
    await broker.start_broker()
    await broker.clock.advance(5)
    assert await bodies(await connect(broker)) == [b"usual", b"large"]


async def bodies(peer: Peer) -> list[bytes]:
    return [one.body for one in await everything(peer, "T", 0)]
