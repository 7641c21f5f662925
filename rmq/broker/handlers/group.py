"""What the nodes of an elected group ask each other, and what an administrator tells and asks the group.

The machine decides (`rmq.raft`); here questions are handed to it, and its answer comes back through the call. A question
of another group, dialled by mistake, gets no further.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmq.broker.replication import haview
from rmq.broker.replication.elected import ElectedReplica
from rmq.broker.replication.mender import Mender, read_log
from rmq.broker.replication.peerwire import to_request
from rmq.codes import ResponseCode
from rmq.errors import Refusal, StoreError
from rmq.log.store import Store
from rmq.net.peercommands import (
    AckLog,
    AddPeer,
    AnnounceLeader,
    AskVote,
    FetchLog,
    GetEpochCache,
    GetGroupStatus,
    GetHaStatus,
    GroupStatus,
    LogPart,
    MemberStatus,
    Promote,
    ReadLog,
    ReadSnapshot,
    RemovePeer,
    ResignLeader,
    SnapshotPart,
    TransferLeader,
)
from rmq.net.server import LATER, Call, Handler, Later
from rmq.raft import messages as m
from rmq.raft.roles import Leader, Peer

MAX_PART_BYTES = 1 << 20


class GroupHandlers:
    """`names`: of cluster and group. `address_of(node)`: "" if unknown. `nodes`: so many a group with fixed roles should have."""

    def __init__(
        self, replica: ElectedReplica, store: Store, names: tuple[str, str], broker_id: Callable[[], int], mender: Mender,
        address_of: Callable[[str], str], nodes: int,
    ) -> None:  # fmt: skip
        self._replica = replica
        self._store = store
        self._cluster, self._group = names
        self._broker_id = broker_id
        self._mender = mender
        self._address_of = address_of
        self._nodes = nodes

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            FetchLog: self.ask,
            AckLog: self.tell,
            AskVote: self.ask,
            AnnounceLeader: self.announced,
            ResignLeader: self.ask,
            ReadSnapshot: self.read_snapshot,
            ReadLog: self.read_log,
            AddPeer: self.add_peer,
            RemovePeer: self.remove_peer,
            TransferLeader: self.transfer,
            Promote: self.promote,
            GetGroupStatus: lambda _request, _call: self.status(),
            GetHaStatus: lambda _request, _call: haview.ha_status(self.status()),
            GetEpochCache: lambda _request, _call: haview.epoch_cache(
                self._cluster, self._group, self._broker_id(), self.status()
            ),
        }

    # --- between nodes ------------------------------------------------------------------------------------------------

    def ask(self, request: FetchLog | AskVote | ResignLeader | AnnounceLeader, call: Call) -> Later:
        self._check_group(request.group)
        self._replica.member.handle(m.Asked(to_request(request), call))
        return LATER

    def announced(self, request: AnnounceLeader, call: Call) -> Later:
        self._check_group(request.group)
        self._replica.note_leader(request.leader, request.address)
        return self.ask(request, call)

    def tell(self, request: AckLog, _call: Call) -> None:
        self._check_group(request.group)
        self._replica.member.handle(m.Asked(to_request(request)))

    def read_snapshot(self, request: ReadSnapshot, _call: Call) -> Awaitable[SnapshotPart]:
        self._check_group(request.group)
        return asyncio.to_thread(self._read_snapshot, request)

    def _read_snapshot(self, request: ReadSnapshot) -> SnapshotPart:
        try:
            data, total = self._store.snapshots.read(request.s0, request.position, min(request.max_bytes, MAX_PART_BYTES))
        except (StoreError, OSError) as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no snapshot at {request.s0} any more: fetch again ({error})") from error
        return SnapshotPart(data, total)

    def read_log(self, request: ReadLog, _call: Call) -> Awaitable[LogPart]:
        self._check_group(request.group)
        return read_log(self._store, request)

    def _check_group(self, group: str) -> None:
        check_group(self._group, group)

    # --- administration -----------------------------------------------------------------------------------------------

    def add_peer(self, request: AddPeer, call: Call) -> Later:
        self._replica.member.handle(m.Join(request.node, request.address, call))
        return LATER

    def remove_peer(self, request: RemovePeer, call: Call) -> Later:
        self._replica.member.handle(m.Leave(request.node, call))
        return LATER

    def transfer(self, request: TransferLeader, call: Call) -> Later:
        self._replica.member.handle(m.Transfer(request.node, call))
        return LATER

    def promote(self, _request: Promote, call: Call) -> Later:
        """Lossy by what is not here: only an administrator knows whether the old master is gone for good."""
        self._replica.member.handle(m.Promote(False, call))
        return LATER

    def status(self) -> GroupStatus:
        core = self._replica.member.core
        state, me, now = core.state, core.state.me, self._replica.monotonic()
        return GroupStatus(
            self._replica.role, me.node, me.store, core.leader, self._replica.leader_address, state.epoch, state.log_start,
            state.end, state.durable, state.hw, state.proven, core.lease_good(now), me.sync_flush, list(state.rows),
            self._members(now), self._mender.trouble, me.fixed,
            now - core.role.since if isinstance(core.role, Leader) else -1.0,
        )  # fmt: skip

    def _members(self, now: float) -> list[MemberStatus]:
        """Voters first, then who else fetches, or did while this node led; then those that a group with fixed roles should have
        and that never came. Only the leader knows how far the others are."""
        core = self._replica.member.core
        state, me = core.state, core.state.me
        peers = dict(core.role.peers) if isinstance(core.role, Leader) else {}
        full = state.health.disk_full
        peers[me.store] = Peer(
            me.node, me.store, end=state.end, ack=state.ack, touched=now, disk_full=full, unproven=not state.proven
        )
        rows = []
        for voter in state.voters:
            rows.append(_row(peers.pop(voter.store, Peer(voter.node, voter.store)), voter.address, True, state.end, now))
        rows += [_row(peer, self._address_of(peer.node), False, state.end, now) for peer in peers.values()]
        if me.fixed and isinstance(core.role, Leader):
            lacking = range(1, self._nodes - len({row.node for row in rows}) + 1)
            rows += [_row(Peer(f"missing-{number}", ""), "", False, state.end, now) for number in lacking]
        return rows


def check_group(mine: str, asked: str) -> None:
    """Raises Refusal."""
    if asked != mine:
        about = f"this is a node of group {mine!r}, not of {asked!r}: look at brokerName and dLegerPeers"
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)


def _row(peer: Peer, address: str, voter: bool, end: int, now: float) -> MemberStatus:
    ago = -1.0 if math.isinf(peer.touched) else max(0.0, now - peer.touched)
    lag = max(0, end - peer.end) if peer.end >= 0 else -1
    return MemberStatus(
        peer.node, peer.store, address, voter, peer.end, peer.ack, lag, ago, peer.disk_full, peer.unproven,
        -1.0 if math.isinf(peer.level) else max(0.0, now - peer.level),
    )  # fmt: skip
