"""What Prometheus is told, over real HTTP from real nodes."""

import asyncio
import contextlib
import re
import shutil
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography import x509
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from rmq import background
from rmq.broker.replication.measured import group_families
from rmq.client import Message
from rmq.clock import SystemClock
from rmq.measures import Family, Histogram
from rmq.model import ConsumerData, GroupConfig, Subscription
from rmq.net.commands import Heartbeat, UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.net.commands.configuration import UpdateBrokerConfig
from rmq.net.commands.peers import GroupStatus, MemberStatus
from rmq.ops import metrics as pages, scrape
from rmq.ops.certs import Authority
from rmq.ops.metrics import Bounded, gather, spelled
from rmq.testing import LocalBroker
from tests.broker.groups import LocalGroup
from tests.broker.popping import ack, take
from tests.broker.support import Peer, send
from tests.ops.watching import asked, exported, families, page, scraped, value

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
_ROW = re.compile(r"^\| `(r(?:ocket)?mq_\w+)` \| (\w+) \| ([^|]*) \| (\w+) \|", re.M)
COMMON = {"cluster", "node_type", "node_id", "le"}


async def test_a_lone_broker_and_its_nameserver() -> None:
    """What came, what went, who lags: counted as it was done, lag only in what the group wants."""
    async with LocalBroker() as broker, broker.client() as client:
        async with client.producer("p") as producer:
            for number in range(5):
                await producer.send(Message("Orders", b"%d" % number, tags="a" if number else "b"))
            async with client.consumer("g", {"Orders": "a"}, start="first", auto_commit=False) as consumer:
                got = []
                while len(got) < 4:
                    got += await consumer.receive(1)
                await consumer.commit()
                for number in range(3):
                    await producer.send(Message("Orders", b"more", tags="a" if number else "b"))
                await broker.clock.advance(6)
                found = await scraped(*broker.parts)
        own = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
        orders = {"topic": "Orders", "message_type": "normal", "is_system": "false", **own}
        assert value(found, "rocketmq_messages_in_total", **orders) == 8
        assert value(found, "rocketmq_throughput_in_total", **orders) > 8 * 80
        group = {"topic": "Orders", "consumer_group": "g", "is_retry": "false", "is_system": "false", **own}
        assert value(found, "rocketmq_messages_out_total", **group) >= 4
        assert value(found, "rocketmq_consumer_lag_messages", **group) == 2
        assert value(found, "rmq_consumer_lag_estimated", **group) == 0
        assert value(found, "rocketmq_consumer_lag_latency_milliseconds", **group) >= 6000
        assert value(found, "rocketmq_consumer_connections", consumer_group="g", consume_mode="push") == 1
        assert value(found, "rmq_nameserver_registered", **own) == 1
        assert value(found, "rmq_nameserver_brokers", broker="broker-a", node_type="nameserver") == 1
        assert value(found, "rmq_nameserver_view", node_type="nameserver") > 0
        counted = {one.name: one.value for one in found["rmq_commit_seconds"].samples if one.labels.get("le", "+Inf") == "+Inf"}
        assert counted["rmq_commit_seconds_bucket"] == counted["rmq_commit_seconds_count"] >= 8


async def test_a_leader_tells_who_is_behind_and_who_may_not_vote(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path) as group:
        leader, away = await group.leader(), (await group.followers())[0]
        await group.level()
        found = await scraped(group.nodes[leader])
        assert value(found, "rmq_group_leader", node=leader) == value(found, "rmq_group_lease_good", node=leader) == 1
        assert value(found, "rmq_group_log_end_offset") == value(found, "rmq_group_committed_offset") > 0
        assert value(found, "rmq_group_epoch") >= 1
        for name in ("n0", "n1", "n2"):
            assert value(found, "rmq_group_member_lag_bytes", node=name) == 0
            for reason in ("unproven", "not_a_voter", "disk_full"):
                assert value(found, "rmq_group_member_may_not_vote", node=name, reason=reason) == 0
        told = await scraped(group.nodes[away])
        assert value(told, "rmq_group_leader", node=away) == 0
        assert told["rmq_group_fetch_seconds"].samples[-2].value > 0
        # only the leader knows how far the others are, and tells what all have alike
        assert not [one for one in told["rmq_group_member_lag_bytes"].samples if one.labels["node"] == leader]
        assert value(found, "rmq_delayed_messages") == 0
        assert "rmq_delayed_messages" not in told


