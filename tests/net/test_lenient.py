"""What clients in other languages write, read as RocketMQ's own JSON reader reads it [fastjson2]."""

from typing import Any

import orjson
import pytest

from rmq.log.records import fastpath
from rmq.model import Subscription
from rmq.net.codec.frames import decode_frame
from rmq.net.commands import GetMaxOffset, Heartbeat
from rmq.net.remoting.codec import RemotingSettings
from rmq.net.remoting.headers import write

CODEC = RemotingSettings(fastpath).codec(("10.0.0.9", 4000))


def decode(frame: bytes) -> tuple[Any, int, bool, Any, int]:
    return decode_frame(CODEC, frame[4:])


CPP_HEARTBEAT = (
    b'{"clientID":"7-10.0.0.1@DEFAULT","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":1,'
    b'"subscriptionDataSet":[{"subString":"*","subVersion":"1795325658554","topic":"t","codeSet":["5"]}]}],'
    b'"producerDataSet":null}\n\0'
)


def heartbeat(body: bytes) -> Heartbeat:
    found, *_ = decode(write(False, 34, 0, 8, "", {}, body))
    assert isinstance(found, Heartbeat), found
    return found


def test_the_heartbeat_of_the_cpp_client_is_read() -> None:
    """Enums as ordinals, numbers as text, null for an empty list [fastjson2]."""
    found = heartbeat(CPP_HEARTBEAT)
    (consumer,) = found.consumers
    assert consumer[:4] == ("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
    assert consumer.subscriptions == [Subscription("t", "*", version=1795325658554, codes=[5])]
    assert found.producers == []


@pytest.mark.parametrize("written", ["0", '"0"', '"BROADCASTING"', '"broadcasting"'])
def test_enums_are_read_by_name_and_ordinal(written: str) -> None:
    """Recorded against RocketMQ 5.5.0's reader; a body of each request that has an enum."""
    (consumer,) = heartbeat(b'{"consumerDataSet":[{"messageModel":%s}]}' % written.encode()).consumers
    assert consumer.message_model == "BROADCASTING"
    as_mode = written.replace("BROADCASTING", "PULL").replace("broadcasting", "pull").encode()
    mode, *_ = decode(write(False, 401, 0, 8, "", {}, b'{"mode":%s}' % as_mode))
    assert mode.mode == "PULL"
    asked, *_ = decode(write(False, 400, 0, 8, "", {}, b'{"messageModel":%s}' % written.encode()))
    assert asked.message_model == "BROADCASTING"


@pytest.mark.parametrize(("written", "read_as"), [("true", True), ("1", True), ('"true"', True), ('"0"', False), ('""', False)])
def test_booleans_are_read_from_numbers_and_text(written: str, read_as: bool) -> None:
    assert heartbeat(b'{"withoutSub":%s}' % written.encode()).without_sub is read_as


@pytest.mark.parametrize(("written", "read_as"), [("5", 5), ('"5"', 5), ("5.7", 5), ("1e3", 1000), ('""', 0), ("true", 1)])
def test_numbers_are_read_from_text_and_fractions(written: str, read_as: int) -> None:
    assert heartbeat(b'{"heartbeatFingerprint":%s}' % written.encode()).heartbeat_fingerprint == read_as


def test_one_alone_needs_no_brackets_and_numbers_are_text() -> None:
    assert heartbeat(b'{"clientID":5,"producerDataSet":{"groupName":1.5}}')[:2] == ("5", ["1.5"])


def test_headers_may_have_ordinals_and_numbers_as_text() -> None:
    ext = {"topic": "t", "queueId": 3}
    data = orjson.dumps({"code": "30", "opaque": "7", "flag": None, "language": 1, "version": "63", "extFields": ext})
    thing, call_id, _, context, _ = decode_frame(CODEC, len(data).to_bytes(4, "big") + data)
    assert (thing, call_id) == (GetMaxOffset("t", 3), 7)
    assert CODEC.greet(thing, context) == ("", "CPP", 63)
