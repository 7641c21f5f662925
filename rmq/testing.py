"""Help for tests of programs that use this package: a clock that tests move, and a real node in the test's process.

Nothing here is imported by the rest of the package.
"""

import asyncio
import contextlib
import functools
import heapq
import itertools
import os
import random
import shutil
import socket
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rmq.broker.node import Broker
from rmq.broker.serving import Serving
from rmq.client import Client, ClientSettings
from rmq.client.admin import calls as admin
from rmq.config.settings import NodeSettings
from rmq.nameserver.node import Nameserver
from rmq.net.transport.tls import Tls

_KEPT_PORTS = 500  # of a process
_kept = itertools.count(random.SystemRandom().randrange(_KEPT_PORTS))  # another place in each run
SEGMENT_BYTES, INDEX_SLOTS, INDEX_ENTRIES = 16 * 1024 * 1024, 10_000, 40_000  # small, so that a test's store costs little
SMALL_INDEX: dict[str, Any] = {"index_slots": INDEX_SLOTS, "index_entries": INDEX_ENTRIES}


class TestClock:
    """A `Clock` that runs like the machine's and can be moved forward at once.

    With `running=False` it stands still and moves only by `advance`. `wall_ms` (Unix ms) is where its wall clock
    begins, by default the present.
    """

    __test__ = False  # pytest: no test case

    def __init__(self, *, running: bool = True, wall_ms: int | None = None) -> None:
        self._running = running
        self._origin = time.monotonic()
        self._ahead_s = self._slept_s = 0.0
        self._wall_ms = time.time_ns() // 1_000_000 if wall_ms is None else wall_ms
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Seconds since this clock was made, the jumps included."""
        ran_s = time.monotonic() - self._origin if self._running else 0.0
        return ran_s + self._ahead_s

    def since_boot(self) -> float:
        return self.monotonic() + self._slept_s

    def wall_ms(self) -> int:
        return self._wall_ms + int(self.monotonic() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Until the clock, by itself or by `advance`, has moved that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        while self._sleepers and self._sleepers[0][2].done():  # who was woken by time, or went
            heapq.heappop(self._sleepers)
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self.monotonic() + seconds, next(self._order), woken))
        alarm = loop.call_later(seconds, _wake, woken) if self._running else None
        try:
            await woken
        finally:
            if alarm is not None:
                alarm.cancel()
            woken.cancel()

    async def advance(self, seconds: float) -> None:
        """Move `seconds` ahead, stopping at each due time on the way so that every sleeper sees its own hour; those of one
        millisecond wake together.

        Returns after the woken tasks had some turns of the loop; what they start over sockets takes its own time, so
        wait for its effect.
        """
        target = self.monotonic() + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            together = min(target, self._sleepers[0][0] + 0.001)
            while self._sleepers and self._sleepers[0][0] <= together:
                due, _, woken = heapq.heappop(self._sleepers)
                if not woken.done():
                    self._move_to(due)
                    _wake(woken)
            await _turns()
        self._move_to(target)
        await _turns()

    async def advance_until(self, condition: Callable[[], object], step_s: float = 0.25, timeout_s: float = 30.0) -> None:
        """Move on step by step until `condition()` holds; TimeoutError after `timeout_s` real seconds.

        Many steps rest for a millisecond each: what comes so late may wait for a disk, a thread or a process.
        """
        async with asyncio.timeout(timeout_s):
            for step in itertools.count():
                if condition():
                    return
                await self.advance(step_s)
                if step > 20 and not condition():  # before it rests: what holds only for a moment counts
                    await asyncio.sleep(0.001)

    @property
    def sleepers(self) -> int:
        """How many wait for it to move."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    def skip(self, seconds: float) -> None:
        """Moves ahead and wakes nobody, as time does for a loop that is stuck."""
        self._move_to(self.monotonic() + seconds)

    def jump_wall(self, milliseconds: int) -> None:
        """Set the wall clock forward or back; the monotonic one does not notice (T1)."""
        self._wall_ms += milliseconds

    def suspend(self, seconds: float) -> None:
        """The machine sleeps so long: the wall clock moves on, and no timer does."""
        self._slept_s += seconds
        self.jump_wall(int(seconds * 1000))

    def _move_to(self, moment: float) -> None:
        self._ahead_s += max(0.0, moment - self.monotonic())


