"""A broker whose store is open: its ports, its features, and the order in which they start and stop."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from rmq.access.directory import Tables as AccessTables
from rmq.broker.adoption import tables as adopt
from rmq.broker.feature import At, Feature, Job
from rmq.broker.features.access import Access, shares
from rmq.broker.features.assignments import Assignments
from rmq.broker.features.broadcasts import Broadcasts
from rmq.broker.features.compaction import CompactedTopics
from rmq.broker.features.configuration import Configuration
from rmq.broker.features.delays import Delays
from rmq.broker.features.exports import Exports
from rmq.broker.features.groups import Groups
from rmq.broker.features.inspection import Inspection
from rmq.broker.features.lag import Lag
from rmq.broker.features.lights import Lights
from rmq.broker.features.lites import Lites
from rmq.broker.features.locks import Locks
from rmq.broker.features.lookups import Lookups
from rmq.broker.features.offsets import OffsetExports, Offsets
from rmq.broker.features.pop import Pop, Revival
from rmq.broker.features.pulling import Pulling
from rmq.broker.features.questions import Questions
from rmq.broker.features.quotas import Quotas
from rmq.broker.features.register import Registration, description
from rmq.broker.features.replies import Replies
from rmq.broker.features.retention import Cleaning
from rmq.broker.features.retries import Retries
from rmq.broker.features.sending import Sending
from rmq.broker.features.standing import Standing
from rmq.broker.features.topics import Topics
from rmq.broker.features.totals import DayTotals
from rmq.broker.features.transactions import Transactions
from rmq.broker.features.upkeep import Upkeep
from rmq.broker.front.front import Front, hello
from rmq.broker.group import Group
from rmq.broker.handlers.access import AccessHandlers
from rmq.broker.handlers.clients import ClientHandlers
from rmq.broker.handlers.liteadmin import LiteAdminHandlers
from rmq.broker.handlers.lites import LiteHandlers
from rmq.broker.handlers.pull import PullHandler
from rmq.broker.handlers.questions import QuestionHandlers
from rmq.broker.handlers.quotas import QuotaHandlers
from rmq.broker.handlers.replies import ReplyHandler
from rmq.broker.handlers.sendback import SendBackHandlers
from rmq.broker.handlers.transactions import TransactionHandlers
from rmq.broker.membership import Alone, Guidance, Leadership, Membership
from rmq.broker.pending.compaction import Compaction
from rmq.broker.pending.intake import ROOM_AT_ENDS_BYTES, Intake
from rmq.broker.pending.internalproducer import InternalProducer
from rmq.broker.pending.lites import LiteEvents
from rmq.broker.pending.ordered import OrderedPopReader
from rmq.broker.pending.popreader import QueueReader
from rmq.broker.pending.popwaits import PopWaits
from rmq.broker.pending.receipts import ReceiptWriter, revive_offsets
from rmq.broker.pending.routeasking import RouteAsking
from rmq.broker.replication.gate import is_introduced
from rmq.broker.replication.latencies import Latencies
from rmq.broker.shared.catalog import Catalog
from rmq.broker.shared.facts import StartTime, runtime_facts
from rmq.broker.shared.lights import LightQueues
from rmq.broker.shared.longpoll import LongPolls
from rmq.broker.shared.owners import Owners
from rmq.broker.shared.ports import Identity, Reader, Writer
from rmq.broker.shared.stats import BrokerStats
from rmq.broker.tables.apply import Applier
from rmq.broker.tables.states import states_of
from rmq.broker.tables.tables import Tables, fill
from rmq.broker.timers import Timers
from rmq.config.settings import NodeSettings
from rmq.delivery.groups import ConsumerRegistry, GroupTable
from rmq.delivery.offsets import OffsetTable
from rmq.errors import Refusal, RmqError
from rmq.guard.audit import audited
from rmq.guard.guard import who_asks
from rmq.guard.quotas import Metering
from rmq.log.files.disk import Disk
from rmq.log.store import Store
from rmq.measures import Family
from rmq.net.commands import RegisterBroker, ShareAccess
from rmq.net.commands.link import Hello
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.server import Call, Connection, Handler
from rmq.requests import Action
from rmq.routing.topics import TopicTable

log = logging.getLogger("rmq.broker")

COMMIT_AT_STOP_S = 1.0  # how long a leader that stops waits for others to have its last state records


class Serving:
    """`await start(running)`; what it started is stopped by `running`. `start_time`: when this node was started."""

    def __init__(
        self, settings: NodeSettings, store: Store, disk: Disk, front: Front, us: Identity, start_time: StartTime, dialer: Dialer
    ) -> None:
        self._settings, self._us, self._start_time = settings, us, start_time
        self._in_force = settings  # with what was changed while it ran
        self._clock = clock = dialer.clock
        self.store = store
        self.front = front
        self.features: list[Feature] = []  # filled below; no feature is told of anything before the start
        self._begun = False  # the features have begun, so they are to finish
        self.tables = _tables(settings, store)
        self._polls = LongPolls()
        applier = Applier(self.tables, self._polls, self.features)
        leadership = Leadership(
            self.features, applier.committed, self.tables.drop_overlays, self._read_again, front.left_leadership
        )
        latencies = Latencies(clock, front.server.requests)
        self.membership: Membership
        if settings.elected or settings.broker_role:
            self.membership = Group(settings, store, disk, dialer, us.address, leadership, latencies)
        else:
            self.membership = Alone(settings.broker_id, store, clock, settings.flush == "sync", leadership, latencies)
        self.appender = self.membership.appender
        self.appender.turn = front.server
        stats = BrokerStats(store.queues.all, {settings.cluster_name, settings.broker_name})
        self.reader = Reader(settings, us.address, store, lambda: self.appender.committed_end, stats)
        check_topic = front.guard.check_topic if front.guard else _everybody_may
        lights = LightQueues(settings, store.queues, self.tables.topics.is_leaving, check_topic)
        self.writer = Writer(self.appender, store.queues, us.host, clock, random.Random(), lights)
        self._internal_producer = producer = InternalProducer(self.reader, self.tables.topics, self.writer)
        self.compaction = Compaction(self.tables.topics, self.reader, producer, self.appender, self._leadership, clock)
        self._routes = RouteAsking(settings.namesrv_addresses, settings.broker_name, dialer)
        self._timers = Timers(clock)
        self.registration = Registration(settings.namesrv_addresses, self._describe, dialer, self._shares)
        there = {"topic": self.tables.topics.committed(), "group": self.tables.groups.committed()}
        self._owners = Owners(self.tables.owners, self.tables.quotas.committed(), there, self.writer.commit)
        self.features += self._listed()
        exports = {name: table for feature in self.features for name, table in feature.exports.items()}
        self.features += [
            self.registration,
            Exports(settings.store_dir / "config", exports, store.check_place),
            Upkeep(store, self.tables.by_name, self.reader.committed, self.membership, clock),
        ]

    def _listed(self) -> list[Feature]:
        """Each feature gets from the others the functions that it names, and nothing else."""
        settings, clock, tables, polls, membership = self._settings, self._clock, self.tables, self._polls, self.membership
        reader, writer, commit, chance = self.reader, self.writer, self.writer.commit, self.writer.chance
        registry, offsets = ConsumerRegistry(settings.client_expiry_ms / 1000), tables.offsets
        catalog = Catalog(
            tables.topics, tables.groups, self._owners.write, settings.auto_create_group, self._may_make, tables.forbidden
        )
        receipts = ReceiptWriter(tables.popped, writer.propose_state, reader.queues, self._us, clock, chance)
        hearing = partial(self.front.hearing, leads=lambda: membership.leads)
        internal_producer, told = self._internal_producer, self.registration.told
        topics = Topics(settings, catalog, offsets.groups_of, offsets.drop_pending, membership.check_leads, told)
        guard, server = self.front.guard, self.front.server
        may_publish, check_topic = (guard.may_publish, guard.check_topic) if guard else (_everybody_publishes, _everybody_may)
        let_in, tell_members = catalog.let_in, polls.groups_changed
        clients = ClientHandlers(registry, catalog.groups, let_in, server.connection, tell_members, clock, may_publish)
        groups = Groups(catalog, registry, clients, offsets, hearing, clock)
        leave = partial(membership.leave_to_leader, anyone=True)
        progress = Offsets(offsets, catalog, registry, reader, commit, leave, clients.of_group)
        broadcasts = Broadcasts(progress, registry, catalog, reader, tables.cursors, commit, clock)
        locks = Locks(tables.locks, settings.broker_name, catalog.topic, catalog.check_known_group, commit, clock)
        delays = Delays(settings, tables.due, tables.topics, reader, internal_producer, commit, clock)
        later, immunity_ms = Intake(delays.interceptors, room=ROOM_AT_ENDS_BYTES), settings.transaction_timeout_ms
        ending = TransactionHandlers(tables.halves, internal_producer, later, immunity_ms, check_topic, clock)
        transactions = Transactions(settings, tables.halves, catalog, internal_producer, clients, ending, clock)
        intake = Intake((transactions.interceptor, *delays.interceptors), (transactions.halves, *delays.fast))
        failed = SendBackHandlers(catalog, internal_producer, intake, locks.is_locked, check_topic)
        guide = Guidance(membership, settings.follower_reads, self.front.leans)
        pulls = PullHandler(reader, catalog, registry, broadcasts, guide, polls, clock)
        address, producers = self._us.address, clients.of_producer
        replies = ReplyHandler(catalog, internal_producer, producers, address, settings, topics.all_known, clock)
        questions = QuestionHandlers(settings.broker_name, registry, catalog, clients.of_member, reader.record_at, check_topic)
        return [
            topics,
            groups,
            progress,
            OffsetExports(offsets, tables.cursors, lambda: revive_offsets(tables.receipts, reader.queues), settings.light_queues),
            locks,
            delays,
            transactions,
            *self._pops(catalog, receipts, progress),
            Revival(catalog, reader, internal_producer, receipts, tables.due.first_ms, clock),
            Assignments(settings.broker_name, catalog, tables.modes, registry, self._routes, commit),
            Retries(failed, tables.groups),
            Replies(replies),
            Questions(questions),
            Sending(settings, writer, catalog, topics.all_known, intake, failed.given_up),
            broadcasts,
            Pulling(pulls, tables.groups, reader, guide, polls, clock),
            Lookups(reader, self.store.indexed.index, check_topic, clock),
            Lag(offsets, tables.topics, registry, tables.receipts, reader, clock),
            Standing(settings, self.store, reader, membership, lambda: len(self.front.server.connections), clock),
            Inspection(settings, catalog, offsets, registry, reader, self._facts, clock),
            DayTotals(tables.totals, reader.stats, commit, clock),
            CompactedTopics(self.compaction),
            Cleaning(settings, self.store, membership, self._alive_from, self.carry_forward, clock),
            self._access(),
            self._quotas(),
            Configuration(settings, self._change_settings, self.store.check_place, clock),
        ]

    def _pops(self, catalog: Catalog, receipts: ReceiptWriter, progress: Offsets) -> list[Feature]:
        """Pops of topics, light queues, and pops of lite topics, which are ordered pops of their light queues."""
        settings, clock, tables, polls, reader = self._settings, self._clock, self.tables, self._polls, self.reader
        waits, leaving, commit = PopWaits(polls), tables.topics.is_leaving, self.writer.commit
        places = QueueReader(reader, tables.offsets, commit, leaving, catalog.group, self._leadership)
        ordered = OrderedPopReader(places, tables.orders)
        lights = Lights(catalog, reader.queues, tables.offsets.drop_pending)
        lites = LiteEvents(catalog, ordered, waits, polls.watch_lites, clock)
        wanted = LiteHandlers(lites, progress.move, settings)
        shown = LiteAdminHandlers(lites, tables.offsets, reader, self._routes.queues, settings)
        pop = Pop(ordered, waits, receipts, catalog, self.membership.check_in_touch, clock, self.writer.chance)
        return [pop, lights, Lites(lites, wanted, shown, lights.end, reader, settings)]

    def _access(self) -> Access:
        settings, tables, guard, server = self._settings, self.tables, self.front.guard, self.front.server
        directory = AccessTables(tables.users, tables.policies)
        key = settings.node_credentials[0].secret if settings.node_credentials else ""
        handlers = AccessHandlers(tables.users, tables.policies, self.writer.commit, key, who_asks if guard else _nobody)
        first = settings.init_user[0] if settings.init_user else None
        return Access(handlers, directory, first, self.writer.commit, lambda: server.connections, self._access_changed)

    def _quotas(self) -> Quotas:
        table, front = self.tables.quotas, self.front
        stats, metering = self.reader.stats, Metering(table.committed(), front.guard, self._owners.asks, self._clock)

        def switch(on: bool) -> None:
            """Where there are none, nothing is counted."""
            front.screen_with(metering if on else None)
            stats.charge = metering.handed_out if on else None

        return Quotas(QuotaHandlers(table, self.writer.commit), metering, switch)

    def _access_changed(self) -> None:
        """Who waits for messages asks again, and is looked at again; nameservers hear of it."""
        self._polls.wake_all()
        self.registration.changed()

    def _shares(self) -> list[ShareAccess]:
        """What nameservers are to know of users and policies."""
        if self.front.guard is None or not self.membership.leads:
            return []
        return shares(self._settings.broker_name, self.tables.users, self.tables.policies)

    async def start(self, running: AsyncExitStack) -> None:
        """Starts part after part; `running` is told how each is stopped, the last one first. Raises StoreError, OSError."""
        front, membership = self.front, self.membership
        running.callback(self.reader.cold.close)
        await self._change_settings(self._settings)
        await asyncio.to_thread(fill, self.tables, self.store)
        running.push_async_callback(self._finish)
        running.push_async_callback(membership.stop)
        running.push_async_callback(front.close)  # what the last jobs store is copied until then
        if self.store.read_only:
            membership.begin()
        else:
            await self._begin_writing()
            self._begun = True
            running.push_async_callback(self._commit_last)
        running.push_async_callback(self._timers.stop)
        self._start_jobs()
        running.push_async_callback(front.leave, is_introduced)
        running.callback(self._stopping)
        if front.guard is not None:
            tables, membership, first = self.tables, self.membership, bool(self._settings.init_user)
            front.guard.directory = AccessTables(tables.users, tables.policies, lambda: membership.is_current, first)
        takes = {kind: take for feature in self.features for kind, take in feature.takes.items()}
        await front.serve(self._handlers(), takes, membership.allow, self._closed, membership.leads_where)
        await membership.start()
        running.push_async_callback(front.until_left)
        running.push_async_callback(self._routes.close)
        running.push_async_callback(self.registration.stop)
        await self.registration.start()
        running.push_async_callback(membership.hand_over)

    async def _begin_writing(self) -> None:
        self.membership.open_epoch()
        if self.store.adopting:
            await self._adopt()
        self.membership.begin()
        for feature in self.features:
            await feature.begin()

    async def _adopt(self) -> None:
        config, wall_ms = self._settings.store_dir / "config", self._clock.wall_ms()
        imported = await asyncio.to_thread(adopt.import_tables, self.store, self.tables, config, self._us.host, wall_ms)
        log.info("adopted: %s", adopt.summary(self.store.adopted, imported))
        for note in imported.notes:
            log.warning("adopted: %s", note)

    def _start_jobs(self) -> None:
        for job in self.jobs():
            if job.at is At.EVERYWHERE or not self.store.read_only:
                work = self._when_leading(job) if job.at is At.LEADER else job.work
                self._timers.every(job.seconds, job.name, work, job.first_s, lasts=job.lasts)

    def jobs(self) -> list[Job]:
        return [*self.membership.jobs, *(job for feature in self.features for job in feature.jobs)]

    def _handlers(self) -> dict[type[Any], Handler]:
        handlers: dict[type[Any], Handler] = {Hello: hello(self._settings, self._us.address)}
        for some in (*(feature.handlers for feature in self.features), self.membership.handlers):
            assert not handlers.keys() & some.keys(), "two features serve one request"
            handlers |= some
        states = {**states_of(self.tables, self.store.log, self.membership.status)}
        for feature in self.features:
            states |= feature.states
        return audited(handlers, states)

    async def _commit_last(self) -> None:
        """A leader that nobody follows any more must stop, too."""
        for job in self.jobs() if self.membership.leads else []:
            if job.at_stop:
                await _finished(job.work, COMMIT_AT_STOP_S)

    async def _finish(self) -> None:
        """Saves what a stop saves; no leader changes it meanwhile. A store that takes nothing more (full disk, failed flush) must
        still be closed."""
        try:
            self.store.check_place()
        except OSError:
            return  # the store's close says it
        for feature in self.features if self._begun else []:
            await _finished(feature.finish)

    def _describe(self, names: Iterable[str] | None) -> RegisterBroker:
        return description(self._in_force, self._us.address, self.store, self.tables.topics, self.membership, names)

    async def _change_settings(self, settings: NodeSettings) -> None:
        """Tells all features, also where one of them refuses. Raises Refusal, the last one."""
        self._in_force, refused = settings, None
        for feature in self.features:
            try:
                await feature.on_settings(settings)
            except Refusal as refusal:
                refused = refusal
        if refused is not None:
            raise refused

    # --- what a feature asks of all others ------------------------------------------------------------------------------

    async def carry_forward(self, below: int) -> None:
        """See `Feature.carry_forward`. A follower appends nothing: the leader's copies come by themselves."""
        for feature in self.features:
            if feature.carries is not At.LEADER or self.membership.leads:
                await feature.carry_forward(below)

    def _leadership(self) -> int | None:
        """The epoch that this node leads, if it does."""
        return self.membership.epoch if self.membership.leads else None

    def _alive_from(self) -> int | None:
        """Below that offset of the log nothing is needed any more; None: nothing of it is."""
        kept = self.tables.pending.alive_from(), self.compaction.alive_from()
        return min((at for at in kept if at is not None), default=None)

    def _facts(self) -> Iterable[tuple[str, object]]:
        reader = self.reader
        yield from runtime_facts(self._settings.store_dir, reader.log, reader.committed(), self._start_time, self._clock)
        yield "waitsFor", " | ".join(self.waits_for())  # each may be several sentences
        for feature in self.features:
            yield from feature.facts()

    def metrics(self) -> Iterable[Family]:
        """The measurements of all features; see `Feature.metrics`."""
        yield from self.front.server.metrics()
        for feature in self.features:
            yield from feature.metrics()
            if self.membership.leads:
                yield from feature.led_metrics()

    def waits_for(self) -> list[str]:
        """What this node lacks before it can do its part."""
        return [why for feature in self.features for why in feature.waits_for()]

    def _may_make(self) -> bool:
        return not self.store.read_only and self.membership.leads

    def _when_leading(self, job: Job) -> Callable[[], Awaitable[None] | None]:
        return lambda: job.work() if self.membership.leads else None

    def _read_again(self) -> None:
        self.tables.clear()
        fill(self.tables, self.store)

    def _closed(self, connection: Connection) -> None:
        for feature in self.features:
            feature.on_connection_closed(connection)

    def _stopping(self) -> None:
        for feature in self.features:
            feature.stopping()


