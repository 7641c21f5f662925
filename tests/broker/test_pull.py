"""Pulls that are answered at once: every row of the table of findings, every refusal, the limits."""

import asyncio
from typing import Any

import pytest

from rmq.codes import ResponseCode as R
from rmq.errors import Refusal
from rmq.model import GroupConfig, Subscription
from rmq.net.commands import DeleteTopic, Pull, UpdateGroup, UpdateTopic
from rmq.net.commands.groups import UpdateForbidden
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import SUBSCRIBED, Peer, beat, bodies, send
from tests.net.support import BarePeer


async def raw_pull(broker: LocalBroker, offset: int, **fields: Any) -> tuple[str, int, int, int, int]:
    """Remark, status, next, min and max offset, as they stand on the wire."""
    host, port = broker.address.split(":")
    peer = await BarePeer.greeted((host, int(port)))
    peer.ask(Pull("g", fields.pop("topic", "T"), 0, offset, sys_flag=SUBSCRIBED, **fields), 7)
    _, call_id, _, remark, following, low, high, _, status, _ = await peer.answer()
    await peer.close()
    assert call_id == 7
    return remark, status, following, low, high


async def test_findings(broker: LocalBroker, peer: Peer) -> None:
    """Each with its code, its remark and the offset to go on from [PullMessageProcessor]."""
    assert await raw_pull(broker, 0) == ("NO_MESSAGE_IN_QUEUE", 19, 0, 0, 0)
    assert await raw_pull(broker, 5) == ("NO_MESSAGE_IN_QUEUE", 21, 0, 0, 0)
    await peer.send(send("T", count=3, tags="A"))
    assert await raw_pull(broker, 0) == ("FOUND", 0, 3, 0, 3)
    assert await raw_pull(broker, 1, max_msg_nums=1) == ("FOUND", 0, 2, 0, 3)
    assert await raw_pull(broker, 0, subscription="B") == ("NO_MATCHED_MESSAGE", 20, 3, 0, 3)
    assert await raw_pull(broker, 3) == ("OFFSET_OVERFLOW_ONE", 19, 3, 0, 3)
    assert await raw_pull(broker, 4) == ("OFFSET_OVERFLOW_BADLY", 21, 3, 0, 3)
    assert await raw_pull(broker, -1) == ("OFFSET_TOO_SMALL", 21, 0, 0, 3)


async def test_refusals_in_their_order(connect: Connect) -> None:
    """26 group, 16 group switched off, 17 topic, 16 not readable, 29 queue, 23 and 1 subscription."""
    async with LocalBroker(auto_create_group=False) as broker:
        await broker.create_topic("T", 2)
        peer = await connect(broker)
        wrong_in_everything = Pull("g", "nowhere", 9, 0, subscription="||")
        assert await peer.refusal(wrong_in_everything) == R.SUBSCRIPTION_GROUP_NOT_EXIST
        await peer.ask(UpdateGroup(GroupConfig("g", consume_enable=False)))
        assert await peer.refusal(wrong_in_everything) == R.NO_PERMISSION
        await peer.ask(UpdateGroup(GroupConfig("g")))
        assert await peer.refusal(wrong_in_everything) == R.TOPIC_NOT_EXIST
        await peer.ask(UpdateTopic("W", read_queue_nums=1, write_queue_nums=1, perm=2))
        assert await peer.refusal(wrong_in_everything._replace(topic="W")) == R.NO_PERMISSION
        assert await peer.refusal(wrong_in_everything._replace(topic="T")) == R.INVALID_PARAMETER
        assert await peer.refusal(wrong_in_everything._replace(topic="T", queue_id=-1)) == R.INVALID_PARAMETER
        assert await peer.refusal(wrong_in_everything._replace(topic="T", queue_id=1)) == R.SUBSCRIPTION_PARSE_FAILED
        assert await peer.refusal(Pull("g", "T", 1, 0, expression_type="SQL92", subscription="a = 1")) == R.SYSTEM_ERROR


async def test_a_bad_group_name_is_refused(peer: Peer) -> None:
    """S9."""
    assert await peer.refusal(Pull("a b", "T", 0, 0)) == R.INVALID_PARAMETER


