"""How SQL92 filters compare values: numbers with texts and with each other, as Java's types do [ComparisonExpression]. Pure.

A property is always a text. Compared with a number, it is read as a number of that type. If it is none, that is an error
(`NotComparable`), not "false": the whole expression then does not match.
"""

import re
from collections.abc import Callable
from math import copysign, inf, isnan
from typing import Any, Final

Compare = Callable[[Any, Any], int]
"""Gives a number below 0, 0, or above 0. Raises NotComparable."""

TEXT, INT, LONG, DOUBLE, BOOL, NOTHING = "text", "int", "long", "double", "bool", "nothing"
NUMBERS: Final = frozenset({INT, LONG, DOUBLE})
MAX_NUMBER: Final = 512  # characters of a text that is read as a number: reading takes time with its length
_BITS = {INT: 31, LONG: 63}
_digits = re.compile(r"[^\D\U00010000-\U0010ffff]++").fullmatch  # digits of any script, as Character.digit takes them
_fraction = re.compile(r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?)").fullmatch
_hexadecimal = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++[fFdD]?").fullmatch
_BLANKS = "".join(map(chr, range(33)))  # the characters that String.trim removes


class NotComparable(Exception):
    """These two values cannot be compared."""


def whole(text: str, bits: int) -> int:
    """A whole number from a text [Integer.valueOf, Long.valueOf]. Raises NotComparable."""
    if len(text) > MAX_NUMBER:
        raise NotComparable(text[:40])
    digits = (text[1:] if text[:1] in ("+", "-") else text).lstrip("0")
    if len(digits) > 19 or not (digits or text[-1:] == "0") or (digits and not _digits(digits)):
        raise NotComparable(text[:40])
    value = int(digits or "0")
    value = -value if text[0] == "-" else value
    if not -(1 << bits) <= value < 1 << bits:
        raise NotComparable(text[:40])
    return value


def fraction(text: str) -> float:
    """A fraction from a text [Double.valueOf]. Raises NotComparable."""
    text = text.strip(_BLANKS)
    if len(text) > MAX_NUMBER:
        raise NotComparable(text[:40])
    if (found := _fraction(text)) is not None:
        sign, name, number = found.groups()
        return float(sign + (name or number))
    if _hexadecimal(text):
        try:
            return float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return -inf if text[0] == "-" else inf
    raise NotComparable(text[:40])


def _order(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


def _order_doubles(one: float, other: float) -> int:
    """NaN equals itself and is above all others; -0.0 is below 0.0 [Double.compare]."""
    if one != one or other != other:
        return isnan(one) - isnan(other)
    return _order(one, other) or (0 if one else _order(copysign(1, one), copysign(1, other)))


def _truth(text: str) -> bool:
    return len(text) == 4 and text.lower() == "true"


def _never(_one: Any, _other: Any) -> int:
    raise NotComparable


def _below(_one: Any, _other: Any) -> int:
    """RocketMQ's result for a Boolean compared with a number."""
    return -1


_reads: dict[str, Callable[[str], Any]] = {
    INT: lambda text: whole(text, _BITS[INT]),
    LONG: lambda text: whole(text, _BITS[LONG]),
    DOUBLE: fraction,
    BOOL: _truth,
}


def comparing(left: str, right: str, ordered: bool) -> Compare:
    """How to compare values of these types. `ordered`: by < or >, which read texts as numbers."""
    if left == right == TEXT:
        return (lambda one, other: _order_doubles(fraction(one), fraction(other))) if ordered else _order
    if right == TEXT:
        return _never if left == BOOL else _reading_right(_reads[left], _numbers(left, left))
    if left == TEXT:
        return _reading_left(_reads[right], _numbers(right, right))
    return _numbers(left, right)


def _numbers(left: str, right: str) -> Compare:
    if (left == BOOL) != (right == BOOL):
        return _below
    if DOUBLE in (left, right):
        return lambda one, other: _order_doubles(float(one), float(other))
    return _order


def _reading_left(read: Callable[[str], Any], compare: Compare) -> Compare:
    return lambda one, other: compare(read(one), other)


def _reading_right(read: Callable[[str], Any], compare: Compare) -> Compare:
    return lambda one, other: compare(one, read(other))
