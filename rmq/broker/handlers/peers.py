"""Requests between the nodes of a group.

The state machine decides (`rmq.raft`). This file makes sure that the sender is a node of the group and speaks for itself
(`replication.gate`), then hands the request to the state machine, whose answer comes back through the call.
"""

import asyncio
import math
from collections.abc import Awaitable, Mapping
from typing import Any

from rmq.broker.replication.elected import ElectedReplica
from rmq.broker.replication.gate import Gate
from rmq.broker.replication.peerrepair import Lending, read_log
from rmq.broker.replication.peerwire import to_request
from rmq.broker.replication.places import check_address
from rmq.codes import ResponseCode
from rmq.errors import Refusal, StoreError
from rmq.log.store import Store
from rmq.net.commands.peers import (
    AckLog,
    AnnounceLeader,
    AskVote,
    FetchLog,
    ForwardedClient,
    IntroducePeer,
    LogPart,
    ReadLog,
    ReadSnapshot,
    ResignLeader,
    SnapshotPart,
)
from rmq.net.transport.server import LATER, Call, Handler, Later
from rmq.raft import events as ev

MAX_PART_BYTES = 1 << 20


class PeerHandlers:
    def __init__(self, replica: ElectedReplica, store: Store, gate: Gate) -> None:
        self._replica = replica
        self._store = store
        self._gate = gate
        self._lending = Lending()

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            IntroducePeer: self._gate.introduce,
            FetchLog: self.fetch,
            AckLog: self.tell,
            AskVote: self.vote,
            AnnounceLeader: self.announced,
            ResignLeader: self.resigned,
            ReadSnapshot: self.read_snapshot,
            ReadLog: self.read_log,
            ForwardedClient: self.forwarded,
        }

    def fetch(self, request: FetchLog, call: Call) -> Later:
        self._gate.speaks_for(request.group, call, request.node, request.store, request.incarnation)
        if not (math.isfinite(request.echo) and math.isfinite(request.max_wait)):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "echo and max_wait are seconds")
        return self._ask(request, call)

    def tell(self, request: AckLog, call: Call) -> None:
        """A store's acknowledgement counts only from its own connection, because it commits messages."""
        self._gate.speaks_for(request.group, call, "", request.store, request.incarnation)
        if not self._replica.files.unsaved:
            self._replica.member.handle(ev.PeerRequest(to_request(request)))

    def vote(self, request: AskVote, call: Call) -> Later:
        self._gate.speaks_for(request.group, call, request.candidate, request.store)
        return self._ask(request, call)

    def announced(self, request: AnnounceLeader, call: Call) -> Later:
        speaker = self._gate.who(request.group, call)
        self._gate.speaks_for(request.group, call, request.leader, speaker.store)
        check_address(request.leader, request.address)
        self._replica.note_leader(request.leader, request.address)
        return self._ask(request, call)

    def resigned(self, request: ResignLeader, call: Call) -> Later:
        """Only the leader itself can give leadership up; a node that has not heard of its leader yet believes it."""
        speaker, core = self._gate.who(request.group, call), self._replica.member.core
        leader = core.leader
        if leader not in ("", speaker.node) and not core.state.me.fixed:  # with fixed roles two nodes may have one name
            raise Refusal(ResponseCode.NO_PERMISSION, f"node {speaker.node!r} does not lead here, {leader!r} does")
        return self._ask(request, call)

    def _ask(self, request: FetchLog | AskVote | ResignLeader | AnnounceLeader, call: Call) -> Later:
        """Raises Refusal from a node that could not say anything before its disk has room, which may take hours (D14, D18)."""
        if self._replica.files.unsaved:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"this node takes no part in its group: {self._replica.files.unsaved}")
        self._replica.member.handle(ev.PeerRequest(to_request(request), call))
        return LATER

    def read_snapshot(self, request: ReadSnapshot, call: Call) -> Awaitable[SnapshotPart]:
        self._gate.who(request.group, call)
        return self._lending.give(call.connection, lambda: asyncio.to_thread(self._read_snapshot, request))

    def _read_snapshot(self, request: ReadSnapshot) -> SnapshotPart:
        try:
            data, total = self._store.snapshots.read(request.s0, request.position, min(request.max_bytes, MAX_PART_BYTES))
        except (StoreError, OSError) as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no snapshot at {request.s0} any more: fetch again ({error})") from error
        return SnapshotPart(data, total)

    def read_log(self, request: ReadLog, call: Call) -> Awaitable[LogPart]:
        self._gate.who(request.group, call)
        return self._lending.give(call.connection, lambda: read_log(self._store, request))

    async def forwarded(self, request: ForwardedClient, call: Call) -> None:
        """All requests on this connection from now on come from a client of that node."""
        await self._gate.check_line(request.group, request.node, call.connection)
        if not call.frame or not 0 <= request.port < 65536:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "clients are forwarded in RocketMQ's codec, host and port named")
        call.connection.speak_for((request.host, request.port))