class LocalBroker:
    """A real nameserver and broker in this process, on free ports of loopback: `async with LocalBroker() as broker`.

    Everything goes by `clock` (a running `TestClock` unless another is given). The store lies in a directory that is
    removed at the end, or in `store_dir`, which stays. Further keywords are `NodeSettings`.
    """

    def __init__(self, *, clock: TestClock | None = None, store_dir: Path | None = None, **settings: Any) -> None:
        self.clock = clock or TestClock()
        self._own_dir = Path(tempfile.mkdtemp(prefix="rmq-test-")) if store_dir is None else None
        self.store_dir = store_dir or self._own_dir or Path()
        self._settings = {
            "segment_bytes": SEGMENT_BYTES,
            **SMALL_INDEX,
            "stop_grace_ms": 1000,
            "vip_port": False,
            "slow_request_ms": 0,  # a clock that jumps makes everything slow
            **settings,
        }
        self._listen_port = self._namesrv_port = 0
        self._nameserver: Nameserver | None = None
        self._broker: Broker | None = None
        self.nameserver = ""
        self.address = ""

    async def __aenter__(self) -> "LocalBroker":
        try:
            await self.start_nameserver()
            await self.start_broker()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop both, and remove the store unless its directory was given: all of it, whatever fails on the way."""
        async with contextlib.AsyncExitStack() as ending:
            if self._own_dir is not None:
                ending.push_async_callback(asyncio.to_thread, functools.partial(shutil.rmtree, self._own_dir, ignore_errors=True))
            ending.push_async_callback(self.stop_nameserver)
            ending.push_async_callback(self.stop_broker)

    async def start_nameserver(self) -> None:
        """After a stop: at the same address, knowing nothing."""
        self._nameserver = Nameserver(self._node("nameserver", namesrv_port=self._namesrv_port or _port_to_keep()), self.clock)
        await self._nameserver.start()
        self.nameserver = self._nameserver.address
        self._namesrv_port = _port(self.nameserver)

    async def stop_nameserver(self) -> None:
        if self._nameserver is not None:
            nameserver, self._nameserver = self._nameserver, None
            await nameserver.stop()

    async def start_broker(self) -> None:
        """After a stop: at the same address, with the same store. Its first user is there when it returns."""
        port = self._listen_port or _port_to_keep()
        node = self._node("broker", listen_port=port, namesrv_addresses=(self.nameserver,))
        self._broker = Broker(node, self.clock)
        await self._broker.start()
        self.address = self._broker.address
        self._listen_port = _port(self.address)
        first = [user.name for user in self._settings.get("init_user", ())]
        await until(lambda: all(self.serving.tables.users.get(name) for name in first))

    async def stop_broker(self) -> None:
        """In order, as by SIGTERM."""
        if self._broker is not None:
            broker, self._broker = self._broker, None
            await broker.stop()

    def _node(self, role: str, **settings: Any) -> NodeSettings:
        return NodeSettings(role=role, store_dir=self.store_dir, **{**self._settings, **settings})

    @property
    def serving(self) -> Serving:
        """The parts of the broker that runs, for inspection."""
        assert self._broker is not None, "the broker does not run"
        return self._broker.serving

    @property
    def naming(self) -> Nameserver:
        """The nameserver that runs, for inspection."""
        assert self._nameserver is not None, "the nameserver does not run"
        return self._nameserver

    @property
    def parts(self) -> list[Nameserver | Broker]:
        """The nodes that run, as an exporter of metrics takes them."""
        return [part for part in (self._nameserver, self._broker) if part is not None]

    def client(
        self,
        *,
        instance: str = "",
        settings: ClientSettings | None = None,
        tls: Tls | None = None,
        user: str = "",
        password: str = "",
    ) -> Client:
        """A client of this broker that goes by the same clock."""
        return Client(
            self.nameserver, instance=instance, settings=settings, clock=self.clock, tls=tls, user=user, password=password
        )

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        """Make the topic, or change its number of queues."""
        async with self.client() as client:
            await admin.update_topic(client, topic, broker=self.address, read_queues=queues, write_queues=queues)


def entries(thing: object) -> int:
    """How many entries the containers of an object hold, those of its own parts included: whether its memory stays bounded."""
    if isinstance(thing, Mapping):
        return sum(1 + entries(value) for value in list(thing.values()))
    if isinstance(thing, list | set | frozenset | deque):
        return sum(1 + entries(value) for value in list(thing))
    if isinstance(thing, tuple):
        return sum(entries(value) for value in thing)
    if not type(thing).__module__.startswith("rmq.") or isinstance(thing, TestClock):
        return 0
    return sum(entries(getattr(thing, name, None)) for name in attributes(thing))


def attributes(thing: object) -> list[str]:
    """The names of all that an object may hold: in slots, or in a dictionary of its own."""
    slots = (getattr(kind, "__slots__", ()) for kind in type(thing).__mro__)
    named = {name for some in slots for name in ((some,) if isinstance(some, str) else some)}
    return sorted(named | set(getattr(thing, "__dict__", ())))


def _port_to_keep() -> int:
    """A free port that systems do not give to connections: after a stop nobody else has it. Processes that run beside each other
    have ranges of their own: two that look at one port at once would both find it free."""
    first = 20_000 + os.getpid() % 24 * _KEPT_PORTS
    for _ in range(_KEPT_PORTS):
        port = first + next(_kept) % _KEPT_PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    return 0


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Let the loop run until `condition()` holds; TimeoutError after `timeout_s` real seconds. For tests: no sleep.

    It is asked at each of the first turns, then each millisecond: what takes longer waits for a disk, a thread or a process, to
    which a loop that turns for nothing leaves no core.
    """
    async with asyncio.timeout(timeout_s):
        for turn in itertools.count():
            if condition():
                return
            await asyncio.sleep(0 if turn < 20 else 0.001)


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)


async def _turns(most: int = 10) -> None:
    """Some turns of the loop; fewer where asyncio's own says that three of them, one behind the other, had nothing else to do."""
    ready, quiet = getattr(asyncio.get_running_loop(), "_ready", (None,)), 0
    for _ in range(most):
        await asyncio.sleep(0)
        quiet = 0 if ready else quiet + 1
        if quiet == 3:
            return


try:
    import pytest_asyncio
except ModuleNotFoundError:  # only the fixture needs it
    pass
else:

    @pytest_asyncio.fixture
    async def rmq_broker() -> AsyncIterator[LocalBroker]:
        """pytest: a `LocalBroker` for one test. Import it in your conftest.py: `from rmq.testing import rmq_broker`."""
        async with LocalBroker() as broker:
            yield broker
