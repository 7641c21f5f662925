"""The dashboard's queries, asked of a real Prometheus that scrapes real nodes."""

import asyncio
import contextlib
import json
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from rmq.client import Message
from rmq.testing import LocalBroker
from tests.broker.groups import LocalGroup
from tests.ops.watching import exported
from tests.ports import free_port

DASHBOARD = Path(__file__).parents[2] / "ops" / "grafana.json"
# Of these nothing happens here, so there are no series; their names are compared with the docs' list elsewhere.
SILENT = ("rocketmq_half_messages",)


@contextlib.asynccontextmanager
async def prometheus(folder: Path, targets: Sequence[str]) -> AsyncIterator[str]:
    """Scrapes five times a second. Gives "host:port"."""
    scrape = {"job_name": "rmq", "scrape_interval": "200ms", "scrape_timeout": "200ms", "static_configs": [{"targets": targets}]}
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))
    address = f"127.0.0.1:{free_port()}"
    arguments = (
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address={address}",
    )
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec("prometheus", *arguments, stderr=log, env=os.environ | {"TZ": "UTC"})
    try:
        yield address
    finally:
        process.terminate()
        await process.wait()


def ask(address: str, query: str) -> list[Any]:
    """What an instant query finds. Raises OSError while Prometheus starts, and for a query that it does not understand."""
    with urllib.request.urlopen(f"http://{address}/api/v1/query?query={urllib.parse.quote(query)}", timeout=5) as answer:
        found: list[Any] = json.load(answer)["data"]["result"]
        return found


async def found(address: str, query: str) -> None:
    """Returns when the query finds something. Raises HTTPError for one that is wrong."""
    async with asyncio.timeout(30):
        while True:
            try:
                if await asyncio.to_thread(ask, address, query):
                    return
            except urllib.error.HTTPError as error:
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE:  # it still starts
                    raise
            except urllib.error.URLError:  # it does not listen yet
                await asyncio.sleep(0)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus (Debian: prometheus)")
async def test_every_query_of_the_dashboard_finds_something(tmp_path: Path) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    async with contextlib.AsyncExitStack() as running:
        broker = await running.enter_async_context(LocalBroker())
        group = await running.enter_async_context(LocalGroup(tmp_path / "group"))
        leader = group.nodes[await group.leader()]
        targets = [await running.enter_async_context(exported(*parts)) for parts in (broker.parts, [leader])]
        address = await running.enter_async_context(prometheus(tmp_path, targets))
        client = await running.enter_async_context(broker.client())
        consumer = await running.enter_async_context(client.consumer("g", "Orders", start="first"))
        await client.producer("p").send(Message("Orders", b"one"))
        await consumer.receive(1)
        asked = [query for query in queries if not any(name in query for name in SILENT)]
        for query in asked:
            await found(address, query.replace("$__rate_interval", "10s").replace("$cluster", ".*"))
