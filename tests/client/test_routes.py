"""What is known of routes, and how long."""

import asyncio

import pytest

from rmq.client import InvalidArgument, Message, Refusal, Unreachable
from rmq.client.admin import calls, lookups
from rmq.client.shared.nameservers import parse_addresses
from rmq.client.shared.routes import AT_ONCE, get_all, merge
from rmq.codes import ResponseCode
from rmq.model import TEMPLATE_TOPIC, BrokerAddresses, MessageQueue, QueueData, Route
from rmq.net.commands import GetRoute, Ping, Pull, PullAnswer, Send
from rmq.net.transport.server import LATER, Call, Later
from rmq.testing import TestClock, until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, never_answer, queue, refuse, route_at


def group(name: str, epoch: int = 0) -> BrokerAddresses:
    return BrokerAddresses("c", name, {0: f"{name}:1"}, epoch)


def test_addresses_are_read_in_every_usual_form() -> None:
    assert parse_addresses("a:1; b:2,a:1;") == ["a:1", "b:2"]
    assert parse_addresses(["a:1", "[::1]:2"]) == ["a:1", "[::1]:2"]


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:9876",
        "127.0.0.1",
        "a b:1",
        "user@a:1",
        "a:0",
        "a:65536",
        ":1",
        pytest.param("a:" + "9" * 5000, id="long"),
    ],
)
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidArgument, match="give host:port, as 127.0.0.1:9876"):
        parse_addresses(address)


async def test_a_brokers_address_in_a_nameservers_place_is_guessed(broker: Broker, make_client: MakeClient) -> None:
    unknown = " request type 105 not supported"  # as brokers say it
    broker.faults[GetRoute] = [refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, unknown)] * 2
    for _ in range(2):
        with pytest.raises(Refusal, match=f"105 not supported: {broker.address} is probably no nameserver's address"):
            await make_client().producer().send(Message("T", b"x"))


def test_answers_are_merged_to_all_that_any_nameserver_knows() -> None:
    """N5: a nameserver that has just started knows some of the brokers only."""
    young = Route([group("b")], [QueueData("b", 4, 4, 6)])
    old = Route([group("a"), group("b")], [QueueData("a", 8, 8, 6), QueueData("b", 2, 2, 6)], "a:8")
    merged = merge([young, old], {"a": group("a"), "b": group("b", 3)})
    assert merged == Route([group("a"), group("b", 3)], [QueueData("a", 8, 8, 6), QueueData("b", 4, 4, 6)], "a:8")


async def test_many_who_ask_share_one_question(broker: Broker, make_client: MakeClient) -> None:
    routes = make_client().session.routes
    await asyncio.gather(*(routes.get("T") for _ in range(50)))
    assert len(broker.seen(GetRoute)) == 1


async def test_a_silent_nameserver_delays_little(broker: Broker, make_client: MakeClient) -> None:
    silent = await Broker().start()
    silent.faults[GetRoute] = [never_answer] * 9
    clock = TestClock(running=False)
    client = make_client(f"{silent.address};{broker.address}", clock=clock)
    asking = asyncio.create_task(client.session.routes.get("T"))
    await clock.advance_until(asking.done, 0.05)
    assert (await asking).queues
    assert clock.monotonic() < 1
    await silent.stop()


async def test_a_link_that_swallows_everything_is_opened_anew(broker: Broker, make_client: MakeClient) -> None:
    """Its connection looks open, as behind a firewall that was started again."""
    broker.faults[GetRoute] = [never_answer]
    clock = TestClock(running=False)
    client = make_client(clock=clock)
    opened: list[str] = []
    client.session.connections.on_opened.append(opened.append)
    asking = asyncio.create_task(client.session.nameservers.ask(GetRoute("T")))
    await clock.advance_until(asking.done)
    assert isinstance(asking.exception(), Unreachable)
    assert isinstance(await client.session.nameservers.ask(GetRoute("T")), Route)
    assert opened == [broker.address] * 2


async def test_a_link_that_swallows_everything_is_given_up_beside_another_nameserver(
    broker: Broker, make_client: MakeClient
) -> None:
    """The question ended with who asked, who had another answer: brokers that this nameserver alone knows stayed unknown until
    the system gave the connection up."""
    alone = await Broker("b", {"T": 1}).start()
    alone.faults[GetRoute] = [never_answer]
    clock = TestClock(running=False)
    client = make_client(f"{broker.address};{alone.address}", clock=clock)
    routes = client.session.routes
    asking = asyncio.create_task(routes.get("T"))
    await clock.advance_until(asking.done, 0.05)
    assert {group.name for group in (await asking).brokers} == {"a"}
    await clock.advance_until(lambda: not alone.connected, 0.05)
    assert {group.name for group in (await routes.refresh("T")).brokers} == {"a", "b"}
    await alone.stop()


