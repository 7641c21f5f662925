"""A topic is deleted and made again under its consumers: they consume the new one from its beginning."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client, ClientSettings, Message, ReceivedMessage
from rmq.client.admin import calls as admin
from rmq.codes import ResponseCode
from rmq.model import MessageQueue
from rmq.net.commands import Pull, PullAnswer
from rmq.net.commands.locks import LockQueues, UnlockQueues
from rmq.testing import LocalBroker, until
from tests.broker.support import Peer
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, numbers
from tests.client.test_resets import publish
from tests.reached import sizes


async def made_again(broker: LocalBroker, client: Client, absent_s: float, count: int) -> None:
    await admin.delete_topic(client, "T", cluster="DefaultCluster")
    await broker.clock.advance(absent_s)
    await broker.create_topic("T", queues=1)
    await publish(client, count)


@pytest.mark.parametrize("count", [3, 15])
@pytest.mark.parametrize("absent_s", [0, 12])
@pytest.mark.parametrize("how", [{}, {"ordered": True}, {"mode": "broadcast"}], ids=["cluster", "ordered", "broadcast"])
async def test_members_begin_anew(how: dict[str, Any], absent_s: float, count: int, tmp_path: Path) -> None:
    """Those that were there all the time, and then those that come: the offset of the former life is not committed."""
    here = ClientSettings(offsets_directory=tmp_path)
    async with LocalBroker() as broker, broker.client(instance="a", settings=here) as client:
        await broker.create_topic("T", queues=1)
        await publish(client, 10)
        got: list[int] = []
        async with client.consumer("g", "T", start="first", **how) as consumer:
            running = asyncio.create_task(consumer.run(lambda message: got.append(int(message.body))))
            await until(lambda: len(got) == 10)
            await consumer.commit()
            await made_again(broker, client, absent_s, count)
            await broker.clock.advance_until(lambda: len(got) >= 10 + count)
            consumer.stop()
            await running
        assert got[10:] == list(range(count))
        await publish(client, 1)
        async with client.consumer("g", "T", start="first", **how) as consumer:
            assert [message.queue_offset for message in await consumer.receive()] == [count]


@pytest.mark.parametrize("count", [3, 15])
async def test_a_broadcast_member_that_was_not_there_begins_anew(count: int, tmp_path: Path) -> None:
    """With more messages in the new one than it had read of the old one it went on in the midst of them."""
    here = ClientSettings(offsets_directory=tmp_path)
    async with LocalBroker() as broker, broker.client(instance="a", settings=here) as client:
        await broker.create_topic("T", queues=1)
        await publish(client, 10)
        async with client.consumer("g", "T", start="first", mode="broadcast") as consumer:
            assert len(await consumer.receive()) == 10
            await consumer.commit()
        await made_again(broker, client, 0, count)
        async with client.consumer("g", "T", start="first", mode="broadcast") as consumer:
            receiving = asyncio.create_task(consumer.receive())
            await broker.clock.advance_until(receiving.done)
            assert [int(message.body) for message in await receiving] == list(range(count))


@pytest.mark.parametrize("count", [3, 25])
@pytest.mark.parametrize("backlog", [False, True], ids=["left out", "backlog"])
async def test_so_does_one_that_did_not_finish_all_or_whose_tags_left_out_the_last(
    backlog: bool, count: int, tmp_path: Path
) -> None:
    """Where the message before its offset stood is not known: another one tells."""
    here = ClientSettings(offsets_directory=tmp_path)
    async with LocalBroker() as broker, broker.client(instance="a", settings=here) as client:
        await broker.create_topic("T", queues=1)

        async def come(most: int) -> list[int]:
            async with client.consumer("g", {"T": "a"}, start="first", mode="broadcast") as consumer:
                receiving = asyncio.create_task(consumer.receive(most))
                await broker.clock.advance_until(receiving.done)
                await consumer.commit()
            return [int(message.body) for message in await receiving]

        async def publish_tagged(numbers: range, tag: str) -> None:
            for number in numbers:
                await client.producer().send(Message("T", b"%d" % number, tags=tag))

        await publish_tagged(range(10), "a")
        await publish_tagged(range(10, 20), "a" if backlog else "b")
        assert await come(4 if backlog else 10) == list(range(4 if backlog else 10))
        if backlog:  # nothing happened: it goes on where it was
            assert await come(4) == list(range(4, 8))
        await made_again(broker, client, 0, 0)
        await publish_tagged(range(count), "a")
        assert await come(32) == list(range(count))


async def test_a_broadcast_member_whose_last_message_expired_goes_on_where_it_was(
    broker: Broker, make_client: MakeClient, tmp_path: Path
) -> None:
    """Its tags had left out all behind that message. It began anew at the first one that was there still, and with other tags, as
    of a newer release of its program, it handled those again that it had passed."""
    broker.topics["T"] = 1
    broker.put("T", 0, 61)
    (tmp_path / "one").mkdir()
    row = {"topic": "T", "broker": "a", "queue": 0, "offset": 60, "last": 9, "after": 9000}
    (tmp_path / "one" / "g.json").write_text(json.dumps({"offsets": [row]}))
    expired = PullAnswer(20, 20, 61, b"", ResponseCode.PULL_OFFSET_MOVED)
    broker.faults[Pull] = [lambda request, call: call.answer(expired)]
    async with make_client(instance="one").consumer("g", "T", start="first", mode="broadcast") as consumer:
        assert [message.queue_offset for message in await consumer.receive()] == [60]
    assert [request.queue_offset for request in broker.seen(Pull)][:2] == [10, 60]


@pytest.mark.parametrize("count", [3, 15])
async def test_a_member_that_was_busy_meanwhile_hears_of_it_with_its_next_pull(count: int) -> None:
    """It holds all that it may, so no pull of it waits while the topic is deleted and made again."""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", queues=1)
        await publish(client, 10)
        may_go_on, got = asyncio.Event(), list[int]()

        async def handle(message: ReceivedMessage) -> None:
            if message.queue_offset == 2:
                await may_go_on.wait()
            got.append(int(message.body))

        async with client.consumer("g", "T", start="first", max_messages=8) as consumer:
            running = asyncio.create_task(consumer.run(handle))
            await until(lambda: consumer.held == 8)
            await made_again(broker, client, 0, count)
            await broker.clock.advance(6)  # it commits what it has finished, before it hears of it
            may_go_on.set()
            await broker.clock.advance_until(lambda: len(got) >= 10 + count)
            consumer.stop()
            await running
        assert got[10:] == list(range(count))


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_late_commit_of_the_former_life_does_not_count(ordered: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A handler of it still runs, for which an ordered consumer waits before it begins anew."""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", queues=1)
        await publish(client, 10)
        waits, may_go_on, got = asyncio.Event(), asyncio.Event(), list[int]()

        async def handle(message: ReceivedMessage) -> None:
            if message.queue_offset == 5 and not may_go_on.is_set():
                waits.set()
                await may_go_on.wait()
            got.append(message.queue_offset)

        async with client.consumer("g", "T", start="first", ordered=ordered) as consumer:
            running = asyncio.create_task(consumer.run(handle))
            await waits.wait()
            await admin.delete_topic(client, "T", cluster="DefaultCluster")
            await until(lambda: "the topic was deleted" in caplog.text)
            await broker.create_topic("T", queues=1)
            await publish(client, 15)
            await consumer.commit()
            may_go_on.set()
            await broker.clock.advance_until(lambda: len(got) >= 6 + 15)
            consumer.stop()
            await running
        assert got == [*range(6), *range(15)]


