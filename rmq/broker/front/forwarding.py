"""A member that does not lead forwards the requests of clients that take it for the leader (docs/decisions/members-forward.md).

Clients of RocketMQ ask for routes every 30 s and follow no hints: until then they talk to the node that led before. Each has
a line of its own to the leader, a connection that begins with the client's last heartbeat: to the leader it is that client, so
what it asks of its clients (rebalance, checks of transactions) gets through as well. Requests travel as they came.

Only what was certainly not done is forwarded (`NotLeading`), and it waits here while nobody leads. What left and got no answer
has an unknown outcome and is answered so; only requests that change nothing are asked again. What comes on a line is never
forwarded again: the leader's node says NOT_LEADING and it waits here for the next leader.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rmq import background
from rmq.broker.front.forwardline import HOLD_S, MAX_BYTES_EACH, HeldCall, Kept, Line
from rmq.codes import RequestCode
from rmq.errors import NotLeading
from rmq.net.codec.limits import MIB
from rmq.net.commands.peers import ForwardedClient
from rmq.net.remoting.headers import ONEWAY_FLAG, read
from rmq.net.transport.connection import Call, Connection
from rmq.net.transport.dialer import Dialer

log = logging.getLogger("rmq.forwarding")

HERE: Final = "here"  # this node serves it itself
AGAIN_S, LOOK_S = 0.02, 0.25  # between two looks: while something waits, and while there are lines
AGAIN_MOST_S = 5.0  # the longest pause before a leader that takes a client's line in vain is dialled again for it
RETIRED_S = 5.0  # so long a node that no longer leads may take for its pending answers
IDLE_S = 60.0  # a client that has asked nothing for so long has found the leader
NOBODY_S = 3.0  # without a leader for so long there is nobody to forward to
BEAT_S, LATE_S = 10.0, 3.0  # heartbeats that follow each other faster are not the regular ones; a regular one may be so late
MAX_REQUESTS, MAX_REQUESTS_EACH = 50_000, 10_000
MAX_BYTES = 256 * MIB
MAX_LINES = 1_500  # the leader takes 2 000 connections from one address
MAX_KEPT_BYTES = 64 * MIB  # of heartbeats
MAX_KEPT_FRAMES = 16


class Beats(NamedTuple):
    """A client's heartbeats: when the last one came, and the longest time between two."""

    last: float
    longest_s: float


class Shut(NamedTuple):
    """A leader that lately did not take a client's line. `until`: nobody dials it for that client before."""

    address: str
    until: float
    pause_s: float


