"""RocketMQ's sends (310, 320, 10) as `Send`, and their answers.

On the wire a message is header fields and a body; inside it is a store-format draft, which `draft`
(`rmq.log.records.record`) makes. Pure.
"""

import itertools
import re
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from struct import Struct, error as StructError, pack
from typing import Any, Final, NamedTuple, Protocol

from rmq.codes import RequestCode, ResponseCode
from rmq.errors import InvalidArgument, Refusal
from rmq.net.codec.frames import Address, Received, Stored
from rmq.net.commands import DraftedSend, Send, SendAnswer
from rmq.net.commands.messages import Delayed, Pending, Scheduled, Waits
from rmq.net.commands.replies import SendReply
from rmq.net.remoting.fields import bad_field
from rmq.net.remoting.headers import ONEWAY_FLAG, VERSION, Ext, Header, bare, binary_start, write
from rmq.net.remoting.properties import has_dropped, joined, pairs_in, sent_on, without_dropped
from rmq.net.remoting.shapes import Fields, Maker, ShapeMemory, Shapes, Usual
from rmq.net.remoting.signed import blank, blanked

MAX_BATCH: Final = 20_000
"""Messages in one batch; more would hold up everybody else while they are encoded."""

_ITEM = Struct(">iiiii")  # total size, magic, checksum, flag, length of the body
_SHORT = Struct(">h")
_two_sizes, _int32 = Struct(">II").pack, Struct(">i").pack
_HOST_FLAGS = 0x10 | 0x20  # born or store host is IPv6: the broker sets these, not a client [MessageSysFlag]
_LEVEL = b"DELAY\x01"  # in the properties of a message with a delay level
_TIME = b"TIMER_DEL"  # of one with a time of its own
_PREPARED = 4  # of a half [MessageSysFlag.TRANSACTION_PREPARED_TYPE]
_INT32 = 2**31
REGION = "DefaultRegion"  # [MixAll.DEFAULT_TRACE_REGION_ID]
_SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_LONG_NAMES = frozenset(map(int, (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)))
_REPLIES = frozenset(map(int, (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)))
_new = tuple.__new__  # a NamedTuple in half the time
_MAX_KEY = 127  # bytes of a unique key in a usual answer
_MAX_FORMS = 4096
_MAX_LENGTHS = 8  # of keys and queue offsets in answers of one form
_MAX_TOPIC_CHARACTERS = 255  # longer than any allowed name
_LETTERS = {  # SendMessageRequestHeaderV2 -> SendMessageRequestHeader
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId", "f": "sysFlag",
    "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
    "l": "maxReconsumeTimes", "m": "batch",
}  # fmt: skip
_TO_LETTERS = {name: letter for letter, name in _LETTERS.items()}


MatchedDelayed = Callable[[bytes, bytes, int, int, bytes], tuple[bytes, bytes, int] | None]
MatchedTimed = Callable[[bytes, bytes, int, int, bytes], tuple[bytes, bytes, int, int, bool, int] | None]
MatchedDraft = Callable[[bytes, bytes, bytes, bytes | None, int, int, bytes, int], tuple[bytes, int] | None]


