"""Telling the nameservers what this broker holds: at start, every 30 s, at once when a connection comes back, at once on change,
and goodbye at the end. Topics that change are told alone: there may be 100 000 others.

Each nameserver has a task and a connection of its own, so that a dead one delays nobody (N3).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from rmq import background
from rmq.broker.feature import Feature
from rmq.broker.membership import Membership
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal, RmqError, Unknown, same_trouble
from rmq.log.store import Store
from rmq.measures import Family
from rmq.model import PERM_READ, PERM_WRITE, DataVersion
from rmq.net.codec.native import VERSION
from rmq.net.commands import Answer, ChangeTopics, Hello, RegisterBroker, Registered, ShareAccess, UnregisterBroker
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.routing.parts import cut
from rmq.routing.topics import TopicTable

log = logging.getLogger("rmq.register")

PERIOD_S = 30.0
TIMEOUT_S = 10.0  # of one part
TOLD_S = 2.0  # so long the answer to a change of topics waits for nameservers
MOST_CHANGES = 100  # of topics, told alone
FIRST_PAUSE_S, AWAY_PAUSE_S, REFUSED_PAUSE_S = 0.1, 0.5, 2.0  # before another try: the shortest, the longest ones
SETTLING_S = 2.0  # so long brokers that exchange their ids may be refused, as one is heard before the other


def description(
    settings: NodeSettings,
    address: str,
    store: Store,
    topics: TopicTable,
    membership: Membership,
    names: Iterable[str] | None = None,
) -> RegisterBroker:
    """The registration as things stand now: with all topics, or those of these names that there are."""
    found = topics.all() if names is None else list(filter(None, map(topics.get, names)))
    allowed = settings.permission & ~PERM_WRITE if store.read_only else settings.permission
    if allowed != PERM_READ | PERM_WRITE:  # clients go elsewhere
        found = [topic._replace(perm=topic.perm & allowed) for topic in found]
    return RegisterBroker(
        settings.cluster_name, settings.broker_name, membership.broker_id, address, membership.epoch, found,
        topics.data_version, store.vote.store_id, membership.successors, zone=settings.zone,
    )  # fmt: skip


class Registration(Feature):
    """`describe(names)` makes the registration as things stand at that moment, with the topics of these names or (None) with all.
    `shares()`: what nameservers should know of users and policies before."""

    def __init__(
        self,
        nameservers: Sequence[str],
        describe: Callable[[Iterable[str] | None], RegisterBroker],
        dialer: Dialer,
        shares: Callable[[], Sequence[ShareAccess]] = tuple,
    ) -> None:
        self._describe = describe
        self._shares = shares
        self._peers = [_Peer(address, dialer) for address in nameservers]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register once with everybody who answers, then go on in the background."""
        await asyncio.gather(*(self._register(peer) for peer in self._peers))
        self._tasks = [background.start(self._keep(peer), f"register-{peer.address}") for peer in self._peers]

    def changed(self) -> None:
        for peer in self._peers:
            peer.tell_all()

    async def told(self) -> None:
        """Until those nameservers that took the last registration were told of all changes until now, or `TOLD_S` are over."""
        await asyncio.gather(*(peer.told() for peer in self._peers if peer.has_it))

    async def on_settings(self, settings: NodeSettings) -> None:
        self.changed()

    def on_leader_ready(self) -> None:
        self.changed()

    def on_leadership_lost(self) -> None:
        self.changed()

    def on_log_replaced(self) -> None:
        self.changed()

    def on_registration_changed(self) -> None:
        self.changed()

    def on_topic_changed(self, topic: str) -> None:
        for peer in self._peers:
            peer.tell_topic(topic)

    def metrics(self) -> Iterable[Family]:
        rows = [((address,), float(has_it)) for address, has_it in self.registered().items()]
        about = "1 if this nameserver took the last registration of this broker"
        yield Family("rmq_nameserver_registered", "gauge", about, ("nameserver",), rows)

    def registered(self) -> dict[str, bool]:
        """Which nameservers took the last registration."""
        return {peer.address: peer.has_it for peer in self._peers}

    def waits_for(self) -> Iterable[str]:
        """One nameserver is enough for clients."""
        if self._peers and not any(peer.has_it for peer in self._peers):
            troubles = "; ".join(f"{peer.address}: {peer.trouble or 'it was not told yet'}" for peer in self._peers)
            yield f"not registered: {troubles}"

    def facts(self) -> Iterable[tuple[str, object]]:
        """Names and values for this broker's runtime info."""
        yield "registrationTrouble", "; ".join(f"{peer.address}: {peer.trouble}" for peer in self._peers if peer.trouble)
        yield "topicsLeftOut", "; ".join(f"{peer.address}: {peer.left_out}" for peer in self._peers if peer.left_out)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        me = self._describe(())
        bye = UnregisterBroker(me.cluster_name, me.broker_name, me.broker_id, me.broker_addr)
        await asyncio.gather(*(peer.leave(bye) for peer in self._peers))

    async def _keep(self, peer: "_Peer") -> None:
        while True:
            await peer.until_due()
            await self._register(peer)

    async def _register(self, peer: "_Peer") -> None:
        names = peer.begin()
        try:
            await self._tell(peer, names)
        except RmqError as error:
            peer.failed(error)
        finally:
            peer.end()

    async def _tell(self, peer: "_Peer", names: set[str] | None) -> None:
        """Of these topics; None: of all. Raises RmqError."""
        me = self._describe(names)
        if me.broker_id < 0:  # it gave leadership up and has no other broker id yet
            peer.names = None
            return
        if names is None or not await peer.change(me, names):
            await peer.register(me if names is None else self._describe(None), self._shares())


