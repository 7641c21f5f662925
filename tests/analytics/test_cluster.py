"""Reading topics from a running broker, without Spark."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from analytics.records import cluster
from analytics.records.cluster import Cluster, Span
from analytics.spark.streamoptions import shares
from analytics.stores.options import Wanted
from rmq.client import Client, Message
from rmq.client.admin import calls as admin
from rmq.errors import InvalidArgument, Refusal, StoreError
from rmq.model import MessageQueue
from rmq.net.commands import UpdateTopic
from rmq.testing import LocalBroker
from tests.broker.support import Peer
from tests.broker.test_access import SETTINGS, nameserver_knows
from tests.broker.test_batches import batch
from tests.broker.test_tls import settings as tls_settings
from tests.certificates import Certificates

T = Wanted(topics=frozenset("T"))


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(segment_bytes=1 << 16, max_message_bytes=1 << 14, reserved_hours=1) as broker:
        yield broker


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


async def send(client: Client, count: int, queue_id: int = 0) -> None:
    async with client.producer() as producer:
        for first in range(0, count, 40):
            some = [Message("T", b"%300d" % number) for number in range(first, min(first + 40, count))]
            await producer.send_batch(some, queue=queue(queue_id))


def read(nameserver: str, span: Span, fail_on_loss: bool = True) -> list[int]:
    with Cluster(nameserver) as brokers:
        blocks = cluster.read_span(brokers, span, fail_on_loss)
        return [number for block in blocks for number in block.head["queue_offset"].tolist()]


async def test_spans_are_what_was_asked_for(broker: LocalBroker) -> None:
    await broker.create_topic("T", queues=2)
    async with broker.client() as client:
        await send(client, 200)
        there = await cluster.ends(client, T, {})
        assert there == {queue(0): Span(queue(0), 0, 200), queue(1): Span(queue(1), 0, 0)}
        assert list(await cluster.ends(client, T._replace(assigned={"T": frozenset([1])}), {})) == [queue(1)]
        between = T._replace(starts={"T": {0: 150}}, ends={"T": {0: 190}})
        (span, _) = await cluster.chosen(client, between, there.values())
        assert span == Span(queue(0), 150, 190)
        assert await asyncio.to_thread(read, broker.nameserver, span) == [*range(150, 190)]
        with pytest.raises(InvalidArgument, match="no broker has a topic 'S'"):
            await cluster.ends(client, Wanted(topics=frozenset("S")), {})
        assert await cluster.ends(client, Wanted(topics=frozenset("S"), allow_missing=True), {}) == {}
        with pytest.raises(InvalidArgument, match="has no message 201 yet"):
            await cluster.chosen(client, T._replace(starts={"T": {0: 201}}), there.values())


async def test_a_span_may_begin_and_end_within_an_inner_batch(broker: LocalBroker) -> None:
    peer = await Peer.connect(broker.address)
    await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1, attributes="+queue.type=BatchCQ"))
    await peer.send(batch(b"a", b"b", b"c", b"d", topic="T"), batch(b"e", b"f", b"g", topic="T"))
    await peer.close()
    for start, stop in ((0, 7), (0, 2), (2, 5), (3, 4), (5, 7)):
        span = Span(queue(0), start, stop)
        assert sorted(await asyncio.to_thread(read, broker.nameserver, span)) == [*range(start, stop)]


async def test_tls_and_user_are_those_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RMQ_TLS_CA, RMQ_USER and RMQ_PASSWORD_FILE, as for the command line."""
    certs = Certificates(tmp_path)
    (tmp_path / "password").write_text("root-secret\n")
    (tmp_path / "password").chmod(0o600)
    async with LocalBroker(**tls_settings(certs, "enforcing", **SETTINGS)) as broker:
        await broker.clock.advance_until(lambda: nameserver_knows(broker, "root"))
        async with broker.client(tls=certs.tls(), user="root", password="root-secret") as client:
            await admin.update_topic(client, "T", broker=broker.address, read_queues=1, write_queues=1)
            await send(client, 3)
        for name, value in (("TLS_CA", certs.ca), ("USER", "root"), ("PASSWORD_FILE", str(tmp_path / "password"))):
            monkeypatch.setenv(f"RMQ_{name}", value)
        assert await asyncio.to_thread(read, broker.nameserver, Span(queue(0), 0, 3)) == [0, 1, 2]
        monkeypatch.delenv("RMQ_TLS_CA")
        monkeypatch.setenv("RMQ_TLS_CERT", "mine.pem")
        with pytest.raises(InvalidArgument, match="whom to trust"):
            await asyncio.to_thread(read, broker.nameserver, Span(queue(0), 0, 3))


