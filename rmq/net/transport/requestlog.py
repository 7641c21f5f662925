"""Logs and counts single requests that were refused or took long. The number of lines is limited, the counts are not.

A request's id is the address of the client's end of the connection and the number that the client gave it: both sides know it,
and so does a node that forwards it, though nobody sends it.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import NotThere, Refusal
from rmq.measures import Family
from rmq.names import address_text
from rmq.net.codec.frames import Address

log = logging.getLogger("rmq.requests")

MAX_LINES, WINDOW_S = 100, 10.0  # of each kind
MAX_IDS: Final = 10  # in one line
MAX_TEXT: Final = 300  # characters of a remark
_CODES: Final = frozenset(map(int, ResponseCode))  # a client may answer what a tool asks it with any other


def request_id(client: Address, call_id: int) -> str:
    """`client`: its end of the connection."""
    return f"{address_text(*client)}#{call_id}"


class Lines:
    """How many lines may be written now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._left = 0
        self._left_out = 0

    def admit(self) -> bool:
        now = self._clock.monotonic()
        if now >= self._until:
            self._until, self._left = now + WINDOW_S, MAX_LINES
        self._left -= 1
        self._left_out += self._left < 0
        return self._left >= 0

    def left_out(self) -> dict[str, int]:
        """A note on how many lines were left out since the last one, if any."""
        count, self._left_out = self._left_out, 0
        return {"left_out": count} if count else {}


class RequestLog:
    """The log of one server's requests. `slow_s`: requests that take longer are slow; 0: none is."""

    def __init__(self, clock: Clock, slow_s: float = 0.0) -> None:
        self.slow_s = slow_s
        self._slow: Counter[str] = Counter()
        self._refused: Counter[int] = Counter()
        self._slow_lines, self._refused_lines = Lines(clock), Lines(clock)

    def refused(self, client: Address, call_id: int, refusal: Refusal) -> None:
        self._refused[refusal.code if refusal.code in _CODES else ResponseCode.SYSTEM_ERROR] += 1
        if not isinstance(refusal, NotThere) and self._refused_lines.admit():
            said = {"id": request_id(client, call_id), "code": int(refusal.code), **self._refused_lines.left_out()}
            log.info("refused: %s", refusal.remark.strip()[:MAX_TEXT], extra=said)

    def slow(self, kind: str, ids: Sequence[str], stages: Mapping[str, float], **more: object) -> None:
        """`ids`: of the requests that took long together. `stages`: seconds after they came in which each stage was over."""
        self._slow[kind] += len(ids)
        if self._slow_lines.admit():
            said = {"id": ids[0] if ids else "", **({"ids": [*ids[:MAX_IDS]], "requests": len(ids)} if len(ids) > 1 else {})}
            told = {f"{stage}_ms": round(seconds * 1000, 1) for stage, seconds in stages.items()}
            log.warning("slow %s", kind, extra={**said, **told, **more, **self._slow_lines.left_out()})

    def metrics(self) -> Iterator[Family]:
        slow = [((kind,), float(count)) for kind, count in self._slow.items()]
        refused = [((str(code),), float(count)) for code, count in self._refused.items()]
        yield Family("rmq_slow_requests_total", "counter", "requests that took longer than slow_request_ms", ("request",), slow)
        yield Family("rmq_refused_requests_total", "counter", "requests that were refused, by response code", ("code",), refused)
