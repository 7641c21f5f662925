"""Consuming from a broker that does what a healthy one does not: moved offsets, refusals, lost links; and the limits."""

import asyncio
from pathlib import Path

import pytest

from rmq.client import Client, Closed, InvalidArgument, ReceivedMessage, Unreachable
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, StoreError, no_topic
from rmq.model import RETRY_PREFIX, BrokerAddresses, QueueData, Route
from rmq.net.commands import (
    GetRoute,
    Heartbeat,
    Pull,
    PullAnswer,
    QueryConsumerOffset,
    Send,
    UnregisterClient,
    UpdateConsumerOffset,
)
from rmq.net.commands.retries import SendBack
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import TestClock, until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, cut_link, numbers, queue, refuse


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]


async def test_what_the_group_is_told_to_brokers(broker: Broker, make_client: MakeClient) -> None:
    client = make_client()
    async with client.consumer("g", {"T": "A || B"}):
        (consumer,) = broker.heartbeats[-1].consumers
        assert (consumer.group, consumer.message_model, consumer.consume_from_where) == (
            "g",
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
        )
        wanted = {each.topic: each for each in consumer.subscriptions}
        assert sorted(wanted) == [RETRY_PREFIX + "g", "T"]
        assert (wanted["T"].tags, wanted["T"].codes, wanted["T"].expression) == (["A", "B"], [65, 66], "A || B")
    assert broker.seen(UnregisterClient)[-1].consumer_group == "g"


async def test_consumers_that_start_together_share_their_heartbeats(broker: Broker, make_client: MakeClient) -> None:
    """Each sent one that names all: 300 new groups took a broker half a minute, and whoever waited so long broke the link."""
    client = make_client()
    consumers = [client.consumer(f"g{n}", ["T"]) for n in range(40)]
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    assert len(broker.heartbeats[-1].consumers) == 40
    assert len(broker.heartbeats) < 10
    await asyncio.gather(*(consumer.close() for consumer in consumers))


async def test_topics_that_do_not_exist_are_asked_for_together(broker: Broker, make_client: MakeClient) -> None:
    """One after the other, each for as long as a nameserver that stands still may take: no queue changed hands meanwhile."""
    missing = {f"Missing{number}" for number in range(5)}
    held: dict[str, Call] = {}

    def hold(request: GetRoute, call: Call) -> Route | Later:
        if request.topic not in missing:
            return broker.own_route(request.topic)
        held[request.topic] = call
        return LATER

    broker.also(GetRoute, hold)
    clock = TestClock(running=False)
    async with make_client(clock=clock) as client:
        consumer = client.consumer("g", [*missing, "T"], start="first")
        starting = asyncio.create_task(consumer.start())
        await until(lambda: held.keys() == missing)
        for topic, call in held.items():
            call.refuse(no_topic(topic))
        held.clear()
        await until(lambda: held.keys() == missing)
        await until(lambda: consumer.queues == [queue("T", 0), queue("T", 1)])
        for topic, call in held.items():
            call.refuse(no_topic(topic))
        await starting
        await consumer.close()


async def test_receive_gives_what_is_there_and_an_empty_list_in_time(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 3)
    clock = TestClock()
    async with make_client(clock=clock).consumer("g", "T", start="first") as consumer:
        assert bodies(await consumer.receive(max=2)) == [b"0", b"1"]
        assert bodies(await consumer.receive()) == [b"2"]
        waiting = asyncio.create_task(consumer.receive(timeout=60))
        await clock.advance_until(waiting.done, 10)
        assert waiting.result() == []


async def test_asking_for_more_finishes_and_commit_makes_it_durable(broker: Broker, make_client: MakeClient) -> None:
    """C6: what was handed out last is not finished until more is asked for, or it is committed."""
    broker.put("T", 0, 3)
    async with make_client().consumer("g", "T", start="first") as consumer:
        await consumer.receive(max=1)
        await consumer.receive(max=1)
    assert broker.offsets["g", "T", 0] == 1
    async with make_client().consumer("g", "T") as consumer:
        assert bodies(await consumer.receive(max=1)) == [b"1"]
        await consumer.commit()
        assert broker.offsets["g", "T", 0] == 2


