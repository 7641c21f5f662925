"""What a hostile peer may try with real messages and a good certificate of the house: it is no node, so nothing is done (S3)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq.codes import ResponseCode as R
from rmq.guard.members import bears
from rmq.net.commands import ClusterInfo, GetClusterInfo, RegisterBroker, Request, UnregisterBroker, UpdateTopic
from rmq.net.commands.peers import ForwardedClient, IntroducePeer
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.support import Peer, send
from tests.broker.test_gate import questions, runs
from tests.broker.test_tls import settings
from tests.certificates import Certificates

STRANGERS = ("client", "elsewhere")


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def group(certs: Certificates, tmp_path: Path) -> AsyncIterator[LocalGroup]:
    encrypted = settings(certs, "enforcing", tls_client_auth="require")
    async with LocalGroup(tmp_path, tls=certs.tls("client"), **encrypted) as group:
        yield group


def registration(address: str, broker_id: int = 0, epoch: int = 1 << 20) -> RegisterBroker:
    return RegisterBroker("DefaultCluster", GROUP, broker_id, address, epoch, [], store="stranger")


async def brokers(peer: Peer) -> Any:
    info: ClusterInfo = await peer.ask(GetClusterInfo())
    return info.brokers


async def test_a_stranger_is_no_node_of_the_group(
    group: LocalGroup, certs: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """It neither deposes a leader, nor makes a follower cut, fetches bytes, acknowledges for a member, or speaks for clients."""
    names = {name: (await group.leader()) == name for name in group.nodes}
    client = await group.connect(await group.leader())
    await client.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
    await client.send(send("T"))
    await group.level()
    before = {name: await group.status(name) for name in names}
    known = await runs(group)
    epoch = before[await group.leader()].epoch
    for shown in STRANGERS:
        for victim in names:
            stranger = await Peer.connect(group.peer_address(victim), tls=certs.tls(shown))
            for name in names:
                assert await stranger.refusal(known[name]._replace(incarnation=1 << 40)) in (R.NO_PERMISSION, R.INVALID_PARAMETER)
                for question in questions(name, known[name].store, epoch=epoch + 5):
                    assert await stranger.refusal(question) == R.NO_PERMISSION
            for asked in (IntroducePeer(GROUP, "n9", "s", 1), ForwardedClient(GROUP, next(iter(names)), "10.0.0.1", 1)):
                assert await stranger.refusal(asked) == R.NO_PERMISSION
            await stranger.close()
    assert "clients are not forwarded: " in caplog.text
    after = {name: await group.status(name) for name in names}
    assert {(one.epoch, one.leader, one.end) for one in after.values()} == {
        (one.epoch, one.leader, one.end) for one in before.values()
    }
    assert (await client.send(send("T")))[0].queue_offset == 1


async def test_a_stranger_registers_no_broker_and_takes_no_name(group: LocalGroup, certs: Certificates) -> None:
    leader = await group.leader()
    for shown in STRANGERS:
        stranger = await Peer.connect(group.nameserver, tls=certs.tls(shown))
        before = await brokers(stranger)
        for address in (group.address(leader), "127.0.0.1:1", "10.0.0.9:10911", "alice.example:1"):
            assert await stranger.refusal(registration(address)) == R.NO_PERMISSION
            assert await stranger.ask_code(UnregisterBroker("DefaultCluster", GROUP, 0, address)) in (0, R.NO_PERMISSION)
        assert await brokers(stranger) == before
        await stranger.close()


async def test_names_for_nodes_hold_while_plain_clients_are_still_taken(certs: Certificates, tmp_path: Path) -> None:
    """Permissive, with `member_names`: plain connections are for clients only; nodes show the name."""
    given = settings(certs, "permissive", tls_dial=True, tls_client_auth="optional", member_names=("localhost",))
    async with LocalGroup(tmp_path, **given) as group:
        leader = await group.leader()
        client = await group.connect(leader)
        await client.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await client.send(send("T"))
        plain = await Peer.connect(group.nameserver)
        assert await plain.refusal(registration("127.0.0.1:1")) == R.NO_PERMISSION
        await plain.close()
        asked: list[Request] = [(await runs(group))[leader], *questions(leader, "s", epoch=9)]
        stranger = await Peer.connect(group.peer_address(next(name for name in group.nodes if name != leader)))
        for question in asked:
            assert await stranger.refusal(question) == R.NO_PERMISSION
        await stranger.close()


@pytest.mark.parametrize(
    ("certified", "host", "stands"),
    [
        ("n0.example.com", "N0.example.com.", True),
        ("*.example.com", "n0.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "a.n0.example.com", False),
        ("*", "localhost", False),
        ("*.0.0.1", "127.0.0.1", False),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("10.0.0.1", "10.0.0.10", False),
    ],
)
def test_what_a_name_stands_for(certified: str, host: str, stands: bool) -> None:
    assert bears([certified], host) == stands
