"""Topics with queue.type=BatchCQ: a batch is one record with as many queue offsets as it has messages [BatchConsumeQueue]."""

import asyncio
from pathlib import Path

import pytest

from rmq.client import Message, ReceivedMessage
from rmq.client.admin import lookups
from rmq.codes import ResponseCode as R
from rmq.errors import Refusal
from rmq.log.records import record
from rmq.log.records.innerbatch import message_count, messages_in
from rmq.log.records.record import Record
from rmq.net.commands import (
    DeleteExpiredLog,
    DeleteTopic,
    GetMaxOffset,
    GetMinOffset,
    GetTopicConfig,
    PullAnswer,
    QueryMessage,
    SearchOffset,
    Send,
    UpdateTopic,
)
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.net.commands.peers import TransferLeader
from rmq.net.commands.retries import SendBack
from rmq.testing import LocalBroker
from tests.broker.groups import SHORT_LIVED, LocalGroup, fill_and_restart_later
from tests.broker.javaclient import JavaClient
from tests.broker.popping import ack, bodies, take
from tests.broker.support import BORN, Peer, copy_of_running
from tests.net.java_peer import batch_body

INNER = 0xC0  # of sysFlag: an inner batch, which clients take apart


def batch(*messages: bytes, topic: str = "B", tag: str = "t") -> Send:
    """As our client sends them."""
    drafts = []
    for number, body in enumerate(messages):
        text = record.properties_to_bytes({"UNIQ_KEY": f"U-{body[:9].decode()}", "TAGS": tag if number else "first"})
        drafts.append(record.draft(topic, body, text, born_timestamp=1000, born_host=BORN))
    return Send("p", topic, 0, b"".join(drafts), batch=True)


def single(body: bytes, **properties: str) -> Send:
    text = record.properties_to_bytes({"UNIQ_KEY": f"U-{body.decode()}", **properties})
    return Send("p", "B", 0, record.draft("B", body, text, born_timestamp=1000, born_host=BORN))


def stored(answer: PullAnswer) -> list[Record]:
    return list(record.iterate(answer.messages))


def apart(answer: PullAnswer) -> list[tuple[int, bytes]]:
    return [(one.queue_offset, one.body) for each in stored(answer) for one in messages_in(each)]


@pytest.fixture
async def made(broker: LocalBroker, peer: Peer) -> LocalBroker:
    await peer.ask(UpdateTopic("B", read_queue_nums=1, write_queue_nums=1, attributes="+queue.type=BatchCQ"))
    return broker


async def test_a_batch_is_one_record(made: LocalBroker, peer: Peer) -> None:
    """Stored, answered and pulled as by RocketMQ; singles stand between; each has its queue offset."""
    assert (await peer.ask(GetMinOffset("B", 0))).offset == -1
    answers = await peer.send(single(b"a"), batch(b"b", b"c", b"d"), single(b"e", TAGS="t"), batch(b"f"), batch(b"g", b"h"))
    assert [(one.queue_offset, one.batch_id) for one in answers] == [(0, ""), (1, "U-b"), (4, ""), (5, "U-f"), (6, "U-g")]
    assert [(await peer.ask(each)).offset for each in (GetMinOffset("B", 0), GetMaxOffset("B", 0))] == [0, 8]
    found = stored(await peer.pull("B", 0))
    assert [(one.queue_offset, message_count(one)) for one in found] == [(0, 1), (1, 3), (4, 1), (5, 1), (6, 2)]
    assert [one.sys_flag & INNER for one in found] == [0, INNER, 0, INNER, INNER]
    said = record.bytes_to_properties(found[1].properties)
    assert (said["INNER_NUM"], int(said["INNER_BASE"]), said["UNIQ_KEY"]) == ("3", 1, "U-b")
    middle = await peer.pull("B", 2, max_msg_nums=2)
    assert apart(middle) == [(1, b"b"), (2, b"c"), (3, b"d")], "the whole record"
    assert middle.next_begin_offset == 4
    assert apart(await peer.pull("B", 4, max_msg_nums=2)) == [(4, b"e"), (5, b"f")]
    assert (await peer.ask(SearchOffset("B", 0, found[2].store_timestamp))).offset in (0, 1, 4)
    by_key = await peer.ask(QueryMessage("B", "U-b", 32, 0, 1 << 62, unique_key_query=True))
    assert [one.queue_offset for one in record.iterate(by_key.messages)] == [1]
    tagged = await peer.pull("B", 0, subscription="t")
    assert [one.queue_offset for one in stored(tagged)] == [0, 1, 4, 5, 6], "what has no tag passes: the client looks"
    await peer.ask(UpdateBrokerConfig("enablePropertyFilter=true"))
    assert stored(await peer.pull("B", 0, subscription="TAGS = 't'", expression_type="SQL92"))[0].body == b"e"