async def test_a_new_disk_is_no_voter_and_unproven_at_first(tmp_path: Path) -> None:
    """`status` of a wiped node before any leader has spoken to it."""
    async with LocalGroup(tmp_path) as group:
        wiped = (await group.followers())[0]
        await group.stop(*group.nodes)
        shutil.rmtree(tmp_path / wiped)
        await group.start(wiped)
        found = await scraped(group.nodes[wiped])
        assert value(found, "rmq_group_member_may_not_vote", node=wiped, reason="unproven") == 1


def test_each_reason_is_a_series_of_its_own() -> None:
    member = MemberStatus("n1", "s1", "h:1", False, -1, -1, -1, -1.0, True, True)
    status = GroupStatus("leader", "n0", "s0", "n0", "h:0", 3, 0, 10, 10, 10, True, True, False, [], [member])
    reasons = next(one for one in group_families(status, Histogram()) if one.name == "rmq_group_member_may_not_vote")
    assert dict(reasons.rows) == {("n1", "not_a_voter"): 1, ("n1", "unproven"): 1, ("n1", "disk_full"): 1}


def test_damage_is_told() -> None:
    status = GroupStatus("follower", "n0", "s0", "", "", 3, 0, 10, 10, 10, True, False, False, [], [])
    for damaged in ("", "bytes 5 to 9"):
        told = {one.name: one for one in group_families(status._replace(damaged=damaged), Histogram())}
        assert dict(told["rmq_group_damaged"].rows) == {("n0",): bool(damaged)}


# --- the list in the docs ---------------------------------------------------------------------------------------------


def documented() -> dict[str, tuple[str, set[str], str]]:
    """Kind, labels, and who tells it."""
    return {name: (kind, set(re.findall(r"\w+", labels)), who) for name, kind, labels, who in _ROW.findall(PAGE.read_text())}


async def test_the_documented_names_are_those_that_are_told(tmp_path: Path) -> None:
    """Both ways, for each role, with kind and labels where there are series."""
    listed = documented()
    async with LocalBroker() as broker, LocalGroup(tmp_path) as group:
        await group.level()
        nameserver, alone = broker.parts
        leader, follower = group.nodes[await group.leader()], group.nodes[(await group.followers())[0]]
        for parts, expected in (
            ([nameserver], {"every", "nameserver"}),
            ([alone], {"every", "broker", "leader"}),
            ([nameserver, alone], {"every", "nameserver", "broker", "leader"}),
            ([leader], {"every", "broker", "leader", "member"}),
            ([follower], {"every", "broker", "member"}),
        ):
            told = await scraped(*parts)
            assert told.keys() == {name for name, (_, _, who) in listed.items() if who in expected}
            for name, family in told.items():
                assert family.type == listed[name][0], name
                assert {label for one in family.samples for label in one.labels} - COMMON <= listed[name][1], name
    authority = Authority.make(tmp_path / "certs", SystemClock())
    made = authority.issue("node", ["127.0.0.1"])
    async with LocalBroker(tls_mode="permissive", tls_cert=str(made.cert), tls_key=str(made.key)) as broker:
        for part, who in zip(broker.parts, ({"nameserver"}, {"broker", "leader"}), strict=True):
            told = await scraped(part)
            assert told.keys() == {name for name, (_, _, roles) in listed.items() if roles in who | {"every", "tls"}}
            end = x509.load_pem_x509_certificate(made.cert.read_bytes()).not_valid_after_utc
            assert value(told, "rmq_certificate_end_seconds") == end.timestamp()


