"""Every page over HTTP, against real nodes."""

import asyncio
import contextlib
import csv
import html
import io
import re
import socket
import zipfile
from pathlib import Path

import pytest

from rmq.client import Client, ClientSettings, Message, RetryLater
from rmq.client.admin import calls
from rmq.config.settings import NodeSettings
from rmq.dashboard import dead
from rmq.dashboard.access import WRITE, Access
from rmq.dashboard.history import History
from rmq.dashboard.load import LoadPages
from rmq.dashboard.page import Page
from rmq.model import DELAY_TOPIC, GroupConfig, TopicConfig
from rmq.nameserver.node import Nameserver
from rmq.net.commands import GetRuntimeInfo, Pull, RegisterBroker, RuntimeInfo
from rmq.net.transport.server import Server
from rmq.testing import LocalBroker, TestClock, until
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer
from tests.client.scripted import Broker as Scripted, never_answer
from tests.dashboard.visitor import Visitor, visiting
from tests.relaying import relay

NASTY = "<script>alert(1)</script>\"'><img/src=x/onerror=alert(2)>"


async def fail_all(client: Client, group: str, topic: str, count: int) -> None:
    """The group gives all messages up."""
    failed = 0

    async def give_up(_: object) -> None:
        nonlocal failed
        failed += 1
        raise RetryLater(-1)

    async with client.consumer(group, topic, start="first") as consumer:
        working = asyncio.create_task(consumer.run(give_up))
        await until(lambda: failed == count)
        dead = [f"%DLQ%{group}"]
        while not set(dead) <= set(await calls.topic_list(client)):
            await asyncio.sleep(0)
        while sum(row.max_offset for row in (await calls.topic_stats(client, dead[0])).queues) < count:
            await asyncio.sleep(0)
        working.cancel()


async def received(client: Client, group: str, topic: str) -> bytes:
    async with client.consumer(group, topic) as consumer:
        async for message in consumer:
            return message.body
    raise AssertionError


async def test_a_new_user_finds_a_message_sees_who_lags_and_replays_a_dead_letter(tmp_path: Path) -> None:
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        assert "broker-a" in await visitor.get("/")
        assert "does not answer" not in visitor.text
        assert "No topic yet" in await visitor.get("/topics")
        assert "No consumer group yet" in await visitor.get("/groups")
        made = await visitor.post("/topic/save", name="Orders", read="2", write="2", perm="6", broker="broker-a", type="NORMAL")
        assert "Topic Orders is saved at broker-a" in made
        sent = await visitor.post("/topic/send", name="Orders", body='{"a": 1}', tag="new", keys="order-7")
        assert "Sent: " in sent
        async with client.producer() as producer:
            for number in range(4):
                await producer.send(Message("Orders", f"more {number}".encode()))
        await fail_all(client, "shipping", "Orders", 5)

        await until_shown(visitor, "/groups", "shipping")
        await until_shown(visitor, "/messages?topic=Orders&word=order-7", "given up: a dead letter")
        assert '"a": 1' in visitor.text
        assert "shipping 5" in await visitor.get("/dead")
        assert visitor.page.count('name="letter"') == 0
        await visitor.get("/dead", group="shipping")
        letters = re.findall(r'name="letter" value="([^"]+)"', visitor.page)
        assert len(letters) == 5
        assert "2 messages sent" in await visitor.post("/dead/again", group="shipping", letter=letters[:2])
        assert await received(client, "shipping", "Orders") in (b'{"a": 1}', b"more 0", b"more 1", b"more 2", b"more 3")

        moved = await visitor.get("/group/reset", group="shipping", topic="Orders", to="first")
        assert "5 messages come again" in moved
        moves = re.findall(r'name="move" value="([^"]+)"', visitor.page)
        assert "goes on at the chosen place in 2 queues" in await visitor.post(
            "/group/reset", group="shipping", topic="Orders", move=moves
        )
        assert "5 waiting" in await visitor.get("/group", name="shipping")
        assert "shipping" in await visitor.get("/topic", name="Orders")
        refused = await visitor.post("/topic/delete", name="Orders", typed="orders")
        assert "type its name" in refused
        assert "deleted with its messages" in await visitor.post("/topic/delete", name="Orders", typed="Orders")
        for form in ({"body": "late"}, {"known": "yes", "broker": "broker-a"}):  # from a page that was open all the time
            path = "/topic/save" if "known" in form else "/topic/send"
            assert "topic Orders is not there any more" in await visitor.post(path, name="Orders", **form)
        assert "no broker that answers has a topic Orders" in await visitor.get("/topic", name="Orders")
        deleted = await visitor.post("/group/delete", name="shipping", typed="shipping")
        assert "deleted with its offsets, its retries and its dead letters" in deleted
        assert not any("shipping" in topic for topic in await calls.topic_list(client)), "they came to the next such group"


