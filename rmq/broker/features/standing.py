"""How this node stands: its log, its place in the group, and what keeps it from serving."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from rmq.broker.feature import Feature
from rmq.broker.membership import Membership
from rmq.broker.replication.haview import epoch_cache
from rmq.broker.shared.facts import earliest_ms, put_times
from rmq.broker.shared.ports import Reader
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.config.settings import NodeSettings
from rmq.errors import NotThere, Refusal
from rmq.log.store import Store
from rmq.measures import Family, Row, gauge
from rmq.model import PERM_WRITE
from rmq.net.commands.node import ResetFlushOffset, SwitchTimerEngine
from rmq.net.commands.peers import GetEpochCache, GetGroupStatus, GetHaStatus, HaStatus
from rmq.net.transport.server import Call, Handler


class Standing(Feature):
    """`connections()`: how many are open."""

    def __init__(
        self,
        settings: NodeSettings,
        store: Store,
        reader: Reader,
        membership: Membership,
        connections: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._store = store
        self._reader = reader
        self._membership = membership
        self._connections = connections
        self._clock = clock
        self._cluster, self._permission = settings.cluster_name, settings.permission
        self.handlers = {ResetFlushOffset: lambda _request, _call: None, SwitchTimerEngine: _switch, **self._alone()}

    async def on_settings(self, settings: NodeSettings) -> None:
        self._permission = settings.permission

    def _alone(self) -> Mapping[type[Any], Handler]:
        """What a group tells of its members, of a broker that has no others."""
        if self._membership.status is not None:
            return {}
        store, names = self._store, (self._cluster, self._reader.broker_name, self._membership.broker_id)
        return {
            GetHaStatus: lambda _request, _call: HaStatus(True, store.log.end, 0, []),
            GetEpochCache: lambda _request, _call: epoch_cache(*names, list(store.epochs), store.log.end),
            GetGroupStatus: _no_group,
        }

    def metrics(self) -> Iterable[Family]:
        log, committed = self._store.log, self._reader.committed()
        yield _storage("size_bytes", "the log's files", sum(each.size for each in log.segments()))
        yield _storage("dispatch_behind_bytes", "in the log, but in no queue yet", log.end - committed)
        yield _storage("flush_behind_bytes", "in the log, but not flushed yet", log.end - log.durable_end)
        yield Family(
            "rocketmq_storage_message_reserve_time_milliseconds",
            "gauge",
            "age of the oldest message",
            _KINDS,
            self._oldest(),
            slow=True,
        )
        yield gauge("rmq_log_end_offset", "where the log of this node ends", log.end)
        permission = self._permission & ~PERM_WRITE if self._store.read_only else self._permission
        yield gauge("rocketmq_broker_permission", "6: it may be read and written; 4: read only; 2: write only", permission)
        yield gauge("rmq_store_damaged", "1 if bytes of the log cannot be read", float(bool(log.damages)))
        yield gauge("rmq_clock_seconds", "this machine's clock, Unix time, when it was asked", self._clock.wall_ms() / 1000)
        yield gauge("rmq_connections", "open connections, of clients, other nodes and tools", self._connections())
        yield from self._membership.metrics()

    def _oldest(self) -> Iterable[Row]:
        first_ms = earliest_ms(self._store.log)
        yield _LOCAL, float(max(self._clock.wall_ms() - first_ms, 0)) if first_ms >= 0 else 0.0

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "sendTrouble", self._membership.send_trouble()
        yield from put_times(self._membership.appender.latencies.commit)

    def waits_for(self) -> Iterable[str]:
        if self._store.read_only:
            yield f"damaged: {self._store.log.damages}: it only reads until it is repaired"
        if trouble := self._membership.appender.trouble:
            yield f"its disk: {trouble}"
        yield from self._membership.waits_for()


_KINDS, _LOCAL = ("storage_type", "storage_medium"), ("local", "disk")


def _storage(name: str, about: str, value: float) -> Family:
    return Family(f"rocketmq_storage_{name}", "gauge", about, _KINDS, ((_LOCAL, float(value)),))


def _no_group(_request: GetGroupStatus, _call: Call) -> NoReturn:
    """Tools ask each broker, and know by the code that this one is in no group."""
    raise NotThere(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "this broker stands alone: it is in no group that has a state")


def _switch(request: SwitchTimerEngine, _call: Call) -> None:
    if request.engine != "F":
        about = f"timer engine {request.engine!r}: messages wait in files here (F), and there is no other engine"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)
