"""A node's place among those that share its log: alone (here), or in a group that elects its leader or has a fixed one (`group`).

Code that needs to know whether this node leads, and what follows, asks a `Membership`, and never which kind it is.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from rmq.broker.feature import At, Feature, Job
from rmq.broker.front.forwarding import HERE
from rmq.broker.replication.alone import LoneReplica
from rmq.broker.replication.appender import Appender
from rmq.broker.replication.elected import LeadershipEvents
from rmq.broker.replication.latencies import Latencies
from rmq.broker.replication.measured import log_families
from rmq.clock import Clock
from rmq.log.store import Store
from rmq.log.units import Unit
from rmq.measures import Family
from rmq.net.commands.peers import GroupStatus
from rmq.net.transport.connection import Allow
from rmq.net.transport.server import Call, Connection, Handler

LATE_S = 1.0


class Membership(Protocol):
    """`handlers`: for requests among the nodes and about them. `jobs`: regular work."""

    @property
    def appender(self) -> Appender: ...

    @property
    def files(self) -> asyncio.Lock:
        """Held by who deletes, replaces or repairs files of the log."""

    @property
    def handlers(self) -> Mapping[type[Any], Handler]: ...

    @property
    def jobs(self) -> Sequence[Job]: ...

    @property
    def status(self) -> Callable[[], GroupStatus] | None:
        """Returns the group's status; None if the node stands alone."""

    def metrics(self) -> Iterable[Family]:
        """What it measures of its log and its group."""

    def waits_for(self) -> Iterable[str]:
        """What this node lacks before it can do its part."""

    def send_trouble(self) -> str:
        """Why sends are stored here and yet not answered by SEND_OK; "" if they are."""

    # --- who this node is

    @property
    def broker_id(self) -> int:
        """RocketMQ's: 0 for a leader. -1: there is none yet."""

    @property
    def epoch(self) -> int:
        """The epoch that this node registers for."""

    @property
    def successors(self) -> list[str]:
        """Stores of the nodes that may lead after this one."""

    # --- what it may do

    @property
    def leads(self) -> bool:
        """As leader it has committed and applied everything of earlier epochs."""

    @property
    def is_current(self) -> bool:
        """Whether its tables have all that was committed when it last heard of the leader; what is not there is not there."""

    @property
    def in_touch(self) -> bool:
        """Whether no other node can have stored anything that this one will never hear of: it leads and may answer, or it has all
        that a leader that it hears has committed."""

    def check_leads(self) -> None:
        """Raises Refusal if this node may not change tables now."""

    def check_in_touch(self) -> None:
        """Raises Refusal, for a leader that is not `in_touch`: another one may have stored what this one does not know."""

    @property
    def allow(self) -> Allow | None:
        """Asked before each request."""

    def leads_where(self) -> str:
        """ "host:port" of the leader, HERE, or "" while nobody leads."""

    def leave_to_leader(self, connection: Connection, only: bool = False, anyone: bool = False) -> None:
        """Raises Refusal where what is missing here may be at the leader; `only`: also while nobody leads; `anyone`: also for
        clients that follow hints."""

    def suggest(self, end: int, cold: bool) -> int:
        """The broker id that a reader who has read up to `end` should ask next. `cold`: this node had to wait for its disk."""

    # --- the log

    def follower_from(self) -> int | None:
        """From which offset on the log must stay for followers; None if nobody needs it."""

    @property
    def filling(self) -> bool:
        """The log begins anew, below a leader's snapshot: the tables are not those of any place that it has yet."""

    def retained(self) -> None:
        """The log may begin elsewhere now, or a snapshot was taken."""

    # --- life

    def open_epoch(self) -> None:
        """Before anything is appended."""

    def begin(self) -> None:
        """Before anybody is served."""

    async def start(self) -> None:
        """Once this node serves."""

    async def hand_over(self) -> None:
        """Before a stop: another node leads then."""

    async def stop(self) -> None:
        """Nobody is answered any more."""


