"""JSON bodies of RocketMQ's requests, read leniently: unknown members are ignored, missing ones take the default
[RemotingSerializable]. Pure.
"""

from collections.abc import Callable
from typing import Any

import orjson

from rmq.model import (
    ConsumerData,
    GroupConfig,
    MessageQueue,
    Subscription,
    TopicConfig,
)
from rmq.net.commands import (
    CheckClient,
    Heartbeat,
    UpdateGroup,
    UpdateGroups,
    UpdateTopics,
)
from rmq.net.commands.locks import LockQueues, UnlockQueues
from rmq.net.remoting.bodies import GROUP_NAMES
from rmq.net.remoting.headers import Ext
from rmq.net.remoting.lenient import (
    CONSUME_FROM_WHERE,
    CONSUME_TYPES,
    FILTER_TYPES,
    MESSAGE_MODELS,
    Json,
    choice,
    get,
    load,
    text_map,
    texts,
)


def read_subscription(source: Any) -> Subscription:
    return Subscription(
        topic=get(source, "topic", ""),
        expression=get(source, "subString", "*"),
        expression_type=get(source, "expressionType", "TAG") or "TAG",
        version=get(source, "subVersion", 0),
        tags=texts(source, "tagsSet"),
        codes=[get({"codeSet": code}, "codeSet", 0) for code in get(source, "codeSet", [])],
    )


def _consumer(source: Any) -> ConsumerData:
    return ConsumerData(
        group=get(source, "groupName", ""),
        consume_type=choice(source, "consumeType", CONSUME_TYPES, "CONSUME_PASSIVELY"),
        message_model=choice(source, "messageModel", MESSAGE_MODELS, "CLUSTERING"),
        consume_from_where=choice(source, "consumeFromWhere", CONSUME_FROM_WHERE, "CONSUME_FROM_LAST_OFFSET"),
        subscriptions=[read_subscription(part) for part in get(source, "subscriptionDataSet", [])],
        unit_mode=get(source, "unitMode", False),
    )


def read_heartbeat(ext: Ext, body: bytes) -> Heartbeat:
    """[HeartbeatData]"""
    source = load(body, "HEART_BEAT")
    return Heartbeat(
        client_id=get(source, "clientID", ""),
        producers=[get(part, "groupName", "") for part in get(source, "producerDataSet", [])],
        consumers=[_consumer(part) for part in get(source, "consumerDataSet", [])],
        heartbeat_fingerprint=get(source, "heartbeatFingerprint", 0),
        without_sub=get(source, "withoutSub", False),
    )


def read_check(ext: Ext, body: bytes) -> CheckClient:
    """[CheckClientRequestBody]"""
    source = load(body, "CHECK_CLIENT_CONFIG")
    return CheckClient(
        get(source, "clientId", ""), get(source, "group", ""), read_subscription(get(source, "subscriptionData", {}))
    )


def read_group(ext: Ext, body: bytes) -> UpdateGroup:
    """[SubscriptionGroupConfig]"""
    return UpdateGroup(_group_of(load(body, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP")))


def read_groups(ext: Ext, body: bytes) -> UpdateGroups:
    """[SubscriptionGroupList]"""
    source = load(body, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST")
    return UpdateGroups([_group_of(one) for one in get(source, "groupConfigList", [])])


def read_topics(ext: Ext, body: bytes) -> UpdateTopics:
    """[CreateTopicListRequestBody]"""
    source = load(body, "UPDATE_AND_CREATE_TOPIC_LIST")
    return UpdateTopics([_topic_of(one) for one in get(source, "topicConfigList", [])])


def _topic_of(source: Any) -> TopicConfig:
    usual = TopicConfig("")
    return TopicConfig(
        get(source, "topicName", ""),
        get(source, "readQueueNums", 16),
        get(source, "writeQueueNums", 16),
        get(source, "perm", usual.perm),
        choice(source, "topicFilterType", FILTER_TYPES, usual.filter_type),
        get(source, "topicSysFlag", 0),
        get(source, "order", False),
        text_map(source, "attributes"),
    )


def _group_of(source: Any) -> GroupConfig:
    get(source, "groupName", "")  # an object is expected
    defaults = GroupConfig("")
    nested = {
        "attributes": text_map(source, "attributes"),
        "retry_policy": _policy_text(source.get("groupRetryPolicy")),
        "subscription_data_set": _json_text(get(source, "subscriptionDataSet", [])),
    }
    values = [
        nested[field] if field in nested else get(source, name, default)
        for field, name, default in zip(GroupConfig._fields, GROUP_NAMES, defaults, strict=True)
    ]
    return GroupConfig._make(values)


def _policy_text(said: Any) -> str:
    """The policy as the table keeps it, after checking it; the default policy is ""."""
    usual = said is None or said == {} or (type(said) is dict and said.keys() == {"type"} and said["type"] in ("CUSTOMIZED", 1))
    return "" if usual else orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode()


def _json_text(said: list[Any]) -> str:
    return orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode() if said else ""


def read_lock(ext: Ext, body: bytes) -> LockQueues:
    """[LockBatchRequestBody] Its `onlyThisBroker` has no effect: a lock is in a majority's logs anyway."""
    return LockQueues(*_queues_of_client(load(body, "LOCK_BATCH_MQ")))


def read_unlock(ext: Ext, body: bytes) -> UnlockQueues:
    """[UnlockBatchRequestBody]"""
    return UnlockQueues(*_queues_of_client(load(body, "UNLOCK_BATCH_MQ")))


def _queues_of_client(source: Json) -> tuple[str, str, list[MessageQueue]]:
    queues = [
        MessageQueue(get(part, "topic", ""), get(part, "brokerName", ""), get(part, "queueId", 0))
        for part in get(source, "mqSet", [])
    ]
    return get(source, "consumerGroup", ""), get(source, "clientId", ""), queues


REQUEST_READERS: dict[type[Any], Callable[[Ext, bytes], Any]] = {
    Heartbeat: read_heartbeat,
    CheckClient: read_check,
    UpdateGroup: read_group,
    UpdateGroups: read_groups,
    UpdateTopics: read_topics,
    LockQueues: read_lock,
    UnlockQueues: read_unlock,
}
"""Requests that are more than text fields."""
