"""Users and policies at the ports of a real broker and a real nameserver."""

import asyncio
import itertools
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq.access import sealing
from rmq.broker.node import Broker
from rmq.client import Message
from rmq.codes import ResponseCode
from rmq.errors import Refusal, RmqError
from rmq.model import GroupConfig
from rmq.nameserver import access
from rmq.net.commands import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetAllTopicConfig,
    GetMaxOffset,
    GetRoute,
    GetTopicList,
    GetUser,
    Hello,
    ListAcls,
    ListUsers,
    Ping,
    UpdateAcl,
    UpdateGroup,
    UpdateTopic,
    UpdateUser,
    UserInfo,
)
from rmq.net.commands.access import AclInfo, Policy, PolicyEntry, ShareAccess, SharedUser
from rmq.net.remoting.headers import ANSWER_FLAG, Header, read, write
from rmq.net.transport.dialer import Dialer
from rmq.scram import Credentials
from rmq.testing import LocalBroker, TestClock
from tests.broker.helddisk import HeldDisk
from tests.broker.support import Peer, send, small_node
from tests.nameserver.test_nameserver import a_broker

ROOT, NODE = Credentials("root", "root-secret"), Credentials("node", "node-secret")
SETTINGS: dict[str, Any] = {
    "authentication": True,
    "authorization": True,
    "init_user": (ROOT,),
    "node_credentials": (NODE,),
}


def acl(name: str, *entries: PolicyEntry) -> CreateAcl:
    return CreateAcl(f"User:{name}", AclInfo("", [Policy("Custom", list(entries))]))


async def login(local: LocalBroker, name: str, password: str, address: str = "") -> Peer:
    pushed: list[Any] = []
    dialer = Dialer(local.clock, credentials=Credentials(name, password) if name else None)
    return Peer(await dialer.open(address or local.address, Hello(1, f"client of {name}"), pushed.append), pushed)


@pytest.fixture
async def local() -> AsyncIterator[LocalBroker]:
    async with LocalBroker(**SETTINGS) as broker:
        yield broker


@pytest.fixture
async def root(local: LocalBroker) -> AsyncIterator[Peer]:
    peer = await login(local, "root", "root-secret")
    await peer.ask(UpdateTopic("T"))
    await peer.ask(UpdateTopic("other"))
    yield peer
    await peer.close()


def nameserver_knows(local: LocalBroker, name: str) -> bool:
    return bool(local.naming.directory.users(name))


def nameserver_permits(local: LocalBroker, name: str) -> bool:
    """It knows the user's policies, too; they come behind the user."""
    return nameserver_knows(local, name) and bool(local.naming.directory.acls(name))


async def make_user(root: Peer, name: str, *entries: PolicyEntry, **fields: str) -> None:
    await root.ask(CreateUser(name, UserInfo(name, f"{name}-secret", **fields)))
    if entries:
        await root.ask(acl(name, *entries))


class NoUsers(HeldDisk):
    """Its log has no room for users, some times."""

    fails = 3

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        if self.fails and handle in self._of_log and b"\xa4user" in bytes(data):
            self.fails -= 1
            raise OSError(28, "No space left on device")
        return super().pwrite(handle, data, offset)


async def test_the_first_user_is_made_as_soon_as_that_is_possible(tmp_path: Path) -> None:
    """Until it is there nobody can do anything, nor is refused for good; a root that is deleted later is not made again."""
    disk, clock = NoUsers(), TestClock()
    broker = Broker(small_node(tmp_path, stop_grace_ms=100, **SETTINGS), clock, disk)
    await broker.start()
    users = broker.serving.tables.users
    for _ in range(8):  # nobody is unknown yet, nor has guessed
        with pytest.raises(Refusal, match="has not heard of all users"):
            await Peer.connect(broker.address, credentials=ROOT)
    await clock.advance_until(lambda: users.get("root"), 1.0)
    assert not disk.fails
    root = await Peer.connect(broker.address, credentials=ROOT)
    await root.ask(CreateUser("chief", UserInfo("chief", "chief-secret", "Super")))
    await root.close()
    chief = await Peer.connect(broker.address, credentials=Credentials("chief", "chief-secret"))
    await chief.ask(DeleteUser("root"))
    await clock.advance(30)
    assert users.get("root") is None
    await chief.close()
    await broker.stop()