async def test_without_auto_commit_only_commit_finishes(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 4)
    async with make_client().consumer("g", "T", start="first", auto_commit=False) as consumer:
        await consumer.receive(max=2)
        await consumer.commit()
        await consumer.receive(max=1)
        await consumer.receive(max=1)
    assert broker.offsets["g", "T", 0] == 2
    assert not any(pull.sys_flag & 1 for pull in broker.seen(Pull))


async def test_iterating_ends_with_stop(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 5)
    seen = []
    async with make_client().consumer("g", ["T"], start="first") as consumer:
        async for message in consumer:
            seen.append(message.body)
            if len(seen) == 5:
                consumer.stop()
        assert await consumer.receive() == []
    assert seen == list(numbers(5))
    assert broker.offsets["g", "T", 0] == 5


async def test_finished_offsets_are_committed_every_5_s(broker: Broker, make_client: MakeClient) -> None:
    clock = TestClock(running=False)
    async with make_client(clock=clock).consumer("g", "T", start="first") as consumer:
        await until(lambda: len(broker.seen(Pull)) == 2)
        broker.put("T", 0, 2)
        broker.faults[Pull] = [lambda request, call: None] * 9  # no more pulls, which would carry the offset too
        receiving = asyncio.create_task(consumer.receive(max=2))
        await until(receiving.done)
        asking = asyncio.create_task(consumer.receive())
        await clock.advance_until(lambda: broker.offsets.get(("g", "T", 0)) == 2)
        assert clock.monotonic() <= 11
        await clock.advance_until(asking.done)
        assert asking.result() == []


async def test_a_failed_message_that_no_broker_takes_back_is_handed_again_in_place(
    broker: Broker, make_client: MakeClient
) -> None:
    """Never skipped, not committed meanwhile, and it holds up nobody else (C6, C10)."""
    broker.put("T", 0, 4)
    broker.faults[SendBack] = [refuse(1)] * 2
    broker.faults[Send] = [refuse(16)] * 2
    clock = TestClock(running=False)
    seen: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"1" and seen.count(b"1") < 3:
            raise RuntimeError("not now")

    async with make_client(clock=clock).consumer("g", "T", start="first") as consumer:
        running = asyncio.create_task(consumer.run(handler))
        await until(lambda: len(seen) == 4)
        await consumer.commit()
        assert broker.offsets["g", "T", 0] == 1
        await clock.advance_until(lambda: len(seen) == 6)
        consumer.stop()
        await running
        assert clock.monotonic() >= 3  # 1 s, then 2 s
    assert seen == [b"0", b"1", b"2", b"3", b"1", b"1"]
    assert broker.offsets["g", "T", 0] == 4


async def test_a_cancelled_run_lets_its_handlers_end(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 2)
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()
        ended.append(message.body)

    async with make_client().consumer("g", "T", start="first") as consumer:
        running = asyncio.create_task(consumer.run(handler))
        await begun.wait()
        running.cancel()
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended == [b"0"]
        assert bodies(await consumer.receive()) == [b"1"]


async def test_handlers_that_never_end_are_cancelled_and_their_messages_come_again(
    broker: Broker, make_client: MakeClient
) -> None:
    broker.put("T", 0, 2)
    begun, never = asyncio.Event(), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await never.wait()

    consumer = make_client(drain_timeout_s=0.05).consumer("g", "T", start="first")
    await consumer.start()
    running = asyncio.create_task(consumer.run(handler))
    await begun.wait()
    await consumer.close()
    await running  # nobody cancelled who waits for it
    assert broker.offsets["g", "T", 0] == 0


async def test_a_queue_holds_no_more_than_its_limits(broker: Broker, make_client: MakeClient) -> None:
    """C18: pulling stops above the limit and goes on when messages are finished."""
    broker.put("T", 0, 200)
    async with make_client().consumer("g", "T", start="first", max_messages=40) as consumer:
        await until(lambda: max((pull.queue_offset for pull in broker.seen(Pull)), default=0) == 32)
        assert len(await consumer.receive(max=32)) == 32
        await asyncio.sleep(0)
        assert max((pull.queue_offset for pull in broker.seen(Pull)), default=0) == 32
        seen = 32
        while seen < 200:
            seen += len(await consumer.receive(max=16))


