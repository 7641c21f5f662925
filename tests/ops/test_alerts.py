"""Whoever is configured and missing is told: by `rmq health`, clusterList, haStatus; alerts have tests of their own."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rmq import cli
from rmq.broker.node import Broker
from rmq.commands.shared import exits
from rmq.net.commands.peers import AWAY_S, GetHaStatus, GroupStatus, MemberStatus
from rmq.testing import LocalBroker, until
from tests.broker.groups import GROUP, LocalGroup
from tests.broker.pair import Pair
from tests.broker.support import small_node
from tests.client.scripted import Broker as Scripted

Printed = pytest.CaptureFixture[str]


async def run(*arguments: str) -> int:
    """A command of `rmq`, in a thread with a loop of its own."""
    return await asyncio.to_thread(cli.run, [*arguments, "-o", "json"])


async def rows(capsys: Printed, *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    await run(*arguments)
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


async def test_a_nameserver_that_tells_nothing_does_not_hide_the_others(capsys: Printed) -> None:
    """As one that was just started and knows no users: `rmq health` ended with its refusal, and showed nothing."""
    other = await Scripted().start()
    async with LocalBroker() as broker:
        told = await rows(capsys, "health", "-n", f"{other.address};{broker.nameserver}")
        assert [(row["role"], row["address"], row["ok"]) for row in told] == [
            ("nameserver", other.address, False),
            ("nameserver", broker.nameserver, True),
            ("broker", broker.address, True),
        ]
        assert "REQUEST_CODE_NOT_SUPPORTED" in told[0]["remark"]
        assert await run("health", "-n", f"{other.address};{broker.nameserver}") == exits.UNREACHABLE
        assert await run("health", "-n", other.address) == exits.FAILED
    await other.stop()


async def test_a_broker_that_a_nameserver_refuses_is_told(capsys: Printed) -> None:
    """Two lone brokers of one name: the second one's failed registration was a line in a log."""
    async with LocalBroker() as first:
        where = ("-n", first.nameserver)
        assert await run("health", *where) == exits.OK
        settings = small_node(first.store_dir / "2", namesrv_addresses=(first.nameserver,))
        second = Broker(settings, first.clock)
        await second.start()
        try:
            assert await run("health", *where) == exits.OK, "the nameserver does not know the second one"
            [row] = await rows(capsys, "health", "-a", second.address)
            assert (row["ok"], "already leads" in row["remark"]) == (False, True)
            assert await run("health", "-a", second.address) == exits.UNREACHABLE
        finally:
            await second.stop()


async def test_a_lost_node_of_an_elected_group_is_missed(tmp_path: Path, capsys: Printed) -> None:
    async with LocalGroup(tmp_path) as group:
        where = ("-n", group.nameserver)
        await group.level()
        assert await run("health", *where) == exits.OK
        lost, other = await group.followers()
        await group.stop(lost)
        await advance_until_missed(group)
        assert await run("health", *where) == exits.UNREACHABLE
        health = await rows(capsys, "health", *where)
        assert [row["remark"] for row in health if not row["ok"]] == [f"{lost} of {GROUP} is missing"]
        listed = await rows(capsys, "admin", "clusterList", *where)
        assert [row["version"] for row in listed if row["address"] == group.peer_address(lost)] == ["no answer"]
        told = {row["node"]: row["status"] for row in await rows(capsys, "admin", "haStatus", *where)}
        assert told == {lost: "Away", other: "In Sync"}
        await group.stop(other)
        await group.clock.advance_until(lambda: not leads(group))
        assert await run("health", *where) == exits.FAILED
        assert "nobody leads" in capsys.readouterr().out
        told = {row["node"]: row["status"] for row in await rows(capsys, "admin", "haStatus", *where)}
        assert sorted(told.values()) == ["Missing", "Missing", "No Leader"]


def parts(group: LocalGroup) -> list[GroupStatus]:
    return [node.serving.membership.status() for node in group.nodes.values()]


