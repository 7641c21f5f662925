"""Sending: choice of queues, retries, outcomes."""

import asyncio
from typing import Any

import pytest

from rmq.client import Client, Closed, InvalidArgument, Message, MessageQueue, Producer, Refusal, SendStatus, Unknown, Unreachable
from rmq.client.producer.producer import MOST_TOPICS
from rmq.client.shared.session import checked_topic
from rmq.codes import ResponseCode
from rmq.log.records import record
from rmq.model import TEMPLATE_TOPIC, BrokerAddresses, QueueData, Route
from rmq.net.commands import GetRoute, Ping, Send, SendAnswer
from rmq.net.commands.routes import ClusterInfo, GetClusterInfo
from rmq.net.transport.server import LATER, Call
from rmq.testing import LocalBroker, TestClock, entries, until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, bodies, cut_link, never_answer, numbers, queue, refuse
from tests.ports import free_port


async def test_queues_take_turns_and_results_say_where(broker: Broker, make_client: MakeClient) -> None:
    producer = make_client().producer("g")
    results = [await producer.send(Message("T", body)) for body in numbers(6)]
    assert sorted(bodies(broker, "T")) == [0, 1]
    assert [len(each) for each in bodies(broker, "T").values()] == [3, 3]
    for number, result in enumerate(results):
        assert bodies(broker, "T")[result.queue.queue_id][result.queue_offset] == str(number).encode()
        assert result.status is SendStatus.SEND_OK
    assert len({result.message_id for result in results}) == 6


@pytest.mark.parametrize("queues", [QueueData("a", 1, 1, 4), QueueData("a", 1, 0, 6)])
async def test_a_topic_that_may_not_be_written_to_is_no_broker_that_is_away(
    broker: Broker, make_client: MakeClient, queues: QueueData
) -> None:
    """People looked for a broker, and waited until the time was up. As what brokers refuse, it is tried twice more."""
    broker.route = lambda topic: Route([BrokerAddresses("c", "a", {0: broker.address})], [queues])
    with pytest.raises(Refusal, match="T may not be written to now at any of its brokers: see `rmq admin topicRoute -t T`"):
        await make_client().producer("g").send(Message("T", b"x"), timeout=300)


async def test_a_message_may_bring_its_id(broker: Broker, make_client: MakeClient) -> None:
    producer = make_client().producer("g")
    assert (await producer.send(Message("T", b"x", message_id="job-7"))).message_id == "job-7"
    batch = await producer.send_batch([Message("T", b"x", message_id="job-8"), Message("T", b"x")])
    assert batch[0].message_id == "job-8"
    properties = [record.decode(raw).properties for stored in broker.queues.values() for raw in stored]
    stored_ids = {record.bytes_to_properties(each)["UNIQ_KEY"] for each in properties}
    assert stored_ids == {"job-7", "job-8", batch[1].message_id}


async def test_a_key_a_queue_and_a_selector_choose(broker: Broker, make_client: MakeClient) -> None:
    producer = make_client().producer()
    assert len({(await producer.send(Message("T", b"x"), key="order-1")).queue for _ in range(5)}) == 1
    assert (await producer.send(Message("T", b"x"), queue=queue("T", 1))).queue == queue("T", 1)

    def last(queues: object, message: Message) -> MessageQueue:
        assert isinstance(queues, list)
        return max(queues)

    assert (await producer.send(Message("T", b"x"), queue=last)).queue == queue("T", 1)
    with pytest.raises(InvalidArgument, match="not both"):
        await producer.send(Message("T", b"x"), key="k", queue=last)
    with pytest.raises(InvalidArgument, match="no queue of topic"):
        await producer.send(Message("T", b"x"), queue=queue("Other", 1))


@pytest.mark.parametrize("message", [Message("T", b""), Message("a/b", b"x"), Message("", b"x"), Message("T" * 256, b"x")])
async def test_what_may_not_be_is_refused_before_anything_is_sent(
    broker: Broker, make_client: MakeClient, message: Message
) -> None:
    """S9."""
    with pytest.raises(InvalidArgument):
        await make_client().producer().send(message)
    assert not broker.seen(Send)


