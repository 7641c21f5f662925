"""RocketMQ's sends (310, 320, 10) as `Send`, and their answers.

There a message comes as header fields and a body; inside, as a store-format draft, which `draft` (`rmq.log.record`)
makes. Pure.
"""

import itertools
from ipaddress import ip_address
from struct import Struct
from struct import error as StructError
from typing import Any, Final, Protocol

from rmq.codes import RequestCode, ResponseCode
from rmq.errors import InvalidArgument, Refusal
from rmq.net.commands import Send, SendAnswer
from rmq.net.frames import Address
from rmq.net.remoting_fields import bad_field
from rmq.net.remoting_headers import VERSION, Ext, Header, frame, write

MAX_BATCH: Final = 20_000
"""Messages in one batch; more would hold up everybody else while they are encoded."""

_ITEM = Struct(">iiiii")  # total size, magic, checksum, flag, length of the body
_SHORT = Struct(">h")
_HOST_FLAGS = 0x10 | 0x20  # born or store host is IPv6: said by us, not by a client [MessageSysFlag]
_INT32 = 2**31
_SEND_MESSAGE, _SEND_BATCH = int(RequestCode.SEND_MESSAGE), int(RequestCode.SEND_BATCH_MESSAGE)
_new = tuple.__new__  # a NamedTuple in half the time
_MAX_TOPIC_CHARACTERS = 255  # more is no name, whatever the rules for names say
_LETTERS = {  # SendMessageRequestHeaderV2 -> SendMessageRequestHeader
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId", "f": "sysFlag",
    "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "l": "maxReconsumeTimes", "m": "batch",
}  # fmt: skip
_TO_LETTERS = {name: letter for letter, name in _LETTERS.items()}
_DROPPED = frozenset({"POP_CK", "__CRC32#", "MSG_REGION", "TRACE_ON", "CLUSTER"})  # or replaced by what we say


