"""Prepared requests for `load`: the same messages in our native codec and in RocketMQ's own (JSON and binary headers).

500-byte random bodies with the tag TagA, one 16-character key and a unique id, for the four queues of one topic. Also a
small blocking `ask` in RocketMQ's codec, which every broker here understands; it prepares the topic and checks the load.
"""

import json
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmq.log.records.record import draft, properties_to_bytes
from rmq.net.codec.native import VERSION, Native
from rmq.net.commands import PULL_SUBSCRIPTION, Hello, Pull, Request, Send

TOPIC, GROUP, QUEUES, BODY_BYTES = "BenchTopic", "bench-readers", 4, 500
PULL_COUNT = 32
PULL_OFFSETS = range(128, 992, PULL_COUNT)  # all of three digits, so that JSON frames have one length
LONG_PULL_COUNT, LONG_PULL_OFFSETS = 500, range(1000, 6500, 500)  # the same, of four
BATCH_COUNT = 100
MOST_FRAMES = 4096  # that `load` takes
_JAVA_VERSION = 513
_SEND, _END_TRANSACTION, _POP, _ACK = 310, 37, 200050, 200051
_PREPARED, _COMMIT, _POPPED = "4", "8", 32
_ONEWAY = 2  # flag of a request
_ID_DIGITS, _ID_NUMBER = b"100000000", 0xFFFFFFFF
_PROPERTIES = {"UNIQ_KEY": "7F0000010BAD3E8B27C74C0FFEE00001", "TAGS": "TagA", "KEYS": "order-0000000001"}
_HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 50_000)


class Prepared(NamedTuple):
    """A file of frames and how `load` is to be told about it. `messages`: per frame. `then`: what follows each answer."""

    file: Path
    id_at: int
    id_form: str
    messages: int
    hello: Path | None = None
    then: Path | None = None

    def arguments(self) -> list[str]:
        then = ["0", str(self.then)] if self.then else []  # behind the rate
        return [str(self.file), str(self.id_at), self.id_form, str(self.hello or ""), *then]


def prepare(folder: Path, broker_name: str) -> dict[str, Prepared]:
    """Writes all files; keys are `<codec>-<kind>`: native, json, binary; single, batch, pull."""
    random.seed(1)
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Prepared] = {}
    hello = folder / "hello"
    hello.write_bytes(Native(2**20).request(Hello(VERSION, "bench"), 1, False))
    for kind, messages in (("single", 1), ("batch", BATCH_COUNT), ("pull", PULL_COUNT), ("pull500", LONG_PULL_COUNT)):
        frames = [Native(2**24).request(request, _ID_NUMBER, False) for request in _native(kind, messages)]
        made[f"native-{kind}"] = _write(folder / f"native-{kind}", frames, b"\xff" * 4, "be32", messages, hello)
        for codec, write in (("json", json_frame), ("binary", _binary_frame)):
            frames = [write(*parts) for parts in _remoting(kind, messages, broker_name)]
            mark, form = (_ID_DIGITS, "dec9") if codec == "json" else (struct.pack(">i", int(_ID_DIGITS)), "be32")
            made[f"{codec}-{kind}"] = _write(folder / f"{codec}-{kind}", frames, mark, form, messages, None)
    return made


def _write(file: Path, frames: list[bytes], mark: bytes, form: str, messages: int, hello: Path | None) -> Prepared:
    at = {frame.index(mark, 4) for frame in frames}
    assert len(at) == 1, "the request id lies at different places"
    file.write_bytes(b"".join(frames))
    return Prepared(file, at.pop(), form, messages, hello)


def singles(file: Path, places: list[tuple[str, int]]) -> Prepared:
    """Native single sends, one to each of these queues."""
    properties = properties_to_bytes(_PROPERTIES)
    hello = file.with_suffix(".hello")
    hello.write_bytes(Native(2**20).request(Hello(VERSION, "bench"), 1, False))
    frames = []
    for topic, queue in places:
        record = draft(topic, random.randbytes(BODY_BYTES), properties, born_timestamp=_now_ms(), born_host=_HOST)
        frames.append(Native(2**24).request(Send("bench", topic, queue, record), _ID_NUMBER, False))
    return _write(file, frames, b"\xff" * 4, "be32", 1, hello)