async def test_the_subscription_comes_from_the_heartbeat_unless_the_pull_brings_it(peer: Peer) -> None:
    await peer.send(send("T", b"a", tags="A"), send("T", b"b", tags="B"))
    assert await peer.refusal(Pull("g", "T", 0, 0, sys_flag=0)) == R.SUBSCRIPTION_NOT_EXIST
    await peer.ask(beat("c", "g", expression="B", version=5))
    assert await peer.refusal(Pull("g", "T", 0, 0, sys_flag=0, sub_version=6)) == R.SUBSCRIPTION_NOT_LATEST
    assert bodies(await peer.pull("T", 0, flag=0, sub_version=5)) == [b"b"]
    assert bodies(await peer.pull("T", 0, flag=0, sub_version=4)) == [b"b"]
    assert bodies(await peer.pull("T", 0, subscription="A", sub_version=9)) == [b"a"], "the pull's own goes first"
    await peer.ask(beat("c", "g", expression="A", version=7))
    assert bodies(await peer.pull("T", 0, flag=0, sub_version=7)) == [b"a"]


@pytest.mark.parametrize(
    ("expression", "found"), [("*", b"abc"), ("", b"abc"), ("A || C", b"ac"), ("A", b"a"), (" C||A ", b"ac")]
)
async def test_tags(peer: Peer, expression: str, found: bytes) -> None:
    """C14."""
    await peer.send(*(send("T", body, tags=tag) for body, tag in ((b"a", "A"), (b"b", "B"), (b"c", "C"))))
    answer = await peer.pull("T", 0, subscription=expression)
    assert b"".join(bodies(answer)) == found
    assert answer.next_begin_offset == 3


async def test_one_answer_holds_at_most_32_messages(peer: Peer) -> None:
    await peer.send(send("T", count=100))
    assert (await peer.pull("T", 0, max_msg_nums=64)).next_begin_offset == 32
    assert (await peer.pull("T", 10, max_msg_nums=5)).next_begin_offset == 15
    assert (await peer.pull("T", 0, max_msg_nums=0)).next_begin_offset == 1, "never none: the group would stand still"
    assert (await peer.pull("T", 0, max_msg_nums=-1)).next_begin_offset == 1


async def test_one_answer_holds_at_most_256_kib_but_one_message_always(peer: Peer) -> None:
    await peer.send(send("T", b"x" * 100_000, count=4), send("T", b"x" * 300_000))
    first = await peer.pull("T", 0)
    assert (first.next_begin_offset, len(first.messages) <= 256 * 1024) == (2, True)
    assert (await peer.pull("T", 2)).next_begin_offset == 4, "the large one does not fit beside them"
    assert bodies(await peer.pull("T", 4)) == [b"x" * 300_000]


async def test_a_filter_that_matches_nothing_goes_on_800_entries_at_a_time(peer: Peer) -> None:
    await peer.send(*(send("T", b".", count=200, tags="A") for _ in range(5)))
    answer = await peer.pull("T", 0, subscription="B")
    assert (answer.status, answer.next_begin_offset) == (R.PULL_RETRY_IMMEDIATELY, 800)
    answer = await peer.pull("T", 800, subscription="B")
    assert (answer.status, answer.next_begin_offset) == (R.PULL_RETRY_IMMEDIATELY, 1000)


async def test_the_same_offset_gives_the_same_bytes_for_ever(peer: Peer) -> None:
    """C3."""
    await peer.send(send("T", b"one"), send("T", b"two"))
    first = (await peer.pull("T", 0)).messages
    await peer.send(send("T", b"three"))
    assert (await peer.pull("T", 0, max_msg_nums=2)).messages == first


async def test_a_deleted_topic_is_gone_for_readers(peer: Peer) -> None:
    await peer.send(send("T"))
    await peer.ask(DeleteTopic("T"))
    assert await peer.refusal(Pull("g", "T", 0, 0)) == R.TOPIC_NOT_EXIST


async def test_subscriptions_are_remembered_per_topic(peer: Peer) -> None:
    heartbeat = beat("c", "g")
    await peer.ask(heartbeat)
    two = heartbeat.consumers[0]._replace(subscriptions=[Subscription("T"), Subscription("BenchmarkTest")])
    await peer.ask(heartbeat._replace(consumers=[two]))
    assert (await peer.pull("BenchmarkTest", 0, flag=0)).status == R.PULL_NOT_FOUND
    await peer.ask(heartbeat)
    assert await peer.refusal(Pull("g", "BenchmarkTest", 0, 0, sys_flag=0)) == R.SUBSCRIPTION_NOT_EXIST