async def _finished(save: Callable[[], Awaitable[None] | None], limit_s: float | None = None) -> None:
    """Tells the log what could not be saved."""
    try:
        if (pending := save()) is not None:
            await asyncio.wait_for(pending, limit_s)
    except TimeoutError:
        log.warning("the last state records are in this node's log only: too few others had them within %g s", limit_s)
    except (RmqError, OSError) as error:
        log.warning("not saved at the end: %s", error)
    except Exception:  # the log itself is well, and the next start makes all of these from it
        log.exception("not saved at the end; this is a bug, please report it")


def _nobody(_call: Call) -> None:
    return None


def _everybody_publishes(_connection: Connection, _topic: str) -> bool:
    """Where nobody has to say who he is."""
    return True


def _everybody_may(_call: Call, _topic: str, _action: Action, _group: str) -> None:
    """The same for a request about a message."""


def _tables(settings: NodeSettings, store: Store) -> Tables:
    groups = GroupTable(settings.max_groups, settings.light_queues)
    own_names = [settings.cluster_name, settings.broker_name, f"{settings.cluster_name}_REPLY_TOPIC"]
    own_names += [settings.trace_topic_name] if settings.trace_topic else []
    lights = store.queues.lights() if settings.light_queues else None
    topics = TopicTable(own_names, settings.max_topics, lambda name: bool(groups.decided(name) or groups.get(name)), lights)
    return Tables(topics, groups, OffsetTable(), store.log.segment_bytes, settings.delays_ms)