class Alone:
    """No other node has this log: it always leads, and commits by itself."""

    successors: Final[list[str]] = []
    handlers: Final[Mapping[type[Any], Handler]] = {}
    allow: Final = None
    status: Final = None
    leads: Final = True
    filling: Final = False

    def __init__(
        self,
        broker_id: int,
        store: Store,
        clock: Clock,
        sync_flush: bool,
        events: LeadershipEvents,
        latencies: Latencies,
    ) -> None:
        self.broker_id = broker_id
        self._replica = LoneReplica(store.log, store.dispatcher, clock, sync_flush, events.committed, latencies)
        self.appender = self._replica.appender
        self.files = asyncio.Lock()
        self.jobs = (Job(LATE_S, "late", self._replica.answer_late, At.EVERYWHERE, lasts=True),)
        self._store = store
        self._clock = clock
        self._events = events

    def metrics(self) -> Iterable[Family]:
        return log_families(self._replica.latencies, self._replica.flusher.unflushed_seconds())

    def waits_for(self) -> Iterable[str]:
        return ()

    def send_trouble(self) -> str:
        return ""

    @property
    def epoch(self) -> int:
        return self._store.epoch

    @property
    def is_current(self) -> bool:
        return True

    @property
    def in_touch(self) -> bool:
        return True

    def check_leads(self) -> None:
        return

    def check_in_touch(self) -> None:
        return

    def leads_where(self) -> str:
        return HERE

    def leave_to_leader(self, connection: Connection, only: bool = False, anyone: bool = False) -> None:
        return

    def suggest(self, end: int, cold: bool) -> int:
        return 0

    def follower_from(self) -> int | None:
        return None

    def retained(self) -> None:
        return

    def open_epoch(self) -> None:
        self._store.open_epoch(self._clock.wall_ms())

    def begin(self) -> None:
        """A store that may not be written is read; nothing else is done with it."""
        damages = self._store.log.damages
        if self._store.read_only:
            why = f"{damages}: this node only reads"
            self.appender.refuse(why, why, why)
        self._replica.start()
        if not self._store.read_only:
            self._events.leader_ready()

    async def start(self) -> None:
        return

    async def hand_over(self) -> None:
        return

    async def stop(self) -> None:
        await self._replica.stop()


class Guidance:
    """A `pull.Guide`. `follower_reads`: readers may be sent to followers; `leans(call)`: a client reads at this follower."""

    def __init__(self, membership: Membership, follower_reads: bool, leans: Callable[[Call], None]) -> None:
        self.follower_reads = follower_reads
        self.leave_to_leader = membership.leave_to_leader
        self._membership = membership
        self._leans = leans

    def suggest(self, end: int, cold: bool) -> int:
        return self._membership.suggest(end, cold) if self.follower_reads else 0

    def keeps_offsets(self, call: Call) -> bool:
        if self._membership.leads:
            return True
        self._leans(call)
        return False


class Leadership:
    """Tells the features what becomes of this node's leadership. `features`: may still be filled while nobody leads.

    `committed`: see `LeadershipEvents`. `clear`: the tables forget everything and are read again; `drop_overlays`: they forget
    what was not committed.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        committed: Callable[[Sequence[Unit], int], None],
        drop_overlays: Callable[[], None],
        clear: Callable[[], None],
        front_left: Callable[[], None],
    ) -> None:
        self._features = features
        self.committed = committed
        self._drop_overlays = drop_overlays
        self._clear = clear
        self._front_left = front_left

    def leader_ready(self) -> None:
        for feature in self._features:
            feature.on_leader_ready()

    def leadership_lost(self) -> None:
        self._drop_overlays()
        self._front_left()
        for feature in self._features:
            feature.on_leadership_lost()

    def log_replaced(self) -> None:
        self._clear()
        for feature in self._features:
            feature.on_log_replaced()

    def registration_changed(self) -> None:
        for feature in self._features:
            feature.on_registration_changed()
