"""The same random requests to a broker of ours and to one of Apache RocketMQ 5.5.0, and where they answer something else.

    python -m tests.interop.twins --seeds 1:50

Needs Maven and a JDK. Each kind of difference is shown once, with the first request that was answered so. What must differ is not
compared (addresses, times, ids, bytes of the log), and not asked for what differs on purpose (docs/compatibility).
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from rmq.errors import BadBytes
from rmq.log.records import record
from rmq.net.remoting.headers import Ext, Header
from rmq.testing import LocalBroker
from tests.broker.javaclient import JavaClient
from tests.interop import java
from tests.interop.java import Java
from tests.net import java_json
from tests.net.java_peer import batch_body
from tests.ports import free_port

ASKED: Final = 300  # of each seed
_WITH_FIELDS: Final = {0, 19, 20, 21}  # codes of answers whose fields clients read
_OWN_FIELDS: Final = {"msgId", "transactionId", "indexLastUpdateTimestamp", "indexLastUpdatePhyoffset", "timestamp"}
_OWN_PROPERTIES: Final = {"__CRC32#", "RMQ_SRC", "UNIQ_KEY", "ORIGIN_MESSAGE_ID", "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT"}
_TAKEN_OUT: Final = {"TRAN_MSG", "REAL_TOPIC", "REAL_QID", "POP_CK"}  # of messages in a batch, by ours
_OWN_NAMES: Final = {"lastTimestamp", "lastUpdateTimestamp", "consumeTps", "topicPutTps", "consumerOffset", "pullOffset"}
Answer = tuple[Header, bytes]


class Message(NamedTuple):
    """What both said to one that was sent."""

    topic: str
    answers: list[Answer]

    def place(self, side: int) -> int:
        """Its offset in the log."""
        return int(self.answers[side][0].ext["msgId"].split(",")[0][16:], 16)


class Asked(NamedTuple):
    """A request. `of`: its field `offset` is the place of that message."""

    code: int
    ext: Ext
    body: bytes = b""
    of: Message | None = None


class History:
    """Random requests. Group `off` is switched off."""

    def __init__(self, seed: int, sides: tuple[JavaClient, JavaClient]) -> None:
        self._chance, self._sides, self._count = Random(seed), sides, 0
        self._seed = seed
        self._topics = [f"T{seed}", f"U{seed}"]
        self._groups = [f"g{seed}", f"h{seed}", f"off{seed}"]
        self._sent: list[Message] = []
        self.different: dict[str, str] = {}  # by kind: the request and both answers

    async def run(self) -> None:
        for topic in self._topics:
            queues = {"readQueueNums": "2", "writeQueueNums": "2", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}
            await self._ask(Asked(17, {"topic": topic, "defaultTopic": "TBW102", **queues}))
        for group in self._groups:
            settings = {
                "groupName": group,
                "consumeEnable": not group.startswith("off"),
                "retryQueueNums": 1,
                "retryMaxTimes": 16,
            }
            await self._ask(Asked(200, {}, json.dumps(settings).encode()))
        kinds = [self._send, self._send, self._batch, self._pull, self._pull, self._offset, self._find, self._lock, self._back]
        for _ in range(ASKED):
            asked = self._chance.choice(kinds)()
            answers = await self._ask(asked)
            if asked.code in (310, 320) and answers[0][0].code == answers[1][0].code == 0:
                self._sent.append(Message(asked.ext["b"], answers))
                await self._dispatched(asked.ext["b"], answers[0][0].ext)

    async def _dispatched(self, topic: str, ext: Ext) -> None:
        """RocketMQ tells of a message before it can be pulled."""
        ends = {"topic": topic, "queueId": ext["queueId"]}
        while int((await self._sides[0].raw(30, ends))[0].ext["offset"]) <= int(ext["queueOffset"]):
            pass

    async def _ask(self, asked: Asked) -> list[Answer]:
        answers = []
        for side, client in enumerate(self._sides):
            where = {} if asked.of is None else {"offset": str(asked.of.place(side))}
            answers.append(await client.raw(asked.code, {**asked.ext, **where}, asked.body))
        theirs, ours = (_compared(*answer) for answer in answers)
        thrown = "Exception" in answers[0][0].remark and ours[0]
        if theirs != ours and not thrown:
            kind = f"{asked.code}: {theirs[0]} {answers[0][0].remark[:30]!r} - {ours[0]} {answers[1][0].remark[:30]!r}"
            text = f"seed {self._seed}: {asked.code} {asked.ext} {asked.body[:300]!r}\n  RocketMQ {theirs}\n  ours     {ours}"
            self.different.setdefault("".join(one for one in kind if not one.isdigit()), text)
        return answers

    def _one(self, *choices: str) -> str:
        return self._chance.choice(choices)

    # --- what is asked

    def _properties(self, **more: str) -> str:
        self._count += 1
        found = {"UNIQ_KEY": f"{self._seed:016X}{self._count:016X}", "TAGS": self._one("a", "b"), "KEYS": self._one("k", "l k")}
        return "".join(f"{name}\x01{value}\x02" for name, value in {**found, **more}.items())

    def _place(self) -> Ext:
        return {"topic": self._one(*self._topics), "queueId": self._one("0", "1")}

    def _fields(self, properties: str, batch: str) -> Ext:
        place = self._place()
        return {
            "a": "PG", "b": place["topic"], "c": "TBW102", "d": "4", "e": place["queueId"], "f": "0", "g": "1700000000000",
            "h": "7", "i": properties, "j": "0", "k": "false", "m": batch,
        }  # fmt: skip

    def _send(self) -> Asked:
        more = self._one("", "MSG_REGION", "POP_CK", "RETRY_TOPIC", "PGROUP", "price")
        properties = self._properties(**{more: "5"} if more else {})
        return Asked(
            310, self._fields(properties.removesuffix(self._one("", "\x02")), "false"), b"x" * self._chance.randrange(1, 300)
        )

    def _batch(self) -> Asked:
        """Also of messages that a consumer sends on."""
        brought = self._chance.choice(
            [{}, {"TRAN_MSG": "true", "PGROUP": "p"}, {"REAL_TOPIC": "T", "REAL_QID": "0"}, {"POP_CK": "0 1"}]
        )
        items = [(1, b"item", self._properties(**brought).encode()) for _ in range(self._chance.randrange(1, 5))]
        return Asked(320, self._fields(self._one("", "WAIT\x01true\x02"), "true"), batch_body(items))

    def _pull(self) -> Asked:
        more = {"maxMsgNums": self._one("1", "32", "0"), "sysFlag": self._one("4", "20"), "commitOffset": "0", "subVersion": "0"}
        start = {"queueOffset": self._one("0", "1", "5", "40", "-1"), "suspendTimeoutMillis": "0"}
        filtered = {"subscription": self._one("*", "a", "a || b", "none"), "expressionType": "TAG"}
        place = {**self._place(), "queueId": self._one("0", "1", "1", "2")}
        return Asked(11, {"consumerGroup": self._one(*self._groups, "none"), **place, **start, **more, **filtered})

    def _offset(self) -> Asked:
        place, group = self._place(), {"consumerGroup": self._one(*self._groups)}
        return self._chance.choice(
            [
                Asked(15, {**group, **place, "commitOffset": "0"}),
                Asked(14, {**group, **place, "setZeroIfNotFound": "false"}),
                Asked(30, place),
                Asked(31, place),
                Asked(202, {"topic": place["topic"]}),
                Asked(208, group),
                Asked(29, {**place, "timestamp": self._one("0", str(2**62)), "boundaryType": self._one("LOWER", "UPPER")}),
            ]
        )

    def _find(self) -> Asked:
        if self._sent and self._chance.random() < 0.5:
            return Asked(33, {}, of=self._chance.choice(self._sent))
        words = {"key": self._one("k", "l", "l k", "none"), "maxNum": self._one("1", "64"), "topic": self._one(*self._topics)}
        return Asked(12, {**words, "beginTimestamp": "0", "endTimestamp": str(2**62), "indexType": self._one("K", "T")})

    def _lock(self) -> Asked:
        place = self._place()
        queue = {"topic": place["topic"], "brokerName": "broker-a", "queueId": int(place["queueId"])}
        wanted = {"clientId": self._one("c", "d"), "consumerGroup": self._one(*self._groups), "mqSet": [queue]}
        return Asked(self._chance.choice([41, 42]), {}, json.dumps(wanted).encode())

    def _back(self) -> Asked:
        """A failed message: a dead letter, or it comes after hours."""
        if not self._sent:
            return self._send()
        failed = self._chance.choice(self._sent)
        more = {"delayLevel": self._one("-1", "18"), "originTopic": failed.topic, "maxReconsumeTimes": self._one("16", "0")}
        return Asked(36, {"group": self._one(*self._groups), **more}, of=failed)


def _compared(header: Header, body: bytes) -> tuple[int, Ext, Any]:
    """Of refusals the code alone. Where a pull that found something goes on is not the same: one looks further than the other."""
    if header.code not in _WITH_FIELDS:
        return header.code, {}, None
    left_out = _OWN_FIELDS | ({"nextBeginOffset"} if header.code == 0 else set())
    fields = {name: value for name, value in sorted(header.ext.items()) if name not in left_out}
    return header.code, fields, _content(body)


def _content(body: bytes) -> Any:
    if not body:
        return None
    if body.startswith(b"{"):
        return _known(java_json.loads(body))
    try:
        return sorted(map(_message, record.iterate(body)))
    except BadBytes:
        return body


def _message(stored: record.Record) -> tuple[Any, ...]:
    properties = record.bytes_to_properties(stored.properties)
    kept = sorted(item for item in properties.items() if item[0] not in _OWN_PROPERTIES | _TAKEN_OUT)
    numbers = stored.queue_id, stored.queue_offset, stored.flag, stored.sys_flag, stored.reconsume_times
    return stored.topic, *numbers, stored.body, kept


def _known(value: Any) -> Any:
    """Lists in one order, without times and rates."""
    if isinstance(value, dict):
        return {name: _known(one) for name, one in sorted(value.items()) if name not in _OWN_NAMES}
    return sorted(map(_known, value), key=str) if isinstance(value, list) else value


async def twins(folder: Path, seeds: Iterable[int]) -> dict[str, str]:
    """What is answered differently: by kind, the first request that was."""
    histories: list[History] = []
    async with rocketmq(folder) as (_, address), LocalBroker() as local:
        for seed in seeds:
            async with JavaClient.connect(address) as theirs, JavaClient.connect(local.address) as ours:
                histories.append(History(seed, (theirs, ours)))
                await histories[-1].run()
    return first_of_each(history.different for history in histories)


@asynccontextmanager
async def rocketmq(folder: Path, **settings: object) -> AsyncIterator[tuple[str, str]]:
    """Addresses of a nameserver and a broker of RocketMQ 5.5.0. `settings`: of the broker."""
    await asyncio.to_thread(java.build)
    named, port = free_port(), free_port(1, -2)
    async with AsyncExitStack() as running:
        nameserver = await Java.start_nameserver(folder, named)
        running.push_async_callback(nameserver.kill)
        broker = await Java.start_broker(folder, f"127.0.0.1:{named}", port, 16 << 20, **settings)
        running.push_async_callback(broker.kill)
        yield f"127.0.0.1:{named}", f"127.0.0.1:{port}"


def first_of_each(different: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What is different in histories, by kind: the first one of each."""
    found: dict[str, str] = {}
    for one in different:
        found = {**one, **found}
    return found


def main(about: str, seeds: str, compare: Callable[[Path, Iterable[int]], Coroutine[None, None, dict[str, str]]]) -> int:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default=seeds, help=f"from the first one to the one before the second, as {seeds}")
    first, last = map(int, parser.parse_args().seeds.split(":"))
    with tempfile.TemporaryDirectory() as folder:
        different = asyncio.run(compare(Path(folder), range(first, last)))
    print("\n".join(different.values()) or "all was answered alike")
    return len(different) > 0


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", "1:20", twins))
