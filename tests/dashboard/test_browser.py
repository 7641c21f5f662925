"""The pages in a real browser, against a real group: nothing on its console, by keyboard, 400 pixels wide, in the dark.

RMQ_SCREENSHOTS=1 renews the pictures in docs/.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Client, ClientSettings, Message
from rmq.dashboard.history import History
from tests.broker.groups import LocalGroup
from tests.dashboard.test_pages import NASTY, fail_all
from tests.dashboard.visitor import dashboard

playwright = pytest.importorskip("playwright.async_api", reason="needs playwright (the extra `dev`)")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), "")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: apt install chromium)")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
PICTURES = {"/": "dashboard-home", "/topic?name=Orders": "dashboard-topic"}
DOCS = Path(__file__).parents[2] / "docs"
UNNAMED = """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea")]
    .filter(e => !(e.textContent.trim() || e.ariaLabel || e.labels?.length || e.title)).map(e => e.outerHTML)"""


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
        async with client.producer() as producer:
            for number in range(3):
                await producer.send(Message("Orders", f'{{"order": {number}}}'.encode(), "new", [f"order-{number}"]))
            await producer.send(Message("Orders", NASTY.encode(), NASTY, ["nasty"]))
        await fail_all(client, "shipping", "Orders", 4)
        async with client.producer() as producer:
            await producer.send(Message("Orders", b"{}", keys=["last"]))
        async with Client(group.nameserver, clock=group.clock, settings=ClientSettings(trace=True)) as tracing:
            await tracing.producer("shop").send(Message("Traced", b"x", NASTY, ["traced"]))
        _remember(tmp_path, group.clock.wall_ms())
        async with dashboard(group.nameserver, tmp_path) as url, browser() as chromium:
            await _looks_right(chromium, url)
            await _works_by_keyboard(chromium, url)


def _remember(folder: Path, now_ms: int) -> None:
    history = History(folder)
    for minute in range(3):
        history.count("broker in", [("RaftNode00", 1000 * minute)], now_ms - (3 - minute) * 60_000)
    history.close()


async def _looks_right(chromium: Any, url: str) -> None:
    """Each page, wide and light, narrow and dark."""
    message = "/messages?topic=Orders&word=nasty"
    paths = ["/", "/cluster", "/topics", "/topic?name=Orders", "/groups", "/group?name=shipping", message, "/dead"]
    paths += ["/messages?topic=Orders", "/dead?group=shipping", "/waiting?kind=level", "/load", "/nameservers"]
    paths += ["/group/reset?group=shipping&topic=Orders&to=first", "/trace?word=traced"]
    for width, scheme in ((1200, "light"), (400, "dark")):
        context = await chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, locale="en-GB")
        page = await context.new_page()
        said: list[str] = []
        page.on("console", lambda line, said=said: said.append(line.text))
        page.on("pageerror", lambda error, said=said: said.append(str(error)))
        page.on("dialog", lambda dialog, said=said: said.append(dialog.message))
        for path in paths:
            answer = await page.goto(url + path)
            assert (path, answer.status) == (path, 200)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is wider than {width} pixels"
            assert await page.evaluate(UNNAMED) == [], path
            if os.environ.get("RMQ_SCREENSHOTS") and width > 400 and path in PICTURES:
                await page.screenshot(path=DOCS / f"{PICTURES[path]}.png")
        back = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(18, 22, 29)") == (scheme == "dark")
        assert said == []
        await context.close()


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


async def _until_shown(page: Any, what: str) -> None:
    """On a busy machine a page may have to do without an answer: it says so, and somebody looks again."""
    while not await page.locator(what).count():
        await page.reload()
