"""JSON bodies of RocketMQ's answers [RemotingSerializable]; `requestbodies` reads what clients send.

They are written in the form that every Java version reads: a map whose keys are objects has them bare
(`{{"topic":..}:1}`), which is no standard JSON, so those keys are written by hand. Pure.
"""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from rmq.model import (
    BrokerAddresses,
    ConnectionInfo,
    DataVersion,
    GroupConfig,
    MessageQueue,
    Route,
    Subscription,
    TopicConfig,
)
from rmq.net.commands import (
    ClusterInfo,
    ConsumerConnection,
    ConsumerList,
    ConsumeStats,
    GroupConfigs,
    GroupList,
    RuntimeInfo,
    TopicConfigs,
    TopicList,
    TopicStats,
)
from rmq.net.commands.clients import GroupSubscription, ProducerConnection, ProducerTable
from rmq.net.commands.locks import LockedQueues
from rmq.net.commands.peers import EpochCache, HaStatus
from rmq.net.commands.registration import SettingTable
from rmq.net.commands.resets import ResetOffsets
from rmq.net.remoting.fields import java_name
from rmq.net.remoting.lenient import (
    Json,
)


def bare_map(pairs: list[tuple[Any, Any]]) -> bytes:
    """A JSON object whose keys are written as they are: numbers and objects without quotes."""
    return b"{" + b",".join(orjson.dumps(key) + b":" + orjson.dumps(value) for key, value in pairs) + b"}"


def by_queue(head: bytes, pairs: Sequence[tuple[MessageQueue, Any]], tail: bytes) -> bytes:
    return head + bare_map([(queue_json(queue), value) for queue, value in pairs]) + tail


def queue_json(queue: MessageQueue) -> Json:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def _broker(broker: BrokerAddresses, quoted: bool) -> bytes:
    if quoted:
        addresses = orjson.dumps({str(broker_id): address for broker_id, address in broker.addresses.items()})
    else:
        addresses = bare_map(list(broker.addresses.items()))
    zone = {"zoneName": broker.zone} if broker.zone else {}
    names = orjson.dumps({"brokerName": broker.name, "cluster": broker.cluster, "enableActingMaster": False, **zone})
    return b'{"brokerAddrs":' + addresses + b"," + names[1:]


def write_route(route: Route, quoted: bool) -> bytes:
    """[TopicRouteData] `quoted`: broker ids as standard JSON keys, as clients from 4.9.4 on are answered."""
    brokers = b",".join(_broker(broker, quoted) for broker in route.brokers)
    rest: Json = {"filterServerTable": {}}
    if route.order_conf:
        rest["orderTopicConf"] = route.order_conf
    rest["queueDatas"] = [
        {
            "brokerName": queue.broker_name,
            "perm": queue.perm,
            "readQueueNums": queue.read_queue_nums,
            "topicSysFlag": queue.sys_flag,
            "writeQueueNums": queue.write_queue_nums,
        }
        for queue in route.queues
    ]
    return b'{"brokerDatas":[' + brokers + b"]," + orjson.dumps(rest)[1:]


def write_cluster(answer: ClusterInfo, quoted: bool) -> bytes:
    """[ClusterInfo]"""
    brokers = b",".join(orjson.dumps(broker.name) + b":" + _broker(broker, False) for broker in answer.brokers)
    clusters: dict[str, list[str]] = {}
    for broker in answer.brokers:
        clusters.setdefault(broker.cluster, []).append(broker.name)
    return b'{"brokerAddrTable":{' + brokers + b'},"clusterAddrTable":' + orjson.dumps(clusters) + b"}"


def write_topics(answer: TopicList, quoted: bool) -> bytes:
    """[TopicList]"""
    address = {"brokerAddr": answer.broker_addr} if answer.broker_addr else {}
    return orjson.dumps({**address, "topicList": answer.topics})


def topic_json(topic: TopicConfig) -> Json:
    """[TopicConfig]"""
    return {
        "attributes": topic.attributes,
        "order": topic.order,
        "perm": topic.perm,
        "readQueueNums": topic.read_queue_nums,
        "topicFilterType": topic.filter_type,
        "topicName": topic.name,
        "topicSysFlag": topic.sys_flag,
        "writeQueueNums": topic.write_queue_nums,
    }