async def test_what_became_of_dead_letters_that_were_given_again(tmp_path: Path) -> None:
    """Nobody has to remember which ones were: each says whether it waits, failed once more, or was consumed."""
    fails = True

    async def handle(_: object) -> None:
        if fails:
            raise RetryLater(-1)

    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        async with client.producer() as producer:
            for number in range(2):
                await producer.send(Message("Orders", b"%d" % number))
        await fail_all(client, "shipping", "Orders", 2)
        await until_shown(visitor, "/dead?group=shipping", "Consume the ticked ones again")
        assert "given again" not in visitor.text
        newest, _ = letters = re.findall(r'name="letter" value="([^"]+)"', visitor.page)
        assert "1 message sent" in await visitor.post("/dead/again", group="shipping", letter=newest)
        await until_shown(visitor, "/dead?group=shipping", "given again: not consumed yet")
        async with client.consumer("shipping", "Orders") as consumer:
            working = asyncio.create_task(consumer.run(handle))
            await until_shown(visitor, "/dead?group=shipping", "given again: failed once more")
            while visitor.page.count('name="letter"') < 3:  # the new one was stored after the page had its list
                await visitor.get("/dead", group="shipping")
            fails = False
            await visitor.post("/dead/again", group="shipping", letter=letters[1])
            await until_shown(visitor, "/dead?group=shipping", "given again: consumed", "given again: failed once more")
            working.cancel()


async def test_a_dead_letter_of_a_broker_that_keeps_no_index_is_not_called_consumed(tmp_path: Path) -> None:
    """Beside another one, which looks and has nothing."""
    async with LocalBroker(message_index=False) as broker, LocalBroker() as other, broker.client() as client:
        await client.producer().send(Message("Orders", b"x"))
        await fail_all(client, "shipping", "Orders", 1)
        registered = await Peer.connect(broker.nameserver)
        topics = [TopicConfig(name, 1, 1) for name in ("%RETRY%shipping", "%DLQ%shipping", DELAY_TOPIC)]
        await registered.ask(RegisterBroker("DefaultCluster", "broker-b", 0, other.address, 0, topics))
        async with visiting(broker.nameserver, tmp_path) as visitor:
            await visitor.get("/messages", topic="Orders")
            place = html.unescape(re.search(r'href="(/message\?[^"]+)"', visitor.page)[1])  # type: ignore[index]
            assert "shipping not known" in await visitor.get(place), visitor.text
        await registered.close()


async def until_shown(visitor: Visitor, path: str, *words: str) -> None:
    """All of them at once."""
    async with asyncio.timeout(60):
        while not (shown := await visitor.get(path)) or not all(one in shown for one in words):
            pass


async def test_a_node_that_is_gone_is_told_before_its_leader_misses_it(tmp_path: Path) -> None:
    """The page said that all nodes follow, above a list in which one did not answer."""
    async with LocalGroup(tmp_path / "nodes") as group, visiting(group.nameserver, tmp_path) as visitor:
        await group.level()
        await until_shown(visitor, "/", "Every nameserver and broker answers")
        gone = (await group.followers())[0]
        await group.stop(gone)
        await until_shown(visitor, "/", "no answer")
        assert "Every nameserver and broker answers" not in visitor.text
        await until_shown(visitor, "/", f": {gone} ", " is missing: ")


