"""What tools see of lite topics [LiteManagerProcessor], natively and as RocketMQ's ask it."""

import asyncio
import threading

import pytest

from rmq.codes import ResponseCode as R
from rmq.names import lite_queue
from rmq.net.commands.lites import (
    BrokerLiteInfo,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteClientInfo,
    LiteSubscriber,
    ParentTopicInfo,
    TriggerLiteDispatch,
)
from rmq.testing import LocalBroker, TestClock
from tests.broker.javaclient import JavaClient
from tests.broker.litepops import ack_lites, bound, declare, hide, pop_lite, popped_lites, take_lites
from tests.broker.support import Peer
from tests.broker.test_damage import damage
from tests.broker.test_lights import LIGHT
from tests.broker.test_lites import parent, to_lite
from tests.net.java_peer import read_answer


@pytest.mark.parametrize("java", [False, True])
async def test_what_tools_see(java: bool) -> None:
    async with LocalBroker(clock=TestClock(running=False), **LIGHT) as local, JavaClient.connect(local.address) as client:
        peer = await Peer.connect(local.address)

        async def ask(request: object) -> object:
            if not java:
                return await peer.ask(request)
            header, body = await client.ask(request)
            assert header.code == 0, header.remark
            return read_answer(header, body, type(request))

        await peer.ask(parent(more=",+lite.topic.expiration=60"))
        await peer.ask(parent("Other"))
        for group in ("g", "h"):
            await peer.ask(bound(group))
        await peer.ask(bound("all", sub_wildcard="true"))
        await peer.send(*(to_lite("a", b"%d" % number) for number in range(5)), to_lite("b"), to_lite("x", topic="Other"))
        await peer.ask(declare("a", "b"))
        await peer.ask(declare("a", client="d", group="h"))
        await peer.ask(declare(client="e", group="all"))
        found = await take_lites(peer.ask, count=3)
        await ack_lites(peer.ask, found[0])

        broker = await ask(GetBrokerLiteInfo())
        assert isinstance(broker, BrokerLiteInfo)
        metas = {"P": 60, "Other": -1}, {"P": ["all", "g", "h"]}
        assert broker == BrokerLiteInfo("default", 20_000, 3, 4, 1, broker.cq_table_size, 1, 3, *metas)
        assert await ask(GetParentTopicInfo("P")) == ParentTopicInfo("P", 60, ["all", "g", "h"], 3, 2)
        topic = await ask(GetLiteTopicInfo("P", "a"))
        assert topic[2:5] == ([LiteSubscriber("c", "g"), LiteSubscriber("d", "h"), LiteSubscriber("*", "all")], 0, 5)
        assert topic[5] > 0
        assert topic[6]
        assert (await ask(GetLiteTopicInfo("P", "none")))[3:6] == (0, 0, 0)
        who = await ask(GetLiteClientInfo("P", "g", "c", 1))
        assert (who.lite_topic_count, who.lite_topic_set) == (2, [lite_queue("P", "a")])
        assert who.last_consume_time == who.last_access_time > 0
        assert await ask(GetLiteClientInfo("P", "g", "?")) == LiteClientInfo("P", "g", "?", -1, 0, -1, [])
        whole = await ask(GetLiteGroupInfo("g", "", 5))
        assert (whole.total_lag_count, [one[:2] for one in whole.lag_count_top_k]) == (4, [("a", 4)])
        assert whole.lag_timestamp_top_k == whole.lag_count_top_k
        assert whole.earliest_unconsumed_timestamp == whole.lag_count_top_k[0].earliest_unconsumed_timestamp > 0
        one = await ask(GetLiteGroupInfo("g", "a"))
        assert (one.total_lag_count, one.broker_offset, one.consumer_offset) == (4, 5, 1)
        assert one.last_timestamp > 0
        assert (await ask(GetLiteGroupInfo("h", "a"))).broker_offset == -1, "it has no offset there"
        assert (await ask(GetLiteGroupInfo("h", "none"))).total_lag_count == -1
        for asked, code in (
            (GetParentTopicInfo("None"), R.TOPIC_NOT_EXIST),
            (GetLiteTopicInfo("TBW102", "a"), R.INVALID_PARAMETER),
            (GetLiteClientInfo("Other", "g", "c"), R.INVALID_PARAMETER),
            (GetLiteGroupInfo("none"), R.SUBSCRIPTION_GROUP_NOT_EXIST),
            (GetLiteGroupInfo("TOOLS_CONSUMER"), R.INVALID_PARAMETER),
            (TriggerLiteDispatch("none"), R.SUBSCRIPTION_GROUP_NOT_EXIST),
        ):
            assert await peer.refusal(asked) == code, asked
        await ask(TriggerLiteDispatch("g", "c"))
        await ask(TriggerLiteDispatch("h"))
        waiting = asyncio.create_task(peer.ask(pop_lite("d", "h")))
        assert len(popped_lites(await waiting)) == 5
        await peer.close()