HALF = "caf\udce9"  # as Python reads the name of a file that is not UTF-8


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", flag=2**31),
        Message("T", b"x", flag=-(2**31) - 1),
        Message("T", b"x", tags=HALF),
        Message("T", b"x", keys=[HALF]),
        Message("T", b"x", properties={"file": HALF}),
        Message("T", b"x", properties={HALF: "file"}),
        Message("T", b"x", message_id=HALF),
        Message("T", b"x", light_queues=[HALF]),
        Message(HALF, b"x"),
    ],
)
async def test_what_cannot_be_written_is_a_wrong_argument(broker: Broker, make_client: MakeClient, message: Message) -> None:
    producer = make_client().producer()
    wrong = "flag" if message.flag else "udce9"
    for sending in (producer.send(message), producer.send_batch([Message("T", b"y"), message]), producer.send_oneway(message)):
        with pytest.raises(InvalidArgument, match=wrong):
            await sending
    assert not broker.seen(Send)


async def test_a_key_and_what_a_selector_returns_are_checked(broker: Broker, make_client: MakeClient) -> None:
    producer = make_client().producer()
    with pytest.raises(InvalidArgument, match="give a text"):
        await producer.send(Message("T", b"x"), key=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="returned None: return one of the queues"):
        await producer.send(Message("T", b"x"), queue=lambda queues, message: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidArgument, match="returned 3"):
        await producer.send(Message("T", b"x"), queue=lambda queues, message: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidArgument, match="no queue of topic"):
        await producer.send(Message("T", b"x"), queue=lambda queues, message: queue("Other", 1))
    with pytest.raises(InvalidArgument, match="a function that chooses"):
        await producer.send(Message("T", b"x"), queue=0)  # type: ignore[arg-type]
    assert not broker.seen(Send)


async def test_a_refusal_that_may_pass_is_tried_twice_more(broker: Broker, make_client: MakeClient) -> None:
    """C19."""
    producer = make_client().producer()
    broker.faults[Send] = [refuse(ResponseCode.SYSTEM_BUSY)] * 2
    await producer.send(Message("T", b"x"))
    broker.faults[Send] = [refuse(ResponseCode.SYSTEM_BUSY)] * 3
    with pytest.raises(Refusal, match="SYSTEM_BUSY"):
        await producer.send(Message("T", b"y"))
    assert sum(bodies(broker, "T").values(), []) == [b"x"]


async def test_a_final_refusal_is_not_tried_again(broker: Broker, make_client: MakeClient) -> None:
    broker.faults[Send] = [refuse(ResponseCode.MESSAGE_ILLEGAL)]
    with pytest.raises(Refusal, match="MESSAGE_ILLEGAL"):
        await make_client().producer().send(Message("T", b"x"))
    assert len(broker.seen(Send)) == 1


@pytest.mark.parametrize("fault", [never_answer, cut_link])
async def test_no_answer_is_unknown_and_not_tried_again_unless_asked(
    broker: Broker, make_client: MakeClient, fault: object
) -> None:
    """C19: a timeout or a broken link is no failure; the message may be stored."""
    producer = make_client().producer()
    broker.faults[Send] = [fault]  # type: ignore[list-item]
    with pytest.raises(Unknown):
        await producer.send(Message("T", b"x"), timeout=0.3)
    assert len(broker.seen(Send)) == 1
    broker.faults[Send] = [cut_link]
    await producer.send(Message("T", b"x"), retry_unknown=True)
    assert len(broker.seen(Send)) == 3


