"""What a broker stores, and what it refuses: code by code."""

import asyncio

import pytest

from rmq.codes import ResponseCode as R
from rmq.log.records import record
from rmq.model import RETRY_PREFIX
from rmq.net.commands import DeleteTopic, GetMaxOffset, GetTopicConfig, Send, UpdateTopic
from rmq.testing import LocalBroker
from tests.broker.conftest import Connect
from tests.broker.support import BORN, Peer, bodies, send


async def test_queue_offsets_rise_by_one_and_the_answer_names_the_first(peer: Peer) -> None:
    """C4, D12."""
    answers = await peer.send(send("T", b"a"), send("T", b"b", count=3), send("T", b"c"))
    assert [answer.queue_offset for answer in answers] == [0, 1, 4]
    assert [answer.status for answer in answers] == [0, 0, 0]
    assert [answer.physical_offset for answer in answers] == sorted(answer.physical_offset for answer in answers)
    assert bodies(await peer.pull("T", 0)) == [b"a", b"b", b"b", b"b", b"c"]


@pytest.mark.parametrize("name", ["a b", "é", "", "x" * 128, "../up", "a.b"])
async def test_a_bad_topic_name_is_refused(peer: Peer, name: str) -> None:
    """S9."""
    assert await peer.refusal(send(name)) == R.INVALID_PARAMETER


@pytest.mark.parametrize(
    "topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
              "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_STATE", "rmq_sys_EPOCH", "rmq_sys_unheard_of"],
)  # fmt: skip
async def test_the_brokers_own_topics_take_nothing_from_clients(peer: Peer, topic: str) -> None:
    assert await peer.refusal(send(topic)) == R.NO_PERMISSION


async def test_a_topic_that_may_not_be_written(peer: Peer) -> None:
    await peer.ask(UpdateTopic("R", read_queue_nums=1, write_queue_nums=1, perm=4))
    assert await peer.refusal(send("R")) == R.NO_PERMISSION
    await peer.ask(UpdateTopic("R", read_queue_nums=1, write_queue_nums=1, perm=6))
    assert (await peer.send(send("R")))[0].queue_offset == 0
    await peer.ask(UpdateTopic("R", read_queue_nums=1, write_queue_nums=1, perm=4))
    assert await peer.refusal(send("R")) == R.NO_PERMISSION, "also on a queue that was sent to before"


async def test_queue_ids(peer: Peer) -> None:
    assert await peer.refusal(send("T", queue_id=4)) == R.INVALID_PARAMETER
    chosen = {answer.queue_id for answer in await peer.send(*(send("T", queue_id=-1) for _ in range(64)))}
    assert chosen == {0, 1, 2, 3}, "a negative queue id: the broker chooses"


async def test_more_read_than_write_queues_is_room_for_both(peer: Peer) -> None:
    """While a topic shrinks, its old queues are still read; a send to one is taken as RocketMQ takes it."""
    await peer.ask(UpdateTopic("W", read_queue_nums=2, write_queue_nums=1))
    assert (await peer.send(send("W", queue_id=1)))[0].queue_id == 1
    assert await peer.refusal(send("W", queue_id=2)) == R.INVALID_PARAMETER
    assert {a.queue_id for a in await peer.send(*(send("W", queue_id=-1) for _ in range(20)))} == {0}


async def test_body_limits(connect: Connect) -> None:
    async with LocalBroker(max_message_bytes=1000) as broker:
        peer = await connect(broker)
        assert (await peer.send(send("N", b"x" * 1000)))[0].status == 0
        assert await peer.refusal(send("N", b"x" * 1001)) == R.MESSAGE_ILLEGAL
        assert (await peer.send(send("N", b"x" * 250, count=4)))[0].queue_offset == 1
        assert await peer.refusal(send("N", b"x" * 251, count=4)) == R.MESSAGE_ILLEGAL, "the bodies of a batch together"
        assert (await peer.ask(GetMaxOffset("N", 0))).offset == 5


