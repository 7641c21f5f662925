"""The records of RocketMQ's message trace, as text in messages of the trace topic [TraceDataEncoder].

A record is its kind and its fields, separated by 0x01, and ends with 0x02. A field without a value is the word "null", as Java
writes it: Java's reader breaks on a record that ends with an empty field.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
REGION: Final = "DefaultRegion"  # [MixAll.DEFAULT_TRACE_REGION_ID]
_FIELD, _RECORD, _NOTHING = "\x01", "\x02", "null"


class MessageKind(IntEnum):
    """[MessageType]"""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3
    ORDERED = 4


class Outcome(IntEnum):
    """How a handler ended [ConsumeReturnType]."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


class Pub(NamedTuple):
    """A message was sent. `time_ms`: when the send began. `store_host`: the broker's address. Not `success`: it failed, or was
    stored less safely than wanted."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str
    keys: str
    store_host: str
    body_bytes: int
    cost_ms: int
    kind: MessageKind
    offset_message_id: str
    success: bool


class SubBefore(NamedTuple):
    """A consumer begins with a message. `request_id` is in its SubAfter, too."""

    time_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str


class SubAfter(NamedTuple):
    """A consumer is done with this try of the message. Old clients tell no `outcome`, `time_ms` or `group`."""

    request_id: str
    message_id: str
    cost_ms: int
    success: bool
    keys: str
    outcome: Outcome = Outcome.SUCCESS
    time_ms: int = 0
    group: str = ""


class EndTransaction(NamedTuple):
    """The producer told the outcome of a transaction. `state`: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW. `from_check`: because
    the broker asked."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str
    keys: str
    store_host: str
    kind: MessageKind
    transaction_id: str
    state: str
    from_check: bool


class Recall(NamedTuple):
    """A delayed message was recalled, or was not (no `success`)."""

    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    success: bool


Trace = Pub | SubBefore | SubAfter | EndTransaction | Recall
_KINDS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (Pub, SubBefore, SubAfter, EndTransaction, Recall)}
_OLD_PUB_FIELDS = 12  # without the offset message id
_LONGEST_NUMBER = 20  # with its sign


def encode(trace: Trace) -> str:
    """One record."""
    return _FIELD.join((type(trace).__name__, *map(_spelled, trace))) + _RECORD


def decode(text: str) -> Iterator[Trace]:
    """The records in a message of the trace topic. Skips text that is no such record, since anybody may write there."""
    for line in text.split(_RECORD):
        name, *fields = line.split(_FIELD)
        if name in _KINDS:
            try:
                yield _read(_KINDS[name], fields)
            except (ValueError, TypeError):
                continue


def words(trace: Trace) -> list[str]:
    """The keys to look the record up by: the message's id and its keys [TraceTransferBean]."""
    keys = trace.keys.split(" ") if not isinstance(trace, Recall) else []
    return [trace.message_id, *filter(None, keys)]


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int) else str(value) or _NOTHING


def _read(kind: Any, fields: list[str]) -> Trace:
    """Raises ValueError, TypeError."""
    if kind is Pub and len(fields) == _OLD_PUB_FIELDS:
        fields = [*fields[:-1], "", fields[-1]]
    if fields and not fields[-1]:  # where clients of a cloud leave out the rest of a SubAfter
        fields = fields[:-1]
    parsers = [_PARSERS[wanted] for wanted in kind.__annotations__.values()]
    trace: Trace = kind(*(parse(field) for parse, field in zip(parsers, fields, strict=False)))  # newer clients may write more
    return trace


def _number(text: str) -> int:
    """A number as Java's long. Raises ValueError."""
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters")
    if not -(2**63) <= (found := int(text)) < 2**63:
        raise ValueError(f"{found} is no long")
    return found


_PARSERS: Final[dict[type, Callable[[str], object]]] = {
    int: _number,
    bool: lambda text: text == "true",
    str: lambda text: "" if text == _NOTHING else text,
    MessageKind: lambda text: MessageKind(_number(text)),
    Outcome: lambda text: Outcome(_number(text)),
}