async def test_a_time_finds_its_first_message(broker: LocalBroker) -> None:
    await broker.create_topic("T", queues=1)
    async with broker.client() as client:
        await send(client, 10)
        broker.clock.jump_wall(3_600_000)
        later_ms = broker.clock.wall_ms()
        await send(client, 5)
        there = await cluster.ends(client, T, {})
        (span,) = await cluster.chosen(client, T._replace(from_ms=later_ms), there.values())
        assert span == Span(queue(0), 10, 15)
        (span,) = await cluster.chosen(client, T._replace(to_ms=later_ms), there.values())
        assert span == Span(queue(0), 0, 10)


async def test_a_time_finds_what_came_behind_a_clock_that_was_ahead(broker: LocalBroker) -> None:
    """The first message of a time to come ended each span."""
    await broker.create_topic("T", queues=1)
    async with broker.client() as client:
        for moved_ms in (0, 3650 * 86_400_000, -3650 * 86_400_000):
            broker.clock.jump_wall(moved_ms)
            await send(client, 5)
        there = await cluster.ends(client, T, {})
        (span,) = await cluster.chosen(client, T._replace(to_ms=broker.clock.wall_ms() + 1000), there.values())
        assert span == Span(queue(0), 0, 15)


async def test_what_retention_took_is_told(broker: LocalBroker) -> None:
    """The queue's first messages go with their file; a span that begins before says so, or goes on behind them."""
    await broker.create_topic("T", queues=1)
    async with broker.client() as client:
        await send(client, 1000)
        await broker.stop_broker()
        broker.clock.jump_wall(3 * 3_600_000)  # one that runs takes so large a jump for a mistake
        await broker.start_broker()
        await admin.delete_expired_log(client, broker=broker.address)
        (span,) = (await cluster.ends(client, T, {})).values()
        assert span.start > 0
        early = span._replace(start=0)
        with pytest.raises(StoreError, match=f"messages 0 to {span.start - 1} of T, queue 0 at broker-a were not read yet"):
            await asyncio.to_thread(read, broker.nameserver, early)
        left = await asyncio.to_thread(read, broker.nameserver, early, False)
        assert left == [*range(span.start, 1000)]
        with pytest.raises(StoreError, match="startingOffsets: messages 0 to"):
            await cluster.chosen(client, T._replace(starts={"T": {0: 0}}), [span])


async def test_a_broker_that_starts_anew_is_waited_for(broker: LocalBroker) -> None:
    await broker.create_topic("T", queues=1)
    async with broker.client() as client:
        await send(client, 10)
        await broker.stop_broker()
        with pytest.raises(InvalidArgument, match="no broker has a topic 'T'"):
            await cluster.ends(client, T, {})
        asked = asyncio.create_task(cluster.ends(client, T, {queue(0): 10}))
        pulled = asyncio.create_task(asyncio.to_thread(read, broker.nameserver, Span(queue(0), 3, 10)))
        await broker.start_broker()
        assert await asked == {queue(0): Span(queue(0), 0, 10)}
        assert await pulled == [*range(3, 10)]


async def test_a_queue_that_ends_before_what_was_read(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("T", queues=1)
    async with broker.client() as client:
        await send(client, 10)
        monkeypatch.setattr(cluster, "PATIENCE_S", 0.0)
        with pytest.raises(StoreError, match="ends at message 10, and 11 was reached before"):
            await cluster.ends(client, T, {queue(0): 11})
        assert await cluster.ends(client, T._replace(fail_on_loss=False), {queue(0): 11}) == {}


async def test_a_group_shows_how_far_a_stream_is(broker: LocalBroker) -> None:
    await broker.create_topic("T", queues=2)
    async with broker.client() as client:
        await send(client, 10)
        for number in (7, 9):
            await cluster.tell_group(client, "spark", {queue(0): number, queue(1): 0})
            rows = (await admin.consume_stats(client, "spark", "T")).queues
            progress = [(row.queue, row.consumer_offset, row.broker_offset) for row in rows]
            assert progress == [(queue(0), number, 10), (queue(1), 0, 0)]
        with pytest.raises(Refusal, match="CONSUMER_NOT_ONLINE"):
            await admin.consumer_connection(client, "spark")


def test_a_trigger_takes_of_each_queue_after_its_lag() -> None:
    lags = {queue(0): 90, queue(1): 9, queue(2): 1}
    assert shares(lags, 100) == lags
    assert shares(lags, 50) == {queue(0): 45, queue(1): 4, queue(2): 1}
    assert sum(shares(lags, 7).values()) == 7


def test_tasks_are_cut_and_packed() -> None:
    spans = [Span(queue(0), 5, 105), Span(queue(1), 0, 10)]
    assert cluster.packed(spans, 1000, 0) == [spans]
    assert cluster.packed(spans, 100, 0) == [[spans[0]], [spans[1]]]
    halves = cluster.packed(spans, 1000, 2)
    assert halves == [[Span(queue(0), 5, 60)], [Span(queue(0), 60, 105), spans[1]]]
