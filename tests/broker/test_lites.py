"""Lite topics: a message is in the lite topic that it names, whoever sends it, and in no other one."""

from typing import Any

import pytest

from rmq.codes import ResponseCode as R
from rmq.log.queues.consumequeue import ConsumeQueue
from rmq.log.queues.queues import ConsumeQueues
from rmq.log.records import record
from rmq.model import LITE_PROPERTY
from rmq.names import lite_parts, lite_queue
from rmq.net.commands import DeleteTopic, GetTopicConfig, Pull, SearchOffset, Send, UpdateTopic
from rmq.net.commands.access import PolicyEntry
from rmq.net.commands.lites import PARTIAL_ADD, PARTIAL_REMOVE
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.broker.litepops import bodies_of, bound, declare, pop_lite
from tests.broker.support import BORN, Peer, bodies, everything
from tests.broker.test_access import SETTINGS, login, make_user
from tests.broker.test_lights import LIGHT, NAMES, OFFSETS

LONG = "P" * 127, "n" * 64


def parent(topic: str = "P", more: str = "") -> UpdateTopic:
    return UpdateTopic(topic, read_queue_nums=2, write_queue_nums=2, attributes=f"+message.type=LITE{more}")


def to_lite(lite: str, body: bytes = b"body", topic: str = "P", queue_id: int = 0, **more: str) -> Send:
    properties = record.properties_to_bytes(({LITE_PROPERTY: lite} if lite else {}) | more)
    return Send("p", topic, queue_id, record.draft(topic, body, properties, born_timestamp=1000, born_host=BORN))


async def said(peer: Peer, lite: str, topic: str = "P") -> list[tuple[bytes, str, str]]:
    """Body, light queues and offsets there of the messages in a lite topic."""
    answer = await peer.pull(lite_queue(topic, lite), 0)
    found = [(one.body, record.bytes_to_properties(one.properties)) for one in record.iterate(answer.messages)]
    return [(body, properties[NAMES], properties[OFFSETS]) for body, properties in found]


async def test_a_message_is_in_the_lite_topic_that_it_names() -> None:
    """[SendMessageProcessor] From our clients and RocketMQ's, later ones too; what else the sender names counts for nothing."""
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(parent(more=",+lite.topic.expiration=30"))
        await peer.ask(parent(LONG[0]))
        assert (await peer.ask(GetTopicConfig("P"))).attributes == {"message.type": "LITE", "lite.topic.expiration": "30"}
        await peer.send(
            to_lite("a", b"1", **{NAMES: "%LMQ%other,%LMQ%$P$b"}),
            to_lite("", b"plain"),
            to_lite("b", b"2", queue_id=1, TAGS="t"),
            to_lite("a", b"3", queue_id=-1),
            to_lite("a", b"later", DELAY="1"),
            to_lite(LONG[1], b"long", LONG[0]),
        )
        async with JavaClient.connect(broker.address) as java:
            for body in (b"json", b"json again"):
                fields = {"i": f"{LITE_PROPERTY}\x01a\x02", "e": "1"}
                assert (await java.send(body, "P", **fields))[0].code == 0
            await peer.pull("%LMQ%$P$a", 4, 6, suspend_timeout_millis=30_000)  # waits for the one that comes later
            text, later = "%LMQ%$P$a", await said(peer, "a")
            assert later[:2] == [(b"1", text, "0"), (b"3", text, "1")]
            assert sorted(later[2:]) == sorted((body, text, later[i][2]) for i, (body, *_) in enumerate(later[2:], 2))
            assert {body for body, *_ in later[2:]} == {b"json", b"json again", b"later"}
            assert await said(peer, "b") == [(b"2", "%LMQ%$P$b", "0")]
            assert await said(peer, LONG[1], LONG[0]) == [(b"long", lite_queue(*LONG), "0")]
            assert (await peer.pull("%LMQ%other", 0)).status, "nobody sent there"
            assert {b"1", b"plain"} <= {one.body for one in await everything(peer, "P")}, "they are in the topic as well"
            for ext, expected in (({"liteTopic": "a"}, 2), ({"liteTopic": "none"}, 0), ({}, 1)):
                asked = {"topic": "P", "queueId": "0", "timestamp": str(2**50), **ext}
                header, _ = await java.greet(29, **asked)
                assert (header.code, int(header.ext["offset"]) >= expected) == (0, True)
            fields = {
                "consumerGroup": "g", "topic": "P", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4",
                "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*", "liteTopic": "b",
            }  # fmt: skip
            header, body = await java.greet(11, **fields)
            assert header.code == 0
            assert [one.body for one in record.iterate(body)] == [b"2"]
        assert bodies(await peer.ask(Pull("g", "%LMQ%$P$b", 0, 0))) == [b"2"]
        assert (await peer.ask(SearchOffset("%LMQ%$P$a", 0, 0))).offset == 0
        await peer.close()
        await broker.stop_broker()
        await broker.start_broker()
        peer = await Peer.connect(broker.address)
        assert await said(peer, "b") == [(b"2", "%LMQ%$P$b", "0")]
        await peer.close()


