"""End to end: our client, a real nameserver and a real broker in this process."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rmq.client import Client, ClientSettings, Consumer, InvalidArgument, Message, MessageQueue, ReceivedMessage, Refusal
from rmq.client.admin import calls as admin
from rmq.codes import ResponseCode
from rmq.model import RETRY_PREFIX, GroupConfig
from rmq.testing import LocalBroker, until


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker() as broker:
        await broker.create_topic("T", 4)
        yield broker


@pytest.fixture
async def clients(broker: LocalBroker, tmp_path: Path) -> AsyncIterator[list[Client]]:
    settings = ClientSettings(hand_over_s=0.2, offsets_directory=tmp_path / "offsets")
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(broker.client(instance=f"i{n}", settings=settings)) for n in range(4)]


async def publish(client: Client, first: int, count: int, topic: str = "T", tags: str = "") -> None:
    producer = client.producer()
    for number in range(first, first + count):
        await producer.send(Message(topic, str(number).encode(), tags=tags))


async def drain(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    while len(messages) < count:
        received = await consumer.receive(timeout=20)
        assert received, f"only {len(messages)} of {count} came"
        messages += received
    return messages


async def test_what_was_sent_is_consumed_once(clients: list[Client]) -> None:
    """C1, C2, C5."""
    await publish(clients[0], 0, 500)
    async with clients[0].consumer("g", "T", start="first") as consumer:
        messages = await drain(consumer, 500)
        assert await consumer.receive(timeout=0.1) == []
    assert Counter(message.body for message in messages) == Counter(str(n).encode() for n in range(500))
    async with clients[1].consumer("g", "T", start="first") as consumer:
        assert await consumer.receive(timeout=0.3) == []


async def test_every_field_arrives(broker: LocalBroker, clients: list[Client]) -> None:
    message = Message("T", b"\x00\xff" * 100, tags="T1", keys=["k1", "k2"], properties={"colour": "grün"}, flag=9)
    result = await clients[0].producer().send(message)
    async with clients[0].consumer("g", {"T": "T1"}, start="first") as consumer:
        (received,) = await consumer.receive()
    assert (received.topic, received.body, received.tags, received.keys, received.flag) == (
        "T",
        message.body,
        "T1",
        ["k1", "k2"],
        9,
    )
    assert received.properties["colour"] == "grün"
    assert (received.message_id, received.queue, received.queue_offset) == result[:3]
    assert len(received.offset_message_id) == 32
    assert abs(received.store_timestamp - broker.clock.wall_ms()) < 60_000


async def test_tags_with_equal_hashes_are_told_apart(clients: list[Client]) -> None:
    """C14: "Aa" and "BB" have the same hash."""
    await publish(clients[0], 0, 20, tags="Aa")
    await publish(clients[0], 20, 20, tags="BB")
    await publish(clients[0], 40, 20, tags="C")
    async with clients[0].consumer("g", {"T": "BB || D"}, start="first") as consumer:
        messages = await drain(consumer, 20)
        assert {message.tags for message in messages} == {"BB"}
        await consumer.commit()
        stats = await admin.consume_stats(clients[1], "g", "T")
    assert all(row.consumer_offset == row.broker_offset for row in stats.queues)


async def test_a_batch_arrives_whole_and_in_order(clients: list[Client]) -> None:
    results = await clients[0].producer().send_batch(Message("T", str(n).encode()) for n in range(100))
    assert [result.queue_offset for result in results] == list(range(100))
    async with clients[0].consumer("g", "T", start="first") as consumer:
        messages = await drain(consumer, 100)
    assert [message.body for message in messages] == [str(n).encode() for n in range(100)]
    assert [message.message_id for message in messages] == [result.message_id for result in results]


async def test_members_come_and_go_without_loss_or_repeats(clients: list[Client]) -> None:
    """C5, C8, C17."""
    seen: Counter[bytes] = Counter()

    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        seen[message.body] += 1

    runs = []

    async def join(client: Client) -> Consumer:
        consumer = client.consumer("g", "T", start="first")
        await consumer.start()
        runs.append(asyncio.create_task(consumer.run(handler, concurrency=4)))
        return consumer

    members = [await join(clients[0])]
    sending = asyncio.create_task(publish(clients[3], 0, 3000))
    await until(lambda: len(seen) > 200)
    members.append(await join(clients[1]))
    await until(lambda: len(seen) > 800)
    members.append(await join(clients[2]))
    await until(lambda: all(member.queues for member in members))
    owned = [queue for member in members for queue in member.queues if queue.topic == "T"]
    assert sorted(owned) == [MessageQueue("T", "broker-a", n) for n in range(4)]
    await members[0].close()
    await sending
    await until(lambda: len(seen) == 3000)
    for member in members:
        await member.close()
    await asyncio.gather(*runs)
    assert set(seen.values()) == {1}


async def test_a_killed_member_leaves_only_what_it_had_not_committed(clients: list[Client]) -> None:
    """C1, C5: repeats lie above the committed offset of the dead member."""
    await publish(clients[3], 0, 200)
    first = clients[0].consumer("g", "T", start="first")
    await first.start()
    before = await drain(first, 200)
    await first.commit()
    await publish(clients[3], 200, 100)
    uncommitted = await drain(first, 100)
    await clients[0].session.connections.close()  # as a kill: nothing is said to anybody
    async with clients[1].consumer("g", "T") as second:
        again = await drain(second, 100)
        assert {message.body for message in again} == {message.body for message in uncommitted}
    assert not {message.body for message in again} & {message.body for message in before}


async def test_a_restarted_broker_is_not_noticed(broker: LocalBroker, clients: list[Client]) -> None:
    """Reconnect and re-route; every acknowledged message comes."""
    seen: set[bytes] = set()

    async def handler(message: ReceivedMessage) -> None:
        seen.add(message.body)

    producer = clients[0].producer()
    async with clients[1].consumer("g", "T", start="first") as consumer:
        running = asyncio.create_task(consumer.run(handler))
        for number in range(100):
            if number == 50:
                await until(lambda: len(seen) == 50)
                restarting = asyncio.create_task(restart(broker))
            await producer.send(Message("T", str(number).encode()), timeout=30, retry_unknown=True)
        await restarting
        await until(lambda: len(seen) == 100)
        consumer.stop()
        await running


async def restart(broker: LocalBroker) -> None:
    await broker.stop_broker()
    await broker.start_broker()


async def test_nameservers_may_be_away_and_come_back_empty(broker: LocalBroker, clients: list[Client]) -> None:
    """N3."""
    await publish(clients[0], 0, 10)
    async with clients[1].consumer("g", "T", start="first") as consumer:
        await broker.stop_nameserver()
        await broker.clock.advance(60)
        await publish(clients[0], 10, 10)
        assert len(await drain(consumer, 20)) == 20
        await broker.start_nameserver()
        await broker.clock.advance_until(lambda: clients[0].session.connections.is_open(broker.nameserver), 5)

        async def known() -> bool:
            return "T" in await admin.topic_list(clients[2])

        while not await known():  # one heartbeat of the broker later
            await broker.clock.advance(5)
        await publish(clients[2], 20, 10)
        assert len(await drain(consumer, 10)) == 10


async def test_a_group_may_begin_at_a_time(broker: LocalBroker, clients: list[Client]) -> None:
    await publish(clients[0], 0, 10)
    await broker.clock.advance(60)
    middle = datetime.fromtimestamp(broker.clock.wall_ms() / 1000 - 30, UTC)
    await publish(clients[0], 10, 10)
    async with clients[1].consumer("g", "T", start=middle) as consumer:
        messages = await drain(consumer, 10)
    assert {message.body for message in messages} == {str(n).encode() for n in range(10, 20)}


async def test_broadcast_gives_all_to_each_and_goes_on_where_it_was(clients: list[Client]) -> None:
    """C15."""
    await publish(clients[0], 0, 20)
    for client in clients[1:3]:
        async with client.consumer("g", "T", mode="broadcast", start="first") as consumer:
            assert len(await drain(consumer, 20)) == 20
            await consumer.commit()
    await publish(clients[0], 20, 5)
    async with clients[1].consumer("g", "T", mode="broadcast", start="first") as consumer:
        assert len(await drain(consumer, 5)) == 5


async def test_a_topic_is_made_by_its_first_message(clients: list[Client]) -> None:
    producer = clients[0].producer()
    results = [await producer.send(Message("Fresh", b"x")) for _ in range(8)]
    assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
    async with clients[1].consumer("g", "Fresh", start="first") as consumer:
        assert len(await drain(consumer, 8)) == 8


# --- administration ---------------------------------------------------------------------------------------------------


async def test_topics_are_made_changed_shown_and_deleted(broker: LocalBroker, clients: list[Client]) -> None:
    client = clients[0]
    assert await admin.create_topic(client, "New", cluster="DefaultCluster", read_queues=2, write_queues=2) == [broker.address]
    assert "New" in await admin.topic_list(client)
    assert [(data.read_queue_nums, data.perm) for data in (await admin.topic_route(client, "New")).queues] == [(2, 6)]
    await admin.update_topic(client, "New", broker="broker-a", read_queues=3, write_queues=3)
    assert (await admin.topic_config(client, "New", broker.address)).write_queue_nums == 3
    assert "New" in [config.name for config in await admin.topic_configs(client, broker.address)]
    await publish(client, 0, 6, "New")
    assert [row.max_offset for row in (await admin.topic_stats(client, "New")).queues] == [2, 2, 2]
    queue = MessageQueue("New", "broker-a", 0)
    assert (await admin.min_offset(client, queue), await admin.max_offset(client, queue)) == (0, 2)
    assert await admin.search_offset(client, queue, 0) == 0
    await admin.delete_topic(client, "New", cluster="DefaultCluster")
    assert "New" not in await admin.topic_list(client)
    with pytest.raises(Refusal) as refusal:
        await admin.topic_route(client, "New")
    assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST


async def test_groups_are_shown_and_changed(broker: LocalBroker, clients: list[Client]) -> None:
    client = clients[0]
    await publish(client, 0, 8)
    async with clients[1].consumer("g", {"T": "*"}, start="first") as consumer:
        await drain(consumer, 8)
        await consumer.commit()
        members = await admin.consumer_connection(client, "g")
        assert [each.client_id for each in members.connections] == [clients[1].client_id]
        assert sorted(each.topic for each in members.subscriptions) == [RETRY_PREFIX + "g", "T"]
        stats = await admin.consume_stats(client, "g", "T")
        assert [row.consumer_offset for row in stats.queues] == [2, 2, 2, 2]
        assert await admin.group_list(client) == ["g"]
        assert await admin.groups_of_topic(client, "T") == ["g"]
    with pytest.raises(Refusal) as refusal:
        await admin.consumer_connection(client, "g")
    assert refusal.value.code == ResponseCode.CONSUMER_NOT_ONLINE
    await admin.set_offset(client, "g", MessageQueue("T", "broker-a", 0), 1)
    await admin.update_group(client, GroupConfig("g2", retry_max_times=3), broker="broker-a")
    assert (await admin.group_config(client, "g2", broker.address)).retry_max_times == 3
    assert "g2" in [config.name for config in await admin.group_configs(client, broker.address)]
    await admin.delete_group(client, "g2", broker="broker-a", clean_offsets=True)
    assert "g2" not in [config.name for config in await admin.group_configs(client, broker.address)]
    with pytest.raises(Refusal) as refusal:
        await admin.consume_stats(client, "nobody")
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_the_cluster_is_shown(broker: LocalBroker, clients: list[Client]) -> None:
    info = await admin.cluster_info(clients[0])
    assert [(each.cluster, each.name, each.addresses) for each in info.brokers] == [
        ("DefaultCluster", "broker-a", {0: broker.address})
    ]
    await admin.ping(clients[0], broker.address)
    await admin.ping(clients[0], broker.nameserver)
    assert int((await admin.runtime_info(clients[0], broker.address))["pid"]) > 0
    with pytest.raises(InvalidArgument, match="DefaultCluster/broker-a"):
        await admin.broker_addresses(clients[0], cluster="Other")
