"""A broker that cannot serve yet: it says why to whoever asks, and shows its state to operators."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rmq.broker.facts import Boot, runtime_facts
from rmq.broker.handlers.hello import hello
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.config import NodeSettings
from rmq.errors import Refusal
from rmq.log.store import Store
from rmq.net import commands as c
from rmq.net.limits import Limits
from rmq.net.remoting import Border
from rmq.net.server import Call, Handler, Server


class Place(NamedTuple):
    """Where this node is, as clients are told, and the ports where it listens."""

    address: str
    ports: Sequence[int]
    limits: Limits
    border: Border


class Doorway:
    """`open`, then `close`. `excuse()`: why it does not serve. `facts()`: what its status says besides."""

    def __init__(
        self,
        store: Store,
        settings: NodeSettings,
        place: Place,
        clock: Clock,
        excuse: Callable[[], str],
        facts: Callable[[], Iterable[tuple[str, object]]],
    ) -> None:
        self._store = store
        self._settings = settings
        self._place = place
        self._clock = clock
        self._excuse = excuse
        self._facts = facts
        self._boot = Boot(clock.wall_ms(), clock.monotonic())

    async def open(self, served: Mapping[type[Any], Handler]) -> None:
        """`served`: what is answered all the same. Raises OSError."""
        kinds: list[type[c.Request]] = [*c.CODES, c.DraftedSend]
        handlers: dict[type[c.Request], Handler] = {kind: self._refuse for kind in kinds if kind is not c.Ping}
        handlers |= {c.Hello: hello(self._settings, self._place.address), c.GetRuntimeInfo: self._info, **served}
        self._server = Server(handlers, self._place.limits, self._place.border, self._clock)
        try:
            for port in self._place.ports:
                await self._server.listen(self._settings.listen_host, port)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._server.close(0)

    def _refuse(self, _request: c.Request, _call: Call) -> None:
        raise Refusal(ResponseCode.SYSTEM_BUSY, f"{self._excuse()}: try again later")

    def _info(self, _request: c.GetRuntimeInfo, _call: Call) -> c.RuntimeInfo:
        store = self._store
        known = runtime_facts(self._settings.store_dir, store.log, store.rebuild_to, self._boot, self._clock)
        return c.RuntimeInfo({name: str(value) for name, value in (*self._facts(), *known)})
