"""Frames that are nearly right: commands of every kind and recorded flows of RocketMQ, with values, types and bytes changed.

Most mutants change a command and leave its frame whole, so that it reaches the handlers; `damaged` ones may end the connection.
Everything comes from the seed. Administrative commands never name a real node, and peers never acknowledge what they do not have:
a group would obey such orders and believe such lies, and that is no fault.
"""

import base64
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgpack

from rmq.log.records import record
from rmq.net import commands as c
from rmq.net.commands.peers import (
    AckLog,
    AddPeer,
    AnnounceLeader,
    AskVote,
    FetchLog,
    IntroducePeer,
    Promote,
    ReadLog,
    ReadSnapshot,
    RemovePeer,
    ResignLeader,
    TransferLeader,
)
from rmq.net.remoting.headers import Header, read, write

WIRE = Path(__file__).parent.parent / "data" / "wire"
NAMESERVER = (
    c.GetRoute,
    c.GetClusterInfo,
    c.GetTopicList,
    c.RegisterBroker,
    c.ChangeTopics,
    c.UnregisterBroker,
    c.DeleteTopicInNameserver,
)
PEERS = (IntroducePeer, FetchLog, AckLog, AskVote, AnnounceLeader, ResignLeader, ReadSnapshot, ReadLog)
ORDERS = (AddPeer, RemovePeer, TransferLeader, Promote)
BROKER = tuple(kind for kind in c.CODES if kind not in (*NAMESERVER, *PEERS, c.Goodbye))

_RECORD = record.draft("T0", b"body", b"TAGS\x01a\x02UNIQ_KEY\x010A\x02", born_timestamp=1000, born_host=b"\x7f\0\0\1\0\0\0\1")
INTS = (
    0, 0, 1, 1, 2, 3, 5, 18, 100, -1, -2, 127, 128, 255, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40,
    2**53, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64 - 1,
)  # fmt: skip
TEXTS = (
    "", " ", "\x00", "\x01", "\x02", "a\x01b", "a\x02b", "a\nb", "..", "../../etc", "a/b", "a" * 127, "a" * 128, "b" * 255,
    "c" * 256, "d" * 32768, "%RETRY%g0", "%RETRY%", "%DLQ%g0", "%DLQ%", "%SYS%", "é", "🙂", "\ud7ff", "-1", "0", "007", "NaN",
    "1e9", "9" * 30, "{}", "[]", "null", "true", "*", "a||b", "||", "T0 || T1", "127.0.0.1:1", "127.0.0.1", ":", "[::1]:0", "a b",
    "%LMQ%", "%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%a,T0", "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02", "INNER_MULTI_DISPATCH\x01,\x02",
    "INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x017\x02", "INNER_NUM\x013\x02INNER_BASE\x011\x02",
    "rmq_sys_STATE", "rmq_sys_EPOCH", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102",
    "rmq_sys_REVIVE_LOG_Solid", "0 0 60000 0 0 Solid 0 0", "0 0 60000 0 0 Solid 0", "1 2 3", "v1 T0 Solid 99999999999999 k",
    "djEgVDAgU29saWQgOTk5OTk5OTk5OTk5OTk5IGs=", "7F00000100002A9F0000000000000000", "7F00000100002A9FFFFFFFFFFFFFFFFF",
)  # fmt: skip
_DISPATCHED = (  # to light queues
    b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02",
    b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%a\x02",
    b"INNER_MULTI_DISPATCH\x01%LMQ%\x02",
    b"INNER_MULTI_DISPATCH\x01" + b",".join(b"%%LMQ%%%d" % number for number in range(500)) + b"\x02",
    b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x019\x02",
    b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02DELAY\x011\x02",
)
BLOBS = (
    b"", b"\0", _RECORD, _RECORD, _RECORD * 3, _RECORD[:-1], _RECORD[:60], _RECORD + b"x", b"\xff" * 100, _RECORD[4:],
    b"\0\0\0\0" + _RECORD[4:], b"\x7f\xff\xff\xff" + _RECORD[4:],
    record.draft("T0", b"", b"DELAY\x013\x02TRAN_MSG\x01true\x02", born_timestamp=-1, born_host=bytes(20)),
    *(record.draft("T0", b"x", each, born_timestamp=1000, born_host=bytes(8)) for each in _DISPATCHED),
    record.draft("T3", _RECORD * 2, b"INNER_NUM\x012\x02", sys_flag=0xC0, born_timestamp=1000, born_host=bytes(8)),
    record.draft("T0", b"x", b"TIMER_DELIVER_MS\x0199999999999999\x02", born_timestamp=2**62, born_host=bytes(8)),
)  # fmt: skip
LONE = ("T0", "T1", "T2", "T3", "no-such")
GROUPS = ("g0", "g1", "g2", "g3")


