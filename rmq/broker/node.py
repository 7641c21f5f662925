"""A broker node: the only place that builds the parts and joins them. No behaviour of its own beyond start and stop."""

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeVar

from rmq.broker import snapshot
from rmq.broker.adoption import tables as adopt
from rmq.broker.ahead import Ahead
from rmq.broker.apply import Applier, Tables
from rmq.broker.coldreads import ColdReads
from rmq.broker.exports import Exports
from rmq.broker.facts import Boot, runtime_facts
from rmq.broker.front import Front, free_port, resolve
from rmq.broker.group import Group, Hooks
from rmq.broker.handlers.cleaning import CleaningHandlers
from rmq.broker.handlers.clients import ClientHandlers
from rmq.broker.handlers.hello import hello
from rmq.broker.handlers.inspect import InspectHandlers, RuntimeInfoHandler
from rmq.broker.handlers.locks import LockHandlers
from rmq.broker.handlers.offsets import OffsetHandlers
from rmq.broker.handlers.pull import PullHandler, PullSettings
from rmq.broker.handlers.query import QueryHandlers
from rmq.broker.handlers.resets import ResetHandlers
from rmq.broker.handlers.send import SendHandler, SendSettings
from rmq.broker.handlers.sendback import SendBackHandlers
from rmq.broker.handlers.topics import TopicHandlers
from rmq.broker.held.delayexport import DelayExport
from rmq.broker.held.outlet import Outlet
from rmq.broker.held.receipts import Names, revive_offsets
from rmq.broker.held.routeasking import RouteAsking
from rmq.broker.holding import Parts, holding
from rmq.broker.indexer import Indexer
from rmq.broker.longpoll import LongPolls
from rmq.broker.opening import open_store
from rmq.broker.popservice import PopService, Steps, Stored
from rmq.broker.register import Registration, description
from rmq.broker.replication.replica import Replica
from rmq.broker.retention import Retention, Waiting
from rmq.broker.snapshot import SnapshotTaker
from rmq.broker.state import StateWriter
from rmq.broker.stats import SAMPLE_S, BrokerStats
from rmq.broker.timers import Timers
from rmq.clock import Clock
from rmq.config import NodeSettings
from rmq.delivery.groups import ConsumerRegistry, GroupTable, groups_json
from rmq.delivery.modes import modes_json
from rmq.delivery.offsets import OffsetTable, lmq_offsets_json, offsets_json
from rmq.delivery.orders import orders_json
from rmq.errors import RmqError
from rmq.log import record
from rmq.log.commitlog import CommitLog
from rmq.log.consumequeue import ENTRY_BYTES
from rmq.log.disk import Disk, RealDisk
from rmq.log.queues import ConsumeQueues
from rmq.log.replay import replay
from rmq.log.retention import RetentionSettings
from rmq.log.settings import ASYNC_FLUSH, SYNC_FLUSH, StoreSettings
from rmq.log.store import MOST_QUEUES, Report
from rmq.net import commands as c
from rmq.net.resetcommands import ResetOffset
from rmq.net.server import Call, Handler
from rmq.routing.topics import TopicTable, is_system_topic, system_topics, topics_json

log = logging.getLogger("rmq.broker")
T = TypeVar("T")

OFFSETS_S, INDEX_S, EXPORTS_S, PROGRESS_S, SNAPSHOT_S, RETENTION_S, EXPIRE_S, LATE_S = 0.2, 0.2, 5.0, 10.0, 60.0, 10.0, 10.0, 1.0
HEALTH_S = 1.0
SHARED_BYTES = 32 * 1024
REBUILD_APART_BYTES = 256 * 1024 * 1024  # of log; queues of less are made anew within a few seconds, before anything is served
YOUNG_RATIO = 0.4  # of the memory: what is nearer to the log's end counts as "in memory" [accessMessageInMemoryMaxRatio]


