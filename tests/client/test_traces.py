"""The message trace: what clients note of messages, and how it is found again."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from rmq.client import Client, ClientSettings, Decision, InvalidArgument, Message, ReceivedMessage, Refusal, RetryLater
from rmq.client.admin import calls, lookups, timelines
from rmq.client.shared import traces
from rmq.client.shared.traceformat import (
    EndTransaction,
    MessageKind,
    Outcome,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    Trace,
    decode,
    encode,
    words,
)
from rmq.net.commands import UpdateTopic
from rmq.net.commands.access import PolicyEntry
from rmq.testing import LocalBroker, until
from tests.broker.test_access import ROOT, SETTINGS, login, make_user, nameserver_permits

TRACING = ClientSettings(trace=True)
RECORDS: list[tuple[Trace, str]] = [  # as TraceDataEncoder of RocketMQ 5.5.0 writes them (tests/interop/test_traces.py asks it)
    (
        Pub(7, "DefaultRegion", "g", "T", "ID", "", "", "h:1", 5, 3, MessageKind.DELAYED, "OFF", True),
        "Pub|7|DefaultRegion|g|T|ID|null|null|h:1|5|3|3|OFF|true#",
    ),
    (SubBefore(7, "R", "g", "REQ", "ID", 2, "k1 k2"), "SubBefore|7|R|g|REQ|ID|2|k1 k2#"),
    (SubAfter("REQ", "ID", 9, False, "", Outcome.FAILED, 16, "g"), "SubAfter|REQ|ID|9|false|null|4|16|g#"),
    (
        EndTransaction(7, "R", "g", "T", "ID", "a", "k", "h:1", MessageKind.COMMITTED, "TX", "COMMIT_MESSAGE", True),
        "EndTransaction|7|R|g|T|ID|a|k|h:1|2|TX|COMMIT_MESSAGE|true#",
    ),
    (Recall(7, "R", "g", "T", "ID", False), "Recall|7|R|g|T|ID|false#"),
]


def spelled(text: str) -> str:
    return text.replace("|", "\x01").replace("#", "\x02")


@pytest.mark.parametrize(("record", "text"), RECORDS)
def test_records_are_spelled_as_rocketmq_does(record: Trace, text: str) -> None:
    assert encode(record) == spelled(text)
    assert [*decode(spelled(text))] == [record]
    assert words(record)[0] == "ID"


def test_old_records_are_read_and_what_is_none_is_passed_over() -> None:
    """Anybody may write into the trace topic: of every beginning, and of noise between records, the good ones are read."""
    old = "Pub|7|R|g|T|ID|a|k|h:1|5|3|0|true#SubAfter|REQ|ID|9|true|k#SubAfter|REQ|ID|9|true|k|0|#"
    assert [type(one).__name__ for one in decode(spelled(old))] == ["Pub", "SubAfter", "SubAfter"]
    noise = f"#Pub#Pub|x|#Nothing|1#Pub|{'9' * 40}|R#SubAfter|R|I|1|true|k|77|1|g#"
    good = spelled("".join(text for _, text in RECORDS))
    assert [*decode(spelled(noise) + good)] == [record for record, _ in RECORDS]
    for end in range(len(good)):
        assert len([*decode(good[:end])]) <= len(RECORDS)


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(trace_topic=True, recall_messages=True) as broker:
        yield broker


async def steps(broker: LocalBroker, client: Client, message_id: str, count: int) -> list[tuple[str, str, bool | None]]:
    """Kind, group and outcome of each step, once so many have ended."""
    async with asyncio.timeout(30):
        line: list[timelines.Step] = []
        while sum(step.good is not None for step in line) < count:
            await broker.clock.advance(traces.FLUSH_S)
            line = timelines.line_of((await timelines.notes_of(client, message_id)).notes)
    return [(step.kind, step.group, step.good) for step in line]


async def test_a_message_is_traced_from_its_send_to_its_second_consumption(broker: LocalBroker) -> None:
    tries = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal tries
        tries += 1
        if message.reconsume_times == 0:
            raise RetryLater(1)
        consumer.stop()

    async with broker.client(settings=TRACING) as client:
        sent = await client.producer("shop").send(Message("Orders", b"coffee", "hot", ["order-1", "order-2"]))
        async with client.consumer("kitchen", ["Orders"], start="first") as consumer:
            await consumer.run(handle)
        expected = [("sent", "shop", True), ("consumed", "kitchen", False), ("consumed", "kitchen", True)]
        assert await steps(broker, client, sent.message_id, 3) == expected
        found = (await timelines.notes_of(client, sent.message_id)).notes
        pub = found[0].trace
        assert isinstance(pub, Pub)
        assert pub[2:10] == ("shop", "Orders", sent.message_id, "hot", "order-1 order-2", broker.address, 6, pub.cost_ms)
        assert (await lookups.by_offset_id(client, pub.offset_message_id)).message_id == sent.message_id
        assert [note.trace.outcome for note in found if isinstance(note.trace, SubAfter)] == [Outcome.FAILED, Outcome.SUCCESS]
        assert [note.trace.retries for note in found if isinstance(note.trace, SubBefore)] == [0, 1]
        assert [named.message_id for named in await timelines.ids_of(client, "order-2")] == [sent.message_id]
        assert tries == 2


async def test_batches_transactions_recalls_and_what_is_pulled_or_popped(broker: LocalBroker) -> None:
    async with broker.client(settings=TRACING) as client:
        producer = client.producer("shop")
        batch = await producer.send_batch([Message("Orders", b"%d" % number) for number in range(3)])
        async with client.consumer("pullers", ["Orders"], start="first") as consumer:
            got: list[ReceivedMessage] = []
            while len(got) < 3:
                got += await consumer.receive()
            await consumer.commit()
        async with client.simple_consumer("pickers", ["Orders"], start="first") as picker:
            popped: list[ReceivedMessage] = []
            while len(popped) < 3:
                for message in await picker.receive():
                    popped.append(message)
                    await picker.ack(message)
        assert {message.message_id for message in popped} == {sent.message_id for sent in batch}
        for sent, place in zip(batch, sorted(got, key=lambda message: message.queue_offset), strict=True):
            line = await steps(broker, client, sent.message_id, 3)
            assert sorted(line) == [("consumed", "pickers", True), ("consumed", "pullers", True), ("sent", "shop", True)]
            pubs = [note.trace for note in (await timelines.notes_of(client, sent.message_id)).notes]
            assert [pub.offset_message_id for pub in pubs if isinstance(pub, Pub)] == [place.offset_message_id]

        later = await producer.send(Message("Orders", b"later", delay_s=100))
        await producer.recall(later)
        with pytest.raises(Refusal):
            await producer.recall(later._replace(recall_handle="none"))
        expected = [("sent", "shop", True), ("recalled", "shop", True), ("recalled", "shop", False)]
        assert await steps(broker, client, later.message_id, 3) == expected

        cashier = client.transaction_producer(lambda message: Decision.COMMIT, "cashier")
        paid = await cashier.send_in_transaction(Message("Paid", b"5", keys=["p"]), lambda sent: Decision.ROLLBACK)
        assert await steps(broker, client, paid.sent.message_id, 2) == [
            ("sent", "cashier", True),
            ("transaction", "cashier", True),
        ]
        kinds = [note.trace.kind for note in (await timelines.notes_of(client, paid.sent.message_id)).notes]  # type: ignore[union-attr]
        assert kinds == [MessageKind.HALF, MessageKind.COMMITTED]


async def test_tracing_never_delays_or_fails_a_send(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace topic is not there and may not be made: sends go on, what is lost is counted, one line tells it."""
    monkeypatch.setattr(traces, "MAX_WAITING", 250)
    async with LocalBroker(auto_create_topic=False) as broker:
        await broker.create_topic("Orders")
        with caplog.at_level(logging.WARNING, "rmq.client"):
            async with broker.client(settings=TRACING) as client:
                sent = await client.producer().send_batch([Message("Orders", b"x") for _ in range(1000)])
                assert len(sent) == 1000
                trace = client.session.trace
                assert trace is not None
                assert trace.dropped == 750
                await until(lambda: trace.dropped == 1000)
        lost = [line for line in caplog.messages if "traces are lost" in line]
        assert len(lost) == 1
        assert "traceTopicEnable" in lost[0]


