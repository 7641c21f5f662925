"""The connections to the other nodes of the group: one each, opened when needed and again when lost.

An answer comes back with its question; a question without an answer is forgotten, because the state machine asks again.
Only a node whose process has certainly ended (its connection broke and a new one is refused) is reported as unreachable.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rmq import background
from rmq.broker.replication.peerwire import read_answer, to_command
from rmq.errors import Refusal, RmqError, Unknown, Unreachable
from rmq.measures import Histogram
from rmq.net.codec.limits import MIB, Limits
from rmq.net.codec.native import VERSION
from rmq.net.commands import Answer, Hello, Request, peers as c
from rmq.net.transport.channel import Channel
from rmq.net.transport.dialer import Dialer
from rmq.raft import events as ev, messages as m

log = logging.getLogger("rmq.peers")

ANSWER_S, OPEN_S, AGAIN_S, SOON_S = 2.0, 1.0, 0.25, 0.01
ARRIVES_S = 0.25  # bytes that came so lately belong to an answer that is on its way
TRIES = 15  # of a connection that broke
LIMITS = Limits(max_frame_bytes=32 * MIB)  # a fetch may bring 8 MiB, or one record of the largest size


class Peers:
    """`me`: how this node introduces itself. `address_of(node)`: "host:port" or "" if unknown. `handle` takes the events.
    `fetches`: how many seconds answered fetches took. `copied(end, when, request)`: bytes that came then were handled."""

    def __init__(
        self,
        me: c.IntroducePeer,
        address_of: Callable[[str], str],
        handle: Callable[[ev.Event], None],
        dialer: Dialer,
        copied: Callable[[int, float, str], None] = lambda end, when, request: None,
    ) -> None:
        self._me = me
        self._address_of = address_of
        self._handle = handle
        self.clock = dialer.clock
        self._dialer = replace(dialer, limits=LIMITS)
        self.fetches = Histogram()
        self._copied = copied
        self._peers: dict[str, _Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def group(self) -> str:
        return self._me.group

    def send(self, node: str, request: m.Request) -> None:
        """Sends a question in the background; on an open connection it leaves in this turn of the loop."""
        peer, command = self._peer(node), to_command(self._me.group, request)
        channel = peer.ready
        if channel is None or isinstance(command, c.AckLog):
            self._keep(asyncio.create_task(self._ask(peer, node, request, command), name=f"ask {node}"))
            return
        began = self.clock.monotonic()
        try:
            answer = channel.ask(command, began + ANSWER_S)
        except Unreachable as error:
            peer.tell(f"node {node}: {error}")
            return
        answer.add_done_callback(partial(self._came, peer, channel, node, request, began))

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def request(self, node: str, command: Request, timeout_s: float = ANSWER_S) -> Answer:
        """Raises Unreachable, Unknown, Refusal."""
        return await self._peer(node).request(command, timeout_s)

    def reach_any(self) -> bool:
        """Whether a connection to any node is open, or being opened."""
        return any(peer.reached for peer in self._peers.values())

    def arriving(self) -> list[str]:
        """The nodes of which a part of an answer came just now."""
        return [node for node, peer in self._peers.items() if peer.arriving]

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(peer.close() for peer in self._peers.values()))

    def _peer(self, node: str) -> "_Peer":
        address = self._address_of(node)
        peer = self._peers.get(node)
        if peer is None or peer.address != address:
            if peer is not None:  # what happens where it was says nothing of it any more
                self._keep(asyncio.create_task(peer.leave(), name=f"leave {peer.address}"))
            peer = self._peers[node] = _Peer(address, self._me, self._dialer, lambda: self._handle(ev.Unreachable(node)))
        return peer

    def _came(
        self, peer: "_Peer", channel: Channel, node: str, request: m.Request, began: float, answer: "asyncio.Future[Answer]"
    ) -> None:
        if answer.cancelled():
            return
        error = answer.exception()  # looked at also when nobody wants it: asyncio would log it
        if self._closed:
            return
        if error is None:
            self._heard(peer, node, request, began, answer.result())
            return
        if isinstance(error, Unknown):
            channel.abort("no answer in time")
        _tell(peer, node, error)

    async def _ask(self, peer: "_Peer", node: str, request: m.Request, command: Request) -> None:
        began = self.clock.monotonic()
        try:
            if isinstance(command, c.AckLog):
                await peer.post(command)
                return
            answer = await peer.request(command, ANSWER_S)
        except RmqError as error:
            _tell(peer, node, error)
        else:
            self._heard(peer, node, request, began, answer)

    def _heard(self, peer: "_Peer", node: str, request: m.Request, began: float, answer: Answer) -> None:
        peer.tell("")
        came = self.clock.monotonic()
        if isinstance(request, m.Fetch):
            self.fetches.observe(came - began)
        self._handle(ev.PeerAnswer(node, request, read_answer(request, answer)))
        if isinstance(answer, c.FetchLogAnswer) and answer.data:
            self._copied(answer.from_offset + len(answer.data), came, answer.request)


def _tell(peer: "_Peer", node: str, error: BaseException) -> None:
    peer.tell(f"node {node} refuses: {error.remark}" if isinstance(error, Refusal) else f"node {node}: {error}")


class _Peer:
    """One node. `gone()` is called when its connection was lost and a new one is refused."""

    def __init__(self, address: str, me: c.IntroducePeer, dialer: Dialer, gone: Callable[[], None]) -> None:
        self.address = address
        self._me = me
        self._dialer = dialer
        self._clock = dialer.clock
        self._gone = gone
        self._channel: Channel | None = None
        self._connecting: asyncio.Task[Channel] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._refused = False
        self._trouble = ""

    @property
    def reached(self) -> bool:
        return self._connecting is not None or (self._channel is not None and not self._channel.closed.is_set())

    @property
    def ready(self) -> Channel | None:
        """The connection, if it is open and the other side keeps up."""
        channel = self._channel
        return channel if channel is not None and channel.writable and not channel.closed.is_set() else None

    @property
    def arriving(self) -> bool:
        channel = self._channel
        return channel is not None and channel.is_receiving(ARRIVES_S)

    async def request(self, command: Request, timeout_s: float) -> Answer:
        channel = await self._open()
        try:
            return await channel.request(command, timeout_s)
        except Unknown:  # a new connection gets through at once when the network is well again, this one after a long wait
            channel.abort("no answer in time")
            raise

    async def post(self, command: Request) -> None:
        (await self._open()).post(command)

    async def _open(self) -> Channel:
        if self._channel is not None and not self._channel.closed.is_set():
            return self._channel
        if self._connecting is None:
            if not self.address:
                raise Unreachable("its address is not known")
            if self._clock.monotonic() < self._not_before:
                raise Unreachable(f"{self.address} could not be reached a moment ago")
            self._connecting = asyncio.create_task(self._connect(), name=f"open {self.address}")
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Channel:
        try:
            hello = Hello(VERSION, f"{self._me.group}/{self._me.node}")
            channel = await self._dialer.open(self.address, hello, timeout_s=OPEN_S)
            await _introduce(channel, self._me)
        except RmqError as error:
            self._refused = isinstance(error.__context__, ConnectionRefusedError)  # else it may be cut off from here only
            self._not_before = self._clock.monotonic() + (AGAIN_S if self._refused else SOON_S)
            raise
        finally:
            self._connecting = None
        channel.patience_s = ANSWER_S
        self._channel = channel
        self._watch = background.start(self._until_lost(channel), f"watch {self.address}")
        return channel

    async def _until_lost(self, channel: Channel) -> None:
        """A lost connection is opened again at once: if that is refused, the process has ended. A process that is being
        killed may close its connections before it stops listening: so it is tried a few times."""
        await channel.closed.wait()
        for _ in range(TRIES):
            try:
                await self._open()
            except (Unreachable, Unknown):
                if self._refused:
                    self._gone()
                    return
            except RmqError:
                return  # the node is there, but busy or not one of ours
            else:
                return
            await self._clock.sleep(SOON_S)

    def tell(self, trouble: str) -> None:
        """A node that stays away is worth one log line."""
        if trouble and not self._trouble:
            log.warning("%s", trouble)
        elif self._trouble and not trouble:
            log.info("%s answers again", self.address)
        self._trouble = trouble

    async def leave(self) -> None:
        """Closes it. Who waits for the connection is not cancelled by that, but hears that it was lost."""
        try:
            if self._connecting is not None:
                await asyncio.wait((self._connecting,))
        finally:
            await self.close()

    async def close(self) -> None:
        for task in (self._watch, self._connecting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()


async def _introduce(channel: Channel, me: c.IntroducePeer) -> None:
    """Raises Refusal, Unknown, Unreachable; then the channel is closed."""
    try:
        await channel.request(me, OPEN_S)
    except BaseException:
        channel.abort("it does not know this node")
        raise
