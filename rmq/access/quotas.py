"""Quotas: how much a user, a client or a topic may send and receive per second; how many connections a user or a client may
have, and how many topics and groups it may make. Pure.

A subject is `User:bob`, `Client:ID` (the id of a client, or the IP address that it comes from) or `Topic:orders`; `User:*` holds
for each user that has no quota of its own. Each quota is an allowance that refills with time, up to the amount of one second.
A subject with something left may go on, also into debt; a subject in debt waits until the debt is paid.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.staged import StagedTable

KINDS: Final = ("User", "Client", "Topic")
MAX_QUOTAS: Final = 10_000
MAX_ALLOWANCES: Final = 100_000
MOST: Final = 2**50
_LEAST_WAIT_S, _LONGEST_WAIT_S = 0.001, 30.0
_name = re.compile(r"\*|[!-)+-~]{1,255}").fullmatch


class Quota(NamedTuple):
    """0 is no limit. The first four count per second, at each broker group. `topics`, `groups`: that the subject has made, and
    that are still there. The field order is that of the state record."""

    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    messages_out: int = 0
    connections: int = 0
    topics: int = 0
    groups: int = 0


class QuotaTable(StagedTable[Quota]):
    """Rows by subject: `User:bob`."""

    def apply(self, subject: str, value: Iterable[int] | None, time_ms: int = 0) -> None:
        """A committed state line: the fields of a Quota, or None. `time_ms`: when it was stored."""
        self._commit(subject, None if value is None else Quota(*list(value)[: len(Quota._fields)]), time_ms)


def checked_subject(subject: str) -> str:
    """Raises Refusal (INVALID_PARAMETER)."""
    kind, colon, name = subject.partition(":")
    known = {one.lower(): one for one in KINDS}.get(kind.lower())
    if not colon or known is None or not _name(name):
        about = f"subject {subject[:80]!r}: write User:, Client: or Topic: and a name, or * for each that has no quota of its own"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)
    return f"{known}:{name}"


def checked(subject: str, quota: Quota) -> Quota:
    """Raises Refusal (INVALID_PARAMETER)."""
    for field, value in zip(Quota._fields, quota, strict=True):
        if not 0 <= value <= MOST:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{field} {value}: a whole number from 0 (no limit) to {MOST}")
    if subject.startswith("Topic:") and (quota.connections or quota.topics or quota.groups):
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"{subject}: connections, topics and groups are limited for User: and Client:"
        )
    return quota


def quota_of(subject: str, quotas: Mapping[str, Quota]) -> Quota | None:
    """The subject's own quota, or the quota of its kind. What a blank follows only tells subjects with the same quota apart."""
    subject = subject.partition(" ")[0]
    return quotas.get(subject) or quotas.get(f"{subject.partition(':')[0]}:*")


class Cost(NamedTuple):
    messages: int
    bytes: int


class Allowances:
    """The allowance that each subject has left. Times are seconds on a monotonic clock."""

    def __init__(self, quotas: Mapping[str, Quota]) -> None:
        self._quotas = quotas
        self._left: dict[tuple[str, str], tuple[float, float]] = {}  # by subject and field: how much, when

    def quota_of(self, subject: str) -> Quota | None:
        return quota_of(subject, self._quotas)

    def wait_s(self, subjects: Iterable[str], out: bool, now: float) -> float:
        """Seconds until all these subjects may send (`out`: receive) again; 0: now."""
        wait_s = 0.0
        for subject, field, rate in self._rates(subjects, out):
            level = self._level(subject, field, rate, now)
            if level <= 0.0:
                wait_s = max(wait_s, _LEAST_WAIT_S - level / rate)
        return min(wait_s, _LONGEST_WAIT_S)

    def spend(self, subjects: Iterable[str], out: bool, cost: Cost, now: float) -> None:
        for subject, field, rate in self._rates(subjects, out):
            if len(self._left) >= MAX_ALLOWANCES:
                self._left.clear()
            level = self._level(subject, field, rate, now)
            self._left[subject, field] = (level - (cost.bytes if field.startswith("bytes") else cost.messages), now)

    def _rates(self, subjects: Iterable[str], out: bool) -> Iterable[tuple[str, str, int]]:
        for subject in subjects:
            quota = self.quota_of(subject)
            if quota is not None:
                size, number = (quota.bytes_out, quota.messages_out) if out else (quota.bytes_in, quota.messages_in)
                if size:
                    yield subject, "bytes_out" if out else "bytes_in", size
                if number:
                    yield subject, "messages_out" if out else "messages_in", number

    def _level(self, subject: str, field: str, rate: int, now: float) -> float:
        left, then = self._left.get((subject, field), (float(rate), now))
        return min(float(rate), left + (now - then) * rate)