async def test_who_was_only_a_moment_behind_the_first_answer_is_waited_for_the_next_time(make_client: MakeClient) -> None:
    """What one nameserver alone knows was missing in an answer right behind a question that the first answer was enough for."""
    first, second = await Broker("a", {"T": 1}).start(), await Broker("b", {"T": 1}).start()
    held = list[Call]()
    second.also(GetRoute, lambda request, call: held.append(call) or LATER)  # type: ignore[func-returns-value]
    client = make_client(f"{first.address};{second.address}", clock=TestClock(running=False))
    await client.session.nameservers.ask(GetRoute("T"))
    asking = asyncio.create_task(client.session.nameservers.ask_all(GetRoute("T")))
    await until(lambda: len(held) == 2)
    await client.session.connections.request(first.address, Ping())  # whose answer comes behind that one
    for call in held:
        call.answer(Route([BrokerAddresses("c", "b", {0: second.address})], [QueueData("b", 1, 1, 6)]))
    assert len(await asking) == 2
    for each in (first, second):
        await each.stop()


async def test_administrators_do_not_wait_for_a_silent_nameserver(broker: Broker, make_client: MakeClient) -> None:
    silent = await Broker().start()
    silent.faults[GetRoute] = [never_answer] * 9
    clock = TestClock(running=False)
    client = make_client(f"{silent.address};{broker.address}", clock=clock)
    for _ in range(5):  # it was asked first every other time
        asking = asyncio.create_task(client.session.nameservers.ask(GetRoute("T")))
        await until(asking.done)
        assert isinstance(asking.result(), Route)
    refused = asyncio.create_task(client.session.nameservers.ask(GetRoute("Nowhere")))
    await clock.advance_until(refused.done, 0.05)
    assert isinstance(refused.exception(), Refusal)
    assert clock.monotonic() < 1
    await silent.stop()


async def test_a_topic_nobody_knows_any_more_is_kept_for_120_s(broker: Broker, make_client: MakeClient) -> None:
    """N3: a nameserver that restarted empty does not take away what a client knows; N1: but not for ever."""
    clock = TestClock()
    client = make_client(clock=clock)
    routes = client.session.routes
    await routes.get("T")
    began = clock.monotonic()
    del broker.topics["T"]
    with pytest.raises(Refusal):
        await routes.refresh("T")
    assert routes.known("T") is not None
    await clock.advance_until(lambda: routes.known("T") is None, 1)
    assert 120 <= clock.monotonic() - began < 160
    assert routes.brokers() == {}


async def test_a_group_without_a_leader_is_unreachable(broker: Broker, make_client: MakeClient) -> None:
    broker.route = lambda topic: Route([BrokerAddresses("c", "a", {1: broker.address})], [QueueData("a", 1, 1, 6)])
    routes = make_client().session.routes
    await routes.get("T")
    with pytest.raises(Unreachable, match="no leader"):
        routes.leader("a")


@pytest.mark.parametrize("impossible", ["nonsense", "host:0", f"{'x' * 70}:10911", "a\0b:10911"])
async def test_an_address_that_is_none_harms_nobody_else(broker: Broker, make_client: MakeClient, impossible: str) -> None:
    """It ended the heartbeats, for all brokers, and each second send failed; one in a refusal did so until the next election."""
    groups = [BrokerAddresses("c", "a", {0: broker.address}), BrokerAddresses("c", "b", {0: impossible})]
    broker.route = lambda topic: Route(groups, [QueueData("a", 1, 1, 6), QueueData("b", 1, 1, 6)])
    client = make_client(heartbeat_s=0.1)
    producer = client.producer()
    for _ in range(4):
        assert (await producer.send(Message("T", b"x"), timeout=30)).queue.broker_name == "a"
    before = len(broker.heartbeats)
    await until(lambda: len(broker.heartbeats) > before + 1)
    broker.faults[Send] = [refuse(ResponseCode.SERVICE_NOT_AVAILABLE, hint=impossible)]
    assert (await producer.send(Message("T", b"x"), queue=queue("T", 0), timeout=30)).status == 0


# --- epochs that are over


