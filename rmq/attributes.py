"""Attributes of topics and consumer groups: what may be asked for, and what a request changes [AttributeUtil]. Pure.

A request names them with a sign, +name to set and -name to remove; the stored names have none.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal

_HIGHEST = 2**63 - 1


class Attribute(NamedTuple):
    """`allowed`: what `allows` allows, in words. `fixed`: it is set when its owner is made, and never changed."""

    allows: Callable[[str], bool]
    allowed: str
    fixed: bool = False


def one_of(*values: str, fixed: bool = False) -> Attribute:
    return Attribute(frozenset(values).__contains__, f"one of {', '.join(sorted(values))}", fixed)


def whole(lowest: int, highest: int = _HIGHEST) -> Attribute:
    def allows(value: str) -> bool:
        digits = value.removeprefix("-")
        return digits.isascii() and digits.isdigit() and len(digits) < 20 and lowest <= int(value) <= highest

    return Attribute(allows, f"a whole number from {lowest} to {highest}")


def text(most: int = 255) -> Attribute:
    return Attribute(lambda value: len(value) <= most and value.isprintable(), f"at most {most} printable characters")


BOOLEAN = one_of("true", "false")


def changed(
    known: Mapping[str, str] | None, changes: Iterable[tuple[str, str | None]], kinds: Mapping[str, Attribute]
) -> dict[str, str]:
    """The attributes after the changes: pairs of a name with its sign, and a value. `known`: None for an owner that is being
    made. Raises Refusal (SYSTEM_ERROR, as RocketMQ)."""
    result = dict(known or {})
    for signed, value in changes:
        if value is not None and result.get(signed) == value:
            continue  # who changes something else gives back what is stored, without signs
        sign, name = signed[:1], signed[1:]
        kind = kinds.get(name)
        if kind is None:
            raise _refused(f"unsupported key: {name or signed}; known: {', '.join(kinds)}")
        if sign not in ("+", "-") or (sign == "+") != bool(value) or (value and not kind.allows(value)):
            said = signed if value is None else f"{signed}={value}"
            raise _refused(f"attribute {said!r}: write +{name}=value with {kind.allowed}, or -{name}")
        if kind.fixed and known is not None and result.get(name) != (value or None):
            raise _refused(f"attempt to update an unchangeable attribute. key: {name}; delete it, and make it anew")
        if sign == "-":
            result.pop(name, None)
        else:
            result[name] = value or ""
    return result


def signed_pairs(changes: str) -> list[tuple[str, str | None]]:
    """Of "+name=value,-name", as topics' requests have them."""
    parts = [part.strip().partition("=") for part in changes.split(",") if part.strip()]
    return [(name, value if equals else None) for name, equals, value in parts]


def _refused(about: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, about)
