"""Every command of mqadmin 5.5.0 against a broker of ours and one of Apache RocketMQ 5.5.0 in the same state.

    python -m tests.interop.mqadmin             # a table, command by command; which fields differ where they do
    python -m tests.interop.mqadmin --record    # what RocketMQ answers goes to mqadmin-5.5.0.json, for the test run

Needs Maven and a JDK. What a command prints is compared field by field, except for times, addresses, ids and rates. Of an error
its class and code are compared; its words are each broker's own.
"""

import argparse
import asyncio
import json
import logging
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmq.client.admin import exports
from rmq.testing import LocalBroker
from tests.interop import java
from tests.interop.java import Java
from tests.interop.mqadminsteps import DIFFERENT, FILES, STEPS, Step
from tests.ports import free_port

RECORDED: Final = Path(__file__).parent / "mqadmin-5.5.0.json"
NOBODY: Final = "127.0.0.1:1"
Printed = list[str]
Exported = dict[str, tuple[dict[str, Any], dict[str, Any]]]
"""By file: what mqadmin wrote, and what `rmq admin` would."""
log = logging.getLogger("mqadmin")

_NOISE = re.compile(
    r"^\s*at |^\s*\.\.\. \d+ |\|-|^WARNING:|^SLF4J|^\s*$|^\s*Suppressed:|/06FAQ"
    r"|^%RETRY%readers\s+broker-a\s+0\s+0\s+0\s+0\s+0\s+N/A"  # told as soon as a member has reported it
)
_FRAME = re.compile(r"\s+at [\w.$/]+\(.*$")
_MADE: Final = (  # pattern, and what stands in its place
    (re.compile(r"(CODE: \d+)\s.*"), r"\1"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+@\d+#\d+"), "CLIENT"),
    (re.compile(r"\b\d+#\d{6,}"), "INSTANCE"),
    (re.compile(r"@[0-9a-f]{5,8}\b"), "@OBJECT"),
    (re.compile(r"Lambda\S+"), "LAMBDA"),
    (re.compile(r"/?\b127\.0\.0\.1:\d+|\b192\.\d+\.\d+\.\d+:\d+"), "ADDRESS"),
    (re.compile(r"\b[0-9A-F]{32,}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #T]\d\d:\d\d:\d\d([,:.]\d{3})?|\b20\d{12}\b"), "TIME"),
    (re.compile(r"\b1[678]\d{11}\b"), "MS"),
    (re.compile(r"\b\d+ s ago\b"), "AGE ago"),
    (re.compile(r"\b\d+\.\d+(E-?\d+)?\b(?!\.)"), "RATE"),
    (re.compile(r"\b\d+ms\b"), "Nms"),
    (re.compile(r"(storeSize=|commitLogOffset=|CommitLog Offset:\s+|bodyCRC=|ID@)\d+"), r"\1N"),  # ours have a checksum more
    (re.compile(r"(spentTimeMills=)\d+"), r"\1N"),
    (re.compile(r"((true|false)\s+)\d+$"), r"\1N"),  # how long a send took
    (re.compile(r"\b\d+-\d+\(\d+\.\dw"), "N-N(Nw"),  # how far the timer is
    (re.compile(r"physicOffset=\d+, physicSize=\d+"), "physicOffset=N, physicSize=N"),
    (re.compile(r"(#MasterCommitLogMaxOffset\s+)\d+"), r"\1N"),
    (re.compile(r"(Orders\s+readers\s+0\s+RATE\s+RATE)\s+\d+\s+\d+"), r"\1 N N"),
    (re.compile(r"(storePathRootDir\s*=\s*).*"), r"\1FOLDER"),
    (re.compile(r"__CRC32#=\d+, "), ""),
    (re.compile(r"\b20\d{15}\b"), "TIME"),
    (re.compile(r"((topic=broker-z|SEND_OK).*queueId=)\d(.*queueOffset=)\d"), r"\1N\3N"),
    (re.compile(r"(config|Port)(\s*=\s*)\d+"), r"\1\2PORT"),
    (re.compile(r"SCRAM-SHA-256\S+|\bsecret\d"), "SECRET"),
)  # fmt: skip


class Side(NamedTuple):
    """One of the two. `wait()`: some time passes there; `tries`: how often a step is repeated until it prints what it should."""

    nameserver: str
    broker: str
    folder: Path
    wait: Callable[[], Awaitable[None]]
    tries: int


class Campaign:
    """Runs all steps at one side. `printed[i]`: what step i printed, without times and addresses."""

    def __init__(self, side: Side, tools: Java) -> None:
        self._side = side
        self._tools = tools
        self._names = {"b": side.broker, "n": side.nameserver, "x": NOBODY, "f": str(side.folder)}
        self._names |= dict.fromkeys(("id", "offset", "client", "traced"), "")
        self.printed: list[Printed] = []

    async def run(self, steps: Sequence[Step] = STEPS) -> None:
        for name, text in FILES.items():
            (self._side.folder / name).write_text(text)
        for step in steps:
            began = time.monotonic()
            self.printed.append(self._bare(await self._done(step)))
            log.info("%5.1f s  %s", time.monotonic() - began, step.line)

    async def _done(self, step: Step) -> Printed:
        """Repeats it some times. What is not printed then is a difference."""
        lines: Printed = []
        for _ in range(self._side.tries):
            lines = await self.once(step)
            if step.until in "\n".join(lines):
                self._learn(step, lines)
                return lines
            await self._side.wait()
            await self.once(Step("commit", "."))
        log.info("%s: %r was not printed", step.line, step.until)
        return lines

    async def once(self, step: Step) -> Printed:
        lines = await self._tools.ran(*step.line.format(**self._names).split(" "), stop_at=step.stop_at)
        return [line.rstrip() for line in lines]

    def _learn(self, step: Step, lines: Printed) -> None:
        text = "\n".join(lines)
        ids = re.findall(r"\b[0-9A-F]{32,}\b", text)
        if step.command == "sendMessage" and ids:
            self._names["id"] = self._names["id"] or ids[0]
        if step.command == "traced":
            self._names["traced"] = ids[0]
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


def different(command: str, ours: Printed, theirs: Printed) -> list[str]:
    """Rows that only one has, the order of rows apart, with a sign: - theirs, + ours."""
    if command in ("brokerStatus", "getBrokerConfig", "getNamesrvConfig", "exportConfigs"):
        ours, theirs = _comparable(command, ours, theirs)
    more, rows = list(ours), []
    for row in theirs:
        if row in more:
            more.remove(row)
        else:
            rows.append(f"- {row}")
    return rows + [f"+ {row}" for row in more]


def _comparable(command: str, ours: Printed, theirs: Printed) -> tuple[Printed, Printed]:
    """Of settings the values of those that both have: each has others of its own. Of the runtime info the names: all of
    RocketMQ's must be there, and more may."""
    mine, others = _named(ours), _named(theirs)
    if command == "brokerStatus":
        return [name for name in mine if name in others], list(others)
    both = mine.keys() & others.keys()
    return [f"{name} {mine[name]}" for name in sorted(both)], [f"{name} {others[name]}" for name in sorted(both)]


def _named(rows: Printed) -> dict[str, str]:
    pairs = [re.split(r"\s*[=:]\s*", row, maxsplit=1) for row in rows if re.search("[=:]", row)]
    return {re.sub("commitLogDiskRatio_.*", "commitLogDiskRatio_PATH", name): value for name, value in pairs}


async def at_ours(folder: Path) -> tuple[list[Printed], Exported]:
    """What our broker and nameserver answer; and of their end what mqadmin exports to files, and what we do."""
    async with LocalBroker(trace_topic=True) as broker:
        tools = await Java.start_tools(broker.nameserver)
        campaign = Campaign(Side(broker.nameserver, broker.address, folder, lambda: broker.clock.advance(0.2), 300), tools)
        try:
            await campaign.run()
            return campaign.printed, await _exported(broker, campaign, folder)
        finally:
            await tools.kill()


async def _exported(broker: LocalBroker, campaign: Campaign, folder: Path) -> Exported:
    """mqadmin's file and ours. A message that comes between the two would be in one of them only: then once more."""
    cluster = "DefaultCluster"
    async with broker.client() as client:

        async def metadata() -> Any:
            topics, groups = await exports.metadata(client, cluster=cluster)
            return {"subscriptionGroupTable": groups, "topicConfigTable": topics}

        commands: dict[str, Callable[[], Awaitable[Any]]] = {
            "exportConfigs": lambda: exports.configs(client, cluster),
            "exportMetrics": lambda: exports.metrics(client, cluster),
            "exportMetadata": metadata,
        }
        found: Exported = {}
        for command, ours in commands.items():
            before = None
            while (now := without_rates(await ours())) != before:
                before = now
                await campaign.once(Step(f"{command} -c {cluster} -f {{f}}", "+"))
            name = command.removeprefix("export").lower()
            found[name] = (without_rates(json.loads((folder / f"{name}.json").read_bytes())), now)
        return found


def without_rates(exported: dict[str, Any]) -> Any:
    """Rates and disks go on between two exports."""
    return {
        key: without_rates(value) if isinstance(value, dict) else "RATE" if key.endswith(("Tps", "Ratio")) else value
        for key, value in exported.items()
        if key not in ("exportTime", "runtimeEnv")
    }


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
    broker = await Java.start_broker(folder, f"127.0.0.1:{named}", port, 16 << 20, **providers)
    tools = await Java.start_tools(f"127.0.0.1:{named}")
    campaign = Campaign(Side(f"127.0.0.1:{named}", f"127.0.0.1:{port}", folder, lambda: asyncio.sleep(1), 30), tools)
    try:
        await campaign.run()
    finally:
        for each in (tools, broker, nameserver):
            await each.kill()
    return campaign.printed


def compared(ours: list[Printed], theirs: list[Printed]) -> Iterator[tuple[Step, list[str]]]:
    """Each step with the rows in which it differs."""
    for step, mine, other in zip(STEPS, ours, theirs, strict=True):
        if step.kind != ".":
            yield step, different(step.command, mine, other)


async def _main(record: bool) -> int:
    java.build()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        theirs = json.loads(RECORDED.read_text()) if RECORDED.exists() and not record else await at_rocketmq(Path(first))
        if record:
            RECORDED.write_text(json.dumps(theirs, indent=0) + "\n")
        ours = await at_ours(Path(second))
    strange = 0
    for step, rows in compared(ours, theirs):
        known = DIFFERENT.get(step.line, "")
        strange += bool(rows) != bool(known)
        print(f"{step.kind} {'differs' if rows else 'same':8} {step.line}{known and f'  ({known})'}")
        for row in rows:
            print(f"        {row[:400]}")
    print(f"{len(STEPS)} steps, {strange} are not as mqadminsteps.py says")
    return 1 if strange else 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="ask RocketMQ again, and keep what it says")
    sys.exit(asyncio.run(_main(parser.parse_args().record)))