@pytest.mark.parametrize("wanted", [("||", "TAG"), ("other", "TAG"), ("x", "FOO"), ("((", "SQL92"), ("a > 1", "SQL92")])
async def test_what_a_client_says_it_wants_does_not_hide_the_page(wanted: tuple[str, str]) -> None:
    """All that is missing counts, except what the group's tags leave out; where that may be wrong it is marked. Without
    estimateAccumulation all counts."""
    async with LocalBroker() as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(UpdateTopic("T", read_queue_nums=1, write_queue_nums=1))
        await peer.send(send("T", b"one"))
        await peer.ask(UpdateGroup(GroupConfig("g")))
        await peer.ask(UpdateConsumerOffset("g", "T", 0, 0))
        await peer.ask(Heartbeat("c", consumers=[ConsumerData("g", subscriptions=[Subscription("T", *wanted)])]))
        await broker.clock.advance(1)
        found = await scraped(*broker.parts)
        assert value(found, "rocketmq_consumer_lag_messages", topic="T") == (wanted[0] != "other")
        assert value(found, "rmq_consumer_lag_estimated", topic="T") == (wanted[1] == "SQL92")
        await peer.ask(UpdateBrokerConfig("estimateAccumulation=false"))
        found = await scraped(*broker.parts)
        assert value(found, "rocketmq_consumer_lag_messages", topic="T") == 1
        assert value(found, "rmq_consumer_lag_estimated", topic="T") == 0
        await peer.close()


async def test_how_far_a_group_is_behind_that_pops() -> None:
    """Messages that are popped and not acknowledged are not consumed; each counts. Receipts were counted, and in the lag nothing.
    [ConsumerLagCalculator]"""
    async with LocalBroker() as broker:
        peer = await Peer.connect(broker.address)
        await peer.ask(UpdateTopic(topic := "T" * 127, read_queue_nums=1, write_queue_nums=1))
        await peer.send(*(send(topic, b"%d" % number) for number in range(10)))
        await peer.ask(UpdateGroup(GroupConfig(group := "g" * 120)))
        await broker.clock.advance(60)

        async def figures(name: str = topic) -> list[float]:
            kinds = ("lag_messages", "inflight_messages", "ready_messages", "lag_latency_milliseconds")
            found = await scraped(*broker.parts)
            labels = {"topic": name, "consumer_group": group}
            return [
                value(found, f"rocketmq_consumer_{kind}", **labels) // (1 if "messages" in kind else 30_000) for kind in kinds
            ]

        first = await take(peer.ask, topic=topic, group=group, count=4, hidden_ms=20_000)
        assert await figures() == [10, 4, 6, 2]
        second = await take(peer.ask, topic=topic, group=group, count=6, hidden_ms=600_000)
        assert await figures() == [10, 10, 0, 2]
        await ack(peer.ask, first[0], *second[:5], group=group)
        assert await figures() == [4, 4, 0, 2]
        retry = f"%RETRY%{group}_{topic}"
        await broker.clock.advance_until(lambda: broker.serving.store.queues.look(retry, 0).max == 3)
        assert await figures() == [1, 1, 0, 2]
        back = await take(peer.ask, topic=topic, group=group, hidden_ms=60_000)
        assert (await figures(retry))[:3] == [3, 3, 0]
        await ack(peer.ask, *back, second[5], group=group)
        assert [(await figures(name))[:3] for name in (topic, retry)] == [[0, 0, 0]] * 2
        await peer.close()


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_names_beyond_the_limit_are_added_up() -> None:
    """Those that came first stay, the others are one series; who goes makes room. Of ages the largest counts."""
    bounded = Bounded(2)
    family = Family("m", "gauge", "about", ("topic", "is_system"), ())
    rows = [((topic, "false"), float(number)) for number, topic in enumerate("abcd", 1)]
    assert bounded.rows(family, rows) == {("a", "false"): 1, ("b", "false"): 2, ("other", "false"): 7}
    assert bounded.rows(family, reversed(rows)) == {("a", "false"): 1, ("b", "false"): 2, ("other", "false"): 7}
    assert bounded.rows(family._replace(peak=True), rows)["other", "false"] == 4
    bounded.rows(family, rows[1:])
    assert bounded.rows(family, rows[1:]) == {("b", "false"): 2, ("c", "false"): 3, ("other", "false"): 4}
    again = [*rows[:1], *rows[:1]]
    assert Bounded().rows(family, again) == {("a", "false"): 2}, "queues of one topic are added up"