async def test_another_broker_is_tried_first(broker: Broker, make_client: MakeClient) -> None:
    """C19."""
    other = await Broker("b").start()
    broker.route = lambda topic: Route(
        [BrokerAddresses("c", "a", {0: broker.address}), BrokerAddresses("c", "b", {0: other.address})],
        [QueueData("a", 2, 2, 6), QueueData("b", 2, 2, 6)],
    )
    producer = make_client().producer()
    broker.faults[Send] = [refuse(ResponseCode.SYSTEM_BUSY)] * 100
    for _ in range(4):
        assert (await producer.send(Message("T", b"x"))).queue.broker_name == "b"
    broker.faults.clear()
    await other.stop()
    for _ in range(4):
        assert (await producer.send(Message("T", b"x"))).queue.broker_name == "a"


async def test_a_broker_that_comes_back_in_time_is_not_noticed(broker: Broker, make_client: MakeClient) -> None:
    client = make_client()
    producer = client.producer()
    await producer.send(Message("T", b"before"))
    port = int(broker.address.rpartition(":")[2])
    await broker.stop()
    sending = asyncio.create_task(producer.send(Message("T", b"after"), timeout=30))
    await until(lambda: not client.session.connections.is_open(broker.address))
    await broker.start(port)
    assert (await sending).status is SendStatus.SEND_OK


async def test_a_broker_that_stays_away_is_unreachable(broker: Broker, make_client: MakeClient) -> None:
    producer = make_client().producer()
    await producer.send(Message("T", b"before"))
    await broker.stop()
    with pytest.raises(Unreachable):
        await producer.send(Message("T", b"after"), timeout=0.2)


async def test_sending_goes_on_with_all_nameservers_down(broker: Broker, make_client: MakeClient) -> None:
    """N3."""
    nameserver = await Broker("ns").start()
    nameserver.route = broker.own_route
    clock = TestClock()
    producer = make_client(nameserver.address, clock=clock).producer()
    await producer.send(Message("T", b"1"))
    await nameserver.stop()
    await clock.advance(300)
    await producer.send(Message("T", b"2"))
    assert sorted(sum(bodies(broker, "T").values(), [])) == [b"1", b"2"]


async def test_a_missing_topic_is_made_after_the_template(broker: Broker, make_client: MakeClient) -> None:
    broker.topics[TEMPLATE_TOPIC] = 8
    producer = make_client().producer()
    for _ in range(8):
        await producer.send(Message("New", b"x"))
    first = broker.seen(Send)[0]
    assert (first.default_topic, first.default_topic_queue_nums) == (TEMPLATE_TOPIC, 4)
    assert sorted(bodies(broker, "New")) == [0, 1, 2, 3]


async def test_a_missing_topic_that_nobody_may_make_says_what_to_do(broker: Broker, make_client: MakeClient) -> None:
    with pytest.raises(Refusal, match="updateTopic -t New"):
        await make_client().producer().send(Message("New", b"x"))


async def test_a_nameserver_that_was_just_started_is_asked_until_its_brokers_are_back() -> None:
    """It said that the topic does not exist: create it."""
    async with LocalBroker(auto_create_topic=False) as local:
        await local.create_topic("T")
        await local.stop_broker()
        await local.stop_nameserver()
        await local.start_nameserver()
        async with local.client() as client, client.producer() as producer:
            with pytest.raises(Unreachable, match="no broker is registered there, or none yet, so T lives nowhere"):
                await producer.send(Message("T", b"x"), timeout=1)
            sending = asyncio.create_task(producer.send(Message("T", b"x"), timeout=60))
            await local.start_broker()
            assert (await sending).status is SendStatus.SEND_OK
            with pytest.raises(Refusal, match="updateTopic -t Nowhere"):
                await producer.send(Message("Nowhere", b"x"), timeout=60)


