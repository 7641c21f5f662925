"""Consumer groups: their settings, which changes are allowed, and RocketMQ's subscriptionGroup.json.

`ConsumerRegistry` in `members`, also exported from here, knows the connected members.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from rmq.attributes import BOOLEAN, changed, one_of, text, whole
from rmq.codes import ResponseCode
from rmq.delivery.backoff import canonical
from rmq.delivery.forbidden import ForbiddenTable
from rmq.delivery.members import ConsumerRegistry, ConsumerView, HeartbeatOutcome
from rmq.errors import BadBytes, Refusal, being_deleted
from rmq.model import GroupConfig
from rmq.names import check_group_name, is_light
from rmq.staged import Between, StagedTable

__all__ = [
    "SYSTEM_GROUPS",
    "ConsumerRegistry",
    "ConsumerView",
    "GroupTable",
    "HeartbeatOutcome",
    "from_json",
    "groups_json",
    "is_system_group",
    "system_groups",
]  # fmt: skip

SYSTEM_GROUPS = (  # exist from the start: tools pull as these groups without creating them [SubscriptionGroupManager]
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
)  # fmt: skip
_SYSTEM_PREFIX = "CID_RMQ_SYS_"
PRIORITY_FACTOR = "priority.factor"  # percent of a group's pops that look at the most urgent queue first
LITE_TOPIC, LITE_MODEL, LITE_WILDCARD = "lite.bind.topic", "lite.sub.model", "lite.sub.wildcard"
LITE_QUOTA, LITE_EVENTS = "lite.sub.client.quota", "lite.sub.client.max.event.cnt"
LITE_RESET_EXCLUSIVE, LITE_RESET_REMOVED = "lite.sub.reset.offset.exclusive", "lite.sub.reset.offset.unsubscribe"
MAX_GROUPS = 20_000
MAX_SUBSCRIPTIONS_TEXT = 65_536  # characters of a group's own list
MAX_SUBSCRIPTIONS_DEPTH = 32  # brackets in each other there; RocketMQ's has three, and orjson writes 254 at most
ATTRIBUTES = {  # [SubscriptionGroupAttributes]
    PRIORITY_FACTOR: whole(0, 100),
    LITE_TOPIC: text(),
    LITE_MODEL: one_of("Shared", "Exclusive"),
    LITE_QUOTA: whole(-1),
    LITE_EVENTS: whole(10),
    LITE_RESET_EXCLUSIVE: BOOLEAN,
    LITE_RESET_REMOVED: BOOLEAN,
    LITE_WILDCARD: text(),
}
_RANGES = {  # field -> lowest and highest value
    "retry_queue_nums": (0, 1024),
    "retry_max_times": (-1, 2**31 - 1),
    "broker_id": (0, 2**31 - 1),
    "which_broker_when_consume_slowly": (0, 2**31 - 1),
    "consume_timeout_minute": (1, 2**31 - 1),
}


def is_system_group(name: str) -> bool:
    """Whether it is a system group [MixAll.isSysConsumerGroup], or one of the groups that always exist."""
    return name in SYSTEM_GROUPS or name.startswith(_SYSTEM_PREFIX)


def system_groups() -> list[GroupConfig]:
    """The groups that exist from the start, with their settings."""
    return [GroupConfig(name) for name in SYSTEM_GROUPS]


class LiteRules(NamedTuple):
    """What a group that is bound to a topic of type LITE says of its clients. `quota`: lite topics of one client, -1: any number;
    `events`: that one client is told of at once; `reset_taken`, `reset_removed`: a lite topic begins anew for the group when
    another client takes it, and when its client gives it up."""

    topic: str
    exclusive: bool
    wildcard: bool
    quota: int
    events: int
    reset_taken: bool
    reset_removed: bool


def lite_rules(group: GroupConfig) -> LiteRules | None:
    """None: the group is bound to no topic."""
    said = group.attributes
    if not said.get(LITE_TOPIC):
        return None
    return LiteRules(
        topic=said[LITE_TOPIC],
        exclusive=said.get(LITE_MODEL) == "Exclusive",
        wildcard=LITE_WILDCARD in said,
        quota=int(said.get(LITE_QUOTA, "2000")),
        events=int(said.get(LITE_EVENTS, "400")),
        reset_taken=said.get(LITE_RESET_EXCLUSIVE) == "true",
        reset_removed=said.get(LITE_RESET_REMOVED) == "true",
    )


class GroupTable(StagedTable[GroupConfig]):
    """Holds the system groups from the start. `most`: how many groups there may be. `lights`: a group whose name begins as those
    of light queues exists without a row [LmqSubscriptionGroupManager]."""

    def __init__(self, most: int = MAX_GROUPS, lights: bool = False) -> None:
        super().__init__()
        self._lights = lights
        self._most = most
        self._committed = {config.name: config for config in system_groups()}
        self.drop_overlay()

    def get(self, name: str) -> GroupConfig | None:
        found = self._visible.get(name)
        light = found is None and self.is_light(name) and not self.is_leaving(name)
        return GroupConfig(name) if light else found

    def is_light(self, name: str) -> bool:
        """Whether the group needs no row."""
        return self._lights and is_light(name)

    def apply(self, name: str, value: list[Any] | None, time_ms: int = 0) -> None:
        """A committed state line: the fields of a GroupConfig, or None for a deletion. `time_ms`: when it was stored."""
        self._commit(name, None if value is None else GroupConfig(*value[: len(GroupConfig._fields)]), time_ms)

    def plan_update(self, config: GroupConfig) -> GroupConfig:
        """The wanted group. Raises Refusal (INVALID_PARAMETER; SYSTEM_ERROR for attributes, as RocketMQ)."""
        if self.decided(config.name) is None:
            check_group_name(config.name)
        if not self.has_room(config.name, self._most):
            about = f"group {config.name} is not made: there are {self._most} already; delete some, or raise max_groups"
            raise Refusal(ResponseCode.SYSTEM_ERROR, about)
        if self.is_leaving(config.name):
            raise being_deleted(f"group {config.name}")
        for field, (lowest, highest) in _RANGES.items():
            if not lowest <= getattr(config, field) <= highest:
                about = f"{field} {getattr(config, field)} of group {config.name}: {lowest} to {highest} are allowed"
                raise Refusal(ResponseCode.INVALID_PARAMETER, about)
        _check_subscriptions(config)
        known = self.decided(config.name)
        return config._replace(
            retry_policy=canonical(config.retry_policy),
            attributes=changed(known and known.attributes, config.attributes.items(), ATTRIBUTES),
        )

    def plan_delete(self, name: str) -> bool:
        """Whether there is something to delete; a missing group is no error, so that repeating helps. One whose deletion is on
        its way is deleted once more: the answer waits for a record. Raises Refusal."""
        if is_system_group(name):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"group {name} is a system group and cannot be deleted")
        return self.decided(name) is not None or self.is_leaving(name) or self.is_light(name)


def _check_subscriptions(config: GroupConfig) -> None:
    said = config.subscription_data_set
    if len(said) > MAX_SUBSCRIPTIONS_TEXT or (said and not _is_json_list(said)):
        about = (
            f"subscriptionDataSet of group {config.name}: a JSON list of at most {MAX_SUBSCRIPTIONS_TEXT} characters, "
            f"and of {MAX_SUBSCRIPTIONS_DEPTH} brackets in each other, is kept"
        )
        raise Refusal(ResponseCode.INVALID_PARAMETER, about)


def _is_json_list(text: str) -> bool:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return type(value) is list and not _is_deep(value)


def _is_deep(value: list[Any]) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_SUBSCRIPTIONS_DEPTH):
        inside = (one.values() if type(one) is dict else one for one in level)
        level = [each for some in inside for each in some if type(each) in (dict, list)]
    return bool(level)


def groups_json(table: GroupTable, forbidden: ForbiddenTable) -> Callable[..., dict[str, Any]]:
    """RocketMQ's config/subscriptionGroup.json as a JSON value. Copies the tables now; the value may be made in any thread, which
    rests (`Between`)."""
    rows, version, may_not = table.all(), table.data_version.json(), forbidden.by_group()

    def value(between: Between = iter) -> dict[str, Any]:
        return {
            "dataVersion": version,
            "forbiddenTable": may_not,
            "subscriptionGroupTable": {config.name: _to_json(config) for config in between(rows)},
        }

    return value


def from_json(value: Mapping[str, Any]) -> list[GroupConfig]:
    """The groups of a subscriptionGroup.json of RocketMQ (4.9 has fewer fields). Raises BadBytes."""
    try:
        return [_from_json(row) for row in value["subscriptionGroupTable"].values()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadBytes(f"subscriptionGroup.json: {type(error).__name__} {error}; is it RocketMQ's file?") from error


_JSON_NAMES = {  # types of the plain fields
    "consume_enable": "consumeEnable",
    "consume_from_min_enable": "consumeFromMinEnable",
    "consume_broadcast_enable": "consumeBroadcastEnable",
    "consume_message_orderly": "consumeMessageOrderly",
    "retry_queue_nums": "retryQueueNums",
    "retry_max_times": "retryMaxTimes",
    "broker_id": "brokerId",
    "which_broker_when_consume_slowly": "whichBrokerWhenConsumeSlowly",
    "notify_consumer_ids_changed_enable": "notifyConsumerIdsChangedEnable",
    "group_sys_flag": "groupSysFlag",
    "consume_timeout_minute": "consumeTimeoutMinute",
}


def _to_json(config: GroupConfig) -> dict[str, Any]:
    fields = {json_name: getattr(config, field) for field, json_name in _JSON_NAMES.items()}
    said = {"subscriptionDataSet": orjson.loads(config.subscription_data_set)} if config.subscription_data_set else {}
    return fields | {
        "attributes": config.attributes,
        "groupName": config.name,
        "groupRetryPolicy": policy_json(config.retry_policy),
        **said,
    }


def policy_json(policy: str) -> Any:
    """The policy in the form of RocketMQ's JSON."""
    return orjson.loads(policy) if policy else {"type": "CUSTOMIZED"}


def _from_json(row: Mapping[str, Any]) -> GroupConfig:
    defaults = GroupConfig(str(row["groupName"]))
    fields = {
        field: type(getattr(defaults, field))(row[json_name]) for field, json_name in _JSON_NAMES.items() if json_name in row
    }
    attributes = {str(name): str(value) for name, value in row.get("attributes", {}).items()}
    said = row.get("subscriptionDataSet")
    return defaults._replace(
        attributes=attributes,
        retry_policy=_policy(row.get("groupRetryPolicy")),
        subscription_data_set=orjson.dumps(said).decode() if said else "",
        **fields,
    )


def _policy(said: Any) -> str:
    """The policy's stored form. Drops one that this release cannot serve, because the store must open."""
    try:
        return canonical(orjson.dumps(said).decode()) if said else ""
    except Refusal:
        return ""