def delayed(file: Path, broker_name: str, said: str) -> Prepared:
    """Single sends in RocketMQ's JSON for a second later: by the shortest delay level (`said`: DELAY), or by a time of their own
    (TIMER_DELAY_SEC)."""
    return _json_sends(file, broker_name, {said: "1"})


def _json_sends(file: Path, broker_name: str, said: dict[str, str], sys_flag: str = "0") -> Prepared:
    """`said`: further properties."""
    properties = properties_to_bytes(_PROPERTIES | said).decode()
    fields = [send_fields(queue, broker_name, properties, False) | {"f": sys_flag} for queue in range(QUEUES)]
    frames = [json_frame(_SEND, each, random.randbytes(BODY_BYTES)) for each in fields]
    return _write(file, frames, _ID_DIGITS, "dec9", 1, None)


def transactions(file: Path, broker_name: str) -> Prepared:
    """Halves in RocketMQ's JSON, each followed by its commit, for which its clients want no answer
    [MQClientAPIImpl.endTransactionOneway]."""
    halves = _json_sends(file, broker_name, {"TRAN_MSG": "true", "PGROUP": "bench"}, _PREPARED)
    commit = {
        "producerGroup": "bench", "tranStateTableOffset": "@", "commitLogOffset": "@", "commitOrRollback": _COMMIT,
        "fromTransactionCheck": "false", "msgId": "@", "transactionId": "@", "topic": TOPIC, "bname": broker_name,
    }  # fmt: skip
    return _followed(halves, _END_TRANSACTION, commit, _ONEWAY)


