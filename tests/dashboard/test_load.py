"""What was counted, and what waits."""

import asyncio
import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

from rmq.client import Client, InvalidArgument, Message, MessageQueue
from rmq.client.admin import calls
from rmq.clock import SystemClock
from rmq.dashboard.access import WRITE, Access
from rmq.dashboard.history import KEPT_MS, History, Point
from rmq.dashboard.load import LoadPages
from rmq.dashboard.page import Page
from rmq.dashboard.watch import Watch
from rmq.errors import StoreError
from rmq.model import GroupConfig, QueueStats, TopicConfig
from rmq.net.commands import GetTopicStats, RegisterBroker, TopicStats
from rmq.testing import LocalBroker, TestClock, entries, until
from tests.broker.support import Peer, beat
from tests.broker.transactions import COMMIT, checks, end, half
from tests.client.scripted import Broker
from tests.dashboard.test_pages import until_shown
from tests.dashboard.visitor import visiting
from tests.relaying import relay


def test_rates_are_what_was_added_and_days_are_forgotten(tmp_path: Path) -> None:
    history = History(tmp_path)
    for at_ms, number in ((60_000, 100), (120_000, 700), (180_000, 50), (240_000, 110)):  # begun anew at the third
        history.count("topic in", [("T", number), ("Quiet", 5)], at_ms)
    assert history.line("topic in", "T", 0, 300_000) == [Point(120_000, 10.0), Point(240_000, 1.0)]
    assert history.top("topic in", 0, 300_000) == [("T", 660)]
    history.close()
    again = History(tmp_path)
    assert again.top("topic in", 0, 300_000) == [("T", 660)], "kept over a restart"
    again.count("topic in", [], 240_001 + KEPT_MS)
    assert again.top("topic in", 0, 300_000) == []
    again.close()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match="--data"):
        History(tmp_path / "file")


def test_numbers_that_are_no_counts_end_no_counting(tmp_path: Path) -> None:
    """S5: a broker that tells offsets near 2**63. A topic's sum was more than SQLite takes, and so was the sum of rows."""
    history = History(tmp_path)
    for at_ms, number in ((60_000, 0), (120_000, 2**65), (180_000, 2**65), (240_000, 2**62), (300_000, 2**63 - 1), (360_000, 0)):
        history.count("topic in", [("T", number), ("U", at_ms)], at_ms)
    assert history.top("topic in", 0, 400_000) == [("U", 300_000)]
    history.close()


def test_a_file_that_takes_no_more_is_named(tmp_path: Path) -> None:
    """As on a full disk, of which the log said "database or disk is full", and not where."""
    history = History(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "history.sqlite")) as base, base:
        base.execute("drop table rates")
    with pytest.raises(StoreError, match="/history.sqlite: no such table: rates"):
        history.count("topic in", [("T", 1)], 60_000)
    history.close()


async def test_counts_of_topics_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    """A dashboard that runs for months where topics come and go remembered the last count of each."""
    history, clock = History(tmp_path), SystemClock()
    async with LocalBroker() as broker, broker.client() as client:
        load = LoadPages(client, Page(Access(None, WRITE, clock.monotonic), clock), history, clock)
        await load.count()
        before = entries(history)
        await broker.create_topic("T")
        await load.count()
        assert entries(history) > before
        await calls.delete_topic(client, "T", cluster="DefaultCluster")
        await load.count()
        assert entries(history) == before
    history.close()


async def test_a_broker_that_comes_back_brings_no_messages(tmp_path: Path) -> None:
    """While it was away the topic had fewer, and then all that it has was shown as sent within one minute."""
    other, clock = await Broker("b").start(), TestClock()
    other.also(GetTopicStats, lambda request, call: TopicStats([QueueStats(MessageQueue("T", "b", 0), 0, 5_000_000, 0)]))
    with contextlib.closing(History(tmp_path)) as history:
        async with LocalBroker(clock=clock) as broker, broker.client() as client, client.producer() as producer:
            load = LoadPages(client, Page(Access(None, WRITE, clock.monotonic), clock), history, clock)
            await broker.create_topic("T", 1)
            for there in (True, False, True):
                registering = await Peer.connect(broker.nameserver)
                if there:
                    about = RegisterBroker("DefaultCluster", "b", 0, other.address, 0, [TopicConfig("T", 1, 1)])
                    await registering.ask(about)
                await load.count()
                await registering.close()
                await until_gone(client, "b")
                await producer.send(Message("T", b"x"))
                await clock.advance(60)
            assert history.top("topic in", 0, clock.wall_ms(), "T") == [("T", 2)]
    await other.stop()