async def test_order_within_a_burst_is_kept(made: LocalBroker, peer: Peer) -> None:
    sends = [single(b"%d" % number) if number % 3 else batch(b"%d" % number, b"%d+" % number) for number in range(60)]
    await asyncio.gather(*(peer.ask(each) for each in sends))
    found = [body for _, body in await everything(peer)]
    assert [body for body in found if not body.endswith(b"+")] == [b"%d" % number for number in range(60)]


async def everything(peer: Peer) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while found == [] or found[-1][0] + 1 < (await peer.ask(GetMaxOffset("B", 0))).offset:
        found += apart(await peer.pull("B", len(found)))
    return found


async def test_rocketmqs_batches(made: LocalBroker, peer: Peer) -> None:
    """The answer names the batch's own key and one id. A batch without a key is stored message by message, as in RocketMQ."""
    body = batch_body([(7, b"one", b"UNIQ_KEY\x01A\x02TAGS\x01x\x02"), (0, b"two", b"UNIQ_KEY\x01B\x02")])
    async with JavaClient.connect(made.address) as java:
        header, _ = await java.send(body, "B", code=320, i="UNIQ_KEY\x01WHOLE\x02WAIT\x01true\x02")
        assert header.code == 0
        assert (header.ext["batchUniqId"], header.ext["transactionId"], len(header.ext["msgId"])) == ("WHOLE", "WHOLE", 32)
        header, _ = await java.send(body, "B", code=320, i="WAIT\x01true\x02")
        assert "batchUniqId" not in header.ext
        assert (header.ext["queueOffset"], header.ext["msgId"].count(",")) == ("2", 1)
        for text in ("INNER_NUM\x013\x02", "INNER_BASE\x013\x02"):
            assert (await java.send(b"x", "B", i=text))[0].code == R.MESSAGE_ILLEGAL
        for flags in (0x80, 0x40, 0xC0):
            assert (await java.send(b"x", "B", f=str(flags)))[0].code == R.MESSAGE_ILLEGAL
        for wrong in (body[:-1], body + b"\0", b"\xff" * 40):
            assert (await java.send(wrong, "B", code=320, i="UNIQ_KEY\x01WRONG\x02"))[0].code == R.MESSAGE_ILLEGAL
    found = stored(await peer.pull("B", 0))
    assert [(one.queue_offset, message_count(one)) for one in found] == [(0, 2), (2, 1), (3, 1)]
    inner = messages_in(found[0])
    assert [(one.flag, one.body, record.bytes_to_properties(one.properties)) for one in inner] == [
        (7, b"one", {"UNIQ_KEY": "A", "TAGS": "x"}),
        (0, b"two", {"UNIQ_KEY": "B"}),
    ]


async def test_the_type_is_set_once(made: LocalBroker, peer: Peer) -> None:
    assert (await peer.ask(GetTopicConfig("B"))).attributes == {"queue.type": "BatchCQ"}
    for change in ("+queue.type=SimpleCQ", "-queue.type"):
        assert await peer.refusal(UpdateTopic("B", attributes=change)) == R.SYSTEM_ERROR
    await peer.ask(UpdateTopic("Plain"))
    assert await peer.refusal(UpdateTopic("Plain", attributes="+queue.type=BatchCQ")) == R.SYSTEM_ERROR


