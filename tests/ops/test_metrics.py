"""What Prometheus is told of a group, over real HTTP from real nodes."""

import asyncio
import contextlib
import shutil
import threading
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmq.net.commands.peers import GroupStatus, MemberStatus
from rmq.ops import scrape
from rmq.ops.metrics import families, served
from tests.broker.groups import LocalGroup

Samples = dict[tuple[str, str, str], float]


def samples(text: str) -> Samples:
    """By name, node and reason."""
    return {
        (one.name.removeprefix("rmq_group_"), one.labels["node"], one.labels.get("reason", "")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


async def scraped(group: LocalGroup, name: str) -> Samples:
    part = group.nodes[name].serving.membership
    assert part is not None
    async with served("127.0.0.1", 0, "C", "g", part.status) as address:
        answer = await asyncio.to_thread(urllib.request.urlopen, f"http://{address}/metrics")
        with answer:
            assert answer.status == 200
            return samples(answer.read().decode())


async def test_a_leader_tells_who_is_behind_and_who_may_not_vote(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path) as group:
        leader = await group.leader()
        away = (await group.followers())[0]
        await group.level()
        found = await scraped(group, leader)
        assert found["leader", leader, ""] == found["lease_good", leader, ""] == 1
        assert found["log_end_offset", leader, ""] == found["committed_offset", leader, ""] > 0
        assert found["epoch", leader, ""] >= 1
        for name in ("n0", "n1", "n2"):
            assert found["member_lag_bytes", name, ""] == 0
            assert found["member_may_not_vote", name, "unproven"] == found["member_may_not_vote", name, "not_a_voter"] == 0
        told = await scraped(group, away)
        assert told["leader", away, ""] == 0
        assert ("member_lag_bytes", leader, "") not in told  # only the leader knows how far the others are


async def test_a_new_disk_is_no_voter_and_unproven_at_first(tmp_path: Path) -> None:
    """`status` of a wiped node before any leader has spoken to it."""
    async with LocalGroup(tmp_path) as group:
        wiped = (await group.followers())[0]
        await group.stop(*group.nodes)
        shutil.rmtree(tmp_path / wiped)
        await group.start(wiped)
        found = await scraped(group, wiped)
        assert found["member_may_not_vote", wiped, "unproven"] == 1


def test_each_reason_is_a_series_of_its_own() -> None:
    member = MemberStatus("n1", "s1", "h:1", False, -1, -1, -1, -1.0, True, True)
    status = GroupStatus("leader", "n0", "s0", "n0", "h:0", 3, 0, 10, 10, 10, True, True, False, [], [member])
    [reasons] = [one for one in families("C", "g", status) if one.name == "rmq_group_member_may_not_vote"]
    assert {one.labels["reason"]: one.value for one in reasons.samples} == {"not_a_voter": 1, "unproven": 1, "disk_full": 1}


def test_damage_is_told() -> None:
    status = GroupStatus("follower", "n0", "s0", "", "", 3, 0, 10, 10, 10, True, False, False, [], [])
    for damaged in ("", "bytes 5 to 9"):
        [found] = [one for one in families("C", "g", status._replace(damaged=damaged)) if one.name == "rmq_group_damaged"]
        assert found.samples[0].value == bool(damaged)


async def test_a_taken_port_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    status = GroupStatus("leader", "n0", "s0", "n0", "h:0", 3, 0, 10, 10, 10, True, True, False, [], [])
    async with served("127.0.0.1", 0, "C", "g", lambda: status) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            async with served("127.0.0.1", port, "C", "g", lambda: status):
                pass


async def test_who_connects_and_says_nothing_makes_room_for_who_asks() -> None:
    """S16: neither a thread each, nor Prometheus turned away."""
    status = GroupStatus("leader", "n0", "s0", "n0", "h:0", 3, 0, 10, 10, 10, True, True, False, [], [])
    before = threading.active_count()
    async with served("127.0.0.1", 0, "C", "g", lambda: status) as address:
        host, _, port = address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(3 * scrape.MAX_SCRAPES)]
        for reader, _ in idle[: scrape.MAX_SCRAPES]:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = (await reader.read()).decode()
        assert answer.startswith("HTTP/1.1 200 OK")
        assert samples(answer.partition("\r\n\r\n")[2])["leader", "n0", ""] == 1
        assert threading.active_count() == before
    for _, one in (*idle, (reader, writer)):
        one.close()


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (b"GET /metrics?name=x HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (
            b"GET / HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text",
        ),
        (b"GET /else HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\xff" * 10 * scrape.MAX_HEAD_BYTES, b""),
    ],
)
async def test_questions(question: bytes, says: bytes) -> None:
    """S16."""
    status = GroupStatus("leader", "n0", "s0", "n0", "h:0", 3, 0, 10, 10, 10, True, True, False, [], [])
    async with served("127.0.0.1", 0, "C", "g", lambda: status) as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(question)
        try:
            answer = await reader.read()
        except ConnectionResetError:  # it went before everything was read
            answer = b""
        assert answer.startswith(says)
        writer.close()


async def test_who_only_looks_at_the_head() -> None:
    status = GroupStatus("leader", "n0", "s0", "n0", "h:0", 3, 0, 10, 10, 10, True, True, False, [], [])
    async with served("127.0.0.1", 0, "C", "g", lambda: status) as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\n")
        writer.close()
