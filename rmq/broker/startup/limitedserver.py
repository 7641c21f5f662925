"""A broker that cannot serve yet: it says why to whoever asks, and shows its state to operators."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rmq.broker.front.front import Front
from rmq.broker.shared.facts import StartTime, runtime_facts
from rmq.clock import Clock
from rmq.config.settings import NodeSettings
from rmq.log.store import Store
from rmq.net import commands as c
from rmq.net.transport.server import Call, Handler


class LimitedServer:
    """`open`, then `close`. `excuse()`: why it does not serve. `facts()`: what its status says besides."""

    def __init__(
        self,
        store: Store,
        settings: NodeSettings,
        front: Front,
        clock: Clock,
        excuse: Callable[[], str],
        facts: Callable[[], Iterable[tuple[str, object]]],
    ) -> None:
        self._store = store
        self._settings = settings
        self._front = front
        self._clock = clock
        self._excuse = excuse
        self._facts = facts
        self._start_time = StartTime(clock.wall_ms(), clock.monotonic())

    async def open(self, served: Mapping[type[Any], Handler]) -> None:
        """`served`: the requests that are answered all the same. Raises OSError."""
        self._front.excuse(self._excuse, {c.Ping: _alive, c.GetRuntimeInfo: self._info, **served})
        await self._front.listen()

    def close(self) -> None:
        self._front.excuse()

    def _info(self, _request: c.GetRuntimeInfo, _call: Call) -> c.RuntimeInfo:
        store = self._store
        known = runtime_facts(self._settings.store_dir, store.log, store.rebuild_to, self._start_time, self._clock)
        facts = ("waitsFor", self._excuse()), *self._facts(), *known
        return c.RuntimeInfo({name: str(value) for name, value in facts})


def _alive(_request: c.Ping, _call: Call) -> None:
    """The node is at work, which may take long: health checks should not end it."""
