"""How a message that the broker hands on says where it comes from: its property RMQ_SRC (docs/storage, pending messages).

The record itself is the proof that its source was handed on: there is no other note of it that could be lost when a leader
dies, or be there without it. No client can send the property. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rmq.model import PROOF_PROPERTY

DUE, HALF, POP = "due", "half", "pop"


class Proof(NamedTuple):
    """`kind`: which table the source is in. `source`: offset of its record in the log. `detail`: what it needs besides."""

    kind: str
    source: int
    detail: int = 0

    def text(self) -> str:
        """The property's value."""
        return f"{self.kind} {self.source} {self.detail}"

    def as_property(self) -> dict[str, str]:
        """As a record carries it."""
        return {PROOF_PROPERTY: self.text()}


def proof_in(properties: Mapping[str, str]) -> Proof | None:
    """The proof among a record's properties; None if there is none of ours."""
    kind, _, rest = properties.get(PROOF_PROPERTY, "").partition(" ")
    source, _, detail = rest.partition(" ")
    return Proof(kind, int(source), int(detail)) if _is_number(source) and _is_number(detail) else None


def _is_number(text: str) -> bool:
    """Not longer than those that we write: a store of Apache RocketMQ may hold the property with anything in it."""
    return text.isdecimal() and len(text) < 20