class Mutant(NamedTuple):
    """`code`: of the request it was made from. `damaged`: the connection may end by it. `oneway`: no answer is due."""

    frame: bytes
    code: int
    damaged: bool


class Mutator:
    """`broker`: the name that the target calls itself. `known`: fields that have to be right to get far, by their names."""

    def __init__(self, chance: random.Random, broker: str, known: dict[str, Any] | None = None) -> None:
        self._chance = chance
        self._known = {"broker_name": broker, "group": broker, "cluster_name": "DefaultCluster"} | (known or {})
        self._recorded = _recorded()

    # --- native -------------------------------------------------------------------------------------------------------

    def native(self, kind: type[Any], call_id: int) -> Mutant:
        chance, code = self._chance, int(c.CODES[kind])
        values = [self._good(name, hint) for name, hint in _fields(kind)]
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            if values:
                at = chance.randrange(len(values))
                _, hint = _fields(kind)[at]
                values[at] = self._odd(hint) if chance.random() < 0.85 else self._mistyped()
        self._keep_harmless(kind, values)
        if chance.random() < 0.05 and values:
            values = values[: chance.randrange(len(values))] if kind not in ORDERS else values
        if chance.random() < 0.05:
            values.append(self._mistyped())
        flags = chance.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 3, 255, -1))
        return Mutant(_framed(msgpack.packb([code, call_id, flags, *values])), code, False)

    def damaged(self, whole: Mutant) -> Mutant:
        """Returns the frame with bytes changed, left out or put in, or with another length."""
        chance, body = self._chance, bytearray(whole.frame[4:])
        how = chance.randrange(5)
        if how == 0:
            for _ in range(chance.choice((1, 1, 3, 10))):
                body[chance.randrange(len(body))] = chance.randrange(256)
        elif how == 1:
            del body[chance.randrange(len(body)) :]
        elif how == 2:
            at = chance.randrange(len(body))
            body[at:at] = chance.randbytes(chance.choice((1, 4, 50)))
        elif how == 3:
            return Mutant(chance.choice(INTS[:22]).to_bytes(8, "big", signed=True)[4:] + bytes(body), whole.code, True)
        else:
            body[0:1] = chance.randbytes(1)
        return Mutant(_framed(bytes(body)), whole.code, True)

    def _good(self, name: str, hint: Any) -> Any:
        """Returns a value that the field may well have."""
        if name in self._known:
            return self._known[name]
        chance = self._chance
        if hint is str:
            if "topic" in name:
                return chance.choice(LONE)
            return chance.choice(GROUPS) if "group" in name else chance.choice(("*", "c", "TAG", "k"))
        if hint is int:
            return chance.choice((0, 0, 1, 2, 3, 6, 100))
        if hint is bytes:
            return _RECORD
        if hint is bool:
            return chance.random() < 0.3
        if hint is float:
            return chance.choice((0.0, 0.1, -1.0))
        if get_origin(hint) is list:
            return [self._good(name, get_args(hint)[0]) for _ in range(chance.choice((0, 1, 2)))]
        if get_origin(hint) is dict:
            return {"0": self._good(name, get_args(hint)[1])}
        return [self._good(part, of) for part, of in _fields(hint)]

    def _odd(self, hint: Any) -> Any:
        chance = self._chance
        if hint is str:
            return chance.choice(TEXTS)
        if hint is int:
            return chance.choice(INTS)
        if hint is bytes:
            return chance.choice(BLOBS)
        if hint is bool:
            return chance.random() < 0.5
        if hint is float:
            return chance.choice((float("inf"), float("nan"), -1e300, 1e300, 0.0, 5))
        if get_origin(hint) is list:
            return [self._odd(get_args(hint)[0]) for _ in range(chance.choice((0, 1, 2, 20)))]
        if get_origin(hint) is dict:
            return {chance.choice(TEXTS): self._odd(get_args(hint)[1]) for _ in range(chance.choice((1, 3)))}
        return [self._odd(of) if chance.random() < 0.4 else self._good(part, of) for part, of in _fields(hint)]

    def _mistyped(self) -> Any:
        chance = self._chance
        return chance.choice((None, True, [], {}, [[[]]], {"a": 1}, 1.5, "x", b"x", 2**64 - 1, chance.choice(TEXTS), [None] * 50))

    def _keep_harmless(self, kind: type[Any], values: list[Any]) -> None:
        names = [name for name, _ in _fields(kind)]
        if kind in ORDERS and names:
            values[0] = self._chance.choice([text for text in TEXTS if text])
        if "ack" in names:
            values[names.index("ack")] = self._chance.choice((0, -1, -(2**63)))

    # --- remoting -----------------------------------------------------------------------------------------------------

    def remoting(self, opaque: int) -> Mutant:
        chance = self._chance
        header, body = chance.choice(chance.choice(self._recorded))
        ext, code, flag, version = dict(header.ext), header.code, 0, header.version
        for name in ext:
            if name in _TOPIC_KEYS:
                ext[name] = chance.choice(LONE)
        if "i" in ext and chance.random() < 0.6:  # a send's properties
            ext["i"] = chance.choice(_DISPATCHED).decode() + ext["i"]
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            self._mutate_ext(ext)
        if body and chance.random() < 0.4:
            body = self._mutate_body(body)
        if chance.random() < 0.04:
            code = chance.choice((*INTS[:20], 310, 105, 103, 60010, 60012, 60022, 200050))
        if chance.random() < 0.1:
            flag = chance.choice((1, 2, 3, 7))
        if chance.random() < 0.05:
            version = chance.choice((0, 1, 400, 513, 32767))
        code = code if -(2**31) <= code < 2**31 else 0
        return Mutant(write(chance.random() < 0.5, code, flag, opaque, "", ext, body, version), header.code, False)

    def _mutate_ext(self, ext: dict[str, str]) -> None:
        chance = self._chance
        how = chance.random()
        if how < 0.1 or not ext:
            ext[chance.choice(("topic", "a", "queueId", "extra", "group", "batch", "order", "bname"))] = chance.choice(TEXTS[:-8])
        elif how < 0.2:
            del ext[chance.choice(list(ext))]
        else:
            odd = str(chance.choice(INTS)) if chance.random() < 0.5 else chance.choice(TEXTS)
            ext[chance.choice(list(ext))] = odd if len(odd) < 32767 else odd[:300]

    def _mutate_body(self, body: bytes) -> bytes:
        chance = self._chance
        how = chance.randrange(4)
        if how == 0:
            return chance.choice(BLOBS)
        if how == 1 and body[:1] in b"{[":
            return self._mutate_json(body)
        if how == 2:
            return body[: chance.randrange(len(body))]
        broken = bytearray(body)
        for _ in range(chance.choice((1, 2, 5))):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        return bytes(broken)

    def _mutate_json(self, body: bytes) -> bytes:
        """Replaces a value somewhere in it by another one, perhaps of another type."""
        chance = self._chance
        try:
            whole = json.loads(body)
        except ValueError:
            return body
        part: Any = whole
        while isinstance(part, (dict, list)) and part:
            key = chance.choice(list(part)) if isinstance(part, dict) else chance.randrange(len(part))
            if not isinstance(part[key], (dict, list)) or not part[key] or chance.random() < 0.3:
                part[key] = chance.choice((chance.choice(INTS), chance.choice(TEXTS), self._mistyped_json()))
                break
            part = part[key]
        return json.dumps(whole).encode("utf-8", "surrogatepass")

    def _mistyped_json(self) -> Any:
        return self._chance.choice((None, True, [], {}, [1], {"a": {}}, 1.5, "x", [None] * 20))


_TOPIC_KEYS = ("topic", "b", "defaultTopic")
_known_fields: dict[type[Any], list[tuple[str, Any]]] = {}
_flows: list[list[tuple[Header, bytes]]] = []


def _fields(kind: type[Any]) -> list[tuple[str, Any]]:
    if kind not in _known_fields:
        hints = get_type_hints(kind)
        _known_fields[kind] = [(name, hints[name]) for name in kind._fields]
    return _known_fields[kind]


def _recorded() -> Sequence[list[tuple[Header, bytes]]]:
    """Returns the recorded requests of RocketMQ's programs by code, so that rare ones are sent as often as others."""
    if not _flows:
        by_code: dict[int, list[tuple[Header, bytes]]] = {}
        for path in sorted(WIRE.glob("*/*.gz")):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                for line in map(json.loads, file):
                    if line.get("dir") == "c2s" and line.get("kind") == "request":
                        header, body = read(base64.b64decode(line["raw"])[4:], 1 << 20)
                        if header.code not in (102, 305):  # of mqadmin against RocketMQ's own store
                            by_code.setdefault(header.code, []).append((header, body))
        _flows.extend(by_code.values())
    return _flows


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body