def write_topic(answer: TopicConfig, quoted: bool) -> bytes:
    """[TopicConfig]"""
    return orjson.dumps(topic_json(answer))


def write_topic_table(answer: TopicConfigs, quoted: bool) -> bytes:
    """[TopicConfigAndMappingSerializeWrapper]"""
    return orjson.dumps(
        {
            "dataVersion": answer.data_version.json(),
            "mappingDataVersion": DataVersion().json(),
            "topicConfigTable": {topic.name: topic_json(topic) for topic in answer.topics},
            "topicQueueMappingDetailMap": {},
            "topicQueueMappingInfoMap": {},
        }
    )


def write_topic_stats(answer: TopicStats, quoted: bool) -> bytes:
    """[TopicStatsTable]"""
    pairs = [
        (
            stats.queue,
            {
                "lastUpdateTimestamp": stats.last_update_timestamp,
                "maxOffset": stats.max_offset,
                "minOffset": stats.min_offset,
            },
        )
        for stats in answer.queues
    ]
    return by_queue(b'{"offsetTable":', pairs, b',"topicPutTps":' + orjson.dumps(answer.topic_put_tps) + b"}")


def write_consume_stats(answer: ConsumeStats, quoted: bool) -> bytes:
    """[ConsumeStats]"""
    pairs = [
        (
            progress.queue,
            {
                "brokerOffset": progress.broker_offset,
                "consumerOffset": progress.consumer_offset,
                "lastTimestamp": progress.last_timestamp,
                "pullOffset": progress.pull_offset,
            },
        )
        for progress in answer.queues
    ]
    return by_queue(b'{"consumeTps":' + orjson.dumps(answer.consume_tps) + b',"offsetTable":', pairs, b"}")


def _group_name(field: str) -> str:
    return "groupName" if field == "name" else java_name(GroupConfig, field)


GROUP_NAMES = tuple(map(_group_name, GroupConfig._fields))  # one request asks for 20 000 of them


def group_json(config: GroupConfig) -> Json:
    """[SubscriptionGroupConfig]"""
    values: Json = dict(zip(GROUP_NAMES, config, strict=True))
    policy, subscribed = values.pop("retryPolicy"), values.pop("subscriptionDataSet")
    values["groupRetryPolicy"] = orjson.loads(policy) if policy else {"type": "CUSTOMIZED"}
    return {**values, "subscriptionDataSet": orjson.loads(subscribed)} if subscribed else values


def write_group(answer: GroupConfig, quoted: bool) -> bytes:
    """[SubscriptionGroupConfig]"""
    return orjson.dumps(group_json(answer), option=orjson.OPT_SORT_KEYS)


def write_group_table(answer: GroupConfigs, quoted: bool) -> bytes:
    """[SubscriptionGroupWrapper]"""
    table = {config.name: group_json(config) for config in answer.groups}
    version = answer.data_version.json()
    return orjson.dumps(
        {"dataVersion": version, "forbiddenTable": answer.forbidden, "subscriptionGroupTable": table}, option=orjson.OPT_SORT_KEYS
    )


def subscription_json(subscription: Subscription) -> Json:
    return {
        "classFilterMode": False,
        "codeSet": subscription.codes,
        "expressionType": subscription.expression_type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": subscription.tags,
        "topic": subscription.topic,
    }


def write_consumer_connection(answer: ConsumerConnection, quoted: bool) -> bytes:
    """[ConsumerConnection]"""
    return orjson.dumps(
        {
            "connectionSet": [_connection_json(one) for one in answer.connections],
            "consumeFromWhere": answer.consume_from_where,
            "consumeType": answer.consume_type,
            "messageModel": answer.message_model,
            "subscriptionTable": {part.topic: subscription_json(part) for part in answer.subscriptions},
        }
    )


def _connection_json(one: ConnectionInfo) -> Json:
    return {"clientAddr": one.address, "clientId": one.client_id, "language": one.language, "version": one.version}


