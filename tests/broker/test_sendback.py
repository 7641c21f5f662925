"""Failed messages at a real broker: given back (36), or sent to the retry topic by their consumer."""

import asyncio
import json
from typing import Any

import pytest

from rmq.codes import ResponseCode as R
from rmq.log.records import record
from rmq.model import DLQ_PREFIX, PROOF_PROPERTY, RETRY_PREFIX, GroupConfig, MessageQueue
from rmq.net.commands import DeleteGroup, GetGroupConfig, GetMaxOffset, GetTopicConfig, Pull, Send, UpdateGroup, UpdateTopic
from rmq.net.commands.locks import LockQueues
from rmq.net.commands.retries import SendBack
from rmq.testing import LocalBroker
from tests.broker.support import BORN, HELD, Peer
from tests.broker.transactions import properties

DEAD = DLQ_PREFIX + "g"


def draft(topic: str, body: bytes, reconsume_times: int = 0, **properties: str) -> Send:
    raw = record.properties_to_bytes(properties)
    made = record.draft(topic, body, raw, flag=7, born_timestamp=1000, born_host=BORN, reconsume_times=reconsume_times)
    return Send("p", topic, 0, made)


async def stored(peer: Peer, topic: str) -> list[tuple[record.Record, dict[str, str]]]:
    found = record.iterate((await peer.pull(topic, 0)).messages)
    return [(one, record.bytes_to_properties(one.properties)) for one in found]


async def give_back(peer: Peer, offset: int, **fields: Any) -> None:
    await peer.ask(SendBack(offset, "g", fields.pop("delay_level", 0), **fields))


async def test_a_dead_letter_is_the_message_with_where_it_came_from(peer: Peer) -> None:
    """C10; as golden set s09 has it: id, keys, tag, flag and own properties stay."""
    (sent,) = await peer.send(draft("T", b"body", UNIQ_KEY="A" * 32, KEYS="k1 k2", TAGS="red", shop="s1"))
    await give_back(peer, sent.physical_offset, delay_level=-1)
    assert await peer.ask(GetTopicConfig(DEAD)) == (DEAD, 1, 1, 6, "SINGLE_TAG", 0, False, {})
    ((letter, said),) = await stored(peer, DEAD)
    first = record.decode((await peer.pull("T", 0)).messages)
    assert (letter.body, letter.flag, letter.born_timestamp, letter.born_host) == (b"body", 7, 1000, BORN)
    assert letter.reconsume_times == 1
    said.pop("__CRC32#")
    assert said == {
        "UNIQ_KEY": "A" * 32, "KEYS": "k1 k2", "TAGS": "red", "shop": "s1", "RETRY_TOPIC": "T", "WAIT": "false", "DELAY": "0",
        "ORIGIN_MESSAGE_ID": record.message_id(first.store_host, first.physical_offset),
    }  # fmt: skip
    assert record.entry_code(letter) == record.tags_code("red")


@pytest.mark.parametrize(("tries", "most", "of_group"), [(16, -1, 16), (2, 2, 16), (0, -1, 0), (3, -1, 3)])
async def test_after_so_many_tries_it_is_a_dead_letter(peer: Peer, tries: int, most: int, of_group: int) -> None:
    """C10: as the consumer says, else as the group's settings say."""
    await peer.ask(UpdateGroup(GroupConfig("g", retry_max_times=of_group)))
    (sent,) = await peer.send(draft("T", b"tired", tries))
    await give_back(peer, sent.physical_offset, max_reconsume_times=most)
    assert [(letter.body, letter.reconsume_times) for letter, _ in await stored(peer, DEAD)] == [(b"tired", tries + 1)]


async def test_what_a_deleted_group_failed_is_not_counted_any_more(broker: LocalBroker, peer: Peer) -> None:
    """One made again begins at 0, and names of groups come and go without an end."""
    (sent,) = await peer.send(draft("T", b"body"))

    def counted() -> list[float | None]:
        rows = {family.name: dict(family.rows) for family in broker.serving.metrics()}
        names = ("rmq_send_to_retry_messages_total", "rocketmq_send_to_dlq_messages_total")
        return [rows[name].get(("g", "false")) for name in names]

    for _ in range(2):
        for level in (0, -1):
            await give_back(peer, sent.physical_offset, delay_level=level)
        assert counted() == [1.0, 1.0]
        await peer.ask(DeleteGroup("g"))
        assert counted() == [None, None]