async def test_nobody_does_anything_before_the_login(local: LocalBroker) -> None:
    """S1: hello and ping are all that a stranger gets."""
    stranger = await login(local, "", "")
    await stranger.ask(Ping())
    for request in (GetMaxOffset("T", 0), UpdateTopic("T"), send("T"), GetAllTopicConfig(), ListUsers()):
        assert await stranger.refusal(request) == ResponseCode.NO_PERMISSION
    for name, password in (("root", "wrong"), ("nobody", "root-secret"), ("node", "root-secret")):
        with pytest.raises(Refusal, match="wrong password or unknown user"):
            await login(local, name, password)
    await stranger.close()


async def test_a_user_does_what_policies_allow_and_nothing_else(local: LocalBroker, root: Peer) -> None:
    """S2"""
    await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub", "Get"]))
    bob = await login(local, "bob", "bob-secret")
    await bob.send(send("T"), send("T"))
    assert (await bob.ask(GetMaxOffset("T", 0))).offset == 2
    for request in (send("other"), GetMaxOffset("other", 0), UpdateTopic("T"), ListUsers(), UpdateGroup(GroupConfig("g"))):
        assert await bob.refusal(request) == ResponseCode.NO_PERMISSION
    assert [topic.name for topic in (await bob.ask(GetAllTopicConfig())).topics] == ["T"]
    await bob.close()


async def test_a_change_holds_for_connections_that_are_open(local: LocalBroker, root: Peer) -> None:
    """S2: what a connection was permitted once is forgotten when a policy changes; who is disabled is thrown out."""
    await make_user(root, "bob", PolicyEntry("Topic:*", ["Pub"]))
    bob = await login(local, "bob", "bob-secret")
    await bob.send(send("T"))
    await root.ask(UpdateAcl("User:bob", acl("bob", PolicyEntry("Topic:T", ["Pub"], [], "Deny")).acl))
    assert await bob.refusal(send("T")) == ResponseCode.NO_PERMISSION
    await bob.send(send("other"))
    await root.ask(DeleteAcl("User:bob", "", "Topic:T"))
    await bob.send(send("T"))
    await root.ask(UpdateAcl("User:bob", acl("bob", PolicyEntry("Topic:T", ["Pub"], ["10.0.0.0/8"], "Allow")).acl))
    await root.ask(DeleteAcl("User:bob", "", "Topic:*"))
    assert await bob.refusal(send("T")) == ResponseCode.NO_PERMISSION, "it comes from elsewhere"
    await root.ask(UpdateUser("bob", UserInfo(user_status="disable")))
    await local.clock.advance_until(bob.channel.closed.is_set)
    again = await login(local, "bob", "bob-secret")  # who it is was proven; what it may is nothing
    assert await again.refusal(GetAllTopicConfig()) == ResponseCode.NO_PERMISSION
    await again.channel.close()


async def test_another_password_ends_the_logins_with_the_old_one(local: LocalBroker, root: Peer) -> None:
    await make_user(root, "bob", PolicyEntry("*", ["All"]))
    bob = await login(local, "bob", "bob-secret")
    await root.ask(UpdateUser("bob", UserInfo(password="a new one")))
    assert await bob.refusal(send("T")) == ResponseCode.NO_PERMISSION
    await bob.channel.login(Credentials("bob", "a new one"), 5.0)  # again, on the same connection
    await bob.send(send("T"))
    with pytest.raises(Refusal):
        await login(local, "bob", "bob-secret")
    await bob.close()


async def test_users_and_policies_outlive_the_broker(local: LocalBroker, root: Peer) -> None:
    """They are records of the log, and rows of its snapshots."""
    await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
    await make_user(root, "eve")
    await root.ask(DeleteUser("eve"))
    await root.close()
    await local.stop_broker()
    await local.start_broker()
    bob = await login(local, "bob", "bob-secret")
    await bob.send(send("T"))
    assert await bob.refusal(send("other")) == ResponseCode.NO_PERMISSION
    await bob.close()
    with pytest.raises(Refusal):
        await login(local, "eve", "eve-secret")


