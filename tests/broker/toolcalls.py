"""What rocketmq-exporter 0.0.3 (client 4.9.4) and rocketmq-dashboard 2.1 (client 5.3.3) ask, and what they read of the answers.

Requests as these programs send them; the keys are those that they look up in the bodies, so that one which is missing ends in an
exception there. Written from their sources; no code is shared with the codec that is tested.
"""

import asyncio
import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.net import java_json

VERSIONS = {"exporter": 401, "dashboard": 477}


class Reply(NamedTuple):
    code: int
    fields: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        assert self.code == 0, self
        return java_json.loads(self.body)


class Tool:
    """One connection of such a program."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self._reader, self._writer, self._version = reader, writer, version
        self._opaque = 0

    @classmethod
    async def connect(cls, address: str, name: str) -> "Tool":
        host, port = address.split(":")
        return cls(*await asyncio.open_connection(host, int(port)), VERSIONS[name])

    async def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Reply:
        """Requests that the broker sends meanwhile are passed over."""
        self._opaque += 1
        known = {"code": code, "flag": 0, "language": "JAVA", "opaque": self._opaque, "version": self._version}
        known["serializeTypeCurrentRPC"] = "JSON"
        if fields is not None:
            known["extFields"] = {name: str(value) for name, value in fields.items()}
        header = json.dumps(known).encode()
        self._writer.write(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        while True:
            size, head = struct.unpack(">ii", await self._reader.readexactly(8))
            rest = await self._reader.readexactly(size - 4)
            answer = json.loads(rest[: head & 0xFFFFFF])
            if answer["flag"] & 1 and answer["opaque"] == self._opaque:
                return Reply(answer["code"], answer.get("extFields") or {}, rest[head & 0xFFFFFF :])

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


RATES = ("putTps", "getMissTps", "getTransferedTps", "getTotalTps", "getFoundTps")
WHOLE = (
    "msgPutTotalTodayNow", "msgGetTotalTodayNow", "msgPutTotalTodayMorning", "msgGetTotalTodayMorning",
    "msgPutTotalYesterdayMorning", "msgGetTotalYesterdayMorning", "sendThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize",
    "pullThreadPoolQueueSize", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueCapacity", "commitLogMinOffset", "commitLogMaxOffset", "bootTimestamp", "dispatchMaxBuffer",
    "brokerVersion", "pageCacheLockTimeMills", "getMessageEntireTimeMax", "putMessageTimesTotal",
    "startAcceptSendRequestTimeStamp", "putMessageEntireTimeMax", "earliestMessageTimeStamp", "remainTransientStoreBufferNumbs",
    "dispatchBehindBytes", "putMessageSizeTotal",
)  # fmt: skip
DECIMAL = ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize", "putLatency99", "putLatency999")
TEXTS = ("brokerVersionDesc", "runtime")


def read_runtime_info(table: Mapping[str, str]) -> dict[str, Any]:
    """As the exporter reads them: raises where it does, which loses all of the broker's numbers. [BrokerRuntimeStats]"""
    found: dict[str, Any] = {name: int(table[name]) for name in WHOLE}
    found |= {name: float(table[name]) for name in DECIMAL} | {name: table[name] for name in TEXTS}
    found |= {name: [float(word) for word in table[name].split(" ") if word] for name in RATES}
    times = (part.split(":") for part in table["putMessageDistributeTime"].strip().split(" "))
    found["putMessageDistributeTime"] = {part[0].strip("[]"): int(part[1]) for part in times}
    words = table["commitLogDirCapacity"].split(" ")
    found["capacity"] = [(float(words[at]), words[at + 1].rstrip(",.")) for at in (2, 6)]
    number, unit = table["remainHowManyDataToFlush"].split(" ")
    found["remainHowManyDataToFlush"] = float(number) * 1024 ** ("KMGTPE".find(unit[0]) + 1)
    for name in table:
        if name.startswith("scheduleMessageOffset"):
            found[name] = [int(word) for word in table[name].split(",")[:2]]
    return found