@pytest.mark.parametrize(("start", "first"), [("first", b"0"), ("last", b"5"), (3, b"3")])
async def test_where_a_new_group_begins(broker: Broker, make_client: MakeClient, start: object, first: bytes) -> None:
    broker.put("T", 0, 5)
    async with make_client().consumer("g", "T", start=start) as consumer:  # type: ignore[arg-type]
        await until(lambda: len(broker.seen(Pull)) >= 2)
        broker.put("T", 0, 1)
        assert bodies(await consumer.receive(max=1)) == [first]


async def test_a_start_without_messages_is_committed_too(broker: Broker, make_client: MakeClient) -> None:
    """What comes while the group is away is not skipped at its next start from "last"."""
    broker.put("T", 0, 5)
    async with make_client().consumer("g", "T"):
        await until(lambda: len(broker.seen(Pull)) >= 2)
    broker.put("T", 0, 1)
    async with make_client().consumer("g", "T") as consumer:
        assert bodies(await consumer.receive()) == [b"5"]


async def test_an_offset_that_cannot_be_read_is_asked_again_and_never_0(broker: Broker, make_client: MakeClient) -> None:
    """C5."""
    broker.put("T", 0, 5)
    broker.offsets["g", "T", 0] = 4
    broker.faults[QueryConsumerOffset] = [refuse(ResponseCode.SYSTEM_ERROR), cut_link, refuse(ResponseCode.SYSTEM_BUSY)]
    async with make_client().consumer("g", "T", start="first") as consumer:
        assert bodies(await consumer.receive(timeout=20)) == [b"4"]


def moved(to: int) -> "object":
    def answer(request: Pull, call: Call) -> None:
        low, high = (to, 100) if to > request.queue_offset else (0, to)
        call.answer(PullAnswer(to, low, high, status=ResponseCode.PULL_OFFSET_MOVED))

    return answer