async def test_no_password_is_ever_told_or_stored(local: LocalBroker, root: Peer, caplog: pytest.LogCaptureFixture) -> None:
    """S12: canaries are found in no answer, log line, or file."""
    caplog.set_level("DEBUG")
    await root.ask(CreateUser("bob", UserInfo("bob", "canary-of-bob", "Super")))
    await root.refusal(CreateUser("eve", UserInfo("eve", "canary-of-eve\n", "Super")))
    with pytest.raises(Refusal) as refused:
        await login(local, "bob", "canary-that-is-wrong")
    told = [str(await root.ask(GetUser("bob"))), str(await root.ask(ListUsers())), str(refused.value), repr(ROOT), caplog.text]
    assert not any("canary" in text or "root-secret" in text for text in told)
    await root.close()
    await local.stop_broker()
    for file in local.store_dir.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        assert b"canary" not in data, file
        assert b"-secret" not in data, file


async def test_what_get_user_tells_is_taken_for_the_password_elsewhere(local: LocalBroker, root: Peer) -> None:
    """copyUser: nobody knows the password, and the copy has the same."""
    await make_user(root, "bob")
    told = (await root.ask(GetUser("bob"))).password
    await root.ask(CreateUser("copy", UserInfo("copy", told, "Normal")))
    await (await login(local, "copy", "bob-secret")).close()
    assert await root.refusal(CreateUser("third", UserInfo("third", told[:60]))) == ResponseCode.INVALID_PARAMETER


async def test_who_may_change_the_cluster_is_not_a_super_user(local: LocalBroker, root: Peer) -> None:
    await make_user(root, "ops", PolicyEntry("Cluster:*", ["All"]))
    ops = await login(local, "ops", "ops-secret")
    await ops.ask(CreateUser("bob", UserInfo("bob", "bob-secret")))
    assert (await ops.ask(GetUser("bob"))).password == ""
    for request in (
        CreateUser("eve", UserInfo("eve", "eve-secret", "Super")),
        UpdateUser("ops", UserInfo(user_type="Super")),
        UpdateUser("root", UserInfo(password="taken over")),
        DeleteUser("root"),
    ):
        assert await ops.refusal(request) == ResponseCode.NO_PERMISSION
    await ops.close()


async def test_policies_are_made_changed_and_listed(root: Peer) -> None:
    await make_user(root, "bob", PolicyEntry("Topic:a", ["Pub"]))
    await root.ask(acl("bob", PolicyEntry("Topic:a", ["sub"], ["10.0.0.1"]), PolicyEntry("Group:*", ["Sub"], [], "deny")))
    entries = [PolicyEntry("Topic:a", ["Sub"], ["10.0.0.1"]), PolicyEntry("Group:*", ["Sub"], [], "Deny")]
    assert await root.ask(GetAcl("User:bob")) == AclInfo("User:bob", [Policy("Custom", entries)])
    assert (await root.ask(ListAcls("bob", "Group"))).acls == [AclInfo("User:bob", [Policy("Custom", entries[1:])])]
    assert (await root.ask(ListAcls("", "nothing"))).acls == []
    await root.ask(DeleteAcl("User:bob", "", "group:*"))
    assert await root.ask(GetAcl("User:bob")) == AclInfo("User:bob", [Policy("Custom", entries[:1])])
    await root.ask(DeleteAcl("User:bob"))
    assert await root.refusal(GetAcl("User:bob")) == ResponseCode.POLICY_NOT_EXIST
    assert await root.refusal(acl("nobody", entries[0])) == ResponseCode.USER_NOT_EXIST
    assert await root.refusal(CreateUser("bob", UserInfo("bob", "x"))) == ResponseCode.INVALID_PARAMETER
    assert await root.refusal(UpdateUser("nobody", UserInfo())) == ResponseCode.USER_NOT_EXIST


async def test_a_guesser_waits_and_nobody_else_does(local: LocalBroker, root: Peer) -> None:
    await make_user(root, "bob")
    for _ in range(5):
        with pytest.raises(Refusal):
            await login(local, "bob", "guess")
    with pytest.raises(Refusal, match="try again in"):
        await login(local, "bob", "bob-secret")
    await (await login(local, "root", "root-secret")).close()
    await local.clock.advance(60)
    await (await login(local, "bob", "bob-secret")).close()


