"""The properties of a message as one string of bytes: name 0x01 value 0x02, repeated.

There is no escaping, so names and values may hold neither byte. Pure: no I/O, no clock.
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType

from rmq.codes import ResponseCode
from rmq.errors import InvalidArgument, Refusal
from rmq.javahash import tags_code

CRC_NAME = b"__CRC32#"
CRC_BYTES = 20  # "__CRC32#", 0x01, ten digits, 0x02
KEPT_MAPS = 128  # properties whose maps are remembered: 8 MB if all are as long as they may be
MAX_CODES = 1024  # hashes of tags that are remembered: a tag may have 32 KB
MAX_PROPERTIES_BYTES = 32_747  # of the user; 20 more for the checksum make RocketMQ's 32 767
LIGHT_NAMES = "INNER_MULTI_DISPATCH"  # of light queues; the one reserved name that a sender may write (`rmq.log.records.lights`)
LIGHT_OFFSETS = "INNER_MULTI_QUEUE_OFFSET"  # the message's offsets in them
LIGHT_MARK = LIGHT_NAMES.encode() + b"\x01"  # in the properties of each such message

# Names that only a broker may write. A client that sends one is refused, or loses it (`strip_reserved`).
RESERVED = frozenset(
    {
        b"RMQ_SRC",
        b"POP_CK",
        b"POP_CK_OFFSET",
        b"REAL_TOPIC",
        b"REAL_QID",
        b"INNER_NUM",
        b"INNER_BASE",
        LIGHT_NAMES.encode(),
        LIGHT_OFFSETS.encode(),
        b"TIMER_OUT_MS",
        b"TIMER_ENQUEUE_MS",
        b"TIMER_DEQUEUE_MS",
        b"TIMER_ROLL_TIMES",
        b"TIMER_ROLL_LABEL",
        b"TIMER_DELAY_LEVEL",
    }
)
_TIMERS = frozenset({b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"})

_LIGHT_NAMES = LIGHT_NAMES.encode()
_keys = re.compile(rb"(?<![^\x02])KEYS\x01([^\x02]+)").findall
_tombstone = re.compile(rb"(?<![^\x02])TOMBSTONE\x01true(?![^\x02])").search  # a property of the program's own
_STRIPPED = RESERVED | {CRC_NAME}
_WATCHED = _STRIPPED | _TIMERS | {b"DELAY", b"TRAN_MSG", b""}


def properties_to_bytes(properties: Mapping[str, str]) -> bytes:
    """The stored form, with the closing 0x02 that RocketMQ 5 writes. Raises InvalidArgument for 0x02, or 0x01 in a name."""
    if not properties:
        return b""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    more = text.count("\x01") != len(properties)
    if text.count("\x02") != len(properties) or "" in properties or (more and "\x01" in "".join(properties)):
        raise InvalidArgument("a property needs a name without the bytes 0x01 and 0x02, and a value without 0x02")
    return text.encode()


def bytes_to_properties(properties: bytes) -> dict[str, str]:
    """The map, as RocketMQ reads it: without empty names and values, the last of two equal names wins.

    Bytes that are not UTF-8 come out as U+FFFD [MessageDecoder.string2messageProperties].
    """
    found = {}
    for pair in properties.decode("utf-8", "replace").split("\x02"):
        name, mark, value = pair.partition("\x01")
        if mark and name and value:
            found[name] = value
    return found


def keys_in(properties: bytes) -> bytes:
    """The KEYS among raw properties, all of them as one; b"" if there are none."""
    found = _keys(properties)
    return found[-1] if found else b""


def is_tombstone(properties: bytes) -> bool:
    """Whether the message with these raw properties deletes its key in a compacted topic."""
    return _tombstone(properties) is not None


@lru_cache(maxsize=KEPT_MAPS)
def kept_properties(properties: bytes) -> Mapping[str, str]:
    """As `bytes_to_properties`, for messages that wait: several look at one, one after the other."""
    return MappingProxyType(bytes_to_properties(properties))


def strip_names(properties: bytes, names: Collection[bytes]) -> bytes:
    """The same properties without those."""
    return b"".join([pair + b"\x02" for pair in properties.split(b"\x02") if pair and pair.partition(b"\x01")[0] not in names])


def strip_reserved(properties: bytes) -> bytes:
    """The same properties without those that only a broker may write (stale copies in re-sent messages)."""
    return strip_names(properties, _STRIPPED)


def is_number(text: str) -> bool:
    """Whether this is a whole number that fits a field of the log; Apache RocketMQ's records may hold anything there."""
    return text.isdecimal() and len(text) < 19


