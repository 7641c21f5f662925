"""Locks of queues, for ordered consumption: one client of a group has a queue for itself [RebalanceLockManager].

A lock ends 60 s after its owner last asked for it. Only then another client can get it, even if the owner's connection is
gone. Grants and releases are state lines, so a new leader knows every owner. Refreshing writes nothing: when an owner
last asked is known to the leader alone, by its monotonic clock, and a new leader gives each owner 60 s from its start (C9).
"""

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any, NamedTuple

from rmq.staged import Versioned

LIVE_S = 60.0  # [REBALANCE_LOCK_MAX_LIVE_TIME]


class LockKey(NamedTuple):
    """One queue of one group. The field order is that of the state record."""

    group: str
    topic: str
    queue_id: int


Change = tuple[LockKey, str | None]  # a key and its new owner, None for none


class LockTable(Versioned):
    """Owners are client ids. Only `apply` changes the table, in log order; decisions also count changes that are being
    written."""

    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[LockKey, str] = {}
        self._of_group: dict[str, set[LockKey]] = {}  # of these: it is asked for each message that fails
        self._coming: dict[LockKey, list[str | None]] = {}  # owners that are being written; the last one counts
        self._asked: dict[LockKey, tuple[str, float]] = {}  # the last owner since `_began`, and when it last asked
        self._began = math.inf

    def committed(self) -> Mapping[LockKey, str]:
        """The owners that a failover keeps."""
        return self._owners

    # --- deciding: at the leader only

    def begin(self, now: float) -> None:
        """This node leads and has applied everything of earlier epochs: every owner has a full life from now on."""
        self._began = now

    def lock(self, client_id: str, keys: Iterable[LockKey], now: float) -> tuple[set[LockKey], list[Change]]:
        """(what the client holds once the changes are committed, the changes). The changes count as being written from now on.

        If an owner asks again while its grant is being written, the grant is written again: the answer must wait for a record.
        """
        held: set[LockKey] = set()
        changes: list[Change] = []
        for key in keys:
            owner = self._decided(key)
            if owner not in (None, client_id) and now <= self._last_asked(key, owner) + LIVE_S:
                continue
            if owner != client_id or key in self._coming:
                changes.append(self._stage(key, client_id))
            self._asked[key] = (client_id, now)
            held.add(key)
        return held, changes

    def unlock(self, client_id: str, keys: Iterable[LockKey]) -> list[Change]:
        """The changes that release the client's locks among these; the locks of others stay."""
        return [self._stage(key, None) for key in keys if self._decided(key) == client_id]

    def is_held(self, group: str, now: float) -> bool:
        """Whether a member of the group has a queue for itself."""
        keys = self._of_group.get(group, ())
        return any(now <= self._last_asked(key, self._owners[key]) + LIVE_S for key in keys)

    def _last_asked(self, key: LockKey, owner: str | None) -> float:
        client_id, moment = self._asked.get(key, (None, 0.0))
        return moment if client_id == owner else self._began

    def _decided(self, key: LockKey) -> str | None:
        """The owner once all changes that are being written are committed."""
        return self._coming[key][-1] if key in self._coming else self._owners.get(key)

    def _stage(self, key: LockKey, owner: str | None) -> Change:
        self._coming.setdefault(key, []).append(owner)
        return key, owner

    def not_stored(self, changes: Iterable[Change]) -> None:
        """These changes were certainly not written. (For an unknown outcome the log, or the loss of leadership, will tell.)"""
        for key, owner in changes:
            self._arrived(key, owner)

    def drop_overlay(self) -> None:
        """This node no longer leads: the new leader knows what is committed."""
        self._coming.clear()
        self._asked.clear()
        self._began = math.inf

    # --- committed lines

    def apply(self, key: Iterable[Any], value: str | None, time_ms: int = 0) -> None:
        """A committed line: the owner, or None. `time_ms`: when it was stored."""
        place = LockKey(*key)
        if value is None:
            self._remove(place)
        else:
            self._owners[place] = value
            self._of_group.setdefault(place.group, set()).add(place)
        self._arrived(place, value)
        self._version = self._version.risen(time_ms)

    def _arrived(self, key: LockKey, owner: str | None) -> None:
        """Notes that one change is no longer on its way."""
        coming = self._coming.get(key, [])
        if owner in coming:
            coming.remove(owner)
        if not coming:
            self._coming.pop(key, None)
        self._forget(key)

    def _remove(self, key: LockKey) -> None:
        if self._owners.pop(key, None) is not None:
            keys = self._of_group[key.group]
            keys.remove(key)
            if not keys:
                del self._of_group[key.group]
        self._forget(key)

    def _forget(self, key: LockKey) -> None:
        """When its owner asked last, if it has none and gets none."""
        if key not in self._owners and key not in self._coming:
            self._asked.pop(key, None)

    def remove_topics(self, topics: Set[str]) -> None:
        """The topics were deleted at this place of the log."""
        for key in [key for key in self._owners if key.topic in topics]:
            self._remove(key)

    def remove_group(self, group: str) -> None:
        """The group was deleted at this place of the log."""
        for key in [*self._of_group.get(group, ())]:
            self._remove(key)