async def test_a_lite_topic_of_another_name_is_refused() -> None:
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(parent())
        for lite in ("a$b", "a,b", "a@b", "a/b", "..", " ", "a b", "\u00e4", "n" * 65, "%LMQ%a", "a\u2028", "a."):
            assert await peer.refusal(to_lite(lite)) == R.MESSAGE_ILLEGAL, lite
        two = to_lite("a", b"1").records + to_lite("", b"2").records
        assert await peer.refusal(Send("p", "P", 0, two, batch=True)) == R.MESSAGE_ILLEGAL, "no batch"
        full = to_lite("a", **{"x": "y" * 32_690})
        assert await peer.refusal(full) == R.MESSAGE_ILLEGAL, "no room for its place"
        await peer.send(to_lite("a"))
        assert len(await everything(peer, "P")) == 1
        await peer.close()


async def test_elsewhere_the_name_of_a_lite_topic_means_nothing() -> None:
    """Topics of other types, and brokers without light queues: the message is stored as it is."""
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        await broker.create_topic("P")
        await peer.send(to_lite("a"), to_lite("a$b"))
        assert await said(peer, "a") == []
        for wrong in ("lite.topic.expiration=-2", "lite.topic.expiration=43201", "message.type=Lite"):
            assert await peer.refusal(UpdateTopic("Q", attributes=f"+{wrong}")) == R.SYSTEM_ERROR
        await peer.close()
    async with LocalBroker() as plain:
        peer = await Peer.connect(plain.address)
        await peer.ask(parent())
        await peer.send(to_lite("a"))
        assert len(await everything(peer, "P")) == 1
        await peer.close()


async def test_who_may_send_to_a_topic_may_send_to_its_lite_topics() -> None:
    async with LocalBroker(**SETTINGS, **LIGHT) as local:
        root = await login(local, "root", "root-secret")
        for topic in ("P", "Q"):
            await root.ask(parent(topic))
        await make_user(root, "eve", PolicyEntry("Topic:P", ["Pub"]))
        eve = await login(local, "eve", "eve-secret")
        await eve.ask(to_lite("a"))
        assert await eve.refusal(to_lite("a", topic="Q")) == R.NO_PERMISSION
        assert await eve.refusal(Pull("g", lite_queue("P", "a"), 0, 0)) == R.NO_PERMISSION, "to send is not to read"
        for peer in (root, eve):
            await peer.close()


def test_names_of_lite_topics() -> None:
    """[LiteUtil]"""
    assert lite_parts(lite_queue(*LONG)) == LONG
    others: list[Any] = ["%LMQ%$P$", "%LMQ%$$a", "%LMQ%$P$a$b", "%LMQ%P$a", "%LMQ%$a", "P", "%LMQ%$P$a,b"]
    assert {lite_parts(name) for name in others} == {("", "")}


async def test_many_lite_topics_that_go_with_their_topic_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each of them its own queue is looked at. While all queues were, a leader with 20 000 stood still for 19 s."""
    looked, every = [0], ConsumeQueues.all

    def counted(self: ConsumeQueues) -> list[ConsumeQueue]:
        looked[0] += 1
        return every(self)

    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(parent())
        await peer.send(*(to_lite(f"{number}") for number in range(100)))
        monkeypatch.setattr(ConsumeQueues, "all", counted)
        await peer.ask(DeleteTopic("P"))
        assert not broker.serving.store.queues.lights()
        assert looked[0] < 20, "not once for each"
        await peer.close()


async def test_a_group_that_is_switched_off_may_give_up_lite_topics() -> None:
    """Its consumer heard that it is not allowed to consume, and was given them again when the group was switched on."""
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        for request in (parent(), bound(), declare("a", "b")):
            await peer.ask(request)
        off = bound()
        await peer.ask(off._replace(config=off.config._replace(consume_enable=False)))
        assert await peer.refusal(declare("c", action=PARTIAL_ADD)) == R.ILLEGAL_OPERATION
        assert await peer.refusal(pop_lite()) == R.NO_PERMISSION
        await peer.ask(declare("a", action=PARTIAL_REMOVE))
        await peer.ask(bound())
        await peer.send(to_lite("a", b"1"), to_lite("b", b"2"))
        assert await bodies_of(peer.ask) == [b"2"]
        await peer.close()


async def test_as_many_lite_topics_may_be_given_up_as_a_client_has() -> None:
    """Its group allows fewer by now, and it heard that it wants too many."""
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        for request in (parent(), bound(), declare("a", "b", "c"), bound(sub_client_quota="1")):
            await peer.ask(request)
        assert await peer.refusal(declare("d", "e", action=PARTIAL_ADD)) == R.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        await peer.ask(declare("a", "b", action=PARTIAL_REMOVE))
        await peer.send(*(to_lite(name, name.encode()) for name in "abc"))
        assert await bodies_of(peer.ask) == [b"c"]
        await peer.close()