async def test_a_failed_message_waits_as_rocketmq_lets_it_wait_and_comes_again(broker: LocalBroker, peer: Peer) -> None:
    """As golden set s09 has it: in the delay topic, with the retry topic as its real one; there with RMQ_SRC besides."""
    await peer.ask(UpdateGroup(GroupConfig("g", retry_queue_nums=2)))
    (sent,) = await peer.send(draft("T", b"body", UNIQ_KEY="A" * 32, TAGS="red"))
    await give_back(peer, sent.physical_offset, delay_level=1, origin_msg_id="A" * 32)
    first = record.decode((await peer.pull("T", 0)).messages)
    ((waits, said),) = await stored(peer, "SCHEDULE_TOPIC_XXXX")
    expected = {
        "UNIQ_KEY": "A" * 32,
        "TAGS": "red",
        "RETRY_TOPIC": "T",
        "WAIT": "false",
        "DELAY": "1",
        "REAL_TOPIC": RETRY_PREFIX + "g",
        "ORIGIN_MESSAGE_ID": record.message_id(first.store_host, first.physical_offset),
    }
    assert {name: said[name] for name in expected} == expected
    assert (waits.reconsume_times, waits.body, waits.queue_id) == (1, b"body", 0)
    real = int(said["REAL_QID"])
    assert real in (0, 1)
    pulling = asyncio.create_task(peer.pull(RETRY_PREFIX + "g", 0, HELD, queue_id=real))
    await broker.clock.advance_until(pulling.done)
    again = record.decode(pulling.result().messages)
    assert (again.body, again.reconsume_times, again.born_timestamp) == (b"body", 1, 1000)
    assert record.bytes_to_properties(again.properties).items() >= expected.items()
    await give_back(peer, again.physical_offset, max_reconsume_times=1)
    ((letter, said),) = await stored(peer, DEAD)
    assert (letter.reconsume_times, said["RETRY_TOPIC"]) == (2, "T")
    assert said["ORIGIN_MESSAGE_ID"] == expected["ORIGIN_MESSAGE_ID"]
    assert "REAL_TOPIC" not in said
    assert "RMQ_SRC" not in said


async def test_a_failed_message_waits_as_the_groups_policy_says(broker: LocalBroker, peer: Peer) -> None:
    """After a restart, too; exported for RocketMQ; a second failure waits longer."""
    group = "g" * 120
    policy = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":2000,"max":600000,"multiplier":10}}'
    await peer.ask(UpdateGroup(GroupConfig(group, retry_policy=policy)))
    assert await peer.refusal(UpdateGroup(GroupConfig(group, retry_policy="{]"))) == R.INVALID_PARAMETER
    await broker.stop_broker()
    exported = json.loads((broker.store_dir / "config" / "subscriptionGroup.json").read_text())
    assert exported["subscriptionGroupTable"][group]["groupRetryPolicy"] == json.loads(policy)
    await broker.start_broker()
    again = await Peer.connect(broker.address)
    (sent,) = await again.send(draft("T", b"body", UNIQ_KEY="A" * 32))
    offset = sent.physical_offset
    for tries, wait_ms in enumerate((2000, 20_000)):
        await again.ask(SendBack(offset, group, 0))
        began = broker.clock.wall_ms()
        pulling = asyncio.create_task(
            again.ask(Pull(group, RETRY_PREFIX + group, 0, tries, sys_flag=HELD, suspend_timeout_millis=60_000))
        )
        await broker.clock.advance_until(pulling.done)
        found = record.decode(pulling.result().messages)
        due_ms = int(properties(found)[PROOF_PROPERTY].split()[-1])
        assert wait_ms <= due_ms - began + 1000 < wait_ms + 5000
        assert (found.body, found.reconsume_times) == (b"body", tries + 1)
        offset = found.physical_offset
    await again.ask(UpdateGroup(GroupConfig(group)))
    assert (await again.ask(GetGroupConfig(group))).retry_policy == ""
    await again.close()


async def test_a_group_that_wants_no_retries_gets_none(peer: Peer) -> None:
    await peer.ask(UpdateGroup(GroupConfig("g", retry_queue_nums=0)))
    (sent,) = await peer.send(draft("T", b"gone"))
    await give_back(peer, sent.physical_offset)
    assert (await peer.ask(GetMaxOffset(DEAD, 0))).offset == 0


