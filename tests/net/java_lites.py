"""RocketMQ's side of requests about lite topics: what it sends, and how it reads answers."""

from typing import Any

import orjson

from rmq.net.commands import lites
from rmq.net.remoting.headers import Header


def declaration(request: lites.DeclareLites) -> bytes:
    """[LiteSubscriptionCtlRequestBody]"""
    return orjson.dumps({"subscriptionSet": [_change(one) for one in request.changes]})


def _change(one: lites.LiteChange) -> dict[str, Any]:
    said: dict[str, Any] = {"action": one.action, "clientId": one.client_id, "group": one.group, "topic": one.topic}
    said |= {"liteTopicSet": one.lite_topics, "version": one.version}
    if one.offset_type:
        said["offsetOption"] = {"type": one.offset_type, "value": one.offset_value}
    return said


def popped(header: Header, body: bytes) -> lites.LitePopAnswer:
    pop_time, invisible_time, revive_qid = (int(header.ext[name]) for name in ("popTime", "invisibleTime", "reviveQid"))
    return lites.LitePopAnswer(pop_time, invisible_time, revive_qid, header.ext["orderCountInfo"], body, header.code)


def _parent_info(said: Any) -> lites.ParentTopicInfo:
    return lites.ParentTopicInfo(said["topic"], said["ttl"], said.get("groups", []), said["lmqNum"], said["liteTopicCount"])


def _lite_topic(said: Any) -> lites.LiteTopicInfo:
    who = [lites.LiteSubscriber(one["clientId"], one["group"]) for one in said["subscriber"]]
    at = said["topicOffset"]
    offsets = at["minOffset"], at["maxOffset"], at["lastUpdateTimestamp"]
    return lites.LiteTopicInfo(said["parentTopic"], said["liteTopic"], who, *offsets, said["shardingToBroker"])


def _lite_client(said: Any) -> lites.LiteClientInfo:
    who = said["parentTopic"], said["group"], said["clientId"]
    about = said["lastAccessTime"], said["lastConsumeTime"], said["liteTopicCount"]
    return lites.LiteClientInfo(*who, *about, said.get("liteTopicSet", []))


def _lite_group(said: Any) -> lites.LiteGroupInfo:
    names = ("group", "parentTopic", "liteTopic", "earliestUnconsumedTimestamp", "totalLagCount")
    lags = [
        [lites.LiteLag(one["liteTopic"], one["lagCount"], one["earliestUnconsumedTimestamp"]) for one in said[name]]
        for name in ("lagCountTopK", "lagTimestampTopK")
    ]
    offsets = said.get("liteTopicOffsetWrapper", {"brokerOffset": -1, "consumerOffset": -1, "lastTimestamp": 0})
    return lites.LiteGroupInfo(*(said[name] for name in names), *lags, *offsets.values())


def _broker_lites(said: Any) -> lites.BrokerLiteInfo:
    names = (
        "storeType", "maxLmqNum", "currentLmqNum", "liteSubscriptionCount", "orderInfoCount", "cqTableSize", "offsetTableSize",
        "eventMapSize", "topicMeta", "groupMeta",
    )  # fmt: skip
    return lites.BrokerLiteInfo(*(said[name] for name in names))


FROM_JSON: dict[type[Any], Any] = {
    lites.BrokerLiteInfo: _broker_lites,
    lites.ParentTopicInfo: _parent_info,
    lites.LiteTopicInfo: _lite_topic,
    lites.LiteClientInfo: _lite_client,
    lites.LiteGroupInfo: _lite_group,
}
FROM_EXT: dict[type[Any], Any] = {lites.LitePopAnswer: popped}
BODIES: dict[type[Any], Any] = {lites.DeclareLites: declaration}
