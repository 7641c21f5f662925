"""A group's status in the form of RocketMQ's tool. Pure: no I/O, no clock."""

from collections.abc import Sequence

from rmq.model import EpochEntry
from rmq.net.commands.peers import EpochCache, EpochRange, GroupStatus, HaClient, HaConnection, HaStatus


def ha_status(status: GroupStatus) -> HaStatus:
    """[DefaultHAService.getRuntimeInfo] A follower that was never heard of counts as one that lacks everything."""
    if status.role != "leader":
        return HaStatus(False, 0, 0, [], HaClient(status.leader_address, status.end, status.committed))
    followers = [
        HaConnection(each.address or each.node, max(each.ack, 0), status.end - max(each.end, 0), each.in_sync, max(each.end, 0))
        for each in status.members
        if each.store != status.store
    ]
    return HaStatus(True, status.end, sum(each.in_sync for each in followers), followers)


def epoch_cache(cluster: str, broker_name: str, broker_id: int, epochs: Sequence[EpochEntry], log_end: int) -> EpochCache:
    """The epochs of this node's log, each up to where the next one begins."""
    ends = [entry.start for entry in epochs[1:]] + [log_end]
    ranges = [EpochRange(entry.epoch, entry.start, end) for entry, end in zip(epochs, ends, strict=False)]
    return EpochCache(cluster, broker_name, broker_id, ranges, log_end)