@lru_cache(maxsize=MAX_CODES)
def code_of(tag: bytes) -> int:
    """`tags_code` of a tag as it is stored."""
    return tags_code(tag.decode("utf-8", "replace"))


def tags_code_in(properties: bytes) -> int:
    """`tags_code` of the TAGS among raw properties."""
    at = properties.rfind(b"TAGS\x01")
    if at < 0:
        return 0
    end = properties.find(b"\x02", at)
    tag = properties[at + 5 : end] if end > 0 else properties[at + 5 :]
    if not tag or (at and properties[at - 1] != 2):  # empty, or the end of another name: read them all
        return tags_code(bytes_to_properties(properties).get("TAGS", ""))
    return code_of(tag)


def _pairs(one: str, two: str, plain: str, told: str = "", names: str = "", first: str = "") -> str:
    """`one`, `two`: the marks behind a name and behind a value, `plain`: what may stand in either. `told`: pairs that are looked
    at, `names`: of them and of others that no other pair may have, without the first letter; `first`: their first letters, if
    they are others than those of the usual ones."""
    reserved = rf"[_RPITD{first}](?:{names}_CRC32#|MQ_SRC|EAL_|OP_CK|NNER_|IMER_|RAN_MSG|ELAY{one}|AGS{one})"
    return rf"(?:{told}TAGS{one}([{plain}]++){two}|(?!{reserved})[{plain}]++{one}[{plain}]*+{two})*"


_LEVEL = "DELAY{one}([1-9][0-9]?){two}|"
_OWN_DELAY = "MQ_DELAY_MS{one}|"  # `delays.OWN_DELAY`, which a sender must not say


def _names_of_half(one: str) -> str:
    """Of a half's pairs that are told, and of those that say when it is asked after."""
    return rf"GROUP{one}|_transactionId__{one}|HECK_IMMUNITY_|RANSACTION_CHECK_|"