async def test_a_program_with_an_old_secret_locks_out_nobody_beside_it(local: LocalBroker, root: Peer) -> None:
    """The same user at the same address: who has proven its secret goes on, new connections wait a second at most; a guesser
    that nobody is beside waits longer and longer."""
    await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
    await make_user(root, "eve", PolicyEntry("Topic:T", ["Pub"]))
    good, old = (Signer(local.address, "bob", secret) for secret in ("bob-secret", "old"))
    guesser = Signer(local.address, "eve", "guess")
    for number in range(9):
        await local.clock.advance(31 if number else 0)
        assert (await asked(good, 310, SENT, b"body"))[0] == 0
        assert (await asked(good, 31, {"topic": "T", "queueId": "0"}))[0] == ResponseCode.NO_PERMISSION, "Pub is all it has"
        for wrong in (old, guesser):
            assert (await asked(wrong, 310, SENT, b"body"))[0] == ResponseCode.NO_PERMISSION
    _, remark, _ = await asked(guesser, 310, SENT, b"body")
    waits_s = float(remark.rpartition("again in ")[2].removesuffix(" s"))
    assert 1 < waits_s <= 16
    await asked(old, 310, SENT, b"body")
    await local.clock.advance(1.1)
    late = Signer(local.address, "bob", "bob-secret")
    assert (await asked(late, 310, SENT, b"body"))[0] == 0
    await (await login(local, "bob", "bob-secret")).close()
    for signer in (good, old, late, guesser):
        signer.close()


async def test_a_nameserver_knows_the_users_of_its_brokers(local: LocalBroker, root: Peer) -> None:
    """S1, S2: routes, lists and registrations are for those who may see or make them."""
    await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
    stranger = await login(local, "", "", local.nameserver)
    await local.clock.advance_until(lambda: nameserver_permits(local, "bob"))
    bob = await login(local, "bob", "bob-secret", local.nameserver)
    assert (await bob.ask(GetRoute("T"))).brokers
    assert await bob.refusal(GetRoute("other")) == ResponseCode.NO_PERMISSION
    assert (await bob.ask(GetTopicList())).topics == ["T"]
    assert await stranger.refusal(GetRoute("T")) == ResponseCode.NO_PERMISSION
    for peer in (bob, stranger):
        await peer.close()


async def test_several_policies_of_one_type_count(root: Peer) -> None:
    """RocketMQ shows what was made by several of them so, and its copyAcl sends that on: here only the last one was kept."""
    await make_user(root, "bob")
    first, second = PolicyEntry("Topic:*", ["Pub"], [], "Allow"), PolicyEntry("Topic:T", ["Pub"], [], "Deny")
    await root.ask(CreateAcl("User:bob", AclInfo("", [Policy("Custom", [second]), Policy("", [first])])))
    assert (await root.ask(GetAcl("User:bob"))).policies == [Policy("Custom", [second, first])]


async def test_a_nameserver_takes_policies_of_any_length(local: LocalBroker, root: Peer) -> None:
    """N3: of many subjects, and of one with more than a frame holds. Else no registration came through to one that began anew."""
    resources = [f"Topic:{'department-of-orders-and-invoices' * 2}-{number:05}" for number in range(25_000)]
    wanted = {"bob": resources, "eve": resources[:300]}
    await make_user(root, "bob")
    for user, names in wanted.items():
        local.serving.tables.policies.apply(f"User:{user}", {"Custom": [[name, ["Pub", "Sub"]] for name in names]})
    await local.stop_nameserver()
    await local.start_nameserver()
    acls, registered = local.naming.directory.acls, local.serving.registration.registered

    def known() -> dict[str, list[str]]:
        return {user: [entry.resource for acl in acls(user) for entry in acl["Custom"]] for user in wanted}

    await local.clock.advance_until(lambda: known() == wanted and registered() == {local.nameserver: True})
    assert nameserver_permits(local, "bob")


