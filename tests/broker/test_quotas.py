"""Quotas at a real broker: who takes too much waits, nobody else does (S11)."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from rmq.client import Message, Producer
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.guard.quotas import Metering
from rmq.model import GroupConfig, TopicConfig
from rmq.net.commands import (
    DeleteGroup,
    DeleteQuota,
    DeleteTopic,
    GetMaxOffset,
    Hello,
    ListQuotas,
    Pull,
    QueryConsumerOffset,
    SetQuota,
    UpdateGroup,
    UpdateGroups,
    UpdateTopic,
    UpdateTopics,
)
from rmq.net.commands.access import PolicyEntry
from rmq.net.commands.quotas import QuotaRow
from rmq.net.transport.dialer import Dialer
from rmq.scram import Credentials
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.support import SUBSCRIBED, Peer, beat, send
from tests.broker.test_access import SENT, SETTINGS, Signer, asked, login, make_user


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    """Its clock stands still: what is spent comes in again when the test says so."""
    async with LocalBroker(clock=TestClock(running=False)) as broker:
        peer = await Peer.connect(broker.address, "admin")
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await peer.close()
        yield broker


async def limit(local: LocalBroker, peer: Peer, subject: str, **limits: int) -> Metering:
    """In force when this returns."""
    await peer.ask(SetQuota(QuotaRow(subject, **limits)))
    await local.clock.advance_until(lambda: isinstance(local.serving.front.server.guard, Metering))
    guard = local.serving.front.server.guard
    assert isinstance(guard, Metering)
    return guard


async def refusal_of(peer: Peer, request: object) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await peer.ask(request)
    assert refused.value.code == ResponseCode.FLOW_CONTROL
    return refused.value


async def test_a_noisy_client_waits_and_its_neighbour_does_not(local: LocalBroker) -> None:
    """S11: by its id; and what is over the quota is stored nowhere."""
    noisy, quiet = await Peer.connect(local.address, "noisy"), await Peer.connect(local.address, "quiet")
    await limit(local, quiet, "Client:noisy", messages_in=20)
    outcomes = await asyncio.gather(*(noisy.ask_code(send("T", b"noise")) for _ in range(20)))
    assert outcomes == [0] * 20
    for _ in range(3):
        assert await noisy.ask_code(send("T", b"noise")) == ResponseCode.FLOW_CONTROL
        await quiet.send(*[send("T", b"quiet")] * 30)
    queue = local.serving.store.queues.get("T", 0)
    assert queue.max == 20 + 3 * 30
    refusal = await refusal_of(noisy, send("T"))
    assert 0 < refusal.wait_ms <= 500
    await local.clock.advance(refusal.wait_ms / 1000)
    await noisy.send(send("T"))
    for peer in (noisy, quiet):
        await peer.close()


async def test_our_client_keeps_the_time_that_it_is_told(local: LocalBroker) -> None:
    """It sends at the rate that it may, without an error, and is not refused again and again."""
    admin = await Peer.connect(local.address, "admin")
    metering = await limit(local, admin, "Client:*", bytes_in=2_000)
    async with local.client() as client, client.producer() as producer:
        began = local.clock.monotonic()
        sending = asyncio.create_task(_send_all(producer, 12))
        await local.clock.advance_until(sending.done, step_s=0.05)
        sending.result()
        assert local.clock.monotonic() - began > 3, "12 messages of 700 bytes, 2000 bytes a second"
    assert metering.refused <= 12
    await admin.close()


async def _send_all(producer: Producer, count: int) -> None:
    for _ in range(count):
        await producer.send(Message("T", bytes(600)), timeout=10)


async def test_what_is_read_counts_too(local: LocalBroker) -> None:
    """By its address and by the topic: an answer goes out whole, and the next one waits until it is paid."""
    peer = await Peer.connect(local.address, "reader")
    await peer.send(*[send("T", bytes(1000)) for _ in range(4)])
    await limit(local, peer, "Topic:T", bytes_out=1000)
    first = await peer.pull("T", 0)
    assert len(first.messages) > 4000
    refusal = await refusal_of(peer, Pull("g", "T", 0, 0, sys_flag=SUBSCRIBED))
    assert 3000 < refusal.wait_ms < 4500
    await local.clock.advance(refusal.wait_ms / 1000)
    assert (await peer.pull("T", 0)).messages == first.messages
    await limit(local, peer, "Client:127.0.0.1", messages_out=1)
    await local.clock.advance(10)
    await peer.pull("T", 0)
    assert (await refusal_of(peer, Pull("g", "T", 0, 0, sys_flag=SUBSCRIBED))).wait_ms > 2900
    await peer.send(send("T"))
    await peer.close()


async def test_who_does_not_wait_is_not_read_from(local: LocalBroker) -> None:
    """S11: a client that tries again and again costs the broker nothing more for a while."""
    peer, admin = await Peer.connect(local.address, "noisy"), await Peer.connect(local.address, "admin")
    await limit(local, admin, "Client:noisy", messages_in=1)
    (connection,) = [each for each in local.serving.front.server.connections if each.client_id == "noisy"]
    await asyncio.gather(*(peer.ask(send("T")) for _ in range(10)))  # in one burst: there are nine seconds to pay back
    await refusal_of(peer, send("T"))
    assert connection.reading
    await refusal_of(peer, send("T"))
    assert not connection.reading
    await admin.ask(ListQuotas())
    await until(lambda: connection.reading)
    for each in (peer, admin):
        await each.close()


async def test_who_never_waits_is_read_from_less_and_less(local: LocalBroker) -> None:
    """S11: a wait of a millisecond would be no hindrance; who keeps the time that it is told begins anew."""
    peer, admin = await Peer.connect(local.address, "noisy"), await Peer.connect(local.address, "admin")
    await limit(local, admin, "Client:noisy", messages_in=10)
    await asyncio.gather(*(peer.ask(send("T")) for _ in range(10)))
    assert [(await refusal_of(peer, send("T"))).wait_ms for _ in range(4)] == [2, 101, 201, 401]
    await local.clock.advance(0.401)
    await peer.send(send("T"))
    await asyncio.gather(*(peer.ask_code(send("T")) for _ in range(20)))
    assert (await refusal_of(peer, send("T"))).wait_ms > 100
    for each in (peer, admin):
        await each.close()


async def test_quotas_are_set_listed_and_deleted_and_cost_nothing_without(local: LocalBroker) -> None:
    server = local.serving.front.server
    assert server.guard is None
    admin = await Peer.connect(local.address, "admin")
    await limit(local, admin, "user:*", bytes_in=1 << 20, connections=3)
    await limit(local, admin, "Topic:T", messages_in=1)
    rows = [QuotaRow("Topic:T", messages_in=1), QuotaRow("User:*", bytes_in=1 << 20, connections=3)]
    assert (await admin.ask(ListQuotas())).quotas == rows
    assert (await admin.ask(ListQuotas("User"))).quotas == rows[1:]
    assert await admin.refusal(SetQuota(QuotaRow("Group:g"))) == ResponseCode.INVALID_PARAMETER
    assert await admin.refusal(SetQuota(QuotaRow("User:a", -1))) == ResponseCode.INVALID_PARAMETER
    await local.stop_broker()
    await local.start_broker()
    admin = await Peer.connect(local.address, "admin")
    assert (await admin.ask(ListQuotas())).quotas == rows, "they are records of the log"
    await local.clock.advance_until(lambda: local.serving.front.server.guard is not None)
    for row in rows:
        await admin.ask(DeleteQuota(row.subject))
    await local.clock.advance_until(lambda: local.serving.front.server.guard is None)
    await admin.close()


async def test_users_have_quotas_whatever_they_speak() -> None:
    """Each user has the quota of `User:*` alone; connections count, too; nodes and other users go on."""
    async with LocalBroker(clock=TestClock(running=False), **SETTINGS) as local:
        root = await login(local, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
        await make_user(root, "eve", PolicyEntry("Topic:T", ["Pub"]))
        await limit(local, root, "User:*", messages_in=2, connections=2)
        bob, eve = await login(local, "bob", "bob-secret"), await login(local, "eve", "eve-secret")
        java = Signer(local.address, "bob", "bob-secret")
        await bob.send(send("T"))
        assert (await asked(java, 310, SENT, b"body"))[0] == 0
        code, remark, _ = await asked(java, 310, SENT, b"body")
        assert (code, "User:bob" in remark, "try again in" in remark) == (ResponseCode.FLOW_CONTROL, True, True)
        await refusal_of(bob, send("T"))
        await eve.send(send("T"))
        third = await login(local, "bob", "bob-secret")
        await local.clock.advance(5)
        assert "2 connections already" in (await refusal_of(third, send("T"))).remark
        java.close()
        await local.clock.advance_until(lambda: len(local.serving.front.server.connections) < 6)
        await local.clock.advance(5)
        await third.send(send("T"))
        for peer in (root, bob, eve, third):
            await peer.close()


async def test_what_is_refused_counts_too() -> None:
    """S11: else who has no right to anything could take all of a node's time by asking for it."""
    async with LocalBroker(clock=TestClock(running=False), **SETTINGS) as local:
        root = await login(local, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        await make_user(root, "eve", PolicyEntry("Topic:mine", ["Pub"]))
        await limit(local, root, "User:*", messages_in=2)
        eve = await login(local, "eve", "eve-secret")
        for request in (send("T"), UpdateTopic("T")):
            assert await eve.refusal(request) == ResponseCode.NO_PERMISSION
        refusal = await refusal_of(eve, send("T"))
        assert "the quota of User:eve is used up" in refusal.remark
        for peer in (root, eve):
            await peer.close()


async def test_the_client_id_of_another_user() -> None:
    """S11: everybody may give himself one; what is sent under it is not taken from whom it belongs to, nor an address's share."""
    async with LocalBroker(clock=TestClock(running=False), **SETTINGS) as local:
        root = await login(local, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        for name in ("bob", "eve"):
            await make_user(root, name, PolicyEntry("Topic:T", ["Pub"]))
        bob, eve = await login(local, "bob", "bob-secret"), await login(local, "eve", "eve-secret")
        await limit(local, root, "Client:*", messages_in=1)
        dialer = Dialer(local.clock, credentials=Credentials("eve", "eve-secret"))
        as_bob = Peer(await dialer.open(local.address, Hello(1, "client of bob")), [])
        await limit(local, root, "Client:127.0.0.1")  # all of this test come from there
        await as_bob.send(send("T"))
        await refusal_of(as_bob, send("T"))
        await bob.send(send("T"))
        for peer in (root, bob, eve, as_bob):
            await peer.close()


async def test_names_that_nothing_has_are_not_kept() -> None:
    """What a connection may do is remembered, 10 000 decisions, and so are allowances and who asks for new things."""
    async with LocalBroker(clock=TestClock(running=False), **SETTINGS) as local:
        root = await login(local, "root", "root-secret")
        await make_user(root, "bob", PolicyEntry("Topic:*", ["All"]), PolicyEntry("Group:*", ["All"]))
        await limit(local, root, "Topic:*", messages_in=10_000)
        bob, java = await login(local, "bob", "bob-secret"), Signer(local.address, "bob", "bob-secret")
        tracemalloc.start()
        for number in range(20):
            long = f"{number}-" + "x" * 100_000
            await asked(java, 310, {**SENT, "b": long}, b"body")
            for request in (GetMaxOffset(long, 0), QueryConsumerOffset(long, long, 0), UpdateGroup(GroupConfig(long))):
                await bob.ask_code(request)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        java.close()
        for peer in (root, bob):
            await peer.close()
        assert kept < 1_000_000


async def test_a_user_makes_so_many_topics_and_groups() -> None:
    """S11: however it makes them; who deletes one may make another; others, and what was there before, do not count."""
    async with LocalBroker(**SETTINGS) as local:
        root = await login(local, "root", "root-secret")
        for name in ("bob", "eve"):
            await make_user(root, name, PolicyEntry("Topic:*", ["All"]), PolicyEntry("Group:*", ["All"]))
        bob, eve = await login(local, "bob", "bob-secret"), await login(local, "eve", "eve-secret")
        await bob.ask(UpdateTopic("before"))
        await limit(local, root, "User:*", topics=2, groups=2)
        java = Signer(local.address, "bob", "bob-secret")
        await bob.send(send("a", default_topic="TBW102"))
        assert (await asked(java, 310, {**SENT, "b": "b"}, b"body"))[0] == 0
        assert (await asked(java, 310, {**SENT, "b": "c"}, b"body"))[0] == ResponseCode.FLOW_CONTROL
        refusal = await refusal_of(bob, UpdateTopics([TopicConfig("c", 1, 1)]))
        assert (refusal.wait_ms > 0, "User:bob has made 2 topics" in refusal.remark) == (True, True)
        await bob.ask(UpdateTopic("a", read_queue_nums=2, write_queue_nums=2))
        await bob.ask(beat("bob", "g", topic="a"))
        await refusal_of(bob, UpdateGroups([GroupConfig("h"), GroupConfig("i")]))
        await bob.ask(UpdateGroup(GroupConfig("h")))
        await refusal_of(bob, beat("bob", "g", "h", "i", topic="a"))
        assert not local.serving.tables.groups.get("i")
        await eve.send(send("c", default_topic="TBW102"))
        await root.ask(DeleteTopic("b"))
        await bob.ask(UpdateTopic("d"))
        await bob.ask(DeleteGroup("g"))
        await bob.ask(UpdateGroup(GroupConfig("i")))
        for peer in (root, bob, eve):
            await peer.close()
        java.close()
        await local.stop_broker()
        await local.start_broker()
        owners = local.serving.tables.owners
        assert [owners.made_by("User:bob", kind) for kind in ("Topic", "Group")] == [2, 2]
        assert owners.made_by("User:eve", "Topic") == 1
