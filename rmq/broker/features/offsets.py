"""Consumer offsets: committing, asking, resetting, and sending readers back after a loss."""

from collections.abc import Awaitable, Callable, Iterable

from rmq.broker.feature import Export, Feature, Job
from rmq.broker.handlers.offsets import OffsetHandlers
from rmq.broker.handlers.resets import ResetHandlers
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.ports import Reader
from rmq.broker.shared.state import Line
from rmq.broker.shared.truncation import TruncationGuard, reader_of
from rmq.config.settings import NodeSettings
from rmq.delivery.cursors import CursorTable
from rmq.delivery.groups import ConsumerRegistry
from rmq.delivery.offsets import OffsetKey, OffsetTable, lmq_offsets_json, offsets_json
from rmq.net.commands import Pull, UpdateConsumerOffset
from rmq.net.commands.resets import CloneOffsets, ResetOffset
from rmq.net.transport.server import Call, Connection

WRITE_S = 0.2


class Offsets(Feature):
    """`leave(connection)` raises Refusal if another node leads; `members`: as of `ResetHandlers`. For what pulls ask see
    `pull.Readers`."""

    def __init__(
        self,
        table: OffsetTable,
        catalog: Catalog,
        registry: ConsumerRegistry,
        reader: Reader,
        commit: Callable[[list[Line]], Awaitable[None]],
        leave: Callable[[Connection], None],
        members: Callable[[str], Iterable[Connection]],
    ) -> None:
        self._table = table
        self._log = reader.log
        self._leave = leave
        self._truncation_guard = TruncationGuard(table, reader.queues, registry)
        self._truncation_guard.learn(reader.log.epochs)
        kept = OffsetHandlers(table, catalog, reader, commit)
        self._resets = resets = ResetHandlers(table, catalog, registry, reader, commit, members)
        self.pulled, self.handed_out, self.move = kept.pulled, table.handed_out, resets.move_all
        self.handlers = {
            **kept.by_request(),
            UpdateConsumerOffset: self._truncation_guard.guarding(resets.committing(kept.check, kept.update)),
            ResetOffset: resets.reset,
            CloneOffsets: resets.clone,
        }
        self.jobs = (Job(WRITE_S, "offsets", kept.write, at_stop=True),)

    async def on_settings(self, settings: NodeSettings) -> None:
        self._resets.by_members = not settings.server_side_resets

    def facts(self) -> Iterable[tuple[str, object]]:
        yield "ignoredLowerCommits", self._table.ignored_lower

    def on_new_epoch(self) -> None:
        self._truncation_guard.learn(self._log.epochs)

    def on_log_replaced(self) -> None:
        self._truncation_guard.learn(self._log.epochs)

    @property
    def unsettled(self) -> bool:
        return bool(self._truncation_guard.starts or self._table.resets.pending)

    def sent_back(self, request: Pull, call: Call) -> int | None:
        return self._truncation_guard.send_back(request, reader_of(call)) if self._truncation_guard.starts else None

    def follows(self, request: Pull) -> bool:
        return False

    def set_to(self, request: Pull, call: Call) -> int | None:
        resets = self._table.resets
        if not resets.pending:
            return None
        key = OffsetKey(request.consumer_group, request.topic, request.queue_id)
        if key not in resets.pending:
            return None
        self._leave(call.connection)  # only the leader notes that a reader followed a reset
        return resets.take(key, request.queue_offset, reader_of(call))


class OffsetExports(Feature):
    """Offsets as RocketMQ's programs read them. `revived()`: the offsets of its revive group. `lights`: light queues are
    served."""

    def __init__(
        self, offsets: OffsetTable, cursors: CursorTable, revived: Callable[[], dict[str, dict[str, int]]], lights: bool
    ) -> None:
        self.exports = {
            "consumerOffset.json": Export(lambda: offsets_json(offsets, cursors, revived())),
            "lmqConsumerOffset.json": Export(lambda: lmq_offsets_json(offsets, cursors, lights)),
        }
