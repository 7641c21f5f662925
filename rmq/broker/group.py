"""A node's part in a group that elects its leader, or has a fixed master: connects state machine, log, channels, handlers.

A `membership.Membership`.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from rmq.broker.feature import At, Job
from rmq.broker.front.forwarding import HERE
from rmq.broker.handlers.group import GroupHandlers
from rmq.broker.handlers.peers import PeerHandlers
from rmq.broker.replication.directory import CurrentMaster
from rmq.broker.replication.elected import ElectedReplica, LeadershipEvents
from rmq.broker.replication.gate import Gate
from rmq.broker.replication.latencies import Latencies
from rmq.broker.replication.measured import group_families, lacks, log_families, send_trouble
from rmq.broker.replication.member import Member
from rmq.broker.replication.peerrepair import PeerRepairer
from rmq.broker.replication.peers import Peers
from rmq.broker.replication.roster import Configured, Registered, Roster
from rmq.broker.replication.snapshotinstall import SnapshotInstaller
from rmq.broker.startup.damaged import wall
from rmq.config.settings import NodeSettings
from rmq.errors import StoreError
from rmq.log.files.disk import Disk
from rmq.log.replicated import ReplicatedLog
from rmq.log.store import Store
from rmq.measures import Family
from rmq.net.commands import CODES, DraftedSend, Request
from rmq.net.commands.peers import IntroducePeer
from rmq.net.transport.dialer import Dialer
from rmq.net.transport.server import Connection, Handler
from rmq.raft import effects as fx, events as ev
from rmq.raft.fixed import last_epoch_led
from rmq.raft.identity import Identity, Timing
from rmq.raft.roles import LAST_EPOCH, Follower, Leader, StartingMaster
from rmq.raft.trust import MAX_LEAP
from rmq.requests import REQUESTS, Served

log = logging.getLogger("rmq.group")

HEALTH_S, LATE_S = 1.0, 1.0
NEAR_BYTES = 64 << 20
MAX_SUCCESSORS = 100
FRESH_S = 2.0  # a follower that fetched so lately is there
RIGHTS_S = 1.0  # how old users and policies may be where somebody reads; a follower hears of new ones every 0.25 s
GRACE_S = 600.0  # how long a follower that is away still holds segments back

_LEADER_IS_ASKED = (Served.MEMBER_BUT_ASK, Served.READER_BUT_ASK)
_LEADS = (Served.LEADER, Served.LEASED)
_READS = (Served.READER, Served.READER_BUT_ASK, Served.LEASED)


class Group:
    """`address`: where clients reach this node."""

    def __init__(
        self,
        settings: NodeSettings,
        store: Store,
        disk: Disk,
        dialer: Dialer,
        address: str,
        events: LeadershipEvents,
        latencies: Latencies,
    ) -> None:
        _check_reach(store, f"{settings.store_dir}")
        if settings.unclean and not store.vote.proven:
            log.warning("--unclean: what this node lost when its machine stopped is given up, as far as no other node has it")
            store.save_vote(store.vote.epoch, store.vote.voted_for, True)
        self._roster: Roster = Configured(settings) if settings.elected else Registered(settings, address, dialer, self._heard)
        name, node, vote = settings.broker_name, self._roster.node, store.vote
        self._registration_changed, self._registered_id = events.registration_changed, self._roster.broker_id
        self._registered_successors: list[str] = []
        root, sync = str(settings.store_dir), settings.flush == "sync"
        introduction = IntroducePeer(name, node, vote.store_id, vote.incarnation)
        peers = Peers(introduction, self._address_of, self._handle, dialer, partial(latencies.copied, waits=sync))
        me = Identity(
            name, node, vote.store_id, vote.incarnation, address, sync, settings.preferred_leader, self._roster.fixed,
            settings.in_sync_replicas if settings.broker_role == "SYNC_MASTER" else 1, settings.broker_role.endswith("MASTER"),
            settings.unclean,
        )  # fmt: skip
        make_member = partial(Member, ReplicatedLog(store, disk, root), me, self._roster.voters, Timing())
        self.replica = ElectedReplica(store, dialer.clock, latencies, events, peers, make_member, self._fetch_snapshot)
        self.member = self.replica.member
        self._fetches = peers.fetches
        self.files = asyncio.Lock()
        self._installer = SnapshotInstaller(store, disk, f"{root}/rmq", events.log_replaced, self.member, peers, self.files)
        self._store, self._log = store, store.log
        self._repairer = PeerRepairer(store, disk, root, peers, self._others, self.files)
        asked = GroupHandlers(
            self.replica,
            store,
            (settings.cluster_name, name),
            lambda: self.broker_id,
            self._repairer,
            self._address_of,
            max(settings.total_replicas, settings.in_sync_replicas),
        )
        gate = Gate(wall(settings, store, address), self._places, self._owner, self._roster.refresh)
        self.handlers: Mapping[type[Any], Handler] = {
            **asked.by_request(),
            **PeerHandlers(self.replica, store, gate).by_request(),
        }
        self._has_policies = settings.authorization
        self._served = {kind: REQUESTS[code].served for kind, code in CODES.items()} | {DraftedSend: Served.SENDS}
        self.appender = self.replica.appender
        self.status = asked.status
        self.jobs = (
            Job(HEALTH_S, "health", self.look_at_health, At.EVERYWHERE),
            Job(LATE_S, "late", self.replica.answer_late, At.EVERYWHERE, lasts=True),
        )

    # --- what it reports ------------------------------------------------------------------------------

    def metrics(self) -> Iterable[Family]:
        replica = self.replica
        yield from log_families(replica.latencies, replica.flusher.unflushed_seconds())
        yield from group_families(self.status(), self._fetches)

    def waits_for(self) -> Iterable[str]:
        if self.replica.files.unsaved:
            yield f"takes no part in its group: {self.replica.files.unsaved}"
        if self.member.takes_nothing:
            yield "disk: its log took no bytes lately, so another node is to lead"
        yield from lacks(self.member.core, self.replica.leader_ready, self.replica.monotonic())

    def send_trouble(self) -> str:
        return send_trouble(self.member.core, self.replica.monotonic())

    # --- what the broker asks -----------------------------------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        """RocketMQ's: 0 for the leader, once it may be told as such, and for a fixed master that its slaves must find before it
        can begin; else as configured, or the place among the peers. -1: an old master that has no other id yet, or a node that
        was taken out of the group and is to be stopped."""
        if self.replica.leader_ready or isinstance(self.member.core.role, StartingMaster):
            return 0
        return -1 if self.member.core.state.was_removed() else self._roster.broker_id or -1

    @property
    def epoch(self) -> int:
        """The epoch that this node registers for. Before it begins that is its last one: a newer master must not be refused."""
        core, vote = self.member.core, self._store.vote
        return (
            last_epoch_led(core.state, vote.epoch, vote.voted_for) if isinstance(core.role, StartingMaster) else core.state.epoch
        )

    @property
    def successors(self) -> list[str]:
        """Stores of the nodes that may lead after this one."""
        return sorted(self._roster.successors(self.member.core) - {""})[:MAX_SUCCESSORS]

    def allow(self, connection: Connection, request: Request) -> None:
        """Raises Refusal for requests that this node may not answer now (`rmq.requests`)."""
        served = self._served[type(request)]
        if served is Served.SENDS:
            if not self.replica.leader_ready and not connection.follows_hints:
                self.replica.check_accepts()  # before anybody asks tables that may be behind
            return
        if served is Served.MEMBER:
            return
        if served in _LEADER_IS_ASKED:
            self.leave_to_leader(connection)
        if served in _LEADS:
            self.replica.check_leads()
        if served in _READS:
            self.replica.check_reads()
            self.member.catch_up()
            if self._has_policies:
                self._check_rights_are_new()

    def _check_rights_are_new(self) -> None:
        """A member that is cut off, or lags, may not know yet what a reader has lost. A leader whose lease is good knows, and a
        slave with a fixed role is to serve without its master. Raises Refusal."""
        core = self.member.core
        if isinstance(core.role, Leader) or self._roster.fixed:
            return
        committed = core.lately_committed(self.replica.monotonic(), RIGHTS_S)
        if committed is None or self._store.dispatcher.position < committed:
            raise self.replica.not_current()

    def leave_to_leader(self, connection: Connection, only: bool = False, anyone: bool = False) -> None:
        """Raises Refusal if another node leads, which may know better what to answer to a client that cannot find it. While
        nobody leads this node answers that itself, but not what `only` a leader may say. `anyone`: also clients that can."""
        if connection.follows_hints and not anyone:
            return
        if self.leads_where() not in ("", HERE):
            raise self.replica.not_leader(here_too=not only)
        if only and not self.replica.leader_ready:
            raise self.replica.not_leader()

    def leads_where(self) -> str:
        """For `Forwarding`."""
        core = self.member.core
        if self.replica.leader_ready and core.accepts():
            return HERE
        return self._address_of(core.leader) if core.follows(self.replica.monotonic()) else ""

    def follower_from(self) -> int | None:
        """From which offset on the log must stay for followers that were here lately; None if nobody needs it."""
        role, now = self.member.core.role, self.replica.monotonic()
        peers = role.peers.values() if isinstance(role, Leader) else ()
        return min((peer.end for peer in peers if peer.end >= 0 and now - peer.touched < GRACE_S), default=None)

    def suggest(self, end: int, cold: bool) -> int:
        """Where a reader that is at `end` should go on [whichBrokerWhenConsumeSlowly]. One far behind is sent to a follower
        that has what comes next, so that the leader's disk is left to the others, and stays there until it is near; when
        all followers lag it stays at the leader."""
        core, now = self.member.core, self.replica.monotonic()
        role, state = core.role, core.state
        if not isinstance(role, Leader):
            return self._roster.broker_id if state.hw - end > NEAR_BYTES else 0
        ids = self._roster.ids
        able = [peer.node for peer in role.peers.values() if peer.hw > end and now - peer.touched < FRESH_S] if cold else []
        return next((ids[node] for node in able if node in ids), 0)

    @property
    def leads(self) -> bool:
        return self.replica.leader_ready

    @property
    def is_current(self) -> bool:
        core, role = self.member.core, self.member.core.role
        if not isinstance(role, Follower):
            return self.replica.leader_ready
        self.member.catch_up()
        return core.follows(self.replica.monotonic()) and 0 < role.leader_hw <= self._store.dispatcher.position

    @property
    def in_touch(self) -> bool:
        return self.is_current and self.member.core.serves_reads(self.replica.monotonic())

    def check_leads(self) -> None:
        """Raises Refusal if this node may not change tables now."""
        self.replica.check_leads()

    def check_in_touch(self) -> None:
        """Raises Refusal, as of `Membership`."""
        self.replica.check_reads()

    @property
    def filling(self) -> bool:
        return self.member.filling

    def retained(self) -> None:
        """Tells the state machine where the log begins now."""
        self.member.retained()

    async def look_at_health(self) -> None:
        """For every second: what a read found damaged, or a disk that takes nothing, makes this node unfit to lead; damage is
        fetched from the others."""
        if (successors := self.successors) != self._registered_successors:  # the nameservers let nobody else take over
            self._registered_successors = successors
            self._registration_changed()
        damages = self._log.damages
        damages.drop_before(self._log.start)
        health = ev.Health(bool(damages), self.appender.full or self.member.rests)
        if health != self.member.core.state.health:
            self.member.handle(health)
        if damages:
            await self._repairer.repair()

    def open_epoch(self) -> None:
        """Only a leader does it."""

    def begin(self) -> None:
        """Waits until this node serves."""

    async def start(self) -> None:
        await self._roster.start()
        self.replica.start()

    async def hand_over(self) -> None:
        if not self._roster.fixed:
            await self.replica.hand_over()

    async def stop(self) -> None:
        await self._roster.stop()
        await self._installer.stop()
        await self.replica.stop()

    # --- joints -------------------------------------------------------------------------------------------------------

    def _heard(self, master: CurrentMaster) -> None:
        """With fixed roles: what was heard of the master."""
        if master.node:
            self.replica.note_leader(master.node, master.address)
        self.member.handle(ev.Follow(master.node, master.epoch))
        if master.node and self.member.core.leader == master.node:
            self._roster.make_way(master.node)
        if self.broker_id != self._registered_id:
            self._registered_id = self.broker_id
            self._registration_changed()

    def _fetch_snapshot(self, order: fx.InstallSnapshot) -> None:
        self._installer.begin(order)

    def _others(self) -> list[str]:
        """The other nodes, the leader first."""
        core = self.member.core
        nodes = dict.fromkeys((core.leader, *(voter.node for voter in core.state.voters), *self._roster.nodes))
        return [node for node in nodes if node not in ("", core.state.me.node)]

    def _handle(self, event: ev.Event) -> None:
        self.member.handle(event)
        if isinstance(event, ev.Unreachable) or not (self.member.core.leads() or self.member.core.leader):
            self.replica.hurry()  # an election is under way

    def _owner(self, store: str) -> str:
        """The node that has this store, as the log names it; "" with fixed roles."""
        return next((voter.node for _, voters in self.member.core.state.lists for voter in voters if voter.store == store), "")

    def _places(self, node: str) -> Sequence[str]:
        """The addresses from which that node may connect."""
        return self._roster.places(node, self.member.core)

    def _address_of(self, node: str) -> str:
        return self._roster.address_of(node, self.member.core)


def _check_reach(store: Store, directory: str) -> None:
    """Raises StoreError for an epoch that nobody can have held: the others would not believe in it, or none comes after it."""
    epoch, led = store.vote.epoch, store.epochs[-1].epoch if store.epochs else 0
    if epoch - led > MAX_LEAP or epoch > LAST_EPOCH - MAX_LEAP:
        raise StoreError(
            f"{directory} names epoch {epoch}, the log's last leader had {led}: some program made this epoch up, and the group "
            f"can elect nobody with it. `rmq store epochs {directory}` shows it; docs/operators has the way out, nothing is lost"
        )
