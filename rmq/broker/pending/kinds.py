"""Messages that wait inside the broker: for their time, for the end of a transaction, for an acknowledgement.

Every node learns of them from committed records alone: records in the system topics where they wait, and records that were
handed on, which name their source (`rmq.delivery.proof`). So a failover neither loses nor repeats one.
"""

from collections.abc import Mapping
from typing import Protocol

from rmq.delivery.proof import Proof, proof_in
from rmq.log.records.record import Record


class Kind(Protocol):
    """One kind of pending messages. `note` and `done` must be idempotent: a start repeats what a snapshot may already hold."""

    def holds(self, topic: str) -> bool:
        """Whether its messages wait in that topic."""

    def note(self, stored: Record) -> None:
        """A committed record of such a topic."""

    def done(self, proof: Proof, stored: Record) -> None:
        """A committed record that names one of its sources."""

    def alive_from(self) -> int | None:
        """An offset of the log below which nothing that waits is needed any more; None: nothing waits."""


class Pending:
    """`kinds`: by the word with which their proofs begin."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._by_topic: dict[str, list[Kind]] = {}

    def note(self, stored: Record) -> None:
        """A committed pending change: the record waits, or was handed on, or (a half that is appended again) both."""
        proof = proof_in(stored.properties)
        if proof is not None and proof.kind in self._kinds:
            self._kinds[proof.kind].done(proof, stored)
        kinds = self._by_topic.get(stored.topic)
        if kinds is None:
            kinds = [kind for kind in self._kinds.values() if kind.holds(stored.topic)]
            if kinds:  # a topic of users, to which a message was handed on, is not kept: there is no end of them
                self._by_topic[stored.topic] = kinds
        for kind in kinds:
            kind.note(stored)

    def alive_from(self) -> int | None:
        """Pending messages need the log from here on; None: nothing waits."""
        return min((at for kind in self._kinds.values() if (at := kind.alive_from()) is not None), default=None)
