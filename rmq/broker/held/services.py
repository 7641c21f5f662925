"""What a leader does by itself with messages that wait: hands them on in time, asks after them, carries them forward."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rmq.net.server import Handler


class Job(NamedTuple):
    """`work` is done every `seconds`, at a leader only; `at_stop`: once more when it stops."""

    seconds: float
    name: str
    work: Callable[[], Awaitable[None]]
    at_stop: bool = False


class Service(Protocol):
    """One kind's active side. What every node knows of the kind is a `held.Kind`."""

    @property
    def jobs(self) -> Sequence[Job]: ...

    def by_request(self) -> Mapping[type[Any], Handler]:
        """Requests that it answers."""

    async def carry(self, below: int) -> None:
        """Appends again what waits and stands below that offset of the log, so that those bytes may go. Raises Refusal."""


class Services:
    """All of them, for the node that joins them."""

    def __init__(self, *services: Service) -> None:
        self._services = services
        self.jobs = [job for service in services for job in service.jobs]
        self.handlers: dict[type[Any], Handler] = {}
        for service in services:
            self.handlers |= service.by_request()

    async def carry(self, below: int) -> None:
        """See `Service.carry`."""
        for service in self._services:
            await service.carry(below)
