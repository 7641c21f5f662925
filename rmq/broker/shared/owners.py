"""Writes down who makes topics and groups, and refuses what is over a quota.

A request that may make something is noted before it is served. What is made then belongs to who asked last for that name.
"""

from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from typing import Final

from rmq.access.owners import GROUP, TOPIC, OwnerTable
from rmq.access.quotas import Quota, quota_of
from rmq.broker.shared.state import Line, undoing
from rmq.codes import ResponseCode
from rmq.errors import Refusal
from rmq.model import DLQ_PREFIX, RETRY_PREFIX

_MOST_NOTED: Final = 10_000
_WAIT_MS: Final = 1000
_KINDS: Final = {"topic": TOPIC, "group": GROUP}


class Owners:
    """`there`: by table, the names that exist. `write(lines)`: as of `Catalog`."""

    def __init__(
        self,
        table: OwnerTable,
        quotas: Mapping[str, Quota],
        there: Mapping[str, Container[str]],
        write: Callable[[list[Line]], Awaitable[None]],
    ) -> None:
        self._table = table
        self._quotas = quotas
        self._there = {_KINDS[name]: names for name, names in there.items()}
        self._write = write
        self._noted: dict[str, tuple[str, ...]] = {}

    def asks(self, kind: str, name: str, subjects: tuple[str, ...]) -> None:
        """A request of these subjects of quotas makes that topic or group, if it is not there."""
        if name in self._there[kind]:
            return
        thing = f"{kind}:{name}"
        self._noted.pop(thing, None)
        self._noted[thing] = subjects
        if len(self._noted) > _MOST_NOTED:
            del self._noted[next(iter(self._noted))]  # the oldest

    async def write(self, lines: list[Line]) -> None:
        """Writes the lines of topics and groups, and whose the new ones are. Raises Refusal (FLOW_CONTROL)."""
        staged: list[Line] = []
        with undoing(lambda: self._unstage(staged)):
            for thing, subjects in self._new(lines):
                self._check(thing, subjects)
                self._table.stage(thing, subjects)
                staged.append(("owner", thing, list(subjects)))
            await self._write([*lines, *staged])

    def _new(self, lines: list[Line]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for table, name, value in lines:
            kind = _KINDS.get(table)
            if kind is None or value is None or name in self._there[kind] or name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                continue
            thing = f"{kind}:{name}"
            subjects = self._noted.pop(thing, ())
            if subjects:
                yield thing, subjects

    def _check(self, thing: str, subjects: tuple[str, ...]) -> None:
        kind = thing.partition(":")[0]
        for subject in subjects:
            quota = quota_of(subject, self._quotas)
            most = 0 if quota is None else quota.topics if kind == TOPIC else quota.groups
            if most and self._table.made_by(subject, kind) >= most:
                about = f"{subject.strip()} has made {most} {kind.lower()}s, which is its quota: delete one, or ask for more"
                raise Refusal(ResponseCode.FLOW_CONTROL, about, wait_ms=_WAIT_MS)

    def _unstage(self, staged: list[Line]) -> None:
        for _, thing, _ in staged:
            self._table.unstage(thing)
