"""RocketMQ's remoting codec for the same commands, for its clients and tools.

Ties together frames (`headers`), text fields (`fields`), sends (`sends`) and JSON bodies
(`bodies`). Answers come in the header form of the request, requests of ours in JSON. Pure.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, NamedTuple, Protocol

from rmq.codes import RequestCode, ResponseCode
from rmq.errors import BadBytes, NotLeading, Refusal
from rmq.names import lite_queue
from rmq.net.codec.frames import Address, Context, Greeting, Received, Stored
from rmq.net.codec.limits import Limits
from rmq.net.codec.remembered import Memory
from rmq.net.commands import (
    ANSWERS,
    CODES,
    REQUESTS,
    Answer,
    GetRoute,
    MessageAnswer,
    Pull,
    PullAnswer,
    QueryMessageAnswer,
    RegisterBroker,
    Registered,
    Request,
    SearchOffset,
    Send,
    SendAnswer,
)
from rmq.net.commands.configuration import ConfigText
from rmq.net.commands.lites import LitePopAnswer
from rmq.net.commands.peers import ForwardedClient
from rmq.net.commands.pop import Ack, Assignments, ChangeInvisibleTime, PopAnswer
from rmq.net.commands.questions import ClientReport
from rmq.net.commands.replies import SendReply
from rmq.net.commands.resets import FollowReset
from rmq.net.commands.timers import RecallAnswer
from rmq.net.remoting.accessbodies import ACCESS_READERS, ACCESS_WRITERS
from rmq.net.remoting.adminbodies import ADMIN_READERS, ADMIN_WRITERS, write_follow
from rmq.net.remoting.bodies import ANSWER_WRITERS
from rmq.net.remoting.fields import read as read_fields, write as write_fields
from rmq.net.remoting.headers import (
    ANSWER_FLAG,
    BINARY,
    ONEWAY_FLAG,
    Ext,
    Header,
    bare,
    done,
    read as read_header,
    short as short_code,
    write,
)
from rmq.net.remoting.known import Key, Known, KnownRequests
from rmq.net.remoting.litebodies import LITE_READERS, LITE_WRITERS
from rmq.net.remoting.popbodies import CARRIERS, POP_READERS, pop_ext, write_assignments
from rmq.net.remoting.pulls import answer_head, pull_ext
from rmq.net.remoting.refused import REFUSED, about
from rmq.net.remoting.registration import read_registration, write_registered
from rmq.net.remoting.requestbodies import REQUEST_READERS
from rmq.net.remoting.sends import REGION, Records, Sends, Sent, host_bytes, is_send
from rmq.net.remoting.shapes import BinaryShapes, JsonShapes, Shapes
from rmq.net.remoting.signed import Source, blanked

_uint32 = Struct(">I").unpack_from

STANDARD_JSON_VERSION = 401
"""From V4_9_4 on clients get the broker ids of a route quoted [ClientRequestProcessor]."""

_OURS = range(60_000, 70_000)  # codes of the native codec only
_ALIASES = {RequestCode.SEND_MESSAGE: Send, RequestCode.SEND_BATCH_MESSAGE: Send, RequestCode.LITE_PULL_MESSAGE: Pull}
_REQUESTS: dict[int, type[Any]] = {
    **{short_code(code): cls for code, cls in REQUESTS.items() if code not in _OURS},  # as binary headers cut them
    **{code: cls for code, cls in REQUESTS.items() if code not in _OURS},
    **{int(code): cls for code, cls in _ALIASES.items()},
    int(RequestCode.FORWARDED_CLIENT): ForwardedClient,
}
_READERS = REQUEST_READERS | ADMIN_READERS | POP_READERS | ACCESS_READERS | LITE_READERS
_WRITERS = ANSWER_WRITERS | ADMIN_WRITERS | {Assignments: write_assignments} | ACCESS_WRITERS | LITE_WRITERS
_ABOUT_REFUSED = {number: about(code) for code in REFUSED for number in (short_code(code), code)}
_RECALL_EXT = {"MSG_REGION": REGION}  # without it clients write no trace of a recall [DefaultRecallMessageTraceHook]
_NOTHING = {  # no body says that there is none: mqadmin asks so before it copies [CopyUsersSubCommand, CopyAclsSubCommand]
    (RequestCode.AUTH_GET_USER, ResponseCode.USER_NOT_EXIST),
    (RequestCode.AUTH_GET_ACL, ResponseCode.POLICY_NOT_EXIST),
}
_INDEX_EXT = ("indexLastUpdateTimestamp", "indexLastUpdatePhyoffset")
# Answers in which RocketMQ's broker leaves an empty `extFields` where it has nothing to say.
_EMPTY_EXT = frozenset({11, 14, 15, 35, 38, 103, 361})
_OF_LITE_TOPICS = frozenset({Pull, SearchOffset, Ack, ChangeInvisibleTime})  # with `liteTopic` they mean its light queue


class _Context:
    """The parts of a request that its answer needs."""

    __slots__ = ("frame", "header", "quoted", "who")

    def __init__(self, header: Header, quoted: bool, frame: bytes) -> None:
        self.who: object = None
        self.header = header
        self.quoted = quoted
        self.frame = frame


class Signatures(Protocol):
    """Says who signed a request."""

    def identify(self, header: Header, body: bytes, source: Source) -> object:
        """None if nobody signed it. Raises Refusal for a wrong signature."""
        ...

    def recognise(self, name: str, signed: bytes, signature: bytes, source: Source, /) -> object:
        """The same for a send of a known shape; None if `identify` has to look."""
        ...


class Relayed(NamedTuple):
    """Another node's request to a client of this node, or the client's answer to it: forwarded unchanged except for its id."""

    header: Header
    body: bytes

    def frame(self, opaque: int) -> bytes:
        header = self.header
        return write(header.binary, header.code, header.flag, opaque, header.remark, header.ext, self.body, header.version)


class RemotingAnswer(NamedTuple):
    """A client's answer to our request, before its type is known."""

    header: Header
    body: bytes = b""

    def read(self, request_type: type[Any]) -> Any:
        if request_type is Relayed:
            return Relayed(self.header, self.body)
        if self.header.code != ResponseCode.SUCCESS:
            raise Refusal(self.header.code, self.header.remark)
        answer_type = ANSWERS[request_type]
        if answer_type is None:
            return None
        if answer_type is ClientReport:
            return ClientReport(self.body)
        try:
            return read_fields(answer_type, self.header.ext)
        except Refusal as error:
            raise BadBytes(error.remark) from None


