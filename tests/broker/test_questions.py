"""What tools ask the members of groups through their broker: how they are, how far they are, to handle one message now."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rmq.broker.handlers import questions
from rmq.broker.handlers.questions import MAX_READ_BYTES
from rmq.client import Client, Consumer, Message, ReceivedMessage
from rmq.client.admin import members
from rmq.client.consumer.retries import RetryLater
from rmq.codes import ResponseCode as R
from rmq.errors import BadBytes, Refusal
from rmq.log.records import record
from rmq.model import MessageQueue
from rmq.net.commands import Hello, UpdateTopic
from rmq.net.commands.questions import ConsumeDirectly, GetMemberOffsets, GetRunningInfo
from rmq.net.remoting import reports
from rmq.net.remoting.javajson import loads
from rmq.testing import LocalBroker, until
from tests.broker.javaclient import JavaClient
from tests.broker.support import Peer, beat, everything
from tests.dialing import dial


@asynccontextmanager
async def member(client: Client, topic: str = "T", **more: object) -> AsyncIterator[tuple[Consumer, list[bytes]]]:
    """A member of group g that handles the topic; what it got. It fails what says so."""
    got: list[bytes] = []

    def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        if message.body == b"later":
            raise RetryLater
        if message.body == b"wrong":
            raise ValueError("no good")
        if message.body == b"cancelled":
            raise asyncio.CancelledError

    async with client.consumer("g", topic, start="first", **more) as consumer:  # type: ignore[arg-type]
        running = asyncio.create_task(consumer.run(handle, concurrency=3))
        yield consumer, got
        consumer.stop()
        await running


async def test_how_a_member_is_doing(broker: LocalBroker, peer: Peer) -> None:
    await broker.create_topic("T", 2)
    async with broker.client() as client, member(client) as (consumer, got):
        for number in range(6):
            await client.producer().send(Message("T", b"%d" % number))
        await until(lambda: len(got) == 6)
        await until(lambda: len(consumer.queues) == 3)  # with the retry topic's
        info = reports.read_running((await peer.ask(GetRunningInfo("g", client.client_id))).report)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "3"
        assert abs(int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) - broker.clock.wall_ms()) < 600_000
        assert abs(int(info.properties["PROP_CLIENT_TIMESTAMP"]) - broker.clock.wall_ms()) < 60_000
        assert sorted(info.queues) == consumer.queues
        assert sum(held.commit_offset for held in info.queues.values()) == 6
        handled = [held for queue, held in info.queues.items() if queue.topic == "T" and held.commit_offset]
        assert all(0 < held.last_consume_timestamp <= broker.clock.wall_ms() for held in handled)
        assert info.rates["T"].consume_ok_tps > 0
        assert [one.topic for one in info.subscriptions] == ["T", "%RETRY%g"]
        assert info.stacks == ""
        stacks = reports.read_running((await peer.ask(GetRunningInfo("g", client.client_id, True))).report).stacks
        assert "handler 0" in stacks
        assert await peer.refusal(GetRunningInfo("g", "nobody")) == R.SYSTEM_ERROR
        assert await peer.refusal(GetRunningInfo("others", client.client_id)) == R.SYSTEM_ERROR
        found, silent = await members.all_running(client, "g")
        assert (list(found), silent) == ([client.client_id], {})
        assert members.troubles(found, broker.clock.wall_ms()) == []


async def test_a_handler_that_fails_with_a_long_text_ends_no_connection(broker: LocalBroker, peer: Peer) -> None:
    """As with the body of a large message: the answer was longer than a broker takes."""
    await broker.create_topic("T", 1)
    got = list[bytes]()

    def handle(message: ReceivedMessage) -> None:
        got.append(message.body)
        if len(got) > 1:
            raise ValueError("no good: " + "x" * (17 << 20))

    async with broker.client() as client, client.consumer("g", "T", start="first") as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await client.producer().send(Message("T", b"x"))
        await until(lambda: got)
        [stored] = await everything(peer)
        place = record.message_id(stored.store_host, stored.physical_offset)
        told = reports.read_handled((await peer.ask(ConsumeDirectly("g", client.client_id, place, "T"))).report)
        assert (told.consume_result, told.remark[:24]) == ("CR_THROW_EXCEPTION", "ValueError: no good: xxx")
        consumer.stop()
        await running


async def test_a_member_handles_one_message_now(broker: LocalBroker, peer: Peer) -> None:
    """Beside the others, and no offset moves; what came of it is said in RocketMQ's words."""
    for topic in ("T", "Other"):
        await broker.create_topic(topic, 1)
    async with broker.client() as client, member(client) as (_, got):
        for body in (b"fine", b"wrong", b"later", b"cancelled"):
            await client.producer().send(Message("T", body))
        await client.producer().send(Message("Other", b"other"))
        await until(lambda: len(got) == 4)
        stored = {one.body: one for one in [*await everything(peer), *await everything(peer, "Other")]}

        def ask(body: bytes, **more: str) -> ConsumeDirectly:
            place = record.message_id(stored[body].store_host, stored[body].physical_offset)
            return ConsumeDirectly("g", client.client_id, place, "T")._replace(**more)  # type: ignore[arg-type]

        async def handled(body: bytes) -> reports.Handled:
            return reports.read_handled((await peer.ask(ask(body))).report)

        assert (await handled(b"fine")).consume_result == "CR_SUCCESS"
        assert (await handled(b"wrong"))[:2] == ("CR_THROW_EXCEPTION", "ValueError: no good")
        assert (await handled(b"later")).consume_result == "CR_LATER"
        assert (await handled(b"cancelled"))[:2] == ("CR_THROW_EXCEPTION", "asyncio.exceptions.CancelledError")
        assert got[4:] == [b"fine", b"wrong", b"later", b"cancelled"]
        assert await peer.refusal(ask(b"other")) == R.INVALID_PARAMETER
        await peer.ask(ask(b"other", topic=""))  # a broker without users has no secrets
        assert await peer.refusal(ask(b"fine", msg_id="7F")) == R.SYSTEM_ERROR
        assert await peer.refusal(ask(b"fine", msg_id="0" * 32)) == R.SYSTEM_ERROR
        assert await peer.refusal(ask(b"fine", client_id="")) == R.SYSTEM_ERROR
        offsets = (await peer.ask(GetMemberOffsets("T", "g"))).members
        assert [(one.queue, one.offset) for one in offsets[client.client_id]] == [(MessageQueue("T", "broker-a", 0), 4)]
        assert (await peer.ask(GetMemberOffsets("T", "g", client.client_id))).members == offsets
        assert await peer.refusal(GetMemberOffsets("T", "g", "nobody")) == R.SYSTEM_ERROR
        message = ReceivedMessage(stored[b"fine"], MessageQueue("T", "broker-a", 0))
        assert (await members.consume_at(client, "g", client.client_id, message)).consume_result == "CR_SUCCESS"
        async with client.consumer("iterating", "T", start="first"):
            with pytest.raises(Refusal, match="no handler of iterating runs here"):
                await members.consume_at(client, "iterating", client.client_id, message)