async def test_what_is_no_message_is_refused(peer: Peer) -> None:
    """S5, C11: any number may come as an offset; records of the broker itself are nobody's messages."""
    (sent,) = await peer.send(draft("T", b"body"))
    state = record.decode((await peer.pull("rmq_sys_STATE", 0)).messages).physical_offset
    for offset in (-1, sent.physical_offset + 1, sent.physical_offset + 100_000, 2**63 - 1, state):
        assert await peer.refusal(SendBack(offset, "g", -1)) == R.SYSTEM_ERROR
    assert await peer.refusal(SendBack(sent.physical_offset, "a b", -1)) == R.INVALID_PARAMETER


async def test_another_message_at_that_place_is_not_taken_for_it(peer: Peer) -> None:
    """After a change of master that lost the end of the log; the consumer sends its own copy then."""
    (sent,) = await peer.send(draft("T", b"body", UNIQ_KEY="A" * 32))
    assert await peer.refusal(SendBack(sent.physical_offset, "g", -1, "B" * 32)) == R.SYSTEM_ERROR
    place = record.decode((await peer.pull("T", 0)).messages)
    for known in ("A" * 32, record.message_id(place.store_host, place.physical_offset)):
        await give_back(peer, sent.physical_offset, delay_level=-1, origin_msg_id=known)


@pytest.mark.parametrize("level", [-1, 1])
async def test_properties_without_room_for_more_are_refused(peer: Peer, level: int) -> None:
    """As RocketMQ's store refuses them; the consumer keeps the message then, and tries again in its place."""
    (sent,) = await peer.send(draft("T", b"body", long="x" * 32_730))
    assert await peer.refusal(SendBack(sent.physical_offset, "g", level)) == R.MESSAGE_ILLEGAL


async def test_a_message_without_room_to_wait_comes_again_at_once(peer: Peer) -> None:
    """C10: RocketMQ's needs less room; refused, it would be tried again by its consumer for ever, and never be a dead letter."""
    await peer.ask(UpdateGroup(GroupConfig("g", retry_max_times=1)))
    (sent,) = await peer.send(draft("T", b"body", long="x" * 32_000))
    await give_back(peer, sent.physical_offset)
    ((again, said),) = await stored(peer, RETRY_PREFIX + "g")
    assert (again.body, again.reconsume_times, said["RETRY_TOPIC"]) == (b"body", 1, "T")
    await give_back(peer, again.physical_offset)
    assert [(letter.body, letter.reconsume_times) for letter, _ in await stored(peer, DEAD)] == [(b"body", 2)]


async def test_a_dead_letter_topic_that_may_not_be_written(peer: Peer) -> None:
    (sent,) = await peer.send(draft("T", b"body"))
    await give_back(peer, sent.physical_offset, delay_level=-1)
    await peer.ask(UpdateTopic(DEAD, read_queue_nums=1, write_queue_nums=1, perm=4))
    assert await peer.refusal(SendBack(sent.physical_offset, "g", -1)) == R.NO_PERMISSION


@pytest.mark.parametrize(("tries", "most", "dead"), [(16, -1, False), (17, -1, True), (2, 2, False), (3, 2, True)])
async def test_what_a_consumer_sends_to_its_retry_topic_is_counted(peer: Peer, tries: int, most: int, dead: bool) -> None:
    """The way of clients that could not give it back; tries count the coming one."""
    topic = RETRY_PREFIX + "g"
    await peer.ask(UpdateGroup(GroupConfig("g")))
    for body in (b"one", b"two"):
        (answer,) = await peer.send(draft(topic, body, tries, RETRY_TOPIC="T")._replace(max_reconsume_times=most))
        assert answer.physical_offset > 0
    for where, expected in ((DEAD, [b"one", b"two"] * dead), (topic, [b"one", b"two"] * (not dead))):
        assert [one.body for one, _ in await stored(peer, where)] == expected if expected else True
    assert (await peer.ask(GetMaxOffset(DEAD, 0))).offset == (2 if dead else 0)


async def test_what_an_ordered_member_sends_there_is_a_dead_letter(peer: Peer) -> None:
    """[AbstractSendMessageProcessor.handleRetryAndDLQ] It was tried in its place, and nothing can come again there."""
    await peer.ask(LockQueues("g", "c", [MessageQueue("T", "broker-a", 0)]))
    await peer.send(draft(RETRY_PREFIX + "g", b"failed", 1))
    assert [(one.body, said["DELAY"]) for one, said in await stored(peer, DEAD)] == [(b"failed", "-1")]
