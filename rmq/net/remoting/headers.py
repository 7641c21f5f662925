"""The frame and the two headers of RocketMQ's remoting protocol, in both directions [RemotingCommand].

    4 bytes   length of what follows
    1 byte    how the header is written: 0 JSON, 1 binary     3 bytes   its length
    header, then body

Only frames and text fields; what they mean is in `fields`, `sends` and `bodies`. Pure.
"""

from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

from rmq.errors import BadBytes
from rmq.net.remoting.lenient import LANGUAGES, whole

VERSION: Final = 513
"""The version that we report: V5_5_0 [MQVersion]."""

JAVA, BINARY = 0, 1
ANSWER_FLAG, ONEWAY_FLAG = 1, 2
_MAX_LANGUAGE = 32  # characters
_FIXED = Struct(">hbhiii")  # code, language, version, opaque, flag, length of the remark
_binary_start = Struct(">IIhbhiiii").pack  # both lengths of a frame, the same, and the length of the fields
_WORD = Struct(">I")
_INT = Struct(">i")
_two_sizes = Struct(">II").pack
_SHORT = Struct(">h")
_INT32 = 2**31
_new = tuple.__new__  # a NamedTuple in half the time

Ext = dict[str, str]


class Header(NamedTuple):
    """`ext`: the text fields, without null ones and, in binary headers, without empty ones."""

    code: int
    flag: int
    opaque: int
    language: str
    version: int
    ext: Ext
    remark: str
    binary: bool


def bare(header: Header) -> Header:
    """The parts that an answer needs, without the texts, which may be long."""
    code, flag, opaque, language, version, _, _, binary = header
    return _new(Header, (code, flag, opaque, language, version, {}, "", binary))


def read(frame: bytes, max_header_bytes: int) -> tuple[Header, bytes]:
    """Header and body of a frame without its length. Raises BadBytes: the connection cannot go on."""
    if len(frame) < 4:
        raise BadBytes(f"a remoting frame of {len(frame)} bytes has no room for a header")
    (word,) = _WORD.unpack_from(frame)
    kind, stop = word >> 24, 4 + (word & 0xFFFFFF)
    if stop > len(frame) or stop > max_header_bytes:
        raise BadBytes(f"a header of {stop - 4} bytes in a frame of {len(frame)}; at most {max_header_bytes} are allowed")
    if kind == 0:
        return _read_json(frame[4:stop]), frame[stop:]
    if kind == BINARY:
        return _read_binary(frame[4:stop]), frame[stop:]
    raise BadBytes(f"serialize type {kind}; 0 (JSON) and 1 (ROCKETMQ) are known")


def _read_json(data: bytes) -> Header:
    try:
        header = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadBytes(f"the header is not JSON: {error}") from None
    if type(header) is not dict:
        raise BadBytes("the header is not a JSON object")
    get = header.get
    code, flag, opaque, version = get("code", 0), get("flag", 0), get("opaque", 0), get("version", 0)
    if not type(code) is type(flag) is type(opaque) is type(version) is int:
        code, flag, opaque, version = (_number(name, header.get(name)) for name in ("code", "flag", "opaque", "version"))
    if not (-_INT32 <= opaque < _INT32 and -_INT32 <= code < _INT32 and -_INT32 <= version < _INT32):
        raise BadBytes(f"code {code}, opaque {opaque} or version {version} does not fit in 32 bits")
    ext, language, remark = get("extFields"), get("language", "JAVA"), get("remark")
    if type(language) is not str:
        language = _language(whole(language))
    elif len(language) > _MAX_LANGUAGE:
        language = "OTHER"
    if type(remark) is not str:
        remark = ""
    return _new(Header, (code, flag, opaque, language, version, _texts(ext) if ext else {}, remark, False))


def _number(name: str, value: Any) -> int:
    """A number in a header; it may be text, have a fraction, or be missing [fastjson2]."""
    number = 0 if value is None else whole(value)
    if number is None:
        raise BadBytes(f"{name} of a header is no number: {str(value)[:40]!r}")
    return number


_ALL_TEXT = frozenset({str})


def _texts(ext: Any) -> Ext:
    """Text fields as they are, numbers and booleans as text, nulls left out [fastjson]."""
    if type(ext) is not dict:
        raise BadBytes("extFields of a header is not a JSON object")
    if _ALL_TEXT.issuperset(map(type, ext.values())):
        return ext
    return {key: _text(value) for key, value in ext.items() if value is not None}


def _text(value: Any) -> str:
    return value if type(value) is str else orjson.dumps(value).decode()