class Draft(Protocol):
    """`rmq.log.record.draft`. Raises InvalidArgument, and `struct.error` for numbers that do not fit a record."""

    def __call__(
        self,
        topic: str,
        body: bytes,
        properties: bytes,
        *,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> bytes: ...


class Sent:
    """What the answer to a send needs of the request. `sizes`: of the records of a batch, which lie back to back."""

    __slots__ = ("sizes", "unique_key")

    def __init__(self, unique_key: str, sizes: list[int] | None) -> None:
        self.unique_key = unique_key
        self.sizes = sizes


def host_bytes(address: Address) -> bytes:
    """Address bytes and the port in 4, as records hold them; 0.0.0.0 where there is no IP address (tests' networks)."""
    try:
        packed = ip_address(address[0].partition("%")[0]).packed
    except ValueError:
        packed = bytes(4)
    return packed + address[1].to_bytes(4, "big")


class Sends:
    """`region` and `cluster` go into every message's properties, `store_host` into the ids of the answers."""

    def __init__(self, draft: Draft, cluster: str, region: str, store_host: Address) -> None:
        self._draft = draft
        self._added = _joined({"MSG_REGION": region, "TRACE_ON": "true", "CLUSTER": cluster})
        self._answer_ext = {"TRACE_ON": "true", "MSG_REGION": region}
        self._counter = itertools.count()
        self._id_prefix = ""
        self._unique_prefix = b""
        self.set_store_host(store_host)

    def set_store_host(self, store_host: Address) -> None:
        """Once the address is known under which everybody reaches this broker."""
        host = host_bytes(store_host)
        self._id_prefix = host.hex().upper()
        self._unique_prefix = host[:-4] + host[-2:]

    # --- requests -----------------------------------------------------------------------------------------------------

    def read(self, header: Header, body: memoryview, born_host: bytes) -> tuple[Send, Sent]:
        """Raises Refusal."""
        ext = header.ext
        if header.code == _SEND_MESSAGE:
            ext = {_TO_LETTERS[name]: value for name, value in ext.items() if name in _TO_LETTERS}
        try:
            if ext.get("m") == "true" or header.code == _SEND_BATCH:
                return self._read_batch(ext, body, born_host)
            return self._read_single(ext, body, born_host)
        except KeyError as error:
            name = str(error.args[0])
            raise bad_field(Send, f"field {name} ({_LETTERS[name]}) is missing") from None
        except InvalidArgument as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        except ValueError as error:
            raise bad_field(Send, f"a number cannot be read: {str(error)[:80]}") from None
        except StructError:  # of the draft: the record has 32 bits for flag, sysFlag and reconsumeTimes, 64 for the time
            raise bad_field(Send, "h (flag), f (sysFlag), j (reconsumeTimes) or g (bornTimestamp) is too large") from None

    def _read_single(self, ext: Ext, body: memoryview, born_host: bytes) -> tuple[Send, Sent]:
        topic, flag, sys_flag, born_timestamp, reconsume_times = _head(ext)
        if not body:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
        properties, unique_key = self._properties(ext.get("i", ""), born_timestamp)
        record = self._draft(
            topic, bytes(body), properties.encode(), flag=flag, sys_flag=sys_flag, born_timestamp=born_timestamp,
            born_host=born_host, reconsume_times=reconsume_times,
        )  # fmt: skip
        return _send(ext, topic, record, reconsume_times, False), Sent(unique_key, None)

    def _read_batch(self, ext: Ext, body: memoryview, born_host: bytes) -> tuple[Send, Sent]:
        """Nothing is added to the properties of the messages, as 5.5.0 adds nothing."""
        topic, _, sys_flag, born_timestamp, reconsume_times = _head(ext)
        drafts = [
            self._draft(
                topic, item, properties, flag=flag, sys_flag=sys_flag, born_timestamp=born_timestamp,
                born_host=born_host, reconsume_times=reconsume_times,
            )
            for flag, item, properties in _batch_items(body)
        ]  # fmt: skip
        unique_key = dict(_pairs(ext.get("i", ""))).get("UNIQ_KEY", "")
        send = _send(ext, topic, b"".join(drafts), reconsume_times, True)
        return send, Sent(unique_key, [len(draft) for draft in drafts])

    def _properties(self, text: str, born_timestamp: int) -> tuple[str, str]:
        """The properties with ours, and the unique key."""
        if text and text[-1] != "\x02":
            text += "\x02"
        at = text.find("UNIQ_KEY\x01")
        if (
            (at > 0 and text[at - 1] != "\x02")
            or "POP_CK" in text or "__CRC32#" in text or "MSG_REGION" in text or "TRACE_ON" in text or "CLUSTER" in text
        ):  # fmt: skip
            text = _joined({name: value for name, value in _pairs(text) if name not in _DROPPED})
            at = 0 if text.startswith("UNIQ_KEY\x01") else text.find("\x02UNIQ_KEY\x01") + 1 or -1
        if at >= 0:
            return text + self._added, text[at + 9 : text.index("\x02", at)]
        unique_key = self._unique_id(born_timestamp)
        return f"{text}UNIQ_KEY\x01{unique_key}\x02{self._added}", unique_key

    def _unique_id(self, born_timestamp: int) -> str:
        """For a message without one: our address, the time the client gave, and a counter, in the usual length."""
        stamp = (born_timestamp & 0xFFFFFFFFFFFF).to_bytes(6, "big")
        count = (next(self._counter) & 0xFFFFFFFF).to_bytes(4, "big")
        return (self._unique_prefix + stamp + count).hex().upper()

    # --- answers ------------------------------------------------------------------------------------------------------

    def write_answer(self, header: Header, sent: Sent, answer: SendAnswer, remark: str) -> bytes:
        """`msgId` is the place of the record, or of all records of a batch [MessageDecoder.createMessageId]."""
        place = answer.physical_offset
        if sent.sizes is None:
            msg_id = f"{self._id_prefix}{place:016X}"
        else:
            places = itertools.accumulate(sent.sizes[:-1], initial=place)
            msg_id = ",".join(f"{self._id_prefix}{place:016X}" for place in places)
        key = sent.unique_key
        if not header.binary and not remark and key.isalnum() and key.isascii():
            return self._write_usual(header.opaque, answer, key, msg_id)
        ext = {"queueId": str(answer.queue_id), "msgId": msg_id, "queueOffset": str(answer.queue_offset), **self._answer_ext}
        if key:
            ext["transactionId"] = key
        return write(header.binary, answer.status, 1, header.opaque, remark, ext)

    def _write_usual(self, opaque: int, answer: SendAnswer, key: str, msg_id: str) -> bytes:
        """The same as JSON, written by hand: nothing in it needs escaping."""
        header = (
            f'{{"code":{answer.status},"extFields":{{"queueId":"{answer.queue_id}","transactionId":"{key}","msgId":"{msg_id}",'
            f'"TRACE_ON":"true","MSG_REGION":"{self._answer_ext["MSG_REGION"]}","queueOffset":"{answer.queue_offset}"}},'
            f'"flag":1,"language":"JAVA","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'
        )
        return frame(False, header.encode(), b"")

    def refusal_ext(self) -> Ext:
        """Clients read these from refusals too [MQClientAPIImpl.processSendResponse]."""
        return dict(self._answer_ext)


def _head(ext: Ext) -> tuple[str, int, int, int, int]:
    """Topic, flag, sysFlag, bornTimestamp, reconsumeTimes; raises KeyError, ValueError, Refusal."""
    topic = ext["b"]
    if len(topic) > _MAX_TOPIC_CHARACTERS:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"a topic name has at most {_MAX_TOPIC_CHARACTERS} characters")
    return topic, int(ext["h"]), int(ext["f"]) & ~_HOST_FLAGS, int(ext["g"]), int(ext.get("j", "0"))


