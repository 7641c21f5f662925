"""Frames recorded from Apache RocketMQ's own programs: all decode, and our answers to them look like theirs."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmq.errors import Refusal
from rmq.log.records import fastpath
from rmq.log.records.record import iterate
from rmq.net.codec.frames import decode_frame
from rmq.net.codec.limits import Limits
from rmq.net.codec.native import Native
from rmq.net.codec.wire import Reader
from rmq.net.commands import CODES, Send
from rmq.net.remoting.codec import Remoting, RemotingSettings
from rmq.net.remoting.headers import Header, read
from tests.net import java_json, java_peer

WIRE = Path(__file__).parent.parent / "data" / "wire"
FILES = sorted(str(path.relative_to(WIRE)) for path in WIRE.glob("*/*.gz"))
LIMITS = Limits()


class Exchange(NamedTuple):
    """A request and the answer it got, both as recorded."""

    request: bytes
    answer: bytes


def settings() -> RemotingSettings:
    return RemotingSettings(fastpath, "DefaultCluster", store_host=("127.0.0.1", 22911))


def frames(name: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    with gzip.open(WIRE / name, "rt", encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            if "header" in line:
                yield line, base64.b64decode(line["raw"])


def exchanges(name: str) -> Iterator[Exchange]:
    asked: dict[tuple[int, int], bytes] = {}
    for line, raw in frames(name):
        key = (line["conn"], line["header"]["opaque"])
        if line["dir"] == "c2s" and line["kind"] == "request":
            asked[key] = raw
        elif line["dir"] == "s2c" and line["kind"] == "response" and key in asked:
            yield Exchange(asked.pop(key), raw)


def parts(raw: bytes) -> tuple[Header, bytes]:
    header, body = read(raw[4:], LIMITS.max_header_bytes)
    return header, bytes(body)


@pytest.mark.parametrize("name", FILES)
def test_whole_connections_decode_at_once_and_byte_by_byte(name: str) -> None:
    """Every frame is a command, an answer, or refused as not supported; never anything worse (S5)."""
    streams: dict[tuple[int, str], bytes] = {}
    for line, raw in frames(name):
        key = (line["conn"], line["dir"])
        streams[key] = streams.get(key, b"") + raw
    for stream in streams.values():
        once = Reader(LIMITS, Native(1), lambda: settings().codec(("10.0.0.9", 4000)))
        received = once.feed(stream)
        assert not once.half_frame
        for thing, *_ in received:
            if isinstance(thing, Refusal):
                assert thing.code == 3, thing
        slowly = Reader(LIMITS, Native(1), lambda: settings().codec(("10.0.0.9", 4000)))
        pieces = [slowly.feed(stream[at : at + 1000]) for at in range(0, len(stream), 1000)]
        assert [one[:3:2] for piece in pieces for one in piece if type(one[0]) in CODES] == [
            one[:3:2] for one in received if type(one[0]) in CODES
        ]


COMPARED = {
    11, 14, 17, 21, 28, 29, 30, 31, 34, 35, 36, 38, 41, 42, 105, 106, 200, 201, 202, 203, 206, 207, 208, 215, 216, 300, 310, 320,
    351, 361, 370, 400, 401, 200050, 200051, 200053,
}  # fmt: skip
LEFT_OUT = {  # sizes of paged answers: we send everything at once; the region, which nobody reads from the answer to 370
    "totalTopicNum",
    "totalGroupNum",
    "MSG_REGION",
}


@pytest.mark.parametrize("name", FILES)
def test_our_answer_made_of_theirs_is_theirs(name: str) -> None:
    """Code, field names and values and the body are the same; only the order inside JSON objects may differ."""
    for exchange in exchanges(name):
        codec = settings().codec(("127.0.0.1", 4000))
        request, call_id, oneway, context, _ = decode_frame(codec, exchange.request[4:])
        asked, _ = parts(exchange.request)
        theirs, their_body = parts(exchange.answer)
        if isinstance(request, Refusal) or asked.code not in COMPARED | {15}:
            continue
        ours, our_body = parts(_answered(codec, request, call_id, context, theirs, their_body))
        assert not oneway
        assert (ours.code, ours.flag, ours.opaque, ours.version) == (theirs.code, 1, theirs.opaque, 513)
        assert _comparable(ours.ext) == _comparable(theirs.ext), asked.code
        if our_body[:1] == b"{":
            assert _unordered(java_json.loads(our_body)) == _unordered(java_json.loads(their_body)), asked.code
            assert _has_bare_keys(our_body) == _has_bare_keys(their_body), asked.code
        else:
            assert our_body == their_body


def _comparable(ext: dict[str, str]) -> dict[str, str]:
    """Of the ids of a batch the first and how many: our records are longer, they carry a checksum."""
    ids = ext.get("msgId", "").split(",")
    return {name: value for name, value in ext.items() if name not in LEFT_OUT} | {"msgId": f"{ids[0]} of {len(ids)}"}


def _answered(codec: Remoting, request: Any, call_id: int, context: Any, theirs: Header, body: bytes) -> bytes:
    good = theirs.code == 0 or (theirs.code in (19, 20, 21) and "nextBeginOffset" in theirs.ext) or "popTime" in theirs.ext
    if not good:
        return codec.refusal(call_id, context, Refusal(theirs.code, theirs.remark))
    answer = java_peer.read_answer(theirs, body, type(request))
    return codec.answer(call_id, context, answer, theirs.remark)


def _unordered(value: Any) -> Any:
    """Java's sets come in any order; the version of static topics, which we have not, is the time theirs started."""
    if isinstance(value, dict):
        return {key: _unordered(part) for key, part in value.items() if key != "mappingDataVersion"}
    return sorted((_unordered(part) for part in value), key=str) if isinstance(value, list) else value