async def test_our_client_sees_messages(made: LocalBroker, peer: Peer) -> None:
    """Sent in one batch, received one by one, filtered by their own tags; a failed one comes again alone."""
    got: list[tuple[str, bytes, int]] = []
    failed: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append((message.tags, message.body, message.reconsume_times))
        if message.body == b"m3" and not failed:
            failed.append(message.body)
            raise ValueError("once")

    async with (
        made.client() as client,
        client.producer("p") as producer,
        client.consumer("early", ["B"], start="first") as early,
    ):
        assert await early.receive(timeout=0.1) == []
        results = await producer.send_batch([Message("B", b"m%d" % n, "odd" if n % 2 else "even") for n in range(10)])
        assert [one.queue_offset for one in results] == [*range(10)]
        assert len({one.physical_offset for one in results}) == 1
        assert len(await early.receive(max=10, timeout=10)) == 10
        async with client.consumer("g", {"B": "odd"}, start="first") as consumer:
            assert (await lookups.at(client, results[4].queue, 4)).body == b"m4"
            host, _, port = made.address.rpartition(":")
            named = record.message_id(record.host_bytes(host, int(port)), results[4].physical_offset)
            assert (await lookups.by_offset_id(client, named)).body == b"m0"
            hits = [await lookups.by_key(client, "B", results[each].message_id, unique=True) for each in (0, 4)]
            assert [[one.body for one in each.messages] for each in hits] == [[b"m0"], []]
            running = asyncio.create_task(consumer.run(handle))
            await made.clock.advance_until(lambda: len(got) == 6)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert sorted(got) == sorted([("odd", b"m%d" % n, 0) for n in range(1, 10, 2)] + [("odd", b"m3", 1)])


async def test_one_message_of_a_batch_is_sent_back(made: LocalBroker, peer: Peer) -> None:
    answer = (await peer.send(batch(b"a", b"b", b"c")))[0]
    await peer.ask(SendBack(answer.physical_offset, "g", 0, "U-b", "B"))
    assert await peer.refusal(SendBack(answer.physical_offset, "g", 0, "U-unknown", "B")) == R.SYSTEM_ERROR
    assert await peer.refusal(SendBack(answer.physical_offset, "g", 0, "", "B")) == R.SYSTEM_ERROR
    queues = made.serving.store.queues
    await made.clock.advance_until(lambda: queues.look("%RETRY%g", 0).max)
    again = stored(await peer.pull("%RETRY%g", 0))
    assert [(one.body, one.sys_flag & INNER, one.reconsume_times) for one in again] == [(b"b", 0, 1)]


async def test_pops_hand_out_messages_one_by_one(made: LocalBroker, peer: Peer) -> None:
    """Each with its receipt: some are acknowledged, the others come back, each alone; tags are looked at in the batch."""
    await peer.send(batch(b"a", b"b", b"c", b"d", b"e"), single(b"f"))
    first = await take(peer.ask, topic="B", count=3, hidden_ms=1000)
    assert [(one.body, one.queue_offset) for one in first] == [(b"a", 0), (b"b", 1), (b"c", 2)]
    await ack(peer.ask, first[0], first[2])
    assert bodies(await take(peer.ask, topic="B")) == [b"d", b"e", b"f"]
    queues = made.serving.store.queues
    await made.clock.advance_until(lambda: queues.look("%RETRY%g_B", 0).max)
    back = await take(peer.ask, topic="B")
    assert [(one.body, one.tries) for one in back] == [(b"b", 1)]
    tagged = await take(peer.ask, topic="B", group="tagged", exp="first")
    assert bodies(tagged) == [b"a"]
    ordered = await take(peer.ask, topic="B", group="ordered", order=True, queue_id=0, count=2)
    assert bodies(ordered) == [b"a", b"b"]


async def test_delays_and_halves_in_batches_are_refused_and_alone_are_served(made: LocalBroker, peer: Peer) -> None:
    waits, half = single(b"later", DELAY="1"), single(b"half", TRAN_MSG="true", PGROUP="p")
    for one in (waits, half):
        assert await peer.refusal(one._replace(records=one.records * 2, batch=True)) == R.MESSAGE_ILLEGAL
    await peer.send(waits)
    queues = made.serving.store.queues
    await made.clock.advance_until(lambda: queues.look("B", 0).max)
    assert apart(await peer.pull("B", 0)) == [(0, b"later")]