async def test_traces_go_to_a_topic_of_ones_own_and_none_is_written_by_default(broker: LocalBroker) -> None:
    own = ClientSettings(trace=True, trace_topic="MyTraces")
    async with broker.client(settings=own) as client, broker.client() as silent:
        sent = await client.producer().send(Message("Orders", b"x"))
        quiet = await silent.producer().send(Message("Orders", b"y"))
        while not (found := await _notes(client, sent.message_id, "MyTraces")):
            await asyncio.sleep(0)
        assert [type(note.trace) for note in found] == [Pub]
        assert not await _notes(client, quiet.message_id, "MyTraces")
        assert not await _notes(client, sent.message_id, "RMQ_SYS_TRACE_TOPIC")
        assert (await calls.topic_config(client, "RMQ_SYS_TRACE_TOPIC", broker.address)).write_queue_nums == 1
    with pytest.raises(InvalidArgument, match="trace_topic"):
        ClientSettings(trace_topic="no/topic")


async def test_a_broker_that_wants_no_traces_gets_none() -> None:
    """traceOn=false: nobody notes what is sent to it or consumed from it, and Java's consumers read so in the record."""
    async with LocalBroker(trace_topic=True, trace_messages=False) as broker:
        async with broker.client(settings=TRACING) as client:
            await client.producer().send(Message("Orders", b"one", keys=["k"]))
            await client.producer().send_batch([Message("Orders", b"two"), Message("Orders", b"three")])
            got: list[ReceivedMessage] = []
            async with client.consumer("kitchen", ["Orders"], start="first") as consumer:
                while len(got) < 3:
                    got += await consumer.receive()
                await consumer.commit()
        assert {message.body: message.properties["TRACE_ON"] for message in got} == dict.fromkeys(
            [b"one", b"two", b"three"], "false"
        )
        async with broker.client() as client:  # the first one has sent all its notes when it is closed
            stats = await calls.topic_stats(client, "RMQ_SYS_TRACE_TOPIC")
        assert sum(queue.max_offset for queue in stats.queues) == 0