class Broker:
    """`await start()`, `await stop()`. `address` is "host:port" as clients are told, known after start.
    `disk`: where the store lies, the machine's own unless a test brings another."""

    def __init__(self, settings: NodeSettings, clock: Clock, disk: Disk | None = None) -> None:
        self._settings = settings
        self._disk = disk or RealDisk()
        self._clock = clock
        self._timers = Timers(clock)
        self._boot = Boot(clock.wall_ms(), clock.monotonic())
        self._running = AsyncExitStack()
        self.address = ""

    async def start(self) -> None:
        """Open the store, serve, register. Raises StoreError or OSError: nothing is left running."""
        settings = self._settings
        host = await resolve(settings.store_host)
        port = settings.listen_port or free_port(settings.listen_host)
        apart_above = REBUILD_APART_BYTES if isinstance(self._disk, RealDisk) else 0
        told = _store_settings(settings, host, port)._replace(apart_above=apart_above)
        async with AsyncExitStack() as running:
            self._front = Front(settings, host, port, self._clock)
            self.address = self._front.address
            running.push_async_callback(self._front.close)  # again, if nothing goes wrong
            await self._front.open()
            self._store = await open_store(self._disk, told, settings, self._front, self._clock)
            self._young = partial(_is_young, self._store.log)
            running.push_async_callback(asyncio.to_thread, self._store.close)
            _log_recovery(self._store.recovered, self._store.adopted is not None)
            await self._serve(host, port, running)
            self._running = running.pop_all()

    async def stop(self) -> None:
        """Leave the routes, finish what is in work, flush, close: all of it, whatever fails on the way. Raises StoreError."""
        await self._running.aclose()

    @property
    def group(self) -> Group | None:
        return self._group

    def registrations(self) -> dict[str, str]:
        """Nameserver -> why it does not have this broker; "" if it has."""
        return self._registration.troubles()

    async def _serve(self, host: str, port: int, running: AsyncExitStack) -> None:
        """Starts part after part; `running` is told how each is stopped, the last one first."""
        store = self._store
        self._build(host, port)
        running.callback(self._cold.close)
        await asyncio.to_thread(self._fill_tables)
        running.push_async_callback(self._group.stop if self._group else self._replica.flusher.stop)
        if store.read_only:
            self._replica.refuse(f"{store.log.damages}: this node only reads", f"{store.log.damages}: this node only reads")
            self._replica.start()
        else:
            await self._begin_writing(record.host_bytes(host, port))
            self._delays.begin()
            running.push_async_callback(self._save_tables)
        running.push_async_callback(self._timers.stop)
        if self._indexer is not None:
            running.callback(self._indexer.stop)
        self._ahead.learn(store.rows)
        self._start_timers()
        running.push_async_callback(self._front.close)
        running.callback(self._polls.wake_all)
        allow, where = (self._group.allow, self._group.leads_where) if self._group else (None, None)
        await self._front.serve(self._handlers, allow, self._clients.closed, where)
        if self._group is not None:
            await self._group.start()
            running.push_async_callback(self._front.until_left)
        running.push_async_callback(self._routes.close)
        running.push_async_callback(self._registration.stop)
        await self._registration.start()
        if self._group is not None:
            running.push_async_callback(self._group.hand_over)

    async def _begin_writing(self, host: bytes) -> None:
        store, wall_ms = self._store, self._clock.wall_ms()
        if self._group is None:
            store.open_epoch(wall_ms)
        if store.adopting:
            config = self._settings.store_dir / "config"
            imported = await asyncio.to_thread(adopt.import_tables, store, self._tables, config, host, wall_ms)
            log.info("adopted: %s", adopt.summary(store.adopted, imported))
            for note in imported.notes:
                log.warning("adopted: %s", note)
        if self._group is None:
            self._replica.start()
            self._tables.locks.begin(self._clock.monotonic())
            await self._make_system_topics()

    # --- building -----------------------------------------------------------------------------------------------------

    def _build(self, host: str, port: int) -> None:
        settings, store, clock = self._settings, self._store, self._clock
        self._host = record.host_bytes(host, port)
        own_names = (settings.cluster_name, settings.broker_name, f"{settings.cluster_name}_REPLY_TOPIC")
        groups = GroupTable(settings.max_groups)
        topics = TopicTable(own_names, settings.max_topics, lambda name: groups.decided(name) is not None)
        self._tables = Tables(topics, groups, OffsetTable(), store.log.segment_bytes, settings.delays_ms)
        self._registry = ConsumerRegistry(settings.client_expiry_ms / 1000)
        self._polls = LongPolls()
        self._cold = ColdReads(settings.max_transfer_disk_count, settings.max_transfer_disk_bytes)
        self._stats = BrokerStats(lambda: _topic_ends(store.queues), lambda: store.log.end)
        describe = partial(description, settings, self.address, store, self._tables.topics)
        self._registration = Registration(settings.namesrv_addresses, lambda: describe(self._group), clock)
        self._ahead = Ahead(self._tables.offsets, store.queues, self._registry)
        applier = Applier(self._tables, self._polls, self._registration.changed, lambda: self._ahead.learn(store.rows))
        self._group: Group | None = None
        if settings.elected or settings.broker_role:
            hooks = Hooks(self._settled, self._left_office, self._begun_anew, self._registration.changed)
            self._group = Group(settings, store, self._disk, clock, self.address, applier.committed, hooks)
            self._replica: Replica = self._group.replica
        else:
            self._replica = Replica(store.log, store.dispatcher, clock, settings.flush == "sync", applier.committed)
        self._snapshots = SnapshotTaker(self._tables.by_name, store, lambda: self._replica.committed_end)
        index = store.indexed.index
        self._indexer = None if index is None else Indexer(index, lambda: self._replica.committed_end, clock)
        self._retention = Retention(
            _retention_settings(settings), store, clock, lambda: self._replica.committed_end, self._replica.refuse,
            self._group.follower_from if self._group else lambda: None, Waiting(self._tables.held.alive_from, self._carry),
        )  # fmt: skip
        replica, tables = self._replica, self._tables
        self._routes = RouteAsking(settings.namesrv_addresses, settings.broker_name, clock)
        self._outlet = Outlet(store.log, store.queues, tables.topics, replica.propose, replica.propose_state, random.Random())
        self._writer = StateWriter(self._replica.propose_state, store.queues, self._host, clock)
        self._delays = DelayExport(self._tables.due, store.log, store.queues, settings.store_dir, clock)
        self._exports = Exports(settings.store_dir / "config", _json_of(self._tables, self._delays, store.queues))
        self._handlers = self._joined_handlers()

    def _joined_handlers(self) -> Mapping[type[c.Request], Handler]:
        settings, store, tables, registry, clock = self._settings, self._store, self._tables, self._registry, self._clock
        topics = TopicHandlers(tables.topics, tables.groups, tables.offsets, self._writer.commit, settings.auto_create_group)
        let_in = partial(topics.let_in, lambda: not store.read_only and self._leads())
        clients = self._clients = ClientHandlers(
            registry, tables.groups, let_in, self._front.server.connection, self._polls.groups_changed, clock
        )
        offsets = self._offsets = OffsetHandlers(
            tables.offsets, self._writer, tables.topics, store.queues, store.log.store_time, topics.check_known, self._young
        )
        checks = PullSettings(
            tables.topics, registry, topics.check_group, settings.max_transfer_count, settings.max_transfer_bytes, self._cold,
            self._ahead, tables.offsets, self._group.suggest if self._group and settings.follower_reads else None,
            self._group.leave_to_leader if self._group else None,
        )  # fmt: skip
        resets = ResetHandlers(
            (tables.offsets, tables.topics, tables.groups), registry, store.queues, store.log.store_time, offsets.write,
            lambda group: self._polls.groups_changed({group}), settings.broker_name,
        )  # fmt: skip
        pull = PullHandler(checks, store.log, store.queues, self._polls, self._pulled, self._stats, clock)
        lookups = QueryHandlers(store.log, store.indexed.index, self._indexer, lambda: self._replica.committed_end)
        parts = Parts(tables, self._outlet, self._writer.commit, topics, clients, lookups, self._host)
        self._services, intake = holding(settings, parts, clock, self._pops(topics))
        making, locked = (topics.ensure_group, topics.create), lambda group: tables.locks.is_held(group, clock.monotonic())
        failed = SendBackHandlers(tables.groups, tables.topics, making, lookups.find, locked, intake, self._outlet)
        sending = SendSettings(
            settings.auto_create_topic, settings.max_message_bytes, min(SHARED_BYTES, settings.segment_bytes // 16),
            intake.take_sent, failed.given_up,
        )
        send = SendHandler(
            tables.topics, store.queues, self._replica.propose, topics.create, self._all_topics_known, sending, random.Random()
        )
        inspect = InspectHandlers(
            settings.broker_name, tables.topics, tables.offsets, registry, store.log.store_time, store.queues, self._stats
        )
        cleaning = CleaningHandlers(self._telling(self._retention.delete_expired), self._retention.clean_queues)
        locks = LockHandlers(tables.locks, settings.broker_name, tables.topics, topics.check_known, self._writer.commit, clock)
        return {
            c.Hello: hello(settings, self.address),
            c.Send: send.send,
            c.DraftedSend: send.drafted,
            c.Pull: pull.pull,
            c.UpdateConsumerOffset: self._ahead.guarding(resets.committing(offsets.check, offsets.update)),
            ResetOffset: resets.reset,
            c.QueryMessage: lookups.by_key,
            c.ViewMessage: lookups.by_offset,
            c.GetRuntimeInfo: RuntimeInfoHandler(self._stats, self._facts, self._delays.facts).runtime_info,
            c.DeleteExpiredLog: cleaning.delete_expired_log,
            c.CleanExpiredQueues: cleaning.clean_expired_queues,
            **offsets.by_request(),
            **inspect.by_request(),
            **clients.by_request(partial(self._front.hearing, leads=self._leads)),
            **topics.by_request(),
            **locks.by_request(),
            **failed.by_request(),
            **self._services.handlers,
            **(self._group.handlers if self._group else {}),
        }

    def _pops(self, topics: TopicHandlers) -> PopService:
        stored = Stored(self._store.log, self._store.queues, self._cold, self._young)
        steps = Steps(self._writer.commit, self._replica.propose_state, topics, self._routes.queues)
        us = Names(self._settings.cluster_name, self._settings.broker_name, self._host)
        people = (self._registry, self._polls, self._stats)
        return PopService(self._tables, stored, steps, us, self._outlet, people, self._clock)

    def _start_timers(self) -> None:
        every = self._timers.every
        if not self._store.read_only:
            every(OFFSETS_S, "offsets", self._when_leading(self._offsets.write))
            for job in self._services.jobs:
                every(job.seconds, job.name, self._when_leading(job.work))
            every(EXPORTS_S, "exports", self._exports.save)
            if self._indexer is not None:
                every(INDEX_S, "index", self._indexer.work)
            every(PROGRESS_S, "progress", self._save_progress)
            every(SNAPSHOT_S, "snapshot", self._take_snapshot)
            every(RETENTION_S, "retention", self._telling(self._retention.run))
        if self._group is not None:
            every(HEALTH_S, "health", self._group.look_at_health)
        every(EXPIRE_S, "expire", self._clients.expire)
        every(LATE_S, "late", self._replica.answer_late)
        every(LATE_S, "long polls", lambda: self._polls.sweep(self._clock.monotonic()))
        every(SAMPLE_S, "rates", self._sample)
        self._sample()

    async def _save_tables(self) -> None:
        """The last offsets, exports, snapshot. A store that takes nothing more (full disk, failed flush) must still be closed."""
        last = (self._offsets.write, *(job.work for job in self._services.jobs if job.at_stop))
        for save in (*(last if self._leads() else ()), self._delays.finish, self._exports.save, self._take_snapshot):
            try:
                await save()
            except (RmqError, OSError) as error:
                log.warning("not saved at the end: %s", error)
            except Exception:  # the log itself is well, and the next start makes all of these from it
                log.exception("not saved at the end; this is a bug, please report it")

    def _fill_tables(self) -> None:
        snapshot.load(self._tables.by_name, self._store)
        for stored in replay(self._store):
            self._tables.note(stored)

    # --- a node of an elected group -----------------------------------------------------------------------------------

    def _settled(self) -> None:
        """This node leads: the routes say so, owners of locks have a full life, and what every group needs is there."""
        self._tables.locks.begin(self._clock.monotonic())
        self._registration.changed()
        self._making = asyncio.create_task(self._make_system_topics(), name="system topics")
        self._making.add_done_callback(_tell_failure)

    def _left_office(self) -> None:
        self._tables.drop_overlays()
        self._front.left_office()
        self._polls.wake_all()
        self._registration.changed()

    def _begun_anew(self) -> None:
        self._tables.clear()
        self._fill_tables()
        self._registration.changed()

    async def _take_snapshot(self) -> None:
        if self._group is None:
            await self._snapshots.take()
        elif not self._group.member.core.state.reseeding:
            await self._snapshots.take()
            self._group.member.retained()

    def _leads(self) -> bool:
        return self._group is None or self._group.replica.settled

    def _when_leading(self, job: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        return self._group.when_leading(job) if self._group else job

    async def _carry(self, below: int) -> None:
        await self._when_leading(lambda: self._services.carry(below))()

    def _telling(self, job: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """The same job; the group hears where the log begins then."""
        return self._group.retaining(job) if self._group else job

    def _pulled(self, request: c.Pull, call: Call) -> None:
        """A follower notes no offsets: they are the leader's to keep."""
        heard = self._offsets.pulled if self._leads() else self._front.leans
        heard(request, call)

    # --- small joints -------------------------------------------------------------------------------------------------

    async def _make_system_topics(self) -> None:
        settings, topics = self._settings, self._tables.topics
        wanted = system_topics(
            settings.cluster_name,
            settings.broker_name,
            auto_create=settings.auto_create_topic,
            template_queue_nums=settings.default_topic_queue_nums,
        )
        missing = [config for config in wanted if topics.get(config.name) is None]
        if missing:
            await self._writer.commit([("topic", config.name, list(config)) for config in missing])

    async def _all_topics_known(self) -> None:
        """A leader takes sends before that. Raises Refusal if it does not lead."""
        if self._group is not None:
            self._group.replica.check_leads()
            await asyncio.wait([self._making])

    def _sample(self) -> None:
        self._stats.sample(self._clock.monotonic(), time.localtime(self._clock.wall_ms() / 1000).tm_yday)

    async def _save_progress(self) -> None:
        while not await asyncio.to_thread(self._store.save_progress, MOST_QUEUES) and not self._timers.stopping:
            pass
        self._store.queues.trim()

    def _facts(self) -> Iterable[tuple[str, object]]:
        yield from runtime_facts(self._settings.store_dir, self._store.log, self._replica.committed_end, self._boot, self._clock)
        yield from self._registration.facts()


def _is_young(log: CommitLog, offset: int) -> bool:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return log.end - offset <= memory * YOUNG_RATIO


def _tell_failure(task: "asyncio.Task[None]") -> None:
    """Making the system topics failed: the office was lost again, and the next leader makes them."""
    if not task.cancelled() and task.exception() is not None:
        log.info("the system topics were not made: %s", task.exception())


def _topic_ends(queues: ConsumeQueues) -> dict[str, int]:
    """Messages ever stored in each topic of users."""
    ends: dict[str, int] = {}
    for queue in queues.all():
        if not is_system_topic(queue.topic):
            ends[queue.topic] = ends.get(queue.topic, 0) + queue.max
    return ends


def _log_recovery(found: Report, adopted: bool) -> None:
    """What opening the store found, for the operator."""
    if not found.end:
        log.info("a new store was made")
        return
    stopped = "the last run stopped in order" if found.clean else "the last run did not stop in order"
    rebuilt = "; the queues were rebuilt from the log" if found.queues_rebuilt else ""
    if not adopted:
        log.info("store opened, the log ends at %d: %s%s", found.end, stopped, rebuilt)
    for start, end, why in found.damaged:
        log.error(
            "bytes %d to %d of the log are damaged (%s): this node only reads, and nothing in there; stop it and run "
            "`rmq store repair`", start, end, why
        )  # fmt: skip
    if found.cut_bytes:
        log.warning("%d bytes behind %d were cut off the log: %s", found.cut_bytes, found.end, found.cut_reason)
    if found.records_behind:
        log.warning(
            "whole records stood behind that cut: messages that were acknowledged may be lost; keep the disk for a closer look"
        )
    if found.may_have_lost:
        log.warning("the machine stopped under asynchronous flush: the last messages acknowledged before it may be lost")


def _store_settings(settings: NodeSettings, host: str, port: int) -> StoreSettings:
    mode = SYNC_FLUSH if settings.flush == "sync" else ASYNC_FLUSH
    return StoreSettings(
        record.host_bytes(host, port), settings.segment_bytes, mode, settings.broker_name,
        settings.node_id if settings.elected else f"n{settings.broker_id}", alone=not (settings.elected or settings.broker_role),
        index_slots=settings.index_slots if settings.message_index else 0, index_entries=settings.index_entries,
        queue_file_entries=-(-settings.queue_file_bytes // ENTRY_BYTES),
    )  # fmt: skip


def _retention_settings(settings: NodeSettings) -> RetentionSettings:
    percents = (settings.max_used_percent, settings.clean_forcibly_percent, settings.refuse_sends_percent)
    max_used, forcibly, refuse_sends = (percent / 100 for percent in percents)
    return RetentionSettings(
        reserved_ms=settings.reserved_hours * 3_600_000, hours=frozenset(settings.delete_hours), max_used=max_used,
        clean_forcibly=forcibly, refuse_sends=refuse_sends, by_force=settings.clean_forcibly,
        archived_only=settings.keep_unarchived,
    )  # fmt: skip


def _json_of(tables: Tables, delays: DelayExport, queues: ConsumeQueues) -> Mapping[str, Callable[[], object]]:
    return {
        "topics.json": lambda: topics_json(tables.topics),
        "subscriptionGroup.json": lambda: groups_json(tables.groups),
        "consumerOffset.json": lambda: offsets_json(tables.offsets, tables.cursors, revive_offsets(tables.receipts, queues)),
        "consumerOrderInfo.json": lambda: orders_json(tables.orders),
        "messageRequestMode.json": lambda: modes_json(tables.modes),
        "lmqConsumerOffset.json": lambda: lmq_offsets_json(tables.offsets, tables.cursors),
        "delayOffset.json": delays.delay_offsets,
        "timercheck": delays.timercheck,
    }
