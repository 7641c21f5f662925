"""A reader for what Java's fastjson writes: JSON in which the keys of maps may be bare numbers or bare objects."""

import json
from typing import Any

_DECODER = json.JSONDecoder()


def loads(data: bytes) -> Any:
    """Objects as dicts; a key that is an object becomes its compact JSON text, a number its text."""
    value, at = _value(data.decode(), 0)
    assert at == len(data.decode())
    return value


def _value(text: str, at: int) -> tuple[Any, int]:
    if text[at] == "{":
        return _object(text, at + 1)
    if text[at] == "[":
        return _array(text, at + 1)
    return _DECODER.raw_decode(text, at)


def _object(text: str, at: int) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}
    while text[at] != "}":
        key, at = _value(text, at)
        assert text[at] == ":"
        value, at = _value(text, at + 1)
        members[key if isinstance(key, str) else json.dumps(key, sort_keys=True, separators=(",", ":"))] = value
        at += text[at] == ","
    return members, at + 1


def _array(text: str, at: int) -> tuple[list[Any], int]:
    values = []
    while text[at] != "]":
        value, at = _value(text, at)
        values.append(value)
        at += text[at] == ","
    return values, at + 1
