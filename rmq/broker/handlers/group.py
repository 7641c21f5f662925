"""An administrator's commands and questions to a group.

The state machine decides (`rmq.raft`). This file hands it the requests; its answer comes back through the call.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from rmq.broker.replication import haview
from rmq.broker.replication.elected import ElectedReplica
from rmq.broker.replication.peerrepair import PeerRepairer
from rmq.broker.replication.places import check_newcomer
from rmq.log.store import Store
from rmq.net.commands.peers import (
    AddPeer,
    EpochCache,
    GetEpochCache,
    GetGroupStatus,
    GetHaStatus,
    GroupStatus,
    MemberStatus,
    Promote,
    RemovePeer,
    TransferLeader,
)
from rmq.net.transport.server import LATER, Call, Handler, Later
from rmq.raft import events as ev
from rmq.raft.roles import Leader, Peer


class GroupHandlers:
    """`names`: of cluster and group. `address_of(node)`: "" if unknown. `nodes`: so many should a group with fixed roles have."""

    def __init__(
        self,
        replica: ElectedReplica,
        store: Store,
        names: tuple[str, str],
        broker_id: Callable[[], int],
        repairer: PeerRepairer,
        address_of: Callable[[str], str],
        nodes: int,
    ) -> None:
        self._replica = replica
        self._store = store
        self._cluster, self._group = names
        self._broker_id = broker_id
        self._repairer = repairer
        self._address_of = address_of
        self._nodes = nodes

    def by_request(self) -> Mapping[type[Any], Handler]:
        return {
            AddPeer: self.add_peer,
            RemovePeer: self.remove_peer,
            TransferLeader: self.transfer,
            Promote: self.promote,
            GetGroupStatus: lambda _request, _call: self.status(),
            GetHaStatus: lambda _request, _call: haview.ha_status(self.status()),
            GetEpochCache: self.epochs,
        }

    # --- administration -----------------------------------------------------------------------------------------------

    async def add_peer(self, request: AddPeer, call: Call) -> Later:
        others = [voter.address for voter in self._replica.member.core.state.voters]
        await check_newcomer(request.node, request.address, others)
        self._replica.member.handle(ev.Join(request.node, request.address, call))
        return LATER

    def remove_peer(self, request: RemovePeer, call: Call) -> Later:
        self._replica.member.handle(ev.Leave(request.node, call))
        return LATER

    def transfer(self, request: TransferLeader, call: Call) -> Later:
        self._replica.member.handle(ev.Transfer(request.node, call))
        return LATER

    def promote(self, _request: Promote, call: Call) -> Later:
        """Makes a fixed slave the master, or lets a master that waits for slaves begin. What is not here is lost: only an
        administrator knows that whoever has more is gone."""
        self._replica.member.handle(ev.Promote(call))
        return LATER

    def epochs(self, _request: GetEpochCache, _call: Call) -> EpochCache:
        state = self._replica.member.core.state
        return haview.epoch_cache(self._cluster, self._group, self._broker_id(), list(state.epochs), state.end)

    def status(self) -> GroupStatus:
        core = self._replica.member.core
        state, me, now = core.state, core.state.me, self._replica.monotonic()
        return GroupStatus(
            self._replica.role, me.node, me.store, core.leader, self._replica.leader_address, state.epoch, state.log_start,
            state.end, state.durable, state.hw, state.proven, core.lease_good(now), me.sync_flush, list(state.epochs),
            self._members(now), self._repairer.trouble, me.fixed,
            now - core.role.since if isinstance(core.role, Leader) else -1.0, self._address_of(me.node),
        )  # fmt: skip

    def _members(self, now: float) -> list[MemberStatus]:
        """Voters first, then other nodes that fetch, or did while this node led; then nodes that a group with fixed roles should
        have and that never came. Only the leader knows how far the others are."""
        core = self._replica.member.core
        state, me = core.state, core.state.me
        peers = dict(core.role.peers) if isinstance(core.role, Leader) else {}
        full = state.health.disk_full
        peers[me.store] = Peer(
            me.node, me.store, end=state.end, ack=state.ack, touched=now, disk_full=full, may_have_lost_data=not state.proven
        )
        rows = []
        for voter in state.voters:
            rows.append(_row(peers.pop(voter.store, Peer(voter.node, voter.store)), voter.address, True, state.end, now))
        rows += [_row(peer, self._address_of(peer.node), False, state.end, now) for peer in peers.values()]
        if me.fixed and isinstance(core.role, Leader):
            lacking = range(1, self._nodes - len({row.node for row in rows}) + 1)
            rows += [_row(Peer(f"missing-{missing}", ""), "", False, state.end, now) for missing in lacking]
        return rows


def _row(peer: Peer, address: str, voter: bool, end: int, now: float) -> MemberStatus:
    ago = -1.0 if math.isinf(peer.touched) else max(0.0, now - peer.touched)
    lag = max(0, end - peer.end) if peer.end >= 0 else -1
    return MemberStatus(
        peer.node, peer.store, address, voter, peer.end, peer.ack, lag, ago, peer.disk_full, peer.may_have_lost_data,
        -1.0 if math.isinf(peer.level) else max(0.0, now - peer.level),
    )  # fmt: skip