async def test_users_on_their_way_to_a_nameserver_are_bounded(local: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """S4, D18: parts come in their order, and all that wait for a registration have so many bytes together."""
    monkeypatch.setattr(access, "MAX_ARRIVING_BYTES", 1_000_000)
    broker = await login(local, NODE.name, NODE.secret, local.nameserver)
    large = [AclInfo("User:" + "x" * 400_000)]
    for part in (0, 1):
        await broker.ask(ShareAccess("b", [], large, part, 9))
    assert await broker.refusal(ShareAccess("c", [], large, 1, 9)) == ResponseCode.INVALID_PARAMETER
    assert await broker.refusal(ShareAccess("b", [], large, 2, 9)) == ResponseCode.SYSTEM_BUSY
    assert await broker.refusal(ShareAccess("b", [], large, 2, 9)) == ResponseCode.INVALID_PARAMETER, "it begins anew"
    for part in (0, 1):
        await broker.ask(ShareAccess("c", [], large, part, 9))
    await broker.close()


async def test_a_deposed_leader_tells_a_nameserver_of_no_users(local: LocalBroker) -> None:
    """N2: one that had been deleted was known again, as long as the old leader had not heard of the new one."""
    old, new = [await login(local, NODE.name, NODE.secret, local.nameserver) for _ in range(2)]
    with_bob = ShareAccess("b", [SharedUser("bob", "Normal", "enable", b"salt", 1, b"", b"", b"")], [])
    await old.ask(with_bob)
    assert not nameserver_knows(local, "bob")
    await old.ask(a_broker(epoch=1))
    assert nameserver_knows(local, "bob")
    await new.ask(ShareAccess("b", [], []))
    await new.ask(a_broker(port=2, epoch=2))
    assert not nameserver_knows(local, "bob")
    await old.ask(with_bob)
    assert await old.refusal(a_broker(epoch=1))
    assert not nameserver_knows(local, "bob")
    for peer in (old, new):
        await peer.close()


async def test_a_client_logs_in_everywhere(local: LocalBroker, root: Peer) -> None:
    await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub", "Sub"]), PolicyEntry("Group:readers", ["Sub"]))
    await local.clock.advance_until(lambda: nameserver_permits(local, "bob"))
    async with local.client(user="bob", password="bob-secret") as client, client.producer() as producer:
        await producer.send(Message("T", b"hello"))
        async with client.consumer("readers", "T", start="first") as consumer:
            async for message in consumer:
                assert message.body == b"hello"
                break
        with pytest.raises(Refusal, match="has no permission"):
            await producer.send(Message("other", b"hello"))
    with pytest.raises(RmqError, match="wrong password"):
        async with local.client(user="bob", password="wrong") as client, client.producer() as producer:
            await producer.send(Message("T", b"hello"))


async def test_a_client_logs_in_again_where_its_login_is_not_taken_any_more(local: LocalBroker, root: Peer) -> None:
    """A password that is set anew, to the same, disturbs nobody: neither who waits nor many at once."""
    await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub", "Sub"]), PolicyEntry("Group:g", ["Sub"]))
    await local.clock.advance_until(lambda: nameserver_permits(local, "bob"))
    async with local.client(user="bob", password="bob-secret") as client, client.producer() as producer:
        async with client.consumer("g", "T", start="first") as consumer:
            await producer.send(Message("T", b"before"))
            assert (await anext(consumer)).body == b"before"
            waiting = asyncio.ensure_future(anext(consumer))
            await root.ask(UpdateUser("bob", UserInfo(password="bob-secret")))
            await local.clock.advance(1)
            await asyncio.gather(*(producer.send(Message("T", b"after")) for _ in range(5)))
            assert (await waiting).body == b"after"
        await root.ask(UpdateUser("bob", UserInfo(password="another")))
        with pytest.raises(Refusal, match="wrong password"):
            await producer.send(Message("T", b"no more"))


# --- requests of RocketMQ's clients -----------------------------------------------------------------------------------


class Signer:
    """One connection in RocketMQ's protocol."""

    def __init__(self, address: str, user: str = "", secret: str = "") -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._opaque = itertools.count(1)
        self._who = (user, secret)
        self.questions: list[Header] = []

    def encrypt(self, context: ssl.SSLContext) -> None:
        self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")

    def write(self, code: int, ext: dict[str, str], body: bytes = b"", **wrong: str) -> None:
        user, secret = self._who
        if user:
            ext = {**ext, sealing.ACCESS_KEY: user}
            ext[sealing.SIGNATURE] = sealing.signature(secret, sealing.content(ext, body))
        self._socket.sendall(write(False, code, 0, next(self._opaque), "", ext | wrong, body))

    def read(self) -> tuple[int, str, bytes]:
        """The next answer; what is asked before it is kept in `questions`."""
        while True:
            header, body = self.frame()
            if header.flag & ANSWER_FLAG:
                return header.code, header.remark, body
            self.questions.append(header)

    def frame(self) -> tuple[Header, bytes]:
        return read(self._exactly(int.from_bytes(self._exactly(4), "big")), 1 << 20)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "closed"
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


async def asked(signer: Signer, *request: Any, **wrong: str) -> tuple[int, str, bytes]:
    await asyncio.to_thread(signer.write, *request, **wrong)
    return await asyncio.to_thread(signer.read)


SENT = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}