def _times(one: str, two: str) -> str:
    """Pairs that say when a message is to come; they are told."""
    return "".join(rf"{name}{one}([0-9]{{1,15}}){two}|" for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"))


def given_pairs(one: str, two: str, plain: str, of_half: bool = False, leveled: bool = False, timed: bool = False) -> bytes:
    """An expression for nearly all properties of a message that is no record yet: as `fast_properties`, but without the checksum
    and without what the broker adds. Groups: unique id, tag. JSON writes marks in another way. `of_half`: of a half, in which
    TRAN_MSG=true and a producer group may be. `leveled`: a delay level may be, which is group 2. `timed`: the three kinds of
    times of its own may be, groups 2 to 4. Then the tag is the group behind them."""
    told = rf"UNIQ_KEY{one}([0-9A-Za-z]++){two}|"
    names = rf"SG_REGION{one}|RACE_ON{one}|LUSTER{one}|NIQ_KEY{one}|"
    if leveled:
        told += _LEVEL.format(one=one, two=two)
        names += _OWN_DELAY.format(one=one)
    if timed:
        told += _times(one, two)
    if of_half:
        told += rf"TRAN_MSG{one}true{two}|PGROUP{one}[{plain}]++{two}|"
        names += _names_of_half(one)
    return _pairs(one, two, plain, told, names, "CMU").encode()


_RAW = r"\x01", r"\x02", r"\x03-\x7f"
_PAIRS = _pairs(*_RAW).encode()
fast_properties = re.compile(_PAIRS + rb"__CRC32#\x01[0-9]{10}\x02").fullmatch
"""Matches nearly all properties: ASCII pairs, no name that begins like a reserved one, the checksum last. Group 1: the tag.

No pair can be read in two ways, so it takes time in proportion to the length (S10); its repetition is not possessive because
Python 3.11.2, which Debian has, matches nothing then. Properties that it does not match are not wrong yet.
"""
fast_pairs = re.compile(_PAIRS).fullmatch
"""The same without the checksum."""
fast_given, fast_given_half = (re.compile(given_pairs(*_RAW, of_half=which)).fullmatch for which in (False, True))
_HALF_TOLD = r"(TRAN_MSG)\x01true\x02|PGROUP\x01([\x03-\x7f]++)\x02|UNIQ_KEY\x01([\x03-\x7f]++)\x02|"
_HALF_NAMES = r"NIQ_KEY\x01|" + _names_of_half(r"\x01")
fast_half = re.compile(_pairs(*_RAW, _HALF_TOLD, _HALF_NAMES, "CU").encode() + rb"__CRC32#\x01[0-9]{10}\x02").fullmatch
"""The same as `fast_properties` of a half that its producer sent: TRAN_MSG=true may be there, and nothing that says when it is
asked after. Groups: TRAN_MSG, producer group, unique id, tag."""
_WAITING_TOLD = r"__transactionId__\x01[\x03-\x7f]++\x02|TRAN_MSG\x01true\x02|PGROUP\x01[\x03-\x7f]++\x02|"
_REAL = rb"REAL_TOPIC\x01([\x03-\x7f]++)\x02REAL_QID\x01([0-9]{1,9})\x02__CRC32#\x01[0-9]{10}\x02"
fast_waiting = re.compile(rb"(%b)" % _pairs(*_RAW, _WAITING_TOLD, _names_of_half(r"\x01"), "C").encode() + _REAL).fullmatch
"""The same of such a half as it waits. Groups: what its message keeps, the tag in it, topic, queue."""
_MARKS = {"one": _RAW[0], "two": _RAW[1]}
fast_given_leveled = re.compile(given_pairs(*_RAW, leveled=True)).fullmatch
fast_given_timed = re.compile(given_pairs(*_RAW, timed=True)).fullmatch
fast_leveled = re.compile(
    _pairs(*_RAW, _LEVEL.format(**_MARKS), _OWN_DELAY.format(**_MARKS)).encode() + rb"__CRC32#\x01[0-9]{10}\x02"
).fullmatch
"""The same as `fast_properties` of a message with a delay level. Groups: level, tag."""
fast_timed = re.compile(
    _pairs(*_RAW, _times(**_MARKS) + r"UNIQ_KEY\x01([\x03-\x7f]++)\x02|", r"NIQ_KEY\x01|", "U").encode()
    + rb"__CRC32#\x01[0-9]{10}\x02"
).fullmatch
"""The same of a message with a time of its own. Groups: its three kinds, unique id, tag."""
fast_delayed = re.compile(_pairs(*_RAW, r"DELAY\x01[1-9][0-9]?\x02|").encode() + _REAL).fullmatch
fast_timer = re.compile(
    _pairs(*_RAW, r"TIMER_(?:DELAY_SEC|DELAY_MS|DELIVER_MS|OUT_MS)\x01[0-9]{1,15}\x02|").encode() + _REAL
).fullmatch
"""The same of such messages as they wait. Groups: tag, topic, queue."""


def check_properties(buf: bytes, at: int, end: int) -> tuple[int, bool]:
    """The tag's hash, and whether a delay, a time, a transaction or a light queue is asked for.

    Refusal(MESSAGE_ILLEGAL) unless these are whole pairs, nothing reserved, `__CRC32#` last and once.
    """
    match = fast_properties(buf, at, end)
    if match is None:
        return check_thoroughly(buf[at:end])
    tag = match[1]
    return 0 if tag is None else code_of(tag), False


def check_thoroughly(properties: bytes) -> tuple[int, bool]:
    """As `check_properties`, slowly: pair by pair."""
    pending = _check_pairs(properties)
    if not properties.isascii():
        _check_utf8(properties)
    return tags_code_in(properties), pending


def _check_pairs(properties: bytes) -> bool:
    found: list[tuple[bytes, bytes]] = []
    *pairs, rest = properties.split(b"\x02")
    for pair in pairs:
        name, mark, value = pair.partition(b"\x01")
        if not mark:
            rest = pair
        found.append((name, value))
    if rest:
        raise _illegal("properties must be name, 0x01, value, 0x02, repeated")
    if not found or found[-1][0] != CRC_NAME or not (len(found[-1][1]) == 10 and found[-1][1].isdigit()):
        raise _illegal("properties must end with one __CRC32# property of ten digits, and hold it nowhere else")
    return _check_names(dict(found[:-1]))


def _check_utf8(properties: bytes) -> None:
    try:
        properties.decode()
    except UnicodeDecodeError as error:
        raise _illegal(f"properties are not UTF-8 at byte {error.start}") from error


def _check_names(found: Mapping[bytes, bytes]) -> bool:
    """Whether the message is to wait, or names light queues."""
    pending = False
    for name in _WATCHED.intersection(found):
        value = found[name]
        if not name:
            raise _illegal("a property has no name")
        if name in _STRIPPED and name != _LIGHT_NAMES:
            raise _illegal(f"property {name.decode()} is reserved for brokers: send without it")
        delayed = name in _TIMERS or (name == b"DELAY" and value.strip() not in (b"", b"0"))
        pending = pending or delayed or name == _LIGHT_NAMES or (name == b"TRAN_MSG" and value.lower() == b"true")
    return pending


def _illegal(why: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, why)