class RemotingSettings:
    """The settings that all remoting connections of one server share.

    `records` is `rmq.log.records.fastpath`, or None where nothing can be sent (a nameserver). `cluster_name` goes into the
    messages' properties, `store_host` into their ids. `broker_name` is what recall handles name, which come with timer
    messages. `keeps_frames`: what the answer to a request needs of it has the whole frame too, so that it can be forwarded as it
    came. `traced`: clients that trace may do so here. `signatures`: None where nobody has to sign.
    """

    def __init__(
        self,
        records: Records | None = None,
        cluster_name: str = "DefaultCluster",
        broker_name: str = "",
        store_host: Address = ("0.0.0.0", 0),
        keeps_frames: bool = False,
        traced: bool = True,
        signatures: Signatures | None = None,
    ) -> None:
        self.broker_name = broker_name
        self.signatures = signatures
        self.keeps_frames = keeps_frames
        self.sends = None if records is None else Sends(records, cluster_name, store_host, traced, keeps_frames)
        self.known: Memory[Key, Known] = Memory()

    def codec(self, peer: Address, limits: Limits = Limits()) -> "Remoting":  # noqa: B008 (a constant)
        """The codec of one connection; `peer` becomes the born host of what it sends."""
        return Remoting(self.sends, limits, peer, self.keeps_frames, self.signatures, self.known)


