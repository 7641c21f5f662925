"""What administrative acts change, by request: shown before and after in their lines of the audit log (`rmq.guard.audit`)."""

from collections.abc import Callable, Iterable
from typing import Any

from rmq.access.quotas import checked_subject
from rmq.broker.tables.tables import Tables
from rmq.guard.audit import States
from rmq.log.commitlog import CommitLog
from rmq.net.commands import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteExpiredLog,
    DeleteGroup,
    DeleteTopic,
    DeleteUser,
    UpdateAcl,
    UpdateForbidden,
    UpdateGroup,
    UpdateGroups,
    UpdateTopic,
    UpdateTopics,
    UpdateUser,
)
from rmq.net.commands.peers import AddPeer, GroupStatus, Promote, RemovePeer, TransferLeader
from rmq.net.commands.pop import SetRequestMode
from rmq.net.commands.quotas import DeleteQuota, SetQuota
from rmq.net.commands.resets import CloneOffsets, ResetOffset


def states_of(tables: Tables, log: CommitLog, status: Callable[[], GroupStatus] | None) -> States:
    """`status`: of the group; None for a broker that stands alone."""
    topics, groups, offsets = tables.topics, tables.groups, tables.offsets

    def user(asked: Any) -> object:
        """Nothing that tells of a password."""
        found = tables.users.get(asked.username)
        return None if found is None else {"type": found.type, "status": found.status}

    def acl(asked: Any) -> object:
        return tables.policies.committed().get(f"User:{asked.subject.partition(':')[2]}")

    def quota(subject: str) -> object:
        return tables.quotas.committed().get(checked_subject(subject))

    def members(_asked: object) -> object:
        if status is None:
            return None
        now = status()
        return {"leader": now.leader, "epoch": now.epoch, "voters": [each.node for each in now.members if each.voter]}

    return {
        UpdateTopic: lambda asked: topics.get(asked.topic),
        UpdateTopics: lambda asked: {each.name: topics.get(each.name) for each in asked.topics},
        DeleteTopic: lambda asked: topics.get(asked.topic),
        UpdateGroup: lambda asked: groups.get(asked.config.name),
        UpdateGroups: lambda asked: {each.name: groups.get(each.name) for each in asked.groups},
        DeleteGroup: lambda asked: groups.get(asked.group_name),
        ResetOffset: lambda asked: _places(tables, asked.group, [asked.topic]),
        CloneOffsets: lambda asked: _places(
            tables, asked.dest_group, [asked.topic] if asked.topic else sorted(offsets.topics_of(asked.src_group))
        ),
        UpdateForbidden: lambda asked: {"readable": tables.forbidden.may_read(asked.group, asked.topic)},
        SetRequestMode: lambda asked: tables.modes.of(asked.topic, asked.consumer_group),
        **dict.fromkeys((CreateUser, UpdateUser, DeleteUser), user),
        **dict.fromkeys((CreateAcl, UpdateAcl, DeleteAcl), acl),
        SetQuota: lambda asked: quota(asked.quota.subject),
        DeleteQuota: lambda asked: quota(asked.subject),
        DeleteExpiredLog: lambda _asked: {"log_start": log.start, "files": len(log.segments())},
        **dict.fromkeys((AddPeer, RemovePeer, TransferLeader, Promote), members),
    }


def _places(tables: Tables, group: str, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """By topic and queue: where the group is."""
    found: dict[str, dict[int, int]] = {}
    for topic in topics:
        config = tables.topics.get(topic)
        known = [(queue, tables.offsets.query(group, topic, queue)) for queue in range(config.read_queue_nums if config else 0)]
        found[topic] = {queue: offset for queue, offset in known if offset is not None}
    return found
