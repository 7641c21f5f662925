"""Our client's lite topics: sent to one broker, received in order, declared again where nobody knows of them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from rmq.client import Client, Closed, InvalidArgument, LiteConsumer, LiteMessage, Message, Refusal, Unknown, Unreachable
from rmq.codes import ResponseCode as R
from rmq.javahash import consistent_bucket, java_hash
from rmq.log.records import record
from rmq.log.records.properties import LIGHT_NAMES
from rmq.model import PERM_WRITE, BrokerAddresses, QueueData, Route
from rmq.names import lite_queue
from rmq.net.commands import Ping
from rmq.net.commands.lites import COMPLETE_ADD, PARTIAL_ADD, DeclareLites, LitePopAnswer, PopLite
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import LocalGroup
from tests.broker.litepops import bound
from tests.broker.support import Peer
from tests.broker.test_lights import LIGHT
from tests.broker.test_lites import parent
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, route_at
from tests.ports import free_port


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    """With topic P of type LITE, and groups g and x that are bound to it; x is exclusive."""
    async with LocalBroker(**LIGHT) as broker:
        peer = await Peer.connect(broker.address)
        for request in (parent(), bound(sub_client_quota="3"), bound("x", sub_model="Exclusive")):
            await peer.ask(request)
        await peer.close()
        yield broker


@pytest.fixture
async def client(local: LocalBroker) -> AsyncIterator[Client]:
    async with local.client() as client:
        yield client


async def got(consumer: LiteConsumer, wait_seconds: float = 5.0) -> list[tuple[str, bytes]]:
    """Lite topic and body of what it receives and acknowledges."""
    found = []
    for message in await consumer.receive(wait_seconds=wait_seconds):
        assert isinstance(message, LiteMessage)
        await consumer.ack(message)
        found.append((message.lite_topic, message.body))
    return found


async def test_a_consumer_takes_its_lite_topics_and_changes_them(client: Client) -> None:
    producer = client.producer()
    sent = [await producer.send(Message("P", b"%d" % number, lite_topic="a")) for number in range(3)]
    assert len({one.queue for one in sent}) == 1, "in order"
    await producer.send(Message("P", b"b1", lite_topic="b"))
    async with client.lite_consumer("g", "P", ["a"]) as consumer:
        [first] = await consumer.receive(1)
        assert (first.topic, first.body, first.queue_offset) == ("P", b"0", 0)
        assert await consumer.receive(wait_seconds=0) == [], "the next ones wait for it"
        await consumer.change_invisible(first, 0)
        [again] = await consumer.receive(1)
        assert again.body == b"0"
        await consumer.ack(again)
        assert await got(consumer) == [("a", b"1"), ("a", b"2")]
        await consumer.add("b", "c")
        assert await got(consumer) == [("b", b"b1")]
        with pytest.raises(Refusal) as many:
            await consumer.add("d")
        assert many.value.code == R.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert consumer.lite_topics == ["a", "b", "c"]
        await consumer.remove("a")
        await producer.send(Message("P", b"unwanted", lite_topic="a"))
        waiting = asyncio.create_task(got(consumer, 30))
        await producer.send(Message("P", b"c1", lite_topic="c"))
        assert await waiting == [("c", b"c1")]


def test_what_it_gives_is_typed(tmp_path: Path) -> None:
    """mypy knows that the messages have a lite topic."""
    program = """
        from rmq.client import LiteConsumer

        async def take(consumer: LiteConsumer) -> list[str]:
            async for message in consumer:
                print(message.lite_topic)
            return [message.lite_topic for message in await consumer.receive()]
    """
    (tmp_path / "program.py").write_text(dedent(program))
    check = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={tmp_path}", "program.py"]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(check, cwd=tmp_path, env=os.environ | {"MYPYPATH": root}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_what_is_added_is_in_the_whole_set_at_once(client: Client) -> None:
    """That is declared once a minute, and could overtake the addition: the broker forgot it until the next one."""
    async with client.lite_consumer("g", "P", ["a"]) as consumer:
        adding = asyncio.create_task(consumer.add("b"))
        await asyncio.sleep(0)
        assert consumer.lite_topics == ["a", "b"]
        await adding
        with pytest.raises(Refusal):
            await consumer.add("c", "d")
        assert consumer.lite_topics == ["a", "b"]


async def test_lite_topics_are_added_through_a_change_of_leaders(local: LocalBroker, client: Client) -> None:
    """It failed at once, where all other calls wait for the next leader."""
    async with client.lite_consumer("g", "P", ["a"]) as consumer:
        await local.stop_broker()
        adding = asyncio.create_task(consumer.add("b"))
        await local.start_broker()
        await adding
        await client.producer().send(Message("P", b"1", lite_topic="b"))
        assert await got(consumer) == [("b", b"1")]


async def test_an_exclusive_lite_topic_moves(client: Client) -> None:
    producer = client.producer()
    async with client.lite_consumer("x", "P", ["a"]) as old, client.lite_consumer("x", "P") as new:
        await new.add("a")
        while old.lite_topics:
            await asyncio.sleep(0)
        await producer.send(Message("P", b"1", lite_topic="a"))
        assert await got(new) == [("a", b"1")]


async def test_wrong_names(client: Client) -> None:
    for lite in ("a b", "a$b", "n" * 65):
        with pytest.raises(InvalidArgument):
            await client.producer().send(Message("P", b"x", lite_topic=lite))
        with pytest.raises(InvalidArgument):
            client.lite_consumer("g", "P", [lite])
    with pytest.raises(InvalidArgument, match="list"):
        client.lite_consumer("g", "P", "a")
    with pytest.raises(InvalidArgument, match="alone"):
        await client.producer().send_batch([Message("P", b"x", lite_topic="a")])
    with pytest.raises(Refusal):
        async with client.lite_consumer("unbound", "P", ["a"]):
            pass


async def test_it_declares_again_to_a_new_leader(tmp_path: Path) -> None:
    """What was acknowledged does not come again, what was not does, and what is new comes at once."""
    async with LocalGroup(tmp_path, **LIGHT) as group:
        leader = await group.leader()
        peer = await group.connect(leader)
        await peer.ask(parent())
        await peer.ask(bound())
        await peer.close()
        async with group.client() as client, client.lite_consumer("g", "P", ["a", "b"]) as consumer:
            producer = client.producer()
            for body, lite in ((b"1", "a"), (b"2", "a"), (b"3", "b")):
                await producer.send(Message("P", body, lite_topic=lite), timeout=30)
            assert sorted(await got(consumer)) == [("a", b"1"), ("a", b"2"), ("b", b"3")]
            await group.stop(leader)
            await producer.send(Message("P", b"4", lite_topic="b"), timeout=30)
            found: list[tuple[str, bytes]] = []
            while not found:
                found = await got(consumer, 30)
            assert found == [("b", b"4")]


async def test_a_new_leader_that_hears_of_one_more_first_is_told_of_the_others(local: LocalBroker, client: Client) -> None:
    """It took that one for all: for up to a minute nothing came of the others."""
    async with client.lite_consumer("g", "P", ["a"]) as consumer:
        await local.stop_broker()
        await local.start_broker()
        await client.producer().send(Message("P", b"x", lite_topic="a"), timeout=30)
        await consumer.add("b")
        assert await got(consumer, 0) == [("a", b"x")]


def test_the_broker_of_a_lite_topic() -> None:
    """[Hashing.consistentHash] of Guava 32 said so."""
    said = {"room-1": [0, 1, 3, 3, 736], "session_42": [0, 0, 5, 63, 145], "": [0, 0, 0, 0, 0], "Zz-9": [0, 1, 3, 7, 675]}
    assert {name: [consistent_bucket(java_hash(name), buckets) for buckets in (1, 2, 7, 64, 1024)] for name in said} == said


async def test_who_waits_hears_that_it_is_closed(client: Client) -> None:
    """It was cancelled, without anybody's having cancelled it."""
    async with client.lite_consumer("g", "P", ["a"]) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait_seconds=60))
        await until(lambda: any(task.get_name().startswith("pop lite topics") for task in asyncio.all_tasks()))
        await consumer.close()
        await asyncio.wait([waiting])
        assert not waiting.cancelled()
        assert isinstance(waiting.exception(), Closed)