def pops(file: Path, broker_name: str, group: str) -> Prepared:
    """Pops of that group in RocketMQ's JSON; each message that comes is acknowledged by a request of its own."""
    pop = {
        "consumerGroup": group, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(_POPPED), "invisibleTime": "600000",
        "pollTime": "0", "bornTime": "0", "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    receipt = f"@ @ @ @ @ {broker_name} @ @"
    ack = {"consumerGroup": group, "topic": TOPIC, "queueId": "@", "extraInfo": receipt, "offset": "@"}
    return _followed(_write(file, [json_frame(_POP, pop, b"")], _ID_DIGITS, "dec9", 1, None), _ACK, ack)


def _followed(made: Prepared, code: int, fields: dict[str, str], flag: int = 0) -> Prepared:
    """By a request without a body, with what `load` puts in place of each @."""
    then = made.file.with_suffix(".then")
    then.write_bytes(json_frame(code, fields, b"", flag=flag)[8:].replace(_ID_DIGITS, b"@"))
    return made._replace(then=then)


def pulls(file: Path, places: list[tuple[int, int]]) -> Prepared:
    """Native pulls of 32 from each of these queues and queue offsets, which may all be different."""
    hello = file.with_suffix(".hello")
    hello.write_bytes(Native(2**20).request(Hello(VERSION, "bench"), 1, False))
    asked = [Pull(GROUP, TOPIC, *place, PULL_COUNT, PULL_SUBSCRIPTION, suspend_timeout_millis=0) for place in places]
    frames = [Native(2**24).request(request, _ID_NUMBER, False) for request in asked]
    return _write(file, frames, b"\xff" * 4, "be32", PULL_COUNT, hello)


def _places(count: int) -> Iterator[tuple[int, int]]:
    """Queue and queue offset of each pull."""
    for offset in PULL_OFFSETS if count == PULL_COUNT else LONG_PULL_OFFSETS:
        for queue in range(QUEUES):
            yield queue, offset


def _native(kind: str, messages: int) -> Iterator[Request]:
    if kind.startswith("pull"):
        for queue, offset in _places(messages):
            yield Pull(GROUP, TOPIC, queue, offset, messages, PULL_SUBSCRIPTION, suspend_timeout_millis=0)
        return
    properties = properties_to_bytes(_PROPERTIES)
    for queue in range(QUEUES):
        records = [
            draft(TOPIC, random.randbytes(BODY_BYTES), properties, born_timestamp=_now_ms(), born_host=_HOST)
            for _ in range(messages)
        ]
        yield Send("bench", TOPIC, queue, b"".join(records), default_topic_queue_nums=QUEUES, batch=messages > 1)


def _remoting(kind: str, messages: int, broker_name: str) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Code, ext fields and body of RocketMQ's requests 11, 310 and 320."""
    if kind.startswith("pull"):
        for queue, offset in _places(messages):
            yield 11, _pull_fields(queue, offset, messages), b""
        return
    properties = "".join(f"{name}\x01{value}\x02" for name, value in _PROPERTIES.items())
    for queue in range(QUEUES):
        if messages == 1:
            yield 310, send_fields(queue, broker_name, properties, False), random.randbytes(BODY_BYTES)
        else:
            body = b"".join(_inner(properties.encode()) for _ in range(messages))
            yield 320, send_fields(queue, broker_name, "", True), body


def _inner(properties: bytes) -> bytes:
    """One message inside the body of a batch [MessageDecoder.encodeMessage]."""
    body = random.randbytes(BODY_BYTES)
    total = 4 * 5 + len(body) + 2 + len(properties)
    return struct.pack(">5i", total, 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties


def send_fields(queue: int, broker_name: str, properties: str, batch: bool) -> dict[str, str]:
    values = ["bench", TOPIC, "TBW102", str(QUEUES), str(queue), "0", str(_now_ms()), "0", properties, "0", "false"]
    return dict(zip("abcdefghijk", values, strict=True)) | {"m": "true" if batch else "false", "n": broker_name}


def _pull_fields(queue: int, offset: int, count: int) -> dict[str, str]:
    return {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue), "queueOffset": str(offset),
        "maxMsgNums": str(count), "sysFlag": str(PULL_SUBSCRIPTION), "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


def json_frame(code: int, fields: dict[str, str], body: bytes, call_id: int = int(_ID_DIGITS), flag: int = 0) -> bytes:
    values = {
        "code": code,
        "extFields": fields,
        "flag": flag,
        "language": "JAVA",
        "opaque": call_id,
        "serializeTypeCurrentRPC": "JSON",
        "version": _JAVA_VERSION,
    }
    header = json.dumps(values, separators=(",", ":")).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def _binary_frame(code: int, fields: dict[str, str], body: bytes) -> bytes:
    packed = b""
    for name, value in fields.items():
        packed += struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value.encode())) + value.encode()
    header = struct.pack(">hbhiiii", code, 0, _JAVA_VERSION, int(_ID_DIGITS), 0, 0, len(packed)) + packed
    return struct.pack(">ii", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- asking, one request at a time ------------------------------------------------------------------------------------


def ask(port: int, code: int, fields: dict[str, str], body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """Code, ext fields and body of the answer to one request in RocketMQ's JSON codec."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link, link.makefile("rb") as answers:
        link.sendall(json_frame(code, fields, body))
        size, head = struct.unpack(">ii", answers.read(8))
        rest = answers.read(size - 4)
    header = json.loads(rest[: head & 0xFFFFFF])
    return header["code"], header.get("extFields") or {}, rest[head & 0xFFFFFF :]


def stored(port: int) -> int:
    """Messages ever stored in the four queues (sum of the maximum offsets)."""
    total = 0
    for queue in range(QUEUES):
        code, fields, _ = ask(port, 30, {"topic": TOPIC, "queueId": str(queue)})
        total += int(fields["offset"]) if code == 0 else 0
    return total


def make_topic(port: int, broker_name: str) -> None:
    """Sends one message to each queue, as a producer that meets the topic for the first time."""
    assert takes_sends(port, broker_name), f"the broker at port {port} refuses a send"


def takes_sends(port: int, broker_name: str) -> bool:
    """Whether one message to each queue, as of a producer that meets the topic for the first time, was stored."""
    return all(ask(port, code, fields, body)[0] == 0 for code, fields, body in _remoting("single", 1, broker_name))
