"""Bodies of requests about lite topics, and of their answers, in RocketMQ's codec. Pure."""

from collections.abc import Callable
from typing import Any

import orjson

from rmq.net.commands.lites import (
    ACTIONS,
    BrokerLiteInfo,
    DeclareLites,
    LiteChange,
    LiteClientInfo,
    LiteGroupInfo,
    LiteLag,
    LiteTopicInfo,
    ParentTopicInfo,
)
from rmq.net.remoting.fields import java_name
from rmq.net.remoting.headers import Ext
from rmq.net.remoting.lenient import choice, get, load, texts

OFFSET_TYPES = ("POLICY", "OFFSET", "TAIL_N", "TIMESTAMP")


def read_declaration(ext: Ext, body: bytes) -> DeclareLites:
    """[LiteSubscriptionCtlRequestBody] No body at all is an empty list."""
    source = load(body or b"{}", "LITE_SUBSCRIPTION_CTL")
    return DeclareLites([_change(one) for one in get(source, "subscriptionSet", [])])


def _change(source: Any) -> LiteChange:
    """[LiteSubscriptionDTO]"""
    option = get(source, "offsetOption", {})
    return LiteChange(
        choice(source, "action", ACTIONS, ""),
        get(source, "clientId", ""),
        get(source, "group", ""),
        get(source, "topic", ""),
        texts(source, "liteTopicSet"),
        get(source, "version", 0),
        choice(option, "type", OFFSET_TYPES, "POLICY") if option else "",
        get(option, "value", 0),
    )


def write_broker_info(answer: BrokerLiteInfo, quoted: bool) -> bytes:
    """[GetBrokerLiteInfoResponseBody]"""
    return orjson.dumps(_java(answer))


def write_parent_info(answer: ParentTopicInfo, quoted: bool) -> bytes:
    """[GetParentTopicInfoResponseBody]"""
    said = _java(answer)
    if not answer.groups:
        del said["groups"]
    return orjson.dumps(said)


def write_topic_info(answer: LiteTopicInfo, quoted: bool) -> bytes:
    """[GetLiteTopicInfoResponseBody]"""
    said = _java(answer._replace(subscriber=[]))
    names = ("minOffset", "maxOffset", "lastUpdateTimestamp")
    said["topicOffset"] = {name: said.pop(name) for name in names}
    said["subscriber"] = [{"clientId": one.client_id, "group": one.group} for one in answer.subscriber]
    return orjson.dumps(said)


def write_client_info(answer: LiteClientInfo, quoted: bool) -> bytes:
    """[GetLiteClientInfoResponseBody]"""
    said = _java(answer)
    if answer.lite_topic_count < 0:
        del said["liteTopicSet"]
    return orjson.dumps(said)


def write_group_info(answer: LiteGroupInfo, quoted: bool) -> bytes:
    """[GetLiteGroupInfoResponseBody]"""
    said = _java(answer._replace(lag_count_top_k=[], lag_timestamp_top_k=[]))
    broker_offset, consumer_offset, last = (said.pop(name) for name in ("brokerOffset", "consumerOffset", "lastTimestamp"))
    said["lagCountTopK"] = [_lag(one) for one in answer.lag_count_top_k]
    said["lagTimestampTopK"] = [_lag(one) for one in answer.lag_timestamp_top_k]
    if broker_offset >= 0:
        said["liteTopicOffsetWrapper"] = {"brokerOffset": broker_offset, "consumerOffset": consumer_offset, "lastTimestamp": last}
    return orjson.dumps(said)


def _lag(one: LiteLag) -> dict[str, Any]:
    """[LiteLagInfo]"""
    return _java(one)


def _java(value: Any) -> dict[str, Any]:
    return {java_name(type(value), name): field for name, field in value._asdict().items()}


LITE_READERS: dict[type[Any], Callable[[Ext, bytes], Any]] = {DeclareLites: read_declaration}

LITE_WRITERS: dict[type[Any], Callable[[Any, bool], bytes]] = {
    BrokerLiteInfo: write_broker_info,
    ParentTopicInfo: write_parent_info,
    LiteTopicInfo: write_topic_info,
    LiteClientInfo: write_client_info,
    LiteGroupInfo: write_group_info,
}