class Remoting:
    """The `Codec` of one remoting connection."""

    __slots__ = (
        "_born_host", "_forwards", "_keeps_frames", "_known", "_limits", "_sends", "_shapes", "_signatures", "_source",
    )  # fmt: skip

    def __init__(
        self,
        sends: Sends | None,
        limits: Limits,
        client: Address,
        keeps_frames: bool,
        signatures: Signatures | None = None,
        known: Memory[Key, Known] | None = None,
    ) -> None:
        self._sends = sends
        self._known = KnownRequests(Memory() if known is None else known, _Context)
        self._limits = limits
        self._source = Source(client[0])
        self._born_host = host_bytes(client)
        self._signatures = signatures
        self._shapes: tuple[Shapes, Shapes] | None = None  # by the kind of a header
        if sends is not None:
            self._shapes = JsonShapes(sends.json_shapes), BinaryShapes(sends.binary_shapes)
        self._keeps_frames = keeps_frames
        self._forwards = False

    def speak_for(self, client: Address) -> None:
        """The peer is another node, which forwards this client's requests."""
        self._source, self._born_host = Source(client[0]), host_bytes(client)
        self._keeps_frames, self._forwards = False, True

    def alike(self, data: bytes, at: int, length: int) -> list[Received]:
        (word,) = _uint32(data, at + 4)
        kind, header = word >> 24, word & 0xFFFFFF
        if self._signatures is not None or kind > BINARY or header + 4 > length:
            return []
        if header + 4 == length:
            return self._known.read_alike(data, at, length, self._keeps_frames) if kind != BINARY else []
        if self._shapes is None:
            return []
        return self._shapes[kind].read_alike(data, at, length, header, self._born_host, self._keeps_frames)

    def decode(self, data: bytes, begin: int, stop: int) -> Received:
        received = self._read_known(data, begin, stop) if stop - begin > 4 else None
        if received is not None:
            return received
        try:
            return self._decode(data[begin:stop])
        except (TypeError, RecursionError) as error:  # orjson reads deeper values than it or `str` writes
            raise BadBytes(f"a value is nested too deep to be read: {error}") from None

    def _read_known(self, data: bytes, begin: int, stop: int) -> Received | None:
        """A request whose header looks like an earlier one; None if it does not."""
        (word,) = _uint32(data, begin)
        kind, end, signatures = word >> 24, begin + 4 + (word & 0xFFFFFF), self._signatures
        if kind > BINARY or end > stop:
            return None
        if end == stop:
            usual = signatures is None and kind != BINARY
            return self._known.read(data, begin, stop, self._keeps_frames) if usual else None
        if self._shapes is None:
            return None
        body, size, host = data[end:stop], stop - begin, self._born_host
        kept = data[begin:stop] if self._keeps_frames else b""
        read = self._shapes[kind].read
        try:
            if signatures is None:
                return read(data, begin, end, body, size, host, kept, None)
            if (signed := blanked(data[begin:stop], end - begin)) is None:
                return None
            head, signature = signed
            return read(head, 0, len(head), body, size, host, kept, (signatures.recognise, signature, self._source))
        except Refusal:
            return None  # `_decode` says it

    def _decode(self, frame: bytes) -> Received:
        header, body = read_header(frame, self._limits.max_header_bytes)
        flag = header.flag
        if flag & ANSWER_FLAG:
            return RemotingAnswer(header, body), header.opaque, False, None, len(frame)
        asked = _Context(bare(header), False, frame if self._keeps_frames else b"")
        context: _Context | Sent = asked
        request: Request | Refusal
        try:
            who = None if self._signatures is None else self._signatures.identify(header, body, self._source)
            if is_send(header.code) and self._sends is not None:
                request, sent = self._sends.read(frame, header, body, self._born_host, self._shapes)
                context = sent if who is None else sent._replace(who=who)
            else:
                asked.who = who
                request = self._read(header, body, asked)
                if self._signatures is None and not header.binary:
                    self._known.learn(frame, header, asked.quoted, request)
        except Refusal as error:
            request = Refusal(error.code, error.remark)  # a new one: the raised one holds on to the frame
        return request, header.opaque, flag & ONEWAY_FLAG != 0, context, len(frame)

    def _read(self, header: Header, body: bytes, asked: _Context) -> Request:
        cls = _REQUESTS.get(header.code)
        if cls is None or cls in (Send, SendReply):
            remark = f" request type {header.code} not supported{_ABOUT_REFUSED.get(header.code, '')}"
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if cls is RegisterBroker:
            self._check_body(body, self._limits.max_registration_bytes)
            return read_registration(header.ext, body, self._limits.max_registration_bytes)
        reader = _READERS.get(cls)
        if reader is None:
            request = read_fields(cls, header.ext)
            asked.quoted = header.version >= STANDARD_JSON_VERSION or getattr(request, "accept_standard_json_only", False)
            if cls in _OF_LITE_TOPICS and (lite := header.ext.get("liteTopic", "").strip()):
                request = request._replace(topic=lite_queue(request.topic, lite))
            if cls is GetRoute and header.ext.get("__ZONE_MODE", "").lower() != "true":
                request = request._replace(zone="")
            return request  # type: ignore[no-any-return]
        self._check_body(body, self._limits.max_structured_bytes)
        return reader(header.ext, body)  # type: ignore[no-any-return]

    def _check_body(self, body: bytes, most: int) -> None:
        if len(body) > most:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"a body of {len(body)} bytes, at most {most} are read; send less at a time")

    def answer(self, call_id: int, context: Context, answer: Answer, remark: str) -> bytes:
        if type(context) is Sent:
            assert self._sends is not None
            assert type(answer) is SendAnswer
            return self._sends.write_answer(context, answer, remark)
        assert isinstance(context, _Context)
        if type(answer) is PullAnswer:
            return b"".join(self.found(call_id, context, answer, remark))
        header = context.header
        if answer is None and not header.binary and not remark:
            return done(header.code in _EMPTY_EXT, call_id)
        code, ext, body = _encode(answer, header, context.quoted)
        return write(header.binary, code, ANSWER_FLAG, call_id, remark, ext, body)

    def found(self, call_id: int, context: Context, answer: PullAnswer, remark: str) -> tuple[bytes, ...]:
        assert isinstance(context, _Context)
        if context.header.binary:
            return (write(True, answer.status, ANSWER_FLAG, call_id, remark, pull_ext(answer), answer.messages),)
        return answer_head(call_id, answer, remark), answer.messages

    def stored(self, queue_id: int, status: int) -> Stored:
        assert self._sends is not None
        return self._sends.stored(queue_id, status)

    def done(self, context: Context) -> Callable[[int], bytes]:
        if isinstance(context, _Context) and not context.header.binary:
            return partial(done, context.header.code in _EMPTY_EXT)
        return lambda call_id: self.answer(call_id, context, None, "")

    def refusal(self, call_id: int, context: Context, refusal: Refusal) -> bytes:
        if self._forwards and isinstance(refusal, NotLeading):
            refusal = Refusal(ResponseCode.NOT_LEADING, refusal.remark)
        if type(context) is Sent:
            assert self._sends is not None
            return self._sends.write_refusal(context, refusal)
        assert isinstance(context, _Context)
        header = context.header
        if (header.code, refusal.code) in _NOTHING:
            return write(header.binary, 0, ANSWER_FLAG, call_id, refusal.remark, None)
        ext: Ext | None = {} if header.code in _EMPTY_EXT else None
        if is_send(header.code) and self._sends is not None:
            ext = self._sends.refusal_ext()
        elif header.code == RequestCode.RECALL_MESSAGE:
            ext = dict(_RECALL_EXT)
        return write(header.binary, int(refusal.code) or 1, ANSWER_FLAG, call_id, refusal.remark, ext)

    def request(self, request: Request | Relayed, call_id: int, oneway: bool) -> bytes:
        """Our request: text fields, and the message that it carries, if any."""
        if type(request) is Relayed:
            return request.frame(call_id)
        flag = ONEWAY_FLAG if oneway else 0
        if isinstance(request, FollowReset):
            ext, body = write_fields(request), write_follow(request)
            del ext["forC"]
        else:
            ext, body = write_fields(request), request.message if isinstance(request, CARRIERS) else b""
        return write(False, int(CODES[type(request)]), flag, call_id, "", ext, body)

    def greet(self, first: object, context: Context) -> Greeting | None:
        """No introduction is needed, because every header has language and version."""
        if not isinstance(context, _Context | Sent):
            raise BadBytes("it begins with an answer, and nothing was asked")
        return Greeting("", context.header.language, context.header.version)


