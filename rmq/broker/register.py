"""Telling the nameservers what this broker holds: at start, every 30 s, at once on change, and goodbye at the end.

Each nameserver has a task and a connection of its own, so that a dead one delays nobody (N3).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from rmq.clock import Clock
from rmq.errors import RmqError
from rmq.net.channel import Channel
from rmq.net.commands import Hello, RegisterBroker, UnregisterBroker
from rmq.net.native import VERSION

log = logging.getLogger("rmq.register")

PERIOD_S = 30.0
TIMEOUT_S = 10.0


class Registration:
    """`describe()` makes the registration as things stand at that moment."""

    def __init__(self, nameservers: Sequence[str], describe: Callable[[], RegisterBroker], clock: Clock) -> None:
        self._describe = describe
        self._clock = clock
        self._peers = [_Peer(address) for address in nameservers]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register once with everybody who answers, then go on in the background."""
        await asyncio.gather(*(self._register(peer) for peer in self._peers))
        for peer in self._peers:
            self._tasks.append(asyncio.create_task(self._on_change(peer), name=f"register-{peer.address}"))
            self._tasks.append(asyncio.create_task(self._periodically(peer), name=f"heartbeat-{peer.address}"))

    def changed(self) -> None:
        for peer in self._peers:
            peer.changed.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        me = self._describe()
        bye = UnregisterBroker(me.cluster_name, me.broker_name, me.broker_id, me.broker_addr)
        await asyncio.gather(*(peer.leave(bye) for peer in self._peers))

    async def _periodically(self, peer: "_Peer") -> None:
        while True:
            await self._clock.sleep(PERIOD_S)
            peer.changed.set()

    async def _on_change(self, peer: "_Peer") -> None:
        while True:
            await peer.changed.wait()
            peer.changed.clear()
            await self._register(peer)

    async def _register(self, peer: "_Peer") -> None:
        me = self._describe()
        if me.broker_id < 0:  # it gave an office up and has no other number yet
            return
        try:
            await peer.register(me)
        except RmqError as error:
            peer.log_once(str(error))


class _Peer:
    """One nameserver."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.changed = asyncio.Event()
        self._channel: Channel | None = None
        self._trouble = ""

    async def register(self, request: RegisterBroker) -> None:
        channel = self._channel
        if channel is None or channel.closed.is_set():
            hello = Hello(VERSION, f"{request.broker_name}@{request.broker_addr}")
            channel = self._channel = await Channel.open(self.address, hello)
        await channel.request(request, TIMEOUT_S)
        if self._trouble:
            log.info("registered with nameserver %s again", self.address)
            self._trouble = ""

    def log_once(self, trouble: str) -> None:
        """A nameserver that stays away is worth one line, not one every 30 s."""
        if trouble != self._trouble:
            log.warning("nameserver %s does not take this broker: %s; trying on every %d s", self.address, trouble, PERIOD_S)
            self._trouble = trouble

    async def leave(self, request: UnregisterBroker) -> None:
        if self._channel is None or self._channel.closed.is_set():
            return
        try:
            await self._channel.request(request, 1.0)
        except RmqError as error:
            log.info("nameserver %s did not hear this broker leave: %s", self.address, error)
        await self._channel.close()
