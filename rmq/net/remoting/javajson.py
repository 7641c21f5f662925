"""JSON as Java's fastjson writes it: keys of maps may be bare numbers or bare objects. Pure."""

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

from rmq.errors import BadBytes

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]:,]|[^\s"{}\[\]:,]++')
_MAX_DEPTH: Final = 64


def loads(body: bytes) -> Any:
    """The value; a key that is no text becomes its JSON text, such as `{"topic":"t"}`. Raises BadBytes."""
    try:
        return orjson.loads(_standard(body))
    except (orjson.JSONDecodeError, IndexError, UnicodeDecodeError) as error:
        raise BadBytes(f"neither JSON nor what Java makes of it: {error}") from None


@dataclass(slots=True)
class _Open:
    """An open bracket. `at_key`: a key comes next. `is_key`: the bracket is part of a key."""

    is_object: bool
    is_key: bool
    at_key: bool


def _standard(body: bytes) -> bytes:
    """The body with a text for each key. Raises BadBytes, IndexError, UnicodeDecodeError if it is no such JSON."""
    written: list[list[bytes]] = [[]]  # the whole text, and each unfinished key
    opened = [_Open(False, False, False)]
    for match in _TOKEN.finditer(body):
        token, within = match.group(), opened[-1]
        if token in b"{[":
            if len(opened) > _MAX_DEPTH:
                raise BadBytes(f"more than {_MAX_DEPTH} brackets in each other")
            opened.append(_Open(token == b"{", within.at_key, token == b"{"))
            if within.at_key and len(written) > 1:
                raise BadBytes("a key inside a key")
            if within.at_key:
                written.append([])
        elif token in b":,":
            within.at_key = within.is_object and token == b","
        elif token not in b"}]" and within.at_key and token[:1] != b'"':
            token = b'"' + token + b'"'
        written[-1].append(token)
        if token in b"}]" and opened.pop().is_key:
            key = b"".join(written.pop())
            written[-1].append(orjson.dumps(key.decode()))
    return b"".join(written[0])
