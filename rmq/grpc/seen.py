"""What a proxy tells of itself: what it was asked and how it answered, and whether it reaches the cluster."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from rmq import background
from rmq.client import Client
from rmq.errors import RmqError, Unreachable, same_trouble
from rmq.grpc.door import Door
from rmq.grpc.schema import v2
from rmq.grpc.statuses import status_of
from rmq.measures import Family, Histogram, gauge
from rmq.net.commands import Ping

_log = logging.getLogger("rmq.grpc")
_LOOK_S: Final = 5.0
_GONE = "CANCELLED"  # the client went before the answer
_NAMES = {number: name for name, number in vars(v2.Code).items() if isinstance(number, int)}


class Asked:
    """One request. `code`: of the answer's status, None until it is known."""

    __slots__ = ("code",)

    def __init__(self) -> None:
        self.code: int | None = None

    def refused(self, error: Exception) -> Any:
        """The status of a refusal."""
        found = status_of(error)
        self.code = found.code
        return found


class Seen:
    """A part of the process for monitoring (`rmq.ops.metrics.Part`). `client`: looks for the cluster. `doors`: all that
    there are now. `address`: of the port. `certificate`: what is told of the one that it shows."""

    def __init__(
        self, client: Client, doors: Iterable[Door], address: str, certificate: Callable[[], Iterable[Family]] = tuple
    ) -> None:
        self._session = client.session
        self._doors = doors
        self._certificate = certificate
        self.labels: Mapping[str, str] = {"node_type": "proxy", "node_id": address}
        self._answered: Counter[tuple[str, str]] = Counter()
        self._took: dict[str, Histogram] = {}
        self._trouble = "no nameserver has answered yet"

    @contextmanager
    def asked(self, method: str, timed: bool = True) -> Iterator[Asked]:
        """Around the work for a request. `timed`: not for streams, which last as long as a client does."""
        clock, one = self._session.clock, Asked()
        began = clock.monotonic()
        try:
            yield one
        finally:
            self._answered[method, _GONE if one.code is None else _NAMES.get(one.code, str(one.code))] += 1
            if timed:
                self._took.setdefault(method, Histogram()).observe(clock.monotonic() - began)

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Asks the nameservers again and again whether they are there."""
        looking = background.start(self._look(), "looks for the cluster")
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            trouble = await self._trouble_now()
            if trouble and not same_trouble(trouble, self._trouble):
                _log.warning("%s", trouble)
            self._trouble = trouble
            await self._session.clock.sleep(_LOOK_S)

    async def _trouble_now(self) -> str:
        """One that answers is enough."""
        error: RmqError = Unreachable("there is no nameserver")
        for address in self._session.nameservers.addresses:
            try:
                await self._session.connections.request(address, Ping())
                return ""
            except RmqError as failed:
                error = failed
        return f"no nameserver serves this proxy: {error}"

    # --- for the pages

    def waits_for(self) -> Sequence[str]:
        return [self._trouble] if self._trouble else []

    def fatal(self) -> str:
        return ""

    def metrics(self) -> Iterable[Family]:
        counts = [(labels, float(count)) for labels, count in sorted(self._answered.items())]
        yield Family("rmq_proxy_requests_total", "counter", "requests that were answered", ("method", "code"), counts)
        took = [((method,), histogram) for method, histogram in sorted(self._took.items())]
        about = "how long a request took; a receive waits for messages"
        yield Family("rmq_proxy_request_seconds", "histogram", about, ("method",), took)
        doors = [*self._doors]
        yield gauge("rmq_proxy_doors", "users who are here; 1 where all are one user", len(doors))
        yield gauge("rmq_proxy_streams", "clients whose stream is open", sum(door.streams for door in doors))
        about = "messages that are hidden again and again until a push consumer acknowledges them"
        yield gauge("rmq_proxy_kept_messages", about, sum(door.kept for door in doors))
        yield gauge("rmq_proxy_reaches_cluster", "1 if a nameserver answers", float(not self._trouble))
        yield from self._certificate()
