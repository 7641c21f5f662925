"""Each client is the user for whom it signs: S1 and S2 hold for gRPC, too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from typing import NamedTuple

import grpc.aio
import pytest

from rmq.client import Client
from rmq.grpc import visitors
from rmq.grpc.schema import v2
from rmq.grpc.statuses import Wrong
from rmq.grpc.visitors import ForEachUser, host_of, signature_of
from rmq.net.commands import DeleteUser, UpdateTopic, UpdateUser, UserInfo
from rmq.net.commands.access import PolicyEntry
from rmq.testing import LocalBroker
from tests.broker.support import Peer
from tests.broker.test_access import SETTINGS, login, make_user, nameserver_permits
from tests.door.caller import Caller, door, doors, ms, publishing, signed

Code = v2.Code
ORDERS, AUDIT = ("orders", "orders-secret"), ("audit", "audit-secret")
USERS = "orders", "audit"
RIGHTS = ["Pub", "Sub"]


class Context(NamedTuple):
    """What gRPC tells of a request."""

    metadata: list[tuple[str, str]]
    host: str
    port: int = 4711

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self.metadata

    def peer(self) -> str:
        return f"ipv4:{self.host}:{self.port}"


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(**SETTINGS) as broker:
        yield broker


@pytest.fixture
async def root(local: LocalBroker) -> AsyncIterator[Peer]:
    """Two users, each with a topic."""
    peer = await login(local, "root", "root-secret")
    for user in USERS:
        await peer.ask(UpdateTopic(user))
        await make_user(peer, user, PolicyEntry(f"Topic:{user}", RIGHTS), PolicyEntry("Group:g", RIGHTS))
        await local.clock.advance_until(lambda name=user: nameserver_permits(local, name))
    yield peer
    await peer.close()


@pytest.fixture
async def port(local: LocalBroker, root: Peer) -> AsyncIterator[int]:
    async with doors(local) as port:
        yield port


def users_connections(local: LocalBroker, user: str) -> int:
    """At the broker."""
    logins = [one.standing.login for one in local.serving.front.server.connections]
    return sum(login is not None and login.user == user for login in logins)


async def test_each_may_do_what_its_user_may(port: int) -> None:
    async with Caller(port, "a", signs=ORDERS) as orders, Caller(port, "b", signs=AUDIT) as audit:
        for caller, own, others in ((orders, "orders", "audit"), (audit, "audit", "orders")):
            async with caller.telemetry(publishing(own)) as (_, answer):
                assert answer.status.code == Code.OK
            assert (await caller.receive("g", own, long_polling_timeout=ms(0)))[0] == Code.MESSAGE_NOT_FOUND
            assert (await caller.send(own, b"x")).status.code == Code.OK
            assert (await caller.send(others, b"x")).status.code == Code.FORBIDDEN
            assert (await caller.receive("g", others))[0] == Code.FORBIDDEN
            assert (await caller.receive("another", own))[0] == Code.FORBIDDEN
            _, (message,) = await caller.receive("g", own)
            assert await caller.ack("g", own, message) == [Code.OK]
            route = await caller.ask("QueryRoute", topic=v2.Resource(name=others), endpoints=caller.endpoints)
            assert route.status.code == Code.FORBIDDEN


async def test_a_receipt_of_one_user_is_of_no_use_to_another(port: int) -> None:
    async with Caller(port, "a", signs=ORDERS) as orders, Caller(port, "a", signs=AUDIT) as audit:
        await orders.receive("g", "orders", long_polling_timeout=ms(0))
        await orders.send("orders", b"x")
        _, (message,) = await orders.receive("g", "orders")
        assert await audit.ack("g", "orders", message) == [Code.FORBIDDEN]
        assert await orders.ack("g", "orders", message) == [Code.OK]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        signed("orders", "wrong"),
        signed("nobody", "orders-secret"),
        signed("node", "node-secret"),  # is no user
        signed("orders", "orders-secret", "now"),
        signed("orders", "orders-secret", "9" * 300),
        signed("o" * 300, "orders-secret"),
        [("x-mq-date-time", "20261128T120000Z"), ("authorization", "Basic b3JkZXJzOnNlY3JldA==")],
        [("x-mq-date-time", "20261128T120000Z"), ("authorization", signed("orders", "orders-secret")[1][1][:-1] + "x")],
        signed("orders", "orders-secret")[1:],
        [("x-mq-date-time", "20261128T120001Z"), signed("orders", "orders-secret")[1]],
    ],
)
async def test_who_does_not_sign_rightly_gets_nothing(port: int, headers: list[tuple[str, str]]) -> None:
    async with Caller(port) as caller:
        caller.metadata += headers
        answer = await caller.ask("SendMessage", messages=[v2.Message(topic=v2.Resource(name="orders"), body=b"x")])
        assert (answer.status.code, len(answer.entries)) == (Code.UNAUTHORIZED, 0)
        assert (await caller.ask("Heartbeat")).status.code == Code.UNAUTHORIZED
        assert await caller.receive("g", "orders") == (Code.UNAUTHORIZED, [])
        async with caller.telemetry(publishing("orders")) as (stream, answer):
            assert answer.status.code == Code.UNAUTHORIZED
            assert await stream.read() == grpc.aio.EOF


def test_signatures_of_each_client_are_read() -> None:
    """C++, C# and Go name more behind the key, some write in capitals; who signs in Rust writes the time by RFC 3339."""
    (_, time), (_, said) = signed("orders", "s", "2026-11-28T13:00:00.123456789+01:00")
    digest = said.rpartition("=")[2]
    for spelled in (
        said,
        f"MQv2-HMAC-SHA1 Credential=orders//Rocketmq, SignedHeaders=x-mq-date-time, Signature={digest}",
        f"MQv2-HMAC-SHA1 Credential=orders/region/RocketMQ,SignedHeaders=x-mq-date-time,Signature={digest.upper()}",
    ):
        found = signature_of({"authorization": spelled, "x-mq-date-time": time})
        assert (found.user, found.time, found.signature.hex()) == ("orders", time, digest)
        assert digest not in repr(found)