async def test_beside_a_nameserver_that_was_just_started_a_topic_is_missing(broker: Broker, make_client: MakeClient) -> None:
    """That one has no broker, so it was asked again and again: nobody could be reached, it said in the end."""
    young, held, clock = await Broker().start(), list[Call](), TestClock(running=False)
    young.also(GetClusterInfo, lambda request, call: ClusterInfo([]))
    broker.also(GetClusterInfo, lambda request, call: held.append(call) or LATER)  # type: ignore[func-returns-value]
    client = make_client(f"{young.address};{broker.address}", clock=clock)
    sending = asyncio.create_task(client.producer().send(Message("Nowhere", b"x"), timeout=60))

    async def answered() -> None:
        """Each time behind the other one."""
        while True:
            await until(lambda: held)
            await client.session.connections.request(young.address, Ping())
            held.pop().answer(ClusterInfo([BrokerAddresses("c", "a", {0: broker.address})]))

    answering = asyncio.create_task(answered())
    await clock.advance_until(sending.done, step_s=0.05)
    answering.cancel()
    with pytest.raises(Refusal, match="updateTopic -t Nowhere"):
        await sending
    await young.stop()


async def test_no_nameserver_is_unreachable(make_client: MakeClient) -> None:
    with pytest.raises(Unreachable, match="nameserver"):
        await make_client("127.0.0.1:1").producer().send(Message("T", b"x"), timeout=0.2)


async def test_why_no_nameserver_answered_is_told(make_client: MakeClient) -> None:
    """Each of them, as with `consumer`: whether a port is wrong, a name, or TLS."""
    client = make_client("127.0.0.1:1;127.0.0.1:2")
    for sending in (client.producer().send(Message("T", b"x"), timeout=0.2), client.producer().send_oneway(Message("T", b"x"))):
        with pytest.raises(Unreachable, match=r"127.0.0.1:1 cannot be reached: .*; 127.0.0.1:2 cannot be reached: ") as failure:
            await sending
        assert isinstance(failure.value.__cause__, Unreachable)


async def test_why_it_failed_before_is_told_when_the_time_is_up(broker: Broker, make_client: MakeClient) -> None:
    broker.faults[GetRoute] = [cut_link, *[never_answer] * 9]
    clock = TestClock(running=False)
    sending = asyncio.create_task(make_client(clock=clock).producer().send(Message("T", b"x")))
    await clock.advance_until(lambda: len(broker.seen(GetRoute)) == 2, 0.05)
    await clock.advance_until(sending.done)
    with pytest.raises(Unreachable, match=r"within the timeout: before, .* broke before the answer came") as failure:
        await sending
    assert isinstance(failure.value.__cause__, Unreachable)


def test_a_wrong_name_says_what_is_right() -> None:
    with pytest.raises(InvalidArgument, match=r"topic 'a b', 3 characters: 1 to 127 letters"):
        checked_topic("a b")
    with pytest.raises(InvalidArgument, match=r"instance 'a b': only letters"):
        Client("127.0.0.1:9876", instance="a b")


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x", "%LMQ%room-1"])
async def test_what_only_brokers_write_to_is_a_wrong_argument(broker: Broker, make_client: MakeClient, name: str) -> None:
    """They refuse it with NO_PERMISSION, which counts as one that may pass (a topic closed for a while): a program that sends
    again while errors are `retryable` would do so for ever."""
    with pytest.raises(InvalidArgument, match="brokers' own|light_queues"):
        await make_client().producer().send(Message(name, b"x"))
    assert not broker.seen(Send)


async def test_one_way_asks_for_no_answer(broker: Broker, make_client: MakeClient) -> None:
    broker.faults[Send] = [never_answer]
    producer = make_client().producer()
    await producer.send_oneway(Message("T", b"lost"))
    await producer.send_oneway(Message("T", b"kept"))
    await until(lambda: len(broker.seen(Send)) == 2)
    assert sum(bodies(broker, "T").values(), []) == [b"kept"]


async def test_a_loop_of_one_way_sends_does_not_hold_the_others_up(broker: Broker, make_client: MakeClient) -> None:
    """D18: and what is not written yet stays bounded."""
    producer = make_client().producer()
    await producer.send_oneway(Message("T", b"x"))
    sending = asyncio.create_task(send_many(producer, 1000))
    turns = 0
    while not sending.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    await until(lambda: len(broker.seen(Send)) == 1001)


