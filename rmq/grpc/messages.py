"""Messages as RocketMQ's gRPC clients write them, and as stores hold them [SendMessageActivity, GrpcConverter]. Pure."""

import re
import zlib
from collections.abc import Mapping
from hashlib import md5
from typing import Any, NamedTuple

from rmq.client.consumer.lites import LiteMessage
from rmq.client.shared.inflating import MAX_MESSAGE_BYTES
from rmq.client.shared.message import RESERVED_PROPERTIES, TAGS, Message, ReceivedMessage
from rmq.client.shared.session import checked_group
from rmq.errors import InvalidArgument
from rmq.grpc.schema import v2
from rmq.grpc.statuses import Code, Wrong
from rmq.log.records.properties import is_number
from rmq.log.records.record import host_text
from rmq.model import LITE_PROPERTY

_GROUP, _TRACE, _PRIORITY, _BORN_HOST = "__SHARDINGKEY", "TRACE_CONTEXT", "_SYS_MSG_PRIORITY_", "__BORNHOST"
_KINDS = {_GROUP: v2.MessageType.FIFO, _PRIORITY: v2.MessageType.PRIORITY, LITE_PROPERTY: v2.MessageType.LITE}
_LAST_MS = 253_402_300_799_999  # of the year 9999
MOST = (1 << 31) - 1  # that a number of an answer can hold
MOST_WORDS = 1 << 14  # properties of a message, or keys: more are longer than the 32 KiB for all together
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_GZIP = 31  # zlib's window bits: a header of gzip


class Wanted(NamedTuple):
    """A message to send. `more`: properties of the system; `group`: messages of one stay in order; `half`: of a transaction."""

    message: Message
    more: dict[str, str]
    group: str | None
    half: bool

    @property
    def kind(self) -> int:
        """What it is by what it has [TopicMessageType.parseFromMessageProperty]."""
        kinds = {
            v2.MessageType.TRANSACTION: self.half,
            v2.MessageType.DELAY: self.message.deliver_at_ms != 0,
            v2.MessageType.FIFO: self.group is not None,
            v2.MessageType.PRIORITY: self.message.priority >= 0,
            v2.MessageType.LITE: self.message.lite_topic != "",
        }
        return int(next((kind for kind, has in kinds.items() if has), v2.MessageType.NORMAL))


def topic_of(resource: Any) -> str:
    """Topic or group, with its namespace before it [NamespaceUtil.wrapNamespace]."""
    name, namespace = resource.name, resource.resource_namespace
    return f"{namespace}%{name}" if namespace and name else name


def consumer_group(resource: Any) -> str:
    """Raises Wrong."""
    try:
        return checked_group(topic_of(resource))
    except InvalidArgument as error:
        raise Wrong(Code.ILLEGAL_CONSUMER_GROUP, str(error)) from None


def resource(name: str) -> Any:
    namespace, mark, rest = name.partition("%")
    return v2.Resource(resource_namespace=namespace, name=rest) if mark and namespace else v2.Resource(name=name)


