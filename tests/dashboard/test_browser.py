"""The pages in a real browser, against real nodes: nothing on its console, by keyboard, 400 pixels wide, in the dark; also when
things are gone, when there is nothing yet, and when there is very much.

RMQ_SCREENSHOTS=1 renews the pictures in docs/.
"""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client, Message
from rmq.config.settings import NodeSettings
from rmq.dashboard.access import write_user
from rmq.dashboard.history import History
from rmq.model import MAX_GROUP_LENGTH, MAX_TOPIC_LENGTH, GroupConfig, TopicConfig
from rmq.nameserver.node import Nameserver
from rmq.net.commands import RegisterBroker, UpdateConsumerOffset, UpdateGroup, UpdateTopic
from rmq.testing import LocalBroker
from tests.broker.groups import LocalGroup
from tests.broker.support import Peer
from tests.dashboard.test_pages import NASTY, fail_all
from tests.dashboard.visitor import dashboard

playwright = pytest.importorskip("playwright.async_api", reason="needs playwright (the extra `dev`)")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), "")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: apt install chromium)")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
PAGES = [
    "/", "/cluster", "/topics", "/groups", "/producers", "/messages", "/dead", "/waiting", "/waiting?kind=half", "/load",
    "/nameservers", "/users", "/trace",
]  # fmt: skip
OF_ORDERS = [
    "/topic?name=Orders", "/group?name=shipping", "/messages?topic=Orders", "/messages?topic=Orders&word=nasty",
    "/dead?group=shipping", "/waiting?kind=level", "/waiting?kind=parked", "/group/reset?group=shipping&topic=Orders&to=first",
    "/topics?type=all", "/groups?type=system", "/load?topic=Orders", "/trace?word=nasty",
]  # fmt: skip
PICTURES = {
    "/": "dashboard-home",
    "/topic?name=Orders": "dashboard-topic",
    "/messages?topic=Orders&word=nasty": "dashboard-message",
}
DOCS = Path(__file__).parents[2] / "docs"
AT_ONCE = 4  # pages
MOST_STOPS = 200
UNNAMED = """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea")]
    .filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length || e.title)).map(e => e.outerHTML)"""
STOPPED = """() => { const here = document.activeElement; here.dataset.seen = "yes"; return here === document.body; }"""
NOT_REACHED = """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary")]
    .filter(e => e.checkVisibility() && !e.dataset.seen && e.type !== "radio").map(e => e.outerHTML)"""


@asynccontextmanager
async def browser() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as driver:
        found = await driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield found
        finally:
            await found.close()


async def test_pages_in_a_browser(tmp_path: Path) -> None:
    async with LocalGroup(tmp_path / "nodes") as group, group.client() as client:
        await _orders(client)
        _remember(tmp_path, group.clock.wall_ms())
        paths = [*PAGES, *OF_ORDERS, f"/node?address={group.address(await group.leader())}"]
        async with (
            client.consumer("shipping", "Orders", start="first") as consumer,
            dashboard(group.nameserver, tmp_path) as url,
            browser() as chromium,
        ):
            working = asyncio.create_task(consumer.run(_handle))
            await _look_right(chromium, url, paths, 1200, "light", by_keyboard=True)
            await _look_right(chromium, url, paths, 400, "dark")
            await _works_by_keyboard(chromium, url)
            working.cancel()
            await _finds_the_slow_member(chromium, url, group)


async def test_pages_when_a_leader_a_nameserver_and_a_whole_group_are_gone(tmp_path: Path) -> None:
    """The group has lost its majority; another group and a nameserver take connections and say nothing. No page waits for them:
    a question of the dashboard to a node would last a minute here."""
    with socket.create_server(("127.0.0.1", 0)) as hung, socket.create_server(("127.0.0.1", 0)) as deaf:
        async with LocalGroup(tmp_path / "nodes") as group:
            async with group.client() as client:
                await _orders(client)
            registered = await Peer.connect(group.nameserver)
            where = f"127.0.0.1:{hung.getsockname()[1]}"
            topics = [TopicConfig("Orders"), TopicConfig("%DLQ%shipping"), TopicConfig("%RETRY%shipping")]
            await registered.ask(RegisterBroker("C", "hung", 0, where, 0, topics))
            await group.level()
            leader, follower = await group.leader(), (await group.followers())[0]
            await group.stop(leader, follower)
            nameservers = f"127.0.0.1:{deaf.getsockname()[1]};{group.nameserver}"
            async with dashboard(nameservers, tmp_path, patience_s=60.0) as url, browser() as chromium:
                paths = [*PAGES, *OF_ORDERS, f"/node?address={group.peer_address(leader)}", f"/node?address={where}"]
                await _look_right(chromium, url, paths, 400, "dark")
                page = await chromium.new_page()
                await page.goto(url)
                await _until_shown(page, "text=Not known of hung: no answer")
                told = await page.inner_text("main")
                for words in ("Not healthy", "nobody leads", f"{nameservers.partition(';')[0]} does not answer", "hung at"):
                    assert words in told
                await _learns_why_nothing_can_be_sent(page)
            await registered.close()


