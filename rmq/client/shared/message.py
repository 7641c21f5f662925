"""The user's values: messages and send results. No connection, no waiting."""

import math
import re
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from rmq.client.shared.inflating import COMPRESSED, inflated
from rmq.errors import InvalidArgument, Refusal, Unknown
from rmq.log.records import record
from rmq.log.records.fastread import Whole
from rmq.log.records.properties import LIGHT_NAMES
from rmq.model import LIGHT_PREFIX, LITE_PROPERTY, MessageQueue
from rmq.names import lite_queue

UNIQUE_KEY, KEYS, TAGS, RETRY_TOPIC = "UNIQ_KEY", "KEYS", "TAGS", "RETRY_TOPIC"
CHECKSUM = "__CRC32#"  # of the whole record; the store sets it
MOST_LEVEL = 2**31 - 1  # a number on the wire; which levels there are is the broker's to say (messageDelayLevel)

_RESERVED = """
KEYS TAGS UNIQ_KEY EXTEND_UNIQ_INFO WAIT DELAY TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS
TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DELAY_LEVEL TIMER_DEL_UNIQKEY TIMER_ROLL_LABEL REAL_TOPIC
REAL_QID RETRY_TOPIC ORIGIN_MESSAGE_ID RECONSUME_TIME MAX_RECONSUME_TIMES DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID
_SYS_MSG_PRIORITY_ __LITE_TOPIC ORIGIN_GROUP TRANS_OFFSET TRAN_MSG PGROUP __transactionId__
TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET CHECK_IMMUNITY_TIME_IN_SECONDS MSG_REGION TRACE_ON CLUSTER
__SHARDINGKEY INSTANCE_ID BUYER_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG REDIRECT CORRELATION_ID REPLY_TO_CLIENT
TTL ARRIVE_TIME PUSH_REPLY_TIME MSG_TYPE CONSUME_START_TIME MIN_OFFSET MAX_OFFSET POP_CK POP_CK_OFFSET 1ST_POP_TIME
INNER_NUM INNER_BASE INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET DUP_INFO __CRC32# __BORNHOST BORN_TIMESTAMP
PROPERTY_FORWARD_QUEUE_ID TRACE_CONTEXT E_T RMQ_SRC
"""
_SPACE = re.compile(r"\s", re.ASCII)
RESERVED_PROPERTIES = frozenset(_RESERVED.split())  # names a program may not set itself [MessageConst]


class Message(NamedTuple):
    """A message to send.

    `tags`: one tag consumers may filter by. `keys`: words it can be looked up by. `properties`: the program's own
    names and values. `flag`: a number carried along unread. To come later: one of `delay_level` (1 to 18: 1s 5s 10s 30s
    1m 2m ... 10m 20m 30m 1h 2h, unless the broker has a list of its own; more means its last one), `delay_s` and
    `deliver_at_ms` (Unix ms), at most three days ahead; to the second, never early.
    `message_id`: the unique id it goes by, one word; give one to know a repeat by it (default: a new one with each send).
    `priority`: from 0 on, the higher the more urgent, in a topic that was made for priorities; as many as it has queues.
    `light_queues`: names of light queues that it is to be found in as well, where the brokers serve them. `lite_topic`: the
    sub-topic of a topic that was made for them (message.type=LITE).
    """

    topic: str
    body: bytes
    tags: str = ""
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    flag: int = 0
    delay_level: int = 0
    delay_s: float = 0
    deliver_at_ms: float = 0
    message_id: str = ""
    priority: int = -1
    light_queues: Sequence[str] = ()
    lite_topic: str = ""

    @property
    def waits(self) -> bool:
        """Whether it is to come later."""
        return bool(self.delay_level or self.delay_s or self.deliver_at_ms)