async def test_dead_letters_are_exported_and_nothing_in_a_message_is_executed(tmp_path: Path) -> None:
    """S16, in pages and in spreadsheets."""
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        async with client.producer() as producer:
            await producer.send(Message("Odd", NASTY.encode(), NASTY, [NASTY.replace(" ", "")], {"name" + NASTY: NASTY}))
            await producer.send(Message("Odd", b"=HYPERLINK(1)", "=1+1"))
            await producer.send(Message("Odd", bytes(range(256))))
        await fail_all(client, "g", "Odd", 3)
        for path in ("/messages?topic=Odd", "/dead?group=g", "/topic?name=Odd", "/"):
            await visitor.get(path)
            assert visitor.status == 200
            assert "<script>alert" not in visitor.page
            assert "<img" not in visitor.page
        links = re.findall(r'href="(/message\?[^"]+)"', (await visitor.get("/messages?topic=Odd")) and visitor.page)
        for link in links:
            await visitor.get(link.replace("&amp;", "&"))
            assert "<script>alert" not in visitor.page
        for path in ("/topic", "/group", "/node", "/messages", "/dead", "/group/reset"):
            await visitor.get(path, name=NASTY, topic=NASTY, group=NASTY, address=NASTY, word=NASTY, to=NASTY)
            assert "<script>alert" not in visitor.page
        answer = await visitor.http.get("/dead/export", params={"group": "g", "form": "csv"})
        rows = list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig"))))
        assert len(rows) == 4
        assert {row[-1][:5] for row in rows[1:]} == {"<scri", "'=HYP", "00 01"}
        book = (await visitor.http.get("/dead/export", params={"group": "g", "form": "xlsx"})).content
        with zipfile.ZipFile(io.BytesIO(book)) as parts:
            assert b"<f>" not in parts.read("xl/worksheets/sheet1.xml")
            assert b"=HYPERLINK(1)" in parts.read("xl/sharedStrings.xml")


async def test_the_line_of_time_of_a_message(tmp_path: Path) -> None:
    """Who sent it and who consumed it; found by id and by key, in the usual trace topic and in another."""
    tracing = ClientSettings(trace=True)
    async with LocalBroker(trace_topic=True) as broker, visiting(broker.nameserver, tmp_path) as visitor:
        async with broker.client(settings=tracing) as client:
            sent = await client.producer("shop").send(Message("Orders", b"x", NASTY, ["k-1", "twice"]))
            other = await client.producer("shop").send(Message("Others", b"y", keys=["twice"]))
            assert await received(client, "kitchen", "Orders") == b"x"
        assert "Give its id, or one of its keys" in await visitor.get("/trace")
        await until_shown(visitor, f"/trace?word={sent.message_id}", "What happened")
        for word in ("shop", "sent", "stored", "kitchen", "Stored at", "k-1"):
            assert word in visitor.text
        assert "<script>alert" not in visitor.page
        assert "What happened" in await visitor.get("/trace", word="k-1")
        both = await visitor.get("/trace", word="twice")
        assert sent.message_id in both
        assert other.message_id in both
        assert "has no trace of" in await visitor.get("/trace", word="unknown")
        assert "No broker has the topic NoSuchTopic" in await visitor.get("/trace", word="unknown", topic="NoSuchTopic")
        await visitor.get("/trace", word=NASTY, topic="RMQ_SYS_TRACE_TOPIC")
        assert "<script>alert" not in visitor.page


async def test_the_line_of_time_beside_a_broker_that_is_silent(tmp_path: Path) -> None:
    """What the others know was not shown."""
    async with (
        LocalBroker(trace_topic=True) as broker,
        LocalBroker() as other,
        relay(other.address, goes_on=asyncio.Event()) as at,
    ):
        async with broker.client(settings=ClientSettings(trace=True)) as client:
            sent = await client.producer("shop").send(Message("Orders", b"x", keys=["k-1"]))
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "other", 0, at, 0, [TopicConfig("RMQ_SYS_TRACE_TOPIC", 1, 1)]))
        async with visiting(broker.nameserver, tmp_path) as visitor:
            await until_shown(visitor, f"/trace?word={sent.message_id}", "What happened", "A broker does not answer")
            assert "What happened" in await visitor.get("/trace", word="k-1")
        await registered.close()