class Records(Protocol):
    """`rmq.log.records.fastpath`, as far as it makes records. Raises `struct.error` for numbers that do not fit a record."""

    def draft(
        self,
        /,
        topic: str,
        body: bytes,
        properties: bytes,
        *,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> bytes:
        """Raises InvalidArgument."""
        ...

    def fast_draft(
        self,
        topic: str,
        added: bytes,
        body: bytes,
        properties: bytes,
        flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        /,
    ) -> tuple[bytes, int, bytes] | None: ...

    def matched_draft(self, topic: str, added: bytes, /) -> MatchedDraft: ...

    def matched_half(self, topic: str, queue_id: int, group: str, added: bytes, /) -> MatchedDraft: ...

    def matched_delayed(self, topic: str, queue_id: int, added: bytes, /) -> MatchedDelayed: ...

    def matched_timed(self, topic: str, queue_id: int, added: bytes, /) -> MatchedTimed: ...

    def given_pairs(self, one: str, two: str, plain: str, /, of_half: bool = False) -> bytes: ...

    def fast_given(self, properties: bytes, /) -> re.Match[bytes] | None: ...

    def fast_given_half(self, properties: bytes, /) -> re.Match[bytes] | None: ...

    def draft_many(
        self, topic: str, batch: bytes, born_timestamp: int, born_host: bytes, reconsume_times: int, /
    ) -> tuple[bytes, list[int], list[int]] | None:
        """Records, their sizes, hashes of their tags; None: some of them must be drafted one by one, and checked."""
        ...


class Sent(NamedTuple):
    """The parts of a send that its answer needs. `header`: its own, or one of the same shape with another opaque.

    `sizes`: of the records of a batch, which lie back to back; None for a single message. `frame`: see `RemotingSettings`.
    `who`: the signer (`codec.Signatures`).
    """

    header: Header
    opaque: int
    unique_key: bytes
    sizes: list[int] | None
    frame: bytes
    who: object = None


def host_bytes(address: Address) -> bytes:
    """Address bytes and 4 bytes for the port, as records hold them; 0.0.0.0 if there is no IP address (tests' networks)."""
    try:
        packed = ip_address(address[0].partition("%")[0]).packed
    except ValueError:
        packed = bytes(4)
    return packed + address[1].to_bytes(4, "big")


class Sends:
    """`cluster` and whether it is `traced` go into every message's properties, `store_host` (which clients reach) into the ids of
    the answers. `keeps_frames`: see `RemotingSettings`."""

    def __init__(self, records: Records, cluster: str, store_host: Address, traced: bool, keeps_frames: bool) -> None:
        self.keeps_frames = keeps_frames
        self._draft = records.draft
        self._fast_draft, self._draft_many = records.fast_draft, records.draft_many
        self._matched_draft, self._matched_half = records.matched_draft, records.matched_half
        self._matched_delayed, self._matched_timed = records.matched_delayed, records.matched_timed
        trace_on, region = "true" if traced else "false", REGION
        self._added = joined({b"MSG_REGION": REGION.encode(), b"TRACE_ON": trace_on.encode(), b"CLUSTER": cluster.encode()})
        self._answer_ext = {"TRACE_ON": trace_on, "MSG_REGION": region}
        self.json_shapes, self.binary_shapes = ShapeMemory(), ShapeMemory()
        self._usual = Usual(records.given_pairs, records.fast_given)
        self._usual_half = Usual(partial(records.given_pairs, of_half=True), records.fast_given_half)
        self._counter = itertools.count()
        self._stored: dict[tuple[int, int], Stored] = {}
        host = host_bytes(store_host)
        self._id_prefix = host.hex().upper()
        self._unique_prefix = host[:-4] + host[-2:]
        self._json_parts = (
            f'","msgId":"{self._id_prefix}',
            f'","TRACE_ON":"{trace_on}","MSG_REGION":"{region}","queueOffset":"',
            '"},"flag":1,"language":"JAVA","opaque":',
            f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}',
        )
        self._binary_parts = (
            f"\0\x05msgId\0\0\0{chr(len(self._id_prefix) + 16)}{self._id_prefix}",
            f"\0\x08TRACE_ON\0\0\0{chr(len(trace_on))}{trace_on}\0\nMSG_REGION\0\0\0{chr(len(region))}{region}"
            "\0\x0bqueueOffset\0\0\0",
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def read(
        self, frame: bytes, header: Header, body: bytes, born_host: bytes, shapes: tuple[Shapes, Shapes] | None
    ) -> tuple[Send | SendReply, Sent]:
        """`frame`: the whole frame without its length. `shapes`: of this connection, in JSON and binary; None to learn nothing.
        Raises Refusal."""
        ext = header.ext
        if header.code in _LONG_NAMES:
            ext = {_TO_LETTERS[name]: value for name, value in ext.items() if name in _TO_LETTERS}
        try:
            fields = _fields(ext, header.code == _SEND_BATCH)
            kept = frame if self.keeps_frames else b""
            properties = ext.get("i", "").encode()
            send = self._draft_one(bare(header), header.opaque, fields, int(ext["g"]), properties, body, born_host, kept)
        except KeyError as error:
            name = str(error.args[0])
            raise bad_field(Send, f"field {name} ({_LETTERS[name]}) is missing") from None
        except ValueError as error:
            raise bad_field(Send, f"a number cannot be read: {str(error)[:80]}") from None
        if header.code not in _REPLIES and shapes is not None:
            stop = len(frame) - len(body)
            head = frame
            if (signed := blanked(frame, stop)) is not None:
                head, header = signed[0], header._replace(ext=blank(header.ext))
            waits = _is_half(fields)
            usual = self._usual_half if waits else self._usual
            shapes[header.binary].learn(head, stop, header, usual, self._maker(bare(header), fields, waits))
        if header.code in _REPLIES:
            request, sent = send
            return SendReply(*request[:4], unit_mode=request.unit_mode), sent._replace(unique_key=b"")  # their answers tell none
        return send

    def _maker(self, header: Header, fields: Fields, waits: bool) -> Maker:
        """For headers that are as `header` but for their ids. It gives None for numbers that no record can hold. `waits`: these
        are halves, whose records are made as they wait."""
        group, topic, default_topic, queues, queue_id, flag, sys_flag, reconsume_times, limit, batch, unit = fields
        oneway = header.flag & ONEWAY_FLAG != 0
        draft = None if batch or sys_flag else self._matched_draft(topic, self._added)
        if waits:
            draft = self._matched_half(topic, queue_id, group, self._added)
        is_usual = queue_id >= 0 and topic.isascii() and not (sys_flag or reconsume_times or batch)
        draft_delayed = self._matched_delayed(topic, queue_id, self._added)
        draft_timed = self._matched_timed(topic, queue_id, self._added)

        def make(
            born_timestamp: int,
            properties: bytes,
            unique_key: bytes | None,
            tag: bytes | None,
            opaque: int,
            body: bytes,
            size: int,
            born_host: bytes,
            kept: bytes,
            who: object,
        ) -> Received | None:
            records = b""
            known: int | Pending | None = None
            try:
                if unique_key is not None and draft is not None and body:
                    made = draft(body, properties, unique_key, tag, flag, born_timestamp, born_host, reconsume_times)
                    if made is not None:
                        records, code = made
                        known = _new(Waits, (code, group)) if waits else code
                elif is_usual and body and _LEVEL in properties:
                    later = draft_delayed(body, properties, flag, born_timestamp, born_host)
                    if later is not None:
                        records, unique_key, level = later
                        known = _new(Delayed, (level,))
                elif is_usual and body and _TIME in properties:
                    timed = draft_timed(body, properties, flag, born_timestamp, born_host)
                    if timed is not None:
                        records, unique_key, code, ms, is_delay, out_at = timed
                        known = _new(Scheduled, (code, unique_key.decode(), ms, is_delay, out_at))
            except StructError:
                return None
            if known is not None:
                drafted = group, topic, queue_id, records, reconsume_times, default_topic, queues, batch, limit, unit, known
                sent = _new(Sent, (header, opaque, unique_key, None, kept, who))
                return _new(DraftedSend, drafted), opaque, oneway, sent, size
            send, sent = self._draft_one(header, opaque, fields, born_timestamp, properties, body, born_host, kept)
            return send, opaque, oneway, sent if who is None else sent._replace(who=who), size

        return make

    def _draft_one(
        self,
        header: Header,
        opaque: int,
        fields: Fields,
        born_timestamp: int,
        properties: bytes,
        body: bytes,
        born_host: bytes,
        kept: bytes,
    ) -> tuple[Send, Sent]:
        group, topic, default_topic, queues, queue_id, flag, sys_flag, reconsume_times, limit, batch, unit = fields
        sizes = None
        try:
            if batch:
                unique_key = dict(pairs_in(properties)).get(b"UNIQ_KEY", b"")
                made = None if sys_flag else self._draft_many(topic, body, born_timestamp, born_host, reconsume_times)
                if made is not None:
                    several = (
                        group, topic, queue_id, made[0], reconsume_times, default_topic, queues, batch, limit, unit, made[1:],
                    )  # fmt: skip
                    return _new(DraftedSend, several), _new(Sent, (header, opaque, unique_key, made[1], kept, None))
                records, sizes = self._batch(topic, body, sys_flag, born_timestamp, born_host, reconsume_times)
            elif body:
                if properties and properties[-1] != 2:
                    properties += b"\x02"  # which RocketMQ 4 leaves out
                if not sys_flag:
                    numbers = flag, born_timestamp, born_host, reconsume_times
                    fast = self._fast_draft(topic, self._added, body, properties, *numbers)
                    if fast is not None:
                        records, code, unique_key = fast
                        drafted = (
                            group, topic, queue_id, records, reconsume_times, default_topic, queues, batch, limit, unit, code,
                        )  # fmt: skip
                        return _new(DraftedSend, drafted), _new(Sent, (header, opaque, unique_key, None, kept, None))
                properties, unique_key = self._properties(properties, born_timestamp)
                records = self._draft(
                    topic,
                    body,
                    properties,
                    flag=flag,
                    sys_flag=sys_flag,
                    born_timestamp=born_timestamp,
                    born_host=born_host,
                    reconsume_times=reconsume_times,
                )
            else:
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
        except InvalidArgument as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        except StructError:  # of the draft: the record has 32 bits for flag, sysFlag and reconsumeTimes, 64 for the time
            raise bad_field(Send, "h (flag), f (sysFlag), j (reconsumeTimes) or g (bornTimestamp) is too large") from None
        send = _new(Send, (group, topic, queue_id, records, reconsume_times, default_topic, queues, batch, limit, unit))
        return send, _new(Sent, (header, opaque, unique_key, sizes, kept, None))

    def _batch(
        self, topic: str, body: bytes, sys_flag: int, born_timestamp: int, born_host: bytes, reconsume_times: int
    ) -> tuple[bytes, list[int]]:
        """The records and their sizes. Adds nothing to the properties of the messages, as 5.5.0, and takes out what only a broker
        writes. Raises InvalidArgument, StructError."""
        common: dict[str, Any] = {
            "sys_flag": sys_flag,
            "born_timestamp": born_timestamp,
            "born_host": born_host,
            "reconsume_times": reconsume_times,
        }
        drafts = [self._draft(topic, item, sent_on(raw), flag=flag, **common) for flag, item, raw in _batch_items(body)]
        return b"".join(drafts), [*map(len, drafts)]

    def _properties(self, text: bytes, born_timestamp: int) -> tuple[bytes, bytes]:
        """The properties with ours added, and the unique key."""
        at = text.rfind(b"UNIQ_KEY\x01")
        if (at > 0 and text[at - 1] != 2) or has_dropped(text):
            text = without_dropped(text)
            at = 0 if text.startswith(b"UNIQ_KEY\x01") else text.find(b"\x02UNIQ_KEY\x01") + 1 or -1
        if at >= 0:
            return text + self._added, text[at + 9 : text.index(b"\x02", at)]
        unique_key = self._unique_id(born_timestamp)
        return b"".join((text, b"UNIQ_KEY\x01", unique_key, b"\x02", self._added)), unique_key

    def _unique_id(self, born_timestamp: int) -> bytes:
        """An id for a message without one: our address, the time that the client gave, and a counter, in the usual length."""
        stamp = (born_timestamp & 0xFFFFFFFFFFFF).to_bytes(6, "big")
        count = (next(self._counter) & 0xFFFFFFFF).to_bytes(4, "big")
        return (self._unique_prefix + stamp + count).hex().upper().encode()

    # --- answers ------------------------------------------------------------------------------------------------------

    def stored(self, queue_id: int, status: int) -> Stored:
        """As of `Codec`; each form is made once."""
        found = self._stored.get((queue_id, status))
        if found is None:
            if len(self._stored) >= _MAX_FORMS:
                self._stored.clear()
            found = self._stored[queue_id, status] = self._form(queue_id, status)
        return found

    def _form(self, queue_id: int, status: int) -> Stored:
        """Usual answers are put together by hand: nothing in them needs escaping, and each length in the binary form fits in a
        byte."""
        queue = str(queue_id)
        in_json = (
            f'{{"code":{status},"extFields":{{"queueId":"{queue}","transactionId":"%b{self._json_parts[0]}%016X'
            f"{self._json_parts[1]}%d{self._json_parts[2]}%d{self._json_parts[3]}"
        ).encode()
        in_binary: dict[int, bytes] = {}

        def form(key: int, number: int) -> bytes:
            """For a key and a queue offset so long."""
            key_length, number_length = (chr(length).replace("%", "%%") for length in (key, number))
            fields = (
                f"\0\x07queueId\0\0\0{chr(len(queue))}{queue}\0\x0dtransactionId\0\0\0{key_length}%b{self._binary_parts[0]}%016X"
                f"{self._binary_parts[1]}{number_length}%b"
            ).encode("latin-1")
            size = len(fields % (bytes(key), 0, bytes(number)))
            before, behind = (part.replace(b"%", b"%%") for part in binary_start(status, 1, size))
            if len(in_binary) >= _MAX_LENGTHS:
                in_binary.clear()
            made = in_binary[key << 8 | number] = b"".join((before, b"%b", behind, fields))
            return made

        def answer(_call_id: int, sent: Any, queue_offset: int, place: int, handle: str = "") -> bytes:
            header, opaque, key, sizes, _, _ = sent
            if sizes is not None or not key.isalnum() or len(key) > _MAX_KEY or (handle and header.binary):
                return self.write_answer(sent, SendAnswer(queue_id, queue_offset, place, status, handle), "")
            if header.binary:
                number = b"%d" % queue_offset
                template = in_binary.get(len(key) << 8 | len(number)) or form(len(key), len(number))
                return template % (_int32(opaque), key, place, number)
            if handle:
                key = b'%b","recallHandle":"%b' % (key, handle.encode())
            text = in_json % (key, place, queue_offset, opaque)
            size = len(text)
            return _two_sizes(size + 4, size) + text

        return answer

    def write_answer(self, sent: Sent, answer: SendAnswer, remark: str) -> bytes:
        """`msgId` names the log offset of the record, or of all records of a batch [MessageDecoder.createMessageId]."""
        header, opaque, key, sizes, _, _ = sent
        queue_id, queue_offset, place, status, handle, batch_id = answer
        places = [*itertools.accumulate(sizes[:-1] if sizes and not batch_id else (), initial=place)]
        written = pack(f">{len(places)}q", *places).hex(",", 8).upper()  # all at once: a batch may have thousands
        msg_id = self._id_prefix + written.replace(",", f",{self._id_prefix}")
        ext = {"queueId": str(queue_id), "msgId": msg_id, "queueOffset": str(queue_offset), **self._answer_ext}
        if key:
            ext["transactionId"] = key.decode("utf-8", "replace")
        if handle:
            ext["recallHandle"] = handle
        if batch_id:
            ext["batchUniqId"] = batch_id
        return write(header.binary, status, 1, opaque, remark, ext)

    def write_refusal(self, sent: Sent, refusal: Refusal) -> bytes:
        """Includes the fields that clients read from refusals, too [MQClientAPIImpl.processSendResponse]."""
        return write(sent.header.binary, int(refusal.code) or 1, 1, sent.opaque, refusal.remark, self.refusal_ext())

    def refusal_ext(self) -> Ext:
        """The fields that clients read from refusals, too [MQClientAPIImpl.processSendResponse]."""
        return dict(self._answer_ext)


def _is_half(fields: Fields) -> bool:
    """Whether it waits for the end of a transaction, if its properties say so, too."""
    _, topic, _, _, queue_id, _, sys_flag, reconsume_times, _, batch, _ = fields
    return sys_flag == _PREPARED and queue_id >= 0 and topic.isascii() and not (reconsume_times or batch)


def _fields(ext: Ext, batch: bool) -> Fields:
    """Raises KeyError, ValueError, Refusal."""
    topic = ext["b"]
    if len(topic) > _MAX_TOPIC_CHARACTERS:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"a topic name has at most {_MAX_TOPIC_CHARACTERS} characters")
    flag, sys_flag, reconsume_times = int(ext["h"]), int(ext["f"]) & ~_HOST_FLAGS, int(ext.get("j", "0"))
    limit = int(ext["l"]) if "l" in ext else -1
    queue_id, queues = int(ext["e"]), int(ext["d"])
    if max(queue_id, queues, limit) >= _INT32 or min(queue_id, queues, limit) < -_INT32:
        raise ValueError("queueId, defaultTopicQueueNums or maxReconsumeTimes does not fit in 32 bits")
    batch = batch or ext.get("m") == "true"
    unit = ext.get("k") == "true"
    return ext["a"], topic, ext["c"], queues, queue_id, flag, sys_flag, reconsume_times, limit, batch, unit


def _batch_items(body: bytes) -> list[tuple[int, bytes, bytes]]:
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


_CODES: frozenset[Any] = frozenset(
    {
        int(RequestCode.SEND_MESSAGE_V2),
        int(RequestCode.SEND_BATCH_MESSAGE),
        int(RequestCode.SEND_MESSAGE),
        *_REPLIES,
    }
)