@pytest.mark.parametrize(("stored", "corrected"), [(50, 3), (1, 4)])
async def test_a_moved_offset_is_corrected(
    broker: Broker, make_client: MakeClient, stored: int, corrected: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Answer 21: back when the queue is shorter than we thought, forward when retention took messages."""
    broker.topics["T"] = 1
    broker.put("T", 0, 6)
    broker.offsets["g", "T", 0] = stored
    broker.topics[RETRY_PREFIX + "g"] = 0
    broker.faults[Pull] = [moved(corrected)]  # type: ignore[list-item]
    async with make_client().consumer("g", "T") as consumer:
        assert bodies(await consumer.receive(timeout=20)) == list(numbers(6))[corrected:]
        await consumer.commit()
    assert broker.offsets["g", "T", 0] == 6
    assert "is not in the queue any more" in caplog.text


async def test_failed_pulls_are_repeated_and_nothing_is_lost_or_doubled(broker: Broker, make_client: MakeClient) -> None:
    """C5: without a crash every message comes once."""
    broker.put("T", 0, 100)
    broker.faults[Pull] = [refuse(ResponseCode.SYSTEM_BUSY), cut_link, refuse(ResponseCode.NO_PERMISSION)]
    seen: list[bytes] = []
    async with make_client().consumer("g", "T", start="first") as consumer:
        while len(seen) < 100:
            seen += bodies(await consumer.receive(timeout=20))
        assert await consumer.receive(timeout=0.05) == []
    assert seen == list(numbers(100))


async def test_a_topic_that_is_made_later_is_found(broker: Broker, make_client: MakeClient) -> None:
    clock = TestClock()
    async with make_client(clock=clock).consumer("g", "Later", start="first") as consumer:
        assert consumer.queues == []
        broker.topics["Later"] = 1
        broker.put("Later", 0, 1)
        receiving = asyncio.create_task(consumer.receive(timeout=1000))
        await clock.advance_until(receiving.done)
        assert bodies(receiving.result()) == [b"0"]


async def test_a_retried_message_shows_its_own_topic(broker: Broker, make_client: MakeClient) -> None:
    broker.topics[RETRY_PREFIX + "g"] = 1
    broker.put(RETRY_PREFIX + "g", 0, 1)
    async with make_client().consumer("g", "T") as consumer:
        (message,) = await consumer.receive()
        assert message.queue == queue(RETRY_PREFIX + "g", 0)


async def test_one_client_is_one_member_of_a_group(broker: Broker, make_client: MakeClient) -> None:
    client = make_client()
    async with client.consumer("g", "T"):
        with pytest.raises(InvalidArgument, match="another Client"):
            await client.consumer("g", "T").start()


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": "a/b", "topics": "T"},
        {"group": "..", "topics": "T"},
        {"group": "g", "topics": []},
        {"group": "g", "topics": "no topic"},
        {"group": "g", "topics": {"T": "||"}},
        {"group": "g", "topics": "T", "mode": "both"},
        {"group": "g", "topics": "T", "start": "middle"},
        {"group": "g", "topics": "T", "start": True},
        {"group": "g", "topics": "T", "max_messages": 0},
    ],
)
async def test_wrong_arguments_are_refused(make_client: MakeClient, wrong: dict[str, object]) -> None:
    """S9."""
    with pytest.raises(InvalidArgument):
        make_client().consumer(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"max": 0}, {"max": -1}, {"timeout": -0.1}, {"timeout": float("nan")}])
async def test_wrong_wishes_are_refused(broker: Broker, make_client: MakeClient, wrong: dict[str, float]) -> None:
    """And finish nothing: what was handed out before is still unfinished."""
    broker.put("T", 0, 1)
    async with make_client().consumer("g", "T", start="first") as consumer, make_client().light_consumer("g", "n", "T") as light:
        assert bodies(await consumer.receive()) == [b"0"]
        for receive in (consumer.receive, light.receive):
            with pytest.raises(InvalidArgument):
                await receive(**wrong)  # type: ignore[arg-type]
        assert consumer.held == 1


@pytest.mark.parametrize("nameservers", ["", "localhost", "host:0", "host:port", ";"])
def test_wrong_addresses_are_refused(nameservers: str) -> None:
    with pytest.raises(InvalidArgument, match="host:port"):
        Client(nameservers)


async def test_no_nameserver_at_the_start_is_an_error(make_client: MakeClient) -> None:
    with pytest.raises(Unreachable, match="nameserver"):
        await make_client("127.0.0.1:1").consumer("g", "T").start()


async def test_a_consumer_that_is_not_started_says_so(make_client: MakeClient) -> None:
    with pytest.raises(Closed, match="async with"):
        await make_client().consumer("g", "T").receive()


async def test_a_broadcast_member_keeps_its_offsets_in_a_file(broker: Broker, make_client: MakeClient, tmp_path: Path) -> None:
    """C15."""
    broker.put("T", 0, 3)
    for instance in ("one", "two"):
        async with make_client(instance=instance).consumer("g", "T", mode="broadcast", start="first") as consumer:
            assert sorted(consumer.queues) == [queue("T", 0), queue("T", 1)]
            assert len(await consumer.receive()) == 3
            await consumer.commit()
    broker.put("T", 0, 1)
    async with make_client(instance="one").consumer("g", "T", mode="broadcast") as consumer:
        assert bodies(await consumer.receive()) == [b"3"]
    assert (tmp_path / "one" / "g.json").exists()
    assert not broker.offsets
    assert not broker.seen(UpdateConsumerOffset)


@pytest.mark.parametrize("offset", ["", '"7"}]}', "-7}]}", "null}]}", "1.5}]}", f"{2**63}}}]}}"])
async def test_a_damaged_file_of_offsets_is_an_error_not_a_new_start(
    make_client: MakeClient, tmp_path: Path, offset: str
) -> None:
    """C5. With a text for a number, as somebody writes it who sets an offset by hand, nothing was consumed."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "g.json").write_text('{"offsets": [{"topic": "T", "broker": "a", "queue": 0, "offset": ' + offset)
    with pytest.raises(BadBytes, match="g.json"):
        await make_client(instance="one").consumer("g", "T", mode="broadcast").start()


async def test_a_file_of_offsets_that_cannot_be_written_says_so(broker: Broker, make_client: MakeClient, tmp_path: Path) -> None:
    broker.put("T", 0, 1)
    async with make_client(instance="one").consumer("g", "T", mode="broadcast", start="first") as consumer:
        await consumer.receive()
        (tmp_path / "one").write_text("a file where a directory must be")
        with pytest.raises(StoreError, match="offsets_directory"):
            await consumer.commit()
        (tmp_path / "one").unlink()
        await consumer.commit()
    assert (tmp_path / "one" / "g.json").exists()


async def test_bytes_that_are_no_messages_are_pulled_again(broker: Broker, make_client: MakeClient) -> None:
    """Never skipped: what lies there may be whole the next time."""
    broker.put("T", 0, 1)
    broker.faults[Pull] = [lambda request, call: call.answer(PullAnswer(1, 0, 1, b"junk"))] * 2
    async with make_client().consumer("g", "T", start="first") as consumer:
        assert bodies(await consumer.receive(timeout=20)) == [b"0"]


async def test_handlers_that_never_wait_do_not_hold_the_others_up(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 500)
    seen: list[bytes] = []
    async with make_client().consumer("g", "T", start="first") as consumer:
        await until(lambda: len(broker.seen(Pull)) > 500 // 32)
        running = asyncio.create_task(consumer.run(lambda message: seen.append(message.body)))
        turns = 0
        while len(seen) < 500:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10
        consumer.stop()
        await running


async def test_a_heartbeat_that_gets_no_answer_opens_a_new_link(broker: Broker, make_client: MakeClient) -> None:
    """A link that swallows everything looks open for ever; N1."""
    clock = TestClock()
    async with make_client(clock=clock).consumer("g", "T"):
        broker.faults[Heartbeat] = [lambda request, call: None]
        count = len(broker.heartbeats)
        await clock.advance_until(lambda: len(broker.heartbeats) > count)


async def test_a_member_that_brokers_forgot_lets_its_queues_go_and_comes_back(broker: Broker, make_client: MakeClient) -> None:
    """C8: others own them by then; never two owners for longer than a heartbeat."""
    client = make_client()
    async with client.consumer("g", "T", start="first") as consumer:
        assert len(consumer.queues) == 2
        connection = broker.members["g"].pop(client.client_id)
        broker.members["g"]["somebody else"] = connection  # notices reach us through it
        broker.faults[Heartbeat] = [refuse(ResponseCode.SYSTEM_BUSY)]
        broker.notify("g")
        await until(lambda: consumer.queues == [])
        await until(lambda: len(consumer.queues) == 1)


async def test_a_queue_goes_on_after_a_handler_was_cancelled(broker: Broker, make_client: MakeClient) -> None:
    broker.put("T", 0, 2)
    begun, never = asyncio.Event(), asyncio.Event()

    async def stuck(message: ReceivedMessage) -> None:
        begun.set()
        await never.wait()

    async with make_client(drain_timeout_s=0.05).consumer("g", "T", start="first") as consumer:
        running = asyncio.create_task(consumer.run(stuck))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
        assert bodies(await consumer.receive()) == [b"0", b"1"]


@pytest.mark.parametrize("whole", [False, True])
async def test_iterating_ends_with_close(broker: Broker, make_client: MakeClient, whole: bool) -> None:
    """It ended so for who waited for a message, and was an error for who was at work on one."""
    broker.put("T", 0, 2)
    client, seen = make_client(), []
    async with client.consumer("g", ["T"], start="first") as consumer:
        async for message in consumer:
            seen.append(message.body)
            await (client if whole else consumer).close()
    assert seen == [b"0"]
    assert broker.offsets["g", "T", 0] == 0, "what it was at work on comes again"


async def test_a_broker_that_stands_still_is_asked_once_for_all_topics(broker: Broker, make_client: MakeClient) -> None:
    """Each topic waited for it by itself: a member of twenty topics took a minute to begin, or to take over from another one."""
    quiet: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: quiet.append(writer), "127.0.0.1", 0)
    still = BrokerAddresses("c", "Z", {0: f"127.0.0.1:{server.sockets[0].getsockname()[1]}"})  # sorts before "a"
    groups = [BrokerAddresses("c", "a", {0: broker.address}), still]
    broker.route = lambda topic: Route(groups, [QueueData(one.name, 1, 1, 6) for one in groups])
    client = make_client(connect_timeout_s=0.3, request_timeout_s=0.3)
    clock = client.session.clock
    consumer = client.consumer("g", [f"T{number}" for number in range(20)])
    began = clock.monotonic()
    async with consumer:
        assert clock.monotonic() - began < 3
        assert quiet
        assert len(consumer.queues) == 42
    for writer in quiet:
        writer.close()
    server.close()
