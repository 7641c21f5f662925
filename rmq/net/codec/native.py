"""The native codec: a 4-byte length and one msgpack array per command.

    request   [code, id, flags, *fields]        flags: bit 0 answer, bit 1 one-way
    answer    [0, id, 1, remark | nil, *fields]
    refusal   [code, id, 1, remark, hint, wait_ms]      code is not 0; the last one only if there is something to wait for

Fields stand in the order of the command's class. A shorter array takes the defaults, a longer one is cut, so old and
new peers understand each other. Values are checked against the annotations here, where bytes come in, and nowhere else.
Pure: no I/O, no clock.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from operator import itemgetter
from struct import Struct
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgpack

from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal
from rmq.names import MAX_CLIENT_ID_LENGTH
from rmq.net.codec.frames import AnswerFrame, Context, Greeting, Received, Stored
from rmq.net.codec.pullforms import HEAD as PULL_HEAD, KnownPulls, PullForms, pull_frame
from rmq.net.codec.remembered import Memory, Part
from rmq.net.codec.unpacking import BINS, NODES_TAKE, check_taken, unpack
from rmq.net.commands import ANSWERS, CODES, REQUESTS, Answer, Hello, Ping, Pull, PullAnswer, Request, Send, SendAnswer
from rmq.net.commands.peers import FetchLogAnswer

VERSION: Final = 1
"""Version of this codec, told in `Hello`."""

ANSWER_FLAG, ONEWAY_FLAG = 1, 2
_HEAD = (int, int, int)
_INT64_MAX: Final = 2**63 - 1

_pack: Callable[[Any], bytes] = msgpack.Packer(use_bin_type=True).pack

Reader = Callable[[object, str], Any]
"""Checks one unpacked value and turns it into the annotated type; the text names the field in errors."""


# --- plans: one per class, made once ----------------------------------------------------------------------------------


class Plan:
    """How the fields of one class are read and written.

    `signature`: the exact types of a complete flat array, or None; `ints`: picks its numbers for the range check.
    """

    __slots__ = ("cls", "code", "defaults", "ints", "names", "readers", "required", "signature", "text_keys")

    def __init__(self, cls: type[Any], flat_head: tuple[type, ...] = ()) -> None:
        hints = get_type_hints(cls)
        self.cls = cls
        self.code = int(CODES.get(cls, 0))
        self.names: tuple[str, ...] = cls._fields
        self.defaults: dict[str, Any] = cls._field_defaults
        self.required = len(self.names) - len(self.defaults)
        types = [hints[name] for name in self.names]
        self.readers = [_reader(kind) for kind in types]
        self.text_keys = any(_has_number_keys(kind) for kind in types)
        flat = all(kind in (str, int, bool, bytes, float) for kind in types)
        self.signature = (*flat_head, *types) if flat else None
        positions = [len(flat_head) + at for at, kind in enumerate(types) if kind is int] if flat else []
        self.ints = itemgetter(*positions, *positions[:1]) if positions else None  # twice the first: always a tuple

    def read(self, values: list[Any], head: int) -> Any:
        """`values[head:]` as an instance of the class; raises BadBytes."""
        known = values[head : head + len(self.names)]
        if len(known) < self.required:
            raise BadBytes(f"field {self.names[len(known)]} is missing")
        read = [reader(value, name) for reader, value, name in zip(self.readers, known, self.names, strict=False)]
        read.extend(self.defaults[name] for name in self.names[len(known) :])
        return self.cls._make(read)

    def fields(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """The fields as msgpack may pack them: numbers as keys become text."""
        return tuple(_with_text_keys(field) for field in value) if self.text_keys else value


def _has_number_keys(kind: Any) -> bool:
    if get_origin(kind) is dict:
        return get_args(kind)[0] is int
    if get_origin(kind) is list:
        return _has_number_keys(get_args(kind)[0])
    return hasattr(kind, "_fields") and any(_has_number_keys(part) for part in get_type_hints(kind).values())


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(part) for part in value]
    return value


def _reader(kind: Any) -> Reader:
    if kind is float:
        return _read_float
    if kind in (str, int, bool, bytes):
        return partial(_read_scalar, kind)
    if get_origin(kind) is list:
        return partial(_read_list, _reader(get_args(kind)[0]))
    if get_origin(kind) is dict:
        key, part = get_args(kind)
        return partial(_read_dict, key, _reader(part))
    return partial(_read_tuple, plan_of(kind))


def _read_scalar(kind: type, value: object, where: str) -> Any:
    if type(value) is not kind:
        raise BadBytes(f"{where}: expected {kind.__name__}, got {type(value).__name__}")
    if kind is int and value > _INT64_MAX:  # type: ignore[operator]
        raise BadBytes(f"{where}: {value} does not fit in 64 bits with a sign")
    return value


def _read_float(value: object, where: str) -> float:
    if type(value) is not float and type(value) is not int:
        raise BadBytes(f"{where}: expected a number, got {type(value).__name__}")
    return float(value)


def _read_list(reader: Reader, value: object, where: str) -> list[Any]:
    if type(value) is not list:
        raise BadBytes(f"{where}: expected an array, got {type(value).__name__}")
    return [reader(part, where) for part in value]


def _read_dict(key_type: type, reader: Reader, value: object, where: str) -> dict[Any, Any]:
    if type(value) is not dict:
        raise BadBytes(f"{where}: expected a map, got {type(value).__name__}")
    return {_read_key(key_type, key, where): reader(part, where) for key, part in value.items()}


def _read_key(key_type: type, key: object, where: str) -> Any:
    if type(key) is not str:
        raise BadBytes(f"{where}: the keys of a map are text, got {type(key).__name__}")
    if key_type is str:
        return key
    digits = key.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise BadBytes(f"{where}: key {key[:40]!r} is not a number")
    return int(key)


def _read_tuple(plan: Plan, value: object, where: str) -> Any:
    if type(value) is not list:
        raise BadBytes(f"{where}: expected an array, got {type(value).__name__}")
    return plan.read(value, 0)


_plans: dict[type[Any], Plan] = {}


def plan_of(cls: type[Any]) -> Plan:
    """The plan of a class that is part of a command."""
    if cls not in _plans:
        _plans[cls] = Plan(cls)
    return _plans[cls]


_REQUEST_PLANS: dict[int, Plan] = {code: Plan(cls, _HEAD) for code, cls in REQUESTS.items()}
_PLAN_OF_REQUEST: dict[type[Any], Plan] = {plan.cls: plan for plan in _REQUEST_PLANS.values()}
_ANSWER_PLANS: dict[type[Any], Plan] = {answer: plan_of(answer) for answer in ANSWERS.values() if answer is not None}


_SEND_DEFAULTS = tuple(Send._field_defaults.values())
_, _DEFAULT_TOPIC, _DEFAULT_QUEUES, *_ = _SEND_DEFAULTS
_SEND_NEEDED = len(Send._fields) - len(_SEND_DEFAULTS)
_SEND_TYPES = (*_HEAD, *(get_type_hints(Send)[name] for name in Send._fields))
_SEND_FORMS = {  # types of a send -> the defaults of the fields it leaves out
    _SEND_TYPES[: len(_HEAD) + _SEND_NEEDED + given]: _SEND_DEFAULTS[given:] for given in range(len(_SEND_DEFAULTS) + 1)
}
_SEND_CODE = _PLAN_OF_REQUEST[Send].code
_SEND_HEAD = b"".join((bytes((0x90 | len(_HEAD) + _SEND_NEEDED,)), _pack(_SEND_CODE), b"\xce"))
"""The beginning of the shortest send, its id in 32 bits."""
_ID_AT, _ROUTE_AT = len(_SEND_HEAD), len(_SEND_HEAD) + 4
_ROUTE_END = _ROUTE_AT + 600  # enough for flags, group, topic and queue
_BIN16 = b"\xc5"
_REQUEST_FLAGS = (0, ONEWAY_FLAG)
_new = tuple.__new__
_UINT32_MAX: Final = 2**32 - 1
_pull_head = Struct(">IBBBIB").pack  # length, array, code, id, flags
_pack_offsets = Struct(">BqBqBqBI").pack  # three offsets and the head of a byte string
_uint16, _uint32 = Struct(">H").unpack_from, Struct(">I").unpack_from
_send_answer = Struct(">7sI12sqsq2s").pack
"""The hot answer in one go: a length and an array of nine, its numbers at their full width (which msgpack allows)."""
_read_send_answers = Struct(">7sI3sqsqsqBB").iter_unpack
_SEND_ANSWER_BYTES, _SEND_ANSWER_HEAD, _INT64 = 38, b"\x99\0\xce", b"\xd3"
_SEND_ANSWER_START = _SEND_ANSWER_BYTES.to_bytes(4, "big") + _SEND_ANSWER_HEAD
_SEND_ANSWER_WHOLE: Final = 4 + _SEND_ANSWER_BYTES
_NO_TEXT = 0xA0
_BETWEEN = (b"\x01\xc0\xd3", _INT64, _INT64, _NO_TEXT)  # what stands between its numbers, and behind them
_frame_head = Struct(f">I{_ID_AT}sI").pack
_bin_heads = (Struct(">BB").pack, Struct(">BH").pack, Struct(">BI").pack)
_array16 = Struct(">BH").pack
_LARGE_BYTES: Final = 16 * 1024
_DATA_AT: Final = 4 + FetchLogAnswer._fields.index("data")  # behind code, id, flags and remark


SendTarget = tuple[str, str, int]
"""Producer group, topic and queue of a send."""


# --- the codec -----------------------------------------------------------------------------------------------------


class NativeAnswer(NamedTuple):
    """An answer before its type is known."""

    code: int
    values: list[Any]

    def read(self, request_type: type[Request]) -> Answer:
        remark = self.values[3] if len(self.values) > 3 else None
        if self.code != ResponseCode.SUCCESS:
            hint = self.values[4] if len(self.values) > 4 else ""
            wait_ms = self.values[5] if len(self.values) > 5 else 0
            raise Refusal(
                self.code,
                remark if type(remark) is str else "",
                hint if type(hint) is str else "",
                wait_ms if type(wait_ms) is int and 0 < wait_ms < _INT64_MAX else 0,
            )
        answer_type = ANSWERS[request_type]
        if answer_type is None:
            return None
        plan = _ANSWER_PLANS[answer_type]
        if plan.signature is not None and tuple(map(type, self.values[4:])) == plan.signature:
            fields = self.values[4:]
            if plan.ints is None or max(plan.ints(fields)) <= _INT64_MAX:
                return plan.cls._make(fields)  # type: ignore[no-any-return]
        return plan.read(self.values, 4)  # type: ignore[no-any-return]


def read_answer(frame: AnswerFrame | SendAnswer, request_type: type[Request]) -> Answer:
    """The answer to a request of this type. Raises as `AnswerFrame.read`."""
    if not isinstance(frame, SendAnswer):
        return frame.read(request_type)
    if request_type is Send:
        return frame
    return NativeAnswer(0, [0, 0, 1, None, *frame[:4], ""]).read(request_type)


def send_answers(data: bytes) -> tuple[list[Received], int]:
    """The good answers to sends that `data` begins with, written as `Native.answer` does, and where they end."""
    received: list[Received] = []
    if data.startswith(_SEND_ANSWER_START):
        whole = len(data) // _SEND_ANSWER_WHOLE * _SEND_ANSWER_WHOLE
        for start, call_id, ok, queue_id, int64, queue_offset, again, place, status, text in _read_send_answers(
            data if whole == len(data) else data[:whole]
        ):
            if start != _SEND_ANSWER_START or (ok, int64, again, text) != _BETWEEN or status >= 128:
                break
            answer = _new(SendAnswer, (queue_id, queue_offset, place, status, "", ""))
            received.append((answer, call_id, False, None, _SEND_ANSWER_BYTES))
    return received, len(received) * _SEND_ANSWER_WHOLE


def _send_answer_of(frame: bytes) -> Received | None:
    """None: it is another kind of frame, or an answer written in another way."""
    received, _ = send_answers(_SEND_ANSWER_START[:4] + frame)
    return received[0] if received else None


@lru_cache(maxsize=4096)
def _bin_head(size: int) -> bytes:
    """What msgpack writes before so many bytes."""
    kind = 0 if size <= 0xFF else 1 if size <= 0xFFFF else 2
    return _bin_heads[kind](BINS[kind], size)


@lru_cache(maxsize=4096)
def _sends(group: str, topic: str, queue_id: int) -> Callable[[bytes, int], bytes]:
    """A function that writes sends of that producer group to that queue: of records and an id. Brokers know them at once."""
    route = _pack((0, group, topic, queue_id))[1:]  # with flags 0
    before = _ROUTE_AT + len(route)
    pack = Struct(f">I{_ID_AT}sI{len(route)}sBH").pack

    def send(records: bytes, call_id: int) -> bytes:
        size = len(records)
        if 0xFF < size <= 0xFFFF:
            return pack(before + 3 + size, _SEND_HEAD, call_id, route, BINS[1], size) + records
        head = _bin_head(size)
        return b"".join((_frame_head(before + len(head) + size, _SEND_HEAD, call_id), route, head, records))

    return send


@lru_cache(maxsize=1024)
def _alike_sends(route_bytes: int, size: int) -> Callable[[memoryview], Iterator[tuple[bytes, int, bytes, bytes, bytes]]]:
    """Cuts frames of sends: what stands before the id, the id, the route, what says how long the records are, the records."""
    return Struct(f">{4 + _ID_AT}sI{route_bytes}s3s{size}s").iter_unpack


@lru_cache(maxsize=4096)
def _stored(queue_id: int, status: int) -> Stored:
    before, after = b"\x01\xc0\xd3%b\xd3" % queue_id.to_bytes(8, "big", signed=True), bytes((status, _NO_TEXT))

    def answer(call_id: int, _context: Context, queue_offset: int, place: int, handle: str = "") -> bytes:
        if 0 <= call_id <= _UINT32_MAX and not handle:
            return _send_answer(_SEND_ANSWER_START, call_id, before, queue_offset, _INT64, place, after)
        body = _pack((0, call_id, 1, None, queue_id, queue_offset, place, status, handle))
        return len(body).to_bytes(4, "big") + body

    return answer


def _done(call_id: int, remark: str = "") -> bytes:
    body = _pack((0, call_id, 1, remark or None))
    return len(body).to_bytes(4, "big") + body


def _pull_answer(call_id: int, _context: Context, answer: PullAnswer, remark: str) -> tuple[bytes, ...]:
    """As `_pack` would write it, but the messages, which may be 256 KiB, are not copied."""
    if not 0 <= call_id <= _UINT32_MAX:
        body = _pack((0, call_id, 1, remark or None, *answer))
        return len(body).to_bytes(4, "big"), body
    next_offset, low, high, messages, status, suggested = answer
    words, tail = _pull_words(remark, status, suggested)
    size = 8 + len(words) + 32 + len(messages) + len(tail)
    head = _pull_head(size, 0x9A, 0, 0xCE, call_id, 1)
    offsets = _pack_offsets(0xD3, next_offset, 0xD3, low, 0xD3, high, 0xC6, len(messages))
    return head + words + offsets, messages, tail


@lru_cache(maxsize=256)
def _pull_words(remark: str, status: int, suggested: int) -> tuple[bytes, bytes]:
    """What stands before the offsets of such an answer, and what behind its messages."""
    return _pack(remark or None), _pack(status) + _pack(suggested)


class Native:
    """The `Codec` of a native connection. It keeps no state but what sends and pulls look like, in the memories of its server."""

    __slots__ = ("_learn_route", "_max_structured_bytes", "_pulls", "_routes")

    def __init__(
        self, max_structured_bytes: int, sends: Memory[bytes, SendTarget] | None = None, pulls: PullForms | None = None
    ) -> None:
        part = Part(sends or Memory())
        self._pulls = KnownPulls(pulls or Memory())
        self._max_structured_bytes = max_structured_bytes
        self._routes, self._learn_route = part.known, part.learn

    def alike(self, data: bytes, at: int, length: int) -> list[Received]:
        begin = at + 4
        if data.startswith(PULL_HEAD, begin):
            return self._pulls.read_alike(data, at, length)
        records_at = data.find(_BIN16, begin + _ROUTE_AT, begin + _ROUTE_END) + 3
        size = begin + length - records_at
        if records_at < begin or size < 1 or not data.startswith(_SEND_HEAD, begin):
            return []
        start, kind = data[at : begin + _ID_AT], data[records_at - 3 : records_at]
        if _uint16(kind, 1)[0] != size:
            return []
        frames = memoryview(data)[at : len(data) - (len(data) - at) % (length + 4)]
        received: list[Received] = []
        routes = self._routes
        for started, call_id, route, said, records in _alike_sends(records_at - 3 - begin - _ROUTE_AT, size)(frames):
            target = routes.get(route)
            if started != start or said != kind or target is None:
                break
            group, topic, queue_id = target
            send = _new(Send, (group, topic, queue_id, records, 0, _DEFAULT_TOPIC, _DEFAULT_QUEUES, False, -1, False))
            received.append((send, call_id, False, None, length))
        return received

    def decode(self, data: bytes, begin: int, stop: int) -> Received:
        """Raises BadBytes if the frame is no command at all; a command with bad fields is refused by its id."""
        if data.startswith(_SEND_HEAD, begin):
            at = data.find(_BIN16, begin + _ROUTE_AT, begin + _ROUTE_END)
            if 0 < at < stop - 3:
                route = self._routes.get(data[begin + _ROUTE_AT : at])
                if route is not None and _uint16(data, at + 1)[0] == stop - at - 3:
                    group, topic, queue_id = route
                    records = data[at + 3 : stop]
                    send = _new(Send, (group, topic, queue_id, records, 0, _DEFAULT_TOPIC, _DEFAULT_QUEUES, False, -1, False))
                    return send, _uint32(data, begin + _ID_AT)[0], False, None, stop - begin
        elif data.startswith(PULL_HEAD, begin) and (pulled := self._pulls.read(data, begin, stop)) is not None:
            return pulled
        frame = data[begin:stop]
        if len(frame) == _SEND_ANSWER_BYTES and frame.startswith(_SEND_ANSWER_HEAD):
            answer = _send_answer_of(frame)
            if answer is not None:
                return answer
        return self._decode(frame)

    def _learn(self, frame: bytes, send: Send) -> None:
        """Learns how this producer encodes group, topic and queue, so that its next sends need not be unpacked value by value.

        Between the id and the records stand flags 0, group, topic and queue. msgpack values show their own ends, so equal
        bytes there always mean the same three.
        """
        at = len(frame) - len(send.records) - 3
        if frame[at : at + 1] == _BIN16 and frame.find(_BIN16, _ROUTE_AT, _ROUTE_END) == at:
            self._learn_route(frame[_ROUTE_AT:at], (send.producer_group, send.topic, send.queue_id))

    def _decode(self, frame: bytes) -> Received:
        values = unpack(frame, self._max_structured_bytes)
        types = tuple(map(type, values)) if type(values) is list else ()
        if types[:3] != _HEAD:
            raise BadBytes("a command is an array that begins with three numbers: code, id, flags")
        code, call_id, flags = values[0], values[1], values[2]
        if code == _SEND_CODE and flags in _REQUEST_FLAGS and (rest := _SEND_FORMS.get(types)) is not None:
            # Its numbers need no range: queue_id is checked by the handler, the others are unused or only compared.
            send = _new(Send, (*values[3:], *rest))
            if frame.startswith(_SEND_HEAD) and not flags:
                self._learn(frame, send)
            return send, call_id, flags == ONEWAY_FLAG, None, len(frame)
        if flags & ANSWER_FLAG:
            return NativeAnswer(code, values), call_id, False, None, len(frame)
        plan = _REQUEST_PLANS.get(code)
        if plan is not None and types == plan.signature and (plan.ints is None or max(plan.ints(values)) <= _INT64_MAX):
            request: Request | Refusal = _new(plan.cls, values[3:])  # as `_make`, whose check is done
            if type(request) is Pull and frame.startswith(PULL_HEAD) and not flags:
                self._pulls.learn(frame, request, call_id)
        else:
            request = _read_request(plan, values)
        return request, call_id, flags & ONEWAY_FLAG != 0, None, len(frame)

    def done(self, context: Context) -> Callable[[int], bytes]:
        return _done

    def answer(self, call_id: int, context: Context, answer: Answer, remark: str) -> bytes:
        if type(answer) is SendAnswer and not remark and not any(answer[4:]) and 0 <= answer.status < 128:
            queue_id, queue_offset, physical_offset, status, *_ = answer
            return _stored(queue_id, status)(call_id, None, queue_offset, physical_offset)
        if type(answer) is PullAnswer:
            return b"".join(_pull_answer(call_id, context, answer, remark))
        if type(answer) is FetchLogAnswer and len(answer.data) > _LARGE_BYTES:
            return _fetch_answer(call_id, answer, remark)
        if answer is None:
            return _done(call_id, remark)
        plan = _ANSWER_PLANS[type(answer)]
        body = _pack((0, call_id, 1, remark or None, *(plan.fields(answer) if plan.text_keys else answer)))
        return len(body).to_bytes(4, "big") + body

    found = staticmethod(_pull_answer)
    stored = staticmethod(_stored)

    def refusal(self, call_id: int, context: Context, refusal: Refusal) -> bytes:
        waits = (refusal.wait_ms,) if refusal.wait_ms else ()
        body = _pack((int(refusal.code) or 1, call_id, 1, refusal.remark, refusal.hint, *waits))
        return len(body).to_bytes(4, "big") + body

    def request(self, request: Request, call_id: int, oneway: bool) -> bytes:
        """Raises InvalidArgument for one that would end the connection, which others may use, too."""
        if type(request) is Send and request[_SEND_NEEDED:] == _SEND_DEFAULTS and not oneway and call_id <= _UINT32_MAX:
            group, topic, queue_id, records, _, _, _, _, _, _ = request
            return _sends(group, topic, queue_id)(records, call_id)
        if type(request) is Pull and not oneway and (pull := pull_frame(request, call_id)) is not None:
            return pull
        plan = _PLAN_OF_REQUEST[type(request)]
        fields: tuple[Any, ...] = plan.fields(request) if plan.text_keys else request
        if type(request) is Send and request[_SEND_NEEDED:] == _SEND_DEFAULTS:
            fields = request[:_SEND_NEEDED]
        body = _pack((plan.code, call_id, ONEWAY_FLAG if oneway else 0, *fields))
        if len(body) > NODES_TAKE:
            check_taken(body, type(request).__name__)
        return len(body).to_bytes(4, "big") + body

    def greet(self, first: object, context: Context) -> Greeting | None:
        """`Hello` comes first; only `Ping` needs no introduction."""
        if isinstance(first, Ping):
            return None
        if not isinstance(first, Hello):
            raise Refusal(ResponseCode.VERSION_NOT_SUPPORTED, f"say Hello ({CODES[Hello]:d}) before anything else")
        if first.version < 1:
            raise Refusal(ResponseCode.VERSION_NOT_SUPPORTED, f"versions 1 to {VERSION} are spoken here, not {first.version}")
        if len(first.client_id) > MAX_CLIENT_ID_LENGTH or len(first.language) > MAX_CLIENT_ID_LENGTH:
            about = f"client id and language have at most {MAX_CLIENT_ID_LENGTH} characters"
            raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        if not -(2**31) <= first.client_version < 2**31:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"client_version {first.client_version} does not fit in 32 bits")
        return Greeting(first.client_id, first.language, first.client_version)


def _fetch_answer(call_id: int, answer: FetchLogAnswer, remark: str) -> bytes:
    """As `_pack` would write it, but the bytes of the log, which may be megabytes, are copied once instead of three times."""
    values = (0, call_id, 1, remark or None, *answer)
    before, data, behind = values[:_DATA_AT], answer.data, values[_DATA_AT + 1 :]
    head = b"".join((_array16(0xDC, len(values)), _pack(before)[1:], _bin_heads[2](BINS[2], len(data))))
    tail = _pack(behind)[1:]
    return b"".join(((len(head) + len(data) + len(tail)).to_bytes(4, "big"), head, data, tail))


def _read_request(plan: Plan | None, values: list[Any]) -> Request | Refusal:
    """The slow path: nested, shortened or lengthened arrays, and errors that say what is wrong."""
    if plan is None:
        return Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {values[0]} not supported")
    try:
        return plan.read(values, 3)  # type: ignore[no-any-return]
    except BadBytes as error:
        return Refusal(ResponseCode.INVALID_PARAMETER, f"{plan.cls.__name__}: {error}")