async def test_one_that_is_left_open_ends_with_its_client(local: LocalBroker) -> None:
    """Each minute it tried to tell brokers what it wants, and logged that its client is closed."""
    client = local.client()
    client.start()
    consumer = client.lite_consumer("g", "P", ["a"])
    await consumer.__aenter__()
    [telling] = [task for task in asyncio.all_tasks() if task.get_name() == "lite topics of g"]
    await client.close()
    await local.clock.advance_until(telling.done, 10)
    with pytest.raises(Closed):
        await consumer.receive(wait_seconds=0)
    await consumer.close()


async def test_a_broker_that_is_away_holds_up_no_other(broker: Broker, make_client: MakeClient) -> None:
    """Neither at the beginning, nor each minute: the others would forget what it wants after three. Nor when that changes."""
    told: list[DeclareLites] = []
    broker.also(DeclareLites, lambda request, call: told.append(request))
    broker.topics["P"] = 1
    both = broker.own_route("P")
    away = BrokerAddresses("c", "0-away", {0: f"127.0.0.1:{free_port()}"})
    broker.route = lambda topic: Route([away, *both.brokers], [QueueData(away.name, 1, 1, 6), *both.queues])
    clock = TestClock()
    client = make_client(clock=clock)
    async with client.lite_consumer("g", "P", ["a"]) as consumer:
        assert len(told) == 1
        await clock.advance_until(lambda: len(told) > 1, 5)
        await consumer.add("b")
        await consumer.remove("a")
        assert [one.changes[0].lite_topics for one in told[-2:]] == [["b"], ["a"]]
        assert consumer.lite_topics == ["b"]
    broker.route = lambda topic: Route([away], [QueueData(away.name, 1, 1, 6)])
    with pytest.raises(Unreachable):
        async with make_client().lite_consumer("g", "P", ["a"]):
            pass