async def test_in_order_the_next_topic_is_begun_with_a_lock_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """C9: those of the former one went with it, so another member may have the queue by then."""
    caplog.set_level("DEBUG", "rmq.client")
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", queues=1)
        await publish(client, 1)
        other = await Peer.connect(broker.address)
        waits, may_go_on, got = asyncio.Event(), asyncio.Event(), list[int]()

        async def handle(message: ReceivedMessage) -> None:
            waits.set()
            await may_go_on.wait()
            got.append(message.queue_offset)

        async with client.consumer("g", "T", start="first", ordered=True) as consumer:
            running = asyncio.create_task(consumer.run(handle))
            await waits.wait()
            await admin.delete_topic(client, "T", cluster="DefaultCluster")
            await until(lambda: "the topic was deleted" in caplog.text)
            await broker.create_topic("T", queues=1)
            queues = [MessageQueue("T", "broker-a", 0)]
            assert (await other.ask(LockQueues("g", "other", queues))).queues == queues
            await publish(client, 3)
            may_go_on.set()
            await broker.clock.advance_until(lambda: "another member of g has it still" in caplog.text or len(got) > 1)
            assert got == [0]
            await other.ask(UnlockQueues("g", "other", queues))
            await broker.clock.advance_until(lambda: len(got) == 4)
            consumer.stop()
            await running
        assert got == [0, *range(3)]
        await other.close()