def _has_bare_keys(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return True
    return False


def test_the_recordings_hold_what_we_claim_to_have_compared() -> None:
    """Each code of the comparison above occurs with a good answer."""
    codes: set[int] = set()
    for name in FILES:
        for exchange in exchanges(name):
            if parts(exchange.answer)[0].code == 0:
                codes.add(parts(exchange.request)[0].code)
    assert codes >= COMPARED


def test_a_recorded_send_becomes_the_record_rocketmq_stored() -> None:
    """What 5.5.0 adds to a message is what we add: region, trace switch, cluster; the rest is unchanged."""
    sent: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    for exchange in exchanges("client-5.5.0-json/push-concurrent.jsonl.gz"):
        codec = settings().codec(("127.0.0.1", 4000))
        request, *_ = decode_frame(codec, exchange.request[4:])
        _, body = parts(exchange.answer)
        if isinstance(request, Send):
            sent |= {_unique_key(record.properties): record for record in iterate(request.records)}
        elif parts(exchange.request)[0].code == 11 and body:
            stored |= {_unique_key(record.properties): record for record in iterate(body)}
    both = sent.keys() & stored.keys()
    assert both
    for key in both:
        ours, theirs = sent[key], stored[key]
        assert _pairs(ours.properties) - {"__CRC32#"} == _pairs(theirs.properties)
        assert (
            ours._replace(
                total_size=theirs.total_size,
                queue_offset=theirs.queue_offset,
                physical_offset=theirs.physical_offset,
                store_timestamp=theirs.store_timestamp,
                store_host=theirs.store_host,
                born_host=theirs.born_host,
                properties=theirs.properties,
                queue_id=theirs.queue_id,
            )
            == theirs
        )


def _pairs(properties: bytes) -> set[str]:
    return {entry if not entry.startswith("__CRC32#") else "__CRC32#" for entry in properties.decode().split("\x02") if entry}


def _unique_key(properties: bytes) -> str:
    return next(entry for entry in properties.decode().split("\x02") if entry.startswith("UNIQ_KEY\x01"))
