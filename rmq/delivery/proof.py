"""The property RMQ_SRC: it says where a message that the broker handed on had waited (docs/storage, pending messages).

The record itself proves that its source was handed on. There is no separate note, which could be lost with a leader or exist
without the record. No client can send the property. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rmq.model import PROOF_PROPERTY

DUE, HALF, POP = "due", "half", "pop"


class Proof(NamedTuple):
    """`kind`: the table that the source is in. `source`: the log offset of its record. `detail`: what else the table needs."""

    kind: str
    source: int
    detail: int = 0

    def text(self) -> str:
        """The property's value."""
        return f"{self.kind} {self.source} {self.detail}"

    def as_property(self) -> dict[str, str]:
        """The property as a record has it."""
        return {PROOF_PROPERTY: self.text()}


def proof_in(properties: Mapping[str, str]) -> Proof | None:
    """The proof in a record's properties; None if there is none by rmq."""
    kind, _, rest = properties.get(PROOF_PROPERTY, "").partition(" ")
    source, _, detail = rest.partition(" ")
    return Proof(kind, int(source), int(detail)) if _is_number(source) and _is_number(detail) else None


def _is_number(text: str) -> bool:
    """Whether it is a number as rmq writes one, not longer: in a store of Apache RocketMQ the property may be anything."""
    return text.isdecimal() and len(text) < 20
