"""A group's filter for a topic: tags, or an SQL92 expression (`sql.py`).

The broker compares 32-bit hash codes only, so it may let a wrong tag through; the client compares the strings again (C14).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from rmq.codes import ResponseCode
from rmq.delivery.sql import Sql, compile_sql
from rmq.errors import Refusal
from rmq.javahash import tags_code

ALL = "*"
MAX_EXPRESSION = 16 * 1024  # characters
_SHORT = 1024  # longer expressions are not cached


TAG, SQL92 = "TAG", "SQL92"  # [ExpressionType]

Selection = frozenset[int] | str | None
"""The wanted messages: those with these tag codes, those that match this SQL92 expression, or (None) all."""


def selection(expression: str, expression_type: str) -> Selection:
    """What a subscription wants. Does not compile an SQL92 expression, since that takes time. Raises Refusal."""
    if expression_type in ("", TAG):
        return codes_of(expression)
    if expression_type == SQL92:
        return expression
    raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"expression type {expression_type!r} is unknown: use TAG or SQL92")


def tag_codes(wanted: Selection) -> frozenset[int] | None:
    """The wanted tag codes; None: any message may be wanted."""
    return None if isinstance(wanted, str) else wanted


def parse_tags(expression: str) -> frozenset[str] | None:
    """The tags of "a || b"; None means all messages ("*" or nothing) [FilterAPI].

    Raises Refusal (SUBSCRIPTION_PARSE_FAILED) if the expression has no tag or is too long.
    """
    if len(expression) > MAX_EXPRESSION:
        about = f"an expression of {len(expression)} characters: at most {MAX_EXPRESSION} are allowed; subscribe to * instead"
        raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, about)
    text = expression.strip()
    if not expression or text == ALL:
        return None
    tags = frozenset(tag for part in text.split("||") if (tag := part.strip()))
    if not tags:
        about = f"expression {expression!r} names no tag: write tag1 || tag2, or * for all messages"
        raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, about)
    return tags


def codes(tags: Iterable[str]) -> frozenset[int]:
    """The hash codes of tags, as ConsumeQueue entries hold them."""
    return frozenset(map(tags_code, tags))


def codes_of(expression: str) -> frozenset[int] | None:
    """The codes of the expression's tags; None: all. Recent results are cached, about 32 MB at most.

    Raises Refusal.
    """
    return short_codes(expression) if len(expression) <= _SHORT else long_codes(expression)


def _codes_of(expression: str) -> frozenset[int] | None:
    tags = parse_tags(expression)
    return None if tags is None else codes(tags)


short_codes = lru_cache(maxsize=1024)(_codes_of)
long_codes = lru_cache(maxsize=64)(_codes_of)


Exact = frozenset[str] | Sql | None
"""What a client checks again: these tags, an SQL92 expression, or (None) nothing."""


def parse(expression: str, expression_type: str) -> Exact:
    """Raises Refusal."""
    return compile_sql(expression) if expression_type == SQL92 else parse_tags(expression)


def matches(wanted: Exact, properties: Mapping[str, str]) -> bool:
    """Whether a message with these properties is wanted."""
    if isinstance(wanted, Sql):
        return wanted.matches(properties)
    return wanted is None or properties.get("TAGS", "") in wanted
