"""Repairs damage in this node's log with bytes from the other nodes of its group (`rmq.log.repair.peerrepair`).

Any node may give bytes that it has undamaged: the epoch history and their checksums show that they are the right ones.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from rmq.broker.replication.filework import finished
from rmq.broker.replication.peers import Peers
from rmq.codes import ResponseCode
from rmq.errors import BadBytes, Refusal, RmqError, StoreError
from rmq.log.files.damage import DamagedRange
from rmq.log.files.disk import Disk
from rmq.log.repair.peerrepair import PeerRepair, Tombstone, epochs_over, read_part
from rmq.log.store import Store
from rmq.net.commands.peers import LogPart, ReadLog
from rmq.net.transport.server import Connection

T = TypeVar("T")
log = logging.getLogger("rmq.peerrepair")


class PeerRepairer:
    """`nodes()`: whom to ask, in this order. `before_tombstones()` is called in a thread before a tombstone is written; None: no
    tombstones are taken. `waits_for`: why something is still damaged."""

    def __init__(
        self,
        store: Store,
        disk: Disk,
        root: str,
        peers: Peers,
        nodes: Callable[[], Iterable[str]],
        files: asyncio.Lock,
        before_tombstones: Callable[[], None] | None = None,
    ) -> None:
        self.waits_for = ""
        self._before_tombstones = before_tombstones
        self._log = store.log
        self._disk = disk
        self._root = root
        self._peers = peers
        self._nodes = nodes
        self._files = files

    @property
    def trouble(self) -> str:
        """What is damaged, and why it is not repaired yet; "" if nothing is damaged."""
        damages = self._log.damages
        return f"{damages}; it waits for a node that has these bytes: {self.waits_for or 'asking'}" if damages else ""

    async def repair(self) -> bool:
        """Tries each damaged range once. True if nothing is damaged any more."""
        waits = [reason for found in self._log.damages.ranges if (reason := await self._repair_range(found))]
        waits_for = "; ".join(waits)
        if waits_for and waits_for != self.waits_for:
            log.error(
                "%s: not repaired yet (%s). It is as soon as a node has them; if none ever will, stop this node and run "
                "`rmq store repair`",
                self._log.damages,
                waits_for,
            )
        self.waits_for = waits_for
        return not self._log.damages

    async def _repair_range(self, found: DamagedRange) -> str:
        """Why it could not be repaired; "" if it is whole again."""
        try:
            repair = await finished(partial(PeerRepair, self._disk, self._root, self._log.segment_bytes, self._log.epochs, found))
            try:
                source = await self._fill(repair)
                async with self._files:
                    if found.start < self._log.start:
                        return "retention deleted a part of them meanwhile"
                    await finished(repair.put)
            finally:
                await finished(repair.close)
        except OSError as error:
            return f"the disk does not take them: {error}"
        except StoreError as error:
            return str(error)
        self._log.damages.drop(found)
        log.warning(
            "bytes %d to %d of the log were damaged (%s): they are whole again, as %s has them. Look at this disk",
            found.start,
            found.end,
            found.why,
            source,
        )
        return ""

    async def _fill(self, repair: PeerRepair) -> str:
        """The node that had the last part. Raises StoreError, OSError.

        A tombstone is taken only when every node has answered and none has the message itself.
        """
        nodes = [*self._nodes()]
        source, errors = await self._ask_all(repair, nodes, tombstones=False)
        if self._before_tombstones is not None and _only_tombstones(errors):
            await finished(self._before_tombstones)
            source, errors = await self._ask_all(repair, nodes, tombstones=True)
        if not source:
            reasons = [error.remark if isinstance(error, Refusal) else str(error) for error in errors]
            raise StoreError(", ".join(map(": ".join, zip(nodes, reasons, strict=True))) or "no other node is known")
        return source

    async def _ask_all(self, repair: PeerRepair, nodes: list[str], tombstones: bool) -> tuple[str, list[RmqError]]:
        """The node that had the last part, or "", and why each node did not have it. Raises OSError."""
        errors = []
        for node in nodes:
            try:
                while repair.position < repair.end:
                    await self._ask(repair, node, tombstones)
                return node, []
            except RmqError as error:
                errors.append(error)
        return "", errors

    async def _ask(self, repair: PeerRepair, node: str, tombstones: bool) -> None:
        to = min(repair.position + repair.wanted, repair.end)
        part = await self._peers.request(node, ReadLog(self._peers.group, repair.position, to))
        assert isinstance(part, LogPart)
        await finished(partial(repair.take, part.data, tuple(part.epochs), tombstones))


def _only_tombstones(errors: list[RmqError]) -> bool:
    """Whether no node has the bytes, but one was repaired by hand. A node that did not answer may have them."""
    lacking = all(
        isinstance(error, BadBytes) or (isinstance(error, Refusal) and error.code == ResponseCode.SYSTEM_ERROR)
        for error in errors
    )
    return lacking and any(isinstance(error, Tombstone) for error in errors)


class Lending:
    """What a node reads from its disk for the others (`read_log`, snapshots): one part at a time is in memory, however many
    nodes ask."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def give(self, peer: Connection, read: Callable[[], Awaitable[T]]) -> T:
        """Raises Refusal if the peer has gone, and as `read`."""
        async with self._turn:
            if peer.closed:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "the connection has ended")
            return await read()


async def read_log(store: Store, request: ReadLog) -> LogPart:
    """Bytes of this node's log for a node whose log is damaged. Raises Refusal."""
    history = store.log.epochs
    try:
        data = await asyncio.to_thread(read_part, store.log, request.from_offset, request.to_offset)
    except StoreError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if store.log.epochs != history:  # a cut, or another leader's first bytes: nobody can be sure whose bytes these are
        raise Refusal(ResponseCode.SYSTEM_BUSY, "another epoch has begun meanwhile: ask again")
    return LogPart(data, list(epochs_over(history, request.from_offset, request.from_offset + len(data))))
