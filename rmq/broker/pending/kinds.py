"""Messages that wait inside the broker: for their time, for the end of a transaction, for an acknowledgement.

What every node knows of them comes from committed records alone: those of the system topics where they wait, and those
that were handed on, each of which names its source (`rmq.delivery.proof`). So a failover neither loses nor repeats one.
"""

from collections.abc import Mapping
from typing import Protocol

from rmq.delivery.proof import PROPERTY, Proof, proof_of
from rmq.log.records.pending import HANDED_ON
from rmq.log.records.record import Record, bytes_to_properties


class Kind(Protocol):
    """One kind of them. Both notes must be idempotent: a start tells again what a snapshot may already hold."""

    def holds(self, topic: str) -> bool:
        """Whether its messages wait in that topic."""

    def note(self, stored: Record) -> None:
        """A committed record of such a topic."""

    def done(self, proof: Proof, stored: Record) -> None:
        """A committed record that names one of its sources."""

    def alive_from(self) -> int | None:
        """An offset of the log below which nothing that waits is needed any more; None: nothing waits."""


class Pending:
    """`kinds`: by the word that their proofs begin with."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._by_topic: dict[str, list[Kind]] = {}

    def note(self, stored: Record) -> None:
        """A committed pending change: the record waits, or was handed on, or (a half that is appended again) both."""
        proof = proof_of(bytes_to_properties(stored.properties).get(PROPERTY, "")) if HANDED_ON in stored.properties else None
        if proof is not None and proof.kind in self._kinds:
            self._kinds[proof.kind].done(proof, stored)
        kinds = self._by_topic.get(stored.topic)
        if kinds is None:
            kinds = self._by_topic[stored.topic] = [kind for kind in self._kinds.values() if kind.holds(stored.topic)]
        for kind in kinds:
            kind.note(stored)

    def alive_from(self) -> int | None:
        """The log from here on is still needed for what waits; None: nothing waits."""
        return min((at for kind in self._kinds.values() if (at := kind.alive_from()) is not None), default=None)
