"""Light queues: one stored message is also in each queue that it names, at every node, after every restart and deletion."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client, Message
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.log.files.disk import ReadOnlyDisk
from rmq.log.records import record
from rmq.log.repair.verify import Verifier
from rmq.model import TopicConfig
from rmq.net.commands import (
    CreateUser,
    DeleteExpiredLog,
    DeleteTopic,
    GetGroupConfig,
    GetMaxOffset,
    GetMinOffset,
    GetTopicConfig,
    QueryConsumerOffset,
    RegisterBroker,
    Send,
    UpdateConsumerOffset,
    UpdateForbidden,
    UpdateTopic,
    UserInfo,
)
from rmq.net.commands.access import PolicyEntry
from rmq.net.commands.pop import Ack, PopAnswer
from rmq.net.commands.replies import SendReply
from rmq.net.commands.resets import CloneOffsets
from rmq.testing import INDEX_SLOTS, LocalBroker, TestClock, until
from tests.broker.groups import SHORT_LIVED, LocalGroup
from tests.broker.popping import pop
from tests.broker.support import BORN, Peer, bodies, copy_of_running
from tests.broker.test_access import SETTINGS, acl, login

NAMES, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"
LIGHT: dict[str, Any] = {"light_queues": True, "light_dispatch": True}


def light(names: str, body: bytes = b"body", topic: str = "T", queue_id: int = 0, **more: str) -> Send:
    properties = record.properties_to_bytes({NAMES: names, **more} if names else more)
    return Send("p", topic, queue_id, record.draft(topic, body, properties, born_timestamp=1000, born_host=BORN))


async def found(peer: Peer, name: str, offset: int = 0) -> list[tuple[bytes, str]]:
    """Body and offsets of the messages in a light queue, as they are stored."""
    answer = await peer.pull(name, offset)
    said = [(one.body, record.bytes_to_properties(one.properties)) for one in record.iterate(answer.messages)]
    return [(body, properties[OFFSETS]) for body, properties in said]


async def popped(peer: Peer, name: str, count: int) -> list[tuple[bytes, str]]:
    """Body and receipt of messages that were popped from a light queue: there their own queue offset counts for nothing."""
    answer: PopAnswer = await peer.ask(pop(name, group="pg", count=count))
    made = []
    for part, stored in zip(_places(answer), record.iterate(answer.messages), strict=False):
        flag, queue_id, start, queue_offset = part
        words = start, answer.pop_time, answer.invisible_time, answer.revive_qid, flag, "broker", queue_id, queue_offset
        made.append((stored.body, " ".join(map(str, words))))
    return made


def _places(answer: PopAnswer) -> Iterator[tuple[str, str, str, str]]:
    starts = {tuple(part.split()[:2]): part.split()[2] for part in answer.start_offset_info.split(";") if part}
    for part in filter(None, answer.msg_offset_info.split(";")):
        flag, queue_id, offsets = part.split()
        yield from ((flag, queue_id, starts[flag, queue_id], each) for each in offsets.split(","))


async def test_a_message_is_in_each_light_queue_that_it_names() -> None:
    async with LocalBroker(**LIGHT) as broker:
        await broker.create_topic("T", 2)
        peer = await Peer.connect(broker.address)
        waiting = asyncio.create_task(
            peer.pull("%LMQ%c", 0, 6, suspend_timeout_millis=30_000)
        )  # held before there is such a queue
        first = [
            light("%LMQ%a,%LMQ%b", b"1"),
            light("", b"plain"),
            light("%LMQ%b", b"2", queue_id=1),
            light("%LMQ%c,%LMQ%b", b"3"),
        ]
        await asyncio.gather(*map(peer.ask, first))  # of one burst
        assert bodies(await waiting) == [b"3"]
        assert await found(peer, "%LMQ%a") == [(b"1", "0,0")]
        assert await found(peer, "%LMQ%b") == [(b"1", "0,0"), (b"2", "1"), (b"3", "0,2")]
        assert bodies(await peer.pull("T", 0)) == [b"1", b"plain", b"3"]
        assert (await peer.ask(GetTopicConfig("%LMQ%b"))) == TopicConfig("%LMQ%b", 1, 1)
        group = "%LMQ%reader"  # a group without settings
        await peer.ask(UpdateConsumerOffset(group, "%LMQ%b", 0, 2))
        assert (await peer.ask(QueryConsumerOffset(group, "%LMQ%b", 0))).offset == 2
        assert [body for body, _ in await popped(peer, "%LMQ%b", 2)] == [b"1", b"2"]
        await broker.stop_broker()
        kept = json.loads((broker.store_dir / "config" / "lmqConsumerOffset.json").read_bytes())
        assert kept["lmqOffsetTable"] == {"%LMQ%b@%LMQ%reader": 2}
        for rebuilt in (False, True):  # from the log alone
            if rebuilt:
                for one in sorted((broker.store_dir / "consumequeue").rglob("*"), reverse=True):
                    one.unlink() if one.is_file() else one.rmdir()
            await broker.start_broker()
            peer = await Peer.connect(broker.address)
            assert len(await found(peer, "%LMQ%b")) == (4 if rebuilt else 3)
            await peer.ask(light("%LMQ%b", b"more"))
            assert (await peer.ask(QueryConsumerOffset(group, "%LMQ%b", 0))).offset == 2
            await broker.stop_broker()
        assert Verifier(ReadOnlyDisk(), str(broker.store_dir), INDEX_SLOTS).run().clean


WRONG = {
    "twice": "%LMQ%a,%LMQ%a", "of another kind": "%LMQ%a,T", "no name": "%LMQ%", "empty among others": "%LMQ%a,,%LMQ%b",
    "a path": "%LMQ%a/../b", "a blank": "%LMQ%a b", "too many": ",".join(f"%LMQ%{n}" for n in range(1000)),
    "too long": "%LMQ%" + "x" * 251, "unclear": "%LMQ%a@b",
    "no room": ",".join(f"%LMQ%{n:090}" for n in range(300)),
}  # fmt: skip


async def test_wrong_names_are_refused_and_others_are_not_disturbed() -> None:
    """A name that RocketMQ takes and cannot dispatch ("%LMQ%a,T") stops all its queues."""
    async with LocalBroker(**LIGHT, max_light_queues=3) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        for why, names in WRONG.items():
            assert await peer.refusal(light(names)) == ResponseCode.MESSAGE_ILLEGAL, why
        longest = "%LMQ%" + "x" * 250
        await peer.ask(light(f"{longest},%LMQ%a,%LMQ%1"))
        assert await peer.refusal(light("%LMQ%a,%LMQ%2")) == ResponseCode.LMQ_QUOTA_EXCEEDED
        await peer.ask(light("%LMQ%a"))  # one that is there may always be written to
        assert await found(peer, longest) == [(b"body", "0,0,0")]
        assert await peer.refusal(light("", topic="%LMQ%a")) == ResponseCode.NO_PERMISSION
        assert await peer.refusal(UpdateTopic("%LMQ%u")) == ResponseCode.INVALID_PARAMETER
        batch = light("%LMQ%a")._replace(records=light("", b"1").records + light("%LMQ%a", b"2").records, batch=True)
        assert await peer.refusal(batch) == ResponseCode.MESSAGE_ILLEGAL
        assert await peer.refusal(light("%LMQ%a", **{OFFSETS: "77"})) == ResponseCode.MESSAGE_ILLEGAL
        await peer.ask(light(" "))
        assert len(await found(peer, "%LMQ%a")) == 2


async def test_no_reply_goes_to_a_light_queue() -> None:
    """It was stored there, as in a topic: beside `max_light_queues`, and beside the topic that a lite topic is of."""
    async with LocalBroker(**LIGHT, max_light_queues=1) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.ask(light("%LMQ%a"))
        for name in ("%LMQ%a", "%LMQ%b", "%LMQ%../b", "%LMQ%$T$s"):
            reply = record.draft(name, b"x", b"REPLY_TO_CLIENT\x01c\x02", born_timestamp=1000, born_host=BORN)
            assert await peer.refusal(SendReply("p", name, 0, reply)) == ResponseCode.NO_PERMISSION
            assert len(await found(peer, name)) == (name == "%LMQ%a")


async def test_a_light_queue_with_a_longer_name_than_any_is_none() -> None:
    """Of what was asked about such, of 2 MB each, the last 1024 were remembered."""
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        assert (await peer.ask(GetTopicConfig("%LMQ%" + "x" * 250))).read_queue_nums == 1
        assert await peer.refusal(GetTopicConfig("%LMQ%" + "x" * 251)) == ResponseCode.TOPIC_NOT_EXIST


async def test_a_group_of_light_queues_with_a_longer_name_than_any_is_none() -> None:
    """Its offsets were kept under a name of up to 2 MB, written every five seconds; a million such names were to be had."""
    async with LocalBroker(**LIGHT) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.ask(UpdateConsumerOffset("%LMQ%" + "g" * 250, "T", 0, 0))
        long = "%LMQ%" + "g" * 251
        cloned, forbidden = CloneOffsets("%LMQ%g", long, "T", True), UpdateForbidden(long, "T", "false")
        for wrong in (UpdateConsumerOffset(long, "T", 0, 0), cloned, forbidden, GetGroupConfig(long)):
            assert await peer.refusal(wrong) in (ResponseCode.INVALID_PARAMETER, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


async def test_without_the_settings_such_a_message_is_one_like_others() -> None:
    """As RocketMQ stores it: with its property, in the queue of its topic alone."""
    async with LocalBroker(light_queues=True) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        await peer.ask(light("%LMQ%a,T"))
        [stored] = record.iterate((await peer.pull("T", 0)).messages)
        assert record.bytes_to_properties(stored.properties)[NAMES] == "%LMQ%a,T"
        assert (await peer.ask(GetMaxOffset("%LMQ%a", 0))).offset == 0


async def test_what_waits_is_there_when_it_comes() -> None:
    async with LocalBroker(**LIGHT) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        assert await peer.refusal(light("%LMQ%a,x", DELAY="1")) == ResponseCode.MESSAGE_ILLEGAL
        await peer.ask(light("%LMQ%a", b"late", DELAY="1"))
        await peer.ask(light("%LMQ%a", b"soon"))
        assert await found(peer, "%LMQ%a") == [(b"soon", "0")]
        await broker.clock.advance(1.5)
        async with asyncio.timeout(20):
            while len(await found(peer, "%LMQ%a")) < 2:
                await broker.clock.advance(0.5)
        assert await found(peer, "%LMQ%a") == [(b"soon", "0"), (b"late", "1")]
        (_, handle), _ = await popped(peer, "%LMQ%a", 2)
        await peer.ask(Ack("pg", "%LMQ%a", 0, handle, 0))  # "soon" is done
        back: list[tuple[bytes, str]] = []
        async with asyncio.timeout(20):
            while not back:  # "late" comes back from the retry topic, and is in no light queue again
                await broker.clock.advance(10)
                back = await popped(peer, "%LMQ%a", 2)
        assert [body for body, _ in back] == [b"late"]
        assert len(await found(peer, "%LMQ%a")) == 2


async def test_deleted_ones_begin_anew_and_so_do_those_whose_messages_expired(tmp_path: Path) -> None:
    async with LocalBroker(store_dir=tmp_path / "store", **LIGHT, **SHORT_LIVED) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        for body in (b"1", b"2"):
            await peer.ask(light("%LMQ%a,%LMQ%b", body))
        await peer.ask(UpdateConsumerOffset("%LMQ%g", "%LMQ%a", 0, 2))
        await peer.ask(DeleteTopic("%LMQ%a"))
        assert await peer.ask_code(QueryConsumerOffset("%LMQ%g", "%LMQ%a", 0, False)) == ResponseCode.QUERY_NOT_FOUND
        await peer.ask(light("%LMQ%a", b"3"))
        await peer.ask(UpdateConsumerOffset("%LMQ%g", "%LMQ%a", 0, 1))  # of its new life
        assert await found(peer, "%LMQ%a") == [(b"3", "0")]
        await broker.stop_broker()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        assert (await peer.ask(QueryConsumerOffset("%LMQ%g", "%LMQ%a", 0))).offset == 1
        assert await found(peer, "%LMQ%b", 1) == [(b"2", "1,1")]
        for number in range(40):  # several files
            await peer.ask(light("", b"%3000d" % number))
        assert broker.serving.store.queues.lights() == {"%LMQ%a", "%LMQ%b"}
        await broker.stop_broker()  # it saves a snapshot
        broker.clock.skip(2 * 3600)
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        await peer.ask(DeleteExpiredLog())
        lights = broker.serving.store.queues.lights
        await broker.clock.advance_until(lambda: not lights(), step_s=5)
        peer = await Peer.connect(broker.address)
        await peer.ask(light("%LMQ%b", b"again"))
        assert await found(peer, "%LMQ%b") == [(b"again", "0")]


async def test_each_node_of_a_group_has_the_same_light_queues(tmp_path: Path) -> None:
    """Also when the leader goes: the next one goes on where the last one stopped."""
    async with LocalGroup(tmp_path, **LIGHT) as group:
        peer = await group.connect(await group.leader())
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        for round_ in range(2):
            leader = await group.leader()
            peer = await group.connect(leader)
            await asyncio.gather(*(peer.ask(light(f"%LMQ%a,%LMQ%{n % 3}", b"%d" % n)) for n in range(10)))
            if not round_:
                await group.stop(leader)
        peer = await group.connect(await group.leader())
        assert (await peer.ask(GetMaxOffset("%LMQ%a", 0))).offset == 20
        assert (await peer.ask(GetMinOffset("%LMQ%1", 0))).offset == 0
        expected = await found(peer, "%LMQ%1")
        assert len(expected) == 6
        for node in group.nodes.values():
            queues = node.serving.store.queues
            await until(lambda queues=queues: queues.look("%LMQ%a", 0).max == 20)
            assert queues.look("%LMQ%1", 0).max == 6


async def test_our_client_sends_to_light_queues_and_reads_them() -> None:
    async with LocalBroker(**LIGHT) as broker:
        await broker.create_topic("Chat", 4)
        async with broker.client() as client, client.producer() as producer:
            for number in range(6):
                await producer.send(
                    Message("Chat", b"%d" % number, light_queues=["room-1", "room-2"] if number % 2 else ["room-2"])
                )
            async with client.light_consumer("anna", "room-1", "Chat") as consumer:
                got = [one for _ in range(3) for one in await consumer.receive(1)]
                assert [(one.body, one.topic, one.queue_offset) for one in got] == [
                    (b"1", "Chat", 0),
                    (b"3", "Chat", 1),
                    (b"5", "Chat", 2),
                ]
                await consumer.commit()
                await producer.send(Message("Chat", b"new", light_queues=["room-1"]))
                assert [one.body for one in await consumer.receive()] == [b"new"]
                assert not await consumer.receive(timeout=0.05)
            async with client.light_consumer("anna", "room-1", "Chat") as consumer:  # "new" was not committed
                assert [one.body for one in await consumer.receive()] == [b"new"]
            with pytest.raises(Refusal):
                await producer.send_batch([Message("Chat", b"1", light_queues=["a"]), Message("Chat", b"2")])


async def test_who_stops_waiting_for_a_light_message_takes_none() -> None:
    """In whichever turn of the loop: one was gone, and the next commit covered it."""
    async with LocalBroker(**LIGHT) as broker:
        await broker.create_topic("Chat", 1)
        async with (
            broker.client() as client,
            client.producer() as producer,
            client.light_consumer("g", "room", "Chat") as consumer,
        ):
            for turns in range(40):
                waiting = asyncio.create_task(consumer.receive(1, timeout=60))
                await asyncio.sleep(0)
                sending = asyncio.create_task(producer.send(Message("Chat", b"%d" % turns, light_queues=["room"])))
                while not sending.done():
                    await asyncio.sleep(0)
                for _ in range(turns):
                    await asyncio.sleep(0)
                waiting.cancel()
                [found] = await asyncio.gather(waiting, return_exceptions=True)
                [message] = await consumer.receive(1) if isinstance(found, BaseException) else found
                assert message.body == b"%d" % turns


async def test_a_broker_that_left_the_route_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    """And it is read again when it is back."""
    asked = 0

    async def never_a_broker(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.close()

    caplog.set_level("INFO", "rmq.client")
    server = await asyncio.start_server(never_a_broker, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    registration = RegisterBroker("C", "other", 0, address, 0, [TopicConfig("Chat")])
    async with server, LocalBroker(**LIGHT) as broker:
        await broker.create_topic("Chat", 1)
        other = await Peer.connect(broker.nameserver)
        await other.ask(registration)
        async with broker.client() as client, client.light_consumer("g", "room", "Chat") as consumer:
            await until(lambda: asked > 3)
            await other.close()
            await broker.clock.advance_until(lambda: "other left the route of Chat" in caplog.text)
            before = asked
            producer = client.producer()
            for number in range(40):
                await broker.clock.advance(3)
                await producer.send(Message("Chat", b"%d" % number, light_queues=["room"]))
                assert [one.body for one in await consumer.receive()] == [b"%d" % number]
            assert asked == before
            other = await Peer.connect(broker.nameserver)
            await other.ask(registration)
            await broker.clock.advance_until(lambda: asked > before)
            await other.close()


async def test_a_commit_that_is_cancelled_is_made_by_the_next_one() -> None:
    """That said it was done, and the messages came again."""
    async with LocalBroker(**LIGHT) as broker:
        await broker.create_topic("Chat", 1)
        async with broker.client() as client, client.producer() as producer:
            await producer.send(Message("Chat", b"once", light_queues=["room"]))
            async with client.light_consumer("g", "room", "Chat") as consumer:
                assert len(await consumer.receive()) == 1
                committing = asyncio.create_task(consumer.commit())
                await asyncio.sleep(0)
                committing.cancel()
                await asyncio.wait([committing])
                assert committing.cancelled()
                await consumer.commit()
            async with client.light_consumer("g", "room", "Chat") as consumer:
                assert not await consumer.receive(timeout=0.1)


async def test_what_was_read_of_a_light_queue_that_is_made_again_is_not_committed() -> None:
    """Who had received, or still had to, what the former one had, committed its offset: of the next one of that name as many
    messages were left out."""
    async with LocalBroker(**LIGHT) as broker:
        await broker.create_topic("Chat", 1)
        peer = await Peer.connect(broker.address)
        async with broker.client() as client:
            async with client.light_consumer("g", "room", "Chat") as consumer:
                await peer.send(*(light("%LMQ%room", b"old", "Chat") for _ in range(10)))
                assert len(await consumer.receive(max=5)) == 5
                await peer.ask(DeleteTopic("%LMQ%room"))
                await peer.send(*(light("%LMQ%room", b"%d" % number, "Chat") for number in range(10)))
                got = list[bytes]()
                while not got or got[-1] == b"old":
                    await consumer.commit()
                    got = [message.body for message in await consumer.receive(max=1, timeout=60)]
                assert got == [b"0"]
            async with client.light_consumer("g", "room", "Chat") as consumer:
                assert [message.body for message in await consumer.receive()] == [b"%d" % number for number in range(10)]
        await peer.close()


def held_pulls(broker: LocalBroker) -> float:
    measured = [family for feature in broker.serving.features for family in feature.metrics()]
    return next(value for family in measured if family.name == "rmq_long_polls" for _, value in family.rows)


async def test_who_has_read_nothing_begins_a_light_queue_anew_that_was_made_again_while_it_was_not_connected() -> None:
    """It waits behind what was committed before it came, and as many messages of the next one of that name were left out."""
    clock = TestClock(running=False)
    async with LocalBroker(**LIGHT) as broker, Client(broker.nameserver, clock=clock) as client:
        await broker.create_topic("Chat", 1)
        peer = await Peer.connect(broker.address)
        await peer.send(*(light("%LMQ%room", b"old", "Chat") for _ in range(10)))
        async with broker.client() as former, former.light_consumer("g", "room", "Chat") as consumer:
            assert len(await consumer.receive()) == 10
            await consumer.commit()
        await until(lambda: not held_pulls(broker))
        async with client.light_consumer("g", "room", "Chat") as consumer:
            await clock.advance_until(lambda: held_pulls(broker))
            await client.session.connections.drop(broker.address)
            await peer.ask(DeleteTopic("%LMQ%room"))
            await peer.send(*(light("%LMQ%room", b"%d" % number, "Chat") for number in range(15)))
            got = list[bytes]()
            while len(got) < 15:
                receiving = asyncio.create_task(consumer.receive(timeout=60))
                await clock.advance_until(receiving.done)
                assert await receiving
                got += [message.body for message in receiving.result()]
            assert got == [b"%d" % number for number in range(15)]
        await peer.close()


async def test_who_sends_to_a_light_queue_or_reads_it_needs_the_right_to_it() -> None:
    """RocketMQ looks at the topic of the message alone when it is sent."""
    async with LocalBroker(**LIGHT, **SETTINGS) as broker:
        root = await login(broker, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        rights = {"writer": (("Topic:T", "Pub"), ("Topic:%LMQ%room*", "Pub")), "reader": (("Topic:%LMQ%room*", "Sub"),)}
        for name, allowed in rights.items():
            await root.ask(CreateUser(name, UserInfo(name, f"{name}-secret")))
            entries = [PolicyEntry(resource, [action], [], "Allow") for resource, action in (*allowed, ("Group:*", "Sub"))]
            await root.ask(acl(name, *entries))
        writer, reader = [await login(broker, name, f"{name}-secret") for name in rights]
        await writer.ask(light("%LMQ%room-1,%LMQ%room-2"))
        assert await found(reader, "%LMQ%room-1") == [(b"body", "0,0")]
        for peer, name in ((reader, "%LMQ%other"), (reader, "T"), (writer, "%LMQ%room-1")):
            with pytest.raises(Refusal) as refused:
                await peer.pull(name, 0)
            assert refused.value.code == ResponseCode.NO_PERMISSION
        assert await writer.refusal(light("%LMQ%room-1,%LMQ%other")) == ResponseCode.NO_PERMISSION
        assert await reader.refusal(light("%LMQ%room-1")) == ResponseCode.NO_PERMISSION


async def test_a_node_that_was_killed_has_each_message_in_its_light_queues_once(tmp_path: Path) -> None:
    async with LocalBroker(store_dir=tmp_path / "store", **LIGHT) as broker:
        await broker.create_topic("T", 1)
        peer = await Peer.connect(broker.address)
        for number in range(3):
            await peer.ask(light("%LMQ%a,%LMQ%b", b"%d" % number))
            if number == 1:  # some entries are on the disk, the last ones are not
                await asyncio.to_thread(broker.serving.store.save_progress)
        copy = copy_of_running(tmp_path / "store", tmp_path / "copy")
    async with LocalBroker(store_dir=copy, **LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(light("%LMQ%b", b"3"))
        assert await found(peer, "%LMQ%a") == [(b"0", "0,0"), (b"1", "1,1"), (b"2", "2,2")]
        assert [body for body, _ in await found(peer, "%LMQ%b")] == [b"0", b"1", b"2", b"3"]