class Forwarding:
    """`where()`: "host:port" of the leader, HERE, or "" while nobody leads. `group`, `node`: who forwards.

    `await stop()` after the server was closed.
    """

    def __init__(self, group: str, node: str, where: Callable[[], str], dialer: Dialer) -> None:
        self.where = where
        self.dialer = dialer
        self.limits, self.clock = dialer.limits, dialer.clock
        self._me = (group, node)
        self._held: deque[HeldCall] = deque()
        self._requests: dict[int, int] = {}  # by connection: how many are held or under way
        self._bytes: dict[int, int] = {}
        self._all_requests = self._all_bytes = 0
        self._lines: dict[int, Line] = {}
        self._retired: dict[Line, float] = {}
        self._kept: dict[int, list[Kept]] = {}
        self._kept_bytes = 0
        self._leaned: dict[int, tuple[Connection, float]] = {}  # clients that took this node for the leader, and when last
        self._beats: dict[int, Beats] = {}
        self._moving: dict[int, Connection] = {}  # clients that the next leader should know at once
        self._shut: dict[int, Shut] = {}
        self._wanted = asyncio.Event()
        self._running = background.start(self._run(), "forwarding")

    @property
    def waiting(self) -> tuple[int, int]:
        """Requests that are held or under way, and their bytes."""
        return self._all_requests, self._all_bytes

    @property
    def lines(self) -> int:
        """Connections to the leader."""
        return len(self._lines)

    # --- requests from connections ---------------------------------------------------------------------------------------

    def forward(self, call: Call, refusal: NotLeading) -> bool:
        """Takes the call if it can be forwarded, now or soon. The bounds are per client and in all."""
        frame, client = call.frame, call.connection.id
        if not frame or not self._has_room(client, len(frame)):
            return False
        self.lean(call.connection)
        self._requests[client] = self._requests.get(client, 0) + 1
        self._bytes[client] = self._bytes.get(client, 0) + len(frame)
        self._all_requests += 1
        self._all_bytes += len(frame)
        where, now = self.where(), self.clock.monotonic()
        held = HeldCall(call, now + HOLD_S, refusal)
        if self._held or where in ("", HERE) or self._is_shut(call.connection, where, now):
            self.hold(held)
        else:
            self._send(held, where)
        return True

    def _has_room(self, client: int, size: int) -> bool:
        return (
            self._requests.get(client, 0) < MAX_REQUESTS_EACH
            and self._all_requests < MAX_REQUESTS
            and self._bytes.get(client, 0) + size <= MAX_BYTES_EACH
            and self._all_bytes + size <= MAX_BYTES
            and (client in self._lines or len(self._lines) < MAX_LINES)
        )

    def heard(self, call: Call, at_once: bool = False) -> None:
        """A heartbeat, or a goodbye to a group: kept for later leaders, and sent to this one on the client's line. A client
        without a line gets one if the leader should know it `at_once`."""
        connection, frame = call.connection, call.frame
        if not frame or connection.follows_hints:
            return
        header, _ = read(frame, self.limits.max_header_bytes)
        kept = Kept(frame, header.opaque, bool(header.flag & ONEWAY_FLAG))
        before = self._kept.get(connection.id, [])
        after = [*before, kept]
        if header.code == RequestCode.HEART_BEAT:
            after, now = [kept], self.clock.monotonic()
            last, longest_s = self._beats.get(connection.id, Beats(now, 0.0))
            self._beats[connection.id] = Beats(now, max(longest_s, now - last))
        self._kept_bytes += sum(len(one.frame) for one in after) - sum(len(one.frame) for one in before)
        self._kept[connection.id] = after
        if self._kept_bytes > MAX_KEPT_BYTES or len(after) > MAX_KEPT_FRAMES:
            self._forget_heard(connection.id)
        line = self._lines.get(connection.id)
        if line is not None:
            line.copy(kept)
        elif at_once:
            self._moving[connection.id] = connection
            self._wanted.set()

    def kept(self, client: int) -> list[Kept]:
        return self._kept.get(client, [])

    def _forget_heard(self, client: int) -> None:
        self._kept_bytes -= sum(len(one.frame) for one in self._kept.pop(client, ()))

    def lean(self, connection: Connection) -> None:
        """The client took this node for the leader just now, or reads here."""
        self._leaned[connection.id] = (connection, self.clock.monotonic())

    def closed(self, connection: Connection) -> None:
        self._forget_heard(connection.id)
        self._leaned.pop(connection.id, None)
        self._beats.pop(connection.id, None)
        self._moving.pop(connection.id, None)
        self._shut.pop(connection.id, None)
        line = self._lines.pop(connection.id, None)
        if line is not None:
            line.close()
        for other in [one for one in self._retired if one.connection is connection]:
            other.close()

    # --- changes ------------------------------------------------------------------------------------------------------

    def left_leadership(self, connections: Iterable[Connection]) -> None:
        """Clients that talked to this node as the leader go on doing so for a while: the next leader should know them."""
        for connection in connections:
            if not connection.closed and not connection.follows_hints:
                self.lean(connection)
                if connection.id in self._kept:
                    self._moving[connection.id] = connection
        self._wanted.set()

    def replay(self, connections: Iterable[Connection]) -> None:
        """This node serves now: heartbeats that came before go into its own tables."""
        for connection in connections:
            for kept in self.kept(connection.id):
                connection.take(kept.frame)

    async def until_left(self, within_s: float) -> None:
        """Returns when nobody takes this node for the leader any more, when that time is over, or nobody leads."""
        monotonic = self.clock.monotonic
        begin = led = monotonic()
        waits = sum(begin - leaned < within_s for _, leaned in self._leaned.values())
        if waits:
            log.info("forwarding for %d clients until they have found the leader, at most %g s", waits, within_s)
        while monotonic() - begin < within_s and self._leaned_on(begin, within_s):
            led = monotonic() if self.where() not in ("", HERE) else led
            if monotonic() - led > NOBODY_S:
                return
            await self.clock.sleep(0.1)

    def _leaned_on(self, begin: float, within_s: float) -> bool:
        """A client that took this node for the leader less than `within_s` before `begin`, or since, may still do so.

        RocketMQ's clients keep a connection that they do not use for two minutes. But they send a heartbeat each 30 s, a second
        after they asked for routes, to the nodes that those name: where the next regular one stays away nobody is left. Whose
        next one is due is known of those that were seen for longer than one interval.
        """
        now = self.clock.monotonic()
        for client, (_, leaned) in self._leaned.items():
            beats = self._beats.get(client, Beats(begin, 0.0))
            due = beats.last + beats.longest_s + LATE_S
            gone = beats.longest_s >= BEAT_S and begin <= due < now and now - leaned > LATE_S
            if begin - leaned < within_s and not gone:
                return True
        return False

    async def stop(self) -> None:
        self._running.cancel()
        for line in (*self._lines.values(), *self._retired):
            line.close()
        await asyncio.gather(self._running, return_exceptions=True)

    # --- answers from lines ----------------------------------------------------------------------------------------

    def hold(self, held: HeldCall) -> None:
        self._held.append(held)
        self._wanted.set()

    def done(self, held: HeldCall) -> None:
        """The call is answered: it costs nothing any more."""
        client, size = held.call.connection.id, len(held.call.frame)
        self._requests[client] -= 1
        self._bytes[client] -= size
        self._all_requests -= 1
        self._all_bytes -= size
        if not self._requests[client]:
            del self._requests[client], self._bytes[client]

    def line_lost(self, line: Line) -> None:
        self._retired.pop(line, None)
        client = line.connection
        if self._lines.get(client.id) is line:
            del self._lines[client.id]
            if not client.closed and not line.dismissed:
                self._note(line)
                if client.id in self._kept:
                    self._moving[client.id] = client
                    self._wanted.set()

    def _note(self, line: Line) -> None:
        """A leader that takes no such line, as one that has too many connections, is left alone for longer each time."""
        client = line.connection.id
        shut = self._shut.pop(client, None)
        if not line.opened:
            pause_s = min(shut.pause_s * 2, AGAIN_MOST_S) if shut is not None and shut.address == line.address else AGAIN_S
            self._shut[client] = Shut(line.address, self.clock.monotonic() + pause_s, pause_s)

    def _is_shut(self, connection: Connection, where: str, now: float) -> bool:
        shut = self._shut.get(connection.id)
        return shut is not None and shut.address == where and now < shut.until

    # --- the task -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            await self.clock.sleep(AGAIN_S if self._held or self._moving else LOOK_S)
            where, now = self.where(), self.clock.monotonic()
            self._work(where, now)
            self._look_at_lines(where, now)
            if not (self._held or self._moving or self._lines or self._retired):
                self._wanted.clear()

    def _work(self, where: str, now: float) -> None:
        held, self._held = self._held, deque()
        for each in held:
            connection, over = each.call.connection, now >= each.until
            if connection.closed or (over and (where or not each.refusal.here_too)):
                self.done(each)
                each.call.give_up(each.refusal)
            elif over or where == HERE:
                self.done(each)
                connection.again(each.call)
            elif where and not self._is_shut(connection, where, now):
                self._send(each, where)
            else:
                self._held.append(each)
        if where == HERE:
            self._moving.clear()
        elif where:
            moving, self._moving = self._moving, {}
            for connection in moving.values():
                if self._is_shut(connection, where, now):
                    self._moving[connection.id] = connection
                elif not connection.closed and (connection.id in self._lines or len(self._lines) < MAX_LINES):
                    self._line(connection, where)

    def _look_at_lines(self, where: str, now: float) -> None:
        for line in list(self._lines.values()):
            elsewhere = where not in ("", line.address)
            if elsewhere or (now - line.asked > IDLE_S and not line.pending):
                del self._lines[line.connection.id]
                self._retire(line)
                if elsewhere and line.connection.id in self._kept:
                    self._moving[line.connection.id] = line.connection
        for line, until in list(self._retired.items()):
            if not line.pending or now >= until:
                line.close()

    def _retire(self, line: Line) -> None:
        """The line may still bring answers."""
        line.dismissed = True
        self._retired[line] = self.clock.monotonic() + RETIRED_S

    def _send(self, held: HeldCall, where: str) -> None:
        self._line(held.call.connection, where).send(held)

    def _line(self, connection: Connection, where: str) -> Line:
        line = self._lines.get(connection.id)
        if line is not None and line.address == where:
            return line
        if line is not None:
            self._retire(line)
        group, node = self._me
        greeting = ForwardedClient(group, node, *connection.client)
        line = self._lines[connection.id] = Line(self, connection, where, greeting)
        self._wanted.set()
        return line
