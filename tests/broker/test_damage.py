"""A broker whose log is damaged: it serves what can be read, says what cannot, and takes nothing."""

from pathlib import Path

import pytest

from rmq.codes import ResponseCode as R
from rmq.errors import Refusal
from rmq.net.commands import (
    CleanExpiredQueues,
    DeleteExpiredLog,
    GetConsumeStats,
    GetEarliestStoreTime,
    GetRoute,
    GetRuntimeInfo,
    GetTopicConfig,
    GetTopicStats,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
    UpdateTopic,
)
from rmq.net.commands.pop import Peek
from rmq.net.commands.progress import GetTimeSpans
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import Peer, bodies, flip_voters, send


def damage(store: Path, body: bytes) -> None:
    """Another byte in the middle of that body, and the run not stopped in order."""
    path = store / "commitlog" / f"{0:020d}"
    content = path.read_bytes()
    at = content.index(body) + len(body) // 2
    path.write_bytes(content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :])
    run = store / "rmq" / "run"
    if run.exists():
        run.unlink()


async def test_corrupt_middle_is_served_around(broker: LocalBroker, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    """Story 47, D8: reads of that range give a clear error, sends 14, the operator is told what to do."""
    peer = await connect(broker)
    await peer.send(*(send("T", b"message %d" % number) for number in range(6)))
    await peer.ask(UpdateConsumerOffset("g", "T", 0, 2))
    await broker.clock.advance(15)
    await broker.stop_broker()
    damage(broker.store_dir, b"message 3")
    await broker.start_broker()
    assert "this node only reads" in caplog.text
    peer = await connect(broker)
    assert bodies(await peer.pull("T", 0)) == [b"message 0", b"message 1", b"message 2"]
    assert bodies(await peer.pull("T", 4)) == [b"message 4", b"message 5"]
    with pytest.raises(Refusal, match="queue 0 of T cannot be read.*rmq store repair") as refused:
        await peer.pull("T", 3)
    assert refused.value.code == R.SYSTEM_ERROR
    assert await peer.refusal(send("T")) == R.SERVICE_NOT_AVAILABLE
    assert await peer.refusal(UpdateTopic("N", read_queue_nums=1, write_queue_nums=1)) == R.SERVICE_NOT_AVAILABLE
    assert await peer.refusal(DeleteExpiredLog()) == R.SERVICE_NOT_AVAILABLE
    assert await peer.refusal(CleanExpiredQueues()) == R.SERVICE_NOT_AVAILABLE
    assert (await peer.ask(QueryConsumerOffset("g", "T", 0))).offset == 2
    assert (await peer.ask(GetTopicConfig("T"))).read_queue_nums == 4
    assert "are damaged" in (await peer.ask(GetRuntimeInfo())).table["storeDamaged"]
    names = await Peer.connect(broker.nameserver)
    assert (await names.ask(GetRoute("T"))).queues[0].perm == 4, "producers go elsewhere"
    await names.close()
    await broker.stop_broker()
    await broker.start_broker()
    again = await connect(broker)
    assert bodies(await again.pull("T", 5)) == [b"message 5"]


@pytest.mark.parametrize("where", [0, 5])
async def test_what_operators_ask_of_a_damaged_broker(
    broker: LocalBroker, connect: Connect, caplog: pytest.LogCaptureFixture, where: int
) -> None:
    """C16, D8: progress is told without the time of a message that cannot be read; who needs that message hears what helps."""
    peer = await connect(broker)
    await peer.send(*(send("T", b"message %d" % number) for number in range(6)))
    await peer.ask(UpdateConsumerOffset("g", "T", 0, where + 1))
    await broker.clock.advance(15)
    await broker.stop_broker()
    damage(broker.store_dir, b"message %d" % where)
    await broker.start_broker()
    peer = await connect(broker)
    assert [row.max_offset for row in (await peer.ask(GetTopicStats("T"))).queues] == [6, 0, 0, 0]
    [progress, *_] = (await peer.ask(GetConsumeStats("g", "T"))).queues
    assert (progress.broker_offset, progress.consumer_offset, progress.last_timestamp) == (6, where + 1, 0)
    assert [span.delay_time for span in (await peer.ask(GetTimeSpans("T", "g"))).spans][1:] == [0, 0, 0]
    at_first = GetEarliestStoreTime("T", 0), Peek("new", "T", 0, 1)
    for question in at_first if where == 0 else [SearchOffset("T", 0, broker.clock.wall_ms())]:
        with pytest.raises(Refusal, match="are damaged.*rmq store repair"):
            await peer.ask(question)
    assert "a handler failed" not in caplog.text


async def test_damage_where_voters_stand_is_found_behind_a_stop_in_order(
    broker: LocalBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """D8: who votes is read at each start, and from nothing that does not agree with its checksum."""
    await (await connect(broker)).send(send("T", b"message"))
    await broker.stop_broker()
    flip_voters(broker.store_dir)
    await broker.start_broker()
    assert "this node only reads, and nothing in there; stop it and run `rmq store repair`" in caplog.text
    peer = await connect(broker)
    assert bodies(await peer.pull("T", 0)) == [b"message"]
    assert await peer.refusal(send("T")) == R.SERVICE_NOT_AVAILABLE


async def test_a_lost_newest_file_is_served_around(broker: LocalBroker, connect: Connect) -> None:
    """D8: the newest record that says who votes was in it; that of the file before it counts."""
    peer = await connect(broker)
    for number in range(5):
        await peer.send(send("T", b"%d" % number * 4_000_000))
    await broker.clock.advance(15)
    await broker.stop_broker()
    [_, newest] = sorted((broker.store_dir / "commitlog").iterdir())
    newest.unlink()
    await broker.start_broker()
    peer = await connect(broker)
    assert bodies(await peer.pull("T", 1)) == [b"1" * 4_000_000]
    assert await peer.refusal(send("T")) == R.SERVICE_NOT_AVAILABLE
    with pytest.raises(Refusal, match="queue 0 of T cannot be read.*rmq store repair"):
        await peer.pull("T", 4)


async def test_a_group_that_is_new_to_a_damaged_broker_consumes_around_the_damage(broker: LocalBroker, connect: Connect) -> None:
    """D8: nothing can be stored there, neither the group nor its offsets; that is no reason to give it nothing."""
    peer = await connect(broker)
    await peer.send(*(send("T", b"message %d" % number) for number in range(6)))
    await broker.clock.advance(15)
    await broker.stop_broker()
    damage(broker.store_dir, b"message 3")
    await broker.start_broker()
    async with broker.client() as client, client.consumer("new", topics={"T": "*"}, start="first") as consumer:
        got: list[bytes] = []
        while len(got) < 3:
            got += [message.body for message in await consumer.receive(timeout=20)]
    assert sorted(got) == [b"message 0", b"message 1", b"message 2"]