def write_producer_connection(answer: ProducerConnection, quoted: bool) -> bytes:
    """[ProducerConnection]"""
    return orjson.dumps({"connectionSet": [_connection_json(one) for one in answer.connections]})


def write_producer_table(answer: ProducerTable, quoted: bool) -> bytes:
    """[ProducerTableInfo]"""
    table = {
        group: [
            {
                "clientId": one.client_id,
                "language": one.language,
                "lastUpdateTimestamp": one.last_update_timestamp,
                "remoteIP": one.address,
                "version": one.version,
            }
            for one in some
        ]
        for group, some in answer.groups.items()
    }
    return orjson.dumps({"data": table})


def write_group_subscription(answer: GroupSubscription, quoted: bool) -> bytes:
    """[QuerySubscriptionResponseBody]"""
    found = subscription_json(answer.subscriptions[0]) if answer.subscriptions else None
    return orjson.dumps({"group": answer.group, "subscriptionData": found, "topic": answer.topic})


def write_consumer_list(answer: ConsumerList, quoted: bool) -> bytes:
    """[GetConsumerListByGroupResponseBody]"""
    return orjson.dumps({"consumerIdList": answer.client_ids})


def write_resets(answer: ResetOffsets, quoted: bool) -> bytes:
    """[ResetOffsetBody]"""
    return b'{"offsetTable":' + bare_map([(queue_json(one.queue), one.offset) for one in answer.offsets]) + b"}"


def write_locked(answer: LockedQueues, quoted: bool) -> bytes:
    """[LockBatchResponseBody]"""
    return orjson.dumps({"lockOKMQSet": [queue_json(queue) for queue in answer.queues]})


def write_group_list(answer: GroupList, quoted: bool) -> bytes:
    """[GroupList]"""
    return orjson.dumps({"groupList": answer.groups})


def write_runtime_info(answer: RuntimeInfo | SettingTable, quoted: bool) -> bytes:
    """[KVTable]"""
    return orjson.dumps({"table": answer.table})


def write_ha_status(answer: HaStatus, quoted: bool) -> bytes:
    """[HARuntimeInfo] Rates and moments of a transfer are not kept: 0."""
    client = _named(answer.ha_client) | {"transferredByteInSecond": 0, "lastReadTimestamp": 0, "lastWriteTimestamp": 0}
    connections = [_named(each) | {"transferredByteInSecond": 0} for each in answer.ha_connection_info]
    return orjson.dumps(
        {
            "master": answer.master,
            "masterCommitLogMaxOffset": answer.master_commit_log_max_offset,
            "inSyncSlaveNums": answer.in_sync_slave_nums,
            "haConnectionInfo": connections,
            "haClientRuntimeInfo": client,
        }
    )


def write_epoch_cache(answer: EpochCache, quoted: bool) -> bytes:
    """[EpochEntryCache]"""
    return orjson.dumps(_named(answer) | {"epochList": [_named(each) for each in answer.epoch_list]})


def _named(value: Any) -> Json:
    """The fields under RocketMQ's names."""
    return {java_name(type(value), name): field for name, field in value._asdict().items()}


ANSWER_WRITERS: dict[type[Any], Callable[[Any, bool], bytes]] = {
    Route: write_route,
    ClusterInfo: write_cluster,
    TopicList: write_topics,
    TopicConfig: write_topic,
    TopicConfigs: write_topic_table,
    TopicStats: write_topic_stats,
    GroupConfig: write_group,
    GroupConfigs: write_group_table,
    ConsumeStats: write_consume_stats,
    ConsumerConnection: write_consumer_connection,
    ConsumerList: write_consumer_list,
    ProducerConnection: write_producer_connection,
    ProducerTable: write_producer_table,
    GroupSubscription: write_group_subscription,
    GroupList: write_group_list,
    LockedQueues: write_locked,
    ResetOffsets: write_resets,
    RuntimeInfo: write_runtime_info,
    SettingTable: write_runtime_info,
    HaStatus: write_ha_status,
    EpochCache: write_epoch_cache,
}
"""Answers that are a body; the others are text fields."""