def at(address: str, epoch: int) -> Route:
    return Route([BrokerAddresses("c", "a", {0: address}, epoch)], [QueueData("a", 1, 1, 6)])


async def test_what_the_nameservers_say_is_believed_when_the_leader_is_of_no_use(broker: Broker, make_client: MakeClient) -> None:
    """A lone broker that was moved to an empty store begins with a small epoch: clients kept its old address for ever."""
    clock = TestClock(running=False)
    routes = make_client(clock=clock).session.routes
    broker.route = lambda topic: at("127.0.0.1:1", 57)
    await routes.get("T")
    broker.route = lambda topic: at(broker.address, 1)
    await routes.refresh("T")
    assert routes.leader("a") == "127.0.0.1:1", "nothing is wrong with it yet; that nameserver may be late (N2)"
    routes.lost("127.0.0.1:1")
    await routes.refresh("T")
    assert routes.leader("a") == "127.0.0.1:1", "an election may be on its way"
    await clock.advance_until(lambda: routes.leader("a") == broker.address, 0.1)
    assert clock.monotonic() < 10, "asked again by itself"
    known = routes.known("T")
    assert known is not None
    assert known.brokers[0].epoch == 1


async def test_a_stolen_route_that_works_is_over_when_no_nameserver_tells_it(broker: Broker, make_client: MakeClient) -> None:
    """An address with the largest epoch that there is was believed for ever, though brokers and nameservers were well again."""
    clock = TestClock(running=False)
    routes = make_client(clock=clock).session.routes
    broker.route = lambda topic: at("127.0.0.1:1", 2**63 - 1)
    await routes.get("T")
    broker.route = lambda topic: at(broker.address, 5)
    began = clock.monotonic()
    await clock.advance_until(lambda: routes.leader("a") == broker.address, 1.0)
    assert 60 <= clock.monotonic() - began < 100


async def test_a_node_that_lacks_the_topic_is_not_the_right_one_for_long(broker: Broker, make_client: MakeClient) -> None:
    clock = TestClock(running=False)
    client = make_client(clock=clock)
    routes = client.session.routes
    broker.route = lambda topic: at("127.0.0.1:1", 57)
    await routes.get("T")
    broker.route = lambda topic: at(broker.address, 1)
    for _ in range(20):
        routes.misled("a")
        await clock.advance(0.25)
        await routes.refresh("T")
    assert routes.leader("a") == broker.address


async def test_a_single_trouble_long_ago_is_forgotten(broker: Broker, make_client: MakeClient) -> None:
    """N2: who was late once is not given up the next time that one nameserver is behind."""
    clock = TestClock(running=False)
    routes = make_client(clock=clock).session.routes
    broker.route = lambda topic: at("127.0.0.1:1", 57)
    await routes.get("T")
    routes.misled("a")
    await clock.advance(20.0)
    await routes.refresh("T")
    broker.route = lambda topic: at(broker.address, 1)
    routes.misled("a")
    await clock.advance(2.0)
    await routes.refresh("T")
    assert routes.leader("a") == "127.0.0.1:1"


async def test_a_silent_nameserver_does_not_keep_a_topic_from_being_made(broker: Broker, make_client: MakeClient) -> None:
    """The other one does not know the topic yet; both were waited for until the time of the send was over."""
    quiet: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: quiet.append(writer), "127.0.0.1", 0)
    broker.topics[TEMPLATE_TOPIC] = 4
    client = make_client(f"127.0.0.1:{server.sockets[0].getsockname()[1]};{broker.address}")
    await client.producer().send(Message("New", b"x"))
    assert quiet
    for writer in quiet:
        writer.close()
    server.close()


async def test_tools_find_a_broker_that_came_since_they_looked(broker: Broker, make_client: MakeClient) -> None:
    """As the dashboard, which goes on for long: it had no leader for half a minute, and its messages were left out."""
    client, new = make_client(), await Broker("new", {"T": 1}).start()
    new.put("T", 0, 2)
    assert await calls.max_offset(client, queue("T", 0)) == 0
    broker.route = lambda _: route_at("T", broker, new)
    assert (await lookups.at(client, MessageQueue("T", "new", 0), 1)).body == b"1"
    with pytest.raises(Unreachable):
        await calls.max_offset(client, MessageQueue("T", "nowhere", 0))
    await new.stop()


