"""Reading JSON as leniently as RocketMQ does [fastjson2]: its clients in other languages depend on it.

The C++ client writes enums as ordinals, numbers as text and empty lists as null. A value is read by its obvious
meaning; a value without one is refused. Pure.
"""

from typing import Any, Final

import orjson

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.net.codec.limits import BYTES_A_PART, Limits

Json = dict[str, Any]
WRONG_BODY = ResponseCode.SYSTEM_ERROR

# RocketMQ's enums in the order of their ordinals.
LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
)  # fmt: skip
CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")
CONSUME_FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
REQUEST_MODES: Final = ("PULL", "POP")

_MOST_PARTS = Limits().max_structured_bytes // BYTES_A_PART
_INT64 = range(-(2**63), 2**63)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def load(body: bytes, what: str) -> Json:
    """The object in a body; accepts the end of a C string after it. Raises Refusal."""
    if body.count(b"{") + body.count(b"[") > _MOST_PARTS:
        raise Refusal(WRONG_BODY, f"{what}: more than {_MOST_PARTS} brackets in the body; send less at a time")
    try:
        value = orjson.loads(body.rstrip(b"\0")) if len(body) else None
    except orjson.JSONDecodeError as error:
        raise Refusal(WRONG_BODY, f"{what}: the body is not JSON: {error}") from None
    if type(value) is not dict:
        raise Refusal(WRONG_BODY, f"{what}: the body is not a JSON object")
    return value


def get(source: Any, name: str, default: Any) -> Any:
    """A member, converted to the type of the default; the default for null and an empty text. Raises Refusal."""
    if type(source) is not dict:
        raise Refusal(WRONG_BODY, f"an object with {name} is expected, got {type(source).__name__}")
    value = source.get(name)
    if value is None or (value == "" and type(value) is not type(default)):
        return default
    if type(value) is not type(default) or (type(value) is int and value not in _INT64):
        value = _as(type(default), value)
        if value is None:
            raise Refusal(WRONG_BODY, f"{name}: {type(default).__name__} is expected, got {str(source[name])[:40]!r}")
    return value


def _as(kind: type, value: Any) -> Any:
    """The value as another type; None if it has no meaning in that type."""
    if kind is int:
        return whole(value)
    if kind is float and type(value) is int:
        return float(value)
    if kind is bool:
        return bool(value) if type(value) in (int, float) else _BOOLEANS.get(str(value).lower())
    if kind is str and type(value) in (int, float, bool):
        return orjson.dumps(value).decode()
    if kind is list and value is not None:
        return [value]  # a single value needs no brackets
    return None


def whole(value: Any) -> int | None:
    """A whole number, also from text or from a fraction, which is cut off; None if it is no number of 64 bits."""
    if type(value) is str:
        try:
            value = int(value) if len(value) <= 20 else None
        except ValueError:
            return None
    if type(value) not in (int, float, bool) or not -(2**63) <= value < 2**63:
        return None
    return int(value)


def choice(source: Any, name: str, names: tuple[str, ...], default: str) -> str:
    """An enum, given by its name in any case, or by its ordinal as number or text. Returns an unknown name as it is, for the
    handler to judge. Raises Refusal for an ordinal that does not exist."""
    text: str = get(source, name, "") or default
    if text.upper() in names:
        return text.upper()
    ordinal = whole(text)
    if ordinal is None:
        return text
    if not 0 <= ordinal < len(names):
        raise Refusal(WRONG_BODY, f"{name}: {ordinal} is none of {len(names)} ordinals: {', '.join(names)}")
    return names[ordinal]


def texts(source: Any, name: str) -> list[str]:
    return [get({name: value}, name, "") for value in get(source, name, [])]


def text_map(source: Any, name: str) -> dict[str, str]:
    return {key: get({key: value}, key, "") for key, value in get(source, name, {}).items()}