async def test_pages_of_an_empty_cluster_and_of_ten_thousand_topics(tmp_path: Path) -> None:
    """Also with the longest names that there are."""
    topic, of_it = "Topic-09999".ljust(MAX_TOPIC_LENGTH, "x"), "shipping".ljust(MAX_GROUP_LENGTH, "x")
    nameserver = Nameserver(NodeSettings(role="nameserver", namesrv_port=0))
    await nameserver.start()
    async with browser() as chromium:
        async with dashboard(nameserver.address, tmp_path / "empty") as url:
            await _look_right(chromium, url, [*PAGES, *OF_ORDERS], 400, "light")
            users = tmp_path / "users"
            write_user(users, "bob", "read", "battery staple")
            async with dashboard(nameserver.address, tmp_path / "login", users=users) as locked:
                await _logs_in(chromium, locked)
            await nameserver.stop()
            await _look_right(chromium, url, [*PAGES, *OF_ORDERS], 400, "dark")
        async with LocalBroker() as broker:
            peer = await Peer.connect(broker.address)
            for begin in range(0, 10_000, 500):
                names = [f"Topic-{number:05}" for number in range(begin, begin + 500)]
                names = [topic if topic.startswith(name) else name for name in names]
                await asyncio.gather(*(peer.ask(UpdateTopic(name, read_queue_nums=1, write_queue_nums=1)) for name in names))
            await peer.ask(UpdateGroup(GroupConfig(of_it)))
            await peer.ask(UpdateConsumerOffset(of_it, topic, 0, 0))
            async with dashboard(broker.nameserver, tmp_path / "full") as url:
                of_one = [path.replace("Orders", topic).replace("shipping", of_it) for path in OF_ORDERS]
                await _look_right(chromium, url, [*PAGES, *of_one, "/topics?page=200", "/topics?q=09999"], 400, "dark")
            await peer.close()


async def _handle(_message: object) -> None:
    """Any message is fine."""


async def _orders(client: Client) -> None:
    """Messages, the last with what must not be executed; a group that gave all of them up; and one more message."""
    async with client.producer() as producer:
        for number in range(3):
            await producer.send(Message("Orders", f'{{"order": {number}}}'.encode(), "new", [f"order-{number}"]))
        await producer.send(Message("Orders", NASTY.encode(), NASTY, ["nasty"]))
    await fail_all(client, "shipping", "Orders", 4)
    async with client.producer() as producer:
        await producer.send(Message("Orders", b"{}", keys=["last"]))


def _remember(folder: Path, now_ms: int) -> None:
    history = History(folder)
    for minute in range(3):
        history.count("broker in", [("RaftNode00", 1000 * minute)], now_ms - (3 - minute) * 60_000)
    history.close()


