"""Finds leaders that hang: their connections stay open, and a pull may rightly wait for half a minute.

A leader that does not answer in time is doubted (`Routes`), and asked once more: where that gets no answer either, the connection
may be one that swallows everything. It is cut, whoever leads by then, and what waits there ends as unknown.
"""

from rmq.client.shared.connections import Connections
from rmq.client.shared.routes import Routes
from rmq.client.shared.tasks import TaskSet
from rmq.clock import Clock
from rmq.errors import RmqError, Unknown, Unreachable
from rmq.net.commands import Ping

_ASK_EACH_S, _ANSWER_S = 1.0, 1.5


class Liveness:
    """Pings the nodes at which a request waits: one that leads no more may still hold it."""

    def __init__(self, connections: Connections, routes: Routes, clock: Clock) -> None:
        self._connections = connections
        self._routes = routes
        self._clock = clock
        self._asked: set[str] = set()
        self._tasks = TaskSet()

    async def keep_asking(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                await self._clock.sleep(_ASK_EACH_S)
                for address in self._connections.waiting() - self._asked:
                    self._asked.add(address)
                    self._tasks.start(self._ask(address), f"ask {address}")
        finally:
            await self._tasks.close()

    async def _ask(self, address: str) -> None:
        try:
            await self._connections.request(address, Ping(), _ANSWER_S)
        except (Unknown, Unreachable):  # the latter where it does not read, so that even this is not sent
            self._routes.lost(address)
            if self._connections.is_open(address):
                await self._connections.tried(address, Ping())
        except RmqError:
            pass  # it is there, or was lost, which is told by others
        finally:
            self._asked.discard(address)
