"""The property RMQ_SRC: it says where a message that the broker handed on had waited (docs/storage, pending messages).

The record itself proves that its source was handed on. There is no separate note, which could be lost with a leader or exist
without the record. No client can send the property. Pure.
"""

import re
from typing import NamedTuple

from rmq.model import PROOF_PROPERTY

_BEGIN = PROOF_PROPERTY.encode() + b"\x01"
# the numbers as rmq writes them, not longer: in a store of Apache RocketMQ the property may be anything
_find = re.compile(rb"(?:^|\x02)%s([a-z]+) ([0-9]{1,19}) ([0-9]{1,19})(?:\x02|\Z)" % _BEGIN).search
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


def proof_in(properties: bytes) -> Proof | None:
    """The proof in a record's properties; None if there is none by rmq."""
    if _BEGIN not in properties or (found := _find(properties)) is None:
        return None
    return Proof(found[1].decode(), int(found[2]), int(found[3]))