async def _look_right(
    chromium: Any,
    url: str,
    paths: Sequence[str],
    width: int,
    scheme: str,
    *,
    by_keyboard: bool = False,
) -> None:
    """Each page, some at a time: it is there, fits, names what can be pressed, and says nothing to the console."""
    context = await chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, locale="en-GB")
    room = asyncio.Semaphore(AT_ONCE)

    async def look(path: str) -> None:
        async with room:
            page = await context.new_page()
            said: list[str] = []
            page.on("console", lambda line: said.append(line.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("dialog", lambda dialog: said.append(dialog.message))
            answer = await page.goto(url + path)
            assert (path, answer.status) == (path, 200), await page.inner_text("main")
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is wider than {width} pixels"
            assert await page.evaluate(UNNAMED) == [], path
            if by_keyboard and path in PICTURES:
                await _taken(page, PICTURES[path])
            if by_keyboard:
                await _reach_all(page)
            back = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (back == "rgb(18, 22, 29)") == (scheme == "dark")
            assert said == [], path
            await page.close()

    await asyncio.gather(*map(look, paths))
    await context.close()


async def _taken(page: Any, name: str) -> None:
    if os.environ.get("RMQ_SCREENSHOTS"):
        await page.screenshot(path=DOCS / f"{name}.png")


async def _reach_all(page: Any) -> None:
    """By Tab alone, without being held anywhere."""
    for _ in range(MOST_STOPS):
        await page.keyboard.press("Tab")
        if await page.evaluate(STOPPED):
            break
    assert await page.evaluate(NOT_REACHED) == [], page.url


async def _works_by_keyboard(chromium: Any, url: str) -> None:
    """Find a message, then replay a dead letter, without a mouse."""
    page = await chromium.new_page()
    page.on("dialog", lambda dialog: dialog.accept())
    await page.goto(url)
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.type("Orders")
    await page.keyboard.press("Tab")
    await page.keyboard.type("order-1")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/message?*")
    await _until_shown(page, "text=given up: a dead letter")
    await page.locator("text=all dead letters").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/dead?*")
    await _until_shown(page, "[data-tick-all]")
    await page.locator("[data-tick-all]").focus()
    await page.keyboard.press("Space")
    assert await page.locator('[name="letter"]:checked').count() == 4
    await page.locator("text=Consume the ticked ones again").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_selector("text=4 messages sent")


async def _finds_the_slow_member(chromium: Any, url: str, group: LocalGroup) -> None:
    """By clicks alone, from Home on."""
    held = asyncio.Event()

    async def wait(_message: object) -> None:
        await held.wait()

    async with AsyncExitStack() as stack:
        names = {}
        for name, handle in (("quick", _handle), ("slow", wait)):
            client = await stack.enter_async_context(Client(group.nameserver, clock=group.clock, instance=name))
            consumer = await stack.enter_async_context(client.consumer("packing", "Orders", start="last"))
            stack.callback(asyncio.create_task(consumer.run(handle)).cancel)
            names[name] = client.client_id
        stack.callback(held.set)
        page = await chromium.new_page(viewport={"width": 1200, "height": 800}, locale="en-GB")
        await page.goto(url)
        await page.locator("nav >> text=Consumers").click()
        await _until_shown(page, "a:text-is('packing')")
        await page.locator("a:text-is('packing')").first.click()
        sought = f"text=/in the queues of {names['slow']}: .* It has handled nothing/"
        async with client.producer() as producer:
            while not await page.locator(sought).count():  # it has to take its queues from the other one first
                for number in range(20):
                    await producer.send(Message("Orders", b"%d" % number))
                await page.reload()
        await _taken(page, "dashboard-group")


async def _learns_why_nothing_can_be_sent(page: Any) -> None:
    """By clicks alone, from Home on."""
    await page.locator("nav >> text=Topics").click()
    await page.locator("main a:text-is('Orders')").first.click()
    await _until_shown(page, "text=/Nothing can be sent to it at .*RaftNode00: nobody leads it/")
    await page.get_by_label("Body").fill("nobody takes it")
    await page.locator("button:text-is('Send')").click()
    await page.wait_for_selector("h1:text-matches('Nobody answers|Refused|No answer')")


async def _logs_in(chromium: Any, url: str) -> None:
    """By keyboard; who may only look is not asked to do anything."""
    page = await chromium.new_page(viewport={"width": 400, "height": 800}, color_scheme="dark")
    said: list[str] = []
    page.on("console", lambda line: said.append(line.text))
    await page.goto(f"{url}/users")
    assert await page.evaluate("document.activeElement.name") == "name"
    await page.keyboard.type("bob")
    await page.keyboard.press("Tab")
    await page.keyboard.type("battery staple")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/users")
    assert await page.locator("text=may only look").count() == 1
    assert await page.locator('main form[method="post"]').count() == 0
    assert await page.evaluate("document.documentElement.scrollWidth") <= 400
    assert said == []
    await page.close()


async def _until_shown(page: Any, what: str) -> None:
    """On a busy machine a page may have to do without an answer: it says so, and somebody looks again."""
    while not await page.locator(what).count():
        await page.reload()