async def until_gone(client: Client, broker: str) -> None:
    while broker in {group.name for group in (await calls.cluster_info(client)).brokers}:
        await asyncio.sleep(0)


async def test_a_clock_that_jumps_ahead_forgets_no_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """T1: one minute in ten years, and the load of 30 days was gone. While it is wrong none is forgotten, which the log says."""
    async with LocalBroker() as broker, broker.client() as client:
        with contextlib.closing(History(tmp_path)) as history:
            clock = TestClock()
            load = LoadPages(client, Page(Access(None, WRITE, clock.monotonic), clock), history, clock)
            before_ms = clock.wall_ms()
            for number in (0, 42):
                history.count("topic in", [("Orders", number)], clock.wall_ms() - 100 + number)
            clock.jump_wall(10 * 365 * 86_400_000)
            await load.count()
            assert history.top("topic in", 0, before_ms) == [("Orders", 42)]
            await load.count()
            assert caplog.text.count("no day of the load is forgotten") == 1
            clock.jump_wall(-10 * 365 * 86_400_000)
            await clock.advance(KEPT_MS / 1000)
            await load.count()
            assert history.top("topic in", 0, before_ms) == []
            assert "it is back" in caplog.text


async def test_load_nameservers_and_what_waits(tmp_path: Path) -> None:
    now_ms = SystemClock().wall_ms()
    history = History(tmp_path)
    for at_ms, number in ((now_ms - 2, 0), (now_ms - 1, 42)):
        history.count("topic in", [("Orders", number)], at_ms)
    history.close()
    async with (
        LocalBroker(recall_messages=True) as broker,
        broker.client() as client,
        visiting(broker.nameserver, tmp_path) as visitor,
    ):
        assert "Orders 42" in await visitor.get("/load")
        assert "<polyline" in visitor.page
        assert "Orders: messages in per second" in await visitor.get("/load", topic="Orders")
        assert "Orders 42" in visitor.text
        assert "Nothing was counted of Others on that day" in await visitor.get("/load", topic="Others")
        assert "Nothing was counted on that day" in await visitor.get("/load", day="2020-01-01")
        for no_day in ("yesterday", "0001-01-01", "9999-12-31"):
            assert "is no day" in await visitor.get("/load", day=no_day)
        told = await visitor.get("/nameservers")
        assert f"{broker.nameserver} yes" in told
        assert f"broker-a 0: {broker.address}" in told
        async with client.producer() as producer:
            sent = await producer.send(Message("Orders", b"later", delay_s=36_000))
            await producer.send(Message("Orders", b"level", delay_level=18))
        assert "in 2.0 h" in await visitor.get("/waiting", kind="level") or "in 119" in visitor.text
        assert re.search(r"in (10|9\.9|10\.0) h", await visitor.get("/waiting"))
        form = dict(re.findall(r'name="(broker|queue|offset)" value="([^"]*)"', visitor.page))
        assert "taken back" not in visitor.text
        assert f"{sent.message_id} will not come" in await visitor.post("/waiting/recall", **form)
        await until_shown(visitor, "/waiting", f"{sent.message_id} Orders", "taken back: it will not come")
        assert "Take back" not in visitor.text
        assert visitor.text.count(sent.message_id) == 1, "the mark of its recall is no message"
        assert "None." in await visitor.get("/waiting", kind="parked")
        await visitor.post("/waiting/resume", id="7F00000100000001" + "0" * 16)
        assert visitor.status == 400, "the dashboard dials nobody whom a stranger names"


