"""Other people's brokers, from Debian's packages: Redis Streams, NATS JetStream, RabbitMQ. Each gets what our brokers get: a body
of 500 bytes, a tag and a key, on four streams, subjects or queues, acknowledged once it is stored.

Durability, as near as each comes to asynchronous flush: Redis writes its append-only file and syncs it each second, NATS keeps
streams in files and syncs them each two minutes (both take a message into the page cache before the answer), RabbitMQ has durable
queues and persistent messages, which it confirms after a sync. With `sync` Redis syncs before each answer; NATS 2.9 cannot.
"""

import random
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from benchmarks.frames import BODY_BYTES, QUEUES, TOPIC, Prepared
from benchmarks.targets import Target, ready, spawn
from tests.ports import free_port

TAG, KEY = b"TagA", b"order-0000000001"
_STREAMS = [f"{TOPIC}-{queue}".encode() for queue in range(QUEUES)]
_PROGRAMS = {  # name -> program, Debian's package
    "Redis Streams": ("redis-server", "redis-server"),
    "NATS JetStream": ("nats-server", "nats-server"),
    "RabbitMQ": ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"),
}
NAMES = tuple(_PROGRAMS)


def missing(name: str, sync: bool) -> str:
    """Why this one cannot be measured; "" if it can."""
    program, package = _PROGRAMS[name]
    if sync and name == "NATS JetStream":
        return "it has no setting to sync before it answers (2.9)"
    return "" if shutil.which(program) else f"no {program} here: apt install {package}"


def start(name: str, folder: Path, sync: bool) -> Target:
    folder.mkdir(parents=True)
    return {"Redis Streams": _start_redis, "NATS JetStream": _start_nats, "RabbitMQ": _start_rabbitmq}[name](folder, sync)


def prepare(folder: Path) -> dict[str, Prepared]:
    """Files for `load`, by `<codec>-<kind>`."""
    random.seed(2)
    folder.mkdir(parents=True, exist_ok=True)
    bodies = [random.randbytes(BODY_BYTES) for _ in _STREAMS]
    redis = [
        _redis(b"XADD", name, b"*", b"body", body, b"tag", TAG, b"key", KEY) for name, body in zip(_STREAMS, bodies, strict=True)
    ]
    nats = [_nats(name, body) for name, body in zip(_STREAMS, bodies, strict=True)]
    rabbit = [_published(name, body) for name, body in zip(_STREAMS, bodies, strict=True)]
    return {
        "redis-single": _write(folder / "redis", redis, "crlf2", None),
        "redis-batch": _write(folder / "redis-batch", redis, "crlf2", None),
        "nats-single": _write(folder / "nats", nats, "crlf2", (_NATS_HELLO, b"PONG\r\n")),
        "rabbitmq-single": _write(folder / "rabbitmq", rabbit, "amqp", (_AMQP_HELLO + _CONFIRM, b"\0\x55\0\x0b\xce")),
    }


def _write(file: Path, frames: list[bytes], form: str, greeting: tuple[bytes, bytes] | None) -> Prepared:
    file.write_bytes(b"".join(struct.pack(">I", len(frame)) + frame for frame in frames))
    hello = None
    if greeting is not None:
        hello = file.with_suffix(".hello")
        hello.write_bytes(struct.pack(">I", len(greeting[0])) + greeting[0] + greeting[1])
    return Prepared(file, max(frames[0].find(b"@@@@"), 0), form, 1, hello)


# --- Redis ------------------------------------------------------------------------------------------------------------


def _start_redis(folder: Path, sync: bool) -> Target:
    port = free_port()
    settings = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(folder),
        "appendonly": "yes",
        "save": "",
        "appendfsync": "always" if sync else "everysec",
        "daemonize": "no",
    }
    command = ["redis-server"]
    for key, value in settings.items():
        command += [f"--{key}", value]
    process = spawn(command, folder / "redis.log", folder)
    return ready(Target("Redis Streams", "", port, (process,), ("redis",), _redis_stored), folder / "redis.log")


