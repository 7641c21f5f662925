"""A peer's side of RocketMQ's codec, for tests."""

from typing import Any

from rmq.log.records import fastpath
from rmq.net.codec.frames import decode_frame
from rmq.net.remoting.codec import Remoting, RemotingSettings
from rmq.net.remoting.headers import Header, read

REMOTING_SETTINGS = RemotingSettings(fastpath, "DefaultCluster", store_host=("10.0.0.1", 10911))


def codec(ip: str = "10.0.0.9") -> Remoting:
    return REMOTING_SETTINGS.codec((ip, 4000))


def decode(frame: bytes, ip: str = "10.0.0.9") -> tuple[Any, int, bool, Any, int]:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return decode_frame(codec(ip), frame[4:])


def parts(frame: bytes) -> tuple[Header, bytes]:
    header, body = read(frame[4:], 1 << 20)
    return header, bytes(body)