def _send(ext: Ext, topic: str, records: bytes, reconsume_times: int, batch: bool) -> Send:
    limit = int(ext["l"]) if "l" in ext else -1
    queue_id, queues = int(ext["e"]), int(ext["d"])
    if max(queue_id, queues, limit) >= _INT32 or min(queue_id, queues, limit) < -_INT32:
        raise ValueError("queueId, defaultTopicQueueNums or maxReconsumeTimes does not fit in 32 bits")
    return _new(Send, (ext["a"], topic, queue_id, records, reconsume_times, ext["c"], queues, batch, limit))


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = []
    for entry in text.split("\x02"):
        name, mark, value = entry.partition("\x01")
        if name and mark:
            pairs.append((name, value))
    return pairs


def _joined(pairs: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())


def _batch_items(body: memoryview) -> list[tuple[int, bytes, bytes]]:
    """(flag, body, properties) of every message of a batch body [MessageDecoder.decodeMessages]. Raises Refusal."""
    if not body:
        raise _bad_batch("it is empty")
    items: list[tuple[int, bytes, bytes]] = []
    at, end = 0, len(body)
    while at < end:
        if len(items) == MAX_BATCH:
            raise _bad_batch(f"more than {MAX_BATCH} messages; send several batches")
        if end - at < _ITEM.size + 2:
            raise _bad_batch(f"{end - at} bytes behind message {len(items)}")
        total, _, _, flag, size = _ITEM.unpack_from(body, at)
        properties_at = at + _ITEM.size + size + 2
        if size <= 0 or properties_at > end:
            raise _bad_batch(f"message {len(items)} has a body of {size} bytes")
        (properties_size,) = _SHORT.unpack_from(body, properties_at - 2)
        stop = properties_at + properties_size
        if properties_size < 0 or stop > end or total != stop - at:
            raise _bad_batch(f"the lengths of message {len(items)} do not add up")
        items.append((flag, bytes(body[at + _ITEM.size : properties_at - 2]), bytes(body[properties_at:stop])))
        at = stop
    return items


def _bad_batch(what: str) -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {what}")


def is_send(code: int) -> bool:
    return code in _CODES


_CODES: frozenset[Any] = frozenset({
    int(RequestCode.SEND_MESSAGE_V2), int(RequestCode.SEND_BATCH_MESSAGE), int(RequestCode.SEND_MESSAGE),
})  # fmt: skip
