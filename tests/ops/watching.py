"""A node's metrics and health as Prometheus gets them: over HTTP, from the exporter of the real thing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from rmq.clock import SystemClock
from rmq.ops.exporter import Exporter
from rmq.ops.metrics import Part
from rmq.ops.watch import LoopWatch


@contextlib.asynccontextmanager
async def exported(*parts: Part, watch: LoopWatch | None = None) -> AsyncIterator[str]:
    """Gives "host:port"."""
    async with Exporter(parts, watch or LoopWatch(SystemClock())).served("127.0.0.1", 0) as address:
        yield address


async def asked(address: str, question: bytes) -> bytes:
    """All that is answered; b"" if the connection was cut."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(question)
        return await reader.read()
    except ConnectionResetError:  # it went before everything was read
        return b""
    finally:
        writer.close()


async def page(address: str, path: str) -> tuple[int, str]:
    """Status and text."""
    head, _, body = (await asked(address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())).decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


async def scrape_of(*parts: Part) -> str:
    """The whole page."""
    async with exported(*parts) as address:
        status, text = await page(address, "/metrics")
    assert status == 200
    return text


async def scraped(*parts: Part) -> dict[str, Metric]:
    """By name, from these parts."""
    return families(await scrape_of(*parts))


def families(text: str) -> dict[str, Metric]:
    """By the name that their lines have."""
    return {family.name + "_total" * (family.type == "counter"): family for family in text_string_to_metric_families(text)}


def value(metrics: dict[str, Metric], name: str, **labels: str) -> float:
    """Of the one series that has these labels."""
    [found] = [one.value for one in metrics[name].samples if one.name == name and labels.items() <= one.labels.items()]
    return found
