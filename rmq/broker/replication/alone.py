"""How a node that no other node follows commits (fixed mode without a slave, docs/storage).

The committed offset is this node's own acknowledgement: the end of the log under asynchronous flush, its durable end under
synchronous flush.
"""

from collections import deque
from collections.abc import Callable, Sequence

from rmq.broker.replication.appender import Appender, answer, tell_others, tell_senders
from rmq.broker.replication.flusher import Flusher
from rmq.broker.replication.latencies import Latencies
from rmq.clock import Clock
from rmq.codes import ResponseCode
from rmq.errors import Refusal, StoreError
from rmq.log.commitlog import CommitLog
from rmq.log.dispatch import Dispatcher
from rmq.log.units import Unit

SYNC_FLUSH_TIMEOUT_S = 5.0


class LoneReplica:
    """An `appender.Policy`. `on_committed(units, stored_ms)` gets the units of each advance, in log order, before their waiters
    are answered; but see `_commit`."""

    def __init__(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        clock: Clock,
        sync_flush: bool,
        on_committed: Callable[[Sequence[Unit], int], None],
        latencies: Latencies,
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._clock = clock
        self._sync_flush = sync_flush
        self._on_committed = on_committed
        self._unflushed: deque[tuple[float, Sequence[Unit]]] = deque()
        self._failure: StoreError | None = None
        self.committed_end = log.durable_end
        self.latencies = latencies
        self.appender = Appender(log, self, self.latencies)
        self.flusher = Flusher(log, clock, 0.5, self._flushed, self._flush_failed, self.latencies.fsync, gathers=sync_flush)

    def start(self) -> None:
        """Takes over what the log appended when it began its epoch, and starts flushing."""
        self.flusher.start()
        self._advance(self._log.end)

    async def stop(self) -> None:
        await self.flusher.stop()

    def check(self) -> None:
        if self._failure is not None:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"this broker stopped writing: {self._failure}")

    def check_state(self) -> None:
        return

    def write(self, units: Sequence[Unit]) -> None:
        self._log.append(units, self._clock.wall_ms())

    def appended(self, units: Sequence[Unit]) -> None:
        if self._sync_flush:
            self._unflushed.append((self._clock.monotonic() + SYNC_FLUSH_TIMEOUT_S, units))
            self.flusher.ask()
        else:
            self._commit(units, self._log.end)
            self.flusher.appended()

    def _flushed(self) -> None:
        self.latencies.flushed(self._log.durable_end)
        if self._sync_flush:
            durable, units = self._log.durable_end, list[Unit]()
            while self._unflushed and self._unflushed[0][1][-1].end <= durable:
                units += self._unflushed.popleft()[1]
            self._commit(units, durable)

    def _flush_failed(self, error: StoreError) -> None:
        self._failure = error
        self.latencies.forget()
        unknown = Refusal(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
        for _, units in self._unflushed:
            answer(units, unknown)
        self._unflushed.clear()

    def _commit(self, units: Sequence[Unit], offset: int) -> None:
        """Senders wait for nothing but the log: while a client reads its answer, and asks again, its message goes on here."""
        try:
            tell_senders(units)
            self.appender.turn.write()
        finally:
            self._advance(offset)

    def _advance(self, offset: int) -> None:
        self.committed_end = offset
        try:
            units = self._dispatcher.advance(offset)
            self._on_committed(units, self._log.last_stored_ms)
            tell_others(units, None)
            self.latencies.committed(offset)
        except Exception as bug:  # half of a turn is done: nobody may go on from there
            raise AssertionError(f"applying committed records broke off: {bug!r}") from bug

    def answer_late(self) -> None:
        """Stored in memory, not on disk within syncFlushTimeout: the producer hears FLUSH_DISK_TIMEOUT (10)."""
        now = self._clock.monotonic()
        for deadline, units in self._unflushed:
            if deadline > now:
                return
            answer(units, None, ResponseCode.FLUSH_DISK_TIMEOUT)