async def test_a_kill_a_stop_and_queues_made_anew(made: LocalBroker, peer: Peer, tmp_path: Path) -> None:
    """What was acknowledged is there after kill -9, and goes on with the next queue offset."""
    await peer.send(single(b"0"), *(batch(*(b"%d.%d" % (each, n) for n in range(4))) for each in range(20)))
    expected = await everything(peer)
    copy = copy_of_running(made.store_dir, tmp_path / "copy")
    for removed in ("", "rmq/queues"):
        if removed:
            (copy / removed).unlink()
        async with LocalBroker(store_dir=copy) as other:
            client = await Peer.connect(other.address)
            assert await everything(client) == expected
            answer = (await client.send(batch(b"x", b"y")))[0]
            assert answer.queue_offset == len(expected)
            expected = await everything(client)
            await client.close()
    assert list((copy / "batchconsumequeue" / "B" / "0").iterdir())
    assert not (copy / "consumequeue" / "B").exists()


async def test_a_topic_that_is_deleted_while_messages_wait(made: LocalBroker, peer: Peer) -> None:
    await peer.send(batch(b"a", b"b", b"c"))
    await take(peer.ask, topic="B", hidden_ms=1000, count=1)
    await peer.ask(DeleteTopic("B"))
    with pytest.raises(Refusal):
        await peer.pull("B", 0)
    await peer.ask(UpdateTopic("B", read_queue_nums=1, write_queue_nums=1))
    answer = (await peer.send(batch(b"d", b"e")))[0]
    assert (answer.queue_offset, answer.batch_id) == (0, ""), "the next life has plain queues"
    await made.clock.advance(5)
    assert apart(await peer.pull("B", 0)) == [(0, b"d"), (1, b"e")]


async def test_a_name_as_long_as_may_be(broker: LocalBroker, peer: Peer) -> None:
    name = "L" * 127
    await peer.ask(UpdateTopic(name, read_queue_nums=1, write_queue_nums=1, attributes="+queue.type=BatchCQ"))
    answer = (await peer.send(batch(b"a", b"b", topic=name)))[0]
    assert answer.batch_id == "U-a"
    assert apart(await peer.pull(name, 0)) == [(0, b"a"), (1, b"b")]


async def test_a_group_keeps_batches(tmp_path: Path) -> None:
    """Copied; filled from a snapshot when what made the topic has left the log; led by the node that was filled."""
    async with LocalGroup(tmp_path, **SHORT_LIVED) as group:
        leader = await group.connect(await group.leader())
        await leader.ask(UpdateTopic("B", read_queue_nums=1, write_queue_nums=1, attributes="+queue.type=BatchCQ"))
        await leader.send(*(batch(b"%d" % each * 300, b"%d+" % each) for each in range(9)))
        await fill_and_restart_later(group)
        leader = await group.connect(await group.leader())
        await leader.send(single(b"x"), *(batch(b"%d" % each * 300, b"%d+" % each) for each in range(9)))
        await group.level()
        for name in group.nodes:
            await (await group.connect(name)).ask(DeleteExpiredLog())
        victim = (await group.followers())[0]
        await group.stop(victim)
        group.wipe(victim)
        await group.start(victim)
        await group.level()
        while await leader.ask_code(TransferLeader(victim)):  # as soon as it may lead
            await group.clock.advance(0.1)
        async with asyncio.timeout(60):
            while await group.leader() != victim:
                await group.clock.advance(0.1)
        leader = await group.connect(victim)
        assert (await leader.send(batch(b"y", b"z")))[0].queue_offset == 37
        await group.level()
        for name, node in group.nodes.items():
            queue = node.serving.store.queues.find("B", 0)
            assert queue is not None
            assert (queue.holds_batches, queue.max) == (True, 39), name
            assert 0 < queue.min <= 18
        low = (await leader.ask(GetMinOffset("B", 0))).offset
        found: list[tuple[int, bytes]] = []
        while len(found) < 39 - low:
            found += apart(await leader.pull("B", low + len(found)))
        assert [offset for offset, _ in found] == [*range(low, 39)]