async def test_a_pop_that_had_no_answer_is_repeated_by_the_same_attempt(broker: Broker, make_client: MakeClient) -> None:
    """As where its leader dies. The lite topics of what was in the answer stood still until its time was over."""
    asked: list[str] = []

    def pop(request: PopLite, call: Call) -> LitePopAnswer | Later:
        asked.append(request.attempt_id)
        if len(asked) == 1:
            call.connection.abort("cut by the test")
            return LATER
        return LitePopAnswer(1, 60_000, 999, status=210)

    broker.also(DeclareLites, lambda request, call: None)
    broker.also(PopLite, pop)
    async with make_client().lite_consumer("g", "T", ["a"]) as consumer:
        with pytest.raises(Unknown):
            await consumer.receive(wait_seconds=0)
        while len(asked) < 3:
            await consumer.receive(wait_seconds=0)
    assert asked[0] == asked[1] != asked[2]


async def test_a_broker_that_stands_still_holds_up_no_receive(broker: Broker, make_client: MakeClient) -> None:
    """Whoever asked for what is there waited until that one had been given up, and so did messages that came to another one."""
    still, asked = await Broker("0-still", {"P": 1}).start(), list[PopLite]()

    def pop(request: PopLite, _call: Call) -> LitePopAnswer:
        asked.append(request)
        return LitePopAnswer(1, 60_000, 0, status=R.POLLING_TIMEOUT)

    broker.topics["P"] = 1
    for each in (still, broker):
        each.also(DeclareLites, lambda request, call: None)
    still.also(PopLite, lambda request, call: LATER)
    broker.also(PopLite, pop)
    broker.route = lambda _: route_at("P", still, broker)
    clock = TestClock()
    async with make_client(clock=clock).lite_consumer("g", "P", ["a"]) as consumer:
        began_s = clock.monotonic()
        for number in (1, 2):
            receiving = asyncio.create_task(consumer.receive(wait_seconds=0))
            await clock.advance_until(receiving.done, 0.1)
            assert receiving.result() == []
            assert len(asked) == number
        assert clock.monotonic() - began_s < 3
    await still.stop()


async def test_what_waited_while_the_machine_slept_is_not_received(broker: Broker, make_client: MakeClient) -> None:
    """Its time was over at the broker, which gave it to another client; by this one's timers, which stood still, it was not."""
    other, clock = await Broker("other", {"T": 1}).start(), TestClock(running=False)
    left = {one.name: 1 for one in (broker, other)}
    said = {LIGHT_NAMES: lite_queue("T", "a"), "INNER_MULTI_QUEUE_OFFSET": "0"}

    def pop(which: Broker, request: PopLite, call: Call) -> LitePopAnswer:
        if not left[which.name]:
            return LitePopAnswer(1, 60_000, 999, status=R.POLLING_TIMEOUT)
        left[which.name] = 0
        which.append("T", 0, record.draft("T", b"x", record.properties_to_bytes(said), born_timestamp=1, born_host=bytes(8)))
        return LitePopAnswer(1, 60_000, 999, "0", which.queues["T", 0][0])

    for each in (broker, other):
        each.also(DeclareLites, lambda request, call: None)
        each.also(PopLite, partial(pop, each))
    broker.route = lambda _: route_at("T", broker, other)
    client = make_client(clock=clock)
    async with client.lite_consumer("g", "T", ["a"]) as consumer:
        assert len(await consumer.receive(wait_seconds=0)) == 1
        for each in (broker, other):
            await client.session.connections.request(each.address, Ping())  # whose answer comes behind that one
        clock.suspend(120)
        assert await consumer.receive(wait_seconds=0) == []
    await other.stop()