async def test_what_tools_see_of_a_damaged_message() -> None:
    """D8: all but its time, as of other queues. The whole answer was refused, with what it says of thousands of others."""
    async with LocalBroker(**LIGHT) as local:
        peer = await Peer.connect(local.address)
        await peer.ask(parent())
        await peer.ask(bound())
        await peer.send(to_lite("a"), to_lite("b"))
        await peer.ask(declare("a", "b"))
        await ack_lites(peer.ask, *await take_lites(peer.ask))
        await peer.send(to_lite("a", b"whole"), to_lite("b", b"damaged in b"))
        await local.clock.advance(15)
        await local.stop_broker()
        damage(local.store_dir, b"damaged in b")
        await local.start_broker()
        await peer.close()
        peer = await Peer.connect(local.address)
        assert (await peer.ask(GetLiteTopicInfo("P", "b")))[3:6] == (0, 2, 0)
        whole = await peer.ask(GetLiteGroupInfo("g", "", 5))
        times = {one.lite_topic: one.earliest_unconsumed_timestamp for one in whole.lag_count_top_k}
        assert (whole.total_lag_count, times["b"]) == (2, -1)
        assert times["a"] == whole.earliest_unconsumed_timestamp > 0
        one = await peer.ask(GetLiteGroupInfo("g", "b"))
        assert (one.total_lag_count, one.earliest_unconsumed_timestamp) == (1, -1)
        await peer.close()


async def test_rocketmqs_proxy_declares_pops_and_acknowledges() -> None:
    """JSON and binary headers; `liteTopic` beside the topic; the former owner is told by 200073."""
    async with LocalBroker(**LIGHT) as local, JavaClient.connect(local.address) as old, JavaClient.connect(local.address) as new:
        peer = await Peer.connect(local.address)
        await peer.ask(parent())
        await peer.ask(bound(sub_model="Exclusive"))
        await peer.send(to_lite("a", b"1"), to_lite("a", b"2"))
        assert (await old.ask(declare("a", action="PARTIAL_ADD")))[0].code == 0
        for binary in (False, True):
            header, body = await old.ask(pop_lite(), binary)
            assert header.code == (0 if not binary else R.POLLING_TIMEOUT)
            assert header.ext["reviveQid"] == "999"
            if not binary:
                assert header.ext["orderCountInfo"] == "0;0"
                assert "startOffsetInfo" not in header.ext
                found = popped_lites(read_answer(header, body, type(pop_lite())))
        for one in found:
            ext = {"consumerGroup": "g", "topic": "P", "queueId": "0", "extraInfo": one.handle, "offset": str(one.offset)}
            assert (await old.greet(200053, **ext, invisibleTime="60000", liteTopic="a"))[0].code == 0
            assert (await old.greet(200051, **ext, liteTopic="a"))[0].code == 0
        assert (await peer.refusal(hide(found[0], 1))) == R.NO_MESSAGE
        assert (await new.ask(declare("a", client="n", action="PARTIAL_ADD")))[0].code == 0
        while not old.pushed:
            await asyncio.sleep(0)
        header, _ = old.pushed[0]
        assert (header.code, header.flag) == (200073, 2)
        assert header.ext == {"liteTopic": "a", "consumerGroup": "g", "clientId": "c"}
        odd = [b"", b"{}", b'{"subscriptionSet":[]}', b"[]", b"\xff", b'{"subscriptionSet":[1]}']
        odd += [
            b'{"subscriptionSet":[{"action":7}]}',
            b'{"subscriptionSet":[{"action":"X","clientId":"c","group":"g","topic":"P"}]}',
        ]
        odd += [b'{"subscriptionSet":[{"action":2,"clientId":"c","group":"g","topic":"P","liteTopicSet":[["a"]]}]}']
        for body in odd:
            assert (await new.body(200071, body))[0].code in (R.ILLEGAL_OPERATION, R.SYSTEM_ERROR), body
        await peer.close()


async def test_offsets_are_walked_through_by_who_changes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread that failed when an offset was committed meanwhile: "dictionary changed size during iteration"."""
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(parent())
        await peer.ask(bound())
        offsets, threads = broker.serving.tables.offsets, list[int]()
        topics_of = offsets.topics_of

        def watched(group: str) -> set[str]:
            threads.append(threading.get_ident())
            return topics_of(group)

        monkeypatch.setattr(offsets, "topics_of", watched)
        assert (await peer.ask(GetLiteGroupInfo("g", "", 5))).total_lag_count == 0
        assert threads == [threading.get_ident()]
        await peer.close()


async def test_the_lag_of_all_lite_topics_of_a_topic_is_one() -> None:
    """However many there are."""
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(parent())
        await peer.ask(bound())
        await peer.send(*(to_lite(name, b"%d" % number) for name in "abc" for number in range(4)))
        await peer.ask(declare("a", "b", "c"))
        found = await take_lites(peer.ask)
        await ack_lites(peer.ask, *found[:2])
        rows = {family.name: dict(family.rows) for family in broker.serving.metrics()}  # one after the other, as they are told
        lags = rows["rocketmq_consumer_lag_messages"]
        assert {labels[:2]: value for labels, value in lags.items() if labels[1] == "g"} == {("P", "g"): 10.0}
        await peer.close()