async def send_many(producer: Producer, count: int) -> None:
    for _ in range(count):
        await producer.send_oneway(Message("T", b"x"))


async def test_a_batch_is_one_request_a_topic_and_results_are_in_order(broker: Broker, make_client: MakeClient) -> None:
    broker.topics["U"] = 1
    messages = [Message("U" if number % 3 == 0 else "T", body) for number, body in enumerate(numbers(10))]
    results = await make_client().producer().send_batch(messages)
    assert [request.batch for request in broker.seen(Send)] == [True, True]
    for message, result in zip(messages, results, strict=True):
        assert bodies(broker, message.topic)[result.queue.queue_id][result.queue_offset] == message.body
    assert len({result.message_id for result in results}) == 10


async def test_a_large_batch_is_cut_and_a_failure_tells_what_was_stored(broker: Broker, make_client: MakeClient) -> None:
    producer = make_client().producer()
    messages = [Message("T", bytes([number + 1]) * 1_500_000) for number in range(5)]
    assert len(await producer.send_batch(messages)) == 5
    assert len(broker.seen(Send)) == 3
    assert all(len(request.records) <= 4 * 1024 * 1024 for request in broker.seen(Send))

    def serve(request: Send, call: object) -> None:
        call.answer(SendAnswer(request.queue_id, 0, 0))  # type: ignore[attr-defined]

    broker.faults[Send] = [serve, refuse(ResponseCode.MESSAGE_ILLEGAL)]
    with pytest.raises(Refusal) as failure:
        await producer.send_batch(messages)
    assert failure.value.__notes__ == ["2 of the 5 messages of this batch were stored before this failure"]


@pytest.mark.parametrize("begun", [0, 1])
async def test_a_batch_that_is_stored_in_part_is_not_to_be_tried_again(
    begun: int, broker: Broker, make_client: MakeClient
) -> None:
    """It said that nothing was stored: whoever sent all of it again had that part twice."""
    broker.topics["U"] = 1
    other = BrokerAddresses("c", "away", {0: f"127.0.0.1:{free_port()}"})
    away = Route([other], [QueueData("away", 1, 1, 6, 0)])
    broker.route = lambda topic: broker.own_route(topic) if topic == "T" else away
    kind = Unknown if begun else Unreachable
    with pytest.raises(kind) as failure:
        await make_client().producer().send_batch([Message("T", b"x")] * begun + [Message("U", b"y")], timeout=0.3)
    assert (type(failure.value), failure.value.retryable) == (kind, not begun)
    assert failure.value.__notes__ == [f"{begun} of the {begun + 1} messages of this batch were stored before this failure"]


async def test_an_empty_batch_is_nothing(make_client: MakeClient) -> None:
    assert await make_client().producer().send_batch([]) == []


async def test_names_of_topics_take_only_so_much_memory(broker: Broker, make_client: MakeClient) -> None:
    """A service may name topics after its users, and those that do not exist count, too."""
    producer = make_client().producer()
    nowhere = MessageQueue("Other", "b", 0)

    async def name(*numbers: int) -> int:
        for number in numbers:
            with pytest.raises(InvalidArgument, match="is no queue of topic"):
                await producer.send(Message(f"T{number}", b"x"), queue=nowhere)
        return entries(producer)

    few = MOST_TOPICS // 10  # more than all else that it and its client note
    await producer.send(Message("T", b"first"))
    assert await name(*range(MOST_TOPICS - 1)) >= MOST_TOPICS
    assert await name(-1) < few
    assert (await producer.send(Message("T", b"still"))).status == SendStatus.SEND_OK
    assert entries(producer) < few


async def test_a_closed_producer_and_a_closed_client_say_so(broker: Broker, make_client: MakeClient) -> None:
    client = make_client()
    async with client.producer("g") as producer:
        await producer.send(Message("T", b"x"))
        await until(lambda: broker.heartbeats)
        assert broker.heartbeats[-1].producers == ["g"]
    with pytest.raises(Closed):
        await producer.send(Message("T", b"x"))
    await client.close()
    with pytest.raises(Closed):
        client.producer()