async def test_an_empty_cluster_says_what_to_do(tmp_path: Path) -> None:
    nameserver = Nameserver(NodeSettings(role="nameserver", namesrv_port=0))
    await nameserver.start()
    async with visiting(nameserver.address, tmp_path) as visitor:
        for path in ("/", "/cluster", "/topics", "/groups"):
            assert "No broker is registered" in await visitor.get(path)
            assert "rmq node" in visitor.text
        await nameserver.stop()
        assert "No nameserver answers" in await visitor.get("/")
        for path in ("/cluster", "/topics", "/groups", "/messages?topic=T", "/dead?group=g", "/dead"):
            await visitor.get(path)
            assert visitor.status == 200


async def test_a_group_without_its_leader_and_a_silent_broker(tmp_path: Path) -> None:
    """No page waits for them: they are shown as what they are."""

    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, says nothing
        await _trouble_is_shown(tmp_path, f"127.0.0.1:{silent.getsockname()[1]}")


async def _trouble_is_shown(tmp_path: Path, silent: str) -> None:
    async with LocalGroup(tmp_path / "nodes") as group, visiting(group.nameserver, tmp_path) as visitor:
        async with group.client() as client:
            await calls.update_topic(client, "T", broker="RaftNode00")
            sent = await client.producer().send(Message("T", b"looked for", keys=["key"]))
        leader, followers = await group.leader(), await group.followers()
        await group.level()
        await until_shown(visitor, "/", "No consumer group has messages waiting")
        assert "nobody leads" not in visitor.text
        await until_shown(visitor, "/cluster", "leader")
        assert visitor.text.count("follower") >= 2
        shown = await visitor.get("/node", address=group.address(leader))
        assert "Its group as it sees it" in shown
        assert "commitLogMaxOffset" in shown
        assert "brokerName RaftNode00" in shown
        assert "That will not do" in await visitor.get("/node", address="127.0.0.1:1"), "it dials nobody whom a stranger names"
        registered = await Peer.connect(group.nameserver)
        await registered.ask(RegisterBroker("C", "hung", 0, silent, 0, [TopicConfig("T")]))
        for path in ("/cluster", "/topics", "/groups", "/topic?name=T"):
            await until_shown(visitor, path, "no answer within")
        await until_shown(visitor, "/topic?name=Elsewhere", "no broker that answers has a topic Elsewhere; hung did not answer")
        await group.stop(leader, followers[0])
        await until_shown(visitor, "/", "nobody leads")
        assert "Not healthy" in visitor.text
        for path in ("/messages?topic=T", "/messages?topic=T&word=key"):
            await until_shown(visitor, path, sent.message_id, "looked for")
        for path in ("/messages?topic=T&word=key", "/topic?name=T", "/groups", "/producers", "/users", "/waiting", "/dead"):
            await visitor.get(path)
            assert visitor.status == 200, f"{path}: {visitor.text}"
        await registered.close()


