"""The client's transactions, at a real broker and over a change of leader."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmq.client import (
    Client,
    Decision,
    InvalidArgument,
    Message,
    ReceivedMessage,
    Refusal,
    SendResult,
    TransactionProducer,
    Unknown,
)
from rmq.client.admin import one
from rmq.net.commands import UpdateTopic
from rmq.testing import LocalBroker, until
from tests.broker.groups import LocalGroup

COMMIT, ROLLBACK, UNKNOWN = Decision
SOON = {"transaction_check_interval_ms": 500, "transaction_timeout_ms": 0}


@pytest.fixture
async def broker() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(**SOON) as broker:
        await broker.create_topic("T", 2)
        yield broker


async def bodies(client: Client, group: str, count: int) -> list[bytes]:
    """The first messages of the topic, once there are so many."""
    found: list[bytes] = []
    async with client.consumer(group, ["T"], start="first") as consumer:
        while len(found) < count:
            found += [message.body for message in await consumer.receive(timeout=5)]
    return sorted(found)


class Books:
    """What a program knows of its transactions: an answer for each message id, or for all."""

    def __init__(self, *answers: Decision) -> None:
        self.answers = list(answers)
        self.asked: list[ReceivedMessage] = []

    async def check(self, message: ReceivedMessage) -> Decision:
        self.asked.append(message)
        return self.answers.pop(0) if self.answers else UNKNOWN


async def test_committed_rolled_back_and_found_out_later(broker: LocalBroker) -> None:
    """C11, C12: the answer is a promise; an open one is asked after until it is known."""
    books = Books(UNKNOWN, COMMIT)
    async with broker.client() as client:
        producer = client.transaction_producer(books.check, "shop")
        seen: list[SendResult] = []

        def execute(decision: Decision):  # type: ignore[no-untyped-def]
            def work(sent: SendResult) -> Decision:
                seen.append(sent)
                return decision

            return work

        results = [await producer.send_in_transaction(Message("T", each.name.encode()), execute(each)) for each in Decision]
        assert [result.decision for result in results] == [COMMIT, ROLLBACK, UNKNOWN]
        assert [result.sent for result in results] == seen
        assert await bodies(client, "g", 2) == [b"COMMIT", b"UNKNOWN"]
        assert [(message.message_id, message.topic, message.body) for message in books.asked] == 2 * [
            (seen[2].message_id, "T", b"UNKNOWN")
        ]
        await broker.clock.advance(3)
        assert len(books.asked) == 2, "it is known now"


async def test_who_is_still_at_work_is_not_asked(broker: LocalBroker) -> None:
    books = Books(ROLLBACK)
    async with broker.client() as client, client.transaction_producer(books.check, "shop") as producer:

        async def work(_sent: SendResult) -> Decision:
            await broker.clock.advance(3)
            return COMMIT

        await producer.send_in_transaction(Message("T", b"slow"), work)
        assert (await bodies(client, "g", 1), books.asked) == ([b"slow"], [])


async def test_an_error_of_the_work_comes_through_and_the_books_decide(broker: LocalBroker) -> None:
    books = Books(ROLLBACK)
    async with broker.client() as client:
        producer = client.transaction_producer(books.check, "shop")
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(Message("T", b"no"), lambda sent: Decision(1 // 0))
        await until(lambda: books.asked)
        await producer.send_in_transaction(Message("T", b"yes"), lambda sent: COMMIT)
        assert await bodies(client, "g", 1) == [b"yes"]


async def test_work_that_forgets_its_decision_is_told_so_and_the_books_decide(broker: LocalBroker) -> None:
    books = Books(COMMIT)
    async with broker.client() as client:
        producer = client.transaction_producer(books.check, "shop")
        with pytest.raises(InvalidArgument, match="`execute` returned None: return Decision"):
            await producer.send_in_transaction(Message("T", b"paid"), lambda sent: None)  # type: ignore[arg-type, return-value]
        assert await bodies(client, "all", 1) == [b"paid"]


async def test_the_next_run_answers_for_the_last_one(broker: LocalBroker) -> None:
    """C12: before it sends anything, because it named the topic; books that break are asked again."""
    async with broker.client() as client:
        producer = client.transaction_producer(Books().check, "shop")
        await producer.send_in_transaction(Message("T", b"left", keys=["order-7"]), lambda sent: UNKNOWN)

    class Broken(Books):
        async def check(self, message: ReceivedMessage) -> Decision:
            if await super().check(message) == UNKNOWN:
                raise OSError("the books are closed")
            return COMMIT

    books = Broken(UNKNOWN, COMMIT)
    async with broker.client() as client:
        producer = client.transaction_producer(books.check, "shop", topics=["T"])
        assert await bodies(client, "g", 1) == [b"left"]
        assert [message.keys for message in books.asked] == [["order-7"]] * 2
        await producer.close()


async def test_the_opposite_of_what_was_decided_is_an_error(broker: LocalBroker) -> None:
    """C11: the books said no while the work went on elsewhere."""
    async with broker.client() as client, broker.client() as other:
        producer = client.transaction_producer(Books().check, "shop")
        books = Books(ROLLBACK)

        async def work(_sent: SendResult) -> Decision:
            other.transaction_producer(books.check, "shop", topics=["T"])
            await until(lambda: not broker.serving.tables.halves.open.rows)
            assert books.asked
            return COMMIT

        with pytest.raises(Refusal, match="rolled back"):
            await producer.send_in_transaction(Message("T", b"no"), work)


async def test_the_word_is_carried_to_the_next_leader(tmp_path: Path) -> None:
    """C11: said while the leader stops, in force at the next one, once."""
    async with LocalGroup(tmp_path) as group:
        first = await group.leader()
        await (await group.connect(first)).ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        async with group.client() as client:
            producer = client.transaction_producer(Books().check, "shop")
            stopping: list[asyncio.Task[None]] = []

            async def work(_sent: SendResult) -> Decision:
                stopping.append(asyncio.create_task(group.stop(first)))
                await asyncio.sleep(0)
                return COMMIT

            result = await producer.send_in_transaction(Message("T", b"once"), work)
            await stopping[0]
            assert result.decision == COMMIT
            assert await group.leader() != first
            assert await bodies(client, "g", 1) == [b"once"]


async def test_a_broker_that_is_gone_will_ask_later(broker: LocalBroker) -> None:
    """C12: nobody can say now, and `check` decides."""
    books = Books(COMMIT)
    async with broker.client() as client:
        producer = client.transaction_producer(books.check, "shop")

        async def work(_sent: SendResult) -> Decision:
            await broker.stop_broker()
            return COMMIT

        sending = asyncio.create_task(producer.send_in_transaction(Message("T", b"later"), work))
        await broker.clock.advance_until(sending.done)
        with pytest.raises(Unknown, match="will ask"):
            await sending
        await broker.start_broker()
        assert await bodies(client, "g", 1) == [b"later"]
        assert isinstance(producer, TransactionProducer)


async def test_the_topic_of_a_producer_that_was_stopped_may_be_a_text(broker: LocalBroker) -> None:
    """Each of its letters was looked for as a topic, for ever, and no broker asked the producer anything."""
    async with broker.client() as client, asyncio.timeout(20):
        with pytest.raises(InvalidArgument, match="topic"):
            client.transaction_producer(lambda message: COMMIT, "wrong", topics=["no topic"])
        client.transaction_producer(lambda message: COMMIT, "p", topics="T")
        while "p" not in (groups := await one.producers(client, broker.address)):
            pass
        assert "wrong" not in groups
