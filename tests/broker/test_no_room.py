"""Messages that RocketMQ let wait with so many properties that ours find no room: they are delivered once, as there."""

from collections.abc import Mapping

import pytest

from rmq.broker.pending.internalproducer import InternalProducer
from rmq.delivery.transactions import PARKED_TOPIC
from rmq.log.records import record
from rmq.model import DELAY_TOPIC, HALF_TOPIC, TIMER_TOPIC
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import BORN, Peer, beat, everything, send
from tests.broker.transactions import checks, end, stored

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


@pytest.mark.parametrize("size", [32_700, 32_747])
async def test_a_half_that_leaves_no_room_is_asked_after_and_at_last_put_aside(size: int) -> None:
    """It was neither, with a line in the log; and no file of the log that has one could be deleted. The smaller one has room for
    the proof, not for the count of its checks."""
    async with LocalBroker(idle_timeout_ms=86_400_000, client_expiry_ms=3_600_000) as broker:
        peer = await Peer.connect(broker.address)
        await broker.create_topic("T")
        await peer.ask(beat("c"))
        for _ in range(2):
            await wait_there(broker, HALF_TOPIC, 0, {"TRAN_MSG": "true", "PGROUP": "p"}, size)
        await broker.clock.advance_until(lambda: len(checks(peer)) >= 4, 1.0)
        question = checks(peer)[0]
        assert record.decode(question.message).body == b"large"
        await peer.ask(end(question))
        assert [one.body for one in await stored(peer, "T")] == [b"large"]
        table, log = broker.serving.tables.halves, broker.serving.store.log
        end_before, is_carried = log.end, size == 32_700
        await broker.serving.carry_forward(end_before)
        alive_from = table.alive_from()
        assert alive_from is not None and alive_from >= end_before if is_carried else alive_from is None
        assert is_carried or [one.body for one in await stored(peer, PARKED_TOPIC)] == [b"large"]
        await peer.close()
        await broker.stop_broker()
        await broker.start_broker()
        assert broker.serving.tables.halves.alive_from() == alive_from


async def test_a_half_that_leaves_no_room_is_asked_after_so_often_and_no_more() -> None:
    """It was asked after for ever: the count stands in a copy, for which there is no room."""
    async with LocalBroker(idle_timeout_ms=86_400_000, client_expiry_ms=3_600_000, transaction_check_max=3) as broker:
        peer = await Peer.connect(broker.address)
        await broker.create_topic("T")
        await peer.ask(beat("c"))
        await wait_there(broker, HALF_TOPIC, 0, {"TRAN_MSG": "true", "PGROUP": "p"}, 32_747)
        await broker.clock.advance_until(lambda: broker.serving.tables.halves.alive_from() is None, 1.0)
        assert len(checks(peer)) == 3
        assert [one.body for one in await stored(peer, PARKED_TOPIC)] == [b"large"]
        await peer.close()


async def bodies(peer: Peer) -> list[bytes]:
    return [one.body for one in await everything(peer, "T", 0)]