async def test_a_member_handles_the_messages_of_a_batch_now(broker: LocalBroker, peer: Peer) -> None:
    """It got the whole batch as one message. One after the other, up to the first that fails."""
    await peer.ask(UpdateTopic("B", read_queue_nums=1, write_queue_nums=1, attributes="+queue.type=BatchCQ"))
    async with broker.client() as client, member(client, "B") as (_, got), client.producer() as producer:
        await producer.send_batch([Message("B", body) for body in (b"a", b"b", b"c")])
        await producer.send_batch([Message("B", body) for body in (b"d", b"wrong", b"e")])
        await until(lambda: len(got) == 6)
        batches = record.iterate((await peer.pull("B", 0)).messages)
        for expected, stored in zip(("CR_SUCCESS", "CR_THROW_EXCEPTION"), batches, strict=True):
            place = record.message_id(stored.store_host, stored.physical_offset)
            report = (await peer.ask(ConsumeDirectly("g", client.client_id, place, "B"))).report
            assert reports.read_handled(report).consume_result == expected
        assert got[6:] == [b"a", b"b", b"c", b"d", b"wrong"]


async def test_a_member_that_does_not_answer(broker: LocalBroker, peer: Peer) -> None:
    """RocketMQ's code for it, after its 10 s; one that says nonsense, or goes away, holds nobody up."""
    await broker.create_topic("T", 1)
    silent = await dial(broker.address, Hello(1, "silent"), on_request=lambda _: asyncio.Future())
    await silent.request(beat("silent", "g"), 20)
    asking = asyncio.create_task(peer.refusal(GetRunningInfo("g", "silent")))
    await broker.clock.advance_until(asking.done)
    assert await asking == R.CONSUME_MSG_TIMEOUT
    asking = asyncio.create_task(peer.ask(GetMemberOffsets("T", "g")))
    await broker.clock.advance_until(asking.done)
    assert (await asking).members == {}
    leaving = asyncio.create_task(peer.refusal(GetRunningInfo("g", "silent")))
    await peer.ask(beat("c", "others"))  # the question is on its way
    await silent.close()
    assert await leaving == R.CONSUME_MSG_TIMEOUT


