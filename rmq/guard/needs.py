"""The rights that a request needs: its row in the one table (`rmq.requests`), with the names in the request. Pure."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final

from rmq.access.policies import Need
from rmq.codes import RequestCode
from rmq.delivery.transactions import PARKED_TOPIC
from rmq.model import LITE_PREFIX, RETRY_PREFIX, STATE_TOPIC, is_pending_topic
from rmq.names import MAX_STORED_TOPIC_LENGTH, lite_parts
from rmq.net.commands import (
    CODES,
    DraftedSend,
    GetConsumeStats,
    GetRoute,
    Heartbeat,
    LockQueues,
    Pull,
    QueryConsumerOffset,
    QueryMessage,
    Request,
    Send,
    UnlockQueues,
    UnregisterClient,
    UpdateConsumerOffset,
    UpdateGroup,
    UpdateGroups,
    UpdateTopics,
)
from rmq.net.commands.lites import DeclareLites, GetLiteClientInfo, GetLiteTopicInfo, PopLite
from rmq.net.commands.pop import Ack, BatchAck, ChangeInvisibleTime, Notification, Peek, Pop
from rmq.net.commands.progress import GetCorrections, GetQueueEntries
from rmq.net.commands.resets import CloneOffsets
from rmq.net.commands.timers import Recall
from rmq.net.commands.transactions import EndTransaction
from rmq.requests import REQUESTS, Action, Resource

Names = Callable[[Any], Iterable[str]]

CODE_OF: Final[dict[type[Any], RequestCode]] = {**CODES, DraftedSend: CODES[Send]}

HOT: Final[dict[type[Any], Callable[[Any], Any]]] = {  # the fields on which the needs of a request of that type depend
    DraftedSend: attrgetter("topic"),
    Send: attrgetter("topic"),
    GetRoute: attrgetter("topic"),
    EndTransaction: lambda _: "",  # on none: its handler looks
    Recall: attrgetter("topic"),
    **{
        kind: attrgetter("topic", "consumer_group")
        for kind in (Pull, QueryConsumerOffset, UpdateConsumerOffset, Pop, PopLite, Ack, ChangeInvisibleTime, Notification)
    },
}


def are_short(names: str | tuple[str, ...]) -> bool:
    """Whether topics and groups can have these names. Only then it is worth the memory to remember them."""
    return all(len(name) <= MAX_STORED_TOPIC_LENGTH for name in ((names,) if isinstance(names, str) else names))


def _one(field: str) -> Names:
    get = attrgetter(field)
    return lambda request: (get(request),)


_TOPICS: Final[dict[type[Any], Names]] = {
    Heartbeat: lambda request: [part.topic for consumer in request.consumers for part in consumer.subscriptions],
    LockQueues: lambda request: [queue.topic for queue in request.queues],
    UnlockQueues: lambda request: [queue.topic for queue in request.queues],
    BatchAck: lambda request: [ack.topic for ack in request.acks],
    DeclareLites: lambda request: [change.topic for change in request.changes],
    GetLiteTopicInfo: lambda request: [request.parent_topic],
    GetLiteClientInfo: lambda request: [request.parent_topic],
    UpdateTopics: lambda request: [topic.name for topic in request.topics],
    GetConsumeStats: lambda request: [request.topic] if request.topic else [],  # of all: the answer holds what they may see
}
_GROUPS: Final[dict[type[Any], Names]] = {
    Heartbeat: lambda request: [consumer.group for consumer in request.consumers],
    DeclareLites: lambda request: [change.group for change in request.changes],
    UnregisterClient: lambda request: [request.consumer_group] if request.consumer_group else [],
    BatchAck: lambda request: [ack.consumer_group for ack in request.acks],
    UpdateGroup: lambda request: [request.config.name],
    UpdateGroups: lambda request: [group.name for group in request.groups],
    CloneOffsets: lambda request: [request.src_group, request.dest_group],
    GetCorrections: lambda request: [name for name in (request.compare_group, *request.filter_groups.split(",")) if name],
    GetQueueEntries: lambda request: [request.consumer_group] if request.consumer_group else [],
}
_GROUP_FIELDS: Final = ("consumer_group", "group", "group_name")


def _names(kind: type[Any], resource: str) -> Names:
    """How to get the names from a command. Raises KeyError if it has none: that is a fault of the table."""
    exception = (_TOPICS if resource == "Topic" else _GROUPS).get(kind)
    if exception is not None:
        return exception
    for field in ("topic",) if resource == "Topic" else _GROUP_FIELDS:
        if field in kind._fields:
            return _one(field)
    raise KeyError(f"{kind.__name__} names no {resource}")


_PLANS: Final[dict[type[Any], list[tuple[str, Names]]]] = {
    kind: [(resource, _names(kind, resource)) for resource in row.resource.value if resource != "Cluster"]
    for kind, code in CODE_OF.items()
    if (row := REQUESTS[code]).action not in (Action.ANY, Action.KNOWN, Action.NODE, Action.CLIENT)
}


def needs_of(request: Request, cluster: str) -> list[Need]:
    """All rights that the request needs."""
    row = REQUESTS[CODE_OF[type(request)]]
    actions = row.action.value
    if row.resource is Resource.CLUSTER:
        return [Need("Cluster", cluster, actions)]
    needs = [Need(kind, name, actions) for kind, names in _PLANS[type(request)] for name in dict.fromkeys(names(request))]
    groups = [each.name for each in needs if each.kind == "Group"]
    return [part for need in needs for part in (_of_topic(need, groups, cluster) if need.kind == "Topic" else [need])]


def needs_of_topic(topic: str, action: Action, group: str, cluster: str) -> list[Need]:
    """All rights that one needs to do that with messages of the topic, as a member of that group ("": of none)."""
    return _of_topic(Need("Topic", topic, action.value), [group] if group else [], cluster)


def tells_of_keys(request: Request) -> bool:
    """Whether the answer would hold state records: those of users hold what a password can be guessed by."""
    return isinstance(request, Pull | Pop | Peek | QueryMessage) and request.topic == STATE_TOPIC


def _of_topic(need: Need, groups: list[str], cluster: str) -> list[Need]:
    """A retry topic belongs to its group: who may read for the group may use it. Messages of all topics wait in those of the
    broker: who reads there reads what he may not read elsewhere, so the right to look at the cluster is needed too."""
    if need.name.startswith(RETRY_PREFIX):
        return _of_retries(need, groups)
    if need.name.startswith(LITE_PREFIX) and (parent := lite_parts(need.name)[0]):  # who may do it there may do it here
        return [need._replace(name=parent)]
    if (is_pending_topic(need.name) or need.name == PARKED_TOPIC) and "Sub" in need.actions:
        return [need, Need("Cluster", cluster, Action.GET.value)]
    return [need]


def _of_retries(need: Need, groups: list[str]) -> list[Need]:
    """A retry topic of POP is named after its group and its topic. `g_x` may be a group as well, whose messages are nobody
    else's, so the right to the topic `x` is needed too."""
    rest, actions = need.name.removeprefix(RETRY_PREFIX), Action.SUB.value if "Pub" in need.actions else need.actions
    for group in groups:
        if rest != group and rest.startswith((f"{group}_", f"{group}+")):
            return [Need("Group", group, actions), Need("Topic", rest[len(group) + 1 :], actions)]
    return [Need("Group", rest, actions)]