def _redis(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _redis_stored(port: int) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link, link.makefile("rb") as answers:
        link.sendall(b"".join(_redis(b"XLEN", name) for name in _STREAMS))
        return sum(int(answers.readline()[1:]) for _ in _STREAMS)


# --- NATS -------------------------------------------------------------------------------------------------------------

_NATS_HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.@@@@ 1\r\nPING\r\n'


def _start_nats(folder: Path, sync: bool) -> Target:
    del sync
    port = free_port()
    command = ["nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "store")]
    process = spawn(command, folder / "nats.log", folder)
    target = ready(Target("NATS JetStream", "", port, (process,), ("nats",), _nats_stored), folder / "nats.log")
    for name in _STREAMS:
        text = b'{"name":"%b","subjects":["%b"],"storage":"file","retention":"limits","num_replicas":1}' % (name, name)
        answer = _nats_ask(port, b"$JS.API.STREAM.CREATE." + name, text)
        assert b'"error"' not in answer, answer
    return target


def _nats(subject: bytes, body: bytes) -> bytes:
    headers = b"NATS/1.0\r\nTag: %b\r\nKey: %b\r\n\r\n" % (TAG, KEY)
    return b"HPUB %b _INBOX.@@@@ %d %d\r\n%b%b\r\n" % (subject, len(headers), len(headers) + len(body), headers, body)


def _nats_ask(port: int, subject: bytes, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link, link.makefile("rb") as answers:
        link.sendall(_NATS_HELLO + b"PUB %b _INBOX.@@@@ %d\r\n%b\r\n" % (subject, len(text), text))
        while not answers.readline().startswith(b"MSG "):
            pass
        return answers.readline()


def _nats_stored(port: int) -> int:
    found = [_nats_ask(port, b"$JS.API.STREAM.INFO." + name, b"") for name in _STREAMS]
    return sum(int(text.partition(b'"messages":')[2].partition(b",")[0]) for text in found)


# --- RabbitMQ ---------------------------------------------------------------------------------------------------------


def _method(channel: int, method: tuple[int, int], arguments: bytes) -> bytes:
    return _amqp(1, channel, struct.pack(">HH", *method) + arguments)


def _amqp(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


_CONFIRM = _method(1, (85, 10), b"\0")
_AMQP_HELLO = b"".join(
    (
        b"AMQP\0\0\x09\x01",
        _method(0, (10, 11), _long(b"") + _short(b"PLAIN") + _long(b"\0guest\0guest") + _short(b"en_US")),
        _method(0, (10, 31), struct.pack(">HIH", 2047, 131072, 0)),
        _method(0, (10, 40), _short(b"/") + b"\0\0"),
        _method(1, (20, 10), _short(b"")),
    )
)


def _start_rabbitmq(folder: Path, sync: bool) -> Target:
    del sync
    port, names_port = free_port(), free_port()
    names = spawn(
        ["epmd", "-port", str(names_port), "-address", "127.0.0.1"], folder / "epmd.log", folder
    )  # else it stays behind
    settings = {
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODENAME": f"bench{port}@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()), "RABBITMQ_MNESIA_BASE": str(folder / "store"), "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_PID_FILE": str(folder / "pid"), "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder), "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"), "HOME": str(folder),
    }  # fmt: skip
    process = spawn([_PROGRAMS["RabbitMQ"][0]], folder / "rabbitmq.log", folder, settings)
    target = ready(Target("RabbitMQ", "", port, (names, process), ("rabbitmq",), _rabbitmq_stored), folder / "rabbitmq.log")
    _declare(port, passive=False)
    return target


def _published(queue: bytes, body: bytes) -> bytes:
    """To the default exchange: properties `headers` (tag, key) and `delivery-mode` persistent."""
    table = b"".join(_short(name) + b"S" + _long(value) for name, value in ((b"tag", TAG), (b"key", KEY)))
    properties = struct.pack(">HHQH", 60, 0, len(body), 1 << 13 | 1 << 12) + _long(table) + b"\x02"
    return _method(1, (60, 40), b"\0\0" + _short(b"") + _short(queue) + b"\0") + _amqp(2, 1, properties) + _amqp(3, 1, body)


def _declare(port: int, passive: bool) -> int:
    """Makes the queues; messages in them."""
    total = 0
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link, link.makefile("rb") as answers:
        link.sendall(_AMQP_HELLO)
        for name in _STREAMS:
            link.sendall(_method(1, (50, 10), b"\0\0" + _short(name) + bytes([1 if passive else 2]) + _long(b"")))
        for _ in _STREAMS:
            total += _until_declared(answers.read)
    return total


def _until_declared(read: Callable[[int], bytes]) -> int:
    while True:
        _, _, size = struct.unpack(">BHI", read(7))
        payload = read(size + 1)
        if payload[:4] == struct.pack(">HH", 50, 11):
            return int(struct.unpack_from(">I", payload, 5 + payload[4])[0])
        assert payload[:4] != struct.pack(">HH", 20, 40), payload


def _rabbitmq_stored(port: int) -> int:
    return _declare(port, passive=True)