async def test_damaged_or_foreign_records_are_refused(peer: Peer) -> None:
    """D7, C2."""
    good = send("T", b"body" * 100)
    for position in (3, 4, 100, 300):
        damaged = bytearray(good.records)
        damaged[position] ^= 1
        assert await peer.refusal(good._replace(records=bytes(damaged))) == R.MESSAGE_ILLEGAL, position
    assert await peer.refusal(good._replace(records=b"")) == R.MESSAGE_ILLEGAL
    assert await peer.refusal(send("T")._replace(topic="BenchmarkTest")) == R.MESSAGE_ILLEGAL
    assert (await peer.ask(GetMaxOffset("T", 0))).offset == 0


async def test_retry_topics_take_single_messages_only(peer: Peer) -> None:
    retry = RETRY_PREFIX + "g"
    assert (await peer.send(send(retry)))[0].queue_offset == 0, "made by the send, with one queue"
    assert (await peer.ask(GetTopicConfig(retry))).write_queue_nums == 1
    assert await peer.refusal(send(retry, count=2, batch=True)) == R.MESSAGE_ILLEGAL
    assert await peer.refusal(send(retry, batch=True)) == R.MESSAGE_ILLEGAL


async def test_a_send_makes_its_topic_after_the_template(peer: Peer) -> None:
    first, second = await asyncio.gather(peer.ask(send("N")), peer.ask(send("N", queue_id=3)))
    assert (first.queue_offset, second.queue_offset) == (0, 0)
    config = await peer.ask(GetTopicConfig("N"))
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 4, 6)
    await peer.send(send("M", default_topic_queue_nums=16))
    assert (await peer.ask(GetTopicConfig("M"))).write_queue_nums == 8, "never more than the template has"
    assert await peer.refusal(send("O", queue_id=4)) == R.INVALID_PARAMETER
    assert await peer.refusal(send("P", default_topic="T")) == R.TOPIC_NOT_EXIST, "T does not bequeath"
    assert await peer.refusal(send("P", default_topic="nowhere")) == R.TOPIC_NOT_EXIST


async def test_no_topics_are_made_where_that_is_switched_off(connect: Connect) -> None:
    async with LocalBroker(auto_create_topic=False) as broker:
        peer = await connect(broker)
        assert await peer.refusal(send("N")) == R.TOPIC_NOT_EXIST
        assert await peer.refusal(GetTopicConfig("TBW102")) == R.TOPIC_NOT_EXIST
        await broker.create_topic("N", 1)
        assert (await peer.send(send("N")))[0].queue_offset == 0


async def test_a_one_way_send_is_stored_without_an_answer(peer: Peer) -> None:
    peer.channel.post(send("T", b"quiet"))
    assert (await peer.send(send("T", b"loud")))[0].queue_offset == 1
    assert bodies(await peer.pull("T", 0)) == [b"quiet", b"loud"]


async def test_a_refused_one_way_send_disturbs_nobody(peer: Peer) -> None:
    peer.channel.post(send("a b"))
    assert (await peer.send(send("T")))[0].queue_offset == 0


async def test_sends_to_a_deleted_topic_make_a_new_one_without_ghosts(peer: Peer) -> None:
    """C3: its offsets begin at 0 again, and nothing of the old one is read."""
    await peer.send(send("N", b"old"), send("N", b"old"))
    await peer.ask(DeleteTopic("N"))
    assert (await peer.send(send("N", b"new")))[0].queue_offset == 0
    assert bodies(await peer.pull("N", 0)) == [b"new"]


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG"])
async def test_what_no_interceptor_takes_is_never_stored_by_the_fast_path(broker: LocalBroker, peer: Peer, name: str) -> None:
    """C11, C13: in a batch there is no interceptor for them; a broken promise that nobody sees is the worst answer."""
    value = {"TRAN_MSG": "true", "TIMER_DELIVER_MS": str(broker.clock.wall_ms() + 3000)}.get(name, "3")
    properties = record.properties_to_bytes({name: value})
    draft = record.draft("T", b"body", properties, born_timestamp=1000, born_host=BORN)
    assert await peer.refusal(Send("p", "T", 0, draft * 2, batch=True)) == R.MESSAGE_ILLEGAL
    assert (await peer.ask(GetMaxOffset("T", 0))).offset == 0
