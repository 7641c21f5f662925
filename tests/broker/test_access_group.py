"""Users and policies of a group that elects its leader: at every member, over a change of the leader."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rmq import scram
from rmq.codes import ResponseCode
from rmq.errors import Refusal, Unreachable
from rmq.net.commands import (
    BeginLogin,
    CreateUser,
    FinishLogin,
    GetMaxOffset,
    GetMinOffset,
    GetTopicConfig,
    Hello,
    Ping,
    UpdateAcl,
    UpdateTopic,
    UpdateUser,
    UserInfo,
)
from rmq.net.commands.access import PolicyEntry, ShareAccess
from rmq.net.commands.peers import AskVote, FetchLog, IntroducePeer
from rmq.net.transport.dialer import Dialer
from rmq.scram import Credentials
from rmq.testing import LocalBroker, until
from tests.access.examples import example
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer, copy_of_running, send
from tests.broker.test_access import NODE, SENT, SETTINGS, Signer, acl, asked, login as login_at, nameserver_knows
from tests.nameserver.test_nameserver import a_broker


async def login(group: LocalGroup, node: str, name: str, password: str) -> Peer:
    pushed: list[Any] = []
    dialer = Dialer(group.clock, credentials=Credentials(name, password) if name else None)
    return Peer(await dialer.open(group.address(node), Hello(1, name), pushed.append), pushed)


@contextlib.asynccontextmanager
async def started(folder: Path) -> AsyncIterator[tuple[LocalGroup, str]]:
    """A group and its first leader, which has made its first user. Time runs by itself while peers talk: a clock that is moved
    on for as long as something takes would overtake their elections, and idle connections."""
    async with LocalGroup(folder, led=False, **SETTINGS) as group:
        group.credentials = NODE
        await group.clock.advance(1.5)
        first = await group.leader()
        await until(lambda: group.nodes[first].serving.tables.users.get("root"))
        yield group, first


async def test_every_member_knows_the_users_and_only_nodes_are_nodes(tmp_path: Path) -> None:
    """S2, S3: a leader leaves its users to the next one; clients of RocketMQ are forwarded with their signatures."""
    async with started(tmp_path) as (group, first):
        root = await login(group, first, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        await root.ask(CreateUser("bob", UserInfo("bob", "bob-secret")))
        await root.ask(acl("bob", PolicyEntry("Topic:T", ["Pub", "Get"])))
        followers = [name for name in group.nodes if name != first]
        await until(lambda: all("User:bob" in group.nodes[name].serving.tables.policies.committed() for name in followers))
        forwarded = Signer(group.nodes[followers[0]].address, "bob", "bob-secret")
        assert (await asked(forwarded, 310, SENT, b"by a follower"))[:2] == (0, "")
        bob = await login(group, followers[1], "bob", "bob-secret")
        for kind in (IntroducePeer, AskVote, FetchLog):
            for peer in (bob, root):
                assert await peer.refusal(example(kind)) == ResponseCode.NO_PERMISSION

        await group.stop(first)
        await group.clock.advance(3)
        second = await group.leader(but=first)
        again = await login(group, second, "bob", "bob-secret")
        await again.send(send("T"))
        assert (await again.ask(GetMaxOffset("T", 0))).offset == 2
        chief = await login(group, second, "root", "root-secret")
        await chief.ask(UpdateAcl("User:bob", acl("bob", PolicyEntry("Topic:T", ["Pub"], [], "Deny")).acl))
        assert await again.refusal(send("T")) == ResponseCode.NO_PERMISSION
        forwarded.close()
        for peer in (root, bob, again, chief):
            peer.channel.abort("the test is over")


async def test_a_node_with_another_secret_is_no_node(tmp_path: Path) -> None:
    async with started(tmp_path) as (group, first):
        with pytest.raises(Refusal, match="wrong password"):
            await login(group, first, "node", "another")


async def test_a_member_that_lags_says_of_nobody_that_he_is_unknown(tmp_path: Path) -> None:
    """A user that was made while it was away is asked to try again, and does not have to wait because of it."""
    async with started(tmp_path) as (group, first):
        away, *others = (name for name in group.nodes if name != first)
        await group.stop(away)
        root = await login(group, first, "root", "root-secret")
        await root.ask(CreateUser("bob", UserInfo("bob", "bob-secret", "Super")))
        root.channel.abort("the test goes on")
        await group.stop(first, *others)
        await group.start(away)
        for _ in range(8):
            with pytest.raises(Refusal, match="has not heard of all users"):
                await login(group, away, "bob", "bob-secret")
        await group.start(first, *others)
        await until(lambda: group.nodes[away].serving.tables.users.get("bob"))
        bob = await login(group, away, "bob", "bob-secret")
        with pytest.raises(Refusal, match="wrong password"):
            await login(group, first, "bob", "another")
        bob.channel.abort("the test is over")


async def test_nobody_is_unknown_to_a_nameserver_that_knows_nobody() -> None:
    """S1: a leader registers before it has made the first user, and again when that is there."""
    async with LocalBroker(**SETTINGS) as local:
        await until(lambda: nameserver_knows(local, "root"))
        await local.stop_broker()
        await local.stop_nameserver()
        await local.start_nameserver()
        leader = await login_at(local, NODE.name, NODE.secret, local.nameserver)
        await leader.ask(ShareAccess("b", [], []))
        await leader.ask(a_broker())
        for _ in range(8):
            with pytest.raises(Refusal, match="has not heard of all users"):
                await login_at(local, "root", "root-secret", local.nameserver)
        await local.start_broker()
        await local.clock.advance_until(lambda: nameserver_knows(local, "root"))
        for peer in (leader, await login_at(local, "root", "root-secret", local.nameserver)):
            await peer.close()


async def test_a_user_that_is_made_while_he_logs_in_is_not_told_that_he_is_unknown(tmp_path: Path) -> None:
    """A member that has heard of everything else says so of itself: it knew no keys to check the proof with."""
    async with started(tmp_path) as (group, first):
        root = await login(group, first, "root", "root-secret")
        bob = await login(group, first, "", "")
        proof = scram.Client("bob", "bob-secret", "one that is made by chance")
        challenge = (await bob.ask(BeginLogin(proof.first))).message
        await root.ask(CreateUser("bob", UserInfo("bob", "bob-secret")))
        assert await bob.refusal(FinishLogin(proof.answer(challenge))) == ResponseCode.SYSTEM_BUSY
        await (await login(group, first, "bob", "bob-secret")).close()
        for peer in (root, bob):
            await peer.close()


async def test_a_member_that_cannot_know_the_newest_policies_lets_nobody_read(tmp_path: Path) -> None:
    """S2: what its leader has taken away must not be had from a member that is cut off, nor from one that lags."""
    async with started(tmp_path) as (group, first):
        cut_off, other = (name for name in group.nodes if name != first)
        root = await login(group, first, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        await root.ask(CreateUser("bob", UserInfo("bob", "bob-secret")))
        await root.ask(acl("bob", PolicyEntry("Topic:T", ["Sub"])))
        await until(lambda: "User:bob" in group.nodes[cut_off].serving.tables.policies.committed())
        bob = await login(group, cut_off, "bob", "bob-secret")
        await bob.ask(GetMinOffset("T", 0))
        root.channel.abort("the test goes on")
        await group.stop(other, first)
        await group.clock.advance(3)  # it may lead for a moment
        with pytest.raises(Refusal, match="newest policies"):
            await bob.ask(GetMinOffset("T", 0))
        await group.start(other, first)
        await group.leader()
        bob.channel.abort("the test is over")


async def test_a_member_that_was_killed_takes_nobody_for_unknown(tmp_path: Path) -> None:
    """It hears at once how much is committed, and learns what that says a part at a time; until then it says so (S1)."""
    async with started(tmp_path) as (group, first):
        root = await login(group, first, "root", "root-secret")
        await root.ask(UpdateTopic("T"))
        await root.ask(CreateUser("early", UserInfo("early", "old-secret")))
        for _ in range(48):
            await root.ask(send("T", bytes(1024), count=512))
        await root.ask(UpdateUser("early", UserInfo("early", "early-secret")))
        await root.ask(acl("early", PolicyEntry("Topic:T", ["Get"])))
        await root.ask(CreateUser("late", UserInfo("late", "late-secret")))
        follower = next(name for name in group.nodes if name != first)
        await until(lambda: group.nodes[follower].serving.tables.users.get("late"))
        image = copy_of_running(group.store(follower), tmp_path / "image")
        await group.stop(follower)
        group.wipe(follower)
        image.rename(group.store(follower))

        starting = asyncio.create_task(group.start(follower))
        said: Counter[object] = Counter()
        async with asyncio.timeout(60):
            for user, request in (("early", GetTopicConfig("T")), ("late", Ping())):
                while not said[user]:
                    try:
                        peer = await login(group, follower, user, f"{user}-secret")
                        try:
                            await peer.ask(request)
                        finally:
                            await peer.close()
                    except Unreachable:
                        await asyncio.sleep(0)
                    except Refusal as refusal:
                        if "too many failed logins" in refusal.remark:  # no client asks as fast as this
                            await group.clock.advance(1)
                            continue
                        said[refusal.code] += 1
                    else:
                        said[user] += 1
        await starting
        assert set(said) <= {"early", "late", ResponseCode.SYSTEM_BUSY}
        with pytest.raises(Refusal, match="unknown user"):
            await login(group, follower, "nobody", "late-secret")