@pytest.mark.parametrize(
    ("peer", "host"), [("ipv4:10.0.0.1:4711", "10.0.0.1"), ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::1"), ("unix:", "")]
)
def test_where_a_client_sits(peer: str, host: str) -> None:
    assert host_of(peer) == host


async def test_another_password_ends_the_old_one(local: LocalBroker, root: Peer, port: int) -> None:
    async with Caller(port, signs=ORDERS) as caller, Caller(port, signs=("orders", "new-secret")) as later:
        assert (await caller.send("orders", b"x")).status.code == Code.OK
        await root.ask(UpdateUser("orders", UserInfo("orders", "new-secret")))
        await local.clock.advance(visitors.PROVEN_S + 1)

        async def code(who: Caller) -> int:
            answer = await who.ask("SendMessage", messages=[v2.Message(topic=v2.Resource(name="orders"), body=b"x")])
            return int(answer.status.code)

        async with asyncio.timeout(20):  # until the nameserver has heard
            while await code(later) != Code.OK:
                await local.clock.advance(0.3)
        assert (await later.send("orders", b"x")).status.code == Code.OK
        assert await code(caller) == Code.UNAUTHORIZED
        assert (await later.send("orders", b"x")).status.code == Code.OK


async def test_another_password_while_all_connections_were_cut(local: LocalBroker, root: Peer, port: int) -> None:
    """New ones must not log in by an old signature."""
    async with Caller(port, signs=ORDERS) as caller, Caller(port, signs=("orders", "new-secret")) as later:
        assert (await caller.send("orders", b"x")).status.code == Code.OK
        await root.ask(UpdateUser("orders", UserInfo("orders", "new-secret")))
        await local.stop_nameserver()
        await local.stop_broker()
        await local.start_nameserver()
        await local.start_broker()
        await local.clock.advance(visitors.PROVEN_S + 1)
        begun = local.clock.monotonic()
        heartbeat, send = partial(later.ask, "Heartbeat"), partial(later.send, "orders", b"x")
        for asked in (heartbeat, send):  # the nameserver, and the broker
            while (await asked()).status.code != Code.OK:
                await local.clock.advance(1.0)  # it hears of the user, and wrong signatures wait
                assert local.clock.monotonic() - begun < visitors.IDLE_S / 2, "until the user has no connections any more"
        assert (await caller.ask("Heartbeat")).status.code == Code.UNAUTHORIZED


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_stream_ends_with_the_password_by_which_it_began(
    local: LocalBroker, root: Peer, port: int, deleted: bool
) -> None:
    """A question after a transaction shows the message."""
    async with AsyncExitStack() as stack:
        caller, audit = [await stack.enter_async_context(Caller(port, user, signs=(user, f"{user}-secret"))) for user in USERS]
        others, _ = await stack.enter_async_context(audit.telemetry(publishing("audit")))
        stream, _ = await stack.enter_async_context(caller.telemetry(publishing("orders")))
        await root.ask(DeleteUser("orders") if deleted else UpdateUser("orders", UserInfo("orders", "new-secret")))
        ended = asyncio.create_task(stream.read())
        await local.clock.advance_until(ended.done, step_s=5.0)
        assert ended.result() == grpc.aio.EOF
        assert not others.done()
        assert (await audit.send("audit", b"x")).status.code == Code.OK


async def test_a_user_who_is_deleted_is_refused_at_once(local: LocalBroker, root: Peer, port: int) -> None:
    async with Caller(port, signs=ORDERS) as caller:
        assert (await caller.send("orders", b"x")).status.code == Code.OK
        await root.ask(DeleteUser("orders"))
        entry = await caller.send("orders", b"x")
        assert entry.status.code == Code.FORBIDDEN
        await local.clock.advance(visitors.PROVEN_S + 1)
        await local.clock.advance_until(lambda: not local.naming.directory.users("orders"))
        assert (await caller.ask("Heartbeat")).status.code == Code.UNAUTHORIZED


async def entered(doors: ForEachUser, host: str, secret: str, time: str = "20261128T120000Z", port: int = 4711) -> int:
    try:
        async with doors.entered(Context(signed("orders", secret, time), host, port)):
            return int(Code.OK)
    except Wrong as wrong:
        return wrong.code


async def test_who_guesses_slows_down_himself_alone(local: LocalBroker, root: Peer) -> None:
    """Not the user at other hosts, not what that user has begun, and not others behind the same proxy."""
    async with local.client() as asking:
        doors = ForEachUser(asking, lambda newest: Client(local.nameserver, clock=local.clock, user=newest))
        assert await entered(doors, "10.0.0.2", "orders-secret") == Code.OK
        for guess in range(20):
            assert await entered(doors, "10.0.0.1", f"guess-{guess}") == Code.UNAUTHORIZED
        assert await entered(doors, "10.0.0.1", "orders-secret", "20261128T120001Z") == Code.UNAUTHORIZED, "it has to wait"
        assert await entered(doors, "10.0.0.2", "orders-secret", "20261128T120002Z") == Code.OK
        await local.clock.advance(31)
        assert await entered(doors, "10.0.0.1", "orders-secret", "20261128T120003Z") == Code.OK
        await doors.close()


async def test_a_program_with_an_old_password_does_not_disturb_the_one_beside_it(local: LocalBroker, root: Peer) -> None:
    async with local.client() as asking:
        doors = ForEachUser(asking, lambda newest: Client(local.nameserver, clock=local.clock, user=newest))
        for second in range(20):
            time = f"20261128T1200{second:02}Z"
            assert await entered(doors, "10.0.0.1", "orders-secret", time) == Code.OK
            assert await entered(doors, "10.0.0.1", "old", time, port=4712) == Code.UNAUTHORIZED
        assert await entered(doors, "10.0.0.1", "wrong", "20261128T130000Z") == Code.UNAUTHORIZED
        assert await entered(doors, "10.0.0.1", "orders-secret", "20261128T130001Z") == Code.UNAUTHORIZED, (
            "it is not known any more"
        )
        await doors.close()


async def test_a_user_who_has_left_keeps_no_connections(local: LocalBroker, port: int) -> None:
    async with Caller(port, signs=ORDERS) as caller:
        assert (await caller.send("orders", b"x")).status.code == Code.OK
        async with caller.telemetry(publishing("orders")) as (_, answer):
            assert answer.status.code == Code.OK
            await local.clock.advance(2 * visitors.IDLE_S)
            assert users_connections(local, "orders"), "a stream is open"
        await local.clock.advance_until(lambda: not users_connections(local, "orders"), step_s=30.0)
        assert (await caller.send("orders", b"x")).status.code == Code.OK


async def test_users_at_once(local: LocalBroker, root: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "MOST_USERS", 1)
    async with doors(local) as port, Caller(port, signs=ORDERS) as orders, Caller(port, signs=AUDIT) as audit:
        assert (await orders.ask("Heartbeat")).status.code == Code.OK
        assert (await audit.ask("Heartbeat")).status.code == Code.TOO_MANY_REQUESTS
        assert (await orders.send("orders", b"x")).status.code == Code.OK


async def test_signatures_that_are_remembered(local: LocalBroker, root: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those above the bound are asked about again each time."""
    monkeypatch.setattr(visitors, "MOST_PROVEN", 2)
    async with local.client() as asking:
        doors = ForEachUser(asking, lambda newest: Client(local.nameserver, clock=local.clock, user=newest))
        for second in range(5):
            assert await entered(doors, "10.0.0.1", "orders-secret", f"20261128T12000{second}Z") == Code.OK
            assert len(doors.proven) <= 2
        await local.clock.advance(visitors.PROVEN_S + 1)
        assert await entered(doors, "10.0.0.1", "orders-secret", "20261128T120009Z") == Code.OK
        assert len(doors.proven) == 1
        await doors.close()


async def test_a_cluster_without_users_says_so() -> None:
    async with LocalBroker() as broker, doors(broker) as port, Caller(port, signs=ORDERS) as caller:
        status = (await caller.ask("Heartbeat")).status
        assert (status.code, "has no users" in status.message) == (Code.UNAUTHORIZED, True)


async def test_without_a_nameserver_the_brokers_are_asked(local: LocalBroker, port: int) -> None:
    async with Caller(port, signs=ORDERS) as caller:
        assert (await caller.send("orders", b"x")).status.code == Code.OK
        await local.stop_nameserver()
        caller.metadata[1:] = signed(*ORDERS, "20261128T130000Z")
        assert (await caller.send("orders", b"x")).status.code == Code.OK
        caller.metadata[1:] = signed("orders", "wrong", "20261128T130000Z")
        assert (await caller.ask("Heartbeat")).status.code == Code.UNAUTHORIZED


async def test_a_door_for_all_looks_at_no_signature(local: LocalBroker, root: Peer) -> None:
    async with door(local, *ORDERS) as port, Caller(port, signs=("audit", "wrong")) as caller:
        assert (await caller.send("orders", b"x")).status.code == Code.OK