async def test_each_request_of_rocketmqs_clients_is_signed(local: LocalBroker, root: Peer) -> None:
    """F1: HMAC-SHA1 of all fields and the body."""
    await make_user(root, "bob", PolicyEntry("Topic:T", ["Pub"]))
    bob, wrong, nobody = (Signer(local.address, *who) for who in (("bob", "bob-secret"), ("bob", "guess"), ()))
    for _ in range(2):
        assert (await asked(bob, 310, SENT, b"body"))[0] == 0
    assert (await asked(bob, 310, SENT | {"b": "other"}, b"body"))[0] == ResponseCode.NO_PERMISSION
    assert (await asked(bob, 310, SENT, b"body", e="1"))[0] == ResponseCode.NO_PERMISSION, "it was changed on its way"
    assert (await asked(bob, 310, SENT, b"body"))[0] == 0
    assert (await asked(wrong, 310, SENT, b"body"))[:1] == (ResponseCode.NO_PERMISSION,)
    assert (await asked(nobody, 310, SENT, b"body"))[0] == ResponseCode.NO_PERMISSION
    for signer in (bob, wrong, nobody):
        signer.close()


async def test_mqadmins_commands_about_users_and_policies(local: LocalBroker, root: Peer) -> None:
    admin = Signer(local.address, "root", "root-secret")
    code, _, nothing = await asked(admin, 3004, {"username": "bob"})
    assert (code, nothing) == (0, b""), "copyUser makes those that are not there"
    user = json.dumps({"username": "bob", "password": "bob-secret", "userType": "Normal"}).encode()
    assert (await asked(admin, 3001, {"username": "bob"}, user))[0] == 0
    entry = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}
    code, _, nothing = await asked(admin, 3009, {"subject": "User:bob"})
    assert (code, nothing) == (0, b""), "and copyAcl"
    rules = json.dumps({"subject": "User:bob", "policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()
    assert (await asked(admin, 3006, {"subject": "User:bob"}, rules))[0] == 0
    code, _, body = await asked(admin, 3009, {"subject": "User:bob"})
    assert (code, json.loads(body)["policies"][0]["entries"][0]) == (0, {**entry, "sourceIps": []})
    code, _, body = await asked(admin, 3004, {"username": "bob"})
    assert code == 0
    assert "bob-secret" not in body.decode()
    assert [row["username"] for row in json.loads((await asked(admin, 3005, {}))[2])] == ["bob", "root"]
    bob = Signer(local.address, "bob", "bob-secret")
    assert (await asked(bob, 310, SENT, b"body"))[0] == 0
    assert (await asked(admin, 3002, {"username": "bob"}, b'{"userStatus":"disable"}'))[0] == 0
    assert (await asked(bob, 310, SENT, b"body"))[0] == ResponseCode.NO_PERMISSION
    assert (await asked(admin, 3008, {"subject": "User:bob"}))[0] == 0
    assert (await asked(admin, 3003, {"username": "bob"}))[0] == 0
    admin.close()
    bob.close()
