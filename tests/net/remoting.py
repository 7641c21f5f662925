"""A peer's side of RocketMQ's spelling, for tests."""

from typing import Any

from rmq.log.records import plain
from rmq.net.remoting.codec import Border, Remoting
from rmq.net.remoting.headers import Header, read

BORDER = Border(plain, "DefaultCluster", store_host=("10.0.0.1", 10911))


def spelling(ip: str = "10.0.0.9") -> Remoting:
    return BORDER.spelling((ip, 4000))


def decode(frame: bytes, ip: str = "10.0.0.9") -> tuple[Any, int, bool, Any, int]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return spelling(ip).decode(frame[4:])


def parts(frame: bytes) -> tuple[Header, bytes]:
    header, body = read(frame[4:], 1 << 20)
    return header, bytes(body)