async def test_a_message_that_is_lost_among_others_is_said_to_be(broker: Broker, make_client: MakeClient) -> None:
    """As of a store that was repaired: "has messages 0 to 9, not 7" was no answer."""
    broker.also(Pull, lambda request, call: PullAnswer(request.queue_offset + 1, 0, 10, b"", ResponseCode.PULL_OFFSET_MOVED))
    for offset, said in ((7, "has messages 0 to 9, and 7 is no more among them"), (10, "has messages 0 to 9, not 10")):
        with pytest.raises(Refusal, match=said):
            await lookups.at(make_client(), MessageQueue("T", "a", 0), offset)


async def test_many_topics_are_asked_for_some_at_a_time(broker: Broker, make_client: MakeClient) -> None:
    """All at once, a thousand of a producer's held the loop of `rmq proxy` for a second, and of thousands some were given up."""
    held, most = list[tuple[str, Call]](), 0

    def hold(request: GetRoute, call: Call) -> Later:
        nonlocal most
        held.append((request.topic, call))
        most = max(most, len(held))
        return LATER

    broker.topics |= {f"T{number}": 1 for number in range(200)}
    broker.also(GetRoute, hold)
    routes = make_client(clock=TestClock(running=False)).session.routes
    asking = asyncio.create_task(get_all(routes, list(broker.topics)))
    while not asking.done():
        await until(lambda: held or asking.done())
        while held:
            topic, call = held.pop()
            call.answer(broker.own_route(topic))
    assert [type(found) for found in await asking] == [Route] * len(broker.topics)
    assert most <= AT_ONCE


async def test_for_many_topics_a_nameserver_that_stands_still_is_waited_for_once(broker: Broker, make_client: MakeClient) -> None:
    """Members, and who sent by the proxy, waited for each 64 topics again: a minute for a thousand."""
    asked = list[GetRoute]()
    broker.topics["known"] = 1
    routes = make_client(clock=(clock := TestClock(running=False))).session.routes
    await routes.get("known")
    broker.also(GetRoute, lambda request, call: asked.append(request) or LATER)  # type: ignore[func-returns-value]
    asking = asyncio.create_task(get_all(routes, [*(f"T{number}" for number in range(200)), "known"]))
    await clock.advance_until(asking.done)
    assert [type(found) for found in await asking] == [Unreachable] * 200 + [Route]
    assert len(asked) == AT_ONCE


async def test_many_topics_that_end_at_a_time(broker: Broker, make_client: MakeClient) -> None:
    """For each all others were looked through: of five thousand at `rmq proxy`, all clients were held up for seconds."""
    looks = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return str.__eq__(self, other)

        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return str.__hash__(self)

    clock = TestClock()
    topics = broker.topics = {f"T{number}": 1 for number in range(200)}
    routes = make_client(clock=clock).session.routes
    for route in await get_all(routes, topics):
        assert isinstance(route, Route)
        route.brokers[:] = [group._replace(name=Name(group.name)) for group in route.brokers]
    broker.topics = {}
    await clock.advance_until(lambda: not any(map(routes.known, topics)), 1)
    assert routes.brokers() == {}
    assert looks < 20 * len(topics)


@pytest.mark.parametrize("kind", ["consumer", "simple_consumer"])
async def test_a_topic_that_may_not_be_read_is_told(
    broker: Broker, make_client: MakeClient, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """As at the proxy: nothing came, and nothing said why."""
    there = broker.own_route("T")
    broker.route = lambda topic: there._replace(queues=[there.queues[0]._replace(perm=2)])
    async with getattr(make_client(), kind)("g", "T") as consumer:
        for _ in range(2):
            assert await (consumer.receive(timeout=0.01) if kind == "consumer" else consumer.receive(wait_seconds=0)) == []
    [told] = [one for one in caplog.messages if "may not be read" in one]
    assert told == "T may not be read now at any of its brokers: see `rmq admin topicRoute -t T`"


async def test_a_topic_that_may_no_longer_be_read_is_told(
    broker: Broker, make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Only who began behind that was told; a consumer that ran gave up its queues without a word."""
    there, client = broker.own_route("T"), make_client()
    closed = there._replace(queues=[there.queues[0]._replace(perm=2)])
    async with client.consumer("g", "T") as consumer:
        for count, route in enumerate((closed, there, closed), 1):
            broker.route = lambda topic, route=route: route  # type: ignore[misc]
            await client.session.routes.refresh("T")
            await until(lambda route=route: bool(consumer.queues) == (route is there))  # type: ignore[misc]
            assert sum("may not be read" in one for one in caplog.messages) == (count + 1) // 2
