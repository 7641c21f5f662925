"""Telling the nameservers what this broker holds: at start, every 30 s, at once on change, at once when a connection comes
back, and goodbye at the end.

Each nameserver has a task and a connection of its own, so that a dead one delays nobody (N3).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from rmq import background
from rmq.broker.feature import Feature
from rmq.broker.membership import Membership
from rmq.config.settings import NodeSettings
from rmq.errors import Refusal, RmqError
from rmq.log.store import Store
from rmq.measures import Family
from rmq.model import PERM_READ, PERM_WRITE
from rmq.net.codec.native import VERSION
from rmq.net.commands import Hello, RegisterBroker, Registered, ShareAccess, UnregisterBroker
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.routing.parts import cut
from rmq.routing.topics import TopicTable

log = logging.getLogger("rmq.register")

PERIOD_S = 30.0
TIMEOUT_S = 10.0  # of one part
FIRST_PAUSE_S, AWAY_PAUSE_S, REFUSED_PAUSE_S = 0.1, 0.5, 2.0  # before another try: the shortest, the longest ones


def description(settings: NodeSettings, address: str, store: Store, topics: TopicTable, membership: Membership) -> RegisterBroker:
    """The registration as things stand now."""
    found = topics.all()
    allowed = settings.permission & ~PERM_WRITE if store.read_only else settings.permission
    if allowed != PERM_READ | PERM_WRITE:  # clients go elsewhere
        found = [topic._replace(perm=topic.perm & allowed) for topic in found]
    return RegisterBroker(
        settings.cluster_name, settings.broker_name, membership.broker_id, address, membership.epoch, found,
        topics.data_version, store.vote.store_id, membership.successors, zone=settings.zone,
    )  # fmt: skip


class Registration(Feature):
    """`describe()` makes the registration as things stand at that moment. `shares()`: what nameservers should know of users and
    policies before."""

    def __init__(
        self,
        nameservers: Sequence[str],
        describe: Callable[[], RegisterBroker],
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
            peer.changed.set()

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
        self.changed()

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
        me = self._describe()
        bye = UnregisterBroker(me.cluster_name, me.broker_name, me.broker_id, me.broker_addr)
        await asyncio.gather(*(peer.leave(bye) for peer in self._peers))

    async def _keep(self, peer: "_Peer") -> None:
        while True:
            await peer.until_due()
            await self._register(peer)

    async def _register(self, peer: "_Peer") -> None:
        peer.changed.clear()
        me = self._describe()
        if me.broker_id < 0:  # it gave leadership up and has no other broker id yet
            return
        try:
            await peer.register(me, self._shares())
        except RmqError as error:
            peer.failed(error)


class _Peer:
    """One nameserver. `trouble`: why the last registration failed; `left_out`: what it does not serve, in words; `has_it`: it
    took the last one."""

    def __init__(self, address: str, dialer: Dialer) -> None:
        self.address = address
        self.changed = asyncio.Event()
        self.trouble = self.left_out = ""
        self.has_it = False
        self._dialer = dialer
        self._channel: Channel | None = None
        self._pause_s = 0.0

    async def until_due(self) -> None:
        """Waits until something changed, the connection has ended, or it is time for the next registration."""
        closed = asyncio.Event() if self._channel is None else self._channel.closed
        seconds = FIRST_PAUSE_S if closed.is_set() else PERIOD_S
        waits = [asyncio.create_task(self._dialer.clock.sleep(self._pause_s or seconds)), asyncio.create_task(_set(self.changed))]
        if not closed.is_set():
            waits.append(asyncio.create_task(_set(closed)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def register(self, request: RegisterBroker, shares: Sequence[ShareAccess]) -> None:
        """All parts of it. Raises RmqError."""
        channel = self._channel
        if channel is None or channel.closed.is_set():
            hello = Hello(VERSION, f"{request.broker_name}@{request.broker_addr}")
            channel = self._channel = await self._dialer.open(self.address, hello)
        for share in shares:
            await channel.request(share, TIMEOUT_S)
        lists = list(cut(request.topics))
        for index, topics in enumerate(lists):
            part = request._replace(topics=topics, part=index, parts=len(lists))
            answer = await channel.request(part, TIMEOUT_S)
        self._succeeded(answer if isinstance(answer, Registered) else Registered())

    def _succeeded(self, answer: Registered) -> None:
        if self.trouble:
            log.info("registered with nameserver %s again", self.address)
        left_out = f"{answer.left_out} topics: {answer.about}" if answer.left_out else ""
        if left_out and left_out != self.left_out:
            log.warning("nameserver %s leaves out %s", self.address, left_out)
        self.trouble, self.left_out, self._pause_s, self.has_it = "", left_out, 0.0, True

    def failed(self, error: RmqError) -> None:
        """A nameserver that stays away is worth one log line, not one for every try."""
        refused = isinstance(error, Refusal)
        self.has_it = False
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), REFUSED_PAUSE_S if refused else AWAY_PAUSE_S)
        if str(error) != self.trouble:
            why = "refuses this broker" if refused else "does not take this broker"
            log.error("nameserver %s %s: %s; trying on", self.address, why, error)
            self.trouble = str(error)

    async def leave(self, request: UnregisterBroker) -> None:
        if self._channel is None or self._channel.closed.is_set():
            return
        try:
            await self._channel.request(request, 1.0)
        except RmqError as error:
            log.info("nameserver %s did not hear this broker leave: %s", self.address, error)
        await self._channel.close()


async def _set(event: asyncio.Event) -> None:
    await event.wait()