def missed(group: LocalGroup) -> bool:
    return any(status.misses(member) for status in parts(group) for member in status.members)


async def advance_until_missed(group: LocalGroup) -> None:
    """Step by step, each once somebody leads: votes reach the disk in real time, and elections that are given none never end."""
    async with asyncio.timeout(30):
        while not missed(group):
            await group.leader()
            await group.clock.advance(0.25)


def leads(group: LocalGroup) -> bool:
    return any(status.role == "leader" for status in parts(group))


async def test_one_that_was_never_there_is_missed(tmp_path: Path, capsys: Printed) -> None:
    """Its leader has not seen it since it leads; mqadmin's haStatus shows it as lacking everything."""
    async with LocalGroup(tmp_path) as group:
        never = (await group.followers())[0]
        await until(lambda: all(status.proven for status in parts(group)))  # before that, a new group needs all of its nodes
        await group.stop(*group.nodes)
        await group.start(*(name for name in ("n0", "n1", "n2") if name != never))
        await advance_until_missed(group)
        leader = await group.leader()
        [told] = [row for row in await rows(capsys, "admin", "haStatus", "-n", group.nameserver) if row["node"] == never]
        assert told["status"] == "Never Seen"
        assert await run("health", "-n", group.nameserver) == exits.UNREACHABLE
        asked = await (await group.connect(leader)).ask(GetHaStatus())
        by_address = {each.addr: each for each in asked.ha_connection_info}
        assert by_address[group.peer_address(never)].in_sync is False
        assert by_address[group.peer_address(never)].diff == asked.master_commit_log_max_offset > 0
        assert asked.in_sync_slave_nums == 1


async def test_fixed_roles_miss_whom_they_knew_and_whom_they_should_have(tmp_path: Path, capsys: Printed) -> None:
    """`totalReplicas` names a number; a slave that went for good is taken out by hand."""
    pair = Pair(tmp_path)
    await pair.begin()
    where = ("-n", pair.nameserver.address)
    try:
        await pair.start(0, "ASYNC_MASTER", total_replicas=3)
        await pair.start(1, "SLAVE")
        await pair.level()
        await pair.clock.advance(11)
        await pair.level()
        health = await rows(capsys, "health", *where)
        assert [row["remark"] for row in health if not row["ok"]] == ["missing-1 of g is missing"]
        await pair.start(2, "SLAVE")
        await pair.level()
        assert await run("health", *where) == exits.OK
        await pair.stop(2)
        assert await run("health", *where) == exits.UNREACHABLE
        await pair.clock.advance(11)
        assert await run("admin", "removePeer", *where, "-b", "g", "n2") == exits.OK
        health = await rows(capsys, "health", *where)
        assert [row["remark"] for row in health if not row["ok"]] == ["missing-1 of g is missing"]
        await pair.stop(0)
        assert await run("health", *where) == exits.FAILED
        assert "rmq admin promote" in capsys.readouterr().out
    finally:
        for number in list(pair.nodes):
            await pair.stop(number)
        await pair.nameserver.stop()


async def test_in_sync_means_level_a_moment_ago(tmp_path: Path, capsys: Printed) -> None:
    """A follower that stands still falls behind before it counts as away, however little it lacks."""
    async with LocalGroup(tmp_path) as group:
        await group.level()
        silent = (await group.followers())[0]
        await group.stop(silent)
        await group.clock.advance_until(lambda: not seen(group, silent).in_sync)
        assert 0 <= seen(group, silent).seen_seconds_ago < AWAY_S
        told = {row["node"]: row["status"] for row in await rows(capsys, "admin", "haStatus", "-n", group.nameserver)}
        assert told[silent] == "Fall Behind"


def seen(group: LocalGroup, name: str) -> MemberStatus:
    return next(member for status in parts(group) if status.role == "leader" for member in status.members if member.node == name)