@pytest.mark.parametrize("again", [False, True])
async def test_queues_that_are_gone_are_let_go_at_once(again: bool) -> None:
    """Of a topic that was made again with fewer, or that has fewer by now: nothing can be committed in them."""
    seldom = ClientSettings(route_refresh_s=3600.0)
    async with LocalBroker() as broker, broker.client(settings=seldom) as client:
        await broker.create_topic("T", queues=4)

        async def owns(queues: int) -> None:
            await broker.clock.advance_until(lambda: sum(one.topic == "T" for one in consumer.queues) == queues, timeout_s=10)

        async with client.consumer("g", "T", start="first", auto_commit=False) as consumer:
            await owns(4)
            if again:
                await admin.delete_topic(client, "T", cluster="DefaultCluster")
            await broker.create_topic("T", queues=2)
            await owns(2)
            await consumer.commit()


async def test_what_was_consumed_of_a_queue_is_known_when_the_topic_has_it_again(caplog: pytest.LogCaptureFixture) -> None:
    """Fewer queues for a while. The broker took no offset of the others, whose last messages then came again."""
    async with LocalBroker() as broker, broker.client() as client:
        await broker.create_topic("T", queues=4)
        producer = client.producer()
        for number in range(4):  # a queue that never had a message is none that the topic had
            await producer.send(Message("T", b"%d" % number), queue=MessageQueue("T", "broker-a", number))
        got: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with client.consumer("g", "T", start="first") as consumer:
            running = asyncio.create_task(consumer.run(handle))
            await until(lambda: len(got) == 4)
            await broker.create_topic("T", queues=1)
            await broker.clock.advance_until(lambda: len(consumer.queues) == 2)  # and that of the retry topic
            await broker.create_topic("T", queues=4)
            await broker.clock.advance_until(lambda: len(consumer.queues) == 5)
            await publish(client, 4)
            await until(lambda: len(got) >= 8)
            consumer.stop()
            await running
        assert sorted(got) == sorted([*numbers(4), *numbers(4)])
        assert "come again" not in caplog.text


async def test_what_begins_while_the_topic_is_gone_is_new_also_from_the_last_on(tmp_path: Path) -> None:
    """A broadcast member's broker does not help: it keeps no offset of it."""
    async with LocalBroker() as broker, broker.client(settings=ClientSettings(offsets_directory=tmp_path)) as client:
        await broker.create_topic("T", queues=1)
        async with client.consumer("g", "T", mode="broadcast") as consumer:
            await until(lambda: consumer.queues)
            receiving = asyncio.create_task(consumer.receive(timeout=1000))
            await publish(client, 1)
            assert len(await receiving) == 1
            await made_again(broker, client, 0, 3)
            receiving = asyncio.create_task(consumer.receive(timeout=1000))
            await broker.clock.advance_until(receiving.done)
            assert [message.queue_offset for message in receiving.result()] == [0, 1, 2]


@pytest.mark.parametrize(("stored", "first"), [(None, 0), (2, 2), (9, 5)])
async def test_a_queue_that_is_shorter_than_we_thought(
    broker: Broker, make_client: MakeClient, stored: int | None, first: int
) -> None:
    """A broker of RocketMQ does not compare lives. The group's offset, if it has one there, says where to go on."""
    broker.topics["T"] = 1
    broker.put("T", 0, 9)
    async with make_client().consumer("g", "T", start="first", auto_commit=False) as consumer:
        assert len(await consumer.receive()) == 9
        await until(lambda: broker.seen(Pull)[-1].queue_offset == 9)
        broker.queues["T", 0].clear()
        broker.offsets.pop(("g", "T", 0), None)
        if stored is not None:
            broker.offsets["g", "T", 0] = stored
        broker.put("T", 0, 5)
        broker.put("T", 0, 1)
        assert [message.body for message in await consumer.receive(timeout=20)] == list(numbers(6))[first:]


@pytest.mark.parametrize("taken", [False, True], ids=["deleted", "taken"])
async def test_messages_of_queues_that_were_let_go_leave_memory(taken: bool) -> None:
    """While a handler is at work for long they stayed until it was done, more with each queue that came and went."""
    async with LocalBroker() as broker, broker.client(instance="b") as client, broker.client(instance="a") as other:
        await broker.create_topic("T", queues=1)
        await publish(client, 10)
        async with client.consumer("g", "T", start="first") as consumer:

            def kept() -> int:
                return sum(count for way, count in sizes({"": consumer}).items() if way.endswith("._ready"))

            await until(lambda: kept() == 10)
            if taken:
                await other.consumer("g", "T").start()
            else:
                await admin.delete_topic(client, "T", cluster="DefaultCluster")
            await broker.clock.advance_until(lambda: not kept(), 5)
