"""Every command of mqadmin 5.5.0 against a broker of ours and one of Apache RocketMQ 5.5.0 in the same state.

    python -m tests.interop.mqadmin             # a table, command by command; which fields differ where they do
    python -m tests.interop.mqadmin --record    # what RocketMQ answers goes to mqadmin-5.5.0.json, for the test run

Needs Maven and a JDK. What a command prints is compared field by field, except for times, addresses, ids and rates. Of an error
its class and code are compared; its words are each broker's own.
"""

import argparse
import asyncio
import itertools
import json
import logging
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

from rmq.testing import LocalBroker
from tests.interop import java
from tests.interop.java import Java
from tests.interop.mqadminsteps import FILES, STEPS, Step
from tests.ports import free_port

RECORDED: Final = Path(__file__).parent / "mqadmin-5.5.0.json"
NOBODY: Final = "127.0.0.1:1"
Printed = list[str]
log = logging.getLogger("mqadmin")

_NOISE = re.compile(r"^\s*at |^\s*\.\.\. \d+ |\|-|^WARNING:|^SLF4J|^\s*$|^DONE$|^\s*Suppressed:")
_FRAME = re.compile(r"\s+at [\w.$/]+\(.*$")
_MADE: Final = (  # pattern, and what stands in its place
    (re.compile(r"(CODE: \d+)\s.*"), r"\1"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+@\d+#\d+"), "CLIENT"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d([,:.]\d{3})?"), "TIME"),
    (re.compile(r"\b1[678]\d{11}\b"), "MS"),
    (re.compile(r"\b1[678]\d{11}(?=/)"), "MS"),
    (re.compile(r"\b(\d+)\.\d+(E-?\d+)?\b(?!\.)"), "RATE"),
    (re.compile(r"\b\d+ms\b"), "Nms"),
    (re.compile(r"/127\.0\.0\.1:\d+|127\.0\.0\.1:\d+|\b192\.\d+\.\d+\.\d+:\d+"), "ADDRESS"),
)  # fmt: skip


class Side(NamedTuple):
    """One of the two. `wait()`: some time passes there."""

    nameserver: str
    broker: str
    folder: Path
    wait: Callable[[], Awaitable[None]]


class Campaign:
    """Runs all steps at one side. `printed[i]`: what step i printed, without times and addresses."""

    def __init__(self, side: Side, tools: Java) -> None:
        self._side = side
        self._tools = tools
        self._names = {"b": side.broker, "n": side.nameserver, "x": NOBODY, "f": str(side.folder)}
        self._names |= dict.fromkeys(("id", "offset", "client", "traced"), "")
        self.printed: list[Printed] = []

    async def run(self) -> None:
        for name, text in FILES.items():
            (self._side.folder / name).write_text(text)
        for step in STEPS:
            began = time.monotonic()
            self.printed.append(self._bare(await self._done(step)))
            log.info("%5.1f s  %s", time.monotonic() - began, step.line)

    async def _done(self, step: Step) -> Printed:
        """Repeats it some times. What is not printed then is a difference."""
        lines: Printed = []
        for _ in range(20):
            lines = await self._once(step)
            if step.until in "\n".join(lines):
                self._learn(step, lines)
                return lines
            await self._side.wait()
            await self._once(Step("commit", "."))
        log.info("%s: %r was not printed", step.line, step.until)
        return lines

    async def _once(self, step: Step) -> Printed:
        tools, before = self._tools, len(self._tools.lines)
        done = len(tools.got("DONE"))
        await tools.tell("\t".join(step.line.format(**self._names).split(" ")))
        if step.stop_at:
            await tools.until(lambda: any(step.stop_at in line for line in tools.lines[before:]))
            await tools.tell("STOP")
        await tools.until(lambda: len(tools.got("DONE")) > done)
        return tools.lines[before:]

    def _learn(self, step: Step, lines: Printed) -> None:
        text = "\n".join(lines)
        ids = re.findall(r"\b[0-9A-F]{32}\b", text)
        if step.command == "sendMessage" and ids:
            self._names["traced"] = ids[0]
            self._names["id"] = self._names["id"] or ids[0]
        if step.command == "queryMsgByUniqueKey" and not self._names["offset"]:
            self._names["offset"] = next((one for one in ids if one != self._names["id"]), "0" * 32)
        if step.command == "member":
            self._names["client"] = text.split("CLIENT ")[1].split()[0]

    def _bare(self, lines: Printed) -> Printed:
        return [one for line in lines if (one := self._field_text(line))]

    def _field_text(self, line: str) -> str:
        if _NOISE.search(line):
            return ""
        line = _FRAME.sub("", line)
        for text, made in (
            (self._side.broker, "BROKER"),
            (self._side.nameserver, "NAMESERVER"),
            (str(self._side.folder), "FOLDER"),
        ):
            line = line.replace(text, made)
        for pattern, made in _MADE:
            line = pattern.sub(made, line)
        return " ".join(line.split())


def different(ours: Printed, theirs: Printed) -> list[str]:
    """Rows that only one has, the order of rows apart, with a sign: - theirs, + ours."""
    more, rows = list(ours), []
    for row in theirs:
        if row in more:
            more.remove(row)
        else:
            rows.append(f"- {row}")
    return rows + [f"+ {row}" for row in more]


async def at_ours(folder: Path) -> list[Printed]:
    """What our broker and nameserver answer."""
    async with LocalBroker(trace_topic=True) as broker:
        tools = await Java.start_tools(broker.nameserver)
        campaign = Campaign(Side(broker.nameserver, broker.address, folder, lambda: broker.clock.advance(1)), tools)
        try:
            await campaign.run()
        finally:
            await tools.kill()
        return campaign.printed


async def at_rocketmq(folder: Path) -> list[Printed]:
    """What RocketMQ answers, with its users' tables switched on and nobody asked for a password."""
    named, port = free_port(), free_port(1, -2)
    nameserver = await Java.start_nameserver(folder, named)
    access = "org.apache.rocketmq.auth"
    providers = {
        "authenticationProvider": f"{access}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{access}.authentication.provider.LocalAuthenticationMetadataProvider",
        "authorizationProvider": f"{access}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{access}.authorization.provider.LocalAuthorizationMetadataProvider",
        "authConfigPath": folder / "auth",
        "traceTopicEnable": "true",
    }
    broker = await Java.start_broker(folder / "store", f"127.0.0.1:{named}", port, 16 << 20, **providers)
    tools = await Java.start_tools(f"127.0.0.1:{named}")
    campaign = Campaign(Side(f"127.0.0.1:{named}", f"127.0.0.1:{port}", folder, lambda: asyncio.sleep(1)), tools)
    try:
        await campaign.run()
    finally:
        for each in (tools, broker, nameserver):
            await each.kill()
    return campaign.printed


def table(ours: list[Printed], theirs: list[Printed]) -> int:
    """Prints what differs; how many steps do."""
    count = 0
    for command, some in itertools.groupby(zip(STEPS, ours, theirs, strict=True), lambda row: row[0].command):
        for step, mine, other in some:
            rows = [] if step.kind == "." else different(mine, other)
            count += bool(rows)
            print(f"{command:32} {step.kind} {'differs' if rows else 'same':8} {step.line}")
            for row in rows:
                print(f"        {row[:400]}")
    return count


async def _main(record: bool) -> int:
    java.build()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        theirs = json.loads(RECORDED.read_text()) if RECORDED.exists() and not record else await at_rocketmq(Path(first))
        if record:
            RECORDED.write_text(json.dumps(theirs, indent=0) + "\n")
        ours = await at_ours(Path(second))
    print(f"{table(ours, theirs)} of {len(STEPS)} steps differ")
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="ask RocketMQ again, and keep what it says")
    sys.exit(asyncio.run(_main(parser.parse_args().record)))