async def test_open_transactions_are_shown_with_their_producers_and_until_when(tmp_path: Path) -> None:
    """Those that ended are none; one whose producer is asked and silent says how often that was."""
    async with LocalBroker(transaction_timeout_ms=0) as broker, visiting(broker.nameserver, tmp_path) as visitor:
        await broker.create_topic("T", 1)
        assert "No transaction is open" in await visitor.get("/waiting", kind="half")
        producer = await Peer.connect(broker.address)
        await producer.send(half(b"asked after"))
        [prepared] = await producer.send(half(b"paid", CHECK_IMMUNITY_TIME_IN_SECONDS="3600"))
        await producer.send(half(b"of others", PGROUP="others", CHECK_IMMUNITY_TIME_IN_SECONDS="3600"))
        await producer.ask(end(prepared, COMMIT))
        await broker.clock.advance(30.0)
        asked = re.compile(r"T p \S+ \S+ \d times? in about \d\.\d min \S+ \S+ broker-a asked after")
        async with asyncio.timeout(60):
            while not asked.search(await visitor.get("/waiting", kind="half")):
                pass
        assert "2 transactions wait for an end" in visitor.text
        assert "not yet" in visitor.text
        assert "paid" not in visitor.text
        await visitor.get("/waiting", kind="half", group="others")
        assert "1 transaction of others waits for an end" in visitor.text
        assert "asked after" not in visitor.text
        await producer.close()


async def test_a_transaction_that_nobody_ended_is_asked_after_again(tmp_path: Path) -> None:
    soon = {"transaction_check_interval_ms": 500, "transaction_timeout_ms": 0, "transaction_check_max": 1}
    async with LocalBroker(**soon) as broker, visiting(broker.nameserver, tmp_path) as visitor:
        await broker.create_topic("T", 1)
        producer = await Peer.connect(broker.address)
        await producer.ask(beat("c"))
        await producer.send(half(b"forgotten"))
        [prepared] = await producer.send(half(b"paid", CHECK_IMMUNITY_TIME_IN_SECONDS="3600"))  # not put aside meanwhile
        await producer.ask(end(prepared, COMMIT))
        await until_shown(visitor, "/waiting?kind=parked", "put aside: nobody ended it", "forgotten")
        [found] = re.findall(r'name="id" value="([^"]+)"', visitor.page)
        before = len(checks(producer))
        assert "Its producers are asked again" in await visitor.post("/waiting/resume", id=found)
        await until(lambda: len(checks(producer)) > before)
        await producer.close()


async def test_a_history_that_cannot_be_read(tmp_path: Path) -> None:
    """Its file is damaged while the dashboard runs: the page says so, and the others go on."""
    async with LocalBroker() as broker, visiting(broker.nameserver, tmp_path) as visitor:
        assert "Nothing was counted" in await visitor.get("/load")
        with contextlib.closing(sqlite3.connect(tmp_path / "history.sqlite")) as base, base:
            base.execute("drop table rates")
        shown = await visitor.get("/load")
        assert "history.sqlite cannot be read: no such table: rates; restart the dashboard without it" in shown
        assert "broker-a" in await visitor.get("/")


async def test_newest_messages_beside_a_broker_that_is_silent(tmp_path: Path) -> None:
    """Questions after its many queues had all the room: of no broker anything was shown, and all were called silent."""
    async with (
        LocalBroker() as broker,
        LocalBroker() as other,
        relay(other.address, goes_on=asyncio.Event()) as where,
        broker.client() as client,
    ):
        await broker.create_topic("T", 1)
        await client.producer().send(Message("T", b"of the other broker"))
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "0-other", 0, where, 0, [TopicConfig("T", 100, 100)]))
        async with visiting(broker.nameserver, tmp_path) as visitor:
            assert "of the other broker" in await visitor.get("/messages", topic="T")
        await registered.close()


async def test_groups_that_lag_beside_a_broker_that_is_silent() -> None:
    """Questions to that one had all the room, so of many groups the first ones alone were looked at."""
    goes_on = asyncio.Event()
    async with (
        LocalBroker() as broker,
        LocalBroker() as other,
        relay(other.address, goes_on=goes_on) as where,
        broker.client() as client,
    ):
        await broker.create_topic("T", 1)
        await client.producer().send(Message("T", b"x"))
        for number in range(70):
            await calls.update_group(client, GroupConfig(f"g{number:02d}"), broker=broker.address)
            await calls.set_offset(client, f"g{number:02d}", MessageQueue("T", "broker-a", 0), 0)
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "0-other", 0, where, 0, [TopicConfig("T", 1, 1)]))
        watch = Watch(client, broker.clock)
        await watch.look()
        assert (len(watch.lagging().groups), watch.lagging().silent) == (70, ["0-other"])
        await registered.close()