def _encode(answer: Answer, header: Header, quoted: bool) -> tuple[int, Ext | None, bytes]:
    """Code, text fields and body of an answer."""
    if answer is None:
        return 0, {} if header.code in _EMPTY_EXT else None, b""
    if type(answer) is QueryMessageAnswer:
        fields = write_fields(answer)
        return answer.status, {name: fields[name] for name in _INDEX_EXT}, answer.messages
    if type(answer) is MessageAnswer:
        return 0, None, answer.message
    if type(answer) is ConfigText:
        return 0, {"version": answer.version} if answer.version else None, answer.text.encode()
    if type(answer) is LitePopAnswer:
        ext = write_fields(answer)
        del ext["status"]
        return answer.status, ext, answer.messages
    if type(answer) is PopAnswer:
        return answer.status, pop_ext(answer), answer.messages
    if type(answer) is RecallAnswer:
        return 0, write_fields(answer) | _RECALL_EXT, b""
    if type(answer) is Registered:
        return 0, *write_registered(answer)
    writer = _WRITERS.get(type(answer))
    if writer is None:
        return 0, write_fields(answer), b""
    return 0, {} if header.code in _EMPTY_EXT else None, writer(answer, quoted)


__all__ = ["Records", "Relayed", "Remoting", "RemotingAnswer", "RemotingSettings"]