async def test_members_of_java_answer_in_their_json(broker: LocalBroker, peer: Peer) -> None:
    """What it says comes as it is; keys that are objects are read where they must be."""
    async with JavaClient.connect(broker.address) as java:
        await java.ask(beat("j", "g"))
        java.answers = {307: b'{"mqTable":{{"brokerName":"b","queueId":1,"topic":"T"}:{"cachedMsgCount":7}},"new":1}'}
        java.answers[221] = b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T"}:12}}'
        report = (await peer.ask(GetRunningInfo("g", "j"))).report
        assert report == java.answers[307]
        assert reports.read_running(report).queues[MessageQueue("T", "b", 1)].cached_msg_count == 7
        [held] = (await peer.ask(GetMemberOffsets("T", "g"))).members["j"]
        assert held == (MessageQueue("T", "b", 1), 12)
        assert java.pushed[-1][0].ext == {"topic": "T", "group": "g", "clientAddr": ""}
        header, body = await java.ask(GetMemberOffsets("T", "g"))
        assert (header.code, loads(body)["consumerTable"]["j"]) == (0, {'{"brokerName":"b","queueId":1,"topic":"T"}': 12})
        java.answers[307] = b"nonsense"
        with pytest.raises(BadBytes):
            reports.read_running((await peer.ask(GetRunningInfo("g", "j"))).report)


async def test_a_report_too_long_to_be_read_is_left_out(
    broker: LocalBroker, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """S5: 4 MiB of odd JSON stood the broker's loop still for seconds."""
    async with JavaClient.connect(broker.address) as java, JavaClient.connect(broker.address) as other:
        for client, name in ((java, "j"), (other, "other")):
            await client.ask(beat(name, "g"))
            client.answers[221] = b'{"messageQueueTable":{}}'
        java.answers[221] += b" " * MAX_READ_BYTES
        assert (await peer.ask(GetMemberOffsets("T", "g"))).members == {"other": []}
    assert f"at most {MAX_READ_BYTES} are read" in caplog.text


async def test_reports_are_read_beside_the_loop(broker: LocalBroker, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served meanwhile, as long as it may take."""
    goes_on = threading.Event()

    def slow(report: bytes) -> dict[MessageQueue, int]:
        assert goes_on.wait(60)
        return {}

    monkeypatch.setattr(questions, "read_held_offsets", slow)
    async with JavaClient.connect(broker.address) as java:
        await java.ask(beat("j", "g"))
        java.answers[221] = b"{}"
        asking = asyncio.create_task(peer.ask(GetMemberOffsets("T", "g")))
        await until(lambda: java.pushed)
        await peer.ask(beat("c", "others"))
        goes_on.set()
        assert (await asking).members == {"j": []}


def test_java_maps_are_read() -> None:
    """Hostile ones too: nothing is believed that is not there, and nothing grows."""
    assert loads(b'{{"a":"}:{"}:{0:[{-1:null},"x"]},"b":{}}') == {'{"a":"}:{"}': {"0": [{"-1": None}, "x"]}, "b": {}}
    for bad in (b"", b"}", b"{", b'{"a"', b"[" * 100, b'{{{"a":1}:1}:1}', b"\xff", b'{{"\xff":1}:1}', b'"abc', b"]]"):
        with pytest.raises(BadBytes):
            loads(bad)