async def test_brokers_that_stand_still_are_told_of_the_end_at_once(broker: Broker, make_client: MakeClient) -> None:
    """One after the other was waited for; what was declared in vain meanwhile broke that off (`RuntimeError`)."""
    names = ["0-still", "1-still"]
    still = [await Broker(name, {"P": 1}).start() for name in names]
    silent = list[DeclareLites]()

    def declared(request: DeclareLites, _call: Call) -> Later | None:
        if request.changes[0].action == COMPLETE_ADD:
            return None
        silent.append(request)
        return LATER

    broker.topics["P"] = 1
    broker.also(DeclareLites, lambda request, call: None)
    for each in still:
        each.also(DeclareLites, declared)
    broker.route = lambda _: route_at("P", broker, *still)
    clock = TestClock(running=False)
    consumer = make_client(clock=clock).lite_consumer("g", "P", ["a"])
    async with consumer:
        adding = asyncio.create_task(consumer.add("b"))
        await until(lambda: len(silent) == 2)
        await clock.advance(2)
        closing = asyncio.create_task(consumer.close())
        await until(lambda: len(silent) == 4)
        await clock.advance_until(closing.done)
        await closing
        await adding
    for each in still:
        await each.stop()


async def test_what_is_added_in_vain_while_the_whole_set_is_told_is_told_again(broker: Broker, make_client: MakeClient) -> None:
    """The broker counted as told once it had taken the set from before: for up to a minute nothing of that lite topic came."""
    other, held, told = await Broker("other", {"P": 1}).start(), list[Call](), list[list[str]]()

    def declared(request: DeclareLites, call: Call) -> Later | None:
        [change] = request.changes
        if change.action == PARTIAL_ADD:
            raise Refusal(R.SERVICE_NOT_AVAILABLE, "by the test")
        told.append(change.lite_topics)
        if len(told) == 2:
            held.append(call)
            return LATER
        return None

    broker.topics["P"] = 1
    broker.also(DeclareLites, declared)
    other.also(DeclareLites, lambda request, call: None)
    for each in (broker, other):
        each.also(PopLite, lambda request, call: LitePopAnswer(1, 60_000, 0, status=R.POLLING_TIMEOUT))
    broker.route = lambda _: route_at("P", broker, other)
    clock = TestClock(running=False)
    client = make_client(clock=clock)
    async with client.lite_consumer("g", "P", ["a"]) as consumer:
        await clock.advance_until(lambda: held != [])
        await consumer.add("b")
        held[0].answer(None)
        await client.session.connections.request(broker.address, Ping())  # whose answer comes behind that one
        receiving = asyncio.create_task(consumer.receive(wait_seconds=0))
        await until(receiving.done)
        assert told == [["a"], ["a"], ["a", "b"]]
    await other.stop()


async def test_what_one_broker_refuses_is_taken_back_at_the_others(broker: Broker, make_client: MakeClient) -> None:
    """Who added it saw an error, and got its messages from there for up to a minute."""
    other, told = await Broker("other", {"P": 1}).start(), list[list[str]]()

    def refuses(request: DeclareLites, _call: Call) -> None:
        if request.changes[0].action == PARTIAL_ADD:
            raise Refusal(R.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, "by the test")

    broker.topics["P"] = 1
    broker.also(DeclareLites, refuses)
    other.also(DeclareLites, lambda request, call: told.append(request.changes[0].lite_topics))
    broker.route = lambda _: route_at("P", broker, other)
    async with make_client(clock=TestClock(running=False)).lite_consumer("g", "P", ["a"]) as consumer:
        with pytest.raises(Refusal, match="by the test"):
            await consumer.add("b")
        await until(lambda: told == [["a"], ["b"], ["a"]])
    await other.stop()


async def test_what_is_added_while_the_whole_set_is_told_is_told_once_more(broker: Broker, make_client: MakeClient) -> None:
    """The broker may have heard of it first, as where the set was sent on to another leader: then it forgot it for a minute."""
    held, told = list[Call](), list[list[str]]()

    def declared(request: DeclareLites, call: Call) -> Later | None:
        told.append(request.changes[0].lite_topics)
        if len(told) == 2:
            held.append(call)
            return LATER
        return None

    broker.topics["P"] = 1
    broker.also(DeclareLites, declared)
    clock = TestClock(running=False)
    async with make_client(clock=clock).lite_consumer("g", "P", ["a"]) as consumer:
        await clock.advance_until(lambda: held != [])
        await consumer.add("b")
        held[0].answer(None)
        await until(lambda: told == [["a"], ["a"], ["b"], ["a", "b"]])


async def test_a_topic_that_may_not_be_read_is_told(local: LocalBroker, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing came, and nothing said why."""
    peer = await Peer.connect(local.address)
    await peer.ask(parent()._replace(perm=PERM_WRITE))
    await peer.close()
    async with client.lite_consumer("g", "P", ["a"]) as consumer:
        assert await got(consumer, wait_seconds=0) == []
    assert "P may not be read now at any of its brokers: see `rmq admin topicRoute -t P`" in caplog.messages