async def test_who_may_read_traces() -> None:
    """They name keys of all topics: a right to read the trace topic itself is needed, one to trace into it is not enough."""
    async with LocalBroker(trace_topic=True, **SETTINGS) as broker:
        root = await login(broker, ROOT.name, ROOT.secret)
        await root.ask(UpdateTopic("Orders"))
        await make_user(
            root, "shop", PolicyEntry("Topic:Orders", ["Pub", "Sub", "Get"]), PolicyEntry("Topic:RMQ_SYS_TRACE_TOPIC", ["Pub"])
        )
        await make_user(root, "auditor", PolicyEntry("Topic:RMQ_SYS_TRACE_TOPIC", ["Get"]))
        await root.close()
        await until(lambda: nameserver_permits(broker, "shop") and nameserver_permits(broker, "auditor"))
        shop = broker.client(settings=TRACING, user="shop", password="shop-secret")
        async with shop as tracing, broker.client(user="auditor", password="auditor-secret") as auditor:
            sent = await tracing.producer("shop").send(Message("Orders", b"coffee", keys=["order-1"]))
            assert await steps(broker, auditor, sent.message_id, 1) == [("sent", "shop", True)]
            assert [named.topic for named in await timelines.ids_of(auditor, "order-1")] == ["Orders"]
            with pytest.raises(Refusal, match="Topic:RMQ_SYS_TRACE_TOPIC.*Sub or Get is needed"):
                await timelines.notes_of(tracing, sent.message_id)


async def _notes(client: Client, message_id: str, topic: str) -> list[timelines.Note]:
    try:
        return (await timelines.notes_of(client, message_id, topic)).notes
    except Refusal:
        return []


async def test_long_keys_and_many_notes_are_cut_into_messages_that_fit(broker: LocalBroker) -> None:
    """What a message may have of keys, its trace message may not have of all of them together."""
    async with broker.client(settings=TRACING) as client:
        long = [Message("Orders", b"x", keys=["k" * 15_000 + str(number)]) for number in range(3)]
        long.append(Message("Orders", b"x", keys=["k" * 20_000]))
        sent = await client.producer().send_batch([*long, *(Message("Orders", b"y") for _ in range(300))])
        for one in (sent[0], sent[2], sent[3], sent[-1]):
            assert await steps(broker, client, one.message_id, 1) == [("sent", "rmq_producer", True)]
        assert client.session.trace is not None
        assert client.session.trace.dropped == 0