async def test_a_scrape_of_many_topics_leaves_the_loop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows there are, others have their turn while they are read, and rows that need the disk are not read there."""
    turns, after = 0, []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def rows() -> object:
        for number in range(50_000):
            if number % 1000 == 0:
                after.append(turns)
            yield (f"T{number}",), 1.0

    monkeypatch.setattr(pages, "SLICE_S", 0.0)
    slow = Family("slow", "gauge", "", ("topic",), (1 / 0 for _ in (1,)), slow=True)  # type: ignore[misc]
    running = asyncio.create_task(others())
    many = Family("many", "gauge", "", ("topic",), rows())  # type: ignore[arg-type]
    gathered = await gather([({}, [many, slow])], Bounded())
    running.cancel()
    assert gathered[0].rows is not None
    assert (len(gathered[0].rows), gathered[0].rows["other",]) == (pages.MAX_NAMES + 1, 50_000 - pages.MAX_NAMES)
    assert all(later > earlier for earlier, later in pairwise(after))


class ClockOfAThread:
    """A millisecond passes whenever somebody looks. `rested`: for how long, each time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.rested: list[float] = []

    def perf_counter(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.rested.append(seconds)


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
async def test_the_thread_that_writes_a_page_lets_the_loop_go_on(accept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it gathers rows, and while it spells them, also those of one family."""
    clock = ClockOfAThread()
    family = Family("rmq_x", "gauge", "", ("node_id",), [((str(number),), 1.0) for number in range(100)])
    gathered, bounded = await gather([({}, [family])], Bounded()), Bounded()
    monkeypatch.setattr(background, "time", clock)
    spelled(gathered, bounded, accept)
    assert len(clock.rested) >= 2 * 100 // 3
    assert set(clock.rested) == {background.REST_S}


# --- the port ---------------------------------------------------------------------------------------------------------


async def test_a_taken_port_is_an_error_and_leaves_nothing() -> None:
    async with exported() as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            async with scrape.served("127.0.0.1", port, {}):
                pass
    assert not [one for one in threading.enumerate() if "exporter" in one.name]


async def test_where_the_pages_are_is_a_url_for_ipv6_too() -> None:
    async with scrape.served("::1", 0, {}) as address:
        assert address.startswith("[::1]:")


async def test_who_connects_and_says_nothing_makes_room_for_who_asks() -> None:
    """S16: neither a thread each, nor Prometheus turned away."""
    async with exported() as address:
        host, _, port = address.rpartition(":")
        await page(address, "/metrics")
        before = threading.active_count()
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(3 * scrape.MAX_SCRAPES)]
        for reader, _ in idle[: scrape.MAX_SCRAPES]:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        status, text = await page(address, "/metrics")
        assert (status, "rmq_loop_lag_seconds_count" in text) == (200, True)
        assert threading.active_count() <= before
    for _, one in idle:
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
    async with exported() as address:
        assert (await asked(address, question)).startswith(says)


async def test_both_forms_can_be_read_by_prometheus() -> None:
    """OpenMetrics by its strict reader."""
    async with LocalBroker() as broker, exported(*broker.parts) as address:
        plain = families((await page(address, "/metrics"))[1])
        answer = await asked(address, b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n")
        assert answer.endswith(b"# EOF\n")
        read = [*openmetrics.text_string_to_metric_families(answer.decode().partition("\r\n\r\n")[2])]
        assert {one.name + "_total" * (one.type == "counter") for one in read} == {*plain}


async def test_names_of_any_kind_are_read_back() -> None:
    """S16: a name can neither end its line nor its label."""
    nasty = 'a"} 1\n# EOF\n\\n\\"\\'
    family = Family("rmq_x_total", "counter", 'about "it"\\\nand more', ("topic",), [((nasty,), 3)])
    bounded = Bounded()
    gathered = await gather([({"node_id": nasty}, [family])], bounded)
    for read, accept in (
        (text_string_to_metric_families, ""),
        (openmetrics.text_string_to_metric_families, "application/openmetrics-text"),
    ):
        [found] = read(spelled(gathered, bounded, accept)[1].decode())
        assert [(one.labels, one.value) for one in found.samples] == [({"node_id": nasty, "topic": nasty}, 3.0)]


async def test_who_only_looks_at_the_head() -> None:
    async with exported() as address:
        assert (await asked(address, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