async def test_the_largest_epoch_over_all_nameservers_counts(broker: Broker, make_client: MakeClient) -> None:
    """N2: the second nameserver still names a deposed leader."""
    old, new = await Broker("old").start(), await Broker("new").start()
    nameservers = [await Broker(f"ns{number}").start() for number in range(2)]
    for nameserver, leader, epoch in zip(nameservers, (new, old), (7, 6), strict=True):
        group = BrokerAddresses("c", "a", {0: leader.address}, epoch)
        nameserver.route = lambda topic, group=group: Route([group], [QueueData("a", 2, 2, 6)])  # type: ignore[misc]
    client: Client = make_client(";".join(each.address for each in nameservers))
    for _ in range(4):
        await client.session.routes.refresh("T")
        await client.producer().send(Message("T", b"x"))
    assert (len(new.seen(Send)), len(old.seen(Send))) == (4, 0)
    assert not broker.seen(GetRoute)
    for each in (old, new, *nameservers):
        await each.stop()


async def test_heartbeats_come_every_30_s_and_at_once_after_a_lost_link(broker: Broker, make_client: MakeClient) -> None:
    clock = TestClock(running=False)
    producer = make_client(clock=clock).producer("g")
    await producer.send(Message("T", b"x"))
    await until(lambda: broker.heartbeats)
    began, count = clock.monotonic(), len(broker.heartbeats)
    await clock.advance_until(lambda: len(broker.heartbeats) > count)
    assert 29 <= clock.monotonic() - began <= 32
    count = len(broker.heartbeats)
    broker.cut_connections()
    await until(lambda: len(broker.heartbeats) > count)


async def test_behind_a_sleep_of_the_machine_a_heartbeat_comes_at_once(broker: Broker, make_client: MakeClient) -> None:
    """The broker's time went on: up to 30 s later it had forgotten a member that was there."""
    clock = TestClock(running=False)
    producer = make_client(clock=clock).producer("g")
    await producer.send(Message("T", b"x"))
    await until(lambda: broker.heartbeats)
    await clock.advance(1)
    count = len(broker.heartbeats)
    clock.suspend(100)
    began = clock.monotonic()
    await clock.advance_until(lambda: len(broker.heartbeats) > count)
    assert clock.monotonic() - began < 20


@pytest.mark.parametrize("oneway", [False, True])
async def test_more_at_once_than_a_connection_holds_unsent(broker: Broker, make_client: MakeClient, oneway: bool) -> None:
    """They leave as the broker reads; the connection stays, so none is unknown."""
    producer = make_client().producer()
    await producer.send(Message("T", b"first"))
    large = Message("T", b"x" * 3_000_000)
    if oneway:
        for _ in range(40):
            await producer.send_oneway(large)
    else:
        await asyncio.gather(*(producer.send(large, timeout=30.0) for _ in range(40)))
    await producer.send(Message("T", b"last"), timeout=30.0)
    assert len(sum(bodies(broker, "T").values(), [])) == 42


@pytest.mark.parametrize("how", [{}, {"key": "k"}, {"queue": lambda queues, message: queues[-1]}], ids=["turns", "key", "chosen"])
async def test_a_topic_that_has_fewer_queues_by_now_takes_each_message(how: dict[str, Any]) -> None:
    """Those for the others were refused until the next look at the routes, for half a minute. One that is named is refused."""
    async with LocalBroker() as local, local.client() as client, client.producer() as producer:
        await local.create_topic("T", queues=8)
        await producer.send(Message("T", b"x"))
        await local.create_topic("T", queues=1)
        sent = [await producer.send(Message("T", b"x"), **how) for _ in range(8)]
        assert {each.queue.queue_id for each in sent} == {0}
        with pytest.raises(Refusal, match="queue 7 of T"):
            await producer.send(Message("T", b"x"), queue=MessageQueue("T", "broker-a", 7))