class SendStatus(IntEnum):
    """All four mean stored; the last three say what was not reached yet when the broker stopped waiting."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


_new = object.__new__
_STATUSES = {int(status): status for status in SendStatus}


def send_status(code: int) -> SendStatus:
    """Raises Unknown: a broker with such an answer may have stored the message."""
    status = _STATUSES.get(code)
    if status is None:
        raise Unknown(f"the broker answered a send with status {code}, which says nothing; it may or may not be stored")
    return status


class SendResult(NamedTuple):
    """Where a message was stored. `message_id`: the unique id consumers see too.

    For a delayed message `queue_offset` is where it waits; `recall_handle` recalls a timed one. `physical_offset`: in the
    broker's log.
    """

    message_id: str
    queue: MessageQueue
    queue_offset: int
    status: SendStatus
    recall_handle: str = ""
    physical_offset: int = -1


class ReceivedMessage:
    """A stored message. Cheap to make: what is in it is read when asked for. `body_bytes`: of the body as it is stored."""

    __slots__ = ("_body", "_body_at", "_properties", "_raw", "_stored", "body_bytes", "queue", "queue_offset")

    def __init__(self, stored: record.Record, queue: MessageQueue) -> None:
        self._stored: record.Record | None = stored
        self._raw, self._body_at = b"", -1  # needed only without `_stored`
        self._body: bytes | None = None
        self._properties: dict[str, str] | None = None
        self.queue = queue
        self.queue_offset = stored.queue_offset
        self.body_bytes = len(stored.body)

    @classmethod
    def unread(cls, wholes: "Sequence[Whole]", queue: MessageQueue) -> "list[ReceivedMessage]":
        """Of records that were checked and not decoded."""
        messages = []
        for whole in wholes:
            message = _new(cls)
            message._raw, message.queue_offset, message.body_bytes, message._body_at = whole
            message._stored = message._body = message._properties = None
            message.queue = queue
            messages.append(message)
        return messages

    @property
    def stored(self) -> record.Record:
        """All fields as they are stored."""
        if self._stored is None:
            self._stored = record.decode(self._raw)
        return self._stored

    @property
    def topic(self) -> str:
        """The topic it was sent to, for a retried one too, and for one from a light queue."""
        topic = self.properties.get(RETRY_TOPIC) or self.queue.topic
        return self.stored.topic if topic.startswith(LIGHT_PREFIX) else topic

    @property
    def body(self) -> bytes:
        """Inflated if its sender compressed it. Raises BadBytes when that does not work, or gives more than 4 MiB."""
        if self._body is None:
            at = self._body_at
            if at >= 0:
                self._body = self._raw[at : at + self.body_bytes]
            else:
                self._body = inflated(self.stored) if self.stored.sys_flag & COMPRESSED else self.stored.body
        return self._body

    @property
    def properties(self) -> dict[str, str]:
        """The program's own and the system's."""
        if self._properties is None:
            properties = self._stored.properties if self._stored is not None else record.properties_of(self._raw)
            self._properties = record.bytes_to_properties(properties)
            self._properties.pop(CHECKSUM, None)
        return self._properties

    @property
    def own_properties(self) -> dict[str, str]:
        """The program's own: what a `Message` that is made of this one may have."""
        return {name: value for name, value in self.properties.items() if not _is_reserved(name)}

    @property
    def tags(self) -> str:
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(KEYS, "").split(" ") if key]

    @property
    def message_id(self) -> str:
        """The sender's unique id; for a message without one the id made of its place."""
        return self.properties.get(UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Id made of the broker's address and the place in its log."""
        return record.message_id(self.stored.store_host, self.stored.physical_offset)

    @property
    def flag(self) -> int:
        return self.stored.flag

    @property
    def born_timestamp(self) -> int:
        """Unix ms by the sender's clock."""
        return self.stored.born_timestamp

    @property
    def store_timestamp(self) -> int:
        """Unix ms by the broker's clock."""
        return self.stored.store_timestamp

    @property
    def reconsume_times(self) -> int:
        return self.stored.reconsume_times

    def count_again(self) -> None:
        """It is handed out once more and was not stored again: only this program counts it [MessageExt.setReconsumeTimes]."""
        self._stored = self.stored._replace(reconsume_times=self.reconsume_times + 1)

    def __repr__(self) -> str:
        topic, broker_name, queue_id = self.queue
        return f"<message {self.message_id} of {topic}/{broker_name}/{queue_id}@{self.queue_offset}>"


def check_body(body: object, max_bytes: int) -> None:
    """Raises InvalidArgument. An empty body is refused as RocketMQ does [Validators.checkMessage]."""
    if type(body) is not bytes and not isinstance(body, bytes | bytearray | memoryview):
        raise InvalidArgument(f"the body is {type(body).__name__}: give bytes (text.encode())")
    if not len(body):
        raise InvalidArgument("the body is empty: send at least one byte")
    if len(body) > max_bytes:
        raise InvalidArgument(f"the body has {len(body)} bytes: at most {max_bytes} are allowed")


def message_properties(message: Message, message_id: str) -> bytes:
    """Properties as they are stored. Raises InvalidArgument for names or values that may not be."""
    _, _, tags, keys, own, _, level, delay_s, at_ms, given_id, priority, lights, lite = message
    if given_id:
        _check_word("message_id", given_id)
        _unmarked(given_id)
    text = f"{UNIQUE_KEY}\x01{message_id}\x02"
    if tags:
        usual = type(tags) is str and tags.isprintable() and " " not in tags and "|" not in tags
        text = f"{text}{TAGS}\x01{tags if usual else _checked_tag(tags)}\x02"
    if keys:
        key = keys[0] if type(keys) is list and len(keys) == 1 else None
        usual = type(key) is str and key != "" and key.isprintable() and " " not in key
        text = f"{text}{KEYS}\x01{key if usual else _joined_keys(keys)}\x02"
    if not (own or level or delay_s or at_ms or priority >= 0 or lights or lite):
        return text.encode()
    more = {"_SYS_MSG_PRIORITY_": str(priority)} if priority >= 0 else {}
    if lights:
        more[LIGHT_NAMES] = _joined_lights(lights)
    if lite:
        more[LITE_PROPERTY] = checked_lite(message.topic, lite)
    if message.waits:
        more |= _time(message)
    for name, value in own.items():
        _check_property(name, value)
        more[name] = value
    return text.encode() + record.properties_to_bytes(more)


def unfit(message: Message, error: Exception) -> InvalidArgument:
    """Why it could not be written. Looked for only then: such a message is rare, and each look would cost all others."""
    if isinstance(error, UnicodeEncodeError):
        there = error.object[: error.end].rpartition("\x02")[2].replace("\x01", " ")[-40:]
        return half_a_character(there)
    return InvalidArgument(f"flag {message.flag!r}: give a whole number from {-(2**31)} to {2**31 - 1}")


def half_a_character(text: str) -> InvalidArgument:
    """`text`: up to it, and with it."""
    return InvalidArgument(f"{text!r} ends with half a character (a lone surrogate), which UTF-8 does not have")


def _time(message: Message) -> dict[str, str]:
    """When it is to come."""
    level, delay_s, at_ms = message.delay_level, message.delay_s, message.deliver_at_ms
    if (level != 0) + (delay_s != 0) + (at_ms != 0) > 1:
        raise InvalidArgument("give one of delay_level, delay_s and deliver_at_ms")
    if level:
        if not 1 <= level <= MOST_LEVEL:
            raise InvalidArgument(f"delay_level {level}: give 1 or more, or delay_s for any other time")
        return {"DELAY": str(level)}
    if not 0 <= delay_s < math.inf or not 0 <= at_ms < math.inf:  # nan is neither
        raise InvalidArgument(f"delay_s {delay_s}, deliver_at_ms {at_ms}: give a number from 0 on")
    return {"TIMER_DELAY_MS": str(math.ceil(delay_s * 1000))} if delay_s else {"TIMER_DELIVER_MS": str(math.ceil(at_ms))}


def _checked_tag(tag: str) -> str:
    if "||" in tag or tag.strip() != tag:
        raise InvalidArgument(f"tag {tag!r}: no '||' and no spaces around it, else nobody can subscribe to it")
    return _unmarked(tag)


def _unmarked(text: str) -> str:
    if "\x01" in text or "\x02" in text:
        raise InvalidArgument("message_id, tags and keys may not contain the bytes 0x01 and 0x02")
    return text


def _joined_keys(keys: Sequence[str]) -> str:
    if isinstance(keys, str):
        raise InvalidArgument('keys is a text: give a list, as keys=["order-1"]')
    joined = " ".join(map(str, keys))
    if joined.split() != [*keys]:
        for key in keys:
            _check_word("key", key)
    return _unmarked(joined)


def light_name(name: str) -> str:
    """The full name of a light queue, or of a group that reads such. Raises InvalidArgument."""
    full = name if name.startswith(LIGHT_PREFIX) else LIGHT_PREFIX + name
    if full == LIGHT_PREFIX or set(full) & set(",@/ "):
        raise InvalidArgument(f"light queue {name!r}: give a name without , @ / and spaces")
    return full


def checked_lite(topic: str, lite: str) -> str:
    """The name of a lite topic. Raises InvalidArgument."""
    try:
        lite_queue(topic, lite)
    except Refusal as refusal:
        raise InvalidArgument(refusal.remark) from None
    return lite


def _joined_lights(names: Sequence[str]) -> str:
    if isinstance(names, str):
        raise InvalidArgument('light_queues is a text: give a list, as light_queues=["room-1"]')
    return ",".join(map(light_name, names))


def _check_word(what: str, word: object) -> None:
    """Spaces that are no ASCII are letters as others: the index knows one space only."""
    if not isinstance(word, str) or not word or _SPACE.search(word):
        raise InvalidArgument(f"{what} {word!r}: give one word without spaces")


def _is_reserved(name: str) -> bool:
    return name in RESERVED_PROPERTIES or name.startswith("__RMQ.TRANSIENT.")


def _check_property(name: str, value: object) -> None:
    if _is_reserved(name):
        about = f"property {name!r} is the system's own: choose another name; of a received message send on its own_properties"
        raise InvalidArgument(about)
    if not isinstance(value, str) or not name or not value:
        raise InvalidArgument(f"property {name!r} is {value!r}: names and values are texts that are not empty")