class _Peer:
    """One nameserver. `trouble`: why the last registration failed; `left_out`: what it does not serve, in words; `has_it`: it
    took the last one."""

    def __init__(self, address: str, dialer: Dialer) -> None:
        self.address = address
        self.trouble = self.left_out = self._unshared = ""  # the last: why it did not take users and policies
        self.has_it = False
        self._since, self._told = 0.0, False  # when that trouble began (monotonic s), and whether it is in the log
        self.names: set[str] | None = None  # topics that changed since it was told; None: it has to be told of all
        self._dialer = dialer
        self._channel: Channel | None = None
        self._pause_s = 0.0
        self._changed = asyncio.Event()
        self._all_due = 0.0  # since boot, in s: when it is told of all topics again, also if the machine slept
        self._version = DataVersion()  # of the topics, as it was told last
        self._now, self._next = asyncio.Event(), asyncio.Event()  # set when this telling, and the one after it, has ended
        self._now.set()

    def tell_all(self) -> None:
        self.names = None
        self._changed.set()

    def tell_topic(self, topic: str) -> None:
        if self.names is not None:
            self.names.add(topic)
            if len(self.names) > MOST_CHANGES:
                self.names = None
        self._changed.set()

    def begin(self) -> set[str] | None:
        """What to tell it now: of these topics; None: of all."""
        names = None if self._channel is None or self._channel.closed.is_set() else self.names
        if names is None:
            self._all_due = self._dialer.clock.since_boot() + PERIOD_S
        self.names = set()
        self._changed.clear()
        self._now, self._next = self._next, asyncio.Event()
        return names

    def end(self) -> None:
        self._now.set()

    async def told(self) -> None:
        ended = self._next if self._changed.is_set() else self._now
        if not ended.is_set():
            await background.first(self._dialer.clock.sleep(TOLD_S), ended.wait())

    async def until_due(self) -> None:
        """Waits until something changed, the connection has ended, or it is time for the next registration."""
        clock, closed = self._dialer.clock, asyncio.Event() if self._channel is None else self._channel.closed
        is_lost = closed.is_set()
        seconds = FIRST_PAUSE_S if is_lost else self._all_due - clock.since_boot()
        await background.pause(clock, self._pause_s or seconds, self._changed, *([] if is_lost else [closed]))
        if not self._changed.is_set() or clock.since_boot() >= self._all_due:
            self.names = None

    async def register(self, request: RegisterBroker, shares: Sequence[ShareAccess]) -> None:
        """All parts of it, behind the users and policies: clients are served as soon as it is known. Raises RmqError."""
        await self._share(await self._open(request), shares)
        channel = await self._open(request)
        lists = list(cut(request.topics))
        for index, topics in enumerate(lists):
            part = request._replace(topics=topics, part=index, parts=len(lists))
            answer = await channel.request(part, TIMEOUT_S)
        self._succeeded(answer, request.data_version, "")

    async def _open(self, request: RegisterBroker) -> Channel:
        """The connection that there is, or a new one. Raises RmqError."""
        if self._channel is None or self._channel.closed.is_set():
            hello = Hello(VERSION, f"{request.broker_name}@{request.broker_addr}")
            self._channel = await self._dialer.open(self.address, hello)
        return self._channel

    async def _share(self, channel: Channel, shares: Sequence[ShareAccess]) -> None:
        """A nameserver that does not take them serves those whom it knew before, and routes to this broker all the same."""
        trouble = ""
        try:
            for share in shares:
                await channel.request(share, TIMEOUT_S)
        except RmqError as error:
            trouble = str(error)
        if trouble and not self._unshared:
            log.warning("nameserver %s does not take this broker's users and policies: %s; trying on", self.address, trouble)
        self._unshared = trouble

    async def change(self, request: RegisterBroker, names: Collection[str]) -> bool:
        """Only these topics. False: it does not know what it was told before, or is of a release that cannot take them so. Raises
        RmqError."""
        assert self._channel is not None
        gone = sorted({*names} - {topic.name for topic in request.topics})
        me = (request.broker_name, request.broker_id, request.broker_addr, request.epoch)
        try:
            answer = await self._channel.request(
                ChangeTopics(*me, request.topics, gone, self._version, request.data_version), TIMEOUT_S
            )
        except Refusal:
            return False
        self._succeeded(answer, request.data_version, self.left_out)
        return True

    def _succeeded(self, answer: Answer, version: DataVersion, left_out_before: str) -> None:
        self._version = version
        if self.trouble:
            log.info("registered with nameserver %s again", self.address)
        took = answer if isinstance(answer, Registered) else Registered()
        left_out = f"{took.left_out} topics: {took.about}" if took.left_out else left_out_before
        if left_out and left_out != self.left_out:
            log.warning("nameserver %s leaves out %s", self.address, left_out)
        self.trouble, self.left_out, self._pause_s, self.has_it = "", left_out, 0.0, True

    def failed(self, error: RmqError) -> None:
        """A nameserver that stays away is worth one log line, not one for every try."""
        if isinstance(error, Unknown) and self._channel is not None:  # a link that swallows requests looks open for ever
            self._channel.abort("no answer in time")
        refused = isinstance(error, Refusal)
        self.has_it, self.names = False, None
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), REFUSED_PAUSE_S if refused else AWAY_PAUSE_S)
        now = self._dialer.clock.monotonic()
        if not same_trouble(str(error), self.trouble):
            self._since, self._told = now, False
        self.trouble = str(error)
        if not self._told and not (refused and now < self._since + SETTLING_S):
            why = "refuses this broker" if refused else "does not take this broker"
            log.error("nameserver %s %s: %s; trying on", self.address, why, error)
            self._told = True

    async def leave(self, request: UnregisterBroker) -> None:
        if self._channel is None or self._channel.closed.is_set():
            return
        try:
            await self._channel.request(request, 1.0)
        except RmqError as error:
            log.info("nameserver %s did not hear this broker leave: %s", self.address, error)
        await self._channel.close()