async def test_what_a_former_pull_was_allowed_is_asked_again_after_each_change(peer: Peer) -> None:
    """Consecutive pulls are checked once; a change of the group, the topic or the subscription ends that, at once."""
    await peer.send(send("T", b"first", tags="A"))

    async def pulled(flag: int = SUBSCRIBED, **fields: Any) -> int:
        """The code of the second of two pulls, which finds what is remembered of the first."""
        await peer.ask_code(asked := Pull("g", "T", 0, 0, sys_flag=flag, **fields))
        return await peer.ask_code(asked)

    open_group, open_topic = UpdateGroup(GroupConfig("g")), UpdateTopic("T", read_queue_nums=4, write_queue_nums=4, perm=6)
    await peer.ask(open_group)
    assert await pulled() == R.SUCCESS
    for shut, again in (
        (UpdateGroup(GroupConfig("g", consume_enable=False)), open_group),
        (open_topic._replace(perm=2), open_topic),
        (UpdateForbidden("g", "T", "false"), UpdateForbidden("g", "T", "true")),
    ):
        await peer.ask(shut)
        assert await pulled() == R.NO_PERMISSION, shut
        await peer.ask(again)
        assert await pulled() == R.SUCCESS, again
    assert await pulled(flag=0) == R.SUBSCRIPTION_NOT_EXIST
    await peer.ask(beat("c", "g", expression="A"))
    assert await pulled(flag=0) == R.SUCCESS
    await peer.ask(beat("c", "g", expression="B", version=2))
    assert (await peer.pull("T", 0, flag=0)).status == R.PULL_RETRY_IMMEDIATELY
    assert await pulled() == R.SUCCESS
    await peer.ask(DeleteTopic("T"))
    assert await pulled() == R.TOPIC_NOT_EXIST
    await peer.ask(open_topic)
    await peer.send(send("T", b"second"))
    assert bodies(await peer.pull("T", 0)) == [b"second"]


async def test_pulls_of_one_read_get_what_each_would_get_alone(broker: LocalBroker, peer: Peer) -> None:
    """Between them a send, which is stored behind, and pulls that wait, are refused, or find nothing: all in any order."""
    await peer.send(send("T", count=40, tags="A"), send("T", count=3, tags="B"))
    asked = [
        Pull("g", "T", 0, 0, sys_flag=SUBSCRIBED),
        Pull("g", "T", 0, 38, 5, sys_flag=SUBSCRIBED),
        Pull("g", "T", 0, 30, sys_flag=SUBSCRIBED | 1, commit_offset=30),
        Pull("g", "T", 0, 0, sys_flag=SUBSCRIBED | 1, commit_offset=10**6),
        Pull("other", "T", 0, 5, 2, sys_flag=SUBSCRIBED),
        Pull("g", "T", 0, 0, sys_flag=SUBSCRIBED, subscription="B"),
        Pull("g", "T", 0, 0, sys_flag=SUBSCRIBED, subscription="C"),
        Pull("g", "T", 0, 44, sys_flag=SUBSCRIBED),
        Pull("g", "T", 0, -1, sys_flag=SUBSCRIBED),
        Pull("g", "T", 9, 0, sys_flag=SUBSCRIBED),
        Pull("g", "nowhere", 0, 0, sys_flag=SUBSCRIBED),
    ]
    alone = [await said(peer, one) for one in asked]
    assert [await said(peer, one) for one in asked] == alone
    for _ in range(3):
        assert await asyncio.gather(*(said(peer, one) for one in asked)) == alone
        asked, alone = asked[3:] + asked[:3], alone[3:] + alone[:3]
    one, _, two = await asyncio.gather(said(peer, asked[0]), peer.send(send("T")), said(peer, asked[1]))
    assert (one[:2], two[:2]) == (alone[0][:2], alone[1][:2])


async def said(peer: Peer, request: Pull) -> tuple[object, ...]:
    """What the broker answers."""
    try:
        answer = await peer.ask(request)
    except Refusal as refusal:
        return int(refusal.code), refusal.remark
    return answer.status, answer.messages, *answer
