"""A broker group changes its leader: what producers and consumers do. Scripted brokers on real sockets; real groups of three
are tested with the broker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from rmq.background import cancel
from rmq.client import Client, Message, Refusal, Unknown, Unreachable
from rmq.client.admin import calls as admin
from rmq.client.shared.connections import Connections
from rmq.client.shared.liveness import Liveness
from rmq.codes import ResponseCode as R
from rmq.model import BrokerAddresses, QueueData, Route
from rmq.net.commands import Answer, GetRoute, Ping, Pull, QueryConsumerOffset, Send, UpdateConsumerOffset, UpdateTopic
from rmq.testing import TestClock, until
from tests.client.conftest import MakeClient
from tests.client.scripted import Broker, Fault, cut_link, never_answer, refuse
from tests.relaying import relay

NOT_LEADING = "not stored: this node does not lead"


class Trio:
    """A nameserver and the nodes of group "a"; `lead(node)` is told to the nameserver only."""

    def __init__(self, nodes: list[Broker], names: Broker) -> None:
        self.nodes, self.names = nodes, names
        self.epoch = 1
        names.route = self._route
        self.leader: Broker | None = nodes[0]
        self.others: list[BrokerAddresses] = []

    def lead(self, node: Broker | None) -> None:
        self.epoch += node is not None
        self.leader = node

    def _route(self, topic: str) -> Route:
        if topic != "T":
            raise Refusal(R.TOPIC_NOT_EXIST, topic)
        addresses = {0 if node is self.leader else number: node.address for number, node in enumerate(self.nodes, 1)}
        groups = [BrokerAddresses("c", "a", addresses, self.epoch), *self.others]
        return Route(groups, [QueueData(group.name, 2, 2, 6) for group in groups])


@pytest.fixture
async def trio() -> AsyncIterator[Trio]:
    nodes = [await Broker(topics={"T": 2}).start() for _ in range(3)]
    names = await Broker("names").start()
    yield Trio(nodes, names)
    for each in (*nodes, names):
        await each.stop()


@pytest.fixture
async def client(trio: Trio, make_client: MakeClient) -> Client:
    return make_client(trio.names.address)


def not_leading(hint: str = "") -> Fault:
    return refuse(R.SERVICE_NOT_AVAILABLE, NOT_LEADING, hint)


# --- producers --------------------------------------------------------------------------------------------------------


async def test_a_refusal_that_names_the_leader_is_followed_at_once(trio: Trio, make_client: MakeClient) -> None:
    """N4: without a pause (the clock stands), and the next send goes there straight away."""
    a, b, _ = trio.nodes
    client = make_client(trio.names.address, clock=TestClock(running=False))
    a.faults[Send] = [not_leading(b.address)]
    producer = client.producer()
    await producer.send(Message("T", b"1"))
    await producer.send(Message("T", b"2"))
    assert (len(a.seen(Send)), len(b.seen(Send))) == (1, 2)
    await until(lambda: len(trio.names.seen(GetRoute)) > 1)  # the route is asked for behind


async def test_a_hint_gives_way_to_a_newer_route_and_to_a_hint_that_fails(trio: Trio, client: Client) -> None:
    a, b, c = trio.nodes
    routes = client.session.routes
    await routes.get("T")
    assert routes.not_leading("a", a.address, c.address)
    assert routes.leader("a") == c.address
    assert not routes.not_leading("a", c.address, "")
    assert routes.leader("a") == a.address
    assert not routes.not_leading("a", a.address, a.address)
    routes.not_leading("a", a.address, c.address)
    routes.lost(c.address)
    assert routes.leader("a") == a.address
    routes.not_leading("a", a.address, c.address)
    trio.lead(b)
    await routes.refresh("T")
    assert routes.leader("a") == b.address
    assert routes.followers("a") == {1: a.address, 3: c.address}


async def test_an_electing_group_is_tried_until_it_has_a_leader(trio: Trio, client: Client) -> None:
    """Definitely not stored, so any number of tries is safe within the time."""
    a, b, c = trio.nodes
    for node in trio.nodes:
        node.faults[Send] = [not_leading()] * 4
    trio.lead(None)
    sending = asyncio.create_task(client.producer().send(Message("T", b"x"), timeout=20))
    await until(lambda: len(trio.names.seen(GetRoute)) > 4)
    assert not sending.done()
    trio.lead(b)
    assert (await sending).queue.broker_name == "a"
    assert (len(a.seen(Send)), len(b.seen(Send)), len(c.seen(Send))) == (0, 5, 0)


async def test_two_nodes_that_name_each_other_do_not_keep_a_send(trio: Trio, client: Client) -> None:
    a, b, _ = trio.nodes
    a.faults[Send] = [not_leading(b.address)] * 100
    b.faults[Send] = [not_leading(a.address)] * 100
    with pytest.raises(Refusal, match=NOT_LEADING):
        await client.producer().send(Message("T", b"x"), timeout=0.5)
    assert len(a.seen(Send)) < 20


async def test_an_unknown_outcome_is_never_a_refusal(trio: Trio, client: Client) -> None:
    """R11, C19: the leader lost leadership before it knew; sending again may store it twice."""
    a = trio.nodes[0]
    a.faults[Send] = [refuse(R.SYSTEM_ERROR, "outcome unknown: this node no longer leads")] * 2
    producer = client.producer()
    with pytest.raises(Unknown, match="no longer leads"):
        await producer.send(Message("T", b"x"))
    assert len(a.seen(Send)) == 1
    await producer.send(Message("T", b"x"), retry_unknown=True)
    assert len(a.seen(Send)) == 3


async def test_what_was_unknown_once_stays_unknown(trio: Trio, make_client: MakeClient) -> None:
    """C19: the second try was certainly not stored, the first one may have been."""
    a, clock = trio.nodes[0], TestClock(running=False)
    producer = make_client(trio.names.address, clock=clock).producer()
    await producer.send(Message("T", b"known"))
    a.faults[Send] = [refuse(R.SYSTEM_ERROR, "outcome unknown"), *[not_leading()] * 100]
    sending = asyncio.create_task(producer.send(Message("T", b"x"), retry_unknown=True, timeout=30))
    await clock.advance_until(lambda: len(a.seen(Send)) > 3, step_s=0.01)
    await clock.advance_until(sending.done)
    with pytest.raises(Unknown):
        await sending


async def test_other_groups_take_messages_meanwhile_and_a_key_waits_for_its_own(trio: Trio, client: Client) -> None:
    other = await Broker("b", topics={"T": 2}).start()
    trio.others = [BrokerAddresses("c", "b", {0: other.address}, 1)]
    producer = client.producer()
    keys = {(await producer.send(Message("T", b"x"), key=str(number))).queue.broker_name: str(number) for number in range(20)}
    await trio.nodes[0].stop()
    trio.lead(None)
    sent = [await producer.send(Message("T", b"x")) for _ in range(10)]
    assert {result.queue.broker_name for result in sent} == {"b"}
    with pytest.raises(Unreachable):
        await producer.send(Message("T", b"x"), key=keys["a"], timeout=0.3)
    keyed = asyncio.create_task(producer.send(Message("T", b"x"), key=keys["a"], timeout=20))
    trio.lead(trio.nodes[1])
    assert (await keyed).queue.broker_name == "a"
    sent = [await producer.send(Message("T", b"x")) for _ in range(10)]
    assert {result.queue.broker_name for result in sent} == {"a", "b"}  # the newer epoch ended the isolation
    await other.stop()


async def test_a_lost_leader_is_asked_for_at_once(trio: Trio, make_client: MakeClient) -> None:
    """N4: nobody sends anything, and the regular questions come every 30 s only."""
    clock = TestClock()
    client = make_client(trio.names.address, clock=clock, route_refresh_s=1e6)
    await client.producer().send(Message("T", b"x"))
    asked = len(trio.names.seen(GetRoute))
    await trio.nodes[0].stop()
    trio.lead(None)
    await until(lambda: len(trio.names.seen(GetRoute)) > asked + 1)
    trio.lead(trio.nodes[1])
    routes = client.session.routes
    await until(lambda: routes.brokers() == {"a": trio.nodes[1].address})
    asked = len(trio.names.seen(GetRoute))
    await clock.advance(100)
    assert len(trio.names.seen(GetRoute)) <= asked + 1  # and the questions end


async def test_a_leader_that_hangs_is_doubted(trio: Trio, make_client: MakeClient) -> None:
    """Its process is paused or the network swallows everything: connections stay, answers do not come, another one leads."""
    client = make_client(trio.names.address, route_refresh_s=1e6)
    producer = client.producer()
    await producer.send(Message("T", b"x"))
    trio.nodes[0].faults[Send] = [never_answer] * 100
    trio.lead(trio.nodes[1])
    with pytest.raises(Unknown):
        await producer.send(Message("T", b"x"), timeout=0.2)
    await until(lambda: client.session.routes.brokers() == {"a": trio.nodes[1].address})
    await producer.send(Message("T", b"y"))
    assert len(trio.nodes[1].seen(Send)) == 1


async def test_one_question_tells_of_a_leader_for_all_topics(trio: Trio, client: Client) -> None:
    real = trio.names.route
    trio.names.route = lambda topic: real("T")
    routes = client.session.routes
    await routes.get("T")
    await routes.get("U")
    told: list[str] = []
    routes.on_change.append(told.append)
    trio.lead(trio.nodes[2])
    await routes.refresh("U")
    route = routes.known("T")
    assert route is not None
    assert route.brokers[0].addresses[0] == trio.nodes[2].address
    assert sorted(told) == ["T", "U"]


# --- consumers --------------------------------------------------------------------------------------------------------


def same_log(trio: Trio, count: int) -> None:
    for node in trio.nodes:
        node.put("T", 0, count)


async def test_a_consumer_goes_on_at_the_new_leader_where_it_was(trio: Trio, client: Client) -> None:
    """C5: nothing twice, nothing left out, and the new leader learns the offset though nothing new was finished."""
    a, b, c = trio.nodes
    same_log(trio, 3)
    async with client.consumer("g", "T", start="first") as consumer:
        got = [(await anext(consumer)).body for _ in range(3)]
        await consumer.commit()
        assert a.offsets["g", "T", 0] == 3
        await until(lambda: b.heartbeats and c.heartbeats)  # N4: followers know the members before they lead
        await a.stop()
        trio.lead(b)
        same_log(trio, 2)
        got += [(await anext(consumer)).body for _ in range(2)]
        await until(lambda: ("g", "T", 0) in b.offsets)
        assert b.offsets["g", "T", 0] >= 3
        await consumer.commit()
    assert got == [b"0", b"1", b"2", b"3", b"4"]
    assert b.offsets["g", "T", 0] == 5


async def test_who_lost_the_connection_goes_on_where_another_member_came_to(trio: Trio, client: Client) -> None:
    """C5: one that was away (its machine slept, its network was cut) went on where it had been: by its pull it was the one that
    read last, so the broker let it set the group back, and all that had come meanwhile was handled again."""
    a, *_ = trio.nodes
    same_log(trio, 2)
    async with client.consumer("g", "T", start="first") as consumer:
        assert [(await anext(consumer)).body for _ in range(2)] == [b"0", b"1"]
        await consumer.commit()
        a.cut_connections()
        a.offsets["g", "T", 0] = 5
        same_log(trio, 4)
        assert (await anext(consumer)).body == b"5"
        await consumer.commit()
        assert a.offsets["g", "T", 0] == 6
        a.cut_connections()
        a.offsets["g", "T", 0] = 3  # what it said last was lost
        await until(lambda: a.offsets["g", "T", 0] == 6)


async def test_who_lost_the_connection_does_not_go_on_at_the_offset_of_a_former_topic(trio: Trio, client: Client) -> None:
    """It may have committed that into the next topic of the name, and knows that it is void."""
    a, *_ = trio.nodes
    same_log(trio, 5)
    async with client.consumer("g", "T", start="first", auto_commit=False) as consumer:
        got = [(await anext(consumer)).body for _ in range(5)]
        await consumer.commit()
        a.faults[Pull] = [refuse(R.TOPIC_NOT_EXIST)] * 2  # one of each queue
        a.cut_connections()
        a.queues["T", 0].clear()
        await until(lambda: not a.faults[Pull])
        a.put("T", 0, 2)
        got += [(await anext(consumer)).body for _ in range(2)]
        a.cut_connections()
        a.put("T", 0, 6)
        got += [(await anext(consumer)).body for _ in range(6)]
    assert got == [b"%d" % number for number in (*range(5), *range(8))]


async def test_offsets_that_nobody_answers_for_are_told_to_the_next_leader(trio: Trio, make_client: MakeClient) -> None:
    """One-way commits to a leader that goes are not asked for: what it was told counts as not told (C5)."""
    a, b, _ = trio.nodes
    same_log(trio, 1)
    clock = TestClock()
    client = make_client(trio.names.address, clock=clock)
    async with client.consumer("g", "T", start="first", auto_commit=False) as consumer:
        assert (await consumer.receive())[0].body == b"0"
        await consumer.commit(sync=False)
        await until(lambda: a.offsets.get(("g", "T", 0)) == 1)
        trio.lead(b)
        a.cut_connections()
        await clock.advance_until(lambda: b.offsets.get(("g", "T", 0)) == 1, 1.0)


async def test_a_pull_that_waits_at_a_leader_that_hangs_moves_on(trio: Trio, make_client: MakeClient) -> None:
    """N4: its process is paused, nobody sends anything; the pull might wait for half a minute."""
    a, b, _ = trio.nodes
    same_log(trio, 1)
    clock = TestClock()
    client = make_client(trio.names.address, clock=clock, route_refresh_s=1e6, heartbeat_s=1e6)
    async with client.consumer("g", "T", start="first") as consumer:
        assert (await anext(consumer)).body == b"0"
        await until(lambda: a.seen(Pull)[-1].queue_offset == 1)
        a.faults[Ping] = [never_answer] * 1000
        trio.lead(b)
        b.put("T", 0, 1)
        begin, arrived = clock.monotonic(), asyncio.create_task(anext(consumer))
        await clock.advance_until(arrived.done)
        assert (await arrived).body == b"1"
        assert clock.monotonic() - begin < 10.0
        assert len(b.seen(Ping)) < 30  # asked now and then only


async def test_a_connection_that_swallows_everything_is_replaced(trio: Trio, make_client: MakeClient) -> None:
    """After a cut TCP tries it again only when it has been silent for as long once more; the leader is there all the time."""
    leader, clock = trio.nodes[0], TestClock()
    client = make_client(trio.names.address, clock=clock, route_refresh_s=1e6, heartbeat_s=1e6)
    async with client.consumer("g", "T", start="first") as consumer:
        await until(lambda: leader.seen(Pull))
        opened: list[str] = []
        client.session.connections.on_opened.append(opened.append)
        leader.faults[Ping] = [never_answer] * 2
        begin = clock.monotonic()
        await clock.advance_until(lambda: leader.address in opened, timeout_s=10)
        assert clock.monotonic() - begin < 10.0
        leader.put("T", 0, 1)
        assert (await anext(consumer)).body == b"0"


async def more_than_buffers_take(connections: Connections, address: str) -> list[asyncio.Task[Answer]]:
    send = Send("g", "T", 0, bytes(1 << 20))
    sends = [asyncio.create_task(connections.request(address, send, 60)) for _ in range(48)]
    await until(lambda: connections.ready(address) is None)
    return sends


async def test_a_connection_that_takes_no_byte_is_replaced(broker: Broker, make_client: MakeClient) -> None:
    """As behind a firewall that has forgotten it, where much is sent: no heartbeat could be sent, which looked as if nobody was
    there, and no send until the system gave the connection up."""
    gates = [asyncio.Event()]
    gates[0].set()
    async with relay(broker.address, gates=gates) as address:
        client = make_client(clock=TestClock(running=False), request_timeout_s=0.2)
        connections = client.session.connections
        await connections.request(address, Ping())
        gates[0].clear()
        gates.append(asyncio.Event())
        gates[1].set()
        sends = await more_than_buffers_take(connections, address)
        outcomes = list[object]()
        while None not in outcomes and len(outcomes) < 100:  # while the system still takes some of it nothing is given up
            outcomes.append(await connections.tried(address, Ping()))
        assert [type(outcome) for outcome in outcomes] == [Unreachable] * (len(outcomes) - 1) + [type(None)]
        await cancel(*sends)


async def test_a_connection_that_takes_bytes_slowly_is_not_one_that_takes_none(broker: Broker, make_client: MakeClient) -> None:
    """The system takes more only when a third of what it holds has left, for megabytes seconds on a slow line: it was cut, and
    what was on its way with it."""
    gate = Slow()
    gate.set()
    async with relay(broker.address, goes_on=gate) as address:
        connections = make_client().session.connections
        await connections.request(address, Ping())
        channel = connections.ready(address)
        assert channel is not None
        gate.slow = True
        sends, before, begun = await more_than_buffers_take(connections, address), channel.stall, gate.passed
        while True:
            assert gate.passed - begun < 16, "a MiB was taken, and nobody noticed"
            gate.set()
            await until(lambda count=gate.passed: gate.passed > count)  # type: ignore[misc]
            now = channel.stall
            if before is not None and now is not None and now[:2] == before[:2]:
                if now != before:
                    break
            else:  # the system takes some just now
                before, begun = now, gate.passed
        await cancel(*sends)
        await asyncio.gather(*sends, return_exceptions=True)  # the broker has refused some
        await connections.drop(address)


class Slow(asyncio.Event):
    """When it is `slow`, each time it is set one passes."""

    slow, passed = False, 0

    async def wait(self) -> Literal[True]:
        await super().wait()
        self.passed += 1
        if self.slow:
            self.clear()
        return True


async def test_a_leader_that_takes_no_byte_is_cut(broker: Broker, make_client: MakeClient) -> None:
    gate = asyncio.Event()
    gate.set()
    async with relay(broker.address, goes_on=gate) as address:
        broker.route = lambda topic: Route([BrokerAddresses("c", "a", {0: address})], [QueueData("a", 1, 1, 6)])
        client, clock = make_client(clock=TestClock(running=False), heartbeat_s=1e6), TestClock(running=False)
        connections, routes = client.session.connections, client.session.routes
        await routes.get("T")
        await connections.request(address, Ping())
        gate.clear()
        sends = await more_than_buffers_take(connections, address)
        asking = asyncio.create_task(Liveness(connections, routes, clock).keep_asking())
        await until(lambda: clock.sleepers)
        await clock.advance(1)
        await until(lambda: not connections.is_open(address))
        await cancel(asking, *sends)


async def test_without_a_leader_a_follower_is_read_and_then_the_leader_again(trio: Trio, client: Client) -> None:
    a, b, c = trio.nodes
    same_log(trio, 1)
    async with client.consumer("g", "T", start="first") as consumer:
        assert (await anext(consumer)).body == b"0"
        await a.stop()
        trio.lead(None)
        same_log(trio, 2)
        assert [(await anext(consumer)).body for _ in range(2)] == [b"1", b"2"]
        followers = [pull for node in (b, c) for pull in node.seen(Pull)]
        assert followers
        assert all(not pull.commit_offset for pull in followers)
        assert not b.seen(UpdateConsumerOffset)
        assert not c.seen(UpdateConsumerOffset)
        trio.lead(c)
        same_log(trio, 1)
        assert (await anext(consumer)).body == b"3"
        await until(lambda: any(pull.commit_offset for pull in c.seen(Pull)))  # only a leader is told offsets
        await consumer.commit()
    assert c.offsets["g", "T", 0] == 4


async def test_a_follower_moves_no_offset(trio: Trio, client: Client) -> None:
    """A follower that is behind: what it does not have yet is not gone."""
    a, b, c = trio.nodes
    a.put("T", 0, 3)
    async with client.consumer("g", "T", start="first") as consumer:
        assert [(await anext(consumer)).body for _ in range(3)] == [b"0", b"1", b"2"]
        await a.stop()
        trio.lead(None)
        await until(lambda: b.seen(Pull) and c.seen(Pull))
        for node in (b, c):
            node.put("T", 0, 4)
        assert (await anext(consumer)).body == b"3"
        trio.lead(b)


async def test_the_node_that_is_suggested_is_pulled_from(trio: Trio, client: Client) -> None:
    """[PullAPIWrapper] by queue; an error leads back to the leader."""
    a, _, c = trio.nodes
    same_log(trio, 1)
    a.suggests = c.suggests = 3
    async with client.consumer("g", "T", start="first") as consumer:
        assert (await anext(consumer)).body == b"0"
        await until(lambda: c.seen(Pull))
        asked = len(a.seen(Pull))
        c.put("T", 0, 1)
        assert (await anext(consumer)).body == b"1"
        a.put("T", 0, 2)
        c.faults[Pull] = [cut_link] * 3
        c.cut_connections()
        assert (await anext(consumer)).body == b"2"
        assert len(a.seen(Pull)) > asked


async def test_a_consumer_that_starts_during_an_election_waits_for_its_offset(trio: Trio, client: Client) -> None:
    """C5: an offset that cannot be read is asked again and never taken for none."""
    a = trio.nodes[0]
    same_log(trio, 3)
    a.offsets["g", "T", 0] = 2
    a.faults[QueryConsumerOffset] = [not_leading()] * 3
    async with client.consumer("g", "T", start="first") as consumer:
        assert (await anext(consumer)).body == b"2"


async def test_the_last_commit_waits_for_a_leader(trio: Trio, client: Client) -> None:
    a = trio.nodes[0]
    same_log(trio, 1)
    async with client.consumer("g", "T", start="first") as consumer:
        assert (await anext(consumer)).body == b"0"
        a.faults[UpdateConsumerOffset] = [not_leading()] * 3
        await consumer.commit()
    assert a.offsets["g", "T", 0] == 1


# --- administration ---------------------------------------------------------------------------------------------------


async def test_an_admins_request_follows_the_hint(trio: Trio, client: Client) -> None:
    a, b, _ = trio.nodes
    a.faults[UpdateTopic] = [not_leading(b.address)]
    await admin.update_topic(client, "New", broker=a.address, write_queues=5)
    assert (b.topics["New"], "New" in a.topics) == (5, False)