def _read_binary(data: bytes) -> Header:
    if len(data) < _FIXED.size + 4:
        raise BadBytes(f"a binary header of {len(data)} bytes; {_FIXED.size + 4} are the least")
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(data)
    at = _FIXED.size
    remark, at = _read_bytes(data, at, remark_size)
    if at + 4 > len(data):
        raise BadBytes("a binary header ends before its fields")
    (ext_size,) = _INT.unpack_from(data, at)
    if not 0 <= ext_size <= len(data) - at - 4:
        raise BadBytes(f"a binary header with {ext_size} bytes of fields, {len(data) - at - 4} are there")
    try:
        ext = _read_ext(data[at + 4 : at + 4 + ext_size]) if ext_size else {}
        text = str(remark, "utf-8")
    except UnicodeDecodeError as error:
        raise BadBytes(f"a binary header is not UTF-8: {error.reason}") from None
    return Header(code, flag, opaque, _language(language), version, ext, text, True)


def _language(ordinal: int | None) -> str:
    """[LanguageCode]"""
    return LANGUAGES[ordinal] if ordinal is not None and 0 <= ordinal < len(LANGUAGES) else "OTHER"


def _read_bytes(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if not 0 <= size <= len(data) - at:
        raise BadBytes(f"a binary header with a part of {size} bytes, {len(data) - at} are left")
    return data[at : at + size], at + size


def _read_ext(data: bytes) -> Ext:
    """Reads (key length, key, value length, value)*. An empty value counts as missing [RocketMQSerializable]."""
    ext: Ext = {}
    at, end = 0, len(data)
    while at < end:
        key_at = at + 2
        value_at = key_at + (data[at] << 8 | data[at + 1] if key_at <= end else end) + 4
        if value_at > end:
            raise BadBytes("a binary header ends inside a field")
        (size,) = _INT.unpack_from(data, value_at - 4)
        at = value_at + size
        if size < 0 or at > end:
            raise BadBytes(f"a binary header with a part of {size} bytes, {end - value_at} are left")
        if size:
            ext[data[key_at : value_at - 4].decode()] = data[value_at:at].decode()
    return ext


# --- writing ----------------------------------------------------------------------------------------------------------


def write(
    binary: bool, code: int, flag: int, opaque: int, remark: str, ext: Ext | None, body: bytes = b"", version: int = VERSION
) -> bytes:
    """A whole frame. `ext`: None writes no `extFields` at all, which some answers must tell from empty ones."""
    if binary:
        header = _write_binary(code, flag, opaque, remark, ext, version)
    else:
        header = _write_json(code, flag, opaque, remark, ext, version)
    return frame(binary, header, body)


def frame(binary: bool, header: bytes, body: bytes = b"") -> bytes:
    """Length, kind and length of the header, header, body."""
    size = len(header)
    head = (4 + size + len(body) << 32 | binary << 24 | size).to_bytes(8, "big")
    return b"".join((head, header, body))


def done(empty: bool, opaque: int) -> bytes:
    """A whole frame with a header in JSON that answers with success and nothing else. `empty`: with an empty `extFields`."""
    text = (_DONE_EMPTY if empty else _DONE) % opaque
    size = len(text)
    return _two_sizes(4 + size, size) + text


def binary_start(code: int, flag: int, size: int) -> tuple[bytes, bytes]:
    """What stands before and behind the request's id in a frame with a binary header, without remark and body, up to its fields,
    which have so many bytes."""
    header = _FIXED.size + 4 + size
    start = _binary_start(4 + header, 1 << 24 | header, code, JAVA, VERSION, 0, flag, 0, size)
    return start[:13], start[17:]


def _write_json(code: int, flag: int, opaque: int, remark: str, ext: Ext | None, version: int) -> bytes:
    header: dict[str, object] = {"code": code}
    if ext is not None:
        header["extFields"] = ext
    header |= {"flag": flag, "language": "JAVA", "opaque": opaque}
    if remark:
        header["remark"] = remark
    header |= {"serializeTypeCurrentRPC": "JSON", "version": version}
    return orjson.dumps(header)


def _write_binary(code: int, flag: int, opaque: int, remark: str, ext: Ext | None, version: int) -> bytes:
    fields = b"".join(_write_field(key, value) for key, value in ext.items()) if ext else b""
    return binary_header(code, flag, opaque, remark.encode(), fields, version)


def binary_header(code: int, flag: int, opaque: int, remark: bytes, fields: bytes, version: int) -> bytes:
    """`fields`: lengths and values as bytes."""
    head = _FIXED.pack(short(code), JAVA, version, opaque, flag, len(remark))
    return b"".join((head, remark, _INT.pack(len(fields)), fields))


def _write_field(key: str, value: str) -> bytes:
    name, data = key.encode(), value.encode()
    return b"".join((_SHORT.pack(len(name)), name, _INT.pack(len(data)), data))


def short(code: int) -> int:
    """Codes above 32767 are cut to 16 bits, as RocketMQ cuts them."""
    return (code + 2**15) % 2**16 - 2**15


_DONE, _DONE_EMPTY = (
    _write_json(0, ANSWER_FLAG, 0, "", ext, VERSION).replace(b'"opaque":0', b'"opaque":%d') for ext in (None, Ext())
)