async def test_a_broker_that_answers_nonsense(tmp_path: Path) -> None:
    """S5: pages of the others stay as they are, and it is said which one that is."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            for nonsense in (data, bytes(range(256)), (100).to_bytes(4, "big") + b"\xc1" * 100):
                writer.write(nonsense)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, LocalBroker() as broker:
        await broker.create_topic("Orders", 1)
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "odd", 0, where, 0, [TopicConfig("Orders")]))
        async with visiting(broker.nameserver, tmp_path, patience_s=60.0) as visitor:
            assert f"odd at {where} is registered and does not answer" in await visitor.get("/")
            for path in ("/topic?name=Orders", "/messages?topic=Orders", "/waiting?kind=half"):
                assert "odd is left out:" in await visitor.get(path)
        await registered.close()


ODD = ("many", "nan", "9" * 30, "9" * 5000)


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
async def test_a_broker_whose_numbers_are_none(tmp_path: Path, odd: str) -> None:
    """S5: pages show the others, and the load is counted on."""
    numbers = ("putTps", "getTransferredTps", "commitLogDiskRatio", "earliestMessageTimeStamp", "commitLogMaxOffset")
    totals = [f"msg{way}Total{when}" for way in ("Put", "Get") for when in ("TodayNow", "TodayMorning", "YesterdayMorning")]
    facts = dict.fromkeys((*numbers, *totals), odd) | {"commitLogDirCapacity": f"Total : {odd} GiB, Free : {odd} GiB."}
    server = Server({GetRuntimeInfo: lambda request, call: RuntimeInfo(facts)})
    where = "{}:{}".format(*await server.listen("127.0.0.1", 0))
    async with LocalBroker() as broker, broker.client() as client:
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "odd", 0, where, 0, []))
        async with visiting(broker.nameserver, tmp_path) as visitor:
            for path in ("/", "/cluster", f"/node?address={where}"):
                assert where in await visitor.get(path)
                assert visitor.status == 200
        with contextlib.closing(History(tmp_path / "counted")) as history:
            clock = TestClock()
            load = LoadPages(client, Page(Access(None, WRITE, clock.monotonic), clock), history, clock)
            for _ in range(2):
                await load.count()
                await clock.advance(60)
            assert await asyncio.to_thread(history.line, "broker in", "broker-a", 0, clock.wall_ms() + 1)
        await registered.close()
    await server.close()


@pytest.mark.parametrize("path", ["/topics", "/groups"])
async def test_long_lists_are_searched_and_paged_on_the_server(tmp_path: Path, path: str) -> None:
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        for number in range(120):
            if path == "/topics":
                await calls.update_topic(client, f"Topic-{number:03}", broker=broker.address, read_queues=1, write_queues=1)
            else:
                await calls.update_group(client, GroupConfig(f"Group-{number:03}"), broker=broker.address)
        name = "Topic" if path == "/topics" else "Group"
        first = await visitor.get(path)
        assert f"{name}-049" in first
        assert f"{name}-050" not in first
        assert "page 1 of 3" in first
        assert f"{name}-119" in await visitor.get(path, page=3)
        assert f"{name}-119" in await visitor.get(path, page=4)  # as the third one after deletions: it said that there were none
        assert "page 3 of 3" in visitor.text
        found = await visitor.get(path, q="-11")
        assert f"{name}-110" in found
        assert f"{name}-109" not in found


async def test_older_messages_of_a_broker_that_was_silent(tmp_path: Path) -> None:
    """They are on the next page. Where its queues go on was told as 0, so no page had them, and none said so."""
    goes_on = asyncio.Event()
    async with LocalBroker() as broker, LocalBroker() as other, relay(other.address, goes_on=goes_on) as where:
        for each, name, count in ((broker, "here", 40), (other, "there", 3)):
            await each.create_topic("Orders", 1)
            async with each.client() as client, client.producer() as producer:
                for number in range(count):
                    await producer.send(Message("Orders", b"%b %d" % (name.encode(), number)))
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "other", 0, where, 0, [TopicConfig("Orders", 1, 1)]))
        async with visiting(broker.nameserver, tmp_path) as visitor:
            assert "other is left out" in await visitor.get("/messages", topic="Orders")
            assert "here 39" in visitor.text
            older = html.unescape(re.findall(r'rel="next" href="([^"]+)"', visitor.page)[0])
            goes_on.set()
            await until_shown(visitor, older, *(f"there {number}" for number in range(3)), "here 7", "here 0")
            assert "here 8" not in visitor.text
        await registered.close()


async def test_a_saved_topic_keeps_what_the_form_does_not_show(tmp_path: Path) -> None:
    """Other queues were asked for; flags of units and the mark that others inherit its settings went, and 0 became 6."""
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        for name, perm in (("Unit", 7), ("Shut", 0)):
            more = "+message.type=FIFO"
            await calls.update_topic(client, name, broker="broker-a", perm=perm, sys_flag=1, order=True, attributes=more)
            before = await calls.topic_config(client, name, broker.address)
            await visitor.get("/topic", name=name)
            (shown,) = re.findall(r'<option value="(\d)" selected>', visitor.page)
            saved = await visitor.post("/topic/save", name=name, known="yes", broker="broker-a", read="3", write="2", perm=shown)
            assert "is saved at broker-a" in saved
            after = await calls.topic_config(client, name, broker.address)
            assert after == before._replace(read_queue_nums=3, write_queue_nums=2)


async def test_settings_of_a_broker_that_is_silent_are_not_replaced(tmp_path: Path) -> None:
    """It was told those of a new group, or topic, with what the form had; they held when it read them at last."""
    goes_on = asyncio.Event()
    async with (
        LocalBroker() as broker,
        LocalBroker() as other,
        relay(other.address, goes_on=goes_on) as where,
        other.client() as client,
        visiting(broker.nameserver, tmp_path) as visitor,
    ):
        group = GroupConfig("g", retry_queue_nums=4, consume_timeout_minute=7)
        await calls.update_group(client, group, broker=other.address)
        await calls.update_topic(client, "Unit", broker=other.address, perm=7, sys_flag=1)
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "other", 0, where, 0, [TopicConfig("Unit", 8, 8)]))
        goes_on.set()
        while not visitor.token:  # a page without a form names it, too, where it was silent for a moment
            await until_shown(visitor, "/topic?name=Unit", "other")
        goes_on.clear()
        for path, name, fields in (("/group/save", "g", {}), ("/topic/save", "Unit", {"known": "yes"})):
            said = await visitor.post(path, name=name, broker="other", **fields)
            assert "nothing was changed: other: no answer within" in said
        goes_on.set()
        await until_shown(visitor, "/topic?name=Unit", "other")  # what was said to it before has come by then
        assert await calls.group_config(client, "g", other.address) == group
        assert (await calls.topic_config(client, "Unit", other.address))[3:6:2] == (7, 1)
        await registered.close()


async def test_a_form_with_a_number_that_no_node_takes(tmp_path: Path) -> None:
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        await calls.update_topic(client, "Orders", broker=broker.address)
        await visitor.get("/topics")
        moved = await visitor.post("/group/reset", group="g", topic="Orders", move=f"broker-a:0:{2**64}")
        assert "a number does not fit in 64 bits" in moved


async def test_a_body_with_half_a_character(tmp_path: Path) -> None:
    """One such message took the pages of its topic away: list, message, dead letters and their export."""
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        async with client.producer() as producer:
            await producer.send(Message("Orders", rb'{"name": "cut \ud83d"}', keys=["k"]))
        await fail_all(client, "shipping", "Orders", 1)
        await until_shown(visitor, "/messages?topic=Orders", r"cut \ud83d")
        await until_shown(visitor, "/messages?topic=Orders&word=k", "given up: a dead letter")
        assert r"cut \ud83d" in visitor.text
        await until_shown(visitor, "/dead?group=shipping", r"cut \ud83d")
        for form in ("csv", "xlsx"):
            answer = await visitor.http.get("/dead/export", params={"group": "shipping", "form": form})
            assert answer.status_code == 200


async def test_an_export_that_is_cut_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with LocalBroker() as broker, broker.client() as client, visiting(broker.nameserver, tmp_path) as visitor:
        async with client.producer() as producer:
            for number in range(3):
                await producer.send(Message("Orders", b"%d" % number))
        await fail_all(client, "shipping", "Orders", 3)
        for bound, most, shown in (("MOST_EXPORTED", 3, 3), ("MOST_EXPORTED", 2, 2), ("MOST_CHARACTERS", 1, 1)):
            with monkeypatch.context() as patch:
                patch.setattr(dead, bound, most)
                answer = await visitor.http.get("/dead/export", params={"group": "shipping", "form": "csv"})
            _, *rows = csv.reader(io.StringIO(answer.text))
            about = [f"only the first {shown}: there are more, export them by shorter times"] if shown < 3 else []
            assert [row[0] for row in rows[shown:]] == about


async def test_ticked_letters_of_a_broker_that_stands_still(tmp_path: Path) -> None:
    """Each of them waited for it, as long as a request may take."""
    still = await Scripted("still", {"%DLQ%g": 1}).start()
    async with LocalBroker() as broker, visiting(broker.nameserver, tmp_path, patience_s=0.3) as visitor:
        registered = await Peer.connect(broker.nameserver)
        await registered.ask(RegisterBroker("C", "still", 0, still.address, 0, [TopicConfig("%DLQ%g", 1, 1)]))
        await visitor.get("/topics")
        still.faults[Pull] = [never_answer] * 9
        said = await visitor.post("/dead/again", group="g", letter=[f"still:0:{number}" for number in range(9)])
        assert "0 sent, 9 not" in said
        assert len(still.seen(Pull)) == 1
        await registered.close()
    await still.stop()