def read(given: Any) -> Wanted:
    """Raises Wrong; what else is wrong with it is for the client to say."""
    system, kind = given.system_properties, given.system_properties.message_type
    for key in system.keys:
        if key and (key.isspace() or _CONTROL.search(key)):
            raise Wrong(Code.ILLEGAL_MESSAGE_KEY, f"key {key[:80]!r}: give letters, and no control characters")
    keys = [word for word in " ".join(system.keys).split(" ") if word]  # stored in one text: who looks for one finds words
    if len(given.user_properties) > MOST_WORDS or len(keys) > MOST_WORDS:
        raise Wrong(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"a message has at most {MOST_WORDS} properties, and as many keys")
    ordered = system.HasField("message_group")
    if ordered and not system.message_group.strip():
        raise Wrong(Code.ILLEGAL_MESSAGE_GROUP, "message group: give a name that is not blank, or none")
    if sum((ordered, system.HasField("delivery_timestamp"), kind == v2.MessageType.TRANSACTION)) > 1:
        raise Wrong(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "a message has a group, or a time, or is of a transaction: send one kind"
        )
    if wrong := next((name for name in given.user_properties if name in RESERVED_PROPERTIES), ""):
        raise Wrong(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property {wrong!r} is the system's own: choose another name")
    if not given.body:
        raise Wrong(Code.MESSAGE_BODY_EMPTY, "a message needs a body of at least one byte")
    tag = system.tag if system.HasField("tag") else ""
    more: dict[str, str] = {}
    if tag.strip() != tag:  # nobody can subscribe to it, so our own client takes none
        if not tag.strip() or not tag.isprintable():
            raise Wrong(
                Code.ILLEGAL_MESSAGE_TAG, f"tag {tag!r}: give one that is not blank and has no control characters, or none"
            )
        more[TAGS], tag = tag, ""
    if ordered:
        more[_GROUP] = system.message_group
    if system.HasField("trace_context") and system.trace_context:
        more[_TRACE] = system.trace_context
    if system.born_host:
        more[_BORN_HOST] = system.born_host
    message = Message(
        topic_of(given.topic),
        _inflated(given.body, system.body_encoding),
        tag,
        keys,
        {name: value for name, value in given.user_properties.items() if value},  # who reads a record finds none without one
        deliver_at_ms=_ms(system.delivery_timestamp) if system.HasField("delivery_timestamp") else 0,
        message_id=system.message_id,
        priority=system.priority if system.HasField("priority") else -1,
        lite_topic=system.lite_topic if system.HasField("lite_topic") else "",
    )
    return Wanted(message, more, system.message_group if ordered else None, kind == v2.MessageType.TRANSACTION)


def _inflated(body: bytes, encoding: int) -> bytes:
    """It is stored as it was before it was compressed: RocketMQ's other clients know no gzip."""
    if encoding != v2.Encoding.GZIP:
        return body
    machine = zlib.decompressobj(_GZIP)
    try:
        found = machine.decompress(body, MAX_MESSAGE_BYTES + 1)
    except zlib.error as error:
        raise Wrong(Code.MESSAGE_CORRUPTED, f"the body is no gzip, as it says: {error}") from None
    if len(found) > MAX_MESSAGE_BYTES:
        raise Wrong(Code.MESSAGE_BODY_TOO_LARGE, f"the body has more than {MAX_MESSAGE_BYTES} bytes when it is inflated")
    if not machine.eof:
        raise Wrong(Code.MESSAGE_CORRUPTED, "the body is gzip that is cut off")
    return found


def _ms(stamp: Any) -> int:
    return int(stamp.seconds * 1000 + stamp.nanos // 1_000_000)


def written(message: ReceivedMessage, receipt: str = "", hidden_ms: int = 0, attempt: int = 0) -> Any:
    """As a client gets it. `receipt`: by which it is acknowledged, `hidden_ms`: until it comes again. Raises BadBytes."""
    said, body = message.properties, message.body
    digest = md5(body, usedforsecurity=False).hexdigest().upper()  # clients write a CRC32 each in its own way [GrpcConverter]
    system = v2.SystemProperties(
        keys=message.keys,
        message_id=message.message_id,
        body_digest=v2.Digest(type=v2.DigestType.MD5, checksum=digest),
        body_encoding=v2.Encoding.IDENTITY,
        message_type=_type_of(said),
        born_host=said.get(_BORN_HOST) or host_text(message.stored.born_host),
        store_host=host_text(message.stored.store_host),
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        delivery_attempt=min(max(attempt or message.reconsume_times + 1, 1), MOST),  # senders write any number
    )
    system.born_timestamp.FromMilliseconds(_told(message.born_timestamp))
    system.store_timestamp.FromMilliseconds(_told(message.store_timestamp))
    if message.tags:
        system.tag = message.tags
    if group := said.get(_GROUP):
        system.message_group = group
    if trace := said.get(_TRACE):
        system.trace_context = trace
    at = said.get("TIMER_DELIVER_MS") or said.get("TIMER_OUT_MS", "")
    if is_number(at):  # stores of Apache RocketMQ may hold anything there
        system.delivery_timestamp.FromMilliseconds(_told(int(at)))
    if is_number(priority := said.get(_PRIORITY, "")):
        system.priority = min(int(priority), MOST)
    if isinstance(message, LiteMessage):
        system.lite_topic = message.lite_topic
    if receipt:
        system.receipt_handle = receipt
        system.invisible_duration.FromMilliseconds(hidden_ms)
    own = {name: value for name, value in said.items() if name not in RESERVED_PROPERTIES}
    return v2.Message(topic=resource(message.topic), user_properties=own, system_properties=system, body=body)


def _told(ms: int) -> int:
    """What protobuf's Timestamp can hold: senders write any time."""
    return min(max(ms, 0), _LAST_MS)


def _type_of(said: Mapping[str, str]) -> int:
    if said.get("TRAN_MSG") == "true":
        return int(v2.MessageType.TRANSACTION)
    if any(name in said for name in ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")):
        return int(v2.MessageType.DELAY)
    return int(next((kind for name, kind in _KINDS.items() if name in said), v2.MessageType.NORMAL))
